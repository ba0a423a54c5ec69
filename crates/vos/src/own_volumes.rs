//! The volumes that operations make for themselves, and the removal of volumes.
//!
//! Model: an operation stores what it needs between two steps as a snapshot volume of the group,
//! whose name is the group's with an ending of the operation's. The next attempt finds it by that
//! name, and removes what is of no use any more.

use types::{
    Fault, Name, ServerId, VolumeCall, VolumeGroup, VolumeId, VolumeInfo, VolumeKind, VolumeState,
    WhichVolume,
};

use crate::pulling::wait_idle;
use crate::{Job, Servers, VosError, examine};

/// The ending of the name of the snapshot that a dump reads.
pub(crate) const DUMPING: &str = ".dumping";
/// Endings of the names of a move's snapshots: two by turns, because the next difference is read
/// against the previous snapshot.
pub(crate) const MOVING: [&str; 2] = [".moving", ".moving2"];
/// Ending of the name of a release that is stored for sites that lag.
pub(crate) const LAGGING: &str = ".lagging";
/// Ending of the name of the volume that is being released.
pub(crate) const RELEASING: &str = ".releasing";
/// How the names of snapshots end that operations make for themselves and remove at their end.
pub(crate) const LEFT: [&str; 4] = [MOVING[0], MOVING[1], RELEASING, DUMPING];

/// Returns a name of the group: `base` and `ending`.
pub(crate) fn named(base: &Name, ending: &str) -> Result<Name, VosError> {
    Name::new(&[base.as_bytes(), ending.as_bytes()].concat())
        .map_err(|_| VosError::Unfit(format!("its name is too long for {ending} behind it")))
}

/// Returns the volume with this name that a server has.
pub(crate) fn have(
    servers: &dyn Servers,
    server: ServerId,
    name: &Name,
) -> Result<Option<VolumeInfo>, VosError> {
    let there = examine(servers, server, WhichVolume::Name(name.clone()))?;
    Ok(there.and_then(|volumes| volumes.into_iter().next()))
}

/// Whether a volume exists only for sites that lag.
pub(crate) fn is_stored_for_lagging(volume: &VolumeInfo) -> bool {
    volume.kind == VolumeKind::Snapshot && volume.name.as_bytes().ends_with(LAGGING.as_bytes())
}

/// Removes one volume; a volume that is already missing is no error.
pub(crate) fn remove_at(job: &Job<'_>, server: ServerId, id: VolumeId) -> Result<(), VosError> {
    match job.call(format_args!("remove the volume {}", id.0), server, VolumeCall::Remove { id }) {
        Err(VosError::Refused { fault: Fault::NoVolume, .. }) => Ok(()),
        done => done.map(drop),
    }
}

/// Whether the volume, at a server that is not its site, waits to be removed: it still arrives, for
/// a move that was not decided; or it is still frozen, for a move that was.
pub(crate) fn is_left(one: &VolumeInfo, id: VolumeId) -> bool {
    one.id == id && (one.state.comes() || one.state == VolumeState::Held)
}

/// Removes the volume of a server that is not its site, which a move left whose claim was taken
/// off: it has the volume's number there, and nothing of the tree can come in. Only for the owner
/// of a claim: the leader of that move cannot go on, because the record was written since.
///
/// # Errors
/// The server's and the database's.
pub(crate) fn remove_left_by_force(
    servers: &dyn Servers,
    group: &VolumeGroup,
    server: ServerId,
    here: &[VolumeInfo],
) -> Result<(), VosError> {
    let waits = |one: &VolumeInfo| is_left(one, group.read_write);
    let is_its_site = group.read_write_site().is_some_and(|site| site.server == server);
    if is_its_site || !here.iter().any(waits) {
        return Ok(());
    }
    wait_idle(servers, server, group.read_write)?;
    let names = MOVING.iter().map(|ending| named(&group.name, ending));
    let names = names.collect::<Result<Vec<_>, _>>()?;
    let is_snapshot = |one: &VolumeInfo| one.kind == VolumeKind::Snapshot;
    let left = |one: &&VolumeInfo| waits(one) || is_snapshot(one) && names.contains(&one.name);
    for one in here.iter().filter(left) {
        match servers.call(server, VolumeCall::Remove { id: one.id }) {
            Ok(_) | Err(VosError::Refused { fault: Fault::NoVolume, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the volumes of the group that a server has, whichever of them remain.
pub(crate) fn all_of(
    job: &Job<'_>,
    group: &VolumeGroup,
    server: ServerId,
) -> Result<Vec<VolumeInfo>, VosError> {
    let mut which = vec![WhichVolume::Id(group.read_write)];
    for ending in [MOVING[0], MOVING[1], ".backup", ".readonly"] {
        which.push(WhichVolume::Name(named(&group.name, ending)?));
    }
    for one in which {
        if let Some(volumes) = examine(job.servers, server, one)? {
            return Ok(volumes);
        }
    }
    Ok(Vec::new())
}
