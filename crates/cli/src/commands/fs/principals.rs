//! Names of users and groups, which access lists store as numbers: the mount asks the cell
//! (`system.rialto.who:NAME`, `system.rialto.who:NUMBER`).

use std::path::Path;

use local::failure::Failure;
use rustix::io::Errno;
use types::PrincipalId;

use super::tree;

/// Principals of every cell, also one without a database.
const FIXED: [(&str, PrincipalId); 5] = [
    ("system:administrators", PrincipalId::ADMINISTRATORS),
    ("system:ptsviewers", PrincipalId::VIEWERS),
    ("system:authuser", PrincipalId::PROVED),
    ("system:anyuser", PrincipalId::ANYBODY),
    ("anonymous", PrincipalId::ANONYMOUS),
];

fn fixed(principal: PrincipalId) -> Option<&'static str> {
    FIXED.iter().find(|(_, number)| *number == principal).map(|(name, _)| *name)
}

/// The number of a principal of every cell.
pub fn fixed_number(name: &str) -> Option<PrincipalId> {
    FIXED.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// The failure that the cell has no such user or group.
pub fn no_such_principal(name: &str) -> Failure {
    Failure::new(format!("looking for {name}"), "the cell has no such user or group")
        .mend("'rialto pts listentries' shows which there are")
}

/// `None`: the cell has no principal of that name or number.
fn ask(place: &Path, principal: &str) -> Result<Option<String>, Failure> {
    match tree::get(place, &format!("system.rialto.who:{principal}")) {
        Ok(answer) => Ok(Some(answer)),
        Err(Errno::NODATA) => Ok(None),
        Err(error) => Err(tree::refusal(place, format!("asking the cell for {principal}"), error)),
    }
}

/// The principal's name; its number if it was removed, or the cell does not answer.
pub fn name_of(place: &Path, principal: PrincipalId) -> String {
    let asked = || ask(place, &principal.to_string()).ok().flatten();
    fixed(principal).map(str::to_owned).or_else(asked).unwrap_or_else(|| principal.to_string())
}

/// Returns the number of a user or group; a number means itself.
pub(crate) fn number_of(place: &Path, name: &str) -> Result<PrincipalId, Failure> {
    if let Some(number) = fixed_number(name).or_else(|| name.parse().ok().map(PrincipalId)) {
        return Ok(number);
    }
    let found = ask(place, name)?.and_then(|number| number.parse().ok()).map(PrincipalId);
    found.ok_or_else(|| no_such_principal(name))
}

/// Whether the principal exists.
pub(crate) fn is_there(place: &Path, principal: PrincipalId) -> Result<bool, Failure> {
    Ok(fixed(principal).is_some() || ask(place, &principal.to_string())?.is_some())
}
