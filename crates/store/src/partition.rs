//! A partition: published interface.
#![allow(clippy::unimplemented, unused_variables)]
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use types::{BootVerifier, ClientId, Name, SessionId, VolumeId};

use crate::{NewRoot, OpenError, StoreError, Volume};

/// What a new partition is told.
#[derive(Clone, Debug, Default)]
pub struct PartitionConfig {
    /// The server that owns it, for `sysid`.
    pub server: String,
}

/// How to open a partition.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Bytes of the engine's block cache.
    pub cache_bytes: usize,
    /// Body files kept open.
    pub open_bodies_max: usize,
    /// Where random numbers come from; `None`: the operating system.
    pub seed: Option<u64>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions { cache_bytes: 128 << 20, open_bodies_max: 512, seed: None }
    }
}

/// Room on the file system below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes of it.
    pub total_bytes: u64,
    /// Bytes that bodies may still use.
    pub free_bytes: u64,
}

/// A session that survives a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its number.
    pub session: SessionId,
    /// Whose it is.
    pub client: ClientId,
    /// Which life of the client.
    pub incarnation: u64,
    /// What else its owner wants to know again.
    pub extra: Bytes,
}

/// The last reply of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReply {
    /// The slot.
    pub slot: u32,
    /// The number of the request.
    pub request: u64,
    /// The encoded reply.
    pub reply: Bytes,
}

/// An open partition; clones are handles to the same one.
#[derive(Clone)]
pub struct Partition {}

impl Partition {
    /// Makes a partition in an empty (or absent) directory and opens it.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn create(path: &Path, config: &PartitionConfig, options: OpenOptions) -> Result<Partition, OpenError> {
        unimplemented!()
    }
    /// Opens a partition.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: &Path, options: OpenOptions) -> Result<Partition, OpenError> {
        unimplemented!()
    }
    /// 128 random bits.
    pub fn id(&self) -> u128 {
        unimplemented!()
    }
    /// Every volume.
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        unimplemented!()
    }
    /// A volume by number.
    pub fn volume(&self, id: VolumeId) -> Option<Arc<Volume>> {
        unimplemented!()
    }
    /// A volume by name.
    pub fn volume_named(&self, name: &[u8]) -> Option<Arc<Volume>> {
        unimplemented!()
    }
    /// Makes a volume with an empty root directory; stable when it returns. A name that is taken is `Misuse`.
    pub fn create_volume(&self, name: &Name, root: &NewRoot) -> Result<Arc<Volume>, StoreError> {
        unimplemented!()
    }
    /// Changes whenever unstable changes may have been lost.
    pub fn boot_verifier(&self) -> BootVerifier {
        unimplemented!()
    }
    /// Every batch applied before the call is on disk.
    pub fn sync(&self) -> Result<(), StoreError> {
        unimplemented!()
    }
    /// As `sync`, and every body too (commit of a volume; the server's background thread).
    pub fn sync_all(&self) -> Result<(), StoreError> {
        unimplemented!()
    }
    /// Removes up to `max` body files that nothing names any more; says how many. For a background thread.
    pub fn sweep(&self, max: usize) -> Result<usize, StoreError> {
        unimplemented!()
    }
    /// Room on the file system below.
    pub fn space(&self) -> Result<Space, StoreError> {
        unimplemented!()
    }
    /// A session number that was never used. Durable when it returns.
    pub fn allocate_session(&self) -> Result<SessionId, StoreError> {
        unimplemented!()
    }
    /// Every session record.
    pub fn sessions(&self) -> Result<Vec<SessionRecord>, StoreError> {
        unimplemented!()
    }
    /// Writes a session record (unstable until the next sync).
    pub fn put_session(&self, record: &SessionRecord) -> Result<(), StoreError> {
        unimplemented!()
    }
    /// Removes a session with its replies.
    pub fn remove_session(&self, session: SessionId) -> Result<(), StoreError> {
        unimplemented!()
    }
    /// A session's stored replies.
    pub fn replies(&self, session: SessionId) -> Result<Vec<StoredReply>, StoreError> {
        unimplemented!()
    }
    /// The highest incarnation of a client that was ever recorded.
    pub fn incarnation(&self, client: ClientId) -> Result<Option<u64>, StoreError> {
        unimplemented!()
    }
    /// Records a client's incarnation (unstable until the next sync).
    pub fn put_incarnation(&self, client: ClientId, incarnation: u64) -> Result<(), StoreError> {
        unimplemented!()
    }
}
