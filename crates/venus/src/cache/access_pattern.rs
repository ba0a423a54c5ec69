//! The order of the small files of directories, and which readers follow it.
//!
//! Model. A *list* has the small files of one directory, in two orders: as its pages listed them
//! (for a reader that lists and reads), and as they were made (by ascending numbers: for a reader
//! that sorts names or numbers). Reading one that lies near the last one read is a *step*, in
//! either order; after [`STEPS`] of them in a row the files behind are to be fetched, each once, up
//! to a window that doubles with each batch that is asked for, and ends at so many bytes. A process
//! that walks a tree begins a new list every so often: if the last step is a moment ago, the first
//! files of a directory that is just being listed are to be fetched at once, but of one such
//! directory only until the next step.
//!
//! A walk goes down first, in the order of the listings (`grep -r`). Once all of a list is to be
//! fetched, the directory that comes next is *expected*: a subdirectory, or the next one of its own
//! parent's list, and so on upwards. If the reader lists the expected one, the next expected one is
//! to be listed ahead; if another, an expectation must come true first.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use types::{Cookie, Fid};

/// Files read in order before the next ones are fetched.
const STEPS: u32 = 2;

/// Largest distance of a step: readers skip some files, or work in threads.
const NEAR: usize = 4;

/// Files ahead of the reader.
const WINDOW_MIN: usize = 8;

const WINDOW_MAX: usize = 256;

/// Bytes of the window, but at least one file: unread bodies of two readers have room
/// (`reading/directories.rs`).
const WINDOW_BYTES: u64 = 4 << 20;

/// How long a walk through a tree may take from the last file of one directory to the listing of
/// the next.
const MOMENT: Duration = Duration::from_millis(500);

/// Directories between the one that is read and the next one with files.
const EXPECTED_MAX: usize = 4;

/// Most levels up in the search for the next directory.
const DEPTH_MAX: usize = 16;

/// Most lists, files in one, and files and subdirectories in all of them: some 5 MB.
const LISTS_MAX: usize = 256;

const LIST_FILES_MAX: usize = 16 << 10;

const FILES_MAX: usize = 64 << 10;

const AS_LISTED: usize = 0;

const AS_MADE: usize = 1;

/// Progress of reads in one order.
#[derive(Clone, Copy, Default)]
struct Track {
    /// Place behind the last file read.
    at: usize,
    run: u32,
    window: usize,
    /// Place behind the last file to be fetched.
    asked: usize,
}

struct List {
    number: u64,
    dir: Fid,
    next: Cookie,
    /// In the order of the listing.
    files: Vec<Fid>,
    /// Their lengths at the listing.
    sizes: Vec<u32>,
    /// Their places in the order of creation, and for how many that was computed.
    made: Vec<u32>,
    /// Whether each file was read or is to be fetched.
    done: Vec<bool>,
    /// Place of the file that was read last.
    last: usize,
    tracks: [Track; 2],
    /// Its subdirectories, in the order of the listing; those before `next_dir` were listed, or are
    /// expected to be.
    dirs: Vec<Fid>,
    entered: usize,
    /// The directory behind this one is expected.
    passed: bool,
}

#[derive(Default)]
pub(crate) struct Named {
    /// Small files, with their lengths.
    pub files: Vec<(Fid, u32)>,
    pub dirs: Vec<Fid>,
}

/// Files and a directory to ask for before the reader does.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FetchAhead {
    pub files: Vec<Fid>,
    pub dir: Option<Fid>,
}

/// A walk through a tree: time of its last step, its order, and that list's window.
#[derive(Clone, Copy)]
struct Walk {
    when: Instant,
    order: usize,
    window: usize,
}

#[derive(Default)]
pub(crate) struct ListedDirs {
    /// Oldest first, their numbers ascend.
    lists: VecDeque<List>,
    places: HashMap<Fid, (u64, usize)>,
    parents: HashMap<Fid, (u64, usize)>,
    count: u64,
    walk: Option<Walk>,
    /// Directories in which the walk is expected, the next one first.
    expected: VecDeque<Fid>,
    came_true: bool,
}

impl ListedDirs {
    /// A page of `dir` from `cookie` to `next` has these entries. Returns the files to be fetched.
    pub fn listed(
        &mut self,
        now: Instant,
        dir: Fid,
        cookie: Cookie,
        next: Cookie,
        named: &Named,
    ) -> Vec<Fid> {
        let Named { files, dirs } = named;
        let joins = |list: &List| {
            list.dir == dir && list.next == cookie && list.files.len() < LIST_FILES_MAX
        };
        let at = self.lists.iter().rposition(|list| cookie != Cookie::START && joins(list));
        let begins = at.is_none();
        let at = at.unwrap_or_else(|| self.begin(dir, cookie));
        let list = &mut self.lists[at];
        list.next = next;
        let places = (list.files.len()..).map(|place| (list.number, place));
        self.places.extend(files.iter().map(|(fid, _)| *fid).zip(places));
        list.add(files);
        let places = (list.dirs.len()..).map(|place| (list.number, place));
        self.parents.extend(dirs.iter().copied().zip(places));
        list.dirs.extend(dirs);
        let walk = self
            .walk
            .filter(|walk| begins && !files.is_empty() && now.duration_since(walk.when) < MOMENT);
        let ahead = match walk {
            Some(Walk { order, window, .. }) => {
                self.walk = None;
                list.tracks[order] = Track { run: STEPS, window, ..Track::default() };
                list.batch(order)
            }
            None => Vec::new(),
        };
        self.trim();
        ahead
    }

    fn begin(&mut self, dir: Fid, cookie: Cookie) -> usize {
        if cookie == Cookie::START {
            let old: Vec<u64> =
                self.lists.iter().filter(|list| list.dir == dir).map(|list| list.number).collect();
            old.into_iter().for_each(|number| self.drop_list(number));
        }
        self.count += 1;
        let (number, next, tracks) = (self.count, cookie, Default::default());
        let (files, sizes, made, done, dirs) = Default::default();
        let (last, entered, passed) = Default::default();
        self.lists.push_back(List {
            number,
            dir,
            next,
            files,
            sizes,
            made,
            done,
            last,
            tracks,
            dirs,
            entered,
            passed,
        });
        self.lists.len() - 1
    }

    fn drop_list(&mut self, number: u64) {
        let Ok(at) = self.lists.binary_search_by_key(&number, |list| list.number) else { return };
        let Some(list) = self.lists.remove(at) else { return };
        // A file with two names may be in a newer list, and so may a directory that was moved.
        let forget = |places: &mut HashMap<Fid, (u64, usize)>, fids: Vec<Fid>| {
            for fid in fids {
                if places.get(&fid).is_some_and(|(list, _)| *list == number) {
                    places.remove(&fid);
                }
            }
        };
        forget(&mut self.places, list.files);
        forget(&mut self.parents, list.dirs);
    }

    fn trim(&mut self) {
        while self.lists.len() > LISTS_MAX || self.places.len() + self.parents.len() > FILES_MAX {
            let Some(oldest) = self.lists.front().map(|list| list.number) else { return };
            self.drop_list(oldest);
        }
    }

    /// A reader begins to read this file.
    pub fn step(&mut self, now: Instant, fid: Fid) -> FetchAhead {
        let nothing = FetchAhead::default();
        let Some((number, place)) = self.places.get(&fid).copied() else { return nothing };
        let Some(list) = self.list(number) else { return nothing };
        let order = list.step(place);
        if list.tracks[order].run < STEPS {
            return nothing;
        }
        let files = list.batch(order);
        let window = list.tracks[order].window;
        let through = list.tracks[order].asked >= list.files.len()
            && !std::mem::replace(&mut list.passed, true);
        let dir = list.dir;
        self.walk = Some(Walk { when: now, order, window });
        FetchAhead { files, dir: if through { self.expect(dir) } else { None } }
    }

    fn list(&mut self, number: u64) -> Option<&mut List> {
        let at = self.lists.binary_search_by_key(&number, |list| list.number).ok()?;
        self.lists.get_mut(at)
    }

    /// All of this directory is to be fetched. Returns the next one, if it is to be listed.
    fn expect(&mut self, dir: Fid) -> Option<Fid> {
        let next = self.behind(dir).filter(|_| self.expected.len() < EXPECTED_MAX)?;
        self.enter(next);
        self.expected.push_back(next);
        self.came_true.then_some(next)
    }

    /// The next directory of a walk behind this one.
    fn behind(&self, mut dir: Fid) -> Option<Fid> {
        for _ in 0..DEPTH_MAX {
            let list = self.lists.iter().rfind(|list| list.dir == dir);
            if let Some(next) = list.and_then(|list| list.dirs.get(list.entered)) {
                return Some(*next);
            }
            let (number, _) = self.parents.get(&dir)?;
            dir = self.lists.iter().find(|list| list.number == *number)?.dir;
        }
        None
    }

    fn enter(&mut self, dir: Fid) {
        if let Some((number, place)) = self.parents.get(&dir).copied()
            && let Some(list) = self.list(number)
        {
            list.entered = list.entered.max(place + 1);
        }
    }

    /// A reader begins to list this directory.
    pub fn begun(&mut self, dir: Fid) {
        self.enter(dir);
        let at = self.expected.iter().position(|expected| *expected == dir);
        self.came_true = at.is_some();
        self.expected.drain(..at.map_or(self.expected.len(), |at| at + 1));
    }

    /// This directory was listed ahead. If nothing of it is to be fetched, the one behind it is to
    /// be listed.
    pub fn listed_ahead(&mut self, dir: Fid) -> Option<Fid> {
        let list = self.lists.iter_mut().rfind(|list| list.dir == dir)?;
        let empty = list.files.is_empty() && !std::mem::replace(&mut list.passed, true);
        if empty && self.came_true { self.expect(dir) } else { None }
    }

    /// A fetched file was not read: nothing is fetched before the next step.
    pub fn wasted(&mut self) {
        (self.walk, self.came_true) = (None, false);
        for track in self.lists.iter_mut().flat_map(|list| &mut list.tracks) {
            (track.run, track.window) = (0, 0);
        }
    }
}

impl Track {
    fn step(&mut self, place: usize) {
        if place + NEAR >= self.at && place < self.at + NEAR {
            self.run += 1;
        } else {
            *self = Track { run: 1, window: 0, asked: place + 1, at: 0 };
        }
        self.at = place + 1;
    }
}

impl List {
    fn add(&mut self, files: &[(Fid, u32)]) {
        self.files.extend(files.iter().map(|(fid, _)| *fid));
        self.sizes.extend(files.iter().map(|(_, size)| *size));
        self.done.resize(self.files.len(), false);
    }

    /// The file at this place was read. Returns the order in which that is the longer run.
    fn step(&mut self, place: usize) -> usize {
        if self.made.len() < self.files.len() {
            self.sort();
        }
        let made = self.rank(place);
        self.done[place] = true;
        self.last = place;
        self.tracks[AS_LISTED].step(place);
        self.tracks[AS_MADE].step(made);
        if self.tracks[AS_MADE].run > self.tracks[AS_LISTED].run { AS_MADE } else { AS_LISTED }
    }

    /// Sorts all by creation; a reader in that order goes on from the same file.
    fn sort(&mut self) {
        self.made = (0..self.files.len() as u32).collect();
        let files = &self.files;
        self.made.sort_unstable_by_key(|place| files[*place as usize]);
        let behind = self.rank(self.last) + 1;
        let track = &mut self.tracks[AS_MADE];
        if track.run > 0 && track.at > 0 {
            (track.at, track.asked) = (behind, behind);
        }
    }

    fn rank(&self, place: usize) -> usize {
        let fid = self.files[place];
        self.made.partition_point(|other| self.files[*other as usize] < fid)
    }

    fn place(&self, order: usize, index: usize) -> usize {
        if order == AS_MADE { self.made[index] as usize } else { index }
    }

    /// The window's end: after so many files from `at` on, or so many bytes.
    fn reach(&self, order: usize, at: usize, window: usize) -> usize {
        let mut bytes = 0;
        let fits = |index: &usize| {
            bytes += u64::from(self.sizes[self.place(order, *index)]);
            bytes <= WINDOW_BYTES || *index == at
        };
        at + (at..self.files.len()).take(window).take_while(fits).count()
    }

    /// The files up to the window's end, if they are worth a request.
    fn batch(&mut self, order: usize) -> Vec<Fid> {
        if self.made.len() < self.files.len() {
            self.sort();
        }
        let track = self.tracks[order];
        let window = (track.window * 2).clamp(WINDOW_MIN, WINDOW_MAX);
        let from = track.asked.max(track.at);
        let to = self.reach(order, track.at, window);
        if to <= from || (to - from) * 2 < to - track.at && to < self.files.len() {
            return Vec::new();
        }
        (self.tracks[order].window, self.tracks[order].asked) = (window, to);
        let mut batch = Vec::with_capacity(to - from);
        for index in from..to {
            let place = self.place(order, index);
            if !std::mem::replace(&mut self.done[place], true) {
                batch.push(self.files[place]);
            }
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(n: u64) -> Fid {
        Fid::new(1, 2 * n, 1)
    }

    fn files(range: std::ops::Range<u64>) -> Vec<Fid> {
        range.map(file).collect()
    }

    /// Files in an order unrelated to their numbers.
    fn mixed(range: std::ops::Range<u64>) -> Vec<Fid> {
        let mut files = files(range);
        files.sort_by_key(|fid| fid.vnode.0.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        files
    }

    fn named(files: &[Fid]) -> Named {
        Named { files: files.iter().map(|fid| (*fid, 1000)).collect(), dirs: Vec::new() }
    }

    const DIR: Fid = Fid::new(1, 1, 1);
    const OTHER: Fid = Fid::new(1, 3, 1);

    #[test]
    fn readers_in_either_order_get_a_growing_window_once() {
        let listed = mixed(0..1000);
        for order in [listed.clone(), files(0..1000)] {
            let (mut lists, now) = (ListedDirs::default(), Instant::now());
            assert_eq!(
                lists.listed(now, DIR, Cookie::START, Cookie(7), &named(&listed[..500])),
                []
            );
            assert_eq!(
                lists.listed(now, DIR, Cookie(7), Cookie(9), &named(&listed[500..])),
                [],
                "joined"
            );
            let (mut fetched, mut ahead_max) = (Vec::new(), 0);
            for (n, fid) in order.iter().enumerate() {
                fetched.extend(lists.step(now, *fid).files);
                ahead_max = ahead_max.max(fetched.len().saturating_sub(n));
            }
            assert!(fetched.len() >= 990, "{} of 1000", fetched.len());
            assert!((200..300).contains(&ahead_max), "{ahead_max}");
            let mut once = fetched.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), fetched.len());
        }
    }

    #[test]
    fn a_late_page_does_not_disturb_a_reader_in_creation_order() {
        let (mut lists, now) = (ListedDirs::default(), Instant::now());
        let listed = mixed(0..200);
        lists.listed(now, DIR, Cookie::START, Cookie(7), &named(&listed[..100]));
        let here = |known: &[Fid], n: u64| known.contains(&file(n));
        (0..100).filter(|n| here(&listed[..100], *n)).for_each(|n| drop(lists.step(now, file(n))));
        lists.listed(now, DIR, Cookie(7), Cookie(9), &named(&listed[100..]));
        let fetched: Vec<Fid> = (100..110).flat_map(|n| lists.step(now, file(n)).files).collect();
        assert!(!fetched.is_empty() && fetched.iter().all(|fid| *fid > file(100)), "{fetched:?}");
    }

    #[test]
    fn random_reads_fetch_nothing() {
        let (mut lists, now) = (ListedDirs::default(), Instant::now());
        lists.listed(now, DIR, Cookie::START, Cookie(7), &named(&files(0..1000)));
        for n in [500, 3, 900, 100, 700, 40] {
            assert_eq!(lists.step(now, file(n)), FetchAhead::default(), "{n}");
        }
        assert_eq!(lists.step(now, file(5000)), FetchAhead::default(), "never listed");
    }

    #[test]
    fn a_walk_goes_on_in_the_next_directory_and_in_one_only() {
        let (mut lists, now) = (ListedDirs::default(), Instant::now());
        lists.listed(now, DIR, Cookie::START, Cookie(7), &named(&files(0..30)));
        (0..30).for_each(|n| drop(lists.step(now, file(n))));
        assert_eq!(
            lists.listed(now, OTHER, Cookie::START, Cookie(7), &named(&files(100..140))),
            files(100..140),
            "all: the window had grown"
        );
        assert_eq!(
            lists.listed(
                now,
                Fid::new(1, 5, 1),
                Cookie::START,
                Cookie(7),
                &named(&files(200..240))
            ),
            [],
            "no step since"
        );
        lists.step(now, file(100));
        let later = now + MOMENT;
        assert_eq!(
            lists.listed(
                later,
                Fid::new(1, 7, 1),
                Cookie::START,
                Cookie(7),
                &named(&files(300..340))
            ),
            [],
            "that is long ago"
        );
    }

    #[test]
    fn the_oldest_lists_go() {
        let (mut lists, now) = (ListedDirs::default(), Instant::now());
        for n in 0..100 {
            lists.listed(
                now,
                Fid::new(1, 2 * n + 1, 1),
                Cookie::START,
                Cookie(7),
                &named(&files(n * 1000..n * 1000 + 1000)),
            );
        }
        assert!(lists.places.len() <= FILES_MAX && lists.lists.len() <= LISTS_MAX);
        lists.listed(now, Fid::new(1, 199, 1), Cookie::START, Cookie(7), &named(&files(0..10)));
        let held: usize = lists.lists.iter().map(|list| list.files.len()).sum();
        assert_eq!(
            lists.places.len(),
            held,
            "listed again: the old list is gone, each file has one place"
        );
    }
}
