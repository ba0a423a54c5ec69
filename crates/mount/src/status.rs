//! Statuses of files, and of the volume.

use types::{SetTime, Status, StatusChange, Timestamp, VolumeStatus};
use zerocopy::{Immutable, IntoBytes};

use crate::abi::{self, fattr};
use crate::attributes::{self, Validity};
use crate::errno::RequestRefusal;
use crate::task::Task;

/// The unit of the reported volume size.
const BLOCK_BYTES: u64 = 4096;
/// The reported free files without a quota: the store has no limit.
const FILES_FREE: u64 = 1 << 40;

fn change(of: &abi::SetattrIn) -> StatusChange {
    let has = |bit: u32| of.valid & bit != 0;
    let time = |set: u32, now: u32, secs: u64, nanos: u32| {
        has(set).then(|| {
            if has(now) { SetTime::Now } else { SetTime::To(Timestamp::new(secs as i64, nanos)) }
        })
    };
    StatusChange {
        mode: has(fattr::MODE).then_some(attributes::permissions(of.mode)),
        uid: has(fattr::UID).then_some(of.uid),
        gid: has(fattr::GID).then_some(of.gid),
        size: has(fattr::SIZE).then_some(of.size),
        accessed: time(fattr::ATIME, fattr::ATIME_NOW, of.atime, of.atimensec),
        modified: time(fattr::MTIME, fattr::MTIME_NOW, of.mtime, of.mtimensec),
        kill_privileges: has(fattr::KILL_SUIDGID),
        through_handle: has(fattr::FH),
        hold: false,
    }
}

/// The volume as its users see it: its use, and the room that its quota and the partition leave.
/// The partition's other use is not counted.
pub(crate) fn statfs_out(volume: &VolumeStatus) -> abi::StatfsOut {
    let in_quota =
        |limit: u64, used: u64| if limit == 0 { u64::MAX } else { limit.saturating_sub(used) };
    let free = volume.partition_free_bytes.min(in_quota(volume.quota_bytes, volume.used_bytes));
    let files_free = FILES_FREE.min(in_quota(volume.quota_files, volume.used_files));
    abi::StatfsOut {
        blocks: volume.used_bytes.div_ceil(BLOCK_BYTES) + free / BLOCK_BYTES,
        bfree: free / BLOCK_BYTES,
        bavail: free / BLOCK_BYTES,
        files: volume.used_files.saturating_add(files_free),
        ffree: files_free,
        bsize: BLOCK_BYTES as u32,
        namelen: types::limits::NAME_BYTES_MAX as u32,
        frsize: BLOCK_BYTES as u32,
        ..Default::default()
    }
}

impl Task<'_> {
    /// Replies with the file's status in the form that `out` gives it.
    pub(crate) fn status<T: IntoBytes + Immutable>(
        &self,
        out: fn(u64, &Status, Validity) -> T,
    ) -> Result<(), RequestRefusal> {
        let fid = self.fid()?;
        let found = self.venus().getattr(&self.request(), fid)?;
        let status = self.access().permitted(found.status, None);
        self.on.notifier.tells_size(fid, status.size);
        let _ = self.venus().answering(found.stamp, |still| {
            let valid = self.validity(still && found.cacheable);
            self.reply.value(&out(self.header.nodeid, &status, valid))
        });
        Ok(())
    }

    pub(crate) fn setattr(&self, of: &abi::SetattrIn) -> Result<(), RequestRefusal> {
        let mut change = change(of);
        change.uid = change.uid.map(|uid| self.venus().identity().cells_number(uid));
        let found = self.venus().setattr(&self.request(), self.fid()?, change)?;
        let status = self.access().permitted(found.status, None);
        let _ = self.venus().answering(found.stamp, |still| {
            self.reply.value(&attributes::attr_out(
                self.header.nodeid,
                &status,
                self.validity(still && found.cacheable),
            ))
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_fields_that_count_are_changed() {
        let of =
            abi::SetattrIn { valid: fattr::MODE, mode: 0o100_6755, uid: 9, ..Default::default() };
        assert_eq!(change(&of), StatusChange { mode: Some(0o6755), ..Default::default() });
        let valid = fattr::ATIME | fattr::ATIME_NOW | fattr::MTIME;
        let of = abi::SetattrIn { valid, mtime: -5i64 as u64, mtimensec: 7, ..Default::default() };
        assert_eq!(
            change(&of),
            StatusChange {
                accessed: Some(SetTime::Now),
                modified: Some(SetTime::To(Timestamp::new(-5, 7))),
                ..Default::default()
            }
        );
        let of = abi::SetattrIn {
            valid: fattr::SIZE | fattr::FH | fattr::KILL_SUIDGID,
            size: 3,
            ..Default::default()
        };
        assert_eq!(
            change(&of),
            StatusChange {
                size: Some(3),
                kill_privileges: true,
                through_handle: true,
                ..Default::default()
            }
        );
    }

    #[test]
    fn statfs_shows_the_quota_bounded_by_the_partition() {
        let partition = VolumeStatus {
            used_bytes: 40 << 20,
            used_files: 10,
            partition_bytes: 1000 << 20,
            partition_free_bytes: 500 << 20,
            ..Default::default()
        };
        let out = statfs_out(&partition);
        assert_eq!(
            (out.blocks, out.bavail),
            ((540 << 20) / 4096, (500 << 20) / 4096),
            "40 used, 500 free"
        );
        assert_eq!(out.files - out.ffree, 10);
        let out =
            statfs_out(&VolumeStatus { quota_bytes: 100 << 20, quota_files: 12, ..partition });
        assert_eq!((out.blocks, out.bavail), ((100 << 20) / 4096, (60 << 20) / 4096));
        assert_eq!((out.files, out.ffree), (12, 2));
        let out = statfs_out(&VolumeStatus { quota_bytes: 900 << 20, ..partition });
        assert_eq!(out.bavail, (500 << 20) / 4096);
        let out = statfs_out(&VolumeStatus { quota_bytes: 30 << 20, ..partition });
        assert_eq!((out.blocks, out.bavail), ((40 << 20) / 4096, 0), "over quota");
    }
}
