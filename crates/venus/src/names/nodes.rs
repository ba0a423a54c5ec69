//! The files that the client knows something of, stored compactly.
//!
//! For most files only the status is known: they are *plain*, and packed. Other files have more
//! (names, bytes, handles, delegations): they are *whole*. A plain file becomes whole when its node
//! is needed for a change. A sweep, each time the whole ones have doubled, packs those that have
//! only a status again. So a file that was opened once does not cost more for ever.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use types::{DataVersion, Fid, Kind, Name, Status, Timestamp};

use super::{CachedName, Delegation, DirNames, Generation, Listed, NodeIndex, Plain, Plains};
use crate::data::FileBytes;

#[derive(Default)]
pub(crate) struct Node {
    pub status: Option<Status>,
    pub valid: bool,
    /// The data version whose blocks are all known to be good (`verified_blocks.rs`).
    pub known: DataVersion,
    /// A handle that could map the body for writing was passed: the map may outlive it.
    pub mapped: bool,
    pub lookups: u64,
    pub opens: u32,
    /// The server has a hold for this session although the last name is gone.
    pub held: bool,
    /// Removals under way that reported to the server that the file is not open here: opens wait
    /// for them.
    pub removing: u32,
    /// The file's data, while it is open or has bytes here.
    pub file: Option<Arc<FileBytes>>,
    pub names: Option<Box<DirNames>>,
    /// Own changes of this directory under way, and how many began or ended.
    pub changing: u32,
    pub changes: u64,
    pub target: Option<Bytes>,
    /// Extended attributes that were asked for, absent ones too; valid as long as the status.
    pub xattrs: Option<HashMap<Bytes, Option<Bytes>>>,
    /// `xattrs` has all attributes: this client made the file. Valid as long as `xattrs`.
    pub bare: bool,
    /// The state of a directory's delegation, for a directory that this client changes.
    pub delegation: Option<Box<Delegation>>,
    pub sole: Option<(Fid, Generation)>,
    /// Number of the youngest journal entry about the file.
    pub pending: u64,
    /// Calls under way that change the file at the server: meanwhile nothing is answered here.
    pub away: u32,
    /// Last use, in [`Nodes::tick`]s.
    pub touched: u32,
}

impl Node {
    pub fn void(&mut self) {
        self.valid = false;
        self.forget_xattrs();
        if let Some(names) = &mut self.names {
            names.valid = false;
        }
    }

    /// Whether this is a file that has lost its last name.
    pub fn has_no_name(&self) -> bool {
        self.status.is_some_and(|it| it.links == 0 && it.kind != Kind::Directory)
    }

    pub fn forget_xattrs(&mut self) {
        self.xattrs = None;
        self.bare = false;
    }

    /// The cached value of an attribute: present, absent, or unknown.
    pub fn xattr(&self, name: &[u8]) -> Option<Option<Bytes>> {
        let known = self.xattrs.as_ref().and_then(|known| known.get(name).cloned());
        known.or(if self.bare { Some(None) } else { None })
    }

    /// Whether forgetting it would lose more than a cache.
    fn is_pinned(&self, landed: u64) -> bool {
        self.opens > 0
            || self.held
            || self.removing > 0
            || self.changing > 0
            || self.file.is_some()
            || self.pending > landed
            || self.away > 0
            || self.delegation.as_ref().is_some_and(|delegation| delegation.is_out())
    }

    /// The plain file with the same content, if it fits.
    fn pack(&self, landed: u64) -> Option<Plain> {
        let more = self.names.is_some()
            || self.target.is_some()
            || self.xattrs.is_some()
            || self.delegation.is_some()
            || self.sole.is_some()
            || self.changes > 0
            || self.mapped;
        if more || self.is_pinned(landed) {
            return None;
        }
        let mut plain = Plain::new(&self.status?)?;
        plain.lookups = u32::try_from(self.lookups).ok()?;
        plain.valid = self.valid;
        plain.bare = self.bare;
        plain.is_known = self.known == plain.data_version();
        plain.touched = self.touched;
        Some(plain)
    }

    /// Whether the kernel writes the body, so that the status is uncertain.
    pub fn is_loaned(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.loaned.load(Ordering::Acquire))
    }

    /// Enters the status of an answer. The newer of it and the known status stays.
    fn enter(&mut self, status: Status, promised: bool) {
        match &self.status {
            Some(old) if old.status_version > status.status_version => {}
            Some(old) if old.status_version == status.status_version => {
                if !self.valid {
                    // The version does not cover whether access lists decide.
                    self.status = Some(status);
                }
                self.valid |= promised;
            }
            _ => {
                // An own change: another client's would have ended the promise.
                if !(self.valid && promised) {
                    self.forget_xattrs();
                }
                self.status = Some(status);
                self.valid = promised;
            }
        }
    }

    /// The status with unsent writes; whether the kernel may cache it.
    fn view(&self) -> Option<(Status, bool)> {
        Some(self.with_unsent(self.status?))
    }

    /// The status with unsent writes; whether the kernel may cache it, if it is this node's.
    fn with_unsent(&self, mut status: Status) -> (Status, bool) {
        let unsent = self.file.as_ref().filter(|file| file.unsent.load(Ordering::Acquire) > 0);
        if let Some(file) = unsent {
            status.size = status.size.max(file.floor.load(Ordering::Acquire));
        }
        let behind = || self.file.as_ref().is_some_and(|file| file.is_behind());
        (status, self.valid && unsent.is_none() && !self.is_loaned() && !behind())
    }
}

impl From<&Plain> for Node {
    fn from(plain: &Plain) -> Self {
        Node {
            status: Some(plain.status()),
            valid: plain.valid,
            known: if plain.is_known { plain.data_version() } else { DataVersion::NONE },
            lookups: plain.lookups.into(),
            bare: plain.bare,
            touched: plain.touched,
            ..Node::default()
        }
    }
}

/// A plain node is unpacked for one reading: a box would cost an allocation each time.
// A plain node is unpacked for one reading: a box would cost an allocation each time.
#[allow(clippy::large_enum_variant)]
pub(crate) enum NodeView<'a> {
    Whole(&'a Node),
    Plain(Node),
}

impl Deref for NodeView<'_> {
    type Target = Node;
    fn deref(&self) -> &Node {
        match self {
            NodeView::Whole(node) => node,
            NodeView::Plain(node) => node,
        }
    }
}

/// Memory of a whole file: its node and key in a map that is two thirds full. Data behind the
/// node's pointers is not counted, except names, which have a share of their own.
const WHOLE_BYTES: usize = (size_of::<Node>() + size_of::<Fid>()) * 3 / 2;

/// Fewer whole files are not worth a sweep.
const SWEEP_MIN: usize = 1024;

#[derive(Default)]
pub(crate) struct Nodes {
    whole: HashMap<Fid, Node>,
    plain: Plains,
    clock: u64,
    sweep_at: usize,
    /// Delegations so far.
    generations: u64,
}

/// The order in which files are dropped: those that the kernel refers to last, the longest unused
/// first.
fn rank(lookups: u64, touched: u32) -> u64 {
    u64::from(lookups > 0) << 32 | u64::from(touched)
}

impl Nodes {
    /// Counts uses, sixteen to a tick.
    fn tick(&mut self) -> u32 {
        self.clock += 1;
        (self.clock >> 4) as u32
    }

    /// The node of `fid`, to be changed.
    pub fn node(&mut self, fid: Fid) -> &mut Node {
        let tick = self.tick();
        let plain = &mut self.plain;
        let node = self
            .whole
            .entry(fid)
            .or_insert_with(|| plain.take(fid).as_ref().map(Node::from).unwrap_or_default());
        node.touched = tick;
        debug_assert!(self.plain.get(fid).is_none(), "CB-3: a file has one known state");
        node
    }

    /// The known state of `fid`.
    pub fn get(&self, fid: &Fid) -> Option<NodeView<'_>> {
        match self.whole.get(fid) {
            Some(node) => Some(NodeView::Whole(node)),
            None => self.plain.get(*fid).map(|plain| NodeView::Plain(plain.into())),
        }
    }

    pub fn whole(&self, fid: &Fid) -> Option<&Node> {
        self.whole.get(fid)
    }

    /// The node, to be changed, if it is whole.
    pub fn whole_mut(&mut self, fid: &Fid) -> Option<&mut Node> {
        let tick = self.tick();
        let node = self.whole.get_mut(fid)?;
        node.touched = tick;
        Some(node)
    }

    /// All whole nodes.
    pub fn each_whole(&mut self) -> impl Iterator<Item = (&Fid, &mut Node)> {
        self.whole.iter_mut()
    }

    /// Enters the status of an answer. Returns the status to be shown, and whether the kernel may
    /// cache it.
    pub fn enter(&mut self, status: Status, promised: bool) -> (Status, bool) {
        let tick = self.tick();
        if let Some(node) = self.whole.get_mut(&status.fid) {
            node.touched = tick;
            node.enter(status, promised);
            return node.view().unwrap_or((status, false));
        }
        if let Some(shown) = self.plain.enter(&status, promised, tick) {
            return shown;
        }
        let node = self.node(status.fid);
        node.enter(status, promised);
        node.view().unwrap_or((status, false))
    }

    /// A status that is not to be entered, as it is to be shown: the promised one if there is one,
    /// and with unsent writes.
    pub fn shown(&mut self, status: Status) -> Status {
        if let Some((known, _)) = self.view(status.fid) {
            return known;
        }
        self.whole.get(&status.fid).map_or(status, |node| node.with_unsent(status).0)
    }

    /// The status, if it is promised; and whether the kernel may cache it.
    pub fn view(&mut self, fid: Fid) -> Option<(Status, bool)> {
        let tick = self.tick();
        if let Some(node) = self.whole.get_mut(&fid) {
            node.touched = tick;
            return if node.valid { node.view() } else { None };
        }
        let plain = self.plain.get_mut(fid).filter(|plain| plain.valid)?;
        plain.touched = tick;
        Some((plain.status(), true))
    }

    /// A read is to be recorded: the status shows it from now on.
    pub fn set_accessed(&mut self, fid: Fid, at: Timestamp) {
        if let Some(plain) = self.plain.get_mut(fid) {
            plain.set_accessed(at);
        } else if let Some(status) = self.whole.get_mut(&fid).and_then(|node| node.status.as_mut())
        {
            status.accessed = at;
        }
    }

    /// The kernel has one more reference.
    pub fn refer(&mut self, fid: Fid) {
        match self.plain.get_mut(fid) {
            Some(plain) => plain.lookups = plain.lookups.saturating_add(1),
            None => self.node(fid).lookups += 1,
        }
    }

    /// The kernel has `count` references less. Returns whether a map of the file was possible, and
    /// is not any more.
    pub fn forget(&mut self, fid: Fid, count: u64) -> bool {
        if let Some(plain) = self.plain.get_mut(fid) {
            plain.lookups = u64::from(plain.lookups).saturating_sub(count) as u32;
        } else if let Some(node) = self.whole.get_mut(&fid) {
            node.lookups = node.lookups.saturating_sub(count);
            // An application that has it mapped keeps the kernel's reference.
            return node.lookups == 0 && std::mem::take(&mut node.mapped);
        }
        false
    }

    /// The promise of `fid` is over. Returns its node if it is a whole one.
    pub fn void(&mut self, fid: Fid) -> Option<&mut Node> {
        if let Some(plain) = self.plain.get_mut(fid) {
            plain.valid = false;
            plain.bare = false;
        }
        let node = self.whole.get_mut(&fid)?;
        node.void();
        Some(node)
    }

    /// All promises are over, and known versions are void.
    pub fn void_all(&mut self) {
        self.plain = Plains::default();
        for node in self.whole.values_mut() {
            node.void();
            node.status = None;
            node.known = DataVersion::NONE;
            node.names = None;
        }
    }

    pub fn fids(&self) -> Vec<Fid> {
        self.whole.keys().copied().chain(self.plain.iter().map(|(_, plain)| plain.fid())).collect()
    }

    pub fn len(&self) -> usize {
        self.whole.len() + self.plain.len()
    }

    /// Memory of all nodes, without names.
    pub fn bytes(&self) -> usize {
        self.whole.len() * WHOLE_BYTES + self.plain.bytes()
    }

    /// Whether it is time for [`Nodes::sweep`].
    pub fn is_untidy(&self) -> bool {
        self.whole.len() > self.sweep_at.max(SWEEP_MIN)
    }

    /// Packs whole files of which only the status is known. Journal entries up to `landed` do not
    /// prevent it.
    pub fn sweep(&mut self, landed: u64) {
        let held =
            |(fid, node): (&Fid, &Node)| Some((*fid, node.delegation.as_ref()?.generation()?));
        let held: HashMap<Fid, Generation> = self.whole.iter().filter_map(held).collect();
        let plain = &mut self.plain;
        self.whole.retain(|_, node| {
            // An ended delegation covers nothing.
            node.sole = node.sole.filter(|(dir, generation)| held.get(dir) == Some(generation));
            match node.pack(landed) {
                Some(packed) => {
                    plain.insert(packed);
                    false
                }
                None => true,
            }
        });
        self.sweep_at = self.whole.len() * 2;
    }

    /// Drops files that the kernel does not refer to first, the longest unused first, until
    /// `bytes_max` are left. Returns the bytes of names that were dropped.
    pub fn trim(&mut self, bytes_max: usize, landed: u64) -> usize {
        let surplus = self.bytes().saturating_sub(bytes_max);
        let wanted =
            (self.len() as u128 * surplus as u128).div_ceil(self.bytes().max(1) as u128) as usize;
        // One word for each file, because there are millions of files and this runs when memory is
        // scarce.
        let whole = self.whole.values().filter(|node| !node.is_pinned(landed));
        let whole = whole.map(|node| rank(node.lookups, node.touched));
        let plain = self.plain.iter().map(|(_, plain)| rank(plain.lookups.into(), plain.touched));
        let mut ranks: Vec<u64> = whole.chain(plain).collect();
        let Some(last) = wanted.min(ranks.len()).checked_sub(1) else { return 0 };
        let (below, limit, _) = ranks.select_nth_unstable(last);
        let limit = *limit;
        let mut at_limit = 1 + below.iter().filter(|rank| **rank == limit).count();
        let mut goes = |rank: u64| {
            let now = rank < limit || rank == limit && at_limit > 0;
            at_limit -= usize::from(now && rank == limit);
            now
        };
        let plain =
            self.plain.iter().filter(|(_, plain)| goes(rank(plain.lookups.into(), plain.touched)));
        let places: Vec<NodeIndex> = plain.map(|(place, _)| place).collect();
        for place in places {
            self.plain.remove(place);
        }
        let mut names = 0;
        self.whole.retain(|_, node| {
            let stays = node.is_pinned(landed) || !goes(rank(node.lookups, node.touched));
            names += node.names.as_ref().filter(|_| !stays).map_or(0, |names| names.bytes());
            stays
        });
        names
    }

    /// Directories with names, the longest unused first.
    pub fn named(&self) -> Vec<Fid> {
        let named = self.whole.iter().filter(|(_, node)| node.names.is_some());
        let mut order: Vec<(u32, Fid)> = named.map(|(fid, node)| (node.touched, *fid)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, fid)| fid).collect()
    }

    /// Bytes allocated for plain files.
    #[cfg(test)]
    pub fn allocated(&self) -> usize {
        self.plain.allocated()
    }
}

/// The files that delegations cover.
impl Nodes {
    /// The generation of `dir`'s delegation, if this client holds it.
    pub fn delegation(&self, dir: Fid) -> Option<Generation> {
        self.whole(&dir)?.delegation.as_ref()?.generation()
    }

    /// Whether a delegation covers the file: its own, or that of the directory whose sole child it
    /// is.
    pub fn covers(&self, fid: Fid) -> bool {
        let sole = || {
            let (dir, generation) = self.whole(&fid)?.sole?;
            Some(self.delegation(dir)? == generation)
        };
        self.delegation(fid).is_some() || sole() == Some(true)
    }

    /// Enters that the file is a sole child, from the answer to a call that was sent when `dir` had
    /// this delegation.
    pub fn put_sole(&mut self, dir: Fid, delegation: Option<Generation>, fid: Fid) {
        let Some(generation) = delegation.filter(|_| self.delegation(dir) == delegation) else {
            return;
        };
        if self.delegation(fid).is_none() {
            self.node(fid).sole = Some((dir, generation));
        }
    }

    /// The file that a name means, as far as it is known and not broken.
    pub fn known(&self, dir: Fid, name: &Name) -> CachedName {
        let names =
            self.whole(&dir).and_then(|node| node.names.as_ref()).filter(|names| names.valid);
        names.map_or(CachedName::Unknown, |names| names.get(name))
    }

    /// The server executed an own change in `dir`.
    pub fn own_change(&mut self, dir: Fid, removes: bool) {
        let delegation = self.node(dir).delegation.get_or_insert_default();
        delegation.note_own_change(removes);
    }

    pub fn hold_delegation(&mut self, dir: Fid) -> Generation {
        self.generations += 1;
        let generation = self.generations;
        let node = self.node(dir);
        node.sole = None;
        node.delegation.get_or_insert_default().become_held(generation);
        generation
    }

    /// The server recalls it. Returns whether it is to be returned now: otherwise that is under
    /// way, or happens when it arrives.
    pub fn recall(&mut self, dir: Fid) -> bool {
        self.node(dir).delegation.get_or_insert_default().recall()
    }

    /// How far `dir` was listed under its delegation.
    pub fn listed_sole(&self, dir: Fid) -> Listed {
        let delegation = self.whole(&dir).and_then(|node| node.delegation.as_ref());
        delegation.map_or(Listed::default(), |delegation| delegation.listed)
    }

    /// A page behind `from` was listed, unless another thread was quicker.
    pub fn set_listed_sole(&mut self, dir: Fid, from: Listed, to: Listed) {
        if self.listed_sole(dir).cookie == from.cookie
            && let Some(delegation) = self.node(dir).delegation.as_mut()
        {
            delegation.listed = to;
        }
    }

    /// Whether to ask for a directory before it is listed: the last change of its parent removed a
    /// name, so an application is removing a tree.
    pub fn is_removal_likely(&self, dir: Fid) -> bool {
        let removes = || {
            let above = self.whole(&dir)?.sole?.0;
            let removes = self.whole(&above)?.delegation.as_ref()?.removes;
            let delegation = self.whole(&dir)?.delegation.as_ref();
            let may = delegation.is_none_or(|delegation| delegation.may_ask());
            Some(removes && may && self.covers(dir))
        };
        removes() == Some(true)
    }

    /// The delegations of these directories were returned.
    pub fn returned(&mut self, dirs: &[Fid], pause: Duration) {
        for dir in dirs {
            let node = self.whole_mut(dir);
            if let Some(delegation) = node.and_then(|node| node.delegation.as_mut()) {
                delegation.come_home(pause);
            }
        }
    }
}
