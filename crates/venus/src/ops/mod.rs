//! The operations of the file system.

pub(crate) mod change;
pub(crate) mod directories;
pub(crate) mod effective_identity;
pub(crate) mod entry_invalidation;
pub(crate) mod events;
pub(crate) mod handles;
pub(crate) mod janitor;
pub(crate) mod locks;
pub(crate) mod lookup;
pub(crate) mod open;
pub(crate) mod read;
pub(crate) mod rights;
pub(crate) mod seek;
pub(crate) mod venus;
pub(crate) mod write;
