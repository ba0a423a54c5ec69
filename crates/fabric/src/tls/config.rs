//! The configuration of both sides of a handshake.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, ServerConfig};

use super::shown::{ClientVerifier, key_print};
use super::trust::{Accepted, Verifier};
use super::{Fingerprint, RefusedKeys, TlsError, Trust};
use types::KeyPrint;

/// A certificate, followed by that of its authority, and its key.
pub struct TlsIdentity {
    /// In the order in which they are shown.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private half.
    pub key: PrivateKeyDer<'static>,
}

impl TlsIdentity {
    /// The print of the certificate's key; `None`: no certificate can be read.
    pub fn key_print(&self) -> Option<KeyPrint> {
        self.chain.first().and_then(|leaf| key_print(leaf))
    }
}

impl Clone for TlsIdentity {
    fn clone(&self) -> Self {
        TlsIdentity { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

// Omits the key.
impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({} certificates)", self.chain.len())
    }
}

/// AES-128-GCM first: as safe as any here, and the fastest.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    let order = [
        aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256,
        aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384,
        aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    provider.cipher_suites = order.to_vec();
    Arc::new(provider)
}

/// A client's side. Clones share one configuration, which can be replaced during use.
#[derive(Clone, Debug)]
pub struct ClientTls {
    config: Arc<RwLock<Arc<ClientConfig>>>,
    judged: Judged,
}

/// The state that all handshakes of a client share.
#[derive(Clone, Debug, Default)]
struct Judged {
    refused: Arc<RefusedKeys>,
    accepted: Accepted,
}

impl ClientTls {
    /// `identity`: the client certificate of a server that connects to another server.
    ///
    /// # Errors
    /// [`TlsError`] if the identity is invalid.
    pub fn new(trust: Trust, identity: Option<TlsIdentity>) -> Result<ClientTls, TlsError> {
        let judged = Judged::default();
        let config = Self::config_of(trust, identity, &judged)?;
        Ok(ClientTls { config: Arc::new(RwLock::new(config)), judged })
    }

    /// The keys by which it accepts no server.
    pub fn refused(&self) -> &Arc<RefusedKeys> {
        &self.judged.refused
    }

    /// The authorities that vouched for the server of the last handshake, the newest first: a
    /// client that accepts one of them accepts the same servers. Empty: there was none yet.
    pub fn accepted(&self) -> Vec<Fingerprint> {
        self.judged.accepted.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the configuration from the next connection on.
    ///
    /// # Errors
    /// [`TlsError`] if the identity is invalid; the configuration is then unchanged.
    pub fn replace(&self, trust: Trust, identity: Option<TlsIdentity>) -> Result<(), TlsError> {
        let config = Self::config_of(trust, identity, &self.judged)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    fn config_of(
        trust: Trust,
        identity: Option<TlsIdentity>,
        judged: &Judged,
    ) -> Result<Arc<ClientConfig>, TlsError> {
        let Judged { refused, accepted } = judged.clone();
        let provider = provider();
        let algorithms = provider.signature_verification_algorithms;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier {
                trust,
                refused,
                algorithms,
                accepted,
            }));
        let mut config = match identity {
            Some(TlsIdentity { chain, key }) => builder.with_client_auth_cert(chain, key)?,
            None => builder.with_no_client_auth(),
        };
        config.resumption = Resumption::disabled();
        config.enable_secret_extraction = true;
        Ok(Arc::new(config))
    }

    /// A client that shows a certificate with another key than its own.
    #[cfg(test)]
    pub(super) fn thief(trust: Trust, identity: TlsIdentity) -> ClientTls {
        let provider = provider();
        let key = provider.key_provider.load_private_key(identity.key).expect("a key");
        let certified = rustls::sign::CertifiedKey::new(identity.chain, key);
        let judged = Judged::default();
        let config = Self::config_of(trust, None, &judged).expect("no identity");
        let mut config = (*config).clone();
        config.client_auth_cert_resolver =
            Arc::new(rustls::sign::SingleCertAndKey::from(certified));
        ClientTls { config: Arc::new(RwLock::new(Arc::new(config))), judged }
    }

    pub(super) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A server's side, which can be replaced during use.
#[derive(Debug)]
pub struct ServerTls(RwLock<Current>);

/// The configuration of one handshake.
#[derive(Clone, Debug)]
pub(super) struct Current {
    pub config: Arc<ServerConfig>,
    /// Of the server's own certificate.
    pub leaf: Fingerprint,
    /// Classifies a client's certificate.
    pub verifier: Arc<ClientVerifier>,
}

impl ServerTls {
    /// A server with `identity`, of the cell with these authorities.
    ///
    /// # Errors
    /// [`TlsError`] if the identity is invalid.
    pub fn new(
        identity: TlsIdentity,
        authorities: &[CertificateDer<'static>],
    ) -> Result<ServerTls, TlsError> {
        ServerTls::with_hosts(identity, authorities, &[])
    }

    /// As [`ServerTls::new`]; certificates of the authorities `hosts` are host certificates.
    ///
    /// # Errors
    /// [`TlsError`] if the identity is invalid.
    pub fn with_hosts(
        identity: TlsIdentity,
        authorities: &[CertificateDer<'static>],
        hosts: &[CertificateDer<'static>],
    ) -> Result<ServerTls, TlsError> {
        Ok(ServerTls(RwLock::new(config_of(identity, authorities, hosts)?)))
    }

    /// Replaces the configuration from the next connection on.
    ///
    /// # Errors
    /// [`TlsError`] if the identity is invalid; the configuration is then unchanged.
    pub fn replace(
        &self,
        identity: TlsIdentity,
        authorities: &[CertificateDer<'static>],
    ) -> Result<(), TlsError> {
        self.replace_with_hosts(identity, authorities, &[])
    }

    /// As [`ServerTls::replace`], with the arguments of [`ServerTls::with_hosts`].
    ///
    /// # Errors
    /// [`TlsError`] if the identity is invalid; the configuration is then unchanged.
    pub fn replace_with_hosts(
        &self,
        identity: TlsIdentity,
        authorities: &[CertificateDer<'static>],
        hosts: &[CertificateDer<'static>],
    ) -> Result<(), TlsError> {
        let config = config_of(identity, authorities, hosts)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    pub(super) fn config(&self) -> Current {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn config_of(
    identity: TlsIdentity,
    authorities: &[CertificateDer<'static>],
    hosts: &[CertificateDer<'static>],
) -> Result<Current, TlsError> {
    let leaf = identity
        .chain
        .first()
        .ok_or_else(|| TlsError("the identity has no certificate".to_owned()))?;
    let leaf = Fingerprint::of(leaf);
    let provider = provider();
    let verifier = Arc::new(ClientVerifier::new(&provider, authorities, hosts)?);
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?;
    let config =
        config.with_client_cert_verifier(Arc::clone(&verifier) as Arc<dyn ClientCertVerifier>);
    let mut config = config.with_single_cert(identity.chain, identity.key)?;
    config.send_tls13_tickets = 0;
    config.enable_secret_extraction = true;
    Ok(Current { config: Arc::new(config), leaf, verifier })
}
