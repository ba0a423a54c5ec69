//! The legacy of a client's mounts, for its successor (`docs/spec/keeper.md`).
//!
//! Model. Each mount of the client has a number: the first has 0. The keeper holds its descriptor
//! of `/dev/fuse` and its anchor by names with the number; records of kinds that are defined here
//! say what it agreed on with the kernel, which nodes the kernel has, and what is mounted upon its
//! mount points. A successor makes the same mounts from that, and then has the kernel send again
//! each request that was received and not answered.
//!
//! All requests of a kept mount come through one descriptor: the kernel fails the requests that
//! were received through one that is closed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use keep::kind::{MOUNT, POINT, SLOT};
use keep::{Keeper, Key};
use serde_json::{Value, json};
use types::{Fid, VolumeId};

use crate::init::Agreement;
use crate::mounting::MountNumber;
use crate::node_records::NodeRecords;

/// The number of the client's first mount.
pub const FIRST: u64 = 0;

/// The record of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountRecord {
    /// The agreement with the kernel.
    pub agreement: Agreement,
    /// The name of the volume whose root is the mount's.
    pub volume: Vec<u8>,
    /// Whether the kernel knows the root by its second number (`nodes.rs`).
    pub shows_root: bool,
}

/// The record of a mount point that the kernel knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointRecord {
    /// The uniquifier of the mount point.
    pub unique: u64,
    /// The number of the mount that is, or was, mounted upon it, and the copy of that mount.
    pub upon: Option<(u64, MountNumber)>,
}

/// The record of a volume below the first in a mount that shows all volumes (`flat_tree.rs`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRecord {
    /// The volume's name.
    pub volume: Vec<u8>,
    /// The mount point that leads to it: its slot's number, and its fid.
    pub point: (u64, Fid),
    /// The volumes on the path, its own last.
    pub way: Vec<VolumeId>,
    /// All of them are read-only.
    pub read_only: bool,
}

/// The legacy of one mount: where it records what a successor needs.
#[derive(Clone)]
pub struct Legacy {
    keeper: Arc<Keeper>,
    number: u64,
}

impl Legacy {
    /// Of the mount of this number.
    pub fn new(keeper: &Arc<Keeper>, number: u64) -> Self {
        Legacy { keeper: Arc::clone(keeper), number }
    }

    /// Of a mount below that is new: it has the first number that is free.
    pub fn below(keeper: &Arc<Keeper>) -> Self {
        let last = keeper.records().keys(MOUNT).last().map_or(FIRST, |key| key.major);
        Self::new(keeper, last + 1)
    }

    /// The mounts below that a predecessor left, in the order in which they were made.
    pub fn all_below(keeper: &Arc<Keeper>) -> Vec<Legacy> {
        let keys = keeper.records().keys(MOUNT).into_iter().filter(|key| key.major != FIRST);
        keys.map(|key| Self::new(keeper, key.major)).collect()
    }

    /// The mount's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    fn key(&self, kind: u64, minor: u64) -> Key {
        Key { kind, major: self.number, minor }
    }

    fn name(&self, what: &str) -> String {
        format!("{what}-{}", self.number)
    }

    /// Has the keeper hold the mount's descriptor of `/dev/fuse`. To be called before the first
    /// request is received.
    ///
    /// # Errors
    /// If the keeper has ended.
    pub fn hold_device(&self, device: BorrowedFd<'_>) -> std::io::Result<()> {
        self.keeper.hold(&self.name("fuse"), device)
    }

    /// The mount that a predecessor left: its descriptor of `/dev/fuse`, and its record.
    pub fn left(&self) -> Option<(OwnedFd, MountRecord)> {
        Some((self.keeper.inherited(&self.name("fuse"))?, self.mount()?))
    }

    /// The anchor that a predecessor left.
    pub fn anchor(&self) -> Option<OwnedFd> {
        self.keeper.inherited(&self.name("anchor"))
    }

    /// The mount's record.
    pub fn mount(&self) -> Option<MountRecord> {
        MountRecord::parse(&self.keeper.records().get(self.key(MOUNT, 0))?)
    }

    /// Records the mount.
    pub fn put_mount(&self, record: &MountRecord) {
        self.put(self.key(MOUNT, 0), &record.text());
    }

    /// Records a mount point, and what is about to be mounted upon it.
    pub fn put_point(&self, node: u64, record: &PointRecord) {
        self.put(self.key(POINT, node), &record.text());
    }

    /// The kernel does not know the mount point any more.
    pub fn remove_point(&self, node: u64) {
        self.keeper.records().remove(self.key(POINT, node));
    }

    /// The mount points in this mount that a predecessor left, by their nodes.
    pub fn points(&self) -> Vec<(u64, PointRecord)> {
        let ours = self.keeper.records().all(POINT).into_iter();
        ours.filter(|(key, _)| key.major == self.number)
            .filter_map(|(key, bytes)| Some((key.minor, PointRecord::parse(&bytes)?)))
            .collect()
    }

    /// Records the volume of a slot.
    pub fn put_slot(&self, slot: u64, record: &SlotRecord) {
        self.put(self.key(SLOT, slot), &record.text());
    }

    /// The slot has no volume any more.
    pub fn remove_slot(&self, slot: u64) {
        self.keeper.records().remove(self.key(SLOT, slot));
    }

    /// The slots of this mount that a predecessor left, by their numbers.
    pub fn slots(&self) -> Vec<(u64, SlotRecord)> {
        let ours = self.keeper.records().all(SLOT).into_iter();
        ours.filter(|(key, _)| key.major == self.number)
            .filter_map(|(key, bytes)| Some((key.minor, SlotRecord::parse(&bytes)?)))
            .collect()
    }

    /// The records of the mount's nodes.
    pub fn nodes(&self) -> NodeRecords {
        NodeRecords::of(self.keeper.records(), self.number)
    }

    fn put(&self, key: Key, text: &str) {
        if let Err(error) = self.keeper.records().put(key, &[text.as_bytes()]) {
            tracing::error!(%error, "a successor of this process would lack a mount");
        }
    }

    /// The mount has ended: nothing of it is left.
    pub fn end(&self) {
        let records = self.keeper.records();
        self.nodes().end();
        for kind in [POINT, SLOT, MOUNT] {
            let keys = records.keys(kind).into_iter().filter(|key| key.major == self.number);
            keys.for_each(|key| records.remove(key));
        }
        self.keeper.release(&self.name("fuse"));
    }
}

/// The anchor of a mount (`mounted_volumes.rs`). The keeper holds it as long as this process.
pub struct Anchor {
    mount: OwnedFd,
    legacy: Option<Legacy>,
}

impl Anchor {
    /// Has the keeper hold it, if there is one.
    pub fn new(mount: OwnedFd, legacy: Option<Legacy>) -> Self {
        if let Some(legacy) = &legacy
            && let Err(error) = legacy.keeper.hold(&legacy.name("anchor"), mount.as_fd())
        {
            tracing::warn!(%error, "the keeper does not hold a mount's anchor");
        }
        Anchor { mount, legacy }
    }
}

impl AsFd for Anchor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }
}

impl Drop for Anchor {
    fn drop(&mut self) {
        if let Some(legacy) = &self.legacy {
            legacy.keeper.release(&legacy.name("anchor"));
        }
    }
}

impl MountRecord {
    fn text(&self) -> String {
        let Agreement { minor, flags } = self.agreement;
        let (volume, shows_root) = (&self.volume, self.shows_root);
        json!({ "minor": minor, "flags": flags, "volume": volume, "shows_root": shows_root })
            .to_string()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let volume = value["volume"].as_array()?.iter();
        Some(MountRecord {
            agreement: Agreement {
                minor: u32::try_from(value["minor"].as_u64()?).ok()?,
                flags: value["flags"].as_u64()?,
            },
            volume: volume
                .map(|byte| u8::try_from(byte.as_u64()?).ok())
                .collect::<Option<Vec<u8>>>()?,
            shows_root: value["shows_root"].as_bool()?,
        })
    }
}

impl SlotRecord {
    fn text(&self) -> String {
        let (slot, fid) = self.point;
        let point = [slot, fid.volume.0, fid.vnode.0, fid.unique.0];
        let way: Vec<u64> = self.way.iter().map(|volume| volume.0).collect();
        let (volume, read_only) = (&self.volume, self.read_only);
        json!({ "volume": volume, "point": point, "way": way, "read_only": read_only }).to_string()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let numbers = |value: &Value| {
            value.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>()
        };
        let [slot, volume, vnode, unique] = *numbers(&value["point"])?.as_slice() else {
            return None;
        };
        let name = numbers(&value["volume"])?.into_iter().map(|byte| u8::try_from(byte).ok());
        Some(SlotRecord {
            volume: name.collect::<Option<Vec<u8>>>()?,
            point: (slot, Fid::new(volume, vnode, unique)),
            way: numbers(&value["way"])?.into_iter().map(VolumeId).collect(),
            read_only: value["read_only"].as_bool()?,
        })
    }
}

impl PointRecord {
    fn text(&self) -> String {
        let upon = self.upon.as_ref().map(|(mount, copy)| {
            let (number, is_unique, device) = copy.parts();
            json!([mount, number, is_unique, device])
        });
        json!({ "unique": self.unique, "upon": upon }).to_string()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let upon = value.get("upon")?;
        let upon = match upon.as_array().map(Vec::as_slice) {
            Some([mount, number, is_unique, device]) => {
                let (is_unique, device) = (is_unique.as_bool()?, device.as_str()?);
                let copy = MountNumber::of_parts(number.as_u64()?, is_unique, device);
                Some((mount.as_u64()?, copy))
            }
            Some(_) => return None,
            None => None,
        };
        Some(PointRecord { unique: value["unique"].as_u64()?, upon })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_are_written() {
        let mount = MountRecord {
            agreement: Agreement { minor: 45, flags: u64::MAX },
            volume: b"home.\xff".to_vec(),
            shows_root: true,
        };
        assert_eq!(MountRecord::parse(mount.text().as_bytes()), Some(mount));
        let copy = MountNumber::of_parts(u64::MAX, true, "0:77");
        for upon in [Some((3, copy)), None] {
            let point = PointRecord { unique: u64::MAX, upon };
            assert_eq!(PointRecord::parse(point.text().as_bytes()), Some(point));
        }
        let slot = SlotRecord {
            volume: b"home.\xff".to_vec(),
            point: (0, Fid::new(1, u64::MAX, 3)),
            way: vec![VolumeId(1), VolumeId(2)],
            read_only: true,
        };
        assert_eq!(SlotRecord::parse(slot.text().as_bytes()), Some(slot));
        assert_eq!(SlotRecord::parse(b"{}"), None);
        assert_eq!(MountRecord::parse(b"{}"), None);
        assert_eq!(PointRecord::parse(b"x"), None);
    }
}
