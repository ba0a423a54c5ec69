//! Certificates and keys from files, in PEM.

use std::path::Path;

use fabric::tls::TlsIdentity;
use fabric::tls::pki_types::pem::PemObject;
use fabric::tls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::KeyError;
use crate::files::at;

/// The certificates in a file, at least one.
///
/// # Errors
/// [`KeyError`]: it cannot be read, or has none.
pub fn authorities_in(path: &Path) -> Result<Vec<CertificateDer<'static>>, KeyError> {
    let found = CertificateDer::pem_file_iter(path).map_err(|error| at(path, error))?;
    let all = found.collect::<Result<Vec<_>, _>>().map_err(|error| at(path, error))?;
    if all.is_empty() { Err(at(path, "holds no certificate")) } else { Ok(all) }
}

/// A server's certificate, with those of its authorities behind it, and its key.
///
/// # Errors
/// [`KeyError`]: one of the files cannot be used.
pub fn identity_in(certificate: &Path, key: &Path) -> Result<TlsIdentity, KeyError> {
    let chain = authorities_in(certificate)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| at(key, error))?;
    Ok(TlsIdentity { chain, key })
}
