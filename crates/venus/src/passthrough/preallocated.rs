//! Preallocated bodies: the kernel writes new files into them without a call
//! (docs/spec/passthrough.md). The code calls them blanks.
//!
//! A blank is *fresh*, or a file *has* it: the kernel writes the file's bytes into it. Its bytes
//! are *sealed* (`calls/flusher.rs`) as written bytes are, so at the server the file is one like
//! any other; or it is *adopted*, and is then a body loan like any other (`loans.rs`). After
//! the last close it is *idle*: it stays with the file for readers of what was just written, until
//! another new file needs one, a second passed, or no delegation covers the file any more. Then it
//! is taken off, which requires that no other process has it open (PT-9).
//!
//! While a file has a blank a delegation covers it (PT-8): a thread that ends a delegation first
//! withdraws the blanks that are not covered then. The end of a session ends its blanks: unsealed
//! bytes are lost, and the file reports that for ever.
//!
//! Only handles that cannot read write blanks, because such a handle cannot be mapped for writing:
//! each change of a blank shows in the file's times, and there is none after the last handle is
//! closed.
//!
//! A call that adopts a body, or that cuts the file at the server and then the body, makes it
//! *busy*; other threads wait for its end. So a cut is never undone by earlier bytes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use client::{CallError, Cancel, Remote};
use types::{Answer, Call, Caller, Fid};

use super::{Blanks, Loans};
use crate::base::{Error, OpenMode, POLL_INTERVAL, RequestContext};
use crate::cache::Cache;
use crate::calls::{Calls, Space};
use crate::data::{Blank, BodyStamp, FileBytes, PassedFile, ScratchBody, set_length};
use crate::names::Tables;
use crate::session::Ground;

/// New files whose bytes the kernel writes into preallocated bodies.
pub(crate) struct Preallocated {
    ground: Ground,
    cache: Arc<Cache>,
    calls: Arc<Calls>,
    space: Arc<Space>,
    blanks: Arc<Blanks>,
    loans: Arc<Loans>,
}

impl Preallocated {
    pub fn new(
        ground: &Ground,
        cache: &Arc<Cache>,
        calls: &Arc<Calls>,
        space: &Arc<Space>,
        blanks: &Arc<Blanks>,
        loans: &Arc<Loans>,
    ) -> Self {
        Preallocated {
            ground: ground.clone(),
            cache: Arc::clone(cache),
            calls: Arc::clone(calls),
            space: Arc::clone(space),
            blanks: Arc::clone(blanks),
            loans: Arc::clone(loans),
        }
    }

    /// A blank for a file that was just made and is opened with `mode`, if a fresh one is there.
    pub fn begin_blank(&self, file: &Arc<FileBytes>, mode: OpenMode) -> Option<PassedFile> {
        let may = mode.write
            && !mode.read
            && self.ground.config.delegations
            && self.cache.passes().is_ok();
        if !may
            || self.blanks.expects_short()
            || self.space.is_scarce()
            || !self.ground.names.is_covered_and_empty(file.fid)
        {
            return None;
        }
        let blank = self.fresh_blank(file.fid)?;
        debug_assert!(!file.has_blank(), "PT-9: a file has one preallocated body");
        file.set_scratch(Some(ScratchBody::new(Arc::clone(&blank.body))));
        let passed = PassedFile::with_blank(blank.backing, Arc::clone(&blank.body), blank);
        file.data.lock().passed = Some(passed.clone());
        self.blanks.add_file(file);
        // A thread that ends the delegation from here on finds the file, and waits for its
        // `choice`.
        if !self.ground.names.is_covered_and_empty(file.fid) {
            let blank = self.blanks.take_off(file);
            blank.into_iter().for_each(|blank| self.blanks.put_blank(blank));
            return None;
        }
        self.ground.kernel.note_given();
        self.ground.chores.check_later(file);
        Some(passed)
    }

    fn fresh_blank(&self, fid: Fid) -> Option<Blank> {
        let blank = self.blanks.pop().or_else(|| self.take_off_oldest());
        self.blanks.ask_for_blanks(fid);
        blank
    }

    /// The last handle of a file is closed; the caller holds its `choice`. Returns whether the file
    /// retains its blank.
    pub fn rest_blank(&self, file: &Arc<FileBytes>) -> bool {
        let gone = self.ground.names.is_gone(file.fid);
        let data = file.data.lock();
        if data.passed.as_ref().is_none_or(|passed| passed.blank.is_none()) {
            return false;
        }
        file.scratch(|scratch| {
            if gone {
                // No call will ever ask for it.
                scratch.sealed = BodyStamp::of(&scratch.body);
            }
            (scratch.idle, scratch.still) = (true, gone);
        });
        drop(data);
        self.blanks.push_idle(Arc::clone(file));
        true
    }

    /// Ensures that the next new file finds a blank.
    pub fn refresh_blanks(&self) {
        if self.blanks.are_few()
            && let Some(blank) = self.take_off_oldest()
        {
            self.blanks.push(blank);
        }
    }

    /// The blank that is idle for longest.
    fn take_off_oldest(&self) -> Option<Blank> {
        let mut left = self.blanks.idle();
        while left > 0 {
            left -= 1;
            let file = self.blanks.pop_idle()?;
            if !file.is_idle() {
                continue;
            }
            let taken = match file.choice.try_lock() {
                Some(choice) if choice.is_unused() => self.blanks.take_off(&file),
                Some(_) => continue,
                None => None,
            };
            match taken {
                Some(blank) => {
                    self.cache.drop_if_unused(&file);
                    return self.blanks.usable(blank);
                }
                None if file.has_blank() => self.blanks.push_idle(file),
                None => {}
            }
        }
        None
    }

    /// The bytes of a file that has a blank are old enough to be sent.
    pub fn check_blank(self: &Arc<Self>, file: &Arc<FileBytes>) {
        if !file.has_blank() || file.is_lost() {
            return;
        }
        if let Some(choice) = file.choice.try_lock()
            && choice.is_unused()
            && let Some(blank) = self.blanks.take_off(file)
        {
            drop(choice);
            self.cache.drop_if_unused(file);
            self.blanks.put_blank(blank);
            return;
        }
        self.ground.chores.check_later(file);
    }

    /// Files whose blanks no delegation covers lose them: taken off, or adopted.
    pub fn withdraw_uncovered(&self) {
        self.withdraw(|tables, file| !tables.nodes.covers(file.fid));
    }

    /// The same for files that the delegation of this directory covers, which is about to end.
    pub fn withdraw_children(&self, dir: Fid) {
        self.withdraw(|tables, file| {
            tables
                .nodes
                .whole(&file.fid)
                .and_then(|node| node.sole)
                .is_some_and(|(under, _)| under == dir)
        });
    }

    fn withdraw(&self, which: impl Fn(&Tables, &FileBytes) -> bool) {
        let mut files: Vec<Arc<FileBytes>> = self.blanks.files();
        if !files.is_empty() {
            let tables = self.ground.names.lock();
            files.retain(|file| which(&tables, file));
        }
        files.iter().for_each(|file| self.withdraw_one(file));
    }

    fn withdraw_one(&self, file: &Arc<FileBytes>) {
        let choice = file.choice.lock();
        let blank = if choice.is_unused() { self.blanks.take_off(file) } else { None };
        match blank {
            Some(blank) => self.blanks.put_blank(blank),
            // A loss was reported already.
            None => drop(self.adopt_held(file, None)),
        }
        if choice.is_unused() {
            self.end_unused(file);
        }
        drop(choice);
        self.cache.drop_if_unused(file);
    }

    /// A body that was adopted while the file was closed goes back. The caller holds its `choice`.
    fn end_unused(&self, file: &Arc<FileBytes>) {
        let Some(passed) = file.data.lock().passed.clone() else { return };
        if passed.blank.is_some() && !file.is_lost() {
            return;
        }
        if passed.is_borrowed() {
            self.loans.return_body(&RequestContext::of(&Caller::ROOT), file);
        }
        self.loans.end_pass(file);
    }

    /// Makes the preallocated body, if the file has one, its body at the server; on return the file
    /// has none. The caller does not hold its `choice`.
    ///
    /// # Errors
    /// That the call was interrupted or timed out, or why the kernel's writes are lost.
    pub fn adopt(&self, file: &Arc<FileBytes>, cancel: Option<&Cancel>) -> Result<(), Error> {
        if !file.has_blank() {
            return Ok(());
        }
        let adopted = self.adopt_held(file, cancel);
        // The last handle may have been closed meanwhile, and left the rest to this thread.
        let choice = file.choice.lock();
        if choice.is_unused() {
            self.end_unused(file);
        }
        adopted
    }

    /// The same for a caller that holds the file's `choice`.
    ///
    /// # Errors
    /// As `adopt`.
    fn adopt_held(&self, file: &FileBytes, cancel: Option<&Cancel>) -> Result<(), Error> {
        let Some(number) = self.occupy(file, cancel)? else { return Ok(()) };
        let mut call = Call::AdoptBody { fid: file.fid, blank: number };
        let _away = self.ground.names.away(&mut call);
        self.adopt_by(file, || {
            self.calls.call(&RequestContext { caller: &Caller::ROOT, cancel, groups: None }, call)
        })
    }

    /// Makes the body busy; returns its number, if the file has one.
    fn occupy(&self, file: &FileBytes, cancel: Option<&Cancel>) -> Result<Option<u64>, Error> {
        let mut data = file.data.lock();
        loop {
            if file.is_lost() {
                return Err(Error::Lost);
            }
            let Some(blank) = data.passed.as_mut().and_then(|passed| passed.blank.as_mut()) else {
                return Ok(None);
            };
            if !blank.busy {
                blank.busy = true;
                return Ok(Some(blank.number));
            }
            if cancel.is_some_and(Cancel::is_cancelled) {
                return Err(Error::Interrupted);
            }
            file.moved.wait_for(&mut data, POLL_INTERVAL);
        }
    }

    /// After the server lost its record of the loans: borrows the bodies again through `remote`,
    /// which the server expects before the reclaim ends.
    pub fn borrow_again(&self, remote: &dyn Remote) {
        let files = self.ground.names.files();
        files
            .iter()
            .filter(|file| file.has_blank())
            .for_each(|file| self.adopt_again(file, remote));
        self.loans.borrow_again(remote);
    }

    /// The same while the server waits for this client's reclaim.
    fn adopt_again(&self, file: &FileBytes, remote: &dyn client::Remote) {
        let number =
            file.data.lock().passed.as_ref().and_then(|passed| Some(passed.blank.as_ref()?.number));
        // An idle body is removed when the delegation is returned.
        let Some(blank) = number.filter(|_| !file.is_idle() && !file.is_lost()) else { return };
        let mut call = Call::AdoptBody { fid: file.fid, blank };
        // Changes of the file that are answered here come before this one, and none meanwhile.
        let _away = self.ground.names.away(&mut call);
        // Interrupted is the only error, and nothing interrupts this.
        let _ = self.calls.send_related(&RequestContext::of(&Caller::ROOT), &mut call);
        let by = || {
            remote
                .call(&Caller::ROOT, call, None)
                .map(|reply| reply.answer)
                .map_err(|e: CallError| e.into())
        };
        // A loss was reported already.
        let _ = self.adopt_by(file, by);
    }

    fn adopt_by(
        &self,
        file: &FileBytes,
        ask: impl FnOnce() -> Result<Answer, Error>,
    ) -> Result<(), Error> {
        let epoch = self.ground.names.epoch();
        let stamp = file.scratch.lock().as_ref().and_then(|scratch| BodyStamp::of(&scratch.body));
        let snapshot = self.ground.names.begin();
        let answer = ask();
        let mut data = file.data.lock();
        let Some(passed) = &mut data.passed else { return Ok(()) };
        // Two threads may ask at once after a restart of the server.
        let Some(mut blank) = passed.blank.take() else { return Ok(()) };
        let result = match answer {
            Ok(Answer::Status(status)) => {
                self.blanks.lose_blank(&mut blank);
                passed.become_loaned(epoch, stamp);
                file.loaned.store(true, Ordering::Release);
                self.blanks.drop_scratch(file);
                self.ground.names.lock().put(snapshot, status);
                Ok(())
            }
            Ok(_) => Err(Error::Protocol),
            Err(error) => Err(error),
        };
        if let Err(error) = &result {
            blank.busy = false;
            if !matches!(error, Error::Interrupted) {
                // It may be the server's body now: it is never used for another file.
                self.blanks.lose_blank(&mut blank);
            }
            passed.blank = Some(blank);
            if !matches!(error, Error::Interrupted | Error::TimedOut) {
                tracing::error!(
                    fid = %file.fid, %error,
                    "cannot send a new file's bytes; they are lost"
                );
                file.scratch(|scratch| scratch.lost = true);
                data.fail(error.clone());
            }
        }
        file.moved.notify_all();
        result
    }

    /// Before the file is cut or grown at the server. Returns whether it has a preallocated body to
    /// be cut too: then `cut_blank` must follow.
    ///
    /// # Errors
    /// [`Error::Interrupted`], and that the body is lost.
    pub fn begin_cut(&self, file: &FileBytes, cancel: Option<&Cancel>) -> Result<bool, Error> {
        self.occupy(file, cancel).map(|number| number.is_some())
    }

    /// The file was cut or grown to this size at the server, or was not. False: the body was
    /// adopted after all, so the cut must be sent once more.
    pub fn cut_blank(&self, file: &FileBytes, size: Option<u64>) -> bool {
        let mut data = file.data.lock();
        let mut failed = false;
        file.scratch(|scratch| {
            if let Some(size) = size {
                failed = set_length(&scratch.body, size).is_err();
                scratch.sealed = BodyStamp::of(&scratch.body);
                scratch.lost |= failed;
            }
        });
        if failed {
            tracing::error!(fid = %file.fid, "cannot cut a new file's body; its bytes are lost");
            data.fail(Error::Lost);
        }
        let blank = data.passed.as_mut().and_then(|passed| passed.blank.as_mut());
        let there = blank.map(|blank| blank.busy = false).is_some();
        file.moved.notify_all();
        there
    }

    /// One more handle of a file with a preallocated body. A handle that reads and writes could be
    /// mapped for writing: it needs a body of the server.
    ///
    /// # Errors
    /// Why the body cannot become one of the server.
    pub fn join_blank(
        &self,
        request: &RequestContext<'_>,
        file: &Arc<FileBytes>,
        mode: OpenMode,
        unused: bool,
    ) -> Result<Option<PassedFile>, Error> {
        let covered = {
            let tables = self.ground.names.lock();
            tables.trusted() && tables.nodes.covers(file.fid)
        };
        if !covered || mode.read && mode.write {
            if unused && let Some(blank) = self.blanks.take_off(file) {
                self.blanks.put_blank(blank);
                return Ok(self.loans.pass(request, file, mode));
            }
            self.adopt_held(file, request.cancel)?;
        } else if unused {
            file.wake_blank();
        }
        Ok(file.data.lock().passed.clone())
    }
}
