//! Sending a preallocated body's bytes to the server: sealed, as a write in the journal, or
//! adopted, as the file's body (docs/spec/passthrough.md, `preallocated.rs`).
//!
//! A call that adopts a body, or that cuts the file at the server and then the body, makes it
//! *busy*; other threads wait for its end. So a cut is never undone by earlier bytes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use client::{CallError, Cancel};
use parking_lot::MutexGuard;
use types::{Answer, Call, Caller};

use crate::base::error::Error;
use crate::base::request::{POLL_INTERVAL, RequestContext};
use crate::core::Core;
use crate::data::block_sums::read_at;
use crate::data::body_stamp::BodyStamp;
use crate::data::extents::Chunk;
use crate::data::file_data::{Data, FileBytes};
use crate::data::scratch_body::set_length;
use crate::names::delegations::wall;

/// Longer bodies are adopted.
const SEALED_BYTES_MAX: u64 = 1 << 20;

/// After so many seals a body is adopted, unless it is very short: each seal sends all of it again.
const SEALS_MAX: u32 = 2;

const SHORT_BYTES: u64 = 64 << 10;

/// The unit of a status's blocks.
const SECTOR: u64 = 512;

/// A body without holes may be so much shorter than its blocks.
const PAGE: u64 = 4096;

impl Core {
    /// Puts the kernel's writes into the journal. False: the body is to be adopted. The caller
    /// knows that a delegation covers the file.
    pub fn seal_blank(&self, file: &Arc<FileBytes>, data: &mut MutexGuard<'_, Data>) -> bool {
        let Some((body, seals)) =
            file.scratch.lock().as_ref().map(|one| (Arc::clone(&one.body), one.seals))
        else {
            return true;
        };
        let Ok(stat) = rustix::fs::fstat(&*body) else { return false };
        let size = stat.st_size as u64;
        let has_holes = stat.st_blocks as u64 * SECTOR + PAGE <= size;
        if size > SEALED_BYTES_MAX || has_holes || seals >= SEALS_MAX && size > SHORT_BYTES {
            return false;
        }
        // A file that is shorter by now was cut meanwhile: the caller checks it again.
        let Some(bytes) = read_at(&body, 0, size as usize) else { return false };
        if !bytes.is_empty() && !self.record_blank(file, data, bytes) {
            return false;
        }
        file.scratch(|scratch| {
            scratch.sealed = Some(BodyStamp::of_stat(&stat));
            scratch.seals += 1;
        });
        true
    }

    fn record_blank(
        &self,
        file: &Arc<FileBytes>,
        data: &mut MutexGuard<'_, Data>,
        bytes: Bytes,
    ) -> bool {
        let caller = data.writer.clone().unwrap_or(Caller::ROOT);
        let call = Call::Write {
            fid: file.fid,
            offset: Some(0),
            data: bytes.clone(),
            stable: false,
            kill_privileges: false,
        };
        let chunk = Chunk { offset: 0, data: bytes, first: data.clock };
        let mut tables = self.tables.lock();
        let at = wall();
        let Some(local) = tables.answer_here(&self.local_caller(&caller), &call, at) else {
            return false;
        };
        let (number, answer) = self.record(
            &mut tables,
            &caller,
            &call,
            at,
            local,
            Some((Arc::clone(file), chunk.clone())),
        );
        data.sealed.push((number, chunk));
        if let Answer::Written { status, .. } = answer {
            tables.node(file.fid).status = Some(status);
        }
        drop(tables);
        file.account(data, &self.unsent);
        true
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
    /// As [`Core::adopt`].
    pub fn adopt_held(&self, file: &FileBytes, cancel: Option<&Cancel>) -> Result<(), Error> {
        let Some(number) = self.occupy(file, cancel)? else { return Ok(()) };
        let mut call = Call::AdoptBody { fid: file.fid, blank: number };
        let _away = self.away(&mut call);
        self.adopt_by(file, || {
            self.call(&RequestContext { caller: &Caller::ROOT, cancel, groups: None }, call)
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

    /// The same while the server waits for this client's reclaim.
    pub fn adopt_again(&self, file: &FileBytes, remote: &dyn client::Remote) {
        let number =
            file.data.lock().passed.as_ref().and_then(|passed| Some(passed.blank.as_ref()?.number));
        // An idle body is removed when the delegation is returned.
        let Some(blank) = number.filter(|_| !file.is_idle() && !file.is_lost()) else { return };
        let call = Call::AdoptBody { fid: file.fid, blank };
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
        let life = self.life.load(Ordering::Acquire);
        let stamp = file.scratch.lock().as_ref().and_then(|scratch| BodyStamp::of(&scratch.body));
        let snapshot = self.begin();
        let answer = ask();
        let mut data = file.data.lock();
        let Some(passed) = &mut data.passed else { return Ok(()) };
        // Two threads may ask at once after a restart of the server.
        let Some(mut blank) = passed.blank.take() else { return Ok(()) };
        let result = match answer {
            Ok(Answer::Status(status)) => {
                self.lose_blank(&mut blank);
                passed.become_loaned(life, stamp);
                file.loaned.store(true, Ordering::Release);
                self.drop_scratch(file);
                self.tables.lock().put(snapshot, status);
                Ok(())
            }
            Ok(_) => Err(Error::Protocol),
            Err(error) => Err(error),
        };
        if let Err(error) = &result {
            blank.busy = false;
            if !matches!(error, Error::Interrupted) {
                // It may be the server's body now: it is never used for another file.
                self.lose_blank(&mut blank);
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
    /// be cut too: then [`Core::cut_blank`] must follow.
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
}
