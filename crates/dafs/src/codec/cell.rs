//! Messages to and from the cell database.

use types::limits::{
    ADDRESSES_MAX, BUSY_BYTES_MAX, NAME_BYTES_MAX, PARTITION_NAME_BYTES_MAX, SERVER_KEYS_MAX,
    SERVER_NAME_BYTES_MAX, SITES_MAX,
};
use types::{
    Answer, Busy, CellCall, Changed, KeyPrint, PrincipalId, Revised, Revision, ServerId,
    ServerInfo, Site, SiteKind, VolumeGroup, VolumeId,
};

use super::Procedure;
use super::fields::{fitting, get_addresses, get_text, put_addresses, put_text};
use super::fields::{get_which, put_which};
use super::pts::{
    get_subdomain_call, get_which_principal, put_subdomain_call, put_which_principal,
};
use crate::WireError;
use crate::wire::{FieldReader, Writer};

/// Bytes of a group without name, sites and the running task.
const GROUP_BYTES: usize = 46;
/// Bytes of a site without its partition's name.
const SITE_BYTES: usize = 27;
/// Bytes of a server without name, addresses and keys.
const SERVER_BYTES: usize = 30;
/// Bytes of a change.
const CHANGE_BYTES: usize = 25;

const CHANGED_GROUP: u8 = 1;
const CHANGED_SERVER: u8 = 2;
const CHANGED_PRINCIPAL: u8 = 3;
const CHANGED_PRINCIPALS: u8 = 4;
const CHANGED_RULES: u8 = 5;

pub(super) fn put_cell_call<'w>(to: &'w mut Writer, call: &CellCall) -> &'w mut Writer {
    match call {
        CellCall::Group { volume } => put_which(to, volume),
        CellCall::Groups { after, max } => to.u64(after.0).u32(*max),
        CellCall::PutGroup { group, expected } => {
            put_group(to, &Revised { record: &**group, revision: *expected })
        }
        CellCall::RemoveGroup { read_write, expected } => to.u64(read_write.0).u64(expected.0),
        CellCall::TakeNumbers { above, count } => to.u64(above.0).u32(*count),
        CellCall::Servers | CellCall::Me => to,
        CellCall::PutServer { server, expected } => {
            put_server(to, &Revised { record: server, revision: *expected })
        }
        CellCall::RemoveServer { id, expected } => to.u128(id.0).u64(expected.0),
        CellCall::Changes { since, max } => to.u64(since.0).u32(*max),
        CellCall::Principal { which } => put_which_principal(to, which),
        CellCall::Subdomain { principal, host } => put_subdomain_call(to, *principal, *host),
        CellCall::Watch { server, since, max } => to.u128(server.0).u64(since.0).u32(*max),
    }
}

pub(super) fn get_cell_call(
    from: &mut FieldReader<'_>,
    procedure: Procedure,
) -> Result<CellCall, WireError> {
    Ok(match procedure {
        Procedure::CellGroup => CellCall::Group { volume: get_which(from)? },
        Procedure::CellGroups => {
            CellCall::Groups { after: VolumeId(from.u64()?), max: from.u32()? }
        }
        Procedure::CellPutGroup => {
            let Revised { record, revision } = get_group(from)?;
            CellCall::PutGroup { group: Box::new(record), expected: revision }
        }
        Procedure::CellRemoveGroup => CellCall::RemoveGroup {
            read_write: VolumeId(from.u64()?),
            expected: Revision(from.u64()?),
        },
        Procedure::CellTakeNumbers => {
            CellCall::TakeNumbers { above: VolumeId(from.u64()?), count: from.u32()? }
        }
        Procedure::CellServers => CellCall::Servers,
        Procedure::CellPutServer => {
            let Revised { record: server, revision: expected } = get_server(from)?;
            CellCall::PutServer { server, expected }
        }
        Procedure::CellRemoveServer => {
            CellCall::RemoveServer { id: ServerId(from.u128()?), expected: Revision(from.u64()?) }
        }
        Procedure::CellChanges => {
            CellCall::Changes { since: Revision(from.u64()?), max: from.u32()? }
        }
        Procedure::CellMe => CellCall::Me,
        Procedure::CellPrincipal => CellCall::Principal { which: get_which_principal(from)? },
        Procedure::CellSubdomain => get_subdomain_call(from)?,
        Procedure::CellWatch => CellCall::Watch {
            server: ServerId(from.u128()?),
            since: Revision(from.u64()?),
            max: from.u32()?,
        },
        other => {
            return Err(WireError::BadValue { what: "procedure of the cell", value: other as u64 });
        }
    })
}

/// Omits groups that do not fit, and then clears `end`.
pub(super) fn put_groups(to: &mut Writer, groups: &[Revised<VolumeGroup>], end: bool) {
    let fit = fitting(groups, |seen| {
        let sites: usize =
            seen.record.sites.iter().map(|site| SITE_BYTES + site.partition.len()).sum();
        let busy =
            seen.record.busy.as_ref().map_or(0, |busy| busy.operation.len() + busy.by.len() + 12);
        GROUP_BYTES + seen.record.name.as_bytes().len() + sites + busy
    });
    to.u32(fit as u32).bool(end && fit == groups.len());
    for Revised { record, revision } in &groups[..fit] {
        put_group(to, &Revised { record, revision: *revision });
    }
}

pub(super) fn get_groups(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let (count, end) = (from.u32()? as usize, from.bool("end")?);
    from.check_room(count, GROUP_BYTES)?;
    let groups = (0..count).map(|_| get_group(from)).collect::<Result<_, _>>()?;
    Ok(Answer::Groups { groups, end })
}

fn put_group<'w>(to: &'w mut Writer, seen: &Revised<&VolumeGroup>) -> &'w mut Writer {
    let group = seen.record;
    let number = |number: Option<VolumeId>| number.map_or(0, |number| number.0);
    to.require(
        group.read_only != Some(VolumeId(0)) && group.backup != Some(VolumeId(0)),
        "number of a volume",
        0,
    )
    .u64(seen.revision.0)
    .u64(group.read_write.0)
    .u64(number(group.read_only))
    .u64(number(group.backup))
    .u64(group.released_epoch)
    .name_length(&group.name)
    .length16("sites", group.sites.len(), SITES_MAX)
    .u16(group.busy.is_some().into())
    .name(&group.name);
    for site in &group.sites {
        to.u128(site.server.0).u64(site.epoch).u8(site.kind as u8);
        put_text(to, "bytes of a partition's name", &site.partition, PARTITION_NAME_BYTES_MAX);
    }
    if let Some(busy) = &group.busy {
        to.raw(&busy.since_secs.to_le_bytes());
        put_text(to, "bytes of an operation", &busy.operation, BUSY_BYTES_MAX);
        put_text(to, "bytes of who is at work", &busy.by, BUSY_BYTES_MAX);
    }
    to
}

fn get_group(from: &mut FieldReader<'_>) -> Result<Revised<VolumeGroup>, WireError> {
    let (revision, read_write) = (Revision(from.u64()?), VolumeId(from.u64()?));
    let (read_only, backup) = (from.u64()?, from.u64()?);
    let number = |number| (number != 0).then_some(VolumeId(number));
    let released_epoch = from.u64()?;
    let length = from.length16("name bytes", NAME_BYTES_MAX)?;
    let sites = from.length16("sites", SITES_MAX)?;
    let is_busy = match from.u16()? {
        0 => false,
        1 => true,
        value => return Err(WireError::BadValue { what: "busy", value: value.into() }),
    };
    let name = from.name(length)?;
    from.check_room(sites, SITE_BYTES)?;
    let sites = (0..sites).map(|_| get_site(from)).collect::<Result<_, _>>()?;
    let busy = if is_busy { Some(get_busy(from)?) } else { None };
    let (read_only, backup) = (number(read_only), number(backup));
    Ok(Revised {
        record: VolumeGroup { name, read_write, read_only, backup, sites, released_epoch, busy },
        revision,
    })
}

fn get_site(from: &mut FieldReader<'_>) -> Result<Site, WireError> {
    let (server, epoch) = (ServerId(from.u128()?), from.u64()?);
    let kind = from.choice("kind of site", SiteKind::from_wire)?;
    let partition = get_text(from, "bytes of a partition's name", PARTITION_NAME_BYTES_MAX)?;
    Ok(Site { server, partition, kind, epoch })
}

fn get_busy(from: &mut FieldReader<'_>) -> Result<Busy, WireError> {
    let since_secs = i64::from_le_bytes(from.array()?);
    let operation = get_text(from, "bytes of an operation", BUSY_BYTES_MAX)?;
    let by = get_text(from, "bytes of who is at work", BUSY_BYTES_MAX)?;
    Ok(Busy { operation, by, since_secs })
}

/// All servers of a cell fit: there are [`types::limits::SERVERS_MAX`] at most.
pub(super) fn put_servers(to: &mut Writer, servers: &[Revised<ServerInfo>]) {
    to.u32(servers.len() as u32);
    for Revised { record, revision } in servers {
        put_server(to, &Revised { record, revision: *revision });
    }
}

pub(super) fn get_servers(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let count = from.u32()? as usize;
    from.check_room(count, SERVER_BYTES)?;
    (0..count).map(|_| get_server(from)).collect::<Result<_, _>>().map(Answer::Servers)
}

fn put_server<'w>(to: &'w mut Writer, seen: &Revised<&ServerInfo>) -> &'w mut Writer {
    let server = seen.record;
    to.u64(seen.revision.0).u128(server.id.0);
    to.length16("addresses", server.addresses.len(), ADDRESSES_MAX);
    to.length16("keys of a server", server.keys.len(), SERVER_KEYS_MAX);
    put_text(to, "bytes of a server's name", &server.name, SERVER_NAME_BYTES_MAX);
    put_addresses(to, &server.addresses);
    server.keys.iter().fold(to, |to, key| to.raw(&key.0))
}

fn get_server(from: &mut FieldReader<'_>) -> Result<Revised<ServerInfo>, WireError> {
    let (revision, id) = (Revision(from.u64()?), ServerId(from.u128()?));
    let count = from.length16("addresses", ADDRESSES_MAX)?;
    let keys = from.length16("keys of a server", SERVER_KEYS_MAX)?;
    let name = get_text(from, "bytes of a server's name", SERVER_NAME_BYTES_MAX)?;
    let addresses = get_addresses(from, count)?;
    let keys = (0..keys).map(|_| from.array().map(KeyPrint)).collect::<Result<_, _>>()?;
    Ok(Revised { record: ServerInfo { id, name, addresses, keys }, revision })
}

/// Omits changes that do not fit: the caller's next request begins there.
pub(super) fn put_changes(
    to: &mut Writer,
    at: Revision,
    changes: Option<&Vec<(Revision, Changed)>>,
) {
    let changes = changes.map(|all| &all[..fitting(all, |_| CHANGE_BYTES)]);
    to.u64(at.0).bool(changes.is_some()).u32(changes.map_or(0, <[_]>::len) as u32);
    for (revision, changed) in changes.unwrap_or_default() {
        to.u64(revision.0);
        match changed {
            Changed::Group(number) => to.u128(number.0.into()).u8(CHANGED_GROUP),
            Changed::Server(id) => to.u128(id.0).u8(CHANGED_SERVER),
            Changed::Principal(id) => to.u128(id.0.cast_unsigned().into()).u8(CHANGED_PRINCIPAL),
            Changed::Principals => to.u128(0).u8(CHANGED_PRINCIPALS),
            Changed::Rules => to.u128(0).u8(CHANGED_RULES),
        };
    }
}

pub(super) fn get_changes(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let (at, known, count) = (Revision(from.u64()?), from.bool("known")?, from.u32()? as usize);
    if !known && count > 0 {
        return Err(WireError::BadValue { what: "changes", value: count as u64 });
    }
    from.check_room(count, CHANGE_BYTES)?;
    let change = |_| {
        let (revision, id) = (Revision(from.u64()?), from.u128()?);
        let changed = match (from.u8()?, u64::try_from(id)) {
            (CHANGED_GROUP, Ok(number)) => Changed::Group(VolumeId(number)),
            (CHANGED_SERVER, _) => Changed::Server(ServerId(id)),
            (CHANGED_PRINCIPAL, Ok(number)) if u32::try_from(number).is_ok() => {
                Changed::Principal(PrincipalId((number as u32).cast_signed()))
            }
            (CHANGED_PRINCIPALS, Ok(0)) => Changed::Principals,
            (CHANGED_RULES, Ok(0)) => Changed::Rules,
            (kind, _) => {
                return Err(WireError::BadValue { what: "kind of change", value: kind.into() });
            }
        };
        Ok((revision, changed))
    };
    let changes = (0..count).map(change).collect::<Result<Vec<_>, _>>()?;
    Ok(Answer::Changes { at, changes: known.then_some(changes) })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn an_address_is_of_its_own_family_again() {
        let addresses: Vec<SocketAddr> = ["127.0.0.1:7000", "[::1]:7001", "[fe80::1]:2"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        let server = ServerInfo {
            id: ServerId(7),
            name: "one".into(),
            addresses,
            keys: vec![KeyPrint([7; 32])],
        };
        let mut writer = Writer::new();
        put_server(&mut writer, &Revised { record: &server, revision: Revision(3) });
        let bytes = writer.end().unwrap();
        assert_eq!(
            get_server(&mut FieldReader::new(&bytes)).unwrap(),
            Revised { record: server, revision: Revision(3) }
        );
    }

    #[test]
    fn elements_that_do_not_fit_are_cut_off() {
        let site = Site {
            server: ServerId(1),
            partition: "p".repeat(255),
            kind: SiteKind::ReadOnly,
            epoch: 1,
        };
        let mut group =
            VolumeGroup::new(types::Name::new(&[b'x'; 255]).unwrap(), VolumeId(1), site.clone());
        group.sites = vec![site; 100];
        group.busy = Some(Busy { operation: "o".repeat(255), by: "b".repeat(255), since_secs: -1 });
        let groups = vec![Revised { record: group, revision: Revision(1) }; 40];
        let mut writer = Writer::new();
        put_groups(&mut writer, &groups, true);
        let bytes = writer.end().unwrap();
        let Answer::Groups { groups: cut, end } =
            get_groups(&mut FieldReader::new(&bytes)).unwrap()
        else {
            panic!()
        };
        assert!(!end && !cut.is_empty() && cut.len() < 40, "{}", cut.len());
        assert_eq!(cut, groups[..cut.len()]);
    }
}
