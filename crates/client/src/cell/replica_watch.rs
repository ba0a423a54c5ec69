//! Clients of read-only volumes leave sites that lag. The server of such a site does not know that
//! it lags; the cell database does, and the client asks it periodically for changes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use types::{Answer, CellCall, Changed, Revision};

use crate::cell::Cell;
use crate::volume::RemoteVolume;

/// The interval. Clients of a site learn of its release at once; this is for sites that missed one.
const EVERY: Duration = Duration::from_secs(30);
/// The most changes that one question asks for. If there are more, every volume is checked.
const CHANGES_MAX: u32 = 1000;

/// The watched volumes.
#[derive(Default)]
pub(crate) struct Watch(Mutex<State>);

#[derive(Default)]
struct State {
    volumes: Vec<Weak<RemoteVolume>>,
    running: bool,
    /// Changes up to this revision have been examined.
    seen: Option<Revision>,
}

impl Cell {
    /// Watches the volume from now on.
    pub(crate) fn watch(self: &Arc<Self>, volume: &Weak<RemoteVolume>) {
        let mut state = self.watch.0.lock();
        state.volumes.push(Weak::clone(volume));
        if state.running {
            return;
        }
        let cell = Arc::downgrade(self);
        let work = move || {
            loop {
                std::thread::sleep(EVERY);
                if cell.upgrade().is_none_or(|cell| !cell.check_once()) {
                    return;
                }
            }
        };
        let started = std::thread::Builder::new().name("cell-watch".into()).spawn(work);
        state.running = started
            .inspect_err(|error| {
                tracing::error!(
                    %error,
                    "no thread to check for sites that lag; a client may read an old release"
                );
            })
            .is_ok();
    }

    /// Checks once. Is any volume left to watch?
    fn check_once(&self) -> bool {
        self.look_around();
        let mut state = self.watch.0.lock();
        state.volumes.retain(|volume| volume.strong_count() > 0);
        state.running = !state.volumes.is_empty();
        state.running
    }

    /// Asks the cell for changes, and leaves sites that lag. Runs periodically.
    pub fn look_around(&self) {
        let (volumes, since) = {
            let state = self.watch.0.lock();
            (state.volumes.iter().filter_map(Weak::upgrade).collect::<Vec<_>>(), state.seen)
        };
        let call = CellCall::Changes { since: since.unwrap_or_default(), max: CHANGES_MAX };
        let Ok(Answer::Changes { at, changes }) = self.ask(&call, None) else { return };
        let all = |changes: &Vec<_>| changes.len() >= CHANGES_MAX as usize;
        let changes = changes.filter(|changes| since.is_some() && !all(changes));
        for volume in volumes {
            let group = volume.read_write_of_group();
            let concerned = |changes: &Vec<(Revision, Changed)>| {
                changes
                    .iter()
                    .any(|(_, changed)| group.is_none_or(|group| *changed == Changed::Group(group)))
            };
            if changes.as_ref().is_none_or(concerned) {
                volume.leave_if_it_lags();
            }
        }
        self.watch.0.lock().seen = Some(at);
    }
}
