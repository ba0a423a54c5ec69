//! The effective identity of a local user: how the cell's mode bits see the user.
//!
//! Where the cell trusts this host (docs/spec/access.md, *Callers*), a user without a token has
//! the local numbers. Where it does not, only tokens identify users, and the numbers of this
//! machine are unrelated to those of the cell. A server reports which is the case, and the identity
//! of a token's holder.

use client::EffectiveIdentity;
use types::{Caller, Status};

use crate::base::error::Error;
use crate::base::request::RequestContext;
use crate::ops::venus::Venus;

impl Venus {
    /// Asks a server for the effective identity of a caller that has presented a token; returns
    /// whether it changed.
    ///
    /// # Errors
    /// The service's refusal.
    pub fn learn_ids(&self, request: &RequestContext<'_>) -> Result<bool, Error> {
        let report = self.report(request)?;
        let tokens = self.core.ground.config.tokens.as_ref().zip(EffectiveIdentity::of(&report));
        Ok(tokens
            .is_some_and(|(tokens, you)| tokens.set_ids(request.caller.uid, you.ids().clone())))
    }

    /// The status for this machine's kernel: owner and group in local numbers, where they differ
    /// from the cell's.
    pub fn localized(&self, status: Status) -> Status {
        let local =
            self.core.ground.config.tokens.as_ref().and_then(|tokens| tokens.local(status.uid));
        Status { uid: local.unwrap_or(status.uid), ..status }
    }

    /// The cell's number of a local user.
    pub fn cells_number(&self, uid: u32) -> u32 {
        let tokens = self.core.ground.config.tokens.as_ref();
        tokens
            .filter(|tokens| tokens.is_doubted() && tokens.of(uid).is_some())
            .and_then(|tokens| tokens.ids(uid))
            .map_or(uid, |ids| ids.uid)
    }

    /// Whether mode bits give the caller the `wanted` access (read 4, write 2, execute or search
    /// 1), where the kernel judges by other numbers. True where it does not.
    pub fn lets(&self, caller: &Caller, status: &Status, wanted: u16) -> bool {
        let tokens = self
            .core
            .ground
            .config
            .tokens
            .as_ref()
            .filter(|tokens| tokens.is_doubted() && !status.by_list);
        let Some(ids) = tokens.and_then(|tokens| tokens.ids(caller.uid)) else { return true };
        let class = if ids.uid == status.uid {
            6
        } else if ids.gid == status.gid || ids.groups.contains(&status.gid) {
            3
        } else {
            0
        };
        status.mode >> class & wanted == wanted
    }
}
