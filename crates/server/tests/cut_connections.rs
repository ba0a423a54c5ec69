//! Connections cut at random bytes, servers that die and come back, clients that die: everything is
//! done exactly once, no call waits for ever.

#![allow(clippy::unwrap_used)]

mod common;

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::{CallError, Cancel, ClientIdentity, Endpoint, Remote, Session, SessionConfig};
use common::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use types::{
    Answer, ByteRange, Call, Caller, CreateHow, Fid, LockFamily, LockMode, LockOwner, NewKind,
};

mod proxy;

fn lock(fid: Fid, wait: bool, reclaim: bool) -> Call {
    let (owner, pid, family) = (LockOwner(1), 1, LockFamily::Posix);
    Call::Lock {
        fid,
        owner,
        pid,
        family,
        range: ByteRange::ALL,
        mode: LockMode::Exclusive,
        wait,
        reclaim,
    }
}

/// Appends numbered lines from several threads; each line must be there exactly once.
fn append_lines(session: &Session, fid: Fid, threads: usize, lines: usize) -> Vec<String> {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let mut done = Vec::new();
                    for line in 0..lines {
                        let text = format!("{thread}-{line}\n");
                        let answer = append(session, fid, text.clone()).unwrap();
                        let Answer::Written { count, .. } = answer else { panic!("{answer:?}") };
                        assert_eq!(count as usize, text.len());
                        done.push(text);
                    }
                    done
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

fn check_lines(session: &Session, fid: Fid, mut expected: Vec<String>) {
    let text = read(session, fid, 0, 1 << 20);
    let mut found: Vec<String> = String::from_utf8(text.to_vec())
        .unwrap()
        .split_inclusive('\n')
        .map(str::to_owned)
        .collect();
    found.sort();
    expected.sort();
    assert!(found == expected, "{} lines, {} expected", found.len(), expected.len());
}

#[test]
fn appends_happen_once_over_connections_cut_at_random_bytes() {
    let cell = Cell::new();
    for (seed, endpoint) in cell.both().into_iter().enumerate() {
        let proxy = proxy::Proxy::start(endpoint, seed as u64);
        let session = connect(proxy.endpoint());
        let dir = root(&session);
        let file = make(&session, dir, &format!("log{seed}"));
        proxy.cut_from_now_on(2_000);
        let expected = append_lines(&session, file, 4, 150);
        proxy.let_live();
        check_lines(&session, file, expected);
        assert!(proxy.cuts() > 10, "{} cuts", proxy.cuts());
    }
}

#[test]
fn bulk_data_survives_cuts() {
    let cell = Cell::new();
    let proxy = proxy::Proxy::start(cell.unix(), 7);
    let session = connect(proxy.endpoint());
    let dir = root(&session);
    let file = make(&session, dir, "bulk");
    proxy.cut_from_now_on(3 << 20);
    let mut random = StdRng::seed_from_u64(7);
    for round in 0..40_u64 {
        let data = vec![random.random::<u8>(); random.random_range(1..1 << 20)];
        write(&session, file, round, data.clone());
        assert!(read(&session, file, round, 1 << 20)[..data.len()] == data[..], "round {round}");
    }
    assert!(proxy.cuts() > 0);
}

#[test]
fn calls_go_on_through_a_restart_of_the_server() {
    let mut cell = Cell::new();
    let session = connect(cell.unix());
    let heard = Recorder::of(&session);
    let dir = root(&session);
    let file = make(&session, dir, "log");
    ask(&session, lock(file, false, false));
    heard.claims.lock().push(lock(file, false, true));
    let expected = std::thread::scope(|scope| {
        let appending = scope.spawn(|| append_lines(&session, file, 3, 400));
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(100));
            cell.crash();
            cell.start();
        }
        appending.join().unwrap()
    });
    check_lines(&session, file, expected);
    wait_for("the claims", || *heard.restarts.lock() > 0);
    let claimed = heard.claimed.lock().clone();
    assert!(
        !claimed.is_empty() && claimed.iter().all(|result| *result == Ok(Answer::Done)),
        "{claimed:?}"
    );
    assert_eq!(*heard.lost.lock(), 0);
    // The lock outlived all of it.
    let other = connect(cell.tcp());
    assert!(try_ask(&other, lock(file, false, false)).is_err());
}

#[test]
fn a_server_killed_with_kill_9_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    make_partition(&dir.path().join("vicepa"));
    let mut server = ChildServer::start(dir.path());
    let session = connect(Endpoint::Unix(dir.path().join("socket")));
    let root = root(&session);
    let file = make(&session, root, "log");
    let stop = AtomicBool::new(false);
    let (expected, names) = std::thread::scope(|scope| {
        let appending = scope.spawn(|| append_lines(&session, file, 3, 300));
        let making = scope.spawn(|| {
            let mut count = 0;
            while !stop.load(Ordering::SeqCst) {
                // Answered with `Exists` if it were done twice.
                let call = Call::Make {
                    dir: root,
                    name: name(&format!("n{count}")),
                    kind: NewKind::Directory,
                    mode: 0o755,
                    how: CreateHow::Guarded,
                };
                ask(&session, call);
                count += 1;
            }
            count
        });
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(150));
            server.kill_9();
            server = ChildServer::start(dir.path());
        }
        let lines = appending.join().unwrap();
        stop.store(true, Ordering::SeqCst);
        (lines, making.join().unwrap())
    });
    check_lines(&session, file, expected);
    assert_eq!(status(&ask(&session, Call::GetStatus { fid: root })).links, 2 + names);
    drop(session);
    server.kill_9();
}

#[test]
fn a_question_to_a_server_that_hangs_can_be_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    make_partition(&dir.path().join("vicepa"));
    let server = ChildServer::start(dir.path());
    let session = connect(Endpoint::Unix(dir.path().join("socket")));
    let root = root(&session);
    let process = rustix::process::Pid::from_child(&server.child);
    rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
    // The signal is in transit; only when all threads have stopped does no thread answer.
    let stopped =
        rustix::process::waitpid(Some(process), rustix::process::WaitOptions::UNTRACED).unwrap();
    assert!(stopped.is_some_and(|(_, status)| status.stopped()));
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let asking = scope
            .spawn(|| session.call(&Caller::ROOT, Call::GetStatus { fid: root }, Some(&cancel)));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!asking.is_finished());
        cancel.cancel();
        wait_for("the asker", || asking.is_finished());
        assert_eq!(asking.join().unwrap().unwrap_err(), CallError::Cancelled);
    });
    rustix::process::kill_process(process, rustix::process::Signal::CONT).unwrap();
    ask(&session, Call::GetStatus { fid: root });
}

/// This test binary again, as a server (see `serve_for_another_test`).
struct ChildServer {
    child: Child,
}

impl ChildServer {
    fn start(dir: &std::path::Path) -> ChildServer {
        let child = this_test("serve_for_another_test", dir);
        ChildServer { child }
    }

    fn kill_9(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for ChildServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn this_test(test: &str, dir: &std::path::Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env("FAULTS_DIR", dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "run by other tests as a process of its own"]
fn serve_for_another_test() {
    let dir = std::path::PathBuf::from(std::env::var("FAULTS_DIR").unwrap());
    let mut config = server::ServerConfig::new(dir.join("vicepa"));
    config.unix_socket = Some(dir.join("socket"));
    let _server = server::Server::start(&config).unwrap();
    // Until the parent has ended.
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}

#[test]
#[ignore = "run by other tests as a process of its own"]
fn hold_a_lock_for_another_test() {
    let dir = std::path::PathBuf::from(std::env::var("FAULTS_DIR").unwrap());
    let session = connect(Endpoint::Unix(dir.join("socket")));
    let root = root(&session);
    let file = make(&session, root, "locked");
    ask(&session, lock(file, false, false));
    make(&session, root, "ready");
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}

#[test]
fn locks_of_a_killed_client_are_free_at_once() {
    let cell = Cell::new();
    let session = connect(cell.unix());
    let dir = root(&session);
    let mut child = this_test("hold_a_lock_for_another_test", cell.dir.path());
    wait_for("the child's lock", || {
        try_ask(&session, Call::Lookup { dir, name: name("ready") }).is_ok()
    });
    let file = status(&ask(&session, Call::Lookup { dir, name: name("locked") })).fid;
    assert!(try_ask(&session, lock(file, false, false)).is_err());
    let killed = Instant::now();
    child.kill().unwrap();
    assert_eq!(ask(&session, lock(file, true, false)), Answer::Done);
    assert!(killed.elapsed() < Duration::from_secs(3), "{:?}", killed.elapsed());
    child.wait().unwrap();
}

#[test]
fn a_silent_client_stops_others_no_longer_than_its_lease() {
    let cell = Cell::with(|config| {
        config.lease = Duration::from_millis(1500);
        config.lease_grace = Duration::from_millis(200);
    });
    let (writer, reader) = (connect(cell.unix()), connect(cell.tcp()));
    let dir = root(&writer);
    let file = make(&writer, dir, "f");
    ask(&reader, Call::GetStatus { fid: file });
    reader.vanish();
    let before = Instant::now();
    write(&writer, file, 0, "x");
    let waited = before.elapsed();
    assert!(waited > Duration::from_millis(500) && waited < Duration::from_secs(6), "{waited:?}");
}

#[test]
fn a_lost_session_is_reported_and_a_new_one_follows() {
    let cell = Cell::with(|config| {
        config.lease = Duration::from_millis(900);
        config.lease_grace = Duration::from_millis(100);
    });
    let proxy = proxy::Proxy::start(cell.tcp(), 1);
    let session = connect(proxy.endpoint());
    let heard = Recorder::of(&session);
    let dir = root(&session);
    let file = make(&session, dir, "f");
    ask(&session, lock(file, false, false));
    proxy.close_down();
    std::thread::sleep(Duration::from_millis(1800));
    proxy.open_up();
    // The client repeats a question in the new session by itself.
    ask(&session, Call::GetStatus { fid: file });
    wait_for("the report of the loss", || *heard.lost.lock() == 1);
    let other = connect(cell.unix());
    assert_eq!(ask(&other, lock(file, false, false)), Answer::Done);
    wait_for("the new lease", || heard.renewed.lock().len() > 1);
}

#[test]
fn calls_end_at_a_deadline_or_by_cancellation() {
    let mut cell = Cell::new();
    let session = connect(cell.unix());
    let dir = root(&session);
    let mut config = SessionConfig::new(cell.unix(), ClientIdentity::fleeting());
    config.call_within = Some(Duration::from_millis(200));
    let hasty = Session::connect(config).unwrap();
    cell.crash();
    assert_eq!(try_ask(&hasty, Call::GetStatus { fid: dir }), Err(CallError::TimedOut));
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let waiting = scope
            .spawn(|| session.call(&Caller::ROOT, Call::GetStatus { fid: dir }, Some(&cancel)));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished());
        cancel.cancel();
        assert_eq!(waiting.join().unwrap().unwrap_err(), CallError::Cancelled);
    });
    cell.start();
    ask(&session, Call::GetStatus { fid: dir });
    ask(&hasty, Call::GetStatus { fid: dir });
}

#[test]
fn a_failed_connect_reports_why() {
    let dir = tempfile::tempdir().unwrap();
    let mut config =
        SessionConfig::new(Endpoint::Unix(dir.path().join("nothing")), ClientIdentity::fleeting());
    config.attach_within = Some(Duration::from_millis(100));
    let Err(CallError::Refused(why)) = Session::connect(config) else { panic!("nothing listens") };
    assert!(why.contains("nothing") && why.contains("No such file"), "{why}");

    let web = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = web.local_addr().unwrap().to_string();
    let serving = std::thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = web.accept().unwrap();
        stream.write_all(&[b'H'; 4096]).unwrap();
        std::thread::sleep(Duration::from_millis(200));
    });
    let mut config = SessionConfig::new(Endpoint::Tcp(address), ClientIdentity::fleeting());
    config.options =
        fabric::ConnectionOptions { connect_within: Duration::from_secs(1), ..Default::default() }
            .into();
    let Err(CallError::Refused(why)) = Session::connect(config) else {
        panic!("no server of ours")
    };
    assert!(why.contains("no Rialto server"), "{why}");
    serving.join().unwrap();
}

#[test]
fn eo2_an_older_client_incarnation_is_refused() {
    let cell = Cell::new();
    let path = cell.path("identity");
    let first = ClientIdentity::load(&path).unwrap();
    let (client, incarnation) = (first.client, first.incarnation);
    drop(first);
    let second = ClientIdentity::load(&path).unwrap();
    let session = Session::connect(SessionConfig::new(cell.unix(), second)).unwrap();
    let dir = root(&session);
    let old = ClientIdentity::with(client, incarnation);
    let refused = Session::connect(SessionConfig::new(cell.unix(), old)).err();
    assert!(matches!(refused, Some(CallError::Refused(_))), "{refused:?}");
    ask(&session, Call::GetStatus { fid: dir });
}

#[test]
fn an_idle_session_keeps_its_connections_and_its_lease() {
    let cell = Cell::with(|config| config.lease = Duration::from_millis(1500));
    let session = connect(cell.unix());
    let heard = Recorder::of(&session);
    let dir = root(&session);
    let accepted = |session: &Session| {
        let Answer::Report(report) = ask(session, Call::ServerReport) else { panic!("a report") };
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        report["server"]["connections_accepted"].as_u64().unwrap()
    };
    wait_for("the back connection", || accepted(&session) == 2);
    // Longer than a probe may stay unanswered.
    std::thread::sleep(dafs::limits::RENEWAL_TIME + Duration::from_secs(2));
    assert_eq!(accepted(&session), 2);
    assert_eq!(*heard.lost.lock(), 0);
    assert!(heard.renewed.lock().len() > 5, "{} renewals", heard.renewed.lock().len());
    ask(&session, Call::GetStatus { fid: dir });
}

#[test]
fn breaks_arrive_although_connections_are_cut_again_and_again() {
    let cell = Cell::new();
    let proxy = proxy::Proxy::start(cell.unix(), 11);
    let (writer, reader) = (connect(cell.unix()), connect(proxy.endpoint()));
    let heard = Recorder::of(&reader);
    let dir = root(&writer);
    let file = make(&writer, dir, "f");
    proxy.cut_from_now_on(3_000);
    for round in 0..100 {
        ask(&reader, Call::GetStatus { fid: file });
        heard.breaks.lock().clear();
        let before = Instant::now();
        write(&writer, file, 0, format!("{round}"));
        // The break came before the write was acknowledged (CB-1), and soon (no caller waited for a
        // lease).
        assert!(heard.broken(file), "round {round}");
        assert!(before.elapsed() < types::limits::LEASE, "round {round}: {:?}", before.elapsed());
    }
    assert!(proxy.cuts() > 0, "nothing was cut");
    assert_eq!(*heard.lost.lock(), 0);
}

/// Keys that fail as a broken assertion does.
#[derive(Debug)]
struct BrokenKeys;

impl login::SigningKeys for BrokenKeys {
    fn newest(&self) -> Option<(u32, Arc<guard::Signer>)> {
        panic!("the key of this test is broken")
    }
    fn public(&self, _number: u32) -> Option<[u8; 32]> {
        panic!("the key of this test is broken")
    }
}

/// Shows a token to any server.
#[derive(Debug)]
struct AnyToken;

impl dafs::credentials::Wallet for AnyToken {
    fn changes(&self) -> u64 {
        1
    }
    fn show(
        &self,
        caller: &Caller,
        _line: &dafs::credentials::ProofContext,
    ) -> Option<dafs::credentials::TokenProof> {
        let client = guard::Signer::new(&[3; 32]);
        let token = guard::Token {
            cell: "cell.test".to_owned(),
            key: 1,
            number: 1,
            principal: types::PrincipalId(1),
            name: "joe".to_owned(),
            level: types::AuthLevel::Password,
            issued: 0,
            expires: i64::MAX,
            renewable: i64::MAX,
            client: client.public(),
        };
        let shown =
            dafs::credentials::TokenProof { token: token.sign(&client).into(), proof: [0; 64] };
        (caller.uid == 4711).then_some(shown)
    }
}

/// A panic over one client's input costs that client its connection, and other clients nothing.
#[test]
fn m6_a_panic_costs_one_client_its_connection() {
    let cell = Cell::with(|config| {
        config.mint = Some(Arc::new(login::TokenIssuer::new("cell.test", Arc::new(BrokenKeys))));
        config.workers = 1;
    });
    let other = connect(cell.unix());
    let fid = make(&other, root(&other), "f");
    let mut config = SessionConfig::new(cell.unix(), ClientIdentity::fleeting());
    config.options.wallet = Some(Arc::new(AnyToken));
    config.call_within = Some(Duration::from_secs(2));
    let session = Session::connect(config).unwrap();
    let caller = Caller { uid: 4711, ..Caller::ROOT };
    let said = session.call(&caller, Call::GetStatus { fid }, None);
    assert!(said.is_err(), "{said:?}");
    for number in 0..20 {
        make(&other, root(&other), &format!("f{number}"));
    }
    let Answer::Report(report) = ask(&other, Call::ServerReport) else { panic!("a report") };
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert!(report["server"]["panics"].as_u64().unwrap() > 0, "{report}");
}
