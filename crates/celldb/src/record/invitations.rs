//! Records of invitations.

use serde::{Deserialize, Serialize};
use types::{Invitation, InvitedServer, PrincipalId, Revision, ServerRoles};

use super::{PrintForm, decode, encode};
use crate::CellError;

#[derive(Serialize, Deserialize)]
struct InvitedForm {
    key: PrintForm,
    name: String,
    at: i64,
}

/// The key as 64 hexadecimal digits.
#[derive(Serialize, Deserialize)]
struct InvitationForm {
    number: u64,
    public: String,
    name: String,
    roles: String,
    uses: u32,
    used: Vec<InvitedForm>,
    since: i64,
    until: i64,
    by: i32,
}

pub(crate) fn encode_invitation(key: &[u8], revision: Revision, of: &Invitation) -> Vec<u8> {
    let form = InvitationForm {
        number: of.number,
        public: of.public.iter().map(|byte| format!("{byte:02x}")).collect(),
        name: of.name.clone(),
        roles: of.roles.to_string(),
        uses: of.uses,
        used: of
            .used
            .iter()
            .map(|used| InvitedForm {
                key: PrintForm(used.key),
                name: used.name.clone(),
                at: used.at,
            })
            .collect(),
        since: of.since,
        until: of.until,
        by: of.by.0,
    };
    encode(key, revision, form)
}

pub(crate) fn decode_invitation(key: &[u8], value: &[u8]) -> Result<Invitation, CellError> {
    let form = decode::<InvitationForm>("invitation", key, value)?.record;
    let damaged = || CellError::Damaged(format!("invitation {}", form.number));
    let mut public = [0; 32];
    if form.public.len() != 64 || !form.public.is_ascii() {
        return Err(damaged());
    }
    for (byte, pair) in public.iter_mut().zip(form.public.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(pair).map_err(|_| damaged())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| damaged())?;
    }
    let roles: ServerRoles = form.roles.parse().map_err(|_| damaged())?;
    let used = form.used.into_iter().map(|used| InvitedServer {
        key: used.key.0,
        name: used.name,
        at: used.at,
    });
    Ok(Invitation {
        number: form.number,
        public,
        name: form.name,
        roles,
        uses: form.uses,
        used: used.collect(),
        since: form.since,
        until: form.until,
        by: PrincipalId(form.by),
    })
}
