//! The nest: a directory that clients ask to have to themselves (`docs/spec/delegation.md`).
//!
//! A client that has it makes and removes names without asking, keeps those changes in a journal,
//! and sends them in chains, one chain at a time: after a while, when the nest is wanted back, or
//! when the server has restarted. It gives the nest back when nothing is left to send. Without
//! trust it answers nothing itself (DE-3), and what it has not sent is lost with the lease.

use std::collections::VecDeque;
use std::time::Duration;

use dafs::{CallFailure, CallId, ClientInput};
use lease::CallStart;
use rand::Rng;
use types::{
    Answer, BootVerifier, Call, Caller, CreateHow, Fault, Fid, Name, NewKind, RemoveWhat, Status,
    VnodeSlots,
};

use super::{Client, Doing, Thread};
use crate::event::SimEvent;
use crate::ground::Ground;
use crate::mutation::Mutation;
use crate::op::Op;
use crate::server::{SharedTree, wall};

/// Members of one chain: a session of the simulation has few slots.
const CHAIN: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It is nobody's, or another's.
    None,
    /// It was asked for. It may be wanted back before the answer comes, which takes another way.
    Asked { recalled: bool },
    /// It is ours.
    Have { recalled: bool },
    /// It was given back, and that is not answered yet.
    Returned,
}

/// A change that was answered here.
#[derive(Debug)]
struct Entry {
    /// Its place in the history.
    at: usize,
    call: Call,
    /// The directory's data version behind it.
    version: u64,
    /// Which life of the server was known of then: what the one before lost, may have been counted.
    under: BootVerifier,
}

/// What a client knows of the nest.
#[derive(Debug)]
pub(super) struct Nest {
    phase: Phase,
    slots: VnodeSlots,
    version: u64,
    /// Names that it has made itself since it has the nest.
    names: Vec<Name>,
    journal: VecDeque<Entry>,
    flying: VecDeque<(CallId, Entry)>,
    /// What is left is sent before the claims are over.
    pub claiming: bool,
}

impl Nest {
    pub fn new() -> Self {
        Nest {
            phase: Phase::None,
            slots: VnodeSlots::default(),
            version: 0,
            names: Vec::new(),
            journal: VecDeque::new(),
            flying: VecDeque::new(),
            claiming: false,
        }
    }

    /// Whether everything was sent and answered.
    pub fn is_sent(&self) -> bool {
        self.journal.is_empty() && self.flying.is_empty()
    }
}

impl Client {
    /// Changes the nest without asking, if it may. Whether it did.
    pub(super) fn change_nest(&mut self, ground: &mut Ground, tree: &SharedTree) -> bool {
        let now = self.now(ground);
        let Some(up) = self.up.as_mut() else { return false };
        let mine = match up.nest.phase {
            Phase::Have { recalled } => !recalled || ground.breaks(Mutation::AnswerAfterRecall),
            Phase::Returned => ground.breaks(Mutation::AnswerAfterRecall),
            Phase::None | Phase::Asked { .. } => false,
        };
        if !mine || !up.holder.trusted(now) || up.nest.slots.count < 8 {
            return false;
        }
        let first = up.nest.journal.is_empty();
        for _ in 0..ground.rng.random_range(1..=5) {
            self.change_once(ground, tree.nest);
        }
        if first {
            let delay = ground.between(Duration::from_millis(1), Duration::from_secs(1));
            ground.after(delay, SimEvent::NestFlush { client: self.index, life: self.life });
        }
        true
    }

    fn change_once(&mut self, ground: &mut Ground, dir: Fid) {
        let (client, life) = (self.index, self.life);
        let Some(up) = self.up.as_mut() else { return };
        let (nest, under) = (&mut up.nest, up.verifier);
        nest.version += 1;
        let removes = !nest.names.is_empty() && ground.one_in(3);
        let (slot, call) = if removes {
            let name = nest.names.swap_remove(ground.rng.random_range(0..nest.names.len()));
            (0, Call::Remove { dir, name, what: RemoveWhat::File, hold: false })
        } else {
            let slot = nest.slots.take().expect("eight are left at least");
            let name = Name::new(format!("nest-{client}-{life}-{}", nest.version).as_bytes())
                .expect("a name");
            let name = unique(ground, &name);
            nest.names.push(name.clone());
            (
                slot,
                Call::Make { dir, name, kind: NewKind::File, mode: 0o644, how: CreateHow::Guarded },
            )
        };
        let (Call::Make { name, .. } | Call::Remove { name, .. }) = &call else { return };
        ground.history.tally.own_changes += 1;
        let at = ground.history.nest.begins(client, name, !removes, Some(life));
        ground.history.nest.answered(at, ground.now);
        ground.note(|| format!("client {client}: nest changes itself, {call:?}"));
        let call = Call::Delegated { at: wall(ground.now), slot, call: Box::new(call) };
        nest.journal.push_back(Entry { at, call, version: nest.version, under });
    }

    /// An application asks for the nest. Whether there is something to wait for.
    pub(super) fn ask_for_nest(
        &mut self,
        ground: &mut Ground,
        tree: &SharedTree,
        thread: usize,
    ) -> bool {
        let Some(up) = self.up.as_mut() else { return false };
        let again =
            matches!(up.nest.phase, Phase::Have { recalled: false }) && up.nest.slots.count < 64;
        // A change of our own that is under way would come between the status that is answered and
        // our first change.
        let changing =
            |doing: &Doing| matches!(doing, Doing::App(running) if running.nest.is_some());
        if (up.nest.phase != Phase::None && !again) || up.calls.values().any(changing) {
            return false;
        }
        if !again {
            up.nest.phase = Phase::Asked { recalled: false };
        }
        up.threads[thread] = Thread::Calling;
        let snapshot = up.holder.begin();
        self.submit(ground, Doing::NestAsked(thread, snapshot), Call::Delegate { fid: tree.nest });
        true
    }

    pub(super) fn nest_asked(
        &mut self,
        ground: &mut Ground,
        thread: usize,
        snapshot: CallStart,
        result: Result<Answer, CallFailure>,
    ) {
        let now = self.now(ground);
        let Some(up) = self.up.as_mut() else { return };
        up.threads[thread] = Thread::Idle;
        let nest = &mut up.nest;
        match (result, nest.phase) {
            (Ok(Answer::Delegation { status, slots }), phase) => {
                // What came between the question and the answer makes it void; the server may not
                // know.
                let good = !up.holder.is_void(snapshot) && up.holder.trusted(now);
                match phase {
                    Phase::Asked { recalled } if good => {
                        ground.history.tally.delegations += 1;
                        nest.phase = Phase::Have { recalled };
                        (nest.slots, nest.version) = (slots, status.data_version);
                        nest.names.clear();
                        if recalled {
                            self.send_nest(ground, status.fid);
                        }
                    }
                    Phase::Have { .. } if good => nest.slots = slots,
                    _ => {
                        nest.phase = Phase::None;
                        self.return_nest(ground, status.fid);
                    }
                }
            }
            (_, Phase::Asked { .. }) => nest.phase = Phase::None,
            _ => {}
        }
        self.think(ground, thread);
    }

    /// The nest is wanted back.
    pub(super) fn nest_recalled(&mut self, ground: &mut Ground, dir: Fid) {
        let Some(up) = self.up.as_mut() else { return };
        match &mut up.nest.phase {
            Phase::Asked { recalled } => *recalled = true,
            Phase::Have { recalled } => {
                *recalled = true;
                if ground.breaks(Mutation::ReturnEarly) {
                    self.return_nest(ground, dir);
                }
                self.send_nest(ground, dir);
            }
            Phase::None => self.return_nest(ground, dir),
            Phase::Returned => {}
        }
    }

    /// Sends what is there, one chain at a time; when nothing is left, gives back what is wanted,
    /// and ends the claims.
    pub(super) fn send_nest(&mut self, ground: &mut Ground, dir: Fid) {
        let Some(up) = self.up.as_mut() else { return };
        if !up.nest.flying.is_empty() {
            return;
        }
        if up.nest.journal.is_empty() {
            if std::mem::take(&mut up.nest.claiming) {
                return self.claimed(ground);
            }
            if up.nest.phase == (Phase::Have { recalled: true }) {
                self.return_nest(ground, dir);
            }
            return;
        }
        let mut members = Vec::new();
        while let Some(entry) = up.nest.journal.pop_front() {
            up.last_call += 1;
            let id = CallId(up.last_call);
            up.calls.insert(id, Doing::NestSent);
            members.push((id, entry.call.clone()));
            up.nest.flying.push_back((id, entry));
            if members.len() == CHAIN {
                break;
            }
        }
        ground
            .note(|| format!("client {}: sends {} changes of the nest", self.index, members.len()));
        self.feed(ground, ClientInput::SubmitChain { caller: Caller::ROOT, members });
    }

    pub(super) fn nest_sent(
        &mut self,
        ground: &mut Ground,
        id: CallId,
        result: Result<Answer, CallFailure>,
    ) {
        let Some(up) = self.up.as_mut() else { return };
        // What was given up with the lease may still be answered.
        let Some(place) = up.nest.flying.iter().position(|(flying, _)| *flying == id) else {
            return;
        };
        let Some((_, entry)) = up.nest.flying.remove(place) else { return };
        let dir = match &entry.call {
            Call::Delegated { call, .. } => call.clone().fids_mut().first().map(|fid| **fid),
            _ => None,
        };
        let told = match &result {
            Ok(Answer::Made { dir, .. } | Answer::Removed { dir, .. }) => Some(*dir),
            _ => None,
        };
        let same = ground.history.nest.is_of_now(entry.at, ground.history.timeline())
            && entry.under == up.verifier;
        match (result, told) {
            (Ok(_), Some(Status { data_version, .. })) => {
                ground.history.nest.sure(entry.at);
                if data_version != entry.version && same {
                    let what =
                        format!("client {}: {entry:?} is version {data_version}", self.index);
                    ground.violate("DE-5", what);
                }
            }
            (Err(CallFailure::SessionLost | CallFailure::Fault(Fault::Expired)), _) => {}
            (_, _) if !same => ground.history.nest.lost(entry.at),
            (result, _) => {
                ground.violate(
                    "DE-4",
                    format!("client {}: {entry:?} is answered with {result:?}", self.index),
                );
            }
        }
        let Some(dir) = dir else { return };
        let sends = |up: &super::Life| {
            up.nest.claiming
                || up.nest.phase == (Phase::Have { recalled: true })
                || !up.nest.journal.is_empty()
        };
        if self.up.as_ref().is_some_and(sends) {
            self.send_nest(ground, dir);
        }
    }

    /// What an operation on the nest comes to without asking; whether that is all.
    pub(super) fn work_in_nest(
        &mut self,
        ground: &mut Ground,
        tree: &SharedTree,
        thread: usize,
        op: &Op,
    ) -> bool {
        let done = match op {
            Op::Nest if self.ask_for_nest(ground, tree, thread) => return true,
            Op::Nest => true,
            Op::NestMake(_) | Op::NestRemove(_) => {
                self.change_nest(ground, tree) || self.has_nest()
            }
            // Its own changes it knows; for this, all are sent first.
            Op::NestList => {
                self.has_nest() || self.up.as_ref().is_some_and(|up| !up.nest.is_sent())
            }
            _ => false,
        };
        if done {
            self.think(ground, thread);
        }
        done
    }

    fn has_nest(&self) -> bool {
        self.up.as_ref().is_some_and(|up| up.nest.phase != Phase::None || !up.nest.is_sent())
    }

    /// As [`Client::send_nest`], of what was begun.
    pub(super) fn send_nest_on(&mut self, ground: &mut Ground) {
        let Some(up) = self.up.as_ref() else { return };
        let waiting = up.nest.flying.front().map(|(_, entry)| entry).or(up.nest.journal.front());
        let Some(Call::Delegated { call, .. }) = waiting.map(|entry| &entry.call) else { return };
        let Some(dir) = call.clone().fids_mut().first().map(|fid| **fid) else { return };
        self.send_nest(ground, dir);
    }

    /// The oldest change is old enough.
    pub fn flush_nest(&mut self, ground: &mut Ground, tree: &SharedTree, life: u64) {
        if life == self.life && self.up.is_some() {
            self.watch_lease(ground);
            self.send_nest(ground, tree.nest);
        }
    }

    fn return_nest(&mut self, ground: &mut Ground, dir: Fid) {
        let Some(up) = self.up.as_mut() else { return };
        let ours = matches!(up.nest.phase, Phase::Have { .. });
        up.nest.phase = if ours { Phase::Returned } else { up.nest.phase };
        self.submit(ground, Doing::NestReturned(ours), Call::Return { fids: vec![dir] });
    }

    pub(super) fn nest_returned(&mut self) {
        if let Some(up) = self.up.as_mut().filter(|up| up.nest.phase == Phase::Returned) {
            up.nest.phase = Phase::None;
        }
    }

    /// Trust or the session is over, and what was not sent with it.
    pub(super) fn lose_nest(&mut self, ground: &mut Ground) {
        let Some(up) = self.up.as_mut() else { return };
        ground.history.nest.client_lost(self.index);
        let claiming = up.nest.claiming;
        // An answer that is still to come is void.
        up.nest = Nest::new();
        if claiming {
            self.claimed(ground);
        }
    }

    /// The server has restarted: what is not sent goes out while locks are claimed. How many claims
    /// that is.
    pub(super) fn claim_nest(&mut self) -> usize {
        let Some(up) = self.up.as_mut() else { return 0 };
        up.nest.phase = Phase::None;
        up.nest.claiming = !up.nest.is_sent();
        usize::from(up.nest.claiming)
    }
}

/// A name that was never used.
fn unique(ground: &mut Ground, name: &Name) -> Name {
    let number = ground.history.begin().0;
    Name::new(&[name.as_bytes(), b"-", number.to_string().as_bytes()].concat()).expect("a name")
}
