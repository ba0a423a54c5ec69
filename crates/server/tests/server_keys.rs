//! A server of the cell is the holder of a key that the cell database lists, whatever authority
//! made a certificate for it; no one else is, and a key that was withdrawn never is again (M1).

#[allow(dead_code)]
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::common::*;
use crate::proxy::Proxy;
use bytes::Bytes;
use client::{ClientIdentity, Endpoint, Remote, Session, SessionConfig};
use fabric::tls::pki_types::PrivatePkcs8KeyDer;
use fabric::tls::{ClientTls, ServerTls, TlsIdentity as Certificate, Trust};
use keys::CellKeys;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use server::{CellPlace, OwnKeys, ServerConfig};
use types::{
    Answer, Call, Caller, CellCall, Fault, GuardCall, KeyPrint, PrincipalId, PtsCall, Revised,
    Revision, ServerId, ServerInfo, Whom,
};

const CELL: &str = "cell.test";
/// How long the tests wait for an event.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A server of a cell over TLS, which trusts no machine for its address.
struct Member {
    cell: Cell,
    keys: CellKeys,
    own: Arc<OwnKeys>,
    client: ClientTls,
    /// Of its own user.
    here: Session,
    /// The directory of its keys.
    dir: tempfile::TempDir,
}

impl Drop for Member {
    fn drop(&mut self) {
        // Before its directory is removed.
        self.cell.crash();
    }
}

fn print(certificate: &Certificate) -> KeyPrint {
    certificate.key_print().unwrap()
}

impl Member {
    /// The one that has the database; `site` makes host certificates.
    fn first(site: Option<&CellKeys>) -> Member {
        let dir = tempfile::tempdir().unwrap();
        CellKeys::of(dir.path().join("keys")).authority().make(CELL, SystemTime::now()).unwrap();
        Member::start(dir, site, |config| {
            config.cell = Some(CellPlace::Here(
                config.unix_socket.as_ref().unwrap().with_file_name("celldb"),
            ));
            config.name = Some("first".into());
        })
    }

    /// A further one, which reaches the database there, and need not have joined yet.
    fn further(
        first: &Member,
        name: &str,
        database: Endpoint,
        change: impl FnOnce(&mut ServerConfig),
    ) -> Member {
        let dir = tempfile::tempdir().unwrap();
        CellKeys::of(dir.path().join("keys"))
            .authority()
            .bring(&first.dir.path().join("keys"))
            .unwrap();
        Member::start(dir, None, |config| {
            config.cell = Some(CellPlace::At(database));
            config.name = Some(name.into());
            config.rules = Some(config.unix_socket.as_ref().unwrap().with_file_name("rules"));
            change(config);
        })
    }

    /// As [`Member::further`], when it is entered in the cell.
    fn joined(first: &Member, name: &str) -> Member {
        let member = Member::further(first, name, first.cell.tcp(), |_| {});
        member.wait_until_entered(first);
        member
    }

    fn start(
        dir: tempfile::TempDir,
        site: Option<&CellKeys>,
        change: impl FnOnce(&mut ServerConfig),
    ) -> Member {
        let keys = CellKeys::of(dir.path().join("keys"));
        let identity = keys.identity(&["127.0.0.1".to_owned()], SystemTime::now()).unwrap().0;
        let authorities = keys.authority().certificates().unwrap();
        let hosts = site.map(|site| site.authority().certificates().unwrap()).unwrap_or_default();
        let tls = Arc::new(ServerTls::with_hosts(identity.clone(), &authorities, &hosts).unwrap());
        let client =
            ClientTls::new(Trust::Authorities(authorities), Some(identity.clone())).unwrap();
        let own = Arc::new(OwnKeys::default());
        own.want(vec![print(&identity)]);
        let (listed, options) = (Arc::clone(&own), client.clone());
        let cell = Cell::among_strangers(move |config| {
            config.tls = Some(tls);
            config.own_keys = Some(listed);
            config.options =
                fabric::ConnectionOptions { tls: Some(options), ..Default::default() }.into();
            config.audit = Some(config.unix_socket.as_ref().unwrap().with_file_name("audit"));
            change(config);
        });
        let here = connect(cell.unix());
        Member { cell, keys, own, client, here, dir }
    }

    fn identity(&self) -> Certificate {
        self.keys.shown().unwrap()
    }

    fn id(&self) -> ServerId {
        match ask(&self.here, Call::Cell(CellCall::Me)) {
            Answer::Servers(me) => me[0].record.id,
            other => panic!("{other:?}"),
        }
    }

    /// The database's record, requested over the socket of this server.
    fn record(&self, id: ServerId) -> Option<Revised<ServerInfo>> {
        match ask(&self.here, Call::Cell(CellCall::Servers)) {
            Answer::Servers(all) => all.into_iter().find(|seen| seen.record.id == id),
            other => panic!("{other:?}"),
        }
    }

    fn wait_until_entered(&self, first: &Member) {
        let (id, key) = (self.id(), print(&self.identity()));
        wait_for("the server in the cell", || {
            first
                .record(id)
                .is_some_and(|seen| !seen.record.addresses.is_empty() && seen.record.keys == [key])
        });
    }

    /// Connects to this server with a certificate.
    fn session(&self, certificate: Option<Certificate>) -> Session {
        let trust = Trust::Authorities(self.keys.authority().certificates().unwrap());
        let tls = Some(ClientTls::new(trust, certificate).unwrap());
        let mut config = SessionConfig::new(self.cell.tcp(), ClientIdentity::fleeting());
        config.options = fabric::ConnectionOptions { tls, ..Default::default() }.into();
        Session::connect(config).unwrap()
    }

    /// The level of uid 0 who shows that certificate to this server.
    fn level(&self, certificate: Option<Certificate>) -> String {
        level(&self.session(certificate))
    }

    /// Enters a server's record by hand, as an administrator may.
    fn lists(&self, id: u128, keys: Vec<KeyPrint>) {
        let (id, addresses) = (ServerId(id), Vec::new());
        let expected = self.record(id).map(|seen| seen.revision).unwrap_or_default();
        let server = ServerInfo { id, name: format!("by hand {}", id.0), addresses, keys };
        ask(&self.here, Call::Cell(CellCall::PutServer { server, expected }));
    }

    /// Withdraws the keys of a server; returns the servers that did not confirm.
    fn withdraw(&self, server: ServerId) -> Vec<ServerId> {
        match rule(&self.here, GuardCall::WithdrawKeys { server }) {
            Ok(Answer::Enforced { missing, .. }) => missing,
            other => panic!("{other:?}"),
        }
    }
}

/// The level of uid 0 over this connection, or the error.
fn level(session: &Session) -> String {
    match try_ask(session, Call::ServerReport) {
        Ok(Answer::Report(report)) => {
            let report = serde_json::from_str::<serde_json::Value>(&report).unwrap();
            report["you"]["level"].as_str().unwrap().to_owned()
        }
        Ok(other) => panic!("{other:?}"),
        Err(error) => format!("{error:?}"),
    }
}

fn rule(session: &Session, call: GuardCall) -> Result<Answer, Option<Fault>> {
    let call = Call::Guard { behalf: None, call: Box::new(call) };
    session.call(&Caller::ROOT, call, None).map(|reply| reply.answer).map_err(|error| error.fault())
}

/// Calls that only servers of the cell, or administrators, may make.
fn powers() -> Vec<Call> {
    let server = ServerInfo {
        id: ServerId(77),
        name: "x".into(),
        addresses: vec![],
        keys: vec![KeyPrint([7; 32])],
    };
    vec![
        Call::Cell(CellCall::Watch { server: ServerId(77), since: Revision(0), max: 1 }),
        Call::Cell(CellCall::Subdomain { principal: PrincipalId(1), host: None }),
        Call::Cell(CellCall::Copy { copy: 0, after: Bytes::new(), skip: 0 }),
        Call::Cell(CellCall::PutServer { server, expected: Revision(0) }),
        Call::Cell(CellCall::RemoveServer { id: ServerId(77), expected: Revision(0) }),
        Call::Pts { on_behalf: Some(PrincipalId::ADMINISTRATORS), call: Box::new(PtsCall::Max) },
        Call::Guard { behalf: None, call: Box::new(GuardCall::Fences { after: 0, max: 1 }) },
        Call::Guard {
            behalf: None,
            call: Box::new(GuardCall::WithdrawKeys { server: ServerId(77) }),
        },
        Call::Scrub { start: true },
    ]
}

fn has_no_power(session: &Session) {
    for uid in [0, 4711] {
        for call in powers() {
            let said = session.call(&Caller { uid, ..Caller::ROOT }, call.clone(), None);
            let fault = said.as_ref().err().and_then(|error| error.fault());
            assert_eq!(fault, Some(Fault::NotPermitted), "uid {uid} {call:?}: {said:?}");
        }
    }
}

fn site(dir: &tempfile::TempDir) -> CellKeys {
    let site = CellKeys::of(dir.path());
    site.authority().make("site", SystemTime::now()).unwrap();
    site
}

fn made_by(authority: &CellKeys, names: &[&str]) -> Certificate {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    // Another name makes another certificate, and another directory another key.
    let dir = tempfile::tempdir().unwrap();
    let keys = CellKeys::of(dir.path());
    keys.authority().bring(authority.authority().file().parent().unwrap()).unwrap();
    keys.identity(&names, SystemTime::now()).unwrap().0
}

/// A certificate by the authority there, for a client that is no server.
fn of_a_host(authority: &Path) -> Certificate {
    let read = |name: &str| std::fs::read_to_string(authority.join(name)).unwrap();
    let issuer =
        Issuer::from_ca_cert_pem(&read("ca.pem"), KeyPair::from_pem(&read("ca.key")).unwrap())
            .unwrap();
    let mut params = CertificateParams::new(vec!["laptop.example.org".to_owned()]).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let chain = vec![params.signed_by(&key, &issuer).unwrap().der().clone()];
    Certificate { chain, key: PrivatePkcs8KeyDer::from(key.serialize_der()).into() }
}

#[test]
fn m1_a_listed_key_is_a_server_whoever_certified_it() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [known, unknown] = dirs.each_ref().map(site);
    let first = Member::first(Some(&known));
    assert_eq!(first.level(Some(first.identity())), "server", "its own key is listed");
    let (renewed, made) = first.keys.identity(&["other".to_owned()], SystemTime::now()).unwrap();
    assert!(made);
    assert_eq!(first.level(Some(renewed)), "server", "also by a new certificate");
    let certificates =
        [made_by(&first.keys, &["a"]), made_by(&known, &["b"]), made_by(&unknown, &["c"])];
    for (id, certificate) in (100..).zip(certificates) {
        let before = first.session(Some(certificate.clone()));
        has_no_power(&before);
        first.lists(id, vec![print(&certificate)]);
        let session = first.session(Some(certificate.clone()));
        assert_eq!(level(&session), "server");
        let watch = CellCall::Watch { server: ServerId(id), since: Revision(u64::MAX), max: 1 };
        assert!(matches!(ask(&session, Call::Cell(watch)), Answer::Changes { .. }));
        // A connection from before gets its new level.
        wait_for("the connection from before", || level(&before) == "server");
    }
}

#[test]
fn m1_an_unlisted_key_is_no_server_whoever_certified_it() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [known, unknown] = dirs.each_ref().map(site);
    for trusts in [false, true] {
        let first = Member::first(Some(&known));
        let mut config = first.cell.config.clone();
        if trusts {
            config.trusted = vec!["127.0.0.0/8".parse().unwrap()];
        }
        let mut first = first;
        first.cell.crash();
        first.cell.config = config;
        first.cell.start();
        let host = if trusts { "host" } else { "nobody" };
        // The cell's own authority makes host certificates too: it made this one without the name.
        let nameless = of_a_host(&first.dir.path().join("keys"));
        for (certificate, level_of_users) in [
            (None, "nobody"),
            (Some(made_by(&unknown, &["x"])), "nobody"),
            (Some(made_by(&known, &["x"])), host),
            (Some(nameless), host),
            (Some(made_by(&first.keys, &["x"])), "enrolling"),
        ] {
            let session = first.session(certificate);
            let caller = Caller { uid: 4711, ..Caller::ROOT };
            let Answer::Report(report) =
                session.call(&caller, Call::ServerReport, None).unwrap().answer
            else {
                panic!("a report")
            };
            assert!(report.contains(&format!("\"level\":\"{level_of_users}\"")), "{report}");
            has_no_power(&session);
        }
    }
}

#[test]
fn m1_two_servers_that_join_at_once_are_servers_to_each_other() {
    let first = Member::first(None);
    let [two, three] =
        ["two", "three"].map(|name| Member::further(&first, name, first.cell.tcp(), |_| {}));
    for member in [&two, &three] {
        member.wait_until_entered(&first);
    }
    assert_ne!(two.id(), three.id());
    let all = [&first, &two, &three];
    for to in all {
        for from in all {
            // Each knows every other one when that was entered.
            wait_for("a server to a server", || to.level(Some(from.identity())) == "server");
        }
    }
    // A key that is unknown to one is unknown to all: only the server with the database may enter
    // one.
    let certificate = made_by(&first.keys, &["x"]);
    let server = ServerInfo {
        id: ServerId(9),
        name: "x".into(),
        addresses: Vec::new(),
        keys: vec![print(&certificate)],
    };
    let put = Call::Cell(CellCall::PutServer { server, expected: Revision(0) });
    let said = try_ask(&two.session(Some(certificate.clone())), put.clone());
    assert_eq!(
        said.unwrap_err().fault(),
        Some(Fault::NotPermitted),
        "it would call in its own name"
    );
    // The server ends the connection when the key becomes a server's. If that takes the answer
    // away, the client repeats the call, and the repeated change is refused: the record decides.
    let said = try_ask(&first.session(Some(certificate.clone())), put);
    let refused = said.err().and_then(|error| error.fault());
    assert!(matches!(refused, None | Some(Fault::Conflict)), "{refused:?}");
    assert_eq!(first.record(ServerId(9)).unwrap().record.keys, [print(&certificate)]);
}

#[test]
fn m1_a_withdrawn_key_ends_connections_and_never_returns() {
    let first = Member::first(None);
    let (two, three) = (Member::joined(&first, "two"), Member::joined(&first, "three"));
    let stolen = two.identity();
    let held = [&first, &three].map(|to| to.session(Some(stolen.clone())));
    for session in &held {
        wait_for("the key is listed", || level(session) == "server");
    }
    // From another server than the one with the database.
    assert_eq!(three.withdraw(two.id()), []);
    for session in &held {
        let said = session.call(&Caller::ROOT, powers().swap_remove(0), None);
        assert!(said.is_err(), "{said:?}");
    }
    // With the same key it does not come back, whatever certificate it has, and whichever server it
    // calls.
    let renewed = || {
        two.keys.identity(&["other".to_owned()], SystemTime::now()).unwrap();
        two.identity()
    };
    for to in [&first, &three] {
        for certificate in [stolen.clone(), renewed()] {
            assert_eq!(print(&certificate), print(&stolen));
            let session = to.session(Some(certificate));
            assert_eq!(level(&session), "enrolling");
            has_no_power(&session);
            let known = first.record(two.id()).unwrap();
            let expected = known.revision;
            for id in [two.id(), ServerId(9)] {
                let expected = if id == two.id() { expected } else { Revision(0) };
                let server = ServerInfo { id, keys: vec![print(&stolen)], ..known.record.clone() };
                let server = if id == two.id() {
                    server
                } else {
                    ServerInfo { addresses: vec![], ..server }
                };
                let said = try_ask(&session, Call::Cell(CellCall::PutServer { server, expected }));
                assert_eq!(said.unwrap_err().fault(), Some(Fault::NotPermitted));
            }
        }
    }
    assert_eq!(first.record(two.id()).unwrap().record.keys, []);
    audit_has(&first, "WithdrawKeys");
    // The server notices, and with a new key it is one again.
    wait_for("it is refused", || two.own.may_show(KeyPrint([0; 32]), Duration::ZERO));
    two.keys.make_next_key().unwrap();
    two.keys.take_next_key().unwrap();
    let fresh = two.keys.identity(&["127.0.0.1".to_owned()], SystemTime::now()).unwrap().0;
    two.client
        .replace(
            Trust::Authorities(two.keys.authority().certificates().unwrap()),
            Some(fresh.clone()),
        )
        .unwrap();
    two.own.want(vec![print(&fresh)]);
    two.wait_until_entered(&first);
    assert_eq!(first.level(Some(fresh)), "server");
    assert_eq!(first.level(Some(stolen)), "enrolling");
}

fn audit_has(member: &Member, what: &str) {
    let has = || {
        let files = std::fs::read_dir(member.cell.path("audit"))
            .unwrap()
            .map(|entry| entry.unwrap().path());
        files.filter_map(|file| std::fs::read_to_string(file).ok()).any(|text| text.contains(what))
    };
    wait_for("the audit log", has);
}

#[test]
fn m1_a_removed_server_does_not_come_back_by_its_key() {
    let first = Member::first(None);
    let two = Member::joined(&first, "two");
    let held = first.session(Some(two.identity()));
    assert_eq!(level(&held), "server");
    let seen = first.record(two.id()).unwrap();
    let remove = CellCall::RemoveServer { id: two.id(), expected: seen.revision };
    ask(&first.here, Call::Cell(remove));
    let said = held.call(&Caller::ROOT, powers().swap_remove(0), None);
    assert!(said.is_err(), "{said:?}");
    wait_for("it is refused", || two.own.may_show(KeyPrint([0; 32]), Duration::ZERO));
    assert_eq!(first.record(two.id()), None);
}

#[test]
fn m1_a_renewed_key_replaces_the_old_one_without_a_gap() {
    let first = Member::first(None);
    let two = Member::joined(&first, "two");
    let old = two.identity();
    let by_old = first.session(Some(old.clone()));
    two.keys.make_next_key().unwrap();
    let next = two.keys.next_key().unwrap().unwrap();
    two.own.want(vec![print(&old), next]);
    assert!(two.own.may_show(next, TIMEOUT), "it is listed beside the old one");
    assert_eq!(first.record(two.id()).unwrap().record.keys, [print(&old), next]);
    assert_eq!(level(&by_old), "server");
    two.keys.take_next_key().unwrap();
    let fresh = two.keys.identity(&["127.0.0.1".to_owned()], SystemTime::now()).unwrap().0;
    assert_eq!(print(&fresh), next);
    assert_eq!(first.level(Some(fresh.clone())), "server");
    two.client
        .replace(
            Trust::Authorities(two.keys.authority().certificates().unwrap()),
            Some(fresh.clone()),
        )
        .unwrap();
    two.own.want(vec![next]);
    two.wait_until_entered(&first);
    wait_for("the old key is none", || level(&by_old) == "enrolling");
    assert_eq!(first.level(Some(fresh)), "server");
    has_no_power(&by_old);
    let server = ServerInfo {
        id: ServerId(9),
        name: "x".into(),
        addresses: vec![],
        keys: vec![print(&old)],
    };
    let put = Call::Cell(CellCall::PutServer { server, expected: Revision(0) });
    assert_eq!(
        try_ask(&by_old, put).unwrap_err().fault(),
        Some(Fault::NotPermitted),
        "it was listed once"
    );
    // It gets the cell's changes as before: a fence is confirmed.
    let fence = GuardCall::AddFence { whom: Whom::Token(5), seconds: 0, why: String::new() };
    wait_for("the server confirms", || match rule(&first.here, fence.clone()) {
        Ok(Answer::Enforced { missing, .. }) => missing.is_empty(),
        _ => false,
    });
}

#[test]
fn m1_a_new_key_alone_takes_no_record_that_lists_another() {
    let first = Member::first(None);
    let mut two = Member::joined(&first, "two");
    let old = print(&two.identity());
    // Its keys directory is lost, and another is made in its place.
    two.cell.crash();
    let dir = tempfile::tempdir().unwrap();
    let keys = CellKeys::of(dir.path());
    keys.authority().bring(&first.dir.path().join("keys")).unwrap();
    let other = keys.identity(&[], SystemTime::now()).unwrap().0;
    two.client
        .replace(Trust::Authorities(keys.authority().certificates().unwrap()), Some(other.clone()))
        .unwrap();
    two.own.want(vec![print(&other)]);
    two.cell.start();
    wait_for("it is refused", || two.own.may_show(KeyPrint([0; 32]), Duration::ZERO));
    assert_eq!(first.record(two.id()).unwrap().record.keys, [old]);
    // Until an administrator withdraws the old one.
    first.withdraw(two.id());
    wait_for("the new key", || first.record(two.id()).unwrap().record.keys == [print(&other)]);
}

#[test]
fn m1_a_start_without_the_database_knows_servers_for_a_time() {
    let first = Member::first(None);
    let proxy = Proxy::start(first.cell.tcp(), 1);
    let mut two = Member::further(&first, "two", proxy.endpoint(), |_| {});
    two.wait_until_entered(&first);
    let three = Member::joined(&first, "three");
    wait_for("it knows the third", || two.level(Some(three.identity())) == "server");
    let kept = two.cell.path("learnt");
    wait_for("the file of its records", || kept.exists());
    let asks = |to: &Member| {
        let call =
            Call::Guard { behalf: None, call: Box::new(GuardCall::Fences { after: 0, max: 1 }) };
        let session = to.session(Some(three.identity()));
        (
            level(&session),
            session.call(&Caller::ROOT, call, None).err().and_then(|error| error.fault()),
        )
    };
    two.cell.crash();
    proxy.fall_silent();
    two.cell.start();
    // Known from the file; the call itself needs the database.
    assert_eq!(asks(&two), ("server".to_owned(), Some(Fault::CellAway)));
    assert_eq!(two.level(Some(made_by(&first.keys, &["x"]))), "enrolling", "unknown is unknown");
    two.cell.crash();
    two.cell.config.cell_away_max = Duration::ZERO;
    two.cell.start();
    let too_old = "Fault(CellAway)".to_owned();
    assert_eq!(
        asks(&two),
        (too_old, Some(Fault::CellAway)),
        "a key may have been withdrawn long ago"
    );
    proxy.speak_again();
    two.cell.crash();
    two.cell.config.cell_away_max = Duration::from_secs(600);
    two.cell.start();
    wait_for("it reaches the database again", || asks(&two) == ("server".to_owned(), None));
}
