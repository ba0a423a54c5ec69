//! Restores a dump as a read-only volume without a read-write volume: a release from elsewhere, or
//! an archive.
//!
//! Steps: a new group is announced with its number and claimed, or the overwritten group is
//! claimed; the site receives the parts and shows them under the number of the group's read-only
//! volume; the database records the epoch, and the claim is removed. Giving up leaves the old
//! state.

use types::{
    Finish, ServerId, Site, SiteKind, VolumeCall, VolumeGroup, VolumeId, VolumeInfo, VolumeKind,
    WhichVolume,
};

use crate::claim::{Claim, need_free};
use crate::dump::{Dumped, Next, apply};
use crate::own_volumes::named;
use crate::{Job, NewVolume, VosError, examine, partition_no};

/// The operation that the claim names.
pub(crate) const OPERATION: &str = "restore read-only";

/// Makes the read-only volume `new.name` of a dump, under `new.id` if that is set; or, with `over`,
/// shows the dump in place of the volume's content. An increment must start from that content.
/// `None` in a dry run.
///
/// # Errors
/// `Unfit` if the name means something else, or the dump does not fit; `Busy`; errors of the
/// servers and of the database; errors of `next`.
pub fn restore_read_only(
    job: &Job<'_>,
    new: &NewVolume,
    over: bool,
    dump: &Dumped,
    next: &mut Next<'_>,
) -> Result<Option<VolumeInfo>, VosError> {
    let partition = partition_no(job.servers, new.server, &new.partition)?;
    let (claim, number, is_new) = claimed(job, new, (over, dump))?;
    let tree = claim.group.read_write;
    let name = named(&new.name, ".readonly")?;
    let finish = Finish::View { id: Some(number), name, kind: VolumeKind::ReadOnly, replace: true };
    let shown = if job.dry_run { None } else { shown(job, new.server, number)? };
    let made = match shown.filter(|shown| shown.epoch == dump.epoch) {
        Some(shown) => Ok(Some(shown)),
        None => apply(job, new.server, (partition, tree), (dump.total_bytes, false), next)
            .and_then(|()| {
                job.call_one(
                    "the volume shows the received state",
                    new.server,
                    VolumeCall::Finish { partition, tree, finish },
                )
            }),
    };
    let (server, epoch) = (new.server, dump.epoch);
    let done = |claim: Claim<'_, '_>| {
        claim.done("the volume is there", |group| {
            group.released_epoch = epoch;
            group
                .sites
                .iter_mut()
                .filter(|site| site.server == server)
                .for_each(|site| site.epoch = epoch);
        })
    };
    match made {
        Ok(made) => {
            done(claim)?;
            Ok(made)
        }
        Err(error) if error.is_refusal() => {
            // A session repeats the call to a server that ended before it answered; the second
            // attempt may be refused because the first one was done.
            if let Some(made) =
                self::shown(job, new.server, number)?.filter(|shown| shown.epoch == dump.epoch)
            {
                done(claim)?;
                return Ok(Some(made));
            }
            let given_up = VolumeCall::Finish { partition, tree, finish: Finish::Nothing };
            match job.call("the received data is given up", new.server, given_up) {
                // The server received nothing.
                Ok(_) | Err(VosError::Refused { .. }) if is_new => claim.forget()?,
                Ok(_) | Err(VosError::Refused { .. }) => return Err(claim.give_up(unfit(error))),
                Err(also) => job.note(also),
            }
            Err(unfit(error))
        }
        Err(error) => Err(error),
    }
}

fn unfit(error: VosError) -> VosError {
    match error.fault() {
        Some(types::Fault::Invalid) => VosError::Unfit(
            "it is of another volume than what is there, older, or starts from something else"
                .to_owned(),
        ),
        _ => error,
    }
}

fn shown(
    job: &Job<'_>,
    server: ServerId,
    number: VolumeId,
) -> Result<Option<VolumeInfo>, VosError> {
    Ok(examine(job.servers, server, WhichVolume::Id(number))?
        .and_then(|found| found.into_iter().next()))
}

/// The group, the number that the volume has, and whether it is new.
fn claimed<'j, 'a>(
    job: &'j Job<'a>,
    new: &NewVolume,
    (over, dump): (bool, &Dumped),
) -> Result<(Claim<'j, 'a>, VolumeId, bool), VosError> {
    let db = job.servers.db();
    let site = Site {
        server: new.server,
        partition: new.partition.clone(),
        kind: SiteKind::ReadOnly,
        epoch: 0,
    };
    let unfit = |why: &str| Err(VosError::Unfit(why.to_owned()));
    let Some(seen) = db.group_named(&new.name)? else {
        if dump.since != 0 {
            return unfit(
                "it has only changes since another dump, and there is no volume of that \
                    name",
            );
        }
        let taken = job.step("database: take numbers", || Ok(db.take_numbers(VolumeId(0), 2)?))?;
        let tree = taken.unwrap_or(VolumeId(0));
        let number = new.id.unwrap_or(VolumeId(tree.0 + 1));
        let mut group = VolumeGroup::new(new.name.clone(), tree, site);
        group.read_only = Some(number);
        job.step("database: announce the volume", || Ok(()))?;
        return Ok((Claim::of_new(job, group, OPERATION)?, number, true));
    };
    need_free(job, &seen.record, Some(OPERATION))?;
    let group = &seen.record;
    let (is_begun, is_there) = (group.busy.is_some(), group.released_epoch != 0);
    let Some(number) = group.read_only.filter(|_| group.read_write_site().is_none()) else {
        return unfit(
            "there is a volume of that name that is written: 'vos release' makes its read-only \
                ones",
        );
    };
    if group.sites.len() != 1 || !same_place(&group.sites[0], &site) {
        return unfit(
            "the read-only volume of that name is elsewhere, or at several sites: leave one, with \
                'vos remsite'",
        );
    }
    if is_there && !over && !is_begun {
        return unfit("there is a read-only volume of that name");
    }
    if new.id.is_some_and(|id| id != number) {
        return unfit("the read-only volume of that name has another number");
    }
    Ok((Claim::of(job, seen, OPERATION)?, number, !is_there))
}

fn same_place(one: &Site, other: &Site) -> bool {
    (one.server, &one.partition) == (other.server, &other.partition)
}
