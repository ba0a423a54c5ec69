//! The changes that were answered here and that the server has not executed yet, in order
//! (`docs/spec/delegation.md`).
//!
//! An entry is *queued*, then it *flies* in a chain, then it has *landed*: executed, refused, or
//! lost. One chain flies at a time, and chains are taken from the front, so the server has always
//! executed a prefix of the changes answered here (DE-4). `landed` is the number up to which
//! everything has landed; a thread that needs the server to know a change waits for its number.
//!
//! Entries are pushed under the lock of the tables, in the step that answers the application: the
//! order of the journal is the order of the answers. Their numbers follow each other, so a number
//! gives the entry's place in the queue. A removed entry (*cut*) leaves a gap there, never in
//! front.
//!
//! An entry wakes no thread. While the applications go on with their changes, sending would only
//! take processor time from them: the *flusher* begins when nothing was added for a while, when the
//! oldest entry is old enough, or when there are many. The janitor *looks* periodically and starts
//! it then; it is a job that ends when nothing is to be sent now. Without entries the janitor stops
//! looking, until one is added.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use smallvec::{SmallVec, smallvec};
use types::{Answer, Call, Caller, Fid, StatusChange, Timestamp};

use crate::data::{Chunk, FileBytes};
use crate::names::merged;

/// Calls of one chain, with room for one that asks for more slots.
const CHAIN_MEMBERS_MAX: usize = 63;

/// Written bytes of one chain, but one write always fits.
const CHAIN_BYTES_MAX: usize = 2 << 20;

/// A flush begins at so many entries or bytes: a waiter for all of them (fsync, a recall) waits for
/// a fifth of a second.
const FLUSH_ENTRIES: usize = 8192;

const FLUSH_BYTES: usize = 32 << 20;

/// At so many entries or bytes a thread that adds waits. With a flying chain these are fewer files
/// than the server sets aside for a session.
const ENTRIES_MAX: usize = 16_000;

const BYTES_MAX: usize = 64 << 20;

const _: () = assert!(
    FLUSH_ENTRIES < ENTRIES_MAX && FLUSH_BYTES < BYTES_MAX,
    "threads that add go on while a flush begins"
);

/// After so many looks without an entry the janitor must be told of the next one.
const IDLE_LOOKS_MAX: u32 = 24;

/// An empty queue keeps room for so many.
const ENTRIES_KEPT: usize = 256;

pub(crate) struct JournalEntry {
    /// Its place in the order, set by [`Journal::push`].
    pub number: u64,
    /// Number of the previous change of the file that this entry makes, changes or removes first,
    /// if that had not landed; otherwise 0.
    pub before: u64,
    /// Time of the answer.
    pub since: Instant,
    pub caller: Caller,
    pub at: Timestamp,
    pub slot: u64,
    pub call: Call,
    /// The answer given here.
    pub expected: Answer,
    /// The written file and the bytes.
    pub data: Option<(Arc<FileBytes>, Chunk)>,
    /// Earlier changes of the removed file are not sent: its status at the server differs.
    pub cut: bool,
}

impl JournalEntry {
    fn bytes(&self) -> usize {
        self.data.as_ref().map_or(0, |(_, chunk)| chunk.data.len())
    }

    /// The files of the change: first the one that it makes, changes or removes.
    pub fn fids(&self) -> SmallVec<[Fid; 4]> {
        fids_of(&self.expected)
    }
}

/// The files in an answer: first the one that was made, changed or removed.
pub(crate) fn fids_of(answer: &Answer) -> SmallVec<[Fid; 4]> {
    match answer {
        Answer::Status(status) | Answer::Written { status, .. } => smallvec![status.fid],
        Answer::Made { status, dir, .. } | Answer::Removed { status, dir } => {
            smallvec![status.fid, dir.fid]
        }
        Answer::Renamed { status, other, from_dir, to_dir } => {
            let other = other.iter().map(|other| other.fid);
            [status.fid, from_dir.fid, to_dir.fid].into_iter().chain(other).collect()
        }
        _ => SmallVec::new(),
    }
}

#[derive(Default)]
struct State {
    /// `None`: it was cut, or is lost. The front is never `None`.
    queue: VecDeque<Option<JournalEntry>>,
    bytes: usize,
    last: u64,
    flying: bool,
    /// The flusher is to send up to this number.
    wanted: u64,
    attention: Attention,
    stop: bool,
}

/// Which part of the client cares for the queue.
#[derive(Default, PartialEq, Eq)]
enum Attention {
    /// None, until an entry is added.
    #[default]
    Asleep,
    /// The janitor looks. `last` was the youngest entry at its last look, and there was none at
    /// this many looks.
    Looks { last: u64, idle: u32 },
    /// The flusher sends.
    Sends,
}

/// The janitor's next step after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Starts the flusher.
    Send,
    /// Looks again after a while.
    Again,
    /// Nothing, until [`Journal::push`] says so.
    Asleep,
}

impl State {
    /// The number of the first queued entry, or of the next one that will be queued.
    fn front(&self) -> u64 {
        self.last + 1 - self.queue.len() as u64
    }

    fn first(&self) -> Option<&JournalEntry> {
        self.queue.front()?.as_ref()
    }

    /// Whether the flusher is to send now: what is wanted, and everything once one entry is old.
    fn has_to_send(&mut self, age: Duration, landed: u64) -> bool {
        let is_old = |first: &JournalEntry| first.since.elapsed() + age / 8 >= age;
        if self.first().is_some_and(is_old) {
            self.wanted = self.last;
        }
        !self.stop && !self.queue.is_empty() && self.wanted > landed
    }

    /// The queued entry of this number.
    fn at(&mut self, number: u64) -> Option<&mut Option<JournalEntry>> {
        let at = number.checked_sub(self.front())?;
        self.queue.get_mut(usize::try_from(at).ok()?)
    }
}

#[derive(Default)]
pub(crate) struct Journal {
    state: Mutex<State>,
    landed: Arc<AtomicU64>,
    moved: Condvar,
}

pub(crate) enum Take {
    /// Entries to send: the caller reports the answers to [`Journal::land`].
    Chain(Vec<JournalEntry>),
    /// Another thread sends.
    Busy,
    Nothing,
}

impl Journal {
    pub fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.landed)
    }

    pub fn landed(&self) -> u64 {
        self.landed.load(Ordering::Acquire)
    }

    pub fn last(&self) -> u64 {
        self.state.lock().last
    }

    /// Adds an entry; returns its number, and whether the janitor must be told: to look at once
    /// (true), or after a while.
    pub fn push(&self, mut entry: JournalEntry) -> (u64, Option<bool>) {
        let mut state = self.state.lock();
        state.last += 1;
        entry.number = state.last;
        state.bytes += entry.bytes();
        state.queue.push_back(Some(entry));
        let is_full = state.queue.len() >= FLUSH_ENTRIES || state.bytes >= FLUSH_BYTES;
        let begins = is_full
            && state.attention != Attention::Sends
            && !state.flying
            && state.wanted <= self.landed();
        if begins {
            state.wanted = state.last;
        }
        let wakes = state.attention == Attention::Asleep;
        if wakes {
            state.attention = Attention::Looks { last: state.last, idle: 0 };
        }
        (state.last, (begins || wakes).then_some(begins))
    }

    /// Merges this entry into the youngest one, if both change the status of one file for one
    /// caller; returns the answer.
    pub fn merge(
        &self,
        caller: &Caller,
        call: &Call,
        at: Timestamp,
        answer: &Answer,
    ) -> Option<(u64, Answer)> {
        let (Call::SetStatus { fid, change: then }, Answer::Status(after)) = (call, answer) else {
            return None;
        };
        let mut state = self.state.lock();
        let back = state.queue.back_mut()?.as_mut().filter(|back| back.caller == *caller)?;
        let Call::SetStatus { fid: same, change: first } = &mut back.call else { return None };
        if same != fid {
            return None;
        }
        let one: StatusChange = merged(caller, first, back.at, then, at, after)?;
        *first = one;
        back.at = at;
        let mut status = *after;
        status.status_version = status.status_version.before_last();
        back.expected = Answer::Status(status);
        Some((back.number, Answer::Status(status)))
    }

    /// Called when the youngest entry removes a file's last name. If a queued entry made the file:
    /// removes and returns the changes of its bytes and status since. A file that was renamed or
    /// had another name stays as it is: the answers to that include the earlier changes.
    pub fn cut(&self) -> Vec<JournalEntry> {
        let mut state = self.state.lock();
        let last = state.last;
        let Some(Some(removal)) = state.at(last) else { return Vec::new() };
        let (mut number, mut out) = (removal.before, Vec::new());
        loop {
            match state.at(number).and_then(|entry| entry.as_ref()) {
                Some(entry)
                    if matches!(entry.call, Call::SetStatus { .. } | Call::Write { .. }) =>
                {
                    out.push(number);
                    number = entry.before;
                }
                Some(entry) if matches!(entry.call, Call::Make { .. }) => break,
                _ => return Vec::new(),
            }
        }
        let cut: Vec<JournalEntry> =
            out.into_iter().rev().filter_map(|number| state.at(number)?.take()).collect();
        state.bytes -= cut.iter().map(JournalEntry::bytes).sum::<usize>();
        if let Some(Some(removal)) = state.at(last) {
            removal.cut = !cut.is_empty();
        }
        cut
    }

    /// Takes the next chain: consecutive entries of one caller.
    pub fn take(&self) -> Take {
        let mut state = self.state.lock();
        if state.flying {
            return Take::Busy;
        }
        let Some(first) = state.first() else { return Take::Nothing };
        let next = self.landed() + 1;
        assert!(state.front() == next, "DE-4: a chain begins with the first that has not landed");
        let (caller, mut bytes, mut chain) = (first.caller.clone(), 0, Vec::new());
        while let Some(next) = state.queue.front() {
            if let Some(entry) = next {
                let more = bytes + entry.bytes();
                if chain.len() == CHAIN_MEMBERS_MAX
                    || entry.caller != caller
                    || !chain.is_empty() && more > CHAIN_BYTES_MAX
                {
                    break;
                }
                bytes = more;
            }
            chain.extend(state.queue.pop_front().flatten());
        }
        state.flying = true;
        state.bytes -= bytes;
        Take::Chain(chain)
    }

    /// The chain was answered; `again` were not executed and are next.
    pub fn land(&self, again: Vec<JournalEntry>) {
        let mut state = self.state.lock();
        assert!(state.flying, "DE-4: the chain that was answered flew");
        debug_assert!(
            again.is_sorted_by_key(|entry| entry.number),
            "DE-4: what is sent again keeps its order"
        );
        state.flying = false;
        state.bytes += again.iter().map(JournalEntry::bytes).sum::<usize>();
        for entry in again.into_iter().rev() {
            while state.front() > entry.number + 1 {
                state.queue.push_front(None);
            }
            assert!(state.front() == entry.number + 1, "DE-4: an entry comes back to its place");
            state.queue.push_front(Some(entry));
        }
        self.publish_landed(&state);
        if state.queue.is_empty() {
            state.queue.shrink_to(ENTRIES_KEPT);
        }
    }

    fn publish_landed(&self, state: &State) {
        debug_assert!(state.queue.front().is_none_or(Option::is_some), "DE-4: no gap is in front");
        let before = self.landed.swap(state.front() - 1, Ordering::AcqRel);
        assert!(before < state.front(), "DE-4: what has landed stays so");
        self.moved.notify_all();
    }

    /// Removes and returns all queued entries: they will never be sent.
    pub fn lose(&self) -> Vec<JournalEntry> {
        let mut state = self.state.lock();
        state.bytes = 0;
        let lost = std::mem::take(&mut state.queue).into_iter().flatten().collect();
        if !state.flying {
            self.publish_landed(&state);
        }
        lost
    }

    /// Waits a while for the flying chain.
    pub fn wait(&self, most: Duration) {
        let mut state = self.state.lock();
        if state.flying {
            self.moved.wait_for(&mut state, most);
        }
    }

    /// The flusher is to send up to this number soon; the janitor must be told to look at once.
    pub fn want(&self, until: u64) {
        let mut state = self.state.lock();
        state.wanted = state.wanted.max(until.min(state.last));
        if state.attention == Attention::Asleep {
            state.attention = Attention::Looks { last: state.last, idle: 0 };
        }
    }

    /// Changes that have not landed.
    pub fn waiting(&self) -> u64 {
        self.last() - self.landed()
    }

    /// Waits a while until something lands.
    pub fn wait_for_landing(&self, most: Duration) {
        let mut state = self.state.lock();
        if !state.queue.is_empty() || state.flying {
            self.moved.wait_for(&mut state, most);
        }
    }

    /// The number that must land before a thread adds an entry, if the journal is too long.
    pub fn crowded(&self) -> Option<u64> {
        let state = self.state.lock();
        let full = state.queue.len() >= ENTRIES_MAX || state.bytes >= BYTES_MAX;
        full.then(|| state.front() + (CHAIN_MEMBERS_MAX * 4) as u64)
    }

    /// The janitor looks whether there is something to send.
    pub fn look(&self, age: Duration) -> Look {
        let mut state = self.state.lock();
        let Attention::Looks { last: seen, idle } = state.attention else { return Look::Asleep };
        if seen == state.last {
            state.wanted = state.last;
        }
        let idle = if state.queue.is_empty() { idle + 1 } else { 0 };
        let (look, attention) = if state.has_to_send(age, self.landed()) {
            (Look::Send, Attention::Sends)
        } else if idle > IDLE_LOOKS_MAX || state.stop {
            (Look::Asleep, Attention::Asleep)
        } else {
            (Look::Again, Attention::Looks { last: state.last, idle })
        };
        state.attention = attention;
        look
    }

    /// Whether the flusher goes on. If not, the janitor is to look again.
    pub fn goes_on(&self, age: Duration) -> bool {
        let mut state = self.state.lock();
        debug_assert!(state.attention == Attention::Sends, "DE-4: one flusher sends");
        let goes_on = state.has_to_send(age, self.landed());
        if !goes_on {
            state.attention = Attention::Looks { last: state.last, idle: 0 };
        }
        goes_on
    }

    pub fn stop(&self) {
        self.state.lock().stop = true;
    }
}

#[cfg(test)]
mod tests {
    use types::{CreateHow, DataVersion, Kind, Name, NewKind, RenameMode, Status, StatusVersion};

    use super::*;

    const DIR: Fid = Fid::new(1, 1, 1);

    fn status(fid: Fid) -> Status {
        let time = Timestamp::default();
        let kind = if fid.vnode.is_directory() { Kind::Directory } else { Kind::File };
        Status {
            fid,
            kind,
            mode: 0o644,
            by_list: false,
            read_times: false,
            own_list: false,
            uid: 0,
            gid: 0,
            links: 1,
            size: 0,
            used: 0,
            device: 0,
            accessed: time,
            modified: time,
            changed: time,
            created: time,
            data_version: DataVersion::FIRST,
            status_version: StatusVersion::FIRST,
        }
    }

    fn file(number: u64) -> Fid {
        Fid::new(1, 2 * number, number + 1)
    }

    fn name(fid: Fid) -> Name {
        Name::new(format!("{}", fid.unique.0).as_bytes()).unwrap()
    }

    /// A journal, and the number of the last change of each file.
    #[derive(Default)]
    struct Fixture {
        journal: Journal,
        pending: std::collections::HashMap<Fid, u64>,
    }

    impl Fixture {
        fn push(&mut self, fid: Fid, call: Call, expected: Answer) -> u64 {
            let entry = JournalEntry {
                number: 0,
                before: self.pending.get(&fid).copied().unwrap_or(0),
                since: Instant::now(),
                caller: Caller::ROOT,
                at: Timestamp::default(),
                slot: 0,
                call,
                expected,
                data: None,
                cut: false,
            };
            let (number, _) = self.journal.push(entry);
            self.pending.insert(fid, number);
            number
        }

        fn make(&mut self, fid: Fid) -> u64 {
            let how = CreateHow::Guarded;
            let call =
                Call::Make { dir: DIR, name: name(fid), kind: NewKind::File, mode: 0o644, how };
            self.push(
                fid,
                call,
                Answer::Made { status: status(fid), dir: status(DIR), existed: false },
            )
        }

        fn set(&mut self, fid: Fid) -> u64 {
            let change = StatusChange { mode: Some(0o600), ..StatusChange::default() };
            self.push(fid, Call::SetStatus { fid, change }, Answer::Status(status(fid)))
        }

        fn rename(&mut self, fid: Fid) -> u64 {
            let (to, mode) = (Name::new(b"other").unwrap(), RenameMode::Replace);
            let call =
                Call::Rename { from_dir: DIR, from: name(fid), to_dir: DIR, to, mode, hold: false };
            let (from_dir, to_dir) = (status(DIR), status(DIR));
            self.push(
                fid,
                call,
                Answer::Renamed { status: status(fid), other: None, from_dir, to_dir },
            )
        }

        fn remove(&mut self, fid: Fid) -> u64 {
            let call = Call::Remove {
                dir: DIR,
                name: name(fid),
                what: types::RemoveWhat::File,
                hold: false,
            };
            self.push(fid, call, Answer::Removed { status: status(fid), dir: status(DIR) })
        }

        fn take(&self) -> Vec<JournalEntry> {
            match self.journal.take() {
                Take::Chain(chain) => chain,
                Take::Busy | Take::Nothing => Vec::new(),
            }
        }
    }

    fn numbers(entries: &[JournalEntry]) -> Vec<u64> {
        entries.iter().map(|entry| entry.number).collect()
    }

    #[test]
    fn of_a_file_that_came_and_went_only_its_name_is_sent() {
        let mut fixture = Fixture::default();
        let (a, b, c) = (file(1), file(2), file(3));
        let made = [a, b, c].map(|fid| fixture.make(fid));
        let set = [a, b, a, c, a].map(|fid| fixture.set(fid));
        fixture.rename(c);
        let gone = fixture.remove(a);
        assert_eq!(numbers(&fixture.journal.cut()), [set[0], set[2], set[4]]);
        let renamed = fixture.remove(c);
        assert_eq!(
            numbers(&fixture.journal.cut()),
            [0; 0],
            "the answer to its rename has the earlier status"
        );
        let sent = fixture.take();
        assert_eq!(
            numbers(&sent),
            [made[0], made[1], made[2], set[1], set[3], renamed - 2, gone, renamed]
        );
        assert_eq!(
            sent.iter().map(|entry| entry.cut).collect::<Vec<_>>(),
            [[false; 4], [false, false, true, false]].concat()
        );
        fixture.journal.land(Vec::new());
        assert_eq!(fixture.journal.landed(), renamed);
    }

    #[test]
    fn entries_that_a_chain_left_are_next_despite_cuts() {
        let mut fixture = Fixture::default();
        fixture.make(file(1));
        for number in 2..200 {
            fixture.make(file(number));
            fixture.set(file(number));
            fixture.remove(file(number));
            assert_eq!(fixture.journal.cut().len(), 1);
        }
        let mut sent = Vec::new();
        loop {
            let mut chain = fixture.take();
            if chain.is_empty() {
                break;
            }
            assert!(chain.len() <= CHAIN_MEMBERS_MAX);
            // The server had no room for the second half.
            let again = if chain.len() > 2 { chain.split_off(chain.len() / 2) } else { Vec::new() };
            let (last, next) =
                (chain.last().unwrap().number, again.first().map(|entry| entry.number));
            sent.extend(numbers(&chain));
            fixture.journal.land(again);
            let landed = fixture.journal.landed();
            assert!(
                landed >= last && next.is_none_or(|next| landed == next - 1),
                "{last} {landed} {next:?}"
            );
        }
        assert_eq!(sent.len(), 1 + 2 * 198);
        assert!(sent.is_sorted());
        assert_eq!(fixture.journal.landed(), fixture.journal.last());
    }

    #[test]
    fn flying_entries_are_not_cut() {
        let mut fixture = Fixture::default();
        fixture.make(file(1));
        fixture.set(file(1));
        let flying = fixture.take();
        fixture.set(file(1));
        let gone = fixture.remove(file(1));
        assert_eq!(numbers(&fixture.journal.cut()), [0; 0]);
        fixture.journal.lose();
        fixture.journal.land(flying);
        assert_eq!(numbers(&fixture.take()), [1, 2]);
        fixture.journal.land(Vec::new());
        assert_eq!(fixture.journal.landed(), gone);
    }
}
