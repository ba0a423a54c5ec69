//! Bodies that the kernel reads and writes itself.

pub(crate) mod blanks;
pub(crate) mod cache_bodies;
pub(crate) mod loans;
pub(crate) mod passthrough;
pub(crate) mod preallocated;
