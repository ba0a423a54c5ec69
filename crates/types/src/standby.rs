//! Standbys: copies of a read-write volume on other servers that follow each of its changes
//! (`docs/spec/standby.md`).

use crate::{ReplyAddress, ServerId, VolumeId};

/// A place in a feed, the log of a volume's changes that its server keeps in memory for standbys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedPlace {
    /// The feed; another one begins with each start of the server. 0: none.
    pub feed: u64,
    /// The number of its entries before this place.
    pub position: u64,
}

/// The beginning of a feed for one standby: what the standby must have before the first entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedStart {
    /// The place of the first entry.
    pub place: FeedPlace,
    /// The volume that shows the state before it, a sealed epoch.
    pub base: VolumeId,
    /// That epoch.
    pub epoch: u64,
}

/// The question of a standby for what follows. Its answer says what this standby has, and that it
/// has received the last answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follow {
    /// The read-write volume.
    pub id: VolumeId,
    /// The standby's server.
    pub standby: ServerId,
    /// The epoch of the base that it began with.
    pub base: u64,
    /// The place behind the entries that it has applied: the answer begins there.
    pub applied: FeedPlace,
    /// The position up to which it has them on disk, at most that of `applied`.
    pub synced: u64,
    /// The number of the last answer that it received; 0: none.
    pub heard: u64,
    /// Limit of the answer, in bytes, roughly.
    pub bytes_max: u32,
}

/// A standby as the volume's server sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandbyInfo {
    /// Its server.
    pub server: ServerId,
    /// Changes are acknowledged only once it has them.
    pub is_sync: bool,
    /// It may take over.
    pub in_step: bool,
    /// Entries that it has not applied.
    pub behind: u64,
    /// The bytes of these.
    pub behind_bytes: u64,
    /// Milliseconds since the oldest of them was made; 0: there is none.
    pub lag_millis: u64,
    /// Milliseconds since its last question; `u64::MAX`: it has asked nothing since this server's
    /// start.
    pub heard_millis: u64,
}

/// The last request of a slot that a volume which took over knows, from the feed of the former one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inherited {
    /// The session and slot at the former server, and the request; 0: none is known.
    pub origin: ReplyAddress,
    /// The answer to that request, as servers record it.
    pub answer: bytes::Bytes,
}
