//! One volume as a mount shows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
}

impl VolumeView {
    pub fn new(
        venus: Arc<Venus>,
        nodes: Arc<KernelNodes>,
        notifier: Arc<Notifier>,
        volumes: Arc<Volumes>,
        refuses_changes: bool,
    ) -> Self {
        let (listings, locks, used) = (Listings::default(), MountLocks::default(), true.into());
        VolumeView { venus, nodes, notifier, listings, locks, volumes, refuses_changes, used }
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
