//! The requests of all sessions: the last one of each slot with its reply, and the calls that wait.
//!
//! A call waits for the end of grace, or for a delegation (`waiting_calls.rs`). An entry of a
//! queue belongs to a session that has slots: it is refused, or removed, when the session is over.

use bytes::Bytes;
use types::{Answer, Caller, ClientId, Fault, Fid, ReplyAddress, SessionId, VolumeId};

use super::reply_cache::{Begin, SlotTable};
use super::waiting_calls::{CallQueue, Parked, Waiting, Waits};
use crate::base::Guarded;

/// See the head of the file.
pub(crate) struct Requests {
    tables: Guarded<Tables>,
}

struct Tables {
    slots: SlotTable,
    /// Calls that wait for the grace period.
    queue: CallQueue<Waiting>,
    /// Calls that wait for delegations of other sessions.
    parked: CallQueue<Parked>,
}

impl Requests {
    pub fn new(slots_max: u32, calls_max: usize, bytes_max: usize) -> Requests {
        Requests {
            tables: Guarded::new(Tables {
                slots: SlotTable::new(slots_max),
                queue: CallQueue::new(calls_max, bytes_max),
                parked: CallQueue::new(calls_max, bytes_max),
            }),
        }
    }

    /// Whether a panic left the tables half changed.
    pub fn is_broken(&self) -> bool {
        self.tables.is_broken()
    }

    pub fn add_session(&self, session: SessionId, client: ClientId) {
        self.tables.lock().slots.add_session(session, client);
    }

    /// See [`SlotTable::client_of`].
    pub fn client_of(&self, session: SessionId) -> Option<ClientId> {
        self.tables.lock().slots.client_of(session)
    }

    pub fn has_session(&self, session: SessionId) -> bool {
        self.tables.lock().slots.has_session(session)
    }

    /// Adds a reply record of an earlier server instance.
    pub fn add_record(&self, origin: ReplyAddress, reply: Bytes) {
        self.tables.lock().slots.add_record(origin, reply);
    }

    /// The session is over.
    pub fn remove_session(&self, session: SessionId) {
        let mut tables = self.tables.lock();
        tables.slots.remove_session(session);
        tables.queue.remove_session(session);
        tables.parked.remove_session(session);
    }

    /// Slot and request number of every cached reply of a change, in order.
    pub fn recorded(&self, session: SessionId) -> Vec<(u32, u64)> {
        self.tables.lock().slots.recorded(session)
    }

    /// All sessions, with their callers.
    pub fn actors(&self) -> Vec<(SessionId, Vec<Caller>)> {
        self.tables.lock().slots.actors()
    }

    /// See [`SlotTable::of_volume`].
    pub fn of_volume(
        &self,
        volume: VolumeId,
        encode: fn(&Answer) -> Vec<u8>,
    ) -> Vec<(ReplyAddress, Bytes)> {
        self.tables.lock().slots.of_volume(volume, encode)
    }

    /// Begins a request of this caller. `changes`: the volume that it may change.
    pub fn begin(&self, origin: ReplyAddress, caller: &Caller, changes: Option<VolumeId>) -> Begin {
        let mut tables = self.tables.lock();
        if let Some(volume) = changes {
            tables.slots.note_change(origin.session, volume);
        }
        tables.slots.note(origin.session, caller);
        tables.slots.begin(origin)
    }

    /// Ends a request; the reply of a change is remembered. False: its session is over.
    pub fn finish(&self, origin: ReplyAddress, remember: Option<Result<Answer, Fault>>) -> bool {
        self.tables.lock().slots.finish(origin, remember)
    }

    /// Queues a call until grace permits it. A reply that waits already continues to wait.
    ///
    /// # Errors
    /// `Busy` if there is no room; `Expired` if its session is over.
    pub fn wait_for_grace(&self, waiting: Waiting, of_nobody: bool) -> Result<(), Fault> {
        let mut tables = self.tables.lock();
        let origin = waiting.origin();
        if !tables.slots.has_session(origin.session) {
            return Err(Fault::Expired);
        }
        if matches!(waiting, Waiting::Reply { .. }) && tables.queue.contains(origin) {
            return Ok(());
        }
        tables.queue.push(waiting, of_nobody)
    }

    /// Queues a call until a delegation is back.
    ///
    /// # Errors
    /// As [`Requests::wait_for_grace`].
    pub fn park(&self, parked: Parked, of_nobody: bool) -> Result<(), Fault> {
        let mut tables = self.tables.lock();
        if !tables.slots.has_session(parked.origin.session) {
            return Err(Fault::Expired);
        }
        assert!(!parked.waits.is_empty(), "DE-2: a call that waits for nothing never goes on");
        tables.parked.push(parked, of_nobody)
    }

    /// Removes the calls that waited for one of these directories, in order.
    pub fn unpark(&self, back: &[Fid]) -> Vec<Parked> {
        self.tables.lock().parked.take_if(|parked| parked.waits_for(back))
    }

    /// Removes the calls that grace permits now, in order.
    pub fn take_permitted(&self, goes: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        self.tables.lock().queue.take_if(goes)
    }

    /// Cancels a call that waits. Returns whether it waited.
    pub fn cancel(&self, origin: ReplyAddress) -> bool {
        let mut tables = self.tables.lock();
        tables.queue.cancel(origin) || tables.parked.cancel(origin)
    }

    /// Calls that wait for grace, and for delegations.
    pub fn waiting(&self) -> (usize, usize) {
        let tables = self.tables.lock();
        (tables.queue.len(), tables.parked.len())
    }
}

#[cfg(test)]
mod tests {
    use types::{Call, Time, Timestamp};

    use super::*;

    fn parked(session: u64) -> Parked {
        Parked {
            came: (Time::ZERO, Timestamp::default()),
            caller: Caller::ROOT,
            origin: ReplyAddress { session: SessionId(session), slot: 0, request: 1 },
            call: Call::ReclaimDone,
            waits: vec![Fid::new(1, 1, 1)],
        }
    }

    #[test]
    fn a_call_waits_only_while_its_session_lasts() {
        let requests = Requests::new(4, 8, 100);
        requests.add_session(SessionId(1), ClientId(1));
        assert_eq!(requests.park(parked(1), false), Ok(()));
        assert_eq!(requests.waiting(), (0, 1));
        requests.remove_session(SessionId(1));
        assert_eq!(requests.waiting(), (0, 0));
        // The session ended after the call began.
        assert_eq!(requests.park(parked(1), false), Err(Fault::Expired));
        let Parked { came, caller, origin, call, .. } = parked(1);
        let waiting = Waiting::Execute { wall: came.1, caller, origin, call, generation: None };
        assert_eq!(requests.wait_for_grace(waiting, false), Err(Fault::Expired));
        assert_eq!(requests.waiting(), (0, 0));
    }
}
