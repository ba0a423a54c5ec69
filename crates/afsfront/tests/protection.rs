//! The protection service over a cell's database.

use std::sync::Arc;

use afs3::protection::{PrIds, PrName, PrNames, ProtectionAnswer, ProtectionCall, fields_mask};
use afs3::xdr::Chars;
use afsfront::{ProtectionService, Refusal};
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
    ProtectionService.serve(user, call)
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

/// The codes of the protection service, from its first one on.
fn pr(code: i32) -> Result<ProtectionAnswer, Refusal> {
    Err(Refusal(267_264 + code))
}

#[test]
fn a_wrong_call_has_the_code_of_stock_servers() {
    let (_kept, rig) = cell();
    let admin = rig.administrator();
    let joe = make(&admin, "joe", 0, 0).unwrap();
    let jane = make(&admin, "jane", 0, 0).unwrap();
    let crew = make(&admin, "joe:crew", 2, joe).unwrap();
    let name = |text: &str| PrName::new(text.as_bytes()).unwrap();
    let numbered = |text: &str, id| {
        ask(&admin, ProtectionCall::INewEntry { name: name(text), id, owner: -204 })
    };
    assert_eq!(numbered("joe", 900), pr(0), "the name is taken");
    assert_eq!(numbered("joe", joe), pr(1), "both are");
    assert_eq!(numbered("zero", 0), pr(5));
    for bad in ["a:b", "a\nb", "joe@else.where", &"n".repeat(64)] {
        assert_eq!(numbered(bad, 901), pr(8), "{bad}");
    }
    assert_eq!(make(&admin, "flag", 1, 0).map(drop), pr(9).map(drop));
    let rename = |id, text: &str| {
        ask(&admin, ProtectionCall::ChangeEntry { id, name: name(text), owner: 0, new_id: 0 })
    };
    assert_eq!((rename(joe, "jane"), rename(joe, "a:b")), (pr(0), pr(8)));
    let given = ProtectionCall::ChangeEntry { id: joe, name: name(""), owner: jane, new_id: 0 };
    assert_eq!(ask(&admin, given), pr(5), "users own themselves");
    let join = |user, group| ask(&admin, ProtectionCall::AddToGroup { user, group });
    assert_eq!((join(0, crew), join(joe, 0)), (pr(4), pr(4)));
    assert_eq!((join(crew, crew), join(joe, -101)), (pr(13), pr(5)));
    let quota = |group_quota| ProtectionCall::SetFieldsEntry {
        id: joe,
        mask: fields_mask::GROUP_QUOTA,
        flags: 0,
        group_quota,
        user_quota: 0,
        spare1: 0,
        spare2: 0,
    };
    assert_eq!(ask(&admin, quota(-1)), pr(9));
    let highest = ProtectionCall::SetMax { id: 2000, group_flag: 1 };
    assert_eq!(ask(&admin, highest), Ok(ProtectionAnswer::SetMax {}), "bit 2 means groups");
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
    let is_member =
        |user: &User, group| ask(user, ProtectionCall::IsAMemberOf { user: joe, group });
    assert_eq!(is_member(&admin, staff), Ok(ProtectionAnswer::IsAMemberOf { flag: 1 }));
    assert_eq!((is_member(&admin, joe), is_member(&admin, -900)), (pr(9), pr(4)));
    // The members of a group are for everyone to see, the groups of a user are not.
    let stranger = rig.user(PrincipalId::ANONYMOUS);
    assert_eq!(is_member(&stranger, crew), Ok(ProtectionAnswer::IsAMemberOf { flag: 1 }));
    let above = |id| match ask(&admin, ProtectionCall::ListSuperGroups { id }) {
        Ok(ProtectionAnswer::ListSuperGroups { ids, .. }) => ids.into_vec(),
        other => panic!("{other:?}"),
    };
    assert_eq!((above(crew), above(joe)), (vec![staff], vec![]));
    let owned = ProtectionCall::ListOwned { id: -204, last: 0 };
    let Ok(ProtectionAnswer::ListOwned { ids, .. }) = ask(&admin, owned) else { panic!() };
    assert!(ids.as_slice().contains(&staff) && !ids.as_slice().contains(&joe), "{ids:?}");
}
