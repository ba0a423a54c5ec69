//! What the file service answers.
// The variants are documented as a whole; a field is named for what it is.
#![allow(missing_docs)]

use bytes::Bytes;

use crate::{
    BootVerifier, Changed, Fence, Fid, IncomingTree, Kind, LockConflict, Mandate, Name, PackedRun,
    PartitionInfo, Principal, PrincipalId, Revised, Revision, Secret, ServerId, ServerInfo, Status,
    StreamCursor, TaskInfo, VnodeSlots, VolumeGroup, VolumeId, VolumeInfo,
};

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Its name.
    pub name: Name,
    /// What it names.
    pub fid: Fid,
    /// What that is.
    pub kind: Kind,
    /// Where to go on behind this entry. Stable while the directory changes; never 0.
    pub cookie: u64,
    /// With `plus`: the status, promised. Not given for what is delegated to another session.
    pub status: Option<Status>,
    /// With the status, in a directory that is delegated to the asker: nobody else was promised it,
    /// so the delegation covers it.
    pub sole: bool,
    /// With the status of a symbolic link: where it leads, if that has at most
    /// [`crate::limits::TARGET_LISTED_BYTES_MAX`] bytes.
    pub target: Option<Bytes>,
}

/// What `statfs` shows, and quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeStatus {
    /// Quota in bytes; 0: none.
    pub quota_bytes: u64,
    /// Quota in files; 0: none.
    pub quota_files: u64,
    /// Bytes of bodies in use, kept exactly.
    pub used_bytes: u64,
    /// Files, directories and links in use, kept exactly.
    pub used_files: u64,
    /// Bytes of the partition's file system.
    pub partition_bytes: u64,
    /// Bytes of it that can still be written.
    pub partition_free_bytes: u64,
}

/// What a [`crate::Call`] returns when it is not refused. Where a directory changed, `dir` is its
/// new status, so that a client that did the change itself can go on with its cache (see
/// `data_version`).
#[derive(Clone, Debug, PartialEq, Eq)]
// The common answers carry one or two statuses; a box around them would cost an allocation a call.
#[allow(clippy::large_enum_variant)]
pub enum Answer {
    /// Nothing to say.
    Done,
    /// A file's status.
    Status(Status),
    /// A found entry; `dir_version` is the directory's data version at that moment. `sole` as in
    /// [`DirEntry`].
    Entry { status: Status, dir_version: u64, sole: bool },
    /// Entries; `dir_version` as above, `end`: no more behind the last.
    Entries { entries: Vec<DirEntry>, end: bool, dir_version: u64 },
    /// What was made (or found, with `Unchecked` or the same exclusive verifier: then `existed`).
    Made { status: Status, dir: Status, existed: bool },
    /// What lost its name, as it is now (`links` 0: it is gone, or held), and the directory.
    Removed { status: Status, dir: Status },
    /// The moved file, the other one of an exchange or the replaced one (`links` 0: gone or held),
    /// and both directories.
    Renamed { status: Status, other: Option<Status>, from_dir: Status, to_dir: Status },
    /// A symbolic link's target.
    Target(Bytes),
    /// An attribute's value.
    Xattr(Bytes),
    /// Attribute names.
    XattrNames(Vec<Bytes>),
    /// An access list as stored, and whose it is: the directory's own, or that of the nearest one
    /// above that has one.
    Acl { of: Fid, list: Bytes },
    /// Rights (bits as in access lists), and the directory of whose list they are: all files in it
    /// for which nothing else is said have them too.
    Rights { of: Fid, rights: u32 },
    /// The volume.
    Volume(VolumeStatus),
    /// Bytes of a file, and the status that they belong to.
    Data { data: Bytes, end: bool, status: Status },
    /// The same, as they lie packed: all chunks that the read meets.
    Packed { run: PackedRun, end: bool, status: Status },
    /// What was written where, and the status after. `previous_version`: the data version just
    /// before, so that a writer knows whether anyone wrote between. *Unstable* unless asked
    /// otherwise: keep the data until a commit with this verifier.
    Written {
        count: u32,
        offset: u64,
        status: Status,
        previous_version: u64,
        verifier: BootVerifier,
    },
    /// An offset.
    Offset(u64),
    /// Everything up to here is on disk.
    Committed { verifier: BootVerifier },
    /// The descriptor travels beside the message; the status that it belongs to.
    Body { status: Status },
    /// A blank body's number; its descriptor travels beside the message.
    Blank(u64),
    /// Checksums of `sums.len()` blocks from the one asked for; `version` is the data version they
    /// belong to.
    Sums { version: u64, sums: Vec<u32> },
    /// The directory is delegated to the asker, with these slots for new files in its volume.
    Delegation { status: Status, slots: VnodeSlots },
    /// The lock in the way, if any.
    LockTest(Option<LockConflict>),
    /// JSON.
    Report(String),
    /// Volumes; `end`: no more behind the last.
    Volumes { volumes: Vec<VolumeInfo>, end: bool },
    /// A part of a stream.
    Part(Bytes),
    /// Where a stream goes on.
    Cursor(StreamCursor),
    /// Tasks of a server.
    Tasks(Vec<TaskInfo>),
    /// What comes in. `base`: the epoch, numbered as where it comes from, that the volume asked for
    /// is a copy of, which nobody changed since; 0: none.
    Incoming { trees: Vec<IncomingTree>, base: u64 },
    /// Partitions of the server, in their order.
    Partitions(Vec<PartitionInfo>),
    /// Groups of volumes; `end`: no more behind the last.
    Groups { groups: Vec<Revised<VolumeGroup>>, end: bool },
    /// Servers of the cell.
    Servers(Vec<Revised<ServerInfo>>),
    /// The cell's database is at this revision now.
    Revision(Revision),
    /// A number for a volume.
    Number(VolumeId),
    /// What was changed up to the revision `at` and fits; `None`: it is forgotten, so everything
    /// may have changed.
    Changes { at: Revision, changes: Option<Vec<(Revision, Changed)>> },
    /// Users and groups, each with how many members it has, or groups it is in; `end`: no more
    /// behind the last.
    Principals { principals: Vec<(Principal, u32)>, end: bool },
    /// Numbers and names.
    Names { names: Vec<(PrincipalId, String)>, end: bool },
    /// What a principal is beside itself, as of a revision.
    Subdomain { at: Revision, groups: Vec<PrincipalId> },
    /// Fences; `end`: no more behind the last.
    Fences { fences: Vec<Fence>, end: bool },
    /// Who administers what.
    Mandates { mandates: Vec<Mandate>, end: bool },
    /// The rule with this number is in force, or is so no more, at every server of the cell but
    /// those that did not say so.
    Enforced { number: u64, missing: Vec<ServerId> },
    /// A token, at most [`crate::limits::TOKEN_BYTES_MAX`] bytes.
    Token(Secret),
    /// The same for a Kerberos ticket, with what shows the user's program that it was the cell that
    /// took it.
    Ticket { token: Secret, reply: Bytes },
}

impl Answer {
    /// The file that [`Fid::CURRENT`] means in the next member of a chain.
    pub fn current(&self) -> Option<Fid> {
        match self {
            Answer::Status(status)
            | Answer::Entry { status, .. }
            | Answer::Made { status, .. }
            | Answer::Renamed { status, .. }
            | Answer::Data { status, .. }
            | Answer::Packed { status, .. }
            | Answer::Written { status, .. }
            | Answer::Body { status }
            | Answer::Delegation { status, .. } => Some(status.fid),
            _ => None,
        }
    }
}
