//! How a caller proves its identity, and the token that it gets (`docs/spec/access.md`).

use std::fmt;
use std::net::IpAddr;

use zeroize::Zeroize;

use crate::PrincipalId;

/// Bytes that must never appear in a log. Erased from memory when dropped.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes ownership, so that the drop erases them.
    pub const fn new(bytes: Vec<u8>) -> Secret {
        Secret(bytes)
    }

    /// The bytes.
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

/// The caller for whom a server of the cell makes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behalf {
    /// The caller's principal; [`PrincipalId::ANONYMOUS`]: an anonymous caller.
    pub principal: PrincipalId,
    /// The caller's host; `None`: the asking server's own machine.
    pub host: Option<IpAddr>,
}

/// How a caller proves its identity. A client key is the public half of one that the client made
/// for this (Ed25519); the token is bound to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthCall {
    /// With a password. Answer: `Token`; `AccessDenied` for any error; `Busy`: too many attempts,
    /// try later.
    Password {
        /// The user's.
        name: String,
        /// 1 to [`crate::limits::PASSWORD_BYTES_MAX`] bytes.
        password: Secret,
        /// The client's key.
        client: [u8; 32],
    },
    /// With a Kerberos ticket. Answer: `Ticket`; `AccessDenied` if it is not valid for this client,
    /// `NoPrincipal` if the cell has no such user, `Unsupported` if the server has no keytab.
    Kerberos {
        /// A GSS-API token, at most [`crate::limits::KERBEROS_BYTES_MAX`] bytes.
        request: Secret,
        /// The client's key, to which the request is bound.
        client: [u8; 32],
    },
    /// By the identity that the connection gives the caller; the token is for use elsewhere. For a
    /// caller with a token: another one for this key, which ends with the caller's.
    /// Answer: `Token`; `NoPrincipal` if the caller is no principal.
    Attest {
        /// The client's key.
        client: [u8; 32],
    },
    /// A newer token in place of the caller's. Answer: `Token`; `TokenExpired` if it can no longer
    /// be renewed.
    Renew {
        /// The token to renew.
        token: Secret,
    },
    /// Another password. Answer: `Done`; `AccessDenied` if the old one is wrong; `Invalid` if the
    /// new one is not acceptable.
    SetPassword {
        /// The user whose password changes.
        name: String,
        /// `None`: an administrator needs none.
        old: Option<Secret>,
        /// [`crate::limits::PASSWORD_BYTES_MIN`] bytes at least.
        new: Secret,
        /// Tokens issued before stay valid. Otherwise the new password ends all of them.
        keep_tokens: bool,
    },
}
