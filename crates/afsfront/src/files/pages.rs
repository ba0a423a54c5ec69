//! Directories as AFS's pages.
//!
//! Clients fetch a directory like a file, in pieces, and its length is in its status. So the pages
//! of a version of a directory are kept for a while: they are made once, whoever asks.

use std::collections::{HashMap, VecDeque};

use afs3::directory::DirectoryWriter;
use afs3::structs::AfsFid;
use bytes::Bytes;
use parking_lot::Mutex;
use types::{Answer, Call, Cookie, DataVersion, Fid};

use super::{FileCall, unexpected};
use crate::{Refusal, Services, foreign_fid};

/// Bytes of pages that are kept.
const KEPT_BYTES: usize = 64 << 20;
/// Bytes of one listing.
const LISTED_BYTES: u32 = 128 << 10;
/// Attempts to list a directory that changes meanwhile.
const TRIES: u32 = 8;

/// The pages of directories.
#[derive(Default)]
pub(super) struct DirectoryPages {
    kept: Mutex<KeptPages>,
}

#[derive(Default)]
struct KeptPages {
    pages: HashMap<Fid, (DataVersion, Bytes)>,
    /// From the oldest to the newest.
    order: VecDeque<Fid>,
    bytes: usize,
}

impl DirectoryPages {
    fn get(&self, dir: Fid, version: DataVersion) -> Option<Bytes> {
        let kept = self.kept.lock();
        let (known, pages) = kept.pages.get(&dir)?;
        (*known == version).then(|| pages.clone())
    }

    fn put(&self, dir: Fid, version: DataVersion, pages: Bytes) {
        let mut kept = self.kept.lock();
        kept.bytes += pages.len();
        match kept.pages.insert(dir, (version, pages)) {
            Some((_, old)) => kept.bytes -= old.len(),
            None => kept.order.push_back(dir),
        }
        while kept.bytes > KEPT_BYTES {
            let Some(oldest) = kept.order.pop_front() else { break };
            if let Some((_, pages)) = kept.pages.remove(&oldest) {
                kept.bytes -= pages.len();
            }
        }
    }
}

impl FileCall<'_> {
    /// The pages of a directory as it is now.
    pub(super) fn pages_of(&self, dir: Fid) -> Result<Bytes, Refusal> {
        for _ in 0..TRIES {
            let Answer::Status(status) =
                self.services.ask_as_server(Call::GetStatus { fid: dir })?
            else {
                return Err(unexpected());
            };
            let version = status.data_version;
            if let Some(pages) = self.service.pages.get(dir, version) {
                return Ok(pages);
            }
            if let Some(pages) = list_pages(self.services, dir, version)? {
                self.service.pages.put(dir, version, pages.clone());
                return Ok(pages);
            }
        }
        // It changes faster than it can be listed.
        Err(Refusal::BUSY)
    }
}

/// The pages of a directory; `None`: it is of another version by now.
///
/// # Errors
/// EFBIG: it has more than AFS's directories can have; the services'.
pub(crate) fn list_pages(
    services: &dyn Services,
    dir: Fid,
    version: DataVersion,
) -> Result<Option<Bytes>, Refusal> {
    let parent = match services.ask_as_server(Call::ByVnode { fid: dir, parent: true })? {
        Answer::Status(parent) => parent.fid,
        _ => return Err(unexpected()),
    };
    let numbers = |fid| foreign_fid(fid).map(|AfsFid { vnode, unique, .. }| (vnode, unique));
    let mut pages = DirectoryWriter::new(numbers(dir)?, numbers(parent)?);
    let mut cookie = Cookie::START;
    loop {
        let (bytes_max, plus) = (LISTED_BYTES, false);
        let call = Call::ReadDir { dir, cookie, bytes_max, plus };
        let Answer::Entries { entries, end, dir_version } = services.ask_as_server(call)? else {
            return Err(unexpected());
        };
        if dir_version != version {
            return Ok(None);
        }
        for entry in &entries {
            let (vnode, unique) = numbers(entry.fid)?;
            let added = pages.add(entry.name.as_bytes(), vnode, unique);
            added.map_err(|_| Refusal::TOO_BIG)?;
            cookie = entry.cookie;
        }
        if end {
            return Ok(Some(Bytes::from(pages.finish())));
        }
    }
}
