//! RXAFS, the file service.
//!
//! The stream of `FetchData` begins with the number of its bytes, as a word, and that of
//! `FetchData64` as two words. The streams of `StoreData` and `StoreData64` have as many bytes as
//! the arguments say. The numbers from 65551 to 65593 belong to servers with AFS/OSD; they are
//! unknown here.
//!
//! Source: OpenAFS `src/fsint/afsint.xg`.

use crate::rpc::service;
use crate::structs::{
    AfsFid, AfsFids, AfsName, AfsOpaque, AfsPath, AfsVolumeInfo, BulkStatus, CallBack, CallBacks,
    Capabilities, FetchStatus, FetchVolumeStatus, FsCommandInputs, FsCommandOutputs, OldVolumeInfo,
    StoreStatus, StoreVolumeStatus, ViceStatistics, VolSync,
};
use crate::xdr::XdrList;

/// The Rx service.
pub const SERVICE: u16 = 1;
/// The UDP port of file servers.
pub const PORT: u16 = 7000;

/// Bits of word 0 of a file server's capabilities.
pub mod capability {
    /// Error numbers are sent as UAE codes to clients that say the same.
    pub const ERROR_TRANSLATION: u32 = 1;
    /// `FetchData64` and `StoreData64` are there.
    pub const FILES_64_BIT: u32 = 2;
    /// The right to write includes the right to lock for writing.
    pub const WRITE_LOCK_ACL: u32 = 4;
    /// Access lists are checked as documented.
    pub const SANE_ACLS: u32 = 8;
}

service! {
    /// The calls of the file service.
    calls FilesCall;
    /// Its answers.
    answers FilesAnswer;

    130 FetchData(fid: AfsFid, position: i32, length: i32)
        -> (status: FetchStatus, callback: CallBack, sync: VolSync) streams BeforeResults;
    131 FetchACL(fid: AfsFid) -> (acl: AfsOpaque, status: FetchStatus, sync: VolSync);
    132 FetchStatus(fid: AfsFid) -> (status: FetchStatus, callback: CallBack, sync: VolSync);
    133 StoreData(
            fid: AfsFid, status: StoreStatus, position: u32, length: u32, file_length: u32,
        ) -> (status: FetchStatus, sync: VolSync) streams BehindArguments;
    /// Stock servers refuse it with EPERM; kafs stores access lists with it.
    134 OldStoreACL(fid: AfsFid, acl: AfsOpaque) -> (status: FetchStatus, sync: VolSync);
    135 StoreStatus(fid: AfsFid, status: StoreStatus) -> (status: FetchStatus, sync: VolSync);
    136 RemoveFile(dir: AfsFid, name: AfsName) -> (dir_status: FetchStatus, sync: VolSync);
    137 CreateFile(dir: AfsFid, name: AfsName, status: StoreStatus) -> (
            fid: AfsFid, status: FetchStatus, dir_status: FetchStatus, callback: CallBack,
            sync: VolSync,
        );
    138 Rename(old_dir: AfsFid, old_name: AfsName, new_dir: AfsFid, new_name: AfsName)
        -> (old_dir_status: FetchStatus, new_dir_status: FetchStatus, sync: VolSync);
    139 Symlink(dir: AfsFid, name: AfsName, target: AfsPath, status: StoreStatus)
        -> (fid: AfsFid, status: FetchStatus, dir_status: FetchStatus, sync: VolSync);
    140 Link(dir: AfsFid, name: AfsName, existing: AfsFid)
        -> (status: FetchStatus, dir_status: FetchStatus, sync: VolSync);
    141 MakeDir(dir: AfsFid, name: AfsName, status: StoreStatus) -> (
            fid: AfsFid, status: FetchStatus, dir_status: FetchStatus, callback: CallBack,
            sync: VolSync,
        );
    142 RemoveDir(dir: AfsFid, name: AfsName) -> (dir_status: FetchStatus, sync: VolSync);
    /// The state of the volume is an argument here.
    143 OldSetLock(fid: AfsFid, kind: i32, sync: VolSync) -> ();
    /// The state of the volume is an argument here.
    144 OldExtendLock(fid: AfsFid, sync: VolSync) -> ();
    /// The state of the volume is an argument here.
    145 OldReleaseLock(fid: AfsFid, sync: VolSync) -> ();
    146 GetStatistics() -> (statistics: Box<ViceStatistics>);
    147 GiveUpCallBacks(fids: AfsFids, callbacks: CallBacks) -> ();
    148 GetVolumeInfo(name: AfsName) -> (info: OldVolumeInfo);
    149 GetVolumeStatus(volume: i32) -> (
            status: FetchVolumeStatus, name: AfsName, offline_message: AfsPath, motd: AfsPath,
        );
    150 SetVolumeStatus(
            volume: i32, status: StoreVolumeStatus, name: AfsName, offline_message: AfsPath,
            motd: AfsPath,
        ) -> ();
    /// Stock servers refuse it with EOPNOTSUPP.
    151 GetRootVolume() -> (name: AfsName);
    /// Stock servers refuse it with ECONNREFUSED.
    152 CheckToken(id: i32, token: AfsOpaque) -> ();
    153 GetTime() -> (seconds: u32, microseconds: u32);
    /// Stock servers refuse it with VNOVOL.
    154 NGetVolumeInfo(name: AfsName) -> (info: AfsVolumeInfo);
    155 BulkStatus(fids: AfsFids) -> (status: BulkStatus, callbacks: CallBacks, sync: VolSync);
    156 SetLock(fid: AfsFid, kind: i32) -> (sync: VolSync);
    157 ExtendLock(fid: AfsFid) -> (sync: VolSync);
    158 ReleaseLock(fid: AfsFid) -> (sync: VolSync);
    159 XStatsVersion() -> (version: i32);
    160 GetXStats(client_version: i32, collection: i32)
        -> (server_version: i32, time: i32, data: XdrList<i32, 1024>);
    /// Stock servers refuse it with EINVAL.
    161 Lookup(dir: AfsFid, name: AfsName) -> (
            fid: AfsFid, status: FetchStatus, dir_status: FetchStatus, callback: CallBack,
            sync: VolSync,
        );
    162 FlushCPS(ids: XdrList<i32, 10>, addresses: XdrList<i32, 10>, spare: i32)
        -> (spare2: i32, spare3: i32);
    /// Stock servers refuse it with EINVAL.
    163 DFSSymlink(dir: AfsFid, name: AfsName, target: AfsPath, status: StoreStatus) -> (
            fid: AfsFid, status: FetchStatus, dir_status: FetchStatus, callback: CallBack,
            sync: VolSync,
        );
    164 StoreACL(fid: AfsFid, acl: AfsOpaque) -> (status: FetchStatus, sync: VolSync);
    /// Stock servers refuse it with EINVAL.
    220 FsCmd(fid: AfsFid, inputs: Box<FsCommandInputs>) -> (outputs: Box<FsCommandOutputs>);
    65536 InlineBulkStatus(fids: AfsFids)
        -> (status: BulkStatus, callbacks: CallBacks, sync: VolSync);
    65537 FetchData64(fid: AfsFid, position: i64, length: i64)
        -> (status: FetchStatus, callback: CallBack, sync: VolSync) streams BeforeResults;
    65538 StoreData64(
            fid: AfsFid, status: StoreStatus, position: u64, length: u64, file_length: u64,
        ) -> (status: FetchStatus, sync: VolSync) streams BehindArguments;
    65539 GiveUpAllCallBacks() -> ();
    65540 GetCapabilities() -> (capabilities: Capabilities);
    /// No client uses it, and servers refuse it.
    65541 CallBackRxConnAddr(address: i32) -> ();
    65542 GetStatistics64(version: i32) -> (statistics: XdrList<u64, 16>);
}
