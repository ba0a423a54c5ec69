//! Listing directories. A listing that was read from its beginning to its end under one version makes the directory complete.

use std::sync::Arc;

use parking_lot::Mutex;
use types::{Answer, Call, Fid};

use crate::shared::Core;
use crate::{DirHandle, Error, ListEntry, Listing, Request, Venus};

/// How far a listing got without a gap, and under which version: (cookie, version).
type Progress = Option<(u64, u64)>;

/// One open directory.
pub(crate) struct OpenDir {
    dir: Fid,
    progress: Mutex<Progress>,
    /// Behind which cookie there was nothing more: readers ask once more to be sure.
    end: Mutex<Option<u64>>,
}

/// Bytes of a page that is listed ahead: some hundred entries with status, a millisecond or two of the server's time.
const AHEAD_BYTES: u32 = 64 << 10;

/// A page of a directory, entered.
struct Page {
    listing: Listing,
    version: u64,
    /// All its names could be entered.
    entered: bool,
    /// Where the next page begins.
    next: u64,
}

impl Core {
    /// Asks for a page and enters what it says.
    fn page(&self, request: &Request<'_>, dir: Fid, cookie: u64, bytes_max: u32, plus: bool) -> Result<Page, Error> {
        let (before, delegation) = {
            let tables = self.tables.lock();
            (tables.before(dir), tables.delegation(dir))
        };
        let call = Call::ReadDir { dir, cookie, bytes_max, plus };
        let Answer::Entries { entries, end, dir_version } = self.call(request, call)? else {
            return Err(Error::Protocol);
        };
        let next = entries.last().map_or(cookie, |entry| entry.cookie);
        let mut tables = self.tables.lock();
        let (names_cacheable, entered) = tables.put_listing(&before, dir, dir_version, &entries);
        let entries = entries.into_iter().map(|entry| {
            let (status, cacheable) = match entry.status {
                Some(status) => {
                    let (status, cacheable) = tables.put(before.snapshot, status);
                    if entry.sole {
                        tables.put_sole(dir, delegation, status.fid);
                    }
                    (Some(status), cacheable)
                }
                None => (None, false),
            };
            ListEntry { name: entry.name, fid: entry.fid, kind: entry.kind, cookie: entry.cookie, status, cacheable }
        });
        let entries = entries.collect();
        let listing = Listing { entries, end, names_cacheable, stamp: self.stamp() };
        Ok(Page { listing, version: dir_version, entered, next })
    }

    /// Lists a page with status for its own sake; where the next one begins, and whether there is none.
    pub fn list_page(&self, request: &Request<'_>, dir: Fid, cookie: u64) -> Result<(u64, bool), Error> {
        let page = self.page(request, dir, cookie, AHEAD_BYTES, true)?;
        Ok((page.next, page.listing.end))
    }

    /// After a run of lookups that had to ask: lists the next page of the directory with status, so that the following ones
    /// need not. Who may not list it, or finds it changing, goes on asking.
    pub fn list_ahead(&self, request: &Request<'_>, dir: Fid) {
        let Some(cookie) = self.tables.lock().missed(dir) else { return };
        let Ok(page) = self.page(request, dir, cookie, AHEAD_BYTES, true) else { return };
        let mut tables = self.tables.lock();
        if page.entered && tables.listed(dir, cookie, page.next) && page.listing.end {
            tables.complete(dir, page.version);
        }
    }
}

impl Venus {
    /// Opens a directory.
    ///
    /// # Errors
    /// As the service says.
    pub fn opendir(&self, _request: &Request<'_>, dir: Fid) -> Result<DirHandle, Error> {
        let handle = DirHandle(self.core.number());
        self.core
            .dirs
            .lock()
            .insert(handle, Arc::new(OpenDir { dir, progress: Mutex::new(None), end: Mutex::new(None) }));
        Ok(handle)
    }

    fn dir_of(&self, handle: DirHandle) -> Result<Arc<OpenDir>, Error> {
        self.core.dirs.lock().get(&handle).cloned().ok_or(Error::BadHandle)
    }

    /// Entries behind `cookie` (0: the first), about `bytes_max` bytes of them.
    ///
    /// # Errors
    /// As the service says.
    pub fn readdir(
        &self,
        request: &Request<'_>,
        handle: DirHandle,
        cookie: u64,
        bytes_max: u32,
        plus: bool,
    ) -> Result<Listing, Error> {
        let core = &self.core;
        let open = self.dir_of(handle)?;
        if cookie != 0 && *open.end.lock() == Some(cookie) {
            let _tables = core.tables.lock();
            return Ok(Listing { entries: Vec::new(), end: true, names_cacheable: false, stamp: core.stamp() });
        }
        if cookie == 0 {
            core.ask_before_listing(request, open.dir);
        }
        let page = core.page(request, open.dir, cookie, bytes_max, plus)?;
        *open.end.lock() = page.listing.end.then_some(page.next);
        let mut progress = open.progress.lock();
        *progress = match *progress {
            _ if !page.entered => None,
            _ if cookie == 0 => Some((page.next, page.version)),
            Some((behind, version)) if behind == cookie && version == page.version => Some((page.next, version)),
            _ => None,
        };
        let whole = page.listing.end && progress.is_some();
        drop(progress);
        if whole {
            core.tables.lock().complete(open.dir, page.version);
        }
        Ok(page.listing)
    }

    /// Closes a directory.
    pub fn releasedir(&self, handle: DirHandle) {
        self.core.dirs.lock().remove(&handle);
    }

    /// The directory's entries are stable afterwards.
    ///
    /// # Errors
    /// As the service says.
    pub fn fsyncdir(&self, request: &Request<'_>, handle: DirHandle) -> Result<(), Error> {
        let fid = self.dir_of(handle)?.dir;
        self.core.drain_all(request.cancel)?;
        self.core.call(request, Call::Commit { fid }).map(drop)
    }
}
