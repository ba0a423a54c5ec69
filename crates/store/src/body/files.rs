//! Body files: opened, read, compared with their sums, and marked in the log.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::error::Result;
use crate::format::key::{self, kind};
use crate::format::names::BodyName;
use crate::format::record::{self, GROUP_BLOCKS, Sums};
use crate::format::sums::{self, BLOCK};
use crate::media::body_state::BodyState;
use crate::media::disk::BodyFile;
use crate::media::engine::{Batch, Engine, prefix_end};
use crate::media::{CommitScope, Media};
use crate::tree::EpochView;
use crate::{BLOCK_BYTES, StoreError, Vnode};

/// The error of an operation on a body file.
pub(crate) fn failed(what: &'static str) -> impl FnOnce(std::io::Error) -> StoreError {
    move |error| StoreError::from_io(what, &error)
}

/// The file of a body that is in one. After a crash the file may never have reached the disk: then
/// this creates it, empty.
pub(crate) fn open_file(
    tree: &EpochView,
    gate: &BodyState,
    vnode: &Vnode,
) -> Result<Arc<dyn BodyFile>> {
    let name = tree.body_name(vnode).ok_or(StoreError::Misuse("body is in no file"))?;
    if let Some(file) = gate.file(&*tree.media.disk, name)? {
        return Ok(file);
    }
    if !gate.is_doubtful() || !tree.is_head() {
        return Err(damaged_body(vnode, "has lost its file"));
    }
    tree.media.disk.create(name).map_err(failed("new body"))
}

/// Fills `buffer`; the part past the file's end does not change. Returns the number of bytes read.
pub(crate) fn read_exactly(file: &dyn BodyFile, offset: u64, buffer: &mut [u8]) -> Result<usize> {
    file.read_at(offset, buffer).map_err(failed("read of a body"))
}

pub(crate) fn damaged_block(vnode: &Vnode, block: u64) -> StoreError {
    StoreError::Damaged(format!("block {block} of {}", vnode.status.fid))
}

pub(crate) fn damaged_body(vnode: &Vnode, what: &str) -> StoreError {
    StoreError::Damaged(format!("{}, which {what},", vnode.status.fid))
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

/// The value of the mark of a body that is not lent.
pub(super) const NOT_LENT: [u64; 0] = [];
/// The value of a lent body's mark.
pub(super) const LENT: [u64; 1] = [1];

/// Puts a file's mark with this value into the log; returns the number of its batch.
pub(super) fn put_mark(
    media: &Media,
    scope: Option<&CommitScope>,
    name: BodyName,
    value: &[u64],
) -> Result<u64> {
    let key = name.unstable_key();
    let mut batch = Batch::default();
    batch.put(&key, &record::encode_numbers(&key, value));
    media.apply_in(scope, &batch)
}

/// Whether the body's mark records a loan.
pub(super) fn is_lent_mark(media: &Media, name: BodyName) -> Result<bool> {
    let key = name.unstable_key();
    let value = media.engine.get(&key)?;
    Ok(value
        .is_some_and(|value| record::decode_numbers(&key, &value).is_ok_and(|found| found == LENT)))
}

/// Whether a record of the body's vnode in any epoch names its file, or is damaged, so that it may.
pub(crate) fn is_named(media: &Media, name: BodyName) -> Result<bool> {
    let place = name.place();
    let prefix = key::of_vnode(kind::VNODE, name.volume, name.vnode);
    let mut named = false;
    media.engine.scan(&prefix, &prefix_end(&prefix), &mut |key, value| {
        let vnode = record::decode_vnode(key, name.volume, name.vnode, value);
        named = vnode.map_or(true, |vnode| vnode.is_some_and(|vnode| vnode.place == place));
        if named { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(named)
}

/// Makes a copy of a body's file, on disk and marked as unowned.
pub(super) fn make_copy(
    media: &Media,
    name: BodyName,
    copy: BodyName,
) -> Result<Arc<dyn BodyFile>> {
    put_mark(media, None, copy, &NOT_LENT)?;
    // Otherwise a restart would not know that the copy has no owner.
    media.write_out()?;
    let file = media.disk.copy(name, copy).map_err(failed("copy of a body"))?;
    media.sync_disk(|| file.sync())?;
    media.sync_disk(|| media.disk.sync_name(copy))?;
    Ok(file)
}
