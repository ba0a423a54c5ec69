//! Principals and rules, as every server of the cell asks for them.

use std::net::IpAddr;
use std::sync::Arc;

use guard::{PtsAsker, Rules};
use types::{
    Answer, AuthCall, Behalf, CellCall, CellLevel, Changed, Fault, GuardCall, KeyPrint, LevelAct,
    Principal, PrincipalId, PtsCall, Revised, Revision, ServerId, ServerInfo, ServerKind,
    ServerRoles, WhichPrincipal,
};

use crate::CellError;

/// The servers but `me` that have rules in force: those of AFS know of none.
pub(crate) fn others(servers: &[Revised<ServerInfo>], me: ServerId) -> Vec<ServerId> {
    let all = servers.iter().map(|seen| &seen.record);
    all.filter(|one| one.kind() == ServerKind::Rialto && one.id != me).map(|one| one.id).collect()
}

/// The revision up to which changes are known, and the changes until then; `None`: the older ones
/// are no longer known.
pub type News = (Revision, Option<Vec<(Revision, Changed)>>);

/// Principals, and their groups and rights. Thread-safe.
pub trait Access: Send + Sync {
    /// The record of a principal.
    ///
    /// # Errors
    /// `Damaged`, `Medium`; `Away` where it is another server's; so for all methods.
    fn principal(&self, which: &WhichPrincipal) -> Result<Option<Principal>, CellError>;

    /// The current protection set of a principal who calls from `host`, with the host sets; and the
    /// revision up to which it is current, at least.
    fn subdomain(
        &self,
        principal: PrincipalId,
        host: Option<IpAddr>,
    ) -> Result<(Revision, Vec<PrincipalId>), CellError>;

    /// Asks about principals, or changes them. A change that was answered is in force at every
    /// server that is not silent.
    ///
    /// # Errors
    /// Those of [`guard::perform`].
    fn pts(&self, asker: &PtsAsker, call: &PtsCall) -> Result<Answer, Fault>;

    /// The stored hash of a principal's password, where the database is.
    fn secret(&self, who: PrincipalId) -> Result<Option<String>, CellError>;

    /// Replaces that hash. `ends_tokens`: the time now, in seconds since 1970, if older tokens
    /// shall end with the old password: both happen, or neither does.
    fn set_secret(
        &self,
        who: PrincipalId,
        kept: &str,
        ends_tokens: Option<i64>,
    ) -> Result<(), CellError>;

    /// Calls the server that has the database, if that is another one. `behalf`: the principal who
    /// calls; `None`: the superuser here.
    fn auth_elsewhere(
        &self,
        behalf: Option<Behalf>,
        call: &AuthCall,
    ) -> Option<Result<Answer, Fault>>;

    /// The revision of the rules that this server has. Costs next to nothing.
    fn rules_at(&self) -> Revision;

    /// The rules that this server has; no other server is asked.
    fn rules(&self) -> Arc<Revised<Rules>>;

    /// Did a server's record list this key once, and no longer does? Then its holder may not enter
    /// it again. Only the server that has the database knows.
    ///
    /// # Errors
    /// As `principal`; `Away(Unsupported)` where another server has the database.
    fn was_listed(&self, _key: &KeyPrint) -> Result<bool, CellError> {
        Err(CellError::Away(Fault::Unsupported))
    }

    /// The name under which an invitation let this key in; `None`: none did. Only where the records
    /// are.
    ///
    /// # Errors
    /// As `was_listed`.
    fn invited(&self, _key: &KeyPrint) -> Result<Option<String>, CellError> {
        Err(CellError::Away(Fault::Unsupported))
    }

    /// The keys of servers that were withdrawn, the newest.
    ///
    /// # Errors
    /// As `principal`; `Away(Unsupported)`: the server that has the database is older than this.
    fn withdrawn(&self) -> Result<Vec<KeyPrint>, CellError> {
        Err(CellError::Away(Fault::Unsupported))
    }

    /// The servers that do not have all roles.
    ///
    /// # Errors
    /// As `withdrawn`.
    fn limited_servers(&self) -> Result<Vec<(ServerId, ServerRoles)>, CellError> {
        Err(CellError::Away(Fault::Unsupported))
    }

    /// Asks for the level of the cell, or changes it.
    ///
    /// # Errors
    /// `Behind`, `Misuse`; `Away(NotFound)`: a server without a record told its program; otherwise
    /// as `withdrawn`.
    fn level(&self, _act: &LevelAct) -> Result<CellLevel, CellError> {
        Err(CellError::Away(Fault::Unsupported))
    }

    /// Asks for invitations of servers, or changes them, at the moment `now` (seconds since 1970),
    /// for the caller `by`.
    ///
    /// # Errors
    /// As the calls say; the medium's.
    fn invitations(&self, _by: PrincipalId, _now: i64, _call: &CellCall) -> Result<Answer, Fault> {
        Err(Fault::Unsupported)
    }

    /// Asks about rules, or changes them, at the moment `now` (seconds since 1970). A change that
    /// was answered is in force at every server of the cell but this one, `me`, and those that the
    /// answer names. `by`: the caller; [`PrincipalId::NONE`]: the superuser here.
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

    /// The last revision that this server knows; no other server is asked. Costs next to nothing.
    fn latest(&self) -> Revision;

    /// The changes after `since` that this server knows.
    fn news(&self, since: Revision) -> Result<News, CellError>;

    /// The changes after `since`, for the server `who`, which has put all until then into force.
    fn watch(&self, who: ServerId, since: Revision, max: usize) -> Result<News, CellError>;

    /// Does another server have the database, so that a call may take seconds?
    fn is_elsewhere(&self) -> bool {
        false
    }

    /// Does this server read and change the records itself? Then it alone decides what a caller may
    /// change.
    fn has_records(&self) -> bool {
        !self.is_elsewhere()
    }

    /// Has this server received no changes for so long that its records of principals are no longer
    /// valid? Costs next to nothing.
    fn is_stale(&self) -> bool {
        false
    }

    /// Fetches changes in the name of the server `me`, where another one has the database. One
    /// thread calls it several times a second.
    fn listen(&self, me: ServerId);
}
