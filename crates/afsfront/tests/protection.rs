//! The protection service over a cell's database.

use std::sync::Arc;

use afs3::protection::{PrIds, PrName, PrNames, ProtectionAnswer, ProtectionCall, fields_mask};
use afs3::xdr::Chars;
use afsfront::{Databases, ProtectionService, Refusal};
use celldb::Embedded;
use types::{PrincipalId, ServerId, ServerInfo};

use crate::common::{Rig, User};

fn cell() -> (tempfile::TempDir, Rig) {
    let dir = tempfile::tempdir().unwrap();
    let db = Arc::new(Embedded::open(dir.path()).unwrap());
    let (id, name, addresses, keys) = (ServerId(1), "one".to_owned(), Vec::new(), Vec::new());
    (dir, Rig::in_cell(db, ServerInfo { id, name, addresses, keys }))
}

fn ask(user: &User, call: ProtectionCall) -> Result<ProtectionAnswer, Refusal> {
    ProtectionService::new("EXAMPLE.ORG", Databases::Own).serve(user, call)
}

fn make(user: &User, named: &str, flag: i32, owner: i32) -> Result<i32, Refusal> {
    let name = PrName::new(named.as_bytes()).unwrap();
    match ask(user, ProtectionCall::NewEntry { name, flag, owner })? {
        ProtectionAnswer::NewEntry { id } => Ok(id),
        other => panic!("{other:?}"),
    }
}

fn numbers(user: &User, names: &[&str]) -> Vec<i32> {
    let names = names.iter().map(|name| Chars::new(name.as_bytes()).unwrap()).collect();
    match ask(user, ProtectionCall::NameToID { names: PrNames::new(names).unwrap() }) {
        Ok(ProtectionAnswer::NameToID { ids }) => ids.into_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn users_and_groups_have_names_and_numbers() {
    let (_kept, rig) = cell();
    let admin = rig.administrator();
    let joe = make(&admin, "Joe", 0, 0).unwrap();
    assert!(joe > 0);
    assert_eq!(numbers(&admin, &["joe", "JOE", "jane", "system:anyuser"]), [joe, joe, 32766, -101]);
    let with_realm = ["joe@EXAMPLE.ORG", "joe@example.org", "joe@else.where"];
    assert_eq!(numbers(&admin, &with_realm), [joe, joe, 32766], "the cell's own realm");
    let ids = PrIds::new(vec![joe, 4711, -204]).unwrap();
    let Ok(ProtectionAnswer::IDToName { names }) = ask(&admin, ProtectionCall::IDToName { ids })
    else {
        panic!()
    };
    let names: Vec<&[u8]> = names.as_slice().iter().map(Chars::text).collect();
    assert_eq!(names, [&b"joe"[..], b"4711", b"system:administrators"]);
    assert_eq!(make(&admin, "joe", 0, 0), Err(Refusal(267_264)), "the name is taken");
    let with_number =
        ProtectionCall::INewEntry { name: PrName::new("jim").unwrap(), id: joe, owner: 0 };
    assert_eq!(ask(&admin, with_number), Err(Refusal(267_265)), "the number is taken");
    let nameless = rig.user(PrincipalId::ANONYMOUS);
    assert_eq!(make(&nameless, "jane", 0, 0), Err(Refusal(267_269)));
    assert_eq!(make(&rig.user(PrincipalId(joe)), "jane", 0, 0), Err(Refusal(267_269)));
    let gone = ProtectionCall::ListEntry { id: 4711 };
    assert_eq!(ask(&admin, gone), Err(Refusal(267_268)));
}

/// As OPENAFS-SA-2016-001 let users of other realms do.
#[test]
fn no_one_makes_a_group_in_the_name_of_others() {
    let (_kept, rig) = cell();
    let admin = rig.administrator();
    let (joe, jane) = (make(&admin, "joe", 0, 0).unwrap(), make(&admin, "jane", 0, 0).unwrap());
    let group = |user: &User, named: &str, owner| make(user, named, 2, owner);
    // A user of another realm without an entry here is not known, whatever it is called there.
    let stranger = rig.user(PrincipalId::ANONYMOUS);
    let joe = (rig.user(PrincipalId(joe)), joe);
    for owner in [0, joe.1, jane, -204] {
        for named in ["system:crew", "administrators:crew", "joe:crew", "crew"] {
            assert_eq!(group(&stranger, named, owner), Err(Refusal(267_269)), "{named} {owner}");
        }
    }
    for (named, owner) in [("system:crew", 0), ("jane:crew", 0), ("jane:crew", jane)] {
        assert!(group(&joe.0, named, owner).is_err(), "{named} {owner}");
    }
    let own = group(&joe.0, "joe:crew", 0).unwrap();
    let owned = ask(&admin, ProtectionCall::ListOwned { id: joe.1, last: 0 });
    let Ok(ProtectionAnswer::ListOwned { ids, .. }) = owned else { panic!("{owned:?}") };
    assert_eq!(ids.as_slice(), [own]);
}

#[test]
fn membership_decides_what_a_user_is() {
    let (_kept, rig) = cell();
    let admin = rig.administrator();
    let joe = make(&admin, "joe", 0, 0).unwrap();
    let crew = make(&admin, "joe:crew", 2, joe).unwrap();
    assert!(crew < 0);
    // Its owner adds to it.
    let owner = rig.user(PrincipalId(joe));
    let jane = make(&admin, "jane", 0, 0).unwrap();
    let join =
        |user: &User, member| ask(user, ProtectionCall::AddToGroup { user: member, group: crew });
    assert_eq!(join(&owner, jane), Ok(ProtectionAnswer::AddToGroup {}));
    assert_eq!(join(&owner, jane), Err(Refusal(267_265)));
    assert_eq!(join(&rig.user(PrincipalId(jane)), joe), Err(Refusal(267_269)));
    let to_user = ProtectionCall::AddToGroup { user: jane, group: joe };
    assert_eq!(ask(&admin, to_user), Err(Refusal(267_270)));
    let Ok(ProtectionAnswer::GetCPS { ids, over: 0 }) =
        ask(&admin, ProtectionCall::GetCPS { id: jane })
    else {
        panic!()
    };
    let mut expected = vec![crew, -102, -101, jane];
    expected.sort_unstable();
    assert_eq!(ids.as_slice(), expected);
    let is_member = ProtectionCall::IsAMemberOf { user: jane, group: crew };
    assert_eq!(ask(&admin, is_member), Ok(ProtectionAnswer::IsAMemberOf { flag: 1 }));
    let elements = |id| match ask(&admin, ProtectionCall::ListElements { id }) {
        Ok(ProtectionAnswer::ListElements { ids, .. }) => ids.into_vec(),
        other => panic!("{other:?}"),
    };
    assert_eq!((elements(crew), elements(jane)), (vec![jane], vec![crew]));
    let leave = ProtectionCall::RemoveFromGroup { user: jane, group: crew };
    assert_eq!(ask(&owner, leave), Ok(ProtectionAnswer::RemoveFromGroup {}));
    assert!(elements(crew).is_empty());
    let owned = ProtectionCall::ListOwned { id: joe, last: 0 };
    let Ok(ProtectionAnswer::ListOwned { ids, last: 0 }) = ask(&admin, owned) else { panic!() };
    assert_eq!(ids.as_slice(), [crew]);
}

#[test]
fn fields_names_and_owners_are_changed() {
    let (_kept, rig) = cell();
    let admin = rig.administrator();
    let joe = make(&admin, "joe", 0, 0).unwrap();
    let entry = |id| match ask(&admin, ProtectionCall::ListEntry { id }) {
        Ok(ProtectionAnswer::ListEntry { entry }) => entry,
        other => panic!("{other:?}"),
    };
    let privacy = |id: i32| entry(id).flags;
    assert_eq!((entry(joe).name.text(), privacy(joe)), (&b"joe"[..], 0x80));
    let set = |mask, flags: i32, group_quota| ProtectionCall::SetFieldsEntry {
        id: joe,
        mask,
        flags,
        group_quota,
        user_quota: 0,
        spare1: 0,
        spare2: 0,
    };
    ask(&admin, set(0x20, 0x20, 0)).unwrap();
    assert_eq!(privacy(joe), 0xa0, "the mask names one flag");
    ask(&admin, set(fields_mask::GROUP_QUOTA, 0, 7)).unwrap();
    assert_eq!((entry(joe).group_quota, privacy(joe)), (7, 0xa0));
    let name = |text: &str| PrName::new(text).unwrap();
    let rename = ProtectionCall::ChangeEntry { id: joe, name: name("joan"), owner: 0, new_id: 0 };
    ask(&admin, rename).unwrap();
    assert_eq!(entry(joe).name.text(), b"joan");
    let renumber = ProtectionCall::ChangeEntry { id: joe, name: name(""), owner: 0, new_id: 99 };
    assert_eq!(ask(&admin, renumber), Err(Refusal(267_269)), "access lists name the number");
    let list = |flags| {
        let (mut all, mut start) = (Vec::new(), 0);
        loop {
            let call = ProtectionCall::ListEntries { flags, start };
            let Ok(ProtectionAnswer::ListEntries { entries, next }) = ask(&admin, call) else {
                panic!()
            };
            all.extend(entries.as_slice().iter().map(|entry| entry.id));
            if next == -1 {
                return all;
            }
            start = next;
        }
    };
    assert!(list(1).contains(&joe) && !list(2).contains(&joe));
    assert!(list(2).contains(&-204) && list(3).len() == list(1).len() + list(2).len());
    ask(&admin, ProtectionCall::Delete { id: joe }).unwrap();
    assert!(!list(1).contains(&joe));
}

const EXISTS: Refusal = Refusal(267_264);
const NO_ENTRY: Refusal = Refusal(267_268);
const NOT_PERMITTED: Refusal = Refusal(267_269);
const BAD_NAME: Refusal = Refusal(267_272);
const BAD_ARGUMENT: Refusal = Refusal(267_273);
const INCONSISTENT: Refusal = Refusal(267_277);

fn make_with_number(user: &User, named: &str, id: i32) -> Result<(), Refusal> {
    let name = PrName::new(named.as_bytes()).unwrap();
    ask(user, ProtectionCall::INewEntry { name, id, owner: 0 }).map(drop)
}

#[test]
fn names_and_numbers_are_refused_as_stock_servers_do() {
    let (_kept, rig) = cell();
    let admin = rig.administrator();
    make_with_number(&admin, "ann", 5001).unwrap();
    assert_eq!(make_with_number(&admin, "ann", 5002), Err(EXISTS), "the name alone is taken");
    assert_eq!(make_with_number(&admin, "ann", 5001), Err(Refusal(267_265)));
    for bad in ["", "a:b", "a\nb", "ann@else.where", &"m".repeat(64)] {
        assert_eq!(make_with_number(&admin, bad, 5002), Err(BAD_NAME), "{bad:?}");
    }
    assert_eq!(make_with_number(&admin, "zero", 0), Err(NOT_PERMITTED));
    assert_eq!(make_with_number(&admin, "least", i32::MIN), Err(INCONSISTENT));
    let nameless = rig.user(PrincipalId::ANONYMOUS);
    assert_eq!(make_with_number(&nameless, "", 5002), Err(NOT_PERMITTED), "before the name");
    assert_eq!(make(&admin, "flag", 1, 0), Err(BAD_ARGUMENT), "neither a user nor a group");
    make_with_number(&admin, "last", i32::MAX).unwrap();
    assert_eq!(make(&admin, "more", 0, 0), Err(Refusal(267_266)), "no number is left");
    let rename = |named: &str| {
        let name = PrName::new(named).unwrap();
        ask(&admin, ProtectionCall::ChangeEntry { id: 5001, name, owner: 0, new_id: 0 })
    };
    assert_eq!(rename("last"), Err(EXISTS));
    assert_eq!(rename("a:b"), Err(BAD_NAME));
}

#[test]
fn a_group_with_visible_members_says_who_is_one() {
    let (_kept, rig) = cell();
    let admin = rig.administrator();
    let joe = make(&admin, "joe", 0, 0).unwrap();
    let jane = make(&admin, "jane", 0, 0).unwrap();
    let crew = make(&admin, "joe:crew", 2, joe).unwrap();
    let join = |user, group| ask(&admin, ProtectionCall::AddToGroup { user, group });
    join(jane, crew).unwrap();
    assert_eq!(join(crew, crew), Err(INCONSISTENT));
    assert_eq!(join(jane, -101), Err(NOT_PERMITTED));
    assert_eq!((join(0, crew), join(jane, 0)), (Err(NO_ENTRY), Err(NO_ENTRY)));
    let nameless = rig.user(PrincipalId::ANONYMOUS);
    let is = |user, group| match ask(&nameless, ProtectionCall::IsAMemberOf { user, group })? {
        ProtectionAnswer::IsAMemberOf { flag } => Ok(flag),
        other => panic!("{other:?}"),
    };
    // The user's groups are hidden from this caller, and the group's members are not.
    assert_eq!((is(jane, crew), is(joe, crew)), (Ok(1), Ok(0)));
    assert_eq!((is(jane, -101), is(jane, -102)), (Ok(1), Ok(1)));
    assert_eq!((is(4711, crew), is(jane, -4711)), (Err(NO_ENTRY), Err(NO_ENTRY)));
    assert_eq!((is(jane, joe), is(0, 0)), (Err(BAD_ARGUMENT), Err(NO_ENTRY)));
    let closed = ProtectionCall::SetFieldsEntry {
        id: crew,
        mask: fields_mask::PRIVACY,
        flags: 0x80,
        group_quota: 0,
        user_quota: 0,
        spare1: 0,
        spare2: 0,
    };
    ask(&admin, closed).unwrap();
    assert_eq!(is(jane, crew), Err(NOT_PERMITTED));
    let supers = ProtectionCall::ListSuperGroups { id: jane };
    let none = ProtectionAnswer::ListSuperGroups { ids: PrIds::default(), over: 0 };
    assert_eq!(ask(&admin, supers), Ok(none), "a user is in groups, and no group of groups");
}

#[test]
fn a_change_of_nothing_needs_rights_too() {
    let (_kept, rig) = cell();
    let admin = rig.administrator();
    let joe = make(&admin, "joe", 0, 0).unwrap();
    let nameless = rig.user(PrincipalId::ANONYMOUS);
    let set = |user: &User, id, mask, group_quota| {
        let (flags, user_quota, spare1, spare2) = (0, 0, 0, 0);
        let call = ProtectionCall::SetFieldsEntry {
            id,
            mask,
            flags,
            group_quota,
            user_quota,
            spare1,
            spare2,
        };
        ask(user, call).map(drop)
    };
    for mask in [fields_mask::USER_QUOTA, 0x0fff_ff00] {
        assert_eq!(set(&nameless, joe, mask, 0), Err(NOT_PERMITTED));
        assert_eq!(set(&admin, joe, mask, 0), Ok(()));
    }
    assert_eq!(set(&nameless, joe, 0, 0), Ok(()), "no field at all");
    assert_eq!(set(&nameless, joe, fields_mask::GROUP_QUOTA, -1), Err(NOT_PERMITTED));
    assert_eq!(set(&admin, joe, fields_mask::GROUP_QUOTA, -1), Err(BAD_ARGUMENT));
    for fixed in [-101, -102, 32766] {
        assert_eq!(set(&admin, fixed, fields_mask::PRIVACY, 0), Err(NOT_PERMITTED));
    }
    let keep = |user: &User, owner, new_id| {
        let name = PrName::default();
        ask(user, ProtectionCall::ChangeEntry { id: joe, name, owner, new_id }).map(drop)
    };
    assert_eq!((keep(&nameless, 0, 0), keep(&nameless, 0, joe)), {
        (Err(NOT_PERMITTED), Err(NOT_PERMITTED))
    });
    assert_eq!((keep(&admin, 0, 0), keep(&admin, 0, joe)), (Ok(()), Ok(())));
    assert_eq!(keep(&admin, -204, 0), Err(NOT_PERMITTED), "a user has no other owner");
    let entry = ask(&admin, ProtectionCall::ListEntry { id: joe });
    let Ok(ProtectionAnswer::ListEntry { entry }) = entry else { panic!("{entry:?}") };
    assert_eq!((entry.flags, entry.group_quota), (0x80, 20), "as it was");
}

#[test]
fn groups_in_groups_are_what_a_user_is() {
    let (_kept, rig) = cell();
    let admin = rig.administrator();
    let joe = make(&admin, "joe", 0, 0).unwrap();
    let crew = make(&admin, "joe:crew", 2, joe).unwrap();
    let staff = make(&admin, "staff", 2, 0).unwrap();
    for (user, group) in [(joe, crew), (crew, staff), (staff, crew)] {
        ask(&admin, ProtectionCall::AddToGroup { user, group }).unwrap();
    }
    let Ok(ProtectionAnswer::GetCPS { ids, .. }) = ask(&admin, ProtectionCall::GetCPS { id: joe })
    else {
        panic!()
    };
    assert_eq!(ids.as_slice(), [staff, crew, -102, -101, joe]);
    for user in [joe, crew] {
        let is_member = ProtectionCall::IsAMemberOf { user, group: staff };
        assert_eq!(ask(&admin, is_member), Ok(ProtectionAnswer::IsAMemberOf { flag: 1 }));
    }
    let owned = ProtectionCall::ListOwned { id: -204, last: 0 };
    let Ok(ProtectionAnswer::ListOwned { ids, .. }) = ask(&admin, owned) else { panic!() };
    assert!(ids.as_slice().contains(&staff) && !ids.as_slice().contains(&joe), "{ids:?}");
    let highest = ProtectionCall::SetMax { id: 2000, group_flag: 1 };
    assert_eq!(ask(&admin, highest), Ok(ProtectionAnswer::SetMax {}), "bit 2 means groups");
}

#[test]
fn mx3_a_copy_of_users_takes_no_changes() {
    let (_kept, rig) = cell();
    let admin = rig.administrator();
    let joe = make(&admin, "joe", 0, 0).unwrap();
    let copy = ProtectionService::new("EXAMPLE.ORG", Databases::Followed);
    let name = PrName::new(b"ann").unwrap();
    for call in [
        ProtectionCall::NewEntry { name: name.clone(), flag: 0, owner: 0 },
        ProtectionCall::INewEntry { name: name.clone(), id: 77, owner: 0 },
        ProtectionCall::Delete { id: joe },
        ProtectionCall::AddToGroup { user: joe, group: -204 },
        ProtectionCall::RemoveFromGroup { user: joe, group: -204 },
        ProtectionCall::SetMax { id: 900, group_flag: 0 },
        ProtectionCall::ChangeEntry { id: joe, name, owner: 0, new_id: 0 },
    ] {
        let text = format!("{call:?}");
        assert_eq!(copy.serve(&admin, call), Err(Refusal(5377)), "{text}");
    }
    assert!(copy.serve(&admin, ProtectionCall::ListEntry { id: joe }).is_ok());
}
