//! A server in a temporary directory, and clients of it.

#![allow(dead_code, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{
    BreakAck, CallError, ClientIdentity, Endpoint, Events, Remote, Session, SessionConfig,
};
use parking_lot::Mutex;
use server::{Server, ServerConfig, StartError};
use store::{NewRoot, OpenError, OpenOptions, Partition, PartitionConfig, VolumeQuota};
use tempfile::TempDir;
use types::{
    Answer, BreakItem, BreakReason, Call, Caller, CreateHow, Fid, Name, NewKind, Status, Time,
    Timestamp,
};

pub struct Cell {
    pub dir: TempDir,
    pub config: ServerConfig,
    pub server: Option<Server>,
}

impl Cell {
    pub fn new() -> Cell {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut ServerConfig)) -> Cell {
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        let dir = tempfile::tempdir().unwrap();
        let partition = dir.path().join("vicepa");
        make_partition(&partition);
        let mut config = ServerConfig::new(&partition);
        config.unix_socket = Some(dir.path().join("socket"));
        config.tcp_listen = Some("127.0.0.1:0".into());
        config.trust_this_machine();
        change(&mut config);
        let mut cell = Cell { dir, config, server: None };
        cell.start();
        cell
    }

    /// Its server trusts no machine in the network: a session over TCP is a stranger's there.
    pub fn among_strangers(change: impl FnOnce(&mut ServerConfig)) -> Cell {
        Self::with(|config| {
            config.owners.clear();
            change(config);
        })
    }

    pub fn start(&mut self) {
        let mut server = None;
        // After a crash a thread of the earlier server instance may still have the partition, since
        // the process goes on.
        wait_for("the partition of an earlier server instance", || {
            match Server::start(&self.config) {
                Err(StartError::Partition { error: OpenError::InUse { .. }, .. }) => false,
                started => {
                    server = Some(started.unwrap());
                    true
                }
            }
        });
        let server = server.unwrap();
        // The same port at the next start.
        for endpoint in server.endpoints() {
            if let Endpoint::Tcp(address) = endpoint {
                self.config.tcp_listen = Some(address.clone());
            }
        }
        self.server = Some(server);
    }

    /// Looks like a crash to others.
    pub fn crash(&mut self) {
        drop(self.server.take());
    }

    pub fn unix(&self) -> Endpoint {
        Endpoint::Unix(self.config.unix_socket.clone().unwrap())
    }

    pub fn tcp(&self) -> Endpoint {
        Endpoint::Tcp(self.config.tcp_listen.clone().unwrap())
    }

    pub fn both(&self) -> [Endpoint; 2] {
        [self.unix(), self.tcp()]
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

pub fn make_partition(path: &Path) {
    let partition =
        Partition::create(path, &PartitionConfig { server: "test".into() }, OpenOptions::default())
            .unwrap();
    let root = NewRoot {
        mode: 0o755,
        uid: 0,
        gid: 0,
        now: Timestamp::new(1, 0),
        quota: VolumeQuota::default(),
    };
    partition.volumes().create_volume(&name("root"), &root).unwrap();
    partition.sync().unwrap();
}

/// In the process that is killed: serves until its standard input ends.
pub fn serve_as_child(config: &ServerConfig) {
    let server = Server::start(config).unwrap();
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
    server.stop().unwrap();
}

/// Runs the test `child` of this program in a process of its own, which serves the partition in
/// `dir`; `variable` passes the path.
pub fn spawn_child(variable: &str, dir: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["child", "--exact", "--nocapture"]).env(variable, dir);
    let child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the server's socket", || {
        std::os::unix::net::UnixStream::connect(dir.join("socket")).is_ok()
    });
    child
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub fn connect(endpoint: Endpoint) -> Session {
    Session::connect(SessionConfig::new(endpoint, ClientIdentity::fleeting())).unwrap()
}

/// Calls as root and expects an answer.
pub fn ask(remote: &dyn Remote, call: Call) -> Answer {
    remote.call(&Caller::ROOT, call, None).unwrap().answer
}

pub fn try_ask(remote: &dyn Remote, call: Call) -> Result<Answer, CallError> {
    remote.call(&Caller::ROOT, call, None).map(|reply| reply.answer)
}

pub fn root(remote: &dyn Remote) -> Fid {
    status(&ask(remote, Call::Root { volume: name("root") })).fid
}

pub fn status(answer: &Answer) -> Status {
    match answer {
        Answer::Status(status)
        | Answer::Entry { status, .. }
        | Answer::Made { status, .. }
        | Answer::Data { status, .. }
        | Answer::Body { status }
        | Answer::Written { status, .. } => *status,
        other => panic!("no status in {other:?}"),
    }
}

pub fn make(remote: &dyn Remote, dir: Fid, file: &str) -> Fid {
    let call = Call::Make {
        dir,
        name: name(file),
        kind: NewKind::File,
        mode: 0o644,
        how: CreateHow::Guarded,
    };
    status(&ask(remote, call)).fid
}

pub fn append(remote: &dyn Remote, fid: Fid, data: impl Into<Bytes>) -> Result<Answer, CallError> {
    let data = data.into();
    try_ask(remote, Call::Write { fid, offset: None, data, stable: false, kill_privileges: false })
}

pub fn write(remote: &dyn Remote, fid: Fid, offset: u64, data: impl Into<Bytes>) -> Answer {
    let data = data.into();
    ask(
        remote,
        Call::Write { fid, offset: Some(offset), data, stable: false, kill_privileges: false },
    )
}

pub fn read(remote: &dyn Remote, fid: Fid, offset: u64, length: u32) -> Bytes {
    match ask(remote, Call::Read { fid, offset, length }) {
        Answer::Data { data, .. } => data,
        other => panic!("{other:?}"),
    }
}

/// Waits until `is_so` returns true.
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let before = Instant::now();
    while !is_so() {
        assert!(before.elapsed() < Duration::from_secs(30), "waited too long for: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Records the events of a session.
#[derive(Default)]
pub struct Recorder {
    pub breaks: Mutex<Vec<BreakItem>>,
    pub renewed: Mutex<Vec<Time>>,
    pub lost: Mutex<usize>,
    pub restarts: Mutex<usize>,
    /// The sink sleeps this long in each break.
    pub break_pause: Mutex<Duration>,
    /// Files that are open here.
    pub open: Mutex<Vec<Fid>>,
    /// Calls to make after a restart.
    pub claims: Mutex<Vec<Call>>,
    /// Their results.
    pub claimed: Mutex<Vec<Result<Answer, CallError>>>,
}

impl Recorder {
    pub fn of(session: &dyn Remote) -> Arc<Recorder> {
        let recorder = Arc::new(Recorder::default());
        session.set_events(recorder.clone());
        recorder
    }

    pub fn broken(&self, fid: Fid) -> bool {
        self.breaks.lock().iter().any(|item| item.fid == fid)
    }
}

impl Events for Recorder {
    fn on_break(&self, items: &[BreakItem], mut heard: BreakAck) {
        let pause = *self.break_pause.lock();
        std::thread::sleep(pause);
        self.breaks.lock().extend_from_slice(items);
        let open = self.open.lock();
        let removed = items.iter().filter(|item| item.reason == BreakReason::Removed);
        heard.hold(removed.map(|item| item.fid).filter(|fid| open.contains(fid)));
        heard.acknowledge();
    }

    fn on_renewed(&self, sent_at: Time) {
        self.renewed.lock().push(sent_at);
    }

    fn on_lease_lost(&self) {
        *self.lost.lock() += 1;
    }

    fn on_server_restarted(&self, reclaim: &dyn Remote) {
        let claims = self.claims.lock().clone();
        let results: Vec<_> = claims.into_iter().map(|call| try_ask(reclaim, call)).collect();
        self.claimed.lock().extend(results);
        *self.restarts.lock() += 1;
    }
}
