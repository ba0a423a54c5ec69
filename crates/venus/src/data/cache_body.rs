//! A body of the disk cache that the kernel has: *pinned*.
//!
//! A body equals the server's while the promise holds, no own write is unsent and it is not in
//! *doubt*. `VerifiedBlocks` has its version: own changes advance it, another client's leaves a gap
//! until it is followed (`passthrough/cache_bodies.rs`).

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use client::{BreakAck, Cancel};
use parking_lot::{Condvar, Mutex};
use types::Fault;

use super::{Body, Taken};
use crate::base::{Error, POLL_INTERVAL};

pub(crate) struct CacheBody {
    pub body: Mutex<Body>,
    /// The disk cache's record, for the return of the body.
    pub taken: Mutex<Option<Taken>>,
    pub following: Mutex<BodySync>,
    pub followed: Condvar,
    /// It may differ from the server's body, and no break will report that.
    pub doubt: AtomicBool,
    /// A writer joined: the janitor checks the body each second.
    pub watched: AtomicBool,
    /// All handles are closed, but applications still have it mapped.
    pub lingers: AtomicBool,
}

#[derive(Default)]
pub(crate) struct BodySync {
    pub running: bool,
    /// Another round is to begin.
    pub wanted: bool,
    /// Rounds begun, and the last one that ended.
    pub round: u64,
    pub ended: u64,
    pub acks: Vec<BreakAck>,
}

impl CacheBody {
    pub fn new(taken: Taken, size: u64) -> Self {
        CacheBody {
            body: Mutex::new(Body::new(Arc::clone(&taken.file), size, &taken.sums)),
            taken: Mutex::new(Some(taken)),
            following: Mutex::default(),
            followed: Condvar::new(),
            doubt: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            lingers: AtomicBool::new(false),
        }
    }

    pub fn descriptor(&self) -> Option<OwnedFd> {
        self.file().as_fd().try_clone_to_owned().ok()
    }

    pub fn file(&self) -> Arc<fs::File> {
        Arc::clone(&self.body.lock().file)
    }

    /// It may have bytes that the server does not have.
    pub fn doubt(&self) {
        self.doubt.store(true, Ordering::Release);
    }

    /// The bytes that every handle and map shows; `None` if the disk fails.
    pub fn read(&self, offset: u64, length: u32) -> Option<Bytes> {
        let file = self.file();
        let mut bytes = vec![0; length as usize];
        let mut at = 0;
        while at < bytes.len() {
            match file.read_at(&mut bytes[at..], offset + at as u64).ok()? {
                0 => break,
                count => at += count,
            }
        }
        bytes.truncate(at);
        Some(bytes.into())
    }

    /// Writes bytes into the body, and runs `then` before another thread changes it.
    ///
    /// # Errors
    /// [`Fault::NoSpace`] or [`Fault::Medium`] if the disk fails.
    pub fn put<R>(&self, offset: u64, bytes: &[u8], then: impl FnOnce() -> R) -> Result<R, Error> {
        let mut body = self.body.lock();
        body.put(offset, bytes).map_err(|error| {
            self.doubt();
            tracing::warn!(%error, "cannot write to a body of the disk cache");
            let full = error.kind() == std::io::ErrorKind::StorageFull;
            Error::Fault(if full { Fault::NoSpace } else { Fault::Medium })
        })?;
        Ok(then())
    }

    pub fn needs_tending(&self) -> bool {
        [&self.doubt, &self.watched, &self.lingers]
            .into_iter()
            .any(|flag| flag.load(Ordering::Acquire))
    }
}

impl CacheBody {
    /// Waits until the body has the server's state at the time of the call.
    ///
    /// # Errors
    /// [`Error::Interrupted`] only.
    pub fn wait(&self, cancel: Option<&Cancel>) -> Result<(), Error> {
        let mut following = self.following.lock();
        let enough = following.round + u64::from(following.wanted);
        while following.running && following.ended < enough {
            if cancel.is_some_and(Cancel::is_cancelled) {
                return Err(Error::Interrupted);
            }
            self.followed.wait_for(&mut following, POLL_INTERVAL);
        }
        Ok(())
    }
}
