//! Entries of AFS's location database, and the groups of the cell database that they stand for.
//!
//! Model: an entry has a group's name, its numbers and its sites. The epochs of sites, and
//! standbys, for which AFS has no word, stay as they were. An entry does not tell the epoch of a
//! release: it says that there is one, and marks the read-only sites that are not to be used. Such
//! a site has no epoch, and one whose mark is taken away has the released one. That is
//! [`ANY_EPOCH`] if nothing else was released; clients then compare the epochs that the sites'
//! servers tell (VO-5). The lock of an entry is the group's note of the operation that works on it.

use afs3::errors::{VL_BADENTRY, VL_BADNAME, VL_BADPARTITION, VL_BADSERVER, VL_BADSERVERFLAG};
use afs3::locations::{VldbEntry, entry_flag, lock_operation, site_flag};
use afs3::volumes::partition_name;
use afs3::xdr::Chars;
use types::{
    Name, PartitionInfo, Revised, ServerId, ServerInfo, Site, SiteKind, VolumeGroup, VolumeId,
    VolumeKind,
};

use super::{SITES, addresses};
use crate::Refusal;
use crate::partitions::{numbered, shown_number};

/// The released epoch of a group that only AFS's programs released: no volume has a lower one.
const ANY_EPOCH: u64 = 1;

/// A site with its server.
pub(super) struct ListedSite<'a> {
    pub(super) server: &'a Revised<ServerInfo>,
    pub(super) partition: i32,
    pub(super) flags: i32,
}

fn flags_of(site: &Site) -> i32 {
    match site.kind {
        SiteKind::ReadWrite => site_flag::RW,
        // A site that was never released has no data.
        SiteKind::ReadOnly if site.epoch == 0 => site_flag::RO | site_flag::DONT_USE,
        SiteKind::ReadOnly => site_flag::RO,
        SiteKind::Standby | SiteKind::AsyncStandby => 0,
    }
}

/// The released epoch of a group, of which something is released.
fn released_epoch(old: Option<&VolumeGroup>) -> u64 {
    old.map_or(0, |old| old.released_epoch).max(ANY_EPOCH)
}

/// Makes groups of entries, and entries of groups, in a cell that has these servers.
pub struct EntryForm<'a> {
    /// The cell's servers.
    pub servers: &'a [Revised<ServerInfo>],
}

/// The name that a server has for each of AFS's partitions.
pub type PartitionNames<'a> = dyn Fn(ServerId, i32) -> Result<String, Refusal> + 'a;

/// The name of a partition of a server that has these; `None`: the server is not this one, and
/// only names that AFS has are known of it.
///
/// # Errors
/// `VL_BADPARTITION`.
pub fn partition_of(all: Option<Vec<PartitionInfo>>, number: i32) -> Result<String, Refusal> {
    let found = match all {
        Some(all) => numbered(all, |one| &one.name, number).map(|one| one.name),
        None => partition_name(number),
    };
    found.ok_or(Refusal(VL_BADPARTITION))
}

impl EntryForm<'_> {
    pub(super) fn sites<'a>(&'a self, group: &'a VolumeGroup) -> Vec<ListedSite<'a>> {
        let of = |site: &'a Site| {
            let server = self.servers.iter().find(|seen| seen.record.id == site.server)?;
            let flags = flags_of(site);
            let partition = shown_number(&site.partition);
            (flags != 0).then_some(ListedSite { server, partition, flags })
        };
        group.sites.iter().filter_map(of).take(SITES).collect()
    }

    pub(super) fn flags(group: &VolumeGroup) -> i32 {
        // Clients look for a replica if the entry has one.
        let is_site = |site: &Site| site.kind == SiteKind::ReadOnly;
        let released = group.released_epoch != 0 && group.sites.iter().any(is_site);
        let has = |is: bool, flag: i32| if is { flag } else { 0 };
        let operation = match group.busy.as_ref().map(|busy| busy.operation.as_str()) {
            None => 0,
            Some("move") => lock_operation::MOVE,
            Some("release") => lock_operation::RELEASE,
            Some("backup") => lock_operation::BACKUP,
            Some("dump" | "restore") => lock_operation::DUMP,
            Some(_) => lock_operation::DELETE,
        };
        has(group.read_write_site().is_some(), entry_flag::RW_EXISTS)
            | has(group.read_only.is_some() && released, entry_flag::RO_EXISTS)
            | has(group.backup.is_some(), entry_flag::BACKUP_EXISTS)
            | operation
    }

    pub(super) fn numbers(group: &VolumeGroup) -> Result<[u32; 3], Refusal> {
        let of = |id: Option<VolumeId>| {
            u32::try_from(id.map_or(0, |id| id.0)).map_err(|_| Refusal::TOO_BIG)
        };
        Ok([of(Some(group.read_write))?, of(group.read_only)?, of(group.backup)?])
    }

    pub(super) fn name(group: &VolumeGroup) -> Result<Chars<65>, Refusal> {
        Chars::new(group.name.as_bytes()).map_err(|_| Refusal::NAME_TOO_LONG)
    }

    /// The entry that stands for a group.
    ///
    /// # Errors
    /// A number or a name is too long for AFS.
    pub fn entry(&self, group: &VolumeGroup) -> Result<VldbEntry, Refusal> {
        let mut entry = VldbEntry {
            name: Self::name(group)?,
            site_count: 0,
            servers: [0; SITES],
            partitions: [0; SITES],
            site_flags: [0; SITES],
            volumes: Self::numbers(group)?,
            clone: 0,
            flags: Self::flags(group),
            match_index: 0,
            spares: [0; 8],
        };
        // A server without an IPv4 address is out of reach of those who read this.
        let sites = self
            .sites(group)
            .into_iter()
            .filter_map(|one| addresses(&one.server.record).first().map(|address| (*address, one)));
        for (at, (address, one)) in sites.enumerate() {
            entry.servers[at] = address;
            entry.partitions[at] = one.partition;
            entry.site_flags[at] = one.flags;
            entry.site_count += 1;
        }
        Ok(entry)
    }

    /// The group that an entry stands for, which was `old` before.
    ///
    /// # Errors
    /// `VL_BADENTRY`, `VL_BADNAME`, `VL_BADSERVER`, `VL_BADSERVERFLAG`; that of `names`.
    pub fn group(
        &self,
        entry: &VldbEntry,
        old: Option<&VolumeGroup>,
        names: &PartitionNames<'_>,
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
        if !(1..=SITES).contains(&count) {
            return Err(Refusal(VL_BADSERVER));
        }
        let mut sites = Vec::new();
        for at in 0..count {
            sites.push(self.site(
                (entry.servers[at], entry.partitions[at], entry.site_flags[at]),
                old,
                names,
            )?);
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
        names: &PartitionNames<'_>,
    ) -> Result<Site, Refusal> {
        let has_address =
            |seen: &&Revised<types::ServerInfo>| addresses(&seen.record).contains(&server);
        let server = self.servers.iter().find(has_address).ok_or(Refusal(VL_BADSERVER))?.record.id;
        let kind = match flags {
            flags if flags & site_flag::RW != 0 => SiteKind::ReadWrite,
            flags if flags & site_flag::RO != 0 => SiteKind::ReadOnly,
            _ => return Err(Refusal(VL_BADSERVERFLAG)),
        };
        let is_same = |site: &&Site| {
            site.server == server && site.kind == kind && shown_number(&site.partition) == partition
        };
        let mut site = match old.and_then(|old| old.sites.iter().find(is_same)) {
            Some(site) => site.clone(),
            None => {
                let partition = names(server, partition)?;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_a_replica_only_with_a_site_of_it() {
        let site = |kind| Site { server: ServerId(7), partition: "/vicepa".into(), kind, epoch: 1 };
        let name = Name::new(b"v").expect("a name");
        let mut group = VolumeGroup::new(name, VolumeId(1), site(SiteKind::ReadWrite));
        (group.read_only, group.released_epoch) = (Some(VolumeId(2)), 1);
        assert_eq!(EntryForm::flags(&group), entry_flag::RW_EXISTS);
        group.sites.push(site(SiteKind::ReadOnly));
        let both = entry_flag::RW_EXISTS | entry_flag::RO_EXISTS;
        assert_eq!(EntryForm::flags(&group), both);
    }
}
