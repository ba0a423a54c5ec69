//! Memory that outlives this process: a file in memory (`memfd`), mapped and accessed by words.
//!
//! Every access is one of atomic words, so any thread may make any access at any time; whoever
//! shares a range decides what its words mean. A process that is killed leaves each word as it last
//! stored it, in the order of its `Release` stores.

use std::ffi::c_void;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, fstat, ftruncate, memfd_create};
use rustix::io;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Bytes of a word.
pub const WORD: usize = 8;

/// A file in memory, mapped whole. Its pages take memory from the first access on.
#[derive(Debug)]
pub struct SharedMemory {
    file: OwnedFd,
    start: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, and the kernel lets any thread use it.
unsafe impl Send for SharedMemory {}
// SAFETY: all accesses are of atomic words.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// A new file of `bytes` zero bytes, a multiple of the word's. It has no name.
    ///
    /// # Errors
    /// The kernel's, such as `ENOMEM` for more than the address space has.
    pub fn create(name: &str, bytes: usize) -> io::Result<Self> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC)?;
        ftruncate(&file, bytes as u64)?;
        Self::open(file)
    }

    /// The file that another process made.
    ///
    /// # Errors
    /// `EINVAL` if its length is 0 or no multiple of the word's; the kernel's.
    pub fn open(file: OwnedFd) -> io::Result<Self> {
        let bytes = usize::try_from(fstat(&file)?.st_size).map_err(|_| io::Errno::OVERFLOW)?;
        if bytes == 0 || !bytes.is_multiple_of(WORD) {
            return Err(io::Errno::INVAL);
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses the address, so no memory that is in use is touched.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, &file, 0) }?;
        let start = NonNull::new(start).ok_or(io::Errno::NOMEM)?;
        Ok(SharedMemory { file, start, bytes })
    }

    /// The file, for another process.
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Always false: an empty file cannot be mapped.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The word at byte `offset`.
    ///
    /// # Panics
    /// If the word is not in the mapping, or `offset` is no multiple of the word's bytes.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        let inside = offset.checked_add(WORD).is_some_and(|end| end <= self.bytes);
        assert!(inside && offset.is_multiple_of(WORD), "no word at {offset} of {}", self.bytes);
        // SAFETY: the word lies in the mapping, which lives as long as `self`, and is aligned since
        // the mapping begins with a page. All accesses to the mapping are of atomic words.
        unsafe { &*self.start.as_ptr().cast::<u8>().add(offset).cast::<AtomicU64>() }
    }

    /// Copies `from` to byte `offset`, in words: up to seven bytes behind it become 0.
    ///
    /// # Panics
    /// As [`Self::word`].
    pub fn write(&self, offset: usize, from: &[u8]) {
        let words = self.words(offset, from.len().div_ceil(WORD));
        let (whole, rest) = from.as_chunks::<WORD>();
        for (word, bytes) in words.iter().zip(whole) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        if let Some(last) = words.get(whole.len()) {
            let mut word = [0; WORD];
            word[..rest.len()].copy_from_slice(rest);
            last.store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
    }

    /// Copies the bytes at byte `offset` into `into`.
    ///
    /// # Panics
    /// As [`Self::word`].
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        let words = self.words(offset, into.len().div_ceil(WORD));
        for (word, bytes) in words.iter().zip(into.chunks_mut(WORD)) {
            let word = word.load(Ordering::Relaxed).to_le_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
    }

    /// The `count` words from byte `offset` on: one check for all of a large copy.
    fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        let bytes = count.checked_mul(WORD);
        let end = bytes.and_then(|bytes| offset.checked_add(bytes));
        let inside = end.is_some_and(|end| end <= self.bytes);
        assert!(inside && offset.is_multiple_of(WORD), "no words at {offset} of {}", self.bytes);
        // SAFETY: the words lie in the mapping, which lives as long as `self`, and are aligned
        // since the mapping begins with a page. All accesses to the mapping are of atomic words.
        unsafe {
            let first = self.start.as_ptr().cast::<u8>().add(offset).cast::<AtomicU64>();
            std::slice::from_raw_parts(first, count)
        }
    }

    /// Gives the memory of this range back: it reads as 0 from now on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn clear(&self, offset: usize, bytes: usize) -> io::Result<()> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(self.file.as_fd(), mode, offset as u64, bytes as u64)
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: start and length are those of the mapping, which no code can use after its owner.
        let _ = unsafe { munmap(self.start.as_ptr(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_mapping_stores_another_reads() {
        let first = SharedMemory::create("test", 1 << 20).unwrap();
        let second = SharedMemory::open(first.file().try_clone().unwrap()).unwrap();
        first.write(4096, b"thirteen byte");
        let mut seen = [9; 14];
        second.read(4096, &mut seen);
        assert_eq!(&seen, b"thirteen byte\0");
        first.word(8).store(7, Ordering::Release);
        drop(first);
        assert_eq!(second.word(8).load(Ordering::Acquire), 7);
        second.clear(4096, 4096).unwrap();
        second.read(4096, &mut seen);
        assert_eq!(seen, [0; 14]);
    }

    #[test]
    fn copies_of_any_length_stay_in_their_words() {
        let memory = SharedMemory::create("test", 4096).unwrap();
        let bytes: Vec<u8> = (1..=64).collect();
        for length in 0..=bytes.len() {
            memory.write(8, &[0xff; 80]);
            memory.write(16, &bytes[..length]);
            let mut seen = [0; 88];
            memory.read(8, &mut seen);
            let end = 8 + length.next_multiple_of(WORD);
            assert_eq!(&seen[..8], &[0xff; 8]);
            assert_eq!(&seen[8..8 + length], &bytes[..length]);
            assert!(seen[8 + length..end].iter().all(|byte| *byte == 0));
            assert!(seen[end..80].iter().all(|byte| *byte == 0xff), "{length}");
        }
        memory.write(4096 - 8, &[1; 8]);
        for (offset, length) in [(4096 - 8, 9), (4096, 1), (4, 8), (usize::MAX - 7, 16)] {
            let outside = || memory.write(offset, &vec![1; length]);
            let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(outside));
            assert!(refused.is_err(), "{offset} {length}");
        }
    }

    #[test]
    #[should_panic(expected = "no word")]
    fn a_word_outside_is_refused() {
        SharedMemory::create("test", 4096).unwrap().word(4096);
    }

    #[test]
    fn a_file_without_whole_words_is_refused() {
        for bytes in [0, 4] {
            let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&file, bytes).unwrap();
            assert_eq!(SharedMemory::open(file).unwrap_err(), io::Errno::INVAL);
        }
    }
}
