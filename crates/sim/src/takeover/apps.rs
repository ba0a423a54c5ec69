//! The applications of a client: each does one operation at a time.

use std::time::Duration;

use bytes::Bytes;
use lease::CallStart;
use rand::Rng;
use types::{
    Answer, ByteRange, Call, CreateHow, Fault, LockFamily, LockMode, LockOwner, NewKind,
    ReplyAddress, Time,
};

use super::client::{Purpose, TakeoverClient, inherit};
use super::judge::{LogRead, TokenFate};
use super::mutation::TakeoverMutation;
use super::world::{Occurrence, StandbyWorld};

/// Logs in the volume.
pub(super) const LOGS: usize = 3;
/// The longest pause between two operations.
const PAUSE_MAX: Duration = Duration::from_millis(700);
/// The pause after a refusal that says nothing about the volume's place.
const AGAIN: Duration = Duration::from_millis(300);
/// One pause in so many is longer than a lease.
const LONG_ONE_IN: u32 = 150;
/// Bytes of a log that are read; none grows so long.
const READ_BYTES: u32 = 1 << 20;

/// An operation of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogOp {
    Append { log: usize, token: u64, stable: bool },
    Create { token: u64 },
    Read { log: usize },
    Commit,
    Lock { log: usize },
    Unlock { log: usize },
}

/// Where an application is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AppState {
    Idle,
    Calling,
    /// The call was refused or given up; it is settled when the client is at home. `lost`: with its
    /// session.
    Refused {
        lost: bool,
    },
}

impl AppState {
    /// Whether a user waits.
    pub fn waits(self) -> bool {
        self != AppState::Idle
    }
}

/// See the head of the file.
pub(super) struct App {
    pub state: AppState,
    op: Option<LogOp>,
    began: Time,
    /// The counts of own changes when it began.
    mark: (u64, u64),
    /// Its last request, and the generation of the volume where that was made.
    pub made: Option<(ReplyAddress, u64)>,
    /// The log that it has locked, as far as it knows.
    lock: Option<usize>,
}

impl Default for App {
    fn default() -> Self {
        let (state, began, mark) = (AppState::Idle, Time::ZERO, (0, 0));
        App { state, op: None, began, mark, made: None, lock: None }
    }
}

impl App {
    /// Its call was refused or given up.
    pub fn refused(&mut self, made: Option<(ReplyAddress, u64)>, lost: bool) {
        self.state = AppState::Refused { lost };
        self.made = made;
    }
}

/// A copy of a log in the cache.
pub(super) struct LogCopy {
    bytes: Bytes,
    /// Of the volume from which it was read.
    generation: u64,
}

/// The name of a file that is made once.
pub(super) fn name_of(token: u64) -> types::Name {
    super::name(&format!("file-{token}"))
}

impl TakeoverClient {
    /// An application goes on.
    pub fn act(&mut self, world: &mut StandbyWorld, thread: usize) {
        match self.apps[thread].state {
            AppState::Calling => {}
            AppState::Idle => self.begin(world, thread),
            AppState::Refused { lost } => self.settle(world, thread, lost),
        }
    }

    fn later(&mut self, world: &mut StandbyWorld, thread: usize, delay: Duration) {
        world.after(delay, Occurrence::Act(self.index, thread));
    }

    fn begin(&mut self, world: &mut StandbyWorld, thread: usize) {
        if world.is_quiet && self.apps[thread].lock.is_none() {
            return;
        }
        self.expire(world);
        let log = world.rng.random_range(0..LOGS);
        let op = match (self.apps[thread].lock, world.rng.random_range(0..20)) {
            (Some(log), _) if world.is_quiet => LogOp::Unlock { log },
            (Some(log), 0..2) => LogOp::Unlock { log },
            (_, 0..8) => {
                let token = world.judge.begin(self.index, Some(log), world.now);
                LogOp::Append { log, token, stable: world.one_in(3) }
            }
            (_, 8..11) => LogOp::Create { token: world.judge.begin(self.index, None, world.now) },
            (_, 11) => LogOp::Commit,
            (None, 12..14) => LogOp::Lock { log },
            _ => LogOp::Read { log },
        };
        let app = &mut self.apps[thread];
        (app.op, app.began, app.made) = (Some(op), world.now, None);
        if let LogOp::Unlock { log } = op {
            // The server may have executed it long before the answer comes.
            self.locks.remove(&log);
        }
        if let LogOp::Append { log, .. } = op {
            self.own.entry(log).or_default().0 += 1;
            self.cache.remove(&log);
        }
        if let LogOp::Read { log } = op {
            self.apps[thread].mark = self.own.get(&log).copied().unwrap_or_default();
            if self.read_from_cache(world, log) {
                self.apps[thread].op = None;
                return self.end(world, thread);
            }
        }
        self.issue(world, thread);
    }

    fn read_from_cache(&mut self, world: &mut StandbyWorld, log: usize) -> bool {
        let Some(copy) = self.cache.get(&log).filter(|_| self.trusts(self.home, world.now)) else {
            return false;
        };
        let (bytes, began) = (&copy.bytes[..], world.now);
        let (client, generation) = (self.index, copy.generation);
        let read = LogRead { client, log, bytes, began, generation };
        let judged = world.judge.read(world.now, &read);
        world.tally.cached += 1;
        let index = self.index;
        world.check(judged.map_err(|why| format!("client {index}, from its cache: {why}")));
        true
    }

    /// The call of an operation.
    fn call(&self, world: &StandbyWorld, thread: usize) -> Option<Call> {
        Some(match self.apps[thread].op? {
            LogOp::Append { log, token, stable } => Call::Write {
                fid: *world.logs.get(log)?,
                offset: None,
                data: Bytes::copy_from_slice(&token.to_be_bytes()),
                stable,
                kill_privileges: false,
            },
            LogOp::Create { token } => Call::Make {
                dir: world.root,
                name: name_of(token),
                kind: NewKind::File,
                mode: 0o644,
                how: CreateHow::Guarded,
            },
            LogOp::Read { log } => {
                Call::Read { fid: *world.logs.get(log)?, offset: 0, length: READ_BYTES }
            }
            LogOp::Commit => Call::CommitVolume { fid: world.root },
            LogOp::Lock { log } => self.lock(world, log, thread, false)?,
            LogOp::Unlock { log } => Call::Unlock {
                fid: *world.logs.get(log)?,
                owner: LockOwner(thread as u64),
                family: LockFamily::Flock,
                range: ByteRange { start: 0, end: u64::MAX },
            },
        })
    }

    /// The call for the lock of a log.
    pub fn lock(
        &self,
        world: &StandbyWorld,
        log: usize,
        thread: usize,
        reclaim: bool,
    ) -> Option<Call> {
        Some(Call::Lock {
            fid: *world.logs.get(log)?,
            owner: LockOwner(thread as u64),
            pid: 1,
            family: LockFamily::Flock,
            range: ByteRange { start: 0, end: u64::MAX },
            mode: LockMode::Exclusive,
            wait: false,
            reclaim,
        })
    }

    fn issue(&mut self, world: &mut StandbyWorld, thread: usize) {
        let Some(call) = self.call(world, thread) else { return };
        self.apps[thread].state = AppState::Calling;
        if !self.is_at_home() || !self.request(world, self.home, call, Purpose::App(thread)) {
            self.apps[thread].refused(None, false);
            if self.is_at_home() {
                self.look(world, AGAIN);
            }
        }
    }

    /// A call that was refused or given up is settled where the volume is now.
    fn settle(&mut self, world: &mut StandbyWorld, thread: usize, lost: bool) {
        if !self.is_at_home() {
            if self.is_still() {
                self.look(world, AGAIN);
            }
            return;
        }
        match self.apps[thread].made {
            Some((origin, generation)) if generation < self.generation => {
                self.apps[thread].state = AppState::Calling;
                if !self.request(world, self.home, inherit(origin), Purpose::Inherit(thread)) {
                    self.apps[thread].state = AppState::Refused { lost };
                    self.look(world, AGAIN);
                }
            }
            Some(_) if lost => self.outcome_unknown(world, thread),
            _ => self.issue(world, thread),
        }
    }

    fn outcome_unknown(&mut self, world: &mut StandbyWorld, thread: usize) {
        match self.apps[thread].op.take() {
            Some(LogOp::Append { log, token, .. }) => {
                world.judge.set(token, TokenFate::Unknown);
                self.own.entry(log).or_default().1 += 1;
                self.cache.remove(&log);
            }
            Some(LogOp::Create { token }) => world.judge.set(token, TokenFate::Unknown),
            Some(LogOp::Unlock { .. }) => self.apps[thread].lock = None,
            _ => {}
        }
        world.tally.unknown += 1;
        self.end(world, thread);
    }

    /// The operation is over.
    fn end(&mut self, world: &mut StandbyWorld, thread: usize) {
        self.apps[thread].state = AppState::Idle;
        self.apps[thread].made = None;
        let most = if world.one_in(LONG_ONE_IN) { PAUSE_MAX * 30 } else { PAUSE_MAX };
        let delay = world.upto(most);
        self.later(world, thread, delay);
    }

    /// The answer to Inherit.
    pub fn inherited(
        &mut self,
        world: &mut StandbyWorld,
        thread: usize,
        result: Result<Answer, Fault>,
    ) {
        let AppState::Calling = self.apps[thread].state else { return };
        let Some((origin, generation)) = self.apps[thread].made else { return };
        let known = match result {
            Ok(Answer::Inherited(known)) => known,
            // The volume has left again.
            _ => {
                self.apps[thread].refused(Some((origin, generation)), true);
                return self.look(world, AGAIN);
            }
        };
        let forgets = world.breaks(TakeoverMutation::ForgetReplies);
        if known.origin != origin || known.answer.is_empty() || forgets {
            return self.issue(world, thread);
        }
        world.tally.inherited += 1;
        match dafs::decode_answer_record(&known.answer) {
            Ok(answer) => {
                let index = self.index;
                world.note(|| format!("client {index} inherits the reply to {origin:?}"));
                let (server, start) = (self.home, self.seats[self.home].holder.begin());
                self.answered(world, thread, (server, origin, start), answer, true);
            }
            Err(error) => world.violate(format!("a reply that was inherited: {error}")),
        }
    }

    /// The answer to an operation.
    pub fn app_hears(
        &mut self,
        world: &mut StandbyWorld,
        thread: usize,
        call: &Call,
        at: (usize, ReplyAddress, CallStart),
        result: Result<Answer, Fault>,
    ) {
        let (server, origin, _) = at;
        let index = self.index;
        world.note(|| {
            let said = result.as_ref().map(|_| "done").map_err(ToString::to_string);
            let brief = crate::server::brief(call);
            format!("client {index}.{thread} at {server}: {brief} ({origin:?}) -> {said:?}")
        });
        match result {
            Ok(answer) => self.answered(world, thread, at, answer, false),
            Err(Fault::NoVolume) => {
                let made = self.apps[thread].made;
                self.apps[thread].refused(made, false);
                self.look(world, Duration::ZERO);
            }
            Err(fault @ (Fault::Locked | Fault::Exists)) => self.failed(world, thread, fault),
            Err(_) => {
                let made = self.apps[thread].made;
                self.apps[thread].refused(made, false);
                self.look(world, AGAIN);
            }
        }
    }

    fn failed(&mut self, world: &mut StandbyWorld, thread: usize, fault: Fault) {
        let op = self.apps[thread].op.take();
        match (op, fault) {
            (Some(LogOp::Create { token }), _) => {
                world.judge.set(token, TokenFate::Unknown);
                let index = self.index;
                world.violate(format!("SB-5: client {index} has made {token} twice"));
            }
            (Some(LogOp::Lock { .. }), Fault::Locked) => {}
            (op, fault) => world.violate(format!("{op:?} is refused: {fault}")),
        }
        self.end(world, thread);
    }

    fn answered(
        &mut self,
        world: &mut StandbyWorld,
        thread: usize,
        (server, origin, start): (usize, ReplyAddress, CallStart),
        answer: Answer,
        is_inherited: bool,
    ) {
        let Some(op) = self.apps[thread].op.take() else { return };
        let began = self.apps[thread].began;
        match (op, answer) {
            (LogOp::Append { log, token, stable }, Answer::Written { .. }) => {
                world.judge.done(token, world.now, stable);
                self.own.entry(log).or_default().1 += 1;
                self.cache.remove(&log);
                self.acknowledged(server, origin, token, is_inherited);
            }
            (LogOp::Create { token }, Answer::Made { .. }) => {
                world.judge.done(token, world.now, false);
                self.acknowledged(server, origin, token, is_inherited);
            }
            (LogOp::Read { log }, Answer::Data { data, .. }) => {
                let generation = self.generation;
                let (client, bytes) = (self.index, &data[..]);
                let read = LogRead { client, log, bytes, began, generation };
                let judged = world.judge.read(world.now, &read);
                let index = self.index;
                world.check(judged.map_err(|why| format!("client {index} at {server}: {why}")));
                let own = self.own.get(&log).copied().unwrap_or_default();
                let is_own = own.0 == own.1 && own == self.apps[thread].mark;
                let fid = world.logs[log];
                if is_own && self.seats[server].holder.promised(fid, start) {
                    self.cache.insert(log, LogCopy { bytes: data, generation });
                }
            }
            (LogOp::Commit, Answer::Committed { .. }) => world.judge.committed(began),
            (LogOp::Lock { log }, Answer::Done) => self.locked(world, thread, server, log),
            (LogOp::Unlock { .. }, Answer::Done) => self.apps[thread].lock = None,
            (op, answer) => world.violate(format!("{op:?} is answered by {answer:?}")),
        }
        self.end(world, thread);
    }

    fn acknowledged(&mut self, server: usize, origin: ReplyAddress, token: u64, inherited: bool) {
        // The new home has an inherited one.
        if !inherited {
            self.seats[server].changes.push((origin, token));
        }
    }

    fn locked(&mut self, world: &mut StandbyWorld, thread: usize, server: usize, log: usize) {
        for other in world.clients.iter().flatten().filter(|other| other.index != self.index) {
            if other.holds(log, world.now) {
                let (index, other) = (self.index, other.index);
                let what = format!("client {index} gets the lock of log {log} that {other} has");
                return world.violate(what);
            }
        }
        world.tally.locked += 1;
        self.apps[thread].lock = Some(log);
        self.locks.insert(log, (server, thread));
    }
}
