//! Volumes in transfer: a sealed epoch is read in parts, and received parts are applied and become
//! a volume (`store::stream`).
//!
//! Parts are sent and received without a check of rights, so only the superuser may make these
//! calls. A server that fetches from another one does so in threads of the driver
//! ([`TransferAgent`]).

use std::sync::Arc;

use bytes::Bytes;
use lease::Output;
use store::{
    FinishAs, IncomingState, NewClone, PART_BYTES_MIN, Partition, StreamHead, StreamPart,
    VolumeQuota,
};
use types::{
    Answer, Fault, Finish, IncomingTree, Name, PartitionNo, Pull, StreamCursor, TaskInfo, Time,
    Timestamp, VolumeCall, VolumeId, VolumeInfo, VolumeKind, is_volume_name, limits,
};

use super::volume_info::{info, new_number, shown_by};
use crate::call::{CallContext, CallOutcome};
use crate::calls::end_idle_loans;
use crate::cell::CellLink;
use crate::files::Files;
use crate::gate::Gate;
use crate::sessions::Loans;

/// The driver's threads that fetch from other servers.
pub trait TransferAgent: Send + Sync {
    /// Begins a pull, or returns the same one that runs already.
    ///
    /// # Errors
    /// `Busy` if too many run.
    fn pull(&self, pull: &Pull) -> Result<TaskInfo, Fault>;

    /// All running tasks, and those that ended lately.
    fn tasks(&self) -> Vec<TaskInfo>;

    /// Ends a running task at its next step.
    ///
    /// # Errors
    /// `NotFound` if there is none of this number.
    fn end_task(&self, number: u64) -> Result<TaskInfo, Fault>;
}

/// See the head of the file.
pub(crate) struct Transfers {
    pub(super) files: Arc<Files>,
    pub(super) loans: Arc<Loans>,
    pub(super) cell: Arc<CellLink>,
    pub(super) gate: Arc<Gate>,
    pub(super) agent: Option<Arc<dyn TransferAgent>>,
}

impl Transfers {
    pub fn new(
        files: Arc<Files>,
        loans: Arc<Loans>,
        cell: Arc<CellLink>,
        gate: Arc<Gate>,
        agent: Option<Arc<dyn TransferAgent>>,
    ) -> Transfers {
        Transfers { files, loans, cell, gate, agent }
    }

    /// Whether the caller of the pull may fetch a volume with this name.
    pub fn may_pull(&self, tree: VolumeId, name: &Name) -> bool {
        self.gate.may_pull(tree, name)
    }

    /// Executes the calls of this file.
    pub(super) fn transfer(
        &self,
        ask: &mut CallContext<'_>,
        call: &VolumeCall,
    ) -> Result<CallOutcome, Fault> {
        let transfers = || self.agent.as_ref().ok_or(Fault::Unsupported);
        Ok(CallOutcome::Answer(match call {
            VolumeCall::Changes { id, since, cursor, bytes_max, packed } => {
                self.changes_part(*id, *since, *cursor, (*bytes_max, *packed))?
            }
            VolumeCall::Apply { partition, tree, part, over } => {
                self.apply_part(ask, *partition, *tree, part, *over)?
            }
            VolumeCall::Incoming { tree } => self.incoming_trees(*tree)?,
            VolumeCall::Finish { partition, tree, finish } => {
                let (made, replaced) =
                    self.finish_stored(*partition, *tree, finish, None, ask.wall)?;
                let answer = Answer::Volumes { volumes: made.into_iter().collect(), end: true };
                return match replaced {
                    Some(replaced) => {
                        Ok(self.files.coherence().break_volume(ask, replaced, answer))
                    }
                    None => Ok(CallOutcome::Answer(answer)),
                };
            }
            VolumeCall::Pull(pull) => {
                self.gate.note_pull(ask.caller, pull.tree)?;
                Answer::Tasks(vec![transfers()?.pull(pull)?])
            }
            VolumeCall::EndTask { number } => Answer::Tasks(vec![transfers()?.end_task(*number)?]),
            _ => Answer::Tasks(transfers()?.tasks()),
        }))
    }

    pub(super) fn changes_part(
        &self,
        id: VolumeId,
        since: u64,
        cursor: StreamCursor,
        (bytes_max, packed): (u32, bool),
    ) -> Result<Answer, Fault> {
        let bytes_max = (bytes_max as usize).min(limits::PAYLOAD_BYTES_MAX);
        if bytes_max < PART_BYTES_MIN {
            return Err(Fault::Invalid);
        }
        let volume = self.files.volumes().any_volume(id)?;
        Ok(Answer::Part(if packed {
            store::packed_changes_part(&volume.store, since, cursor, bytes_max)?
        } else {
            store::changes_part(&volume.store, since, cursor, bytes_max)?
        }))
    }

    /// Applies the first part, or answers where the same stream continues.
    fn apply_part(
        &self,
        ask: &mut CallContext<'_>,
        no: PartitionNo,
        tree: VolumeId,
        bytes: &Bytes,
        over: bool,
    ) -> Result<Answer, Fault> {
        let partition = self.files.volumes().partitions().get(no)?;
        let part = StreamPart::open(bytes)?;
        if part.from == StreamCursor::START {
            self.need_tree_nowhere_else(no, tree)?;
            self.files.volumes().partitions().may_take(no, tree)?;
            let cursor = if over {
                self.begin_over(ask, tree, &part.head)?
            } else {
                partition.streams().begin_incoming(tree, &part.head)?
            };
            if cursor > StreamCursor::START {
                return Ok(Answer::Cursor(cursor));
            }
        }
        Ok(Answer::Cursor(partition.streams().apply_part(tree, bytes)?))
    }

    /// Recalls all delegations in the volume before the stream begins.
    fn begin_over(
        &self,
        ask: &mut CallContext<'_>,
        tree: VolumeId,
        head: &StreamHead,
    ) -> Result<StreamCursor, Fault> {
        let volume = self.files.volumes().any_volume(tree)?;
        if volume.store.is_arriving() || volume.is_away() {
            return Err(Fault::Offline);
        }
        if !volume.store.is_being_restored() {
            volume.need_writable()?;
            self.files.bring_in(ask, &volume)?;
            end_idle_loans(&self.files, &self.loans, &volume)?;
        }
        let begun = volume.partition.streams().begin_over(tree, head);
        volume.allow_delegations();
        Ok(begun?)
    }

    fn incoming_trees(&self, wanted: Option<VolumeId>) -> Result<Answer, Fault> {
        let (mut trees, mut base) = (Vec::new(), None);
        for (partition, store) in self.files.volumes().partitions().numbered() {
            let found = store
                .streams()
                .incomings()?
                .into_iter()
                .filter(|one| wanted.is_none_or(|wanted| one.tree == wanted));
            trees.extend(found.map(|one| IncomingTree {
                partition,
                tree: one.tree,
                over: one.over,
                since: one.head.since,
                epoch: one.head.epoch,
                bytes: one.bytes,
                used_bytes: one.head.usage.bytes,
            }));
            if let Some(wanted) = wanted {
                base = base.or(store.volumes().base_epoch(wanted)?);
            }
        }
        Ok(Answer::Incoming { trees, base: base.unwrap_or(0) })
    }

    /// # Errors
    /// `Exists` if another partition of this server has the tree.
    fn need_tree_nowhere_else(&self, no: PartitionNo, tree: VolumeId) -> Result<(), Fault> {
        match self.files.volumes().partitions().of_tree(tree)? {
            Some(other) if other != no => Err(Fault::Exists),
            _ => Ok(()),
        }
    }

    /// The target of a pull: the partition, and the epochs of the tree that are there, newest
    /// first.
    ///
    /// # Errors
    /// `Exists` if another partition has the tree; `Invalid` if there is no such partition;
    /// `Medium` if it has nothing of the tree and is not well (PH-3).
    pub fn place_of_pull(&self, pull: &Pull) -> Result<(PartitionNo, Partition, Vec<u64>), Fault> {
        let there = match self.files.volumes().partitions().of_tree(pull.tree)? {
            // No client uses that copy: it is the rest of an abandoned move between partitions.
            Some(there)
                if self
                    .files
                    .volumes()
                    .partitions()
                    .get(there)?
                    .volumes()
                    .tree_standing(pull.tree)?
                    == Some(IncomingState::Arrives) =>
            {
                None
            }
            there => there,
        };
        let no = match (pull.partition, there) {
            (Some(wanted), Some(there)) if wanted != there => return Err(Fault::Exists),
            (Some(no), _) | (None, Some(no)) => no,
            (None, None) => self.files.volumes().partitions().roomiest()?,
        };
        self.files.volumes().partitions().may_take(no, pull.tree)?;
        let partition = self.files.volumes().partitions().get(no)?.clone();
        let mut epochs = partition.volumes().sealed_epochs(pull.tree)?;
        epochs.reverse();
        Ok((no, partition, epochs))
    }

    /// As the call [`VolumeCall::Finish`], for a caller without session: breaks are sent, and not
    /// awaited. `of`: no part was needed, since this view shows the epoch already.
    ///
    /// # Errors
    /// As that call.
    pub fn finish_incoming(
        &self,
        (now, wall): (Time, Timestamp),
        (no, tree): (PartitionNo, VolumeId),
        finish: &Finish,
        of: Option<VolumeId>,
        events: &mut Vec<Output>,
    ) -> Result<Option<VolumeInfo>, Fault> {
        let (made, replaced) = self.finish_stored(no, tree, finish, of, wall)?;
        if let Some(replaced) = replaced {
            self.files.coherence().leases().break_volume(now, replaced, events);
        }
        Ok(made)
    }

    /// Returns the volume that was made of the received parts (or of a view that shows the epoch
    /// already), and the volume whose contents changed.
    fn finish_stored(
        &self,
        no: PartitionNo,
        tree: VolumeId,
        finish: &Finish,
        of: Option<VolumeId>,
        wall: Timestamp,
    ) -> Result<(Option<VolumeInfo>, Option<VolumeId>), Fault> {
        let partition = self.files.volumes().partitions().get(no)?;
        let (finish, replaces) = match finish {
            Finish::Nothing => {
                partition.streams().abandon_incoming(tree)?;
                return Ok((None, None));
            }
            Finish::Over { updated } => {
                let known = self.files.volumes().any_volume(tree)?;
                let volume = partition.streams().finish_over(tree, updated.unwrap_or(wall))?;
                known.contents_replaced()?;
                return Ok((Some(info(no, volume.info())), Some(tree)));
            }
            Finish::View { id, name, kind, replace } => {
                if *kind == VolumeKind::ReadWrite || !is_volume_name(name.as_bytes(), *kind) {
                    return Err(Fault::Invalid);
                }
                let known = self.files.volumes().replaced(tree, name, *kind, *replace)?;
                let id = id
                    .or(known)
                    .map_or_else(|| new_number(self.files.volumes(), &self.cell), Ok)?;
                let new = NewClone {
                    id: Some(id),
                    name: name.clone(),
                    kind: *kind,
                    now: wall,
                    replaces: known,
                };
                (FinishAs::View(new), known)
            }
            Finish::ReadWrite { name, quota_bytes, quota_files, created, arriving, updated } => {
                self.files.volumes().need_free_name(name, VolumeKind::ReadWrite)?;
                let quota = VolumeQuota { bytes: *quota_bytes, files: *quota_files };
                let (name, created, arriving) = (name.clone(), *created, *arriving);
                let now = updated.unwrap_or(wall);
                (FinishAs::ReadWrite { name, quota, created, now, arriving }, None)
            }
        };
        if let (Some(of), Some(known)) = (of, replaces)
            && self.files.volumes().any_volume(of)?.store.epoch()
                == self.files.volumes().any_volume(known)?.store.epoch()
        {
            return Ok((
                Some(info(no, self.files.volumes().any_volume(known)?.store.info())),
                None,
            ));
        }
        let naming = self.files.volumes().begin_naming();
        let shown = shown_by(self.files.volumes(), replaces)?;
        if let FinishAs::View(new) = &finish
            && new.id != replaces
        {
            self.files.volumes().need_free_number(new.id.unwrap_or_default())?;
        }
        let volume = match (&finish, of) {
            (FinishAs::View(new), Some(view)) => partition.volumes().clone_volume(view, new)?,
            _ => partition.streams().finish_incoming(tree, &finish)?,
        };
        drop(naming);
        debug_assert!(
            shown <= Some(volume.epoch()),
            "VO-5: {replaces:?} would show an older epoch"
        );
        if let Some(replaced) = replaces {
            self.files.volumes().forget(replaced);
        }
        Ok((Some(info(no, volume.info())), replaces))
    }
}
