//! Volumes as administrators manage them (`docs/spec/volumes.md`).

use crate::{Name, Timestamp, VnodeNo, VolumeId};

/// The part of its tree that a volume shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum VolumeKind {
    /// The head, which takes writes.
    ReadWrite = 1,
    /// The released epoch.
    ReadOnly = 2,
    /// The epoch that `vos backup` sealed last.
    Backup = 3,
    /// Any other sealed epoch, under its own name.
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
    /// It serves.
    Online = 1,
    /// An administrator took it offline.
    Offline = 2,
    /// Frozen for a move: it can be read; changes wait.
    Held = 3,
    /// It came from another server and serves no client before the cell database lists it here.
    Arriving = 4,
    /// A dump replaces it, or is being undone: its old state can be read, but not changed.
    Restoring = 5,
    /// A copy of it at another server has taken over: it serves no client, and its changes since
    /// that copy are here alone.
    Superseded = 6,
    /// It took over from a lost server: until no client can trust that server any more, it executes
    /// nothing but what clients claim from there.
    TakingOver = 7,
}

impl VolumeState {
    /// Every state.
    pub const ALL: [VolumeState; 7] = [
        VolumeState::Online,
        VolumeState::Offline,
        VolumeState::Held,
        VolumeState::Arriving,
        VolumeState::Restoring,
        VolumeState::Superseded,
        VolumeState::TakingOver,
    ];

    /// Whether the volume is to serve once its former server cannot any more.
    pub fn comes(self) -> bool {
        matches!(self, VolumeState::Arriving | VolumeState::TakingOver)
    }

    /// The state with the given wire value.
    pub fn from_wire(value: u8) -> Option<Self> {
        VolumeState::ALL.into_iter().find(|state| *state as u8 == value)
    }
}

/// The number of epochs in a generation ([`generation`]).
pub const EPOCHS_IN_GENERATION: u64 = 1 << 32;

/// How often a copy of the tree had become its read-write volume before this epoch, because the
/// former one was lost with its server.
pub const fn generation(epoch: u64) -> u64 {
    epoch / EPOCHS_IN_GENERATION
}

/// A partition by its position in its server's list, from 0 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionNo(pub u32);

/// An operation on the copy of a tree on another partition of the same server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Beside {
    /// A volume of a sealed epoch is shown there too, with the same number and name.
    Show = 1,
    /// Likewise, and its state becomes the read-write volume there, which is arriving.
    Arrive = 2,
    /// The copy there is removed, one volume after the other; refused if the cell database says
    /// that the group is there.
    Leave = 3,
}

impl Beside {
    /// Every operation, in the order of the wire values.
    pub const ALL: [Beside; 3] = [Beside::Show, Beside::Arrive, Beside::Leave];

    /// The operation with the given wire value.
    pub fn from_wire(value: u8) -> Option<Self> {
        Beside::ALL.into_iter().find(|what| *what as u8 == value)
    }
}

/// How a caller names a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhichVolume {
    /// By number.
    Id(VolumeId),
    /// By name, with the ending of its kind.
    Name(Name),
}

/// One volume, as it was at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Its number, unique in the cell.
    pub id: VolumeId,
    /// The number of its tree: that of the read-write volume of its group.
    pub tree: VolumeId,
    /// The part of its tree that it shows.
    pub kind: VolumeKind,
    /// Whether it serves.
    pub state: VolumeState,
    /// Where it is.
    pub partition: PartitionNo,
    /// The epoch of the tree that it shows; of a read-write volume, the head. At every site, a
    /// newer state has a higher epoch.
    pub epoch: u64,
    /// Of a fork: the number of the tree that it began as, which still holds what is unchanged
    /// here.
    pub origin: Option<VolumeId>,
    /// Its name, with the ending of its kind.
    pub name: Name,
    /// When it was made, wherever that was.
    pub created: Timestamp,
    /// When its content last changed, as far as recorded: its creation or seal, or the last change
    /// of its fields.
    pub updated: Timestamp,
    /// Quota in bytes; 0: none.
    pub quota_bytes: u64,
    /// Quota in files; 0: none.
    pub quota_files: u64,
    /// Bytes of its bodies.
    pub used_bytes: u64,
    /// Files, directories and links.
    pub used_files: u64,
    /// Its bodies are encrypted on disk: the number of the key that wraps its tree's key, as the
    /// server numbers them; 0: not known. Copies of the volume may differ.
    pub encrypted: Option<u32>,
}

/// One partition of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    /// Its position in the server's list.
    pub no: PartitionNo,
    /// The server's name for it, such as `/vicepa`; at most
    /// [`crate::limits::PARTITION_NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// Size of its file system.
    pub total_bytes: u64,
    /// Bytes of it that the server can still write.
    pub free_bytes: u64,
    /// How snapshots and copies on it are compressed, for people: `none`, `zstd` (the server), or
    /// the file system below. At most [`crate::limits::PARTITION_NAME_BYTES_MAX`] bytes.
    pub compression: String,
}

/// The fields that `SetFields` changes; `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeChange {
    /// 0: no limit.
    pub quota_bytes: Option<u64>,
    /// 0: no limit.
    pub quota_files: Option<u64>,
    /// `Offline` takes it offline; any other state brings it back.
    pub state: Option<VolumeState>,
    /// Whether reads of its files are recorded as their access times.
    pub read_times: Option<bool>,
    /// Whether clients of AFS are served, if access lists decide.
    pub afs: Option<bool>,
}

/// The attribute of the root of a volume that does not serve clients of AFS; no caller sets it.
pub const REFUSES_AFS: &str = "rialto.refuses-afs";

/// Bytes of a volume's name: it is shown in tables, and `.readonly`, `.backup` and snapshots'
/// labels are appended to it.
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
    // A name of digits would read as a number, one with a leading `-` as an option.
    good && ends == wanted && !ambiguous && !name.iter().all(u8::is_ascii_digit) && name[0] != b'-'
}

impl VolumeInfo {
    /// Whether it is the one of [`refilled_name`].
    pub fn is_refill(&self) -> bool {
        self.kind == VolumeKind::ReadWrite && self.name == refilled_name(self.tree)
    }
}

/// The name of the volume in which the next state of a read-only volume of this tree is put
/// together. It is no volume of the cell.
pub fn refilled_name(tree: VolumeId) -> Name {
    Name::new(format!("incoming.{}", tree.0).as_bytes()).expect("it is short, and of letters")
}

/// A position in the stream of an epoch: all vnodes below `vnode` are done, and that one up to a
/// stage and a position in it. All copies of a tree share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamCursor {
    /// The first vnode that is not done.
    pub vnode: VnodeNo,
    /// The part of the vnode that comes next; 0: the vnode itself.
    pub stage: u8,
    /// The position within that part.
    pub position: u64,
}

impl StreamCursor {
    /// Before the first vnode.
    pub const START: StreamCursor = StreamCursor { vnode: VnodeNo(0), stage: 0, position: 0 };
    /// After the last one.
    pub const END: StreamCursor = StreamCursor { vnode: VnodeNo(u64::MAX), stage: 0, position: 0 };
}

impl Default for StreamCursor {
    fn default() -> Self {
        StreamCursor::START
    }
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
