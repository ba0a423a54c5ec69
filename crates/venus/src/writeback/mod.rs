//! Sending changes to the server.

pub(crate) mod check_instance;
pub(crate) mod chores;
pub(crate) mod delegation;
pub(crate) mod flush;
pub(crate) mod free_space;
pub(crate) mod journal;
pub(crate) mod journal_writes;
pub(crate) mod landed;
pub(crate) mod lost_changes;
pub(crate) mod server_instance;
pub(crate) mod unstable_metadata;
pub(crate) mod unstable_writes;
