//! The tokens of this machine's users, for one cell: found by uid, shown over each connection with
//! a proof of its own. They are in memory alone, and so are the client keys that they are bound to.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use dafs::credentials::{ProofContext, TokenProof, Wallet};
use guard::{Public, Signer, Token};
use parking_lot::{Condvar, Mutex, RwLock};
use types::{AuthLevel, Caller, Secret, Timestamp};

use crate::Ids;

/// What is left of a token at most when it is renewed: a quarter of a working day.
const EARLY_SECS: i64 = 9000;

/// Whom mode bits take for somebody else than anybody.
const NOBODY_ID: u32 = 65534;

/// See the head of the file.
#[derive(Debug, Default)]
pub struct TokenWallet {
    /// What this machine says of who asks counts for nothing in the cell.
    doubted: AtomicBool,
    /// What it says of its users counts, and its superuser is nobody.
    squashed: AtomicBool,
    kept: RwLock<HashMap<u32, Kept>>,
    /// Keys of users who are about to show Kerberos tickets for them.
    coming: Mutex<HashMap<u32, Arc<Signer>>>,
    changes: AtomicU64,
    /// Held while `changes` grows, for who waits until it does.
    changing: Mutex<()>,
    changed: Condvar,
}

/// Where a user's tickets come from, so that the next token may be had without him.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketSource {
    /// Who he is on this machine.
    pub uid: u32,
    /// His group.
    pub gid: u32,
    /// His credential cache, as `KRB5CCNAME` names it.
    pub cache: String,
    /// The service that the tickets are for.
    pub service: String,
    /// Where in the tree he showed the first one, if that is known.
    pub place: Option<String>,
    /// The mount name space that he did it in, by the number of its inode, if it is another one
    /// than the mount's.
    pub name_space: Option<u64>,
}

#[derive(Clone, Debug)]
struct Kept {
    bytes: Bytes,
    token: Token,
    client: Arc<Signer>,
    source: Option<TicketSource>,
    /// What the cell said to his ticket, for his program.
    reply: Option<Bytes>,
    /// Who he is to the cell's mode bits.
    ids: Option<Ids>,
}

/// Users whose Kerberos login may be under way.
const COMING_MAX: usize = 4096;

impl TokenWallet {
    /// The user has this token from now on, which is bound to the key `client`. False: those bytes
    /// are none.
    #[must_use]
    pub fn put(&self, uid: u32, bytes: &Secret, client: Arc<Signer>) -> bool {
        let source = self.kept.read().get(&uid).and_then(|kept| kept.source.clone());
        self.insert(uid, Bytes::copy_from_slice(bytes.reveal()), client, source)
    }

    /// The same, of a token that a ticket from `source` made; `reply` is for the user's program.
    #[must_use]
    pub fn put_from(
        &self,
        source: TicketSource,
        bytes: &Secret,
        client: Arc<Signer>,
        reply: Bytes,
    ) -> bool {
        let uid = source.uid;
        let good = self.insert(uid, Bytes::copy_from_slice(bytes.reveal()), client, Some(source));
        if good && let Some(kept) = self.kept.write().get_mut(&uid) {
            kept.reply = Some(reply);
        }
        good
    }

    /// What the cell said to the ticket that made the user's token; once.
    pub fn take_reply(&self, uid: u32) -> Option<Bytes> {
        self.kept.write().get_mut(&uid)?.reply.take()
    }

    fn insert(
        &self,
        uid: u32,
        bytes: Bytes,
        client: Arc<Signer>,
        source: Option<TicketSource>,
    ) -> bool {
        let Ok((token, _)) = Token::parse(&bytes) else { return false };
        let source = source.filter(|_| token.level == AuthLevel::Kerberos);
        let mut kept = self.kept.write();
        let same = kept.get(&uid).filter(|kept| kept.token.principal == token.principal);
        let ids = same.and_then(|kept| kept.ids.clone());
        kept.insert(uid, Kept { bytes, token, client, source, reply: None, ids });
        drop(kept);
        self.note_change();
        true
    }

    fn note_change(&self) {
        let _changing = self.changing.lock();
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_all();
    }

    /// Returns when tokens came or went, or after so long.
    pub fn wait_for_change(&self, at_most: Duration) {
        let until = Instant::now() + at_most;
        let mut changing = self.changing.lock();
        let seen = self.changes();
        while self.changes() == seen && !self.changed.wait_until(&mut changing, until).timed_out() {
        }
    }

    /// The public half of a new key, for which the user will show a ticket.
    pub fn expect(&self, uid: u32) -> Public {
        let signer = Arc::new(Signer::random().1);
        let public = signer.public();
        let mut coming = self.coming.lock();
        if coming.len() >= COMING_MAX {
            coming.clear();
        }
        coming.insert(uid, signer);
        public
    }

    /// The key that the user was told of last; once.
    pub fn expected(&self, uid: u32) -> Option<Arc<Signer>> {
        self.coming.lock().remove(&uid)
    }

    /// The user has none from now on. Says whether he had.
    pub fn remove(&self, uid: u32) -> bool {
        let had = self.kept.write().remove(&uid).is_some();
        self.note_change();
        had
    }

    /// The user's token.
    pub fn of(&self, uid: u32) -> Option<Token> {
        self.kept.read().get(&uid).map(|kept| kept.token.clone())
    }

    /// What this machine says of who asks counts in the cell, or does not.
    pub fn set_untrusted_host(&self, doubted: bool) {
        self.doubted.store(doubted, Ordering::SeqCst);
    }

    /// Whether the superuser of this machine is nobody in the cell, though its users are who they
    /// are here.
    pub fn set_squashed(&self, squashed: bool) {
        self.squashed.store(squashed, Ordering::SeqCst);
    }

    /// Whether it counts for nothing.
    pub fn is_doubted(&self) -> bool {
        self.doubted.load(Ordering::SeqCst)
    }

    /// Who the holder of the user's token is to the cell's mode bits, as a server says.
    /// Says whether he was another one before.
    pub fn set_ids(&self, uid: u32, ids: Ids) -> bool {
        let mut kept = self.kept.write();
        let Some(kept) = kept.get_mut(&uid) else { return false };
        let before = kept.ids.replace(ids);
        before != kept.ids
    }

    /// Who has a token.
    pub fn users(&self) -> Vec<u32> {
        self.kept.read().keys().copied().collect()
    }

    /// Who a user of this machine is to the cell's mode bits. `None`: who he is here, with his
    /// groups.
    pub fn ids(&self, uid: u32) -> Option<Ids> {
        let nobody = || Ids { uid: NOBODY_ID, gid: NOBODY_ID, groups: Arc::default() };
        match self.kept.read().get(&uid) {
            Some(kept) => Some(kept.ids.clone().unwrap_or_else(nobody)),
            None => {
                (self.is_doubted() || uid == 0 && self.squashed.load(Ordering::SeqCst)).then(nobody)
            }
        }
    }

    /// The user of this machine who is `uid` in the cell, if its word is doubted: the lowest of
    /// several.
    pub fn local(&self, uid: u32) -> Option<u32> {
        if !self.is_doubted() {
            return None;
        }
        let kept = self.kept.read();
        let same =
            kept.iter().filter(|(_, kept)| kept.ids.as_ref().is_some_and(|ids| ids.uid == uid));
        same.map(|(local, _)| *local).min()
    }

    /// Whose tokens are to be renewed: a quarter of their time is left, [`EARLY_SECS`] at most, and
    /// they may be. With what renewing needs.
    pub fn to_renew(&self, now: Timestamp) -> Vec<(u32, Bytes, Arc<Signer>)> {
        let kept = self.kept.read();
        let due = kept
            .iter()
            .filter(|(_, kept)| kept.is_due(now) && kept.token.renewable > kept.token.expires);
        due.map(|(uid, kept)| (*uid, kept.bytes.clone(), Arc::clone(&kept.client))).collect()
    }

    /// Whose tokens are due and end for good with their tickets: where newer tickets may be.
    pub fn to_get_anew(&self, now: Timestamp) -> Vec<TicketSource> {
        let kept = self.kept.read();
        let due = kept
            .values()
            .filter(|kept| kept.is_due(now) && kept.token.renewable <= kept.token.expires);
        due.filter_map(|kept| kept.source.clone()).collect()
    }

    /// How long what is due can wait to be looked at: an eighth of what the shortest token has
    /// left, between a second and `at_most`.
    pub fn next_look(&self, now: Timestamp, at_most: Duration) -> Duration {
        let kept = self.kept.read();
        let left =
            kept.values().map(|kept| kept.token.expires - now.secs).filter(|left| *left > 0).min();
        let wait = left.and_then(|left| u64::try_from(left / 8).ok()).map(Duration::from_secs);
        wait.map_or(at_most, |wait| wait.clamp(Duration::from_secs(1), at_most))
    }
}

impl Kept {
    fn is_due(&self, now: Timestamp) -> bool {
        let left = self.token.expires - now.secs;
        // A renewed one counts as issued when the first was, so its whole time says little.
        let early = ((self.token.expires - self.token.issued) / 4).min(EARLY_SECS);
        left > 0 && left <= early
    }
}

impl Wallet for TokenWallet {
    fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    fn show(&self, caller: &Caller, line: &ProofContext) -> Option<TokenProof> {
        let Kept { bytes, client, .. } = self.kept.read().get(&caller.uid)?.clone();
        let binding = guard::binding(line.certificate.as_ref(), &line.challenge);
        let proof = guard::prove(&bytes, &binding, &client);
        Some(TokenProof { token: bytes, proof })
    }
}

#[cfg(test)]
mod tests {
    use types::PrincipalId;

    use super::*;

    fn token_of(principal: i32, client: &Signer) -> Token {
        Token {
            cell: "a.org".to_owned(),
            key: 1,
            number: 1,
            principal: PrincipalId(principal),
            name: "joe".to_owned(),
            level: AuthLevel::Password,
            issued: 0,
            expires: 1_000_000,
            renewable: 2_000_000,
            client: client.public(),
        }
    }

    #[test]
    fn on_a_doubted_machine_users_are_whom_tokens_say_and_others_nobody() {
        let tokens = TokenWallet::default();
        let client = Arc::new(Signer::new(&[1; 32]));
        let put = |uid, principal| {
            assert!(tokens.put(
                uid,
                &token_of(principal, &client).sign(&client).into(),
                Arc::clone(&client)
            ));
        };
        let ids = |uid, gid| Some(Ids { uid, gid, groups: [5].into() });
        let nobody = Some(Ids { uid: NOBODY_ID, gid: NOBODY_ID, groups: Arc::default() });
        assert_eq!((tokens.ids(7), tokens.local(4711)), (None, None), "as he is here");
        put(7, 1);
        assert_eq!(tokens.ids(7), nobody.clone(), "nobody has said who that is");
        assert!(
            tokens.set_ids(7, ids(4711, 100).unwrap())
                && !tokens.set_ids(7, ids(4711, 100).unwrap())
        );
        assert_eq!(
            (tokens.ids(7), tokens.ids(8), tokens.local(4711)),
            (ids(4711, 100), None, None)
        );
        tokens.set_squashed(true);
        assert_eq!((tokens.ids(0), tokens.ids(8)), (nobody.clone(), None), "root alone");
        tokens.set_squashed(false);
        tokens.set_untrusted_host(true);
        assert_eq!((tokens.ids(8), tokens.local(4711)), (nobody.clone(), Some(7)));
        put(7, 1);
        assert_eq!(tokens.ids(7), ids(4711, 100), "a newer token of the same user");
        put(7, 2);
        assert_eq!((tokens.ids(7), tokens.local(4711)), (nobody.clone(), None), "another user");
        tokens.remove(7);
        assert_eq!(tokens.local(4711), None);
    }

    #[test]
    fn a_token_is_due_when_little_is_left_of_it_however_old_its_first_one_is() {
        let tokens = TokenWallet::default();
        let client = Arc::new(Signer::new(&[1; 32]));
        let due = |issued: i64, expires: i64, renewable: i64| {
            let token = Token { issued, expires, renewable, ..token_of(1, &client) };
            assert!(tokens.put(7, &token.sign(&client).into(), Arc::clone(&client)));
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
