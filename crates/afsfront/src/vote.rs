//! VOTE, the service beside a database through which AFS's database servers elect the one that
//! takes changes.
//!
//! Each server of a Rialto cell takes changes of the databases, so to clients of AFS it is alone:
//! a synchronization site for ever, which votes for no other one. Its version is the revision of
//! the cell's database, which is the same at all servers. A server whose databases follow those of
//! OpenAFS is none.

use afs3::ubik::vote::{VoteAnswer, VoteCall};
use afs3::ubik::{UbikDebug, UbikDebugOld, UbikVersion, recovery};
use types::{Answer, Call, CellCall, Fault, Revision};

use crate::locations::addresses;
use crate::{Databases, Refusal, Services};

/// Addresses in an answer.
const ADDRESSES: usize = 256;
/// There is no other server with this number.
const NO_MORE: Refusal = Refusal(2);
/// The server stays the synchronization site.
const FOR_EVER: i32 = i32::MAX;
/// The database has one epoch for ever.
const EPOCH: i32 = 1;
/// The recovery state of a server whose database answers.
const WHOLE: i32 = recovery::SYNC_SITE
    | recovery::FOUND_DATABASE
    | recovery::HAVE_DATABASE
    | recovery::LABELLED_DATABASE
    | recovery::SENT_DATABASE;

/// See the head of the file.
pub struct VoteService {
    /// When the server started, in seconds since 1970.
    started: i64,
    databases: Databases,
}

/// Times are 32 bits, and end in 2106 as numbers without sign.
fn seconds(at: i64) -> i32 {
    u32::try_from(at).unwrap_or(0) as i32
}

impl VoteService {
    /// Of a server that started then.
    pub fn new(started: i64, databases: Databases) -> VoteService {
        VoteService { started, databases }
    }

    /// Answers a call.
    ///
    /// # Errors
    /// The code with which the call ends.
    pub fn serve(&self, services: &dyn Services, call: &VoteCall) -> Result<VoteAnswer, Refusal> {
        match call {
            // No vote for another server.
            VoteCall::Beacon { .. } => Ok(VoteAnswer::Beacon {}),
            VoteCall::GetSyncSite { .. } => Ok(VoteAnswer::GetSyncSite {}),
            VoteCall::DebugOld {} => {
                let own = own_addresses(services)?;
                Ok(VoteAnswer::DebugOld { state: self.state(services, &own)? })
            }
            VoteCall::Debug {} => Ok(VoteAnswer::Debug { state: self.debug(services)? }),
            VoteCall::XDebug {} => {
                Ok(VoteAnswer::XDebug { state: self.debug(services)?, is_clone: 0 })
            }
            VoteCall::SDebugOld { .. } | VoteCall::SDebug { .. } | VoteCall::XSDebug { .. } => {
                Err(NO_MORE)
            }
        }
    }

    fn debug(&self, services: &dyn Services) -> Result<Box<UbikDebug>, Refusal> {
        let own = own_addresses(services)?;
        let state = self.state(services, &own)?;
        let mut addresses = [0; ADDRESSES];
        addresses.iter_mut().zip(own).for_each(|(place, address)| *place = address);
        Ok(Box::new(UbikDebug { state, addresses }))
    }

    fn state(&self, services: &dyn Services, own: &[u32]) -> Result<UbikDebugOld, Refusal> {
        let revision = revision(services)?;
        let version = revision.map_or(UbikVersion::default(), |revision| UbikVersion {
            epoch: EPOCH,
            counter: (revision.0 & i32::MAX as u64) as i32,
        });
        let (host, now) = (own.first().copied().unwrap_or(0), seconds(services.now().secs));
        if self.databases == Databases::Followed {
            // The server that takes changes is none of Rialto's.
            return Ok(UbikDebugOld {
                now,
                lowest_host: host,
                lowest_time: now,
                servers: 1,
                local_version: version,
                epoch_time: seconds(self.started),
                ..UbikDebugOld::default()
            });
        }
        let recovery_state = match revision {
            Some(_) => WHOLE,
            None => recovery::SYNC_SITE,
        };
        Ok(UbikDebugOld {
            now,
            last_yes_time: now,
            last_yes_host: host,
            last_yes_state: 1,
            last_yes_claim: now,
            lowest_host: host,
            lowest_time: now,
            sync_host: host,
            sync_time: now,
            sync_version: version,
            is_sync_site: 1,
            sync_site_until: FOR_EVER,
            servers: 1,
            local_version: version,
            recovery_state,
            epoch_time: seconds(self.started),
            ..UbikDebugOld::default()
        })
    }
}

/// The revision of the cell's database; `None`: it does not answer now.
fn revision(services: &dyn Services) -> Result<Option<Revision>, Refusal> {
    let changes = CellCall::Changes { since: Revision(0), max: 1 };
    match services.ask_as_server(Call::Cell(changes)) {
        Ok(Answer::Changes { at, .. }) => Ok(Some(at)),
        Err(Fault::CellAway) => Ok(None),
        Err(fault) => Err(fault.into()),
        Ok(_) => Err(Refusal::IO),
    }
}

/// The addresses of the server itself.
fn own_addresses(services: &dyn Services) -> Result<Vec<u32>, Refusal> {
    match services.ask_as_server(Call::Cell(CellCall::Me))? {
        Answer::Servers(servers) => {
            Ok(servers.first().map(|me| addresses(&me.record)).unwrap_or_default())
        }
        _ => Err(Refusal::IO),
    }
}
