//! A call that waits for its answer, and the thread that sleeps on it.

use std::sync::Arc;
use std::time::Instant;

use mem::arena::Buffer;
use parking_lot::{Condvar, Mutex};
use types::{Answer, Call, Fid, ReplyAddress};

use super::placed::is_placed;
use crate::kept::Receipt;
use crate::{CallError, Completed, CompletionGroup, Reply};

/// Shared by the thread that called and the one that receives the answer.
#[derive(Debug, Default)]
pub(crate) struct PendingCall {
    /// A successor of this process may need the answer until the caller has used it.
    pub keeps_answer: bool,
    /// Of a change: the file that it names.
    pub change: Option<NamedChange>,
    /// It is not sent after the connection broke ([`crate::Cancel::of_session`]).
    pub is_of_session: bool,
    /// No thread waits for this call.
    group: Option<GroupCall>,
    state: Mutex<State>,
    changed: Condvar,
}

/// A call that completes into a group.
#[derive(Debug)]
struct GroupCall {
    group: Arc<CompletionGroup>,
    /// The number under which it does.
    tag: u64,
    /// Where its answer's data belongs.
    memory: Option<Arc<Buffer>>,
}

impl GroupCall {
    /// Puts data that came over a socket where it belongs, and completes.
    fn complete(&self, result: Result<Reply, CallError>) {
        if let (Ok(Reply { answer: Answer::Data { data, .. }, .. }), Some(memory)) =
            (&result, &self.memory)
            && !is_placed(data)
        {
            memory.fill_from(data);
        }
        self.group.complete(Completed { tag: self.tag, result });
    }
}

/// A call that may change something on a partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedChange {
    /// The file that it names.
    pub fid: Fid,
    /// It has something to write, or makes or removes an entry.
    pub is_real: bool,
}

impl NamedChange {
    /// The change of a call; `of`: the file that a call of its chain named, instead of
    /// [`Fid::CURRENT`].
    pub fn of(call: &Call, of: Option<Fid>) -> Option<NamedChange> {
        let named = call.files()[0].copied().filter(|_| call.changes())?;
        let fid = if named == Fid::CURRENT { of? } else { named };
        let call = if let Call::Delegated { call, .. } = call { call } else { call };
        let is_real = match call {
            Call::Write { data, .. } => !data.is_empty(),
            Call::Make { .. } | Call::Remove { .. } | Call::Link { .. } => true,
            _ => false,
        };
        Some(NamedChange { fid, is_real })
    }

    /// Whether an answer shows that it changed something.
    pub fn is_certain(&self, answer: &Answer) -> bool {
        self.is_real && !matches!(answer, Answer::Made { existed: true, .. })
    }
}

#[derive(Debug, Default)]
struct State {
    /// The place of its request, if it was sent and has no answer, or an error.
    origin: Option<ReplyAddress>,
    result: Option<Result<Reply, CallError>>,
    /// Of an answer that is kept.
    receipt: Option<Receipt>,
    /// There was a result.
    ended: bool,
    /// Its answer does not count: a copy of the volume took over elsewhere.
    withdrawn: bool,
    /// The thread must check again: the reader's role may be free, or the call was cancelled.
    nudged: bool,
}

impl PendingCall {
    /// A call whose answer a successor of this process may need.
    pub fn keeping() -> Self {
        PendingCall { keeps_answer: true, ..PendingCall::default() }
    }

    /// A call that completes into a group, under a number.
    pub fn in_group(
        (group, tag): (&Arc<CompletionGroup>, u64),
        memory: Option<&Arc<Buffer>>,
        change: Option<NamedChange>,
    ) -> Self {
        let group = GroupCall { group: Arc::clone(group), tag, memory: memory.cloned() };
        PendingCall { group: Some(group), change, ..PendingCall::default() }
    }

    /// A call, and whether a successor of this process may need its answer.
    pub fn of(keeps_answer: bool, change: Option<NamedChange>) -> Self {
        PendingCall { keeps_answer, change, ..PendingCall::default() }
    }

    /// The same call, which is not sent after the connection broke.
    pub fn of_session(self, is_of_session: bool) -> Self {
        PendingCall { is_of_session, ..self }
    }

    /// Ends the call with its result.
    pub fn finish(&self, result: Result<Reply, CallError>) {
        self.finish_with(result, None);
    }

    /// Ends the call with its result, which may be kept.
    pub fn finish_with(&self, result: Result<Reply, CallError>, receipt: Option<Receipt>) {
        let mut state = self.state.lock();
        state.receipt = receipt;
        debug_assert!(!state.ended, "DA-4: a call ends exactly once");
        state.ended = true;
        if let Some(group) = &self.group {
            return group.complete(result);
        }
        state.result = Some(result);
        self.changed.notify_one();
    }

    /// Notes the place of its request.
    pub fn sent_at(&self, origin: Option<ReplyAddress>) {
        self.state.lock().origin = origin;
    }

    /// The place of its request, if it is known.
    pub fn origin(&self) -> Option<ReplyAddress> {
        self.state.lock().origin
    }

    /// The volume was taken over by a copy elsewhere: an answer from here does not count any more.
    pub fn withdraw(&self) {
        self.state.lock().withdrawn = true;
    }

    /// Was it withdrawn?
    pub fn is_withdrawn(&self) -> bool {
        self.state.lock().withdrawn
    }

    /// Wakes the thread so that it checks again.
    pub fn nudge(&self) {
        self.state.lock().nudged = true;
        self.changed.notify_one();
    }

    /// Is the call over?
    pub fn is_done(&self) -> bool {
        self.state.lock().result.is_some()
    }

    /// Takes the result; it is returned once.
    pub fn take(&self) -> Option<Result<Reply, CallError>> {
        let mut state = self.state.lock();
        debug_assert!(!state.ended || state.result.is_some(), "DA-4: a result is taken once");
        state.result.take()
    }

    /// Does it have a receipt, or can it still get one, after its caller gave it up?
    pub fn has_receipt_or_waits(&self) -> bool {
        let state = self.state.lock();
        self.keeps_answer && (state.receipt.is_some() || !state.ended)
    }

    /// Takes the receipt of the answer, if that is kept.
    pub fn take_receipt(&self) -> Option<Receipt> {
        self.state.lock().receipt.take()
    }

    /// Sleeps until there is a result or a nudge, at most until `until`.
    pub fn sleep(&self, until: Option<Instant>) {
        let mut state = self.state.lock();
        while state.result.is_none() && !std::mem::take(&mut state.nudged) {
            match until {
                None => self.changed.wait(&mut state),
                Some(until) => {
                    if self.changed.wait_until(&mut state, until).timed_out() {
                        return;
                    }
                }
            }
        }
    }
}
