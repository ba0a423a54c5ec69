//! Cached bytes of all files: what stays in memory and on the disk when bytes come or are written,
//! and when a file's data goes.
//!
//! A file's data stays while it is open or has bytes that are not stable at the server. When it
//! goes and all blocks of the file are verified, the next open passes the body to the kernel, whose
//! own pages of it are then of no more use.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use client::Cancel;
use types::{BootVerifier, DataVersion, Fid, Status};

use super::{Admission, Siblings};
use crate::base::Share;
use crate::data::{
    Ahead, BLOCK, Block, Chunk, Data, DiskCache, Edition, FileBytes, Landed, MountShared, Taken,
};
use crate::session::Ground;

/// Most bytes that wait for the disk cache.
const FILLING_BYTES_MAX: usize = 32 << 20;

/// The kernel's own pages serve shorter bodies as quickly, and opening them again needs no call.
pub(crate) const READ_MIN: u64 = 512 << 10;

/// The kernel's own pages serve shorter files as quickly.
pub(crate) const SIZE_MIN: u64 = 128 << 10;

/// Following longer files would take too long, and a writer elsewhere waits for that.
pub(crate) const SIZE_MAX: u64 = 1 << 30;

/// Cached bytes of files, beyond what one file has: the disk cache, limits, and what the kernel
/// drops.
pub(crate) struct Cache {
    ground: Ground,
    siblings: Arc<Siblings>,
    common: Arc<MountShared>,
    ahead: Share,
    filling: Share,
    skipped: Admission,
}

impl Cache {
    pub fn new(ground: &Ground, siblings: &Arc<Siblings>, common: &Arc<MountShared>) -> Self {
        Cache {
            ground: ground.clone(),
            siblings: Arc::clone(siblings),
            common: Arc::clone(common),
            ahead: Share::of(&common.ahead),
            filling: Share::of(&common.filling),
            skipped: Admission::default(),
        }
    }

    pub fn disk(&self) -> Option<&DiskCache> {
        self.common.disk().filter(|_| !self.ground.server.is_local())
    }

    /// Drops the file's data when nothing needs it.
    pub fn drop_if_unused(self: &Arc<Self>, file: &FileBytes) {
        let Some(learned) = self.is_dropped(file) else { return };
        if let Some(disk) = self.disk() {
            disk.rest(file.fid);
        }
        if learned {
            self.drop_pages(file.fid);
        }
        self.drop_pages_of_whole(file.fid);
    }

    /// Whether the data was dropped; if so, whether all blocks of the file were known to be good.
    fn is_dropped(&self, file: &FileBytes) -> Option<bool> {
        let data = file.data.lock();
        let mut tables = self.ground.names.lock();
        let idle = file.is_clean()
            && data.passed.is_none()
            && data.sealed.is_empty()
            && data.unstable.is_empty()
            && data.workers == 0;
        if !idle {
            return None;
        }
        let whole = |status: &Status| data.reads.known.is_whole(status.data_version, status.size);
        let learned = tables.drop_file(file, whole)?;
        self.drop_ahead(data.reads.bytes());
        Some(learned)
    }

    /// Checks that bodies can be given to the kernel.
    ///
    /// # Errors
    /// The reason why not, for people.
    pub fn passes(&self) -> Result<(), &'static str> {
        match (self.ground.config.passthrough, self.ground.server.is_local()) {
            (false, _) => Err("it is switched off"),
            (_, false) if self.disk().is_none() => {
                Err("the server is on another machine, and there is no disk cache")
            }
            _ => self.ground.kernel.port().passes(),
        }
    }

    /// The next open of this file, whose blocks are all verified now, is passed: the kernel's own
    /// pages of it are of no more use. To drop them at the open would delay it (50 ms for 256 MiB).
    fn drop_pages(&self, fid: Fid) {
        let status = self.ground.names.lock().nodes.get(&fid).and_then(|node| node.status);
        if self.ground.server.is_local()
            && status.is_some_and(|status| status.size >= READ_MIN)
            && self.passes().is_ok()
        {
            let kernel = self.ground.kernel.port();
            // Not in this thread: the kernel may wait for it.
            self.ground.workers.fill(move || kernel.inode_data(fid));
        }
    }

    /// Runs behind all jobs for the disk cache: if the whole file is in it then and no application
    /// has the file open, the next open is passed, and the kernel's own pages of it are of no more
    /// use. To drop them at the open would delay it (50 ms for 256 MiB).
    pub fn drop_pages_of_whole(self: &Arc<Self>, fid: Fid) {
        if self.disk().is_some() && self.passes().is_ok() && self.closed(fid).is_some() {
            // In a thread for which the kernel never waits.
            let core = Arc::clone(self);
            self.ground.workers.fill(move || {
                if core.closed(fid).is_some_and(|status| core.is_whole(&status)) {
                    core.ground.kernel.port().inode_data(fid);
                }
            });
        }
    }

    /// The file's status, if it is not open here and could be passed.
    fn closed(&self, fid: Fid) -> Option<Status> {
        let tables = self.ground.names.lock();
        if tables.nodes.whole(&fid).is_some_and(|node| node.opens > 0) {
            return None;
        }
        let status = tables.nodes.get(&fid)?.status?;
        (SIZE_MIN..=SIZE_MAX).contains(&status.size).then_some(status)
    }

    fn is_whole(&self, status: &Status) -> bool {
        let missing = self.disk().and_then(|disk| {
            disk.missing(status.fid, self.ground.server.edition(status), status.size)
        });
        missing.is_some_and(|missing| missing.is_empty())
    }

    fn drop_ahead(&self, bytes: usize) {
        self.ahead.change(bytes, 0);
    }

    /// Reads `start..end`, which lies in the file, out of the blocks read ahead; and whether the
    /// read had to wait for them on a long line.
    pub fn read_blocks(
        &self,
        file: &FileBytes,
        status: &Status,
        start: u64,
        end: u64,
        cancel: Option<&Cancel>,
    ) -> (Option<Bytes>, bool) {
        let mut data = file.data.lock();
        let mut waited = false;
        loop {
            if data.reads.version != status.data_version || cancel.is_some_and(Cancel::is_cancelled)
            {
                return (None, waited);
            }
            let mut freed = 0;
            let found = data.reads.read(start, end, status.size, &mut freed);
            self.drop_ahead(freed);
            match found {
                Ahead::Data(bytes) => return (Some(bytes), waited),
                Ahead::Missing => return (None, waited),
                Ahead::Coming => {
                    waited |= data.reads.is_far();
                    file.moved.wait_for(&mut data, std::time::Duration::from_millis(20));
                }
            }
        }
    }

    /// Writes bytes, which were asked for in this server instance, to the disk cache, soon; not if
    /// the disk is slower than the line.
    pub fn store(
        self: &Arc<Self>,
        status: &Status,
        instance: BootVerifier,
        offset: u64,
        bytes: &Bytes,
    ) {
        let length = bytes.len();
        if self.disk().is_none() || self.filling.bytes() > self.filling.limit(FILLING_BYTES_MAX) {
            return;
        }
        self.filling.change(0, length);
        let (core, status, bytes) = (Arc::clone(self), *status, bytes.clone());
        self.ground.workers.fill(move || {
            if let Some(disk) = core.disk() {
                disk.store(status.fid, Edition::of(&status, instance), status.size, offset, &bytes);
            }
            drop(bytes);
            core.filling.change(length, 0);
        });
    }

    /// Whether a block of a fast stream is left out of the disk cache this time.
    pub fn leave_out(&self, status: &Status, block: u64) -> bool {
        self.disk().is_some() && self.skipped.leave(status.fid, status.data_version, block)
    }

    /// An own write of these bytes is at the server.
    pub fn wrote(&self, file: &FileBytes, data: &mut Data, written: &Chunk, landed: &Landed) {
        let Landed { status, previous, .. } = landed;
        let (start, end, version) = (written.offset, written.end(), status.data_version);
        self.drop_ahead(data.reads.wrote(start, end, *previous, version));
        data.reads.known.wrote(start, end, status.size, *previous, version);
        if file.past_pages.load(Ordering::Acquire) {
            self.siblings.wrote_whole(status, start, &written.data);
        }
        if let Some(disk) = self.disk() {
            let edition = self.ground.server.edition(status);
            disk.wrote(file.fid, start, &written.data, *previous, edition);
        }
    }

    /// Drops bytes that were read, with all that is known of their versions: a server that lost
    /// changes may use these again. Written bytes stay.
    pub fn forget_data(&self, data: &mut Data) {
        data.reads.body = None;
        data.reads.known.reset(DataVersion::NONE);
        let freed = data.reads.meet(DataVersion(u64::MAX));
        data.reads.version = DataVersion::NONE;
        self.drop_ahead(freed);
    }

    /// One handle less; the last one of a held file ends the hold.
    pub fn count_release(self: &Arc<Self>, file: &FileBytes) {
        if self.ground.names.count_release(file.fid) {
            self.ground.chores.end_hold(file.fid);
        }
        self.drop_if_unused(file);
    }

    /// The blocks of `from..to` that are neither here nor on their way, as far as there is room:
    /// they count as on their way from now on.
    pub fn reserve_blocks(
        &self,
        file: &FileBytes,
        version: DataVersion,
        from: u64,
        to: u64,
    ) -> Vec<u64> {
        let mut data = file.data.lock();
        self.drop_ahead(data.reads.meet(version));
        let most = self.ground.config.read_cache_bytes_max;
        let room = self.ahead.limit(most).saturating_sub(self.ahead.bytes());
        let missing = (from / BLOCK..to.div_ceil(BLOCK))
            .filter(|index| !data.reads.blocks.contains_key(index));
        let blocks: Vec<u64> = missing.take(room / BLOCK as usize).collect();
        blocks.iter().for_each(|index| drop(data.reads.blocks.insert(*index, Block::Coming)));
        blocks
    }

    /// A block that was on its way is here, in this version, or will not come (`None`): then its
    /// reader asks for it itself.
    pub fn block_came(
        &self,
        file: &FileBytes,
        index: u64,
        version: DataVersion,
        bytes: Option<&Bytes>,
    ) {
        let mut data = file.data.lock();
        if matches!(data.reads.blocks.get(&index), Some(Block::Coming)) {
            data.reads.blocks.remove(&index);
            let fits = |bytes: &&Bytes| !bytes.is_empty() && data.reads.version == version;
            if let Some(bytes) = bytes.filter(fits) {
                self.ahead.change(0, bytes.len());
                let block = Block::Here { left: bytes.len(), data: bytes.clone() };
                data.reads.blocks.insert(index, block);
            }
        }
        file.moved.notify_all();
    }

    /// The body that the kernel had comes back as this edition and size; or not at all.
    pub fn give_back(
        &self,
        fid: Fid,
        taken: Taken,
        now: Option<(Edition, u64)>,
        changed: &BTreeSet<u64>,
    ) {
        if let Some(disk) = self.common.disk() {
            disk.give_back(fid, taken, now, changed);
        }
    }

    /// Writes the disk cache's maps for the next start.
    pub fn rest(&self) {
        if let Some(disk) = self.common.disk() {
            disk.rest_all();
        }
    }

    /// Blocks that were left out of the disk cache.
    pub fn skipped(&self) -> &Admission {
        &self.skipped
    }
}
