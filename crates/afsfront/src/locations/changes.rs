//! Changes of the location database, as OpenAFS's `vos` makes them.
//!
//! Model: an entry replaces a group's record (`entries.rs`). Each change is the caller's (AF-2),
//! and is made only if the record is as it was when the call read it.

use afs3::errors::{
    VL_BADENTRY, VL_BADRELLOCKTYPE, VL_BADVOLIDBUMP, VL_BADVOLOPER, VL_ENTRYLOCKED, VL_IDEXIST,
    VL_NAMEEXIST, VL_NOENT, VL_PERM,
};
use afs3::locations::{LocationsAnswer, VldbEntry, lock_operation, release_lock};
use types::{
    Answer, Busy, Call, CellCall, Fault, Revised, Revision, ServerId, VolumeCall, VolumeGroup,
    VolumeId, WhichVolume,
};

use super::{Locations, partition_of};
use crate::Refusal;

/// Numbers that one call reserves at most; `vos` takes three.
const NUMBERS_MAX: u32 = 1000;

/// A service's fault as the location service tells it.
fn refusal_of(fault: Fault) -> Refusal {
    match fault {
        Fault::NotPermitted | Fault::AccessDenied => Refusal(VL_PERM),
        Fault::Exists => Refusal(VL_NAMEEXIST),
        Fault::NoVolume => Refusal(VL_NOENT),
        // Another change came first.
        Fault::Conflict | Fault::Busy => Refusal(VL_ENTRYLOCKED),
        fault => fault.into(),
    }
}

/// The word for an operation in a group's record.
fn operation_name(operation: i32) -> Option<&'static str> {
    match operation {
        lock_operation::MOVE => Some("move"),
        lock_operation::RELEASE => Some("release"),
        lock_operation::BACKUP => Some("backup"),
        lock_operation::DELETE => Some("change"),
        lock_operation::DUMP => Some("dump"),
        _ => None,
    }
}

/// 0 keeps the lock; otherwise one of its parts is named that is cleared.
fn need_release_kind(release: i32) -> Result<(), Refusal> {
    let parts = release_lock::TIMESTAMP | release_lock::OPERATION | release_lock::AFS_ID;
    if release != 0 && release & parts == 0 {
        return Err(Refusal(VL_BADRELLOCKTYPE));
    }
    Ok(())
}

impl Locations<'_> {
    pub(super) fn change(&self, call: CellCall) -> Result<Answer, Refusal> {
        self.services.ask(Call::Cell(call)).map_err(refusal_of)
    }

    pub(super) fn put(&self, group: VolumeGroup, expected: Revision) -> Result<(), Refusal> {
        self.change(CellCall::PutGroup { group: Box::new(group), expected }).map(drop)
    }

    /// A caller who may change the database. Stock servers look at the rights first, and so does
    /// this one: others learn nothing of the entries. To take no numbers is no change, which only
    /// such a caller is told.
    pub(super) fn need_rights(&self) -> Result<(), Refusal> {
        match self.change(CellCall::TakeNumbers { above: VolumeId(0), count: 0 }) {
            Err(Refusal(VL_PERM)) => Err(Refusal(VL_PERM)),
            _ => Ok(()),
        }
    }

    /// Numbers that no entry has: an administrator may have chosen some of those that are next.
    /// `vos syncvldb` asks for no numbers, to learn one that is above all others: it gets one,
    /// which is then no volume's.
    pub(super) fn new_number(&self, count: u32) -> Result<LocationsAnswer, Refusal> {
        if count > NUMBERS_MAX {
            return Err(Refusal(VL_BADVOLIDBUMP));
        }
        let (count, mut above) = (count.max(1), VolumeId(0));
        loop {
            let Answer::Number(first) = self.change(CellCall::TakeNumbers { above, count })? else {
                return Err(Refusal::IO);
            };
            let numbers = first.0..first.0 + u64::from(count);
            let is_used = |number: &u64| self.revised(WhichVolume::Id(VolumeId(*number))).is_ok();
            match numbers.rev().find(is_used) {
                Some(used) => above = VolumeId(used),
                None => {
                    let volume = u32::try_from(first.0).map_err(|_| Refusal(VL_BADVOLIDBUMP))?;
                    return Ok(LocationsAnswer::GetNewVolumeId { volume });
                }
            }
        }
    }

    pub(super) fn create_entry(&self, entry: &VldbEntry) -> Result<LocationsAnswer, Refusal> {
        let group = self.group_of(entry, None)?;
        let numbers = entry.volumes.iter().filter(|number| **number != 0);
        for number in numbers {
            if self.revised(WhichVolume::Id(VolumeId((*number).into()))).is_ok() {
                return Err(Refusal(VL_IDEXIST));
            }
        }
        self.put(group, Revision(0))?;
        Ok(LocationsAnswer::CreateEntryN {})
    }

    /// `release`: what of the lock is cleared; 0: nothing.
    pub(super) fn replace_entry(
        &self,
        (volume, kind): (u32, i32),
        entry: &VldbEntry,
        release: i32,
    ) -> Result<LocationsAnswer, Refusal> {
        need_release_kind(release)?;
        let seen = self.seen(volume, kind)?;
        let mut group = self.group_of(entry, Some(&seen.record))?;
        if group.read_write != seen.record.read_write {
            // The number is what a group is known by.
            return Err(Refusal(VL_BADENTRY));
        }
        if release != 0 {
            group.busy = None;
        }
        self.put(group, seen.revision)?;
        Ok(LocationsAnswer::ReplaceEntryN {})
    }

    pub(super) fn delete_entry(&self, volume: u32, kind: i32) -> Result<LocationsAnswer, Refusal> {
        let seen = self.seen(volume, kind)?;
        let (read_write, expected) = (seen.record.read_write, seen.revision);
        self.change(CellCall::RemoveGroup { read_write, expected })?;
        Ok(LocationsAnswer::DeleteEntry {})
    }

    pub(super) fn lock_entry(
        &self,
        volume: u32,
        kind: i32,
        operation: i32,
    ) -> Result<LocationsAnswer, Refusal> {
        let operation = operation_name(operation).ok_or(Refusal(VL_BADVOLOPER))?.to_owned();
        let Revised { mut record, revision } = self.seen(volume, kind)?;
        if record.busy.is_some() {
            return Err(Refusal(VL_ENTRYLOCKED));
        }
        let (by, since_secs) = ("a client of AFS".to_owned(), self.services.now().secs);
        record.busy = Some(Busy { operation, by, since_secs });
        self.put(record, revision)?;
        Ok(LocationsAnswer::SetLock {})
    }

    pub(super) fn unlock_entry(
        &self,
        volume: u32,
        kind: i32,
        release: i32,
    ) -> Result<LocationsAnswer, Refusal> {
        need_release_kind(release)?;
        let Revised { mut record, revision } = self.seen(volume, kind)?;
        if release != 0 && record.busy.take().is_some() {
            self.put(record, revision)?;
        }
        Ok(LocationsAnswer::ReleaseLock {})
    }

    fn group_of(
        &self,
        entry: &VldbEntry,
        old: Option<&VolumeGroup>,
    ) -> Result<VolumeGroup, Refusal> {
        self.form().group(entry, old, &|server, number| self.partition_of(server, number))
    }

    /// The name that a server has for a partition. Of other servers than this one only names that
    /// AFS has are known.
    fn partition_of(&self, server: ServerId, number: i32) -> Result<String, Refusal> {
        let me = match self.services.ask_as_server(Call::Cell(CellCall::Me))? {
            Answer::Servers(servers) => servers.first().map(|me| me.record.id),
            _ => return Err(Refusal::IO),
        };
        if me != Some(server) {
            return partition_of(None, number);
        }
        match self.services.ask_as_server(Call::Volume(VolumeCall::Partitions))? {
            Answer::Partitions(all) => partition_of(Some(all), number),
            _ => Err(Refusal::IO),
        }
    }
}
