//! VL: the places of volumes.

use afs3::RpcMessage as _;
use afs3::locations::{
    AddressAttributes, ListAttributes, LocationsAnswer, LocationsCall, OldVldbEntry, PORT, SERVICE,
    UuidVldbEntry, VldbEntry, VldbUpdate, VolumeNameArgument, address_mask, entry_flag, list_mask,
    lock_operation, site_flag,
};
use afs3::structs::AfsUuid;
use afs3::xdr::{Chars, XdrList};

use crate::asking::{Asker, Caller, Place, long_text, raw};

const VL: Place = Place { name: "VL", port: PORT, service: SERVICE };
/// An address that no server has.
const NOWHERE: u32 = 0xc000_02c8;
/// A number that no volume has.
const UNKNOWN: u32 = 77;
/// Numbers that the calls may use.
const NUMBERS: u32 = 30;

struct Of<'a> {
    asker: &'a mut Asker,
    first: u32,
    here: u32,
}

fn name(text: &str) -> VolumeNameArgument {
    VolumeNameArgument::new(text.as_bytes()).unwrap()
}

impl Of<'_> {
    fn ask(&mut self, case: &str, call: &LocationsCall) -> Option<LocationsAnswer> {
        self.asker.ask(VL, case, &call.to_request())
    }

    fn entry(&self, text: &str, first: u32) -> VldbEntry {
        let mut entry = VldbEntry {
            name: Chars::new(text.as_bytes()).unwrap(),
            site_count: 1,
            servers: [0; 13],
            partitions: [0; 13],
            site_flags: [0; 13],
            volumes: [first, first + 1, first + 2],
            clone: 0,
            flags: entry_flag::RW_EXISTS | entry_flag::BACKUP_EXISTS,
            match_index: 0,
            spares: [0; 8],
        };
        entry.servers[0] = self.here;
        entry.partitions[0] = self.asker.partition;
        entry.site_flags[0] = site_flag::RW;
        entry
    }

    fn create(&mut self, case: &str, entry: VldbEntry) {
        self.ask(case, &LocationsCall::CreateEntryN { entry: Box::new(entry) });
    }

    fn replace(&mut self, case: &str, (volume, kind): (u32, i32), entry: VldbEntry, release: i32) {
        let entry = Box::new(entry);
        self.ask(case, &LocationsCall::ReplaceEntryN { volume, kind, entry, release });
    }

    fn seen(&mut self, case: &str, volume: u32) {
        self.ask(case, &LocationsCall::GetEntryByIDN { volume, kind: -1 });
    }
}

/// The number of the first volume that other services may use: ten of them are free.
pub fn ask(asker: &mut Asker) -> u32 {
    let here = u32::from(asker.address);
    let take = LocationsCall::GetNewVolumeId { count: NUMBERS };
    let taken = asker.ask_as(VL, Caller::Superuser, "some numbers", &take.to_request());
    let Some(LocationsAnswer::GetNewVolumeId { volume: first }) = taken else {
        panic!("numbers of volumes: {taken:?}")
    };
    for no in 0..NUMBERS {
        asker.shown.name(first + no, &format!("v{no}"));
    }
    let mut of = Of { asker, first, here };
    numbers(&mut of);
    create(&mut of);
    look_up(&mut of);
    list(&mut of);
    addresses(&mut of);
    lock(&mut of);
    replace(&mut of);
    old_forms(&mut of);
    remove(&mut of);
    for number in [500, 535, 65538] {
        of.asker.ask::<LocationsAnswer>(VL, "unknown procedure", &raw(number, |_| {}));
    }
    of.asker.ask::<LocationsAnswer>(VL, "no arguments", &raw(518, |_| {}));
    first + 20
}

fn numbers(of: &mut Of<'_>) {
    of.ask("it", &LocationsCall::ProbeServer {});
    of.ask("it", &LocationsCall::GetCapabilities {});
    of.ask("it", &LocationsCall::GetStats {});
    for count in [0, 0x8000_0000, u32::MAX] {
        of.ask(&format!("{count}"), &LocationsCall::GetNewVolumeId { count });
    }
}

fn create(of: &mut Of<'_>) {
    let v = of.first;
    let base = of.entry("cmp.one", v);
    of.create("a volume", base);
    of.create("again", base);
    of.create("its name", of.entry("cmp.one", v + 3));
    of.create("its number", of.entry("cmp.two", v));
    of.create(
        "its read-only number",
        VldbEntry { volumes: [v + 3, v + 1, 0], ..of.entry("cmp.two", v) },
    );
    of.create("number 0", VldbEntry { volumes: [0, 0, 0], ..of.entry("cmp.two", v) });
    of.ask("after it", &LocationsCall::DeleteEntry { volume: 0, kind: 0 });
    let reserved = VldbEntry { flags: entry_flag::RW_EXISTS, ..of.entry("cmp.reserved", v + 3) };
    of.create("the number of a backup volume to come", reserved);
    of.seen("the number of a backup volume to come", v + 3);
    of.ask("after it", &LocationsCall::DeleteEntry { volume: v + 3, kind: 0 });
    for (case, text) in [
        ("no name", ""),
        ("a blank", "cmp two"),
        ("a slash", "cmp/two"),
        ("a number as name", "12345"),
        ("a name of the read-only volume", "cmp.two.readonly"),
    ] {
        of.create(case, of.entry(text, v + 3));
        let delete = LocationsCall::DeleteEntry { volume: v + 3, kind: 0 };
        of.ask("after it", &delete);
    }
    for bytes in [1, 22, 31, 32, 64] {
        of.create(&format!("a name of {bytes} bytes"), of.entry(&"l".repeat(bytes), v + 3));
        let delete = LocationsCall::DeleteEntry { volume: v + 3, kind: 0 };
        of.ask("after it", &delete);
    }
    for site_count in [0, 13, 14, -1] {
        let entry = VldbEntry { site_count, ..of.entry("cmp.sites", v + 3) };
        of.create(&format!("{site_count} sites, of which one is named"), entry);
        of.ask("after it", &LocationsCall::DeleteEntry { volume: v + 3, kind: 0 });
    }
    for partition in [-1, 255, 256] {
        let mut entry = of.entry("cmp.partition", v + 3);
        entry.partitions[0] = partition;
        of.create(&format!("partition {partition}"), entry);
        of.ask("after it", &LocationsCall::DeleteEntry { volume: v + 3, kind: 0 });
    }
    for flags in [0, site_flag::RO, site_flag::RW | site_flag::RO, 0x80, 0x81] {
        let mut entry = of.entry("cmp.flags", v + 3);
        entry.site_flags[0] = flags;
        of.create(&format!("site flags {flags:#x}"), entry);
        of.ask("after it", &LocationsCall::DeleteEntry { volume: v + 3, kind: 0 });
    }
    of.create("a second volume", of.entry("cmp.two", v + 3));
    let mut sites = of.entry("cmp.three", v + 6);
    (sites.site_count, sites.servers[1], sites.partitions[1]) = (2, of.here, sites.partitions[0]);
    sites.site_flags[1] = site_flag::RO | site_flag::DONT_USE;
    of.create("with a site that was not released", sites);
    of.seen("with a site that was not released", v + 6);
}

fn look_up(of: &mut Of<'_>) {
    let v = of.first;
    for (case, volume) in [
        ("a volume", v),
        ("its read-only volume", v + 1),
        ("its backup volume", v + 2),
        ("number 0", 0),
        ("unknown", UNKNOWN),
        ("the greatest number", u32::MAX),
    ] {
        for kind in [-1, 0, 1, 2, 3] {
            let case = format!("{case}, kind {kind}");
            of.ask(&case, &LocationsCall::GetEntryByIDN { volume, kind });
            of.ask(&case, &LocationsCall::GetEntryByID { volume, kind });
        }
    }
    let digits = v.to_string();
    for (case, text) in [
        ("a volume", "cmp.one"),
        ("its read-only volume", "cmp.one.readonly"),
        ("its backup volume", "cmp.one.backup"),
        ("two endings", "cmp.one.backup.readonly"),
        ("an ending alone", ".readonly"),
        ("capitals", "CMP.ONE"),
        ("its number", &digits),
        ("an unknown number", "77"),
        ("number 0", "0"),
        ("a number that is too high", "99999999999999999999"),
        ("none", ""),
        ("unknown", "cmp.nothere"),
        ("64 bytes", &"l".repeat(64)),
        ("65 bytes", &"l".repeat(65)),
    ] {
        of.ask(case, &LocationsCall::GetEntryByNameN { name: name(text) });
        of.ask(case, &LocationsCall::GetEntryByNameO { name: name(text) });
        of.ask(case, &LocationsCall::GetEntryByNameU { name: name(text) });
    }
    let too_long = raw(519, |to| long_text(to, 66));
    of.asker.ask::<LocationsAnswer>(VL, "a name of 66 bytes", &too_long);
}

fn list(of: &mut Of<'_>) {
    let v = of.first;
    let (here, partition) = (of.here, of.asker.partition);
    for (case, mask, server, at, volume, flag) in [
        ("all", 0, 0, 0, 0, 0),
        ("of the server", list_mask::SERVER, here, 0, 0, 0),
        ("of a server that is not there", list_mask::SERVER, NOWHERE, 0, 0, 0),
        ("of the partition", list_mask::SERVER | list_mask::PARTITION, here, partition, 0, 0),
        ("of another partition", list_mask::PARTITION, 0, 9, 0, 0),
        ("of a volume", list_mask::VOLUME, 0, 0, v, 0),
        ("of a volume and a server", list_mask::VOLUME | list_mask::SERVER, NOWHERE, 0, v, 0),
        ("of a volume that is not there", list_mask::VOLUME, 0, 0, UNKNOWN, 0),
        ("that are locked", list_mask::FLAG, 0, 0, 0, lock_operation::ALL),
        ("by flag 0", list_mask::FLAG, 0, 0, 0, 0),
        ("by a flag", list_mask::FLAG, 0, 0, 0, entry_flag::RW_EXISTS),
        ("by another bit", 4, 0, 0, 0, 0),
    ] {
        let attributes = ListAttributes { mask, server, partition: at, spare: 0, volume, flag };
        of.ask(case, &LocationsCall::ListAttributes { attributes });
        of.ask(case, &LocationsCall::ListAttributesN { attributes });
        of.ask(case, &LocationsCall::LinkedList { attributes });
        of.ask(case, &LocationsCall::LinkedListN { attributes });
        for (text, start) in [("", 0), ("cmp.t.*", 0), ("[", 0), ("", -1)] {
            let case = format!("{case}, like '{text}' from {start}");
            of.ask(&case, &LocationsCall::ListAttributesN2 { attributes, name: name(text), start });
        }
    }
    for previous in [0, -1, 1, 77, i32::MAX] {
        of.ask(&format!("from {previous}"), &LocationsCall::ListEntry { previous });
        of.ask(&format!("from {previous}"), &LocationsCall::ListEntryN { previous });
    }
}

fn addresses(of: &mut Of<'_>) {
    let uuid = AfsUuid([7; 16]);
    let here = of.here;
    let mut own = uuid;
    for (handle, spare) in [(0, 0), (1, 0), (0, 1)] {
        let case = format!("handle {handle}, {spare}");
        of.ask(&case, &LocationsCall::GetAddrs { handle, spare });
    }
    for (case, mask, address, index) in [
        ("an address", address_mask::ADDRESS, here, 0),
        ("an address that is not there", address_mask::ADDRESS, NOWHERE, 0),
        ("index 1", address_mask::INDEX, 0, 1),
        ("index 0", address_mask::INDEX, 0, 0),
        ("index -1", address_mask::INDEX, 0, -1),
        ("index 99", address_mask::INDEX, 0, 99),
        ("index 1000", address_mask::INDEX, 0, 1000),
        ("a UUID that is not there", address_mask::UUID, 0, 0),
        ("nothing", 0, here, 1),
        ("an address and an index", address_mask::ADDRESS | address_mask::INDEX, here, 1),
        ("another bit", 8, here, 1),
    ] {
        let attributes = AddressAttributes { mask, address, index, spare: 0, uuid };
        let answer = of.ask(case, &LocationsCall::GetAddrsU { attributes });
        if let Some(LocationsAnswer::GetAddrsU { uuid, .. }) = answer {
            own = uuid;
        }
    }
    let attributes =
        AddressAttributes { mask: address_mask::UUID, address: 0, index: 0, spare: 0, uuid: own };
    of.ask("its UUID", &LocationsCall::GetAddrsU { attributes });
    for (case, all) in [("none", vec![]), ("one", vec![NOWHERE]), ("17", vec![NOWHERE; 17])] {
        let addresses = XdrList::new(all).unwrap();
        of.ask(case, &LocationsCall::RegisterAddrs { uuid, spare: 0, addresses });
    }
    for (case, old, new) in [
        ("of an unknown server", 0xc000_02c7, 0xc000_02c6),
        ("to a block", NOWHERE, 0xff00_0001),
        ("remove it", 0xffff_ffff, NOWHERE),
        ("remove it again", 0xffff_ffff, NOWHERE),
        ("remove one that has volumes", 0xffff_ffff, here),
    ] {
        of.ask(case, &LocationsCall::ChangeAddr { old, new });
    }
}

fn lock(of: &mut Of<'_>) {
    let v = of.first;
    for (case, volume, kind, operation) in [
        ("no operation", v, 0, 0),
        ("another operation", v, 0, 1),
        ("two operations", v, 0, lock_operation::MOVE | lock_operation::RELEASE),
        ("unknown", UNKNOWN, 0, lock_operation::MOVE),
        ("another kind", v, 9, lock_operation::MOVE),
        ("to move", v, 0, lock_operation::MOVE),
        ("again", v, 0, lock_operation::MOVE),
        ("by its backup volume", v + 2, 2, lock_operation::BACKUP),
    ] {
        of.ask(case, &LocationsCall::SetLock { volume, kind, operation });
    }
    of.seen("locked", v);
    let locked = ListAttributes {
        mask: list_mask::FLAG,
        server: 0,
        partition: 0,
        spare: 0,
        volume: 0,
        flag: lock_operation::ALL,
    };
    of.ask("that are locked", &LocationsCall::ListAttributesN { attributes: locked });
    of.replace("while it is locked", (v, 0), of.entry("cmp.one", v), 0);
    for (case, volume, kind, release) in [
        ("unknown", UNKNOWN, 0, 7),
        ("another kind", v, 9, 7),
        ("type 8", v, 0, 8),
        ("type -1", v, 0, -1),
        ("the timestamp alone", v, 0, 1),
        ("all", v, 0, 7),
        ("again", v, 0, 7),
    ] {
        of.ask(case, &LocationsCall::ReleaseLock { volume, kind, release });
    }
    of.seen("unlocked", v);
    for operation in [
        lock_operation::RELEASE,
        lock_operation::BACKUP,
        lock_operation::DELETE,
        lock_operation::DUMP,
    ] {
        let case = format!("operation {operation:#x}");
        of.ask(&case, &LocationsCall::SetLock { volume: v, kind: -1, operation });
        of.seen(&case, v);
        of.ask(&case, &LocationsCall::ReleaseLock { volume: v, kind: -1, release: 0 });
        of.ask(&case, &LocationsCall::ReleaseLock { volume: v, kind: -1, release: 7 });
    }
}

fn replace(of: &mut Of<'_>) {
    let v = of.first;
    of.replace("as it is", (v, 0), of.entry("cmp.one", v), 7);
    of.replace("a name", (v, 0), of.entry("cmp.uno", v), 7);
    of.replace("a name that is taken", (v, 0), of.entry("cmp.two", v), 7);
    of.replace("no name", (v, 0), of.entry("", v), 7);
    of.replace("another number", (v, 0), of.entry("cmp.one", v + 9), 7);
    of.replace("unknown", (UNKNOWN, 0), of.entry("cmp.one", v), 7);
    of.replace("another kind", (v, 9), of.entry("cmp.one", v), 7);
    of.replace("release type 8", (v, 0), of.entry("cmp.one", v), 8);
    of.replace("by its read-only number", (v + 1, 1), of.entry("cmp.one", v), 0);
    of.replace("by its backup number, any kind", (v + 2, -1), of.entry("cmp.one", v), 0);
    of.replace("no sites", (v, 0), VldbEntry { site_count: 0, ..of.entry("cmp.one", v) }, 0);
    of.seen("after ReplaceEntryN", v);
    let mut entry = of.entry("cmp.one", v);
    entry.volumes = [v, v + 10, v + 11];
    (entry.site_count, entry.servers[1], entry.partitions[1]) = (2, of.here, entry.partitions[0]);
    entry.site_flags[1] = site_flag::RO;
    of.replace("other numbers and a released site", (v, 0), entry, 0);
    of.seen("after it", v);
    of.seen("its former number", v + 1);
    of.seen("its new number", v + 10);
    entry.flags |= entry_flag::RO_EXISTS;
    entry.site_flags[0] = site_flag::RW | site_flag::NEW_REPLICA;
    entry.clone = v + 12;
    of.replace("while a release goes on", (v, 0), entry, 0);
    of.seen("while a release goes on", v);
}

fn old_forms(of: &mut Of<'_>) {
    let v = of.first;
    let of_entry = |entry: &VldbEntry| OldVldbEntry {
        name: entry.name,
        spare: 0,
        site_count: entry.site_count,
        servers: std::array::from_fn(|at| entry.servers[at]),
        partitions: std::array::from_fn(|at| entry.partitions[at]),
        site_flags: std::array::from_fn(|at| entry.site_flags[at]),
        volumes: entry.volumes,
        clone: 0,
        flags: entry.flags,
    };
    let old = of_entry(&of.entry("cmp.old", v + 13));
    of.ask("a volume", &LocationsCall::CreateEntry { entry: Box::new(old) });
    of.ask("again", &LocationsCall::CreateEntry { entry: Box::new(old) });
    let renamed = of_entry(&of.entry("cmp.older", v + 13));
    let replace = |entry: OldVldbEntry, volume| LocationsCall::ReplaceEntry {
        volume,
        kind: 0,
        entry: Box::new(entry),
        release: 7,
    };
    of.ask("a name", &replace(renamed, v + 13));
    of.ask("unknown", &replace(renamed, UNKNOWN));
    of.seen("after ReplaceEntry", v + 13);
    let update = |mask: u32, text: &str| VldbUpdate {
        mask,
        name: Chars::new(text.as_bytes()).unwrap(),
        spare: 0,
        flags: 0,
        ro_volume: 0,
        backup_volume: 0,
        clone: 0,
        site_count: 0,
        site_masks: [0; 8],
        target_servers: [0; 8],
        target_partitions: [0; 8],
        new_servers: [0; 8],
        new_partitions: [0; 8],
        new_flags: [0; 8],
    };
    for (case, volume, mask, text) in
        [("a name", v + 13, 1, "cmp.new"), ("nothing", v + 13, 0, ""), ("unknown", UNKNOWN, 1, "x")]
    {
        let update = Box::new(update(mask, text));
        of.ask(case, &LocationsCall::UpdateEntry { volume, kind: 0, update, release: 7 });
    }
    for (case, text) in [("a volume", "cmp.new"), ("unknown", "cmp.nothere")] {
        let update = Box::new(update(1, "cmp.newer"));
        let name = name(text);
        of.ask(case, &LocationsCall::UpdateEntryByName { name, update, release: 7 });
    }
    of.seen("after UpdateEntryByName", v + 13);
    let new = of.entry("cmp.uuid", v + 16);
    let entry = Box::new(UuidVldbEntry {
        name: new.name,
        site_count: 1,
        servers: [AfsUuid::default(); 13],
        server_uniques: [0; 13],
        partitions: new.partitions,
        site_flags: new.site_flags,
        volumes: new.volumes,
        clone: 0,
        flags: new.flags,
        match_index: 0,
        spares: [0; 8],
    });
    let attributes =
        ListAttributes { mask: 0, server: 0, partition: 0, spare: 0, volume: 0, flag: 0 };
    of.ask("a volume", &LocationsCall::CreateEntryU { entry: entry.clone() });
    of.ask("a volume", &LocationsCall::GetEntryByIDU { volume: v, kind: 0 });
    let replace = LocationsCall::ReplaceEntryU { volume: v, kind: 0, entry, release: 7 };
    of.ask("a volume", &replace);
    of.ask("a volume", &LocationsCall::ListEntryU { previous: 0 });
    of.ask("all", &LocationsCall::ListAttributesU { attributes });
    of.ask("all", &LocationsCall::LinkedListU { attributes });
}

fn remove(of: &mut Of<'_>) {
    let v = of.first;
    for (case, volume, kind) in [
        ("unknown", UNKNOWN, 0),
        ("another kind", v, 9),
        ("by its read-only number", v + 10, 1),
        ("again", v, 0),
        ("any kind", v + 3, -1),
        ("with a site", v + 6, 0),
        ("the old form", v + 13, 0),
        ("again", v + 13, 0),
    ] {
        of.ask(case, &LocationsCall::DeleteEntry { volume, kind });
    }
    of.seen("after DeleteEntry", v);
}
