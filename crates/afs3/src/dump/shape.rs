//! The form of each attribute, and how many bytes of it are missing.

use super::{DumpTag, TagValue, section};
use crate::rights::STORED_ACL_BYTES;

/// The tag of contents below 4 GiB.
pub(super) const CONTENTS: u8 = b'f';
/// The tag of contents of any size.
pub(super) const LARGE_CONTENTS: u8 = b'h';
/// The first byte that begins an attribute.
const FIRST_TAG: u8 = section::LAST + 1;

/// The form of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Byte,
    Short,
    Int,
    Text,
    Array,
    Acl,
    Standard,
    Mark,
    Contents,
    LargeContents,
}

/// The form of an attribute of a section. A tag that the section does not define has a form by
/// rule: up to 0x60 a length and a value, then four bytes, and from 0x7b on nothing.
pub(super) fn shape(section: u8, tag: u8) -> Option<Shape> {
    let defined = match section {
        section::DUMP_HEADER => match tag {
            b'v' => Some(Shape::Int),
            b'n' => Some(Shape::Text),
            b't' => Some(Shape::Array),
            _ => None,
        },
        section::VOLUME_HEADER => match tag {
            b'n' | b'O' | b'M' => Some(Shape::Text),
            b's' | b'b' | b't' => Some(Shape::Byte),
            b'W' => Some(Shape::Array),
            b'C' | b'A' | b'U' | b'E' | b'B' | b'D' | b'Z' | b'V' => Some(Shape::Int),
            _ => None,
        },
        section::VNODE => match tag {
            b't' => Some(Shape::Byte),
            b'l' | b'b' => Some(Shape::Short),
            b'A' => Some(Shape::Acl),
            CONTENTS => Some(Shape::Contents),
            LARGE_CONTENTS => Some(Shape::LargeContents),
            _ => None,
        },
        _ => return None,
    };
    defined.or(match tag {
        ..=section::LAST => None,
        FIRST_TAG..=0x60 => Some(Shape::Standard),
        0x61..=0x7a => Some(Shape::Int),
        0x7b..=0x7f => Some(Shape::Mark),
        _ => None,
    })
}

/// How many bytes an attribute lacks at least; 0: it is complete. `got` begins with the tag.
pub(super) fn missing(shape: Shape, got: &[u8]) -> usize {
    let whole = match shape {
        Shape::Mark => 1,
        Shape::Byte => 2,
        Shape::Short => 3,
        Shape::Int | Shape::Contents => 5,
        Shape::LargeContents => 9,
        Shape::Acl => 1 + STORED_ACL_BYTES,
        // A string lacks one byte until its last one is zero.
        Shape::Text => match got {
            [_, .., 0] => got.len(),
            _ => got.len() + 1,
        },
        Shape::Array => match got {
            [_, high, low, ..] => 3 + 4 * usize::from(u16::from_be_bytes([*high, *low])),
            _ => 3,
        },
        Shape::Standard => standard_bytes(got),
    };
    whole.saturating_sub(got.len())
}

/// The bytes of an attribute with a length, as far as they are known. A byte below 0x80 is the
/// length; otherwise its low bits say how many bytes the length has.
fn standard_bytes(got: &[u8]) -> usize {
    match got {
        [_, first, ..] if *first < 0x80 => 2 + usize::from(*first),
        [_, first, rest @ ..] => {
            let wide = usize::from(first & 0x7f);
            match rest.get(..wide) {
                Some(length) => {
                    let add = |sum: usize, byte: &u8| {
                        sum.saturating_mul(256).saturating_add(usize::from(*byte))
                    };
                    length.iter().fold(0, add).saturating_add(2 + wide)
                }
                None => 2 + wide,
            }
        }
        _ => 2,
    }
}

/// The attribute of complete bytes. Contents are none.
pub(super) fn value(shape: Shape, got: &[u8]) -> Option<DumpTag> {
    let (tag, bytes) = got.split_first()?;
    let value = match shape {
        Shape::Mark => TagValue::Mark,
        Shape::Byte => TagValue::Byte(*bytes.first()?),
        Shape::Short => TagValue::Short(u16::from_be_bytes(bytes.try_into().ok()?)),
        Shape::Int => TagValue::Int(u32::from_be_bytes(bytes.try_into().ok()?)),
        Shape::Text => TagValue::Text(bytes.split_last()?.1.to_vec()),
        Shape::Array => {
            let (words, _) = bytes.get(2..)?.as_chunks();
            TagValue::Array(words.iter().copied().map(u32::from_be_bytes).collect())
        }
        Shape::Acl => TagValue::Acl(Box::new(bytes.try_into().ok()?)),
        Shape::Standard => TagValue::Standard(bytes.to_vec()),
        Shape::Contents | Shape::LargeContents => return None,
    };
    Some(DumpTag { tag: *tag, value })
}
