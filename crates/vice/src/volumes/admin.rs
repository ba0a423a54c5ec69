//! Calls of administrators on volumes, one function for each.
//!
//! A volume that is to be sealed, taken offline or removed is *brought in* first: all delegations
//! in it come back, and it gives none for a while. The call waits for that like any other that
//! meets a delegation, and is executed again. Then the store makes the change in one batch, and
//! where clients' knowledge of the volume becomes stale, the answer waits for the acknowledged
//! breaks (CB-1).

use std::time::Duration;

use store::{NewClone, NewFork, NewRoot, VolumeFields, VolumeQuota};
use types::{
    Answer, Fault, Name, PartitionNo, Time, VolumeCall, VolumeChange, VolumeId, VolumeInfo,
    VolumeKind, VolumeState, WhichVolume, is_volume_name,
};

use super::ViceVolume;
use crate::Vice;
use crate::calls::CallOutcome;
use crate::service::CallContext;

/// How long a volume that is brought in gives no delegation: longer than clients take to hand in
/// their changes, and over by itself if the call never comes back.
const DELEGATION_BAR: Duration = Duration::from_secs(5);
/// Mode bits of a new volume's root.
const ROOT_MODE: u16 = 0o755;
/// Maximum number of volumes in one answer; a message has room for about so many.
const LISTED_MAX: u32 = 3000;

impl Vice {
    pub(crate) fn administer(
        &self,
        ask: &mut CallContext<'_>,
        call: &VolumeCall,
    ) -> Result<CallOutcome, Fault> {
        let answer = match call {
            VolumeCall::Create {
                id,
                partition,
                name,
                quota_bytes,
                quota_files,
                owner,
                encrypt,
            } => {
                let quota = VolumeQuota { bytes: *quota_bytes, files: *quota_files };
                let root =
                    NewRoot { mode: ROOT_MODE, uid: owner.0, gid: owner.1, now: ask.wall, quota };
                self.create_volume(*id, *partition, (name, *encrypt), &root)?
            }
            VolumeCall::Remove { id } => return self.remove_volume(ask, *id),
            VolumeCall::Rename { id, name } => self.rename_volume(ask, *id, name)?,
            VolumeCall::Clone { id, of, name, kind, replace } => {
                return self.clone_volume(ask, *id, *of, (name, *kind), *replace);
            }
            VolumeCall::SetFields { id, change } => {
                return self.set_volume_fields(ask, *id, change);
            }
            VolumeCall::List { partition, after, max } => {
                self.list_volumes(*partition, *after, *max)?
            }
            VolumeCall::Examine { volume } => self.examine(volume)?,
            VolumeCall::Partitions => Answer::Partitions(self.partitions.infos()?),
            VolumeCall::Changes { .. }
            | VolumeCall::Apply { .. }
            | VolumeCall::Finish { .. }
            | VolumeCall::Pull(_)
            | VolumeCall::Incoming { .. }
            | VolumeCall::Tasks => return self.transfer(ask, call),
            VolumeCall::Hold { id, millis } => return self.hold_volume(ask, *id, *millis),
            VolumeCall::Serve { id } => return self.serve_volume(ask, *id),
            VolumeCall::Beside { id, partition, what } => {
                return self.beside(ask, *id, *partition, *what);
            }
        };
        Ok(CallOutcome::Answer(answer))
    }

    fn create_volume(
        &self,
        id: Option<VolumeId>,
        on: Option<PartitionNo>,
        (name, encrypt): (&Name, Option<bool>),
        root: &NewRoot,
    ) -> Result<Answer, Fault> {
        let on = on.map_or_else(|| self.partitions.roomiest(), Ok)?;
        let partition = self.partitions.get(on)?;
        self.need_free_name(name, VolumeKind::ReadWrite)?;
        let id = id.map_or_else(|| self.new_number(), Ok)?;
        let _naming = self.naming.lock();
        self.need_free_name(name, VolumeKind::ReadWrite)?;
        self.need_free_number(id)?;
        let encrypt = encrypt.unwrap_or_else(|| partition.volumes().encrypts());
        let volume = partition.volumes().create_volume_as(Some(id), name, root, encrypt)?;
        Ok(Answer::Volumes { volumes: vec![info(on, volume.info())], end: true })
    }

    fn remove_volume(&self, ask: &mut CallContext<'_>, id: VolumeId) -> Result<CallOutcome, Fault> {
        let volume = self.any_volume(id)?;
        self.bring_in(ask, &volume)?;
        volume.partition.remove_volume(id)?;
        self.volumes.forget(id);
        // Calls that waited for the volume find that it is removed.
        self.end_freeze(id, &mut ask.events);
        Ok(self.break_volume(ask, id, Answer::Done))
    }

    /// Seals the present state of the volume; a read-write clone begins with it.
    fn clone_volume(
        &self,
        ask: &mut CallContext<'_>,
        id: Option<VolumeId>,
        of: VolumeId,
        (name, kind): (&Name, VolumeKind),
        replace: bool,
    ) -> Result<CallOutcome, Fault> {
        let volume = self.any_volume(of)?;
        if (kind == VolumeKind::ReadWrite && replace) || !is_volume_name(name.as_bytes(), kind) {
            return Err(Fault::Invalid);
        }
        if volume.store.is_writable() {
            self.bring_in(ask, &volume)?;
            self.end_idle_loans(&volume)?;
        }
        // Some clients know the replaced volume by its number.
        let known = self.replaced_by_clone(&volume, name, kind, replace)?;
        let id = id.or(known).map_or_else(|| self.new_number(), Ok)?;
        let naming = self.naming.lock();
        let replaces = self.replaced_by_clone(&volume, name, kind, replace)?;
        if replaces != Some(id) {
            self.need_free_number(id)?;
        }
        let (id, name, now) = (Some(id), name.clone(), ask.wall);
        let cloned = match kind {
            VolumeKind::ReadWrite => {
                volume.partition.volumes().fork_volume(of, &NewFork { id, name, quota: None, now })
            }
            _ => volume
                .partition
                .volumes()
                .clone_volume(of, &NewClone { id, name, kind, now, replaces }),
        };
        drop(naming);
        volume.block_delegations(Time::ZERO);
        let clone = cloned?;
        let answer = Answer::Volumes { volumes: vec![info(volume.no, clone.info())], end: true };
        let Some(replaced) = replaces else { return Ok(CallOutcome::Answer(answer)) };
        self.volumes.forget(replaced);
        Ok(self.break_volume(ask, replaced, answer))
    }

    /// The volume with the name, if the clone may replace it.
    fn replaced_by_clone(
        &self,
        of: &ViceVolume,
        name: &Name,
        kind: VolumeKind,
        replace: bool,
    ) -> Result<Option<VolumeId>, Fault> {
        let Some(id) = self.partitions.named(name.as_bytes())? else { return Ok(None) };
        let named = self.any_volume(id)?;
        let same = named.store.tree_id() == of.store.tree_id() && named.store.kind() == kind;
        if replace && same { Ok(Some(id)) } else { Err(Fault::Exists) }
    }

    fn rename_volume(
        &self,
        ask: &CallContext<'_>,
        id: VolumeId,
        name: &Name,
    ) -> Result<Answer, Fault> {
        let volume = self.any_volume(id)?;
        let _naming = self.naming.lock();
        if volume.store.name() != *name {
            self.need_free_name(name, volume.store.kind())?;
            volume.partition.volumes().rename_volume(id, name, ask.wall)?;
        }
        Ok(Answer::Done)
    }

    fn set_volume_fields(
        &self,
        ask: &mut CallContext<'_>,
        id: VolumeId,
        change: &VolumeChange,
    ) -> Result<CallOutcome, Fault> {
        let volume = self.any_volume(id)?;
        let known = volume.store.quota();
        let wanted = VolumeQuota {
            bytes: change.quota_bytes.unwrap_or(known.bytes),
            files: change.quota_files.unwrap_or(known.files),
        };
        let offline = change.state.map(|state| state == VolumeState::Offline);
        let quota = (wanted != known).then_some(wanted);
        let goes_off = offline == Some(true) && !volume.is_offline();
        if goes_off || quota.is_some() {
            // Sessions with delegations rely on room, and on a volume that is online.
            self.bring_in(ask, &volume)?;
        }
        volume.partition.volumes().set_fields(
            id,
            VolumeFields { quota, offline, arriving: None },
            ask.wall,
        )?;
        volume.set_offline(offline.unwrap_or(volume.is_offline()));
        volume.block_delegations(Time::ZERO);
        if goes_off {
            Ok(self.break_volume(ask, id, Answer::Done))
        } else {
            Ok(CallOutcome::Answer(Answer::Done))
        }
    }

    fn list_volumes(&self, on: PartitionNo, after: VolumeId, max: u32) -> Result<Answer, Fault> {
        let max = max.min(LISTED_MAX) as usize;
        // One more shows whether the list is complete.
        let mut found = self.partitions.get(on)?.volumes().list(after, max + 1)?;
        let end = found.len() <= max;
        found.truncate(max);
        Ok(Answer::Volumes {
            volumes: found.into_iter().map(|volume| info(on, volume)).collect(),
            end,
        })
    }

    pub(super) fn examine(&self, which: &WhichVolume) -> Result<Answer, Fault> {
        let id = match which {
            WhichVolume::Id(id) => *id,
            WhichVolume::Name(name) => {
                self.partitions.named(name.as_bytes())?.ok_or(Fault::NoVolume)?
            }
        };
        let volume = self.any_volume(id)?;
        let group = volume.partition.volumes().group(id)?;
        let (asked, others): (Vec<_>, Vec<_>) = group.into_iter().partition(|one| one.id == id);
        let mut volumes: Vec<_> =
            asked.into_iter().chain(others).map(|one| info(volume.no, one)).collect();
        if let Some(asked) = volumes.first_mut() {
            asked.state = serving(asked.state, volume.serves());
        }
        Ok(Answer::Volumes { volumes, end: true })
    }

    /// Recalls all delegations in the volume, which then gives none for a while.
    ///
    /// # Errors
    /// `Busy`, which only means that the call waits.
    pub(crate) fn bring_in(
        &self,
        ask: &mut CallContext<'_>,
        volume: &ViceVolume,
    ) -> Result<(), Fault> {
        volume.block_delegations(ask.now + DELEGATION_BAR);
        self.need_all_back(ask, volume.store.id())
    }

    /// Checks that no volume of the server has the number. The caller holds `naming`.
    ///
    /// # Errors
    /// `Exists`.
    pub(super) fn need_free_number(&self, id: VolumeId) -> Result<(), Fault> {
        if self.partitions.volume(id)?.is_some() { Err(Fault::Exists) } else { Ok(()) }
    }

    /// Checks that no volume of the server has the name. The caller holds `naming`.
    ///
    /// # Errors
    /// `Exists`; `Invalid` for a name that no volume of this kind may have.
    pub(super) fn need_free_name(&self, name: &Name, kind: VolumeKind) -> Result<(), Fault> {
        match self.partitions.named(name.as_bytes())? {
            _ if !is_volume_name(name.as_bytes(), kind) => Err(Fault::Invalid),
            Some(_) => Err(Fault::Exists),
            None => Ok(()),
        }
    }
}

/// The state to report for the state in a volume's header. That changes before the volume serves,
/// and a client that reads "online" must find it serving: a claim is sent once.
fn serving(state: VolumeState, serves: bool) -> VolumeState {
    if state == VolumeState::Online && !serves { VolumeState::Held } else { state }
}

pub(super) fn info(partition: PartitionNo, volume: store::VolumeFacts) -> VolumeInfo {
    VolumeInfo {
        id: volume.id,
        tree: volume.tree,
        kind: volume.kind,
        state: match (volume.arriving, volume.offline, volume.held || volume.restoring) {
            (true, ..) => VolumeState::Arriving,
            (_, true, _) => VolumeState::Offline,
            (_, _, true) if volume.restoring => VolumeState::Restoring,
            (_, _, true) => VolumeState::Held,
            _ => VolumeState::Online,
        },
        partition,
        epoch: volume.epoch,
        origin: volume.origin,
        name: volume.name,
        created: volume.created,
        updated: volume.updated,
        quota_bytes: volume.quota.bytes,
        quota_files: volume.quota.files,
        used_bytes: volume.usage.bytes,
        used_files: volume.usage.files,
        encrypted: volume.encrypted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_serve_yet_is_not_called_online() {
        use VolumeState::{Arriving, Held, Offline, Online, Restoring};
        assert_eq!(serving(Online, false), Held);
        for state in [Arriving, Held, Offline, Online, Restoring] {
            assert_eq!(serving(state, true), state);
            assert_ne!(serving(state, false), Online);
        }
    }
}
