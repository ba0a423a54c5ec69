//! The feed of a tree: the log of its changes, in memory, for standbys.

use types::FeedPlace;

/// Entries of a feed, encoded.
#[derive(Clone, Debug)]
pub struct FeedEntries {
    /// The place behind them.
    pub to: FeedPlace,
    /// As [`crate::Standbys::apply`] takes them.
    pub bytes: bytes::Bytes,
}

/// The log of a tree's changes. Thread-safe.
#[derive(Default)]
pub struct Feed {}

impl Feed {
    /// The place behind the last entry.
    pub fn end(&self) -> FeedPlace {
        FeedPlace::default()
    }

    /// Entries and bytes behind a position.
    pub fn behind(&self, _position: u64) -> (u64, u64) {
        (0, 0)
    }

    /// Whole entries from a place on, at least one and about `bytes_max` bytes; empty at the end.
    /// `None`: the place is not in the feed (any more). `client_of`: the client of a session that
    /// exists.
    pub fn read(
        &self,
        _from: FeedPlace,
        _bytes_max: usize,
        _client_of: &dyn Fn(types::SessionId) -> Option<types::ClientId>,
    ) -> Option<FeedEntries> {
        None
    }

    /// All standbys have what is before this position.
    pub fn forget_before(&self, _position: u64) {}

    /// Nothing is logged any more, and no place is in it: its tree was replaced or removed, or its
    /// standbys were too slow for its memory.
    pub fn is_over(&self) -> bool {
        true
    }
}
