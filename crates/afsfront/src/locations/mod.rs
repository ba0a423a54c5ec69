//! VL, the volume location service: the cell database as AFS's clients and tools see it.
//!
//! Model: a volume group is an entry, its sites are the entry's sites. A server is known by its
//! UUID, which is its number in the cell, and by the IPv4 addresses on which it listens; each of
//! AFS's services has its own port there. Standbys are not listed: they serve no client.

mod changes;
mod entries;
mod registering;

use std::net::IpAddr;

use afs3::locations::{
    AddressAttributes, Addresses, ListAttributes, LocationsAnswer, LocationsCall, OldVldbEntry,
    UuidVldbEntry, VlCallBack, VldbEntry, VolumeNameArgument, address_mask, list_mask, site_flag,
};
use afs3::structs::AfsUuid;
use afs3::xdr::{XdrChain, XdrList};
use types::{
    Answer, Call, CellCall, Name, Revised, ServerId, ServerInfo, VolumeGroup, VolumeId, WhichVolume,
};

use self::entries::ListedSite;
pub use self::entries::{EntryForm, PartitionNames, partition_of};
use crate::{Databases, Refusal, Services};

/// The kinds of volume in calls.
mod kind {
    pub const RW: i32 = 0;
    pub const RO: i32 = 1;
    pub const BACKUP: i32 = 2;
}
/// Sites of an entry.
const SITES: usize = 13;
/// Sites of an entry in its old form.
const OLD_SITES: usize = 8;
/// Bytes of a name.
const NAME_BYTES: usize = 64;
/// The greatest index of a server in the databases of stock servers.
const INDEX_MAX: i32 = 254;
/// Groups of one question to the cell database.
const GROUPS_AT_ONCE: u32 = 1000;

/// Codes of the location service. Source: OpenAFS `src/vlserver/vl_errors.et`.
const VL: i32 = 363_520;
const NO_ENTRY: Refusal = Refusal(VL + 4);
const BAD_NAME: Refusal = Refusal(VL + 7);
const BAD_KIND: Refusal = Refusal(VL + 9);
const NOT_PERMITTED: Refusal = Refusal(VL + 26);
const BAD_INDEX: Refusal = Refusal(VL + 29);
const BAD_MASK: Refusal = Refusal(VL + 31);

/// The location service.
pub struct LocationService {
    /// Where changes are made.
    pub databases: Databases,
}

/// The database, as one call sees it.
struct Locations<'a> {
    services: &'a dyn Services,
    servers: Vec<Revised<ServerInfo>>,
}

impl LocationService {
    /// Answers a call.
    ///
    /// # Errors
    /// The code with which the call ends.
    pub fn serve(
        &self,
        services: &dyn Services,
        call: LocationsCall,
    ) -> Result<LocationsAnswer, Refusal> {
        if let LocationsCall::ProbeServer {} = call {
            return Ok(LocationsAnswer::ProbeServer {});
        }
        if is_change(&call) {
            self.databases.need_own()?;
        }
        let at = Locations { services, servers: servers(services)? };
        match call {
            LocationsCall::GetEntryByID { volume, kind } => {
                let entry = Box::new(at.old_entry(&at.by_number(volume, kind)?)?);
                Ok(LocationsAnswer::GetEntryByID { entry })
            }
            LocationsCall::GetEntryByNameO { name } => {
                let entry = Box::new(at.old_entry(&at.by_name(&name)?)?);
                Ok(LocationsAnswer::GetEntryByNameO { entry })
            }
            LocationsCall::GetEntryByIDN { volume, kind } => {
                let entry = Box::new(at.entry(&at.by_number(volume, kind)?)?);
                Ok(LocationsAnswer::GetEntryByIDN { entry })
            }
            LocationsCall::GetEntryByNameN { name } => {
                let entry = Box::new(at.entry(&at.by_name(&name)?)?);
                Ok(LocationsAnswer::GetEntryByNameN { entry })
            }
            LocationsCall::GetEntryByNameU { name } => {
                let entry = Box::new(at.uuid_entry(&at.by_name(&name)?)?);
                Ok(LocationsAnswer::GetEntryByNameU { entry })
            }
            LocationsCall::ListAttributes { attributes } => {
                let all = at.list(&attributes, |group| at.old_entry(group))?;
                let count = all.len() as i32;
                Ok(LocationsAnswer::ListAttributes { count, entries: listed(all)? })
            }
            LocationsCall::ListAttributesN { attributes } => {
                let all = at.list(&attributes, |group| at.entry(group))?;
                let count = all.len() as i32;
                Ok(LocationsAnswer::ListAttributesN { count, entries: listed(all)? })
            }
            LocationsCall::LinkedList { attributes } => {
                let all = at.list(&attributes, |group| at.old_entry(group))?;
                let count = all.len() as i32;
                Ok(LocationsAnswer::LinkedList { count, entries: XdrChain(all) })
            }
            LocationsCall::LinkedListN { attributes } => {
                let all = at.list(&attributes, |group| at.entry(group))?;
                let count = all.len() as i32;
                Ok(LocationsAnswer::LinkedListN { count, entries: XdrChain(all) })
            }
            LocationsCall::GetAddrs { .. } => at.addresses(),
            LocationsCall::GetAddrsU { attributes } => at.addresses_of(&attributes),
            LocationsCall::GetNewVolumeId { count } => {
                at.need_rights()?;
                at.new_number(count)
            }
            LocationsCall::CreateEntryN { entry } => {
                at.need_rights()?;
                at.create_entry(&entry)
            }
            LocationsCall::ReplaceEntryN { volume, kind, entry, release } => {
                at.need_rights()?;
                at.replace_entry((volume, kind), &entry, release)
            }
            LocationsCall::DeleteEntry { volume, kind } => {
                at.need_rights()?;
                at.delete_entry(volume, kind)
            }
            LocationsCall::SetLock { volume, kind, operation } => {
                at.need_rights()?;
                at.lock_entry(volume, kind, operation)
            }
            LocationsCall::ReleaseLock { volume, kind, release } => {
                at.need_rights()?;
                at.unlock_entry(volume, kind, release)
            }
            LocationsCall::RegisterAddrs { uuid, addresses, .. } => {
                at.need_rights()?;
                at.register(uuid, addresses.as_slice())
            }
            LocationsCall::ChangeAddr { old, new } => {
                at.need_rights()?;
                at.change_address(old, new)
            }
            // Old forms.
            LocationsCall::CreateEntry { .. }
            | LocationsCall::ReplaceEntry { .. }
            | LocationsCall::UpdateEntry { .. }
            | LocationsCall::UpdateEntryByName { .. } => Err(NOT_PERMITTED),
            _ => Err(Refusal::UNKNOWN),
        }
    }
}

fn is_change(call: &LocationsCall) -> bool {
    matches!(
        call,
        LocationsCall::CreateEntry { .. }
            | LocationsCall::CreateEntryN { .. }
            | LocationsCall::DeleteEntry { .. }
            | LocationsCall::GetNewVolumeId { .. }
            | LocationsCall::ReplaceEntry { .. }
            | LocationsCall::ReplaceEntryN { .. }
            | LocationsCall::UpdateEntry { .. }
            | LocationsCall::UpdateEntryByName { .. }
            | LocationsCall::SetLock { .. }
            | LocationsCall::ReleaseLock { .. }
            | LocationsCall::ChangeAddr { .. }
            | LocationsCall::RegisterAddrs { .. }
    )
}

fn servers(services: &dyn Services) -> Result<Vec<Revised<ServerInfo>>, Refusal> {
    match services.ask_as_server(Call::Cell(CellCall::Servers))? {
        Answer::Servers(servers) => Ok(servers),
        _ => Err(Refusal::IO),
    }
}

fn listed<T>(all: Vec<T>) -> Result<XdrList<T>, Refusal> {
    XdrList::new(all).map_err(|_| Refusal::TOO_BIG)
}

/// The IPv4 addresses of a server, as numbers, each once.
pub(crate) fn addresses(server: &ServerInfo) -> Vec<u32> {
    let mut all = Vec::new();
    for address in &server.addresses {
        if let IpAddr::V4(address) = address.ip()
            && !all.contains(&u32::from(address))
        {
            all.push(address.into());
        }
    }
    all
}

/// The UUID under which foreign clients know a server.
pub fn server_uuid(server: ServerId) -> AfsUuid {
    AfsUuid(server.0.to_be_bytes())
}

impl Locations<'_> {
    fn group(&self, volume: WhichVolume) -> Result<VolumeGroup, Refusal> {
        self.revised(volume).map(|seen| seen.record)
    }

    fn revised(&self, volume: WhichVolume) -> Result<Revised<VolumeGroup>, Refusal> {
        let answer = self.services.ask_as_server(Call::Cell(CellCall::Group { volume }));
        match answer {
            Ok(Answer::Groups { mut groups, .. }) => groups.pop().ok_or(NO_ENTRY),
            Ok(_) => Err(Refusal::IO),
            Err(types::Fault::NoVolume) => Err(NO_ENTRY),
            Err(fault) => Err(fault.into()),
        }
    }

    /// `kind`: of the volume that must have the number; -1: any.
    fn by_number(&self, volume: u32, kind: i32) -> Result<VolumeGroup, Refusal> {
        self.seen(volume, kind).map(|seen| seen.record)
    }

    /// The same with its revision.
    fn seen(&self, volume: u32, kind: i32) -> Result<Revised<VolumeGroup>, Refusal> {
        if !(afs3::locations::ANY_KIND..=kind::BACKUP).contains(&kind) {
            return Err(BAD_KIND);
        }
        let id = VolumeId(volume.into());
        let group = self.revised(WhichVolume::Id(id))?;
        Self::need_kind(&group.record, id, kind)?;
        Ok(group)
    }

    /// The number is that of the volume of this kind; otherwise: of any.
    fn need_kind(group: &VolumeGroup, id: VolumeId, kind: i32) -> Result<(), Refusal> {
        let is_it = match kind {
            kind::RW => group.read_write == id,
            kind::RO => group.read_only == Some(id),
            kind::BACKUP => group.backup == Some(id),
            _ => true,
        };
        if is_it { Ok(()) } else { Err(NO_ENTRY) }
    }

    /// A name, with the ending of its kind or without, or a number in digits.
    fn by_name(&self, name: &VolumeNameArgument) -> Result<VolumeGroup, Refusal> {
        let name = name.as_bytes();
        if name.len() > NAME_BYTES {
            return Err(BAD_NAME);
        }
        if let Some(number) = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok()) {
            return self.by_number(number, afs3::locations::ANY_KIND);
        }
        let base = [&b".readonly"[..], b".backup"]
            .iter()
            .find_map(|ending| name.strip_suffix(*ending))
            .unwrap_or(name);
        self.group(WhichVolume::Name(Name::new(base).map_err(|_| NO_ENTRY)?))
    }

    fn form(&self) -> EntryForm<'_> {
        EntryForm { servers: &self.servers }
    }

    fn entry(&self, group: &VolumeGroup) -> Result<VldbEntry, Refusal> {
        self.form().entry(group)
    }

    fn old_entry(&self, group: &VolumeGroup) -> Result<OldVldbEntry, Refusal> {
        let entry = self.entry(group)?;
        let count = entry.site_count.min(OLD_SITES as i32);
        let (mut servers, mut partitions, mut site_flags) = ([0; 8], [0; 8], [0; 8]);
        servers.copy_from_slice(&entry.servers[..OLD_SITES]);
        partitions.copy_from_slice(&entry.partitions[..OLD_SITES]);
        site_flags.copy_from_slice(&entry.site_flags[..OLD_SITES]);
        Ok(OldVldbEntry {
            name: entry.name,
            spare: 0,
            site_count: count,
            servers,
            partitions,
            site_flags,
            volumes: entry.volumes,
            clone: entry.clone,
            flags: entry.flags,
        })
    }

    fn uuid_entry(&self, group: &VolumeGroup) -> Result<UuidVldbEntry, Refusal> {
        let mut entry = UuidVldbEntry {
            name: EntryForm::name(group)?,
            site_count: 0,
            servers: [AfsUuid::default(); SITES],
            server_uniques: [0; SITES],
            partitions: [0; SITES],
            site_flags: [0; SITES],
            volumes: EntryForm::numbers(group)?,
            clone: 0,
            flags: EntryForm::flags(group),
            match_index: 0,
            spares: [0; 8],
        };
        for (at, one) in self.form().sites(group).into_iter().enumerate() {
            entry.servers[at] = server_uuid(one.server.record.id);
            entry.server_uniques[at] = one.server.revision.0 as i32;
            entry.partitions[at] = one.partition;
            entry.site_flags[at] = one.flags | site_flag::UUID;
            entry.site_count += 1;
        }
        Ok(entry)
    }

    /// The entries with these attributes.
    fn list<T>(
        &self,
        attributes: &ListAttributes,
        make: impl Fn(&VolumeGroup) -> Result<T, Refusal>,
    ) -> Result<Vec<T>, Refusal> {
        let wants = |bit: u32| attributes.mask & bit != 0;
        if wants(list_mask::VOLUME) {
            return Ok(vec![make(&self.by_number(attributes.volume, afs3::locations::ANY_KIND)?)?]);
        }
        let fits = |one: &ListedSite<'_>| {
            let server = &one.server.record;
            (!wants(list_mask::SERVER) || addresses(server).contains(&attributes.server))
                && (!wants(list_mask::PARTITION) || one.partition == attributes.partition)
        };
        let mut all = Vec::new();
        self.each_group(&mut |Revised { record, .. }| {
            let by_site = wants(list_mask::SERVER) || wants(list_mask::PARTITION);
            let flags = EntryForm::flags(record);
            let has_flag = !wants(list_mask::FLAG) || flags & attributes.flag != 0;
            if has_flag && (!by_site || self.form().sites(record).iter().any(fits)) {
                all.push(make(record)?);
            }
            Ok(())
        })?;
        Ok(all)
    }

    /// All servers. Each is a pointer to its block of addresses, as for servers with a UUID.
    fn addresses(&self) -> Result<LocationsAnswer, Refusal> {
        let count = self.servers.len() as u32;
        let pointers = (0..count).map(|no| 0xff00_0000 | no).collect();
        Ok(LocationsAnswer::GetAddrs {
            callback: VlCallBack::default(),
            count: count as i32,
            addresses: Addresses::new(pointers).map_err(|_| Refusal::TOO_BIG)?,
        })
    }

    fn addresses_of(&self, attributes: &AddressAttributes) -> Result<LocationsAnswer, Refusal> {
        let server = match attributes.mask {
            address_mask::ADDRESS => self
                .servers
                .iter()
                .find(|seen| addresses(&seen.record).contains(&attributes.address))
                .ok_or(NO_ENTRY)?,
            address_mask::INDEX => usize::try_from(attributes.index)
                .ok()
                .and_then(|index| self.servers.get(index.checked_sub(1)?))
                .ok_or(match attributes.index {
                    1..=INDEX_MAX => NO_ENTRY,
                    _ => BAD_INDEX,
                })?,
            address_mask::UUID => self
                .servers
                .iter()
                .find(|seen| server_uuid(seen.record.id) == attributes.uuid)
                .ok_or(NO_ENTRY)?,
            _ => return Err(BAD_MASK),
        };
        let all = addresses(&server.record);
        Ok(LocationsAnswer::GetAddrsU {
            uuid: server_uuid(server.record.id),
            unique: server.revision.0 as i32,
            count: all.len() as i32,
            addresses: Addresses::new(all).map_err(|_| Refusal::TOO_BIG)?,
        })
    }
}
