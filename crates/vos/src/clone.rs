//! A writable clone (fork): a new volume that begins as the current state of another, on the same
//! server and partition.
//!
//! Steps: as those of a new volume (`create.rs`). The claim's text names the source, so that a
//! clone of another source does not take it over.

use types::{Answer, Name, VolumeCall, VolumeInfo, VolumeKind};

use crate::create::{announced, made};
use crate::{FoundVolume, Job, NewVolume, VosError};

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
    let claim = announced(job, &new, &format!("clone volume {}", volume.id.0))?;
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
