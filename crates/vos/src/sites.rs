//! Where a group is to be released to. One change of the database each; the volumes come and go
//! with releases and removals.

use types::{Revised, ServerId, Site, SiteKind, VolumeGroup, VolumeId};

use crate::claim::Claim;
use crate::release::{LAGGING, RELEASING, have, named};
use crate::remove::remove_at;
use crate::{Job, Servers, VosError, partition_no};

/// Adds a read-only site, which is empty until the next release; whether it was none before.
///
/// # Errors
/// `Busy`, `Unfit`; the database's.
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

/// Takes a read-only site off the list; the volume that it has stays there, and is nobody's. What
/// only a release needs goes, if the server answers. Whether it was one.
///
/// # Errors
/// `Busy`; the database's.
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
    if claim.group.read_write_site().is_none_or(|site| site.server != server)
        && let Err(error) = forget_releases(job, &claim.group, server)
    {
        job.note(format_args!("what it has of the last release stays: {error}"));
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

/// A server has a group on one partition: what else of it is to be there goes there too.
///
/// # Errors
/// `Unfit`.
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

/// A site that lags keeps what it fetched for the next release, which will not be for it.
fn forget_releases(job: &Job<'_>, group: &VolumeGroup, server: ServerId) -> Result<(), VosError> {
    for ending in [RELEASING, LAGGING] {
        if let Some(left) = have(job.servers, server, &named(&group.name, ending)?)? {
            remove_at(job, server, left.id)?;
        }
    }
    Ok(())
}

/// A server has a group at one partition at most.
fn read_only_at(group: &VolumeGroup, server: ServerId) -> Option<&Site> {
    group.sites.iter().find(|site| site.server == server && site.kind == SiteKind::ReadOnly)
}
