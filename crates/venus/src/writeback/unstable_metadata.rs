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

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use types::{BootVerifier, Call, Fid, VolumeId};

#[derive(Default)]
pub(crate) struct UnstableMetadata(pub Mutex<MetadataState>);

/// A point in the sequence of noted changes; a commit may make those up to it stable.
#[derive(Clone, Copy)]
pub(crate) struct Point(pub u64);

#[derive(Clone, Copy)]
pub(crate) struct Noted {
    pub clock: u64,
    pub verifier: BootVerifier,
    /// Its body was changed too, for example cut. That is stable after a commit of the file itself,
    /// or of its whole volume.
    pub body: bool,
}

#[derive(Default)]
pub(crate) struct MetadataState {
    pub clock: u64,
    pub noted: HashMap<Fid, Noted>,
    pub lost: HashSet<Fid>,
    /// A loss that no `syncfs` has reported.
    pub unreported: bool,
}

/// The metadata that a call changes.
#[derive(Clone, Copy)]
pub(crate) struct MetadataSubject {
    /// It also changes a body.
    pub body: bool,
    /// The changed file, if the answer names none.
    pub unnamed: Option<Fid>,
}

impl MetadataSubject {
    /// `None`: the call changes nothing, or bytes alone: those stay here (`unstable_writes.rs`).
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

impl UnstableMetadata {
    /// A commit asks about the changes noted up to now.
    pub fn point(&self) -> Point {
        Point(self.0.lock().clock)
    }

    pub fn volumes(&self) -> Vec<VolumeId> {
        let mut volumes: Vec<VolumeId> = self.0.lock().noted.keys().map(|fid| fid.volume).collect();
        volumes.sort_unstable();
        volumes.dedup();
        volumes
    }

    /// All noted changes are stable on another server.
    pub fn moved(&self) {
        self.0.lock().noted.clear();
    }
}
