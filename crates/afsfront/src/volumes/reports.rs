//! Volumes and partitions as `vos` lists them.

use afs3::volumes::{
    DiskPartition, DiskPartition64, TransactionInfo, VolserStatus, VolumeReport, VolumeReportX,
    in_use, volume_type,
};
use afs3::xdr::Chars;
use types::{PartitionInfo, Timestamp, VolumeInfo, VolumeKind, VolumeState};

use super::transactions::VolumeTransaction;
use crate::partitions::shown_number;

const KIB: u64 = 1024;

/// A volume with the numbers of others of its group at the same place.
#[derive(Clone, Copy)]
pub(super) struct ListedVolume<'a> {
    pub info: &'a VolumeInfo,
    /// Those volumes of the same partition, in which it is, too.
    pub beside: &'a [VolumeInfo],
}

pub(super) fn seconds(at: Timestamp) -> i32 {
    // AFS's times are unsigned; they go beyond 2038.
    u32::try_from(at.secs).unwrap_or(0) as i32
}

/// KiB, rounded up, and no more than the field holds.
fn kib(bytes: u64) -> i32 {
    i32::try_from(bytes.div_ceil(KIB)).unwrap_or(i32::MAX)
}

/// The front of a text that has no room.
fn shortened<const N: usize>(text: &[u8]) -> Chars<N> {
    Chars::new(&text[..text.len().min(N - 1)]).unwrap_or(Chars([0; N]))
}

/// Snapshots are backup volumes to AFS: `vos syncvldb` would enter a replica as a site.
pub(super) fn kind_of(kind: VolumeKind) -> i32 {
    match kind {
        VolumeKind::ReadWrite => volume_type::RW,
        VolumeKind::ReadOnly => volume_type::RO,
        VolumeKind::Backup | VolumeKind::Snapshot => volume_type::BACKUP,
    }
}

/// The next uniquifier of a volume where AFS counts them. Here they are random, so any will do
/// that leaves AFS room to count.
fn next_unique(info: &VolumeInfo) -> u32 {
    u32::try_from(info.used_files).unwrap_or(u32::MAX / 2).saturating_add(2)
}

impl ListedVolume<'_> {
    fn sibling(&self, kind: VolumeKind) -> Option<&VolumeInfo> {
        self.beside.iter().find(|one| one.tree == self.info.tree && one.kind == kind)
    }

    fn number_of(&self, kind: VolumeKind) -> u32 {
        self.sibling(kind).map_or(0, |one| one.id.0 as u32)
    }

    fn backed_up(&self) -> i32 {
        self.sibling(VolumeKind::Backup).map_or(0, |one| seconds(one.created))
    }

    /// Those that serve readers are on line.
    fn is_online(&self) -> bool {
        matches!(self.info.state, VolumeState::Online | VolumeState::Held | VolumeState::Restoring)
    }

    pub(super) fn status(&self) -> VolserStatus {
        let info = self.info;
        VolserStatus {
            volume: info.id.0 as u32,
            next_unique: next_unique(info),
            kind: kind_of(info.kind),
            parent: info.tree.0 as u32,
            clone: self.number_of(VolumeKind::ReadOnly),
            backup: self.number_of(VolumeKind::Backup),
            restored_from: 0,
            max_quota: kib(info.quota_bytes),
            min_quota: 0,
            owner: 0,
            created: seconds(info.created),
            accessed: seconds(info.updated),
            updated: seconds(info.updated),
            expires: 0,
            backed_up: self.backed_up(),
            copied: seconds(info.created),
        }
    }

    pub(super) fn report(&self) -> VolumeReport {
        let info = self.info;
        VolumeReport {
            name: shortened(info.name.as_bytes()),
            volume: info.id.0 as u32,
            kind: kind_of(info.kind),
            backup: self.number_of(VolumeKind::Backup),
            parent: info.tree.0 as u32,
            clone: self.number_of(VolumeKind::ReadOnly),
            status: in_use::OK,
            copied: seconds(info.created),
            in_use: u8::from(self.is_online()),
            needs_salvaged: 0,
            destroy_me: 0,
            created: seconds(info.created),
            accessed: seconds(info.updated),
            updated: seconds(info.updated),
            backed_up: self.backed_up(),
            day_use: 0,
            files: i32::try_from(info.used_files).unwrap_or(i32::MAX),
            max_quota: kib(info.quota_bytes),
            size: kib(info.used_bytes),
            flags: 0,
            spare0: 0,
            spare1: 0,
            spare2: 0,
            spare3: 0,
        }
    }

    pub(super) fn report_with_statistics(&self) -> VolumeReportX {
        let one = self.report();
        VolumeReportX {
            name: one.name,
            volume: one.volume,
            kind: one.kind,
            backup: one.backup,
            parent: one.parent,
            clone: one.clone,
            status: one.status,
            copied: one.copied,
            in_use: one.in_use,
            created: one.created,
            accessed: one.accessed,
            updated: one.updated,
            backed_up: one.backed_up,
            day_use: one.day_use,
            files: one.files,
            max_quota: one.max_quota,
            size: one.size,
            reads: [0; 4],
            writes: [0; 4],
            file_same_author: [0; 6],
            file_other_author: [0; 6],
            dir_same_author: [0; 6],
            dir_other_author: [0; 6],
        }
    }
}

/// As stock servers fill it: the total is in `min_free`.
pub(super) fn partition(info: &PartitionInfo) -> DiskPartition {
    DiskPartition {
        name: shortened(info.name.as_bytes()),
        device: shortened(info.name.as_bytes()),
        lock_fd: -1,
        total_usable: 0,
        free: kib(info.free_bytes),
        min_free: kib(info.total_bytes),
    }
}

pub(super) fn partition64(info: &PartitionInfo) -> DiskPartition64 {
    let kib = |bytes: u64| i64::try_from(bytes / KIB).unwrap_or(i64::MAX);
    DiskPartition64 {
        name: shortened(info.name.as_bytes()),
        device: shortened(info.name.as_bytes()),
        lock_fd: -1,
        total_usable: 0,
        free: kib(info.free_bytes),
        min_free: kib(info.total_bytes),
    }
}

/// A transaction, on a partition of this name.
pub(super) fn transaction(one: &VolumeTransaction, partition: &str) -> TransactionInfo {
    let now_word = |secs: i64| u32::try_from(secs).unwrap_or(0) as i32;
    TransactionInfo {
        transaction: one.id,
        used: now_word(one.used),
        created: now_word(one.created),
        code: 0,
        volume: one.volume.0 as u32,
        partition: shown_number(partition),
        attach_flags: one.attach_flags as i16,
        volume_flags: one.volume_flags as i8,
        flags: 0,
        last_procedure: shortened(one.procedure.as_bytes()),
        call_valid: 0,
        read_next: 0,
        transmit_next: 0,
        last_sent: 0,
        last_received: 0,
    }
}
