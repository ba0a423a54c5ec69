//! Buffers in memory that this process shares with a server.
//!
//! An [`Arena`] cuts its memory into [`Buffer`]s that never overlap. The owner of a buffer has its
//! bytes to itself: it lends them to the server by moving the buffer into an operation, and gets
//! them back when that is over. A server that writes later breaks the protocol, as one that sends
//! wrong data does; the process then sees wrong bytes, and nothing worse.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io;

use crate::shared::SharedMemory;

/// Buffers begin at multiples of this: no two share a cache line, and large copies are aligned.
const ALIGNMENT: usize = 64;

/// See the head of the file.
pub struct Arena {
    memory: SharedMemory,
    /// Free ranges, by their begin; no two touch.
    free: Mutex<BTreeMap<usize, usize>>,
}

/// Bytes of an [`Arena`], which no other buffer has.
pub struct Buffer {
    arena: Arc<Arena>,
    /// The part that the arena gave.
    range: Range<usize>,
    /// How much of it was asked for.
    bytes: usize,
}

impl Arena {
    /// An arena in new memory of at least `bytes` bytes.
    ///
    /// # Errors
    /// The kernel's, such as `ENOMEM`.
    pub fn create(name: &str, bytes: usize) -> io::Result<Arc<Arena>> {
        let bytes = bytes.max(1).checked_next_multiple_of(4096).ok_or(io::Errno::NOMEM)?;
        let memory = SharedMemory::create_sealed(name, bytes)?;
        Ok(Arc::new(Arena { memory, free: Mutex::new(BTreeMap::from([(0, bytes)])) }))
    }

    /// The memory, to share it.
    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// A buffer of `bytes` bytes with any content; `None` if no free range is so long.
    pub fn buffer(self: &Arc<Self>, bytes: usize) -> Option<Buffer> {
        let wanted = bytes.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let mut free = self.free();
        let (start, end) = free
            .iter()
            .map(|(start, end)| (*start, *end))
            .find(|(start, end)| end - start >= wanted)?;
        free.remove(&start);
        if start + wanted < end {
            free.insert(start + wanted, end);
        }
        drop(free);
        Some(Buffer { arena: Arc::clone(self), range: start..start + wanted, bytes })
    }

    fn give_back(&self, range: &Range<usize>) {
        let mut free = self.free();
        let (mut start, mut end) = (range.start, range.end);
        if let Some(behind) = free.remove(&end) {
            end = behind;
        }
        let before = free.range(..start).next_back().map(|(start, end)| (*start, *end));
        if let Some((first, last)) = before
            && last == start
        {
            free.remove(&first);
            start = first;
        }
        free.insert(start, end);
    }

    fn free(&self) -> std::sync::MutexGuard<'_, BTreeMap<usize, usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("bytes", &self.memory.len()).finish_non_exhaustive()
    }
}

impl Buffer {
    /// Where it begins in the arena's memory.
    pub fn offset(&self) -> usize {
        self.range.start
    }

    /// The arena that it is of.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Puts bytes into it that came instead of the server's own access, as many as fit. The owner
    /// looks at them after that.
    pub fn fill_from(&self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(self.range.len())];
        self.arena.memory.put(self.range.start, bytes);
    }

    /// Never gives its memory back: the server may still access it.
    pub fn abandon(self) {
        std::mem::forget(self);
    }

    /// Makes it shorter. Its memory stays its own.
    pub fn truncate(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }

    /// Makes it as long as it was, or shorter.
    pub fn resize(&mut self, bytes: usize) {
        self.bytes = bytes.min(self.range.len());
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let start = self.arena.memory.address().cast::<u8>();
        // SAFETY: the range lies in the arena's memory, which lives as long as the buffer. No other
        // buffer has it, and the server has no operation on it, since that would own the buffer.
        unsafe { std::slice::from_raw_parts(start.add(self.range.start), self.bytes) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let start = self.arena.memory.address().cast::<u8>();
        // SAFETY: as above, and the buffer is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(start.add(self.range.start), self.bytes) }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.arena.give_back(&self.range);
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("range", &self.range).field("bytes", &self.bytes).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_do_not_overlap_and_come_back() {
        let arena = Arena::create("test", 4096).unwrap();
        let mut buffers: Vec<Buffer> = (0..64).map(|_| arena.buffer(64).unwrap()).collect();
        assert!(arena.buffer(1).is_none(), "all is given out");
        for (at, buffer) in buffers.iter_mut().enumerate() {
            buffer.fill(at as u8);
        }
        assert!(buffers.iter().enumerate().all(|(at, own)| own.iter().all(|it| *it == at as u8)));
        // In an order that joins ranges before, behind, and on both sides.
        for at in [5, 3, 4, 0, 63, 62] {
            drop(std::mem::replace(
                &mut buffers[at],
                Arena::create("t", 1).unwrap().buffer(1).unwrap(),
            ));
        }
        assert_eq!(arena.buffer(3 * 64).unwrap().offset(), 3 * 64);
        drop(buffers);
        assert_eq!(arena.buffer(4096).unwrap().len(), 4096, "all ranges were joined");
    }

    #[test]
    fn a_buffer_of_any_length_is_the_servers_at_its_offset() {
        let arena = Arena::create("test", 8192).unwrap();
        let _first = arena.buffer(100).unwrap();
        let mut second = arena.buffer(11).unwrap();
        arena.memory().put(second.offset(), b"from server");
        assert_eq!(&*second, b"from server");
        second.truncate(4);
        assert_eq!(second.as_ref(), b"from");
        second.resize(1000);
        assert_eq!(second.len(), 64, "no longer than its memory");
        assert!(arena.buffer(usize::MAX).is_none());
        assert!(arena.buffer(8193).is_none());
    }
}
