//! The connections of an endpoint: by number, by what packets name, and by their next deadline.
//!
//! A packet finds its connection in one step, however many there are. The hash is keyed with the
//! endpoint's seed, because peers choose what is hashed. A deadline that moves to later is not
//! looked at before the earlier one is reached, so most packets do not touch the order of times.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::BuildHasher;

use siphasher::sip::SipHasher13;
use types::Time;

use crate::RxConnectionId;
use crate::connection::{ConnectionKey, RxConnection};

/// Makes hashers with the endpoint's key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyedHash(pub(crate) u64, pub(crate) u64);

impl BuildHasher for KeyedHash {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, self.1)
    }
}

#[derive(Debug)]
struct TableSlot {
    generation: u32,
    connection: Option<Box<RxConnection>>,
    /// The entry in `deadlines`; never: none.
    timer_at: Time,
    is_ready: bool,
}

#[derive(Debug)]
pub(crate) struct ConnectionTable {
    slots: Vec<TableSlot>,
    free: Vec<u32>,
    by_key: HashMap<ConnectionKey, RxConnectionId, KeyedHash>,
    deadlines: BTreeSet<(Time, RxConnectionId)>,
    /// Connections that may have something to send, in turn.
    ready: VecDeque<RxConnectionId>,
}

impl ConnectionTable {
    pub(crate) fn new(hash: KeyedHash) -> Self {
        ConnectionTable {
            slots: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::with_hasher(hash),
            deadlines: BTreeSet::new(),
            ready: VecDeque::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Adds the connection that `make` makes with its number.
    pub(crate) fn insert(
        &mut self,
        key: ConnectionKey,
        make: impl FnOnce(RxConnectionId) -> RxConnection,
    ) -> RxConnectionId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(TableSlot {
                generation: 0,
                connection: None,
                timer_at: Time::NEVER,
                is_ready: false,
            });
            self.slots.len() as u32 - 1
        });
        let place = &mut self.slots[slot as usize];
        let id = RxConnectionId { slot, generation: place.generation };
        place.connection = Some(Box::new(make(id)));
        self.by_key.insert(key, id);
        id
    }

    /// All connections.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &RxConnection> {
        self.slots.iter().filter_map(|slot| slot.connection.as_deref())
    }

    pub(crate) fn find(&self, key: &ConnectionKey) -> Option<RxConnectionId> {
        self.by_key.get(key).copied()
    }

    fn slot(&mut self, id: RxConnectionId) -> Option<&mut TableSlot> {
        self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation)
    }

    pub(crate) fn get(&self, id: RxConnectionId) -> Option<&RxConnection> {
        let slot = self.slots.get(id.slot as usize);
        slot.filter(|slot| slot.generation == id.generation)?.connection.as_deref()
    }

    pub(crate) fn get_mut(&mut self, id: RxConnectionId) -> Option<&mut RxConnection> {
        self.slot(id)?.connection.as_deref_mut()
    }

    pub(crate) fn remove(&mut self, id: RxConnectionId) -> Option<Box<RxConnection>> {
        let slot = self.slot(id)?;
        let connection = slot.connection.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.is_ready = false;
        let timer_at = std::mem::replace(&mut slot.timer_at, Time::NEVER);
        self.deadlines.remove(&(timer_at, id));
        self.by_key.remove(&connection.key);
        self.free.push(id.slot);
        Some(connection)
    }

    /// The connection's next deadline is this.
    pub(crate) fn set_deadline(&mut self, id: RxConnectionId, deadline: Time) {
        let Some(slot) = self.slot(id) else { return };
        if deadline >= slot.timer_at {
            return;
        }
        let before = std::mem::replace(&mut slot.timer_at, deadline);
        self.deadlines.remove(&(before, id));
        self.deadlines.insert((deadline, id));
    }

    /// The earliest deadline; it may be one that has moved to later since.
    pub(crate) fn due(&self) -> Time {
        self.deadlines.first().map_or(Time::NEVER, |(at, _)| *at)
    }

    /// Takes a connection whose deadline may be reached.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<RxConnectionId> {
        let (at, id) = *self.deadlines.first()?;
        if at > now {
            return None;
        }
        self.deadlines.pop_first();
        if let Some(slot) = self.slot(id) {
            slot.timer_at = Time::NEVER;
        }
        Some(id)
    }

    /// The connection may have something to send.
    pub(crate) fn set_ready(&mut self, id: RxConnectionId) {
        let Some(slot) = self.slot(id) else { return };
        if !slot.is_ready {
            slot.is_ready = true;
            self.ready.push_back(id);
        }
    }

    /// Takes the connection whose turn it is to send.
    pub(crate) fn pop_ready(&mut self) -> Option<RxConnectionId> {
        while let Some(id) = self.ready.pop_front() {
            if let Some(slot) = self.slot(id) {
                slot.is_ready = false;
                return Some(id);
            }
        }
        None
    }
}
