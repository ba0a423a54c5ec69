//! A certificate that is signed where no server runs: a file that goes out, and one that comes
//! back. Neither has a secret.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use guard::{CERTIFIED_HOSTS_MAX, CertifiedServer};
use serde::{Deserialize, Serialize};
use types::KeyPrint;
use types::limits::JOIN_FACTS_BYTES_MAX;

use crate::certifier::is_host;
use crate::files::{at, read, remove, write};
use crate::{CellKeys, KeyError};

/// The name of the file that goes out, below `keys`.
const ORDER: &str = "server.request";
/// A file that is longer is no order.
const FILE_BYTES_MAX: u64 = 4 * JOIN_FACTS_BYTES_MAX as u64;

/// The wish of a server for a certificate. The administrator who signs it decides about its words:
/// whoever wrote the file wrote them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignOrder {
    /// The cell's name.
    pub cell: String,
    /// The server's name.
    pub server: String,
    /// Its roles, as text.
    pub roles: String,
    /// The names and addresses of the certificate.
    pub hosts: Vec<String>,
    /// The certificate signing request (PEM).
    pub signing_request: String,
}

/// A certificate that was signed for an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedOrder {
    /// The cell's name.
    pub cell: String,
    /// The certificate (PEM).
    pub certificate: String,
    /// The certificates of the authority, the present one first (PEM).
    pub authorities: String,
}

fn text_of(path: &Path) -> Result<String, KeyError> {
    let length = std::fs::metadata(path).map_err(|error| at(path, error))?.len();
    if length > FILE_BYTES_MAX {
        return Err(at(path, "is too long"));
    }
    read(path)?.ok_or_else(|| at(path, "is not there"))
}

impl SignOrder {
    /// The file of the server with these keys.
    pub fn path(keys: &CellKeys) -> PathBuf {
        keys.file(ORDER)
    }

    /// Writes it for an administrator to take along.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn write(&self, keys: &CellKeys) -> Result<(), KeyError> {
        write(&Self::path(keys), &serde_json::to_string_pretty(self).unwrap_or_default())
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`KeyError`]: it is none.
    pub fn read(path: &Path) -> Result<SignOrder, KeyError> {
        let order: SignOrder =
            serde_json::from_str(&text_of(path)?).map_err(|_| at(path, "is no request"))?;
        let is_sound = order.hosts.len() <= CERTIFIED_HOSTS_MAX
            && order.hosts.iter().all(|host| is_host(host));
        if is_sound { Ok(order) } else { Err(at(path, "wants names that no certificate gets")) }
    }

    /// The key that it is about; its sender has it.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn key(&self) -> Result<KeyPrint, KeyError> {
        crate::certifier::key_of(&self.signing_request)
            .map_err(|why| KeyError { path: ORDER.to_owned(), why })
    }

    /// Signs it with the authority in `keys`.
    ///
    /// # Errors
    /// [`KeyError`]: it is of another cell, its roles are unknown, or the authority is not there.
    pub fn sign(
        &self,
        keys: &CellKeys,
        life: Duration,
        now: SystemTime,
    ) -> Result<SignedOrder, KeyError> {
        let wrong = |why: String| KeyError { path: ORDER.to_owned(), why };
        let authorities = text_of(&keys.authority().file())?;
        keys.authority().need_cell(&self.cell)?;
        let server = CertifiedServer {
            name: self.server.clone(),
            roles: self.roles.parse().map_err(wrong)?,
            hosts: self.hosts.clone(),
        };
        self.key()?;
        let certificate =
            keys.authority().certify(&self.signing_request, &self.cell, &server, life, now)?;
        Ok(SignedOrder { cell: self.cell.clone(), certificate, authorities })
    }
}

impl SignedOrder {
    /// Reads one.
    ///
    /// # Errors
    /// [`KeyError`]: it is none.
    pub fn read(path: &Path) -> Result<SignedOrder, KeyError> {
        serde_json::from_str(&text_of(path)?).map_err(|_| at(path, "is no signed certificate"))
    }

    /// Writes it, for an administrator to take back.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn write(&self, path: &Path) -> Result<(), KeyError> {
        write(path, &serde_json::to_string_pretty(self).unwrap_or_default())
    }

    /// Puts the certificate into its place, for the server's present key or its next one. The file
    /// of the order goes.
    ///
    /// # Errors
    /// [`KeyError`]: it is for neither.
    pub fn take(&self, keys: &CellKeys, names: &[String]) -> Result<(), KeyError> {
        if let Err(error) = keys.accept(&self.authorities, &self.certificate, names) {
            if keys.next_key()?.is_none() {
                return Err(error);
            }
            keys.accept_next(&self.authorities, &self.certificate)?;
        }
        remove(&SignOrder::path(keys))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sj4_an_authority_off_line_signs_from_file_to_file() {
        let dir = tempfile::tempdir().unwrap();
        let [first, stick, second] =
            ["a", "stick", "b"].map(|name| CellKeys::of(dir.path().join(name)));
        let now = SystemTime::now();
        first.authority().make("cell.test", now).unwrap();
        let print = first.authority().fingerprint().unwrap();
        first.identity(&[], now).unwrap();
        first.authority().move_to(&dir.path().join("stick")).unwrap();
        assert!(!first.authority().can_sign() && stick.authority().can_sign());
        assert!(first.identity(&[], now).is_ok(), "it shows what it has");
        assert_eq!(first.authority().fingerprint().unwrap(), print);
        assert!(first.authority().move_to(&dir.path().join("c")).is_err(), "it is not here");
        let (key, signing_request) = second.signing_request().unwrap();
        let order = SignOrder {
            cell: "cell.test".into(),
            server: "two".into(),
            roles: "file".into(),
            hosts: vec!["192.0.2.2".into()],
            signing_request,
        };
        order.write(&second).unwrap();
        let read = SignOrder::read(&SignOrder::path(&second)).unwrap();
        assert_eq!((&read, read.key().unwrap()), (&order, key));
        let life = Duration::from_secs(30 * 24 * 3600);
        assert!(order.sign(&first, life, now).is_err(), "the key is not there");
        let signed = order.sign(&stick, life, now).unwrap();
        let file = dir.path().join("signed");
        signed.write(&file).unwrap();
        let names = ["192.0.2.2".to_owned()];
        assert!(SignedOrder::read(&file).unwrap().take(&first, &names).is_err(), "another's");
        SignedOrder::read(&file).unwrap().take(&second, &names).unwrap();
        assert_eq!(second.identity(&names, now).unwrap().0.key_print(), Some(key));
        assert_eq!(second.certified_roles().as_deref(), Some("file"));
        assert!(!SignOrder::path(&second).exists());
        // Of another cell, with roles that do not exist, and names that no certificate gets.
        for bad in [
            SignOrder { cell: "other.test".into(), ..order.clone() },
            SignOrder { roles: "root".into(), ..order.clone() },
        ] {
            assert!(bad.sign(&stick, life, now).is_err(), "{bad:?}");
        }
        SignOrder { hosts: vec!["server.rialto.internal".into()], ..order }.write(&second).unwrap();
        assert!(SignOrder::read(&SignOrder::path(&second)).is_err());
        std::fs::write(&file, vec![b' '; FILE_BYTES_MAX as usize + 1]).unwrap();
        assert!(SignedOrder::read(&file).is_err());
    }
}
