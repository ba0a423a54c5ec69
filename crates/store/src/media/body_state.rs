//! The state of one body beyond its records: whom it belongs to at this moment, how far it is on
//! disk, and the open file.
//!
//! Model. *Content*: the blocks match their sums (`Summed`), may disagree with them (`Suspect`), or
//! kernels write into the file without notice to the store (`Lent`).
//!
//! ```text
//!            dropped update, crash              end of the loan
//!   Summed ---------------------> Suspect <--------------------- Lent
//!      ^                           |   |                          ^
//!      +------ summed anew --------+   +------------ loan --------+ (also from Summed)
//! ```
//!
//! *File*: the log has a mark while the file may have writes that are not on disk. The directory
//! entry and the record of an inline body that the file replaced are settled with the mark. A new
//! file begins with its mark (`begin_file`); the update that created it may still be dropped
//! (`undo_file`).

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use types::{VnodeNo, VolumeId};

use super::disk::{BodyFile, Disk, Stamp, open_body};
use crate::StoreError;
use crate::format::names::BodyName;

/// The key of a body: tree and vnode.
pub(crate) type BodyId = (VolumeId, VnodeNo);

/// A mark in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) name: BodyName,
    /// The number of its batch.
    pub(crate) batch: u64,
    /// The body's size when it was marked: a crash must not damage blocks below it unmarked.
    pub(crate) size: u64,
}

/// A loan to kernels.
#[derive(Clone, Copy, Debug)]
struct Loan {
    /// Kernels may have the file mapped for writing. Stores into a page that is dirty already do
    /// not change the times.
    mapped: bool,
    /// The state of the file from which the records were last updated.
    settled: Option<Stamp>,
    /// No session has the body any more: what changes the file is the store.
    returned: bool,
}

/// How the bytes relate to their sums.
#[derive(Clone, Copy, Debug)]
enum Content {
    Summed,
    Suspect,
    Lent(Loan),
}

/// The state of a body before an update gave it a new file.
#[derive(Clone, Copy)]
pub(crate) struct FormerFile {
    mark: Option<Mark>,
    content: Content,
    backup: bool,
}

/// The state, see the head of the file.
pub(crate) struct BodyState {
    id: BodyId,
    /// The lent bodies of the partition.
    all_lent: Arc<Mutex<BTreeSet<BodyId>>>,
    file: Mutex<Option<(BodyName, Arc<dyn BodyFile>)>>,
    content: Content,
    /// The mark in the log that the file has unstable writes.
    mark: Option<Mark>,
    /// The file's directory entry may not be on disk.
    unsynced_name: bool,
    /// The record of the inline body that the file replaced still exists.
    backup: bool,
    /// The file has no bytes behind the end.
    trimmed: bool,
    /// Counts writes, so that a sync can check whether it covered all.
    writes: u64,
}

impl BodyState {
    pub(super) fn new(id: BodyId, all_lent: Arc<Mutex<BTreeSet<BodyId>>>) -> BodyState {
        BodyState {
            id,
            all_lent,
            file: Mutex::default(),
            content: Content::Summed,
            mark: None,
            unsynced_name: false,
            backup: false,
            trimmed: false,
            writes: 0,
        }
    }

    /// The open file, opened if necessary; `None` if it does not exist.
    pub(crate) fn file(
        &self,
        disk: &dyn Disk,
        name: BodyName,
    ) -> Result<Option<Arc<dyn BodyFile>>, StoreError> {
        let mut cached = self.file.lock();
        if let Some((of, file)) = &*cached
            && *of == name
        {
            return Ok(Some(file.clone()));
        }
        let file = open_body(disk, name).map_err(|e| StoreError::from_io("open of a body", &e))?;
        *cached = file.clone().map(|file| (name, file));
        Ok(file)
    }

    pub(crate) fn close(&mut self) {
        *self.file.get_mut() = None;
    }

    /// Whether blocks may disagree with their sums.
    pub(crate) fn is_doubtful(&self) -> bool {
        !matches!(self.content, Content::Summed)
    }

    /// Whether the sums are to be computed anew.
    pub(crate) fn is_suspect(&self) -> bool {
        matches!(self.content, Content::Suspect)
    }

    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.content, Content::Lent(_))
    }

    /// Whether kernels may have the file mapped for writing.
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.content, Content::Lent(Loan { mapped: true, .. }))
    }

    /// Of a lent body: the state of the file from which the records were last updated.
    pub(crate) fn settled(&self) -> Option<Stamp> {
        if let Content::Lent(loan) = self.content { loan.settled } else { None }
    }

    pub(crate) fn mark(&self) -> Option<Mark> {
        self.mark
    }

    pub(crate) fn has_unsynced_name(&self) -> bool {
        self.unsynced_name
    }

    pub(crate) fn has_backup(&self) -> bool {
        self.backup
    }

    pub(crate) fn is_trimmed(&self) -> bool {
        self.trimmed
    }

    pub(crate) fn writes(&self) -> u64 {
        self.writes
    }

    /// Whether this state exists nowhere else.
    pub(crate) fn must_stay(&self) -> bool {
        self.mark.is_some() || self.is_doubtful() || self.unsynced_name
    }

    /// The only place where the content changes: keeps the list of lent bodies.
    fn become_content(&mut self, to: Content, why: &'static str) {
        let (was, is) = (self.is_lent(), matches!(to, Content::Lent(_)));
        if was != is {
            let mut all_lent = self.all_lent.lock();
            let changed = if is { all_lent.insert(self.id) } else { all_lent.remove(&self.id) };
            debug_assert!(changed, "PT-2: the list of lent bodies follows their state: {why}");
        }
        tracing::trace!(volume = self.id.0.0, vnode = self.id.1.0, ?to, why, "body changes");
        self.content = to;
    }

    /// The file may differ from the sums: a crash, or an update that wrote and was dropped. A lent
    /// body stays lent, which is more doubt.
    pub(crate) fn become_suspect(&mut self, why: &'static str) {
        if !self.is_lent() {
            self.become_content(Content::Suspect, why);
        }
        self.trimmed = false;
    }

    /// The sums were computed from the file, or there is no file.
    pub(crate) fn become_summed(&mut self, why: &'static str) {
        assert!(!self.is_lent(), "PT-2: sums of a lent body mean nothing: {why}");
        self.become_content(Content::Summed, why);
    }

    /// A loan begins; the log has the mark of the loan.
    pub(crate) fn become_lent(&mut self, mapped: bool, settled: Option<Stamp>, why: &'static str) {
        assert!(self.mark.is_some(), "PT-2: a restart finds each loan by its mark: {why}");
        debug_assert!(!self.is_lent(), "PT-2: a body is lent once: {why}");
        self.become_content(Content::Lent(Loan { mapped, settled, returned: false }), why);
    }

    /// Kernels may map the lent body from now on.
    pub(crate) fn map(&mut self) {
        let Content::Lent(loan) = &mut self.content else {
            unreachable!("PT-2: only a lent body is mapped")
        };
        loan.mapped = true;
        loan.returned = false;
    }

    /// No session has the body any more, if it is lent.
    pub(crate) fn be_returned(&mut self) {
        if let Content::Lent(loan) = &mut self.content {
            loan.returned = true;
        }
    }

    /// The store changed the file and the records. Unless a kernel may have changed it too, they
    /// match.
    pub(crate) fn settle_own_change(&mut self) {
        if let Content::Lent(loan) = &mut self.content
            && loan.returned
            && let Some((_, file)) = &*self.file.lock()
            && let Ok(stamp) = file.stamp()
        {
            loan.settled = Some(stamp);
        }
    }

    /// The records of the lent body match this state of its file.
    pub(crate) fn settle_loan(&mut self, stamp: Stamp) {
        if let Content::Lent(loan) = &mut self.content {
            loan.settled = Some(stamp);
        }
    }

    /// The loan is over; `in_file`: the body is still in a file, which is to be summed anew.
    pub(crate) fn end_loan(&mut self, in_file: bool, why: &'static str) {
        debug_assert!(self.is_lent(), "PT-2: only a loan ends: {why}");
        debug_assert!(
            !in_file || self.mark.is_some(),
            "PT-2: the doubt after a loan survives a restart: {why}"
        );
        self.become_content(if in_file { Content::Suspect } else { Content::Summed }, why);
        // A sync in progress must not remove the mark.
        self.writes += 1;
    }

    /// The state that [`BodyState::undo_file`] needs after a new file.
    pub(crate) fn former(&self) -> FormerFile {
        FormerFile { mark: self.mark, content: self.content, backup: self.backup }
    }

    /// The new file exists, empty.
    pub(crate) fn begin_file(&mut self, name: BodyName, file: Arc<dyn BodyFile>) {
        assert!(
            self.mark.is_some_and(|mark| mark.name == name),
            "DU-1: a new file is marked before it exists"
        );
        *self.file.get_mut() = Some((name, file));
        self.become_content(Content::Summed, "new file");
        self.unsynced_name = true;
        self.trimmed = true;
    }

    /// The update that gave the body a new file was dropped: back to what it had before.
    pub(crate) fn undo_file(&mut self, former: FormerFile) {
        self.close();
        self.become_content(former.content, "dropped update");
        self.mark = former.mark;
        self.unsynced_name = false;
        self.backup = former.backup;
    }

    /// The body's file is gone with its records.
    pub(crate) fn lose_file(&mut self) {
        self.close();
        self.become_content(Content::Summed, "body removed");
        self.mark = None;
        self.unsynced_name = false;
        self.backup = false;
        self.trimmed = false;
    }

    /// At a start: the log has the file's mark, with or without a loan.
    pub(crate) fn recall(&mut self, name: BodyName, lent: bool) {
        self.mark = Some(Mark { name, batch: 0, size: u64::MAX });
        self.unsynced_name = true;
        if lent {
            self.become_lent(true, None, "start");
        } else {
            self.become_suspect("start");
        }
    }

    /// The log has the file's mark.
    pub(crate) fn set_mark(&mut self, mark: Mark) {
        debug_assert!(
            self.mark.is_none_or(|known| known.name != mark.name),
            "DU-1: the mark of {:?} would forget which bytes were there first",
            mark.name
        );
        self.mark = Some(mark);
    }

    /// The directory entry may not be on disk.
    pub(crate) fn doubt_name(&mut self) {
        self.unsynced_name = true;
    }

    /// Whether the record of the inline body that the file replaced is kept.
    pub(crate) fn set_backup(&mut self, backup: bool) {
        self.backup = backup;
    }

    /// Whether it is known that the file has no bytes behind the end.
    pub(crate) fn set_trimmed(&mut self, trimmed: bool) {
        self.trimmed = trimmed;
    }

    /// The file changes.
    pub(crate) fn count_write(&mut self) {
        self.writes += 1;
    }

    /// The file is on disk up to the given write: the mark goes. Returns whether a backup goes with
    /// it; `None`: a later write came, the body is in doubt, or has no mark.
    pub(crate) fn become_stable(&mut self, name: BodyName, writes: u64) -> Option<bool> {
        if self.writes != writes || self.mark.is_some_and(|mark| mark.name != name) {
            return None;
        }
        self.unsynced_name = false;
        if self.is_doubtful() {
            return None;
        }
        self.mark.take()?;
        Some(std::mem::take(&mut self.backup))
    }
}
