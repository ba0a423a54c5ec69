//! Mounting and unmounting.
//!
//! Root mounts itself, attached nowhere at first. Other users need `fusermount3`, the set-uid
//! helper of every FUSE system: it opens and mounts, and passes the descriptor back over a socket.

use std::collections::HashSet;
use std::fs::File;
use std::io::{IoSliceMut, Read, Seek};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};

use crate::channel::Device;
use crate::mount_options::MountOptions;

/// The file system's type in `mount` and `df`, after the kernel's `fuse.`.
const SUBTYPE: &str = "rialto";
/// Where the administrator of this machine permits options of `fusermount3`.
const CONFIGURATION: &str = "/etc/fuse.conf";
/// A FUSE handle: the node's number in two words, and its generation. Source: the kernel's
/// `FILEID_INO64_GEN`.
pub(crate) const HANDLE_KIND: i32 = 0x81;
/// Kibibytes that the kernel reads ahead: a whole request. Its own 128 make four requests of each
/// MiB.
const READ_AHEAD_KIB: usize = types::limits::PAYLOAD_BYTES_MAX >> 10;

/// The reason why there is no mount.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// No `/dev/fuse` that can be opened.
    #[error(
        "cannot open /dev/fuse: {0}; is the kernel's fuse module loaded and the device allowed \
            here?"
    )]
    Device(Errno),
    /// `mount(2)` refused.
    #[error("cannot mount on {path}: {error}", path = .path.display())]
    Refused {
        /// The path of the mount.
        path: PathBuf,
        /// The kernel's error.
        error: Errno,
    },
    /// Without root, the helper is needed.
    #[error(
        "fusermount3 is needed to mount without root and cannot be run ({0}): install the package \
            fuse3"
    )]
    NoHelper(std::io::Error),
    /// The helper refused.
    #[error("fusermount3: {0}")]
    Helper(String),
    /// The kernel's FUSE is too old, or incompatible.
    #[error("kernel and Rialto do not agree on a FUSE version: {0}")]
    Negotiation(Errno),
    /// io_uring was required, and is not available.
    #[error(
        "the kernel does not offer FUSE over io_uring; as root: echo 1 > \
            /sys/module/fuse/parameters/enable_uring"
    )]
    NoUring,
    /// The volume cannot be had.
    #[error("cannot reach the volume: {0}")]
    Volume(#[from] venus::Error),
    /// Its threads cannot be started.
    #[error("cannot start the mount's threads: {0}")]
    Threads(std::io::Error),
}

/// The words of a FUSE handle; the kernel keeps 32 bits of the generation.
pub(crate) fn handle_words(node: u64, generation: u64) -> [u32; 3] {
    [(node >> 32) as u32, node as u32, generation as u32]
}

/// The parameters of a mount.
#[derive(Clone, Debug)]
pub struct MountTarget {
    /// An existing directory.
    pub path: PathBuf,
    /// The source that `mount` shows.
    pub source: String,
    /// Whether users other than the mounting one may use it, as mode bits allow. Without root this
    /// needs `user_allow_other` in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// The volume is read-only: the kernel refuses changes by itself (EROFS), and shows `ro`.
    pub read_only: bool,
    /// As the administrator of this machine asks for.
    pub options: MountOptions,
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a mount of ours may be open to others: root's, or if `/etc/fuse.conf` has
/// `user_allow_other`.
pub fn may_allow_others() -> bool {
    is_root() || std::fs::read_to_string(CONFIGURATION).is_ok_and(|text| lets_users(&text))
}

/// Parses it as `fusermount3` does: a line for each word, `#` begins a comment.
fn lets_users(text: &str) -> bool {
    text.lines().any(|line| line.split('#').next().unwrap_or_default().trim() == "user_allow_other")
}

/// Mounts, and returns the descriptor that the requests come from, and root's mount, which is
/// attached nowhere yet.
///
/// # Errors
/// See [`MountError`].
pub fn begin(target: &MountTarget) -> Result<(OwnedFd, Option<OwnedFd>), MountError> {
    if is_root() {
        let (device, mount) = detached(target)?;
        return Ok((device, Some(mount)));
    }
    Ok((mount_with_helper(target)?, None))
}

/// Root's mount that is attached nowhere yet: the descriptor that the requests come from, and the
/// mount.
///
/// # Errors
/// See [`MountError`].
pub fn detached(target: &MountTarget) -> Result<(OwnedFd, OwnedFd), MountError> {
    let device = Device::open().map_err(MountError::Device)?;
    let refused = |error| MountError::Refused { path: target.path.clone(), error };
    let mount = make_detached(&device, target).map_err(refused)?;
    Ok((device, mount))
}

fn make_detached(device: &OwnedFd, target: &MountTarget) -> Result<OwnedFd, Errno> {
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let numbers = [
        ("fd", device.as_raw_fd().to_string()),
        ("rootmode", "40000".to_owned()),
        ("user_id", rustix::process::getuid().as_raw().to_string()),
        ("group_id", rustix::process::getgid().as_raw().to_string()),
        ("max_read", types::limits::PAYLOAD_BYTES_MAX.to_string()),
    ];
    fsconfig_set_string(&context, "source", &*target.source)?;
    fsconfig_set_string(&context, "subtype", SUBTYPE)?;
    for (key, value) in numbers {
        fsconfig_set_string(&context, key, value)?;
    }
    fsconfig_set_flag(&context, "default_permissions")?;
    if target.allow_other {
        fsconfig_set_flag(&context, "allow_other")?;
    }
    if target.read_only {
        fsconfig_set_flag(&context, "ro")?;
    }
    for (key, value) in &target.options.labels {
        fsconfig_set_string(&context, &**key, &**value)?;
    }
    fsconfig_create(&context)?;
    let attributes = target.options.attributes(target.read_only);
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// One more mount of the same file system, attached nowhere.
///
/// # Errors
/// The kernel's.
pub fn copy(mount: BorrowedFd<'_>) -> Result<OwnedFd, MountError> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(mount, "", flags).map_err(MountError::Device)
}

/// One more mount of what is mounted at `path`, with all that is mounted in it, attached nowhere.
///
/// # Errors
/// The kernel's.
pub fn copy_at(path: &Path) -> Result<OwnedFd, MountError> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    open_tree(CWD, path, flags)
        .map_err(|error| MountError::Refused { path: path.to_owned(), error })
}

/// Attaches a detached mount to a directory. Waits for the directory's lock.
///
/// # Errors
/// The kernel's.
pub fn attach(mount: BorrowedFd<'_>, place: BorrowedFd<'_>) -> Result<(), MountError> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, "", place, "", flags).map_err(MountError::Device)
}

/// Attaches a detached mount to the directory at `path`.
///
/// # Errors
/// The kernel's.
pub fn attach_at(mount: BorrowedFd<'_>, path: &Path) -> Result<(), MountError> {
    let refused = |error| MountError::Refused { path: path.to_owned(), error };
    let place =
        rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, "", place.map_err(refused)?, "", flags).map_err(refused)
}

/// A mount, attached nowhere, of the directory `name` of a mount that is attached nowhere.
///
/// # Errors
/// The kernel's: before Linux 6.15 it does not support that.
pub fn part(mount: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, MountError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place =
        rustix::fs::openat(mount, name, flags, Mode::empty()).map_err(MountError::Device)?;
    copy(place.as_fd())
}

/// Identifies a mount: the kernel's number, and the device number of its file system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MountNumber {
    number: u64,
    /// The kernel gives the number once only, and can be asked for it.
    is_unique: bool,
    device: String,
}

/// A mount's number is unique. Source: the kernel's `STATX_MNT_ID_UNIQUE`.
const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The kernel's numbers of a mount: unique ones, or before Linux 6.8 those in `mountinfo`, which
/// are reused when the mount is gone.
///
/// # Errors
/// The kernel's.
pub fn number_of(mount: BorrowedFd<'_>) -> Result<MountNumber, MountError> {
    static ASKS: OnceLock<bool> = OnceLock::new();
    let numbered = |wanted| {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = rustix::fs::statx(mount, "", flags, wanted).map_err(MountError::Device)?;
        Ok(MountNumber {
            number: found.stx_mnt_id,
            is_unique: StatxFlags::from_bits_retain(found.stx_mask).contains(UNIQUE),
            device: format!("{}:{}", found.stx_dev_major, found.stx_dev_minor),
        })
    };
    let unique = numbered(UNIQUE)?;
    let can_ask = || unique.is_unique && mem::mounted::is_mounted(unique.number).is_ok();
    if *ASKS.get_or_init(can_ask) { Ok(unique) } else { numbered(StatxFlags::MNT_ID) }
}

/// The kernel's table of mounts, where the kernel cannot be asked for one of them. It is read again
/// only after a change: it may have thousands of lines, and each walk through a mount point looks
/// at it.
#[derive(Default)]
pub struct MountTable(Mutex<Option<KnownTable>>);

struct KnownTable {
    file: File,
    mounts: HashSet<MountNumber>,
}

impl MountTable {
    const PATH: &str = "/proc/self/mountinfo";

    /// Whether the mount is in the tree.
    pub fn has(&self, mount: &MountNumber) -> bool {
        if mount.is_unique {
            return mem::mounted::is_mounted(mount.number)
                .inspect_err(|error| tracing::error!(%error, "cannot ask for a mount"))
                .unwrap_or_default();
        }
        let mut known = self.0.lock();
        let current = known.take_if(|known| !known.is_current()).map(|known| known.file);
        if known.is_none() {
            match KnownTable::read(current) {
                Ok(table) => *known = Some(table),
                Err(error) => {
                    tracing::error!(%error, "cannot read {}", Self::PATH);
                    return false;
                }
            }
        }
        known.as_ref().is_some_and(|known| known.mounts.contains(mount))
    }
}

impl KnownTable {
    fn read(file: Option<File>) -> std::io::Result<Self> {
        let mut file = file.map_or_else(|| File::open(MountTable::PATH), Ok)?;
        let mut text = String::new();
        file.rewind()?;
        file.read_to_string(&mut text)?;
        let mounts = text.lines().filter_map(MountNumber::of_line).collect();
        Ok(KnownTable { file, mounts })
    }

    /// The kernel reports a change of the table once, as an error and as urgent data.
    fn is_current(&self) -> bool {
        let mut asked = [PollFd::new(&self.file, PollFlags::PRI)];
        matches!(poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
    }
}

impl MountNumber {
    /// The number, whether it is unique, and the device number, for a record.
    pub fn parts(&self) -> (u64, bool, &str) {
        (self.number, self.is_unique, &self.device)
    }

    /// The inverse of [`Self::parts`].
    pub fn of_parts(number: u64, is_unique: bool, device: &str) -> Self {
        MountNumber { number, is_unique, device: device.to_owned() }
    }

    /// Whether both are mounts of one file system.
    pub fn is_of_same_device(&self, other: &MountNumber) -> bool {
        self.device == other.device
    }

    /// `36 35 98:0 ...`: the mount, the one above, the device.
    fn of_line(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let number = fields.next()?.parse().ok()?;
        Some(MountNumber { number, is_unique: false, device: fields.nth(1)?.to_owned() })
    }
}

/// Threads that are in [`place_of`].
static PLACING: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// The calling thread is in [`place_of`] until this is dropped.
struct Placing(u32);

impl Placing {
    fn begin() -> Placing {
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        PLACING.lock().push(tid);
        Placing(tid)
    }
}

impl Drop for Placing {
    fn drop(&mut self) {
        PLACING.lock().retain(|tid| *tid != self.0);
    }
}

/// Whether this thread of this process is in [`place_of`]: it takes the directory for known to the
/// kernel, has other ways if it is not, and must not wait for its own mount.
pub(crate) fn is_placing(tid: u32) -> bool {
    PLACING.lock().contains(&tid)
}

/// A directory of the mount at `path`, by its node: itself, not what is mounted upon it. For the
/// mount's root this may send a GETATTR, which the caller's walk sent a moment ago too.
///
/// # Errors
/// The kernel's.
pub fn place_of(path: &Path, node: u64, generation: u64) -> Result<OwnedFd, MountError> {
    let refused = |error| MountError::Refused { path: path.to_owned(), error };
    let _placing = Placing::begin();
    // A descriptor opened with `O_PATH` is not accepted for this.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, Mode::empty()).map_err(refused)?;
    mem::handle::open_place(root.as_fd(), HANDLE_KIND, handle_words(node, generation))
        .map_err(refused)
}

/// The same by its second name: its number in the hidden directory `dir`.
///
/// # Errors
/// The kernel's.
pub fn place_in(path: &Path, dir: &str, node: u64) -> Result<OwnedFd, MountError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let path = path.join(dir).join(node.to_string());
    rustix::fs::open(&path, flags, Mode::empty())
        .map_err(|error| MountError::Refused { path, error })
}

/// Unmounts what is mounted upon a directory that [`place_of`] opened. The kernel gets there by the
/// descriptor: no name is looked up, so the calling thread waits for no request of its own mount.
///
/// # Errors
/// `EBUSY` while it is in use, `EINVAL` if nothing is mounted there.
pub fn unmount_upon(place: BorrowedFd<'_>) -> Result<(), Errno> {
    unmount_upon_with(place, UnmountFlags::empty())
}

/// The same for a mount that is in use: its users stay in it.
///
/// # Errors
/// `EINVAL` if nothing is mounted there.
pub fn detach_upon(place: BorrowedFd<'_>) -> Result<(), Errno> {
    unmount_upon_with(place, UnmountFlags::DETACH)
}

fn unmount_upon_with(place: BorrowedFd<'_>, flags: UnmountFlags) -> Result<(), Errno> {
    let link = format!("/proc/self/fd/{}", place.as_raw_fd());
    rustix::mount::unmount(link, flags)
}

/// Its path in the tree.
///
/// # Errors
/// The kernel's.
pub fn path_of(place: BorrowedFd<'_>) -> Result<PathBuf, MountError> {
    let link = PathBuf::from(format!("/proc/self/fd/{}", place.as_raw_fd()));
    std::fs::read_link(&link).map_err(MountError::Threads)
}

fn options(target: &MountTarget) -> String {
    let max_read = types::limits::PAYLOAD_BYTES_MAX;
    let others = if target.allow_other { ",allow_other" } else { "" };
    format!("default_permissions,max_read={max_read}{others}")
}

/// The helper takes its socket as a descriptor number in the environment. It is given as standard
/// input, so that no other program that this process starts meanwhile inherits it.
fn mount_with_helper(target: &MountTarget) -> Result<OwnedFd, MountError> {
    let no_socket = |error: Errno| MountError::NoHelper(error.into());
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(no_socket)?;
    let source = target.source.replace('\\', "\\\\").replace(',', "\\,");
    let words = target.options.words(target.read_only).join(",");
    let options =
        format!("{words},nosuid,nodev,fsname={source},subtype={SUBTYPE},{}", options(target));
    let mut helper = Command::new("fusermount3")
        .args(["-o", &options, "--"])
        .arg(&target.path)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(MountError::NoHelper)?;
    let received = receive_descriptor(&ours);
    let mut text = String::new();
    if let Some(stderr) = &mut helper.stderr {
        let _ = stderr.read_to_string(&mut text);
    }
    let _ = helper.wait();
    received.ok_or_else(|| {
        MountError::Helper(text.trim().trim_start_matches("fusermount3: ").to_owned())
    })
}

fn receive_descriptor(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        .ok()?;
    ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    })
}

/// Unmounts; while it is in use, lazily: the path is free at once, and the file system ends with
/// its last user.
///
/// # Errors
/// The kernel's or the helper's.
pub fn unmount(path: &Path) -> std::io::Result<()> {
    match unmount_once(path, false) {
        Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
            tracing::warn!(path = %path.display(), "in use: unmounted lazily; it ends with its \
                last user");
            unmount_once(path, true)
        }
        result => result,
    }
}

fn unmount_once(path: &Path, lazy: bool) -> std::io::Result<()> {
    if is_root() {
        let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return Ok(rustix::mount::unmount(path, flags)?);
    }
    let flags = if lazy { "-uz" } else { "-u" };
    let output = Command::new("fusermount3").arg(flags).arg("--").arg(path).output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if text.contains("busy") { Err(Errno::BUSY.into()) } else { Err(std::io::Error::other(text)) }
}

/// Lets the kernel read ahead as far as one request goes. Needs root; without, reads are smaller,
/// but correct.
pub fn raise_read_ahead(path: &Path) {
    // Asks the kernel for what it has cached, so this sends no request.
    let known = rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::empty());
    let Ok(known) = known else { return };
    let knob =
        format!("/sys/class/bdi/{}:{}/read_ahead_kb", known.stx_dev_major, known.stx_dev_minor);
    if let Err(error) = std::fs::write(&knob, READ_AHEAD_KIB.to_string()) {
        tracing::debug!(%error, knob, "cannot raise the kernel's read-ahead: reads stay small");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_configuration_permits_users() {
        assert!(lets_users("# comment\nmount_max = 1000\n  user_allow_other   # for all\n"));
        for text in
            ["", "#user_allow_other\n", "user_allow_others\n", "mount_max = 9 user_allow_other\n"]
        {
            assert!(!lets_users(text), "{text:?}");
        }
    }
}
