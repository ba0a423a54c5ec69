//! Reading a body through its descriptor, on the server's machine: no bytes pass through the
//! session.
//!
//! The client compares each block with the server's checksum (ST-3). A block that differs is
//! damaged, or being written just now: the client asks the server for its bytes instead.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use types::{Answer, Call, Status};

use crate::base::request::RequestContext;
use crate::core::Core;
use crate::data::block_sums::{SUMMED, matches_sum, read_at};
use crate::data::open_file::Open;
use crate::data::read_cache::{DirectBody, GROUP};

type Sums = HashMap<u64, Arc<[u32]>>;

/// Checksums per request: those of 64 MiB.
const SUMS: u32 = 64 * GROUP as u32;

impl Core {
    /// Reads `start..end`, which lies in the file; `None` if the bytes must come from the server.
    pub fn read_body(
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
            vec![self.remote.call(&open.caller, sums, request.cancel)]
        } else {
            self.remote.chain(&open.caller, vec![Call::OpenBody { fid }, sums])
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
