//! Opening and listing directories.

use std::sync::Arc;

use types::{Cookie, Fault, Fid};

use super::Handles;
use crate::base::{DirHandle, DirListing, Error, RequestContext};
use crate::calls::{Calls, Flusher, Unstable};
use crate::delegation::Delegations;
use crate::names::is_made_up;
use crate::reading::{Directories, Snapshots};

/// See the head of the file.
pub struct OpenDirs {
    handles: Arc<Handles>,
    unstable: Arc<Unstable>,
    flusher: Arc<Flusher>,
    calls: Arc<Calls>,
    directories: Arc<Directories>,
    delegations: Arc<Delegations>,
    snapshots: Arc<Snapshots>,
}

impl OpenDirs {
    pub(crate) fn new(
        handles: &Arc<Handles>,
        unstable: &Arc<Unstable>,
        flusher: &Arc<Flusher>,
        calls: &Arc<Calls>,
        directories: &Arc<Directories>,
        delegations: &Arc<Delegations>,
        snapshots: &Arc<Snapshots>,
    ) -> Self {
        OpenDirs {
            handles: Arc::clone(handles),
            unstable: Arc::clone(unstable),
            flusher: Arc::clone(flusher),
            calls: Arc::clone(calls),
            directories: Arc::clone(directories),
            delegations: Arc::clone(delegations),
            snapshots: Arc::clone(snapshots),
        }
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn opendir(&self, _request: &RequestContext<'_>, dir: Fid) -> Result<DirHandle, Error> {
        Ok(self.handles.add_dir(self.directories.open(dir)))
    }

    /// Entries behind `cookie` (0: the first), about `bytes_max` bytes of them.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn readdir(
        &self,
        request: &RequestContext<'_>,
        handle: DirHandle,
        cookie: Cookie,
        bytes_max: u32,
        plus: bool,
    ) -> Result<DirListing, Error> {
        let open = self.handles.dir_of(handle)?;
        if is_made_up(open.dir) {
            return self.snapshots.list_snapshots(request, open.dir, cookie, plus);
        }
        if let Some(end) = self.directories.known_end(&open, cookie) {
            return Ok(end);
        }
        if cookie == Cookie::START {
            self.delegations.ask_before_listing(request, open.dir);
            self.directories.listing_begins(open.dir, bytes_max);
        }
        self.directories.read(request, &open, cookie, bytes_max, plus)
    }

    /// Closes a directory.
    pub fn releasedir(&self, handle: DirHandle) {
        self.handles.remove_dir(handle);
    }

    /// Makes the directory's entries stable.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn fsyncdir(&self, request: &RequestContext<'_>, fid: Fid) -> Result<(), Error> {
        self.flusher.flush_all(request.cancel)?;
        match self.calls.call_commit(request, fid, false) {
            // A directory that was removed while it was open has no entries to make stable.
            Ok(_) | Err(Error::Fault(Fault::Stale)) => self.unstable.report_loss(fid),
            Err(error) => Err(error),
        }
    }
}
