//! Small files that were fetched before they were asked for (`reading/directories.rs`), and those
//! that were written here past the kernel's pages: a later reader makes no call for them.
//!
//! A body here belongs to a data version of its file, and is used only under a valid status with
//! this version: so a break needs no action here. Unread bodies go when there is no room. Those
//! that were written here have a limit of their own, beyond which the oldest goes, and do not count
//! as signs of a reader.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use client::Cancel;
use parking_lot::{Condvar, Mutex};
use types::{Cookie, DataVersion, Fid, Kind, SessionEpoch, Status};

use super::{FetchAhead, ListedDirs, Named};
use crate::base::{POLL_INTERVAL, Pot, Share};
use crate::names::Names;

/// After so many waits the file is asked for on its own: the chain may wait for another of its
/// files.
const POLLS_MAX: u32 = 100;

/// Most prefetched bytes.
const BYTES_MAX: usize = 16 << 20;

/// Most bytes of files that were written here.
const WRITTEN_BYTES_MAX: usize = 4 << 20;

/// A file's bytes.
enum Body {
    Coming,
    Here { version: DataVersion, data: Bytes },
}

struct State {
    pub lists: ListedDirs,
    pub bodies: HashMap<Fid, Body>,
    /// Files in the order of their arrival; some are gone by now.
    order: VecDeque<Fid>,
    /// Bytes of `bodies`.
    share: Share,
    /// Files that were written here, in that order, with their lengths; some are gone by now.
    written: VecDeque<(Fid, usize)>,
    written_bytes: usize,
}

/// Small files that were fetched before they were asked for.
pub(crate) struct Siblings {
    pot: Arc<Pot>,
    state: Mutex<State>,
    pub came: Condvar,
}

impl State {
    fn new(pot: &Arc<Pot>) -> Self {
        let (lists, bodies, order, written, written_bytes) = Default::default();
        State { lists, bodies, order, share: Share::of(pot), written, written_bytes }
    }

    pub fn remove(&mut self, fid: Fid) {
        if let Some(Body::Here { data, .. }) = self.bodies.remove(&fid) {
            self.share.change(data.len(), 0);
        }
    }

    /// Stores the bytes of a file in this version, which were written here.
    pub fn keep(&mut self, fid: Fid, version: DataVersion, data: &Bytes) {
        if matches!(self.bodies.get(&fid), Some(Body::Coming)) {
            return;
        }
        self.remove(fid);
        self.share.change(0, data.len());
        self.bodies.insert(fid, Body::Here { version, data: data.clone() });
        self.written.push_back((fid, data.len()));
        self.written_bytes += data.len();
        while self.written_bytes > WRITTEN_BYTES_MAX
            && let Some((oldest, length)) = self.written.pop_front()
        {
            self.written_bytes -= length;
            if matches!(self.bodies.get(&oldest), Some(Body::Here { .. })) {
                self.remove(oldest);
            }
        }
    }

    /// Drops the oldest bodies until the limit holds.
    fn trim(&mut self) {
        while self.share.bytes() > self.share.limit(BYTES_MAX)
            && let Some(oldest) = self.order.pop_front()
        {
            if matches!(self.bodies.get(&oldest), Some(Body::Here { .. })) {
                self.remove(oldest);
                self.lists.wasted();
            }
        }
        // Removes the places of read files; only when they outnumber the others, so that this is
        // rare.
        if self.order.len() > 64 + 2 * self.bodies.len() {
            let bodies = &self.bodies;
            self.order.retain(|fid| bodies.contains_key(fid));
        }
    }

    /// All bytes, if they are here in this version; those of another version are dropped.
    pub fn whole(&mut self, status: &Status) -> Option<Bytes> {
        let Body::Here { version, data } = self.bodies.get(&status.fid)? else {
            return None;
        };
        if *version != status.data_version || data.len() as u64 != status.size {
            self.remove(status.fid);
            return None;
        }
        Some(data.clone())
    }

    /// Some of the bytes; they are dropped when their end is read.
    pub fn take(&mut self, status: &Status, start: u64, end: u64) -> Option<Bytes> {
        let part = self.whole(status)?.slice(start as usize..end as usize);
        if end == status.size {
            self.remove(status.fid);
        }
        Some(part)
    }
}

impl Siblings {
    /// `pot`: the prefetched bytes of all volumes of the mount.
    pub fn new(pot: &Arc<Pot>) -> Self {
        Siblings { pot: Arc::clone(pot), state: Mutex::new(State::new(pot)), came: Condvar::new() }
    }

    pub fn has(&self, fid: Fid) -> bool {
        matches!(self.state.lock().bodies.get(&fid), Some(Body::Here { .. }))
    }

    pub fn listing_begins(&self, dir: Fid) {
        self.state.lock().lists.begun(dir);
    }

    /// This directory was listed ahead; returns the next one to be listed ahead.
    pub fn listed_ahead(&self, dir: Fid) -> Option<Fid> {
        self.state.lock().lists.listed_ahead(dir)
    }

    /// These bodies arrived or failed. They are not used if the lease was lost (`Names::epoch`)
    /// since they were asked for.
    pub fn arrived(
        &self,
        names: &Names,
        asked_in: SessionEpoch,
        bodies: Vec<(Status, Option<Bytes>)>,
    ) {
        let mut state = self.state.lock();
        let alive = names.epoch() == asked_in;
        for (status, data) in bodies {
            if !matches!(state.bodies.get(&status.fid), Some(Body::Coming)) {
                continue;
            }
            state.bodies.remove(&status.fid);
            if let Some(data) = data.filter(|_| alive) {
                state.share.change(0, data.len());
                state.bodies.insert(status.fid, Body::Here { version: status.data_version, data });
                state.order.push_back(status.fid);
            }
        }
        state.trim();
        drop(state);
        self.came.notify_all();
    }

    /// Known versions are void.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        *state = State::new(&self.pot);
        drop(state);
        self.came.notify_all();
    }

    /// A page of `dir` from one cookie to the next was listed; returns the files to be fetched.
    pub fn listed(&self, dir: Fid, from: Cookie, next: Cookie, named: &Named) -> Vec<Fid> {
        self.state.lock().lists.listed(Instant::now(), dir, from, next, named)
    }

    /// A reader begins to read this file; returns what is to be fetched.
    pub fn step(&self, fid: Fid) -> FetchAhead {
        self.state.lock().lists.step(Instant::now(), fid)
    }

    /// The kernel received all bytes of a file: a step, and the bytes go.
    pub fn given(&self, fid: Fid) -> FetchAhead {
        let mut state = self.state.lock();
        state.remove(fid);
        state.lists.step(Instant::now(), fid)
    }

    /// Those of the files that are neither here nor on their way; they count as on their way from
    /// now on.
    pub fn begin(&self, files: Vec<Status>) -> Vec<Status> {
        let bodies = &mut self.state.lock().bodies;
        let begin = |status: &Status| match bodies.entry(status.fid) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(Body::Coming);
                true
            }
        };
        files.into_iter().filter(begin).collect()
    }

    /// All bytes of a file, if they are here in this version.
    pub fn whole(&self, status: &Status) -> Option<Bytes> {
        self.state.lock().whole(status)
    }

    /// Some of the bytes of a file. Waits for a file that is on its way.
    pub fn take(
        &self,
        status: &Status,
        start: u64,
        end: u64,
        cancel: Option<&Cancel>,
    ) -> Option<Bytes> {
        let mut state = self.state.lock();
        for _ in 0..POLLS_MAX {
            if !matches!(state.bodies.get(&status.fid), Some(Body::Coming))
                || cancel.is_some_and(Cancel::is_cancelled)
            {
                break;
            }
            self.came.wait_for(&mut state, POLL_INTERVAL);
        }
        state.take(status, start, end)
    }

    /// The server has executed this write of a whole file; the kernel has no pages of it.
    pub fn wrote_whole(&self, status: &Status, offset: u64, data: &Bytes) {
        if offset == 0 && is_file_up_to(status, ANSWER_MAX) && data.len() as u64 == status.size {
            self.state.lock().keep(status.fid, status.data_version, data);
        }
    }
}

/// Longer bodies on the server's machine are read here, through their descriptors; for shorter ones
/// one answer with the bytes is cheaper than two.
pub(crate) const ANSWER_MAX: u64 = 64 << 10;

pub(crate) fn is_file_up_to(status: &Status, longest: u64) -> bool {
    status.kind == Kind::File && (1..=longest).contains(&status.size)
}
