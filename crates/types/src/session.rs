//! Identifiers of clients, sessions and requests; the content of a break.

use crate::{Fid, Name};

/// One installation of a client: random, made once, stored in its cache directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u128);

/// A client-server association. The server numbers them and never uses a number again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// Identifies a request for its reply. `request` numbers rise by one within a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplyAddress {
    /// The session of the request.
    pub session: SessionId,
    /// The slot of the session.
    pub slot: u32,
    /// The number of the request in that slot.
    pub request: u64,
}

/// Changes whenever *unstable* writes may have been lost. Source: NFSv3 `writeverf3`. The default
/// is that of no server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BootVerifier(pub u64);

/// Counts what a client lost of a server's promises: ends of its lease, and restarts of the server.
/// The client assigns it, in memory, and begins anew with its process. Promises, loans and
/// questions of an earlier epoch are void.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionEpoch(pub u64);

impl SessionEpoch {
    /// The epoch after one more loss.
    #[must_use]
    pub const fn next(self) -> SessionEpoch {
        SessionEpoch(self.0 + 1)
    }
}

/// One batch of breaks that one session must acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BreakId(pub u64);

/// The reason for a break. Wire values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BreakReason {
    /// The data, or the entries of a directory, changed.
    Data = 1,
    /// Only the status changed.
    Status = 2,
    /// The last name is gone.
    Removed = 3,
    /// The server needs the memory.
    Pressure = 4,
    /// No promise ends: the server recalls a delegation of the directory
    /// (`docs/spec/delegation.md`).
    Recall = 5,
}

/// One ended promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakItem {
    /// The file whose promise ends.
    pub fid: Fid,
    /// The reason.
    pub reason: BreakReason,
    /// The changed entry of a directory, if it is just one: a hint that lets clients drop less.
    pub name: Option<Name>,
}
