//! Unstable metadata: changes of names and of status that the server acknowledged and may lose.
//!
//! Model. The client sends lost bytes again (`unstable_writes.rs`), but not a lost change of names
//! or status: other clients may have changed the same since, or built upon it. So a process that
//! syncs receives an error if the change is lost. The client notes each acknowledged change with
//! the boot verifier of its answer. A commit whose answer has the same verifier makes it stable;
//! one with another verifier finds it lost, like a delegated change that was answered here and
//! never landed. Changes that moved to another server with their volume are stable there. A crash
//! of a server on this machine also ends the processes that would ask.
//!
//! The error goes to each handle that has the file open, otherwise (and for a directory) to the
//! first process that asks, as with errors of a local file system.

use client::Reply;
use types::{BootVerifier, Fid};

use crate::base::error::Error;
use crate::core::Core;
use crate::writeback::journal::fids_of;
use crate::writeback::unstable_metadata::{MetadataSubject, Noted, Point};

/// So many noted changes make a commit due.
const NOTED_MAX: usize = 1 << 16;

impl Core {
    /// Notes an acknowledged change, whose call was made when the volume was at this place.
    pub fn note(&self, place: u64, reply: &Reply, subject: MetadataSubject) {
        let Some(verifier) = reply.verifier.filter(|_| !self.is_local()) else { return };
        let mut lost = Vec::new();
        let is_much = {
            if self.instance.place() != place {
                return;
            }
            let mut state = self.unstable_metadata.0.lock();
            state.clock += 1;
            let clock = state.clock;
            for fid in fids_of(&reply.answer).into_iter().chain(subject.unnamed) {
                let before = state.noted.get(&fid).filter(|before| before.verifier == verifier);
                let body = subject.body || before.is_some_and(|before| before.body);
                let before = state.noted.insert(fid, Noted { clock, verifier, body });
                lost.extend(before.filter(|before| before.verifier != verifier).map(|_| fid));
            }
            state.noted.len() >= NOTED_MAX && state.noted.len().is_multiple_of(NOTED_MAX)
        };
        self.lose(&lost);
        if is_much {
            self.chores.lock().commit = true;
            self.poke.notify_one();
        }
    }

    /// A commit of this file or directory was answered, or of its whole volume.
    pub fn committed(&self, of: Fid, whole: bool, point: Point, reply: &Reply) {
        let Some(now) = reply.verifier else { return };
        let mut lost = Vec::new();
        self.unstable_metadata.0.lock().noted.retain(|fid, noted| {
            let is_asked = fid.volume == of.volume
                && noted.clock <= point.0
                && (whole || !noted.body || *fid == of);
            if is_asked && noted.verifier != now {
                lost.push(*fid);
            }
            !is_asked
        });
        self.lose(&lost);
    }

    /// The server is under this verifier now.
    pub fn find_lost_changes(&self, now: BootVerifier) {
        let mut lost = Vec::new();
        self.unstable_metadata.0.lock().noted.retain(|fid, noted| {
            if noted.verifier != now {
                lost.push(*fid);
            }
            noted.verifier == now
        });
        self.lose(&lost);
    }

    /// Changes of these files are lost.
    pub fn lose(&self, fids: &[Fid]) {
        if fids.is_empty() {
            return;
        }
        tracing::warn!(first = %fids[0], files = fids.len(), "unstable changes of names or \
            status are lost; the next sync reports it");
        self.unstable_metadata.0.lock().unreported = true;
        for fid in fids {
            match self.file_of(*fid).filter(|_| self.is_open(*fid)) {
                Some(file) => file.data.lock().fail(Error::Lost),
                None => drop(self.unstable_metadata.0.lock().lost.insert(*fid)),
            }
        }
    }

    fn is_open(&self, fid: Fid) -> bool {
        self.tables.lock().nodes.whole(&fid).is_some_and(|node| node.opens > 0)
    }

    /// Reports a lost change of the file.
    ///
    /// # Errors
    /// Once, if a change is lost.
    pub fn report_loss(&self, fid: Fid) -> Result<(), Error> {
        if self.unstable_metadata.0.lock().lost.remove(&fid) { Err(Error::Lost) } else { Ok(()) }
    }

    /// Reports any lost change.
    ///
    /// # Errors
    /// Once, if a change is lost.
    pub fn report_any_loss(&self) -> Result<(), Error> {
        if std::mem::take(&mut self.unstable_metadata.0.lock().unreported) {
            Err(Error::Lost)
        } else {
            Ok(())
        }
    }
}
