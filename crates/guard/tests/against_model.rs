//! Random calls about users and groups against a simple model: lists, and a sentence for each rule;
//! the whole book is compared after each call.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use guard::{Book, Cps, FIRST, GroupLink, MemBook, PtsAsker, perform, subdomain};
use proptest::prelude::*;
use types::{
    Answer, AuthLevel, Changed, Fault, NewPrincipal, PrincipalChange, PrincipalId, PrincipalKind,
    Privacy, PtsCall, WhichPrincipal,
};

const ADMINISTRATORS: i32 = -204;
const ANONYMOUS: i32 = 32766;
/// The beginning of the names of realms' groups.
const REALMS: &str = "system:authuser@";
const SYSTEM: [i32; 5] = [-204, -203, -102, -101, ANONYMOUS];

#[derive(Clone, Debug, PartialEq, Eq)]
struct One {
    name: String,
    is_group: bool,
    owner: i32,
    creator: i32,
    privacy: u8,
    quota: u32,
}

/// The model of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    all: BTreeMap<i32, One>,
    /// Pairs of group and member.
    pairs: BTreeSet<(i32, i32)>,
    user: i32,
    group: i32,
}

/// The begin of the names of an owner's groups.
fn begin(name: &str) -> &str {
    name.split(':').next().unwrap()
}

impl Model {
    fn new() -> Self {
        let one = |name: &str, is_group, privacy| One {
            name: name.to_owned(),
            is_group,
            owner: ADMINISTRATORS,
            creator: ADMINISTRATORS,
            privacy,
            quota: 0,
        };
        let all = BTreeMap::from([
            (-204, one("system:administrators", true, 0x90)),
            (-203, one("system:ptsviewers", true, 0x90)),
            (-102, one("system:authuser", true, 0x90)),
            (-101, one("system:anyuser", true, 0x90)),
            (ANONYMOUS, one("anonymous", false, 0x80)),
        ]);
        Model { all, user: 0, group: ADMINISTRATORS, ..Model::default() }
    }

    /// The groups that users are in by their names: one for those of the cell, and one for those of
    /// each realm that has one.
    fn by_name(&self) -> Vec<(i32, i32)> {
        let users = self.all.iter().filter(|(id, one)| !one.is_group && **id != ANONYMOUS);
        let group = |one: &One| match one.name.split_once('@') {
            None => Some(-102),
            Some((_, realm)) => self.is_called(&format!("{REALMS}{realm}")),
        };
        users.filter_map(|(id, one)| Some((group(one)?, *id))).collect()
    }

    /// The groups of realms.
    fn realms(&self) -> BTreeMap<i32, String> {
        let of_realms = self.all.iter().filter(|(_, one)| one.name.starts_with(REALMS));
        of_realms.map(|(id, one)| (*id, one.name.clone())).collect()
    }

    /// Whether `who` is in `group`, however deep.
    fn is_in(&self, who: i32, group: i32) -> bool {
        let mut inside = BTreeSet::from([group]);
        let pairs: Vec<(i32, i32)> = self.pairs.iter().copied().chain(self.by_name()).collect();
        for _ in 0..self.all.len() {
            let more: Vec<i32> =
                pairs.iter().filter(|(of, _)| inside.contains(of)).map(|(_, one)| *one).collect();
            inside.extend(more);
        }
        who != group && inside.contains(&who)
    }

    fn is_administrator(&self, who: i32) -> bool {
        who == ANONYMOUS || self.is_in(who, ADMINISTRATORS)
    }

    fn controls(&self, who: i32, what: i32) -> bool {
        let owner = self.all[&what].owner;
        self.is_administrator(who)
            || owner != 0 && (owner == who || owner < 0 && self.is_in(who, owner))
    }

    fn is_called(&self, name: &str) -> Option<i32> {
        self.all.iter().find(|(_, one)| one.name == name).map(|(id, _)| *id)
    }

    /// Applies the call of `who`; the superuser is `anonymous`. `None`: refused, without a change.
    fn apply(&mut self, who: i32, call: &PtsCall) -> Option<()> {
        let before = self.clone();
        let done = self.change(who, call);
        let done =
            done.filter(|()| before.is_administrator(who) || before.realms() == self.realms());
        if done.is_none() {
            *self = before;
        }
        done
    }

    fn change(&mut self, who: i32, call: &PtsCall) -> Option<()> {
        let root = self.is_administrator(who);
        match call {
            PtsCall::Create { new } if new.kind == PrincipalKind::User => {
                (root && self.is_called(&new.name).is_none() && !new.name.contains(':'))
                    .then_some(())?;
                if let Some((_, realm)) = new.name.split_once('@') {
                    let group = self.is_called(&format!("{REALMS}{realm}"))?;
                    let left = &mut self.all.get_mut(&group)?.quota;
                    *left = left.checked_sub(1)?;
                }
                self.user += 1;
                let creator = if who == ANONYMOUS { ADMINISTRATORS } else { who };
                let name = new.name.clone();
                let one = One {
                    name,
                    is_group: false,
                    owner: ADMINISTRATORS,
                    creator,
                    privacy: 0x80,
                    quota: 20,
                };
                self.all.insert(self.user, one);
            }
            PtsCall::Create { new } => {
                self.is_called(&new.name).is_none().then_some(())?;
                let me = if who == ANONYMOUS { ADMINISTRATORS } else { who };
                self.group -= 1;
                let owner = match &new.owner {
                    None => me,
                    Some(WhichPrincipal::Name(name)) if *name == new.name => self.group,
                    Some(WhichPrincipal::Name(name)) => {
                        let owner = self.is_called(name)?;
                        let group = self.all[&owner].is_group;
                        (![-101, -102, ANONYMOUS].contains(&owner)).then_some(())?;
                        (root || owner == me || group && self.is_in(who, owner)).then_some(owner)?
                    }
                    Some(_) => return None,
                };
                let named_by = if owner == self.group { me } else { owner };
                let fits =
                    new.name.contains(':') && begin(&new.name) == begin(&self.all[&named_by].name);
                (root || fits).then_some(())?;
                if !root {
                    let left = &mut self.all.get_mut(&me)?.quota;
                    *left = left.checked_sub(1)?;
                }
                let name = new.name.clone();
                let quota = if name.starts_with(REALMS) { 30 } else { 0 };
                self.all.insert(
                    self.group,
                    One { name, is_group: true, owner, creator: me, privacy: 0x90, quota },
                );
            }
            PtsCall::Delete { id } => {
                let one = self.all.get(&id.0)?.clone();
                (!SYSTEM.contains(&id.0) && self.controls(who, id.0) && (one.is_group || root))
                    .then_some(())?;
                self.pairs.retain(|(group, member)| *group != id.0 && *member != id.0);
                self.all.remove(&id.0);
                self.all
                    .values_mut()
                    .filter(|other| other.owner == id.0)
                    .for_each(|orphan| orphan.owner = 0);
                if let Some(creator) =
                    self.all.get_mut(&one.creator).filter(|maker| one.is_group && !maker.is_group)
                {
                    creator.quota += 1;
                }
            }
            PtsCall::Rename { id, name } => {
                let one = self.all.get(&id.0)?.clone();
                let free = self.is_called(name).is_none_or(|by| by == id.0);
                (free && !SYSTEM.contains(&id.0) && self.controls(who, id.0)).then_some(())?;
                if one.is_group {
                    let named_by =
                        self.all.get(&one.owner).filter(|_| one.owner != id.0).unwrap_or(&one);
                    (root || name.contains(':') && begin(name) == begin(&named_by.name))
                        .then_some(())?;
                } else {
                    (root && !name.contains(':')).then_some(())?;
                }
                self.set_name(id.0, name)?;
            }
            PtsCall::ChangeOwner { id, owner } => {
                let one = self.all.get(&id.0)?.clone();
                let new = self.all.get(&owner.0)?.clone();
                let may = self.controls(who, id.0) && one.is_group && !SYSTEM.contains(&id.0);
                (may && ![-101, -102, ANONYMOUS].contains(&owner.0)).then_some(())?;
                self.all.get_mut(&id.0)?.owner = owner.0;
                if let (Some((_, rest)), true) = (one.name.split_once(':'), owner != id) {
                    let name = format!("{}:{rest}", begin(&new.name));
                    self.is_called(&name).is_none_or(|by| by == id.0).then_some(())?;
                    self.set_name(id.0, &name)?;
                }
            }
            PtsCall::SetFields { id, change } => {
                self.all.get(&id.0)?;
                self.controls(who, id.0).then_some(())?;
                self.all.get_mut(&id.0)?.privacy = change.privacy?.0;
                if let Some(quota) = change.group_quota {
                    root.then_some(())?;
                    self.all.get_mut(&id.0)?.quota = quota;
                }
            }
            PtsCall::Join { group, member } => {
                let flags = self.sound_pair(group.0, member.0)?;
                let by_anybody = flags.has(Privacy::ADD_BY_ANYBODY) && who != ANONYMOUS;
                let by_member = flags.has(Privacy::ADD_BY_MEMBERS) && self.is_in(who, group.0);
                (by_anybody || by_member || self.controls(who, group.0)).then_some(())?;
                (!self.realms().contains_key(&group.0)).then_some(())?;
                self.pairs.insert((group.0, member.0)).then_some(())?;
            }
            PtsCall::Leave { group, member } => {
                let flags = self.sound_pair(group.0, member.0)?;
                let by_member = flags.has(Privacy::REMOVE_BY_MEMBERS) && self.is_in(who, group.0);
                (by_member || self.controls(who, group.0)).then_some(())?;
                self.pairs.remove(&(group.0, member.0)).then_some(())?;
            }
            other => panic!("{other:?}"),
        }
        Some(())
    }

    fn sound_pair(&self, group: i32, member: i32) -> Option<Privacy> {
        let everybody = [-101, -102, ANONYMOUS];
        let there =
            self.all.get(&group).filter(|one| one.is_group && self.all.contains_key(&member))?;
        (group != member && !everybody.contains(&group) && !everybody.contains(&member))
            .then_some(())?;
        Some(Privacy(there.privacy))
    }

    /// Renames a principal, and the begin of what it owns. `None`: a new name is in use.
    fn set_name(&mut self, id: i32, name: &str) -> Option<()> {
        let old = begin(&self.all[&id].name).to_owned();
        let new = begin(name).to_owned();
        self.all.get_mut(&id)?.name = name.to_owned();
        let mut renamed = BTreeSet::from([id]);
        if old == new {
            return Some(());
        }
        loop {
            let next = self.all.iter().find(|(other, one)| {
                !renamed.contains(other)
                    && one.is_group
                    && renamed.contains(&one.owner)
                    && one.name.starts_with(&format!("{old}:"))
            });
            let Some((next, one)) = next.map(|(next, one)| (*next, one.clone())) else { break };
            let name = format!("{new}:{}", one.name.split_once(':')?.1);
            self.is_called(&name).is_none().then_some(())?;
            self.all.get_mut(&next)?.name = name;
            renamed.insert(next);
        }
        Some(())
    }
}

fn new(kind: PrincipalKind, name: String, owner: Option<String>) -> PtsCall {
    let owner = owner.map(WhichPrincipal::Name);
    PtsCall::Create {
        new: Box::new(NewPrincipal { kind, name, id: None, owner, uid: None, gid: None }),
    }
}

fn user_name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["joe", "jim", "eve", "amy@x.org", "bob@x.org"])
        .prop_map(str::to_owned)
}

fn group_name() -> impl Strategy<Value = String> {
    let rest = prop::sample::select(vec!["a", "b", "authuser@x.org"]);
    prop_oneof![
        4 => (user_name(), rest).prop_map(|(begin, rest)| format!("{begin}:{rest}")),
        1 => prop::sample::select(vec!["staff", "crew", "staff:a", "system:x"])
            .prop_map(str::to_owned),
        2 => Just("system:authuser@x.org".to_owned()),
    ]
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![user_name(), group_name()]
}

fn id() -> impl Strategy<Value = PrincipalId> {
    prop_oneof![
        8 => (1..5_i32).prop_map(PrincipalId),
        16 => (-212..-204_i32).prop_map(PrincipalId),
        1 => prop::sample::select(SYSTEM.to_vec()).prop_map(PrincipalId),
    ]
}

fn call() -> impl Strategy<Value = PtsCall> {
    prop_oneof![
        2 => user_name().prop_map(|name| new(PrincipalKind::User, name, None)),
        5 => (group_name(), prop::option::of(any_name()))
            .prop_map(|(name, owner)| new(PrincipalKind::Group, name, owner)),
        1 => id().prop_map(|id| PtsCall::Delete { id }),
        2 => (id(), any_name()).prop_map(|(id, name)| PtsCall::Rename { id, name }),
        2 => (id(), id()).prop_map(|(id, owner)| PtsCall::ChangeOwner { id, owner }),
        1 => (id(), any::<u8>(), prop::option::weighted(0.3, 0..2_u32)).prop_map(
            |(id, bits, group_quota)| {
                let privacy = Some(Privacy(bits));
                let change = PrincipalChange { privacy, group_quota, ..Default::default() };
                PtsCall::SetFields { id, change }
            },
        ),
        6 => (id(), id()).prop_map(|(group, member)| PtsCall::Join { group, member }),
        2 => (id(), id()).prop_map(|(group, member)| PtsCall::Leave { group, member }),
    ]
}

fn asker(book: &MemBook, who: i32) -> PtsAsker {
    let principal = PrincipalId(who);
    let power = (who == ANONYMOUS).then_some(PrincipalId::ADMINISTRATORS);
    let groups = subdomain(book, principal, None).unwrap().into_iter().chain(power);
    PtsAsker { principal, cps: Cps::new(principal, AuthLevel::Password, groups) }
}

fn check(book: &MemBook, model: &Model) {
    let all: BTreeMap<i32, One> = book
        .entries(FIRST, usize::MAX)
        .unwrap()
        .into_iter()
        .map(|one| {
            let (is_group, owner, creator) =
                (one.kind == PrincipalKind::Group, one.owner.0, one.creator.0);
            (
                one.id.0,
                One {
                    name: one.name,
                    is_group,
                    owner,
                    creator,
                    privacy: one.privacy.0,
                    quota: one.group_quota,
                },
            )
        })
        .collect();
    assert_eq!(all, model.all);
    for id in model.all.keys() {
        let members = book.linked(GroupLink::Member, PrincipalId(*id), FIRST, usize::MAX).unwrap();
        let wanted: Vec<i32> =
            model.pairs.iter().filter(|(group, _)| group == id).map(|(_, one)| *one).collect();
        assert_eq!(members.iter().map(|one| one.0).collect::<Vec<_>>(), wanted);
        let groups: BTreeSet<i32> =
            subdomain(book, PrincipalId(*id), None).unwrap().iter().map(|group| group.0).collect();
        let wanted = model.all.keys().filter(|group| model.is_in(*id, **group)).copied();
        assert_eq!(groups, wanted.collect(), "what {id} is in");
    }
}

proptest! {
    #[test]
    fn users_and_groups_are_what_the_sentences_say(
        calls in prop::collection::vec(
            (prop_oneof![2 => Just(ANONYMOUS), 3 => 1..4_i32], call()),
            1..80,
        ),
    ) {
        let (mut book, mut model) = (MemBook::new(), Model::new());
        for name in ["joe", "jim"] {
            let call = new(PrincipalKind::User, name.to_owned(), None);
            let (_, edit) = perform(&book, &asker(&book, ANONYMOUS), &call).unwrap();
            book.apply(&edit.unwrap().writes);
            model.apply(ANONYMOUS, &call).unwrap();
        }
        for (who, call) in &calls {
            // A deleted principal makes no calls.
            if !model.all.contains_key(who) {
                continue;
            }
            let wanted = model.apply(*who, call);
            let result = perform(&book, &asker(&book, *who), call);
            let accepted = result.is_ok();
            prop_assert_eq!(accepted, wanted.is_some(), "{} asked {:?}: {:?}", who, call, result);
            if let Ok((answer, edit)) = result {
                let fits = matches!(answer, Answer::Done | Answer::Principals { .. });
                prop_assert!(fits);
                book.apply(&edit.unwrap().writes);
            }
            check(&book, &model);
        }
    }
}

/// A group took the name that one of its own would get with it, so two had the same name.
#[test]
fn no_name_is_given_twice_by_one_renaming() {
    let mut book = MemBook::new();
    let root = asker(&book, ANONYMOUS);
    for (name, owner) in [("staff", None), ("staff:b", Some("staff"))] {
        let call = new(PrincipalKind::Group, name.to_owned(), owner.map(str::to_owned));
        let (_, edit) = perform(&book, &root, &call).unwrap();
        book.apply(&edit.unwrap().writes);
    }
    let rename = PtsCall::Rename { id: PrincipalId(-205), name: "joe:b".to_owned() };
    assert_eq!(perform(&book, &root, &rename).unwrap_err(), types::Fault::Exists);
}

fn made(book: &mut MemBook, root: &PtsAsker, kind: PrincipalKind, name: &str) -> PrincipalId {
    let (answer, edit) = perform(book, root, &new(kind, name.to_owned(), None)).unwrap();
    book.apply(&edit.unwrap().writes);
    match answer {
        Answer::Principals { principals, .. } => principals[0].0.id,
        other => panic!("{other:?}"),
    }
}

fn cps_of(book: &MemBook, who: PrincipalId) -> Cps {
    Cps::new(who, AuthLevel::Kerberos, subdomain(book, who, None).unwrap())
}

#[test]
fn m12_foreign_users_are_not_authuser() {
    let mut book = MemBook::new();
    let root = asker(&book, ANONYMOUS);
    let amy = new(PrincipalKind::User, "amy@x.org".to_owned(), None);
    assert_eq!(
        perform(&book, &root, &amy).unwrap_err(),
        Fault::NoPrincipal,
        "her realm has no group"
    );
    let realm = made(&mut book, &root, PrincipalKind::Group, "system:authuser@x.org");
    let amy = made(&mut book, &root, PrincipalKind::User, "amy@x.org");
    let joe = made(&mut book, &root, PrincipalKind::User, "joe");
    let (foreign, own) = (cps_of(&book, amy), cps_of(&book, joe));
    assert_eq!(foreign.numbers(), [realm, PrincipalId::ANYBODY, amy]);
    assert_eq!(own.numbers(), [PrincipalId::PROVED, PrincipalId::ANYBODY, joe]);
    // They are also in the groups of the realm's group.
    let outer = made(&mut book, &root, PrincipalKind::Group, "outer");
    let (_, edit) = perform(&book, &root, &PtsCall::Join { group: outer, member: realm }).unwrap();
    book.apply(&edit.unwrap().writes);
    assert!(cps_of(&book, amy).has(outer) && !cps_of(&book, joe).has(outer));
    // A group of another realm, a user with a similar name, and a principal that is no user.
    let like = made(&mut book, &root, PrincipalKind::Group, "system:authuser@org");
    let eve = made(&mut book, &root, PrincipalKind::User, "eve@org");
    assert!(cps_of(&book, eve).has(like) && !cps_of(&book, eve).has(realm));
    assert!(!cps_of(&book, outer).has(PrincipalId::PROVED));
    assert!(!cps_of(&book, PrincipalId(4711)).has(PrincipalId::PROVED), "no record");
}

#[test]
fn m12_a_realms_group_changes_all_its_users() {
    let mut book = MemBook::new();
    let root = asker(&book, ANONYMOUS);
    let realm = made(&mut book, &root, PrincipalKind::Group, "system:authuser@x.org");
    let other = made(&mut book, &root, PrincipalKind::Group, "other");
    let joe = made(&mut book, &root, PrincipalKind::User, "joe");
    let changed = |call: PtsCall| perform(&book, &root, &call).unwrap().1.unwrap().changed;
    let named = |name: &str| name.to_owned();
    let made = changed(new(PrincipalKind::Group, named("system:authuser@y.org"), None));
    assert_eq!(made, Changed::Principals);
    assert_eq!(changed(PtsCall::Delete { id: realm }), Changed::Principals);
    assert_eq!(changed(PtsCall::Rename { id: realm, name: named("old") }), Changed::Principals);
    assert_eq!(
        changed(PtsCall::Rename { id: other, name: named("system:authuser@z.org") }),
        Changed::Principals
    );
    // A change of the realm's quota changes no groups; a new user of the realm only its own.
    assert_eq!(
        changed(new(PrincipalKind::User, named("amy@x.org"), None)),
        Changed::Principal(PrincipalId(2))
    );
    let join = PtsCall::Join { group: realm, member: joe };
    assert_eq!(
        perform(&book, &root, &join).unwrap_err(),
        Fault::Invalid,
        "names alone make members"
    );
}

/// Any user may give away a group of its own, whose name then begins with the new owner's.
#[test]
fn m12_only_administrators_open_the_cell_to_a_realm() {
    let mut book = MemBook::new();
    let root = asker(&book, ANONYMOUS);
    let joe = made(&mut book, &root, PrincipalKind::User, "joe");
    let system = made(&mut book, &root, PrincipalKind::Group, "system:staff");
    let him = asker(&book, joe.0);
    let own = made(&mut book, &him, PrincipalKind::Group, "joe:authuser@evil.org");
    let (_, edit) = perform(&book, &root, &PtsCall::Join { group: system, member: joe }).unwrap();
    book.apply(&edit.unwrap().writes);
    let him = asker(&book, joe.0);
    for call in [
        PtsCall::ChangeOwner { id: own, owner: PrincipalId::ADMINISTRATORS },
        PtsCall::ChangeOwner { id: own, owner: system },
        PtsCall::Rename { id: own, name: "system:authuser@evil.org".to_owned() },
        new(
            PrincipalKind::Group,
            "system:authuser@evil.org".to_owned(),
            Some("system:staff".to_owned()),
        ),
    ] {
        let refused = perform(&book, &him, &call).unwrap_err();
        assert!(matches!(refused, Fault::NotPermitted | Fault::Invalid), "{call:?}: {refused}");
    }
}

#[test]
fn m12_a_realm_has_so_many_users_and_no_uids() {
    let mut book = MemBook::new();
    let root = asker(&book, ANONYMOUS);
    let realm = made(&mut book, &root, PrincipalKind::Group, "system:authuser@x.org");
    for number in 0..30 {
        let user = made(&mut book, &root, PrincipalKind::User, &format!("u{number}@x.org"));
        assert_eq!(
            book.get(user).unwrap().unwrap().uid,
            None,
            "it may be a uid of a believed host"
        );
    }
    let one_more = new(PrincipalKind::User, "late@x.org".to_owned(), None);
    assert_eq!(perform(&book, &root, &one_more).unwrap_err(), Fault::QuotaExceeded);
    let more = PrincipalChange { group_quota: Some(u32::MAX), ..PrincipalChange::default() };
    let (_, edit) = perform(&book, &root, &PtsCall::SetFields { id: realm, change: more }).unwrap();
    book.apply(&edit.unwrap().writes);
    made(&mut book, &root, PrincipalKind::User, "late@x.org");
    assert_eq!(book.get(realm).unwrap().unwrap().group_quota, u32::MAX, "any number of them");
}
