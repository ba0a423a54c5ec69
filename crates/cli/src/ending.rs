//! The end of a mount: its changes go to the servers, or are given up.
//!
//! Model. An unmounted mount hands over what no server has yet, and waits for servers that are
//! away: the changes exist only here. The wait ends early when `umount --force` gives the changes
//! up, or after the patience of a `soft` mount. Then the log lists what is lost, and the sessions
//! with the servers are closed, at which everything that waits for them fails.

use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use venus::{Error, UnsavedVolume, Volumes};

/// How often the waiting thread looks whether the changes were given up.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The volumes of sessions that have trees of their own.
pub type Sessions = Mutex<Vec<Weak<Volumes>>>;

/// The end of one mount with its sessions.
pub struct Ending {
    volumes: Arc<Volumes>,
    sessions: Arc<Sessions>,
    /// The changes that were given up, if they were.
    lost: OnceLock<Value>,
}

impl Ending {
    /// Of a mount of these volumes.
    pub fn new(volumes: &Arc<Volumes>, sessions: &Arc<Sessions>) -> Arc<Ending> {
        let (volumes, sessions) = (Arc::clone(volumes), Arc::clone(sessions));
        Arc::new(Ending { volumes, sessions, lost: OnceLock::new() })
    }

    fn all(&self) -> Vec<Arc<Volumes>> {
        let sessions = self.sessions.lock().iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
        std::iter::once(Arc::clone(&self.volumes)).chain(sessions).collect()
    }

    /// The changes that servers do not have yet, or may lose.
    pub fn unsaved(&self) -> Value {
        Value::Array(self.all().iter().flat_map(|one| one.unsaved()).map(shown).collect())
    }

    /// Gives the changes up: returns what is lost, which is in the log too.
    pub fn give_up(&self) -> Value {
        let lost = self.lost.get_or_init(|| {
            let unsaved = self.unsaved();
            for volume in unsaved.as_array().into_iter().flatten() {
                tracing::error!(%volume, "changes were given up that no server has confirmed: they \
                    are lost, unless they had reached it");
            }
            unsaved
        });
        self.all().iter().for_each(|volumes| volumes.detach());
        lost.clone()
    }

    /// Ends the sessions with the servers.
    pub fn leave(&self) {
        self.all().iter().for_each(|volumes| volumes.leave());
    }

    /// Sends all changes to the servers and makes them stable there; waits so long for servers that
    /// are away.
    ///
    /// # Errors
    /// The first error; `Closed` if the changes were given up.
    pub fn hand_over(self: &Arc<Self>, patience: Option<Duration>) -> Result<(), Error> {
        let (done, ends) = mpsc::channel();
        let this = Arc::clone(self);
        let hand_over = move || {
            let sent = this.all().iter().map(|one| one.hand_over()).fold(Ok(()), Result::and);
            let _ = done.send(sent);
        };
        let sending = std::thread::Builder::new().name("hand-over".into()).spawn(hand_over);
        if let Err(error) = sending {
            return Err(Error::Closed(format!("no thread to send the changes: {error}")));
        }
        let begun = Instant::now();
        loop {
            match ends.recv_timeout(POLL_INTERVAL) {
                Ok(sent) if self.lost.get().is_none() => return sent,
                Ok(_) => return Err(Error::Closed("the changes were given up".to_owned())),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(Error::Closed("the thread that sends has ended".to_owned()));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            let is_late = patience.is_some_and(|patience| begun.elapsed() >= patience);
            if is_late && self.lost.get().is_none() {
                self.give_up();
            }
        }
    }
}

fn shown(volume: UnsavedVolume) -> Value {
    let bytes: u64 = volume.files.iter().map(|(_, bytes)| bytes).sum();
    let file = |(fid, bytes): (types::Fid, u64)| json!({ "fid": fid.to_string(), "bytes": bytes });
    json!({
        "volume": String::from_utf8_lossy(volume.volume.as_bytes()),
        "server": volume.server,
        "bytes": bytes,
        "changes": volume.changes,
        "files": volume.files.into_iter().map(file).collect::<Vec<_>>(),
    })
}
