//! Listing directories, and fetching the small files in them before they are read.
//!
//! A listing that was read from its beginning to its end under one version makes the directory
//! complete. While a reader takes one page, the client fetches the next. It is shown only if the
//! directory still has the version of the page, and with the statuses of that later moment: so no
//! application can see that it was fetched before. A process that walks a tree finds the first page
//! of the next directory in the same way (`cache/access_pattern.rs`): the page waits for a
//! directory that is not open yet.
//!
//! A process that reads the files of a directory one after the other finds the next small ones in
//! `cache/siblings.rs`. The client fetches them whole, with chains of reads. Longer ones on the
//! server's machine come through their descriptors, which are asked for with their sums in the same
//! chains: then several threads here wait for the disk instead of the server's one, and the bytes
//! pass no socket.

use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use client::{Cancel, Reply};
use lease::CallStart;
use types::{Answer, Call, Caller, Cookie, DirEntry, Fid, Kind, SessionEpoch, Status};

use super::{Early, EarlyDirs, OpenDir, Page, Progress, ShownNames};
use crate::base::{DirListing, Error, ListEntry, RequestContext};
use crate::cache::{
    ANSWER_MAX, Cache, FetchAhead, Named, READ_MIN, SIZE_MIN, Siblings, is_file_up_to,
};
use crate::calls::{Calls, Journal, Unstable};
use crate::data::{SUMMED, agree, read_at};
use crate::names::Wanted;
use crate::session::Ground;

/// How long a reader waits for a page that was asked for ahead before it asks on its own.
const EARLY_WAIT_MAX: Duration = Duration::from_millis(100);

/// Bytes of the first page that is listed ahead: some hundred entries with status, a millisecond or
/// two of the server's time.
const AHEAD_BYTES: u32 = 64 << 10;

/// Size of later pages: a whole message.
const AHEAD_MORE_BYTES: u32 = 256 << 10;

/// On the server's machine longer files are not prefetched: for a process that reads only their
/// first bytes too much would be fetched for nothing.
const LOCAL_MAX: u64 = 256 << 10;

/// From another machine, files that the disk cache passes to the kernel are not prefetched: the
/// kernel reads them from there.
const REMOTE_MAX: u64 = SIZE_MIN - 1;

const _: () = assert!(LOCAL_MAX < READ_MIN, "longer bodies use passthrough");

/// Files of one chain: few enough that its first files are here soon.
const CHAIN_FILES: usize = 16;

const CHAIN_BYTES: u64 = 512 << 10;

/// Pages of directories, and the small files in them, some of them ahead of their readers.
pub(crate) struct Directories {
    ground: Ground,
    cache: Arc<Cache>,
    siblings: Arc<Siblings>,
    unstable: Arc<Unstable>,
    journal: Arc<Journal>,
    calls: Arc<Calls>,
    early: EarlyDirs,
}

impl Directories {
    pub fn new(
        ground: &Ground,
        cache: &Arc<Cache>,
        siblings: &Arc<Siblings>,
        unstable: &Arc<Unstable>,
        journal: &Arc<Journal>,
        calls: &Arc<Calls>,
    ) -> Self {
        Directories {
            ground: ground.clone(),
            cache: Arc::clone(cache),
            siblings: Arc::clone(siblings),
            unstable: Arc::clone(unstable),
            journal: Arc::clone(journal),
            calls: Arc::clone(calls),
            early: EarlyDirs::default(),
        }
    }

    /// A directory is opened; it may have been listed before.
    pub fn open(&self, dir: Fid) -> Arc<OpenDir> {
        self.early.take(dir).unwrap_or_else(|| Arc::new(OpenDir::new(dir)))
    }

    /// A reader begins to list this directory, in pages of this size.
    pub fn listing_begins(&self, dir: Fid, bytes_max: u32) {
        self.siblings.listing_begins(dir);
        self.early.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Entries behind `cookie`, about `bytes_max` bytes of them.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn read(
        self: &Arc<Self>,
        request: &RequestContext<'_>,
        open: &Arc<OpenDir>,
        cookie: Cookie,
        bytes_max: u32,
        plus: bool,
    ) -> Result<DirListing, Error> {
        let shown = open.shown.lock().take().filter(|_| cookie != Cookie::START);
        let mut shown = shown.unwrap_or_else(|| {
            // A listing whose beginning is not known goes on by its cookie.
            let are_noted = cookie == Cookie::START && self.may_move_to_afs(open.dir);
            ShownNames::new(self.ground.names.epoch(), are_noted)
        });
        shown.reached(cookie);
        let listing = self.read_on(request, open, cookie, (bytes_max, plus), &mut shown);
        listing.iter().for_each(|listing| shown.give(&listing.entries));
        *open.shown.lock() = Some(shown);
        listing
    }

    /// Whether access lists decide, as far as is known here.
    fn may_move_to_afs(&self, dir: Fid) -> bool {
        let tables = self.ground.names.lock();
        tables.nodes.get(&dir).and_then(|node| node.status).is_none_or(|status| status.by_list)
    }

    fn read_on(
        self: &Arc<Self>,
        request: &RequestContext<'_>,
        open: &Arc<OpenDir>,
        cookie: Cookie,
        (bytes_max, plus): (u32, bool),
        shown: &mut ShownNames,
    ) -> Result<DirListing, Error> {
        if !shown.goes_on(self.ground.names.epoch()) {
            return self.read_anew(request, open, cookie, (bytes_max, plus), shown);
        }
        let page = match self.take_early(request, open, cookie, plus) {
            Some(page) => page,
            None => self.page(request, open.dir, cookie, bytes_max, plus)?,
        };
        if cookie != Cookie::START && !shown.goes_on(self.ground.names.epoch()) {
            // The other place may have answered.
            return self.read_anew(request, open, cookie, (bytes_max, plus), shown);
        }
        if let Some(map) = page.entered.filter(|_| plus) {
            self.ground.names.lock().listed(open.dir, map, cookie, page.next);
        }
        *open.end.lock() = page.listing.end.then_some((page.next, page.version));
        let mut progress = open.progress.lock();
        let before = page.entered.map(|map| Progress { cookie, version: page.version, map });
        let joins = before.is_some() && (cookie == Cookie::START || *progress == before);
        *progress = before.filter(|_| joins).map(|before| Progress { cookie: page.next, ..before });
        let joined = *progress;
        drop(progress);
        if let Some(all) = joined.filter(|_| page.listing.end) {
            self.ground.names.lock().complete(open.dir, all.version, all.map);
        } else if page.listing.names_cacheable && !page.listing.end {
            self.fetch_early(request, open, page.next, bytes_max, plus);
        }
        Ok(page.listing)
    }

    /// Entries of a listing that began anew, without those that were shown before.
    fn read_anew(
        self: &Arc<Self>,
        request: &RequestContext<'_>,
        open: &Arc<OpenDir>,
        mut cookie: Cookie,
        (bytes_max, plus): (u32, bool),
        shown: &mut ShownNames,
    ) -> Result<DirListing, Error> {
        (*open.end.lock(), *open.progress.lock()) = (None, None);
        loop {
            let epoch = self.ground.names.epoch();
            if !shown.begin_anew(epoch) {
                cookie = Cookie::START;
            }
            let page = self.page(request, open.dir, cookie, bytes_max, plus)?;
            if cookie != Cookie::START && self.ground.names.epoch() != epoch {
                continue;
            }
            let mut listing = page.listing;
            listing.names_cacheable = false;
            listing.entries.retain(|entry| !shown.has(&entry.name));
            if listing.end || !listing.entries.is_empty() {
                return Ok(listing);
            }
            cookie = page.next;
        }
    }

    fn page(
        self: &Arc<Self>,
        request: &RequestContext<'_>,
        dir: Fid,
        cookie: Cookie,
        bytes_max: u32,
        plus: bool,
    ) -> Result<Page, Error> {
        let (before, delegation) = {
            let tables = self.ground.names.lock();
            (tables.before(dir), tables.nodes.delegation(dir))
        };
        let call = Call::ReadDir { dir, cookie, bytes_max, plus };
        let Answer::Entries { entries, end, dir_version } = self.calls.call(request, call)? else {
            return Err(Error::Protocol);
        };
        let next = entries.last().map_or(cookie, |entry| entry.cookie);
        let named = self.named(&entries);
        let mut tables = self.ground.names.lock();
        let (names_cacheable, entered) = tables.put_listing(&before, dir, dir_version, &entries);
        let entries = entries.into_iter().map(|entry| {
            let (status, cacheable) = match entry.status {
                Some(status) => {
                    let (status, cacheable) = tables.put(before.snapshot, status);
                    if entry.sole {
                        tables.nodes.put_sole(dir, delegation, status.fid);
                    }
                    if let Some(target) = &entry.target {
                        tables.nodes.node(status.fid).target = Some(target.clone());
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
        let listing =
            DirListing { entries, end, names_cacheable, stamp: self.ground.names.stamp() };
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
        cookie: Cookie,
        bytes_max: u32,
        plus: bool,
    ) {
        *open.early.lock() = Early::Asked(cookie);
        let (core, open, caller) = (Arc::clone(self), Arc::clone(open), request.caller.clone());
        self.ground.workers.read(move || {
            let page = core.page(&RequestContext::of(&caller), open.dir, cookie, bytes_max, plus);
            let next =
                if cookie == Cookie::START { core.siblings.listed_ahead(open.dir) } else { None };
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
    fn list_dir_early(self: &Arc<Self>, caller: &Caller, dir: Fid) {
        let bytes_max = self.early.bytes_max.load(Ordering::Relaxed);
        if bytes_max > 0
            && let Some(open) = self.early.add(dir)
        {
            self.fetch_early(&RequestContext::of(caller), &open, Cookie::START, bytes_max, true);
        }
    }

    /// The page behind `cookie`, if it was fetched ahead and is still as good as a new answer.
    fn take_early(
        &self,
        request: &RequestContext<'_>,
        open: &OpenDir,
        cookie: Cookie,
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
    pub fn known_end(&self, open: &OpenDir, cookie: Cookie) -> Option<DirListing> {
        let (_, version) =
            open.end.lock().filter(|(end, _)| *end == cookie && cookie != Cookie::START)?;
        let tables = self.ground.names.lock();
        let here = tables.is_current(open.dir, version);
        here.then(|| DirListing {
            entries: Vec::new(),
            end: true,
            names_cacheable: true,
            stamp: self.ground.names.stamp(),
        })
    }

    /// The page with current statuses, if the directory did not change.
    fn refresh(&self, dir: Fid, mut page: Page) -> Option<Page> {
        let mut tables = self.ground.names.lock();
        if !page.listing.names_cacheable || !tables.is_current(dir, page.version) {
            return None;
        }
        for entry in page.listing.entries.iter_mut().filter(|entry| entry.status.is_some()) {
            let known = tables.status(entry.fid);
            entry.cacheable = known.is_some_and(|(_, cacheable)| cacheable);
            entry.status = known.map(|(status, _)| status);
        }
        page.listing.stamp = self.ground.names.stamp();
        Some(page)
    }

    /// Lists a page with status only for the cache; returns the next page's cookie, and whether
    /// this was the last page.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn list_page(
        self: &Arc<Self>,
        request: &RequestContext<'_>,
        dir: Fid,
        cookie: Cookie,
    ) -> Result<(Cookie, bool), Error> {
        let page = self.page(request, dir, cookie, AHEAD_BYTES, true)?;
        Ok((page.next, page.listing.end))
    }

    /// After a run of lookups that missed: has the kernel list the next page of the directory, or
    /// lists it here with status, so that the following lookups hit; here also if the kernel takes
    /// longer than the process that looks up. A process that may not list the directory, or finds
    /// it changing, goes on with single lookups.
    pub fn list_ahead(self: &Arc<Self>, request: &RequestContext<'_>, dir: Fid) {
        let Some(Wanted { cookie, is_late }) = self.ground.names.lock().missed(dir) else { return };
        if !is_late && self.ground.kernel.port().list(dir, cookie) {
            return;
        }
        let bytes = if cookie == Cookie::START { AHEAD_BYTES } else { AHEAD_MORE_BYTES };
        let Ok(page) = self.page(request, dir, cookie, bytes, true) else { return };
        let mut tables = self.ground.names.lock();
        if let Some(map) = page.entered
            && tables.listed(dir, map, cookie, page.next)
            && page.listing.end
        {
            tables.complete(dir, page.version, map);
        }
    }

    fn is_small(&self, status: &Status) -> bool {
        is_file_up_to(status, if self.ground.server.is_local() { LOCAL_MAX } else { REMOTE_MAX })
    }

    pub fn named(&self, entries: &[DirEntry]) -> Named {
        let mut named = Named::default();
        for entry in entries {
            match &entry.status {
                Some(status) if self.is_small(status) => {
                    named.files.push((status.fid, status.size as u32));
                }
                Some(status) if status.kind == Kind::Directory => named.dirs.push(status.fid),
                Some(_) | None => {}
            }
        }
        named
    }

    /// A page of `dir` from one cookie to the next was listed with these entries and their
    /// statuses.
    fn siblings_listed(
        self: &Arc<Self>,
        caller: &Caller,
        dir: Fid,
        (from, next): (Cookie, Cookie),
        named: &Named,
    ) {
        let ahead = self.siblings.listed(dir, from, next, named);
        self.fetch_siblings(caller, ahead);
    }

    /// Reads `start..end` of a small file, if it was prefetched; and fetches the files behind it.
    pub fn read_sibling(
        self: &Arc<Self>,
        caller: &Caller,
        status: &Status,
        (start, end): (u64, u64),
        cancel: Option<&Cancel>,
    ) -> Option<Bytes> {
        if !self.is_small(status) {
            return None;
        }
        if start == 0 {
            self.go_ahead(caller, self.siblings.step(status.fid));
        }
        self.siblings.take(status, start, end, cancel)
    }

    /// Called before a small file is opened that is not open yet. If it was prefetched, the kernel
    /// receives its bytes before the answer, and need not ask for them.
    ///
    /// Breaks wait (`gate`) from the moment that the bytes are found valid until the kernel has
    /// them, and invalidate them afterwards. So does an own truncation. A writer must open the file
    /// first, and waits for its `choice`, which the caller holds. The kernel locks the pages: no
    /// other process can hold them because none has the file open.
    pub fn fill_from_prefetch(self: &Arc<Self>, caller: &Caller, fid: Fid) {
        if !self.siblings.has(fid) {
            return;
        }
        let tables = self.ground.names.lock();
        let node = tables
            .nodes
            .get(&fid)
            .filter(|node| node.valid && node.pending <= self.journal.landed());
        let Some(status) = node.and_then(|node| node.status).filter(|_| tables.trusted()) else {
            return;
        };
        let gate = self.ground.names.hold_breaks();
        drop(tables);
        let whole = self.siblings.whole(&status);
        let taken = whole.is_some_and(|data| self.ground.kernel.port().fill(fid, &data));
        drop(gate);
        if taken {
            self.go_ahead(caller, self.siblings.given(fid));
        }
    }

    fn go_ahead(self: &Arc<Self>, caller: &Caller, ahead: FetchAhead) {
        self.fetch_siblings(caller, ahead.files);
        if let Some(dir) = ahead.dir {
            self.list_dir_early(caller, dir);
        }
    }

    /// Fetches those of `fids` that are not here and may be prefetched.
    fn fetch_siblings(self: &Arc<Self>, caller: &Caller, fids: Vec<Fid>) {
        if fids.is_empty() {
            return;
        }
        let wanted: Vec<Status> = {
            let tables = self.ground.names.lock();
            let landed = self.journal.landed();
            let status = |fid: Fid| {
                let node =
                    tables.nodes.get(&fid).filter(|node| node.valid && node.file.is_none())?;
                node.status.filter(|status| self.is_small(status) && node.pending <= landed)
            };
            fids.into_iter().filter_map(status).collect()
        };
        // In the order of their creation, which is their order on the server's disk. They are ahead
        // of their reader, which need not have the first one first.
        let mut wanted = self.siblings.begin(wanted);
        wanted.sort_unstable_by_key(|status| status.fid);
        let epoch = self.ground.names.epoch();
        let mut rest = &wanted[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |status: &&Status| {
                bytes += status.size;
                bytes <= CHAIN_BYTES
            };
            let count = rest.iter().take(CHAIN_FILES).take_while(fits).count().max(1);
            let (chain, others) = rest.split_at(count);
            rest = others;
            let (this, caller, chain) = (Arc::clone(self), caller.clone(), chain.to_vec());
            self.ground.workers.read(move || this.fetch_chain(&caller, &chain, epoch));
        }
    }

    fn fetch_chain(self: &Arc<Self>, caller: &Caller, chain: &[Status], epoch: SessionEpoch) {
        let on_disk = |status: &Status| {
            let disk = self.cache.disk()?;
            disk.read(status.fid, self.ground.server.edition(status), status.size, 0, status.size)
        };
        let (mut came, mut missing) = (Vec::new(), Vec::new());
        for status in chain {
            match on_disk(status) {
                Some(data) => came.push((*status, Some(data))),
                None => missing.push(*status),
            }
        }
        let calls: Vec<Call> = missing.iter().flat_map(|status| self.questions(status)).collect();
        let (snapshot, place, of_server) =
            (self.ground.names.begin(), self.ground.server.place(), self.ground.server.instance());
        let replies = if calls.is_empty() {
            Vec::new()
        } else {
            self.ground.server.remote().chain(caller, calls)
        };
        let mut replies = replies
            .into_iter()
            .map(|reply| reply.inspect(|reply| self.unstable.check_instance(place, reply)).ok());
        let mut bodies = Vec::new();
        for wanted in missing {
            let first = replies.next().flatten();
            if self.comes_by_descriptor(&wanted) {
                bodies.push((wanted, first, replies.next().flatten()));
            } else if let Some(Answer::Data { data, status, .. }) = first.map(|reply| reply.answer)
            {
                self.ground.names.lock().put(snapshot, status);
                self.cache.store(&status, of_server, 0, &data);
                came.push((status, Some(data)));
            } else {
                came.push((wanted, None));
            }
        }
        self.siblings.arrived(&self.ground.names, epoch, came);
        let bodies: Vec<(Status, Option<Summed>)> = bodies
            .into_iter()
            .map(|(wanted, body, sums)| (wanted, self.summed(snapshot, &wanted, body, sums)))
            .collect();
        for (status, body) in bodies {
            let data = body.and_then(|body| body.read(status.size));
            self.siblings.arrived(&self.ground.names, epoch, vec![(status, data)]);
        }
    }

    fn comes_by_descriptor(&self, status: &Status) -> bool {
        self.ground.server.is_local() && status.size > ANSWER_MAX
    }

    fn questions(&self, status: &Status) -> Vec<Call> {
        let fid = status.fid;
        if self.comes_by_descriptor(status) {
            let count = status.size.div_ceil(SUMMED) as u32;
            return vec![Call::OpenBody { fid }, Call::ReadSums { fid, first: 0, count }];
        }
        vec![Call::Read { fid, offset: 0, length: status.size as u32 }]
    }

    /// The body that these answers brought, if it has the `wanted` version. Its bytes are on their
    /// way from the disk.
    fn summed(
        &self,
        snapshot: CallStart,
        wanted: &Status,
        body: Option<Reply>,
        sums: Option<Reply>,
    ) -> Option<Summed> {
        let (body, Answer::Sums { version, sums }) = (body?, sums?.answer) else { return None };
        let (Answer::Body { status }, fd) = (body.answer, body.body?) else { return None };
        self.ground.names.lock().put(snapshot, status);
        if status.data_version != wanted.data_version || version != wanted.data_version {
            return None;
        }
        // An error here comes again when the bytes are read.
        let _ =
            rustix::fs::fadvise(&fd, 0, NonZeroU64::new(wanted.size), rustix::fs::Advice::WillNeed);
        Some(Summed { fd, sums })
    }
}

struct Summed {
    fd: OwnedFd,
    sums: Vec<u32>,
}

impl Summed {
    /// All bytes, if they match the sums.
    fn read(&self, size: u64) -> Option<Bytes> {
        read_at(&self.fd, 0, size as usize).filter(|bytes| agree(bytes, &self.sums))
    }
}
