//! Messages of authentication.

use types::limits::{KERBEROS_BYTES_MAX, PASSWORD_BYTES_MAX, TOKEN_BYTES_MAX};
use types::{Answer, AuthCall, Behalf};

use super::Procedure;
use super::layout::{Layout, Plain, Short, layout, messages, record};
use super::pts::NAME;
use crate::WireError;
use crate::wire::{FieldReader, Writer};

pub(crate) const TOKEN: Short = Short("token bytes", TOKEN_BYTES_MAX);
const TICKET: Short = Short("bytes of a Kerberos message", KERBEROS_BYTES_MAX);
const PASSWORD: Short = Short("bytes of a password", PASSWORD_BYTES_MAX);

pub(super) fn put_ticket(to: &mut Writer, token: &[u8], reply: &[u8]) {
    TOKEN.put_bytes(to, token);
    TICKET.put_bytes(to, reply);
}

pub(super) fn get_ticket(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    Ok(Answer::Ticket { token: TOKEN.get(from)?, reply: TICKET.get(from)? })
}

record!(Behalf { principal, host });

messages! {
    AuthCall by Procedure:
    fn put_auth_call(to);
    fn get_auth_call(from, number);
    {
        AuthPassword => Password { name: NAME, password: PASSWORD, client }
        AuthAttest => Attest { client }
        AuthKerberos => Kerberos { request: TICKET, client }
        AuthRenew => Renew { token: TOKEN }
    }
    ()
    put {
        AuthCall::SetPassword { name, old, new, keep_tokens } => {
            NAME.put(to, name);
            to.bool(old.is_some());
            old.iter().chain([new]).for_each(|secret| PASSWORD.put(to, secret));
            to.bool(*keep_tokens);
        }
    }
    get {
        Procedure::AuthSetPassword => {
            let name = NAME.get(from)?;
            let old = from.bool("old password")?.then(|| PASSWORD.get(from)).transpose()?;
            let (new, keep_tokens) = (PASSWORD.get(from)?, from.bool("keep tokens")?);
            AuthCall::SetPassword { name, old, new, keep_tokens }
        }
        other => {
            return Err(WireError::BadValue { what: "procedure of logins", value: other as u64 });
        }
    }
}
