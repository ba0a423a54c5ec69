//! The answers of the file service.

use bytes::Bytes;

use crate::{
    BootVerifier, CellLevel, Changed, DataVersion, FeedStart, Fence, Fid, IncomingTree, Inherited,
    Invitation, Kind, LockConflict, Mandate, Name, OpenId, PackedRun, PartitionInfo, Principal,
    PrincipalId, Revised, Revision, Secret, ServerId, ServerInfo, StandbyInfo, Status,
    StreamCursor, TaskInfo, VnodeSlots, VolumeGroup, VolumeId, VolumeInfo,
};

/// A place in the listing of a directory: behind the entry that came with it. The server assigns it
/// by the entry's name, so that it stays while other entries come and go, over restarts and moves.
/// It means nothing in another directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cookie(pub u64);

impl Cookie {
    /// Before the first entry; no entry has it.
    pub const START: Cookie = Cookie(0);
}

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The entry's name in its directory.
    pub name: Name,
    /// The file that it names.
    pub fid: Fid,
    /// The kind of that file.
    pub kind: Kind,
    /// The cookie from which a listing continues after this entry.
    pub cookie: Cookie,
    /// With `plus`: the status, promised. Absent if another session has a delegation on it.
    pub status: Option<Status>,
    /// With the status, in a directory that is delegated to the asking session: no other session
    /// has a promise on it, so the delegation covers it.
    pub sole: bool,
    /// With the status of a symbolic link: its target, if it has at most
    /// [`crate::limits::TARGET_LISTED_BYTES_MAX`] bytes.
    pub target: Option<Bytes>,
}

/// The values of `statfs`, and quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeStatus {
    /// Quota in bytes; 0: none.
    pub quota_bytes: u64,
    /// Quota in files; 0: none.
    pub quota_files: u64,
    /// Bytes of bodies in use, counted exactly.
    pub used_bytes: u64,
    /// Files, directories and links in use, counted exactly.
    pub used_files: u64,
    /// Bytes of the partition's file system.
    pub partition_bytes: u64,
    /// Bytes of it that can still be written.
    pub partition_free_bytes: u64,
}

/// The result of a [`crate::Call`] that is not refused. If a directory changed, `dir` is its new
/// status, so that a client that made the change itself can keep its cache (see `data_version`).
#[derive(Clone, Debug, PartialEq, Eq)]
// The common answers carry one or two statuses; a box around them would cost an allocation a call.
#[allow(clippy::large_enum_variant)]
pub enum Answer {
    /// No content.
    Done,
    /// A file's status.
    Status(Status),
    /// A found entry; `dir_version` is the directory's data version at that moment. `sole` as in
    /// [`DirEntry`].
    Entry {
        /// Status of the file that the entry names.
        status: Status,
        /// Data version of the directory that the answer belongs to.
        dir_version: DataVersion,
        /// No other session has a promise on the file.
        sole: bool,
    },
    /// Entries; `dir_version` as above, `end`: there are no more.
    Entries {
        /// The entries, in cookie order.
        entries: Vec<DirEntry>,
        /// There are no more.
        end: bool,
        /// Data version of the directory that the answer belongs to.
        dir_version: DataVersion,
    },
    /// The file made (or found, with `Unchecked` or the same exclusive verifier: then `existed`).
    Made {
        /// The file.
        status: Status,
        /// The directory after the change.
        dir: Status,
        /// The file was there before the call.
        existed: bool,
    },
    /// The file that lost its name, as it is now (`links` 0: it is gone, or held), and the
    /// directory.
    Removed {
        /// The file without that name; `links` 0: it is gone, or held.
        status: Status,
        /// The directory after the change.
        dir: Status,
    },
    /// The moved file, the other one of an exchange or the replaced one (`links` 0: gone or held),
    /// and both directories.
    Renamed {
        /// The file that moved.
        status: Status,
        /// The file that was replaced, or that took the old name.
        other: Option<Status>,
        /// The old directory after the change.
        from_dir: Status,
        /// The new directory after the change.
        to_dir: Status,
    },
    /// A symbolic link's target.
    Target(Bytes),
    /// An attribute's value.
    Xattr(Bytes),
    /// Attribute names.
    XattrNames(Vec<Bytes>),
    /// An access list as stored, and the directory that has it: this one, or the nearest one above
    /// that has its own list.
    Acl {
        /// The directory or file that has the list.
        of: Fid,
        /// The list in its stored form.
        list: Bytes,
    },
    /// Rights (bits as in access lists), and the directory whose list gives them: all files in it
    /// without a list of their own have them too.
    Rights {
        /// The directory or file whose list decides.
        of: Fid,
        /// The caller's rights, one bit each.
        rights: u32,
    },
    /// The volume.
    Volume(VolumeStatus),
    /// Bytes of a file, and the status that they belong to.
    Data {
        /// The bytes; fewer than asked for only at the end of the file.
        data: Bytes,
        /// The file ends with these bytes.
        end: bool,
        /// The status that the bytes belong to.
        status: Status,
    },
    /// The same, packed: all chunks that the read overlaps.
    Packed {
        /// The chunks that the range touches, compressed as they are stored.
        run: PackedRun,
        /// The file ends with these bytes.
        end: bool,
        /// The status that the bytes belong to.
        status: Status,
    },
    /// The range written, and the status after. `previous_version`: the data version just before,
    /// by which the writer learns whether another write came between. *Unstable* unless asked
    /// otherwise: the client must keep the data until a COMMIT with this verifier.
    Written {
        /// Bytes that were written; `Allocate` answers 0.
        count: u32,
        /// Where they were written: for an append the server's choice.
        offset: u64,
        /// The file's status after the call.
        status: Status,
        /// The data version just before this write.
        previous_version: DataVersion,
        /// The boot verifier: unstable writes of another verifier are lost.
        verifier: BootVerifier,
    },
    /// An offset.
    Offset(u64),
    /// All earlier changes are on disk.
    Committed {
        /// The boot verifier: unstable writes of another verifier are lost.
        verifier: BootVerifier,
    },
    /// The descriptor travels beside the message; the status belongs to it.
    Body {
        /// The file's status after the call.
        status: Status,
    },
    /// A preallocated body's number; its descriptor travels beside the message.
    Blank(u64),
    /// Checksums of `sums.len()` blocks from the one asked for; `version` is the data version they
    /// belong to.
    Sums {
        /// The data version of the body.
        version: DataVersion,
        /// One crc32c for each block.
        sums: Vec<u32>,
    },
    /// The directory is delegated to the asking session, with these slots for new files in its
    /// volume.
    Delegation {
        /// The directory.
        status: Status,
        /// Numbers and keys for files that the client will make.
        slots: VnodeSlots,
    },
    /// The number of the open, and the file's status: an open that denies may have given it a new
    /// data version, and is then the only change between that version and the one before.
    Opened {
        /// The open.
        open: OpenId,
        /// The file's status after the call.
        status: Status,
    },
    /// The conflicting lock, if any.
    LockTest(Option<LockConflict>),
    /// JSON.
    Report(String),
    /// Volumes; `end`: there are no more.
    Volumes {
        /// The volumes; with `Examine` the one that was asked for is the first.
        volumes: Vec<VolumeInfo>,
        /// There are no more.
        end: bool,
    },
    /// A part of a stream.
    Part(Bytes),
    /// The position from which a stream continues.
    Cursor(StreamCursor),
    /// Tasks of a server.
    Tasks(Vec<TaskInfo>),
    /// Incoming trees. `base`: the epoch, in the source's numbering, that the volume in question is
    /// an unchanged copy of; 0: none.
    Incoming {
        /// The trees that come in.
        trees: Vec<IncomingTree>,
        /// The epoch that the volume in question is a copy of; 0: none.
        base: u64,
    },
    /// A feed, and the base with which the standby begins.
    Feed(FeedStart),
    /// The standbys of a volume.
    Standbys(Vec<StandbyInfo>),
    /// The last request of a slot that came through the feed.
    Inherited(Inherited),
    /// The level of the cell, with the programs of its servers.
    Level(CellLevel),
    /// Partitions of the server, in their order.
    Partitions(Vec<PartitionInfo>),
    /// Groups of volumes; `end`: there are no more.
    Groups {
        /// The groups, each with the revision of its record.
        groups: Vec<Revised<VolumeGroup>>,
        /// There are no more.
        end: bool,
    },
    /// Servers of the cell.
    Servers(Vec<Revised<ServerInfo>>),
    /// The cell database is at this revision now.
    Revision(Revision),
    /// A number for a volume.
    Number(VolumeId),
    /// The changes up to the revision `at` that fit; `None`: they are forgotten, so everything may
    /// have changed.
    Changes {
        /// The revision of the database that the answer belongs to.
        at: Revision,
        /// The changes, the oldest first; `None`: the database has forgotten them.
        changes: Option<Vec<(Revision, Changed)>>,
    },
    /// Users and groups, each with the number of its members or of the groups that it is in; `end`:
    /// there are no more.
    Principals {
        /// The principals, each with a count.
        principals: Vec<(Principal, u32)>,
        /// There are no more.
        end: bool,
    },
    /// Numbers and names.
    Names {
        /// Numbers and their names.
        names: Vec<(PrincipalId, String)>,
        /// There are no more.
        end: bool,
    },
    /// The groups and host sets of a principal, as of a revision.
    Subdomain {
        /// The revision of the database that the answer belongs to.
        at: Revision,
        /// Every group and host set of the principal, directly or through groups.
        groups: Vec<PrincipalId>,
    },
    /// Fences; `end`: there are no more.
    Fences {
        /// The fences, in the order of their numbers.
        fences: Vec<Fence>,
        /// There are no more.
        end: bool,
    },
    /// Invitations of servers; `end`: there are no more.
    Invitations {
        /// The invitations, sorted by number.
        invitations: Vec<Invitation>,
        /// There are no more.
        end: bool,
    },
    /// A server has joined the cell.
    Joined {
        /// Its certificate and those of the authority, and what it needs to know of the cell, as
        /// `guard::JoinFacts` has it.
        facts: String,
        /// The keys that sign tokens, as `keys` writes them.
        secrets: Secret,
    },
    /// Mandates: which principal administers which part; `end`: there are no more.
    Mandates {
        /// The mandates, in the order of their numbers.
        mandates: Vec<Mandate>,
        /// There are no more.
        end: bool,
    },
    /// The rule with this number is in force, or no more in force, at every server of the cell but
    /// those in `missing`, which did not confirm it.
    Enforced {
        /// The number of the rule.
        number: u64,
        /// Servers that did not confirm it in time.
        missing: Vec<ServerId>,
    },
    /// A part of a copy of the cell database: records, the first and the last of which may be cut.
    Records {
        /// The number of the copy.
        copy: u64,
        /// The revision of the database that the copy shows.
        at: Revision,
        /// Nothing follows; the copy has ended.
        end: bool,
        /// At most [`crate::limits::PAYLOAD_BYTES_MAX`] bytes, with hashes of passwords.
        part: Secret,
    },
    /// A token, at most [`crate::limits::TOKEN_BYTES_MAX`] bytes.
    Token(Secret),
    /// The same for a Kerberos ticket, with the proof for the user's program that the cell accepted
    /// it.
    Ticket {
        /// The token.
        token: Secret,
        /// The proof of the cell, a Kerberos AP-REP.
        reply: Bytes,
    },
}

impl Answer {
    /// Every status in the answer.
    pub fn statuses_mut(&mut self) -> Vec<&mut Status> {
        match self {
            Answer::Status(status)
            | Answer::Entry { status, .. }
            | Answer::Data { status, .. }
            | Answer::Packed { status, .. }
            | Answer::Written { status, .. }
            | Answer::Body { status }
            | Answer::Opened { status, .. }
            | Answer::Delegation { status, .. } => vec![status],
            Answer::Made { status, dir, .. } | Answer::Removed { status, dir } => vec![status, dir],
            Answer::Renamed { status, other, from_dir, to_dir } => {
                [status, from_dir, to_dir].into_iter().chain(other).collect()
            }
            Answer::Entries { entries, .. } => {
                entries.iter_mut().filter_map(|entry| entry.status.as_mut()).collect()
            }
            Answer::Done
            | Answer::Target(_)
            | Answer::Xattr(_)
            | Answer::XattrNames(_)
            | Answer::Acl { .. }
            | Answer::Rights { .. }
            | Answer::Volume(_)
            | Answer::Offset(_)
            | Answer::Committed { .. }
            | Answer::Blank(_)
            | Answer::Sums { .. }
            | Answer::LockTest(_)
            | Answer::Report(_)
            | Answer::Volumes { .. }
            | Answer::Part(_)
            | Answer::Cursor(_)
            | Answer::Tasks(_)
            | Answer::Feed(_)
            | Answer::Standbys(_)
            | Answer::Inherited(_)
            | Answer::Level(_)
            | Answer::Incoming { .. }
            | Answer::Partitions(_)
            | Answer::Groups { .. }
            | Answer::Servers(_)
            | Answer::Revision(_)
            | Answer::Number(_)
            | Answer::Changes { .. }
            | Answer::Principals { .. }
            | Answer::Names { .. }
            | Answer::Subdomain { .. }
            | Answer::Records { .. }
            | Answer::Fences { .. }
            | Answer::Mandates { .. }
            | Answer::Invitations { .. }
            | Answer::Joined { .. }
            | Answer::Enforced { .. }
            | Answer::Token(_)
            | Answer::Ticket { .. } => Vec::new(),
        }
    }

    /// Whether it says what the session has at the server that answers: a standby that takes over
    /// does not have that, and so not the answer either.
    pub const fn is_only_here(&self) -> bool {
        matches!(self, Answer::Opened { .. })
    }

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
            | Answer::Opened { status, .. }
            | Answer::Delegation { status, .. } => Some(status.fid),
            _ => None,
        }
    }
}
