//! Clients of read-only volumes leave sites that lag. The server of such a site does not know that
//! it lags; the cell database does, and the client asks it periodically for changes.

use std::sync::Weak;
use std::time::Duration;

use parking_lot::Mutex;
use types::{Answer, CellCall, Changed, Revision, VolumeId};

use crate::CallError;

/// The interval. Clients of a site learn of its release at once; this is for sites that missed one.
const EVERY: Duration = Duration::from_secs(30);
/// The most changes that one question asks for. If there are more, every volume is checked.
const CHANGES_MAX: u32 = 1000;

/// A volume whose client reads at one of several sites.
pub(crate) trait ReplicaReader: Send + Sync {
    /// The number of the read-write volume of its group.
    fn read_write_of_group(&self) -> Option<VolumeId>;

    /// Takes another site, if there is one, when the present site has missed a release.
    fn leave_if_it_lags(&self);
}

/// The watched volumes.
#[derive(Default)]
pub(crate) struct Watch(Mutex<State>);

#[derive(Default)]
struct State {
    volumes: Vec<Weak<dyn ReplicaReader>>,
    running: bool,
    /// Changes up to this revision have been examined.
    seen: Option<Revision>,
}

impl Watch {
    /// Watches the volume from now on. `check` checks once, in a thread, and returns whether any
    /// volume is left to watch.
    pub fn add(&self, volume: &Weak<dyn ReplicaReader>, check: impl Fn() -> bool + Send + 'static) {
        let mut state = self.0.lock();
        state.volumes.push(Weak::clone(volume));
        if state.running {
            return;
        }
        let work = move || {
            loop {
                std::thread::sleep(EVERY);
                if !check() {
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

    /// Forgets volumes without a user. Is any left?
    pub fn goes_on(&self) -> bool {
        let mut state = self.0.lock();
        state.volumes.retain(|volume| volume.strong_count() > 0);
        state.running = !state.volumes.is_empty();
        state.running
    }

    /// Asks the cell for changes, and leaves sites that lag.
    pub fn look_around(&self, ask: impl FnOnce(&CellCall) -> Result<Answer, CallError>) {
        let (volumes, since) = {
            let state = self.0.lock();
            (state.volumes.iter().filter_map(Weak::upgrade).collect::<Vec<_>>(), state.seen)
        };
        let call = CellCall::Changes { since: since.unwrap_or_default(), max: CHANGES_MAX };
        let Ok(Answer::Changes { at, changes }) = ask(&call) else { return };
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
        self.0.lock().seen = Some(at);
    }
}
