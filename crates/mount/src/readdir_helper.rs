//! A process that lists directories of the mount before the rest of their names is looked up.
//!
//! Model. The kernel learns names one by one, as they are looked up, or some hundred at once, with
//! statuses, when a directory is listed. A name that it did not request cannot be sent to it. So
//! when one name after the other is looked up in a directory, the *readdir helper* lists a page of
//! it, as any program could, and discards the result: the kernel knows the names of that page then,
//! and sends no more requests. A look-up that was too early for the page loses nothing.
//!
//! It is a process and not a thread: a thread that waits for the mount's own answer cannot be
//! killed, and while it waits the dying process would keep the device open whose closing ends the
//! wait.
//!
//! The kernel accepts the names of a listing under the epoch at that moment, whatever broke in
//! between (for a look-up it reads its epoch before it sends the request). So a break of a
//! directory of which the helper just got a page waits until the kernel has accepted that, and then
//! ends the names once more; the helper reports each completed order.
//!
//! It gets *orders* through its standard input, and ends with it. An order names a directory by the
//! kernel's numbers; that takes root, and without there is no helper. It has the mount open only
//! while it carries out an order, so that it prevents no unmount; and it checks that it is the
//! order's file system. One process serves a mount and all that are mounted below it: those it
//! reaches through descriptors of the ordering process.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, SeekFrom, StatxFlags};
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::mounting::{HANDLE_KIND, handle_words};

/// Bytes listed at once of the beginning of a directory, and of the rest, whose names a continuing
/// reader needs: a page of venus's.
const LISTED_BYTES: usize = 64 << 10;
const LISTED_MORE_BYTES: usize = 256 << 10;
/// Orders that are not completed.
const OPEN_MAX: usize = 64;
/// The interval at which a waiting thread checks.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// The file system to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Root {
    /// A descriptor of its root in the ordering process; [`Root::AT_PATH`]: it is at the helper's
    /// path argument.
    descriptor: i32,
    /// Its device number.
    major: u32,
    minor: u32,
    padding: u32,
}

impl Root {
    const AT_PATH: i32 = -1;

    /// The file system that is mounted at this path.
    ///
    /// # Errors
    /// The system's.
    pub fn at(path: &Path) -> Result<Root, Errno> {
        let place = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Root { descriptor: Self::AT_PATH, ..Self::of(place.as_fd())? })
    }

    /// The file system that `root` is open in, as long as it is.
    ///
    /// # Errors
    /// The system's.
    pub fn of(root: BorrowedFd<'_>) -> Result<Root, Errno> {
        let (major, minor) = device_of(root)?;
        Ok(Root { descriptor: root.as_raw_fd(), major, minor, padding: 0 })
    }

    fn path(&self, mountpoint: &Path) -> PathBuf {
        match (self.descriptor, rustix::process::getppid()) {
            (Self::AT_PATH, _) => mountpoint.to_owned(),
            (descriptor, Some(parent)) => format!("/proc/{parent}/fd/{descriptor}").into(),
            // The ordering process has ended.
            (_, None) => PathBuf::new(),
        }
    }
}

/// An order to list a page of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ListOrder {
    /// Its file system.
    pub root: Root,
    /// The directory.
    pub node: u64,
    /// The kernel stores 32 bits of it.
    pub generation: u64,
    /// The start, as the kernel counts.
    pub offset: u64,
}

/// The process, for its parent. Dropping it ends it.
pub struct ReaddirHelper {
    process: Mutex<Child>,
    /// Its standard input. The helper sends a byte for each completed order.
    socket: UnixStream,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// The directories of the orders that are not completed, the current one first.
    open: VecDeque<(Root, u64)>,
    /// A page of the first one was answered with names, which the kernel may be accepting now.
    page_sent: bool,
}

impl ReaddirHelper {
    /// Starts `command`, which must call [`run`].
    ///
    /// # Errors
    /// The system's.
    pub fn start(command: &[OsString]) -> std::io::Result<ReaddirHelper> {
        let [program, arguments @ ..] = command else {
            return Err(std::io::ErrorKind::InvalidInput.into());
        };
        let (socket, its) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        let process = Command::new(program)
            .args(arguments)
            .stdin(OwnedFd::from(its))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(ReaddirHelper { process: Mutex::new(process), socket, progress: Mutex::default() })
    }

    /// Ends the process for all users: no further order is carried out.
    pub fn end(&self) {
        let mut process = self.process.lock();
        if let Err(error) = process.kill().and_then(|()| process.wait()) {
            tracing::warn!(%error, "cannot end the readdir helper");
        }
    }

    /// Whether it will be carried out; not if there are too many already. Never waits.
    pub fn order(&self, order: &ListOrder) -> bool {
        let mut progress = self.progress.lock();
        self.read_reports(&mut progress);
        // Only as many as the socket has room for, so that they are written whole.
        let sent = progress.open.len() < OPEN_MAX
            && rustix::io::write(&self.socket, order.as_bytes()).is_ok();
        if sent {
            progress.open.push_back((order.root, order.node));
        }
        sent
    }

    /// Records that a page of this directory with names is about to be sent, perhaps to the helper.
    pub fn sends_page(&self, root: Root, node: u64) {
        let mut progress = self.progress.lock();
        self.read_reports(&mut progress);
        progress.page_sent |= progress.open.front() == Some(&(root, node));
    }

    /// Waits until the kernel has accepted the page of this directory; returns whether there was
    /// one, and whether it has.
    pub fn is_accepted(&self, root: Root, node: u64, patience: Duration) -> Option<bool> {
        let end = Instant::now() + patience;
        let is_sent = || {
            let mut progress = self.progress.lock();
            self.read_reports(&mut progress);
            progress.page_sent && progress.open.front() == Some(&(root, node))
        };
        if !is_sent() {
            return None;
        }
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).ok().filter(|_| !left.is_zero());
            let Some(left) = left else { return Some(false) };
            // Another thread may read the helper's byte first, so this checks now and then.
            let _ = poll(
                &mut [PollFd::new(&self.socket, PollFlags::IN)],
                Some(&left.min(POLL_INTERVAL)),
            );
            if !is_sent() {
                return Some(true);
            }
        }
    }

    /// Reads the helper's reports.
    fn read_reports(&self, progress: &mut Progress) {
        if progress.open.is_empty() {
            return;
        }
        let mut bytes = [0; OPEN_MAX];
        match rustix::io::read(&self.socket, &mut bytes) {
            // It ended: the kernel accepts nothing more.
            Ok(0) => *progress = Progress::default(),
            Ok(count) => {
                progress.open.drain(..count.min(progress.open.len()));
                progress.page_sent = false;
            }
            Err(_) => {}
        }
    }
}

impl Drop for ReaddirHelper {
    fn drop(&mut self) {
        self.end();
    }
}

/// The helper's main function: carries out orders until there are no more.
///
/// # Errors
/// If the socket fails.
pub fn run(mountpoint: &Path) -> std::io::Result<()> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    let mut orders = File::from(socket.try_clone()?);
    let mut space = Vec::with_capacity(LISTED_MORE_BYTES);
    let mut bytes = [0; size_of::<ListOrder>()];
    while orders.read_exact(&mut bytes).is_ok() {
        let Ok(order) = ListOrder::read_from_bytes(&bytes) else { break };
        // The directory is gone, or another mount is there: nothing to list.
        let _ = list(mountpoint, order, &mut space);
        rustix::io::write(&socket, &[0])?;
    }
    Ok(())
}

fn device_of(file: BorrowedFd<'_>) -> Result<(u32, u32), Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(file, "", flags, StatxFlags::empty())?;
    Ok((found.stx_dev_major, found.stx_dev_minor))
}

fn list(mountpoint: &Path, order: ListOrder, space: &mut Vec<u8>) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(order.root.path(mountpoint), flags, Mode::empty())?;
    if device_of(root.as_fd())? != (order.root.major, order.root.minor) {
        return Err(Errno::XDEV);
    }
    let words = handle_words(order.node, order.generation);
    let dir = mem::handle::open_directory(root.as_fd(), HANDLE_KIND, words)?;
    rustix::fs::seek(&dir, SeekFrom::Start(order.offset))?;
    // The first entry comes with all the others of its page.
    let bytes = if order.offset == 0 { LISTED_BYTES } else { LISTED_MORE_BYTES };
    RawDir::new(&dir, &mut space.spare_capacity_mut()[..bytes]).next().transpose().map(drop)
}
