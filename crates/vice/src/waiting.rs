//! Calls that wait for the grace period to end, or to go as far as they need, bounded in number and bytes.

use std::collections::VecDeque;

use types::{Answer, Call, Caller, Fault, Origin, SessionId, Timestamp};

/// What waits.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // nearly all are calls
pub(crate) enum Waiting {
    /// A change to execute.
    Execute { wall: Timestamp, caller: Caller, origin: Origin, call: Call },
    /// The recorded reply of a change that the earlier life executed: to give it is to acknowledge the change (CB-5).
    Reply { origin: Origin, answer: Box<Answer> },
}

impl Waiting {
    pub fn origin(&self) -> Origin {
        match self {
            Waiting::Execute { origin, .. } | Waiting::Reply { origin, .. } => *origin,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Waiting::Execute { call, .. } => data_bytes(call),
            Waiting::Reply { .. } => 0,
        }
    }
}

/// Bytes of data in a call.
pub(crate) fn data_bytes(call: &Call) -> usize {
    match call {
        Call::Write { data, .. } => data.len(),
        Call::XattrSet { value, .. } => value.len(),
        Call::Delegated { call, .. } => data_bytes(call),
        _ => 0,
    }
}

/// First come, first served.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    calls: VecDeque<Waiting>,
    bytes: usize,
    calls_max: usize,
    bytes_max: usize,
}

impl Queue {
    pub fn new(calls_max: usize, bytes_max: usize) -> Self {
        Queue { calls: VecDeque::new(), bytes: 0, calls_max, bytes_max }
    }

    /// # Errors
    /// `Busy` if there is no room.
    pub fn push(&mut self, waiting: Waiting) -> Result<(), Fault> {
        let bytes = self.bytes + waiting.bytes();
        if self.calls.len() >= self.calls_max || bytes > self.bytes_max {
            return Err(Fault::Busy);
        }
        self.bytes = bytes;
        self.calls.push_back(waiting);
        Ok(())
    }

    /// Takes out those whose turn has come, in order.
    pub fn take_if(&mut self, goes: impl Fn(&Waiting) -> bool) -> VecDeque<Waiting> {
        let (go, stay) = std::mem::take(&mut self.calls).into_iter().partition(goes);
        self.calls = stay;
        self.bytes = self.calls.iter().map(Waiting::bytes).sum();
        go
    }

    pub fn take_all(&mut self) -> VecDeque<Waiting> {
        self.bytes = 0;
        std::mem::take(&mut self.calls)
    }

    /// Takes one back. Whether it was there.
    pub fn cancel(&mut self, origin: Origin) -> bool {
        self.retain(|waiting| waiting.origin() != origin)
    }

    pub fn remove_session(&mut self, session: SessionId) {
        self.retain(|waiting| waiting.origin().session != session);
    }

    fn retain(&mut self, keep: impl Fn(&Waiting) -> bool) -> bool {
        let before = self.calls.len();
        self.calls.retain(keep);
        self.bytes = self.calls.iter().map(Waiting::bytes).sum();
        self.calls.len() < before
    }

    pub fn contains(&self, origin: Origin) -> bool {
        self.calls.iter().any(|waiting| waiting.origin() == origin)
    }

    pub fn len(&self) -> usize {
        self.calls.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use types::Fid;

    fn write(request: u64, bytes: usize) -> Waiting {
        Waiting::Execute {
            wall: Timestamp::default(),
            caller: Caller::ROOT,
            origin: Origin { session: SessionId(request % 2), slot: 0, request },
            call: Call::Write {
                fid: Fid::default(),
                offset: None,
                data: Bytes::from(vec![0; bytes]),
                stable: false,
                kill_privileges: false,
            },
        }
    }

    #[test]
    fn the_queue_is_bounded_both_ways_and_gives_room_back() {
        let mut queue = Queue::new(3, 100);
        assert_eq!(queue.push(write(1, 60)), Ok(()));
        assert_eq!(queue.push(write(2, 60)), Err(Fault::Busy));
        assert_eq!(queue.push(write(3, 40)), Ok(()));
        assert!(queue.cancel(Origin { session: SessionId(1), slot: 0, request: 1 }));
        assert!(!queue.cancel(Origin { session: SessionId(1), slot: 0, request: 1 }));
        assert_eq!(queue.push(write(4, 60)), Ok(()));
        assert_eq!(queue.push(write(6, 0)), Ok(()));
        assert_eq!(queue.push(write(8, 0)), Err(Fault::Busy));
        queue.remove_session(SessionId(0));
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.take_all().len(), 1);
        assert_eq!(queue.push(write(5, 100)), Ok(()));
    }
}
