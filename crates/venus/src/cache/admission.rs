//! Admission to the disk cache of streams that are faster than its disk.
//!
//! A long stream that comes from its server faster than the cache's disk writes is not stored the
//! first time: its pages are in the kernel, the server is as near as the disk, and most streamed
//! bytes are never read again. Storing it costs the client as much processor time as all the rest
//! of such a read. Blocks that were *left out* are recorded here, and stored the second time:
//!
//! - when the file is opened again, it is fetched in the background, a block at a time, so that the
//!   kernel can have the whole body soon;
//! - when a reader fetches its bytes once more, they are stored at once.
//!
//! When all of it is here and no application has the file open, the kernel drops its own pages of
//! it: the next open only passes the body.
//!
//! The record belongs to one data version of the file, and is lost with the process: then the next
//! reading is a first one again.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;
use types::{DataVersion, Fid};

/// Most files on record; a further one replaces one of them.
const FILES_MAX: usize = 256;

struct Left {
    version: DataVersion,
    blocks: BTreeSet<u64>,
    /// A thread fetches them.
    caught_up: bool,
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Admission {
    files: Mutex<HashMap<Fid, Left>>,
}

impl Admission {
    /// Whether this block may be left out: only once.
    pub fn leave(&self, fid: Fid, version: DataVersion, block: u64) -> bool {
        let mut files = self.files.lock();
        if files.len() >= FILES_MAX && !files.contains_key(&fid) {
            let some = files.keys().next().copied();
            some.and_then(|some| files.remove(&some));
        }
        let new = || Left { version, blocks: BTreeSet::new(), caught_up: false };
        let left = files.entry(fid).or_insert_with(new);
        if left.version != version {
            *left = new();
        }
        // The second time it is stored, and the background need not fetch it any more.
        left.blocks.insert(block) || !left.blocks.remove(&block)
    }

    /// Whether the caller is to fetch the blocks left out of the file, which is open again.
    pub fn begin(&self, fid: Fid, version: DataVersion) -> bool {
        let mut files = self.files.lock();
        let Some(left) = files.get_mut(&fid).filter(|left| left.version == version) else {
            return false;
        };
        !std::mem::replace(&mut left.caught_up, true)
    }

    /// The next block to fetch; behind the last one the record is dropped.
    pub fn next(&self, fid: Fid, version: DataVersion) -> Option<u64> {
        let mut files = self.files.lock();
        let left = files.get_mut(&fid).filter(|left| left.version == version)?;
        let next = left.blocks.pop_first();
        if next.is_none() {
            files.remove(&fid);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: DataVersion = DataVersion(1);
    const V2: DataVersion = DataVersion(2);

    const FILE: Fid = Fid::new(7, 42, 3);

    #[test]
    fn a_block_is_left_out_once_and_of_its_version() {
        let left = Admission::default();
        assert!(left.leave(FILE, V1, 5));
        assert!(left.leave(FILE, V1, 6));
        assert!(!left.leave(FILE, V1, 5), "it came by again");
        assert!(!left.begin(FILE, V2));
        assert!(left.begin(FILE, V1));
        assert!(!left.begin(FILE, V1), "one catches up");
        assert_eq!((left.next(FILE, V1), left.next(FILE, V1)), (Some(6), None));
        assert!(!left.begin(FILE, V1), "all is done");
        assert!(left.leave(FILE, V1, 9));
        assert!(left.leave(FILE, V2, 9), "of another version");
        assert_eq!(left.next(FILE, V1), None);
    }

    #[test]
    fn no_more_files_are_remembered_than_there_is_room_for() {
        let left = Admission::default();
        for vnode in 0..2 * FILES_MAX as u64 {
            assert!(left.leave(Fid::new(7, 2 * vnode, 1), V1, 0));
        }
        assert_eq!(left.files.lock().len(), FILES_MAX);
    }
}
