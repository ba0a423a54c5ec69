//! A realm of MIT Kerberos on a free port of the loopback interface, with the user joe and the
//! service `rialto/test.cell`.

#![allow(clippy::unwrap_used)] // tests and an example have it

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The path on Debian.
pub const KDC: &str = "/usr/sbin/krb5kdc";

/// The process, killed on drop.
pub struct Kdc(Child);

impl Drop for Kdc {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(dir: &Path, program: &str, args: &[&str]) {
    let output = command(dir, program).args(args).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A program in the realm: the library reads its configuration from the environment.
pub fn command(dir: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("KRB5_CONFIG", dir.join("krb5.conf")).env("KRB5_KDC_PROFILE", dir.join("kdc.conf"));
    command
        .env("KRB5CCNAME", format!("FILE:{}", dir.join("joe").display()))
        .env("KRB5RCACHEDIR", dir);
    command.stdin(Stdio::null());
    command
}

/// A realm with a user and the service `rialto/test.cell`, whose keys are in `keytab`; `other` is
/// another key of the same name.
pub fn realm(dir: &Path) -> Kdc {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let at = dir.display();
    let conf = format!(
        "[libdefaults]\ndefault_realm = TEST.CELL\ndns_lookup_kdc = false\n\
         dns_lookup_realm = false\nrdns = false\nclockskew = 2\n\
         [realms]\nTEST.CELL = {{\nkdc = 127.0.0.1:{port}\n}}\n"
    );
    fs::write(dir.join("krb5.conf"), conf).unwrap();
    let conf = format!(
        "[kdcdefaults]\nkdc_listen = 127.0.0.1:{port}\nkdc_tcp_listen = 127.0.0.1:{port}\n\
         [realms]\nTEST.CELL = {{\ndatabase_name = {at}/principal\n\
         key_stash_file = {at}/stash\nacl_file = {at}/acl\n}}\n"
    );
    fs::write(dir.join("kdc.conf"), conf).unwrap();
    run(dir, "/usr/sbin/kdb5_util", &["create", "-s", "-P", "master of the test"]);
    for query in [
        "addprinc -pw opensesame joe".to_owned(),
        "addprinc -randkey rialto/test.cell".to_owned(),
        format!("ktadd -k {at}/keytab rialto/test.cell"),
        "addprinc -randkey rialto/other.cell".to_owned(),
        format!("ktadd -k {at}/other rialto/other.cell"),
    ] {
        run(dir, "/usr/sbin/kadmin.local", &["-q", &query]);
    }
    let kdc = command(dir, KDC)
        .args(["-n", "-P"])
        .arg(dir.join("pid"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let kdc = Kdc(kdc.unwrap());
    let until = Instant::now() + Duration::from_secs(60);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < until, "the KDC does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    kdc
}

/// Gets a ticket-granting ticket for joe with this lifetime.
pub fn kinit(dir: &Path, life: &str) {
    let mut kinit = command(dir, "/usr/bin/kinit");
    let mut kinit = kinit
        .args(["-l", life, "joe"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut kinit.stdin.take().unwrap(), b"opensesame\n").unwrap();
    assert!(kinit.wait().unwrap().success(), "kinit");
}
