//! A lane: two rings in memory that a client and its server share, for small frames whose payload
//! lies in shared memory too.
//!
//! Model: each ring has [`LANE_ENTRIES`] entries and two counters, of entries put in and taken,
//! which only rise. One side writes one of them, and keeps its own in memory that the other side
//! cannot reach; what it reads of the other's is checked. An entry is copied before any of it is
//! looked at. So the other side can make this one see wrong bytes, and nothing worse.
//!
//! *Sleep.* A receiver that waits says so in a word of the memory, looks once more, and then waits
//! elsewhere. A sender looks at that word after it has put an entry in: of both, one sees what the
//! other wrote, since a full fence lies between the write and the look on either side. The sender
//! clears the word when it sees it set, so it rings once.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use mem::shared::SharedMemory;

use crate::HEADER_BYTES;

/// Bytes of a lane's memory.
pub const LANE_BYTES: usize = HEAD_BYTES + 2 * RING_BYTES;
/// Entries of each ring: as many as a session has slots, and each request has one reply.
pub const LANE_ENTRIES: u64 = 128;
/// Bytes of a message that an entry has room for.
pub const LANE_MESSAGE_MAX: usize = ENTRY_BYTES - HEADER_BYTES;

const ENTRY_BYTES: usize = 256;
const RING_BYTES: usize = LANE_ENTRIES as usize * ENTRY_BYTES;
const HEAD_BYTES: usize = 4096;

/// The words and entries of one ring.
#[derive(Clone, Copy, Debug)]
struct Ring {
    put: usize,
    taken: usize,
    sleeps: usize,
    entries: usize,
}

/// To the server.
const REQUESTS: Ring = Ring { put: 0, taken: 64, sleeps: 256, entries: HEAD_BYTES };
/// To the client.
const REPLIES: Ring = Ring { put: 128, taken: 192, sleeps: 320, entries: HEAD_BYTES + RING_BYTES };

/// The other side's counters are impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("impossible count in a lane")]
pub struct LaneError;

/// An entry: header, and the bytes behind it, of which the header says how many are its message.
#[derive(Debug)]
pub struct LaneEntry([u8; ENTRY_BYTES]);

impl LaneEntry {
    /// The frame's header.
    pub fn header(&self) -> &[u8; HEADER_BYTES] {
        self.0.first_chunk().expect("an entry is longer than a header")
    }

    /// The first `bytes` bytes of the message; `None` if that is more than an entry has.
    pub fn message(&self, bytes: usize) -> Option<&[u8]> {
        self.0[HEADER_BYTES..].get(..bytes)
    }
}

/// The half that puts entries in.
#[derive(Debug)]
pub struct LaneSender {
    memory: Arc<SharedMemory>,
    ring: Ring,
    put: u64,
}

/// The half that takes entries.
#[derive(Debug)]
pub struct LaneReceiver {
    memory: Arc<SharedMemory>,
    ring: Ring,
    taken: u64,
}

/// The halves of the side that made the memory.
///
/// # Panics
/// If the memory is not of [`LANE_BYTES`].
pub fn client_lane(memory: Arc<SharedMemory>) -> (LaneSender, LaneReceiver) {
    halves(memory, REQUESTS, REPLIES)
}

/// The halves of the other side.
///
/// # Panics
/// If the memory is not of [`LANE_BYTES`].
pub fn server_lane(memory: Arc<SharedMemory>) -> (LaneSender, LaneReceiver) {
    halves(memory, REPLIES, REQUESTS)
}

fn halves(memory: Arc<SharedMemory>, out: Ring, come: Ring) -> (LaneSender, LaneReceiver) {
    assert_eq!(memory.len(), LANE_BYTES, "RG-2: a lane has its length");
    let sender = LaneSender { memory: Arc::clone(&memory), ring: out, put: 0 };
    (sender, LaneReceiver { memory, ring: come, taken: 0 })
}

impl LaneSender {
    /// Puts an entry in. Returns whether the other side sleeps and must be told.
    ///
    /// # Errors
    /// The ring is full, or its count impossible: the other side breaks the protocol, since each
    /// entry answers or asks for one slot.
    ///
    /// # Panics
    /// If the message is longer than [`LANE_MESSAGE_MAX`].
    pub fn put(&mut self, header: &[u8; HEADER_BYTES], message: &[u8]) -> Result<bool, LaneError> {
        assert!(message.len() <= LANE_MESSAGE_MAX, "RG-2: a message fits its entry");
        let taken = self.memory.word(self.ring.taken).load(Ordering::Acquire);
        if self.put.checked_sub(taken).is_none_or(|waiting| waiting >= LANE_ENTRIES) {
            return Err(LaneError);
        }
        let at = self.ring.entries + (self.put % LANE_ENTRIES) as usize * ENTRY_BYTES;
        self.memory.put(at, header);
        self.memory.put(at + HEADER_BYTES, message);
        self.put += 1;
        self.memory.word(self.ring.put).store(self.put, Ordering::Release);
        fence(Ordering::SeqCst);
        let sleeps = self.memory.word(self.ring.sleeps);
        Ok(sleeps.load(Ordering::Relaxed) == 1 && sleeps.swap(0, Ordering::Relaxed) == 1)
    }

    /// Whether the other side looks into the ring now, without being told.
    pub fn is_watched(&self) -> bool {
        self.memory.word(self.ring.sleeps).load(Ordering::Relaxed) == 0
    }
}

impl LaneReceiver {
    /// The next entry, if there is one.
    ///
    /// # Errors
    /// The ring's count is impossible.
    pub fn take(&mut self) -> Result<Option<LaneEntry>, LaneError> {
        let put = self.memory.word(self.ring.put).load(Ordering::Acquire);
        match put.checked_sub(self.taken) {
            Some(0) => return Ok(None),
            Some(waiting) if waiting <= LANE_ENTRIES => {}
            _ => return Err(LaneError),
        }
        let at = self.ring.entries + (self.taken % LANE_ENTRIES) as usize * ENTRY_BYTES;
        let mut entry = LaneEntry([0; ENTRY_BYTES]);
        self.memory.get(at, &mut entry.0);
        self.taken += 1;
        self.memory.word(self.ring.taken).store(self.taken, Ordering::Release);
        Ok(Some(entry))
    }

    /// Whether an entry is there, or a count that is impossible.
    pub fn has_more(&self) -> bool {
        self.memory.word(self.ring.put).load(Ordering::Acquire) != self.taken
    }

    /// Says that this side sleeps. `false`: an entry came, and it must not.
    pub fn sleep(&self) -> bool {
        let sleeps = self.memory.word(self.ring.sleeps);
        sleeps.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.has_more() {
            sleeps.store(0, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Says that this side is awake: nothing needs to ring.
    pub fn wake(&self) {
        self.memory.word(self.ring.sleeps).store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane() -> (Arc<SharedMemory>, [(LaneSender, LaneReceiver); 2]) {
        let memory = Arc::new(SharedMemory::create_sealed("lane", LANE_BYTES).unwrap());
        let theirs = memory.file().try_clone().unwrap();
        let theirs = Arc::new(SharedMemory::open_sealed(theirs, LANE_BYTES).unwrap());
        (Arc::clone(&memory), [client_lane(memory), server_lane(theirs)])
    }

    #[test]
    fn entries_arrive_in_order_and_whole_through_many_rounds() {
        let (_, [(mut ask, mut hear), (mut answer, mut come)]) = lane();
        for round in 0..1000_u32 {
            for at in 0..round % 129 {
                let message = vec![at as u8; at as usize];
                ask.put(&[round as u8; HEADER_BYTES], &message).unwrap();
            }
            for at in 0..round % 129 {
                let entry = come.take().unwrap().unwrap();
                assert_eq!(entry.header(), &[round as u8; HEADER_BYTES]);
                assert_eq!(entry.message(at as usize).unwrap(), vec![at as u8; at as usize]);
                answer.put(entry.header(), &[1]).unwrap();
                assert_eq!(hear.take().unwrap().unwrap().header(), entry.header());
            }
            assert!(come.take().unwrap().is_none() && hear.take().unwrap().is_none());
        }
    }

    #[test]
    fn a_full_ring_and_impossible_counts_are_errors() {
        let (memory, [(mut ask, mut hear), (mut answer, mut come)]) = lane();
        for _ in 0..LANE_ENTRIES {
            ask.put(&[1; HEADER_BYTES], &[]).unwrap();
        }
        assert_eq!(ask.put(&[1; HEADER_BYTES], &[]), Err(LaneError));
        for count in [LANE_ENTRIES + 1, u64::MAX] {
            memory.word(REQUESTS.put).store(count, Ordering::Relaxed);
            assert_eq!(come.take().map(|_| ()), Err(LaneError));
        }
        for count in [1, u64::MAX, 1 << 63] {
            memory.word(REPLIES.taken).store(count, Ordering::Relaxed);
            assert_eq!(answer.put(&[1; HEADER_BYTES], &[]), Err(LaneError), "{count}");
        }
        assert!(hear.take().unwrap().is_none());
        let entry = LaneEntry([7; ENTRY_BYTES]);
        assert_eq!(entry.message(LANE_MESSAGE_MAX).unwrap().len(), LANE_MESSAGE_MAX);
        assert!(entry.message(LANE_MESSAGE_MAX + 1).is_none());
    }

    #[test]
    fn a_sender_rings_once_for_a_receiver_that_sleeps() {
        let (_, [(mut ask, _), (_, mut come)]) = lane();
        assert!(!ask.put(&[1; HEADER_BYTES], &[]).unwrap(), "the receiver is awake");
        assert!(!come.sleep(), "an entry is there");
        come.take().unwrap().unwrap();
        assert!(come.sleep());
        assert!(ask.put(&[1; HEADER_BYTES], &[]).unwrap());
        assert!(!ask.put(&[1; HEADER_BYTES], &[]).unwrap(), "it was told");
        come.wake();
    }

    #[test]
    fn threads_that_sleep_and_ring_lose_nothing() {
        const COUNT: u64 = 200_000;
        let (_, [(mut ask, _), (_, mut come)]) = lane();
        let (bell, rung) = std::sync::mpsc::channel();
        let sender = std::thread::spawn(move || {
            let mut sent = 0;
            while sent < COUNT {
                match ask.put(&[1; HEADER_BYTES], &sent.to_le_bytes()) {
                    Ok(true) => bell.send(()).unwrap(),
                    Ok(false) => {}
                    Err(LaneError) => {
                        std::thread::yield_now();
                        continue;
                    }
                }
                sent += 1;
            }
        });
        for at in 0..COUNT {
            let entry = loop {
                match come.take().unwrap() {
                    Some(entry) => break entry,
                    None if come.sleep() => rung.recv().unwrap(),
                    None => {}
                }
            };
            assert_eq!(entry.message(8).unwrap(), at.to_le_bytes());
        }
        sender.join().unwrap();
    }
}
