//! The server's lives. Each has a boot verifier, which changes when the server may have lost what
//! was not stable.
//!
//! What it lost is found before anybody here is given what it has now: whoever wrote bytes goes on
//! reading them (`unstable_writes.rs`), and what else is lost is told (`unstable_metadata.rs`). So
//! each answer is looked at, since one to an earlier question may come before the session says that
//! the server restarted; and who reads begins again if something was found lost meanwhile. Another
//! server, to which the volume moved, has lost nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::Reply;
use parking_lot::Mutex;
use types::{BootVerifier, Status};

use crate::core::Core;
use crate::disk_cache::Edition;

#[derive(Default)]
pub(crate) struct ServerInstance {
    /// Held while what was lost is looked for.
    now: Mutex<Now>,
    /// Its verifier; 0: nobody said. For those who have locks.
    life: AtomicU64,
    losses: AtomicU64,
}

#[derive(Default)]
struct Now {
    /// Counts the servers that the volume was on.
    place: u64,
    verifier: Option<BootVerifier>,
}

impl ServerInstance {
    /// Where the volume is; taken before a call whose answer is heard.
    pub fn place(&self) -> u64 {
        self.now.lock().place
    }

    /// How often something was found lost.
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// The server's life; 0: nobody said. Taken before a call whose answer is kept on the disk.
    pub fn life(&self) -> u64 {
        self.life.load(Ordering::Acquire)
    }

    pub fn moved(&self) {
        let mut now = self.now.lock();
        *now = Now { place: now.place + 1, verifier: None };
        self.life.store(0, Ordering::Release);
    }
}

impl Core {
    /// What a file has in it by a status that counts now.
    pub fn edition(&self, status: &Status) -> Edition {
        Edition::of(status, self.lives.life())
    }

    /// The answer of a call that was made when the volume was at this place.
    pub fn hear(&self, place: u64, reply: &Reply) {
        if let Some(verifier) = reply.verifier {
            self.learn(Some(place), verifier);
        }
    }

    /// The server is in this life now.
    pub fn learn(&self, place: Option<u64>, verifier: BootVerifier) {
        let mut now = self.lives.now.lock();
        if place.is_some_and(|place| place != now.place) || now.verifier == Some(verifier) {
            return;
        }
        self.lives.life.store(verifier.0, Ordering::Release);
        if now.verifier.replace(verifier).is_some() && !self.is_local() {
            self.find_lost(verifier);
            self.lives.losses.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn find_lost(&self, now: BootVerifier) {
        let this = self.this.get().and_then(std::sync::Weak::upgrade);
        for file in self.files() {
            if self.find_lost_bytes(&file, now)
                && let Some(core) = &this
            {
                Arc::clone(core).send_soon(&file);
            }
        }
        self.find_lost_changes(now);
    }
}
