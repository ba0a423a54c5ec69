//! The session key of rxkad, which is eight bytes, from a Kerberos 5 session key of any kind
//! (`rxkad-kdf`). Client and server both compute it.
//!
//! Source: OpenAFS `src/rxkad/ticket5.c` (`tkt_DeriveDesKey`).

use hmac::{Hmac, KeyInit as _, Mac as _};
use md5::Md5;

use super::des::{is_weak, with_parity};

/// Kerberos encryption types that are DES: their keys are used as they are.
const DES_TYPES: [i32; 3] = [1, 2, 3];
/// Those that are triple DES: the eighth byte of each eight has only parity bits.
const TRIPLE_DES_TYPES: [i32; 3] = [5, 7, 16];
/// Types of keys that are no session keys: signatures, and those that were never given out.
const REFUSED: [i32; 11] = [0, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15];
const LABEL: &[u8] = b"rxkad\0\0\0\0\x40";

/// The rxkad session key for a Kerberos 5 session key of encryption type `key_type`. `None`: the
/// type, or the key's length, is not one that can be used.
pub fn session_key_from_krb5(key_type: i32, key: &[u8]) -> Option<[u8; 8]> {
    if DES_TYPES.contains(&key_type) {
        return key.try_into().ok();
    }
    if key_type < 0 || REFUSED.contains(&key_type) {
        return None;
    }
    let squeezed;
    let key = if TRIPLE_DES_TYPES.contains(&key_type) {
        squeezed = squeeze(key)?;
        &squeezed
    } else {
        key
    };
    if key.len() < 7 {
        return None;
    }
    (1..=255).find_map(|count: u8| {
        let mut mac = Hmac::<Md5>::new_from_slice(key).ok()?;
        mac.update(&[count]);
        mac.update(LABEL);
        let digest = mac.finalize().into_bytes();
        let derived = with_parity(*digest.first_chunk::<8>()?);
        (!is_weak(derived)).then_some(derived)
    })
}

/// Seven bytes of each eight: the lowest bit of byte j is bit j + 1 of the eighth one.
fn squeeze(key: &[u8]) -> Option<Vec<u8>> {
    let (groups, rest) = key.as_chunks::<8>();
    if !rest.is_empty() {
        return None;
    }
    let squeeze = |group: &[u8; 8]| {
        let [first @ .., eighth] = *group;
        let mut at = 0;
        first.map(|byte| {
            at += 1;
            (byte & 0xfe) | (eighth >> at & 1)
        })
    };
    Some(groups.iter().flat_map(squeeze).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::hex;

    #[test]
    fn an_aes_key_gives_the_known_session_key() {
        let key: Vec<u8> = (0..32).collect();
        assert_eq!(hex(&session_key_from_krb5(18, &key).unwrap()), "b60db5e30b266b16");
        assert_eq!(session_key_from_krb5(15, &key), None);
        assert_eq!(session_key_from_krb5(-1, &key), None);
        assert_eq!(session_key_from_krb5(1, &key), None);
        assert_eq!(session_key_from_krb5(1, &[7; 8]), Some([7; 8]));
    }

    #[test]
    fn triple_des_keys_lose_their_parity_bytes() {
        let group = [0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0b1010_1010];
        assert_eq!(squeeze(&group).unwrap(), [0x11, 0x20, 0x31, 0x40, 0x51, 0x60, 0x71]);
        assert_eq!(squeeze(&group[..7]), None);
        assert!(session_key_from_krb5(16, &group.repeat(3)).is_some());
    }
}
