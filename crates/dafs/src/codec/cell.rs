//! Messages to and from the cell database.

use types::limits::{
    ADDRESSES_MAX, BUSY_BYTES_MAX, CELL_KEY_BYTES_MAX, INVITATION_USES_MAX, JOIN_FACTS_BYTES_MAX,
    JOIN_REQUEST_BYTES_MAX, JOIN_SECRETS_BYTES_MAX, NAME_BYTES_MAX, PARTITION_NAME_BYTES_MAX,
    PROGRAM_BYTES_MAX, SERVER_KEYS_MAX, SERVER_NAME_BYTES_MAX, SERVERS_MAX, SITES_MAX,
};
use types::{
    Answer, Busy, CellCall, CellLevel, Changed, Invitation, InvitedServer, KeyPrint, LevelAct,
    PrincipalId, Revised, Revision, Secret, ServerId, ServerInfo, ServerProgram, ServerRoles, Site,
    VolumeGroup, VolumeId,
};

use super::Procedure;
use super::layout::{
    Layout, Long, Plain, Short, ShortList, fitting, get_all, get_page, layout, messages, put_page,
    record,
};
use crate::WireError;
use crate::wire::{FieldReader, Writer};

/// Bytes of a group without name, sites and the running task.
const GROUP_BYTES: usize = 46;
/// Bytes of a site without its partition's name.
const SITE_BYTES: usize = 27;
/// Bytes of a server without name, addresses and keys.
const SERVER_BYTES: usize = 30;
const PARTITION: Short = Short("bytes of a partition's name", PARTITION_NAME_BYTES_MAX);
const SERVER: Short = Short("bytes of a server's name", SERVER_NAME_BYTES_MAX);
const KEY: Short = Short("bytes of a record's key", CELL_KEY_BYTES_MAX);
const REQUEST: Short = Short("bytes of a request to join", JOIN_REQUEST_BYTES_MAX);
const FACTS: Long = Long("bytes about a cell", JOIN_FACTS_BYTES_MAX);
const SECRETS: Long = Long("bytes of keys", JOIN_SECRETS_BYTES_MAX);
/// Bytes of an invitation without name and servers.
const INVITATION_BYTES: usize = 72;
/// Bytes of a server that was let in, without its name.
const INVITED_BYTES: usize = 42;
const INVITED: ShortList<Plain> =
    ShortList("servers of an invitation", INVITATION_USES_MAX, INVITED_BYTES, Plain);
/// Bytes of a change.
const CHANGE_BYTES: usize = 25;

const CHANGED_GROUP: u8 = 1;
const CHANGED_SERVER: u8 = 2;
const CHANGED_PRINCIPAL: u8 = 3;
const CHANGED_PRINCIPALS: u8 = 4;
const CHANGED_RULES: u8 = 5;

messages! {
    CellCall by Procedure:
    fn put_cell_call(to);
    fn get_cell_call(from, number);
    {
        CellGroup => Group { volume }
        CellGroups => Groups { after, max }
        CellRemoveGroup => RemoveGroup { read_write, expected }
        CellTakeNumbers => TakeNumbers { above, count }
        CellServers => Servers {}
        CellRemoveServer => RemoveServer { id, expected }
        CellChanges => Changes { since, max }
        CellMe => Me {}
        CellPrincipal => Principal { which }
        CellSubdomain => Subdomain { principal, host }
        CellWatch => Watch { server, since, max }
        CellCopy => Copy { copy, skip, after: KEY }
        CellInvite => Invite { seconds, uses, roles, by, public, name: SERVER }
        CellInvitations => Invitations { after, max }
        CellUninvite => Uninvite { number }
        CellRedeem => Redeem { request: REQUEST }
        CellJoin => Join { request: REQUEST }
        CellCertify => Certify { request: REQUEST }
        CellWithdrawn => Withdrawn {}
        CellServerRoles => ServerRoles {}
        CellLevel => Level { act }
    }
    ()
    put {
        CellCall::PutGroup { group, expected } => put_group(to, group, *expected),
        CellCall::PutServer { server, expected } => put_server(to, server, *expected),
    }
    get {
        Procedure::CellPutGroup => {
            let Revised { record, revision } = Plain.get(from)?;
            CellCall::PutGroup { group: Box::new(record), expected: revision }
        }
        Procedure::CellPutServer => {
            let Revised { record: server, revision: expected } = Plain.get(from)?;
            CellCall::PutServer { server, expected }
        }
        other => {
            return Err(WireError::BadValue { what: "procedure of the cell", value: other as u64 });
        }
    }
}

const PROGRAM: Short = Short("bytes of a program's version", PROGRAM_BYTES_MAX);
/// Bytes of a server's program without its version.
const PROGRAM_BYTES: usize = 22;
const PROGRAMS: ShortList<Plain> = ShortList("programs", SERVERS_MAX, PROGRAM_BYTES, Plain);

record!(ServerProgram { server, knows, version: PROGRAM });
record!(CellLevel { level, programs: PROGRAMS });

const LEVEL_ASK: u8 = 1;
const LEVEL_TELL: u8 = 2;
const LEVEL_RAISE: u8 = 3;

impl Layout<LevelAct> for Plain {
    fn put(&self, to: &mut Writer, value: &LevelAct) {
        match value {
            LevelAct::Ask => drop(to.u8(LEVEL_ASK)),
            LevelAct::Tell(program) => {
                to.u8(LEVEL_TELL);
                self.put(to, program);
            }
            LevelAct::Raise(level) => drop(to.u8(LEVEL_RAISE).u32(*level)),
        }
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<LevelAct, WireError> {
        Ok(match from.u8()? {
            LEVEL_ASK => LevelAct::Ask,
            LEVEL_TELL => LevelAct::Tell(self.get(from)?),
            LEVEL_RAISE => LevelAct::Raise(from.u32()?),
            other => return Err(WireError::BadValue { what: "act", value: other.into() }),
        })
    }
}

record!(Invitation {
    number,
    public,
    roles: Roles,
    uses,
    since,
    until,
    by,
    name: SERVER,
    used: INVITED,
});

/// Roles that this program knows.
struct Roles;

impl Layout<ServerRoles> for Roles {
    fn put(&self, to: &mut Writer, value: &ServerRoles) {
        to.u32(value.bits());
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<ServerRoles, WireError> {
        let bits = from.u32()?;
        let unknown = WireError::BadValue { what: "roles", value: bits.into() };
        ServerRoles::from_bits(bits).ok_or(unknown)
    }
}

impl Layout<InvitedServer> for Plain {
    fn put(&self, to: &mut Writer, value: &InvitedServer) {
        self.put(to, &value.key.0);
        self.put(to, &value.at);
        SERVER.put(to, &value.name);
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<InvitedServer, WireError> {
        let (key, at) = (from.array().map(KeyPrint)?, self.get(from)?);
        Ok(InvitedServer { key, name: SERVER.get(from)?, at })
    }
}

pub(super) fn put_invitations(to: &mut Writer, invitations: &[Invitation], end: bool) {
    let bytes_of = |one: &Invitation| {
        let used: usize = one.used.iter().map(|used| INVITED_BYTES + used.name.len()).sum();
        INVITATION_BYTES + one.name.len() + used
    };
    put_page(to, invitations, end, bytes_of, &Plain);
}

pub(super) fn get_invitations(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let page = get_page(from, INVITATION_BYTES, &Plain);
    page.map(|(invitations, end)| Answer::Invitations { invitations, end })
}

pub(super) fn put_joined(to: &mut Writer, facts: &String, secrets: &Secret) {
    FACTS.put(to, facts);
    SECRETS.put(to, secrets);
}

pub(super) fn get_joined(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    Ok(Answer::Joined { facts: FACTS.get(from)?, secrets: SECRETS.get(from)? })
}

record!(Site { server, epoch, kind, partition: PARTITION });
record!(Busy {
    since_secs,
    operation: Short("bytes of an operation", BUSY_BYTES_MAX),
    by: Short("bytes of who is at work", BUSY_BYTES_MAX),
});

pub(super) fn put_groups(to: &mut Writer, groups: &[Revised<VolumeGroup>], end: bool) {
    let bytes_of = |seen: &Revised<VolumeGroup>| {
        let sites: usize =
            seen.record.sites.iter().map(|site| SITE_BYTES + site.partition.len()).sum();
        let busy =
            seen.record.busy.as_ref().map_or(0, |busy| busy.operation.len() + busy.by.len() + 12);
        GROUP_BYTES + seen.record.name.as_bytes().len() + sites + busy
    };
    put_page(to, groups, end, bytes_of, &Plain);
}

pub(super) fn get_groups(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    get_page(from, GROUP_BYTES, &Plain).map(|(groups, end)| Answer::Groups { groups, end })
}

fn put_group(to: &mut Writer, group: &VolumeGroup, revision: Revision) {
    let is_named = group.read_only != Some(VolumeId(0)) && group.backup != Some(VolumeId(0));
    to.require(is_named, "number of a volume", 0).u64(revision.0).u64(group.read_write.0);
    Plain.put(to, &group.read_only);
    Plain.put(to, &group.backup);
    to.u64(group.released_epoch)
        .name_length(&group.name)
        .length16("sites", group.sites.len(), SITES_MAX)
        .u16(group.busy.is_some().into())
        .name(&group.name);
    group.sites.iter().for_each(|site| Plain.put(to, site));
    group.busy.iter().for_each(|busy| Plain.put(to, busy));
}

impl Layout<Revised<VolumeGroup>> for Plain {
    fn put(&self, to: &mut Writer, seen: &Revised<VolumeGroup>) {
        put_group(to, &seen.record, seen.revision);
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<Revised<VolumeGroup>, WireError> {
        let (revision, read_write) = (self.get(from)?, self.get(from)?);
        let (read_only, backup, released_epoch) = (self.get(from)?, self.get(from)?, from.u64()?);
        let length = from.length16("name bytes", NAME_BYTES_MAX)?;
        let sites = from.length16("sites", SITES_MAX)?;
        let is_busy = match from.u16()? {
            0 => false,
            1 => true,
            value => return Err(WireError::BadValue { what: "busy", value: value.into() }),
        };
        let name = from.name(length)?;
        let sites = get_all(from, sites, SITE_BYTES, self)?;
        let busy = is_busy.then(|| self.get(from)).transpose()?;
        let record =
            VolumeGroup { name, read_write, read_only, backup, sites, released_epoch, busy };
        Ok(Revised { record, revision })
    }
}

/// All servers of a cell fit: there are [`types::limits::SERVERS_MAX`] at most.
pub(super) fn put_servers(to: &mut Writer, servers: &[Revised<ServerInfo>]) {
    to.u32(servers.len() as u32);
    servers.iter().for_each(|server| Plain.put(to, server));
}

pub(super) fn get_servers(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let count = from.u32()? as usize;
    get_all(from, count, SERVER_BYTES, &Plain).map(Answer::Servers)
}

fn put_server(to: &mut Writer, server: &ServerInfo, revision: Revision) {
    to.u64(revision.0).u128(server.id.0);
    to.length16("addresses", server.addresses.len(), ADDRESSES_MAX);
    to.length16("keys of a server", server.keys.len(), SERVER_KEYS_MAX);
    SERVER.put(to, &server.name);
    server.addresses.iter().for_each(|address| Plain.put(to, address));
    server.keys.iter().for_each(|key| Plain.put(to, &key.0));
}

impl Layout<Revised<ServerInfo>> for Plain {
    fn put(&self, to: &mut Writer, seen: &Revised<ServerInfo>) {
        put_server(to, &seen.record, seen.revision);
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<Revised<ServerInfo>, WireError> {
        let (revision, id) = (self.get(from)?, self.get(from)?);
        let count = from.length16("addresses", ADDRESSES_MAX)?;
        let keys = from.length16("keys of a server", SERVER_KEYS_MAX)?;
        let name = SERVER.get(from)?;
        let addresses = get_all(from, count, 0, self)?;
        let keys = (0..keys).map(|_| from.array().map(KeyPrint)).collect::<Result<_, _>>()?;
        Ok(Revised { record: ServerInfo { id, name, addresses, keys }, revision })
    }
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

    use types::SiteKind;

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
        put_server(&mut writer, &server, Revision(3));
        let bytes = writer.end().unwrap();
        assert_eq!(
            Layout::<Revised<ServerInfo>>::get(&Plain, &mut FieldReader::new(&bytes)).unwrap(),
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
