//! All that a location database has: servers and entries.

use std::net::Ipv4Addr;

use afs3::errors::{RXGEN_OPCODE, VL_NOENT};
use afs3::locations::{
    AddressAttributes, ListAttributes, LocationsAnswer, LocationsCall, VldbEntry,
    VolumeNameArgument, address_mask,
};
use afs3::structs::AfsUuid;

use crate::{AfsCell, AfsCellError};

/// The greatest index of a server.
const INDEX_MAX: i32 = 254;

/// A file server that a location database lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfsServer {
    /// By which it is known; of a server that told none, made of its address.
    pub uuid: AfsUuid,
    /// Its addresses, at least one.
    pub addresses: Vec<Ipv4Addr>,
}

/// The UUID of a server that has none.
fn uuid_of(address: Ipv4Addr) -> AfsUuid {
    AfsUuid(u128::from(u32::from(address)).to_be_bytes())
}

/// All servers of the location database.
///
/// # Errors
/// See [`AfsCellError`].
pub fn servers(cell: &AfsCell) -> Result<Vec<AfsServer>, AfsCellError> {
    let all = LocationsCall::GetAddrs { handle: 0, spare: 0 };
    let LocationsAnswer::GetAddrs { addresses: listed, .. } = cell.locations(&all)? else {
        return Err(cell.odd("GetAddrs"));
    };
    let count = listed.as_slice().len();
    let mut found = Vec::new();
    for index in 1..=INDEX_MAX {
        if found.len() == count {
            break;
        }
        let mask = address_mask::INDEX;
        let attributes = AddressAttributes { mask, index, ..AddressAttributes::default() };
        match cell.locations(&LocationsCall::GetAddrsU { attributes }) {
            Ok(LocationsAnswer::GetAddrsU { uuid, addresses, .. }) => {
                let addresses: Vec<_> =
                    addresses.as_slice().iter().copied().map(Ipv4Addr::from).collect();
                let Some(first) = addresses.first() else { continue };
                let uuid = if uuid == AfsUuid::default() { uuid_of(*first) } else { uuid };
                found.push(AfsServer { uuid, addresses });
            }
            Ok(_) => return Err(cell.odd("GetAddrsU")),
            Err(AfsCellError::Refused { code: VL_NOENT, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// All entries of the location database, in the order of their read-write volumes' numbers.
///
/// # Errors
/// See [`AfsCellError`].
pub fn entries(cell: &AfsCell) -> Result<Vec<VldbEntry>, AfsCellError> {
    let (mut all, mut start) = (Vec::new(), 0);
    let every = VolumeNameArgument::default();
    loop {
        let attributes = ListAttributes::default();
        let list = LocationsCall::ListAttributesN2 { attributes, name: every.clone(), start };
        match cell.locations(&list) {
            Ok(LocationsAnswer::ListAttributesN2 { entries, next, .. }) => {
                all.extend_from_slice(entries.as_slice());
                // Servers say -1, or the same place again, when there are no more.
                if next <= start || entries.as_slice().is_empty() {
                    break;
                }
                start = next;
            }
            Err(AfsCellError::Refused { code: RXGEN_OPCODE, .. }) if start == 0 => {
                match cell.locations(&LocationsCall::ListAttributesN { attributes })? {
                    LocationsAnswer::ListAttributesN { entries, .. } => {
                        all.extend_from_slice(entries.as_slice());
                    }
                    _ => return Err(cell.odd("ListAttributesN")),
                }
                break;
            }
            Ok(_) => return Err(cell.odd("ListAttributesN2")),
            Err(error) => return Err(error),
        }
    }
    all.sort_by_key(|entry| entry.volumes[0]);
    Ok(all)
}

/// The number after the highest that the location database has given.
///
/// # Errors
/// See [`AfsCellError`]; only superusers are told.
pub fn next_number(cell: &AfsCell) -> Result<u32, AfsCellError> {
    match cell.locations(&LocationsCall::GetNewVolumeId { count: 0 })? {
        LocationsAnswer::GetNewVolumeId { volume } => Ok(volume),
        _ => Err(cell.odd("GetNewVolumeId")),
    }
}
