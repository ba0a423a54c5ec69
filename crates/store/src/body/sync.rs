//! Making bodies stable: one at a commit, all in the background; and computing new sums for bodies
//! that a crash left in doubt.

use std::ops::ControlFlow;

use bytes::Bytes;
use types::VnodeNo;

use super::files::{failed, is_lent_mark, open_file, sums_found};
use super::update::Update;
use crate::error::Result;
use crate::format::header::HeadState;
use crate::format::key::kind;
use crate::format::names::BodyName;
use crate::format::record;
use crate::media::Media;
use crate::media::body_state::{BodyId, BodyState};
use crate::media::engine::{Batch, Engine, prefix_end};
use crate::tree::{EpochView, RecordWriter, TreeState, Trees};
use crate::{StoreError, Vnode};

/// With more unstable bodies than this, one sync of the whole file system is assumed to be cheaper
/// than one per body. Tests have few bodies, and cover both ways.
const SYNC_EACH_MAX: usize = if cfg!(test) { 2 } else { 16 };

/// Settles a body that a crash or a dropped update left in doubt: computes its sums from the file.
pub(crate) fn resum(tree_state: &TreeState, no: VnodeNo) -> Result<()> {
    let _writes = tree_state.write();
    resum_quietly(tree_state, no)
}

/// The same for a caller that writes, or excludes writers.
fn resum_quietly(tree_state: &TreeState, no: VnodeNo) -> Result<()> {
    let tree = &*tree_state.head();
    let gate = tree.media.gates.gate((tree.id, no));
    let mut groups = Vec::new();
    tree.each_group(no, 0, &mut |group, _| {
        groups.push(group);
        ControlFlow::Continue(())
    })?;
    let before = gate.read().writes();
    for group in groups {
        // Takes the gate for each group, so that readers of a long body do not wait for all of it.
        let gate = gate.write();
        if gate.is_lent() {
            return Ok(());
        }
        let Some(vnode) = tree.vnode(no)? else { break };
        if tree.body_name(&vnode).is_none() {
            break;
        }
        resum_group(tree_state, tree, &gate, &vnode, group)?;
    }
    let mut gate = gate.write();
    let in_file = tree.vnode(no)?.filter(|vnode| tree.body_name(vnode).is_some());
    if let Some(vnode) = &in_file {
        // Created if it never reached the disk: it may contain only holes.
        let file = open_file(tree, &gate, vnode)?;
        tree.media.sync_disk(|| file.sync())?;
        gate.doubt_name();
    }
    // A write that was dropped meanwhile leaves new doubt.
    if !gate.is_lent() && (gate.writes() == before || in_file.is_none()) {
        gate.become_summed("summed anew");
    }
    Ok(())
}

fn resum_group(
    tree_state: &TreeState,
    tree: &EpochView,
    gate: &BodyState,
    vnode: &Vnode,
    group: u64,
) -> Result<()> {
    let stored = tree.sums(vnode.no(), group)?;
    let file = open_file(tree, gate, vnode)?;
    let found = sums_found(&*file, vnode, group, &stored)?;
    if found != stored {
        let mut batch = Batch::default();
        let mut records = RecordWriter::new(tree, &mut batch);
        if tree.is_sealed() {
            records.note_change(vnode.no());
        }
        records.put_sums(vnode.no(), group, &found)?;
        tree.media.apply(&batch)?;
        // The bytes came into the file without an update.
        tree_state.stop_feed();
    }
    Ok(())
}

/// Brings one body's data to the disk, without the records.
pub(crate) fn sync_one(media: &Media, name: BodyName) -> Result<()> {
    media.usable()?;
    let gate = media.gates.gate((name.volume, name.vnode));
    let (file, writes, unsynced_name) = {
        let gate = gate.read();
        if gate.mark().is_none() && !gate.has_unsynced_name() {
            return Ok(());
        }
        (gate.file(&*media.disk, name)?, gate.writes(), gate.has_unsynced_name())
    };
    let Some(file) = file else { return Ok(()) };
    media.sync_disk(|| file.sync())?;
    if unsynced_name {
        media.sync_disk(|| media.disk.sync_name(name))?;
    }
    settle(media, name, writes)
}

/// Removes the mark of a body that is on disk up to the given write, unless a later write came.
fn settle(media: &Media, name: BodyName, writes: u64) -> Result<()> {
    let gate = media.gates.gate((name.volume, name.vnode));
    let mut gate = gate.write();
    let Some(had_backup) = gate.become_stable(name, writes) else { return Ok(()) };
    let mut batch = Batch::default();
    batch.delete(&name.unstable_key());
    if had_backup {
        batch.delete(&name.backup_key());
    }
    media.apply(&batch).map(drop)
}

/// Brings every body to the disk and removes the marks, except of bodies written meanwhile; then
/// syncs the log.
pub(crate) fn sync_all(trees: &Trees) -> Result<()> {
    let media = &trees.media;
    settle_bodies(media, media.gates.unsettled(None), &|id| {
        trees.writer(id.0)?.map_or(Ok(()), |tree_state| resum(&tree_state, id.1))
    })?;
    media.sync()
}

/// The same for the bodies of one tree, without a sync of the log.
pub(crate) fn settle_tree(tree_state: &TreeState) -> Result<()> {
    let media = &tree_state.media;
    let bodies = media.gates.unsettled(Some(tree_state.id));
    settle_bodies(media, bodies, &|id| resum(tree_state, id.1))
}

/// The same for a caller that excludes writers.
pub(crate) fn settle_tree_quietly(tree_state: &TreeState) -> Result<()> {
    let media = &tree_state.media;
    let bodies = media.gates.unsettled(Some(tree_state.id));
    settle_bodies(media, bodies, &|id| resum_quietly(tree_state, id.1))
}

fn settle_bodies(
    media: &Media,
    bodies: Vec<BodyId>,
    resum: &dyn Fn(BodyId) -> Result<()>,
) -> Result<()> {
    media.usable()?;
    let mut settling = Vec::new();
    for id in bodies {
        let gate = media.gates.gate(id);
        // A damaged record leaves one body in doubt, not the others.
        if gate.read().is_suspect()
            && let Err(error) = resum(id)
        {
            media.usable()?;
            tracing::warn!(%error, volume = id.0.0, vnode = id.1.0, "body stays in doubt");
            continue;
        }
        let gate = gate.read();
        if let Some(mark) = gate.mark() {
            settling.push((mark.name, gate.writes()));
        }
    }
    if settling.len() <= SYNC_EACH_MAX {
        return settling.iter().try_for_each(|(name, _)| sync_one(media, *name));
    }
    media.sync_disk(|| media.disk.sync_all())?;
    settling.into_iter().try_for_each(|(name, writes)| settle(media, name, writes))
}

/// How much versions of a body in doubt rise after a loss of power: more than the number of lost
/// changes that a client may have seen, which are some seconds' changes.
const LOST_VERSIONS: u64 = 1 << 20;

/// At a start: bodies that are still marked are in doubt, and files without a record are removed.
/// After a loss of power, files that replaced an inline body get back the bytes that they lost of
/// it, and bodies in doubt get new versions: the record may be from before a change and the bytes
/// from after it, so a client's cache of that version may differ from the body.
pub(crate) fn recall_marks(trees: &Trees, power_lost: bool) -> Result<()> {
    let media = &trees.media;
    let mut marked = Vec::new();
    let prefix = [kind::UNSTABLE];
    media.engine.scan(&prefix, &prefix_end(&prefix), &mut |key, _| {
        marked.extend(BodyName::of_key(key));
        ControlFlow::Continue(())
    })?;
    for name in marked {
        let tree_state = match trees.writer(name.volume) {
            Ok(Some(tree_state)) => tree_state,
            Ok(None) | Err(StoreError::Damaged(_)) => continue,
            Err(error) => return Err(error),
        };
        let current = match tree_state.head().vnode(name.vnode) {
            Ok(vnode) => vnode,
            Err(StoreError::Damaged(_)) => continue,
            Err(error) => return Err(error),
        };
        if let Some(vnode) = current.filter(|vnode| vnode.place == name.place()) {
            recall(&tree_state, name, &vnode, power_lost)?;
            if power_lost {
                renew_versions(&tree_state, vnode)?;
            }
        } else {
            media.disk.remove(name).map_err(failed("removal of a body"))?;
            let mut batch = Batch::default();
            batch.delete(&name.unstable_key());
            media.apply(&batch)?;
        }
    }
    Ok(())
}

fn recall(tree_state: &TreeState, name: BodyName, vnode: &Vnode, power_lost: bool) -> Result<()> {
    let media = &tree_state.media;
    let gate = media.gates.gate((name.volume, name.vnode));
    let mut gate = gate.write();
    gate.recall(name, is_lent_mark(media, name)?);
    let key = name.backup_key();
    let Some(value) = media.engine.get(&key)? else { return Ok(()) };
    gate.set_backup(true);
    let backup = record::decode_bytes("inline body", &key, value);
    if let (true, Ok(Some(backup))) = (power_lost, backup) {
        match restore(&tree_state.head(), &gate, vnode, backup) {
            // Without its key the volume is unreadable; the mark and the backup wait for a start
            // that has the key.
            Err(StoreError::Locked(why)) => {
                tracing::warn!(%why, "no key: a later start checks the body");
            }
            restored => restored?,
        }
    }
    Ok(())
}

fn renew_versions(tree_state: &TreeState, mut vnode: Vnode) -> Result<()> {
    if tree_state.head_state() != HeadState::Serving {
        // A stream has the versions of its source, and a volume that is held was made stable before
        // its move.
        return Ok(());
    }
    vnode.status.data_version = vnode.status.data_version.raised(LOST_VERSIONS);
    vnode.status.status_version = vnode.status.status_version.raised(LOST_VERSIONS);
    let mut update = Update::new();
    update.put_vnode(&vnode);
    update.commit(tree_state)
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
        file.write_at(0, bytes).map_err(failed("write of a body"))?;
    }
    Ok(())
}

/// Removes up to `max` body files without a record; returns how many. The batches that removed the
/// names must be on disk first, or a crash could bring back a record whose file is gone.
pub(crate) fn sweep(media: &Media, max: usize) -> Result<usize> {
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

fn sweep_some(media: &Media, max: usize) -> Result<usize> {
    let mut garbage = Vec::new();
    let prefix = [kind::GARBAGE];
    media.engine.scan(&prefix, &prefix_end(&prefix), &mut |key, _| {
        garbage.extend(BodyName::of_key(key));
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
            media.disk.remove(name).map_err(failed("removal of a body"))?;
        }
        batch.delete(&name.garbage_key());
    }
    media.apply(&batch)?;
    Ok(garbage.len())
}
