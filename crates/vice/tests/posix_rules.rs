//! The rules of POSIX, a row each. The same tree is made anew for every row.

use crate::common::{Ground, Rig, name, remove, user, write};
use bytes::Bytes;
use types::{
    Answer, Call, Caller, Cookie, CreateHow, Fault, Fid, Kind, Name, NewKind, RemoveWhat,
    RenameMode, SetTime, Status, StatusChange, Timestamp, XattrMode,
};

/// The tree of every row; users 10, 11 and 12, groups 100 and 200.
struct Place {
    rig: Rig,
    open: Fid,
    mine: Fid,
    program: Fid,
    theirs: Fid,
    my_dir: Fid,
    their_dir: Fid,
    sticky: Fid,
    closed: Fid,
    group_dir: Fid,
    fixed: Fid,
    shared: Fid,
    link: Fid,
}

impl Place {
    fn new() -> Self {
        let mut rig = Rig::new(Ground::memory(), 1);
        let (ten, eleven) = (user(10, 100, &[200]), user(11, 300, &[]));
        let root = rig.root();
        let dir = |rig: &mut Rig, at: Fid, who: &Caller, called: &str, mode: u16| {
            rig.make(0, who, at, called, NewKind::Directory, mode)
        };
        let file = |rig: &mut Rig, at: Fid, who: &Caller, called: &str, mode: u16| {
            rig.make(0, who, at, called, NewKind::File, mode)
        };
        let open = dir(&mut rig, root, &Caller::ROOT, "open", 0o777);
        let mine = file(&mut rig, open, &ten, "mine", 0o644);
        let program = file(&mut rig, open, &ten, "program", 0o6775);
        let theirs = file(&mut rig, open, &eleven, "theirs", 0o644);
        let shared = file(&mut rig, open, &eleven, "shared", 0o666);
        let my_dir = dir(&mut rig, open, &ten, "my_dir", 0o755);
        file(&mut rig, my_dir, &ten, "inside", 0o644);
        let their_dir = dir(&mut rig, open, &eleven, "their_dir", 0o755);
        let sticky = dir(&mut rig, root, &Caller::ROOT, "sticky", 0o1777);
        file(&mut rig, sticky, &ten, "mine", 0o666);
        file(&mut rig, sticky, &eleven, "theirs", 0o666);
        let closed = dir(&mut rig, root, &eleven, "closed", 0o700);
        file(&mut rig, closed, &eleven, "hidden", 0o666);
        let group_dir = dir(&mut rig, root, &user(11, 200, &[]), "group_dir", 0o2777);
        let fixed = dir(&mut rig, root, &Caller::ROOT, "fixed", 0o755);
        file(&mut rig, fixed, &Caller::ROOT, "there", 0o666);
        let link = rig.make(0, &ten, open, "link", NewKind::Symlink(Bytes::from_static(b"x")), 0);
        Place {
            rig,
            open,
            mine,
            program,
            theirs,
            my_dir,
            their_dir,
            sticky,
            closed,
            group_dir,
            fixed,
            shared,
            link,
        }
    }
}

/// The expected result of a row.
enum Want {
    Done,
    Refused(Fault),
    /// Mode in the answer's status.
    Mode(u16),
    Gid(u32),
}
use Want::{Done, Gid, Mode, Refused};

type Row = (&'static str, Caller, fn(&Place) -> Call, Want);

fn check(rows: Vec<Row>) {
    for (title, caller, call, want) in rows {
        let mut place = Place::new();
        let call = call(&place);
        let found = place.rig.call(0, &caller, call);
        let status = found.as_ref().ok().and_then(status_of);
        match want {
            Done => assert!(found.is_ok(), "{title}: {found:?}"),
            Refused(fault) => assert_eq!(found, Err(fault), "{title}"),
            Mode(mode) => {
                assert_eq!(status.map(|status| status.mode), Some(mode), "{title}: {found:?}");
            }
            Gid(gid) => {
                assert_eq!(status.map(|status| status.gid), Some(gid), "{title}: {found:?}");
            }
        }
    }
}

fn status_of(answer: &Answer) -> Option<Status> {
    match answer {
        Answer::Status(status) | Answer::Made { status, .. } | Answer::Written { status, .. } => {
            Some(*status)
        }
        _ => None,
    }
}

fn ten() -> Caller {
    user(10, 100, &[200])
}

fn twelve() -> Caller {
    user(12, 400, &[])
}

fn root() -> Caller {
    Caller::ROOT
}

fn make(dir: Fid, at: &str, kind: NewKind, mode: u16) -> Call {
    Call::Make { dir, name: name(at), kind, mode, how: CreateHow::Guarded }
}

fn rmdir(dir: Fid, at: &str) -> Call {
    Call::Remove { dir, name: name(at), what: RemoveWhat::Directory, hold: false }
}

fn rename(from_dir: Fid, from: &str, to_dir: Fid, to: &str) -> Call {
    Call::Rename {
        from_dir,
        from: name(from),
        to_dir,
        to: name(to),
        mode: RenameMode::Replace,
        hold: false,
    }
}

fn rename_as(from_dir: Fid, from: &str, to_dir: Fid, to: &str, mode: RenameMode) -> Call {
    Call::Rename { from_dir, from: name(from), to_dir, to: name(to), mode, hold: false }
}

fn set(fid: Fid, change: StatusChange) -> Call {
    Call::SetStatus { fid, change }
}

fn chmod(fid: Fid, mode: u16) -> Call {
    set(fid, StatusChange { mode: Some(mode), ..StatusChange::default() })
}

fn chown(fid: Fid, uid: Option<u32>, gid: Option<u32>) -> Call {
    set(fid, StatusChange { uid, gid, ..StatusChange::default() })
}

fn truncate(fid: Fid, size: u64) -> Call {
    set(fid, StatusChange { size: Some(size), ..StatusChange::default() })
}

fn touch(fid: Fid, time: SetTime) -> Call {
    set(fid, StatusChange { accessed: Some(time), modified: Some(time), ..StatusChange::default() })
}

const PAST: SetTime = SetTime::To(Timestamp { secs: -7, nanos: 3 });

#[test]
fn entries() {
    check(vec![
        ("create in an open directory", ten(), |p| make(p.open, "new", NewKind::File, 0o644), Done),
        (
            "create where one may not write",
            ten(),
            |p| make(p.fixed, "new", NewKind::File, 0o644),
            Refused(Fault::AccessDenied),
        ),
        (
            "exists comes before may not write",
            ten(),
            |p| make(p.fixed, "there", NewKind::File, 0),
            Refused(Fault::Exists),
        ),
        (
            "lookup where one may not search",
            ten(),
            |p| Call::Lookup { dir: p.closed, name: name("hidden") },
            Refused(Fault::AccessDenied),
        ),
        (
            "create in a file",
            ten(),
            |p| make(p.mine, "new", NewKind::File, 0),
            Refused(Fault::NotDirectory),
        ),
        ("unlink another's file in an open directory", ten(), |p| remove(p.open, "theirs"), Done),
        (
            "unlink another's file in a sticky directory",
            ten(),
            |p| remove(p.sticky, "theirs"),
            Refused(Fault::NotPermitted),
        ),
        ("unlink one's own file in a sticky directory", ten(), |p| remove(p.sticky, "mine"), Done),
        ("superuser in a sticky directory", root(), |p| remove(p.sticky, "theirs"), Done),
        (
            "unlink where one may not write",
            ten(),
            |p| remove(p.fixed, "there"),
            Refused(Fault::AccessDenied),
        ),
        ("unlink nothing", ten(), |p| remove(p.open, "nothing"), Refused(Fault::NotFound)),
        ("unlink a directory", ten(), |p| remove(p.open, "my_dir"), Refused(Fault::IsDirectory)),
        ("rmdir a file", ten(), |p| rmdir(p.open, "mine"), Refused(Fault::NotDirectory)),
        ("rmdir with entries", ten(), |p| rmdir(p.open, "my_dir"), Refused(Fault::NotEmpty)),
        ("rmdir another's empty directory", ten(), |p| rmdir(p.open, "their_dir"), Done),
        (
            "list where one may not read",
            ten(),
            |p| Call::ReadDir {
                dir: p.closed,
                cookie: Cookie::START,
                bytes_max: 1000,
                plus: false,
            },
            Refused(Fault::AccessDenied),
        ),
        (
            "link a file",
            ten(),
            |p| Call::Link { fid: p.theirs, dir: p.open, name: name("second") },
            Done,
        ),
        (
            "link a directory",
            root(),
            |p| Call::Link { fid: p.my_dir, dir: p.open, name: name("second") },
            Refused(Fault::NotPermitted),
        ),
        (
            "link over something",
            ten(),
            |p| Call::Link { fid: p.mine, dir: p.open, name: name("theirs") },
            Refused(Fault::Exists),
        ),
        (
            "link where one may not write",
            ten(),
            |p| Call::Link { fid: p.mine, dir: p.fixed, name: name("new") },
            Refused(Fault::AccessDenied),
        ),
        (
            "device by a user",
            ten(),
            |p| make(p.open, "null", NewKind::CharDevice(1 << 32 | 3), 0o666),
            Refused(Fault::NotPermitted),
        ),
        (
            "device by the superuser",
            root(),
            |p| make(p.open, "null", NewKind::CharDevice(1 << 32 | 3), 0o666),
            Done,
        ),
        ("pipe by a user", ten(), |p| make(p.open, "pipe", NewKind::Fifo, 0o666), Done),
        (
            "empty link",
            ten(),
            |p| make(p.open, "new", NewKind::Symlink(Bytes::new()), 0),
            Refused(Fault::Invalid),
        ),
        (
            "link that is too long",
            ten(),
            |p| make(p.open, "new", NewKind::Symlink(vec![b'x'; 4096].into()), 0),
            Refused(Fault::NameTooLong),
        ),
        ("readlink of a file", ten(), |p| Call::ReadLink { fid: p.mine }, Refused(Fault::Invalid)),
    ]);
}

#[test]
fn renames() {
    check(vec![
        ("within a directory", ten(), |p| rename(p.open, "mine", p.open, "new"), Done),
        ("over a file", ten(), |p| rename(p.open, "mine", p.open, "theirs"), Done),
        ("onto itself", ten(), |p| rename(p.open, "mine", p.open, "mine"), Done),
        ("nothing", ten(), |p| rename(p.open, "nothing", p.open, "new"), Refused(Fault::NotFound)),
        (
            "a file over a directory",
            ten(),
            |p| rename(p.open, "mine", p.open, "their_dir"),
            Refused(Fault::IsDirectory),
        ),
        (
            "a directory over a file",
            ten(),
            |p| rename(p.open, "my_dir", p.open, "mine"),
            Refused(Fault::NotDirectory),
        ),
        (
            "a directory over an empty one",
            ten(),
            |p| rename(p.open, "my_dir", p.open, "their_dir"),
            Done,
        ),
        (
            "a directory over one with entries",
            user(11, 300, &[]),
            |p| rename(p.open, "their_dir", p.open, "my_dir"),
            Refused(Fault::NotEmpty),
        ),
        (
            "a directory into itself",
            ten(),
            |p| rename(p.open, "my_dir", p.my_dir, "deeper"),
            Refused(Fault::Invalid),
        ),
        (
            "a directory over its parent",
            root(),
            |p| rename(p.my_dir, "inside", p.open, "my_dir"),
            Refused(Fault::NotEmpty),
        ),
        (
            "another's directory to another parent",
            ten(),
            |p| rename(p.open, "their_dir", p.my_dir, "new"),
            Refused(Fault::AccessDenied),
        ),
        (
            "another's directory within its parent",
            ten(),
            |p| rename(p.open, "their_dir", p.open, "new"),
            Done,
        ),
        (
            "another's file to another parent",
            ten(),
            |p| rename(p.open, "theirs", p.my_dir, "new"),
            Done,
        ),
        (
            "out of a sticky directory",
            ten(),
            |p| rename(p.sticky, "theirs", p.open, "new"),
            Refused(Fault::NotPermitted),
        ),
        (
            "over another's in a sticky directory",
            ten(),
            |p| rename(p.open, "mine", p.sticky, "theirs"),
            Refused(Fault::NotPermitted),
        ),
        (
            "where one may not write",
            ten(),
            |p| rename(p.open, "mine", p.fixed, "new"),
            Refused(Fault::AccessDenied),
        ),
        (
            "no replace, and it is there",
            ten(),
            |p| rename_as(p.open, "mine", p.open, "theirs", RenameMode::NoReplace),
            Refused(Fault::Exists),
        ),
        (
            "no replace, and it is not",
            ten(),
            |p| rename_as(p.open, "mine", p.open, "new", RenameMode::NoReplace),
            Done,
        ),
        (
            "exchange of a file and a directory",
            ten(),
            |p| rename_as(p.open, "mine", p.open, "my_dir", RenameMode::Exchange),
            Done,
        ),
        (
            "exchange with nothing",
            ten(),
            |p| rename_as(p.open, "mine", p.open, "new", RenameMode::Exchange),
            Refused(Fault::NotFound),
        ),
        (
            "exchange with an ancestor",
            root(),
            |p| rename_as(p.my_dir, "inside", p.open, "my_dir", RenameMode::Exchange),
            Refused(Fault::Invalid),
        ),
        (
            "a whiteout stays",
            ten(),
            |p| rename_as(p.open, "mine", p.open, "new", RenameMode::Whiteout),
            Done,
        ),
        (
            "a whiteout and a directory that is not empty",
            root(),
            |p| rename_as(p.open, "their_dir", p.open, "my_dir", RenameMode::Whiteout),
            Refused(Fault::NotEmpty),
        ),
        (
            "a whiteout where one may not write",
            ten(),
            |p| rename_as(p.open, "mine", p.fixed, "new", RenameMode::Whiteout),
            Refused(Fault::AccessDenied),
        ),
    ]);
}

#[test]
fn a_whiteout_takes_the_old_name() {
    let mut place = Place::new();
    let (open, my_dir) = (place.open, place.my_dir);
    let is_whiteout =
        |status: Status| (status.kind, status.device, status.mode) == (Kind::CharDevice, 0, 0);
    let at = |place: &mut Place, dir: Fid, entry: &str| {
        let call = Call::Lookup { dir, name: name(entry) };
        match place.rig.call(0, &root(), call).unwrap() {
            Answer::Entry { status, .. } => status,
            other => panic!("{other:?}"),
        }
    };
    let mine = at(&mut place, open, "mine").fid;
    place
        .rig
        .call(0, &ten(), rename_as(open, "mine", my_dir, "moved", RenameMode::Whiteout))
        .unwrap();
    assert_eq!(at(&mut place, my_dir, "moved").fid, mine);
    assert!(is_whiteout(at(&mut place, open, "mine")));
    // Over another file, and of a directory: its link to the parent goes with it.
    place
        .rig
        .call(0, &root(), rename_as(open, "my_dir", open, "theirs", RenameMode::Whiteout))
        .unwrap_err();
    let links = place.rig.status(0, open).unwrap().links;
    place
        .rig
        .call(0, &root(), rename_as(open, "their_dir", my_dir, "in", RenameMode::Whiteout))
        .unwrap();
    assert_eq!(place.rig.status(0, open).unwrap().links, links - 1);
    place
        .rig
        .call(0, &root(), rename_as(my_dir, "moved", open, "theirs", RenameMode::Whiteout))
        .unwrap();
    for (dir, entry) in [(open, "mine"), (open, "their_dir"), (my_dir, "moved")] {
        assert!(is_whiteout(at(&mut place, dir, entry)), "{entry}");
    }
}

#[test]
fn owners_and_modes() {
    check(vec![
        ("chmod by the owner", ten(), |p| chmod(p.mine, 0o600), Mode(0o600)),
        ("chmod by another", ten(), |p| chmod(p.theirs, 0o600), Refused(Fault::NotPermitted)),
        ("bits that are none are cut off", ten(), |p| chmod(p.mine, 0o170_644), Mode(0o644)),
        ("set-gid for a group that one is in", ten(), |p| chmod(p.mine, 0o2755), Mode(0o2755)),
        (
            "set-gid for a group that one is not in",
            user(11, 100, &[]),
            |p| chmod(p.theirs, 0o2755),
            Mode(0o755),
        ),
        ("set-gid by the superuser", root(), |p| chmod(p.theirs, 0o2755), Mode(0o2755)),
        ("chmod of a symbolic link", ten(), |p| chmod(p.link, 0o600), Refused(Fault::Unsupported)),
        ("give away", ten(), |p| chown(p.mine, Some(11), None), Refused(Fault::NotPermitted)),
        ("give to oneself", ten(), |p| chown(p.mine, Some(10), None), Done),
        ("to a group of one's own", ten(), |p| chown(p.mine, None, Some(200)), Gid(200)),
        (
            "to another group",
            ten(),
            |p| chown(p.mine, None, Some(999)),
            Refused(Fault::NotPermitted),
        ),
        (
            "another's file to one's group",
            ten(),
            |p| chown(p.theirs, None, Some(100)),
            Refused(Fault::NotPermitted),
        ),
        ("the superuser gives away", root(), |p| chown(p.mine, Some(11), Some(999)), Gid(999)),
        (
            "a new owner gets no privileges",
            root(),
            |p| chown(p.program, Some(11), None),
            Mode(0o775),
        ),
        ("nor does a new group", ten(), |p| chown(p.program, None, Some(200)), Mode(0o775)),
        (
            "a directory keeps its bits",
            root(),
            |p| chown(p.group_dir, Some(10), None),
            Mode(0o2777),
        ),
        ("nothing asked, nothing done", twelve(), |p| chown(p.program, None, None), Mode(0o6775)),
        (
            "a user's write takes privileges",
            twelve(),
            |p| write(p.program, Some(0), b"x"),
            Mode(0o775),
        ),
        ("the superuser's does not", root(), |p| write(p.program, Some(0), b"x"), Mode(0o6775)),
        ("a user's truncate takes privileges", ten(), |p| truncate(p.program, 0), Mode(0o775)),
        (
            "truncate where one may not write",
            twelve(),
            |p| truncate(p.mine, 0),
            Refused(Fault::AccessDenied),
        ),
        ("truncate of a directory", root(), |p| truncate(p.open, 0), Refused(Fault::IsDirectory)),
        ("truncate of a link", root(), |p| truncate(p.link, 0), Refused(Fault::Invalid)),
        ("truncate past all offsets", ten(), |p| truncate(p.mine, 1 << 63), Refused(Fault::TooBig)),
        ("set a time by the owner", ten(), |p| touch(p.mine, PAST), Done),
        (
            "set a time by one who may write",
            ten(),
            |p| touch(p.shared, PAST),
            Refused(Fault::NotPermitted),
        ),
        ("set now by one who may write", ten(), |p| touch(p.shared, SetTime::Now), Done),
        (
            "set now by one who may not write",
            ten(),
            |p| touch(p.theirs, SetTime::Now),
            Refused(Fault::AccessDenied),
        ),
        (
            "write past all offsets",
            ten(),
            |p| write(p.mine, Some((1 << 63) - 1), b"x"),
            Refused(Fault::TooBig),
        ),
        (
            "write to a directory",
            root(),
            |p| write(p.open, Some(0), b"x"),
            Refused(Fault::IsDirectory),
        ),
    ]);
}

#[test]
fn groups_of_new_files() {
    check(vec![
        ("usually the maker's", ten(), |p| make(p.open, "new", NewKind::File, 0o644), Gid(100)),
        (
            "in a set-gid directory the directory's",
            ten(),
            |p| make(p.group_dir, "new", NewKind::File, 0o644),
            Gid(200),
        ),
        (
            "a new directory passes the bit on",
            ten(),
            |p| make(p.group_dir, "new", NewKind::Directory, 0o755),
            Mode(0o2755),
        ),
        (
            "a member may make set-gid programs",
            ten(),
            |p| make(p.group_dir, "new", NewKind::File, 0o2755),
            Mode(0o2755),
        ),
        (
            "others may not",
            twelve(),
            |p| make(p.group_dir, "new", NewKind::File, 0o2755),
            Mode(0o755),
        ),
        (
            "a symbolic link is open",
            ten(),
            |p| make(p.open, "new", NewKind::Symlink(Bytes::from_static(b"y")), 0),
            Mode(0o777),
        ),
    ]);
}

fn point(target: &'static str) -> NewKind {
    NewKind::MountPoint(Bytes::from_static(target.as_bytes()))
}

fn remove_as(dir: Fid, at: &str, what: RemoveWhat) -> Call {
    Call::Remove { dir, name: name(at), what, hold: false }
}

#[test]
fn mount_points_go_and_move_only_when_they_are_meant() {
    let mut place = Place::new();
    let (open, closed) = (place.open, place.fixed);
    let mut ask = |call: Call| place.rig.call(0, &ten(), call);
    assert_eq!(ask(make(closed, "v", point("#a"), 0)), Err(Fault::AccessDenied));
    assert_eq!(ask(make(open, "v", point("a"), 0)), Err(Fault::Invalid));
    let Ok(Answer::Made { status, .. }) = ask(make(open, "v", point("%cell:a"), 0)) else {
        panic!("not made")
    };
    assert_eq!((status.kind, status.mode, status.size), (Kind::MountPoint, 0o777, 7));
    assert_eq!(
        ask(Call::ReadLink { fid: status.fid }),
        Ok(Answer::Target(Bytes::from_static(b"%cell:a")))
    );
    assert_eq!(
        ask(Call::Link { fid: status.fid, dir: open, name: name("w") }),
        Err(Fault::NotPermitted)
    );
    assert_eq!(ask(chmod(status.fid, 0o700)), Err(Fault::Unsupported));
    for what in [RemoveWhat::File, RemoveWhat::Directory] {
        assert_eq!(ask(remove_as(open, "v", what)), Err(Fault::Busy));
    }
    for mode in [RenameMode::Replace, RenameMode::NoReplace] {
        assert_eq!(ask(rename_as(open, "v", open, "w", mode)), Err(Fault::Busy));
    }
    assert_eq!(ask(rename(open, "mine", open, "v")), Err(Fault::Busy));
    assert_eq!(ask(rename_as(open, "mine", open, "v", RenameMode::Exchange)), Err(Fault::Busy));
    assert_eq!(
        ask(rename_as(open, "mine", open, "w", RenameMode::MountPoint)),
        Err(Fault::Invalid)
    );
    assert_eq!(ask(rename_as(open, "v", open, "mine", RenameMode::MountPoint)), Err(Fault::Exists));
    assert!(ask(rename_as(open, "v", open, "w", RenameMode::MountPoint)).is_ok());
    assert_eq!(ask(remove_as(open, "mine", RemoveWhat::MountPoint)), Err(Fault::Invalid));
    assert!(ask(remove_as(open, "w", RemoveWhat::MountPoint)).is_ok());
    assert_eq!(ask(Call::GetStatus { fid: status.fid }), Err(Fault::Stale));
}

fn unknown(uid: u32, gid: u32) -> Caller {
    Caller { uid, gid, groups: None, who: types::RequestIdentity::NAMED }
}

#[test]
fn groups_are_asked_for_only_where_they_decide() {
    check(vec![
        ("owner", unknown(10, 1), |p| chmod(p.mine, 0o600), Done),
        ("set-gid bit", unknown(10, 1), |p| chmod(p.mine, 0o2755), Refused(Fault::GroupsNeeded)),
        ("set-gid bit, primary group", unknown(10, 100), |p| chmod(p.mine, 0o2755), Mode(0o2755)),
        (
            "new group",
            unknown(10, 100),
            |p| chown(p.mine, None, Some(200)),
            Refused(Fault::GroupsNeeded),
        ),
        (
            "set-gid program of the directory's group",
            unknown(12, 1),
            |p| make(p.group_dir, "n", NewKind::File, 0o2755),
            Refused(Fault::GroupsNeeded),
        ),
        (
            "plain file there",
            unknown(12, 1),
            |p| make(p.group_dir, "n", NewKind::File, 0o755),
            Gid(200),
        ),
        (
            "directory open to all",
            unknown(12, 1),
            |p| make(p.open, "n", NewKind::File, 0o755),
            Done,
        ),
        (
            "directory closed to all",
            unknown(12, 1),
            |p| make(p.closed, "n", NewKind::File, 0o755),
            Refused(Fault::AccessDenied),
        ),
        ("superuser", Caller::ROOT, |p| chmod(p.theirs, 0o2755), Mode(0o2755)),
    ]);
}

fn attribute(fid: Fid, at: &'static [u8]) -> Call {
    let value = Bytes::from_static(b"v");
    Call::XattrSet { fid, name: Bytes::from_static(at), value, mode: XattrMode::Either }
}

#[test]
fn attributes() {
    check(vec![
        ("user. by the owner", ten(), |p| attribute(p.mine, b"user.a"), Done),
        (
            "user. by one who may not write",
            ten(),
            |p| attribute(p.theirs, b"user.a"),
            Refused(Fault::AccessDenied),
        ),
        ("user. by one who may write", ten(), |p| attribute(p.shared, b"user.a"), Done),
        (
            "user. on a symbolic link",
            ten(),
            |p| attribute(p.link, b"user.a"),
            Refused(Fault::NotPermitted),
        ),
        (
            "user. on another's sticky directory",
            ten(),
            |p| attribute(p.sticky, b"user.a"),
            Refused(Fault::NotPermitted),
        ),
        (
            "trusted. by a user",
            ten(),
            |p| attribute(p.mine, b"trusted.a"),
            Refused(Fault::NotPermitted),
        ),
        ("trusted. by the superuser", root(), |p| attribute(p.link, b"trusted.a"), Done),
        (
            "security. by a user",
            ten(),
            |p| attribute(p.mine, b"security.a"),
            Refused(Fault::NotPermitted),
        ),
        (
            "system.",
            root(),
            |p| attribute(p.mine, b"system.posix_acl_access"),
            Refused(Fault::Unsupported),
        ),
        ("no name space", root(), |p| attribute(p.mine, b"plain"), Refused(Fault::Unsupported)),
        (
            "nothing behind the dot",
            root(),
            |p| attribute(p.mine, b"user."),
            Refused(Fault::Invalid),
        ),
        (
            "none there",
            ten(),
            |p| Call::XattrGet { fid: p.mine, name: Bytes::from_static(b"user.a") },
            Refused(Fault::NoXattr),
        ),
        (
            "trusted. is not seen by users",
            ten(),
            |p| Call::XattrGet { fid: p.mine, name: Bytes::from_static(b"trusted.a") },
            Refused(Fault::NoXattr),
        ),
        (
            "a value that is too large",
            ten(),
            |p| Call::XattrSet {
                fid: p.mine,
                name: Bytes::from_static(b"user.a"),
                value: vec![0; 65537].into(),
                mode: XattrMode::Either,
            },
            Refused(Fault::XattrTooBig),
        ),
    ]);
}

#[test]
fn attribute_names_fit_into_one_listing() {
    let mut place = Place::new();
    let set = |number: usize| {
        let at = format!("user.{number:0>250}");
        Call::XattrSet {
            fid: place.mine,
            name: at.into(),
            value: Bytes::new(),
            mode: XattrMode::Either,
        }
    };
    let calls: Vec<Call> = (0..257).map(set).collect();
    let results: Vec<_> =
        calls.into_iter().map(|call| place.rig.call(0, &ten(), call).map(drop)).collect();
    assert!(results[..256].iter().all(Result::is_ok));
    assert_eq!(results[256], Err(Fault::XattrTooBig));
    let list = place.rig.call(0, &ten(), Call::XattrList { fid: place.mine }).unwrap();
    assert!(dafs::encode_answer(&list).is_ok());
}

/// The times that a call changes: of the file and of the directories, as letters.
fn times_moved(before: &Status, after: &Status) -> String {
    let mut moved = String::new();
    let pairs = [
        ('a', before.accessed, after.accessed),
        ('m', before.modified, after.modified),
        ('c', before.changed, after.changed),
    ];
    moved.extend(
        pairs.iter().filter(|(_, before, after)| before != after).map(|(letter, ..)| letter),
    );
    moved
}

#[test]
fn each_call_moves_its_times() {
    type Row = (&'static str, fn(&Place) -> Call, fn(&Place) -> Fid, &'static str, &'static str);
    let rows: Vec<Row> = vec![
        ("write", |p| write(p.mine, Some(0), b"x"), |p| p.mine, "mc", ""),
        ("write of nothing", |p| write(p.mine, Some(0), b""), |p| p.mine, "", ""),
        ("truncate", |p| truncate(p.mine, 10), |p| p.mine, "mc", ""),
        ("truncate to the same size", |p| truncate(p.mine, 0), |p| p.mine, "mc", ""),
        ("read", |p| Call::Read { fid: p.mine, offset: 0, length: 10 }, |p| p.mine, "", ""),
        ("chmod", |p| chmod(p.mine, 0o600), |p| p.mine, "c", ""),
        ("chown of nothing", |p| chown(p.mine, None, None), |p| p.mine, "", ""),
        ("utimes", |p| touch(p.mine, PAST), |p| p.mine, "amc", ""),
        ("attribute", |p| attribute(p.mine, b"user.a"), |p| p.mine, "c", ""),
        (
            "link",
            |p| Call::Link { fid: p.mine, dir: p.open, name: name("n") },
            |p| p.mine,
            "c",
            "mc",
        ),
        ("rename", |p| rename(p.open, "mine", p.open, "n"), |p| p.mine, "c", "mc"),
        ("create", |p| make(p.open, "n", NewKind::File, 0), |p| p.mine, "", "mc"),
        ("remove of another", |p| remove(p.open, "theirs"), |p| p.mine, "", "mc"),
        (
            "list",
            |p| Call::ReadDir { dir: p.open, cookie: Cookie::START, bytes_max: 9999, plus: true },
            |p| p.mine,
            "",
            "",
        ),
        ("refused create", |p| make(p.open, "theirs", NewKind::File, 0), |p| p.mine, "", ""),
    ];
    for (title, call, file, of_file, of_dir) in rows {
        let mut place = Place::new();
        let (fid, dir) = (file(&place), place.open);
        let before = (place.rig.status(0, fid).unwrap(), place.rig.status(0, dir).unwrap());
        let call = call(&place);
        let _ = place.rig.call(0, &ten(), call);
        let after = (place.rig.status(0, fid).unwrap(), place.rig.status(0, dir).unwrap());
        assert_eq!(times_moved(&before.0, &after.0), of_file, "{title}: the file");
        assert_eq!(times_moved(&before.1, &after.1), of_dir, "{title}: the directory");
        let data_moved =
            |before: &Status, after: &Status| before.data_version != after.data_version;
        let status_moved =
            |before: &Status, after: &Status| before.status_version != after.status_version;
        assert_eq!(
            status_moved(&before.0, &after.0),
            of_file.contains('c'),
            "{title}: version of the file"
        );
        assert_eq!(
            data_moved(&before.1, &after.1),
            of_dir.contains('m'),
            "{title}: data version of the directory"
        );
    }
}

#[test]
fn links_of_directories_count_their_subdirectories() {
    let mut place = Place::new();
    let links = |place: &mut Place, fid: Fid| place.rig.status(0, fid).unwrap().links;
    let open = place.open;
    assert_eq!(links(&mut place, open), 4);
    let my_dir = place.my_dir;
    place.rig.call(0, &root(), rename(place.open, "their_dir", my_dir, "in")).unwrap();
    assert_eq!((links(&mut place, open), links(&mut place, my_dir)), (3, 3));
    place
        .rig
        .call(0, &root(), rename_as(my_dir, "in", place.open, "mine", RenameMode::Exchange))
        .unwrap();
    assert_eq!((links(&mut place, open), links(&mut place, my_dir)), (4, 2));
    place.rig.call(0, &root(), rename(place.open, "my_dir", place.open, "mine")).unwrap();
    assert_eq!(links(&mut place, open), 3, "a replaced directory's link goes");
    assert_eq!(place.rig.status(0, place.their_dir), Err(Fault::Stale));
    assert_eq!(links(&mut place, my_dir), 2);
}

#[test]
fn a_create_may_be_asked_for_again() {
    let mut place = Place::new();
    let call = |how| Call::Make {
        dir: place.open,
        name: name("n"),
        kind: NewKind::File,
        mode: 0o600,
        how,
    };
    let calls = [
        (call(CreateHow::Exclusive(77)), Some(false)),
        (call(CreateHow::Exclusive(77)), Some(true)),
        (call(CreateHow::Exclusive(78)), None),
        (call(CreateHow::Unchecked), Some(true)),
        (call(CreateHow::Guarded), None),
    ];
    for (call, wanted) in calls {
        let existed = match place.rig.call(0, &ten(), call.clone()) {
            Ok(Answer::Made { existed, .. }) => Some(existed),
            Err(Fault::Exists) => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(existed, wanted, "{call:?}");
    }
}

#[test]
fn names_of_any_bytes_and_no_others() {
    let mut place = Place::new();
    for bytes in [&[b'n'; 255][..], b"\xff\xfe\x01", b" ", b"...", b"new\nline"] {
        let at: Name = name(bytes);
        let call = Call::Make {
            dir: place.open,
            name: at.clone(),
            kind: NewKind::File,
            mode: 0,
            how: CreateHow::Guarded,
        };
        place.rig.call(0, &ten(), call).unwrap();
        assert!(place.rig.call(0, &ten(), Call::Lookup { dir: place.open, name: at }).is_ok());
    }
}

/// A client sends writes without the writer's groups.
#[test]
fn a_write_without_groups_drops_a_set_group_id_bit() {
    let mut rig = Rig::new(Ground::memory(), 1);
    let root = rig.root();
    let file = rig.file(root, "file");
    let of = |uid, gid, groups: Option<Box<[u32]>>| Caller {
        uid,
        gid,
        groups,
        who: types::RequestIdentity::NAMED,
    };
    let rows = [
        ("in the group", of(10, 77, None), 0o2666),
        ("by another group", of(10, 1, Some([77].into())), 0o2666),
        ("unknown", of(10, 1, None), 0o666),
        ("in another group", of(10, 1, Some([78].into())), 0o666),
        ("the superuser", Caller::ROOT, 0o2666),
    ];
    for (what, caller, wanted) in rows {
        let own = StatusChange { mode: Some(0o2666), gid: Some(77), ..StatusChange::default() };
        rig.call(0, &Caller::ROOT, Call::SetStatus { fid: file, change: own }).unwrap();
        let (offset, length, mode) = (0, 10, types::AllocateMode::Extend);
        for call in [write(file, Some(0), b"x"), Call::Allocate { fid: file, offset, length, mode }]
        {
            let Ok(Answer::Written { status, .. }) = rig.call(0, &caller, call) else {
                panic!("{what}: refused")
            };
            assert_eq!(status.mode, wanted, "{what}");
        }
    }
}
