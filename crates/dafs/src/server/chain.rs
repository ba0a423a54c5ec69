//! Chains: requests that run one after the other.
//!
//! A chain has a queue of received members, at most one running member, the file that
//! [`Fid::CURRENT`] means, and a flag that a member failed. `Chain::next` decides about the next
//! member:
//!
//! - a *new* member runs, or is refused with `ChainAborted` when an earlier one failed;
//! - a *repeat* that was executed goes to the service again, whatever the result of earlier
//!   members: the service has its recorded reply, and a read that answers differently now must not
//!   make the client believe that a recorded change after it never happened. It runs with the file
//!   that [`Fid::CURRENT`] meant the first time;
//! - the chain waits for a member *in progress*. If it is answered before its turn, it becomes a
//!   repeat.

use std::collections::VecDeque;

use types::{Answer, Call, Caller, Fault, Fid};

use super::slot::{Arrival, Slot, SlotReply};
use crate::PeerError;
use crate::codec::{resolve_current, uses_current};
use crate::limits::CHAIN_MAX;

/// A received request, checked, before it runs.
#[derive(Debug)]
pub(super) struct Member {
    pub slot: u32,
    pub arrival: Arrival,
    /// The slot's last number before this request, to undo the request's arrival.
    pub before: Option<u64>,
    /// The fault that refuses it, independently of earlier members.
    pub refuse: Option<Fault>,
    pub caller: Caller,
    pub call: Call,
}

/// The decision about a member.
#[derive(Debug)]
// A turn is moved once and mostly the large one: a box would be an allocation for each call.
#[allow(clippy::large_enum_variant)]
pub(super) enum Turn {
    /// Pass it to the service. `resolved` is the meaning of [`Fid::CURRENT`].
    Run { member: Member, resolved: Option<Fid> },
    /// Answer with this fault, without execution.
    Refuse { slot: u32, fault: Fault },
    /// The service is executing it.
    Await,
}

#[derive(Debug, Default)]
pub(super) struct Chain {
    queue: VecDeque<Member>,
    pub active: Option<u32>,
    current: Option<Fid>,
    failed: bool,
    received: usize,
    /// The last member has arrived.
    pub complete: bool,
}

impl Chain {
    /// Adds one member, even one too many, so that dropping the chain resets its slot.
    ///
    /// # Errors
    /// [`PeerError::LongChain`]: the chain has too many members.
    pub fn push(&mut self, member: Member) -> Result<(), PeerError> {
        self.queue.push_back(member);
        self.received += 1;
        match self.received > CHAIN_MAX {
            true => Err(PeerError::LongChain),
            false => Ok(()),
        }
    }

    /// True if all members have arrived and are answered.
    pub fn is_over(&self) -> bool {
        self.complete && self.queue.is_empty() && self.active.is_none()
    }

    /// The running member has its effect, and is answered later.
    pub fn on_executed(&mut self, current: Option<Fid>) {
        self.active = None;
        self.current = current.or(self.current);
    }

    /// Records the answer of the running member.
    pub fn on_result(&mut self, result: &Result<Answer, Fault>) {
        self.active = None;
        match result {
            Ok(answer) => self.current = answer.current().or(self.current),
            Err(_) => self.failed = true,
        }
    }

    /// Turns a waiting member in progress, which was answered before its turn, into a repeat.
    pub fn on_early_answer(&mut self, slot: u32) {
        for member in self.queue.iter_mut().filter(|member| member.slot == slot) {
            member.arrival = Arrival::Repeat;
        }
    }

    /// Cancels a waiting member that is new. False: there is none.
    pub fn cancel(&mut self, slot: u32) -> bool {
        let waiting = self
            .queue
            .iter_mut()
            .find(|member| member.slot == slot && member.arrival == Arrival::New);
        waiting.map(|member| member.refuse = Some(Fault::Cancelled)).is_some()
    }

    /// Removes and returns the members that have not run.
    pub fn drop_waiting(&mut self) -> impl Iterator<Item = Member> {
        self.queue.drain(..)
    }

    /// Decides about the next member, unless one is running or none waits.
    pub fn next(&mut self, slots: &[Slot]) -> Option<Turn> {
        if self.active.is_some() {
            return None;
        }
        let member = self.queue.pop_front()?;
        let slot = member.slot;
        let turn = match (member.arrival, slots[slot as usize].done) {
            (Arrival::InProgress, _) => Turn::Await,
            (Arrival::Repeat, SlotReply::Refused(fault)) => Turn::Refuse { slot, fault },
            // A client may repeat a request as another one, which names the current file where the
            // first did not: that is no file then.
            (Arrival::Repeat, SlotReply::Executed { resolved }) => {
                run(member, Some(resolved.unwrap_or_default()))
            }
            (Arrival::Repeat, SlotReply::Unknown) => {
                run(member, Some(self.current.unwrap_or_default()))
            }
            (Arrival::New, _) => self.first_run(member),
        };
        match turn {
            Turn::Refuse { .. } => self.failed = true,
            Turn::Run { .. } | Turn::Await => self.active = Some(slot),
        }
        Some(turn)
    }

    fn first_run(&self, mut member: Member) -> Turn {
        let slot = member.slot;
        if self.failed {
            return Turn::Refuse { slot, fault: Fault::ChainAborted };
        }
        match (member.refuse, self.current) {
            (Some(fault), _) => Turn::Refuse { slot, fault },
            (None, None) if uses_current(&mut member.call) => {
                Turn::Refuse { slot, fault: Fault::Invalid }
            }
            (None, current) => run(member, current),
        }
    }
}

fn run(mut member: Member, current: Option<Fid>) -> Turn {
    if let Some(current) = current {
        resolve_current(&mut member.call, current);
    }
    Turn::Run { member, resolved: current }
}
