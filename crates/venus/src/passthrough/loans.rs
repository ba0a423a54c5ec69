//! Passthrough: files whose bytes the kernel reads and writes itself (docs/spec/passthrough.md).
//!
//! The first open of a file chooses its mode and the last close ends it (PT-1); a thread that opens
//! or closes holds the file's `choice` meanwhile, over calls to the server too. No other code takes
//! it; breaks never do.
//!
//! While the kernel may write, the server's records lag behind the body. A call about the file is
//! preceded by an update of these records, where other files send their writes (`send_all`).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use client::Cancel;
use types::{Answer, Call, Caller, Fault, Fid, Lending, Status};

use crate::base::error::Error;
use crate::base::kernel_port::Backing;
use crate::base::request::{RequestContext, as_caller};
use crate::base::result::{OpenMode, PassthroughState};
use crate::core::Core;
use crate::data::block_sums::{SUMMED, agree, read_at};
use crate::data::body_stamp::BodyStamp;
use crate::data::file_data::FileBytes;
use crate::data::passed_file::PassedFile;
use crate::ops::venus::Venus;

/// How long the return of a loan of unknown outcome waits for opens of the file.
const UNKNOWN_LOAN_WAIT: Duration = Duration::from_secs(5);

/// The kernel's own pages serve shorter bodies as quickly, and opening them again needs no call.
pub(crate) const READ_MIN: u64 = 512 << 10;

/// An open compares shorter bodies with their sums.
const CHECK_MAX: u64 = 1 << 20;

/// Write-back is as quick for shorter bodies.
const WRITE_MIN: u64 = 1 << 20;

/// The server would have to sum too much of longer bodies after each loan.
const WRITE_MAX: u64 = 4 << 30;

impl Core {
    /// Counts one more handle of the file, which `made` it or found it; returns the backing file
    /// that it must use, if any.
    ///
    /// # Errors
    /// [`Error::Interrupted`], the service's refusal, or a failed disk.
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

    /// Counts one handle less.
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
        // Read anew: the preallocated body may have been adopted a moment ago.
        let Some(passed) = file.data.lock().passed.clone() else { return };
        if passed.loaned.is_some() && choice.writers == 0 {
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

    /// The file is not open any more: the kernel needs no body.
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

    /// One more handle of a file with a preallocated body. A handle that reads and writes could be
    /// mapped for writing: it needs a body of the server.
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

    /// Whether the kernel may write into the body: under a lease that the server counts on too
    /// (CB-4).
    fn is_loaned(&self, passed: &PassedFile) -> bool {
        passed.loaned == Some(self.life.load(Ordering::Acquire)) && self.tables.lock().trusted()
    }

    /// Checks that bodies can be given to the kernel.
    ///
    /// # Errors
    /// The reason why not, for people.
    pub fn passes(&self) -> Result<(), &'static str> {
        match (self.config.passthrough, self.is_local()) {
            (false, _) => Err("it is switched off"),
            (_, false) if self.disk().is_none() => {
                Err("the server is on another machine, and there is no disk cache")
            }
            _ => self.invalidator().passes(),
        }
    }

    /// The next open of this file, whose blocks are all verified now, is passed: the kernel's own
    /// pages of it are of no more use. To drop them at the open would delay it (50 ms for 256 MiB).
    pub fn drop_pages(&self, fid: Fid) {
        let status = self.tables.lock().nodes.get(&fid).and_then(|node| node.status);
        if self.is_local()
            && status.is_some_and(|status| status.size >= READ_MIN)
            && self.passes().is_ok()
        {
            let kernel = self.invalidator();
            // Not in this thread: the kernel may wait for it.
            self.fillers.run(move || kernel.inode_data(fid));
        }
    }

    /// The first open: gives the body to the kernel, if all conditions hold.
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

    /// The server's status, while it is promised, and whether all blocks are verified.
    fn known_status(&self, file: &FileBytes) -> Option<(Status, bool)> {
        let data = file.data.lock();
        let tables = self.tables.lock();
        let node = tables.nodes.get(&file.fid).filter(|node| node.valid && tables.trusted())?;
        let status = node.status?;
        let known = node.known == status.data_version
            || data.reads.known.is_whole(status.data_version, status.size);
        Some((status, known))
    }

    /// The body in the version of `status`, compared with its sums unless all blocks are verified.
    fn borrow(
        &self,
        request: &RequestContext<'_>,
        fid: Fid,
        how: Lending,
        status: &Status,
        known: bool,
    ) -> Option<OwnedFd> {
        // The sums first: a body loaned for writing has none.
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
        let loaned = self.call_with_body(request, Call::LendBody { fid, how });
        let loaned = loaned.inspect_err(|error| self.end_unknown_loan(fid, how, error)).ok()?;
        let Answer::Body { status: found } = loaned.answer else { return None };
        let body = loaned.body?;
        // None: it is verified, or was loaned before, and some kernel writes it.
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

    /// Gives the kernel a body of the server.
    fn hand_over(
        &self,
        file: &FileBytes,
        body: OwnedFd,
        loaned: Option<u64>,
    ) -> Option<PassedFile> {
        let kernel = self.invalidator();
        let backing = kernel.pass(body.as_fd())?;
        if loaned.is_some() {
            // Pages from before passthrough would outlive later writes that bypass them.
            kernel.inode_data(file.fid);
        }
        let recorded = BodyStamp::of(&body);
        let mappable = loaned.is_some();
        let passed = PassedFile {
            backing,
            body: Arc::new(body),
            loaned,
            mappable,
            recorded,
            pinned: None,
            blank: None,
        };
        file.data.lock().passed = Some(passed.clone());
        file.loaned.store(loaned.is_some(), Ordering::Release);
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
        if passed.blank.is_none() && mode.write && (maps || !self.is_loaned(&passed)) {
            return self.join(request, file, passed);
        }
        Ok(passed)
    }

    /// A writer joins readers, or handles that cannot map it, or the loan was lost with the
    /// session.
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
        let passed = PassedFile { loaned: Some(life), mappable: true, ..passed };
        if let Some(here) = &mut file.data.lock().passed {
            here.loaned = passed.loaned;
            here.mappable = true;
        }
        file.loaned.store(true, Ordering::Release);
        Ok(passed)
    }

    /// The server may have executed a call that loans a body for writing, and no answer came: the
    /// loan is returned in the background. Otherwise it would last as long as the session, and the
    /// volume could not be moved.
    fn end_unknown_loan(&self, fid: Fid, how: Lending, error: &Error) {
        let is_known = matches!(error, Error::Fault(_) | Error::Closed(_));
        let Some(core) = self.this.get().and_then(Weak::upgrade) else { return };
        if how != Lending::Read && !is_known {
            self.senders.run(move || {
                // No open of the file may obtain the loan between the check and the call: the
                // server would take it back while that kernel writes.
                let file = core.file_of(fid);
                let choice = file.as_ref().map(|file| file.choice.try_lock_for(UNKNOWN_LOAN_WAIT));
                let is_in_use = file.as_ref().is_some_and(|f| f.loaned.load(Ordering::Acquire));
                if is_in_use || matches!(choice, Some(None)) {
                    // An open that has the loan, or obtains it, returns it.
                    return;
                }
                core.settle_call(&RequestContext::of(&Caller::ROOT), fid, true);
            });
        }
    }

    /// The last writer is gone: the server may sum the body.
    pub fn return_body(&self, request: &RequestContext<'_>, file: &FileBytes) {
        let status = self.settle_call(request, file.fid, true);
        file.loaned.store(false, Ordering::Release);
        if let Some(passed) = &mut file.data.lock().passed {
            passed.loaned = None;
            passed.mappable = false;
        }
        // Pages that came in otherwise (by advice to read ahead) are old.
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
            // The loan ended with the session, and the server updates its records itself.
            Err(error) => {
                tracing::warn!(
                    %fid, %error,
                    "cannot return a body loan; the server ends it with the session"
                );
                None
            }
        }
    }

    /// Brings the server's records up to the kernel's writes.
    ///
    /// # Errors
    /// The service's refusal, or why no answer came.
    pub fn update_records(
        &self,
        file: &Arc<FileBytes>,
        cancel: Option<&Cancel>,
    ) -> Result<(), Error> {
        if !file.loaned.load(Ordering::Acquire) {
            return self.queue_stores(file, cancel);
        }
        let Some(passed) = file.data.lock().passed.clone() else { return Ok(()) };
        // Before the call: the next update finds the writes made meanwhile.
        let stamp = BodyStamp::of(&passed.body);
        if stamp.is_some() && stamp == passed.recorded {
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
            passed.recorded = stamp;
        }
        if full {
            data.fail(Fault::QuotaExceeded.into());
        }
        Ok(())
    }

    /// The kernel knows no quota: the next sync or close reports an excess.
    fn is_over_quota(&self, fid: Fid) -> bool {
        match self.call(&RequestContext::of(&Caller::ROOT), Call::VolumeStatus { fid }) {
            Ok(Answer::Volume(volume)) => {
                volume.quota_bytes > 0 && volume.used_bytes > volume.quota_bytes
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// After the server lost its record of the loans: borrows the bodies again through `remote`.
    pub fn borrow_again(&self, remote: &dyn client::Remote) {
        let life = self.life.load(Ordering::Acquire);
        self.files()
            .iter()
            .filter(|file| file.has_blank())
            .for_each(|file| self.adopt_again(file, remote));
        for file in self.files().iter().filter(|file| file.loaned.load(Ordering::Acquire)) {
            let call = Call::LendBody { fid: file.fid, how: Lending::Join };
            match remote.call(&Caller::ROOT, call, None) {
                Ok(_) => {
                    if let Some(passed) = &mut file.data.lock().passed {
                        passed.loaned = passed.loaned.map(|_| life);
                        passed.mappable = true;
                    }
                }
                Err(error) => {
                    tracing::warn!(
                        fid = %file.fid, %error,
                        "cannot borrow a body again that the kernel writes"
                    );
                }
            }
        }
    }
}

impl Venus {
    /// The state of passthrough.
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

/// Whether the whole body matches its sums.
fn agrees(body: &OwnedFd, size: u64, sums: &[u32]) -> bool {
    read_at(body, 0, size as usize).is_some_and(|bytes| agree(&bytes, sums))
}
