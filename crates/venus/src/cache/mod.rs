//! .

pub(crate) mod access_pattern;
pub(crate) mod admission;
pub(crate) mod cache;
pub(crate) mod siblings;
