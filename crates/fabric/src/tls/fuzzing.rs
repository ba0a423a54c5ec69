//! The checks of the TLS fuzz target, in a library so that plain tests run them too (feature
//! `fuzzing`), and two sides in memory, which they need.

use std::cell::RefCell;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::*;

/// An authority that signs test certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    pub fn certificate(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    pub fn identity(&self, name: &str) -> TlsIdentity {
        self.identity_of(&KeyPair::generate().expect("a key"), name, |_| {})
    }

    /// A certificate for this key, as `change` alters it.
    pub fn identity_of(
        &self,
        key: &KeyPair,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> TlsIdentity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let certificate = params.signed_by(key, &self.0).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        TlsIdentity { chain: vec![certificate.der().clone(), self.certificate()], key }
    }

    /// A server, and a client that trusts it.
    pub fn sides(&self) -> (ClientTls, ServerTls) {
        let server =
            ServerTls::new(self.identity(CELL_SERVER), &[self.certificate()]).expect("a server");
        (
            ClientTls::new(Trust::Authorities(vec![self.certificate()]), None).expect("a client"),
            server,
        )
    }
}

/// Passes all records until both sides are done. `spoil` may change the bytes of one step.
pub(crate) fn shake(
    client: &ClientTls,
    server: &ServerTls,
    spoil: impl FnMut(&mut Vec<u8>),
) -> Result<(Secured, Secured), TlsError> {
    shake_with_host("192.0.2.1", client, server, spoil)
}

/// As [`shake`], with a client that connects to `host`.
pub(crate) fn shake_with_host(
    host: &str,
    client: &ClientTls,
    server: &ServerTls,
    mut spoil: impl FnMut(&mut Vec<u8>),
) -> Result<(Secured, Secured), TlsError> {
    let (mut client, mut server) = (Handshake::client(client, host)?, Handshake::server(server)?);
    let mut bytes = Vec::new();
    let mut done = [client.step(&[], &mut bytes)?, false];
    let mut to_server = true;
    while !bytes.is_empty() {
        spoil(&mut bytes);
        let mut answer = Vec::new();
        let mut rest = &bytes[..];
        while let Some(whole) = record_bytes(rest)? {
            let (record, behind) =
                rest.split_at_checked(whole).ok_or_else(|| TlsError("cut".to_owned()))?;
            rest = behind;
            let side = if to_server { &mut server } else { &mut client };
            done[usize::from(to_server)] = side.step(record, &mut answer)?;
        }
        bytes = answer;
        to_server = !to_server;
    }
    if done != [true, true] {
        return Err(TlsError("the handshake stopped before its end".to_owned()));
    }
    Ok((client.finish()?, server.finish()?))
}

/// Two sides for all runs, and one direction between two of them.
struct Bench {
    client: ClientTls,
    server: ServerTls,
    sealer: Sealer,
    opener: Opener,
}

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::new({
        let (client, server) = Authority::new().sides();
        let (one, other) = shake(&client, &server, |_| {}).expect("the client trusts the server");
        Bench { client, server, sealer: one.sealer, opener: other.opener }
    });
}

/// The first byte chooses: send the rest to a server; change records of the rest in transit; change
/// a handshake.
pub fn tls(script: &[u8]) {
    let Some((what, script)) = script.split_first() else { return };
    BENCH.with_borrow_mut(|bench| match what % 4 {
        0 => noise(bench, script),
        1 => handshake(bench, script),
        _ => records(bench, script),
    });
}

/// Noise never completes a handshake.
fn noise(bench: &Bench, mut script: &[u8]) {
    let mut server = Handshake::server(&bench.server).expect("a server");
    let mut out = Vec::new();
    while let Ok(Some(whole)) = record_bytes(script) {
        let Some((record, rest)) = script.split_at_checked(whole) else { return };
        script = rest;
        match server.step(record, &mut out) {
            Ok(done) => assert!(!done, "noise is no handshake"),
            Err(_) => break,
        }
    }
    assert!(server.finish().is_err());
}

/// A handshake that was changed in transit fails, or the change had no effect: then both sides have
/// the same keys.
fn handshake(bench: &Bench, script: &[u8]) {
    let mut changes = script.chunks_exact(4);
    let shaken = shake(&bench.client, &bench.server, |bytes| {
        let Some([place, high, by, how]) = changes.next() else { return };
        let at = usize::from(u16::from_le_bytes([*place, *high])) % bytes.len();
        match how % 4 {
            0 => bytes[at] ^= by,
            1 => bytes.truncate(at),
            2 => drop(bytes.splice(at..at, [*by; 7])),
            _ => {}
        }
    });
    if let Ok((mut client, mut server)) = shaken {
        assert_eq!(client.server, server.server);
        through(&mut client.sealer, &mut server.opener, script);
        through(&mut server.sealer, &mut client.opener, script);
    }
}

fn through(sealer: &mut Sealer, opener: &mut Opener, content: &[u8]) {
    let content = &content[..content.len().min(CONTENT_BYTES_MAX)];
    let mut records = Vec::new();
    sealer.seal(&[content], &mut records).expect("it can be sealed");
    assert_eq!(records.len(), 1);
    assert_eq!(opener.open(&mut records[0]), Ok(TlsRecord::Content(content)));
}

/// Only the unchanged form of a record opens, and a refused one has no effect on later ones.
fn records(bench: &mut Bench, script: &[u8]) {
    for part in script.chunks(64) {
        let mut records = Vec::new();
        bench.sealer.seal(&[part], &mut records).expect("it can be sealed");
        for mut record in records {
            let mut changed = record.clone();
            for change in part.chunks_exact(3) {
                let at = usize::from(change[0]) % changed.len();
                match change[1] % 3 {
                    0 => changed[at] ^= change[2],
                    1 => drop(changed.splice(at..at, [change[2]])),
                    _ => changed.truncate(at.max(1)),
                }
            }
            // The second byte of the version has no meaning. Source: RFC 8446, 5.1.
            if let Some(version) = changed.get_mut(2) {
                *version = record[2];
            }
            if changed != record
                && record_bytes(&changed).is_ok_and(|whole| whole == Some(changed.len()))
            {
                assert!(bench.opener.open(&mut changed).is_err(), "a record that was changed");
            }
            assert!(bench.opener.open(&mut record).is_ok());
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, RngCore, SeedableRng};

    use super::*;

    #[test]
    fn random_bytes_get_nowhere() {
        let mut random = StdRng::seed_from_u64(13);
        for round in 0..600 {
            let mut script = vec![0; random.random_range(1..200)];
            random.fill_bytes(&mut script);
            if round % 3 == 0 {
                // The beginning of a record.
                script.splice(..0, [0, FIRST_BYTE, 3, 1, 0, 40]);
            }
            tls(&script);
        }
    }

    #[test]
    fn each_changed_byte_of_a_tls_hello_is_noticed_or_harmless() {
        BENCH.with_borrow(|bench| {
            assert!(shake(&bench.client, &bench.server, |_| {}).is_ok());
            let mut refused = 0;
            for at in (0..200).step_by(7) {
                let mut first = true;
                let shaken = shake(&bench.client, &bench.server, |bytes| {
                    if std::mem::take(&mut first) {
                        bytes[at] ^= 0x55;
                    }
                });
                refused += u32::from(shaken.is_err());
            }
            assert!(refused >= 25, "{refused}");
        });
    }
}
