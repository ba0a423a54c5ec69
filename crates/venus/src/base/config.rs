//! Configuration. Sizes are bytes unless the name says otherwise.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client::TokenWallet;
use keep::Keeper;
use types::limits;

/// Configuration of a [`crate::Venus`].
#[derive(Clone, Debug)]
pub struct VenusConfig {
    /// How long promises are good after the client sent a renewal.
    pub lease: Duration,
    /// Memory for statuses and names: two thirds for what is known of files, a third for names.
    /// Beyond it the longest unused go, those first that the kernel does not refer to. A file known
    /// by its status costs about 140 bytes, a name about 50 and its letters. Not counted: open
    /// files, and what the mount stores for each inode that the kernel has.
    pub memory_bytes_max: usize,
    /// Dirty bytes of all files that are not at the server yet: writers wait beyond it.
    pub dirty_bytes_max: usize,
    /// The same for one file.
    pub file_dirty_bytes_max: usize,
    /// Unstable writes, which stay in memory to be sent again: beyond it a COMMIT starts in the
    /// background.
    pub uncommitted_bytes_max: usize,
    /// Written data is sent at the latest after this.
    pub dirty_age: Duration,
    /// The client asks for delegations of directories and answers the changes that they cover.
    pub delegations: bool,
    /// How long the client does not ask again for a directory whose delegation was recalled; the
    /// pause grows with each recall.
    pub recall_pause: Duration,
    /// Threads that send written data.
    pub flusher_threads: usize,
    /// Threads that read ahead.
    pub reader_threads: usize,
    /// Largest read-ahead window of one handle.
    pub read_ahead_bytes_max: usize,
    /// Bytes that read-ahead may hold over all files.
    pub read_cache_bytes_max: usize,
    /// The client gives bodies on this machine to the kernel (docs/spec/passthrough.md), where the
    /// kernel can take them.
    pub passthrough: bool,
    /// Programs' requests may end before the server has answered (`soft` mounts), changes too.
    pub gives_up: bool,
    /// Holds what a successor of this process needs to go on with open files, locks and writes.
    /// Then the kernel has no bodies but those of the server.
    pub keeper: Option<Arc<Keeper>>,
    /// Tokens of this machine's users, which sessions present; `None`: users are only named.
    pub tokens: Option<Arc<TokenWallet>>,
    /// Directory of the disk cache, which is used when the connection passes no descriptors.
    /// `None`: no disk cache.
    pub cache_dir: Option<PathBuf>,
    /// Most bytes in `cache_dir`.
    pub cache_bytes_max: u64,
    /// From so many bytes on, a stream faster than `keep_rate_max` is not admitted to the disk
    /// cache at its first reading.
    pub keep_bytes: u64,
    /// Bytes a second that the disk of `cache_dir` can take beside its other work: faster than a
    /// gigabit line.
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
            gives_up: false,
            keeper: None,
            tokens: None,
            passthrough: true,
            cache_dir: None,
            cache_bytes_max: 4 << 30,
            keep_bytes: 32 << 20,
            keep_rate_max: 200_000_000,
        }
    }
}
