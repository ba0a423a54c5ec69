//! Calls that cannot be executed yet, in the order in which they came, bounded in number and bytes.
//!
//! There are two such queues. One has the calls that wait for the end of the grace period, or until
//! it permits them. The other has the *parked* calls: a call on files that another session covers
//! leaves nothing behind, waits for the delegated directories that stopped it, and is executed
//! again from its beginning when one of them is back (DE-2). Calls of anonymous sessions may take a
//! quarter of either queue, so that they keep no authenticated call out.

use std::collections::VecDeque;

use types::{Answer, Call, Caller, Fault, Fid, ReplyAddress, SessionId, Time, Timestamp, VolumeId};

/// An entry of a queue.
pub(crate) trait Waits {
    /// Address of its reply.
    fn origin(&self) -> ReplyAddress;
    /// Bytes of data that it uses in memory.
    fn bytes(&self) -> usize;
}

/// An entry that waits for the end of grace.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // nearly all are calls
pub(crate) enum Waiting {
    /// A change to execute. `generation`: that of the volume that it changes, when it came.
    Execute {
        wall: Timestamp,
        caller: Caller,
        origin: ReplyAddress,
        call: Call,
        generation: Option<u64>,
    },
    /// The recorded reply of a change that the earlier server instance executed: to send it is to
    /// acknowledge the change (CB-5). `changed`: the volume of the change.
    Reply { origin: ReplyAddress, answer: Box<Answer>, changed: Option<VolumeId> },
}

impl Waits for Waiting {
    fn origin(&self) -> ReplyAddress {
        match self {
            Waiting::Execute { origin, .. } | Waiting::Reply { origin, .. } => *origin,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Waiting::Execute { call, .. } => call.data().brings,
            Waiting::Reply { .. } => 0,
        }
    }
}

/// A call that waits for a delegation to come back.
#[derive(Debug)]
pub(crate) struct Parked {
    /// When it came, on both clocks.
    pub came: (Time, Timestamp),
    pub caller: Caller,
    pub origin: ReplyAddress,
    pub call: Call,
    /// Delegated directories, any of which may be all that it waits for.
    pub waits: Vec<Fid>,
}

impl Parked {
    /// Whether it waits for one of these directories.
    pub fn waits_for(&self, back: &[Fid]) -> bool {
        self.waits.iter().any(|dir| back.contains(dir))
    }
}

impl Waits for Parked {
    fn origin(&self) -> ReplyAddress {
        self.origin
    }

    fn bytes(&self) -> usize {
        self.call.data().brings
    }
}

/// The part of a queue that calls of anonymous sessions may take: one in so many.
const NOBODY_SHARE: usize = 4;

/// Numbers of calls and bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    calls: usize,
    bytes: usize,
}

impl Room {
    fn has(self, max: Room) -> bool {
        self.calls <= max.calls && self.bytes <= max.bytes
    }

    fn with(self, bytes: usize) -> Room {
        Room { calls: self.calls + 1, bytes: self.bytes + bytes }
    }
}

#[derive(Debug)]
struct Entry<T> {
    of_nobody: bool,
    waiting: T,
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct CallQueue<T> {
    entries: VecDeque<Entry<T>>,
    used: Room,
    used_by_nobody: Room,
    max: Room,
}

impl<T: Waits> CallQueue<T> {
    pub fn new(calls_max: usize, bytes_max: usize) -> Self {
        let max = Room { calls: calls_max, bytes: bytes_max };
        CallQueue {
            entries: VecDeque::new(),
            used: Room::default(),
            used_by_nobody: Room::default(),
            max,
        }
    }

    /// `of_nobody`: its session is anonymous.
    ///
    /// # Errors
    /// `Busy` if there is no room.
    pub fn push(&mut self, waiting: T, of_nobody: bool) -> Result<(), Fault> {
        let origin = waiting.origin();
        debug_assert!(!self.contains(origin), "EO-1: {origin:?} would be executed twice");
        let used = self.used.with(waiting.bytes());
        if !used.has(self.max) {
            return Err(Fault::Busy);
        }
        if of_nobody {
            let Room { calls, bytes } = self.max;
            let by_nobody = self.used_by_nobody.with(waiting.bytes());
            if !by_nobody.has(Room { calls: calls / NOBODY_SHARE, bytes: bytes / NOBODY_SHARE }) {
                return Err(Fault::Busy);
            }
            self.used_by_nobody = by_nobody;
        }
        self.used = used;
        self.entries.push_back(Entry { of_nobody, waiting });
        Ok(())
    }

    /// Removes the entries that may go, in order.
    pub fn take_if(&mut self, goes: impl Fn(&T) -> bool) -> Vec<T> {
        let all = std::mem::take(&mut self.entries).into_iter();
        let (go, stay): (VecDeque<_>, _) = all.partition(|entry| goes(&entry.waiting));
        self.entries = stay;
        let sum = |all: &VecDeque<Entry<T>>, counts: fn(&Entry<T>) -> bool| {
            all.iter()
                .filter(|entry| counts(entry))
                .fold(Room::default(), |room, entry| room.with(entry.waiting.bytes()))
        };
        self.used = sum(&self.entries, |_| true);
        self.used_by_nobody = sum(&self.entries, |entry| entry.of_nobody);
        go.into_iter().map(|entry| entry.waiting).collect()
    }

    /// Removes an entry. Returns whether it was there.
    pub fn cancel(&mut self, origin: ReplyAddress) -> bool {
        !self.take_if(|waiting| waiting.origin() == origin).is_empty()
    }

    pub fn remove_session(&mut self, session: SessionId) {
        self.take_if(|waiting| waiting.origin().session == session);
    }

    pub fn contains(&self, origin: ReplyAddress) -> bool {
        self.entries.iter().any(|entry| entry.waiting.origin() == origin)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn write(request: u64, bytes: usize) -> Waiting {
        Waiting::Execute {
            wall: Timestamp::default(),
            caller: Caller::ROOT,
            origin: ReplyAddress { session: SessionId(request % 2), slot: 0, request },
            call: Call::Write {
                fid: Fid::default(),
                offset: None,
                data: Bytes::from(vec![0; bytes]),
                stable: false,
                kill_privileges: false,
            },
            generation: None,
        }
    }

    #[test]
    fn the_queue_is_bounded_both_ways_and_gives_room_back() {
        let mut queue = CallQueue::new(3, 100);
        assert_eq!(queue.push(write(1, 60), false), Ok(()));
        assert_eq!(queue.push(write(2, 60), false), Err(Fault::Busy));
        assert_eq!(queue.push(write(3, 40), false), Ok(()));
        assert!(queue.cancel(ReplyAddress { session: SessionId(1), slot: 0, request: 1 }));
        assert!(!queue.cancel(ReplyAddress { session: SessionId(1), slot: 0, request: 1 }));
        assert_eq!(queue.push(write(4, 60), false), Ok(()));
        assert_eq!(queue.push(write(6, 0), false), Ok(()));
        assert_eq!(queue.push(write(8, 0), false), Err(Fault::Busy));
        queue.remove_session(SessionId(0));
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.take_if(|_| true).len(), 1);
        assert_eq!(queue.push(write(5, 100), false), Ok(()));
    }

    #[test]
    fn h4_calls_of_nobody_leave_room_for_those_of_users() {
        let mut queue = CallQueue::new(8, 800);
        assert_eq!(queue.push(write(1, 201), true), Err(Fault::Busy));
        assert_eq!(queue.push(write(1, 100), true), Ok(()));
        assert_eq!(queue.push(write(3, 100), true), Ok(()));
        assert_eq!(queue.push(write(5, 0), true), Err(Fault::Busy), "a quarter of the calls");
        for request in [2, 4, 6, 8, 10, 12] {
            assert_eq!(queue.push(write(request, 100), false), Ok(()));
        }
        assert_eq!(queue.push(write(14, 0), false), Err(Fault::Busy));
        queue.remove_session(SessionId(1));
        assert_eq!(queue.push(write(7, 200), true), Ok(()), "their room is given back");
    }
}
