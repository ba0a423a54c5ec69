//! Memory that processes share: a file in memory (`memfd`), mapped and accessed by words, or copied
//! in and out.
//!
//! Accesses by words are atomic, so any thread may make any access at any time; whoever shares a
//! range decides what its words mean. A process that is killed leaves each word as it last stored
//! it, in the order of its `Release` stores. Copies of bytes promise less: another process may
//! change them meanwhile, and the copy then has any mixture of both. So no reference into the
//! memory is given out; code that checks bytes checks its copy.
//!
//! A *sealed* file can never be cut or grown. Only such files are mapped that another process made
//! and that this one does not trust: an access behind the end of a file raises `SIGBUS`.

use std::ffi::c_void;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat,
    fstatfs, ftruncate, memfd_create,
};
use rustix::io;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// Bytes of a word.
pub const WORD: usize = 8;

/// The file can never be cut or grown.
const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// `statfs` names the file system of `memfd` so.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// A file in memory, mapped whole. Its pages take memory from the first access on.
#[derive(Debug)]
pub struct SharedMemory {
    /// `None`: another process made it, and it is mapped for good.
    file: Option<OwnedFd>,
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

    /// A new sealed file, all of whose pages are there: they count as this process's memory.
    ///
    /// # Errors
    /// The kernel's, such as `ENOMEM`.
    pub fn create_sealed(name: &str, bytes: usize) -> io::Result<Self> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        fallocate(&file, FallocateFlags::empty(), 0, bytes as u64)?;
        fcntl_add_seals(&file, SIZE_SEALS | SealFlags::SEAL)?;
        let memory = Self::open(file)?;
        // Fewer misses of address translation; a kernel that has no large pages here goes without.
        // SAFETY: the advice changes no content and unmaps nothing.
        let _ = unsafe { madvise(memory.start.as_ptr(), bytes, Advice::LinuxHugepage) };
        Ok(memory)
    }

    /// The sealed file of a process that is not trusted. It is closed when it is mapped, so that
    /// such a process takes no descriptor of this one.
    ///
    /// # Errors
    /// `EINVAL` if it is no file in memory, can be cut or grown, is longer than `bytes_max`, or has
    /// no whole words; the kernel's.
    pub fn open_sealed(file: OwnedFd, bytes_max: usize) -> io::Result<Self> {
        // Others have no seals, or, of large pages, may lack memory when they are accessed.
        if fstatfs(&file)?.f_type != TMPFS_MAGIC {
            return Err(io::Errno::INVAL);
        }
        if !fcntl_get_seals(&file)?.contains(SIZE_SEALS) {
            return Err(io::Errno::INVAL);
        }
        if u64::try_from(fstat(&file)?.st_size).is_ok_and(|bytes| bytes > bytes_max as u64) {
            return Err(io::Errno::INVAL);
        }
        let mut memory = Self::open(file)?;
        memory.file = None;
        Ok(memory)
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
        Ok(SharedMemory { file: Some(file), start, bytes })
    }

    /// The file, for another process.
    ///
    /// # Panics
    /// If it was opened by [`Self::open_sealed`].
    pub fn file(&self) -> &OwnedFd {
        self.file.as_ref().expect("a process gives away only files that it trusts")
    }

    /// Where it is mapped.
    pub(crate) fn address(&self) -> *mut c_void {
        self.start.as_ptr()
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

    /// Copies `from` to byte `offset`.
    ///
    /// # Panics
    /// If the range is not in the mapping.
    pub fn put(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        // SAFETY: the range lies in the mapping, which is writable as long as `self` lives; no
        // reference into it exists but those to atomic words.
        unsafe {
            std::ptr::copy_nonoverlapping(
                from.as_ptr(),
                self.start.as_ptr().cast::<u8>().add(offset),
                from.len(),
            )
        }
    }

    /// Copies the bytes at byte `offset` into `into`.
    ///
    /// # Panics
    /// If the range is not in the mapping.
    pub fn get(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        // SAFETY: the range lies in the mapping, which is readable as long as `self` lives; `into`
        // is this process's own memory.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.start.as_ptr().cast::<u8>().add(offset),
                into.as_mut_ptr(),
                into.len(),
            )
        }
    }

    fn check(&self, offset: usize, bytes: usize) {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(inside, "{bytes} bytes at {offset} are not in memory of {}", self.bytes);
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
    ///
    /// # Panics
    /// As [`Self::file`].
    pub fn clear(&self, offset: usize, bytes: usize) -> io::Result<()> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(self.file().as_fd(), mode, offset as u64, bytes as u64)
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
    fn only_a_sealed_file_in_memory_is_taken_from_others() {
        let sealed = SharedMemory::create_sealed("test", 8192).unwrap();
        sealed.put(5, b"bytes");
        let theirs = || sealed.file().try_clone().unwrap();
        let seen = SharedMemory::open_sealed(theirs(), 8192).unwrap();
        let mut bytes = [0; 5];
        seen.get(5, &mut bytes);
        assert_eq!(&bytes, b"bytes");
        assert_eq!(SharedMemory::open_sealed(theirs(), 8184).unwrap_err(), io::Errno::INVAL);
        for length in [0, 4096, 1 << 20] {
            assert!(ftruncate(sealed.file(), length).is_err(), "its length is final");
        }
        let unsealed = SharedMemory::create("test", 8192).unwrap();
        let unsealed = unsealed.file().try_clone().unwrap();
        assert_eq!(SharedMemory::open_sealed(unsealed, 8192).unwrap_err(), io::Errno::INVAL);
        let device = std::fs::File::options().read(true).write(true).open("/dev/zero").unwrap();
        assert!(SharedMemory::open_sealed(device.into(), 8192).is_err());
        let half = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&half, 8192).unwrap();
        fcntl_add_seals(&half, SealFlags::GROW).unwrap();
        assert_eq!(SharedMemory::open_sealed(half, 8192).unwrap_err(), io::Errno::INVAL);
    }

    #[test]
    #[should_panic(expected = "are not in memory")]
    fn bytes_outside_are_refused() {
        SharedMemory::create_sealed("test", 4096).unwrap().put(4090, b"too long");
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
