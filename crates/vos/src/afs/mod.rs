//! Operations on volumes at servers of AFS, and between them and Rialto's (MX-5).
//!
//! Model. Both kinds of servers answer AFS's volume server protocol: what a *transaction* holds no
//! other one changes, a dump goes from a transaction to another one, at another server, and a
//! volume that is out of service has no clients. The operations are AFS's own, in steps of which
//! each can be the last one; the claims and the records of the cell database are those of all
//! operations. Single calls to a server of AFS are translated (`translating`), so operations that
//! only ask, or change one server, need not know its kind.
//!
//! AFS has numbers of 32 bits for volumes, names of 31 bytes, partitions with names of its own, and
//! neither snapshots nor epochs.

mod copying;
mod dumping;
mod making;
mod moving;
mod places;
mod releasing;
mod transactions;
mod translating;
mod volume_server;

use afs3::volumes::partition_number;
use types::{Answer, ServerId, ServerKind, VolumeCall, VolumeId};

use crate::{Servers, VosError};

pub use dumping::{AfsDump, dump_afs, restore_afs, restore_afs_over};
pub use translating::call_afs;

pub(crate) use copying::copy;
pub(crate) use moving::{AfsWay, move_volume};
pub(crate) use releasing::{AfsReleased, release_from_afs, send_sealed};

/// The number of the first partition.
const FIRST: i32 = 0;

/// Whether a server is one of AFS.
pub(crate) fn is_afs(servers: &dyn Servers, server: ServerId) -> Result<bool, VosError> {
    Ok(afs_servers(servers)?.contains(&server))
}

/// The servers of AFS in the cell.
pub(crate) fn afs_servers(servers: &dyn Servers) -> Result<Vec<ServerId>, VosError> {
    let all = servers.db().servers()?.into_iter().map(|seen| seen.record);
    Ok(all.filter(|one| one.kind() == ServerKind::Afs).map(|one| one.id).collect())
}

/// A volume's number as AFS has it.
///
/// # Errors
/// `Unfit`.
fn number(id: VolumeId) -> Result<u32, VosError> {
    u32::try_from(id.0).map_err(|_| {
        VosError::Unfit(format!("servers of AFS have no volume with a number as high as {}", id.0))
    })
}

/// The number under which volume servers know a partition. AFS's clients see one of Rialto's with
/// another form of name under 0.
///
/// # Errors
/// `Unfit`: it has no number, or another one has it, too.
fn partition(servers: &dyn Servers, server: ServerId, name: &str) -> Result<i32, VosError> {
    if let Some(number) = partition_number(name) {
        return Ok(number);
    }
    let unfit = || VosError::Unfit(format!("AFS has no name for the partition {name}"));
    if is_afs(servers, server)? {
        return Err(unfit());
    }
    let Answer::Partitions(all) = servers.call(server, VolumeCall::Partitions)? else {
        return Err(VosError::Odd(servers.name(server)));
    };
    let is_first = |other: &str| partition_number(other).unwrap_or(FIRST) == FIRST;
    let others = all.iter().filter(|one| one.name != name && is_first(&one.name));
    if others.count() == 0 { Ok(FIRST) } else { Err(unfit()) }
}
