//! Who somebody of this machine is to the cell's mode bits.
//!
//! Where the cell believes this machine (docs/spec/access.md, *Callers*), a user is who he is
//! here, unless he has a token. Where it does not, only tokens say who anybody is, and the numbers
//! of this machine and those of the cell have nothing to do with each other. A server says which is
//! the case, and who the holder of a token is.

use std::borrow::Cow;

use client::{EffectiveIdentity, Ids, TokenWallet};
use types::{Caller, Status};

use crate::core::Core;
use crate::local_answers::LocalCaller;
use crate::{Error, RequestContext, Venus};

/// Who he is to mode bits.
fn known<'c>(tokens: Option<&TokenWallet>, caller: &'c Caller) -> Cow<'c, Caller> {
    match tokens.and_then(|tokens| tokens.ids(caller.uid)) {
        None => Cow::Borrowed(caller),
        Some(Ids { uid, gid, groups }) => {
            Cow::Owned(Caller { uid, gid, groups: Some(groups.as_ref().into()), who: caller.who })
        }
    }
}

impl Core {
    /// Who the caller is to the cell's mode bits, and to what is known of rights.
    pub(crate) fn asker<'c>(&self, caller: &'c Caller) -> LocalCaller<'c> {
        let tokens = self.config.tokens.as_deref();
        LocalCaller {
            caller: known(tokens, caller),
            uid: caller.uid,
            is_doubted: tokens.is_some_and(TokenWallet::is_doubted),
        }
    }
}

impl Venus {
    /// Asks a server who the caller, who has shown a token, is to mode bits; whether he was another
    /// one before.
    ///
    /// # Errors
    /// As the service says.
    pub fn learn_ids(&self, request: &RequestContext<'_>) -> Result<bool, Error> {
        let report = self.report(request)?;
        let tokens = self.core.config.tokens.as_ref().zip(EffectiveIdentity::of(&report));
        Ok(tokens
            .is_some_and(|(tokens, you)| tokens.set_ids(request.caller.uid, you.ids().clone())))
    }

    /// The status as this machine's kernel is told: whose it is in its own numbers, where they are
    /// others than the cell's.
    pub fn localized(&self, status: Status) -> Status {
        let local = self.core.config.tokens.as_ref().and_then(|tokens| tokens.local(status.uid));
        Status { uid: local.unwrap_or(status.uid), ..status }
    }

    /// The number of the cell for a user of this machine.
    pub fn cells_number(&self, uid: u32) -> u32 {
        let tokens = self.core.config.tokens.as_ref();
        tokens
            .filter(|tokens| tokens.is_doubted() && tokens.of(uid).is_some())
            .and_then(|tokens| tokens.ids(uid))
            .map_or(uid, |ids| ids.uid)
    }

    /// Whether mode bits let the caller do what `wanted` says (read 4, write 2, execute or search
    /// 1), where the kernel judges by other numbers. True where it does not.
    pub fn lets(&self, caller: &Caller, status: &Status, wanted: u16) -> bool {
        let tokens = self
            .core
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
