//! Tickets of a real realm: MIT's KDC, on a free port of the loopback interface. The library reads
//! its configuration from the environment, so the test runs itself once more, in a process that has
//! it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod realm;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use login::{KerberosError, PendingTicket, Service};
use realm::{KDC, command, kinit, realm};

const INNER: &str = "RIALTO_TEST_REALM";

#[test]
fn tickets_of_a_real_realm() {
    if !Path::new(KDC).exists() {
        let reason = format!("{KDC} is missing (Debian: krb5-kdc, krb5-admin-server, krb5-user)");
        // To stderr, uncaptured: scripts/check.sh counts the line.
        let _ = writeln!(std::io::stderr(), "\nSKIP unit: tickets_of_a_real_realm: {reason}");
        return;
    }
    if let Some(dir) = std::env::var_os(INNER) {
        return with_tickets(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    let _kdc = realm(dir.path());
    let own = std::env::current_exe().unwrap();
    let mut inner = command(dir.path(), own.to_str().unwrap());
    inner.args(["--exact", "tickets_of_a_real_realm", "--nocapture"]).env(INNER, dir.path());
    assert!(inner.status().unwrap().success(), "its messages are above");
}

const CLIENT: [u8; 32] = [7; 32];
const SERVICE: &str = "rialto/test.cell";

fn with_tickets(dir: &Path) {
    assert!(
        matches!(
            Service::new(&dir.join("nothing"), "TEST.CELL", false),
            Err(KerberosError::Library(_))
        ),
        "no keytab"
    );
    let service = Service::new(&dir.join("keytab"), "TEST.CELL", false).unwrap();
    let ticket = || PendingTicket::new(SERVICE, &CLIENT);
    assert!(matches!(ticket(), Err(KerberosError::Library(_))), "kinit was not called");
    kinit(dir, "1h");
    shown(&service);
    refused(&service);
    foreign_keys(dir);
    short(dir);
}

fn shown(service: &Service) {
    let ticket = PendingTicket::new(SERVICE, &CLIENT).unwrap();
    let vouched = service.accept(&ticket.request, &CLIENT).unwrap();
    assert_eq!(vouched.name, "joe");
    assert!(
        vouched.left > Duration::from_secs(3000) && vouched.left < Duration::from_secs(3700),
        "{:?}",
        vouched.left
    );
    ticket.check(&vouched.reply).unwrap();
    // Another server of the same name gives another reply.
    let (first, second) = (
        PendingTicket::new(SERVICE, &CLIENT).unwrap(),
        PendingTicket::new(SERVICE, &CLIENT).unwrap(),
    );
    let other = service.accept(&second.request, &CLIENT).unwrap();
    assert!(first.check(&other.reply).is_err(), "the reply to another request");
    for reply in [&b""[..], b"noise", &second.request] {
        assert!(PendingTicket::new(SERVICE, &CLIENT).unwrap().check(reply).is_err());
    }
}

fn refused(service: &Service) {
    let request = PendingTicket::new(SERVICE, &CLIENT).unwrap().request;
    assert!(service.accept(&request, &[8; 32]).is_err(), "for another client's key");
    let unbound = unbound();
    assert_eq!(
        service.accept(&unbound, &CLIENT),
        Err(KerberosError::Unbound),
        "for no client's key"
    );
    // A refused request was not used up; with any byte changed it is invalid.
    for at in (0..request.len()).step_by(37) {
        let mut changed = request.clone();
        changed[at] ^= 0x40;
        assert!(service.accept(&changed, &CLIENT).is_err(), "byte {at} of {}", request.len());
        assert!(service.accept(&request[..at], &CLIENT).is_err(), "the first {at} bytes");
    }
    assert!(PendingTicket::new("rialto/nowhere", &CLIENT).is_err());
}

/// A request of a program without bindings.
fn unbound() -> Vec<u8> {
    use libgssapi::context::{ClientCtx, CtxFlags};
    use libgssapi::name::Name;
    use libgssapi::oid::{GSS_MECH_KRB5, GSS_NT_KRB5_PRINCIPAL};
    let target = Name::new(SERVICE.as_bytes(), Some(GSS_NT_KRB5_PRINCIPAL)).unwrap();
    let mut context =
        ClientCtx::new(None, target, CtxFlags::GSS_C_MUTUAL_FLAG, Some(GSS_MECH_KRB5));
    context.step(None, None).unwrap().unwrap().to_vec()
}

fn foreign_keys(dir: &Path) {
    let request = PendingTicket::new(SERVICE, &CLIENT).unwrap().request;
    let other = Service::new(&dir.join("other"), "TEST.CELL", false).unwrap();
    assert!(other.accept(&request, &CLIENT).is_err(), "a ticket for another service");
    // Of another realm than the cell's.
    let abroad = Service::new(&dir.join("keytab"), "ELSEWHERE.ORG", false).unwrap();
    let vouched =
        abroad.accept(&PendingTicket::new(SERVICE, &CLIENT).unwrap().request, &CLIENT).unwrap();
    assert_eq!(vouched.name, "joe@test.cell");
}

fn short(dir: &Path) {
    let service = Service::new(&dir.join("keytab"), "TEST.CELL", false).unwrap();
    kinit(dir, "3s");
    let ticket = PendingTicket::new(SERVICE, &CLIENT).unwrap();
    // As long as the ticket, and for as long as clocks may differ here.
    assert!(service.accept(&ticket.request, &CLIENT).unwrap().left <= Duration::from_secs(5));
    let late = PendingTicket::new(SERVICE, &CLIENT).unwrap().request;
    std::thread::sleep(Duration::from_secs(7));
    assert!(service.accept(&late, &CLIENT).is_err(), "its ticket has ended");
    assert!(PendingTicket::new(SERVICE, &CLIENT).is_err(), "and gives no other");
}
