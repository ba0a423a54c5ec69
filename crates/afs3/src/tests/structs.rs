//! The shared structures.

use super::fixtures::*;
use crate::structs::*;
use crate::xdr::{FixedOpaque, Xdr};

pub(super) const VOLUME_STATUS: FetchVolumeStatus = FetchVolumeStatus {
    volume: 0x2000_0007,
    parent: 0x2000_0006,
    online: 1,
    in_service: 2,
    blessed: -3,
    needs_salvage: 4,
    kind: 5,
    min_quota: 6,
    max_quota: 7,
    blocks_in_use: 8,
    partition_blocks_available: 9,
    partition_blocks_max: 10,
};
/// The four characters have a word each.
pub(super) const VOLUME_STATUS_HEX: &str = "20000007 20000006 00000001 00000002 fffffffd 00000004 \
    00000005 00000006 00000007 00000008 00000009 0000000a";

pub(super) const STORE_VOLUME: StoreVolumeStatus =
    StoreVolumeStatus { mask: 2, min_quota: 3, max_quota: 5000 };

pub(super) const OLD_INFO: OldVolumeInfo = OldVolumeInfo {
    volume: 1,
    kind: 2,
    type0: 3,
    type1: 4,
    type2: 5,
    type3: 6,
    type4: USE_VLDB,
    server_count: 8,
    servers: [9, 10, 11, 12, 13, 14, 15, 16],
};

pub(super) fn old_info_hex() -> String {
    words(1, 6) + "abcd9999 " + &words(8, 16)
}

pub(super) const INFO: AfsVolumeInfo = AfsVolumeInfo {
    volume: 1,
    kind: 2,
    type0: 3,
    type1: 4,
    type2: 5,
    type3: 6,
    type4: 7,
    server_count: 8,
    servers: [9, 10, 11, 12, 13, 14, 15, 16],
    ports: [17, 18, 19, 20, 21, 22, 23, 0xfff0],
};

/// Ports are unsigned: no sign is extended.
pub(super) fn info_hex() -> String {
    words(1, 23) + "0000fff0"
}

pub(super) fn interfaces() -> InterfaceAddresses {
    InterfaceAddresses {
        count: 2,
        uuid: UUID,
        addresses: count(0x100),
        masks: count(0x200),
        mtus: count(0x300),
    }
}

pub(super) fn interfaces_hex() -> String {
    ["00000002 ", UUID_HEX, &words(0x100, 0x11f), &words(0x200, 0x21f), &words(0x300, 0x31f)]
        .concat()
}

pub(super) const LOCK: LockDescription = LockDescription {
    wait_states: 1,
    exclusive_locked: 2,
    readers_reading: 3,
    waiting: 4,
    spare: -5,
    last_reader_pid: 6,
    writer_pid: 7,
    source_indicator: 8,
};
pub(super) const LOCK_HEX: &str =
    "00000001 00000002 00000003 00000004 fffffffb 00000006 00000007 00000008";

pub(super) fn cache_lock() -> CacheLock {
    CacheLock { name: chars("afs_xvcache"), lock: LOCK }
}

/// The name has 16 words.
pub(super) fn cache_lock_hex() -> String {
    char_words("afs_xvcache", 16) + LOCK_HEX
}

pub(super) fn cache_entry() -> CacheEntry {
    CacheEntry {
        address: 0x21,
        cell: 0x22,
        fid: FID,
        length: 0x23,
        data_version: 0x24,
        lock: LOCK,
        callback: 0x25,
        callback_expires: 0x26,
        references: 0x27,
        opens: 0x28,
        writers: 0x29,
        mount_state: 0x2a,
        states: 0x2b,
    }
}

pub(super) fn cache_entry_hex() -> String {
    [&words(0x21, 0x22), FID_HEX, &words(0x23, 0x24), LOCK_HEX, &words(0x25, 0x2b)].concat()
}

pub(super) fn cache_entry64() -> CacheEntry64 {
    CacheEntry64 {
        address: 0x21,
        cell: 0x22,
        fid: FID,
        length: 0x23_0000_0024,
        data_version: 0x25,
        lock: LOCK,
        callback: 0x26,
        callback_expires: 0x27,
        references: 0x28,
        opens: 0x29,
        writers: 0x2a,
        mount_state: 0x2b,
        states: 0x2c,
    }
}

pub(super) fn cache_entry64_hex() -> String {
    [&words(0x21, 0x22), FID_HEX, &words(0x23, 0x25), LOCK_HEX, &words(0x26, 0x2c)].concat()
}

pub(super) fn inputs() -> FsCommandInputs {
    FsCommandInputs {
        command: 7,
        fid: FID,
        longs: [0x1_0000_0002, 0x3_0000_0004, -1],
        words: count(0x1000),
        text: chars("hello"),
    }
}

pub(super) fn inputs_hex() -> String {
    let longs = words(1, 4) + "ffffffff ffffffff ";
    ["00000007 ", FID_HEX, &longs, &words(0x1000, 0x10c7), &char_words("hello", 256)].concat()
}

pub(super) fn outputs() -> FsCommandOutputs {
    FsCommandOutputs {
        code: -1,
        status: status(),
        longs: [1, 2, 3],
        words: count(0x2000),
        text: chars("bye"),
    }
}

pub(super) fn outputs_hex() -> String {
    let longs = "00000000 00000001 00000000 00000002 00000000 00000003 ";
    let tail = words(0x2000, 0x20c7) + &char_words("bye", 256);
    ["ffffffff ", &status_hex(1), longs, &tail].concat()
}

fn disk(no: u8) -> ViceDisk {
    let number = i32::from(no) * 0x1000;
    let mut name = [0; 32];
    name[..7].copy_from_slice(b"/vicepa");
    name[31] = no;
    ViceDisk { blocks_available: number + 1, total_blocks: number + 2, name: FixedOpaque(name) }
}

/// The names have 32 bytes, packed.
fn disk_hex(no: u32) -> String {
    let name = "2f766963 65706100 00000000 00000000 00000000 00000000 00000000";
    format!("{} {name} {no:08x} ", words(no * 0x1000 + 1, no * 0x1000 + 2))
}

pub(super) fn statistics() -> ViceStatistics {
    ViceStatistics {
        current_message_number: 1,
        oldest_message_number: 2,
        current_time: 3,
        boot_time: 4,
        start_time: 5,
        current_connections: 6,
        total_vice_calls: 7,
        total_fetches: 8,
        fetch_datas: 9,
        fetched_bytes: 10,
        fetch_data_rate: 11,
        total_stores: 12,
        store_datas: 13,
        stored_bytes: 14,
        store_data_rate: 15,
        rpc_bytes_sent: 16,
        rpc_bytes_received: 17,
        rpc_packets_sent: 18,
        rpc_packets_received: 19,
        rpc_packets_lost: 20,
        rpc_bogus_packets: 21,
        system_cpu: 22,
        user_cpu: 23,
        nice_cpu: 24,
        idle_cpu: 25,
        total_io: 26,
        active_vm: 27,
        total_vm: 28,
        ethernet_errors: 29,
        ethernet_writes: 30,
        ethernet_interrupts: 31,
        ethernet_good_reads: 32,
        ethernet_bytes_written: 33,
        ethernet_bytes_read: 34,
        process_size: 35,
        workstations: 36,
        active_workstations: 37,
        spares: [38, 39, 40, 41, 42, 43, 44, 45],
        disk1: disk(1),
        disk2: disk(2),
        disk3: disk(3),
        disk4: disk(4),
        disk5: disk(5),
        disk6: disk(6),
        disk7: disk(7),
        disk8: disk(8),
        disk9: disk(9),
        disk10: disk(10),
    }
}

pub(super) fn statistics_hex() -> String {
    words(1, 45) + &(1..=10).map(disk_hex).collect::<String>()
}

#[test]
fn structures_have_their_bytes() {
    check_value(&FID, FID_HEX);
    check_value(&CALLBACK, CALLBACK_HEX);
    check_value(&SYNC, SYNC_HEX);
    check_value(&VolSync { created: 1, spares: [2, 3, 4, 5, 6] }, &words(1, 6));
    check_value(&status(), &status_hex(1));
    check_value(&STORE, STORE_HEX);
    check_value(&UUID, UUID_HEX);
    check_value(&VOLUME_STATUS, VOLUME_STATUS_HEX);
    check_value(&STORE_VOLUME, "00000002 00000003 00001388");
    check_value(&OLD_INFO, &old_info_hex());
    check_value(&INFO, &info_hex());
    check_value(&interfaces(), &interfaces_hex());
    check_value(&LOCK, LOCK_HEX);
    check_value(&cache_lock(), &cache_lock_hex());
    check_value(&cache_entry(), &cache_entry_hex());
    check_value(&cache_entry64(), &cache_entry64_hex());
    check_value(&inputs(), &inputs_hex());
    check_value(&outputs(), &outputs_hex());
    check_value(&statistics(), &statistics_hex());
}

/// The numbers are those of OpenAFS's definitions.
#[test]
fn structures_have_their_sizes() {
    assert_eq!(AfsFid::LEAST_BYTES, 12);
    assert_eq!(CallBack::LEAST_BYTES, 12);
    assert_eq!(VolSync::LEAST_BYTES, 24);
    assert_eq!(FetchStatus::LEAST_BYTES, 84);
    assert_eq!(StoreStatus::LEAST_BYTES, 24);
    assert_eq!(FetchVolumeStatus::LEAST_BYTES, 48);
    assert_eq!(OldVolumeInfo::LEAST_BYTES, 64);
    assert_eq!(AfsVolumeInfo::LEAST_BYTES, 64 + 32);
    assert_eq!(InterfaceAddresses::LEAST_BYTES, 432);
    assert_eq!(AfsUuid::LEAST_BYTES, 44);
    assert_eq!(FsCommandInputs::LEAST_BYTES, 4 + 12 + 24 + 800 + 1024);
    assert_eq!(ViceStatistics::LEAST_BYTES, 45 * 4 + 10 * 40);
}

#[test]
fn sizes_and_versions_of_64_bits_are_in_two_words() {
    let mut status = FetchStatus::default();
    status.set_length(0x0102_0304_0506_0708);
    status.set_data_version(0x1112_1314_1516_1718);
    assert_eq!((status.length_high, status.length_low), (0x0102_0304, 0x0506_0708));
    assert_eq!((status.data_version_high, status.data_version_low), (0x1112_1314, 0x1516_1718));
    assert_eq!(status.length(), 0x0102_0304_0506_0708);
    assert_eq!(status.data_version(), 0x1112_1314_1516_1718);
}

#[test]
fn the_high_bits_of_a_uuids_bytes_do_not_count() {
    let plain = UUID_HEX.replace("ffffff", "000000");
    assert_eq!(AfsUuid::from_xdr(&unhex(&plain)), Ok(UUID));
    assert_eq!(UUID.to_string(), "80112233-8455-8677-8819-aa1bcc1dee7f");
    assert_eq!(format!("{UUID:?}"), "80112233-8455-8677-8819-aa1bcc1dee7f");
}
