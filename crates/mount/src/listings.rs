//! Listings in progress, and which of their pages the kernel may cache.
//!
//! The kernel opens and closes directories without a request (`NO_OPENDIR_SUPPORT`), and caches a
//! complete listing, to list it again without a request. It drops it when it changes the directory
//! itself, and when it is notified. So an entry here lasts from the first page of a listing to the
//! empty one that ends it, and is found by its reader; listings that never end make room for
//! others.
//!
//! All that the kernel caches must come from one promise. A break makes it drop the directory's
//! pages, but a page may be on its way from the requester into the cache just then, and would stay
//! there as the beginning of what is cached. The reader's next request shows that it arrived: so a
//! later page of a listing that saw a break (or was answered without a promise once) has the pages
//! dropped again, and what is cached then has no beginning, which the kernel notices. Until then no
//! other reader may complete what that beginning began. The kernel joins the pages of several
//! readers where the offsets fit, so:
//! - the last entry of each listing has an offset of its own ([`Listing::end_offset`]), which fits
//!   no other listing's end: a directory of one page is completed by the reader whose page is
//!   cached, or by none;
//! - while another reader of the directory may have a page from before a break on its way, no later
//!   page leaves anything in the cache. That page arrived before a reader that continued from it
//!   could ask for the end. For a reader that never asks again (`ls | head`) this waits as long as
//!   a thread may be descheduled.
//!
//! The *names* of a page are one break behind in the same way: the kernel adds them under the epoch
//! at that moment, not under that of its request. So after a break since the page before, names are
//! ended once more. Uncovered remain the last page of a reader that stops before the end, and the
//! moment until a reader continues.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use types::Cookie;
use venus::DirHandle;

pub(crate) const OFFSET_OF_FIRST: u64 = 2;

/// More than programs list at once. A reader that loses its entry continues with a new one, only
/// without prefetched pages.
const LISTINGS_MAX: usize = 64;

/// Longer than a reply takes into the kernel's cache on a loaded machine.
const ARRIVAL: Duration = Duration::from_secs(5);

/// The reader of a listing: the directory's node, and the thread.
pub type ListingKey = (u64, u32);

/// A listing in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Venus's handle of it.
    pub handle: DirHandle,
    /// The number of directory breaks before its first page; `None`: the kernel must not cache it.
    pub since: Option<u64>,
    /// The number of breaks when its last page was requested.
    pub seen: u64,
    /// Distinguishes its end from that of all others.
    pub serial: u64,
    /// Venus's cookie of the last entry that was fetched for it.
    pub last: Cookie,
    /// The end before: its serial, and the cookie there. The reader went on from it, and found what
    /// had been added meanwhile.
    pub earlier: Option<(u64, Cookie)>,
}

/// Set in the offset after the last entry of a listing; cookies do not have it.
const END: u64 = 1 << 62;

impl Listing {
    /// The offset after the last entry.
    pub fn end_offset(&self) -> u64 {
        END | self.serial
    }

    /// The cookie at an end of this listing.
    fn cookie_at(&self, end: u64) -> Option<Cookie> {
        if end == self.end_offset() {
            return Some(self.last);
        }
        self.earlier.filter(|(serial, _)| end == END | serial).map(|(_, cookie)| cookie)
    }
}

/// Whether an offset is that after the last entry of some listing.
fn is_end(offset: u64) -> bool {
    offset & END != 0
}

/// Listings in progress, the oldest first.
#[derive(Default)]
pub struct Listings {
    entries: Mutex<Vec<Entry>>,
    begun: AtomicU64,
}

/// A reader, its listing, and since when a page of it is on its way.
type Entry = (ListingKey, Listing, Instant);

impl Listings {
    /// A unique number for a new listing.
    pub fn serial(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::Relaxed) & (END - 1)
    }

    /// The listing that this reader continues.
    pub fn find(&self, reader: ListingKey) -> Option<Listing> {
        self.entries.lock().iter().find(|(key, ..)| *key == reader).map(|(_, listing, _)| *listing)
    }

    /// The cookie where a reader continues; `None`: at the end of a listing that is forgotten, or
    /// that was another reader's.
    pub fn cookie(&self, reader: ListingKey, offset: u64) -> Option<Cookie> {
        if is_end(offset) {
            return self.find(reader)?.cookie_at(offset);
        }
        Some(Cookie(offset.saturating_sub(OFFSET_OF_FIRST)))
    }

    /// Adds a listing of this reader. Returns the handles that are no longer used.
    pub fn begin(&self, reader: ListingKey, listing: Listing) -> Vec<DirHandle> {
        let mut listings = self.entries.lock();
        let mut gone: Vec<DirHandle> = listings
            .extract_if(.., |(key, ..)| *key == reader)
            .map(|(_, old, _)| old.handle)
            .collect();
        if listings.len() == LISTINGS_MAX {
            gone.push(listings.remove(0).1.handle);
        }
        listings.push((reader, listing, Instant::now()));
        gone
    }

    /// Records the reader's request for its next page, after `breaks` breaks; whether there were
    /// any since the last page.
    pub fn next_page(&self, reader: ListingKey, breaks: u64) -> bool {
        let mut listings = self.entries.lock();
        let found = listings.iter_mut().find(|(key, ..)| *key == reader);
        found.is_some_and(|(_, listing, asked)| {
            *asked = Instant::now();
            std::mem::replace(&mut listing.seen, breaks) != breaks
        })
    }

    /// Whether a page that another reader of this directory requested before the last break may
    /// still be on its way.
    pub fn others_lag(&self, reader: ListingKey, breaks: u64) -> bool {
        self.entries.lock().iter().any(|(key, listing, asked)| {
            key.0 == reader.0
                && *key != reader
                && listing.seen != breaks
                && asked.elapsed() < ARRIVAL
        })
    }

    /// Forbids caching of this reader's listing.
    pub fn forbid_caching(&self, reader: ListingKey) {
        let mut listings = self.entries.lock();
        let found = listings.iter_mut().filter(|(key, ..)| *key == reader);
        found.for_each(|(_, listing, _)| listing.since = None);
    }

    /// Records that this reader, which asked from `offset` on, gets entries up to the one with this
    /// cookie. Returns the offset after the last one, if they are the last: no earlier entry has
    /// it.
    pub fn advance(&self, reader: ListingKey, offset: u64, last: Cookie) -> Option<u64> {
        let serial = is_end(offset).then(|| self.serial());
        let mut listings = self.entries.lock();
        let (_, listing, _) = listings.iter_mut().find(|(key, ..)| *key == reader)?;
        if let Some(serial) = serial {
            listing.earlier = Some((listing.serial, listing.last));
            listing.serial = serial;
        }
        listing.last = last;
        Some(listing.end_offset())
    }

    /// Removes this reader's listing. Returns the handle.
    pub fn end(&self, reader: ListingKey) -> Option<DirHandle> {
        let mut listings = self.entries.lock();
        let at = listings.iter().position(|(key, ..)| *key == reader)?;
        Some(listings.remove(at).1.handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(handle: u64) -> Listing {
        Listing {
            handle: DirHandle(handle),
            since: Some(7),
            seen: 7,
            serial: handle,
            last: Cookie::START,
            earlier: None,
        }
    }

    #[test]
    fn what_comes_after_an_end_has_an_end_of_its_own() {
        let listings = Listings::default();
        let reader = (1, 100);
        listings.begin(reader, Listing { serial: listings.serial(), ..listing(1) });
        let first = listings.advance(reader, OFFSET_OF_FIRST, Cookie(5)).unwrap();
        assert_eq!(listings.cookie(reader, first), Some(Cookie(5)));
        let second = listings.advance(reader, first, Cookie(8)).unwrap();
        assert_ne!(first, second);
        assert_eq!(listings.cookie(reader, second), Some(Cookie(8)));
        assert_eq!(listings.cookie(reader, first), Some(Cookie(5)), "it is sought again");
        let third = listings.advance(reader, second, Cookie(9)).unwrap();
        assert_eq!(listings.cookie(reader, third), Some(Cookie(9)));
        assert_eq!(listings.cookie((1, 101), third), None, "another reader's");
        assert_eq!(listings.advance((1, 101), 0, Cookie(9)), None);
    }

    #[test]
    fn breaks_between_two_pages_are_reported_once() {
        let listings = Listings::default();
        assert!(!listings.next_page((1, 100), 8), "there is none");
        listings.begin((1, 100), listing(1));
        assert_eq!(
            [7, 8, 8, 10].map(|breaks| listings.next_page((1, 100), breaks)),
            [false, true, false, true]
        );
        assert_eq!(listings.find((1, 100)).unwrap().since, Some(7));
    }

    #[test]
    fn a_reader_lags_from_a_break_to_its_next_request() {
        let listings = Listings::default();
        listings.begin((1, 100), listing(1));
        listings.begin((1, 101), Listing { seen: 8, ..listing(2) });
        assert!(!listings.others_lag((1, 101), 7), "no break");
        assert!(listings.others_lag((1, 101), 8));
        assert!(!listings.others_lag((2, 101), 8), "another directory");
        assert!(!listings.others_lag((1, 100), 8), "only itself");
        listings.next_page((1, 100), 8);
        assert!(!listings.others_lag((1, 101), 8));
        listings.begin((1, 100), listing(3));
        listings.end((1, 100));
        assert!(!listings.others_lag((1, 101), 8), "through");
    }

    #[test]
    fn each_reader_has_one_listing_and_finds_it_again() {
        let listings = Listings::default();
        assert_eq!(listings.begin((1, 100), listing(1)), []);
        assert_eq!(listings.begin((1, 101), listing(2)), [], "another thread");
        assert_eq!(listings.begin((1, 100), listing(3)), [DirHandle(1)], "rewound");
        assert_eq!(listings.find((1, 100)), Some(listing(3)));
        listings.forbid_caching((1, 100));
        assert_eq!(listings.find((1, 100)).unwrap().since, None);
        assert_eq!(listings.find((1, 101)), Some(listing(2)));
        assert_eq!(listings.end((1, 100)), Some(DirHandle(3)));
        assert_eq!((listings.find((1, 100)), listings.end((1, 100))), (None, None));
    }

    #[test]
    fn unfinished_listings_make_room() {
        let listings = Listings::default();
        let gone: Vec<DirHandle> =
            (0..100).flat_map(|node| listings.begin((node, 1), listing(node))).collect();
        assert_eq!(gone, (0..100 - LISTINGS_MAX as u64).map(DirHandle).collect::<Vec<_>>());
    }
}
