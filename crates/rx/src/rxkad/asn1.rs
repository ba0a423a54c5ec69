//! The few forms of ASN.1 that tickets have, on top of the crate `der`.

use der::asn1::AnyRef;
use der::{Encode as _, Header, Reader as _, SliceReader, Tag, TagNumber};

/// A sequence of elements, read in order.
pub(super) struct Elements<'a>(SliceReader<'a>);

fn context(number: u32) -> Tag {
    Tag::ContextSpecific { constructed: true, number: TagNumber(number) }
}

/// The content of the element at the start of `bytes`, which must have this tag. Bytes after it are
/// padding.
fn content(tag: Tag, bytes: &[u8]) -> Option<&[u8]> {
    Elements(SliceReader::new(bytes).ok()?).next(tag)
}

impl<'a> Elements<'a> {
    /// The elements of a sequence that an element `[APPLICATION number]` has.
    pub(super) fn of_application(number: u32, bytes: &'a [u8]) -> Option<Self> {
        let tag = Tag::Application { constructed: true, number: TagNumber(number) };
        Elements::of_sequence(content(tag, bytes)?)
    }

    pub(super) fn of_sequence(bytes: &'a [u8]) -> Option<Self> {
        Some(Elements(SliceReader::new(content(Tag::Sequence, bytes)?).ok()?))
    }

    fn next(&mut self, tag: Tag) -> Option<&'a [u8]> {
        let header = Header::peek(&self.0).ok()?;
        if header.tag() != tag {
            return None;
        }
        let header: Header = self.0.decode().ok()?;
        self.0.read_slice(header.length()).ok()
    }

    /// The content of the next element if it is `[number]`; otherwise nothing is read.
    pub(super) fn field(&mut self, number: u32) -> Option<&'a [u8]> {
        self.next(context(number))
    }

    pub(super) fn int(&mut self, number: u32) -> Option<i64> {
        let bytes = content(Tag::Integer, self.field(number)?)?;
        let first = *bytes.first().filter(|_| bytes.len() <= 8)?;
        let sign = i64::from(first as i8) >> 7;
        Some(bytes.iter().fold(sign, |value, byte| value << 8 | i64::from(*byte)))
    }

    pub(super) fn octets(&mut self, number: u32) -> Option<&'a [u8]> {
        content(Tag::OctetString, self.field(number)?)
    }

    pub(super) fn text(&mut self, number: u32) -> Option<&'a str> {
        printable(content(Tag::GeneralString, self.field(number)?)?)
    }

    /// All elements as texts.
    pub(super) fn texts(mut self) -> Option<Vec<&'a str>> {
        let mut texts = Vec::new();
        while !self.0.is_finished() {
            texts.push(printable(self.next(Tag::GeneralString)?)?);
        }
        Some(texts)
    }

    /// Seconds since 1970.
    pub(super) fn time(&mut self, number: u32) -> Option<u32> {
        let bytes = self.field(number)?;
        let mut reader = SliceReader::new(bytes).ok()?;
        let time: der::asn1::GeneralizedTime = reader.decode().ok()?;
        u32::try_from(time.to_unix_duration().as_secs()).ok()
    }

    /// The first 32 bits of a bit string, the first one highest.
    pub(super) fn bits(&mut self, number: u32) -> Option<u32> {
        let bytes = content(Tag::BitString, self.field(number)?)?;
        let (_unused, bytes) = bytes.split_first()?;
        let mut word = [0; 4];
        word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Some(u32::from_be_bytes(word))
    }
}

fn printable(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    (!text.chars().any(char::is_control)).then_some(text)
}

fn element(tag: Tag, bytes: &[u8]) -> Vec<u8> {
    // An element here is shorter than what the encoding can have, so it always succeeds.
    AnyRef::new(tag, bytes).and_then(|any| any.to_der()).unwrap_or_default()
}

pub(super) fn put_application(number: u32, content: &[u8]) -> Vec<u8> {
    element(Tag::Application { constructed: true, number: TagNumber(number) }, content)
}

pub(super) fn put_field(number: u32, content: &[u8]) -> Vec<u8> {
    element(context(number), content)
}

pub(super) fn put_sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    element(Tag::Sequence, &parts.concat())
}

pub(super) fn put_int(value: u32) -> Vec<u8> {
    let bytes = u64::from(value).to_be_bytes();
    // The shortest form whose highest bit is the sign.
    let skip = bytes.windows(2).take_while(|two| two[0] == 0 && two[1] < 0x80).count();
    element(Tag::Integer, &bytes[skip..])
}

pub(super) fn put_octets(bytes: &[u8]) -> Vec<u8> {
    element(Tag::OctetString, bytes)
}

pub(super) fn put_text(text: &str) -> Vec<u8> {
    element(Tag::GeneralString, text.as_bytes())
}

pub(super) fn put_bits(word: u32) -> Vec<u8> {
    let [a, b, c, d] = word.to_be_bytes();
    element(Tag::BitString, &[0, a, b, c, d])
}

pub(super) fn put_time(secs: u32) -> Vec<u8> {
    let since = std::time::Duration::from_secs(u64::from(secs));
    let time = der::asn1::GeneralizedTime::from_unix_duration(since);
    time.and_then(|time| time.to_der()).unwrap_or_default()
}
