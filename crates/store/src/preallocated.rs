//! Preallocated bodies (blanks): empty files that kernels write new files' bodies into
//! (docs/spec/passthrough.md).
//!
//! A blank belongs to a session and has a number; only its file's name records this, because the
//! loss of a blank with the power harms no client. The adoption of a blank makes it a vnode's body:
//! its file gets the body's name *beside* its own, so that until the update is committed, also
//! after a restart of the server, the blank can be adopted again. Then its first name is removed.

use std::os::fd::OwnedFd;

use rand::Rng;
use types::{SessionId, VnodeNo};

use crate::body_loans::{put_lent_mark, stamp_of};
use crate::volume::Result;
use crate::{BodyLocation, Partition, StoreError, Update, Vnode, Volume};

/// The name of a blank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlankName {
    /// The session that owns the blank.
    pub session: SessionId,
    /// The number of the blank within the session.
    pub number: u64,
}

impl BlankName {
    /// The file's name.
    pub(crate) fn text(self) -> String {
        format!("{:x}.{:x}", self.session.0, self.number)
    }

    /// The blank with this file name.
    pub(crate) fn parse(text: &str) -> Option<BlankName> {
        let (session, number) = text.split_once('.')?;
        let parse = |text| u64::from_str_radix(text, 16).ok();
        let name = BlankName { session: SessionId(parse(session)?), number: parse(number)? };
        (name.text() == text).then_some(name)
    }
}

impl Partition {
    /// Creates a blank, with a descriptor for reading it; `None` where bodies have no descriptors.
    ///
    /// # Errors
    /// `Medium`, `NoSpace`.
    pub fn make_blank(&self, session: SessionId) -> Result<(BlankName, Option<OwnedFd>)> {
        let media = &self.0.media;
        media.usable()?;
        media.room_for(crate::BLOCK_BYTES)?;
        let name = BlankName { session, number: self.0.rng.lock().random() };
        let file = media.disk.make_blank(name).map_err(|e| StoreError::from_io("new blank", &e))?;
        let descriptor =
            file.descriptor().map_err(|e| StoreError::from_io("descriptor of a blank", &e))?;
        Ok((name, descriptor))
    }

    /// All blanks.
    ///
    /// # Errors
    /// `Medium`.
    pub fn blanks(&self) -> Result<Vec<BlankName>> {
        self.0.media.disk.blanks().map_err(|e| StoreError::from_io("list of blanks", &e))
    }

    /// Removes a blank; succeeds if there is none. The body of an adopted blank stays.
    ///
    /// # Errors
    /// `Medium`.
    pub fn remove_blank(&self, name: BlankName) -> Result<()> {
        self.0
            .media
            .disk
            .remove_blank(name)
            .map_err(|e| StoreError::from_io("removal of a blank", &e))
    }
}

impl Volume {
    /// Makes the blank with its content the body of the vnode, in place of the old one; the body is
    /// lent from then on. The caller puts the vnode, and calls [`Volume::end_adoption`] after the
    /// commit.
    ///
    /// # Errors
    /// As [`Volume::write`]; `Misuse` if a kernel has the file of the old body, or there is no such
    /// blank.
    pub fn adopt(&self, vnode: &mut Vnode, blank: BlankName, update: &mut Update) -> Result<()> {
        self.writable()?;
        let media = &self.tree_state.media;
        if vnode.handed && matches!(vnode.place, BodyLocation::File { .. }) {
            return Err(StoreError::Misuse("a kernel has another body of this file"));
        }
        let open =
            media.disk.open_blank(blank).map_err(|e| StoreError::from_io("open of a blank", &e))?;
        let file = open.ok_or(StoreError::Misuse("there is no such blank"))?;
        // Stable bytes must be stable in the new body before the old one goes (DU-1).
        let had_bytes = vnode.status.size > 0;
        if had_bytes {
            media.sync_disk(|| file.sync())?;
        }
        self.drop_body(vnode, update);
        self.new_file(vnode, update, |disk, name| {
            let adopted = disk.adopt_blank(blank, name);
            let adopted =
                adopted.and_then(|found| found.ok_or_else(|| std::io::ErrorKind::NotFound.into()));
            adopted.map_err(|e| StoreError::from_io("new body", &e))
        })?;
        let no = vnode.no();
        let name =
            crate::reader::body_name(&self.tree(), vnode).expect("new_file puts it into a file");
        put_lent_mark(media, name)?;
        if had_bytes {
            media.sync_disk(|| media.disk.sync_name(name))?;
        }
        self.touch(no, update);
        let held = update.hold(&self.tree_state, no);
        held.gate.backup = false;
        held.gate.lent = true;
        held.gate.settled = None;
        if let Some(made) = &mut held.made {
            made.lent = true;
        }
        media.bodies.lent.lock().insert((self.tree_state.id, no));
        self.settle_lent(vnode, update).map(drop)
    }

    /// After the commit of the adoption: removes the blank's own name. That changes the file's time
    /// of change, and is no change of the body.
    ///
    /// # Errors
    /// `Medium`.
    pub fn end_adoption(&self, no: VnodeNo, blank: BlankName) -> Result<()> {
        let media = &self.tree_state.media;
        let gate = media.bodies.gate((self.tree_state.id, no));
        let mut gate = gate.write();
        media.write_out()?;
        media
            .disk
            .remove_blank(blank)
            .map_err(|e| StoreError::from_io("removal of a blank", &e))?;
        let vnode = self.tree().vnode(no)?;
        let name = vnode.and_then(|vnode| crate::reader::body_name(&self.tree(), &vnode));
        let (Some(name), Some(settled)) = (name, gate.settled) else { return Ok(()) };
        let Some(file) = gate.file(&*media.disk, name)? else { return Ok(()) };
        let stamp = stamp_of(&*file)?;
        // A write of a kernel meanwhile would have changed the time of modification too.
        if (stamp.length, stamp.times[0]) == (settled.length, settled.times[0]) {
            gate.settled = Some(stamp);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_in_their_one_form() {
        let name = BlankName { session: SessionId(0x1f), number: 0xabc };
        assert_eq!(BlankName::parse(&name.text()), Some(name));
        for strange in ["1f", "1f.", "01f.abc", "1F.abc", "1f.abc.0", ".", "1f.abcg"] {
            assert_eq!(BlankName::parse(strange), None, "{strange}");
        }
    }
}
