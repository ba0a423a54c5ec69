//! The known names of one directory.
//!
//! They belong to one data version of the directory. A name maps to a file, or to nothing: then it
//! is known to be absent. In a *complete* directory all names are known, so one that is not in the
//! map is absent.
//!
//! Whether the names may be used is another question: `valid` means that the directory is promised
//! and still has this version. Invalid names stay: if the directory turns out to have the same
//! version, they are valid again.
//!
//! A directory may have millions of names. Their letters lie behind one another in one piece of
//! memory; a name costs them and 33 bytes in a table.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashTable;
use types::{Cookie, DataVersion, Fid, Name};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachedName {
    File(Fid),
    Absent,
    Unknown,
}

/// Lookups that missed before the directory is listed ahead of the next ones, one page each time:
/// of the first page, and of later ones, whose readers have shown that they go on.
const AHEAD_MISSES: [u32; 2] = [4, 1];

/// The same once a page has been asked for and did not come yet.
const AHEAD_MISSES_AGAIN: [u32; 2] = [32, 2];

/// Most pages listed ahead under one version: some tens of thousands of names. A reader of random
/// names in a larger directory pays for no more.
const AHEAD_PAGES_MAX: u32 = 24;

/// Number of maps made, of all directories.
static MAPS: AtomicU64 = AtomicU64::new(0);

fn another() -> u64 {
    MAPS.fetch_add(1, Ordering::Relaxed) + 1
}

/// Unused letters below this number do not trigger a move of the others.
const WASTE_MIN: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub cookie: Cookie,
    /// It was asked for, and did not come yet.
    pub is_late: bool,
}

/// How far the directory has been listed ahead of lookups, without a gap since its beginning.
#[derive(Debug, Default)]
struct Ahead {
    misses: u32,
    pages: u32,
    cookie: Cookie,
    /// The page from `cookie` on has been asked for.
    asked: bool,
}

#[derive(Debug, Default)]
pub(crate) struct DirNames {
    /// Number of this map. A map that began anew, also under the directory's next version, has
    /// another number, and lacks the names entered under this one. 0: names were left out, so it
    /// never becomes complete.
    pub number: u64,
    pub version: DataVersion,
    pub valid: bool,
    complete: bool,
    ahead: Ahead,
    letters: Letters,
    table: HashTable<One>,
    hasher: RandomState,
}

/// The letters of all names, and how many of them are unused.
#[derive(Debug, Default)]
struct Letters {
    bytes: Vec<u8>,
    waste: usize,
}

/// One name and the file that it means: none if the vnode is 0, which no file has.
#[derive(Clone, Copy, Debug)]
struct One {
    fid: Fid,
    at: u32,
    length: u8,
}

impl One {
    fn known(&self) -> CachedName {
        if self.fid.vnode.0 == 0 { CachedName::Absent } else { CachedName::File(self.fid) }
    }
}

impl Letters {
    fn of(&self, one: &One) -> &[u8] {
        &self.bytes[one.at as usize..][..usize::from(one.length)]
    }

    /// `None` if there are 4 GiB.
    fn add(&mut self, name: &Name) -> Option<(u32, u8)> {
        let at = u32::try_from(self.bytes.len()).ok()?;
        self.bytes.extend_from_slice(name.as_bytes());
        Some((at, u8::try_from(name.as_bytes().len()).ok()?))
    }
}

impl DirNames {
    /// No name is known.
    pub fn new() -> Self {
        DirNames { number: another(), ..DirNames::default() }
    }

    /// A directory that was just made: it is known to be empty.
    pub fn empty(version: DataVersion, valid: bool) -> Self {
        DirNames { version, valid, complete: true, ..DirNames::new() }
    }

    pub fn get(&self, name: &Name) -> CachedName {
        let hash = self.hasher.hash_one(name.as_bytes());
        match self.table.find(hash, |one| self.letters.of(one) == name.as_bytes()) {
            Some(one) => one.known(),
            None if self.complete => CachedName::Absent,
            None => CachedName::Unknown,
        }
    }

    /// Memory of the names.
    pub fn bytes(&self) -> usize {
        size_of::<DirNames>() + self.letters.bytes.capacity() + self.table.allocation_size()
    }

    /// Whether it is known that there are no names.
    pub fn is_empty(&self) -> bool {
        self.valid && self.complete && self.table.is_empty()
    }

    #[cfg(test)]
    fn is_complete(&self) -> bool {
        self.complete
    }

    /// The server answered under this version of the directory, with a promise or without. True:
    /// its answer may be entered. An answer older than the map changes nothing.
    pub fn meet(&mut self, version: DataVersion, promised: bool) -> bool {
        if version < self.version {
            return false;
        }
        if version > self.version {
            self.restart(version);
            self.valid = false;
        }
        self.valid |= promised;
        promised
    }

    /// One own change led to `version`. True: `edit` may enter its effect, and the other names are
    /// still valid.
    pub fn advance(&mut self, version: DataVersion, promised: bool) -> bool {
        if version == self.version.next() {
            self.version = version;
            self.valid = promised;
            return true;
        }
        self.meet(version, promised)
    }

    /// Forgets the names; the directory has `version` now.
    fn restart(&mut self, version: DataVersion) {
        self.letters = Letters::default();
        self.table = HashTable::new();
        self.complete = false;
        self.ahead = Ahead::default();
        self.version = version;
        self.number = another();
    }

    /// A lookup missed. A process that asks for one name after the other is likely to ask for the
    /// rest: every so often this returns a page to list ahead.
    pub fn missed(&mut self) -> Option<Wanted> {
        let ahead = &mut self.ahead;
        ahead.misses += 1;
        let misses = if ahead.asked { AHEAD_MISSES_AGAIN } else { AHEAD_MISSES }
            [usize::from(ahead.cookie != Cookie::START)];
        if self.complete || ahead.misses < misses || ahead.pages >= AHEAD_PAGES_MAX && !ahead.asked
        {
            return None;
        }
        ahead.pages += u32::from(!ahead.asked);
        ahead.misses = 0;
        Some(Wanted { cookie: ahead.cookie, is_late: std::mem::replace(&mut ahead.asked, true) })
    }

    /// A page from `from` on has been entered; the next one begins at `cookie`. False: it does not
    /// join what was listed.
    pub fn listed(&mut self, from: Cookie, cookie: Cookie) -> bool {
        let joins = self.ahead.cookie == from;
        if joins {
            self.ahead.cookie = cookie;
            self.ahead.asked = false;
        }
        joins
    }

    pub fn insert(&mut self, name: &Name, fid: Fid) {
        self.set(name, fid);
    }

    /// A name is not there.
    pub fn insert_absent(&mut self, name: &Name) {
        if self.complete {
            self.remove(name);
        } else {
            self.set(name, Fid::default());
        }
    }

    fn set(&mut self, name: &Name, fid: Fid) {
        let (letters, hasher) = (&mut self.letters, &self.hasher);
        let hash = hasher.hash_one(name.as_bytes());
        let this = |one: &One| letters.of(one) == name.as_bytes();
        if let Some(one) = self.table.find_mut(hash, this) {
            one.fid = fid;
            return;
        }
        let Some((at, length)) = letters.add(name) else {
            // Some names were left out: the rest must not be taken for all.
            self.restart(self.version);
            self.number = 0;
            return;
        };
        self.table
            .insert_unique(hash, One { fid, at, length }, |one| hasher.hash_one(letters.of(one)));
    }

    fn remove(&mut self, name: &Name) {
        let hash = self.hasher.hash_one(name.as_bytes());
        let this = |one: &One| self.letters.of(one) == name.as_bytes();
        if let Ok(entry) = self.table.find_entry(hash, this) {
            entry.remove();
            self.letters.waste += name.as_bytes().len();
            self.tidy();
        }
    }

    /// Moves the letters together when half of them are unused.
    fn tidy(&mut self) {
        if self.letters.waste < WASTE_MIN || self.letters.waste < self.letters.bytes.len() / 2 {
            return;
        }
        let mut bytes = Vec::with_capacity(self.letters.bytes.len() - self.letters.waste);
        for one in self.table.iter_mut() {
            let at = bytes.len() as u32;
            bytes.extend_from_slice(self.letters.of(one));
            one.at = at;
        }
        self.letters = Letters { bytes, waste: 0 };
    }

    /// All names have been entered.
    pub fn set_complete(&mut self) {
        self.complete = true;
        let mut waste = 0;
        self.table.retain(|one| {
            let stays = one.known() != CachedName::Absent;
            waste += if stays { 0 } else { usize::from(one.length) };
            stays
        });
        self.letters.waste += waste;
        self.tidy();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn only_an_own_change_preserves_the_other_names() {
        let file = Fid::new(1, 2, 3);
        let mut names = DirNames::empty(DataVersion(7), true);
        assert!(names.advance(DataVersion(8), true));
        names.insert(&name("a"), file);
        assert_eq!(names.get(&name("a")), CachedName::File(file));
        assert_eq!(names.get(&name("b")), CachedName::Absent, "still complete");
        assert!(names.advance(DataVersion(10), true), "9 was not ours");
        assert_eq!(names.get(&name("a")), CachedName::Unknown);
        assert!(!names.meet(DataVersion(9), true), "an old answer enters nothing");
        assert_eq!(names.version, DataVersion(10));
    }

    #[test]
    fn the_same_version_under_a_new_promise_is_good_again() {
        let mut names = DirNames::empty(DataVersion(7), true);
        names.valid = false;
        assert!(names.meet(DataVersion(7), true));
        assert!(names.valid && names.is_complete());
        assert!(!names.meet(DataVersion(8), false), "without a promise nothing is entered");
        assert!(!names.valid);
    }

    #[test]
    fn completion_drops_absent_names() {
        let mut names = DirNames::new();
        names.meet(DataVersion(1), true);
        names.insert_absent(&name("x"));
        names.insert(&name("y"), Fid::new(1, 4, 4));
        assert_eq!(names.table.len(), 2);
        names.set_complete();
        assert_eq!(names.table.len(), 1);
        assert_eq!(names.get(&name("x")), CachedName::Absent);
    }

    #[test]
    fn misses_in_a_row_list_page_after_page_ahead() {
        let mut names = DirNames::new();
        let asked = |names: &mut DirNames, times: u32| (0..times).find_map(|_| names.missed());
        let wanted = |cookie, is_late| Some(Wanted { cookie: Cookie(cookie), is_late });
        assert_eq!(asked(&mut names, AHEAD_MISSES[0] - 1), None);
        assert_eq!(asked(&mut names, 1), wanted(0, false));
        assert_eq!(asked(&mut names, AHEAD_MISSES[0]), None, "that page is on its way");
        assert_eq!(asked(&mut names, AHEAD_MISSES_AGAIN[0]), wanted(0, true), "or lost");
        assert!(!names.listed(Cookie(7), Cookie(9)), "somewhere else");
        assert!(names.listed(Cookie::START, Cookie(5)));
        for cookie in 5..5 + u64::from(AHEAD_PAGES_MAX) - 1 {
            assert_eq!(asked(&mut names, AHEAD_MISSES[1]), wanted(cookie, false));
            assert_eq!(asked(&mut names, AHEAD_MISSES_AGAIN[1] - 1), None);
            assert_eq!(asked(&mut names, 1), wanted(cookie, true));
            assert!(names.listed(Cookie(cookie), Cookie(cookie + 1)));
        }
        assert_eq!(asked(&mut names, 1000), None, "it is too large");
    }

    #[test]
    fn names_that_come_and_go_leave_no_letters_behind() {
        let mut names = DirNames::empty(DataVersion(1), true);
        let lasting: Vec<Name> = (0..100).map(|n| name(&format!("lasting-{n}"))).collect();
        for (n, lasting) in (1..).zip(&lasting) {
            names.insert(lasting, Fid::new(1, 2 * n, n));
        }
        for n in 0..100_000u64 {
            let fleeting = name(&format!("fleeting-{n}"));
            names.insert(&fleeting, Fid::new(1, 2 * n + 1000, 1));
            names.insert_absent(&fleeting);
            assert_eq!(names.get(&fleeting), CachedName::Absent);
        }
        assert!(names.bytes() < 40_000, "{} bytes", names.bytes());
        for (n, lasting) in (1..).zip(&lasting) {
            assert_eq!(names.get(lasting), CachedName::File(Fid::new(1, 2 * n, n)));
        }
    }
}
