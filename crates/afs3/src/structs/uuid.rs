//! The identity of a host: a DCE UUID.

use std::fmt;

use crate::xdr::{WORD_BYTES, Xdr, XdrError, XdrReader, XdrWriter};

/// A UUID: of a file server, or of a client.
///
/// It has eleven words on the wire. The single bytes are sign-extended there: 0x80 is 0xffffff80.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AfsUuid(pub [u8; 16]);

impl Xdr for AfsUuid {
    const LEAST_BYTES: usize = 11 * WORD_BYTES;

    fn put(&self, to: &mut XdrWriter<'_>) {
        let [l0, l1, l2, l3, m0, m1, h0, h1, single @ ..] = self.0;
        u32::from_be_bytes([l0, l1, l2, l3]).put(to);
        u16::from_be_bytes([m0, m1]).put(to);
        u16::from_be_bytes([h0, h1]).put(to);
        single.iter().for_each(|byte| byte.cast_signed().put(to));
    }

    fn get(from: &mut XdrReader<'_>) -> Result<Self, XdrError> {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&u32::get(from)?.to_be_bytes());
        bytes[4..6].copy_from_slice(&u16::get(from)?.to_be_bytes());
        bytes[6..8].copy_from_slice(&u16::get(from)?.to_be_bytes());
        for byte in &mut bytes[8..] {
            *byte = u8::get(from)?;
        }
        Ok(AfsUuid(bytes))
    }
}

impl fmt::Display for AfsUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (no, byte) in self.0.iter().enumerate() {
            let hyphen = if matches!(no, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{hyphen}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for AfsUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
impl crate::sample::Sample for AfsUuid {
    fn sample(from: &mut crate::sample::Sampler<'_>) -> Self {
        AfsUuid(crate::sample::Sample::sample(from))
    }
}
