//! A server's own key and certificate, beside the authority of its cell.
//!
//! The key stays the same while certificates for it come and go: the cell database lists it, and by
//! it the other servers know this one. A server with the key of the authority signs its own
//! certificate. Any other one sends a signing request, and accepts what was signed elsewhere.
//!
//! A *next* key replaces the present one when the database lists it. Until then it is in a file of
//! its own, with its certificate if this server cannot sign. After a crash between the two either
//! key is there, and the next use goes on.

use std::path::PathBuf;
use std::time::SystemTime;

use fabric::tls::pki_types::CertificateDer;
use fabric::tls::{TlsIdentity, print_of};
use rcgen::{CertificateParams, DnType, KeyPair, PublicKeyData};
use types::KeyPrint;

use crate::authority::CellAuthority;
use crate::certificates::{
    RENEW_BEFORE, SERVER_NAME, first_certificate, is_signed_by, key_in, roles_in, server_params,
    validity,
};
use crate::files::{at, make_dir, read, remove, write};
use crate::{KeyError, authorities_in, identity_in};

/// This server's key, its certificate, and the names that it was made for.
const KEY: &str = "server.key";
const CERTIFICATE: &str = "server.pem";
const NAMES: &str = "server.names";
/// The key that this server will show next, when the cell database lists it.
const NEXT_KEY: &str = "server.next";
/// The certificate for it, of a server that cannot sign.
const NEXT_CERTIFICATE: &str = "server.next.pem";

/// Of a server that cannot sign, and has not finished to join or lost the file.
const UNSIGNED: &str = "is not there, and ca.key is not either; 'rialto up --join LINE' with the \
                        line that it began with gets one, or 'rialto keys request' and 'accept'";
/// It was away for longer than its certificate was valid: no server accepts it to renew that.
const ENDED: &str = "has ended, and ca.key is not here; 'rialto keys request', 'rialto cell sign' \
                     where ca.key is, and 'rialto keys accept' bring a new one";

/// The directory `keys` of a server.
#[derive(Clone, Debug)]
pub struct CellKeys {
    dir: PathBuf,
    authority: CellAuthority,
}

/// The end of a server's certificate, and its authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnCertificate {
    /// When it ends.
    pub ends: SystemTime,
    /// The present authority signed it.
    pub by_present: bool,
}

impl CellKeys {
    /// Those in `dir`, which need not exist.
    pub fn of(dir: impl Into<PathBuf>) -> CellKeys {
        let dir = dir.into();
        CellKeys { authority: CellAuthority::of(dir.clone()), dir }
    }

    /// The authority of the cell.
    pub fn authority(&self) -> &CellAuthority {
        &self.authority
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
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
        self.authority.finish_succession()?;
        self.finish_next_key()?;
        let made = if self.is_good(names, now)? {
            false
        } else if self.authority.can_sign() {
            self.make_certificate(names, now)?;
            true
        } else {
            // Another server signs: this one shows what it has, and asks (`Self::accept`).
            let own = self.own_certificate();
            let none = || at(&self.file(CERTIFICATE), UNSIGNED);
            if own.ok_or_else(none)?.ends <= now {
                return Err(at(&self.file(CERTIFICATE), ENDED));
            }
            false
        };
        Ok((self.shown()?, made))
    }

    /// This server's certificate, as last made.
    ///
    /// # Errors
    /// [`KeyError`]: there is none, or the process may not read its key.
    pub fn shown(&self) -> Result<TlsIdentity, KeyError> {
        let mut identity = identity_in(&self.file(CERTIFICATE), &self.file(KEY))?;
        identity.chain.truncate(1);
        identity.chain.extend(self.authority.certificates()?);
        Ok(identity)
    }

    fn is_good(&self, names: &[String], now: SystemTime) -> Result<bool, KeyError> {
        let file = self.file(CERTIFICATE);
        if !file.exists() || !self.file(KEY).exists() {
            return Ok(false);
        }
        let certificate = &authorities_in(&file)?[0];
        let (begin, end) = validity(certificate).ok_or_else(|| at(&file, "cannot be read"))?;
        let life = end.duration_since(begin).unwrap_or_default();
        let lasts = end > now + (life / 2).min(RENEW_BEFORE);
        let names_then = read(&self.file(NAMES))?.unwrap_or_default();
        let is_ours = is_signed_by(certificate, &self.authority.certificates()?[0]);
        Ok(lasts && is_ours && names_then == names.join("\n"))
    }

    fn make_certificate(&self, names: &[String], now: SystemTime) -> Result<(), KeyError> {
        let odd = |error: rcgen::Error| at(&self.dir, error);
        let params = server_params(names, now).map_err(odd)?;
        // A crash may have left half a key.
        let present = self.key_of_file(KEY).unwrap_or_default();
        let key = present.map_or_else(KeyPair::generate, Ok).map_err(odd)?;
        let certificate = self.authority.sign(&params, &key)?;
        // Names last: without them a key and a certificate that do not match are replaced.
        remove(&self.file(NAMES))?;
        write(&self.file(KEY), &key.serialize_pem())?;
        write(&self.file(CERTIFICATE), &certificate.pem())?;
        write(&self.file(NAMES), &names.join("\n"))
    }

    /// This server's own certificate, if it has one that can be read.
    fn certificate(&self) -> Option<CertificateDer<'static>> {
        authorities_in(&self.file(CERTIFICATE)).ok()?.into_iter().next()
    }

    /// The roles that this server's certificate says; `None`: it says none.
    pub fn certified_roles(&self) -> Option<String> {
        roles_in(&self.certificate()?)
    }

    /// The end of this server's own certificate, and whether another authority than the present one
    /// signed it; `None`: it has none, or one that cannot be read.
    pub fn own_certificate(&self) -> Option<OwnCertificate> {
        let certificate = self.certificate()?;
        let (_, ends) = validity(&certificate)?;
        let authority = self.authority.certificates().ok()?.into_iter().next()?;
        Some(OwnCertificate { ends, by_present: is_signed_by(&certificate, &authority) })
    }

    /// Does this server need a new certificate, which it cannot make itself?
    pub fn needs_certificate(&self, names: &[String], now: SystemTime) -> bool {
        !self.authority.can_sign() && !self.is_good(names, now).unwrap_or(false)
    }

    /// Makes this server's own key, if there is none yet, and a signing request for it (PEM), which
    /// proves that its sender has the key.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn signing_request(&self) -> Result<(KeyPrint, String), KeyError> {
        make_dir(&self.dir)?;
        let odd = |error: rcgen::Error| at(&self.dir, error);
        if self.key_of_file(KEY)?.is_none() {
            let key = KeyPair::generate().map_err(odd)?;
            write(&self.file(KEY), &key.serialize_pem())?;
        }
        self.request_of(KEY)
    }

    /// As [`Self::signing_request`], for the key that this server will show next, if there is one.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn next_signing_request(&self) -> Result<Option<(KeyPrint, String)>, KeyError> {
        self.next_key()?.map(|_| self.request_of(NEXT_KEY)).transpose()
    }

    fn request_of(&self, name: &str) -> Result<(KeyPrint, String), KeyError> {
        let odd = |error: rcgen::Error| at(&self.dir, error);
        let key = self.key_of_file(name)?.ok_or_else(|| at(&self.file(name), "is not there"))?;
        let mut params = CertificateParams::new(Vec::new()).map_err(odd)?;
        // The authority decides what the certificate says.
        params.distinguished_name.push(DnType::CommonName, SERVER_NAME);
        let request = params.serialize_request(&key).map_err(odd)?.pem().map_err(odd)?;
        Ok((print_of(&key.subject_public_key_info()), request))
    }

    fn key_of_file(&self, name: &str) -> Result<Option<KeyPair>, KeyError> {
        let file = self.file(name);
        let key =
            read(&file)?.map(|text| KeyPair::from_pem(&text).map_err(|_| at(&file, "is no key")));
        key.transpose()
    }

    /// Takes the authority's certificates and this server's own from another server that signed it.
    /// The certificate must be for this server's key, and by the first of the authorities.
    /// `names`: as [`Self::identity`] wants them.
    ///
    /// # Errors
    /// [`KeyError`]: it is another key's or another authority's, or another cell's is here.
    pub fn accept(
        &self,
        authorities: &str,
        certificate: &str,
        names: &[String],
    ) -> Result<(), KeyError> {
        let file = self.file(CERTIFICATE);
        let own = self.key_of_file(KEY)?.ok_or_else(|| at(&self.file(KEY), "is not there"))?;
        self.check_signed(authorities, certificate, &own)?;
        self.authority.bring_certificates(authorities)?;
        remove(&self.file(NAMES))?;
        write(&file, certificate)?;
        write(&self.file(NAMES), &names.join("\n"))
    }

    /// Checks that the certificate is for the key `own`, and by the first of the authorities.
    fn check_signed(
        &self,
        authorities: &str,
        certificate: &str,
        own: &KeyPair,
    ) -> Result<(), KeyError> {
        let file = self.file(CERTIFICATE);
        let (shown, by) = (first_certificate(certificate), first_certificate(authorities));
        let shown = shown.ok_or_else(|| at(&file, "what was signed is no certificate"))?;
        let by = by.ok_or_else(|| at(&self.authority.file(), "there is no authority"))?;
        let key = key_in(&shown).ok_or_else(|| at(&file, "cannot be read"))?;
        if key != print_of(&own.subject_public_key_info()) {
            return Err(at(&file, "what was signed is for another key than this server's"));
        }
        match is_signed_by(&shown, &by) {
            true => Ok(()),
            false => Err(at(&file, "it is not signed by the cell's authority")),
        }
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
        Ok(self.key_of_file(NEXT_KEY)?.map(|key| print_of(&key.subject_public_key_info())))
    }

    /// Keeps the certificate for the next key, of a server that cannot sign.
    ///
    /// # Errors
    /// [`KeyError`]: it is another key's or another authority's.
    pub fn accept_next(&self, authorities: &str, certificate: &str) -> Result<(), KeyError> {
        let next =
            self.key_of_file(NEXT_KEY)?.ok_or_else(|| at(&self.file(NEXT_KEY), "is not there"))?;
        self.check_signed(authorities, certificate, &next)?;
        self.authority.bring_certificates(authorities)?;
        write(&self.file(NEXT_CERTIFICATE), certificate)
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
        remove(&self.file(NAMES))?;
        write(&self.file(KEY), &key)?;
        if let Some(certificate) = read(&self.file(NEXT_CERTIFICATE))? {
            write(&self.file(CERTIFICATE), &certificate)?;
            remove(&self.file(NEXT_CERTIFICATE))?;
        }
        remove(&next)
    }

    /// Goes on with [`Self::take_next_key`] after a crash.
    fn finish_next_key(&self) -> Result<(), KeyError> {
        let next = read(&self.file(NEXT_KEY))?;
        if next.is_some() && next == read(&self.file(KEY))? { self.take_next_key() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use fabric::tls::{ClientTls, Trust};
    use guard::CertifiedServer;

    use super::*;
    use crate::certificates::{DAY, JOINED_LIFE, SERVER_LIFE};

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
        keys.authority().make("cell.test", now).unwrap();
        let print = keys.authority().fingerprint().unwrap();
        keys.authority().make("cell.test", now).unwrap();
        assert_eq!(keys.authority().fingerprint().unwrap(), print);
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
    fn incomplete_files_after_a_crash_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let keys = CellKeys::of(dir.path());
        let now = SystemTime::now();
        keys.authority().make("cell.test", now).unwrap();
        keys.identity(&names(), now).unwrap();
        std::fs::remove_file(dir.path().join(NAMES)).unwrap();
        std::fs::write(dir.path().join("server.key.new"), "half").unwrap();
        assert!(keys.identity(&names(), now).unwrap().1);
        // The authority's key without its certificate is discarded.
        let other = CellKeys::of(dir.path().join("other"));
        make_dir(&other.dir).unwrap();
        std::fs::write(other.file("ca.key"), "half").unwrap();
        other.authority().make("cell.test", now).unwrap();
        assert!(other.identity(&names(), now).is_ok());
    }

    #[test]
    fn m1_a_next_key_replaces_the_present_one_whatever_crash_comes() {
        let dir = tempfile::tempdir().unwrap();
        let keys = CellKeys::of(dir.path());
        let now = SystemTime::now();
        keys.authority().make("cell.test", now).unwrap();
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
                remove(&keys.file(NAMES)).unwrap();
            }
            if crashed > 1 {
                write(&keys.file(KEY), &read(&keys.file(NEXT_KEY)).unwrap().unwrap()).unwrap();
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
    fn sj3_a_server_without_the_authority_shows_what_was_signed() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) =
            (CellKeys::of(dir.path().join("a")), CellKeys::of(dir.path().join("b")));
        let now = SystemTime::now();
        first.authority().make("cell.test", now).unwrap();
        let (key, request) = second.signing_request().unwrap();
        assert_eq!(second.signing_request().unwrap().0, key, "the same key again");
        let named = |name: &str| CertifiedServer {
            name: name.to_owned(),
            roles: types::ServerRoles::FILE,
            hosts: names(),
        };
        let sign = |request: &str| {
            first
                .authority()
                .certify(request, "cell.test", &named("two"), JOINED_LIFE, now)
                .unwrap()
        };
        let authorities = read(&first.authority().file()).unwrap().unwrap();
        let signed = sign(&request);
        assert!(second.identity(&names(), now).is_err(), "nothing is signed yet");
        second.accept(&authorities, &signed, &names()).unwrap();
        assert!(!second.authority().can_sign() && !second.needs_certificate(&names(), now));
        let (shown, made) = second.identity(&names(), now).unwrap();
        assert_eq!((shown.key_print(), made), (Some(key), false));
        // Half of its life later it asks for another one, and shows this one until its end.
        let later = now + JOINED_LIFE / 2 + DAY;
        assert!(second.needs_certificate(&names(), later) && !first.needs_certificate(&[], later));
        assert!(second.identity(&names(), later).is_ok());
        let error = second.identity(&names(), now + JOINED_LIFE + DAY).unwrap_err();
        assert!(error.to_string().contains("has ended"), "{error}");
        // Another key's certificate, and another authority's.
        let third = CellKeys::of(dir.path().join("c"));
        let (_, other) = third.signing_request().unwrap();
        assert!(second.accept(&authorities, &sign(&other), &names()).is_err());
        third.authority().make("cell.test", now).unwrap();
        let forged = third
            .authority()
            .certify(&request, "cell.test", &named("two"), JOINED_LIFE, now)
            .unwrap();
        assert!(second.accept(&authorities, &forged, &names()).is_err());
        let theirs = read(&third.authority().file()).unwrap().unwrap();
        assert!(second.accept(&theirs, &forged, &names()).is_err(), "another cell's");
        // A successor is of the same cell.
        first.authority().succeed("cell.test", now).unwrap();
        let authorities = read(&first.authority().file()).unwrap().unwrap();
        second.accept(&authorities, &sign(&request), &names()).unwrap();
        assert_eq!(
            second.authority().fingerprints().unwrap(),
            first.authority().fingerprints().unwrap()
        );
        assert!(second.accept(&authorities, "noise", &names()).is_err());
        // A next key needs a certificate before it is taken; a crash in between changes nothing.
        for crashed in [false, true] {
            second.make_next_key().unwrap();
            let (next, request) = second.next_signing_request().unwrap().unwrap();
            assert!(second.accept_next(&authorities, &signed).is_err(), "the old key's");
            second.accept_next(&authorities, &sign(&request)).unwrap();
            assert_ne!(second.identity(&names(), now).unwrap().0.key_print(), Some(next));
            if crashed {
                write(&second.file(KEY), &read(&second.file(NEXT_KEY)).unwrap().unwrap()).unwrap();
            } else {
                second.take_next_key().unwrap();
            }
            let shown = second.identity(&names(), now).unwrap().0;
            assert_eq!((shown.key_print(), second.next_key().unwrap()), (Some(next), None));
            assert!(
                ClientTls::new(
                    Trust::Pinned(first.authority().fingerprint().unwrap()),
                    Some(shown)
                )
                .is_ok()
            );
        }
    }
}
