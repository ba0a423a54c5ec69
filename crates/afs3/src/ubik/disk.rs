//! DISK: changes, and whole databases, from the synchronization site to the others.
//!
//! The stream of `GetFile` is a word with the number of bytes, and the bytes. That of `SendFile`
//! has as many bytes as the arguments say.

use super::{UbikTransaction, UbikVersion};
use crate::rpc::service;
use crate::xdr::{XdrBytes, XdrList, xdr_struct};

/// The Rx service, on the port of the database.
pub const SERVICE: u16 = 51;

xdr_struct! {
    /// A part of the bytes of `WriteV`, and its place.
    #[derive(Copy, Default)]
    pub struct UbikWrite { file: i32, position: i32, length: i32 }

    /// All addresses of a server, 0 where there is none.
    pub struct UbikAddresses { hosts: [u32; 256] }
}

service! {
    /// The calls of the disk service.
    calls DiskCall;
    /// Its answers.
    answers DiskAnswer;

    20000 Begin(transaction: UbikTransaction) -> ();
    20001 Commit(transaction: UbikTransaction) -> ();
    20002 Lock(
            transaction: UbikTransaction, file: i32, position: i32, length: i32, kind: i32,
        ) -> ();
    20003 Write(transaction: UbikTransaction, file: i32, position: i32, data: XdrBytes<20000>)
        -> ();
    20004 GetVersion() -> (version: UbikVersion);
    20005 GetFile(file: i32) -> (version: UbikVersion) streams BeforeResults;
    20006 SendFile(file: i32, length: i32, version: UbikVersion) -> () streams BehindArguments;
    20007 Abort(transaction: UbikTransaction) -> ();
    20008 ReleaseLocks(transaction: UbikTransaction) -> ();
    20009 Truncate(transaction: UbikTransaction, file: i32, length: i32) -> ();
    20010 Probe() -> ();
    20011 WriteV(
            transaction: UbikTransaction, parts: XdrList<UbikWrite, 64>, data: XdrBytes<65536>,
        ) -> ();
    20012 UpdateInterfaceAddr(addresses: Box<UbikAddresses>) -> (addresses: Box<UbikAddresses>);
    20013 SetVersion(transaction: UbikTransaction, old: UbikVersion, new: UbikVersion) -> ();
}
