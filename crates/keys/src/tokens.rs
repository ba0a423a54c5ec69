//! The keys that sign the cell's tokens: `DIR/keys/tokens/N.key` (`numbered.rs`), the same at every
//! server of the cell.
//!
//! The highest number signs; the signatures of all are accepted. So a new key is copied to all
//! servers first, and an old one is removed when the last token that it signed has ended. A key
//! whose file is removed is accepted no longer than [`LOOK_AGAIN`] after, by a running server too:
//! so a stolen key is withdrawn by removing it at all servers.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use guard::{Public, Signer};
use login::SigningKeys;
use parking_lot::Mutex;
use zeroize::Zeroizing;

use crate::KeyError;
use crate::files::{at, make_dir, write};
use crate::numbered::{Numbered, read_key};

/// How long the cached state of the directory is valid.
pub const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// How many keys another server gets: an older one than these has signed no token that counts.
const EXPORTED_MAX: usize = 64;

/// Signing keys in a directory.
pub struct TokenKeys {
    keys: Numbered,
    known: Mutex<Known>,
}

/// The cached state of the directory.
#[derive(Default)]
struct Known {
    /// When the directory was last read.
    read_at: Option<Instant>,
    /// The files of that time: number, inode, and time of the last change.
    files: Vec<(u32, u64, i64, i64)>,
    signers: HashMap<u32, Arc<Signer>>,
}

impl fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenKeys({})", self.keys.dir.display())
    }
}

impl TokenKeys {
    /// Those of the cell whose directory this is.
    pub fn of(cell: &Path) -> TokenKeys {
        TokenKeys {
            keys: Numbered { dir: cell.join("keys").join("tokens") },
            known: Mutex::default(),
        }
    }

    /// The numbers of the keys, ascending.
    ///
    /// # Errors
    /// The system's.
    pub fn numbers(&self) -> io::Result<Vec<u32>> {
        self.keys.numbers()
    }

    /// Makes one more key, which signs from now on; returns its number. On disk when it returns.
    ///
    /// # Errors
    /// The system's.
    pub fn make(&self) -> io::Result<u32> {
        self.keys.make()
    }

    /// Withdraws a key: tokens that it signed are refused here within a second. It must be removed
    /// at every other server of the cell too.
    ///
    /// # Errors
    /// The system's; `NotFound`: there is no such key.
    pub fn remove(&self, number: u32) -> io::Result<()> {
        std::fs::remove_file(self.keys.path(number))?;
        std::fs::File::open(&self.keys.dir)?.sync_all()
    }

    /// Copies the keys of another server of the cell to here, from its directory `keys`. Those that
    /// are here stay.
    ///
    /// # Errors
    /// [`KeyError`]: they cannot be read, or not be written here.
    pub fn bring(&self, from: &Path) -> Result<(), KeyError> {
        let there = Numbered { dir: from.join("tokens") };
        let key_error = |error: io::Error| at(&there.dir, error);
        make_dir(&self.keys.dir)?;
        for number in there.numbers().map_err(key_error)? {
            let path = self.keys.path(number);
            if !path.exists() {
                write(&path, &std::fs::read_to_string(there.path(number)).map_err(key_error)?)?;
            }
        }
        Ok(())
    }

    /// The newest keys as text for another server of the cell: a line with number and key for each.
    ///
    /// # Errors
    /// [`KeyError`]: they cannot be read.
    pub fn export(&self) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let key_error = |error: io::Error| at(&self.keys.dir, error);
        let mut text = Zeroizing::new(Vec::new());
        for number in self.numbers().map_err(key_error)?.into_iter().rev().take(EXPORTED_MAX) {
            let path = self.keys.path(number);
            let key = Zeroizing::new(std::fs::read_to_string(&path).map_err(key_error)?);
            text.extend_from_slice(format!("{number} ").as_bytes());
            text.extend_from_slice(key.trim_end().as_bytes());
            text.push(b'\n');
        }
        Ok(text)
    }

    /// Takes the keys of such a text. Those that are here stay.
    ///
    /// # Errors
    /// [`KeyError`]: the text is none, or they cannot be written.
    pub fn import(&self, text: &[u8]) -> Result<(), KeyError> {
        let damaged = || at(&self.keys.dir, "the keys that came are no keys");
        make_dir(&self.keys.dir)?;
        let text = std::str::from_utf8(text).map_err(|_| damaged())?;
        for line in text.lines() {
            let (number, key) = line.split_once(' ').ok_or_else(damaged)?;
            let number: u32 = number.parse().map_err(|_| damaged())?;
            read_key(key).ok_or_else(damaged)?;
            let path = self.keys.path(number);
            if !path.exists() {
                write(&path, &Zeroizing::new(format!("{key}\n")))?;
            }
        }
        Ok(())
    }

    fn files(&self) -> io::Result<Vec<(u32, u64, i64, i64)>> {
        let of = |number: u32| match std::fs::metadata(self.keys.path(number)) {
            Ok(meta) => Ok(Some((number, meta.ino(), meta.ctime(), meta.ctime_nsec()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        self.numbers()?.into_iter().filter_map(|number| of(number).transpose()).collect()
    }

    /// Drops keys whose files were removed or replaced.
    fn refresh(&self, known: &mut Known) {
        if known.read_at.is_some_and(|at| at.elapsed() < LOOK_AGAIN) {
            return;
        }
        match self.files() {
            Ok(files) => {
                let Known { signers, .. } = known;
                signers.retain(|number, _| {
                    let stays = |of: &[(u32, u64, i64, i64)]| {
                        of.iter().find(|file| file.0 == *number).copied()
                    };
                    let keeps = stays(&files).is_some() && stays(&files) == stays(&known.files);
                    if !keeps {
                        tracing::warn!(
                            number,
                            "the key that signs tokens was removed or replaced: its tokens are \
                                refused"
                        );
                    }
                    keeps
                });
                known.files = files;
                known.read_at = Some(Instant::now());
            }
            // If the directory cannot be read, a removal is not known; cached keys stay valid.
            Err(error) => tracing::error!(%error, "the keys that sign tokens cannot be listed"),
        }
    }

    fn signer(&self, number: u32) -> Option<Arc<Signer>> {
        let mut known = self.known.lock();
        self.refresh(&mut known);
        if let Some(signer) = known.signers.get(&number) {
            return Some(Arc::clone(signer));
        }
        if !self.keys.path(number).exists() {
            return None;
        }
        match self.keys.key(number) {
            Ok(seed) => {
                let signer = Arc::new(Signer::new(&seed));
                // The key may be newer than the last reading of the directory.
                known.read_at = None;
                known.files = self.files().unwrap_or_default();
                known.signers.insert(number, Arc::clone(&signer));
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
    fn the_newest_key_signs_and_old_ones_verify() {
        let dir = tempfile::tempdir().unwrap();
        let keys = TokenKeys::of(dir.path());
        assert!(keys.newest().is_none());
        assert_eq!(keys.make().unwrap(), 1);
        let first = keys.newest().unwrap().1.public();
        assert_eq!(keys.make().unwrap(), 2);
        let (number, second) = keys.newest().unwrap();
        assert_eq!(
            (number, keys.public(1), keys.public(2)),
            (2, Some(first), Some(second.public()))
        );
        assert_ne!(first, second.public());
        assert_eq!(keys.public(3), None);
        assert_eq!(TokenKeys::of(dir.path()).public(1), Some(first));
        std::fs::write(dir.path().join("keys/tokens/9.key"), "damaged").unwrap();
        assert_eq!(keys.public(9), None);
        assert!(!format!("{keys:?}{second:?}").contains("key:"));
    }

    #[test]
    fn ac_3_a_removed_or_replaced_key_is_no_longer_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let keys = TokenKeys::of(dir.path());
        keys.make().unwrap();
        keys.make().unwrap();
        let public = keys.public(1).unwrap();
        let file = |number: u32| dir.path().join(format!("keys/tokens/{number}.key"));
        let becomes = |what: &dyn Fn() -> bool| {
            let end = Instant::now() + Duration::from_secs(60);
            while !what() {
                assert!(Instant::now() < end, "it stays as it was");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        std::fs::rename(file(1), dir.path().join("aside")).unwrap();
        becomes(&|| keys.public(1).is_none());
        assert!(keys.public(2).is_some());
        std::fs::rename(dir.path().join("aside"), file(1)).unwrap();
        becomes(&|| keys.public(1) == Some(public));
        std::fs::copy(file(2), dir.path().join("other")).unwrap();
        std::fs::rename(dir.path().join("other"), file(1)).unwrap();
        becomes(&|| keys.public(1).is_some() && keys.public(1) == keys.public(2));
    }
}
