//! Work for the background: the janitor's list, and orders of lower layers to the
//! upper ones.
//!
//! The list knows when its next item is due, and tells the client's scheduler when that gets
//! earlier. The scheduler's thread has the janitor (`ops/janitor.rs`) take what is due.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use client::clock;
use parking_lot::Mutex;
use types::{Fid, Time};

use crate::base::Seat;
use crate::data::{Data, FileBytes};

/// Unstable writes and metadata are committed at the latest after this.
const COMMIT_AGE: Duration = Duration::from_secs(5);

/// How often pinned bodies are checked that need it.
const TEND: Duration = Duration::from_secs(1);

/// Ends of holds are sent in batches this far apart.
const BATCH: Duration = Duration::from_millis(50);

/// Reads are recorded at the server at the latest after this.
const READS_AGE: Duration = Duration::from_secs(5);

/// The journal is looked at so many times in the age at which its entries are sent.
const LOOKS_IN_AGE: u32 = 16;

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
    aging: VecDeque<(Time, Arc<FileBytes>)>,
    /// Held files whose last handle is closed: their holds end at `unhold_at`.
    unhold: Vec<Fid>,
    unhold_at: Option<Time>,
    /// Held files that a new session must claim again.
    hold: Vec<Fid>,
    commit: bool,
    /// When a commit is due, if there are unstable bytes then.
    commit_at: Option<Time>,
    /// When the lease may end: the janitor then looks whether it was renewed.
    lease: Option<Time>,
    /// When the pinned bodies are due for a check.
    tend: Option<Time>,
    /// When the journal is to be looked at.
    journal: Option<Time>,
    /// When noted reads are to be sent.
    reads: Option<Time>,
}

/// See the head of the file.
pub(crate) struct Chores {
    state: Mutex<State>,
    dirty_age: Duration,
    seat: OnceLock<Seat>,
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
    pub lease: bool,
    pub journal: bool,
    pub reads: bool,
}

impl Chores {
    /// Written bytes are sent when they are `dirty_age` old.
    pub fn new(dirty_age: Duration) -> Self {
        let (state, seat, duties) = Default::default();
        Chores { state, dirty_age, seat, duties }
    }

    /// Called once, before the first request.
    pub fn set_duties(&self, duties: Weak<dyn Duties>) {
        let is_first = self.duties.set(duties).is_ok();
        assert!(is_first, "a volume has one set of duties");
    }

    /// The upper layers; `None`: they have ended.
    pub fn duties(&self) -> Option<Arc<dyn Duties>> {
        self.duties.get().and_then(Weak::upgrade)
    }

    /// From now on the scheduler has the janitor come when something is due. Called once.
    pub fn begin(&self, seat: Seat) {
        let is_first = self.seat.set(seat).is_ok();
        assert!(is_first, "CB-4: a volume's lease is watched from one seat");
        self.change(|_| {});
    }

    /// The janitor comes no more, and is not at work.
    pub fn stop(&self) {
        self.seat.get().iter().for_each(|seat| seat.leave());
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        let before = state.due_at(self.dirty_age);
        change(&mut state);
        let after = state.due_at(self.dirty_age);
        drop(state);
        if let (Some(at), Some(seat)) = (after, self.seat.get())
            && before.is_none_or(|before| at < before)
        {
            seat.due_by(at);
        }
    }

    /// The bytes that are dirty now are to be sent when they are old enough.
    pub fn age(&self, file: &Arc<FileBytes>, data: &mut Data) {
        if data.has_unsent() {
            data.since = Some(Instant::now());
            self.check_later(file);
        }
    }

    /// The janitor looks at the file when bytes written now would be old enough.
    pub fn check_later(&self, file: &Arc<FileBytes>) {
        self.change(|state| state.aging.push_back((clock::now(), Arc::clone(file))));
    }

    /// The file is closed: its hold ends, unless it is opened again before.
    pub fn end_hold(&self, fid: Fid) {
        self.change(|state| {
            state.unhold.push(fid);
            state.unhold_at.get_or_insert_with(|| clock::now() + BATCH);
        });
    }

    /// The session is over: the next one claims holds of these files, and commits.
    pub fn claim_holds(&self, fids: Vec<Fid>) {
        self.change(|state| {
            state.hold.extend(fids);
            state.commit = true;
        });
    }

    pub fn commit_soon(&self) {
        self.change(|state| state.commit = true);
    }

    /// There are unstable bytes, since now.
    pub fn commit_by_age(&self) {
        self.change(|state| state.commit_at = Some(clock::now() + COMMIT_AGE));
    }

    pub fn tend_soon(&self) {
        self.change(|state| {
            state.tend.get_or_insert_with(|| clock::now() + TEND);
        });
    }

    /// The lease ends then, unless it is renewed; zero: there is none.
    pub fn watch_lease(&self, until: Time) {
        if until > Time::ZERO {
            // Its present end is asked for when the earliest is over.
            self.change(|state| state.lease = Some(state.lease.map_or(until, |at| at.min(until))));
        }
    }

    /// The journal is to be looked at: at once, or as soon as nothing may have been added for a
    /// while.
    pub fn look_at_journal(&self, at_once: bool) {
        let wait = if at_once { Duration::ZERO } else { self.dirty_age / LOOKS_IN_AGE };
        let at = clock::now() + wait;
        self.change(|state| state.journal = Some(state.journal.map_or(at, |due| due.min(at))));
    }

    /// Noted reads are to be sent: at once, or some seconds later with those that follow.
    pub fn send_reads(&self, at_once: bool) {
        let at = clock::now() + if at_once { Duration::ZERO } else { READS_AGE };
        self.change(|state| state.reads = Some(state.reads.map_or(at, |due| due.min(at))));
    }

    /// When something is due next.
    pub fn due_at(&self) -> Option<Time> {
        self.state.lock().due_at(self.dirty_age)
    }

    /// Takes what is due. `has_unstable`: whether there are bytes to be committed.
    pub fn take_due(&self, now: Time, has_unstable: impl Fn() -> bool) -> Due {
        let mut state = self.state.lock();
        let is_due = |at: &mut Option<Time>| at.take_if(|at| *at <= now).is_some();
        let commit_is_due = is_due(&mut state.commit_at) && has_unstable();
        let mut due = Due {
            commit: std::mem::take(&mut state.commit) || commit_is_due,
            hold: std::mem::take(&mut state.hold),
            tend: is_due(&mut state.tend),
            lease: is_due(&mut state.lease),
            journal: is_due(&mut state.journal),
            reads: is_due(&mut state.reads),
            ..Due::default()
        };
        if due.commit && has_unstable() {
            state.commit_at = Some(now + COMMIT_AGE);
        }
        if is_due(&mut state.unhold_at) {
            due.unhold = std::mem::take(&mut state.unhold);
        }
        // Files that are nearly old enough go along, so that many small files do not wake the
        // janitor one by one.
        let nearly = self.dirty_age - self.dirty_age / 8;
        while state.aging.front().is_some_and(|(since, _)| *since + nearly <= now) {
            due.aged.extend(state.aging.pop_front().map(|(_, file)| file));
        }
        due
    }
}

impl State {
    fn due_at(&self, dirty_age: Duration) -> Option<Time> {
        let at_once = (self.commit || !self.hold.is_empty()).then_some(Time::ZERO);
        let aged = self.aging.front().map(|(since, _)| *since + dirty_age);
        let others =
            [self.unhold_at, self.commit_at, self.lease, self.tend, self.journal, self.reads];
        others.into_iter().chain([at_once, aged]).flatten().min()
    }
}
