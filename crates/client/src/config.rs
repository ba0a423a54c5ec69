//! Settings of a session.

use std::time::Duration;

use fabric::Endpoint;
use types::ServerId;

use crate::{ClientIdentity, ClientOptions};

/// Settings of a [`crate::Session`].
#[derive(Debug)]
pub struct SessionConfig {
    /// Where the server is at first: a session may learn of other addresses
    /// ([`crate::Remote::found_at`]).
    pub endpoint: Endpoint,
    /// The server that must answer there. `None`: any server.
    pub server: Option<ServerId>,
    /// The client that attaches.
    pub identity: ClientIdentity,
    /// Host and program, shown to administrators of the server.
    pub display: String,
    /// How connections are made, and which tokens they show.
    pub options: ClientOptions,
    /// How long [`crate::Session::connect`] tries before it fails; `None`: for ever.
    pub attach_within: Option<Duration>,
    /// How long one call may take; `None`: for ever, which is right for a file system whose server
    /// comes back.
    pub call_within: Option<Duration>,
    /// Checksums over headers, messages and payloads on a Unix socket, if the server agrees. TCP in
    /// clear text always has them, TLS never needs them.
    pub checksums: bool,
}

impl SessionConfig {
    /// The usual settings for the server at `endpoint`.
    pub fn new(endpoint: Endpoint, identity: ClientIdentity) -> Self {
        SessionConfig {
            endpoint,
            server: None,
            identity,
            display: format!("process {}", std::process::id()),
            options: ClientOptions::default(),
            attach_within: Some(Duration::from_secs(10)),
            call_within: None,
            checksums: false,
        }
    }
}
