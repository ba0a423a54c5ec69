//! Breaks of directories in a mount with submounts.
//!
//! Usually a break of a directory ends every name that the kernel has of the mount
//! ([`KernelPort::directory`]), which takes no lock. But the kernel then detaches what is mounted
//! below such names. So where [`KernelPort::by_name`] says so, only the changed name ends. The
//! kernel's other names of the directory stay valid because every change is reported:
//!
//! - The server breaks before a change if this client has a promise of the directory, or has not
//!   acknowledged an earlier break of it (CB-1). So the client obtains a new promise, by asking for
//!   the directory's status, *before* it acknowledges the break. A change that comes between is a
//!   break of its own, handled in the same way.
//! - Each of these breaks names the entry that changed, or reports that none did (the status
//!   changed, or the server wanted the promise back). If it does neither, or the kernel does not
//!   drop the name in time, or the server cannot be asked, all names end.
//! - A directory that was removed had no entries any more, and gets none: the kernel's knowledge of
//!   it stays true, and no new promise is needed.

use types::{Answer, BreakItem, BreakReason, Call, Caller, Fid, Name};

use crate::base::KernelPort;
use crate::core::Core;

/// A directory whose other names stay in the kernel.
pub(crate) struct SparedEntries {
    pub dir: Fid,
    name: Option<Name>,
    removed: bool,
}

impl SparedEntries {
    /// For a break that is about to be entered.
    pub fn of(kernel: &dyn KernelPort, item: &BreakItem) -> Option<SparedEntries> {
        let unnamed = item.reason == BreakReason::Data && item.name.is_none();
        let spared = item.fid.vnode.is_directory() && !unnamed && kernel.by_name(item.fid);
        spared.then(|| SparedEntries {
            dir: item.fid,
            name: item.name.clone(),
            removed: item.reason == BreakReason::Removed,
        })
    }
}

impl Core {
    /// Ends the changed name, or all names.
    pub fn spare(&self, spared: &SparedEntries) {
        let kernel = self.ground.kernel.port();
        let ended = spared.name.as_ref().is_none_or(|name| kernel.name(spared.dir, name));
        if ended && (spared.removed || self.promise_again(spared.dir)) {
            kernel.inode_data(spared.dir);
        } else {
            kernel.directory(spared.dir);
        }
    }

    /// Asks for the directory's status; the answer carries a promise.
    fn promise_again(&self, dir: Fid) -> bool {
        let snapshot = self.ground.names.begin();
        let reply = self.ground.server.remote().call_urgently(
            &Caller::ROOT,
            Call::GetStatus { fid: dir },
            Some(self.ground.server.leaving()),
        );
        let Ok(Answer::Status(status)) = reply.map(|reply| reply.answer) else { return false };
        self.ground.names.lock().put(snapshot, status);
        true
    }
}
