//! What a running server does about its keys: it shows a newer certificate, and wraps the keys of its encrypted volumes with a newer key of the cell's. Keys that sign tokens
//! are read when they are needed. So whoever makes a key (`rialto keys rotate`) needs not stop anything.

use std::sync::{Arc, Weak};
use std::time::Duration;

use fabric::tls::ServerTls;
use keys::{AtRest, at_rest_dir};
use vice::Vice;

use crate::cell::CellDir;
use crate::failure::{Doing, Failure};
use crate::security::Renewal;

/// How often it looks.
pub const LOOK: Duration = Duration::from_secs(10);

/// What is looked after.
pub struct Keeping {
    certificate: Option<(Renewal, Arc<ServerTls>)>,
    at_rest: AtRest,
    /// The newest key of the cell's when everything was wrapped last; `None`: it is not known how everything is wrapped.
    wrapped: Option<u32>,
    vice: Weak<Vice>,
}

impl Keeping {
    /// Looks from now on, until the server ends.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub fn start(
        cell: &CellDir,
        certificate: Option<(Renewal, Arc<ServerTls>)>,
        vice: &Arc<Vice>,
    ) -> Result<(), Failure> {
        let at_rest = AtRest::new(at_rest_dir(cell.dir()));
        let mut keeping = Keeping { certificate, at_rest, wrapped: None, vice: Arc::downgrade(vice) };
        let thread = std::thread::Builder::new().name("keys".to_owned()).spawn(move || {
            while keeping.look() {
                std::thread::sleep(LOOK);
            }
        });
        thread.map(drop).doing(|| "watching over this server's keys".to_owned())
    }

    /// False: the server is over.
    fn look(&mut self) -> bool {
        let Some(vice) = self.vice.upgrade() else { return false };
        if let Some((renewal, tls)) = &self.certificate {
            renewal.renew(tls);
        }
        let newest = self.at_rest.numbers().ok().and_then(|numbers| numbers.last().copied());
        if newest.is_none() || newest == self.wrapped {
            return true;
        }
        match vice.wrap_keys_anew() {
            Ok(count) => {
                self.wrapped = newest;
                tracing::info!(
                    key = newest,
                    volumes = count,
                    "the keys of encrypted volumes are wrapped with the newest key"
                );
            }
            Err(error) => tracing::error!(%error, "the keys of encrypted volumes cannot be wrapped anew"),
        }
        true
    }
}
