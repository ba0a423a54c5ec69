//! The requests of a predecessor that have no answer, or one that their callers may not have used.
//!
//! The kernel makes a request again that the predecessor had in progress. The request is executed
//! from its beginning, and where it makes a change that equals an orphan it gets the orphan's
//! answer: otherwise a directory that the orphan made would exist already. Each orphan is taken
//! once, the oldest of equal ones first.

use std::collections::HashSet;
use std::sync::Arc;

use dafs::CallId;
use types::{Call, Caller, CreateHow};

use super::pending::PendingCall;
use crate::kept::Receipt;

#[derive(Debug, Default)]
pub(crate) struct Orphans {
    all: Vec<Orphan>,
    /// All requests of the predecessor that wait for their answers, also those that change nothing.
    unanswered: HashSet<CallId>,
}

/// The call without what a successor says otherwise of the same change: whether a file that loses
/// its name is open, and the number that tells an exclusive creation from others.
fn without_hints(call: &Call) -> Call {
    let mut call = call.clone();
    match &mut call {
        Call::Remove { hold, .. } | Call::Rename { hold, .. } => *hold = false,
        Call::SetStatus { change, .. } => change.hold = false,
        Call::Make { how, .. } if matches!(how, CreateHow::Exclusive(_)) => {
            *how = CreateHow::Guarded;
        }
        _ => {}
    }
    call
}

#[derive(Debug)]
struct Orphan {
    id: CallId,
    caller: Caller,
    call: Call,
    pending: Arc<PendingCall>,
}

impl Orphans {
    /// Adds a request that waits for its answer.
    pub fn wait_for(&mut self, id: CallId) {
        self.unanswered.insert(id);
    }

    /// Adds a change that a repeated request may take.
    pub fn add(&mut self, id: CallId, caller: Caller, call: Call, pending: Arc<PendingCall>) {
        self.all.push(Orphan { id, caller, call, pending });
    }

    /// A call is answered.
    pub fn answered(&mut self, id: CallId) {
        if !self.unanswered.is_empty() {
            self.unanswered.remove(&id);
        }
    }

    /// Does a request wait for its answer?
    pub fn any_waits(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// Takes the oldest orphan that equals this call of the same user. The predecessor may have
    /// looked up groups after a first answer that asked for them, and it knew which files are open.
    pub fn take(&mut self, caller: &Caller, call: &Call) -> Option<(CallId, Arc<PendingCall>)> {
        let same =
            |one: &Caller| (one.uid, one.gid, one.who) == (caller.uid, caller.gid, caller.who);
        let call = without_hints(call);
        let is_it = |one: &Orphan| same(&one.caller) && without_hints(&one.call) == call;
        let same = self.all.iter().enumerate().filter(|(_, one)| is_it(one));
        let (at, _) = same.min_by_key(|(_, one)| one.id)?;
        let Orphan { id, pending, .. } = self.all.remove(at);
        Some((id, pending))
    }

    /// Leaves all to the next process.
    pub fn leave(&mut self) {
        let receipts = self.all.drain(..).filter_map(|one| one.pending.take_receipt());
        receipts.for_each(Receipt::leave);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Forgets all; returns their calls, and which of them wait for a lock that no caller would
    /// give back.
    pub fn forget(&mut self) -> Vec<(CallId, bool)> {
        let waits = |call: &Call| matches!(call, Call::Lock { wait: true, .. });
        self.all.drain(..).map(|one| (one.id, waits(&one.call))).collect()
    }
}
