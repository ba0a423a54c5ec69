//! A client process that is killed is succeeded by another one, which goes on with its session at a
//! real server: everything is done once, and locks and holds stay.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{
    CallError, Cancel, ClientIdentity, ClientOptions, Endpoint, Remote, Session, SessionConfig,
};
use common::*;
use keep::Keep;
use rand::Rng;
use types::{
    Answer, ByteRange, Call, Caller, CellCall, ClientId, CreateHow, Fault, Fid, LockFamily,
    LockMode, LockOwner, NewKind, RemoveWhat,
};

fn config(endpoint: Endpoint, keep: &Arc<Keep>) -> SessionConfig {
    let options = ClientOptions { keep: Some(Arc::clone(keep)), ..ClientOptions::default() };
    SessionConfig { options, ..SessionConfig::new(endpoint, ClientIdentity::with(ClientId(5), 1)) }
}

/// A client whose process ends without a word, and begins again.
struct Client {
    endpoint: Endpoint,
    keep: Arc<Keep>,
    session: Option<Arc<Session>>,
}

impl Client {
    fn new(endpoint: Endpoint) -> Client {
        let keep = Keep::create().unwrap();
        let mut client = Client { endpoint, keep, session: None };
        client.begin();
        client
    }

    fn begin(&mut self) {
        self.keep = Keep::open(self.keep.file().try_clone().unwrap()).unwrap();
        let config = config(self.endpoint.clone(), &self.keep);
        self.session = Some(Arc::new(Session::connect(config).unwrap()));
    }

    fn session(&self) -> &Arc<Session> {
        self.session.as_ref().unwrap()
    }

    fn kill(&mut self) {
        self.session.take().unwrap().leave();
    }

    /// The process is killed, and its successor has restored what it knows.
    fn succeed(&mut self) {
        self.kill();
        self.begin();
        assert!(self.session().is_resumed());
        self.session().restored();
    }
}

const RANGE: ByteRange = ByteRange::ALL;

fn lock(fid: Fid, owner: u64) -> Call {
    let (family, mode) = (LockFamily::Posix, LockMode::Exclusive);
    let owner = LockOwner(owner);
    Call::Lock { fid, owner, pid: 1, family, range: RANGE, mode, wait: false, reclaim: false }
}

fn unlock(fid: Fid, owner: u64) -> Call {
    Call::Unlock { fid, owner: LockOwner(owner), family: LockFamily::Posix, range: RANGE }
}

fn make_call(dir: Fid, file: &str) -> Call {
    let (kind, how) = (NewKind::File, CreateHow::Guarded);
    Call::Make { dir, name: name(file), kind, mode: 0o644, how }
}

fn append_call(fid: Fid, text: &str) -> Call {
    let data = Bytes::copy_from_slice(text.as_bytes());
    Call::Write { fid, offset: None, data, stable: false, kill_privileges: false }
}

#[test]
fn lk2_a_lock_is_the_successors() {
    let cell = Cell::new();
    let other = connect(cell.unix());
    let mut client = Client::new(cell.unix());
    let dir = root(&other);
    let file = make(&other, dir, "locked");
    ask(&**client.session(), lock(file, 1));
    // The process is gone for longer than the server needs to notice.
    client.kill();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(try_ask(&other, lock(file, 2)), Err(CallError::Fault(Fault::Locked)));
    client.begin();
    client.session().restored();
    assert_eq!(try_ask(&other, lock(file, 2)), Err(CallError::Fault(Fault::Locked)));
    ask(&**client.session(), unlock(file, 1));
    ask(&other, lock(file, 2));
    // A session that was closed has no locks.
    ask(&other, unlock(file, 2));
    ask(&**client.session(), lock(file, 1));
    client.session().detach();
    ask(&other, lock(file, 2));
}

#[test]
fn ho1_a_hold_is_the_successors() {
    let cell = Cell::new();
    let other = connect(cell.unix());
    let mut client = Client::new(cell.unix());
    let dir = root(&other);
    let file = make(&other, dir, "held");
    write(&other, file, 0, "held");
    ask(&**client.session(), Call::Hold { fids: vec![file] });
    client.kill();
    let what = RemoveWhat::File;
    ask(&other, Call::Remove { dir, name: name("held"), what, hold: false });
    client.begin();
    client.session().restored();
    assert_eq!(read(&**client.session(), file, 0, 10), "held");
    client.succeed();
    assert_eq!(read(&**client.session(), file, 0, 10), "held");
    ask(&**client.session(), Call::Unhold { fids: vec![file] });
    wait_for("the file's end", || {
        try_ask(&other, Call::GetStatus { fid: file }) == Err(CallError::Fault(Fault::Stale))
    });
}

#[test]
fn cb1_a_break_reaches_the_successor() {
    let cell = Cell::new();
    let other = connect(cell.unix());
    let mut client = Client::new(cell.unix());
    let dir = root(&other);
    let file = make(&other, dir, "promised");
    ask(&**client.session(), Call::GetStatus { fid: file });
    client.kill();
    let began = Instant::now();
    let writing = std::thread::spawn(move || write(&other, file, 0, "new"));
    std::thread::sleep(Duration::from_millis(200));
    client.begin();
    let recorder = Recorder::of(&**client.session());
    std::thread::sleep(Duration::from_millis(200));
    assert!(!writing.is_finished(), "the kernel may still show the old state");
    client.session().restored();
    writing.join().unwrap();
    assert!(recorder.broken(file));
    assert!(began.elapsed() < Duration::from_secs(5), "not after the lease");
}

#[test]
fn eo1_changes_in_progress_are_made_once() {
    let mut cell = Cell::new();
    let other = connect(cell.tcp());
    let mut client = Client::new(cell.unix());
    let dir = root(&other);
    let file = make(&other, dir, "appended");
    let mut random = rand::rng();
    for round in 0..120 {
        let calls =
            [make_call(dir, &format!("f{round}")), append_call(file, &format!("{round:03}\n"))];
        // The kernel's requests, which get no reply as long as their process is killed.
        let requests: Vec<_> = calls
            .iter()
            .map(|call| {
                let (session, call) = (Arc::clone(client.session()), call.clone());
                std::thread::spawn(move || {
                    let cancel = Cancel::of_request();
                    let result = session.call(&Caller::ROOT, call, Some(&cancel));
                    // The process is killed before the kernel has the answer, if one came.
                    std::mem::forget(cancel);
                    result.is_ok()
                })
            })
            .collect();
        std::thread::sleep(Duration::from_micros(random.random_range(0..600)));
        client.kill();
        if round % 40 == 20 {
            cell.crash();
            cell.start();
        }
        requests.into_iter().for_each(|request| _ = request.join().unwrap());
        client.begin();
        client.session().restored();
        for call in calls {
            let answer =
                client.session().call(&Caller::ROOT, call.clone(), Some(&Cancel::of_repeated()));
            assert!(answer.is_ok(), "round {round}: {call:?}: {answer:?}");
        }
        client.session().forget_orphans();
    }
    let expected: String = (0..120).map(|round| format!("{round:03}\n")).collect();
    assert_eq!(read(&other, file, 0, 10_000), expected);
}

#[test]
fn lk4_the_successor_claims_at_a_restarted_server() {
    let mut cell = Cell::new();
    let mut client = Client::new(cell.unix());
    let dir = root(&**client.session());
    let file = make(&**client.session(), dir, "locked");
    ask(&**client.session(), lock(file, 1));
    client.kill();
    cell.crash();
    cell.start();
    client.begin();
    let recorder = Recorder::of(&**client.session());
    let mut claim = lock(file, 1);
    if let Call::Lock { reclaim, .. } = &mut claim {
        *reclaim = true;
    }
    recorder.claims.lock().push(claim);
    client.session().restored();
    wait_for("the claim", || *recorder.claimed.lock() == [Ok(Answer::Done)]);
    let other = connect(cell.unix());
    assert_eq!(try_ask(&other, lock(file, 2)), Err(CallError::Fault(Fault::Locked)));
    // Once is enough.
    client.succeed();
    assert_eq!(try_ask(&other, lock(file, 2)), Err(CallError::Fault(Fault::Locked)));
    ask(&**client.session(), unlock(file, 1));
    ask(&other, lock(file, 2));
}

#[test]
fn a_session_whose_lease_ended_is_lost() {
    let cell = Cell::with(|config| {
        config.lease = Duration::from_millis(600);
        config.lease_grace = Duration::from_millis(100);
    });
    let mut client = Client::new(cell.unix());
    let dir = root(&**client.session());
    let file = make(&**client.session(), dir, "locked");
    ask(&**client.session(), lock(file, 1));
    client.kill();
    std::thread::sleep(Duration::from_millis(1500));
    client.begin();
    let recorder = Recorder::of(&**client.session());
    client.session().restored();
    wait_for("the loss", || *recorder.lost.lock() == 1);
    let other = connect(cell.unix());
    ask(&other, lock(file, 2));
}

#[test]
fn lk2_sessions_with_other_servers_are_resumed_too() {
    let lease = Duration::from_millis(900);
    let short = |config: &mut server::ServerConfig| {
        config.lease = lease;
        config.lease_grace = Duration::from_millis(100);
    };
    let (home, away) = (Cell::with(short), Cell::with(short));
    let other = connect(away.unix());
    let Answer::Servers(found) = ask(&other, Call::Cell(CellCall::Me)) else { panic!() };
    let id = found[0].record.id;
    let dir = root(&other);
    let file = make(&other, dir, "locked");
    let Endpoint::Tcp(address) = away.tcp() else { panic!() };
    let address: SocketAddr = address.parse().unwrap();
    let keep = Keep::create().unwrap();
    let sessions = [
        Session::connect(config(home.unix(), &keep)).unwrap(),
        Session::connect(SessionConfig { server: Some(id), ..config(away.tcp(), &keep) }).unwrap(),
    ];
    sessions[1].found_at(id, &[address]);
    ask(&sessions[1], lock(file, 1));
    sessions.into_iter().for_each(Session::vanish);
    // The successor.
    let keep = Keep::open(keep.file().try_clone().unwrap()).unwrap();
    let home = Arc::new(Session::connect(config(home.unix(), &keep)).unwrap());
    assert!(home.is_resumed());
    let with = Arc::clone(&keep);
    let dial = client::dial_addresses(move |endpoint| config(endpoint, &with));
    let cell = client::Cell::of_servers(home, dial);
    cell.resume_others(&keep, ClientId(5));
    cell.restored();
    std::thread::sleep(3 * lease);
    let refused = Err(CallError::Fault(Fault::Locked));
    assert_eq!(try_ask(&other, lock(file, 2)), refused, "the lease there is renewed");
    // Nothing is resumed twice.
    cell.resume_others(&keep, ClientId(5));
    cell.forget_orphans();
    assert_eq!(try_ask(&other, lock(file, 2)), refused);
    cell.detach();
    // The farewell may still be on its way.
    let mut waits = lock(file, 2);
    if let Call::Lock { wait, .. } = &mut waits {
        *wait = true;
    }
    ask(&other, waits);
}

// The process that is killed.

const SOCKET: &str = "RIALTO_SUCCESSOR_SOCKET";
const THREADS: usize = 3;
const ROUNDS: usize = 12;

/// Appends line after line in each thread, and says before and after each that it does. The first
/// of each thread may be one that the predecessor had in progress.
fn append_for_ever(dir: &str, records: &str, file: &str, begun: &str) {
    let descriptor: OwnedFd = File::options().read(true).write(true).open(records).unwrap().into();
    let keep = Keep::open(descriptor).unwrap();
    let patience = Duration::from_secs(20);
    let path = std::path::Path::new(dir);
    let identity =
        ClientIdentity::continue_within(&path.join("identity"), patience, &keep).unwrap();
    let endpoint = Endpoint::Unix(path.join("socket"));
    let session = Session::connect(SessionConfig { identity, ..config(endpoint, &keep) }).unwrap();
    say(&format!("resumed {}", session.is_resumed()));
    session.restored();
    let numbers: Vec<u64> = file.split(',').map(|number| number.parse().unwrap()).collect();
    let fid = Fid::new(numbers[0], numbers[1], numbers[2]);
    let repeated = std::sync::Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for (thread, begun) in begun.split(',').enumerate() {
            let (session, repeated) = (&session, &repeated);
            scope.spawn(move || {
                let (number, is_repeated) = match begun.split_once('?') {
                    Some((number, _)) => (number, true),
                    None => (begun, false),
                };
                let mut number: u64 = number.parse().unwrap();
                let append = |number: u64, request: &Cancel| {
                    say(&format!("begins {thread} {number}"));
                    let call = append_call(fid, &format!("{thread}-{number}\n"));
                    session.call(&Caller::ROOT, call, Some(request)).unwrap();
                    // The kernel learns of it, and does not make the request again from then on.
                    say(&format!("did {thread} {number}"));
                };
                if is_repeated {
                    append(number, &Cancel::of_repeated());
                    number += 1;
                }
                if repeated.wait().is_leader() {
                    session.forget_orphans();
                }
                loop {
                    append(number, &Cancel::of_request());
                    number += 1;
                }
            });
        }
    });
}

/// One write, so that a killed process says all of it or nothing.
fn say(text: &str) {
    std::io::stdout().lock().write_all(format!("\n{text}\n").as_bytes()).unwrap();
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn eo1_each_append_of_killed_processes_is_there_once() {
    if let Ok(place) = std::env::var(SOCKET) {
        let parts: Vec<&str> = place.split(';').collect();
        return append_for_ever(parts[0], parts[1], parts[2], parts[3]);
    }
    let cell = Cell::new();
    let session = connect(cell.unix());
    let dir = root(&session);
    let fid = make(&session, dir, "lines");
    let keep = Keep::create().unwrap();
    let records = format!("/proc/{}/fd/{}", std::process::id(), keep.file().as_raw_fd());
    let file = format!("{},{},{}", fid.volume.0, fid.vnode.0, fid.unique.0);
    // Of each thread: the next number, and whether it has begun.
    let mut next = [(0_u64, false); THREADS];
    let mut random = rand::rng();
    for round in 0..ROUNDS {
        let begun = next.map(|(number, begun)| format!("{number}{}", if begun { "?" } else { "" }));
        let place = format!("{};{records};{file};{}", cell.dir.path().display(), begun.join(","));
        let mut child = Killed(
            Command::new(std::env::current_exe().unwrap())
                .args(["--nocapture", "--exact"])
                .arg("eo1_each_append_of_killed_processes_is_there_once")
                .env(SOCKET, place)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        );
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let mut left: u32 = random.random_range(3..300);
        while let Some(Ok(line)) = lines.next() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            match words[0] {
                "resumed" => assert_eq!(words[1] == "true", round > 0, "round {round}"),
                "begins" => {
                    let at = number(1) as usize;
                    assert_eq!(next[at].0, number(2));
                    next[at].1 = true;
                }
                "did" => next[number(1) as usize] = (number(2) + 1, false),
                _ => {}
            }
            left = left.saturating_sub(1);
            if left == 0 {
                let _ = child.0.kill();
            }
        }
        child.0.wait().unwrap();
        assert_eq!(left, 0, "round {round}: the process ended by itself");
    }
    // The last ones may have been made or not, once.
    let text = read(&session, fid, 0, 1 << 20);
    let mut lines: Vec<&str> = std::str::from_utf8(&text).unwrap().lines().collect();
    let all = lines.len();
    for (thread, (number, _)) in next.iter().enumerate() {
        for at in 0..=*number {
            let line = format!("{thread}-{at}");
            let count = lines.iter().filter(|one| **one == line).count();
            assert!(count == 1 || count == 0 && at == *number, "{line} is there {count} times");
        }
        lines.retain(|line| {
            let (its, count) = line.split_once('-').unwrap();
            its != thread.to_string() || count.parse::<u64>().unwrap() > *number
        });
    }
    assert!(lines.is_empty(), "{lines:?}");
    assert!(all > 100, "{all} lines");
}
