//! A session some of whose calls wait while its gate is shut.

use std::sync::Arc;

use client::{CallError, Cancel, Events, Remote, Reply};
use parking_lot::{Condvar, Mutex};
use types::{Call, Caller};

#[derive(Default)]
struct Gate {
    shut: bool,
    waiting: usize,
}

pub struct Gated {
    session: Arc<dyn Remote>,
    waits: fn(&Call) -> bool,
    gate: Mutex<Gate>,
    opened: Condvar,
}

impl Gated {
    /// `waits`: the calls that the gate concerns. It is open at first.
    pub fn new(session: Arc<dyn Remote>, waits: fn(&Call) -> bool) -> Arc<Gated> {
        Arc::new(Gated { session, waits, gate: Mutex::default(), opened: Condvar::new() })
    }

    pub fn shut(&self) {
        self.gate.lock().shut = true;
    }

    pub fn open(&self) {
        self.gate.lock().shut = false;
        self.opened.notify_all();
    }

    /// Whether a call waits.
    pub fn has_waiting(&self) -> bool {
        self.gate.lock().waiting > 0
    }

    fn pass(&self) {
        let mut gate = self.gate.lock();
        gate.waiting += 1;
        while gate.shut {
            self.opened.wait(&mut gate);
        }
        gate.waiting -= 1;
    }
}

impl Remote for Gated {
    fn call(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Reply, CallError> {
        if (self.waits)(&call) {
            self.pass();
        }
        self.session.call(caller, call, cancel)
    }

    fn chain(&self, caller: &Caller, calls: Vec<Call>) -> Vec<Result<Reply, CallError>> {
        if calls.iter().any(self.waits) {
            self.pass();
        }
        self.session.chain(caller, calls)
    }

    fn set_events(&self, events: Arc<dyn Events>) {
        self.session.set_events(events);
    }

    fn passes_descriptors(&self) -> bool {
        self.session.passes_descriptors()
    }
}
