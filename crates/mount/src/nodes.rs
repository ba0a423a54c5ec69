//! What the kernel's node numbers mean, and how often it was given each.
//!
//! A node's number is its vnode's; the root is 1 in both worlds. The kernel counts how often it was given a node and
//! takes that back with forgets. A slot may be used again while the kernel still knows the earlier file by the same number:
//! the newer file then takes the number over, together with what is left of the count (the kernel's forgets name only
//! the number), and the generation in the reply tells the kernel that the earlier one is dead.
//!
//! There is one for each inode that the kernel has, which may be millions: a node is three words, and what only directories
//! need lies elsewhere.

use std::collections::HashMap;

use parking_lot::Mutex;
use types::{Fid, Uniquifier, VnodeNo};

use crate::abi;

/// One lock each; a request takes one of them for some nanoseconds.
const SHARDS: usize = 16;

#[derive(Clone, Copy)]
struct Node {
    unique: Uniquifier,
    lookups: u64,
}

/// A part of the nodes, by number.
#[derive(Default)]
struct Shard {
    nodes: HashMap<u64, Node>,
    /// Of a directory: the node that it was last seen in, for listings to show as `..`.
    parents: HashMap<u64, u64>,
}

/// The nodes that the kernel may name.
pub struct Nodes {
    root: Fid,
    shards: [Mutex<Shard>; SHARDS],
}

impl Nodes {
    /// With nothing but the root, which is never forgotten.
    pub fn new(root: Fid) -> Self {
        Nodes { root, shards: Default::default() }
    }

    /// The kernel's number for `fid`.
    pub fn number(fid: Fid) -> u64 {
        fid.vnode.0
    }

    fn shard(&self, node: u64) -> &Mutex<Shard> {
        &self.shards[(node / 2 % SHARDS as u64) as usize]
    }

    /// The file that the kernel means.
    pub fn fid(&self, node: u64) -> Option<Fid> {
        if node == abi::ROOT_ID {
            return Some(self.root);
        }
        self.shard(node).lock().nodes.get(&node).map(|found| self.fid_of(node, found))
    }

    /// All files that the kernel has are of one volume.
    fn fid_of(&self, number: u64, node: &Node) -> Fid {
        Fid { volume: self.root.volume, vnode: VnodeNo(number), unique: node.unique }
    }

    /// The kernel is about to be given `fid`, found in `parent`.
    pub fn remember(&self, fid: Fid, parent: u64) {
        let number = Self::number(fid);
        debug_assert_eq!(fid.volume, self.root.volume, "a mount shows one volume");
        if number == abi::ROOT_ID {
            return;
        }
        let mut shard = self.shard(number).lock();
        let node = shard.nodes.entry(number).or_insert(Node { unique: fid.unique, lookups: 0 });
        node.lookups += 1;
        node.unique = fid.unique;
        if fid.vnode.is_directory() {
            shard.parents.insert(number, parent);
        }
    }

    /// The kernel gave `count` back. Returns the file if the kernel had it.
    pub fn forget(&self, node: u64, count: u64) -> Option<Fid> {
        let mut shard = self.shard(node).lock();
        let found = shard.nodes.get_mut(&node)?;
        found.lookups = found.lookups.saturating_sub(count);
        let found = *found;
        if found.lookups == 0 {
            shard.nodes.remove(&node);
            shard.parents.remove(&node);
        }
        Some(self.fid_of(node, &found))
    }

    /// Whether the kernel has, or is about to have, this very file.
    pub fn knows(&self, fid: Fid) -> bool {
        self.fid(Self::number(fid)) == Some(fid)
    }

    /// What `..` is in the directory.
    pub fn parent(&self, node: u64) -> u64 {
        self.shard(node).lock().parents.get(&node).copied().unwrap_or(abi::ROOT_ID)
    }

    /// Every file that the kernel may have, the root first.
    pub fn all(&self) -> Vec<Fid> {
        let mut all = vec![self.root];
        for shard in &self.shards {
            all.extend(shard.lock().nodes.iter().map(|(number, node)| self.fid_of(*number, node)));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_known_until_every_reference_is_given_back() {
        let nodes = Nodes::new(Fid::new(7, 1, 1));
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
    fn a_million_nodes_take_less_than_60_bytes_each() {
        const NODES: u64 = 1_000_000;
        let nodes = Nodes::new(Fid::new(7, 1, 1));
        (1..=NODES).for_each(|n| nodes.remember(Fid::new(7, 2 * n, n), 1));
        let slots: usize = nodes.shards.iter().map(|shard| shard.lock().nodes.capacity()).sum();
        // A map of this kind has eight slots for seven that it can fill, and a byte beside each.
        let bytes = slots as u64 * 8 / 7 * (size_of::<(u64, Node)>() as u64 + 1);
        assert!(bytes / NODES < 60, "{} bytes a node", bytes / NODES);
        assert!(nodes.shards.iter().all(|shard| shard.lock().parents.is_empty()));
    }

    #[test]
    fn a_reused_slot_belongs_to_the_newer_file_and_keeps_the_count() {
        let nodes = Nodes::new(Fid::new(7, 1, 1));
        nodes.remember(Fid::new(7, 4, 9), 1);
        nodes.remember(Fid::new(7, 4, 10), 1);
        assert_eq!(nodes.fid(4), Some(Fid::new(7, 4, 10)));
        assert_eq!(nodes.forget(4, 1), Some(Fid::new(7, 4, 10)));
        assert!(nodes.knows(Fid::new(7, 4, 10)), "one of the two references was the earlier file's");
    }
}
