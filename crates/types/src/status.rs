//! What a file is, without its bytes.

use crate::{Fid, Timestamp};

/// What kind of file a vnode is. Wire and disk values; never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Bytes.
    File = 1,
    /// Entries.
    Directory = 2,
    /// A path; kept like a small body.
    Symlink = 3,
    /// A named pipe.
    Fifo = 4,
    /// A Unix socket's name.
    Socket = 5,
    /// A character device's name.
    CharDevice = 6,
    /// A block device's name.
    BlockDevice = 7,
    /// The name of a volume whose root is to be seen here ([`crate::MountPoint`]); kept like a
    /// small body, and followed by clients alone.
    MountPoint = 8,
}

impl Kind {
    /// The kind with the given wire value.
    pub const fn from_wire(value: u8) -> Option<Self> {
        Some(match value {
            1 => Kind::File,
            2 => Kind::Directory,
            3 => Kind::Symlink,
            4 => Kind::Fifo,
            5 => Kind::Socket,
            6 => Kind::CharDevice,
            7 => Kind::BlockDevice,
            8 => Kind::MountPoint,
            _ => return None,
        })
    }

    /// Whether it is a text that leads elsewhere, which `ReadLink` answers with. Its mode is always
    /// `0o777`.
    pub const fn has_target(self) -> bool {
        matches!(self, Kind::Symlink | Kind::MountPoint)
    }
}

/// What `stat` shows, and the versions that caches compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Which file.
    pub fid: Fid,
    /// What it is.
    pub kind: Kind,
    /// Permission, set-id and sticky bits: at most `0o7777`.
    pub mode: u16,
    /// Access lists decide in this volume, and not the mode bits alone (`docs/spec/access.md`). No
    /// part of a file's record: the service says so of its volume.
    pub by_list: bool,
    /// And this file has a list of its own, instead of its directory's: what it says of files
    /// decides for it. Of files alone, and only where lists decide.
    pub own_list: bool,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names of the file; of a directory 2 and one for each subdirectory. 0: unlinked but held
    /// open.
    pub links: u32,
    /// Bytes from 0 to the end of the file; of a symbolic link or mount point the length of its
    /// target; of a directory 4,096.
    pub size: u64,
    /// Bytes of medium in use, holes not counted.
    pub used: u64,
    /// Device number of a device file (major << 32 | minor), otherwise 0.
    pub device: u64,
    /// Last read that was recorded.
    pub accessed: Timestamp,
    /// Last change of the data or the entries.
    pub modified: Timestamp,
    /// Last change of anything.
    pub changed: Timestamp,
    /// When the file was made.
    pub created: Timestamp,
    /// Advances with each change of the data, or of a directory's entries.
    pub data_version: u64,
    /// Advances with each change of anything at all.
    pub status_version: u64,
}
