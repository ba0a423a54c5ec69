//! A vnode as the store keeps it: its status, and what only servers see.

use types::{Fid, Kind, Status, Timestamp, VnodeNo, posix};

/// Where a body's bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyLocation {
    /// Nowhere: there are none (size 0).
    #[default]
    None,
    /// In the metadata engine; also a symbolic link's target.
    Inline,
    /// In a file of its own.
    File {
        /// The epoch that made the file.
        epoch: u64,
        /// Tells this file from earlier ones of the same vnode and epoch.
        generation: u32,
        /// It is compressed, and not changed in place.
        packed: bool,
    },
    /// In a file, as the origin of the tree has it (`origin.rs`).
    Origin,
}

impl BodyLocation {
    /// Whether the body is in a file, its own or the origin's.
    pub fn is_file(self) -> bool {
        matches!(self, BodyLocation::File { .. } | BodyLocation::Origin)
    }
}

/// One vnode. `status.size`, `status.used` and `place` are kept by the volume's body operations,
/// `entries` by its entry operations, `has_xattr` by its attribute operations; everything else is
/// the caller's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vnode {
    /// What `stat` shows.
    pub status: Status,
    /// The verifier of an exclusive create, or 0.
    pub exclusive: u64,
    /// The directory that names this directory (the root names itself); of other kinds the
    /// directory that first named it.
    pub parent: VnodeNo,
    /// Entries of a directory, otherwise 0.
    pub entries: u64,
    /// Where the body is.
    pub place: BodyLocation,
    /// How many body files this vnode has had.
    pub generations: u32,
    /// The epoch in which an older one's body file became the head's alone, because the sealed
    /// epochs got a copy (`copy_on_write.rs`); 0: never. Kept by body operations.
    pub own_since: u64,
    /// Whether there are extended attributes.
    pub has_xattr: bool,
    /// The body's file was handed to a kernel, which may have it for as long as the vnode lives
    /// (PT-4). The caller's.
    pub handed: bool,
}

impl Vnode {
    /// A new file, directory or node with nothing in it: links 1 (a directory 2), all times `now`,
    /// versions 1.
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

    /// Its slot.
    pub fn no(&self) -> VnodeNo {
        self.status.fid.vnode
    }

    /// What an entry for this vnode says.
    pub fn target(&self) -> EntryTarget {
        EntryTarget {
            vnode: self.status.fid.vnode,
            unique: self.status.fid.unique,
            kind: self.status.kind,
        }
    }
}

pub use types::posix::DIRECTORY_BYTES;

/// What a vnode is charged for before it has a body.
pub(crate) fn initial_used(kind: Kind) -> u64 {
    if kind == Kind::Directory { DIRECTORY_BYTES } else { 0 }
}

/// What an entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryTarget {
    /// The slot.
    pub vnode: VnodeNo,
    /// Which user of the slot.
    pub unique: types::Uniquifier,
    /// What it is.
    pub kind: Kind,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// Its name.
    pub name: types::Name,
    /// What it names.
    pub target: EntryTarget,
    /// Where a listing goes on behind it. Stays as long as the entry; never 0.
    pub cookie: u64,
}
