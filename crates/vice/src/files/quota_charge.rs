//! The additional charge of a change of a body, computed before it is made: the quota refuses it at
//! the call, since overwritten bytes cannot be restored.
//!
//! The store charges an inline body for its bytes, and a body file for each block of
//! [`BLOCK_BYTES`] that is no hole. `free` is the rest of the quota: where the largest possible
//! growth fits, the holes are not searched.

use store::{BLOCK_BYTES, INLINE_BYTES_MAX, Vnode};
use types::Fault;

use crate::volumes::ViceVolume;

/// Growth by data or preallocated space from `start` to `end` (excluded), in a body that is `size`
/// long afterwards.
pub(crate) fn of_range(
    volume: &ViceVolume,
    vnode: &Vnode,
    start: u64,
    end: u64,
    size: u64,
    free: u64,
) -> Result<u64, Fault> {
    let status = &vnode.status;
    let touched = blocks(start, end);
    if !vnode.place.is_file() {
        // An inline body moves into the first block of a file.
        let first = u64::from(status.size > 0 && start >= BLOCK_BYTES);
        let used = if end <= INLINE_BYTES_MAX { size } else { (touched + first) * BLOCK_BYTES };
        return Ok(used.saturating_sub(status.used));
    }
    // The holes of a loaned body are unknown; the loan required free space.
    if touched * BLOCK_BYTES <= free || volume.store.loans().has(vnode.no()) {
        return Ok(touched * BLOCK_BYTES);
    }
    let reader = volume.store.reader(vnode.no())?.ok_or(Fault::Stale)?;
    let charged = reader.charged(start / BLOCK_BYTES, touched)?;
    Ok((touched - charged) * BLOCK_BYTES)
}

/// Growth by a new size.
pub(crate) fn of_resize(vnode: &Vnode, size: u64) -> u64 {
    let status = &vnode.status;
    if vnode.place.is_file() {
        return 0; // a hole
    }
    let used = match () {
        () if size <= INLINE_BYTES_MAX => size,
        () if status.size == 0 => 0,
        () => BLOCK_BYTES,
    };
    used.saturating_sub(status.used)
}

/// Blocks that a range touches.
fn blocks(start: u64, end: u64) -> u64 {
    if start >= end { 0 } else { end.div_ceil(BLOCK_BYTES) - start / BLOCK_BYTES }
}
