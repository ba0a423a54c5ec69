//! Volumes as administrators handle them, and what they can ask of a server's volumes
//! (`docs/spec/volumes.md`).
// The variants are documented as a whole; a field is named for what it is.
#![allow(missing_docs)]

use bytes::Bytes;

use crate::{Finish, Name, Pull, Timestamp, VnodeNo, VolumeId};

/// What of its tree a volume shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum VolumeKind {
    /// The head: what is written now.
    ReadWrite = 1,
    /// What was released.
    ReadOnly = 2,
    /// What `vos backup` kept last.
    Backup = 3,
    /// Any other sealed epoch, by a name of its own.
    Snapshot = 4,
}

impl VolumeKind {
    /// Every kind.
    pub const ALL: [VolumeKind; 4] =
        [VolumeKind::ReadWrite, VolumeKind::ReadOnly, VolumeKind::Backup, VolumeKind::Snapshot];

    /// The kind with the given wire value.
    pub fn from_wire(value: u8) -> Option<Self> {
        VolumeKind::ALL.into_iter().find(|kind| *kind as u8 == value)
    }
}

/// Whether a volume serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum VolumeState {
    /// It does.
    Online = 1,
    /// An administrator took it off.
    Offline = 2,
    /// It is being moved away: what is there can be read, changes wait.
    Held = 3,
    /// It came from another server and serves nobody before the cell's database says that it is
    /// here.
    Arriving = 4,
    /// A dump comes in over it, or is taken back: what was there can be read, and not be changed.
    Restoring = 5,
}

impl VolumeState {
    /// Every state.
    pub const ALL: [VolumeState; 5] = [
        VolumeState::Online,
        VolumeState::Offline,
        VolumeState::Held,
        VolumeState::Arriving,
        VolumeState::Restoring,
    ];

    /// The state with the given wire value.
    pub fn from_wire(value: u8) -> Option<Self> {
        VolumeState::ALL.into_iter().find(|state| *state as u8 == value)
    }
}

/// A partition by its place in its server's list, from 0 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionNo(pub u32);

/// What is done with the copy of a tree on another partition of the server that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Beside {
    /// A volume of a sealed epoch comes to be there too, with the same number and name.
    Show = 1,
    /// Likewise, and what it shows becomes the read-write volume there, which is arriving.
    Arrive = 2,
    /// What is there goes, one volume after the other; refused where the cell's database says that
    /// the group is.
    Leave = 3,
}

impl Beside {
    /// Every one.
    pub const ALL: [Beside; 3] = [Beside::Show, Beside::Arrive, Beside::Leave];

    /// The one with the given wire value.
    pub fn from_wire(value: u8) -> Option<Self> {
        Beside::ALL.into_iter().find(|what| *what as u8 == value)
    }
}

/// How a volume is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhichVolume {
    Id(VolumeId),
    Name(Name),
}

/// One volume, as it was at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    pub id: VolumeId,
    /// The number of its tree: that of the read-write volume of its group.
    pub tree: VolumeId,
    pub kind: VolumeKind,
    pub state: VolumeState,
    pub partition: PartitionNo,
    /// The epoch of the tree that it shows; of a read-write volume, the one that is written now.
    /// What is newer has a higher one, at every site.
    pub epoch: u64,
    /// Of a writable clone: the number of the tree that it began as, which goes on holding what
    /// nobody changed here.
    pub origin: Option<VolumeId>,
    pub name: Name,
    pub created: Timestamp,
    /// When what it shows last changed, as far as was recorded: its creation or seal, or the last
    /// change of its fields.
    pub updated: Timestamp,
    /// Quota in bytes; 0: none.
    pub quota_bytes: u64,
    /// Quota in files; 0: none.
    pub quota_files: u64,
    pub used_bytes: u64,
    pub used_files: u64,
    /// What files hold is encrypted on its disk: the number of the key that its own key is wrapped
    /// with, as the server numbers them; 0: not said. Of each copy by itself.
    pub encrypted: Option<u32>,
}

/// One partition of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    pub no: PartitionNo,
    /// What its server calls it, such as `/vicepa`; at most
    /// [`crate::limits::PARTITION_NAME_BYTES_MAX`] bytes.
    pub name: String,
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// What compresses snapshots and copies on it, for people: `none`, `zstd` (the server), or the
    /// file system below. At most [`crate::limits::PARTITION_NAME_BYTES_MAX`] bytes.
    pub compression: String,
}

/// What of a volume `SetFields` changes; `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeChange {
    /// 0: no limit.
    pub quota_bytes: Option<u64>,
    /// 0: no limit.
    pub quota_files: Option<u64>,
    pub state: Option<VolumeState>,
}

/// Bytes of a volume's name: it is shown in tables, and `.readonly`, `.backup` and snapshots'
/// labels come behind it.
const VOLUME_NAME_BYTES_MAX: usize = 200;

/// Whether a volume of this kind may have this name: letters, digits, `.`, `_` and `-`, not only
/// digits (that would be a number), and `.readonly` and `.backup` at the end where they belong and
/// nowhere else.
///
/// A read-write volume's name does not end with `.snapshot`: `a.snapshot.snapshot.b` would be a
/// snapshot of `a` as well as of `a.snapshot`, and the administrator of one could change the
/// other's.
pub fn is_volume_name(name: &[u8], kind: VolumeKind) -> bool {
    let letters = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let good = (1..=VOLUME_NAME_BYTES_MAX).contains(&name.len()) && name.iter().all(letters);
    let ends = [name.ends_with(b".readonly"), name.ends_with(b".backup")];
    let wanted = [kind == VolumeKind::ReadOnly, kind == VolumeKind::Backup];
    let ambiguous = kind == VolumeKind::ReadWrite && name.ends_with(b".snapshot");
    // A number, or an option.
    good && ends == wanted && !ambiguous && !name.iter().all(u8::is_ascii_digit) && name[0] != b'-'
}

/// A place in a stream of what an epoch has: all vnodes below `vnode` are through, and that one up
/// to a stage and a position in it. The same in all copies of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamCursor {
    pub vnode: VnodeNo,
    /// What of the vnode comes next; 0: the vnode itself.
    pub stage: u8,
    /// How far that is.
    pub position: u64,
}

impl StreamCursor {
    /// Before the first vnode.
    pub const START: StreamCursor = StreamCursor { vnode: VnodeNo(0), stage: 0, position: 0 };
    /// Behind the last one.
    pub const END: StreamCursor = StreamCursor { vnode: VnodeNo(u64::MAX), stage: 0, position: 0 };
}

impl Default for StreamCursor {
    fn default() -> Self {
        StreamCursor::START
    }
}

/// What administrators ask of the volumes of a server. All but questions are the superuser's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeCall {
    /// A new volume with an empty root directory that belongs to `owner` (user and group); stable
    /// before the answer. `partition: None`: where most room is. `id: None`: a number of the
    /// cell's. Answer: `Volumes`, with the new one.
    Create {
        id: Option<VolumeId>,
        partition: Option<PartitionNo>,
        name: Name,
        quota_bytes: u64,
        quota_files: u64,
        owner: (u32, u32),
        /// Whether what files hold is encrypted on the disk; `None`: as the server does it.
        /// `Offline` if it has no keys.
        encrypt: Option<bool>,
    },
    /// From the answer on nobody has it; what it took is given back in the background. Answer:
    /// `Done`.
    Remove { id: VolumeId },
    /// Answer: `Done`.
    Rename { id: VolumeId, name: Name },
    /// A new volume, read-only but for one kind, that shows what `of`, the read-write volume or
    /// another of its group, shows now. `replace`: a volume of the group that has this name and
    /// kind shows that from then on, and keeps its number; otherwise it is refused with `Exists`.
    /// `id: None`: that number, or one of the cell's. Of the kind read-write: a new tree that
    /// begins so, with the quota of `of`, and replaces nothing. Answer: `Volumes`, with the new
    /// one.
    Clone { id: Option<VolumeId>, of: VolumeId, name: Name, kind: VolumeKind, replace: bool },
    /// Answer: `Done`.
    SetFields { id: VolumeId, change: VolumeChange },
    /// Volumes of a partition with numbers above `after`, in their order, at most `max` of them.
    /// Answer: `Volumes`.
    List { partition: PartitionNo, after: VolumeId, max: u32 },
    /// The volume, and behind it the others of its group. Answer: `Volumes`.
    Examine { volume: WhichVolume },
    /// Answer: `Partitions`.
    Partitions,
    /// What a volume that shows a sealed epoch has and the epoch `since` of its tree had not (0:
    /// all of it), from a place on, in about `bytes_max` bytes (between 128 KiB and 1 MiB). The
    /// superuser's alone, since it asks for no right. Answer: `Part`.
    Changes { id: VolumeId, since: u64, cursor: StreamCursor, bytes_max: u32, packed: bool },
    /// A part of a stream comes in for the tree with this number; the first one begins it, or goes
    /// on with what came in of the same stream. `over`: the read-write volume with that number is
    /// to become what comes; it goes on showing what it has, and takes no changes meanwhile.
    /// Answer: `Cursor`, where the next part is to begin.
    Apply { partition: PartitionNo, tree: VolumeId, part: Bytes, over: bool },
    /// What came in is whole and becomes a volume, or is given up. Answer: `Volumes`, with the new
    /// one if there is one.
    Finish { partition: PartitionNo, tree: VolumeId, finish: Finish },
    /// Fetches a stream from another server and finishes it, in the background. Asked for again it
    /// goes on where it was. Answer: `Tasks`, with the one that was begun.
    Pull(Box<Pull>),
    /// Pulls of this life of the server, those that ended lately too. The superuser's alone.
    /// Answer: `Tasks`.
    Tasks,
    /// What comes in, or came and was not gone on with: all of it, or that of one tree, and what
    /// that one's read-write volume is a copy of. The superuser's alone. Answer: `Incoming`.
    Incoming { tree: Option<VolumeId> },
    /// Everything of the read-write volume that clients have to themselves comes back, and changes
    /// wait until it is let go (`millis: 0`), or for so long at most; then the server asks the
    /// cell's database whose the volume is. Answer: `Done`, when all is back.
    Hold { id: VolumeId, millis: u32 },
    /// A volume that arrived serves from now on. Answer: `Done`.
    Serve { id: VolumeId },
    /// Copies within the server: what a volume of a sealed epoch shows comes to another partition
    /// (no part of it goes over the network), or, with `Leave` and the number of a tree, what that
    /// partition has of it goes. Answer: `Tasks`, with the one that copies; with `Leave`, one that
    /// runs as long as there is more to go.
    Beside { id: VolumeId, partition: PartitionNo, what: Beside },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_volumes_are_words_with_their_endings() {
        for (name, kind) in [
            ("home.alice", VolumeKind::ReadWrite),
            ("home.alice.backup", VolumeKind::Backup),
            ("root.cell.readonly", VolumeKind::ReadOnly),
            ("home.alice.snapshot.20261122T100000Z", VolumeKind::Snapshot),
            ("7a", VolumeKind::ReadWrite),
        ] {
            assert!(is_volume_name(name.as_bytes(), kind), "{name}");
        }
        let long = "x".repeat(201);
        for (name, kind) in [
            ("", VolumeKind::ReadWrite),
            ("536870915", VolumeKind::ReadWrite),
            ("-name", VolumeKind::ReadWrite),
            ("a b", VolumeKind::ReadWrite),
            ("a/b", VolumeKind::ReadWrite),
            ("a#b", VolumeKind::ReadWrite),
            ("home.backup", VolumeKind::ReadWrite),
            ("home.snapshot", VolumeKind::ReadWrite),
            ("home.readonly", VolumeKind::Snapshot),
            ("home", VolumeKind::Backup),
            (&*long, VolumeKind::ReadWrite),
        ] {
            assert!(!is_volume_name(name.as_bytes(), kind), "{name}");
        }
    }
}
