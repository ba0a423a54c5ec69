//! Writing: bytes go into memory; the threads that wait for them or the sender threads send them to
//! the server (`calls/sender.rs`), seal them (`calls/flusher.rs`), or adopt the body that has them.
//!
//! A *writer* never calls itself, not even when it has to wait (for room, or because the server is
//! nearly full): the kernel holds its pages locked, a call can wait for another client's
//! acknowledgement, and that client's call for ours, which waits for the pages. It waits for the
//! sender threads, and stops waiting when a break of its file comes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use client::Cancel;
use types::limits::HOLD_FIDS_MAX;
use types::{Answer, Call, Caller, Fid};

use crate::base::{Error, POLL_INTERVAL, RequestContext, Wrote};
use crate::cache::Cache;
use crate::calls::{Calls, Flusher, Sender, Space, TAIL_SENT_BYTES, Unstable};
use crate::data::{CHUNK, Chunk, FileBytes, Landed, Open, VolumeLegacy};
use crate::passthrough::{CacheBodies, Loans, Preallocated};
use crate::session::{Duties, Ground};

/// Every file system below a partition stores files of so many bytes (ext4 with its smallest blocks
/// not of twice as many). Whether it stores a longer one the server alone can say, and the writer
/// must be told: `EFBIG` belongs to the write.
const CERTAIN_BYTES: u64 = 2 << 40;

/// Everything written here comes to the server, and is made stable, through this.
pub(crate) struct Writeback {
    pub(super) ground: Ground,
    pub(super) cache: Arc<Cache>,
    pub(super) unstable: Arc<Unstable>,
    pub(super) flusher: Arc<Flusher>,
    pub(super) calls: Arc<Calls>,
    pub(super) space: Arc<Space>,
    pub(super) sender: Arc<Sender>,
    pub(super) loans: Arc<Loans>,
    pub(super) preallocated: Arc<Preallocated>,
    pub(super) cache_bodies: Arc<CacheBodies>,
    legacy: Option<Arc<VolumeLegacy>>,
}

impl Writeback {
    #[allow(clippy::too_many_arguments)] // They are the components below.
    pub fn new(
        ground: &Ground,
        cache: &Arc<Cache>,
        unstable: &Arc<Unstable>,
        flusher: &Arc<Flusher>,
        calls: &Arc<Calls>,
        space: &Arc<Space>,
        sender: &Arc<Sender>,
        loans: &Arc<Loans>,
        preallocated: &Arc<Preallocated>,
        cache_bodies: &Arc<CacheBodies>,
        legacy: Option<&Arc<VolumeLegacy>>,
    ) -> Self {
        Writeback {
            ground: ground.clone(),
            cache: Arc::clone(cache),
            unstable: Arc::clone(unstable),
            flusher: Arc::clone(flusher),
            calls: Arc::clone(calls),
            space: Arc::clone(space),
            sender: Arc::clone(sender),
            loans: Arc::clone(loans),
            preallocated: Arc::clone(preallocated),
            cache_bodies: Arc::clone(cache_bodies),
            legacy: legacy.cloned(),
        }
    }

    /// Sends every earlier write (or records its failure); under a delegation the writes are in the
    /// journal on return, and at the server before any call about the file.
    ///
    /// # Errors
    /// [`Error::Interrupted`] only; other failures are recorded for the handles.
    pub fn send_all(&self, file: &Arc<FileBytes>, cancel: Option<&Cancel>) -> Result<(), Error> {
        if file.loaned.load(Ordering::Acquire) {
            self.loans.update_records(file, cancel)?;
        } else {
            self.cache_bodies.queue_stores(file, cancel)?;
        }
        if file.is_clean() || self.flusher.seal(file) {
            return Ok(());
        }
        if file.has_blank() {
            return self.preallocated.adopt(file, cancel).or_else(|error| only_interrupted(&error));
        }
        let until = file.data.lock().clock;
        self.sender.send_until(file, until, cancel)
    }

    pub fn flush_now(self: &Arc<Self>, file: &Arc<FileBytes>) {
        if file.is_clean() || self.flusher.seal(file) {
            return;
        }
        if file.has_blank() {
            let (bodies, file) = (Arc::clone(&self.preallocated), Arc::clone(file));
            return self.ground.workers.send(move || drop(bodies.adopt(&file, None)));
        }
        self.sender.hurry(file);
    }

    /// Starts sending all dirty bytes.
    fn hurry_all(self: &Arc<Self>) {
        for file in self.ground.names.files() {
            self.flush_now(&file);
        }
    }

    /// The server recalls these: from now on nothing is answered under them.
    pub fn recalled(self: &Arc<Self>, dirs: &[Fid]) {
        let mut tables = self.ground.names.lock();
        let now: Vec<Fid> = dirs.iter().copied().filter(|dir| tables.nodes.recall(*dir)).collect();
        drop(tables);
        self.give_back_soon(now);
    }

    /// Sends the journal and returns these delegations, in the background: a thread that receives
    /// breaks must not wait for that.
    pub fn give_back_soon(self: &Arc<Self>, dirs: Vec<Fid>) {
        if !dirs.is_empty() {
            let this = Arc::clone(self);
            self.ground.workers.send(move || this.give_back(&dirs));
        }
    }

    pub fn give_back(self: &Arc<Self>, dirs: &[Fid]) {
        self.preallocated.withdraw_uncovered();
        // The client that asks must see every closed file's writes; with handles whose close is not
        // reported that is all writes.
        let files = self.ground.names.lock().children_of(dirs);
        for file in files.iter().filter(|file| !file.is_clean()) {
            if self.send_all(file, None).is_err() {
                tracing::warn!(fid = %file.fid, "cannot send written bytes before a \
                    delegation is returned");
            }
        }
        // Interrupted is the only error, and nothing interrupts this call.
        let _ = self.flusher.flush_all(None);
        for fids in dirs.chunks(HOLD_FIDS_MAX) {
            match self.ground.server.remote().call(
                &Caller::ROOT,
                Call::Return { fids: fids.to_vec() },
                None,
            ) {
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "cannot return delegations"),
            }
        }
        let pause = self.ground.config.recall_pause;
        self.ground.names.lock().nodes.returned(dirs, pause);
    }

    /// Takes bytes in, to be sent later; sends them at once where the server is nearly full, or may
    /// be unable to store them.
    ///
    /// # Errors
    /// [`Error::Interrupted`], or that of an earlier write.
    pub fn write_behind(
        self: &Arc<Self>,
        open: &Open,
        offset: u64,
        bytes: Bytes,
        kill: bool,
        cancel: Option<&Cancel>,
    ) -> Result<(), Error> {
        let file = &open.file;
        let is_far = offset.saturating_add(bytes.len() as u64) > CERTAIN_BYTES;
        self.make_room(file, bytes.len(), cancel)?;
        let (clock, breaks, full) = match file.pinned() {
            // The kernel shows it to readers of the body before it is sent.
            Some(pinned) => pinned.put(offset, &bytes.clone(), || {
                self.take_in(file, &open.caller, offset, bytes, kill)
            })?,
            None => self.take_in(file, &open.caller, offset, bytes, kill),
        };
        if is_far
            || self.space.is_scarce()
            || open.quiet && !self.ground.names.lock().nodes.covers(file.fid)
        {
            self.wait_until_sent(file, clock, breaks, cancel);
            return open.take_error();
        }
        if full {
            self.sender.send_soon(file);
        }
        Ok(())
    }

    /// Appends. Only the server knows where the end is: small appends gather, and are sent together
    /// as one append.
    ///
    /// # Errors
    /// The service's refusal, or that of an earlier write.
    pub fn append(
        self: &Arc<Self>,
        request: &RequestContext<'_>,
        open: &Open,
        expected: u64,
        bytes: &Bytes,
        kill_privileges: bool,
    ) -> Result<Wrote, Error> {
        let file = &open.file;
        if self.gather_append(open, expected, bytes, kill_privileges, request.cancel)? {
            return Ok(Wrote { count: bytes.len() as u32, offset: expected });
        }
        self.send_all(file, request.cancel)?;
        open.take_error()?;
        let mut call = Call::Write {
            fid: file.fid,
            offset: None,
            data: bytes.clone(),
            stable: false,
            kill_privileges,
        };
        let _away = self.ground.names.away(&mut call);
        let snapshot = self.ground.names.begin();
        match self.calls.call(&open.request(request), call) {
            Ok(Answer::Written { count, offset, status, previous_version, verifier }) => {
                let mut data = file.data.lock();
                data.clock += 1;
                let chunk = Chunk {
                    offset,
                    data: bytes.slice(..(count as usize).min(bytes.len())),
                    first: data.clock,
                };
                self.ground.names.lock().put(snapshot, status);
                let landed = Landed { count, status, previous: previous_version, verifier };
                self.flusher.landed(file, &mut data, &chunk, &landed);
                self.unstable.account(file, &mut data);
                drop(data);
                self.cache_bodies.follow_now(file, request.cancel)?;
                if offset != expected {
                    // The kernel dropped the pages at the end that it assumed.
                    self.ground.kernel.port().inode_data(file.fid);
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

    /// Writes again what a predecessor had written. It is sent when it is old enough: nothing is
    /// changed at the server before the takeover is over.
    pub fn inherit(
        self: &Arc<Self>,
        file: &Arc<FileBytes>,
        caller: &Caller,
        (offset, bytes, kill): (u64, Bytes, bool),
    ) {
        self.take_in(file, caller, offset, bytes, kill);
    }

    /// Takes appended bytes in, to be sent later, if the end of the file is where the kernel
    /// expects it, as far as this client can know. False: the append is to be sent at once.
    ///
    /// Other clients' appends may come first: then these bytes land behind them, and the kernel
    /// reads the end of the file anew. Until then all processes here see them where the writer put
    /// them, which is what POSIX demands; they are visible elsewhere as other writes are.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    fn gather_append(
        self: &Arc<Self>,
        open: &Open,
        expected: u64,
        bytes: &Bytes,
        kill: bool,
        cancel: Option<&Cancel>,
    ) -> Result<bool, Error> {
        let file = &open.file;
        // The bytes wait in memory, without a record for a successor.
        let is_kept = self.legacy.is_some();
        let passes = file.loaned.load(Ordering::Acquire) || file.has_blank();
        let end = expected.saturating_add(bytes.len() as u64);
        let is_long = bytes.len() > TAIL_SENT_BYTES || end > CERTAIN_BYTES;
        if passes || is_kept || is_long || self.space.is_scarce() {
            return Ok(false);
        }
        self.make_room(file, bytes.len(), cancel)?;
        let Some((status, _)) = self.ground.names.lock().status(file.fid) else {
            return Ok(false);
        };
        let mut data = file.data.lock();
        let known_end = data.tail_end().unwrap_or(status.size);
        let is_alone = data.dirty.is_empty() && data.flying.is_empty() && data.passed.is_none();
        let is_others = data.tail_bytes() > 0 && data.writer.as_ref() != Some(&open.caller);
        let length = data.tail.as_ref().map_or(0, |tail| tail.bytes.len()) + bytes.len();
        if known_end != expected || !is_alone || is_others || length > CHUNK {
            return Ok(false);
        }
        data.append(expected, bytes);
        data.kill |= kill;
        if data.writer.as_ref() != Some(&open.caller) {
            data.writer = Some(open.caller.clone());
        }
        if data.since.is_none() {
            self.ground.chores.age(file, &mut data);
        }
        self.unstable.account(file, &mut data);
        drop(data);
        if length >= TAIL_SENT_BYTES {
            self.sender.send_soon(file);
        }
        Ok(true)
    }

    /// Waits until `length` more bytes may be written to the file.
    fn make_room(
        self: &Arc<Self>,
        file: &Arc<FileBytes>,
        length: usize,
        cancel: Option<&Cancel>,
    ) -> Result<(), Error> {
        let (all_max, file_max) =
            (self.ground.config.dirty_bytes_max, self.ground.config.file_dirty_bytes_max);
        let fits = || {
            let here = file.unsent.load(Ordering::Acquire);
            let all = self.unstable.unsent().bytes();
            (here + length <= file_max || here == 0)
                && (all + length <= self.unstable.unsent().limit(all_max) || all == 0)
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
                self.sender.send_soon(file);
                data = file.data.lock();
                if !fits() && data.breaks == breaks {
                    file.moved.wait_for(&mut data, POLL_INTERVAL);
                }
            } else {
                drop(data);
                self.hurry_all();
                self.unstable.unsent().wait(POLL_INTERVAL);
            }
        }
        Ok(())
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

    /// Adds dirty bytes. Returns the file's clock and its breaks, and whether a full chunk can be
    /// sent.
    fn take_in(
        &self,
        file: &Arc<FileBytes>,
        caller: &Caller,
        offset: u64,
        bytes: Bytes,
        kill: bool,
    ) -> (u64, u64, bool) {
        let legacy = self.legacy.as_ref();
        let mut data = file.data.lock();
        data.clock += 1;
        let (clock, breaks) = (data.clock, data.breaks);
        // Under the lock, so that the records have the order of the writes.
        let record =
            legacy.and_then(|legacy| legacy.put_write(file.fid, offset, kill, caller, &bytes));
        data.written.extend(record.map(|record| (clock, record)));
        let full = data.dirty.write(offset, bytes, clock);
        data.kill |= kill;
        if data.writer.as_ref() != Some(caller) {
            data.writer = Some(caller.clone());
        }
        if data.since.is_none() {
            self.ground.chores.age(file, &mut data);
        }
        self.unstable.account(file, &mut data);
        (clock, breaks, full)
    }
}

/// Other failures are recorded for the handles.
fn only_interrupted(error: &Error) -> Result<(), Error> {
    if matches!(error, Error::Interrupted) { Err(Error::Interrupted) } else { Ok(()) }
}

impl Duties for Writeback {
    fn send_soon(&self, file: &Arc<FileBytes>) {
        self.sender.send_soon(file);
    }

    fn give_back_soon(self: Arc<Self>, dirs: Vec<Fid>) {
        Writeback::give_back_soon(&self, dirs);
    }
}
