//! Messages about users and groups.

use std::net::{IpAddr, Ipv6Addr};

use types::limits::{PRINCIPAL_NAME_BYTES_MAX, PRINCIPALS_MAX};
use types::{
    Answer, Call, CellCall, NewPrincipal, Principal, PrincipalChange, PrincipalId, PrincipalKind,
    Privacy, PtsCall, Revision, WhichPrincipal,
};

use super::Procedure;
use super::fields::{fitting, get_text, put_text};
use crate::WireError;
use crate::wire::{FieldReader, Writer};

const NAME: &str = "bytes of a principal's name";
/// Bytes of a principal without its name.
const PRINCIPAL_BYTES: usize = 41;
/// Bytes of a number with its name, without the name.
const NAMED_BYTES: usize = 6;
const BY_ID: u8 = 1;
const BY_NAME: u8 = 2;
const BY_UID: u8 = 3;
const CHANGE_BITS: u8 = 0x3f;

pub(super) fn put_id(to: &mut Writer, id: PrincipalId) -> &mut Writer {
    to.u32(id.0.cast_unsigned())
}

pub(super) fn get_id(from: &mut FieldReader<'_>) -> Result<PrincipalId, WireError> {
    Ok(PrincipalId(from.u32()?.cast_signed()))
}

fn put_name<'w>(to: &'w mut Writer, name: &str) -> &'w mut Writer {
    put_text(to, NAME, name, PRINCIPAL_NAME_BYTES_MAX)
}

fn get_name(from: &mut FieldReader<'_>) -> Result<String, WireError> {
    get_text(from, NAME, PRINCIPAL_NAME_BYTES_MAX)
}

/// `None`: the number of all ones, which no uid or gid may be.
fn get_number(from: &mut FieldReader<'_>) -> Result<Option<u32>, WireError> {
    Ok(Some(from.u32()?).filter(|number| *number != u32::MAX))
}

fn put_number(to: &mut Writer, number: Option<u32>) -> &mut Writer {
    to.require(number != Some(u32::MAX), "uid or gid", u32::MAX.into())
        .u32(number.unwrap_or(u32::MAX))
}

pub(super) fn put_which_principal<'w>(
    to: &'w mut Writer,
    which: &WhichPrincipal,
) -> &'w mut Writer {
    match which {
        WhichPrincipal::Id(id) => put_id(to.u8(BY_ID), *id),
        WhichPrincipal::Name(name) => put_name(to.u8(BY_NAME), name),
        WhichPrincipal::Uid(uid) => to.u8(BY_UID).u32(*uid),
    }
}

pub(super) fn get_which_principal(from: &mut FieldReader<'_>) -> Result<WhichPrincipal, WireError> {
    Ok(match from.u8()? {
        BY_ID => WhichPrincipal::Id(get_id(from)?),
        BY_NAME => WhichPrincipal::Name(get_name(from)?),
        BY_UID => WhichPrincipal::Uid(from.u32()?),
        value => {
            return Err(WireError::BadValue {
                what: "how a principal is meant",
                value: value.into(),
            });
        }
    })
}

/// An address is 16 bytes of IPv6, with IPv4 mapped; no address is all zeros.
pub(super) fn put_host(to: &mut Writer, host: Option<IpAddr>) -> &mut Writer {
    let octets = match host {
        Some(IpAddr::V4(ip)) => ip.to_ipv6_mapped().octets(),
        Some(IpAddr::V6(ip)) => ip.octets(),
        None => [0; 16],
    };
    to.require(host != Some(Ipv6Addr::UNSPECIFIED.into()), "host", 0).raw(&octets)
}

pub(super) fn get_host(from: &mut FieldReader<'_>) -> Result<Option<IpAddr>, WireError> {
    let ip = Ipv6Addr::from(from.array::<16>()?);
    Ok((!ip.is_unspecified()).then(|| ip.to_canonical()))
}

pub(super) fn put_subdomain_call(
    to: &mut Writer,
    principal: PrincipalId,
    host: Option<IpAddr>,
) -> &mut Writer {
    put_host(put_id(to, principal), host)
}

pub(super) fn get_subdomain_call(from: &mut FieldReader<'_>) -> Result<CellCall, WireError> {
    Ok(CellCall::Subdomain { principal: get_id(from)?, host: get_host(from)? })
}

pub(super) fn put_pts_call<'w>(
    to: &'w mut Writer,
    on_behalf: Option<PrincipalId>,
    call: &PtsCall,
) -> &'w mut Writer {
    to.require(on_behalf != Some(PrincipalId::NONE), "on behalf of", 0);
    put_id(to, on_behalf.unwrap_or(PrincipalId::NONE));
    match call {
        PtsCall::Names { ids } => {
            to.length16("principals", ids.len(), PRINCIPALS_MAX);
            ids.iter().fold(to, |to, id| put_id(to, *id))
        }
        PtsCall::Numbers { names } => {
            to.length16("principals", names.len(), PRINCIPALS_MAX);
            names.iter().fold(to, |to, name| put_name(to, name))
        }
        PtsCall::Examine { id } | PtsCall::Delete { id } => put_id(to, *id),
        PtsCall::Create { new } => put_new(to, new),
        PtsCall::Rename { id, name } => put_name(put_id(to, *id), name),
        PtsCall::ChangeOwner { id, owner } => put_id(put_id(to, *id), *owner),
        PtsCall::SetFields { id, change } => put_change(put_id(to, *id), change),
        PtsCall::Join { group, member } | PtsCall::Leave { group, member } => {
            put_id(put_id(to, *group), *member)
        }
        PtsCall::Membership { id, groups, after, max } => {
            put_id(put_id(to, *id).bool(*groups), *after).u32(*max)
        }
        PtsCall::Owned { owner, after, max } => put_id(put_id(to, *owner), *after).u32(*max),
        PtsCall::Entries { after, max } => put_id(to, *after).u32(*max),
        PtsCall::Max => to,
        PtsCall::SetMax { user, group } => put_id(put_id(to, *user), *group),
    }
}

pub(super) fn get_pts_call(
    from: &mut FieldReader<'_>,
    procedure: Procedure,
) -> Result<Call, WireError> {
    let on_behalf = Some(get_id(from)?).filter(|id| *id != PrincipalId::NONE);
    let call = match procedure {
        Procedure::PtsNames => {
            let count = from.length16("principals", PRINCIPALS_MAX)?;
            from.check_room(count, size_of::<u32>())?;
            PtsCall::Names { ids: (0..count).map(|_| get_id(from)).collect::<Result<_, _>>()? }
        }
        Procedure::PtsNumbers => {
            let count = from.length16("principals", PRINCIPALS_MAX)?;
            from.check_room(count, size_of::<u16>())?;
            PtsCall::Numbers {
                names: (0..count).map(|_| get_name(from)).collect::<Result<_, _>>()?,
            }
        }
        Procedure::PtsExamine => PtsCall::Examine { id: get_id(from)? },
        Procedure::PtsCreate => PtsCall::Create { new: Box::new(get_new(from)?) },
        Procedure::PtsDelete => PtsCall::Delete { id: get_id(from)? },
        Procedure::PtsRename => PtsCall::Rename { id: get_id(from)?, name: get_name(from)? },
        Procedure::PtsChangeOwner => {
            PtsCall::ChangeOwner { id: get_id(from)?, owner: get_id(from)? }
        }
        Procedure::PtsSetFields => {
            PtsCall::SetFields { id: get_id(from)?, change: get_change(from)? }
        }
        Procedure::PtsJoin => PtsCall::Join { group: get_id(from)?, member: get_id(from)? },
        Procedure::PtsLeave => PtsCall::Leave { group: get_id(from)?, member: get_id(from)? },
        Procedure::PtsMembership => PtsCall::Membership {
            id: get_id(from)?,
            groups: from.bool("groups")?,
            after: get_id(from)?,
            max: from.u32()?,
        },
        Procedure::PtsOwned => {
            PtsCall::Owned { owner: get_id(from)?, after: get_id(from)?, max: from.u32()? }
        }
        Procedure::PtsEntries => PtsCall::Entries { after: get_id(from)?, max: from.u32()? },
        Procedure::PtsMax => PtsCall::Max,
        Procedure::PtsSetMax => PtsCall::SetMax { user: get_id(from)?, group: get_id(from)? },
        other => {
            return Err(WireError::BadValue {
                what: "procedure of users and groups",
                value: other as u64,
            });
        }
    };
    Ok(Call::Pts { on_behalf, call: Box::new(call) })
}

fn put_new<'w>(to: &'w mut Writer, new: &NewPrincipal) -> &'w mut Writer {
    to.u8(new.kind as u8).require(new.id != Some(PrincipalId::NONE), "number of a principal", 0);
    put_id(to, new.id.unwrap_or(PrincipalId::NONE));
    put_number(to, new.uid);
    put_number(to, new.gid);
    put_name(to, &new.name).bool(new.owner.is_some());
    match &new.owner {
        Some(owner) => put_which_principal(to, owner),
        None => to,
    }
}

fn get_new(from: &mut FieldReader<'_>) -> Result<NewPrincipal, WireError> {
    let kind = from.choice("kind of principal", PrincipalKind::from_wire)?;
    let id = Some(get_id(from)?).filter(|id| *id != PrincipalId::NONE);
    let (uid, gid) = (get_number(from)?, get_number(from)?);
    let name = get_name(from)?;
    let owner = if from.bool("owner")? { Some(get_which_principal(from)?) } else { None };
    Ok(NewPrincipal { kind, name, id, owner, uid, gid })
}

fn put_change<'w>(to: &'w mut Writer, change: &PrincipalChange) -> &'w mut Writer {
    let PrincipalChange { privacy, group_quota, uid, gid, tokens_after, locked } = *change;
    let present = [
        privacy.is_some(),
        group_quota.is_some(),
        uid.is_some(),
        gid.is_some(),
        tokens_after.is_some(),
        locked.is_some(),
    ];
    let bits = present.into_iter().enumerate().fold(0, |bits, (at, is)| bits | u8::from(is) << at);
    to.u8(bits).u8(privacy.map_or(0, |privacy| privacy.0)).bool(locked.unwrap_or(false));
    to.u32(group_quota.unwrap_or(0)).u32(uid.unwrap_or(0)).u32(gid.unwrap_or(0));
    to.raw(&tokens_after.unwrap_or(0).to_le_bytes())
}

fn get_change(from: &mut FieldReader<'_>) -> Result<PrincipalChange, WireError> {
    let (bits, privacy, locked) = (from.u8()?, from.u8()?, from.bool("locked")?);
    let numbers = [from.u32()?, from.u32()?, from.u32()?];
    let tokens_after = i64::from_le_bytes(from.array()?);
    let has = |at: u8| bits & 1 << at != 0;
    let absent = !has(0) && privacy != 0
        || !has(1) && numbers[0] != 0
        || !has(2) && numbers[1] != 0
        || !has(3) && numbers[2] != 0
        || !has(4) && tokens_after != 0
        || !has(5) && locked;
    if bits & !CHANGE_BITS != 0 || absent {
        return Err(WireError::BadValue { what: "fields of a principal", value: bits.into() });
    }
    Ok(PrincipalChange {
        privacy: has(0).then_some(Privacy(privacy)),
        group_quota: has(1).then_some(numbers[0]),
        uid: has(2).then_some(numbers[1]),
        gid: has(3).then_some(numbers[2]),
        tokens_after: has(4).then_some(tokens_after),
        locked: has(5).then_some(locked),
    })
}

/// Omits principals that do not fit, and then clears `end`.
pub(super) fn put_principals(to: &mut Writer, principals: &[(Principal, u32)], end: bool) {
    let fit = fitting(principals, |(principal, _)| PRINCIPAL_BYTES + principal.name.len());
    to.u32(fit as u32).bool(end && fit == principals.len());
    for (principal, count) in &principals[..fit] {
        put_id(to, principal.id)
            .u8(principal.kind as u8)
            .u8(principal.privacy.0)
            .bool(principal.locked);
        put_id(put_id(to, principal.owner), principal.creator)
            .u32(principal.group_quota)
            .u32(*count);
        put_number(to, principal.uid);
        put_number(to, principal.gid).raw(&principal.tokens_after.to_le_bytes());
        put_name(to, &principal.name);
    }
}

pub(super) fn get_principals(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let (count, end) = (from.u32()? as usize, from.bool("end")?);
    from.check_room(count, PRINCIPAL_BYTES)?;
    let principals = (0..count).map(|_| get_principal(from)).collect::<Result<_, _>>()?;
    Ok(Answer::Principals { principals, end })
}

fn get_principal(from: &mut FieldReader<'_>) -> Result<(Principal, u32), WireError> {
    let (id, kind) = (get_id(from)?, from.choice("kind of principal", PrincipalKind::from_wire)?);
    let (privacy, locked) = (Privacy(from.u8()?), from.bool("locked")?);
    let (owner, creator) = (get_id(from)?, get_id(from)?);
    let (group_quota, count) = (from.u32()?, from.u32()?);
    let (uid, gid) = (get_number(from)?, get_number(from)?);
    let tokens_after = i64::from_le_bytes(from.array()?);
    let name = get_name(from)?;
    Ok((
        Principal {
            id,
            kind,
            name,
            owner,
            creator,
            privacy,
            group_quota,
            uid,
            gid,
            tokens_after,
            locked,
        },
        count,
    ))
}

/// Omits names that do not fit, and then clears `end`.
pub(super) fn put_names(to: &mut Writer, names: &[(PrincipalId, String)], end: bool) {
    let fit = fitting(names, |(_, name)| NAMED_BYTES + name.len());
    to.u32(fit as u32).bool(end && fit == names.len());
    for (id, name) in &names[..fit] {
        put_name(put_id(to, *id), name);
    }
}

pub(super) fn get_names(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let (count, end) = (from.u32()? as usize, from.bool("end")?);
    from.check_room(count, NAMED_BYTES)?;
    let names = (0..count)
        .map(|_| Ok((get_id(from)?, get_name(from)?)))
        .collect::<Result<_, WireError>>()?;
    Ok(Answer::Names { names, end })
}

/// A principal in more groups than fit breaks the message, so that no reader takes a part for the
/// whole.
pub(super) fn put_subdomain(to: &mut Writer, at: Revision, groups: &[PrincipalId]) {
    to.u64(at.0).u32(groups.len() as u32);
    for id in groups {
        put_id(to, *id);
    }
}

pub(super) fn get_subdomain(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let (at, count) = (Revision(from.u64()?), from.u32()? as usize);
    from.check_room(count, size_of::<u32>())?;
    let groups = (0..count).map(|_| get_id(from)).collect::<Result<_, _>>()?;
    Ok(Answer::Subdomain { at, groups })
}
