//! What the kernel's node numbers mean, and how often it was given each.
//!
//! A node's number is its vnode's; the root is 1 in both worlds. The kernel counts how often it was given a node and
//! takes that back with forgets. A slot may be used again while the kernel still knows the earlier file by the same number:
//! the newer file then takes the number over, together with what is left of the count (the kernel's forgets name only
//! the number), and the generation in the reply tells the kernel that the earlier one is dead.

use std::collections::HashMap;

use parking_lot::Mutex;
use types::Fid;

use crate::abi;

/// One lock each; a request takes one of them for some nanoseconds.
const SHARDS: usize = 16;

#[derive(Clone, Copy)]
struct Node {
    fid: Fid,
    lookups: u64,
    /// Of a directory: the node that it was last seen in, for listings to show as `..`.
    parent: u64,
}

/// The nodes that the kernel may name.
pub struct Nodes {
    root: Fid,
    shards: [Mutex<HashMap<u64, Node>>; SHARDS],
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

    fn shard(&self, node: u64) -> &Mutex<HashMap<u64, Node>> {
        &self.shards[(node / 2 % SHARDS as u64) as usize]
    }

    /// The file that the kernel means.
    pub fn fid(&self, node: u64) -> Option<Fid> {
        if node == abi::ROOT_ID {
            return Some(self.root);
        }
        self.shard(node).lock().get(&node).map(|found| found.fid)
    }

    /// The kernel is about to be given `fid`, found in `parent`.
    pub fn remember(&self, fid: Fid, parent: u64) {
        let number = Self::number(fid);
        if number == abi::ROOT_ID {
            return;
        }
        let mut shard = self.shard(number).lock();
        let node = shard.entry(number).or_insert(Node { fid, lookups: 0, parent });
        node.lookups += 1;
        node.fid = fid;
        node.parent = parent;
    }

    /// The kernel gave `count` back. Returns the file if the kernel had it.
    pub fn forget(&self, node: u64, count: u64) -> Option<Fid> {
        let mut shard = self.shard(node).lock();
        let found = shard.get_mut(&node)?;
        found.lookups = found.lookups.saturating_sub(count);
        let fid = found.fid;
        if found.lookups == 0 {
            shard.remove(&node);
        }
        Some(fid)
    }

    /// Whether the kernel has, or is about to have, this very file.
    pub fn knows(&self, fid: Fid) -> bool {
        self.fid(Self::number(fid)) == Some(fid)
    }

    /// What `..` is in the directory.
    pub fn parent(&self, node: u64) -> u64 {
        self.shard(node).lock().get(&node).map_or(abi::ROOT_ID, |found| found.parent)
    }

    /// Every file that the kernel may have, the root first.
    pub fn all(&self) -> Vec<Fid> {
        let mut all = vec![self.root];
        for shard in &self.shards {
            all.extend(shard.lock().values().map(|node| node.fid));
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
        let fid = Fid::new(7, 4, 9);
        assert_eq!(nodes.fid(4), None);
        nodes.remember(fid, 1);
        nodes.remember(fid, 3);
        assert_eq!(nodes.forget(4, 1), Some(fid));
        assert!(nodes.knows(fid));
        assert_eq!(nodes.parent(4), 3);
        assert_eq!(nodes.forget(4, 1), Some(fid));
        assert_eq!(nodes.forget(4, 1), None);
        assert!(!nodes.knows(fid));
        assert_eq!(nodes.fid(1), Some(Fid::new(7, 1, 1)), "the root is always there");
        assert_eq!(nodes.all(), vec![Fid::new(7, 1, 1)]);
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
