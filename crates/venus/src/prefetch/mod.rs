//! Fetching what will be read next.

pub(crate) mod directories;
pub(crate) mod open_dir;
pub(crate) mod read_ahead;
