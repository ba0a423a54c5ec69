//! The text form of a SHA-256, and the one that identifies a server key.

use std::fmt;
use std::str::FromStr;

use crate::{hex, unhex_array};

/// Precedes the digits.
const PREFIX: &str = "sha256:";

/// Writes a SHA-256: `sha256:` and 64 hexadecimal digits.
///
/// # Errors
/// The formatter's.
pub fn fmt_sha256(hash: &[u8; 32], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(PREFIX)?;
    f.write_str(&hex(hash))
}

/// Parses the text that [`fmt_sha256`] writes.
///
/// # Errors
/// The reason, for people, if it is no such text.
pub fn parse_sha256(text: &str) -> Result<[u8; 32], String> {
    let wrong = || "write sha256: and 64 hexadecimal digits".to_owned();
    let digits = text.strip_prefix(PREFIX).ok_or_else(wrong)?;
    unhex_array(digits.as_bytes()).ok_or_else(wrong)
}

/// Identifies a public key: the SHA-256 of its `SubjectPublicKeyInfo` in DER. All certificates for
/// one key have the same one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyPrint(pub [u8; 32]);

impl fmt::Display for KeyPrint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_sha256(&self.0, f)
    }
}

impl fmt::Debug for KeyPrint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for KeyPrint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_sha256(text).map(KeyPrint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_read_as_it_is_written_and_in_no_other_form() {
        let print = KeyPrint([0xa5; 32]);
        assert_eq!(print.to_string().parse(), Ok(print));
        let signed = format!("{PREFIX}{}", "+5".repeat(32));
        for bad in ["", PREFIX, "md5:00", &print.to_string()[1..], &format!("{print}0"), &signed] {
            assert!(bad.parse::<KeyPrint>().is_err(), "{bad}");
        }
    }
}
