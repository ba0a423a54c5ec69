//! The results of operations.

use bytes::Bytes;
use types::{Cookie, Fid, Kind, Name, Status};

use super::Backing;

/// The state under which an answer was taken: see [`crate::Venus::answering`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(pub(crate) u64);

/// A file's status as this client's applications must see it, with the writes that are not at the
/// server yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// With the sizes and times of unsent writes.
    pub status: Status,
    /// The kernel may cache the status until it is invalidated.
    pub cacheable: bool,
    /// The state under which the answer was taken.
    pub stamp: Stamp,
}

/// A name that was found or made. It counts as one reference of the kernel, until
/// [`crate::Venus::forget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryReply {
    /// The status of the file that the name means.
    pub status: Status,
    /// The kernel may cache the status until it is invalidated.
    pub cacheable: bool,
    /// The kernel may cache the name until it is invalidated.
    pub name_cacheable: bool,
    /// The state under which the answer was taken.
    pub stamp: Stamp,
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupReply {
    /// The name exists.
    Entry(EntryReply),
    /// The name does not exist.
    Absent {
        /// The kernel may cache the absence until it is invalidated.
        cacheable: bool,
        /// The state under which the answer was taken.
        stamp: Stamp,
    },
}

/// Number of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpenHandle(pub u64);

/// Number of an open directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DirHandle(pub u64);

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// Reads are allowed.
    pub read: bool,
    /// Writes are allowed.
    pub write: bool,
    /// Each write goes to the end that the file has at that moment.
    pub append: bool,
    /// The open cuts the file to length 0.
    pub truncate: bool,
}

/// The result of an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenReply {
    /// Number for reads, writes and the release.
    pub handle: OpenHandle,
    /// The kernel should not cache pages of this handle's reads and writes: it cannot know where an
    /// append lands, and for a new file that is only written it would ask for attributes first.
    pub direct: bool,
    /// The kernel need not send [`crate::Venus::flush`] before `close` returns;
    /// [`crate::Venus::release`] afterwards suffices.
    pub quiet: bool,
    /// The backing file, if the kernel reads and writes the body itself.
    pub backing: Option<Backing>,
}

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// The file's set-id bits end.
    pub kill_privileges: bool,
    /// The bytes are pages of a map that the kernel writes back: their place is theirs.
    pub pages: bool,
}

impl From<bool> for WriteOptions {
    /// Bytes that a program writes.
    fn from(kill_privileges: bool) -> Self {
        WriteOptions { kill_privileges, pages: false }
    }
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrote {
    /// Bytes written.
    pub count: u32,
    /// Where the bytes went; differs from the request only with `append`.
    pub offset: u64,
}

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEntry {
    /// Without directories.
    pub name: Name,
    /// The file that the name means.
    pub fid: Fid,
    /// The file's kind.
    pub kind: Kind,
    /// The listing goes on behind this entry with this cookie.
    pub cookie: Cookie,
    /// With `plus`: the status. It counts no reference: a caller that gives it to the kernel calls
    /// [`crate::Venus::remember`].
    pub status: Option<Status>,
    /// The kernel may cache the status until it is invalidated.
    pub cacheable: bool,
    /// With the status of a symbolic link: its target, if that is short.
    pub target: Option<Bytes>,
}

/// A part of a directory, without `.` and `..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirListing {
    /// In cookie order.
    pub entries: Vec<ListEntry>,
    /// Nothing follows the last entry.
    pub end: bool,
    /// The kernel may cache the names until they are invalidated.
    pub names_cacheable: bool,
    /// The state under which the answer was taken.
    pub stamp: Stamp,
}

/// State of passthrough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassthroughState {
    /// Why passthrough is impossible here, if it is.
    pub why_not: Option<&'static str>,
    /// Files that are open with passthrough.
    pub open: usize,
    /// How often a body was given to the kernel.
    pub given: u64,
    /// Preallocated bodies that are ready for new files.
    pub blanks: usize,
}
