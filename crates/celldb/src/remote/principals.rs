//! Users and groups, when another server has the database.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use guard::{PtsAsker, Rules};
use types::{
    Answer, AuthCall, Behalf, Call, CellCall, CellLevel, Fault, GuardCall, KeyPrint, LevelAct,
    Principal, PrincipalId, PtsCall, Revised, Revision, ServerId, ServerRoles, WhichPrincipal,
};

use super::{RemoteCellDb, Result};
use crate::following::roles_of;
use crate::{Access, CellError, News, following};

/// The most changes in one answer.
const CHANGES_MAX: u32 = 1000;

impl Access for RemoteCellDb {
    fn principal(&self, which: &WhichPrincipal) -> Result<Option<Principal>> {
        match self.look_up(CellCall::Principal { which: which.clone() }) {
            Ok(Answer::Principals { mut principals, .. }) => {
                Ok(principals.pop().map(|(principal, _)| principal))
            }
            Ok(_) => Err(CellError::Away(Fault::Invalid)),
            Err(Fault::NoPrincipal) => Ok(None),
            Err(fault) => Err(CellError::Away(fault)),
        }
    }

    fn subdomain(
        &self,
        principal: PrincipalId,
        host: Option<IpAddr>,
    ) -> Result<(Revision, Vec<PrincipalId>)> {
        match self.look_up(CellCall::Subdomain { principal, host }).map_err(CellError::Away)? {
            Answer::Subdomain { at, groups } => Ok((at, groups)),
            _ => Err(CellError::Away(Fault::Invalid)),
        }
    }

    fn pts(&self, asker: &PtsAsker, call: &PtsCall) -> std::result::Result<Answer, Fault> {
        // A caller that is anonymous in the cell and yet an administrator is the superuser here, as
        // this server is there.
        let superuser = asker.principal == PrincipalId::ANONYMOUS && asker.cps.is_administrator();
        let on_behalf = (!superuser).then_some(asker.principal);
        self.call(Call::Pts { on_behalf, call: Box::new(call.clone()) })
    }

    fn secret(&self, _: PrincipalId) -> Result<Option<String>> {
        Err(CellError::Away(Fault::Unsupported))
    }

    fn set_secret(&self, _: PrincipalId, _: &str, _: Option<i64>) -> Result<()> {
        Err(CellError::Away(Fault::Unsupported))
    }

    fn auth_elsewhere(
        &self,
        behalf: Option<Behalf>,
        call: &AuthCall,
    ) -> Option<std::result::Result<Answer, Fault>> {
        Some(self.call(Call::Auth { behalf, call: Box::new(call.clone()) }))
    }

    fn rules_at(&self) -> Revision {
        self.following.ruled.at()
    }

    fn rules(&self) -> Arc<Revised<Rules>> {
        self.following.ruled.rules()
    }

    fn guard(
        &self,
        _me: ServerId,
        by: PrincipalId,
        _now: i64,
        call: &GuardCall,
    ) -> std::result::Result<Answer, Fault> {
        self.call(Call::Guard { behalf: Some(by), call: Box::new(call.clone()) })
    }

    fn withdrawn(&self) -> Result<Vec<KeyPrint>> {
        match self.ask(CellCall::Withdrawn).map_err(CellError::Away)? {
            Answer::Report(text) => {
                let all: Vec<String> =
                    serde_json::from_str(&text).map_err(|_| CellError::Away(Fault::Invalid))?;
                Ok(all.iter().filter_map(|key| key.parse().ok()).collect())
            }
            _ => Err(CellError::Away(Fault::Invalid)),
        }
    }

    fn limited_servers(&self) -> Result<Vec<(ServerId, ServerRoles)>> {
        match self.ask(CellCall::ServerRoles) {
            Ok(Answer::Report(text)) => roles_of(&text).ok_or(CellError::Away(Fault::Invalid)),
            Ok(_) => Err(CellError::Away(Fault::Invalid)),
            Err(fault) => Err(CellError::Away(fault)),
        }
    }

    fn level(&self, act: &LevelAct) -> Result<CellLevel> {
        match self.ask(CellCall::Level { act: act.clone() }) {
            Ok(Answer::Level(found)) => {
                self.need_known_level(found.level)?;
                Ok(found)
            }
            Ok(_) => Err(CellError::Away(Fault::Invalid)),
            Err(fault) => Err(CellError::Away(fault)),
        }
    }

    fn invitations(
        &self,
        by: PrincipalId,
        _now: i64,
        call: &CellCall,
    ) -> std::result::Result<Answer, Fault> {
        // The database's server takes this one's word for the caller.
        let call = match call.clone() {
            CellCall::Invite { public, seconds, uses, roles, name, .. } => {
                CellCall::Invite { public, seconds, uses, roles, by, name }
            }
            call => call,
        };
        self.ask(call)
    }

    fn is_elsewhere(&self) -> bool {
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

    fn watch(&self, who: ServerId, since: Revision, max: usize) -> Result<News> {
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        self.answer(CellCall::Watch { server: who, since, max }, |answer| match answer {
            Answer::Changes { at, changes } => Some((at, changes)),
            _ => None,
        })
    }

    fn listen(&self, me: ServerId) {
        loop {
            let since = self.following.received.at();
            let asked = following::now();
            let watched = self.watch(me, since, CHANGES_MAX as usize);
            self.refused
                .store(watched == Err(CellError::Away(Fault::NotPermitted)), Ordering::Release);
            let Ok((at, changes)) = watched else { return };
            let last = changes
                .as_ref()
                .filter(|changes| changes.len() == CHANGES_MAX as usize)
                .and_then(|all| all.last());
            let more = last.is_some();
            // If there is more than one answer holds, the next question asks for the rest.
            let at = last.map_or(at, |(revision, _)| *revision);
            // The next question confirms that these are in force, so the rules are fetched first.
            if self.following.ruled.is_touched_by(changes.as_deref()) && !self.fetch_rules(at) {
                return;
            }
            self.following.received.add(at, changes);
            if !more {
                // The time when the question was sent, not when its answer came.
                self.following.confirm(asked);
                return;
            }
        }
    }
}
