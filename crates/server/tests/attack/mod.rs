//! A cell under attack: sessions of *nobody* that do the worst that the protocol allows, and beside
//! them a user who has logged in.
//!
//! The server runs in a process of its own, so that its memory can be measured. The attackers come
//! from addresses of this machine's loopback network, some from each.

#![allow(dead_code, clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use client::{ClientIdentity, Endpoint, Remote, Session, SessionConfig};
use dafs::credentials::{ProofContext, TokenProof, Wallet};
use dafs::message::{Attach, Message};
use dafs::{Features, FrameHeader, FrameKind, Hello, HelloAnswer, Terms};
use fabric::tls::{ClientTls, ServerTls, Trust};
use guard::{Signer, Token};
use keys::{CellKeys, TokenKeys};
use login::{SigningKeys, TokenIssuer};
use server::{CellPlace, Server, ServerConfig};
use store::{NewRoot, OpenOptions, Partition, PartitionConfig, VolumeQuota};
use types::{
    Answer, AuthCall, AuthLevel, ByteRange, Call, Caller, ClientId, CreateHow, Fid, LockFamily,
    LockMode, LockOwner, Name, NewKind, NewPrincipal, PrincipalId, PrincipalKind, PtsCall,
    RequestIdentity, Secret, SessionId, StatusChange, Timestamp,
};

const CELL: &str = "cell.test";
const UID: u32 = 4711;
/// Attackers of one address.
const OF_ONE_HOST: usize = 50;
const FILES: usize = 200;

/// The work of an attacker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Looks everything up, and acknowledges nothing.
    Looker,
    /// Tries passwords of users that do not exist.
    Guesser,
    /// Locks every other byte of a file.
    Locker,
    /// Sends the most of a large write, again and again.
    Dribbler,
    /// Sends many requests and reads no answer.
    Deaf,
    /// Attaches, as another client each time.
    Newcomer,
    /// Syncs, holds, requests delegations and reports.
    Meddler,
    /// Shows invalid tokens.
    Forger,
}

pub const KINDS: [Kind; 8] = [
    Kind::Looker,
    Kind::Guesser,
    Kind::Locker,
    Kind::Dribbler,
    Kind::Deaf,
    Kind::Newcomer,
    Kind::Meddler,
    Kind::Forger,
];

/// The server's process.
pub struct Served {
    child: Child,
    pub dir: tempfile::TempDir,
    pub address: SocketAddr,
    pub own: Session,
    pub root: Fid,
    pub file: Fid,
    pub large: Fid,
    token: Vec<u8>,
    keys: CellKeys,
}

/// In the process of the server: serves the partition in `dir`, until its standard input ends.
pub fn serve(dir: &Path) {
    let keys = CellKeys::of(dir.join("keys"));
    let identity = keys.identity(&["127.0.0.1".to_owned()], SystemTime::now()).unwrap().0;
    let tokens = Arc::new(TokenKeys::of(dir));
    let mut config = ServerConfig::new(dir.join("vicepa"));
    config.unix_socket = Some(dir.join("socket"));
    config.tcp_listen = Some("127.0.0.1:0".into());
    config.tls = Some(Arc::new(
        ServerTls::new(identity, &keys.authority().certificates().unwrap()).unwrap(),
    ));
    config.clear = true;
    config.cell = Some(CellPlace::Here(dir.join("celldb")));
    config.audit = Some(dir.join("audit"));
    config.mint = Some(Arc::new(TokenIssuer::new(CELL, tokens)));
    let server = Server::start(&config).unwrap();
    let tcp = server.endpoints().iter().find_map(|endpoint| match endpoint {
        Endpoint::Tcp(address) => Some(address.clone()),
        Endpoint::Unix(_) => None,
    });
    std::fs::write(dir.join("address.new"), tcp.unwrap()).unwrap();
    std::fs::rename(dir.join("address.new"), dir.join("address")).unwrap();
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    server.stop().unwrap();
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().try_into().unwrap()
}

impl Served {
    /// `command`: of a process that calls [`serve`] with the directory that `STORM_DIR` names.
    pub fn start(mut command: Command) -> Served {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vicepa");
        let config = PartitionConfig { server: "test".into() };
        let partition = Partition::create(&path, &config, OpenOptions::default()).unwrap();
        let root = NewRoot {
            mode: 0o777,
            uid: 0,
            gid: 0,
            now: Timestamp::new(1, 0),
            quota: VolumeQuota::default(),
        };
        partition.volumes().create_volume(&name("root"), &root).unwrap();
        partition.sync().unwrap();
        drop(partition);
        let keys = CellKeys::of(dir.path().join("keys"));
        keys.authority().make(CELL, SystemTime::now()).unwrap();
        let tokens = TokenKeys::of(dir.path());
        tokens.make().unwrap();
        let mut child = command.env("STORM_DIR", dir.path()).stdin(Stdio::piped()).spawn().unwrap();
        let file = dir.path().join("address");
        let before = Instant::now();
        while !file.exists() {
            assert!(
                before.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none(),
                "no server"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        let address = std::fs::read_to_string(file).unwrap().parse().unwrap();
        let socket = Endpoint::Unix(dir.path().join("socket"));
        let own = Session::connect(SessionConfig::new(socket, ClientIdentity::fleeting())).unwrap();
        let joe = make_user(&own);
        let client = Signer::new(&[3; 32]);
        let token = Token {
            cell: CELL.to_owned(),
            key: 1,
            number: 5,
            principal: joe,
            name: "joe".to_owned(),
            level: AuthLevel::Password,
            issued: now(),
            expires: now() + 100_000,
            renewable: now() + 100_000,
            client: client.public(),
        };
        let token = token.sign(&tokens.newest().unwrap().1);
        let ask = |call| own.call(&Caller::ROOT, call, None).unwrap().answer;
        let Answer::Status(root) = ask(Call::Root { volume: name("root") }) else {
            panic!("a root")
        };
        let root = root.fid;
        let make = |at: &str, mode| {
            let how = CreateHow::Guarded;
            match ask(Call::Make { dir: root, name: name(at), kind: NewKind::File, mode, how }) {
                Answer::Made { status, .. } => status.fid,
                other => panic!("{other:?}"),
            }
        };
        let file = make("file", 0o644);
        let large = make("large", 0o666);
        (0..FILES).for_each(|number| {
            make(&format!("f{number}"), 0o644);
        });
        for (fid, bytes) in [(file, 4096), (large, 1 << 20)] {
            let data = Bytes::from(vec![7; bytes]);
            ask(Call::Write { fid, offset: Some(0), data, stable: false, kill_privileges: false });
        }
        let change = StatusChange { mode: Some(0o777), ..StatusChange::default() };
        ask(Call::SetStatus { fid: root, change });
        Served { child, dir, address, own, root, file, large, token, keys }
    }

    /// The session of a user who has logged in, over TLS.
    pub fn user(&self) -> User {
        let trust = Trust::Authorities(self.keys.authority().certificates().unwrap());
        let tls = Some(ClientTls::new(trust, None).unwrap());
        let mut config =
            SessionConfig::new(Endpoint::Tcp(self.address.to_string()), ClientIdentity::fleeting());
        config.options = fabric::ConnectionOptions { tls, ..Default::default() }.into();
        config.options.wallet =
            Some(Arc::new(Purse { token: self.token.clone(), client: Signer::new(&[3; 32]) }));
        User {
            session: Session::connect(config).unwrap(),
            root: self.root,
            file: self.file,
            made: 0,
            last: None,
        }
    }

    pub fn process(&self) -> u32 {
        self.child.id()
    }

    pub fn rss_mib(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    }

    pub fn report(&self) -> serde_json::Value {
        let Answer::Report(text) =
            self.own.call(&Caller::ROOT, Call::ServerReport, None).unwrap().answer
        else {
            panic!("a report")
        };
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn make_user(own: &Session) -> PrincipalId {
    let kind = PrincipalKind::User;
    let new = NewPrincipal {
        kind,
        name: "joe".into(),
        id: None,
        owner: None,
        uid: Some(UID),
        gid: Some(UID),
    };
    let call = PtsCall::Create { new: Box::new(new) };
    let before = Instant::now();
    loop {
        // The cell database may not be open yet.
        match own.call(
            &Caller::ROOT,
            Call::Pts { on_behalf: None, call: Box::new(call.clone()) },
            None,
        ) {
            Ok(reply) => {
                let Answer::Principals { mut principals, .. } = reply.answer else {
                    panic!("a principal")
                };
                return principals.pop().unwrap().0.id;
            }
            Err(error) => assert!(before.elapsed() < Duration::from_secs(20), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[derive(Debug)]
struct Purse {
    token: Vec<u8>,
    client: Signer,
}

impl Wallet for Purse {
    fn changes(&self) -> u64 {
        1
    }

    fn show(&self, caller: &Caller, line: &ProofContext) -> Option<TokenProof> {
        let binding = guard::binding(line.certificate.as_ref(), &line.challenge);
        let proof = guard::prove(&self.token, &binding, &self.client);
        (caller.uid == UID).then(|| TokenProof { token: Bytes::from(self.token.clone()), proof })
    }
}

/// A user who has logged in.
pub struct User {
    session: Session,
    root: Fid,
    file: Fid,
    made: u64,
    /// The file that it made last.
    last: Option<Fid>,
}

impl User {
    pub fn call(&self, call: Call) -> Answer {
        let caller = Caller { uid: UID, gid: UID, groups: None, who: RequestIdentity::NAMED };
        self.session.call(&caller, call, None).unwrap_or_else(|error| panic!("{error}")).answer
    }

    pub fn stat(&self) {
        assert!(matches!(self.call(Call::GetStatus { fid: self.file }), Answer::Status(_)));
    }

    /// Returns when it is on the disk.
    pub fn write_stable(&mut self) {
        self.create();
        let (fid, data) = (self.last.expect("one was made"), Bytes::from_static(b"stable"));
        let write =
            Call::Write { fid, offset: Some(0), data, stable: true, kill_privileges: false };
        assert!(matches!(self.call(write), Answer::Written { .. }));
    }

    pub fn read(&self) {
        match self.call(Call::Read { fid: self.file, offset: 0, length: 4096 }) {
            Answer::Data { data, .. } => assert_eq!(data.len(), 4096),
            other => panic!("{other:?}"),
        }
    }

    /// Makes a new file, in the directory that all sessions look at.
    pub fn create(&mut self) {
        self.made += 1;
        let at = name(&format!("made-{}-{}", self.made, rand::random::<u32>()));
        let (dir, how) = (self.root, CreateHow::Guarded);
        let made = self.call(Call::Make { dir, name: at, kind: NewKind::File, mode: 0o644, how });
        let Answer::Made { status, .. } = made else { panic!("{made:?}") };
        self.last = Some(status.fid);
    }

    /// Does each in turn until then. Returns the times of each kind, sorted: stat, create, read.
    pub fn measure(&mut self, until: Instant) -> [Vec<Duration>; 3] {
        // The user's machine does nothing else.
        let _ = mem::schedule::take_short_turns(Duration::from_micros(100));
        let mut took = [Vec::new(), Vec::new(), Vec::new()];
        while Instant::now() < until {
            let timed = |act: &mut dyn FnMut()| {
                let before = Instant::now();
                act();
                before.elapsed()
            };
            took[0].push(timed(&mut || self.stat()));
            took[1].push(timed(&mut || self.create()));
            took[2].push(timed(&mut || self.read()));
            // A user makes pauses.
            std::thread::sleep(Duration::from_millis(2));
        }
        took.iter_mut().for_each(|took| took.sort_unstable());
        took
    }
}

/// State that the attackers share.
#[derive(Default)]
pub struct Storm {
    stop: AtomicBool,
    pub attached: AtomicU64,
    pub refused: AtomicU64,
    pub requests: AtomicU64,
}

/// Attacks with this many attackers, in low-priority threads of this process, until `Storm::stop`.
pub fn attack(served: &Served, count: usize) -> (Arc<Storm>, Vec<std::thread::JoinHandle<()>>) {
    let storm = Arc::new(Storm::default());
    let places = (served.address, served.root, served.file, served.large);
    let begin = |number: usize| {
        let storm = Arc::clone(&storm);
        std::thread::Builder::new()
            .stack_size(256 << 10)
            .spawn(move || {
                // It represents another machine, and takes only the processor time that the server
                // leaves.
                let _ = mem::schedule::stand_back();
                while !storm.stop.load(Ordering::SeqCst) {
                    // It reconnects whatever the server does.
                    if Stranger::begin(&storm, places, number)
                        .and_then(|mut stranger| stranger.rage())
                        .is_err()
                    {
                        storm.refused.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(20));
                    }
                }
            })
            .unwrap()
    };
    let threads = (0..count).map(begin).collect();
    (storm, threads)
}

/// Bytes of a request and of its answer, as small calls have them.
const SMALL: usize = 128;

/// The minimal cost of an attack: this many clients exchange small messages with a thread that only
/// answers, at the priority of the server's thread for *nobody*. The effect on a user of the server
/// is the cost of the shared machine.
pub fn exchange_with_nobody(count: usize) -> (Arc<Storm>, Vec<std::thread::JoinHandle<()>>) {
    let storm = Arc::new(Storm::default());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut clients = Vec::new();
    let mut threads: Vec<_> = (0..count)
        .map(|_| {
            let (storm, mut stream) = (Arc::clone(&storm), TcpStream::connect(address).unwrap());
            stream.set_nodelay(true).unwrap();
            clients.push(listener.accept().unwrap().0);
            let exchange = move || {
                let _ = mem::schedule::stand_back();
                let mut messages = [0; SMALL * types::limits::NOBODY_CREDITS as usize];
                while !storm.stop.load(Ordering::SeqCst) {
                    if stream
                        .write_all(&messages)
                        .and_then(|()| stream.read_exact(&mut messages))
                        .is_err()
                    {
                        return;
                    }
                    storm
                        .requests
                        .fetch_add(u64::from(types::limits::NOBODY_CREDITS), Ordering::Relaxed);
                }
            };
            std::thread::Builder::new().stack_size(256 << 10).spawn(exchange).unwrap()
        })
        .collect();
    storm.attached.store(count as u64, Ordering::Relaxed);
    let answering = Arc::clone(&storm);
    threads.push(std::thread::spawn(move || {
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 19);
        answer_all(&answering, clients);
    }));
    (storm, threads)
}

/// Sends back what comes, until the storm is over.
fn answer_all(storm: &Storm, mut clients: Vec<TcpStream>) {
    use rustix::event::{PollFd, PollFlags, poll};
    let patience = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    let mut bytes = [0; 4096];
    while !storm.stop.load(Ordering::SeqCst) {
        let mut polled: Vec<PollFd<'_>> =
            clients.iter().map(|client| PollFd::new(client, PollFlags::IN)).collect();
        if poll(&mut polled, Some(&patience)).is_err() {
            return;
        }
        let ready: Vec<bool> = polled.iter().map(|client| !client.revents().is_empty()).collect();
        for (client, _) in clients.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            let count = client.read(&mut bytes).unwrap_or(0);
            let _ = client.write_all(&bytes[..count]);
        }
    }
}

impl Storm {
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

/// Each in turn, or the one that `STORM_KIND` names, to measure its cost alone.
fn kind_of(number: usize) -> Kind {
    let only = std::env::var("STORM_KIND").ok();
    let named = |kind: &&Kind| only.as_ref().is_some_and(|only| format!("{kind:?}") == *only);
    KINDS.iter().find(named).copied().unwrap_or(KINDS[number % KINDS.len()])
}

struct Stranger<'a> {
    storm: &'a Storm,
    kind: Kind,
    stream: TcpStream,
    session: SessionId,
    terms: Terms,
    requests: u64,
    root: Fid,
    file: Fid,
    large: Fid,
    next: u64,
}

/// A connection from this attacker's address.
pub fn connect_from(number: usize, to: SocketAddr) -> std::io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let host = u8::try_from(number / OF_ONE_HOST + 1).unwrap_or(255);
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &SocketAddr::from(([127, 0, 1, host], 0)))?;
    connect(&socket, &to)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.set_write_timeout(Some(Duration::from_secs(2)))?;
    Ok(stream)
}

fn other<E: std::fmt::Debug>(error: E) -> std::io::Error {
    std::io::Error::other(format!("{error:?}"))
}

impl<'a> Stranger<'a> {
    fn begin(
        storm: &'a Storm,
        (address, root, file, large): (SocketAddr, Fid, Fid, Fid),
        number: usize,
    ) -> std::io::Result<Stranger<'a>> {
        let mut stream = connect_from(number, address)?;
        let hello = Hello::full(Features::NONE);
        stream.write_all(&hello.to_bytes())?;
        let mut answer = [0; HelloAnswer::BYTES];
        stream.read_exact(&mut answer)?;
        let HelloAnswer::Welcome(terms) = HelloAnswer::parse(&answer, &hello).map_err(other)?
        else {
            return Err(other("refused"));
        };
        let kind = kind_of(number);
        let (session, requests, next) = (SessionId(0), 0, rand::random::<u32>().into());
        let mut stranger =
            Stranger { storm, kind, stream, session, terms, requests, root, file, large, next };
        let attach = Attach {
            client: ClientId(rand::random()),
            incarnation: 1,
            resume: None,
            display: "x".into(),
            pid: 1,
        };
        stranger.say(&Message::Attach(attach))?;
        let (header, _) = stranger.hear()?;
        if header.kind != FrameKind::Attached {
            return Err(other(header.kind));
        }
        stranger.session = header.session;
        let caller = Caller { uid: 0, gid: 0, groups: None, who: RequestIdentity::NAMED };
        stranger.say(&Message::Credential { handle: 1, caller })?;
        storm.attached.fetch_add(1, Ordering::Relaxed);
        Ok(stranger)
    }

    fn say(&mut self, message: &Message) -> std::io::Result<()> {
        let frame = message.to_frame(self.session).map_err(other)?.sealed(self.terms.features);
        self.stream.write_all(&[&frame.header.to_bytes()[..], &frame.message[..]].concat())
    }

    fn hear(&mut self) -> std::io::Result<(FrameHeader, Vec<u8>)> {
        let mut bytes = [0; FrameHeader::BYTES];
        self.stream.read_exact(&mut bytes)?;
        let header = FrameHeader::parse(&bytes).map_err(other)?;
        let mut rest = vec![0; header.message_bytes as usize + header.payload_bytes as usize];
        self.stream.read_exact(&mut rest)?;
        Ok((header, rest))
    }

    fn frame(&self, call: &Call, slot: u32, credential: u32) -> std::io::Result<Vec<u8>> {
        let call = dafs::encode_call(call).map_err(other)?;
        let mut header = FrameHeader::new(FrameKind::Request, self.session);
        (header.procedure, header.slot, header.request) = (call.procedure, slot, self.requests);
        header.credential = credential;
        let frame =
            dafs::Frame::new(header, call.message, call.payload).sealed(self.terms.features);
        Ok([&frame.header.to_bytes()[..], &frame.message[..], &frame.payload[..]].concat())
    }

    /// One request in each of its slots.
    fn ask_all(&mut self, credential: u32) -> std::io::Result<()> {
        self.requests += 1;
        let mut bytes = Vec::new();
        for slot in 0..types::limits::NOBODY_CREDITS {
            let call = self.call();
            bytes.extend(self.frame(&call, slot, credential)?);
        }
        self.storm.requests.fetch_add(u64::from(types::limits::NOBODY_CREDITS), Ordering::Relaxed);
        self.stream.write_all(&bytes)
    }

    /// Reads the replies; answers nothing else.
    fn take_replies(&mut self) -> std::io::Result<()> {
        let mut replies = 0;
        while replies < types::limits::NOBODY_CREDITS {
            let (header, _) = self.hear()?;
            match header.kind {
                FrameKind::Reply => replies += 1,
                FrameKind::Goodbye => return Err(other("goodbye")),
                _ => {}
            }
        }
        Ok(())
    }

    fn call(&mut self) -> Call {
        self.next += 1;
        let next = self.next;
        let (root, file, large) = (self.root, self.file, self.large);
        match self.kind {
            Kind::Looker | Kind::Newcomer | Kind::Forger => match next % 4 {
                0 => Call::Lookup { dir: root, name: name(&format!("f{}", next as usize % FILES)) },
                1 => Call::GetStatus { fid: root },
                2 => Call::GetStatus { fid: file },
                _ => Call::Read { fid: file, offset: 0, length: 4096 },
            },
            Kind::Guesser => {
                let password = Secret::new(b"guess it, guess it".to_vec());
                let call =
                    AuthCall::Password { name: format!("user{next}"), password, client: [0; 32] };
                Call::Auth { behalf: None, call: Box::new(call) }
            }
            Kind::Locker => {
                let (start, wait) = (next * 2, next.is_multiple_of(2));
                let (family, mode) = (LockFamily::Posix, LockMode::Exclusive);
                let (owner, range) = (LockOwner(next), ByteRange { start, end: start });
                Call::Lock { fid: large, owner, pid: 1, family, range, mode, wait, reclaim: false }
            }
            Kind::Deaf => Call::Read { fid: large, offset: 0, length: 1 << 20 },
            Kind::Dribbler => {
                let data = Bytes::from(vec![1; 1 << 20]);
                Call::Write {
                    fid: large,
                    offset: Some(0),
                    data,
                    stable: false,
                    kill_privileges: false,
                }
            }
            Kind::Meddler => match next % 5 {
                0 => Call::CommitVolume { fid: root },
                1 => Call::Delegate { fid: root },
                2 => Call::Hold { fids: vec![file, large] },
                3 => Call::ServerReport,
                _ => Call::Write {
                    fid: large,
                    offset: Some(next % 1000),
                    data: Bytes::from_static(b"x"),
                    stable: true,
                    kill_privileges: false,
                },
            },
        }
    }

    fn rage(&mut self) -> std::io::Result<()> {
        while !self.storm.stop.load(Ordering::SeqCst) {
            match self.kind {
                Kind::Newcomer => {
                    self.ask_all(1)?;
                    return self.take_replies();
                }
                Kind::Deaf => {
                    self.ask_all(1)?;
                    // Until it is cut off.
                    let mut end = [0; 1];
                    while !self.storm.stop.load(Ordering::SeqCst) && self.stream.peek(&mut end)? > 0
                    {
                        std::thread::sleep(Duration::from_millis(200));
                    }
                    return Ok(());
                }
                Kind::Dribbler => {
                    self.requests += 1;
                    let call = self.call();
                    let bytes = self.frame(&call, 0, 1)?;
                    self.stream.write_all(&bytes[..bytes.len() - 1])?;
                    // It sends nothing more until it is cut off, or until a time limit.
                    let mut end = [0; 1];
                    let until = Instant::now() + Duration::from_secs(10);
                    while !self.storm.stop.load(Ordering::SeqCst) && Instant::now() < until {
                        match self.stream.read(&mut end) {
                            Ok(0) => return Ok(()),
                            Ok(_) => {}
                            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                            Err(error) => return Err(error),
                        }
                    }
                    return Ok(());
                }
                Kind::Forger => {
                    let shown = TokenProof { token: Bytes::from(vec![9; 300]), proof: [1; 64] };
                    self.say(&Message::Token { handle: 2, shown })?;
                    self.ask_all(2)?;
                    self.take_replies()?;
                }
                _ => {
                    self.ask_all(1)?;
                    self.take_replies()?;
                }
            }
        }
        Ok(())
    }
}
