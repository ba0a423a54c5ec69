//! VL, the volume location database.
//!
//! Source: OpenAFS `src/vlserver/vldbint.xg`, `src/vlserver/vl_opcodes.h`; Linux
//! `fs/afs/vlclient.c`. OpenAFS has numbers for the procedures `...U` but no definition, except for
//! `GetEntryByNameU`; the others are written here like their `...N` namesakes, and servers refuse
//! them as unknown.

mod entry;

pub use entry::{
    AddressAttributes, ListAttributes, OldVldbEntry, UuidVldbEntry, VlCallBack, VlHeader,
    VlStatistics, VldbEntry, VldbUpdate, address_mask, entry_flag, list_mask, lock_operation,
    release_lock, site_flag, update_mask,
};

use crate::rpc::service;
use crate::structs::AfsUuid;
use crate::xdr::{XdrBytes, XdrChain, XdrList};

/// The Rx service.
pub const SERVICE: u16 = 52;
/// The UDP port of volume location servers.
pub const PORT: u16 = 7003;
/// Any kind of volume, where a call asks for one.
pub const ANY_KIND: i32 = -1;

/// A volume's name, or a volume's number in decimal digits.
pub type VolumeNameArgument = XdrBytes<65>;
/// IPv4 addresses as numbers.
pub type Addresses = XdrList<u32, 500>;

service! {
    /// The calls of the location service.
    calls LocationsCall;
    /// Its answers.
    answers LocationsAnswer;

    501 CreateEntry(entry: Box<OldVldbEntry>) -> ();
    502 DeleteEntry(volume: u32, kind: i32) -> ();
    503 GetEntryByID(volume: u32, kind: i32) -> (entry: Box<OldVldbEntry>);
    504 GetEntryByNameO(name: VolumeNameArgument) -> (entry: Box<OldVldbEntry>);
    505 GetNewVolumeId(count: u32) -> (volume: u32);
    506 ReplaceEntry(volume: u32, kind: i32, entry: Box<OldVldbEntry>, release: i32) -> ();
    507 UpdateEntry(volume: u32, kind: i32, update: Box<VldbUpdate>, release: i32) -> ();
    508 SetLock(volume: u32, kind: i32, operation: i32) -> ();
    509 ReleaseLock(volume: u32, kind: i32, release: i32) -> ();
    510 ListEntry(previous: i32) -> (count: i32, next: i32, entry: Box<OldVldbEntry>);
    511 ListAttributes(attributes: ListAttributes) -> (count: i32, entries: XdrList<OldVldbEntry>);
    512 LinkedList(attributes: ListAttributes) -> (count: i32, entries: XdrChain<OldVldbEntry>);
    513 GetStats() -> (statistics: Box<VlStatistics>, header: VlHeader);
    514 ProbeServer() -> ();
    515 GetAddrs(handle: i32, spare: i32)
        -> (callback: VlCallBack, count: i32, addresses: Addresses);
    516 ChangeAddr(old: u32, new: u32) -> ();
    517 CreateEntryN(entry: Box<VldbEntry>) -> ();
    518 GetEntryByIDN(volume: u32, kind: i32) -> (entry: Box<VldbEntry>);
    519 GetEntryByNameN(name: VolumeNameArgument) -> (entry: Box<VldbEntry>);
    520 ReplaceEntryN(volume: u32, kind: i32, entry: Box<VldbEntry>, release: i32) -> ();
    521 ListEntryN(previous: i32) -> (count: i32, next: i32, entry: Box<VldbEntry>);
    522 ListAttributesN(attributes: ListAttributes) -> (count: i32, entries: XdrList<VldbEntry>);
    523 LinkedListN(attributes: ListAttributes) -> (count: i32, entries: XdrChain<VldbEntry>);
    524 UpdateEntryByName(name: VolumeNameArgument, update: Box<VldbUpdate>, release: i32) -> ();
    525 CreateEntryU(entry: Box<UuidVldbEntry>) -> ();
    526 GetEntryByIDU(volume: u32, kind: i32) -> (entry: Box<UuidVldbEntry>);
    527 GetEntryByNameU(name: VolumeNameArgument) -> (entry: Box<UuidVldbEntry>);
    528 ReplaceEntryU(volume: u32, kind: i32, entry: Box<UuidVldbEntry>, release: i32) -> ();
    529 ListEntryU(previous: i32) -> (count: i32, next: i32, entry: Box<UuidVldbEntry>);
    530 ListAttributesU(attributes: ListAttributes)
        -> (count: i32, entries: XdrList<UuidVldbEntry>);
    531 LinkedListU(attributes: ListAttributes) -> (count: i32, entries: XdrChain<UuidVldbEntry>);
    532 RegisterAddrs(uuid: AfsUuid, spare: i32, addresses: Addresses) -> ();
    533 GetAddrsU(attributes: AddressAttributes)
        -> (uuid: AfsUuid, unique: i32, count: i32, addresses: Addresses);
    534 ListAttributesN2(attributes: ListAttributes, name: VolumeNameArgument, start: i32)
        -> (count: i32, entries: XdrList<VldbEntry>, next: i32);
    /// Asked by kafs alone, which takes a refusal for no capabilities.
    65537 GetCapabilities() -> (capabilities: XdrList<u32>);
}
