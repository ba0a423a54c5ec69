//! Enforcement of the cell's rules (`cell/rules.rs`): the end of the sessions of fenced callers.

use std::sync::Arc;
use std::time::Duration;

use guard::Suspect;
use lease::{EndReason, Output};
use types::{Caller, ReplyAddress, Time, Timestamp};

use crate::cell::{Rules, RulesInUse, is_above_fences, key_of};
use crate::sessions::{Coherence, Requests};

/// Times that a call that changed rules waits until they are enforced here, and how long each time:
/// for the calls from before the last parting, and for those that came since.
const WAITS: usize = 2;
const WAIT_MAX: Duration = Duration::from_millis(1500);

/// See the head of the file.
pub(crate) struct Enforcement {
    rules: Arc<Rules>,
    coherence: Arc<Coherence>,
    requests: Arc<Requests>,
}

impl Enforcement {
    pub fn new(
        rules: Arc<Rules>,
        coherence: Arc<Coherence>,
        requests: Arc<Requests>,
    ) -> Enforcement {
        Enforcement { rules, coherence, requests }
    }

    /// Enforces the rules that this server received last; false: an earlier call has not ended yet,
    /// call again.
    pub fn enforce(&self, now: Time, wall: Timestamp, events: &mut Vec<Output>) -> bool {
        self.rules.enforce(|in_use| self.end_fenced_sessions(in_use, now, wall, events))
    }

    /// As [`Enforcement::enforce`], but waits some seconds for the earlier calls.
    pub fn enforce_soon(&self, now: Time, wall: Timestamp, events: &mut Vec<Output>) -> bool {
        (0..WAITS).any(|_| {
            let done = self.enforce(now, wall, events);
            if !done {
                self.rules.wait_for_calls(WAIT_MAX);
            }
            done
        }) || self.enforce(now, wall, events)
    }

    fn end_fenced_sessions(
        &self,
        in_use: &RulesInUse,
        now: Time,
        wall: Timestamp,
        events: &mut Vec<Output>,
    ) {
        let is_unlisted = |caller: &Caller| key_of(caller).is_some_and(|key| !in_use.lists(&key));
        let (unlisted, sessions): (Vec<_>, Vec<_>) = self
            .requests
            .actors()
            .into_iter()
            .partition(|(_, actors)| actors.iter().any(is_unlisted));
        for (session, _) in unlisted {
            tracing::warn!(
                session = session.0,
                "a session ends: the cell's database no longer lists the key of its server"
            );
            self.coherence.leases().end(now, session, EndReason::PeerDied, events);
        }
        if in_use.fences.is_empty() {
            return;
        }
        for (session, actors) in sessions {
            let client =
                self.coherence.leases().sessions().owner(session).map(|(client, _)| client);
            let stops = |caller: &Caller| {
                // A caller that cannot be looked up now is checked at its next request.
                !is_above_fences(caller)
                    && self
                        .rules
                        .is_stopped(&in_use.fences, wall, caller, || client)
                        .unwrap_or(false)
            };
            let stopped = actors.iter().filter(|caller| stops(caller)).count();
            let waits = self.coherence.lock_waits(session).into_iter();
            let in_vain: Vec<ReplyAddress> =
                waits.filter(|(_, caller)| stops(caller)).map(|(origin, _)| origin).collect();
            let by_client = Suspect { principal: None, host: None, token: 0, client };
            if in_use.fences.stop(wall.secs, &by_client) || stopped > 0 && stopped == actors.len() {
                tracing::info!(session = session.0, "the session is fenced off");
                self.coherence.leases().end(now, session, EndReason::PeerDied, events);
            } else if stopped > 0 {
                // Others use the session too.
                self.coherence.part_with_fenced(now, session, &in_vain, events);
            }
        }
    }
}
