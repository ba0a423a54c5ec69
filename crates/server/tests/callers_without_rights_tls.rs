//! A caller without rights, through TCP and TLS: no well-formed call of any kind reveals or changes
//! what is closed to its caller (AC-7), with the whole server between: handshake, credentials,
//! tokens, fences, sessions.
//!
//! Two servers serve copies of one partition and one cell database, so that both give the same file
//! the same fid. Then each is filled with contents, attributes, link targets and closed names of
//! its own. The same calls go to both, one at a time, from callers who have no right to what
//! differs. Equal answers mean that nothing of it was revealed. Clocks, free space and addresses
//! differ between any two servers and are masked; `vice/tests/callers_without_rights.rs` compares
//! times and breaks too, under a clock of its own.
//!
//! `STRANGER_CALLS` is the number of calls that each server gets.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::{ask, name};
use bytes::Bytes;
use client::{
    BreakAck, CallError, ClientIdentity, Endpoint, Events, Remote, Session, SessionConfig,
};
use dafs::credentials::{ProofContext, TokenProof, Wallet};
use fabric::tls::{ClientTls, ServerTls, Trust};
use guard::{Signer, Token};
use keys::{CellKeys, TokenKeys};
use login::{SigningKeys, TokenIssuer};
use parking_lot::Mutex;
use rand::Rng;
use server::{CellPlace, Server, ServerConfig};
use store::{NewRoot, OpenOptions, Partition, PartitionConfig, VolumeQuota};
use testkit::stranger::{AccessRule, Owner, Places, StrangerCalls};
use types::{
    Answer, AuthLevel, BootVerifier, BreakItem, BreakReason, Call, Caller, Fault, Fid, GuardCall,
    NewPrincipal, PrincipalChange, PrincipalId, PrincipalKind, PtsCall, RemoveWhat,
    RequestIdentity, Status, Time, Timestamp, Whom,
};

const CELL: &str = "cell.test";
const VOLUME: &str = "root";
/// Local users of the clients' machines, and the users of their tokens.
const JOE: u32 = 4711;
const BOB: u32 = 4712;
const EXPIRED: u32 = 4713;
const FENCED: u32 = 4714;
const REVOKED: u32 = 4715;
const FORGED: u32 = 4716;
const WITHOUT: u32 = 4717;
/// Limits what the callers fill, on the disk too.
const QUOTA_BYTES: u64 = 256 << 20;

/// The sessions that calls come through.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
enum Through {
    /// The machine of the files' owner, who has logged in there.
    Owner,
    /// A machine where other users, without rights, have logged in.
    Users,
    /// A machine from which no user ever calls.
    Nobody,
    /// A trusted host, whose superuser the server does not accept.
    Host,
}

fn seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().try_into().unwrap()
}

/// The tokens of a machine's users.
#[derive(Debug)]
struct TestWallet {
    tokens: BTreeMap<u32, Vec<u8>>,
}

fn client_key() -> Signer {
    Signer::new(&[3; 32])
}

impl Wallet for TestWallet {
    fn changes(&self) -> u64 {
        1
    }

    fn show(&self, caller: &Caller, line: &ProofContext) -> Option<TokenProof> {
        let token = self.tokens.get(&caller.uid)?;
        let binding = guard::binding(line.certificate.as_ref(), &line.challenge);
        let proof = guard::prove(token, &binding, &client_key());
        Some(TokenProof { token: Bytes::from(token.clone()), proof })
    }
}

/// Records the breaks of a session, and returns recalled delegations.
struct Listener {
    breaks: Mutex<Vec<(Fid, BreakReason, Option<types::Name>)>>,
    recalled: Mutex<Sender<Vec<Fid>>>,
}

impl Events for Listener {
    fn on_break(&self, items: &[BreakItem], ack: BreakAck) {
        let mut breaks = self.breaks.lock();
        breaks.extend(items.iter().map(|item| (item.fid, item.reason, item.name.clone())));
        let recalls = items.iter().filter(|item| item.reason == BreakReason::Recall);
        let recalled: Vec<Fid> = recalls.map(|item| item.fid).collect();
        if !recalled.is_empty() {
            let _ = self.recalled.lock().send(recalled);
        }
        ack.acknowledge();
    }
    fn on_renewed(&self, _sent_at: Time) {}
    fn on_lease_lost(&self) {
        panic!("the lease of a session under test is lost, so the two servers cannot be compared");
    }
    fn on_server_restarted(&self, _reclaim: &dyn Remote) {}
}

struct Client {
    session: Arc<Session>,
    listener: Arc<Listener>,
}

impl Client {
    fn of(config: SessionConfig) -> Client {
        let session = Arc::new(Session::connect(config).unwrap());
        let (sender, recalls) = channel::<Vec<Fid>>();
        let listener =
            Arc::new(Listener { breaks: Mutex::default(), recalled: Mutex::new(sender) });
        session.set_events(listener.clone());
        let returning = Arc::downgrade(&session);
        std::thread::spawn(move || {
            for fids in recalls {
                let Some(session) = returning.upgrade() else { return };
                let _ = session.call_urgently(&plain(BOB), Call::Return { fids }, None);
            }
        });
        Client { session, listener }
    }
}

fn plain(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: Some(Box::default()), who: RequestIdentity::NAMED }
}

/// The callers and their sessions. Each is refused what is closed, for a reason of its own.
fn strangers(with_host: bool) -> Vec<(Through, u32)> {
    let mut all = vec![
        (Through::Nobody, WITHOUT),
        (Through::Nobody, 0),
        (Through::Nobody, JOE),
        (Through::Users, WITHOUT),
        (Through::Users, 0),
        (Through::Users, JOE),
        (Through::Users, BOB),
        (Through::Users, EXPIRED),
        (Through::Users, FENCED),
        (Through::Users, REVOKED),
        (Through::Users, FORGED),
        (Through::Owner, WITHOUT),
        (Through::Owner, BOB),
        (Through::Owner, 0),
    ];
    if with_host {
        all.extend([(Through::Host, 0); 2]);
    }
    all
}

/// The originals of both servers' copies: a volume, users, a fence, keys.
struct Base {
    dir: tempfile::TempDir,
    joe: PrincipalId,
    bob: PrincipalId,
    fenced: PrincipalId,
    revoked: PrincipalId,
}

fn make_user(own: &Session, name: &str, uid: u32) -> PrincipalId {
    let kind = PrincipalKind::User;
    let new = NewPrincipal {
        kind,
        name: name.into(),
        id: None,
        owner: None,
        uid: Some(uid),
        gid: Some(uid),
    };
    let call = PtsCall::Create { new: Box::new(new) };
    match ask(own, Call::Pts { on_behalf: None, call: Box::new(call) }) {
        Answer::Principals { principals, .. } => principals[0].0.id,
        other => panic!("{other:?}"),
    }
}

impl Base {
    fn new() -> Base {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vicepa");
        let partition =
            Partition::create(&path, &PartitionConfig { server: "test".into() }, seeded()).unwrap();
        let quota = VolumeQuota { bytes: QUOTA_BYTES, ..VolumeQuota::default() };
        let root = NewRoot { mode: 0o755, uid: 0, gid: 0, now: Timestamp::new(1, 0), quota };
        partition.volumes().create_volume(&name(VOLUME), &root).unwrap();
        partition.sync().unwrap();
        drop(partition);
        CellKeys::of(dir.path().join("keys")).authority().make(CELL, SystemTime::now()).unwrap();
        TokenKeys::of(dir.path()).make().unwrap();
        let server = Server::start(&configuration(dir.path())).unwrap();
        let own = crate::common::connect(Endpoint::Unix(dir.path().join("socket")));
        let joe = make_user(&own, "joe", JOE);
        let bob = make_user(&own, "bob", BOB);
        let fenced = make_user(&own, "eve", FENCED);
        let revoked = make_user(&own, "zoe", REVOKED);
        let guard =
            GuardCall::AddFence { whom: Whom::User(fenced), seconds: 0, why: "lost".to_owned() };
        ask(&own, Call::Guard { behalf: None, call: Box::new(guard) });
        let change =
            PrincipalChange { tokens_after: Some(seconds()), ..PrincipalChange::default() };
        let call = PtsCall::SetFields { id: revoked, change };
        ask(&own, Call::Pts { on_behalf: None, call: Box::new(call) });
        drop(own);
        server.stop().unwrap();
        Base { dir, joe, bob, fenced, revoked }
    }

    fn wallet(&self, dir: &Path, is_owners: bool) -> TestWallet {
        let keys = TokenKeys::of(dir);
        let now = seconds();
        let token = |principal, name: &str| Token {
            cell: CELL.to_owned(),
            key: 1,
            number: u128::from(u32::from_le_bytes(
                name.as_bytes()[..3]
                    .iter()
                    .copied()
                    .chain([0])
                    .collect::<Vec<_>>()
                    .try_into()
                    .unwrap(),
            )),
            principal,
            name: name.to_owned(),
            level: AuthLevel::Password,
            issued: now,
            expires: now + 1_000_000,
            renewable: now + 1_000_000,
            client: client_key().public(),
        };
        let key = keys.newest().unwrap().1;
        let bob = token(self.bob, "bob").sign(&key);
        if is_owners {
            return TestWallet {
                tokens: BTreeMap::from([(JOE, token(self.joe, "joe").sign(&key)), (BOB, bob)]),
            };
        }
        let expired = Token { issued: now - 100, expires: now - 1, ..token(self.joe, "joe") };
        let revoked = Token { issued: now - 100, ..token(self.revoked, "zoe") };
        let forged = token(self.joe, "joe").sign(&Signer::new(&[77; 32]));
        let tokens = BTreeMap::from([
            (BOB, bob),
            (EXPIRED, expired.sign(&key)),
            (FENCED, token(self.fenced, "eve").sign(&key)),
            (REVOKED, revoked.sign(&key)),
            (FORGED, forged),
        ]);
        TestWallet { tokens }
    }
}

/// With the same fids in each run, so that each run makes the same calls.
fn seeded() -> OpenOptions {
    OpenOptions { seed: Some(7), ..OpenOptions::default() }
}

fn configuration(dir: &Path) -> ServerConfig {
    let keys = CellKeys::of(dir.join("keys"));
    let identity = keys.identity(&["127.0.0.1".to_owned()], SystemTime::now()).unwrap().0;
    let mut config = ServerConfig::new(dir.join("vicepa"));
    config.store = seeded();
    config.unix_socket = Some(dir.join("socket"));
    config.tcp_listen = Some("127.0.0.1:0".into());
    config.tls = Some(Arc::new(
        ServerTls::new(identity, &keys.authority().certificates().unwrap()).unwrap(),
    ));
    config.cell = Some(CellPlace::Here(dir.join("celldb")));
    config.mint = Some(Arc::new(TokenIssuer::new(CELL, Arc::new(TokenKeys::of(dir)))));
    // Trusts this machine's connections, but not its superuser.
    config.trusted = vec!["127.0.0.0/8".parse().unwrap()];
    config
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (here, there) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copy_tree(&here, &there),
            kind if kind.is_file() => drop(std::fs::copy(&here, &there).unwrap()),
            // A socket of the server that has ended.
            _ => {}
        }
    }
}

/// One of the two servers.
struct World {
    places: Places,
    own: Session,
    clients: BTreeMap<Through, Client>,
    _server: Server,
    _dir: tempfile::TempDir,
}

impl World {
    fn new(base: &Base, model: AccessRule, secret: char, with_host: bool) -> World {
        let dir = tempfile::tempdir().unwrap();
        copy_tree(base.dir.path(), dir.path());
        let server = Server::start(&configuration(dir.path())).unwrap();
        let tcp = server
            .endpoints()
            .iter()
            .find(|endpoint| matches!(endpoint, Endpoint::Tcp(_)))
            .unwrap()
            .clone();
        let own = crate::common::connect(Endpoint::Unix(dir.path().join("socket")));
        let authorities = CellKeys::of(dir.path().join("keys")).authority().certificates().unwrap();
        let config = |wallet: Option<TestWallet>, reserved_port| {
            let tls = Some(ClientTls::new(Trust::Authorities(authorities.clone()), None).unwrap());
            let mut config = SessionConfig::new(tcp.clone(), ClientIdentity::fleeting());
            config.options =
                fabric::ConnectionOptions { tls, reserved_port, ..Default::default() }.into();
            config.options.wallet = wallet.map(|wallet| Arc::new(wallet) as Arc<dyn Wallet>);
            config
        };
        let mut clients = BTreeMap::from([
            (Through::Owner, Client::of(config(Some(base.wallet(dir.path(), true)), false))),
            (Through::Users, Client::of(config(Some(base.wallet(dir.path(), false)), false))),
            (Through::Nobody, Client::of(config(None, false))),
        ]);
        if with_host {
            clients.insert(Through::Host, Client::of(config(None, true)));
        }
        let owner = Owner { uid: JOE, gid: JOE, principal: base.joe };
        let places =
            Places::fill(model, secret, crate::common::root(&own), owner, &mut superuser(&own));
        let world = World { places, own, clients, _server: server, _dir: dir };
        // It has lost its name and is open on the owner's machine.
        let (dir, orphan) = (world.places.closed["private"], world.places.closed["orphan"]);
        let _ = world.asks(Through::Owner, JOE, Call::Hold { fids: vec![orphan] });
        ask(
            &world.own,
            Call::Remove { dir, name: name("orphan"), what: RemoveWhat::File, hold: true },
        );
        world
    }

    fn asks(&self, line: Through, uid: u32, call: Call) -> Result<Answer, CallError> {
        self.clients[&line].session.call(&plain(uid), call, None).map(|reply| reply.answer)
    }

    fn snapshot(&self) -> Vec<String> {
        self.places.snapshot(&mut superuser(&self.own))
    }

    /// When a break is sent depends on when an earlier one was acknowledged, so the two servers'
    /// breaks are not compared: no break names an entry of a closed directory, or a file behind
    /// one.
    fn check_breaks(&self, model: AccessRule) {
        let behind = ["behind", "open behind", "below", "deep", "link", "orphan"]
            .map(|called| self.places.closed[called]);
        for (through, client) in
            self.clients.iter().filter(|(through, _)| **through != Through::Owner)
        {
            for (fid, reason, name) in client.listener.breaks.lock().iter() {
                let tells =
                    behind.contains(fid) || *fid == self.places.closed["private"] && name.is_some();
                assert!(
                    !tells,
                    "{model:?}: a break through {through:?} reveals {reason:?} of {fid} {name:?}"
                );
            }
        }
    }

    /// The owner works where the callers see nothing of it.
    fn work(&self, number: usize) {
        let _ = self.asks(Through::Owner, JOE, self.places.work(number));
    }
}

fn superuser(own: &Session) -> impl FnMut(Call) -> Result<Answer, Fault> {
    |call| {
        crate::common::try_ask(own, call)
            .map_err(|error| error.fault().expect("an answer or a refusal"))
    }
}

/// Masks fields that differ between any two servers and reveal nothing of files.
fn masked(mut answer: Answer) -> Answer {
    let none = Timestamp::default();
    let mask = |status: &mut Status| {
        (status.accessed, status.modified, status.changed, status.created) =
            (none, none, none, none);
    };
    match &mut answer {
        Answer::Status(status)
        | Answer::Entry { status, .. }
        | Answer::Data { status, .. }
        | Answer::Packed { status, .. }
        | Answer::Body { status }
        | Answer::Opened { status, .. }
        | Answer::Delegation { status, .. } => mask(status),
        Answer::Made { status, dir, .. } | Answer::Removed { status, dir } => {
            [status, dir].into_iter().for_each(mask);
        }
        Answer::Renamed { status, other, from_dir, to_dir } => {
            [status, from_dir, to_dir].into_iter().chain(other).for_each(mask);
        }
        Answer::Entries { entries, .. } => {
            entries.iter_mut().filter_map(|entry| entry.status.as_mut()).for_each(mask);
        }
        Answer::Written { status, verifier, .. } => {
            mask(status);
            *verifier = BootVerifier(0);
        }
        Answer::Committed { verifier } => *verifier = BootVerifier(0),
        Answer::Volume(volume) => (volume.partition_bytes, volume.partition_free_bytes) = (0, 0),
        Answer::Partitions(partitions) => {
            partitions.iter_mut().for_each(|partition| partition.free_bytes = 0);
        }
        Answer::Volumes { volumes, .. } => {
            volumes.iter_mut().for_each(|volume| volume.updated = none);
        }
        Answer::Servers(servers) => {
            servers.iter_mut().for_each(|server| server.record.addresses.clear());
        }
        _ => {}
    }
    answer
}

fn calls() -> usize {
    std::env::var("STRANGER_CALLS").ok().and_then(|calls| calls.parse().ok()).unwrap_or(16_000)
}

fn is_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        let _ = writeln!(
            std::io::stderr(),
            "\nSKIP unit: {test}, the part of a trusted host: only root has reserved ports"
        );
    }
    is_root
}

fn run(model: AccessRule, seed: u64, with_host: bool) {
    let base = Base::new();
    let mut worlds = ['a', 'b'].map(|secret| World::new(&base, model, secret, with_host));
    assert_eq!(worlds[0].places.all, worlds[1].places.all, "both servers give the same fids");
    let mut asking = StrangerCalls::new(seed, name(VOLUME), model, &worlds[0].places);
    let before = worlds.each_ref().map(World::snapshot);
    assert_ne!(before[0], before[1], "the servers differ in what is closed");
    let all_strangers = strangers(with_host);
    let mut answered = BTreeMap::<(Through, u32), [u64; 2]>::new();
    let mut kinds = BTreeMap::<String, [u64; 2]>::new();
    for number in 0..calls() {
        if number % 50 == 0 && number < 2000 {
            worlds.iter().for_each(|world| world.work(number / 50));
        }
        let (mut line, uid) = all_strangers[asking.rng.random_range(0..all_strangers.len())];
        let call = asking.next_call();
        // A client program gives up its own open files and delegations; its users cannot.
        let of_session =
            matches!(call, Call::Unhold { .. } | Call::Return { .. } | Call::ReclaimDone);
        if of_session && line == Through::Owner {
            line = Through::Users;
        }
        let [one, other] =
            worlds.each_ref().map(|world| world.asks(line, uid, call.clone()).map(masked));
        assert_eq!(one, other, "{model:?} {number}: {uid} through {line:?} asked {call:?}");
        if let Err(error) = &one {
            assert!(
                error.fault().is_some(),
                "{model:?} {number}: {uid} through {line:?}: {error}: {call:?}"
            );
        }
        let good = usize::from(one.is_ok());
        answered.entry((line, uid)).or_default()[good] += 1;
        let kind = format!("{call:?}").split([' ', '(']).next().unwrap().to_owned();
        kinds.entry(kind).or_default()[good] += 1;
        if let Ok(answer) = &one {
            asking.learn(answer);
        }
        if let Ok(Answer::Opened { open, status }) = &one {
            // Others would be refused the file for it from now on.
            let close = Call::Close { fid: status.fid, open: *open };
            for world in &worlds {
                assert_eq!(world.asks(line, uid, close.clone()), Ok(Answer::Done));
            }
        }
    }
    check_what_was_answered(&answered, &kinds);
    worlds.iter().for_each(|world| world.check_breaks(model));
    for world in &mut worlds {
        for (_, client) in world.clients.iter().filter(|(line, _)| **line != Through::Owner) {
            client.session.detach();
        }
        world.places.closed.retain(|called, _| !["private", "deep"].contains(called));
    }
    for (world, before) in worlds.iter().zip(&before) {
        for line in world.snapshot() {
            assert!(before.contains(&line), "{model:?}: changed: {line:.2000}");
        }
    }
}

/// Callers that were refused everything, or nothing, would prove nothing.
fn check_what_was_answered(
    answered: &BTreeMap<(Through, u32), [u64; 2]>,
    kinds: &BTreeMap<String, [u64; 2]>,
) {
    for ((line, uid), [refused, good]) in answered {
        assert!(*refused > 0, "{uid} through {line:?} was refused nothing");
        let is_refused = [EXPIRED, FENCED, REVOKED, FORGED].contains(uid);
        assert_eq!(*good == 0, is_refused, "{uid} through {line:?}: {good} calls were answered");
    }
    for kind in [
        "Lookup",
        "ReadDir",
        "Make",
        "Read",
        "Write",
        "GetStatus",
        "Lock",
        "Open",
        "Hold",
        "XattrGet",
        "Link",
    ] {
        assert!(
            kinds.get(kind).is_some_and(|[_, good]| *good > 0),
            "{kind} was never allowed: {kinds:?}"
        );
    }
    for kind in ["Read", "Write", "Seek", "ReadSums", "Lock", "Open", "SetStatus", "Allocate"] {
        assert!(
            kinds.get(kind).is_some_and(|[refused, _]| *refused > 0),
            "{kind} was never refused: {kinds:?}"
        );
    }
}

#[test]
fn ac7_a_stranger_over_tls_by_mode_bits() {
    run(AccessRule::ModeBits, 1, is_root("ac7_a_stranger_over_tls_by_mode_bits"));
}

#[test]
fn ac7_a_stranger_over_tls_by_lists() {
    run(AccessRule::Lists, 2, is_root("ac7_a_stranger_over_tls_by_lists"));
}
