//! The transport of requests from the kernel and of replies to it.
//!
//! A request must be answered where it came from: its [`Requester`]. A [`Channel`] is one end of
//! the kernel's queue behind `/dev/fuse`: [`Device`], one descriptor each, cloned as often as there
//! are readers. Requests by io_uring have requesters of their own (`rings`), and still need the
//! device for what the kernel sends no other way.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi;

/// How a wait for a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The request is in the buffer.
    Request,
    /// The file system is unmounted, or its connection was aborted.
    End,
}

/// The origin of a request, which takes its reply.
pub trait Requester: Send + Sync {
    /// Answers request `unique` with success and `parts`, or with an error and no parts.
    ///
    /// # Errors
    /// `ENOENT` if the request was cancelled meanwhile.
    fn reply(&self, unique: u64, result: Result<&[IoSlice<'_>], Errno>) -> Result<(), Errno>;
}

/// One end of the kernel's queue.
pub trait Channel: Requester {
    /// Waits for the next request; replaces what is in `into`, whose capacity must be that of
    /// [`buffer`].
    ///
    /// # Errors
    /// The kernel's error if it is neither a request nor the end.
    fn receive(&self, into: &mut Vec<u8>) -> Result<Received, Errno>;

    /// The descriptor that is readable when a request waits for [`Self::receive_now`]. From then on
    /// [`Self::receive`] does not wait, and must not be used.
    ///
    /// # Errors
    /// The kernel's refusal; `ENOSYS` if requests come without a descriptor.
    fn begin_polling(&self) -> Result<BorrowedFd<'_>, Errno> {
        Err(Errno::NOSYS)
    }

    /// As [`Self::receive`], without waiting; `None` if no request is there.
    ///
    /// # Errors
    /// As [`Self::receive`].
    fn receive_now(&self, into: &mut Vec<u8>) -> Result<Option<Received>, Errno> {
        self.receive(into).map(Some)
    }

    /// Sends the kernel a notification.
    ///
    /// # Errors
    /// `ENOENT` if the kernel does not know the node.
    fn notify(&self, code: i32, parts: &[IoSlice<'_>]) -> Result<(), Errno>;

    /// Registers a file that the kernel uses in place of one of ours; returns its number.
    ///
    /// # Errors
    /// The kernel's error; `ENOSYS` if it has no backing files.
    fn open_backing(&self, _file: BorrowedFd<'_>) -> Result<i32, Errno> {
        Err(Errno::NOSYS)
    }

    /// Removes the registration; open files keep using it.
    ///
    /// # Errors
    /// The kernel's error.
    fn close_backing(&self, _number: i32) -> Result<(), Errno> {
        Err(Errno::NOSYS)
    }

    /// One more end of the same queue.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn another(&self) -> Result<Arc<dyn Channel>, Errno>;
}

/// Parts that a reply may have: a listing or a read is one, an entry with an open two.
const PARTS_MAX: usize = 4;

/// The size of the largest request.
pub const BUFFER_BYTES: usize = abi::HEADROOM_BYTES + types::limits::PAYLOAD_BYTES_MAX;

/// A buffer that every request fits in.
pub fn buffer() -> Vec<u8> {
    Vec::with_capacity(BUFFER_BYTES)
}

/// The same, all of whose memory is there: if a thread is killed while the kernel copies a request
/// into memory that is not there yet, the request fails instead of being sent again.
pub fn present_buffer() -> Vec<u8> {
    let mut buffer = buffer();
    buffer.resize(BUFFER_BYTES, 0);
    mem::heap::lock_buffer(&mut buffer);
    buffer.clear();
    buffer
}

/// `/dev/fuse`, attached to a mount.
pub struct Device {
    fd: Arc<OwnedFd>,
    /// Other ends have this descriptor too.
    is_single: bool,
}

impl Device {
    /// The device's path.
    pub const PATH: &str = "/dev/fuse";

    /// Takes a descriptor that is, or is about to be, attached to a mount.
    pub fn new(fd: OwnedFd) -> Self {
        Device { fd: Arc::new(fd), is_single: false }
    }

    /// The same, whose requests all come through this descriptor: the kernel fails the requests
    /// that were received through one that is closed.
    pub fn single(fd: OwnedFd) -> Self {
        Device { is_single: true, ..Device::new(fd) }
    }

    /// The descriptor.
    pub fn descriptor(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    /// A fresh descriptor.
    ///
    /// # Errors
    /// `ENOENT` or `ENODEV` if the kernel has no FUSE, `EACCES` if this process may not open it.
    pub fn open() -> Result<OwnedFd, Errno> {
        rustix::fs::open(Self::PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
    }

    fn send(&self, unique: u64, error: i32, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        assert!(parts.len() <= PARTS_MAX, "a reply of {} parts", parts.len());
        let length =
            size_of::<abi::OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
        let len = u32::try_from(length).map_err(|_| Errno::OVERFLOW)?;
        let header = abi::OutHeader { len, error, unique };
        let mut all = [IoSlice::new(&[]); PARTS_MAX + 1];
        all[0] = IoSlice::new(header.as_bytes());
        all[1..=parts.len()].copy_from_slice(parts);
        rustix::io::writev(&self.fd, &all[..=parts.len()]).map(drop)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Requester for Device {
    fn reply(&self, unique: u64, result: Result<&[IoSlice<'_>], Errno>) -> Result<(), Errno> {
        match result {
            Ok(parts) => self.send(unique, 0, parts),
            Err(errno) => self.send(unique, -errno.raw_os_error(), &[]),
        }
    }
}

impl Channel for Device {
    fn receive(&self, into: &mut Vec<u8>) -> Result<Received, Errno> {
        loop {
            if let Some(received) = self.receive_now(into)? {
                return Ok(received);
            }
        }
    }

    fn begin_polling(&self) -> Result<BorrowedFd<'_>, Errno> {
        let flags = rustix::fs::fcntl_getfl(&self.fd)?;
        rustix::fs::fcntl_setfl(&self.fd, flags | OFlags::NONBLOCK)?;
        Ok(self.fd.as_fd())
    }

    fn receive_now(&self, into: &mut Vec<u8>) -> Result<Option<Received>, Errno> {
        into.clear();
        match rustix::io::read(&self.fd, rustix::buffer::spare_capacity(into)) {
            Ok(0) | Err(Errno::NODEV | Errno::CONNABORTED) => Ok(Some(Received::End)),
            Ok(_) => Ok(Some(Received::Request)),
            // The request was cancelled between the wake-up and the read, or a signal came.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => Ok(None),
            Err(other) => Err(other),
        }
    }

    fn notify(&self, code: i32, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        self.send(0, code, parts)
    }

    fn open_backing(&self, file: BorrowedFd<'_>) -> Result<i32, Errno> {
        mem::fuse::open_backing(self.fd.as_fd(), file)
    }

    fn close_backing(&self, number: i32) -> Result<(), Errno> {
        mem::fuse::close_backing(self.fd.as_fd(), number)
    }

    /// A descriptor with a queue of its own. If the device may not be opened (the helper opened the
    /// first one for us), the queue is shared, which costs some contention and nothing else.
    fn another(&self) -> Result<Arc<dyn Channel>, Errno> {
        if self.is_single {
            return Ok(Arc::new(Device { fd: Arc::clone(&self.fd), is_single: true }));
        }
        let cloned = Self::open().and_then(|fresh| {
            mem::fuse::clone_device(fresh.as_fd(), self.fd.as_fd())?;
            Ok(fresh)
        });
        let fd = match cloned {
            Ok(fresh) => fresh,
            Err(_) => rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?,
        };
        Ok(Arc::new(Device::new(fd)))
    }
}
