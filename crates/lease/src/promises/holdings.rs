//! The promises and breaks of each file, by session.
//!
//! A file's *holdings* record for each session whether the file is promised to it (`seq` is not 0),
//! and which break of the file it has yet to acknowledge (`breaking`). Both may be true: the file
//! was promised again after the break was sent. A session with only a `breaking` may still answer
//! from its cache, so later changes wait for that break too (CB-1).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use types::{BreakId, Fid, SessionId, VolumeId};

/// One session's promise and break of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holding {
    pub session: SessionId,
    /// Number of the promise, counted over all; 0: none. Odd: breaks may name the directory's
    /// entries to the session.
    pub seq: u64,
    /// The latest break of the file that the session has not acknowledged; 0: none.
    pub breaking: BreakId,
}

const NONE: BreakId = BreakId(0);

impl Holding {
    fn is_empty(&self) -> bool {
        self.seq == 0 && self.breaking == NONE
    }
}

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    files: HashMap<Fid, SmallVec<[Holding; 1]>>,
    count: usize,
    last_seq: u64,
    /// The last promise before rights changed: breaks of it and of earlier ones name no entries.
    last_before_rights: u64,
    rights_changes: Arc<AtomicU64>,
}

impl Holdings {
    /// Promises in force.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Files with a promise or an unacknowledged break.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// The promised files of a volume, in no order. Visits all files.
    pub fn of_volume(&self, volume: VolumeId) -> Vec<Fid> {
        self.files.keys().filter(|fid| fid.volume == volume).copied().collect()
    }

    pub fn holdings(&self, fid: Fid) -> &[Holding] {
        self.files.get(&fid).map_or(&[], |list| list.as_slice())
    }

    pub fn is_promised(&self, fid: Fid, session: SessionId) -> bool {
        self.holdings(fid).iter().any(|holding| holding.session == session && holding.seq != 0)
    }

    /// Whether the promise with this number is still in force.
    pub fn is_current(&self, fid: Fid, session: SessionId, seq: u64) -> bool {
        self.holdings(fid).iter().any(|holding| holding.session == session && holding.seq == seq)
    }

    /// Notes that some session's rights changed.
    pub fn rights_changed(&mut self) {
        self.last_before_rights = self.last_seq + 1;
        self.rights_changes.fetch_add(1, Ordering::Release);
    }

    /// Counts the changes of rights.
    pub fn rights_changes(&self) -> u64 {
        self.rights_changes.load(Ordering::Acquire)
    }

    /// The counter itself, for readers without a lock.
    pub fn rights_counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.rights_changes)
    }

    /// Whether the session was allowed to see the directory's names, since rights last changed.
    pub fn shows_names(&self, holding: &Holding) -> bool {
        holding.seq % 2 == 1 && holding.seq > self.last_before_rights
    }

    /// Withdraws a promise that was not sent. Returns whether there was one.
    pub fn withdraw(&mut self, fid: Fid, session: SessionId) -> bool {
        let mut freed = false;
        self.change(fid, session, |holding| {
            freed = holding.seq != 0;
            holding.seq = 0;
        });
        self.count -= usize::from(freed);
        freed
    }

    /// Registers a promise. Returns its number, or `None` if it existed. `names`: the caller has
    /// just checked that the session may see the directory's names; a promise without that mark, or
    /// from before a change of rights, gets a new number.
    pub fn add(&mut self, fid: Fid, session: SessionId, names: bool) -> Option<u64> {
        let last_before_rights = self.last_before_rights;
        let list = self.files.entry(fid).or_default();
        let holding = match list.iter().position(|holding| holding.session == session) {
            Some(at) => &mut list[at],
            None => {
                list.push(Holding { session, seq: 0, breaking: NONE });
                list.last_mut().expect("just pushed")
            }
        };
        let says_enough = !names || holding.seq % 2 == 1 && holding.seq > last_before_rights;
        if holding.seq != 0 && says_enough {
            return None;
        }
        self.count += usize::from(holding.seq == 0);
        self.last_seq += 2;
        holding.seq = self.last_seq + u64::from(names);
        Some(holding.seq)
    }

    /// Replaces a promise by a break that is yet to be acknowledged. Returns whether there was one.
    pub fn begin_break(&mut self, fid: Fid, session: SessionId, id: BreakId) -> bool {
        let Some(list) = self.files.get_mut(&fid) else { return false };
        let Some(holding) =
            list.iter_mut().find(|holding| holding.session == session && holding.seq != 0)
        else {
            return false;
        };
        assert!(holding.breaking < id, "CB-1: the break of {fid} is older than the last one");
        holding.seq = 0;
        holding.breaking = id;
        self.count -= 1;
        true
    }

    /// A break of the file was acknowledged.
    pub fn end_break(&mut self, fid: Fid, session: SessionId, id: BreakId) {
        self.change(fid, session, |holding| {
            if holding.breaking == id {
                holding.breaking = NONE;
            }
        });
    }

    /// Removes a session's promise and break of a file.
    pub fn forget(&mut self, fid: Fid, session: SessionId) {
        let mut freed = 0;
        self.change(fid, session, |holding| {
            freed = usize::from(holding.seq != 0);
            (holding.seq, holding.breaking) = (0, NONE);
        });
        self.count -= freed;
    }

    /// Removes a file. Returns its holdings.
    pub fn forget_all(&mut self, fid: Fid) -> SmallVec<[Holding; 1]> {
        let holdings = self.files.remove(&fid).unwrap_or_default();
        self.count -= holdings.iter().filter(|holding| holding.seq != 0).count();
        holdings
    }

    fn change(&mut self, fid: Fid, session: SessionId, change: impl FnOnce(&mut Holding)) {
        let Entry::Occupied(mut entry) = self.files.entry(fid) else { return };
        let list = entry.get_mut();
        let Some(at) = list.iter().position(|holding| holding.session == session) else { return };
        change(&mut list[at]);
        if list[at].is_empty() {
            list.swap_remove(at);
        }
        if list.is_empty() {
            entry.remove();
        }
    }
}
