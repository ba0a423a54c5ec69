//! How a client connects, and what it shows there.

use std::sync::Arc;

use dafs::credentials::Wallet;

/// For every session of a client.
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    /// How connections are made.
    pub connection: fabric::ConnectionOptions,
    /// Tokens of those who ask; none: they are only named, which trusted connections alone believe.
    pub wallet: Option<Arc<dyn Wallet>>,
}

impl From<fabric::ConnectionOptions> for ClientOptions {
    fn from(connection: fabric::ConnectionOptions) -> Self {
        ClientOptions { connection, wallet: None }
    }
}
