//! Logins through the mount: a user authenticates by attributes `system.rialto.NAME` of any
//! directory of the tree, and the mount stores the user's token (`docs/spec/access.md`).
//!
//! - `login`: set to JSON, `{"user": NAME, "password": TEXT}`, or `{"attest": true}` for the
//!   identity that the connection gives.
//! - `kerberos`: read as JSON, `{"client": HEX}`, the key that a ticket must be bound to; after a
//!   login with one `{"reply": HEX}` as well. Set to a line of JSON, `{"cache": NAME, "service":
//!   NAME}`, followed by the request in binary. With `{"afs": true}` the cell is one of AFS, and
//!   the request is the ticket itself with a session key (`afsclient::AfsLogin`).
//! - `afs`: set to such a ticket, for the servers of AFS in a cell of Rialto: it is kept beside the
//!   caller's token, and no server of Rialto sees it (`docs/spec/mixed-cells.md`).
//! - `logout`: set to anything: the token is forgotten.
//! - `tokens`: read as JSON: the caller's token, or `null`.
//! - `token.HEX`: read as JSON, `{"token": HEX}`: a token of the caller for the public key HEX of
//!   one of its programs, which ends with the caller's own. The name has the key, so that two
//!   programs of a user that ask at once get each its own.
//! - `passwd`: set to JSON, `{"user": NAME, "old": TEXT, "new": TEXT}`; administrators omit `old`;
//!   with `"keep_tokens": true` older tokens stay valid.
//!
//! Linux checks no permission for setting attributes of `system.`, so a user needs no right to the
//! directory. A value is no longer than a message, and is erased from memory after its use.

use std::sync::Arc;

use bytes::Bytes;
use client::TicketSource;
use guard::{Public, Signer};
use rustix::io::Errno;
use serde_json::{Value, json};
use types::limits::KERBEROS_BYTES_MAX;
use types::{
    Answer, AuthCall, Caller, Fault, RequestIdentity, Secret, Timestamp, hex, unhex_array,
};
use venus::{Error, RequestContext, Venus, Volumes};
use zeroize::Zeroize;

use crate::errno::RequestRefusal;

/// One of these attributes.
#[derive(Clone, Copy)]
pub(crate) enum PendingLogin {
    In,
    Kerberos,
    /// Beside a token of Rialto, for servers of AFS.
    Afs,
    Out,
    Tokens,
    /// For this key of a program.
    ForProgram(Public),
    Password,
}

impl PendingLogin {
    pub fn of(name: &[u8]) -> Option<PendingLogin> {
        let name = name.strip_prefix(b"system.rialto.")?;
        if let Some(key) = name.strip_prefix(b"token.") {
            return unhex_array(key).map(PendingLogin::ForProgram);
        }
        match name {
            b"login" => Some(PendingLogin::In),
            b"kerberos" => Some(PendingLogin::Kerberos),
            b"afs" => Some(PendingLogin::Afs),
            b"logout" => Some(PendingLogin::Out),
            b"tokens" => Some(PendingLogin::Tokens),
            b"passwd" => Some(PendingLogin::Password),
            _ => None,
        }
    }
}

/// Logs users of this machine in and out.
pub(crate) struct LoginDesk<'a> {
    pub venus: &'a Venus,
    pub volumes: &'a Volumes,
    pub request: RequestContext<'a>,
    /// The process that asks.
    pub pid: u32,
}

impl LoginDesk<'_> {
    pub(crate) fn value(&self, wanted: PendingLogin) -> Result<Bytes, RequestRefusal> {
        let tokens = self.volumes.tokens().ok_or(Errno::OPNOTSUPP)?;
        let uid = self.request.caller.uid;
        match wanted {
            PendingLogin::Tokens => {}
            PendingLogin::ForProgram(client) => return self.token_for(client),
            PendingLogin::Kerberos => {
                let reply = tokens.take_reply(uid).map(|reply| hex(&reply));
                let client = hex(&tokens.expect(uid));
                let offer = json!({ "client": client, "reply": reply, "afs": tokens.is_of_afs() });
                return Ok(offer.to_string().into());
            }
            PendingLogin::In | PendingLogin::Afs | PendingLogin::Out | PendingLogin::Password => {
                return Err(RequestRefusal(Errno::NODATA));
            }
        }
        let shown = tokens.of(uid).map(|token| {
            json!({
                "cell": token.cell, "user": token.name, "id": token.principal.0,
                "level": format!("{:?}", token.level).to_lowercase(),
                "issued": token.issued, "expires": token.expires, "renewable": token.renewable,
                "afs": !tokens.is_of_afs() && tokens.afs_login(uid).is_some(),
            })
        });
        Ok(Value::from(shown).to_string().into())
    }

    pub(crate) fn set(&self, wanted: PendingLogin, value: &[u8]) -> Result<(), RequestRefusal> {
        match wanted {
            PendingLogin::In => self.log_in(&mut parsed(value)?)?,
            PendingLogin::Kerberos => self.show_ticket(value)?,
            PendingLogin::Afs => self.accompany(value)?,
            PendingLogin::Out => {
                let tokens = self.volumes.tokens().ok_or(Errno::OPNOTSUPP)?;
                self.volumes.send_written(&self.request)?;
                tokens.remove(self.request.caller.uid);
                self.volumes.forget_rights();
            }
            PendingLogin::Password => {
                self.set_password(&mut parsed(value)?)?;
            }
            PendingLogin::Tokens | PendingLogin::ForProgram(_) => {
                return Err(RequestRefusal(Errno::PERM));
            }
        }
        Ok(())
    }

    /// A token of the caller for a program's key. The server makes it in the name of the caller
    /// alone, whose uid the kernel reports.
    fn token_for(&self, client: Public) -> Result<Bytes, RequestRefusal> {
        let call = AuthCall::Attest { client };
        let Answer::Token(token) = self.venus.access().auth(&self.request, call)? else {
            return Err(RequestRefusal(Errno::PROTO));
        };
        Ok(json!({ "token": hex(token.reveal()) }).to_string().into())
    }

    /// A new password ends all tokens of its user, this mount's too. A user that changes its own
    /// gets another one at once, by the new password, and stays logged in here.
    fn set_password(&self, fields: &mut Value) -> Result<(), RequestRefusal> {
        let volumes = self.volumes;
        let name = text(fields, "user")?;
        let has_old = fields.get("old").is_some();
        let old = has_old.then(|| text(fields, "old")).transpose()?.map(secret);
        let new = secret(text(fields, "new")?);
        let keep_tokens = fields["keep_tokens"] == true;
        let uid = self.request.caller.uid;
        let held = volumes.tokens().and_then(|tokens| tokens.of(uid));
        let stays = !keep_tokens && held.is_some_and(|token| token.name == name);
        if stays {
            // Unsent writes are sent while the token is valid.
            volumes.send_written(&self.request)?;
        }
        let call = AuthCall::SetPassword { name: name.clone(), old, new: new.clone(), keep_tokens };
        self.venus.access().auth(&self.request, call)?;
        if stays {
            let signer = Arc::new(Signer::random().1);
            let call = AuthCall::Password { name, password: new, client: signer.public() };
            // The password has changed already: an error now would deny that.
            if let Err(RequestRefusal(error)) = self.get_token(call, signer) {
                tracing::warn!(
                    uid,
                    ?error,
                    "no token for the new password: the user has to log in again"
                );
            }
        }
        Ok(())
    }

    fn log_in(&self, fields: &mut Value) -> Result<(), RequestRefusal> {
        let signer = Arc::new(Signer::random().1);
        let client = signer.public();
        let call = if fields["attest"] == true {
            AuthCall::Attest { client }
        } else {
            AuthCall::Password {
                name: text(fields, "user")?,
                password: secret(text(fields, "password")?),
                client,
            }
        };
        self.get_token(call, signer)
    }

    /// Requests a token that is bound to the key `signer`, and stores it.
    fn get_token(&self, call: AuthCall, signer: Arc<Signer>) -> Result<(), RequestRefusal> {
        let volumes = self.volumes;
        let tokens = volumes.tokens().ok_or(Errno::OPNOTSUPP)?;
        let Answer::Token(token) = self.shown(call)? else {
            return Err(RequestRefusal(Errno::PROTO));
        };
        volumes.send_written(&self.request)?;
        if !tokens.put(self.request.caller.uid, &token, signer) {
            return Err(RequestRefusal(Errno::PROTO));
        }
        // Without an answer mode bits treat the user as *nobody*; the server checks anyway.
        if let Err(error) = self.venus.access().learn_ids(&self.request) {
            tracing::warn!(%error, "cannot look up the new user: mode bits treat it as unknown");
        }
        volumes.forget_rights();
        Ok(())
    }

    /// The answer to a login. A token that has expired would prevent it, and is forgotten.
    fn shown(&self, call: AuthCall) -> Result<Answer, RequestRefusal> {
        let request = &self.request;
        let answer = match self.venus.access().auth(request, call.clone()) {
            Err(Error::Fault(Fault::TokenExpired | Fault::TokenRefused)) => {
                if let Some(tokens) = self.volumes.tokens() {
                    tokens.remove(request.caller.uid);
                }
                self.venus.access().auth(request, call)
            }
            answer => answer,
        };
        Ok(answer?)
    }

    /// The text of a user's program about its ticket, and the ticket.
    fn show_ticket(&self, value: &[u8]) -> Result<(), RequestRefusal> {
        let volumes = self.volumes;
        let tokens = volumes.tokens().ok_or(Errno::OPNOTSUPP)?;
        let end = value.iter().position(|byte| *byte == b'\n').ok_or(Errno::INVAL)?;
        let (fields, request) = value.split_at(end);
        let mut fields = parsed(fields)?;
        let request = request.strip_prefix(b"\n").unwrap_or_default().to_vec();
        if request.len() > KERBEROS_BYTES_MAX {
            return Err(RequestRefusal(Errno::MSGSIZE));
        }
        let caller = self.request.caller.clone();
        let signer = tokens.expected(caller.uid).ok_or(Errno::STALE)?;
        let request = Secret::new(request);
        let call = AuthCall::Kerberos { request: request.clone(), client: signer.public() };
        let Answer::Ticket { token, reply } = self.shown(call)? else {
            return Err(RequestRefusal(Errno::PROTO));
        };
        let (cache, service) = (text(&mut fields, "cache")?, text(&mut fields, "service")?);
        let (place, name_space) = (text(&mut fields, "place").ok(), name_space_of(self.pid));
        volumes.send_written(&self.request)?;
        let source =
            TicketSource { uid: caller.uid, gid: caller.gid, cache, service, place, name_space };
        if !tokens.put_from(source, &token, signer, reply) {
            return Err(RequestRefusal(Errno::PROTO));
        }
        // In a cell of AFS the token was made of the ticket, which servers are to see.
        if tokens.is_of_afs() && !tokens.accompany(caller.uid, request) {
            return Err(RequestRefusal(Errno::STALE));
        }
        // Without an answer mode bits treat the user as *nobody*; the server checks anyway.
        if let Err(error) = self.venus.access().learn_ids(&self.request) {
            tracing::warn!(%error, "cannot look up the new user: mode bits treat it as unknown");
        }
        volumes.forget_rights();
        Ok(())
    }

    /// A login for servers of AFS, beside the caller's token.
    fn accompany(&self, value: &[u8]) -> Result<(), RequestRefusal> {
        let tokens = self.volumes.tokens().ok_or(Errno::OPNOTSUPP)?;
        if value.len() > KERBEROS_BYTES_MAX {
            return Err(RequestRefusal(Errno::MSGSIZE));
        }
        // Earlier writes are sent under the identity that made them.
        self.volumes.send_written(&self.request)?;
        if !tokens.accompany(self.request.caller.uid, Secret::new(value.to_vec())) {
            return Err(RequestRefusal(Errno::NODATA));
        }
        self.volumes.forget_rights();
        Ok(())
    }
}

/// The mount name space of a process that waits for us, unless it is ours.
fn name_space_of(process: u32) -> Option<u64> {
    let number =
        |process: &str| Some(rustix::fs::stat(format!("/proc/{process}/ns/mnt")).ok()?.st_ino);
    number(&process.to_string()).filter(|theirs| number("self") != Some(*theirs))
}

/// Requests newer tokens for those that expire soon. Called now and then, in a thread that may
/// wait.
pub fn renew_tokens(volumes: &Volumes, now: Timestamp) {
    let Some(tokens) = volumes.tokens() else { return };
    for (uid, token, signer) in tokens.to_renew(now) {
        let caller =
            Caller { uid, gid: uid, groups: Some(Box::default()), who: RequestIdentity::NAMED };
        let call = AuthCall::Renew { token: token.to_vec().into() };
        match volumes.auth(&RequestContext::of(&caller), call) {
            Ok(Answer::Token(newer)) if tokens.put(uid, &newer, signer) => {
                tracing::info!(uid, "token renewed");
            }
            Ok(_) => tracing::warn!(uid, "the server answered a token renewal without a token"),
            Err(error) => tracing::warn!(uid, %error, "cannot renew a token: it will expire"),
        }
    }
    if tokens.is_doubted() {
        recheck(volumes, &tokens.users());
    }
}

/// Invalidates what the kernel caches for users whose groups have changed.
fn recheck(volumes: &Volumes, users: &[u32]) {
    let caller = |uid: &u32| Caller {
        uid: *uid,
        gid: *uid,
        groups: Some(Box::default()),
        who: RequestIdentity::NAMED,
    };
    let changed = users
        .iter()
        .map(caller)
        .filter(|caller| volumes.learn_ids(&RequestContext::of(caller)).unwrap_or(false));
    if changed.count() > 0 {
        volumes.forget_rights();
    }
}

fn parsed(value: &[u8]) -> Result<Value, RequestRefusal> {
    Ok(serde_json::from_slice(value).map_err(|_| Errno::INVAL)?)
}

/// Taken out, so that no second copy remains.
fn text(fields: &mut Value, name: &str) -> Result<String, RequestRefusal> {
    match fields.get_mut(name).map(Value::take) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(RequestRefusal(Errno::INVAL)),
    }
}

fn secret(mut text: String) -> Secret {
    let secret = Secret::new(text.as_bytes().to_vec());
    text.zeroize();
    secret
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_program_is_read_in_one_form_only() {
        let named =
            |digits: &str| PendingLogin::of(format!("system.rialto.token.{digits}").as_bytes());
        assert!(matches!(
            named(&"0a".repeat(32)),
            Some(PendingLogin::ForProgram(key)) if key == [10; 32]
        ));
        for bad in
            [String::new(), "0a".repeat(31), "0a".repeat(33), "0".repeat(63), "+a".repeat(32)]
        {
            assert!(named(&bad).is_none(), "{bad}");
        }
        assert!(PendingLogin::of(b"system.rialto.token").is_none());
    }
}
