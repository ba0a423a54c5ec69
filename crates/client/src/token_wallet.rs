//! The token wallet of this machine's users, for one cell: tokens are found by uid and shown over
//! each connection with a proof of its own. They are in memory alone, and so are the client keys to
//! which they are bound.

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

/// A token is renewed when at most this is left of it: a quarter of a working day.
const EARLY_SECS: i64 = 9000;

/// The uid and gid that mode bits treat as an anonymous caller.
const NOBODY_ID: u32 = 65534;

/// See the head of the file.
#[derive(Debug, Default)]
pub struct TokenWallet {
    /// The cell is one of AFS: see [`TokenWallet::of_afs`].
    is_of_afs: bool,
    /// The cell does not accept this machine's user numbers.
    untrusted: AtomicBool,
    /// The cell accepts its user numbers, but serves its superuser as *nobody*.
    squashed: AtomicBool,
    stored: RwLock<HashMap<u32, StoredToken>>,
    /// Keys of users who are about to show Kerberos tickets for them.
    expected_keys: Mutex<HashMap<u32, Arc<Signer>>>,
    changes: AtomicU64,
    /// Held while `changes` grows, for threads that wait for it.
    changing: Mutex<()>,
    changed: Condvar,
}

/// Where a user's tickets come from, so that the client can get the next token without the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketSource {
    /// The user's uid on this machine.
    pub uid: u32,
    /// The user's gid.
    pub gid: u32,
    /// The user's credential cache, as `KRB5CCNAME` names it.
    pub cache: String,
    /// The service that the tickets are for.
    pub service: String,
    /// The path at which the user showed the first ticket, if known.
    pub place: Option<String>,
    /// The mount name space in which that happened, by the number of its inode, if it is not that
    /// of the mount.
    pub name_space: Option<u64>,
}

#[derive(Clone, Debug)]
struct StoredToken {
    bytes: Bytes,
    token: Token,
    client: Arc<Signer>,
    source: Option<TicketSource>,
    /// The cell's answer to the ticket, for the user's program.
    reply: Option<Bytes>,
    /// The user's ids for the cell's mode bits.
    ids: Option<Ids>,
    /// The user's login for servers of AFS.
    afs: Option<AfsTicket>,
}

/// A user's login for servers of AFS: only a session with such a server reads it
/// (`afsclient::AfsLogin`).
#[derive(Clone, Debug)]
struct AfsTicket {
    /// Tells it from all others.
    number: u128,
    login: Arc<Secret>,
}

/// The most users whose Kerberos login may be under way.
const EXPECTED_MAX: usize = 4096;

impl TokenWallet {
    /// The wallet of a cell of AFS: users show their tickets for `afs/CELL` themselves, and no
    /// request of GSS-API.
    pub fn of_afs() -> TokenWallet {
        TokenWallet { is_of_afs: true, ..TokenWallet::default() }
    }

    /// Is it a cell of AFS?
    pub fn is_of_afs(&self) -> bool {
        self.is_of_afs
    }

    /// Stores the user's token, which is bound to the key `client`. `false`: the bytes are no
    /// token.
    #[must_use]
    pub fn put(&self, uid: u32, bytes: &Secret, client: Arc<Signer>) -> bool {
        let source = self.stored.read().get(&uid).and_then(|stored| stored.source.clone());
        self.insert(uid, Bytes::copy_from_slice(bytes.reveal()), client, source)
    }

    /// As [`Self::put`], for a token that came from a ticket of `source`; `reply` is for the user's
    /// program.
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
        if good && let Some(stored) = self.stored.write().get_mut(&uid) {
            stored.reply = Some(reply);
        }
        good
    }

    /// Stores the user's login for servers of AFS beside the token, with which it goes. `false`:
    /// there is no token.
    #[must_use]
    pub fn accompany(&self, uid: u32, login: Secret) -> bool {
        let mut stored = self.stored.write();
        let Some(stored) = stored.get_mut(&uid) else { return false };
        stored.afs = Some(AfsTicket { number: rand::random(), login: Arc::new(login) });
        true
    }

    /// The user's login for servers of AFS, and its number.
    pub fn afs_login(&self, uid: u32) -> Option<(u128, Arc<Secret>)> {
        let stored = self.stored.read();
        let AfsTicket { number, login } = stored.get(&uid)?.afs.as_ref()?;
        Some((*number, Arc::clone(login)))
    }

    /// The numbers of all users' logins for servers of AFS.
    pub fn afs_logins(&self) -> Vec<u128> {
        let stored = self.stored.read();
        stored.values().filter_map(|stored| Some(stored.afs.as_ref()?.number)).collect()
    }

    /// The cell's answer to the ticket of the user's token; it is returned once.
    pub fn take_reply(&self, uid: u32) -> Option<Bytes> {
        self.stored.write().get_mut(&uid)?.reply.take()
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
        let mut stored = self.stored.write();
        let same = stored.get(&uid).filter(|stored| stored.token.principal == token.principal);
        let ids = same.and_then(|stored| stored.ids.clone());
        // Of users of a cell of AFS the principal says nothing.
        let afs = same.filter(|stored| stored.token.name == token.name);
        let afs = afs.and_then(|stored| stored.afs.clone());
        stored.insert(uid, StoredToken { bytes, token, client, source, reply: None, ids, afs });
        drop(stored);
        self.note_change();
        true
    }

    fn note_change(&self) {
        let _changing = self.changing.lock();
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_all();
    }

    /// Returns when a token was stored or removed, at the latest after this time.
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
        let mut expected_keys = self.expected_keys.lock();
        if expected_keys.len() >= EXPECTED_MAX {
            expected_keys.clear();
        }
        expected_keys.insert(uid, signer);
        public
    }

    /// The key that the user got last; it is returned once.
    pub fn expected(&self, uid: u32) -> Option<Arc<Signer>> {
        self.expected_keys.lock().remove(&uid)
    }

    /// Removes the user's token. Returns whether there was one.
    pub fn remove(&self, uid: u32) -> bool {
        let had = self.stored.write().remove(&uid).is_some();
        self.note_change();
        had
    }

    /// The user's token.
    pub fn of(&self, uid: u32) -> Option<Token> {
        self.stored.read().get(&uid).map(|stored| stored.token.clone())
    }

    /// Sets whether the cell does not accept this machine's user numbers.
    pub fn set_untrusted_host(&self, untrusted: bool) {
        self.untrusted.store(untrusted, Ordering::SeqCst);
    }

    /// Sets whether the cell serves this machine's superuser as *nobody*, though it accepts the
    /// numbers of its users.
    pub fn set_squashed(&self, squashed: bool) {
        self.squashed.store(squashed, Ordering::SeqCst);
    }

    /// Does the cell not accept this machine's user numbers?
    pub fn is_doubted(&self) -> bool {
        self.untrusted.load(Ordering::SeqCst)
    }

    /// Stores the ids that a server reports for the holder of the user's token. Returns whether
    /// others were stored.
    pub fn set_ids(&self, uid: u32, ids: Ids) -> bool {
        let mut stored = self.stored.write();
        let Some(stored) = stored.get_mut(&uid) else { return false };
        let before = stored.ids.replace(ids);
        before != stored.ids
    }

    /// The uids that have a token.
    pub fn users(&self) -> Vec<u32> {
        self.stored.read().keys().copied().collect()
    }

    /// The ids of a user of this machine for the cell's mode bits. `None`: the local ones.
    pub fn ids(&self, uid: u32) -> Option<Ids> {
        let nobody = || Ids { uid: NOBODY_ID, gid: NOBODY_ID, groups: Arc::default() };
        match self.stored.read().get(&uid) {
            Some(stored) => Some(stored.ids.clone().unwrap_or_else(nobody)),
            None => {
                (self.is_doubted() || uid == 0 && self.squashed.load(Ordering::SeqCst)).then(nobody)
            }
        }
    }

    /// The user of this machine who is `uid` in the cell, if the host is not trusted: the lowest of
    /// several.
    pub fn local(&self, uid: u32) -> Option<u32> {
        if !self.is_doubted() {
            return None;
        }
        let stored = self.stored.read();
        let same = stored
            .iter()
            .filter(|(_, stored)| stored.ids.as_ref().is_some_and(|ids| ids.uid == uid));
        same.map(|(local, _)| *local).min()
    }

    /// The tokens to renew, with their keys: those of which a quarter of the time, at most
    /// [`EARLY_SECS`], is left, if they can be renewed.
    pub fn to_renew(&self, now: Timestamp) -> Vec<(u32, Bytes, Arc<Signer>)> {
        let stored = self.stored.read();
        let due = stored.iter().filter(|(_, stored)| {
            stored.is_due(now) && stored.token.renewable > stored.token.expires
        });
        due.map(|(uid, stored)| (*uid, stored.bytes.clone(), Arc::clone(&stored.client))).collect()
    }

    /// The sources of due tokens that end with their tickets: newer tickets may be there.
    pub fn to_get_anew(&self, now: Timestamp) -> Vec<TicketSource> {
        let stored = self.stored.read();
        let due = stored
            .values()
            .filter(|stored| stored.is_due(now) && stored.token.renewable <= stored.token.expires);
        due.filter_map(|stored| stored.source.clone()).collect()
    }

    /// When to check for due tokens again: after an eighth of what the shortest token has left,
    /// between a second and `at_most`.
    pub fn next_look(&self, now: Timestamp, at_most: Duration) -> Duration {
        let stored = self.stored.read();
        let left = stored
            .values()
            .map(|stored| stored.token.expires - now.secs)
            .filter(|left| *left > 0)
            .min();
        let wait = left.and_then(|left| u64::try_from(left / 8).ok()).map(Duration::from_secs);
        wait.map_or(at_most, |wait| wait.clamp(Duration::from_secs(1), at_most))
    }
}

impl StoredToken {
    fn is_due(&self, now: Timestamp) -> bool {
        let left = self.token.expires - now.secs;
        // A renewed token has the issue time of the first, so its whole time shows little.
        let early = ((self.token.expires - self.token.issued) / 4).min(EARLY_SECS);
        left > 0 && left <= early
    }
}

impl Wallet for TokenWallet {
    fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    fn show(&self, caller: &Caller, line: &ProofContext) -> Option<TokenProof> {
        let StoredToken { bytes, client, .. } = self.stored.read().get(&caller.uid)?.clone();
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
    fn on_an_untrusted_host_only_tokens_identify_users() {
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
        assert_eq!((tokens.ids(7), tokens.local(4711)), (None, None), "the local identity");
        put(7, 1);
        assert_eq!(tokens.ids(7), nobody.clone(), "no server has reported the ids yet");
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
    fn mx4_a_login_for_servers_of_afs_goes_with_its_token() {
        let tokens = TokenWallet::default();
        let client = Arc::new(Signer::new(&[1; 32]));
        let login = || Secret::new(b"a ticket of AFS".to_vec());
        let put = |name: &str, principal| {
            let token = Token { name: name.to_owned(), ..token_of(principal, &client) };
            assert!(tokens.put(7, &token.sign(&client).into(), Arc::clone(&client)));
        };
        assert!(!tokens.accompany(7, login()), "there is no token");
        put("joe", 1);
        assert!(tokens.accompany(7, login()));
        let (number, kept) = tokens.afs_login(7).unwrap();
        assert_eq!(kept.reveal(), b"a ticket of AFS");
        assert_eq!(tokens.afs_logins(), [number]);
        let context = ProofContext { certificate: None, challenge: [0; 32] };
        let shown = tokens.show(&Caller { uid: 7, ..Caller::ROOT }, &context).unwrap();
        let has_it = |bytes: &[u8]| bytes.windows(15).any(|part| part == b"a ticket of AFS");
        assert!(!has_it(&shown.token) && !has_it(&shown.proof));
        put("joe", 1);
        assert_eq!(tokens.afs_login(7).unwrap().0, number, "the token was renewed");
        put("ann", 1);
        assert!(tokens.afs_login(7).is_none(), "another user");
        assert!(tokens.accompany(7, login()));
        assert_ne!(tokens.afs_login(7).unwrap().0, number, "another login");
        tokens.remove(7);
        assert!(tokens.afs_login(7).is_none());
    }

    #[test]
    fn a_token_is_due_when_little_is_left_whatever_its_first_issue() {
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
