//! Reading: bytes written here over bytes read ahead, from the body's descriptor, from the disk
//! cache, or from the server.
//!
//! A read never waits for a write or for a break, not even its own file's: the kernel holds pages
//! locked while it reads, and a break waits for those pages.
//!
//! Through a body's descriptor, on the server's machine, no bytes pass through the session. The
//! client compares each block with the server's checksum (ST-3). A block that differs is damaged,
//! or being written just now: the client asks the server for its bytes instead.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use types::{Answer, Call, Status};

use super::{Directories, ReadAhead};
use crate::base::{Error, RequestContext};
use crate::cache::Cache;
use crate::calls::{Calls, Flusher, Journal};
use crate::data::{CHUNK, DirectBody, GROUP, Open, PIECE, SUMMED, matches_sum, overlay, read_at};
use crate::session::Ground;

/// From this size on a body is read through its descriptor; below, one answer with the bytes is
/// cheaper than one with it.
const BODY_MIN: u64 = 128 << 10;

type Sums = HashMap<u64, Arc<[u32]>>;

/// Checksums per request: those of 64 MiB.
const SUMS: u32 = 64 * GROUP as u32;

/// Reads from whichever place has the bytes.
pub(crate) struct Reader {
    ground: Ground,
    flusher: Arc<Flusher>,
    cache: Arc<Cache>,
    journal: Arc<Journal>,
    calls: Arc<Calls>,
    read_ahead: Arc<ReadAhead>,
    directories: Arc<Directories>,
}

impl Reader {
    pub fn new(
        ground: &Ground,
        flusher: &Arc<Flusher>,
        cache: &Arc<Cache>,
        journal: &Arc<Journal>,
        calls: &Arc<Calls>,
        read_ahead: &Arc<ReadAhead>,
        directories: &Arc<Directories>,
    ) -> Self {
        Reader {
            ground: ground.clone(),
            flusher: Arc::clone(flusher),
            cache: Arc::clone(cache),
            journal: Arc::clone(journal),
            calls: Arc::clone(calls),
            read_ahead: Arc::clone(read_ahead),
            directories: Arc::clone(directories),
        }
    }

    /// Bytes written here over those of the server.
    ///
    /// # Errors
    /// The service's refusal, or why no answer came.
    pub fn read_over_base(
        self: &Arc<Self>,
        request: &RequestContext<'_>,
        open: &Open,
        offset: u64,
        length: u32,
    ) -> Result<Bytes, Error> {
        let end = offset.saturating_add(u64::from(length));
        // Before the rest is fetched: the fetched bytes then include what lands meanwhile.
        let (layers, floor) = open.file.layers(offset, end);
        if let [.., (at, data)] = &layers[..]
            && *at == offset
            && data.len() == length as usize
        {
            return Ok(data.clone());
        }
        if let Some(ahead) = self.ahead_of_server(open.file.fid) {
            let stop = end.min(ahead.size);
            if stop <= offset {
                return Ok(Bytes::new());
            }
            if are_whole(&layers, offset, stop) {
                return Ok(overlay(Bytes::new(), offset, &layers));
            }
            self.flusher.flush_until(ahead.pending, request.cancel)?;
        }
        let base = self.read_base(request, open, offset, length)?;
        let data = overlay(base, offset, &layers);
        let least = floor.min(end).saturating_sub(offset) as usize;
        if data.len() >= least {
            return Ok(data);
        }
        let mut grown = BytesMut::from(&data[..]);
        grown.resize(least, 0);
        Ok(grown.freeze())
    }

    fn ahead_of_server(&self, fid: types::Fid) -> Option<AheadOfServer> {
        let mut tables = self.ground.names.lock();
        let pending = tables.nodes.whole(&fid)?.pending;
        let (status, _) = tables.status(fid).filter(|_| pending > self.journal.landed())?;
        Some(AheadOfServer { pending, size: status.size })
    }

    /// Bytes in the server's state: fewer than asked for only at the end of the file there.
    fn read_base(
        self: &Arc<Self>,
        request: &RequestContext<'_>,
        open: &Open,
        start: u64,
        length: u32,
    ) -> Result<Bytes, Error> {
        let fid = open.file.fid;
        let known = self.ground.names.promised_status(fid);
        let Some(status) = known else {
            return self.read_server(request, open, start, length).map(|(data, _)| data);
        };
        let end = status.size.min(start + u64::from(length));
        if start >= end {
            return Ok(Bytes::new());
        }
        if let Some(data) =
            self.directories.read_sibling(&open.caller, &status, (start, end), request.cancel)
        {
            return Ok(data);
        }
        if self.ground.server.is_local() {
            if status.size >= BODY_MIN
                && let Some(data) = self.read_body(request, open, &status, start, end)
            {
                return Ok(data);
            }
            return self.read_server(request, open, start, length).map(|(data, _)| data);
        }
        let streams = self.cache.disk().is_some() && open.sequence.lock().is_followed_by(start);
        let (here, waited) =
            self.cache.read_blocks(&open.file, &status, start, end, request.cancel);
        let here = here.or_else(|| {
            self.cache.disk()?.read(
                fid,
                self.ground.server.edition(&status),
                status.size,
                start,
                end,
            )
        });
        // Ask for the next blocks before waiting for this one.
        self.read_ahead.look_ahead(open, &status, start, end, waited);
        match here {
            Some(data) => Ok(data),
            None if streams => self.read_pieces(request, open, start, end),
            None => self.read_server(request, open, start, length).map(|(data, _)| data),
        }
    }

    /// The same from the server in whole pieces of the disk cache, which stores no others: a
    /// sequential reader leaves none out.
    fn read_pieces(
        self: &Arc<Self>,
        request: &RequestContext<'_>,
        open: &Open,
        start: u64,
        end: u64,
    ) -> Result<Bytes, Error> {
        let from = start / PIECE * PIECE;
        let to = end.next_multiple_of(PIECE);
        if to - from > CHUNK as u64 {
            // One answer cannot have all of that; the pieces in the middle are whole.
            return self
                .read_server(request, open, start, (end - start) as u32)
                .map(|(data, _)| data);
        }
        let (data, _) = self.read_server(request, open, from, (to - from) as u32)?;
        let (skip, stop) = ((start - from) as usize, (end - from) as usize);
        Ok(data.slice(skip.min(data.len())..stop.min(data.len())))
    }

    fn read_server(
        self: &Arc<Self>,
        request: &RequestContext<'_>,
        open: &Open,
        offset: u64,
        length: u32,
    ) -> Result<(Bytes, Status), Error> {
        let (snapshot, instance) = (self.ground.names.begin(), self.ground.server.instance());
        match self
            .calls
            .call(&open.request(request), Call::Read { fid: open.file.fid, offset, length })?
        {
            Answer::Data { data, status, .. } => {
                self.ground.names.lock().put(snapshot, status);
                self.cache.store(&status, instance, offset, &data);
                Ok((data, status))
            }
            _ => Err(Error::Protocol),
        }
    }

    /// Reads `start..end`, which lies in the file; `None` if the bytes must come from the server.
    fn read_body(
        &self,
        request: &RequestContext<'_>,
        open: &Open,
        status: &Status,
        start: u64,
        end: u64,
    ) -> Option<Bytes> {
        let (first, last) = (start / SUMMED, (end - 1) / SUMMED);
        let (fd, sums) = self.body(request, open, status, first, last)?;
        let from = first * SUMMED;
        let until = ((last + 1) * SUMMED).min(status.size);
        let bytes = read_at(&fd, from, (until - from) as usize)?;
        let good = bytes.chunks(SUMMED as usize).zip(first..).all(|(block, number)| {
            let group = sums.get(&(number / GROUP));
            group
                .and_then(|group| group.get((number % GROUP) as usize))
                .is_some_and(|sum| matches_sum(block, *sum))
        });
        let mut data = open.file.data.lock();
        if !good {
            data.reads.body = None;
            return None;
        }
        data.reads.known.checked(first, last, status.data_version);
        drop(data);
        Some(bytes.slice((start - from) as usize..(end - from) as usize))
    }

    /// The descriptor and the checksums of these blocks, fetched if they are not here.
    fn body(
        &self,
        request: &RequestContext<'_>,
        open: &Open,
        status: &Status,
        first: u64,
        last: u64,
    ) -> Option<(Arc<OwnedFd>, Sums)> {
        let groups = first / GROUP..=last / GROUP;
        let here = |body: &DirectBody| {
            let sums: Sums = groups
                .clone()
                .filter_map(|group| Some((group, Arc::clone(body.sums.get(&group)?))))
                .collect();
            (sums.len() as u64 == groups.end() - groups.start() + 1)
                .then(|| (Arc::clone(&body.fd), sums))
        };
        let open_already = {
            let data = open.file.data.lock();
            let body = data.reads.body.as_ref().filter(|body| body.version == status.data_version);
            if let Some(found) = body.and_then(here) {
                return Some(found);
            }
            body.is_some()
        };
        let fid = open.file.fid;
        let blocks = status.size.div_ceil(SUMMED);
        let base = groups.start() * GROUP;
        let count =
            u32::try_from(blocks - base).unwrap_or(SUMS).min(SUMS).max((last + 1 - base) as u32);
        let sums = Call::ReadSums { fid, first: base, count };
        let mut replies = if open_already {
            vec![self.ground.server.remote().call(&open.caller, sums, request.cancel)]
        } else {
            self.ground.server.remote().chain(&open.caller, vec![Call::OpenBody { fid }, sums])
        }
        .into_iter();
        let opened = if open_already { None } else { Some(replies.next()?.ok()?.body?) };
        let Answer::Sums { version, sums } = replies.next()?.ok()?.answer else { return None };
        if version != status.data_version {
            return None;
        }
        let mut data = open.file.data.lock();
        if let Some(fd) = opened {
            data.reads.body = Some(DirectBody { fd: Arc::new(fd), version, sums: HashMap::new() });
        }
        let body = data.reads.body.as_mut().filter(|body| body.version == version)?;
        for (group, sums) in (base / GROUP..).zip(sums.chunks(GROUP as usize)) {
            body.sums.insert(group, sums.into());
        }
        here(body)
    }
}

/// A file of which the journal has changes.
struct AheadOfServer {
    pub pending: u64,
    /// The size that applications see.
    pub size: u64,
}

/// Whether these bytes leave no gap in `start..end`.
fn are_whole(layers: &[(u64, Bytes)], start: u64, end: u64) -> bool {
    let mut ranges: Vec<(u64, u64)> =
        layers.iter().map(|(at, data)| (*at, at + data.len() as u64)).collect();
    ranges.sort_unstable();
    let reached = ranges
        .into_iter()
        .fold(start, |reached, (from, to)| if from <= reached { reached.max(to) } else { reached });
    reached >= end
}
