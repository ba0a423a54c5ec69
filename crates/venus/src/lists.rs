//! In which order the small files of directories are, and who reads them in that order.
//!
//! Model. A *list* has the small files of one directory, in two orders: as its pages named them one after the other (who lists and reads), and
//! as they were made (their numbers ascend: who sorts names or numbers). Reading one that lies near the last one read is a *step*, in
//! either order; after [`STEPS`] of them in a row the files behind are to be fetched, each once, up to a window that doubles with each
//! batch that is asked for. Who goes through a tree begins a new list every so often: if the last step is a moment ago, the
//! first files of a directory that is just being listed are to be fetched at once, but of one such directory only until
//! somebody steps again.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use types::Fid;

/// Files read in order before the next ones are fetched.
const STEPS: u32 = 2;
/// How far from the last one the next may lie: readers skip some, or work in threads.
const NEAR: usize = 4;
/// Files ahead of the reader.
const WINDOW_MIN: usize = 8;
const WINDOW_MAX: usize = 256;
/// How long a walk through a tree may take from the last file of one directory to the listing of the next.
const MOMENT: Duration = Duration::from_millis(500);
/// Lists, files in one, and in all of them: some 5 MB.
const LISTS_MAX: usize = 64;
const LIST_FILES_MAX: usize = 16 << 10;
const FILES_MAX: usize = 64 << 10;

/// The two orders.
const AS_LISTED: usize = 0;
const AS_MADE: usize = 1;

/// How files are read in one order.
#[derive(Clone, Copy, Default)]
struct Track {
    /// Behind the last file read.
    at: usize,
    /// Steps in a row.
    run: u32,
    window: usize,
    /// Behind the last file to be fetched.
    asked: usize,
}

/// One directory.
struct List {
    number: u64,
    dir: Fid,
    /// Where its next page begins.
    next: u64,
    /// As they were listed.
    files: Vec<Fid>,
    /// Their places in the order in which they were made, and of how many that was worked out.
    made: Vec<u32>,
    /// Those that were read or are to be fetched.
    done: Vec<bool>,
    /// The place of the one that was read last.
    last: usize,
    tracks: [Track; 2],
}

/// A walk through a tree: when its last step was, in which order, and that list's window.
#[derive(Clone, Copy)]
struct Walk {
    when: Instant,
    order: usize,
    window: usize,
}

/// The directories that were listed last.
#[derive(Default)]
pub(crate) struct Lists {
    /// Oldest first, their numbers ascend.
    lists: VecDeque<List>,
    /// The list that a file is in, and where.
    places: HashMap<Fid, (u64, usize)>,
    count: u64,
    walk: Option<Walk>,
}

impl Lists {
    /// The page of `dir` from `cookie` to `next` names these small files. Returns those to be fetched.
    pub fn listed(&mut self, now: Instant, dir: Fid, cookie: u64, next: u64, files: &[Fid]) -> Vec<Fid> {
        let joins = |list: &List| list.dir == dir && list.next == cookie && list.files.len() < LIST_FILES_MAX;
        let at = self.lists.iter().rposition(|list| cookie != 0 && joins(list));
        let begins = at.is_none();
        let at = at.unwrap_or_else(|| self.begin(dir, cookie));
        let list = &mut self.lists[at];
        list.next = next;
        let places = (list.files.len()..).map(|place| (list.number, place));
        self.places.extend(files.iter().copied().zip(places));
        list.add(files);
        let walk = self.walk.filter(|walk| begins && !files.is_empty() && now.duration_since(walk.when) < MOMENT);
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

    fn begin(&mut self, dir: Fid, cookie: u64) -> usize {
        if cookie == 0 {
            let old: Vec<u64> = self.lists.iter().filter(|list| list.dir == dir).map(|list| list.number).collect();
            old.into_iter().for_each(|number| self.drop_list(number));
        }
        self.count += 1;
        let (number, next, tracks) = (self.count, cookie, Default::default());
        let (files, made, done) = Default::default();
        self.lists.push_back(List { number, dir, next, files, made, done, last: 0, tracks });
        self.lists.len() - 1
    }

    fn drop_list(&mut self, number: u64) {
        let Ok(at) = self.lists.binary_search_by_key(&number, |list| list.number) else { return };
        for fid in self.lists.remove(at).into_iter().flat_map(|list| list.files) {
            // A file with two names may be in a newer list.
            if self.places.get(&fid).is_some_and(|(list, _)| *list == number) {
                self.places.remove(&fid);
            }
        }
    }

    fn trim(&mut self) {
        while self.lists.len() > LISTS_MAX || self.places.len() > FILES_MAX {
            let Some(oldest) = self.lists.front().map(|list| list.number) else { return };
            self.drop_list(oldest);
        }
    }

    /// This file is read from its beginning. Returns those to be fetched.
    pub fn step(&mut self, now: Instant, fid: Fid) -> Vec<Fid> {
        let Some((number, place)) = self.places.get(&fid).copied() else { return Vec::new() };
        let Ok(at) = self.lists.binary_search_by_key(&number, |list| list.number) else { return Vec::new() };
        let list = &mut self.lists[at];
        let order = list.step(place);
        if list.tracks[order].run < STEPS {
            return Vec::new();
        }
        let batch = list.batch(order);
        self.walk = Some(Walk { when: now, order, window: list.tracks[order].window });
        batch
    }

    /// Nobody reads what was fetched: not before somebody steps again.
    pub fn wasted(&mut self) {
        self.walk = None;
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
    fn add(&mut self, files: &[Fid]) {
        self.files.extend_from_slice(files);
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

    /// Puts all into the order in which they were made; who reads in that order goes on from the same file.
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

    /// Where the file at this place is in the order in which they were made.
    fn rank(&self, place: usize) -> usize {
        let fid = self.files[place];
        self.made.partition_point(|other| self.files[*other as usize] < fid)
    }

    /// The files up to the window's end, if they are worth a request.
    fn batch(&mut self, order: usize) -> Vec<Fid> {
        if self.made.len() < self.files.len() {
            self.sort();
        }
        let track = &mut self.tracks[order];
        let window = (track.window * 2).clamp(WINDOW_MIN, WINDOW_MAX);
        let from = track.asked.max(track.at);
        let to = (track.at + window).min(self.files.len());
        if to <= from || (to - from) * 2 < window && to < self.files.len() {
            return Vec::new();
        }
        track.window = window;
        track.asked = to;
        let mut batch = Vec::with_capacity(to - from);
        for index in from..to {
            let place = if order == AS_MADE { self.made[index] as usize } else { index };
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

    /// In an order that has nothing to do with their numbers.
    fn mixed(range: std::ops::Range<u64>) -> Vec<Fid> {
        let mut files = files(range);
        files.sort_by_key(|fid| fid.vnode.0.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        files
    }

    const DIR: Fid = Fid::new(1, 1, 1);
    const OTHER: Fid = Fid::new(1, 3, 1);

    #[test]
    fn who_reads_in_either_order_has_a_growing_window_ahead_and_each_file_once() {
        let listed = mixed(0..1000);
        for order in [listed.clone(), files(0..1000)] {
            let (mut lists, now) = (Lists::default(), Instant::now());
            assert_eq!(lists.listed(now, DIR, 0, 7, &listed[..500]), []);
            assert_eq!(lists.listed(now, DIR, 7, 9, &listed[500..]), [], "joined");
            let (mut fetched, mut ahead_max) = (Vec::new(), 0);
            for (n, fid) in order.iter().enumerate() {
                fetched.extend(lists.step(now, *fid));
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
    fn a_page_that_comes_while_files_are_read_as_made_changes_nothing_for_their_reader() {
        let (mut lists, now) = (Lists::default(), Instant::now());
        let listed = mixed(0..200);
        lists.listed(now, DIR, 0, 7, &listed[..100]);
        let here = |known: &[Fid], n: u64| known.contains(&file(n));
        (0..100).filter(|n| here(&listed[..100], *n)).for_each(|n| drop(lists.step(now, file(n))));
        lists.listed(now, DIR, 7, 9, &listed[100..]);
        let fetched: Vec<Fid> = (100..110).flat_map(|n| lists.step(now, file(n))).collect();
        assert!(!fetched.is_empty() && fetched.iter().all(|fid| *fid > file(100)), "{fetched:?}");
    }

    #[test]
    fn who_reads_here_and_there_fetches_nothing() {
        let (mut lists, now) = (Lists::default(), Instant::now());
        lists.listed(now, DIR, 0, 7, &files(0..1000));
        for n in [500, 3, 900, 100, 700, 40] {
            assert_eq!(lists.step(now, file(n)), [], "{n}");
        }
        assert_eq!(lists.step(now, file(5000)), [], "never listed");
    }

    #[test]
    fn a_walk_goes_on_in_the_next_directory_and_in_one_only() {
        let (mut lists, now) = (Lists::default(), Instant::now());
        lists.listed(now, DIR, 0, 7, &files(0..30));
        (0..30).for_each(|n| drop(lists.step(now, file(n))));
        assert_eq!(lists.listed(now, OTHER, 0, 7, &files(100..140)), files(100..140), "all: the window had grown");
        assert_eq!(lists.listed(now, Fid::new(1, 5, 1), 0, 7, &files(200..240)), [], "nobody has stepped since");
        lists.step(now, file(100));
        let later = now + MOMENT;
        assert_eq!(lists.listed(later, Fid::new(1, 7, 1), 0, 7, &files(300..340)), [], "that is long ago");
    }

    #[test]
    fn the_oldest_lists_go() {
        let (mut lists, now) = (Lists::default(), Instant::now());
        for n in 0..100 {
            lists.listed(now, Fid::new(1, 2 * n + 1, 1), 0, 7, &files(n * 1000..n * 1000 + 1000));
        }
        assert!(lists.places.len() <= FILES_MAX && lists.lists.len() <= LISTS_MAX);
        lists.listed(now, Fid::new(1, 199, 1), 0, 7, &files(0..10));
        let held: usize = lists.lists.iter().map(|list| list.files.len()).sum();
        assert_eq!(lists.places.len(), held, "listed again: the old list is gone, each file has one place");
    }
}
