//! Secret keys of 32 bytes with numbers, one a file: `N.key`, 64 hexadecimal digits, mode 0600. The
//! highest number is used, the others remain for data that was made with them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

use zeroize::Zeroizing;

const KEY_BYTES: usize = 32;

/// A key's bytes.
pub(crate) type KeyBytes = Zeroizing<[u8; KEY_BYTES]>;

/// Keys in a directory, which need not exist yet. Read when they are needed, so that a new one is
/// used at once.
pub(crate) struct Numbered {
    pub dir: PathBuf,
}

impl Numbered {
    /// The numbers of the keys, ascending.
    ///
    /// # Errors
    /// The system's.
    pub fn numbers(&self) -> io::Result<Vec<u32>> {
        let found = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            found => found?,
        };
        let mut numbers = Vec::new();
        for entry in found {
            let name = entry?.file_name();
            numbers.extend(
                name.to_str().and_then(|name| name.strip_suffix(".key")?.parse::<u32>().ok()),
            );
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Makes one more key, which is used from now on; returns its number. On disk when it returns.
    ///
    /// # Errors
    /// The system's.
    pub fn make(&self) -> io::Result<u32> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let mut key = KeyBytes::default();
        openssl::rand::rand_bytes(&mut key[..])?;
        let text =
            Zeroizing::new(key.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n");
        loop {
            let number = self.numbers()?.last().map_or(1, |last| last + 1);
            // Complete under its name or not there, and no other key is overwritten.
            let draft = self.dir.join(format!("{number}.new"));
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&draft)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            let linked = fs::hard_link(&draft, self.path(number));
            fs::remove_file(&draft)?;
            match linked {
                Ok(()) => {
                    File::open(&self.dir)?.sync_all()?;
                    return Ok(number);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub fn path(&self, number: u32) -> PathBuf {
        self.dir.join(format!("{number}.key"))
    }

    /// The key with a number.
    ///
    /// # Errors
    /// Text for administrators, with nothing of the key.
    pub fn key(&self, number: u32) -> Result<KeyBytes, String> {
        let path = self.path(number);
        let describe = |error: io::Error| format!("the key {}: {error}", path.display());
        let text = Zeroizing::new(fs::read_to_string(&path).map_err(describe)?);
        read_key(text.trim_end()).ok_or_else(|| format!("the key {} is damaged", path.display()))
    }
}

/// From 64 hexadecimal digits.
pub(crate) fn read_key(text: &str) -> Option<KeyBytes> {
    let mut key = KeyBytes::default();
    if text.len() != 2 * KEY_BYTES || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(key)
}
