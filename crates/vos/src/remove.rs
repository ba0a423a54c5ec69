//! Removes a volume.
//!
//! Steps: claimed; removed at the server; forgotten by the database. A read-write volume's standbys
//! are forgotten before it is removed, or one would take over. A read-write volume takes its backup
//! volume along, the releases that the server stores for the next one, if that server is no
//! site, and those that other sites fetched and do not show; read-only sites elsewhere stay, and so
//! do snapshots. Snapshots that a stopped operation made for itself go too, because it will not be
//! repeated; a dump that is under way then fails.
//!
//! An interruption before the last step leaves a record of a volume that no server has: the claim
//! names the removed volume, and the same removal deletes the record.

use types::{Name, ServerId, SiteKind, VolumeGroup, VolumeId, VolumeInfo, VolumeKind, WhichVolume};

use crate::claim::Claim;
use crate::find::{group_of, of_kind};
use crate::own_volumes::{DUMPING, LEFT, have, is_stored_for_lagging, named, remove_at};
use crate::sites::forget_releases_or_note;
use crate::standby::tell_or_note;
use crate::{FoundVolume, Job, VosError, examine};

const READ_WRITE: &str = "remove";
const BACKUP: &str = "remove the backup volume";

fn of_site(server: ServerId) -> String {
    format!("remove the read-only site {server}")
}

/// Removes the found volume.
///
/// # Errors
/// `Busy`; errors of the server and of the database.
pub fn remove(job: &Job<'_>, found: &FoundVolume) -> Result<(), VosError> {
    let (volume, server) = (found.volume(), found.server);
    // During a rename the database has it under its other name.
    let seen = match found.group.clone() {
        Some(seen) => Some(seen),
        None => job.servers.db().group_of(volume.tree)?,
    };
    let Some(seen) = seen else { return remove_at(job, server, volume.id) };
    let group = &seen.record;
    let kind = |number: Option<VolumeId>, kind| volume.kind == kind && number == Some(volume.id);
    let is_site = |kind| group.sites.iter().any(|site| site.server == server && site.kind == kind);
    match volume.kind {
        VolumeKind::ReadWrite if is_site(SiteKind::ReadWrite) => {
            let claim = Claim::of(job, seen, READ_WRITE)?;
            remove_read_write(job, claim, server)
        }
        VolumeKind::ReadOnly
            if kind(group.read_only, VolumeKind::ReadOnly) && is_site(SiteKind::ReadOnly) =>
        {
            let claim = Claim::of(job, seen, &of_site(server))?;
            remove_at(job, server, volume.id)?;
            forget_site(claim, server, SiteKind::ReadOnly)
        }
        VolumeKind::Backup if kind(group.backup, VolumeKind::Backup) => {
            let claim = Claim::of(job, seen, BACKUP)?;
            remove_at(job, server, volume.id)?;
            claim.done("there is no backup volume", |group| group.backup = None).map(drop)
        }
        // The database's record does not mean this volume: a snapshot, or a stray copy.
        _ => remove_at(job, server, volume.id),
    }
}

/// Finishes an interrupted removal of this volume, when no server has the volume any more; returns
/// true if there was one.
///
/// # Errors
/// `Busy`; errors of the servers and of the database.
pub fn finish_removal(job: &Job<'_>, which: &WhichVolume) -> Result<bool, VosError> {
    let Some(seen) = group_of(job.servers, which)? else { return Ok(false) };
    let group = &seen.record;
    let Some(operation) = group.busy.as_ref().map(|busy| busy.operation.clone()) else {
        return Ok(false);
    };
    let is_meant = |number: Option<VolumeId>, ending: &str| match which {
        WhichVolume::Id(id) => Some(*id) == number,
        WhichVolume::Name(name) => {
            name.as_bytes() == [group.name.as_bytes(), ending.as_bytes()].concat()
        }
    };
    let written = group.read_write_site().map(|site| site.server);
    if operation == READ_WRITE && is_meant(Some(group.read_write), "") {
        let Some(server) = written else { return Ok(false) };
        remove_read_write(job, Claim::of(job, seen, READ_WRITE)?, server)?;
    } else if let (BACKUP, Some(id), Some(server)) = (&*operation, group.backup, written)
        && is_meant(Some(id), ".backup")
    {
        let claim = Claim::of(job, seen, BACKUP)?;
        remove_at(job, server, id)?;
        claim.done("there is no backup volume", |group| group.backup = None)?;
    } else if let (Some(id), true) = (group.read_only, is_meant(group.read_only, ".readonly")) {
        let site = group.sites.iter().find(|site| operation == of_site(site.server));
        let Some(server) = site.map(|site| site.server) else { return Ok(false) };
        let claim = Claim::of(job, seen, &operation)?;
        remove_at(job, server, id)?;
        forget_site(claim, server, SiteKind::ReadOnly)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

fn remove_read_write(
    job: &Job<'_>,
    mut claim: Claim<'_, '_>,
    server: ServerId,
) -> Result<(), VosError> {
    forget_standbys(job, &mut claim)?;
    let id = claim.group.read_write;
    let here = examine(job.servers, server, WhichVolume::Id(id))?.unwrap_or_default();
    let stores_release = !claim
        .group
        .sites
        .iter()
        .any(|site| site.server == server && site.kind == SiteKind::ReadOnly);
    let last_release = of_kind(&here, VolumeKind::ReadOnly).filter(|_| stores_release);
    let backup = of_kind(&here, VolumeKind::Backup);
    let for_lagging = here.iter().filter(|volume| is_stored_for_lagging(volume));
    let names = LEFT.iter().filter_map(|ending| named(&claim.group.name, ending).ok());
    let names: Vec<Name> = names.collect();
    let is_snapshot = |volume: &&VolumeInfo| volume.kind == VolumeKind::Snapshot;
    let left = here.iter().filter(is_snapshot).filter(|volume| names.contains(&volume.name));
    for other in backup.into_iter().chain(last_release).chain(for_lagging).chain(left) {
        remove_at(job, server, other.id)?;
    }
    match remove_at(job, server, id) {
        Ok(()) => {}
        Err(error) if error.is_refusal() => return Err(claim.give_up(error)),
        Err(error) => return Err(error),
    }
    // A dump claims nothing, so it may have made its snapshot after we looked; now none can.
    if let (Ok(name), false) = (named(&claim.group.name, DUMPING), job.dry_run)
        && let Some(left) = have(job.servers, server, &name)?
    {
        remove_at(job, server, left.id)?;
    }
    // No release will follow that a lagging site could show.
    for site in claim.group.sites.iter().filter(|site| site.server != server) {
        forget_releases_or_note(job, &claim.group, site.server);
    }
    forget_site(claim, server, SiteKind::ReadWrite)
}

/// A standby that is in step would take the removed volume for a lost one: so all are forgotten
/// first.
fn forget_standbys(job: &Job<'_>, claim: &mut Claim<'_, '_>) -> Result<(), VosError> {
    let tree = claim.group.read_write;
    let standbys: Vec<_> = claim.group.standbys().cloned().collect();
    if standbys.is_empty() {
        return Ok(());
    }
    claim.change("its standbys are none any more", |group| {
        group.sites.retain(|site| !site.kind.is_standby());
    })?;
    for site in standbys {
        tell_or_note(job, site.server, Some(&site.partition), tree);
    }
    Ok(())
}

/// Removes a site from the database; with the last site the group.
fn forget_site(claim: Claim<'_, '_>, server: ServerId, kind: SiteKind) -> Result<(), VosError> {
    let stays = |group: &VolumeGroup| {
        group.sites.iter().any(|site| (site.server, site.kind) != (server, kind))
    };
    if !stays(&claim.group) {
        return claim.forget();
    }
    let done = claim.done("that site is none any more", |group| {
        group.sites.retain(|site| (site.server, site.kind) != (server, kind));
        if kind == SiteKind::ReadWrite {
            group.backup = None;
        }
    });
    done.map(drop)
}
