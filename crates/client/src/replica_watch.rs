//! Read-only volumes leave sites that lag. The server of such a site does not know that it lags;
//! the cell's database does, and is asked now and then what it was told since.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use types::{Answer, CellCall, Changed, Revision};

use crate::cell::Cell;
use crate::volume::RemoteVolume;

/// How often. A release is seen at its sites at once; this is for those that missed one.
const EVERY: Duration = Duration::from_secs(30);
/// Changes that are asked for at once. Of more, everything is looked at.
const CHANGES_MAX: u32 = 1000;

/// What is watched.
#[derive(Default)]
pub(crate) struct Watch(Mutex<State>);

#[derive(Default)]
struct State {
    volumes: Vec<Weak<RemoteVolume>>,
    running: bool,
    /// Everything up to here was looked at.
    seen: Option<Revision>,
}

impl Cell {
    /// From now on the volume is looked after.
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
                if cell.upgrade().is_none_or(|cell| !cell.goes_on()) {
                    return;
                }
            }
        };
        let started = std::thread::Builder::new().name("cell-watch".into()).spawn(work);
        state.running = started
            .inspect_err(|error| tracing::error!(%error, "nobody looks for sites that lag"))
            .is_ok();
    }

    /// Looks around; whether anything is left to be watched.
    fn goes_on(&self) -> bool {
        self.look_around();
        let mut state = self.watch.0.lock();
        state.volumes.retain(|volume| volume.strong_count() > 0);
        state.running = !state.volumes.is_empty();
        state.running
    }

    /// Asks what changed in the cell, and leaves sites that lag. Done now and then.
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
            let told = |changes: &Vec<(Revision, Changed)>| {
                changes
                    .iter()
                    .any(|(_, changed)| group.is_none_or(|group| *changed == Changed::Group(group)))
            };
            if changes.as_ref().is_none_or(told) {
                volume.leave_if_it_lags();
            }
        }
        self.watch.0.lock().seen = Some(at);
    }
}
