//! How much more a change of a body will be charged, before it is made: the quota refuses it at the call, and bytes that were
//! overwritten do not come back.
//!
//! The store charges an inline body for its bytes and a body file for each block of [`BLOCK_BYTES`] that is no hole. `free` is
//! what the quota leaves: where the largest possible growth fits, nobody looks for holes.

use store::{BLOCK_BYTES, INLINE_BYTES_MAX, Place, Vnode};
use types::Fault;

use crate::volume::ViceVolume;

/// Growth by data or reserved room from `start` to `end` (excluded), in a body that is `size` long afterwards.
pub(crate) fn of_range(
    volume: &ViceVolume,
    vnode: &Vnode,
    start: u64,
    end: u64,
    size: u64,
    free: u64,
) -> Result<u64, Fault> {
    let status = &vnode.status;
    if !matches!(vnode.place, Place::File { .. }) {
        let first = if status.size > 0 { 0 } else { start / BLOCK_BYTES };
        let with_old = u64::from(status.size > 0 && start >= BLOCK_BYTES);
        let touched = blocks(if with_old > 0 { start } else { first * BLOCK_BYTES }, end) + with_old;
        let used = if size <= INLINE_BYTES_MAX { size } else { touched * BLOCK_BYTES };
        return Ok(used.saturating_sub(status.used));
    }
    let most = blocks(start, end) * BLOCK_BYTES;
    if most <= free {
        return Ok(most);
    }
    let reader = volume.store.reader(vnode.no())?.ok_or(Fault::Stale)?;
    let first = start / BLOCK_BYTES;
    let count = blocks(start, end);
    let present = reader.sums(first, u32::try_from(count).unwrap_or(u32::MAX))?;
    let present = present.iter().filter(|sum| **sum != 0).count() as u64;
    Ok((count - present.min(count)) * BLOCK_BYTES)
}

/// Growth by a new size.
pub(crate) fn of_resize(_volume: &ViceVolume, vnode: &Vnode, size: u64, _free: u64) -> Result<u64, Fault> {
    let status = &vnode.status;
    if matches!(vnode.place, Place::File { .. }) {
        return Ok(0); // a hole
    }
    let used = match () {
        () if size <= INLINE_BYTES_MAX => size,
        () if status.size == 0 => 0,
        () => BLOCK_BYTES,
    };
    Ok(used.saturating_sub(status.used))
}

/// Blocks that a range touches.
fn blocks(start: u64, end: u64) -> u64 {
    if start >= end { 0 } else { end.div_ceil(BLOCK_BYTES) - start / BLOCK_BYTES }
}
