//! Number of calls of each kind.

use std::sync::atomic::{AtomicU64, Ordering};

use types::{Call, Procedure};

/// Name under which delegated calls are counted, besides that of the inner call.
const DELEGATED: &str = "delegated";

/// Calls begun, by kind, repetitions included. The last place counts delegated calls.
pub(crate) struct CallCounters(Box<[AtomicU64]>);

impl Default for CallCounters {
    fn default() -> Self {
        CallCounters((0..=Procedure::ALL.len()).map(|_| AtomicU64::new(0)).collect())
    }
}

impl CallCounters {
    pub fn count(&self, call: &Call) {
        self.0[call.procedure().index()].fetch_add(1, Ordering::Relaxed);
        if matches!(call, Call::Delegated { .. }) {
            self.0[Procedure::ALL.len()].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Kinds of calls with their numbers, without zeros.
    pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
        let names = Procedure::ALL.iter().map(|procedure| procedure.traits().name);
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        names.chain([DELEGATED]).zip(counts).filter(|(_, count)| *count > 0).collect()
    }
}
