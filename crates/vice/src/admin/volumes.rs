//! Calls of administrators on volumes, one function for each.
//!
//! A volume that is to be sealed, taken offline or removed is *brought in* first: all delegations
//! in it come back, and it gives none for a while. The call waits for that like any other that
//! meets a delegation, and is executed again. Then the store makes the change in one batch, and
//! where clients' knowledge of the volume becomes stale, the answer waits for the acknowledged
//! breaks (CB-1).

use std::sync::Arc;
use std::time::Duration;

use celldb::{CELL_LEVEL_KNOWN, CellError};
use serde_json::json;
use store::{
    FORMAT_VERSION, NewClone, NewFork, NewHead, NewRoot, VolumeFields, VolumeQuota, format_of_level,
};
use types::posix::touch_status;
use types::{
    Answer, Fault, Fid, LevelAct, Name, PartitionNo, Time, VnodeNo, VolumeCall, VolumeChange,
    VolumeId, VolumeKind, VolumeState, is_volume_name,
};

use super::freeze::{Freezing, end_freeze};
use super::transfer::Transfers;
use super::volume_info::{examine, info, new_number, shown_by};
use crate::call::{CallContext, CallOutcome};
use crate::calls::end_idle_loans;
use crate::cell::CellLink;
use crate::files::{Change, Files};
use crate::sessions::Loans;
use crate::volumes::{Load, ViceVolume, VolumeOptions};

/// Mode bits of a new volume's root.
const ROOT_MODE: u16 = 0o755;
/// Maximum number of volumes in one answer; a message has room for about so many.
const LISTED_MAX: u32 = 3000;
/// The same for counts of uses, which are text.
const LOADS_MAX: u32 = 1000;
/// How long a volume that goes offline answers reads that a client's kernel may be waiting for.
const READS_GO_ON: Duration = Duration::from_secs(3);

/// See the head of the file.
pub(crate) struct VolumeAdmin {
    files: Arc<Files>,
    loans: Arc<Loans>,
    cell: Arc<CellLink>,
    freezing: Arc<Freezing>,
    transfers: Arc<Transfers>,
}

impl VolumeAdmin {
    pub fn new(
        files: Arc<Files>,
        loans: Arc<Loans>,
        cell: Arc<CellLink>,
        freezing: Arc<Freezing>,
        transfers: Arc<Transfers>,
    ) -> VolumeAdmin {
        VolumeAdmin { files, loans, cell, freezing, transfers }
    }

    /// Executes a call.
    ///
    /// # Errors
    /// The refusal.
    pub fn administer(
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
            VolumeCall::Examine { volume } => examine(&self.files, volume)?,
            VolumeCall::Partitions => Answer::Partitions(self.files.volumes().partitions().infos()),
            VolumeCall::Format { partition, raise } => self.format(*partition, *raise)?,
            VolumeCall::Trust { partition } => {
                self.files.volumes().partitions().get(*partition)?.trust()?;
                Answer::Done
            }
            VolumeCall::Loads { partition, after, max } => {
                self.loads(*partition, *after, *max, ask.now)?
            }
            VolumeCall::Changes { .. }
            | VolumeCall::Apply { .. }
            | VolumeCall::Finish { .. }
            | VolumeCall::Pull(_)
            | VolumeCall::Incoming { .. }
            | VolumeCall::Tasks
            | VolumeCall::EndTask { .. } => return self.transfers.transfer(ask, call),
            VolumeCall::Hold { id, millis } => return self.freezing.hold_volume(ask, *id, *millis),
            VolumeCall::Serve { id } => return self.freezing.serve_volume(ask, *id),
            VolumeCall::TakeOver { copy, name, above } => {
                self.take_over(ask, *copy, name, *above)?
            }
            VolumeCall::StandBy { .. }
            | VolumeCall::Feed { .. }
            | VolumeCall::Follow(_)
            | VolumeCall::Standbys { .. }
            | VolumeCall::FailOver { .. }
            | VolumeCall::Inherit { .. } => return Err(Fault::Unsupported),
            VolumeCall::Beside { id, partition, what } => {
                return self.transfers.beside(ask, *id, *partition, *what);
            }
        };
        Ok(CallOutcome::Answer(answer))
    }

    /// Tells the format of a partition, and raises it to that of the cell's level (VE-6).
    fn format(&self, no: PartitionNo, raise: bool) -> Result<Answer, Fault> {
        let partition = self.files.volumes().partitions().get(no)?;
        let level = match self.cell.db()? {
            // A server without a cell has its partitions for itself.
            None => CELL_LEVEL_KNOWN,
            Some(db) => match db.access().level(&LevelAct::Ask) {
                Ok(found) => found.level,
                // The server that has the database is older than levels.
                Err(CellError::Away(Fault::Unsupported)) => 1,
                Err(error) => return Err(error.into()),
            },
        };
        let wanted = format_of_level(level);
        if raise {
            partition.raise_format(wanted)?;
        }
        let (format, newest) = (partition.format(), FORMAT_VERSION);
        let standbys = partition.has_standbys_format();
        let known = json!({
            "format": format, "newest": newest, "cell": wanted, "standbys": standbys,
        });
        Ok(Answer::Report(known.to_string()))
    }

    fn create_volume(
        &self,
        id: Option<VolumeId>,
        on: Option<PartitionNo>,
        (name, encrypt): (&Name, Option<bool>),
        root: &NewRoot,
    ) -> Result<Answer, Fault> {
        let on = on.map_or_else(|| self.files.volumes().partitions().roomiest(), Ok)?;
        self.files.volumes().partitions().need_well(on)?;
        let partition = self.files.volumes().partitions().get(on)?;
        self.files.volumes().need_free_name(name, VolumeKind::ReadWrite)?;
        let id = id.map_or_else(|| new_number(self.files.volumes(), &self.cell), Ok)?;
        let _naming = self.files.volumes().begin_naming();
        self.files.volumes().need_free_name(name, VolumeKind::ReadWrite)?;
        self.files.volumes().need_free_number(id)?;
        let encrypt = encrypt.unwrap_or_else(|| partition.volumes().encrypts());
        let volume = partition.volumes().create_volume_as(Some(id), name, root, encrypt)?;
        Ok(Answer::Volumes { volumes: vec![info(on, volume.info())], end: true })
    }

    fn remove_volume(&self, ask: &mut CallContext<'_>, id: VolumeId) -> Result<CallOutcome, Fault> {
        let volume = self.files.volumes().any_volume(id)?;
        self.files.bring_in(ask, &volume)?;
        volume.partition.remove_volume(id)?;
        self.files.volumes().forget(id);
        // Calls that waited for the volume find that it is removed.
        end_freeze(self.files.volumes(), id, &mut ask.events);
        let coherence = self.files.coherence();
        let outcome = coherence.break_volume(ask, id, Answer::Done);
        // Should the volume come back, what its clients have had here excludes no one.
        coherence.leases().locks_mut().forget_volume(id, &mut ask.events);
        coherence.leases().opens().forget_volume(id);
        Ok(outcome)
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
        let volume = self.files.volumes().any_volume(of)?;
        if (kind == VolumeKind::ReadWrite && replace) || !is_volume_name(name.as_bytes(), kind) {
            return Err(Fault::Invalid);
        }
        if volume.store.is_writable() {
            self.files.bring_in(ask, &volume)?;
            end_idle_loans(&self.files, &self.loans, &volume)?;
        }
        // Some clients know the replaced volume by its number.
        let known = self.files.volumes().replaced(volume.store.tree_id(), name, kind, replace)?;
        let id = id.or(known).map_or_else(|| new_number(self.files.volumes(), &self.cell), Ok)?;
        let naming = self.files.volumes().begin_naming();
        let replaces =
            self.files.volumes().replaced(volume.store.tree_id(), name, kind, replace)?;
        if replaces != Some(id) {
            self.files.volumes().need_free_number(id)?;
        }
        let shown = shown_by(self.files.volumes(), replaces)?;
        let (id, name) = (Some(id), name.clone());
        // A volume that arrives shows what it was elsewhere, as late as that was.
        let facts = volume.store.info();
        let now = if facts.arriving { facts.updated } else { ask.wall };
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
        volume.allow_delegations();
        let clone = cloned?;
        debug_assert!(shown <= Some(clone.epoch()), "VO-5: {id:?} would show an older epoch");
        let answer = Answer::Volumes { volumes: vec![info(volume.no, clone.info())], end: true };
        let Some(replaced) = replaces else { return Ok(CallOutcome::Answer(answer)) };
        self.files.volumes().forget(replaced);
        Ok(self.files.coherence().break_volume(ask, replaced, answer))
    }

    /// A copy becomes the read-write volume of its tree. It is in doubt from now on, until the
    /// database names this server and no client can trust the former one any more.
    fn take_over(
        &self,
        ask: &CallContext<'_>,
        copy: VolumeId,
        name: &Name,
        above: u64,
    ) -> Result<Answer, Fault> {
        let copy = self.files.volumes().any_volume(copy)?;
        let _naming = self.files.volumes().begin_naming();
        self.files.volumes().need_free_name(name, VolumeKind::ReadWrite)?;
        let id = copy.store.id();
        let why = NewHead::TakesOver { above };
        let taken = copy.partition.volumes().regain_head(id, name, why, ask.wall)?;
        let volume = self.files.volumes().any_volume(taken.id())?;
        debug_assert!(
            volume.is_away(),
            "VO-6: {:?} serves before the database says so",
            taken.id()
        );
        Ok(Answer::Volumes { volumes: vec![info(copy.no, taken.info())], end: true })
    }

    fn rename_volume(
        &self,
        ask: &CallContext<'_>,
        id: VolumeId,
        name: &Name,
    ) -> Result<Answer, Fault> {
        let volume = self.files.volumes().any_volume(id)?;
        let _naming = self.files.volumes().begin_naming();
        if volume.store.name() != *name {
            self.files.volumes().need_free_name(name, volume.store.kind())?;
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
        let volume = self.files.volumes().any_volume(id)?;
        let known = volume.store.quota();
        let wanted = VolumeQuota {
            bytes: change.quota_bytes.unwrap_or(known.bytes),
            files: change.quota_files.unwrap_or(known.files),
        };
        let offline = change.state.map(|state| state == VolumeState::Offline);
        let quota = (wanted != known).then_some(wanted);
        let goes_off = offline == Some(true) && !volume.store.is_offline();
        let comes_on = offline == Some(false) && volume.store.is_offline();
        if goes_off || quota.is_some() {
            // Sessions with delegations rely on room, and on a volume that is online.
            self.files.bring_in(ask, &volume)?;
        }
        if comes_on {
            self.freezing.take_claims(ask.now, id);
        }
        if goes_off {
            volume.answer_reads_until(ask.now + READS_GO_ON);
        }
        volume.partition.volumes().set_fields(
            id,
            VolumeFields { quota, offline, arriving: None },
            ask.wall,
        )?;
        volume.follow_header();
        volume.allow_delegations();
        let options = volume.options().after(change);
        if options != volume.options() {
            return self.set_options(ask, &volume, options);
        }
        if goes_off {
            Ok(self.files.coherence().end_volume(ask, id, Answer::Done))
        } else {
            Ok(CallOutcome::Answer(Answer::Done))
        }
    }

    /// Sets the options. Clients see them in each status or are refused, so all of them ask again.
    fn set_options(
        &self,
        ask: &mut CallContext<'_>,
        volume: &ViceVolume,
        options: VolumeOptions,
    ) -> Result<CallOutcome, Fault> {
        volume.need_writable()?;
        self.files.bring_in(ask, volume)?;
        let root = Fid::root(volume.store.id());
        let _held = self.files.write_lock(&[root]);
        let vnode = volume.store.vnode(VnodeNo::ROOT)?;
        let mut vnode = volume.marked(vnode.ok_or(Fault::Damaged)?);
        let mut change = Change::new(ask.scope, volume);
        options.write(&mut volume.store.edit(&mut vnode, &mut change.update))?;
        touch_status(&mut vnode.status, ask.wall);
        change.update.put_vnode(&vnode);
        change.change_options(options);
        let outcome = self.files.commit(ask, change, Answer::Done);
        volume.allow_delegations();
        outcome
    }

    fn list_volumes(&self, on: PartitionNo, after: VolumeId, max: u32) -> Result<Answer, Fault> {
        let max = max.min(LISTED_MAX) as usize;
        // One more shows whether the list is complete.
        let mut found =
            self.files.volumes().partitions().get(on)?.volumes().list(after, max + 1)?;
        let end = found.len() <= max;
        found.truncate(max);
        Ok(Answer::Volumes {
            volumes: found.into_iter().map(|volume| info(on, volume)).collect(),
            end,
        })
    }

    /// How much the volumes of a partition were used, in the order of their numbers.
    fn loads(
        &self,
        on: PartitionNo,
        after: VolumeId,
        max: u32,
        now: Time,
    ) -> Result<Answer, Fault> {
        let (volumes, loads) = (self.files.volumes(), self.files.volumes().loads());
        let partitions = volumes.partitions();
        partitions.get(on)?;
        let (mut listed, mut end) = (Vec::new(), true);
        for (id, Load { calls, bytes }) in loads.used(after, now) {
            if partitions.volume(id)?.is_none_or(|(no, _)| no != on) {
                continue;
            }
            if listed.len() == max.min(LOADS_MAX) as usize {
                end = false;
                break;
            }
            listed.push(json!({ "id": id.0, "calls": calls, "bytes": bytes }));
        }
        let seconds = loads.spans(now).as_secs();
        let known = json!({ "seconds": seconds, "end": end, "volumes": listed });
        Ok(Answer::Report(known.to_string()))
    }
}
