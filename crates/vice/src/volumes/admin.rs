//! What administrators ask of volumes, one function for each call.

use types::{Answer, Fault, PartitionNo, VolumeCall, VolumeId, VolumeInfo, VolumeState, WhichVolume};

use crate::Vice;
use crate::calls::Outcome;
use crate::service::Ask;

impl Vice {
    pub(crate) fn administer(&self, ask: &mut Ask<'_>, call: &VolumeCall) -> Result<Outcome, Fault> {
        if call.changes() && !ask.caller.is_root() {
            return Err(Fault::NotPermitted);
        }
        let answer = match call {
            VolumeCall::List { partition, after, max } => self.list_volumes(*partition, *after, *max)?,
            VolumeCall::Examine { volume } => self.examine(volume)?,
            VolumeCall::Partitions => Answer::Partitions(self.partitions.infos()?),
            VolumeCall::Create { .. }
            | VolumeCall::Remove { .. }
            | VolumeCall::Rename { .. }
            | VolumeCall::Clone { .. }
            | VolumeCall::SetFields { .. } => return Err(Fault::Unsupported),
        };
        Ok(Outcome::Answer(answer))
    }

    fn list_volumes(&self, on: PartitionNo, after: VolumeId, max: u32) -> Result<Answer, Fault> {
        // One more tells whether that is the end.
        let mut found = self.partitions.get(on)?.list(after, max as usize + 1)?;
        let end = found.len() <= max as usize;
        found.truncate(max as usize);
        Ok(Answer::Volumes { volumes: found.into_iter().map(|volume| info(on, volume)).collect(), end })
    }

    fn examine(&self, which: &WhichVolume) -> Result<Answer, Fault> {
        let id = match which {
            WhichVolume::Id(id) => *id,
            WhichVolume::Name(name) => self.partitions.named(name.as_bytes())?.ok_or(Fault::NoVolume)?,
        };
        let volume = self.volume(id)?;
        Ok(Answer::Volumes { volumes: vec![info(volume.no, volume.store.info())], end: true })
    }
}

fn info(partition: PartitionNo, volume: store::VolumeInfo) -> VolumeInfo {
    VolumeInfo {
        id: volume.id,
        tree: volume.tree,
        kind: volume.kind,
        state: if volume.offline { VolumeState::Offline } else { VolumeState::Online },
        partition,
        name: volume.name,
        created: volume.created,
        updated: volume.updated,
        quota_bytes: volume.quota.bytes,
        quota_files: volume.quota.files,
        used_bytes: volume.usage.bytes,
        used_files: volume.usage.files,
    }
}
