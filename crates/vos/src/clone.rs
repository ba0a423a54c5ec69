//! A writable clone (fork): a new volume that begins as the current state of another, on the same
//! server and partition.
//!
//! Steps: as those of a new volume (`create.rs`). The claim's text names the source, so that a
//! clone of another source does not take it over. If the source moved since the clone was
//! announced, the clone is announced anew beside it, unless it was made at the old place.

use types::{Answer, Name, VolumeCall, VolumeGroup, VolumeInfo, VolumeKind, WhichVolume};

use crate::claim::{Claim, is_claimed_for};
use crate::create::{announced, made, site};
use crate::{FoundVolume, Job, NewVolume, VosError, examine};

/// Makes a writable clone of `found`; `None` in a dry run.
///
/// # Errors
/// As [`crate::create`].
pub fn clone_writable(
    job: &Job<'_>,
    of: &FoundVolume,
    name: &Name,
) -> Result<Option<VolumeInfo>, VosError> {
    let (server, volume) = (of.server, of.volume());
    let Answer::Partitions(partitions) = job.servers.call(server, VolumeCall::Partitions)? else {
        return Err(VosError::Odd(job.servers.name(server)));
    };
    let partition = partitions.into_iter().find(|partition| partition.no == volume.partition);
    let partition = partition.ok_or_else(|| VosError::Odd(job.servers.name(server)))?.name;
    let new = NewVolume {
        name: name.clone(),
        id: None,
        server,
        partition,
        quota_bytes: 0,
        owner: (0, 0),
        encrypt: None,
    };
    let operation = format!("clone volume {}", volume.id.0);
    let claim = match announced_elsewhere(job, &new, &operation)? {
        None => announced(job, &new, &operation)?,
        Some(mut claim) => {
            let old = claim.group.read_write_site().map(|site| site.server);
            let which = WhichVolume::Id(claim.group.read_write);
            let made = old.map(|old| examine(job.servers, old, which));
            if let Some(made) = made.transpose()?.flatten() {
                claim.done("the volume is there", |_| {})?;
                return Ok(made.into_iter().next());
            }
            let site = site(&new);
            let change = |group: &mut VolumeGroup| group.sites = vec![site.clone()];
            claim.change("announce the volume where the other one is now", change)?;
            claim
        }
    };
    let id = claim.group.read_write;
    let (name, kind) = (name.clone(), VolumeKind::ReadWrite);
    let call = VolumeCall::Clone { id: Some(id), of: volume.id, name, kind, replace: false };
    made(
        job,
        claim,
        server,
        format_args!("make the volume {} of what {} holds now", id.0, volume.id.0),
        call,
    )
}

/// The claim of a clone that was announced at another place.
fn announced_elsewhere<'j, 'a>(
    job: &'j Job<'a>,
    new: &NewVolume,
    operation: &str,
) -> Result<Option<Claim<'j, 'a>>, VosError> {
    let Some(seen) = job.servers.db().group_named(&new.name)? else { return Ok(None) };
    let is_it = is_claimed_for(&seen.record, operation);
    let is_here = seen.record.read_write_site() == Some(&site(new));
    if is_it && !is_here { Claim::of(job, seen, operation).map(Some) } else { Ok(None) }
}
