//! Who somebody is in the cell, and how that was shown (`docs/spec/access.md`).

use std::fmt;
use std::net::IpAddr;

use crate::{KeyPrint, Timestamp};

/// A user (above 0), a group or a set of hosts (below 0). Source of the fixed numbers: OpenAFS
/// `ptserver.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PrincipalId(pub i32);

impl PrincipalId {
    /// Nobody has it.
    pub const NONE: PrincipalId = PrincipalId(0);
    /// `system:administrators`.
    pub const ADMINISTRATORS: PrincipalId = PrincipalId(-204);
    /// `system:ptsviewers`: may read all of the principals.
    pub const VIEWERS: PrincipalId = PrincipalId(-203);
    /// `system:authuser`: everybody who showed who he is.
    pub const PROVED: PrincipalId = PrincipalId(-102);
    /// `system:anyuser`: everybody.
    pub const ANYBODY: PrincipalId = PrincipalId(-101);
    /// Who did not show who he is.
    pub const ANONYMOUS: PrincipalId = PrincipalId(32766);

    /// Whether groups and sets of hosts have such numbers.
    pub const fn is_group(self) -> bool {
        self.0 < 0
    }
}

impl fmt::Display for PrincipalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// How it was shown who asks. Wire values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum AuthLevel {
    /// Not at all.
    Nobody = 0,
    /// A trusted connection said so: the other end may speak for everybody, the superuser too.
    #[default]
    Named = 1,
    /// The kernel said whose the other end of a Unix socket is.
    Attested = 2,
    /// A password.
    Password = 3,
    /// A Kerberos ticket.
    Kerberos = 4,
    /// A server of the cell, by its certificate.
    Server = 5,
    /// A believed host said so, over the network. Files are as open as to [`AuthLevel::Named`]; it
    /// is no server, and makes no administrator.
    Host = 6,
    /// A certificate of the cell's own authority for a server whose key the cell's database does
    /// not list: nobody, who may enter this key there and do nothing else as a server.
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

    /// Whether the caller is believed: the other end may say who asks. Its uid 0, if the door let
    /// it through, is the superuser of files.
    pub const fn is_trusted(self) -> bool {
        matches!(self, AuthLevel::Named | AuthLevel::Server | AuthLevel::Host)
    }

    /// Whether uid 0 is the superuser of the cell too: over the server's own Unix socket, and with
    /// a server's certificate. An address makes nobody that.
    pub const fn is_own(self) -> bool {
        matches!(self, AuthLevel::Named | AuthLevel::Server)
    }

    /// Whether tokens say so.
    pub const fn is_of_tokens(self) -> bool {
        matches!(self, AuthLevel::Attested | AuthLevel::Password | AuthLevel::Kerberos)
    }

    /// Whether such callers are in `system:authuser`.
    pub const fn is_proved(self) -> bool {
        !matches!(self, AuthLevel::Nobody | AuthLevel::Enrolling)
    }
}

/// From here on user and group ids are of those whose records have none: `pts` refuses them for
/// others, and no system gives them to users.
pub const OWN_IDS: u32 = 0x8000_0000;

/// What mode bits take a user for whose record has no uid or gid: somebody else than every other
/// user. `None`: the number leaves no room.
pub fn own_id(principal: PrincipalId) -> Option<u32> {
    let number = u32::try_from(principal.0).ok().filter(|number| *number > 0)?;
    // The highest one means "none".
    Some(OWN_IDS + number).filter(|id| *id < u32::MAX)
}

/// Who asks, as the cell knows it. Checked at each request: a proof ends, a token is revoked, a
/// fence comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestIdentity {
    /// Which principal; [`PrincipalId::ANONYMOUS`] for a named caller whose uid no principal has.
    pub principal: PrincipalId,
    /// How that was shown.
    pub level: AuthLevel,
    /// When the token was made: seconds since 1970; 0: none.
    pub issued: i64,
    /// When the proof ends; `None`: with the connection.
    pub ends: Option<Timestamp>,
    /// The token's number; 0: none.
    pub token: u128,
    /// The number of the key that signed it; 0: none.
    pub key: u32,
    /// The request came over a network in clear text, where others may read along.
    pub overheard: bool,
    /// Where from; `None`: this machine.
    pub host: Option<IpAddr>,
    /// The key of the certificate that the caller's power rests on: at [`AuthLevel::Server`] and
    /// [`AuthLevel::Enrolling`], and of users whom a server names. Each call is refused once the
    /// cell's database does not list the key any more.
    pub server: Option<KeyPrint>,
}

impl RequestIdentity {
    /// Whom a trusted connection names before anybody has looked for the principal. What callers
    /// have at the client.
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
    /// Who shows nothing.
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
