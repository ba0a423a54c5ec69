//! Calls that wait for a delegation to come back, bounded in number and bytes.
//!
//! A call that meets something that another session has to itself leaves nothing behind, waits here for the directories that it was
//! stopped by, and is executed anew from its beginning when one of them is back, in the order in which the calls came (DE-2).

use std::collections::VecDeque;

use types::{Call, Caller, Fault, Fid, Origin, SessionId, Time, Timestamp};

use crate::waiting::data_bytes;

/// A call that waits.
#[derive(Debug)]
pub(crate) struct Parked {
    /// When it came, on both clocks.
    pub came: (Time, Timestamp),
    pub caller: Caller,
    pub origin: Origin,
    pub call: Call,
    /// Delegated directories, any of which may be all that it waits for.
    pub waits: Vec<Fid>,
}

/// First come, first served.
#[derive(Debug)]
pub(crate) struct ParkedCalls {
    calls: VecDeque<Parked>,
    bytes: usize,
    calls_max: usize,
    bytes_max: usize,
}

impl ParkedCalls {
    pub fn new(calls_max: usize, bytes_max: usize) -> Self {
        ParkedCalls { calls: VecDeque::new(), bytes: 0, calls_max, bytes_max }
    }

    /// # Errors
    /// `Busy` if there is no room.
    pub fn push(&mut self, parked: Parked) -> Result<(), Fault> {
        let bytes = self.bytes + data_bytes(&parked.call);
        if self.calls.len() >= self.calls_max || bytes > self.bytes_max {
            return Err(Fault::Busy);
        }
        self.bytes = bytes;
        self.calls.push_back(parked);
        Ok(())
    }

    /// Takes out those that wait for one of these directories, in order.
    pub fn take(&mut self, back: &[Fid]) -> Vec<Parked> {
        let goes = |parked: &Parked| parked.waits.iter().any(|dir| back.contains(dir));
        let (go, stay) = std::mem::take(&mut self.calls).into_iter().partition::<VecDeque<_>, _>(goes);
        self.put_back(stay);
        go.into()
    }

    /// Takes one back. Whether it was there.
    pub fn cancel(&mut self, origin: Origin) -> bool {
        let before = self.calls.len();
        let stay = std::mem::take(&mut self.calls).into_iter().filter(|parked| parked.origin != origin).collect();
        self.put_back(stay);
        self.calls.len() < before
    }

    pub fn remove_session(&mut self, session: SessionId) {
        let others = |parked: &Parked| parked.origin.session != session;
        let stay = std::mem::take(&mut self.calls).into_iter().filter(others).collect();
        self.put_back(stay);
    }

    pub fn len(&self) -> usize {
        self.calls.len()
    }

    fn put_back(&mut self, calls: VecDeque<Parked>) {
        self.bytes = calls.iter().map(|parked| data_bytes(&parked.call)).sum();
        self.calls = calls;
    }
}
