//! Making bodies stable: one at a commit, all in the background; and computing new sums for bodies
//! that a crash left in doubt.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use types::{VnodeNo, VolumeId};

use crate::bodies::{BodyId, BodyState};
use crate::disk::{BodyFile, BodyName};
use crate::engine::{Batch, Engine, prefix_end};
use crate::key::{self, kind};
use crate::media::Media;
use crate::reader::{body_name, open_file, read_exactly};
use crate::record::{self, GROUP_BLOCKS, Sums};
use crate::sums::{self, BLOCK};
use crate::tree::EpochView;
use crate::tree_state::TreeState;
use crate::update::{Update, unstable_key};
use crate::volume::Result;
use crate::{BLOCK_BYTES, BodyLocation, StoreError, Vnode, Volume};

/// Finds the volume that writes a tree, if there is one.
type FindVolume<'a> = dyn Fn(VolumeId) -> Result<Option<Arc<Volume>>> + 'a;

/// With more unstable bodies than this, one sync of the whole file system is assumed to be cheaper
/// than one per body. Tests have few bodies, and cover both ways.
const SYNC_EACH_MAX: usize = if cfg!(test) { 2 } else { 16 };

impl Volume {
    /// Brings the body's data to the disk. Follow with [`crate::Partition::sync`] for the records.
    ///
    /// # Errors
    /// `Medium`; from then on every change is refused (DU-3).
    pub fn sync_body(&self, vnode: &Vnode) -> Result<()> {
        match body_name(&self.tree(), vnode) {
            // Bodies of sealed epochs are on disk already.
            Some(name) if self.is_writable() => sync_one(&self.tree_state.media, name),
            _ => self.tree_state.media.usable(),
        }
    }

    /// Settles a body that a crash or a dropped update left in doubt: computes its sums from the
    /// file.
    pub(crate) fn resum(&self, no: VnodeNo) -> Result<()> {
        let _writes = self.tree_state.write();
        self.resum_quietly(no)
    }

    /// The same for a caller that writes, or excludes writers.
    pub(crate) fn resum_quietly(&self, no: VnodeNo) -> Result<()> {
        let tree = &*self.tree();
        let gate = tree.media.bodies.gate((tree.id, no));
        let mut groups = Vec::new();
        tree.each_group(no, 0, &mut |group, _| {
            groups.push(group);
            ControlFlow::Continue(())
        })?;
        let before = gate.read().writes;
        for group in groups {
            // Takes the gate for each group, so that readers of a long body do not wait for all of
            // it.
            let gate = gate.write();
            if gate.lent {
                return Ok(());
            }
            let Some(vnode) = tree.vnode(no)? else { break };
            if body_name(tree, &vnode).is_none() {
                break;
            }
            resum_group(tree, &gate, &vnode, group)?;
        }
        let mut gate = gate.write();
        let in_file = tree.vnode(no)?.filter(|vnode| body_name(tree, vnode).is_some());
        if let Some(vnode) = &in_file {
            // Created if it never reached the disk: it may contain only holes.
            let file = open_file(tree, &gate, vnode)?;
            tree.media.sync_disk(|| file.sync())?;
            gate.unsynced_name = true;
        }
        // A write that was dropped meanwhile leaves new doubt.
        if (gate.writes == before && !gate.lent) || in_file.is_none() {
            gate.suspect = false;
        }
        Ok(())
    }
}

fn resum_group(tree: &EpochView, gate: &BodyState, vnode: &Vnode, group: u64) -> Result<()> {
    let stored = tree.sums(vnode.no(), group)?;
    let file = open_file(tree, gate, vnode)?;
    let found = sums_found(&*file, vnode, group, &stored)?;
    if found != stored {
        let prefix = key::sums(tree.id, vnode.no(), group);
        let key = prefix.epoch(tree.epoch);
        let mut batch = Batch::default();
        tree.make_way(&prefix, &mut batch)?;
        if tree.is_sealed() {
            tree.note_change(vnode.no(), &mut batch);
        }
        batch.put(&key, &tree.encode_sums(vnode.no(), &key, &found)?);
        tree.media.apply(&batch)?;
    }
    Ok(())
}

/// The sums of a group's blocks on disk; holes stay holes.
pub(crate) fn sums_found(
    file: &dyn BodyFile,
    vnode: &Vnode,
    group: u64,
    stored: &Sums,
) -> Result<Sums> {
    let mut found = *stored;
    let mut bytes = vec![0; BLOCK];
    for (at, sum) in found.iter_mut().enumerate().filter(|(_, sum)| **sum != 0) {
        let start = (group * GROUP_BLOCKS + at as u64) * BLOCK_BYTES;
        let there = vnode.status.size.saturating_sub(start).min(BLOCK_BYTES) as usize;
        bytes.fill(0);
        read_exactly(file, start, &mut bytes[..there])?;
        *sum = sums::of_block(&bytes);
    }
    Ok(found)
}

fn sync_one(media: &Arc<Media>, name: BodyName) -> Result<()> {
    media.usable()?;
    let gate = media.bodies.gate((name.volume, name.vnode));
    let (file, writes, unsynced_name) = {
        let gate = gate.read();
        if gate.mark.is_none() && !gate.unsynced_name {
            return Ok(());
        }
        (gate.file(&*media.disk, name)?, gate.writes, gate.unsynced_name)
    };
    let Some(file) = file else { return Ok(()) };
    media.sync_disk(|| file.sync())?;
    if unsynced_name {
        media.sync_disk(|| media.disk.sync_name(name))?;
    }
    let mut batch = Batch::default();
    let mut gate = gate.write();
    if settle(&mut gate, name, writes, &mut batch) {
        media.apply(&batch)?;
    }
    Ok(())
}

/// Key of the record of the inline body that a file replaced, while it is kept.
fn backup_key(name: BodyName) -> key::Key {
    key::of_vnode(kind::INLINE, name.volume, name.vnode).epoch(name.epoch)
}

/// Removes the mark of a gate whose body is on disk up to the given write, unless a later write
/// came.
fn settle(gate: &mut BodyState, name: BodyName, writes: u64, batch: &mut Batch) -> bool {
    let marked = gate.mark.is_none_or(|mark| mark.name == name);
    if gate.writes != writes || !marked {
        return false;
    }
    gate.unsynced_name = false;
    if gate.doubtful() || gate.mark.is_none() {
        return false;
    }
    batch.delete(&unstable_key(name));
    gate.mark = None;
    if std::mem::take(&mut gate.backup) {
        batch.delete(&backup_key(name));
    }
    true
}

/// Brings every body to the disk and removes the marks, except of bodies written meanwhile; then
/// syncs the log.
pub(crate) fn sync_all(media: &Arc<Media>, volume: &FindVolume<'_>) -> Result<()> {
    let resum = |id: BodyId| volume(id.0)?.map_or(Ok(()), |volume| volume.resum(id.1));
    settle_bodies(media, media.bodies.unsettled(None), &resum)?;
    media.sync()
}

/// The same for the bodies of one tree, without a sync of the log.
pub(crate) fn settle_tree(
    tree_state: &TreeState,
    resum: &dyn Fn(VnodeNo) -> Result<()>,
) -> Result<()> {
    settle_bodies(
        &tree_state.media,
        tree_state.media.bodies.unsettled(Some(tree_state.id)),
        &|id| resum(id.1),
    )
}

fn settle_bodies(
    media: &Arc<Media>,
    bodies: Vec<BodyId>,
    resum: &dyn Fn(BodyId) -> Result<()>,
) -> Result<()> {
    media.usable()?;
    let mut settling = Vec::new();
    for id in bodies {
        let gate = media.bodies.gate(id);
        // A damaged record leaves one body in doubt, not the others.
        if gate.read().suspect
            && let Err(error) = resum(id)
        {
            media.usable()?;
            tracing::warn!(%error, volume = id.0.0, vnode = id.1.0, "body stays in doubt");
            continue;
        }
        let gate = gate.read();
        if let Some(mark) = gate.mark {
            settling.push((mark.name, gate.writes));
        }
    }
    if settling.len() <= SYNC_EACH_MAX {
        return settling.iter().try_for_each(|(name, _)| sync_one(media, *name));
    }
    media.sync_disk(|| media.disk.sync_all())?;
    for (name, writes) in settling {
        let gate = media.bodies.gate((name.volume, name.vnode));
        let mut gate = gate.write();
        let mut batch = Batch::default();
        if settle(&mut gate, name, writes, &mut batch) {
            media.apply(&batch)?;
        }
    }
    Ok(())
}

/// How much versions of a body in doubt rise after a loss of power: more than the number of lost
/// changes that a client may have seen, which are some seconds' changes.
const LOST_VERSIONS: u64 = 1 << 20;

/// At a start: bodies that are still marked are in doubt, and files without a record are removed.
/// After a loss of power, files that replaced an inline body get back the bytes that they lost of
/// it, and bodies in doubt get new versions: the record may be from before a change and the bytes
/// from after it, so a client's cache of that version may differ from the body.
pub(crate) fn recall_marks(
    media: &Arc<Media>,
    power_lost: bool,
    volume: &FindVolume<'_>,
) -> Result<()> {
    let mut marked = Vec::new();
    let prefix = [kind::UNSTABLE];
    media.engine.scan(&prefix, &prefix_end(&prefix), &mut |key, _| {
        marked.extend(body_of_key(key));
        ControlFlow::Continue(())
    })?;
    for name in marked {
        let id = (name.volume, name.vnode);
        let volume = match volume(id.0) {
            Ok(Some(volume)) => volume,
            Ok(None) | Err(StoreError::Damaged(_)) => continue,
            Err(error) => return Err(error),
        };
        let current = match volume.vnode(name.vnode) {
            Ok(vnode) => vnode,
            Err(StoreError::Damaged(_)) => continue,
            Err(error) => return Err(error),
        };
        let place =
            BodyLocation::File { epoch: name.epoch, generation: name.generation, packed: false };
        if let Some(vnode) = current.filter(|vnode| vnode.place == place) {
            let gate = media.bodies.gate(id);
            let mut gate = gate.write();
            gate.suspect = true;
            gate.lent = crate::body_loans::is_lent_mark(media, name)?;
            gate.mapped = gate.lent;
            if gate.lent {
                media.bodies.lent.lock().insert(id);
            }
            gate.mark = Some(crate::bodies::Mark { name, batch: 0, size: u64::MAX });
            gate.unsynced_name = true;
            let key = backup_key(name);
            if let Some(value) = media.engine.get(&key)? {
                gate.backup = true;
                let backup = record::decode_bytes("inline body", &key, value);
                if let (true, Ok(Some(backup))) = (power_lost, backup) {
                    match restore(&volume.tree(), &gate, &vnode, backup) {
                        // Without its key the volume is unreadable; the mark and the backup wait
                        // for a start that has the key.
                        Err(StoreError::Locked(why)) => {
                            tracing::warn!(%why, "no key: a later start checks the body");
                        }
                        restored => restored?,
                    }
                }
            }
            drop(gate);
            if power_lost {
                renew_versions(&volume, vnode)?;
            }
        } else {
            media.disk.remove(name).map_err(|e| StoreError::from_io("removal of a body", &e))?;
            let mut batch = Batch::default();
            batch.delete(&unstable_key(name));
            media.apply(&batch)?;
        }
    }
    Ok(())
}

fn renew_versions(volume: &Volume, mut vnode: Vnode) -> Result<()> {
    if volume.is_incoming() {
        // A stream has the versions of its source.
        return Ok(());
    }
    vnode.status.data_version += LOST_VERSIONS;
    vnode.status.status_version += LOST_VERSIONS;
    let mut update = Update::new();
    update.put_vnode(&vnode);
    match volume.commit(update) {
        // A volume that is held was made stable before its move, and one that is only read was not
        // changed.
        Err(StoreError::Busy(_) | StoreError::ReadOnly(_)) => Ok(()),
        done => done,
    }
}

/// Writes the bytes that a body had before it moved into its file back, if the file's first block
/// does not match its last sum.
fn restore(tree: &EpochView, gate: &BodyState, vnode: &Vnode, backup: Bytes) -> Result<()> {
    let backup = tree.media.ciphers.open_inline(tree.id, vnode.no(), backup)?;
    let backup = &backup[..];
    let stored = tree.sums(vnode.no(), 0)?;
    let file = open_file(tree, gate, vnode)?;
    if stored[0] != 0 && sums_found(&*file, vnode, 0, &stored)?[0] != stored[0] {
        let bytes = &backup[..backup.len().min(vnode.status.size as usize)];
        file.write_at(0, bytes).map_err(|e| StoreError::from_io("write of a body", &e))?;
    }
    Ok(())
}

/// Removes up to `max` body files without a record; returns how many. The batches that removed the
/// names must be on disk first, or a crash could bring back a record whose file is gone.
pub(crate) fn sweep(media: &Arc<Media>, max: usize) -> Result<usize> {
    use std::sync::atomic::Ordering;
    if !media.garbage.swap(false, Ordering::SeqCst) {
        media.reclaim();
        return Ok(0);
    }
    // The next sweep must find the rest, also when the disk is full at the moment.
    let swept =
        sweep_some(media, max).inspect_err(|_| media.garbage.store(true, Ordering::SeqCst))?;
    if swept == max {
        media.garbage.store(true, Ordering::SeqCst);
    }
    Ok(swept)
}

fn sweep_some(media: &Arc<Media>, max: usize) -> Result<usize> {
    let mut garbage = Vec::new();
    let prefix = [kind::GARBAGE];
    media.engine.scan(&prefix, &prefix_end(&prefix), &mut |key, _| {
        garbage.extend(body_of_key(key));
        if garbage.len() == max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if garbage.is_empty() {
        return Ok(0);
    }
    media.sync()?;
    let mut batch = Batch::default();
    for name in &garbage {
        for packed in [false, true] {
            let name = BodyName { packed, ..*name };
            media.disk.remove(name).map_err(|e| StoreError::from_io("removal of a body", &e))?;
        }
        batch.delete(&key::garbage(name.volume, name.vnode, name.epoch, name.generation));
    }
    media.apply(&batch)?;
    Ok(garbage.len())
}

/// The body file of a mark or a garbage record.
pub(crate) fn body_of_key(key: &[u8]) -> Option<BodyName> {
    let number = |at| key::number_at(key, at);
    Some(BodyName {
        volume: VolumeId(number(0)?),
        vnode: VnodeNo(number(1)?),
        epoch: number(2)?,
        generation: u32::try_from(number(3)?).ok()?,
        packed: false,
    })
}
