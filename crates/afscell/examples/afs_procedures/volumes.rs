//! AFSVol: volumes and transactions.

use afs3::RpcMessage as _;
use afs3::volumes::{
    Destination, PORT, PartitionPath, Replica, RestoreCookie, SERVICE, VolumeName, VolumeReport,
    VolumesAnswer, VolumesCall, transaction_flag, volume_flag, volume_type,
};
use afs3::xdr::{Chars, XdrList};

use crate::asking::{Asker, Caller, Place, long_text, raw};

const VOL: Place = Place { name: "AFSVol", port: PORT, service: SERVICE };
/// A number that no volume has, and one that no transaction has.
const UNKNOWN: u32 = 77;
const NO_TRANSACTION: i32 = 987_654;
/// A partition that is not there.
const NO_PARTITION: i32 = 9;

struct Of<'a> {
    asker: &'a mut Asker,
    first: u32,
    partition: i32,
}

fn name(text: &str) -> VolumeName {
    VolumeName::new(text.as_bytes()).unwrap()
}

fn cookie(text: &str) -> RestoreCookie {
    let name = Chars::new(text.as_bytes()).unwrap();
    RestoreCookie { name, kind: volume_type::RW, clone: 0, parent: 0 }
}

impl Of<'_> {
    fn ask(&mut self, case: &str, call: &VolumesCall) -> Option<VolumesAnswer> {
        self.asker.ask(VOL, case, &call.to_request())
    }

    /// A call whose effect would hide that of the next, so the stranger is not asked.
    fn do_it(&mut self, case: &str, call: &VolumesCall) -> Option<VolumesAnswer> {
        self.asker.ask_as(VOL, Caller::Superuser, case, &call.to_request())
    }

    fn open(&mut self, case: &str, volume: u32, flags: i32) -> i32 {
        let call = VolumesCall::TransCreate { volume, partition: self.partition, flags };
        match self.do_it(case, &call) {
            Some(VolumesAnswer::TransCreate { transaction }) => transaction,
            _ => NO_TRANSACTION,
        }
    }

    fn end(&mut self, case: &str, transaction: i32) {
        self.do_it(case, &VolumesCall::EndTrans { transaction });
    }

    fn create(&mut self, case: &str, text: &str, kind: i32, parent: u32, volume: u32) -> i32 {
        let call = VolumesCall::CreateVolume {
            partition: self.partition,
            name: name(text),
            kind,
            parent,
            volume,
        };
        match self.ask(case, &call) {
            Some(VolumesAnswer::CreateVolume { transaction, .. }) => transaction,
            _ => NO_TRANSACTION,
        }
    }

    fn report(&mut self, case: &str, volume: u32) {
        self.ask(case, &VolumesCall::ListOneVolume { partition: self.partition, volume });
    }
}

/// A volume in service.
pub fn ask(asker: &mut Asker, first: u32) -> u32 {
    let partition = asker.partition;
    let mut of = Of { asker, first, partition };
    partitions(&mut of);
    create(&mut of);
    report(&mut of);
    transactions(&mut of);
    without_transaction(&mut of);
    clones(&mut of);
    dumps(&mut of);
    replicas(&mut of);
    for number in [99, 129, 65540] {
        of.asker.ask::<VolumesAnswer>(VOL, "unknown procedure", &raw(number, |_| {}));
    }
    of.asker.ask::<VolumesAnswer>(VOL, "no arguments", &raw(108, |_| {}));
    first
}

fn partitions(of: &mut Of<'_>) {
    of.ask("it", &VolumesCall::ListPartitions {});
    of.ask("it", &VolumesCall::XListPartitions {});
    let letter = char::from(b'a' + of.partition as u8);
    let own = format!("/vicep{letter}");
    for path in [&own[..], &own[1..], &own[6..], "/vicepj", "/vicep", "", "/", "/vicep1"] {
        let (path, case) = (PartitionPath::new(path.as_bytes()).unwrap(), format!("'{path}'"));
        of.ask(&case, &VolumesCall::PartitionInfo { partition: path.clone() });
        of.ask(&case, &VolumesCall::PartitionInfo64 { partition: path });
    }
}

fn create(of: &mut Of<'_>) {
    let v = of.first;
    for (case, partition) in [("no partition", NO_PARTITION), ("-1", -1), ("256", 256)] {
        let (name, kind, parent, volume) = (name("cmp.none"), 0, 0, v + 1);
        let call = VolumesCall::CreateVolume { partition, name, kind, parent, volume };
        of.ask(case, &call);
    }
    for (case, text, kind, volume) in [
        ("no name", "", 0, v + 1),
        ("kind 3", "cmp.none", 3, v + 1),
        ("kind -1", "cmp.none", -1, v + 1),
    ] {
        let transaction = of.create(case, text, kind, 0, volume);
        of.do_it("it goes", &VolumesCall::DeleteVolume { transaction });
        of.end("it goes", transaction);
    }
    let long = of.create("a name of 31 bytes", &"l".repeat(31), 0, 0, v + 1);
    of.end("it", long);
    of.report("it goes with its transaction", v + 1);
    let longer = of.create("a name of 32 bytes", &"l".repeat(32), 0, 0, v + 1);
    of.end("it", longer);
    let partition = of.partition as u32;
    let too_long = raw(100, |to| {
        to.u32(partition);
        long_text(to, 33);
        (0..3).for_each(|_| to.u32(0));
    });
    of.asker.ask::<VolumesAnswer>(VOL, "a name of 33 bytes", &too_long);
    let transaction = of.create("a volume", "cmp.vol", 0, 0, v);
    of.create("while it is made", "cmp.vol", 0, 0, v);
    of.report("while it is made", v);
    of.ask("while it is made", &VolumesCall::GetStatus { transaction });
    of.ask("while it is made", &VolumesCall::GetFlags { transaction });
    of.ask("while it is made", &VolumesCall::GetName { transaction });
    of.ask("it serves", &VolumesCall::SetFlags { transaction, flags: 0 });
    of.ask("it serves", &VolumesCall::GetFlags { transaction });
    let mut info = empty_report();
    info.max_quota = 100_000;
    of.ask("a quota", &VolumesCall::SetInfo { transaction, info: Box::new(info) });
    of.ask("it", &VolumesCall::EndTrans { transaction });
    of.ask("again", &VolumesCall::EndTrans { transaction });
    of.create("again", "cmp.vol", 0, 0, v);
    of.create("its name", "cmp.vol", 0, 0, v + 1);
    let named = VolumesCall::NukeVolume { partition: of.partition, volume: v + 1 };
    of.ask("of another volume with its name", &named);
}

/// Members that stay as they are.
fn empty_report() -> VolumeReport {
    VolumeReport {
        name: Chars::new(b"").unwrap(),
        volume: 0,
        kind: -1,
        backup: 0,
        parent: 0,
        clone: 0,
        status: -1,
        copied: -1,
        in_use: 0,
        needs_salvaged: 0,
        destroy_me: 0,
        created: -1,
        accessed: -1,
        updated: -1,
        backed_up: -1,
        day_use: -1,
        files: -1,
        max_quota: -1,
        size: -1,
        flags: -1,
        spare0: -1,
        spare1: -1,
        spare2: -1,
        spare3: -1,
    }
}

fn report(of: &mut Of<'_>) {
    let v = of.first;
    for (case, partition, volume) in [
        ("a volume", of.partition, v),
        ("unknown", of.partition, UNKNOWN),
        ("number 0", of.partition, 0),
        ("another partition", NO_PARTITION, v),
        ("partition -1", -1, v),
    ] {
        of.ask(case, &VolumesCall::ListOneVolume { partition, volume });
        of.ask(case, &VolumesCall::XListOneVolume { partition, volume });
    }
    for (case, partition, flags) in [
        ("numbers", of.partition, 0),
        ("everything", of.partition, 1),
        ("flags 2", of.partition, 2),
        ("no partition", NO_PARTITION, 1),
        ("partition -1", -1, 1),
    ] {
        of.ask(case, &VolumesCall::ListVolumes { partition, flags });
        of.ask(case, &VolumesCall::XListVolumes { partition, flags });
    }
    for index in [0, 1, -1] {
        of.ask(&format!("{index}"), &VolumesCall::GetNthVolume { index });
    }
    of.ask("none", &VolumesCall::Monitor {});
    let (kind, parent, clone) = (0, 0, 0);
    of.ask("it", &VolumesCall::SignalRestore { name: name("x"), kind, parent, clone });
}

fn transactions(of: &mut Of<'_>) {
    let v = of.first;
    for (case, volume, partition, flags) in [
        ("unknown", UNKNOWN, of.partition, transaction_flag::BUSY),
        ("number 0", 0, of.partition, transaction_flag::BUSY),
        ("no partition", v, NO_PARTITION, transaction_flag::BUSY),
        ("partition -1", v, -1, transaction_flag::BUSY),
        ("no flags", v, of.partition, 0),
        ("flag 4", v, of.partition, 4),
    ] {
        of.ask(case, &VolumesCall::TransCreate { volume, partition, flags });
    }
    for flags in [
        transaction_flag::OFFLINE,
        transaction_flag::BUSY,
        transaction_flag::READ_ONLY,
        transaction_flag::CREATE,
        transaction_flag::CREATE_VOLUME_ID,
    ] {
        let transaction = of.open(&format!("flags {flags:#x}"), v, flags);
        let second = of.open("a second one", v, transaction_flag::BUSY);
        of.end("a second one", second);
        of.ask("one", &VolumesCall::Monitor {});
        of.report("in a transaction", v);
        of.ask("it", &VolumesCall::GetStatus { transaction });
        of.ask("it", &VolumesCall::GetName { transaction });
        of.ask("it", &VolumesCall::GetFlags { transaction });
        of.end("it", transaction);
    }
    let transaction = of.open("to change it", v, transaction_flag::OFFLINE);
    for flags in [volume_flag::OUT_OF_SERVICE, 0] {
        of.ask(&format!("{flags}"), &VolumesCall::SetFlags { transaction, flags });
        of.ask(&format!("{flags}"), &VolumesCall::GetFlags { transaction });
        of.report(&format!("flags {flags}"), v);
    }
    for created in [0, -1, 1_000_000_000] {
        of.ask(&format!("{created}"), &VolumesCall::SetDate { transaction, created });
    }
    for (case, max_quota) in [("1 KiB", 1), ("no limit", 0), ("-2", -2), ("100000", 100_000)] {
        let mut info = empty_report();
        info.max_quota = max_quota;
        of.ask(case, &VolumesCall::SetInfo { transaction, info: Box::new(info) });
        of.ask(case, &VolumesCall::GetStatus { transaction });
    }
    let mut info = empty_report();
    (info.day_use, info.spare0, info.spare1, info.spare2) = (5, 6, 7, 8);
    of.ask("uses", &VolumesCall::SetInfo { transaction, info: Box::new(info) });
    of.report("after SetInfo", v);
    for site in [0, 0xc000_02c8] {
        of.ask(&format!("{site:#x}"), &VolumesCall::SetForwarding { transaction, site });
    }
    let ids = |text: &str, kind| VolumesCall::SetIdsTypes {
        transaction,
        name: name(text),
        kind,
        parent: v,
        clone: v + 1,
        backup: v + 2,
    };
    of.ask("a name", &ids("cmp.renamed", 0));
    of.ask("it", &VolumesCall::GetStatus { transaction });
    of.ask("kind 3", &ids("cmp.vol", 3));
    of.ask("a name of 32 bytes", &ids(&"l".repeat(32), 0));
    of.ask("the name as before", &ids("cmp.vol", 0));
    of.ask("it", &VolumesCall::GetName { transaction });
    of.end("it", transaction);
    of.report("after all", v);
}

fn without_transaction(of: &mut Of<'_>) {
    let transaction = NO_TRANSACTION;
    for transaction in [transaction, 0, -1] {
        let case = format!("transaction {transaction}");
        for call in [
            VolumesCall::EndTrans { transaction },
            VolumesCall::DeleteVolume { transaction },
            VolumesCall::SetFlags { transaction, flags: 0 },
            VolumesCall::GetFlags { transaction },
            VolumesCall::GetName { transaction },
            VolumesCall::GetStatus { transaction },
            VolumesCall::SetDate { transaction, created: 0 },
            VolumesCall::SetInfo { transaction, info: Box::new(empty_report()) },
            VolumesCall::GetSize { transaction, from_date: 0 },
            VolumesCall::Dump { transaction, from_date: 0 },
            VolumesCall::DumpV2 { transaction, from_date: 0, flags: 0 },
            VolumesCall::ReClone { transaction, clone: UNKNOWN },
        ] {
            of.ask(&case, &call);
        }
    }
    let clone = VolumesCall::Clone {
        transaction,
        purge: 0,
        kind: volume_type::BACKUP,
        name: name("x"),
        volume: UNKNOWN,
    };
    of.ask("no transaction", &clone);
    of.ask("no transaction", &VolumesCall::SetForwarding { transaction, site: 0 });
    let ids = VolumesCall::SetIdsTypes {
        transaction,
        name: name("x"),
        kind: 0,
        parent: 0,
        clone: 0,
        backup: 0,
    };
    of.ask("no transaction", &ids);
    of.ask("no transaction", &VolumesCall::Restore { transaction, flags: 0, cookie: cookie("x") });
    let destination = Destination { host: of.asker.address.into(), port: 7005, service: 1 };
    let forward = VolumesCall::Forward {
        transaction,
        from_date: 0,
        destination,
        to_transaction: 0,
        cookie: cookie("x"),
    };
    of.ask("no transaction", &forward);
    for count in [0, 1] {
        let replica = Replica { transaction: NO_TRANSACTION, destination };
        let forward = VolumesCall::ForwardMultiple {
            transaction,
            from_date: 0,
            destinations: XdrList::new(vec![replica; count]).unwrap(),
            spare: 0,
            cookie: cookie("x"),
        };
        of.ask(&format!("no transaction, {count} sites"), &forward);
    }
}

fn clones(of: &mut Of<'_>) {
    let v = of.first;
    let clone = |transaction, kind, text: &str, purge, volume| VolumesCall::Clone {
        transaction,
        purge,
        kind,
        name: name(text),
        volume,
    };
    let transaction = of.open("to clone it", v, transaction_flag::BUSY);
    of.ask("kind 3", &clone(transaction, 3, "cmp.vol.x", 0, v + 7));
    of.ask("a read-write one", &clone(transaction, volume_type::RW, "cmp.rw", 0, v + 3));
    of.ask("its own number", &clone(transaction, volume_type::BACKUP, "cmp.vol.backup", 0, v));
    of.ask("a backup", &clone(transaction, volume_type::BACKUP, "cmp.vol.backup", 0, v + 2));
    of.ask("again", &clone(transaction, volume_type::BACKUP, "cmp.vol.backup", 0, v + 2));
    of.report("before it serves", v + 2);
    of.ask("a volume that is not there", &VolumesCall::ReClone { transaction, clone: UNKNOWN });
    of.ask("number 0", &VolumesCall::ReClone { transaction, clone: 0 });
    of.ask("it", &VolumesCall::GetStatus { transaction });
    of.end("it", transaction);
    let transaction = of.open("the clone", v + 2, transaction_flag::OFFLINE);
    of.do_it("it serves", &VolumesCall::SetFlags { transaction, flags: 0 });
    of.end("it", transaction);
    of.report("the clone", v + 2);
    of.report("the volume", v);
    let transaction = of.open("to clone it again", v, transaction_flag::BUSY);
    of.ask("the clone", &VolumesCall::ReClone { transaction, clone: v + 2 });
    of.ask("itself", &VolumesCall::ReClone { transaction, clone: v });
    of.end("it", transaction);
    let transaction = of.open("the clone to remove it", v + 2, transaction_flag::OFFLINE);
    of.ask("a clone", &VolumesCall::DeleteVolume { transaction });
    of.ask("a clone again", &VolumesCall::DeleteVolume { transaction });
    of.ask("of what was removed", &VolumesCall::GetStatus { transaction });
    of.end("it", transaction);
    of.report("what was removed", v + 2);
    for (case, partition, volume) in [
        ("unknown", of.partition, UNKNOWN),
        ("no partition", NO_PARTITION, v),
        ("a clone", of.partition, v + 3),
    ] {
        of.ask(case, &VolumesCall::NukeVolume { partition, volume });
    }
}

fn dumps(of: &mut Of<'_>) {
    let v = of.first;
    let transaction = of.open("to dump it", v, transaction_flag::BUSY);
    for from_date in [0, -1, i32::MAX] {
        let case = format!("since {from_date}");
        of.ask(&case, &VolumesCall::Dump { transaction, from_date });
        for flags in [0, 1, 2] {
            let case = format!("{case}, flags {flags}");
            of.ask(&case, &VolumesCall::DumpV2 { transaction, from_date, flags });
        }
    }
    let size = of.asker.ask_as::<VolumesAnswer>(
        VOL,
        Caller::Stranger,
        "of all",
        &VolumesCall::GetSize { transaction, from_date: 0 }.to_request(),
    );
    assert!(size.is_none());
    of.do_it("of all", &VolumesCall::GetSize { transaction, from_date: 0 });
    let destination = Destination { host: of.asker.address.into(), port: 7005, service: 1 };
    let forward = VolumesCall::Forward {
        transaction,
        from_date: 0,
        destination,
        to_transaction: NO_TRANSACTION,
        cookie: cookie("x"),
    };
    of.ask("to no transaction", &forward);
    let replica = Replica { transaction: NO_TRANSACTION, destination };
    let forward = VolumesCall::ForwardMultiple {
        transaction,
        from_date: 0,
        destinations: XdrList::new(vec![replica]).unwrap(),
        spare: 0,
        cookie: cookie("x"),
    };
    of.ask("to no transaction", &forward);
    let restored = of.create("to restore into", "cmp.restored", 0, 0, v + 4);
    let forward = VolumesCall::Forward {
        transaction,
        from_date: 0,
        destination,
        to_transaction: restored,
        cookie: cookie("cmp.restored"),
    };
    of.do_it("to another volume", &forward);
    let replica = Replica { transaction: restored, destination };
    let forward = VolumesCall::ForwardMultiple {
        transaction,
        from_date: 0,
        destinations: XdrList::new(vec![replica]).unwrap(),
        spare: 0,
        cookie: cookie("cmp.restored"),
    };
    of.do_it("to another volume", &forward);
    let mut request =
        VolumesCall::Restore { transaction: restored, flags: 0, cookie: cookie("cmp.restored") }
            .to_request();
    request.extend(of.asker.bytes(VOL, &VolumesCall::Dump { transaction, from_date: 0 }));
    of.asker.ask::<VolumesAnswer>(VOL, "a dump", &request);
    of.end("it", transaction);
    let transaction = restored;
    for (case, body) in [("nothing", &b""[..]), ("no dump", b"this is none"), ("a part", MARK)] {
        let mut request =
            VolumesCall::Restore { transaction, flags: 0, cookie: cookie("cmp.restored") }
                .to_request();
        request.extend_from_slice(body);
        of.asker.ask::<VolumesAnswer>(VOL, case, &request);
    }
    of.ask("it", &VolumesCall::DeleteVolume { transaction });
    of.end("it", transaction);
    of.report("a volume that was made and removed", v + 4);
}

/// The mark of a dump and its version, and no more.
const MARK: &[u8] = &[1, 0xb3, 0xa1, 0x13, 0x22, 0, 0, 0, 1];

fn replicas(of: &mut Of<'_>) {
    let v = of.first;
    let made = of.create("a replica", "cmp.rep.readonly", volume_type::RO, v + 5, v + 6);
    of.report("a replica while it is made", v + 6);
    of.ask("a replica", &VolumesCall::SetFlags { transaction: made, flags: 0 });
    of.end("a replica", made);
    of.report("a replica", v + 6);
    for (case, partition, volume) in [
        ("a read-write volume", of.partition, v),
        ("unknown", of.partition, UNKNOWN),
        ("no partition", NO_PARTITION, v + 6),
        ("a replica", of.partition, v + 6),
    ] {
        of.ask(case, &VolumesCall::ConvertROtoRWvolume { partition, volume });
    }
    of.report("what it became", v + 5);
    for volume in [v + 5, v + 6] {
        of.do_it("what was made", &VolumesCall::NukeVolume { partition: of.partition, volume });
    }
}
