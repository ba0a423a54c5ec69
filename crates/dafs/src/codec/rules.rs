//! Messages about fences and mandates.

use std::net::{IpAddr, Ipv6Addr};

use types::limits::{NAME_BYTES_MAX, PARTITION_NAME_BYTES_MAX, WHY_BYTES_MAX};
use types::{
    Answer, Call, ClientId, Fence, GuardCall, Mandate, PrincipalId, Realm, ServerId, SessionId,
    Whom,
};

use super::Procedure;
use super::fields::{fitting, get_text, put_text};
use super::pts::{get_id, put_id};
use crate::WireError;
use crate::wire::{FieldReader, Writer};

const WHY: &str = "bytes of a reason";
const PATTERN: &str = "bytes of a volume's name";
const PARTITION: &str = "bytes of a partition's name";
/// Bytes of a fence without its reason.
const FENCE_BYTES: usize = 48;
/// Bytes of a mandate without names.
const MANDATE_BYTES: usize = 36;
/// Least bytes of a realm.
const REALM_BYTES_MIN: usize = 3;

const USER: u8 = 1;
const HOSTS: u8 = 2;
const TOKEN: u8 = 3;
const CLIENT: u8 = 4;
const SESSION: u8 = 5;
const VOLUMES: u8 = 1;
const SERVER: u8 = 2;
const ON_PARTITION: u8 = 3;

pub(super) fn put_guard_call<'w>(
    to: &'w mut Writer,
    behalf: Option<PrincipalId>,
    call: &GuardCall,
) -> &'w mut Writer {
    put_id(to.bool(behalf.is_some()), behalf.unwrap_or(PrincipalId::NONE));
    match call {
        GuardCall::Fences { after, max } | GuardCall::Mandates { after, max } => {
            to.u64(*after).u32(*max)
        }
        GuardCall::AddFence { whom, seconds, why } => {
            put_text(put_whom(to, whom).u64(*seconds), WHY, why, WHY_BYTES_MAX)
        }
        GuardCall::AddMandate { principal, realm } => put_realm(put_id(to, *principal), realm),
        GuardCall::RemoveFence { number } | GuardCall::RemoveMandate { number } => to.u64(*number),
        GuardCall::WithdrawKeys { server } => to.u128(server.0),
    }
}

pub(super) fn get_guard_call(
    from: &mut FieldReader<'_>,
    procedure: Procedure,
) -> Result<Call, WireError> {
    let (has_behalf, principal) = (from.bool("on behalf of")?, get_id(from)?);
    if !has_behalf && principal != PrincipalId::NONE {
        return Err(WireError::BadValue {
            what: "on behalf of",
            value: u64::from(principal.0.cast_unsigned()),
        });
    }
    let call = match procedure {
        Procedure::GuardFences => GuardCall::Fences { after: from.u64()?, max: from.u32()? },
        Procedure::GuardMandates => GuardCall::Mandates { after: from.u64()?, max: from.u32()? },
        Procedure::GuardAddFence => GuardCall::AddFence {
            whom: get_whom(from)?,
            seconds: from.u64()?,
            why: get_text(from, WHY, WHY_BYTES_MAX)?,
        },
        Procedure::GuardAddMandate => {
            GuardCall::AddMandate { principal: get_id(from)?, realm: get_realm(from)? }
        }
        Procedure::GuardRemoveFence => GuardCall::RemoveFence { number: from.u64()? },
        Procedure::GuardRemoveMandate => GuardCall::RemoveMandate { number: from.u64()? },
        Procedure::GuardWithdrawKeys => GuardCall::WithdrawKeys { server: ServerId(from.u128()?) },
        other => {
            return Err(WireError::BadValue { what: "procedure of rules", value: other as u64 });
        }
    };
    Ok(Call::Guard { behalf: has_behalf.then_some(principal), call: Box::new(call) })
}

/// An address is 16 bytes of IPv6, with IPv4 mapped; its prefix counts in its own family.
fn put_whom<'w>(to: &'w mut Writer, whom: &Whom) -> &'w mut Writer {
    match *whom {
        Whom::User(id) => to.u8(USER).u8(0).u128(u128::from(id.0.cast_unsigned())),
        Whom::Hosts { address, prefix } => {
            let octets = match address {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            to.require(prefix <= longest(address), "bits of an address", prefix.into())
                .u8(HOSTS)
                .u8(prefix)
                .raw(&octets)
        }
        Whom::Token(number) => to.u8(TOKEN).u8(0).u128(number),
        Whom::Client(ClientId(number)) => to.u8(CLIENT).u8(0).u128(number),
        Whom::Session(SessionId(number)) => to.u8(SESSION).u8(0).u128(number.into()),
    }
}

fn get_whom(from: &mut FieldReader<'_>) -> Result<Whom, WireError> {
    let (kind, prefix, bytes) = (from.u8()?, from.u8()?, from.array::<16>()?);
    let (number, bad) = (u128::from_le_bytes(bytes), |value: u8| WireError::BadValue {
        what: "who is fenced off",
        value: value.into(),
    });
    match (kind, prefix) {
        (USER, 0) => u32::try_from(number)
            .map(|id| Whom::User(PrincipalId(id.cast_signed())))
            .map_err(|_| bad(kind)),
        (HOSTS, prefix) => {
            let address = Ipv6Addr::from(bytes).to_canonical();
            if prefix > longest(address) {
                Err(bad(prefix))
            } else {
                Ok(Whom::Hosts { address, prefix })
            }
        }
        (TOKEN, 0) => Ok(Whom::Token(number)),
        (CLIENT, 0) => Ok(Whom::Client(ClientId(number))),
        (SESSION, 0) => {
            u64::try_from(number).map(|id| Whom::Session(SessionId(id))).map_err(|_| bad(kind))
        }
        (kind, _) => Err(bad(kind)),
    }
}

fn longest(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn put_realm<'w>(to: &'w mut Writer, realm: &Realm) -> &'w mut Writer {
    match realm {
        Realm::Volumes(pattern) => put_text(to.u8(VOLUMES), PATTERN, pattern, NAME_BYTES_MAX),
        Realm::Server(server) => to.u8(SERVER).u128(server.0),
        Realm::Partition(server, name) => {
            put_text(to.u8(ON_PARTITION).u128(server.0), PARTITION, name, PARTITION_NAME_BYTES_MAX)
        }
    }
}

fn get_realm(from: &mut FieldReader<'_>) -> Result<Realm, WireError> {
    Ok(match from.u8()? {
        VOLUMES => Realm::Volumes(get_text(from, PATTERN, NAME_BYTES_MAX)?),
        SERVER => Realm::Server(ServerId(from.u128()?)),
        ON_PARTITION => Realm::Partition(
            ServerId(from.u128()?),
            get_text(from, PARTITION, PARTITION_NAME_BYTES_MAX)?,
        ),
        kind => {
            return Err(WireError::BadValue { what: "what is administered", value: kind.into() });
        }
    })
}

/// Omits fences that do not fit, and then clears `end`.
pub(super) fn put_fences(to: &mut Writer, fences: &[Fence], end: bool) {
    let fit = fitting(fences, |fence| FENCE_BYTES + fence.why.len());
    to.u32(fit as u32).bool(end && fit == fences.len());
    for fence in fences.iter().take(fit) {
        put_whom(to.u64(fence.number), &fence.whom)
            .raw(&fence.since.to_le_bytes())
            .raw(&fence.until.to_le_bytes());
        put_text(put_id(to, fence.by), WHY, &fence.why, WHY_BYTES_MAX);
    }
}

pub(super) fn get_fences(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let (count, end) = (from.u32()? as usize, from.bool("end")?);
    from.check_room(count, FENCE_BYTES)?;
    let fence = |_| {
        Ok(Fence {
            number: from.u64()?,
            whom: get_whom(from)?,
            since: i64::from_le_bytes(from.array()?),
            until: i64::from_le_bytes(from.array()?),
            by: get_id(from)?,
            why: get_text(from, WHY, WHY_BYTES_MAX)?,
        })
    };
    Ok(Answer::Fences { fences: (0..count).map(fence).collect::<Result<_, WireError>>()?, end })
}

/// Omits mandates that do not fit, and then clears `end`.
pub(super) fn put_mandates(to: &mut Writer, mandates: &[Mandate], end: bool) {
    let names = |realm: &Realm| match realm {
        Realm::Volumes(name) | Realm::Partition(_, name) => name.len(),
        Realm::Server(_) => 0,
    };
    let fit = fitting(mandates, |mandate| MANDATE_BYTES + names(&mandate.realm));
    to.u32(fit as u32).bool(end && fit == mandates.len());
    for mandate in mandates.iter().take(fit) {
        put_realm(
            put_id(put_id(to.u64(mandate.number), mandate.principal), mandate.by),
            &mandate.realm,
        );
    }
}

pub(super) fn get_mandates(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let (count, end) = (from.u32()? as usize, from.bool("end")?);
    from.check_room(count, size_of::<u64>() + 2 * size_of::<u32>() + REALM_BYTES_MIN)?;
    let mandate = |_| {
        let (number, principal, by) = (from.u64()?, get_id(from)?, get_id(from)?);
        Ok(Mandate { number, principal, by, realm: get_realm(from)? })
    };
    Ok(Answer::Mandates {
        mandates: (0..count).map(mandate).collect::<Result<_, WireError>>()?,
        end,
    })
}

pub(super) fn put_enforced(to: &mut Writer, number: u64, missing: &[ServerId]) {
    to.u64(number).u32(missing.len() as u32);
    for server in missing {
        to.u128(server.0);
    }
}

pub(super) fn get_enforced(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let (number, count) = (from.u64()?, from.u32()? as usize);
    from.check_room(count, size_of::<u128>())?;
    let missing =
        (0..count).map(|_| Ok(ServerId(from.u128()?))).collect::<Result<_, WireError>>()?;
    Ok(Answer::Enforced { number, missing })
}
