//! Key upkeep of a running server: it shows a newer certificate, and wraps the keys of its
//! encrypted volumes with a newer key of the cell. Keys that sign tokens are read when they are
//! needed. So a new key (`rialto keys rotate`) needs no restart.

use std::sync::{Arc, Weak};
use std::time::Duration;

use fabric::tls::ServerTls;
use keys::AtRest;
use local::failure::{Doing, Failure};
use store::Rewrapped;
use vice::Vice;

use crate::security::Renewal;

/// Interval between checks for new keys.
pub const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// The keys of a running server.
pub struct KeyUpkeep {
    certificate: Option<(Renewal, Arc<ServerTls>)>,
    at_rest: Arc<AtRest>,
    /// The cell's newest key when everything was last wrapped; `None`: unknown.
    wrapped: Option<u32>,
    /// Why some keys could not be wrapped then.
    left: Vec<String>,
    vice: Weak<Vice>,
}

impl KeyUpkeep {
    /// Checks from now on, until the server ends.
    pub(crate) fn start(
        certificate: Option<(Renewal, Arc<ServerTls>)>,
        at_rest: Arc<AtRest>,
        vice: &Arc<Vice>,
    ) -> Result<(), Failure> {
        let mut keeping = KeyUpkeep {
            certificate,
            at_rest,
            wrapped: None,
            left: Vec::new(),
            vice: Arc::downgrade(vice),
        };
        let thread = std::thread::Builder::new().name("keys".to_owned()).spawn(move || {
            while keeping.check() {
                std::thread::sleep(POLL_INTERVAL);
            }
        });
        thread.map(drop).doing(|| "watching over this server's keys".to_owned())
    }

    /// False: the server has ended.
    fn check(&mut self) -> bool {
        let Some(vice) = self.vice.upgrade() else { return false };
        if let Some((renewal, tls)) = &self.certificate {
            renewal.renew(tls);
            renewal.refuse(vice.withdrawn_keys());
        }
        let newest = match self.at_rest.newest() {
            Ok(newest) => newest,
            Err(why) => {
                tracing::error!(why, "the newest key of encrypted volumes is not known");
                return true;
            }
        };
        if newest.is_none() || newest == self.wrapped {
            return true;
        }
        match vice.wrap_keys_anew() {
            Ok(Rewrapped { wrapped, left }) => self.report_wrapped(newest, wrapped, left),
            Err(error) => {
                tracing::error!(%error, "the keys of encrypted volumes cannot be wrapped anew");
            }
        }
        true
    }

    /// Reports keys that were not wrapped, once; they are tried again.
    fn report_wrapped(&mut self, newest: Option<u32>, volumes: usize, left: Vec<String>) {
        if left.is_empty() {
            self.wrapped = newest;
            tracing::info!(
                key = newest,
                volumes,
                "the keys of encrypted volumes are wrapped with the newest key"
            );
        } else if left != self.left {
            let (locked, why) = (left.len(), &left[0]);
            tracing::error!(
                key = newest,
                volumes,
                locked,
                why,
                "the keys of some encrypted volumes cannot be wrapped anew"
            );
        }
        self.left = left;
    }
}
