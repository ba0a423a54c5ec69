//! What the file service asks of the ways to show who one is.
//!
//! The trait is here so that `vice` knows neither passwords nor tickets: crate `login` has them,
//! and `server` puts both together.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use types::{AuthLevel, PrincipalId, Secret, Time, Timestamp};

use crate::{Public, Token, TokenError};

/// Who a token is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRequest {
    /// Who.
    pub principal: PrincipalId,
    /// What he is called.
    pub name: String,
    /// How he showed it.
    pub level: AuthLevel,
    /// The key of his client.
    pub client: Public,
    /// Tokens made before are void, in seconds since 1970: this one is not.
    pub not_before: i64,
    /// When what he showed ends by itself: a Kerberos ticket does.
    pub ends: Option<i64>,
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The password is right.
    pub right: bool,
    /// It was the first wrong one after which attempts at this user from hosts that are strange to
    /// him wait: somebody guesses.
    pub alarm: bool,
}

/// Who a ticket says somebody is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vouched {
    /// The user's name in the cell.
    pub name: String,
    /// How long the ticket is good still.
    pub left: Duration,
    /// For the user's program.
    pub reply: Vec<u8>,
}

/// Looks at what users show, and makes tokens of it. Thread-safe.
pub trait Authenticator: fmt::Debug + Send + Sync {
    /// Whether tokens that this key signed are believed now.
    fn believes(&self, key: u32) -> bool;

    /// A new token; `None`: this server has no key to sign with.
    fn issue(&self, request: &TokenRequest, now: Timestamp) -> Option<Vec<u8>>;

    /// A token of this cell that is good now, whoever has it.
    ///
    /// # Errors
    /// Why not.
    fn verify(&self, bytes: &[u8], now: Timestamp) -> Result<Token, TokenError>;

    /// A newer token for one that is good still, bound to the same key; `None` as of `issue`.
    ///
    /// # Errors
    /// `Expired`, where it is not to be renewed any more.
    fn renew(&self, token: &Token, now: Timestamp) -> Result<Option<Vec<u8>>, TokenError>;

    /// What is kept of a password; `None`: it is too short or too long.
    fn keep(&self, password: &Secret) -> Option<String>;

    /// Whether this is the password of which `kept` is kept, tried for the user of this name from
    /// this host. `None`: the user has none, which takes as long to find out.
    ///
    /// # Errors
    /// Why nothing was looked at, for people.
    fn is_right(
        &self,
        now: Time,
        who: (&str, Option<IpAddr>),
        kept: Option<&str>,
        password: &Secret,
    ) -> Result<Tried, String>;

    /// Looks at a Kerberos ticket, which has to be bound to the client's key. `None`: the cell is
    /// in no realm.
    ///
    /// # Errors
    /// Why nobody was shown to be anybody, for people.
    fn accept(&self, ticket: &[u8], client: &Public) -> Option<Result<Vouched, String>>;

    /// Whether users that the cell does not know are made at their first login with a ticket.
    fn makes_users(&self) -> bool;
}
