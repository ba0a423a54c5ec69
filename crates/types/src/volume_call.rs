//! The calls of administrators about a server's volumes (`docs/spec/volumes.md`).

use bytes::Bytes;

use crate::{
    Beside, Finish, Follow, Name, PartitionNo, Pull, ReplyAddress, ServerId, StreamCursor,
    VolumeChange, VolumeId, VolumeKind, WhichVolume,
};

/// The calls of administrators about a server's volumes. All but questions are the superuser's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeCall {
    /// A new volume with an empty root directory that belongs to `owner` (user and group); stable
    /// before the answer. `partition: None`: the one with the most room. `id: None`: a number of
    /// the cell's. Answer: `Volumes`, with the new one.
    Create {
        /// Its number; `Exists` if a volume has it.
        id: Option<VolumeId>,
        /// Where it is made.
        partition: Option<PartitionNo>,
        /// Its name; `Exists` if a volume has it.
        name: Name,
        /// Quota in bytes; 0: none.
        quota_bytes: u64,
        /// Quota in files; 0: none.
        quota_files: u64,
        /// Uid and gid of its root directory.
        owner: (u32, u32),
        /// Whether bodies are encrypted on disk; `None`: the server's default. `Offline` if it has
        /// no keys.
        encrypt: Option<bool>,
    },
    /// Inaccessible from the answer on; its space is freed in the background. Answer: `Done`.
    Remove {
        /// The volume; `NoVolume` if this server does not have it.
        id: VolumeId,
    },
    /// Answer: `Done`.
    Rename {
        /// The volume; `NoVolume` if this server does not have it.
        id: VolumeId,
        /// The new name; `Exists` if another volume has it.
        name: Name,
    },
    /// A new volume, read-only but for one kind, that shows what `of`, the read-write volume or
    /// another of its group, shows now. `replace`: a volume of the group that has this name and
    /// kind shows that from then on, and keeps its number; without it such a volume is refused with
    /// `Exists`. `id: None`: that number, or one of the cell's. Of the kind read-write: a fork with
    /// the quota of `of`, which replaces nothing. Answer: `Volumes`, with the new one.
    Clone {
        /// The number of the new volume.
        id: Option<VolumeId>,
        /// The volume whose state it shows.
        of: VolumeId,
        /// The name of the new volume.
        name: Name,
        /// Any kind; read-write makes a fork.
        kind: VolumeKind,
        /// A volume of this name and kind shows the state from then on.
        replace: bool,
    },
    /// Answer: `Done`.
    SetFields {
        /// The volume; `NoVolume` if this server does not have it.
        id: VolumeId,
        /// The new values.
        change: VolumeChange,
    },
    /// Volumes of a partition with numbers above `after`, in their order, at most `max` of them.
    /// Answer: `Volumes`.
    List {
        /// The partition; `Invalid` if the server has no such one.
        partition: PartitionNo,
        /// Only those with greater numbers; 0: all.
        after: VolumeId,
        /// Limit of the answer, in volumes.
        max: u32,
    },
    /// The volume, followed by the others of its group. Answer: `Volumes`.
    Examine {
        /// The volume.
        volume: WhichVolume,
    },
    /// Answer: `Partitions`.
    Partitions,
    /// The difference between the sealed epoch that a volume shows and the epoch `since` of its
    /// tree (0: everything), from a position on, in about `bytes_max` bytes (between 128 KiB and 1
    /// MiB). Only for the superuser, since it checks no right. Answer: `Part`.
    Changes {
        /// The volume; `NoVolume` if this server does not have it.
        id: VolumeId,
        /// The epoch that the receiver has; 0: none.
        since: u64,
        /// Where to continue.
        cursor: StreamCursor,
        /// Size of the part in bytes, roughly.
        bytes_max: u32,
        /// The receiver can unpack compressed bodies.
        packed: bool,
    },
    /// A part of a stream for the tree with this number; the first one begins it, or continues what
    /// came in of the same stream. `over`: the stream replaces the read-write volume with that
    /// number; until then it shows its old state and takes no changes. Answer: `Cursor`, where the
    /// next part is to begin.
    Apply {
        /// The partition; `Invalid` if the server has no such one.
        partition: PartitionNo,
        /// Number of the tree.
        tree: VolumeId,
        /// The part, as `Changes` answered it.
        part: Bytes,
        /// The stream replaces the tree's read-write volume.
        over: bool,
    },
    /// The incoming tree is complete and becomes a volume, or is discarded. Answer: `Volumes`, with
    /// the new one if there is one.
    Finish {
        /// The partition; `Invalid` if the server has no such one.
        partition: PartitionNo,
        /// Number of the tree.
        tree: VolumeId,
        /// The use of the complete tree.
        finish: Finish,
    },
    /// Fetches a stream from another server and finishes it, in the background. A repeated call
    /// continues it. Answer: `Tasks`, with the one that was begun.
    Pull(Box<Pull>),
    /// Pulls of this server instance, including those that ended lately. Only for the superuser.
    /// Answer: `Tasks`.
    Tasks,
    /// A running pull ends as failed, at its next part; what came stays. One that is over stays as
    /// it is. Only for the superuser. Answer: `Tasks`, with that one.
    EndTask {
        /// Its number among `Tasks`; `NotFound` if there is none such.
        number: u64,
    },
    /// Incoming trees, also those whose transfer stopped: all of them, or one, and the epoch that
    /// that one's read-write volume is a copy of. Only for the superuser. Answer: `Incoming`.
    Incoming {
        /// Number of the tree.
        tree: Option<VolumeId>,
    },
    /// Freezes the read-write volume: the server recalls all loans and delegations, and changes
    /// wait for `millis`, or until a call with `millis: 0`; then the server asks the cell database
    /// which server has the volume. Answer: `Done`, when all is back.
    Hold {
        /// The volume; `NoVolume` if this server does not have it.
        id: VolumeId,
        /// How long changes wait at most; 0: the freeze ends.
        millis: u32,
    },
    /// An arrived volume serves from now on. Answer: `Done`.
    Serve {
        /// The volume; `NoVolume` if this server does not have it.
        id: VolumeId,
    },
    /// A copy becomes the read-write volume of its tree, because the former one was lost with its
    /// server: it begins as the copy, which must show the newest epoch of the tree here, and is
    /// arriving. Its numbers of files, epochs and versions are above all that the lost one can have
    /// had. Answer: `Volumes`, with the new one.
    TakeOver {
        /// The volume of a sealed epoch; `NoVolume` if this server does not have it.
        copy: VolumeId,
        /// The name of the read-write volume.
        name: Name,
        /// An epoch that the tree had elsewhere; 0: none is known.
        above: u64,
    },
    /// This server is, or is no longer, a standby of the volume, as the cell database says: it
    /// brings and keeps a copy there, or removes it, in the background. Answer: `Done`.
    StandBy {
        /// The partition; `Invalid` if the server has no such one.
        partition: PartitionNo,
        /// Number of the read-write volume.
        tree: VolumeId,
    },
    /// The format of a partition (`docs/spec/versions.md`), which it raises, if `raise`, to that of
    /// the cell's level. Answer: `Report`, a JSON object with `format`, `newest` (which this
    /// server's program knows), `cell` (of the cell's level) and `standbys` (whether volumes there
    /// may have or be standbys).
    Format {
        /// The partition; `Invalid` if the server has no such one.
        partition: PartitionNo,
        /// Whether to raise it.
        raise: bool,
    },
    /// The partition counts as well from now on (PH-5): an administrator repaired its disk, or
    /// knows that it works. Answer: `Done`; `Medium` if the partition takes no changes until its
    /// server starts again.
    Trust {
        /// The partition; `Invalid` if the server has no such one.
        partition: PartitionNo,
    },
    /// How much volumes of the partition were used lately, in the order of their numbers. Answer:
    /// `Report`, a JSON object with `seconds` (which the counts span, at most a day), `end`
    /// (whether no volume follows), and `volumes`: of each that was used its `id`, the `calls` on
    /// its files, and the `bytes` that these moved.
    Loads {
        /// The partition; `Invalid` if the server has no such one.
        partition: PartitionNo,
        /// Volumes with higher numbers only.
        after: VolumeId,
        /// Volumes at most.
        max: u32,
    },
    /// Seals what the read-write volume shows, as the base of a standby, and logs every change from
    /// then on. Answer: `Feed`.
    Feed {
        /// The volume; `NoVolume` if this server does not have it.
        id: VolumeId,
        /// The standby's server.
        standby: ServerId,
    },
    /// The next entries of the feed; waits a moment if there are none. `Conflict`: the place is not
    /// in the feed (any more), and the standby needs a new base. Answer: `Part`, with entries.
    Follow(Box<Follow>),
    /// The standbys of the volume, as its server sees them. Answer: `Standbys`.
    Standbys {
        /// The read-write volume; `NoVolume` if this server does not have it.
        id: VolumeId,
    },
    /// The standby of this server takes over now. `Conflict` if it is not in step, unless `force`:
    /// then it begins as the last change that it has. Answer: `Done`, when the cell database says
    /// that the volume is here.
    FailOver {
        /// Number of the read-write volume; `NoVolume` if there is no standby of it here.
        id: VolumeId,
        /// Also one that is not in step.
        force: bool,
    },
    /// The last request of the caller's client in a slot of its session at the former server whose
    /// effect came here through the feed. Answer: `Inherited`.
    Inherit {
        /// The volume that took over; `NoVolume` if this server does not have it.
        id: VolumeId,
        /// The slot; the request in it has no meaning.
        origin: ReplyAddress,
    },
    /// Copies within the server: what a volume of a sealed epoch shows is copied to another
    /// partition (no part of it goes over the network), or, with `Leave` and the number of a tree,
    /// that partition's copy of it is removed. Answer: `Tasks`, with the one that copies; with
    /// `Leave`, one that runs as long as something is left.
    Beside {
        /// The volume to copy, or with `Leave` the tree.
        id: VolumeId,
        /// The other partition.
        partition: PartitionNo,
        /// Copy, or remove the copy.
        what: Beside,
    },
}
