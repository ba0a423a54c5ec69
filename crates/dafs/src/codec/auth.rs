//! Messages of authentication.

use types::limits::{
    KERBEROS_BYTES_MAX, PASSWORD_BYTES_MAX, PRINCIPAL_NAME_BYTES_MAX, TOKEN_BYTES_MAX,
};
use types::{Answer, AuthCall, Behalf, Call, Secret};

use super::Procedure;
use super::fields::{get_text, put_text};
use super::pts::{get_host, get_id, put_host, put_id};
use crate::WireError;
use crate::wire::{FieldReader, Writer};

const NAME: &str = "bytes of a principal's name";
const TICKET: &str = "bytes of a Kerberos message";
const PASSWORD: &str = "bytes of a password";

fn put_secret<'w>(to: &'w mut Writer, secret: &Secret) -> &'w mut Writer {
    to.length16(PASSWORD, secret.reveal().len(), PASSWORD_BYTES_MAX).raw(secret.reveal())
}

fn get_secret(from: &mut FieldReader<'_>) -> Result<Secret, WireError> {
    let length = from.length16(PASSWORD, PASSWORD_BYTES_MAX)?;
    Ok(Secret::new(from.bytes(length)?.to_vec()))
}

pub(super) fn put_ticket(to: &mut Writer, token: &[u8], reply: &[u8]) {
    to.length16("token bytes", token.len(), TOKEN_BYTES_MAX).raw(token);
    to.length16(TICKET, reply.len(), KERBEROS_BYTES_MAX).raw(reply);
}

pub(super) fn get_ticket(from: &mut FieldReader<'_>) -> Result<Answer, WireError> {
    let length = from.length16("token bytes", TOKEN_BYTES_MAX)?;
    let token = from.bytes(length)?.to_vec().into();
    let length = from.length16(TICKET, KERBEROS_BYTES_MAX)?;
    Ok(Answer::Ticket { token, reply: from.owned(length)? })
}

pub(super) fn put_auth_call(to: &mut Writer, behalf: Option<Behalf>, call: &AuthCall) {
    to.bool(behalf.is_some());
    if let Some(Behalf { principal, host }) = behalf {
        put_host(put_id(to, principal), host);
    }
    match call {
        AuthCall::Password { name, password, client } => {
            put_secret(put_text(to, NAME, name, PRINCIPAL_NAME_BYTES_MAX), password).raw(client);
        }
        AuthCall::Attest { client } => {
            to.raw(client);
        }
        AuthCall::Kerberos { request, client } => {
            let request = request.reveal();
            to.length16(TICKET, request.len(), KERBEROS_BYTES_MAX).raw(request).raw(client);
        }
        AuthCall::Renew { token } => {
            to.length16("token bytes", token.reveal().len(), TOKEN_BYTES_MAX).raw(token.reveal());
        }
        AuthCall::SetPassword { name, old, new, keep_tokens } => {
            put_text(to, NAME, name, PRINCIPAL_NAME_BYTES_MAX).bool(old.is_some());
            old.iter()
                .chain([new])
                .fold(to, |to, secret| put_secret(to, secret))
                .bool(*keep_tokens);
        }
    }
}

pub(super) fn get_auth_call(
    from: &mut FieldReader<'_>,
    procedure: Procedure,
) -> Result<Call, WireError> {
    let behalf = match from.bool("on behalf of")? {
        true => Some(Behalf { principal: get_id(from)?, host: get_host(from)? }),
        false => None,
    };
    let call = match procedure {
        Procedure::AuthPassword => AuthCall::Password {
            name: get_text(from, NAME, PRINCIPAL_NAME_BYTES_MAX)?,
            password: get_secret(from)?,
            client: from.array()?,
        },
        Procedure::AuthAttest => AuthCall::Attest { client: from.array()? },
        Procedure::AuthKerberos => {
            let length = from.length16(TICKET, KERBEROS_BYTES_MAX)?;
            AuthCall::Kerberos {
                request: from.bytes(length)?.to_vec().into(),
                client: from.array()?,
            }
        }
        Procedure::AuthRenew => {
            let length = from.length16("token bytes", TOKEN_BYTES_MAX)?;
            AuthCall::Renew { token: from.bytes(length)?.to_vec().into() }
        }
        Procedure::AuthSetPassword => {
            let name = get_text(from, NAME, PRINCIPAL_NAME_BYTES_MAX)?;
            let old = if from.bool("old password")? { Some(get_secret(from)?) } else { None };
            let (new, keep_tokens) = (get_secret(from)?, from.bool("keep tokens")?);
            AuthCall::SetPassword { name, old, new, keep_tokens }
        }
        other => {
            return Err(WireError::BadValue { what: "procedure of logins", value: other as u64 });
        }
    };
    Ok(Call::Auth { behalf, call: Box::new(call) })
}
