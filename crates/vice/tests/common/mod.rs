//! A service with clients that can be stopped between any two steps. One thread, no clock but the
//! test's.
#![allow(dead_code)] // each test program uses its part

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use store::{MemMachine, NewRoot, OpenOptions, Partition, PartitionConfig, VolumeQuota};
use types::{
    Answer, BreakId, BreakItem, Call, Caller, ClientId, CreateHow, Fault, Fid, Name, NewKind,
    RemoveWhat, ReplyAddress, SessionId, Status, Time, Timestamp,
};
use vice::{Effect, Execution, Principals, Vice, ViceConfig, ViceParts};

/// The medium of a partition.
pub enum Ground {
    Memory(MemMachine),
    Disk(tempfile::TempDir),
}

impl Ground {
    pub fn memory() -> Self {
        Ground::Memory(MemMachine::new())
    }

    pub fn disk() -> Self {
        Ground::Disk(tempfile::tempdir().unwrap())
    }

    fn create(&self) -> Partition {
        let (config, options) = (PartitionConfig { server: "test".to_owned() }, options());
        match self {
            Ground::Memory(machine) => Partition::open_memory(machine, options).unwrap(),
            Ground::Disk(dir) => {
                Partition::create(&dir.path().join("vicep"), &config, options).unwrap()
            }
        }
    }

    fn open(&self) -> Partition {
        match self {
            Ground::Memory(machine) => Partition::open_memory(machine, options()).unwrap(),
            Ground::Disk(dir) => Partition::open(&dir.path().join("vicep"), options()).unwrap(),
        }
    }
}

fn options() -> OpenOptions {
    OpenOptions { cache_bytes: 8 << 20, seed: Some(7), ..OpenOptions::default() }
}

pub fn config() -> ViceConfig {
    ViceConfig::new(dafs::encode_answer_record, |record| dafs::decode_answer_record(record).ok())
}

/// One client of the rig.
pub struct Client {
    pub id: ClientId,
    pub incarnation: u64,
    pub session: SessionId,
    pub requests: u64,
    /// Files that it has open: it names them in acknowledgements.
    pub open: BTreeSet<Fid>,
    /// Breaks that arrived, in order.
    pub broken: Vec<BreakItem>,
    /// Breaks that it has not acknowledged.
    pub unacknowledged: Vec<(BreakId, Vec<BreakItem>)>,
    /// Whether it acknowledges immediately.
    pub prompt: bool,
    pub ended: bool,
}

/// The service and its clients.
pub struct Rig {
    pub ground: Ground,
    /// Media of further partitions.
    pub others: Vec<Ground>,
    vice: Option<Vice>,
    pub config: ViceConfig,
    /// The parts of the service, for each start of it.
    pub parts: Box<dyn Fn() -> ViceParts>,
    pub now: Time,
    pub wall: i64,
    pub clients: Vec<Client>,
    /// Replies that the test has not read yet.
    pub replies: Vec<(ReplyAddress, Result<Answer, Fault>, bool)>,
}

pub const VOLUME: &[u8] = b"root.cell";

impl Rig {
    pub fn new(ground: Ground, clients: usize) -> Self {
        Rig::with_quota(ground, clients, VolumeQuota::default())
    }

    /// A service that gets principals from there.
    pub fn with_principals(
        ground: Ground,
        clients: usize,
        principals: Arc<dyn Principals>,
    ) -> Self {
        let parts =
            move || ViceParts { principals: Some(Arc::clone(&principals)), ..ViceParts::default() };
        Rig::with(ground, clients, VolumeQuota::default(), Box::new(parts))
    }

    pub fn with_quota(ground: Ground, clients: usize, quota: VolumeQuota) -> Self {
        Rig::with(ground, clients, quota, Box::new(ViceParts::default))
    }

    pub fn with(
        ground: Ground,
        clients: usize,
        quota: VolumeQuota,
        parts: Box<dyn Fn() -> ViceParts>,
    ) -> Self {
        let partition = ground.create();
        let root = NewRoot { mode: 0o777, uid: 0, gid: 0, now: Timestamp::new(1, 0), quota };
        partition.volumes().create_volume(&name(VOLUME), &root).unwrap();
        let now = Time::from_start(Duration::from_secs(100));
        let vice = Vice::open_with(partition, config(), parts(), now).unwrap();
        let mut rig = Rig {
            ground,
            others: Vec::new(),
            vice: Some(vice),
            config: config(),
            parts,
            now,
            wall: 1000,
            clients: Vec::new(),
            replies: Vec::new(),
        };
        for _ in 0..clients {
            rig.attach();
        }
        rig
    }

    pub fn vice(&self) -> &Vice {
        self.vice.as_ref().unwrap()
    }

    /// Attaches a client; returns its index.
    pub fn attach(&mut self) -> usize {
        let id = ClientId(self.clients.len() as u128 + 1);
        let mut out = Vec::new();
        let attached = self.vice().attach(self.now, id, 1, &mut out).unwrap();
        self.clients.push(Client {
            id,
            incarnation: 1,
            session: attached.session,
            requests: 0,
            open: BTreeSet::new(),
            broken: Vec::new(),
            unacknowledged: Vec::new(),
            prompt: true,
            ended: false,
        });
        self.deliver(out);
        self.clients.len() - 1
    }

    /// Restarts the server; its partition is as after `kill -9`.
    pub fn restart(&mut self) {
        self.vice = None;
        for client in &mut self.clients {
            client.unacknowledged.clear();
        }
        let all = std::iter::once(&self.ground).chain(&self.others);
        let partitions = ["/vicepa", "/vicepb", "/vicepc"]
            .map(str::to_owned)
            .into_iter()
            .zip(all.map(Ground::open));
        let partitions = vice::Partitions::new(partitions.collect());
        let parts = (self.parts)();
        self.vice = Some(Vice::open_with(partitions, self.config, parts, self.now).unwrap());
    }

    /// Adds a partition, in memory, and restarts the server.
    pub fn add_partition(&mut self) {
        self.others.push(Ground::memory());
        self.restart();
        (0..self.clients.len()).for_each(|who| self.reclaim(who));
    }

    /// Restarts the server on another machine.
    pub fn restart_on(&mut self, machine: MemMachine) {
        self.vice = None;
        self.ground = Ground::Memory(machine);
        self.restart();
    }

    /// Resumes a client after a restart; it reclaims its open files and finishes.
    pub fn reclaim(&mut self, who: usize) {
        assert!(self.resume(who).unwrap().reclaim);
        let fids = self.clients[who].open.iter().copied().collect();
        assert_eq!(self.call(who, &Caller::ROOT, Call::Hold { fids }), Ok(Answer::Done));
        assert_eq!(self.call(who, &Caller::ROOT, Call::ReclaimDone), Ok(Answer::Done));
    }

    pub fn resume(&mut self, who: usize) -> Result<vice::Attached, Fault> {
        let client = &self.clients[who];
        let mut out = Vec::new();
        let resumed =
            self.vice().resume(self.now, client.session, client.id, client.incarnation, &mut out);
        self.deliver(out);
        resumed
    }

    /// Advances the time.
    pub fn wait(&mut self, duration: Duration) {
        self.now = self.now + duration;
        let mut out = Vec::new();
        self.vice().tick(self.now, &mut out);
        self.deliver(out);
    }

    pub fn renew(&mut self, who: usize) -> bool {
        self.vice().renew(self.now, self.clients[who].session, &mut Vec::new())
    }

    pub fn detach(&mut self, who: usize) {
        let mut out = Vec::new();
        self.vice().detach(self.now, self.clients[who].session, &mut out);
        self.deliver(out);
    }

    /// The next request of a client.
    pub fn origin(&mut self, who: usize) -> ReplyAddress {
        let client = &mut self.clients[who];
        client.requests += 1;
        ReplyAddress { session: client.session, slot: 0, request: client.requests }
    }

    /// Sends a request; its reply is put into `replies`.
    pub fn perform(&mut self, origin: ReplyAddress, caller: &Caller, call: Call) {
        self.wall += 1;
        let wall = self.clock();
        let mut out = Vec::new();
        self.vice().perform(Execution::new(self.now, wall, caller, origin), call, &mut out);
        self.deliver(out);
    }

    /// The next call's files get a time one second later than this.
    pub fn clock(&self) -> Timestamp {
        Timestamp::new(self.wall, 5)
    }

    /// The reply to a request, if it has arrived.
    pub fn reply(&mut self, origin: ReplyAddress) -> Option<Result<Answer, Fault>> {
        let at = self.replies.iter().position(|(of, ..)| *of == origin)?;
        Some(self.replies.remove(at).1)
    }

    /// A call that must be answered at once; the others acknowledge immediately.
    pub fn call(&mut self, who: usize, caller: &Caller, call: Call) -> Result<Answer, Fault> {
        let origin = self.origin(who);
        let text = format!("{call:?}");
        self.perform(origin, caller, call);
        self.reply(origin).unwrap_or_else(|| panic!("no answer to {text}"))
    }

    /// A call that may be answered later; returns its origin.
    pub fn start(&mut self, who: usize, caller: &Caller, call: Call) -> ReplyAddress {
        let origin = self.origin(who);
        self.perform(origin, caller, call);
        origin
    }

    /// As `start`, over another slot than 0.
    pub fn start_in(&mut self, who: usize, slot: u32, caller: &Caller, call: Call) -> ReplyAddress {
        let origin = ReplyAddress { slot, ..self.origin(who) };
        self.perform(origin, caller, call);
        origin
    }

    /// As `call`, over another slot than 0.
    pub fn call_in(
        &mut self,
        who: usize,
        slot: u32,
        caller: &Caller,
        call: Call,
    ) -> Result<Answer, Fault> {
        let origin = self.start_in(who, slot, caller, call);
        self.reply(origin).expect("answered at once")
    }

    /// A client acknowledges all its breaks.
    pub fn acknowledge(&mut self, who: usize) {
        for (id, items) in std::mem::take(&mut self.clients[who].unacknowledged) {
            let client = &self.clients[who];
            let held: Vec<Fid> =
                items.iter().map(|item| item.fid).filter(|fid| client.open.contains(fid)).collect();
            let mut out = Vec::new();
            self.vice().ack(self.now, self.clients[who].session, id, &held, &mut out);
            self.deliver(out);
        }
    }

    pub fn deliver(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Reply { origin, result, body } => {
                    self.replies.push((origin, result, body.is_some()));
                }
                Effect::Executed { .. } => {}
                Effect::Break { to, id, items } => {
                    let who = self.clients.iter().position(|client| client.session == to).unwrap();
                    let client = &mut self.clients[who];
                    client.broken.extend(items.iter().cloned());
                    client.unacknowledged.push((id, items));
                    if client.prompt {
                        self.acknowledge(who);
                    }
                }
                Effect::SessionEnded(session) => {
                    for client in self.clients.iter_mut().filter(|client| client.session == session)
                    {
                        client.ended = true;
                    }
                }
            }
        }
    }

    // Shorthands: client 0 unless said otherwise, superuser.

    pub fn root(&mut self) -> Fid {
        self.root_status().fid
    }

    pub fn look_root(&mut self, who: usize) -> Fid {
        match self.call(who, &Caller::ROOT, Call::Root { volume: name(VOLUME) }) {
            Ok(Answer::Status(status)) => status.fid,
            other => panic!("{other:?}"),
        }
    }

    /// The root of any volume.
    pub fn root_of(&mut self, who: usize, volume: &str) -> Result<Fid, Fault> {
        match self.call(who, &Caller::ROOT, Call::Root { volume: name(volume) })? {
            Answer::Status(status) => Ok(status.fid),
            other => panic!("{other:?}"),
        }
    }

    pub fn root_status(&mut self) -> Status {
        match self.call(0, &Caller::ROOT, Call::Root { volume: name(VOLUME) }) {
            Ok(Answer::Status(status)) => status,
            other => panic!("{other:?}"),
        }
    }

    pub fn make(
        &mut self,
        who: usize,
        caller: &Caller,
        dir: Fid,
        at: &str,
        kind: NewKind,
        mode: u16,
    ) -> Fid {
        let how = CreateHow::Guarded;
        match self.call(who, caller, Call::Make { dir, name: name(at), kind, mode, how }) {
            Ok(Answer::Made { status, .. }) => status.fid,
            other => panic!("{at}: {other:?}"),
        }
    }

    pub fn file(&mut self, dir: Fid, at: &str) -> Fid {
        self.make(0, &Caller::ROOT, dir, at, NewKind::File, 0o644)
    }

    pub fn directory(&mut self, dir: Fid, at: &str) -> Fid {
        self.make(0, &Caller::ROOT, dir, at, NewKind::Directory, 0o755)
    }

    pub fn status(&mut self, who: usize, fid: Fid) -> Result<Status, Fault> {
        match self.call(who, &Caller::ROOT, Call::GetStatus { fid })? {
            Answer::Status(status) => Ok(status),
            other => panic!("{other:?}"),
        }
    }

    pub fn look(&mut self, who: usize, dir: Fid, at: &str) -> Result<Fid, Fault> {
        match self.call(who, &Caller::ROOT, Call::Lookup { dir, name: name(at) })? {
            Answer::Entry { status, .. } => Ok(status.fid),
            other => panic!("{other:?}"),
        }
    }

    pub fn usage(&mut self) -> types::VolumeStatus {
        let fid = self.root();
        match self.call(0, &Caller::ROOT, Call::VolumeStatus { fid }) {
            Ok(Answer::Volume(status)) => status,
            other => panic!("{other:?}"),
        }
    }
}

pub fn name(bytes: impl AsRef<[u8]>) -> Name {
    Name::new(bytes.as_ref()).unwrap()
}

pub fn user(uid: u32, gid: u32, groups: &[u32]) -> Caller {
    Caller { uid, gid, groups: Some(groups.into()), who: types::RequestIdentity::NAMED }
}

pub fn write(fid: Fid, offset: Option<u64>, data: &[u8]) -> Call {
    let data = bytes::Bytes::copy_from_slice(data);
    Call::Write { fid, offset, data, stable: false, kill_privileges: false }
}

pub fn remove(dir: Fid, at: &str) -> Call {
    Call::Remove { dir, name: name(at), what: RemoveWhat::File, hold: false }
}
