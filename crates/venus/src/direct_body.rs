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

use crate::RequestContext;
use crate::core::Core;
use crate::open::Open;
use crate::read_cache::{DirectBody, GROUP, SUMMED};

type Sums = HashMap<u64, Arc<[u32]>>;

/// Checksums per request: those of 64 MiB.
const SUMS: u32 = 64 * GROUP as u32;
static ZEROS: [u8; SUMMED as usize] = [0; SUMMED as usize];

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

/// The sum of `block`, a whole one or the last of the file, as the server has it unless it is a
/// hole.
pub(crate) fn block_sum(block: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(block), &ZEROS[block.len()..])
}

/// Whether `block`, a whole one or the last of the file, has this sum; 0 is the sum of a hole.
pub(crate) fn matches_sum(block: &[u8], sum: u32) -> bool {
    block_sum(block) == sum || sum == 0 && block.iter().all(|byte| *byte == 0)
}

/// Whether these bytes, all of a body, match its sums.
pub(crate) fn agree(bytes: &[u8], sums: &[u32]) -> bool {
    let blocks = bytes.chunks(SUMMED as usize);
    blocks.len() == sums.len() && blocks.zip(sums).all(|(block, sum)| matches_sum(block, *sum))
}

pub(crate) fn read_at(fd: &OwnedFd, offset: u64, length: usize) -> Option<Bytes> {
    let mut buffer: Vec<u8> = Vec::with_capacity(length);
    while buffer.len() < length {
        let at = offset + buffer.len() as u64;
        // Reads into the spare capacity, which may be a little more than asked for.
        match rustix::io::pread(fd, rustix::buffer::spare_capacity(&mut buffer), at) {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
    buffer.truncate(length);
    Some(Bytes::from(buffer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_block_is_summed_as_if_zeros_followed() {
        let mut whole = vec![0; SUMMED as usize];
        whole[..3].copy_from_slice(b"end");
        let sum = crc32c::crc32c(&whole);
        assert!(matches_sum(b"end", sum) && matches_sum(&whole, sum));
        assert!(!matches_sum(b"eNd", sum) && !matches_sum(b"end", 0));
        assert!(matches_sum(&[0; 5], 0));
    }
}
