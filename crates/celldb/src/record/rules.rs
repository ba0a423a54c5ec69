//! Records of fences and administrators.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use types::{ClientId, Fence, Mandate, PrincipalId, Realm, Revised, Revision, Whom};

use super::{IdForm, decode, encode};
use crate::CellError;

/// Numbers of 128 bits as 32 hexadecimal digits: JSON readers have no integers that long.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WhomForm {
    User(i32),
    Hosts { address: IpAddr, prefix: u8 },
    Token(String),
    Client(String),
}

#[derive(Serialize, Deserialize)]
struct FenceForm {
    number: u64,
    whom: WhomForm,
    since: i64,
    until: i64,
    by: i32,
    why: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RealmForm {
    Volumes(String),
    Server(IdForm),
    Partition(IdForm, String),
}

#[derive(Serialize, Deserialize)]
struct MandateForm {
    number: u64,
    principal: i32,
    realm: RealmForm,
    by: i32,
}

/// # Errors
/// `Misuse`: the fence of a session, which is never stored.
pub(crate) fn encode_fence(
    key: &[u8],
    revision: Revision,
    fence: &Fence,
) -> Result<Vec<u8>, CellError> {
    let whom = match fence.whom {
        Whom::User(id) => WhomForm::User(id.0),
        Whom::Hosts { address, prefix } => WhomForm::Hosts { address, prefix },
        Whom::Token(number) => WhomForm::Token(format!("{number:032x}")),
        Whom::Client(ClientId(number)) => WhomForm::Client(format!("{number:032x}")),
        Whom::Session(_) => {
            return Err(CellError::Misuse("the fence of a session is not stored".to_owned()));
        }
    };
    let Fence { number, since, until, ref why, .. } = *fence;
    let form = FenceForm { number, whom, since, until, by: fence.by.0, why: why.clone() };
    Ok(encode(key, revision, form))
}

pub(crate) fn decode_fence(key: &[u8], value: &[u8]) -> Result<Revised<Fence>, CellError> {
    let Revised { record: form, revision } = decode::<FenceForm>("fence", key, value)?;
    let hex = |text: &str| {
        let number = u128::from_str_radix(text, 16);
        number.map_err(|error| CellError::Damaged(format!("fence {} ({error})", form.number)))
    };
    let whom = match &form.whom {
        WhomForm::User(id) => Whom::User(PrincipalId(*id)),
        WhomForm::Hosts { address, prefix } => Whom::Hosts { address: *address, prefix: *prefix },
        WhomForm::Token(text) => Whom::Token(hex(text)?),
        WhomForm::Client(text) => Whom::Client(ClientId(hex(text)?)),
    };
    let FenceForm { number, since, until, by, why, .. } = form;
    Ok(Revised { record: Fence { number, whom, since, until, by: PrincipalId(by), why }, revision })
}

pub(crate) fn encode_mandate(key: &[u8], revision: Revision, mandate: &Mandate) -> Vec<u8> {
    let realm = match &mandate.realm {
        Realm::Volumes(pattern) => RealmForm::Volumes(pattern.clone()),
        Realm::Server(server) => RealmForm::Server(IdForm(*server)),
        Realm::Partition(server, name) => RealmForm::Partition(IdForm(*server), name.clone()),
    };
    let form = MandateForm {
        number: mandate.number,
        principal: mandate.principal.0,
        realm,
        by: mandate.by.0,
    };
    encode(key, revision, form)
}

pub(crate) fn decode_mandate(key: &[u8], value: &[u8]) -> Result<Revised<Mandate>, CellError> {
    let Revised { record: form, revision } = decode::<MandateForm>("delegation", key, value)?;
    let realm = match form.realm {
        RealmForm::Volumes(pattern) => Realm::Volumes(pattern),
        RealmForm::Server(server) => Realm::Server(server.0),
        RealmForm::Partition(server, name) => Realm::Partition(server.0, name),
    };
    let (principal, by) = (PrincipalId(form.principal), PrincipalId(form.by));
    Ok(Revised { record: Mandate { number: form.number, principal, realm, by }, revision })
}
