//! A file service in memory, foreign hosts that call it through the front end, and a native client.
#![allow(dead_code)]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use afs3::files::{FilesAnswer, FilesCall};
use afs3::structs::{AfsFid, AfsName, StoreStatus};
use afsfront::{
    CallStream, FileHost, FileService, PeerCall, Refusal, Services, StreamBroken, foreign_fid,
};
use bytes::Bytes;
use celldb::CellDb;
use guard::{Acl, Cps, Rights};
use parking_lot::Mutex;
use store::{MemMachine, NewRoot, OpenOptions, Partition, VolumeQuota};
use types::{
    Answer, Assembly, AuthLevel, BreakItem, Call, Caller, ClientId, Fault, Fid, Name, PrincipalId,
    ReplyAddress, ServerInfo, SessionId, Status, Time, Timestamp, VolumeCall, VolumeId, VolumeInfo,
    WhichVolume,
};
use vice::{CellAccess, Effect, Execution, Principals, Vice, ViceConfig, ViceParts};

pub const JOE: PrincipalId = PrincipalId(17);

/// Every caller is its number; the superuser is an administrator.
struct Known;

impl Principals for Known {
    fn cps(&self, caller: &Caller) -> Result<Cps, Fault> {
        let is_root = caller.is_root();
        let groups = [PrincipalId::PROVED].into_iter();
        let groups = groups.chain(is_root.then_some(PrincipalId::ADMINISTRATORS));
        Ok(Cps::new(caller.who.principal, caller.who.level, groups))
    }
}

struct Seat {
    session: SessionId,
    requests: u64,
    broken: Vec<BreakItem>,
    replies: VecDeque<(ReplyAddress, Result<Answer, Fault>)>,
}

struct World {
    vice: Vice,
    now: Time,
    wall: i64,
    seats: Vec<Seat>,
    /// The volume server at 192.0.2.9: gets a request and what is sent behind it.
    peer: Option<Peer>,
}

pub type Peer = Arc<dyn Fn(&[u8], Vec<u8>) -> Result<Vec<u8>, Refusal> + Send + Sync>;

/// A call to it.
struct ToPeer {
    request: Vec<u8>,
    sent: Vec<u8>,
    peer: Peer,
}

impl CallStream for ToPeer {
    fn take(&mut self, _: usize) -> Result<Bytes, StreamBroken> {
        Err(StreamBroken)
    }

    fn give(&mut self, bytes: Bytes) -> Result<(), StreamBroken> {
        self.sent.extend_from_slice(&bytes);
        Ok(())
    }
}

impl PeerCall for ToPeer {
    fn finish(&mut self) -> Result<Vec<u8>, Refusal> {
        (self.peer)(&self.request, std::mem::take(&mut self.sent))
    }
}

impl World {
    fn take(&mut self, effects: Vec<Effect>) {
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Reply { origin, result, .. } => {
                    let seat = self.seats.iter_mut().find(|seat| seat.session == origin.session);
                    seat.unwrap().replies.push_back((origin, result));
                }
                Effect::Break { to, id, items } => {
                    let seat = self.seats.iter_mut().find(|seat| seat.session == to).unwrap();
                    seat.broken.extend(items);
                    let mut more = Vec::new();
                    self.vice.ack(self.now, to, id, &[], &mut more);
                    effects.extend(more);
                }
                Effect::Executed { .. } | Effect::SessionEnded(_) => {}
            }
        }
    }

    fn call(&mut self, seat: usize, caller: &Caller, call: Call) -> Result<Answer, Fault> {
        let text = format!("{call:?}");
        let origin = self.begin(seat, caller, call);
        let replies = &mut self.seats[seat].replies;
        let (of, result) = replies.pop_front().unwrap_or_else(|| panic!("no answer to {text}"));
        assert_eq!(of, origin);
        result
    }

    fn begin(&mut self, seat: usize, caller: &Caller, call: Call) -> ReplyAddress {
        self.wall += 1;
        let at = &mut self.seats[seat];
        at.requests += 1;
        let origin = ReplyAddress { session: at.session, slot: 0, request: at.requests };
        let execution = Execution::new(self.now, Timestamp::new(self.wall, 0), caller, origin);
        let mut effects = Vec::new();
        self.vice.perform(execution, call, &mut effects);
        self.take(effects);
        origin
    }
}

/// See the head of the file.
pub struct Rig {
    world: Arc<Mutex<World>>,
    pub service: FileService,
    pub root: Fid,
}

/// A user at a host.
pub struct User {
    world: Arc<Mutex<World>>,
    pub seat: usize,
    caller: Caller,
    /// Of its host.
    pub takes_uae: bool,
}

/// The stream of a call, whole.
#[derive(Default)]
pub struct Pipe {
    pub sent: VecDeque<u8>,
    pub received: Vec<u8>,
}

impl CallStream for Pipe {
    fn take(&mut self, max: usize) -> Result<Bytes, StreamBroken> {
        // In small pieces, as packets are.
        let count = max.min(self.sent.len()).min(1400);
        if count == 0 { Err(StreamBroken) } else { Ok(self.sent.drain(..count).collect()) }
    }

    fn give(&mut self, bytes: Bytes) -> Result<(), StreamBroken> {
        self.received.extend_from_slice(&bytes);
        Ok(())
    }
}

impl Services for User {
    fn ask(&self, call: Call) -> Result<Answer, Fault> {
        self.world.lock().call(self.seat, &self.caller, call)
    }

    fn ask_as_server(&self, call: Call) -> Result<Answer, Fault> {
        self.world.lock().call(self.seat, &Caller::ROOT, call)
    }

    fn ask_as_nobody(&self, call: Call) -> Result<Answer, Fault> {
        self.world.lock().call(self.seat, &caller(PrincipalId::ANONYMOUS), call)
    }

    fn volume(&self, id: VolumeId) -> Result<VolumeInfo, Fault> {
        let volume = WhichVolume::Id(id);
        match self.ask_as_server(Call::Volume(VolumeCall::Examine { volume }))? {
            Answer::Volumes { volumes, .. } => Ok(volumes[0].clone()),
            other => panic!("{other:?}"),
        }
    }

    fn assemble(&self, id: VolumeId) -> Result<Box<dyn Assembly>, Fault> {
        Ok(Box::new(vice::assemble(&self.world.lock().vice, id)?))
    }

    fn refuses_afs(&self, id: VolumeId) -> Result<bool, Fault> {
        vice::refuses_afs(&self.world.lock().vice, id)
    }

    fn call_server(
        &self,
        to: SocketAddr,
        service: u16,
        request: &[u8],
    ) -> Result<Box<dyn PeerCall>, Refusal> {
        assert_eq!((to, service), ("192.0.2.9:7005".parse().unwrap(), 4));
        let peer = self.world.lock().peer.clone().ok_or(Refusal::DEAD)?;
        Ok(Box::new(ToPeer { request: request.to_vec(), sent: Vec::new(), peer }))
    }

    /// Meanwhile records of removed volumes are swept.
    fn pause(&self) {
        let world = self.world.lock();
        world.vice.partition().sweep(1000).unwrap();
    }

    fn now(&self) -> Timestamp {
        Timestamp::new(self.world.lock().wall, 0)
    }

    fn promised_seconds(&self) -> u32 {
        3600
    }
}

impl User {
    fn host(&self) -> FileHost {
        FileHost { number: self.seat as u64, takes_uae: self.takes_uae }
    }
}

/// A caller with this number.
pub fn caller(id: PrincipalId) -> Caller {
    let mut caller =
        Caller { uid: id.0 as u32, gid: 100, groups: Some(Box::default()), ..Caller::ROOT };
    caller.who.principal = id;
    let is_nameless = id == PrincipalId::ANONYMOUS;
    caller.who.level = if is_nameless { AuthLevel::Nobody } else { AuthLevel::Password };
    caller
}

impl Rig {
    /// A volume in which everyone may read and joe may do all.
    pub fn new() -> Rig {
        let rig = Rig::with_mode_bits();
        let mut list = Acl::new();
        assert!(list.set(PrincipalId::ANYBODY, Rights::READ.with(Rights::LOOKUP), false));
        assert!(list.set(JOE, Rights::ALL, false));
        let list = Some(Bytes::from(list.encode()));
        let call = Call::SetAcl { fid: rig.root, list, instead_of: None };
        assert_eq!(rig.user(PrincipalId::ANONYMOUS).ask_as_server(call), Ok(Answer::Done));
        rig
    }

    /// A volume without access lists.
    pub fn with_mode_bits() -> Rig {
        Rig::with(ViceParts { principals: Some(Arc::new(Known)), ..ViceParts::default() })
    }

    /// A server of a cell with this database.
    pub fn in_cell(db: Arc<dyn CellDb>, me: ServerInfo) -> Rig {
        let cell = CellAccess::Database(db);
        Rig::with(ViceParts { cell, me: Some(me), ..ViceParts::default() })
    }

    fn with(parts: ViceParts) -> Rig {
        let options = OpenOptions { cache_bytes: 8 << 20, seed: Some(7), ..OpenOptions::default() };
        let partition = Partition::open_memory(&MemMachine::new(), options).unwrap();
        let quota = VolumeQuota::default();
        let root = NewRoot { mode: 0o777, uid: 0, gid: 0, now: Timestamp::new(1, 0), quota };
        let name = Name::new(b"root.cell").unwrap();
        partition.volumes().create_volume(&name, &root).unwrap();
        let now = Time::from_start(Duration::from_secs(100));
        let config = ViceConfig::new(dafs::encode_answer_record, |record| {
            dafs::decode_answer_record(record).ok()
        });
        let vice = Vice::open_with(partition, config, parts, now).unwrap();
        let world = World { vice, now, wall: 1000, seats: Vec::new(), peer: None };
        let world = Arc::new(Mutex::new(world));
        let mut rig = Rig { world, service: FileService::default(), root: Fid::root(VolumeId(1)) };
        let volume = name;
        let server = rig.user(PrincipalId::ANONYMOUS);
        match server.ask_as_server(Call::Root { volume }) {
            Ok(Answer::Status(status)) => rig.root = status.fid,
            other => panic!("{other:?}"),
        }
        rig
    }

    /// A user at a new host.
    pub fn user(&self, id: PrincipalId) -> User {
        let mut world = self.world.lock();
        let client = ClientId(world.seats.len() as u128 + 1);
        let mut effects = Vec::new();
        let attached = world.vice.attach(world.now, client, 1, &mut effects).unwrap();
        let (broken, replies) = (Vec::new(), VecDeque::new());
        world.seats.push(Seat { session: attached.session, requests: 0, broken, replies });
        world.take(effects);
        let seat = world.seats.len() - 1;
        User { world: Arc::clone(&self.world), seat, caller: caller(id), takes_uae: false }
    }

    /// An administrator at a new host.
    pub fn administrator(&self) -> User {
        User { caller: Caller::ROOT, ..self.user(PrincipalId::ANONYMOUS) }
    }

    /// There is a volume server at 192.0.2.9.
    pub fn set_peer(&self, peer: Peer) {
        self.world.lock().peer = Some(peer);
    }

    /// So many seconds go by, and all hosts are heard.
    pub fn pass_for_all(&self, secs: u64) {
        for _ in 0..secs {
            let mut world = self.world.lock();
            world.wall += 1;
            world.now = world.now + Duration::from_secs(1);
            let (now, wall) = (world.now, Timestamp::new(world.wall, 0));
            let mut effects = Vec::new();
            for seat in &world.seats {
                world.vice.renew(now, seat.session, &mut effects);
            }
            world.vice.tick(now, &mut effects);
            world.vice.settle_doubts(now, wall, &mut effects);
            world.take(effects);
        }
    }

    /// So many seconds go by on the wall clock.
    pub fn pass(&self, secs: i64) {
        self.world.lock().wall += secs;
    }

    /// A native call of a user; `None` while it waits.
    pub fn begin_call(&self, user: &User, call: Call) -> Option<Result<Answer, Fault>> {
        let mut world = self.world.lock();
        world.begin(user.seat, &user.caller, call);
        world.seats[user.seat].replies.pop_front().map(|(_, result)| result)
    }

    /// The fid of a file as native clients have it.
    pub fn native(&self, of: AfsFid) -> Fid {
        let dir = self.root;
        let (cookie, bytes_max, plus) = (types::Cookie::START, 1 << 20, false);
        let list = Call::ReadDir { dir, cookie, bytes_max, plus };
        let server = self.administrator();
        let Ok(Answer::Entries { entries, .. }) = server.ask(list) else { panic!() };
        entries.iter().find(|one| foreign_fid(one.fid) == Ok(of)).unwrap().fid
    }

    pub fn root(&self) -> AfsFid {
        foreign_fid(self.root).unwrap()
    }

    /// A call without a stream.
    pub fn call(&self, user: &User, call: FilesCall) -> Result<FilesAnswer, Refusal> {
        self.service.serve(user, user.host(), call, &mut Pipe::default())
    }

    pub fn create(&self, user: &User, named: &str) -> AfsFid {
        let (dir, name) = (self.root(), name(named));
        let call = FilesCall::CreateFile { dir, name, status: StoreStatus::default() };
        match self.call(user, call) {
            Ok(FilesAnswer::CreateFile { fid, .. }) => fid,
            other => panic!("{other:?}"),
        }
    }

    pub fn store(
        &self,
        user: &User,
        fid: AfsFid,
        at: u64,
        bytes: &[u8],
    ) -> Result<FilesAnswer, Refusal> {
        let mut pipe = Pipe { sent: bytes.iter().copied().collect(), ..Pipe::default() };
        let length = bytes.len() as u64;
        let (status, position, file_length) = (StoreStatus::default(), at, at + length);
        let call = FilesCall::StoreData64 { fid, status, position, length, file_length };
        self.service.serve(user, user.host(), call, &mut pipe)
    }

    /// The bytes of a range, as the 64-bit call gives them.
    pub fn fetch(
        &self,
        user: &User,
        fid: AfsFid,
        position: i64,
        length: i64,
    ) -> Result<Vec<u8>, Refusal> {
        let mut pipe = Pipe::default();
        let call = FilesCall::FetchData64 { fid, position, length };
        self.service.serve(user, user.host(), call, &mut pipe)?;
        let (count, bytes) = pipe.received.split_at(8);
        assert_eq!(u64::from_be_bytes(count.try_into().unwrap()), bytes.len() as u64);
        Ok(bytes.to_vec())
    }

    /// The breaks that a host has received since the last question.
    pub fn broken(&self, user: &User) -> Vec<BreakItem> {
        std::mem::take(&mut self.world.lock().seats[user.seat].broken)
    }
}

pub fn name(text: &str) -> AfsName {
    AfsName::new(text.as_bytes()).unwrap()
}

/// A native client's status of the same file.
pub fn status(user: &User, fid: Fid) -> Status {
    match user.ask(Call::GetStatus { fid }) {
        Ok(Answer::Status(status)) => status,
        other => panic!("{other:?}"),
    }
}
