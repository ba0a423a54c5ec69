//! Which sessions have loaned bodies (`calls/body_loan.rs`).

use std::collections::HashMap;

use lease::BreakTicket;
use parking_lot::Mutex;
use smallvec::SmallVec;
use types::{Fid, SessionId};

/// Sessions with loaned bodies.
#[derive(Default)]
pub(crate) struct Loans {
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    sessions: HashMap<Fid, SmallVec<[SessionId; 2]>>,
    /// The latest breaks that no call waits for yet.
    breaking: HashMap<Fid, BreakTicket>,
}

impl Loans {
    /// Whether the session has the body.
    pub fn has(&self, fid: Fid, session: SessionId) -> bool {
        let tables = self.tables.lock();
        tables.sessions.get(&fid).is_some_and(|sessions| sessions.contains(&session))
    }

    /// Whether any session has the body.
    pub fn is_loaned(&self, fid: Fid) -> bool {
        self.tables.lock().sessions.contains_key(&fid)
    }

    pub fn add(&self, fid: Fid, session: SessionId) {
        let mut tables = self.tables.lock();
        let sessions = tables.sessions.entry(fid).or_default();
        if !sessions.contains(&session) {
            sessions.push(session);
        }
    }

    pub fn remove(&self, fid: Fid, session: SessionId) {
        let mut tables = self.tables.lock();
        if let Some(sessions) = tables.sessions.get_mut(&fid) {
            sessions.retain(|one| *one != session);
            if sessions.is_empty() {
                tables.sessions.remove(&fid);
            }
        }
    }

    /// Ends all loans of a session.
    pub fn remove_session(&self, session: SessionId) {
        self.tables.lock().sessions.retain(|_, sessions| {
            sessions.retain(|one| *one != session);
            !sessions.is_empty()
        });
    }

    /// The record of a body was updated without a call: notes the ticket of the breaks that `send`
    /// sends. The ticket is not done before it is noted.
    pub fn note_breaks(&self, fid: Fid, send: impl FnOnce() -> Option<BreakTicket>) {
        let mut tables = self.tables.lock();
        if let Some(ticket) = send() {
            let before = tables.breaking.insert(fid, ticket);
            debug_assert!(before < Some(ticket), "CB-1: {fid} waits for an earlier break again");
        }
    }

    /// Whether sessions have yet to acknowledge such breaks of the file.
    pub fn is_breaking(&self, fid: Fid) -> bool {
        self.tables.lock().breaking.contains_key(&fid)
    }

    /// All sessions have acknowledged the breaks of this ticket.
    pub fn ticket_done(&self, ticket: BreakTicket) {
        self.tables.lock().breaking.retain(|_, one| *one != ticket);
    }
}
