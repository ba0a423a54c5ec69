//! Who is who: principals, as every server of the cell asks for them.

use std::net::IpAddr;
use std::sync::Arc;

use guard::{PtsAsker, Rules};
use types::{
    Answer, AuthCall, Behalf, Changed, Fault, GuardCall, KeyPrint, Principal, PrincipalId, PtsCall,
    Revised, Revision, ServerId, WhichPrincipal,
};

use crate::CellError;

/// Up to which revision somebody was told, and what changed until then; `None`: so much that it is
/// forgotten.
pub type News = (Revision, Option<Vec<(Revision, Changed)>>);

/// Principals, with what follows from them. Thread-safe.
pub trait Access: Send + Sync {
    /// Somebody's record.
    ///
    /// # Errors
    /// `Damaged`, `Medium`; `Away` where it is another server's; so for all methods.
    fn principal(&self, which: &WhichPrincipal) -> Result<Option<Principal>, CellError>;

    /// Every group that a principal is in who asks from `host`, directly or through groups, and the
    /// host sets; as of which revision, at least.
    ///
    /// # Errors
    /// As `principal`.
    fn subdomain(
        &self,
        principal: PrincipalId,
        host: Option<IpAddr>,
    ) -> Result<(Revision, Vec<PrincipalId>), CellError>;

    /// Asks about principals, or changes them. A change that was answered is in force at every
    /// server that can be heard of.
    ///
    /// # Errors
    /// Those of [`guard::perform`].
    fn pts(&self, asker: &PtsAsker, call: &PtsCall) -> Result<Answer, Fault>;

    /// What is kept of somebody's password, where the database is.
    ///
    /// # Errors
    /// As `principal`.
    fn secret(&self, who: PrincipalId) -> Result<Option<String>, CellError>;

    /// Keeps that instead. `ends_tokens`: the time now, in seconds since 1970, if tokens that were
    /// made before are to end with it: both happen, or neither does.
    ///
    /// # Errors
    /// As `principal`.
    fn set_secret(
        &self,
        who: PrincipalId,
        kept: &str,
        ends_tokens: Option<i64>,
    ) -> Result<(), CellError>;

    /// What the server answers that has the database, where that is another one. `behalf`: of whom
    /// it is asked; `None`: of the superuser here.
    fn auth_elsewhere(
        &self,
        behalf: Option<Behalf>,
        call: &AuthCall,
    ) -> Option<Result<Answer, Fault>>;

    /// The revision of the rules, as far as this server was told. Costs next to nothing.
    fn rules_at(&self) -> Revision;

    /// The rules, as far as this server was told; nobody is asked.
    fn rules(&self) -> Arc<Revised<Rules>>;

    /// Whether a server's record listed this key once, and does no more: its holder may not enter
    /// it again. Only the server that has the database knows.
    ///
    /// # Errors
    /// As `principal`; `Away(Unsupported)` where another server has the database.
    fn was_listed(&self, _key: &KeyPrint) -> Result<bool, CellError> {
        Err(CellError::Away(Fault::Unsupported))
    }

    /// Asks about rules, or changes them, at the moment `now` (seconds since 1970). A change that
    /// was answered is in force at every server of the cell but this one, `me`, and those that the
    /// answer names. `by`: who asks; [`PrincipalId::NONE`]: the superuser here.
    ///
    /// # Errors
    /// Those of [`guard::Rules::edit`]; the medium's.
    fn guard(
        &self,
        me: ServerId,
        by: PrincipalId,
        now: i64,
        call: &GuardCall,
    ) -> Result<Answer, Fault>;

    /// The last revision that this server was told of, without asking anybody who is not here.
    /// Costs next to nothing.
    fn latest(&self) -> Revision;

    /// What changed after `since`, as far as this server was told.
    ///
    /// # Errors
    /// As `principal`.
    fn news(&self, since: Revision) -> Result<News, CellError>;

    /// What changed after `since`, for the server `who`, which has put into force all until then.
    ///
    /// # Errors
    /// As `principal`.
    fn watch(&self, who: ServerId, since: Revision, max: usize) -> Result<News, CellError>;

    /// Whether another server has the database, so that a question may take seconds.
    fn is_elsewhere(&self) -> bool {
        false
    }

    /// Whether this server has not heard of changes for so long that what it remembers of
    /// principals counts no more. Costs next to nothing.
    fn is_stale(&self) -> bool {
        false
    }

    /// Asks for news in the name of the server `me`, where another one has the database. Called
    /// several times a second by one thread.
    fn listen(&self, me: ServerId);
}
