//! Slots for new files that sessions with delegations may assign themselves.

use std::collections::HashMap;

use parking_lot::Mutex;
use types::{Fault, SessionId, VnodeSlots, VolumeId};

/// Runs of slots for new files that a session may have in one volume.
const RUNS_MAX: usize = 4096;

/// See the head of the file.
#[derive(Default)]
pub(crate) struct GivenSlots {
    runs: Mutex<HashMap<(SessionId, VolumeId), Vec<VnodeSlots>>>,
}

impl GivenSlots {
    /// Gives a run of slots to the session.
    ///
    /// # Errors
    /// `Busy` if it has too many runs.
    pub fn give(
        &self,
        session: SessionId,
        volume: VolumeId,
        slots: VnodeSlots,
    ) -> Result<(), Fault> {
        let mut all = self.runs.lock();
        let given = all.entry((session, volume)).or_default();
        let runs = given.len();
        match given.last_mut() {
            Some(last)
                if last.first + u64::from(last.count) == slots.first
                    && last.count < u32::MAX - slots.count =>
            {
                last.count += slots.count;
            }
            _ if runs >= RUNS_MAX => return Err(Fault::Busy),
            _ => given.push(slots),
        }
        Ok(())
    }

    /// Whether another session than `session` was given this slot.
    pub fn are_others(&self, session: SessionId, volume: VolumeId, slot: u64) -> bool {
        let all = self.runs.lock();
        let mut others = all.iter().filter(|((to, of), _)| *to != session && *of == volume);
        others.any(|(_, runs)| runs.iter().any(|run| run.contains(slot)))
    }

    /// Whether the session was given this slot.
    pub fn has(&self, session: SessionId, volume: VolumeId, slot: u64) -> bool {
        let all = self.runs.lock();
        let given = all.get(&(session, volume));
        given.is_some_and(|runs| runs.iter().rev().any(|run| run.contains(slot)))
    }

    /// The session is over.
    pub fn remove_session(&self, session: SessionId) {
        self.runs.lock().retain(|(owner, _), _| *owner != session);
    }
}
