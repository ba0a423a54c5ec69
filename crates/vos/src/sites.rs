//! The read-only sites of a group. One change of the database each; releases and removals make and
//! remove the volumes.

use types::{
    PartitionNo, Revised, ServerId, Site, SiteKind, VolumeGroup, VolumeId, VolumeInfo, VolumeKind,
    WhichVolume,
};

use crate::claim::Claim;
use crate::own_volumes::{LAGGING, RELEASING, have, named, remove_at};
use crate::servers::need_one_partition;
use crate::standby::out_of_step;
use crate::{Job, VosError, examine, partition_no};

/// How a read-only site is recorded.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewSite {
    /// The number of the group's read-only volume, if it has none yet; `None`: the database chooses
    /// one.
    pub number: Option<VolumeId>,
    /// The server has the volume already, so the site is as current as that.
    pub is_there: bool,
}

/// Adds a read-only site, which is empty until the next release; returns true if it was no site
/// before.
///
/// # Errors
/// `Busy`, `Unfit`; the database's error.
pub fn add_site(
    job: &Job<'_>,
    group: Revised<VolumeGroup>,
    server: ServerId,
    partition: &str,
) -> Result<bool, VosError> {
    add_site_as(job, group, (server, partition), NewSite::default())
}

/// As [`add_site`], of a given number, or of a volume that the server has.
///
/// # Errors
/// Those of [`add_site`]; `Unfit` if the number or the volume is another one.
pub fn add_site_as(
    job: &Job<'_>,
    group: Revised<VolumeGroup>,
    (server, partition): (ServerId, &str),
    new: NewSite,
) -> Result<bool, VosError> {
    let no = partition_no(job.servers, server, partition)?;
    if let Some(known) = read_only_at(&group.record, server) {
        let same = known.partition == partition;
        let why = || format!("{} has it on {} already", job.servers.name(server), known.partition);
        return if same { Ok(false) } else { Err(VosError::Unfit(why())) };
    }
    need_one_partition(job.servers, &group.record, server, partition)?;
    if group.record.standbys().any(|site| site.server == server) {
        return Err(VosError::Unfit(format!(
            "{} is a standby of it: name another server, or 'vos remstandby' that first",
            job.servers.name(server)
        )));
    }
    if let (Some(known), Some(wanted)) = (group.record.read_only, new.number)
        && known != wanted
    {
        let why = format!("its read-only volume has the number {}", known.0);
        return Err(VosError::Unfit(why));
    }
    let epoch = match (new.is_there, new.number.or(group.record.read_only)) {
        (false, _) => 0,
        (true, number) => epoch_at(job, &group.record, number, (server, no))?,
    };
    let number = match group.record.read_only.or(new.number) {
        Some(number) => number,
        None => {
            let take = || Ok(job.servers.db().take_numbers(VolumeId(0), 1)?);
            job.step("database: take a number", take)?.unwrap_or(VolumeId(0))
        }
    };
    let site = Site { server, partition: partition.to_owned(), kind: SiteKind::ReadOnly, epoch };
    let claim = Claim::of(job, group, "addsite")?;
    let taken = number == claim.group.read_write || claim.group.backup == Some(number);
    if taken {
        let why = format!("{} is the number of another volume of it", number.0);
        return Err(claim.give_up(VosError::Unfit(why)));
    }
    claim.done("another read-only site", |group| {
        group.read_only = Some(number);
        group.sites.push(site.clone());
    })?;
    Ok(true)
}

/// The epoch that a server's volume of this number shows.
fn epoch_at(
    job: &Job<'_>,
    group: &VolumeGroup,
    number: Option<VolumeId>,
    (server, partition): (ServerId, PartitionNo),
) -> Result<u64, VosError> {
    let asked = number.map(|number| examine(job.servers, server, WhichVolume::Id(number)));
    let there = asked.transpose()?.flatten().unwrap_or_default();
    let is_it = |one: &&VolumeInfo| {
        let is_of_group = one.kind == VolumeKind::ReadOnly && one.tree == group.read_write;
        is_of_group && Some(one.id) == number && one.partition == partition
    };
    match there.iter().find(is_it) {
        Some(one) => Ok(one.epoch),
        None => Err(VosError::Unfit(format!(
            "{} does not have its read-only volume there, so the site is not valid",
            job.servers.name(server)
        ))),
    }
}

/// Records where the read-write volume is, without a move; returns true if it was recorded
/// elsewhere. The database's answer only: no volume is changed.
///
/// # Errors
/// `Unfit` if the server answers that it does not have the volume there; `Busy`; the database's
/// error.
pub fn change_location(
    job: &Job<'_>,
    group: Revised<VolumeGroup>,
    server: ServerId,
    partition: &str,
) -> Result<bool, VosError> {
    let kind = SiteKind::ReadWrite;
    let new = Site { server, partition: partition.to_owned(), kind, epoch: 0 };
    if group.record.read_write_site() == Some(&new) {
        return Ok(false);
    }
    if group.record.standbys().any(|site| site.server == server) {
        let name = job.servers.name(server);
        return Err(VosError::Unfit(format!(
            "{name} is a standby of it: 'vos failover -toserver {name}' makes it the place"
        )));
    }
    let number = group.record.read_write;
    let there = partition_no(job.servers, server, partition).and_then(|no| {
        let here = examine(job.servers, server, WhichVolume::Id(number))?.unwrap_or_default();
        Ok(here.iter().any(|one| one.id == number && one.partition == no))
    });
    match there {
        Ok(true) => {}
        Ok(false) => {
            let why = format!("{} does not have it on {partition}", job.servers.name(server));
            return Err(VosError::Unfit(why));
        }
        // A server that is being repaired: its record may precede it.
        Err(error @ VosError::Away { .. }) => job.note(format_args!("it is not checked: {error}")),
        Err(error) => return Err(error),
    }
    let claim = Claim::of(job, group, "changeloc")?;
    claim.done("another place of the read-write volume", |group| {
        group.sites.retain(|site| site.kind != kind);
        group.sites.insert(0, new.clone());
        out_of_step(group);
    })?;
    Ok(true)
}

/// Removes a read-only site from the record; its volume stays at the server without a record.
/// Volumes that only a release needs are removed, if the server answers. Returns true if it was a
/// site.
///
/// # Errors
/// `Busy`; the database's error.
pub fn remove_site(
    job: &Job<'_>,
    group: Revised<VolumeGroup>,
    server: ServerId,
) -> Result<bool, VosError> {
    if read_only_at(&group.record, server).is_none() {
        return Ok(false);
    }
    let is_last = group.record.sites.len() == 1;
    let claim = Claim::of(job, group, "remsite")?;
    if claim.group.read_write_site().is_none_or(|site| site.server != server) {
        forget_releases_or_note(job, &claim.group, server);
    }
    if is_last {
        return claim.forget().map(|()| true);
    }
    let kind = SiteKind::ReadOnly;
    claim.done("one read-only site less", |group| {
        group.sites.retain(|site| (site.server, site.kind) != (server, kind));
    })?;
    Ok(true)
}

/// Removes what a lagging site fetched for a release that it will not show, if its server answers.
pub(crate) fn forget_releases_or_note(job: &Job<'_>, group: &VolumeGroup, server: ServerId) {
    if let Err(error) = forget_releases(job, group, server) {
        let name = job.servers.name(server);
        job.note(format_args!("what {name} has of the last release stays: {error}"));
    }
}

fn forget_releases(job: &Job<'_>, group: &VolumeGroup, server: ServerId) -> Result<(), VosError> {
    for ending in [RELEASING, LAGGING] {
        if let Some(left) = have(job.servers, server, &named(&group.name, ending)?)? {
            remove_at(job, server, left.id)?;
        }
    }
    Ok(())
}

/// A server has at most one read-only site of a group.
fn read_only_at(group: &VolumeGroup, server: ServerId) -> Option<&Site> {
    group.sites.iter().find(|site| site.server == server && site.kind == SiteKind::ReadOnly)
}
