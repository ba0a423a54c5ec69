//! Puts out what a successor of the client's process needs (`kept.rs`).

use types::SessionId;

use super::ClientOutput;
use super::flight::Flights;
use super::kept::{Keeping, KeptTerms, Landing};

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Keeper {
    /// [`ClientConfig::keeps`](super::ClientConfig::keeps).
    keeps: bool,
    /// The server instance at which the client has its locks and holds: the present one, unless a
    /// reclaim is under way.
    pub reclaimed: u64,
}

impl Keeper {
    pub fn new(keeps: bool) -> Keeper {
        Keeper { keeps, reclaimed: 0 }
    }

    /// The session, at this instance.
    pub fn keep_session(&self, session: SessionId, server: u64, out: &mut Vec<ClientOutput>) {
        if self.keeps {
            let reclaiming = Some(server).filter(|server| *server != self.reclaimed);
            let terms = KeptTerms { session, server: self.reclaimed, reclaiming };
            out.push(ClientOutput::Keep(Keeping::Session(terms)));
        }
    }

    /// This instance has answered the end of the reclaim.
    pub fn on_reclaimed(&mut self, session: SessionId, server: u64, out: &mut Vec<ClientOutput>) {
        if std::mem::replace(&mut self.reclaimed, server) != server {
            self.keep_session(session, server, out);
        }
    }

    /// Requests that are about to be sent.
    pub fn keep_requests(
        &self,
        session: Option<SessionId>,
        (flights, slots): (&Flights, &[u32]),
        out: &mut Vec<ClientOutput>,
    ) {
        let Some(session) = session.filter(|_| self.keeps) else { return };
        let kept = slots.iter().filter_map(|slot| flights.kept(session, *slot));
        out.extend(kept.map(|kept| ClientOutput::Keep(Keeping::Request(Box::new(kept)))));
    }

    /// The end of a request.
    pub fn landing(&self, landing: Landing) -> Option<Landing> {
        self.keeps.then_some(landing)
    }
}
