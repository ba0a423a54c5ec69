//! Values of records: JSON with a version, so that later programs can add fields, and behind it the
//! crc32c of key and JSON.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use types::{
    Busy, Changed, KeyPrint, Name, Principal, PrincipalId, PrincipalKind, Revised, Revision,
    ServerId, ServerIdError, ServerInfo, ServerProgram, ServerRoles, Site, SiteKind, VolumeGroup,
    VolumeId,
};

use crate::CellError;
use crate::key::Letter;

mod invitations;
mod rules;

pub(crate) use invitations::{decode_invitation, encode_invitation};
pub(crate) use rules::{decode_fence, decode_mandate, encode_fence, encode_mandate};

/// Of all records.
const VERSION: u32 = 1;
const SUM_BYTES: usize = 4;

/// The envelope of every record.
#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    version: u32,
    revision: u64,
    record: T,
}

/// A name that is not UTF-8 is stored as a list of numbers.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Text {
    Plain(String),
    Bytes(Vec<u8>),
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
struct IdForm(ServerId);

impl From<IdForm> for String {
    fn from(id: IdForm) -> String {
        id.0.to_string()
    }
}

impl TryFrom<String> for IdForm {
    type Error = ServerIdError;
    fn try_from(text: String) -> Result<Self, ServerIdError> {
        text.parse().map(IdForm)
    }
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
struct PrintForm(KeyPrint);

impl From<PrintForm> for String {
    fn from(print: PrintForm) -> String {
        print.0.to_string()
    }
}

impl TryFrom<String> for PrintForm {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(PrintForm)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KindForm {
    ReadWrite,
    ReadOnly,
    Standby,
    AsyncStandby,
}

#[derive(Serialize, Deserialize)]
struct SiteForm {
    server: IdForm,
    partition: String,
    kind: KindForm,
    epoch: u64,
}

#[derive(Serialize, Deserialize)]
struct BusyForm {
    operation: String,
    by: String,
    since_secs: i64,
}

#[derive(Serialize, Deserialize)]
struct GroupForm {
    name: Text,
    read_write: u64,
    read_only: Option<u64>,
    backup: Option<u64>,
    sites: Vec<SiteForm>,
    released_epoch: u64,
    busy: Option<BusyForm>,
}

#[derive(Serialize, Deserialize)]
struct ServerForm {
    id: IdForm,
    name: String,
    addresses: Vec<std::net::SocketAddr>,
    /// Absent in records that are older than keys.
    #[serde(default)]
    keys: Vec<PrintForm>,
    /// Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    roles: Option<String>,
    /// Absent: the server has told none. Programs of the first level neither read nor keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    program: Option<ProgramForm>,
}

#[derive(Serialize, Deserialize)]
struct ProgramForm {
    knows: u32,
    version: String,
}

/// The parts of a server's record that the server does not enter with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    /// The roles of a server that does not have all. A role that this program does not know counts
    /// for nothing.
    pub(crate) roles: Option<ServerRoles>,
    /// The program that the server has told.
    pub(crate) program: Option<ServerProgram>,
}

/// Why a server's record no longer lists a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Past {
    /// The server lists others instead.
    Replaced,
    /// An administrator withdrew it, or removed the server.
    Withdrawn,
}

#[derive(Serialize, Deserialize)]
struct PastForm {
    /// The server that had it, for readers of the record.
    server: IdForm,
    how: Past,
}

/// The database's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CellCounters {
    pub(crate) revision: u64,
    pub(crate) next_number: u64,
    /// Changes after this revision are stored.
    pub(crate) oldest_change: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ChangeForm {
    Group(u64),
    Server(IdForm),
    Principal(i32),
    Principals,
    Rules,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PrincipalKindForm {
    User,
    Group,
    Hosts,
}

#[derive(Serialize, Deserialize)]
struct PrincipalForm {
    id: i32,
    kind: PrincipalKindForm,
    name: String,
    owner: i32,
    creator: i32,
    privacy: String,
    group_quota: u32,
    uid: Option<u32>,
    gid: Option<u32>,
    tokens_after: i64,
    locked: bool,
}

fn encode<T: Serialize>(key: &[u8], revision: Revision, record: T) -> Vec<u8> {
    let envelope = Envelope { version: VERSION, revision: revision.0, record };
    let mut bytes =
        serde_json::to_vec(&envelope).expect("these forms are plain data with string keys");
    let sum = crc32c::crc32c_append(crc32c::crc32c(key), &bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode<T: DeserializeOwned>(
    what: &str,
    key: &[u8],
    value: &[u8],
) -> Result<Revised<T>, CellError> {
    let damaged = |why: &str| CellError::Damaged(format!("{what} {} ({why})", key.escape_ascii()));
    let (json, sum) = value.split_last_chunk::<SUM_BYTES>().ok_or_else(|| damaged("too short"))?;
    if crc32c::crc32c_append(crc32c::crc32c(key), json) != u32::from_le_bytes(*sum) {
        return Err(damaged("checksum"));
    }
    let envelope: Envelope<T> =
        serde_json::from_slice(json).map_err(|error| damaged(&error.to_string()))?;
    if envelope.version != VERSION {
        return Err(damaged("made by a later version"));
    }
    Ok(Revised { record: envelope.record, revision: Revision(envelope.revision) })
}

fn site_form(site: &Site) -> SiteForm {
    let kind = match site.kind {
        SiteKind::ReadWrite => KindForm::ReadWrite,
        SiteKind::ReadOnly => KindForm::ReadOnly,
        SiteKind::Standby => KindForm::Standby,
        SiteKind::AsyncStandby => KindForm::AsyncStandby,
    };
    SiteForm {
        server: IdForm(site.server),
        partition: site.partition.clone(),
        kind,
        epoch: site.epoch,
    }
}

fn site_of(form: SiteForm) -> Site {
    let kind = match form.kind {
        KindForm::ReadWrite => SiteKind::ReadWrite,
        KindForm::ReadOnly => SiteKind::ReadOnly,
        KindForm::Standby => SiteKind::Standby,
        KindForm::AsyncStandby => SiteKind::AsyncStandby,
    };
    Site { server: form.server.0, partition: form.partition, kind, epoch: form.epoch }
}

fn busy_form(busy: &Busy) -> BusyForm {
    BusyForm { operation: busy.operation.clone(), by: busy.by.clone(), since_secs: busy.since_secs }
}

fn busy_of(form: BusyForm) -> Busy {
    Busy { operation: form.operation, by: form.by, since_secs: form.since_secs }
}

pub(crate) fn encode_group(key: &[u8], revision: Revision, group: &VolumeGroup) -> Vec<u8> {
    let bytes = group.name.as_bytes();
    let form = GroupForm {
        name: match std::str::from_utf8(bytes) {
            Ok(text) => Text::Plain(text.to_owned()),
            Err(_) => Text::Bytes(bytes.to_vec()),
        },
        read_write: group.read_write.0,
        read_only: group.read_only.map(|number| number.0),
        backup: group.backup.map(|number| number.0),
        sites: group.sites.iter().map(site_form).collect(),
        released_epoch: group.released_epoch,
        busy: group.busy.as_ref().map(busy_form),
    };
    encode(key, revision, form)
}

pub(crate) fn decode_group(key: &[u8], value: &[u8]) -> Result<Revised<VolumeGroup>, CellError> {
    let Revised { record: form, revision } = decode::<GroupForm>("group", key, value)?;
    let name = match &form.name {
        Text::Plain(text) => Name::new(text.as_bytes()),
        Text::Bytes(bytes) => Name::new(bytes),
    };
    let name = name
        .map_err(|error| CellError::Damaged(format!("group {} ({error})", key.escape_ascii())))?;
    let group = VolumeGroup {
        name,
        read_write: VolumeId(form.read_write),
        read_only: form.read_only.map(VolumeId),
        backup: form.backup.map(VolumeId),
        sites: form.sites.into_iter().map(site_of).collect(),
        released_epoch: form.released_epoch,
        busy: form.busy.map(busy_of),
    };
    Ok(Revised { record: group, revision })
}

pub(crate) fn encode_server(
    key: &[u8],
    revision: Revision,
    server: &ServerInfo,
    noted: Noted,
) -> Vec<u8> {
    let Noted { roles, program } = noted;
    let keys = server.keys.iter().copied().map(PrintForm).collect();
    let (name, addresses) = (server.name.clone(), server.addresses.clone());
    let roles = roles.filter(|roles| *roles != ServerRoles::ALL).map(|roles| roles.to_string());
    let program = program.map(|one| ProgramForm { knows: one.knows, version: one.version });
    let form = ServerForm { id: IdForm(server.id), name, addresses, keys, roles, program };
    encode(key, revision, form)
}

pub(crate) fn decode_server(key: &[u8], value: &[u8]) -> Result<Revised<ServerInfo>, CellError> {
    let Revised { record: form, revision } = decode::<ServerForm>("server", key, value)?;
    let keys = form.keys.into_iter().map(|print| print.0).collect();
    Ok(Revised {
        record: ServerInfo { id: form.id.0, name: form.name, addresses: form.addresses, keys },
        revision,
    })
}

pub(crate) fn decode_noted(key: &[u8], value: &[u8]) -> Result<Noted, CellError> {
    let ServerForm { id, roles, program, .. } = decode("server", key, value)?.record;
    let roles = roles.map(|text| {
        let known = text.split(',').filter_map(|role| role.parse::<ServerRoles>().ok());
        known.fold(ServerRoles::NONE, ServerRoles::with)
    });
    let program = program.map(|one| {
        let ProgramForm { knows, version } = one;
        ServerProgram { server: id.0, knows, version }
    });
    Ok(Noted { roles, program })
}

pub(crate) fn encode_past_key(key: &[u8], revision: Revision, of: ServerId, how: Past) -> Vec<u8> {
    encode(key, revision, PastForm { server: IdForm(of), how })
}

pub(crate) fn decode_past_key(key: &[u8], value: &[u8]) -> Result<Past, CellError> {
    Ok(decode::<PastForm>("past key", key, value)?.record.how)
}

/// As [`decode_past_key`], with the revision of the record.
pub(crate) fn decode_past_key_at(key: &[u8], value: &[u8]) -> Result<(Past, Revision), CellError> {
    let Revised { record, revision } = decode::<PastForm>("past key", key, value)?;
    Ok((record.how, revision))
}

pub(crate) fn encode_pointer(key: &[u8], to: VolumeId) -> Vec<u8> {
    encode(key, Revision(0), to.0)
}

pub(crate) fn decode_pointer(key: &[u8], value: &[u8]) -> Result<VolumeId, CellError> {
    decode::<u64>("pointer", key, value).map(|seen| VolumeId(seen.record))
}

pub(crate) fn encode_counters(key: &[u8], counters: CellCounters) -> Vec<u8> {
    encode(key, Revision(counters.revision), counters)
}

pub(crate) fn decode_counters(key: &[u8], value: &[u8]) -> Result<CellCounters, CellError> {
    decode("counters", key, value).map(|seen| seen.record)
}

pub(crate) fn encode_change(key: &[u8], revision: Revision, changed: Changed) -> Vec<u8> {
    let form = match changed {
        Changed::Group(number) => ChangeForm::Group(number.0),
        Changed::Server(id) => ChangeForm::Server(IdForm(id)),
        Changed::Principal(id) => ChangeForm::Principal(id.0),
        Changed::Principals => ChangeForm::Principals,
        Changed::Rules => ChangeForm::Rules,
    };
    encode(key, revision, form)
}

pub(crate) fn decode_change(key: &[u8], value: &[u8]) -> Result<Changed, CellError> {
    Ok(match decode("change", key, value)?.record {
        ChangeForm::Group(number) => Changed::Group(VolumeId(number)),
        ChangeForm::Server(id) => Changed::Server(id.0),
        ChangeForm::Principal(id) => Changed::Principal(PrincipalId(id)),
        ChangeForm::Principals => Changed::Principals,
        ChangeForm::Rules => Changed::Rules,
    })
}

pub(crate) fn encode_principal(key: &[u8], revision: Revision, principal: &Principal) -> Vec<u8> {
    let kind = match principal.kind {
        PrincipalKind::User => PrincipalKindForm::User,
        PrincipalKind::Group => PrincipalKindForm::Group,
        PrincipalKind::Hosts => PrincipalKindForm::Hosts,
    };
    let form = PrincipalForm {
        id: principal.id.0,
        kind,
        name: principal.name.clone(),
        owner: principal.owner.0,
        creator: principal.creator.0,
        privacy: principal.privacy.to_string(),
        group_quota: principal.group_quota,
        uid: principal.uid,
        gid: principal.gid,
        tokens_after: principal.tokens_after,
        locked: principal.locked,
    };
    encode(key, revision, form)
}

pub(crate) fn decode_principal(key: &[u8], value: &[u8]) -> Result<Principal, CellError> {
    let form = decode::<PrincipalForm>("principal", key, value)?.record;
    let kind = match form.kind {
        PrincipalKindForm::User => PrincipalKind::User,
        PrincipalKindForm::Group => PrincipalKind::Group,
        PrincipalKindForm::Hosts => PrincipalKind::Hosts,
    };
    let privacy = form
        .privacy
        .parse()
        .map_err(|error| CellError::Damaged(format!("principal {} ({error})", form.id)))?;
    Ok(Principal {
        id: PrincipalId(form.id),
        kind,
        name: form.name,
        owner: PrincipalId(form.owner),
        creator: PrincipalId(form.creator),
        privacy,
        group_quota: form.group_quota,
        uid: form.uid,
        gid: form.gid,
        tokens_after: form.tokens_after,
        locked: form.locked,
    })
}

/// From a name or uid to a number; from a principal to a linked one, whose number the key has too.
pub(crate) fn encode_id(key: &[u8], id: PrincipalId) -> Vec<u8> {
    encode(key, Revision(0), id.0)
}

pub(crate) fn decode_id(key: &[u8], value: &[u8]) -> Result<PrincipalId, CellError> {
    decode::<i32>("pointer", key, value).map(|seen| PrincipalId(seen.record))
}

pub(crate) fn encode_highest(key: &[u8], highest: guard::Highest) -> Vec<u8> {
    encode(key, Revision(0), (highest.user.0, highest.group.0))
}

pub(crate) fn encode_secret(key: &[u8], kept: &str) -> Vec<u8> {
    encode(key, Revision(0), kept.to_owned())
}

pub(crate) fn decode_secret(key: &[u8], value: &[u8]) -> Result<String, CellError> {
    Ok(decode::<String>("password", key, value)?.record)
}

pub(crate) fn decode_highest(key: &[u8], value: &[u8]) -> Result<guard::Highest, CellError> {
    let (user, group) = decode::<(i32, i32)>("highest numbers", key, value)?.record;
    Ok(guard::Highest { user: PrincipalId(user), group: PrincipalId(group) })
}

pub(crate) fn encode_level(key: &[u8], level: u32) -> Vec<u8> {
    encode(key, Revision(0), level)
}

pub(crate) fn decode_level(key: &[u8], value: &[u8]) -> Result<u32, CellError> {
    Ok(decode::<u32>("level", key, value)?.record)
}

/// The kind of a record, by its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// The counters of the database: one record.
    Counters,
    /// A change that was made.
    Change,
    /// A user.
    User,
    /// A group of principals.
    Group,
    /// A set of hosts.
    Hosts,
    /// The highest numbers of principals: one record.
    Highest,
    /// The volumes of one tree, with their sites.
    Volumes,
    /// A server.
    Server,
    /// A fence.
    Fence,
    /// A delegation of administration.
    Mandate,
    /// The hash of a password.
    Password,
    /// An invitation.
    Invitation,
    /// A pointer to another record, a link between two, or a key that a server had.
    Other,
}

/// The kind of a record that is whole: its checksum is right, and its value can be read.
pub(crate) fn check(key: &[u8], value: &[u8]) -> Result<RecordKind, CellError> {
    let of_principal = |kind| match kind {
        PrincipalKind::User => RecordKind::User,
        PrincipalKind::Group => RecordKind::Group,
        PrincipalKind::Hosts => RecordKind::Hosts,
    };
    match key.first().and_then(|letter| Letter::of(*letter)) {
        Some(Letter::Counters) => decode_counters(key, value).map(|_| RecordKind::Counters),
        Some(Letter::Group) => decode_group(key, value).map(|_| RecordKind::Volumes),
        Some(Letter::Name | Letter::Number) => {
            decode_pointer(key, value).map(|_| RecordKind::Other)
        }
        Some(Letter::Server) => decode_server(key, value).map(|_| RecordKind::Server),
        Some(Letter::Change) => decode_change(key, value).map(|_| RecordKind::Change),
        Some(Letter::Principal) => decode_principal(key, value).map(|one| of_principal(one.kind)),
        Some(
            Letter::PrincipalName
            | Letter::Uid
            | Letter::Member
            | Letter::Membership
            | Letter::Owned,
        ) => decode_id(key, value).map(|_| RecordKind::Other),
        Some(Letter::Fence) => decode_fence(key, value).map(|_| RecordKind::Fence),
        Some(Letter::Mandate) => decode_mandate(key, value).map(|_| RecordKind::Mandate),
        Some(Letter::Secret) => decode_secret(key, value).map(|_| RecordKind::Password),
        Some(Letter::PastKey) => decode_past_key(key, value).map(|_| RecordKind::Other),
        Some(Letter::Invitation) => decode_invitation(key, value).map(|_| RecordKind::Invitation),
        Some(Letter::Highest) => decode_highest(key, value).map(|_| RecordKind::Highest),
        Some(Letter::Level) => decode_level(key, value).map(|_| RecordKind::Other),
        None => Err(CellError::Damaged(format!(
            "record {} (of a kind that this program does not know)",
            key.escape_ascii()
        ))),
    }
}
