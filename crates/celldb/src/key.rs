//! Keys of records: a letter for the kind, then big-endian numbers, so that they sort.

use guard::GroupLink;
use types::{KeyPrint, Name, PrincipalId, Revision, ServerId, VolumeId};

/// The first byte of a key: the kind of its record. `docs/spec/cell-database.md` has the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Letter {
    Counters = b'C',
    Group = b'G',
    Name = b'N',
    Number = b'V',
    Server = b'S',
    Change = b'R',
    Principal = b'P',
    PrincipalName = b'p',
    Uid = b'u',
    Member = b'M',
    Membership = b'B',
    Owned = b'O',
    Fence = b'F',
    Mandate = b'A',
    Secret = b'K',
    PastKey = b'W',
    Highest = b'H',
    Invitation = b'I',
    Level = b'L',
}

impl Letter {
    pub const ALL: [Letter; 19] = [
        Letter::Counters,
        Letter::Group,
        Letter::Name,
        Letter::Number,
        Letter::Server,
        Letter::Change,
        Letter::Principal,
        Letter::PrincipalName,
        Letter::Uid,
        Letter::Member,
        Letter::Membership,
        Letter::Owned,
        Letter::Fence,
        Letter::Mandate,
        Letter::Secret,
        Letter::PastKey,
        Letter::Highest,
        Letter::Invitation,
        Letter::Level,
    ];

    /// The kind that has this byte.
    pub fn of(byte: u8) -> Option<Letter> {
        Letter::ALL.into_iter().find(|letter| *letter as u8 == byte)
    }
}

/// The last revision, and the next volume number.
pub(crate) const COUNTERS: &[u8] = &[Letter::Counters as u8];
/// The cell's level; without this record it is the first one (VE-1).
pub(crate) const LEVEL: &[u8] = &[Letter::Level as u8];
/// The highest numbers of principals that were assigned.
pub(crate) const HIGHEST: &[u8] = &[Letter::Highest as u8];

/// A group, by its read-write number.
pub(crate) fn group(read_write: VolumeId) -> Vec<u8> {
    [&[Letter::Group as u8][..], &read_write.0.to_be_bytes()].concat()
}

/// From a base name to the read-write number.
pub(crate) fn name(name: &Name) -> Vec<u8> {
    [&[Letter::Name as u8][..], name.as_bytes()].concat()
}

/// From any number of a group to its read-write number.
pub(crate) fn number(number: VolumeId) -> Vec<u8> {
    [&[Letter::Number as u8][..], &number.0.to_be_bytes()].concat()
}

/// The hash of a principal's password.
pub(crate) fn secret(id: PrincipalId) -> Vec<u8> {
    [&[Letter::Secret as u8][..], &id.0.to_be_bytes()].concat()
}

pub(crate) fn fence(number: u64) -> Vec<u8> {
    [&[Letter::Fence as u8][..], &number.to_be_bytes()].concat()
}

/// A delegation of administration.
pub(crate) fn mandate(number: u64) -> Vec<u8> {
    [&[Letter::Mandate as u8][..], &number.to_be_bytes()].concat()
}

/// An invitation of a server.
pub(crate) fn invitation(number: u64) -> Vec<u8> {
    [&[Letter::Invitation as u8][..], &number.to_be_bytes()].concat()
}

pub(crate) fn server(id: ServerId) -> Vec<u8> {
    [&[Letter::Server as u8][..], &id.0.to_be_bytes()].concat()
}

/// A key that a server's record listed once.
pub(crate) fn past_key(print: &KeyPrint) -> Vec<u8> {
    [&[Letter::PastKey as u8][..], &print.0].concat()
}

/// The change of a revision.
pub(crate) fn change(revision: Revision) -> Vec<u8> {
    [&[Letter::Change as u8][..], &revision.0.to_be_bytes()].concat()
}

/// The revision in the key of a change.
pub(crate) fn revision_of(key: &[u8]) -> Option<Revision> {
    let bytes = key.strip_prefix(&[Letter::Change as u8])?;
    bytes.try_into().ok().map(|bytes| Revision(u64::from_be_bytes(bytes)))
}

/// Where the keys behind all changes begin, if this is the key of a change.
pub(crate) fn behind_changes(key: &[u8]) -> Option<Vec<u8>> {
    key.starts_with(&[Letter::Change as u8]).then(|| vec![Letter::Change as u8 + 1])
}

/// Sorts in the order of numbers, those below 0 first.
fn sortable(id: PrincipalId) -> [u8; 4] {
    (id.0.cast_unsigned() ^ 1 << 31).to_be_bytes()
}

/// A user, a group, or a set of hosts.
pub(crate) fn principal(id: PrincipalId) -> Vec<u8> {
    [&[Letter::Principal as u8][..], &sortable(id)].concat()
}

/// From a principal's name to its number.
pub(crate) fn principal_name(name: &str) -> Vec<u8> {
    [&[Letter::PrincipalName as u8][..], name.as_bytes()].concat()
}

/// From a uid to the user's number.
pub(crate) fn uid(uid: u32) -> Vec<u8> {
    [&[Letter::Uid as u8][..], &uid.to_be_bytes()].concat()
}

/// From a principal to one of the many that it is linked to.
pub(crate) fn link(link: GroupLink, of: PrincipalId, to: PrincipalId) -> Vec<u8> {
    let letter = match link {
        GroupLink::Member => Letter::Member as u8,
        GroupLink::Group => Letter::Membership as u8,
        GroupLink::Owned => Letter::Owned as u8,
    };
    [&[letter][..], &sortable(of), &sortable(to)].concat()
}

/// The principal to which a link leads.
pub(crate) fn linked(key: &[u8]) -> Option<PrincipalId> {
    let (_, last) = key.split_last_chunk::<4>()?;
    Some(PrincipalId((u32::from_be_bytes(*last) ^ 1 << 31).cast_signed()))
}
