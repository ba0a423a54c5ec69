//! Small files that were fetched before they were asked for.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use types::{Fid, Status};

use crate::base::budget::{Pot, Share};
use crate::prefetch::access_pattern::ListedDirs;

/// Most prefetched bytes.
const BYTES_MAX: usize = 16 << 20;

/// Most bytes of files that were written here.
const WRITTEN_BYTES_MAX: usize = 4 << 20;

/// A file's bytes.
pub(crate) enum SiblingBody {
    Coming,
    Here { version: u64, data: Bytes },
}

pub(crate) struct SiblingState {
    pub lists: ListedDirs,
    pub bodies: HashMap<Fid, SiblingBody>,
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
    pub state: Mutex<SiblingState>,
    pub came: Condvar,
}

impl SiblingState {
    fn new(pot: &Arc<Pot>) -> Self {
        let (lists, bodies, order, written, written_bytes) = Default::default();
        SiblingState { lists, bodies, order, share: Share::of(pot), written, written_bytes }
    }

    pub fn remove(&mut self, fid: Fid) {
        if let Some(SiblingBody::Here { data, .. }) = self.bodies.remove(&fid) {
            self.share.change(data.len(), 0);
        }
    }

    /// Stores the bytes of a file in this version, which were written here.
    pub fn keep(&mut self, fid: Fid, version: u64, data: &Bytes) {
        if matches!(self.bodies.get(&fid), Some(SiblingBody::Coming)) {
            return;
        }
        self.remove(fid);
        self.share.change(0, data.len());
        self.bodies.insert(fid, SiblingBody::Here { version, data: data.clone() });
        self.written.push_back((fid, data.len()));
        self.written_bytes += data.len();
        while self.written_bytes > WRITTEN_BYTES_MAX
            && let Some((oldest, length)) = self.written.pop_front()
        {
            self.written_bytes -= length;
            if matches!(self.bodies.get(&oldest), Some(SiblingBody::Here { .. })) {
                self.remove(oldest);
            }
        }
    }

    /// Drops the oldest bodies until the limit holds.
    fn trim(&mut self) {
        while self.share.bytes() > self.share.limit(BYTES_MAX)
            && let Some(oldest) = self.order.pop_front()
        {
            if matches!(self.bodies.get(&oldest), Some(SiblingBody::Here { .. })) {
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
        let SiblingBody::Here { version, data } = self.bodies.get(&status.fid)? else {
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
        Siblings {
            pot: Arc::clone(pot),
            state: Mutex::new(SiblingState::new(pot)),
            came: Condvar::new(),
        }
    }

    pub fn has(&self, fid: Fid) -> bool {
        matches!(self.state.lock().bodies.get(&fid), Some(SiblingBody::Here { .. }))
    }

    pub fn listing_begins(&self, dir: Fid) {
        self.state.lock().lists.begun(dir);
    }

    /// This directory was listed ahead; returns the next one to be listed ahead.
    pub fn listed_ahead(&self, dir: Fid) -> Option<Fid> {
        self.state.lock().lists.listed_ahead(dir)
    }

    /// These bodies arrived or failed. They are not used if the lease was lost (`life`) since they
    /// were asked for.
    pub fn arrived(&self, life: &AtomicU64, asked_in: u64, bodies: Vec<(Status, Option<Bytes>)>) {
        let mut state = self.state.lock();
        let alive = life.load(Ordering::Acquire) == asked_in;
        for (status, data) in bodies {
            if !matches!(state.bodies.get(&status.fid), Some(SiblingBody::Coming)) {
                continue;
            }
            state.bodies.remove(&status.fid);
            if let Some(data) = data.filter(|_| alive) {
                state.share.change(0, data.len());
                state
                    .bodies
                    .insert(status.fid, SiblingBody::Here { version: status.data_version, data });
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
        *state = SiblingState::new(&self.pot);
        drop(state);
        self.came.notify_all();
    }
}
