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
//! whole. The caller holds the database's lock meanwhile. `change` has the calls that change
//! something, this file the others.

mod change;

use types::limits::PRINCIPALS_MAX;
use types::{
    Answer, Changed, Fault, Principal, PrincipalId, PrincipalKind, Privacy, PtsCall, WhichPrincipal,
};

use self::change::PrincipalChanges;
use crate::Cps;
use crate::principal_book::{Book, FIRST, GroupLink, Highest, Write};

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
        call => return PrincipalChanges { book, asker }.perform(call),
    };
    Ok((answer, None))
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
