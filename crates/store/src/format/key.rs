//! Keys of records. Numbers are big-endian so that keys sort by them; epochs are inverted so that
//! newer sorts first.

use types::{ClientId, SessionId, VnodeNo, VolumeId};

/// The first byte of a key: the kind of the record.
pub(crate) mod kind {
    /// Partition-wide counters and marks.
    pub(crate) const PARTITION: u8 = b'P';
    /// A tree's header, with the fields of its read-write volume.
    pub(crate) const VOLUME: u8 = b'V';
    /// A volume that shows a sealed epoch.
    pub(crate) const VIEW: u8 = b'W';
    /// A volume's name.
    pub(crate) const NAME: u8 = b'N';
    /// A vnode that was changed in an epoch.
    pub(crate) const CHANGE: u8 = b'c';
    /// A volume that is being removed.
    pub(crate) const REMOVAL: u8 = b'd';
    /// The progress of a stream that comes in.
    pub(crate) const PROGRESS: u8 = b'p';
    /// A tree for which the partition stands by.
    pub(crate) const STANDBY: u8 = b'f';
    /// A reply that came through a feed.
    pub(crate) const HEIR: u8 = b'h';
    pub(crate) const USAGE: u8 = b'U';
    pub(crate) const SESSION: u8 = b'S';
    pub(crate) const REPLY: u8 = b'R';
    pub(crate) const CLIENT: u8 = b'K';
    pub(crate) const VNODE: u8 = b'v';
    pub(crate) const ENTRIES: u8 = b'e';
    pub(crate) const INLINE: u8 = b'i';
    pub(crate) const SUMS: u8 = b's';
    pub(crate) const XATTR: u8 = b'x';
    pub(crate) const ORPHAN: u8 = b'o';
    pub(crate) const UNSTABLE: u8 = b'u';
    pub(crate) const GARBAGE: u8 = b'g';
    /// A note of a body that is to be packed.
    pub(crate) const PACK: u8 = b'z';
    /// A tree's key, wrapped (`cipher.rs`).
    pub(crate) const CIPHER: u8 = b'k';
}

/// Partition-wide records.
pub(crate) mod which {
    pub(crate) const BOOT: u64 = 0;
    pub(crate) const NEXT_SESSION: u64 = 1;
    pub(crate) const NEXT_VOLUME: u64 = 2;
}

/// Bytes of the inverted epoch at the end of a key.
pub(crate) const EPOCH_BYTES: usize = 8;

/// The inline capacity: all keys except those of attributes fit on the stack.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    bytes: [u8; 48],
    length: usize,
}

impl Key {
    pub(crate) fn new(kind: u8) -> Key {
        let mut bytes = [0; 48];
        bytes[0] = kind;
        Key { bytes, length: 1 }
    }

    /// Appends a number.
    pub(crate) fn number(mut self, number: u64) -> Key {
        self.bytes[self.length..self.length + 8].copy_from_slice(&number.to_be_bytes());
        self.length += 8;
        self
    }

    /// Appends an epoch, newest first.
    pub(crate) fn epoch(self, epoch: u64) -> Key {
        self.number(!epoch)
    }
}

impl std::ops::Deref for Key {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Whether the key is that of an inline body.
pub(crate) fn is_inline(key: &[u8]) -> bool {
    key.first() == Some(&kind::INLINE)
}

/// The number at index `at` behind the kind of a key, counted in numbers.
pub(crate) fn number_at(key: &[u8], at: usize) -> Option<u64> {
    let bytes = key.get(1 + at * 8..9 + at * 8)?;
    Some(u64::from_be_bytes(bytes.try_into().expect("8 bytes")))
}

/// The epoch at the end of a key.
pub(crate) fn epoch_of(key: &[u8]) -> u64 {
    let bytes = key.last_chunk::<EPOCH_BYTES>().copied().unwrap_or_default();
    !u64::from_be_bytes(bytes)
}

/// A partition-wide record.
pub(crate) fn partition(which: u64) -> Key {
    Key::new(kind::PARTITION).number(which)
}

pub(crate) fn volume(id: VolumeId) -> Key {
    Key::new(kind::VOLUME).number(id.0)
}

/// The record of the tree's encryption key.
pub(crate) fn cipher(tree: VolumeId) -> Key {
    Key::new(kind::CIPHER).number(tree.0)
}

pub(crate) fn view(id: VolumeId) -> Key {
    Key::new(kind::VIEW).number(id.0)
}

/// A volume's name, at its full length.
pub(crate) fn name(name: &[u8]) -> Vec<u8> {
    [&[kind::NAME], name].concat()
}

/// A removed volume that waits for the sweep.
pub(crate) fn removal(id: VolumeId) -> Key {
    Key::new(kind::REMOVAL).number(id.0)
}

/// An epoch, formerly shown by an existing volume, that waits for the sweep.
pub(crate) fn removal_of_epoch(id: VolumeId, epoch: u64) -> Key {
    removal(id).number(epoch)
}

/// A tree for which the partition stands by.
pub(crate) fn standby(tree: VolumeId) -> Key {
    Key::new(kind::STANDBY).number(tree.0)
}

/// The reply to a client's slot that came through the feed of a tree.
pub(crate) fn heir(tree: VolumeId, client: ClientId, session: SessionId, slot: u32) -> Key {
    let tree = Key::new(kind::HEIR).number(tree.0);
    let client = tree.number((client.0 >> 64) as u64).number(client.0 as u64);
    client.number(session.0).number(slot.into())
}

/// The progress of the stream that comes in under this number.
pub(crate) fn progress(tree: VolumeId) -> Key {
    Key::new(kind::PROGRESS).number(tree.0)
}

/// Prefix of the notes of changes in an epoch of a tree. The epoch is not inverted: changes are
/// read from older to newer.
pub(crate) fn changes(tree: VolumeId, epoch: u64) -> Key {
    Key::new(kind::CHANGE).number(tree.0).number(epoch)
}

/// The note of a vnode that changed in an epoch. With a hash appended: a bucket of a directory.
pub(crate) fn change(tree: VolumeId, epoch: u64, vnode: VnodeNo) -> Key {
    changes(tree, epoch).number(vnode.0)
}

pub(crate) fn usage(id: VolumeId) -> Key {
    Key::new(kind::USAGE).number(id.0)
}

pub(crate) fn session(id: SessionId) -> Key {
    Key::new(kind::SESSION).number(id.0)
}

pub(crate) fn reply(id: SessionId, slot: u32) -> Key {
    replies(id).number(u64::from(slot))
}

/// Prefix of a session's replies.
pub(crate) fn replies(id: SessionId) -> Key {
    Key::new(kind::REPLY).number(id.0)
}

pub(crate) fn client(id: ClientId) -> Key {
    Key::new(kind::CLIENT).number((id.0 >> 64) as u64).number(id.0 as u64)
}

/// The note of a body that is to be packed.
pub(crate) fn pack(tree: VolumeId, vnode: VnodeNo, epoch: u64, generation: u64) -> Key {
    of_vnode(kind::PACK, tree, vnode).number(epoch).number(generation)
}

/// Prefix of a volume's records of one kind.
pub(crate) fn of_volume(kind: u8, id: VolumeId) -> Key {
    Key::new(kind).number(id.0)
}

/// Prefix of a vnode's records of one kind (vnode, inline body, sums, attributes, entries).
pub(crate) fn of_vnode(kind: u8, id: VolumeId, vnode: VnodeNo) -> Key {
    of_volume(kind, id).number(vnode.0)
}

/// Prefix (without the epoch) of the entries whose names have this hash.
pub(crate) fn entries(id: VolumeId, dir: VnodeNo, hash: u64) -> Key {
    of_vnode(kind::ENTRIES, id, dir).number(hash)
}

/// Prefix (without the epoch) of the sums of one group of blocks.
pub(crate) fn sums(id: VolumeId, vnode: VnodeNo, group: u64) -> Key {
    of_vnode(kind::SUMS, id, vnode).number(group)
}

/// Prefix (without the epoch) of one attribute. Names have no NUL, so no name is a prefix of
/// another.
pub(crate) fn xattr(id: VolumeId, vnode: VnodeNo, name: &[u8]) -> Vec<u8> {
    let mut key = of_vnode(kind::XATTR, id, vnode).to_vec();
    key.extend_from_slice(name);
    key.push(0);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_by_their_numbers_and_newer_epochs_first() {
        let vnode =
            |no, epoch| of_vnode(kind::VNODE, VolumeId(3), VnodeNo(no)).epoch(epoch).to_vec();
        assert!(vnode(1, 9) < vnode(2, 1));
        assert!(vnode(255, 1) < vnode(256, 1));
        assert!(vnode(7, 2) < vnode(7, 1));
        assert_eq!(epoch_of(&vnode(7, 2)), 2);
        assert_eq!(number_at(&vnode(7, 2), 1), Some(7));
        assert_eq!(number_at(&vnode(7, 2), 3), None);
        assert!(
            xattr(VolumeId(1), VnodeNo(2), b"user.a") < xattr(VolumeId(1), VnodeNo(2), b"user.ab")
        );
    }

    #[test]
    fn golden_keys() {
        assert_eq!(
            *of_vnode(kind::VNODE, VolumeId(1), VnodeNo(2)).epoch(1),
            *b"v\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\xff\xff\xff\xff\xff\xff\xff\xfe"
        );
        assert_eq!(*reply(SessionId(1), 2), *b"R\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02");
        assert_eq!(
            xattr(VolumeId(1), VnodeNo(2), b"user.a"),
            b"x\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02user.a\0"
        );
    }
}
