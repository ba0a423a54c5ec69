//! What is known of files without their bytes: statuses, names, what the kernel refers to, what is open.
//!
//! Everything lies under one lock, so that an answer is entered, a break taken in and a cached answer given as one step
//! each: a break is either before an answer is entered (and [`Holder::promised`] then refuses it) or after (and takes it out).
//! Nobody does I/O under this lock.
//!
//! A status is *valid* while the server's promise for it holds. Answers may overtake each other, so the one with the
//! higher status version stays. A status that is not valid any more is kept for its versions only.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use client::clock;
use lease::{Holder, Snapshot};
use types::{BreakItem, Fid, Name, Status, VnodeSlots, VolumeId};

use crate::VenusConfig;
use crate::file::File;
use crate::lend::{Generation, Lend};
use crate::names::{Known, Names};

/// Everything about one file.
#[derive(Default)]
pub(crate) struct Node {
    pub status: Option<Status>,
    pub valid: bool,
    /// The data version of which all blocks are known (`known.rs`); 0: of none.
    pub known: u64,
    /// References of the kernel.
    pub lookups: u64,
    /// Open handles.
    pub opens: u32,
    /// The server keeps it for us although its last name went.
    pub held: bool,
    /// Removals under way that told the server that it is not open here: opens wait for them.
    pub removing: u32,
    /// Its bytes, while it is open or bytes are still here.
    pub file: Option<Arc<File>>,
    pub names: Option<Box<Names>>,
    /// Own changes of this directory under way, and how often one began or ended.
    pub changing: u32,
    pub changes: u64,
    /// A symbolic link's target, which never changes.
    pub target: Option<Bytes>,
    /// Extended attributes that were asked for, absent ones too; good as long as the status is valid.
    pub xattrs: Option<HashMap<Bytes, Option<Bytes>>>,
    /// There are no attributes beside those in `xattrs`: the file is ours from its first moment. Good as long as `xattrs` is.
    pub bare: bool,
    /// Of a directory that we change: how it stands with its delegation.
    pub lend: Option<Box<Lend>>,
    /// The delegation that covers it as a sole child.
    pub sole: Option<(Fid, Generation)>,
    /// The youngest entry of the journal about it.
    pub pending: u64,
    /// Calls under way at the server that change it: meanwhile nothing is answered here.
    pub away: u32,
    touched: u64,
}

impl Node {
    fn void(&mut self) {
        self.valid = false;
        self.forget_xattrs();
        if let Some(names) = &mut self.names {
            names.valid = false;
        }
    }

    pub fn forget_xattrs(&mut self) {
        self.xattrs = None;
        self.bare = false;
    }

    /// What is known of an attribute: its value, that it is absent, or nothing.
    pub fn xattr(&self, name: &[u8]) -> Option<Option<Bytes>> {
        let known = self.xattrs.as_ref().and_then(|known| known.get(name).cloned());
        known.or(if self.bare { Some(None) } else { None })
    }

    /// Whether forgetting it would lose more than a cache.
    fn pinned(&self, landed: u64) -> bool {
        self.opens > 0
            || self.held
            || self.removing > 0
            || self.changing > 0
            || self.file.is_some()
            || self.pending > landed
            || self.away > 0
            || self.lend.as_ref().is_some_and(|lend| lend.is_out())
    }

    /// Whether the kernel writes the body, so that its status is not known for certain.
    pub fn is_lent(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.lent.load(Ordering::Acquire))
    }

    /// The status with what was written here and not sent yet; whether the kernel may keep it.
    fn view(&self) -> Option<(Status, bool)> {
        let mut status = self.status?;
        let unsent = self.file.as_ref().filter(|file| file.unsent.load(Ordering::Acquire) > 0);
        if let Some(file) = unsent {
            status.size = status.size.max(file.floor.load(Ordering::Acquire));
        }
        Some((status, self.valid && unsent.is_none() && !self.is_lent()))
    }
}

/// What the cache says to a lookup.
pub(crate) enum Cached {
    Entry { status: Status, cacheable: bool },
    Absent,
    Unknown,
}

/// The moment before a lookup was sent, as its directory was.
pub(crate) struct Before {
    pub snapshot: Snapshot,
    changes: u64,
    quiet: bool,
}

#[derive(Default)]
pub(crate) struct Tables {
    pub holder: Holder,
    pub nodes: HashMap<Fid, Node>,
    /// Those nodes whose `file` is there.
    pub files: HashMap<Fid, Arc<File>>,
    /// Slots for new files that the server granted.
    pub slots: HashMap<VolumeId, Vec<VnodeSlots>>,
    /// Calls under way that change files that are not known here: meanwhile nothing is answered here.
    pub blind: u32,
    /// Delegations there were.
    pub generations: u64,
    /// What has landed of the journal.
    pub landed: Arc<AtomicU64>,
    names: usize,
    clock: u64,
    nodes_max: usize,
    names_max: usize,
}

impl Tables {
    pub fn new(config: &VenusConfig) -> Self {
        Tables {
            holder: Holder::new(config.lease),
            nodes_max: config.nodes_max,
            names_max: config.names_max,
            ..Tables::default()
        }
    }

    /// Whether anything may be answered from here now.
    pub fn trusted(&self) -> bool {
        self.holder.trusted(clock::now())
    }

    pub fn node(&mut self, fid: Fid) -> &mut Node {
        self.clock += 1;
        let clock = self.clock;
        let node = self.nodes.entry(fid).or_default();
        node.touched = clock;
        node
    }

    /// The status, if the cache may answer; and whether the kernel may keep it.
    pub fn status(&mut self, fid: Fid) -> Option<(Status, bool)> {
        if !self.trusted() {
            return None;
        }
        let clock = self.clock;
        let node = self.nodes.get_mut(&fid).filter(|node| node.valid)?;
        node.touched = clock;
        node.view()
    }

    /// Enters a status from an answer; returns it as it is to be shown, and whether the kernel may keep it.
    pub fn put(&mut self, snapshot: Snapshot, status: Status) -> (Status, bool) {
        let promised = self.holder.promised(status.fid, snapshot);
        let trusted = self.trusted();
        let node = self.node(status.fid);
        match &node.status {
            Some(old) if old.status_version > status.status_version => {}
            Some(old) if old.status_version == status.status_version => node.valid |= promised,
            _ => {
                // A change of ours: anybody else's would have ended the promise.
                if !(node.valid && promised) {
                    node.forget_xattrs();
                }
                node.status = Some(status);
                node.valid = promised;
            }
        }
        let (shown, cacheable) = node.view().unwrap_or((status, false));
        self.trim();
        (shown, cacheable && trusted)
    }

    /// What the cache says to a lookup.
    pub fn lookup(&mut self, dir: Fid, name: &Name) -> Cached {
        if !self.trusted() {
            return Cached::Unknown;
        }
        self.clock += 1;
        let clock = self.clock;
        let Some(node) = self.nodes.get_mut(&dir) else { return Cached::Unknown };
        node.touched = clock;
        let known = node.names.as_ref().filter(|names| names.valid).map_or(Known::Unknown, |names| names.get(name));
        match known {
            Known::Unknown => Cached::Unknown,
            Known::Absent => Cached::Absent,
            Known::File(fid) => match self.status(fid) {
                Some((status, cacheable)) => Cached::Entry { status, cacheable },
                None => Cached::Unknown,
            },
        }
    }

    /// The file that a name is known to mean, valid and trusted.
    pub fn resolve(&self, dir: Fid, name: &Name) -> Option<Fid> {
        let names = self.nodes.get(&dir)?.names.as_ref().filter(|names| names.valid && self.trusted())?;
        match names.get(name) {
            Known::File(fid) => Some(fid),
            Known::Absent | Known::Unknown => None,
        }
    }

    /// Before a lookup or listing of `dir` is sent.
    pub fn before(&self, dir: Fid) -> Before {
        let (changes, changing) = self.nodes.get(&dir).map_or((0, 0), |node| (node.changes, node.changing));
        Before { snapshot: self.holder.begin(), changes, quiet: changing == 0 }
    }

    /// Edits a directory's names, and keeps count.
    fn edit<R>(&mut self, dir: Fid, edit: impl FnOnce(&mut Names) -> R) -> R {
        let names = self.node(dir).names.get_or_insert_default();
        let before = names.len();
        let result = edit(names);
        let after = names.len();
        self.names = self.names + after - before;
        result
    }

    /// Enters what a lookup found; whether the kernel may keep the name.
    pub fn put_name(&mut self, before: &Before, dir: Fid, dir_version: u64, name: &Name, fid: Fid) -> bool {
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

    /// Enters that a lookup found nothing; whether the kernel may keep that. The refusal has no version: it is taken only if
    /// no change of ours ran beside it, under the version that is known.
    pub fn put_absent(&mut self, before: &Before, dir: Fid, name: &Name) -> bool {
        let promised = self.holder.promised(dir, before.snapshot);
        let Some(node) = self.nodes.get(&dir) else { return promised && self.trusted() && before.quiet };
        let alone = before.quiet && node.changes == before.changes;
        if !(promised && alone) {
            return false;
        }
        if node.names.as_ref().is_some_and(|names| names.valid) {
            self.edit(dir, |names| names.insert_absent(name));
        } else if let Some(version) = node.status.filter(|_| node.valid).map(|status| status.data_version) {
            self.edit(dir, |names| {
                if names.meet(version, true) {
                    names.insert_absent(name);
                }
            });
        }
        self.trusted()
    }

    /// Enters a part of a listing; whether the kernel may keep the names, and whether they were entered.
    pub fn put_listing(
        &mut self,
        before: &Before,
        dir: Fid,
        dir_version: u64,
        entries: &[(Name, Fid)],
    ) -> (bool, bool) {
        let promised = self.holder.promised(dir, before.snapshot);
        let room = self.names_max / 2;
        let entered = self.edit(dir, |names| {
            let may = names.meet(dir_version, promised) && names.len() + entries.len() <= room;
            if may {
                entries.iter().for_each(|(name, fid)| names.insert(name, *fid));
            }
            may
        });
        (promised && self.trusted(), entered)
    }

    /// A lookup in `dir` has to ask the server; from which cookie on to list the directory ahead, if it is time for that.
    pub fn missed(&mut self, dir: Fid) -> Option<u64> {
        self.nodes.get_mut(&dir)?.names.as_mut().filter(|names| names.valid)?.missed()
    }

    /// A page that was listed ahead has been entered by [`Tables::put_listing`]. Whether everything before it was too.
    pub fn listed(&mut self, dir: Fid, from: u64, cookie: u64) -> bool {
        self.edit(dir, |names| names.listed(from, cookie))
    }

    /// All of `dir` under `dir_version` has been entered by [`Tables::put_listing`].
    pub fn complete(&mut self, dir: Fid, dir_version: u64) {
        self.edit(dir, |names| {
            if names.version == dir_version {
                names.set_complete();
            }
        });
    }

    /// A directory that we made is known to be empty.
    pub fn made_directory(&mut self, snapshot: Snapshot, status: &Status) {
        let promised = self.holder.promised(status.fid, snapshot);
        let node = self.node(status.fid);
        if node.names.is_none() {
            node.names = Some(Box::new(Names::empty(status.data_version, promised)));
        }
    }

    /// A change of ours in `dir` is about to be sent.
    pub fn change_begins(&mut self, dir: Fid) {
        let node = self.node(dir);
        node.changing += 1;
        node.changes += 1;
    }

    /// It was answered or refused.
    pub fn change_ends(&mut self, dir: Fid) {
        let node = self.node(dir);
        node.changing -= 1;
        node.changes += 1;
    }

    /// A change of ours was answered with the directory's new status: `edit` does to the names what the change did.
    pub fn changed(&mut self, snapshot: Snapshot, dir: &Status, edit: impl FnOnce(&mut Names)) {
        let promised = self.holder.promised(dir.fid, snapshot);
        self.put(snapshot, *dir);
        self.edit(dir.fid, |names| {
            if names.advance(dir.data_version, promised) {
                edit(names);
            }
        });
    }

    /// A change may have been applied without our seeing its answer: nothing of `dir` is known any more.
    pub fn unsure(&mut self, dir: Fid) {
        let node = self.node(dir);
        node.void();
        let dropped = node.names.take().map_or(0, |names| names.len());
        self.names -= dropped;
    }

    /// The server ended promises; returns the files that are open here, whatever the reason: without a promise the server
    /// would not ask again before it drops one whose last name goes. They are held from now on.
    pub fn on_break(&mut self, items: &[BreakItem]) -> Vec<Fid> {
        self.holder.on_break(items);
        let mut held = Vec::new();
        for item in items {
            let Some(node) = self.nodes.get_mut(&item.fid) else { continue };
            node.void();
            node.lend.iter_mut().for_each(|lend| lend.others_change());
            if node.opens > 0 || node.held {
                node.held = true;
                held.push(item.fid);
            }
        }
        held
    }

    /// All promises are gone. Versions seen before mean nothing to a server that lost changes, so they are forgotten too.
    pub fn void(&mut self) {
        for node in self.nodes.values_mut() {
            node.void();
            node.status = None;
            node.known = 0;
            node.names = None;
        }
        self.names = 0;
    }

    /// Keeps within bounds: what the kernel does not refer to goes first, the longest unused first.
    fn trim(&mut self) {
        if self.nodes.len() > self.nodes_max {
            self.trim_nodes();
        }
        if self.names > self.names_max {
            self.trim_names();
        }
    }

    fn trim_nodes(&mut self) {
        let landed = self.landed.load(Ordering::Acquire);
        let mut order: Vec<(bool, u64, Fid)> = self
            .nodes
            .iter()
            .filter(|(_, node)| !node.pinned(landed))
            .map(|(fid, node)| (node.lookups > 0, node.touched, *fid))
            .collect();
        let surplus = (self.nodes.len() - self.nodes_max + self.nodes_max / 10 + 1).min(order.len());
        order.sort_unstable();
        for (_, _, fid) in order.into_iter().take(surplus) {
            let gone = self.nodes.remove(&fid).and_then(|node| node.names);
            self.names -= gone.map_or(0, |names| names.len());
        }
    }

    fn trim_names(&mut self) {
        let mut order: Vec<(u64, Fid)> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.names.is_some())
            .map(|(fid, node)| (node.touched, *fid))
            .collect();
        order.sort_unstable();
        for (_, fid) in order {
            if self.names <= self.names_max - self.names_max / 10 {
                return;
            }
            let gone = self.node(fid).names.take();
            self.names -= gone.map_or(0, |names| names.len());
        }
    }

    #[cfg(test)]
    pub fn counts(&self) -> (usize, usize) {
        (self.nodes.len(), self.names)
    }
}

#[cfg(test)]
mod tests {
    use types::{BreakReason, Timestamp};

    use super::*;

    fn status(vnode: u64, version: u64) -> Status {
        Status {
            fid: Fid::new(1, vnode, 1),
            kind: if vnode % 2 == 1 { types::Kind::Directory } else { types::Kind::File },
            mode: 0o644,
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
            data_version: version,
            status_version: version,
        }
    }

    fn tables(nodes_max: usize, names_max: usize) -> Tables {
        let mut tables = Tables::new(&VenusConfig { nodes_max, names_max, ..VenusConfig::default() });
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
        let mut tables = tables(10, 10);
        let snapshot = tables.holder.begin();
        tables.put(snapshot, status(2, 5));
        tables.put(snapshot, status(2, 4));
        assert_eq!(tables.status(Fid::new(1, 2, 1)), Some((status(2, 5), true)));
    }

    #[test]
    fn a_break_before_the_answer_leaves_nothing_to_trust() {
        let mut tables = tables(10, 10);
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
    fn a_refusal_beside_a_change_of_ours_is_not_remembered() {
        let mut tables = tables(10, 10);
        let dir = Fid::new(1, 1, 1);
        let snapshot = tables.holder.begin();
        tables.put(snapshot, status(1, 5));
        let before = tables.before(dir);
        tables.change_begins(dir);
        tables.changed(snapshot, &status(1, 6), |names| names.insert(&name("x"), Fid::new(1, 2, 1)));
        tables.change_ends(dir);
        assert!(!tables.put_absent(&before, dir, &name("x")), "asked before the change, heard after it");
        assert_eq!(tables.resolve(dir, &name("x")), Some(Fid::new(1, 2, 1)));
        let before = tables.before(dir);
        assert!(tables.put_absent(&before, dir, &name("y")));
        assert!(matches!(tables.lookup(dir, &name("y")), Cached::Absent));
    }

    #[test]
    fn a_directory_whose_promise_was_broken_and_did_not_change_knows_its_names_again() {
        let mut tables = tables(10, 10);
        let (dir, file) = (Fid::new(1, 1, 1), Fid::new(1, 2, 1));
        let before = tables.before(dir);
        tables.put(before.snapshot, status(2, 1));
        tables.put_name(&before, dir, 5, &name("x"), file);
        tables.on_break(&[broken(dir, BreakReason::Status)]);
        assert_eq!(tables.resolve(dir, &name("x")), None);
        let before = tables.before(dir);
        tables.put_name(&before, dir, 5, &name("y"), file);
        assert_eq!(tables.resolve(dir, &name("x")), Some(file));
        let before = tables.before(dir);
        tables.put_name(&before, dir, 6, &name("z"), file);
        assert_eq!(tables.resolve(dir, &name("x")), None);
    }

    #[test]
    fn memory_is_bounded_and_the_kernels_files_stay_longest() {
        let mut tables = tables(100, 50);
        let dir = Fid::new(1, 1, 1);
        for n in 1..=1000u64 {
            let before = tables.before(dir);
            let fid = Fid::new(1, 2 * n, 1);
            if n <= 20 {
                tables.node(fid).lookups = 1;
            }
            tables.put(before.snapshot, status(2 * n, 1));
            tables.put_name(&before, dir, 7, &name(&n.to_string()), fid);
            let (nodes, names) = tables.counts();
            assert!(nodes <= 102 && names <= 51, "{nodes} nodes, {names} names");
        }
        let kept = (1..=20).filter(|n| tables.nodes.contains_key(&Fid::new(1, 2 * n, 1))).count();
        assert_eq!(kept, 20);
    }

    #[test]
    fn the_end_of_the_lease_ends_answers_and_a_loss_forgets_versions() {
        let mut tables = tables(10, 10);
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
