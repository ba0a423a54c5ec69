//! Unstable metadata: changes of names and of status that the server acknowledged and may lose.
//!
//! Model. The client sends lost bytes again (`calls/unstable.rs`), but not a lost change of names
//! or status: other clients may have changed the same since, or built upon it. So a process that
//! syncs receives an error if the change is lost. The client notes each acknowledged change with
//! the boot verifier of its answer. A commit whose answer has the same verifier makes it stable;
//! one with another verifier finds it lost, like a delegated change that was answered here and
//! never landed. Changes that moved to another server with their volume are stable there. A crash
//! of a server on this machine also ends the processes that would ask.
//!
//! The error goes to each handle that has the file open, otherwise (and for a directory) to the
//! first process that asks, as with errors of a local file system.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use types::{Answer, BootVerifier, Call, Fid, VolumeId};

use super::fids_of;
use crate::base::Error;

/// So many noted changes make a commit due.
const NOTED_MAX: usize = 1 << 16;

#[derive(Default)]
pub(crate) struct UnstableMetadata(Mutex<State>);

/// A point in the sequence of noted changes; a commit may make those up to it stable.
#[derive(Clone, Copy)]
pub(crate) struct Point(u64);

#[derive(Clone, Copy)]
struct Noted {
    clock: u64,
    verifier: BootVerifier,
    /// Its body was changed too, for example cut. That is stable after a commit of the file itself,
    /// or of its whole volume.
    body: bool,
}

#[derive(Default)]
struct State {
    pub clock: u64,
    noted: HashMap<Fid, Noted>,
    pub lost: HashSet<Fid>,
    /// A loss that no `syncfs` has reported.
    unreported: bool,
}

/// The metadata that a call changes.
#[derive(Clone, Copy)]
pub(crate) struct MetadataSubject {
    /// It also changes a body.
    body: bool,
    /// It ends the body of a file that loses its last name by it.
    ends: bool,
    /// The changed file, if the answer names none.
    unnamed: Option<Fid>,
}

impl MetadataSubject {
    /// `None`: the call changes nothing, or bytes alone: those stay here (`calls/unstable.rs`).
    pub fn of(call: &Call) -> Option<MetadataSubject> {
        let subject = MetadataSubject { body: false, ends: false, unnamed: None };
        match call {
            Call::Write { .. } => None,
            Call::SetStatus { change, .. } => {
                Some(MetadataSubject { body: change.size.is_some(), ..subject })
            }
            Call::Allocate { .. } => Some(MetadataSubject { body: true, ..subject }),
            Call::Remove { hold: false, .. } | Call::Rename { hold: false, .. } => {
                Some(MetadataSubject { ends: true, ..subject })
            }
            Call::SetAcl { fid, .. } => Some(MetadataSubject { unnamed: Some(*fid), ..subject }),
            call => call.changes().then_some(subject),
        }
    }
}

impl UnstableMetadata {
    /// A commit asks about the changes noted up to now.
    pub fn point(&self) -> Point {
        Point(self.0.lock().clock)
    }

    /// The number of files with noted changes.
    pub fn len(&self) -> usize {
        self.0.lock().noted.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn volumes(&self) -> Vec<VolumeId> {
        let mut volumes: Vec<VolumeId> = self.0.lock().noted.keys().map(|fid| fid.volume).collect();
        volumes.sort_unstable();
        volumes.dedup();
        volumes
    }

    /// All noted changes are stable on another server.
    pub fn clear(&self) {
        self.0.lock().noted.clear();
    }

    /// Notes a change that was answered under this verifier. Returns files of which an earlier
    /// change is lost, and whether a commit is due.
    pub fn note(
        &self,
        verifier: BootVerifier,
        answer: &Answer,
        subject: MetadataSubject,
    ) -> (Vec<Fid>, bool) {
        let mut lost = Vec::new();
        let mut state = self.0.lock();
        state.clock += 1;
        let clock = state.clock;
        let ended = match answer {
            Answer::Removed { status, .. } => Some(status),
            Answer::Renamed { other, .. } => other.as_ref(),
            _ => None,
        };
        let ended = ended.filter(|it| subject.ends && it.links == 0).map(|it| it.fid);
        for fid in fids_of(answer).into_iter().chain(subject.unnamed) {
            let before = state.noted.get(&fid).filter(|before| before.verifier == verifier);
            let body = subject.body || before.is_some_and(|before| before.body);
            let body = body && ended != Some(fid);
            let before = state.noted.insert(fid, Noted { clock, verifier, body });
            lost.extend(before.filter(|before| before.verifier != verifier).map(|_| fid));
        }
        (lost, state.noted.len() >= NOTED_MAX && state.noted.len().is_multiple_of(NOTED_MAX))
    }

    /// The file is over, and its changes with it. Its removal is noted of the directory too.
    pub fn forget(&self, fid: Fid) {
        self.0.lock().noted.remove(&fid);
    }

    /// A commit of this file or directory was answered under a verifier, or of its whole volume.
    /// Returns the files whose changes are lost.
    pub fn committed(&self, of: Fid, whole: bool, point: Point, now: BootVerifier) -> Vec<Fid> {
        let is_asked = |fid: &Fid, noted: &Noted| {
            fid.volume == of.volume
                && noted.clock <= point.0
                && (whole || !noted.body || *fid == of)
        };
        let mut state = self.0.lock();
        let asked = state.noted.extract_if(|fid, noted| is_asked(fid, noted));
        asked.filter(|(_, noted)| noted.verifier != now).map(|(fid, _)| fid).collect()
    }

    /// The server is under this verifier now; returns the files whose changes are lost.
    pub fn find_lost(&self, now: BootVerifier) -> Vec<Fid> {
        let mut state = self.0.lock();
        state.noted.extract_if(|_, noted| noted.verifier != now).map(|(fid, _)| fid).collect()
    }

    /// Something is lost: the next sync of everything reports it.
    pub fn begin_loss(&self) {
        self.0.lock().unreported = true;
    }

    /// A change of this file is lost, and no handle reports it.
    pub fn lose(&self, fid: Fid) {
        self.0.lock().lost.insert(fid);
    }

    /// Reports a lost change of the file.
    ///
    /// # Errors
    /// Once, if a change is lost.
    pub fn report(&self, fid: Fid) -> Result<(), Error> {
        if self.0.lock().lost.remove(&fid) { Err(Error::Lost) } else { Ok(()) }
    }

    /// Reports any lost change.
    ///
    /// # Errors
    /// Once, if a change is lost.
    pub fn report_any(&self) -> Result<(), Error> {
        if std::mem::take(&mut self.0.lock().unreported) { Err(Error::Lost) } else { Ok(()) }
    }
}
