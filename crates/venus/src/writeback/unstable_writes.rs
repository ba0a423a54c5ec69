//! Unstable writes: the server acknowledged them and may lose them, so they stay here until a
//! COMMIT.
//!
//! Model. A file's unstable bytes belong to one boot verifier of the server. If the server answers
//! under another one, it lost them, and they are sent again. A commit *asks* about all unstable
//! bytes at its beginning; later ones are stored beside them, and are newer. One commit of a file
//! asks at a time: two would each know a part of the lost bytes, and neither which bytes are newer.
//! Lost bytes go below everything written since, wherever that is (`dirty`, `flying`, `sealed`,
//! unstable). Bytes that a truncation cuts off are removed before it is sent; bytes that moved to
//! another server with their volume are stable there.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::MutexGuard;
use types::{Answer, BootVerifier, Call, Fid};

use crate::base::error::Error;
use crate::base::request::RequestContext;
use crate::core::Core;
use crate::data::extents::Chunk;
use crate::data::file_data::{Data, FileBytes};
use crate::data::unstable_writes::{Cut, UnstableWrites};

/// Commits of one fsync that may find the server restarted in between.
const TRIES: usize = 8;

impl Core {
    /// Stores an unstable chunk, to send it again if the server loses it.
    pub fn keep(&self, data: &mut Data, chunk: &Chunk, verifier: BootVerifier) {
        if self.is_local() {
            return;
        }
        let before = data.unstable.bytes.bytes();
        if data.unstable.verifier != verifier && !data.unstable.bytes.is_empty() {
            tracing::warn!(offset = chunk.offset, "server lost unstable data; sending it again");
            data.unstable.bytes.carve(chunk.offset, chunk.end());
            let lost = data.unstable.bytes.take_all();
            data.send_older(&lost);
        }
        let is_first = before == 0 && self.unstable.bytes() == 0;
        if is_first {
            // The janitor counts the age from now, and must not see the bytes before.
            self.chores.lock().committed = Some(Instant::now());
        }
        data.unstable.verifier = verifier;
        data.unstable.bytes.write(chunk.offset, chunk.data.clone(), chunk.first);
        let total = self.unstable.change(before, data.unstable.bytes.bytes());
        let is_much = total > self.unstable.limit(self.config.uncommitted_bytes_max);
        if is_much {
            self.chores.lock().commit = true;
        }
        if is_much || is_first {
            self.poke.notify_one();
        }
    }

    /// Makes all earlier writes stable.
    ///
    /// # Errors
    /// That of the commit; [`Error::TimedOut`] if the server restarts again and again.
    pub fn commit(&self, request: &RequestContext<'_>, file: &Arc<FileBytes>) -> Result<(), Error> {
        let until = file.data.lock().clock;
        for _ in 0..TRIES {
            let turn = self.begin_commit(request, file, until)?;
            let answer = self.call_commit(request, file.fid, false);
            let is_stable = self.answered(file, verifier_of(&answer));
            drop(turn);
            self.drop_if_unused(file);
            match answer {
                Ok(Answer::Committed { .. }) if is_stable => return Ok(()),
                Ok(Answer::Committed { .. }) => {}
                Ok(_) => return Err(Error::Protocol),
                Err(error) => return Err(error),
            }
        }
        Err(Error::TimedOut)
    }

    /// Commits a file, or its `whole` volume, which makes the server's changes of the volume's
    /// names stable too.
    ///
    /// # Errors
    /// The service's refusal, or why no answer came.
    pub fn call_commit(
        &self,
        request: &RequestContext<'_>,
        fid: Fid,
        whole: bool,
    ) -> Result<Answer, Error> {
        let call = if whole { Call::CommitVolume { fid } } else { Call::Commit { fid } };
        let point = self.unstable_metadata.point();
        let reply = self.call_with_body(request, call)?;
        self.committed(fid, whole, point, &reply);
        Ok(reply.answer)
    }

    /// Asks about the unstable bytes, once all that is not newer than `until` is at the server:
    /// another commit may have found bytes lost meanwhile.
    fn begin_commit<'a>(
        &self,
        request: &RequestContext<'_>,
        file: &'a Arc<FileBytes>,
        until: u64,
    ) -> Result<MutexGuard<'a, ()>, Error> {
        loop {
            self.send_all(file, request.cancel)?;
            self.flush_all(request.cancel)?;
            let turn = file.turn(request.cancel)?;
            let mut data = file.data.lock();
            if !data.has_on_its_way(until) {
                self.change_unstable(&mut data, UnstableWrites::ask);
                return Ok(turn);
            }
        }
    }

    /// One commit for all unstable bytes, except those of files that another thread commits
    /// already.
    pub fn commit_all(self: &Arc<Self>, request: &RequestContext<'_>) {
        let files: Vec<Arc<FileBytes>> =
            self.files().into_iter().filter(|file| !file.data.lock().unstable.is_empty()).collect();
        let turns: Vec<_> =
            files.iter().filter_map(|file| Some((file, file.commits.try_lock()?))).collect();
        turns
            .iter()
            .for_each(|(file, _)| self.change_unstable(&mut file.data.lock(), UnstableWrites::ask));
        let files = turns.iter().map(|(file, _)| file.fid.volume);
        let mut volumes: Vec<Fid> =
            files.chain(self.unstable_metadata.volumes()).map(Fid::root).collect();
        volumes.sort_unstable();
        volumes.dedup();
        for fid in volumes {
            let answer = self.call_commit(request, fid, true);
            for (file, _) in turns.iter().filter(|(file, _)| file.fid.volume == fid.volume) {
                if self.answered(file, verifier_of(&answer)) {
                    self.drop_if_unused(file);
                } else {
                    self.send_soon(file);
                }
            }
        }
    }

    /// A commit was answered under this verifier, or failed; returns whether the bytes it asked
    /// about are stable.
    fn answered(&self, file: &FileBytes, now: Option<BootVerifier>) -> bool {
        let mut data = file.data.lock();
        let lost = self.change_unstable(&mut data, |unstable| unstable.answered(now));
        self.send_lost(file, &mut data, &lost);
        let was_lost = std::mem::take(&mut data.unstable.asked_lost);
        now.is_some() && lost.is_empty() && !was_lost
    }

    /// The server is under this verifier now; returns whether it lost bytes of the file.
    pub fn find_lost_bytes(&self, file: &FileBytes, now: BootVerifier) -> bool {
        let mut data = file.data.lock();
        let lost = self.change_unstable(&mut data, |unstable| unstable.lost(now));
        self.send_lost(file, &mut data, &lost);
        !lost.is_empty()
    }

    fn send_lost(&self, file: &FileBytes, data: &mut Data, lost: &[Chunk]) {
        if !lost.is_empty() {
            tracing::warn!(fid = %file.fid, chunks = lost.len(), "server lost unstable data; \
                sending it again");
            data.send_older(lost);
            file.account(data, &self.unsent);
        }
    }

    fn change_unstable<R>(
        &self,
        data: &mut Data,
        change: impl FnOnce(&mut UnstableWrites) -> R,
    ) -> R {
        let unstable = &mut data.unstable;
        let before = unstable.bytes.bytes();
        let result = change(unstable);
        self.unstable.change(before, unstable.bytes.bytes());
        result
    }

    /// Removes the unstable bytes in a range that is about to be cut off or punched out, so that
    /// neither they nor earlier writes there are sent again.
    ///
    /// # Errors
    /// [`Error::Interrupted`] only.
    pub fn cut_unstable(
        &self,
        request: &RequestContext<'_>,
        file: &Arc<FileBytes>,
        start: u64,
        end: u64,
    ) -> Result<Cut, Error> {
        let until = file.data.lock().clock;
        loop {
            self.send_all(file, request.cancel)?;
            if !file.is_landed() {
                self.flush_all(request.cancel)?;
            }
            let mut data = file.data.lock();
            if !data.has_on_its_way(until) {
                return Ok(self.change_unstable(&mut data, |unstable| unstable.cut(start, end)));
            }
        }
    }

    /// Puts bytes back after a cut that failed.
    pub fn restore_unstable(&self, file: &FileBytes, cut: Cut, why: &Error) {
        // After any other error the cut may have been applied.
        if matches!(why, Error::Fault(_) | Error::Interrupted) {
            let mut data = file.data.lock();
            let lost = self.change_unstable(&mut data, |unstable| unstable.restore(cut));
            self.send_lost(file, &mut data, &lost);
        }
    }

    /// All bytes are stable on another server.
    pub fn forget_unstable(&self, file: &FileBytes) {
        self.change_unstable(&mut file.data.lock(), |unstable| drop(unstable.cut(0, u64::MAX)));
    }
}

fn verifier_of(answer: &Result<Answer, Error>) -> Option<BootVerifier> {
    match answer {
        Ok(Answer::Committed { verifier }) => Some(*verifier),
        Ok(_) | Err(_) => None,
    }
}
