//! Renews the tokens of a mount's users before they end.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mount::renew_tokens;
use types::Timestamp;
use venus::Volumes;

use crate::commands::log_in_again;

/// Interval between checks of tokens.
const POLL_INTERVAL: Duration = Duration::from_secs(60);

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::new(since.as_secs().try_into().unwrap_or(i64::MAX), since.subsec_nanos())
}

/// Renews tokens of a cell that end soon, as long as the tree is mounted at `at`.
pub fn maintain_tokens(volumes: &Arc<Volumes>, at: &Path) {
    let Some(tokens) = volumes.tokens().cloned() else { return };
    let (volumes, at) = (Arc::downgrade(volumes), at.to_owned());
    let keeping = std::thread::Builder::new().name("tokens".to_owned()).spawn(move || {
        loop {
            tokens.wait_for_change(tokens.next_look(now(), POLL_INTERVAL));
            let Some(volumes) = volumes.upgrade() else { return };
            renew_tokens(&volumes, now());
            let sources = tokens.to_get_anew(now());
            // The login processes use the tree, and an unmount does not wait for them.
            drop(volumes);
            log_in_again(&sources, &at);
        }
    });
    if let Err(error) = keeping {
        tracing::error!(
            %error,
            "cannot start the thread that renews tokens: they end at their time"
        );
    }
}
