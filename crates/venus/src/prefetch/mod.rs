//! Fetching what will be read next.

pub(crate) mod access_pattern;
pub(crate) mod admission;
pub(crate) mod dir_prefetch;
pub(crate) mod listing;
pub(crate) mod mount_shared;
pub(crate) mod open_dir;
pub(crate) mod read_ahead;
pub(crate) mod siblings;
pub(crate) mod skipped_blocks;
