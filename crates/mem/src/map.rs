//! A file mapped into memory, for programs that measure or test `mmap`.
//!
//! The map returns no reference into the mapping, since another process may change the file at any
//! time: it copies bytes in and out, and refuses a range outside the mapping. One case it cannot
//! prevent: touching a page past the end of a file that was cut meanwhile raises `SIGBUS`, which
//! ends the process and harms nothing else.

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::io;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

/// A shared mapping of the first bytes of a file.
#[derive(Debug)]
pub struct Map {
    start: NonNull<c_void>,
    bytes: usize,
    writable: bool,
}

// SAFETY: the mapping belongs to this value alone, and the kernel lets any thread use it.
unsafe impl Send for Map {}
// SAFETY: methods with `&self` only read the mapping; `write` needs `&mut self`.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `bytes` of `file`, shared with every process that has it open.
    ///
    /// # Errors
    /// `EINVAL` for 0 bytes, `EACCES` if `file` is not open for this access, or the file system's.
    pub fn new(file: impl AsFd, bytes: usize, writable: bool) -> io::Result<Map> {
        let protection =
            if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: the kernel chooses the address, so no memory that is in use is touched.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0) }?;
        let start = NonNull::new(start).ok_or(io::Errno::NOMEM)?;
        Ok(Map { start, bytes, writable })
    }

    /// Bytes mapped.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Always false: an empty range cannot be mapped.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Copies the bytes at `offset` into `into`.
    ///
    /// # Panics
    /// If the range is not in the mapping.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        // SAFETY: the range lies in the mapping, which is readable as long as `self` lives; `into`
        // is our own memory.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.start.as_ptr().cast::<u8>().add(offset),
                into.as_mut_ptr(),
                into.len(),
            )
        }
    }

    /// Copies `from` to `offset`.
    ///
    /// # Panics
    /// If the range is not in the mapping, or the mapping is not writable.
    pub fn write(&mut self, offset: usize, from: &[u8]) {
        assert!(self.writable, "the mapping is read-only");
        self.check(offset, from.len());
        // SAFETY: the range lies in the mapping, which is writable as long as `self` lives; `from`
        // is our own memory.
        unsafe {
            std::ptr::copy_nonoverlapping(
                from.as_ptr(),
                self.start.as_ptr().cast::<u8>().add(offset),
                from.len(),
            )
        }
    }

    /// Waits until written bytes are in the file.
    ///
    /// # Errors
    /// The file system's: a full disk or a lost server causes an error here.
    pub fn flush(&self) -> io::Result<()> {
        // SAFETY: start and length are those of the mapping.
        unsafe { msync(self.start.as_ptr(), self.bytes, MsyncFlags::SYNC) }
    }

    fn check(&self, offset: usize, bytes: usize) {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(inside, "{bytes} bytes at {offset} are not in a mapping of {}", self.bytes);
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: start and length are those of the mapping, which no code can use after its owner.
        let _ = unsafe { munmap(self.start.as_ptr(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, SeekFrom, Write};

    use super::*;

    fn file(name: &str, content: &[u8]) -> std::fs::File {
        let path = std::env::temp_dir().join(format!("rialto-map-{}-{name}", std::process::id()));
        let mut file =
            std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file.write_all(content).unwrap();
        file
    }

    #[test]
    fn bytes_written_through_the_map_reach_the_file() {
        let mut file = file("rw", &[7; 10_000]);
        let mut map = Map::new(&file, 10_000, true).unwrap();
        map.write(4090, b"across a page");
        map.flush().unwrap();
        let mut seen = [0; 13];
        file.seek(SeekFrom::Start(4090)).unwrap();
        file.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"across a page");
        map.read(9_999, &mut seen[..1]);
        assert_eq!(seen[0], 7);
    }

    #[test]
    #[should_panic(expected = "not in a mapping")]
    fn a_range_outside_is_refused() {
        Map::new(file("out", &[1; 100]), 100, false).unwrap().read(95, &mut [0; 6]);
    }

    #[test]
    #[should_panic(expected = "read-only")]
    fn a_read_only_map_is_not_written() {
        Map::new(file("ro", &[1; 100]), 100, false).unwrap().write(0, b"x");
    }

    #[test]
    fn nothing_cannot_be_mapped() {
        assert_eq!(Map::new(file("empty", b""), 0, false).unwrap_err(), io::Errno::INVAL);
    }
}
