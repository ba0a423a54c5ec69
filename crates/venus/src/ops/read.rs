//! Reading: bytes written here over bytes read ahead, from the body's descriptor, from the disk
//! cache, or from the server.
//!
//! A read never waits for a write or for a break, not even its own file's: the kernel holds pages
//! locked while it reads, and a break waits for those pages.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use types::{Answer, Call, Status};

use crate::base::error::Error;
use crate::base::request::RequestContext;
use crate::base::result::OpenHandle;
use crate::core::Core;
use crate::data::disk_cache::PIECE;
use crate::data::extents::{CHUNK, overlay};
use crate::data::open_file::Open;
use crate::ops::venus::Venus;

/// From this size on a body is read through its descriptor; below, one answer with the bytes is
/// cheaper than one with it.
const BODY_MIN: u64 = 128 << 10;

/// A file of which the journal has changes.
struct AheadOfServer {
    pending: u64,
    /// The size that applications see.
    size: u64,
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

impl Core {
    fn ahead_of_server(&self, fid: types::Fid) -> Option<AheadOfServer> {
        let mut tables = self.tables.lock();
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
        let known = self.server_status(fid);
        let Some(status) = known else {
            return self.read_server(request, open, start, length).map(|(data, _)| data);
        };
        let end = status.size.min(start + u64::from(length));
        if start >= end {
            return Ok(Bytes::new());
        }
        if let Some(data) = self.read_sibling(&open.caller, &status, (start, end), request.cancel) {
            return Ok(data);
        }
        if self.is_local() {
            if status.size >= BODY_MIN
                && let Some(data) = self.read_body(request, open, &status, start, end)
            {
                return Ok(data);
            }
            return self.read_server(request, open, start, length).map(|(data, _)| data);
        }
        let streams = self.disk().is_some() && open.sequence.lock().is_followed_by(start);
        let (here, waited) = self.read_blocks(&open.file, &status, start, end, request.cancel);
        let here =
            here.or_else(|| self.disk()?.read(fid, self.edition(&status), status.size, start, end));
        // Ask for the next blocks before waiting for this one.
        self.look_ahead(open, &status, start, end, waited);
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

    /// The server's status, while it is promised.
    fn server_status(&self, fid: types::Fid) -> Option<Status> {
        let tables = self.tables.lock();
        let node = tables.nodes.get(&fid).filter(|node| node.valid)?;
        node.status.filter(|_| tables.trusted())
    }

    fn read_server(
        self: &Arc<Self>,
        request: &RequestContext<'_>,
        open: &Open,
        offset: u64,
        length: u32,
    ) -> Result<(Bytes, Status), Error> {
        let (snapshot, life) = (self.begin(), self.instance.life());
        match self
            .call(&open.request(request), Call::Read { fid: open.file.fid, offset, length })?
        {
            Answer::Data { data, status, .. } => {
                self.tables.lock().put(snapshot, status);
                self.store(&status, life, offset, &data);
                Ok((data, status))
            }
            _ => Err(Error::Protocol),
        }
    }
}

impl Venus {
    /// Up to `length` bytes from `offset` on; fewer only at the end of the file.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn read(
        &self,
        request: &RequestContext<'_>,
        handle: OpenHandle,
        offset: u64,
        length: u32,
    ) -> Result<Bytes, Error> {
        let open = self.core.open_of(handle)?;
        open.check_locks()?;
        open.file.note_read();
        let length = length.min(CHUNK as u32);
        if let Some(data) = open.file.pinned().and_then(|pinned| pinned.read(offset, length)) {
            return Ok(data);
        }
        loop {
            let losses = self.core.instance.losses();
            let data = self.read_over_base(request, &open, offset, length)?;
            // Bytes that were written here are on their way again, over the fetched ones.
            if self.core.instance.losses() == losses {
                return Ok(data);
            }
        }
    }

    fn read_over_base(
        &self,
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
        if let Some(ahead) = self.core.ahead_of_server(open.file.fid) {
            let stop = end.min(ahead.size);
            if stop <= offset {
                return Ok(Bytes::new());
            }
            if are_whole(&layers, offset, stop) {
                return Ok(overlay(Bytes::new(), offset, &layers));
            }
            self.core.flush_until(ahead.pending, request.cancel)?;
        }
        let base = self.core.read_base(request, open, offset, length)?;
        let data = overlay(base, offset, &layers);
        let least = floor.min(end).saturating_sub(offset) as usize;
        if data.len() >= least {
            return Ok(data);
        }
        let mut grown = BytesMut::from(&data[..]);
        grown.resize(least, 0);
        Ok(grown.freeze())
    }
}
