//! Copies of bodies that sealed epochs continue to show when the head changes them.
//!
//! Model. After a seal the head and the sealed epoch name the same body file. The first change in
//! the new epoch copies it, and the *sealed* epochs get the copy: kernels may have the file itself
//! for as long as the vnode lives (PT-4), and they only ever got the head's. The copy and its name
//! are on disk before one batch names it in all records of sealed epochs that named the file, and
//! notes in the head's own record that the file is the head's alone; the batch is on disk before
//! the file is changed. So after a crash the sealed epochs name either the file, unchanged, or the
//! copy (VO-1). Until the batch, the copy has a mark, by which a start finds and removes it.
//!
//! Kernels write into a *lent* body without notice, so the seal itself copies such a body while
//! there are no other writers: the batch that seals names the copy, with its sums and size, and the
//! head keeps the file and its own records.
//!
//! Readers of sealed epochs hold the same gate as readers of the head: no reader is between record
//! and file during the change.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use types::VnodeNo;

use crate::body::put_mark;
use crate::body_sync::sums_found;
use crate::disk::{BodyFile, BodyName};
use crate::engine::{Batch, Engine, prefix_end};
use crate::key::{self, kind};
use crate::media::Media;
use crate::pack::note_body;
use crate::reader::body_name;
use crate::record::{GROUP_BLOCKS, Sums};
use crate::tree::EpochView;
use crate::update::{count, unstable_key};
use crate::volume::Result;
use crate::{BLOCK_BYTES, BodyLocation, StoreError, Update, Vnode, Volume, record, sums};

/// The copy of a lent body for the epoch that is about to be sealed.
pub(crate) struct SealCopy {
    copy: BodyName,
    /// The vnode in the sealed epoch.
    sealed: Vnode,
    /// Groups that are not all holes.
    sums: BTreeMap<u64, Sums>,
    /// The vnode in the head from then on.
    head: Vnode,
}

impl SealCopy {
    /// The vnode of the body.
    pub(crate) fn vnode(&self) -> VnodeNo {
        self.head.no()
    }

    /// The usage of the sealed epoch, computed from the head's.
    pub(crate) fn used(&self, head: u64) -> u64 {
        (head + self.sealed.status.used).saturating_sub(self.head.status.used)
    }
}

impl Volume {
    /// Ensures that only the head uses the body's file. The vnode is in a file; the update holds
    /// its gate.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub(crate) fn own_file(&self, vnode: &mut Vnode, update: &mut Update) -> Result<()> {
        // Before the tree is read: this prevents a seal.
        update.hold(&self.tree_state, vnode.no());
        if vnode.place == BodyLocation::Origin {
            return self.leave_origin(vnode, update);
        }
        let tree = self.tree();
        let (media, no) = (&self.tree_state.media, vnode.no());
        if tree.owns(vnode) && !is_packed(vnode) {
            return Ok(());
        }
        let stored =
            tree.vnode(no)?.ok_or(StoreError::Misuse("the vnode is new and shares a body"))?;
        if is_packed(&stored) {
            // Also if it was packed since the caller read it.
            vnode.place = stored.place;
            return self.unpack(vnode, update);
        }
        let name = body_name(&tree, vnode).expect("the body is in a file");
        let copy = BodyName { generation: vnode.generations + 1, ..name };
        let mut batch = Batch::default();
        let is_shared = self.name_copy(&tree, name, copy, &mut batch)?;
        if is_shared {
            media.room_for(vnode.status.used)?;
            make_copy(media, name, copy)?;
            batch.delete(&unstable_key(copy));
            note_body(media, copy, &mut batch);
        }
        let mut stored = stored;
        if stored.place != vnode.place {
            return Err(StoreError::Misuse("the body differs from its vnode"));
        }
        // The volume of the epoch that shared the file may be removed since.
        stored.generations = if is_shared { copy.generation } else { stored.generations };
        stored.own_since = tree.epoch;
        tree.put_vnode(&stored, &mut batch)?;
        tree.note_change(no, &mut batch);
        media.apply(&batch)?;
        media.wake_packer();
        media.sync()?;
        vnode.generations = stored.generations;
        vnode.own_since = stored.own_since;
        Ok(())
    }

    /// Copies the tree's lent bodies for the epoch that is about to be sealed. Only kernels write
    /// until the seal is complete.
    ///
    /// # Errors
    /// `NoSpace`, `Medium`; then the copies are removed.
    pub(crate) fn copy_lent_bodies(&self, seal_copies: &mut Vec<SealCopy>) -> Result<()> {
        let all = self.tree_state.media.bodies.lent.lock();
        let lent: Vec<VnodeNo> =
            all.iter().filter(|(tree, _)| *tree == self.tree_state.id).map(|(_, no)| *no).collect();
        drop(all);
        for no in lent {
            match self.copy_lent_body(no) {
                Ok(made) => seal_copies.extend(made),
                Err(error) => {
                    seal_copies.drain(..).for_each(|made| self.remove_seal_copy(&made));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// `None` if the body has no content to show.
    fn copy_lent_body(&self, no: VnodeNo) -> Result<Option<SealCopy>> {
        let (media, tree) = (&self.tree_state.media, self.tree());
        let Some(head) = tree.vnode(no)? else { return Ok(None) };
        let Some(name) = body_name(&tree, &head) else { return Ok(None) };
        debug_assert!(tree.owns(&head), "a lent body is the head's alone");
        let copy = BodyName { generation: head.generations + 1, ..name };
        media.room_for(head.status.used)?;
        let file = make_copy(media, name, copy)?;
        let mut sealed = Vnode {
            place: BodyLocation::File {
                epoch: copy.epoch,
                generation: copy.generation,
                packed: false,
            },
            generations: copy.generation,
            own_since: 0,
            ..head.clone()
        };
        sealed.status.size =
            file.stamp().map_err(|e| StoreError::from_io("stat of a body", &e))?.length;
        let sums = sums_of(&*file, &sealed)?;
        sealed.status.used = sums.values().map(count).sum::<u64>() * BLOCK_BYTES;
        let head = Vnode { generations: copy.generation, own_since: tree.epoch + 1, ..head };
        Ok(Some(SealCopy { copy, sealed, sums, head }))
    }

    /// Removes the copy of an epoch that was not sealed.
    pub(crate) fn remove_seal_copy(&self, made: &SealCopy) {
        let media = &self.tree_state.media;
        let mut batch = Batch::default();
        batch.delete(&unstable_key(made.copy));
        let forgotten = media.usable().and_then(|()| {
            media
                .disk
                .remove(made.copy)
                .map_err(|e| StoreError::from_io("removal of a body", &e))?;
            media.apply(&batch).map(drop)
        });
        if let Err(error) = forgotten {
            // The next start finds it by its mark.
            tracing::warn!(
                %error, vnode = made.copy.vnode.0,
                "the copy of an unsealed body stays until the next start removes it"
            );
        }
    }

    /// Adds to the batch that seals: the sealed epoch shows the copy, and the next one the file.
    pub(crate) fn put_seal_copy(&self, made: &SealCopy, batch: &mut Batch) -> Result<()> {
        let (tree, no) = (self.tree(), made.head.no());
        tree.put_split(&made.sealed, &made.head, batch)?;
        let mut groups: BTreeMap<u64, Sums> = made.sums.clone();
        tree.each_group(no, 0, &mut |group, _| {
            groups.entry(group).or_insert([0; GROUP_BLOCKS as usize]);
            ControlFlow::Continue(())
        })?;
        for (group, sealed) in groups {
            let head = tree.sums(no, group)?;
            if head != sealed {
                tree.put_split_sums(no, group, &sealed, &head, batch)?;
            }
        }
        if tree.is_sealed() {
            tree.note_change(no, batch);
        }
        let key = key::change(tree.id, tree.epoch + 1, no);
        batch.put(&key, &record::encode_change(&key));
        batch.delete(&unstable_key(made.copy));
        note_body(&tree.media, made.copy, batch);
        Ok(())
    }

    /// Replaces a body's file by its copy in the records of sealed epochs; returns whether there
    /// are any.
    fn name_copy(
        &self,
        tree: &EpochView,
        name: BodyName,
        copy: BodyName,
        batch: &mut Batch,
    ) -> Result<bool> {
        let place = |of: BodyName| BodyLocation::File {
            epoch: of.epoch,
            generation: of.generation,
            packed: of.packed,
        };
        let prefix = key::of_vnode(kind::VNODE, tree.id, name.vnode);
        let mut result = Ok(false);
        tree.media.engine.scan(
            &prefix.epoch(tree.floor),
            &prefix_end(&prefix),
            &mut |key, value| {
                match record::decode_vnode(key, tree.id, name.vnode, value) {
                    Ok(Some(old)) if old.place == place(name) => {
                        let new = Vnode { place: place(copy), generations: copy.generation, ..old };
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
}

fn is_packed(vnode: &Vnode) -> bool {
    matches!(vnode.place, BodyLocation::File { packed: true, .. })
}

/// Makes a copy of a body's file, on disk and marked as unowned.
fn make_copy(media: &Media, name: BodyName, copy: BodyName) -> Result<Arc<dyn BodyFile>> {
    put_mark(media, copy)?;
    // Otherwise a restart would not know that the copy has no owner.
    media.write_out()?;
    let file =
        media.disk.copy(name, copy).map_err(|e| StoreError::from_io("copy of a body", &e))?;
    media.sync_disk(|| file.sync())?;
    media.sync_disk(|| media.disk.sync_name(copy))?;
    Ok(file)
}

/// The sums of a file without writers, by group; a block without bytes is a hole.
fn sums_of(file: &dyn BodyFile, vnode: &Vnode) -> Result<BTreeMap<u64, Sums>> {
    let mut groups: BTreeMap<u64, Sums> = BTreeMap::new();
    let mut at = 0;
    while let Some(run) = file.next_data(at).map_err(|e| StoreError::from_io("seek", &e))? {
        for block in run.start / BLOCK_BYTES..run.end.min(vnode.status.size).div_ceil(BLOCK_BYTES) {
            let group = groups.entry(block / GROUP_BLOCKS).or_insert([0; GROUP_BLOCKS as usize]);
            group[(block % GROUP_BLOCKS) as usize] = *sums::OF_ZEROS;
        }
        at = run.end;
        if at >= vnode.status.size {
            break;
        }
    }
    for (group, sums) in &mut groups {
        *sums = sums_found(file, vnode, *group, sums)?;
    }
    Ok(groups)
}

/// Whether a record of the body's vnode in any epoch names its file, or is damaged, so that it may.
pub(crate) fn is_named(media: &Media, name: BodyName) -> Result<bool> {
    let place =
        BodyLocation::File { epoch: name.epoch, generation: name.generation, packed: name.packed };
    let prefix = key::of_vnode(kind::VNODE, name.volume, name.vnode);
    let mut named = false;
    media.engine.scan(&prefix, &prefix_end(&prefix), &mut |key, value| {
        let vnode = record::decode_vnode(key, name.volume, name.vnode, value);
        named = vnode.map_or(true, |vnode| vnode.is_some_and(|vnode| vnode.place == place));
        if named { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(named)
}
