//! The keys that sign the cell's tokens: `DIR/keys/tokens/N.key` (`numbered.rs`), the same at every server of the cell.
//!
//! The highest number signs; all of them are believed. So a new key is given to all servers first, and an old one goes when the last token that it signed has ended.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use guard::{Public, Signer};
use login::SigningKeys;
use parking_lot::Mutex;

use crate::KeyError;
use crate::files::{at, make_dir, write};
use crate::numbered::Numbered;

/// Signing keys in a directory.
pub struct TokenKeys {
    keys: Numbered,
    known: Mutex<HashMap<u32, Arc<Signer>>>,
}

impl fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenKeys({})", self.keys.dir.display())
    }
}

impl TokenKeys {
    /// Those of the cell whose directory this is.
    pub fn of(cell: &Path) -> TokenKeys {
        TokenKeys { keys: Numbered { dir: cell.join("keys").join("tokens") }, known: Mutex::default() }
    }

    /// The numbers of the keys, ascending.
    ///
    /// # Errors
    /// The system's.
    pub fn numbers(&self) -> io::Result<Vec<u32>> {
        self.keys.numbers()
    }

    /// Makes one more key, which signs from now on; its number. On disk when it returns.
    ///
    /// # Errors
    /// The system's.
    pub fn make(&self) -> io::Result<u32> {
        self.keys.make()
    }

    /// Brings the keys of another server of the cell here, from its directory `keys`. Those that are here stay.
    ///
    /// # Errors
    /// [`KeyError`]: they cannot be read, or not be written here.
    pub fn bring(&self, from: &Path) -> Result<(), KeyError> {
        let there = Numbered { dir: from.join("tokens") };
        let said = |error: io::Error| at(&there.dir, error);
        make_dir(&self.keys.dir)?;
        for number in there.numbers().map_err(said)? {
            let path = self.keys.path(number);
            if !path.exists() {
                write(&path, &std::fs::read_to_string(there.path(number)).map_err(said)?)?;
            }
        }
        Ok(())
    }

    fn signer(&self, number: u32) -> Option<Arc<Signer>> {
        let mut known = self.known.lock();
        if let Some(signer) = known.get(&number) {
            return Some(Arc::clone(signer));
        }
        if !self.keys.path(number).exists() {
            return None;
        }
        match self.keys.key(number) {
            Ok(seed) => {
                let signer = Arc::new(Signer::new(&seed));
                known.insert(number, Arc::clone(&signer));
                Some(signer)
            }
            Err(error) => {
                tracing::error!(error, "a key that signs tokens cannot be used");
                None
            }
        }
    }
}

impl SigningKeys for TokenKeys {
    fn newest(&self) -> Option<(u32, Arc<Signer>)> {
        let number = *self.numbers().ok()?.last()?;
        Some((number, self.signer(number)?))
    }

    fn public(&self, number: u32) -> Option<Public> {
        self.signer(number).map(|signer| signer.public())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_key_signs_and_old_ones_are_believed() {
        let dir = tempfile::tempdir().unwrap();
        let keys = TokenKeys::of(dir.path());
        assert!(keys.newest().is_none());
        assert_eq!(keys.make().unwrap(), 1);
        let first = keys.newest().unwrap().1.public();
        assert_eq!(keys.make().unwrap(), 2);
        let (number, second) = keys.newest().unwrap();
        assert_eq!((number, keys.public(1), keys.public(2)), (2, Some(first), Some(second.public())));
        assert_ne!(first, second.public());
        assert_eq!(keys.public(3), None);
        assert_eq!(TokenKeys::of(dir.path()).public(1), Some(first));
        std::fs::write(dir.path().join("keys/tokens/9.key"), "damaged").unwrap();
        assert_eq!(keys.public(9), None);
        assert!(!format!("{keys:?}{second:?}").contains("key:"));
    }
}
