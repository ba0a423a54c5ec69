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
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use bytes::Bytes;
use client::{Cancel, Reply};
use lease::CallStart;
use types::{Answer, Call, Caller, DirEntry, Fid, Kind, Status};

use crate::base::request::POLL_INTERVAL;
use crate::core::Core;
use crate::data::block_sums::{SUMMED, agree, read_at};
use crate::passthrough::cache_bodies::SIZE_MIN;
use crate::passthrough::loans::READ_MIN;
use crate::prefetch::access_pattern::{FetchAhead, Named};
use crate::prefetch::siblings::SiblingBody;

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

/// Files of one chain: few enough that its first files are here soon.
const CHAIN_FILES: usize = 16;

const CHAIN_BYTES: u64 = 512 << 10;

/// After so many waits the file is asked for on its own: the chain may wait for another of its
/// files.
const POLLS_MAX: u32 = 100;

fn is_file_up_to(status: &Status, longest: u64) -> bool {
    status.kind == Kind::File && (1..=longest).contains(&status.size)
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
            if !matches!(state.bodies.get(&fid), Some(SiblingBody::Coming))
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
                    place.insert(SiblingBody::Coming);
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
