//! Users of this machine in the cell: a token of AFS for those that logged in, and *nobody* for all
//! others.
//!
//! Model: the wallet has beside a user's token what the user's program took from its ticket for
//! `afs/CELL` ([`AfsLogin`]), if it did. That is all that is used here, and no server of Rialto is
//! shown it; the token itself is shown to no server of AFS (MX-4).
//!
//! In a cell of Rialto the token is one of its servers'. In a foreign cell it is made here and
//! means nothing to any server: with it a login is shown, renewed and forgotten like any other.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use client::TokenWallet;
use guard::{Signer, Token};
use parking_lot::Mutex;
use rx::rxkad::RxkadToken;
use serde_json::{Value, json};
use types::{
    Answer, AuthCall, AuthLevel, Caller, Fault, PrincipalId, Secret, hex, unhex, unhex_array,
};
use zeroize::Zeroizing;

/// A whole Kerberos 5 ticket, in place of a key's number. Source: OpenAFS `src/rxkad/rxkad.h`.
const KERBEROS_5_TICKET: u32 = 256;

/// A login, as a user's program shows it: its ticket for `afs/CELL`, the session key that servers
/// will compute from the ticket's, the user's name, and when the ticket ends.
#[derive(Clone, Debug)]
pub struct AfsLogin {
    /// The principal, as `joe@EXAMPLE.ORG`.
    pub user: String,
    /// The session key of rxkad.
    pub session_key: Zeroizing<[u8; 8]>,
    /// The ticket as the realm made it.
    pub ticket: Bytes,
    /// Begin and end, in seconds since 1970.
    pub valid: (u32, u32),
}

impl AfsLogin {
    /// From a ticket for the cell's service with its session key, of this encryption type. `None`:
    /// servers of AFS know no such keys.
    pub fn of_ticket(
        user: String,
        (key_type, key): (i32, &[u8]),
        ticket: Vec<u8>,
        valid: (u32, u32),
    ) -> Option<AfsLogin> {
        let session_key = Zeroizing::new(rx::rxkad::session_key_from_krb5(key_type, key)?);
        Some(AfsLogin { user, session_key, ticket: ticket.into(), valid })
    }

    /// The form in which it takes the place of a request ([`AuthCall::Kerberos`]).
    pub fn to_request(&self) -> Secret {
        let fields = json!({
            "user": self.user, "session_key": hex(&*self.session_key), "ticket": hex(&self.ticket),
            "valid": [self.valid.0, self.valid.1],
        });
        Secret::new(fields.to_string().into_bytes())
    }

    /// From that form; `None`: it is none.
    fn of_request(request: &Secret) -> Option<AfsLogin> {
        let fields: Value = serde_json::from_slice(request.reveal()).ok()?;
        let word = |value: &Value| value.as_u64().and_then(|word| u32::try_from(word).ok());
        Some(AfsLogin {
            user: fields["user"].as_str()?.to_owned(),
            session_key: Zeroizing::new(unhex_array(fields["session_key"].as_str()?.as_bytes())?),
            ticket: Bytes::from(unhex(fields["ticket"].as_str()?.as_bytes())?),
            valid: (word(&fields["valid"][0])?, word(&fields["valid"][1])?),
        })
    }
}

/// The identity under which a call is made: the number of the user's login, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AfsUser(Option<u128>);

/// See the head of the file.
pub(crate) struct AfsUsers {
    wallet: Arc<TokenWallet>,
    /// Those of logins that the wallet has, or had a moment ago.
    tokens: Mutex<HashMap<u128, RxkadToken>>,
    /// Signs tokens that only this process reads.
    signer: Signer,
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

impl AfsUsers {
    pub fn new(wallet: Arc<TokenWallet>) -> AfsUsers {
        AfsUsers { wallet, tokens: Mutex::default(), signer: Signer::random().1 }
    }

    /// The identity of a caller, as the wallet has it now. One with a login that cannot be read is
    /// *nobody*.
    pub fn of(&self, caller: &Caller) -> AfsUser {
        let Some((number, request)) = self.wallet.afs_login(caller.uid) else {
            return AfsUser::default();
        };
        let mut tokens = self.tokens.lock();
        if !tokens.contains_key(&number) {
            let Some(login) = AfsLogin::of_request(&request) else { return AfsUser::default() };
            let held = self.wallet.afs_logins();
            tokens.retain(|number, _| held.contains(number));
            let token = RxkadToken {
                session_key: login.session_key,
                kvno: KERBEROS_5_TICKET,
                ticket: login.ticket,
                valid: login.valid,
            };
            tokens.insert(number, token);
        }
        AfsUser(Some(number))
    }

    /// The token of an identity.
    ///
    /// # Errors
    /// `TokenExpired`.
    pub fn token(&self, user: AfsUser) -> Result<Option<RxkadToken>, Fault> {
        let Some(number) = user.0 else { return Ok(None) };
        let tokens = self.tokens.lock();
        let token = tokens.get(&number).ok_or(Fault::TokenExpired)?;
        if i64::from(token.valid.1) <= now() {
            Err(Fault::TokenExpired)
        } else {
            Ok(Some(token.clone()))
        }
    }

    /// A token for a login to a foreign cell.
    ///
    /// # Errors
    /// `AccessDenied`: the request is none; `Unsupported`: another kind of login.
    pub fn log_in(&self, cell: &str, call: &AuthCall) -> Result<Answer, Fault> {
        let AuthCall::Kerberos { request, client } = call else { return Err(Fault::Unsupported) };
        let login = AfsLogin::of_request(request).ok_or(Fault::AccessDenied)?;
        let token = Token {
            cell: cell.to_owned(),
            key: 0,
            number: rand::random(),
            principal: PrincipalId::ANONYMOUS,
            name: login.user,
            level: AuthLevel::Kerberos,
            issued: login.valid.0.into(),
            expires: login.valid.1.into(),
            renewable: login.valid.1.into(),
            client: *client,
        };
        let bytes = token.sign(&self.signer);
        Token::parse(&bytes).map_err(|_| Fault::AccessDenied)?;
        Ok(Answer::Ticket { token: bytes.into(), reply: Bytes::new() })
    }
}
