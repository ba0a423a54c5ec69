//! Users of the server's machine at the socket for all of them: each is the user whom the kernel
//! reports, takes no more than its share, and reaches no other user's session (LU-1 to LU-4).
//! A thread takes on another user's number, so the connections that it makes are that user's.

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use client::{CallError, ClientIdentity, Endpoint, Remote, Session, SessionConfig};
use dafs::HelloRefusal;
use dafs::message::{Attach, Bind, Message};
use fabric::lane::LANE_BYTES;
use mem::shared::SharedMemory;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Gid, Uid};
use server::ServerConfig;
use types::{
    Answer, Call, Caller, ClientId, CreateHow, Fault, Fid, NewKind, RequestIdentity, SessionId,
    StatusChange,
};

use crate::common::*;
use crate::lane_attacks::{Attacker, FEATURES};

const JOE: u32 = 4711;
const ANN: u32 = 4712;
/// The kernel reports it of a user that it cannot name.
const UNMAPPED: u32 = 65534;

fn can_run(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        let why = "only root can connect as another user";
        let _ = writeln!(std::io::stderr(), "\nSKIP unit: {test}: {why}");
    }
    is_root
}

/// A cell with a socket for users, and a directory in which all may write.
struct Users {
    cell: Cell,
    own: Session,
    open: Fid,
}

impl Users {
    fn with(change: impl FnOnce(&mut ServerConfig)) -> Users {
        let cell = Cell::with(|config| {
            let beside = config.unix_socket.as_ref().unwrap().with_file_name("users");
            config.users_socket = Some(beside.join("socket"));
            change(config);
        });
        std::fs::set_permissions(cell.path(""), std::fs::Permissions::from_mode(0o711)).unwrap();
        let own = connect(cell.unix());
        let open = root(&own);
        let change = StatusChange { mode: Some(0o777), ..StatusChange::default() };
        ask(&own, Call::SetStatus { fid: open, change });
        Users { cell, own, open }
    }

    fn socket(&self) -> PathBuf {
        self.cell.config.users_socket.clone().unwrap()
    }

    /// Does something in a thread of this user.
    fn as_user<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|threads| {
            let of_user = || {
                let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
                rustix::thread::set_thread_groups(&[]).unwrap();
                rustix::thread::set_thread_res_gid(group, group, group).unwrap();
                rustix::thread::set_thread_res_uid(user, user, user).unwrap();
                act()
            };
            threads.spawn(of_user).join().unwrap()
        })
    }

    /// A session of this user.
    fn session(&self, uid: u32) -> Session {
        Self::as_user(uid, || connect(Endpoint::Unix(self.socket())))
    }

    /// A connection of this user, without the client's code.
    fn greet(&self, uid: u32) -> Result<Attacker, HelloRefusal> {
        Self::as_user(uid, || Attacker::greet(&self.socket(), FEATURES, self.open))
    }

    fn attacker(&self, uid: u32) -> Attacker {
        let mut attacker = self.greet(uid).unwrap();
        attacker.attach_as(ClientId(rand::random()), 1, None).unwrap();
        attacker
    }

    /// A user who makes a file of its own, and reads it.
    fn is_served(&self, uid: u32, file: &str) {
        let session = self.session(uid);
        let made = make_as(&session, uid, self.open, file, 0o600).unwrap();
        assert_eq!(made.1, uid);
        assert_eq!(read_as(&session, uid, made.0), Ok(()));
    }

    fn server_report(&self) -> serde_json::Value {
        let Answer::Report(report) = ask(&self.own, Call::ServerReport) else { panic!() };
        serde_json::from_str(&report).unwrap()
    }
}

fn named(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: None, who: RequestIdentity::NAMED }
}

/// The file, and its owner.
fn make_as(
    session: &Session,
    named_uid: u32,
    dir: Fid,
    file: &str,
    mode: u16,
) -> Result<(Fid, u32), CallError> {
    let (kind, how) = (NewKind::File, CreateHow::Guarded);
    let call = Call::Make { dir, name: name(file), kind, mode, how };
    let made = session.call(&named(named_uid), call, None)?;
    let status = status(&made.answer);
    Ok((status.fid, status.uid))
}

fn read_as(session: &Session, named_uid: u32, fid: Fid) -> Result<(), Option<Fault>> {
    let call = Call::Read { fid, offset: 0, length: 100 };
    session.call(&named(named_uid), call, None).map(drop).map_err(|error| error.fault())
}

/// How the server knows the caller of this session who gives this name.
fn known_as(session: &Session, named_uid: u32) -> (String, u64) {
    let report = session.call(&named(named_uid), Call::ServerReport, None).unwrap().answer;
    let Answer::Report(report) = report else { panic!() };
    let you = serde_json::from_str::<serde_json::Value>(&report).unwrap()["you"].take();
    (you["level"].as_str().unwrap().to_owned(), you["uid"].as_u64().unwrap())
}

#[test]
fn lu1_a_user_is_whom_the_kernel_reports() {
    if !can_run("lu1_a_user_is_whom_the_kernel_reports") {
        return;
    }
    let users = Users::with(|_| {});
    let socket = std::fs::metadata(users.socket()).unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o666);
    let (joe, ann) = (users.session(JOE), users.session(ANN));
    for name in [JOE, ANN, 0] {
        assert_eq!(known_as(&joe, name), ("attested".to_owned(), JOE.into()), "names {name}");
    }
    let (secret, owner) = make_as(&joe, ANN, users.open, "secret", 0o600).unwrap();
    assert_eq!(owner, JOE);
    assert_eq!(read_as(&joe, JOE, secret), Ok(()));
    for name in [ANN, JOE, 0] {
        assert_eq!(read_as(&ann, name, secret), Err(Some(Fault::AccessDenied)));
    }
    // So is root, which is the superuser at the server's own socket alone.
    let root = users.session(0);
    assert_eq!(known_as(&root, 0), ("attested".to_owned(), 0));
    for name in [0, JOE] {
        assert_eq!(read_as(&root, name, secret), Err(Some(Fault::AccessDenied)));
    }
    let change = StatusChange { uid: Some(ANN), ..StatusChange::default() };
    let given = root.call(&Caller::ROOT, Call::SetStatus { fid: secret, change }, None);
    assert_eq!(given.unwrap_err().fault(), Some(Fault::NotPermitted));
    assert_eq!(read_as(&users.own, 0, secret), Ok(()), "at its own socket the server knows root");
    let nobody = users.session(UNMAPPED);
    assert_eq!(known_as(&nobody, JOE).0, "nobody", "a user whom the kernel cannot name");
}

#[test]
fn lu1_no_descriptor_of_a_body_leaves_the_socket_for_users() {
    if !can_run("lu1_no_descriptor_of_a_body_leaves_the_socket_for_users") {
        return;
    }
    let users = Users::with(|_| {});
    let joe = users.session(JOE);
    let (fid, _) = make_as(&joe, JOE, users.open, "file", 0o644).unwrap();
    let data = bytes::Bytes::from(vec![7; 100_000]);
    let (offset, stable, kill_privileges) = (Some(0), false, false);
    let written = Call::Write { fid, offset, data, stable, kill_privileges };
    joe.call(&named(JOE), written, None).unwrap();
    let body = |session: &Session| {
        let opened = session.call(&named(JOE), Call::OpenBody { fid }, None);
        opened.map(|reply| reply.answer).map_err(|error| error.fault())
    };
    assert_eq!(body(&joe).unwrap_err(), Some(Fault::Unsupported));
    assert!(body(&users.own).is_ok(), "the server's own user has another way");
}

#[test]
fn lu2_sessions_of_one_user_leave_those_of_others() {
    if !can_run("lu2_sessions_of_one_user_leave_those_of_others") {
        return;
    }
    let users = Users::with(|config| config.limits.sessions_per_host = 3);
    let _kept: Vec<_> = (0..3).map(|_| users.attacker(JOE)).collect();
    let mut fourth = users.greet(JOE).unwrap();
    let refused = fourth.attach_as(ClientId(1), 1, None).unwrap_err();
    let Some(Message::Goodbye { fault, reason }) = refused.as_deref() else {
        panic!("{refused:?}")
    };
    assert_eq!(*fault, Some(Fault::Busy), "so the client tries again");
    assert!(reason.contains("try later"), "{reason}");
    users.is_served(ANN, "ann");
    assert_eq!(users.server_report()["server"]["met"]["sessions-per-host"], 1);
}

#[test]
fn lu2_a_burst_of_attaches_is_served_or_told_to_wait() {
    if !can_run("lu2_a_burst_of_attaches_is_served_or_told_to_wait") {
        return;
    }
    let users = Users::with(|_| {});
    for _ in 0..3 {
        let mut burst: Vec<_> = (0..100).map(|_| users.greet(JOE).unwrap()).collect();
        for attacker in &mut burst {
            let (client, display) = (ClientId(rand::random()), "hostile".into());
            let attach = Attach { client, incarnation: 1, resume: None, display, pid: 1 };
            attacker.send(&Message::Attach(attach), None);
        }
        users.is_served(ANN, &format!("ann{}", rand::random::<u64>()));
        let attached = burst.iter_mut().filter_map(|attacker| match attacker.message() {
            Some(Message::Attached(_)) => Some(()),
            Some(Message::Goodbye { fault: Some(Fault::Busy), .. }) => None,
            other => panic!("{other:?}"),
        });
        assert!(attached.count() >= 16, "so many may wait at a time");
    }
}

#[test]
fn lu2_silent_connections_of_one_user_leave_room_for_others() {
    if !can_run("lu2_silent_connections_of_one_user_leave_room_for_others") {
        return;
    }
    let users = Users::with(|config| config.limits.connections_per_host = 8);
    let connect = || UnixStream::connect(users.socket()).unwrap();
    let silent: Vec<UnixStream> = Users::as_user(JOE, || (0..400).map(|_| connect()).collect());
    let of_one = || users.server_report()["server"]["used"]["connections-of-one-host"].clone();
    wait_for("the connections", || of_one() == 8 + 64);
    users.is_served(ANN, "ann");
    assert_eq!(of_one(), 8 + 64, "all others are closed");
    drop(silent);
    wait_for("the end of the connections", || of_one().as_u64().unwrap() < 8);
    let mut few: Vec<Attacker> = (0..8).map(|_| users.greet(JOE).unwrap()).collect();
    assert_eq!(users.greet(JOE).err(), Some(HelloRefusal::Crowded), "so the client tries again");
    few.clear();
    wait_for("room for the user", || users.greet(JOE).is_ok());
}

/// Gives the server a lane.
fn offer_lane(attacker: &mut Attacker) {
    let memory = SharedMemory::create_sealed("lane", LANE_BYTES).unwrap();
    attacker.send(&Message::Lane, Some(memory.file().try_clone().unwrap()));
}

/// Gives the server a region of so many bytes; is it mapped?
fn add_region(attacker: &mut Attacker, handle: u32, bytes: usize) -> bool {
    add_region_named("region", attacker, handle, bytes)
}

fn add_region_named(called: &str, attacker: &mut Attacker, handle: u32, bytes: usize) -> bool {
    let memory = SharedMemory::create_sealed(called, bytes).unwrap();
    let file = Some(memory.file().try_clone().unwrap());
    drop(memory);
    attacker.send(&Message::Region { handle, begins: true }, file);
    let answer = attacker.message();
    let Some(Message::RegionOpen { handle: of, is_open }) = answer else { panic!("{answer:?}") };
    assert_eq!(of, handle);
    is_open
}

#[test]
fn lu3_memory_that_one_user_shares_is_bounded() {
    if !can_run("lu3_memory_that_one_user_shares_is_bounded") {
        return;
    }
    let users = Users::with(|config| {
        config.limits.regions_per_host = 6;
        config.limits.region_mib_per_host = 4;
    });
    let used = || users.server_report()["server"]["used"].take();
    let mut joe = users.attacker(JOE);
    offer_lane(&mut joe);
    assert_eq!(joe.message(), Some(Message::LaneOpen));
    assert!(!add_region(&mut joe, 1, 4 << 20), "with the lane it is more than 4 MiB");
    assert!(add_region(&mut joe, 2, 1 << 20));
    let mut second = users.attacker(JOE);
    offer_lane(&mut second);
    assert_eq!(second.message(), Some(Message::LaneOpen));
    let opened = (10..20).filter(|handle| add_region(&mut second, *handle, 4096)).count();
    assert_eq!(opened, 3, "two lanes and four regions are six");
    assert_eq!(used()["regions"], 6);
    // A further connection is served over its socket.
    let mut third = users.attacker(JOE);
    offer_lane(&mut third);
    assert!(!add_region(&mut third, 1, 4096), "the answer to the region, and none to the lane");
    users.is_served(JOE, "joe");
    let mut ann = users.attacker(ANN);
    offer_lane(&mut ann);
    assert_eq!(ann.message(), Some(Message::LaneOpen));
    assert!(add_region(&mut ann, 1, 1 << 20));
    // The others may have what one connection gives back, or leaves behind.
    joe.send(&Message::Region { handle: 2, begins: false }, None);
    assert_eq!(joe.message(), Some(Message::RegionOpen { handle: 2, is_open: false }));
    assert!(add_region(&mut joe, 3, 1 << 20));
    drop(second);
    wait_for("the end of the second connection", || used()["regions"] == 4);
    assert!(users.server_report()["server"]["met"]["regions"].as_u64().unwrap() >= 3);
}

/// Descriptors of this process, and so of the server in it, on memory with this name.
fn descriptors_of(memory: &str) -> usize {
    let is_it = |entry: &std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        target.to_string_lossy().contains(memory)
    };
    std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter(is_it).count()
}

#[test]
fn lu3_a_user_takes_no_descriptors_of_the_server() {
    if !can_run("lu3_a_user_takes_no_descriptors_of_the_server") {
        return;
    }
    let users = Users::with(|_| {});
    let mut joe = users.attacker(JOE);
    offer_lane(&mut joe);
    assert_eq!(joe.message(), Some(Message::LaneOpen));
    // No other test of this process has memory of that name.
    let lent = "lent-by-joe";
    assert!((1..=50).all(|handle| add_region_named(lent, &mut joe, handle, 4096)));
    assert_eq!(descriptors_of(&format!("memfd:{lent}")), 0, "mapped memory needs none");
    // Descriptors beside bytes that never become a frame.
    let waste = SharedMemory::create("waste", 4096).unwrap();
    let files = [waste.file().as_fd(); 3];
    for _ in 0..20 {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        sendmsg(&joe.stream, &[IoSlice::new(b"R")], &mut control, SendFlags::NOSIGNAL).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(descriptors_of("memfd:waste") <= 1 + 4, "{}", descriptors_of("memfd:waste"));
    users.is_served(ANN, "ann");
}

#[test]
fn lu4_another_users_session_is_out_of_reach() {
    if !can_run("lu4_another_users_session_is_out_of_reach") {
        return;
    }
    let users = Users::with(|_| {});
    // The attacker knows all secrets of the session.
    let client = ClientId(rand::random());
    let mut joe = users.greet(JOE).unwrap();
    let attached = joe.attach_as(client, 5, None).unwrap();
    let is_refused = |mut attacker: Attacker, incarnation, resume: Option<SessionId>| {
        let refused = attacker.attach_as(client, incarnation, resume).unwrap_err();
        let Some(Message::Goodbye { fault, .. }) = refused.as_deref() else {
            panic!("{refused:?}")
        };
        assert_eq!(*fault, Some(Fault::Expired), "{incarnation} {resume:?}");
    };
    for (incarnation, resume) in [(5, Some(attached.session)), (5, None), (6, None)] {
        is_refused(users.greet(ANN).unwrap(), incarnation, resume);
        let own = users.cell.config.unix_socket.as_ref().unwrap();
        is_refused(Attacker::greet(own, FEATURES, users.open).unwrap(), incarnation, resume);
    }
    let bind = Message::Bind(Bind { session: attached.session, key: attached.bind_key });
    let mut ann = users.greet(ANN).unwrap();
    ann.session = attached.session;
    ann.send(&bind, None);
    let refused = ann.message();
    assert!(matches!(refused, Some(Message::Goodbye { fault: Some(Fault::Expired), .. })));
    // Frames of a connection of another user's own, about that session.
    let mut ann = users.attacker(ANN);
    ann.session = attached.session;
    ann.send(&Message::Detach, None);
    assert!(ann.is_ended());
    // The session is there, and still its user's.
    joe.send(&Message::Probe(7), None);
    assert!(joe.message().is_some(), "its connection was not taken over");
    let mut back = users.greet(JOE).unwrap();
    back.session = attached.session;
    back.send(&bind, None);
    assert_eq!(back.message(), Some(Message::Bound));
    let mut again = users.greet(JOE).unwrap();
    let resumed = again.attach_as(client, 5, Some(attached.session)).unwrap();
    assert!(resumed.resumed && resumed.session == attached.session);
}

const SOCKET_VARIABLE: &str = "LOCAL_USERS_SOCKET";

/// In the process that is killed: has a session as a user.
#[test]
fn lu2_child_of_a_user() {
    let Some(socket) = std::env::var_os(SOCKET_VARIABLE) else { return };
    let connected = || {
        let mut config = SessionConfig::new(
            Endpoint::Unix(Path::new(&socket).to_owned()),
            ClientIdentity::fleeting(),
        );
        config.options.direct = true;
        Session::connect(config).unwrap()
    };
    let session = Arc::new(Users::as_user(JOE, connected));
    let dir = root(&*session);
    make_as(&session, JOE, dir, "of the killed", 0o644).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(100));
}

#[test]
fn lu2_a_killed_program_leaves_nothing_behind() {
    if !can_run("lu2_a_killed_program_leaves_nothing_behind") {
        return;
    }
    let users = Users::with(|config| config.limits.sessions_per_host = 1);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["local_users::lu2_child_of_a_user", "--exact", "--nocapture"]);
    command.env(SOCKET_VARIABLE, users.socket());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let lookup = Call::Lookup { dir: users.open, name: name("of the killed") };
    wait_for("the program's file", || try_ask(&users.own, lookup.clone()).is_ok());
    let refused = users.greet(JOE).unwrap().attach_as(ClientId(2), 1, None);
    assert!(refused.is_err(), "the program has the only session");
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = std::time::Instant::now();
    wait_for("room for the next program", || {
        users.greet(JOE).is_ok_and(|mut next| next.attach_as(ClientId(2), 1, None).is_ok())
    });
    assert!(killed.elapsed() < types::limits::LEASE, "no need to wait for the lease");
    users.is_served(ANN, "ann");
}

#[test]
fn lu1_without_the_socket_for_users_the_server_serves_others() {
    let mut taken = None;
    let cell = Cell::with(|config| {
        let dir = config.unix_socket.as_ref().unwrap().with_file_name("open");
        std::fs::create_dir(&dir).unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
        config.users_socket = Some(dir.join("socket"));
        taken.clone_from(&config.users_socket);
    });
    assert!(!taken.unwrap().exists(), "others may write the directory");
    let own = connect(cell.unix());
    let Answer::Report(report) = ask(&own, Call::ServerReport) else { panic!() };
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert!(report["server"]["users_socket"].is_null());
}
