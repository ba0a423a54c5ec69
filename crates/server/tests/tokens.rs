//! A caller from an untrusted machine is the user of its token, as long as that is valid, and
//! anonymous otherwise.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::*;
use bytes::Bytes;
use client::{ClientIdentity, Endpoint, Remote, Session, SessionConfig};
use dafs::credentials::{ProofContext, TokenProof, Wallet};
use fabric::tls::{ClientTls, ServerTls, Trust};
use guard::{Signer, Token};
use keys::{CellKeys, TokenKeys};
use login::{SigningKeys, TokenIssuer};
use parking_lot::Mutex;
use server::{CellPlace, OwnKeys, ServerConfig};
use types::{
    Answer, AuthCall, AuthLevel, Call, Caller, CreateHow, Fault, Fid, GuardCall, NewKind,
    NewPrincipal, Principal, PrincipalChange, PrincipalId, PrincipalKind, PtsCall, RequestIdentity,
    Secret, StatusChange,
};

const CELL: &str = "cell.test";

/// A cell that listens over TLS, trusts no machine, and has a user joe with uid 4711.
struct TestCell {
    cell: Cell,
    keys: CellKeys,
    tokens: Arc<TokenKeys>,
    own: Session,
    joe: Principal,
    root: Fid,
}

impl TestCell {
    fn new() -> TestCell {
        TestCell::with(|_| {})
    }

    /// With its own configuration.
    fn with(change: impl FnOnce(&mut ServerConfig)) -> TestCell {
        let dir = tempfile::tempdir().unwrap().keep();
        let keys = CellKeys::of(dir.join("keys"));
        keys.authority().make(CELL, SystemTime::now()).unwrap();
        let identity = keys.identity(&["127.0.0.1".to_owned()], SystemTime::now()).unwrap().0;
        let own_keys = Arc::new(OwnKeys::default());
        own_keys.want(identity.key_print().into_iter().collect());
        let tls =
            Arc::new(ServerTls::new(identity, &keys.authority().certificates().unwrap()).unwrap());
        let tokens = Arc::new(TokenKeys::of(&dir));
        tokens.make().unwrap();
        let signing = Arc::clone(&tokens);
        let cell = Cell::among_strangers(move |config| {
            config.cell = Some(CellPlace::Here(dir.join("celldb")));
            config.tls = Some(tls);
            config.own_keys = Some(own_keys);
            config.clear = true;
            config.mint = Some(Arc::new(TokenIssuer::new(CELL, signing)));
            change(config);
        });
        let own = connect(cell.unix());
        let joe = user(&own, "joe", 4711);
        let root = root(&own);
        let change = StatusChange { mode: Some(0o777), ..StatusChange::default() };
        ask(&own, Call::SetStatus { fid: root, change });
        TestCell { cell, keys, tokens, own, joe, root }
    }

    fn config(&self, wallet: Option<Arc<dyn Wallet>>, tls: bool) -> SessionConfig {
        let trust = Trust::Authorities(self.keys.authority().certificates().unwrap());
        let tls = tls.then(|| ClientTls::new(trust, None).unwrap());
        let mut config = SessionConfig::new(self.cell.tcp(), ClientIdentity::fleeting());
        config.options = fabric::ConnectionOptions { tls, ..Default::default() }.into();
        config.options.wallet = wallet;
        config
    }

    fn session(&self, wallet: Arc<TestWallet>) -> Session {
        Session::connect(self.config(Some(wallet), true)).unwrap()
    }

    fn token(&self, client: &Signer) -> Token {
        let now = now();
        Token {
            cell: CELL.to_owned(),
            key: 1,
            number: 5,
            principal: self.joe.id,
            name: "joe".to_owned(),
            level: AuthLevel::Password,
            issued: now,
            expires: now + 1000,
            renewable: now + 2000,
            client: client.public(),
        }
    }

    fn signed(&self, token: &Token) -> Vec<u8> {
        token.sign(&self.tokens.newest().unwrap().1)
    }

    /// The owner of a file that this uid makes.
    fn makes(&self, session: &Session, uid: u32, file: &str) -> Result<u32, Option<Fault>> {
        let how = CreateHow::Guarded;
        let call =
            Call::Make { dir: self.root, name: name(file), kind: NewKind::File, mode: 0o644, how };
        match asks(session, uid, call)? {
            Answer::Made { status, .. } => Ok(status.uid),
            other => panic!("{other:?}"),
        }
    }
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().try_into().unwrap()
}

fn user(session: &Session, name: &str, uid: u32) -> Principal {
    let kind = PrincipalKind::User;
    let new = NewPrincipal {
        kind,
        name: name.into(),
        id: None,
        owner: None,
        uid: Some(uid),
        gid: Some(uid),
    };
    let call = PtsCall::Create { new: Box::new(new) };
    let Answer::Principals { mut principals, .. } =
        ask(session, Call::Pts { on_behalf: None, call: Box::new(call) })
    else {
        panic!("a principal")
    };
    principals.pop().unwrap().0
}

fn asks(session: &Session, uid: u32, call: Call) -> Result<Answer, Option<Fault>> {
    let caller = Caller { uid, gid: uid, groups: None, who: RequestIdentity::NAMED };
    session.call(&caller, call, None).map(|reply| reply.answer).map_err(|error| error.fault())
}

/// The wallet of user 4711 of this machine.
#[derive(Debug)]
struct TestWallet {
    token: Mutex<Vec<u8>>,
    client: Signer,
    changes: AtomicU64,
    /// The last proof, and whether it is shown again in place of another.
    last: Mutex<[u8; 64]>,
    repeats: AtomicBool,
}

impl TestWallet {
    fn new(token: Vec<u8>, client: Signer) -> Arc<TestWallet> {
        Arc::new(TestWallet {
            token: Mutex::new(token),
            client,
            changes: AtomicU64::new(1),
            last: Mutex::new([0; 64]),
            repeats: AtomicBool::new(false),
        })
    }

    fn put(&self, token: Vec<u8>) {
        *self.token.lock() = token;
        self.changes.fetch_add(1, Ordering::SeqCst);
    }
}

impl Wallet for TestWallet {
    fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    fn show(&self, caller: &Caller, line: &ProofContext) -> Option<TokenProof> {
        let token = self.token.lock().clone();
        let binding = guard::binding(line.certificate.as_ref(), &line.challenge);
        let mut proof = self.last.lock();
        if !self.repeats.load(Ordering::SeqCst) {
            *proof = guard::prove(&token, &binding, &self.client);
        }
        let proof = *proof;
        (caller.uid == 4711 && !token.is_empty())
            .then(|| TokenProof { token: Bytes::from(token), proof })
    }
}

fn client() -> Signer {
    Signer::new(&[3; 32])
}

#[test]
fn an_untrusted_name_is_nobody_and_a_token_is_its_user() {
    let test = TestCell::new();
    let wallet = TestWallet::new(test.signed(&test.token(&client())), client());
    let session = test.session(Arc::clone(&wallet));
    assert_eq!(test.makes(&session, 4711, "a"), Ok(4711));
    assert_eq!(test.makes(&session, 0, "b"), Ok(65534), "root of another machine");
    assert_eq!(test.makes(&session, 5, "c"), Ok(65534), "another user there");
    let report = |uid| match asks(&session, uid, Call::ServerReport) {
        Ok(Answer::Report(text)) => text,
        other => panic!("{other:?}"),
    };
    assert!(!report(0).contains("pid"), "an anonymous caller gets the cell's name, and no more");
    assert!(report(4711).contains("pid"));
    // A caller without a token gets none over the network.
    let attest = || Call::Auth {
        behalf: None,
        call: Box::new(AuthCall::Attest { client: client().public() }),
    };
    assert_eq!(asks(&session, 5, attest()), Err(Some(Fault::NotPermitted)));
    assert!(
        matches!(asks(&test.own, 4711, attest()), Ok(Answer::Token(_))),
        "over the Unix socket"
    );
    // The user logs out in mid-session: frames stay in order, so the next request is anonymous.
    wallet.put(Vec::new());
    assert_eq!(test.makes(&session, 4711, "d"), Ok(65534));
    wallet.put(test.signed(&test.token(&client())));
    assert_eq!(test.makes(&session, 4711, "e"), Ok(4711));
    // A new connection needs a proof of its own.
    session.cut_connections();
    assert_eq!(test.makes(&session, 4711, "f"), Ok(4711));
}

#[test]
fn a_bad_token_is_refused_whatever_is_wrong_with_it() {
    let test = TestCell::new();
    let good = test.token(&client());
    let forger = Signer::new(&[77; 32]);
    let old = Token { issued: now() - 100, expires: now() - 1, ..good.clone() };
    let early = Token { issued: now() + 500, ..good.clone() };
    let stranger = Token { principal: PrincipalId(4444), ..good.clone() };
    let other_cell = Token { cell: "elsewhere.test".to_owned(), ..good.clone() };
    let other_key = Token { client: forger.public(), ..good.clone() };
    for (what, bytes, fault) in [
        ("expired", test.signed(&old), Fault::TokenExpired),
        ("too early", test.signed(&early), Fault::TokenExpired),
        ("forged", good.sign(&forger), Fault::TokenRefused),
        ("an unknown key's", test.signed(&Token { key: 9, ..good.clone() }), Fault::TokenRefused),
        ("another cell's", test.signed(&other_cell), Fault::TokenRefused),
        ("another client's", test.signed(&other_key), Fault::TokenRefused),
        ("nobody's", test.signed(&stranger), Fault::TokenRefused),
        ("noise", vec![7; 200], Fault::TokenRefused),
    ] {
        let session = test.session(TestWallet::new(bytes, client()));
        assert_eq!(test.makes(&session, 4711, "x"), Err(Some(fault)), "{what}");
        assert_eq!(asks(&session, 4711, Call::ServerReport), Err(Some(fault)), "{what}");
        // Other users of that machine are not affected.
        let look = Call::GetStatus { fid: test.root };
        assert!(asks(&session, 12, look).is_ok(), "{what}");
    }
    // Overheard: token and proof of one connection, shown over another.
    let wallet = TestWallet::new(test.signed(&good), client());
    let first = test.session(Arc::clone(&wallet));
    assert_eq!(test.makes(&first, 4711, "once"), Ok(4711));
    wallet.repeats.store(true, Ordering::SeqCst);
    let second = test.session(Arc::clone(&wallet));
    assert_eq!(test.makes(&second, 4711, "twice"), Err(Some(Fault::TokenRefused)));
    // In clear text others may listen.
    let clear =
        Session::connect(test.config(Some(TestWallet::new(test.signed(&good), client())), false))
            .unwrap();
    assert_eq!(test.makes(&clear, 4711, "clear"), Err(Some(Fault::TokenRefused)));
    let password = AuthCall::Password {
        name: "joe".to_owned(),
        password: Secret::new(b"open sesame".to_vec()),
        client: client().public(),
    };
    let said = asks(&clear, 12, Call::Auth { behalf: None, call: Box::new(password) });
    assert_eq!(said, Err(Some(Fault::Unsupported)), "no password leaves");
}

#[test]
fn an_ended_token_ends_for_running_sessions_too() {
    let test = TestCell::new();
    let wallet = TestWallet::new(test.signed(&test.token(&client())), client());
    let session = test.session(Arc::clone(&wallet));
    assert_eq!(test.makes(&session, 4711, "a"), Ok(4711));
    let set = |change: PrincipalChange| {
        let call = PtsCall::SetFields { id: test.joe.id, change };
        ask(&test.own, Call::Pts { on_behalf: None, call: Box::new(call) })
    };
    set(PrincipalChange { locked: Some(true), ..PrincipalChange::default() });
    assert_eq!(test.makes(&session, 4711, "b"), Err(Some(Fault::TokenRefused)));
    set(PrincipalChange { locked: Some(false), uid: Some(4712), ..PrincipalChange::default() });
    assert_eq!(
        test.makes(&session, 4711, "b"),
        Ok(4712),
        "the ids for mode bits are those of the present record"
    );
    set(PrincipalChange { tokens_after: Some(now() + 1), ..PrincipalChange::default() });
    assert_eq!(test.makes(&session, 4711, "c"), Err(Some(Fault::TokenRefused)));
    let newer = Token { issued: now() + 1, ..test.token(&client()) };
    wallet.put(test.signed(&newer));
    assert_eq!(test.makes(&session, 4711, "c"), Ok(4712));
    let call = PtsCall::Delete { id: test.joe.id };
    ask(&test.own, Call::Pts { on_behalf: None, call: Box::new(call) });
    assert_eq!(test.makes(&session, 4711, "d"), Err(Some(Fault::TokenRefused)));
}

/// A modified client, which asks no kernel for permission: over TLS, without a login, and with
/// another user's token.
#[test]
fn ac9_a_client_that_asks_no_kernel_reaches_no_data() {
    let test = TestCell::new();
    let make = |dir, called: &str, kind, mode| {
        let how = CreateHow::Guarded;
        status(&ask(&test.own, Call::Make { dir, name: name(called), kind, mode, how })).fid
    };
    let closed = make(test.root, "closed", NewKind::Directory, 0o700);
    let (inside, shown) =
        (make(closed, "f", NewKind::File, 0o644), make(test.root, "g", NewKind::File, 0o600));
    for fid in [inside, shown] {
        let data = Bytes::from_static(b"secret");
        ask(
            &test.own,
            Call::Write { fid, offset: Some(0), data, stable: false, kill_privileges: false },
        );
    }
    let stranger = Session::connect(test.config(None, true)).unwrap();
    let joe = test.session(TestWallet::new(test.signed(&test.token(&client())), client()));
    for (session, uid) in [(&stranger, 0), (&joe, 4711)] {
        let ask = |call| asks(session, uid, call).unwrap_err();
        // The numbers count up from the root; the uniquifier of each cannot be guessed.
        for slot in 0..64u64 {
            for vnode in [2 * slot, 2 * slot + 1].into_iter().filter(|vnode| *vnode > 1) {
                for unique in [slot + 1, vnode, 1, 0] {
                    let fid = Fid::new(test.root.volume.0, vnode, unique);
                    assert_eq!(ask(Call::GetStatus { fid }), Some(Fault::Stale));
                }
            }
        }
        let denied = Some(Fault::AccessDenied);
        let (length, offset) = (100, 0);
        let data = Bytes::from_static(b"mine");
        assert_eq!(ask(Call::Lookup { dir: closed, name: name("f") }), denied);
        assert_eq!(ask(Call::Read { fid: shown, offset, length }), denied);
        assert_eq!(ask(Call::ReadSums { fid: shown, first: 0, count: 1 }), denied);
        let write = Call::Write {
            fid: shown,
            offset: Some(0),
            data,
            stable: false,
            kill_privileges: false,
        };
        assert_eq!(ask(write), denied);
        let cut = StatusChange { size: Some(0), through_handle: true, ..StatusChange::default() };
        assert_eq!(ask(Call::SetStatus { fid: shown, change: cut }), denied);
    }
    assert_eq!(read(&test.own, shown, 0, 100), "secret");
}

/// The loopback addresses, as `--trust 127.0.0.0/8` sets them.
fn trusts_loopback(config: &mut ServerConfig) {
    config.trusted = vec!["127.0.0.0/8".parse().unwrap()];
}

fn level(session: &Session, uid: u32) -> (String, u64) {
    let caller = Caller { uid, ..Caller::ROOT };
    let Answer::Report(report) = session.call(&caller, Call::ServerReport, None).unwrap().answer
    else {
        panic!()
    };
    let you = serde_json::from_str::<serde_json::Value>(&report).unwrap()["you"].take();
    (you["level"].as_str().unwrap().to_owned(), you["uid"].as_u64().unwrap())
}

/// Calls that only servers, administrators and administrators of a part of the cell may make.
fn powers(joe: PrincipalId) -> Vec<Call> {
    let pts = |call| Call::Pts { on_behalf: None, call: Box::new(call) };
    let change = PrincipalChange { locked: Some(false), ..PrincipalChange::default() };
    let password = AuthCall::SetPassword {
        name: "joe".to_owned(),
        old: None,
        new: Secret::new(b"open sesame".to_vec()),
        keep_tokens: false,
    };
    vec![
        Call::Cell(types::CellCall::Subdomain { principal: joe, host: None }),
        Call::Cell(types::CellCall::Copy { copy: 0, after: Bytes::new(), skip: 0 }),
        Call::Pts { on_behalf: Some(PrincipalId::ADMINISTRATORS), call: Box::new(PtsCall::Max) },
        pts(PtsCall::SetMax { user: PrincipalId(9), group: PrincipalId(-900) }),
        pts(PtsCall::SetFields { id: joe, change }),
        Call::Auth { behalf: None, call: Box::new(password) },
        Call::Guard {
            behalf: None,
            call: Box::new(types::GuardCall::Mandates { after: 0, max: 1 }),
        },
        Call::Scrub { start: true },
    ]
}

fn has_none(session: &Session, uid: u32, joe: PrincipalId) {
    let caller = Caller { uid, ..Caller::ROOT };
    for call in powers(joe) {
        let said = session.call(&caller, call.clone(), None);
        assert!(said.is_err(), "uid {uid} may make {call:?}: {said:?}");
    }
}

fn from_port(
    test: &TestCell,
    identity: Option<fabric::tls::TlsIdentity>,
    reserved_port: bool,
) -> Session {
    let trust = Trust::Authorities(test.keys.authority().certificates().unwrap());
    let tls = Some(ClientTls::new(trust, identity).unwrap());
    let mut config = SessionConfig::new(test.cell.tcp(), ClientIdentity::fleeting());
    config.options = fabric::ConnectionOptions { tls, reserved_port, ..Default::default() }.into();
    Session::connect(config).unwrap()
}

#[test]
fn ac_3_an_address_alone_is_nobody() {
    let test = TestCell::with(|config| {
        trusts_loopback(config);
        config.trusted_root = true;
    });
    let session = from_port(&test, None, false);
    for uid in [0, 4711] {
        assert_eq!(level(&session, uid), ("nobody".to_owned(), 65534));
        has_none(&session, uid, test.joe.id);
    }
    // The same calls succeed over the server's own socket.
    for call in powers(test.joe.id) {
        let said = test.own.call(&Caller::ROOT, call.clone(), None);
        assert!(
            !matches!(said, Err(client::CallError::Fault(Fault::NotPermitted))),
            "{call:?}: {said:?}"
        );
    }
}

#[test]
fn lu1_a_token_counts_over_the_socket_for_users() {
    let test = TestCell::with(|config| {
        let beside = config.unix_socket.as_ref().unwrap().with_file_name("users");
        config.users_socket = Some(beside.join("socket"));
    });
    let wallet = TestWallet::new(test.signed(&test.token(&client())), client());
    let users = Endpoint::Unix(test.cell.config.users_socket.clone().unwrap());
    let mut config = SessionConfig::new(users, ClientIdentity::fleeting());
    config.options.wallet = Some(Arc::clone(&wallet) as _);
    let session = Session::connect(config).unwrap();
    let me = rustix::process::geteuid().as_raw();
    assert_eq!(level(&session, 4711), ("password".to_owned(), 4711));
    assert_eq!(level(&session, 77), ("attested".to_owned(), me.into()), "without a token");
    assert_eq!(test.makes(&session, 4711, "his"), Ok(4711));
    assert_eq!(test.makes(&session, 77, "mine"), Ok(me));
    wallet.repeats.store(true, Ordering::SeqCst);
    wallet.put(test.signed(&Token { number: 6, ..test.token(&client()) }));
    assert_eq!(test.makes(&session, 4711, "forged"), Err(Some(Fault::TokenRefused)));
}

#[test]
fn ac_3_a_reserved_port_speaks_for_users_not_for_root() {
    if !rustix::process::geteuid().is_root() {
        let _ = writeln!(
            std::io::stderr(),
            "\nSKIP unit: ac_3_a_reserved_port_speaks_for_users_not_for_root: only root has \
                reserved ports"
        );
        return;
    }
    for trusted_root in [false, true] {
        let test = TestCell::with(|config| {
            trusts_loopback(config);
            config.trusted_root = trusted_root;
        });
        let join = PtsCall::Join { group: PrincipalId::ADMINISTRATORS, member: test.joe.id };
        ask(&test.own, Call::Pts { on_behalf: None, call: Box::new(join) });
        let session = from_port(&test, None, true);
        let root = if trusted_root { ("host", 0) } else { ("nobody", 65534) };
        assert_eq!(level(&session, 0), (root.0.to_owned(), root.1));
        assert_eq!(level(&session, 4711), ("host".to_owned(), 4711));
        assert_eq!(test.makes(&session, 4711, "his"), Ok(4711));
        // Joe is an administrator of the cell, and that host may name this user.
        for uid in [0, 4711] {
            has_none(&session, uid, test.joe.id);
        }
    }
    let test = TestCell::new();
    assert_eq!(
        level(&from_port(&test, None, true), 4711),
        ("nobody".to_owned(), 65534),
        "no network is trusted"
    );
}

#[test]
fn ac_3_a_foreign_authority_makes_hosts_and_no_servers() {
    let dir = tempfile::tempdir().unwrap();
    // The authority of a whole site; all names may be in its certificates.
    let site = CellKeys::of(dir.path());
    site.authority().make("site", SystemTime::now()).unwrap();
    let laptop = || site.identity(&["127.0.0.1".to_owned()], SystemTime::now()).unwrap().0;
    for trusts in [false, true] {
        let test = TestCell::with(|config| {
            if trusts {
                trusts_loopback(config);
            }
        });
        let own = test.keys.shown().unwrap();
        let tls = test.cell.config.tls.as_ref().unwrap();
        tls.replace_with_hosts(
            own.clone(),
            &test.keys.authority().certificates().unwrap(),
            &site.authority().certificates().unwrap(),
        )
        .unwrap();
        let session = from_port(&test, Some(laptop()), false);
        assert_eq!(level(&session, 0), ("nobody".to_owned(), 65534));
        assert_eq!(level(&session, 4711).0, if trusts { "host" } else { "nobody" });
        for uid in [0, 4711] {
            has_none(&session, uid, test.joe.id);
        }
        let server = from_port(&test, Some(own), false);
        assert_eq!(level(&server, 0), ("server".to_owned(), 0));
    }
}

#[test]
fn ac_3_a_withdrawn_key_ends_what_it_signed() {
    let test = TestCell::new();
    let wallet = TestWallet::new(test.signed(&test.token(&client())), client());
    let session = test.session(Arc::clone(&wallet));
    assert_eq!(test.makes(&session, 4711, "before"), Ok(4711));
    test.tokens.make().unwrap();
    test.tokens.remove(1).unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let mut number = 0;
    while test.makes(&session, 4711, &format!("file{number}")).is_ok() {
        number += 1;
        assert!(std::time::Instant::now() < end, "tokens of a removed key stay good");
    }
    assert_eq!(test.makes(&session, 4711, "after"), Err(Some(Fault::TokenRefused)));
}

#[test]
fn h7_a_new_password_ends_older_tokens() {
    let test = TestCell::new();
    let set = |old: Option<&str>, new: &str, keep_tokens| {
        let secret = |text: &str| Secret::new(text.as_bytes().to_vec());
        let (name, old, new) = ("joe".to_owned(), old.map(secret), secret(new));
        let call = AuthCall::SetPassword { name, old, new, keep_tokens };
        Call::Auth { behalf: None, call: Box::new(call) }
    };
    let log_in = |session: &Session, password: &str| {
        let password = Secret::new(password.as_bytes().to_vec());
        let call =
            AuthCall::Password { name: "joe".to_owned(), password, client: client().public() };
        match asks(session, 12, Call::Auth { behalf: None, call: Box::new(call) }) {
            Ok(Answer::Token(token)) => token.reveal().to_vec(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(asks(&test.own, 0, set(None, "open sesame", false)), Ok(Answer::Done));
    let nobody = test.session(TestWallet::new(Vec::new(), client()));
    let stolen = log_in(&nobody, "open sesame");
    // Although it has the same second, the token counts as issued before the change.
    let thief = test.session(TestWallet::new(stolen.clone(), client()));
    assert_eq!(test.makes(&thief, 4711, "a"), Ok(4711));
    let wallet = TestWallet::new(log_in(&nobody, "open sesame"), client());
    let joe = test.session(Arc::clone(&wallet));
    assert_eq!(asks(&joe, 4711, set(Some("open sesame"), "xyzzy plugh", true)), Ok(Answer::Done));
    assert_eq!(test.makes(&thief, 4711, "b"), Ok(4711), "asked to keep the tokens");
    assert_eq!(asks(&joe, 4711, set(Some("xyzzy plugh"), "plugh xyzzy", false)), Ok(Answer::Done));
    for session in [&thief, &joe] {
        assert_eq!(test.makes(session, 4711, "c"), Err(Some(Fault::TokenRefused)));
    }
    let renew = Box::new(AuthCall::Renew { token: stolen.into() });
    let renewed = asks(&thief, 4711, Call::Auth { behalf: None, call: renew });
    assert_eq!(renewed, Err(Some(Fault::TokenRefused)));
    wallet.put(log_in(&nobody, "plugh xyzzy"));
    assert_eq!(test.makes(&joe, 4711, "c"), Ok(4711), "by the new password, in the same second");
    // An administrator's change ends them as well.
    assert_eq!(asks(&test.own, 0, set(None, "open sesame", false)), Ok(Answer::Done));
    assert_eq!(test.makes(&joe, 4711, "d"), Err(Some(Fault::TokenRefused)));
}

#[test]
fn m17_a_password_in_clear_text_is_refused() {
    for trusted in [false, true] {
        let test = TestCell::with(|config| {
            if trusted {
                config.trust_this_machine();
            }
        });
        let secret = || Secret::new(b"open sesame".to_vec());
        let (name, new) = ("joe".to_owned(), secret());
        let set = AuthCall::SetPassword { name: name.clone(), old: None, new, keep_tokens: false };
        let set = Call::Auth { behalf: None, call: Box::new(set) };
        assert_eq!(asks(&test.own, 0, set.clone()), Ok(Answer::Done));
        let log_in = AuthCall::Password { name, password: secret(), client: client().public() };
        let log_in = Call::Auth { behalf: None, call: Box::new(log_in) };
        let clear = Session::connect(test.config(None, false)).unwrap();
        // The client would refuse to send it; only this test avoids that check.
        let by_hand = |call: &Call| {
            let caller = Caller { uid: 0, gid: 0, groups: None, who: RequestIdentity::NAMED };
            clear.call_urgently(&caller, call.clone(), None).map_err(|error| error.fault())
        };
        for call in [&log_in, &set] {
            assert_eq!(
                by_hand(call).unwrap_err(),
                Some(Fault::Unsupported),
                "{call:?}, trusted: {trusted}"
            );
        }
        let tls = test.session(TestWallet::new(Vec::new(), client()));
        assert!(matches!(asks(&tls, 12, log_in), Ok(Answer::Token(_))), "the same over TLS");
    }
}

/// A program of the user gets a token for its own key by the user's token, as the mount asks for
/// it. Nothing of the token is more than its origin was.
#[test]
fn ac3_a_token_makes_no_other_that_is_more() {
    let test = TestCell::new();
    let origin = test.token(&client());
    let wallet = TestWallet::new(test.signed(&origin), client());
    let session = test.session(Arc::clone(&wallet));
    let other = Signer::new(&[5; 32]);
    let attest = |session: &Session, uid| {
        let call = AuthCall::Attest { client: Signer::new(&[5; 32]).public() };
        match asks(session, uid, Call::Auth { behalf: None, call: Box::new(call) }) {
            Ok(Answer::Token(token)) => Ok(token.reveal().to_vec()),
            Ok(answer) => panic!("{answer:?}"),
            Err(fault) => Err(fault),
        }
    };
    let bytes = attest(&session, 4711).unwrap();
    let derived = Token::parse(&bytes).unwrap().0;
    assert_eq!(
        (derived.principal, derived.level, derived.name.as_str(), derived.client),
        (origin.principal, origin.level, "joe", other.public())
    );
    assert_eq!(
        (derived.number, derived.issued, derived.expires, derived.renewable),
        (origin.number, origin.issued, origin.expires, origin.expires),
        "not longer, not newer"
    );
    // It is good with its own key, and with no other.
    let program = test.session(TestWallet::new(bytes.clone(), Signer::new(&[5; 32])));
    assert_eq!(test.makes(&program, 4711, "by-a-program"), Ok(4711));
    let thief = test.session(TestWallet::new(bytes.clone(), client()));
    assert_eq!(test.makes(&thief, 4711, "x"), Err(Some(Fault::TokenRefused)), "a copy");
    // A token that it makes itself ends no later, nor does its renewal.
    let third = Token::parse(&attest(&program, 4711).unwrap()).unwrap().0;
    assert_eq!((third.expires, third.renewable), (origin.expires, origin.expires));
    let renew = AuthCall::Renew { token: Secret::new(bytes.clone()) };
    match asks(&program, 4711, Call::Auth { behalf: None, call: Box::new(renew) }) {
        Ok(Answer::Token(newer)) => {
            assert_eq!(Token::parse(newer.reveal()).unwrap().0.expires, origin.expires);
        }
        answer => panic!("{answer:?}"),
    }
    // Callers without a token get none: another user of the machine, and the user after a logout.
    assert_eq!(attest(&session, 12), Err(Some(Fault::NotPermitted)), "an anonymous caller");
    wallet.put(Vec::new());
    assert_eq!(attest(&session, 4711), Err(Some(Fault::NotPermitted)), "after a logout");
    wallet.put(test.signed(&origin));
    // A locked user, and one whose tokens are void, get none, and those that are out are void too.
    let set = |change: PrincipalChange| {
        let call = PtsCall::SetFields { id: test.joe.id, change };
        ask(&test.own, Call::Pts { on_behalf: None, call: Box::new(call) })
    };
    set(PrincipalChange { locked: Some(true), ..PrincipalChange::default() });
    assert_eq!(attest(&session, 4711), Err(Some(Fault::TokenRefused)), "locked");
    assert_eq!(attest(&program, 4711), Err(Some(Fault::TokenRefused)), "locked");
    set(PrincipalChange { locked: Some(false), ..PrincipalChange::default() });
    set(PrincipalChange { tokens_after: Some(now() + 1), ..PrincipalChange::default() });
    assert_eq!(attest(&session, 4711), Err(Some(Fault::TokenRefused)), "void");
    assert_eq!(test.makes(&program, 4711, "y"), Err(Some(Fault::TokenRefused)), "void");
    set(PrincipalChange { tokens_after: Some(0), ..PrincipalChange::default() });
    assert_eq!(test.makes(&program, 4711, "y"), Ok(4711));
    // A fence of the token meets both; it also ends their sessions.
    let whom = types::Whom::Token(origin.number);
    let fence = GuardCall::AddFence { whom, seconds: 0, why: "a test".to_owned() };
    ask(&test.own, Call::Guard { behalf: None, call: Box::new(fence) });
    let (session, program) =
        (test.session(wallet), test.session(TestWallet::new(bytes, Signer::new(&[5; 32]))));
    assert_eq!(attest(&session, 4711), Err(Some(Fault::Fenced)));
    assert_eq!(test.makes(&program, 4711, "z"), Err(Some(Fault::Fenced)));
}
