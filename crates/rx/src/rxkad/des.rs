//! DES as Kerberos uses it: key parity, weak keys, and the PCBC and CBC modes.
//!
//! Source: FIPS 46-3 for the cipher (crate `des`), RFC 3961 section 6.2 for parity and weak keys.

use ::des::Des;
use ::des::cipher::{BlockCipherDecrypt as _, BlockCipherEncrypt as _, KeyInit as _};

/// Weak and semi-weak keys, without their parity bits.
const WEAK: [u64; 16] = [
    0x0101_0101_0101_0101,
    0xfefe_fefe_fefe_fefe,
    0xe0e0_e0e0_f1f1_f1f1,
    0x1f1f_1f1f_0e0e_0e0e,
    0x011f_011f_010e_010e,
    0x1f01_1f01_0e01_0e01,
    0x01e0_01e0_01f1_01f1,
    0xe001_e001_f101_f101,
    0x01fe_01fe_01fe_01fe,
    0xfe01_fe01_fe01_fe01,
    0x1fe0_1fe0_0ef1_0ef1,
    0xe01f_e01f_f10e_f10e,
    0x1ffe_1ffe_0efe_0efe,
    0xfe1f_fe1f_fe0e_fe0e,
    0xe0fe_e0fe_f1fe_f1fe,
    0xfee0_fee0_fef1_fef1,
];

/// Sets the lowest bit of each byte so that the byte has an odd number of ones.
pub(super) fn with_parity(key: [u8; 8]) -> [u8; 8] {
    key.map(|byte| {
        let upper = byte & 0xfe;
        upper | u8::from(upper.count_ones().is_multiple_of(2))
    })
}

/// Whether the key, with its parity, is one that must not be used.
pub(super) fn is_weak(key: [u8; 8]) -> bool {
    WEAK.contains(&u64::from_be_bytes(key))
}

pub(super) struct DesKey(Des);

impl DesKey {
    pub(super) fn new(key: [u8; 8]) -> Self {
        DesKey(Des::new(&key.into()))
    }

    pub(super) fn encrypt(&self, block: u64) -> u64 {
        let mut bytes = block.to_be_bytes().into();
        self.0.encrypt_block(&mut bytes);
        u64::from_be_bytes(bytes.into())
    }

    pub(super) fn decrypt(&self, block: u64) -> u64 {
        let mut bytes = block.to_be_bytes().into();
        self.0.decrypt_block(&mut bytes);
        u64::from_be_bytes(bytes.into())
    }

    /// Decrypts whole blocks in place; plain and encrypted blocks are chained.
    pub(super) fn decrypt_pcbc(&self, iv: u64, bytes: &mut [u8]) {
        each_block(bytes, iv, |x, cipher| {
            let plain = self.decrypt(cipher) ^ x;
            (plain, plain ^ cipher)
        });
    }

    /// Encrypts whole blocks in place; plain and encrypted blocks are chained.
    pub(super) fn encrypt_pcbc(&self, iv: u64, bytes: &mut [u8]) {
        each_block(bytes, iv, |x, plain| {
            let cipher = self.encrypt(plain ^ x);
            (cipher, plain ^ cipher)
        });
    }

    /// Decrypts whole blocks in place; encrypted blocks are chained.
    pub(super) fn decrypt_cbc(&self, iv: u64, bytes: &mut [u8]) {
        each_block(bytes, iv, |x, cipher| (self.decrypt(cipher) ^ x, cipher));
    }

    /// Encrypts whole blocks in place; encrypted blocks are chained.
    #[cfg(test)]
    pub(super) fn encrypt_cbc(&self, iv: u64, bytes: &mut [u8]) {
        each_block(bytes, iv, |x, plain| {
            let cipher = self.encrypt(plain ^ x);
            (cipher, cipher)
        });
    }
}

/// `step` gets the chain value and a block, and returns the block's new content and the next value.
fn each_block(bytes: &mut [u8], iv: u64, step: impl Fn(u64, u64) -> (u64, u64)) {
    let mut x = iv;
    for block in bytes.as_chunks_mut::<8>().0 {
        let (new, next) = step(x, u64::from_be_bytes(*block));
        *block = new.to_be_bytes();
        x = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn des_has_a_known_vector_and_its_modes_invert() {
        let des = DesKey::new(0x1334_5779_9bbc_dff1_u64.to_be_bytes());
        assert_eq!(des.encrypt(0x0123_4567_89ab_cdef), 0x85e8_1354_0f0a_b405);
        let text = *b"sixteen bytes ok";
        let mut bytes = text;
        des.encrypt_pcbc(7, &mut bytes);
        des.decrypt_pcbc(7, &mut bytes);
        assert_eq!(bytes, text);
    }

    #[test]
    fn weak_keys_have_their_parity() {
        for key in WEAK {
            assert_eq!(with_parity(key.to_be_bytes()), key.to_be_bytes());
            assert!(is_weak(key.to_be_bytes()));
        }
        assert_eq!(with_parity([0; 8]), [1; 8]);
    }
}
