//! Body loans: kernels write into the file, and the records follow.
//!
//! Model (docs/spec/passthrough.md). From [`BodyEdit::lend`] to [`BodyLoans::end`] the file may
//! change at any moment without notice to the store; readers get the file's bytes, unchecked.
//! [`BodyEdit::settle`] updates size and block map from the file: a block with bytes that the
//! records call a hole gets the sum of zeros for the time being, because the sums of a lent body
//! mean only "no hole". Every other change of the body first does this in the same update, and then
//! changes the file in place.
//!
//! The times of the file show whether it changed. A store into a map sets them only at the page's
//! first change since it was last written to the disk. So where maps may exist, each settling takes
//! the times and then starts that writing: every later store changes the times again.
//!
//! The mark records the loan, so that after a restart of the server or the machine the body is
//! still lent and is settled before anything could cut off bytes behind the recorded end. After the
//! loan the body is in doubt as after a crash, and is summed anew in the background (PT-2).

use types::VnodeNo;

use super::edit::BodyEdit;
use super::files::{LENT, NOT_LENT, failed, put_mark};
use super::update::Update;
use crate::error::Result;
use crate::format::record::GROUP_BLOCKS;
use crate::format::sums;
use crate::media::disk::{BodyFile, Stamp};
use crate::tree::TreeState;
use crate::{BLOCK_BYTES, BodyLocation, Vnode};

impl BodyEdit<'_, '_> {
    /// Lends the body: kernels may write into it and map it for writing. A body without a file is
    /// moved into one. Does nothing if the body is lent already.
    ///
    /// # Errors
    /// As [`BodyEdit::write`].
    pub fn lend(&mut self) -> Result<()> {
        self.held();
        self.make_file()?;
        if self.held().gate.is_lent() {
            self.held().gate.map();
            return Ok(());
        }
        let file = self.begin()?;
        // Bytes that a crash left in holes must not become data.
        self.clear_all_strays(&*file)?;
        self.mark((self.vnode.status.size > 0).then_some(0))?;
        put_mark(self.media(), self.update.scope(), self.name(), &LENT)?;
        let stamp = stamp_of(&*file)?;
        let held = self.held();
        held.touch();
        held.gate.become_lent(true, Some(stamp), "loan");
        held.lends = true;
        Ok(())
    }

    /// Updates the vnode from the file of its lent body; returns whether the file had changed,
    /// `false` if the body is not lent. The caller puts the vnode if it had changed.
    ///
    /// # Errors
    /// As [`BodyEdit::write`].
    pub fn settle(&mut self) -> Result<bool> {
        // Without the gate: a writer may check the body first.
        let id = (self.tree.id, self.vnode.no());
        let in_file = matches!(self.vnode.place, BodyLocation::File { .. });
        if !in_file || !self.media().gates.is_lent(id) || !self.held().gate.is_lent() {
            return Ok(false);
        }
        let file = self.open()?;
        let stamp = stamp_of(&*file)?;
        if self.held().gate.settled() == Some(stamp) {
            return Ok(false);
        }
        // The next settling sees what is stored into a map from here on. Times that were taken
        // after the write-out would hide the stores that follow a first one into the same page.
        self.held().settles = Some(stamp);
        if self.held().gate.is_mapped() {
            file.settle_maps().map_err(failed("writing of a body"))?;
        }
        if stamp.length < self.vnode.status.size {
            self.cut_records(stamp.length)?;
        }
        self.vnode.status.size = stamp.length;
        self.map_data(&*file)?;
        // No change by the store: what a kernel changes meanwhile stays to be settled.
        self.held().gate.count_write();
        Ok(true)
    }

    /// Writes at the current end of the body; returns the offset. No kernel's append to a lent body
    /// comes in between.
    ///
    /// # Errors
    /// As [`BodyEdit::write`].
    pub fn append(&mut self, data: &[u8]) -> Result<u64> {
        self.settle()?;
        let id = (self.tree.id, self.vnode.no());
        if !self.media().gates.is_lent(id) || !self.held().gate.is_lent() {
            let end = self.vnode.status.size;
            return self.write(end, data).map(|()| end);
        }
        self.media().room_for(data.len() as u64)?;
        let file = self.open()?;
        self.held().touch();
        let at = file.append(data).map_err(failed("append to a body"))?;
        self.settle()?;
        Ok(at)
    }

    /// Marks blocks with bytes that the records call holes as data.
    fn map_data(&mut self, file: &dyn BodyFile) -> Result<()> {
        let (no, size) = (self.vnode.no(), self.vnode.status.size);
        let mut new = 0;
        let mut at = 0;
        while let Some(run) = file.next_data(at).map_err(failed("seek"))? {
            let blocks = run.start / BLOCK_BYTES..run.end.min(size).div_ceil(BLOCK_BYTES);
            for group in blocks.start / GROUP_BLOCKS..blocks.end.div_ceil(GROUP_BLOCKS) {
                let mut stored = self.update.sums(&self.tree, no, group)?;
                let before = new;
                for (block, sum) in (group * GROUP_BLOCKS..).zip(stored.iter_mut()) {
                    if *sum == 0 && blocks.contains(&block) {
                        *sum = *sums::OF_ZEROS;
                        new += 1;
                    }
                }
                if new > before {
                    self.update.set_sums(no, group, stored);
                }
            }
            at = run.end;
            if at >= size {
                break;
            }
        }
        self.charge_blocks(new);
        Ok(())
    }
}

/// The lent bodies of one tree.
pub struct BodyLoans<'a> {
    pub(super) tree_state: &'a TreeState,
}

impl BodyLoans<'_> {
    pub(crate) fn new(tree_state: &TreeState) -> BodyLoans<'_> {
        BodyLoans { tree_state }
    }

    /// Whether the body is lent.
    pub fn has(&self, no: VnodeNo) -> bool {
        self.tree_state.media.gates.is_lent((self.tree_state.id, no))
    }

    /// As [`BodyEdit::settle`]; the volume need not take changes.
    ///
    /// # Errors
    /// As [`BodyEdit::write`].
    pub fn settle(&self, vnode: &mut Vnode, update: &mut Update<'_>) -> Result<bool> {
        if !self.has(vnode.no()) {
            return Ok(false);
        }
        BodyEdit::new(self.tree_state, vnode, update).settle()
    }

    /// No session has the body any more, though processes may have it open for writing still. From
    /// now on a change by the store is no reason to settle: clients are not told of it twice.
    pub fn be_returned(&self, no: VnodeNo) {
        let media = &self.tree_state.media;
        media.gates.gate((self.tree_state.id, no)).write().be_returned();
    }

    /// Ends the loan if no process has the file open for writing and the records are up to date;
    /// returns whether it ended, `true` if the body is not lent. The caller ensures that no session
    /// has the body.
    ///
    /// # Errors
    /// `Medium`.
    pub fn end(&self, no: VnodeNo) -> Result<bool> {
        let media = &self.tree_state.media;
        let gate = media.gates.gate((self.tree_state.id, no));
        let mut gate = gate.write();
        if !gate.is_lent() {
            return Ok(true);
        }
        let tree = self.tree_state.head();
        let name = tree.vnode(no)?.and_then(|vnode| tree.body_name(&vnode));
        if let Some(name) = name {
            gate.close();
            let written = media.disk.is_written(name).map_err(failed("lease of a body"))?;
            let file = gate.file(&*media.disk, name)?;
            // Compared after the last writer is gone.
            let settled = file.is_none_or(|file| {
                gate.settled().is_some_and(|settled| file.stamp().ok() == Some(settled))
            });
            if written || !settled {
                return Ok(false);
            }
            put_mark(media, None, name, &NOT_LENT)?;
        }
        gate.end_loan(name.is_some(), "given back");
        Ok(true)
    }
}

pub(super) fn stamp_of(file: &dyn BodyFile) -> Result<Stamp> {
    file.stamp().map_err(failed("stat of a body"))
}
