//! Names of body files and of blanks, and the keys of records about a body file.

use types::{SessionId, VnodeNo, VolumeId};

use super::key::{self, kind};
use super::vnode::BodyLocation;

/// The name of a body file: generations of one vnode and epoch are never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BodyName {
    pub(crate) volume: VolumeId,
    pub(crate) vnode: VnodeNo,
    pub(crate) epoch: u64,
    pub(crate) generation: u32,
    /// The packed form of the body with the same numbers (`packed.rs`).
    pub(crate) packed: bool,
}

/// The file's name in the directory of the volume and the vnode.
pub(crate) fn file_name(name: BodyName) -> String {
    let end = if name.packed { PACKED } else { "" };
    format!("{:x}.{:x}.{:x}{end}", name.vnode.0, name.epoch, name.generation)
}

/// The suffix of names of packed bodies.
const PACKED: &str = ".z";

/// Parses the name of a body file; `None`: it is none. Accepts only the canonical form of the
/// numbers.
pub(crate) fn parse_name(volume: VolumeId, text: &str) -> Option<BodyName> {
    let (numbers, packed) =
        text.strip_suffix(PACKED).map_or((text, false), |numbers| (numbers, true));
    let mut parts = numbers.split('.').map(|part| u64::from_str_radix(part, 16).ok());
    let vnode = VnodeNo(parts.next()??);
    let epoch = parts.next()??;
    let generation = u32::try_from(parts.next()??).ok()?;
    let name = BodyName { volume, vnode, epoch, generation, packed };
    (file_name(name) == text).then_some(name)
}

impl BodyName {
    /// The name of the file in which a vnode of the tree has its body; `None`: in no file of it.
    pub(crate) fn at(volume: VolumeId, vnode: VnodeNo, place: BodyLocation) -> Option<BodyName> {
        match place {
            BodyLocation::File { epoch, generation, packed } => {
                Some(BodyName { volume, vnode, epoch, generation, packed })
            }
            BodyLocation::None | BodyLocation::Inline | BodyLocation::Origin => None,
        }
    }

    /// The location of a body in this file.
    pub(crate) fn place(self) -> BodyLocation {
        let BodyName { epoch, generation, packed, .. } = self;
        BodyLocation::File { epoch, generation, packed }
    }

    /// Key of the mark that the file has unstable writes.
    pub(crate) fn unstable_key(self) -> key::Key {
        self.key(kind::UNSTABLE)
    }

    /// Key of the note that no record names the file any more.
    pub(crate) fn garbage_key(self) -> key::Key {
        self.key(kind::GARBAGE)
    }

    /// Key of the note that the body is to be packed.
    pub(crate) fn pack_key(self) -> key::Key {
        key::pack(self.volume, self.vnode, self.epoch, u64::from(self.generation))
    }

    /// Key of the record of the inline body that the file replaced, while it is kept.
    pub(crate) fn backup_key(self) -> key::Key {
        key::of_vnode(kind::INLINE, self.volume, self.vnode).epoch(self.epoch)
    }

    fn key(self, kind: u8) -> key::Key {
        key::of_vnode(kind, self.volume, self.vnode)
            .number(self.epoch)
            .number(u64::from(self.generation))
    }

    /// The plain body file that a mark or a note is about.
    pub(crate) fn of_key(key: &[u8]) -> Option<BodyName> {
        let number = |at| key::number_at(key, at);
        Some(BodyName {
            volume: VolumeId(number(0)?),
            vnode: VnodeNo(number(1)?),
            epoch: number(2)?,
            generation: u32::try_from(number(3)?).ok()?,
            packed: false,
        })
    }
}

/// The name of a blank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlankName {
    /// The session that owns the blank.
    pub session: SessionId,
    /// The number of the blank within the session.
    pub number: u64,
}

impl BlankName {
    /// The file's name.
    pub(crate) fn text(self) -> String {
        format!("{:x}.{:x}", self.session.0, self.number)
    }

    /// The blank with this file name.
    pub(crate) fn parse(text: &str) -> Option<BlankName> {
        let (session, number) = text.split_once('.')?;
        let parse = |text| u64::from_str_radix(text, 16).ok();
        let name = BlankName { session: SessionId(parse(session)?), number: parse(number)? };
        (name.text() == text).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_in_their_one_form() {
        let name = BlankName { session: SessionId(0x1f), number: 0xabc };
        assert_eq!(BlankName::parse(&name.text()), Some(name));
        for strange in ["1f", "1f.", "01f.abc", "1F.abc", "1f.abc.0", ".", "1f.abcg"] {
            assert_eq!(BlankName::parse(strange), None, "{strange}");
        }
    }

    #[test]
    fn golden_keys_about_a_file() {
        let (volume, vnode) = (VolumeId(1), VnodeNo(2));
        let name = BodyName { volume, vnode, epoch: 1, generation: 3, packed: false };
        let numbers = *b"\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x03";
        for (key, kind) in
            [(name.garbage_key(), b'g'), (name.unstable_key(), b'u'), (name.pack_key(), b'z')]
        {
            assert_eq!(*key, *[&[kind][..], &numbers].concat());
            assert_eq!(BodyName::of_key(&key), Some(name));
        }
    }
}
