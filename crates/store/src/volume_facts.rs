//! What is known of a volume, for those who list and examine them.

use types::{Name, Timestamp, VolumeId, VolumeKind};

use crate::header::{TreeHeader, ViewHeader};
use crate::{Usage, VolumeQuota};

/// A volume as it was at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFacts {
    /// Its number.
    pub id: VolumeId,
    /// Its name.
    pub name: Name,
    /// What of its tree it shows.
    pub kind: VolumeKind,
    /// The number of its tree: that of the read-write volume of its group.
    pub tree: VolumeId,
    /// The epoch that it shows.
    pub epoch: u64,
    /// The number of the tree that its tree began as, if it is a writable clone's.
    pub origin: Option<VolumeId>,
    /// When it was made, or sealed.
    pub created: Timestamp,
    /// When its fields (name, quota, online) were last changed.
    pub updated: Timestamp,
    /// Its limits.
    pub quota: VolumeQuota,
    /// What it uses, or used when it was sealed.
    pub usage: Usage,
    /// Whether an administrator took it off.
    pub offline: bool,
    /// It takes no changes, because it is being moved away.
    pub held: bool,
    /// It came from elsewhere and serves nobody yet.
    pub arriving: bool,
    /// It takes no changes, and shows what it had before something began to come in over it.
    pub frozen: bool,
    /// What its files hold is encrypted: with which of its keys the keeper wrapped its key, 0 if it
    /// does not say.
    pub encrypted: Option<u32>,
}

/// What of a volume [`crate::Partition::set_fields`] changes; `None` stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct VolumeFields {
    /// Limits; of read-write volumes only.
    pub quota: Option<VolumeQuota>,
    /// Whether it is off.
    pub offline: Option<bool>,
    /// Whether it is arriving; of read-write volumes only.
    pub arriving: Option<bool>,
}

impl VolumeFacts {
    pub(crate) fn of_head(id: VolumeId, header: TreeHeader, usage: Usage) -> VolumeFacts {
        let epoch = if header.frozen { header.floor() } else { header.epoch };
        let origin = header.origin.map(|origin| origin.tree);
        let TreeHeader { name, created, updated, quota, offline, arriving, held, frozen, .. } =
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
            frozen,
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
            frozen: false,
            encrypted: None,
        }
    }
}
