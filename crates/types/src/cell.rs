//! The cell's records: sites of volumes, and servers; and the calls to the cell database
//! (`docs/spec/volumes.md`).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use bytes::Bytes;

use crate::{KeyPrint, Name, PrincipalId, VolumeId, WhichPrincipal, WhichVolume};

/// The number of a change of the cell database; each record has that of its last change. 0: before
/// all changes, and the revision of a record that does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// A record, and the revision of its last change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revised<T> {
    /// The content.
    pub record: T,
    /// A client that changes the record sends this back.
    pub revision: Revision,
}

/// Identifies a server for ever, whatever its addresses: 128 random bits, as 32 hexadecimal digits.
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

/// The reason why a text is no [`ServerId`].
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
    /// Identifies the server.
    pub id: ServerId,
    /// For people: a host's name, at most [`crate::limits::SERVER_NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// The addresses on which it listens, the best first; at most [`crate::limits::ADDRESSES_MAX`].
    /// None: it serves only its own machine.
    pub addresses: Vec<SocketAddr>,
    /// The keys by which it proves that it is a server of the cell, whatever authority certified
    /// them; at most [`crate::limits::SERVER_KEYS_MAX`]. None: it is no server.
    pub keys: Vec<KeyPrint>,
}

/// The protocol of a server of the cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// A server of Rialto.
    Rialto,
    /// A file server of AFS, that has volumes of the cell and nothing else.
    Afs,
}

/// The port of AFS's file servers. No server of Rialto listens on it for its own protocol.
pub const AFS_FILE_PORT: u16 = 7000;

impl ServerInfo {
    /// The server's kind: one of AFS is known by the port of its addresses (MX-1). So programs
    /// that do not know of the kind can read the record.
    pub fn kind(&self) -> ServerKind {
        let is_afs = |address: &SocketAddr| address.is_ipv4() && address.port() == AFS_FILE_PORT;
        let all = !self.addresses.is_empty() && self.addresses.iter().all(is_afs);
        if all && self.keys.is_empty() { ServerKind::Afs } else { ServerKind::Rialto }
    }

    /// The record of a file server of AFS with these addresses.
    pub fn of_afs(id: ServerId, name: String, addresses: &[Ipv4Addr]) -> ServerInfo {
        let at = |address: &Ipv4Addr| SocketAddr::from((*address, AFS_FILE_PORT));
        ServerInfo { id, name, addresses: addresses.iter().map(at).collect(), keys: Vec::new() }
    }
}

/// The volume that a site has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SiteKind {
    /// The read-write volume.
    ReadWrite = 1,
    /// The released volume.
    ReadOnly = 2,
    /// A standby that follows each change before it is acknowledged.
    Standby = 3,
    /// A standby that follows as fast as it can.
    AsyncStandby = 4,
}

impl SiteKind {
    /// The kind with the given wire value.
    pub fn from_wire(value: u8) -> Option<Self> {
        let all =
            [SiteKind::ReadWrite, SiteKind::ReadOnly, SiteKind::Standby, SiteKind::AsyncStandby];
        all.into_iter().find(|kind| *kind as u8 == value)
    }

    /// Whether the site follows the read-write volume.
    pub fn is_standby(self) -> bool {
        matches!(self, SiteKind::Standby | SiteKind::AsyncStandby)
    }
}

/// A place where a volume is, or shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The server.
    pub server: ServerId,
    /// Its partition, as the server names it; at most [`crate::limits::PARTITION_NAME_BYTES_MAX`]
    /// bytes.
    pub partition: String,
    /// The volume that it has.
    pub kind: SiteKind,
    /// Read-only: the epoch of the release that it has; 0: none yet. Of a standby: 1 if it is *in
    /// step* and may take over, otherwise 0.
    pub epoch: u64,
}

impl Site {
    /// Whether this is a standby that may take over.
    pub fn is_in_step(&self) -> bool {
        self.kind.is_standby() && self.epoch != 0
    }
}

/// Marks a group on which an operation works, so that other operations stay away. Not bound to a
/// session: an interrupted operation is found by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// The operation: `release`, `move`, ... At most [`crate::limits::BUSY_BYTES_MAX`] bytes.
    pub operation: String,
    /// The operator, for people. As long.
    pub by: String,
    /// Seconds since 1970.
    pub since_secs: i64,
}

/// The volumes of one tree that the cell database lists. Only their server knows snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeGroup {
    /// The base name, without `.readonly` or `.backup`.
    pub name: Name,
    /// The number of the read-write volume; set even if there is none (any more).
    pub read_write: VolumeId,
    /// The number of the released volume, the same at all its sites.
    pub read_only: Option<VolumeId>,
    /// The number of the backup volume.
    pub backup: Option<VolumeId>,
    /// At most one of them is the read-write one; at most [`crate::limits::SITES_MAX`].
    pub sites: Vec<Site>,
    /// The epoch released last; 0: never. A site with another one lags.
    pub released_epoch: u64,
    /// The operation that works on it.
    pub busy: Option<Busy>,
}

impl VolumeGroup {
    /// A group with one site, not released.
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

    /// The site of the read-write volume.
    pub fn read_write_site(&self) -> Option<&Site> {
        self.sites.iter().find(|site| site.kind == SiteKind::ReadWrite)
    }

    /// The standbys.
    pub fn standbys(&self) -> impl Iterator<Item = &Site> {
        self.sites.iter().filter(|site| site.kind.is_standby())
    }

    /// The read-only sites that have the last release: clients read only from these.
    pub fn readable_sites(&self) -> impl Iterator<Item = &Site> {
        let epoch = self.released_epoch;
        self.sites.iter().filter(move |site| {
            site.kind == SiteKind::ReadOnly && epoch != 0 && site.epoch == epoch
        })
    }
}

/// The subject of a change of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The group of this read-write volume was made, changed or removed.
    Group(VolumeId),
    /// This server was.
    Server(ServerId),
    /// This principal or its groups changed: concerns every principal that is it, or is in it.
    Principal(PrincipalId),
    /// Any principal may have changed: the change does not say which.
    Principals,
    /// Fences or mandates.
    Rules,
}

/// The program of a server, as the server tells the cell's database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerProgram {
    /// The server.
    pub server: ServerId,
    /// The highest level of a cell that the program knows.
    pub knows: u32,
    /// Its version, for people; at most [`crate::limits::PROGRAM_BYTES_MAX`] bytes.
    pub version: String,
}

/// The level of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellLevel {
    /// The level.
    pub level: u32,
    /// Of the servers that have told their program.
    pub programs: Vec<ServerProgram>,
}

impl CellLevel {
    /// The program of a server; `None`: it has not told one, so it may be any older one.
    pub fn program(&self, server: ServerId) -> Option<&ServerProgram> {
        self.programs.iter().find(|one| one.server == server)
    }

    /// Whether a server has told that it knows this level.
    pub fn is_known_to(&self, server: ServerId, level: u32) -> bool {
        self.program(server).is_some_and(|one| one.knows >= level)
    }
}

/// A question about the level of a cell, or a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LevelAct {
    /// Only asks.
    Ask,
    /// A server tells its program.
    Tell(ServerProgram),
    /// Raises the level to this one, the next. Where the cell is at that level already nothing
    /// happens.
    Raise(u32),
}

/// The calls to the cell database, which one server of the cell has. Changes are the superuser's. A
/// change carries the revision of the record that it was made from (0: there was none), and is
/// refused with `Conflict` if that is not the last one. So is a change that is repeated because its
/// answer was lost: the client reads the record then and finds its own change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellCall {
    /// The group that has this base name, or this number as one of its own. Answer: `Groups`, with
    /// one; or the fault `NoVolume`.
    Group {
        /// Base name, or any number of the group.
        volume: WhichVolume,
    },
    /// Groups with read-write numbers above `after`, in their order, at most `max`. Answer:
    /// `Groups`.
    Groups {
        /// Only those with greater numbers; 0: all.
        after: VolumeId,
        /// Limit of the answer.
        max: u32,
    },
    /// `Exists` if another group has the name or a number. Answer: `Revision`.
    PutGroup {
        /// The new record.
        group: Box<VolumeGroup>,
        /// The revision of the record that the caller changed; 0: there was none.
        expected: Revision,
    },
    /// Answer: `Revision`.
    RemoveGroup {
        /// Number of the read-write volume.
        read_write: VolumeId,
        /// The revision of the record that the caller changed; 0: there was none.
        expected: Revision,
    },
    /// Reserves `count` consecutive numbers for volumes, above `above` (the highest that the caller
    /// knows), never used before or again. Answer: `Number`, the first.
    TakeNumbers {
        /// The numbers are greater than this one.
        above: VolumeId,
        /// How many; at least 1.
        count: u32,
    },
    /// Answer: `Servers`.
    Servers,
    /// `NotPermitted` if one of its keys was withdrawn; `NoSpace`: there are
    /// [`crate::limits::SERVERS_MAX`]. Answer: `Revision`.
    PutServer {
        /// The new record.
        server: ServerInfo,
        /// The revision of the record that the caller changed; 0: there was none.
        expected: Revision,
    },
    /// Withdraws its keys. Answer: `Revision`.
    RemoveServer {
        /// The server.
        id: ServerId,
        /// The revision of the record that the caller changed; 0: there was none.
        expected: Revision,
    },
    /// The changes after a revision, the oldest first, at most `max`. Answer: `Changes`.
    Changes {
        /// Only changes after this revision.
        since: Revision,
        /// Limit of the answer, in changes.
        max: u32,
    },
    /// The asked server itself, whether it has a database or not. Answer: `Servers`, with one, at
    /// revision 0.
    Me,
    /// A principal's record. Answer: `Principals`, with one; or the fault `NoPrincipal`.
    Principal {
        /// Number, name or uid.
        which: WhichPrincipal,
    },
    /// Every group of a principal that calls from `host` (`None`: from no host that counts),
    /// directly or through groups, and the host sets. Answer: `Subdomain`.
    Subdomain {
        /// The principal.
        principal: PrincipalId,
        /// The address that it calls from.
        host: Option<IpAddr>,
    },
    /// As `Changes`, by a server that has put all changes up to `since` into force: a call that
    /// must be in force everywhere waits for that. Answer: `Changes`.
    Watch {
        /// The server that asks.
        server: ServerId,
        /// The last revision that the server has put into force.
        since: Revision,
        /// Limit of the answer, in changes.
        max: u32,
    },
    /// A part of a copy of all records as of one revision, with hashes of passwords, in the order
    /// of their keys (`docs/spec/cell-database.md`). The part begins behind the record `after`, and
    /// without the first `skip` bytes. Answer: `Records`. `Busy`: there are as many copies as the
    /// server makes at a time; `NothingThere`: this copy has ended, with its session or after a
    /// minute without a call; `Unsupported`: the server is older than this call.
    Copy {
        /// The number of the copy, from the first answer; 0: begin one.
        copy: u64,
        /// The key of the last whole record that the caller has; empty: none.
        after: Bytes,
        /// The bytes of the next record that the caller has already.
        skip: u64,
    },
    /// Makes an invitation. `NoSpace`: there are [`crate::limits::INVITATIONS_MAX`]; `Exists`: one
    /// has this key. Answer: `Number`.
    Invite {
        /// The public half of the key that is derived from its secret.
        public: [u8; 32],
        /// For how long it is valid.
        seconds: u64,
        /// How many servers it lets in.
        uses: u32,
        /// Their roles, as [`crate::ServerRoles::bits`] has them.
        roles: u32,
        /// Of a server that asks for another principal: that one.
        by: PrincipalId,
        /// The new server's name; empty: the one that it asks for.
        name: String,
    },
    /// Invitations with numbers above `after`, in their order, at most `max`. Answer:
    /// `Invitations`.
    Invitations {
        /// Only those with greater numbers; 0: all.
        after: u64,
        /// Limit of the answer.
        max: u32,
    },
    /// Ends an invitation. `NotFound`: there is none. Answer: `Done`.
    Uninvite {
        /// The invitation's number.
        number: u64,
    },
    /// Enters the key of a request to join with its invitation, whose signature this call checks.
    /// The same key again has the same answer. `AccessDenied`: there is no such invitation, or the
    /// signature is another one's; `TokenExpired`: it has ended; `Exists`: it let as many servers
    /// in as it may; `Conflict`: another server has the name, or the invitation gives another;
    /// `Invalid`: neither says a name; `NotPermitted`: the key was withdrawn, or is another
    /// server's. Answer: `Invitations`, with one.
    Redeem {
        /// As `guard::JoinRequest` has it.
        request: String,
    },
    /// Lets the sender into the cell as a server. Faults as of `Redeem`; `Busy`: the host has sent
    /// wrong requests, and must wait; `Unsupported`: this server has no part in it. Answer:
    /// `Joined`.
    Join {
        /// As `guard::JoinRequest` has it.
        request: String,
    },
    /// The keys of servers that were withdrawn, the newest [`crate::limits::WITHDRAWN_KEYS_MAX`]:
    /// clients accept no server by them. Answer: `Report`, a JSON array of their texts.
    Withdrawn,
    /// The servers that may not do everything. Answer: `Report`, a JSON array of objects with `id`
    /// and `roles`.
    ServerRoles,
    /// The level of the cell (`docs/spec/versions.md`). `Conflict`: a server does not know the
    /// level to which it shall rise, or that is not the next one; `NotFound`: no server has this
    /// id. Answer: `Level`.
    Level {
        /// The question, or the change.
        act: LevelAct,
    },
    /// A new certificate for a key that the record of the calling server lists. `Unsupported`: this
    /// server does not have the key of the authority. Answer: `Report`, as `guard::JoinFacts` has
    /// it.
    Certify {
        /// A certificate signing request (PEM).
        request: String,
    },
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
