//! Writing: bytes go into memory; the threads that wait for them or the sender threads send them to
//! the server.
//!
//! A waiter sends: a flush takes chunks and calls itself, beside the threads that may send already;
//! a wake-up costs more than a small call. A full chunk starts at once on a sender thread, so a
//! stream flows while it is written. Everything else waits for flush, fsync, an unlock, a request
//! for the status, or its age.
//!
//! A *writer* never calls itself, not even when it has to wait (for room, or because the server is
//! nearly full): the kernel holds its pages locked, a call can wait for another client's
//! acknowledgement, and that client's call for ours, which waits for the pages. It waits for the
//! sender threads, and stops waiting when a break of its file comes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use client::Cancel;
use types::{AllocateMode, Answer, Call, Caller, Fault, Fid, limits};

use crate::base::error::Error;
use crate::base::request::{POLL_INTERVAL, RequestContext, as_caller};
use crate::base::result::{OpenHandle, Wrote};
use crate::core::Core;
use crate::data::extents::{CHUNK, Chunk};
use crate::data::file_data::{Data, FileBytes};
use crate::data::open_file::Open;
use crate::data::unstable_writes::Cut;
use crate::ops::venus::Venus;
use crate::writeback::landed::Landed;

impl Core {
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
        let _away = self.away(&mut call);
        let snapshot = self.begin();
        let landed = match self.call(&as_caller(&caller, cancel), call) {
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
                self.tables.lock().put(snapshot, landed.status);
                self.landed(file, &mut data, chunk, &landed);
            }
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
        file.account(&mut data, &self.unsent);
        drop(data);
        if self.space.sent(chunk.data.len()) {
            self.ask_space(file.fid);
        }
    }

    pub fn landed(&self, file: &Arc<FileBytes>, data: &mut Data, chunk: &Chunk, landed: &Landed) {
        let count = (landed.count as usize).min(chunk.data.len());
        if count < chunk.data.len() {
            let rest = Chunk {
                offset: chunk.offset + count as u64,
                data: chunk.data.slice(count..),
                first: chunk.first,
            };
            data.send_older(&[rest]);
        }
        let written = Chunk { data: chunk.data.slice(..count), ..chunk.clone() };
        self.drop_ahead(data.reads.wrote(
            written.offset,
            written.end(),
            landed.previous,
            landed.status.data_version,
        ));
        let (size, version) = (landed.status.size, landed.status.data_version);
        data.reads.known.wrote(written.offset, written.end(), size, landed.previous, version);
        if file.past_pages.load(Ordering::Acquire) {
            self.wrote_whole(&landed.status, written.offset, &written.data);
        }
        if let Some(disk) = self.disk() {
            disk.wrote(
                file.fid,
                written.offset,
                &written.data,
                landed.previous,
                self.edition(&landed.status),
            );
        }
        self.keep(data, &written, landed.verifier);
    }

    fn ask_space(&self, fid: Fid) {
        if let Ok(Answer::Volume(volume)) =
            self.call(&RequestContext::of(&Caller::ROOT), Call::VolumeStatus { fid })
        {
            self.space.learn(&volume, self.config.dirty_bytes_max as u64);
        }
    }

    /// Sends every earlier write (or records its failure); under a delegation the writes are in the
    /// journal on return, and at the server before any call about the file.
    ///
    /// # Errors
    /// [`Error::Interrupted`] only; other failures are recorded for the handles.
    pub fn send_all(&self, file: &Arc<FileBytes>, cancel: Option<&Cancel>) -> Result<(), Error> {
        self.update_records(file, cancel)?;
        if file.is_clean() || self.seal(file) {
            return Ok(());
        }
        if file.has_blank() {
            return self.adopt(file, cancel).or_else(|error| only_interrupted(&error));
        }
        let until = file.data.lock().clock;
        self.send_until(file, until, cancel)
    }

    /// Waits until the sender threads have sent everything not newer than `until`, unless a break
    /// of the file comes.
    fn wait_until_sent(
        self: &Arc<Self>,
        file: &Arc<FileBytes>,
        until: u64,
        breaks: u64,
        cancel: Option<&Cancel>,
    ) {
        loop {
            self.flush_now(file);
            let mut data = file.data.lock();
            let leave = data.breaks != breaks
                || data.breaking > 0
                || cancel.is_some_and(Cancel::is_cancelled);
            if leave || !data.holds(until) {
                return;
            }
            file.moved.wait_for(&mut data, POLL_INTERVAL);
        }
    }

    /// Sends what is not newer than `until`; the calling thread takes part.
    ///
    /// # Errors
    /// [`Error::Interrupted`] only; other failures are recorded for the handles.
    pub fn send_until(
        &self,
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
            match data.launch(true) {
                Some(chunk) => {
                    drop(data);
                    self.send(file, &chunk, cancel);
                }
                None => {
                    file.moved.wait_for(&mut data, POLL_INTERVAL);
                }
            }
        }
    }

    /// Starts a sender thread for the file, unless it has enough.
    pub fn send_soon(self: &Arc<Self>, file: &Arc<FileBytes>) {
        let mut data = file.data.lock();
        if data.workers < self.config.flusher_threads && !data.dirty.is_empty() {
            data.workers += 1;
            drop(data);
            let (core, file) = (Arc::clone(self), Arc::clone(file));
            self.senders.run(move || core.work(&file));
        }
    }

    /// One sender thread on one file: sends full chunks, and all urgent bytes.
    fn work(self: &Arc<Self>, file: &Arc<FileBytes>) {
        loop {
            let mut data = file.data.lock();
            let urgent = data.dirty.oldest().is_some_and(|oldest| oldest <= data.urgent);
            let Some(chunk) = data.launch(urgent) else {
                data.workers -= 1;
                self.age(file, &mut data);
                drop(data);
                return self.drop_if_unused(file);
            };
            drop(data);
            self.send(file, &chunk, None);
        }
    }

    /// The bytes that are dirty now are to be sent when they are old enough.
    pub fn age(&self, file: &Arc<FileBytes>, data: &mut Data) {
        if data.dirty.is_empty() {
            return;
        }
        let now = Instant::now();
        data.since = Some(now);
        let mut chores = self.chores.lock();
        let idle = chores.aging.is_empty();
        chores.aging.push_back((now, Arc::clone(file)));
        if idle {
            self.poke.notify_one();
        }
    }

    /// Waits until `length` more bytes may be written to the file.
    fn make_room(
        self: &Arc<Self>,
        file: &Arc<FileBytes>,
        length: usize,
        cancel: Option<&Cancel>,
    ) -> Result<(), Error> {
        let (all_max, file_max) = (self.config.dirty_bytes_max, self.config.file_dirty_bytes_max);
        let fits = || {
            let here = file.unsent.load(Ordering::Acquire);
            let all = self.unsent.bytes();
            (here + length <= file_max || here == 0)
                && (all + length <= self.unsent.limit(all_max) || all == 0)
        };
        if fits() {
            return Ok(());
        }
        let breaks = file.data.lock().breaks;
        while !fits() {
            if cancel.is_some_and(Cancel::is_cancelled) {
                return Err(Error::Interrupted);
            }
            let mut data = file.data.lock();
            if data.breaks != breaks || data.breaking > 0 {
                return Ok(());
            }
            if !file.is_clean() {
                data.urgent = data.clock;
                drop(data);
                self.send_soon(file);
                data = file.data.lock();
                if !fits() && data.breaks == breaks {
                    file.moved.wait_for(&mut data, POLL_INTERVAL);
                }
            } else {
                drop(data);
                self.hurry_all();
                self.unsent.wait(POLL_INTERVAL);
            }
        }
        Ok(())
    }

    /// Starts sending all dirty bytes.
    pub fn hurry_all(self: &Arc<Self>) {
        for file in self.files() {
            self.flush_now(&file);
        }
    }

    pub fn flush_now(self: &Arc<Self>, file: &Arc<FileBytes>) {
        if file.is_clean() || self.seal(file) {
            return;
        }
        if file.has_blank() {
            let (core, file) = (Arc::clone(self), Arc::clone(file));
            return self.senders.run(move || drop(core.adopt(&file, None)));
        }
        let mut data = file.data.lock();
        data.urgent = data.clock;
        drop(data);
        self.send_soon(file);
    }

    fn write_behind(
        self: &Arc<Self>,
        open: &Open,
        offset: u64,
        bytes: Bytes,
        kill: bool,
        cancel: Option<&Cancel>,
    ) -> Result<(), Error> {
        let file = &open.file;
        self.make_room(file, bytes.len(), cancel)?;
        let (clock, breaks, full) = match file.pinned() {
            // The kernel shows it to readers of the body before it is sent.
            Some(pinned) => {
                pinned.put(offset, &bytes.clone(), || self.take_in(open, offset, bytes, kill))?
            }
            None => self.take_in(open, offset, bytes, kill),
        };
        if self.space.is_scarce() || open.quiet && !self.tables.lock().covers(file.fid) {
            self.wait_until_sent(file, clock, breaks, cancel);
            return open.take_error();
        }
        if full {
            self.send_soon(file);
        }
        Ok(())
    }

    /// Adds dirty bytes. Returns the file's clock and its breaks, and whether a full chunk can be
    /// sent.
    fn take_in(&self, open: &Open, offset: u64, bytes: Bytes, kill: bool) -> (u64, u64, bool) {
        let file = &open.file;
        let mut data = file.data.lock();
        data.clock += 1;
        let (clock, breaks) = (data.clock, data.breaks);
        let full = data.dirty.write(offset, bytes, clock);
        data.kill |= kill;
        if data.writer.as_ref() != Some(&open.caller) {
            data.writer = Some(open.caller.clone());
        }
        if data.since.is_none() {
            self.age(file, &mut data);
        }
        file.account(&mut data, &self.unsent);
        (clock, breaks, full)
    }

    /// Appends: only the server knows where the end is.
    fn append(
        &self,
        request: &RequestContext<'_>,
        open: &Open,
        expected: u64,
        bytes: &Bytes,
        kill_privileges: bool,
    ) -> Result<Wrote, Error> {
        let file = &open.file;
        self.send_all(file, request.cancel)?;
        open.take_error()?;
        let mut call = Call::Write {
            fid: file.fid,
            offset: None,
            data: bytes.clone(),
            stable: false,
            kill_privileges,
        };
        let _away = self.away(&mut call);
        let snapshot = self.begin();
        match self.call(&open.request(request), call) {
            Ok(Answer::Written { count, offset, status, previous_version, verifier }) => {
                let mut data = file.data.lock();
                data.clock += 1;
                let chunk = Chunk {
                    offset,
                    data: bytes.slice(..(count as usize).min(bytes.len())),
                    first: data.clock,
                };
                self.tables.lock().put(snapshot, status);
                let landed = Landed { count, status, previous: previous_version, verifier };
                self.landed(file, &mut data, &chunk, &landed);
                file.account(&mut data, &self.unsent);
                drop(data);
                self.follow_now(file, request.cancel)?;
                if offset != expected {
                    // The kernel dropped the pages at the end that it assumed.
                    self.invalidator().inode_data(file.fid);
                }
                Ok(Wrote { count, offset })
            }
            Ok(_) => Err(Error::Protocol),
            Err(error) => {
                if error.is_full() {
                    self.space.refused();
                }
                Err(error)
            }
        }
    }
}

/// Other failures are recorded for the handles.
fn only_interrupted(error: &Error) -> Result<(), Error> {
    if matches!(error, Error::Interrupted) { Err(Error::Interrupted) } else { Ok(()) }
}

impl Venus {
    /// Writes all of `data` (at most 1 MiB), at the end of the file if the handle appends. It
    /// reaches the server at the latest at flush, fsync, unlock, or after a second.
    ///
    /// # Errors
    /// Its own, or that of an earlier background write, once for each handle.
    pub fn write(
        &self,
        request: &RequestContext<'_>,
        handle: OpenHandle,
        offset: u64,
        data: Bytes,
        kill_privileges: bool,
    ) -> Result<Wrote, Error> {
        let open = self.core.open_of(handle)?;
        open.check_locks()?;
        open.take_error()?;
        if !open.mode.write || data.len() > CHUNK {
            return Err(Fault::Invalid.into());
        }
        if offset.saturating_add(data.len() as u64) > limits::FILE_BYTES_MAX {
            return Err(Fault::TooBig.into());
        }
        if open.mode.append {
            return self.core.append(request, &open, offset, &data, kill_privileges);
        }
        let count = data.len() as u32;
        self.core.write_behind(&open, offset, data, kill_privileges, request.cancel)?;
        Ok(Wrote { count, offset })
    }

    /// Makes all writes stable.
    ///
    /// # Errors
    /// Its own, or that of an earlier background write, once for each handle.
    pub fn fsync(&self, request: &RequestContext<'_>, handle: OpenHandle) -> Result<(), Error> {
        let open = self.core.open_of(handle)?;
        open.check_locks()?;
        let committed = self.core.commit(request, &open.file);
        let lost = self.core.report_loss(open.file.fid);
        open.take_error().and(committed).and(lost)
    }

    /// Reserves, zeroes or punches.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn fallocate(
        &self,
        request: &RequestContext<'_>,
        handle: OpenHandle,
        offset: u64,
        length: u64,
        mode: AllocateMode,
    ) -> Result<(), Error> {
        let open = self.core.open_of(handle)?;
        open.check_locks()?;
        self.core.send_all(&open.file, request.cancel)?;
        self.core.adopt(&open.file, request.cancel)?;
        open.take_error()?;
        let cut = match mode {
            AllocateMode::Extend | AllocateMode::KeepSize => Cut::default(),
            _ => self.core.cut_unstable(
                request,
                &open.file,
                offset,
                offset.saturating_add(length),
            )?,
        };
        let mut call = Call::Allocate { fid: open.file.fid, offset, length, mode };
        let _away = self.core.away(&mut call);
        let snapshot = self.core.begin();
        let answer = self.core.call(&open.request(request), call);
        match answer.inspect_err(|why| self.core.restore_unstable(&open.file, cut, why))? {
            Answer::Written { status, .. } => self.core.tables.lock().put(snapshot, status),
            _ => return Err(Error::Protocol),
        };
        self.core.follow_now(&open.file, request.cancel)
    }
}
