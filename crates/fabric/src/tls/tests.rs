//! Tests with both sides in memory.

use std::sync::{Arc, Mutex};

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, date_time_ymd};
use types::KeyPrint;

use super::fuzzing::{Authority, shake as shake_with, shake_with_host};
use super::*;

fn shake_to(
    host: &str,
    client: &ClientTls,
    server: &ServerTls,
) -> Result<(Secured, Secured), TlsError> {
    shake_with_host(host, client, server, |_| {})
}

fn shake(client: &ClientTls, server: &ServerTls) -> Result<(Secured, Secured), TlsError> {
    shake_with(client, server, |_| {})
}

fn pair(authority: &Authority) -> (Secured, Secured) {
    let (client, server) = authority.sides();
    shake(&client, &server).unwrap()
}

fn sealed(sealer: &mut Sealer, bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    sealer.seal(&[bytes], &mut records).unwrap();
    records
}

#[test]
fn both_ends_know_the_server_and_what_one_seals_the_other_opens() {
    let authority = Authority::new();
    let (mut client, mut server) = pair(&authority);
    assert_eq!(client.server, server.server);
    assert_eq!(server.shown, ClientCertificate::Nothing);
    for (from, to) in
        [(&mut client.sealer, &mut server.opener), (&mut server.sealer, &mut client.opener)]
    {
        for text in [&b"first"[..], b"second", &[7; CONTENT_BYTES_MAX]] {
            let mut records = sealed(from, text);
            assert_eq!(records.len(), 1);
            assert_eq!(to.open(&mut records[0]), Ok(TlsRecord::Content(text)));
        }
    }
}

#[test]
fn keys_are_renewed_on_the_way_and_the_old_ones_open_nothing() {
    let (mut client, mut server) = pair(&Authority::new());
    client.sealer.renew_after(3);
    let mut renewed = 0;
    for number in 0..20_u8 {
        let mut records = sealed(&mut client.sealer, &[number]);
        if let [update, _] = &mut records[..] {
            assert_eq!(server.opener.open(update), Ok(TlsRecord::Nothing));
            renewed += 1;
        }
        assert_eq!(
            server.opener.open(records.last_mut().unwrap()),
            Ok(TlsRecord::Content(&[number]))
        );
    }
    assert!(renewed >= 5, "{renewed}");
    // If a change of keys is lost, the rest is unreadable.
    client.sealer.renew_after(0);
    let mut records = sealed(&mut client.sealer, b"x");
    assert!(server.opener.open(&mut records[1]).is_err());
}

/// Changes a record in transit.
type Spoil<'a> = &'a dyn Fn(&mut Vec<u8>);

#[test]
fn changed_repeated_omitted_or_cut_records_do_not_open() {
    let authority = Authority::new();
    let spoil: [Spoil<'_>; 4] = [
        &|record| *record.last_mut().unwrap() ^= 1,
        &|record| record[HEAD_BYTES] ^= 0x80,
        &|record| record[0] = 0x16,
        &|record| record.truncate(HEAD_BYTES + 3),
    ];
    for spoil in spoil {
        let (mut client, mut server) = pair(&authority);
        let mut record = sealed(&mut client.sealer, b"precious").pop().unwrap();
        spoil(&mut record);
        assert!(server.opener.open(&mut record).is_err());
    }
    let (mut client, mut server) = pair(&authority);
    let record = sealed(&mut client.sealer, b"once").pop().unwrap();
    assert!(server.opener.open(&mut record.clone()).is_ok());
    assert!(server.opener.open(&mut record.clone()).is_err(), "a record is opened once");
    let (mut client, mut server) = pair(&authority);
    let _lost = sealed(&mut client.sealer, b"first");
    assert!(server.opener.open(&mut sealed(&mut client.sealer, b"second")[0]).is_err());
}

#[test]
fn a_server_is_trusted_by_authority_fingerprint_or_question() {
    let (ours, other) = (Authority::new(), Authority::new());
    let server = ServerTls::new(ours.identity(CELL_SERVER), &[]).unwrap();
    let print = |authority: &Authority| Fingerprint::of(&authority.certificate());
    let outcome = |trust: Trust| shake(&ClientTls::new(trust, None).unwrap(), &server).map(drop);
    assert_eq!(outcome(Trust::Authorities(vec![ours.certificate()])), Ok(()));
    assert!(outcome(Trust::Authorities(vec![other.certificate()])).is_err());
    assert_eq!(outcome(Trust::Pinned(print(&ours))), Ok(()));
    let said = outcome(Trust::Pinned(print(&other))).unwrap_err().to_string();
    assert!(
        said.contains(&print(&ours).to_string()) && said.contains(&print(&other).to_string()),
        "{said}"
    );
    let seen = Arc::new(Mutex::new(None));
    let remembers = Arc::clone(&seen);
    let asked = Trust::Asked(Arc::new(move |shown| {
        *remembers.lock().unwrap() =
            Some(shown.iter().map(|one| Fingerprint::of(one)).collect::<Vec<_>>());
        Ok(())
    }));
    assert_eq!(outcome(asked), Ok(()));
    assert_eq!(*seen.lock().unwrap(), Some(vec![print(&ours)]));
    let refuses = Trust::Asked(Arc::new(|_| Err("not that one".to_owned())));
    assert_eq!(outcome(refuses), Err(TlsError("not that one".to_owned())));
}

#[test]
fn no_question_about_an_authority_that_did_not_sign() {
    let (ours, other) = (Authority::new(), Authority::new());
    let mut identity = other.identity(CELL_SERVER);
    identity.chain[1] = ours.certificate();
    let server = ServerTls::new(identity, &[]).unwrap();
    let asked =
        Trust::Asked(Arc::new(|_| panic!("judged an authority that did not sign the certificate")));
    for trust in [asked, Trust::Pinned(Fingerprint::of(&ours.certificate()))] {
        assert!(shake(&ClientTls::new(trust, None).unwrap(), &server).is_err());
    }
    // Shown together with the authority that did.
    let mut identity = other.identity(CELL_SERVER);
    identity.chain.push(ours.certificate());
    let server = ServerTls::new(identity, &[]).unwrap();
    let only = Fingerprint::of(&other.certificate());
    let asked = Trust::Asked(Arc::new(move |shown| {
        assert_eq!(shown.iter().map(|one| Fingerprint::of(one)).collect::<Vec<_>>(), [only]);
        Ok(())
    }));
    assert!(shake(&ClientTls::new(asked, None).unwrap(), &server).is_ok());
    let pinned = Trust::Pinned(Fingerprint::of(&ours.certificate()));
    assert!(shake(&ClientTls::new(pinned, None).unwrap(), &server).is_err());
}

#[test]
fn servers_verify_each_other_and_replace_their_certificate() {
    let authority = Authority::new();
    let trust = || Trust::Authorities(vec![authority.certificate()]);
    let server =
        ServerTls::new(authority.identity(CELL_SERVER), &[authority.certificate()]).unwrap();
    let peer = ClientTls::new(trust(), Some(authority.identity(CELL_SERVER))).unwrap();
    let (client, before) = shake(&peer, &server).unwrap();
    assert_eq!(client.shown, ClientCertificate::Nothing);
    assert!(matches!(before.shown, ClientCertificate::CellServer(_)), "{:?}", before.shown);
    let other = Authority::new().identity(CELL_SERVER);
    let stranger = ClientTls::new(trust(), Some(other.clone())).unwrap();
    let shown = shake(&stranger, &server).unwrap().1.shown;
    assert_eq!(
        shown,
        ClientCertificate::Unknown(other.key_print().unwrap()),
        "a certificate of another authority is none"
    );
    server.replace(authority.identity(CELL_SERVER), &[authority.certificate()]).unwrap();
    let after = shake(&peer, &server).unwrap().1;
    assert_ne!(before.server, after.server);
    let wrong = ServerTls::new(authority.identity("elsewhere.example"), &[]).unwrap();
    assert!(
        shake(&peer, &wrong).is_err(),
        "neither a server of the cell nor the host that was meant"
    );
}

#[test]
fn a_foreign_authority_makes_hosts_and_never_a_server() {
    let (cell, foreign) = (Authority::new(), Authority::new());
    let identity = foreign.identity("afs1.example.org");
    let server =
        ServerTls::with_hosts(identity, &[cell.certificate()], &[foreign.certificate()]).unwrap();
    let shown = |identity: Option<TlsIdentity>| {
        let trust = Trust::Authorities(vec![cell.certificate(), foreign.certificate()]);
        shake_to("afs1.example.org", &ClientTls::new(trust, identity).unwrap(), &server)
            .map(|(_, server)| server.shown)
    };
    assert_eq!(shown(None), Ok(ClientCertificate::Nothing));
    let check = |identity: TlsIdentity, kind: fn(KeyPrint) -> ClientCertificate| {
        let key = identity.key_print().unwrap();
        assert_eq!(shown(Some(identity)), Ok(kind(key)));
    };
    check(cell.identity(CELL_SERVER), ClientCertificate::CellServer);
    // The name is worthless without the cell's authority, and that authority signs host
    // certificates too.
    check(foreign.identity(CELL_SERVER), ClientCertificate::Host);
    check(foreign.identity("laptop.example.org"), ClientCertificate::Host);
    check(cell.identity("host.example.org"), ClientCertificate::Host);
    check(Authority::new().identity(CELL_SERVER), ClientCertificate::Unknown);
    // Any certificates may follow the leaf.
    let mut disguised = foreign.identity(CELL_SERVER);
    disguised.chain[1] = cell.certificate();
    check(disguised, ClientCertificate::Host);
}

#[test]
fn m1_any_valid_certificate_identifies_its_key() {
    let (cell, foreign) = (Authority::new(), Authority::new());
    let server = ServerTls::new(cell.identity(CELL_SERVER), &[cell.certificate()]).unwrap();
    let shown = |identity: TlsIdentity| {
        let trust = Trust::Authorities(vec![cell.certificate()]);
        shake(&ClientTls::new(trust, Some(identity)).unwrap(), &server).unwrap().1.shown
    };
    let key = KeyPair::generate().unwrap();
    let print = ClientCertificate::key(shown(cell.identity_of(&key, CELL_SERVER, |_| {}))).unwrap();
    assert_eq!(
        shown(cell.identity_of(&key, CELL_SERVER, |_| {})),
        ClientCertificate::CellServer(print),
        "renewed"
    );
    assert_eq!(
        shown(foreign.identity_of(&key, CELL_SERVER, |_| {})),
        ClientCertificate::Unknown(print)
    );
    // Without the usage of clients the certificate gives no access, and it has the same key.
    let server_only = |params: &mut CertificateParams| {
        params.extended_key_usages.retain(|usage| *usage == ExtendedKeyUsagePurpose::ServerAuth);
    };
    assert_eq!(
        shown(cell.identity_of(&key, CELL_SERVER, server_only)),
        ClientCertificate::Unknown(print)
    );
    let ended = |params: &mut CertificateParams| params.not_after = date_time_ymd(2001, 1, 1);
    let future = |params: &mut CertificateParams| params.not_before = date_time_ymd(3001, 1, 1);
    assert_eq!(shown(cell.identity_of(&key, CELL_SERVER, ended)), ClientCertificate::Nothing);
    assert_eq!(shown(cell.identity_of(&key, CELL_SERVER, future)), ClientCertificate::Nothing);
}

#[test]
fn m1_a_certificate_without_its_key_is_refused() {
    let cell = Authority::new();
    let server = ServerTls::new(cell.identity(CELL_SERVER), &[cell.certificate()]).unwrap();
    let trust = Trust::Authorities(vec![cell.certificate()]);
    // A certificate is public. With another key the handshake fails, whatever the authority.
    for of in [&cell, &Authority::new()] {
        let (mut thief, victim) = (of.identity(CELL_SERVER), of.identity(CELL_SERVER));
        thief.chain.clone_from(&victim.chain);
        let client = ClientTls::thief(trust.clone(), thief);
        assert!(shake(&client, &server).is_err());
    }
}

#[test]
fn noise_ends_a_handshake_and_no_debug_form_shows_a_key() {
    let authority = Authority::new();
    let server = ServerTls::new(authority.identity(CELL_SERVER), &[]).unwrap();
    let mut handshake = Handshake::server(&server).unwrap();
    let record = [22, 3, 1, 0, 5, 1, 0, 0, 1, 5];
    let mut out = Vec::new();
    assert!(handshake.step(&record, &mut out).is_err());
    assert_eq!(out[0], 21, "an alert says so");
    assert!(record_bytes(b"GET / HTTP").is_err());
    let shown = format!("{:?} {:?}", pair(&authority).0, authority.identity("x"));
    assert!(
        shown.contains("Sealer { next: 0, .. }") && shown.contains("Identity(2 certificates)"),
        "{shown}"
    );
}

#[test]
fn fingerprints_are_read_as_they_are_written() {
    let print = Fingerprint::of(b"certificate");
    assert_eq!(print.to_string().parse(), Ok(print));
    for bad in ["", "sha256:", "sha256:0g", "md5:00", &print.to_string()[1..], &format!("{print}0")]
    {
        assert!(bad.parse::<Fingerprint>().is_err(), "{bad}");
    }
}
