//! The tokens of this machine's users, for one cell: found by uid, shown over each connection with a proof of its own. They are in memory alone, and so are the
//! client keys that they are bound to.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use dafs::showing::{Line, Shown, Wallet};
use guard::{Signer, Token};
use parking_lot::RwLock;
use types::{Caller, Timestamp};

/// See the head of the file.
#[derive(Debug, Default)]
pub struct Tokens {
    kept: RwLock<HashMap<u32, Kept>>,
    changes: AtomicU64,
}

#[derive(Clone, Debug)]
struct Kept {
    bytes: Bytes,
    token: Token,
    client: Arc<Signer>,
}

impl Tokens {
    /// The user has this token from now on, which is bound to the key `client`. False: those bytes are none.
    #[must_use]
    pub fn put(&self, uid: u32, bytes: Bytes, client: Arc<Signer>) -> bool {
        let Ok((token, _)) = Token::parse(&bytes) else { return false };
        self.kept.write().insert(uid, Kept { bytes, token, client });
        self.changes.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// The user has none from now on. Says whether he had.
    pub fn remove(&self, uid: u32) -> bool {
        let had = self.kept.write().remove(&uid).is_some();
        self.changes.fetch_add(1, Ordering::SeqCst);
        had
    }

    /// The user's token.
    pub fn of(&self, uid: u32) -> Option<Token> {
        self.kept.read().get(&uid).map(|kept| kept.token.clone())
    }

    /// Whose tokens are to be renewed: a quarter of their time is left, and they may be. With what renewing needs.
    pub fn to_renew(&self, now: Timestamp) -> Vec<(u32, Bytes, Arc<Signer>)> {
        let due = |token: &Token| {
            let left = token.expires - now.secs;
            left > 0 && left <= (token.expires - token.issued) / 4 && token.renewable > token.expires
        };
        let kept = self.kept.read();
        let due = kept.iter().filter(|(_, kept)| due(&kept.token));
        due.map(|(uid, kept)| (*uid, kept.bytes.clone(), Arc::clone(&kept.client))).collect()
    }
}

impl Wallet for Tokens {
    fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    fn show(&self, caller: &Caller, line: &Line) -> Option<Shown> {
        let Kept { bytes, client, .. } = self.kept.read().get(&caller.uid)?.clone();
        let binding = guard::binding(line.certificate.as_ref(), &line.challenge);
        let proof = guard::prove(&bytes, &binding, &client);
        Some(Shown { token: bytes, proof })
    }
}
