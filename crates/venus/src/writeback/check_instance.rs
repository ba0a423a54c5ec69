//! The server instances. Each has a boot verifier, which changes when the server may have lost
//! unstable changes.
//!
//! The client finds lost changes before an application sees the new instance's state: an
//! application that wrote bytes goes on reading them (`unstable_writes.rs`), and other losses are
//! reported (`unstable_metadata.rs`). So the client checks the verifier of each answer, since an
//! answer to an earlier question may come before the session reports the restart. A reader begins
//! again if a loss was found meanwhile. A move of the volume to another server loses nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use client::Reply;
use types::{BootVerifier, Status};

use crate::core::Core;
use crate::data::disk_cache::Edition;

impl Core {
    /// The edition of a file with this currently valid status.
    pub fn edition(&self, status: &Status) -> Edition {
        Edition::of(status, self.instance.life())
    }

    /// Takes the verifier of an answer to a call that was made when the volume was at this place.
    pub fn check_instance(&self, place: u64, reply: &Reply) {
        if let Some(verifier) = reply.verifier {
            self.learn(Some(place), verifier);
        }
    }

    /// The server now has this boot verifier.
    pub fn learn(&self, place: Option<u64>, verifier: BootVerifier) {
        let mut now = self.instance.now.lock();
        if place.is_some_and(|place| place != now.place) || now.verifier == Some(verifier) {
            return;
        }
        self.instance.life.store(verifier.0, Ordering::Release);
        if now.verifier.replace(verifier).is_some() && !self.is_local() {
            self.find_lost(verifier);
            self.instance.losses.fetch_add(1, Ordering::AcqRel);
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
