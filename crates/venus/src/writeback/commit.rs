//! Commits: making stable what was written, and cutting off what must not be sent again.
//!
//! One commit of a file runs at a time (`data/unstable_writes.rs`). It asks once everything that
//! was written before is at the server, and sends again what the server lost meanwhile.

use std::sync::Arc;

use parking_lot::MutexGuard;
use types::{Answer, BootVerifier, Fid};

use super::Writeback;
use crate::base::{Error, RequestContext};
use crate::data::{Cut, FileBytes, UnstableWrites};

/// Commits of one fsync that may find the server restarted in between.
const TRIES: usize = 8;

impl Writeback {
    /// Makes all earlier writes stable.
    ///
    /// # Errors
    /// That of the commit; [`Error::TimedOut`] if the server restarts again and again.
    pub fn commit(&self, request: &RequestContext<'_>, file: &Arc<FileBytes>) -> Result<(), Error> {
        let until = file.data.lock().clock;
        for _ in 0..TRIES {
            let turn = self.begin_commit(request, file, until)?;
            let answer = self.calls.call_commit(request, file.fid, false);
            let is_stable = self.unstable.answered(file, verifier_of(&answer));
            drop(turn);
            self.cache.drop_if_unused(file);
            match answer {
                Ok(Answer::Committed { .. }) if is_stable => return Ok(()),
                Ok(Answer::Committed { .. }) => {}
                Ok(_) => return Err(Error::Protocol),
                Err(error) => return Err(error),
            }
        }
        Err(Error::TimedOut)
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
            self.flusher.flush_all(request.cancel)?;
            let turn = file.turn(request.cancel)?;
            let mut data = file.data.lock();
            if !data.has_on_its_way(until) {
                self.unstable.change(&mut data, UnstableWrites::ask);
                return Ok(turn);
            }
        }
    }

    /// One commit for all unstable bytes, except those of files that another thread commits
    /// already.
    pub fn commit_all(self: &Arc<Self>, request: &RequestContext<'_>) {
        let files: Vec<Arc<FileBytes>> = self
            .ground
            .names
            .files()
            .into_iter()
            .filter(|file| !file.data.lock().unstable.is_empty())
            .collect();
        let turns: Vec<_> =
            files.iter().filter_map(|file| Some((file, file.commits.try_lock()?))).collect();
        turns
            .iter()
            .for_each(|(file, _)| self.unstable.change(&mut file.data.lock(), UnstableWrites::ask));
        let files = turns.iter().map(|(file, _)| file.fid.volume);
        let mut volumes: Vec<Fid> = files.chain(self.unstable.volumes()).map(Fid::root).collect();
        volumes.sort_unstable();
        volumes.dedup();
        for fid in volumes {
            let answer = self.calls.call_commit(request, fid, true);
            for (file, _) in turns.iter().filter(|(file, _)| file.fid.volume == fid.volume) {
                if self.unstable.answered(file, verifier_of(&answer)) {
                    self.cache.drop_if_unused(file);
                } else {
                    self.sender.send_soon(file);
                }
            }
        }
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
                self.flusher.flush_all(request.cancel)?;
            }
            let mut data = file.data.lock();
            if !data.has_on_its_way(until) {
                return Ok(self.unstable.change(&mut data, |unstable| unstable.cut(start, end)));
            }
        }
    }
}

fn verifier_of(answer: &Result<Answer, Error>) -> Option<BootVerifier> {
    match answer {
        Ok(Answer::Committed { verifier }) => Some(*verifier),
        Ok(_) | Err(_) => None,
    }
}
