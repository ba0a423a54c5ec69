//! .

pub(crate) mod ground;
pub(crate) mod server;
