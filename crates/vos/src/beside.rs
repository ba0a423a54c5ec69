//! Copies a volume between two partitions of one server, and removes the source.

use types::{Answer, Beside, PartitionNo, ServerId, VolumeCall, VolumeId};

use crate::pulling::finished;
use crate::{Job, Servers, VosError};

/// Limit of volumes of one group on a server: more removals than this mean that the server does not
/// remove them.
const VOLUMES_MAX: usize = 10_000;

/// Copies one volume of a sealed epoch to another partition of its server; returns the bytes
/// copied.
pub(crate) fn copy(
    job: &Job<'_>,
    server: ServerId,
    id: VolumeId,
    partition: PartitionNo,
    what: Beside,
) -> Result<u64, VosError> {
    let call = VolumeCall::Beside { id, partition, what };
    finished(job.servers, server, &call, job.tell).map(|task| task.bytes)
}

/// Removes the first volume that the partition has of the tree: its read-write volume, if there is
/// one. Returns true if there was a volume to remove.
pub(crate) fn remove_first(
    servers: &dyn Servers,
    server: ServerId,
    tree: VolumeId,
    partition: PartitionNo,
) -> Result<bool, VosError> {
    match servers.call(server, VolumeCall::Beside { id: tree, partition, what: Beside::Leave })? {
        Answer::Tasks(tasks) => Ok(!tasks.is_empty()),
        _ => Err(VosError::Odd(servers.name(server))),
    }
}

/// Removes all volumes that the partition has of the tree.
pub(crate) fn remove_all(
    servers: &dyn Servers,
    server: ServerId,
    tree: VolumeId,
    partition: PartitionNo,
) -> Result<(), VosError> {
    for _ in 0..VOLUMES_MAX {
        if !remove_first(servers, server, tree, partition)? {
            return Ok(());
        }
    }
    Err(VosError::Odd(servers.name(server)))
}

/// The other partitions of a server.
pub(crate) fn partitions_but(
    servers: &dyn Servers,
    server: ServerId,
    partition: PartitionNo,
) -> Result<Vec<PartitionNo>, VosError> {
    match servers.call(server, VolumeCall::Partitions)? {
        Answer::Partitions(all) => {
            Ok(all.into_iter().map(|one| one.no).filter(|no| *no != partition).collect())
        }
        _ => Err(VosError::Odd(servers.name(server))),
    }
}
