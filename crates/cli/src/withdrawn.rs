//! The keys of servers that were withdrawn, as a client knows them: a server that shows one is
//! refused, also while its certificate is valid.
//!
//! A mount asks the servers that it is connected to, at its start and every [`EVERY`]. It stores
//! the keys in `withdrawn_keys` of its directory, a line each, for the next start: then a server
//! that was removed may be the only one that answers. A client that never heard of the removal
//! accepts that server until its certificate ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client::Cell;
use fabric::tls::{ClientTls, RefusedKeys};
use types::KeyPrint;

/// As long as a lease.
const EVERY: Duration = Duration::from_secs(15);
const NAME: &str = "withdrawn_keys";

/// Refuses the keys that are stored in this directory.
pub fn load(dir: &Path, tls: &ClientTls) {
    let text = std::fs::read_to_string(dir.join(NAME)).unwrap_or_default();
    tls.refused().add(text.lines().filter_map(|line| line.trim().parse::<KeyPrint>().ok()));
}

fn store(dir: &Path, refused: &RefusedKeys) -> std::io::Result<()> {
    let text: String = refused.all().iter().map(|key| format!("{key}\n")).collect();
    std::fs::create_dir_all(dir)?;
    let draft = dir.join(format!("{NAME}.{}", std::process::id()));
    std::fs::write(&draft, text)?;
    std::fs::rename(&draft, dir.join(NAME))
}

/// Keeps the keys current as long as the cell is used. `tls`: of its connections; `None`: they are
/// in clear text, which proves no server's identity.
pub fn watch(cell: &Arc<Cell>, tls: Option<ClientTls>, dir: PathBuf) {
    let Some(tls) = tls else { return };
    let cell = Arc::downgrade(cell);
    let watching = move || {
        while let Some(cell) = cell.upgrade() {
            if cell.learn_withdrawn(tls.refused())
                && let Err(error) = store(&dir, tls.refused())
            {
                tracing::warn!(
                    %error,
                    "the withdrawn keys of servers are not stored: this mount refuses them, the \
                     next one has to hear of them again"
                );
            }
            drop(cell);
            std::thread::sleep(EVERY);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("withdrawn".to_owned()).spawn(watching) {
        tracing::error!(%error, "no thread to hear of withdrawn keys of servers");
    }
}

#[cfg(test)]
mod tests {
    use fabric::tls::{Fingerprint, Trust};

    use super::*;

    #[test]
    fn sj5_withdrawn_keys_are_known_at_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let tls = || ClientTls::new(Trust::Pinned(Fingerprint([1; 32])), None).unwrap();
        let (first, second) = (tls(), tls());
        load(dir.path(), &first);
        assert_eq!(first.refused().all(), []);
        let keys = [KeyPrint([2; 32]), KeyPrint([3; 32])];
        assert!(first.refused().add(keys) && !first.refused().add(keys));
        store(dir.path(), first.refused()).unwrap();
        load(dir.path(), &second);
        assert_eq!(second.refused().all(), keys);
    }
}
