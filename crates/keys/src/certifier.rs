//! Lets other servers into the cell: signs certificates for their keys.
//!
//! The key of the authority is at one server, or on none. A server without it tells a new one
//! everything but the certificate.

use std::path::PathBuf;
use std::time::SystemTime;

use fabric::tls::print_of;
use guard::{CERTIFIED_HOSTS_MAX, CertifiedServer, Certifier, JoinFacts, JoinRequest};
use rcgen::{CertificateSigningRequestParams, PublicKeyData};
use types::limits::SERVER_NAME_BYTES_MAX;
use types::{KeyPrint, ServerRoles};
use zeroize::Zeroizing;

use crate::{CellKeys, JOINED_LIFE, TokenKeys};

/// See the head of the file.
#[derive(Debug)]
pub struct CellCertifier {
    /// The directory of the cell: it has `keys`.
    dir: PathBuf,
    keys: CellKeys,
    cell: String,
    /// The server that has the cell database; `None`: this one.
    database: Option<String>,
}

impl CellCertifier {
    /// Of the server of the cell `cell` with this directory.
    pub fn of(dir: PathBuf, cell: &str, database: Option<String>) -> CellCertifier {
        let keys = CellKeys::of(dir.join("keys"));
        CellCertifier { dir, keys, cell: cell.to_owned(), database }
    }
}

/// The key of a signing request, whose sender has it.
pub(crate) fn key_of(signing_request: &str) -> Result<KeyPrint, String> {
    // Reading it verifies its signature by its key.
    let asked = CertificateSigningRequestParams::from_pem(signing_request);
    let asked = asked.map_err(|error| format!("it is no signing request ({error})"))?;
    Ok(print_of(&asked.public_key.subject_public_key_info()))
}

/// Can a certificate have this name or address?
pub(crate) fn is_host(text: &str) -> bool {
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':');
    !text.is_empty()
        && text.len() <= SERVER_NAME_BYTES_MAX
        && text.bytes().all(letters)
        && !text.to_ascii_lowercase().ends_with(".rialto.internal")
}

impl Certifier for CellCertifier {
    fn signs(&self) -> bool {
        self.keys.authority().can_sign()
    }

    fn authority(&self) -> Option<[u8; 32]> {
        self.keys.authority().fingerprint().ok().map(|one| one.0)
    }

    fn check(&self, request: &JoinRequest) -> Result<(), String> {
        if request.cell != self.cell {
            return Err(format!("it is for the cell {}", request.cell));
        }
        let known = self.keys.authority().fingerprints().map_err(|error| error.to_string())?;
        if !known.iter().any(|one| one.0 == request.authority) {
            return Err("it is for another authority".to_owned());
        }
        if request.hosts.len() > CERTIFIED_HOSTS_MAX
            || !request.hosts.iter().all(|host| is_host(host))
        {
            return Err("it wants names that no certificate gets".to_owned());
        }
        match self.key_of(&request.signing_request)? == request.key {
            true => Ok(()),
            false => Err("its key is another one than it says".to_owned()),
        }
    }

    fn key_of(&self, signing_request: &str) -> Result<KeyPrint, String> {
        key_of(signing_request)
    }

    fn certify(&self, signing_request: &str, server: &CertifiedServer) -> Result<String, String> {
        let now = SystemTime::now();
        let signed =
            self.keys.authority().certify(signing_request, &self.cell, server, JOINED_LIFE, now);
        signed.map_err(|error| error.to_string())
    }

    fn introduce(
        &self,
        name: &str,
        roles: ServerRoles,
    ) -> Result<(JoinFacts, Zeroizing<Vec<u8>>), String> {
        let authorities = std::fs::read_to_string(self.keys.authority().file())
            .map_err(|error| format!("{}: {error}", self.keys.authority().file().display()))?;
        let facts = JoinFacts {
            cell: self.cell.clone(),
            name: name.to_owned(),
            roles: roles.to_string(),
            certificate: String::new(),
            authorities,
            database: self.database.clone(),
        };
        let secrets = TokenKeys::of(&self.dir).export().map_err(|error| error.to_string())?;
        Ok((facts, secrets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sj3_only_the_holder_of_a_key_gets_a_certificate_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) =
            (CellKeys::of(dir.path().join("keys")), CellKeys::of(dir.path().join("b")));
        first.authority().make("cell.test", SystemTime::now()).unwrap();
        let certifier = CellCertifier::of(dir.path().to_owned(), "cell.test", Some("x:1".into()));
        let (key, signing_request) = second.signing_request().unwrap();
        let request = JoinRequest {
            cell: "cell.test".into(),
            authority: first.authority().fingerprint().unwrap().0,
            invitation: [0; 32],
            key,
            name: "two".into(),
            hosts: vec!["host.example".into(), "192.0.2.1".into(), "::1".into()],
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
}
