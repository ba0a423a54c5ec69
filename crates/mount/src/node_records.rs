//! Records of the nodes that the kernel has, for a successor of this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keep::kind::NODES;
use keep::{Keep, Key, Words};

/// Words of a row.
pub const ROW_WORDS: usize = 24;

/// Where a mount's nodes are recorded.
pub struct NodeRecords {
    keep: Arc<Keep>,
    mount: u64,
    is_full: AtomicBool,
}

impl NodeRecords {
    /// Of the mount of this number.
    pub fn of(keep: &Arc<Keep>, mount: u64) -> Self {
        NodeRecords { keep: Arc::clone(keep), mount, is_full: AtomicBool::new(false) }
    }

    /// The rows that a predecessor left.
    pub fn rows(&self) -> Vec<(u64, Words)> {
        let ours = self.keep.keys(NODES).into_iter().filter(|key| key.major == self.mount);
        ours.filter_map(|key| Some((key.minor, self.keep.words(key, ROW_WORDS).ok()?))).collect()
    }

    /// A new row; `None` if it cannot be recorded.
    pub fn row(&self, number: u64) -> Option<Words> {
        let key = Key { kind: NODES, major: self.mount, minor: number };
        let row = self.keep.words(key, ROW_WORDS);
        row.inspect_err(|error| {
            if !self.is_full.swap(true, Ordering::Relaxed) {
                tracing::error!(%error, "a successor of this process would lack files");
            }
        })
        .ok()
    }

    /// The mount has ended.
    pub fn end(&self) {
        let ours = self.keep.keys(NODES).into_iter().filter(|key| key.major == self.mount);
        ours.for_each(|key| self.keep.remove(key));
    }
}
