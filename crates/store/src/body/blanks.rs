//! Preallocated bodies (blanks): empty files that kernels write new files' bodies into
//! (docs/spec/passthrough.md).
//!
//! A blank belongs to a session and has a number; only its file's name records this, because the
//! loss of a blank with the power harms no client. The adoption of a blank makes it a vnode's body:
//! its file gets the body's name *beside* its own, so that until the update is committed, also
//! after a restart of the server, the blank can be adopted again. Then its first name is removed.

use types::VnodeNo;

use super::edit::BodyEdit;
use super::files::{LENT, failed, put_mark};
use super::loans::{BodyLoans, stamp_of};
use crate::error::Result;
use crate::format::names::BlankName;
use crate::{BodyLocation, StoreError};

impl BodyEdit<'_, '_> {
    /// Makes the blank with its content the body of the vnode, in place of the old one; the body is
    /// lent from then on. The caller calls [`BodyLoans::end_adoption`] after the commit.
    ///
    /// # Errors
    /// As [`BodyEdit::write`]; `Misuse` if a kernel has the file of the old body, or there is no
    /// such blank.
    pub fn adopt(&mut self, blank: BlankName) -> Result<()> {
        if self.vnode.handed && matches!(self.vnode.place, BodyLocation::File { .. }) {
            return Err(StoreError::Misuse("a kernel has another body of this file"));
        }
        let open = self.media().disk.open_blank(blank).map_err(failed("open of a blank"))?;
        let file = open.ok_or(StoreError::Misuse("there is no such blank"))?;
        // Stable bytes must be stable in the new body before the old one goes (DU-1).
        let had_bytes = self.vnode.status.size > 0;
        if had_bytes {
            self.media().sync_disk(|| file.sync())?;
        }
        self.drop_body();
        self.new_file(|disk, name| {
            let adopted = disk.adopt_blank(blank, name);
            let adopted =
                adopted.and_then(|found| found.ok_or_else(|| std::io::ErrorKind::NotFound.into()));
            adopted.map_err(failed("new body"))
        })?;
        let name = self.name();
        put_mark(self.media(), self.update.scope(), name, &LENT)?;
        if had_bytes {
            self.media().sync_disk(|| self.media().disk.sync_name(name))?;
        }
        let held = self.held();
        held.touch();
        held.gate.set_backup(false);
        held.gate.become_lent(false, None, "adopted");
        held.lends = true;
        self.settle().map(drop)
    }
}

impl BodyLoans<'_> {
    /// After the commit of the adoption: removes the blank's own name. That changes the file's time
    /// of change, and is no change of the body.
    ///
    /// # Errors
    /// `Medium`.
    pub fn end_adoption(&self, no: VnodeNo, blank: BlankName) -> Result<()> {
        let media = &self.tree_state.media;
        let gate = media.gates.gate((self.tree_state.id, no));
        let mut gate = gate.write();
        media.write_out()?;
        media.disk.remove_blank(blank).map_err(failed("removal of a blank"))?;
        let tree = self.tree_state.head();
        let name = tree.vnode(no)?.and_then(|vnode| tree.body_name(&vnode));
        let (Some(name), Some(settled)) = (name, gate.settled()) else { return Ok(()) };
        let Some(file) = gate.file(&*media.disk, name)? else { return Ok(()) };
        let stamp = stamp_of(&*file)?;
        // A write of a kernel meanwhile would have changed the time of modification too.
        if (stamp.length, stamp.times[0]) == (settled.length, settled.times[0]) {
            gate.settle_loan(stamp);
        }
        Ok(())
    }
}
