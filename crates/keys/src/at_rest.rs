//! The cell's keys for encrypted volumes: they wrap the keys of volumes, which encrypt the contents
//! of files (`store/media/cipher.rs`).
//!
//! `DIR/keys/at-rest/N.key`: 64 hexadecimal digits, mode 0600. The highest number wraps; all of
//! them unwrap. A wrapped key has the form: number (u32, little-endian), nonce (12 bytes), tag
//! (16), the wrapped key (32), AES-256-GCM. So a new key is made first, then everything is wrapped
//! again, then the old one may be removed. All servers of a cell that shall have encrypted volumes
//! need one such directory each; the keys need not be the same. Instead of the directory a command
//! may fetch them from a key server (`key_command.rs`).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use openssl::symm::{Cipher, decrypt_aead, encrypt_aead};
use types::{KeyKeeper, TREE_KEY_BYTES, TreeKey};
use zeroize::Zeroizing;

use crate::key_command::KeyCommand;
use crate::numbered::Numbered;

const NUMBER_BYTES: usize = 4;
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;

/// The keys, of either source.
pub struct AtRest(Source);

enum Source {
    /// Read when they are needed, so that a new one is used at once.
    Directory(Numbered),
    Command(KeyCommand),
}

impl fmt::Debug for AtRest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Directory(keys) => write!(f, "AtRest({})", keys.dir.display()),
            Source::Command(command) => write!(f, "AtRest({command:?})"),
        }
    }
}

impl AtRest {
    /// The keys in this directory, which need not exist yet.
    pub fn new(dir: impl Into<PathBuf>) -> AtRest {
        AtRest(Source::Directory(Numbered { dir: dir.into() }))
    }

    /// The keys of a key server, as this command fetches them.
    pub fn by_command(command: Vec<String>) -> AtRest {
        AtRest(Source::Command(KeyCommand::new(command)))
    }

    /// The numbers of the keys, ascending; of a key server's, those that were fetched.
    ///
    /// # Errors
    /// The system's.
    pub fn numbers(&self) -> io::Result<Vec<u32>> {
        match &self.0 {
            Source::Directory(keys) => keys.numbers(),
            Source::Command(command) => Ok(command.fetched()),
        }
    }

    /// The number of the key that wraps; `None`: there is none yet.
    ///
    /// # Errors
    /// Text for administrators, with nothing of a key.
    pub fn newest(&self) -> Result<Option<u32>, String> {
        match &self.0 {
            Source::Directory(keys) => keys
                .numbers()
                .map(|all| all.last().copied())
                .map_err(|error| describe(keys, &error)),
            Source::Command(command) => command.newest().map(|(number, _)| Some(number)),
        }
    }

    /// Makes one more key, which wraps from now on; returns its number. On disk when it returns.
    ///
    /// # Errors
    /// The system's; a key server makes its keys itself.
    pub fn make(&self) -> io::Result<u32> {
        match &self.0 {
            Source::Directory(keys) => keys.make(),
            Source::Command(_) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the key server makes its keys itself",
            )),
        }
    }

    fn key(&self, number: u32) -> Result<TreeKey, String> {
        match &self.0 {
            Source::Directory(keys) => Ok(TreeKey::new(*keys.key(number)?)),
            Source::Command(command) => command.key(number),
        }
    }

    /// The key that wraps. In an empty directory the first one is made.
    fn wrapping(&self) -> Result<(u32, TreeKey), String> {
        match &self.0 {
            Source::Command(command) => command.newest(),
            Source::Directory(keys) => {
                let number = match self.newest()? {
                    Some(number) => number,
                    None => keys.make().map_err(|error| describe(keys, &error))?,
                };
                Ok((number, self.key(number)?))
            }
        }
    }
}

impl KeyKeeper for AtRest {
    fn wrap(&self, key: &TreeKey) -> Result<Vec<u8>, String> {
        let (number, with) = self.wrapping()?;
        let (mut nonce, mut tag) = ([0; NONCE_BYTES], [0; TAG_BYTES]);
        let sealed = openssl::rand::rand_bytes(&mut nonce).and_then(|()| {
            encrypt_aead(Cipher::aes_256_gcm(), &with[..], Some(&nonce), &[], &key[..], &mut tag)
        });
        let sealed = sealed.map_err(|_| "a volume's key cannot be wrapped")?;
        Ok([&number.to_le_bytes()[..], &nonce, &tag, &sealed].concat())
    }

    fn unwrap(&self, wrapped: &[u8]) -> Result<TreeKey, String> {
        let malformed = "a volume's key is malformed";
        let (number, rest) = wrapped.split_first_chunk::<NUMBER_BYTES>().ok_or(malformed)?;
        let (nonce, rest) = rest.split_at_checked(NONCE_BYTES).ok_or(malformed)?;
        let (tag, sealed) = rest.split_at_checked(TAG_BYTES).ok_or(malformed)?;
        let with = self.key(u32::from_le_bytes(*number))?;
        let opened = decrypt_aead(Cipher::aes_256_gcm(), &with[..], Some(nonce), &[], sealed, tag)
            .map(Zeroizing::new);
        let opened = opened.map_err(
            |_| "a volume's key was wrapped by another key of that number, or is damaged",
        )?;
        let key: [u8; TREE_KEY_BYTES] = opened[..].try_into().map_err(|_| malformed)?;
        Ok(TreeKey::new(key))
    }

    fn wrapped_by(&self, wrapped: &[u8]) -> u32 {
        wrapped.first_chunk().map_or(0, |number| u32::from_le_bytes(*number))
    }
}

fn describe(keys: &Numbered, error: &io::Error) -> String {
    format!("keys in {}: {error}", keys.dir.display())
}

/// The directory of these keys in the directory of a cell.
pub fn at_rest_dir(cell: &Path) -> PathBuf {
    cell.join("keys").join("at-rest")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_the_key_that_wrapped_unwraps() {
        let dir = tempfile::tempdir().unwrap();
        let keys = AtRest::new(dir.path().join("at-rest"));
        let key = TreeKey::new([7; TREE_KEY_BYTES]);
        let first = keys.wrap(&key).unwrap();
        assert_eq!(keys.numbers().unwrap(), [1]);
        let Source::Directory(files) = &keys.0 else { panic!("made so") };
        let mode = fs::metadata(files.path(1)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(keys.make().unwrap(), 2);
        let second = keys.wrap(&key).unwrap();
        for wrapped in [&first, &second] {
            assert_eq!(keys.unwrap(wrapped).unwrap(), key);
        }
        assert_eq!([&first, &second].map(|wrapped| keys.wrapped_by(wrapped)), [1, 2]);
        fs::remove_file(files.path(1)).unwrap();
        assert!(keys.unwrap(&first).unwrap_err().contains("1.key"));
        for at in 0..second.len() {
            let mut damaged = second.clone();
            damaged[at] ^= 1;
            assert!(keys.unwrap(&damaged).is_err());
            assert!(keys.unwrap(&second[..at]).is_err());
        }
        fs::write(files.path(2), "not a key\n").unwrap();
        assert!(keys.unwrap(&second).unwrap_err().contains("damaged"));
        assert!(!format!("{keys:?}").contains("07"));
    }
}
