//! What a session needs to know.

use std::time::Duration;

use fabric::Endpoint;
use types::ServerId;

use crate::{ClientIdentity, ClientOptions};

/// Settings of a [`crate::Session`].
#[derive(Debug)]
pub struct SessionConfig {
    /// Where the server is, as far as is known: a session may be told of other places
    /// ([`crate::Remote::found_at`]).
    pub endpoint: Endpoint,
    /// Which server is meant; none: whichever is there.
    pub server: Option<ServerId>,
    /// Who we are.
    pub identity: ClientIdentity,
    /// Host and program, for people who look at the server.
    pub display: String,
    /// How connections are made, and what is shown there.
    pub options: ClientOptions,
    /// How long [`crate::Session::connect`] tries before it gives up; `None`: for ever.
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
