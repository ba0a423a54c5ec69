//! The preallocated bodies of all sessions (`calls/preallocated.rs`).

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use store::{BlankName, StoreError};
use types::{PartitionNo, SessionId};

use crate::volumes::Partitions;

/// Preallocated bodies of one session at most: each is an open file in its client.
const BLANKS_MAX: usize = 256;

/// See the head of the file.
pub(crate) struct Blanks {
    partitions: Partitions,
    sessions: Mutex<HashMap<SessionId, BTreeMap<u64, PartitionNo>>>,
}

impl Blanks {
    /// Reads the bodies of an earlier server instance, and removes those of ended sessions.
    ///
    /// # Errors
    /// Errors of the partitions.
    pub fn open(
        partitions: &Partitions,
        is_session: impl Fn(SessionId) -> bool,
    ) -> Result<Blanks, StoreError> {
        let blanks = Blanks { partitions: partitions.clone(), sessions: Mutex::default() };
        for (no, partition) in partitions.numbered() {
            for blank in partition.blanks()? {
                if is_session(blank.session) {
                    blanks.add(no, blank);
                } else {
                    partition.remove_blank(blank)?;
                }
            }
        }
        Ok(blanks)
    }

    /// Whether the session has it, on this partition.
    pub fn has(&self, on: PartitionNo, name: BlankName) -> bool {
        let sessions = self.sessions.lock();
        sessions.get(&name.session).is_some_and(|numbers| numbers.get(&name.number) == Some(&on))
    }

    /// Whether the session may have no more.
    pub fn has_enough(&self, session: SessionId) -> bool {
        self.sessions.lock().get(&session).is_some_and(|numbers| numbers.len() >= BLANKS_MAX)
    }

    /// Records one more body of the session.
    pub fn add(&self, on: PartitionNo, name: BlankName) {
        self.sessions.lock().entry(name.session).or_default().insert(name.number, on);
    }

    /// The body is one of a file now.
    pub fn remove(&self, name: BlankName) {
        if let Some(numbers) = self.sessions.lock().get_mut(&name.session) {
            numbers.remove(&name.number);
        }
    }

    /// Removes the bodies of a session that ended.
    pub fn remove_session(&self, session: SessionId) {
        let numbers = self.sessions.lock().remove(&session).unwrap_or_default();
        for (number, on) in numbers {
            let blank = BlankName { session, number };
            let partition = self.partitions.get(on);
            let removed = partition.and_then(|partition| Ok(partition.remove_blank(blank)?));
            if let Err(error) = removed {
                tracing::warn!(
                    ?blank,
                    %error,
                    "a preallocated body cannot be removed; the next start removes it"
                );
            }
        }
    }
}
