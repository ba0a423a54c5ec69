//! Attacks by unknown clients that reach the server, and their bounded cost to users who have
//! logged in. `examples/strangers.rs` measures it.

#![allow(clippy::unwrap_used)]

mod attack;
mod common;

use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use std::io::{Read, Write};
use std::net::TcpStream;

use client::{Endpoint, Session};
use common::{Cell, ask, connect, root, wait_for};
use dafs::{Features, Hello, HelloAnswer, HelloRefusal};
use types::{Answer, Call};

#[test]
#[ignore = "run by other tests as a process of its own"]
fn serve_for_another_test() {
    attack::serve(std::path::Path::new(&std::env::var("STORM_DIR").unwrap()));
}

fn served() -> attack::Served {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "serve_for_another_test", "--ignored", "--nocapture"])
        .stdout(std::process::Stdio::null());
    attack::Served::start(command)
}

/// As [`served`], by a process that may have this many descriptors.
fn served_with_descriptors(most: usize) -> attack::Served {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("ulimit -n {most} && exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap());
    command
        .args(["--exact", "serve_for_another_test", "--ignored", "--nocapture"])
        .stdout(std::process::Stdio::null());
    attack::Served::start(command)
}

/// More connections than the server's process has descriptors: some are closed, and the partition,
/// whose engine ends at the first descriptor that it cannot have (DU-3), goes on.
#[test]
fn h4_connections_take_no_descriptor_that_the_store_needs() {
    const DESCRIPTORS: usize = 256;
    let served = served_with_descriptors(DESCRIPTORS);
    let mut user = served.user();
    let mut strangers = Vec::new();
    for round in 0..2 {
        // All at once, before the server has accepted any.
        let from =
            |number: usize| attack::connect_from(50 * round + number, served.address).unwrap();
        strangers.extend((0..DESCRIPTORS).map(from));
        for _ in 0..20 {
            user.create();
            user.stat();
        }
    }
    let open = std::fs::read_dir(format!("/proc/{}/fd", served.process())).unwrap().count();
    assert!(open < DESCRIPTORS - 20, "{open} descriptors of {DESCRIPTORS} are open");
    let report = served.report();
    assert!(
        report["server"]["met"]["connections"].as_u64().unwrap() > 0,
        "{}",
        report["server"]["met"]
    );
    assert_eq!(report["server"]["panics"].as_u64(), Some(0));
    // A change that is synced, so the partition has not stopped.
    user.write_stable();
    drop(strangers);
    // The places of the closed ones are free.
    served.user().create();
}

#[test]
fn a_user_works_on_under_attack_and_the_server_stays_small() {
    let served = served();
    let mut user = served.user();
    user.measure(Instant::now() + Duration::from_millis(300));
    let before = served.rss_mib();
    let (storm, threads) = attack::attack(&served, 200);
    wait_for("strangers", || storm.attached.load(Ordering::Relaxed) > 200);
    let until = Instant::now() + Duration::from_secs(4);
    let took = user.measure(until);
    assert!(took.iter().all(|took| !took.is_empty()), "the user got answers");
    let grown = served.rss_mib().saturating_sub(before);
    let report = served.report();
    storm.stop();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(grown <= 256, "{grown} MiB");
    let (used, met) = (&report["server"]["used"], &report["server"]["met"]);
    assert!(
        used["nobody-sessions"].as_u64().unwrap() > 0 && used["sessions"].as_u64().unwrap() >= 2,
        "{used}"
    );
    assert!(
        met["passwords"].as_u64().unwrap() > 0 && met["log-lines"].as_u64().unwrap() > 0,
        "{met}"
    );
    assert_eq!(report["server"]["panics"].as_u64(), Some(0));
    assert_eq!(report["delegations"].as_u64(), Some(0), "no attacker has a delegation");
    user.stat();
    served.user().create();
}

fn met(session: &Session, what: &str) -> u64 {
    let Answer::Report(report) = ask(session, Call::ServerReport) else { panic!("a report") };
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    report["server"]["met"][what].as_u64().unwrap()
}

#[test]
fn a_host_with_too_many_connections_is_refused_for_a_while() {
    // A session has two.
    let cell = Cell::with(|config| config.limits.connections_per_host = 2);
    let own = connect(cell.unix());
    let first = connect(cell.tcp());
    ask(&first, Call::GetStatus { fid: root(&first) });
    let Endpoint::Tcp(address) = cell.tcp() else { panic!("TCP") };
    let hello = Hello::full(Features::NONE);
    wait_for("Crowded", || {
        let mut third = TcpStream::connect(&address).unwrap();
        third.write_all(&hello.to_bytes()).unwrap();
        let mut answer = [0; HelloAnswer::BYTES];
        third.read_exact(&mut answer).unwrap();
        // Its second connection may not be there yet.
        HelloAnswer::parse(&answer, &hello) == Ok(HelloAnswer::Refused(HelloRefusal::Crowded))
    });
    let (there, before) = (cell.tcp(), met(&own, "connections-per-host"));
    let later = std::thread::spawn(move || connect(there));
    wait_for("a refusal", || met(&own, "connections-per-host") > before);
    drop(first);
    let later = later.join().unwrap();
    ask(&later, Call::GetStatus { fid: root(&later) });
    // The server's own socket is no host.
    let more: Vec<Session> = (0..5).map(|_| connect(cell.unix())).collect();
    assert!(more.iter().all(|session| root(session) == root(&own)));
}

#[test]
fn a_host_with_too_many_sessions_attaches_when_one_ends() {
    let cell = Cell::with(|config| config.limits.sessions_per_host = 1);
    let own = connect(cell.unix());
    let first = connect(cell.tcp());
    ask(&first, Call::GetStatus { fid: root(&first) });
    let there = cell.tcp();
    let later = std::thread::spawn(move || connect(there));
    wait_for("a refusal", || met(&own, "sessions-per-host") > 0);
    drop(first);
    let later = later.join().unwrap();
    ask(&later, Call::GetStatus { fid: root(&later) });
}

#[test]
fn of_too_many_sessions_of_nobody_the_oldest_ends() {
    let cell = Cell::among_strangers(|config| {
        config.limits.nobody_sessions = 3;
    });
    let own = connect(cell.unix());
    let strangers: Vec<Session> = (0..8).map(|_| connect(cell.tcp())).collect();
    assert!(met(&own, "nobody-sessions") >= 5);
    let last = &strangers[7];
    assert!(root(last) == root(&own), "nobody may look at the root");
}
