//! Strings and opaque bytes.

use std::fmt;

use super::{WORD_BYTES, Xdr, XdrError, XdrReader, XdrWriter};

/// `string<MAX>` and `opaque<MAX>`: a length and so many bytes.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct XdrBytes<const MAX: usize>(Vec<u8>);

impl<const MAX: usize> XdrBytes<MAX> {
    /// The bytes, if there are not too many.
    ///
    /// # Errors
    /// [`XdrError::TooMany`].
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, XdrError> {
        let bytes = bytes.into();
        match bytes.len() {
            count if count > MAX => Err(XdrError::TooMany { count, most: MAX }),
            _ => Ok(XdrBytes(bytes)),
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, without a copy.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl<const MAX: usize> fmt::Debug for XdrBytes<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl<const MAX: usize> Xdr for XdrBytes<MAX> {
    const LEAST_BYTES: usize = WORD_BYTES;

    fn put(&self, to: &mut XdrWriter<'_>) {
        to.u32(self.0.len() as u32);
        to.opaque(&self.0);
    }

    fn get(from: &mut XdrReader<'_>) -> Result<Self, XdrError> {
        let count = from.count(MAX, 1)?;
        from.opaque(count).map(|bytes| XdrBytes(bytes.to_vec()))
    }
}

/// `opaque[N]`: N bytes, packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedOpaque<const N: usize>(pub [u8; N]);

impl<const N: usize> Xdr for FixedOpaque<N> {
    const LEAST_BYTES: usize = N.next_multiple_of(WORD_BYTES);

    fn put(&self, to: &mut XdrWriter<'_>) {
        to.opaque(&self.0);
    }

    fn get(from: &mut XdrReader<'_>) -> Result<Self, XdrError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(from.opaque(N)?);
        Ok(FixedOpaque(bytes))
    }
}

/// `char[N]` in a struct: N words, of which each has one byte of a string that a zero byte ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Chars<const N: usize>(pub [u8; N]);

impl<const N: usize> Chars<N> {
    /// The string, with zero bytes behind it.
    ///
    /// # Errors
    /// [`XdrError::TooMany`]: there is no room for a zero byte; [`XdrError::ZeroByte`].
    pub fn new(text: &[u8]) -> Result<Self, XdrError> {
        let (count, most) = (text.len(), N.saturating_sub(1));
        if count > most {
            return Err(XdrError::TooMany { count, most });
        }
        if text.contains(&0) {
            return Err(XdrError::ZeroByte);
        }
        let mut all = [0; N];
        all[..count].copy_from_slice(text);
        Ok(Chars(all))
    }

    /// The bytes before the first zero byte; all, if there is none.
    pub fn text(&self) -> &[u8] {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(N);
        &self.0[..end]
    }
}

impl<const N: usize> fmt::Debug for Chars<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl<const N: usize> Xdr for Chars<N> {
    const LEAST_BYTES: usize = N * WORD_BYTES;

    fn put(&self, to: &mut XdrWriter<'_>) {
        // `char` is signed where OpenAFS is at home, and its sign is extended.
        self.0.iter().for_each(|byte| byte.cast_signed().put(to));
    }

    fn get(from: &mut XdrReader<'_>) -> Result<Self, XdrError> {
        let mut all = [0; N];
        for byte in &mut all {
            *byte = u8::get(from)?;
        }
        Ok(Chars(all))
    }
}

#[cfg(test)]
mod drawn {
    use super::{Chars, FixedOpaque, XdrBytes};
    use crate::sample::{Sample, Sampler};

    impl<const MAX: usize> Sample for XdrBytes<MAX> {
        fn sample(from: &mut Sampler<'_>) -> Self {
            let count = usize::from(u8::sample(from)) % 12 % (MAX + 1);
            XdrBytes((0..count).map(|_| u8::sample(from)).collect())
        }
    }

    impl<const N: usize> Sample for FixedOpaque<N> {
        fn sample(from: &mut Sampler<'_>) -> Self {
            FixedOpaque(std::array::from_fn(|_| u8::sample(from)))
        }
    }

    impl<const N: usize> Sample for Chars<N> {
        fn sample(from: &mut Sampler<'_>) -> Self {
            Chars(std::array::from_fn(|_| u8::sample(from)))
        }
    }
}
