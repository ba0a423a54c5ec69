//! The kernel's node numbers: which file each means, and how many references the kernel has.
//!
//! A node's number is its vnode's; the root is 1 in both. In a mount of many volumes
//! (`flat_tree.rs`) the upper bits give the volume: its [`Slot`], which is 0 for the first. The
//! kernel counts its references to a node and returns them with forgets. A slot may be reused while
//! the kernel still knows the earlier file by the same number: the newer file then takes the number
//! over, together with the rest of the count (the kernel's forgets name only the number), and the
//! generation in the reply tells the kernel that the earlier one is gone. Such a number is *shared*
//! until the count is 0: meanwhile the count does not prove that the kernel has the newer file.
//!
//! The root may have a second number, [`SHOWN_ROOT`]. The kernel makes the inode of node 1 before
//! `INIT`, and so takes it for one whose POSIX ACL must never be cached (`ACL_DONT_CACHE`, which is
//! permanent since Linux 6.18.42): it would then request that ACL for every path through it of a
//! user other than the owner. So if the kernel requests ACLs, a mount that we make begins at the
//! directory [`ROOT_NAME`] of node 1: the same directory by an inode that is made later. Only this
//! process uses node 1 then.
//!
//! There is one node for each inode that the kernel has, which may be millions, and no budget can
//! drop one that the kernel may still name. So a node is two words in a row of neighbours, files or
//! directories with consecutive numbers, as those have that were made together: walking a tree
//! fills rows, which take half of what a map from numbers would. Data that only directories need is
//! stored elsewhere. In a mount with a keeper the rows are records, which a successor finds.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use keep::Words;
use parking_lot::Mutex;
use types::{Fid, Uniquifier, VnodeNo};

use crate::abi;
use crate::node_records::{NodeRecords, ROW_WORDS};

/// Each has a lock, which a request holds for some nanoseconds.
const SHARDS: usize = 16;
/// Nodes of a row: a row with one node takes far less than the kernel's own inode.
const ROW: usize = 8;

/// The second number of the root: the last one of the first slot, which no vnode has.
pub const SHOWN_ROOT: u64 = (1 << Slot::SHIFT) - 1;
/// The name of that directory in node 1; the table of mounts (`mountinfo`) shows it as the mounted
/// part of the file system.
pub const ROOT_NAME: &str = "tree";
/// The name of the hidden directory in the root (`submounts.rs`).
pub const HIDDEN_DIR: &str = ".rialto-porch";
/// Its number; no vnode has it.
pub const HIDDEN_DIR_NODE: u64 = u64::MAX - 1;

/// The inode number that programs see for this node.
pub const fn ino(number: u64) -> u64 {
    if number == SHOWN_ROOT { abi::ROOT_ID } else { number }
}

/// The generation that tells the kernel this file from others of the number. File handles have
/// it, so it is the same after a remount, and the volume is in it: a handle of another volume's
/// root, or of a volume that had this slot before, does not fit. The kernel keeps 32 bits, and 0
/// for the root that it made itself.
pub const fn generation(number: u64, fid: Fid) -> u64 {
    if number == abi::ROOT_ID { 0 } else { (fid.unique.0 ^ fid.volume.0) & 0xffff_ffff }
}

#[derive(Clone, Copy)]
struct Node {
    unique: Uniquifier,
    /// 0: the kernel has no reference.
    lookups: u64,
}

const NONE: Node = Node { unique: Uniquifier(0), lookups: 0 };

/// A node's row and its index there. Directories have odd numbers and files even ones, so each have
/// rows of their own.
fn place(number: u64) -> (u64, usize) {
    let (pair, parity) = (number / 2, number % 2);
    (pair / ROW as u64 * 2 + parity, pair as usize % ROW)
}

/// Words of a node in a record: its uniquifier, the kernel's references, a directory's parent.
const NODE_WORDS: usize = 3;
const _: () = assert!(ROW * NODE_WORDS == ROW_WORDS, "a record is one row");

/// Neighbouring nodes.
enum Row {
    Own(Box<[Node; ROW]>),
    /// For a successor too.
    Kept(Box<Words>),
}

impl Row {
    fn get(&self, at: usize) -> Node {
        match self {
            Row::Own(nodes) => nodes[at],
            Row::Kept(words) => Node {
                unique: Uniquifier(words.get(at * NODE_WORDS)),
                lookups: words.get(at * NODE_WORDS + 1),
            },
        }
    }

    fn set(&mut self, at: usize, node: Node) {
        match self {
            Row::Own(nodes) => nodes[at] = node,
            Row::Kept(words) => {
                words.set(at * NODE_WORDS, node.unique.0);
                words.set(at * NODE_WORDS + 1, node.lookups);
            }
        }
    }

    /// In a record a parent survives with its row.
    fn note_parent(&self, at: usize, parent: u64) {
        if let Row::Kept(words) = self {
            words.set(at * NODE_WORDS + 2, parent);
        }
    }

    fn parent(&self, at: usize) -> Option<u64> {
        match self {
            Row::Own(_) => None,
            Row::Kept(words) => Some(words.get(at * NODE_WORDS + 2)).filter(|parent| *parent > 0),
        }
    }

    fn nodes(&self) -> impl Iterator<Item = (usize, Node)> {
        let known = (0..ROW).map(|at| (at, self.get(at)));
        known.filter(|(_, node)| node.lookups > 0)
    }

    fn end(self) {
        if let Row::Kept(words) = self {
            words.end();
        }
    }
}

/// The inverse of [`place`].
fn number_at(row: u64, at: usize) -> u64 {
    (row / 2 * ROW as u64 + at as u64) * 2 + row % 2
}

/// The shard of a row.
fn shard_of(row: u64) -> usize {
    (row / 2 % SHARDS as u64) as usize
}

/// True for both numbers.
const fn is_root(number: u64) -> bool {
    ino(number) == abi::ROOT_ID
}

/// The volume of a mount that a number belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot(u16);

impl Slot {
    /// The slot of the volume whose root is the mount's.
    pub const FIRST: Slot = Slot(0);
    /// The position of the slot in a number. No volume has enough files for vnodes to reach it.
    const SHIFT: u32 = 48;

    /// The slot of volume number `count` after the first, from 0 on; `None` if there are no more.
    pub fn new(count: usize) -> Option<Slot> {
        // The last slot would give a root the number of the hidden directory.
        u16::try_from(count + 1).ok().filter(|slot| *slot < u16::MAX).map(Slot)
    }

    /// Its number, as [`Slot::numbered`] takes it.
    pub fn number(self) -> u64 {
        self.0.into()
    }

    /// The slot of this number, and its count after the first; `None` if it is the first or none.
    pub fn numbered(number: u64) -> Option<(Slot, usize)> {
        let count = usize::try_from(number.checked_sub(1)?).ok()?;
        Some((Slot::new(count)?, count))
    }

    /// The slot of a number.
    pub fn of(number: u64) -> Slot {
        Slot((number >> Self::SHIFT) as u16)
    }

    /// Added to the slot's vnodes.
    fn base(self) -> u64 {
        u64::from(self.0) << Self::SHIFT
    }
}

/// A part of the nodes, by rows.
#[derive(Default)]
struct Shard {
    rows: HashMap<u64, Row>,
    /// Of a directory: the node in which it was last seen, for `..` in listings.
    parents: HashMap<u64, u64>,
    /// Shared numbers, and when the kernel was last given a reference to each.
    shared: HashMap<u64, Instant>,
}

/// The nodes that the kernel may name.
pub struct KernelNodes {
    root: Fid,
    /// The number by which the kernel knows the root.
    root_number: AtomicU64,
    /// `None`: all numbers of the mount are this volume's.
    slot: Option<Slot>,
    shards: [Mutex<Shard>; SHARDS],
    /// Where rows are recorded.
    records: Option<NodeRecords>,
}

impl Shard {
    fn get(&self, number: u64) -> Option<Node> {
        let (row, at) = place(number);
        Some(self.rows.get(&row)?.get(at)).filter(|node| node.lookups > 0)
    }
}

impl KernelNodes {
    /// Has only the root, which is never forgotten.
    pub fn new(root: Fid) -> Self {
        KernelNodes {
            root,
            root_number: AtomicU64::new(abi::ROOT_ID),
            slot: None,
            shards: Default::default(),
            records: None,
        }
    }

    /// Records them from now on, and has those that a predecessor recorded.
    pub fn recorded(mut self, records: NodeRecords) -> Self {
        for (number, words) in records.rows() {
            let row = Row::Kept(Box::new(words));
            if self.slot.is_some_and(|slot| slot != Slot::of(number_at(number, 0))) {
                continue;
            }
            let shard = self.shards[shard_of(number)].get_mut();
            let parents = row.nodes().filter_map(|(at, _)| Some((at, row.parent(at)?)));
            shard.parents.extend(
                parents.filter(|_| number % 2 == 1).map(|(at, to)| (number_at(number, at), to)),
            );
            shard.rows.insert(number, row);
        }
        self.records = Some(records);
        self
    }

    /// For one of many volumes of a mount. The roots of all but the first are ordinary nodes.
    pub fn in_slot(root: Fid, slot: Slot) -> Self {
        KernelNodes { slot: Some(slot), ..Self::new(root) }
    }

    /// The volume's slot in the mount.
    pub fn slot(&self) -> Slot {
        self.slot.unwrap_or_default()
    }

    /// Whether the number belongs to this volume.
    pub fn has_number(&self, number: u64) -> bool {
        self.slot.is_none_or(|slot| slot == Slot::of(number))
    }

    /// Whether the file's vnode fits into a number.
    pub fn has_room(&self, fid: Fid) -> bool {
        self.slot.is_none() || Slot::of(fid.vnode.0) == Slot::FIRST
    }

    /// The root of the volume that is shown.
    pub fn root(&self) -> Fid {
        self.root
    }

    /// Sets whether the mount begins at the root's second number.
    pub fn shows_root(&self, as_second: bool) {
        self.root_number
            .store(if as_second { SHOWN_ROOT } else { abi::ROOT_ID }, Ordering::Release);
    }

    /// The kernel's number for the mount's root.
    pub fn root_number(&self) -> u64 {
        self.root_number.load(Ordering::Acquire)
    }

    /// The kernel's number for `fid`.
    pub fn number(&self, fid: Fid) -> u64 {
        let number = fid.vnode.0 | self.slot().base();
        if number == abi::ROOT_ID { self.root_number() } else { number }
    }

    fn shard(&self, node: u64) -> &Mutex<Shard> {
        &self.shards[shard_of(place(node).0)]
    }

    fn new_row(&self, number: u64) -> Row {
        let kept = self.records.as_ref().and_then(|records| records.row(number));
        kept.map_or_else(|| Row::Own(Box::new([NONE; ROW])), |words| Row::Kept(Box::new(words)))
    }

    /// The file that the kernel means.
    pub fn fid(&self, node: u64) -> Option<Fid> {
        if is_root(node) {
            return Some(self.root);
        }
        self.shard(node).lock().get(node).map(|found| self.fid_of(node, &found))
    }

    /// The file of this number without its uniquifier, for a number that the kernel has from a file
    /// handle.
    pub fn masked_fid(&self, number: u64) -> Fid {
        let vnode = if is_root(number) { self.root.vnode } else { self.vnode_of(number) };
        Fid { vnode, ..self.root }.masked()
    }

    fn vnode_of(&self, number: u64) -> VnodeNo {
        VnodeNo(number ^ self.slot().base())
    }

    /// All files that the kernel has are of one volume.
    fn fid_of(&self, number: u64, node: &Node) -> Fid {
        Fid { volume: self.root.volume, vnode: self.vnode_of(number), unique: node.unique }
    }

    /// As [`Self::refer`], of a file that was found in `parent`.
    pub fn remember(&self, fid: Fid, parent: u64) -> bool {
        let takes_over = self.refer(fid);
        if fid.vnode.is_directory() {
            self.set_parent(self.number(fid), parent);
        }
        takes_over
    }

    /// The directory was found in `parent`, if the kernel has it.
    pub fn set_parent(&self, number: u64, parent: u64) {
        let mut shard = self.shard(number).lock();
        if shard.get(number).is_some() {
            let (row, at) = place(number);
            shard.rows.get(&row).into_iter().for_each(|nodes| nodes.note_parent(at, parent));
            shard.parents.insert(number, parent);
        }
    }

    /// Counts a reference that the kernel is about to get to `fid`. Whether it may still have an
    /// earlier file by this number.
    pub fn refer(&self, fid: Fid) -> bool {
        let number = self.number(fid);
        debug_assert_eq!(fid.volume, self.root.volume, "a mount shows one volume");
        if is_root(number) {
            return false;
        }
        let mut shard = self.shard(number).lock();
        let (row, at) = place(number);
        let nodes = shard.rows.entry(row).or_insert_with(|| self.new_row(row));
        let former = nodes.get(at);
        nodes.set(at, Node { unique: fid.unique, lookups: former.lookups + 1 });
        let takes_over = former.lookups > 0 && former.unique != fid.unique;
        if takes_over || !shard.shared.is_empty() && shard.shared.contains_key(&number) {
            shard.shared.insert(number, Instant::now());
        }
        takes_over
    }

    /// Whether the kernel may still get the file, if it does not have it now: a reply with it may
    /// be on its way, but not for longer than `patience`.
    pub fn may_come(&self, fid: Fid, patience: Duration) -> bool {
        let number = self.number(fid);
        let is_young = |last: &Instant| last.elapsed() < patience;
        self.knows(fid) && self.shard(number).lock().shared.get(&number).is_none_or(is_young)
    }

    /// Subtracts `count` references. Returns the file if the kernel had it.
    pub fn forget(&self, node: u64, count: u64) -> Option<Fid> {
        let mut shard = self.shard(node).lock();
        let (row, at) = place(node);
        let nodes = shard.rows.get_mut(&row)?;
        let mut found = Some(nodes.get(at)).filter(|node| node.lookups > 0)?;
        found.lookups = found.lookups.saturating_sub(count);
        nodes.set(at, found);
        if nodes.nodes().next().is_none() {
            shard.rows.remove(&row).into_iter().for_each(Row::end);
        }
        if found.lookups == 0 {
            shard.parents.remove(&node);
            shard.shared.remove(&node);
        }
        Some(self.fid_of(node, &found))
    }

    /// Whether the kernel has, or is about to have, this file.
    pub fn knows(&self, fid: Fid) -> bool {
        self.fid(self.number(fid)) == Some(fid)
    }

    /// Whether the kernel has no node but the root of the mount.
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().rows.is_empty())
    }

    /// The parent of the directory, for `..`.
    pub fn parent(&self, node: u64) -> u64 {
        self.shard(node).lock().parents.get(&node).copied().unwrap_or_else(|| self.root_number())
    }

    /// Every file that the kernel may have, the mount's root first.
    pub fn all(&self) -> Vec<Fid> {
        let mut all: Vec<Fid> =
            if self.slot() == Slot::FIRST { vec![self.root] } else { Vec::new() };
        for shard in &self.shards {
            for (row, nodes) in &shard.lock().rows {
                let fids = nodes.nodes().map(|(at, node)| self.fid_of(number_at(*row, at), &node));
                all.extend(fids);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_known_until_every_reference_is_given_back() {
        let nodes = KernelNodes::new(Fid::new(7, 1, 1));
        let fid = Fid::new(7, 5, 9);
        assert_eq!(nodes.fid(5), None);
        nodes.remember(fid, 1);
        nodes.remember(fid, 3);
        assert_eq!(nodes.forget(5, 1), Some(fid));
        assert!(nodes.knows(fid));
        assert_eq!(nodes.parent(5), 3);
        assert_eq!(nodes.forget(5, 1), Some(fid));
        assert_eq!(nodes.forget(5, 1), None);
        assert_eq!(nodes.parent(5), 1, "nothing is left of it");
        assert!(!nodes.knows(fid));
        assert_eq!(nodes.fid(1), Some(Fid::new(7, 1, 1)), "the root is always there");
        assert_eq!(nodes.all(), vec![Fid::new(7, 1, 1)]);
    }

    #[test]
    fn the_root_has_two_numbers_and_is_known_by_one() {
        let root = Fid::new(7, 1, 1);
        for nodes in [KernelNodes::new(root), KernelNodes::in_slot(root, Slot::FIRST)] {
            for (second, number) in [(false, 1), (true, SHOWN_ROOT), (false, 1)] {
                nodes.shows_root(second);
                nodes.remember(root, 1);
                assert_eq!((nodes.number(root), nodes.parent(5), ino(number)), (number, number, 1));
                assert_eq!((nodes.fid(1), nodes.fid(SHOWN_ROOT)), (Some(root), Some(root)));
                assert!(nodes.knows(root) && nodes.is_empty() && nodes.has_number(SHOWN_ROOT));
                assert_eq!(nodes.forget(SHOWN_ROOT, 1), None);
            }
        }
        let other = KernelNodes::in_slot(root, Slot::new(0).unwrap());
        other.shows_root(true);
        assert_eq!(
            other.number(root),
            1 << 48 | 1,
            "roots of the other volumes are nodes as others are"
        );
    }

    #[test]
    fn neighbours_come_and_go_by_themselves() {
        let nodes = KernelNodes::new(Fid::new(7, 1, 1));
        let fids: Vec<Fid> = (2..100).map(|number| Fid::new(7, number, number + 5)).collect();
        fids.iter().for_each(|fid| _ = nodes.remember(*fid, 1));
        let mut all = nodes.all();
        all.sort_unstable();
        assert_eq!(all[0], Fid::new(7, 1, 1));
        assert_eq!(all[1..], fids);
        for (gone, fid) in fids.iter().enumerate() {
            assert_eq!(nodes.forget(fid.vnode.0, 1), Some(*fid));
            assert!(fids[..=gone].iter().all(|fid| !nodes.knows(*fid)));
            assert!(fids[gone + 1..].iter().all(|fid| nodes.knows(*fid)));
        }
        assert!(
            nodes.shards.iter().all(|shard| shard.lock().rows.is_empty()),
            "no row without a node"
        );
    }

    #[test]
    fn a_million_nodes_take_less_than_30_bytes_each() {
        const NODES: u64 = 1_000_000;
        let nodes = KernelNodes::new(Fid::new(7, 1, 1));
        (1..=NODES).for_each(|n| _ = nodes.remember(Fid::new(7, 2 * n, n), 1));
        let count = |of: fn(&Shard) -> usize| {
            nodes.shards.iter().map(|shard| of(&shard.lock()) as u64).sum::<u64>()
        };
        // A map of this kind has eight slots for seven that it can fill, and a byte beside each;
        // the allocator adds two words to a row.
        let slots =
            count(|shard| shard.rows.capacity()) * 8 / 7 * (size_of::<(u64, Row)>() as u64 + 1);
        let bytes =
            slots + count(|shard| shard.rows.len()) * (size_of::<[Node; ROW]>() as u64 + 16);
        assert!(bytes / NODES < 30, "{} bytes a node", bytes / NODES);
        assert!(nodes.shards.iter().all(|shard| shard.lock().parents.is_empty()));
    }

    #[test]
    fn a_reused_slot_belongs_to_the_newer_file_with_the_count() {
        let nodes = KernelNodes::new(Fid::new(7, 1, 1));
        assert!(!nodes.remember(Fid::new(7, 4, 9), 1));
        assert!(!nodes.remember(Fid::new(7, 4, 9), 1));
        assert!(nodes.remember(Fid::new(7, 4, 10), 1), "it takes the number over");
        assert_eq!(nodes.forget(4, 1), Some(Fid::new(7, 4, 10)));
        assert_eq!(nodes.fid(4), Some(Fid::new(7, 4, 10)));
        assert_eq!(nodes.forget(4, 1), Some(Fid::new(7, 4, 10)));
        assert!(
            nodes.knows(Fid::new(7, 4, 10)),
            "one of the two references was the earlier file's"
        );
        assert!(nodes.may_come(Fid::new(7, 4, 10), Duration::MAX));
        assert!(!nodes.may_come(Fid::new(7, 4, 10), Duration::ZERO), "perhaps both were");
        nodes.forget(4, 1);
        assert!(!nodes.remember(Fid::new(7, 4, 10), 1));
        assert!(nodes.may_come(Fid::new(7, 4, 10), Duration::ZERO), "the number is its own");
    }
}
