//! AFSVol, the volume service.
//!
//! The streams of `Restore`, `Dump` and `DumpV2` are volume dumps (module `dump`), without a length
//! of their own. The numbers from 65540 to 65548 belong to servers with AFS/OSD; they are unknown
//! here.
//!
//! Source: OpenAFS `src/volser/volint.xg`, `src/volser/volser.p.h`.

mod info;
mod partitions;

pub use info::{
    Destination, DiskPartition, DiskPartition64, Replica, RestoreCookie, TransactionInfo,
    VolserStatus, VolumeReport, VolumeReportX, in_use, volume_type,
};
pub use partitions::{partition_name, partition_number};

use crate::rpc::service;
use crate::xdr::{XdrBytes, XdrList};

/// The Rx service.
pub const SERVICE: u16 = 4;
/// The UDP port of volume servers.
pub const PORT: u16 = 7005;

/// Flags of `TransCreate`: how the volume is taken.
pub mod transaction_flag {
    /// It is off line; clients get `VOFFLINE`.
    pub const OFFLINE: i32 = 1;
    /// It is busy; clients that write get `VBUSY`.
    pub const BUSY: i32 = 2;
    /// It cannot be written.
    pub const READ_ONLY: i32 = 8;
    /// It is being made.
    pub const CREATE: i32 = 0x10;
    /// It is being made, and only its number is taken.
    pub const CREATE_VOLUME_ID: i32 = 0x1000;
}

/// Flags of `SetFlags`; 0 puts the volume into service and keeps it.
pub mod volume_flag {
    /// It is removed if nothing else is said before the end.
    pub const DELETE_ON_SALVAGE: i32 = 1;
    /// It is out of service.
    pub const OUT_OF_SERVICE: i32 = 2;
    /// It was deleted.
    pub const DELETED: i32 = 4;
}

/// The flag of `DumpV2` with which directories that did not change are left out.
pub const OMIT_DIRECTORIES: i32 = 1;
/// The flag of `Restore` for a dump of changes.
pub const RESTORE_INCREMENTAL: i32 = 1;

/// A volume's name.
pub type VolumeName = XdrBytes<32>;
/// A partition's name: `/vicepa`.
pub type PartitionPath = XdrBytes<4096>;

service! {
    /// The calls of the volume service.
    calls VolumesCall;
    /// Its answers.
    answers VolumesAnswer;

    100 CreateVolume(partition: i32, name: VolumeName, kind: i32, parent: u32, volume: u32)
        -> (volume: u32, transaction: i32);
    101 DeleteVolume(transaction: i32) -> ();
    102 Restore(transaction: i32, flags: i32, cookie: RestoreCookie) -> ()
        streams BehindArguments;
    103 Forward(
            transaction: i32, from_date: i32, destination: Destination, to_transaction: i32,
            cookie: RestoreCookie,
        ) -> ();
    104 EndTrans(transaction: i32) -> (code: i32);
    105 Clone(transaction: i32, purge: u32, kind: i32, name: VolumeName, volume: u32)
        -> (volume: u32);
    106 SetFlags(transaction: i32, flags: i32) -> ();
    107 GetFlags(transaction: i32) -> (flags: i32);
    108 TransCreate(volume: u32, partition: i32, flags: i32) -> (transaction: i32);
    109 Dump(transaction: i32, from_date: i32) -> () streams BeforeResults;
    /// Servers refuse it with VOLSERNO_OP.
    110 GetNthVolume(index: i32) -> (volume: u32, partition: i32);
    111 SetForwarding(transaction: i32, site: u32) -> ();
    112 GetName(transaction: i32) -> (name: XdrBytes<256>);
    113 GetStatus(transaction: i32) -> (status: VolserStatus);
    /// It does nothing.
    114 SignalRestore(name: VolumeName, kind: i32, parent: u32, clone: u32) -> ();
    /// A place without partition has -1.
    115 ListPartitions() -> (partitions: [i32; 26]);
    /// Flag 0 lists numbers alone, 1 everything.
    116 ListVolumes(partition: i32, flags: i32) -> (volumes: XdrList<VolumeReport>);
    117 SetIdsTypes(
            transaction: i32, name: VolumeName, kind: i32, parent: u32, clone: u32, backup: u32,
        ) -> ();
    118 Monitor() -> (transactions: XdrList<TransactionInfo>);
    119 PartitionInfo(partition: PartitionPath) -> (info: DiskPartition);
    120 ReClone(transaction: i32, clone: u32) -> ();
    121 ListOneVolume(partition: i32, volume: u32) -> (volumes: XdrList<VolumeReport>);
    122 NukeVolume(partition: i32, volume: u32) -> ();
    123 SetDate(transaction: i32, created: i32) -> ();
    124 XListVolumes(partition: i32, flags: i32) -> (volumes: XdrList<VolumeReportX>);
    125 XListOneVolume(partition: i32, volume: u32) -> (volumes: XdrList<VolumeReportX>);
    /// Members that are -1 stay as they are.
    126 SetInfo(transaction: i32, info: Box<VolumeReport>) -> ();
    127 XListPartitions() -> (partitions: XdrList<i32>);
    128 ForwardMultiple(
            transaction: i32, from_date: i32, destinations: XdrList<Replica, 13>, spare: i32,
            cookie: RestoreCookie,
        ) -> (results: XdrList<i32>);
    65536 ConvertROtoRWvolume(partition: i32, volume: u32) -> ();
    65537 GetSize(transaction: i32, from_date: i32) -> (bytes: u64);
    65538 DumpV2(transaction: i32, from_date: i32, flags: i32) -> () streams BeforeResults;
    65539 PartitionInfo64(partition: PartitionPath) -> (info: Box<DiskPartition64>);
}
