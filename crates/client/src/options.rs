//! How a client connects, and which tokens it shows.

use std::sync::Arc;

use dafs::credentials::Wallet;
use keep::Keep;

/// Options of every session of a client.
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    /// How connections are made.
    pub connection: fabric::ConnectionOptions,
    /// The callers' tokens. `None`: callers are only named, which servers accept from trusted
    /// connections alone.
    pub wallet: Option<Arc<dyn Wallet>>,
    /// Where each session leaves what the process that succeeds this one needs to go on with it.
    /// `None`: sessions end with this process.
    pub keep: Option<Arc<Keep>>,
    /// The session may give the server memory ([`crate::Session::add_region`]).
    pub direct: bool,
}

impl From<fabric::ConnectionOptions> for ClientOptions {
    fn from(connection: fabric::ConnectionOptions) -> Self {
        ClientOptions { connection, ..ClientOptions::default() }
    }
}
