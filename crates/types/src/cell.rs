//! What a whole cell knows: where volumes are, which servers there are; and what can be asked of
//! its database (`docs/spec/volumes.md`).
// The variants are documented as a whole; a field is named for what it is.
#![allow(missing_docs)]

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::{KeyPrint, Name, PrincipalId, VolumeId, WhichPrincipal, WhichVolume};

/// The number of a change of the cell's database; records carry that of their last one. 0: before
/// all changes, and what a record has that is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// A record, and the revision of its last change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revised<T> {
    /// What it says.
    pub record: T,
    /// Given back by who changes it.
    pub revision: Revision,
}

/// A server for ever, whatever its addresses: 128 random bits, written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId(pub u128);

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why some text is no [`ServerId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no server's id (32 hexadecimal digits, small letters)")]
pub struct ServerIdError(String);

impl FromStr for ServerId {
    type Err = ServerIdError;
    fn from_str(text: &str) -> Result<Self, ServerIdError> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let digits = text.len() == 32 && text.bytes().all(is_digit);
        let number = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        number.map(ServerId).ok_or_else(|| ServerIdError(text.to_owned()))
    }
}

/// A server of the cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Which one.
    pub id: ServerId,
    /// For people: a host's name, at most [`crate::limits::SERVER_NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// Where it listens, the best first; at most [`crate::limits::ADDRESSES_MAX`]. None: only for
    /// its own machine.
    pub addresses: Vec<SocketAddr>,
    /// The keys by which it shows that it is a server of the cell, whatever authority made a
    /// certificate for them; at most [`crate::limits::SERVER_KEYS_MAX`]. None: it is no server.
    pub keys: Vec<KeyPrint>,
}

/// What a site has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SiteKind {
    /// The volume that is written.
    ReadWrite = 1,
    /// What was released.
    ReadOnly = 2,
}

impl SiteKind {
    /// The kind with the given wire value.
    pub fn from_wire(value: u8) -> Option<Self> {
        [SiteKind::ReadWrite, SiteKind::ReadOnly].into_iter().find(|kind| *kind as u8 == value)
    }
}

/// Where a volume is, or shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The server.
    pub server: ServerId,
    /// Its partition, as the server names it; at most [`crate::limits::PARTITION_NAME_BYTES_MAX`]
    /// bytes.
    pub partition: String,
    /// What it has.
    pub kind: SiteKind,
    /// Read-only: the epoch of the release that it has; 0: none yet.
    pub epoch: u64,
}

/// Who is at work on a group, so that others keep away. Not bound to the life of a session: an
/// operation that was cut off is found by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// What is done: `release`, `move`, ... At most [`crate::limits::BUSY_BYTES_MAX`] bytes.
    pub operation: String,
    /// By whom, for people. As long.
    pub by: String,
    /// Seconds since 1970.
    pub since_secs: i64,
}

/// The volumes of one tree that have a place in the cell. Snapshots are known to their server
/// alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeGroup {
    /// The base name, without `.readonly` or `.backup`.
    pub name: Name,
    /// The number of the volume that is written; also where there is none (any more).
    pub read_write: VolumeId,
    /// The number of what was released, the same at all its sites.
    pub read_only: Option<VolumeId>,
    /// The number of yesterday's.
    pub backup: Option<VolumeId>,
    /// At most one of them is the read-write one; at most [`crate::limits::SITES_MAX`].
    pub sites: Vec<Site>,
    /// The epoch that was released last; 0: never. A site with another one lags.
    pub released_epoch: u64,
    /// Who is at work on it.
    pub busy: Option<Busy>,
}

impl VolumeGroup {
    /// A volume at one site, not released.
    pub fn new(name: Name, read_write: VolumeId, site: Site) -> Self {
        VolumeGroup {
            name,
            read_write,
            read_only: None,
            backup: None,
            sites: vec![site],
            released_epoch: 0,
            busy: None,
        }
    }

    /// Every number of the group.
    pub fn numbers(&self) -> impl Iterator<Item = VolumeId> {
        [Some(self.read_write), self.read_only, self.backup].into_iter().flatten()
    }

    /// Where it is written.
    pub fn read_write_site(&self) -> Option<&Site> {
        self.sites.iter().find(|site| site.kind == SiteKind::ReadWrite)
    }

    /// The read-only sites that have the last release: the only ones that readers are sent to.
    pub fn readable_sites(&self) -> impl Iterator<Item = &Site> {
        let epoch = self.released_epoch;
        self.sites.iter().filter(move |site| {
            site.kind == SiteKind::ReadOnly && epoch != 0 && site.epoch == epoch
        })
    }
}

/// What a change of the database was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The group of this read-write volume was made, changed or removed.
    Group(VolumeId),
    /// A server was.
    Server(ServerId),
    /// What this principal is, or is in: so of everybody who is it, or is in it.
    Principal(PrincipalId),
    /// What everybody is, for ought that anybody knows.
    Principals,
    /// Fences, or who administers what.
    Rules,
}

/// What is asked of the cell's database, which one server of the cell has. Changes are the
/// superuser's; a change says which revision of the record it was made from (0: there was none),
/// and is refused with `Conflict` if that is not the last. A change that is repeated because its
/// answer was lost is refused so too: who reads then finds what it wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellCall {
    /// The group that has this base name, or this number as one of its own. Answer: `Groups`, with
    /// one; or the fault `NoVolume`.
    Group { volume: WhichVolume },
    /// Groups with read-write numbers above `after`, in their order, at most `max`. Answer:
    /// `Groups`.
    Groups { after: VolumeId, max: u32 },
    /// `Exists` if another group has the name or a number. Answer: `Revision`.
    PutGroup { group: Box<VolumeGroup>, expected: Revision },
    /// Answer: `Revision`.
    RemoveGroup { read_write: VolumeId, expected: Revision },
    /// So many numbers for volumes, which follow each other, are above `above` (what who asks has
    /// seen), and which nobody had or will have. Answer: `Number`, the first.
    TakeNumbers { above: VolumeId, count: u32 },
    /// Answer: `Servers`.
    Servers,
    /// `NotPermitted` if a key of it was withdrawn; `NoSpace`: there are
    /// [`crate::limits::SERVERS_MAX`]. Answer: `Revision`.
    PutServer { server: ServerInfo, expected: Revision },
    /// Its keys are withdrawn. Answer: `Revision`.
    RemoveServer { id: ServerId, expected: Revision },
    /// What was changed after a revision, the oldest first, at most `max`. Answer: `Changes`.
    Changes { since: Revision, max: u32 },
    /// Who is asked: the server itself, whether it has a database or not. Answer: `Servers`, with
    /// one, at revision 0.
    Me,
    /// Somebody's record. Answer: `Principals`, with one; or the fault `NoPrincipal`.
    Principal { which: WhichPrincipal },
    /// Every group that a principal is in who asks from `host` (`None`: from no host that counts),
    /// directly or through groups, and the host sets. Answer: `Subdomain`.
    Subdomain { principal: PrincipalId, host: Option<IpAddr> },
    /// As `Changes`, asked by a server that has put into force all changes up to `since`: who makes
    /// a change that must be in force everywhere waits for that. Answer: `Changes`.
    Watch { server: ServerId, since: Revision, max: u32 },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(server: u128, kind: SiteKind, epoch: u64) -> Site {
        Site { server: ServerId(server), partition: "/vicepa".to_owned(), kind, epoch }
    }

    #[test]
    fn readers_go_only_where_the_last_release_is() {
        let name = Name::new(b"home").unwrap();
        let mut group = VolumeGroup::new(name, VolumeId(7), site(1, SiteKind::ReadWrite, 0));
        group.sites.extend([site(2, SiteKind::ReadOnly, 4), site(3, SiteKind::ReadOnly, 5)]);
        assert_eq!(group.readable_sites().count(), 0);
        group.released_epoch = 5;
        assert_eq!(group.readable_sites().map(|site| site.server.0).collect::<Vec<_>>(), [3]);
        assert_eq!(group.read_write_site().map(|site| site.server), Some(ServerId(1)));
    }

    #[test]
    fn a_servers_id_has_one_spelling() {
        let id = ServerId(0xab);
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in
            ["", "ab", "000000000000000000000000000000AB", "+00000000000000000000000000000ab"]
        {
            assert!(bad.parse::<ServerId>().is_err(), "{bad}");
        }
    }
}
