//! The cell's rules, with the servers' keys, fetched from the server that has the database.

use guard::{Rules, ServerKeys};
use types::{Answer, Call, CellCall, Fault, Fence, GuardCall, Mandate, Revision};

use super::RemoteCellDb;
use crate::{CellDb, CellError};

/// Rules in one answer.
const AT_ONCE: u32 = 1000;

impl RemoteCellDb {
    /// Fetches all rules, as they are after revision `at` or later; `false`: the database cannot be
    /// asked.
    pub(super) fn fetch_rules(&self, at: Revision) -> bool {
        let fetched = self.all_fences().and_then(|fences| {
            Ok(Rules { fences, mandates: self.all_mandates()?, servers: self.all_server_keys()? })
        });
        match fetched {
            Ok(rules) => {
                self.following.ruled.renew(rules, at);
                true
            }
            Err(fault) => {
                tracing::warn!(%fault, "the cell's rules cannot be fetched");
                false
            }
        }
    }

    /// All rules of a kind, in as many calls as it takes.
    fn all_rules<R>(
        &self,
        number: fn(&R) -> u64,
        call: fn(u64) -> GuardCall,
        rules_of: fn(Answer) -> Option<(Vec<R>, bool)>,
    ) -> Result<Vec<R>, Fault> {
        let mut all: Vec<R> = Vec::new();
        loop {
            let call = call(all.last().map_or(0, number));
            let answer = self.call(Call::Guard { behalf: None, call: Box::new(call) })?;
            let (rules, end) = rules_of(answer).ok_or(Fault::Invalid)?;
            let is_last = end || rules.is_empty();
            all.extend(rules);
            if is_last {
                return Ok(all);
            }
        }
    }

    fn all_fences(&self) -> Result<Vec<Fence>, Fault> {
        let call = |after| GuardCall::Fences { after, max: AT_ONCE };
        self.all_rules(
            |fence| fence.number,
            call,
            |answer| match answer {
                Answer::Fences { fences, end } => Some((fences, end)),
                _ => None,
            },
        )
    }

    fn all_mandates(&self) -> Result<Vec<Mandate>, Fault> {
        let call = |after| GuardCall::Mandates { after, max: AT_ONCE };
        self.all_rules(
            |mandate| mandate.number,
            call,
            |answer| match answer {
                Answer::Mandates { mandates, end } => Some((mandates, end)),
                _ => None,
            },
        )
    }

    fn all_server_keys(&self) -> Result<ServerKeys, Fault> {
        match self.ask(CellCall::Servers)? {
            Answer::Servers(servers) => {
                let keys = ServerKeys::of(servers.iter().map(|seen| &seen.record));
                match self.access().limited_servers() {
                    Ok(roles) => Ok(keys.limited(roles)),
                    // The database's server is older than roles, and has none.
                    Err(CellError::Away(Fault::Unsupported)) => Ok(keys),
                    Err(error) => Err(error.into()),
                }
            }
            _ => Err(Fault::Invalid),
        }
    }
}
