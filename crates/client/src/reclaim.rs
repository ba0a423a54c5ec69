//! After a server's restart: other calls wait while locks and holds are claimed.

use std::sync::Arc;

use types::{BootVerifier, Call, Caller};

use crate::core::ReclaimGate;
use crate::shared::Shared;
use crate::{CallError, Cancel, Events, Remote, Reply};

/// Calls that go through while the others wait.
struct Reclaim {
    shared: Arc<Shared>,
}

impl Remote for Reclaim {
    fn call(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Reply, CallError> {
        self.shared.call(caller, call, cancel)
    }

    fn chain(&self, caller: &Caller, calls: Vec<Call>) -> Vec<Result<Reply, CallError>> {
        self.shared.chain(caller, calls)
    }

    fn boot_verifier(&self) -> Option<BootVerifier> {
        self.shared.core.lock().verifier
    }

    /// Whoever claims is told of things already.
    fn set_events(&self, _events: Arc<dyn Events>) {}

    fn passes_descriptors(&self) -> bool {
        self.shared.passes_descriptors()
    }
}

/// Starts the thread that claims. It goes on by itself if the server restarts once more meanwhile.
pub(crate) fn begin(shared: &Arc<Shared>) {
    let spawned = std::thread::Builder::new().name("dafs-reclaim".into()).spawn({
        let shared = Arc::clone(shared);
        move || claim(&shared)
    });
    if let Err(error) = spawned {
        // Without claims the server gives up our locks at the end of its grace; calls must not wait
        // for ever.
        tracing::error!(%error, "no thread to claim locks with");
        let mut core = shared.core.lock();
        core.gate = ReclaimGate::Open;
        core.reclaiming = false;
        drop(core);
        shared.changed.notify_all();
    }
}

fn claim(shared: &Arc<Shared>) {
    loop {
        let restart = {
            let mut core = shared.core.lock();
            match core.gate {
                ReclaimGate::Reclaiming(restart) => restart,
                ReclaimGate::Open => {
                    core.reclaiming = false;
                    return;
                }
            }
        };
        let events = shared.events.lock().events.clone();
        if let Some(events) = events {
            events.on_server_restarted(&Reclaim { shared: Arc::clone(shared) });
        }
        if let Err(error) = shared.call(&Caller::ROOT, Call::ReclaimDone, None) {
            tracing::warn!(%error, "the end of the reclaim was not taken");
        }
        let mut core = shared.core.lock();
        if core.gate == ReclaimGate::Reclaiming(restart) {
            core.gate = ReclaimGate::Open;
            drop(core);
            shared.changed.notify_all();
        }
    }
}
