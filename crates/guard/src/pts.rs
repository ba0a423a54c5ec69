//! The calls about users and groups: who may make them, and what they change.
//!
//! Model. A record has an *owner*, who may change it: a user, or all members of a group.
//! Administrators may change all. The five privacy flags of a record give others a part of that.
//! The name of a group begins with its owner's name and a colon, unless an administrator gave it
//! another; so a group is renamed when its owner changes or is renamed, and so is what it owns.
//!
//! The group `system:authuser@REALM` has the users of that realm as members, by their names; it has
//! no others. A user of the realm can only be created while the group exists, and its quota is the
//! number of users that may still be created.
//!
//! Nothing is written here: an accepted call returns the [`Edit`] that the database applies as a
//! whole. The caller holds the database's lock meanwhile.

use std::collections::BTreeSet;

use types::limits::PRINCIPALS_MAX;
use types::{
    Answer, Changed, Fault, NewPrincipal, OWN_IDS, Principal, PrincipalChange, PrincipalId,
    PrincipalKind, Privacy, PtsCall, WhichPrincipal,
};

use crate::Cps;
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

/// The caller of a call about principals.
#[derive(Clone, Debug)]
pub struct PtsAsker {
    /// The caller's own number.
    pub principal: PrincipalId,
    /// The current protection set: the caller with all its groups.
    pub cps: Cps,
}

/// The writes of an accepted call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Applied as one batch, all or none.
    pub writes: Vec<Write>,
    /// The principals whose groups may differ afterwards.
    pub changed: Changed,
}

impl PtsAsker {
    fn is_administrator(&self) -> bool {
        self.cps.is_administrator()
    }

    /// The principal that acts: for the superuser, which is no principal, it is the administrators'
    /// group.
    fn me(&self) -> Result<PrincipalId, Fault> {
        match self.principal {
            PrincipalId::ANONYMOUS if self.is_administrator() => Ok(PrincipalId::ADMINISTRATORS),
            PrincipalId::ANONYMOUS => Err(Fault::NotPermitted),
            me => Ok(me),
        }
    }

    /// Whether the caller may change the whole record.
    fn controls(&self, record: &Principal) -> bool {
        let owner = record.owner;
        let owns = owner == self.principal && owner != PrincipalId::ANONYMOUS
            || owner.is_group() && self.cps.has(owner);
        self.is_administrator() || owns && owner != PrincipalId::NONE
    }

    fn need_control(&self, record: &Principal) -> Result<(), Fault> {
        if self.controls(record) { Ok(()) } else { Err(Fault::NotPermitted) }
    }

    fn need_administrator(&self) -> Result<(), Fault> {
        if self.is_administrator() { Ok(()) } else { Err(Fault::NotPermitted) }
    }

    fn is_viewer(&self) -> bool {
        self.is_administrator() || self.cps.has(PrincipalId::VIEWERS)
    }

    /// Requires that a part of the record is visible, which flags grant to any caller, or to
    /// members.
    fn need_sight(
        &self,
        record: &Principal,
        anybody: Privacy,
        members: Option<Privacy>,
    ) -> Result<(), Fault> {
        let open = record.privacy.has(anybody);
        let to_members =
            members.is_some_and(|flag| record.privacy.has(flag)) && self.cps.has(record.id);
        let own = record.id == self.principal && record.id != PrincipalId::ANONYMOUS;
        if open || to_members || own || self.is_viewer() || self.controls(record) {
            return Ok(());
        }
        Err(Fault::NotPermitted)
    }
}

/// The answer to a call, and what it changes.
///
/// # Errors
/// `NotPermitted`; `NoPrincipal`, also for a new user of a realm that has no group; `Exists` for
/// names, numbers and uids in use; `Invalid`; `QuotaExceeded` if the caller may create no more
/// groups, or the realm no more users; the book's.
pub fn perform(
    book: &dyn Book,
    asker: &PtsAsker,
    call: &PtsCall,
) -> Result<(Answer, Option<Edit>), Fault> {
    let answer = match call {
        PtsCall::Names { ids } => names_of(book, ids)?,
        PtsCall::Numbers { names } => numbers_of(book, names)?,
        PtsCall::Examine { id } => {
            let record = need(book, *id)?;
            asker.need_sight(
                &record,
                Privacy::STATUS_TO_ANYBODY,
                Some(Privacy::STATUS_TO_MEMBERS),
            )?;
            Answer::Principals { principals: vec![counted(book, record)?], end: true }
        }
        PtsCall::Membership { id, groups, after, max } => {
            let record = need(book, *id)?;
            asker.need_sight(
                &record,
                Privacy::MEMBERS_TO_ANYBODY,
                Some(Privacy::MEMBERS_TO_MEMBERS),
            )?;
            let of_group = record.kind == PrincipalKind::Group && !groups;
            list(
                book,
                if of_group { GroupLink::Member } else { GroupLink::Group },
                *id,
                *after,
                *max,
            )?
        }
        PtsCall::Owned { owner, after, max } => {
            match *owner {
                PrincipalId::NONE if asker.is_viewer() => {}
                PrincipalId::NONE => return Err(Fault::NotPermitted),
                owner => asker.need_sight(&need(book, owner)?, Privacy::OWNED_TO_ANYBODY, None)?,
            }
            list(book, GroupLink::Owned, *owner, *after, *max)?
        }
        PtsCall::Entries { after, max } => {
            if !asker.is_viewer() {
                return Err(Fault::NotPermitted);
            }
            entries(book, *after, *max)?
        }
        PtsCall::Max => {
            let Highest { user, group } = book.highest()?;
            Answer::Names { names: vec![(user, String::new()), (group, String::new())], end: true }
        }
        call => return change(book, asker, call),
    };
    Ok((answer, None))
}

fn change(
    book: &dyn Book,
    asker: &PtsAsker,
    call: &PtsCall,
) -> Result<(Answer, Option<Edit>), Fault> {
    let done = |edit| Ok((Answer::Done, Some(about_realms(book, asker, edit)?)));
    match call {
        PtsCall::Create { new } => {
            let (record, edit) = create(book, asker, new)?;
            let edit = about_realms(book, asker, edit)?;
            Ok((Answer::Principals { principals: vec![(record, 0)], end: true }, Some(edit)))
        }
        PtsCall::Delete { id } => done(delete(book, asker, *id)?),
        PtsCall::Rename { id, name } => done(rename(book, asker, *id, name)?),
        PtsCall::ChangeOwner { id, owner } => done(change_owner(book, asker, *id, *owner)?),
        PtsCall::SetFields { id, change } => done(set_fields(book, asker, *id, change)?),
        PtsCall::Join { group, member } => done(join(book, asker, *group, *member)?),
        PtsCall::Leave { group, member } => done(leave(book, asker, *group, *member)?),
        PtsCall::SetMax { user, group } => done(set_max(book, asker, *user, *group)?),
        PtsCall::Names { .. }
        | PtsCall::Numbers { .. }
        | PtsCall::Examine { .. }
        | PtsCall::Membership { .. }
        | PtsCall::Owned { .. }
        | PtsCall::Entries { .. }
        | PtsCall::Max => Err(Fault::Invalid),
    }
}

/// A change of the group that stands for a realm's users changes the groups of all of them, and who
/// may log in. So only administrators make one, however the name came about, and the groups of all
/// principals are looked up anew.
fn about_realms(book: &dyn Book, asker: &PtsAsker, edit: Edit) -> Result<Edit, Fault> {
    for write in &edit.writes {
        let (id, after) = match write {
            Write::Put(one) => (one.id, Some(&one.name)),
            Write::Remove(id) => (*id, None),
            Write::Join { .. } | Write::Leave { .. } | Write::Highest(_) => continue,
        };
        let before = book.get(id)?.map(|one| one.name);
        let of_realm = before.iter().chain(after).any(|name| is_realm_group(name));
        if of_realm && before.as_ref() != after {
            asker.need_administrator()?;
            return Ok(Edit { changed: Changed::Principals, ..edit });
        }
    }
    Ok(edit)
}

fn need(book: &dyn Book, id: PrincipalId) -> Result<Principal, Fault> {
    book.get(id)?.ok_or(Fault::NoPrincipal)
}

/// The number of the principal that `which` names.
///
/// # Errors
/// `NoPrincipal`, and the book's.
pub fn find(book: &dyn Book, which: &WhichPrincipal) -> Result<Principal, Fault> {
    let id = match which {
        WhichPrincipal::Id(id) => Some(*id),
        WhichPrincipal::Name(name) => book.named(name)?,
        WhichPrincipal::Uid(uid) => book.with_uid(*uid)?,
    };
    need(book, id.ok_or(Fault::NoPrincipal)?)
}

fn names_of(book: &dyn Book, ids: &[PrincipalId]) -> Result<Answer, Fault> {
    let name =
        |id: &PrincipalId| Ok((*id, book.get(*id)?.map(|record| record.name).unwrap_or_default()));
    Ok(Answer::Names { names: ids.iter().map(name).collect::<Result<_, Fault>>()?, end: true })
}

fn numbers_of(book: &dyn Book, names: &[String]) -> Result<Answer, Fault> {
    let number = |name: &String| Ok((book.named(name)?.unwrap_or(PrincipalId::NONE), name.clone()));
    Ok(Answer::Names { names: names.iter().map(number).collect::<Result<_, Fault>>()?, end: true })
}

fn page(max: u32) -> usize {
    (max as usize).min(PRINCIPALS_MAX)
}

fn list(
    book: &dyn Book,
    link: GroupLink,
    of: PrincipalId,
    after: PrincipalId,
    max: u32,
) -> Result<Answer, Fault> {
    let max = page(max);
    let mut ids = book.linked(link, of, after, max + 1)?;
    let end = ids.len() <= max;
    ids.truncate(max);
    match names_of(book, &ids)? {
        Answer::Names { names, .. } => Ok(Answer::Names { names, end }),
        other => Ok(other),
    }
}

fn entries(book: &dyn Book, after: PrincipalId, max: u32) -> Result<Answer, Fault> {
    let max = page(max);
    let mut records = book.entries(after, max + 1)?;
    let end = records.len() <= max;
    records.truncate(max);
    let principals =
        records.into_iter().map(|record| counted(book, record)).collect::<Result<_, _>>()?;
    Ok(Answer::Principals { principals, end })
}

/// Adds the number of its members, or of the groups that it is in.
fn counted(book: &dyn Book, record: Principal) -> Result<(Principal, u32), Fault> {
    let link =
        if record.kind == PrincipalKind::Group { GroupLink::Member } else { GroupLink::Group };
    let count = book.linked(link, record.id, FIRST, usize::MAX)?.len();
    Ok((record, u32::try_from(count).unwrap_or(u32::MAX)))
}

/// The requested number, or the next free one.
fn number(
    book: &dyn Book,
    new: &NewPrincipal,
    highest: &mut Highest,
) -> Result<PrincipalId, Fault> {
    let is_group = new.kind != PrincipalKind::User;
    let id = match new.id {
        Some(id) if id == PrincipalId::NONE || id == FIRST || id.is_group() != is_group => {
            return Err(Fault::Invalid);
        }
        Some(id) if book.get(id)?.is_some() => return Err(Fault::Exists),
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
                if book.get(last)?.is_none() {
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

fn need_free(book: &dyn Book, name: &str) -> Result<(), Fault> {
    if book.named(name)?.is_some() { Err(Fault::Exists) } else { Ok(()) }
}

fn create(
    book: &dyn Book,
    asker: &PtsAsker,
    new: &NewPrincipal,
) -> Result<(Principal, Edit), Fault> {
    let me = asker.me()?;
    if new.gid.is_some_and(|gid| gid >= OWN_IDS) {
        return Err(Fault::Invalid);
    }
    if new.kind != PrincipalKind::Group || new.id.is_some() || new.uid.is_some() {
        asker.need_administrator()?;
    }
    let name = match new.kind {
        PrincipalKind::Hosts => new.name.parse::<Network>()?.to_string(),
        PrincipalKind::User | PrincipalKind::Group => new.name.clone(),
    };
    need_free(book, &name)?;
    let before = book.highest()?;
    let mut highest = before;
    let id = number(book, new, &mut highest)?;
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
            let realm = charge_realm(book, &record.name)?;
            record.uid = first_uid(book, new, id, realm.is_some())?;
            record.gid = new.gid.or(record.uid);
            writes.extend(realm.map(Write::Put));
        }
        PrincipalKind::Group => {
            record.owner = first_owner(book, asker, me, new, &record)?;
            check_group_name(&record.name)?;
            need_prefix(book, asker, &record)?;
            if is_realm_group(&record.name) {
                record.group_quota = REALM_QUOTA;
            }
            writes.extend(charge(book, asker, me)?.map(Write::Put));
        }
        PrincipalKind::Hosts => {}
    }
    writes.push(Write::Put(record.clone()));
    if highest != before {
        writes.push(Write::Highest(highest));
    }
    // Callers from these addresses get other groups.
    let changed =
        if new.kind == PrincipalKind::Hosts { Changed::Principals } else { Changed::Principal(id) };
    Ok((record, Edit { writes, changed }))
}

/// The requested uid, or the user's number if that is free. Users of other realms have none by
/// default: the next number of the cell may be a uid in use on a trusted host.
fn first_uid(
    book: &dyn Book,
    new: &NewPrincipal,
    id: PrincipalId,
    foreign: bool,
) -> Result<Option<u32>, Fault> {
    match new.uid {
        Some(uid) if uid == 0 || uid >= OWN_IDS => Err(Fault::Invalid),
        Some(uid) if book.with_uid(uid)?.is_some() => Err(Fault::Exists),
        Some(uid) => Ok(Some(uid)),
        None if foreign => Ok(None),
        None => {
            let own = id.0.cast_unsigned();
            Ok(if book.with_uid(own)?.is_none() { Some(own) } else { None })
        }
    }
}

fn first_owner(
    book: &dyn Book,
    asker: &PtsAsker,
    me: PrincipalId,
    new: &NewPrincipal,
    record: &Principal,
) -> Result<PrincipalId, Fault> {
    let owner = match &new.owner {
        None => return Ok(me),
        Some(WhichPrincipal::Name(name)) if *name == record.name => return Ok(record.id),
        Some(which) => find(book, which)?,
    };
    need_owner(&owner)?;
    let mine = owner.id == me || owner.kind == PrincipalKind::Group && asker.cps.has(owner.id);
    if mine || asker.is_administrator() { Ok(owner.id) } else { Err(Fault::NotPermitted) }
}

/// Requires a principal that may own things: groups of all users and host sets may not.
fn need_owner(owner: &Principal) -> Result<(), Fault> {
    let nobody =
        [PrincipalId::ANYBODY, PrincipalId::PROVED, PrincipalId::ANONYMOUS].contains(&owner.id);
    if nobody || owner.kind == PrincipalKind::Hosts { Err(Fault::Invalid) } else { Ok(()) }
}

/// Takes one from the number of groups that the caller may create.
fn charge(book: &dyn Book, asker: &PtsAsker, me: PrincipalId) -> Result<Option<Principal>, Fault> {
    if asker.is_administrator() {
        return Ok(None);
    }
    let mut record = need(book, me)?;
    match record.group_quota {
        NO_QUOTA => return Ok(None),
        0 => return Err(Fault::QuotaExceeded),
        left => record.group_quota = left - 1,
    }
    Ok(Some(record))
}

/// The group of a new user's realm, with its quota reduced by one; `None`: the user is one of this
/// cell.
fn charge_realm(book: &dyn Book, user: &str) -> Result<Option<Principal>, Fault> {
    let Some(name) = realm_group(user) else { return Ok(None) };
    let mut group = find(book, &WhichPrincipal::Name(name))?;
    if group.group_quota != NO_QUOTA {
        group.group_quota = group.group_quota.checked_sub(1).ok_or(Fault::QuotaExceeded)?;
    }
    Ok(Some(group))
}

/// The begin of the names of a principal's groups.
fn prefix_of(owner: &Principal) -> &str {
    prefix(&owner.name).unwrap_or(&owner.name)
}

/// Requires that a group's name begins with its owner's, unless an administrator gives it. A group
/// that owns itself, or has no owner, keeps the begin of its name.
fn need_prefix(book: &dyn Book, asker: &PtsAsker, group: &Principal) -> Result<(), Fault> {
    if asker.is_administrator() {
        return Ok(());
    }
    let owner =
        if group.owner == group.id { need(book, asker.me()?)? } else { need(book, group.owner)? };
    if prefix(&group.name) == Some(prefix_of(&owner)) { Ok(()) } else { Err(Fault::Invalid) }
}

fn delete(book: &dyn Book, asker: &PtsAsker, id: PrincipalId) -> Result<Edit, Fault> {
    let record = need(book, id)?;
    if record.kind != PrincipalKind::Group {
        asker.need_administrator()?;
    }
    asker.need_control(&record)?;
    if is_system(id) {
        return Err(Fault::NotPermitted);
    }
    let mut writes = Vec::new();
    for group in book.linked(GroupLink::Group, id, FIRST, EDIT_MAX)? {
        writes.push(Write::Leave { group, member: id });
    }
    for member in book.linked(GroupLink::Member, id, FIRST, EDIT_MAX)? {
        writes.push(Write::Leave { group: id, member });
    }
    for owned in book.linked(GroupLink::Owned, id, FIRST, EDIT_MAX)? {
        if owned != id {
            writes.push(Write::Put(Principal { owner: PrincipalId::NONE, ..need(book, owned)? }));
        }
    }
    if record.kind == PrincipalKind::Group
        && let Some(creator) = book.get(record.creator)?
        && creator.kind == PrincipalKind::User
    {
        writes
            .push(Write::Put(Principal { group_quota: returned(creator.group_quota), ..creator }));
    }
    if writes.len() > EDIT_MAX {
        return Err(Fault::TooBig);
    }
    writes.push(Write::Remove(id));
    Ok(Edit {
        writes,
        changed: if record.kind == PrincipalKind::Hosts {
            Changed::Principals
        } else {
            Changed::Principal(id)
        },
    })
}

/// The creator of a deleted group may create one more.
fn returned(quota: u32) -> u32 {
    if quota == NO_QUOTA { NO_QUOTA } else { (quota + 1).min(NO_QUOTA - 1) }
}

fn rename(book: &dyn Book, asker: &PtsAsker, id: PrincipalId, name: &str) -> Result<Edit, Fault> {
    let mut record = need(book, id)?;
    asker.need_control(&record)?;
    match record.kind {
        PrincipalKind::User => {
            asker.need_administrator()?;
            check_user_name(name)?;
        }
        PrincipalKind::Group => check_group_name(name)?,
        PrincipalKind::Hosts => return Err(Fault::Invalid),
    }
    if is_system(id) {
        return Err(Fault::NotPermitted);
    }
    if record.kind == PrincipalKind::Group && !asker.is_administrator() {
        let begins = match book.get(record.owner)? {
            Some(owner) if owner.id != id => prefix_of(&owner).to_owned(),
            _ => prefix_of(&record).to_owned(),
        };
        if prefix(name) != Some(&begins) {
            return Err(Fault::Invalid);
        }
    }
    if record.name != name {
        need_free(book, name)?;
    }
    let before = prefix_of(&record).to_owned();
    record.name = name.to_owned();
    let mut writes = Vec::new();
    put_renamed(book, record, &before, &mut writes)?;
    Ok(Edit { writes, changed: Changed::Principal(id) })
}

/// Writes a record under its new name, and renames everything that it owns and whose name begins
/// with its old one.
fn put_renamed(
    book: &dyn Book,
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
            for id in book.linked(GroupLink::Owned, owner.id, FIRST, EDIT_MAX)? {
                let mut owned = need(book, id)?;
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
                need_free(book, &name)?;
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

fn change_owner(
    book: &dyn Book,
    asker: &PtsAsker,
    id: PrincipalId,
    owner: PrincipalId,
) -> Result<Edit, Fault> {
    let mut record = need(book, id)?;
    asker.need_control(&record)?;
    if record.kind != PrincipalKind::Group || is_system(id) {
        return Err(Fault::Invalid);
    }
    let new = need(book, owner)?;
    need_owner(&new)?;
    record.owner = owner;
    let before = prefix_of(&record).to_owned();
    let mut writes = Vec::new();
    if let Some((_, rest)) = record.name.split_once(':').filter(|_| owner != id) {
        let name = format!("{}:{rest}", prefix_of(&new));
        check_group_name(&name)?;
        if name != record.name {
            need_free(book, &name)?;
        }
        record.name = name;
    }
    put_renamed(book, record, &before, &mut writes)?;
    Ok(Edit { writes, changed: Changed::Principal(id) })
}

fn set_fields(
    book: &dyn Book,
    asker: &PtsAsker,
    id: PrincipalId,
    change: &PrincipalChange,
) -> Result<Edit, Fault> {
    let mut record = need(book, id)?;
    let PrincipalChange { privacy, group_quota, uid, gid, tokens_after, locked } = *change;
    if group_quota.is_some() || uid.is_some() || gid.is_some() || locked.is_some() {
        asker.need_administrator()?;
    }
    if privacy.is_some() {
        asker.need_control(&record)?;
    }
    let own = id == asker.principal && id != PrincipalId::ANONYMOUS;
    if tokens_after.is_some() && !own {
        asker.need_administrator()?;
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
        && book.with_uid(uid)?.is_some_and(|by| by != id)
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
    book: &dyn Book,
    group: PrincipalId,
    member: PrincipalId,
) -> Result<(Principal, Principal), Fault> {
    let (group, member) = (need(book, group)?, need(book, member)?);
    let everybody = |id: PrincipalId| {
        [PrincipalId::ANYBODY, PrincipalId::PROVED, PrincipalId::ANONYMOUS].contains(&id)
    };
    let sound = group.kind == PrincipalKind::Group
        && !everybody(group.id)
        && !everybody(member.id)
        && group.id != member.id;
    if sound { Ok((group, member)) } else { Err(Fault::Invalid) }
}

fn is_in(book: &dyn Book, group: PrincipalId, member: PrincipalId) -> Result<bool, Fault> {
    let before = PrincipalId(member.0 - 1);
    Ok(book.linked(GroupLink::Member, group, before, 1)?.first() == Some(&member))
}

fn join(
    book: &dyn Book,
    asker: &PtsAsker,
    group: PrincipalId,
    member: PrincipalId,
) -> Result<Edit, Fault> {
    let (group, member) = pair(book, group, member)?;
    let by_anybody =
        group.privacy.has(Privacy::ADD_BY_ANYBODY) && asker.principal != PrincipalId::ANONYMOUS;
    let by_member = group.privacy.has(Privacy::ADD_BY_MEMBERS) && asker.cps.has(group.id);
    if !(by_anybody || by_member || asker.controls(&group)) {
        return Err(Fault::NotPermitted);
    }
    // Names alone decide its members.
    if is_realm_group(&group.name) {
        return Err(Fault::Invalid);
    }
    if is_in(book, group.id, member.id)? {
        return Err(Fault::Exists);
    }
    let writes = vec![Write::Join { group: group.id, member: member.id }];
    Ok(Edit { writes, changed: Changed::Principal(member.id) })
}

fn leave(
    book: &dyn Book,
    asker: &PtsAsker,
    group: PrincipalId,
    member: PrincipalId,
) -> Result<Edit, Fault> {
    let (group, member) = pair(book, group, member)?;
    let by_member = group.privacy.has(Privacy::REMOVE_BY_MEMBERS) && asker.cps.has(group.id);
    if !(by_member || asker.controls(&group)) {
        return Err(Fault::NotPermitted);
    }
    if !is_in(book, group.id, member.id)? {
        return Err(Fault::NotFound);
    }
    let writes = vec![Write::Leave { group: group.id, member: member.id }];
    Ok(Edit { writes, changed: Changed::Principal(member.id) })
}

fn set_max(
    book: &dyn Book,
    asker: &PtsAsker,
    user: PrincipalId,
    group: PrincipalId,
) -> Result<Edit, Fault> {
    asker.need_administrator()?;
    if user.0 < 0 || group.0 > 0 || group == FIRST {
        return Err(Fault::Invalid);
    }
    let mut highest = book.highest()?;
    highest.user = if user == PrincipalId::NONE { highest.user } else { user };
    highest.group = if group == PrincipalId::NONE { highest.group } else { group };
    // No principal's groups change.
    Ok(Edit {
        writes: vec![Write::Highest(highest)],
        changed: Changed::Principal(PrincipalId::NONE),
    })
}
