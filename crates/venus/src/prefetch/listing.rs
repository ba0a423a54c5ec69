//! Listing directories. A listing that was read from its beginning to its end under one version
//! makes the directory complete.
//!
//! While a reader takes one page, the client fetches the next. It is shown only if the directory
//! still has the version of the page, and with the statuses of that later moment: so no application
//! can see that it was fetched before. A process that walks a tree finds the first page of the next
//! directory in the same way (`access_pattern.rs`): the page waits for a directory that is not open
//! yet.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use types::{Answer, Call, Caller, Fid};

use crate::base::error::Error;
use crate::base::request::RequestContext;
use crate::base::result::{DirHandle, DirListing, ListEntry};
use crate::core::Core;
use crate::names::dir_names::Wanted;
use crate::names::made_up::is_made_up;
use crate::ops::venus::Venus;
use crate::prefetch::open_dir::{Early, OpenDir, Page, Progress};

/// How long a reader waits for a page that was asked for ahead before it asks on its own.
const EARLY_WAIT_MAX: Duration = Duration::from_millis(100);

/// Bytes of the first page that is listed ahead: some hundred entries with status, a millisecond or
/// two of the server's time.
const AHEAD_BYTES: u32 = 64 << 10;

/// Size of later pages: a whole message.
const AHEAD_MORE_BYTES: u32 = 256 << 10;

impl Core {
    fn page(
        &self,
        request: &RequestContext<'_>,
        dir: Fid,
        cookie: u64,
        bytes_max: u32,
        plus: bool,
    ) -> Result<Page, Error> {
        let (before, delegation) = {
            let tables = self.tables.lock();
            (tables.before(dir), tables.delegation(dir))
        };
        let call = Call::ReadDir { dir, cookie, bytes_max, plus };
        let Answer::Entries { entries, end, dir_version } = self.call(request, call)? else {
            return Err(Error::Protocol);
        };
        let next = entries.last().map_or(cookie, |entry| entry.cookie);
        let named = self.named(&entries);
        let mut tables = self.tables.lock();
        let (names_cacheable, entered) = tables.put_listing(&before, dir, dir_version, &entries);
        let entries = entries.into_iter().map(|entry| {
            let (status, cacheable) = match entry.status {
                Some(status) => {
                    let (status, cacheable) = tables.put(before.snapshot, status);
                    if entry.sole {
                        tables.put_sole(dir, delegation, status.fid);
                    }
                    if let Some(target) = &entry.target {
                        tables.node(status.fid).target = Some(target.clone());
                    }
                    (Some(status), cacheable)
                }
                None => (None, false),
            };
            let (fid, kind, cookie) = (entry.fid, entry.kind, entry.cookie);
            ListEntry {
                name: entry.name,
                fid,
                kind,
                cookie,
                status,
                cacheable,
                target: entry.target,
            }
        });
        let entries = entries.collect();
        let listing = DirListing { entries, end, names_cacheable, stamp: self.stamp() };
        drop(tables);
        if plus {
            self.siblings_listed(request.caller, dir, (cookie, next), &named);
        }
        Ok(Page { listing, version: dir_version, entered, next })
    }

    /// Asks for the page behind `cookie` before the reader does.
    fn fetch_early(
        self: &Arc<Self>,
        request: &RequestContext<'_>,
        open: &Arc<OpenDir>,
        cookie: u64,
        bytes_max: u32,
        plus: bool,
    ) {
        *open.early.lock() = Early::Asked(cookie);
        let (core, open, caller) = (Arc::clone(self), Arc::clone(open), request.caller.clone());
        self.readers.run(move || {
            let page = core.page(&RequestContext::of(&caller), open.dir, cookie, bytes_max, plus);
            let next = if cookie == 0 { core.siblings.listed_ahead(open.dir) } else { None };
            next.into_iter().for_each(|dir| core.list_dir_early(&caller, dir));
            let mut early = open.early.lock();
            if matches!(*early, Early::Asked(asked) if asked == cookie) {
                *early = page.map_or(Early::No, |page| Early::Here { cookie, plus, caller, page });
            }
            open.came.notify_all();
        });
    }

    /// Asks for the first page of a directory before it is opened, and for that of the next
    /// directory if this one has no files to fetch.
    pub fn list_dir_early(&self, caller: &Caller, dir: Fid) {
        let Some(this) = self.this.get().and_then(Weak::upgrade) else { return };
        let bytes_max = self.early_dirs.bytes_max.load(Ordering::Relaxed);
        if bytes_max > 0
            && let Some(open) = self.early_dirs.add(dir)
        {
            this.fetch_early(&RequestContext::of(caller), &open, 0, bytes_max, true);
        }
    }

    /// The page behind `cookie`, if it was fetched ahead and is still as good as a new answer.
    fn take_early(
        &self,
        request: &RequestContext<'_>,
        open: &OpenDir,
        cookie: u64,
        plus: bool,
    ) -> Option<Page> {
        let mut early = open.early.lock();
        if matches!(*early, Early::Asked(asked) if asked == cookie) {
            open.came.wait_for(&mut early, EARLY_WAIT_MAX);
        }
        match std::mem::take(&mut *early) {
            Early::Here { cookie: at, plus: with, caller, page }
                if at == cookie && (with || !plus) && caller == *request.caller =>
            {
                drop(early);
                self.refresh(open.dir, page)
            }
            Early::Here { .. } | Early::Asked(_) | Early::No => None,
        }
    }

    /// The empty page behind the last one, if the directory did not change since.
    fn known_end(&self, open: &OpenDir, cookie: u64) -> Option<DirListing> {
        let (_, version) = open.end.lock().filter(|(end, _)| *end == cookie && cookie != 0)?;
        let tables = self.tables.lock();
        let here = tables.is_current(open.dir, version);
        here.then(|| DirListing {
            entries: Vec::new(),
            end: true,
            names_cacheable: true,
            stamp: self.stamp(),
        })
    }

    /// The page with current statuses, if the directory did not change.
    fn refresh(&self, dir: Fid, mut page: Page) -> Option<Page> {
        let mut tables = self.tables.lock();
        if !page.listing.names_cacheable || !tables.is_current(dir, page.version) {
            return None;
        }
        for entry in page.listing.entries.iter_mut().filter(|entry| entry.status.is_some()) {
            let known = tables.status(entry.fid);
            entry.cacheable = known.is_some_and(|(_, cacheable)| cacheable);
            entry.status = known.map(|(status, _)| status);
        }
        page.listing.stamp = self.stamp();
        Some(page)
    }

    /// Lists a page with status only for the cache; returns the next page's cookie, and whether
    /// this was the last page.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn list_page(
        &self,
        request: &RequestContext<'_>,
        dir: Fid,
        cookie: u64,
    ) -> Result<(u64, bool), Error> {
        let page = self.page(request, dir, cookie, AHEAD_BYTES, true)?;
        Ok((page.next, page.listing.end))
    }

    /// After a run of lookups that missed: has the kernel list the next page of the directory, or
    /// lists it here with status, so that the following lookups hit; here also if the kernel takes
    /// longer than the process that looks up. A process that may not list the directory, or finds
    /// it changing, goes on with single lookups.
    pub fn list_ahead(&self, request: &RequestContext<'_>, dir: Fid) {
        let Some(Wanted { cookie, is_late }) = self.tables.lock().missed(dir) else { return };
        if !is_late && self.invalidator().list(dir, cookie) {
            return;
        }
        let bytes = if cookie == 0 { AHEAD_BYTES } else { AHEAD_MORE_BYTES };
        let Ok(page) = self.page(request, dir, cookie, bytes, true) else { return };
        let mut tables = self.tables.lock();
        if let Some(map) = page.entered
            && tables.listed(dir, map, cookie, page.next)
            && page.listing.end
        {
            tables.complete(dir, page.version, map);
        }
    }
}

impl Venus {
    /// Opens a directory.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn opendir(&self, _request: &RequestContext<'_>, dir: Fid) -> Result<DirHandle, Error> {
        let handle = DirHandle(self.core.number());
        let open = self.core.early_dirs.take(dir).unwrap_or_else(|| Arc::new(OpenDir::new(dir)));
        self.core.dirs.lock().insert(handle, open);
        Ok(handle)
    }

    fn dir_of(&self, handle: DirHandle) -> Result<Arc<OpenDir>, Error> {
        self.core.dirs.lock().get(&handle).cloned().ok_or(Error::BadHandle)
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
        let open = self.dir_of(handle)?;
        if is_made_up(open.dir) {
            return core.list_snapshots(request, open.dir, cookie, plus);
        }
        if let Some(end) = core.known_end(&open, cookie) {
            return Ok(end);
        }
        if cookie == 0 {
            core.ask_before_listing(request, open.dir);
            core.siblings.listing_begins(open.dir);
            core.early_dirs.bytes_max.store(bytes_max, Ordering::Relaxed);
        }
        let page = match core.take_early(request, &open, cookie, plus) {
            Some(page) => page,
            None => core.page(request, open.dir, cookie, bytes_max, plus)?,
        };
        if let Some(map) = page.entered.filter(|_| plus) {
            core.tables.lock().listed(open.dir, map, cookie, page.next);
        }
        *open.end.lock() = page.listing.end.then_some((page.next, page.version));
        let mut progress = open.progress.lock();
        let before = page.entered.map(|map| Progress { cookie, version: page.version, map });
        let joins = before.is_some() && (cookie == 0 || *progress == before);
        *progress = before.filter(|_| joins).map(|before| Progress { cookie: page.next, ..before });
        let joined = *progress;
        drop(progress);
        if let Some(all) = joined.filter(|_| page.listing.end) {
            core.tables.lock().complete(open.dir, all.version, all.map);
        } else if page.listing.names_cacheable && !page.listing.end {
            core.fetch_early(request, &open, page.next, bytes_max, plus);
        }
        Ok(page.listing)
    }

    /// Closes a directory.
    pub fn releasedir(&self, handle: DirHandle) {
        self.core.dirs.lock().remove(&handle);
    }

    /// Makes the directory's entries stable.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn fsyncdir(&self, request: &RequestContext<'_>, fid: Fid) -> Result<(), Error> {
        self.core.flush_all(request.cancel)?;
        self.core.call_commit(request, fid, false)?;
        self.core.report_loss(fid)
    }
}
