//! The location service over a cell's database.

use std::sync::Arc;

use afs3::locations::{
    AddressAttributes, Addresses, ListAttributes, LocationsAnswer, LocationsCall, VldbEntry,
    VolumeNameArgument, address_mask, entry_flag, list_mask, lock_operation, site_flag,
};
use afs3::structs::AfsUuid;
use afs3::xdr::Chars;
use afsfront::{Databases, LocationService, Refusal, Services};
use celldb::{CellDb, Embedded};
use types::{
    Answer, Call, CellCall, Name, PrincipalId, Revision, ServerId, ServerInfo, Site, SiteKind,
    VolumeGroup, VolumeId, WhichVolume,
};

use crate::common::{Rig, User};

const NO_ENTRY: Refusal = Refusal(363_524);
const ONE: u32 = 0x0a00_0001;
const TWO: u32 = 0x0a00_0002;

fn server(id: u128, named: &str, addresses: &[&str]) -> ServerInfo {
    ServerInfo {
        id: ServerId(id),
        name: named.to_owned(),
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        keys: Vec::new(),
    }
}

fn site(server: u128, partition: &str, kind: SiteKind, epoch: u64) -> Site {
    Site { server: ServerId(server), partition: partition.to_owned(), kind, epoch }
}

/// Two servers; a volume of the first with a replica at the second and a standby, and one alone.
fn cell() -> (tempfile::TempDir, Rig) {
    let dir = tempfile::tempdir().unwrap();
    let db = Arc::new(Embedded::open(dir.path()).unwrap());
    let one = server(1, "one", &["10.0.0.1:7", "[fd00::1]:7"]);
    db.put_server(&one, Revision(0)).unwrap();
    db.put_server(&server(2, "two", &["10.0.0.2:7", "10.9.0.2:7"]), Revision(0)).unwrap();
    let name = |text: &str| Name::new(text.as_bytes()).unwrap();
    let read_write = site(1, "/vicepb", SiteKind::ReadWrite, 0);
    let mut home = VolumeGroup::new(name("home"), VolumeId(40), read_write);
    (home.read_only, home.released_epoch) = (Some(VolumeId(41)), 5);
    home.sites.push(site(2, "/vicepaa", SiteKind::ReadOnly, 5));
    home.sites.push(site(1, "/vicepb", SiteKind::ReadOnly, 0));
    home.sites.push(site(2, "/vicepa", SiteKind::Standby, 1));
    db.put_group(&home, Revision(0)).unwrap();
    let alone =
        VolumeGroup::new(name("alone"), VolumeId(50), site(2, "/vicepa", SiteKind::ReadWrite, 0));
    db.put_group(&alone, Revision(0)).unwrap();
    (dir, Rig::in_cell(db, one))
}

fn ask(user: &User, call: LocationsCall) -> Result<LocationsAnswer, Refusal> {
    LocationService { databases: Databases::Own }.serve(user, call)
}

fn argument(text: &str) -> VolumeNameArgument {
    VolumeNameArgument::new(text.as_bytes()).unwrap()
}

#[test]
fn volumes_are_found_by_names_and_numbers() {
    let (_kept, rig) = cell();
    let user = rig.user(PrincipalId::ANONYMOUS);
    for text in ["home", "home.readonly", "home.backup", "40", "41"] {
        let call = LocationsCall::GetEntryByNameN { name: argument(text) };
        let Ok(LocationsAnswer::GetEntryByNameN { entry }) = ask(&user, call) else {
            panic!("{text}")
        };
        assert_eq!((entry.name.text(), entry.volumes), (&b"home"[..], [40, 41, 0]));
        assert_eq!(entry.flags, entry_flag::RW_EXISTS | entry_flag::RO_EXISTS);
        // The standby is not listed, and what was never released has no data.
        assert_eq!(entry.site_count, 3);
        assert_eq!(entry.servers[..3], [ONE, TWO, ONE]);
        assert_eq!(entry.partitions[..3], [1, 26, 1]);
        let flags = [site_flag::RW, site_flag::RO, site_flag::RO | site_flag::DONT_USE];
        assert_eq!(entry.site_flags[..3], flags);
    }
    let by_id = |volume, kind| ask(&user, LocationsCall::GetEntryByIDN { volume, kind }).map(drop);
    assert_eq!(by_id(40, 0), Ok(()));
    assert_eq!(by_id(41, 1), Ok(()));
    assert_eq!(by_id(41, -1), Ok(()));
    assert_eq!(by_id(41, 0), Err(NO_ENTRY));
    assert_eq!(by_id(77, -1), Err(NO_ENTRY));
    assert_eq!(by_id(40, 9), Err(Refusal(363_529)));
    let unknown = LocationsCall::GetEntryByNameO { name: argument("nothing") };
    assert_eq!(ask(&user, unknown), Err(NO_ENTRY));
}

#[test]
fn servers_have_uuids_and_addresses() {
    let (_kept, rig) = cell();
    let user = rig.user(PrincipalId::ANONYMOUS);
    let call = LocationsCall::GetEntryByNameU { name: argument("alone") };
    let Ok(LocationsAnswer::GetEntryByNameU { entry }) = ask(&user, call) else { panic!() };
    let two = AfsUuid(2u128.to_be_bytes());
    assert_eq!((entry.site_count, entry.servers[0]), (1, two));
    assert_eq!(entry.site_flags[0], site_flag::RW | site_flag::UUID);
    let of = |attributes| match ask(&user, LocationsCall::GetAddrsU { attributes }) {
        Ok(LocationsAnswer::GetAddrsU { uuid, unique, addresses, .. }) => {
            Ok((uuid, unique, addresses))
        }
        Ok(other) => panic!("{other:?}"),
        Err(refusal) => Err(refusal),
    };
    let by_uuid =
        AddressAttributes { mask: address_mask::UUID, uuid: two, ..AddressAttributes::default() };
    let addresses = Addresses::new(vec![TWO, 0x0a09_0002]).unwrap();
    let known = Ok((two, entry.server_uniques[0], addresses));
    assert_eq!(of(by_uuid), known);
    let by_index =
        AddressAttributes { mask: address_mask::INDEX, index: 2, ..AddressAttributes::default() };
    assert_eq!(of(by_index), known);
    let by_address = AddressAttributes {
        mask: address_mask::ADDRESS,
        address: 0x0a09_0002,
        ..AddressAttributes::default()
    };
    assert_eq!(of(by_address), known);
    assert_eq!(of(AddressAttributes { index: 3, ..by_index }), Err(NO_ENTRY));
    assert_eq!(of(AddressAttributes { index: 255, ..by_index }), Err(Refusal(363_549)));
    assert_eq!(of(AddressAttributes { index: i32::MIN, ..by_index }), Err(Refusal(363_549)));
    assert_eq!(of(AddressAttributes { address: 9, ..by_address }), Err(NO_ENTRY));
    assert_eq!(of(AddressAttributes::default()), Err(Refusal(363_551)));
    let all = ask(&user, LocationsCall::GetAddrs { handle: 0, spare: 0 });
    let Ok(LocationsAnswer::GetAddrs { count, addresses, .. }) = all else { panic!() };
    assert_eq!((count, addresses.as_slice()), (2, &[0xff00_0000, 0xff00_0001][..]));
}

#[test]
fn lists_are_by_server_partition_and_volume() {
    let (_kept, rig) = cell();
    let user = rig.user(PrincipalId::ANONYMOUS);
    let list = |attributes| match ask(&user, LocationsCall::ListAttributesN { attributes }) {
        Ok(LocationsAnswer::ListAttributesN { count, entries }) => {
            assert_eq!(count as usize, entries.as_slice().len());
            entries.as_slice().iter().map(|entry| entry.volumes[0]).collect::<Vec<u32>>()
        }
        other => panic!("{other:?}"),
    };
    let all = ListAttributes::default();
    assert_eq!(list(all), [40, 50]);
    let at_one = ListAttributes { mask: list_mask::SERVER, server: ONE, ..all };
    assert_eq!(list(at_one), [40]);
    let mask = list_mask::SERVER | list_mask::PARTITION;
    let at_two = ListAttributes { mask, server: TWO, partition: 0, ..all };
    assert_eq!(list(at_two), [50], "a standby is no site");
    assert_eq!(list(ListAttributes { partition: 26, ..at_two }), [40]);
    assert_eq!(list(ListAttributes { mask: list_mask::VOLUME, volume: 41, ..all }), [40]);
    let change = LocationsCall::GetNewVolumeId { count: 1 };
    assert_eq!(ask(&user, change), Err(Refusal(363_546)));
    assert_eq!(ask(&user, LocationsCall::ProbeServer {}), Ok(LocationsAnswer::ProbeServer {}));
}

fn entry_of(user: &User, text: &str) -> Result<Box<VldbEntry>, Refusal> {
    match ask(user, LocationsCall::GetEntryByNameN { name: argument(text) })? {
        LocationsAnswer::GetEntryByNameN { entry } => Ok(entry),
        other => panic!("{other:?}"),
    }
}

const PERM: Refusal = Refusal(363_546);
const LOCKED: Refusal = Refusal(363_541);
const ALL_OF_IT: i32 = 7;
const RW: i32 = 0;

#[test]
fn only_an_administrator_changes_the_database() {
    let (_kept, rig) = cell();
    let stranger = rig.user(PrincipalId::ANONYMOUS);
    let entry = entry_of(&stranger, "home").unwrap();
    let mut new = entry_of(&stranger, "alone").unwrap();
    (new.name, new.volumes) = (Chars::new(b"new").unwrap(), [90, 0, 0]);
    for user in [stranger, rig.user(crate::common::JOE)] {
        for call in [
            LocationsCall::GetNewVolumeId { count: 1 },
            LocationsCall::CreateEntryN { entry: new.clone() },
            LocationsCall::ReplaceEntryN { volume: 40, kind: RW, entry: entry.clone(), release: 7 },
            LocationsCall::DeleteEntry { volume: 40, kind: RW },
            LocationsCall::SetLock { volume: 40, kind: RW, operation: lock_operation::MOVE },
            // The rights come before everything that is wrong besides.
            LocationsCall::GetNewVolumeId { count: 0 },
            LocationsCall::CreateEntryN { entry: entry.clone() },
            LocationsCall::DeleteEntry { volume: 4711, kind: RW },
            LocationsCall::SetLock { volume: 4711, kind: RW, operation: 77 },
            LocationsCall::ReleaseLock { volume: 4711, kind: RW, release: ALL_OF_IT },
        ] {
            let text = format!("{call:?}");
            assert_eq!(ask(&user, call), Err(PERM), "{text}");
        }
    }
    let admin = rig.administrator();
    let lock = LocationsCall::SetLock { volume: 40, kind: RW, operation: lock_operation::MOVE };
    ask(&admin, lock).unwrap();
    let unlock = LocationsCall::ReleaseLock { volume: 40, kind: RW, release: ALL_OF_IT };
    assert_eq!(ask(&rig.user(crate::common::JOE), unlock), Err(PERM));
    assert_eq!(entry_of(&admin, "new").err(), Some(NO_ENTRY));
}

#[test]
fn entries_are_made_locked_changed_and_removed() {
    let (_kept, rig) = cell();
    let admin = rig.administrator();
    let number = || match ask(&admin, LocationsCall::GetNewVolumeId { count: 3 }) {
        Ok(LocationsAnswer::GetNewVolumeId { volume }) => volume,
        other => panic!("{other:?}"),
    };
    let (first, second) = (number(), number());
    assert!(second >= first + 3, "they are reserved");
    let mut entry = entry_of(&admin, "alone").unwrap();
    entry.name = Chars::new(b"new").unwrap();
    entry.volumes = [first, first + 1, first + 2];
    entry.flags = entry_flag::RW_EXISTS;
    ask(&admin, LocationsCall::CreateEntryN { entry: entry.clone() }).unwrap();
    let made = entry_of(&admin, "new").unwrap();
    // The backup volume has a number when it is there.
    assert_eq!(made.volumes, [first, first + 1, 0]);
    assert_eq!((made.servers[0], made.partitions[0], made.site_count), (TWO, 0, 1));
    assert_eq!(made.flags, entry_flag::RW_EXISTS);
    let again = ask(&admin, LocationsCall::CreateEntryN { entry: entry.clone() });
    assert_eq!(again, Err(Refusal(363_520)), "the number is taken");
    entry.volumes = [second, 41, 0];
    let taken = ask(&admin, LocationsCall::CreateEntryN { entry: entry.clone() });
    assert_eq!(taken, Err(Refusal(363_520)), "the replicas' number is taken");
    for bad in [&b""[..], b"a/b"] {
        let entry = Box::new(VldbEntry { name: Chars::new(bad).unwrap(), ..*entry });
        let refused = ask(&admin, LocationsCall::CreateEntryN { entry });
        assert_eq!(refused, Err(Refusal(363_527)), "{bad:?}");
    }
    (entry.volumes, entry.servers[0]) = ([second, 0, 0], 0x0a00_0009);
    let nowhere = ask(&admin, LocationsCall::CreateEntryN { entry: entry.clone() });
    assert_eq!(nowhere, Err(Refusal(363_530)), "there is no such server");

    let lock = |operation| LocationsCall::SetLock { volume: first, kind: RW, operation };
    ask(&admin, lock(lock_operation::BACKUP)).unwrap();
    assert_eq!(ask(&admin, lock(lock_operation::MOVE)), Err(LOCKED));
    let mut changed = entry_of(&admin, "new").unwrap();
    assert_eq!(changed.flags, entry_flag::RW_EXISTS | lock_operation::BACKUP);
    changed.volumes[2] = first + 2;
    changed.flags |= entry_flag::BACKUP_EXISTS;
    let replace = |volume, entry: &VldbEntry, release| {
        let entry = Box::new(*entry);
        ask(&admin, LocationsCall::ReplaceEntryN { volume, kind: RW, entry, release })
    };
    let other = VldbEntry { volumes: [second, 0, 0], ..*changed };
    assert_eq!(replace(first, &other, 0), Err(Refusal(363_538)), "it is another volume's");
    replace(first, &changed, 0).unwrap();
    assert_eq!(ask(&admin, lock(lock_operation::MOVE)), Err(LOCKED), "it keeps its lock");
    replace(first, &changed, ALL_OF_IT).unwrap();
    let made = entry_of(&admin, "new").unwrap();
    assert_eq!(made.flags, entry_flag::RW_EXISTS | entry_flag::BACKUP_EXISTS);
    assert_eq!(made.volumes[2], first + 2);
    ask(&admin, lock(lock_operation::DELETE)).unwrap();
    let unlock = LocationsCall::ReleaseLock { volume: first, kind: RW, release: ALL_OF_IT };
    ask(&admin, unlock).unwrap();
    ask(&admin, LocationsCall::DeleteEntry { volume: first, kind: RW }).unwrap();
    assert_eq!(entry_of(&admin, "new").err(), Some(NO_ENTRY));

    // The epoch of a replica and the standby stay, for which AFS has no word.
    let home = entry_of(&admin, "home").unwrap();
    replace(40, &home, ALL_OF_IT).unwrap();
    assert_eq!(entry_of(&admin, "home").unwrap(), home);
    let group = CellCall::Group { volume: WhichVolume::Id(VolumeId(40)) };
    let Ok(Answer::Groups { groups, .. }) = admin.ask(Call::Cell(group)) else { panic!() };
    let sites = &groups[0].record.sites;
    assert_eq!(sites.len(), 4);
    assert!(sites.contains(&site(2, "/vicepa", SiteKind::Standby, 1)), "{sites:?}");
    assert!(sites.contains(&site(2, "/vicepaa", SiteKind::ReadOnly, 5)), "{sites:?}");
}

#[test]
fn a_wrong_change_has_the_code_of_stock_servers() {
    let (_kept, rig) = cell();
    let (admin, stranger) = (rig.administrator(), rig.user(PrincipalId::ANONYMOUS));
    let number = |count| match ask(&admin, LocationsCall::GetNewVolumeId { count }) {
        Ok(LocationsAnswer::GetNewVolumeId { volume }) => volume,
        other => panic!("{other:?}"),
    };
    let above = number(0);
    assert!(above > 50 && number(1) > above, "it is above all others, and no other caller's");
    let unlock = |user, release| {
        ask(user, LocationsCall::ReleaseLock { volume: 40, kind: RW, release }).map(drop)
    };
    assert_eq!(unlock(&stranger, ALL_OF_IT), Err(PERM), "also if there is no lock");
    assert_eq!(unlock(&admin, 8), Err(Refusal(363_543)));
    let lock = LocationsCall::SetLock { volume: 40, kind: RW, operation: lock_operation::MOVE };
    ask(&admin, lock.clone()).unwrap();
    unlock(&admin, 0).unwrap();
    assert_eq!(ask(&admin, lock), Err(LOCKED), "it was told to keep it");
    unlock(&admin, ALL_OF_IT).unwrap();
    let entry = entry_of(&admin, "alone").unwrap();
    let replaced = |release, entry: &VldbEntry| {
        let (volume, kind, entry) = (50, RW, Box::new(*entry));
        ask(&admin, LocationsCall::ReplaceEntryN { volume, kind, entry, release }).map(drop)
    };
    assert_eq!(replaced(8, &entry), Err(Refusal(363_543)));
    assert_eq!(replaced(0, &VldbEntry { site_count: 0, ..*entry }), Err(Refusal(363_530)));
    assert_eq!(replaced(0, &VldbEntry { site_count: 14, ..*entry }), Err(Refusal(363_530)));
    let mut new = *entry;
    (new.name, new.volumes) = (Chars::new(b"new").unwrap(), [above, 41, 0]);
    let created = |entry| ask(&admin, LocationsCall::CreateEntryN { entry: Box::new(entry) });
    assert_eq!(created(new), Err(Refusal(363_520)), "the read-only volume's number is taken");
    new.name = Chars::new(b"a/b").unwrap();
    assert_eq!(created(new), Err(Refusal(363_527)));
    let unknown = LocationsCall::GetEntryByIDN { volume: 77, kind: 9 };
    assert_eq!(ask(&stranger, unknown), Err(Refusal(363_529)));
    let long = argument(&"n".repeat(65));
    let too_long = ask(&stranger, LocationsCall::GetEntryByNameN { name: long });
    assert_eq!(too_long, Err(Refusal(363_527)));
}

/// The group of the volume 40, with the epochs of its read-only sites by server and partition.
fn releases(rig: &Rig) -> (u64, Vec<u64>) {
    let group = CellCall::Group { volume: WhichVolume::Id(VolumeId(40)) };
    let Ok(Answer::Groups { groups, .. }) = rig.administrator().ask(Call::Cell(group)) else {
        panic!("the group is there")
    };
    let group = &groups[0].record;
    let is_read_only = |site: &&Site| site.kind == SiteKind::ReadOnly;
    (group.released_epoch, group.sites.iter().filter(is_read_only).map(|site| site.epoch).collect())
}

#[test]
fn a_release_of_afss_programs_lets_clients_use_its_sites() {
    let (_kept, rig) = cell();
    let admin = rig.administrator();
    let replace = |entry: &VldbEntry| {
        let (entry, release) = (Box::new(*entry), ALL_OF_IT);
        ask(&admin, LocationsCall::ReplaceEntryN { volume: 40, kind: RW, entry, release }).unwrap();
        entry_of(&admin, "home").unwrap()
    };
    let (first_epoch, first) = releases(&rig);
    assert!(first_epoch > 1 && first.len() > 1, "{first_epoch} {first:?}");
    // `vos` writes this while the first site has the release: the others are not to be used.
    let mut entry = entry_of(&admin, "home").unwrap();
    entry.flags |= entry_flag::RO_EXISTS;
    let read_only: Vec<usize> =
        (0..13).filter(|at| entry.site_flags[*at] & site_flag::RO != 0).collect();
    for at in &read_only {
        entry.site_flags[*at] = site_flag::RO | site_flag::DONT_USE;
    }
    entry.site_flags[read_only[0]] = site_flag::RO | site_flag::NEW_REPLICA;
    let shown = replace(&entry);
    assert_eq!(shown.site_flags[read_only[0]], site_flag::RO);
    assert_eq!(shown.site_flags[read_only[1]], site_flag::RO | site_flag::DONT_USE);
    assert_ne!(shown.flags & entry_flag::RO_EXISTS, 0);
    let (epoch, sites) = releases(&rig);
    assert_eq!(epoch, first_epoch, "it goes on from there");
    assert_eq!(sites.iter().filter(|one| **one == 0).count(), sites.len() - 1);
    // All have it.
    for at in &read_only {
        entry.site_flags[*at] = site_flag::RO;
    }
    replace(&entry);
    let (epoch, sites) = releases(&rig);
    assert!(sites.iter().all(|one| *one == epoch), "{epoch} {sites:?}");
}

#[test]
fn new_numbers_pass_over_those_that_an_administrator_chose() {
    let (_kept, rig) = cell();
    let admin = rig.administrator();
    let numbers = || match ask(&admin, LocationsCall::GetNewVolumeId { count: 3 }) {
        Ok(LocationsAnswer::GetNewVolumeId { volume }) => volume,
        other => panic!("{other:?}"),
    };
    let mut entry = entry_of(&admin, "alone").unwrap();
    let first = numbers();
    for (at, chosen) in [first + 4, first + 9].into_iter().enumerate() {
        entry.name = Chars::new(format!("chosen.{at}").as_bytes()).unwrap();
        entry.volumes = [chosen, 0, 0];
        ask(&admin, LocationsCall::CreateEntryN { entry: entry.clone() }).unwrap();
    }
    assert_eq!(numbers(), first + 10);
}

#[test]
fn a_first_release_of_afss_programs_has_an_epoch() {
    let (_kept, rig) = cell();
    let admin = rig.administrator();
    let mut entry = entry_of(&admin, "alone").unwrap();
    let number = entry.volumes[0];
    (entry.servers[1], entry.partitions[1]) = (entry.servers[0], entry.partitions[0]);
    (entry.site_count, entry.volumes[1]) = (2, number + 900);
    let mut put = |site, flags| {
        (entry.site_flags[1], entry.flags) = (site, entry_flag::RW_EXISTS | flags);
        let replaced = LocationsCall::ReplaceEntryN {
            volume: number,
            kind: RW,
            entry: entry.clone(),
            release: ALL_OF_IT,
        };
        ask(&admin, replaced).unwrap();
        let group = CellCall::Group { volume: WhichVolume::Id(VolumeId(number.into())) };
        let Ok(Answer::Groups { groups, .. }) = admin.ask(Call::Cell(group)) else { panic!() };
        groups[0].record.readable_sites().count()
    };
    assert_eq!(put(site_flag::RO | site_flag::DONT_USE, 0), 0, "it is a site without data");
    assert_eq!(put(site_flag::RO, entry_flag::RO_EXISTS), 1);
    let shown = entry_of(&admin, "alone").unwrap();
    assert_ne!(shown.flags & entry_flag::RO_EXISTS, 0);
}

fn registered(user: &User, uuid: u8, addresses: &[u32]) -> Result<(), Refusal> {
    let addresses = Addresses::new(addresses.to_vec()).unwrap();
    let call = LocationsCall::RegisterAddrs { uuid: AfsUuid([uuid; 16]), spare: 0, addresses };
    ask(user, call).map(drop)
}

fn change_address(user: &User, old: u32, new: u32) -> Result<(), Refusal> {
    ask(user, LocationsCall::ChangeAddr { old, new }).map(drop)
}

const MULTIPLE: Refusal = Refusal(363_550);
const IN_USE: Refusal = Refusal(363_520);
const REMOVED: u32 = u32::MAX;

#[test]
fn mx6_file_servers_of_afs_enter_themselves() {
    let (_kept, rig) = cell();
    let (admin, stranger) = (rig.administrator(), rig.user(crate::common::JOE));
    let (here, also, later) = (0x0a00_0101, 0x0a00_0102, 0x0a00_0103);
    assert_eq!(registered(&stranger, 9, &[here]), Err(PERM));
    assert_eq!(change_address(&stranger, here, later), Err(PERM));
    assert_eq!(registered(&admin, 9, &[here, also]), Ok(()));
    assert_eq!(registered(&admin, 9, &[here, also]), Ok(()), "again");
    let mut entry = entry_of(&admin, "alone").unwrap();
    (entry.name, entry.volumes) = (Chars::new(b"new").unwrap(), [90, 0, 0]);
    (entry.servers[0], entry.partitions[0]) = (also, 25);
    ask(&admin, LocationsCall::CreateEntryN { entry }).unwrap();
    let found = entry_of(&stranger, "new").unwrap();
    assert_eq!((found.servers[0], found.partitions[0]), (here, 25), "its first address");
    // Installed anew, at one of its addresses: it has the sites.
    assert_eq!(registered(&admin, 8, &[also]), Ok(()));
    assert_eq!(entry_of(&stranger, "new").unwrap().servers[0], also);
    let of_old = AddressAttributes {
        mask: address_mask::UUID,
        uuid: AfsUuid([9; 16]),
        ..Default::default()
    };
    assert_eq!(ask(&admin, LocationsCall::GetAddrsU { attributes: of_old }), Err(NO_ENTRY));
    // Its address changes; it goes when it has no site.
    assert_eq!(change_address(&admin, also, later), Ok(()));
    assert_eq!(entry_of(&stranger, "new").unwrap().servers[0], later);
    assert_eq!(change_address(&admin, also, later), Err(NO_ENTRY));
    assert_eq!(change_address(&admin, REMOVED, later), Err(IN_USE));
    ask(&admin, LocationsCall::DeleteEntry { volume: 90, kind: RW }).unwrap();
    assert_eq!(change_address(&admin, REMOVED, later), Ok(()));
    assert_eq!(change_address(&admin, REMOVED, later), Err(NO_ENTRY));
}

#[test]
fn mx6_rialtos_servers_are_not_taken_over() {
    let (_kept, rig) = cell();
    let admin = rig.administrator();
    let free = 0x0a00_0101;
    for addresses in [&[ONE][..], &[free, TWO]] {
        assert_eq!(registered(&admin, 9, addresses), Err(MULTIPLE), "{addresses:?}");
    }
    let uuid = AfsUuid(1u128.to_be_bytes());
    let addresses = Addresses::new(vec![free]).unwrap();
    let as_one = LocationsCall::RegisterAddrs { uuid, spare: 0, addresses };
    assert_eq!(ask(&admin, as_one), Err(MULTIPLE));
    assert_eq!(registered(&admin, 9, &[]), Err(Refusal(363_549)), "no address");
    assert_eq!(registered(&admin, 6, &(1..400).collect::<Vec<_>>()), Ok(()));
    assert_eq!(change_address(&admin, 15, 400), Ok(()), "the first 15 are its own");
    assert_eq!(change_address(&admin, 16, 401), Err(NO_ENTRY));
    assert_eq!(change_address(&admin, 400, 0xff00_0001), Err(Refusal(363_530)));
    assert_eq!(change_address(&admin, ONE, free), Err(PERM));
    assert_eq!(change_address(&admin, REMOVED, ONE), Err(PERM));
    assert_eq!(registered(&admin, 9, &[free]), Ok(()));
    assert_eq!(change_address(&admin, free, ONE), Err(IN_USE));
    // Two servers of AFS become one by no registration.
    assert_eq!(registered(&admin, 8, &[free + 1]), Ok(()));
    assert_eq!(registered(&admin, 7, &[free, free + 1]), Err(MULTIPLE));
}

#[test]
fn mx3_a_copy_takes_no_changes() {
    let (_kept, rig) = cell();
    let admin = rig.administrator();
    let copy = LocationService { databases: Databases::Followed };
    let (uuid, addresses) = (AfsUuid([9; 16]), Addresses::new(vec![7]).unwrap());
    let entry = entry_of(&admin, "home").unwrap();
    for call in [
        LocationsCall::GetNewVolumeId { count: 1 },
        LocationsCall::CreateEntryN { entry: entry.clone() },
        LocationsCall::ReplaceEntryN { volume: 40, kind: RW, entry, release: 0 },
        LocationsCall::DeleteEntry { volume: 40, kind: RW },
        LocationsCall::SetLock { volume: 40, kind: RW, operation: lock_operation::MOVE },
        LocationsCall::ReleaseLock { volume: 40, kind: RW, release: ALL_OF_IT },
        LocationsCall::RegisterAddrs { uuid, spare: 0, addresses },
        LocationsCall::ChangeAddr { old: ONE, new: 7 },
    ] {
        let text = format!("{call:?}");
        assert_eq!(copy.serve(&admin, call), Err(Refusal(5377)), "{text}");
    }
    let question = LocationsCall::GetEntryByIDN { volume: 40, kind: RW };
    assert!(copy.serve(&admin, question).is_ok());
}
