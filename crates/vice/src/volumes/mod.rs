//! The server's partitions and volumes: which of them are in use, which move, their access lists,
//! and contents that come in.
//!
//! Imports nothing of this crate. Administrators' calls on volumes are in `admin`.

mod acls;
mod assembly;
mod loads;
mod moves;
mod options;
mod partitions;
mod refill;
mod volume;
mod volume_set;
mod volumes_in_use;

pub(crate) use acls::{ATTRIBUTE, VolumeAcls};
pub use assembly::VolumeAssembly;
pub(crate) use loads::{Load, Loads};
pub(crate) use moves::Moves;
pub(crate) use options::VolumeOptions;
pub use partitions::Partitions;
pub(crate) use volume::{QuotaReservation, ViceVolume};
pub(crate) use volume_set::Volumes;
pub(crate) use volumes_in_use::VolumesInUse;

/// The attribute with a file's persistent locks.
pub(crate) const LOCK_RECORDS: &[u8] = b"rialto.locks";

/// Whether an attribute is the service's own: callers neither see nor count it.
pub(crate) fn is_hidden(name: &[u8]) -> bool {
    [ATTRIBUTE, LOCK_RECORDS].contains(&name) || VolumeOptions::is_attribute(name)
}
