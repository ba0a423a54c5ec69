//! What can be set. Sizes are bytes unless the name says otherwise.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client::TokenWallet;

use types::limits;

/// Configuration of a [`crate::Venus`].
#[derive(Clone, Debug)]
pub struct VenusConfig {
    /// How long promises are good after a renewal was sent.
    pub lease: Duration,
    /// What statuses and names may take in memory: two thirds for what is known of files, a third
    /// for names. Beyond it the longest unused go, those first that the kernel does not refer to. A
    /// file known by its status costs about 140 bytes, a name about 50 and its letters. Not in it:
    /// open files, and what the mount itself keeps of each inode that the kernel has.
    pub memory_bytes_max: usize,
    /// Written and not yet at the server, over all files: writers wait beyond it.
    pub dirty_bytes_max: usize,
    /// The same for one file.
    pub file_dirty_bytes_max: usize,
    /// At the server but not stable there, kept to be sent again: beyond it a commit starts in the
    /// background.
    pub uncommitted_bytes_max: usize,
    /// Written data is sent at the latest after this.
    pub dirty_age: Duration,
    /// Directories are asked for, and changes answered here that their delegations cover.
    pub delegations: bool,
    /// How long a directory is not asked for again after it was recalled; longer each time.
    pub recall_pause: Duration,
    /// Threads that send written data.
    pub flusher_threads: usize,
    /// Threads that read ahead.
    pub reader_threads: usize,
    /// Largest read-ahead window of one handle.
    pub read_ahead_bytes_max: usize,
    /// Bytes that read-ahead may hold over all files.
    pub read_cache_bytes_max: usize,
    /// Bodies on this machine are given to the kernel (docs/spec/passthrough.md), where it can take
    /// them.
    pub passthrough: bool,
    /// Tokens of this machine's users, which sessions show; `None`: users are only named.
    pub tokens: Option<Arc<TokenWallet>>,
    /// Where file data is kept on disk; used when the connection passes no descriptors. `None`:
    /// nowhere.
    pub cache_dir: Option<PathBuf>,
    /// How much may lie in `cache_dir`.
    pub cache_bytes_max: u64,
    /// From so many bytes on a stream that is faster than `keep_rate_max` is not kept there when it
    /// is read for the first time.
    pub keep_bytes: u64,
    /// Bytes a second that `cache_dir`'s disk can be expected to take beside everything else:
    /// faster than a line of a gigabit.
    pub keep_rate_max: u64,
}

impl Default for VenusConfig {
    fn default() -> Self {
        VenusConfig {
            lease: limits::LEASE,
            memory_bytes_max: 256 << 20,
            dirty_bytes_max: 64 << 20,
            file_dirty_bytes_max: 16 << 20,
            uncommitted_bytes_max: 64 << 20,
            dirty_age: Duration::from_secs(1),
            delegations: true,
            recall_pause: Duration::from_secs(1),
            flusher_threads: 4,
            reader_threads: 16,
            read_ahead_bytes_max: 16 << 20,
            read_cache_bytes_max: 64 << 20,
            tokens: None,
            passthrough: true,
            cache_dir: None,
            cache_bytes_max: 4 << 30,
            keep_bytes: 32 << 20,
            keep_rate_max: 200_000_000,
        }
    }
}
