//! Moves a read-only site to another server, or to another partition of its server, without a
//! release.
//!
//! Steps: the group is claimed; the new server fetches the epoch that the old one shows; the
//! database records the new site; the old server's volume is removed, unless the read-write volume
//! is there too, which needs the last release. Readers see the same at both.

use types::{
    Beside, Finish, PartitionNo, Revised, ServerId, Site, SiteKind, VolumeCall, VolumeGroup,
    VolumeKind, WhichVolume,
};

use crate::afs::is_afs;
use crate::beside;
use crate::claim::{Claim, is_claimed_for};
use crate::own_volumes::{have, named, remove_at, remove_left_by_force};
use crate::pulling::{PullOrder, pull};
use crate::servers::need_one_partition;
use crate::{Job, VosError, examine, partition_no};

/// Moves a read-only site. A site that has no release yet is only recorded elsewhere.
///
/// # Errors
/// `Unfit` if it is no read-only site, or the other server has one; `Busy`; errors of the servers
/// and of the database. Repeating the move continues it.
pub fn move_site(
    job: &Job<'_>,
    group: Revised<VolumeGroup>,
    from: ServerId,
    to: ServerId,
    partition: &str,
) -> Result<(), VosError> {
    let no = partition_no(job.servers, to, partition)?;
    let is_at = |group: &VolumeGroup, server| {
        group
            .sites
            .iter()
            .find(|site| site.server == server && site.kind == SiteKind::ReadOnly)
            .cloned()
    };
    let operation = format!("move site {from} {to}");
    let resumed = is_claimed_for(&group.record, &operation);
    let old = is_at(&group.record, from);
    if old.is_none() && !resumed {
        return Err(VosError::Unfit(format!(
            "{} is no read-only site of it",
            job.servers.name(from)
        )));
    }
    if from == to {
        return move_beside(job, group, to, partition, no);
    }
    if !resumed && is_at(&group.record, to).is_some() {
        return Err(VosError::Unfit(format!(
            "{} is a read-only site of it already",
            job.servers.name(to)
        )));
    }
    need_one_partition(job.servers, &group.record, to, partition)?;
    if group.record.standbys().any(|site| site.server == to) {
        let name = job.servers.name(to);
        return Err(VosError::Unfit(format!("{name} is a standby of it: name another server")));
    }
    if is_afs(job.servers, from)? || is_afs(job.servers, to)? {
        return Err(VosError::Unfit(
            "a read-only site does not move from or to a server of AFS: 'vos addsite' and 'vos \
             release' make the new one, 'vos remove' removes the old one"
                .to_owned(),
        ));
    }
    let mut claim = Claim::of(job, group, &operation)?;
    let name = named(&claim.group.name, ".readonly")?;
    if let Some(old) = old {
        match fetch(job, &claim.group, (from, to, no)) {
            Ok(()) => {}
            Err(error) if error.is_refusal() => return Err(claim.give_up(error)),
            Err(error) => return Err(error),
        }
        let new = Site {
            server: to,
            partition: partition.to_owned(),
            kind: SiteKind::ReadOnly,
            epoch: old.epoch,
        };
        claim.change("the site is there from now on", |group| {
            group.sites.retain(|site| {
                (site.server, site.kind) != (from, SiteKind::ReadOnly) && *site != new
            });
            group.sites.push(new.clone());
        })?;
    }
    let keeps = claim.group.read_write_site().is_some_and(|site| site.server == from);
    if !keeps && let Some(left) = have(job.servers, from, &name)? {
        remove_at(job, from, left.id)?;
    }
    claim.done("the site is moved", |_| {}).map(drop)
}

/// Moves the site to another partition of its server. A site beside its read-write volume moves
/// only with that volume.
fn move_beside(
    job: &Job<'_>,
    group: Revised<VolumeGroup>,
    server: ServerId,
    partition: &str,
    no: PartitionNo,
) -> Result<(), VosError> {
    if group.record.read_write_site().is_some_and(|site| site.server == server) {
        return Err(VosError::Unfit(
            "its read-write volume is at that server: move that, and the site moves too".to_owned(),
        ));
    }
    let tree = group.record.read_write;
    let mut claim = Claim::of(job, group, &format!("move site {server} {server}"))?;
    let name = named(&claim.group.name, ".readonly")?;
    if let Some(there) = have(job.servers, server, &name)?.filter(|there| there.partition != no) {
        let what = format!("{}: it comes to {partition}", job.servers.name(server));
        match job.step(what, || beside::copy(job, server, there.id, no, Beside::Show)) {
            Err(error) if error.is_refusal() => {
                beside::remove_all(job.servers, server, tree, no)?;
                return Err(claim.give_up(error));
            }
            copied => drop(copied?),
        }
    }
    claim.change("the site is there from now on", |group| {
        for site in group.sites.iter_mut().filter(|site| site.server == server) {
            partition.clone_into(&mut site.partition);
        }
    })?;
    if !job.dry_run {
        for other in beside::partitions_but(job.servers, server, no)? {
            beside::remove_all(job.servers, server, tree, other)?;
        }
        if let Some(there) = have(job.servers, server, &name)? {
            job.call("serve it", server, VolumeCall::Serve { id: there.id })?;
        }
    }
    claim.done("the site is moved", |_| {}).map(drop)
}

fn fetch(
    job: &Job<'_>,
    group: &VolumeGroup,
    (from, to, no): (ServerId, ServerId, PartitionNo),
) -> Result<(), VosError> {
    let name = named(&group.name, ".readonly")?;
    let Some(released) = have(job.servers, from, &name)? else { return Ok(()) };
    if have(job.servers, to, &name)?.is_some_and(|there| there.epoch == released.epoch) {
        return Ok(());
    }
    let finish =
        Finish::View { id: group.read_only, name, kind: VolumeKind::ReadOnly, replace: true };
    if !job.dry_run {
        let here = examine(job.servers, to, WhichVolume::Id(group.read_write))?.unwrap_or_default();
        remove_left_by_force(job.servers, group, to, &here)?;
    }
    // A tree that the server already has stays on its partition.
    let partition = have(job.servers, to, &group.name)?.is_none().then_some(no);
    let order =
        PullOrder { by: to, partition, from, id: released.id, tree: group.read_write, finish };
    let what = format!("{}: fetch what {} shows", job.servers.name(to), job.servers.name(from));
    job.step(what, || pull(job.servers, order, job.tell)).map(drop)
}
