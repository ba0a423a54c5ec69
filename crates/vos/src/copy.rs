//! A new volume that begins as a copy of another.
//!
//! Steps: announced and claimed like a new volume; the source is sealed at its server; the new
//! server fetches that epoch and makes a volume of it; the claim is removed.

use types::{
    Fault, Finish, Name, PartitionNo, Revised, ServerId, VolumeCall, VolumeGroup, VolumeId,
    VolumeInfo, VolumeKind, WhichVolume,
};

use crate::afs::{self, is_afs};
use crate::create::announced;
use crate::own_volumes::{have, remove_at};
use crate::pulling::{PullOrder, pull, wait_idle};
use crate::servers::partition_no;
use crate::{Job, NewVolume, VosError, examine};

/// Copies the volume; `None` in a dry run. A quota of 0 means that of the source.
///
/// # Errors
/// As `create`, and errors of the servers. `Away` while the source's server does not answer:
/// repeating the copy continues it.
pub fn copy(
    job: &Job<'_>,
    of: &Revised<VolumeGroup>,
    new: &NewVolume,
) -> Result<Option<VolumeInfo>, VosError> {
    let site = of.record.read_write_site();
    let site = site.ok_or_else(|| VosError::Unfit("it has no read-write volume".to_owned()))?;
    let from = site.server;
    let no = partition_no(job.servers, new.server, &new.partition)?;
    if is_afs(job.servers, from)? || is_afs(job.servers, new.server)? {
        return afs::copy(job, of, site, new);
    }
    let claim = announced(job, new, "copy")?;
    let tree = claim.group.read_write;
    let copied = seal_and_fetch(job, of, from, new, (no, tree));
    match copied {
        Err(error) if error.is_refusal() => {
            // A fetch of an interrupted attempt may still make the volume; then the next attempt
            // finds it.
            wait_idle(job.servers, new.server, tree)?;
            if examine(job.servers, new.server, WhichVolume::Id(tree))?.is_none() {
                claim.forget()?;
            }
            Err(error)
        }
        copied => {
            let copied = copied?;
            claim.done("the volume is there", |_| {})?;
            Ok(copied)
        }
    }
}

fn seal_and_fetch(
    job: &Job<'_>,
    of: &Revised<VolumeGroup>,
    from: ServerId,
    new: &NewVolume,
    (no, tree): (PartitionNo, VolumeId),
) -> Result<Option<VolumeInfo>, VosError> {
    let there = || -> Result<Option<VolumeInfo>, VosError> {
        Ok(examine(job.servers, new.server, WhichVolume::Id(tree))?
            .and_then(|found| found.into_iter().next()))
    };
    // The name includes the copy's tree: several copies may be made at the same time.
    let name = Name::new(format!("copying.{}", tree.0).as_bytes())
        .map_err(|error| VosError::Unfit(error.to_string()))?;
    if !job.dry_run
        && let Some(made) = there()?
    {
        if let Some(left) = have(job.servers, from, &name)? {
            remove_at(job, from, left.id)?;
        }
        return Ok(Some(made));
    }
    let call = VolumeCall::Clone {
        id: None,
        of: of.record.read_write,
        name,
        kind: VolumeKind::Snapshot,
        replace: true,
    };
    let Some(sealed) = job.call_one("seal its current state", from, call)? else { return Ok(None) };
    let finish = Finish::ReadWrite {
        name: new.name.clone(),
        quota_bytes: if new.quota_bytes == 0 { sealed.quota_bytes } else { new.quota_bytes },
        quota_files: sealed.quota_files,
        created: sealed.created,
        arriving: false,
        updated: None,
    };
    let order =
        PullOrder { by: new.server, partition: Some(no), from, id: sealed.id, tree, finish };
    let fetched = job.step(format_args!("{}: fetch it", job.servers.name(new.server)), || {
        pull(job.servers, order, job.tell)
    });
    match remove_at(job, from, sealed.id) {
        Err(VosError::Refused { fault: Fault::NoVolume, .. }) | Ok(()) => {}
        // Without the claim no operation would find the received data: a repeated copy continues
        // here.
        Err(error @ VosError::Away { .. }) => return Err(error),
        Err(error) => job.note(format_args!("its snapshot stays: {error}")),
    }
    match (fetched, there()?) {
        // An interrupted attempt had begun it, and the server has finished that.
        (_, Some(made)) => Ok(Some(made)),
        (Err(error), None) => Err(error),
        (Ok(_), None) => Err(VosError::Odd(job.servers.name(new.server))),
    }
}
