//! Bodies that the kernel reads and writes itself.

pub(crate) mod attach_body;
pub(crate) mod blank_pool;
pub(crate) mod cache_bodies;
pub(crate) mod direct_body;
pub(crate) mod loans;
pub(crate) mod preallocated;
