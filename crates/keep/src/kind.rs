//! The kinds of records. Each has one owner: those below 100 are a session's (crate `client`),
//! those from 100 on the mount's (`mount`), those from 200 on the cache manager's (`venus`).

/// The terms of a session.
pub const SESSION: u64 = 1;
/// The words of a session's slots.
pub const SLOTS: u64 = 2;
/// A request of a session.
pub const REQUEST: u64 = 3;
/// A chain of requests of which some are answered.
pub const CHAIN: u64 = 4;
/// An answer that its caller may not have used yet.
pub const ANSWER: u64 = 5;
/// Where the server of a session is.
pub const SERVER: u64 = 6;

/// A mount; `major` is its number, here and below.
pub const MOUNT: u64 = 100;
/// A mount point that the kernel knows; `minor` is its node.
pub const POINT: u64 = 101;
/// A row of nodes; `minor` is the row.
pub const NODES: u64 = 102;
/// A volume below the first in a mount that shows all volumes; `minor` is its slot.
pub const SLOT: u64 = 103;

/// The count of processes that served a volume; `major` is the volume, here and below.
pub const LIFE: u64 = 200;
/// An open file; `minor` is its handle.
pub const HANDLE: u64 = 201;
/// The locks of a file; `minor` is its vnode.
pub const LOCKS: u64 = 202;
/// Bytes of one write; `minor` is a serial number.
pub const WRITE: u64 = 203;
/// A file whose body an application may have mapped for writing; `minor` is its vnode.
pub const MAPPED: u64 = 204;
