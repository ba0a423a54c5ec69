//! Principals and rules of a database in etcd.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use guard::{PtsAsker, Rules};
use types::{
    Answer, AuthCall, Behalf, CellCall, CellLevel, Fault, GuardCall, KeyPrint, LevelAct, Principal,
    PrincipalId, PtsCall, Revised, Revision, ServerId, ServerRoles, WhichPrincipal,
};

use super::{ASK_EVERY, Etcd, Ordering, Result};
use crate::access::{News, others};
use crate::engine::{Engine, View};
use crate::operations::{list_invitations, list_rules};
use crate::reading::ViewBook;
use crate::{Access, CellDb, CellError};

impl Etcd {
    /// Waits until all servers have this revision that can be reached.
    pub(super) fn wait_for(&self, revision: Revision, apart: Option<ServerId>) {
        let missing = self.missing(revision, &[], apart);
        if !missing.is_empty() {
            tracing::warn!(
                ?missing,
                "a change is not in force at these servers yet: they reach etcd, and calls that \
                 began before do not end"
            );
        }
    }

    fn missing(
        &self,
        revision: Revision,
        servers: &[ServerId],
        apart: Option<ServerId>,
    ) -> Vec<ServerId> {
        self.shared.stir();
        self.heard.missing(revision, servers, apart)
    }

    fn change_rules(
        &self,
        me: ServerId,
        by: PrincipalId,
        now: i64,
        call: &GuardCall,
    ) -> std::result::Result<Answer, Fault> {
        let (revision, number, apart) = self.write(|operations, held| {
            if let GuardCall::WithdrawKeys { server } = call {
                let (revision, count) = operations.withdraw_keys(held, *server)?;
                return Ok::<_, Fault>((revision, count, Some(*server)));
            }
            let (rules, number) = operations.change_rules(held, None, by, now, call)?;
            Ok((rules.revision, number, None))
        })?;
        let others = others(&self.servers()?, me);
        Ok(Answer::Enforced { number, missing: self.missing(revision, &others, apart) })
    }
}

impl Access for Etcd {
    fn principal(&self, which: &WhichPrincipal) -> Result<Option<Principal>> {
        self.read(|view| view.which_principal(which))
    }

    fn subdomain(
        &self,
        principal: PrincipalId,
        host: Option<IpAddr>,
    ) -> Result<(Revision, Vec<PrincipalId>)> {
        self.read(|view| {
            let at = Revision(view.counters()?.revision);
            let all = guard::subdomain(&ViewBook(view), principal, host);
            Ok((at, all.map_err(CellError::Away)?))
        })
    }

    fn pts(&self, asker: &PtsAsker, call: &PtsCall) -> std::result::Result<Answer, Fault> {
        if !call.changes() {
            return self
                .need_etcd()?
                .read(|view| guard::perform(&ViewBook(view), asker, call))
                .map(|(answer, _)| answer);
        }
        let (answer, revision) =
            self.write(|operations, held| operations.change_principals(held, asker, call))?;
        if let Some(revision) = revision {
            self.wait_for(revision, None);
        }
        Ok(answer)
    }

    fn secret(&self, who: PrincipalId) -> Result<Option<String>> {
        self.read(|view| view.secret(who))
    }

    fn set_secret(&self, who: PrincipalId, kept: &str, ends_tokens: Option<i64>) -> Result<()> {
        let revision =
            self.write(|operations, held| operations.set_secret(held, who, kept, ends_tokens))?;
        if let Some(revision) = revision {
            self.wait_for(revision, None);
        }
        Ok(())
    }

    /// Each server has the records of passwords.
    fn auth_elsewhere(
        &self,
        _: Option<Behalf>,
        _: &AuthCall,
    ) -> Option<std::result::Result<Answer, Fault>> {
        None
    }

    fn was_listed(&self, key: &KeyPrint) -> Result<bool> {
        Ok(self.read(|view| view.past(key))?.is_some())
    }

    fn invited(&self, key: &KeyPrint) -> Result<Option<String>> {
        Ok(self.read(|view| view.invited(key))?.map(|(_, name)| name))
    }

    fn withdrawn(&self) -> Result<Vec<KeyPrint>> {
        self.read(|view| view.withdrawn())
    }

    fn limited_servers(&self) -> Result<Vec<(ServerId, ServerRoles)>> {
        self.read(|view| view.limited_servers())
    }

    fn level(&self, act: &LevelAct) -> Result<CellLevel> {
        match act {
            LevelAct::Ask => self.read(|view| view.cell_level()),
            act => self.write(|operations, held| operations.ask_level(held, act)),
        }
    }

    fn invitations(
        &self,
        by: PrincipalId,
        now: i64,
        call: &CellCall,
    ) -> std::result::Result<Answer, Fault> {
        if let CellCall::Invitations { after, max } = *call {
            return self.need_etcd()?.read(|view| list_invitations(view, after, max));
        }
        let made =
            self.write(|operations, held| operations.change_invitations(held, by, now, call));
        made.map(|(_, answer)| answer)
    }

    fn rules_at(&self) -> Revision {
        self.following.ruled.at()
    }

    fn rules(&self) -> Arc<Revised<Rules>> {
        self.following.ruled.rules()
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
            Ok(list_rules(&self.read(|view| view.rules())?.record, call))
        }
    }

    fn is_elsewhere(&self) -> bool {
        true
    }

    fn has_records(&self) -> bool {
        true
    }

    fn is_stale(&self) -> bool {
        self.following.is_stale()
    }

    fn latest(&self) -> Revision {
        self.following.received.at()
    }

    fn news(&self, since: Revision) -> Result<News> {
        Ok(self.following.received.news(since))
    }

    /// For a server that does not reach etcd itself, and asks this one.
    fn watch(&self, who: ServerId, since: Revision, max: usize) -> Result<News> {
        let operations = self.need_etcd()?;
        // Before the changes are read: those that come later wait for it.
        self.heard.acknowledge(who, since)?;
        let view = operations.engine.view();
        let view: &dyn View = &view;
        let at = Revision(view.counters()?.revision);
        match view.changes(since, max) {
            Ok(changes) => Ok((at, Some(changes))),
            Err(CellError::Forgotten { .. }) => Ok((at, None)),
            Err(error) => Err(error),
        }
    }

    fn listen(&self, me: ServerId) {
        self.shared.listens.store(true, Ordering::Release);
        let stirred = self.shared.stirred.swap(false, Ordering::AcqRel);
        let mut asked = self.asked.lock();
        let is_due = asked.is_none_or(|asked| asked.elapsed() >= ASK_EVERY);
        let is_known = self.heard.has(me, self.following.received.at());
        if !stirred && !is_due && is_known {
            return;
        }
        *asked = Some(Instant::now());
        let outcome = self.receive(me);
        self.report(&outcome);
    }
}
