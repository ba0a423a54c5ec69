//! A vnode in the store: its status, and fields that only servers see.

use types::{Cookie, Fid, Kind, Status, Timestamp, VnodeNo, posix};

/// The location of a body's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyLocation {
    /// There are no bytes (size 0).
    #[default]
    None,
    /// In the metadata engine; also a symbolic link's target.
    Inline,
    /// In a file of its own.
    File {
        /// The epoch that made the file.
        epoch: u64,
        /// Distinguishes files of the same vnode and epoch.
        generation: u32,
        /// The file is compressed, and never changed in place.
        packed: bool,
    },
    /// In a file of the tree's origin (`origin.rs`).
    Origin,
}

impl BodyLocation {
    /// Whether the body is in a file, its own or the origin's.
    pub fn is_file(self) -> bool {
        matches!(self, BodyLocation::File { .. } | BodyLocation::Origin)
    }
}

/// One vnode. The volume's body operations maintain `status.size`, `status.used` and `place`, its
/// entry operations `entries`, its attribute operations `has_xattr`; the caller maintains
/// everything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vnode {
    /// The status that `stat` shows.
    pub status: Status,
    /// The verifier of an exclusive create, or 0.
    pub exclusive: u64,
    /// The directory that names this directory (the root names itself); for other kinds the
    /// directory that first named it.
    pub parent: VnodeNo,
    /// The number of a directory's entries, otherwise 0.
    pub entries: u64,
    /// The location of the body.
    pub place: BodyLocation,
    /// How many body files this vnode has had.
    pub generations: u32,
    /// The epoch in which a body file of an older epoch became the head's alone, because the sealed
    /// epochs got a copy (`copy_on_write.rs`); 0: never. Body operations maintain it.
    pub own_since: u64,
    /// Whether there are extended attributes.
    pub has_xattr: bool,
    /// A kernel got the body's file, and may have it for as long as the vnode lives (PT-4). The
    /// caller maintains it.
    pub handed: bool,
}

impl Vnode {
    /// A new empty file, directory or node: links 1 (a directory 2), all times `now`, versions 1.
    pub fn new(
        fid: Fid,
        kind: Kind,
        mode: u16,
        uid: u32,
        gid: u32,
        parent: VnodeNo,
        now: Timestamp,
    ) -> Vnode {
        let status = posix::new_status(fid, kind, mode, (uid, gid), now);
        Vnode {
            status,
            exclusive: 0,
            parent,
            entries: 0,
            place: BodyLocation::None,
            generations: 0,
            own_since: 0,
            has_xattr: false,
            handed: false,
        }
    }

    /// The number of the vnode.
    pub fn no(&self) -> VnodeNo {
        self.status.fid.vnode
    }

    /// The value of an entry for this vnode.
    pub fn target(&self) -> EntryTarget {
        EntryTarget {
            vnode: self.status.fid.vnode,
            unique: self.status.fid.unique,
            kind: self.status.kind,
        }
    }
}

pub use types::posix::DIRECTORY_BYTES;

/// The charge of a vnode before it has a body.
pub(crate) fn initial_used(kind: Kind) -> u64 {
    if kind == Kind::Directory { DIRECTORY_BYTES } else { 0 }
}

/// The value of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryTarget {
    /// The number of the vnode.
    pub vnode: VnodeNo,
    /// The uniquifier of the vnode.
    pub unique: types::Uniquifier,
    /// The kind of the vnode.
    pub kind: Kind,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// The name in the directory.
    pub name: types::Name,
    /// The vnode that it names.
    pub target: EntryTarget,
    /// The position of the entry in listings. Constant while the entry exists.
    pub cookie: Cookie,
}
