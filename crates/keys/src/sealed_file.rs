//! A file that is encrypted with a passphrase, for backups that leave the machine
//! (`docs/spec/cell-database.md`, *Encryption*).
//!
//! The key is argon2id of the passphrase with a salt of the file. The content follows in chunks of
//! 64 KiB, each encrypted and authenticated by AES-256-GCM. The nonce of a chunk is its number and
//! whether it is the last, and the head is authenticated with each: so a chunk that is changed,
//! moved, left out or brought from another file, and a file that ends early, are errors. It is the
//! construction STREAM, as the program age has it.

use std::io::{self, Read, Write};

use argon2::{Algorithm, Argon2, Params, Version};
use openssl::rand::rand_bytes;
use openssl::symm::{Cipher, decrypt_aead, encrypt_aead};
use types::limits::PASSWORD_BYTES_MIN;
use zeroize::Zeroizing;

use crate::numbered::KeyBytes;

/// The first bytes of the file.
pub const SEALED_MAGIC: &[u8; 16] = b"rialto encrypted";
const VERSION: u32 = 1;
const SALT_BYTES: usize = 32;
const HEAD_BYTES: usize = SEALED_MAGIC.len() + 4 * size_of::<u32>() + SALT_BYTES;
const CHUNK_BYTES: usize = 64 << 10;
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;

/// Memory, in KiB, passes and lanes of argon2id: those that RFC 9106 recommends where memory is
/// scarce, with one lane.
const COST: [u32; 3] = [64 << 10, 3, 1];
/// The most that a file may ask for: 1 GiB for some seconds.
const COST_MAX: [u32; 3] = [1 << 20, 16, 16];

/// A head and the key that follows from it.
struct ChunkCipher {
    head: [u8; HEAD_BYTES],
    key: KeyBytes,
    number: u64,
}

impl ChunkCipher {
    fn new(passphrase: &str, head: [u8; HEAD_BYTES]) -> io::Result<ChunkCipher> {
        let (_, rest) = head.split_at(SEALED_MAGIC.len());
        let number = |at: usize| {
            let at = at * size_of::<u32>();
            u32::from_le_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]])
        };
        if number(0) != VERSION {
            let found = number(0);
            return Err(io::Error::other(format!(
                "it is encrypted by another program (version {found}; this one knows {VERSION})"
            )));
        }
        let cost = [number(1), number(2), number(3)];
        if cost.iter().zip(COST_MAX).any(|(cost, max)| *cost > max) {
            return Err(damaged("it asks for more memory or time than any file"));
        }
        let params = Params::new(cost[0], cost[1], cost[2], Some(KeyBytes::default().len()));
        let params = params.map_err(|error| damaged(&error.to_string()))?;
        let salt = &head[HEAD_BYTES - SALT_BYTES..];
        let mut key = KeyBytes::default();
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(passphrase.as_bytes(), salt, &mut key[..])
            .map_err(|error| io::Error::other(error.to_string()))?;
        Ok(ChunkCipher { head, key, number: 0 })
    }

    fn nonce(&self, is_last: bool) -> [u8; NONCE_BYTES] {
        let mut nonce = [0; NONCE_BYTES];
        nonce[..8].copy_from_slice(&self.number.to_be_bytes());
        nonce[NONCE_BYTES - 1] = is_last.into();
        nonce
    }

    fn encrypt(&mut self, chunk: &[u8], is_last: bool) -> io::Result<Vec<u8>> {
        let (nonce, mut tag) = (self.nonce(is_last), [0; TAG_BYTES]);
        let cipher = Cipher::aes_256_gcm();
        let mut bytes =
            encrypt_aead(cipher, &self.key[..], Some(&nonce), &self.head, chunk, &mut tag)?;
        bytes.extend(tag);
        self.number += 1;
        Ok(bytes)
    }

    fn decrypt(&mut self, bytes: &[u8], is_last: bool) -> io::Result<Zeroizing<Vec<u8>>> {
        let nonce = self.nonce(is_last);
        let opened = bytes.split_last_chunk::<TAG_BYTES>().and_then(|(chunk, tag)| {
            let cipher = Cipher::aes_256_gcm();
            decrypt_aead(cipher, &self.key[..], Some(&nonce), &self.head, chunk, tag).ok()
        });
        self.number += 1;
        opened.map(Zeroizing::new).ok_or_else(|| match self.number {
            1 => damaged("the passphrase is wrong, or the file is damaged"),
            _ => damaged("it is damaged or cut off"),
        })
    }
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Encrypts what is written to it.
pub struct SealedWriter<W> {
    to: W,
    cipher: ChunkCipher,
    chunk: Zeroizing<Vec<u8>>,
}

impl<W: Write> SealedWriter<W> {
    /// Writes the head. Takes half a second, for the passphrase.
    ///
    /// # Errors
    /// The writer's; a passphrase that is too short.
    pub fn new(mut to: W, passphrase: &str) -> io::Result<Self> {
        if passphrase.len() < PASSWORD_BYTES_MIN {
            return Err(io::Error::other(format!(
                "a passphrase has {PASSWORD_BYTES_MIN} bytes or more"
            )));
        }
        let mut head = [0; HEAD_BYTES];
        let (magic, rest) = head.split_at_mut(SEALED_MAGIC.len());
        magic.copy_from_slice(SEALED_MAGIC);
        for (to, number) in rest.chunks_exact_mut(4).zip([VERSION, COST[0], COST[1], COST[2]]) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        rand_bytes(&mut head[HEAD_BYTES - SALT_BYTES..])?;
        let cipher = ChunkCipher::new(passphrase, head)?;
        to.write_all(&head)?;
        Ok(SealedWriter { to, cipher, chunk: Zeroizing::new(Vec::with_capacity(CHUNK_BYTES)) })
    }

    /// Writes the last chunk.
    ///
    /// # Errors
    /// The writer's.
    pub fn end(mut self) -> io::Result<W> {
        self.put(true)?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn put(&mut self, is_last: bool) -> io::Result<()> {
        let bytes = self.cipher.encrypt(&self.chunk, is_last)?;
        self.chunk.clear();
        self.to.write_all(&bytes)
    }
}

impl<W: Write> Write for SealedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A full chunk may be the last one, so it waits for the next byte.
        if self.chunk.len() == CHUNK_BYTES {
            self.put(false)?;
        }
        let count = bytes.len().min(CHUNK_BYTES - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Decrypts what is read from it, chunk by chunk: bytes that were not authenticated are not given.
/// The end is given only if it is the file's.
pub struct SealedReader<R> {
    from: R,
    cipher: ChunkCipher,
    /// The first bytes of the next chunk.
    ahead: Vec<u8>,
    chunk: Zeroizing<Vec<u8>>,
    given: usize,
    is_over: bool,
}

impl<R: Read> SealedReader<R> {
    /// Reads the head, whose first bytes the caller has compared with [`SEALED_MAGIC`] and passes
    /// on. Takes half a second, for the passphrase.
    ///
    /// # Errors
    /// The reader's; `InvalidData` if no file has this head.
    pub fn new(mut from: R, passphrase: &str) -> io::Result<Self> {
        let mut head = [0; HEAD_BYTES];
        head[..SEALED_MAGIC.len()].copy_from_slice(SEALED_MAGIC);
        from.read_exact(&mut head[SEALED_MAGIC.len()..])?;
        let cipher = ChunkCipher::new(passphrase, head)?;
        Ok(SealedReader {
            from,
            cipher,
            ahead: Vec::new(),
            chunk: Zeroizing::default(),
            given: 0,
            is_over: false,
        })
    }

    /// Whether a chunk is the last one is known by one more byte.
    fn next(&mut self) -> io::Result<()> {
        let mut bytes = std::mem::take(&mut self.ahead);
        let full = CHUNK_BYTES + TAG_BYTES;
        let wanted = full + 1 - bytes.len();
        self.from.by_ref().take(wanted as u64).read_to_end(&mut bytes)?;
        self.is_over = bytes.len() <= full;
        if !self.is_over {
            self.ahead = bytes.split_off(full);
        }
        self.chunk = self.cipher.decrypt(&bytes, self.is_over)?;
        self.given = 0;
        Ok(())
    }
}

impl<R: Read> Read for SealedReader<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.given == self.chunk.len() {
            if self.is_over || to.is_empty() {
                return Ok(0);
            }
            self.next()?;
        }
        let left = &self.chunk[self.given..];
        let count = left.len().min(to.len());
        to[..count].copy_from_slice(&left[..count]);
        self.given += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSPHRASE: &str = "correct horse";

    fn seal(content: &[u8]) -> Vec<u8> {
        let mut writer = SealedWriter::new(Vec::new(), PASSPHRASE).unwrap();
        writer.write_all(content).unwrap();
        writer.end().unwrap()
    }

    fn open(bytes: &[u8], passphrase: &str) -> io::Result<Vec<u8>> {
        let Some(rest) = bytes.strip_prefix(SEALED_MAGIC) else {
            return Err(damaged("no magic"));
        };
        let mut content = Vec::new();
        SealedReader::new(rest, passphrase)?.read_to_end(&mut content)?;
        Ok(content)
    }

    #[test]
    fn ac14_a_sealed_file_opens_with_its_passphrase_alone() {
        for length in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES] {
            let content: Vec<u8> = (0..length).map(|at| (at / 7) as u8).collect();
            let bytes = seal(&content);
            let chunks = length.div_ceil(CHUNK_BYTES).max(1);
            assert_eq!(bytes.len(), HEAD_BYTES + length + chunks * TAG_BYTES, "{length}");
            assert_eq!(open(&bytes, PASSPHRASE).unwrap(), content, "{length}");
        }
        let bytes = seal(b"hashes of passwords");
        let wrong = open(&bytes, "correct house").unwrap_err().to_string();
        assert!(wrong.contains("the passphrase is wrong"), "{wrong}");
        assert!(!bytes.windows(6).any(|some| some == b"hashes"));
        assert_ne!(bytes, seal(b"hashes of passwords"), "a salt of its own");
        assert!(SealedWriter::new(Vec::new(), "short").is_err());
    }

    /// Each attempt costs half a second, so the places are few.
    #[test]
    fn ac14_a_changed_cut_or_mixed_sealed_file_is_an_error() {
        let bytes = seal(&vec![7; 2 * CHUNK_BYTES + 9]);
        let full = CHUNK_BYTES + TAG_BYTES;
        let second = HEAD_BYTES + full;
        let refused = |bytes: &[u8], what: &str| {
            let kind = open(bytes, PASSPHRASE).unwrap_err().kind();
            assert!(
                matches!(kind, io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof),
                "{what}: {kind:?}"
            );
        };
        for at in [HEAD_BYTES - 1, HEAD_BYTES, second + 5, bytes.len() - 1] {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            refused(&flipped, &format!("flipped at {at}"));
        }
        for length in [20, HEAD_BYTES, HEAD_BYTES + full, second + full, bytes.len() - 1] {
            refused(&bytes[..length], &format!("cut at {length}"));
        }
        let swapped = [&bytes[..HEAD_BYTES], &bytes[second..second + full], &bytes[HEAD_BYTES..]];
        refused(&swapped.concat(), "chunks in another order");
        refused(&[&bytes[..], b"x"].concat(), "with more behind it");
        refused(&[&bytes[..], &bytes].concat(), "twice");
        // Without a bound a file could ask for all memory.
        let mut greedy = bytes.clone();
        greedy[SEALED_MAGIC.len() + 4..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
        refused(&greedy, "with a cost that no machine has");
    }
}
