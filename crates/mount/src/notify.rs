//! Taking back what the kernel caches, when venus says so.
//!
//! Model. What the kernel keeps of us ends in three ways.
//! - *Attributes and pages* of an inode: `INVAL_INODE`. The kernel may not know the inode *yet*: a lookup's reply is on its way
//!   through the requester. So "no such inode" counts only once our own count of its references is 0 too; until then
//!   the notification is repeated. A reply that was sent before the notification and is taken in after it is refused by
//!   the kernel itself (it compares attribute versions).
//! - *Names* of a directory: never by name, because that takes the directory's lock, which a request that waits for us may hold
//!   (two clients could block each other through it). Instead the mount's epoch advances: every cached name of
//!   the mount is looked up again at its next use. A kernel without epochs is given no name to keep in the first place.
//! - *Pages with unwritten changes* of a mapping are written back first: that comes as `WRITE`, through another worker.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use types::Fid;
use venus::Invalidate;
use zerocopy::IntoBytes;

use crate::abi::{self, notify};
use crate::channel::Channel;
use crate::init::Agreement;
use crate::nodes::Nodes;

/// How long an inode that the kernel was given may stay unknown to it. A requester takes microseconds to take a reply in,
/// unless the machine is so loaded that it does not run; and it cannot use what it did not take in.
const PATIENCE: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// Tells one mount's kernel.
pub struct Notifier {
    channel: Arc<dyn Channel>,
    nodes: Arc<Nodes>,
    agreement: Agreement,
}

impl Notifier {
    /// For the mount behind `channel`.
    pub fn new(channel: Arc<dyn Channel>, nodes: Arc<Nodes>, agreement: Agreement) -> Self {
        Notifier { channel, nodes, agreement }
    }

    fn inode(&self, fid: Fid, off: i64) {
        let out = abi::NotifyInvalInode { ino: Nodes::number(fid), off, len: 0 };
        let began = Instant::now();
        let mut pause = FIRST_PAUSE;
        while self.nodes.knows(fid) {
            match self.channel.notify(notify::INVAL_INODE, &[IoSlice::new(out.as_bytes())]) {
                Err(Errno::NOENT) if began.elapsed() < PATIENCE => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(Errno::NOENT) => return tracing::warn!(%fid, "kernel does not know an inode that it was given"),
                result => return log(result, "inode"),
            }
        }
    }

    fn names(&self) {
        if self.agreement.has_epochs() {
            log(self.channel.notify(notify::INC_EPOCH, &[]), "names");
        }
    }
}

fn log(result: Result<(), Errno>, what: &str) {
    match result {
        // An unmounted file system caches nothing.
        Ok(()) | Err(Errno::NODEV | Errno::NOTCONN | Errno::CONNABORTED | Errno::PERM) => {}
        Err(error) => tracing::error!(%error, what, "kernel does not take a notification"),
    }
}

/// Attributes only.
const NO_PAGES: i64 = -1;
/// With length 0: all pages.
const ALL_PAGES: i64 = 0;

impl Invalidate for Notifier {
    fn inode_attributes(&self, fid: Fid) {
        self.inode(fid, NO_PAGES);
    }

    fn inode_data(&self, fid: Fid) {
        self.inode(fid, ALL_PAGES);
    }

    fn directory(&self, fid: Fid) {
        if self.nodes.knows(fid) {
            self.names();
        }
    }

    fn all(&self) {
        self.names();
        for fid in self.nodes.all() {
            self.inode(fid, ALL_PAGES);
        }
    }
}
