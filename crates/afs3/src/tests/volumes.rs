//! AFSVol.

use super::fixtures::*;
use crate::volumes::*;
use crate::xdr::Xdr;

const STATUS: VolserStatus = VolserStatus {
    volume: 1,
    next_unique: 2,
    kind: 3,
    parent: 4,
    clone: 5,
    backup: 6,
    restored_from: 7,
    max_quota: 8,
    min_quota: 9,
    owner: 10,
    created: 11,
    accessed: 12,
    updated: 13,
    expires: 14,
    backed_up: 15,
    copied: 16,
};

const TO: Destination = Destination { host: 0x0a00_0001, port: 7005, service: 1 };
const TO_HEX: &str = "0a000001 00001b5d 00000001";

fn cookie() -> RestoreCookie {
    RestoreCookie { name: chars("vol"), kind: 1, clone: 2, parent: 3 }
}

fn cookie_hex() -> String {
    char_words("vol", 32) + &words(1, 3)
}

fn report() -> VolumeReport {
    VolumeReport {
        name: chars("vol"),
        volume: 1,
        kind: 2,
        backup: 3,
        parent: 4,
        clone: 5,
        status: 6,
        copied: 7,
        in_use: 8,
        needs_salvaged: 9,
        destroy_me: 0xd3,
        created: 11,
        accessed: 12,
        updated: 13,
        backed_up: 14,
        day_use: 15,
        files: 16,
        max_quota: 17,
        size: 18,
        flags: 19,
        spare0: 20,
        spare1: 21,
        spare2: 22,
        spare3: 23,
    }
}

/// `unsigned char`: 0xd3 has no sign.
fn report_hex() -> String {
    [&char_words("vol", 32), &words(1, 9), "000000d3 ", &words(11, 23)].concat()
}

fn report_x() -> VolumeReportX {
    VolumeReportX {
        name: chars("vol"),
        volume: 1,
        kind: 2,
        backup: 3,
        parent: 4,
        clone: 5,
        status: 6,
        copied: 7,
        in_use: 8,
        created: 9,
        accessed: 10,
        updated: 11,
        backed_up: 12,
        day_use: 13,
        files: 14,
        max_quota: 15,
        size: 16,
        reads: count(0x20),
        writes: count(0x30),
        file_same_author: count(0x40),
        file_other_author: count(0x50),
        dir_same_author: count(0x60),
        dir_other_author: count(0x70),
    }
}

fn report_x_hex() -> String {
    let pairs = words(0x20, 0x23) + &words(0x30, 0x33) + &words(0x40, 0x45) + &words(0x50, 0x55);
    let dirs = words(0x60, 0x65) + &words(0x70, 0x75);
    [char_words("vol", 32), words(1, 16), pairs, dirs].concat()
}

fn transaction() -> TransactionInfo {
    TransactionInfo {
        transaction: 1,
        used: 2,
        created: 3,
        code: 4,
        volume: 5,
        partition: 6,
        attach_flags: 7,
        volume_flags: 8,
        flags: 9,
        last_procedure: chars("Clone"),
        call_valid: 10,
        read_next: 11,
        transmit_next: 12,
        last_sent: 13,
        last_received: 14,
    }
}

fn transaction_hex() -> String {
    [words(1, 9), char_words("Clone", 30), words(10, 14)].concat()
}

fn disk() -> DiskPartition {
    DiskPartition {
        name: chars("/vicepa"),
        device: chars("/dev/sda"),
        lock_fd: 1,
        total_usable: 2,
        free: 3,
        min_free: 4,
    }
}

fn disk64() -> DiskPartition64 {
    DiskPartition64 {
        name: chars("/vicepa"),
        device: chars("/dev/sda"),
        lock_fd: 1,
        total_usable: 0x2_0000_0003,
        free: 0x4_0000_0005,
        min_free: 0x6_0000_0007,
    }
}

#[test]
fn calls_about_volumes_have_their_bytes() {
    let disk_hex = || [char_words("/vicepa", 32), char_words("/dev/sda", 32), words(1, 4)].concat();
    let disk64_hex =
        || [char_words("/vicepa", 256), char_words("/dev/sda", 256), words(1, 7)].concat();
    golden! { VolumesCall VolumesAnswer
        100 CreateVolume { partition: 1, name: text("ab"), kind: 2, parent: 3, volume: 4 }
            = ["00000001", AB, words(2, 4)]
            -> { volume: 5, transaction: 6 } = ["00000005 00000006"];
        101 DeleteVolume { transaction: 1 } = ["00000001"] -> {} = [];
        102 Restore { transaction: 1, flags: 2, cookie: cookie() }
            = ["00000001 00000002", cookie_hex()] -> {} = [];
        103 Forward {
                transaction: 1, from_date: 2, destination: TO, to_transaction: 3, cookie: cookie()
            } = ["00000001 00000002", TO_HEX, "00000003", cookie_hex()] -> {} = [];
        104 EndTrans { transaction: 1 } = ["00000001"] -> { code: 2 } = ["00000002"];
        105 Clone { transaction: 1, purge: 2, kind: 3, name: text("ab"), volume: 4 }
            = [words(1, 3), AB, "00000004"] -> { volume: 5 } = ["00000005"];
        106 SetFlags { transaction: 1, flags: 2 } = ["00000001 00000002"] -> {} = [];
        107 GetFlags { transaction: 1 } = ["00000001"] -> { flags: 2 } = ["00000002"];
        108 TransCreate { volume: 0x2000_0007, partition: 1, flags: 2 }
            = ["20000007 00000001 00000002"] -> { transaction: 3 } = ["00000003"];
        109 Dump { transaction: 1, from_date: 2 } = ["00000001 00000002"] -> {} = [];
        110 GetNthVolume { index: 1 } = ["00000001"]
            -> { volume: 2, partition: 3 } = ["00000002 00000003"];
        111 SetForwarding { transaction: 1, site: 2 } = ["00000001 00000002"] -> {} = [];
        112 GetName { transaction: 1 } = ["00000001"] -> { name: text("ab") } = [AB];
        113 GetStatus { transaction: 1 } = ["00000001"] -> { status: STATUS } = [words(1, 16)];
        114 SignalRestore { name: text("ab"), kind: 1, parent: 2, clone: 3 } = [AB, words(1, 3)]
            -> {} = [];
        115 ListPartitions {} = [] -> { partitions: count(1) } = [words(1, 26)];
        116 ListVolumes { partition: 1, flags: 2 } = ["00000001 00000002"]
            -> { volumes: list([report()]) } = ["00000001", report_hex()];
        117 SetIdsTypes {
                transaction: 1, name: text("ab"), kind: 2, parent: 3, clone: 4, backup: 5
            } = ["00000001", AB, words(2, 5)] -> {} = [];
        118 Monitor {} = []
            -> { transactions: list([transaction()]) } = ["00000001", transaction_hex()];
        119 PartitionInfo { partition: text("ab") } = [AB] -> { info: disk() } = [disk_hex()];
        120 ReClone { transaction: 1, clone: 2 } = ["00000001 00000002"] -> {} = [];
        121 ListOneVolume { partition: 1, volume: 2 } = ["00000001 00000002"]
            -> { volumes: list([report()]) } = ["00000001", report_hex()];
        122 NukeVolume { partition: 1, volume: 2 } = ["00000001 00000002"] -> {} = [];
        123 SetDate { transaction: 1, created: 2 } = ["00000001 00000002"] -> {} = [];
        124 XListVolumes { partition: 1, flags: 2 } = ["00000001 00000002"]
            -> { volumes: list([report_x()]) } = ["00000001", report_x_hex()];
        125 XListOneVolume { partition: 1, volume: 2 } = ["00000001 00000002"]
            -> { volumes: list([report_x()]) } = ["00000001", report_x_hex()];
        126 SetInfo { transaction: 1, info: Box::new(report()) } = ["00000001", report_hex()]
            -> {} = [];
        127 XListPartitions {} = []
            -> { partitions: list([0, 25]) } = ["00000002 00000000 00000019"];
        128 ForwardMultiple {
                transaction: 1, from_date: 2,
                destinations: list([Replica { transaction: 3, destination: TO }]), spare: 4,
                cookie: cookie()
            } = ["00000001 00000002 00000001 00000003", TO_HEX, "00000004", cookie_hex()]
            -> { results: list([0, -1]) } = ["00000002 00000000 ffffffff"];
        65536 ConvertROtoRWvolume { partition: 1, volume: 2 } = ["00000001 00000002"] -> {} = [];
        65537 GetSize { transaction: 1, from_date: 2 } = ["00000001 00000002"]
            -> { bytes: 0x1_0000_0002 } = ["00000001 00000002"];
        65538 DumpV2 { transaction: 1, from_date: 2, flags: 3 } = [words(1, 3)] -> {} = [];
        65539 PartitionInfo64 { partition: text("ab") } = [AB]
            -> { info: Box::new(disk64()) } = [disk64_hex()];
    }
    assert_eq!(streams::<VolumesCall>(), (vec!["Restore"], vec!["Dump", "DumpV2"]));
}

#[test]
fn structures_of_volumes_have_their_sizes() {
    assert_eq!(VolserStatus::LEAST_BYTES, 16 * 4);
    assert_eq!(RestoreCookie::LEAST_BYTES, 35 * 4);
    assert_eq!(VolumeReport::LEAST_BYTES, 55 * 4);
    assert_eq!(VolumeReportX::LEAST_BYTES, 80 * 4);
    assert_eq!(TransactionInfo::LEAST_BYTES, 44 * 4);
    assert_eq!(DiskPartition::LEAST_BYTES, 68 * 4);
    assert_eq!(DiskPartition64::LEAST_BYTES, 513 * 4 + 24);
}
