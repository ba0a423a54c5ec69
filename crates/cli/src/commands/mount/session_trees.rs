//! Trees of a mount's sessions, with token wallets of their own (`rialto pagsh`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use local::cell::MountRecords;
use local::failure::{Doing, Failure};
use mount::{Mount as Mounting, MountConfig};
use types::Name;
use venus::DYNROOT;

use super::MountCommand;
use crate::ending::Sessions;
use crate::sessions;
use crate::transport::Transport;

/// Limit of a session's disk cache: there may be many sessions.
const SESSION_CACHE_MAX: u64 = 1 << 30;

impl MountCommand {
    /// Serves sessions' trees, with token wallets of their own (`rialto pagsh`); needs root.
    pub(super) fn serves_sessions(
        &self,
        at: &Path,
        live: &Arc<Sessions>,
    ) -> Option<sessions::SessionListener> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let (this, at, live) = (self.clone(), at.to_owned(), Arc::clone(live));
        let place = at.clone();
        let listening = self.session_dirs(&at).and_then(|dirs| {
            sessions::listen(&place, move |number| {
                let records = MountRecords::of(&this.place.path()?);
                let dir = dirs.join(number.to_string());
                let cache_size = this.cache_size.min(SESSION_CACHE_MAX);
                let session = MountCommand {
                    cache_dir: Some(dir.clone()),
                    cache_size,
                    flat: true,
                    ..this.clone()
                };
                session
                    .apart(&records, &at, dir.clone(), &live)
                    .inspect_err(|_| drop(std::fs::remove_dir_all(&dir)))
            })
        });
        // Another mount of the same name, in another name space, may have the socket.
        listening
            .inspect_err(
                |error| tracing::warn!(%error, "sessions cannot get trees of their own here"),
            )
            .ok()
    }

    /// The parent of the sessions' disk caches. Directories of an earlier process of this mount
    /// that was killed are removed.
    fn session_dirs(&self, at: &Path) -> Result<PathBuf, Failure> {
        let dirs = self.cache(&MountRecords::of(&self.place.path()?), at)?.join("sessions");
        match std::fs::remove_dir_all(&dirs) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).doing(|| format!("removing {}", dirs.display()))
            }
            _ => Ok(dirs),
        }
    }

    /// Mounts the tree once more, for a session.
    fn apart(
        &self,
        records: &MountRecords,
        at: &Path,
        dir: PathBuf,
        live: &Sessions,
    ) -> Result<sessions::Made, Failure> {
        let volume = if self.dynroot { DYNROOT } else { &self.volume };
        let volume =
            Name::new(volume.as_bytes()).doing(|| format!("mounting the volume {volume}"))?;
        let volumes = self.all_volumes(records, at, None)?;
        let transport = Transport::choose(self.transport)?.into();
        let config = MountConfig {
            transport,
            flat: true,
            patience: self.patience(),
            ..MountConfig::new(at, volume, self.shown_source())
        };
        let (mounted, mount) =
            Mounting::apart(&config, &volumes).map_err(|error| self.mount_failure(at, error))?;
        let mounted = Arc::new(mounted);
        {
            let mut live = live.lock();
            live.retain(|one| one.strong_count() > 0);
            live.push(Arc::downgrade(&volumes));
        }
        let ends = move || {
            mounted.wait();
            drop(mounted);
            if let Err(error) = volumes.hand_over() {
                tracing::error!(%error, "a session's changes could not be sent to the server");
            }
            volumes.leave();
            if let Err(error) = std::fs::remove_dir_all(&dir) {
                tracing::warn!(
                    %error,
                    dir = %dir.display(),
                    "the cache directory of a session cannot be removed"
                );
            }
        };
        Ok(sessions::Made { mount, ends: Box::new(ends) })
    }
}
