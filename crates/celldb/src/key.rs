//! Keys of records: a letter for what it is, then big-endian numbers, so that they sort.

use types::{Name, Revision, ServerId, VolumeId};

/// The last revision, and the next volume number.
pub(crate) const COUNTERS: &[u8] = b"C";
const GROUP: u8 = b'G';
const NAME: u8 = b'N';
const NUMBER: u8 = b'V';
const SERVER: u8 = b'S';
const CHANGE: u8 = b'R';

/// A group, by its read-write number.
pub(crate) fn group(read_write: VolumeId) -> Vec<u8> {
    [&[GROUP][..], &read_write.0.to_be_bytes()].concat()
}

/// From a base name to the read-write number.
pub(crate) fn name(name: &Name) -> Vec<u8> {
    [&[NAME][..], name.as_bytes()].concat()
}

/// From any number of a group to its read-write number.
pub(crate) fn number(number: VolumeId) -> Vec<u8> {
    [&[NUMBER][..], &number.0.to_be_bytes()].concat()
}

/// A server.
pub(crate) fn server(id: ServerId) -> Vec<u8> {
    [&[SERVER][..], &id.0.to_be_bytes()].concat()
}

/// What a revision changed.
pub(crate) fn change(revision: Revision) -> Vec<u8> {
    [&[CHANGE][..], &revision.0.to_be_bytes()].concat()
}

/// The revision in the key of a change.
pub(crate) fn revision_of(key: &[u8]) -> Option<Revision> {
    let bytes = key.strip_prefix(&[CHANGE])?;
    bytes.try_into().ok().map(|bytes| Revision(u64::from_be_bytes(bytes)))
}
