//! Fields that several families of messages have.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use types::limits::{MESSAGE_BYTES_MAX, NAME_BYTES_MAX};
use types::{Name, VolumeId, WhichVolume};

use crate::WireError;
use crate::wire::{FieldReader, Writer};

/// Most bytes of an answer besides its list.
const HEAD_BYTES: usize = 32;
/// In place of a partition: the server chooses one.
pub(super) const ANY: u32 = u32::MAX;

/// The number of a volume; 0: none.
pub(super) fn number(id: Option<VolumeId>) -> u64 {
    id.map_or(0, |id| id.0)
}

pub(super) fn get_number(from: &mut FieldReader<'_>) -> Result<Option<VolumeId>, WireError> {
    let number = from.u64()?;
    Ok((number != 0).then_some(VolumeId(number)))
}

pub(super) fn get_name(from: &mut FieldReader<'_>) -> Result<Name, WireError> {
    let length = from.length16("name bytes", NAME_BYTES_MAX)?;
    from.name(length)
}

pub(super) fn put_which<'w>(to: &'w mut Writer, which: &WhichVolume) -> &'w mut Writer {
    match which {
        WhichVolume::Id(id) => to.require(id.0 != 0, "volume", 0).u64(id.0).u16(0),
        WhichVolume::Name(name) => to.u64(0).name_length(name).name(name),
    }
}

pub(super) fn get_which(from: &mut FieldReader<'_>) -> Result<WhichVolume, WireError> {
    let id = from.u64()?;
    let length = from.length16("name bytes", NAME_BYTES_MAX)?;
    match (id, length) {
        (0, length) => from.name(length).map(WhichVolume::Name),
        (id, 0) => Ok(WhichVolume::Id(VolumeId(id))),
        (_, length) => Err(WireError::BadValue { what: "name bytes", value: length as u64 }),
    }
}

/// Number of the first elements that fit into a message.
pub(super) fn fitting<T>(all: &[T], bytes_of: impl Fn(&T) -> usize) -> usize {
    let mut room = MESSAGE_BYTES_MAX - HEAD_BYTES;
    let fits = |one: &&T| {
        let bytes = bytes_of(one);
        let fits = bytes <= room;
        room = room.saturating_sub(bytes);
        fits
    };
    all.iter().take_while(fits).count()
}

pub(super) fn put_text<'w>(
    to: &'w mut Writer,
    what: &'static str,
    text: &str,
    max: usize,
) -> &'w mut Writer {
    to.length16(what, text.len(), max).raw(text.as_bytes())
}

pub(super) fn get_text(
    from: &mut FieldReader<'_>,
    what: &'static str,
    max: usize,
) -> Result<String, WireError> {
    let length = from.length16(what, max)?;
    from.text(length)
}

pub(super) fn put_addresses<'w>(to: &'w mut Writer, addresses: &[SocketAddr]) -> &'w mut Writer {
    for address in addresses {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        to.raw(&ip.octets()).u16(address.port());
    }
    to
}

pub(super) fn get_addresses(
    from: &mut FieldReader<'_>,
    count: usize,
) -> Result<Vec<SocketAddr>, WireError> {
    let address = |_| {
        let ip = Ipv6Addr::from(from.array::<16>()?);
        Ok(SocketAddr::new(ip.to_canonical(), from.u16()?))
    };
    (0..count).map(address).collect()
}
