//! Files: their identity, status, promises.

use crate::xdr::xdr_struct;

/// Values of [`FetchStatus::file_type`].
pub mod file_type {
    /// No status: the file's entry of a bulk answer failed.
    pub const INVALID: u32 = 0;
    /// A file.
    pub const FILE: u32 = 1;
    /// A directory.
    pub const DIRECTORY: u32 = 2;
    /// A symlink, or a mount point: a symlink without any execute bit.
    pub const SYMLINK: u32 = 3;
}

/// Bits of [`StoreStatus::mask`]: what the call sets.
pub mod store_mask {
    /// The client's modification time.
    pub const MOD_TIME: u32 = 1;
    /// The owner.
    pub const OWNER: u32 = 2;
    /// The group.
    pub const GROUP: u32 = 4;
    /// The mode bits.
    pub const MODE: u32 = 8;
    /// The segment size, which servers ignore.
    pub const SEGMENT_SIZE: u32 = 16;
    /// The data must be on disk before the answer.
    pub const FSYNC: u32 = 1024;
}

/// Kinds of lock in the calls about locks.
pub mod lock_type {
    /// Shared.
    pub const READ: i32 = 0;
    /// Exclusive.
    pub const WRITE: i32 = 1;
}

xdr_struct! {
    /// A file: its volume, its number there, and how often that number was used before.
    ///
    /// Directories have odd numbers, everything else has even ones. Number 0 in a break means all
    /// files of the volume.
    #[derive(Copy, Default, Hash, PartialOrd, Ord)]
    pub struct AfsFid { volume: u32, vnode: u32, unique: u32 }

    /// A promise to call the client back. 1 is the only version; type 1 is exclusive, 2 shared, 3
    /// dropped. The expiration is in seconds from now; 0 is no promise.
    #[derive(Copy, Default)]
    pub struct CallBack { version: u32, expiration: u32, kind: u32 }

    /// The state of the volume: the creation date of this instance (of a replica: its release),
    /// then zeros. A change tells a client that the volume was replaced.
    #[derive(Copy, Default)]
    pub struct VolSync { created: u32, spares: [u32; 5] }

    /// A file's status.
    #[derive(Copy, Default)]
    pub struct FetchStatus {
        /// Always 1.
        interface_version: u32,
        /// One of [`file_type`].
        file_type: u32,
        link_count: u32,
        length_low: u32,
        data_version_low: u32,
        /// The last writer.
        author: u32,
        owner: u32,
        /// Rights of the caller.
        caller_access: u32,
        /// Rights of everyone.
        anonymous_access: u32,
        /// The low twelve bits of a mode.
        mode: u32,
        /// A directory reports itself as its parent.
        parent_vnode: u32,
        parent_unique: u32,
        /// 1, except for servers of AFS/OSD.
        residency_mask: u32,
        client_mod_time: u32,
        server_mod_time: u32,
        group: u32,
        sync_counter: u32,
        data_version_high: u32,
        /// -1 as a word: locked for writing; otherwise the number of read locks.
        lock_count: u32,
        length_high: u32,
        /// Of an entry of a bulk answer: 0 if the rest is valid.
        error_code: u32,
    }

    /// The new status in a call. Only what the mask names counts.
    #[derive(Copy, Default)]
    pub struct StoreStatus {
        /// Bits of [`store_mask`].
        mask: u32,
        client_mod_time: u32,
        owner: u32,
        group: u32,
        mode: u32,
        segment_size: u32,
    }
}

impl FetchStatus {
    /// The size in bytes.
    pub fn length(&self) -> u64 {
        joined(self.length_high, self.length_low)
    }

    /// Sets both words of the size.
    pub fn set_length(&mut self, bytes: u64) {
        (self.length_high, self.length_low) = halves(bytes);
    }

    /// The data version, as kafs reads it; OpenAFS reads the low word only.
    pub fn data_version(&self) -> u64 {
        joined(self.data_version_high, self.data_version_low)
    }

    /// Sets both words of the data version.
    pub fn set_data_version(&mut self, version: u64) {
        (self.data_version_high, self.data_version_low) = halves(version);
    }
}

fn joined(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn halves(value: u64) -> (u32, u32) {
    ((value >> 32) as u32, value as u32)
}
