//! Persistent locks: a lock whose abnormal end later requests learn of.
//!
//! The model. A file has a *record* of each of its persistent locks, on the disk. The record says
//! which owner of which session has the lock. While that owner holds all of its bytes exclusively
//! the record means nothing more. A record whose lock is not held, because its session ended, its
//! server restarted and no session claimed it, or its owner unlocked it without finishing it, is
//! broken. So nothing has to be written when a holder dies.

use std::collections::HashMap;

use types::{ByteRange, Fid, LockOwner, SessionId};

use super::table::{Table, Wait};
use super::{Key, LockFamilyOrd};

/// A persistent lock, as its file's record has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRecord {
    /// The session of the holder.
    pub session: SessionId,
    /// The holder within the session.
    pub owner: LockOwner,
    /// The bytes that it has.
    pub range: ByteRange,
}

impl LockRecord {
    /// Whether an owner with the record's number has all of its bytes exclusively in the table of
    /// the file. Its session may be another one: only a claim of the same owner passes the record
    /// of an earlier session.
    pub(super) fn is_held(&self, table: Option<&Table>) -> bool {
        table.is_some_and(|table| table.has_exclusively(self.owner, self.range))
    }
}

/// The persistent locks of files that are locked, or whose requests wait for the end of grace.
#[derive(Debug, Default)]
pub(super) struct Records {
    files: HashMap<Fid, Vec<LockRecord>>,
}

impl Records {
    pub fn set(&mut self, fid: Fid, records: Vec<LockRecord>) {
        if records.is_empty() {
            self.files.remove(&fid);
        } else {
            self.files.insert(fid, records);
        }
    }

    pub fn forget(&mut self, fid: Fid) {
        self.files.remove(&fid);
    }

    pub fn retain(&mut self, keep: impl Fn(Fid) -> bool) {
        self.files.retain(|fid, _| keep(*fid));
    }

    /// Whether a broken lock keeps the request out (PL-1).
    pub fn keep_out(&self, key: Key, wanted: &Wait, table: Option<&Table>) -> bool {
        let (fid, family) = key;
        let records = self.files.get(&fid).filter(|_| family == LockFamilyOrd::Posix);
        records.into_iter().flatten().any(|record| {
            record.range.overlaps(wanted.range)
                && !wanted.passes.passes(record.owner, wanted.owner.owner)
                && !record.is_held(table)
        })
    }
}
