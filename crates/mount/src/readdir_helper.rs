//! A process that lists directories of the mount before the rest of their names is looked up.
//!
//! Model. The kernel takes in names one by one, as they are looked up, or some hundred at once,
//! with statuses, when a directory is listed. Nobody can hand it a name that it did not ask for. So
//! when one name after the other is looked up in a directory, the *forerunner* lists a page of it,
//! as any program could, and throws that away: the kernel knows the names of that page then, and
//! asks no more. Who was too late for the page loses nothing.
//!
//! It is a process and no thread of ours: a thread that waits for the mount's own answer cannot be
//! killed, and while it waits the dying process would keep open the very device whose closing ends
//! the wait.
//!
//! The kernel takes the names of a listing in as if they were answered when it does so, whatever
//! broke in between (it reads its epoch then, and not, as for a look-up, before it asks). So a
//! break of a directory of which the forerunner was just given a page waits until that is taken in,
//! and then ends the names once more; the forerunner says when it is through with an order.
//!
//! It gets *orders* through its standard input, and ends with it. An order names a directory by the
//! kernel's numbers; that takes root, and without there is no forerunner. The mount is open only
//! while an order is carried out, so that it does not keep anybody from unmounting; and it is the
//! file system that the order is for, or nothing. One process serves a mount and all that are
//! mounted below it: those it reaches through descriptors of the process that orders.

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

/// What is listed at once of the beginning of a directory, and of the rest, whose names are wanted
/// by who goes on: a page of venus's.
const LISTED_BYTES: usize = 64 << 10;
const LISTED_MORE_BYTES: usize = 256 << 10;
/// Orders that are not done at once.
const OPEN_MAX: usize = 64;
/// How often who waits for it looks.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// The file system that is to be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Root {
    /// A descriptor of its root in the process that orders; [`Root::AT_PATH`]: it is where the
    /// forerunner was told to look.
    descriptor: i32,
    /// Its device.
    major: u32,
    minor: u32,
    padding: u32,
}

impl Root {
    const AT_PATH: i32 = -1;

    /// The file system that is mounted at this path.
    ///
    /// # Errors
    /// As the system says.
    pub fn at(path: &Path) -> Result<Root, Errno> {
        let place = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Root { descriptor: Self::AT_PATH, ..Self::of(place.as_fd())? })
    }

    /// The file system that `root` is open in, as long as it is.
    ///
    /// # Errors
    /// As the system says.
    pub fn of(root: BorrowedFd<'_>) -> Result<Root, Errno> {
        let (major, minor) = device_of(root)?;
        Ok(Root { descriptor: root.as_raw_fd(), major, minor, padding: 0 })
    }

    fn path(&self, mountpoint: &Path) -> PathBuf {
        match (self.descriptor, rustix::process::getppid()) {
            (Self::AT_PATH, _) => mountpoint.to_owned(),
            (descriptor, Some(parent)) => format!("/proc/{parent}/fd/{descriptor}").into(),
            // Nobody orders any more.
            (_, None) => PathBuf::new(),
        }
    }
}

/// What is to be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ListOrder {
    /// Where.
    pub root: Root,
    /// The directory.
    pub node: u64,
    /// The kernel keeps 32 bits of it.
    pub generation: u64,
    /// From where on, as the kernel counts.
    pub offset: u64,
}

/// The process, as its parent sees it. Dropping it ends it.
pub struct ReaddirHelper {
    process: Mutex<Child>,
    /// Its standard input. It says a byte for each order that is done.
    socket: UnixStream,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// The directories of the orders that are not done, the first of them under way.
    open: VecDeque<(Root, u64)>,
    /// A page of the first one was answered with names, which the kernel may be taking in now.
    given: bool,
}

impl ReaddirHelper {
    /// Starts `command`, which is to call [`run`].
    ///
    /// # Errors
    /// As the system says.
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

    /// Ends the process, whoever else would give it orders: none is carried out any more.
    pub fn end(&self) {
        let mut process = self.process.lock();
        if let Err(error) = process.kill().and_then(|()| process.wait()) {
            tracing::warn!(%error, "the forerunner does not end");
        }
    }

    /// Whether it will be carried out; not if there are too many already. Never waits.
    pub fn order(&self, order: &ListOrder) -> bool {
        let mut progress = self.progress.lock();
        self.hear(&mut progress);
        // As many as that have room in the socket, so that they are written whole.
        let sent = progress.open.len() < OPEN_MAX
            && rustix::io::write(&self.socket, order.as_bytes()).is_ok();
        if sent {
            progress.open.push_back((order.root, order.node));
        }
        sent
    }

    /// A page of this directory is about to be answered with names, perhaps to it.
    pub fn gives(&self, root: Root, node: u64) {
        let mut progress = self.progress.lock();
        self.hear(&mut progress);
        progress.given |= progress.open.front() == Some(&(root, node));
    }

    /// Waits until the kernel has taken in what it was given of this directory; whether there was
    /// something, and whether it has.
    pub fn taken_in(&self, root: Root, node: u64, patience: Duration) -> Option<bool> {
        let end = Instant::now() + patience;
        let is_given = || {
            let mut progress = self.progress.lock();
            self.hear(&mut progress);
            progress.given && progress.open.front() == Some(&(root, node))
        };
        if !is_given() {
            return None;
        }
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).ok().filter(|_| !left.is_zero());
            let Some(left) = left else { return Some(false) };
            // Somebody else may hear what it says first, so this looks again now and then.
            let _ = poll(
                &mut [PollFd::new(&self.socket, PollFlags::IN)],
                Some(&left.min(POLL_INTERVAL)),
            );
            if !is_given() {
                return Some(true);
            }
        }
    }

    /// Takes in what it has said since.
    fn hear(&self, progress: &mut Progress) {
        if progress.open.is_empty() {
            return;
        }
        let mut bytes = [0; OPEN_MAX];
        match rustix::io::read(&self.socket, &mut bytes) {
            // It ended: nothing is taken in any more.
            Ok(0) => *progress = Progress::default(),
            Ok(count) => {
                progress.open.drain(..count.min(progress.open.len()));
                progress.given = false;
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

/// What the process does: carries out orders until there are no more.
///
/// # Errors
/// If it cannot hear or speak any more.
pub fn run(mountpoint: &Path) -> std::io::Result<()> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    let mut orders = File::from(socket.try_clone()?);
    let mut space = Vec::with_capacity(LISTED_MORE_BYTES);
    let mut bytes = [0; size_of::<ListOrder>()];
    while orders.read_exact(&mut bytes).is_ok() {
        let Ok(order) = ListOrder::read_from_bytes(&bytes) else { break };
        // A directory that is gone, or another mount in this place: nothing to list.
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
