//! The calls that change principals.

use std::collections::BTreeSet;

use types::{
    Answer, Changed, Fault, NewPrincipal, OWN_IDS, Principal, PrincipalChange, PrincipalId,
    PrincipalKind, Privacy, PtsCall, WhichPrincipal,
};

use super::{Edit, PtsAsker, find, need};
use crate::names::{
    Network, check_group_name, check_user_name, is_realm_group, prefix, realm_group,
};
use crate::principal_book::{Book, FIRST, GroupLink, Highest, Write, is_system};

/// Groups that a new user may create.
const GROUP_QUOTA: u32 = 20;
/// Users that may be created in a realm when its group is new. Source: OpenAFS `ptutils.c`.
const REALM_QUOTA: u32 = 30;
/// An unlimited quota.
const NO_QUOTA: u32 = u32::MAX;
/// Names and links that one change may touch: it is one batch.
const EDIT_MAX: usize = 100_000;

/// The changes that a caller may make, and the records before them.
pub(super) struct PrincipalChanges<'a> {
    pub book: &'a dyn Book,
    pub asker: &'a PtsAsker,
}

impl PrincipalChanges<'_> {
    /// The answer to a call, and what it changes.
    pub(super) fn perform(&self, call: &PtsCall) -> Result<(Answer, Option<Edit>), Fault> {
        let done = |edit| Ok((Answer::Done, Some(self.about_realms(edit)?)));
        match call {
            PtsCall::Create { new } => {
                let (record, edit) = self.create(new)?;
                let edit = self.about_realms(edit)?;
                Ok((Answer::Principals { principals: vec![(record, 0)], end: true }, Some(edit)))
            }
            PtsCall::Delete { id } => done(self.delete(*id)?),
            PtsCall::Rename { id, name } => done(self.rename(*id, name)?),
            PtsCall::ChangeOwner { id, owner } => done(self.change_owner(*id, *owner)?),
            PtsCall::SetFields { id, change } => done(self.set_fields(*id, change)?),
            PtsCall::Join { group, member } => done(self.join(*group, *member)?),
            PtsCall::Leave { group, member } => done(self.leave(*group, *member)?),
            PtsCall::SetMax { user, group } => done(self.set_max(*user, *group)?),
            PtsCall::Names { .. }
            | PtsCall::Numbers { .. }
            | PtsCall::Examine { .. }
            | PtsCall::Membership { .. }
            | PtsCall::Owned { .. }
            | PtsCall::Entries { .. }
            | PtsCall::Max => Err(Fault::Invalid),
        }
    }

    /// A change of the group that stands for a realm's users changes the groups of all of them, and
    /// who may log in. So only administrators make one, however the name came about, and the groups
    /// of all principals are looked up anew.
    fn about_realms(&self, edit: Edit) -> Result<Edit, Fault> {
        debug_assert!(
            edit.writes.iter().all(|write| match write {
                Write::Join { group, .. } => !is_of_many(*group),
                _ => true,
            }),
            "AC-13: no record makes a member of a group that proof alone decides"
        );
        for write in &edit.writes {
            let (id, after) = match write {
                Write::Put(one) => (one.id, Some(&one.name)),
                Write::Remove(id) => (*id, None),
                Write::Join { .. } | Write::Leave { .. } | Write::Highest(_) => continue,
            };
            let before = self.book.get(id)?.map(|one| one.name);
            let of_realm = before.iter().chain(after).any(|name| is_realm_group(name));
            if of_realm && before.as_ref() != after {
                self.asker.need_administrator()?;
                return Ok(Edit { changed: Changed::Principals, ..edit });
            }
        }
        Ok(edit)
    }

    /// The requested number, or the next free one.
    fn number(&self, new: &NewPrincipal, highest: &mut Highest) -> Result<PrincipalId, Fault> {
        let is_group = new.kind != PrincipalKind::User;
        let id = match new.id {
            Some(id) if id == PrincipalId::NONE || id == FIRST || id.is_group() != is_group => {
                return Err(Fault::Invalid);
            }
            Some(id) if self.book.get(id)?.is_some() => return Err(Fault::Exists),
            Some(id) => id,
            None => {
                let step = if is_group { -1 } else { 1 };
                let mut last = if is_group { highest.group } else { highest.user };
                loop {
                    last = PrincipalId(
                        last.0
                            .checked_add(step)
                            .filter(|next| *next != i32::MIN)
                            .ok_or(Fault::NoSpace)?,
                    );
                    if self.book.get(last)?.is_none() {
                        break last;
                    }
                }
            }
        };
        if is_group {
            highest.group = highest.group.min(id);
        } else {
            highest.user = highest.user.max(id);
        }
        Ok(id)
    }

    fn need_free(&self, name: &str) -> Result<(), Fault> {
        if self.book.named(name)?.is_some() { Err(Fault::Exists) } else { Ok(()) }
    }

    fn create(&self, new: &NewPrincipal) -> Result<(Principal, Edit), Fault> {
        let me = self.asker.me()?;
        if new.gid.is_some_and(|gid| gid >= OWN_IDS) {
            return Err(Fault::Invalid);
        }
        if new.kind != PrincipalKind::Group || new.id.is_some() || new.uid.is_some() {
            self.asker.need_administrator()?;
        }
        let name = match new.kind {
            PrincipalKind::Hosts => new.name.parse::<Network>()?.to_string(),
            PrincipalKind::User | PrincipalKind::Group => new.name.clone(),
        };
        self.need_free(&name)?;
        let before = self.book.highest()?;
        let mut highest = before;
        let id = self.number(new, &mut highest)?;
        let mut record = Principal {
            id,
            kind: new.kind,
            name,
            owner: PrincipalId::ADMINISTRATORS,
            creator: me,
            privacy: Privacy::GROUP,
            group_quota: 0,
            uid: None,
            gid: None,
            tokens_after: 0,
            locked: false,
        };
        let mut writes = Vec::new();
        match new.kind {
            PrincipalKind::User => {
                check_user_name(&record.name)?;
                record.privacy = Privacy::USER;
                record.group_quota = GROUP_QUOTA;
                let realm = self.charge_realm(&record.name)?;
                record.uid = self.first_uid(new, id, realm.is_some())?;
                record.gid = new.gid.or(record.uid);
                writes.extend(realm.map(Write::Put));
            }
            PrincipalKind::Group => {
                record.owner = self.first_owner(me, new, &record)?;
                check_group_name(&record.name)?;
                self.need_prefix(&record)?;
                if is_realm_group(&record.name) {
                    record.group_quota = REALM_QUOTA;
                }
                writes.extend(self.charge(me)?.map(Write::Put));
            }
            PrincipalKind::Hosts => {}
        }
        writes.push(Write::Put(record.clone()));
        if highest != before {
            writes.push(Write::Highest(highest));
        }
        let changed = changed_by(&record);
        Ok((record, Edit { writes, changed }))
    }

    /// The requested uid, or the user's number if that is free. Users of other realms have none by
    /// default: the next number of the cell may be a uid in use on a trusted host.
    fn first_uid(
        &self,
        new: &NewPrincipal,
        id: PrincipalId,
        foreign: bool,
    ) -> Result<Option<u32>, Fault> {
        match new.uid {
            Some(uid) if uid == 0 || uid >= OWN_IDS => Err(Fault::Invalid),
            Some(uid) if self.book.with_uid(uid)?.is_some() => Err(Fault::Exists),
            Some(uid) => Ok(Some(uid)),
            None if foreign => Ok(None),
            None => {
                let own = id.0.cast_unsigned();
                Ok(if self.book.with_uid(own)?.is_none() { Some(own) } else { None })
            }
        }
    }

    fn first_owner(
        &self,
        me: PrincipalId,
        new: &NewPrincipal,
        record: &Principal,
    ) -> Result<PrincipalId, Fault> {
        let owner = match &new.owner {
            None => return Ok(me),
            Some(WhichPrincipal::Name(name)) if *name == record.name => return Ok(record.id),
            Some(which) => find(self.book, which)?,
        };
        need_owner(&owner)?;
        let mine =
            owner.id == me || owner.kind == PrincipalKind::Group && self.asker.cps.has(owner.id);
        if mine || self.asker.is_administrator() { Ok(owner.id) } else { Err(Fault::NotPermitted) }
    }

    /// Takes one from the number of groups that the caller may create.
    fn charge(&self, me: PrincipalId) -> Result<Option<Principal>, Fault> {
        if self.asker.is_administrator() {
            return Ok(None);
        }
        let mut record = self.need(me)?;
        match record.group_quota {
            NO_QUOTA => return Ok(None),
            0 => return Err(Fault::QuotaExceeded),
            left => record.group_quota = left - 1,
        }
        Ok(Some(record))
    }

    /// The group of a new user's realm, with its quota reduced by one; `None`: the user is one of
    /// this cell.
    fn charge_realm(&self, user: &str) -> Result<Option<Principal>, Fault> {
        let Some(name) = realm_group(user) else { return Ok(None) };
        let mut group = find(self.book, &WhichPrincipal::Name(name))?;
        if group.group_quota != NO_QUOTA {
            group.group_quota = group.group_quota.checked_sub(1).ok_or(Fault::QuotaExceeded)?;
        }
        Ok(Some(group))
    }

    /// Requires that a group's name begins with its owner's, unless an administrator gives it. A
    /// group that owns itself, or has no owner, keeps the begin of its name.
    fn need_prefix(&self, group: &Principal) -> Result<(), Fault> {
        if self.asker.is_administrator() {
            return Ok(());
        }
        let owner = if group.owner == group.id {
            self.need(self.asker.me()?)?
        } else {
            self.need(group.owner)?
        };
        if prefix(&group.name) == Some(prefix_of(&owner)) { Ok(()) } else { Err(Fault::Invalid) }
    }

    fn delete(&self, id: PrincipalId) -> Result<Edit, Fault> {
        let record = self.need(id)?;
        if record.kind != PrincipalKind::Group {
            self.asker.need_administrator()?;
        }
        self.asker.need_control(&record)?;
        if is_system(id) {
            return Err(Fault::NotPermitted);
        }
        let mut writes = Vec::new();
        for group in self.book.linked(GroupLink::Group, id, FIRST, EDIT_MAX)? {
            writes.push(Write::Leave { group, member: id });
        }
        for member in self.book.linked(GroupLink::Member, id, FIRST, EDIT_MAX)? {
            writes.push(Write::Leave { group: id, member });
        }
        for owned in self.book.linked(GroupLink::Owned, id, FIRST, EDIT_MAX)? {
            if owned != id {
                writes
                    .push(Write::Put(Principal { owner: PrincipalId::NONE, ..self.need(owned)? }));
            }
        }
        if record.kind == PrincipalKind::Group
            && let Some(creator) = self.book.get(record.creator)?
            && creator.kind == PrincipalKind::User
        {
            writes.push(Write::Put(Principal {
                group_quota: returned(creator.group_quota),
                ..creator
            }));
        }
        if writes.len() > EDIT_MAX {
            return Err(Fault::TooBig);
        }
        writes.push(Write::Remove(id));
        Ok(Edit { writes, changed: changed_by(&record) })
    }

    fn rename(&self, id: PrincipalId, name: &str) -> Result<Edit, Fault> {
        let mut record = self.need(id)?;
        self.asker.need_control(&record)?;
        match record.kind {
            PrincipalKind::User => {
                self.asker.need_administrator()?;
                check_user_name(name)?;
            }
            PrincipalKind::Group => check_group_name(name)?,
            PrincipalKind::Hosts => return Err(Fault::Invalid),
        }
        if is_system(id) {
            return Err(Fault::NotPermitted);
        }
        if record.kind == PrincipalKind::Group && !self.asker.is_administrator() {
            let begins = match self.book.get(record.owner)? {
                Some(owner) if owner.id != id => prefix_of(&owner).to_owned(),
                _ => prefix_of(&record).to_owned(),
            };
            if prefix(name) != Some(&begins) {
                return Err(Fault::Invalid);
            }
        }
        if record.name != name {
            self.need_free(name)?;
        }
        let before = prefix_of(&record).to_owned();
        record.name = name.to_owned();
        let mut writes = Vec::new();
        self.put_renamed(record, &before, &mut writes)?;
        Ok(Edit { writes, changed: Changed::Principal(id) })
    }

    /// Writes a record under its new name, and renames everything that it owns and whose name
    /// begins with its old one.
    fn put_renamed(
        &self,
        record: Principal,
        before: &str,
        writes: &mut Vec<Write>,
    ) -> Result<(), Fault> {
        let mut seen = BTreeSet::from([record.id]);
        let mut given = BTreeSet::from([record.name.clone()]);
        let mut owners = vec![(record, before.to_owned())];
        while let Some((owner, before)) = owners.pop() {
            let begins = prefix_of(&owner).to_owned();
            if begins != before {
                for id in self.book.linked(GroupLink::Owned, owner.id, FIRST, EDIT_MAX)? {
                    let mut owned = self.need(id)?;
                    let named = owned
                        .name
                        .split_once(':')
                        .filter(|(begin, _)| *begin == before)
                        .map(|(_, rest)| rest);
                    let Some(rest) =
                        named.filter(|_| owned.kind == PrincipalKind::Group && seen.insert(id))
                    else {
                        continue;
                    };
                    let name = format!("{begins}:{rest}");
                    check_group_name(&name)?;
                    self.need_free(&name)?;
                    if !given.insert(name.clone()) {
                        return Err(Fault::Exists);
                    }
                    owned.name = name;
                    owners.push((owned, before.clone()));
                }
            }
            writes.push(Write::Put(owner));
            if writes.len() > EDIT_MAX {
                return Err(Fault::TooBig);
            }
        }
        Ok(())
    }

    fn change_owner(&self, id: PrincipalId, owner: PrincipalId) -> Result<Edit, Fault> {
        let mut record = self.need(id)?;
        self.asker.need_control(&record)?;
        if record.kind != PrincipalKind::Group || is_system(id) {
            return Err(Fault::Invalid);
        }
        let new = self.need(owner)?;
        need_owner(&new)?;
        record.owner = owner;
        let before = prefix_of(&record).to_owned();
        let mut writes = Vec::new();
        if let Some((_, rest)) = record.name.split_once(':').filter(|_| owner != id) {
            let name = format!("{}:{rest}", prefix_of(&new));
            check_group_name(&name)?;
            if name != record.name {
                self.need_free(&name)?;
            }
            record.name = name;
        }
        self.put_renamed(record, &before, &mut writes)?;
        Ok(Edit { writes, changed: Changed::Principal(id) })
    }

    fn set_fields(&self, id: PrincipalId, change: &PrincipalChange) -> Result<Edit, Fault> {
        let mut record = self.need(id)?;
        let PrincipalChange { privacy, group_quota, uid, gid, tokens_after, locked } = *change;
        if group_quota.is_some() || uid.is_some() || gid.is_some() || locked.is_some() {
            self.asker.need_administrator()?;
        }
        if privacy.is_some() {
            self.asker.need_control(&record)?;
        }
        let own = id == self.asker.principal && id != PrincipalId::ANONYMOUS;
        if tokens_after.is_some() && !own {
            self.asker.need_administrator()?;
        }
        let is_user = record.kind == PrincipalKind::User && !is_system(id);
        // Mode bits take a group's gid for the gid of its members.
        let has_gid = is_user || record.kind == PrincipalKind::Group && !is_system(id);
        let odd = !is_user && (uid.is_some() || tokens_after.is_some() || locked.is_some())
            || !has_gid && gid.is_some();
        // Numbers from there on belong to users whose records have none.
        let taken = |id: Option<u32>| id.is_some_and(|id| (OWN_IDS..u32::MAX).contains(&id));
        if odd || uid == Some(0) || taken(uid) || taken(gid) {
            return Err(Fault::Invalid);
        }
        let given = |number: u32| (number != u32::MAX).then_some(number);
        if let Some(uid) = uid.and_then(given)
            && self.book.with_uid(uid)?.is_some_and(|by| by != id)
        {
            return Err(Fault::Exists);
        }
        record.privacy = privacy.unwrap_or(record.privacy);
        record.group_quota = group_quota.unwrap_or(record.group_quota);
        record.uid = uid.map_or(record.uid, given);
        record.gid = gid.map_or(record.gid, given);
        record.tokens_after = tokens_after.unwrap_or(record.tokens_after);
        record.locked = locked.unwrap_or(record.locked);
        Ok(Edit { writes: vec![Write::Put(record)], changed: Changed::Principal(id) })
    }

    /// A group that may have members, and a principal that may be one.
    fn pair(
        &self,
        group: PrincipalId,
        member: PrincipalId,
    ) -> Result<(Principal, Principal), Fault> {
        let (group, member) = (self.need(group)?, self.need(member)?);
        let sound = group.kind == PrincipalKind::Group
            && !is_of_many(group.id)
            && !is_of_many(member.id)
            && group.id != member.id;
        if sound { Ok((group, member)) } else { Err(Fault::Invalid) }
    }

    fn is_in(&self, group: PrincipalId, member: PrincipalId) -> Result<bool, Fault> {
        let before = PrincipalId(member.0 - 1);
        Ok(self.book.linked(GroupLink::Member, group, before, 1)?.first() == Some(&member))
    }

    fn join(&self, group: PrincipalId, member: PrincipalId) -> Result<Edit, Fault> {
        let (group, member) = self.pair(group, member)?;
        let by_anybody = group.privacy.has(Privacy::ADD_BY_ANYBODY)
            && self.asker.principal != PrincipalId::ANONYMOUS;
        let by_member = group.privacy.has(Privacy::ADD_BY_MEMBERS) && self.asker.cps.has(group.id);
        if !(by_anybody || by_member || self.asker.controls(&group)) {
            return Err(Fault::NotPermitted);
        }
        // Names alone decide its members.
        if is_realm_group(&group.name) {
            return Err(Fault::Invalid);
        }
        if self.is_in(group.id, member.id)? {
            return Err(Fault::Exists);
        }
        let writes = vec![Write::Join { group: group.id, member: member.id }];
        Ok(Edit { writes, changed: Changed::Principal(member.id) })
    }

    fn leave(&self, group: PrincipalId, member: PrincipalId) -> Result<Edit, Fault> {
        let (group, member) = self.pair(group, member)?;
        let by_member =
            group.privacy.has(Privacy::REMOVE_BY_MEMBERS) && self.asker.cps.has(group.id);
        if !(by_member || self.asker.controls(&group)) {
            return Err(Fault::NotPermitted);
        }
        if !self.is_in(group.id, member.id)? {
            return Err(Fault::NotFound);
        }
        let writes = vec![Write::Leave { group: group.id, member: member.id }];
        Ok(Edit { writes, changed: Changed::Principal(member.id) })
    }

    fn set_max(&self, user: PrincipalId, group: PrincipalId) -> Result<Edit, Fault> {
        self.asker.need_administrator()?;
        if user.0 < 0 || group.0 > 0 || group == FIRST {
            return Err(Fault::Invalid);
        }
        let mut highest = self.book.highest()?;
        highest.user = if user == PrincipalId::NONE { highest.user } else { user };
        highest.group = if group == PrincipalId::NONE { highest.group } else { group };
        // No principal's groups change.
        Ok(Edit {
            writes: vec![Write::Highest(highest)],
            changed: Changed::Principal(PrincipalId::NONE),
        })
    }

    fn need(&self, id: PrincipalId) -> Result<Principal, Fault> {
        need(self.book, id)
    }
}

/// Requires a principal that may own things: groups of all users and host sets may not.
fn need_owner(owner: &Principal) -> Result<(), Fault> {
    if is_of_many(owner.id) || owner.kind == PrincipalKind::Hosts {
        Err(Fault::Invalid)
    } else {
        Ok(())
    }
}

/// The begin of the names of a principal's groups.
fn prefix_of(owner: &Principal) -> &str {
    prefix(&owner.name).unwrap_or(&owner.name)
}

/// The creator of a deleted group may create one more.
fn returned(quota: u32) -> u32 {
    if quota == NO_QUOTA { NO_QUOTA } else { (quota + 1).min(NO_QUOTA - 1) }
}

/// Whether the number stands for callers that no record lists.
fn is_of_many(id: PrincipalId) -> bool {
    [PrincipalId::ANYBODY, PrincipalId::PROVED, PrincipalId::ANONYMOUS].contains(&id)
}

/// The principals that a new or removed record concerns: of a set of hosts, all callers from there.
fn changed_by(record: &Principal) -> Changed {
    match record.kind {
        PrincipalKind::Hosts => Changed::Principals,
        PrincipalKind::User | PrincipalKind::Group => Changed::Principal(record.id),
    }
}
