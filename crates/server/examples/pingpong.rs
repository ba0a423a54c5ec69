//! The speed of calls through a server and a client in one process each, over both kinds of
//! sockets.
//!
//! `cargo run --release -p server --example pingpong` starts the server as a child process, so that
//! both have their own threads and the numbers are those of two programs. Takes about ten seconds.
//!
//! With KEEP in the environment the client keeps what a successor of its process needs, also the
//! answers to its small writes.
//!
//! With the argument `delegated`: the cost of 10,000 new files of 4 KiB that come in chains of 64
//! delegated changes, of a listing of them by another session, and of their removal.

use std::error::Error;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{Cancel, ClientIdentity, Endpoint, Remote, Session, SessionConfig};
use keep::Keep;
use server::{Server, ServerConfig};
use store::{NewRoot, OpenOptions, Partition, PartitionConfig, VolumeQuota};
use types::{
    Answer, Call, Caller, Cookie, CreateHow, Fid, Name, NewKind, RemoveWhat, Timestamp, VnodeSlots,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const MIB: u32 = 1 << 20;
const FILE_MIB: u64 = 64;
const ROUND: Duration = Duration::from_millis(1500);

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("serve") => serve(Path::new(&arguments[2])),
        Some("delegated") => delegated(),
        _ => measure(),
    }
}

fn serve(dir: &Path) -> Outcome<()> {
    let partition = dir.join("vicepa");
    let config = PartitionConfig { server: "pingpong".to_owned() };
    let created = Partition::create(&partition, &config, OpenOptions::default())?;
    let root = NewRoot {
        mode: 0o755,
        uid: 0,
        gid: 0,
        now: Timestamp::new(1, 0),
        quota: VolumeQuota::default(),
    };
    created.volumes().create_volume(&Name::new(b"root")?, &root)?;
    drop(created);
    let mut config = ServerConfig::new(partition);
    config.unix_socket = Some(dir.join("socket"));
    config.tcp_listen = Some("127.0.0.1:0".to_owned());
    config.trust_this_machine();
    config.options.connection.congestion = std::env::var("CONGESTION").ok();
    let server = Server::start(&config)?;
    let endpoints: Vec<String> = server.endpoints().iter().map(Endpoint::to_string).collect();
    std::fs::write(dir.join("endpoints.new"), endpoints.join("\n"))?;
    std::fs::rename(dir.join("endpoints.new"), dir.join("endpoints"))?;
    // Until standard input ends.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    server.stop()?;
    Ok(())
}

struct Served {
    child: Child,
    endpoints: Vec<Endpoint>,
    _dir: tempfile::TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn start() -> Outcome<Served> {
    let dir = tempfile::tempdir_in(std::env::var("DIR").unwrap_or_else(|_| "/var/tmp".to_owned()))?;
    let child = Command::new(std::env::current_exe()?)
        .arg("serve")
        .arg(dir.path())
        .stdin(Stdio::piped())
        .spawn()?;
    let file = dir.path().join("endpoints");
    let until = Instant::now() + Duration::from_secs(20);
    while !file.exists() {
        if Instant::now() > until {
            return Err("the server does not start".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let text = std::fs::read_to_string(file)?;
    let endpoints = text.lines().map(str::parse).collect::<Result<_, _>>()?;
    Ok(Served { child, endpoints, _dir: dir })
}

fn measure() -> Outcome<()> {
    let served = start()?;
    println!(
        "{:<6} {:<12} {:>4} {:>14} {:>10} {:>14}",
        "over", "call", "QD", "rate", "p50 us", "cpu us/call"
    );
    for endpoint in &served.endpoints {
        let over = if matches!(endpoint, Endpoint::Unix(_)) { "unix" } else { "tcp" };
        let mut config = SessionConfig::new(endpoint.clone(), ClientIdentity::fleeting());
        config.options.connection.congestion = std::env::var("CONGESTION").ok();
        if std::env::var_os("KEEP").is_some() {
            config.options.keep = Some(Keep::create()?);
        }
        let session = Session::connect(config)?;
        let file = prepare(&session, over)?;
        for depth in [1, 2, 16] {
            run(&served, over, "GetStatus", depth, None, |_| {
                ask(&session, Call::GetStatus { fid: file });
            });
        }
        for depth in [1, 16] {
            let data = Bytes::from_static(&[7; 100]);
            run(&served, over, "write 100", depth, None, |turn| {
                let (offset, data) = (Some(turn % 1000 * 100), data.clone());
                let (stable, kill_privileges) = (false, false);
                let call = Call::Write { fid: file, offset, data, stable, kill_privileges };
                let request = Cancel::of_request();
                if let Err(error) = session.call(&Caller::ROOT, call, Some(&request)) {
                    panic!("{error}");
                }
            });
        }
        for depth in [1, 16] {
            run(&served, over, "read 4K", depth, Some(4096), |turn| {
                ask(
                    &session,
                    Call::Read { fid: file, offset: turn * 4096 % (u64::from(MIB)), length: 4096 },
                );
            });
        }
        for depth in [1, 4] {
            run(&served, over, "read 1M", depth, Some(MIB), |turn| {
                let offset = turn % FILE_MIB * u64::from(MIB);
                ask(&session, Call::Read { fid: file, offset, length: MIB });
            });
        }
        let data = Bytes::from(vec![0x5a; MIB as usize]);
        for depth in [1, 4] {
            run(&served, over, "write 1M", depth, Some(MIB), |turn| {
                let offset = Some(turn % FILE_MIB * u64::from(MIB));
                let data = data.clone();
                ask(
                    &session,
                    Call::Write { fid: file, offset, data, stable: false, kill_privileges: false },
                );
            });
        }
    }
    Ok(())
}

/// Files of one directory; the environment's FILES sets another number.
fn files() -> u64 {
    std::env::var("FILES").ok().and_then(|files| files.parse().ok()).unwrap_or(10_000)
}

/// Members of one chain.
const CHAIN: usize = 64;

/// New files in a delegated directory, a listing of it by another session, and their removal: the
/// server's cost of each.
fn delegated() -> Outcome<()> {
    let served = start()?;
    for endpoint in &served.endpoints {
        let over = if matches!(endpoint, Endpoint::Unix(_)) { "unix" } else { "tcp" };
        let connect =
            || Session::connect(SessionConfig::new(endpoint.clone(), ClientIdentity::fleeting()));
        let session = connect()?;
        let root = session.call(&Caller::ROOT, Call::Root { volume: Name::new(b"root")? }, None)?;
        let root = root.answer.current().ok_or("no root")?;
        let (name, how) = (Name::new(over.as_bytes())?, CreateHow::Guarded);
        let made = Call::Make { dir: root, name, kind: NewKind::Directory, mode: 0o755, how };
        let dir = session.call(&Caller::ROOT, made, None)?.answer.current().ok_or("not made")?;
        let spent = Spent::begin(&served);
        let chains = make_files(&session, dir)?;
        session.call(&Caller::ROOT, Call::Return { fids: vec![dir] }, None)?;
        spent.tell(&format!("{over}: {} files made", files()), "member", 2 * files(), chains);
        let spent = Spent::begin(&served);
        let pages = list(&connect()?, dir)?;
        spent.tell(&format!("{over}: listed"), "entry", files(), pages);
        take_back(&session, dir)?;
        let spent = Spent::begin(&served);
        let chains = remove_files(&session, dir)?;
        spent.tell(&format!("{over}: removed"), "member", files(), chains);
    }
    Ok(())
}

/// The server's use of resources at the start of a measurement.
struct Spent<'s> {
    served: &'s Served,
    began: Instant,
    ticks: f64,
    switches: u64,
}

impl Spent<'_> {
    fn begin(served: &Served) -> Spent<'_> {
        let pid = served.child.id();
        Spent { served, began: Instant::now(), ticks: cpu_ticks(pid), switches: switches(pid) }
    }

    fn tell(self, what: &str, each: &str, count: u64, requests: u64) {
        let (took, pid) = (self.began.elapsed(), self.served.child.id());
        let cpu = (cpu_ticks(pid) - self.ticks) * 10_000.0 / count as f64;
        let switched = (switches(pid) - self.switches) as f64 / requests as f64;
        println!(
            "{what} in {took:.2?}; the server: {cpu:.1} us CPU for each {each}, {switched:.2} \
                sleeps a request"
        );
    }
}

/// Returns the number of chains.
fn make_files(session: &Session, dir: Fid) -> Outcome<u64> {
    let mut slots = VnodeSlots::default();
    let mut chains = 0;
    let mut calls = Vec::new();
    for file in 0..files() {
        if slots.count == 0 {
            let answer = session.call(&Caller::ROOT, Call::Delegate { fid: dir }, None)?.answer;
            let Answer::Delegation { slots: more, .. } = answer else {
                return Err("not delegated".into());
            };
            slots = more;
        }
        let slot = slots.take().ok_or("a delegation brings slots")?;
        let (kind, how) = (NewKind::File, CreateHow::Guarded);
        let make = Call::Make {
            dir,
            name: Name::new(format!("file-{file}").as_bytes())?,
            kind,
            mode: 0o644,
            how,
        };
        let (fid, data) = (slots.fid(dir.volume, slot, false), Bytes::from(vec![0x5a; 4096]));
        let write =
            Call::Write { fid, offset: Some(0), data, stable: false, kill_privileges: false };
        calls.push(delegated_call(slot, make));
        calls.push(delegated_call(0, write));
        chains += send_if_full(session, &mut calls, file + 1 == files())?;
    }
    Ok(chains)
}

/// Lists every entry with its status, so that all are promised; returns the number of pages.
fn list(session: &Session, dir: Fid) -> Outcome<u64> {
    let (mut cookie, mut pages, mut listed) = (Cookie::START, 0, 0);
    loop {
        let call = Call::ReadDir { dir, cookie, bytes_max: 256 << 10, plus: true };
        let Answer::Entries { entries, end, .. } = session.call(&Caller::ROOT, call, None)?.answer
        else {
            return Err("not listed".into());
        };
        (pages, listed) = (
            pages + 1,
            listed + entries.iter().filter(|entry| entry.status.is_some()).count() as u64,
        );
        cookie = entries.last().map_or(cookie, |entry| entry.cookie);
        if end {
            return if listed == files() {
                Ok(pages)
            } else {
                Err(format!("{listed} entries with status").into())
            };
        }
    }
}

/// Gets the delegation of the directory again.
fn take_back(session: &Session, dir: Fid) -> Outcome<()> {
    while session.call(&Caller::ROOT, Call::Delegate { fid: dir }, None).is_err() {
        std::thread::sleep(Duration::from_millis(100));
    }
    list(session, dir).map(drop)
}

/// Returns the number of chains.
fn remove_files(session: &Session, dir: Fid) -> Outcome<u64> {
    let (mut chains, mut calls) = (0, Vec::new());
    for file in 0..files() {
        let name = Name::new(format!("file-{file}").as_bytes())?;
        calls.push(delegated_call(
            0,
            Call::Remove { dir, name, what: RemoveWhat::File, hold: false },
        ));
        chains += send_if_full(session, &mut calls, file + 1 == files())?;
    }
    Ok(chains)
}

fn delegated_call(slot: u64, call: Call) -> Call {
    Call::Delegated { at: Timestamp::new(1_000, 0), slot, call: Box::new(call) }
}

/// Returns how many chains were sent.
fn send_if_full(session: &Session, calls: &mut Vec<Call>, last: bool) -> Outcome<u64> {
    if calls.len() < CHAIN && !last {
        return Ok(0);
    }
    for result in session.chain(&Caller::ROOT, std::mem::take(calls)) {
        result?;
    }
    Ok(1)
}

/// How often threads of a process went to sleep.
fn switches(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |text: String| -> u64 {
        let counts = text.lines().filter(|line| line.starts_with("voluntary_ctxt_switches"));
        counts.filter_map(|line| line.rsplit('\t').next()?.parse::<u64>().ok()).sum()
    };
    tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok()).map(of).sum()
}

fn ask(session: &Session, call: Call) {
    if let Err(error) = session.call(&Caller::ROOT, call, None) {
        panic!("{error}");
    }
}

fn prepare(session: &Session, over: &str) -> Outcome<Fid> {
    let root = session.call(&Caller::ROOT, Call::Root { volume: Name::new(b"root")? }, None)?;
    let dir = root.answer.current().ok_or("no root")?;
    let make = Call::Make {
        dir,
        name: Name::new(over.as_bytes())?,
        kind: NewKind::File,
        mode: 0o600,
        how: CreateHow::Guarded,
    };
    let Answer::Made { status, .. } = session.call(&Caller::ROOT, make, None)?.answer else {
        return Err("not made".into());
    };
    let data = Bytes::from(vec![0xa5; MIB as usize]);
    for index in 0..FILE_MIB {
        let offset = Some(index * u64::from(MIB));
        let fid = status.fid;
        let data = data.clone();
        session.call(
            &Caller::ROOT,
            Call::Write { fid, offset, data, stable: false, kill_privileges: false },
            None,
        )?;
    }
    session.call(&Caller::ROOT, Call::Commit { fid: status.fid }, None)?;
    Ok(status.fid)
}

fn run(
    served: &Served,
    over: &str,
    what: &str,
    depth: usize,
    bytes: Option<u32>,
    call: impl Fn(u64) + Sync,
) {
    let (stop, turns) = (AtomicBool::new(false), AtomicU64::new(0));
    let cpu_before = cpu_ticks(std::process::id()) + cpu_ticks(served.child.id());
    let began = Instant::now();
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        let caller = || {
            let mut times = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let turn = turns.fetch_add(1, Ordering::Relaxed);
                let before = Instant::now();
                call(turn);
                times.push(before.elapsed());
            }
            times
        };
        let threads: Vec<_> = (0..depth).map(|_| scope.spawn(caller)).collect();
        std::thread::sleep(ROUND);
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    });
    let took = began.elapsed().as_secs_f64();
    let cpu = cpu_ticks(std::process::id()) + cpu_ticks(served.child.id()) - cpu_before;
    times.sort();
    let count = times.len() as f64;
    let rate = match bytes {
        Some(bytes) if bytes >= MIB => {
            format!("{:.2} GiB/s", count * f64::from(bytes) / took / f64::from(1 << 30))
        }
        _ => format!("{:.1} k/s", count / took / 1000.0),
    };
    let p50 = times.get(times.len() / 2).map_or(0, Duration::as_micros);
    println!(
        "{over:<6} {what:<12} {depth:>4} {rate:>14} {p50:>10} {:>14.1}",
        cpu * 10_000.0 / count
    );
}

/// Processor time of all present threads of a process, in hundredths of a second.
fn cpu_ticks(pid: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |text: String| {
        text.split_ascii_whitespace().next().and_then(|nanos| nanos.parse::<f64>().ok())
    };
    tasks
        .filter_map(|task| of(std::fs::read_to_string(task.path().join("schedstat")).ok()?))
        .sum::<f64>()
        / 1e7
}
