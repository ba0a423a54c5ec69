//! Sessions over TLS behave like others, and a port with TLS accepts nothing else unless it is
//! configured to.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::common::*;
use bytes::Bytes;
use client::{CallError, ClientIdentity, Endpoint, Session, SessionConfig};
use dafs::{Features, Hello, HelloAnswer, HelloRefusal};
use fabric::tls::{ClientTls, Fingerprint, ServerTls, Trust};
use keys::CellKeys;
use server::{CellPlace, OwnKeys, ServerConfig};
use types::{Answer, Call, CreateHow, NewKind};

struct Secured {
    cell: Cell,
    keys: CellKeys,
    tls: Arc<ServerTls>,
}

impl Secured {
    fn new(clear: bool) -> Secured {
        Secured::with(|config| config.clear = clear)
    }

    fn with(change: impl FnOnce(&mut ServerConfig)) -> Secured {
        let dir = tempfile::tempdir().unwrap().keep();
        let keys = CellKeys::of(dir);
        keys.authority().make("cell.test", SystemTime::now()).unwrap();
        let identity = keys.identity(&["127.0.0.1".to_owned()], SystemTime::now()).unwrap().0;
        let tls =
            Arc::new(ServerTls::new(identity, &keys.authority().certificates().unwrap()).unwrap());
        let shown = Arc::clone(&tls);
        let cell = Cell::with(move |config| {
            config.tls = Some(shown);
            change(config);
        });
        Secured { cell, keys, tls }
    }

    fn config(&self, trust: Option<Trust>) -> SessionConfig {
        let tls = trust.map(|trust| ClientTls::new(trust, None).unwrap());
        let mut config = SessionConfig::new(self.cell.tcp(), ClientIdentity::fleeting());
        config.options = fabric::ConnectionOptions { tls, ..Default::default() }.into();
        config.attach_within = Some(Duration::from_secs(10));
        config
    }

    fn trust(&self) -> Trust {
        Trust::Authorities(self.keys.authority().certificates().unwrap())
    }

    fn session(&self) -> Session {
        Session::connect(self.config(Some(self.trust()))).unwrap()
    }

    fn refused(&self, trust: Option<Trust>) -> String {
        let began = Instant::now();
        let Err(CallError::Refused(why)) = Session::connect(self.config(trust)) else {
            panic!("clear text was accepted")
        };
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "known at once, not when patience ends: {why}"
        );
        why
    }

    fn stream(&self) -> TcpStream {
        let Endpoint::Tcp(address) = self.cell.tcp() else { panic!("a network address") };
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn count(&self, what: &str) -> u64 {
        let Answer::Report(report) = ask(&connect(self.cell.unix()), Call::ServerReport) else {
            panic!("a report")
        };
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        report["server"][what].as_u64().unwrap()
    }
}

impl Drop for Secured {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.keys.authority().file().parent().unwrap());
    }
}

#[test]
fn large_and_small_calls_of_many_threads_over_tls() {
    let secured = Secured::new(false);
    let session = secured.session();
    let dir = root(&session);
    let threads = 4_u8;
    std::thread::scope(|scope| {
        for number in 0..threads {
            let session = &session;
            scope.spawn(move || {
                let made = Call::Make {
                    dir,
                    name: name(&format!("file-{number}")),
                    kind: NewKind::File,
                    mode: 0o644,
                    how: CreateHow::Guarded,
                };
                let fid = status(&ask(session, made)).fid;
                let data = Bytes::from(vec![number + 1; 1 << 20]);
                for turn in 0..8_u64 {
                    let offset = Some(turn << 20);
                    let write = Call::Write {
                        fid,
                        offset,
                        data: data.clone(),
                        stable: false,
                        kill_privileges: false,
                    };
                    ask(session, write);
                    ask(session, Call::GetStatus { fid });
                    let Answer::Data { data: read, .. } =
                        ask(session, Call::Read { fid, offset: turn << 20, length: 1 << 20 })
                    else {
                        panic!("data")
                    };
                    assert!(read == data, "thread {number}, turn {turn}");
                }
            });
        }
    });
    assert_eq!(secured.count("sessions_tls"), 1);
    assert!(secured.count("connections_secured") >= 1);
}

#[test]
fn clear_text_is_refused_and_counted_unless_allowed() {
    let secured = Secured::new(false);
    let why = secured.refused(None);
    assert!(why.contains("TLS only"), "{why}");
    let mut stream = secured.stream();
    let hello = Hello::full(Features::NONE);
    stream.write_all(&hello.to_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = HelloAnswer::parse(answer[..].try_into().unwrap(), &hello).unwrap();
    assert_eq!(answer, HelloAnswer::Refused(HelloRefusal::NeedsTls));
    assert_eq!(secured.count("connections_clear_refused"), 2);

    let both = Secured::new(true);
    assert!(matches!(
        ask(&Session::connect(both.config(None)).unwrap(), Call::ServerReport),
        Answer::Report(_)
    ));
    let _encrypted = both.session();
    let _clear = Session::connect(both.config(None)).unwrap();
    wait_for("both sessions", || {
        both.count("sessions_tls") == 1 && both.count("sessions_clear") == 1
    });
}

#[test]
fn a_port_in_clear_text_is_told_from_one_with_tls() {
    let cell = Cell::new();
    let keys = Secured::new(false);
    let mut config = keys.config(Some(keys.trust()));
    config.endpoint = cell.tcp();
    let Err(CallError::Refused(why)) = Session::connect(config) else { panic!("TLS was accepted") };
    assert!(why.contains("clear text only"), "{why}");
}

#[test]
fn noise_on_a_port_with_tls_is_refused_and_harms_no_session() {
    let secured = Secured::new(false);
    let session = secured.session();
    let before = secured.count("connections_malformed");
    let noises: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0x16, 3, 1, 0xff, 0xff, 1, 2, 3],
        &[0x16, 3, 1, 0, 4, 1, 0, 0, 0],
        &[0x16, 0x80, 0, 0, 0, 0],
        &[0; 64],
    ];
    for noise in noises {
        let mut stream = secured.stream();
        stream.write_all(noise).unwrap();
        let mut answer = Vec::new();
        // The stream ends: in order, or cut off with something unread.
        let _ = stream.read_to_end(&mut answer);
    }
    wait_for("the count", || {
        secured.count("connections_malformed") == before + noises.len() as u64
    });
    assert_eq!(secured.count("panics"), 0);
    assert!(matches!(ask(&session, Call::ServerReport), Answer::Report(_)));
}

#[test]
fn half_a_handshake_is_closed_in_time() {
    let secured = Secured::new(false);
    let mut silent = secured.stream();
    silent.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
    let mut answer = Vec::new();
    silent.read_to_end(&mut answer).unwrap();
    assert!(answer.is_empty(), "nothing in clear text within a handshake");
}

#[test]
fn another_cells_server_is_refused_with_both_fingerprints() {
    let secured = Secured::new(false);
    let other = Fingerprint([7; 32]);
    let why = secured.refused(Some(Trust::Pinned(other)));
    assert!(why.contains(&other.to_string()), "{why}");
    assert!(why.contains(&secured.keys.authority().fingerprint().unwrap().to_string()), "{why}");
    let stranger = Secured::new(false);
    secured.refused(Some(stranger.trust()));
}

#[test]
fn a_session_outlives_its_connections_and_a_renewed_certificate() {
    let mut secured = Secured::new(false);
    let session = secured.session();
    let fid = root(&session);
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let (identity, made) = secured.keys.identity(&names, SystemTime::now()).unwrap();
    assert!(made);
    secured.tls.replace(identity, &secured.keys.authority().certificates().unwrap()).unwrap();
    assert!(
        matches!(ask(&session, Call::GetStatus { fid }), Answer::Status(_)),
        "existing connections go on"
    );
    secured.cell.crash();
    secured.cell.start();
    assert!(
        matches!(ask(&session, Call::GetStatus { fid }), Answer::Status(_)),
        "with the new one"
    );
}

#[test]
fn an_old_authority_is_trusted_until_it_is_retired() {
    let own = Arc::new(OwnKeys::default());
    let listed = Arc::clone(&own);
    let mut secured = Secured::with(|config| {
        config.cell =
            Some(CellPlace::Here(config.unix_socket.as_ref().unwrap().with_file_name("celldb")));
        config.own_keys = Some(listed);
        config.owners.clear();
    });
    own.want(secured.keys.shown().unwrap().key_print().into_iter().collect());
    let now = SystemTime::now();
    // Another server of the old authority, whose key is not entered.
    let joiner = tempfile::tempdir().unwrap();
    let joins = CellKeys::of(joiner.path());
    joins.authority().bring(secured.keys.authority().file().parent().unwrap()).unwrap();
    let joins = ClientTls::new(secured.trust(), Some(joins.identity(&[], now).unwrap().0)).unwrap();
    let show = |secured: &Secured| {
        let (identity, _) = secured.keys.identity(&["127.0.0.1".to_owned()], now).unwrap();
        secured.tls.replace(identity, &secured.keys.authority().certificates().unwrap()).unwrap();
    };
    let old = (secured.trust(), Trust::Pinned(secured.keys.authority().fingerprint().unwrap()));
    let server_of_old =
        ClientTls::new(secured.trust(), Some(secured.keys.shown().unwrap())).unwrap();
    let level = |secured: &Secured, tls: &ClientTls| {
        let mut config = secured.config(None);
        config.options =
            fabric::ConnectionOptions { tls: Some(tls.clone()), ..Default::default() }.into();
        let Answer::Report(report) = ask(&Session::connect(config).unwrap(), Call::ServerReport)
        else {
            panic!()
        };
        serde_json::from_str::<serde_json::Value>(&report).unwrap()["you"]["level"].clone()
    };
    wait_for("its key is listed", || level(&secured, &server_of_old) == "server");
    assert_eq!(level(&secured, &joins), "enrolling");
    // An existing session goes on with the old authority.
    let standing = Session::connect(secured.config(Some(old.1.clone()))).unwrap();
    let fid = root(&standing);
    secured.keys.authority().succeed("cell.test", now).unwrap();
    show(&secured);
    let new = (secured.trust(), Trust::Pinned(secured.keys.authority().fingerprint().unwrap()));
    for trust in [&old.0, &old.1, &new.0, &new.1] {
        let session = Session::connect(secured.config(Some(trust.clone()))).unwrap();
        assert!(
            matches!(ask(&session, Call::GetStatus { fid: root(&session) }), Answer::Status(_)),
            "{trust:?}"
        );
    }
    secured.cell.crash();
    secured.cell.start();
    assert!(
        matches!(ask(&standing, Call::GetStatus { fid }), Answer::Status(_)),
        "with the successor's certificate"
    );
    assert_eq!(level(&secured, &server_of_old), "server", "one without the successor");
    assert_eq!(level(&secured, &joins), "enrolling");
    assert_eq!(secured.keys.authority().retire().unwrap(), 1);
    show(&secured);
    // A certificate of the old authority enters no key any more; a listed key needs no authority.
    assert_eq!(level(&secured, &joins), "nobody");
    assert_eq!(level(&secured, &server_of_old), "server");
    secured.refused(Some(old.1));
    // The old authority's certificate for the new one makes it trusted, whichever server shows it.
    for trust in [old.0, new.1] {
        assert!(Session::connect(secured.config(Some(trust))).is_ok());
    }
    // A server's own connections use its new certificate, without a restart.
    let renewed = server_of_old.clone();
    renewed.replace(new.0, Some(secured.keys.shown().unwrap())).unwrap();
    assert_eq!(level(&secured, &server_of_old), "server");
}
