//! Listings.
//!
//! Offsets: 0 is before `.`, 1 before `..`, and from 2 on an offset is venus's cookie plus 2; but
//! that after the last entry is the listing's own (see `listings.rs`). Those have bit 62, and the
//! kernel's offsets are signed, so cookies must stay below 2^62 - 2.

use std::io::IoSlice;

use rustix::io::Errno;
use types::{Cookie, Fid, Kind, Status};
use venus::{DirListing, KernelPort, ListEntry, RequestContext, Venus};
use zerocopy::IntoBytes;

use crate::abi::{self, flag};
use crate::access_cache::KernelAccess;
use crate::attributes::{self, Validity};
use crate::errno::RequestRefusal;
use crate::files::note_read;
use crate::invalidation::Notifier;
use crate::listings::{Listing, ListingKey, Listings, OFFSET_OF_FIRST};
use crate::nodes::{self, KernelNodes};
use crate::sysname;
use crate::task::Task;
use crate::volume_view::VolumeView;

const COOKIE_MAX: Cookie = Cookie((1 << 62) - 1 - OFFSET_OF_FIRST);
/// The flags that the kernel assumes for every directory once it opens them by itself.
const CACHED: u32 = flag::FOPEN_KEEP_CACHE | flag::FOPEN_CACHE_DIR;
const DIRECTORY_KIND: u32 = attributes::dirent_kind(types::Kind::Directory);

/// Bytes of one entry, padding included.
fn entry_bytes(name: &[u8], plus: bool) -> usize {
    let fixed = size_of::<abi::Dirent>() + if plus { size_of::<abi::EntryOut>() } else { 0 };
    (fixed + name.len()).next_multiple_of(8)
}

/// A listing in the kernel's layout. With `plus` every entry has an [`abi::EntryOut`]; its `nodeid`
/// 0 means: no status.
struct Block {
    bytes: Vec<u8>,
    bytes_max: usize,
    plus: bool,
    /// The start of the last entry.
    last: usize,
}

impl Block {
    fn fits(&self, name: &[u8]) -> bool {
        self.bytes.len() + entry_bytes(name, self.plus) <= self.bytes_max
    }

    fn push(&mut self, of: &abi::EntryOut, ino: u64, off: u64, kind: u32, name: &[u8]) {
        if self.plus {
            self.bytes.extend_from_slice(of.as_bytes());
        }
        self.last = self.bytes.len();
        let dirent = abi::Dirent { ino: nodes::ino(ino), off, namelen: name.len() as u32, kind };
        self.bytes.extend_from_slice(dirent.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    /// Sets the offset after the last entry, if there is one.
    fn end_at(&mut self, offset: u64) {
        let at = self.last + std::mem::offset_of!(abi::Dirent, off);
        if let Some(old) = self.bytes.get_mut(at..at + size_of::<u64>()) {
            old.copy_from_slice(&offset.to_ne_bytes());
        }
    }

    /// Adds `.` and `..`, of this node and its parent.
    fn push_dots(&mut self, offset: u64, here: u64, parent: u64) {
        let unknown = abi::EntryOut::default();
        if offset == 0 && self.fits(b".") {
            self.push(&unknown, here, 1, DIRECTORY_KIND, b".");
        }
        if offset <= 1 && self.fits(b"..") {
            self.push(&unknown, parent, 2, DIRECTORY_KIND, b"..");
        }
    }

    /// Number of the first entries that fit.
    fn fitting(&self, entries: &[ListEntry]) -> usize {
        let mut room = self.bytes_max - self.bytes.len();
        let fits = |entry: &&ListEntry| {
            let bytes = entry_bytes(entry.name.as_bytes(), self.plus);
            room.checked_sub(bytes).inspect(|left| room = *left).is_some()
        };
        entries.iter().take_while(fits).count()
    }
}

/// Pages of a directory for one reader.
struct PageReader<'a> {
    venus: &'a Venus,
    request: RequestContext<'a>,
    notifier: &'a Notifier,
    listings: &'a Listings,
    access: KernelAccess<'a>,
    dir: Fid,
    reader: ListingKey,
}

impl PageReader<'_> {
    /// A page of the listing in progress, or of a new one; and the offset after its last entry, if
    /// this is the last page.
    fn page(
        &self,
        offset: u64,
        cookie: Cookie,
        bytes_max: u32,
        plus: bool,
    ) -> Result<(DirListing, u64), RequestRefusal> {
        let (dir, reader) = (self.dir, self.reader);
        let known = if offset == 0 { None } else { self.listings.find(reader) };
        let under_way = match known {
            Some(listing) => listing,
            None => self.begin(offset == 0)?,
        };
        if offset != 0
            && self.listings.next_page(reader, self.notifier.breaks())
            && self.notifier.lists_names()
        {
            self.notifier.end_names();
        }
        let mut page =
            self.venus.dirs().readdir(&self.request, under_way.handle, cookie, bytes_max, plus)?;
        for status in page.entries.iter_mut().filter_map(|entry| entry.status.as_mut()) {
            *status = self.access.permitted(*status, Some((dir, page.stamp)));
        }
        let may_stay = page.names_cacheable && under_way.since.is_some();
        if !may_stay {
            self.listings.forbid_caching(reader);
        }
        let breaks = self.notifier.breaks();
        let of_one_promise = may_stay
            && under_way.since == Some(breaks)
            && !self.listings.others_lag(reader, breaks);
        if offset != 0 && !of_one_promise {
            self.notifier.inode_data(dir);
        }
        let mut end_offset = under_way.end_offset();
        match page.entries.last() {
            Some(last) => {
                let end = self.listings.advance(reader, offset, last.cookie);
                end_offset = end.unwrap_or(end_offset);
            }
            None if page.end && offset >= OFFSET_OF_FIRST => {
                let handle = self.listings.end(reader);
                handle.into_iter().for_each(|handle| self.venus.dirs().releasedir(handle));
            }
            None => {}
        }
        Ok((page, end_offset))
    }

    fn begin(&self, first: bool) -> Result<Listing, RequestRefusal> {
        let seen = self.notifier.breaks();
        let handle = self.venus.dirs().opendir(&self.request, self.dir)?;
        let listing = {
            let (since, serial) = (first.then_some(seen), self.listings.serial());
            Listing { handle, since, seen, serial, last: Cookie::START, earlier: None }
        };
        let gone = self.listings.begin(self.reader, listing);
        gone.into_iter().for_each(|handle| self.venus.dirs().releasedir(handle));
        Ok(listing)
    }
}

impl Task<'_> {
    pub(crate) fn opendir(&self) -> Result<(), RequestRefusal> {
        if self.access().is_doubted() {
            self.access().need_bits(self.fid()?, 4)?;
        } else if self.mount.agreement.has_silent_opendir() {
            // Sent once: from now on the kernel opens and closes directories by itself, and caches
            // listings.
            return Err(RequestRefusal(Errno::NOSYS));
        }
        let _ = self.reply.value(&abi::OpenOut { fh: 0, open_flags: CACHED, backing_id: 0 });
        Ok(())
    }

    pub(crate) fn readdir(&self, of: &abi::ReadIn, plus: bool) -> Result<(), RequestRefusal> {
        let bytes_max = (of.size as usize).min(types::limits::PAYLOAD_BYTES_MAX);
        let mut block = Block { bytes: Vec::with_capacity(bytes_max), bytes_max, plus, last: 0 };
        let reader = (self.header.nodeid, self.header.pid);
        let Some(cookie) = self.on.listings.cookie(reader, of.offset) else {
            // The promise that covered it is unknown by now.
            self.on.notifier.inode_data(self.fid()?);
            let _ = self.reply.parts(&[]);
            return Ok(());
        };
        block.push_dots(of.offset, reader.0, self.on.nodes.parent(reader.0));
        let pages = PageReader {
            venus: self.venus(),
            request: self.request(),
            notifier: &self.on.notifier,
            listings: &self.on.listings,
            access: self.access(),
            dir: self.fid()?,
            reader,
        };
        let (listing, end_offset) =
            pages.page(of.offset, cookie, (bytes_max - block.bytes.len()) as u32, plus)?;
        if of.offset == 0 {
            note_read(self, pages.dir);
        }
        let fitting = block.fitting(&listing.entries);
        let shown = &listing.entries[..fitting];
        if shown.is_empty() && block.bytes.is_empty() && !listing.entries.is_empty() {
            return Err(RequestRefusal(Errno::INVAL));
        }
        if let Some(entry) = shown.iter().find(|entry| entry.cookie > COOKIE_MAX) {
            tracing::error!(
                cookie = entry.cookie.0,
                "a directory entry's cookie exceeds the kernel's offsets: listing fails"
            );
            return Err(RequestRefusal(Errno::IO));
        }
        let remembered = if plus { remember_shown(self.on, reader.0, shown) } else { Vec::new() };
        let sent = self.venus().answering(listing.stamp, |still| {
            let names = still && listing.names_cacheable && self.on.notifier.lists_names();
            if names && let Ok(dir) = self.fid() {
                self.on.notifier.sends_page(dir);
            }
            for entry in shown {
                if let Some(status) = &entry.status {
                    self.on.notifier.tells_size(entry.fid, status.size);
                }
                push_entry(
                    &mut block,
                    &self.on.nodes,
                    entry,
                    (self.validity(names), self.validity(still)),
                );
            }
            if listing.end && fitting == listing.entries.len() {
                block.end_at(end_offset);
            }
            self.reply.parts(&[IoSlice::new(&block.bytes)])
        });
        if sent.is_err() {
            remembered.into_iter().for_each(|node| self.forget(node));
        }
        Ok(())
    }
}

/// The kernel counts one reference for every entry with a status.
fn remember_shown(on: &VolumeView, dir: u64, shown: &[ListEntry]) -> Vec<u64> {
    let (mut remembered, mut shared) = (Vec::new(), Vec::new());
    for entry in shown.iter().filter(|entry| listed_status(&on.nodes, entry).is_some()) {
        let number = on.nodes.number(entry.fid);
        if on.nodes.remember(entry.fid, dir) {
            shared.push(number);
        }
        on.venus.remember(entry.fid);
        remembered.push(number);
    }
    on.notifier.end_former(&shared);
    remembered
}

/// The status that the kernel gets; none for a mount point, which it looks up on each walk.
fn listed_status<'a>(nodes: &KernelNodes, entry: &'a ListEntry) -> Option<&'a Status> {
    entry
        .status
        .as_ref()
        .filter(|status| status.kind != Kind::MountPoint && nodes.has_room(entry.fid))
}

fn push_entry(
    block: &mut Block,
    nodes: &KernelNodes,
    entry: &ListEntry,
    (names, still): (Validity, Validity),
) {
    let (name, number) = (entry.name.as_bytes(), nodes.number(entry.fid));
    let name_validity = names.only_if(sysname::stem(name).is_none());
    let status_validity = still.only_if(entry.cacheable);
    let of = listed_status(nodes, entry)
        .map(|status| attributes::entry(number, status, name_validity, status_validity));
    let kind = attributes::dirent_kind(entry.kind);
    let offset = entry.cookie.0 + OFFSET_OF_FIRST;
    block.push(&of.unwrap_or_default(), number, offset, kind, name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_padded_to_eight_bytes() {
        let mut block = Block { bytes: Vec::new(), bytes_max: 72, plus: false, last: 0 };
        block.push(&abi::EntryOut::default(), 5, 1, DIRECTORY_KIND, b"name");
        assert_eq!(block.bytes.len(), 32);
        assert_eq!(&block.bytes[16..28], b"\x04\0\0\0\x04\0\0\0name");
        assert!(block.fits(b"sixteen bytes ok"));
        assert!(!block.fits(b"seventeen bytes !"));
        assert_eq!(entry_bytes(b"name", true), 160);
    }
}
