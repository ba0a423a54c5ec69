//! Messages of calls: a row for each whose fields follow each other. The others have their fixed
//! part first, with the lengths of the variable parts, then the variable parts.

use bytes::Bytes;
use types::limits::{
    ACL_BYTES_MAX, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, PAYLOAD_BYTES_MAX, TARGET_BYTES_MAX,
    XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX,
};
use types::{Call, CreateHow, Fid, Kind, NewKind, SetTime, StatusChange, Timestamp, VolumeCall};

use super::auth::{get_auth_call, put_auth_call};
use super::cell::{get_cell_call, put_cell_call};
use super::layout::{Flag, Layout, LongList, Plain, Short, layout, messages};
use super::pts::{MaybePrincipal, get_pts_call, put_pts_call};
use super::rules::{OnBehalf, get_guard_call, put_guard_call};
use super::volume::{get_volume_call, put_volume_call};
use super::{EncodedCall, Procedure};
use crate::WireError;
use crate::limits::FIDS_MAX;
use crate::wire::{FieldReader, Writer, limit};

/// The name of an extended attribute.
pub(super) const XATTR_NAME: Short = Short("attribute name bytes", XATTR_NAME_BYTES_MAX);
/// A list of files.
pub(crate) const FIDS: LongList<Plain> = LongList("fids", FIDS_MAX, Fid::WIRE_BYTES, Plain);
const ON_BEHALF: MaybePrincipal = MaybePrincipal("on behalf of");

/// The bytes to read: fewer than a payload has.
struct ReadLength;

impl Layout<u32> for ReadLength {
    fn put(&self, to: &mut Writer, value: &u32) {
        to.length32("bytes to read", *value as usize, PAYLOAD_BYTES_MAX);
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<u32, WireError> {
        Ok(from.length32("bytes to read", PAYLOAD_BYTES_MAX)? as u32)
    }
}

/// The bytes of a call.
///
/// # Errors
/// [`WireError`]: the call breaks a limit.
pub fn encode_call(call: &Call) -> Result<EncodedCall, WireError> {
    let mut to = Writer::new();
    let mut payload = Bytes::new();
    let (flag, inner) = match call {
        Call::Delegated { at, slot, call } => {
            to.require(call.delegable(), "delegated call", call.procedure() as u64);
            to.timestamp(*at).u64(*slot);
            (Procedure::DELEGATED, &**call)
        }
        call => (0, call),
    };
    put_call(&mut to, inner, &mut payload);
    Ok(EncodedCall { procedure: call.procedure() as u16 | flag, message: to.end()?, payload })
}

/// Decodes a call.
///
/// # Errors
/// [`WireError`]: the bytes are no call.
pub fn decode_call(procedure: u16, message: &[u8], payload: Bytes) -> Result<Call, WireError> {
    let unknown = WireError::BadValue { what: "procedure", value: procedure.into() };
    let delegated = procedure & Procedure::DELEGATED != 0;
    let procedure = Procedure::from_wire(procedure & !Procedure::DELEGATED).ok_or(unknown)?;
    if !matches!(procedure, Procedure::Write | Procedure::VolumeApply) && !payload.is_empty() {
        return Err(WireError::BadPayload);
    }
    limit("message bytes", message.len(), MESSAGE_BYTES_MAX)?;
    let mut from = FieldReader::new(message);
    let head =
        delegated.then(|| Ok::<_, WireError>((from.timestamp()?, from.u64()?))).transpose()?;
    let call = get_call(&mut from, procedure, payload)?;
    from.end()?;
    match head {
        None => Ok(call),
        Some((at, slot)) if call.delegable() => {
            Ok(Call::Delegated { at, slot, call: Box::new(call) })
        }
        Some(_) => Err(unknown),
    }
}

messages! {
    Call by Procedure:
    fn put_call(to, payload: &mut Bytes);
    fn get_call(from, number, payload: Bytes);
    {
        Root => Root { volume }
        Lookup => Lookup { dir, name }
        ReadDir => ReadDir { dir, cookie, bytes_max, plus: Flag("with status") }
        MakeUnnamed => MakeUnnamed { dir, mode }
        Link => Link { fid, dir, name }
        ReadLink => ReadLink { fid }
        GetStatus => GetStatus { fid }
        ByVnode => ByVnode { fid, parent: Flag("parent") }
        SetStatus => SetStatus { fid, change }
        XattrGet => XattrGet { fid, name: XATTR_NAME }
        XattrList => XattrList { fid }
        XattrRemove => XattrRemove { fid, name: XATTR_NAME }
        VolumeStatus => VolumeStatus { fid }
        GetAcl => GetAcl { fid }
        Rights => Rights { fid }
        SetQuota => SetQuota { fid, bytes, files }
        Read => Read { fid, offset, length: ReadLength }
        ReadPacked => ReadPacked { fid, offset, length: ReadLength }
        Allocate => Allocate { fid, offset, length, mode }
        NoteRead => NoteRead { fid, was, at }
        Seek => Seek { fid, offset, what }
        Commit => Commit { fid }
        CommitVolume => CommitVolume { fid }
        OpenBody => OpenBody { fid }
        LendBody => LendBody { fid, how }
        SettleBody => SettleBody { fid, back: Flag("back") }
        LendBlank => LendBlank { fid }
        AdoptBody => AdoptBody { fid, blank }
        ReadSums => ReadSums { fid, first, count }
        Lock => Lock {
            fid, owner, range, pid, family, mode, wait: Flag("wait"), reclaim: Flag("reclaim"),
        }
        Unlock => Unlock { fid, owner, range, family }
        TestLock => TestLock { fid, owner, range, family, mode }
        Open => Open { fid, access, deny, claims: Flag("claims"), key }
        Close => Close { fid, open }
        Downgrade => Downgrade { fid, open, access, deny }
        PersistLock => PersistLock { fid, owner, range, pid, how }
        FinishLock => FinishLock { fid, owner, range }
        Hold => Hold { fids: FIDS }
        Unhold => Unhold { fids: FIDS }
        ReclaimDone => ReclaimDone {}
        ServerReport => ServerReport {}
        Delegate => Delegate { fid }
        Return => Return { fids: FIDS }
        Scrub => Scrub { start: Flag("start") }
    }
    ()
    put {
        Call::Make { dir, name, kind, mode, how } => {
            let (verifier, how) = how_parts(*how);
            let (kind, device, target) = kind_parts(kind);
            to.fid(*dir)
                .u64(verifier)
                .u64(device)
                .name_length(name)
                .length16("target bytes", target.len(), TARGET_BYTES_MAX)
                .u16(*mode)
                .u8(kind as u8)
                .u8(how)
                .name(name)
                .raw(target);
        }
        Call::Remove { dir, name, what, hold } => {
            to.fid(*dir).name_length(name).u8(*what as u8).bool(*hold).name(name);
        }
        Call::Rename { from_dir, from, to_dir, to: target, mode, hold } => {
            to.fid(*from_dir)
                .fid(*to_dir)
                .name_length(from)
                .name_length(target)
                .u8(*mode as u8)
                .bool(*hold)
                .name(from)
                .name(target);
        }
        Call::XattrSet { fid, name, value, mode } => {
            to.fid(*fid)
                .length32("attribute value bytes", value.len(), XATTR_VALUE_BYTES_MAX)
                .length16("attribute name bytes", name.len(), XATTR_NAME_BYTES_MAX)
                .u8(*mode as u8)
                .raw(name)
                .raw(value);
        }
        Call::SetAcl { fid, list, instead_of } => {
            let bytes = list.as_deref().unwrap_or_default();
            let instead = u8::from(instead_of.is_some()) * set_acl::INSTEAD;
            let flags = u8::from(list.is_some()) * set_acl::GIVEN + instead;
            to.fid(*fid)
                .u8(flags)
                .length32("access list bytes", bytes.len(), ACL_BYTES_MAX)
                .raw(bytes)
                .raw(instead_of.as_ref().map_or(&[], |sum| &sum[..]));
        }
        Call::Write { fid, offset, data, stable, kill_privileges } => {
            *payload = data.clone();
            to.fid(*fid)
                .u64(offset.unwrap_or(0))
                .length32("bytes to write", data.len(), PAYLOAD_BYTES_MAX)
                .bool(offset.is_none())
                .bool(*stable)
                .bool(*kill_privileges);
        }
        Call::Volume(call) => {
            if let VolumeCall::Apply { part, .. } = call {
                *payload = part.clone();
            }
            put_volume_call(to, call);
        }
        Call::Cell(call) => put_cell_call(to, call),
        Call::Pts { on_behalf, call } => {
            ON_BEHALF.put(to, on_behalf);
            put_pts_call(to, call);
        }
        Call::Auth { behalf, call } => {
            to.bool(behalf.is_some());
            behalf.iter().for_each(|behalf| Plain.put(to, behalf));
            put_auth_call(to, call);
        }
        Call::Guard { behalf, call } => {
            OnBehalf.put(to, behalf);
            put_guard_call(to, call);
        }
        // Decoding refuses it too: there is no number for a delegated call inside another.
        Call::Delegated { .. } => {
            to.require(false, "delegated call", 0);
        }
    }
    get {
        Procedure::Make => get_make(from)?,
        Procedure::Remove => get_remove(from)?,
        Procedure::Rename => get_rename(from)?,
        Procedure::XattrSet => get_xattr_set(from)?,
        Procedure::SetAcl => get_set_acl(from)?,
        Procedure::Write => get_write(from, payload)?,
        Procedure::VolumeCreate
        | Procedure::VolumeRemove
        | Procedure::VolumeRename
        | Procedure::VolumeClone
        | Procedure::VolumeSetFields
        | Procedure::VolumeList
        | Procedure::VolumeExamine
        | Procedure::Partitions
        | Procedure::VolumeChanges
        | Procedure::VolumeFinish
        | Procedure::VolumePull
        | Procedure::Tasks
        | Procedure::VolumeEndTask
        | Procedure::VolumeHold
        | Procedure::VolumeServe
        | Procedure::VolumeBeside
        | Procedure::VolumeTakeOver
        | Procedure::VolumeStandBy
        | Procedure::VolumeFormat
        | Procedure::VolumeTrust
        | Procedure::VolumeLoads
        | Procedure::VolumeFeed
        | Procedure::VolumeFollow
        | Procedure::VolumeStandbys
        | Procedure::VolumeFailOver
        | Procedure::VolumeInherit
        | Procedure::VolumeApply
        | Procedure::VolumeIncoming => Call::Volume(get_volume_call(from, number, payload)?),
        Procedure::CellGroup
        | Procedure::CellGroups
        | Procedure::CellPutGroup
        | Procedure::CellRemoveGroup
        | Procedure::CellTakeNumbers
        | Procedure::CellServers
        | Procedure::CellPutServer
        | Procedure::CellRemoveServer
        | Procedure::CellChanges
        | Procedure::CellMe
        | Procedure::CellPrincipal
        | Procedure::CellSubdomain
        | Procedure::CellWatch
        | Procedure::CellCopy
        | Procedure::CellInvite
        | Procedure::CellInvitations
        | Procedure::CellUninvite
        | Procedure::CellRedeem
        | Procedure::CellJoin
        | Procedure::CellCertify
        | Procedure::CellWithdrawn
        | Procedure::CellServerRoles
        | Procedure::CellLevel => Call::Cell(get_cell_call(from, number)?),
        Procedure::PtsNames
        | Procedure::PtsNumbers
        | Procedure::PtsExamine
        | Procedure::PtsCreate
        | Procedure::PtsDelete
        | Procedure::PtsRename
        | Procedure::PtsChangeOwner
        | Procedure::PtsSetFields
        | Procedure::PtsJoin
        | Procedure::PtsLeave
        | Procedure::PtsMembership
        | Procedure::PtsOwned
        | Procedure::PtsEntries
        | Procedure::PtsMax
        | Procedure::PtsSetMax => {
            let on_behalf = ON_BEHALF.get(from)?;
            Call::Pts { on_behalf, call: Box::new(get_pts_call(from, number)?) }
        }
        Procedure::AuthPassword
        | Procedure::AuthAttest
        | Procedure::AuthKerberos
        | Procedure::AuthRenew
        | Procedure::AuthSetPassword => {
            let behalf = from.bool("on behalf of")?.then(|| Plain.get(from)).transpose()?;
            Call::Auth { behalf, call: Box::new(get_auth_call(from, number)?) }
        }
        Procedure::GuardFences
        | Procedure::GuardAddFence
        | Procedure::GuardRemoveFence
        | Procedure::GuardMandates
        | Procedure::GuardAddMandate
        | Procedure::GuardRemoveMandate
        | Procedure::GuardWithdrawKeys
        | Procedure::GuardAuditLines => {
            let behalf = OnBehalf.get(from)?;
            Call::Guard { behalf, call: Box::new(get_guard_call(from, number)?) }
        }
    }
}

fn how_parts(how: CreateHow) -> (u64, u8) {
    match how {
        CreateHow::Unchecked => (0, 1),
        CreateHow::Guarded => (0, 2),
        CreateHow::Exclusive(verifier) => (verifier, 3),
    }
}

fn kind_parts(kind: &NewKind) -> (Kind, u64, &[u8]) {
    match kind {
        NewKind::File => (Kind::File, 0, &[]),
        NewKind::Directory => (Kind::Directory, 0, &[]),
        NewKind::Symlink(target) => (Kind::Symlink, 0, target),
        NewKind::Fifo => (Kind::Fifo, 0, &[]),
        NewKind::Socket => (Kind::Socket, 0, &[]),
        NewKind::CharDevice(device) => (Kind::CharDevice, *device, &[]),
        NewKind::BlockDevice(device) => (Kind::BlockDevice, *device, &[]),
        NewKind::MountPoint(target) => (Kind::MountPoint, 0, target),
    }
}

fn get_make(from: &mut FieldReader<'_>) -> Result<Call, WireError> {
    let bad = |what, value| WireError::BadValue { what, value };
    let (dir, verifier, device) = (from.fid()?, from.u64()?, from.u64()?);
    let name_length = from.length16("name bytes", NAME_BYTES_MAX)?;
    let target_length = from.length16("target bytes", TARGET_BYTES_MAX)?;
    let mode = from.u16()?;
    let kind = from.choice("kind", Kind::from_wire)?;
    let how = match (from.u8()?, verifier) {
        (1, 0) => CreateHow::Unchecked,
        (2, 0) => CreateHow::Guarded,
        (3, verifier) => CreateHow::Exclusive(verifier),
        (1 | 2, verifier) => return Err(bad("verifier", verifier)),
        (how, _) => return Err(bad("create how", how.into())),
    };
    let name = from.name(name_length)?;
    let target = from.owned(target_length)?;
    if !target.is_empty() && !kind.has_target() {
        return Err(bad("target bytes", target_length as u64));
    }
    if device != 0 && !matches!(kind, Kind::CharDevice | Kind::BlockDevice) {
        return Err(bad("device", device));
    }
    let kind = match kind {
        Kind::File => NewKind::File,
        Kind::Directory => NewKind::Directory,
        Kind::Symlink => NewKind::Symlink(target),
        Kind::Fifo => NewKind::Fifo,
        Kind::Socket => NewKind::Socket,
        Kind::CharDevice => NewKind::CharDevice(device),
        Kind::BlockDevice => NewKind::BlockDevice(device),
        Kind::MountPoint => NewKind::MountPoint(target),
    };
    Ok(Call::Make { dir, name, kind, mode, how })
}

fn get_remove(from: &mut FieldReader<'_>) -> Result<Call, WireError> {
    let dir = from.fid()?;
    let length = from.length16("name bytes", NAME_BYTES_MAX)?;
    let (what, hold) = (Plain.get(from)?, from.bool("hold")?);
    Ok(Call::Remove { dir, name: from.name(length)?, what, hold })
}

fn get_rename(from: &mut FieldReader<'_>) -> Result<Call, WireError> {
    let (from_dir, to_dir) = (from.fid()?, from.fid()?);
    let from_length = from.length16("name bytes", NAME_BYTES_MAX)?;
    let to_length = from.length16("name bytes", NAME_BYTES_MAX)?;
    let mode = Plain.get(from)?;
    let hold = from.bool("hold")?;
    Ok(Call::Rename {
        from_dir,
        from: from.name(from_length)?,
        to_dir,
        to: from.name(to_length)?,
        mode,
        hold,
    })
}

fn get_xattr_set(from: &mut FieldReader<'_>) -> Result<Call, WireError> {
    let fid = from.fid()?;
    let value_length = from.length32("attribute value bytes", XATTR_VALUE_BYTES_MAX)?;
    let name_length = from.length16("attribute name bytes", XATTR_NAME_BYTES_MAX)?;
    let mode = Plain.get(from)?;
    Ok(Call::XattrSet {
        fid,
        name: from.owned(name_length)?,
        value: from.owned(value_length)?,
        mode,
    })
}

fn get_write(from: &mut FieldReader<'_>, data: Bytes) -> Result<Call, WireError> {
    let (fid, offset) = (from.fid()?, from.u64()?);
    let count = from.length32("bytes to write", PAYLOAD_BYTES_MAX)?;
    if count != data.len() {
        return Err(WireError::BadPayload);
    }
    let append = from.bool("append")?;
    if append && offset != 0 {
        return Err(WireError::BadValue { what: "offset of an append", value: offset });
    }
    Ok(Call::Write {
        fid,
        offset: (!append).then_some(offset),
        data,
        stable: from.bool("stable")?,
        kill_privileges: from.bool("kill privileges")?,
    })
}

/// Bits of a [`StatusChange`] on the wire: the fields that are present, and the three options.
mod change {
    pub const MODE: u16 = 1 << 0;
    pub const UID: u16 = 1 << 1;
    pub const GID: u16 = 1 << 2;
    pub const SIZE: u16 = 1 << 3;
    pub const ACCESSED: u16 = 1 << 4;
    pub const ACCESSED_NOW: u16 = 1 << 5;
    pub const MODIFIED: u16 = 1 << 6;
    pub const MODIFIED_NOW: u16 = 1 << 7;
    pub const KILL_PRIVILEGES: u16 = 1 << 8;
    pub const THROUGH_HANDLE: u16 = 1 << 9;
    pub const HOLD: u16 = 1 << 10;
    pub const ALL: u16 = (1 << 11) - 1;
}

fn time_parts(time: Option<SetTime>, given: u16, now: u16) -> (u16, Timestamp) {
    match time {
        None => (0, Timestamp::default()),
        Some(SetTime::Now) => (now, Timestamp::default()),
        Some(SetTime::To(time)) => (given, time),
    }
}

impl Layout<StatusChange> for Plain {
    fn put(&self, to: &mut Writer, what: &StatusChange) {
        let (accessed_bit, accessed) =
            time_parts(what.accessed, change::ACCESSED, change::ACCESSED_NOW);
        let (modified_bit, modified) =
            time_parts(what.modified, change::MODIFIED, change::MODIFIED_NOW);
        let bit = |set: bool, bit: u16| if set { bit } else { 0 };
        let bits = accessed_bit
            | modified_bit
            | bit(what.mode.is_some(), change::MODE)
            | bit(what.uid.is_some(), change::UID)
            | bit(what.gid.is_some(), change::GID)
            | bit(what.size.is_some(), change::SIZE)
            | bit(what.kill_privileges, change::KILL_PRIVILEGES)
            | bit(what.through_handle, change::THROUGH_HANDLE)
            | bit(what.hold, change::HOLD);
        to.u64(what.size.unwrap_or(0))
            .timestamp(accessed)
            .timestamp(modified)
            .u32(what.uid.unwrap_or(0))
            .u32(what.gid.unwrap_or(0))
            .u16(what.mode.unwrap_or(0))
            .u16(bits);
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<StatusChange, WireError> {
        let (size, accessed, modified) = (from.u64()?, from.timestamp()?, from.timestamp()?);
        let (uid, gid, mode, bits) = (from.u32()?, from.u32()?, from.u16()?, from.u16()?);
        let both = |one: u16, other: u16| bits & one != 0 && bits & other != 0;
        if bits & !change::ALL != 0
            || both(change::ACCESSED, change::ACCESSED_NOW)
            || both(change::MODIFIED, change::MODIFIED_NOW)
        {
            return Err(WireError::BadValue { what: "fields to change", value: bits.into() });
        }
        let has = |bit: u16| bits & bit != 0;
        Ok(StatusChange {
            mode: field(has(change::MODE), mode)?,
            uid: field(has(change::UID), uid)?,
            gid: field(has(change::GID), gid)?,
            size: field(has(change::SIZE), size)?,
            accessed: field(has(change::ACCESSED), accessed)?
                .map(SetTime::To)
                .or(has(change::ACCESSED_NOW).then_some(SetTime::Now)),
            modified: field(has(change::MODIFIED), modified)?
                .map(SetTime::To)
                .or(has(change::MODIFIED_NOW).then_some(SetTime::Now)),
            kill_privileges: has(change::KILL_PRIVILEGES),
            through_handle: has(change::THROUGH_HANDLE),
            hold: has(change::HOLD),
        })
    }
}

/// A field that is present, or one that is absent and then must be zero: each call has one form on
/// the wire.
fn field<T: Default + PartialEq>(present: bool, value: T) -> Result<Option<T>, WireError> {
    match present {
        true => Ok(Some(value)),
        false if value == T::default() => Ok(None),
        false => Err(WireError::BadValue { what: "absent field", value: 1 }),
    }
}

/// Bits of the fields that a `SetAcl` has.
mod set_acl {
    pub const GIVEN: u8 = 1;
    pub const INSTEAD: u8 = 2;
}

fn get_set_acl(from: &mut FieldReader<'_>) -> Result<Call, WireError> {
    let (fid, flags) = (from.fid()?, from.u8()?);
    if flags & !(set_acl::GIVEN | set_acl::INSTEAD) != 0 {
        return Err(WireError::BadValue { what: "access list", value: flags.into() });
    }
    let given = flags & set_acl::GIVEN != 0;
    let length = from.length32("access list bytes", ACL_BYTES_MAX)?;
    if !given && length > 0 {
        return Err(WireError::BadValue { what: "bytes of no access list", value: length as u64 });
    }
    let list = from.owned(length)?;
    let instead_of = if flags & set_acl::INSTEAD != 0 { Some(from.array::<32>()?) } else { None };
    Ok(Call::SetAcl { fid, list: given.then_some(list), instead_of })
}

/// Replaces [`Fid::CURRENT`] in the call by `current`. Returns true if the call named it.
pub(crate) fn resolve_current(call: &mut Call, current: Fid) -> bool {
    let mut found = false;
    for fid in call.files_mut().into_iter().flatten().filter(|fid| **fid == Fid::CURRENT) {
        *fid = current;
        found = true;
    }
    found
}

/// True if the call names its chain's current file (or, where that is not allowed, a list does).
pub(crate) fn uses_current(call: &mut Call) -> bool {
    match call {
        Call::Hold { fids } | Call::Unhold { fids } | Call::Return { fids } => {
            fids.contains(&Fid::CURRENT)
        }
        _ => call.files_mut().into_iter().flatten().any(|fid| *fid == Fid::CURRENT),
    }
}

/// Bytes of payload that the call and its answer need.
pub(crate) fn payload_bytes(call: &Call) -> usize {
    let data = call.data();
    if data.is_payload { data.bytes() } else { 0 }
}

/// Refuses a call whose data does not fit into one frame of the connection.
pub(crate) fn check_payload(call: &Call, payload_bytes_max: u32) -> Result<(), WireError> {
    limit("payload bytes", payload_bytes(call), payload_bytes_max as usize)
}
