//! The facts about a volume, for callers that list and examine volumes.

use types::{Name, Timestamp, VolumeId, VolumeKind};

use crate::format::header::{HeadState, TreeHeader, ViewHeader};
use crate::{Usage, VolumeQuota};

/// The state of a tree on a partition. If two partitions of a server have the tree, the server uses
/// the one with the lower state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IncomingState {
    /// The read-write volume serves clients, or did before it was held or taken offline.
    Serves,
    /// The tree has at most volumes of sealed epochs.
    Views,
    /// The tree is a copy that does not serve clients yet.
    Arrives,
}

impl IncomingState {
    pub(crate) fn of(header: &TreeHeader) -> IncomingState {
        match header {
            TreeHeader { arriving: true, .. } => IncomingState::Arrives,
            TreeHeader {
                head: HeadState::Incoming | HeadState::Following | HeadState::Unowned,
                ..
            } => IncomingState::Views,
            _ => IncomingState::Serves,
        }
    }
}

/// The state of a volume at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFacts {
    /// The number of the volume.
    pub id: VolumeId,
    /// The name of the volume.
    pub name: Name,
    /// The kind of the volume: what state of its tree it shows.
    pub kind: VolumeKind,
    /// The number of its tree: that of the read-write volume of its group.
    pub tree: VolumeId,
    /// The epoch that the volume shows.
    pub epoch: u64,
    /// For a writable clone, the number of the tree that is the origin of its tree.
    pub origin: Option<VolumeId>,
    /// When the volume was created, or sealed.
    pub created: Timestamp,
    /// When its fields (name, quota, online) were last changed.
    pub updated: Timestamp,
    /// The quota.
    pub quota: VolumeQuota,
    /// The usage, for a sealed epoch as of the seal.
    pub usage: Usage,
    /// Whether an administrator took the volume offline.
    pub offline: bool,
    /// The volume takes no changes, because it is being moved away.
    pub held: bool,
    /// The volume came from elsewhere and does not serve clients yet.
    pub arriving: bool,
    /// The volume takes no changes, and shows its state before a stream began to come in over it.
    pub restoring: bool,
    /// The read-write volume has standbys, any of which may have taken over while the partition was
    /// closed.
    pub has_standbys: bool,
    /// The number of the keeper's key that wraps the volume's key, 0 if it has none; `None`: the
    /// volume is not encrypted.
    pub encrypted: Option<u32>,
}

/// The fields that [`crate::VolumeSet::set_fields`] changes; `None`: unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct VolumeFields {
    /// The limits; only for read-write volumes.
    pub quota: Option<VolumeQuota>,
    /// Whether the volume is offline.
    pub offline: Option<bool>,
    /// Whether the volume is arriving; only for read-write volumes.
    pub arriving: Option<bool>,
}

impl VolumeFacts {
    pub(crate) fn of_head(id: VolumeId, header: TreeHeader, usage: Usage) -> VolumeFacts {
        let (held, restoring) = (header.head == HeadState::Held, header.head.is_being_restored());
        let epoch = if restoring { header.floor() } else { header.epoch };
        let origin = header.origin.map(|origin| origin.tree);
        let TreeHeader { name, created, updated, quota, offline, arriving, has_standbys, .. } =
            header;
        VolumeFacts {
            id,
            name,
            kind: VolumeKind::ReadWrite,
            tree: id,
            epoch,
            origin,
            created,
            updated,
            quota,
            usage,
            offline,
            arriving,
            held,
            restoring,
            has_standbys,
            encrypted: None,
        }
    }

    pub(crate) fn of_view(id: VolumeId, header: ViewHeader) -> VolumeFacts {
        let ViewHeader { kind, name, tree, epoch, created, updated, usage, offline, orphans: _ } =
            header;
        VolumeFacts {
            id,
            name,
            kind,
            tree,
            epoch,
            origin: None,
            created,
            updated,
            quota: VolumeQuota::default(),
            usage,
            offline,
            arriving: false,
            held: false,
            restoring: false,
            has_standbys: false,
            encrypted: None,
        }
    }
}
