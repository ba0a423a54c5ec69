//! Messages about fences and mandates.

use std::net::{IpAddr, Ipv6Addr};

use types::limits::{NAME_BYTES_MAX, PARTITION_NAME_BYTES_MAX, WHY_BYTES_MAX};
use types::{
    Answer, ClientId, Fence, GuardCall, Mandate, PrincipalId, Realm, ServerId, SessionId, Whom,
};

use super::Procedure;
use super::layout::{
    Layout, Plain, Short, get_all, get_page, layout, messages, octets, put_page, record,
};
use crate::WireError;
use crate::wire::{FieldReader, Writer};

const WHY: Short = Short("bytes of a reason", WHY_BYTES_MAX);
const PATTERN: Short = Short("bytes of a volume's name", NAME_BYTES_MAX);
const PARTITION: Short = Short("bytes of a partition's name", PARTITION_NAME_BYTES_MAX);
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

messages! {
    GuardCall by Procedure:
    fn put_guard_call(to);
    fn get_guard_call(from, number);
    {
        GuardFences => Fences { after, max }
        GuardAddFence => AddFence { whom, seconds, why: WHY }
        GuardRemoveFence => RemoveFence { number }
        GuardMandates => Mandates { after, max }
        GuardAddMandate => AddMandate { principal, realm }
        GuardRemoveMandate => RemoveMandate { number }
        GuardWithdrawKeys => WithdrawKeys { server }
        GuardAuditLines => AuditLines { file, offset }
    }
    ()
    put {}
    get {
        other => {
            return Err(WireError::BadValue { what: "procedure of rules", value: other as u64 });
        }
    }
}

record!(Fence { number, whom, since, until, by, why: WHY });
record!(Mandate { number, principal, by, realm });

/// The caller on whose behalf the call is made: a flag, and the principal or none.
pub(super) struct OnBehalf;

impl Layout<Option<PrincipalId>> for OnBehalf {
    fn put(&self, to: &mut Writer, value: &Option<PrincipalId>) {
        Plain.put(to.bool(value.is_some()), &value.unwrap_or(PrincipalId::NONE));
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<Option<PrincipalId>, WireError> {
        let (is_given, principal): (_, PrincipalId) =
            (from.bool("on behalf of")?, Plain.get(from)?);
        if !is_given && principal != PrincipalId::NONE {
            let value = u64::from(principal.0.cast_unsigned());
            return Err(WireError::BadValue { what: "on behalf of", value });
        }
        Ok(is_given.then_some(principal))
    }
}

/// An address is 16 bytes of IPv6, with IPv4 mapped; its prefix counts in its own family.
impl Layout<Whom> for Plain {
    fn put(&self, to: &mut Writer, value: &Whom) {
        match *value {
            Whom::User(id) => to.u8(USER).u8(0).u128(u128::from(id.0.cast_unsigned())),
            Whom::Hosts { address, prefix } => to
                .require(prefix <= longest(address), "bits of an address", prefix.into())
                .u8(HOSTS)
                .u8(prefix)
                .raw(&octets(address)),
            Whom::Token(number) => to.u8(TOKEN).u8(0).u128(number),
            Whom::Client(ClientId(number)) => to.u8(CLIENT).u8(0).u128(number),
            Whom::Session(SessionId(number)) => to.u8(SESSION).u8(0).u128(number.into()),
        };
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<Whom, WireError> {
        let (kind, prefix, bytes) = (from.u8()?, from.u8()?, from.array::<16>()?);
        let number = u128::from_le_bytes(bytes);
        let bad =
            |value: u8| WireError::BadValue { what: "who is fenced off", value: value.into() };
        match (kind, prefix) {
            (USER, 0) => u32::try_from(number)
                .map(|id| Whom::User(PrincipalId(id.cast_signed())))
                .map_err(|_| bad(kind)),
            (HOSTS, prefix) => {
                let address = Ipv6Addr::from(bytes).to_canonical();
                let is_longer = prefix > longest(address);
                if is_longer { Err(bad(prefix)) } else { Ok(Whom::Hosts { address, prefix }) }
            }
            (TOKEN, 0) => Ok(Whom::Token(number)),
            (CLIENT, 0) => Ok(Whom::Client(ClientId(number))),
            (SESSION, 0) => {
                u64::try_from(number).map(|id| Whom::Session(SessionId(id))).map_err(|_| bad(kind))
            }
            (kind, _) => Err(bad(kind)),
        }
    }
}

fn longest(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl Layout<Realm> for Plain {
    fn put(&self, to: &mut Writer, value: &Realm) {
        match value {
            Realm::Volumes(pattern) => PATTERN.put(to.u8(VOLUMES), pattern),
            Realm::Server(server) => self.put(to.u8(SERVER), server),
            Realm::Partition(server, name) => {
                PARTITION.put(to.u8(ON_PARTITION).u128(server.0), name);
            }
        }
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<Realm, WireError> {
        Ok(match from.u8()? {
            VOLUMES => Realm::Volumes(PATTERN.get(from)?),
            SERVER => Realm::Server(self.get(from)?),
            ON_PARTITION => Realm::Partition(self.get(from)?, PARTITION.get(from)?),
            kind => {
                let value = kind.into();
                return Err(WireError::BadValue { what: "what is administered", value });
            }
        })
    }
}

pub(super) fn put_fences(to: &mut Writer, fences: &[Fence], end: bool) {
    put_page(to, fences, end, |fence| FENCE_BYTES + fence.why.len(), &Plain);
}

pub(super) fn get_fences(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    get_page(from, FENCE_BYTES, &Plain).map(|(fences, end)| Answer::Fences { fences, end })
}

pub(super) fn put_mandates(to: &mut Writer, mandates: &[Mandate], end: bool) {
    let names = |realm: &Realm| match realm {
        Realm::Volumes(name) | Realm::Partition(_, name) => name.len(),
        Realm::Server(_) => 0,
    };
    put_page(to, mandates, end, |one| MANDATE_BYTES + names(&one.realm), &Plain);
}

pub(super) fn get_mandates(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let least = size_of::<u64>() + 2 * size_of::<u32>() + REALM_BYTES_MIN;
    get_page(from, least, &Plain).map(|(mandates, end)| Answer::Mandates { mandates, end })
}

pub(super) fn put_enforced(to: &mut Writer, number: u64, missing: &[ServerId]) {
    to.u64(number).u32(missing.len() as u32);
    missing.iter().for_each(|server| Plain.put(to, server));
}

pub(super) fn get_enforced(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let (number, count) = (from.u64()?, from.u32()? as usize);
    Ok(Answer::Enforced { number, missing: get_all(from, count, size_of::<u128>(), &Plain)? })
}
