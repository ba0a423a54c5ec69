//! Fids of both worlds.

use afs3::structs::AfsFid;
use types::{Call, Fid, Status, Uniquifier, VnodeNo, VolumeId};

use crate::codes::Refusal;
use crate::{Answer, Services};

/// The fid of a file as foreign clients see it. Both worlds number directories oddly and all other
/// files evenly ([`Fid::of_slot`]), and the root is 1.
///
/// # Errors
/// A number does not fit.
pub fn foreign_fid(fid: Fid) -> Result<AfsFid, Refusal> {
    let word = |number: u64| u32::try_from(number).map_err(|_| Refusal::TOO_BIG);
    let (volume, vnode) = (word(fid.volume.0)?, word(fid.vnode.0)?);
    Ok(AfsFid { volume, vnode, unique: word(fid.unique.shortened().0)? })
}

/// The file that a foreign fid names, and its status, promised to the caller's host.
///
/// # Errors
/// `VNOVNODE` if there is none; the services'.
pub(crate) fn find(services: &dyn Services, fid: AfsFid) -> Result<Status, Refusal> {
    if fid.volume == 0 || fid.vnode == 0 {
        return Err(Refusal::INVALID);
    }
    let numbers = Fid {
        volume: VolumeId(fid.volume.into()),
        vnode: VnodeNo(fid.vnode.into()),
        unique: Uniquifier(0),
    };
    let found = services.ask_as_server(Call::ByVnode { fid: numbers, parent: false })?;
    let Answer::Status(status) = found else { return Err(Refusal::IO) };
    if !status.by_list || services.refuses_afs(numbers.volume)? {
        // AF-1: without lists its fids are secrets, which a foreign client does not keep.
        return Err(Refusal::NO_SERVICE);
    }
    if foreign_fid(status.fid) != Ok(fid) {
        return Err(Refusal::NO_VNODE);
    }
    Ok(status)
}
