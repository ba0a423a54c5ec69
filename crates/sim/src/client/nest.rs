//! The nest: a directory on which clients ask for a delegation (`docs/spec/delegation.md`).
//!
//! A client that has it makes and removes names without calls and puts those changes into a
//! journal. It sends the journal in chains, one chain at a time: after a while, when the nest is
//! recalled, or when the server has restarted. It returns the delegation when the journal is empty.
//! Without trust it answers nothing itself (DE-3), and its unsent changes are lost with the lease.

use std::collections::VecDeque;
use std::time::Duration;

use dafs::{CallFailure, CallId};
use lease::CallStart;
use rand::Rng;
use types::{
    Answer, BootVerifier, Call, CreateHow, DataVersion, Fault, Fid, Name, NewKind, RemoveWhat,
    Status, VnodeSlots,
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
    /// This client has no delegation.
    None,
    /// The call is under way. The recall may arrive before the answer, over another connection.
    Asked { recalled: bool },
    /// This client has the delegation.
    Have { recalled: bool },
    /// The delegation was returned, and the call is not answered yet.
    Returned,
}

/// A change that this client answered itself.
#[derive(Debug)]
struct Entry {
    /// Its index in the history.
    at: usize,
    call: Call,
    /// The directory's data version after the change.
    version: DataVersion,
    /// The server instance known at that time: the version may count changes that an earlier
    /// instance lost.
    under: BootVerifier,
}

/// A client's state of the nest.
#[derive(Debug)]
pub(super) struct Nest {
    phase: Phase,
    slots: VnodeSlots,
    version: DataVersion,
    /// Names that it has made itself under the present delegation.
    names: Vec<Name>,
    journal: VecDeque<Entry>,
    flying: VecDeque<(CallId, Entry)>,
    /// A reclaim is under way and sends the rest of the journal.
    pub claiming: bool,
}

impl Nest {
    pub fn new() -> Self {
        Nest {
            phase: Phase::None,
            slots: VnodeSlots::default(),
            version: DataVersion::NONE,
            names: Vec::new(),
            journal: VecDeque::new(),
            flying: VecDeque::new(),
            claiming: false,
        }
    }

    /// Returns whether everything was sent and answered.
    pub fn is_sent(&self) -> bool {
        self.journal.is_empty() && self.flying.is_empty()
    }
}

impl Client {
    /// Changes the nest without a call, if it may; returns whether it did.
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
        nest.version = nest.version.next();
        let removes = !nest.names.is_empty() && ground.one_in(3);
        let (slot, call) = if removes {
            let name = nest.names.swap_remove(ground.rng.random_range(0..nest.names.len()));
            (0, Call::Remove { dir, name, what: RemoveWhat::File, hold: false })
        } else {
            let slot = nest.slots.take().expect("eight are left at least");
            let name = Name::new(format!("nest-{client}-{life}-{}", nest.version.0).as_bytes())
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

    /// An application asks for the delegation; returns whether it has to wait for an answer.
    pub(super) fn ask_for_nest(
        &mut self,
        ground: &mut Ground,
        tree: &SharedTree,
        thread: usize,
    ) -> bool {
        let Some(up) = self.up.as_mut() else { return false };
        let again =
            matches!(up.nest.phase, Phase::Have { recalled: false }) && up.nest.slots.count < 64;
        // An own change under way would be executed between the status in the answer and the first
        // change under the delegation: also one that was sent under a delegation that is over.
        let changing = |doing: &Doing| match doing {
            Doing::App(running) => running.nest.is_some(),
            Doing::NestSent => !again,
            _ => false,
        };
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
                // An event between the call and the answer voids the delegation; the server may not
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
                    _ => self.return_nest(ground, status.fid),
                }
            }
            (_, Phase::Asked { .. }) => nest.phase = Phase::None,
            _ => {}
        }
        self.think(ground, thread);
    }

    /// The server recalls the delegation.
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

    /// Sends the journal, one chain at a time; when it is empty, returns a recalled delegation and
    /// ends the reclaim.
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
        self.submit_all(ground, members);
    }

    pub(super) fn nest_sent(
        &mut self,
        ground: &mut Ground,
        id: CallId,
        result: Result<Answer, CallFailure>,
    ) {
        let Some(up) = self.up.as_mut() else { return };
        // Entries that were given up with the lease may still be answered.
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
                    let what = format!("client {}: {entry:?} is {data_version:?}", self.index);
                    ground.violate("DE-5", what);
                }
            }
            (Err(CallFailure::SessionLost | CallFailure::Fault(Fault::Expired)), _) => {}
            (_, _) if !same => ground.history.nest.refused(entry.at),
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

    /// Does an operation on the nest under the delegation; returns whether it is finished.
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
            // The client knows its own changes; a listing waits until all of them are sent.
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

    /// As [`Client::send_nest`], for the directory of the journal's entries.
    pub(super) fn send_nest_on(&mut self, ground: &mut Ground) {
        let Some(up) = self.up.as_ref() else { return };
        let waiting = up.nest.flying.front().map(|(_, entry)| entry).or(up.nest.journal.front());
        let Some(Call::Delegated { call, .. }) = waiting.map(|entry| &entry.call) else { return };
        let Some(dir) = call.clone().fids_mut().first().map(|fid| **fid) else { return };
        self.send_nest(ground, dir);
    }

    /// The oldest change in the journal is due.
    pub fn flush_nest(&mut self, ground: &mut Ground, tree: &SharedTree, life: u64) {
        if life == self.life && self.up.is_some() {
            self.watch_lease(ground);
            self.send_nest(ground, tree.nest);
        }
    }

    /// Nothing is asked for before this is answered: a return that was overtaken by a new grant
    /// would end that.
    fn return_nest(&mut self, ground: &mut Ground, dir: Fid) {
        let Some(up) = self.up.as_mut() else { return };
        up.nest.phase = Phase::Returned;
        self.submit(ground, Doing::NestReturned, Call::Return { fids: vec![dir] });
    }

    pub(super) fn nest_returned(&mut self) {
        if let Some(up) = self.up.as_mut().filter(|up| up.nest.phase == Phase::Returned) {
            up.nest.phase = Phase::None;
        }
    }

    /// Trust or the session is over: drops the delegation and all unsent changes.
    pub(super) fn lose_nest(&mut self, ground: &mut Ground) {
        let Some(up) = self.up.as_mut() else { return };
        ground.history.nest.client_lost(self.index);
        let claiming = up.nest.claiming;
        // This also voids an answer that is still to come.
        up.nest = Nest::new();
        if claiming {
            self.claimed(ground);
        }
    }

    /// The server has restarted: the journal is sent while locks are reclaimed. Returns the number
    /// of claims.
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
