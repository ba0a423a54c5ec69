//! Calls that wait for a credit, in four queues: calls that end waiting elsewhere, delegated
//! chains, which do so too, locks that will wait, and all others.
//!
//! A chain needs many credits at once, and calls that wait for its changes may occupy all slots. A
//! delegated chain that finds no room is therefore sent in pieces: its first member alone, and the
//! rest after that member's answer.

use std::collections::VecDeque;

use bytes::Bytes;
use types::{Call, Caller};

use super::CallId;
use crate::codec::{AnswerKind, EncodedCall, Procedure, encode_call, uses_current};
use crate::{Region, WireError};

/// A call that is encoded and can be sent.
#[derive(Debug)]
pub(super) struct ReadyCall {
    pub id: CallId,
    pub caller: Caller,
    pub call: Call,
    pub region: Option<Region>,
    /// Other calls may wait for its effect.
    pub urgent: bool,
    pub procedure: Procedure,
    /// The procedure number on the wire: [`Procedure::DELEGATED`] may be set.
    pub number: u16,
    pub message: Bytes,
    pub payload: Bytes,
}

impl ReadyCall {
    /// Checks and encodes a call. `first`: no member runs before it, so it cannot name its chain's
    /// file.
    ///
    /// # Errors
    /// [`WireError`]: the call breaks a limit of the protocol.
    pub fn new(
        id: CallId,
        caller: Caller,
        mut call: Call,
        region: Option<Region>,
        first: bool,
    ) -> Result<ReadyCall, WireError> {
        let listed = matches!(call, Call::Hold { .. } | Call::Unhold { .. } | Call::Return { .. });
        if (first || listed) && uses_current(&mut call) {
            return Err(WireError::BadValue { what: "fid", value: u64::MAX });
        }
        let procedure = call.procedure();
        let EncodedCall { procedure: number, message, payload } = encode_call(&call)?;
        let urgent = is_urgent(&call);
        Ok(ReadyCall {
            id,
            caller,
            call,
            region,
            urgent,
            procedure,
            number,
            message: message.into(),
            payload,
        })
    }

    pub fn expects(&self) -> AnswerKind {
        self.procedure.traits().answer
    }

    /// True if a capable server may answer it packed: the two calls differ only in their number.
    pub fn may_be_packed(&self) -> bool {
        matches!(self.call, Call::Read { .. }) && self.region.is_none()
    }

    /// True for a lock that may wait for long.
    pub fn waits(&self) -> bool {
        matches!(self.call, Call::Lock { wait: true, reclaim: false, .. })
    }
}

/// True if other calls may wait for the effect of `call`, independently of the caller.
fn is_urgent(call: &Call) -> bool {
    matches!(
        call,
        Call::Unlock { .. }
            | Call::Hold { .. }
            | Call::Unhold { .. }
            | Call::ReclaimDone
            | Call::Delegated { .. }
            | Call::Return { .. }
            | Call::Close { .. }
            | Call::Downgrade { .. }
            | Call::FinishLock { .. }
            | Call::Open { claims: true, .. }
            | Call::Lock { reclaim: true, .. }
    )
}

/// Requests that are sent together.
#[allow(clippy::large_enum_variant)] // most units are single calls
#[derive(Debug)]
pub(super) enum Unit {
    Single(ReadyCall),
    Chain(Vec<ReadyCall>),
}

/// The unsent rest of a delegated chain.
#[derive(Debug)]
struct Rest {
    /// The member that was sent alone and is not answered.
    led_by: Option<CallId>,
    members: VecDeque<ReadyCall>,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub urgent: VecDeque<ReadyCall>,
    delegated: VecDeque<Rest>,
    pub locks: VecDeque<ReadyCall>,
    pub others: VecDeque<Unit>,
    len: usize,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn push(&mut self, ready: ReadyCall) {
        self.len += 1;
        match ready {
            ready if ready.urgent => self.urgent.push_back(ready),
            ready if ready.waits() => self.locks.push_back(ready),
            ready => self.others.push_back(Unit::Single(ready)),
        }
    }

    pub fn push_chain(&mut self, mut members: Vec<ReadyCall>) {
        self.len += members.len();
        let delegated = |ready: &mut ReadyCall| {
            matches!(ready.call, Call::Delegated { .. }) && !uses_current(&mut ready.call)
        };
        if members.iter_mut().all(delegated) {
            return self.delegated.push_back(Rest { led_by: None, members: members.into() });
        }
        self.others.push_back(Unit::Chain(members));
    }

    /// Takes the ends of reclaims that were not sent yet.
    pub fn take_ends_of_reclaim(&mut self) -> Vec<CallId> {
        let is_end = |ready: &ReadyCall| matches!(ready.call, Call::ReclaimDone);
        let ends = self.urgent.iter().filter(|ready| is_end(ready)).map(|ready| ready.id);
        let ends: Vec<CallId> = ends.collect();
        self.urgent.retain(|ready| !is_end(ready));
        self.len -= ends.len();
        ends
    }

    pub fn pop_urgent(&mut self) -> Option<ReadyCall> {
        self.urgent.pop_front().inspect(|_| self.len -= 1)
    }

    /// Length of the next delegated chain, if it may be sent now.
    pub fn next_delegated(&self) -> Option<usize> {
        self.delegated.front().filter(|rest| rest.led_by.is_none()).map(|rest| rest.members.len())
    }

    /// Takes the next delegated chain whole.
    pub fn pop_delegated(&mut self) -> Vec<ReadyCall> {
        let members: Vec<ReadyCall> =
            self.delegated.pop_front().map_or_else(Vec::new, |rest| rest.members.into());
        self.len -= members.len();
        members
    }

    /// Takes the first member of the next delegated chain; the rest follows after its answer.
    pub fn lead_delegated(&mut self) -> Option<ReadyCall> {
        let rest = self.delegated.front_mut()?;
        let ready = rest.members.pop_front()?;
        self.len -= 1;
        rest.led_by = Some(ready.id);
        if rest.members.is_empty() {
            self.delegated.pop_front();
        }
        Some(ready)
    }

    /// Ends the wait for a member that was sent alone. Returns the calls that must not follow it.
    pub fn led(&mut self, id: CallId, good: bool) -> Vec<CallId> {
        let Some(rest) = self.delegated.front_mut().filter(|rest| rest.led_by == Some(id)) else {
            return Vec::new();
        };
        if good {
            rest.led_by = None;
            return Vec::new();
        }
        self.pop_delegated().iter().map(|ready| ready.id).collect()
    }

    pub fn pop_lock(&mut self) -> Option<ReadyCall> {
        self.locks.pop_front().inspect(|_| self.len -= 1)
    }

    /// Is there a next other unit, and room for it?
    pub fn next_fits(&self, chain_max: usize, has_room: impl Fn(usize) -> bool) -> bool {
        match self.others.front() {
            None => false,
            Some(Unit::Single(_)) => has_room(1),
            // A chain that can never fit is popped, to be refused.
            Some(Unit::Chain(members)) => members.len() > chain_max || has_room(members.len()),
        }
    }

    pub fn pop_other(&mut self) -> Option<Unit> {
        let unit = self.others.pop_front()?;
        self.len -= match &unit {
            Unit::Single(_) => 1,
            Unit::Chain(members) => members.len(),
        };
        Some(unit)
    }

    /// Removes a call, with its whole chain.
    pub fn remove(&mut self, id: CallId) -> Vec<CallId> {
        let same = |ready: &ReadyCall| ready.id == id;
        if let Some(at) = self.delegated.iter().position(|rest| rest.members.iter().any(same)) {
            let gone = self.delegated.remove(at).map_or_else(VecDeque::new, |rest| rest.members);
            self.len -= gone.len();
            return gone.iter().map(|ready| ready.id).collect();
        }
        if let Some(at) = self.urgent.iter().position(same) {
            self.urgent.remove(at);
        } else if let Some(at) = self.locks.iter().position(same) {
            self.locks.remove(at);
        } else {
            return self.remove_other(id);
        }
        self.len -= 1;
        vec![id]
    }

    fn remove_other(&mut self, id: CallId) -> Vec<CallId> {
        let at = self.others.iter().position(|unit| match unit {
            Unit::Single(ready) => ready.id == id,
            Unit::Chain(members) => members.iter().any(|ready| ready.id == id),
        });
        let ids = match at.and_then(|at| self.others.remove(at)) {
            None => Vec::new(),
            Some(Unit::Single(ready)) => vec![ready.id],
            Some(Unit::Chain(members)) => members.iter().map(|ready| ready.id).collect(),
        };
        self.len -= ids.len();
        ids
    }

    pub fn drain(&mut self) -> Vec<CallId> {
        let Queue { urgent, delegated, locks, others, .. } = std::mem::take(self);
        let urgent = urgent.into_iter().chain(delegated.into_iter().flat_map(|rest| rest.members));
        let singles = urgent.chain(locks).map(|ready| ready.id);
        let rest = others.into_iter().flat_map(|unit| match unit {
            Unit::Single(ready) => vec![ready.id],
            Unit::Chain(members) => members.iter().map(|ready| ready.id).collect(),
        });
        singles.chain(rest).collect()
    }
}
