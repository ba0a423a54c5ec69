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
use client::Cancel;
use types::{Answer, Call, Caller, Status};

use crate::base::request::as_caller;
use crate::core::Core;
use crate::data::disk_cache::Edition;
use crate::data::file_data::FileBytes;
use crate::data::open_file::Open;
use crate::data::read_cache::{Ahead, BLOCK, Block};

/// Blocks of one request: one thread receives them one after the other, and none has to be woken
/// for each.
const RUN_BLOCKS: usize = 4;

/// Most bytes that wait for the disk cache.
const FILLING_BYTES_MAX: usize = 32 << 20;

impl Core {
    pub fn drop_ahead(&self, bytes: usize) {
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

    /// After a read of `start..end`: asks for the next bytes. `waited`: see [`Core::read_blocks`].
    pub fn look_ahead(
        self: &Arc<Self>,
        open: &Open,
        status: &Status,
        start: u64,
        end: u64,
        waited: bool,
    ) {
        let window_max = self.config.read_ahead_bytes_max as u64;
        let mut sequence = open.sequence.lock();
        let follows = sequence.is_followed_by(start);
        let ranges = sequence.observe(start, end, status.size, window_max, waited);
        let (far, rate) = (self.config.keep_bytes, self.config.keep_rate_max);
        let fast = sequence.pace.is_fast(Instant::now(), follows, (start, end), far, rate);
        drop(sequence);
        for (from, to) in ranges {
            self.fetch_range(open, status, from, to, fast);
        }
    }

    /// Asks for the blocks of `from..to` that are neither here nor on their way. `fast`: see
    /// `admission.rs`.
    fn fetch_range(self: &Arc<Self>, open: &Open, status: &Status, from: u64, to: u64, fast: bool) {
        let mut data = open.file.data.lock();
        let freed = data.reads.meet(status.data_version);
        self.drop_ahead(freed);
        let room =
            self.ahead.limit(self.config.read_cache_bytes_max).saturating_sub(self.ahead.bytes());
        let missing = (from / BLOCK..to.div_ceil(BLOCK))
            .filter(|index| !data.reads.blocks.contains_key(index));
        let blocks: Vec<u64> = missing.take(room / BLOCK as usize).collect();
        for run in blocks.chunks(RUN_BLOCKS) {
            run.iter().for_each(|index| drop(data.reads.blocks.insert(*index, Block::Coming)));
            let (core, file, caller) =
                (Arc::clone(self), Arc::clone(&open.file), open.caller.clone());
            let (version, run) = (status.data_version, run.to_vec());
            self.readers.run(move || core.fetch_run(&file, &caller, version, &run, fast));
        }
    }

    /// Fetches these blocks in one request; each is here as soon as its bytes are.
    fn fetch_run(
        self: &Arc<Self>,
        file: &FileBytes,
        caller: &Caller,
        version: u64,
        blocks: &[u64],
        fast: bool,
    ) {
        let read =
            |index: &u64| Call::Read { fid: file.fid, offset: index * BLOCK, length: BLOCK as u32 };
        let mut calls: Vec<Call> = blocks.iter().map(read).collect();
        let request = as_caller(caller, None);
        if calls.iter_mut().try_for_each(|call| self.send_related(&request, call)).is_err() {
            return blocks
                .iter()
                .for_each(|index| self.block_came(file, (version, 0), *index, None, fast));
        }
        let (snapshot, place, life) = (self.begin(), self.instance.place(), self.instance.life());
        let asked = Instant::now();
        self.remote.chain_each(caller, calls, &mut |at, result| {
            if at == 0 && result.is_ok() {
                file.data.lock().reads.began_after(asked.elapsed());
            }
            let result = result.inspect(|reply| self.check_instance(place, reply));
            let answer = match result.map(|reply| reply.answer) {
                Ok(Answer::Data { data, status, .. }) => {
                    self.tables.lock().put(snapshot, status);
                    Some((data, status))
                }
                _ => None,
            };
            if let Some(index) = blocks.get(at) {
                self.block_came(file, (version, life), *index, answer, fast);
            }
        });
    }

    /// A block that was on its way is here, or will not come: then its reader asks for it itself.
    fn block_came(
        self: &Arc<Self>,
        file: &FileBytes,
        (version, life): (u64, u64),
        index: u64,
        answer: Option<(Bytes, Status)>,
        fast: bool,
    ) {
        let mut data = file.data.lock();
        if matches!(data.reads.blocks.get(&index), Some(Block::Coming)) {
            data.reads.blocks.remove(&index);
            let fits = |(bytes, status): &&(Bytes, Status)| {
                !bytes.is_empty() && status.data_version == version && data.reads.version == version
            };
            if let Some((bytes, _)) = answer.as_ref().filter(fits) {
                self.ahead.change(0, bytes.len());
                data.reads
                    .blocks
                    .insert(index, Block::Here { left: bytes.len(), data: bytes.clone() });
            }
        }
        file.moved.notify_all();
        drop(data);
        if let Some((bytes, status)) = answer
            && !(fast && self.leave_out(&status, index))
        {
            self.store(&status, life, index * BLOCK, &bytes);
        }
    }

    /// Writes bytes, which were asked for in this server instance, to the disk cache, soon; not if
    /// the disk is slower than the line.
    pub fn store(self: &Arc<Self>, status: &Status, life: u64, offset: u64, bytes: &Bytes) {
        let length = bytes.len();
        if self.disk().is_none() || self.filling.bytes() > self.filling.limit(FILLING_BYTES_MAX) {
            return;
        }
        self.filling.change(0, length);
        let (core, status, bytes) = (Arc::clone(self), *status, bytes.clone());
        self.fillers.run(move || {
            if let Some(disk) = core.disk() {
                disk.store(status.fid, Edition::of(&status, life), status.size, offset, &bytes);
            }
            drop(bytes);
            core.filling.change(length, 0);
        });
    }
}
