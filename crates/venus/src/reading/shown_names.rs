//! The names that a listing has shown.
//!
//! A cookie means the same at all servers of Rialto, and something else at a server of AFS. So when
//! a volume moves between the two, a listing in progress begins anew at the other place, and leaves
//! out what it has shown. Such a volume has access lists that decide, and directories of at most
//! [`NAMES_MAX`] entries: names of others are not noted. Of a name its hash is noted: of a full
//! directory two are equal once in eight billion listings that move.
//!
//! A reader need not have room for a whole page. The cookie with which it asks for the next one
//! says how far it came: so the names of a page count as shown only then.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use types::{Cookie, Name, SessionEpoch};

use crate::base::ListEntry;

/// The largest directory of AFS.
const NAMES_MAX: usize = 1 << 16;

pub(crate) struct ShownNames {
    /// The cookies are of answers from this epoch on.
    epoch: SessionEpoch,
    hasher: RandomState,
    /// `None`: they are not noted.
    hashes: Option<HashSet<u64>>,
    /// The page that the reader got last.
    page: Vec<(Cookie, u64)>,
    began_anew: bool,
}

impl ShownNames {
    /// Of a listing that begins.
    pub fn new(epoch: SessionEpoch, are_noted: bool) -> Self {
        let hashes = are_noted.then(HashSet::new);
        let (hasher, page) = (RandomState::new(), Vec::new());
        ShownNames { epoch, hasher, hashes, page, began_anew: false }
    }

    /// The reader gets these entries.
    pub fn give(&mut self, entries: &[ListEntry]) {
        if self.hashes.is_some() {
            let hash = |entry: &ListEntry| (entry.cookie, self.hasher.hash_one(&entry.name));
            self.page = entries.iter().map(hash).collect();
        }
    }

    /// The reader has shown the page up to the entry with this cookie.
    pub fn reached(&mut self, cookie: Cookie) {
        let page = std::mem::take(&mut self.page);
        let Some(last) = page.iter().position(|(at, _)| *at == cookie) else { return };
        if let Some(hashes) = &mut self.hashes {
            hashes.extend(page[..=last].iter().map(|(_, hash)| hash));
        }
        self.hashes.take_if(|hashes| hashes.len() > NAMES_MAX);
    }

    pub fn has(&self, name: &Name) -> bool {
        let hash = self.hasher.hash_one(name);
        self.hashes.as_ref().is_some_and(|hashes| hashes.contains(&hash))
    }

    /// Whether the next page is that behind the last cookie.
    pub fn goes_on(&self, epoch: SessionEpoch) -> bool {
        self.hashes.is_none() || self.epoch == epoch && !self.began_anew
    }

    /// The listing has begun anew, in this epoch or an earlier one. Whether its cookies are valid.
    pub fn begin_anew(&mut self, epoch: SessionEpoch) -> bool {
        let are_valid = self.began_anew && self.epoch == epoch;
        (self.epoch, self.began_anew) = (epoch, true);
        are_valid
    }
}
