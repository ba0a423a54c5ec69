//! Volumes as reports show them, and numbers for new ones.

use types::{Answer, Fault, PartitionNo, VolumeId, VolumeInfo, VolumeState, WhichVolume};

use crate::cell::CellLink;
use crate::files::Files;
use crate::volumes::Volumes;

/// A number that no volume of the cell ever had. May ask another server, so hold no lock.
///
/// # Errors
/// `CellAway`, since the server cannot choose a number alone.
pub(super) fn new_number(volumes: &Volumes, cell: &CellLink) -> Result<VolumeId, Fault> {
    let next = volumes.partitions().next_volume()?;
    match cell.db()? {
        Some(db) => Ok(db.take_numbers(VolumeId(next.0 - 1), 1)?),
        None => Ok(next),
    }
}

/// The epoch that a volume shows.
///
/// # Errors
/// `NoVolume`.
pub(super) fn shown_by(volumes: &Volumes, id: Option<VolumeId>) -> Result<Option<u64>, Fault> {
    id.map(|id| Ok(volumes.any_volume(id)?.store.epoch())).transpose()
}

/// A volume and its group, the volume first.
///
/// # Errors
/// `NoVolume`.
/// `CellAway` as [`crate::files::Sites::confirm`].
pub(super) fn examine(files: &Files, which: &WhichVolume) -> Result<Answer, Fault> {
    let volumes = files.volumes();
    let id = match which {
        WhichVolume::Id(id) => *id,
        WhichVolume::Name(name) => {
            volumes.partitions().named(name.as_bytes())?.ok_or(Fault::NoVolume)?
        }
    };
    let volume = volumes.any_volume(id)?;
    if volume.is_unconfirmed() {
        files.sites().confirm(&volume)?;
    }
    let group = volume.partition.volumes().group(id)?;
    let (asked, others): (Vec<_>, Vec<_>) = group.into_iter().partition(|one| one.id == id);
    let mut found: Vec<_> =
        asked.into_iter().chain(others).map(|one| info(volume.no, one)).collect();
    if let Some(asked) = found.first_mut() {
        asked.state = match asked.state {
            _ if volume.is_superseded() => VolumeState::Superseded,
            _ if volume.is_taking_over() => VolumeState::TakingOver,
            state => serving(state, volume.serves()),
        };
    }
    Ok(Answer::Volumes { volumes: found, end: true })
}

/// The state to report for the state in a volume's header. That changes before the volume serves,
/// and a client that reads "online" must find it serving: a claim is sent once.
fn serving(state: VolumeState, serves: bool) -> VolumeState {
    if state == VolumeState::Online && !serves { VolumeState::Held } else { state }
}

pub(super) fn info(partition: PartitionNo, volume: store::VolumeFacts) -> VolumeInfo {
    VolumeInfo {
        id: volume.id,
        tree: volume.tree,
        kind: volume.kind,
        state: match (volume.arriving, volume.offline, volume.held || volume.restoring) {
            (true, ..) => VolumeState::Arriving,
            (_, true, _) => VolumeState::Offline,
            (_, _, true) if volume.restoring => VolumeState::Restoring,
            (_, _, true) => VolumeState::Held,
            _ => VolumeState::Online,
        },
        partition,
        epoch: volume.epoch,
        origin: volume.origin,
        name: volume.name,
        created: volume.created,
        updated: volume.updated,
        quota_bytes: volume.quota.bytes,
        quota_files: volume.quota.files,
        used_bytes: volume.usage.bytes,
        used_files: volume.usage.files,
        encrypted: volume.encrypted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_serve_yet_is_not_called_online() {
        use VolumeState::{Arriving, Held, Offline, Online, Restoring, Superseded};
        assert_eq!(serving(Online, false), Held);
        for state in [Arriving, Held, Offline, Online, Restoring, Superseded] {
            assert_eq!(serving(state, true), state);
            assert_ne!(serving(state, false), Online);
        }
    }
}
