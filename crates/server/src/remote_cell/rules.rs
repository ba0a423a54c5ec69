//! The cell's rules, when another server has the database: all of them in memory, fetched whenever one changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use guard::Rules;
use parking_lot::RwLock;
use types::{Answer, Call, Changed, Fault, Fence, GuardCall, Mandate, Revision, Seen};

use super::RemoteCell;

/// Rules in one answer.
const AT_ONCE: u32 = 1000;

/// See the head of the file. Revision 0: they were never fetched.
#[derive(Default)]
pub(super) struct Ruled {
    rules: RwLock<Arc<Seen<Rules>>>,
    at: AtomicU64,
}

impl Ruled {
    pub fn at(&self) -> Revision {
        Revision(self.at.load(Ordering::Acquire))
    }

    pub fn rules(&self) -> Arc<Seen<Rules>> {
        Arc::clone(&self.rules.read())
    }

    /// Whether they may be others after these changes; `None`: of more than anybody remembers.
    pub fn is_touched_by(&self, changes: Option<&[(Revision, Changed)]>) -> bool {
        let of_rules = |all: &[(Revision, Changed)]| all.iter().any(|(_, changed)| *changed == Changed::Rules);
        self.at() == Revision(0) || changes.is_none_or(of_rules)
    }

    fn set(&self, record: Rules, revision: Revision) {
        // A database without any change is at revision 0, and yet was asked.
        let revision = revision.max(Revision(1));
        *self.rules.write() = Arc::new(Seen { record, revision });
        self.at.store(revision.0, Ordering::Release);
    }
}

impl RemoteCell {
    /// Fetches all rules, as they are after revision `at` or later; false: the database cannot be asked.
    pub(super) fn fetch_rules(&self, at: Revision) -> bool {
        let fetched = self.all_fences().and_then(|fences| Ok(Rules { fences, mandates: self.all_mandates()? }));
        match fetched {
            Ok(rules) => {
                self.ruled.set(rules, at);
                true
            }
            Err(fault) => {
                tracing::warn!(%fault, "the cell's rules cannot be fetched");
                false
            }
        }
    }

    fn all_fences(&self) -> Result<Vec<Fence>, Fault> {
        let mut all: Vec<Fence> = Vec::new();
        loop {
            let after = all.last().map_or(0, |fence| fence.number);
            let Answer::Fences { fences, end } = self.rules_call(GuardCall::Fences { after, max: AT_ONCE })? else {
                return Err(Fault::Invalid);
            };
            let empty = fences.is_empty();
            all.extend(fences);
            if end || empty {
                return Ok(all);
            }
        }
    }

    fn all_mandates(&self) -> Result<Vec<Mandate>, Fault> {
        let mut all: Vec<Mandate> = Vec::new();
        loop {
            let after = all.last().map_or(0, |mandate| mandate.number);
            let Answer::Mandates { mandates, end } = self.rules_call(GuardCall::Mandates { after, max: AT_ONCE })?
            else {
                return Err(Fault::Invalid);
            };
            let empty = mandates.is_empty();
            all.extend(mandates);
            if end || empty {
                return Ok(all);
            }
        }
    }

    fn rules_call(&self, call: GuardCall) -> Result<Answer, Fault> {
        self.call(Call::Guard { behalf: None, call: Box::new(call) })
    }
}
