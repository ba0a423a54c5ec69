//! Notifications to the kernel when something that it caches ends.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use types::{Cookie, Fid, Name};

/// The kernel's number of a backing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backing(pub i32);

/// Invalidates what the kernel caches. `mount` implements it with notifications; a test with a
/// recorder.
///
/// Venus calls it on a break *before* the acknowledgement, so the effect must be there on return:
/// the kernel uses nothing of it any more. A fid that the kernel does not know is no error. The
/// caller is a thread of the session: an implementation must not call into venus and not wait for a
/// request in flight, with one exception: pages of a *read* in flight, because a read never waits
/// for a break elsewhere. (Writers that wait in venus stop waiting when a break of their file
/// comes.)
///
/// A lookup's reply may be on its way into the kernel when its inode is invalidated.
/// [`crate::Venus::answering`] orders the two up to the device; if the kernel does not know the
/// inode yet although a lookup of it was just answered, the implementation notifies it again.
pub trait KernelPort: Send + Sync {
    /// The attributes and all pages of a file.
    fn inode_data(&self, fid: Fid);
    /// The names in a directory, absent ones too, its cached listing, and its attributes.
    fn directory(&self, fid: Fid);
    /// Everything that the kernel caches.
    fn all(&self);

    /// Permissions on all files: attributes and access lists. Names and pages stay.
    fn rights(&self) {}

    /// Whether [`Self::pass`] can work.
    ///
    /// # Errors
    /// The reason, for people.
    fn passes(&self) -> Result<(), &'static str> {
        Err("there is no kernel")
    }

    /// Whether the kernel's names in this directory end one by one ([`Self::name`]) where possible,
    /// because [`Self::directory`] costs more than it gains there.
    fn by_name(&self, _dir: Fid) -> bool {
        false
    }

    /// Ends one name in a directory. Returns whether it has ended: that may have to wait for
    /// requests in flight, and the implementation does not wait long.
    fn name(&self, _dir: Fid, _name: &Name) -> bool {
        false
    }

    /// Gives the kernel a body; `None` if it does not take it.
    fn pass(&self, _body: BorrowedFd<'_>) -> Option<Backing> {
        None
    }

    /// Opens from now on do not use this body.
    fn unpass(&self, _backing: Backing) {}

    /// Has the kernel list a page of a directory from this cookie on, soon, so that it knows the
    /// names. Returns whether it will; it asks through [`crate::Venus::readdir`] then.
    fn list(&self, _dir: Fid, _cookie: Cookie) -> bool {
        false
    }

    /// Gives the kernel all bytes of a file that no application has open, so that it need not ask
    /// for them. Returns whether it took them.
    fn fill(&self, _fid: Fid, _data: &[u8]) -> bool {
        false
    }
}

/// For a cache manager without a kernel.
pub struct NoKernel;

impl KernelPort for NoKernel {
    fn inode_data(&self, _: Fid) {}
    fn directory(&self, _: Fid) {}
    fn all(&self) {}
}

/// The kernel of the mount, and how often it was given a body.
pub(crate) struct Kernel {
    port: RwLock<Arc<dyn KernelPort>>,
    given: AtomicU64,
}

impl Default for Kernel {
    fn default() -> Self {
        Kernel { port: RwLock::new(Arc::new(NoKernel)), given: AtomicU64::new(0) }
    }
}

impl Kernel {
    pub fn port(&self) -> Arc<dyn KernelPort> {
        Arc::clone(&self.port.read())
    }

    pub fn set_port(&self, port: Arc<dyn KernelPort>) {
        *self.port.write() = port;
    }

    pub fn note_given(&self) {
        self.given.fetch_add(1, Ordering::Relaxed);
    }

    pub fn given(&self) -> u64 {
        self.given.load(Ordering::Relaxed)
    }
}
