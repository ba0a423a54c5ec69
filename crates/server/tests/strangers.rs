//! What anybody can do who reaches the server, and what it must not cost those who have logged in. `examples/strangers.rs` measures it.

#![allow(clippy::unwrap_used)]

mod common;
mod storm;

use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::wait_for;

#[test]
#[ignore = "run by other tests as a process of its own"]
fn serve_for_another_test() {
    storm::serve(std::path::Path::new(&std::env::var("STORM_DIR").unwrap()));
}

fn served() -> storm::Served {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "serve_for_another_test", "--ignored", "--nocapture"]).stdout(std::process::Stdio::null());
    storm::Served::start(command)
}

#[test]
fn a_user_goes_on_working_among_strangers_and_the_server_stays_small() {
    let served = served();
    let mut user = served.user();
    user.measure(Instant::now() + Duration::from_millis(300));
    let before = served.rss_mib();
    let (storm, threads) = storm::attack(&served, 200);
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
    assert!(used["nobody-sessions"].as_u64().unwrap() > 0 && used["sessions"].as_u64().unwrap() >= 2, "{used}");
    assert!(met["passwords"].as_u64().unwrap() > 0 && met["log-lines"].as_u64().unwrap() > 0, "{met}");
    assert_eq!(report["server"]["panics"].as_u64(), Some(0));
    assert_eq!(report["delegations"].as_u64(), Some(0), "no directory is a stranger's alone");
    user.stat();
    served.user().create();
}
