//! One volume as a mount shows it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

use types::Fid;
use venus::{Venus, Volumes};

use crate::invalidation::Notifier;
use crate::listings::Listings;
use crate::locks::MountLocks;
use crate::nodes::KernelNodes;

/// State that all requests in one volume share.
pub(crate) struct VolumeView {
    /// The volume's cache manager.
    pub venus: Arc<Venus>,
    /// The nodes that the kernel knows.
    pub nodes: Arc<KernelNodes>,
    /// Invalidates the kernel's caches.
    pub notifier: Arc<Notifier>,
    /// Directories that are being listed.
    pub listings: Listings,
    /// The owners of byte-range locks.
    pub locks: MountLocks,
    /// All volumes of its cell.
    pub volumes: Arc<Volumes>,
    /// The volume is read-only, and the kernel does not refuse changes by itself.
    pub refuses_changes: bool,
    /// A request came since [`Self::was_used`].
    used: AtomicBool,
    /// See [`Self::is_removed`].
    removed: Once,
}

impl VolumeView {
    pub fn new(
        venus: Arc<Venus>,
        nodes: Arc<KernelNodes>,
        notifier: Arc<Notifier>,
        volumes: Arc<Volumes>,
        refuses_changes: bool,
    ) -> Self {
        VolumeView {
            venus,
            nodes,
            notifier,
            listings: Listings::default(),
            locks: MountLocks::default(),
            volumes,
            refuses_changes,
            used: true.into(),
            removed: Once::new(),
        }
    }

    /// The volume was removed from the cell. The first caller has its mount points freed; others
    /// wait for that.
    pub fn note_removed(&self, give_way: impl FnOnce()) {
        self.removed.call_once(give_way);
    }

    /// Whether the volume was removed: its users are told that their files are stale.
    pub fn is_removed(&self) -> bool {
        self.removed.is_completed()
    }

    /// Counts a reference that the kernel is about to get to a file, found in `parent`. From here
    /// on a break of the file waits until the kernel has it: so nothing may wait for the server
    /// before the reply, since the server may be waiting for the break.
    pub fn remember(&self, fid: Fid, parent: u64) {
        if self.nodes.remember(fid, parent) {
            self.notifier.end_former(&[self.nodes.number(fid)]);
        }
    }

    /// A request came.
    pub fn note_use(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a request came since the last call.
    pub fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }
}
