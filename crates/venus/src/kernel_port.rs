//! What the kernel is told when something that it caches ends.

use std::os::fd::BorrowedFd;

use types::{Fid, Name};

/// The kernel's number for a file that it reads and writes itself in place of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backing(pub i32);

/// Takes back what the kernel caches. `mount` implements it with notifications; a test with a
/// recorder.
///
/// Called on a break *before* it is acknowledged, so the effect must be there on return: nothing
/// that the kernel cached is used any more. A fid that the kernel does not know is no error. Called
/// from a thread of the session: an implementation must not call into venus and not wait for a
/// request in flight, with one exception: pages of a *read* in flight, because a read never waits
/// for a break elsewhere. (Writers that wait in venus are let go when a break of their file comes.)
///
/// A lookup's reply may be on its way into the kernel when its inode is invalidated.
/// [`crate::Venus::answering`] orders the two up to the device; a kernel that does not know the
/// inode yet although a lookup of it was just answered is asked again.
pub trait KernelPort: Send + Sync {
    /// The attributes and all pages of a file.
    fn inode_data(&self, fid: Fid);
    /// The names in a directory, those that are not there too, its cached listing, and its
    /// attributes.
    fn directory(&self, fid: Fid);
    /// Everything.
    fn all(&self);

    /// What users may do with any file: attributes and access lists. Names and pages stay.
    fn rights(&self) {}

    /// Whether [`Self::pass`] can work.
    ///
    /// # Errors
    /// Why not, for people.
    fn passes(&self) -> Result<(), &'static str> {
        Err("there is no kernel")
    }

    /// Whether names in this directory are to end one by one ([`Self::name`]) where that is
    /// possible, because [`Self::directory`] costs more than it gains there.
    fn by_name(&self, _dir: Fid) -> bool {
        false
    }

    /// One name in a directory. Whether it has ended: it may have to wait for requests in flight,
    /// and does not for long.
    fn name(&self, _dir: Fid, _name: &Name) -> bool {
        false
    }

    /// Gives the kernel a body; nothing if it does not take it.
    fn pass(&self, _body: BorrowedFd<'_>) -> Option<Backing> {
        None
    }

    /// No handle that is opened from now on has this body.
    fn unpass(&self, _backing: Backing) {}

    /// Has the kernel list a page of a directory from this cookie on, soon, so that it knows the
    /// names. Whether it will; it asks through [`crate::Venus::readdir`] then.
    fn list(&self, _dir: Fid, _cookie: u64) -> bool {
        false
    }

    /// Gives the kernel all bytes of a file that nobody has open, so that it need not ask for them.
    /// Whether it took them.
    fn fill(&self, _fid: Fid, _data: &[u8]) -> bool {
        false
    }
}

/// For users without a kernel.
pub struct NoKernel;

impl KernelPort for NoKernel {
    fn inode_data(&self, _: Fid) {}
    fn directory(&self, _: Fid) {}
    fn all(&self) {}
}
