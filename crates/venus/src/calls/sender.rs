//! Sending one file's written bytes.
//!
//! A waiter sends: a flush takes chunks and calls itself, beside the threads that may send already;
//! a wake-up costs more than a small call. A full chunk starts at once on a sender thread, so a
//! stream flows while it is written. Everything else waits for flush, fsync, an unlock, a request
//! for the status, or its age (`writeback/writer.rs`).
//!
//! Appended bytes are sent by the sender threads alone, which nothing interrupts: an append cannot
//! be repeated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::Cancel;
use types::{Answer, Call, Caller, Fid};

use super::{Calls, Flusher, Space, Unstable};
use crate::base::{Error, POLL_INTERVAL, RequestContext, as_caller};
use crate::cache::Cache;
use crate::data::{Chunk, FileBytes, Landed, Tail};
use crate::session::Ground;

/// So many appended bytes are sent while more are appended.
pub(crate) const TAIL_SENT_BYTES: usize = 256 << 10;

/// Sends written bytes.
pub(crate) struct Sender {
    ground: Ground,
    cache: Arc<Cache>,
    unstable: Arc<Unstable>,
    flusher: Arc<Flusher>,
    calls: Arc<Calls>,
    space: Arc<Space>,
    stopped: AtomicBool,
}

impl Sender {
    pub fn new(
        ground: &Ground,
        cache: &Arc<Cache>,
        unstable: &Arc<Unstable>,
        flusher: &Arc<Flusher>,
        calls: &Arc<Calls>,
        space: &Arc<Space>,
    ) -> Self {
        Sender {
            ground: ground.clone(),
            cache: Arc::clone(cache),
            unstable: Arc::clone(unstable),
            flusher: Arc::clone(flusher),
            calls: Arc::clone(calls),
            space: Arc::clone(space),
            stopped: AtomicBool::new(false),
        }
    }

    /// Sends `chunk`, which flies, and enters the answer.
    fn send(&self, file: &Arc<FileBytes>, chunk: &Chunk, cancel: Option<&Cancel>) {
        let (caller, kill_privileges) = {
            let mut data = file.data.lock();
            (data.writer.clone().unwrap_or(Caller::ROOT), std::mem::take(&mut data.kill))
        };
        let mut call = Call::Write {
            fid: file.fid,
            offset: Some(chunk.offset),
            data: chunk.data.clone(),
            stable: false,
            kill_privileges,
        };
        let _away = self.ground.names.away(&mut call);
        let snapshot = self.ground.names.begin();
        let landed = match self.calls.call(&as_caller(&caller, cancel), call) {
            Ok(Answer::Written { count, status, previous_version, verifier, .. }) if count > 0 => {
                Ok(Landed { count, status, previous: previous_version, verifier })
            }
            Ok(_) => Err(Error::Protocol),
            Err(error) => Err(error),
        };
        let mut data = file.data.lock();
        data.land(chunk);
        match landed {
            Ok(landed) => {
                self.ground.names.lock().put(snapshot, landed.status);
                self.flusher.landed(file, &mut data, chunk, &landed);
            }
            // It was removed meanwhile.
            Err(_) if self.ground.names.over(file.fid) == Some(true) => {}
            Err(Error::Interrupted) => {
                data.kill |= kill_privileges;
                data.send_again(std::slice::from_ref(chunk));
            }
            // Whether it was applied is unknown, and a repetition is harmless: a server that is
            // away for long costs time only.
            Err(Error::Lost | Error::TimedOut)
                if data.locks_lost == 0 && !self.stopped.load(Ordering::Acquire) =>
            {
                data.send_again(std::slice::from_ref(chunk));
            }
            Err(error) => {
                tracing::warn!(
                    fid = %file.fid, offset = chunk.offset, bytes = chunk.data.len(), %error,
                    "write failed; its open handles report the error"
                );
                if error.is_full() {
                    self.space.refused();
                }
                data.fail(error);
            }
        }
        self.unstable.account(file, &mut data);
        drop(data);
        if self.space.sent(chunk.data.len()) {
            self.ask_space(file.fid);
        }
    }

    /// Sends appended bytes, which fly, and enters the answer.
    fn send_tail(&self, file: &Arc<FileBytes>, chunk: &Chunk) {
        let (caller, kill_privileges) = {
            let mut data = file.data.lock();
            (data.writer.clone().unwrap_or(Caller::ROOT), std::mem::take(&mut data.kill))
        };
        let data = chunk.data.clone();
        let mut call =
            Call::Write { fid: file.fid, offset: None, data, stable: false, kill_privileges };
        let _away = self.ground.names.away(&mut call);
        let snapshot = self.ground.names.begin();
        let answer = self.calls.call(&as_caller(&caller, None), call);
        let mut is_elsewhere = false;
        let mut data = file.data.lock();
        match answer {
            Ok(Answer::Written { count, offset, status, previous_version, verifier })
                if count > 0 =>
            {
                let landed = Landed { count, status, previous: previous_version, verifier };
                let count = (count as usize).min(chunk.data.len());
                data.land_tail(offset + count as u64, count);
                let written = Chunk { offset, data: chunk.data.slice(..count), ..*chunk };
                self.ground.names.lock().put(snapshot, status);
                self.flusher.landed(file, &mut data, &written, &landed);
                is_elsewhere = offset != chunk.offset;
            }
            other => {
                let error = other.err().unwrap_or(Error::Protocol);
                tracing::warn!(
                    fid = %file.fid, bytes = chunk.data.len(), %error,
                    "append failed; the file's open handles report the error"
                );
                if error.is_full() {
                    self.space.refused();
                }
                data.land_tail(chunk.offset, chunk.data.len());
                data.fail(error);
            }
        }
        self.unstable.account(file, &mut data);
        drop(data);
        if is_elsewhere {
            // The kernel shows the bytes, and the file's end, where they were expected.
            self.ground.kernel.port().inode_data(file.fid);
        }
        if self.space.sent(chunk.data.len()) {
            self.ask_space(file.fid);
        }
    }

    fn ask_space(&self, fid: Fid) {
        if let Ok(Answer::Volume(volume)) =
            self.calls.call(&RequestContext::of(&Caller::ROOT), Call::VolumeStatus { fid })
        {
            self.space.learn(&volume, self.ground.config.dirty_bytes_max as u64);
        }
    }

    /// A shutdown begins: what is sent from now on is sent once. False: it began before.
    pub fn begin_shutdown(&self) -> bool {
        !self.stopped.swap(true, Ordering::AcqRel)
    }

    /// Sends what is not newer than `until`; the calling thread takes part.
    ///
    /// # Errors
    /// [`Error::Interrupted`] only; other failures are recorded for the handles.
    pub fn send_until(
        self: &Arc<Self>,
        file: &Arc<FileBytes>,
        until: u64,
        cancel: Option<&Cancel>,
    ) -> Result<(), Error> {
        loop {
            let mut data = file.data.lock();
            if !data.holds(until) {
                return Ok(());
            }
            if cancel.is_some_and(Cancel::is_cancelled) {
                return Err(Error::Interrupted);
            }
            if data.tail.is_some() && data.workers == 0 {
                drop(data);
                self.hurry(file);
                data = file.data.lock();
            }
            match data.launch(true) {
                Some(chunk) => {
                    drop(data);
                    self.send(file, &chunk, cancel);
                }
                None => {
                    data.urgent = data.urgent.max(until);
                    file.moved.wait_for(&mut data, POLL_INTERVAL);
                }
            }
        }
    }

    /// Starts a sender thread for the file, unless it has enough.
    pub fn send_soon(self: &Arc<Self>, file: &Arc<FileBytes>) {
        let mut data = file.data.lock();
        if data.workers < self.ground.config.flusher_threads && data.has_unsent() {
            data.workers += 1;
            drop(data);
            let (core, file) = (Arc::clone(self), Arc::clone(file));
            self.ground.workers.send(move || core.work(&file));
        }
    }

    /// Starts sending all bytes that are dirty now.
    pub fn hurry(self: &Arc<Self>, file: &Arc<FileBytes>) {
        let mut data = file.data.lock();
        data.urgent = data.clock;
        drop(data);
        self.send_soon(file);
    }

    /// One sender thread on one file: sends full chunks, and all urgent bytes.
    fn work(self: &Arc<Self>, file: &Arc<FileBytes>) {
        loop {
            let mut data = file.data.lock();
            let is_urgent =
                |tail: &Tail| tail.first <= data.urgent || tail.bytes.len() >= TAIL_SENT_BYTES;
            if data.tail.as_ref().is_some_and(is_urgent)
                && let Some(chunk) = data.launch_tail()
            {
                drop(data);
                self.send_tail(file, &chunk);
                continue;
            }
            let urgent = data.dirty.oldest().is_some_and(|oldest| oldest <= data.urgent);
            let Some(chunk) = data.launch(urgent) else {
                assert!(data.workers > 0, "DU-4: a sender thread is counted until it ends");
                data.workers -= 1;
                self.ground.chores.age(file, &mut data);
                drop(data);
                return self.cache.drop_if_unused(file);
            };
            drop(data);
            self.send(file, &chunk, None);
        }
    }
}
