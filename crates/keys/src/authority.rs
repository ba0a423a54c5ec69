//! The cell's certificate authority, and this server's certificate.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use aws_lc_rs::rand::fill;
use fabric::tls::pki_types::CertificateDer;
use fabric::tls::{CELL_SERVER, Fingerprint, TlsIdentity, print_of};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SerialNumber,
};
use types::KeyPrint;

use crate::files::{at, make_dir, read, write};
use crate::{KeyError, authorities_in, identity_in};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// An authority lasts as long as a cell.
const AUTHORITY_LIFE: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
/// The lifetime of a server's certificate.
const SERVER_LIFE: Duration = Duration::from_secs(90 * 24 * 3600);
/// A server's certificate is replaced when it ends sooner than that.
pub const RENEW_BEFORE: Duration = Duration::from_secs(30 * 24 * 3600);

/// A successor that is about to replace the authority: its key and certificates.
const NEXT: &str = "ca.next";
/// The key that this server will show next, when the cell database lists it.
const NEXT_KEY: &str = "server.next";
/// The first line of a certificate in a file.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// The directory `keys` of a server.
#[derive(Clone, Debug)]
pub struct CellKeys {
    dir: PathBuf,
}

impl CellKeys {
    /// Those in `dir`, which need not exist.
    pub fn of(dir: impl Into<PathBuf>) -> CellKeys {
        CellKeys { dir: dir.into() }
    }

    /// The authority's certificate: public.
    pub fn authority_file(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes the authority of a new cell, if there is none.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn make_authority(&self, cell: &str, now: SystemTime) -> Result<(), KeyError> {
        make_dir(&self.dir)?;
        if self.authority_file().exists() {
            return Ok(());
        }
        let odd = |error: rcgen::Error| at(&self.dir, error);
        let params = authority_of(cell, now).map_err(odd)?;
        let key = KeyPair::generate().map_err(odd)?;
        let certificate = params.self_signed(&key).map_err(odd)?;
        // The certificate last: if it exists, its key does too.
        write(&self.file("ca.key"), &key.serialize_pem())?;
        write(&self.authority_file(), &certificate.pem())
    }

    /// Copies the authority of an existing cell to here, from the keys of one of its servers.
    ///
    /// # Errors
    /// [`KeyError`]: they are not there, or other keys are here.
    pub fn bring_authority(&self, from: &Path) -> Result<(), KeyError> {
        make_dir(&self.dir)?;
        for name in ["ca.key", "ca.pem"] {
            let there = from.join(name);
            let text = read(&there)?.ok_or_else(|| at(&there, "is not there"))?;
            match read(&self.file(name))? {
                Some(here) if here != text => {
                    return Err(at(&self.file(name), "another cell's is here already"));
                }
                _ => write(&self.file(name), &text)?,
            }
        }
        Ok(())
    }

    /// Makes a successor of the authority, which the old one signs: a client that trusts the old
    /// one trusts the new one. The old one's key is removed afterwards, its certificate is shown
    /// behind the new one's until [`CellKeys::retire`].
    ///
    /// # Errors
    /// [`KeyError`]: there is none, or its key is not here.
    pub fn succeed(&self, cell: &str, now: SystemTime) -> Result<(), KeyError> {
        self.take_next()?;
        let odd = |error: rcgen::Error| at(&self.dir, error);
        let params = authority_of(cell, now).map_err(odd)?;
        let key = KeyPair::generate().map_err(odd)?;
        let certificate = params.signed_by(&key, &self.issuer()?).map_err(odd)?;
        let old = read(&self.authority_file())?.unwrap_or_default();
        // Both in one file first, so that they never are of two authorities.
        write(&self.file(NEXT), &format!("{}{}{old}", key.serialize_pem(), certificate.pem()))?;
        self.take_next()
    }

    /// A complete successor replaces the authority.
    fn take_next(&self) -> Result<(), KeyError> {
        let Some(next) = read(&self.file(NEXT))? else { return Ok(()) };
        let split =
            next.find(CERTIFICATE).ok_or_else(|| at(&self.file(NEXT), "holds no certificate"))?;
        let placed = write(&self.file("ca.key"), &next[..split])
            .and_then(|()| write(&self.authority_file(), &next[split..]))
            .and_then(|()| {
                std::fs::remove_file(self.file(NEXT)).map_err(|error| at(&self.file(NEXT), error))
            });
        // A running server and the command that made the successor may both do this at once.
        if self.file(NEXT).exists() { placed } else { Ok(()) }
    }

    /// Removes the authorities before the present one. Returns how many there were.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn retire(&self) -> Result<usize, KeyError> {
        let file = self.authority_file();
        let text = read(&file)?.ok_or_else(|| at(&file, "is not there"))?;
        let before = self.authorities()?.len() - 1;
        if before > 0 {
            let second = text.match_indices(CERTIFICATE).nth(1).map_or(text.len(), |(at, _)| at);
            write(&file, &text[..second])?;
        }
        Ok(before)
    }

    fn issuer(&self) -> Result<Issuer<'static, KeyPair>, KeyError> {
        let file = self.file("ca.key");
        let key = read(&file)?.ok_or_else(|| at(&file, "is not there"))?;
        let key = KeyPair::from_pem(&key).map_err(|_| at(&file, "is no key"))?;
        Issuer::from_ca_cert_der(&self.authorities()?[0], key).map_err(|error| at(&self.dir, error))
    }

    /// The authorities that clients and servers of the cell trust, the present one first.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn authorities(&self) -> Result<Vec<CertificateDer<'static>>, KeyError> {
        authorities_in(&self.authority_file())
    }

    /// The fingerprint of the authority, as clients show it.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn fingerprint(&self) -> Result<Fingerprint, KeyError> {
        Ok(self.fingerprints()?[0])
    }

    /// As [`Self::fingerprint`], with those of the authorities that it succeeds.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn fingerprints(&self) -> Result<Vec<Fingerprint>, KeyError> {
        Ok(self.authorities()?.iter().map(|one| Fingerprint::of(one)).collect())
    }

    /// This server's certificate; a new one is made if there is none, if it ends soon, or if it
    /// lacks these names (host names and addresses). Returns whether one was made. A new
    /// certificate has the same key, by which the other servers know this one.
    ///
    /// # Errors
    /// [`KeyError`]; the old files stay.
    pub fn identity(
        &self,
        names: &[String],
        now: SystemTime,
    ) -> Result<(TlsIdentity, bool), KeyError> {
        self.take_next()?;
        let made = if self.is_good(names, now)? {
            false
        } else {
            self.make_server(names, now)?;
            true
        };
        Ok((self.shown()?, made))
    }

    /// Makes the key that this server will show next, if there is none yet.
    /// [`CellKeys::take_next_key`] replaces the present one with it.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn make_next_key(&self) -> Result<(), KeyError> {
        if self.next_key()?.is_some() {
            return Ok(());
        }
        let key = KeyPair::generate().map_err(|error| at(&self.dir, error))?;
        write(&self.file(NEXT_KEY), &key.serialize_pem())
    }

    /// The key that this server will show next; `None`: the present one.
    ///
    /// # Errors
    /// [`KeyError`]: the file holds no key.
    pub fn next_key(&self) -> Result<Option<KeyPrint>, KeyError> {
        Ok(self.key_in(NEXT_KEY)?.map(|key| print_of(&key.subject_public_key_info())))
    }

    /// The next key replaces the present one, which is removed: [`CellKeys::identity`] makes a
    /// certificate for it.
    ///
    /// # Errors
    /// [`KeyError`]; after a crash either key is there, and the call may be repeated.
    pub fn take_next_key(&self) -> Result<(), KeyError> {
        let next = self.file(NEXT_KEY);
        let Some(key) = read(&next)? else { return Ok(()) };
        // The certificate of the old key becomes invalid, so the next start makes one even after a
        // crash.
        remove(&self.file("server.names"))?;
        write(&self.file("server.key"), &key)?;
        remove(&next)
    }

    /// Can this server make certificates of the cell's authority?
    pub fn can_issue(&self) -> bool {
        self.file("ca.key").exists()
    }

    fn key_in(&self, name: &str) -> Result<Option<KeyPair>, KeyError> {
        let file = self.file(name);
        let key =
            read(&file)?.map(|text| KeyPair::from_pem(&text).map_err(|_| at(&file, "is no key")));
        key.transpose()
    }

    /// This server's certificate, as last made.
    ///
    /// # Errors
    /// [`KeyError`]: there is none, or the process may not read its key.
    pub fn shown(&self) -> Result<TlsIdentity, KeyError> {
        let mut identity = identity_in(&self.file("server.pem"), &self.file("server.key"))?;
        identity.chain.truncate(1);
        identity.chain.extend(self.authorities()?);
        Ok(identity)
    }

    fn is_good(&self, names: &[String], now: SystemTime) -> Result<bool, KeyError> {
        let (file, key) = (self.file("server.pem"), self.file("server.key"));
        if !file.exists() || !key.exists() {
            return Ok(false);
        }
        let certificate = &authorities_in(&file)?[0];
        let (_, parsed) =
            x509_parser::parse_x509_certificate(certificate).map_err(|error| at(&file, error))?;
        let end = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0);
        let lasts = SystemTime::UNIX_EPOCH + Duration::from_secs(end) > now + RENEW_BEFORE;
        let wrote = read(&self.file("server.names"))?.unwrap_or_default();
        let authority = &self.authorities()?[0];
        let (_, authority) =
            x509_parser::parse_x509_certificate(authority).map_err(|error| at(&file, error))?;
        let ours = parsed.verify_signature(Some(authority.public_key())).is_ok();
        Ok(lasts && ours && wrote == names.join("\n"))
    }

    fn make_server(&self, names: &[String], now: SystemTime) -> Result<(), KeyError> {
        let odd = |error: rcgen::Error| at(&self.dir, error);
        let authority = self.issuer()?;
        let all = std::iter::once(CELL_SERVER.to_owned()).chain(names.iter().cloned());
        let mut params = CertificateParams::new(all.collect::<Vec<_>>()).map_err(odd)?;
        params.distinguished_name.push(DnType::CommonName, "Rialto server");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        (params.not_before, params.not_after) = span(now, SERVER_LIFE);
        params.serial_number = Some(serial());
        // A crash may have left half a key.
        let present = self.key_in("server.key").unwrap_or_default();
        let key = present.map_or_else(KeyPair::generate, Ok).map_err(odd)?;
        let certificate = params.signed_by(&key, &authority).map_err(odd)?;
        // Names last: without them a key and a certificate that do not match are replaced.
        remove(&self.file("server.names"))?;
        write(&self.file("server.key"), &key.serialize_pem())?;
        write(&self.file("server.pem"), &certificate.pem())?;
        write(&self.file("server.names"), &names.join("\n"))
    }
}

fn authority_of(cell: &str, now: SystemTime) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, format!("Rialto cell {cell}"));
    // Each successor has a name of its own: with equal names a chain would have two paths.
    let serial = serial();
    let number: String = serial.to_bytes()[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    params.distinguished_name.push(DnType::OrganizationalUnitName, number);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (params.not_before, params.not_after) = span(now, AUTHORITY_LIFE);
    params.serial_number = Some(serial);
    Ok(params)
}

/// Has the authority `older` signed the authority `newer`?
pub fn succeeds(newer: &[u8], older: &[u8]) -> bool {
    let parsed = x509_parser::parse_x509_certificate(newer)
        .ok()
        .zip(x509_parser::parse_x509_certificate(older).ok());
    parsed.is_some_and(|((_, newer), (_, older))| {
        newer.is_ca() && older.is_ca() && newer.verify_signature(Some(older.public_key())).is_ok()
    })
}

fn remove(file: &Path) -> Result<(), KeyError> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(at(file, error)),
        _ => Ok(()),
    }
}

/// Begins a day before, for clocks that are behind.
fn span(now: SystemTime, life: Duration) -> (time::OffsetDateTime, time::OffsetDateTime) {
    ((now - DAY).into(), (now + life).into())
}

fn serial() -> SerialNumber {
    let mut bytes = [0; 16];
    fill(&mut bytes).expect("the system has random numbers");
    // Positive, and of full length.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    SerialNumber::from_slice(&bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names() -> Vec<String> {
        vec!["host.example".to_owned(), "192.0.2.1".to_owned(), "::1".to_owned()]
    }

    #[test]
    fn an_authority_is_made_once_and_certificates_when_needed() {
        let dir = tempfile::tempdir().unwrap();
        let keys = CellKeys::of(dir.path().join("keys"));
        let now = SystemTime::now();
        assert!(
            keys.identity(&names(), now).is_err(),
            "without an authority there is no certificate"
        );
        keys.make_authority("cell.test", now).unwrap();
        let print = keys.fingerprint().unwrap();
        keys.make_authority("cell.test", now).unwrap();
        assert_eq!(keys.fingerprint().unwrap(), print);
        let (first, made) = keys.identity(&names(), now).unwrap();
        assert!(made && first.chain.len() == 2);
        let (again, made) = keys.identity(&names(), now).unwrap();
        assert!(!made && again.chain == first.chain);
        let (renewed, made) =
            keys.identity(&names(), now + SERVER_LIFE - RENEW_BEFORE + DAY).unwrap();
        assert!(made && renewed.chain[0] != first.chain[0]);
        assert_eq!(
            renewed.key_print(),
            first.key_print(),
            "M1: the list of servers' keys still has it"
        );
        assert!(keys.identity(&names()[..1], now).unwrap().1, "other names");
        for entry in std::fs::read_dir(dir.path().join("keys")).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(
                entry.metadata().unwrap().permissions().mode() & 0o777,
                0o600,
                "{:?}",
                entry.path()
            );
        }
        assert_eq!(
            std::fs::metadata(dir.path().join("keys")).unwrap().permissions().mode() & 0o777,
            0o700
        );
    }

    #[test]
    fn an_authority_has_a_successor_whatever_crash_comes_between() {
        let dir = tempfile::tempdir().unwrap();
        let keys = CellKeys::of(dir.path());
        let now = SystemTime::now();
        assert!(keys.succeed("cell.test", now).is_err(), "of what");
        keys.make_authority("cell.test", now).unwrap();
        let (first, _) = keys.identity(&names(), now).unwrap();
        keys.succeed("cell.test", now).unwrap();
        let (second, made) = keys.identity(&names(), now).unwrap();
        assert!(made, "a certificate by the successor");
        assert_eq!((second.chain.len(), &second.chain[2]), (3, &first.chain[1]));
        assert!(
            succeeds(&second.chain[1], &second.chain[2])
                && !succeeds(&second.chain[2], &second.chain[1])
        );
        assert!(
            !succeeds(&second.chain[0], &second.chain[1]),
            "a server's certificate is no authority"
        );
        // A crash when one of the two files was there.
        let (key, certificates) =
            (read(&keys.file("ca.key")).unwrap(), read(&keys.authority_file()).unwrap());
        keys.succeed("cell.test", now).unwrap();
        let both = read(&keys.file("ca.key")).unwrap().unwrap()
            + &read(&keys.authority_file()).unwrap().unwrap();
        for crashed in 0..3 {
            write(&keys.file(NEXT), &both).unwrap();
            if crashed < 2 {
                write(&keys.authority_file(), certificates.as_deref().unwrap()).unwrap();
            }
            if crashed < 1 {
                write(&keys.file("ca.key"), key.as_deref().unwrap()).unwrap();
            }
            let (third, _) = keys.identity(&names(), now).unwrap();
            assert_eq!((third.chain.len(), &third.chain[2]), (4, &second.chain[1]), "{crashed}");
            assert!(!keys.file(NEXT).exists() && keys.is_good(&names(), now).unwrap());
        }
        assert_eq!(
            (keys.retire().unwrap(), keys.retire().unwrap(), keys.authorities().unwrap().len()),
            (2, 0, 1)
        );
        assert!(!keys.identity(&names(), now).unwrap().1, "it is still valid");
    }

    #[test]
    fn incomplete_files_after_a_crash_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let keys = CellKeys::of(dir.path());
        let now = SystemTime::now();
        keys.make_authority("cell.test", now).unwrap();
        keys.identity(&names(), now).unwrap();
        std::fs::remove_file(dir.path().join("server.names")).unwrap();
        std::fs::write(dir.path().join("server.key.new"), "half").unwrap();
        assert!(keys.identity(&names(), now).unwrap().1);
        // The authority's key without its certificate is discarded.
        let other = CellKeys::of(dir.path().join("other"));
        make_dir(&other.dir).unwrap();
        std::fs::write(other.file("ca.key"), "half").unwrap();
        other.make_authority("cell.test", now).unwrap();
        assert!(other.identity(&names(), now).is_ok());
    }

    #[test]
    fn m1_a_next_key_replaces_the_present_one_whatever_crash_comes() {
        let dir = tempfile::tempdir().unwrap();
        let keys = CellKeys::of(dir.path());
        let now = SystemTime::now();
        keys.make_authority("cell.test", now).unwrap();
        for crashed in 0..4 {
            let present = keys.identity(&names(), now).unwrap().0.key_print();
            assert_eq!(keys.next_key().unwrap(), None);
            keys.make_next_key().unwrap();
            let next = keys.next_key().unwrap();
            keys.make_next_key().unwrap();
            assert!(
                next.is_some() && next != present && keys.next_key().unwrap() == next,
                "one is made once"
            );
            let (same, made) = keys.identity(&names(), now).unwrap();
            assert!(!made && same.key_print() == present, "it is not shown before it is listed");
            if crashed > 0 {
                remove(&keys.file("server.names")).unwrap();
            }
            if crashed > 1 {
                write(&keys.file("server.key"), &read(&keys.file(NEXT_KEY)).unwrap().unwrap())
                    .unwrap();
            }
            if crashed > 2 {
                assert_eq!(keys.identity(&names(), now).unwrap().0.key_print(), next);
            }
            keys.take_next_key().unwrap();
            keys.take_next_key().unwrap();
            let (renewed, _) = keys.identity(&names(), now).unwrap();
            assert_eq!((renewed.key_print(), keys.next_key().unwrap()), (next, None), "{crashed}");
        }
    }

    #[test]
    fn a_joining_server_has_the_cells_authority_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) =
            (CellKeys::of(dir.path().join("a")), CellKeys::of(dir.path().join("b")));
        let now = SystemTime::now();
        first.make_authority("cell.test", now).unwrap();
        second.bring_authority(&dir.path().join("a")).unwrap();
        second.bring_authority(&dir.path().join("a")).unwrap();
        assert_eq!(first.fingerprint().unwrap(), second.fingerprint().unwrap());
        assert!(second.identity(&names(), now).unwrap().1);
        let third = CellKeys::of(dir.path().join("c"));
        third.make_authority("other.test", now).unwrap();
        assert!(third.bring_authority(&dir.path().join("a")).is_err());
        let error = CellKeys::of(dir.path().join("d"))
            .bring_authority(&dir.path().join("nothing"))
            .unwrap_err();
        assert!(error.to_string().contains("ca.key: is not there"), "{error}");
    }
}
