//! Sending changes to the server.

pub(crate) mod calls;
pub(crate) mod chores;
pub(crate) mod flusher;
pub(crate) mod free_space;
pub(crate) mod journal;
pub(crate) mod landed;
pub(crate) mod sender;
pub(crate) mod unstable;
pub(crate) mod unstable_metadata;
pub(crate) mod writeback;
