//! A tree on two partitions of one server, while a volume moves from one to the other.
//!
//! Model. The copy arrives under the same number of the tree, and each of its volumes is a *twin*
//! of its source: the same number, name and epoch. Its tree is marked as arriving from its first
//! part on, so numbers and names mean the volumes of the other partition as long as these exist
//! ([`store::IncomingState`]), and no client is served from the copy. The cell's database decides
//! which of the two is removed: never the site that it names for a group. When the read-write
//! volume is removed, its number means the arrived one, which then gets the call to serve, or finds
//! it out from the database (`freeze.rs`).
//!
//! The copy is read part by part, as a stream from another server is; only nothing goes over a
//! network.

use store::{FinishAs, IncomingState, NewClone, Partition, VolumeQuota};
use types::{
    Answer, Beside, Fault, Finish, Name, PartitionNo, Pull, SiteKind, TaskInfo, TaskState,
    Timestamp, VolumeCall, VolumeId, VolumeKind,
};

use super::freeze::end_freeze;
use super::transfer::Transfers;
use super::volume_info::examine;
use crate::call::{CallContext, CallOutcome};

/// The twin of a volume that shows a sealed epoch.
struct Twin<'t> {
    tree: VolumeId,
    id: VolumeId,
    name: &'t Name,
    kind: VolumeKind,
    epoch: u64,
}

impl Transfers {
    pub(super) fn beside(
        &self,
        ask: &mut CallContext<'_>,
        id: VolumeId,
        no: PartitionNo,
        what: Beside,
    ) -> Result<CallOutcome, Fault> {
        match what {
            Beside::Show | Beside::Arrive => self.copy_beside(ask, id, no, what == Beside::Arrive),
            Beside::Leave => self.leave_beside(ask, id, no),
        }
    }

    /// Begins to copy, or returns the copy that runs.
    fn copy_beside(
        &self,
        ask: &CallContext<'_>,
        id: VolumeId,
        no: PartitionNo,
        arrives: bool,
    ) -> Result<CallOutcome, Fault> {
        let transfers = self.agent.as_ref().ok_or(Fault::Unsupported)?;
        self.files.volumes().partitions().get(no)?;
        let volume = self.files.volumes().any_volume(id)?;
        if volume.store.is_writable() || volume.no == no {
            return Err(Fault::Invalid);
        }
        let tree = volume.store.tree_id();
        self.files.volumes().partitions().may_take(no, tree)?;
        let finish = if arrives {
            let head = self.files.volumes().any_volume(tree)?.store.info();
            let (quota_bytes, quota_files) = (head.quota.bytes, head.quota.files);
            Finish::ReadWrite {
                name: head.name,
                quota_bytes,
                quota_files,
                created: head.created,
                arriving: true,
                updated: Some(head.updated),
            }
        } else {
            let (name, kind) = (volume.store.name(), volume.store.kind());
            Finish::View { id: Some(id), name, kind, replace: true }
        };
        self.gate.note_pull(ask.caller, tree)?;
        let task =
            transfers.pull(&Pull { from: Vec::new(), id, partition: Some(no), tree, finish })?;
        Ok(CallOutcome::Answer(Answer::Tasks(vec![task])))
    }

    /// Answers the questions of a pull that reads from this very server.
    ///
    /// # Errors
    /// As these calls.
    pub fn answer_here(&self, call: &VolumeCall) -> Result<Answer, Fault> {
        match call {
            VolumeCall::Examine { volume } => examine(&self.files, volume),
            VolumeCall::Changes { id, since, cursor, bytes_max, packed } => {
                self.changes_part(*id, *since, *cursor, (*bytes_max, *packed))
            }
            _ => Err(Fault::Unsupported),
        }
    }

    /// The place where the copy arrives, with the epochs of the tree that are there, newest first.
    /// The rest of a stopped attempt is removed, since the source has changed.
    pub(super) fn place_beside(
        &self,
        tree: VolumeId,
        no: PartitionNo,
    ) -> Result<(PartitionNo, Partition, Vec<u64>), Fault> {
        let partition = self.files.volumes().partitions().get(no)?.clone();
        if let Some(head) = partition.volumes().volume(tree)? {
            if head.standing() != IncomingState::Arrives {
                return Err(Fault::Exists);
            }
            partition.remove_volume(tree)?;
            mark(&partition, tree, true)?;
        }
        let mut epochs = partition.volumes().sealed_epochs(tree)?;
        epochs.reverse();
        Ok((no, partition, epochs))
    }

    /// Turns the received parts into the twin of their source volume, or into the arriving volume.
    /// `shown`: no part was needed, since this view shows the epoch there.
    ///
    /// # Errors
    /// As `Finish`.
    pub(super) fn finish_beside(
        &self,
        pull: &Pull,
        shown: Option<VolumeId>,
        wall: Timestamp,
    ) -> Result<(), Fault> {
        let no = pull.partition.ok_or(Fault::Invalid)?;
        let partition = self.files.volumes().partitions().get(no)?;
        let source = self.files.volumes().any_volume(pull.id)?;
        if source.no == no {
            return Err(Fault::Exists);
        }
        let (name, kind, epoch) = (source.store.name(), source.store.kind(), source.store.epoch());
        let twin = Twin { tree: pull.tree, id: pull.id, name: &name, kind, epoch };
        let _naming = self.files.volumes().begin_naming();
        let Finish::ReadWrite { name, quota_bytes, quota_files, created, updated, .. } =
            &pull.finish
        else {
            return make_twin(partition, &twin, shown, wall);
        };
        let quota = VolumeQuota { bytes: *quota_bytes, files: *quota_files };
        let (name, created) = (name.clone(), *created);
        let now = updated.unwrap_or(wall);
        let arrives = FinishAs::ReadWrite { name, quota, created, now, arriving: true };
        partition.streams().finish_incoming(pull.tree, &arrives)?;
        // Later writes there belong to an epoch that was never written here.
        make_twin(partition, &twin, Some(pull.tree), wall)
    }

    fn leave_beside(
        &self,
        ask: &mut CallContext<'_>,
        tree: VolumeId,
        no: PartitionNo,
    ) -> Result<CallOutcome, Fault> {
        let partition = self.files.volumes().partitions().get(no)?;
        if partition.volumes().tree_standing(tree)?.is_none() {
            return Ok(CallOutcome::Answer(Answer::Tasks(Vec::new())));
        }
        self.need_elsewhere(tree, no)?;
        if partition.volumes().volume(tree)?.is_some() {
            self.leave_head(ask, tree, no)?;
            return Ok(self.files.coherence().break_volume(ask, tree, more(tree)));
        }
        match partition.streams().abandon_incoming(tree) {
            Ok(()) | Err(store::StoreError::NoVolume(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let Some(view) = partition.volumes().any_view(tree)? else {
            // The records that remain may belong to clones.
            mark(partition, tree, false)?;
            return Ok(CallOutcome::Answer(Answer::Tasks(Vec::new())));
        };
        partition.remove_volume(view)?;
        self.files.volumes().forget(view);
        // A client that knows a twin knows the other one too.
        match self.files.volumes().any_volume(view) {
            Ok(_) => Ok(CallOutcome::Answer(more(tree))),
            Err(Fault::NoVolume) => Ok(self.files.coherence().break_volume(ask, view, more(tree))),
            Err(fault) => Err(fault),
        }
    }

    fn leave_head(
        &self,
        ask: &mut CallContext<'_>,
        tree: VolumeId,
        no: PartitionNo,
    ) -> Result<(), Fault> {
        let volume = self.files.volumes().any_volume(tree)?;
        let partition = self.files.volumes().partitions().get(no)?;
        if volume.no == no {
            self.files.bring_in(ask, &volume)?;
        }
        partition.remove_volume(tree)?;
        self.files.volumes().forget(tree);
        end_freeze(self.files.volumes(), tree, &mut ask.events);
        // Loads the arrived volume, so that it serves even if the mover never sends the call.
        match self.files.volumes().any_volume(tree) {
            Ok(_) | Err(Fault::NoVolume) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Checks in the cell's database that the group has no site on this partition, and that its
    /// site on another partition of this server exists.
    ///
    /// # Errors
    /// `Conflict`; `CellAway`.
    fn need_elsewhere(&self, tree: VolumeId, no: PartitionNo) -> Result<(), Fault> {
        let db = self.cell.db()?.ok_or(Fault::Unsupported)?;
        let group = db.group_of(tree)?.ok_or(Fault::Conflict)?.record;
        let me = self.cell.me().id;
        for site in group.sites.iter().filter(|site| site.server == me) {
            let there = self
                .files
                .volumes()
                .partitions()
                .called(&site.partition)
                .filter(|there| *there != no)
                .ok_or(Fault::Conflict)?;
            let partition = self.files.volumes().partitions().get(there)?;
            let is_there = match site.kind {
                SiteKind::ReadWrite => partition.volumes().volume(tree)?.is_some(),
                SiteKind::ReadOnly => {
                    site.epoch == 0 || partition.volumes().tree_standing(tree)?.is_some()
                }
                SiteKind::Standby | SiteKind::AsyncStandby => true,
            };
            if !is_there {
                return Err(Fault::Conflict);
            }
        }
        Ok(())
    }
}

/// `of`: the source or the view that shows the epoch; `None`: the received parts.
fn make_twin(
    partition: &Partition,
    twin: &Twin<'_>,
    of: Option<VolumeId>,
    wall: Timestamp,
) -> Result<(), Fault> {
    let known = partition.volumes().volume_named(twin.name.as_bytes())?;
    if let Some(known) = &known {
        let same = (known.id(), known.tree_id(), known.kind()) == (twin.id, twin.tree, twin.kind);
        if !same {
            return Err(Fault::Exists);
        }
        if known.epoch() == twin.epoch {
            return Ok(());
        }
    }
    let replaces = known.map(|known| known.id());
    let new = NewClone {
        id: Some(twin.id),
        name: twin.name.clone(),
        kind: twin.kind,
        now: wall,
        replaces,
    };
    match of {
        Some(of) => partition.volumes().clone_volume(of, &new)?,
        None => partition.streams().finish_incoming(twin.tree, &FinishAs::View(new))?,
    };
    Ok(())
}

/// Marks the rest of the tree as an arriving copy, or removes the mark.
fn mark(partition: &Partition, tree: VolumeId, arriving: bool) -> Result<(), Fault> {
    if partition.volumes().tree_standing(tree)?.is_some() {
        partition.volumes().tree_arrives(tree, arriving)?;
    }
    Ok(())
}

/// An answer that more of the tree is to be removed.
fn more(tree: VolumeId) -> Answer {
    Answer::Tasks(vec![TaskInfo {
        number: 0,
        tree,
        state: TaskState::Runs,
        since: 0,
        epoch: 0,
        bytes: 0,
        total_bytes: 0,
        text: "it leaves".to_owned(),
    }])
}
