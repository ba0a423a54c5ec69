//! State that all threads of the server share: the service and the sessions, and the loop that
//! connects them.
//!
//! A frame makes a session's machine put out work for the service; the service has effects; effects
//! go into sessions' machines, which put out frames and more work. [`ServerContext::deliver_all`]
//! repeats this until nothing is left. No lock is held from one step to the next.
//!
//! Delegated changes come in chains. A worker executes all that has arrived of one; from a member
//! on that may wait for the disk a thread of the pool does. Either opens a commit scope
//! ([`store::Partition::gather`]) at the first one, passes it with each call, and writes it out
//! before it sends.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{ClientOptions, clock};
use dafs::{ServerInput, ServerOutput};
use fabric::tls::ServerTls;
use guard::Certifier;
use observe::names::SERVER_CALL;
use observe::{Wait, request_span};
use parking_lot::{Mutex, RwLock};
use rustix::fd::OwnedFd;
use store::CommitScope;
use types::{
    Answer, AuthCall, Call, CallBlocking, Caller, ClientId, Fault, Host, PartitionNo, Procedure,
    ReplyAddress, SessionId,
};
use vice::{Effect, Execution, Vice};

use crate::audit::Audit;
use crate::connection_lane::LaneRequest;
use crate::connection_verifier::TrustSettings;
use crate::direct_reads::JudgedBy;
use crate::foreign_sessions::ForeignSessions;
use crate::link::{Link, Unread};
use crate::loopback::wall;
use crate::poll::{NobodyBreak, Poll};
use crate::pool::CallPool;
use crate::report::{self, ReportSources, ServerCounts};
use crate::security::Security;
use crate::session_handle::{SessionHandle, StepOutcome};
use crate::usage::{self, Bounds};
use crate::verified_blocks::VerifiedBlocks;
use crate::{OwnKeys, ServerConfig};

pub(crate) struct ServerContext {
    pub vice: Arc<Vice>,
    pub pool: CallPool,
    /// For connections that attach: a thousand that come at once, each waiting for the disk, must
    /// not delay the data of attached ones.
    pub attaching: CallPool,
    /// For calls that may ask another server: such a wait blocks no other work.
    pub remote_calls: CallPool,
    /// For calls of principals that another server must be asked for: its silence affects those
    /// alone.
    pub lookups: CallPool,
    /// For calls of *nobody* that may wait for the disk or for another server.
    pub nobody_calls: CallPool,
    /// For passwords: verifying one takes a processor for tens of milliseconds.
    pub hashing: CallPool,
    /// The limits, and what is in use.
    pub bounds: Arc<Bounds>,
    /// Bytes that sessions of *nobody* have not read.
    pub unread: Arc<Unread>,
    pub tally: ServerCounts,
    /// Blocks of files that were compared with their checksums.
    pub blocks: VerifiedBlocks,
    /// The number of this server instance.
    pub instance: u64,
    pub lease: Duration,
    pub cell_name: Option<String>,
    /// Where the cell's database is ([`crate::CellPlace::engine`]); `None`: in no cell.
    pub database: Option<&'static str>,
    /// The socket for users of this machine, if it listens there.
    users_socket: Option<PathBuf>,
    /// The keys by which other servers know this one; `None`: it shows none.
    own_keys: Option<Arc<OwnKeys>>,
    /// This server is no longer one of its cell. It serves its own machine alone.
    expelled: AtomicBool,
    /// The file that says so, for the next start, with the key.
    expelled_file: Option<PathBuf>,
    /// Lets other servers into the cell; `None`: this one does not.
    pub certifier: Option<Arc<dyn Certifier>>,
    /// Its certificates; `None`: clear text.
    pub tls: Option<Arc<ServerTls>>,
    /// Is clear text accepted beside it?
    pub clear: bool,
    /// How connections are verified.
    pub trust: Arc<TrustSettings>,
    /// How connections to other servers are made.
    pub options: ClientOptions,
    handles: RwLock<HashMap<SessionId, Arc<SessionHandle>>>,
    /// The sessions that are not in `handles`.
    pub foreign: OnceLock<Arc<dyn ForeignSessions>>,
    /// When a user called last, in milliseconds since `born`.
    users_called: AtomicU64,
    born: Instant,
    /// Changes begun, and those that kernels made in lent bodies; the background sync compares.
    pub changes: AtomicU64,
    broken: AtomicBool,
    /// The revision of the cell's rules by which connections were last verified.
    judged: AtomicU64,
    /// The action that ends the service ([`crate::Server::on_broken`]).
    pub end: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// The most calls that wait for a look-up in the cell database. More are refused with `CellAway`.
const LOOKUPS_MAX: usize = 256;

/// Memory for verified blocks: an eighth of the machine's, at most 4 GiB. It is taken as direct
/// reads come.
fn blocks_bytes() -> usize {
    let system = rustix::system::sysinfo();
    let bytes = (system.totalram as u64).saturating_mul(u64::from(system.mem_unit)) / 8;
    usize::try_from(bytes).unwrap_or(usize::MAX).min(4 << 30)
}

/// Effects that remain to be delivered.
#[derive(Default)]
pub(crate) struct Agenda {
    pub effects: Vec<Effect>,
    work: VecDeque<(Arc<SessionHandle>, ServerOutput)>,
    flush: Vec<Arc<Link>>,
    close: Vec<Arc<Link>>,
    /// Breaks that the worker for sessions of *nobody* sends: a directory may be promised to
    /// hundreds of them, and a caller that changes it waits for none. There are no more of them
    /// than promises of such sessions: a session gets one break of a file, until it is promised
    /// that file again.
    to_nobody: Vec<(Arc<Poll>, NobodyBreak)>,
    /// Gathers the changes of calls, from the first delegated change on.
    scope: Option<(PartitionNo, CommitScope)>,
    /// The thread is the pool's, so it may wait for the disk.
    may_wait: bool,
}

/// A call that a session passed up.
struct Request {
    origin: ReplyAddress,
    caller: Caller,
    call: Call,
    chained: bool,
}

impl Request {
    /// Is it the next read of a chain?
    fn is_next_read(&self) -> bool {
        self.chained && self.call.traits().blocking == CallBlocking::Body
    }
}

impl Agenda {
    fn refuse(&mut self, origin: ReplyAddress, fault: Fault) {
        self.effects.push(Effect::Reply { origin, result: Err(fault), body: None });
    }

    /// Something was queued on a link.
    pub fn will_flush(&mut self, link: &Arc<Link>) {
        if !self.flush.iter().any(|known| Arc::ptr_eq(known, link)) {
            self.flush.push(Arc::clone(link));
        }
    }

    /// Adds the outcome of one step of a session.
    pub fn take(&mut self, handle: &Arc<SessionHandle>, outcome: StepOutcome) {
        outcome.flush.iter().for_each(|link| self.will_flush(link));
        self.close.extend(outcome.close);
        self.work.extend(outcome.work.into_iter().map(|work| (Arc::clone(handle), work)));
    }

    /// Writes out what was gathered. A failure is recorded, and ends all changes (DU-3); links find
    /// it when they write out, which they do by themselves, since other threads gather too.
    fn end_scope(&mut self) {
        if let Some((_, scope)) = self.scope.take() {
            drop(scope.write_out());
        }
    }

    /// Sends what was queued.
    pub fn flush(&mut self) {
        while let Some((poll, _)) = self.to_nobody.first() {
            let poll = Arc::clone(poll);
            let all = std::mem::take(&mut self.to_nobody).into_iter();
            let (now, later): (Vec<_>, Vec<_>) =
                all.partition(|(other, _)| Arc::ptr_eq(other, &poll));
            poll.order(|orders| orders.breaks.extend(now.into_iter().map(|(_, one)| one)));
            self.to_nobody = later;
        }
        self.end_scope();
        self.flush.drain(..).for_each(|link| link.flush());
        self.close.drain(..).for_each(|link| link.close());
    }
}

/// Must a password be verified or stored?
fn is_hashed(call: &Call) -> bool {
    let Call::Auth { call, .. } = call else { return false };
    matches!(**call, AuthCall::Password { .. } | AuthCall::SetPassword { .. })
}

/// Users are active while the last call of one is not older than this.
const USERS_RECENT_MILLIS: u64 = 50;
/// The longest rest of a thread that works for sessions of *nobody*.
const REST_MAX: Duration = Duration::from_millis(5);
/// Between a panic and the next attempt.
const RESTART_PAUSE: Duration = Duration::from_millis(500);
/// Calls of *nobody* that wait for a thread: some for each of the sessions that read.
const NOBODY_CALLS_MAX: usize = 1024;

impl ServerContext {
    pub fn new(
        vice: Arc<Vice>,
        [pool, attaching, remote_calls, nobody_calls, hashing, lookups]: [CallPool; 6],
        audit: Option<Arc<Audit>>,
        bounds: Arc<Bounds>,
        config: &ServerConfig,
    ) -> Self {
        let trust = Arc::new(TrustSettings {
            vice: Arc::clone(&vice),
            mint: config.mint.clone(),
            audit,
            trusted: config.trusted.clone(),
            trusted_root: config.trusted_root,
            owners: config.owners.clone(),
            bounds: Arc::clone(&bounds),
        });
        ServerContext {
            vice,
            pool,
            attaching,
            remote_calls,
            lookups,
            nobody_calls,
            hashing,
            unread: Arc::new(Unread::new(bounds.limits.nobody_memory_mib << 20)),
            tally: ServerCounts::default(),
            blocks: VerifiedBlocks::new(blocks_bytes()),
            instance: rand::random(),
            lease: config.lease,
            cell_name: config.cell_name.clone(),
            database: config.cell.as_ref().map(crate::CellPlace::engine),
            users_socket: config.users_socket.clone(),
            certifier: config.certifier.clone(),
            // The server that has the database decides about it.
            own_keys: config.own_keys.clone().filter(|_| !config.has_database()),
            expelled: AtomicBool::new(config.was_expelled()),
            expelled_file: config.expelled_file(),
            tls: config.tls.clone(),
            clear: config.clear,
            trust,
            bounds,
            options: config.options.clone(),
            handles: RwLock::default(),
            foreign: OnceLock::new(),
            users_called: AtomicU64::new(0),
            born: Instant::now(),
            changes: AtomicU64::new(0),
            broken: AtomicBool::new(false),
            judged: AtomicU64::new(0),
            end: OnceLock::new(),
        }
    }

    fn age_millis(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// A thread that works for sessions of *nobody* calls it after a piece of work: while users are
    /// active, it rests for as long as it worked. Such work costs users more than processor time:
    /// caches, locks and the network too.
    pub fn rest_after(&self, began: Instant) {
        if self.age_millis().saturating_sub(self.users_called.load(Ordering::Relaxed))
            < USERS_RECENT_MILLIS
        {
            std::thread::sleep(began.elapsed().min(REST_MAX));
        }
    }

    /// A thread of the server panicked, and goes on.
    pub fn panicked(&self, thread: &str, consequence: &str, remedy: &str) {
        self.tally.panics.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            cause = "a broken assertion, which the previous line names",
            consequence,
            remedy,
            "{thread} panicked"
        );
        self.end_if_broken();
    }

    /// After a panic during a change of the tables that all sessions share the server cannot go on:
    /// it ends in order, and reports why.
    pub fn end_if_broken(&self) {
        if self.vice.is_broken() && !self.broken.swap(true, Ordering::SeqCst) {
            tracing::error!(
                cause = "a panic while the tables of sessions and promises were being changed",
                consequence = "service ends, since these tables may be wrong; what is on disk is \
                    not touched by it",
                remedy = "start the server again; clients go on where they were. Report the lines \
                    before this one",
                "the server ends"
            );
            if let Some(end) = self.end.get() {
                end();
            }
        }
    }

    /// Runs the body of a server's thread; after a panic again from its beginning.
    pub fn keep(&self, thread: &str, mut run: impl FnMut()) {
        while catch_unwind(AssertUnwindSafe(&mut run)).is_err() {
            self.panicked(
                thread,
                "its current work is not done",
                "it starts again; if this repeats, report the lines before this one",
            );
            std::thread::sleep(RESTART_PAUSE);
        }
    }

    pub fn handle(&self, session: SessionId) -> Option<Arc<SessionHandle>> {
        self.handles.read().get(&session).cloned()
    }

    /// The session's handle, made by `make` if there is none.
    pub fn handle_or(
        &self,
        session: SessionId,
        make: impl FnOnce() -> SessionHandle,
    ) -> Arc<SessionHandle> {
        Arc::clone(self.handles.write().entry(session).or_insert_with(|| Arc::new(make())))
    }

    /// Counts the session within the limits of its client's host from now on.
    pub fn is_from(
        &self,
        (client, session): (ClientId, SessionId),
        host: Option<Host>,
        of_nobody: bool,
    ) {
        self.bounds.began((client, session), host, of_nobody);
        self.vice.set_host(session, host);
    }

    pub fn handles(&self) -> Vec<Arc<SessionHandle>> {
        self.handles.read().values().cloned().collect()
    }

    /// Puts the cell's rules into force that came since the last time, the list of server keys
    /// among them. A connection whose certificate has another worth now is closed: its client
    /// reconnects and is verified anew.
    pub fn judge_connections(&self, agenda: &mut Agenda) {
        let revision = self.vice.judged_by().0.0;
        if self.judged.load(Ordering::Acquire) == revision
            || !self.vice.enforce_rules(clock::now(), wall(), &mut agenda.effects)
        {
            return;
        }
        for link in self.handles().iter().flat_map(|handle| handle.links()) {
            if link.certified().is_some_and(|was| was != self.trust.certified(link.security())) {
                tracing::info!(
                    link = link.id.0,
                    "a connection is closed, since the keys of servers have changed"
                );
                link.cut();
            }
        }
        self.judged.store(revision, Ordering::Release);
    }

    /// Is this server no longer one of its cell?
    pub fn is_expelled(&self) -> bool {
        self.expelled.load(Ordering::Acquire)
    }

    /// Notes whether the database does not list this server's key and refuses to: so an
    /// administrator has withdrawn it or removed the server. It serves nothing in the network until
    /// it has another key; clients go to other servers.
    pub fn judge_itself(&self) {
        let Some(keys) = &self.own_keys else { return };
        let is_expelled = keys.are_expelled();
        if self.expelled.swap(is_expelled, Ordering::AcqRel) == is_expelled {
            return;
        }
        if let Some(file) = &self.expelled_file {
            let key = keys.wanted().first().map(ToString::to_string).unwrap_or_default();
            let noted =
                if is_expelled { std::fs::write(file, key) } else { std::fs::remove_file(file) };
            if let Err(error) = noted {
                tracing::warn!(%error, "the next start does not know of this");
            }
        }
        if !is_expelled {
            tracing::info!("this server is one of its cell again, and serves the network");
            return;
        }
        tracing::error!(
            key = ?keys.wanted().first(),
            cause = "the cell's database refuses its key: it was withdrawn, or the server was \
                     removed",
            consequence = "it serves nothing in the network",
            remedy = "to bring it back, 'rialto cell invite' on a server of the cell, then 'rialto \
                      down' and 'rialto up --join CODE' here",
            "this server is no longer one of its cell"
        );
        let links = self.handles().into_iter().flat_map(|handle| handle.links());
        let others = links.filter(|link| link.security() != Security::Local);
        others.for_each(|link| link.cut());
    }

    /// Does all work and delivers all effects; frames are queued, and sent by [`Agenda::flush`].
    /// `link`: the requests came over it.
    pub fn deliver_all(self: &Arc<Self>, agenda: &mut Agenda, link: Option<&Arc<Link>>) {
        loop {
            let effects = std::mem::take(&mut agenda.effects);
            if effects.is_empty() {
                let Some((handle, work)) = agenda.work.pop_front() else { return };
                self.work(&handle, work, agenda, link);
            }
            for effect in effects {
                self.deliver(effect, agenda);
            }
        }
    }

    /// A request came through a lane.
    ///
    /// # Errors
    /// It breaks the protocol.
    pub fn take_lane_request(
        self: &Arc<Self>,
        handle: &Arc<SessionHandle>,
        link: &Arc<Link>,
        request: &LaneRequest,
        agenda: &mut Agenda,
    ) -> Result<usize, String> {
        self.tally.frames.fetch_add(1, Ordering::Relaxed);
        self.tally.lane_requests.fetch_add(1, Ordering::Relaxed);
        let header = &request.header;
        if header.procedure == Procedure::Read as u16
            && let Ok(Call::Read { fid, offset, length }) =
                dafs::decode_call(header.procedure, request.message(), Bytes::new())
        {
            let judged_by = (self.judged_by(), wall());
            let what = (fid, offset, length);
            let find = || handle.direct.find(header.credential, what, judged_by, &self.blocks);
            if handle.answer_at_once(link, request, find) {
                self.users_called.store(self.age_millis(), Ordering::Relaxed);
                self.tally.lane_hits.fetch_add(1, Ordering::Relaxed);
                agenda.will_flush(link);
                return Ok(length as usize);
            }
            handle.direct.expect((header.slot, header.request), header.credential);
        }
        link.goes_by_lane(header.slot, request.memory())?;
        let mut outcome = handle.arrived(clock::now(), link, request.to_frame());
        let error = outcome.error.take();
        agenda.take(handle, outcome);
        self.deliver_all(agenda, Some(link));
        error.map_or(Ok(0), |error| Err(error.to_string()))
    }

    /// By which state callers are judged now.
    fn judged_by(&self) -> JudgedBy {
        let (rules, rights) = self.vice.judged_by();
        JudgedBy { rights, rules: rules.0 }
    }

    /// As `deliver_all`, and sends.
    pub fn deliver_and_send(self: &Arc<Self>, agenda: &mut Agenda) {
        self.deliver_all(agenda, None);
        agenda.flush();
    }

    fn deliver(&self, effect: Effect, agenda: &mut Agenda) {
        let now = clock::now();
        match effect {
            Effect::Reply { origin, result, body } => {
                if let Some(handle) = self.handle(origin.session) {
                    let outcome = self.answer(&handle, origin, result, body);
                    agenda.take(&handle, outcome);
                } else if let Some(foreign) = self.foreign.get() {
                    foreign.answer(origin, result);
                }
            }
            Effect::Executed { origin, current } => {
                if let Some(handle) = self.handle(origin.session) {
                    let input = ServerInput::Executed { origin, current };
                    let outcome = handle.step(now, input, None);
                    agenda.take(&handle, outcome);
                }
            }
            Effect::Break { to, id, items } => {
                self.tally.breaks.fetch_add(1, Ordering::Relaxed);
                if let Some(handle) = self.handle(to) {
                    handle.direct.on_break(&items);
                    if let Some(poll) = handle.poll_of_nobody() {
                        agenda.to_nobody.push((poll, NobodyBreak { session: to, id, items }));
                        return;
                    }
                    let outcome = handle.step(now, ServerInput::Break { id, items }, None);
                    agenda.take(&handle, outcome);
                } else if let Some(foreign) = self.foreign.get() {
                    foreign.end_promises(to, id, items);
                }
            }
            Effect::SessionEnded(session) => {
                let handle = self.handles.write().remove(&session);
                let host = self.bounds.host_of(session);
                self.bounds.ended(session);
                if let Some(handle) = handle {
                    let before = if handle.is_of_nobody() {
                        self.bounds.may_log("end", host)
                    } else {
                        Some(0)
                    };
                    if let Some(before) = before {
                        tracing::info!(session = session.0, before, "session ended");
                    }
                    let outcome = handle.step(now, ServerInput::End(Fault::Expired), None);
                    agenda.take(&handle, outcome);
                } else if let Some(foreign) = self.foreign.get() {
                    foreign.ended(session);
                }
            }
        }
    }

    fn answer(
        &self,
        handle: &Arc<SessionHandle>,
        origin: ReplyAddress,
        result: Result<Answer, Fault>,
        body: Option<OwnedFd>,
    ) -> StepOutcome {
        self.tally.replies.fetch_add(1, Ordering::Relaxed);
        let mut result = result;
        handle.direct.answer((origin.slot, origin.request), &mut result, &self.blocks);
        let descriptor = body.is_some();
        handle.step(clock::now(), ServerInput::Answered { origin, result, descriptor }, body)
    }

    fn work(
        self: &Arc<Self>,
        handle: &Arc<SessionHandle>,
        work: ServerOutput,
        agenda: &mut Agenda,
        link: Option<&Arc<Link>>,
    ) {
        let now = clock::now();
        match work {
            ServerOutput::Execute { origin, caller, mut call, chained, .. } => {
                let address = (origin.slot, origin.request);
                handle.direct.ask(address, &caller, self.judged_by(), &mut call);
                if let Some(link) = link {
                    handle.begin(origin, link, &call);
                }
                let request = Request { origin, caller, call, chained };
                if !handle.is_of_nobody() {
                    self.users_called.store(self.age_millis(), Ordering::Relaxed);
                    self.execute(handle, request, agenda);
                } else if !request.caller.who.level.is_proved() {
                    self.execute_for_nobody(handle, request, agenda);
                } else {
                    self.execute_first_of_user(handle, request);
                }
            }
            ServerOutput::Cancel(origin) => self.vice.cancel(now, origin, &mut agenda.effects),
            ServerOutput::Acknowledged { id, held } => {
                self.vice.ack(now, handle.id, id, &held, &mut agenda.effects);
            }
            ServerOutput::Renew { channel, number } => {
                let renewed = self.vice.renew(now, handle.id, &mut agenda.effects);
                let outcome =
                    handle.step(now, ServerInput::Renewed { channel, number, renewed }, None);
                agenda.take(handle, outcome);
            }
            ServerOutput::Detached => {
                self.handles.write().remove(&handle.id);
                self.vice.detach(now, handle.id, &mut agenda.effects);
            }
            ServerOutput::Overrun => {
                tracing::warn!(
                    session = handle.id.0,
                    "the session cannot be kept coherent and ends"
                );
                self.vice.peer_died(now, handle.id, &mut agenda.effects);
            }
            // The session's handle has processed these.
            ServerOutput::Send { .. } | ServerOutput::Close { .. } => {}
        }
    }

    /// A user calls through a session that was one of *nobody*: it is a user's from here on, which
    /// is recorded on disk first.
    fn execute_first_of_user(self: &Arc<Self>, handle: &Arc<SessionHandle>, request: Request) {
        let (context, handle) = (Arc::clone(self), Arc::clone(handle));
        self.attaching.run(move || {
            context.work_apart(|agenda| match context.prove(&handle, agenda) {
                Ok(()) => context.execute(&handle, request, agenda),
                Err(fault) => agenda.refuse(request.origin, fault),
            });
        });
    }

    /// In a thread of a pool, which may wait: does the work, delivers its effects and sends.
    fn work_apart(self: &Arc<Self>, work: impl FnOnce(&mut Agenda)) {
        let mut agenda = Agenda { may_wait: true, ..Agenda::default() };
        work(&mut agenda);
        self.deliver_and_send(&mut agenda);
    }

    fn prove(&self, handle: &Arc<SessionHandle>, agenda: &mut Agenda) -> Result<(), Fault> {
        if !handle.is_of_nobody() {
            return Ok(());
        }
        self.prove_session(handle.id, agenda)?;
        let links = handle.become_users();
        let outcome = handle.step(clock::now(), ServerInput::Grant(self.vice.slots_max()), None);
        agenda.take(handle, outcome);
        // Their worker moves them.
        links.iter().for_each(|link| link.poll().go_on(link.id));
        Ok(())
    }

    fn prove_session(&self, session: SessionId, agenda: &mut Agenda) -> Result<(), Fault> {
        if !self.bounds.admit_user(self.bounds.host_of(session)) {
            return Err(Fault::Busy);
        }
        self.vice.prove(clock::now(), session, &mut agenda.effects)?;
        self.bounds.proved(session);
        Ok(())
    }

    /// A user calls through a foreign session that was one of *nobody*. May wait for the disk.
    ///
    /// # Errors
    /// As [`Vice::prove`]; `Busy` if the host has as many sessions as it may have.
    pub fn prove_foreign(self: &Arc<Self>, session: SessionId) -> Result<(), Fault> {
        let mut proved = Ok(());
        self.work_apart(|agenda| proved = self.prove_session(session, agenda));
        proved
    }

    /// Executes a call of a foreign session in this thread, which may wait for the disk and for
    /// other servers.
    pub fn perform_foreign(self: &Arc<Self>, origin: ReplyAddress, caller: &Caller, call: Call) {
        if caller.who.level.is_proved() {
            self.users_called.store(self.age_millis(), Ordering::Relaxed);
        }
        if call.changes() {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        self.work_apart(|agenda| {
            self.vice.announce(clock::now(), &call, &mut agenda.effects);
            let request = Request { origin, caller: caller.clone(), call, chained: false };
            self.perform(request, agenda);
        });
    }

    /// Does something to the service, and delivers its effects.
    pub fn with_vice<T>(self: &Arc<Self>, act: impl FnOnce(&Vice, &mut Vec<Effect>) -> T) -> T {
        let mut agenda = Agenda::default();
        let result = act(&self.vice, &mut agenda.effects);
        self.deliver_and_send(&mut agenda);
        result
    }

    /// Slow calls of *nobody* have few threads, and few may wait for them.
    fn execute_for_nobody(
        self: &Arc<Self>,
        handle: &Arc<SessionHandle>,
        request: Request,
        agenda: &mut Agenda,
    ) {
        if is_hashed(&request.call) {
            return self.execute_hashed(handle, request, agenda);
        }
        if !(vice::may_block(&request.call) || request.is_next_read()) {
            return self.execute(handle, request, agenda);
        }
        if request.call.changes() {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        let (context, origin) = (Arc::clone(self), request.origin);
        let taken = self.nobody_calls.try_run(NOBODY_CALLS_MAX, move || {
            let began = Instant::now();
            context.work_apart(|agenda| context.perform(request, agenda));
            context.rest_after(began);
        });
        if !taken {
            usage::count(&self.bounds.met.nobody_calls);
            agenda.refuse(origin, Fault::Busy);
        }
    }

    /// Passwords have threads of their own, and few may wait: if they are full the client must
    /// retry.
    fn execute_hashed(
        self: &Arc<Self>,
        handle: &Arc<SessionHandle>,
        request: Request,
        agenda: &mut Agenda,
    ) {
        // Another server asks on behalf of a caller elsewhere.
        let elsewhere = match &request.call {
            Call::Auth { behalf: Some(behalf), .. } if request.caller.is_root() => {
                behalf.host.map(Host::of)
            }
            _ => None,
        };
        let (context, origin) = (Arc::clone(self), request.origin);
        let host = elsewhere.or_else(|| self.bounds.host_of(handle.id));
        let has_room = self.bounds.begin_password(host);
        let taken = has_room
            && self.hashing.try_run(self.bounds.limits.passwords_waiting, move || {
                context.work_apart(|agenda| {
                    context.perform(request, agenda);
                    context.bounds.end_password(host);
                });
            });
        if !taken {
            if has_room {
                self.bounds.end_password(host);
            }
            usage::count(&self.bounds.met.passwords);
            agenda.refuse(origin, Fault::Busy);
        }
    }

    fn execute(
        self: &Arc<Self>,
        handle: &Arc<SessionHandle>,
        request: Request,
        agenda: &mut Agenda,
    ) {
        debug_assert!(
            !handle.is_of_nobody() || !request.caller.who.level.is_proved(),
            "CB-4: a user calls through a session that has a lease"
        );
        if is_hashed(&request.call) {
            return self.execute_hashed(handle, request, agenda);
        }
        if request.call.changes() {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        let may_block = vice::may_block(&request.call);
        let blocking = request.call.traits().blocking;
        self.vice.announce(clock::now(), &request.call, &mut agenda.effects);
        if agenda.may_wait && blocking == CallBlocking::Body {
            // The next read of a chain: no other thread is woken for it, and finished reads are
            // sent before a long one.
            if may_block {
                agenda.flush();
            }
            self.perform(request, agenda);
        } else if may_block || request.is_next_read() {
            let context = Arc::clone(self);
            let pool = match blocking {
                CallBlocking::Database | CallBlocking::Both => &self.remote_calls,
                _ => &self.pool,
            };
            let queued = Instant::now();
            pool.run(move || {
                observe::record(Wait::ServerQueue, queued.elapsed());
                context.work_apart(|agenda| context.perform(request, agenda));
            });
        } else {
            self.gather_for(&request.call, agenda);
            self.perform(request, agenda);
        }
    }

    /// Begins to gather for the partition of a delegated change; one scope at a time, so that all
    /// of it is written out before the changes of another partition.
    fn gather_for(&self, call: &Call, agenda: &mut Agenda) {
        let Some((no, partition)) = self.vice.partition_of_delegated(call) else { return };
        if agenda.scope.as_ref().is_none_or(|(of, _)| *of != no) {
            agenda.end_scope();
            agenda.scope = Some((no, partition.gather()));
        }
    }

    fn report_sources(&self) -> ReportSources<'_> {
        ReportSources {
            cell_name: self.cell_name.as_deref(),
            database: self.database,
            users_socket: self.users_socket.as_deref(),
            certifier: self.certifier.as_deref(),
            counts: &self.tally,
            bounds: &self.bounds,
            audit: self.trust.audit.as_deref(),
            nobody_unread_bytes: self.unread.bytes(),
            sessions: self.handles().iter().map(|handle| handle.security()).collect(),
        }
    }

    /// Runs the call in this thread. A panic affects this request alone.
    fn perform(&self, request: Request, agenda: &mut Agenda) {
        let Request { origin, caller, call, .. } = request;
        let (for_report, proved) =
            (matches!(call, Call::ServerReport), caller.who.level.is_proved());
        let mut effects = Vec::new();
        let began = Instant::now();
        let span = request_span!(
            SERVER_CALL,
            call.traits().name,
            call.files()[0].copied(),
            origin.session.0,
            format_args!("{}.{}", origin.slot, origin.request)
        );
        let _in_span = span.enter();
        let scope = agenda.scope.as_ref().map(|(_, scope)| scope);
        let execution = Execution::new(clock::now(), wall(), &caller, origin);
        self.guard_request(origin, &mut effects, |effects| {
            self.vice.perform(Execution { scope, ..execution }, call, effects);
        });
        observe::record(Wait::ServerCall, began.elapsed());
        if for_report {
            report::add_to(&self.report_sources(), proved, &mut effects);
        }
        agenda.effects.append(&mut effects);
    }

    /// Does the work of a request, which is refused if it panics.
    fn guard_request(
        &self,
        origin: ReplyAddress,
        effects: &mut Vec<Effect>,
        work: impl FnOnce(&mut Vec<Effect>),
    ) {
        if catch_unwind(AssertUnwindSafe(|| work(effects))).is_err() {
            self.tally.panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!(?origin, "a request panicked");
            self.end_if_broken();
            effects.push(Effect::Reply { origin, result: Err(Fault::Medium), body: None });
        }
    }
}

/// The way of calls that must look principals up on another server to the threads for them.
#[derive(Default)]
pub(crate) struct Lookups {
    context: Mutex<Weak<ServerContext>>,
}

impl Lookups {
    /// Sets the server. Once, before the first request.
    pub fn work_for(&self, context: &Arc<ServerContext>) {
        *self.context.lock() = Arc::downgrade(context);
    }

    /// For the service.
    pub fn hook(self: &Arc<Self>) -> vice::LookupHook {
        let lookups = Arc::clone(self);
        Box::new(move |lookup| {
            let context = lookups.context.lock().upgrade();
            context.is_some_and(|context| context.look_up_later(lookup))
        })
    }
}

impl ServerContext {
    /// False: too many calls wait.
    fn look_up_later(self: &Arc<Self>, lookup: vice::Lookup) -> bool {
        let (looking, origin) = (Arc::clone(self), lookup.origin());
        self.lookups.try_run(LOOKUPS_MAX, move || {
            looking.work_apart(|agenda| {
                looking.guard_request(origin, &mut agenda.effects, |effects| {
                    looking.vice.look_up(clock::now(), lookup, effects);
                });
            });
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use store::{MemMachine, OpenOptions, Partition};
    use vice::ViceConfig;

    use super::*;
    use crate::ServerLimits;

    fn context() -> ServerContext {
        let partition = Partition::open_memory(&MemMachine::new(), OpenOptions::default()).unwrap();
        let config = ViceConfig::new(dafs::encode_answer_record, |record| {
            dafs::decode_answer_record(record).ok()
        });
        let vice = Arc::new(Vice::open(partition, config, clock::now()).unwrap());
        let pools = std::array::from_fn(|_| CallPool::start("test", 1).unwrap());
        let bounds = Arc::new(Bounds::new(ServerLimits::default(), None));
        ServerContext::new(vice, pools, None, bounds, &ServerConfig::new("/nowhere"))
    }

    #[test]
    fn m6_a_thread_that_panics_begins_anew_and_is_counted() {
        let context = context();
        let turns = AtomicU32::new(0);
        context.keep("a thread under test", || {
            assert!(turns.fetch_add(1, Ordering::SeqCst) > 0, "the first turn panics");
        });
        assert_eq!(turns.load(Ordering::SeqCst), 2, "the second turn ended in order");
        assert_eq!(context.tally.panics.load(Ordering::Relaxed), 1);
    }
}
