//! After a server's restart: other calls wait while locks and holds are reclaimed.

use std::sync::Arc;

use types::{BootVerifier, Call, Caller};

use super::core::ReclaimGate;
use super::shared::Shared;
use crate::{CallError, Cancel, Events, Remote, Reply};

/// Sends the calls of the reclaim while the others wait.
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

    /// The owner of the events is set already.
    fn set_events(&self, _events: Arc<dyn Events>) {}

    fn passes_descriptors(&self) -> bool {
        self.shared.passes_descriptors()
    }
}

/// Starts the thread that reclaims. It repeats the reclaim if the server restarts again meanwhile.
pub(crate) fn begin(shared: &Arc<Shared>) {
    let spawned = std::thread::Builder::new().name("dafs-reclaim".into()).spawn({
        let shared = Arc::clone(shared);
        move || claim(&shared)
    });
    if let Err(error) = spawned {
        // Without a reclaim the server drops this client's locks when its grace period ends; calls
        // must not wait for ever.
        tracing::error!(
            %error,
            "no thread to reclaim locks with; the server drops them when its grace period ends"
        );
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
            debug_assert!(core.reclaiming, "CB-5: one thread reclaims, until the gate is open");
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
        if let Err(error) = shared.end_reclaim(restart) {
            tracing::warn!(%error, "the server did not accept the end of the reclaim");
        }
        let mut core = shared.core.lock();
        if core.gate == ReclaimGate::Reclaiming(restart) {
            core.gate = ReclaimGate::Open;
            drop(core);
            shared.changed.notify_all();
        }
    }
}
