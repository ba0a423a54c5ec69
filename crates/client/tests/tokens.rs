//! Tokens: a caller is shown to each connection anew, and a caller whose token changed is another
//! caller.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Calling, FID, ScriptedServer, get_status, status};
use bytes::Bytes;
use client::{CallError, ClientOptions, Remote, Session, SessionConfig};
use dafs::credentials::{CredentialVerifier, Hash, PROOF_BYTES, ProofContext, TokenProof, Wallet};
use parking_lot::Mutex;
use types::{Answer, AuthCall, AuthLevel, Call, Caller, Fault, RequestIdentity};

/// Tokens by uid.
#[derive(Debug, Default)]
struct Purse {
    tokens: Mutex<HashMap<u32, &'static str>>,
    changes: AtomicU64,
}

impl Purse {
    fn put(&self, uid: u32, token: Option<&'static str>) {
        let mut tokens = self.tokens.lock();
        match token {
            Some(token) => drop(tokens.insert(uid, token)),
            None => drop(tokens.remove(&uid)),
        }
        self.changes.fetch_add(1, Ordering::SeqCst);
    }
}

impl Wallet for Purse {
    fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    fn show(&self, caller: &Caller, line: &ProofContext) -> Option<TokenProof> {
        let token = Bytes::from_static(self.tokens.lock().get(&caller.uid)?.as_bytes());
        let mut proof = [0; PROOF_BYTES];
        proof[..32].copy_from_slice(&line.challenge);
        Some(TokenProof { token, proof })
    }
}

/// Accepts the token `good`, and one name.
#[derive(Debug, Default)]
struct Door {
    challenge: u8,
    /// Tokens that were shown, with the challenge of their proof.
    shown: Mutex<Vec<(String, u8)>>,
    named: Mutex<Vec<u32>>,
}

impl CredentialVerifier for Door {
    fn challenge(&self) -> Hash {
        [self.challenge; 32]
    }

    fn named(&self, caller: Caller) -> Caller {
        self.named.lock().push(caller.uid);
        caller
    }

    fn shown(&self, shown: &TokenProof) -> Result<Caller, Fault> {
        let token = String::from_utf8(shown.token.to_vec()).unwrap();
        self.shown.lock().push((token.clone(), shown.proof[0]));
        if shown.proof[..32] != self.challenge() || token == "bad" {
            return Err(Fault::TokenRefused);
        }
        let who = RequestIdentity { level: AuthLevel::Password, ..RequestIdentity::NAMED };
        Ok(Caller { uid: 1000 + token.len() as u32, gid: 1, groups: None, who })
    }
}

struct Rig {
    server: ScriptedServer,
    door: Arc<Door>,
    purse: Arc<Purse>,
    session: Arc<Session>,
}

impl Rig {
    fn start() -> Rig {
        let server = ScriptedServer::start();
        let door = Arc::new(Door { challenge: 1, ..Door::default() });
        server.verify_by(Arc::clone(&door) as _);
        let purse = Arc::new(Purse::default());
        let options =
            ClientOptions { wallet: Some(Arc::clone(&purse) as _), ..ClientOptions::default() };
        let config = SessionConfig { options, ..server.config() };
        let session = Arc::new(Session::connect(config).unwrap());
        Rig { server, door, purse, session }
    }

    fn ask(&self, uid: u32) -> std::thread::JoinHandle<Result<client::Reply, CallError>> {
        let session = Arc::clone(&self.session);
        let caller = Caller { uid, gid: uid, groups: None, who: RequestIdentity::NAMED };
        std::thread::spawn(move || session.call(&caller, get_status(), None))
    }

    /// The caller that the server takes this user for.
    fn seen_as(&self, uid: u32) -> Caller {
        let asking = self.ask(uid);
        let received = self.server.next();
        self.server.answer(&received, Answer::Status(status(FID, 1)));
        assert!(asking.join().unwrap().is_ok());
        received.caller
    }
}

#[test]
fn callers_are_named_or_shown_by_their_tokens() {
    let rig = Rig::start();
    rig.purse.put(10, Some("good"));
    assert_eq!(rig.seen_as(10).uid, 1004);
    assert_eq!(rig.seen_as(20).uid, 20, "without a token it is only named");
    assert_eq!(rig.seen_as(10).uid, 1004);
    assert_eq!(*rig.door.shown.lock(), [("good".to_owned(), 1)], "shown once a connection");
    assert_eq!(*rig.door.named.lock(), [20]);
}

#[test]
fn a_new_token_counts_from_the_next_call_on() {
    let rig = Rig::start();
    rig.purse.put(10, Some("good"));
    assert_eq!(rig.seen_as(10).uid, 1004);
    rig.purse.put(10, Some("better"));
    assert_eq!(rig.seen_as(10).uid, 1006);
    rig.purse.put(10, None);
    assert_eq!(rig.seen_as(10).uid, 10, "logged out");
}

#[test]
fn a_refused_token_refuses_its_calls_and_no_others() {
    let rig = Rig::start();
    rig.purse.put(10, Some("bad"));
    rig.purse.put(20, Some("good"));
    let refused = rig.ask(10).join().unwrap();
    assert_eq!(refused.unwrap_err(), CallError::Fault(Fault::TokenRefused));
    assert_eq!(rig.seen_as(20).uid, 1004);
    rig.purse.put(10, Some("good"));
    assert_eq!(rig.seen_as(10).uid, 1004);
}

#[test]
fn ac3_each_connection_gets_a_proof_of_its_own() {
    let rig = Rig::start();
    rig.purse.put(10, Some("good"));
    let asking = rig.ask(10);
    let received = rig.server.next();
    let next = Arc::new(Door { challenge: 2, ..Door::default() });
    rig.server.verify_by(Arc::clone(&next) as _);
    rig.server.answer_and_lose(&received, Answer::Status(status(FID, 1)));
    // A question: its answer is recorded, and sent over the next connection.
    assert!(asking.join().unwrap().is_ok());
    assert_eq!(rig.seen_as(10).uid, 1004);
    assert_eq!(*rig.door.shown.lock(), [("good".to_owned(), 1)]);
    assert_eq!(*next.shown.lock(), [("good".to_owned(), 2)]);
}

#[test]
fn many_callers_share_a_connection() {
    let rig = Rig::start();
    for uid in 0..400 {
        assert_eq!(rig.seen_as(uid).uid, uid, "more than there are handles");
    }
    assert_eq!(rig.seen_as(3).uid, 3);
}

#[test]
fn no_password_goes_over_clear_text() {
    // Nothing listens there, and nothing is sent.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap().to_string();
    let within = Some(std::time::Duration::from_millis(100));
    let config = SessionConfig {
        attach_within: within,
        ..SessionConfig::new(client::Endpoint::Tcp(place), client::ClientIdentity::fleeting())
    };
    drop(listener);
    assert!(matches!(Session::connect(config).map(drop), Err(CallError::Refused(_))));
    // Over a Unix socket it may go.
    let rig = Rig::start();
    let call = Call::Auth { behalf: None, call: Box::new(AuthCall::Attest { client: [7; 32] }) };
    let asking: Calling = crate::common::call(&rig.session, call);
    rig.server.answer(&rig.server.next(), Fault::Unsupported);
    assert_eq!(asking.error(), CallError::Fault(Fault::Unsupported));
}
