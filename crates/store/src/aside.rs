//! Copies of bodies that sealed epochs go on showing when the head changes them.
//!
//! Model. After a seal the head and the sealed epoch name the same body file. The first change in the new epoch makes a copy of it, and it is
//! the *sealed* epochs that get the copy: kernels may have the file itself for as long as the vnode lives (PT-4), and only the head's was ever handed out.
//! The copy and its name are on disk before one batch names it in all records of sealed epochs that named the file, and notes in the head's own
//! record that the file is the head's alone; the batch is on disk before the file is changed. So after a crash the sealed epochs name either
//! the file, which is unchanged then, or the copy (VO-1). Until the batch, the copy has a mark, by which a start finds and removes it.
//!
//! Readers of sealed epochs hold the same gate as readers of the head: none is between record and file while that is done.

use std::ops::ControlFlow;

use crate::body::put_mark;
use crate::disk::BodyName;
use crate::engine::{Batch, Engine, prefix_end};
use crate::key::{self, kind};
use crate::media::Media;
use crate::reader::body_name;
use crate::tree::Tree;
use crate::update::unstable_key;
use crate::volume::Result;
use crate::{Place, StoreError, Update, Vnode, Volume, record};

impl Volume {
    /// Sees to it that nobody but the head shows the body's file. The vnode is in a file; the update holds its gate.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub(crate) fn own_file(&self, vnode: &mut Vnode, update: &mut Update) -> Result<()> {
        // Before the tree is asked: then it is not sealed any more.
        update.hold(&self.trunk, vnode.no());
        let tree = self.tree();
        if tree.owns(vnode) {
            return Ok(());
        }
        let (media, no) = (&self.trunk.media, vnode.no());
        let name = body_name(&tree, vnode).expect("the body is in a file");
        let copy = BodyName { generation: vnode.generations + 1, ..name };
        media.room_for(vnode.status.used)?;
        put_mark(media, copy)?;
        // Or a new life would not know that the copy is nobody's.
        media.write_out()?;
        let file = media.disk.copy(name, copy).map_err(|e| StoreError::from_io("copy of a body", &e))?;
        media.sync_disk(|| file.sync())?;
        media.sync_disk(|| media.disk.sync_name(copy))?;
        let mut batch = Batch::default();
        self.name_copy(&tree, name, copy, &mut batch)?;
        let stored = tree.vnode(no)?.filter(|stored| stored.place == vnode.place);
        let mut stored = stored.ok_or(StoreError::Misuse("the body is not as the vnode says"))?;
        stored.generations = copy.generation;
        stored.own_since = tree.epoch;
        tree.put_vnode(&stored, &mut batch)?;
        tree.note_change(no, &mut batch);
        batch.delete(&unstable_key(copy));
        media.apply(&batch)?;
        media.sync()?;
        vnode.generations = stored.generations;
        vnode.own_since = stored.own_since;
        Ok(())
    }

    /// The records of sealed epochs that name a body's file name its copy.
    fn name_copy(&self, tree: &Tree, name: BodyName, copy: BodyName, batch: &mut Batch) -> Result<()> {
        let place = |of: BodyName| Place::File { epoch: of.epoch, generation: of.generation };
        let prefix = key::of_vnode(kind::VNODE, tree.id, name.vnode);
        let mut result = Ok(());
        tree.media.engine.scan(&prefix.epoch(tree.floor), &prefix_end(&prefix), &mut |key, value| {
            match record::decode_vnode(key, tree.id, name.vnode, value) {
                Ok(Some(old)) if old.place == place(name) => {
                    let new = Vnode { place: place(copy), generations: copy.generation, ..old };
                    batch.put(key, &record::encode_vnode(key, &new));
                    ControlFlow::Continue(())
                }
                // Still older records name older files.
                Ok(_) => ControlFlow::Break(()),
                Err(error) => {
                    result = Err(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        result
    }
}

/// Whether a record of the body's vnode names its file, whichever epoch shows it, or may: nobody knows what a damaged one names.
pub(crate) fn is_named(media: &Media, name: BodyName) -> Result<bool> {
    let place = Place::File { epoch: name.epoch, generation: name.generation };
    let prefix = key::of_vnode(kind::VNODE, name.volume, name.vnode);
    let mut named = false;
    media.engine.scan(&prefix, &prefix_end(&prefix), &mut |key, value| {
        let vnode = record::decode_vnode(key, name.volume, name.vnode, value);
        named = vnode.map_or(true, |vnode| vnode.is_some_and(|vnode| vnode.place == place));
        if named { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(named)
}
