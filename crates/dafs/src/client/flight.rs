//! Slots, and the calls in them that wait for their answers.
//!
//! Request numbers of a slot rise by one with each call that takes it, and never go back while the
//! session lives. A slot above the granted credits finishes its call and then stays unused.

use std::collections::{BTreeMap, VecDeque};

use types::limits::SLOTS_MAX;
use types::{Answer, Call, Fid, SessionId};

use super::kept::{ChainLanding, KeptChain, KeptError, KeptRequest, KeptSession, Landing};
use super::queue::ReadyCall;
use super::{CallFailure, CallId};
use crate::PeerError;
use crate::codec::{encode_call, resolve_current};
use crate::limits::CHAIN_MAX;

/// A call that was sent and is not answered.
#[derive(Debug)]
pub(super) struct Flight {
    pub ready: ReadyCall,
    pub chain: Option<u64>,
    /// The caller cancelled it.
    pub cancelled: bool,
}

#[derive(Debug, Default)]
struct CallSlot {
    last: u64,
    flight: Option<Flight>,
}

/// The unanswered rest of a chain.
#[derive(Debug, Default)]
pub(super) struct Rest {
    pub slots: VecDeque<u32>,
    /// So many members are answered.
    pub answered: u32,
    /// The file that the answered members led to.
    pub current: Option<Fid>,
    /// An answered member failed.
    pub failed: bool,
}

#[derive(Debug)]
pub(super) struct Flights {
    slots: Vec<CallSlot>,
    chains: BTreeMap<u64, Rest>,
    chains_begun: u64,
    flying: usize,
    locks: usize,
    credits: u32,
    /// The number of the last grant.
    grant: u64,
    /// The client still has to report to the server that the slots above the credits are empty.
    must_confirm: bool,
}

impl Flights {
    pub fn new() -> Flights {
        Flights {
            slots: (0..SLOTS_MAX).map(|_| CallSlot::default()).collect(),
            chains: BTreeMap::new(),
            chains_begun: 0,
            flying: 0,
            locks: 0,
            credits: 0,
            grant: 0,
            must_confirm: false,
        }
    }

    pub fn len(&self) -> usize {
        self.flying
    }

    // Credits.

    pub fn set_credits(&mut self, credits: u32, grant: u64) {
        self.must_confirm |= credits < self.credits;
        self.credits = credits;
        self.grant = grant;
    }

    /// A session was resumed: the server may not know which credits the client confirmed before.
    pub fn require_confirmation(&mut self) {
        self.must_confirm = true;
    }

    /// The grant to confirm, once no slot above its credits is in use.
    pub fn grant_taken(&mut self) -> Option<u64> {
        let above = self.slots.iter().skip(self.credits as usize);
        let free = self.must_confirm && above.clone().all(|slot| slot.flight.is_none());
        free.then(|| {
            self.must_confirm = false;
            self.grant
        })
    }

    fn free(&self) -> usize {
        self.slots.iter().take(self.credits as usize).filter(|slot| slot.flight.is_none()).count()
    }

    /// True if there is room for a call that ends waiting elsewhere.
    pub fn has_urgent_room(&self) -> bool {
        self.free() >= 1
    }

    /// True if there is room for `count` calls beside the slot for urgent ones.
    pub fn has_room(&self, count: usize) -> bool {
        self.free() > count
    }

    /// True if there is room for a lock that will wait.
    pub fn has_lock_room(&self) -> bool {
        self.has_room(1) && self.locks < (self.credits / 4) as usize
    }

    /// The longest chain that will find room.
    pub fn chain_max(&self) -> usize {
        CHAIN_MAX.min((self.credits / 2) as usize)
    }

    // Flights.

    /// Gives a call a slot and a number. There must be room.
    pub fn launch(&mut self, ready: ReadyCall, chain: Option<u64>) -> u32 {
        let slots = self.slots.iter_mut().take(self.credits as usize);
        let (index, slot) = slots
            .enumerate()
            .find(|(_, slot)| slot.flight.is_none())
            .expect("DA-1: the caller checked that a slot is free");
        slot.last += 1;
        self.locks += usize::from(ready.waits());
        self.flying += 1;
        slot.flight = Some(Flight { ready, chain, cancelled: false });
        if let Some(rest) = chain.and_then(|chain| self.chains.get_mut(&chain)) {
            rest.slots.push_back(index as u32);
        }
        index as u32
    }

    /// The number of a new chain, for [`Flights::launch`].
    pub fn begin_chain(&mut self) -> u64 {
        self.chains_begun += 1;
        self.chains.insert(self.chains_begun, Rest::default());
        self.chains_begun
    }

    pub fn get(&self, slot: u32) -> Option<(&Flight, u64)> {
        let slot = self.slots.get(slot as usize)?;
        slot.flight.as_ref().map(|flight| (flight, slot.last))
    }

    pub fn get_mut(&mut self, slot: u32) -> Option<&mut Flight> {
        self.slots.get_mut(slot as usize)?.flight.as_mut()
    }

    pub fn find(&self, id: CallId) -> Option<u32> {
        let same =
            |slot: &CallSlot| slot.flight.as_ref().is_some_and(|flight| flight.ready.id == id);
        self.slots.iter().position(same).map(|index| index as u32)
    }

    pub fn rest(&self, chain: u64) -> Option<&Rest> {
        self.chains.get(&chain)
    }

    /// The slots to send again after a reconnect: single calls by slot, then the rests of chains,
    /// each in its order.
    pub fn unanswered(&self) -> Vec<Vec<u32>> {
        let flying = self
            .slots
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| Some((index, slot.flight.as_ref()?)));
        let singles = flying
            .filter(|(_, flight)| flight.chain.is_none())
            .map(|(index, _)| vec![index as u32]);
        singles
            .chain(self.chains.values().map(|rest| rest.slots.iter().copied().collect()))
            .collect()
    }

    /// The rest of a chain becomes a chain of its own, which has no current file until a member
    /// answers with one: members before that get the file that the answered ones led to.
    pub fn settle_current(&mut self, slots: &[u32]) {
        let chain = self.get(slots[0]).and_then(|(flight, _)| flight.chain);
        let Some(rest) = chain.and_then(|chain| self.chains.get(&chain)) else { return };
        // Without such a file the member cannot run; a fid that names no file gets it refused.
        let current = rest.current.unwrap_or_default();
        for slot in slots {
            let flight = self.get_mut(*slot).expect("every unanswered slot has a call");
            if resolve_current(&mut flight.ready.call, current) {
                let encoded = encode_call(&flight.ready.call)
                    .expect("replacing a fid by a fid breaks no limit");
                flight.ready.message = encoded.message.into();
            }
            if flight.ready.expects().has_current() {
                break;
            }
        }
    }

    /// Checks that the slot may be answered now: members of a chain are answered in order.
    ///
    /// # Errors
    /// [`PeerError::Unasked`]: an earlier member of the chain is not answered.
    pub fn check_turn(&self, slot: u32) -> Result<(), PeerError> {
        let chain = self.get(slot).and_then(|(flight, _)| flight.chain);
        match chain.and_then(|chain| self.chains.get(&chain)) {
            Some(rest) if rest.slots.front() != Some(&slot) => Err(PeerError::Unasked),
            _ => Ok(()),
        }
    }

    /// Ends an answered call; its slot becomes free.
    pub fn land(
        &mut self,
        index: u32,
        result: &Result<Answer, CallFailure>,
    ) -> Option<(Flight, Landing)> {
        let slot = self.slots.get_mut(index as usize)?;
        let flight = slot.flight.take()?;
        let last = slot.last;
        self.flying -= 1;
        self.locks -= usize::from(flight.ready.waits());
        let chain = flight.chain.map_or(ChainLanding::Single, |number| {
            let rest = self
                .chains
                .get_mut(&number)
                .expect("a chain is stored until its last member is answered");
            let first = rest.slots.pop_front();
            debug_assert_eq!(first, Some(index), "DE-4: a chain is answered in its order");
            rest.answered += 1;
            match result {
                Ok(answer) => rest.current = answer.current().or(rest.current),
                Err(_) => rest.failed = true,
            }
            if rest.slots.is_empty() {
                self.chains.remove(&number);
                return ChainLanding::Over(number);
            }
            let Rest { answered, current, failed, .. } = *rest;
            ChainLanding::Goes(KeptChain { number, answered, current, failed })
        });
        Some((flight, Landing { slot: index, number: last, chain }))
    }

    /// The request in a slot, for a successor.
    pub fn kept(&self, session: SessionId, slot: u32) -> Option<KeptRequest> {
        let (flight, number) = self.get(slot)?;
        let place = |chain: u64| {
            let rest = self.chains.get(&chain)?;
            let behind = rest.slots.iter().position(|other| *other == slot)?;
            Some((chain, rest.answered + behind as u32))
        };
        let ready = &flight.ready;
        Some(KeptRequest {
            id: ready.id,
            session,
            slot,
            number,
            chain: flight.chain.and_then(place),
            caller: ready.caller.clone(),
            procedure: ready.number,
            message: ready.message.clone(),
            payload: ready.payload.clone(),
        })
    }

    /// The requests that a predecessor left. A single one that changes nothing is cancelled: no
    /// caller waits for it, and it may wait for something for ever.
    ///
    /// # Errors
    /// [`KeptError`]: they cannot be sent again.
    pub fn succeed(kept: &KeptSession) -> Result<Flights, KeptError> {
        let mut flights = Flights::new();
        if kept.landed.len() != flights.slots.len() {
            return Err(KeptError::Contradiction("another number of slots"));
        }
        for (slot, landed) in flights.slots.iter_mut().zip(&kept.landed) {
            slot.last = *landed;
        }
        let mut members: BTreeMap<u64, BTreeMap<u32, u32>> = BTreeMap::new();
        for request in &kept.requests {
            let slot = flights
                .slots
                .get_mut(request.slot as usize)
                .ok_or(KeptError::Contradiction("a slot that there is not"))?;
            if request.session != kept.terms.session
                || slot.flight.is_some()
                || slot.last.checked_add(1) != Some(request.number)
            {
                return Err(KeptError::Contradiction("a request is not its slot's next"));
            }
            slot.last = request.number;
            let answered = |(number, place): (u64, u32)| {
                kept.chains.iter().any(|chain| chain.number == number && place < chain.answered)
            };
            // Killed after the chain's state was stored and before the slot's number was.
            if request.chain.is_some_and(answered) {
                continue;
            }
            let (caller, call) = (request.caller.clone(), request.call()?);
            let cancelled = request.chain.is_none() && call.leaves_nothing();
            let ready = ReadyCall::new(request.id, caller, call, None, request.chain.is_none())?;
            flights.flying += 1;
            flights.locks += usize::from(ready.waits());
            let chain = request.chain.map(|(number, _)| number);
            slot.flight = Some(Flight { ready, chain, cancelled });
            if let Some((number, place)) = request.chain
                && members.entry(number).or_default().insert(place, request.slot).is_some()
            {
                return Err(KeptError::Contradiction("two members at one place of a chain"));
            }
        }
        for (number, members) in members {
            let state = kept.chains.iter().find(|chain| chain.number == number);
            let answered = state.map_or(0, |chain| chain.answered);
            if !members.keys().copied().eq((answered..).take(members.len())) {
                return Err(KeptError::Contradiction("a member of a chain is missing"));
            }
            let rest = Rest {
                slots: members.into_values().collect(),
                answered,
                current: state.and_then(|chain| chain.current),
                failed: state.is_some_and(|chain| chain.failed),
            };
            flights.chains.insert(number, rest);
        }
        let chains = kept.chains.iter().map(|chain| chain.number);
        flights.chains_begun =
            chains.chain(flights.chains.keys().copied()).max().unwrap_or_default();
        flights.check();
        Ok(flights)
    }

    /// Is an end of the reclaim under way?
    pub fn end_of_reclaim(&self) -> bool {
        let flying = self.slots.iter().filter_map(|slot| slot.flight.as_ref());
        flying.into_iter().any(|flight| matches!(flight.ready.call, Call::ReclaimDone))
    }

    /// The session is lost: returns all outstanding calls; request numbers start again.
    pub fn lose_all(&mut self) -> Vec<CallId> {
        let lost = std::mem::replace(self, Flights::new());
        lost.slots
            .into_iter()
            .filter_map(|slot| slot.flight)
            .map(|flight| flight.ready.id)
            .collect()
    }

    /// Checks the invariants between two steps.
    pub fn check(&self) {
        debug_assert_eq!(
            self.flying,
            self.slots.iter().filter(|slot| slot.flight.is_some()).count(),
            "DA-4: each call in a slot ends once"
        );
        debug_assert!(
            self.chains.values().all(|rest| !rest.slots.is_empty()),
            "DA-4: a chain ends with its last member"
        );
    }
}
