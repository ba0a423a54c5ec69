//! The effective identity of a local user: how the cell's mode bits see the user.
//!
//! Where the cell trusts this host (docs/spec/access.md, *Callers*), a user without a token has
//! the local numbers. Where it does not, only tokens identify users, and the numbers of this
//! machine are unrelated to those of the cell. A server reports which is the case, and the identity
//! of a token's holder.

use std::borrow::Cow;
use std::sync::Arc;

use client::{EffectiveIdentity, Ids, TokenWallet};
use types::{Caller, Status};

use super::LocalCaller;

/// The tokens of this machine's users in the cell, if they have any.
pub struct Identity(Option<Arc<TokenWallet>>);

impl Identity {
    pub(crate) fn new(tokens: Option<Arc<TokenWallet>>) -> Self {
        Identity(tokens)
    }

    /// The caller's identity for the cell's mode bits and for the cached rights.
    pub(crate) fn local_caller<'c>(&self, caller: &'c Caller) -> LocalCaller<'c> {
        LocalCaller {
            caller: known(self.0.as_deref(), caller),
            uid: caller.uid,
            is_doubted: self.0.as_deref().is_some_and(TokenWallet::is_doubted),
        }
    }

    /// The status for this machine's kernel: owner and group in local numbers, where they differ
    /// from the cell's.
    pub fn localized(&self, status: Status) -> Status {
        let local = self.0.as_ref().and_then(|tokens| tokens.local(status.uid));
        Status { uid: local.unwrap_or(status.uid), ..status }
    }

    /// The cell's number of a local user.
    pub fn cells_number(&self, uid: u32) -> u32 {
        let tokens = self.0.as_ref();
        tokens
            .filter(|tokens| tokens.is_doubted() && tokens.of(uid).is_some())
            .and_then(|tokens| tokens.ids(uid))
            .map_or(uid, |ids| ids.uid)
    }

    /// Whether mode bits give the caller the `wanted` access (read 4, write 2, execute or search
    /// 1), where the kernel judges by other numbers. True where it does not.
    pub fn lets(&self, caller: &Caller, status: &Status, wanted: u16) -> bool {
        let tokens = self.0.as_ref().filter(|tokens| tokens.is_doubted() && !status.by_list);
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

    /// A server reported how it sees a local user; returns whether that changed.
    pub(crate) fn learn(&self, uid: u32, report: &str) -> bool {
        let tokens = self.0.as_ref().zip(EffectiveIdentity::of(report));
        tokens.is_some_and(|(tokens, you)| tokens.set_ids(uid, you.ids().clone()))
    }
}

/// The identity for mode bits.
fn known<'c>(tokens: Option<&TokenWallet>, caller: &'c Caller) -> Cow<'c, Caller> {
    match tokens.and_then(|tokens| tokens.ids(caller.uid)) {
        None => Cow::Borrowed(caller),
        Some(Ids { uid, gid, groups }) => {
            Cow::Owned(Caller { uid, gid, groups: Some(groups.as_ref().into()), who: caller.who })
        }
    }
}
