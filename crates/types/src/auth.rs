//! How somebody shows who he is, and what he gets for it: a token (`docs/spec/access.md`).

use std::fmt;
use std::net::IpAddr;

use zeroize::Zeroize;

use crate::PrincipalId;

/// Bytes that nobody may read in a log. Gone from memory when dropped.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes them over.
    pub const fn new(bytes: Vec<u8>) -> Secret {
        Secret(bytes)
    }

    /// What they are.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Secret {
    fn from(bytes: Vec<u8>) -> Secret {
        Secret::new(bytes)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Whom a server of the cell speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behalf {
    /// Who asked it; [`PrincipalId::ANONYMOUS`]: nobody that it knows.
    pub principal: PrincipalId,
    /// From where.
    pub host: Option<IpAddr>,
}

/// How somebody shows who he is. A client key is the public half of one that the client made for
/// this (Ed25519); the token is bound to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthCall {
    /// With a password. Answer: `Token`; `AccessDenied`, whatever was wrong; `Busy`: too many
    /// attempts, try later.
    Password {
        /// Of the user.
        name: String,
        /// 1 to [`crate::limits::PASSWORD_BYTES_MAX`] bytes.
        password: Secret,
        /// The client's key.
        client: [u8; 32],
    },
    /// With a Kerberos ticket. Answer: `Ticket`; `AccessDenied` if it is not good for this client,
    /// `NoPrincipal` if the cell knows no such user, `Unsupported` where the server has no keytab.
    Kerberos {
        /// A GSS-API token, at most [`crate::limits::KERBEROS_BYTES_MAX`] bytes.
        request: Secret,
        /// The client's key, to which the request is bound.
        client: [u8; 32],
    },
    /// By who the connection says that he is: for a token to take elsewhere. Answer: `Token`;
    /// `NoPrincipal` if he is none.
    Attest {
        /// The client's key.
        client: [u8; 32],
    },
    /// A newer token in place of the one that the caller shows. Answer: `Token`; `TokenExpired` if
    /// it is not to be renewed any more.
    Renew {
        /// That one.
        token: Secret,
    },
    /// Another password. Answer: `Done`; `AccessDenied` if the old one is wrong; `Invalid` if the
    /// new one cannot be one.
    SetPassword {
        /// Whose.
        name: String,
        /// `None`: an administrator needs none.
        old: Option<Secret>,
        /// [`crate::limits::PASSWORD_BYTES_MIN`] bytes at least.
        new: Secret,
        /// Tokens that were made before stay good. Otherwise the new password ends all of them.
        keep_tokens: bool,
    },
}
