//! Read-ahead: a sequential reader, or one in equal steps, finds the next bytes here already.
//!
//! A stream's *window* is how far ahead of it the client has asked. It doubles while reads follow
//! each other, up to a size that suffices when the server is near; beyond that only while the line
//! is long and the reader still has to wait for bytes that are on their way: so it grows to the
//! line's bandwidth times its delay, and no further. On a short line a waiting reader waits for the
//! processors, and bytes that came too early are no longer in their caches when they are needed: 16
//! MiB ahead cost a fifth more processor time than 4 MiB.
//!
//! A reader that skips by the same distance three times reads in *steps*: the blocks of the next
//! steps are fetched.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use types::{Answer, BootVerifier, Call, Caller, DataVersion, Fid, Status};

use crate::base::{RequestContext, as_caller};
use crate::cache::Cache;
use crate::calls::{Calls, Unstable};
use crate::data::{BLOCK, Edition, FileBytes, Open};
use crate::session::Ground;

/// Blocks of one request: one thread receives them one after the other, and none has to be woken
/// for each.
const RUN_BLOCKS: usize = 4;

/// Fetches the next bytes of streams.
pub(crate) struct ReadAhead {
    ground: Ground,
    cache: Arc<Cache>,
    unstable: Arc<Unstable>,
    calls: Arc<Calls>,
}

impl ReadAhead {
    pub fn new(
        ground: &Ground,
        cache: &Arc<Cache>,
        unstable: &Arc<Unstable>,
        calls: &Arc<Calls>,
    ) -> Self {
        ReadAhead {
            ground: ground.clone(),
            cache: Arc::clone(cache),
            unstable: Arc::clone(unstable),
            calls: Arc::clone(calls),
        }
    }

    /// After a read of `start..end`: asks for the next bytes. `waited`: see `read_blocks`.
    pub fn look_ahead(
        self: &Arc<Self>,
        open: &Open,
        status: &Status,
        start: u64,
        end: u64,
        waited: bool,
    ) {
        let window_max = self.ground.config.read_ahead_bytes_max as u64;
        let mut sequence = open.sequence.lock();
        let follows = sequence.is_followed_by(start);
        let ranges = sequence.observe(start, end, status.size, window_max, waited);
        let (far, rate) = (self.ground.config.keep_bytes, self.ground.config.keep_rate_max);
        let fast = sequence.pace.is_fast(Instant::now(), follows, (start, end), far, rate);
        drop(sequence);
        for (from, to) in ranges {
            self.fetch_range(open, status, from, to, fast);
        }
    }

    /// Asks for the blocks of `from..to` that are neither here nor on their way. `fast`: see
    /// `cache/admission.rs`.
    fn fetch_range(self: &Arc<Self>, open: &Open, status: &Status, from: u64, to: u64, fast: bool) {
        let version = status.data_version;
        let blocks = self.cache.reserve_blocks(&open.file, version, from, to);
        for run in blocks.chunks(RUN_BLOCKS) {
            let (this, file, caller) =
                (Arc::clone(self), Arc::clone(&open.file), open.caller.clone());
            let run = run.to_vec();
            self.ground.workers.read(move || this.fetch_run(&file, &caller, version, &run, fast));
        }
    }

    /// Fetches these blocks in one request; each is here as soon as its bytes are.
    fn fetch_run(
        self: &Arc<Self>,
        file: &FileBytes,
        caller: &Caller,
        version: DataVersion,
        blocks: &[u64],
        fast: bool,
    ) {
        let read =
            |index: &u64| Call::Read { fid: file.fid, offset: index * BLOCK, length: BLOCK as u32 };
        let mut calls: Vec<Call> = blocks.iter().map(read).collect();
        let request = as_caller(caller, None);
        if calls.iter_mut().try_for_each(|call| self.calls.send_related(&request, call)).is_err() {
            return blocks.iter().for_each(|index| {
                self.block_came(file, (version, BootVerifier::default()), *index, None, fast);
            });
        }
        let (snapshot, place, instance) =
            (self.ground.names.begin(), self.ground.server.place(), self.ground.server.instance());
        let asked = Instant::now();
        self.ground.server.remote().chain_each(caller, calls, &mut |at, result| {
            if at == 0 && result.is_ok() {
                file.data.lock().reads.began_after(asked.elapsed());
            }
            let result = result.inspect(|reply| self.unstable.check_instance(place, reply));
            let answer = match result.map(|reply| reply.answer) {
                Ok(Answer::Data { data, status, .. }) => {
                    self.ground.names.lock().put(snapshot, status);
                    Some((data, status))
                }
                _ => None,
            };
            if let Some(index) = blocks.get(at) {
                self.block_came(file, (version, instance), *index, answer, fast);
            }
        });
    }

    /// A block that was on its way is here, or will not come.
    fn block_came(
        &self,
        file: &FileBytes,
        (version, instance): (DataVersion, BootVerifier),
        index: u64,
        answer: Option<(Bytes, Status)>,
        fast: bool,
    ) {
        let fits = answer.as_ref().filter(|(_, status)| status.data_version == version);
        self.cache.block_came(file, index, version, fits.map(|(bytes, _)| bytes));
        if let Some((bytes, status)) = answer
            && !(fast && self.cache.leave_out(&status, index))
        {
            self.cache.store(&status, instance, index * BLOCK, &bytes);
        }
    }

    /// The file is opened again: fetches the blocks left out of it, in the background.
    pub fn fetch_skipped_blocks(self: &Arc<Self>, caller: &Caller, status: &Status) {
        if self.cache.skipped().begin(status.fid, status.data_version) {
            let (caller, fid, version) = (caller.clone(), status.fid, status.data_version);
            let core = Arc::clone(self);
            self.ground.workers.read(move || core.fetch_one_left_out(caller, fid, version));
        }
    }

    /// Fetches one block, and queues the next one behind the other jobs.
    fn fetch_one_left_out(self: &Arc<Self>, caller: Caller, fid: Fid, version: DataVersion) {
        let Some(block) = self.cache.skipped().next(fid, version) else {
            return self.cache.drop_pages_of_whole(fid);
        };
        let request = RequestContext {
            caller: &caller,
            cancel: Some(self.ground.server.leaving()),
            groups: None,
        };
        let instance = self.ground.server.instance();
        let call = Call::Read { fid, offset: block * BLOCK, length: BLOCK as u32 };
        let Ok(Answer::Data { data, status, .. }) = self.calls.call(&request, call) else { return };
        if status.data_version != version {
            return;
        }
        if let Some(disk) = self.cache.disk() {
            disk.store(fid, Edition::of(&status, instance), status.size, block * BLOCK, &data);
        }
        let core = Arc::clone(self);
        self.ground.workers.read(move || core.fetch_one_left_out(caller, fid, version));
    }
}
