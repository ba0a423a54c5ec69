//! The calls of operations, and how they wait.

use std::time::Duration;

use celldb::CellDb;
use types::{
    Answer, Fault, PartitionNo, ServerId, VolumeCall, VolumeGroup, VolumeId, VolumeInfo,
    WhichVolume,
};

use crate::VosError;
use crate::afs_calls::AfsVolumeServers;

/// Volumes in one request: about as many as fit into an answer.
const LISTED_AT_ONCE: u32 = 2000;

/// The servers of a cell. Thread-safe: several sites are called concurrently.
pub trait Servers: Sync {
    /// The cell's database.
    fn db(&self) -> &dyn CellDb;

    /// Sends a call to a server and returns its answer.
    ///
    /// # Errors
    /// `Refused`, `Away`.
    fn call(&self, server: ServerId, call: VolumeCall) -> Result<Answer, VosError>;

    /// The server's name for people.
    fn name(&self, server: ServerId) -> String;

    /// The volume servers by AFS's protocol.
    ///
    /// # Errors
    /// `Unfit`: there is no way to them.
    fn afs(&self) -> Result<&dyn AfsVolumeServers, VosError> {
        Err(VosError::Unfit("volume servers are not asked by AFS's protocol here".to_owned()))
    }

    /// Waits before a state is checked again.
    fn pause(&self, pause: Duration) {
        std::thread::sleep(pause);
    }

    /// Calls `each` for `0..count`, concurrently where possible; returns when all have ended.
    fn together(&self, count: usize, each: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| (0..count).for_each(|one| drop(scope.spawn(move || each(one)))));
    }
}

/// Returns a volume at a server, followed by the others of its group there; `None` if the server
/// has no such volume.
///
/// # Errors
/// The server's error.
pub fn examine(
    servers: &dyn Servers,
    server: ServerId,
    volume: WhichVolume,
) -> Result<Option<Vec<VolumeInfo>>, VosError> {
    match servers.call(server, VolumeCall::Examine { volume }) {
        Ok(Answer::Volumes { volumes, .. }) if !volumes.is_empty() => Ok(Some(volumes)),
        Ok(_) => Err(VosError::Odd(servers.name(server))),
        Err(VosError::Refused { fault: Fault::NoVolume, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Lists all volumes of a partition, in the order of their numbers.
///
/// # Errors
/// The server's error.
pub fn list(
    servers: &dyn Servers,
    server: ServerId,
    partition: PartitionNo,
) -> Result<Vec<VolumeInfo>, VosError> {
    let mut all: Vec<VolumeInfo> = Vec::new();
    loop {
        let after = all.last().map_or(VolumeId(0), |volume| volume.id);
        match servers.call(server, VolumeCall::List { partition, after, max: LISTED_AT_ONCE })? {
            Answer::Volumes { volumes, end } => {
                let is_last = end || volumes.is_empty();
                all.extend(volumes);
                if is_last {
                    return Ok(all);
                }
            }
            _ => return Err(VosError::Odd(servers.name(server))),
        }
    }
}

/// Returns the number of a partition that a site names.
///
/// # Errors
/// `Unfit` if the server has no partition of that name.
pub fn partition_no(
    servers: &dyn Servers,
    server: ServerId,
    partition: &str,
) -> Result<PartitionNo, VosError> {
    let Answer::Partitions(partitions) = servers.call(server, VolumeCall::Partitions)? else {
        return Err(VosError::Odd(servers.name(server)));
    };
    let found = partitions.iter().find(|one| one.name == partition).map(|one| one.no);
    found.ok_or_else(|| {
        VosError::Unfit(format!("{} has no partition {partition}", servers.name(server)))
    })
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
