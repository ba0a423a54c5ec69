//! The volumes that this client has mounted below mount points, each once.
//!
//! Model. A mounted volume is one file system of the kernel, however many mount points lead to it:
//! two would each cache what is changed through the other. It has an *anchor*, a mount of it that
//! is attached nowhere. The first mount point gets a copy of the anchor, and each further one a
//! copy of the mount upon another mount point, with all that is mounted in it. All of them are one
//! peer group of the kernel (`mount(8)`, *shared subtree*): a mount inside one of them appears in
//! all. (It does not appear in the anchor: the kernel mounts nothing in a mount that is attached
//! nowhere.)
//!
//! A volume that is upon no mount point, and was not used between two sweeps, loses its anchor.
//! Then it ends with its last user: its cache manager sends its changes and ends too, and until
//! that is done the volume cannot be mounted anew.
//!
//! A volume that was removed from the cell loses its anchor and its cache manager at once. Its file
//! system stays for those who are in it, and answers them that their files are stale.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use types::VolumeId;
use venus::Volumes;

use crate::invalidation::Notifier;
use crate::mounting::{self, MountError, MountNumber, MountTable};
use crate::succession::{Anchor, Legacy};

/// Mounts of one client below the first. Each has a queue and two descriptors in the kernel, and a
/// cache manager here.
const VOLUMES_MAX: usize = 4096;
/// From this number on, volumes that are not in use leave before they have been idle for long.
const VOLUMES_MANY: usize = VOLUMES_MAX / 2;

/// A mount below another, in which volumes are mounted upon the mount points `E`. Dropping it
/// unmounts.
pub(crate) trait Submount<E>: Send + Sync {
    /// The volumes of its cell.
    fn volumes(&self) -> &Arc<Volumes>;

    /// Its volume.
    fn volume(&self) -> VolumeId;

    /// Whether the mount has ended for all users.
    fn is_over(&self) -> bool;

    /// Whether a request came since the last call.
    fn was_used(&self) -> bool;

    /// The mount points in it, if volumes are mounted upon them.
    fn edges(&self) -> Option<&Arc<E>>;

    /// Its number in the records for a successor, if there are any.
    fn legacy(&self) -> Option<&Legacy>;

    /// Has the mount points that a predecessor recorded; the argument has the mounts by their
    /// numbers. Returns what notifies its kernel.
    fn inherit(&self, mounts: &HashMap<u64, Arc<MountedVolume<E>>>) -> Arc<Notifier>;

    /// Waits until it is unmounted and every request is handled.
    fn wait(&self);
}

/// The mount points of one mount.
pub(crate) trait MountPoints {
    /// The number of volumes that are mounted upon them.
    fn count(&self) -> usize;

    /// Unmounts idle volumes.
    fn take_idle_away(&self);

    /// A present path of the mount itself, if it has one.
    fn present_path(&self) -> Option<PathBuf>;
}

/// A volume with its file system.
pub(crate) struct MountedVolume<E> {
    pub mount: Box<dyn Submount<E>>,
    /// `None`: it ends with its last user.
    anchor: Mutex<Option<Anchor>>,
    /// Whether a request came between the last two sweeps.
    used: AtomicBool,
    /// It was removed from the cell: a volume of its number is another one.
    removed: AtomicBool,
    /// It lost its anchor, and the kernel may be ending it.
    leaving: AtomicBool,
}

impl<E: MountPoints> MountedVolume<E> {
    /// A copy of it with all that is mounted in it, to be attached to a mount point.
    ///
    /// # Errors
    /// `EBUSY` if it ends; the kernel's.
    pub fn copy(&self) -> Result<OwnedFd, MountError> {
        let from_anchor = {
            let anchor = self.anchor.lock();
            mounting::copy(anchor.as_ref().ok_or(MountError::Device(Errno::BUSY))?.as_fd())?
        };
        let path = self.mount.edges().and_then(|edges| edges.present_path());
        let Some(from_place) = path.and_then(|path| mounting::copy_at(&path).ok()) else {
            return Ok(from_anchor);
        };
        // The path may have changed meanwhile.
        let is_same = mounting::number_of(from_place.as_fd())?
            .is_of_same_device(&mounting::number_of(from_anchor.as_fd())?);
        Ok(if is_same { from_place } else { from_anchor })
    }

    /// Whether nothing in it was asked for between the last two sweeps, nor is mounted in it.
    pub fn is_idle(&self) -> bool {
        !self.used.load(Ordering::Acquire)
            && self.mount.edges().is_none_or(|edges| edges.count() == 0)
    }

    /// Whether it can be attached once more.
    fn can_be_attached(&self) -> bool {
        !self.mount.is_over() && self.anchor.lock().is_some()
    }
}

/// All of them.
pub(crate) struct MountedVolumes<E> {
    all: Mutex<Vec<Arc<MountedVolume<E>>>>,
    /// Those that a request is mounting now.
    making: Mutex<Vec<(Arc<Volumes>, VolumeId)>>,
    table: MountTable,
    /// Signals that a sweep is wanted.
    crowded: (Mutex<bool>, Condvar),
}

impl<E> Default for MountedVolumes<E> {
    fn default() -> Self {
        let (all, making, table, crowded) = Default::default();
        MountedVolumes { all, making, table, crowded }
    }
}

/// While it exists, a request mounts the volume.
pub(crate) struct Making<'a, E>(&'a MountedVolumes<E>, VolumeId, &'a Arc<Volumes>);

impl<E> Drop for Making<'_, E> {
    fn drop(&mut self) {
        let Making(of, volume, volumes) = self;
        of.making.lock().retain(|(its, id)| id != volume || !Arc::ptr_eq(its, volumes));
    }
}

impl<E: MountPoints + 'static> MountedVolumes<E> {
    /// The volume, which the caller has opened, is mounted until the value is dropped.
    pub fn begin<'a>(&'a self, volumes: &'a Arc<Volumes>, volume: VolumeId) -> Making<'a, E> {
        self.making.lock().push((Arc::clone(volumes), volume));
        Making(self, volume, volumes)
    }

    /// Whether the volume, which is open, is just being mounted or unmounted: both end by
    /// themselves.
    pub fn is_changing(&self, volumes: &Arc<Volumes>, volume: VolumeId) -> bool {
        let is_made =
            |(its, id): &(Arc<Volumes>, VolumeId)| *id == volume && Arc::ptr_eq(its, volumes);
        let leaves = |one: &Arc<MountedVolume<E>>| {
            one.mount.volume() == volume
                && Arc::ptr_eq(one.mount.volumes(), volumes)
                && one.leaving.load(Ordering::Acquire)
        };
        self.making.lock().iter().any(is_made) || self.all.lock().iter().any(leaves)
    }

    /// The volume, if it is mounted and can be attached once more.
    pub fn find(&self, volumes: &Arc<Volumes>, volume: VolumeId) -> Option<Arc<MountedVolume<E>>> {
        let all = self.all.lock();
        let is_it = |one: &&Arc<MountedVolume<E>>| {
            one.mount.volume() == volume && Arc::ptr_eq(one.mount.volumes(), volumes)
        };
        all.iter().find(|one| is_it(one) && one.can_be_attached()).cloned()
    }

    /// Adds one that was just mounted, and is attached nowhere.
    pub fn add(&self, mount: Box<dyn Submount<E>>, anchor: Anchor) -> Arc<MountedVolume<E>> {
        let new = Arc::new(MountedVolume {
            mount,
            anchor: Mutex::new(Some(anchor)),
            used: AtomicBool::new(true),
            removed: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
        });
        let mut all = self.all.lock();
        all.push(Arc::clone(&new));
        if all.len() >= VOLUMES_MANY {
            *self.crowded.0.lock() = true;
            self.crowded.1.notify_all();
        }
        new
    }

    /// Whether no more can be mounted.
    pub fn is_full(&self) -> bool {
        self.all.lock().len() >= VOLUMES_MAX
    }

    /// Waits until it is time for a sweep: for `idle`, or until there are many; returns whether
    /// there are.
    pub fn wait_for_sweep(&self, idle: Duration) -> bool {
        let mut crowded = self.crowded.0.lock();
        if !*crowded {
            self.crowded.1.wait_for(&mut crowded, idle);
        }
        std::mem::take(&mut *crowded)
    }

    /// The anchors: copies of them are attached from now on.
    pub fn for_each_anchor(&self, mut change: impl FnMut(&Anchor)) {
        let all = self.all.lock().clone();
        all.iter().for_each(|one| one.anchor.lock().iter().for_each(&mut change));
    }

    /// Whether this copy of an anchor is in the tree.
    pub fn is_attached(&self, copy: &MountNumber) -> bool {
        self.table.has(copy)
    }

    /// Closes volumes whose mounts have ended.
    pub fn close_ended(&self) {
        let over: Vec<_> = self.all.lock().extract_if(.., |one| one.mount.is_over()).collect();
        for one in over {
            one.mount.legacy().into_iter().for_each(Legacy::end);
            if !one.removed.load(Ordering::Acquire) {
                one.mount.volumes().close(one.mount.volume());
            }
        }
    }

    /// The volume with these mount points was removed from the cell.
    pub fn removed(&self, edges: &E) {
        let is_it = |one: &&Arc<MountedVolume<E>>| {
            one.mount.edges().is_some_and(|its| std::ptr::eq(Arc::as_ptr(its), edges))
        };
        let Some(one) = self.all.lock().iter().find(is_it).cloned() else { return };
        if !one.removed.swap(true, Ordering::AcqRel) {
            // Its last changes cannot be sent.
            one.mount.volumes().close(one.mount.volume());
            drop(one.anchor.lock().take());
        }
    }

    /// Unmounts what was not used since the last call. `first` are the mount points of the first
    /// volume.
    pub fn sweep(&self, first: &E) {
        // Weakly: what else is known only here goes meanwhile.
        let all: Vec<Weak<MountedVolume<E>>> = self.all.lock().iter().map(Arc::downgrade).collect();
        for one in all.iter().filter_map(Weak::upgrade) {
            one.used.store(one.mount.was_used(), Ordering::Release);
        }
        // Those mounted later are deeper, as a rule, and keep those above them.
        for one in all.iter().rev().filter_map(Weak::upgrade) {
            one.mount.edges().iter().for_each(|edges| edges.take_idle_away());
        }
        first.take_idle_away();
        self.let_unused_go();
    }

    /// Has volumes end that are upon no mount point any more.
    pub fn let_unused_go(&self) {
        let anchors: Vec<(Anchor, Arc<MountedVolume<E>>)> = {
            let all = self.all.lock();
            // Nothing else knows it: it is upon no mount point.
            let unused = all.iter().filter(|one| Arc::strong_count(one) == 1 && one.is_idle());
            let unanchored = unused.filter_map(|one| {
                let anchor = one.anchor.lock().take()?;
                one.leaving.store(true, Ordering::Release);
                Some((anchor, Arc::clone(one)))
            });
            unanchored.collect()
        };
        // Not under the lock: if it was the last user, the kernel ends the file system now, which
        // may wait for its server.
        if let [_, ..] = anchors[..] {
            let ending = std::thread::Builder::new().name("mount-anchors".into());
            let end = move || {
                for (anchor, volume) in anchors {
                    drop(anchor);
                    volume.leaving.store(false, Ordering::Release);
                }
            };
            if let Err(error) = ending.spawn(end) {
                tracing::error!(%error, "no thread to end unused volumes");
            }
        }
        self.close_ended();
    }

    /// The first mount has ended: waits until the last user of each is gone.
    pub fn wait(&self) {
        let all = std::mem::take(&mut *self.all.lock());
        all.iter().for_each(|one| drop(one.anchor.lock().take()));
        all.iter().for_each(|one| one.mount.wait());
    }
}
