//! Keys of records: a letter for the kind, then big-endian numbers, so that they sort.

use guard::GroupLink;
use types::{KeyPrint, Name, PrincipalId, Revision, ServerId, VolumeId};

/// The last revision, and the next volume number.
pub(crate) const COUNTERS: &[u8] = b"C";
const GROUP: u8 = b'G';
const NAME: u8 = b'N';
const NUMBER: u8 = b'V';
const SERVER: u8 = b'S';
const CHANGE: u8 = b'R';
const PRINCIPAL: u8 = b'P';
const PRINCIPAL_NAME: u8 = b'p';
const UID: u8 = b'u';
const MEMBER: u8 = b'M';
const MEMBERSHIP: u8 = b'B';
const OWNED: u8 = b'O';
const FENCE: u8 = b'F';
const MANDATE: u8 = b'A';
const SECRET: u8 = b'K';
const PAST_KEY: u8 = b'W';
/// The highest numbers of principals that were assigned.
pub(crate) const HIGHEST: &[u8] = b"H";

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

/// The hash of a principal's password.
pub(crate) fn secret(id: PrincipalId) -> Vec<u8> {
    [&[SECRET][..], &id.0.to_be_bytes()].concat()
}

pub(crate) fn fence(number: u64) -> Vec<u8> {
    [&[FENCE][..], &number.to_be_bytes()].concat()
}

/// A delegation of administration.
pub(crate) fn mandate(number: u64) -> Vec<u8> {
    [&[MANDATE][..], &number.to_be_bytes()].concat()
}

pub(crate) fn server(id: ServerId) -> Vec<u8> {
    [&[SERVER][..], &id.0.to_be_bytes()].concat()
}

/// A key that a server's record listed once.
pub(crate) fn past_key(print: &KeyPrint) -> Vec<u8> {
    [&[PAST_KEY][..], &print.0].concat()
}

/// The change of a revision.
pub(crate) fn change(revision: Revision) -> Vec<u8> {
    [&[CHANGE][..], &revision.0.to_be_bytes()].concat()
}

/// The revision in the key of a change.
pub(crate) fn revision_of(key: &[u8]) -> Option<Revision> {
    let bytes = key.strip_prefix(&[CHANGE])?;
    bytes.try_into().ok().map(|bytes| Revision(u64::from_be_bytes(bytes)))
}

/// Sorts in the order of numbers, those below 0 first.
fn sortable(id: PrincipalId) -> [u8; 4] {
    (id.0.cast_unsigned() ^ 1 << 31).to_be_bytes()
}

/// A user, a group, or a set of hosts.
pub(crate) fn principal(id: PrincipalId) -> Vec<u8> {
    [&[PRINCIPAL][..], &sortable(id)].concat()
}

/// From a principal's name to its number.
pub(crate) fn principal_name(name: &str) -> Vec<u8> {
    [&[PRINCIPAL_NAME][..], name.as_bytes()].concat()
}

/// From a uid to the user's number.
pub(crate) fn uid(uid: u32) -> Vec<u8> {
    [&[UID][..], &uid.to_be_bytes()].concat()
}

/// From a principal to one of the many that it is linked to.
pub(crate) fn link(link: GroupLink, of: PrincipalId, to: PrincipalId) -> Vec<u8> {
    let letter = match link {
        GroupLink::Member => MEMBER,
        GroupLink::Group => MEMBERSHIP,
        GroupLink::Owned => OWNED,
    };
    [&[letter][..], &sortable(of), &sortable(to)].concat()
}

/// The principal to which a link leads.
pub(crate) fn linked(key: &[u8]) -> Option<PrincipalId> {
    let (_, last) = key.split_last_chunk::<4>()?;
    Some(PrincipalId((u32::from_be_bytes(*last) ^ 1 << 31).cast_signed()))
}
