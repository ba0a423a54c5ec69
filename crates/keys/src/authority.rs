//! The cell's certificate authority, and this server's certificate.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use aws_lc_rs::rand::fill;
use fabric::tls::pki_types::CertificateDer;
use fabric::tls::pki_types::pem::PemObject;
use fabric::tls::{CELL_SERVER, Fingerprint, TlsIdentity, print_of};
use guard::CertifiedServer;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SerialNumber,
};
use types::KeyPrint;

use crate::files::{at, make_dir, read, write};
use crate::{KeyError, authorities_in, identity_in};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// An authority lasts as long as a cell.
const AUTHORITY_LIFE: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
/// The lifetime of a server's certificate.
const SERVER_LIFE: Duration = Duration::from_secs(90 * 24 * 3600);
/// A server's certificate is replaced when it ends sooner than that, or when half of its life is
/// over.
pub const RENEW_BEFORE: Duration = Duration::from_secs(30 * 24 * 3600);
/// The lifetime of a certificate that is signed for another server. Clients that reach no other
/// server of the cell accept it until then, whatever happened to it meanwhile.
pub const JOINED_LIFE: Duration = Duration::from_secs(14 * 24 * 3600);

/// A successor that is about to replace the authority: its key and certificates.
const NEXT: &str = "ca.next";
/// The key that this server will show next, when the cell database lists it.
const NEXT_KEY: &str = "server.next";
/// The certificate for it, of a server that cannot sign.
const NEXT_CERTIFICATE: &str = "server.next.pem";
/// The key of the authority.
const AUTHORITY_KEY: &str = "ca.key";
/// This server's key, its certificate, and the names that it was made for.
const KEY: &str = "server.key";
const CERTIFICATE_FILE: &str = "server.pem";
const NAMES: &str = "server.names";
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

    pub(crate) fn file(&self, name: &str) -> PathBuf {
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
        write(&self.file(AUTHORITY_KEY), &key.serialize_pem())?;
        write(&self.authority_file(), &certificate.pem())
    }

    /// Copies the authority of an existing cell to here, from the keys of one of its servers.
    ///
    /// # Errors
    /// [`KeyError`]: they are not there, or other keys are here.
    pub fn bring_authority(&self, from: &Path) -> Result<(), KeyError> {
        make_dir(&self.dir)?;
        for name in [AUTHORITY_KEY, "ca.pem"] {
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
        let placed = write(&self.file(AUTHORITY_KEY), &next[..split])
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
        let file = self.file(AUTHORITY_KEY);
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
        self.finish_next_key()?;
        let made = if self.is_good(names, now)? {
            false
        } else if self.can_issue() {
            self.make_server(names, now)?;
            true
        } else {
            // Another server signs: this one shows what it has, and asks (`Self::accept`).
            let own = self.own_certificate();
            let none =
                || at(&self.file(CERTIFICATE_FILE), "is not there, and ca.key is not either");
            if own.ok_or_else(none)?.ends <= now {
                return Err(at(&self.file(CERTIFICATE_FILE), "has ended, and ca.key is not here"));
            }
            false
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
        remove(&self.file(NAMES))?;
        write(&self.file(KEY), &key)?;
        if let Some(certificate) = read(&self.file(NEXT_CERTIFICATE))? {
            write(&self.file(CERTIFICATE_FILE), &certificate)?;
            remove(&self.file(NEXT_CERTIFICATE))?;
        }
        remove(&next)
    }

    /// Goes on with [`Self::take_next_key`] after a crash.
    fn finish_next_key(&self) -> Result<(), KeyError> {
        let next = read(&self.file(NEXT_KEY))?;
        if next.is_some() && next == read(&self.file(KEY))? { self.take_next_key() } else { Ok(()) }
    }

    /// Keeps the certificate for the next key, of a server that cannot sign.
    ///
    /// # Errors
    /// [`KeyError`]: it is another key's or another authority's.
    pub fn accept_next(&self, authorities: &str, certificate: &str) -> Result<(), KeyError> {
        let next =
            self.key_in(NEXT_KEY)?.ok_or_else(|| at(&self.file(NEXT_KEY), "is not there"))?;
        self.check_signed(authorities, certificate, &next)?;
        self.bring_certificates(authorities)?;
        write(&self.file(NEXT_CERTIFICATE), certificate)
    }

    /// Can this server make certificates of the cell's authority?
    pub fn can_issue(&self) -> bool {
        self.file(AUTHORITY_KEY).exists()
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
        let mut identity = identity_in(&self.file(CERTIFICATE_FILE), &self.file(KEY))?;
        identity.chain.truncate(1);
        identity.chain.extend(self.authorities()?);
        Ok(identity)
    }

    fn is_good(&self, names: &[String], now: SystemTime) -> Result<bool, KeyError> {
        let (file, key) = (self.file(CERTIFICATE_FILE), self.file(KEY));
        if !file.exists() || !key.exists() {
            return Ok(false);
        }
        let certificate = &authorities_in(&file)?[0];
        let (_, parsed) =
            x509_parser::parse_x509_certificate(certificate).map_err(|error| at(&file, error))?;
        let seconds = |time: x509_parser::time::ASN1Time| {
            Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or(0))
        };
        let (begin, end) =
            (seconds(parsed.validity().not_before), seconds(parsed.validity().not_after));
        let renew_before = (end.saturating_sub(begin) / 2).min(RENEW_BEFORE);
        let lasts = SystemTime::UNIX_EPOCH + end > now + renew_before;
        let wrote = read(&self.file(NAMES))?.unwrap_or_default();
        let authority = &self.authorities()?[0];
        let (_, authority) =
            x509_parser::parse_x509_certificate(authority).map_err(|error| at(&file, error))?;
        let ours = parsed.verify_signature(Some(authority.public_key())).is_ok();
        Ok(lasts && ours && wrote == names.join("\n"))
    }

    /// Makes this server's own key, if there is none yet, and a signing request for it (PEM), which
    /// proves that its sender has the key.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn signing_request(&self) -> Result<(KeyPrint, String), KeyError> {
        make_dir(&self.dir)?;
        let odd = |error: rcgen::Error| at(&self.dir, error);
        if self.key_in(KEY)?.is_none() {
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
        let key = self.key_in(name)?.ok_or_else(|| at(&self.file(name), "is not there"))?;
        let mut params = CertificateParams::new(Vec::new()).map_err(odd)?;
        // The authority decides what the certificate says.
        params.distinguished_name.push(DnType::CommonName, "Rialto server");
        let request = params.serialize_request(&key).map_err(odd)?.pem().map_err(odd)?;
        Ok((print_of(&key.subject_public_key_info()), request))
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
        let file = self.file(CERTIFICATE_FILE);
        let own = self.key_in(KEY)?.ok_or_else(|| at(&self.file(KEY), "is not there"))?;
        self.check_signed(authorities, certificate, &own)?;
        self.bring_certificates(authorities)?;
        remove(&self.file(NAMES))?;
        write(&file, certificate)?;
        write(&self.file(NAMES), &names.join("\n"))
    }

    fn check_signed(
        &self,
        authorities: &str,
        certificate: &str,
        own: &KeyPair,
    ) -> Result<(), KeyError> {
        let file = self.file(CERTIFICATE_FILE);
        let (shown, by) = (first_certificate(certificate), first_certificate(authorities));
        let shown = shown.ok_or_else(|| at(&file, "what was signed is no certificate"))?;
        let by = by.ok_or_else(|| at(&self.authority_file(), "there is no authority"))?;
        let parsed = x509_parser::parse_x509_certificate(&shown)
            .ok()
            .zip(x509_parser::parse_x509_certificate(&by).ok());
        let ((_, parsed), (_, authority)) = parsed.ok_or_else(|| at(&file, "cannot be read"))?;
        if print_of(parsed.public_key().raw) != print_of(&own.subject_public_key_info()) {
            return Err(at(&file, "what was signed is for another key than this server's"));
        }
        match parsed.verify_signature(Some(authority.public_key())) {
            Ok(()) => Ok(()),
            Err(_) => Err(at(&file, "it is not signed by the cell's authority")),
        }
    }

    /// Checks that the authority is one of this cell.
    pub(crate) fn need_cell(&self, cell: &str) -> Result<(), KeyError> {
        let file = self.authority_file();
        let authority = &self.authorities()?[0];
        let parsed = x509_parser::parse_x509_certificate(authority);
        let (_, parsed) = parsed.map_err(|error| at(&file, error))?;
        let wanted = authority_name(cell);
        let is_it = parsed.subject().iter_common_name().any(|name| name.as_str() == Ok(&wanted));
        if is_it { Ok(()) } else { Err(at(&file, format!("is not of the cell {cell}"))) }
    }

    /// Takes the authority's certificates. Those that are here must be of the same cell: the new
    /// ones are them, or successors.
    ///
    /// # Errors
    /// [`KeyError`]: another cell's are here.
    pub fn bring_certificates(&self, authorities: &str) -> Result<(), KeyError> {
        make_dir(&self.dir)?;
        let file = self.authority_file();
        if let Some(here) = read(&file)?.filter(|here| here != authorities) {
            let here = first_certificate(&here).ok_or_else(|| at(&file, "cannot be read"))?;
            let known = certificates(authorities).any(|one| one == here);
            if !known {
                return Err(at(&file, "another cell's is here already"));
            }
        }
        write(&file, authorities)
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
        self.take_next()?;
        let odd = |error: rcgen::Error| at(&self.dir, error);
        let params = server_params(cell, server, life, now).map_err(odd)?;
        let asked = CertificateSigningRequestParams::from_pem(request).map_err(odd)?;
        let certificate = params.signed_by(&asked.public_key, &self.issuer()?).map_err(odd)?;
        Ok(certificate.pem())
    }

    /// Moves the key of the authority, with its certificates, to another directory.
    ///
    /// # Errors
    /// [`KeyError`]: it is not here, something else is there, or it cannot be written and read.
    /// Then it is still here.
    pub fn move_authority(&self, to: &Path) -> Result<(), KeyError> {
        self.take_next()?;
        make_dir(to)?;
        for name in [AUTHORITY_KEY, "ca.pem"] {
            let here = self.file(name);
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
        self.remove_authority_key()
    }

    /// Removes this server's copy of the key of the authority.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn remove_authority_key(&self) -> Result<(), KeyError> {
        remove(&self.file(NEXT))?;
        remove(&self.file(AUTHORITY_KEY))?;
        std::fs::File::open(&self.dir)
            .and_then(|dir| dir.sync_all())
            .map_err(|error| at(&self.dir, error))
    }

    /// The roles that this server's certificate says; `None`: it says none.
    pub fn certified_roles(&self) -> Option<String> {
        let certificate = authorities_in(&self.file(CERTIFICATE_FILE)).ok()?.into_iter().next()?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).ok()?;
        let roles = parsed.subject().iter_organizational_unit().next()?;
        roles.as_str().ok().map(str::to_owned)
    }

    /// The end of this server's own certificate, and whether another authority than the present one
    /// signed it; `None`: it has none, or one that cannot be read.
    pub fn own_certificate(&self) -> Option<OwnCertificate> {
        let certificate = authorities_in(&self.file(CERTIFICATE_FILE)).ok()?.into_iter().next()?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).ok()?;
        let end = u64::try_from(parsed.validity().not_after.timestamp()).ok()?;
        let authority = self.authorities().ok()?.into_iter().next()?;
        let (_, authority) = x509_parser::parse_x509_certificate(&authority).ok()?;
        Some(OwnCertificate {
            ends: SystemTime::UNIX_EPOCH + Duration::from_secs(end),
            by_present: parsed.verify_signature(Some(authority.public_key())).is_ok(),
        })
    }

    /// Does this server need a new certificate, which it cannot make itself?
    pub fn needs_certificate(&self, names: &[String], now: SystemTime) -> bool {
        !self.can_issue() && !self.is_good(names, now).unwrap_or(false)
    }

    fn make_server(&self, names: &[String], now: SystemTime) -> Result<(), KeyError> {
        let odd = |error: rcgen::Error| at(&self.dir, error);
        let authority = self.issuer()?;
        let params = params_for(names, now).map_err(odd)?;
        // A crash may have left half a key.
        let present = self.key_in(KEY).unwrap_or_default();
        let key = present.map_or_else(KeyPair::generate, Ok).map_err(odd)?;
        let certificate = params.signed_by(&key, &authority).map_err(odd)?;
        // Names last: without them a key and a certificate that do not match are replaced.
        remove(&self.file(NAMES))?;
        write(&self.file(KEY), &key.serialize_pem())?;
        write(&self.file(CERTIFICATE_FILE), &certificate.pem())?;
        write(&self.file(NAMES), &names.join("\n"))
    }
}

/// The end of a server's certificate, and its authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnCertificate {
    /// When it ends.
    pub ends: SystemTime,
    /// The present authority signed it.
    pub by_present: bool,
}

/// A server's certificate with these names.
fn params_for(names: &[String], now: SystemTime) -> Result<CertificateParams, rcgen::Error> {
    let all = std::iter::once(CELL_SERVER.to_owned()).chain(names.iter().cloned());
    let mut params = CertificateParams::new(all.collect::<Vec<_>>())?;
    params.distinguished_name.push(DnType::CommonName, "Rialto server");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    (params.not_before, params.not_after) = span(now, SERVER_LIFE);
    params.serial_number = Some(serial());
    Ok(params)
}

/// As [`params_for`], of a server that does not sign itself: the certificate names the cell, the
/// server and its roles, for people. The list of keys in the cell database decides.
fn server_params(
    cell: &str,
    server: &CertifiedServer,
    life: Duration,
    now: SystemTime,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = params_for(&server.hosts, now)?;
    (params.not_before, params.not_after) = span(now, life);
    params.distinguished_name.push(DnType::OrganizationName, authority_name(cell));
    params.distinguished_name.push(DnType::OrganizationalUnitName, server.roles.to_string());
    params.distinguished_name.push(DnType::CommonName, server.name.clone());
    Ok(params)
}

/// The certificates of a text.
fn certificates(text: &str) -> impl Iterator<Item = CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(text.as_bytes()).filter_map(Result::ok)
}

fn first_certificate(text: &str) -> Option<CertificateDer<'static>> {
    certificates(text).next()
}

/// The common name of a cell's authority.
fn authority_name(cell: &str) -> String {
    format!("Rialto cell {cell}")
}

fn authority_of(cell: &str, now: SystemTime) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, authority_name(cell));
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

pub(crate) fn remove(file: &Path) -> Result<(), KeyError> {
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

    use fabric::tls::{ClientTls, Trust};

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
            (read(&keys.file(AUTHORITY_KEY)).unwrap(), read(&keys.authority_file()).unwrap());
        keys.succeed("cell.test", now).unwrap();
        let both = read(&keys.file(AUTHORITY_KEY)).unwrap().unwrap()
            + &read(&keys.authority_file()).unwrap().unwrap();
        for crashed in 0..3 {
            write(&keys.file(NEXT), &both).unwrap();
            if crashed < 2 {
                write(&keys.authority_file(), certificates.as_deref().unwrap()).unwrap();
            }
            if crashed < 1 {
                write(&keys.file(AUTHORITY_KEY), key.as_deref().unwrap()).unwrap();
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
        std::fs::remove_file(dir.path().join(NAMES)).unwrap();
        std::fs::write(dir.path().join("server.key.new"), "half").unwrap();
        assert!(keys.identity(&names(), now).unwrap().1);
        // The authority's key without its certificate is discarded.
        let other = CellKeys::of(dir.path().join("other"));
        make_dir(&other.dir).unwrap();
        std::fs::write(other.file(AUTHORITY_KEY), "half").unwrap();
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
        first.make_authority("cell.test", now).unwrap();
        let (key, request) = second.signing_request().unwrap();
        assert_eq!(second.signing_request().unwrap().0, key, "the same key again");
        let named = |name: &str| CertifiedServer {
            name: name.to_owned(),
            roles: types::ServerRoles::FILE,
            hosts: names(),
        };
        let sign = |request: &str| {
            first.certify(request, "cell.test", &named("two"), JOINED_LIFE, now).unwrap()
        };
        let authorities = read(&first.authority_file()).unwrap().unwrap();
        let signed = sign(&request);
        assert!(second.identity(&names(), now).is_err(), "nothing is signed yet");
        second.accept(&authorities, &signed, &names()).unwrap();
        assert!(!second.file(AUTHORITY_KEY).exists() && !second.needs_certificate(&names(), now));
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
        third.make_authority("cell.test", now).unwrap();
        let forged = third.certify(&request, "cell.test", &named("two"), JOINED_LIFE, now).unwrap();
        assert!(second.accept(&authorities, &forged, &names()).is_err());
        let theirs = read(&third.authority_file()).unwrap().unwrap();
        assert!(second.accept(&theirs, &forged, &names()).is_err(), "another cell's");
        // A successor is of the same cell.
        first.succeed("cell.test", now).unwrap();
        let authorities = read(&first.authority_file()).unwrap().unwrap();
        second.accept(&authorities, &sign(&request), &names()).unwrap();
        assert_eq!(second.fingerprints().unwrap(), first.fingerprints().unwrap());
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
                ClientTls::new(Trust::Pinned(first.fingerprint().unwrap()), Some(shown)).is_ok()
            );
        }
    }

    #[test]
    fn sj3_only_the_holder_of_a_key_gets_a_certificate_for_it() {
        use guard::{Certifier as _, JoinRequest};
        let dir = tempfile::tempdir().unwrap();
        let (first, second) =
            (CellKeys::of(dir.path().join("keys")), CellKeys::of(dir.path().join("b")));
        first.make_authority("cell.test", SystemTime::now()).unwrap();
        let certifier =
            crate::CellCertifier::of(dir.path().to_owned(), "cell.test", Some("x:1".into()));
        let (key, signing_request) = second.signing_request().unwrap();
        let request = JoinRequest {
            cell: "cell.test".into(),
            authority: first.fingerprint().unwrap().0,
            invitation: [0; 32],
            key,
            name: "two".into(),
            hosts: names(),
            signing_request,
        };
        assert_eq!(certifier.check(&request), Ok(()));
        for bad in [
            JoinRequest { cell: "other.test".into(), ..request.clone() },
            JoinRequest { authority: [1; 32], ..request.clone() },
            JoinRequest { key: KeyPrint([1; 32]), ..request.clone() },
            JoinRequest { hosts: vec!["server.rialto.internal".into()], ..request.clone() },
            JoinRequest { hosts: vec!["*.example.org".into()], ..request.clone() },
            JoinRequest { hosts: vec!["a".into(); 21], ..request.clone() },
            JoinRequest { signing_request: "noise".into(), ..request.clone() },
        ] {
            assert!(certifier.check(&bad).is_err(), "{bad:?}");
        }
        // A request with another public key than the one that signed it is none.
        let other = CellKeys::of(dir.path().join("c")).signing_request().unwrap().1;
        let mut mixed: Vec<&str> = request.signing_request.lines().collect();
        // The public key is in the third line of the content.
        mixed[3] = other.lines().nth(3).unwrap();
        let mixed = mixed.join("\n");
        assert_ne!(mixed, request.signing_request.trim_end());
        let mixed = JoinRequest { signing_request: mixed, ..request.clone() };
        assert!(certifier.check(&mixed).is_err());
        let (facts, secrets) = certifier.introduce("two", types::ServerRoles::FILE).unwrap();
        assert_eq!((facts.roles.as_str(), facts.database.as_deref()), ("file", Some("x:1")));
        assert!(secrets.is_empty() && !facts.authorities.contains("PRIVATE"));
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
