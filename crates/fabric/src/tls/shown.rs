//! The kind of a client's certificate, as a server sees it.
//!
//! The handshake proves that the client has the certificate's key, whatever authority signed the
//! certificate; the list of servers' keys in the cell database decides about its rights later. This
//! module only reports the key, whether an authority that the server knows signed the certificate,
//! and whether it is one for a server of the cell.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::verify_server_name;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use types::{KeyPrint, ServerRoles};
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

use super::{CELL_SERVER, TlsError};

/// The certificate of a client, which proved in the handshake that it has the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificate {
    /// No certificate, or one that is not valid now.
    Nothing,
    /// Not signed by an authority that this server knows, or not for a client. It gives rights only
    /// if the cell database lists the key.
    Unknown(KeyPrint),
    /// Signed by an authority that this server knows, and not of the next kind.
    Host(KeyPrint),
    /// Signed by the cell's own authority, for a client, with the name of a cell's servers.
    CellServer(KeyPrint),
}

impl ClientCertificate {
    /// The key of the shown certificate.
    pub fn key(self) -> Option<KeyPrint> {
        match self {
            ClientCertificate::Nothing => None,
            ClientCertificate::Unknown(key)
            | ClientCertificate::Host(key)
            | ClientCertificate::CellServer(key) => Some(key),
        }
    }
}

/// The key of a certificate; `None`: it cannot be read.
pub fn key_print(certificate: &CertificateDer<'_>) -> Option<KeyPrint> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    Some(print_of(&parsed.subject_public_key_info()))
}

/// The roles that a server's certificate says. One of a server that joined without an invitation
/// says none, and that server has all; roles that cannot be read are none.
pub(super) fn roles_of(certificate: &CertificateDer<'_>) -> ServerRoles {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else {
        return ServerRoles::NONE;
    };
    let Some(roles) = parsed.subject().iter_organizational_unit().next() else {
        return ServerRoles::ALL;
    };
    roles.as_str().ok().and_then(|roles| roles.parse().ok()).unwrap_or(ServerRoles::NONE)
}

/// Identifies a public key, which is a `SubjectPublicKeyInfo` in DER.
pub fn print_of(public_key: &[u8]) -> KeyPrint {
    KeyPrint(digest(&SHA256, public_key).as_ref().try_into().expect("SHA-256 has 32 bytes"))
}

/// See the head of the file.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    /// The cell's own authorities; `None`: there are none.
    cell: Option<Arc<dyn ClientCertVerifier>>,
    /// All authorities that the server knows.
    known: Option<Arc<dyn ClientCertVerifier>>,
    algorithms: WebPkiSupportedAlgorithms,
}

fn verifier_of(
    provider: &Arc<CryptoProvider>,
    authorities: &[CertificateDer<'static>],
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let mut roots = RootCertStore::empty();
    authorities.iter().try_for_each(|one| roots.add(one.clone()))?;
    if roots.is_empty() {
        return Ok(None);
    }
    let builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    Ok(Some(builder.build().map_err(|error| TlsError(error.to_string()))?))
}

fn is_valid_now(leaf: &CertificateDer<'_>) -> bool {
    parse_x509_certificate(leaf).is_ok_and(|(_, leaf)| leaf.validity().is_valid_at(ASN1Time::now()))
}

impl ClientVerifier {
    /// Verifier of a cell with these authorities; certificates of `hosts` are host certificates.
    ///
    /// # Errors
    /// [`TlsError`]: an authority's certificate is invalid.
    pub fn new(
        provider: &Arc<CryptoProvider>,
        authorities: &[CertificateDer<'static>],
        hosts: &[CertificateDer<'static>],
    ) -> Result<ClientVerifier, TlsError> {
        Ok(ClientVerifier {
            cell: verifier_of(provider, authorities)?,
            known: verifier_of(provider, &[authorities, hosts].concat())?,
            algorithms: provider.signature_verification_algorithms,
        })
    }

    /// The kind of the certificate that a client showed, followed by those of its authorities.
    pub fn classify(&self, chain: Option<&[CertificateDer<'_>]>) -> ClientCertificate {
        let Some((leaf, others)) = chain.and_then(|chain| chain.split_first()) else {
            return ClientCertificate::Nothing;
        };
        let Some(key) = key_print(leaf) else { return ClientCertificate::Nothing };
        let is_by = |authorities: &Option<Arc<dyn ClientCertVerifier>>| {
            let verified = |known: &Arc<dyn ClientCertVerifier>| {
                known.verify_client_cert(leaf, others, UnixTime::now())
            };
            authorities.as_ref().is_some_and(|known| verified(known).is_ok())
        };
        let cells = ServerName::try_from(CELL_SERVER).expect("a constant that is a name");
        let is_named = || {
            ParsedCertificate::try_from(leaf)
                .is_ok_and(|leaf| verify_server_name(&leaf, &cells).is_ok())
        };
        if is_by(&self.cell) && is_named() {
            ClientCertificate::CellServer(key)
        } else if is_by(&self.known) {
            ClientCertificate::Host(key)
        } else if is_valid_now(leaf) {
            ClientCertificate::Unknown(key)
        } else {
            ClientCertificate::Nothing
        }
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.known.is_some()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// Empty: a client may show a certificate of an authority that this server does not know.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    /// [`ClientVerifier::classify`] checks the authority after the handshake.
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        ParsedCertificate::try_from(end_entity)?;
        Ok(ClientCertVerified::assertion())
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
