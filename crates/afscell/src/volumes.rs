//! Where the volumes of a cell are.
//!
//! An entry of the location database has the numbers of a volume's three kinds and the sites of
//! all of them. A site names its server by a UUID, for which the database has the addresses, or by
//! one address; servers before `GetEntryByNameU` know addresses alone.

use std::net::Ipv4Addr;

use afs3::errors::{RXGEN_OPCODE, VL_BADNAME, VL_NOENT};
use afs3::locations::{
    AddressAttributes, LocationsAnswer, LocationsCall, UuidVldbEntry, VldbEntry,
    VolumeNameArgument, address_mask, entry_flag, site_flag,
};
use afs3::structs::AfsUuid;

use crate::{AfsCell, AfsCellError};

/// A volume that can be written, its replicas and its backup, and where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfsVolume {
    /// The name of the one that can be written.
    pub name: Vec<u8>,
    /// The number of the one that can be written, if it exists.
    pub read_write: Option<u32>,
    /// The number of the replicas, if there are any.
    pub read_only: Option<u32>,
    /// The number of the backup, if it exists.
    pub backup: Option<u32>,
    /// The sites, in the order of the entry.
    pub sites: Vec<AfsSite>,
}

/// A site of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfsSite {
    /// The addresses of its server, of which at least one is there.
    pub addresses: Vec<Ipv4Addr>,
    /// Bits of [`site_flag`].
    pub flags: i32,
}

impl AfsSite {
    /// Whether the flag is set.
    pub fn is(&self, flag: i32) -> bool {
        self.flags & flag != 0
    }
}

/// An address at which a server can be: a packet to any other would reach more than one host, or
/// none.
fn is_host(address: &Ipv4Addr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast()
}

impl AfsCell {
    /// The volume of this name or, in decimal digits, number; `None`: the cell has none.
    ///
    /// # Errors
    /// See [`AfsCellError`].
    pub fn volume(&self, name: &[u8]) -> Result<Option<AfsVolume>, AfsCellError> {
        let Ok(name) = VolumeNameArgument::new(name) else { return Ok(None) };
        match self.locations(&LocationsCall::GetEntryByNameU { name: name.clone() }) {
            Ok(LocationsAnswer::GetEntryByNameU { entry }) => self.of_uuids(&entry).map(Some),
            Ok(_) => Err(self.odd("GetEntryByNameU")),
            Err(AfsCellError::Refused { code: VL_NOENT | VL_BADNAME, .. }) => Ok(None),
            Err(AfsCellError::Refused { code: RXGEN_OPCODE, .. }) => self.by_address(name),
            Err(error) => Err(error),
        }
    }

    fn by_address(&self, name: VolumeNameArgument) -> Result<Option<AfsVolume>, AfsCellError> {
        match self.locations(&LocationsCall::GetEntryByNameN { name }) {
            Ok(LocationsAnswer::GetEntryByNameN { entry }) => Ok(Some(of_addresses(&entry))),
            Ok(_) => Err(self.odd("GetEntryByNameN")),
            Err(AfsCellError::Refused { code: VL_NOENT | VL_BADNAME, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn of_uuids(&self, entry: &UuidVldbEntry) -> Result<AfsVolume, AfsCellError> {
        let [rw, ro, backup] = entry.volumes;
        let mut volume = named(entry.name.text(), [rw, ro, backup], entry.flags);
        let count = usize::try_from(entry.site_count).unwrap_or(0).min(entry.servers.len());
        for at in 0..count {
            let flags = entry.site_flags[at];
            let uuid = entry.servers[at];
            let mut addresses = if flags & site_flag::UUID != 0 {
                self.addresses(uuid)?
            } else {
                let [a, b, c, d, ..] = uuid.0;
                vec![Ipv4Addr::new(a, b, c, d)]
            };
            addresses.retain(is_host);
            if !addresses.is_empty() {
                volume.sites.push(AfsSite { addresses, flags });
            }
        }
        Ok(volume)
    }

    /// The addresses of a server; none, if the database does not know it.
    fn addresses(&self, uuid: AfsUuid) -> Result<Vec<Ipv4Addr>, AfsCellError> {
        let attributes =
            AddressAttributes { mask: address_mask::UUID, uuid, ..AddressAttributes::default() };
        match self.locations(&LocationsCall::GetAddrsU { attributes }) {
            Ok(LocationsAnswer::GetAddrsU { addresses, .. }) => {
                Ok(addresses.as_slice().iter().map(|number| Ipv4Addr::from(*number)).collect())
            }
            Ok(_) => Err(self.odd("GetAddrsU")),
            Err(AfsCellError::Refused { code: VL_NOENT, .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn odd(&self, call: &'static str) -> AfsCellError {
        AfsCellError::Odd { server: self.server().unwrap_or(Ipv4Addr::UNSPECIFIED), call }
    }
}

fn of_addresses(entry: &VldbEntry) -> AfsVolume {
    let mut volume = named(entry.name.text(), entry.volumes, entry.flags);
    let count = usize::try_from(entry.site_count).unwrap_or(0).min(entry.servers.len());
    let sites = (0..count).map(|at| AfsSite {
        addresses: vec![Ipv4Addr::from(entry.servers[at])],
        flags: entry.site_flags[at],
    });
    volume.sites.extend(sites.filter(|site| site.addresses.iter().all(is_host)));
    volume
}

/// A volume without sites.
fn named(name: &[u8], [rw, ro, backup]: [u32; 3], flags: i32) -> AfsVolume {
    let there = |flag: i32, number: u32| (flags & flag != 0 && number != 0).then_some(number);
    AfsVolume {
        name: name.to_vec(),
        read_write: there(entry_flag::RW_EXISTS, rw),
        read_only: there(entry_flag::RO_EXISTS, ro),
        backup: there(entry_flag::BACKUP_EXISTS, backup),
        sites: Vec::new(),
    }
}
