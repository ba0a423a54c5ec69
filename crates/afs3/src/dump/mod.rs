//! The stream of a volume dump, as `vos dump` writes it and servers send it to each other.
//!
//! Model: a stream is sections: the dump's header, the volume's header, one for each vnode, and the
//! end. A section begins with a byte up to 20 and has *attributes*, which begin with a byte above:
//! the tag. The section and the tag tell the attribute's [`Shape`]; tags that no one has given a
//! meaning have one by rule. A file's contents are an attribute too. [`DumpParser`] makes
//! [`DumpItem`]s of the bytes, in pieces as they arrive, and [`DumpItem::encode`] makes the same
//! bytes of them: nothing is lost, not even attributes that are unknown here.
//!
//! [`VolumeAttributes`] and [`VnodeAttributes`] are what the attributes of a section say, in the
//! order in which OpenAFS writes them.
//!
//! Source: OpenAFS `src/volser/dump.h`, `src/volser/dumpstuff.c`; cmu-dumpscan `dumpfmt.h`.

mod attributes;
mod parser;
mod shape;

pub use attributes::{DumpAttributes, VnodeAttributes, VolumeAttributes};
pub use parser::{DumpParser, SECTION_BYTES_MAX};

use crate::rights::STORED_ACL_BYTES;

/// The version of a dump.
pub const DUMP_VERSION: u32 = 1;
const BEGIN_MAGIC: u32 = 0xb3a1_1322;
const END_MAGIC: u32 = 0x3a21_4b6e;

/// The first bytes of sections.
mod section {
    pub(super) const DUMP_HEADER: u8 = 1;
    pub(super) const VOLUME_HEADER: u8 = 2;
    pub(super) const VNODE: u8 = 3;
    pub(super) const END: u8 = 4;
    /// The last byte that begins a section.
    pub(super) const LAST: u8 = 20;
}

/// Whether the first bytes of a file are those of a dump.
pub fn is_dump(front: &[u8]) -> bool {
    let rest = front.strip_prefix(&[section::DUMP_HEADER]);
    rest.is_some_and(|rest| rest.starts_with(&BEGIN_MAGIC.to_be_bytes()))
}

/// An attribute of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpTag {
    /// The first byte.
    pub tag: u8,
    /// The value.
    pub value: TagValue,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagValue {
    /// A byte.
    Byte(u8),
    /// Two bytes.
    Short(u16),
    /// Four bytes.
    Int(u32),
    /// A string without zero bytes.
    Text(Vec<u8>),
    /// At most 65535 numbers.
    Array(Vec<u32>),
    /// A directory's access list ([`StoredAcl`](crate::rights::StoredAcl)).
    Acl(Box<[u8; STORED_ACL_BYTES]>),
    /// An unknown attribute with a length, as it came: the length's bytes, then so many.
    Standard(Vec<u8>),
    /// An attribute that has only its tag.
    Mark,
}

/// A part of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DumpItem<'a> {
    /// The dump's header: always the first.
    Header {
        /// The version of the dump.
        version: u32,
        /// The attributes.
        tags: Vec<DumpTag>,
    },
    /// The volume's header. In merged dumps there is one for each; the last one counts.
    VolumeHeader {
        /// The attributes.
        tags: Vec<DumpTag>,
    },
    /// A vnode. One without attributes exists and did not change.
    Vnode {
        /// Its number: odd for directories.
        vnode: u32,
        /// Its uniquifier.
        unique: u32,
        /// The attributes before the contents.
        tags: Vec<DumpTag>,
    },
    /// The contents of the last vnode follow.
    Contents {
        /// Their size.
        bytes: u64,
        /// The size is written with eight bytes, as it must be from 4 GiB on.
        wide: bool,
    },
    /// A piece of the contents.
    Piece(&'a [u8]),
    /// Attributes of the last vnode that come behind its contents. OpenAFS writes none.
    Further {
        /// The attributes.
        tags: Vec<DumpTag>,
    },
    /// The end.
    End,
}

impl DumpItem<'_> {
    /// Appends the item as it is in a dump.
    pub fn encode(&self, to: &mut Vec<u8>) {
        match self {
            DumpItem::Header { version, tags } => {
                to.push(section::DUMP_HEADER);
                to.extend_from_slice(&BEGIN_MAGIC.to_be_bytes());
                to.extend_from_slice(&version.to_be_bytes());
                put_tags(to, tags);
            }
            DumpItem::VolumeHeader { tags } => {
                to.push(section::VOLUME_HEADER);
                put_tags(to, tags);
            }
            DumpItem::Vnode { vnode, unique, tags } => {
                to.push(section::VNODE);
                to.extend_from_slice(&vnode.to_be_bytes());
                to.extend_from_slice(&unique.to_be_bytes());
                put_tags(to, tags);
            }
            DumpItem::Contents { bytes, wide } => {
                let narrow = u32::try_from(*bytes).ok().filter(|_| !wide);
                match narrow {
                    Some(bytes) => {
                        to.push(shape::CONTENTS);
                        to.extend_from_slice(&bytes.to_be_bytes());
                    }
                    None => {
                        to.push(shape::LARGE_CONTENTS);
                        to.extend_from_slice(&bytes.to_be_bytes());
                    }
                }
            }
            DumpItem::Piece(bytes) => to.extend_from_slice(bytes),
            DumpItem::Further { tags } => put_tags(to, tags),
            DumpItem::End => {
                to.push(section::END);
                to.extend_from_slice(&END_MAGIC.to_be_bytes());
            }
        }
    }
}

fn put_tags(to: &mut Vec<u8>, tags: &[DumpTag]) {
    for DumpTag { tag, value } in tags {
        to.push(*tag);
        match value {
            TagValue::Byte(value) => to.push(*value),
            TagValue::Short(value) => to.extend_from_slice(&value.to_be_bytes()),
            TagValue::Int(value) => to.extend_from_slice(&value.to_be_bytes()),
            TagValue::Text(text) => {
                to.extend_from_slice(text);
                to.push(0);
            }
            TagValue::Array(all) => {
                to.extend_from_slice(&(all.len() as u16).to_be_bytes());
                all.iter().for_each(|one| to.extend_from_slice(&one.to_be_bytes()));
            }
            TagValue::Acl(bytes) => to.extend_from_slice(&bytes[..]),
            TagValue::Standard(bytes) => to.extend_from_slice(bytes),
            TagValue::Mark => {}
        }
    }
}

/// The reason why bytes are no dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DumpStreamError {
    /// The stream does not begin or end with the right number, or is no dump at all.
    #[error("this is no volume dump")]
    BadMagic,
    /// A section begins where it must not.
    #[error("section {0} of the dump is out of place")]
    BadSection(u8),
    /// An attribute without any rule.
    #[error("attribute {0} of the dump is not understood")]
    BadTag(u8),
    /// The attributes of a section are larger than any real ones.
    #[error("a section of the dump has more than {SECTION_BYTES_MAX} bytes of attributes")]
    TooLong,
    /// Bytes behind the end.
    #[error("there are bytes behind the end of the dump")]
    Trailing,
    /// The stream ended before the dump's end.
    #[error("the dump ends too early")]
    Truncated,
}
