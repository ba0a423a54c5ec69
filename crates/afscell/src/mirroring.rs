//! The changes that make the databases of one cell like those of another.
//!
//! Model: both are read, and compared; the differences are calls, in an order in which each is
//! possible: users, groups after their owners, fields, members, removals; servers, entries. The
//! groups of AFS itself, as `system:administrators`, are never made or removed, but get members.

use std::collections::{BTreeMap, BTreeSet};

use afs3::locations::{ANY_KIND, LocationsCall, VldbEntry, entry_flag};
use afs3::protection::{PrName, ProtectionCall, fields_mask};

use crate::{AfsPrincipal, AfsServer};

/// Groups of AFS itself.
const SYSTEM: std::ops::RangeInclusive<i32> = -205..=-101;
/// The user *anonymous*.
const ANONYMOUS: i32 = 32766;
/// All of an entry's flags but its lock.
const KEPT_FLAGS: i32 = entry_flag::RW_EXISTS | entry_flag::RO_EXISTS | entry_flag::BACKUP_EXISTS;

/// A change, and what it is for people.
#[derive(Clone, Debug, PartialEq)]
pub struct AfsChange<C> {
    /// For people.
    pub told: String,
    /// The call to the other cell.
    pub call: C,
}

fn is_system(id: i32) -> bool {
    SYSTEM.contains(&id) || id == ANONYMOUS || id == 0
}

/// The changes of users and groups that make `there` like `here`. `prunes`: who is there alone is
/// removed.
pub fn people_changes(
    here: &[AfsPrincipal],
    there: &[AfsPrincipal],
    prunes: bool,
) -> Vec<AfsChange<ProtectionCall>> {
    let old: BTreeMap<i32, &AfsPrincipal> = there.iter().map(|one| (one.id, one)).collect();
    let mut changes = Vec::new();
    let mut add = |told: String, call| changes.push(AfsChange { told, call });
    let own = here.iter().filter(|one| !is_system(one.id));
    let (known, new): (Vec<_>, Vec<_>) = own.partition(|one| old.contains_key(&one.id));
    for one in &known {
        let before = old[&one.id];
        if before.name != one.name || (one.is_group() && before.owner != one.owner) {
            let Ok(name) = PrName::new(one.name.as_bytes()) else { continue };
            let call =
                ProtectionCall::ChangeEntry { id: one.id, name, owner: one.owner, new_id: 0 };
            add(format!("{} ({}) is changed", one.name, one.id), call);
        }
    }
    for one in in_order(new, |id| is_system(id) || old.contains_key(&id)) {
        let Ok(name) = PrName::new(one.name.as_bytes()) else { continue };
        let call = ProtectionCall::INewEntry { name, id: one.id, owner: one.owner };
        add(format!("{} ({})", one.name, one.id), call);
    }
    for one in here.iter().filter(|one| !is_system(one.id)) {
        let before = old.get(&one.id);
        let quota = one.group_quota.filter(|_| !one.is_group());
        let same_quota = quota.is_none() || before.is_some_and(|b| b.group_quota == quota);
        if before.is_some_and(|before| before.privacy == one.privacy) && same_quota {
            continue;
        }
        let call = ProtectionCall::SetFieldsEntry {
            id: one.id,
            mask: fields_mask::PRIVACY | quota.map_or(0, |_| fields_mask::GROUP_QUOTA),
            flags: one.privacy.into(),
            group_quota: quota.and_then(|quota| i32::try_from(quota).ok()).unwrap_or(0),
            user_quota: 0,
            spare1: 0,
            spare2: 0,
        };
        add(format!("flags of {} ({})", one.name, one.id), call);
    }
    let names: BTreeMap<i32, &str> =
        there.iter().chain(here).map(|one| (one.id, one.name.as_str())).collect();
    let is_there = |id: &i32| here.iter().any(|one| one.id == *id) || old.contains_key(id);
    for group in here.iter().filter(|one| one.is_group()) {
        let of = |one: &AfsPrincipal| one.members.iter().copied().collect::<BTreeSet<_>>();
        let (now, before) = (of(group), old.get(&group.id).map(|one| of(one)).unwrap_or_default());
        let shown = |id: &i32| names.get(id).copied().unwrap_or("?").to_owned();
        for user in now.difference(&before).filter(|id| is_there(id)) {
            let call = ProtectionCall::AddToGroup { user: *user, group: group.id };
            add(format!("{} is a member of {}", shown(user), group.name), call);
        }
        for user in before.difference(&now) {
            let call = ProtectionCall::RemoveFromGroup { user: *user, group: group.id };
            add(format!("{} is no member of {}", shown(user), group.name), call);
        }
    }
    let gone = there
        .iter()
        .filter(|one| prunes && !is_system(one.id) && !here.iter().any(|here| here.id == one.id));
    // Groups before their owners.
    let mut gone: Vec<_> = gone.collect();
    gone.sort_by_key(|one| (!one.is_group(), one.id));
    for one in gone {
        add(format!("{} ({}) goes", one.name, one.id), ProtectionCall::Delete { id: one.id });
    }
    changes
}

/// Owners before what they own.
fn in_order(mut left: Vec<&AfsPrincipal>, has: impl Fn(i32) -> bool) -> Vec<&AfsPrincipal> {
    left.sort_by_key(|one| (one.is_group(), one.id.unsigned_abs()));
    let mut ordered: Vec<&AfsPrincipal> = Vec::new();
    while !left.is_empty() {
        let before = left.len();
        let mut later = Vec::new();
        for one in left {
            let owned = one.owner == one.id
                || has(one.owner)
                || ordered.iter().any(|made| made.id == one.owner);
            if owned || !one.is_group() { ordered.push(one) } else { later.push(one) }
        }
        if later.len() == before {
            // Owners that do not exist: the server refuses them.
            ordered.extend(later);
            break;
        }
        left = later;
    }
    ordered
}

/// An entry without what is not compared: its lock, and by which of its addresses each server is
/// named.
fn comparable(entry: &VldbEntry, servers: &[AfsServer]) -> (VldbEntry, Vec<(u32, i32, i32)>) {
    let named = |address: u32| {
        let at = std::net::Ipv4Addr::from(address);
        let server = servers.iter().find(|one| one.addresses.contains(&at));
        server.map_or(address, |one| u32::from(one.addresses[0]))
    };
    let count = usize::try_from(entry.site_count).unwrap_or(0).min(entry.servers.len());
    let mut sites: Vec<_> = (0..count)
        .map(|at| (named(entry.servers[at]), entry.partitions[at], entry.site_flags[at]))
        .collect();
    let mut kept = *entry;
    (kept.flags, kept.clone, kept.match_index) = (entry.flags & KEPT_FLAGS, 0, 0);
    kept.spares = Default::default();
    (kept.servers, kept.partitions, kept.site_flags) = Default::default();
    for (at, (server, partition, flags)) in sites.iter().enumerate() {
        kept.servers[at] = *server;
        kept.partitions[at] = *partition;
        kept.site_flags[at] = *flags;
    }
    sites.sort_unstable();
    (kept, sites)
}

/// The changes of entries that make `there` like `here`. `servers`: those of both. `prunes`:
/// entries that are there alone are removed.
pub fn entry_changes(
    here: &[VldbEntry],
    there: &[VldbEntry],
    servers: &[AfsServer],
    prunes: bool,
) -> Vec<AfsChange<LocationsCall>> {
    let mut changes = Vec::new();
    let mut add = |told: String, call| changes.push(AfsChange { told, call });
    let shown = |entry: &VldbEntry| {
        format!("{} ({})", String::from_utf8_lossy(entry.name.text()), entry.volumes[0])
    };
    let has = |all: &[VldbEntry], volume: u32| all.iter().any(|one| one.volumes[0] == volume);
    // An entry that goes may have the name of one that comes.
    for entry in there.iter().filter(|one| prunes && !has(here, one.volumes[0])) {
        let call = LocationsCall::DeleteEntry { volume: entry.volumes[0], kind: ANY_KIND };
        add(format!("volume {} goes", shown(entry)), call);
    }
    let old: BTreeMap<u32, &VldbEntry> = there.iter().map(|one| (one.volumes[0], one)).collect();
    for entry in here {
        let (kept, sites) = comparable(entry, servers);
        match old.get(&entry.volumes[0]) {
            None => {
                let call = LocationsCall::CreateEntryN { entry: Box::new(kept) };
                add(format!("volume {}", shown(entry)), call);
            }
            Some(before) => {
                let (known, known_sites) = comparable(before, servers);
                let key = |one: &VldbEntry| (one.name.text().to_vec(), one.volumes, one.flags);
                if key(&kept) == key(&known) && sites == known_sites {
                    continue;
                }
                let (volume, kind) = (entry.volumes[0], ANY_KIND);
                let entry_now = Box::new(kept);
                let call =
                    LocationsCall::ReplaceEntryN { volume, kind, entry: entry_now, release: 0 };
                add(format!("volume {} is changed", shown(entry)), call);
            }
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use afs3::locations::site_flag;
    use afs3::xdr::Chars;

    use super::*;

    fn one(id: i32, name: &str, owner: i32, members: &[i32]) -> AfsPrincipal {
        let (name, members) = (name.to_owned(), members.to_vec());
        AfsPrincipal { id, name, owner, privacy: 0x90, group_quota: Some(20), members }
    }

    fn told<C>(changes: &[AfsChange<C>]) -> Vec<&str> {
        changes.iter().map(|one| one.told.as_str()).collect()
    }

    #[test]
    fn people_become_those_of_the_other_cell() {
        let system = |members: &[i32]| one(-204, "system:administrators", -204, members);
        let here = [
            one(-9, "crew", -8, &[7]),
            one(-8, "joe:friends", 7, &[8]),
            system(&[7]),
            one(7, "joe", -204, &[]),
            one(8, "anna", -204, &[]),
        ];
        let there = [
            one(-5, "old", -204, &[9]),
            system(&[9]),
            one(8, "ann", -204, &[]),
            one(9, "ben", -204, &[]),
        ];
        let changes = people_changes(&here, &there, true);
        assert_eq!(
            told(&changes),
            [
                "anna (8) is changed",
                "joe (7)",
                "joe:friends (-8)",
                "crew (-9)",
                "flags of crew (-9)",
                "flags of joe:friends (-8)",
                "flags of joe (7)",
                "joe is a member of crew",
                "anna is a member of joe:friends",
                "joe is a member of system:administrators",
                "ben is no member of system:administrators",
                "old (-5) goes",
                "ben (9) goes",
            ]
        );
        assert!(people_changes(&here, &here, true).is_empty());
        let kept = people_changes(&here, &there, false);
        assert!(!told(&kept).iter().any(|text| text.ends_with("goes")));
    }

    fn entry(volume: u32, name: &str, server: u32, flags: i32) -> VldbEntry {
        let (mut servers, mut site_flags) = ([0; 13], [0; 13]);
        (servers[0], site_flags[0]) = (server, site_flag::RW);
        VldbEntry {
            name: Chars::new(name.as_bytes()).unwrap(),
            site_count: 1,
            servers,
            partitions: [0; 13],
            site_flags,
            volumes: [volume, volume + 1, 0],
            clone: 0,
            flags,
            match_index: 0,
            spares: [0; 8],
        }
    }

    #[test]
    fn entries_become_those_of_the_other_cell() {
        let at = |last| std::net::Ipv4Addr::new(10, 0, 0, last);
        let two = AfsServer { uuid: Default::default(), addresses: vec![at(1), at(2)] };
        let locked = entry_flag::RW_EXISTS | 0x10;
        let same = entry(10, "same", at(1).into(), locked);
        let here = [same, entry(20, "moved", at(3).into(), 0x1000), entry(30, "new", 5, 0x1000)];
        let there = [
            entry(10, "same", at(2).into(), entry_flag::RW_EXISTS),
            entry(20, "moved", at(1).into(), 0x1000),
            entry(40, "old", 5, 0x1000),
        ];
        let changes = entry_changes(&here, &there, std::slice::from_ref(&two), true);
        assert_eq!(
            told(&changes),
            ["volume old (40) goes", "volume moved (20) is changed", "volume new (30)"]
        );
        // The lock of an entry is not one there.
        let made = entry_changes(&here, &[], &[two], false);
        let LocationsCall::CreateEntryN { entry } = &made[0].call else { panic!() };
        assert_eq!(entry.flags, entry_flag::RW_EXISTS);
    }
}
