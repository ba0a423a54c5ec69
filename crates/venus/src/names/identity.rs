//! The effective identity of a local user: how the cell's mode bits see the user.
//!
//! Where the cell trusts this host (docs/spec/access.md, *Callers*), a user without a token has
//! the local numbers. Where it does not, only tokens identify users, and the numbers of this
//! machine are unrelated to those of the cell. A server reports which is the case, and the identity
//! of a token's holder.

use std::borrow::Cow;
use std::sync::Arc;

use client::{Ids, TokenWallet};
use types::Caller;

use crate::names::local_answers::LocalCaller;

/// The tokens of this machine's users in the cell, if they have any.
pub(crate) struct Identity(Option<Arc<TokenWallet>>);

impl Identity {
    pub fn new(tokens: Option<Arc<TokenWallet>>) -> Self {
        Identity(tokens)
    }

    /// The caller's identity for the cell's mode bits and for the cached rights.
    pub fn local_caller<'c>(&self, caller: &'c Caller) -> LocalCaller<'c> {
        LocalCaller {
            caller: known(self.0.as_deref(), caller),
            uid: caller.uid,
            is_doubted: self.0.as_deref().is_some_and(TokenWallet::is_doubted),
        }
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
