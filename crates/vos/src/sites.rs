//! The read-only sites of a group. One change of the database each; releases and removals make and
//! remove the volumes.

use types::{Revised, ServerId, Site, SiteKind, VolumeGroup, VolumeId};

use crate::claim::Claim;
use crate::own_volumes::{LAGGING, RELEASING, have, named, remove_at};
use crate::{Job, Servers, VosError, partition_no};

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
    partition_no(job.servers, server, partition)?;
    if let Some(known) = read_only_at(&group.record, server) {
        let same = known.partition == partition;
        let why = || format!("{} has it on {} already", job.servers.name(server), known.partition);
        return if same { Ok(false) } else { Err(VosError::Unfit(why())) };
    }
    need_one_partition(job.servers, &group.record, server, partition)?;
    let number = match group.record.read_only {
        Some(number) => number,
        None => {
            let take = || Ok(job.servers.db().take_numbers(VolumeId(0), 1)?);
            job.step("database: take a number", take)?.unwrap_or(VolumeId(0))
        }
    };
    let site = Site { server, partition: partition.to_owned(), kind: SiteKind::ReadOnly, epoch: 0 };
    let claim = Claim::of(job, group, "addsite")?;
    claim.done("another read-only site", |group| {
        group.read_only = Some(number);
        group.sites.push(site.clone());
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

/// Checks that a server's sites of a group are on one partition.
///
/// # Errors
/// `Unfit` if the group is on another partition of the server.
pub(crate) fn need_one_partition(
    servers: &dyn Servers,
    group: &VolumeGroup,
    server: ServerId,
    partition: &str,
) -> Result<(), VosError> {
    match group.sites.iter().find(|site| site.server == server && site.partition != partition) {
        None => Ok(()),
        Some(known) => {
            let (name, known) = (servers.name(server), &known.partition);
            Err(VosError::Unfit(format!(
                "{name} has the group on {known}, and has it on one partition: name that one"
            )))
        }
    }
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
