//! Listings under way, and what the kernel may keep of them.
//!
//! The kernel opens and closes directories without a word (`NO_OPENDIR_SUPPORT`), and keeps what it was listed to its end, to list it
//! again without asking. It drops that when it changes the directory itself, and when it is told to. So a listing lives here from
//! its first page to the empty one that ends it, found again by who reads it; those that nobody ends make room for others.
//!
//! What the kernel keeps must come from one promise. A break tells it to drop the directory's pages, but a first page may be on
//! its way from the requester into the cache just then, and would stay as the beginning of what is kept. The reader's next request
//! shows that it arrived: so a later page of a listing that saw a break (or was answered without a promise once) has the pages dropped
//! again, and what is kept then has no beginning, which the kernel notices. A reader that never asks again leaves a beginning behind
//! that the kernel refuses by the directory's new `mtime`.
//!
//! The *names* of a page are one break behind in the same way: the kernel takes them in under the epoch that it finds then, not under that of its question. So
//! where there was a break since the page before, names are ended once more. What is left is the last page of who stops before the end, and
//! the moment until the reader goes on.

use parking_lot::Mutex;
use venus::DirHandle;

/// More than programs list at once. Who loses a place lists on with a new one, only without what was fetched ahead.
const LISTINGS_MAX: usize = 64;

/// Who lists what: the directory's node, and the thread.
pub type Reader = (u64, u32);

/// One listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Venus's name for it.
    pub handle: DirHandle,
    /// How many breaks of directories there had been before its first page; `None`: the kernel is to keep nothing of it.
    pub since: Option<u64>,
    /// How many there had been when it was last asked for a page.
    pub seen: u64,
}

/// All of them, the oldest first.
#[derive(Default)]
pub struct Listings(Mutex<Vec<(Reader, Listing)>>);

impl Listings {
    /// The listing that this reader goes on with.
    pub fn find(&self, reader: Reader) -> Option<Listing> {
        self.0.lock().iter().find(|(who, _)| *who == reader).map(|(_, listing)| *listing)
    }

    /// This reader begins. Returns the handles that are no more used.
    pub fn begin(&self, reader: Reader, listing: Listing) -> Vec<DirHandle> {
        let mut listings = self.0.lock();
        let mut gone: Vec<DirHandle> =
            listings.extract_if(.., |(who, _)| *who == reader).map(|(_, old)| old.handle).collect();
        if listings.len() == LISTINGS_MAX {
            gone.push(listings.remove(0).1.handle);
        }
        listings.push((reader, listing));
        gone
    }

    /// This reader asks for its next page, after so many breaks; whether there were any since the last.
    pub fn goes_on(&self, reader: Reader, breaks: u64) -> bool {
        let mut listings = self.0.lock();
        let mine = listings.iter_mut().find(|(who, _)| *who == reader);
        mine.is_some_and(|(_, listing)| std::mem::replace(&mut listing.seen, breaks) != breaks)
    }

    /// The kernel is to keep nothing of this reader's listing.
    pub fn spoil(&self, reader: Reader) {
        let mut listings = self.0.lock();
        let mine = listings.iter_mut().filter(|(who, _)| *who == reader);
        mine.for_each(|(_, listing)| listing.since = None);
    }

    /// This reader is through. Returns the handle.
    pub fn end(&self, reader: Reader) -> Option<DirHandle> {
        let mut listings = self.0.lock();
        let at = listings.iter().position(|(who, _)| *who == reader)?;
        Some(listings.remove(at).1.handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(handle: u64) -> Listing {
        Listing { handle: DirHandle(handle), since: Some(7), seen: 7 }
    }

    #[test]
    fn breaks_between_two_pages_are_told_once() {
        let listings = Listings::default();
        assert!(!listings.goes_on((1, 100), 8), "there is none");
        listings.begin((1, 100), listing(1));
        assert_eq!([7, 8, 8, 10].map(|breaks| listings.goes_on((1, 100), breaks)), [false, true, false, true]);
        assert_eq!(listings.find((1, 100)).unwrap().since, Some(7));
    }

    #[test]
    fn each_reader_has_one_listing_and_finds_it_again() {
        let listings = Listings::default();
        assert_eq!(listings.begin((1, 100), listing(1)), []);
        assert_eq!(listings.begin((1, 101), listing(2)), [], "another thread");
        assert_eq!(listings.begin((1, 100), listing(3)), [DirHandle(1)], "rewound");
        assert_eq!(listings.find((1, 100)), Some(listing(3)));
        listings.spoil((1, 100));
        assert_eq!(listings.find((1, 100)).unwrap().since, None);
        assert_eq!(listings.find((1, 101)), Some(listing(2)));
        assert_eq!(listings.end((1, 100)), Some(DirHandle(3)));
        assert_eq!((listings.find((1, 100)), listings.end((1, 100))), (None, None));
    }

    #[test]
    fn those_that_nobody_ends_make_room() {
        let listings = Listings::default();
        let gone: Vec<DirHandle> = (0..100).flat_map(|node| listings.begin((node, 1), listing(node))).collect();
        assert_eq!(gone, (0..100 - LISTINGS_MAX as u64).map(DirHandle).collect::<Vec<_>>());
    }
}
