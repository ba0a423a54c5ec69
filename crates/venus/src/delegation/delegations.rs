//! Delegations: when the client asks for them, and for what is missing under one
//! (`docs/spec/delegation.md`; `names/delegation.rs` has their states). The client never takes more
//! for covered than the server does.

use std::sync::Arc;

use types::{Answer, Call, Fid};

use super::AccessRights;
use crate::base::RequestContext;
use crate::calls::{Calls, Flusher};
use crate::names::{Answered, Asked, Listed, Missing};
use crate::passthrough::Blanks;
use crate::reading::Directories;
use crate::session::Ground;

/// Preconditions that may be missing for an answer here: the delegation, slots, a page of the
/// listing, the caller's rights.
const IMPROVEMENTS_MAX: usize = 4;

/// Answers changes here, and asks for what is missing for that.
pub(crate) struct Delegations {
    ground: Ground,
    flusher: Arc<Flusher>,
    calls: Arc<Calls>,
    directories: Arc<Directories>,
    rights: Arc<AccessRights>,
    blanks: Arc<Blanks>,
}

impl Delegations {
    pub fn new(
        ground: &Ground,
        flusher: &Arc<Flusher>,
        calls: &Arc<Calls>,
        directories: &Arc<Directories>,
        rights: &Arc<AccessRights>,
        blanks: &Arc<Blanks>,
    ) -> Self {
        Delegations {
            ground: ground.clone(),
            flusher: Arc::clone(flusher),
            calls: Arc::clone(calls),
            directories: Arc::clone(directories),
            rights: Arc::clone(rights),
            blanks: Arc::clone(blanks),
        }
    }

    /// Answers a change here if possible; asks for the delegation if it is time for that.
    pub fn answer_under_delegation(
        &self,
        request: &RequestContext<'_>,
        call: &Call,
    ) -> Option<Answered<'_>> {
        if !self.ground.config.delegations {
            return None;
        }
        for _ in 0..IMPROVEMENTS_MAX {
            if let Some(answered) = self.flusher.answer_here(request.caller, call) {
                return Some(answered);
            }
            let missing = self.ground.names.lock().missing(request.caller.uid, call)?;
            let better = match missing {
                Missing::Delegation(dir) | Missing::Slots(dir) => self.ask(request, dir),
                Missing::Page(dir) => self.list_sole(request, dir),
                Missing::Rights(dir) => self.rights.rights(request, dir).is_ok(),
            };
            if !better {
                return None;
            }
        }
        self.flusher.answer_here(request.caller, call)
    }

    /// Asks for a delegation, or for more slots under one. Returns whether the answer brought
    /// something new.
    fn ask(&self, request: &RequestContext<'_>, dir: Fid) -> bool {
        let Some(snapshot) = self.ground.names.lock().begin_asking(dir) else { return false };
        let granted = match self.calls.call(request, Call::Delegate { fid: dir }) {
            Ok(Answer::Delegation { status, slots }) => Some((status, slots)),
            Ok(_) | Err(_) => None,
        };
        let pause = self.ground.config.recall_pause;
        let asked = self.ground.names.lock().asked(dir, snapshot, granted, pause);
        match asked {
            Asked::Held => {
                self.blanks.first_blanks(dir);
                true
            }
            Asked::Recalled => {
                if let Some(duties) = self.ground.chores.duties() {
                    duties.give_back_soon(vec![dir]);
                }
                false
            }
            Asked::More => true,
            Asked::Nothing => false,
        }
    }

    /// Lists the next page of a delegated directory, to learn which children are sole. Returns
    /// whether there was one.
    fn list_sole(&self, request: &RequestContext<'_>, dir: Fid) -> bool {
        let from = self.ground.names.lock().nodes.listed_sole(dir);
        let to = match self.directories.list_page(request, dir, from.cookie) {
            Ok((cookie, end)) => Listed { cookie, end },
            Err(_) => Listed { end: true, ..from },
        };
        self.ground.names.lock().nodes.set_listed_sole(dir, from, to);
        true
    }

    /// Called before a directory is listed from its beginning. If an application is removing a
    /// tree, the server then reports of each entry whether it is sole.
    pub fn ask_before_listing(&self, request: &RequestContext<'_>, dir: Fid) {
        if self.ground.config.delegations && self.ground.names.lock().nodes.is_removal_likely(dir) {
            self.ask(request, dir);
        }
    }
}
