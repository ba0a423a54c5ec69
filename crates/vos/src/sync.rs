//! Brings the volumes of servers and the records of the database into agreement.
//!
//! `sync_database` follows the servers: it enters their volumes, and corrects records that differ.
//! `sync_servers` follows the database: it forgets sites whose servers report that they have
//! nothing. Neither changes volumes, or groups that are claimed.

use std::collections::HashSet;

use celldb::CellError;
use types::{
    Name, PartitionInfo, Revised, Revision, ServerId, Site, SiteKind, VolumeCall, VolumeGroup,
    VolumeId, VolumeInfo, VolumeKind, WhichVolume,
};

use crate::find::of_kind;
use crate::standby::out_of_step;
use crate::{Job, VosError, base_name, examine, list};

/// Groups that one query of the database returns.
const GROUPS_AT_ONCE: usize = 500;

/// Counts of checked and corrected records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mended {
    /// Volumes or groups.
    pub looked_at: u64,
    /// Groups that were entered, changed or forgotten.
    pub changed: u64,
    /// Records that could not be corrected; reported as notes.
    pub left: u64,
}

/// Enters the volumes of a server, of one partition or of all.
///
/// # Errors
/// Errors of the server and of the database. Disagreement with another server is only reported.
pub fn sync_database(
    job: &Job<'_>,
    server: ServerId,
    partition: Option<&str>,
) -> Result<Mended, VosError> {
    sync_chosen(job, server, partition, &|_| true)
}

/// As [`sync_database`], only for the volumes of a group: those of this number or name.
///
/// # Errors
/// Those of [`sync_database`].
pub fn sync_volume(
    job: &Job<'_>,
    server: ServerId,
    partition: Option<&str>,
    wanted: &WhichVolume,
) -> Result<Mended, VosError> {
    let is_it = |volume: &VolumeInfo| match wanted {
        WhichVolume::Id(number) => volume.id == *number || volume.tree == *number,
        WhichVolume::Name(name) => volume.name == *name || base_name(&volume.name) == *name,
    };
    sync_chosen(job, server, partition, &is_it)
}

fn sync_chosen(
    job: &Job<'_>,
    server: ServerId,
    partition: Option<&str>,
    chosen: &dyn Fn(&VolumeInfo) -> bool,
) -> Result<Mended, VosError> {
    let types::Answer::Partitions(partitions) = job.servers.call(server, VolumeCall::Partitions)?
    else {
        return Err(VosError::Odd(job.servers.name(server)));
    };
    let mut mended = Mended::default();
    for one in partitions.iter().filter(|one| partition.is_none_or(|name| name == one.name)) {
        let mut volumes = list(job.servers, server, one.no)?;
        // A group is entered with its read-write volume, if it has one here.
        volumes.sort_by_key(|volume| (volume.kind, volume.id));
        let is_the_cells =
            |volume: &VolumeInfo| volume.kind != VolumeKind::Snapshot && !volume.is_refill();
        let entered = |volume: &&VolumeInfo| is_the_cells(volume) && chosen(volume);
        for volume in volumes.iter().filter(entered) {
            mended.looked_at += 1;
            let has_head = volumes.iter().any(|other| other.id == volume.tree);
            match enter(job, server, one, volume, has_head) {
                Ok(true) => mended.changed += 1,
                Ok(false) => {}
                Err(error) => {
                    mended.left += 1;
                    job.note(format_args!("{} ({}): {error}", text(&volume.name), volume.id.0));
                }
            }
        }
    }
    Ok(mended)
}

/// Whether the volume's number means a volume on another partition of the server, as the database
/// records: the twin of a move in progress or finished.
fn is_twin(
    job: &Job<'_>,
    group: &VolumeGroup,
    volume: &VolumeInfo,
    (server, partition): (ServerId, &str),
) -> Result<bool, VosError> {
    if !group.sites.iter().any(|site| site.server == server && site.partition != partition) {
        return Ok(false);
    }
    let asked = examine(job.servers, server, WhichVolume::Id(volume.id))?.unwrap_or_default();
    Ok(asked.first().is_some_and(|asked| asked.partition != volume.partition))
}

/// Returns true if a record had to be changed.
fn enter(
    job: &Job<'_>,
    server: ServerId,
    partition: &PartitionInfo,
    volume: &VolumeInfo,
    has_head: bool,
) -> Result<bool, VosError> {
    let db = job.servers.db();
    let before = db.group_of(volume.tree)?;
    let mut group = match &before {
        Some(seen) if seen.record.busy.is_some() => {
            job.note(format_args!("{} is locked, and not changed", text(&seen.record.name)));
            return Ok(false);
        }
        Some(seen) if is_twin(job, &seen.record, volume, (server, &partition.name))? => {
            job.note(format_args!(
                "{} is a copy on {} that is not asked",
                text(&volume.name),
                partition.name
            ));
            return Ok(false);
        }
        Some(seen) => seen.record.clone(),
        None => VolumeGroup {
            sites: Vec::new(),
            ..VolumeGroup::new(
                base_name(&volume.name),
                volume.tree,
                site(server, partition, volume),
            )
        },
    };
    match volume.kind {
        VolumeKind::ReadWrite => {
            enter_read_write(job, &mut group, site(server, partition, volume), &volume.name)?;
        }
        VolumeKind::ReadOnly => {
            enter_read_only(&mut group, site(server, partition, volume), volume.id, has_head)?;
        }
        VolumeKind::Backup => group.backup = group.backup.or(Some(volume.id)),
        VolumeKind::Snapshot => {}
    }
    let (was, revision) =
        before.map_or((None, Revision(0)), |Revised { record, revision }| (Some(record), revision));
    if was.as_ref() == Some(&group) || group.sites.is_empty() {
        return Ok(false);
    }
    let what = format!(
        "database: enter {} ({}) at {} {}",
        text(&volume.name),
        volume.id.0,
        job.servers.name(server),
        partition.name
    );
    job.step(what, || Ok(db.put_group(&group, revision)?))?;
    Ok(true)
}

fn site(server: ServerId, partition: &PartitionInfo, volume: &VolumeInfo) -> Site {
    let (kind, epoch) = match volume.kind {
        VolumeKind::ReadWrite | VolumeKind::Backup | VolumeKind::Snapshot => {
            (SiteKind::ReadWrite, 0)
        }
        VolumeKind::ReadOnly => (SiteKind::ReadOnly, volume.epoch),
    };
    Site { server, partition: partition.name.clone(), kind, epoch }
}

/// Records this site of the read-write volume, unless another server has it too.
fn enter_read_write(
    job: &Job<'_>,
    group: &mut VolumeGroup,
    here: Site,
    name: &Name,
) -> Result<(), VosError> {
    if let Some(known) = group.read_write_site().filter(|known| **known != here).cloned() {
        if known.server != here.server && is_there(job, known.server, group.read_write)? {
            let other = job.servers.name(known.server);
            return Err(VosError::Unfit(format!(
                "it is at {other} too, and the database says there: remove one of them with 'vos \
                    zap'"
            )));
        }
        group.sites.retain(|site| *site != known);
    }
    if group.read_write_site().is_none() {
        group.sites.insert(0, here);
        out_of_step(group);
    }
    group.name = name.clone();
    Ok(())
}

/// The server of the read-write volume stores the last release for the next one, and need not be a
/// site.
fn enter_read_only(
    group: &mut VolumeGroup,
    here: Site,
    id: VolumeId,
    has_head: bool,
) -> Result<(), VosError> {
    if group.read_only.is_some_and(|known| known != id) {
        return Err(VosError::Unfit(
            "the database has another number for the read-only volume of its group".to_owned(),
        ));
    }
    let known = group
        .sites
        .iter_mut()
        .find(|site| site.server == here.server && site.kind == SiteKind::ReadOnly);
    match known {
        Some(known) => *known = here,
        None if has_head && group.read_only.is_some() => return Ok(()),
        None => group.sites.push(here),
    }
    group.read_only = Some(id);
    let released = group.sites.iter().filter(|site| site.kind == SiteKind::ReadOnly);
    let newest = released.map(|site| site.epoch).max().unwrap_or(0);
    group.released_epoch = group.released_epoch.max(newest);
    Ok(())
}

fn is_there(job: &Job<'_>, server: ServerId, id: VolumeId) -> Result<bool, VosError> {
    let here = examine(job.servers, server, WhichVolume::Id(id))?.unwrap_or_default();
    Ok(here.iter().any(|volume| volume.id == id))
}

/// Checks whether the recorded volumes exist; of one server, of one partition, or of all.
///
/// # Errors
/// The database's error. Servers that do not answer are only reported, and their records stay.
pub fn sync_servers(
    job: &Job<'_>,
    server: Option<ServerId>,
    partition: Option<&str>,
) -> Result<Mended, VosError> {
    let db = job.servers.db();
    let mut mended = Mended::default();
    let mut silent: HashSet<ServerId> = HashSet::new();
    let mut after = VolumeId(0);
    loop {
        let groups = db.groups(after, GROUPS_AT_ONCE)?;
        let Some(last) = groups.last() else { return Ok(mended) };
        after = last.record.read_write;
        for seen in groups {
            mended.looked_at += 1;
            let chosen = |site: &Site| {
                server.is_none_or(|server| server == site.server)
                    && partition.is_none_or(|name| name == site.partition)
            };
            match check(job, seen, &chosen, &mut silent) {
                Ok(true) => mended.changed += 1,
                Ok(false) => {}
                Err(error) => {
                    mended.left += 1;
                    job.note(error);
                }
            }
        }
    }
}

fn check(
    job: &Job<'_>,
    seen: Revised<VolumeGroup>,
    chosen: &dyn Fn(&Site) -> bool,
    silent: &mut HashSet<ServerId>,
) -> Result<bool, VosError> {
    let Revised { record: mut group, revision } = seen;
    if group.busy.is_some() || !group.sites.iter().any(chosen) {
        return Ok(false);
    }
    let mut sites = Vec::new();
    for site in &group.sites {
        if !chosen(site) || silent.contains(&site.server) {
            sites.push(site.clone());
            continue;
        }
        match checked_site(job, &group, site) {
            Ok(found) => sites.extend(found),
            Err(error @ VosError::Away { .. }) => {
                silent.insert(site.server);
                job.note(error);
                sites.push(site.clone());
            }
            Err(error) => return Err(error),
        }
    }
    if sites == group.sites {
        return Ok(false);
    }
    group.sites = sites;
    let name = text(&group.name);
    let db = job.servers.db();
    if group.sites.is_empty() {
        job.step(format_args!("database: forget {name}, which no server has"), || {
            match db.remove_group(group.read_write, revision) {
                Err(CellError::Conflict { found: Revision(0), .. }) => Ok(revision),
                removed => Ok(removed?),
            }
        })?;
    } else {
        job.step(format_args!("database: correct the sites of {name}"), || {
            Ok(db.put_group(&group, revision)?)
        })?;
    }
    Ok(true)
}

/// Returns the corrected site; `None` if the server has nothing.
fn checked_site(job: &Job<'_>, group: &VolumeGroup, site: &Site) -> Result<Option<Site>, VosError> {
    let number = match site.kind {
        SiteKind::ReadWrite => Some(group.read_write),
        SiteKind::ReadOnly => group.read_only,
        // The standby's server compares by itself.
        SiteKind::Standby | SiteKind::AsyncStandby => return Ok(Some(site.clone())),
    };
    let Some(number) = number else { return Ok(None) };
    let here = examine(job.servers, site.server, WhichVolume::Id(number))?.unwrap_or_default();
    match (site.kind, of_kind(&here, VolumeKind::ReadOnly)) {
        (SiteKind::ReadWrite, _) => Ok((!here.is_empty()).then(|| site.clone())),
        (_, Some(volume)) => Ok(Some(Site { epoch: volume.epoch, ..site.clone() })),
        // The site waits for its first release, or has lost its volume.
        (_, None) => Ok(Some(Site { epoch: 0, ..site.clone() })),
    }
}

fn text(name: &Name) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}
