//! A client's rules for accepting a server of the cell.
//!
//! Servers show their certificate and that of the authority that signed it, followed by the
//! authorities that this one succeeds, each of which signed the next newer one: a client that knows
//! any of them accepts the server. A client knows the authority from a file (then the names count
//! too, unless the certificate names a cell's server), by its fingerprint, or not yet: then a
//! [`Judge`], which stores fingerprints, decides.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use types::{KeyPrint, fmt_sha256, parse_sha256};

use super::CELL_SERVER;
use super::shown::key_print;

/// SHA-256 of an authority's certificate.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Fingerprint of this certificate.
    pub fn of(certificate: &[u8]) -> Fingerprint {
        Fingerprint(digest(&SHA256, certificate).as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_sha256(&self.0, f)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_sha256(text).map(Fingerprint)
    }
}

/// Decides whether one of these authorities, each of which vouches for the server's certificate, is
/// the right one; if not, returns the reason, for people. There is at least one; the signer of the
/// certificate comes first.
pub type Judge = dyn Fn(&[CertificateDer<'_>]) -> Result<(), String> + Send + Sync;

/// Most authorities that are checked of those that a server shows.
const SHOWN_MAX: usize = 8;

/// A client's knowledge of the authority.
#[derive(Clone)]
pub enum Trust {
    /// The authority's certificates.
    Authorities(Vec<CertificateDer<'static>>),
    /// The authority's fingerprint.
    Pinned(Fingerprint),
    /// A judge decides.
    Asked(Arc<Judge>),
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trust::Authorities(all) => write!(f, "Authorities({})", all.len()),
            Trust::Pinned(print) => write!(f, "Pinned({print})"),
            Trust::Asked(_) => f.write_str("Asked"),
        }
    }
}

/// Keys by which a client accepts no server, whatever authority certified them: shared by all its
/// connections.
#[derive(Debug, Default)]
pub struct RefusedKeys(RwLock<BTreeSet<KeyPrint>>);

impl RefusedKeys {
    /// Adds keys. Returns whether one is new.
    pub fn add(&self, keys: impl IntoIterator<Item = KeyPrint>) -> bool {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = all.len();
        all.extend(keys);
        all.len() > before
    }

    /// Is it one of them?
    pub fn has(&self, key: &KeyPrint) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(key)
    }

    /// All of them.
    pub fn all(&self) -> Vec<KeyPrint> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

/// The authorities that vouched for the server of the last handshake.
pub(super) type Accepted = Arc<RwLock<Vec<Fingerprint>>>;

#[derive(Debug)]
pub(super) struct Verifier {
    pub trust: Trust,
    pub refused: Arc<RefusedKeys>,
    pub algorithms: WebPkiSupportedAlgorithms,
    pub accepted: Accepted,
}

impl Verifier {
    /// Checks the certificate against the trusted authorities; returns those that vouch for it.
    fn judge(
        &self,
        certificate: &ParsedCertificate<'_>,
        shown: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<Vec<Fingerprint>, Error> {
        let by = |roots: &RootCertStore| self.check(certificate, roots, shown, now);
        if let Trust::Authorities(all) = &self.trust {
            let mut roots = RootCertStore::empty();
            all.iter().try_for_each(|one| roots.add(one.clone()))?;
            by(&roots)?;
            return Ok(all.iter().map(|one| Fingerprint::of(one)).collect());
        }
        // An authority must vouch for the certificate before the judge is asked about it, because
        // the judge stores the answer.
        let (mut good, mut why) =
            (Vec::new(), Error::General("the server does not show its authority".to_owned()));
        for one in shown.iter().take(SHOWN_MAX) {
            let mut root = RootCertStore::empty();
            match root.add(one.clone().into_owned()).and_then(|()| by(&root)) {
                Ok(()) => good.push(one.clone()),
                Err(error) => why = error,
            }
        }
        let Some(own) = good.last() else { return Err(why) };
        let prints = || good.iter().map(|one| Fingerprint::of(one)).collect();
        match &self.trust {
            Trust::Pinned(pinned) if good.iter().all(|one| Fingerprint::of(one) != *pinned) => {
                let print = Fingerprint::of(own);
                Err(Error::General(format!(
                    "the server's authority is {print}, expected was {pinned}: this is another \
                        cell's server, or an attacker between client and server"
                )))
            }
            Trust::Asked(judge) => judge(&good).map_err(Error::General).map(|()| prints()),
            Trust::Authorities(_) | Trust::Pinned(_) => Ok(prints()),
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        // Before a judge stores anything about it.
        if key_print(end_entity).is_some_and(|key| self.refused.has(&key)) {
            let why = "the key of this server was withdrawn: it is no server of the cell";
            return Err(Error::General(why.to_owned()));
        }
        let vouch = self.judge(&certificate, intermediates, now)?;
        let cells = ServerName::try_from(CELL_SERVER).expect("a constant that is a name");
        verify_server_name(&certificate, &cells)
            .or_else(|_| verify_server_name(&certificate, server_name))?;
        *self.accepted.write().unwrap_or_else(PoisonError::into_inner) = vouch;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl Verifier {
    fn check(
        &self,
        certificate: &ParsedCertificate<'_>,
        roots: &RootCertStore,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        verify_server_cert_signed_by_trust_anchor(
            certificate,
            roots,
            intermediates,
            now,
            self.algorithms.all,
        )
    }
}
