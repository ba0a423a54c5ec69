//! Encryption of tickets: the encryption types of Kerberos 5 that a cell's key may have.
//!
//! | type | name | source |
//! |---|---|---|
//! | 1, 3 | des-cbc-crc, des-cbc-md5 | RFC 3961, section 6.2 |
//! | 17, 18 | aes128- and aes256-cts-hmac-sha1-96 | RFC 3962 |
//!
//! Each begins with random bytes (the confounder) and has a checksum, so a wrong key is noticed.

use aes::cipher::{BlockCipherDecrypt as _, BlockCipherEncrypt as _};
use aes::{Aes128, Aes256};
use hmac::{Hmac, KeyInit as _, Mac as _};
use md5::{Digest as _, Md5};
use sha1::Sha1;

use super::des::DesKey;

/// Key usage of the encrypted part of a ticket.
pub(super) const TICKET_USAGE: u32 = 2;
pub(super) const AES128: i32 = 17;
pub(super) const AES256: i32 = 18;
pub(super) const DES_CBC_CRC: i32 = 1;
pub(super) const DES_CBC_MD5: i32 = 3;
const AES_BLOCK: usize = 16;
const HMAC_BYTES: usize = 12;

enum AesKey {
    Short(Box<Aes128>),
    Long(Box<Aes256>),
}

impl AesKey {
    fn new(key: &[u8]) -> Option<Self> {
        match key.len() {
            16 => Aes128::new_from_slice(key).ok().map(|key| AesKey::Short(Box::new(key))),
            32 => Aes256::new_from_slice(key).ok().map(|key| AesKey::Long(Box::new(key))),
            _ => None,
        }
    }

    fn encrypt(&self, block: &mut [u8; AES_BLOCK]) {
        let mut array = (*block).into();
        match self {
            AesKey::Short(key) => key.encrypt_block(&mut array),
            AesKey::Long(key) => key.encrypt_block(&mut array),
        }
        *block = array.into();
    }

    fn decrypt(&self, block: &mut [u8; AES_BLOCK]) {
        let mut array = (*block).into();
        match self {
            AesKey::Short(key) => key.decrypt_block(&mut array),
            AesKey::Long(key) => key.decrypt_block(&mut array),
        }
        *block = array.into();
    }

    /// CBC with ciphertext stealing: the last two blocks change places, and the last one, cut to
    /// its length, needs no padding. RFC 3962, section 5. At least one whole block.
    fn encrypt_cts(&self, bytes: &mut [u8]) {
        let len = bytes.len();
        let mut padded = bytes.to_vec();
        padded.resize(len.next_multiple_of(AES_BLOCK), 0);
        let blocks = padded.as_chunks_mut::<AES_BLOCK>().0;
        let mut chain = [0; AES_BLOCK];
        for block in &mut *blocks {
            xor(block, &chain);
            self.encrypt(block);
            chain = *block;
        }
        if let [.., before, last] = blocks {
            std::mem::swap(before, last);
        }
        bytes.copy_from_slice(&padded[..len]);
    }

    /// Inverts [`Self::encrypt_cts`].
    fn decrypt_cts(&self, bytes: &mut [u8]) {
        let len = bytes.len();
        if len <= AES_BLOCK {
            if let Some(block) = bytes.first_chunk_mut::<AES_BLOCK>() {
                self.decrypt(block);
            }
            return;
        }
        let tail_bytes = (len - 1) % AES_BLOCK + 1;
        let (head, rest) = bytes.split_at_mut(len - tail_bytes - AES_BLOCK);
        let mut chain = [0; AES_BLOCK];
        for block in head.as_chunks_mut::<AES_BLOCK>().0 {
            let cipher = *block;
            self.decrypt(block);
            xor(block, &chain);
            chain = cipher;
        }
        let (first, tail) = rest.split_at_mut(AES_BLOCK);
        // The first of the two is the last block encrypted; what it hides completes the other.
        let mut hidden = [0; AES_BLOCK];
        hidden.copy_from_slice(first);
        self.decrypt(&mut hidden);
        let mut before = hidden;
        before[..tail_bytes].copy_from_slice(tail);
        for (plain, (hidden, cipher)) in tail.iter_mut().zip(hidden.iter().zip(&before)) {
            *plain = hidden ^ cipher;
        }
        self.decrypt(&mut before);
        xor(&mut before, &chain);
        first.copy_from_slice(&before);
    }

    /// Derives a key of `bytes` bytes for a purpose. RFC 3961, section 5.1.
    fn derive(&self, constant: &[u8], bytes: usize) -> Option<Vec<u8>> {
        let mut block: [u8; AES_BLOCK] = n_fold(constant, AES_BLOCK).try_into().ok()?;
        let mut key = Vec::with_capacity(bytes);
        while key.len() < bytes {
            self.encrypt(&mut block);
            key.extend_from_slice(&block);
        }
        key.truncate(bytes);
        Some(key)
    }
}

fn xor(block: &mut [u8; AES_BLOCK], other: &[u8; AES_BLOCK]) {
    block.iter_mut().zip(other).for_each(|(byte, other)| *byte ^= other);
}

/// Stretches or shrinks bytes so that each bit counts. RFC 3961, section 5.1: copies of the input,
/// each rotated right by 13 bits more than the one before, are added in ones' complement.
fn n_fold(input: &[u8], bytes: usize) -> Vec<u8> {
    let gcd = |mut a: usize, mut b: usize| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let bits = 8 * input.len();
    let total = input.len() * bytes / gcd(input.len(), bytes);
    let byte = |at: usize| {
        let (copy, at) = (at / input.len(), at % input.len());
        let start = (8 * at + bits - 13 * copy % bits) % bits;
        (0..8).fold(0u8, |byte, bit| {
            let place = (start + bit) % bits;
            byte << 1 | (input[place / 8] >> (7 - place % 8) & 1)
        })
    };
    let mut sums = vec![0u32; bytes];
    (0..total).for_each(|at| sums[at % bytes] += u32::from(byte(at)));
    // Carries go around from the first byte to the last until there are none.
    loop {
        let mut carry = 0;
        for sum in sums.iter_mut().rev() {
            let with = *sum + carry;
            (*sum, carry) = (with & 0xff, with >> 8);
        }
        if carry == 0 {
            return sums.iter().map(|sum| *sum as u8).collect();
        }
        if let Some(last) = sums.last_mut() {
            *last += carry;
        }
    }
}

fn aes_keys(kind: i32, key: &[u8], usage: u32) -> Option<(AesKey, Vec<u8>)> {
    let bytes = if kind == AES128 { 16 } else { 32 };
    if key.len() != bytes {
        return None;
    }
    let base = AesKey::new(key)?;
    let constant = |purpose: u8| {
        let [a, b, c, d] = usage.to_be_bytes();
        [a, b, c, d, purpose]
    };
    let seal = AesKey::new(&base.derive(&constant(0xaa), bytes)?)?;
    Some((seal, base.derive(&constant(0x55), bytes)?))
}

/// The plain text, perhaps with padding after it; `None` if the type is not known, or the key or
/// the text is wrong.
pub(super) fn decrypt(kind: i32, key: &[u8], usage: u32, cipher: &[u8]) -> Option<Vec<u8>> {
    match kind {
        AES128 | AES256 => {
            let (seal, check_key) = aes_keys(kind, key, usage)?;
            let at = cipher.len().checked_sub(HMAC_BYTES).filter(|at| *at >= AES_BLOCK)?;
            let (text, check) = cipher.split_at(at);
            let mut text = text.to_vec();
            seal.decrypt_cts(&mut text);
            let mut mac = Hmac::<Sha1>::new_from_slice(&check_key).ok()?;
            mac.update(&text);
            mac.verify_truncated_left(check).ok()?;
            Some(text.split_off(AES_BLOCK))
        }
        DES_CBC_CRC | DES_CBC_MD5 => decrypt_des(kind, key.try_into().ok()?, cipher),
        _ => None,
    }
}

fn decrypt_des(kind: i32, key: [u8; 8], cipher: &[u8]) -> Option<Vec<u8>> {
    let check_bytes = if kind == DES_CBC_CRC { 4 } else { 16 };
    if !cipher.len().is_multiple_of(8) || cipher.len() < 8 + check_bytes {
        return None;
    }
    let iv = if kind == DES_CBC_CRC { u64::from_be_bytes(key) } else { 0 };
    let mut text = cipher.to_vec();
    DesKey::new(key).decrypt_cbc(iv, &mut text);
    let check = text[8..8 + check_bytes].to_vec();
    text[8..8 + check_bytes].fill(0);
    let is_right = if kind == DES_CBC_CRC {
        check == crc32(&text).to_le_bytes()
    } else {
        check == Md5::digest(&text)[..]
    };
    is_right.then(|| text.split_off(8 + check_bytes))
}

/// CRC-32 that begins with zero and is not inverted, as Kerberos has it.
fn crc32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 }
        })
    })
}

/// The encrypted text; `None` if this type and key are not for encryption here.
pub(super) fn encrypt(
    kind: i32,
    key: &[u8],
    usage: u32,
    confounder: [u8; AES_BLOCK],
    plain: &[u8],
) -> Option<Vec<u8>> {
    if kind != AES128 && kind != AES256 {
        return None;
    }
    let (seal, check_key) = aes_keys(kind, key, usage)?;
    let mut text = [&confounder, plain].concat();
    let mut mac = Hmac::<Sha1>::new_from_slice(&check_key).ok()?;
    mac.update(&text);
    seal.encrypt_cts(&mut text);
    text.extend_from_slice(&mac.finalize().into_bytes()[..HMAC_BYTES]);
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{hex, unhex};

    #[test]
    fn n_fold_has_the_vectors_of_the_rfc() {
        assert_eq!(hex(&n_fold(b"012345", 8)), "be072631276b1955");
        assert_eq!(hex(&n_fold(b"password", 7)), "78a07b6caf85fa");
        assert_eq!(hex(&n_fold(b"kerberos", 16)), "6b65726265726f737b9b5b2b93132b93");
        assert_eq!(hex(&n_fold(b"Rough Consensus, and Running Code", 8)), "bb6ed30870b7f0e0");
    }

    #[test]
    fn ciphertext_stealing_has_the_vectors_of_the_rfc() {
        let key = AesKey::new(&unhex(b"636869636b656e207465726979616b69").unwrap()).unwrap();
        let text = b"I would like the General Gau's Chicken, please, and wonton soup.";
        for (len, expected) in [
            (17, "c6353568f2bf8cb4d8a580362da7ff7f97"),
            (31, "fc00783e0efdb2c1d445d4c8eff7ed2297687268d6ecccc0c07b25e25ecfe5"),
            (32, "39312523a78662d5be7fcbcc98ebf5a897687268d6ecccc0c07b25e25ecfe584"),
        ] {
            let mut bytes = text[..len].to_vec();
            key.encrypt_cts(&mut bytes);
            assert_eq!(hex(&bytes), expected);
            key.decrypt_cts(&mut bytes);
            assert_eq!(bytes, text[..len]);
        }
        for len in 16..=64 {
            let mut bytes = text[..len].to_vec();
            key.encrypt_cts(&mut bytes);
            key.decrypt_cts(&mut bytes);
            assert_eq!(bytes, text[..len]);
        }
    }

    #[test]
    fn sealed_text_opens_with_its_key_only() {
        for (kind, bytes) in [(AES128, 16), (AES256, 32)] {
            let key = vec![7; bytes];
            let sealed = encrypt(kind, &key, TICKET_USAGE, [9; 16], b"text").unwrap();
            assert_eq!(decrypt(kind, &key, TICKET_USAGE, &sealed).unwrap(), b"text");
            assert_eq!(decrypt(kind, &key, 3, &sealed), None);
            assert_eq!(decrypt(kind, &vec![8; bytes], TICKET_USAGE, &sealed), None);
            assert_eq!(decrypt(kind, &key, TICKET_USAGE, &sealed[1..]), None);
        }
    }

    #[test]
    fn des_tickets_open_with_their_checksum() {
        let key = [0x13, 0x34, 0x57, 0x79, 0x9b, 0xbc, 0xdf, 0xf1];
        for (kind, check_bytes) in [(DES_CBC_CRC, 4), (DES_CBC_MD5, 16)] {
            let mut text = [&[1; 8][..], &[0; 16][..check_bytes], b"text"].concat();
            text.resize(text.len().next_multiple_of(8), 0);
            let check = match kind {
                DES_CBC_CRC => crc32(&text).to_le_bytes().to_vec(),
                _ => Md5::digest(&text).to_vec(),
            };
            text[8..8 + check_bytes].copy_from_slice(&check);
            let iv = if kind == DES_CBC_CRC { u64::from_be_bytes(key) } else { 0 };
            DesKey::new(key).encrypt_cbc(iv, &mut text);
            assert!(decrypt(kind, &key, TICKET_USAGE, &text).unwrap().starts_with(b"text"));
            text[9] ^= 1;
            assert_eq!(decrypt(kind, &key, TICKET_USAGE, &text), None);
        }
    }
}
