//! The bytes of a partition: keys and values of records, names of files, checksums.
//!
//! Model. Every record has a key (`key.rs`), and a value that its checksum binds to the key
//! (`record.rs`, `header.rs`). Body files have names (`names.rs`), and each block has a sum
//! (`sums.rs`). Nothing here reads or writes: this layer imports no other one but the errors.

pub(crate) mod bucket;
pub(crate) mod header;
pub(crate) mod key;
pub(crate) mod names;
pub(crate) mod record;
pub(crate) mod sums;
pub(crate) mod vnode;

/// Bytes of a block: the unit of checksums, and the unit in which body files are charged.
pub const BLOCK_BYTES: u64 = 16 << 10;
/// The longest body that is kept inline, in bytes.
pub const INLINE_BYTES_MAX: u64 = BLOCK_BYTES;
/// The most names of one directory that may share a hash.
pub const BUCKET_ENTRIES_MAX: usize = 16;
