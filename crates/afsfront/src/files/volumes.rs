//! The file service's answers about volumes.

use afs3::files::FilesAnswer;
use afs3::structs::{
    AfsName, AfsPath, FetchVolumeStatus, OldVolumeInfo, StoreVolumeStatus, USE_VLDB, volume_mask,
};
use types::{Answer, Call, Fault, Fid, VolumeId, VolumeKind};

use super::{FileCall, unexpected};
use crate::Refusal;

/// Bytes in one of AFS's blocks.
const BLOCK: u64 = 1024;

/// The answer that sends a client to the location database.
pub(super) fn ask_the_database() -> FilesAnswer {
    FilesAnswer::GetVolumeInfo { info: OldVolumeInfo { type4: USE_VLDB, ..Default::default() } }
}

/// In blocks, and no more than the field holds.
fn blocks(bytes: u64) -> i32 {
    i32::try_from(bytes.div_ceil(BLOCK)).unwrap_or(i32::MAX)
}

impl FileCall<'_> {
    /// The number of a volume that is served.
    fn id(&self, volume: i32) -> Result<VolumeId, Refusal> {
        if volume == 0 {
            return Err(Refusal::INVALID);
        }
        let id = VolumeId((volume as u32).into());
        if self.services.refuses_afs(id)? { Err(Refusal::NO_SERVICE) } else { Ok(id) }
    }

    pub(super) fn volume_status(&self, volume: i32) -> Result<FilesAnswer, Refusal> {
        let id = self.id(volume)?;
        let info = self.services.volume(id)?;
        let fid = Fid::root(id);
        let Answer::Volume(usage) = self.services.ask(Call::VolumeStatus { fid })? else {
            return Err(unexpected());
        };
        let status = FetchVolumeStatus {
            volume,
            parent: info.tree.0 as i32,
            online: 1,
            in_service: 1,
            blessed: 1,
            needs_salvage: 0,
            kind: i32::from(info.kind == VolumeKind::ReadWrite),
            min_quota: 0,
            max_quota: blocks(usage.quota_bytes),
            blocks_in_use: blocks(usage.used_bytes),
            partition_blocks_available: blocks(usage.partition_free_bytes),
            partition_blocks_max: blocks(usage.partition_bytes),
        };
        let name = AfsName::new(info.name.as_bytes()).map_err(|_| Refusal::TOO_BIG)?;
        let (offline_message, motd) = (AfsPath::default(), AfsPath::default());
        Ok(FilesAnswer::GetVolumeStatus { status, name, offline_message, motd })
    }

    /// Sets the quota; there is no least one here, and there are no messages. A caller
    /// who may not set it is refused, whatever the call changes.
    pub(super) fn set_volume_status(
        &self,
        volume: i32,
        change: &StoreVolumeStatus,
    ) -> Result<FilesAnswer, Refusal> {
        let fid = Fid::root(self.id(volume)?);
        let Answer::Volume(now) = self.services.ask(Call::VolumeStatus { fid })? else {
            return Err(unexpected());
        };
        let bytes = if change.mask & volume_mask::MAX_QUOTA != 0 {
            u64::try_from(change.max_quota).map_err(|_| Refusal::INVALID)? * BLOCK
        } else {
            now.quota_bytes
        };
        let set = self.services.ask(Call::SetQuota { fid, bytes, files: now.quota_files });
        set.map_err(|fault| match fault {
            Fault::NotPermitted => Refusal::ACCESS,
            fault => fault.into(),
        })?;
        Ok(FilesAnswer::SetVolumeStatus {})
    }
}
