//! One file's bytes on this machine. Imports `base` alone.

pub(crate) mod block_sums;
pub(crate) mod body_stamp;
pub(crate) mod cache_body;
pub(crate) mod cache_body_sync;
pub(crate) mod disk_cache;
pub(crate) mod extents;
pub(crate) mod file_data;
pub(crate) mod mount_shared;
pub(crate) mod open_file;
pub(crate) mod pace;
pub(crate) mod passed_file;
pub(crate) mod read_cache;
pub(crate) mod scratch_body;
pub(crate) mod sequence;
pub(crate) mod unstable_writes;
pub(crate) mod verified_blocks;
