//! VL.

use super::fixtures::*;
use crate::locations::*;
use crate::structs::AfsUuid;
use crate::xdr::{Xdr, XdrChain};

fn old_entry() -> OldVldbEntry {
    OldVldbEntry {
        name: chars("root.cell"),
        spare: 1,
        site_count: 2,
        servers: count(0x10),
        partitions: count(0x20),
        site_flags: count(0x30),
        volumes: [3, 4, 5],
        clone: 6,
        flags: 7,
    }
}

fn old_entry_hex() -> String {
    let arrays = words(0x10, 0x17) + &words(0x20, 0x27) + &words(0x30, 0x37);
    [char_words("root.cell", 65), words(1, 2), arrays, words(3, 7)].concat()
}

fn entry() -> VldbEntry {
    VldbEntry {
        name: chars("root.cell"),
        site_count: 1,
        servers: count(0x10),
        partitions: count(0x20),
        site_flags: count(0x30),
        volumes: [2, 3, 4],
        clone: 5,
        flags: 6,
        match_index: 7,
        spares: count(8),
    }
}

fn entry_hex() -> String {
    let arrays = words(0x10, 0x1c) + &words(0x20, 0x2c) + &words(0x30, 0x3c);
    [&char_words("root.cell", 65), "00000001 ", &arrays, &words(2, 15)].concat()
}

fn uuid_entry() -> UuidVldbEntry {
    let mut servers = [AfsUuid::default(); 13];
    servers[12] = UUID;
    UuidVldbEntry {
        name: chars("root.cell"),
        site_count: 1,
        servers,
        server_uniques: count(0x10),
        partitions: count(0x20),
        site_flags: count(0x30),
        volumes: [2, 3, 4],
        clone: 5,
        flags: 6,
        match_index: 7,
        spares: count(8),
    }
}

fn uuid_entry_hex() -> String {
    let uuids = "00000000 ".repeat(12 * 11) + UUID_HEX;
    let arrays = words(0x10, 0x1c) + &words(0x20, 0x2c) + &words(0x30, 0x3c);
    [&char_words("root.cell", 65), "00000001 ", &uuids, &arrays, &words(2, 15)].concat()
}

const LIST: ListAttributes =
    ListAttributes { mask: 1, server: 2, partition: 3, spare: 4, volume: 5, flag: 6 };

fn update() -> VldbUpdate {
    VldbUpdate {
        mask: 1,
        name: chars("ab"),
        spare: 2,
        flags: 3,
        ro_volume: 4,
        backup_volume: 5,
        clone: 6,
        site_count: 7,
        site_masks: count(0x10),
        target_servers: count(0x20),
        target_partitions: count(0x30),
        new_servers: count(0x40),
        new_partitions: count(0x50),
        new_flags: count(0x60),
    }
}

fn update_hex() -> String {
    let arrays: String = (1..=6).map(|no| words(no * 16, no * 16 + 7)).collect();
    ["00000001 ", &char_words("ab", 65), &words(2, 7), &arrays].concat()
}

fn statistics() -> VlStatistics {
    let (requests, aborts, spares) = (count(0x100), count(0x200), count(0x300));
    VlStatistics { start_time: 1, requests, aborts, spares }
}

fn statistics_hex() -> String {
    ["00000001 ", &words(0x100, 0x131), &words(0x200, 0x231), &words(0x300, 0x304)].concat()
}

const HEADER: VlHeader = VlHeader {
    version: 1,
    header_bytes: 2,
    free: 3,
    end: 4,
    allocations: 5,
    frees: 6,
    max_volume: 7,
    entries: [8, 9, 10],
};

const ADDRESS: AddressAttributes =
    AddressAttributes { mask: 1, address: 2, index: 3, spare: 4, uuid: UUID };

#[test]
fn calls_about_locations_have_their_bytes() {
    let (old, new, uuid) =
        (|| Box::new(old_entry()), || Box::new(entry()), || Box::new(uuid_entry()));
    golden! { LocationsCall LocationsAnswer
        501 CreateEntry { entry: old() } = [old_entry_hex()] -> {} = [];
        502 DeleteEntry { volume: 0x2000_0007, kind: -1 } = ["20000007 ffffffff"] -> {} = [];
        503 GetEntryByID { volume: 7, kind: -1 } = ["00000007 ffffffff"]
            -> { entry: old() } = [old_entry_hex()];
        504 GetEntryByNameO { name: text("ab") } = [AB] -> { entry: old() } = [old_entry_hex()];
        505 GetNewVolumeId { count: 3 } = ["00000003"] -> { volume: 7 } = ["00000007"];
        506 ReplaceEntry { volume: 7, kind: 1, entry: old(), release: 2 }
            = ["00000007 00000001", old_entry_hex(), "00000002"] -> {} = [];
        507 UpdateEntry { volume: 7, kind: 1, update: Box::new(update()), release: 2 }
            = ["00000007 00000001", update_hex(), "00000002"] -> {} = [];
        508 SetLock { volume: 7, kind: 1, operation: 0x20 } = ["00000007 00000001 00000020"]
            -> {} = [];
        509 ReleaseLock { volume: 7, kind: 1, release: 2 } = ["00000007 00000001 00000002"]
            -> {} = [];
        510 ListEntry { previous: 1 } = ["00000001"]
            -> { count: 2, next: 3, entry: old() } = ["00000002 00000003", old_entry_hex()];
        511 ListAttributes { attributes: LIST } = [words(1, 6)]
            -> { count: 1, entries: list([old_entry()]) }
            = ["00000001 00000001", old_entry_hex()];
        512 LinkedList { attributes: LIST } = [words(1, 6)]
            -> { count: 2, entries: XdrChain(vec![old_entry(), old_entry()]) }
            = ["00000002 00000001", old_entry_hex(), "00000001", old_entry_hex(), "00000000"];
        513 GetStats {} = []
            -> { statistics: Box::new(statistics()), header: HEADER }
            = [statistics_hex(), words(1, 10)];
        514 ProbeServer {} = [] -> {} = [];
        515 GetAddrs { handle: 1, spare: 2 } = ["00000001 00000002"]
            -> {
                callback: VlCallBack { version: 1, expiration: 2, kind: 3, handle: 4 }, count: 5,
                addresses: list([0x0a00_0001, 0xff00_0000])
            } = [words(1, 5), "00000002 0a000001 ff000000"];
        516 ChangeAddr { old: 0xffff_ffff, new: 2 } = ["ffffffff 00000002"] -> {} = [];
        517 CreateEntryN { entry: new() } = [entry_hex()] -> {} = [];
        518 GetEntryByIDN { volume: 7, kind: -1 } = ["00000007 ffffffff"]
            -> { entry: new() } = [entry_hex()];
        519 GetEntryByNameN { name: text("ab") } = [AB] -> { entry: new() } = [entry_hex()];
        520 ReplaceEntryN { volume: 7, kind: 1, entry: new(), release: 2 }
            = ["00000007 00000001", entry_hex(), "00000002"] -> {} = [];
        521 ListEntryN { previous: 1 } = ["00000001"]
            -> { count: 2, next: 3, entry: new() } = ["00000002 00000003", entry_hex()];
        522 ListAttributesN { attributes: LIST } = [words(1, 6)]
            -> { count: 1, entries: list([entry()]) } = ["00000001 00000001", entry_hex()];
        523 LinkedListN { attributes: LIST } = [words(1, 6)]
            -> { count: 1, entries: XdrChain(vec![entry()]) }
            = ["00000001 00000001", entry_hex(), "00000000"];
        524 UpdateEntryByName { name: text("ab"), update: Box::new(update()), release: 2 }
            = [AB, update_hex(), "00000002"] -> {} = [];
        525 CreateEntryU { entry: uuid() } = [uuid_entry_hex()] -> {} = [];
        526 GetEntryByIDU { volume: 7, kind: -1 } = ["00000007 ffffffff"]
            -> { entry: uuid() } = [uuid_entry_hex()];
        527 GetEntryByNameU { name: text("ab") } = [AB] -> { entry: uuid() } = [uuid_entry_hex()];
        528 ReplaceEntryU { volume: 7, kind: 1, entry: uuid(), release: 2 }
            = ["00000007 00000001", uuid_entry_hex(), "00000002"] -> {} = [];
        529 ListEntryU { previous: 1 } = ["00000001"]
            -> { count: 2, next: 3, entry: uuid() } = ["00000002 00000003", uuid_entry_hex()];
        530 ListAttributesU { attributes: LIST } = [words(1, 6)]
            -> { count: 1, entries: list([uuid_entry()]) }
            = ["00000001 00000001", uuid_entry_hex()];
        531 LinkedListU { attributes: LIST } = [words(1, 6)]
            -> { count: 0, entries: XdrChain(vec![]) } = ["00000000 00000000"];
        532 RegisterAddrs { uuid: UUID, spare: 1, addresses: list([0x0a00_0001]) }
            = [UUID_HEX, "00000001 00000001 0a000001"] -> {} = [];
        533 GetAddrsU { attributes: ADDRESS } = [words(1, 4), UUID_HEX]
            -> { uuid: UUID, unique: 1, count: 2, addresses: list([3, 4]) }
            = [UUID_HEX, "00000001 00000002 00000002 00000003 00000004"];
        534 ListAttributesN2 { attributes: LIST, name: text("ab"), start: 7 }
            = [words(1, 6), AB, "00000007"]
            -> { count: 1, entries: list([entry()]), next: -1 }
            = ["00000001 00000001", entry_hex(), "ffffffff"];
        65537 GetCapabilities {} = [] -> { capabilities: list([1]) } = ["00000001 00000001"];
    }
    assert_eq!(streams::<LocationsCall>(), (vec![], vec![]));
}

#[test]
fn entries_have_their_sizes() {
    assert_eq!(OldVldbEntry::LEAST_BYTES, 384);
    assert_eq!(VldbEntry::LEAST_BYTES, 476);
    assert_eq!(UuidVldbEntry::LEAST_BYTES, 1048);
    assert_eq!(VlHeader::LEAST_BYTES, 40);
    assert_eq!(VlStatistics::LEAST_BYTES, 4 * 106);
    assert_eq!(VldbUpdate::LEAST_BYTES, 4 * (1 + 65 + 6 + 48));
}
