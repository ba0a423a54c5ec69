//! The changes that were answered here and that the server has not executed yet, in order (`docs/delegation.md`).
//!
//! An entry is *queued*, then it *flies* in a chain, then it has *landed*: executed, refused, or lost. One chain flies at a time, and chains
//! are taken from the front, so what the server has seen is always a prefix of what was answered (DE-4). `landed` says up to
//! which number everything has landed; who needs the server to know something waits for its number.
//!
//! Entries are pushed under the lock of the tables, in the step that answers the application: the order of the journal is the order of the answers.
//!
//! Nobody is woken for an entry. The *flusher* looks up when there are many, when it was idle for long, and on its own twice a second.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use types::{Answer, Call, Caller, Fid, StatusChange, Timestamp};

use crate::delegate::merged;
use crate::extents::Chunk;
use crate::file::File;

/// Calls of one chain, with room for one that asks for more slots.
const CHAIN_MEMBERS_MAX: usize = 63;
/// Written bytes of one chain, but one write always fits.
const CHAIN_BYTES_MAX: usize = 2 << 20;
/// A flush begins at so many entries or bytes.
const FLUSH_ENTRIES: usize = 256;
const FLUSH_BYTES: usize = 1 << 20;
/// Who adds waits at so many entries or bytes.
const ENTRIES_MAX: usize = 8192;
const BYTES_MAX: usize = 64 << 20;
/// How often the flusher looks up by itself after there was something to do; after a few looks for nothing it sleeps until it is woken.
const LOOKS_FOR_NOTHING: u32 = 6;

/// One change.
pub(crate) struct Entry {
    /// Its place in the order, given by [`Journal::push`].
    pub number: u64,
    /// When it came.
    pub since: Instant,
    pub caller: Caller,
    pub at: Timestamp,
    pub slot: u64,
    pub call: Call,
    /// What was answered.
    pub expected: Answer,
    /// The file that is written, and what.
    pub data: Option<(Arc<File>, Chunk)>,
    /// What was done to the removed file before is not sent: its status at the server is another.
    pub cut: bool,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.data.as_ref().map_or(0, |(_, chunk)| chunk.data.len())
    }

    /// What the change is about: the first is what it makes, changes or removes.
    pub fn fids(&self) -> Vec<Fid> {
        fids(&self.expected)
    }
}

/// The files that an answer tells of: first what was made, changed or removed.
pub(crate) fn fids(answer: &Answer) -> Vec<Fid> {
    match answer {
        Answer::Status(status) | Answer::Written { status, .. } => vec![status.fid],
        Answer::Made { status, dir, .. } | Answer::Removed { status, dir } => vec![status.fid, dir.fid],
        Answer::Renamed { status, other, from_dir, to_dir } => {
            let other = other.iter().map(|other| other.fid);
            [status.fid, from_dir.fid, to_dir.fid].into_iter().chain(other).collect()
        }
        _ => Vec::new(),
    }
}

#[derive(Default)]
struct State {
    queue: VecDeque<Entry>,
    bytes: usize,
    /// Number of the youngest entry ever.
    last: u64,
    /// A chain flies.
    flying: bool,
    /// The flusher is to go on up to here.
    wanted: u64,
    /// The flusher sleeps until it is woken.
    asleep: bool,
    stop: bool,
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Journal {
    state: Mutex<State>,
    landed: Arc<AtomicU64>,
    moved: Condvar,
    poke: Condvar,
}

/// What there is to send.
pub(crate) enum Take {
    /// These: whoever takes them says [`Journal::land`] when they are answered.
    Chain(Vec<Entry>),
    /// Another thread is at it.
    Busy,
    Nothing,
}

impl Journal {
    /// The counter of what has landed, to be read without a lock.
    pub fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.landed)
    }

    pub fn landed(&self) -> u64 {
        self.landed.load(Ordering::Acquire)
    }

    /// Number of the youngest entry.
    pub fn last(&self) -> u64 {
        self.state.lock().last
    }

    /// Adds an entry; its number.
    pub fn push(&self, mut entry: Entry) -> u64 {
        let mut state = self.state.lock();
        state.last += 1;
        entry.number = state.last;
        state.bytes += entry.bytes();
        state.queue.push_back(entry);
        let full = state.queue.len() >= FLUSH_ENTRIES || state.bytes >= FLUSH_BYTES;
        let begins = full && !state.flying && state.wanted <= self.landed();
        if begins || state.asleep {
            if begins {
                state.wanted = state.last;
            }
            state.asleep = false;
            self.poke.notify_one();
        }
        state.last
    }

    /// Makes one change of the youngest entry and this one, if both are changes of status of one file by one caller; the answer.
    pub fn merge(&self, caller: &Caller, call: &Call, at: Timestamp, answer: &Answer) -> Option<(u64, Answer)> {
        let (Call::SetStatus { fid, change: then }, Answer::Status(after)) = (call, answer) else { return None };
        let mut state = self.state.lock();
        let back = state.queue.back_mut().filter(|back| back.caller == *caller)?;
        let Call::SetStatus { fid: same, change: first } = &mut back.call else { return None };
        if same != fid {
            return None;
        }
        let one: StatusChange = merged(caller, first, back.at, then, at, after)?;
        *first = one;
        back.at = at;
        let mut status = *after;
        status.status_version -= 1;
        back.expected = Answer::Status(status);
        Some((back.number, Answer::Status(status)))
    }

    /// A file that was made by a queued entry is gone: takes out all that was done to it since. The youngest entry is its removal.
    pub fn cut(&self, fid: Fid) -> Vec<Entry> {
        let mut state = self.state.lock();
        let about = |entry: &Entry| match &entry.expected {
            Answer::Status(status)
            | Answer::Written { status, .. }
            | Answer::Made { status, .. }
            | Answer::Removed { status, .. } => status.fid == fid,
            Answer::Renamed { status, other, .. } => status.fid == fid || other.is_some_and(|other| other.fid == fid),
            _ => false,
        };
        let made = |entry: &Entry| matches!(entry.call, Call::Make { .. }) && about(entry);
        let Some(from) = state.queue.iter().rposition(made) else { return Vec::new() };
        let alone = |entry: &Entry| matches!(entry.call, Call::SetStatus { .. } | Call::Write { .. }) && about(entry);
        // What a rename answered tells of the changes before it.
        if state.queue.iter().skip(from).any(|entry| matches!(entry.call, Call::Rename { .. }) && about(entry)) {
            return Vec::new();
        }
        let rest = state.queue.split_off(from);
        let (out, stay): (Vec<Entry>, Vec<Entry>) = rest.into_iter().partition(alone);
        state.bytes -= out.iter().map(Entry::bytes).sum::<usize>();
        state.queue.extend(stay);
        if let Some(removal) = state.queue.back_mut().filter(|_| !out.is_empty()) {
            removal.cut = true;
        }
        out
    }

    /// Takes the next chain: entries of one caller that follow each other.
    pub fn take(&self) -> Take {
        let mut state = self.state.lock();
        if state.flying {
            return Take::Busy;
        }
        let Some(first) = state.queue.front() else { return Take::Nothing };
        let (caller, mut count, mut bytes) = (first.caller.clone(), 0, 0);
        for entry in state.queue.iter().take(CHAIN_MEMBERS_MAX) {
            bytes += entry.bytes();
            if entry.caller != caller || count > 0 && bytes > CHAIN_BYTES_MAX {
                break;
            }
            count += 1;
        }
        state.flying = true;
        let chain: Vec<Entry> = state.queue.drain(..count).collect();
        state.bytes -= chain.iter().map(Entry::bytes).sum::<usize>();
        Take::Chain(chain)
    }

    /// The chain was answered; `again` were not executed and are next.
    pub fn land(&self, again: Vec<Entry>) {
        let mut state = self.state.lock();
        state.flying = false;
        state.bytes += again.iter().map(Entry::bytes).sum::<usize>();
        for entry in again.into_iter().rev() {
            state.queue.push_front(entry);
        }
        self.settle(&state);
        if state.wanted > self.landed() {
            self.poke.notify_one();
        }
    }

    fn settle(&self, state: &State) {
        let landed = state.queue.front().map_or(state.last, |entry| entry.number - 1);
        self.landed.store(landed, Ordering::Release);
        self.moved.notify_all();
    }

    /// Takes out everything that does not fly: it will never be sent.
    pub fn lose(&self) -> Vec<Entry> {
        let mut state = self.state.lock();
        state.bytes = 0;
        let lost = std::mem::take(&mut state.queue).into();
        if !state.flying {
            self.settle(&state);
        }
        lost
    }

    /// Waits a while for the chain that flies.
    pub fn wait(&self, most: Duration) {
        let mut state = self.state.lock();
        if state.flying {
            self.moved.wait_for(&mut state, most);
        }
    }

    /// Up to where somebody who wants to add must wait, if there is too much.
    pub fn crowded(&self) -> Option<u64> {
        let state = self.state.lock();
        let full = state.queue.len() >= ENTRIES_MAX || state.bytes >= BYTES_MAX;
        state.queue.front().filter(|_| full).map(|first| first.number + (CHAIN_MEMBERS_MAX * 4) as u64)
    }

    /// The flusher's sleep: until there is something to send (true) or it is to stop (false).
    pub fn wait_for_work(&self, age: Duration) -> bool {
        let mut state = self.state.lock();
        let mut looks = 0;
        loop {
            if state.stop {
                return false;
            }
            let old = state.queue.front().is_some_and(|first| first.since.elapsed() + age / 8 >= age);
            if old {
                state.wanted = state.last;
            }
            if !state.flying && !state.queue.is_empty() && state.wanted > self.landed() {
                return true;
            }
            looks = if state.queue.is_empty() { looks + 1 } else { 0 };
            if looks > LOOKS_FOR_NOTHING {
                state.asleep = true;
                self.poke.wait(&mut state);
                looks = 0;
            } else {
                self.poke.wait_for(&mut state, age / 2);
            }
        }
    }

    /// The flusher is to end.
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.poke.notify_all();
    }
}
