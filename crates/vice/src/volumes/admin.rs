//! What administrators ask of volumes, one function for each call.

use types::{Answer, Fault, PartitionNo, VolumeCall, VolumeId, VolumeInfo, VolumeKind, VolumeState, WhichVolume};

use super::ViceVolume;
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
        let mut ids: Vec<_> = self.partitions.get(on)?.volumes().iter().map(|volume| volume.id()).collect();
        ids.retain(|id| *id > after);
        let end = ids.len() <= max as usize;
        ids.truncate(max as usize);
        let volumes = ids.into_iter().map(|id| Ok(info(&*self.volume(id)?))).collect::<Result<_, Fault>>()?;
        Ok(Answer::Volumes { volumes, end })
    }

    fn examine(&self, which: &WhichVolume) -> Result<Answer, Fault> {
        let id = match which {
            WhichVolume::Id(id) => *id,
            WhichVolume::Name(name) => self.partitions.named(name.as_bytes())?.ok_or(Fault::NoVolume)?,
        };
        Ok(Answer::Volumes { volumes: vec![info(&*self.volume(id)?)], end: true })
    }
}

fn info(volume: &ViceVolume) -> VolumeInfo {
    let store = &volume.store;
    let (quota, usage) = (store.quota(), store.usage());
    VolumeInfo {
        id: store.id(),
        tree: store.id(),
        kind: VolumeKind::ReadWrite,
        state: VolumeState::Online,
        partition: volume.no,
        name: store.name().clone(),
        created: types::Timestamp::default(),
        updated: types::Timestamp::default(),
        quota_bytes: quota.bytes,
        quota_files: quota.files,
        used_bytes: usage.bytes,
        used_files: usage.files,
    }
}
