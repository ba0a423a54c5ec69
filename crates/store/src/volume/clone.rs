//! Sealing: the state that the head shows now becomes an epoch of its own, which a new volume shows
//! and which never changes (VO-1).
//!
//! Unstable bodies are synced first, most of them while writers continue, so that a sealed body is
//! never in doubt. Then writers wait for the time of one batch: the head's epoch increases by one,
//! and the volume, its name and its number exist. The sealed epoch gets copies of the bodies that
//! kernels write into, in the same batch (`copy_on_write.rs`). The cost does not depend on the
//! number of files.

use std::sync::Arc;

use types::{Name, Timestamp, VolumeId, VolumeKind};

use super::set::VolumeSet;
use super::{BEING_RESTORED, Volume};
use crate::StoreError;
use crate::body::pack::note_epoch;
use crate::body::seal_copies::SealCopies;
use crate::body::sync::{settle_tree, settle_tree_quietly};
use crate::error::Result;
use crate::format::header::{HeadState, TreeHeader, Usage, ViewHeader};
use crate::media::engine::Batch;
use crate::tree::state::{HeaderState, orphans_of, put_view};
use crate::tree::trees::put_name;

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
type Sealing<'a> = dyn Fn(&Volume, &SealCopies) -> Result<Arc<Volume>> + 'a;

impl VolumeSet {
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
        let media = &self.trees().media;
        media.room_for_records(None)?;
        let of = self.existing(of)?;
        if of.is_writable() {
            settle_tree(&of.tree_state)?;
        }
        let no_writers = of.tree_state.writers.write();
        let seal_copies = if of.is_writable() {
            settle_tree_quietly(&of.tree_state)?;
            SealCopies::make(&of.tree_state)?
        } else {
            SealCopies::default()
        };
        let volume = act(&of, &seal_copies).inspect_err(|_| seal_copies.remove(media))?;
        media.wake_packer();
        drop(no_writers);
        media.sync()?;
        Ok(volume)
    }

    /// The header of the volume's tree with one more volume for the epoch that the volume shows
    /// now, and that epoch. The tree has no writers, and the caller holds the catalog lock.
    pub(crate) fn sealed(
        &self,
        of: &Volume,
        header: &HeaderState,
        seal_copies: &SealCopies,
        batch: &mut Batch,
    ) -> Result<(TreeHeader, u64)> {
        of.is_there()?;
        if of.is_being_restored() {
            return Err(BEING_RESTORED);
        }
        let mut tree = header.stored.clone();
        let epoch = match of.view_header() {
            Some(view) => view.lock().epoch,
            None => {
                tree.epoch += 1;
                let sealed = header.stored.epoch;
                if !tree.head.has_volume() {
                    // The tree is a copy: its bodies have no writers.
                    note_epoch(&self.trees().media, of.tree_id(), tree.floor(), sealed, batch);
                }
                sealed
            }
        };
        tree.show(epoch);
        assert!(epoch < tree.epoch, "VO-1: no update writes a sealed epoch");
        seal_copies.put(&of.tree(), batch)?;
        Ok((tree, epoch))
    }

    /// Seals in one batch. The tree has no writers. `came_in`: the usage of the head, which a
    /// complete stream filled.
    pub(crate) fn seal(
        &self,
        of: &Volume,
        new: &NewClone,
        seal_copies: &SealCopies,
        came_in: Option<Usage>,
    ) -> Result<Arc<Volume>> {
        let catalog = self.trees().catalog();
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
            _ => catalog.take_number(new.id, &mut batch)?,
        };
        match &replaced {
            Some(replaced) if replaced.name() == new.name => put_name(&new.name, id, &mut batch),
            _ => catalog.take_name(&new.name, id, &mut batch)?,
        }
        let usage = came_in.unwrap_or_else(|| of.usage());
        let usage = Usage { bytes: seal_copies.used(usage.bytes), ..usage };
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
            tree_state.put_arrival(usage, &mut batch);
            tree.become_head(HeadState::Unowned, "stream sealed");
            tree_state.set_used(usage);
        }
        tree_state.change(&mut header, tree, batch)?;
        tree_state.follow_header(&header.stored);
        drop(header);
        if let Some(replaced) = replaced {
            self.note_removed(&replaced);
        }
        self.existing(id)
    }

    /// The volume that a clone of `of` replaces.
    fn replaced(&self, of: &Volume, id: VolumeId) -> Result<Arc<Volume>> {
        let volume = self.existing(id)?;
        if volume.is_writable() || volume.tree_id() != of.tree_id() || volume.id() == of.id() {
            return Err(StoreError::Misuse(
                "only another clone of the same volume can be replaced",
            ));
        }
        Ok(volume)
    }
}
