//! 500 sessions of *nobody* do the worst that the protocol allows, while a user who has logged in
//! works: `strangers [--seconds N] [--sessions N] [--check | --floor]`.
//!
//! Prints the user's 99th percentiles quiet and under attack, the longest time that a change
//! waited, and the growth of the server's memory. With `--check` it fails if a bound is exceeded: 3
//! times the quiet 99th percentile, one second, 256 MiB, and the server serves afterwards. With
//! `--floor` as many clients exchange small messages with a thread that only answers: the attackers
//! share this machine's processors with the server, and this is the cost of that alone.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "../tests/attack/mod.rs"]
mod attack;

use std::process::{Command, ExitCode};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const OPERATIONS: [&str; 3] = ["stat", "create", "read"];
/// How long the quiet 99th percentile is measured.
const QUIET: Duration = Duration::from_secs(10);
/// How long the attackers need until all are attached.
const GATHER: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    if let Ok(dir) = std::env::var("STORM_DIR") {
        attack::serve(std::path::Path::new(&dir));
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |flag: &str, usual: u64| {
        let at = arguments.iter().position(|argument| argument == flag);
        at.and_then(|at| arguments.get(at + 1)).map_or(usual, |text| text.parse().unwrap())
    };
    let (seconds, sessions) = (number("--seconds", 60), number("--sessions", 500));
    let served = attack::Served::start(Command::new(std::env::current_exe().unwrap()));
    let mut user = served.user();
    user.measure(Instant::now() + Duration::from_secs(1));
    let before = served.rss_mib();
    let quiet = user.measure(Instant::now() + QUIET);
    let count = usize::try_from(sessions).unwrap();
    let floor = arguments.iter().any(|argument| argument == "--floor");
    let (storm, threads) =
        if floor { attack::exchange_with_nobody(count) } else { attack::attack(&served, count) };
    std::thread::sleep(GATHER);
    let until = Instant::now() + Duration::from_secs(seconds);
    let highest = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut highest = 0;
            while Instant::now() < until {
                highest = served.rss_mib().max(highest);
                std::thread::sleep(Duration::from_millis(200));
            }
            highest
        });
        let loud = user.measure(until);
        (watch.join().unwrap(), loud)
    });
    let (highest, loud) = highest;
    let report = served.report();
    storm.stop();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    user.stat();
    let mut later = served.user();
    later.create();

    let count = |what: &std::sync::atomic::AtomicU64| what.load(Ordering::Relaxed);
    println!(
        "{sessions} strangers for {seconds} s: {} attached, {} turned away or cut off, {} requests",
        count(&storm.attached),
        count(&storm.refused),
        count(&storm.requests)
    );
    println!("used: {}", report["server"]["used"]);
    println!("met: {}", report["server"]["met"]);
    let mut good = true;
    println!("            count       p50       p99    at most   (quiet, then under attack)");
    for ((operation, quiet), loud) in OPERATIONS.iter().zip(&quiet).zip(&loud) {
        for took in [quiet, loud] {
            let (p50, p99, most) =
                (at(took, 50), at(took, 99), took.last().copied().unwrap_or_default());
            println!("{operation:>8} {:>8} {p50:>9.2?} {p99:>9.2?} {most:>10.2?}", took.len());
        }
        let (calm, storm) = (at(quiet, 99), at(loud, 99));
        println!(
            "{operation:>8} 99th percentile: {:.1} times the quiet one",
            storm.as_secs_f64() / calm.as_secs_f64()
        );
        good &= storm <= calm * 3;
    }
    let longest = loud[1].last().copied().unwrap_or_default();
    good &= longest <= Duration::from_secs(1) && highest.saturating_sub(before) <= 256;
    println!(
        "a change waited {longest:.2?} at most; memory {before} MiB, at most {highest} MiB under \
            attack"
    );
    println!("{}", if good { "the bar is held" } else { "the bar is NOT held" });
    let checks = arguments.iter().any(|argument| argument == "--check");
    if checks && !good { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn at(took: &[Duration], percent: usize) -> Duration {
    took.get(took.len() * percent / 100).copied().unwrap_or_default()
}
