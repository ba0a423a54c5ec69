//! Files of the head alone, and copies that sealed epochs continue to show when the head changes
//! them.
//!
//! Model. After a seal the head and the sealed epoch name the same body file. The first change in
//! the new epoch copies it, and the *sealed* epochs get the copy: kernels may have the file itself
//! for as long as the vnode lives (PT-4), and they only ever got the head's. The copy and its name
//! are on disk before one batch names it in all records of sealed epochs that named the file, and
//! notes in the head's own record that the file is the head's alone; the batch is on disk before
//! the file is changed. So after a crash the sealed epochs name either the file, unchanged, or the
//! copy (VO-1). Until the batch, the copy has a mark, by which a start finds and removes it.
//!
//! Kernels write into a lent body without notice, so the seal itself copies it
//! (`seal_copies.rs`). A body of the origin, and a packed one, get a new plain file with the same
//! bytes instead.
//!
//! Readers of sealed epochs hold the same gate as readers of the head: no reader is between record
//! and file during the change.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::edit::BodyEdit;
use super::files::{damaged_body, failed, make_copy};
use super::origin_body::FileOwner;
use super::pack::note_body;
use crate::error::Result;
use crate::format::key::{self, kind};
use crate::format::names::BodyName;
use crate::format::record;
use crate::media::disk::{BodyFile, Disk, unpack};
use crate::media::engine::{Batch, Engine, prefix_end};
use crate::tree::{EpochView, RecordWriter};
use crate::{BLOCK_BYTES, BodyLocation, StoreError, Vnode};

impl BodyEdit<'_, '_> {
    /// Ensures that only the head uses the body's file. The vnode is in a file.
    ///
    /// # Errors
    /// As [`BodyEdit::write`].
    pub(super) fn own_file(&mut self) -> Result<()> {
        self.held();
        if self.vnode.place == BodyLocation::Origin {
            return self.leave_origin();
        }
        let no = self.vnode.no();
        if self.tree.owns(self.vnode) && !is_packed(self.vnode) {
            return Ok(());
        }
        let mut stored =
            self.tree.vnode(no)?.ok_or(StoreError::Misuse("the vnode is new and shares a body"))?;
        if is_packed(&stored) {
            // Also if it was packed since the caller read it.
            self.vnode.place = stored.place;
            return self.unpack();
        }
        let name = self.name();
        let copy = BodyName { generation: self.vnode.generations + 1, ..name };
        let mut batch = Batch::default();
        let is_shared = name_copy(&self.tree, name, copy, &mut batch)?;
        let media = self.media();
        if is_shared {
            media.room_for(self.vnode.status.used)?;
            make_copy(media, name, copy)?;
            batch.delete(&copy.unstable_key());
            note_body(media, copy, &mut batch);
        }
        if stored.place != self.vnode.place {
            return Err(StoreError::Misuse("the body differs from its vnode"));
        }
        // The volume of the epoch that shared the file may be removed since.
        stored.generations = if is_shared { copy.generation } else { stored.generations };
        stored.own_since = self.tree.epoch;
        let mut records = RecordWriter::new(&self.tree, &mut batch);
        records.put_vnode(&stored)?;
        records.note_change(no);
        media.apply_in(self.update.scope(), &batch)?;
        media.wake_packer();
        media.sync()?;
        self.vnode.generations = stored.generations;
        self.vnode.own_since = stored.own_since;
        debug_assert!(self.tree.owns(self.vnode), "VO-1: no sealed epoch has the head's file");
        Ok(())
    }

    /// Gives the head a file of its own in place of the origin's, with the same bytes, on disk.
    fn leave_origin(&mut self) -> Result<()> {
        let stored = self.tree.vnode(self.vnode.no())?;
        if stored.is_none_or(|stored| stored.place != self.vnode.place) {
            return Err(damaged_body(self.vnode, "is not where its vnode says"));
        }
        let file_owner = FileOwner::find(&self.tree, self.vnode.no())?;
        self.media().room_for(self.vnode.status.used)?;
        self.move_body(|disk, name| file_owner.copy(disk, name))?;
        // The origin's file may be longer than its body.
        self.held().gate.set_trimmed(false);
        Ok(())
    }

    /// Gives the head a plain file in place of a packed one, with the same bytes, on disk.
    fn unpack(&mut self) -> Result<()> {
        let packed = self.open()?;
        self.media().room_for(self.vnode.status.used)?;
        if self.tree.alone_names(self.vnode) {
            self.update.discard(self.name());
        }
        self.move_body(|disk, name| {
            let file = disk.create(name).map_err(failed("new body"))?;
            unpack(&*packed, &*file).map_err(failed("unpacking of a body"))?;
            Ok(file)
        })
    }

    /// Gives the vnode a new file, which `make` fills with the body's bytes, on disk.
    fn move_body(
        &mut self,
        make: impl FnOnce(&dyn Disk, BodyName) -> Result<Arc<dyn BodyFile>>,
    ) -> Result<()> {
        let (size, used) = (self.vnode.status.size, self.vnode.status.used);
        self.new_file(make)?;
        let file = self.open()?;
        // Stable bytes are stable in the new file too (DU-1).
        let (media, name) = (self.media(), self.name());
        media.sync_disk(|| file.sync())?;
        media.sync_disk(|| media.disk.sync_name(name))?;
        self.vnode.status.size = size;
        self.charge_blocks((used / BLOCK_BYTES) as i64);
        Ok(())
    }
}

fn is_packed(vnode: &Vnode) -> bool {
    matches!(vnode.place, BodyLocation::File { packed: true, .. })
}

/// Replaces a body's file by its copy in the records of sealed epochs; returns whether there
/// are any.
fn name_copy(tree: &EpochView, name: BodyName, copy: BodyName, batch: &mut Batch) -> Result<bool> {
    let prefix = key::of_vnode(kind::VNODE, tree.id, name.vnode);
    let mut result = Ok(false);
    tree.media.engine.scan(
        &prefix.epoch(tree.floor),
        &prefix_end(&prefix),
        &mut |key, value| {
            match record::decode_vnode(key, tree.id, name.vnode, value) {
                Ok(Some(old)) if old.place == name.place() => {
                    let new = Vnode { place: copy.place(), generations: copy.generation, ..old };
                    batch.put(key, &record::encode_vnode(key, &new));
                    result = Ok(true);
                    ControlFlow::Continue(())
                }
                // Older records name older files.
                Ok(_) => ControlFlow::Break(()),
                Err(error) => {
                    result = Err(error);
                    ControlFlow::Break(())
                }
            }
        },
    )?;
    result
}
