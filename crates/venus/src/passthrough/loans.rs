//! Bodies of the server that the kernel reads, or writes under a loan.
//!
//! While the kernel may write, the server's records lag behind the body. A call about the file is
//! preceded by an update of these records, where other files send their writes
//! (`Writeback::send_all`). The last writer returns the loan, and then the server may sum the body
//! (PT-2).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use client::Cancel;
use types::{Answer, Call, Caller, Fault, Fid, Lending, SessionEpoch, Status};

use super::Blanks;
use crate::base::{Backing, Error, OpenMode, RequestContext, as_caller};
use crate::cache::{Cache, READ_MIN};
use crate::calls::Calls;
use crate::data::{BodyStamp, FileBytes, PassedFile, SUMMED, VolumeLegacy, agree, read_at};
use crate::session::Ground;

/// How long the return of a loan of unknown outcome waits for opens of the file.
const UNKNOWN_LOAN_WAIT: Duration = Duration::from_secs(5);

/// An open compares shorter bodies with their sums.
const CHECK_MAX: u64 = 1 << 20;

/// Write-back is as quick for shorter bodies.
const WRITE_MIN: u64 = 1 << 20;

/// The server would have to sum too much of longer bodies after each loan.
const WRITE_MAX: u64 = 4 << 30;

/// Bodies of the server that the kernel has.
pub(crate) struct Loans {
    ground: Ground,
    cache: Arc<Cache>,
    calls: Arc<Calls>,
    blanks: Arc<Blanks>,
    legacy: Option<Arc<VolumeLegacy>>,
}

impl Loans {
    pub fn new(
        ground: &Ground,
        cache: &Arc<Cache>,
        calls: &Arc<Calls>,
        blanks: &Arc<Blanks>,
        legacy: Option<&Arc<VolumeLegacy>>,
    ) -> Self {
        Loans {
            ground: ground.clone(),
            cache: Arc::clone(cache),
            calls: Arc::clone(calls),
            blanks: Arc::clone(blanks),
            legacy: legacy.cloned(),
        }
    }

    /// The first open: gives the body to the kernel, if all conditions hold.
    pub fn pass(
        self: &Arc<Self>,
        request: &RequestContext<'_>,
        file: &FileBytes,
        mode: OpenMode,
    ) -> Option<PassedFile> {
        if !file.is_clean() || !file.is_landed() || self.cache.passes().is_err() {
            return None;
        }
        let (status, known) = self.known_status(file)?;
        let least = if mode.write { WRITE_MIN } else { READ_MIN };
        if status.size < least
            || mode.write && status.size > WRITE_MAX
            || !known && status.size > CHECK_MAX
        {
            // The kernel's own pages would be a second memory beside that of the map.
            if !self.is_mapped(request, file.fid) {
                return None;
            }
        }
        let how = if mode.write { Lending::Write } else { Lending::Read };
        let epoch = self.ground.names.epoch();
        let body = self.borrow(request, file.fid, how, &status, known)?;
        let passed = self.hand_over(file, body, mode.write.then_some(epoch));
        match passed {
            None if mode.write => self.return_body(request, file),
            Some(_) if mode.read && mode.write => self.note_mapped(file.fid),
            _ => {}
        }
        passed
    }

    /// From now on an application may map the file for writing.
    fn note_mapped(&self, fid: Fid) {
        let mut tables = self.ground.names.lock();
        let was_mapped = std::mem::replace(&mut tables.nodes.node(fid).mapped, true);
        drop(tables);
        if !was_mapped {
            self.legacy.iter().for_each(|legacy| legacy.put_mapped(fid));
        }
    }

    /// No application has the file mapped for writing.
    fn note_unmapped(&self, fid: Fid) {
        self.ground.names.lock().nodes.node(fid).mapped = false;
        self.legacy.iter().for_each(|legacy| legacy.remove_mapped(fid));
    }

    /// Whether an application may have the file mapped for writing through a handle that is closed:
    /// then the server finds it open for writing, its loan goes on, and it has no sums.
    fn is_mapped(&self, request: &RequestContext<'_>, fid: Fid) -> bool {
        if !self.ground.names.lock().nodes.get(&fid).is_some_and(|node| node.mapped) {
            return false;
        }
        let ask = self.calls.call(request, Call::ReadSums { fid, first: 0, count: 1 });
        let is_lent = !matches!(ask, Ok(Answer::Sums { sums, .. }) if !sums.is_empty());
        if !is_lent {
            self.note_unmapped(fid);
        }
        is_lent
    }

    /// The kernel has this body of a predecessor, under a loan if there are writers.
    pub fn inherit(&self, file: &FileBytes, backing: Backing, is_written: bool) {
        if let Some(passed) = &mut file.data.lock().passed {
            // Another handle of the file came before.
            passed.loaned = is_written.then(|| self.ground.names.epoch());
            passed.mappable = is_written;
            file.loaned.store(is_written, Ordering::Release);
            return;
        }
        let body = self.legacy.as_ref().and_then(|legacy| legacy.body(file.fid));
        let Some(body) = body else {
            tracing::error!(fid = %file.fid, "the body that the kernel has is not known");
            return;
        };
        let loaned = is_written.then(|| self.ground.names.epoch());
        let passed = PassedFile {
            backing,
            body: Arc::new(body),
            loaned,
            mappable: is_written,
            recorded: None,
            pinned: None,
            blank: None,
        };
        file.data.lock().passed = Some(passed);
        file.loaned.store(is_written, Ordering::Release);
        self.ground.kernel.note_given();
    }

    /// The server's status, while it is promised, and whether all blocks are verified.
    fn known_status(&self, file: &FileBytes) -> Option<(Status, bool)> {
        let data = file.data.lock();
        let tables = self.ground.names.lock();
        let node = tables.nodes.get(&file.fid).filter(|node| node.valid && tables.trusted())?;
        let status = node.status?;
        let known = node.known == status.data_version
            || data.reads.known.is_whole(status.data_version, status.size);
        Some((status, known))
    }

    /// The body in the version of `status`, compared with its sums unless all blocks are verified.
    fn borrow(
        self: &Arc<Self>,
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
                let Answer::Sums { version, sums } = self.calls.call(request, call).ok()? else {
                    return None;
                };
                (version == status.data_version).then_some(sums)?
            }
        };
        let loaned = self.calls.call_with_body(request, Call::LendBody { fid, how });
        let loaned = loaned.inspect_err(|error| self.end_unknown_loan(fid, how, error)).ok()?;
        let Answer::Body { status: found } = loaned.answer else { return None };
        let body = loaned.body?;
        // None: it is verified, or was loaned before, and some kernel writes it.
        let agrees = sums.is_empty() || agrees(&body, status.size, &sums);
        let good = agrees && found.data_version == status.data_version;
        if good && !sums.is_empty() {
            self.ground.names.lock().nodes.node(fid).known = status.data_version;
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
        loaned: Option<SessionEpoch>,
    ) -> Option<PassedFile> {
        let kernel = self.ground.kernel.port();
        self.legacy.iter().for_each(|legacy| legacy.hold_body(file.fid, body.as_fd()));
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
        self.ground.kernel.note_given();
        Some(passed)
    }

    /// One more handle of a body that is passed.
    ///
    /// # Errors
    /// The service's refusal of a loan, or why no answer came.
    pub fn join_for(
        self: &Arc<Self>,
        request: &RequestContext<'_>,
        file: &FileBytes,
        passed: PassedFile,
        mode: OpenMode,
    ) -> Result<PassedFile, Error> {
        let maps = mode.read && mode.write;
        if maps && passed.pinned.is_none() {
            self.note_mapped(file.fid);
        }
        if passed.blank.is_none()
            && mode.write
            && (maps && !passed.mappable || !self.is_loaned(&passed))
        {
            return self.join(request, file, passed);
        }
        Ok(passed)
    }

    /// A writer joins readers, or handles that cannot map it, or the loan was lost with the
    /// session.
    fn join(
        self: &Arc<Self>,
        request: &RequestContext<'_>,
        file: &FileBytes,
        passed: PassedFile,
    ) -> Result<PassedFile, Error> {
        let epoch = self.ground.names.epoch();
        let how = Lending::Join;
        self.calls
            .call(request, Call::LendBody { fid: file.fid, how })
            .inspect_err(|error| self.end_unknown_loan(file.fid, how, error))?;
        self.ground.kernel.port().inode_data(file.fid);
        let passed = PassedFile { loaned: Some(epoch), mappable: true, ..passed };
        if let Some(here) = &mut file.data.lock().passed {
            here.loaned = passed.loaned;
            here.mappable = true;
        }
        file.loaned.store(true, Ordering::Release);
        Ok(passed)
    }

    /// Whether the kernel may write into the body: under a lease that the server counts on too
    /// (CB-4).
    fn is_loaned(&self, passed: &PassedFile) -> bool {
        passed.loaned == Some(self.ground.names.epoch()) && self.ground.names.lock().trusted()
    }

    /// The server may have executed a call that loans a body for writing, and no answer came: the
    /// loan is returned in the background. Otherwise it would last as long as the session, and the
    /// volume could not be moved.
    fn end_unknown_loan(self: &Arc<Self>, fid: Fid, how: Lending, error: &Error) {
        let is_known = matches!(error, Error::Fault(_) | Error::Closed(_));
        if how != Lending::Read && !is_known {
            let core = Arc::clone(self);
            self.ground.workers.send(move || {
                // No open of the file may obtain the loan between the check and the call: the
                // server would take it back while that kernel writes.
                let file = core.ground.names.file_of(fid);
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
        self.ground.kernel.port().inode_data(file.fid);
        if let Some(status) = status {
            self.ground.names.lock().nodes.node(file.fid).known = status.data_version;
        }
    }

    fn settle_call(&self, request: &RequestContext<'_>, fid: Fid, back: bool) -> Option<Status> {
        let snapshot = self.ground.names.begin();
        let answer =
            self.calls.call(&as_caller(request.caller, None), Call::SettleBody { fid, back });
        match answer {
            Ok(Answer::Status(status)) => {
                self.ground.names.lock().put(snapshot, status);
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
        let Some(passed) = file.data.lock().passed.clone() else { return Ok(()) };
        // Before the call: the next update finds the writes made meanwhile.
        let stamp = BodyStamp::of(&passed.body);
        if stamp.is_some() && stamp == passed.recorded {
            return Ok(());
        }
        let snapshot = self.ground.names.begin();
        let call = Call::SettleBody { fid: file.fid, back: false };
        match self.calls.call(&as_caller(&Caller::ROOT, cancel), call)? {
            Answer::Status(status) => self.ground.names.lock().put(snapshot, status),
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
        match self.calls.call(&RequestContext::of(&Caller::ROOT), Call::VolumeStatus { fid }) {
            Ok(Answer::Volume(volume)) => {
                volume.quota_bytes > 0 && volume.used_bytes > volume.quota_bytes
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// After the server lost its record of the loans: borrows the bodies again through `remote`.
    pub fn borrow_again(&self, remote: &dyn client::Remote) {
        let epoch = self.ground.names.epoch();

        for file in
            self.ground.names.files().iter().filter(|file| file.loaned.load(Ordering::Acquire))
        {
            let call = Call::LendBody { fid: file.fid, how: Lending::Join };
            match remote.call(&Caller::ROOT, call, None) {
                Ok(_) => {
                    if let Some(passed) = &mut file.data.lock().passed {
                        passed.loaned = passed.loaned.map(|_| epoch);
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

    /// The file is not open any more: the kernel needs no body.
    pub fn end_pass(&self, file: &FileBytes) {
        let passed = {
            let mut data = file.data.lock();
            self.blanks.drop_scratch(file);
            data.passed.take()
        };
        if let Some(passed) = passed {
            self.legacy.iter().for_each(|legacy| legacy.release_body(file.fid));
            self.ground.kernel.port().unpass(passed.backing);
        }
    }
}

/// Whether the whole body matches its sums.
fn agrees(body: &OwnedFd, size: u64, sums: &[u32]) -> bool {
    read_at(body, 0, size as usize).is_some_and(|bytes| agree(&bytes, sums))
}
