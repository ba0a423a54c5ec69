//! The client's knowledge of files without their bytes: statuses, names, the kernel's references,
//! open handles.
//!
//! One lock covers all of it, so that entering an answer, taking a break and giving a cached answer
//! are one step each: a break comes either before an answer is entered (and [`Holder::promised`]
//! then refuses it) or after (and removes it). No thread does I/O under this lock.
//!
//! A status is *valid* while the server's promise for it holds. Answers may overtake each other, so
//! the one with the higher status version stays. An invalid status stays for its versions only.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::clock;
use lease::{CallStart, Holder};
use types::{BreakItem, Cookie, DataVersion, DirEntry, Fault, Fid, Kind, Name, Status};

use super::{CachedName, DirNames, KnownRights, Nodes, NotedReads, Slots, Wanted};
use crate::base::{Error, Share, VenusConfig};
use crate::data::{FileBytes, MountShared};

/// Smaller changes are not added to the shared count.
const STEP: usize = 16 << 10;

/// The cache's answer to a lookup.
pub(crate) enum Cached {
    Entry { status: Status, cacheable: bool },
    Absent,
    Unknown,
}

/// The state of a directory before a lookup was sent.
pub(crate) struct Before {
    pub snapshot: CallStart,
    changes: u64,
    quiet: bool,
}

#[derive(Default)]
pub(crate) struct Tables {
    pub holder: Holder,
    pub rights: KnownRights,
    pub nodes: Nodes,
    /// The nodes that have file data.
    pub files: HashMap<Fid, Arc<FileBytes>>,
    pub slots: Slots,
    /// Reads that the server is to record.
    pub reads: NotedReads,
    /// Calls under way that change files which are not known here: meanwhile nothing is answered
    /// here.
    pub(super) blind: u32,
    landed: Arc<AtomicU64>,
    names: usize,
    /// Most bytes of nodes and names of all volumes.
    nodes_max: usize,
    names_max: usize,
    /// This volume's bytes, to within [`STEP`].
    nodes_share: Share,
    names_share: Share,
}

impl Tables {
    pub fn new(config: &VenusConfig, common: &MountShared, landed: Arc<AtomicU64>) -> Self {
        Tables {
            holder: Holder::new(config.lease),
            nodes_max: config.memory_bytes_max / 3 * 2,
            names_max: config.memory_bytes_max / 3,
            nodes_share: Share::of(&common.nodes),
            names_share: Share::of(&common.names),
            landed,
            ..Tables::default()
        }
    }

    /// Whether the cache may answer now.
    pub fn trusted(&self) -> bool {
        self.holder.trusted(clock::now())
    }

    /// The status, if the cache may answer; and whether the kernel may cache it.
    pub fn status(&mut self, fid: Fid) -> Option<(Status, bool)> {
        if self.trusted() { self.nodes.view(fid) } else { None }
    }

    /// The data of `fid`, if it has bytes here or is open.
    pub fn file_of(&self, fid: Fid) -> Option<Arc<FileBytes>> {
        self.files.get(&fid).cloned()
    }

    /// All files that are open or have bytes here.
    pub fn files(&self) -> Vec<Arc<FileBytes>> {
        self.files.values().cloned().collect()
    }

    /// Drops the data of a file that is closed. `version`: all blocks of this data version are
    /// verified. Returns whether the client knows that only now; `None`: the data is in use.
    pub fn drop_file(
        &mut self,
        file: &FileBytes,
        verified: impl Fn(&Status) -> bool,
    ) -> Option<bool> {
        let node = self.nodes.whole_mut(&file.fid)?;
        let this = node.file.as_ref().is_some_and(|here| std::ptr::eq(&raw const **here, file));
        if !this || node.opens > 0 {
            return None;
        }
        debug_assert!(
            file.is_clean() && file.is_landed(),
            "DU-4: bytes that are not at the server stay"
        );
        let known = node.status.filter(verified);
        let learned = known.is_some_and(|status| status.data_version != node.known);
        if let Some(status) = known {
            node.known = status.data_version;
        }
        node.file = None;
        self.files.remove(&file.fid);
        Some(learned)
    }

    /// Whether a removal is under way that reported the file as not open.
    pub fn is_removing(&self, fid: Fid) -> bool {
        self.nodes.whole(&fid).is_some_and(|node| node.removing > 0)
    }

    /// Counts one more open of a plain file.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub fn count_open(&mut self, fid: Fid) -> Result<Arc<FileBytes>, Error> {
        let node = self.nodes.node(fid);
        match node.status {
            Some(status) if status.kind == Kind::Directory => return Err(Fault::IsDirectory.into()),
            Some(status) if status.kind != Kind::File => return Err(Fault::Invalid.into()),
            Some(status) if status.links == 0 && !node.held => return Err(Fault::Stale.into()),
            _ => {}
        }
        node.opens += 1;
        let file = Arc::clone(node.file.get_or_insert_with(|| Arc::new(FileBytes::new(fid))));
        self.files.insert(fid, Arc::clone(&file));
        Ok(file)
    }

    /// Enters a status from an answer; returns the status to be shown, and whether the kernel may
    /// cache it.
    pub fn put(&mut self, snapshot: CallStart, mut status: Status) -> (Status, bool) {
        self.reads.apply(&mut status);
        if self.holder.is_void(snapshot) {
            // Its version does not count any more: the server may use earlier ones again.
            return (self.nodes.shown(status), false);
        }
        let promised = self.holder.promised(status.fid, snapshot);
        let (shown, cacheable) = self.nodes.enter(status, promised);
        self.trim();
        (shown, cacheable && self.trusted())
    }

    pub fn lookup(&mut self, dir: Fid, name: &Name) -> Cached {
        if !self.trusted() {
            return Cached::Unknown;
        }
        let Some(node) = self.nodes.whole_mut(&dir) else { return Cached::Unknown };
        let known = node
            .names
            .as_ref()
            .filter(|names| names.valid)
            .map_or(CachedName::Unknown, |names| names.get(name));
        match known {
            CachedName::Unknown => Cached::Unknown,
            CachedName::Absent => Cached::Absent,
            CachedName::File(fid) => match self.status(fid) {
                Some((status, cacheable)) => Cached::Entry { status, cacheable },
                None => Cached::Unknown,
            },
        }
    }

    /// The file that a name is known to mean, valid and trusted.
    pub fn resolve(&self, dir: Fid, name: &Name) -> Option<Fid> {
        let names =
            self.nodes.whole(&dir)?.names.as_ref().filter(|names| names.valid && self.trusted())?;
        match names.get(name) {
            CachedName::File(fid) => Some(fid),
            CachedName::Absent | CachedName::Unknown => None,
        }
    }

    /// Called before a lookup or listing of `dir` is sent.
    pub fn before(&self, dir: Fid) -> Before {
        let (changes, changing) =
            self.nodes.whole(&dir).map_or((0, 0), |node| (node.changes, node.changing));
        Before { snapshot: self.holder.begin(), changes, quiet: changing == 0 }
    }

    /// Edits a directory's names, and counts their bytes.
    fn edit<R>(&mut self, dir: Fid, edit: impl FnOnce(&mut DirNames) -> R) -> R {
        let names = &mut self.nodes.node(dir).names;
        let before = names.as_ref().map_or(0, |names| names.bytes());
        let names = names.get_or_insert_with(|| Box::new(DirNames::new()));
        let result = edit(names);
        let after = names.bytes();
        self.names = self.names + after - before;
        result
    }

    /// Enters the result of a lookup; whether the kernel may cache the name.
    pub fn put_name(
        &mut self,
        before: &Before,
        dir: Fid,
        dir_version: DataVersion,
        name: &Name,
        fid: Fid,
    ) -> bool {
        if self.holder.is_void(before.snapshot) {
            return false;
        }
        let promised = self.holder.promised(dir, before.snapshot);
        let entered = self.edit(dir, |names| {
            let may = names.meet(dir_version, promised);
            if may {
                names.insert(name, fid);
            }
            may
        });
        entered && self.trusted()
    }

    /// Enters that a lookup found nothing; whether the kernel may cache that. The refusal has no
    /// version: it is entered only if no own change ran beside it, under the known version.
    pub fn put_absent(&mut self, before: &Before, dir: Fid, name: &Name) -> bool {
        let promised = self.holder.promised(dir, before.snapshot);
        let Some(node) = self.nodes.get(&dir) else {
            return promised && self.trusted() && before.quiet;
        };
        let alone = before.quiet && node.changes == before.changes;
        if !(promised && alone) {
            return false;
        }
        let named = node.names.as_ref().is_some_and(|names| names.valid);
        let version = node.status.filter(|_| node.valid).map(|status| status.data_version);
        drop(node);
        if named {
            self.edit(dir, |names| names.insert_absent(name));
        } else if let Some(version) = version {
            self.edit(dir, |names| {
                if names.meet(version, true) {
                    names.insert_absent(name);
                }
            });
        }
        self.trusted()
    }

    /// Enters a part of a listing; whether the kernel may cache the names, and whether they were
    /// entered.
    pub fn put_listing(
        &mut self,
        before: &Before,
        dir: Fid,
        dir_version: DataVersion,
        entries: &[DirEntry],
    ) -> (bool, Option<u64>) {
        // The caller may see the names without the statuses; other callers here may see more.
        let masked = entries.iter().any(|entry| entry.fid.is_masked());
        if masked || self.holder.is_void(before.snapshot) {
            return (false, None);
        }
        let promised = self.holder.promised(dir, before.snapshot);
        let room = self.names_max / 2;
        let entered = self.edit(dir, |names| {
            let may = names.meet(dir_version, promised) && names.bytes() <= room;
            if may {
                entries.iter().for_each(|entry| names.insert(&entry.name, entry.fid));
            }
            may.then_some(names.number)
        });
        (promised && self.trusted(), entered)
    }

    /// Whether `dir` is known to be in this version now.
    pub fn is_current(&self, dir: Fid, dir_version: DataVersion) -> bool {
        let names = self.nodes.whole(&dir).and_then(|node| node.names.as_ref());
        names.is_some_and(|names| names.valid && names.version == dir_version) && self.trusted()
    }

    /// A lookup in `dir` has to ask the server; returns the page to list ahead, if it is time for
    /// that.
    pub fn missed(&mut self, dir: Fid) -> Option<Wanted> {
        self.nodes.whole_mut(&dir)?.names.as_mut().filter(|names| names.valid)?.missed()
    }

    /// A page that was listed ahead has been entered into this map by [`Tables::put_listing`].
    /// Whether everything before it was entered too.
    pub fn listed(&mut self, dir: Fid, number: u64, from: Cookie, cookie: Cookie) -> bool {
        self.edit(dir, |names| names.number == number && names.listed(from, cookie))
    }

    /// All of `dir` under `dir_version` has been entered into this map by [`Tables::put_listing`].
    pub fn complete(&mut self, dir: Fid, dir_version: DataVersion, number: u64) {
        self.edit(dir, |names| {
            if names.version == dir_version && names.number == number && number != 0 {
                names.set_complete();
            }
        });
    }

    /// A directory that this client made is known to be empty.
    pub fn made_directory(&mut self, snapshot: CallStart, status: &Status) {
        let promised = self.holder.promised(status.fid, snapshot);
        let node = self.nodes.node(status.fid);
        if node.names.is_none() {
            let names = DirNames::empty(status.data_version, promised);
            let bytes = names.bytes();
            node.names = Some(Box::new(names));
            self.names += bytes;
        }
    }

    pub fn change_begins(&mut self, dir: Fid) {
        let node = self.nodes.node(dir);
        node.changing += 1;
        node.changes += 1;
    }

    /// It was answered or refused.
    pub fn change_ends(&mut self, dir: Fid) {
        let node = self.nodes.node(dir);
        assert!(node.changing > 0, "CB-6: a change that ends had begun");
        node.changing -= 1;
        node.changes += 1;
    }

    /// An own change was answered with the directory's new status: `edit` applies the change to the
    /// names.
    pub fn changed(&mut self, snapshot: CallStart, dir: &Status, edit: impl FnOnce(&mut DirNames)) {
        let promised = self.holder.promised(dir.fid, snapshot);
        self.put(snapshot, *dir);
        if self.holder.is_void(snapshot) {
            return;
        }
        self.edit(dir.fid, |names| {
            if names.advance(dir.data_version, promised) {
                edit(names);
            }
        });
    }

    /// A change may have been applied without an answer: nothing of `dir` is known any more.
    pub fn unsure(&mut self, dir: Fid) {
        let node = self.nodes.node(dir);
        node.void();
        let dropped = node.names.take().map_or(0, |names| names.bytes());
        self.names -= dropped;
    }

    /// The server ended promises; returns the files that are open here, for any reason: without a
    /// promise the server would drop a file whose last name goes without asking this client. From
    /// now on they are held.
    pub fn on_break(&mut self, items: &[BreakItem]) -> Vec<Fid> {
        self.holder.on_break(items);
        self.rights.on_break(items);
        let mut held = Vec::new();
        for item in items {
            let Some(node) = self.nodes.void(item.fid) else { continue };
            node.delegation.iter_mut().for_each(|delegation| delegation.others_change());
            if node.opens > 0 || node.held {
                node.held = true;
                held.push(item.fid);
            }
        }
        held
    }

    /// All promises are gone. A server that lost changes may use earlier versions again, so they
    /// are forgotten too.
    pub fn void(&mut self) {
        self.nodes.void_all();
        self.rights.clear();
        self.reads.clear();
        self.names = 0;
    }

    /// Drops files and names until the memory limits hold.
    fn trim(&mut self) {
        if self.nodes.is_untidy() {
            self.nodes.sweep(self.landed.load(Ordering::Acquire));
        }
        let nodes_max = room(&self.nodes_share, self.nodes.bytes(), self.nodes_max);
        if self.nodes.bytes() > nodes_max {
            let landed = self.landed.load(Ordering::Acquire);
            self.names -= self.nodes.trim(nodes_max / 10 * 9, landed);
        }
        let names_max = room(&self.names_share, self.names, self.names_max);
        if self.names > names_max {
            self.trim_names(names_max / 10 * 9);
        }
    }

    fn trim_names(&mut self, bytes_max: usize) {
        for fid in self.nodes.named() {
            if self.names <= bytes_max {
                return;
            }
            let gone = self.nodes.node(fid).names.take();
            self.names -= gone.map_or(0, |names| names.bytes());
        }
    }
}

/// Reports this volume's bytes; returns how many it may have.
fn room(share: &Share, bytes: usize, most: usize) -> usize {
    if share.bytes().abs_diff(bytes) > STEP {
        share.set(bytes);
    }
    share.limit(most)
}

#[cfg(test)]
mod tests {
    use types::{BreakReason, StatusVersion, Timestamp};

    use super::*;

    fn status(vnode: u64, version: u64) -> Status {
        Status {
            fid: Fid::new(1, vnode, 1),
            kind: if vnode % 2 == 1 { types::Kind::Directory } else { types::Kind::File },
            mode: 0o644,
            by_list: false,
            read_times: false,
            own_list: false,
            uid: 0,
            gid: 0,
            links: 1,
            size: 0,
            used: 0,
            device: 0,
            accessed: Timestamp::default(),
            modified: Timestamp::default(),
            changed: Timestamp::default(),
            created: Timestamp::default(),
            data_version: DataVersion(version),
            status_version: StatusVersion(version),
        }
    }

    fn tables(memory_bytes_max: usize) -> Tables {
        let mut tables = Tables::new(
            &VenusConfig { memory_bytes_max, ..VenusConfig::default() },
            &MountShared::default(),
            Arc::default(),
        );
        tables.holder.on_renewed(clock::now());
        tables
    }

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    fn broken(fid: Fid, reason: BreakReason) -> BreakItem {
        BreakItem { fid, reason, name: None }
    }

    #[test]
    fn answers_that_overtake_each_other_leave_the_newest() {
        let mut tables = tables(1 << 20);
        let snapshot = tables.holder.begin();
        tables.put(snapshot, status(2, 5));
        tables.put(snapshot, status(2, 4));
        assert_eq!(tables.status(Fid::new(1, 2, 1)), Some((status(2, 5), true)));
    }

    #[test]
    fn an_answer_from_before_a_loss_enters_no_version() {
        let mut tables = tables(1 << 20);
        let (dir, file, x) = (Fid::new(1, 1, 1), Fid::new(1, 2, 1), name("x"));
        let (early, before) = (tables.holder.begin(), tables.before(dir));
        tables.holder.on_server_restarted();
        tables.void();
        assert_eq!(tables.put(early, status(2, 9)), (status(2, 9), false));
        assert!(!tables.put_name(&before, dir, DataVersion(9), &x, file));
        assert_eq!(tables.put_listing(&before, dir, DataVersion(9), &[]), (false, None));
        tables.changed(early, &status(1, 9), |names| names.insert(&x, file));
        let (late, before) = (tables.holder.begin(), tables.before(dir));
        for fresh in [status(1, 5), status(2, 5)] {
            assert_eq!(tables.put(late, fresh), (fresh, true));
            assert_eq!(tables.put(early, status(fresh.fid.vnode.0, 9)), (fresh, false));
            assert_eq!(tables.status(fresh.fid), Some((fresh, true)));
        }
        assert!(tables.put_name(&before, dir, DataVersion(5), &x, file));
        assert_eq!(tables.resolve(dir, &x), Some(file));
    }

    #[test]
    fn a_break_before_the_answer_leaves_nothing_to_trust() {
        let mut tables = tables(1 << 20);
        let fid = Fid::new(1, 2, 1);
        let snapshot = tables.holder.begin();
        tables.on_break(&[broken(fid, BreakReason::Data)]);
        assert_eq!(tables.put(snapshot, status(2, 5)), (status(2, 5), false));
        assert_eq!(tables.status(fid), None);
        let snapshot = tables.holder.begin();
        tables.put(snapshot, status(2, 5));
        assert!(tables.status(fid).is_some());
        tables.on_break(&[broken(fid, BreakReason::Status)]);
        assert_eq!(tables.status(fid), None);
    }

    #[test]
    fn a_break_renews_who_decides_under_the_same_version() {
        let mut tables = tables(1 << 20);
        for vnode in [1, 2] {
            let by_list = Status { by_list: true, ..status(vnode, 5) };
            let asked_before = tables.holder.begin();
            tables.put(asked_before, status(vnode, 5));
            tables.on_break(&[broken(by_list.fid, BreakReason::Data)]);
            let snapshot = tables.holder.begin();
            assert_eq!(tables.put(snapshot, by_list), (by_list, true));
            assert_eq!(
                tables.put(asked_before, status(vnode, 5)).0,
                by_list,
                "an answer from before the break"
            );
            assert_eq!(tables.status(by_list.fid), Some((by_list, true)));
        }
    }

    #[test]
    fn a_refusal_beside_a_change_of_ours_is_not_remembered() {
        let mut tables = tables(1 << 20);
        let dir = Fid::new(1, 1, 1);
        let snapshot = tables.holder.begin();
        tables.put(snapshot, status(1, 5));
        let before = tables.before(dir);
        tables.change_begins(dir);
        tables
            .changed(snapshot, &status(1, 6), |names| names.insert(&name("x"), Fid::new(1, 2, 1)));
        tables.change_ends(dir);
        assert!(
            !tables.put_absent(&before, dir, &name("x")),
            "asked before the change, entered after it"
        );
        assert_eq!(tables.resolve(dir, &name("x")), Some(Fid::new(1, 2, 1)));
        let before = tables.before(dir);
        assert!(tables.put_absent(&before, dir, &name("y")));
        assert!(matches!(tables.lookup(dir, &name("y")), Cached::Absent));
    }

    #[test]
    fn an_unchanged_directory_knows_its_names_again_after_a_break() {
        let mut tables = tables(1 << 20);
        let (dir, file) = (Fid::new(1, 1, 1), Fid::new(1, 2, 1));
        let before = tables.before(dir);
        tables.put(before.snapshot, status(2, 1));
        tables.put_name(&before, dir, DataVersion(5), &name("x"), file);
        tables.on_break(&[broken(dir, BreakReason::Status)]);
        assert_eq!(tables.resolve(dir, &name("x")), None);
        let before = tables.before(dir);
        tables.put_name(&before, dir, DataVersion(5), &name("y"), file);
        assert_eq!(tables.resolve(dir, &name("x")), Some(file));
        let before = tables.before(dir);
        tables.put_name(&before, dir, DataVersion(6), &name("z"), file);
        assert_eq!(tables.resolve(dir, &name("x")), None);
    }

    #[test]
    fn memory_is_bounded_and_the_kernels_files_stay_longest() {
        let mut tables = tables(60_000);
        let dir = Fid::new(1, 1, 1);
        for n in 1..=10_000u64 {
            let before = tables.before(dir);
            let fid = Fid::new(1, 2 * n, 1);
            tables.put(before.snapshot, status(2 * n, 1));
            if n <= 20 {
                tables.nodes.refer(fid);
            }
            tables.put_name(&before, dir, DataVersion(7), &name(&n.to_string()), fid);
            let (nodes, names) = (tables.nodes.bytes(), tables.names);
            assert!(nodes <= 41_000 && names <= 40_000, "{nodes} bytes of nodes, {names} of names");
        }
        let left = (1..=20).filter(|n| tables.nodes.get(&Fid::new(1, 2 * n, 1)).is_some()).count();
        assert_eq!(left, 20);
        assert!(tables.nodes.len() > 100);
    }

    fn listed(n: u64) -> DirEntry {
        let name = name(&format!("entry-{n:07}"));
        let kind = types::Kind::File;
        DirEntry {
            name,
            fid: Fid::new(1, 2 * n, n),
            kind,
            cookie: Cookie(n),
            status: None,
            sole: false,
            target: None,
        }
    }

    #[test]
    fn a_listing_with_a_forgotten_first_page_completes_nothing() {
        let dir = Fid::new(1, 1, 1);
        let (first, second) = (listed(1), listed(2));
        for forgotten in [false, true] {
            let mut tables = tables(1 << 20);
            let before = tables.before(dir);
            let early =
                tables.put_listing(&before, dir, DataVersion(7), std::slice::from_ref(&first)).1;
            if forgotten {
                tables.holder.on_server_restarted();
                tables.void();
                tables.holder.on_renewed(clock::now());
            }
            let before = tables.before(dir);
            let late =
                tables.put_listing(&before, dir, DataVersion(7), std::slice::from_ref(&second)).1;
            assert_eq!(early == late, !forgotten, "a listing sees the difference");
            assert_eq!(
                tables.listed(dir, early.unwrap(), Cookie::START, Cookie(1)),
                !forgotten,
                "so does a listing ahead"
            );
            tables.complete(dir, DataVersion(7), early.unwrap());
            let known = matches!(tables.lookup(dir, &name("other")), Cached::Absent);
            assert_eq!(known, !forgotten, "that there is no other name");
        }
    }

    #[test]
    fn a_page_of_an_old_version_does_not_begin_the_next_one() {
        let dir = Fid::new(1, 1, 1);
        let (first, second) = (listed(1), listed(2));
        let mut tables = tables(1 << 20);
        let before = tables.before(dir);
        let early = tables
            .put_listing(&before, dir, DataVersion(7), std::slice::from_ref(&first))
            .1
            .unwrap();
        // Before the reader that listed it reports its position, another client changes the
        // directory, and a lookup meets that.
        tables.on_break(&[broken(dir, BreakReason::Data)]);
        let before = tables.before(dir);
        tables.put_name(&before, dir, DataVersion(8), &name("met"), Fid::new(1, 8, 8));
        let joined = tables.listed(dir, early, Cookie::START, Cookie(1));
        let late = tables
            .put_listing(&before, dir, DataVersion(8), std::slice::from_ref(&second))
            .1
            .unwrap();
        if tables.listed(dir, late, Cookie(1), Cookie(2)) {
            tables.complete(dir, DataVersion(8), late);
        }
        assert!(
            !joined && matches!(tables.lookup(dir, &first.name), Cached::Unknown),
            "its first page is not known"
        );
    }

    #[test]
    fn a_million_listed_files_take_less_than_240_bytes_each() {
        const FILES: u64 = 1_000_000;
        let mut tables = tables(1 << 30);
        let dir = Fid::new(1, 1, 1);
        for first in (1..=FILES).step_by(500) {
            let before = tables.before(dir);
            let page: Vec<DirEntry> = (first..first + 500).map(listed).collect();
            assert!(tables.put_listing(&before, dir, DataVersion(7), &page).1.is_some());
            for entry in page {
                tables.put(
                    before.snapshot,
                    Status { fid: entry.fid, ..status(entry.fid.vnode.0, 1) },
                );
                tables.nodes.refer(entry.fid);
            }
        }
        assert_eq!(tables.nodes.len() as u64, FILES + 1);
        let each = (tables.nodes.allocated() + tables.names) as u64 / FILES;
        assert!(each <= 240, "{each} bytes a file");
    }

    #[test]
    fn a_file_opened_once_is_packed_again_without_loss() {
        let mut tables = tables(1 << 24);
        let snapshot = tables.holder.begin();
        let fid = |n: u64| Fid::new(1, 2 * n, 1);
        for n in 1..=5000u64 {
            tables.put(snapshot, status(2 * n, 3));
            let node = tables.nodes.node(fid(n));
            (node.lookups, node.known, node.bare, node.opens) =
                (7, DataVersion(3), true, u32::from(n == 9));
        }
        tables.nodes.sweep(0);
        let whole: Vec<Fid> = tables.nodes.each_whole().map(|(fid, _)| *fid).collect();
        assert_eq!(whole, [fid(9)], "the open one");
        let node = tables.nodes.get(&fid(10)).unwrap();
        assert_eq!(
            (node.lookups, node.known, node.bare, node.valid),
            (7, DataVersion(3), true, true)
        );
        assert_eq!(node.status, Some(status(20, 3)));
        drop(node);
        assert_eq!(
            tables.put(snapshot, status(20, 2)),
            (status(20, 3), true),
            "an older answer changes nothing"
        );
        assert_eq!(tables.put(snapshot, status(20, 4)), (status(20, 4), true));
        assert_eq!(
            tables.nodes.get(&fid(10)).unwrap().known,
            DataVersion::NONE,
            "nothing of this version"
        );
    }

    #[test]
    fn cb4_lease_end_ends_answers_and_a_loss_forgets_versions() {
        let mut tables = tables(1 << 20);
        let snapshot = tables.holder.begin();
        tables.put(snapshot, status(2, 9));
        tables.holder.on_lease_lost();
        tables.void();
        assert_eq!(tables.status(Fid::new(1, 2, 1)), None);
        tables.holder.on_renewed(clock::now());
        let snapshot = tables.holder.begin();
        tables.put(snapshot, status(2, 3));
        assert_eq!(
            tables.status(Fid::new(1, 2, 1)),
            Some((status(2, 3), true)),
            "a server that lost changes counts anew"
        );
    }
}
