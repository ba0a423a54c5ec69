//! The meaning of the attributes of volumes and vnodes.

use super::{DumpTag, TagValue};
use crate::rights::STORED_ACL_BYTES;

/// The attributes of the dump itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DumpAttributes {
    /// The volume.
    pub volume: u32,
    /// Its name.
    pub name: Vec<u8>,
    /// The time since which changes are in the dump, 0 for all, and the time of the dump.
    pub times: Vec<(u32, u32)>,
}

/// A field of which a dump has the value as an attribute.
trait Field: Sized {
    fn from_value(value: &TagValue) -> Option<Self>;
    fn value(&self) -> TagValue;
}

macro_rules! fields {
    ($($kind:ty, $variant:ident;)*) => {$(
        impl Field for $kind {
            fn from_value(value: &TagValue) -> Option<Self> {
                match value {
                    TagValue::$variant(value) => Some(value.clone()),
                    _ => None,
                }
            }

            fn value(&self) -> TagValue {
                TagValue::$variant(self.clone())
            }
        }
    )*};
}

fields! {
    u8, Byte;
    u16, Short;
    u32, Int;
    Vec<u8>, Text;
    Vec<u32>, Array;
    Box<[u8; STORED_ACL_BYTES]>, Acl;
}

fn found<T: Field>(tags: &[DumpTag], tag: u8) -> Option<T> {
    // The last one counts, as when a server reads it.
    tags.iter().rev().find(|one| one.tag == tag).and_then(|one| T::from_value(&one.value))
}

/// Structs of attributes, in the order in which OpenAFS writes them: those that are always written,
/// with a default for readers, then those that may be absent.
macro_rules! attributes {
    (
        $(#[$doc:meta])* $name:ident {
            $( $(#[$field_doc:meta])* $tag:literal $field:ident: $kind:ty, )*
        }
        maybe { $( $(#[$maybe_doc:meta])* $maybe_tag:literal $maybe:ident: $maybe_kind:ty, )* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$field_doc])* pub $field: $kind, )*
            $( $(#[$maybe_doc])* pub $maybe: Option<$maybe_kind>, )*
        }

        impl $name {
            /// The meaning of these attributes; unknown ones are ignored.
            pub fn from_tags(tags: &[DumpTag]) -> $name {
                $name {
                    $( $field: found(tags, $tag).unwrap_or_default(), )*
                    $( $maybe: found(tags, $maybe_tag), )*
                }
            }

            /// The attributes.
            pub fn to_tags(&self) -> Vec<DumpTag> {
                let always = [$( DumpTag { tag: $tag, value: self.$field.value() }, )*];
                let maybe = [$(
                    self.$maybe.as_ref().map(|one| DumpTag { tag: $maybe_tag, value: one.value() }),
                )*];
                self.ordered(always.into(), maybe.into_iter().flatten().collect())
            }
        }
    };
}

attributes! {
    /// The attributes of a volume. Times are seconds since 1970, sizes KiB.
    VolumeAttributes {
        /// The volume.
        b'i' volume: u32,
        /// The version of the volume's header: 1.
        b'v' stamp_version: u32,
        /// Its name.
        b'n' name: Vec<u8>,
        /// 1: it is in service.
        b's' in_service: u8,
        /// 1: an administrator has not taken it out of service.
        b'b' blessed: u8,
        /// The next uniquifier.
        b'u' next_unique: u32,
        /// 0: it can be written; 1: a replica; 2: a backup clone.
        b't' kind: u8,
        /// The volume that can be written.
        b'p' parent: u32,
        /// The last clone.
        b'c' clone: u32,
        /// The quota.
        b'q' max_quota: u32,
        /// The least quota.
        b'm' min_quota: u32,
        /// The size.
        b'd' disk_used: u32,
        /// The files.
        b'f' files: u32,
        /// An account.
        b'a' account: u32,
        /// The owner.
        b'o' owner: u32,
        /// The creation.
        b'C' created: u32,
        /// The last use.
        b'A' accessed: u32,
        /// The last change.
        b'U' updated: u32,
        /// The end, or 0.
        b'E' expires: u32,
        /// The last backup clone.
        b'B' backed_up: u32,
        /// The message while it is off line.
        b'O' offline_message: Vec<u8>,
        /// Always empty.
        b'M' motd: Vec<u8>,
        /// The uses of the last seven days, latest first.
        b'W' week_use: Vec<u32>,
        /// The day of the uses that are counted.
        b'D' day_use_date: u32,
        /// The uses of that day.
        b'Z' day_use: u32,
    }
    maybe {
        /// The changes of the volume. OpenAFS reads it and does not write it.
        b'V' update_counter: u32,
    }
}

attributes! {
    /// The attributes of a vnode before its contents.
    VnodeAttributes {
        /// 1: a file; 2: a directory; 3: a symlink.
        b't' kind: u8,
        /// The links.
        b'l' link_count: u16,
        /// The data version.
        b'v' data_version: u32,
        /// The modification time.
        b'm' client_mod_time: u32,
        /// The last writer.
        b'a' author: u32,
        /// The owner.
        b'o' owner: u32,
        /// The mode bits.
        b'b' mode: u16,
        /// The number of the directory.
        b'p' parent: u32,
        /// The time of the change at the server; it decides what a dump of changes has.
        b's' server_mod_time: u32,
    }
    maybe {
        /// The group, if there is one.
        b'g' group: u32,
        /// The access list of a directory.
        b'A' acl: Box<[u8; STORED_ACL_BYTES]>,
    }
}

impl VolumeAttributes {
    fn ordered(&self, mut always: Vec<DumpTag>, maybe: Vec<DumpTag>) -> Vec<DumpTag> {
        always.extend(maybe);
        always
    }
}

impl VnodeAttributes {
    /// The group comes before the mode bits.
    fn ordered(&self, mut always: Vec<DumpTag>, maybe: Vec<DumpTag>) -> Vec<DumpTag> {
        let mode_at = always.iter().position(|one| one.tag == b'b').unwrap_or(always.len());
        let (group, others): (Vec<_>, Vec<_>) = maybe.into_iter().partition(|one| one.tag == b'g');
        always.splice(mode_at..mode_at, group);
        always.extend(others);
        always
    }
}

impl DumpAttributes {
    /// The meaning of these attributes; unknown ones are ignored.
    pub fn from_tags(tags: &[DumpTag]) -> DumpAttributes {
        let times: Vec<u32> = found(tags, b't').unwrap_or_default();
        DumpAttributes {
            volume: found(tags, b'v').unwrap_or_default(),
            name: found(tags, b'n').unwrap_or_default(),
            times: times.as_chunks().0.iter().map(|[from, to]| (*from, *to)).collect(),
        }
    }

    /// The attributes.
    pub fn to_tags(&self) -> Vec<DumpTag> {
        let times: Vec<u32> = self.times.iter().flat_map(|(from, to)| [*from, *to]).collect();
        vec![
            DumpTag { tag: b'v', value: self.volume.value() },
            DumpTag { tag: b'n', value: self.name.value() },
            DumpTag { tag: b't', value: times.value() },
        ]
    }
}
