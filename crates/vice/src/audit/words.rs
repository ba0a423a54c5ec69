//! Names of calls in the audit log, and their subjects. They contain no secret: proofs of identity
//! and file contents are left out.

use types::{AuthCall, Call, CellCall, Fid};

/// Longer texts are cut: names in calls are short.
const ABOUT_BYTES_MAX: usize = 512;

/// The call's name and subject.
pub(super) fn about(call: &Call) -> (String, String) {
    let (group, text) = match call {
        Call::Auth { call, .. } => ("auth", of_auth(call)),
        Call::Guard { call, .. } => ("guard", format!("{call:?}")),
        Call::Pts { call, .. } => ("pts", format!("{call:?}")),
        Call::Volume(types::VolumeCall::Apply { partition, tree, .. }) => {
            ("volume", format!("Apply {{ partition: {}, tree: {} }}", partition.0, tree.0))
        }
        Call::Volume(call) => ("volume", format!("{call:?}")),
        Call::Cell(CellCall::PutGroup { group, expected }) => {
            let name = String::from_utf8_lossy(group.name.as_bytes()).into_owned();
            (
                "cell",
                format!(
                    "PutGroup {{ name: {name:?}, read_write: {}, expected: {} }}",
                    group.read_write.0, expected.0
                ),
            )
        }
        Call::Cell(CellCall::Invite { seconds, uses, roles, name, .. }) => {
            let roles = types::ServerRoles::from_bits(*roles).unwrap_or(types::ServerRoles::NONE);
            let (roles, name) = (roles.to_string(), name.as_str());
            (
                "cell",
                format!(
                    "Invite {{ name: {name:?}, roles: {roles:?}, uses: {uses}, for: {seconds} s }}"
                ),
            )
        }
        Call::Cell(CellCall::Join { request }) => ("cell", of_join("Join", request)),
        Call::Cell(CellCall::Redeem { request }) => ("cell", of_join("Redeem", request)),
        Call::Cell(CellCall::Certify { .. }) => ("cell", "Certify".to_owned()),
        Call::Cell(call) => ("cell", format!("{call:?}")),
        call => ("file", of_file(call)),
    };
    let end = text.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let mut cut = rest.trim().len().min(ABOUT_BYTES_MAX);
    while !rest.trim().is_char_boundary(cut) {
        cut -= 1;
    }
    (format!("{group}.{name}"), rest.trim().get(..cut).unwrap_or_default().to_owned())
}

/// The new server's name and key, as it says; a request that is not signed says nothing.
fn of_join(what: &str, request: &str) -> String {
    match guard::JoinRequest::read(request) {
        Some(request) => format!("{what} {{ name: {:?}, key: {} }}", request.name, request.key),
        None => what.to_owned(),
    }
}

fn of_auth(call: &AuthCall) -> String {
    match call {
        AuthCall::Password { name, .. } => format!("Password {{ name: {name:?} }}"),
        AuthCall::SetPassword { name, old, keep_tokens, .. } => {
            let by = if old.is_some() { "itself" } else { "an administrator" };
            format!("SetPassword {{ name: {name:?}, by: {by:?}, keep_tokens: {keep_tokens} }}")
        }
        AuthCall::Attest { .. } => "Attest".to_owned(),
        AuthCall::Renew { .. } => "Renew".to_owned(),
        AuthCall::Kerberos { .. } => "Kerberos".to_owned(),
    }
}

/// Name and files of a call on files, without the data.
fn of_file(call: &Call) -> String {
    match call {
        Call::Write { fid, .. } => format!("Write {fid}"),
        Call::XattrSet { fid, .. } => format!("XattrSet {fid}"),
        Call::SetAcl { fid, list, .. } => {
            let entries = list.as_ref().and_then(|list| guard::Acl::decode(list).ok());
            format!(
                "SetAcl {fid} {}",
                entries.map_or_else(|| "none".to_owned(), |list| format!("{list:?}"))
            )
        }
        Call::Delegated { call, .. } => of_file(call),
        Call::Make { dir, name, .. }
        | Call::Remove { dir, name, .. }
        | Call::Lookup { dir, name } => {
            let name = String::from_utf8_lossy(name.as_bytes()).into_owned();
            format!("{call:?}").split([' ', '{']).next().unwrap_or_default().to_owned()
                + &format!(" {dir} {name:?}")
        }
        call => {
            let fids: Vec<Fid> =
                call.clone().fids_mut().into_iter().map(|fid| *fid).take(4).collect();
            let name = format!("{call:?}");
            let name = name.split([' ', '{', '(']).next().unwrap_or_default();
            format!("{name} {}", fids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        }
    }
}
