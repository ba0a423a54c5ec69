//! What operations return.

use bytes::Bytes;
use types::{Fid, Kind, Name, Status};

use crate::Backing;

/// When an answer was taken: see [`crate::Venus::answering`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(pub(crate) u64);

/// A file's status as this client's applications must see it, writes that are still here included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The status.
    pub status: Status,
    /// The kernel may keep it until told otherwise.
    pub cacheable: bool,
    /// When.
    pub stamp: Stamp,
}

/// A name that was found or made. It counts as one reference of the kernel, until
/// [`crate::Venus::forget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryReply {
    /// What it names.
    pub status: Status,
    /// The kernel may keep the status until told otherwise.
    pub cacheable: bool,
    /// The kernel may keep the name until told otherwise.
    pub name_cacheable: bool,
    /// When.
    pub stamp: Stamp,
}

/// What a lookup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupReply {
    /// A file.
    Entry(EntryReply),
    /// Nothing.
    Absent {
        /// The kernel may keep that until told otherwise.
        cacheable: bool,
        /// When.
        stamp: Stamp,
    },
}

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpenHandle(pub u64);

/// An open directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DirHandle(pub u64);

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Each write goes to the end of the file, wherever that is by then.
    pub append: bool,
    /// Cut to nothing.
    pub truncate: bool,
}

/// What an open says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenReply {
    /// The handle.
    pub handle: OpenHandle,
    /// The kernel should not cache pages of this handle's reads and writes: it cannot know where an
    /// append lands, and of a new file that is only written it would ask for attributes first.
    pub direct: bool,
    /// Its closing need not be told before it returns ([`crate::Venus::flush`]), only afterwards
    /// ([`crate::Venus::release`]).
    pub quiet: bool,
    /// The kernel reads and writes this body itself.
    pub backing: Option<Backing>,
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrote {
    /// Bytes written.
    pub count: u32,
    /// Where; differs from what was asked for only with `append`.
    pub offset: u64,
}

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEntry {
    /// Its name.
    pub name: Name,
    /// What it names.
    pub fid: Fid,
    /// What that is.
    pub kind: Kind,
    /// Where to go on behind it.
    pub cookie: u64,
    /// With `plus`: its status. Counts no reference: whoever hands it to the kernel says so with
    /// [`crate::Venus::remember`].
    pub status: Option<Status>,
    /// The kernel may keep the status until told otherwise.
    pub cacheable: bool,
    /// With the status of a symbolic link: where it leads, if that is short.
    pub target: Option<Bytes>,
}

/// A part of a directory, without `.` and `..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirListing {
    /// In cookie order.
    pub entries: Vec<ListEntry>,
    /// No more behind the last.
    pub end: bool,
    /// The kernel may keep the names until told otherwise.
    pub names_cacheable: bool,
    /// When.
    pub stamp: Stamp,
}

/// Whether and how much the kernel reads and writes bodies itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassthroughState {
    /// Why it cannot, if it cannot.
    pub why_not: Option<&'static str>,
    /// Files that are open so.
    pub open: usize,
    /// How often a body was given to it.
    pub given: u64,
    /// Blank bodies for new files that are at hand.
    pub blanks: usize,
}
