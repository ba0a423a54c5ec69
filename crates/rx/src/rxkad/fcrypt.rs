//! The cipher of rxkad: 64-bit blocks, a 56-bit key, sixteen rounds.
//!
//! It is weak by today's measure. It is here because every AFS-3 cell uses it.
//!
//! A round's function looks up each byte of a word in its own table, puts the four bytes together
//! and rotates the word. The tables below have each byte at its place in the rotated word already,
//! so a round is four lookups.
//!
//! Source: OpenAFS `src/rxkad/fcrypt.c`; the mode that its comments call CBC is PCBC.

use zeroize::Zeroize;

use super::sboxes::{SBOX_0, SBOX_1, SBOX_2, SBOX_3};

const ROUNDS: usize = 16;
const KEY_BITS: u32 = 56;

const fn spread(sbox: &[u8; 256], shift: u32) -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        table[at] = ((sbox[at] as u32) << shift).rotate_right(5);
        at += 1;
    }
    table
}

static TABLE_0: [u32; 256] = spread(&SBOX_0, 8);
static TABLE_1: [u32; 256] = spread(&SBOX_1, 0);
static TABLE_2: [u32; 256] = spread(&SBOX_2, 16);
static TABLE_3: [u32; 256] = spread(&SBOX_3, 24);

/// A block as two words.
pub type FcryptBlock = [u32; 2];

/// A key, ready for use.
#[derive(Clone)]
pub struct Fcrypt {
    subkeys: [u32; ROUNDS],
}

impl Drop for Fcrypt {
    fn drop(&mut self) {
        self.subkeys.zeroize();
    }
}

impl std::fmt::Debug for Fcrypt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fcrypt(..)")
    }
}

/// The two words of eight bytes.
pub fn block(bytes: [u8; 8]) -> FcryptBlock {
    let both = u64::from_be_bytes(bytes);
    [(both >> 32) as u32, both as u32]
}

/// The eight bytes of two words.
pub fn block_bytes(block: FcryptBlock) -> [u8; 8] {
    (u64::from(block[0]) << 32 | u64::from(block[1])).to_be_bytes()
}

impl Fcrypt {
    /// Prepares a key. The lowest bit of each byte does not count.
    pub fn new(key: [u8; 8]) -> Self {
        let mut k = key.iter().fold(0u64, |k, byte| k << 7 | u64::from(byte >> 1));
        let mut subkeys = [0; ROUNDS];
        for subkey in &mut subkeys {
            *subkey = k as u32;
            k = (k >> 11 | k << (KEY_BITS - 11)) & ((1 << KEY_BITS) - 1);
        }
        Fcrypt { subkeys }
    }

    #[cfg(test)]
    fn subkeys(&self) -> &[u32; ROUNDS] {
        &self.subkeys
    }

    /// Encrypts one block.
    pub fn encrypt(&self, [mut left, mut right]: FcryptBlock) -> FcryptBlock {
        for pair in self.subkeys.chunks_exact(2) {
            left ^= round(pair[0] ^ right);
            right ^= round(pair[1] ^ left);
        }
        [left, right]
    }

    /// Decrypts one block.
    pub fn decrypt(&self, [mut left, mut right]: FcryptBlock) -> FcryptBlock {
        for pair in self.subkeys.chunks_exact(2).rev() {
            right ^= round(pair[1] ^ left);
            left ^= round(pair[0] ^ right);
        }
        [left, right]
    }

    /// Encrypts whole blocks in place; bytes after the last whole block stay as they are.
    pub fn encrypt_pcbc(&self, iv: FcryptBlock, bytes: &mut [u8]) {
        self.pcbc(iv, bytes, |x, plain| {
            let cipher = self.encrypt([plain[0] ^ x[0], plain[1] ^ x[1]]);
            (cipher, cipher, plain)
        });
    }

    /// Decrypts whole blocks in place; bytes after the last whole block stay as they are.
    pub fn decrypt_pcbc(&self, iv: FcryptBlock, bytes: &mut [u8]) {
        self.pcbc(iv, bytes, |x, cipher| {
            let [left, right] = self.decrypt(cipher);
            let plain = [left ^ x[0], right ^ x[1]];
            (plain, cipher, plain)
        });
    }

    /// `step` gets the chain value and a block; it returns the block's new content, its encrypted
    /// and its plain form. The next chain value is the latter two together.
    fn pcbc(
        &self,
        iv: FcryptBlock,
        bytes: &mut [u8],
        step: impl Fn(FcryptBlock, FcryptBlock) -> (FcryptBlock, FcryptBlock, FcryptBlock),
    ) {
        let (blocks, _) = bytes.as_chunks_mut::<8>();
        let mut x = iv;
        for bytes in blocks {
            let (new, cipher, plain) = step(x, block(*bytes));
            x = [cipher[0] ^ plain[0], cipher[1] ^ plain[1]];
            *bytes = block_bytes(new);
        }
    }
}

#[inline(always)]
fn round(word: u32) -> u32 {
    let [b0, b1, b2, b3] = word.to_be_bytes().map(usize::from);
    TABLE_0[b0] ^ TABLE_1[b1] ^ TABLE_2[b2] ^ TABLE_3[b3]
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{hex, unhex};

    fn key(text: &str) -> [u8; 8] {
        unhex(text.as_bytes()).unwrap().try_into().unwrap()
    }

    fn check_text(key_text: &str, iv: &str, expected: &str) {
        let text = b"The quick brown fox jumps over the lazy dogs.\0\0\0";
        let (cipher, iv) = (Fcrypt::new(key(key_text)), block(key(iv)));
        let mut bytes = text.to_vec();
        cipher.encrypt_pcbc(iv, &mut bytes);
        assert_eq!(hex(&bytes), expected);
        cipher.decrypt_pcbc(iv, &mut bytes);
        assert_eq!(bytes, text);
    }

    #[test]
    fn fcrypt_has_the_known_vectors() {
        let zero = Fcrypt::new([0; 8]);
        assert_eq!(hex(&block_bytes(zero.encrypt([0, 0]))), "0e0900c73ef7ed41");
        assert_eq!(zero.decrypt(block(key("0e0900c73ef7ed41"))), [0, 0]);
        let subkeys = Fcrypt::new(key("f0e1d2c3b4a59687"));
        assert_eq!(subkeys.subkeys()[..4], [0x1b54_a5c3, 0x69c3_6a94, 0xc70d_386d, 0xe1f8_e1a7]);
        check_text(
            "f0e1d2c3b4a59687",
            "fedcba9876543210",
            "00f00e1175e62382eeac98624451e484c359d8aa6460aef7\
             d2d9137972a3450323b562d70cf527d1f8913cac442292ef",
        );
        check_text(
            "fedcba9876543210",
            "f0e1d2c3b4a59687",
            "ca90f59dcbd4d23c01887f3e316e629dd8e057a3063a4258\
             2a28fe72522fdde01989091c2a8e8c94fcc768e488aade0f",
        );
    }
}
