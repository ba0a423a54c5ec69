//! Directory prefetch: a process that reads the files of a directory one after the other finds the
//! next small ones here already (`access_pattern.rs` chooses them).
//!
//! The client fetches them whole, with chains of reads, and stores them until they are read. Longer
//! ones on the server's machine come through their descriptors, which are asked for with their sums
//! in the same chains: then several threads here wait for the disk instead of the server's one, and
//! the bytes pass no socket. A body here belongs to a data version of its file, and is used only
//! under a valid status with this version: so a break needs no action here. Unread bodies go when
//! there is no room.
//!
//! Small files that were written here past the kernel's pages are stored here too once the server
//! has them: a later reader makes no call for them. They have a limit of their own, beyond which
//! the oldest goes, and do not count as signs of a reader.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{Cancel, Reply};
use lease::CallStart;
use parking_lot::{Condvar, Mutex};
use types::{Answer, Call, Caller, DirEntry, Fid, Kind, Status};

use crate::access_pattern::{FetchAhead, ListedDirs, Named};
use crate::budget::{Pot, Share};
use crate::cache_body::SIZE_MIN;
use crate::core::Core;
use crate::direct_body::{agree, read_at};
use crate::passthrough::READ_MIN;
use crate::read_cache::SUMMED;

/// On the server's machine longer files are not prefetched: for a process that reads only their
/// first bytes too much would be fetched for nothing.
const LOCAL_MAX: u64 = 256 << 10;
/// From another machine, files that the disk cache passes to the kernel are not prefetched: the
/// kernel reads them from there.
const REMOTE_MAX: u64 = SIZE_MIN - 1;
/// Longer bodies on the server's machine are read here, through their descriptors; for shorter ones
/// one answer with the bytes is cheaper than two.
const ANSWER_MAX: u64 = 64 << 10;
const _: () = assert!(LOCAL_MAX < READ_MIN, "longer bodies use passthrough");
/// Most prefetched bytes.
const BYTES_MAX: usize = 16 << 20;
/// Most bytes of files that were written here.
const WRITTEN_BYTES_MAX: usize = 4 << 20;
/// Files of one chain: few enough that its first files are here soon.
const CHAIN_FILES: usize = 16;
const CHAIN_BYTES: u64 = 512 << 10;
/// The longest single wait for a body on its way, before all conditions are checked again.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// After so many waits the file is asked for on its own: the chain may wait for another of its
/// files.
const POLLS_MAX: u32 = 100;

/// A file's bytes.
enum Body {
    Coming,
    Here { version: u64, data: Bytes },
}

struct State {
    lists: ListedDirs,
    bodies: HashMap<Fid, Body>,
    /// Files in the order of their arrival; some are gone by now.
    order: VecDeque<Fid>,
    /// Bytes of `bodies`.
    share: Share,
    /// Files that were written here, in that order, with their lengths; some are gone by now.
    written: VecDeque<(Fid, usize)>,
    written_bytes: usize,
}

/// Small files that were fetched before they were asked for.
pub(crate) struct Siblings {
    pot: Arc<Pot>,
    state: Mutex<State>,
    came: Condvar,
}

fn is_file_up_to(status: &Status, longest: u64) -> bool {
    status.kind == Kind::File && (1..=longest).contains(&status.size)
}

impl State {
    fn new(pot: &Arc<Pot>) -> Self {
        let (lists, bodies, order, written, written_bytes) = Default::default();
        State { lists, bodies, order, share: Share::of(pot), written, written_bytes }
    }

    fn remove(&mut self, fid: Fid) {
        if let Some(Body::Here { data, .. }) = self.bodies.remove(&fid) {
            self.share.change(data.len(), 0);
        }
    }

    /// Stores the bytes of a file in this version, which were written here.
    fn keep(&mut self, fid: Fid, version: u64, data: &Bytes) {
        if matches!(self.bodies.get(&fid), Some(Body::Coming)) {
            return;
        }
        self.remove(fid);
        self.share.change(0, data.len());
        self.bodies.insert(fid, Body::Here { version, data: data.clone() });
        self.written.push_back((fid, data.len()));
        self.written_bytes += data.len();
        while self.written_bytes > WRITTEN_BYTES_MAX
            && let Some((oldest, length)) = self.written.pop_front()
        {
            self.written_bytes -= length;
            if matches!(self.bodies.get(&oldest), Some(Body::Here { .. })) {
                self.remove(oldest);
            }
        }
    }

    /// Drops the oldest bodies until the limit holds.
    fn trim(&mut self) {
        while self.share.bytes() > self.share.limit(BYTES_MAX)
            && let Some(oldest) = self.order.pop_front()
        {
            if matches!(self.bodies.get(&oldest), Some(Body::Here { .. })) {
                self.remove(oldest);
                self.lists.wasted();
            }
        }
        // Removes the places of read files; only when they outnumber the others, so that this is
        // rare.
        if self.order.len() > 64 + 2 * self.bodies.len() {
            let bodies = &self.bodies;
            self.order.retain(|fid| bodies.contains_key(fid));
        }
    }

    /// All bytes, if they are here in this version; those of another version are dropped.
    fn whole(&mut self, status: &Status) -> Option<Bytes> {
        let Body::Here { version, data } = self.bodies.get(&status.fid)? else { return None };
        if *version != status.data_version || data.len() as u64 != status.size {
            self.remove(status.fid);
            return None;
        }
        Some(data.clone())
    }

    /// Some of the bytes; they are dropped when their end is read.
    fn take(&mut self, status: &Status, start: u64, end: u64) -> Option<Bytes> {
        let part = self.whole(status)?.slice(start as usize..end as usize);
        if end == status.size {
            self.remove(status.fid);
        }
        Some(part)
    }
}

impl Siblings {
    /// `pot`: the prefetched bytes of all volumes of the mount.
    pub fn new(pot: &Arc<Pot>) -> Self {
        Siblings { pot: Arc::clone(pot), state: Mutex::new(State::new(pot)), came: Condvar::new() }
    }

    fn has(&self, fid: Fid) -> bool {
        matches!(self.state.lock().bodies.get(&fid), Some(Body::Here { .. }))
    }

    pub fn listing_begins(&self, dir: Fid) {
        self.state.lock().lists.begun(dir);
    }

    /// This directory was listed ahead; returns the next one to be listed ahead.
    pub fn listed_ahead(&self, dir: Fid) -> Option<Fid> {
        self.state.lock().lists.listed_ahead(dir)
    }

    /// These bodies arrived or failed. They are not used if the lease was lost (`life`) since they
    /// were asked for.
    fn arrived(&self, life: &AtomicU64, asked_in: u64, bodies: Vec<(Status, Option<Bytes>)>) {
        let mut state = self.state.lock();
        let alive = life.load(Ordering::Acquire) == asked_in;
        for (status, data) in bodies {
            if !matches!(state.bodies.get(&status.fid), Some(Body::Coming)) {
                continue;
            }
            state.bodies.remove(&status.fid);
            if let Some(data) = data.filter(|_| alive) {
                state.share.change(0, data.len());
                state.bodies.insert(status.fid, Body::Here { version: status.data_version, data });
                state.order.push_back(status.fid);
            }
        }
        state.trim();
        drop(state);
        self.came.notify_all();
    }

    /// Known versions are void.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        *state = State::new(&self.pot);
        drop(state);
        self.came.notify_all();
    }
}

impl Core {
    fn is_small(&self, status: &Status) -> bool {
        is_file_up_to(status, if self.is_local() { LOCAL_MAX } else { REMOTE_MAX })
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
    pub fn siblings_listed(
        &self,
        caller: &Caller,
        dir: Fid,
        (from, next): (u64, u64),
        named: &Named,
    ) {
        let ahead = self.siblings.state.lock().lists.listed(Instant::now(), dir, from, next, named);
        self.fetch_siblings(caller, ahead);
    }

    /// The server has executed this write of a whole file; the kernel has no pages of it.
    pub fn wrote_whole(&self, status: &Status, offset: u64, data: &Bytes) {
        if offset == 0 && is_file_up_to(status, ANSWER_MAX) && data.len() as u64 == status.size {
            self.siblings.state.lock().keep(status.fid, status.data_version, data);
        }
    }

    /// Reads `start..end` of a small file, if it was prefetched; and fetches the files behind it.
    pub fn read_sibling(
        &self,
        caller: &Caller,
        status: &Status,
        (start, end): (u64, u64),
        cancel: Option<&Cancel>,
    ) -> Option<Bytes> {
        if !self.is_small(status) {
            return None;
        }
        let fid = status.fid;
        let mut state = self.siblings.state.lock();
        let ahead =
            if start == 0 { state.lists.step(Instant::now(), fid) } else { FetchAhead::default() };
        if ahead != FetchAhead::default() {
            drop(state);
            self.go_ahead(caller, ahead);
            state = self.siblings.state.lock();
        }
        for _ in 0..POLLS_MAX {
            if !matches!(state.bodies.get(&fid), Some(Body::Coming))
                || cancel.is_some_and(Cancel::is_cancelled)
            {
                break;
            }
            self.siblings.came.wait_for(&mut state, POLL_INTERVAL);
        }
        state.take(status, start, end)
    }

    /// Called before a small file is opened that is not open yet. If it was prefetched, the kernel
    /// receives its bytes before the answer, and need not ask for them.
    ///
    /// Breaks wait (`gate`) from the moment that the bytes are found valid until the kernel has
    /// them, and invalidate them afterwards. So does an own truncation. A writer must open the file
    /// first, and waits for its `choice`, which the caller holds. The kernel locks the pages: no
    /// other process can hold them because none has the file open.
    pub fn fill_from_prefetch(&self, caller: &Caller, fid: Fid) {
        if !self.siblings.has(fid) {
            return;
        }
        let tables = self.tables.lock();
        let node = tables
            .nodes
            .get(&fid)
            .filter(|node| node.valid && node.pending <= self.journal.landed());
        let Some(status) = node.and_then(|node| node.status).filter(|_| tables.trusted()) else {
            return;
        };
        let gate = self.gate.read();
        drop(tables);
        let whole = self.siblings.state.lock().whole(&status);
        let taken = whole.is_some_and(|data| self.invalidator().fill(fid, &data));
        drop(gate);
        if taken {
            let mut state = self.siblings.state.lock();
            state.remove(fid);
            let ahead = state.lists.step(Instant::now(), fid);
            drop(state);
            self.go_ahead(caller, ahead);
        }
    }

    fn go_ahead(&self, caller: &Caller, ahead: FetchAhead) {
        self.fetch_siblings(caller, ahead.files);
        if let Some(dir) = ahead.dir {
            self.list_dir_early(caller, dir);
        }
    }

    /// Fetches those of `fids` that are not here and may be prefetched.
    fn fetch_siblings(&self, caller: &Caller, fids: Vec<Fid>) {
        let this = self.this.get().and_then(Weak::upgrade);
        let Some(this) = this.filter(|_| !fids.is_empty()) else { return };
        let wanted: Vec<Status> = {
            let tables = self.tables.lock();
            let landed = self.journal.landed();
            let status = |fid: Fid| {
                let node =
                    tables.nodes.get(&fid).filter(|node| node.valid && node.file.is_none())?;
                node.status.filter(|status| self.is_small(status) && node.pending <= landed)
            };
            fids.into_iter().filter_map(status).collect()
        };
        let wanted: Vec<Status> = {
            let mut state = self.siblings.state.lock();
            let bodies = &mut state.bodies;
            let begin = |status: &Status| match bodies.entry(status.fid) {
                Entry::Occupied(_) => false,
                Entry::Vacant(place) => {
                    place.insert(Body::Coming);
                    true
                }
            };
            wanted.into_iter().filter(begin).collect()
        };
        // In the order of their creation, which is their order on the server's disk. They are ahead
        // of their reader, which need not have the first one first.
        let mut wanted = wanted;
        wanted.sort_unstable_by_key(|status| status.fid);
        let life = self.life.load(Ordering::Acquire);
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
            let (core, caller, chain) = (Arc::clone(&this), caller.clone(), chain.to_vec());
            self.readers.run(move || core.fetch_chain(&caller, &chain, life));
        }
    }

    fn fetch_chain(self: &Arc<Self>, caller: &Caller, chain: &[Status], life: u64) {
        let on_disk = |status: &Status| {
            let disk = self.disk()?;
            disk.read(status.fid, self.edition(status), status.size, 0, status.size)
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
            (self.begin(), self.instance.place(), self.instance.life());
        let replies = if calls.is_empty() { Vec::new() } else { self.remote.chain(caller, calls) };
        let mut replies = replies
            .into_iter()
            .map(|reply| reply.inspect(|reply| self.check_instance(place, reply)).ok());
        let mut bodies = Vec::new();
        for wanted in missing {
            let first = replies.next().flatten();
            if self.comes_by_descriptor(&wanted) {
                bodies.push((wanted, first, replies.next().flatten()));
            } else if let Some(Answer::Data { data, status, .. }) = first.map(|reply| reply.answer)
            {
                self.tables.lock().put(snapshot, status);
                self.store(&status, of_server, 0, &data);
                came.push((status, Some(data)));
            } else {
                came.push((wanted, None));
            }
        }
        self.siblings.arrived(&self.life, life, came);
        let bodies: Vec<(Status, Option<Summed>)> = bodies
            .into_iter()
            .map(|(wanted, body, sums)| (wanted, self.summed(snapshot, &wanted, body, sums)))
            .collect();
        for (status, body) in bodies {
            let data = body.and_then(|body| body.read(status.size));
            self.siblings.arrived(&self.life, life, vec![(status, data)]);
        }
    }

    fn comes_by_descriptor(&self, status: &Status) -> bool {
        self.is_local() && status.size > ANSWER_MAX
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
        self.tables.lock().put(snapshot, status);
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
