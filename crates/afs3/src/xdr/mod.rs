//! XDR as rxgen, the stub generator of AFS, speaks it.
//!
//! Model: everything is big-endian and a multiple of four bytes. [`Xdr`] says both directions of a
//! type once; `xdr_struct!` makes it from the list of the fields in wire order. Two habits of
//! rxgen differ from plain XDR:
//!
//! * `char` and `short` members have four bytes each, so an array of characters in a struct has one
//!   word a character ([`Chars`]), while `opaque` packs them ([`FixedOpaque`]).
//! * A pointer to the next element is a bool and then the element ([`XdrChain`]).
//!
//! Strings are bytes, not text: AFS names have no encoding.
//!
//! Source: OpenAFS `src/rx/xdr.c`, `src/rx/xdr_array.c`, `src/rx/xdr_arrayn.c`, `src/rxgen`.

mod arrays;
mod strings;

pub use arrays::{UNBOUNDED, XdrChain, XdrList};
pub use strings::{Chars, FixedOpaque, XdrBytes};

/// The bytes of a word, to which everything is padded.
pub const WORD_BYTES: usize = 4;

/// The reason why bytes are not the expected value, or a value has no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XdrError {
    /// The bytes end inside a value.
    #[error("too few bytes")]
    Truncated,
    /// A length or count above its limit.
    #[error("{count} elements or bytes; at most {most} are allowed")]
    TooMany {
        /// The length or count.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// A zero byte inside a string that a zero byte ends.
    #[error("zero byte inside a string")]
    ZeroByte,
    /// Bytes behind the last value.
    #[error("{0} bytes behind the last value")]
    Trailing(usize),
}

/// A type with an XDR form.
pub trait Xdr: Sized {
    /// Fewest bytes of a value: a list of so many elements has at least so many times this.
    const LEAST_BYTES: usize;

    /// Appends the value.
    fn put(&self, to: &mut XdrWriter<'_>);

    /// Takes a value off the front.
    ///
    /// # Errors
    /// [`XdrError`]: the bytes are no such value. An undefined part of them has been taken.
    fn get(from: &mut XdrReader<'_>) -> Result<Self, XdrError>;

    /// The value as bytes.
    fn to_xdr(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::LEAST_BYTES);
        self.put(&mut XdrWriter::new(&mut bytes));
        bytes
    }

    /// The value that all of the bytes stand for.
    ///
    /// # Errors
    /// [`XdrError`]: the bytes are no such value, or more than it.
    fn from_xdr(bytes: &[u8]) -> Result<Self, XdrError> {
        let mut from = XdrReader::new(bytes);
        let value = Self::get(&mut from)?;
        from.end()?;
        Ok(value)
    }
}

/// Takes values off the front of bytes.
#[derive(Clone, Debug)]
pub struct XdrReader<'a> {
    rest: &'a [u8],
}

impl<'a> XdrReader<'a> {
    /// A reader of all of the bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        XdrReader { rest: bytes }
    }

    /// The bytes that were not taken. Behind the arguments of a call they are the first ones of its
    /// stream.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(XdrError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    /// Takes a word.
    ///
    /// # Errors
    /// [`XdrError::Truncated`].
    pub fn u32(&mut self) -> Result<u32, XdrError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Takes two words, the high one first.
    ///
    /// # Errors
    /// [`XdrError::Truncated`].
    pub fn u64(&mut self) -> Result<u64, XdrError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Takes `count` bytes and their padding.
    ///
    /// # Errors
    /// [`XdrError::Truncated`].
    pub fn opaque(&mut self, count: usize) -> Result<&'a [u8], XdrError> {
        let padded = count.checked_next_multiple_of(WORD_BYTES).ok_or(XdrError::Truncated)?;
        let (head, rest) = self.rest.split_at_checked(padded).ok_or(XdrError::Truncated)?;
        self.rest = rest;
        Ok(&head[..count])
    }

    /// Takes a count of elements with `least_bytes` or more each. The elements can be there, so
    /// there may be memory for them.
    ///
    /// # Errors
    /// [`XdrError::TooMany`], [`XdrError::Truncated`].
    pub fn count(&mut self, most: usize, least_bytes: usize) -> Result<usize, XdrError> {
        let count = self.u32()? as usize;
        if count > most {
            return Err(XdrError::TooMany { count, most });
        }
        let bytes = count.checked_mul(least_bytes).ok_or(XdrError::Truncated)?;
        if bytes > self.rest.len() { Err(XdrError::Truncated) } else { Ok(count) }
    }

    /// Checks that there is nothing left.
    ///
    /// # Errors
    /// [`XdrError::Trailing`].
    pub fn end(&self) -> Result<(), XdrError> {
        if self.rest.is_empty() { Ok(()) } else { Err(XdrError::Trailing(self.rest.len())) }
    }
}

/// Appends values to bytes.
#[derive(Debug)]
pub struct XdrWriter<'v> {
    bytes: &'v mut Vec<u8>,
}

impl<'v> XdrWriter<'v> {
    /// A writer that appends to `bytes`.
    pub fn new(bytes: &'v mut Vec<u8>) -> Self {
        XdrWriter { bytes }
    }

    /// Appends a word.
    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// Appends two words, the high one first.
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// Appends bytes and their padding, without a length.
    pub fn opaque(&mut self, bytes: &[u8]) {
        let padding = bytes.len().next_multiple_of(WORD_BYTES) - bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(&[0; WORD_BYTES][..padding]);
    }
}

/// Types of one word: how they become one, and what of a word they keep.
macro_rules! words {
    ($($kind:ty: |$value:ident| $word:expr, |$from:ident| $back:expr;)*) => {$(
        impl Xdr for $kind {
            const LEAST_BYTES: usize = WORD_BYTES;

            fn put(&self, to: &mut XdrWriter<'_>) {
                let $value = *self;
                to.u32($word);
            }

            fn get(from: &mut XdrReader<'_>) -> Result<Self, XdrError> {
                let $from = from.u32()?;
                Ok($back)
            }
        }
    )*};
}

// The signed ones are sign-extended, as OpenAFS and kafs send them. A reader keeps the low bits and
// ignores the others, as OpenAFS does. Every word but 0 is true.
words! {
    u32: |value| value, |word| word;
    i32: |value| value.cast_unsigned(), |word| word.cast_signed();
    u16: |value| u32::from(value), |word| word as u16;
    i16: |value| i32::from(value).cast_unsigned(), |word| word as i16;
    u8: |value| u32::from(value), |word| word as u8;
    i8: |value| i32::from(value).cast_unsigned(), |word| word as i8;
    bool: |value| u32::from(value), |word| word != 0;
}

impl Xdr for u64 {
    const LEAST_BYTES: usize = 2 * WORD_BYTES;

    fn put(&self, to: &mut XdrWriter<'_>) {
        to.u64(*self);
    }

    fn get(from: &mut XdrReader<'_>) -> Result<Self, XdrError> {
        from.u64()
    }
}

impl Xdr for i64 {
    const LEAST_BYTES: usize = 2 * WORD_BYTES;

    fn put(&self, to: &mut XdrWriter<'_>) {
        to.u64(self.cast_unsigned());
    }

    fn get(from: &mut XdrReader<'_>) -> Result<Self, XdrError> {
        from.u64().map(u64::cast_signed)
    }
}

/// Large values of calls and answers are boxed, so that the enums stay small.
impl<T: Xdr> Xdr for Box<T> {
    const LEAST_BYTES: usize = T::LEAST_BYTES;

    fn put(&self, to: &mut XdrWriter<'_>) {
        (**self).put(to);
    }

    fn get(from: &mut XdrReader<'_>) -> Result<Self, XdrError> {
        T::get(from).map(Box::new)
    }
}

/// Structs whose members follow each other on the wire in the order in which they are written.
macro_rules! xdr_struct {
    ($(
        $(#[$doc:meta])*
        pub struct $name:ident { $( $(#[$field_doc:meta])* $field:ident: $kind:ty ),* $(,)? }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "a member is explained where its name is not enough")]
        pub struct $name { $( $(#[$field_doc])* pub $field: $kind ),* }

        impl $crate::xdr::Xdr for $name {
            const LEAST_BYTES: usize = 0 $( + <$kind as $crate::xdr::Xdr>::LEAST_BYTES )*;

            fn put(&self, to: &mut $crate::xdr::XdrWriter<'_>) {
                $( $crate::xdr::Xdr::put(&self.$field, to); )*
            }

            fn get(
                from: &mut $crate::xdr::XdrReader<'_>,
            ) -> Result<Self, $crate::xdr::XdrError> {
                $( let $field = $crate::xdr::Xdr::get(from)?; )*
                Ok($name { $( $field ),* })
            }
        }

        #[cfg(test)]
        impl $crate::sample::Sample for $name {
            fn sample(from: &mut $crate::sample::Sampler<'_>) -> Self {
                $( let $field = $crate::sample::Sample::sample(from); )*
                $name { $( $field ),* }
            }
        }
    )*};
}

pub(crate) use xdr_struct;
