//! Passthrough: files whose bytes the kernel reads and writes itself (docs/spec/passthrough.md).
//!
//! The first open of a file chooses its mode and the last close ends it (PT-1); who opens or closes
//! holds the file's `choice` meanwhile, over calls to the server too. Nothing else takes it, breaks
//! least of all.
//!
//! While the kernel may write, the server's records lag behind the body. Whatever asks the server
//! about the file first has them brought up, where other files send what was written (`send_all`).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use client::Cancel;
use rustix::fs::Stat;
use types::{Answer, Call, Caller, Fault, Fid, Lending, Status};

use crate::cache_body::CacheBody;
use crate::core::{Core, as_caller};
use crate::direct_body::{agree, read_at};
use crate::file_data::FileBytes;
use crate::preallocated::Blank;
use crate::read_cache::SUMMED;
use crate::{Backing, Error, OpenMode, PassthroughState, RequestContext, Venus};

/// Shorter bodies are read as quickly through the kernel's own pages, and opened again without a
/// word to the server.
pub(crate) const READ_MIN: u64 = 512 << 10;
/// Up to here a body is compared with its sums at the open.
const CHECK_MAX: u64 = 1 << 20;
/// Shorter bodies are written as quickly behind.
const WRITE_MIN: u64 = 1 << 20;
/// Longer bodies would have too much to be summed again after each lend.
const WRITE_MAX: u64 = 4 << 30;

/// What tells one state of a body from another. Each change changes it (the kernel makes times as
/// fine as need be).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyStamp {
    size: i64,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl BodyStamp {
    pub fn of(body: impl AsFd) -> Option<BodyStamp> {
        rustix::fs::fstat(body).ok().map(|stat| BodyStamp::of_stat(&stat))
    }

    pub fn of_stat(stat: &Stat) -> BodyStamp {
        let modified = (stat.st_mtime, stat.st_mtime_nsec);
        BodyStamp { size: stat.st_size, modified, changed: (stat.st_ctime, stat.st_ctime_nsec) }
    }
}

/// A body that the kernel has.
#[derive(Clone)]
pub(crate) struct PassedFile {
    pub backing: Backing,
    body: Arc<OwnedFd>,
    /// Lent for writing, in this life of the session (`Core::life`).
    lent: Option<u64>,
    /// The server knows that it may be mapped for writing.
    mappable: bool,
    /// The state that the server's records were last brought up to.
    settled: Option<BodyStamp>,
    /// It is not the server's body, but ours in the disk cache.
    pub pinned: Option<Arc<CacheBody>>,
    /// No body of the server's yet (`preallocated.rs`).
    pub blank: Option<Blank>,
}

impl PassedFile {
    /// A body of the disk cache.
    pub fn of_cache(backing: Backing, pinned: Arc<CacheBody>) -> Option<PassedFile> {
        let body = Arc::new(pinned.descriptor()?);
        Some(PassedFile {
            backing,
            body,
            lent: None,
            mappable: false,
            settled: None,
            pinned: Some(pinned),
            blank: None,
        })
    }

    pub fn with_blank(backing: Backing, body: Arc<OwnedFd>, blank: Blank) -> Self {
        PassedFile {
            backing,
            body,
            lent: None,
            mappable: false,
            settled: None,
            pinned: None,
            blank: Some(blank),
        }
    }

    /// Whether the server lent it for writing.
    pub fn is_borrowed(&self) -> bool {
        self.lent.is_some()
    }

    /// The blank was adopted, in this life and at the latest in this state.
    pub fn become_lent(&mut self, life: u64, settled: Option<BodyStamp>) {
        self.blank = None;
        self.lent = Some(life);
        self.settled = settled;
    }
}

/// Who has the file open.
#[derive(Default)]
pub(crate) struct Choice {
    pub users: u32,
    writers: u32,
    /// Somebody had it open before: bytes of it may still be on their way.
    used: bool,
}

impl Choice {
    /// Whether nobody has the file open.
    pub fn is_unused(&self) -> bool {
        self.users == 0
    }
}

impl Core {
    /// One more handle of the file, which `made` it or found it; the body that it has to be opened
    /// with, if any.
    pub fn select_backing(
        &self,
        request: &RequestContext<'_>,
        file: &Arc<FileBytes>,
        mode: OpenMode,
        made: bool,
    ) -> Result<Option<Backing>, Error> {
        let mut choice = file.choice.lock();
        let passed = file.data.lock().passed.clone();
        let passed = match passed {
            None if choice.users > 0 => None,
            None if made && self.is_local() => self.begin_blank(file, mode),
            None if self.is_local() => self.pass(request, file, mode),
            None => self.pin(request, file, mode)?,
            Some(PassedFile { pinned: Some(pinned), backing, .. }) => {
                self.join_pinned(request, &pinned, mode)?;
                choice.users += 1;
                choice.writers += u32::from(mode.write);
                return Ok(Some(backing));
            }
            Some(passed) if passed.blank.is_some() => {
                let passed = self.join_blank(request, file, mode, choice.is_unused())?;
                passed.map_or(Ok(None), |passed| {
                    self.join_for(request, file, passed, mode).map(Some)
                })?
            }
            Some(passed) => Some(self.join_for(request, file, passed, mode)?),
        };
        if mode.write && passed.as_ref().is_some_and(|passed| passed.blank.is_some()) {
            file.data.lock().writer = Some(request.caller.clone());
        }
        if passed.is_none() && !made && !mode.write && !choice.used {
            self.fill_from_prefetch(request.caller, file.fid);
        }
        choice.used = true;
        choice.users += 1;
        choice.writers += u32::from(mode.write);
        Ok(passed.map(|passed| passed.backing))
    }

    /// One handle less.
    pub fn release_backing(
        &self,
        request: &RequestContext<'_>,
        file: &Arc<FileBytes>,
        mode: OpenMode,
    ) {
        let mut choice = file.choice.lock();
        choice.users -= 1;
        choice.writers -= u32::from(mode.write);
        let Some(passed) = file.data.lock().passed.clone() else { return };
        if passed.blank.is_some() && (choice.users > 0 || self.rest_blank(file)) {
            return;
        }
        // As it is now: the blank may have been adopted a moment ago.
        let Some(passed) = file.data.lock().passed.clone() else { return };
        if passed.lent.is_some() && choice.writers == 0 {
            self.return_body(request, file);
        }
        if let Some(pinned) = &passed.pinned {
            if choice.users == 0 {
                self.unpin_or_linger(file, pinned);
            }
            return;
        }
        if choice.users == 0 {
            self.end_pass(file);
        }
    }

    /// Nobody has the file open any more: the kernel needs no body.
    pub fn end_pass(&self, file: &FileBytes) {
        let passed = {
            let mut data = file.data.lock();
            self.drop_scratch(file);
            data.passed.take()
        };
        if let Some(passed) = passed {
            self.invalidator().unpass(passed.backing);
        }
    }

    /// One more handle of a file that has a blank. One that reads and writes could be mapped for
    /// writing: it takes a body that is the server's.
    fn join_blank(
        &self,
        request: &RequestContext<'_>,
        file: &Arc<FileBytes>,
        mode: OpenMode,
        unused: bool,
    ) -> Result<Option<PassedFile>, Error> {
        let covered = {
            let tables = self.tables.lock();
            tables.trusted() && tables.covers(file.fid)
        };
        if !covered || mode.read && mode.write {
            if unused && let Some(blank) = self.take_off(file) {
                self.put_blank(blank);
                return Ok(self.pass(request, file, mode));
            }
            self.adopt_held(file, request.cancel)?;
        } else if unused {
            file.wake_blank();
        }
        Ok(file.data.lock().passed.clone())
    }

    /// Whether the kernel may write into it: under a lease that the server counts on too (CB-4).
    fn is_lent(&self, passed: &PassedFile) -> bool {
        passed.lent == Some(self.life.load(Ordering::Acquire)) && self.tables.lock().trusted()
    }

    /// Whether bodies can be given to the kernel.
    pub fn passes(&self) -> Result<(), &'static str> {
        match (self.config.passthrough, self.is_local()) {
            (false, _) => Err("it is switched off"),
            (_, false) if self.disk().is_none() => {
                Err("the server is on another machine, and there is no disk cache")
            }
            _ => self.invalidator().passes(),
        }
    }

    /// The next open of this file, whose blocks are all known now, is passed: the kernel's own
    /// pages of it are no more use. To drop them then would hold that open up (50 ms for 256 MiB).
    pub fn drop_pages(&self, fid: Fid) {
        let status = self.tables.lock().nodes.get(&fid).and_then(|node| node.status);
        if self.is_local()
            && status.is_some_and(|status| status.size >= READ_MIN)
            && self.passes().is_ok()
        {
            let kernel = self.invalidator();
            // Not in this thread: the kernel may be waiting for it.
            self.fillers.run(move || kernel.inode_data(fid));
        }
    }

    /// The first open: gives the body to the kernel, if everything for it holds.
    fn pass(
        &self,
        request: &RequestContext<'_>,
        file: &FileBytes,
        mode: OpenMode,
    ) -> Option<PassedFile> {
        if !file.is_clean() || !file.is_landed() || self.passes().is_err() {
            return None;
        }
        let (status, known) = self.known_status(file)?;
        let least = if mode.write { WRITE_MIN } else { READ_MIN };
        if status.size < least
            || mode.write && status.size > WRITE_MAX
            || !known && status.size > CHECK_MAX
        {
            return None;
        }
        let how = if mode.write { Lending::Write } else { Lending::Read };
        let life = self.life.load(Ordering::Acquire);
        let body = self.borrow(request, file.fid, how, &status, known)?;
        let passed = self.hand_over(file, body, mode.write.then_some(life));
        if passed.is_none() && mode.write {
            self.return_body(request, file);
        }
        passed
    }

    /// The status as the server has it, while it is promised, and whether all blocks are known.
    fn known_status(&self, file: &FileBytes) -> Option<(Status, bool)> {
        let data = file.data.lock();
        let tables = self.tables.lock();
        let node = tables.nodes.get(&file.fid).filter(|node| node.valid && tables.trusted())?;
        let status = node.status?;
        let known = node.known == status.data_version
            || data.reads.known.is_whole(status.data_version, status.size);
        Some((status, known))
    }

    /// The body in the version of `status`, compared with its sums unless it is known.
    fn borrow(
        &self,
        request: &RequestContext<'_>,
        fid: Fid,
        how: Lending,
        status: &Status,
        known: bool,
    ) -> Option<OwnedFd> {
        // The sums first: once it is lent for writing it has none.
        let sums = match known {
            true => Vec::new(),
            false => {
                let call =
                    Call::ReadSums { fid, first: 0, count: status.size.div_ceil(SUMMED) as u32 };
                let Answer::Sums { version, sums } = self.call(request, call).ok()? else {
                    return None;
                };
                (version == status.data_version).then_some(sums)?
            }
        };
        let lent = self.call_with_body(request, Call::LendBody { fid, how });
        let lent = lent.inspect_err(|error| self.end_unknown_loan(fid, how, error)).ok()?;
        let Answer::Body { status: found } = lent.answer else { return None };
        let body = lent.body?;
        // None: it is known, or was lent before, and some kernel writes it.
        let agrees = sums.is_empty() || agrees(&body, status.size, &sums);
        let good = agrees && found.data_version == status.data_version;
        if good && !sums.is_empty() {
            self.tables.lock().node(fid).known = status.data_version;
        }
        if !good && how != Lending::Read {
            self.settle_call(request, fid, true);
        }
        good.then_some(body)
    }

    /// Gives the kernel a body that the server lent.
    fn hand_over(&self, file: &FileBytes, body: OwnedFd, lent: Option<u64>) -> Option<PassedFile> {
        let kernel = self.invalidator();
        let backing = kernel.pass(body.as_fd())?;
        if lent.is_some() {
            // Pages of the mode before would outlive what the kernel writes past them.
            kernel.inode_data(file.fid);
        }
        let settled = BodyStamp::of(&body);
        let mappable = lent.is_some();
        let passed = PassedFile {
            backing,
            body: Arc::new(body),
            lent,
            mappable,
            settled,
            pinned: None,
            blank: None,
        };
        file.data.lock().passed = Some(passed.clone());
        file.lent.store(lent.is_some(), Ordering::Release);
        self.passed.fetch_add(1, Ordering::Relaxed);
        Some(passed)
    }

    /// One more handle of a body that is passed.
    fn join_for(
        &self,
        request: &RequestContext<'_>,
        file: &FileBytes,
        passed: PassedFile,
        mode: OpenMode,
    ) -> Result<PassedFile, Error> {
        let maps = mode.read && mode.write && !passed.mappable;
        if passed.blank.is_none() && mode.write && (maps || !self.is_lent(&passed)) {
            return self.join(request, file, passed);
        }
        Ok(passed)
    }

    /// A writer joins readers, or those who cannot map it, or the lend was lost with the session.
    fn join(
        &self,
        request: &RequestContext<'_>,
        file: &FileBytes,
        passed: PassedFile,
    ) -> Result<PassedFile, Error> {
        let life = self.life.load(Ordering::Acquire);
        let how = Lending::Join;
        self.call(request, Call::LendBody { fid: file.fid, how })
            .inspect_err(|error| self.end_unknown_loan(file.fid, how, error))?;
        self.invalidator().inode_data(file.fid);
        let passed = PassedFile { lent: Some(life), mappable: true, ..passed };
        if let Some(here) = &mut file.data.lock().passed {
            here.lent = passed.lent;
            here.mappable = true;
        }
        file.lent.store(true, Ordering::Release);
        Ok(passed)
    }

    /// The server may have executed a call that lends a body for writing, and no answer came: the
    /// loan is given back in the background. Otherwise it would last as long as the session, and
    /// the volume could not be moved.
    fn end_unknown_loan(&self, fid: Fid, how: Lending, error: &Error) {
        let is_known = matches!(error, Error::Fault(_) | Error::Closed(_));
        let Some(core) = self.this.get().and_then(Weak::upgrade) else { return };
        if how != Lending::Read && !is_known {
            self.senders.run(move || {
                // A loan that an open obtained meanwhile is that open's to give back.
                let has_loan = |file: &Arc<FileBytes>| file.lent.load(Ordering::Acquire);
                if !core.file_of(fid).as_ref().is_some_and(has_loan) {
                    core.settle_call(&RequestContext::of(&Caller::ROOT), fid, true);
                }
            });
        }
    }

    /// The last writer is gone: the server may sum the body.
    pub fn return_body(&self, request: &RequestContext<'_>, file: &FileBytes) {
        let status = self.settle_call(request, file.fid, true);
        file.lent.store(false, Ordering::Release);
        if let Some(passed) = &mut file.data.lock().passed {
            passed.lent = None;
            passed.mappable = false;
        }
        // Whatever pages came in beside (by advice to read ahead) are old.
        self.invalidator().inode_data(file.fid);
        if let Some(status) = status {
            self.tables.lock().node(file.fid).known = status.data_version;
        }
    }

    fn settle_call(&self, request: &RequestContext<'_>, fid: Fid, back: bool) -> Option<Status> {
        let snapshot = self.begin();
        let answer = self.call(&as_caller(request.caller, None), Call::SettleBody { fid, back });
        match answer {
            Ok(Answer::Status(status)) => {
                self.tables.lock().put(snapshot, status);
                Some(status)
            }
            Ok(_) => None,
            // With the session the lend is gone, and the server settles by itself.
            Err(error) => {
                tracing::warn!(%fid, %error, "a lent body is left to the server");
                None
            }
        }
    }

    /// What the kernel wrote is in the server's records on return.
    pub fn settle_passed(
        &self,
        file: &Arc<FileBytes>,
        cancel: Option<&Cancel>,
    ) -> Result<(), Error> {
        if !file.lent.load(Ordering::Acquire) {
            return self.settle_pinned(file, cancel);
        }
        let Some(passed) = file.data.lock().passed.clone() else { return Ok(()) };
        // Before the call: what is written meanwhile is seen the next time.
        let stamp = BodyStamp::of(&passed.body);
        if stamp.is_some() && stamp == passed.settled {
            return Ok(());
        }
        let snapshot = self.begin();
        let call = Call::SettleBody { fid: file.fid, back: false };
        match self.call(&as_caller(&Caller::ROOT, cancel), call)? {
            Answer::Status(status) => self.tables.lock().put(snapshot, status),
            _ => return Err(Error::Protocol),
        };
        let full = self.is_over_quota(file.fid);
        let mut data = file.data.lock();
        if let Some(passed) = &mut data.passed {
            passed.settled = stamp;
        }
        if full {
            data.fail(Fault::QuotaExceeded.into());
        }
        Ok(())
    }

    /// The kernel knows no quota: what passes it is told at the next sync or close.
    fn is_over_quota(&self, fid: Fid) -> bool {
        match self.call(&RequestContext::of(&Caller::ROOT), Call::VolumeStatus { fid }) {
            Ok(Answer::Volume(volume)) => {
                volume.quota_bytes > 0 && volume.used_bytes > volume.quota_bytes
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// The server does not know any more which bodies our kernel writes: they are borrowed again
    /// through `remote`.
    pub fn borrow_again(&self, remote: &dyn client::Remote) {
        let life = self.life.load(Ordering::Acquire);
        self.files()
            .iter()
            .filter(|file| file.has_blank())
            .for_each(|file| self.adopt_again(file, remote));
        for file in self.files().iter().filter(|file| file.lent.load(Ordering::Acquire)) {
            let call = Call::LendBody { fid: file.fid, how: Lending::Join };
            match remote.call(&Caller::ROOT, call, None) {
                Ok(_) => {
                    if let Some(passed) = &mut file.data.lock().passed {
                        passed.lent = passed.lent.map(|_| life);
                        passed.mappable = true;
                    }
                }
                Err(error) => {
                    tracing::warn!(fid = %file.fid, %error, "a body that the kernel writes is not \
                        lent again");
                }
            }
        }
    }
}

impl Venus {
    /// How passthrough is used.
    pub fn passthrough(&self) -> PassthroughState {
        let open = self
            .core
            .files()
            .iter()
            .filter(|file| !file.is_idle() && file.data.lock().passed.is_some())
            .count();
        let given = self.core.passed.load(Ordering::Relaxed);
        let blanks = self.core.fresh_blanks();
        PassthroughState { why_not: self.core.passes().err(), open, given, blanks }
    }
}

/// Whether the whole body agrees with its sums.
fn agrees(body: &OwnedFd, size: u64, sums: &[u32]) -> bool {
    read_at(body, 0, size as usize).is_some_and(|bytes| agree(&bytes, sums))
}
