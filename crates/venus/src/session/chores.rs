//! Work for the background: the janitor's list, and orders of lower layers to the
//! upper ones.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use client::clock;
use parking_lot::{Condvar, Mutex};
use types::{Fid, Time};

use crate::data::{Data, FileBytes};

/// Without work the janitor checks this often.
const IDLE: Duration = Duration::from_secs(3600);

/// Unstable writes and metadata are committed at the latest after this.
const COMMIT_AGE: Duration = Duration::from_secs(5);

/// How often pinned bodies are checked that need it.
const TEND: Duration = Duration::from_secs(1);

/// Work of upper layers that a lower one finds necessary.
pub(crate) trait Duties: Send + Sync {
    /// Starts a sender thread for the file, unless it has enough.
    fn send_soon(&self, file: &Arc<FileBytes>);
    /// Sends the journal and returns these delegations, in the background.
    fn give_back_soon(self: Arc<Self>, dirs: Vec<Fid>);
}

#[derive(Default)]
struct State {
    /// Files that became dirty, oldest first.
    aging: VecDeque<(Instant, Arc<FileBytes>)>,
    /// Held files whose last handle is closed: their holds end.
    unhold: Vec<Fid>,
    /// Held files that a new session must claim again.
    hold: Vec<Fid>,
    commit: bool,
    committed: Option<Instant>,
    /// When the lease ends without a renewal.
    lease: Option<Time>,
    /// When the pinned bodies are due for a check.
    tend: Option<Instant>,
    stop: bool,
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Chores {
    state: Mutex<State>,
    poke: Condvar,
    duties: OnceLock<Weak<dyn Duties>>,
}

#[derive(Default)]
pub(crate) struct Due {
    pub aged: Vec<Arc<FileBytes>>,
    pub unhold: Vec<Fid>,
    pub hold: Vec<Fid>,
    pub commit: bool,
    pub tend: bool,
    /// The lease is over, if it was not renewed meanwhile.
    lease: bool,
}

impl Due {
    fn is_any(&self) -> bool {
        !self.aged.is_empty()
            || !self.unhold.is_empty()
            || !self.hold.is_empty()
            || self.commit
            || self.tend
            || self.lease
    }
}

impl Chores {
    /// Called once, before the first request.
    pub fn set_duties(&self, duties: Weak<dyn Duties>) {
        let is_first = self.duties.set(duties).is_ok();
        assert!(is_first, "a volume has one set of duties");
    }

    /// The upper layers; `None`: they have ended.
    pub fn duties(&self) -> Option<Arc<dyn Duties>> {
        self.duties.get().and_then(Weak::upgrade)
    }

    /// The bytes that are dirty now are to be sent when they are old enough.
    pub fn age(&self, file: &Arc<FileBytes>, data: &mut Data) {
        if !data.dirty.is_empty() {
            data.since = Some(Instant::now());
            self.check_later(file);
        }
    }

    /// The janitor looks at the file when bytes written now would be old enough.
    pub fn check_later(&self, file: &Arc<FileBytes>) {
        let mut state = self.state.lock();
        let idle = state.aging.is_empty();
        state.aging.push_back((Instant::now(), Arc::clone(file)));
        if idle {
            self.poke.notify_one();
        }
    }

    /// The file is closed: its hold ends, unless it is opened again before.
    pub fn end_hold(&self, fid: Fid) {
        self.state.lock().unhold.push(fid);
        self.poke.notify_one();
    }

    /// Holds whose ends came since the list was handed out.
    pub fn more_unholds(&self) -> Vec<Fid> {
        std::mem::take(&mut self.state.lock().unhold)
    }

    /// The session is over: the next one claims holds of these files, and commits.
    pub fn claim_holds(&self, fids: Vec<Fid>) {
        let mut state = self.state.lock();
        state.hold.extend(fids);
        state.commit = true;
        self.poke.notify_one();
    }

    pub fn commit_soon(&self) {
        self.state.lock().commit = true;
        self.poke.notify_one();
    }

    /// A commit begins, or there is nothing unstable yet: the next one is due after a while.
    pub fn count_commit_age(&self) {
        self.state.lock().committed = Some(Instant::now());
    }

    /// There are unstable bytes, since now.
    pub fn wake(&self) {
        self.poke.notify_one();
    }

    pub fn tend_soon(&self) {
        let mut state = self.state.lock();
        if state.tend.is_none() {
            state.tend = Some(Instant::now() + TEND);
            self.poke.notify_one();
        }
    }

    /// The lease was renewed.
    pub fn renew_lease(&self, until: Time) {
        let mut state = self.state.lock();
        let first = state.lease.replace(until).is_none();
        if first {
            self.poke.notify_one();
        }
    }

    /// When the lease ends; zero: there is none.
    pub fn set_lease(&self, until: Time) {
        self.state.lock().lease = (until > Time::ZERO).then_some(until);
    }

    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.poke.notify_all();
    }

    /// Has the janitor check the lease at once: the machine has slept, which threads do not count
    /// as waiting. `false`: the janitor has ended.
    pub fn wake_after_sleep(&self) -> bool {
        // Under its lock, so that the wake-up does not fall between its check and its wait.
        let state = self.state.lock();
        self.poke.notify_one();
        !state.stop
    }

    /// Waits until something is due; `None`: it is time to stop. `has_unstable`: there are bytes to
    /// be committed.
    pub fn wait(&self, dirty_age: Duration, has_unstable: impl Fn() -> bool) -> Option<Due> {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return None;
            }
            let commit = has_unstable().then(|| state.commit_left());
            let due = state.due(dirty_age, commit);
            if due.is_any() {
                return Some(due);
            }
            let lease = state.lease.map(|until| until.since(clock::now()));
            let age =
                state.aging.front().map(|(since, _)| dirty_age.saturating_sub(since.elapsed()));
            let tend = state.tend.map(|at| at.saturating_duration_since(Instant::now()));
            let wait =
                [Some(IDLE), age, lease, commit, tend].into_iter().flatten().min().unwrap_or(IDLE);
            self.poke.wait_for(&mut state, wait);
        }
    }
}

impl State {
    /// How long until unstable changes must be committed, if there are any.
    fn commit_left(&self) -> Duration {
        COMMIT_AGE.saturating_sub(self.committed.map_or(COMMIT_AGE, |at| at.elapsed()))
    }

    fn due(&mut self, dirty_age: Duration, commit_left: Option<Duration>) -> Due {
        let mut due = Due {
            aged: Vec::new(),
            unhold: std::mem::take(&mut self.unhold),
            hold: std::mem::take(&mut self.hold),
            commit: std::mem::take(&mut self.commit) || commit_left == Some(Duration::ZERO),
            tend: self.tend.take_if(|at| *at <= Instant::now()).is_some(),
            lease: self.lease.is_some_and(|until| until.since(clock::now()) == Duration::ZERO),
        };
        // Files that are nearly old enough go along, so that many small files do not wake the
        // janitor one by one.
        let nearly = dirty_age - dirty_age / 8;
        while self.aging.front().is_some_and(|(since, _)| since.elapsed() >= nearly) {
            due.aged.extend(self.aging.pop_front().map(|(_, file)| file));
        }
        due
    }
}
