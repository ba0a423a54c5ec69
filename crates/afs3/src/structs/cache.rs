//! The client's side: addresses, and what debugging calls show of its cache.

use super::{AfsFid, AfsUuid};
use crate::xdr::{Chars, xdr_struct};

/// The addresses that the structure always has.
pub const INTERFACE_ADDRESSES_MAX: usize = 32;

xdr_struct! {
    /// A client's identity and addresses. The three arrays always have all their words.
    pub struct InterfaceAddresses {
        /// How many of the words count.
        count: i32,
        uuid: AfsUuid,
        /// IPv4 addresses as numbers.
        addresses: [u32; INTERFACE_ADDRESSES_MAX],
        masks: [u32; INTERFACE_ADDRESSES_MAX],
        mtus: [u32; INTERFACE_ADDRESSES_MAX],
    }

    /// The state of a lock inside a client.
    #[derive(Copy, Default)]
    pub struct LockDescription {
        wait_states: i8,
        exclusive_locked: i8,
        readers_reading: i16,
        waiting: i16,
        spare: i16,
        last_reader_pid: i32,
        writer_pid: i32,
        source_indicator: i32,
    }

    /// A lock inside a client, by its name.
    pub struct CacheLock { name: Chars<16>, lock: LockDescription }

    /// A file in a client's cache.
    pub struct CacheEntry {
        address: i32,
        cell: i32,
        fid: AfsFid,
        length: i32,
        data_version: i32,
        lock: LockDescription,
        callback: i32,
        callback_expires: i32,
        references: i16,
        opens: i16,
        writers: i16,
        mount_state: i8,
        states: i8,
    }

    /// The same with a length of 64 bits.
    pub struct CacheEntry64 {
        address: i32,
        cell: i32,
        fid: AfsFid,
        length: i64,
        data_version: i32,
        lock: LockDescription,
        callback: i32,
        callback_expires: i32,
        references: i16,
        opens: i16,
        writers: i16,
        mount_state: i8,
        states: i8,
    }
}
