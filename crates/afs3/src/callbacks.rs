//! RXAFSCB, the service that clients have for file servers.
//!
//! Source: OpenAFS `src/fsint/afscbint.xg`.

use crate::rpc::service;
use crate::structs::{
    AfsFids, AfsName, AfsUuid, CacheEntry, CacheEntry64, CacheLock, CallBacks, Capabilities,
    InterfaceAddresses,
};
use crate::xdr::XdrList;

/// The Rx service.
pub const SERVICE: u16 = 1;
/// The UDP port of clients that have not chosen another.
pub const PORT: u16 = 7001;

/// Bit of word 0 of a client's capabilities: it understands error numbers as UAE codes.
pub const CAPABILITY_ERROR_TRANSLATION: u32 = 1;

/// IPv4 addresses of a cell's database servers.
pub type CellServers = XdrList<i32, 8>;

service! {
    /// The calls of file servers to clients.
    calls CallbacksCall;
    /// The answers of clients.
    answers CallbacksAnswer;

    204 CallBack(fids: AfsFids, callbacks: CallBacks) -> ();
    205 InitCallBackState() -> ();
    206 Probe() -> ();
    207 GetLock(index: i32) -> (lock: CacheLock);
    208 GetCE(index: i32) -> (entry: CacheEntry);
    209 XStatsVersion() -> (version: i32);
    210 GetXStats(client_version: i32, collection: i32)
        -> (server_version: i32, time: i32, data: XdrList<i32, 2048>);
    /// Clients refuse it as unknown.
    211 InitCallBackState2() -> (addresses: Box<InterfaceAddresses>);
    212 WhoAreYou() -> (addresses: Box<InterfaceAddresses>);
    213 InitCallBackState3(server: AfsUuid) -> ();
    /// A client with another UUID ends the call with code 1.
    214 ProbeUuid(client: AfsUuid) -> ();
    215 GetServerPrefs(index: i32) -> (address: i32, rank: i32);
    216 GetCellServDB(index: i32) -> (cell: AfsName, servers: CellServers);
    217 GetLocalCell() -> (cell: AfsName);
    218 GetCacheConfig(caller_version: u32)
        -> (server_version: u32, count: u32, config: XdrList<u32>);
    65536 GetCE64(index: i32) -> (entry: CacheEntry64);
    65537 GetCellByNum(number: i32) -> (cell: AfsName, servers: CellServers);
    65538 TellMeAboutYourself()
        -> (addresses: Box<InterfaceAddresses>, capabilities: Capabilities);
}
