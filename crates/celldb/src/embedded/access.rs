//! Principals and rules of the embedded database.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use guard::{PtsAsker, Rules};
use types::{
    Answer, AuthCall, Behalf, CellCall, CellLevel, Fault, GuardCall, KeyPrint, LevelAct, Principal,
    PrincipalId, PtsCall, Revised, Revision, ServerId, ServerRoles, WhichPrincipal,
};

use super::{Embedded, Result};
use crate::access::{News, others};
use crate::operations::{list_invitations, list_rules};
use crate::reading::ViewBook;
use crate::{Access, CellDb, CellError};

/// The most changes in one answer.
const NEWS_MAX: usize = 1000;

impl Embedded {
    fn change_rules(
        &self,
        me: ServerId,
        by: PrincipalId,
        now: i64,
        call: &GuardCall,
    ) -> std::result::Result<Answer, Fault> {
        let held = self.operations.hold();
        let (revision, number, apart) = if let GuardCall::WithdrawKeys { server } = call {
            let (revision, count) = self.operations.withdraw_keys(&held, *server)?;
            self.refresh_keys(&held, revision);
            (revision, count, Some(*server))
        } else {
            let known = Arc::clone(&self.rules.read());
            let (rules, number) =
                self.operations.change_rules(&held, Some(&known), by, now, call)?;
            self.set_rules(&held, rules.record, rules.revision);
            (rules.revision, number, None)
        };
        drop(held);
        let others = others(&self.servers()?, me);
        Ok(Answer::Enforced { number, missing: self.listeners.missing(revision, &others, apart) })
    }
}

impl Access for Embedded {
    fn principal(&self, which: &WhichPrincipal) -> Result<Option<Principal>> {
        self.operations.read(|view| view.which_principal(which))
    }

    fn subdomain(
        &self,
        principal: PrincipalId,
        host: Option<IpAddr>,
    ) -> Result<(Revision, Vec<PrincipalId>)> {
        // A change that comes meanwhile has a later revision, and causes a new question.
        let at = self.latest();
        let all = self.operations.read(|view| guard::subdomain(&ViewBook(view), principal, host));
        Ok((at, all.map_err(CellError::Away)?))
    }

    fn pts(&self, asker: &PtsAsker, call: &PtsCall) -> std::result::Result<Answer, Fault> {
        if !call.changes() {
            return self
                .operations
                .read(|view| guard::perform(&ViewBook(view), asker, call))
                .map(|(answer, _)| answer);
        }
        let (answer, revision) =
            self.operations.change_principals(&self.operations.hold(), asker, call)?;
        if let Some(revision) = revision {
            self.listeners.wait_for(revision, None);
        }
        Ok(answer)
    }

    fn secret(&self, who: PrincipalId) -> Result<Option<String>> {
        self.operations.read(|view| view.secret(who))
    }

    fn set_secret(&self, who: PrincipalId, kept: &str, ends_tokens: Option<i64>) -> Result<()> {
        let held = self.operations.hold();
        let revision = self.operations.set_secret(&held, who, kept, ends_tokens)?;
        drop(held);
        if let Some(revision) = revision {
            self.listeners.wait_for(revision, None);
        }
        Ok(())
    }

    fn auth_elsewhere(
        &self,
        _: Option<Behalf>,
        _: &AuthCall,
    ) -> Option<std::result::Result<Answer, Fault>> {
        None
    }

    fn was_listed(&self, key: &KeyPrint) -> Result<bool> {
        Ok(self.operations.read(|view| view.past(key))?.is_some())
    }

    fn invited(&self, key: &KeyPrint) -> Result<Option<String>> {
        Ok(self.operations.read(|view| view.invited(key))?.map(|(_, name)| name))
    }

    fn withdrawn(&self) -> Result<Vec<KeyPrint>> {
        self.operations.read(|view| view.withdrawn())
    }

    fn limited_servers(&self) -> Result<Vec<(ServerId, ServerRoles)>> {
        self.operations.read(|view| view.limited_servers())
    }

    fn level(&self, act: &LevelAct) -> Result<CellLevel> {
        self.operations.ask_level(&self.operations.hold(), act)
    }

    fn invitations(
        &self,
        by: PrincipalId,
        now: i64,
        call: &CellCall,
    ) -> std::result::Result<Answer, Fault> {
        if let CellCall::Invitations { after, max } = *call {
            return self.operations.read(|view| list_invitations(view, after, max));
        }
        let held = self.operations.hold();
        self.operations.change_invitations(&held, by, now, call).map(|(_, answer)| answer)
    }

    fn rules_at(&self) -> Revision {
        Revision(self.rules_at.load(Ordering::Acquire))
    }

    fn rules(&self) -> Arc<Revised<Rules>> {
        Arc::clone(&self.rules.read())
    }

    fn guard(
        &self,
        me: ServerId,
        by: PrincipalId,
        now: i64,
        call: &GuardCall,
    ) -> std::result::Result<Answer, Fault> {
        if call.changes() {
            self.change_rules(me, by, now, call)
        } else {
            Ok(list_rules(&self.rules.read().record, call))
        }
    }

    fn latest(&self) -> Revision {
        Revision(self.operations.engine.latest.load(Ordering::Acquire))
    }

    fn news(&self, since: Revision) -> Result<News> {
        let at = self.latest();
        match self.changes(since, NEWS_MAX) {
            // More changes than fit: the caller must forget all principals.
            Ok(changes) if changes.len() == NEWS_MAX => Ok((at, None)),
            Ok(changes) => {
                Ok((at.max(changes.last().map_or(at, |(revision, _)| *revision)), Some(changes)))
            }
            Err(CellError::Forgotten { .. }) => Ok((at, None)),
            Err(error) => Err(error),
        }
    }

    /// The changes are made here.
    fn listen(&self, _me: ServerId) {}

    fn watch(&self, who: ServerId, since: Revision, max: usize) -> Result<News> {
        self.listeners.confirm(who, since);
        let at = self.latest();
        match self.changes(since, max) {
            Ok(changes) => Ok((at, Some(changes))),
            Err(CellError::Forgotten { .. }) => Ok((at, None)),
            Err(error) => Err(error),
        }
    }
}
