//! A call to a server of Rialto about its volumes, as calls to a server of AFS.
//!
//! Model: the answer is what the server of AFS has of it. Volumes have the epoch 1, since none is
//! told; a clone with a name of its own is a snapshot. Of a volume that a transaction holds, or
//! that cannot be attached, only the number is told: a list has it as a snapshot, which no
//! operation takes for a volume of the cell, and a question about it is refused. Calls that AFS has
//! no words for are refused (`Unfit`).

use afs3::errors::VOLSERVOLBUSY;
use afs3::volumes::{
    TransactionInfo, VolumeReport, in_use, partition_name, transaction_flag, volume_flag,
    volume_type,
};
use types::{
    Answer, Fault, Name, PartitionInfo, PartitionNo, ServerId, TaskInfo, TaskState, Timestamp,
    VolumeCall, VolumeChange, VolumeId, VolumeInfo, VolumeKind, VolumeState, WhichVolume,
};

use super::making::arriving_name;
use super::number;
use super::places::AfsPlace;
use super::transactions::{AfsTransaction, NewAfsVolume};
use super::volume_server::VolumeServer;
use crate::{Servers, VosError, base_name};

const KIB: u64 = 1024;
/// The epoch of all volumes.
const EPOCH: u64 = 1;

/// Answers a call for a server of AFS. See the head of the file.
///
/// # Errors
/// The server's; `Unfit`: AFS has no words for the call.
pub fn call_afs(
    servers: &dyn Servers,
    server: ServerId,
    call: VolumeCall,
) -> Result<Answer, VosError> {
    let at = VolumeServer::of(servers, server)?;
    match call {
        VolumeCall::Partitions => at.partition_infos().map(Answer::Partitions),
        VolumeCall::List { partition, after, max } => {
            let mut volumes = at.volumes(partition)?;
            volumes.retain(|one| one.id > after);
            let end = volumes.len() <= max as usize;
            volumes.truncate(max as usize);
            Ok(Answer::Volumes { volumes, end })
        }
        VolumeCall::Examine { volume } => {
            at.group_of(&volume).map(|volumes| Answer::Volumes { volumes, end: true })
        }
        VolumeCall::Tasks => {
            let tasks = at.transactions()?.iter().map(task).collect();
            Ok(Answer::Tasks(tasks))
        }
        VolumeCall::EndTask { number } => at.end_task(number).map(Answer::Tasks),
        // Nothing comes in at a server of AFS that is not a transaction.
        VolumeCall::Incoming { .. } => Ok(Answer::Incoming { trees: Vec::new(), base: 0 }),
        VolumeCall::Create { id, partition, name, quota_bytes, encrypt, .. } => {
            if encrypt == Some(true) {
                let why = format!("{}, a server of AFS, encrypts no files", at.name());
                return Err(VosError::Unfit(why));
            }
            let (Some(id), Some(PartitionNo(partition))) = (id, partition) else {
                return Err(unsupported(&at));
            };
            at.create(id, partition.cast_signed(), &name, quota_bytes)?;
            at.told(id)
        }
        VolumeCall::Remove { id } => {
            let (partition, _) = at.known(id)?;
            AfsPlace { at, partition, volume: number(id)? }.remove()?;
            Ok(Answer::Done)
        }
        VolumeCall::Rename { id, name } => {
            let renamed = at.with(id, |held| held.rename(name.as_bytes()));
            renamed.map(|()| Answer::Done)
        }
        VolumeCall::SetFields { id, change } => {
            at.set_fields(id, change)?;
            Ok(Answer::Done)
        }
        VolumeCall::Clone { id: Some(id), of, name, kind, .. } => {
            at.clone_volume(id, of, &name, kind)?;
            at.told(id)
        }
        _ => Err(unsupported(&at)),
    }
}

fn unsupported(at: &VolumeServer<'_>) -> VosError {
    VosError::Unfit(format!("{} is a server of AFS, which cannot do this", at.name()))
}

/// A time as AFS counts it: unsigned seconds.
fn time(secs: i32) -> Timestamp {
    Timestamp::new(i64::from(secs.cast_unsigned()), 0)
}

fn bytes(kib: i64) -> u64 {
    u64::try_from(kib).unwrap_or(0) * KIB
}

fn task(one: &TransactionInfo) -> TaskInfo {
    let last = String::from_utf8_lossy(one.last_procedure.text()).into_owned();
    let partition = partition_name(one.partition).unwrap_or_default();
    TaskInfo {
        number: u64::try_from(one.transaction).unwrap_or(0),
        tree: VolumeId(one.volume.into()),
        state: TaskState::Runs,
        since: 0,
        epoch: 0,
        bytes: 0,
        total_bytes: 0,
        text: format!("transaction on {partition}, last call {last}"),
    }
}

fn kind_of(one: &VolumeReport) -> VolumeKind {
    let name = one.name.text();
    match one.kind {
        // It is not complete, so it is no volume of the cell yet.
        volume_type::RW if name == arriving_name(one.volume) => VolumeKind::Snapshot,
        volume_type::RW => VolumeKind::ReadWrite,
        volume_type::RO if name.ends_with(b".readonly") => VolumeKind::ReadOnly,
        volume_type::BACKUP if name.ends_with(b".backup") => VolumeKind::Backup,
        _ => VolumeKind::Snapshot,
    }
}

/// A volume of a list; `None`: it has a name that no volume has.
fn volume(partition: i32, one: &VolumeReport) -> Option<VolumeInfo> {
    let id = VolumeId(one.volume.into());
    let is_known = one.status == in_use::OK;
    let name = match is_known {
        true => Name::new(one.name.text()),
        false => Name::new(one.volume.to_string().as_bytes()),
    };
    let kind = if is_known { kind_of(one) } else { VolumeKind::Snapshot };
    let is_parent = kind == VolumeKind::ReadWrite || one.parent == 0;
    // Names go to terminals.
    let name = name.ok().filter(|name| name.as_bytes().iter().all(u8::is_ascii_graphic))?;
    Some(VolumeInfo {
        id,
        tree: if is_parent { id } else { VolumeId(one.parent.into()) },
        kind,
        state: match (one.status, one.in_use) {
            (in_use::OK, 1) => VolumeState::Online,
            (in_use::BUSY, _) => VolumeState::Held,
            _ => VolumeState::Offline,
        },
        partition: PartitionNo(partition.cast_unsigned()),
        epoch: EPOCH,
        origin: None,
        name,
        created: time(one.created),
        updated: time(one.updated),
        quota_bytes: bytes(one.max_quota.into()),
        quota_files: 0,
        used_bytes: bytes(one.size.into()),
        used_files: u64::try_from(one.files).unwrap_or(0),
        encrypted: None,
    })
}

impl VolumeServer<'_> {
    fn partition_infos(&self) -> Result<Vec<PartitionInfo>, VosError> {
        let mut all = Vec::new();
        for no in self.partitions()? {
            let name = partition_name(no).ok_or_else(|| self.odd())?;
            let info = self.partition_info(&name)?;
            all.push(PartitionInfo {
                no: PartitionNo(no.cast_unsigned()),
                name,
                // Stock servers tell the size there.
                total_bytes: bytes(info.min_free.max(info.total_usable)),
                free_bytes: bytes(info.free),
                compression: "none".to_owned(),
            });
        }
        Ok(all)
    }

    fn volumes(&self, partition: PartitionNo) -> Result<Vec<VolumeInfo>, VosError> {
        let partition = partition.0.cast_signed();
        let all = self.list(partition)?;
        let mut volumes: Vec<_> = all.iter().filter_map(|one| volume(partition, one)).collect();
        volumes.sort_by_key(|one| one.id);
        volumes.dedup_by_key(|one| one.id);
        Ok(volumes)
    }

    /// The volume with this number, and where it is.
    ///
    /// # Errors
    /// `Refused` with `NoVolume`; `AfsRefused` with VOLSERVOLBUSY: a transaction holds it.
    fn known(&self, id: VolumeId) -> Result<(i32, VolumeReport), VosError> {
        let missing = || VosError::Refused { server: self.name(), fault: Fault::NoVolume };
        let Ok(number) = number(id) else { return Err(missing()) };
        let (partition, found) = self.find(number)?.ok_or_else(missing)?;
        if found.status == in_use::BUSY {
            let (server, call) = (self.name(), "ListOneVolume");
            return Err(VosError::AfsRefused { server, call, code: VOLSERVOLBUSY });
        }
        Ok((partition, found))
    }

    /// A volume, followed by the others of its group on its partition.
    fn group_of(&self, which: &WhichVolume) -> Result<Vec<VolumeInfo>, VosError> {
        let id = match which {
            WhichVolume::Id(id) => *id,
            WhichVolume::Name(name) => self.number_of(name)?,
        };
        let (partition, report) = self.known(id)?;
        let first = volume(partition, &report).ok_or_else(|| self.odd())?;
        let mut group = vec![first];
        for other in [report.parent, report.clone, report.backup] {
            if other == 0 || group.iter().any(|one| one.id.0 == u64::from(other)) {
                continue;
            }
            let found = self.one(partition, other)?;
            group.extend(found.and_then(|report| volume(partition, &report)));
        }
        Ok(group)
    }

    /// The number of the volume with this name: the one that the cell's database has, if the
    /// server's volume has that name; or that of a list.
    fn number_of(&self, name: &Name) -> Result<VolumeId, VosError> {
        let known = self.servers.db().group_named(&base_name(name))?;
        for id in known.iter().flat_map(|seen| seen.record.numbers()) {
            let found = number(id).ok().map(|number| self.find(number)).transpose()?.flatten();
            let is_it = |report: &VolumeReport| report.name.text() == name.as_bytes();
            if found.is_some_and(|(_, report)| is_it(&report)) {
                return Ok(id);
            }
        }
        for partition in self.partitions()? {
            let all = self.volumes(PartitionNo(partition.cast_unsigned()))?;
            if let Some(found) = all.iter().find(|one| one.name == *name) {
                return Ok(found.id);
            }
        }
        Err(VosError::Refused { server: self.name(), fault: Fault::NoVolume })
    }

    fn told(&self, id: VolumeId) -> Result<Answer, VosError> {
        let volumes = self.group_of(&WhichVolume::Id(id))?;
        Ok(Answer::Volumes { volumes, end: true })
    }

    /// Does something in a transaction on a volume.
    fn with<T>(
        &self,
        id: VolumeId,
        act: impl FnOnce(&AfsTransaction<'_>) -> Result<T, VosError>,
    ) -> Result<T, VosError> {
        let (partition, _) = self.known(id)?;
        let flags = transaction_flag::OFFLINE;
        let held = AfsTransaction::begin(*self, number(id)?, partition, flags)?;
        let done = act(&held)?;
        held.end()?;
        Ok(done)
    }

    fn end_task(&self, number: u64) -> Result<Vec<TaskInfo>, VosError> {
        let missing = || VosError::Refused { server: self.name(), fault: Fault::NotFound };
        let is_it = |one: &&TransactionInfo| u64::try_from(one.transaction) == Ok(number);
        let open = self.transactions()?;
        let one = open.iter().find(is_it).ok_or_else(missing)?;
        self.end_transaction(one.transaction)?;
        let text = "ended by an administrator".to_owned();
        Ok(vec![TaskInfo { state: TaskState::Failed, text, ..task(one) }])
    }

    fn create(
        &self,
        id: VolumeId,
        partition: i32,
        name: &Name,
        quota_bytes: u64,
    ) -> Result<(), VosError> {
        let id = number(id)?;
        let (name, kind) = (name.as_bytes(), volume_type::RW);
        let new = NewAfsVolume { partition, name, kind, parent: id, volume: id };
        let held = AfsTransaction::create(*self, &new)?;
        let made = held.set_quota(quota_bytes).and_then(|()| held.set_flags(0));
        if made.is_err() {
            // Otherwise it stays out of service.
            let _ = held.delete();
        }
        made?;
        held.end()
    }

    fn set_fields(&self, id: VolumeId, change: VolumeChange) -> Result<(), VosError> {
        let VolumeChange { quota_bytes, quota_files, state, read_times, afs } = change;
        if quota_files.is_some_and(|files| files != 0) || read_times.is_some() || afs.is_some() {
            return Err(unsupported(self));
        }
        self.with(id, |held| {
            if let Some(bytes) = quota_bytes {
                held.set_quota(bytes)?;
            }
            match state {
                None => Ok(()),
                Some(VolumeState::Offline) => held.set_flags(volume_flag::OUT_OF_SERVICE),
                Some(_) => held.set_flags(0),
            }
        })
    }

    /// Makes a clone, or renews one, and brings it into service.
    fn clone_volume(
        &self,
        id: VolumeId,
        of: VolumeId,
        name: &Name,
        kind: VolumeKind,
    ) -> Result<(), VosError> {
        let kind = match kind {
            VolumeKind::Backup => volume_type::BACKUP,
            VolumeKind::ReadOnly => volume_type::RO,
            VolumeKind::ReadWrite | VolumeKind::Snapshot => return Err(unsupported(self)),
        };
        let (partition, _) = self.known(of)?;
        let (of, id) = (number(of)?, number(id)?);
        self.clone_at(partition, (of, id), kind, name.as_bytes())?;
        AfsPlace { at: *self, partition, volume: id }.set_service(0)
    }

    /// Makes a clone or, if there is a volume with its number, renews it.
    pub(super) fn clone_at(
        &self,
        partition: i32,
        (of, id): (u32, u32),
        kind: i32,
        name: &[u8],
    ) -> Result<(), VosError> {
        let there = self.one(partition, id)?;
        let held = AfsTransaction::begin(*self, of, partition, transaction_flag::BUSY)?;
        match there {
            Some(_) => held.clone_again(id)?,
            None => held.clone_as(kind, name, id)?,
        }
        held.end()
    }
}
