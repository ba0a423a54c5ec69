//! Volumes, as the file server tells of them.

use crate::xdr::xdr_struct;

/// The `type4` of [`OldVolumeInfo`] that tells clients to ask the volume location database.
pub const USE_VLDB: u32 = 0xabcd_9999;

/// Bits of [`StoreVolumeStatus::mask`]: what the call sets.
pub mod volume_mask {
    /// The least quota.
    pub const MIN_QUOTA: i32 = 1;
    /// The quota.
    pub const MAX_QUOTA: i32 = 2;
}

xdr_struct! {
    /// A volume's status. The kind is 0 for one that cannot be written and 1 for one that can.
    /// Quotas and sizes are KiB; a quota of 0 is none.
    #[derive(Copy, Default)]
    pub struct FetchVolumeStatus {
        volume: i32,
        parent: i32,
        online: i8,
        in_service: i8,
        blessed: i8,
        needs_salvage: i8,
        kind: i32,
        min_quota: i32,
        max_quota: i32,
        blocks_in_use: i32,
        partition_blocks_available: i32,
        partition_blocks_max: i32,
    }

    /// A volume's new quotas: those that the mask names.
    #[derive(Copy, Default)]
    pub struct StoreVolumeStatus { mask: i32, min_quota: i32, max_quota: i32 }

    /// The place of a volume in the form from before the location database.
    #[derive(Copy, Default)]
    pub struct OldVolumeInfo {
        volume: u32,
        kind: i32,
        type0: u32,
        type1: u32,
        type2: u32,
        type3: u32,
        /// [`USE_VLDB`] in all present answers.
        type4: u32,
        server_count: u32,
        servers: [u32; 8],
    }

    /// The same with a port for each server.
    #[derive(Copy, Default)]
    pub struct AfsVolumeInfo {
        volume: u32,
        kind: i32,
        type0: u32,
        type1: u32,
        type2: u32,
        type3: u32,
        type4: u32,
        server_count: u32,
        servers: [u32; 8],
        ports: [u16; 8],
    }
}
