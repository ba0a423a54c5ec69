//! Bounded reading and writing of little-endian fields.
//!
//! A [`FieldReader`] never reads past its bytes, and returns a count only after it has checked that
//! the elements can be there, so that a caller never allocates for what a peer merely claims. A
//! [`Writer`] refuses a message that no reader would accept.

use bytes::Bytes;
use types::limits::{MESSAGE_BYTES_MAX, NAME_BYTES_MAX};
use types::{Fid, Name, NameError, Timestamp};

/// The reason why bytes are no message. Refused bytes cause no allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The message ends inside a field.
    #[error("message is too short")]
    Truncated,
    /// Bytes after the last field.
    #[error("{0} bytes after the end of the message")]
    Trailing(usize),
    /// The first bytes are not those of this protocol.
    #[error("not a frame of this protocol")]
    BadMagic,
    /// A version that the hello did not agree on.
    #[error("protocol version {0} is not supported")]
    BadVersion(u16),
    /// A value without a meaning.
    #[error("{what}: {value} is not a known value")]
    BadValue {
        /// The field's name.
        what: &'static str,
        /// The field's value.
        value: u64,
    },
    /// A count or length above its limit.
    #[error("{what}: {value} is more than {max}")]
    TooMuch {
        /// The field's name.
        what: &'static str,
        /// The field's value.
        value: u64,
        /// The limit.
        max: u64,
    },
    /// A name that breaks the rules for names.
    #[error("bad name: {0}")]
    BadName(#[from] NameError),
    /// Text that is not UTF-8.
    #[error("text is not UTF-8")]
    BadText,
    /// The sum over the frame does not match.
    #[error("checksum does not match")]
    BadChecksum,
    /// Payload where none belongs, or one that does not fit the message.
    #[error("payload does not fit the message")]
    BadPayload,
}

/// Takes fields off the front of a message.
#[derive(Debug)]
pub(crate) struct FieldReader<'a> {
    rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        FieldReader { rest: message }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Result<u128, WireError> {
        self.array().map(u128::from_le_bytes)
    }

    pub(crate) fn bool(&mut self, what: &'static str) -> Result<bool, WireError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(WireError::BadValue { what, value: value.into() }),
        }
    }

    /// A reserved byte, which must be 0.
    pub(crate) fn padding(&mut self) -> Result<(), WireError> {
        match self.u8()? {
            0 => Ok(()),
            value => Err(WireError::BadValue { what: "padding", value: value.into() }),
        }
    }

    /// A byte that stands for one of the values of `from`.
    pub(crate) fn choice<T>(
        &mut self,
        what: &'static str,
        from: fn(u8) -> Option<T>,
    ) -> Result<T, WireError> {
        let value = self.u8()?;
        from(value).ok_or(WireError::BadValue { what, value: value.into() })
    }

    pub(crate) fn fid(&mut self) -> Result<Fid, WireError> {
        Ok(Fid::new(self.u64()?, self.u64()?, self.u64()?))
    }

    pub(crate) fn timestamp(&mut self) -> Result<Timestamp, WireError> {
        let secs = i64::from_le_bytes(self.array()?);
        let nanos = self.u32()?;
        if nanos > 999_999_999 {
            return Err(WireError::BadValue { what: "nanoseconds", value: nanos.into() });
        }
        Ok(Timestamp { secs, nanos })
    }

    /// The length of a variable part, at most `max`.
    pub(crate) fn length16(&mut self, what: &'static str, max: usize) -> Result<usize, WireError> {
        let value = usize::from(self.u16()?);
        limit(what, value, max).map(|()| value)
    }

    /// The length of a variable part, at most `max`.
    pub(crate) fn length32(&mut self, what: &'static str, max: usize) -> Result<usize, WireError> {
        let value = self.u32()? as usize;
        limit(what, value, max).map(|()| value)
    }

    /// Checks that `count` elements of at least `element_bytes_min` bytes each can follow.
    pub(crate) fn check_room(
        &self,
        count: usize,
        element_bytes_min: usize,
    ) -> Result<(), WireError> {
        match count.checked_mul(element_bytes_min) {
            Some(bytes) if bytes <= self.rest.len() => Ok(()),
            _ => Err(WireError::Truncated),
        }
    }

    pub(crate) fn name(&mut self, length: usize) -> Result<Name, WireError> {
        Ok(Name::new(self.bytes(length)?)?)
    }

    /// `length` bytes, copied out of the message.
    pub(crate) fn owned(&mut self, length: usize) -> Result<Bytes, WireError> {
        self.bytes(length).map(Bytes::copy_from_slice)
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn end(self) -> Result<(), WireError> {
        match self.rest.len() {
            0 => Ok(()),
            more => Err(WireError::Trailing(more)),
        }
    }
}

pub(crate) fn limit(what: &'static str, value: usize, max: usize) -> Result<(), WireError> {
    match value > max {
        true => Err(WireError::TooMuch { what, value: value as u64, max: max as u64 }),
        false => Ok(()),
    }
}

/// Appends fields to a message. The writer remembers the first broken limit and [`Writer::end`]
/// reports it, so that a layout reads as one run of calls.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    broken: Option<WireError>,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Writer::default()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.raw(&[value])
    }

    pub(crate) fn bool(&mut self, value: bool) -> &mut Self {
        self.u8(value.into())
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u128(&mut self, value: u128) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(crate) fn fid(&mut self, fid: Fid) -> &mut Self {
        self.u64(fid.volume.0).u64(fid.vnode.0).u64(fid.unique.0)
    }

    pub(crate) fn timestamp(&mut self, time: Timestamp) -> &mut Self {
        self.require(time.nanos <= 999_999_999, "nanoseconds", time.nanos.into());
        self.raw(&time.secs.to_le_bytes()).u32(time.nanos)
    }

    /// The length of a name whose bytes follow later.
    pub(crate) fn name_length(&mut self, name: &Name) -> &mut Self {
        self.length16("name bytes", name.as_bytes().len(), NAME_BYTES_MAX)
    }

    pub(crate) fn name(&mut self, name: &Name) -> &mut Self {
        self.raw(name.as_bytes())
    }

    pub(crate) fn length16(&mut self, what: &'static str, value: usize, max: usize) -> &mut Self {
        debug_assert!(max <= usize::from(u16::MAX));
        self.break_on(limit(what, value, max));
        self.u16(value as u16)
    }

    pub(crate) fn length32(&mut self, what: &'static str, value: usize, max: usize) -> &mut Self {
        debug_assert!(max <= u32::MAX as usize);
        self.break_on(limit(what, value, max));
        self.u32(value as u32)
    }

    pub(crate) fn require(&mut self, good: bool, what: &'static str, value: u64) -> &mut Self {
        if !good {
            self.break_on(Err(WireError::BadValue { what, value }));
        }
        self
    }

    pub(crate) fn break_on(&mut self, check: Result<(), WireError>) -> &mut Self {
        if let Err(error) = check {
            self.broken.get_or_insert(error);
        }
        self
    }

    /// Overwrites a count that was not known when it was written at `at`.
    pub(crate) fn patch_u32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Overwrites a byte that was not known when it was written at `at`.
    pub(crate) fn patch_u8(&mut self, at: usize, value: u8) {
        self.bytes[at] = value;
    }

    /// The message, unless a limit was broken.
    pub(crate) fn end(self) -> Result<Vec<u8>, WireError> {
        match self.broken {
            Some(error) => Err(error),
            None => {
                limit("message bytes", self.bytes.len(), MESSAGE_BYTES_MAX).map(|()| self.bytes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_refused_before_room_is_made_for_it() {
        let reader = FieldReader::new(&[0; 48]);
        assert_eq!(reader.check_room(2, 24), Ok(()));
        assert_eq!(reader.check_room(3, 24), Err(WireError::Truncated));
        assert_eq!(reader.check_room(usize::MAX, 24), Err(WireError::Truncated));
    }

    #[test]
    fn the_first_broken_limit_is_reported() {
        let mut writer = Writer::new();
        writer.length16("first", 3, 2).length16("second", 9, 2).u8(1);
        assert_eq!(writer.end(), Err(WireError::TooMuch { what: "first", value: 3, max: 2 }));
    }

    #[test]
    fn bytes_after_the_last_field_are_refused() {
        let mut reader = FieldReader::new(&[1, 0, 7]);
        assert_eq!(reader.u16(), Ok(1));
        assert_eq!(reader.end(), Err(WireError::Trailing(1)));
    }
}
