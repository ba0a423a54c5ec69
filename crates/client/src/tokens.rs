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

/// What is left of a token at most when it is renewed: a quarter of a working day.
const EARLY_SECS: i64 = 9000;

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

    /// Whose tokens are to be renewed: a quarter of their time is left, [`EARLY_SECS`] at most, and they may be. With what renewing needs.
    pub fn to_renew(&self, now: Timestamp) -> Vec<(u32, Bytes, Arc<Signer>)> {
        let due = |token: &Token| {
            let left = token.expires - now.secs;
            // A renewed one counts as issued when the first was, so its whole time says little.
            let early = ((token.expires - token.issued) / 4).min(EARLY_SECS);
            left > 0 && left <= early && token.renewable > token.expires
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

#[cfg(test)]
mod tests {
    use types::{Level, PrincipalId};

    use super::*;

    #[test]
    fn a_token_is_due_when_little_is_left_of_it_however_old_its_first_one_is() {
        let tokens = Tokens::default();
        let client = Arc::new(Signer::new(&[1; 32]));
        let due = |issued: i64, expires: i64, renewable: i64| {
            let token = Token {
                cell: "a.org".to_owned(),
                key: 1,
                number: 1,
                principal: PrincipalId(1),
                name: "joe".to_owned(),
                level: Level::Password,
                issued,
                expires,
                renewable,
                client: client.public(),
            };
            assert!(tokens.put(7, token.sign(&client).into(), Arc::clone(&client)));
            tokens.to_renew(Timestamp::new(1_000_000, 0)).len() == 1
        };
        let (now, day, week) = (1_000_000, 86_400, 604_800);
        assert!(!due(now, now + 36_000, now + week), "new");
        assert!(due(now - 27_000, now + 9_000, now + week), "a quarter is left");
        assert!(!due(now - 3 * day, now + 36_000, now + week), "just renewed, after three days");
        assert!(due(now - 3 * day, now + 9_000, now + week));
        assert!(!due(now - 30, now - 1, now + week), "it has ended");
        assert!(!due(now - 6 * day, now + 600, now + 600), "the last one");
    }
}
