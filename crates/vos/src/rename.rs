//! Renames a group.
//!
//! Steps: the database takes the new name, so that no other group gets it, and the claim records
//! the rename; the servers rename their volumes, including what a lagging site has of the last
//! release and the snapshot of a dump, which the next dump replaces; the claim is removed. A
//! repeated rename finds the claim under the new name.

use types::{Name, ServerId, VolumeCall, VolumeInfo, VolumeKind, WhichVolume};

use crate::claim::{Claim, is_claimed_for};
use crate::own_volumes::{DUMPING, LAGGING, RELEASING};
use crate::{Job, VosError, examine};

/// Renames the group `from`, or continues an interrupted rename.
///
/// # Errors
/// `Busy`; `Taken` if another group of the database has the name, or `Refused` by a server; then
/// the group has its old name.
pub fn rename(job: &Job<'_>, from: &Name, to: &Name) -> Result<(), VosError> {
    let db = job.servers.db();
    let operation = format!("rename from {}", text(from));
    let seen = match db.group_named(from)? {
        Some(seen) => seen,
        None => db
            .group_named(to)?
            .filter(|seen| is_claimed_for(&seen.record, &operation))
            .ok_or(VosError::NoVolume)?,
    };
    let mut claim = Claim::of(job, seen, &operation)?;
    let named = if claim.group.name == *to {
        Ok(())
    } else {
        claim.change("the group has the new name", |group| group.name = to.clone())
    };
    if let Err(error) = named {
        return Err(if error.is_refusal() { claim.give_up(error) } else { error });
    }
    if let Err(error) = rename_volumes(job, &claim, (from, to)) {
        if error.is_refusal() {
            rename_volumes(job, &claim, (to, from))?;
            claim.done("the group has its old name", |group| group.name = from.clone())?;
        }
        return Err(error);
    }
    claim.done("all volumes have it", |_| {}).map(drop)
}

fn rename_volumes(
    job: &Job<'_>,
    claim: &Claim<'_, '_>,
    (from, to): (&Name, &Name),
) -> Result<(), VosError> {
    let mut servers: Vec<ServerId> = claim
        .group
        .sites
        .iter()
        // No volume of a standby has the group's name.
        .filter(|site| !site.kind.is_standby())
        .map(|site| site.server)
        .collect();
    servers.sort_unstable();
    servers.dedup();
    for server in servers {
        // A dump claims nothing, so it may make its snapshot after we asked. Once the read-write
        // volume has the new name no more can come under the old one.
        while rename_volumes_at(job, claim, server, (from, to))? && !job.dry_run {}
    }
    Ok(())
}

/// Returns true if there was a volume to rename.
fn rename_volumes_at(
    job: &Job<'_>,
    claim: &Claim<'_, '_>,
    server: ServerId,
    (from, to): (&Name, &Name),
) -> Result<bool, VosError> {
    let mut is_renamed = false;
    for volume in all_at(job, claim, server, from)? {
        let Some(ending) = ending_of(&volume, from) else { continue };
        let name = Name::new([to.as_bytes(), ending.as_bytes()].concat().as_slice())
            .map_err(|_| VosError::Unfit(format!("{}{ending} is too long for a name", text(to))))?;
        if volume.name != name {
            let what = format!("rename {} to {}", text(&volume.name), text(&name));
            job.call(what, server, VolumeCall::Rename { id: volume.id, name })?;
            is_renamed = true;
        }
    }
    Ok(is_renamed)
}

/// Returns a server's volumes of the group. A site without a shown release has only the
/// `.releasing` volume.
fn all_at(
    job: &Job<'_>,
    claim: &Claim<'_, '_>,
    server: ServerId,
    from: &Name,
) -> Result<Vec<VolumeInfo>, VosError> {
    let releasing = Name::new(&[from.as_bytes(), RELEASING.as_bytes()].concat()).ok();
    let asked = claim.group.numbers().map(WhichVolume::Id).chain(releasing.map(WhichVolume::Name));
    let mut here: Vec<VolumeInfo> = Vec::new();
    for which in asked {
        for one in examine(job.servers, server, which)?.unwrap_or_default() {
            if one.tree == claim.group.read_write && here.iter().all(|had| had.id != one.id) {
                here.push(one);
            }
        }
    }
    Ok(here)
}

/// The ending behind the group's name in a volume that is renamed with it; snapshots keep their own
/// names.
fn ending_of(volume: &VolumeInfo, from: &Name) -> Option<&'static str> {
    let is = |ending: &str| volume.name.as_bytes() == [from.as_bytes(), ending.as_bytes()].concat();
    match volume.kind {
        VolumeKind::ReadWrite => Some(""),
        VolumeKind::ReadOnly => Some(".readonly"),
        VolumeKind::Backup => Some(".backup"),
        VolumeKind::Snapshot => [RELEASING, LAGGING, DUMPING].into_iter().find(|ending| is(ending)),
    }
}

fn text(name: &Name) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}
