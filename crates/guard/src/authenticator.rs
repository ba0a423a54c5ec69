//! The interface between the file service and the ways of authentication.
//!
//! The trait is here so that `vice` knows neither passwords nor tickets: crate `login` implements
//! them, and `server` connects both.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use types::{AuthLevel, PrincipalId, Secret, Time, Timestamp};

use crate::{Public, Token, TokenError};

/// The content of a token to issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRequest {
    /// The user's number.
    pub principal: PrincipalId,
    /// The user's name.
    pub name: String,
    /// How the user proved its identity.
    pub level: AuthLevel,
    /// The key of the user's client.
    pub client: Public,
    /// Tokens issued before are void, in seconds since 1970: this one is not.
    pub not_before: i64,
    /// When the proof itself ends: a Kerberos ticket does.
    pub ends: Option<i64>,
}

/// The token from which another one is made for a second key of the same user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenOrigin {
    /// The token's number, which fences and the audit log have. The other token has it too.
    pub number: u128,
    /// When the first token was issued: what voids that voids the other one.
    pub issued: i64,
    /// When it expires: the other token ends then at the latest, and is not renewed.
    pub expires: i64,
}

/// The result of a password attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The password is right.
    pub right: bool,
    /// It was the first wrong one after which attempts at this user from hosts unknown to it are
    /// delayed: an attacker guesses.
    pub alarm: bool,
}

/// The identity that a ticket proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vouched {
    /// The user's name in the cell.
    pub name: String,
    /// How long the ticket is still valid.
    pub left: Duration,
    /// For the user's program.
    pub reply: Vec<u8>,
}

/// Checks users' proofs, and issues tokens for them. Thread-safe.
pub trait Authenticator: fmt::Debug + Send + Sync {
    /// Whether this server accepts tokens signed by this key now.
    fn believes(&self, key: u32) -> bool;

    /// A new token; `None`: this server has no key to sign with.
    fn issue(&self, request: &TokenRequest, now: Timestamp) -> Option<Vec<u8>>;

    /// A token for another key of the holder of the token `origin`, which outlives that in no way;
    /// `None`: this server has no key to sign with.
    ///
    /// # Errors
    /// `Expired`, if that one has expired.
    fn derive(
        &self,
        request: &TokenRequest,
        origin: &TokenOrigin,
        now: Timestamp,
    ) -> Result<Option<Vec<u8>>, TokenError>;

    /// Parses a token of this cell that is valid now; does not check that the client has its key.
    ///
    /// # Errors
    /// The reason for the refusal.
    fn verify(&self, bytes: &[u8], now: Timestamp) -> Result<Token, TokenError>;

    /// A newer token for one that is still valid, bound to the same key; `None` as of `issue`.
    ///
    /// # Errors
    /// `Expired`, if it can no longer be renewed.
    fn renew(&self, token: &Token, now: Timestamp) -> Result<Option<Vec<u8>>, TokenError>;

    /// The hash to store for a password; `None`: it is too short or too long.
    fn keep(&self, password: &Secret) -> Option<String>;

    /// Whether this is the password whose hash is `kept`, tried for the user of this name from this
    /// host. `None`: the user has none; the check takes as long nevertheless.
    ///
    /// # Errors
    /// The reason why nothing was checked, for people.
    fn is_right(
        &self,
        now: Time,
        who: (&str, Option<IpAddr>),
        kept: Option<&str>,
        password: &Secret,
    ) -> Result<Tried, String>;

    /// Checks a Kerberos ticket, which must be bound to the client's key. `None`: the cell is in no
    /// realm.
    ///
    /// # Errors
    /// The reason why the ticket is refused, for people.
    fn accept(&self, ticket: &[u8], client: &Public) -> Option<Result<Vouched, String>>;

    /// Whether the first login with a ticket creates users that the cell does not know.
    fn makes_users(&self) -> bool;
}
