//! A new volume that begins as what another holds now.
//!
//! Steps: announced and claimed as a new one is; the other is sealed at its server; that is fetched
//! and made a volume; the claim goes.

use types::{
    Fault, Finish, Name, PartitionNo, Revised, ServerId, VolumeCall, VolumeGroup, VolumeId,
    VolumeInfo, VolumeKind, WhichVolume,
};

use crate::create::announced;
use crate::pulling::{PullOrder, pull};
use crate::release::have;
use crate::remove::remove_at;
use crate::servers::partition_no;
use crate::{Job, NewVolume, VosError, examine};

/// Makes it; `None` if that was only said. A quota of 0 is that of the other.
///
/// # Errors
/// As `create` and the servers'. `Away` while the other's server does not answer: done again, it
/// goes on.
pub fn copy(
    job: &Job<'_>,
    of: &Revised<VolumeGroup>,
    new: &NewVolume,
) -> Result<Option<VolumeInfo>, VosError> {
    let from = of.record.read_write_site().map(|site| site.server);
    let from = from.ok_or_else(|| VosError::Unfit("it has no read-write volume".to_owned()))?;
    let no = partition_no(job.servers, new.server, &new.partition)?;
    let claim = announced(job, new, "copy")?;
    let tree = claim.group.read_write;
    let copied = seal_and_fetch(job, of, from, new, (no, tree));
    match copied {
        Err(error) if error.is_refusal() => {
            claim.forget()?;
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
    // Named for the copy: several may be made at the same time.
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
    let Some(sealed) = job.call_one("seal what it holds now", from, call)? else { return Ok(None) };
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
        // Nobody would look for it once the claim is gone: done again, the copy goes on here.
        Err(error @ VosError::Away { .. }) => return Err(error),
        Err(error) => job.note(format_args!("its snapshot stays: {error}")),
    }
    match (fetched, there()?) {
        // Whoever was stopped had begun it, and that came first.
        (_, Some(made)) => Ok(Some(made)),
        (Err(error), None) => Err(error),
        (Ok(_), None) => Err(VosError::Odd(job.servers.name(new.server))),
    }
}
