//! Blocks that were left out of the disk cache (`admission.rs`).

use std::sync::Arc;

use types::{Answer, Call, Caller, Fid, Status};

use crate::base::request::RequestContext;
use crate::core::Core;
use crate::data::disk_cache::Edition;
use crate::data::read_cache::BLOCK;

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
