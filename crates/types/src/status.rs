//! The status of a file: everything but its bytes.

use crate::{Fid, Timestamp};

/// The kind of a vnode. Wire and disk values; never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A plain file.
    File = 1,
    /// A directory.
    Directory = 2,
    /// A symbolic link; its path is stored like a small body.
    Symlink = 3,
    /// A named pipe.
    Fifo = 4,
    /// A Unix socket's name.
    Socket = 5,
    /// A character device's name.
    CharDevice = 6,
    /// A block device's name.
    BlockDevice = 7,
    /// The name of a volume whose root clients show here ([`crate::MountPoint`]); stored like a
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

    /// Whether it has a target text, which `ReadLink` answers with. Its mode is always `0o777`.
    pub const fn has_target(self) -> bool {
        matches!(self, Kind::Symlink | Kind::MountPoint)
    }
}

/// Counts the changes of a file's data, or of a directory's entries. The server assigns it, or the
/// client under a delegation (DE-5): [`FIRST`](DataVersion::FIRST) to a new file, one more with
/// each change. It survives the server process, and moves and copies of the volume. A loss of power
/// takes unstable versions back, and they are assigned again: versions compare within one server
/// instance (CB-8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DataVersion(pub u64);

impl DataVersion {
    /// No file has it: nothing is known of any version.
    pub const NONE: DataVersion = DataVersion(0);
    /// The version of a new file.
    pub const FIRST: DataVersion = DataVersion(1);

    /// The version after one more change.
    #[must_use]
    pub const fn next(self) -> DataVersion {
        DataVersion(self.0 + 1)
    }

    /// The version `by` higher, at most the highest number: above all that a client may know.
    #[must_use]
    pub const fn raised(self, by: u64) -> DataVersion {
        DataVersion(self.0.saturating_add(by))
    }
}

/// Counts the changes of a file's data or status: all that [`DataVersion`] counts and those of the
/// status alone. Assigned, kept and lost like that one; but another count of the same file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StatusVersion(pub u64);

impl StatusVersion {
    /// The version of a new file.
    pub const FIRST: StatusVersion = StatusVersion(1);

    /// The version after one more change.
    #[must_use]
    pub const fn next(self) -> StatusVersion {
        StatusVersion(self.0 + 1)
    }

    /// The version before the last change, for two changes that are sent as one.
    #[must_use]
    pub const fn before_last(self) -> StatusVersion {
        StatusVersion(self.0 - 1)
    }

    /// The version `by` higher, at most the highest number: above all that a client may know.
    #[must_use]
    pub const fn raised(self, by: u64) -> StatusVersion {
        StatusVersion(self.0.saturating_add(by))
    }
}

/// The values of `stat`, and the versions that caches compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The file's identity.
    pub fid: Fid,
    /// The file's kind.
    pub kind: Kind,
    /// Permission, set-id and sticky bits: at most `0o7777`.
    pub mode: u16,
    /// Access lists decide in this volume, and not the mode bits alone (`docs/spec/access.md`). Not
    /// part of a file's record: the service adds it from the volume.
    pub by_list: bool,
    /// This file has its own list, which decides instead of its directory's. Of plain files alone,
    /// and only if `by_list`.
    pub own_list: bool,
    /// Reads of the volume's files are recorded ([`crate::Call::NoteRead`]). Added by the service
    /// from the volume, like `by_list`.
    pub read_times: bool,
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
    /// Bytes of the medium in use, without holes.
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
    pub data_version: DataVersion,
    /// Advances with each change of the data or the status.
    pub status_version: StatusVersion,
}
