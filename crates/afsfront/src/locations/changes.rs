//! Changes of the location database, as OpenAFS's `vos` makes them.
//!
//! Model: an entry replaces a group's record: its name, its numbers and its sites. The epochs of
//! sites, and standbys, for which AFS has no word, stay as they were. An entry does not tell the
//! epoch of a release: it says that there is one, and marks the read-only sites that are not to be
//! used. Such a site has no epoch, and one whose mark is taken away has the released one. That is
//! [`ANY_EPOCH`] if nothing else was released; clients then compare the epochs that the sites'
//! servers tell (VO-5). The lock of an entry is the group's note of the operation that works on it.
//! Each change is the caller's (AF-2), and is made only if the record is as it was when the call
//! read it.

use afs3::errors::{
    VL_BADENTRY, VL_BADNAME, VL_BADPARTITION, VL_BADRELLOCKTYPE, VL_BADSERVER, VL_BADVOLIDBUMP,
    VL_BADVOLOPER, VL_ENTRYLOCKED, VL_IDEXIST, VL_NAMEEXIST, VL_NOENT, VL_PERM,
};
use afs3::locations::{
    LocationsAnswer, VldbEntry, entry_flag, lock_operation, release_lock, site_flag,
};
use types::{
    Answer, Busy, Call, CellCall, Fault, Name, Revised, Revision, ServerId, Site, SiteKind,
    VolumeCall, VolumeGroup, VolumeId, VolumeKind, WhichVolume,
};

use super::{Locations, addresses};
use crate::Refusal;
use crate::partitions::{numbered, partition_name, shown_number};

/// Numbers that one call reserves at most; `vos` takes three.
const NUMBERS_MAX: u32 = 1000;
/// The released epoch of a group that only AFS's programs released: no volume has a lower one.
const ANY_EPOCH: u64 = 1;

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

/// The released epoch of a group, of which something is released.
fn released_epoch(old: Option<&VolumeGroup>) -> u64 {
    old.map_or(0, |old| old.released_epoch).max(ANY_EPOCH)
}

impl Locations<'_> {
    fn change(&self, call: CellCall) -> Result<Answer, Refusal> {
        self.services.ask(Call::Cell(call)).map_err(refusal_of)
    }

    fn put(&self, group: VolumeGroup, expected: Revision) -> Result<(), Refusal> {
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
        let group = self.group_of_entry(entry, None)?;
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
        let mut group = self.group_of_entry(entry, Some(&seen.record))?;
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

    /// The record that an entry stands for.
    fn group_of_entry(
        &self,
        entry: &VldbEntry,
        old: Option<&VolumeGroup>,
    ) -> Result<VolumeGroup, Refusal> {
        let name = Name::new(entry.name.text()).map_err(|_| Refusal(VL_BADNAME))?;
        if !types::is_volume_name(name.as_bytes(), VolumeKind::ReadWrite) {
            return Err(Refusal(VL_BADNAME));
        }
        let [read_write, read_only, backup] = entry.volumes.map(|id| VolumeId(id.into()));
        if read_write == VolumeId(0) {
            return Err(Refusal(VL_BADENTRY));
        }
        let count = usize::try_from(entry.site_count).unwrap_or(0);
        if !(1..=super::SITES).contains(&count) {
            return Err(Refusal(VL_BADSERVER));
        }
        let mut sites = Vec::new();
        for at in 0..count {
            sites.push(
                self.site((entry.servers[at], entry.partitions[at], entry.site_flags[at]), old)?,
            );
        }
        let is_released = entry.flags & entry_flag::RO_EXISTS != 0;
        let released_epoch = if is_released { released_epoch(old) } else { 0 };
        let standbys = old.into_iter().flat_map(|old| &old.sites);
        sites.extend(standbys.filter(|site| site.kind.is_standby()).cloned());
        // `vos` reserves a number for a backup volume before there is one.
        let has_backup = entry.flags & entry_flag::BACKUP_EXISTS != 0 && backup != VolumeId(0);
        Ok(VolumeGroup {
            name,
            read_write,
            read_only: (read_only != VolumeId(0)).then_some(read_only),
            backup: has_backup.then_some(backup),
            sites,
            released_epoch,
            busy: old.and_then(|old| old.busy.clone()),
        })
    }

    fn site(
        &self,
        (server, partition, flags): (u32, i32, i32),
        old: Option<&VolumeGroup>,
    ) -> Result<Site, Refusal> {
        let has_address =
            |seen: &&Revised<types::ServerInfo>| addresses(&seen.record).contains(&server);
        let server = self.servers.iter().find(has_address).ok_or(Refusal(VL_BADSERVER))?.record.id;
        let kind = match flags {
            flags if flags & site_flag::RW != 0 => SiteKind::ReadWrite,
            flags if flags & site_flag::RO != 0 => SiteKind::ReadOnly,
            _ => return Err(Refusal(afs3::errors::VL_BADSERVERFLAG)),
        };
        let is_same = |site: &&Site| {
            site.server == server && site.kind == kind && shown_number(&site.partition) == partition
        };
        let mut site = match old.and_then(|old| old.sites.iter().find(is_same)) {
            Some(site) => site.clone(),
            None => {
                let partition = self.partition_of(server, partition)?;
                Site { server, partition, kind, epoch: 0 }
            }
        };
        if kind == SiteKind::ReadOnly {
            site.epoch = match (flags & site_flag::DONT_USE != 0, site.epoch) {
                (true, _) => 0,
                (false, 0) => released_epoch(old),
                (false, epoch) => epoch,
            };
        }
        Ok(site)
    }

    /// The name that a server has for a partition. Of other servers than this one only names that
    /// AFS has are known.
    fn partition_of(&self, server: ServerId, number: i32) -> Result<String, Refusal> {
        let unknown = || Refusal(VL_BADPARTITION);
        let me = match self.services.ask_as_server(Call::Cell(CellCall::Me))? {
            Answer::Servers(servers) => servers.first().map(|me| me.record.id),
            _ => return Err(Refusal::IO),
        };
        if me != Some(server) {
            return partition_name(number).ok_or_else(unknown);
        }
        match self.services.ask_as_server(Call::Volume(VolumeCall::Partitions))? {
            Answer::Partitions(all) => {
                let found = numbered(all, |one| &one.name, number);
                Ok(found.ok_or_else(unknown)?.name)
            }
            _ => Err(Refusal::IO),
        }
    }
}
