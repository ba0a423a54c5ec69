//! Chains: requests that run one after the other.
//!
//! A chain has a queue of members that came, at most one that is running, the file that
//! [`Fid::CURRENT`] means, and a mark that a member failed. `Chain::next` says what is to happen to
//! the member whose turn it is:
//!
//! - a *new* member runs, or is refused with `ChainAborted` when one before it failed;
//! - a *repeat* that was executed goes up again whatever became of the ones before: the service has
//!   its recorded reply, and what a read would answer now must not make the client believe that a
//!   recorded change behind it never happened. It runs with the file that [`Fid::CURRENT`] meant
//!   the first time;
//! - a member *in progress* is waited for. If it is answered before its turn, it turns into a
//!   repeat.

use std::collections::VecDeque;

use types::{Answer, Call, Caller, Fault, Fid};

use super::slot::{Arrival, Slot, SlotReply};
use crate::PeerError;
use crate::codec::{resolve_current, uses_current};
use crate::limits::CHAIN_MAX;

/// Which chain of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChainNo(pub u64);

/// A request that came, checked, before it runs.
#[derive(Debug)]
pub(super) struct Member {
    pub slot: u32,
    pub arrival: Arrival,
    /// The slot's last number before this request, in case it never came after all.
    pub before: Option<u64>,
    /// Why it will not run, whatever happens before it.
    pub refuse: Option<Fault>,
    pub caller: Caller,
    pub call: Call,
}

/// What to do with a member.
#[derive(Debug)]
// handed on once, and mostly the large one: a box would be an allocation for each call
#[allow(clippy::large_enum_variant)]
pub(super) enum Turn {
    /// Pass it up. `resolved` is what [`Fid::CURRENT`] stood for.
    Run { member: Member, resolved: Option<Fid> },
    /// Answer with this fault; it is not executed.
    Refuse { slot: u32, fault: Fault },
    /// Its answer is under way.
    Await,
}

#[derive(Debug, Default)]
pub(super) struct Chain {
    queue: VecDeque<Member>,
    pub active: Option<u32>,
    current: Option<Fid>,
    failed: bool,
    received: usize,
    /// The last member came.
    pub complete: bool,
}

impl Chain {
    /// One more member, which is kept even if it is one too many: whoever drops the chain puts its
    /// slot right.
    pub fn push(&mut self, member: Member) -> Result<(), PeerError> {
        self.queue.push_back(member);
        self.received += 1;
        match self.received > CHAIN_MAX {
            true => Err(PeerError::LongChain),
            false => Ok(()),
        }
    }

    /// Whether all members came and went.
    pub fn is_over(&self) -> bool {
        self.complete && self.queue.is_empty() && self.active.is_none()
    }

    /// A member has its answer.
    pub fn on_result(&mut self, result: &Result<Answer, Fault>) {
        self.active = None;
        match result {
            Ok(answer) => self.current = answer.current().or(self.current),
            Err(_) => self.failed = true,
        }
    }

    /// A waiting member in progress was answered before its turn.
    pub fn on_early_answer(&mut self, slot: u32) {
        for member in self.queue.iter_mut().filter(|member| member.slot == slot) {
            member.arrival = Arrival::Repeat;
        }
    }

    /// Takes back a waiting member that is new. False: there is none.
    pub fn cancel(&mut self, slot: u32) -> bool {
        let waiting = self
            .queue
            .iter_mut()
            .find(|member| member.slot == slot && member.arrival == Arrival::New);
        waiting.map(|member| member.refuse = Some(Fault::Cancelled)).is_some()
    }

    /// The members that have not had their turn; the chain is empty afterwards.
    pub fn drop_waiting(&mut self) -> impl Iterator<Item = Member> {
        self.queue.drain(..)
    }

    /// What is to happen to the next member, unless one is running or none waits.
    pub fn next(&mut self, slots: &[Slot]) -> Option<Turn> {
        if self.active.is_some() {
            return None;
        }
        let member = self.queue.pop_front()?;
        let slot = member.slot;
        let turn = match (member.arrival, slots[slot as usize].done) {
            (Arrival::InProgress, _) => Turn::Await,
            (Arrival::Repeat, SlotReply::Refused(fault)) => Turn::Refuse { slot, fault },
            (Arrival::Repeat, SlotReply::Executed { resolved }) => run(member, resolved),
            (Arrival::Repeat, SlotReply::Unknown) => {
                let current = self.current.unwrap_or_default();
                run(member, Some(current))
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
