//! The server instances. Each has a boot verifier, which changes when the server may have lost
//! unstable changes.
//!
//! The client finds lost changes before an application sees the new instance's state: an
//! application that wrote bytes goes on reading them (`unstable_writes.rs`), and other losses are
//! reported (`unstable_metadata.rs`). So the client checks the verifier of each answer, since an
//! answer to an earlier question may come before the session reports the restart. A reader begins
//! again if a loss was found meanwhile. A move of the volume to another server loses nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use types::BootVerifier;

#[derive(Default)]
pub(crate) struct ServerInstance {
    /// Held while the client searches for lost changes.
    pub now: Mutex<Now>,
    /// The verifier; 0: unknown. For threads that hold locks.
    pub life: AtomicU64,
    pub losses: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Now {
    /// Counts the servers that the volume was on.
    pub place: u64,
    pub verifier: Option<BootVerifier>,
}

impl ServerInstance {
    /// The volume's place; taken before a call whose answer is passed to [`Self::check_instance`].
    pub fn place(&self) -> u64 {
        self.now.lock().place
    }

    /// How many losses were found.
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// The server instance; 0: unknown. Taken before a call whose answer is stored on the disk.
    pub fn life(&self) -> u64 {
        self.life.load(Ordering::Acquire)
    }

    pub fn moved(&self) {
        let mut now = self.now.lock();
        *now = Now { place: now.place + 1, verifier: None };
        self.life.store(0, Ordering::Release);
    }
}
