//! Calls about a whole volume.

use store::VolumeQuota;
use types::{Answer, Fault, Fid, VolumeStatus};

use crate::call::{CallContext, CallOutcome};
use crate::files::{Change, Files};
use crate::volumes::ViceVolume;

pub(crate) fn volume_status(files: &Files, fid: Fid) -> Result<CallOutcome, Fault> {
    let volume = files.volume(fid.volume)?;
    let status = status_with(&volume, volume.store.quota())?;
    Ok(CallOutcome::Answer(Answer::Volume(status)))
}

fn status_with(volume: &ViceVolume, quota: VolumeQuota) -> Result<VolumeStatus, Fault> {
    let (usage, space) = (volume.store.usage(), volume.partition.space()?);
    Ok(VolumeStatus {
        quota_bytes: quota.bytes,
        quota_files: quota.files,
        used_bytes: usage.bytes,
        used_files: usage.files,
        partition_bytes: space.total_bytes,
        partition_free_bytes: space.free_bytes,
    })
}

/// A quota below the usage is allowed: the volume then cannot grow.
pub(crate) fn set_quota(
    files: &Files,
    ask: &mut CallContext<'_>,
    fid: Fid,
    (bytes, max_files): (u64, u64),
) -> Result<CallOutcome, Fault> {
    let volume = files.volume(fid.volume)?;
    volume.need_writable()?;
    files.need_all_back(ask, fid.volume)?;
    let quota = VolumeQuota { bytes, files: max_files };
    let mut change = Change::new(ask.scope, &volume);
    change.update.set_quota(quota);
    let answer = Answer::Volume(status_with(&volume, quota)?);
    files.commit(ask, change, answer)
}
