//! The identity of a caller in the cell, and how it was shown (`docs/spec/access.md`).

use std::fmt;
use std::net::IpAddr;

use crate::{KeyPrint, Timestamp};

/// A user (above 0), a group or a set of hosts (below 0). Source of the fixed numbers: OpenAFS
/// `ptserver.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PrincipalId(pub i32);

impl PrincipalId {
    /// No principal has it.
    pub const NONE: PrincipalId = PrincipalId(0);
    /// `system:administrators`.
    pub const ADMINISTRATORS: PrincipalId = PrincipalId(-204);
    /// `system:ptsviewers`: may read all of the principals.
    pub const VIEWERS: PrincipalId = PrincipalId(-203);
    /// `system:authuser`: every caller that proved its identity.
    pub const PROVED: PrincipalId = PrincipalId(-102);
    /// `system:anyuser`: every caller.
    pub const ANYBODY: PrincipalId = PrincipalId(-101);
    /// A caller that did not prove its identity.
    pub const ANONYMOUS: PrincipalId = PrincipalId(32766);

    /// Whether it is the number of a group or a host set.
    pub const fn is_group(self) -> bool {
        self.0 < 0
    }
}

impl fmt::Display for PrincipalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// How a caller showed its identity. Wire values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum AuthLevel {
    /// Not at all: an anonymous caller.
    Nobody = 0,
    /// By a trusted connection: the other end may name any user, the superuser too.
    #[default]
    Named = 1,
    /// By the kernel, which reports the owner of the other end of a Unix socket.
    Attested = 2,
    /// By a password.
    Password = 3,
    /// By a Kerberos ticket.
    Kerberos = 4,
    /// A server of the cell, by its certificate.
    Server = 5,
    /// By a trusted host, over the network. It opens files like [`AuthLevel::Named`], but makes the
    /// caller neither a server nor an administrator.
    Host = 6,
    /// A certificate of the cell's own authority for a server whose key the cell database does not
    /// list: an anonymous caller, except that it may enter this key there.
    Enrolling = 7,
}

impl AuthLevel {
    /// The level with the given wire value.
    pub fn from_wire(value: u8) -> Option<Self> {
        let all = [
            AuthLevel::Nobody,
            AuthLevel::Named,
            AuthLevel::Attested,
            AuthLevel::Password,
            AuthLevel::Kerberos,
            AuthLevel::Server,
            AuthLevel::Host,
            AuthLevel::Enrolling,
        ];
        all.into_iter().find(|level| *level as u8 == value)
    }

    /// Whether the server accepts the user that the other end names. Its uid 0, if
    /// the listener accepted it, is the superuser of files.
    pub const fn is_trusted(self) -> bool {
        matches!(self, AuthLevel::Named | AuthLevel::Server | AuthLevel::Host)
    }

    /// Whether uid 0 is the superuser of the cell too: over the server's own Unix socket, and with
    /// a server's certificate. An address never suffices.
    pub const fn is_own(self) -> bool {
        matches!(self, AuthLevel::Named | AuthLevel::Server)
    }

    /// Whether tokens carry this level.
    pub const fn is_of_tokens(self) -> bool {
        matches!(self, AuthLevel::Attested | AuthLevel::Password | AuthLevel::Kerberos)
    }

    /// Whether such callers are in `system:authuser`.
    pub const fn is_proved(self) -> bool {
        !matches!(self, AuthLevel::Nobody | AuthLevel::Enrolling)
    }
}

/// User and group ids from here on belong to principals whose records have none: `pts` refuses them
/// for others, and no system assigns them to users.
pub const OWN_IDS: u32 = 0x8000_0000;

/// The id under which mode bits check a user whose record has no uid or gid: different for every
/// user. `None`: the number leaves no room.
pub fn own_id(principal: PrincipalId) -> Option<u32> {
    let number = u32::try_from(principal.0).ok().filter(|number| *number > 0)?;
    // The highest one means "none".
    Some(OWN_IDS + number).filter(|id| *id < u32::MAX)
}

/// The caller's identity, as the cell knows it. Checked at each request, because a proof may end, a
/// token be revoked, or a fence be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestIdentity {
    /// Which principal; [`PrincipalId::ANONYMOUS`] for a named caller whose uid no principal has.
    pub principal: PrincipalId,
    /// How the caller showed it.
    pub level: AuthLevel,
    /// When the token or ticket was issued: seconds since 1970; 0: neither.
    pub issued: i64,
    /// When the proof ends; `None`: with the connection.
    pub ends: Option<Timestamp>,
    /// The token's number; 0: no token.
    pub token: u128,
    /// The number of the key that signed it; 0: no token.
    pub key: u32,
    /// The request came over a network in clear text, where others may read it.
    pub overheard: bool,
    /// The caller's host; `None`: this machine.
    pub host: Option<IpAddr>,
    /// The key of the certificate that the caller's rights depend on: at [`AuthLevel::Server`] and
    /// [`AuthLevel::Enrolling`], and for users that a server names. Each call is refused once the
    /// cell database lists the key no more.
    pub server: Option<KeyPrint>,
}

impl RequestIdentity {
    /// A caller named by a trusted connection, before the server looks its principal up. Callers at
    /// the client have it.
    pub const NAMED: RequestIdentity = RequestIdentity {
        principal: PrincipalId::ANONYMOUS,
        level: AuthLevel::Named,
        issued: 0,
        ends: None,
        token: 0,
        key: 0,
        overheard: false,
        host: None,
        server: None,
    };
    /// A caller that shows no identity.
    pub const NOBODY: RequestIdentity = RequestIdentity {
        principal: PrincipalId::ANONYMOUS,
        level: AuthLevel::Nobody,
        issued: 0,
        ends: None,
        token: 0,
        key: 0,
        overheard: false,
        host: None,
        server: None,
    };
}

impl Default for RequestIdentity {
    fn default() -> Self {
        RequestIdentity::NAMED
    }
}
