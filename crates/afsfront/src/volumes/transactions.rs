//! The transactions of a volume server, without a clock: the time comes with each call.
//!
//! A transaction is a client's hold on a volume: as long as it is open no other one on that volume
//! is. It is *entered* by each call that names it, by one call at a time. One that no call has
//! entered for a while is ended: its client is gone.

use std::collections::BTreeMap;

use afs3::errors::VOLSERVOLBUSY;
use parking_lot::Mutex;
use types::{PartitionNo, VolumeId};

use crate::Refusal;

/// Seconds without a call after which a transaction ends.
pub(super) const IDLE_SECS: i64 = 600;

/// Whether changes of a volume wait for the end of its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransactionHold {
    /// They are made.
    None,
    /// They were told to wait, the last time at this second.
    Said(i64),
    /// They waited, and may have been made since.
    Lapsed,
}

/// One transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct VolumeTransaction {
    pub id: i32,
    pub volume: VolumeId,
    pub partition: PartitionNo,
    /// As `TransCreate` gave them.
    pub attach_flags: i32,
    /// As `SetFlags` gave them last.
    pub volume_flags: i32,
    pub created: i64,
    /// When a call entered it last.
    pub used: i64,
    /// That call.
    pub procedure: &'static str,
    pub hold: TransactionHold,
    is_entered: bool,
}

/// See the head of the file.
#[derive(Default)]
pub(super) struct VolumeTransactions {
    table: Mutex<TransactionTable>,
}

#[derive(Default)]
struct TransactionTable {
    last: i32,
    open: BTreeMap<i32, VolumeTransaction>,
}

/// A call is in the transaction; others are refused meanwhile.
pub(super) struct EnteredTransaction<'a> {
    of: &'a VolumeTransactions,
    pub seen: VolumeTransaction,
}

impl VolumeTransactions {
    /// Opens one on a volume.
    ///
    /// # Errors
    /// `VOLSERVOLBUSY`: there is one.
    pub fn begin(
        &self,
        now: i64,
        volume: VolumeId,
        partition: PartitionNo,
        attach_flags: i32,
    ) -> Result<i32, Refusal> {
        let mut table = self.table.lock();
        if table.open.values().any(|one| one.volume == volume) {
            return Err(Refusal(VOLSERVOLBUSY));
        }
        // Numbers begin at 1, and are not used again before all others were.
        table.last = table.last.checked_add(1).unwrap_or(1);
        let id = table.last;
        let transaction = VolumeTransaction {
            id,
            volume,
            partition,
            attach_flags,
            volume_flags: 0,
            created: now,
            used: now,
            procedure: "TransCreate",
            hold: TransactionHold::None,
            is_entered: false,
        };
        table.open.insert(id, transaction);
        Ok(id)
    }

    /// A call enters a transaction, until the result is dropped.
    ///
    /// # Errors
    /// ENOENT: there is none with this number; `VOLSERVOLBUSY`: another call is in it.
    pub fn enter(
        &self,
        now: i64,
        id: i32,
        procedure: &'static str,
    ) -> Result<EnteredTransaction<'_>, Refusal> {
        let mut table = self.table.lock();
        let one = table.open.get_mut(&id).ok_or(Refusal::NOT_FOUND)?;
        if one.is_entered {
            return Err(Refusal(VOLSERVOLBUSY));
        }
        (one.is_entered, one.used, one.procedure) = (true, now, procedure);
        Ok(EnteredTransaction { of: self, seen: *one })
    }

    /// Ends those that no call has entered for a while, and returns them.
    pub fn end_idle(&self, now: i64) -> Vec<VolumeTransaction> {
        let is_idle = |one: &VolumeTransaction| !one.is_entered && now - one.used >= IDLE_SECS;
        let mut table = self.table.lock();
        let ended: Vec<_> = table.open.values().filter(|one| is_idle(one)).copied().collect();
        ended.iter().for_each(|one| _ = table.open.remove(&one.id));
        ended
    }

    /// All that are open.
    pub fn list(&self) -> Vec<VolumeTransaction> {
        self.table.lock().open.values().copied().collect()
    }
}

impl EnteredTransaction<'_> {
    /// Keeps the flags of `SetFlags`.
    pub fn set_flags(&self, flags: i32) {
        if let Some(one) = self.of.table.lock().open.get_mut(&self.seen.id) {
            one.volume_flags = flags;
        }
    }

    /// Keeps whether changes wait.
    pub fn set_hold(&self, hold: TransactionHold) {
        if let Some(one) = self.of.table.lock().open.get_mut(&self.seen.id) {
            one.hold = hold;
        }
    }

    /// Whether changes wait.
    pub fn hold(&self) -> TransactionHold {
        let table = self.of.table.lock();
        table.open.get(&self.seen.id).map_or(TransactionHold::None, |one| one.hold)
    }

    /// The transaction is over.
    pub fn end(self) {
        self.of.table.lock().open.remove(&self.seen.id);
    }
}

impl Drop for EnteredTransaction<'_> {
    fn drop(&mut self) {
        if let Some(one) = self.of.table.lock().open.get_mut(&self.seen.id) {
            one.is_entered = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: VolumeId = VolumeId(7);

    #[test]
    fn a_volume_has_one_transaction() {
        let all = VolumeTransactions::default();
        let id = all.begin(100, VOLUME, PartitionNo(0), 1).unwrap();
        let busy = Err(Refusal(VOLSERVOLBUSY));
        assert_eq!(all.begin(100, VOLUME, PartitionNo(0), 1), busy);
        let other = all.begin(100, VolumeId(8), PartitionNo(0), 1).unwrap();
        assert_ne!(id, other);
        let entered = all.enter(101, id, "Dump").unwrap();
        assert_eq!(all.enter(101, id, "EndTrans").err(), busy.err());
        drop(entered);
        all.enter(101, id, "EndTrans").unwrap().end();
        assert_eq!(all.enter(101, id, "EndTrans").err(), Some(Refusal::NOT_FOUND));
        assert!(all.begin(101, VOLUME, PartitionNo(0), 1).is_ok());
    }

    #[test]
    fn one_that_no_call_enters_ends() {
        let all = VolumeTransactions::default();
        let id = all.begin(100, VOLUME, PartitionNo(0), 1).unwrap();
        let entered = all.enter(200, id, "Dump").unwrap();
        assert_eq!(all.end_idle(2000).len(), 0, "a call is in it");
        drop(entered);
        assert_eq!(all.end_idle(200 + IDLE_SECS - 1).len(), 0);
        assert_eq!(all.end_idle(200 + IDLE_SECS).len(), 1);
        assert_eq!(all.list().len(), 0);
    }
}
