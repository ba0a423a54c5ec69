//! FUSE over io_uring: memory for the kernel's requests, and the rings that carry them.
//!
//! Model. A [`RingEntry`] is room for one request and its reply. It has one of two owners. After it
//! is passed to a [`Ring`] (registered, or committed with a reply in it) it belongs to the kernel,
//! which writes the next request into it at any time. The ring returns it, with a request or
//! because the connection ended, and from then on the kernel neither reads nor writes it until it
//! is passed again. So the holder of a `RingEntry` may use its memory, and a ring that is dropped
//! while the kernel still has entries leaks their memory rather than freeing it.
//!
//! An entry belongs to one of the connection's queues (one per processor) for ever, and to no ring:
//! it may be committed through any. Source: `Documentation/filesystems/fuse-io-uring.rst`,
//! `linux/fuse.h` (7.42), `fs/fuse/dev_uring.c`.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes of the request's header, and of the operation's own.
pub const HEADER_BYTES: usize = 128;

/// `struct fuse_uring_req_header`.
#[repr(C)]
struct Header {
    /// The request's header; before a commit the reply's.
    in_out: [u8; HEADER_BYTES],
    /// The operation's fixed part.
    operation: [u8; HEADER_BYTES],
    flags: u64,
    commit_id: u64,
    payload_bytes: u32,
    padding: u32,
    reserved: u64,
}

const _: () = assert!(size_of::<Header>() == 288);

/// The header has a page of its own.
const HEAD_BYTES: usize = 4096;

/// Room for one request and its reply, on one of the connection's queues.
#[derive(Debug)]
pub struct RingEntry {
    queue: u16,
    /// [`HEAD_BYTES`], then the payload.
    start: NonNull<u8>,
    payload_bytes_max: usize,
    /// The kernel sets it with the request in the entry.
    commit_id: u64,
}

// SAFETY: the mapping belongs to this value alone, and the kernel lets any thread use it.
unsafe impl Send for RingEntry {}

impl RingEntry {
    /// An entry for `queue`, with a payload of up to `payload_bytes_max`. The system provides
    /// memory only when it is touched.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(queue: u16, payload_bytes_max: usize) -> rustix::io::Result<RingEntry> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses the address, so the call touches no memory that is in use.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), HEAD_BYTES + payload_bytes_max, protection, flags)
        }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(RingEntry { queue, start, payload_bytes_max, commit_id: 0 })
    }

    /// The entry's queue.
    pub fn queue(&self) -> u16 {
        self.queue
    }

    fn head(&self) -> &Header {
        // SAFETY: the mapping starts with room for a `Header`, is aligned to a page, zeroed at
        // first, and any bytes are a `Header` (numbers). The kernel does not write while this value
        // owns the entry; writing needs `&mut self`.
        unsafe { self.start.cast::<Header>().as_ref() }
    }

    fn head_mut(&mut self) -> &mut Header {
        // SAFETY: as in `head`, and `&mut self` is the only access.
        unsafe { self.start.cast::<Header>().as_mut() }
    }

    fn payload_start(&self) -> *mut u8 {
        // SAFETY: the mapping is longer than `HEAD_BYTES`.
        unsafe { self.start.as_ptr().add(HEAD_BYTES) }
    }

    /// The request's header, followed by zeros or bytes of earlier requests.
    pub fn header(&self) -> &[u8; HEADER_BYTES] {
        &self.head().in_out
    }

    /// The operation's fixed part; its used length depends on the operation.
    pub fn operation(&self) -> &[u8; HEADER_BYTES] {
        &self.head().operation
    }

    /// The rest of the request: names, data.
    pub fn payload(&self) -> &[u8] {
        let length = (self.head().payload_bytes as usize).min(self.payload_bytes_max);
        // SAFETY: the payload's memory is that long, initialised (the kernel zeroes fresh pages),
        // and only `&mut self` writes.
        unsafe { std::slice::from_raw_parts(self.payload_start(), length) }
    }

    /// Puts a reply in place of the request: its header, and then its parts.
    ///
    /// # Errors
    /// `EOVERFLOW` if the parts do not fit; the entry then still has the request, or a part of the
    /// reply.
    pub fn put_reply(
        &mut self,
        header: &[u8],
        parts: &[io::IoSlice<'_>],
    ) -> rustix::io::Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if header.len() > HEADER_BYTES || length > self.payload_bytes_max {
            return Err(Errno::OVERFLOW);
        }
        let mut to = self.payload_start();
        for part in parts {
            // SAFETY: all parts together fit the payload's memory, to which `&mut self` is the only
            // access. A part cannot lie in it, for it would borrow `self`.
            unsafe {
                std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
                to = to.add(part.len());
            }
        }
        let head = self.head_mut();
        head.in_out[..header.len()].copy_from_slice(header);
        head.payload_bytes = length as u32;
        Ok(())
    }

    /// Returns the payload's unused memory to the system, until it is used again.
    pub fn release_unused_memory(&mut self) {
        let used = self.payload().len().next_multiple_of(HEAD_BYTES);
        if used >= self.payload_bytes_max {
            return;
        }
        // SAFETY: the range lies in the payload and holds plain bytes: reading zeros afterwards
        // breaks nothing.
        let _ = unsafe {
            let start = self.payload_start().add(used).cast::<c_void>();
            madvise(start, self.payload_bytes_max - used, Advice::LinuxDontNeed)
        };
    }
}

impl Drop for RingEntry {
    fn drop(&mut self) {
        // SAFETY: start and length are those of the mapping, which no code can use after its owner,
        // and the kernel does not have it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), HEAD_BYTES + self.payload_bytes_max) };
    }
}

/// An event of a ring.
#[derive(Debug)]
pub enum RingEvent {
    /// The kernel put a request into the entry.
    Request(RingEntry),
    /// The kernel returned the entry: the connection ended (`ENOTCONN`), or it refused the entry.
    Returned(RingEntry, Errno),
    /// The descriptor of [`Ring::watch`] became readable; the ring watches it no more.
    Readable,
}

const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
const WATCHED: u64 = u64::MAX;

/// `struct fuse_uring_cmd_req` as the command's bytes.
fn command(queue: u16, commit_id: u64) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[8..16].copy_from_slice(&commit_id.to_ne_bytes());
    bytes[16..18].copy_from_slice(&queue.to_ne_bytes());
    bytes
}

/// Offset of `len` in a `struct io_uring_sqe`.
const SQE_LEN_AT: usize = 24;

/// Memory that the kernel is using.
struct Held {
    entry: RingEntry,
    /// Of a registration: the command's pointer target.
    _ranges: Option<Box<Ranges>>,
}

/// Where an entry's header and payload are.
struct Ranges([libc::iovec; 2]);

// SAFETY: these are addresses for the kernel; this process reads nothing through them.
unsafe impl Send for Ranges {}

/// One thread's ring: only the thread that made it can use it (the kernel refuses others with
/// `EEXIST`).
pub struct Ring {
    ring: IoUring<Entry128>,
    device: Arc<OwnedFd>,
    /// Memory that the kernel is using, by the number that its completion carries.
    inside: Vec<Option<Held>>,
    free: Vec<usize>,
    watched: Option<Arc<OwnedFd>>,
}

impl Ring {
    /// A ring to the connection behind `device`, a `/dev/fuse` descriptor joined to a mount, with
    /// room to pass `entries` at once.
    ///
    /// # Errors
    /// Those of `io_uring_setup`: `ENOSYS` or `EPERM` where it is missing or not allowed, `ENOMEM`,
    /// `EMFILE`.
    pub fn new(device: Arc<OwnedFd>, entries: u32) -> io::Result<Ring> {
        let ring = IoUring::<Entry128>::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(entries * 4)
            .build(entries)?;
        Ok(Ring { ring, device, inside: Vec::new(), free: Vec::new(), watched: None })
    }

    fn take_in(&mut self, entry: RingEntry, ranges: Option<Box<Ranges>>) -> u64 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.inside.push(None);
            self.inside.len() - 1
        });
        self.inside[slot] = Some(Held { entry, _ranges: ranges });
        slot as u64
    }

    /// Passes a new entry to the kernel with the next [`Self::submit`] or [`Self::wait`].
    ///
    /// # Errors
    /// Those of `io_uring_enter`, if room had to be made.
    pub fn register(&mut self, entry: RingEntry) -> io::Result<()> {
        // Outside the entry's own memory, which must not be touched before it is used.
        let ranges = Box::new(Ranges([
            libc::iovec { iov_base: entry.start.as_ptr().cast(), iov_len: size_of::<Header>() },
            libc::iovec {
                iov_base: entry.payload_start().cast(),
                iov_len: entry.payload_bytes_max,
            },
        ]));
        let code = opcode::UringCmd80::new(types::Fd(self.device.as_raw_fd()), REGISTER)
            .cmd(command(entry.queue, 0))
            .addr(Some(ranges.0.as_ptr() as u64));
        let mut code = code.build();
        // SAFETY: `Entry128` is the kernel's `struct io_uring_sqe` of 128 bytes (`repr(C)`), in
        // which `len` is a `u32` at that offset, aligned. The library has no way to set it for this
        // command.
        unsafe {
            std::ptr::from_mut(&mut code).cast::<u8>().add(SQE_LEN_AT).cast::<u32>().write(2)
        };
        let number = self.take_in(entry, Some(ranges));
        self.push(&code.user_data(number))
    }

    /// Passes an entry with a reply in it to the kernel with the next [`Self::submit`] or
    /// [`Self::wait`].
    ///
    /// # Errors
    /// Those of `io_uring_enter`, if room had to be made.
    pub fn commit(&mut self, entry: RingEntry) -> io::Result<()> {
        let code = opcode::UringCmd80::new(types::Fd(self.device.as_raw_fd()), COMMIT_AND_FETCH)
            .cmd(command(entry.queue, entry.commit_id))
            .build();
        let number = self.take_in(entry, None);
        self.push(&code.user_data(number))
    }

    /// Reports once when `event` becomes readable.
    ///
    /// # Errors
    /// Those of `io_uring_enter`, if room had to be made.
    pub fn watch(&mut self, event: Arc<OwnedFd>) -> io::Result<()> {
        let code = opcode::PollAdd::new(types::Fd(event.as_raw_fd()), libc::POLLIN as u32).build();
        self.watched = Some(event);
        self.push(&Entry128::from(code).user_data(WATCHED))
    }

    fn push(&mut self, code: &Entry128) -> io::Result<()> {
        if self.ring.submission().is_full() {
            self.submit()?;
        }
        // SAFETY: the command's pointer target lives until its completion: an entry's memory and
        // its ranges belong to `inside` from now on (and are leaked if the ring is dropped first),
        // a watched descriptor to `watched`, the device to `self`.
        unsafe { self.ring.submission().push(code) }.map_err(|_| io::ErrorKind::OutOfMemory.into())
    }

    /// Passes queued commands to the kernel, without waiting.
    ///
    /// # Errors
    /// Those of `io_uring_enter`.
    pub fn submit(&mut self) -> io::Result<()> {
        while !self.ring.submission().is_empty() {
            match self.ring.submit() {
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                result => return result.map(drop),
            }
        }
        Ok(())
    }

    /// Number of entries that the kernel has, or will have with the next [`Self::submit`].
    pub fn held(&self) -> usize {
        self.inside.len() - self.free.len()
    }

    /// An event that is available already, without a system call.
    pub fn poll(&mut self) -> Option<RingEvent> {
        let completed = self.ring.completion().next()?;
        Some(self.hand_back(&completed))
    }

    /// Passes queued commands to the kernel, and waits for the next event.
    ///
    /// # Errors
    /// Those of `io_uring_enter`.
    pub fn wait(&mut self) -> io::Result<RingEvent> {
        loop {
            // Queued commands go to the kernel at once even if an event is available already: a
            // reply must not wait for this thread.
            let wanted = usize::from(self.ring.completion().is_empty());
            if wanted == 1 || !self.ring.submission().is_empty() {
                match self.ring.submit_and_wait(wanted) {
                    Err(error) if error.raw_os_error() == Some(libc::EINTR) => continue,
                    result => result?,
                };
            }
            if let Some(event) = self.poll() {
                return Ok(event);
            }
        }
    }

    fn hand_back(&mut self, completed: &cqueue::Entry) -> RingEvent {
        if completed.user_data() == WATCHED {
            self.watched = None;
            return RingEvent::Readable;
        }
        let slot = completed.user_data() as usize;
        let Held { mut entry, .. } =
            self.inside[slot].take().expect("the kernel completes each command once");
        self.free.push(slot);
        if completed.result() < 0 {
            return RingEvent::Returned(entry, Errno::from_raw_os_error(-completed.result()));
        }
        entry.commit_id = entry.head().commit_id;
        RingEvent::Request(entry)
    }
}

impl Drop for Ring {
    /// The kernel may write into its entries until it has closed the ring in the background.
    fn drop(&mut self) {
        self.inside.drain(..).flatten().for_each(std::mem::forget);
    }
}
