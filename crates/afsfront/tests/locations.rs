//! The location service over a cell's database.

use std::sync::Arc;

use afs3::locations::{
    AddressAttributes, Addresses, ListAttributes, LocationsAnswer, LocationsCall,
    VolumeNameArgument, address_mask, entry_flag, list_mask, site_flag,
};
use afs3::structs::AfsUuid;
use afsfront::{LocationService, Refusal};
use celldb::{CellDb, Embedded};
use types::{
    Name, PrincipalId, Revision, ServerId, ServerInfo, Site, SiteKind, VolumeGroup, VolumeId,
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
    LocationService.serve(user, call)
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
    assert_eq!(of(AddressAttributes { index: 3, ..by_index }), Err(Refusal(363_549)));
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
