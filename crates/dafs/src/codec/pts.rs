//! Messages about users and groups.

use types::limits::{PRINCIPAL_NAME_BYTES_MAX, PRINCIPALS_MAX};
use types::{
    Answer, NewPrincipal, Principal, PrincipalChange, PrincipalId, Privacy, PtsCall, Revision,
    WhichPrincipal,
};

use super::Procedure;
use super::layout::{
    Flag, Layout, Plain, Short, ShortList, get_all, get_page, layout, messages, put_page,
};
use crate::WireError;
use crate::wire::{FieldReader, Writer};

/// A principal's name.
pub(super) const NAME: Short = Short("bytes of a principal's name", PRINCIPAL_NAME_BYTES_MAX);
/// Bytes of a principal without its name.
const PRINCIPAL_BYTES: usize = 41;
/// Bytes of a number with its name, without the name.
const NAMED_BYTES: usize = 6;
const BY_ID: u8 = 1;
const BY_NAME: u8 = 2;
const BY_UID: u8 = 3;
const CHANGE_BITS: u8 = 0x3f;

/// `None`: the number of all ones, which no uid or gid may be.
struct UserNumber;

impl Layout<Option<u32>> for UserNumber {
    fn put(&self, to: &mut Writer, value: &Option<u32>) {
        to.require(*value != Some(u32::MAX), "uid or gid", u32::MAX.into())
            .u32(value.unwrap_or(u32::MAX));
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<Option<u32>, WireError> {
        Ok(Some(from.u32()?).filter(|number| *number != u32::MAX))
    }
}

/// A principal, or none, by the name that an error says.
pub(super) struct MaybePrincipal(pub &'static str);

impl Layout<Option<PrincipalId>> for MaybePrincipal {
    fn put(&self, to: &mut Writer, value: &Option<PrincipalId>) {
        to.require(*value != Some(PrincipalId::NONE), self.0, 0);
        Plain.put(to, &value.unwrap_or(PrincipalId::NONE));
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<Option<PrincipalId>, WireError> {
        Ok(Some(Plain.get(from)?).filter(|id| *id != PrincipalId::NONE))
    }
}

impl Layout<WhichPrincipal> for Plain {
    fn put(&self, to: &mut Writer, value: &WhichPrincipal) {
        match value {
            WhichPrincipal::Id(id) => self.put(to.u8(BY_ID), id),
            WhichPrincipal::Name(name) => NAME.put(to.u8(BY_NAME), name),
            WhichPrincipal::Uid(uid) => self.put(to.u8(BY_UID), uid),
        }
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<WhichPrincipal, WireError> {
        Ok(match from.u8()? {
            BY_ID => WhichPrincipal::Id(self.get(from)?),
            BY_NAME => WhichPrincipal::Name(NAME.get(from)?),
            BY_UID => WhichPrincipal::Uid(from.u32()?),
            value => {
                let value = value.into();
                return Err(WireError::BadValue { what: "how a principal is meant", value });
            }
        })
    }
}

messages! {
    PtsCall by Procedure:
    fn put_pts_call(to);
    fn get_pts_call(from, number);
    {
        PtsNames => Names { ids: ShortList("principals", PRINCIPALS_MAX, size_of::<u32>(), Plain) }
        PtsNumbers => Numbers {
            names: ShortList("principals", PRINCIPALS_MAX, size_of::<u16>(), NAME),
        }
        PtsExamine => Examine { id }
        PtsCreate => Create { new }
        PtsDelete => Delete { id }
        PtsRename => Rename { id, name: NAME }
        PtsChangeOwner => ChangeOwner { id, owner }
        PtsSetFields => SetFields { id, change }
        PtsJoin => Join { group, member }
        PtsLeave => Leave { group, member }
        PtsMembership => Membership { id, groups: Flag("groups"), after, max }
        PtsOwned => Owned { owner, after, max }
        PtsEntries => Entries { after, max }
        PtsMax => Max {}
        PtsSetMax => SetMax { user, group }
    }
    ()
    put {}
    get {
        other => {
            let value = other as u64;
            return Err(WireError::BadValue { what: "procedure of users and groups", value });
        }
    }
}

impl Layout<NewPrincipal> for Plain {
    fn put(&self, to: &mut Writer, new: &NewPrincipal) {
        self.put(to, &new.kind);
        MaybePrincipal("number of a principal").put(to, &new.id);
        UserNumber.put(to, &new.uid);
        UserNumber.put(to, &new.gid);
        NAME.put(to, &new.name);
        to.bool(new.owner.is_some());
        if let Some(owner) = &new.owner {
            self.put(to, owner);
        }
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<NewPrincipal, WireError> {
        let kind = self.get(from)?;
        let id = MaybePrincipal("number of a principal").get(from)?;
        let (uid, gid) = (UserNumber.get(from)?, UserNumber.get(from)?);
        let name = NAME.get(from)?;
        let owner = from.bool("owner")?.then(|| self.get(from)).transpose()?;
        Ok(NewPrincipal { kind, name, id, owner, uid, gid })
    }
}

impl Layout<PrincipalChange> for Plain {
    fn put(&self, to: &mut Writer, change: &PrincipalChange) {
        let PrincipalChange { privacy, group_quota, uid, gid, tokens_after, locked } = *change;
        let present = [
            privacy.is_some(),
            group_quota.is_some(),
            uid.is_some(),
            gid.is_some(),
            tokens_after.is_some(),
            locked.is_some(),
        ];
        let bits =
            present.into_iter().enumerate().fold(0, |bits, (at, is)| bits | u8::from(is) << at);
        to.u8(bits).u8(privacy.map_or(0, |privacy| privacy.0)).bool(locked.unwrap_or(false));
        to.u32(group_quota.unwrap_or(0)).u32(uid.unwrap_or(0)).u32(gid.unwrap_or(0));
        self.put(to, &tokens_after.unwrap_or(0));
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<PrincipalChange, WireError> {
        let (bits, privacy, locked) = (from.u8()?, from.u8()?, from.bool("locked")?);
        let numbers = [from.u32()?, from.u32()?, from.u32()?];
        let tokens_after = Layout::<i64>::get(self, from)?;
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
}

/// A principal, with the number of its groups or members.
impl Layout<(Principal, u32)> for Plain {
    fn put(&self, to: &mut Writer, (principal, count): &(Principal, u32)) {
        self.put(to, &principal.id);
        self.put(to, &principal.kind);
        to.u8(principal.privacy.0).bool(principal.locked);
        self.put(to, &principal.owner);
        self.put(to, &principal.creator);
        to.u32(principal.group_quota).u32(*count);
        UserNumber.put(to, &principal.uid);
        UserNumber.put(to, &principal.gid);
        self.put(to, &principal.tokens_after);
        NAME.put(to, &principal.name);
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<(Principal, u32), WireError> {
        let (id, kind) = (self.get(from)?, self.get(from)?);
        let (privacy, locked) = (Privacy(from.u8()?), from.bool("locked")?);
        let (owner, creator) = (self.get(from)?, self.get(from)?);
        let (group_quota, count) = (from.u32()?, from.u32()?);
        let principal = Principal {
            id,
            kind,
            privacy,
            locked,
            owner,
            creator,
            group_quota,
            uid: UserNumber.get(from)?,
            gid: UserNumber.get(from)?,
            tokens_after: self.get(from)?,
            name: NAME.get(from)?,
        };
        Ok((principal, count))
    }
}

pub(super) fn put_principals(to: &mut Writer, principals: &[(Principal, u32)], end: bool) {
    put_page(to, principals, end, |(one, _)| PRINCIPAL_BYTES + one.name.len(), &Plain);
}

pub(super) fn get_principals(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    get_page(from, PRINCIPAL_BYTES, &Plain)
        .map(|(principals, end)| Answer::Principals { principals, end })
}

/// A principal's number and name.
struct Named;

impl Layout<(PrincipalId, String)> for Named {
    fn put(&self, to: &mut Writer, (id, name): &(PrincipalId, String)) {
        Plain.put(to, id);
        NAME.put(to, name);
    }

    fn get(&self, from: &mut FieldReader<'_>) -> Result<(PrincipalId, String), WireError> {
        Ok((Plain.get(from)?, NAME.get(from)?))
    }
}

pub(super) fn put_names(to: &mut Writer, names: &[(PrincipalId, String)], end: bool) {
    put_page(to, names, end, |(_, name)| NAMED_BYTES + name.len(), &Named);
}

pub(super) fn get_names(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    get_page(from, NAMED_BYTES, &Named).map(|(names, end)| Answer::Names { names, end })
}

/// A principal in more groups than fit breaks the message, so that no reader takes a part for the
/// whole.
pub(super) fn put_subdomain(to: &mut Writer, at: Revision, groups: &[PrincipalId]) {
    to.u64(at.0).u32(groups.len() as u32);
    groups.iter().for_each(|id| Plain.put(to, id));
}

pub(super) fn get_subdomain(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let (at, count) = (Revision(from.u64()?), from.u32()? as usize);
    Ok(Answer::Subdomain { at, groups: get_all(from, count, size_of::<u32>(), &Plain)? })
}
