//! Passthrough on another machine than the server's: the kernel has a body of our disk cache
//! (docs/spec/passthrough.md).
//!
//! Such a body is *pinned* (`cache_body_sync.rs` has its bytes). *Following* brings the server's
//! bytes into it (PT-6): after each break, before the acknowledgement; after the promises are void;
//! after an own change that the server worked out. One thread follows one file at a time, and
//! repeats it for whatever came meanwhile. It calls only the server, takes no `choice`, and waits
//! for no own write: two clients that break each other would wait for each other.
//!
//! A body equals the server's while the promise holds, no own write is unsent and it is not in
//! *doubt*. `VerifiedBlocks` has its version: own changes advance it, another client's leaves a gap
//! until it is followed.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use client::{BreakAck, Cancel};
use types::{Answer, Call, Caller, DataVersion, Fault, Status};

use crate::base::{Backing, Error, OpenMode, RequestContext};
use crate::cache::{Cache, SIZE_MAX, SIZE_MIN};
use crate::calls::{Calls, Flusher, Sender, Unstable};
use crate::data::{CHUNK, CacheBody, Edition, FileBytes, PIECE, PassedFile, SUMMED};
use crate::reading::ReadAhead;
use crate::session::Ground;

/// Missing pieces that an open fetches: at most so many, and one of so many of the whole.
const GAPS_MAX: u64 = 64;

const GAPS_PART: u64 = 8;

/// Sums per request: those of 64 MiB.
const SUMS: u64 = 4096;

const RUN: u64 = CHUNK as u64 / SUMMED;

/// Bytes of stores through maps that are read at once.
const STORES_MAX: u64 = 8 << 20;

/// Bodies of the disk cache that the kernel has.
pub(crate) struct CacheBodies {
    ground: Ground,
    cache: Arc<Cache>,
    unstable: Arc<Unstable>,
    flusher: Arc<Flusher>,
    calls: Arc<Calls>,
    sender: Arc<Sender>,
    read_ahead: Arc<ReadAhead>,
}

impl CacheBodies {
    pub fn new(
        ground: &Ground,
        cache: &Arc<Cache>,
        unstable: &Arc<Unstable>,
        flusher: &Arc<Flusher>,
        calls: &Arc<Calls>,
        sender: &Arc<Sender>,
        read_ahead: &Arc<ReadAhead>,
    ) -> Self {
        CacheBodies {
            ground: ground.clone(),
            cache: Arc::clone(cache),
            unstable: Arc::clone(unstable),
            flusher: Arc::clone(flusher),
            calls: Arc::clone(calls),
            sender: Arc::clone(sender),
            read_ahead: Arc::clone(read_ahead),
        }
    }

    /// The first open: gives the body in the disk cache to the kernel, if all conditions hold.
    ///
    /// # Errors
    /// [`Error::Interrupted`] only.
    pub fn pin(
        self: &Arc<Self>,
        request: &RequestContext<'_>,
        file: &Arc<FileBytes>,
        mode: OpenMode,
    ) -> Result<Option<PassedFile>, Error> {
        let Some((passed, pinned, version)) = self.try_pin(request, file, mode) else {
            return Ok(None);
        };
        // A break that came before the body was there to be found.
        if self.ground.names.promised_status(file.fid).is_none_or(|now| now.data_version != version)
            && let Err(error) = self.follow_now(file, request.cancel)
        {
            self.unpin_or_linger(file, &pinned);
            return Err(error);
        }
        Ok(Some(passed))
    }

    fn try_pin(
        &self,
        request: &RequestContext<'_>,
        file: &Arc<FileBytes>,
        mode: OpenMode,
    ) -> Option<(PassedFile, Arc<CacheBody>, DataVersion)> {
        let disk = self.cache.disk()?;
        if mode.write || !file.is_clean() || !file.is_landed() || self.cache.passes().is_err() {
            return None;
        }
        let status = self.ground.names.promised_status(file.fid)?;
        if !(SIZE_MIN..=SIZE_MAX).contains(&status.size) {
            return None;
        }
        self.fill_gaps(request, file, &status)?;
        let taken = disk.take(file.fid, self.ground.server.edition(&status), status.size)?;
        let kernel = self.ground.kernel.port();
        let pinned = Arc::new(CacheBody::new(taken, status.size));
        let passed = kernel
            .pass(pinned.file().as_fd())
            .and_then(|backing| PassedFile::of_cache(backing, Arc::clone(&pinned)));
        let Some(passed) = passed else {
            if let Some(taken) = pinned.taken.lock().take() {
                disk.give_back(
                    file.fid,
                    taken,
                    Some((self.ground.server.edition(&status), status.size)),
                    &Default::default(),
                );
            }
            return None;
        };
        let mut data = file.data.lock();
        data.passed = Some(passed.clone());
        data.reads.known.reset(status.data_version);
        data.reads.known.checked(0, status.size.div_ceil(SUMMED), status.data_version);
        drop(data);
        // Pages from before passthrough are of no more use.
        kernel.inode_data(file.fid);
        self.ground.kernel.note_given();
        Some((passed, pinned, status.data_version))
    }

    /// Fetches the missing pieces of the disk cache, if these are few; `None` if they are not.
    fn fill_gaps(
        &self,
        request: &RequestContext<'_>,
        file: &FileBytes,
        status: &Status,
    ) -> Option<()> {
        let disk = self.cache.disk()?;
        let missing = disk.missing(file.fid, self.ground.server.edition(status), status.size)?;
        if missing.len() as u64 > GAPS_MAX.min(status.size.div_ceil(PIECE) / GAPS_PART) {
            self.read_ahead.fetch_skipped_blocks(request.caller, status);
            return None;
        }
        for (from, to) in runs(&missing, CHUNK as u64 / PIECE) {
            let instance = self.ground.server.instance();
            let (offset, length) = (from * PIECE, ((to - from) * PIECE) as u32);
            match self.calls.call(request, Call::Read { fid: file.fid, offset, length }).ok()? {
                Answer::Data { data, status: now, .. } => {
                    disk.store(file.fid, Edition::of(&now, instance), now.size, offset, &data);
                }
                _ => return None,
            }
        }
        Some(())
    }

    /// One more handle of a pinned file.
    ///
    /// # Errors
    /// [`Error::Interrupted`]; [`Fault::Medium`] if the disk fails.
    pub fn join_pinned(
        &self,
        request: &RequestContext<'_>,
        pinned: &CacheBody,
        mode: OpenMode,
    ) -> Result<(), Error> {
        pinned.wait(request.cancel)?;
        if mode.write {
            pinned.watched.store(true, Ordering::Release);
            self.ground.chores.tend_soon();
        }
        if mode.write && mode.read {
            pinned.body.lock().watch_pages().map_err(|_| Error::Fault(Fault::Medium))?;
        }
        Ok(())
    }

    /// The last handle is closed: the body goes back, or waits until it can.
    pub fn unpin_or_linger(&self, file: &Arc<FileBytes>, pinned: &Arc<CacheBody>) {
        if self.unpin(file, pinned) {
            if pinned.lingers.swap(false, Ordering::AcqRel) {
                self.cache.count_release(file);
            }
            return;
        }
        if pinned.lingers.swap(true, Ordering::AcqRel) {
            return;
        }
        // A mapped file counts as open.
        self.ground.names.lock().nodes.node(file.fid).opens += 1;
        self.ground.chores.tend_soon();
    }

    /// Gives the body back to the disk cache. False: an application has it mapped, or some of its
    /// bytes are still to be sent.
    fn unpin(&self, file: &Arc<FileBytes>, pinned: &Arc<CacheBody>) -> bool {
        let free = mem::lease::is_open_elsewhere(pinned.file().as_fd()) == Ok(false);
        if !free || pinned.following.lock().running {
            return false;
        }
        // No application can store any more: this reads the last stores.
        if self.take_stores(file, pinned, true) || !file.is_clean() || !file.is_landed() {
            self.hurry(file);
            return false;
        }
        let (backing, version) = {
            let body = pinned.body.lock();
            let mut data = file.data.lock();
            let Some(passed) = data.passed.take() else { return true };
            let version = data.reads.known.whole_version(body.size());
            (passed.backing, version.filter(|_| !pinned.doubt.load(Ordering::Acquire)))
        };
        // Pages from other paths (sendfile through a writer's handle) may be old.
        self.ground.kernel.port().inode_data(file.fid);
        self.drop_pinned(file, pinned, backing, version);
        true
    }

    fn drop_pinned(
        &self,
        file: &FileBytes,
        pinned: &CacheBody,
        backing: Backing,
        version: Option<DataVersion>,
    ) {
        self.ground.kernel.port().unpass(backing);
        let status = self.ground.names.lock().nodes.get(&file.fid).and_then(|node| node.status);
        let body = pinned.body.lock();
        if let Some(taken) = pinned.taken.lock().take() {
            let gone = status.is_some_and(|status| status.links == 0);
            let edition = |version| match status.filter(|status| status.data_version == version) {
                Some(status) => self.ground.server.edition(&status),
                None => Edition::in_this_instance(version),
            };
            let now = version.filter(|_| !gone).map(|version| (edition(version), body.size()));
            self.cache.give_back(file.fid, taken, now, &body.changed);
        }
    }

    /// At shutdown: pinned bodies go back as they are. The kernel is not notified, since the mount
    /// is gone by now.
    pub fn unpin_all(&self) {
        for file in self.ground.names.files() {
            let Some(pinned) = file.pinned() else { continue };
            let passed = file.data.lock().passed.take();
            let known = file.data.lock().reads.known.whole_version(pinned.body.lock().size());
            let free = mem::lease::is_open_elsewhere(pinned.file().as_fd()) == Ok(false);
            let sure = free
                && file.is_clean()
                && file.is_landed()
                && !pinned.doubt.load(Ordering::Acquire);
            if let Some(passed) = passed {
                self.drop_pinned(&file, &pinned, passed.backing, known.filter(|_| sure));
            }
        }
    }

    /// Queues the stores of maps to be sent.
    ///
    /// # Errors
    /// [`Error::Interrupted`] only.
    pub fn queue_stores(
        &self,
        file: &Arc<FileBytes>,
        cancel: Option<&Cancel>,
    ) -> Result<(), Error> {
        let Some(pinned) = file.pinned() else { return Ok(()) };
        while self.take_stores(file, &pinned, false) {
            let until = file.data.lock().clock;
            self.sender.send_until(file, until, cancel)?;
        }
        Ok(())
    }

    /// Reads some of the stores of maps, to be sent as writes. Returns whether there may be more.
    /// `sure`: also if the times show no store.
    fn take_stores(&self, file: &Arc<FileBytes>, pinned: &CacheBody, sure: bool) -> bool {
        let mut body = pinned.body.lock();
        if !body.is_watched() {
            return false;
        }
        let (stores, more) = body.take_stores(STORES_MAX, sure).unwrap_or_else(|error| {
            tracing::warn!(
                fid = %file.fid, %error,
                "cannot read the stores to a mapped file; they are not sent yet"
            );
            (Vec::new(), false)
        });
        if stores.is_empty() {
            return more;
        }
        let mut data = file.data.lock();
        for (offset, bytes) in stores {
            data.clock += 1;
            let clock = data.clock;
            data.dirty.write(offset, bytes, clock);
        }
        if data.since.is_none() {
            self.ground.chores.age(file, &mut data);
        }
        self.unstable.account(file, &mut data);
        more
    }

    /// Brings the body up to the server's current state, and then acknowledges the break.
    pub fn follow(
        self: &Arc<Self>,
        file: &Arc<FileBytes>,
        pinned: &Arc<CacheBody>,
        ack: Option<BreakAck>,
    ) {
        {
            let mut following = pinned.following.lock();
            following.acks.extend(ack);
            following.wanted = true;
            if std::mem::replace(&mut following.running, true) {
                return;
            }
        }
        // It stays open, and so held, until the server has the acknowledgement.
        self.ground.names.lock().nodes.node(file.fid).opens += 1;
        let (core, file, pinned) = (Arc::clone(self), Arc::clone(file), Arc::clone(pinned));
        self.ground.workers.follow_or_end(move |runs| {
            if runs {
                core.go_round(&file, &pinned);
                core.cache.count_release(&file);
            } else {
                let acks = std::mem::take(&mut pinned.following.lock().acks);
                acks.into_iter().for_each(BreakAck::acknowledge);
            }
        });
    }

    /// The same; it is done on return.
    ///
    /// # Errors
    /// [`Error::Interrupted`] only.
    pub fn follow_now(
        self: &Arc<Self>,
        file: &Arc<FileBytes>,
        cancel: Option<&Cancel>,
    ) -> Result<(), Error> {
        let Some(pinned) = file.pinned() else { return Ok(()) };
        self.follow(file, &pinned, None);
        pinned.wait(cancel)
    }

    fn go_round(&self, file: &FileBytes, pinned: &CacheBody) {
        loop {
            let acks = {
                let mut following = pinned.following.lock();
                following.wanted = false;
                following.round += 1;
                std::mem::take(&mut following.acks)
            };
            if let Err(error) = self.catch_up(file, pinned) {
                tracing::warn!(fid = %file.fid, %error, "cannot bring a body that the \
                    kernel reads up to date");
                // A removed file is not asked for again.
                pinned.doubt.store(error.fault() != Some(Fault::Stale), Ordering::Release);
            }
            acks.into_iter().for_each(BreakAck::acknowledge);
            if pinned.needs_tending() {
                self.ground.chores.tend_soon();
            }
            let mut following = pinned.following.lock();
            assert!(following.running, "PT-6: one thread follows a body");
            debug_assert!(following.ended < following.round, "PT-6: each round ends once");
            following.ended = following.round;
            following.running = following.wanted;
            pinned.followed.notify_all();
            if !following.running {
                assert!(following.acks.is_empty(), "PT-6: no break waits for a thread that ends");
                return;
            }
        }
    }

    fn catch_up(&self, file: &FileBytes, pinned: &CacheBody) -> Result<(), Error> {
        {
            let mut body = pinned.body.lock();
            let (layers, _) = file.layers(0, u64::MAX);
            body.begin(layers.iter().map(|(at, data)| (*at, at + data.len() as u64)).collect());
        }
        let found = self.bring(file, pinned);
        let mut body = pinned.body.lock();
        let ours = body.end();
        let mut data = file.data.lock();
        match found {
            Ok(Some(version)) if !ours => {
                data.reads.known.reset(version);
                data.reads.known.checked(0, body.size().div_ceil(SUMMED), version);
                pinned.doubt.store(false, Ordering::Release);
                Ok(())
            }
            // Repeated when the own write has landed, or for the change that came between.
            Ok(_) => {
                pinned.doubt();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Brings the server's bytes into the body, except over own writes. Returns the version, if all
    /// bytes are of one.
    fn bring(&self, file: &FileBytes, pinned: &CacheBody) -> Result<Option<DataVersion>, Error> {
        let fid = file.fid;
        let status = self.follow_call(file, Call::GetStatus { fid }, |answer| match answer {
            Answer::Status(status) => Some((status, status)),
            _ => None,
        })?;
        let disk = |error: std::io::Error| {
            tracing::error!(%fid, %error, "cannot write another client's change to the disk \
                cache");
            Error::Fault(Fault::Medium)
        };
        {
            let mut body = pinned.body.lock();
            let known = file.data.lock().reads.known.is_whole(status.data_version, status.size);
            if known && body.size() == status.size && !pinned.doubt.load(Ordering::Acquire) {
                return Ok(Some(status.data_version));
            }
            body.follow_size(status.size).map_err(disk)?;
        }
        let blocks = status.size.div_ceil(SUMMED);
        let mut one = true;
        for first in (0..blocks).step_by(SUMS as usize) {
            let count = SUMS.min(blocks - first);
            let sums =
                match self.follow_raw(file, Call::ReadSums { fid, first, count: count as u32 })? {
                    Answer::Sums { version, sums } => {
                        one &= version == status.data_version;
                        sums
                    }
                    _ => return Err(Error::Protocol),
                };
            let differing = match sums.is_empty() {
                true => (first..first + count).collect(),
                false => pinned.body.lock().differing(first, &sums).map_err(disk)?,
            };
            for run in runs(&differing, RUN) {
                let (offset, length) = (run.0 * SUMMED, (run.1 - run.0) * SUMMED);
                let call = Call::Read { fid, offset, length: length as u32 };
                let (data, now) = self.follow_call(file, call, |answer| match answer {
                    Answer::Data { data, status, .. } => Some((status, (data, status))),
                    _ => None,
                })?;
                let same = now.data_version == status.data_version;
                one &= same;
                let of = sums
                    .get((run.0 - first) as usize..(run.1 - first) as usize)
                    .filter(|_| same && one);
                pinned.body.lock().adopt(offset, &data, of).map_err(disk)?;
            }
        }
        Ok(one.then_some(status.data_version))
    }

    fn follow_raw(&self, file: &FileBytes, call: Call) -> Result<Answer, Error> {
        let caller = file.data.lock().opener.clone().unwrap_or(Caller::ROOT);
        Ok(self
            .ground
            .server
            .remote()
            .call_urgently(&caller, call, Some(self.ground.server.leaving()))?
            .answer)
    }

    /// A call whose answer has a status, which is entered.
    fn follow_call<T>(
        &self,
        file: &FileBytes,
        call: Call,
        of: impl FnOnce(Answer) -> Option<(Status, T)>,
    ) -> Result<T, Error> {
        let snapshot = self.ground.names.begin();
        let (status, rest) = of(self.follow_raw(file, call)?).ok_or(Error::Protocol)?;
        self.ground.names.lock().put(snapshot, status);
        Ok(rest)
    }

    fn end_lingering(self: &Arc<Self>, file: &Arc<FileBytes>, pinned: &Arc<CacheBody>) {
        // Another thread opens or closes the file.
        let Some(choice) = file.choice.try_lock() else { return };
        if choice.users == 0 && !self.unpin(file, pinned) {
            return;
        }
        pinned.lingers.store(false, Ordering::Release);
        drop(choice);
        self.cache.count_release(file);
    }

    /// Starts sending, unless the bytes can be sealed.
    fn hurry(&self, file: &Arc<FileBytes>) {
        if !file.is_clean() && !self.flusher.seal(file) {
            self.sender.hurry(file);
        }
    }

    /// Each second, while a body needs it: sends stores, clears doubts, returns bodies that no
    /// application has mapped any more.
    pub fn tend(self: &Arc<Self>) {
        let mut again = false;
        for file in self.ground.names.files() {
            let Some(pinned) = file.pinned() else { continue };
            again |= pinned.needs_tending();
            if pinned.watched.load(Ordering::Acquire) {
                self.take_stores(&file, &pinned, false);
                self.hurry(&file);
            }
            if pinned.lingers.load(Ordering::Acquire) {
                self.end_lingering(&file, &pinned);
            }
            if pinned.doubt.load(Ordering::Acquire) && file.is_clean() && file.is_landed() {
                self.follow(&file, &pinned, None);
            }
        }
        if again {
            self.ground.chores.tend_soon();
        }
    }
}

/// Runs of consecutive numbers, from and to, at most `most` numbers together.
fn runs(blocks: &[u64], most: u64) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for block in blocks {
        match runs.last_mut() {
            Some((from, to)) if *to == *block && *to - *from < most => *to += 1,
            _ => runs.push((*block, *block + 1)),
        }
    }
    runs
}
