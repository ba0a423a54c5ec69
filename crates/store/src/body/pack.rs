//! Packing: the background thread compresses bodies that only sealed epochs show, if the partition
//! is opened with this option.
//!
//! Model. A body that only sealed epochs show never changes again, so it can be compressed. The
//! batch that leaves a body to sealed epochs notes it (`z` records): a copy for a sealed epoch, or
//! all changes of an epoch in a tree that has no read-write volume here. The packer creates the
//! packed file beside the plain one, compares its unpacked content with the sums of the body's
//! blocks, and brings it to the disk before one batch names it in all records that named the plain
//! file, which is removed after that batch is on disk. Then the note is removed; after a crash in
//! between the work begins again. A body that does not become an eighth smaller stays plain.
//!
//! A packed body is never written. If the head gets one (for the next release of a copy, or when a
//! copy becomes a read-write volume), it gets a plain file first. Readers, the scrubber and streams
//! see no difference.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use types::{VnodeNo, VolumeId};

use super::files::{failed, sums_found};
use crate::error::Result;
use crate::format::key::{self, kind};
use crate::format::names::BodyName;
use crate::format::record::{self, GROUP_BLOCKS};
use crate::media::Media;
use crate::media::disk::{BodyFile, open_body, pack};
use crate::media::engine::{Batch, Engine, prefix_end};
use crate::tree::{EpochView, TreeState, Trees};
use crate::{BLOCK_BYTES, BodyLocation, StoreError, Vnode};

/// How long the packer works before it returns to the sweeper's other work and yields the
/// processor.
const PACKING: Duration = Duration::from_millis(250);
/// The number of notes in one batch.
const NOTES_AT_ONCE: usize = 1000;

/// Adds a note to the batch that leaves the body to sealed epochs. Follow with
/// [`Media::wake_packer`].
pub(crate) fn note_body(media: &Media, name: BodyName, batch: &mut Batch) {
    if media.packs {
        let key = name.pack_key();
        batch.put(&key, &record::encode_numbers(&key, &[]));
    }
}

/// The same for all changes behind `base` (0: from the start) up to `epoch`, which is sealed in a
/// tree without a read-write volume.
pub(crate) fn note_epoch(media: &Media, tree: VolumeId, base: u64, epoch: u64, batch: &mut Batch) {
    if media.packs {
        let key = key::pack(tree, WHOLE_EPOCH, epoch, base);
        batch.put(&key, &record::encode_numbers(&key, &[]));
    }
}

/// The number of no vnode: the note is about an epoch.
const WHOLE_EPOCH: VnodeNo = VnodeNo(0);

/// Packs noted bodies for [`PACKING`] or a little longer; returns how many notes it removed, 0 if
/// there are none.
pub(crate) fn pack_some(trees: &Trees) -> Result<usize> {
    let begun = Instant::now();
    let mut packed = 0;
    while pack_one(trees)? {
        packed += 1;
        if begun.elapsed() >= PACKING {
            break;
        }
    }
    Ok(packed)
}

/// Packs one noted body; returns whether there was one.
fn pack_one(trees: &Trees) -> Result<bool> {
    let media = &trees.media;
    if !media.to_pack.swap(false, Ordering::SeqCst) {
        return Ok(false);
    }
    let mut note = None;
    let prefix = [kind::PACK];
    media.engine.scan(&prefix, &prefix_end(&prefix), &mut |key, _| {
        note = BodyName::of_key(key).map(|name| (key.to_vec(), name));
        ControlFlow::Break(())
    })?;
    let Some((key, name)) = note else { return Ok(false) };
    media.wake_packer();
    if let Some(tree_state) = trees.tree(name.volume)? {
        let packer = Packer { tree_state: &tree_state, media };
        let packed = match name.vnode {
            WHOLE_EPOCH => packer.note_changed(u64::from(name.generation), name.epoch),
            _ => packer.pack(name),
        };
        match packed {
            // The body stays plain; scrub reports it.
            Err(StoreError::Damaged(what)) => {
                tracing::warn!(what, "the packer skips a damaged body");
            }
            result => result?,
        }
    }
    let mut batch = Batch::default();
    batch.delete(&key);
    media.apply(&batch)?;
    Ok(true)
}

/// Packs bodies of one tree.
struct Packer<'a> {
    tree_state: &'a TreeState,
    media: &'a Media,
}

impl Packer<'_> {
    /// Notes the bodies of an epoch's changes.
    fn note_changed(&self, base: u64, epoch: u64) -> Result<()> {
        let mut names = Vec::new();
        let mut result = Ok(());
        let prefix = key::of_volume(kind::VNODE, self.tree_state.id);
        let (from, end) = if base == 0 {
            (prefix.to_vec(), prefix_end(&prefix))
        } else {
            (
                key::changes(self.tree_state.id, base + 1).to_vec(),
                key::changes(self.tree_state.id, epoch + 1).to_vec(),
            )
        };
        let nth = if base == 0 { 1 } else { 2 };
        let mut last = None;
        self.media.engine.scan(&from, &end, &mut |key, _| {
            let no = key::number_at(key, nth).map(VnodeNo);
            if let Some(no) = no.filter(|no| last.replace(*no) != Some(*no)) {
                match self.bodies_at(no, epoch) {
                    Ok(found) => names.extend(found),
                    Err(error) => result = Err(error),
                }
            }
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        result?;
        for names in names.chunks(NOTES_AT_ONCE) {
            let mut batch = Batch::default();
            names.iter().for_each(|name| note_body(self.media, *name, &mut batch));
            self.media.apply(&batch)?;
        }
        Ok(())
    }

    /// The plain file in which an epoch has the body of a vnode, if there is one.
    fn bodies_at(&self, no: VnodeNo, epoch: u64) -> Result<Option<BodyName>> {
        let vnode = match self.tree_at(epoch).vnode(no) {
            // There is no body to pack.
            Err(StoreError::Damaged(_)) => None,
            vnode => vnode?,
        };
        Ok(vnode.and_then(|vnode| match vnode.place {
            BodyLocation::File { epoch, generation, packed: false } => Some(BodyName {
                volume: self.tree_state.id,
                vnode: no,
                epoch,
                generation,
                packed: false,
            }),
            _ => None,
        }))
    }

    fn tree_at(&self, epoch: u64) -> EpochView {
        let head = self.tree_state.head();
        // Belongs to no volume.
        EpochView {
            media: Arc::clone(&self.tree_state.media),
            shown: VolumeId(0),
            epoch,
            origin: head.origin.clone(),
            ..*head
        }
    }

    fn pack(&self, name: BodyName) -> Result<()> {
        let media = self.media;
        let packed = BodyName { packed: true, ..name };
        if let Some(sealed) = self.only_sealed(name)? {
            if !self.make_packed(name, packed, &sealed)? || !self.name_packed(name, packed)? {
                return media.disk.remove(packed).map_err(failed("removal of a packed body"));
            }
        } else if self.records_of(packed)?.is_empty() {
            // The body was removed meanwhile, or the head has it.
            return media.disk.remove(packed).map_err(failed("removal of a packed body"));
        }
        // A crash must not bring back records that name it.
        media.sync()?;
        media.disk.remove(name).map_err(failed("removal of a body"))?;
        // Nor the file after its note is gone.
        media.sync_disk(|| media.disk.sync_name(name))
    }

    /// The epoch and record that name the file, if only sealed epochs do.
    fn only_sealed(&self, name: BodyName) -> Result<Option<(u64, Vnode)>> {
        let header = self.tree_state.header.lock().stored.clone();
        let records = self.records_of(name)?;
        let floor = header.floor();
        let newest = self.tree_state.vnode_records(name.vnode)?.into_iter().next();
        let heads = newest.is_some_and(|(key, vnode)| {
            let names = vnode.is_some_and(|vnode| vnode.place == name.place());
            names
                && (header.head.has_volume()
                    || (header.head.comes_in() && key::epoch_of(&key) > floor))
        });
        let mut sealed = records.into_iter().map(|(key, vnode)| (key::epoch_of(&key), vnode));
        Ok(sealed.rfind(|(epoch, _)| !heads && *epoch <= floor))
    }

    /// The records that name the file, newest first.
    fn records_of(&self, name: BodyName) -> Result<Vec<(Vec<u8>, Vnode)>> {
        let records = self.tree_state.vnode_records(name.vnode)?.into_iter();
        let named = records.filter_map(|(key, vnode)| Some((key, vnode?)));
        Ok(named.filter(|(_, vnode)| vnode.place == name.place()).collect())
    }

    /// Creates the packed file; returns whether it is small enough, and then it is on disk.
    fn make_packed(&self, name: BodyName, packed: BodyName, sealed: &(u64, Vnode)) -> Result<bool> {
        let (media, (epoch, vnode)) = (self.media, sealed);
        // An encrypted file consists of whole units and has no exact length, which a packed one
        // needs.
        if media.ciphers.of(self.tree_state.id)?.is_some() {
            return Ok(false);
        }
        let lost = || StoreError::Damaged(format!("the file of {}", vnode.status.fid));
        let plain =
            open_body(&*media.disk, name).map_err(failed("open of a body"))?.ok_or_else(lost)?;
        media.room_for(vnode.status.used)?;
        let tree = self.tree_at(*epoch);
        let target = media.disk.create(packed).map_err(failed("new packed body"))?;
        let length =
            pack(&*plain, vnode.status.size, &*target).map_err(failed("packing of a body"))?;
        if length > vnode.status.used - vnode.status.used / 8 {
            return Ok(false);
        }
        let made = open_body(&*media.disk, packed)
            .map_err(failed("open of a packed body"))?
            .ok_or_else(lost)?;
        if !agrees(&tree, vnode, &*made)? {
            return Ok(false);
        }
        media.sync_disk(|| target.sync())?;
        media.sync_disk(|| media.disk.sync_name(packed))?;
        Ok(true)
    }

    /// Replaces the plain file by the packed one in its records; returns whether there were any.
    fn name_packed(&self, name: BodyName, packed: BodyName) -> Result<bool> {
        let _no_seal = self.tree_state.write();
        let mut gate = self.media.gates.gate((self.tree_state.id, name.vnode)).write_arc();
        if self.only_sealed(name)?.is_none() {
            return Ok(false);
        }
        let mut batch = Batch::default();
        for (key, vnode) in self.records_of(name)? {
            batch.put(&key, &record::encode_vnode(&key, &Vnode { place: packed.place(), ..vnode }));
        }
        self.media.apply(&batch)?;
        gate.close();
        Ok(true)
    }
}

/// Whether the file's content matches the sums.
fn agrees(tree: &EpochView, vnode: &Vnode, file: &dyn BodyFile) -> Result<bool> {
    let mut groups = Vec::new();
    tree.each_group(vnode.no(), 0, &mut |group, sums| {
        groups.push((group, sums));
        ControlFlow::Continue(())
    })?;
    for (group, stored) in groups
        .into_iter()
        .filter(|(group, _)| group * GROUP_BLOCKS * BLOCK_BYTES < vnode.status.size)
    {
        if sums_found(file, vnode, group, &stored)? != stored {
            return Ok(false);
        }
    }
    Ok(true)
}
