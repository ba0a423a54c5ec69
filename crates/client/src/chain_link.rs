//! A chain that is sent in pieces.

use types::{Call, Fid};

use crate::{CallError, Reply};

/// The state that one piece of a chain passes to the next.
#[derive(Default)]
pub(crate) struct ChainLink {
    current: Option<Fid>,
    pub failed: bool,
}

impl ChainLink {
    pub fn follow(&mut self, answer: &Result<Reply, CallError>) {
        match answer {
            Ok(reply) => self.current = reply.answer.current().or(self.current),
            Err(_) => self.failed = true,
        }
    }

    /// Inserts the current file, up to the first call whose answer names another one.
    pub fn put_in(&self, piece: &mut [Call]) {
        let Some(current) = self.current else { return };
        for call in piece {
            for fid in call.fids_mut().into_iter().filter(|fid| **fid == Fid::CURRENT) {
                *fid = current;
            }
            if call.traits().answer.has_current() {
                return;
            }
        }
    }
}
