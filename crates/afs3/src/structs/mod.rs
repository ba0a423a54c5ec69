//! The structures that the services share, with their members in wire order.
//!
//! The members have the protocol's meaning and no other: times are seconds since 1970 or, where
//! said, from now; volume sizes and quotas are KiB.
//!
//! Source: OpenAFS `src/fsint/common.xg`, `src/fsint/afsint.xg`, `src/rx/xdr_afsuuid.c`; Linux
//! `fs/afs/xdr_fs.h`.

mod cache;
mod command;
mod status;
mod uuid;
mod volume;

pub use cache::{
    CacheEntry, CacheEntry64, CacheLock, INTERFACE_ADDRESSES_MAX, InterfaceAddresses,
    LockDescription,
};
pub use command::{FsCommandInputs, FsCommandOutputs, ViceDisk, ViceStatistics};
pub use status::{
    AfsFid, CallBack, FetchStatus, StoreStatus, VolSync, file_type, lock_type, store_mask,
};
pub use uuid::AfsUuid;
pub use volume::{
    AfsVolumeInfo, FetchVolumeStatus, OldVolumeInfo, StoreVolumeStatus, USE_VLDB, volume_mask,
};

use crate::xdr::{XdrBytes, XdrList};

/// Most files of one call about many.
pub const FIDS_MAX: usize = 50;

/// Files of one call.
pub type AfsFids = XdrList<AfsFid, FIDS_MAX>;
/// Promises, one for each file of a call, or none at all.
pub type CallBacks = XdrList<CallBack, FIDS_MAX>;
/// Status, one for each file of a call.
pub type BulkStatus = XdrList<FetchStatus, FIDS_MAX>;
/// A file's or volume's name in a call.
pub type AfsName = XdrBytes<256>;
/// A path, or a message of a volume.
pub type AfsPath = XdrBytes<1024>;
/// An access list as text, or a token.
pub type AfsOpaque = XdrBytes<1024>;
/// Capabilities: the bits of word 0 are in `files` and `callbacks`.
pub type Capabilities = XdrList<u32, 196>;
