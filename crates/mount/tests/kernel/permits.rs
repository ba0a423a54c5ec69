//! Access lists, as the kernel enforces them: several users of one mount, compared with a simple
//! model.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use guard::{Acl, Cps, Rights};
use parking_lot::Mutex;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng};
use rustix::fs::{Access, Mode, OFlags};
use rustix::io::Errno;
use types::{
    AuthLevel, Call, Caller, CreateHow, Fault, Fid, Name, NewKind, PrincipalId, StatusChange,
};
use vice::{Principals, ViceParts};

use crate::cell::{Cell, eventually};
use crate::gated::Gated;

/// Uids of users that the cell knows, and of one that it does not.
const USERS: [u32; 4] = [1001, 1002, 1003, 1004];
const GROUPS: [PrincipalId; 2] = [PrincipalId(-301), PrincipalId(-302)];

/// The members of groups.
#[derive(Default)]
struct Book(Mutex<BTreeMap<u32, BTreeSet<PrincipalId>>>);

fn principal(uid: u32) -> PrincipalId {
    if uid == 1004 { PrincipalId::ANONYMOUS } else { PrincipalId(uid as i32 - 1000) }
}

impl Principals for Book {
    fn cps(&self, caller: &Caller) -> Result<Cps, Fault> {
        let groups = self.0.lock().get(&caller.uid).cloned().unwrap_or_default();
        let principal = principal(caller.uid);
        let known = (principal != PrincipalId::ANONYMOUS).then_some(PrincipalId::PROVED);
        Ok(Cps::new(principal, AuthLevel::Named, groups.into_iter().chain(known)))
    }
}

/// A service that knows these users, and the members of its groups.
fn start() -> Option<(Cell, Arc<Book>)> {
    let book = Arc::new(Book::default());
    let parts = ViceParts { principals: Some(Arc::clone(&book) as _), ..ViceParts::default() };
    Some((Cell::start_with(parts)?, book))
}

/// A thread that runs tasks as another user.
pub struct User {
    orders: mpsc::Sender<Box<dyn FnOnce() + Send>>,
}

impl User {
    pub fn of(uid: u32) -> User {
        let (orders, given) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        std::thread::spawn(move || {
            rustix::thread::set_thread_groups(&[]).unwrap();
            let gid = rustix::fs::Gid::from_raw(uid);
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            let uid = rustix::fs::Uid::from_raw(uid);
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            given.iter().for_each(|order| order());
        });
        User { orders }
    }

    pub fn does<R: Send + 'static>(&self, what: impl FnOnce() -> R + Send + 'static) -> R {
        let (done, result) = mpsc::channel();
        self.orders.send(Box::new(move || done.send(what()).unwrap())).unwrap();
        result.recv().unwrap()
    }
}

/// The accesses that users try on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deed {
    Stat,
    Read,
    Write,
    List,
    MayRead,
    MayWrite,
    MayExecute,
    Make,
}

fn attempt(deed: Deed, path: &Path) -> Result<(), Errno> {
    let open = |flags| rustix::fs::open(path, flags, Mode::empty()).map(drop);
    match deed {
        Deed::Stat => rustix::fs::stat(path).map(drop),
        Deed::Read => open(OFlags::RDONLY),
        Deed::Write => open(OFlags::WRONLY),
        Deed::List => rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
            .and_then(|dir| rustix::fs::Dir::read_from(dir)?.try_for_each(|entry| entry.map(drop))),
        Deed::MayRead => rustix::fs::access(path, Access::READ_OK),
        Deed::MayWrite => rustix::fs::access(path, Access::WRITE_OK),
        Deed::MayExecute => rustix::fs::access(path, Access::EXEC_OK),
        Deed::Make => {
            let new = path.join("new");
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
            rustix::fs::open(&new, flags, Mode::RUSR | Mode::WUSR).map(drop)
        }
    }
}

/// A directory or file of the tree, with the list that decides about it.
#[derive(Clone, Debug)]
struct Thing {
    fid: Fid,
    owner: u32,
    mode: u16,
    dir: bool,
    /// Its own list: a directory always has one, a file only if one was set.
    list: Option<List>,
}

/// Entries, positive and negative.
type List = [BTreeMap<PrincipalId, String>; 2];

/// The tree by path: directories `""`, `a`, `a/b`, and a file `f` in each.
type Tree = BTreeMap<String, Thing>;

fn above(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// The model: letters of a user in a directory.
fn letters(dir: &Thing, uid: u32, book: &Book) -> BTreeSet<char> {
    let mut is: BTreeSet<PrincipalId> = book.0.lock().get(&uid).cloned().unwrap_or_default();
    is.extend([principal(uid), PrincipalId::ANYBODY]);
    if principal(uid) != PrincipalId::ANONYMOUS {
        is.insert(PrincipalId::PROVED);
    }
    let [given, denied] = dir.list.as_ref().unwrap();
    let of = |list: &BTreeMap<PrincipalId, String>| -> BTreeSet<char> {
        list.iter()
            .filter(|(who, _)| is.contains(who))
            .flat_map(|(_, letters)| letters.chars())
            .collect()
    };
    let mut has: BTreeSet<char> = of(given).difference(&of(denied)).copied().collect();
    if dir.owner == uid {
        has.extend(['l', 'a']);
    }
    has
}

fn expected(tree: &Tree, path: &str, uid: u32, deed: Deed, book: &Book) -> bool {
    let thing = &tree[path];
    let mut dir = path;
    while !dir.is_empty() {
        dir = above(dir);
        if !letters(&tree[dir], uid, book).contains(&'l') {
            return false;
        }
    }
    if thing.dir {
        let has = letters(thing, uid, book);
        return match deed {
            Deed::Stat => true,
            Deed::List | Deed::Read | Deed::MayRead | Deed::MayExecute => has.contains(&'l'),
            Deed::MayWrite => "idwa".chars().any(|letter| has.contains(&letter)),
            Deed::Make => has.contains(&'l') && has.contains(&'i'),
            Deed::Write => false,
        };
    }
    let mut has = letters(if thing.list.is_some() { thing } else { &tree[above(path)] }, uid, book);
    if thing.list.is_some() {
        // Only a directory can be a drop box.
        has.remove(&'i');
    }
    let (reads, bits) = (has.contains(&'r'), thing.mode >> 6);
    let writes = has.contains(&'w') || has.contains(&'i') && thing.owner == uid;
    match deed {
        Deed::Stat => true,
        Deed::Read | Deed::MayRead => reads && bits & 4 > 0,
        Deed::Write | Deed::MayWrite => writes && bits & 2 > 0,
        Deed::MayExecute => reads && bits & 1 > 0,
        Deed::List | Deed::Make => false,
    }
}

struct Scene {
    tree: Tree,
    session: Arc<dyn client::Remote>,
    book: Arc<Book>,
    users: Vec<(u32, User)>,
}

impl Scene {
    fn new(cell: &Cell, book: Arc<Book>) -> Scene {
        let mut scene = Self::under_bits(cell, book);
        scene.begin_lists();
        scene
    }

    fn begin_lists(&mut self) {
        for path in ["", "a", "a/b"] {
            self.set(path, Default::default());
        }
    }

    fn end_lists(&mut self) {
        let call = Call::SetAcl { fid: self.tree[""].fid, list: None, instead_of: None };
        self.session.call(&Caller::ROOT, call, None).unwrap();
    }

    /// The tree while mode bits decide.
    fn under_bits(cell: &Cell, book: Arc<Book>) -> Scene {
        std::fs::set_permissions(cell.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let session = cell.session();
        let make = |dir: Fid, at: &str, kind: NewKind, owner: u32, mode: u16| {
            let name = Name::new(at.as_bytes()).unwrap();
            let call = Call::Make { dir, name, kind, mode, how: CreateHow::Guarded };
            let types::Answer::Made { status, .. } =
                session.call(&Caller::ROOT, call, None).unwrap().answer
            else {
                panic!("not made")
            };
            let change =
                StatusChange { uid: Some(owner), gid: Some(owner), ..StatusChange::default() };
            session.call(&Caller::ROOT, Call::SetStatus { fid: status.fid, change }, None).unwrap();
            status.fid
        };
        let thing = |fid, owner, mode, dir: bool| Thing {
            fid,
            owner,
            mode,
            dir,
            list: dir.then(Default::default),
        };
        let root = cell.root("root");
        let a = make(root, "a", NewKind::Directory, 1001, 0o755);
        let b = make(a, "b", NewKind::Directory, 1002, 0o700);
        let mut tree = Tree::new();
        for (path, dir, owner) in [("", root, 0), ("a", a, 1001), ("a/b", b, 1002)] {
            tree.insert(path.to_owned(), thing(dir, owner, 0, true));
            for (at, owner, mode) in [("f", 1001, 0o644), ("g", 1002, 0o400), ("h", 1003, 0o755)] {
                let fid = make(dir, at, NewKind::File, owner, mode);
                let path = if path.is_empty() { at.to_owned() } else { format!("{path}/{at}") };
                tree.insert(path, thing(fid, owner, mode, false));
            }
        }
        let users = USERS.map(|uid| (uid, User::of(uid))).into();
        Scene { tree, session, book, users }
    }

    /// Every user reads every file that the mode bits let it read.
    fn check_bits(&self, mount: &dyn Fn(&str) -> PathBuf, when: &str) {
        for (uid, user) in &self.users {
            for (path, thing) in self.tree.iter().filter(|(_, thing)| !thing.dir) {
                let owns = |thing: &Thing| thing.owner == *uid;
                let reaches = above(path) != "a/b" || owns(&self.tree["a/b"]);
                let reads = reaches && thing.mode & if owns(thing) { 0o400 } else { 0o004 } != 0;
                let at = mount(path);
                let done =
                    user.does(move || (attempt(Deed::MayRead, &at), attempt(Deed::Read, &at)));
                assert_eq!(
                    (done.0.is_ok(), done.1.is_ok()),
                    (reads, reads),
                    "{when}: {path:?} by {uid}: {done:?}"
                );
            }
        }
    }

    /// Gives a file its directory's list again.
    fn inherit(&mut self, path: &str) {
        let thing = self.tree.get_mut(path).unwrap();
        thing.list = None;
        let call = Call::SetAcl { fid: thing.fid, list: None, instead_of: None };
        self.session.call(&Caller::ROOT, call, None).unwrap();
    }

    fn set(&mut self, path: &str, list: List) {
        let mut acl = Acl::new();
        for (negative, entries) in list.iter().enumerate() {
            for (who, letters) in entries {
                let rights: Rights = letters.parse().unwrap();
                assert!(acl.set(*who, rights, negative == 1));
            }
        }
        let thing = self.tree.get_mut(path).unwrap();
        thing.list = Some(list);
        let call =
            Call::SetAcl { fid: thing.fid, list: Some(acl.encode().into()), instead_of: None };
        self.session.call(&Caller::ROOT, call, None).unwrap();
    }

    /// The groups change: clients get a break as for a change of a list.
    fn tell(&mut self) {
        let list = self.tree[""].list.clone().unwrap();
        self.set("", list);
    }

    /// Every user tries every access on every path.
    fn check(&self, mount: &dyn Fn(&str) -> PathBuf, when: &str) {
        let deeds = [
            Deed::Stat,
            Deed::Read,
            Deed::Write,
            Deed::List,
            Deed::MayRead,
            Deed::MayWrite,
            Deed::MayExecute,
        ];
        for (uid, user) in &self.users {
            for (path, thing) in &self.tree {
                let more = thing.dir.then_some(Deed::Make);
                for deed in deeds.into_iter().chain(more) {
                    let at = mount(path);
                    let done = user.does(move || attempt(deed, &at));
                    if deed == Deed::Make && done.is_ok() {
                        std::fs::remove_file(mount(path).join("new")).unwrap();
                    }
                    let wanted = expected(&self.tree, path, *uid, deed, &self.book);
                    assert_eq!(
                        done.is_ok(),
                        wanted,
                        "{when}: {deed:?} {path:?} by {uid}: {done:?}, {:?}",
                        self.tree
                    );
                    if let Err(error) = done {
                        let is_directory = thing.dir;
                        let known = [Errno::ACCESS, Errno::ISDIR, Errno::NOTDIR];
                        assert!(
                            known.contains(&error),
                            "{when}: {deed:?} {path:?} {is_directory} by {uid}: {error}"
                        );
                    }
                }
            }
        }
    }
}

fn some_list() -> impl Strategy<Value = List> {
    let who = prop_oneof![
        3 => (1..4i32).prop_map(PrincipalId),
        2 => prop::sample::select(GROUPS.to_vec()),
        1 => Just(PrincipalId::PROVED),
        1 => Just(PrincipalId::ANYBODY),
    ];
    let letters = prop::sample::select(vec![
        "l", "rl", "rlidwka", "rlidwk", "i", "li", "w", "rw", "ld", "r", "a",
    ]);
    let list = move |most| {
        prop::collection::btree_map(who.clone(), letters.clone().prop_map(str::to_owned), 0..most)
    };
    (list(5), list(2)).prop_map(|(given, denied)| [given, denied])
}

#[test]
fn users_of_one_mount_may_do_what_lists_say() {
    let Some((cell, book)) = start() else { return };
    let mut scene = Scene::new(&cell, book);
    let list = |given: &[(PrincipalId, &str)]| {
        given.iter().map(|(who, letters)| (*who, (*letters).to_owned())).collect()
    };
    scene.set("", [list(&[(PrincipalId::ANYBODY, "rl")]), list(&[])]);
    scene.set(
        "a",
        [list(&[(PrincipalId(1), "rlidwka"), (GROUPS[0], "rl")]), list(&[(PrincipalId(3), "r")])],
    );
    let mount = cell.mount();
    let at = |path: &str| mount.at(path);
    scene.check(&at, "at first");
    scene.book.0.lock().entry(1003).or_default().insert(GROUPS[0]);
    scene.tell();
    scene.check(&at, "in a group");
    scene.set("a", [list(&[(PrincipalId(1), "rl")]), list(&[])]);
    scene.check(&at, "without the group");
    scene.set("a/h", [list(&[(PrincipalId(1), "w"), (PrincipalId(3), "rw")]), list(&[])]);
    scene.set("g", [list(&[(PrincipalId::PROVED, "rw")]), list(&[(PrincipalId(1), "r")])]);
    scene.check(&at, "files with lists of their own");
    scene.inherit("a/h");
    scene.check(&at, "one of them without");
    scene.set("a", [list(&[(PrincipalId::ANYBODY, "rl")]), list(&[])]);
    std::fs::rename(at("g"), at("a/moved")).unwrap();
    let moved = scene.tree.remove("g").unwrap();
    scene.tree.insert("a/moved".to_owned(), moved);
    scene.check(&at, "moved with its own");
}

#[test]
fn a_break_waits_for_no_look_up_that_waits_for_the_server() {
    let Some((cell, book)) = start() else { return };
    let mut scene = Scene::new(&cell, book);
    scene.set("", [[(PrincipalId::ANYBODY, "rl".to_owned())].into(), Default::default()]);
    let gate = Gated::new(cell.session(), |call| matches!(call, Call::Rights { .. }));
    let mount = cell.mount_through(Arc::clone(&gate) as _);
    assert!(mount.at("a").exists());
    gate.shut();
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| std::fs::metadata(mount.at("f")));
        eventually("it asks for rights", || gate.has_waiting());
        let (fid, began) = (scene.tree["f"].fid, Instant::now());
        let change = StatusChange { mode: Some(0o600), ..StatusChange::default() };
        scene.session.call(&Caller::ROOT, Call::SetStatus { fid, change }, None).unwrap();
        let took = began.elapsed();
        gate.open();
        looking.join().unwrap().unwrap();
        assert!(took < Duration::from_secs(4), "the change took {took:?}");
    });
}

#[test]
fn lists_that_begin_and_end_under_a_mount_decide_there_at_once() {
    let Some((cell, book)) = start() else { return };
    let mut scene = Scene::under_bits(&cell, book);
    let mount = cell.mount();
    let at = |path: &str| mount.at(path);
    for round in 0..2 {
        scene.check_bits(&at, &format!("bits, round {round}"));
        scene.begin_lists();
        scene.check(&at, &format!("lists for nobody, round {round}"));
        let list = |entries: &[(PrincipalId, &str)]| {
            entries.iter().map(|(who, what)| (*who, (*what).into())).collect()
        };
        scene.set("", [list(&[(PrincipalId::ANYBODY, "rl")]), list(&[])]);
        scene.set("a", [list(&[(PrincipalId(3), "rlidwk")]), list(&[])]);
        scene.check(&at, &format!("lists, round {round}"));
        scene.end_lists();
    }
    scene.check_bits(&at, "bits again");
}

#[test]
fn a_shared_mount_begins_at_an_inode_with_a_cached_list() {
    use std::os::unix::fs::MetadataExt;
    let Some((cell, _)) = start() else { return };
    let mount = cell.mount();
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let top = mount.at("");
    let top = top.to_str().unwrap().trim_end_matches('/');
    if let Some(line) =
        table.lines().rfind(|line| !crate::is_flat() && line.contains(&format!(" {top} ")))
    {
        assert_eq!(line.split(' ').nth(3), Some("/tree"), "{line}");
    }
    std::fs::create_dir(mount.at("dir")).unwrap();
    let number = std::fs::metadata(mount.at("")).unwrap().ino();
    assert!(crate::is_flat() || number == 1, "{number}");
    assert_eq!(std::fs::metadata(mount.at("dir/..")).unwrap().ino(), number);
    assert!(!mount.at("tree").exists(), "only in what nobody sees");
}

#[test]
fn the_kernel_agrees_with_lists_and_groups_whatever_they_are() {
    let Some((cell, book)) = start() else { return };
    let mut scene = Scene::new(&cell, book);
    let mount = cell.mount();
    let at = |path: &str| mount.at(path);
    let mut runner = proptest::test_runner::TestRunner::new_with_rng(
        Default::default(),
        TestRng::deterministic_rng(RngAlgorithm::ChaCha),
    );
    let path = prop::sample::select(vec!["", "a", "a/b", "f", "a/f", "a/g", "a/b/h"]);
    let step = (path, some_list(), 0..4usize, 0..2usize, 0..6);
    for round in 0..24 {
        let (path, list, user, group, what) = step.new_tree(&mut runner).unwrap().current();
        if what == 0 && !scene.tree[path].dir {
            scene.inherit(path);
        } else if what <= 2 {
            let mut book = scene.book.0.lock();
            let groups = book.entry(USERS[user]).or_default();
            if !groups.remove(&GROUPS[group]) {
                groups.insert(GROUPS[group]);
            }
            drop(book);
            scene.tell();
        } else {
            scene.set(path, list);
        }
        scene.check(&at, &format!("round {round}"));
    }
}
