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
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use types::{Answer, Call, Caller, Fid, Status};

use crate::RequestContext;
use crate::core::Core;
use crate::disk_cache::Edition;
use crate::read_cache::BLOCK;

/// Most files on record; a further one replaces one of them.
const FILES_MAX: usize = 256;

/// The speed of one handle's stream, since its first read.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    began: Option<(Instant, u64)>,
}

impl Pace {
    /// A read of `start..end` that follows the last one or not. Returns whether the stream has come
    /// so far as `far` bytes at `rate` bytes a second or more.
    pub fn is_fast(
        &mut self,
        now: Instant,
        follows: bool,
        (start, end): (u64, u64),
        far: u64,
        rate: u64,
    ) -> bool {
        let began = self.began.filter(|_| follows);
        let (since, from) = *self.began.insert(began.unwrap_or((now, start)));
        let bytes = end.saturating_sub(from);
        bytes >= far
            && Duration::from_millis(bytes.saturating_mul(1000) / rate.max(1))
                >= now.saturating_duration_since(since)
    }
}

struct Left {
    version: u64,
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
    pub fn leave(&self, fid: Fid, version: u64, block: u64) -> bool {
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
    fn begin(&self, fid: Fid, version: u64) -> bool {
        let mut files = self.files.lock();
        let Some(left) = files.get_mut(&fid).filter(|left| left.version == version) else {
            return false;
        };
        !std::mem::replace(&mut left.caught_up, true)
    }

    /// The next block to fetch; behind the last one the record is dropped.
    fn next(&self, fid: Fid, version: u64) -> Option<u64> {
        let mut files = self.files.lock();
        let left = files.get_mut(&fid).filter(|left| left.version == version)?;
        let next = left.blocks.pop_first();
        if next.is_none() {
            files.remove(&fid);
        }
        next
    }
}

impl Core {
    /// Whether a block of a fast stream is left out of the disk cache this time.
    pub fn leave_out(&self, status: &Status, block: u64) -> bool {
        self.disk().is_some() && self.left_out.leave(status.fid, status.data_version, block)
    }

    /// The file is opened again: fetches the blocks left out of it, in the background.
    pub fn fetch_skipped_blocks(&self, caller: &Caller, status: &Status) {
        let Some(core) = self.this.get().and_then(std::sync::Weak::upgrade) else { return };
        if self.left_out.begin(status.fid, status.data_version) {
            let (caller, fid, version) = (caller.clone(), status.fid, status.data_version);
            self.readers.run(move || core.fetch_one_left_out(caller, fid, version));
        }
    }

    /// Fetches one block, and queues the next one behind the other jobs.
    fn fetch_one_left_out(self: &Arc<Self>, caller: Caller, fid: Fid, version: u64) {
        let Some(block) = self.left_out.next(fid, version) else {
            return self.drop_pages_of_whole(fid);
        };
        let request = RequestContext { caller: &caller, cancel: Some(&self.leaving), groups: None };
        let life = self.instance.life();
        let call = Call::Read { fid, offset: block * BLOCK, length: BLOCK as u32 };
        let Ok(Answer::Data { data, status, .. }) = self.call(&request, call) else { return };
        if status.data_version != version {
            return;
        }
        if let Some(disk) = self.disk() {
            disk.store(fid, Edition::of(&status, life), status.size, block * BLOCK, &data);
        }
        let core = Arc::clone(self);
        self.readers.run(move || core.fetch_one_left_out(caller, fid, version));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Fid = Fid::new(7, 42, 3);
    const MIB: u64 = 1 << 20;

    #[test]
    fn a_block_is_left_out_once_and_of_its_version() {
        let left = Admission::default();
        assert!(left.leave(FILE, 1, 5));
        assert!(left.leave(FILE, 1, 6));
        assert!(!left.leave(FILE, 1, 5), "it came by again");
        assert!(!left.begin(FILE, 2));
        assert!(left.begin(FILE, 1));
        assert!(!left.begin(FILE, 1), "one catches up");
        assert_eq!((left.next(FILE, 1), left.next(FILE, 1)), (Some(6), None));
        assert!(!left.begin(FILE, 1), "all is done");
        assert!(left.leave(FILE, 1, 9));
        assert!(left.leave(FILE, 2, 9), "of another version");
        assert_eq!(left.next(FILE, 1), None);
    }

    #[test]
    fn no_more_files_are_remembered_than_there_is_room_for() {
        let left = Admission::default();
        for vnode in 0..2 * FILES_MAX as u64 {
            assert!(left.leave(Fid::new(7, 2 * vnode, 1), 1, 0));
        }
        assert_eq!(left.files.lock().len(), FILES_MAX);
    }

    #[test]
    fn a_stream_is_fast_when_it_went_far_in_little_time() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let mut pace = Pace::default();
        let read = |pace: &mut Pace, now, at: u64| {
            pace.is_fast(now, true, (at * MIB, (at + 1) * MIB), 32 * MIB, 16 * MIB)
        };
        assert!(!read(&mut pace, start, 0));
        assert!(!read(&mut pace, after(10), 30), "not far enough");
        assert!(read(&mut pace, after(20), 31));
        assert!(!read(&mut pace, after(9000), 63), "64 MiB in nine seconds");
        assert!(
            !pace.is_fast(after(9010), false, (500 * MIB, 600 * MIB), 200 * MIB, 16 * MIB),
            "begins anew"
        );
    }
}
