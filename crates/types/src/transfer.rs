//! Volumes in transfer between servers: what an incoming tree becomes, and which tree a server
//! fetches (`docs/spec/volumes.md`, *Between servers*).

use std::net::SocketAddr;

use crate::{Name, PartitionNo, Timestamp, VolumeId, VolumeKind};

/// The use of a tree that came in completely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// A volume that shows the epoch. `id: None`: the next number of the cell, or that of the
    /// volume that it replaces. `replace`: a volume of the same tree that has this name and kind
    /// shows it from then on, and keeps its number.
    View {
        /// The number that the volume gets.
        id: Option<VolumeId>,
        /// The name that the volume gets.
        name: Name,
        /// Any kind but read-write.
        kind: VolumeKind,
        /// A volume of this name and kind shows the epoch from then on.
        replace: bool,
    },
    /// The tree's read-write volume, under the tree's number. `arriving`: it serves no client
    /// before [`crate::VolumeCall::Serve`].
    ReadWrite {
        /// The name that the volume gets.
        name: Name,
        /// Quota in bytes; 0: none.
        quota_bytes: u64,
        /// Quota in files; 0: none.
        quota_files: u64,
        /// When the volume was made, wherever that was.
        created: Timestamp,
        /// It serves no client before [`crate::VolumeCall::Serve`].
        arriving: bool,
        /// When it was last updated; `None`: now.
        updated: Option<Timestamp>,
    },
    /// The read-write volume that it came in over shows it from then on.
    Over {
        /// When it was last updated; `None`: now.
        updated: Option<Timestamp>,
    },
    /// None: the server discards the tree.
    Nothing,
}

/// A tree that comes in at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncomingTree {
    /// Where it comes in.
    pub partition: PartitionNo,
    /// Its number.
    pub tree: VolumeId,
    /// It comes in over a read-write volume.
    pub over: bool,
    /// The epoch that it starts from; 0: the stream is complete.
    pub since: u64,
    /// The epoch that it will show.
    pub epoch: u64,
    /// Bytes of the stream that are stable.
    pub bytes: u64,
    /// Bytes that the epoch uses.
    pub used_bytes: u64,
}

/// A server's order to fetch a tree from another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pull {
    /// The other server's addresses, tried in turn. None: it is this one. At most
    /// [`crate::limits::ADDRESSES_MAX`].
    pub from: Vec<SocketAddr>,
    /// The volume there that shows the epoch.
    pub id: VolumeId,
    /// The destination. `None`: where the tree is already, otherwise the partition with the most
    /// room.
    pub partition: Option<PartitionNo>,
    /// The number of the tree here.
    pub tree: VolumeId,
    /// The use of the complete tree.
    pub finish: Finish,
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TaskState {
    /// It works, or waits for the other server.
    Runs = 1,
    /// It ended; the result is there.
    Done = 2,
    /// It ended without result; `TaskInfo::text` gives the reason. The received part stays, so that
    /// the same pull continues from it.
    Failed = 3,
}

impl TaskState {
    /// The state with the given wire value.
    pub fn from_wire(value: u8) -> Option<Self> {
        [TaskState::Runs, TaskState::Done, TaskState::Failed]
            .into_iter()
            .find(|state| *state as u8 == value)
    }
}

/// A background task of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskInfo {
    /// Distinguishes it from others of this server instance.
    pub number: u64,
    /// The tree that comes in.
    pub tree: VolumeId,
    /// Whether it works.
    pub state: TaskState,
    /// The epoch that it started from; 0: none.
    pub since: u64,
    /// The epoch that it fetches; 0: not known yet.
    pub epoch: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Bytes that the volume uses, if all of it is sent; 0: not known.
    pub total_bytes: u64,
    /// Its progress, or why it failed; at most [`crate::limits::TASK_TEXT_BYTES_MAX`] bytes.
    pub text: String,
}
