//! Volumes where access lists decide: each call against a simple evaluation, and the life of lists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::common::{Ground, Rig, name, remove, user, write};
use bytes::Bytes;
use guard::{Acl, Cps, Rights};
use proptest::prelude::*;
use types::{
    Answer, AuthLevel, ByteRange, Call, Caller, Cookie, CreateHow, Fault, Fid, Kind, LockFamily,
    LockMode, LockOwner, NewKind, PrincipalId, RenameMode, RequestIdentity, StatusChange,
    VolumeCall, VolumeKind, XattrMode,
};
use vice::Principals;

/// Uid 1000 + n is principal n; even ones are staff.
struct Known;

const STAFF: PrincipalId = PrincipalId(-300);
const ADMIN: u32 = 1009;

impl Principals for Known {
    fn cps(&self, caller: &Caller) -> Result<Cps, Fault> {
        let id = if caller.uid > 1000 {
            PrincipalId(caller.uid as i32 - 1000)
        } else {
            PrincipalId::ANONYMOUS
        };
        let staff = (caller.uid.is_multiple_of(2)).then_some(STAFF);
        let admin = (caller.uid == ADMIN).then_some(PrincipalId::ADMINISTRATORS);
        let known = (id != PrincipalId::ANONYMOUS).then_some(PrincipalId::PROVED);
        Ok(Cps::new(id, caller.who.level, staff.into_iter().chain(admin).chain(known)))
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

/// A volume where lists decide: all callers may look up names in the root, and have no other right.
fn rig(clients: usize) -> Rig {
    let mut rig = Rig::with_principals(Ground::memory(), clients, Arc::new(Known));
    let root = rig.root();
    let call = Call::SetAcl { fid: root, list: list(&[(EVERYBODY, "l")], &[]), instead_of: None };
    assert_eq!(rig.call(0, &Caller::ROOT, call), Ok(Answer::Done));
    rig
}

fn set(rig: &mut Rig, caller: &Caller, fid: Fid, given: Entries<'_>) -> Result<Answer, Fault> {
    rig.call(0, caller, Call::SetAcl { fid, list: list(given, &[]), instead_of: None })
}

fn rights(rig: &mut Rig, who: usize, caller: &Caller, fid: Fid) -> String {
    match rig.call(who, caller, Call::Rights { fid }).unwrap() {
        Answer::Rights { rights, .. } => Rights(rights).to_string(),
        other => panic!("{other:?}"),
    }
}

/// The rights that a call needs, as in the table of the documentation; any of the words, each
/// letter of it. `$`: and the caller owns the file.
type Row = (&'static [&'static str], On, Call);

/// The file or directory whose list decides.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Dir,
    /// The file's own list, if it has one, except for `l`.
    File,
}

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
    let make = |at: &str, kind| Call::Make {
        dir,
        name: name(at),
        kind,
        mode: 0o644,
        how: CreateHow::Guarded,
    };
    vec![
        (&["l"], On::Dir, Call::Lookup { dir, name: name("file") }),
        (&["li", "ld"], On::Dir, Call::Delegate { fid: dir }),
        (
            &["l"],
            On::Dir,
            Call::ReadDir { dir, cookie: Cookie::START, bytes_max: 9000, plus: true },
        ),
        (&["l"], On::File, Call::GetStatus { fid: file }),
        (&["l"], On::Dir, Call::ReadLink { fid: link }),
        (&["l"], On::File, Call::XattrList { fid: file }),
        (&["l"], On::File, Call::GetAcl { fid: file }),
        (&["r"], On::File, Call::Read { fid: file, offset: 0, length: 10 }),
        (&["r"], On::File, Call::ReadSums { fid: file, first: 0, count: 1 }),
        (&["r"], On::File, Call::XattrGet { fid: file, name: attribute() }),
        (&["w", "i$"], On::File, write(file, Some(0), b"x")),
        (
            &["w", "i$"],
            On::File,
            Call::SetStatus {
                fid: file,
                change: StatusChange { size: Some(3), ..StatusChange::default() },
            },
        ),
        (
            &["w", "i$"],
            On::File,
            Call::XattrSet {
                fid: file,
                name: attribute(),
                value: Bytes::from_static(b"v"),
                mode: XattrMode::Either,
            },
        ),
        (&["w", "k", "i$"], On::File, lock(LockMode::Shared)),
        (&["w", "i$"], On::File, lock(LockMode::Exclusive)),
        (&["li"], On::Dir, make("new", NewKind::File)),
        (&["li"], On::Dir, make("sub", NewKind::Directory)),
        (&["i"], On::Dir, Call::MakeUnnamed { dir, mode: 0o600 }),
        (&["li"], On::Dir, Call::Link { fid: file, dir, name: name("second") }),
        (&["ld"], On::Dir, remove(dir, "goes")),
        (
            &["lid"],
            On::Dir,
            Call::Rename {
                from_dir: dir,
                from: name("moves"),
                to_dir: dir,
                to: name("moved"),
                mode: RenameMode::Replace,
                hold: false,
            },
        ),
        (
            &["a"],
            On::Dir,
            Call::SetAcl { fid: dir, list: list(&[(EVERYBODY, "rl")], &[]), instead_of: None },
        ),
        (
            &["a"],
            On::File,
            Call::SetAcl { fid: file, list: list(&[(EVERYBODY, "rl")], &[]), instead_of: None },
        ),
        (&["a"], On::File, Call::SetAcl { fid: file, list: None, instead_of: None }),
    ]
}

/// Letters that do not form the word for all of them.
fn letters(most: usize) -> impl Strategy<Value = String> {
    proptest::string::string_regex(&format!("[rlidwka]{{1,{most}}}"))
        .unwrap()
        .prop_filter("a word", |letters| letters != "all")
}

fn words(entries: &[(i32, String)]) -> Vec<(i32, &str)> {
    entries.iter().map(|(who, letters)| (*who, letters.as_str())).collect()
}

fn expected(needs: &[&str], has: &BTreeSet<char>, owns: bool) -> bool {
    let word = |word: &&str| {
        word.chars().all(|letter| if letter == '$' { owns } else { has.contains(&letter) })
    };
    needs.iter().any(word)
}

/// Fewer than `count` entries, each for one of `ids` with at most `most` letters.
fn entries(
    ids: &[i32],
    most: usize,
    count: usize,
) -> impl Strategy<Value = BTreeMap<i32, String>> + use<> {
    let ids = prop::sample::select(ids.to_vec());
    prop::collection::btree_map(ids, letters(most), 0..count)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_call_is_judged_by_the_list_of_its_directory(
        given in entries(&[1, 2, 3, -300, -102, -101], 4, 5),
        denied in entries(&[1, 2, -300, -101], 2, 2),
        own in prop::option::of(entries(&[1, 2, 3, -300, -102, -101], 4, 5)),
        own_denied in entries(&[1, 2, -300, -101], 2, 2),
    ) {
        let of = |entries: &BTreeMap<i32, String>| -> Vec<(i32, String)> {
            entries.iter().map(|(who, letters)| (*who, letters.clone())).collect()
        };
        let (given, denied) = (of(&given), of(&denied));
        let own = own.map(|own| (of(&own), of(&own_denied)));
        for caller in [who(1001), who(1002), who(1003), who(500)] {
            // Each call on a fresh tree, because many of them change it.
            let [dir, file, link] = [3, 4, 6].map(|no| Fid::new(1, no, 1));
            for index in 0..rows(&Scene { dir, file, link }).len() {
                let mut rig = rig(1);
                let root = rig.root();
                let dir = rig.directory(root, "dir");
                let file = rig.file(dir, "file");
                let (uid, gid) = (Some(1001), Some(1001));
                let change = StatusChange { uid, gid, ..StatusChange::default() };
                rig.call(0, &Caller::ROOT, Call::SetStatus { fid: file, change }).unwrap();
                rig.call(0, &Caller::ROOT, Call::XattrSet {
                    fid: file,
                    name: Bytes::from_static(b"user.a"),
                    value: Bytes::new(),
                    mode: XattrMode::Either,
                }).unwrap();
                rig.file(dir, "goes");
                rig.file(dir, "moves");
                let kind = NewKind::Symlink(Bytes::from_static(b"file"));
                let link = rig.make(0, &Caller::ROOT, dir, "link", kind, 0o777);
                let (g, d) = (words(&given), words(&denied));
                let of_dir = Call::SetAcl { fid: dir, list: list(&g, &d), instead_of: None };
                rig.call(0, &Caller::ROOT, of_dir).unwrap();
                if let Some((given, denied)) = &own {
                    let own = list(&words(given), &words(denied));
                    let of_file = Call::SetAcl { fid: file, list: own, instead_of: None };
                    rig.call(0, &Caller::ROOT, of_file).unwrap();
                }
                prop_assert_eq!(rig.status(0, file).unwrap().own_list, own.is_some());
                let mut is = BTreeSet::from([EVERYBODY]);
                if caller.uid > 1000 {
                    is.extend([caller.uid as i32 - 1000, -102]);
                }
                if caller.uid % 2 == 0 {
                    is.insert(-300);
                }
                let letters = |entries: &[(i32, &str)]| -> BTreeSet<char> {
                    let mine = entries.iter().filter(|(who, _)| is.contains(who));
                    mine.flat_map(|(_, letters)| letters.chars()).collect()
                };
                let has: BTreeSet<char> = letters(&g).difference(&letters(&d)).copied().collect();
                let of_file = own.as_ref().map_or_else(|| has.clone(), |(given, denied)| {
                    let denied = letters(&words(denied));
                    let mut can = letters(&words(given));
                    can.retain(|letter| !denied.contains(letter) && "rwka".contains(*letter));
                    can.extend(has.contains(&'l').then_some('l'));
                    can.extend((caller.uid == 1001).then_some('a'));
                    can
                });
                let (needs, on, call) = rows(&Scene { dir, file, link }).swap_remove(index);
                let text = format!("{call:?} by {}", caller.uid);
                let has = if on == On::File { of_file } else { has };
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
    // A root without trust is anonymous, even as the owner of the directory.
    let squashed = Caller {
        who: RequestIdentity { level: AuthLevel::Password, ..RequestIdentity::NOBODY },
        ..Caller::ROOT
    };
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
    // Without a list of its own the directory uses that of its parent.
    rig.call(0, &Caller::ROOT, Call::SetAcl { fid: dir, list: None, instead_of: None }).unwrap();
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
fn a_file_with_two_names_leaves_its_directory_with_neither() {
    let mut rig = rig(1);
    let root = rig.root();
    let (dir, file) = (rig.directory(root, "dir"), rig.file(root, "file"));
    rig.call(0, &Caller::ROOT, Call::Link { fid: file, dir: root, name: name("second") }).unwrap();
    let rename = |to_dir, to: &str, mode| Call::Rename {
        from_dir: root,
        from: name("file"),
        to_dir,
        to: name(to),
        mode,
        hold: false,
    };
    assert_eq!(
        rig.call(0, &Caller::ROOT, rename(dir, "file", RenameMode::Replace)),
        Err(Fault::CrossVolume)
    );
    rig.file(dir, "other");
    assert_eq!(
        rig.call(0, &Caller::ROOT, rename(dir, "other", RenameMode::Exchange)),
        Err(Fault::CrossVolume)
    );
    assert!(rig.call(0, &Caller::ROOT, rename(root, "third", RenameMode::Replace)).is_ok());
    rig.call(0, &Caller::ROOT, remove(root, "third")).unwrap();
    let last = Call::Rename {
        from_dir: root,
        from: name("second"),
        to_dir: dir,
        to: name("second"),
        mode: RenameMode::Replace,
        hold: false,
    };
    assert!(rig.call(0, &Caller::ROOT, last).is_ok());
}

#[test]
fn lists_are_no_attributes() {
    let mut rig = rig(1);
    let fid = rig.root();
    assert_eq!(rig.call(0, &Caller::ROOT, Call::XattrList { fid }), Ok(Answer::XattrNames(vec![])));
    let name = Bytes::from_static(b"rialto.acl");
    let get = Call::XattrGet { fid, name: name.clone() };
    assert_eq!(rig.call(0, &Caller::ROOT, get), Err(Fault::Unsupported));
    let set =
        Call::XattrSet { fid, name: name.clone(), value: Bytes::new(), mode: XattrMode::Either };
    assert_eq!(rig.call(0, &Caller::ROOT, set), Err(Fault::Unsupported));
    assert_eq!(
        rig.call(0, &Caller::ROOT, Call::XattrRemove { fid, name }),
        Err(Fault::Unsupported)
    );
}

#[test]
fn a_change_of_rights_waits_until_all_who_were_told_know() {
    let mut rig = rig(3);
    let root = rig.root();
    let dir = rig.directory(root, "dir");
    rights(&mut rig, 1, &who(1001), dir);
    rig.clients[1].prompt = false;
    let change = rig.start(
        0,
        &Caller::ROOT,
        Call::SetAcl { fid: dir, list: list(&[], &[]), instead_of: None },
    );
    assert_eq!(rig.reply(change), None);
    let received: Vec<Fid> = rig.clients[1].broken.iter().map(|item| item.fid).collect();
    assert!(received.contains(&Fid::rights(root.volume)), "{received:?}");
    assert!(
        rig.clients[2].broken.iter().all(|item| item.fid != Fid::rights(root.volume)),
        "got no break"
    );
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
fn only_administrators_change_the_model_and_clones_keep_theirs() {
    let mut rig = Rig::with_principals(Ground::memory(), 2, Arc::new(Known));
    let root = rig.root();
    rig.file(root, "file");
    assert!(!rig.root_status().by_list);
    assert_eq!(rig.call(0, &Caller::ROOT, Call::GetAcl { fid: root }), Err(Fault::Unsupported));
    let give = |given| Call::SetAcl { fid: root, list: list(given, &[]), instead_of: None };
    assert_eq!(rig.call(0, &who(1001), give(&[(1, "all")])), Err(Fault::NotPermitted));
    rig.look_root(1);
    assert_eq!(rig.call(0, &who(ADMIN), give(&[(1, "rl")])), Ok(Answer::Done));
    assert!(rig.clients[1].broken.iter().any(|item| item.fid == root), "all promises are broken");
    assert!(rig.root_status().by_list);
    let clone = VolumeCall::Clone {
        id: None,
        of: root.volume,
        name: name("sealed"),
        kind: VolumeKind::Snapshot,
        replace: false,
    };
    rig.call(0, &Caller::ROOT, Call::Volume(clone)).unwrap();
    assert_eq!(
        rig.call(0, &who(ADMIN), Call::SetAcl { fid: root, list: None, instead_of: None }),
        Ok(Answer::Done)
    );
    assert!(!rig.root_status().by_list);
    let sealed = rig.root_of(0, "sealed").unwrap();
    let lookup = |dir| Call::Lookup { dir, name: name("file") };
    assert_eq!(rig.call(0, &who(1002), lookup(sealed)), Err(Fault::AccessDenied));
    assert!(rig.call(0, &who(1001), lookup(sealed)).is_ok());
    assert!(rig.call(0, &who(1002), lookup(root)).is_ok(), "mode bits");
    // The same after a restart.
    rig.restart();
    (0..2).for_each(|who| rig.reclaim(who));
    assert_eq!(rig.call(0, &who(1002), lookup(sealed)), Err(Fault::AccessDenied));
}

#[test]
fn damaged_lists_give_nothing_and_bad_ones_are_not_taken() {
    let mut rig = rig(1);
    let root = rig.root();
    let call =
        Call::SetAcl { fid: root, list: Some(Bytes::from_static(b"no list")), instead_of: None };
    assert_eq!(rig.call(0, &Caller::ROOT, call), Err(Fault::Invalid));
    let link = rig.make(
        0,
        &Caller::ROOT,
        root,
        "link",
        NewKind::Symlink(Bytes::from_static(b"file")),
        0o777,
    );
    let call = Call::SetAcl { fid: link, list: list(&[], &[]), instead_of: None };
    assert_eq!(rig.call(0, &Caller::ROOT, call), Err(Fault::Invalid));
}

/// A directory where 1 has all rights, and a file in it whose own list lets 2 read.
fn shared_file(rig: &mut Rig) -> (Fid, Fid) {
    let root = rig.root();
    let dir = rig.directory(root, "dir");
    set(rig, &Caller::ROOT, dir, &[(1, "rlidwka"), (2, "l"), (3, "l")]).unwrap();
    let file = rig.file(dir, "file");
    set(rig, &who(1001), file, &[(2, "rlid")]).unwrap();
    (dir, file)
}

#[test]
fn a_files_own_list_decides_alone_until_it_is_taken_away() {
    let mut rig = rig(1);
    let (dir, file) = shared_file(&mut rig);
    assert_eq!(
        rights(&mut rig, 0, &who(1001), file),
        "l",
        "the directory's, and nothing of the file's"
    );
    assert_eq!(rights(&mut rig, 0, &who(1002), file), "rl");
    assert_eq!(rights(&mut rig, 0, &who(ADMIN), file), "la");
    assert_eq!(rights(&mut rig, 0, &Caller::ROOT, file), "rlidwka");
    let whose = |rig: &mut Rig, fid| match rig.call(0, &Caller::ROOT, Call::GetAcl { fid }).unwrap()
    {
        Answer::Acl { of, .. } => of,
        other => panic!("{other:?}"),
    };
    assert_eq!(whose(&mut rig, file), file);
    assert_eq!(
        set(&mut rig, &who(1001), file, &[(1, "rw")]),
        Err(Fault::AccessDenied),
        "not the directory's to change"
    );
    // Its owner administers it, as with a directory.
    let change = StatusChange { uid: Some(1003), gid: Some(1003), ..StatusChange::default() };
    rig.call(0, &Caller::ROOT, Call::SetStatus { fid: file, change }).unwrap();
    assert_eq!(rights(&mut rig, 0, &who(1003), file), "la");
    let away = Call::SetAcl { fid: file, list: None, instead_of: None };
    assert_eq!(rig.call(0, &who(1003), away), Ok(Answer::Done));
    assert_eq!(whose(&mut rig, file), dir);
    assert_eq!(rights(&mut rig, 0, &who(1001), file), "rlidwka");
    assert_eq!(rights(&mut rig, 0, &who(1003), file), "l");
    assert!(!rig.status(0, file).unwrap().own_list);
}

#[test]
fn a_files_own_list_goes_where_the_file_goes() {
    let mut rig = rig(1);
    let (dir, file) = shared_file(&mut rig);
    let root = rig.root();
    let other = rig.directory(root, "other");
    set(&mut rig, &Caller::ROOT, other, &[(3, "rlw")]).unwrap();
    let link = Call::Link { fid: file, dir: other, name: name("second") };
    assert_eq!(rig.call(0, &Caller::ROOT, link), Err(Fault::CrossVolume));
    let rename = Call::Rename {
        from_dir: dir,
        from: name("file"),
        to_dir: other,
        to: name("file"),
        mode: RenameMode::Replace,
        hold: false,
    };
    rig.call(0, &Caller::ROOT, rename).unwrap();
    assert_eq!(rights(&mut rig, 0, &who(1002), file), "r", "to see it is the new directory's");
    assert_eq!(rights(&mut rig, 0, &who(1003), file), "l");
    let clone = VolumeCall::Clone {
        id: None,
        of: root.volume,
        name: name("sealed"),
        kind: VolumeKind::Snapshot,
        replace: false,
    };
    rig.call(0, &Caller::ROOT, Call::Volume(clone)).unwrap();
    rig.call(0, &Caller::ROOT, Call::SetAcl { fid: file, list: None, instead_of: None }).unwrap();
    let sealed = Fid { volume: rig.root_of(0, "sealed").unwrap().volume, ..file };
    let check = |rig: &mut Rig| {
        assert_eq!(rights(rig, 0, &who(1002), sealed), "r");
        assert_eq!(rights(rig, 0, &who(1003), sealed), "l");
        assert!(rig.status(0, sealed).unwrap().own_list);
        assert_eq!(rights(rig, 0, &who(1003), file), "rlw");
        assert!(!rig.status(0, file).unwrap().own_list);
    };
    check(&mut rig);
    rig.restart();
    rig.reclaim(0);
    check(&mut rig);
}

#[test]
fn other_attributes_make_no_list() {
    let mut rig = rig(1);
    let (dir, _) = shared_file(&mut rig);
    let plain = rig.file(dir, "plain");
    let attribute = Bytes::from_static(b"user.a");
    let put = Call::XattrSet {
        fid: plain,
        name: attribute,
        value: Bytes::new(),
        mode: XattrMode::Either,
    };
    rig.call(0, &Caller::ROOT, put).unwrap();
    assert!(!rig.status(0, plain).unwrap().own_list);
    assert_eq!(rights(&mut rig, 0, &who(1001), plain), "rlidwka");
    // And a list is no other attribute.
    set(&mut rig, &Caller::ROOT, plain, &[(3, "r")]).unwrap();
    let names = rig.call(0, &Caller::ROOT, Call::XattrList { fid: plain });
    assert_eq!(names, Ok(Answer::XattrNames(vec![Bytes::from_static(b"user.a")])));
    rig.call(
        0,
        &Caller::ROOT,
        Call::XattrRemove { fid: plain, name: Bytes::from_static(b"user.a") },
    )
    .unwrap();
    assert_eq!(rights(&mut rig, 0, &who(1003), plain), "rl");
    assert!(rig.status(0, plain).unwrap().own_list);
}

#[test]
fn a_change_of_a_files_list_waits_until_all_who_were_told_know() {
    let mut rig = rig(2);
    let (_, file) = shared_file(&mut rig);
    rights(&mut rig, 1, &who(1002), file);
    rig.status(1, file).unwrap();
    rig.clients[1].prompt = false;
    let change = rig.start(
        0,
        &Caller::ROOT,
        Call::SetAcl { fid: file, list: list(&[], &[]), instead_of: None },
    );
    assert_eq!(rig.reply(change), None);
    let received: Vec<Fid> = rig.clients[1].broken.iter().map(|item| item.fid).collect();
    assert!(
        received.contains(&Fid::rights(file.volume)) && received.contains(&file),
        "{received:?}"
    );
    rig.acknowledge(1);
    assert_eq!(rig.reply(change), Some(Ok(Answer::Done)));
}

#[test]
fn a_list_is_changed_only_where_it_is_the_one_that_was_seen() {
    let mut rig = rig(1);
    let (dir, file) = shared_file(&mut rig);
    let sum = |given| Acl::decode(&list(given, &[]).unwrap()).unwrap().sum();
    let change = |fid, given, seen| Call::SetAcl {
        fid,
        list: list(given, &[]),
        instead_of: Some(sum(seen)),
    };
    let both: Entries<'_> = &[(1, "rlidwka"), (2, "l"), (3, "l")];
    assert_eq!(
        rig.call(0, &who(1001), change(dir, &[(1, "all"), (2, "rl")], both)),
        Ok(Answer::Done)
    );
    assert_eq!(
        rig.call(0, &who(1001), change(dir, &[(1, "all"), (3, "rl")], both)),
        Err(Fault::Conflict)
    );
    assert_eq!(rights(&mut rig, 0, &who(1002), dir), "rl");
    // For a file without a list the directory's is compared.
    let plain = rig.file(dir, "plain");
    let now: Entries<'_> = &[(1, "all"), (2, "rl")];
    assert_eq!(rig.call(0, &who(1001), change(plain, &[(3, "r")], both)), Err(Fault::Conflict));
    assert_eq!(rig.call(0, &who(1001), change(plain, &[(3, "r")], now)), Ok(Answer::Done));
    let away = |seen| Call::SetAcl { fid: file, list: None, instead_of: Some(sum(seen)) };
    assert_eq!(rig.call(0, &Caller::ROOT, away(now)), Err(Fault::Conflict));
    assert_eq!(rig.call(0, &Caller::ROOT, away(&[(2, "rlid")])), Ok(Answer::Done));
    // The first list of a root is set only once.
    let root = rig.root();
    assert_eq!(rig.call(0, &who(ADMIN), change(root, &[(9, "all")], now)), Err(Fault::Conflict));
    assert_eq!(
        rig.call(0, &who(ADMIN), change(root, &[(9, "all")], &[(EVERYBODY, "l")])),
        Ok(Answer::Done)
    );
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
    for level in [AuthLevel::Nobody, AuthLevel::Attested, AuthLevel::Password, AuthLevel::Kerberos]
    {
        let squashed = Caller {
            groups: Some(Box::default()),
            who: RequestIdentity { level, ..RequestIdentity::NOBODY },
            ..Caller::ROOT
        };
        assert_eq!(rig.call(0, &squashed, lookup.clone()), Err(Fault::AccessDenied), "{level:?}");
        let give = Call::SetStatus { fid: dir, change };
        assert_eq!(rig.call(0, &squashed, give), Err(Fault::NotPermitted), "{level:?}");
    }
}
