//! Volumes where access lists decide: each call against an obvious evaluation, and what becomes of lists.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use common::{Ground, Rig, name, remove, user, write};
use guard::{Acl, Cps, Rights};
use proptest::prelude::*;
use types::{
    Answer, ByteRange, Call, Caller, CreateHow, Fault, Fid, Kind, Level, LockFamily, LockMode, LockOwner, NewKind,
    PrincipalId, RenameMode, StatusChange, VolumeCall, VolumeKind, Who, XattrMode,
};
use vice::Principals;

/// Uid 1000 + n is principal n; even ones are staff.
struct Known;

const STAFF: PrincipalId = PrincipalId(-300);
const ADMIN: u32 = 1009;

impl Principals for Known {
    fn cps(&self, caller: &Caller) -> Result<Cps, Fault> {
        let id = if caller.uid > 1000 { PrincipalId(caller.uid as i32 - 1000) } else { PrincipalId::ANONYMOUS };
        let staff = (caller.uid.is_multiple_of(2)).then_some(STAFF);
        let admin = (caller.uid == ADMIN).then_some(PrincipalId::ADMINISTRATORS);
        Ok(Cps::new(id, caller.who.level, staff.into_iter().chain(admin)))
    }
}

fn who(uid: u32) -> Caller {
    user(uid, uid, &[])
}

type Entries<'a> = &'a [(i32, &'a str)];

fn list(given: Entries<'_>, denied: Entries<'_>) -> Option<Bytes> {
    let mut acl = Acl::new();
    for (entries, negative) in [(given, false), (denied, true)] {
        for (who, rights) in entries {
            assert!(acl.set(PrincipalId(*who), rights.parse().unwrap(), negative));
        }
    }
    Some(acl.encode().into())
}

const EVERYBODY: i32 = -101;

/// A volume where lists decide: everybody looks into the root, and nothing else is given.
fn rig(clients: usize) -> Rig {
    let mut rig = Rig::new(Ground::memory(), clients);
    rig.vice().set_principals(Arc::new(Known));
    let root = rig.root();
    let call = Call::SetAcl { fid: root, list: list(&[(EVERYBODY, "l")], &[]) };
    assert_eq!(rig.call(0, &Caller::ROOT, call), Ok(Answer::Done));
    rig
}

fn set(rig: &mut Rig, caller: &Caller, fid: Fid, given: Entries<'_>) -> Result<Answer, Fault> {
    rig.call(0, caller, Call::SetAcl { fid, list: list(given, &[]) })
}

fn rights(rig: &mut Rig, who: usize, caller: &Caller, fid: Fid) -> String {
    match rig.call(who, caller, Call::Rights { fid }).unwrap() {
        Answer::Rights { rights, .. } => Rights(rights).to_string(),
        other => panic!("{other:?}"),
    }
}

/// What a call needs, as the table of the documentation has it; any of the words, each letter of it. `$`: and the file is the caller's.
type Row = (&'static [&'static str], Call);

struct Scene {
    dir: Fid,
    file: Fid,
    link: Fid,
}

fn rows(scene: &Scene) -> Vec<Row> {
    let Scene { dir, file, link } = *scene;
    let attribute = || Bytes::from_static(b"user.a");
    let lock = |mode| Call::Lock {
        fid: file,
        owner: LockOwner(7),
        pid: 1,
        family: LockFamily::Posix,
        range: ByteRange { start: 0, end: 9 },
        mode,
        wait: false,
        reclaim: false,
    };
    let make = |at: &str, kind| Call::Make { dir, name: name(at), kind, mode: 0o644, how: CreateHow::Guarded };
    vec![
        (&["l"], Call::Lookup { dir, name: name("file") }),
        (&["l"], Call::ReadDir { dir, cookie: 0, bytes_max: 9000, plus: true }),
        (&["l"], Call::GetStatus { fid: file }),
        (&["l"], Call::ReadLink { fid: link }),
        (&["l"], Call::XattrList { fid: file }),
        (&["l"], Call::GetAcl { fid: file }),
        (&["r"], Call::Read { fid: file, offset: 0, length: 10 }),
        (&["r"], Call::ReadSums { fid: file, first: 0, count: 1 }),
        (&["r"], Call::XattrGet { fid: file, name: attribute() }),
        (&["w", "i$"], write(file, Some(0), b"x")),
        (
            &["w", "i$"],
            Call::SetStatus { fid: file, change: StatusChange { size: Some(3), ..StatusChange::default() } },
        ),
        (
            &["w", "i$"],
            Call::XattrSet { fid: file, name: attribute(), value: Bytes::from_static(b"v"), mode: XattrMode::Either },
        ),
        (&["w", "k", "i$"], lock(LockMode::Shared)),
        (&["w", "i$"], lock(LockMode::Exclusive)),
        (&["li"], make("new", NewKind::File)),
        (&["li"], make("sub", NewKind::Directory)),
        (&["i"], Call::MakeUnnamed { dir, mode: 0o600 }),
        (&["li"], Call::Link { fid: file, dir, name: name("second") }),
        (&["ld"], remove(dir, "goes")),
        (
            &["lid"],
            Call::Rename {
                from_dir: dir,
                from: name("moves"),
                to_dir: dir,
                to: name("moved"),
                mode: RenameMode::Replace,
                hold: false,
            },
        ),
        (&["a"], Call::SetAcl { fid: dir, list: list(&[(EVERYBODY, "rl")], &[]) }),
    ]
}

fn expected(needs: &[&str], has: &BTreeSet<char>, owns: bool) -> bool {
    let word = |word: &&str| word.chars().all(|letter| if letter == '$' { owns } else { has.contains(&letter) });
    needs.iter().any(word)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_call_is_judged_by_the_list_of_its_directory(
        given in prop::collection::btree_map(prop::sample::select(vec![1, 2, 3, -300, -102, -101]), "[rlidwka]{1,4}", 0..5),
        denied in prop::collection::btree_map(prop::sample::select(vec![1, 2, -300, -101]), "[rlidwka]{1,2}", 0..2),
    ) {
        let of = |entries: &std::collections::BTreeMap<i32, String>| -> Vec<(i32, String)> {
            entries.iter().map(|(who, letters)| (*who, letters.clone())).collect()
        };
        let (given, denied) = (of(&given), of(&denied));
        for caller in [who(1001), who(1002), who(1003), who(500)] {
            // Each call on a fresh tree, because many of them change it.
            for index in 0..rows(&Scene { dir: Fid::new(1, 3, 1), file: Fid::new(1, 4, 1), link: Fid::new(1, 6, 1) }).len() {
                let mut rig = rig(1);
                let root = rig.root();
                let dir = rig.directory(root, "dir");
                let file = rig.file(dir, "file");
                let change = StatusChange { uid: Some(1001), gid: Some(1001), ..StatusChange::default() };
                rig.call(0, &Caller::ROOT, Call::SetStatus { fid: file, change }).unwrap();
                rig.call(0, &Caller::ROOT, Call::XattrSet {
                    fid: file, name: Bytes::from_static(b"user.a"), value: Bytes::new(), mode: XattrMode::Either,
                }).unwrap();
                rig.file(dir, "goes");
                rig.file(dir, "moves");
                let link = rig.make(0, &Caller::ROOT, dir, "link", NewKind::Symlink(Bytes::from_static(b"file")), 0o777);
                let g: Vec<(i32, &str)> = given.iter().map(|(who, letters)| (*who, letters.as_str())).collect();
                let d: Vec<(i32, &str)> = denied.iter().map(|(who, letters)| (*who, letters.as_str())).collect();
                rig.call(0, &Caller::ROOT, Call::SetAcl { fid: dir, list: list(&g, &d) }).unwrap();
                let mut is = BTreeSet::from([EVERYBODY]);
                if caller.uid > 1000 {
                    is.extend([caller.uid as i32 - 1000, -102]);
                }
                if caller.uid % 2 == 0 {
                    is.insert(-300);
                }
                let letters = |entries: &[(i32, &str)]| -> BTreeSet<char> {
                    entries.iter().filter(|(who, _)| is.contains(who)).flat_map(|(_, letters)| letters.chars()).collect()
                };
                let has: BTreeSet<char> = letters(&g).difference(&letters(&d)).copied().collect();
                let (needs, call) = rows(&Scene { dir, file, link }).swap_remove(index);
                let text = format!("{call:?} by {}", caller.uid);
                let may = expected(needs, &has, caller.uid == 1001);
                let done = rig.call(0, &caller, call);
                if may {
                    prop_assert!(done.is_ok(), "{} with {:?}: {:?}", text, has, done);
                } else {
                    prop_assert_eq!(done, Err(Fault::AccessDenied), "{} with {:?}", text, has);
                }
            }
        }
    }
}

#[test]
fn owners_list_and_administer_and_administrators_everywhere() {
    let mut rig = rig(1);
    let root = rig.root();
    set(&mut rig, &Caller::ROOT, root, &[(EVERYBODY, "l"), (1, "li")]).unwrap();
    let dir = rig.make(0, &who(1001), root, "his", NewKind::Directory, 0o700);
    set(&mut rig, &Caller::ROOT, dir, &[]).unwrap();
    assert_eq!(rights(&mut rig, 0, &who(1001), dir), "la");
    assert_eq!(rights(&mut rig, 0, &who(ADMIN), dir), "la");
    assert_eq!(rights(&mut rig, 0, &Caller::ROOT, dir), "rlidwka");
    assert_eq!(rights(&mut rig, 0, &who(1002), dir), "");
    set(&mut rig, &who(1001), dir, &[(2, "rl")]).unwrap();
    assert_eq!(set(&mut rig, &who(1002), dir, &[(2, "all")]), Err(Fault::AccessDenied));
    // A root that nobody trusts is nobody, whoever owns the directory.
    let squashed = Caller { who: Who { level: Level::Password, ..Who::NOBODY }, ..Caller::ROOT };
    assert_eq!(rights(&mut rig, 0, &squashed, dir), "");
}

#[test]
fn new_directories_copy_the_list_and_keep_it() {
    let mut rig = rig(1);
    let root = rig.root();
    set(&mut rig, &Caller::ROOT, root, &[(1, "rlidwk")]).unwrap();
    let dir = rig.directory(root, "dir");
    set(&mut rig, &Caller::ROOT, root, &[(2, "rl")]).unwrap();
    assert_eq!(rights(&mut rig, 0, &who(1001), dir), "rlidwk");
    assert_eq!(rights(&mut rig, 0, &who(1002), dir), "");
    // Without its own it has that of the directory above, whatever that is.
    rig.call(0, &Caller::ROOT, Call::SetAcl { fid: dir, list: None }).unwrap();
    assert_eq!(rights(&mut rig, 0, &who(1002), dir), "rl");
    let other = rig.directory(root, "other");
    set(&mut rig, &Caller::ROOT, other, &[(3, "r")]).unwrap();
    let rename = Call::Rename {
        from_dir: root,
        from: name("dir"),
        to_dir: other,
        to: name("dir"),
        mode: RenameMode::Replace,
        hold: false,
    };
    rig.call(0, &Caller::ROOT, rename).unwrap();
    assert_eq!(rights(&mut rig, 0, &who(1003), dir), "r");
    assert_eq!(rights(&mut rig, 0, &who(1002), dir), "");
}

#[test]
fn a_file_is_linked_within_its_directory_only() {
    let mut rig = rig(1);
    let root = rig.root();
    let (dir, file) = (rig.directory(root, "dir"), rig.file(root, "file"));
    let link = |dir| Call::Link { fid: file, dir, name: name("second") };
    assert_eq!(rig.call(0, &Caller::ROOT, link(dir)), Err(Fault::CrossVolume));
    assert!(rig.call(0, &Caller::ROOT, link(root)).is_ok());
}

#[test]
fn lists_are_no_attributes() {
    let mut rig = rig(1);
    let fid = rig.root();
    assert_eq!(rig.call(0, &Caller::ROOT, Call::XattrList { fid }), Ok(Answer::XattrNames(vec![])));
    let name = Bytes::from_static(b"rialto.acl");
    let get = Call::XattrGet { fid, name: name.clone() };
    assert_eq!(rig.call(0, &Caller::ROOT, get), Err(Fault::Unsupported));
    let set = Call::XattrSet { fid, name: name.clone(), value: Bytes::new(), mode: XattrMode::Either };
    assert_eq!(rig.call(0, &Caller::ROOT, set), Err(Fault::Unsupported));
    assert_eq!(rig.call(0, &Caller::ROOT, Call::XattrRemove { fid, name }), Err(Fault::Unsupported));
}

#[test]
fn a_change_of_rights_waits_until_all_who_were_told_know() {
    let mut rig = rig(3);
    let root = rig.root();
    let dir = rig.directory(root, "dir");
    rights(&mut rig, 1, &who(1001), dir);
    rig.clients[1].prompt = false;
    let change = rig.start(0, &Caller::ROOT, Call::SetAcl { fid: dir, list: list(&[], &[]) });
    assert_eq!(rig.reply(change), None);
    let heard: Vec<Fid> = rig.clients[1].broken.iter().map(|item| item.fid).collect();
    assert!(heard.contains(&Fid::rights(root.volume)), "{heard:?}");
    assert!(rig.clients[2].broken.iter().all(|item| item.fid != Fid::rights(root.volume)), "was told nothing");
    rig.acknowledge(1);
    assert_eq!(rig.reply(change), Some(Ok(Answer::Done)));
}

#[test]
fn who_changes_rights_hears_of_it_too() {
    let mut rig = rig(1);
    let root = rig.root();
    rights(&mut rig, 0, &who(1001), root);
    set(&mut rig, &Caller::ROOT, root, &[(1, "rl")]).unwrap();
    assert!(rig.clients[0].broken.iter().any(|item| item.fid == Fid::rights(root.volume)));
    assert_eq!(rights(&mut rig, 0, &who(1001), root), "rl");
}

#[test]
fn the_model_is_the_administrators_to_change_and_clones_keep_theirs() {
    let mut rig = Rig::new(Ground::memory(), 2);
    rig.vice().set_principals(Arc::new(Known));
    let root = rig.root();
    rig.file(root, "file");
    assert!(!rig.root_status().by_list);
    assert_eq!(rig.call(0, &Caller::ROOT, Call::GetAcl { fid: root }), Err(Fault::Unsupported));
    let give = |given| Call::SetAcl { fid: root, list: list(given, &[]) };
    assert_eq!(rig.call(0, &who(1001), give(&[(1, "all")])), Err(Fault::NotPermitted));
    rig.look_root(1);
    assert_eq!(rig.call(0, &who(ADMIN), give(&[(1, "rl")])), Ok(Answer::Done));
    assert!(rig.clients[1].broken.iter().any(|item| item.fid == root), "everything is another");
    assert!(rig.root_status().by_list);
    let clone = VolumeCall::Clone {
        id: None,
        of: root.volume,
        name: name("sealed"),
        kind: VolumeKind::Snapshot,
        replace: false,
    };
    rig.call(0, &Caller::ROOT, Call::Volume(clone)).unwrap();
    assert_eq!(rig.call(0, &who(ADMIN), Call::SetAcl { fid: root, list: None }), Ok(Answer::Done));
    assert!(!rig.root_status().by_list);
    let sealed = rig.root_of(0, "sealed").unwrap();
    let lookup = |dir| Call::Lookup { dir, name: name("file") };
    assert_eq!(rig.call(0, &who(1002), lookup(sealed)), Err(Fault::AccessDenied));
    assert!(rig.call(0, &who(1001), lookup(sealed)).is_ok());
    assert!(rig.call(0, &who(1002), lookup(root)).is_ok(), "mode bits");
    // The same after a restart.
    rig.restart();
    rig.vice().set_principals(Arc::new(Known));
    (0..2).for_each(|who| rig.reclaim(who));
    assert_eq!(rig.call(0, &who(1002), lookup(sealed)), Err(Fault::AccessDenied));
}

#[test]
fn damaged_lists_give_nothing_and_bad_ones_are_not_taken() {
    let mut rig = rig(1);
    let root = rig.root();
    let call = Call::SetAcl { fid: root, list: Some(Bytes::from_static(b"no list")) };
    assert_eq!(rig.call(0, &Caller::ROOT, call), Err(Fault::Invalid));
    let file = rig.file(root, "file");
    let call = Call::SetAcl { fid: file, list: list(&[], &[]) };
    assert_eq!(rig.call(0, &Caller::ROOT, call), Err(Fault::NotDirectory));
}

#[test]
fn set_ids_and_owners_are_administrators_to_give() {
    let mut rig = rig(1);
    let root = rig.root();
    set(&mut rig, &Caller::ROOT, root, &[(1, "rlidwka"), (9, "rlidwka")]).unwrap();
    let mine = rig.make(0, &who(1001), root, "mine", NewKind::File, 0o4755);
    assert_eq!(rig.status(0, mine).unwrap().mode, 0o755);
    assert_eq!(rig.status(0, mine).unwrap().kind, Kind::File);
    let change = |change| Call::SetStatus { fid: mine, change };
    let set_id = StatusChange { mode: Some(0o4755), ..StatusChange::default() };
    rig.call(0, &who(1001), change(set_id)).unwrap();
    assert_eq!(rig.status(0, mine).unwrap().mode, 0o755);
    let give = StatusChange { gid: Some(1001), ..StatusChange::default() };
    assert_eq!(rig.call(0, &who(1001), change(give)), Err(Fault::NotPermitted));
    assert!(rig.call(0, &Caller::ROOT, change(give)).is_ok());
}

#[test]
fn mode_bits_bind_a_root_that_nobody_trusts() {
    let mut rig = Rig::new(Ground::memory(), 1);
    let root = rig.root();
    let dir = rig.make(0, &Caller::ROOT, root, "dir", NewKind::Directory, 0o750);
    rig.file(dir, "file");
    let change = StatusChange { uid: Some(1001), gid: Some(1001), ..StatusChange::default() };
    rig.call(0, &Caller::ROOT, Call::SetStatus { fid: dir, change }).unwrap();
    let lookup = Call::Lookup { dir, name: name("file") };
    assert!(rig.call(0, &Caller::ROOT, lookup.clone()).is_ok());
    for level in [Level::Nobody, Level::Attested, Level::Password, Level::Kerberos] {
        let squashed = Caller { groups: Some(Box::default()), who: Who { level, ..Who::NOBODY }, ..Caller::ROOT };
        assert_eq!(rig.call(0, &squashed, lookup.clone()), Err(Fault::AccessDenied), "{level:?}");
        let give = Call::SetStatus { fid: dir, change };
        assert_eq!(rig.call(0, &squashed, give), Err(Fault::NotPermitted), "{level:?}");
    }
}
