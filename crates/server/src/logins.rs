//! The login methods for the service: crate `login` behind `guard`'s trait.

use std::net::IpAddr;
use std::sync::Arc;

use guard::{Authenticator, Public, Token, TokenError, TokenOrigin, TokenRequest, Tried, Vouched};
use login::{Passwords, Service, TokenIssuer};
use types::{Secret, Time, Timestamp};

/// This server's issuer and verifiers.
#[derive(Debug)]
pub(crate) struct Logins {
    mint: Arc<TokenIssuer>,
    passwords: Passwords,
    kerberos: Option<Arc<Service>>,
}

impl Logins {
    /// With the token issuer, and the verifier of Kerberos tickets.
    pub fn new(mint: Arc<TokenIssuer>, kerberos: Option<Arc<Service>>) -> Logins {
        Logins { mint, passwords: Passwords::default(), kerberos }
    }
}

impl Authenticator for Logins {
    fn believes(&self, key: u32) -> bool {
        self.mint.believes(key)
    }

    fn issue(&self, request: &TokenRequest, now: Timestamp) -> Option<Vec<u8>> {
        self.mint.issue(request, now)
    }

    fn derive(
        &self,
        request: &TokenRequest,
        origin: &TokenOrigin,
        now: Timestamp,
    ) -> Result<Option<Vec<u8>>, TokenError> {
        self.mint.derive(request, origin, now)
    }

    fn verify(&self, bytes: &[u8], now: Timestamp) -> Result<Token, TokenError> {
        self.mint.verify(bytes, now)
    }

    fn renew(&self, token: &Token, now: Timestamp) -> Result<Option<Vec<u8>>, TokenError> {
        self.mint.renew(token, now)
    }

    fn keep(&self, password: &Secret) -> Option<String> {
        self.passwords.keep(password).ok()
    }

    fn is_right(
        &self,
        now: Time,
        who: (&str, Option<IpAddr>),
        kept: Option<&str>,
        password: &Secret,
    ) -> Result<Tried, String> {
        self.passwords.is_right(now, who, kept, password).map_err(|error| error.to_string())
    }

    fn accept(&self, ticket: &[u8], client: &Public) -> Option<Result<Vouched, String>> {
        let service = self.kerberos.as_ref()?;
        Some(service.accept(ticket, client).map_err(|error| error.to_string()))
    }

    fn makes_users(&self) -> bool {
        self.kerberos.as_ref().is_some_and(|service| service.creates)
    }
}
