//! What the two sides of a handshake bring.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::trust::Verifier;
use super::{Fingerprint, TlsError, Trust};

/// A certificate, that of its authority behind it, and its key.
pub struct Identity {
    /// As they are shown.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private half.
    pub key: PrivateKeyDer<'static>,
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Identity { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

// It has a key.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({} certificates)", self.chain.len())
    }
}

/// AES-128-GCM first: as good as any here, and the fastest.
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

/// A client's side; copies are one and the same, and can be replaced while they are used.
#[derive(Clone, Debug)]
pub struct ClientTls(Arc<RwLock<Arc<ClientConfig>>>);

impl ClientTls {
    /// `identity`: of servers among themselves.
    ///
    /// # Errors
    /// [`TlsError`] if the identity is none.
    pub fn new(trust: Trust, identity: Option<Identity>) -> Result<ClientTls, TlsError> {
        Ok(ClientTls(Arc::new(RwLock::new(Self::config_of(trust, identity)?))))
    }

    /// From the next connection on, it is this.
    ///
    /// # Errors
    /// [`TlsError`] if the identity is none; it stays as it was.
    pub fn replace(&self, trust: Trust, identity: Option<Identity>) -> Result<(), TlsError> {
        let config = Self::config_of(trust, identity)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    fn config_of(trust: Trust, identity: Option<Identity>) -> Result<Arc<ClientConfig>, TlsError> {
        let provider = provider();
        let algorithms = provider.signature_verification_algorithms;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier { trust, algorithms }));
        let mut config = match identity {
            Some(Identity { chain, key }) => builder.with_client_auth_cert(chain, key)?,
            None => builder.with_no_client_auth(),
        };
        config.resumption = Resumption::disabled();
        config.enable_secret_extraction = true;
        Ok(Arc::new(config))
    }

    pub(super) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A server's side, which can be replaced while it is used.
#[derive(Debug)]
pub struct ServerTls(RwLock<Current>);

/// What one handshake needs.
#[derive(Clone, Debug)]
pub(super) struct Current {
    pub config: Arc<ServerConfig>,
    /// Of the server's own certificate.
    pub leaf: Fingerprint,
    /// Tells servers of the cell from hosts; `None`: there are no others.
    pub servers: Option<Arc<dyn ClientCertVerifier>>,
}

impl ServerTls {
    /// A server that is `identity`, and believes other servers that show certificates of these authorities.
    ///
    /// # Errors
    /// [`TlsError`] if the identity is none.
    pub fn new(identity: Identity, authorities: &[CertificateDer<'static>]) -> Result<ServerTls, TlsError> {
        ServerTls::with_hosts(identity, authorities, &[])
    }

    /// As [`ServerTls::new`]; certificates of the authorities `hosts` show that the other end is the superuser's of some host, and nothing more.
    ///
    /// # Errors
    /// [`TlsError`] if the identity is none.
    pub fn with_hosts(
        identity: Identity,
        authorities: &[CertificateDer<'static>],
        hosts: &[CertificateDer<'static>],
    ) -> Result<ServerTls, TlsError> {
        Ok(ServerTls(RwLock::new(config_of(identity, authorities, hosts)?)))
    }

    /// From the next connection on, it is this.
    ///
    /// # Errors
    /// [`TlsError`] if the identity is none; it stays as it was.
    pub fn replace(&self, identity: Identity, authorities: &[CertificateDer<'static>]) -> Result<(), TlsError> {
        self.replace_with_hosts(identity, authorities, &[])
    }

    /// From the next connection on, it is this: see [`ServerTls::with_hosts`].
    ///
    /// # Errors
    /// [`TlsError`] if the identity is none; it stays as it was.
    pub fn replace_with_hosts(
        &self,
        identity: Identity,
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

/// Looks at certificates of these authorities; `None`: there are none.
fn verifier_of(
    provider: &Arc<CryptoProvider>,
    authorities: &[CertificateDer<'static>],
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let mut roots = RootCertStore::empty();
    authorities.iter().try_for_each(|one| roots.add(one.clone()))?;
    if roots.is_empty() {
        return Ok(None);
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let verifier = builder.allow_unauthenticated().build().map_err(|error| TlsError(error.to_string()))?;
    Ok(Some(verifier))
}

fn config_of(
    identity: Identity,
    authorities: &[CertificateDer<'static>],
    hosts: &[CertificateDer<'static>],
) -> Result<Current, TlsError> {
    let leaf = identity.chain.first().ok_or_else(|| TlsError("there is no certificate".to_owned()))?;
    let leaf = Fingerprint::of(leaf);
    let provider = provider();
    let servers = verifier_of(&provider, authorities)?;
    let all = verifier_of(&provider, &[authorities, hosts].concat())?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(all.unwrap_or_else(WebPkiClientVerifier::no_client_auth))
        .with_single_cert(identity.chain, identity.key)?;
    config.send_tls13_tickets = 0;
    config.enable_secret_extraction = true;
    Ok(Current { config: Arc::new(config), leaf, servers })
}
