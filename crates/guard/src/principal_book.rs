//! The store of principals' records: the cell database, or memory for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use types::{Fault, Principal, PrincipalId, PrincipalKind, Privacy};

use crate::names::{Network, realm_group};

/// The kinds of links between principals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupLink {
    /// From a group to its members.
    Member,
    /// From a member to its groups.
    Group,
    /// From an owner to what it owns; from [`PrincipalId::NONE`] to what has no owner.
    Owned,
}

/// The numbers assigned last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Highest {
    /// The highest of a user.
    pub user: PrincipalId,
    /// The lowest of a group or a set of hosts.
    pub group: PrincipalId,
}

impl Default for Highest {
    /// The values of a cell that has assigned none.
    fn default() -> Self {
        Highest { user: PrincipalId(0), group: PrincipalId::ADMINISTRATORS }
    }
}

/// The records, as they are at one moment. Faults are those of the medium.
pub trait Book {
    /// A principal's record.
    ///
    /// # Errors
    /// Those of the medium, as for all methods.
    fn get(&self, id: PrincipalId) -> Result<Option<Principal>, Fault>;

    /// The principal with this name.
    fn named(&self, name: &str) -> Result<Option<PrincipalId>, Fault>;

    /// The user with this uid.
    fn with_uid(&self, uid: u32) -> Result<Option<PrincipalId>, Fault>;

    /// Up to `max` link targets of `of`, in the order of numbers, after `after`.
    fn linked(
        &self,
        link: GroupLink,
        of: PrincipalId,
        after: PrincipalId,
        max: usize,
    ) -> Result<Vec<PrincipalId>, Fault>;

    /// Up to `max` principals after `after`.
    fn entries(&self, after: PrincipalId, max: usize) -> Result<Vec<Principal>, Fault>;

    /// The numbers assigned last.
    fn highest(&self) -> Result<Highest, Fault>;
}

/// Before the first number.
pub const FIRST: PrincipalId = PrincipalId(i32::MIN);

/// One part of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // a field is named for what it is
pub enum Write {
    /// Adds a record, or replaces the one with the same number.
    Put(Principal),
    /// Removes a record that has no links any more.
    Remove(PrincipalId),
    /// Makes `member` a member of `group`.
    Join { group: PrincipalId, member: PrincipalId },
    /// Ends that membership.
    Leave { group: PrincipalId, member: PrincipalId },
    /// Records the numbers assigned last.
    Highest(Highest),
}

/// The principals that every cell has from its beginning.
pub fn system_principals() -> Vec<Principal> {
    let one = |id, name: &str, kind, privacy| Principal {
        id,
        kind,
        name: name.to_owned(),
        owner: PrincipalId::ADMINISTRATORS,
        creator: PrincipalId::ADMINISTRATORS,
        privacy,
        group_quota: 0,
        uid: None,
        gid: None,
        tokens_after: 0,
        locked: false,
    };
    let group = |id, name| one(id, name, PrincipalKind::Group, Privacy::GROUP);
    vec![
        group(PrincipalId::ADMINISTRATORS, "system:administrators"),
        group(PrincipalId::VIEWERS, "system:ptsviewers"),
        group(PrincipalId::PROVED, "system:authuser"),
        group(PrincipalId::ANYBODY, "system:anyuser"),
        one(PrincipalId::ANONYMOUS, "anonymous", PrincipalKind::User, Privacy::USER),
    ]
}

/// Whether a principal is one of those.
pub fn is_system(id: PrincipalId) -> bool {
    [
        PrincipalId::ADMINISTRATORS,
        PrincipalId::VIEWERS,
        PrincipalId::PROVED,
        PrincipalId::ANYBODY,
        PrincipalId::ANONYMOUS,
    ]
    .contains(&id)
}

/// The group of proved users that this principal is in: `system:authuser` for a user of this cell,
/// `system:authuser@REALM` for a user of another realm, if administrators have made that. The name
/// alone decides.
fn proved_group(book: &dyn Book, principal: PrincipalId) -> Result<Option<PrincipalId>, Fault> {
    let is_user =
        |one: &Principal| one.kind == PrincipalKind::User && one.id != PrincipalId::ANONYMOUS;
    let Some(user) = book.get(principal)?.filter(is_user) else { return Ok(None) };
    match realm_group(&user.name) {
        None => Ok(Some(PrincipalId::PROVED)),
        Some(group) => book.named(&group),
    }
}

/// Every group of a principal that proved its identity: directly, through groups, or by its realm
/// ([`proved_group`]); and those that the host adds: its host sets, and their groups, except those
/// that give power over the cell, since an address proves little. In no order, each once, without
/// the principal.
///
/// # Errors
/// The book's.
pub fn subdomain(
    book: &dyn Book,
    principal: PrincipalId,
    host: Option<IpAddr>,
) -> Result<Vec<PrincipalId>, Fault> {
    let mut all = BTreeSet::new();
    let proved = proved_group(book, principal)?;
    all.extend(proved);
    reach(book, proved.into_iter().chain([principal]).collect(), &mut all)?;
    if let Some(host) = host {
        let mut hosts = Vec::new();
        for network in Network::around(host) {
            hosts.extend(book.named(&network.to_string())?);
        }
        let mut through_host: BTreeSet<PrincipalId> = hosts.iter().copied().collect();
        reach(book, hosts, &mut through_host)?;
        let is_power =
            |id: &PrincipalId| [PrincipalId::ADMINISTRATORS, PrincipalId::VIEWERS].contains(id);
        all.extend(through_host.into_iter().filter(|id| !is_power(id)));
    }
    all.remove(&principal);
    Ok(all.into_iter().collect())
}

/// Adds every group that `from` are in, and the groups of those. Cycles end at groups already seen.
fn reach(
    book: &dyn Book,
    mut from: Vec<PrincipalId>,
    seen: &mut BTreeSet<PrincipalId>,
) -> Result<(), Fault> {
    while let Some(id) = from.pop() {
        let groups = book.linked(GroupLink::Group, id, FIRST, usize::MAX)?;
        from.extend(groups.into_iter().filter(|group| seen.insert(*group)));
    }
    Ok(())
}

/// A book in memory.
#[derive(Clone, Debug, Default)]
pub struct MemBook {
    records: BTreeMap<PrincipalId, Principal>,
    /// Pairs of member and group.
    memberships: BTreeSet<(PrincipalId, PrincipalId)>,
    highest: Highest,
}

impl MemBook {
    /// The book of a new cell.
    pub fn new() -> Self {
        let records = system_principals().into_iter().map(|one| (one.id, one)).collect();
        MemBook { records, ..MemBook::default() }
    }

    /// Applies a change.
    pub fn apply(&mut self, writes: &[Write]) {
        for write in writes {
            match write {
                Write::Put(record) => drop(self.records.insert(record.id, record.clone())),
                Write::Remove(id) => drop(self.records.remove(id)),
                Write::Join { group, member } => drop(self.memberships.insert((*member, *group))),
                Write::Leave { group, member } => drop(self.memberships.remove(&(*member, *group))),
                Write::Highest(highest) => self.highest = *highest,
            }
        }
    }
}

impl Book for MemBook {
    fn get(&self, id: PrincipalId) -> Result<Option<Principal>, Fault> {
        Ok(self.records.get(&id).cloned())
    }

    fn named(&self, name: &str) -> Result<Option<PrincipalId>, Fault> {
        Ok(self.records.values().find(|record| record.name == name).map(|record| record.id))
    }

    fn with_uid(&self, uid: u32) -> Result<Option<PrincipalId>, Fault> {
        Ok(self.records.values().find(|record| record.uid == Some(uid)).map(|record| record.id))
    }

    fn linked(
        &self,
        link: GroupLink,
        of: PrincipalId,
        after: PrincipalId,
        max: usize,
    ) -> Result<Vec<PrincipalId>, Fault> {
        let mut all: Vec<PrincipalId> = match link {
            GroupLink::Member => self
                .memberships
                .iter()
                .filter(|(_, group)| *group == of)
                .map(|(one, _)| *one)
                .collect(),
            GroupLink::Group => self
                .memberships
                .iter()
                .filter(|(member, _)| *member == of)
                .map(|(_, one)| *one)
                .collect(),
            GroupLink::Owned => {
                self.records.values().filter(|one| one.owner == of).map(|one| one.id).collect()
            }
        };
        all.retain(|id| *id > after);
        all.sort_unstable();
        all.truncate(max);
        Ok(all)
    }

    fn entries(&self, after: PrincipalId, max: usize) -> Result<Vec<Principal>, Fault> {
        Ok(self.records.values().filter(|record| record.id > after).take(max).cloned().collect())
    }

    fn highest(&self) -> Result<Highest, Fault> {
        Ok(self.highest)
    }
}
