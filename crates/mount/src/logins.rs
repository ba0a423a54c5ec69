//! Who logs in through the mount: a user tells it who he is in the cell, by attributes of any directory of the tree, and the mount keeps his token (`docs/access.md`).
//!
//! | name | read | set |
//! |---|---|---|
//! | `system.rialto.login` | | JSON: `{"user": NAME, "password": TEXT}`, or `{"attest": true}`: by what the connection says |
//! | `system.rialto.logout` | | anything: the token is forgotten |
//! | `system.rialto.tokens` | JSON: the token of who asks, or `null` | |
//! | `system.rialto.passwd` | | JSON: `{"user": NAME, "old": TEXT, "new": TEXT}`; `old` is left out by administrators |
//!
//! Linux asks nobody's permission for setting attributes of `system.`, so a user needs no right to the directory. What is set is no longer than a message and gone
//! from memory when it was used.

use std::sync::Arc;

use bytes::Bytes;
use guard::Signer;
use rustix::io::Errno;
use serde_json::{Value, json};
use types::{Answer, AuthCall, Caller, Secret, Timestamp, Who};
use venus::{Request, Venus, Volumes};
use zeroize::Zeroize;

use crate::dispatch::{Refusal, Task};

/// One of them.
#[derive(Clone, Copy)]
pub(crate) enum Login {
    In,
    Out,
    Tokens,
    Password,
}

impl Login {
    pub fn of(name: &[u8]) -> Option<Login> {
        match name.strip_prefix(b"system.rialto.")? {
            b"login" => Some(Login::In),
            b"logout" => Some(Login::Out),
            b"tokens" => Some(Login::Tokens),
            b"passwd" => Some(Login::Password),
            _ => None,
        }
    }
}

impl Task<'_> {
    pub(crate) fn login_value(&self, wanted: Login) -> Result<Bytes, Refusal> {
        let Login::Tokens = wanted else { return Err(Refusal(Errno::NODATA)) };
        let tokens = self.on.volumes.tokens().ok_or(Errno::OPNOTSUPP)?;
        let shown = tokens.of(self.request().caller.uid).map(|token| {
            json!({
                "cell": token.cell, "user": token.name, "id": token.principal.0, "level": format!("{:?}", token.level).to_lowercase(),
                "issued": token.issued, "expires": token.expires, "renewable": token.renewable,
            })
        });
        Ok(Value::from(shown).to_string().into())
    }

    pub(crate) fn set_login(&self, wanted: Login, value: &[u8]) -> Result<(), Refusal> {
        match wanted {
            Login::In => self.log_in(&mut parsed(value)?)?,
            Login::Out => {
                self.on.volumes.tokens().ok_or(Errno::OPNOTSUPP)?.remove(self.request().caller.uid);
                self.on.volumes.forget_rights();
            }
            Login::Password => {
                let mut said = parsed(value)?;
                let name = text(&mut said, "user")?;
                let has_old = said.get("old").is_some();
                let old = has_old.then(|| text(&mut said, "old")).transpose()?.map(secret);
                let new = secret(text(&mut said, "new")?);
                self.venus().auth(&self.request(), AuthCall::SetPassword { name, old, new })?;
            }
            Login::Tokens => return Err(Refusal(Errno::PERM)),
        }
        self.done();
        Ok(())
    }

    fn log_in(&self, said: &mut Value) -> Result<(), Refusal> {
        let volumes = &self.on.volumes;
        let tokens = volumes.tokens().ok_or(Errno::OPNOTSUPP)?;
        let signer = Arc::new(Signer::random().1);
        let client = signer.public();
        let call = if said["attest"] == true {
            AuthCall::Attest { client }
        } else {
            AuthCall::Password { name: text(said, "user")?, password: secret(text(said, "password")?), client }
        };
        let answer = self.venus().auth(&self.request(), call)?;
        let Answer::Token(token) = answer else { return Err(Refusal(Errno::PROTO)) };
        if !tokens.put(self.request().caller.uid, token, signer) {
            return Err(Refusal(Errno::PROTO));
        }
        volumes.forget_rights();
        Ok(())
    }
}

/// Asks for newer tokens for those that end soon. Now and then, in a thread that may wait.
pub fn renew_tokens(volumes: &Volumes, venus: &Venus, now: Timestamp) {
    let Some(tokens) = volumes.tokens() else { return };
    for (uid, token, signer) in tokens.to_renew(now) {
        let caller = Caller { uid, gid: uid, groups: Some(Box::default()), who: Who::NAMED };
        let call = AuthCall::Renew { token: token.to_vec() };
        match venus.auth(&Request::of(&caller), call) {
            Ok(Answer::Token(newer)) if tokens.put(uid, newer.clone(), signer) => tracing::info!(uid, "token renewed"),
            Ok(_) => tracing::warn!(uid, "the answer to a renewal is no token"),
            Err(error) => tracing::warn!(uid, %error, "a token is not renewed"),
        }
    }
}

fn parsed(value: &[u8]) -> Result<Value, Refusal> {
    Ok(serde_json::from_slice(value).map_err(|_| Errno::INVAL)?)
}

/// Taken out, so that it is nowhere twice.
fn text(said: &mut Value, name: &str) -> Result<String, Refusal> {
    match said.get_mut(name).map(Value::take) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(Refusal(Errno::INVAL)),
    }
}

fn secret(mut text: String) -> Secret {
    let secret = Secret::new(text.as_bytes().to_vec());
    text.zeroize();
    secret
}
