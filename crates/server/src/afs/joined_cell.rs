//! The databases of a cell of OpenAFS, in which the server enters itself.
//!
//! Model. Clients ask that cell's location database for the addresses of a server, so the server
//! enters its own there: at its start, again and again while no database takes it, and from time to
//! time afterwards, since a database may be made anew from an older state.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use afs3::structs::AfsUuid;
use afscell::{AfsCell, AfsCellError};

use crate::config::AfsConfig;

/// The pause after an attempt that failed, and after one that did not.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
const RENEWED_AFTER: Duration = Duration::from_secs(1800);

/// See the head of the file.
pub(crate) struct JoinedCell {
    cell: AfsCell,
    uuid: AfsUuid,
    address: Ipv4Addr,
    last: Option<Result<(), AfsCellError>>,
}

impl JoinedCell {
    /// The cell that the configuration names, in which this server has that UUID.
    ///
    /// # Errors
    /// The system's.
    pub fn new(config: &AfsConfig, uuid: AfsUuid) -> io::Result<JoinedCell> {
        let keys = (!config.keys.is_empty()).then(|| Arc::clone(&config.keys));
        let cell = AfsCell::open(config.databases.clone(), keys)?;
        Ok(JoinedCell { cell, uuid, address: config.listen, last: None })
    }

    /// Enters the server. Returns when to do it again.
    pub fn enter(&mut self) -> Duration {
        let done = self.cell.register(self.uuid, &[self.address]);
        if self.last.as_ref() != Some(&done) {
            match &done {
                Ok(()) => tracing::info!(
                    address = %self.address,
                    "the server is entered in the location database of AFS"
                ),
                Err(error) => tracing::warn!(
                    %error,
                    "the server cannot be entered in the location database of AFS; it tries again"
                ),
            }
        }
        let pause = if done.is_ok() { RENEWED_AFTER } else { AGAIN_AFTER };
        self.last = Some(done);
        pause
    }
}
