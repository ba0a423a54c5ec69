//! Locks of vnodes: a fixed number of stripes, so that any vnode has a lock without allocation.
//!
//! A change of vnodes holds all of their stripes for writing, taken at once in the order of the
//! stripes, which excludes deadlock. A read holds at most one stripe, for reading: so no last name
//! is removed between a promise and the read of the promised vnode (see `files/change.rs`).

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;
use types::Fid;

/// Enough that two of the few hundred calls in progress seldom share one by chance.
const STRIPES: usize = 1024;

/// See the head of the file.
pub(crate) struct Stripes(Box<[RwLock<()>]>);

/// Exclude all other calls on the vnodes that change.
pub(crate) type StripeGuards<'a> = SmallVec<[RwLockWriteGuard<'a, ()>; 4]>;

impl Stripes {
    pub fn new() -> Self {
        Stripes((0..STRIPES).map(|_| RwLock::new(())).collect())
    }

    pub fn read(&self, fid: Fid) -> RwLockReadGuard<'_, ()> {
        self.0[stripe(fid)].read()
    }

    pub fn write(&self, fids: &[Fid]) -> StripeGuards<'_> {
        let mut wanted: SmallVec<[usize; 4]> = fids.iter().map(|fid| stripe(*fid)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted.into_iter().map(|stripe| self.0[stripe].write()).collect()
    }
}

/// Neighbouring vnodes get different stripes, so that the files of one directory do.
fn stripe(fid: Fid) -> usize {
    let mixed = (fid.vnode.0 ^ fid.volume.0.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 54) as usize
}

const _: () = assert!(STRIPES == 1 << (64 - 54));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vnode_named_twice_is_locked_once() {
        let stripes = Stripes::new();
        let fid = Fid::new(1, 2, 3);
        assert_eq!(stripes.write(&[fid, fid]).len(), 1);
        let held = stripes.write(&[fid, Fid::new(1, 4, 3)]);
        assert_eq!(held.len(), 2);
    }
}
