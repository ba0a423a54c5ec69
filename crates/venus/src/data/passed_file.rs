//! Records of a body that the kernel has, and of the handles that use it
//! (docs/spec/passthrough.md).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use types::SessionEpoch;

use super::{BodyStamp, CacheBody};
use crate::base::Backing;

/// A body that the kernel has.
#[derive(Clone)]
pub(crate) struct PassedFile {
    pub backing: Backing,
    pub body: Arc<OwnedFd>,
    /// Loaned for writing, at this `Names::epoch`.
    pub loaned: Option<SessionEpoch>,
    /// The server has on record that it may be mapped for writing.
    pub mappable: bool,
    /// The state up to which the server's records were last brought.
    pub recorded: Option<BodyStamp>,
    /// The body of the disk cache, if it is not the server's.
    pub pinned: Option<Arc<CacheBody>>,
    /// A preallocated body that the server has not adopted yet (`preallocated.rs`).
    pub blank: Option<Blank>,
}

impl PassedFile {
    /// Passthrough of a cache body.
    pub fn of_cache(backing: Backing, pinned: Arc<CacheBody>) -> Option<PassedFile> {
        let body = Arc::new(pinned.descriptor()?);
        Some(PassedFile {
            backing,
            body,
            loaned: None,
            mappable: false,
            recorded: None,
            pinned: Some(pinned),
            blank: None,
        })
    }

    pub fn with_blank(backing: Backing, body: Arc<OwnedFd>, blank: Blank) -> Self {
        PassedFile {
            backing,
            body,
            loaned: None,
            mappable: false,
            recorded: None,
            pinned: None,
            blank: Some(blank),
        }
    }

    /// Whether the server loaned it for writing.
    pub fn is_borrowed(&self) -> bool {
        self.loaned.is_some()
    }

    /// The preallocated body was adopted, at this `Names::epoch` and at the latest in this
    /// state.
    pub fn become_loaned(&mut self, epoch: SessionEpoch, recorded: Option<BodyStamp>) {
        self.blank = None;
        self.loaned = Some(epoch);
        self.recorded = recorded;
    }
}

#[derive(Default)]
pub(crate) struct Choice {
    pub users: u32,
    pub writers: u32,
    /// The file was open before: bytes of it may still be on their way.
    pub used: bool,
}

impl Choice {
    pub fn is_unused(&self) -> bool {
        self.users == 0
    }
}

#[derive(Clone)]
pub(crate) struct Blank {
    pub number: u64,
    pub body: Arc<OwnedFd>,
    pub backing: Backing,
    /// The session that it belongs to (`BlankPool::session`); `None` if it is of no use any more.
    pub session: Option<u64>,
    /// A call is under way that adopts it, or cuts the file at the server.
    pub busy: bool,
}
