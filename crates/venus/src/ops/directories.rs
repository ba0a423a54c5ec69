//! Opening and listing directories.

use types::Fid;

use crate::base::error::Error;
use crate::base::request::RequestContext;
use crate::base::result::{DirHandle, DirListing};
use crate::names::made_up::is_made_up;
use crate::ops::venus::Venus;

impl Venus {
    /// Opens a directory.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn opendir(&self, _request: &RequestContext<'_>, dir: Fid) -> Result<DirHandle, Error> {
        Ok(self.core.handles.add_dir(self.core.directories.open(dir)))
    }

    /// Entries behind `cookie` (0: the first), about `bytes_max` bytes of them.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn readdir(
        &self,
        request: &RequestContext<'_>,
        handle: DirHandle,
        cookie: u64,
        bytes_max: u32,
        plus: bool,
    ) -> Result<DirListing, Error> {
        let core = &self.core;
        let open = core.handles.dir_of(handle)?;
        if is_made_up(open.dir) {
            return core.snapshots.list_snapshots(request, open.dir, cookie, plus);
        }
        if let Some(end) = core.directories.known_end(&open, cookie) {
            return Ok(end);
        }
        if cookie == 0 {
            core.delegations.ask_before_listing(request, open.dir);
            core.directories.listing_begins(open.dir, bytes_max);
        }
        core.directories.read(request, &open, cookie, bytes_max, plus)
    }

    /// Closes a directory.
    pub fn releasedir(&self, handle: DirHandle) {
        self.core.handles.remove_dir(handle);
    }

    /// Makes the directory's entries stable.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn fsyncdir(&self, request: &RequestContext<'_>, fid: Fid) -> Result<(), Error> {
        self.core.flusher.flush_all(request.cancel)?;
        self.core.calls.call_commit(request, fid, false)?;
        self.core.unstable.report_loss(fid)
    }
}
