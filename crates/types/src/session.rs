//! Names of clients, sessions and requests; what a break says.

use crate::{Fid, Name};

/// One installation of a client: random, made once, kept in its cache directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u128);

/// A client-server association. The server numbers them and never uses a number again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// Where a reply belongs. `request` numbers rise by one within a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplyAddress {
    /// The session that asks.
    pub session: SessionId,
    /// Its slot.
    pub slot: u32,
    /// Which request of that slot.
    pub request: u64,
}

/// Changes whenever *unstable* writes may have been lost. Source: NFSv3 `writeverf3`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BootVerifier(pub u64);

/// One batch of breaks that one session must acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BreakId(pub u64);

/// Why a promise ends. Wire values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BreakReason {
    /// The data, or the entries of a directory, changed.
    Data = 1,
    /// Only the status changed.
    Status = 2,
    /// The last name is gone.
    Removed = 3,
    /// The server needs the room.
    Pressure = 4,
    /// No promise ends: a delegation of the directory is wanted back (`docs/spec/delegation.md`).
    Recall = 5,
}

/// One ended promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakItem {
    /// Whose promise ends.
    pub fid: Fid,
    /// Why.
    pub reason: BreakReason,
    /// Of a directory, the entry that changed where there is just one: a hint that lets holders do
    /// less.
    pub name: Option<Name>,
}
