//! Maps credential handles to callers on the present connection. When all handles are in use, a new
//! caller gets the one that was unused for longest: frames of one connection stay in order, so
//! earlier requests still mean the earlier caller.

use std::collections::HashMap;
use std::sync::Arc;

use types::Caller;

use crate::credentials::{ProofContext, TokenProof, Wallet};
use crate::limits::CREDENTIALS_MAX;

/// The handles of one connection.
#[derive(Debug)]
pub(super) struct Credentials {
    wallet: Option<Arc<dyn Wallet>>,
    /// The wallet's change counter when it was last read.
    changes: u64,
    line: ProofContext,
    handles: HashMap<Caller, u32>,
    /// Of handle `index + 1`: its caller, and the time of its last use.
    used: Vec<(Caller, u64)>,
    uses: u64,
}

/// A caller's handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallerHandle {
    /// The server knows the handle.
    Known(u32),
    /// The client must register the handle first.
    New(u32),
}

impl Credentials {
    pub fn new(wallet: Option<Arc<dyn Wallet>>) -> Self {
        let line = ProofContext { certificate: None, challenge: [0; 32] };
        Credentials { wallet, changes: 0, line, handles: HashMap::new(), used: Vec::new(), uses: 0 }
    }

    /// The connection is new: the server knows no handle on it.
    pub fn clear(&mut self, line: ProofContext) {
        *self = Credentials { line, ..Credentials::new(self.wallet.take()) };
    }

    /// The token to show for `caller` over this connection; `None`: only the name.
    pub fn show(&self, caller: &Caller) -> Option<TokenProof> {
        self.wallet.as_ref()?.show(caller, &self.line)
    }

    /// The handle of `caller`, which becomes the most recently used one.
    pub fn handle(&mut self, caller: &Caller) -> CallerHandle {
        self.forget_changed();
        self.uses += 1;
        if let Some(handle) = self.handles.get(caller) {
            self.used[*handle as usize - 1].1 = self.uses;
            return CallerHandle::Known(*handle);
        }
        let handle = self.take_handle(caller);
        self.handles.insert(caller.clone(), handle);
        CallerHandle::New(handle)
    }

    /// A caller whose token changed or ended is another caller to the server. Frames stay in order,
    /// so the handles start again.
    fn forget_changed(&mut self) {
        let changes = self.wallet.as_ref().map_or(0, |wallet| wallet.changes());
        if changes != self.changes {
            self.handles.clear();
            self.used.clear();
            self.changes = changes;
        }
    }

    fn take_handle(&mut self, caller: &Caller) -> u32 {
        if self.used.len() < CREDENTIALS_MAX {
            self.used.push((caller.clone(), self.uses));
            return self.used.len() as u32;
        }
        let oldest = self.used.iter_mut().enumerate().min_by_key(|(_, (_, used))| *used);
        let (index, place) = oldest.expect("CREDENTIALS_MAX is above 0");
        self.handles.remove(&place.0);
        *place = (caller.clone(), self.uses);
        index as u32 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(uid: u32) -> Caller {
        Caller { uid, gid: 0, groups: None, who: types::RequestIdentity::NAMED }
    }

    #[test]
    fn the_handle_that_was_unused_longest_is_given_away() {
        let mut credentials = Credentials::new(None);
        for uid in 1..=CREDENTIALS_MAX as u32 {
            assert_eq!(credentials.handle(&caller(uid)), CallerHandle::New(uid));
        }
        assert_eq!(credentials.handle(&caller(1)), CallerHandle::Known(1));
        assert_eq!(credentials.handle(&caller(1000)), CallerHandle::New(2));
        assert_eq!(credentials.handle(&caller(2)), CallerHandle::New(3));
        assert_eq!(credentials.handle(&caller(1000)), CallerHandle::Known(2));
        credentials.clear(credentials.line);
        assert_eq!(credentials.handle(&caller(1000)), CallerHandle::New(1));
    }
}
