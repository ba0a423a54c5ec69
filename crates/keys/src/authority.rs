//! The cell's certificate authority: its certificate, by which clients know the cell, and its key,
//! which is at one server or on none.
//!
//! A *successor* can replace it. The old authority signs the successor, so a client that trusts the
//! old one trusts the new one. Key and certificates of the successor are in one file until both
//! have replaced those of the old authority: after a crash in between, the next use of the key goes
//! on. The old certificate stays behind the new one until it is retired.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fabric::tls::Fingerprint;
use fabric::tls::pki_types::CertificateDer;
use guard::CertifiedServer;
use rcgen::{
    Certificate, CertificateParams, CertificateSigningRequestParams, Issuer, KeyPair, PublicKeyData,
};

use crate::certificates::{
    authority_params, certificates, first_certificate, is_of_cell, joined_params,
};
use crate::files::{at, make_dir, read, remove, write};
use crate::{KeyError, authorities_in};

/// The certificates, the present one first.
const CERTIFICATES: &str = "ca.pem";
const KEY: &str = "ca.key";
/// A successor that is about to replace the authority: its key, and behind it the certificates.
const NEXT: &str = "ca.next";
/// The first line of a certificate in a file.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// See the head of the file.
#[derive(Clone, Debug)]
pub struct CellAuthority {
    /// The directory `keys` of a server, or one that an administrator took the key to.
    dir: PathBuf,
}

impl CellAuthority {
    pub(crate) fn of(dir: PathBuf) -> CellAuthority {
        CellAuthority { dir }
    }

    /// The file of the certificates: public.
    pub fn file(&self) -> PathBuf {
        self.dir.join(CERTIFICATES)
    }

    fn key(&self) -> PathBuf {
        self.dir.join(KEY)
    }

    fn next(&self) -> PathBuf {
        self.dir.join(NEXT)
    }

    /// Makes the authority of a new cell, if there is none.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn make(&self, cell: &str, now: SystemTime) -> Result<(), KeyError> {
        make_dir(&self.dir)?;
        if self.file().exists() {
            return Ok(());
        }
        let odd = |error: rcgen::Error| at(&self.dir, error);
        let params = authority_params(cell, now).map_err(odd)?;
        let key = KeyPair::generate().map_err(odd)?;
        let certificate = params.self_signed(&key).map_err(odd)?;
        // The certificate last: if it exists, its key does too.
        write(&self.key(), &key.serialize_pem())?;
        write(&self.file(), &certificate.pem())
    }

    /// Copies the authority of an existing cell to here, from the keys of one of its servers.
    ///
    /// # Errors
    /// [`KeyError`]: they are not there, or other keys are here.
    pub fn bring(&self, from: &Path) -> Result<(), KeyError> {
        make_dir(&self.dir)?;
        for name in [KEY, CERTIFICATES] {
            let there = from.join(name);
            let text = read(&there)?.ok_or_else(|| at(&there, "is not there"))?;
            match read(&self.dir.join(name))? {
                Some(here) if here != text => {
                    return Err(at(&self.dir.join(name), "another cell's is here already"));
                }
                _ => write(&self.dir.join(name), &text)?,
            }
        }
        Ok(())
    }

    /// Takes the authority's certificates. Those that are here must be of the same cell: the new
    /// ones are them, or successors.
    ///
    /// # Errors
    /// [`KeyError`]: another cell's are here.
    pub fn bring_certificates(&self, authorities: &str) -> Result<(), KeyError> {
        make_dir(&self.dir)?;
        let file = self.file();
        if let Some(here) = read(&file)?.filter(|here| here != authorities) {
            let here = first_certificate(&here).ok_or_else(|| at(&file, "cannot be read"))?;
            let known = certificates(authorities).any(|one| one == here);
            if !known {
                return Err(at(&file, "another cell's is here already"));
            }
        }
        write(&file, authorities)
    }

    /// The authorities that clients and servers of the cell trust, the present one first.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, KeyError> {
        authorities_in(&self.file())
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
        Ok(self.certificates()?.iter().map(|one| Fingerprint::of(one)).collect())
    }

    /// Checks that the authority is one of this cell.
    pub(crate) fn need_cell(&self, cell: &str) -> Result<(), KeyError> {
        let is_it = is_of_cell(&self.certificates()?[0], cell);
        if is_it { Ok(()) } else { Err(at(&self.file(), format!("is not of the cell {cell}"))) }
    }

    /// Makes a successor of the authority, which the old one signs: a client that trusts the old
    /// one trusts the new one. The old one's key is removed afterwards, its certificate is shown
    /// behind the new one's until [`Self::retire`].
    ///
    /// # Errors
    /// [`KeyError`]: there is none, or its key is not here.
    pub fn succeed(&self, cell: &str, now: SystemTime) -> Result<(), KeyError> {
        self.finish_succession()?;
        let odd = |error: rcgen::Error| at(&self.dir, error);
        let params = authority_params(cell, now).map_err(odd)?;
        let key = KeyPair::generate().map_err(odd)?;
        let certificate = self.sign(&params, &key)?;
        let old = read(&self.file())?.unwrap_or_default();
        // Both in one file first, so that they never are of two authorities.
        write(&self.next(), &format!("{}{}{old}", key.serialize_pem(), certificate.pem()))?;
        self.finish_succession()
    }

    /// A complete successor replaces the authority.
    pub(crate) fn finish_succession(&self) -> Result<(), KeyError> {
        let Some(next) = read(&self.next())? else { return Ok(()) };
        let split =
            next.find(CERTIFICATE).ok_or_else(|| at(&self.next(), "holds no certificate"))?;
        let placed = write(&self.key(), &next[..split])
            .and_then(|()| write(&self.file(), &next[split..]))
            .and_then(|()| {
                std::fs::remove_file(self.next()).map_err(|error| at(&self.next(), error))
            });
        // A running server and the command that made the successor may both do this at once.
        if self.next().exists() { placed } else { Ok(()) }
    }

    /// Removes the authorities before the present one. Returns how many there were.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn retire(&self) -> Result<usize, KeyError> {
        let file = self.file();
        let text = read(&file)?.ok_or_else(|| at(&file, "is not there"))?;
        let before = self.certificates()?.len() - 1;
        if before > 0 {
            let second = text.match_indices(CERTIFICATE).nth(1).map_or(text.len(), |(at, _)| at);
            write(&file, &text[..second])?;
        }
        Ok(before)
    }

    /// Can this server make certificates of the cell's authority?
    pub fn can_sign(&self) -> bool {
        self.key().exists()
    }

    fn issuer(&self) -> Result<Issuer<'static, KeyPair>, KeyError> {
        let file = self.key();
        let key = read(&file)?.ok_or_else(|| at(&file, "is not there"))?;
        let key = KeyPair::from_pem(&key).map_err(|_| at(&file, "is no key"))?;
        Issuer::from_ca_cert_der(&self.certificates()?[0], key)
            .map_err(|error| at(&self.dir, error))
    }

    /// Signs a certificate for a key.
    pub(crate) fn sign(
        &self,
        params: &CertificateParams,
        key: &impl PublicKeyData,
    ) -> Result<Certificate, KeyError> {
        params.signed_by(key, &self.issuer()?).map_err(|error| at(&self.dir, error))
    }

    /// Signs a certificate for the key of a signing request, which must prove that its sender has
    /// the key, and says nothing else that counts.
    ///
    /// # Errors
    /// [`KeyError`]: the key of the authority is not here, or it is no request.
    pub fn certify(
        &self,
        request: &str,
        cell: &str,
        server: &CertifiedServer,
        life: Duration,
        now: SystemTime,
    ) -> Result<String, KeyError> {
        self.finish_succession()?;
        let odd = |error: rcgen::Error| at(&self.dir, error);
        let params = joined_params(cell, server, life, now).map_err(odd)?;
        let asked = CertificateSigningRequestParams::from_pem(request).map_err(odd)?;
        Ok(self.sign(&params, &asked.public_key)?.pem())
    }

    /// Moves the key of the authority, with its certificates, to another directory.
    ///
    /// # Errors
    /// [`KeyError`]: it is not here, something else is there, or it cannot be written and read.
    /// Then it is still here.
    pub fn move_to(&self, to: &Path) -> Result<(), KeyError> {
        self.finish_succession()?;
        make_dir(to)?;
        for name in [KEY, CERTIFICATES] {
            let here = self.dir.join(name);
            let text = read(&here)?.ok_or_else(|| at(&here, "is not there"))?;
            let there = to.join(name);
            match read(&there)? {
                Some(other) if other != text => {
                    return Err(at(&there, "another one is there already"));
                }
                _ => write(&there, &text)?,
            }
            if read(&there)?.as_deref() != Some(&text) {
                return Err(at(&there, "it does not have what was written"));
            }
        }
        self.remove_key()
    }

    /// Removes this server's copy of the key of the authority.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn remove_key(&self) -> Result<(), KeyError> {
        remove(&self.next())?;
        remove(&self.key())?;
        std::fs::File::open(&self.dir)
            .and_then(|dir| dir.sync_all())
            .map_err(|error| at(&self.dir, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CellKeys;
    use crate::certificates::succeeds;

    fn names() -> Vec<String> {
        vec!["host.example".to_owned(), "192.0.2.1".to_owned()]
    }

    #[test]
    fn an_authority_has_a_successor_whatever_crash_comes_between() {
        let dir = tempfile::tempdir().unwrap();
        let keys = CellKeys::of(dir.path());
        let now = SystemTime::now();
        assert!(keys.authority().succeed("cell.test", now).is_err(), "of what");
        keys.authority().make("cell.test", now).unwrap();
        let (first, _) = keys.identity(&names(), now).unwrap();
        keys.authority().succeed("cell.test", now).unwrap();
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
            (read(&keys.authority().key()).unwrap(), read(&keys.authority().file()).unwrap());
        keys.authority().succeed("cell.test", now).unwrap();
        let both = read(&keys.authority().key()).unwrap().unwrap()
            + &read(&keys.authority().file()).unwrap().unwrap();
        for crashed in 0..3 {
            write(&keys.authority().next(), &both).unwrap();
            if crashed < 2 {
                write(&keys.authority().file(), certificates.as_deref().unwrap()).unwrap();
            }
            if crashed < 1 {
                write(&keys.authority().key(), key.as_deref().unwrap()).unwrap();
            }
            let (third, _) = keys.identity(&names(), now).unwrap();
            assert_eq!((third.chain.len(), &third.chain[2]), (4, &second.chain[1]), "{crashed}");
            assert!(!keys.authority().next().exists() && !keys.identity(&names(), now).unwrap().1);
        }
        assert_eq!(
            (
                keys.authority().retire().unwrap(),
                keys.authority().retire().unwrap(),
                keys.authority().certificates().unwrap().len()
            ),
            (2, 0, 1)
        );
        assert!(!keys.identity(&names(), now).unwrap().1, "it is still valid");
    }

    #[test]
    fn a_joining_server_has_the_cells_authority_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) =
            (CellKeys::of(dir.path().join("a")), CellKeys::of(dir.path().join("b")));
        let now = SystemTime::now();
        first.authority().make("cell.test", now).unwrap();
        second.authority().bring(&dir.path().join("a")).unwrap();
        second.authority().bring(&dir.path().join("a")).unwrap();
        assert_eq!(
            first.authority().fingerprint().unwrap(),
            second.authority().fingerprint().unwrap()
        );
        assert!(second.identity(&names(), now).unwrap().1);
        let third = CellKeys::of(dir.path().join("c"));
        third.authority().make("other.test", now).unwrap();
        assert!(third.authority().bring(&dir.path().join("a")).is_err());
        let error = CellKeys::of(dir.path().join("d"))
            .authority()
            .bring(&dir.path().join("nothing"))
            .unwrap_err();
        assert!(error.to_string().contains("ca.key: is not there"), "{error}");
    }
}
