//! Sealing: the state that the head shows now becomes an epoch of its own, which a new volume shows
//! and which never changes (VO-1).
//!
//! Unstable bodies are synced first, most of them while writers continue, so that a sealed body is
//! never in doubt. Then writers wait for the time of one batch: the head's epoch increases by one,
//! and the volume, its name and its number exist. The sealed epoch gets copies of the bodies that
//! kernels write into, in the same batch (`copy_on_write.rs`). The cost does not depend on the
//! number of files.

use std::ops::ControlFlow;
use std::sync::Arc;

use types::{Name, Timestamp, VnodeNo, VolumeId, VolumeKind};

use crate::body_sync::settle_tree;
use crate::catalog::{FROZEN, put_view};
use crate::copy_on_write::SealCopy;
use crate::engine::{Batch, Engine};
use crate::header::{TreeHeader, ViewHeader};
use crate::pack::note_epoch;
use crate::stream::{end_progress, orphans_of};
use crate::tree_state::HeaderState;
use crate::volume::Result;
use crate::{Partition, StoreError, Usage, Volume, key};

/// The new volume that will show the sealed epoch.
#[derive(Clone, Debug)]
pub struct NewClone {
    /// The number; `None`: the next one that this partition did not use. May be the number of the
    /// volume that it replaces: then it takes over number and name at once, and callers that have
    /// the replaced one continue to see its epoch.
    pub id: Option<VolumeId>,
    /// The name of the volume.
    pub name: Name,
    /// The kind of the volume; not read-write.
    pub kind: VolumeKind,
    /// When the volume was created.
    pub now: Timestamp,
    /// A volume of the same tree that the new one replaces: that one is removed in the same step,
    /// and name and number may be its.
    pub replaces: Option<VolumeId>,
}

/// Makes a volume of a settled one, with the copies of its lent bodies.
type Sealing<'a> = dyn Fn(&Volume, &[SealCopy]) -> Result<Arc<Volume>> + 'a;

impl Partition {
    /// Creates a volume that continues to show the present state of `of`; stable when it returns.
    ///
    /// # Errors
    /// `NoVolume`; `Taken` if a volume has this name or number; `Misuse` if the kind is read-write,
    /// or if the volume to replace is no other clone of the same tree; `NoSpace`, `Medium`.
    pub fn clone_volume(&self, of: VolumeId, new: &NewClone) -> Result<Arc<Volume>> {
        if new.kind == VolumeKind::ReadWrite {
            return Err(StoreError::Misuse("a clone is read-only"));
        }
        self.sealing(of, &|of, seal_copies| self.seal(of, new, seal_copies, None))
    }

    /// Calls `act` while the volume's state is settled and has no writers, with copies of its lent
    /// bodies; stable when it returns.
    pub(crate) fn sealing(&self, of: VolumeId, act: &Sealing<'_>) -> Result<Arc<Volume>> {
        self.0.media.room_for_records()?;
        let of = self.volume(of)?.ok_or(StoreError::NoVolume(of))?;
        if of.is_writable() {
            settle_tree(&of.tree_state, &|no| of.resum(no))?;
        }
        let no_writers = of.tree_state.writers.write();
        let mut seal_copies = Vec::new();
        if of.is_writable() {
            settle_tree(&of.tree_state, &|no| of.resum_quietly(no))?;
            of.copy_lent_bodies(&mut seal_copies)?;
        }
        let sealed = act(&of, &seal_copies);
        if sealed.is_err() {
            seal_copies.iter().for_each(|copy| of.remove_seal_copy(copy));
        }
        let volume = sealed?;
        self.0.media.wake_packer();
        drop(no_writers);
        self.0.media.sync()?;
        Ok(volume)
    }

    /// The header of the volume's tree with one more volume for the epoch that the volume shows
    /// now, and that epoch. The tree has no writers, and the caller holds the catalog lock.
    pub(crate) fn sealed(
        &self,
        of: &Volume,
        header: &HeaderState,
        seal_copies: &[SealCopy],
        batch: &mut Batch,
    ) -> Result<(TreeHeader, u64)> {
        of.is_there()?;
        if of.is_frozen() {
            return Err(FROZEN);
        }
        let mut tree = header.stored.clone();
        let epoch = match of.view_header() {
            Some(view) => view.lock().epoch,
            None => {
                tree.epoch += 1;
                if tree.headless {
                    // The tree is a copy: its bodies have no writers.
                    note_epoch(
                        &self.0.media,
                        of.tree_id(),
                        tree.floor(),
                        header.stored.epoch,
                        batch,
                    );
                }
                header.stored.epoch
            }
        };
        tree.show(epoch);
        seal_copies.iter().try_for_each(|copy| of.put_seal_copy(copy, batch))?;
        Ok((tree, epoch))
    }

    /// Seals in one batch. The tree has no writers. `came_in`: the usage of the head, which a
    /// complete stream filled.
    pub(crate) fn seal(
        &self,
        of: &Volume,
        new: &NewClone,
        seal_copies: &[SealCopy],
        came_in: Option<Usage>,
    ) -> Result<Arc<Volume>> {
        let catalog = self.0.catalog.lock();
        let tree_state = &of.tree_state;
        let replaced = new.replaces.map(|id| self.replaced(of, id)).transpose()?;
        let mut batch = Batch::default();
        let in_place = replaced.as_ref().is_some_and(|replaced| new.id == Some(replaced.id()));
        let mut header = tree_state.header.lock();
        let (mut tree, epoch) = self.sealed(of, &header, seal_copies, &mut batch)?;
        if let Some(replaced) = &replaced {
            self.hide(replaced, &mut tree, in_place, &mut batch);
        }
        let id = match &replaced {
            Some(replaced) if in_place => replaced.id(),
            _ => self.take_number(&catalog, new.id, &mut batch)?,
        };
        match &replaced {
            Some(replaced) if replaced.name() == new.name => put_name(&new.name, id, &mut batch),
            _ => self.take_name(&catalog, &new.name, id, &mut batch)?,
        }
        let usage = came_in.unwrap_or_else(|| of.usage());
        let usage = Usage {
            bytes: seal_copies.iter().fold(usage.bytes, |bytes, copy| copy.used(bytes)),
            ..usage
        };
        let view = ViewHeader {
            kind: new.kind,
            name: new.name.clone(),
            tree: tree_state.id,
            epoch,
            created: new.now,
            updated: new.now,
            usage,
            offline: false,
            orphans: match of.view_header() {
                Some(view) => view.lock().orphans.clone(),
                None => orphans_of(tree_state)?,
            },
        };
        put_view(id, &view, &mut batch);
        if let Some(usage) = came_in {
            end_progress(tree_state, &mut tree, usage, &mut batch);
            tree_state.set_used(usage);
        }
        tree_state.change(&mut header, tree, batch)?;
        tree_state.follow_header(&header.stored);
        drop(header);
        let volume = Arc::new(Volume::view(id, Arc::clone(tree_state), view));
        if let Some(replaced) = replaced {
            self.note_removed(&replaced, false);
        }
        if in_place {
            // Other threads know the number, and may have loaded the volume by now.
            return self.volume(id)?.ok_or(StoreError::NoVolume(id));
        }
        self.0.residents.lock().add(&volume);
        Ok(volume)
    }

    /// The volume that a clone of `of` replaces.
    fn replaced(&self, of: &Volume, id: VolumeId) -> Result<Arc<Volume>> {
        let volume = self.volume(id)?.ok_or(StoreError::NoVolume(id))?;
        if volume.is_writable() || volume.tree_id() != of.tree_id() || volume.id() == of.id() {
            return Err(StoreError::Misuse(
                "only another clone of the same volume can be replaced",
            ));
        }
        Ok(volume)
    }
}

fn put_name(name: &Name, id: VolumeId, batch: &mut Batch) {
    let key = key::name(name.as_bytes());
    batch.put(&key, &crate::record::encode_numbers(&key, &[id.0]));
}

impl Volume {
    /// Visits the vnodes that were changed, created or removed in epochs behind `from` up to `to`,
    /// which volumes of this tree show (`to` may be the head's). The order is not defined; a vnode
    /// that changed in several epochs is visited several times.
    ///
    /// # Errors
    /// `Misuse` if no volume shows the epochs any more; `Medium`.
    pub fn each_change(
        &self,
        from: u64,
        to: u64,
        visit: &mut dyn FnMut(VnodeNo) -> ControlFlow<()>,
    ) -> Result<()> {
        let shown =
            |header: &TreeHeader, epoch| header.sealed.iter().any(|sealed| sealed.epoch == epoch);
        let header = self.tree_state.header.lock();
        let known =
            shown(&header.stored, from) && (shown(&header.stored, to) || to == header.stored.epoch);
        drop(header);
        if !known || from > to {
            return Err(StoreError::Misuse("no volume shows these epochs"));
        }
        let (first, end) =
            (key::changes(self.tree_state.id, from + 1), key::changes(self.tree_state.id, to + 1));
        self.tree_state.media.engine.scan(&first, &end, &mut |key, _| match (
            key::number_at(key, 2),
            key::number_at(key, 3),
        ) {
            (Some(no), None) => visit(VnodeNo(no)),
            // A bucket of a directory; the directory has its own note.
            _ => ControlFlow::Continue(()),
        })
    }
}
