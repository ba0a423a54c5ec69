//! A server joins its cell by an invitation: once, for one key, with the name and roles that the
//! invitation gives. Nothing else lets one in (SJ-1, SJ-2, SJ-3).

use std::sync::Arc;
use std::time::SystemTime;

use crate::common::*;
use client::{CallError, ClientIdentity, Endpoint, Remote, Session, SessionConfig};
use fabric::tls::{ClientTls, Fingerprint, ServerTls, TlsIdentity, Trust};
use guard::{JoinCode, JoinFacts, JoinRequest};
use keys::{CellCertifier, CellKeys, TokenKeys};
use server::{CellPlace, OwnKeys};
use types::{
    Answer, Call, Caller, CellCall, Fault, GuardCall, Invitation, PrincipalId, Revision, ServerId,
    ServerInfo, ServerRoles,
};

const CELL: &str = "cell.test";

/// A server with the cell's database and the key of its authority.
struct First {
    cell: Cell,
    keys: CellKeys,
    here: Session,
    dir: tempfile::TempDir,
}

impl Drop for First {
    fn drop(&mut self) {
        self.cell.crash();
    }
}

/// A machine that wants to become a server: its keys alone.
struct Machine {
    dir: tempfile::TempDir,
    keys: CellKeys,
}

fn machine() -> Machine {
    let dir = tempfile::tempdir().unwrap();
    let keys = CellKeys::of(dir.path().join("keys"));
    Machine { dir, keys }
}

fn fault(result: Result<Answer, CallError>) -> Option<Fault> {
    result.err().and_then(|error| error.fault())
}

impl First {
    fn new() -> First {
        let dir = tempfile::tempdir().unwrap();
        let keys = CellKeys::of(dir.path().join("keys"));
        keys.authority().make(CELL, SystemTime::now()).unwrap();
        TokenKeys::of(dir.path()).make().unwrap();
        let identity = keys.identity(&["127.0.0.1".to_owned()], SystemTime::now()).unwrap().0;
        let authorities = keys.authority().certificates().unwrap();
        let tls = Arc::new(ServerTls::new(identity.clone(), &authorities).unwrap());
        let own = Arc::new(OwnKeys::default());
        own.want(identity.key_print().into_iter().collect());
        let certifier = Arc::new(CellCertifier::of(dir.path().to_owned(), CELL, None));
        let cell = Cell::among_strangers(move |config| {
            config.cell = Some(CellPlace::Here(
                config.unix_socket.as_ref().unwrap().with_file_name("celldb"),
            ));
            config.tls = Some(tls);
            config.own_keys = Some(own);
            config.certifier = Some(certifier);
            config.name = Some("first".into());
            config.audit = Some(config.unix_socket.as_ref().unwrap().with_file_name("audit"));
        });
        let here = connect(cell.unix());
        First { cell, keys, here, dir }
    }

    fn code(&self) -> JoinCode {
        let Endpoint::Tcp(address) = self.cell.tcp() else { panic!("TCP") };
        JoinCode::random(CELL, vec![address], self.keys.authority().fingerprint().unwrap().0)
    }

    fn invite(&self, code: &JoinCode, name: &str, uses: u32, seconds: u64) -> u64 {
        let call = CellCall::Invite {
            public: code.signer().public(),
            seconds,
            uses,
            roles: ServerRoles::FILE.bits(),
            by: PrincipalId::NONE,
            name: name.into(),
        };
        match ask(&self.here, Call::Cell(call)) {
            Answer::Number(number) => number.0,
            other => panic!("{other:?}"),
        }
    }

    fn invitations(&self) -> Vec<Invitation> {
        match ask(&self.here, Call::Cell(CellCall::Invitations { after: 0, max: 100 })) {
            Answer::Invitations { invitations, end: true } => invitations,
            other => panic!("{other:?}"),
        }
    }

    /// A session of another machine, with this certificate.
    fn session(&self, identity: Option<TlsIdentity>) -> Session {
        session(
            &self.cell.tcp(),
            Trust::Pinned(self.keys.authority().fingerprint().unwrap()),
            identity,
        )
        .unwrap()
    }

    fn join(&self, request: &str) -> Result<Answer, CallError> {
        let request = request.to_owned();
        try_ask(&self.session(None), Call::Cell(CellCall::Join { request }))
    }

    /// A server that was let in under this name, and whose key is entered.
    fn joined(&self, name: &str) -> Machine {
        let (machine, code) = (machine(), self.code());
        self.invite(&code, name, 1, 600);
        machine.settle(self.join(&machine.request(&code, name)));
        self.enrol(&machine, name, ServerId(700 + self.invitations().len() as u128)).unwrap();
        machine
    }

    fn enrol(&self, machine: &Machine, name: &str, id: ServerId) -> Result<Answer, CallError> {
        let identity = machine.keys.shown().unwrap();
        let server = ServerInfo {
            id,
            name: name.into(),
            addresses: Vec::new(),
            keys: identity.key_print().into_iter().collect(),
        };
        let put = CellCall::PutServer { server: server.clone(), expected: Revision(0) };
        let entered = try_ask(&self.session(Some(identity)), Call::Cell(put));
        // The asked server ends the connection once the key is listed. If the answer is lost with
        // it, the call is made again, and finds its own work.
        let Answer::Servers(all) = ask(&self.here, Call::Cell(CellCall::Servers)) else { panic!() };
        match all.into_iter().find(|seen| seen.record == server) {
            Some(seen) if entered.as_ref().is_err_and(|e| e.fault() == Some(Fault::Conflict)) => {
                Ok(Answer::Revision(seen.revision))
            }
            _ => entered,
        }
    }
}

fn session(
    endpoint: &Endpoint,
    trust: Trust,
    identity: Option<TlsIdentity>,
) -> Result<Session, CallError> {
    let tls = Some(ClientTls::new(trust, identity).unwrap());
    let mut config = SessionConfig::new(endpoint.clone(), ClientIdentity::fleeting());
    config.options = fabric::ConnectionOptions { tls, ..Default::default() }.into();
    config.attach_within = Some(std::time::Duration::from_secs(5));
    Session::connect(config)
}

impl Machine {
    fn asks(&self, code: &JoinCode, name: &str) -> JoinRequest {
        let (key, signing_request) = self.keys.signing_request().unwrap();
        JoinRequest {
            cell: code.cell.clone(),
            authority: code.authority,
            invitation: code.signer().public(),
            key,
            name: name.into(),
            hosts: vec!["127.0.0.1".into()],
            signing_request,
        }
    }

    fn request(&self, code: &JoinCode, name: &str) -> String {
        self.asks(code, name).sign(&code.signer())
    }

    /// Takes what came; returns the facts.
    fn settle(&self, answer: Result<Answer, CallError>) -> JoinFacts {
        let Ok(Answer::Joined { facts, secrets }) = answer else { panic!("{answer:?}") };
        let facts: JoinFacts = serde_json::from_str(&facts).unwrap();
        self.keys.accept(&facts.authorities, &facts.certificate, &[]).unwrap();
        TokenKeys::of(self.dir.path()).import(secrets.reveal()).unwrap();
        facts
    }
}

#[test]
fn sj1_a_code_lets_one_key_in_and_the_same_key_again() {
    let first = First::new();
    let (code, two, three) = (first.code(), machine(), machine());
    first.invite(&code, "two", 1, 600);
    let request = two.request(&code, "two");
    let facts = two.settle(first.join(&request));
    assert_eq!((&*facts.name, &*facts.roles), ("two", "file"));
    assert!(!two.dir.path().join("keys/ca.key").exists(), "no server gets the authority's key");
    assert_eq!(TokenKeys::of(two.dir.path()).numbers().unwrap(), [1]);
    // The answer was lost: the same key, also with a changed request.
    two.settle(first.join(&request));
    let moved = JoinRequest { hosts: vec!["192.0.2.7".into()], ..two.asks(&code, "two") };
    two.settle(first.join(&moved.sign(&code.signer())));
    assert_eq!(fault(first.join(&three.request(&code, "two"))), Some(Fault::Exists));
    assert_eq!(fault(first.join(&two.request(&code, "six"))), Some(Fault::Conflict), "its name");
    // The certificate lets it enter its key, under its own name.
    for wrong in ["three", "first"] {
        let refused = first.enrol(&two, wrong, ServerId(7));
        assert_eq!(fault(refused), Some(Fault::NotPermitted), "{wrong}");
    }
    first.enrol(&two, "two", ServerId(7)).unwrap();
    let session = first.session(Some(two.keys.shown().unwrap()));
    assert!(matches!(
        ask(
            &session,
            Call::Cell(CellCall::Watch { server: ServerId(7), since: Revision(0), max: 1 })
        ),
        Answer::Changes { .. }
    ));
    assert_eq!(first.invitations()[0].used.len(), 1);
}

#[test]
fn sj1_of_many_keys_at_once_a_code_lets_in_as_many_as_it_says() {
    let first = First::new();
    for uses in [1, 3] {
        let code = first.code();
        first.invite(&code, "", uses, 600);
        let outcomes: Vec<bool> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8)
                .map(|n| {
                    let (first, code) = (&first, &code);
                    scope.spawn(move || {
                        let name = format!("server-{uses}-{n}");
                        let outcome = first.join(&machine().request(code, &name));
                        let joined = matches!(outcome, Ok(Answer::Joined { .. }));
                        assert_eq!(fault(outcome), (!joined).then_some(Fault::Exists));
                        joined
                    })
                })
                .collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(outcomes.iter().filter(|joined| **joined).count(), uses as usize);
    }
}

#[test]
fn sj1_a_code_that_ended_or_was_taken_back_lets_none_in() {
    let first = First::new();
    let two = machine();
    let nobody = first.session(None);
    let code = first.code();
    assert_eq!(fault(first.join(&two.request(&code, "two"))), Some(Fault::AccessDenied), "unknown");
    let number = first.invite(&code, "two", 1, 600);
    ask(&first.here, Call::Cell(CellCall::Uninvite { number }));
    assert_eq!(fault(first.join(&two.request(&code, "two"))), Some(Fault::AccessDenied));
    let code = first.code();
    first.invite(&code, "two", 1, 1);
    wait_for("the end of the invitation", || {
        // Another name: it would be refused, not let in.
        fault(first.join(&two.request(&code, "six"))) == Some(Fault::Conflict)
            && first.invitations()[0].until < now()
    });
    assert_eq!(fault(first.join(&two.request(&code, "two"))), Some(Fault::TokenExpired));
    // For another cell, and a request whose key is another one's.
    let code = first.code();
    first.invite(&code, "two", 1, 600);
    let other = JoinRequest { cell: "other.test".into(), ..two.asks(&code, "two") };
    let stolen =
        JoinRequest { key: machine().keys.signing_request().unwrap().0, ..two.asks(&code, "two") };
    for bad in [other, stolen] {
        let refused =
            try_ask(&nobody, Call::Cell(CellCall::Join { request: bad.sign(&code.signer()) }));
        assert_eq!(fault(refused), Some(Fault::AccessDenied), "{bad:?}");
    }
    // Invitations are administrators' alone.
    let public = first.code().signer().public();
    let (roles, by, name) = (ServerRoles::FILE.bits(), PrincipalId::NONE, String::new());
    for call in [
        CellCall::Invite { public, seconds: 60, uses: 1, roles, by, name },
        CellCall::Invitations { after: 0, max: 9 },
        CellCall::Uninvite { number },
        CellCall::Redeem { request: two.request(&code, "two") },
        CellCall::Certify { request: two.asks(&code, "two").signing_request },
    ] {
        let refused = try_ask(&nobody, Call::Cell(call.clone()));
        assert_eq!(fault(refused), Some(Fault::NotPermitted), "{call:?}");
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    since.as_secs().cast_signed()
}

#[test]
fn sj2_ten_thousand_wrong_codes_cost_some_checks_and_lines() {
    let first = First::new();
    let (code, two) = (first.code(), machine());
    first.invite(&code, "two", 1, 600);
    let session = first.session(None);
    let asked = two.asks(&code, "two");
    let (mut refused, mut waits) = (0, 0);
    for _ in 0..10_000 {
        let guess = first.code();
        let request = JoinRequest { invitation: guess.signer().public(), ..asked.clone() };
        let request = request.sign(&guess.signer());
        match fault(try_ask(&session, Call::Cell(CellCall::Join { request }))) {
            Some(Fault::AccessDenied) => refused += 1,
            Some(Fault::Busy) => waits += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(refused < 50, "{refused} were checked, {waits} waited");
    // The right one waits too, and nothing was used up.
    assert_eq!(fault(first.join(&two.request(&code, "two"))), Some(Fault::Busy));
    assert_eq!(first.invitations()[0].used, []);
    let audit = || {
        let call = GuardCall::AuditLines { file: 0, offset: 0 };
        match ask(&first.here, Call::Guard { behalf: None, call: Box::new(call) }) {
            Answer::Report(text) => text,
            other => panic!("{other:?}"),
        }
    };
    wait_for("the alarm in the audit log", || audit().contains("several requests to join"));
    assert!(audit().matches("cell.Join").count() < 100, "lines are bounded");
}

#[test]
fn sj3_the_signer_signs_a_listed_key_under_its_own_name_alone() {
    let first = First::new();
    let two = first.joined("two");
    let three = first.joined("three");
    let ask_as = |machine: &Machine, request: String| {
        let session = first.session(Some(machine.keys.shown().unwrap()));
        try_ask(&session, Call::Cell(CellCall::Certify { request }))
    };
    let own = |machine: &Machine| machine.keys.signing_request().unwrap().1;
    let Ok(Answer::Report(text)) = ask_as(&two, own(&two)) else { panic!("its own key") };
    let facts: JoinFacts = serde_json::from_str(&text).unwrap();
    assert_eq!(facts.name, "two");
    two.keys.accept(&facts.authorities, &facts.certificate, &[]).unwrap();
    // Another server's key, a new one that is not listed, noise.
    let unlisted = machine();
    for request in [own(&three), own(&unlisted)] {
        assert_eq!(fault(ask_as(&two, request)), Some(Fault::NotPermitted));
    }
    assert_eq!(fault(ask_as(&two, "noise".into())), Some(Fault::Invalid));
    // A user of that server, and one that was let in and is not listed.
    let session = first.session(Some(two.keys.shown().unwrap()));
    let user = Caller { uid: 1000, ..Caller::ROOT };
    let request = own(&two);
    let refused = session.call(&user, Call::Cell(CellCall::Certify { request }), None);
    assert_eq!(refused.unwrap_err().fault(), Some(Fault::NotPermitted));
    // A key that was withdrawn gets none, and its code does not let it in again.
    let (code, four) = (first.code(), machine());
    first.invite(&code, "four", 1, 600);
    four.settle(first.join(&four.request(&code, "four")));
    let (id, request) = (ServerId(900), own(&four));
    assert_eq!(fault(ask_as(&four, request.clone())), Some(Fault::NotPermitted), "not listed yet");
    first.enrol(&four, "four", id).unwrap();
    assert!(ask_as(&four, request.clone()).is_ok());
    let withdraw =
        Call::Guard { behalf: None, call: Box::new(GuardCall::WithdrawKeys { server: id }) };
    ask(&first.here, withdraw);
    assert_eq!(fault(ask_as(&four, request)), Some(Fault::NotPermitted));
    assert_eq!(fault(first.join(&four.request(&code, "four"))), Some(Fault::NotPermitted));
    assert_eq!(fault(first.enrol(&four, "four", id)), Some(Fault::NotPermitted));
}

#[test]
fn sj1_a_server_with_another_authority_is_not_asked() {
    let (first, other) = (First::new(), First::new());
    let code = first.code();
    first.invite(&code, "two", 1, 600);
    // It stands at the address in the code, and would forward the request.
    let refused = session(&other.cell.tcp(), Trust::Pinned(Fingerprint(code.authority)), None);
    let said = refused.map(drop).unwrap_err().to_string();
    assert!(said.contains("another cell's server, or an attacker"), "{said}");
    // Also where it shows the authority's certificate behind its own.
    let mut identity = other.keys.shown().unwrap();
    identity.chain.extend(first.keys.authority().certificates().unwrap());
    other.cell.config.tls.as_ref().unwrap().replace(identity, &[]).unwrap();
    let refused = session(&other.cell.tcp(), Trust::Pinned(Fingerprint(code.authority)), None);
    assert!(refused.is_err());
}

#[test]
fn sj1_a_signer_that_failed_lets_the_same_key_in_later() {
    let first = First::new();
    let (code, two) = (first.code(), machine());
    first.invite(&code, "two", 1, 600);
    let key = first.dir.path().join("keys/ca.key");
    let kept = std::fs::read(&key).unwrap();
    std::fs::write(&key, "half").unwrap();
    let request = two.request(&code, "two");
    assert_eq!(fault(first.join(&request)), Some(Fault::Medium));
    assert_eq!(first.invitations()[0].used.len(), 1, "the key is entered");
    assert_eq!(fault(first.join(&machine().request(&code, "two"))), Some(Fault::Exists));
    // Without the authority's key the answer has everything but the certificate.
    std::fs::remove_file(&key).unwrap();
    let Ok(Answer::Joined { facts, .. }) = first.join(&request) else { panic!("no answer") };
    let facts: JoinFacts = serde_json::from_str(&facts).unwrap();
    assert_eq!((&*facts.certificate, &*facts.name), ("", "two"));
    std::fs::write(&key, kept).unwrap();
    two.settle(first.join(&request));
    first.enrol(&two, "two", ServerId(7)).unwrap();
}

#[test]
fn sj5_a_client_refuses_a_withdrawn_server() {
    let first = First::new();
    let two = first.joined("two");
    let identity = two.keys.shown().unwrap();
    let key = identity.key_print().unwrap();
    // The stolen keys at a server that answers everything, and knows no withdrawal.
    let thief = Cell::with(move |config| {
        let celldb = config.unix_socket.as_ref().unwrap().with_file_name("celldb");
        config.cell = Some(CellPlace::Here(celldb));
        config.tls = Some(Arc::new(ServerTls::new(identity, &[]).unwrap()));
    });
    let pinned = || Trust::Pinned(first.keys.authority().fingerprint().unwrap());
    let tls = ClientTls::new(pinned(), None).unwrap();
    let dial = |endpoint: Endpoint| {
        let mut config = SessionConfig::new(endpoint, ClientIdentity::fleeting());
        let tls = Some(tls.clone());
        config.options = fabric::ConnectionOptions { tls, ..Default::default() }.into();
        config.attach_within = Some(std::time::Duration::from_secs(5));
        Session::connect(config)
    };
    let at_thief: Arc<dyn Remote> = Arc::new(dial(thief.tcp()).unwrap());
    let cell = client::Cell::new(Arc::new(dial(first.cell.tcp()).unwrap()));
    assert!(!cell.learn_withdrawn(tls.refused()), "nothing is withdrawn");
    let server = ServerId(701);
    let call = GuardCall::WithdrawKeys { server };
    ask(&first.here, Call::Guard { behalf: None, call: Box::new(call) });
    assert!(cell.learn_withdrawn(tls.refused()) && !cell.learn_withdrawn(tls.refused()));
    assert_eq!(tls.refused().all(), [key]);
    // A server that does not act for administrators withdraws no key.
    let named = ServerInfo {
        id: ServerId(9),
        name: "first".into(),
        addresses: Vec::new(),
        keys: vec![types::KeyPrint([9; 32])],
    };
    let there = connect(thief.unix());
    ask(&there, Call::Cell(CellCall::PutServer { server: named, expected: Revision(0) }));
    let call = GuardCall::WithdrawKeys { server: ServerId(9) };
    ask(&there, Call::Guard { behalf: None, call: Box::new(call) });
    let listed = ask(&there, Call::Cell(CellCall::Withdrawn));
    assert!(matches!(listed, Answer::Report(text) if !text.is_empty()));
    let misled = client::Cell::new(Arc::clone(&at_thief));
    assert!(!misled.learn_withdrawn(tls.refused()));
    assert_eq!(tls.refused().all(), [key]);
    // The session that it has ends, and none begins.
    at_thief.refuse_keys(tls.refused());
    wait_for("the end of the session", || !at_thief.stands());
    let refused = dial(thief.tcp()).map(drop).unwrap_err().to_string();
    assert!(refused.contains("the key of this server was withdrawn"), "{refused}");
    assert!(dial(first.cell.tcp()).is_ok(), "others are accepted");
    // A client that did not hear of it: until the certificate ends (14 days).
    assert!(session(&thief.tcp(), pinned(), None).is_ok());
}

#[test]
fn sj5_a_removed_server_serves_nothing_in_the_network() {
    let first = First::new();
    let (two, code) = (machine(), first.code());
    first.invite(&code, "two", 1, 600);
    two.settle(first.join(&two.request(&code, "two")));
    let identity = two.keys.shown().unwrap();
    let key = identity.key_print().unwrap();
    let tls = Arc::new(
        ServerTls::new(identity.clone(), &first.keys.authority().certificates().unwrap()).unwrap(),
    );
    let own = Arc::new(OwnKeys::default());
    own.want(vec![key]);
    let pinned = || Trust::Pinned(first.keys.authority().fingerprint().unwrap());
    let client = ClientTls::new(pinned(), Some(identity)).unwrap();
    let database = first.cell.tcp();
    let cell = Cell::among_strangers(move |config| {
        config.cell = Some(CellPlace::At(database));
        config.tls = Some(tls);
        config.own_keys = Some(own);
        config.name = Some("two".into());
        config.rules = Some(config.unix_socket.as_ref().unwrap().with_file_name("rules"));
        config.options =
            fabric::ConnectionOptions { tls: Some(client), ..Default::default() }.into();
    });
    let servers = || match ask(&first.here, Call::Cell(CellCall::Servers)) {
        Answer::Servers(all) => all,
        other => panic!("{other:?}"),
    };
    let entered = || servers().into_iter().find(|seen| seen.record.keys.contains(&key));
    wait_for("the server in the cell", || {
        entered().is_some_and(|seen| !seen.record.addresses.is_empty())
    });
    let before = session(&cell.tcp(), pinned(), None).unwrap();
    assert!(matches!(ask(&before, Call::Cell(CellCall::Me)), Answer::Servers(_)));
    let seen = entered().unwrap();
    let remove = CellCall::RemoveServer { id: seen.record.id, expected: seen.revision };
    ask(&first.here, Call::Cell(remove));
    wait_for("the end of the session", || !before.stands());
    wait_for("its refusal", || session(&cell.tcp(), pinned(), None).is_err());
    assert!(entered().is_none(), "it does not enter itself again");
    let here = connect(cell.unix());
    assert!(matches!(ask(&here, Call::Cell(CellCall::Me)), Answer::Servers(_)), "on its machine");
    // Started again, with all that it had.
    let mut cell = cell;
    cell.crash();
    cell.start();
    wait_for("its refusal", || session(&cell.tcp(), pinned(), None).is_err());
    assert!(entered().is_none());
    cell.crash();
}

#[test]
fn sj7_roles_are_checked_at_the_other_servers() {
    let first = First::new();
    let (file, plain) = (machine(), machine());
    for (machine, name, roles, id) in
        [(&file, "file", ServerRoles::FILE, 7), (&plain, "plain", ServerRoles::USERS, 8)]
    {
        let code = first.code();
        let call = CellCall::Invite {
            public: code.signer().public(),
            seconds: 600,
            uses: 1,
            roles: roles.bits(),
            by: PrincipalId::NONE,
            name: name.into(),
        };
        ask(&first.here, Call::Cell(call));
        machine.settle(first.join(&machine.request(&code, name)));
        first.enrol(machine, name, ServerId(id)).unwrap();
    }
    let session = |machine: &Machine| first.session(Some(machine.keys.shown().unwrap()));
    let watch = |id| {
        let server = ServerId(id);
        Call::Cell(CellCall::Watch { server, since: Revision(0), max: 1 })
    };
    let copy = || Call::Cell(CellCall::Copy { copy: 0, after: Default::default(), skip: 0 });
    let withdraw = || Call::Guard {
        behalf: None,
        call: Box::new(GuardCall::WithdrawKeys { server: ServerId(99) }),
    };
    let behalf = || Call::Pts {
        on_behalf: Some(PrincipalId::ADMINISTRATORS),
        call: Box::new(types::PtsCall::Max),
    };
    let of_file = session(&file);
    assert!(try_ask(&of_file, watch(7)).is_ok(), "what a server needs itself");
    for call in [copy(), withdraw(), behalf(), Call::Root { volume: name("root.cell") }] {
        let refused = try_ask(&of_file, call.clone());
        assert_eq!(fault(refused), Some(Fault::NotPermitted), "{call:?}");
    }
    let user = Caller { uid: 1000, ..Caller::ROOT };
    let named = of_file.call(&user, Call::Root { volume: name("root.cell") }, None);
    assert_eq!(named.unwrap_err().fault(), Some(Fault::NotPermitted), "it names no users");
    let of_plain = session(&plain);
    assert!(try_ask(&of_plain, behalf()).is_ok());
    assert_eq!(fault(try_ask(&of_plain, withdraw())), Some(Fault::NotFound), "it may");
    assert_eq!(fault(try_ask(&of_plain, copy())), Some(Fault::NotPermitted));
    // A site of volumes: the first may be one, the other not.
    let put = |server| {
        let site = types::Site {
            server: ServerId(server),
            partition: "vicep".into(),
            kind: types::SiteKind::ReadWrite,
            epoch: 0,
        };
        let number = types::VolumeId(1000 + server as u64);
        let group = types::VolumeGroup::new(name(&format!("of.{server}")), number, site);
        CellCall::PutGroup { group: Box::new(group), expected: Revision(0) }
    };
    assert!(try_ask(&first.here, Call::Cell(put(7))).is_ok());
    assert_eq!(fault(try_ask(&first.here, Call::Cell(put(8)))), Some(Fault::Invalid));
    // The first keeps its volume, so that a move that was given up cannot change the record; it
    // changes nothing of it, and nothing of others.
    let call = CellCall::Group { volume: types::WhichVolume::Name(name("of.7")) };
    let Answer::Groups { groups, .. } = ask(&first.here, Call::Cell(call)) else { panic!() };
    let kept = |change: &dyn Fn(&mut types::VolumeGroup)| {
        let (mut group, expected) = (groups[0].record.clone(), groups[0].revision);
        change(&mut group);
        Call::Cell(CellCall::PutGroup { group: Box::new(group), expected })
    };
    let busy = types::Busy { operation: String::new(), by: String::new(), since_secs: 0 };
    let refused = [
        kept(&|group| group.busy = Some(busy.clone())),
        kept(&|group| group.sites.clear()),
        kept(&|group| group.read_write = types::VolumeId(1)),
        Call::Cell(put(7)),
    ];
    for call in refused {
        assert_eq!(fault(try_ask(&of_file, call.clone())), Some(Fault::NotPermitted), "{call:?}");
    }
    assert!(try_ask(&of_file, kept(&|_| {})).is_ok());
    assert_eq!(fault(try_ask(&of_file, kept(&|_| {}))), Some(Fault::NotPermitted), "it changed");
    // Neither takes more: not with a next key, nor by its record, nor from the signer.
    let record = |id| match ask(&first.here, Call::Cell(CellCall::Servers)) {
        Answer::Servers(all) => {
            all.into_iter().find(|seen| seen.record.id == ServerId(id)).unwrap()
        }
        other => panic!("{other:?}"),
    };
    file.keys.make_next_key().unwrap();
    let next = file.keys.next_key().unwrap().unwrap();
    let seen = record(7);
    let server =
        ServerInfo { keys: [seen.record.keys.clone(), vec![next]].concat(), ..seen.record };
    let own = CellCall::PutServer { server, expected: seen.revision };
    try_ask(&of_file, Call::Cell(own)).unwrap();
    let seen = record(8);
    let others = CellCall::PutServer {
        server: ServerInfo { keys: Vec::new(), ..seen.record },
        expected: seen.revision,
    };
    assert_eq!(fault(try_ask(&of_file, Call::Cell(others))), Some(Fault::NotPermitted));
    let (_, request) = file.keys.next_signing_request().unwrap().unwrap();
    let Answer::Report(text) = ask(&of_file, Call::Cell(CellCall::Certify { request })) else {
        panic!("a certificate")
    };
    let facts: JoinFacts = serde_json::from_str(&text).unwrap();
    assert_eq!(facts.roles, "file");
    file.keys.accept_next(&facts.authorities, &facts.certificate).unwrap();
    file.keys.take_next_key().unwrap();
    assert_eq!(fault(try_ask(&session(&file), withdraw())), Some(Fault::NotPermitted));
}
