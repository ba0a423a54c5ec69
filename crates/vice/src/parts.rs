//! The parts that a service is made of, beside its partitions: all are there from its first call.

use std::sync::Arc;

use guard::{Authenticator, Certifier};
use types::ServerInfo;

use crate::{AuditLog, CellAccess, LookupHook, Principals, StandbyAgent, TransferAgent};

/// Answers [`types::Call::Scrub`]: given `start`, it returns the report. The driver has the thread
/// that does the work.
pub type ScrubHook = Box<dyn Fn(bool) -> String + Send + Sync>;

/// See the head of the file. The default is a server alone, without threads of a driver: calls
/// that need a part that is missing are refused with `Unsupported`.
#[derive(Default)]
pub struct ViceParts {
    /// The public record of this server. `None`: it has no name and no addresses.
    pub me: Option<ServerInfo>,
    /// The cell's database.
    pub cell: CellAccess,
    /// The source of tokens, which also checks passwords and tickets.
    pub authenticator: Option<Arc<dyn Authenticator>>,
    /// Lets other servers into the cell; `None`: this one does not.
    pub certifier: Option<Arc<dyn Certifier>>,
    /// A source of principals for access checks instead of the cell's database, for tests.
    pub principals: Option<Arc<dyn Principals>>,
    /// The driver's audit log.
    pub audit: Option<Arc<dyn AuditLog>>,
    /// The driver's threads that fetch volumes from other servers.
    pub transfers: Option<Arc<dyn TransferAgent>>,
    /// The driver's threads for volumes elsewhere for which this server stands by.
    pub standbys: Option<Arc<dyn StandbyAgent>>,
    /// The way of calls that need the cell's database to threads that may wait; without it they
    /// wait in their own thread.
    pub lookups: Option<LookupHook>,
    /// The scrubber.
    pub scrub: Option<ScrubHook>,
}
