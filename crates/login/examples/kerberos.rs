//! The cost of a login with a ticket, beside that of the realm's servers: `cargo run --release -p
//! login --example kerberos`. Needs MIT's KDC (Debian: krb5-kdc, krb5-admin-server, krb5-user),
//! which it starts on the loopback interface.

#[path = "../tests/realm/mod.rs"]
mod realm;

use std::path::Path;
use std::time::{Duration, Instant};

use login::{PendingTicket, Service};

const INNER: &str = "RIALTO_EXAMPLE_REALM";
const TIMES: usize = 500;
const CLIENT: [u8; 32] = [7; 32];

fn main() {
    if let Some(dir) = std::env::var_os(INNER) {
        return measure(Path::new(&dir));
    }
    if !Path::new(realm::KDC).exists() {
        println!("not run: {} is missing", realm::KDC);
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let _kdc = realm::realm(dir.path());
    realm::kinit(dir.path(), "1h");
    let own = std::env::current_exe().expect("this program");
    let status = realm::command(dir.path(), own.to_str().expect("a path that is text"))
        .env(INNER, dir.path())
        .status();
    assert!(status.expect("itself once more").success());
}

fn measure(dir: &Path) {
    let service = Service::new(&dir.join("keytab"), "TEST.CELL", false).expect("a keytab");
    let mut times: [Vec<Duration>; 3] = Default::default();
    for _ in 0..=TIMES {
        let start = Instant::now();
        let ticket = PendingTicket::new("rialto/test.cell", &CLIENT).expect("a ticket");
        let requested = Instant::now();
        let vouched = service.accept(&ticket.request, &CLIENT).expect("it is good");
        let accepted = Instant::now();
        ticket.check(&vouched.reply).expect("it is the cell's");
        for (times, time) in
            times.iter_mut().zip([requested - start, accepted - requested, accepted.elapsed()])
        {
            times.push(time);
        }
    }
    println!("the first, with the realm's servers: {:?}", times[0][0] + times[1][0] + times[2][0]);
    for (what, times) in ["request", "accept", "check the reply"].into_iter().zip(&mut times) {
        times.remove(0);
        times.sort();
        println!("{what}: median {:?}, worst {:?}", times[TIMES / 2], times[TIMES - 1]);
    }
}
