//! The bytes of one file that are here: written and not sent, sent and not answered, answered and
//! not yet stable.
//!
//! A written byte moves `dirty` -> `flying` -> (`unstable` ->) gone. Reads lay `flying` and then
//! `dirty` over the server's bytes. Under a delegation it moves `dirty` -> `sealed` -> (`unstable`
//! ->) gone: a sealed chunk is an entry of the journal, and its effect is in the status already.
//! Chunks in flight never overlap, so the order in which the server applies them does not matter.
//! Appended bytes move `tail` -> `tail_flying` -> (`unstable` ->) gone. The server alone decides
//! their place, so they are sent one chunk after the other, and once. Until then they are shown
//! where the client expects them.
//! `unstable` has the bytes that the server acknowledged as *unstable* (`calls/unstable.rs`).
//!
//! `clock` counts writes; a flush waits until everything not newer than the count at its beginning
//! is gone, so that a busy writer does not delay it for ever.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use client::Cancel;
use keep::Record;
use parking_lot::{Condvar, Mutex, MutexGuard};
use types::{ByteRange, Caller, Fid, LockFamily, LockMode, LockOwner};

use super::{
    CacheBody, Choice, Chunk, Extents, PassedFile, ReadCache, ScratchBody, UnstableWrites,
};
use crate::base::{Error, OpenHandle, POLL_INTERVAL, Share};

pub(crate) struct FileBytes {
    pub fid: Fid,
    /// Bytes dirty or flying. Changes under `data`; read without it for the shown status.
    pub unsent: AtomicUsize,
    /// End of the last of those bytes.
    pub floor: AtomicU64,
    /// Number of sealed chunks. As `unsent`.
    sealed: AtomicUsize,
    /// The body is loaned for writing, so the server's records lag behind the kernel's writes.
    /// Changes under `data`; read without it for the shown status.
    pub loaned: AtomicBool,
    /// The kernel writes into a preallocated body. Changes with `scratch`; read without it.
    pub blank: AtomicBool,
    pub scratch: Mutex<Option<ScratchBody>>,
    /// This client made the file, and writes bypassed the kernel's pages.
    pub past_pages: AtomicBool,
    /// Number of handles, and with them the mode. See `passthrough/backing.rs`.
    pub choice: Mutex<Choice>,
    pub data: Mutex<Data>,
    /// Held by the commit that asks about the unstable bytes.
    pub commits: Mutex<()>,
    /// Signalled when a chunk was sent, landed or failed.
    pub moved: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub owner: LockOwner,
    pub pid: u32,
    pub family: LockFamily,
    pub range: ByteRange,
    pub mode: LockMode,
    /// The handle through which it was asked for.
    pub handle: OpenHandle,
    pub end: End,
}

/// How near a lock's end may be. The kernel does not wait for the client when it closes a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The kernel will report the close before it is done.
    Far,
    /// The file may be closed already, and the kernel reports it later.
    Near,
    /// The client is releasing it.
    Now,
}

#[derive(Default)]
pub(crate) struct Data {
    pub dirty: Extents,
    pub flying: Vec<Chunk>,
    /// Appended bytes that are not sent. Bytes that were written later wait for them.
    pub tail: Option<Tail>,
    /// Appended bytes in flight, at the place where they are expected.
    pub tail_flying: Option<Chunk>,
    /// Chunks in the journal, oldest first, with the entries' numbers.
    pub sealed: Vec<(u64, Chunk)>,
    pub unstable: UnstableWrites,
    pub clock: u64,
    /// Writes not newer than this are sent without waiting for a full chunk.
    pub urgent: u64,
    /// When `dirty` got its first byte.
    pub since: Option<Instant>,
    pub workers: usize,
    pub errors: u64,
    pub error: Option<Error>,
    /// The last writer; background calls that send use its name.
    pub writer: Option<Caller>,
    /// The last opener, for reading if there was one; background calls that fetch other clients'
    /// changes use its name.
    pub opener: Option<Caller>,
    /// The next write call clears set-id bits.
    pub kill: bool,
    /// Counts breaks of this file: a waiting writer stops waiting when one comes (see
    /// `KernelPort`).
    pub breaks: u64,
    /// Breaks of this file of which the kernel is being notified: it writes mapped pages back to
    /// the client first, and waits for that.
    pub breaking: u32,
    pub locks: Vec<Granted>,
    /// Their record for a successor.
    pub locks_record: Option<Record>,
    /// The records of writes for a successor, with their clocks.
    pub written: VecDeque<(u64, Record)>,
    /// Locks of this file that were lost with their session: handles opened before are void.
    pub locks_lost: u64,
    pub reads: ReadCache,
    /// The body that the kernel has, while the file is open with passthrough.
    pub passed: Option<PassedFile>,
}

/// Appended bytes, in order.
pub(crate) struct Tail {
    /// The expected place of the first one.
    pub start: u64,
    pub bytes: BytesMut,
    /// The clock of the first one.
    pub first: u64,
}

impl Tail {
    pub fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// The same bytes as a chunk at the expected place.
    fn chunk(&self) -> Chunk {
        let data = Bytes::copy_from_slice(&self.bytes);
        Chunk { offset: self.start, data, first: self.first }
    }
}

impl From<Tail> for Chunk {
    fn from(Tail { start, bytes, first }: Tail) -> Chunk {
        Chunk { offset: start, data: bytes.freeze(), first }
    }
}

impl FileBytes {
    pub fn new(fid: Fid) -> Self {
        FileBytes {
            fid,
            unsent: AtomicUsize::new(0),
            floor: AtomicU64::new(0),
            sealed: AtomicUsize::new(0),
            loaned: AtomicBool::new(false),
            blank: AtomicBool::new(false),
            scratch: Mutex::default(),
            past_pages: AtomicBool::new(false),
            choice: Mutex::default(),
            data: Mutex::default(),
            commits: Mutex::default(),
            moved: Condvar::new(),
        }
    }

    pub fn is_clean(&self) -> bool {
        self.unsent.load(Ordering::Acquire) == 0 && !self.is_behind()
    }

    pub fn pinned(&self) -> Option<Arc<CacheBody>> {
        self.data.lock().passed.as_ref()?.pinned.clone()
    }

    /// Whether the journal has no bytes of this file.
    pub fn is_landed(&self) -> bool {
        self.sealed.load(Ordering::Acquire) == 0
    }

    /// Publishes the counts of `data`, after each change of `dirty`, `flying` or `sealed`.
    pub fn account(&self, data: &mut Data, share: &Share) {
        let now = data.dirty.bytes()
            + data.flying.iter().map(|chunk| chunk.data.len()).sum::<usize>()
            + data.tail_bytes();
        let floor = data.flying.iter().map(Chunk::end).max().unwrap_or(0).max(data.dirty.end());
        let floor = floor.max(data.tail_end().unwrap_or(0));
        self.floor.store(floor, Ordering::Release);
        self.sealed.store(data.sealed.len(), Ordering::Release);
        share.change(self.unsent.swap(now, Ordering::AcqRel), now);
        if !data.has_unsent() {
            data.since = None;
        }
        data.trim_written();
        self.moved.notify_all();
    }

    /// Bytes written here in `start..end`, oldest first, and the end of the last written byte.
    pub fn layers(&self, start: u64, end: u64) -> (Vec<(u64, Bytes)>, u64) {
        if self.is_clean() && self.is_landed() {
            return (Vec::new(), 0);
        }
        let data = self.data.lock();
        let mut layers = Vec::new();
        let sealed = data.sealed.iter().map(|(_, chunk)| chunk);
        let tail = data.tail.as_ref().map(Tail::chunk);
        let on_their_way = sealed.chain(&data.flying).chain(&data.tail_flying).chain(&tail);
        for chunk in on_their_way.filter(|chunk| chunk.overlaps(start, end)) {
            let (lo, hi) = (start.max(chunk.offset), end.min(chunk.end()));
            layers.push((
                lo,
                chunk.data.slice((lo - chunk.offset) as usize..(hi - chunk.offset) as usize),
            ));
        }
        layers.extend(data.dirty.within(start, end));
        (layers, self.floor.load(Ordering::Acquire))
    }

    pub fn has_blank(&self) -> bool {
        self.blank.load(Ordering::Acquire)
    }

    /// Whether the kernel wrote into the blank since the last seal.
    pub fn is_behind(&self) -> bool {
        self.has_blank() && self.scratch.lock().as_mut().is_some_and(ScratchBody::is_behind)
    }

    pub fn is_idle(&self) -> bool {
        self.has_blank() && self.scratch.lock().as_ref().is_some_and(|scratch| scratch.idle)
    }

    pub fn is_lost(&self) -> bool {
        self.has_blank() && self.scratch.lock().as_ref().is_some_and(|scratch| scratch.lost)
    }

    pub fn scratch(&self, change: impl FnOnce(&mut ScratchBody)) {
        if let Some(scratch) = &mut *self.scratch.lock() {
            change(scratch);
        }
    }

    /// Pages came into the kernel beside the blank.
    pub fn note_read(&self) {
        if self.has_blank() {
            self.scratch(|scratch| scratch.read_beside = true);
        }
    }

    /// The file is opened again while its blank is idle.
    pub fn wake_blank(&self) {
        self.scratch(|scratch| (scratch.idle, scratch.still) = (false, false));
    }

    pub fn set_scratch(&self, scratch: Option<ScratchBody>) -> Option<ScratchBody> {
        let has = scratch.is_some();
        let was = std::mem::replace(&mut *self.scratch.lock(), scratch);
        self.blank.store(has, Ordering::Release);
        was
    }

    /// Waits until no other commit asks.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn turn(&self, cancel: Option<&Cancel>) -> Result<MutexGuard<'_, ()>, Error> {
        loop {
            if let Some(turn) = self.commits.try_lock_for(POLL_INTERVAL) {
                return Ok(turn);
            }
            if cancel.is_some_and(Cancel::is_cancelled) {
                return Err(Error::Interrupted);
            }
        }
    }

    /// The number of written bytes that exist here alone, or that the server may lose.
    pub fn unsaved(&self) -> u64 {
        let is_behind = self.is_behind();
        let body =
            self.scratch.lock().as_ref().filter(|_| is_behind).map(|it| Arc::clone(&it.body));
        let size = |body: Arc<std::os::fd::OwnedFd>| {
            rustix::fs::fstat(&*body).map_or(0, |stat| stat.st_size as u64)
        };
        let blank = body.map_or(0, size);
        let data = self.data.lock();
        let chunks = data.flying.iter().chain(data.sealed.iter().map(|(_, chunk)| chunk));
        let on_their_way: usize = chunks.map(|chunk| chunk.data.len()).sum();
        let bytes = data.dirty.bytes() + data.tail_bytes() + on_their_way + data.unstable.all();
        blank + bytes as u64
    }

    /// Whether all written bytes are stable.
    pub fn is_stable(&self) -> bool {
        self.is_clean() && self.data.lock().unstable.is_empty()
    }
}

impl Data {
    /// Whether a byte not newer than `clock` is still unsent.
    pub fn holds(&self, clock: u64) -> bool {
        self.flying.iter().chain(&self.tail_flying).any(|chunk| chunk.first <= clock)
            || self.tail.as_ref().is_some_and(|tail| tail.first <= clock)
            || self.dirty.oldest().is_some_and(|oldest| oldest <= clock)
    }

    /// As [`Data::holds`], or the journal has one.
    pub fn has_on_its_way(&self, clock: u64) -> bool {
        self.holds(clock) || self.sealed.iter().any(|(_, chunk)| chunk.first <= clock)
    }

    /// Whether bytes wait to be sent.
    pub fn has_unsent(&self) -> bool {
        self.tail.is_some() || !self.dirty.is_empty()
    }

    /// Number of appended bytes that have not landed.
    pub fn tail_bytes(&self) -> usize {
        self.tail.as_ref().map_or(0, |tail| tail.bytes.len())
            + self.tail_flying.as_ref().map_or(0, |chunk| chunk.data.len())
    }

    /// The expected end of the file, while appended bytes have not landed.
    pub fn tail_end(&self) -> Option<u64> {
        let flying = self.tail_flying.as_ref().map(Chunk::end);
        self.tail.as_ref().map(Tail::end).or(flying)
    }

    /// Appends behind bytes that were appended before, or at `start`.
    pub fn append(&mut self, start: u64, bytes: &[u8]) {
        self.clock += 1;
        let first = self.clock;
        let new = || Tail { start, bytes: BytesMut::new(), first };
        self.tail.get_or_insert_with(new).bytes.extend_from_slice(bytes);
    }

    /// Takes the appended bytes into flight; `None` if there are none, or others are in flight.
    pub fn launch_tail(&mut self) -> Option<Chunk> {
        if self.tail_flying.is_some() || !self.flying.is_empty() {
            return None;
        }
        let chunk: Chunk = self.tail.take()?.into();
        self.tail_flying = Some(chunk.clone());
        Some(chunk)
    }

    /// The appended bytes in flight were answered. `end`: behind those that landed, and how many
    /// of them did. The others are sent again, before those that were appended later.
    pub fn land_tail(&mut self, end: u64, count: usize) {
        let Some(flew) = self.tail_flying.take() else { return };
        let rest = flew.data.slice(count..);
        let later = self.tail.take();
        if rest.is_empty() && later.is_none() {
            return;
        }
        let first = if rest.is_empty() { self.clock } else { flew.first };
        let first = later.as_ref().map_or(first, |later| later.first.min(first));
        let mut bytes = BytesMut::from(&rest[..]);
        bytes.extend(later.iter().flat_map(|later| &later.bytes[..]));
        self.tail = Some(Tail { start: end, bytes, first });
    }

    /// Takes the next chunk to send into `flying`. `all`: also one that is not full.
    pub fn launch(&mut self, all: bool) -> Option<Chunk> {
        if self.tail.is_some() || self.tail_flying.is_some() {
            return None;
        }
        let chunk = self.dirty.take(&self.flying, !all)?;
        debug_assert!(
            !self.flying.iter().any(|flight| flight.overlaps(chunk.offset, chunk.end())),
            "DU-4: chunks in flight never overlap"
        );
        self.flying.push(chunk.clone());
        Some(chunk)
    }

    /// The journal entry with this number has landed.
    pub fn unseal(&mut self, number: u64) {
        self.sealed.retain(|(sealed, _)| *sealed != number);
    }

    pub fn land(&mut self, chunk: &Chunk) {
        let flew = self.flying.len();
        self.flying.retain(|flight| flight.offset != chunk.offset);
        assert!(self.flying.len() + 1 == flew, "DU-4: a chunk lands once, and it was in flight");
    }

    /// Puts bytes that were at the server, or in flight, below all bytes here, to be sent again.
    pub fn send_older(&mut self, chunks: &[Chunk]) {
        let mut older = Extents::default();
        chunks.iter().for_each(|chunk| older.fill(chunk));
        for (_, sealed) in &self.sealed {
            older.carve(sealed.offset, sealed.end());
        }
        self.send_again(&older.take_all());
    }

    /// Queues bytes to be sent (again), except where newer ones are dirty or in flight.
    pub fn send_again(&mut self, chunks: &[Chunk]) {
        let mut older = Extents::default();
        chunks.iter().for_each(|chunk| older.fill(chunk));
        for flight in &self.flying {
            older.carve(flight.offset, flight.end());
        }
        for chunk in older.take_all() {
            self.dirty.fill(&chunk);
        }
        self.urgent = self.clock;
    }

    /// Ends the records of writes that are at the server, or failed.
    fn trim_written(&mut self) {
        if self.written.is_empty() {
            return;
        }
        let chunks = self.flying.iter().chain(self.sealed.iter().map(|(_, chunk)| chunk));
        let oldest = chunks.map(|chunk| chunk.first).chain(self.dirty.oldest()).min();
        let is_over = |clock: u64| oldest.is_none_or(|oldest| clock < oldest);
        while self.written.front().is_some_and(|(clock, _)| is_over(*clock)) {
            self.written.pop_front();
        }
    }

    /// The bytes that wait to be sent are worth nothing any more.
    pub fn drop_unsent(&mut self) {
        self.tail = None;
        drop(self.dirty.take_all());
    }

    pub fn fail(&mut self, error: Error) {
        if let Some(pinned) = self.passed.as_ref().and_then(|passed| passed.pinned.as_ref()) {
            // The bytes are in the body and will never be at the server.
            pinned.doubt();
        }
        self.errors += 1;
        self.error = Some(error);
    }

    /// A lock of another owner that conflicts with `wanted`.
    pub fn conflict(&self, wanted: &Granted) -> Option<Granted> {
        let shared =
            |lock: &Granted| lock.mode == LockMode::Shared && wanted.mode == LockMode::Shared;
        let other = |lock: &Granted| lock.owner != wanted.owner && lock.family == wanted.family;
        self.locks
            .iter()
            .copied()
            .find(|lock| other(lock) && !shared(lock) && lock.range.overlaps(wanted.range))
    }

    /// Sets how near the end of the locks is that `which` chooses.
    pub fn ends(&mut self, end: End, which: impl Fn(&Granted) -> bool) {
        self.locks.iter_mut().filter(|lock| which(lock)).for_each(|lock| lock.end = end);
    }

    /// The server granted a lock: it replaces the owner's locks in its range.
    pub fn granted(&mut self, lock: Granted) {
        self.ungranted(lock.owner, lock.family, lock.range);
        self.locks.push(lock);
    }

    /// The client begins to release the owner's locks in the range. Parts outside stay as they are.
    pub fn releases(&mut self, owner: LockOwner, family: LockFamily, range: ByteRange) {
        let inside = self.cut_out(owner, family, range);
        self.locks.extend(inside.into_iter().map(|lock| Granted { end: End::Now, ..lock }));
    }

    /// Removes the owner's locks in the range; parts outside stay.
    pub fn ungranted(&mut self, owner: LockOwner, family: LockFamily, range: ByteRange) {
        self.cut_out(owner, family, range);
    }

    /// Takes the parts inside the range out of the owner's locks.
    fn cut_out(&mut self, owner: LockOwner, family: LockFamily, range: ByteRange) -> Vec<Granted> {
        let (hit, mut rest): (Vec<Granted>, Vec<Granted>) =
            self.locks.drain(..).partition(|lock| {
                lock.owner == owner && lock.family == family && lock.range.overlaps(range)
            });
        let mut inside = Vec::new();
        for lock in hit {
            let part = |start, end| Granted { range: ByteRange { start, end }, ..lock };
            let (start, end) = (lock.range.start, lock.range.end);
            if start < range.start {
                rest.push(part(start, range.start - 1));
            }
            if end > range.end {
                rest.push(part(range.end + 1, end));
            }
            inside.push(part(start.max(range.start), end.min(range.end)));
        }
        self.locks = rest;
        inside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(start: u64, end: u64) -> Granted {
        let range = ByteRange { start, end };
        let (owner, family, mode) = (LockOwner(1), LockFamily::Posix, LockMode::Exclusive);
        Granted { owner, pid: 9, family, range, mode, handle: OpenHandle(1), end: End::Far }
    }

    #[test]
    fn an_unlock_in_the_middle_leaves_both_sides() {
        let mut data = Data::default();
        data.granted(lock(0, 99));
        data.granted(Granted { owner: LockOwner(2), ..lock(200, u64::MAX) });
        data.ungranted(LockOwner(1), LockFamily::Posix, ByteRange { start: 10, end: 19 });
        data.ungranted(LockOwner(1), LockFamily::Flock, ByteRange::ALL);
        let mut ranges: Vec<_> =
            data.locks.iter().map(|lock| (lock.range.start, lock.range.end)).collect();
        ranges.sort_unstable();
        assert_eq!(ranges, [(0, 9), (20, 99), (200, u64::MAX)]);
        data.ungranted(LockOwner(1), LockFamily::Posix, ByteRange::ALL);
        assert_eq!(data.locks.len(), 1);
    }

    #[test]
    fn the_sides_of_a_part_that_is_being_released_are_not() {
        let mut data = Data::default();
        data.granted(lock(0, 99));
        data.releases(LockOwner(1), LockFamily::Posix, ByteRange { start: 10, end: 19 });
        let mut parts: Vec<_> =
            data.locks.iter().map(|lock| (lock.range.start, lock.range.end, lock.end)).collect();
        parts.sort_unstable_by_key(|part| part.0);
        assert_eq!(parts, [(0, 9, End::Far), (10, 19, End::Now), (20, 99, End::Far)]);
        data.ungranted(LockOwner(1), LockFamily::Posix, ByteRange { start: 10, end: 19 });
        assert!(data.locks.iter().all(|lock| lock.end == End::Far));
    }

    #[test]
    fn what_the_server_lost_never_replaces_what_is_sealed() {
        let mut data = Data { clock: 5, ..Data::default() };
        data.sealed.push((7, Chunk { offset: 1, data: Bytes::from_static(b"new"), first: 4 }));
        data.send_older(&[Chunk { offset: 0, data: Bytes::from_static(b"012345"), first: 1 }]);
        let found: Vec<_> = data.dirty.within(0, 100);
        let text: Vec<_> = found.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
        assert_eq!(text, [(0, &b"0"[..]), (4, b"45")]);
    }

    #[test]
    fn du4_resent_bytes_never_replace_newer_ones() {
        let mut data = Data { clock: 5, ..Data::default() };
        data.dirty.write(0, Bytes::from_static(b"new"), 5);
        data.flying.push(Chunk { offset: 6, data: Bytes::from_static(b"fly"), first: 4 });
        data.send_again(&[Chunk {
            offset: 0,
            data: Bytes::from_static(b"0123456789ab"),
            first: 1,
        }]);
        let found: Vec<_> = data.dirty.within(0, 100);
        let text: Vec<_> = found.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
        assert_eq!(text, [(0, &b"new"[..]), (3, b"345"), (9, b"9ab")]);
        assert!(data.holds(1));
    }
}
