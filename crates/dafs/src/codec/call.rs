//! Messages of calls. Each layout is written and read field by field in the same order: fixed part
//! first, with the lengths of the variable parts, then the variable parts.

use bytes::Bytes;
use types::limits::{
    ACL_BYTES_MAX, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, PAYLOAD_BYTES_MAX, TARGET_BYTES_MAX,
    XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX,
};
use types::{
    ByteRange, Call, Cookie, CreateHow, Fid, Kind, LockOwner, NewKind, SetTime, StatusChange,
    Timestamp, VolumeCall,
};

use super::auth::{get_auth_call, put_auth_call};
use super::cell::{get_cell_call, put_cell_call};
use super::choice::{
    allocate_mode, lending, lock_family, lock_mode, remove_what, rename_mode, seek_what, xattr_mode,
};
use super::pts::{get_pts_call, put_pts_call};
use super::rules::{get_guard_call, put_guard_call};
use super::transfer::get_apply;
use super::volume::{get_volume_call, put_volume_call};
use super::{EncodedCall, Procedure};
use crate::WireError;
use crate::limits::FIDS_MAX;
use crate::wire::{FieldReader, Writer, limit};

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

fn put_call(to: &mut Writer, call: &Call, payload: &mut Bytes) {
    match call {
        Call::Root { volume } => to.name_length(volume).name(volume),
        Call::Lookup { dir, name } => to.fid(*dir).name_length(name).name(name),
        Call::ReadDir { dir, cookie, bytes_max, plus } => {
            to.fid(*dir).u64(cookie.0).u32(*bytes_max).bool(*plus)
        }
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
                .raw(target)
        }
        Call::MakeUnnamed { dir, mode } => to.fid(*dir).u16(*mode),
        Call::Link { fid, dir, name } => to.fid(*fid).fid(*dir).name_length(name).name(name),
        Call::Remove { dir, name, what, hold } => {
            to.fid(*dir).name_length(name).u8(*what as u8).bool(*hold).name(name)
        }
        Call::Rename { from_dir, from, to_dir, to: target, mode, hold } => to
            .fid(*from_dir)
            .fid(*to_dir)
            .name_length(from)
            .name_length(target)
            .u8(*mode as u8)
            .bool(*hold)
            .name(from)
            .name(target),
        Call::ReadLink { fid }
        | Call::GetStatus { fid }
        | Call::XattrList { fid }
        | Call::VolumeStatus { fid }
        | Call::GetAcl { fid }
        | Call::Rights { fid }
        | Call::Commit { fid }
        | Call::CommitVolume { fid }
        | Call::OpenBody { fid }
        | Call::LendBlank { fid }
        | Call::Delegate { fid } => to.fid(*fid),
        Call::LendBody { fid, how } => to.fid(*fid).u8(*how as u8),
        Call::SettleBody { fid, back } => to.fid(*fid).bool(*back),
        Call::AdoptBody { fid, blank } => to.fid(*fid).u64(*blank),
        Call::SetStatus { fid, change } => put_change(to.fid(*fid), change),
        Call::XattrGet { fid, name } | Call::XattrRemove { fid, name } => to
            .fid(*fid)
            .length16("attribute name bytes", name.len(), XATTR_NAME_BYTES_MAX)
            .raw(name),
        Call::XattrSet { fid, name, value, mode } => to
            .fid(*fid)
            .length32("attribute value bytes", value.len(), XATTR_VALUE_BYTES_MAX)
            .length16("attribute name bytes", name.len(), XATTR_NAME_BYTES_MAX)
            .u8(*mode as u8)
            .raw(name)
            .raw(value),
        Call::SetAcl { fid, list, instead_of } => {
            let bytes = list.as_deref().unwrap_or_default();
            let instead = u8::from(instead_of.is_some()) * set_acl::INSTEAD;
            let flags = u8::from(list.is_some()) * set_acl::GIVEN + instead;
            to.fid(*fid)
                .u8(flags)
                .length32("access list bytes", bytes.len(), ACL_BYTES_MAX)
                .raw(bytes);
            to.raw(instead_of.as_ref().map_or(&[], |sum| &sum[..]))
        }
        Call::SetQuota { fid, bytes, files } => to.fid(*fid).u64(*bytes).u64(*files),
        Call::Read { fid, offset, length } | Call::ReadPacked { fid, offset, length } => {
            to.fid(*fid).u64(*offset).length32("bytes to read", *length as usize, PAYLOAD_BYTES_MAX)
        }
        Call::Write { fid, offset, data, stable, kill_privileges } => {
            *payload = data.clone();
            to.fid(*fid)
                .u64(offset.unwrap_or(0))
                .length32("bytes to write", data.len(), PAYLOAD_BYTES_MAX)
                .bool(offset.is_none())
                .bool(*stable)
                .bool(*kill_privileges)
        }
        Call::Allocate { fid, offset, length, mode } => {
            to.fid(*fid).u64(*offset).u64(*length).u8(*mode as u8)
        }
        Call::Seek { fid, offset, what } => to.fid(*fid).u64(*offset).u8(*what as u8),
        Call::ReadSums { fid, first, count } => to.fid(*fid).u64(*first).u32(*count),
        Call::Lock { fid, owner, pid, family, range, mode, wait, reclaim } => {
            put_range(to.fid(*fid), *owner, *range)
                .u32(*pid)
                .u8(*family as u8)
                .u8(*mode as u8)
                .bool(*wait)
                .bool(*reclaim)
        }
        Call::Unlock { fid, owner, family, range } => {
            put_range(to.fid(*fid), *owner, *range).u8(*family as u8)
        }
        Call::TestLock { fid, owner, family, range, mode } => {
            put_range(to.fid(*fid), *owner, *range).u8(*family as u8).u8(*mode as u8)
        }
        Call::Hold { fids } | Call::Unhold { fids } | Call::Return { fids } => {
            to.length32("fids", fids.len(), FIDS_MAX).fids(fids)
        }
        Call::ReclaimDone | Call::ServerReport => to,
        Call::Scrub { start } => to.bool(*start),
        Call::Volume(call) => {
            if let VolumeCall::Apply { part, .. } = call {
                *payload = part.clone();
            }
            put_volume_call(to, call)
        }
        Call::Cell(call) => put_cell_call(to, call),
        Call::Pts { on_behalf, call } => put_pts_call(to, *on_behalf, call),
        Call::Auth { behalf, call } => {
            put_auth_call(to, *behalf, call);
            to
        }
        Call::Guard { behalf, call } => put_guard_call(to, *behalf, call),
        // Decoding refuses it too: there is no number for a delegated call inside another.
        Call::Delegated { .. } => to.require(false, "delegated call", 0),
    };
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

fn get_call(
    from: &mut FieldReader<'_>,
    procedure: Procedure,
    payload: Bytes,
) -> Result<Call, WireError> {
    Ok(match procedure {
        Procedure::Root => Call::Root { volume: get_name(from)? },
        Procedure::Lookup => Call::Lookup { dir: from.fid()?, name: get_name(from)? },
        Procedure::ReadDir => Call::ReadDir {
            dir: from.fid()?,
            cookie: Cookie(from.u64()?),
            bytes_max: from.u32()?,
            plus: from.bool("with status")?,
        },
        Procedure::Make => get_make(from)?,
        Procedure::MakeUnnamed => Call::MakeUnnamed { dir: from.fid()?, mode: from.u16()? },
        Procedure::Link => Call::Link { fid: from.fid()?, dir: from.fid()?, name: get_name(from)? },
        Procedure::Remove => get_remove(from)?,
        Procedure::Rename => get_rename(from)?,
        Procedure::ReadLink => Call::ReadLink { fid: from.fid()? },
        Procedure::GetStatus => Call::GetStatus { fid: from.fid()? },
        Procedure::SetStatus => Call::SetStatus { fid: from.fid()?, change: get_change(from)? },
        Procedure::XattrGet => Call::XattrGet { fid: from.fid()?, name: get_xattr_name(from)? },
        Procedure::XattrSet => get_xattr_set(from)?,
        Procedure::XattrList => Call::XattrList { fid: from.fid()? },
        Procedure::XattrRemove => {
            Call::XattrRemove { fid: from.fid()?, name: get_xattr_name(from)? }
        }
        Procedure::VolumeStatus => Call::VolumeStatus { fid: from.fid()? },
        Procedure::GetAcl => Call::GetAcl { fid: from.fid()? },
        Procedure::SetAcl => get_set_acl(from)?,
        Procedure::Rights => Call::Rights { fid: from.fid()? },
        Procedure::SetQuota => {
            Call::SetQuota { fid: from.fid()?, bytes: from.u64()?, files: from.u64()? }
        }
        Procedure::Read => {
            get_read(from, |fid, offset, length| Call::Read { fid, offset, length })?
        }
        Procedure::ReadPacked => {
            get_read(from, |fid, offset, length| Call::ReadPacked { fid, offset, length })?
        }
        Procedure::Write => get_write(from, payload)?,
        Procedure::Allocate => Call::Allocate {
            fid: from.fid()?,
            offset: from.u64()?,
            length: from.u64()?,
            mode: from.choice("allocate mode", allocate_mode)?,
        },
        Procedure::Seek => Call::Seek {
            fid: from.fid()?,
            offset: from.u64()?,
            what: from.choice("seek what", seek_what)?,
        },
        Procedure::Commit => Call::Commit { fid: from.fid()? },
        Procedure::CommitVolume => Call::CommitVolume { fid: from.fid()? },
        Procedure::OpenBody => Call::OpenBody { fid: from.fid()? },
        Procedure::LendBody => {
            Call::LendBody { fid: from.fid()?, how: from.choice("lending", lending)? }
        }
        Procedure::SettleBody => Call::SettleBody { fid: from.fid()?, back: from.bool("back")? },
        Procedure::LendBlank => Call::LendBlank { fid: from.fid()? },
        Procedure::AdoptBody => Call::AdoptBody { fid: from.fid()?, blank: from.u64()? },
        Procedure::ReadSums => {
            Call::ReadSums { fid: from.fid()?, first: from.u64()?, count: from.u32()? }
        }
        Procedure::Lock => get_lock(from)?,
        Procedure::Unlock => {
            let (fid, (owner, range)) = (from.fid()?, get_range(from)?);
            Call::Unlock { fid, owner, family: from.choice("lock family", lock_family)?, range }
        }
        Procedure::TestLock => {
            let (fid, (owner, range)) = (from.fid()?, get_range(from)?);
            let family = from.choice("lock family", lock_family)?;
            Call::TestLock { fid, owner, family, range, mode: from.choice("lock mode", lock_mode)? }
        }
        Procedure::Hold => Call::Hold { fids: get_fids(from)? },
        Procedure::Unhold => Call::Unhold { fids: get_fids(from)? },
        Procedure::ReclaimDone => Call::ReclaimDone,
        Procedure::ServerReport => Call::ServerReport,
        Procedure::Delegate => Call::Delegate { fid: from.fid()? },
        Procedure::Return => Call::Return { fids: get_fids(from)? },
        Procedure::Scrub => Call::Scrub { start: from.bool("start")? },
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
        | Procedure::VolumeHold
        | Procedure::VolumeServe
        | Procedure::VolumeBeside
        | Procedure::VolumeIncoming => Call::Volume(get_volume_call(from, procedure)?),
        Procedure::VolumeApply => Call::Volume(get_apply(from, payload)?),
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
        | Procedure::CellWatch => Call::Cell(get_cell_call(from, procedure)?),
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
        | Procedure::PtsSetMax => get_pts_call(from, procedure)?,
        Procedure::AuthPassword
        | Procedure::AuthAttest
        | Procedure::AuthKerberos
        | Procedure::AuthRenew
        | Procedure::AuthSetPassword => get_auth_call(from, procedure)?,
        Procedure::GuardFences
        | Procedure::GuardAddFence
        | Procedure::GuardRemoveFence
        | Procedure::GuardMandates
        | Procedure::GuardAddMandate
        | Procedure::GuardRemoveMandate
        | Procedure::GuardWithdrawKeys => get_guard_call(from, procedure)?,
    })
}

fn get_name(from: &mut FieldReader<'_>) -> Result<types::Name, WireError> {
    let length = from.length16("name bytes", NAME_BYTES_MAX)?;
    from.name(length)
}

fn get_xattr_name(from: &mut FieldReader<'_>) -> Result<Bytes, WireError> {
    let length = from.length16("attribute name bytes", XATTR_NAME_BYTES_MAX)?;
    from.owned(length)
}

fn get_fids(from: &mut FieldReader<'_>) -> Result<Vec<Fid>, WireError> {
    let count = from.length32("fids", FIDS_MAX)?;
    from.fids(count)
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
    let (what, hold) = (from.choice("what to remove", remove_what)?, from.bool("hold")?);
    Ok(Call::Remove { dir, name: from.name(length)?, what, hold })
}

fn get_rename(from: &mut FieldReader<'_>) -> Result<Call, WireError> {
    let (from_dir, to_dir) = (from.fid()?, from.fid()?);
    let from_length = from.length16("name bytes", NAME_BYTES_MAX)?;
    let to_length = from.length16("name bytes", NAME_BYTES_MAX)?;
    let mode = from.choice("rename mode", rename_mode)?;
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
    let mode = from.choice("attribute mode", xattr_mode)?;
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

fn put_range(to: &mut Writer, owner: LockOwner, range: ByteRange) -> &mut Writer {
    to.u64(owner.0).u64(range.start).u64(range.end)
}

fn get_range(from: &mut FieldReader<'_>) -> Result<(LockOwner, ByteRange), WireError> {
    Ok((LockOwner(from.u64()?), ByteRange { start: from.u64()?, end: from.u64()? }))
}

fn get_lock(from: &mut FieldReader<'_>) -> Result<Call, WireError> {
    let (fid, (owner, range)) = (from.fid()?, get_range(from)?);
    Ok(Call::Lock {
        fid,
        owner,
        pid: from.u32()?,
        family: from.choice("lock family", lock_family)?,
        range,
        mode: from.choice("lock mode", lock_mode)?,
        wait: from.bool("wait")?,
        reclaim: from.bool("reclaim")?,
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

fn put_change<'a>(to: &'a mut Writer, what: &StatusChange) -> &'a mut Writer {
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
        .u16(bits)
}

fn get_change(from: &mut FieldReader<'_>) -> Result<StatusChange, WireError> {
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

fn get_read(
    from: &mut FieldReader<'_>,
    call: impl FnOnce(Fid, u64, u32) -> Call,
) -> Result<Call, WireError> {
    let (fid, offset) = (from.fid()?, from.u64()?);
    Ok(call(fid, offset, from.length32("bytes to read", PAYLOAD_BYTES_MAX)? as u32))
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
