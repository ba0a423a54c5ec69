//! The base of the tests: the real service in this process, and clients whose calls are counted and
//! can be intercepted.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

pub mod history;
pub mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use client::{BreakAck, CallError, Cancel, Events, Remote, Reply, Session, clock};
use parking_lot::Mutex;
use server::{Loopback, LoopbackSession};
use store::{MemMachine, NewRoot, OpenOptions, Partition, PartitionConfig, VolumeQuota};
use types::{
    Answer, BootVerifier, BreakItem, Call, Caller, ClientId, Cookie, Fid, Name, Time, Timestamp,
};
use venus::{
    EntryReply, KernelPort, LookupReply, OpenHandle, OpenMode, RequestContext, Venus, VenusConfig,
};
use vice::{Vice, ViceConfig, ViceParts};

pub const ROOT: Caller = Caller::ROOT;
pub const RW: OpenMode = OpenMode { read: true, write: true, append: false, truncate: false };
pub const RO: OpenMode = OpenMode { read: true, write: false, append: false, truncate: false };
pub const APPEND: OpenMode = OpenMode { read: true, write: true, append: true, truncate: false };

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub fn me() -> RequestContext<'static> {
    RequestContext::of(&ROOT)
}

/// A server with one volume, in memory unless it has a directory.
pub struct TestServer {
    pub loopback: Loopback,
    pub root: Fid,
    _dir: Option<tempfile::TempDir>,
}

impl TestServer {
    pub fn in_memory() -> Self {
        Self::with_quota(VolumeQuota::default())
    }

    pub fn with_quota(quota: VolumeQuota) -> Self {
        let machine = MemMachine::new();
        let partition = Partition::open_memory(&machine, OpenOptions::default()).unwrap();
        Self::on(partition, None, quota, ViceParts::default())
    }

    /// In memory; access lists ask there who a caller is.
    pub fn with_principals(principals: Arc<dyn vice::Principals>) -> Self {
        let partition = Partition::open_memory(&MemMachine::new(), OpenOptions::default()).unwrap();
        let parts = ViceParts { principals: Some(principals), ..ViceParts::default() };
        Self::on(partition, None, VolumeQuota::default(), parts)
    }

    pub fn on_disk() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = PartitionConfig { server: "test".into() };
        let options = OpenOptions { cache_bytes: 8 << 20, ..OpenOptions::default() };
        let partition = Partition::create(&dir.path().join("vicepa"), &config, options).unwrap();
        Self::on(partition, Some(dir), VolumeQuota::default(), ViceParts::default())
    }

    pub fn path(&self) -> &std::path::Path {
        self._dir.as_ref().unwrap().path()
    }

    fn on(
        partition: Partition,
        dir: Option<tempfile::TempDir>,
        quota: VolumeQuota,
        parts: ViceParts,
    ) -> Self {
        let root = Self::add_volume(&partition, "v", quota);
        let config = ViceConfig::new(dafs::codec::encode_answer_record, |bytes| {
            dafs::codec::decode_answer_record(bytes).ok()
        });
        let vice = Vice::open_with(partition, config, parts, clock::now()).unwrap();
        TestServer { loopback: Loopback::new(Arc::new(vice)), root, _dir: dir }
    }

    fn add_volume(partition: &Partition, volume: &str, quota: VolumeQuota) -> Fid {
        let root = NewRoot { mode: 0o755, uid: 0, gid: 0, now: Timestamp::new(1, 0), quota };
        Fid::root(partition.volumes().create_volume(&name(volume), &root).unwrap().id())
    }

    /// In memory, with volumes of these names too.
    pub fn with_volumes(names: &[String]) -> Self {
        let partition = Partition::open_memory(&MemMachine::new(), OpenOptions::default()).unwrap();
        for name in names {
            Self::add_volume(&partition, name, VolumeQuota::default());
        }
        Self::on(partition, None, VolumeQuota::default(), ViceParts::default())
    }

    pub fn client(&self, number: u128) -> Client {
        self.client_with(number, true, VenusConfig::default())
    }

    /// A later incarnation of a client, with an empty state.
    pub fn client_with_life(&self, number: u128, incarnation: u64) -> LoopbackSession {
        self.loopback.attach(ClientId(number), incarnation).unwrap()
    }

    /// A client whose connection passes no descriptors.
    pub fn remote_client(&self, number: u128) -> Client {
        self.client_with(number, false, VenusConfig::default())
    }

    pub fn client_with(&self, number: u128, descriptors: bool, config: VenusConfig) -> Client {
        let wire = self.wire(number, descriptors);
        let venus = Venus::new(wire.clone(), config).unwrap();
        let kernel = Arc::new(Kernel::default());
        venus.set_invalidate(kernel.clone());
        Client { venus, wire, kernel, root: self.root }
    }

    /// A client's session.
    pub fn wire(&self, number: u128, descriptors: bool) -> Arc<Wire> {
        Arc::new(Wire {
            session: self.loopback.attach(ClientId(number), 1).unwrap(),
            descriptors,
            calls: Mutex::default(),
            before: Mutex::new(None),
            after: Mutex::new(None),
            events: Mutex::new(None),
            drops_renewals: Arc::default(),
            life: AtomicU64::new(0),
        })
    }
}

/// Records notifications to the kernel.
#[derive(Default)]
pub struct Kernel(pub Mutex<Vec<Notified>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notified {
    Data(Fid),
    Directory(Fid),
    All,
}

impl KernelPort for Kernel {
    fn inode_data(&self, fid: Fid) {
        self.0.lock().push(Notified::Data(fid));
    }
    fn directory(&self, fid: Fid) {
        self.0.lock().push(Notified::Directory(fid));
    }
    fn all(&self) {
        self.0.lock().push(Notified::All);
    }
}

type Before = Box<dyn Fn(&Call) -> Option<Result<Answer, CallError>> + Send + Sync>;
type After = Box<dyn Fn(&Call, &mut Result<Reply, CallError>) + Send + Sync>;

/// A session whose calls are observed.
pub struct Wire {
    pub session: LoopbackSession,
    descriptors: bool,
    calls: Mutex<BTreeMap<&'static str, usize>>,
    /// May answer in place of the server.
    pub before: Mutex<Option<Arc<Before>>>,
    /// May change the server's answer.
    pub after: Mutex<Option<Arc<After>>>,
    pub events: Mutex<Option<Arc<dyn Events>>>,
    /// Drops renewals.
    pub drops_renewals: Arc<AtomicBool>,
    /// The boot verifier of the answers; 0: none.
    pub life: AtomicU64,
}

struct Ear {
    events: Arc<dyn Events>,
    drops_renewals: Arc<AtomicBool>,
}

impl Events for Ear {
    fn on_break(&self, items: &[BreakItem], ack: BreakAck) {
        self.events.on_break(items, ack);
    }
    fn on_renewed(&self, sent_at: Time) {
        if !self.drops_renewals.load(Ordering::SeqCst) {
            self.events.on_renewed(sent_at);
        }
    }
    fn on_lease_lost(&self) {
        self.events.on_lease_lost();
    }
    fn on_server_restarted(&self, reclaim: &dyn Remote) {
        self.events.on_server_restarted(reclaim);
    }
}

fn kind(call: &Call) -> &'static str {
    match call {
        Call::Lookup { .. } => "Lookup",
        Call::GetStatus { .. } => "GetStatus",
        Call::SetStatus { .. } => "SetStatus",
        Call::Make { .. } => "Make",
        Call::Remove { .. } => "Remove",
        Call::Rename { .. } => "Rename",
        Call::ReadDir { .. } => "ReadDir",
        Call::Read { .. } => "Read",
        Call::Write { .. } => "Write",
        Call::Commit { .. } => "Commit",
        Call::CommitVolume { .. } => "CommitVolume",
        Call::OpenBody { .. } => "OpenBody",
        Call::ReadSums { .. } => "ReadSums",
        Call::Lock { .. } => "Lock",
        Call::Unlock { .. } => "Unlock",
        Call::Hold { .. } => "Hold",
        Call::Unhold { .. } => "Unhold",
        Call::VolumeStatus { .. } => "VolumeStatus",
        Call::Delegate { .. } => "Delegate",
        Call::Rights { .. } => "Rights",
        Call::Delegated { call, .. } => kind(call),
        Call::Return { .. } => "Return",
        _ => "other",
    }
}

impl Wire {
    /// Counts of calls since the last time, without those of the background.
    pub fn take(&self) -> BTreeMap<&'static str, usize> {
        let mut calls = std::mem::take(&mut *self.calls.lock());
        calls.remove("Unhold");
        calls
    }

    pub fn count(&self, kind: &str) -> usize {
        self.calls.lock().get(kind).copied().unwrap_or(0)
    }

    pub fn set_before(
        &self,
        hook: impl Fn(&Call) -> Option<Result<Answer, CallError>> + Send + Sync + 'static,
    ) {
        *self.before.lock() = Some(Arc::new(Box::new(hook)));
    }

    pub fn set_after(
        &self,
        hook: impl Fn(&Call, &mut Result<Reply, CallError>) + Send + Sync + 'static,
    ) {
        *self.after.lock() = Some(Arc::new(Box::new(hook)));
    }

    pub fn clear(&self) {
        *self.before.lock() = None;
        *self.after.lock() = None;
    }

    fn one(
        &self,
        call: &Call,
        run: impl FnOnce() -> Result<Reply, CallError>,
    ) -> Result<Reply, CallError> {
        *self.calls.lock().entry(kind(call)).or_default() += 1;
        let before = self.before.lock().clone();
        if let Some(answer) = before.and_then(|hook| hook(call)) {
            return answer.map(Reply::from);
        }
        let mut result = run();
        let after = self.after.lock().clone();
        if let Some(hook) = after {
            hook(call, &mut result);
        }
        result
    }
}

impl Wire {
    fn stamped(&self, mut result: Result<Reply, CallError>) -> Result<Reply, CallError> {
        let life = self.life.load(Ordering::SeqCst);
        if let Ok(reply) = &mut result {
            reply.verifier = (life > 0).then_some(BootVerifier(life));
        }
        result
    }
}

impl Remote for Wire {
    fn call(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Reply, CallError> {
        self.stamped(self.one(&call.clone(), || self.session.call(caller, call, cancel)))
    }

    fn chain(&self, caller: &Caller, calls: Vec<Call>) -> Vec<Result<Reply, CallError>> {
        let chained =
            |call: &Call| if matches!(call, Call::Read { .. }) { "ReadAhead" } else { kind(call) };
        calls.iter().for_each(|call| *self.calls.lock().entry(chained(call)).or_default() += 1);
        let before = self.before.lock().clone();
        let refused = before.and_then(|hook| {
            let answer = |(at, call): (usize, &Call)| match call {
                Call::Delegated { call, .. } => hook(call).map(|answer| (at, answer)),
                _ => None,
            };
            calls.iter().enumerate().find_map(answer)
        });
        let Some((at, answer)) = refused else {
            return self
                .session
                .chain(caller, calls)
                .into_iter()
                .map(|result| self.stamped(result))
                .collect();
        };
        let rest = calls.len() - at - 1;
        let mut results = self.session.chain(caller, calls.into_iter().take(at).collect());
        results.push(answer.map(Reply::from));
        results.extend((0..rest).map(|_| Err(CallError::Fault(types::Fault::ChainAborted))));
        results
    }

    fn set_events(&self, events: Arc<dyn Events>) {
        *self.events.lock() = Some(events.clone());
        self.session
            .set_events(Arc::new(Ear { events, drops_renewals: self.drops_renewals.clone() }));
    }

    fn passes_descriptors(&self) -> bool {
        self.descriptors
    }
}

/// A session as from another machine.
pub struct Far(pub Session);

impl Remote for Far {
    fn call(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Reply, CallError> {
        self.0.call(caller, call, cancel)
    }

    fn chain(&self, caller: &Caller, calls: Vec<Call>) -> Vec<Result<Reply, CallError>> {
        self.0.chain(caller, calls)
    }

    fn set_events(&self, events: Arc<dyn Events>) {
        self.0.set_events(events);
    }

    fn passes_descriptors(&self) -> bool {
        false
    }
}

/// One machine.
pub struct Client {
    pub venus: Venus,
    pub wire: Arc<Wire>,
    pub kernel: Arc<Kernel>,
    pub root: Fid,
}

impl Client {
    pub fn create(&self, path: &str) -> (Fid, OpenHandle) {
        let (entry, opened) =
            self.venus.create(&me(), self.root, &name(path), 0o644, false, RW).unwrap();
        (entry.status.fid, opened.handle)
    }

    pub fn find(&self, path: &str) -> Option<EntryReply> {
        match self.venus.lookup(&me(), self.root, &name(path)).unwrap() {
            LookupReply::Entry(entry) => Some(entry),
            LookupReply::Absent { .. } => None,
        }
    }

    pub fn open(&self, path: &str, mode: OpenMode) -> OpenHandle {
        let fid = self.find(path).unwrap().status.fid;
        self.venus.open(&me(), fid, mode).unwrap().handle
    }

    pub fn write(&self, handle: OpenHandle, offset: u64, data: &[u8]) {
        let wrote =
            self.venus.write(&me(), handle, offset, Bytes::copy_from_slice(data), false).unwrap();
        assert_eq!(wrote.count as usize, data.len());
    }

    pub fn read(&self, handle: OpenHandle, offset: u64, length: u32) -> Bytes {
        self.venus.read(&me(), handle, offset, length).unwrap()
    }

    pub fn close(&self, handle: OpenHandle) {
        self.venus.flush(&me(), handle, None).unwrap();
        self.venus.release(&me(), handle, None).unwrap();
    }

    /// All of a file, through a handle of its own.
    pub fn content(&self, path: &str) -> Bytes {
        let handle = self.open(path, RO);
        let mut whole = Vec::new();
        loop {
            let part = self.read(handle, whole.len() as u64, 1 << 20);
            if part.is_empty() {
                break;
            }
            whole.extend_from_slice(&part);
        }
        self.close(handle);
        whole.into()
    }

    /// Reads a listing to its end.
    pub fn list(&self, dir: Fid, plus: bool) -> Vec<venus::ListEntry> {
        let handle = self.venus.dirs().opendir(&me(), dir).unwrap();
        let mut all = Vec::new();
        loop {
            let cookie = all.last().map_or(Cookie::START, |entry: &venus::ListEntry| entry.cookie);
            let listing = self.venus.dirs().readdir(&me(), handle, cookie, 4096, plus).unwrap();
            let end = listing.end;
            all.extend(listing.entries);
            if end {
                break;
            }
        }
        self.venus.dirs().releasedir(handle);
        all
    }
}

/// Ends the other threads, also when this thread panics.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
