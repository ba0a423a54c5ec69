//! Changes of names and of status that the server acknowledged as *unstable*: it may lose them.
//!
//! Model. Bytes that a server loses are sent again (`unstable_writes.rs`). A change of names or of
//! status is not: others may have changed the same since, or built upon it. So who makes sure of it
//! hears that it is lost. Each acknowledged change is noted with the boot verifier under which its
//! answer came. A commit whose answer comes under the same verifier makes it stable; one under
//! another finds it lost, as is a delegated change that was answered here and never landed. What
//! goes to another server with its volume is stable there. A server on this machine is lost
//! together with who would ask.
//!
//! Who hears: each handle that has the file open, otherwise (and of a directory) who asks first, as
//! with errors of a local file system.

use std::collections::{HashMap, HashSet};

use client::Reply;
use parking_lot::Mutex;
use types::{BootVerifier, Call, Fid, VolumeId};

use crate::Error;
use crate::core::Core;
use crate::journal::fids;

/// So many make a commit due.
const NOTED_MAX: usize = 1 << 16;

/// What the server has up to a point may become stable.
#[derive(Clone, Copy)]
pub(crate) struct Point(u64);

#[derive(Default)]
pub(crate) struct Unsaved(Mutex<State>);

#[derive(Clone, Copy)]
struct Noted {
    clock: u64,
    verifier: BootVerifier,
    /// Its body was changed too: something was cut off, say. That is stable after a commit of the
    /// file itself, or of all.
    body: bool,
}

#[derive(Default)]
struct State {
    /// Counts what is noted.
    clock: u64,
    noted: HashMap<Fid, Noted>,
    lost: HashSet<Fid>,
    /// Something is lost that no `syncfs` has told of.
    untold: bool,
}

/// What a call changes of names or status.
#[derive(Clone, Copy)]
pub(crate) struct MetadataSubject {
    /// A body with them.
    body: bool,
    /// What it is about, if its answer names nothing.
    unnamed: Option<Fid>,
}

impl MetadataSubject {
    /// Nothing, or bytes alone: those are kept (`unstable_writes.rs`).
    pub fn of(call: &Call) -> Option<MetadataSubject> {
        let subject = MetadataSubject { body: false, unnamed: None };
        match call {
            Call::Write { .. } => None,
            Call::SetStatus { change, .. } => {
                Some(MetadataSubject { body: change.size.is_some(), ..subject })
            }
            Call::Allocate { .. } => Some(MetadataSubject { body: true, ..subject }),
            Call::SetAcl { fid, .. } => Some(MetadataSubject { unnamed: Some(*fid), ..subject }),
            call => call.changes().then_some(subject),
        }
    }
}

impl Unsaved {
    /// What is noted up to now is asked about.
    pub fn point(&self) -> Point {
        Point(self.0.lock().clock)
    }

    /// The volumes that something is noted of.
    pub fn volumes(&self) -> Vec<VolumeId> {
        let mut volumes: Vec<VolumeId> = self.0.lock().noted.keys().map(|fid| fid.volume).collect();
        volumes.sort_unstable();
        volumes.dedup();
        volumes
    }

    /// All of it is stable, somewhere else.
    pub fn moved(&self) {
        self.0.lock().noted.clear();
    }
}

impl Core {
    /// A change was acknowledged, whose call was made when the volume was at this place.
    pub fn note(&self, place: u64, reply: &Reply, subject: MetadataSubject) {
        let Some(verifier) = reply.verifier.filter(|_| !self.is_local()) else { return };
        let mut lost = Vec::new();
        let is_much = {
            if self.lives.place() != place {
                return;
            }
            let mut state = self.unsaved.0.lock();
            state.clock += 1;
            let clock = state.clock;
            for fid in fids(&reply.answer).into_iter().chain(subject.unnamed) {
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
        self.unsaved.0.lock().noted.retain(|fid, noted| {
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
        self.unsaved.0.lock().noted.retain(|fid, noted| {
            if noted.verifier != now {
                lost.push(*fid);
            }
            noted.verifier == now
        });
        self.lose(&lost);
    }

    /// What was changed of these is not at the server.
    pub fn lose(&self, fids: &[Fid]) {
        if fids.is_empty() {
            return;
        }
        tracing::warn!(first = %fids[0], files = fids.len(), "changes of names or status that \
            were not stable are lost");
        self.unsaved.0.lock().untold = true;
        for fid in fids {
            match self.file_of(*fid).filter(|_| self.is_open(*fid)) {
                Some(file) => file.data.lock().fail(Error::Lost),
                None => drop(self.unsaved.0.lock().lost.insert(*fid)),
            }
        }
    }

    fn is_open(&self, fid: Fid) -> bool {
        self.tables.lock().nodes.whole(&fid).is_some_and(|node| node.opens > 0)
    }

    /// Fails once if what was changed of it is lost.
    pub fn tell_lost(&self, fid: Fid) -> Result<(), Error> {
        if self.unsaved.0.lock().lost.remove(&fid) { Err(Error::Lost) } else { Ok(()) }
    }

    /// Fails once if anything is lost.
    pub fn tell_any_lost(&self) -> Result<(), Error> {
        if std::mem::take(&mut self.unsaved.0.lock().untold) { Err(Error::Lost) } else { Ok(()) }
    }
}
