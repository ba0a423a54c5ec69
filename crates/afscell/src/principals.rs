//! Users and groups of a cell, with their members.

use std::net::Ipv4Addr;

use afs3::protection::{PrEntry, ProtectionAnswer, ProtectionCall};

use crate::{AfsCell, AfsCellError};

/// Which entries are listed: users and groups.
const USERS_AND_GROUPS: i32 = 3;
/// The position behind the last entry.
const END: i32 = -1;

/// A user or a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfsPrincipal {
    /// Its number: below 0 of a group.
    pub id: i32,
    /// Its name.
    pub name: String,
    /// The number of its owner; 0: none.
    pub owner: i32,
    /// The privacy flags: `r`, `a`, `A`, `m`, `M`, `O`, `s`, `S` from the lowest bit on.
    pub privacy: u8,
    /// How many groups it may still make; `None`: any number.
    pub group_quota: Option<u32>,
    /// The numbers of a group's members.
    pub members: Vec<i32>,
}

impl AfsPrincipal {
    /// Whether it is a group.
    pub fn is_group(&self) -> bool {
        self.id < 0
    }
}

/// All users and groups, in the order of their numbers.
///
/// # Errors
/// Those of the calls; only superusers may list entries.
pub fn principals(cell: &AfsCell) -> Result<Vec<AfsPrincipal>, AfsCellError> {
    let odd = |call| {
        let server = cell.server().unwrap_or(Ipv4Addr::UNSPECIFIED);
        AfsCellError::Odd { server, call }
    };
    let (mut all, mut start) = (Vec::new(), 0);
    loop {
        let list = ProtectionCall::ListEntries { flags: USERS_AND_GROUPS, start };
        let ProtectionAnswer::ListEntries { entries, next } = cell.protection(&list)? else {
            return Err(odd("ListEntries"));
        };
        let found = entries.as_slice();
        for entry in found {
            all.push(principal(entry).ok_or_else(|| odd("ListEntries"))?);
        }
        if next == END || next <= start || found.is_empty() {
            break;
        }
        start = next;
    }
    for group in all.iter_mut().filter(|one| one.is_group()) {
        let list = ProtectionCall::ListElements { id: group.id };
        let ProtectionAnswer::ListElements { ids, over: 0 } = cell.protection(&list)? else {
            return Err(odd("ListElements"));
        };
        group.members = ids.as_slice().to_vec();
    }
    all.sort_by_key(|one| one.id);
    all.dedup_by_key(|one| one.id);
    Ok(all)
}

fn principal(entry: &PrEntry) -> Option<AfsPrincipal> {
    Some(AfsPrincipal {
        id: entry.id,
        name: String::from_utf8(entry.name.text().to_vec()).ok()?,
        owner: entry.owner,
        // Servers shift the flags of a record so that the privacy flags are the lowest.
        privacy: entry.flags as u8,
        group_quota: u32::try_from(entry.group_quota).ok(),
        members: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use afs3::xdr::Chars;

    use super::*;

    fn entry(flags: i32, id: i32, group_quota: i32) -> PrEntry {
        let name = Chars::new(b"joe").unwrap();
        PrEntry {
            flags,
            id,
            owner: -204,
            creator: 0,
            group_quota,
            user_quota: 0,
            count: 0,
            reserved: [0; 5],
            name,
        }
    }

    #[test]
    fn entries_are_read() {
        let user = principal(&entry(0xb5, 7, 20)).unwrap();
        assert_eq!((user.privacy, user.group_quota, user.is_group()), (0xb5, Some(20), false));
        let group = principal(&entry(0x90, -7, -1)).unwrap();
        assert_eq!((group.privacy, group.group_quota, group.is_group()), (0x90, None, true));
    }
}
