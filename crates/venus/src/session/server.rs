//! The server of a volume, and its instances. Each instance has a boot verifier, which changes when
//! the server may have lost unstable changes.
//!
//! The client finds lost changes before an application sees the new instance's state: an
//! application that wrote bytes goes on reading them, and other losses are reported
//! (`calls/unstable.rs`). So the client checks the verifier of each answer, since an answer to
//! an earlier question may come before the session reports the restart. A reader begins again if a
//! loss was found meanwhile. A move of the volume to another server loses nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::{Cancel, Remote, Reply};
use parking_lot::Mutex;
use types::{BootVerifier, Call, Caller, Fault, Status};

use crate::base::{Error, RequestContext};
use crate::data::Edition;

pub(crate) struct Server {
    remote: Arc<dyn Remote>,
    /// Cancels background calls at the end.
    leaving: Cancel,
    /// Held while the client searches for lost changes.
    now: Mutex<Now>,
    /// The verifier; 0: unknown. For threads that hold locks.
    instance: AtomicU64,
    losses: AtomicU64,
}

#[derive(Default)]
struct Now {
    /// Counts the servers that the volume was on.
    place: u64,
    verifier: Option<BootVerifier>,
}

impl Server {
    pub fn new(remote: Arc<dyn Remote>) -> Self {
        let (now, instance, losses) = Default::default();
        Server { remote, leaving: Cancel::new(), now, instance, losses }
    }

    pub fn remote(&self) -> &dyn Remote {
        &*self.remote
    }

    /// The server is on this machine and passes descriptors: a crash of the machine ends both, so
    /// this client stores no unstable changes for it.
    pub fn is_local(&self) -> bool {
        self.remote.passes_descriptors()
    }

    /// Cancelled at the end.
    pub fn leaving(&self) -> &Cancel {
        &self.leaving
    }

    /// One call. Looks up the caller's groups and calls again if the server answers that they
    /// decide.
    ///
    /// # Errors
    /// The service's refusal, or why no answer came.
    pub fn ask(&self, request: &RequestContext<'_>, call: Call) -> Result<Reply, Error> {
        let Some(groups) = request.groups.filter(|_| request.caller.groups.is_none()) else {
            return Ok(self.remote.call(request.caller, call, request.cancel)?);
        };
        match self.remote.call(request.caller, call.clone(), request.cancel) {
            Err(error) if error.fault() == Some(Fault::GroupsNeeded) => {
                let caller = Caller { groups: Some(groups()), ..request.caller.clone() };
                Ok(self.remote.call(&caller, call, request.cancel)?)
            }
            first => Ok(first?),
        }
    }

    /// The volume's place; taken before a call whose answer is checked.
    pub fn place(&self) -> u64 {
        self.now.lock().place
    }

    /// How many losses were found.
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// The server instance; the default: unknown. Taken before a call whose answer is stored on the
    /// disk.
    pub fn instance(&self) -> BootVerifier {
        BootVerifier(self.instance.load(Ordering::Acquire))
    }

    /// The edition of a file with this currently valid status.
    pub fn edition(&self, status: &Status) -> Edition {
        Edition::of(status, self.instance())
    }

    /// The volume is on another server now.
    pub fn moved(&self) {
        let mut now = self.now.lock();
        *now = Now { place: now.place + 1, verifier: None };
        self.instance.store(0, Ordering::Release);
    }

    /// The server has this boot verifier, as an answer shows to a call that was made when the
    /// volume was at `place`. `find_lost` runs before any thread sees the new instance's state, if
    /// the server may have lost changes.
    pub fn learn(&self, place: Option<u64>, verifier: BootVerifier, find_lost: impl FnOnce()) {
        let mut now = self.now.lock();
        if place.is_some_and(|place| place != now.place) || now.verifier == Some(verifier) {
            return;
        }
        self.instance.store(verifier.0, Ordering::Release);
        if now.verifier.replace(verifier).is_some() && !self.is_local() {
            find_lost();
            self.losses.fetch_add(1, Ordering::AcqRel);
        }
    }
}
