//! How a server joins its cell: invitations, and the roles that they give (`docs/spec/access.md`,
//! *How a server joins*).

use std::fmt;
use std::str::FromStr;

use crate::{KeyPrint, PrincipalId};

/// The actions that a server may take in its cell, beside serving its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerRoles(u32);

/// The roles with their names.
const ROLES: [(ServerRoles, &str); 3] = [
    (ServerRoles::FILE, "file"),
    (ServerRoles::DATABASE, "database"),
    (ServerRoles::USERS, "users"),
];

impl ServerRoles {
    /// It may be a site of volumes.
    pub const FILE: ServerRoles = ServerRoles(1);
    /// It may copy the cell database, with the hashes of passwords in it.
    pub const DATABASE: ServerRoles = ServerRoles(2);
    /// It may act for users and administrators at other servers: it forwards their calls, and is
    /// the superuser there.
    pub const USERS: ServerRoles = ServerRoles(4);
    /// Those of a server that joined without an invitation.
    pub const ALL: ServerRoles = ServerRoles(7);
    /// None.
    pub const NONE: ServerRoles = ServerRoles(0);

    /// Does it include all of these?
    pub const fn has(self, roles: ServerRoles) -> bool {
        self.0 & roles.0 == roles.0
    }

    /// These and those.
    #[must_use]
    pub const fn with(self, roles: ServerRoles) -> ServerRoles {
        ServerRoles(self.0 | roles.0)
    }

    /// The number that stands for them on the wire.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Of such a number; `None`: it has a role that this program does not know.
    pub const fn from_bits(bits: u32) -> Option<ServerRoles> {
        if bits & !Self::ALL.0 == 0 { Some(ServerRoles(bits)) } else { None }
    }
}

impl fmt::Display for ServerRoles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ROLES.iter().filter(|(role, _)| self.has(*role)).map(|(_, name)| *name);
        f.write_str(&names.collect::<Vec<_>>().join(","))
    }
}

impl FromStr for ServerRoles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut roles = ServerRoles::NONE;
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let known = ROLES.iter().find(|(_, name)| *name == word);
            let (role, _) =
                known.ok_or_else(|| format!("{word} is no role: file, users, database"))?;
            roles = roles.with(*role);
        }
        Ok(roles)
    }
}

/// A server that an invitation let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvitedServer {
    /// Its key.
    pub key: KeyPrint,
    /// Its name in the cell.
    pub name: String,
    /// Seconds since 1970.
    pub at: i64,
}

/// Lets the holder of a secret into the cell as a server, for a while. The database has the public
/// half of a key that is derived from the secret, so its readers cannot use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitation {
    /// Assigned by the database, never reused.
    pub number: u64,
    /// The public half of the key with which the holder signs.
    pub public: [u8; 32],
    /// The name that the new server gets; empty: the one that it asks for.
    pub name: String,
    /// The roles that it gets.
    pub roles: ServerRoles,
    /// How many servers it lets in.
    pub uses: u32,
    /// Those that it has let in.
    pub used: Vec<InvitedServer>,
    /// Seconds since 1970.
    pub since: i64,
    /// When it ends: seconds since 1970.
    pub until: i64,
    /// The principal that made it; [`PrincipalId::NONE`]: the superuser of a server.
    pub by: PrincipalId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read_as_they_are_written() {
        for roles in [ServerRoles::FILE, ServerRoles::DATABASE, ServerRoles::ALL, ServerRoles::NONE]
        {
            assert_eq!(roles.to_string().parse(), Ok(roles));
            assert_eq!(ServerRoles::from_bits(roles.bits()), Some(roles));
        }
        assert!("file,root".parse::<ServerRoles>().is_err());
        assert_eq!(ServerRoles::from_bits(8), None);
        assert!(!ServerRoles::FILE.has(ServerRoles::DATABASE));
    }
}
