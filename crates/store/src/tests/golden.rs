//! The bytes of every record, so that old partitions stay readable. A change here requires a new
//! version byte.

use bytes::Bytes;
use types::{
    ClientId, DataVersion, Fid, Kind, Name, SessionId, Status, StatusVersion, Timestamp,
    Uniquifier, VnodeNo, VolumeId, VolumeKind,
};

use crate::format::header::{Base, ForkOrigin, HeadState, SealedEpoch, TreeHeader, ViewHeader};
use crate::format::record::{self, BucketEntry};
use crate::{BodyLocation, EntryTarget, SessionRecord, StoredReply, Usage, Vnode, VolumeQuota};

const KEY: &[u8] = b"key";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every truncated form of a value is damaged, not misread.
fn no_part_of(value: &[u8], decodes: impl Fn(&[u8]) -> bool) {
    assert!(decodes(value));
    for length in 0..value.len() {
        assert!(!decodes(&value[..length]), "{length} bytes of {}", hex(value));
    }
}

fn vnode() -> Vnode {
    let time = |secs| Timestamp::new(secs, 0x0102_0304);
    let status = Status {
        fid: Fid::new(1, 2, 0x33),
        kind: Kind::File,
        mode: 0o4755,
        by_list: false,
        read_times: false,
        own_list: false,
        uid: 0x1001,
        gid: 0x1002,
        links: 3,
        size: 0x4_0000_0000,
        used: 0x8000,
        device: 0,
        accessed: time(-1),
        modified: time(2),
        changed: time(3),
        created: time(4),
        data_version: DataVersion(5),
        status_version: StatusVersion(6),
    };
    Vnode {
        status,
        exclusive: 0xabcd,
        parent: VnodeNo(7),
        entries: 0,
        place: BodyLocation::File { epoch: 1, generation: 9, packed: false },
        generations: 9,
        own_since: 0,
        has_xattr: true,
        handed: false,
    }
}

#[test]
fn vnodes() {
    let value = record::encode_vnode(KEY, &vnode());
    let golden = concat!(
        "01",
        "3300000000000000",
        "01",
        "01",
        "ed09",
        "01100000",
        "02100000",
        "03000000",
        "0000000004000000",
        "0080000000000000",
        "0000000000000000",
        "ffffffffffffffff04030201",
        "020000000000000004030201",
        "030000000000000004030201",
        "040000000000000004030201",
        "0500000000000000",
        "0600000000000000",
        "cdab000000000000",
        "0700000000000000",
        "0000000000000000",
        "09000000",
        "02",
        "0100000000000000",
        "09000000",
        "SUM"
    );
    check(golden, &value);
    let decode = |value: &[u8]| record::decode_vnode(KEY, VolumeId(1), VnodeNo(2), value);
    assert_eq!(decode(&value).unwrap().unwrap(), vnode());
    assert_eq!(decode(&record::tombstone(KEY)).unwrap(), None);
    no_part_of(&value, |value| decode(value).is_ok());
    for place in [BodyLocation::None, BodyLocation::Inline, BodyLocation::Origin] {
        let vnode = Vnode { place, has_xattr: false, ..vnode() };
        assert_eq!(decode(&record::encode_vnode(KEY, &vnode)).unwrap().unwrap(), vnode);
    }
    let own = Vnode { own_since: u64::MAX, ..vnode() };
    let value = record::encode_vnode(KEY, &own);
    assert_eq!(value[10], 5);
    assert_eq!(decode(&value).unwrap().unwrap(), own, "since the record's epoch");
    check("01SUM", &record::tombstone(KEY));
    assert!(record::is_tombstone(&record::tombstone(KEY)));
}

fn bucket() -> [BucketEntry; 2] {
    let entry = |index, name: &[u8], vnode, kind| BucketEntry {
        index,
        name: Name::new(name).unwrap(),
        target: EntryTarget { vnode: VnodeNo(vnode), unique: Uniquifier(5), kind },
    };
    [entry(0, b"a", 2, Kind::File), entry(3, b"\xff\n", 3, Kind::Directory)]
}

#[test]
fn entries() {
    let bucket = bucket();
    let value = record::encode_bucket(KEY, &bucket);
    check(
        "01000102000000000000000500000000000000016103020300000000000000050000000000000002ff0aSUM",
        &value,
    );
    assert_eq!(record::decode_bucket(KEY, &value).unwrap(), bucket);
    no_part_of(&value, |value| record::decode_bucket(KEY, value).is_ok());
    let unsorted = record::encode_bucket(KEY, &[bucket[1].clone(), bucket[0].clone()]);
    assert!(record::decode_bucket(KEY, &unsorted).is_err());
}

#[test]
fn sums_and_bytes() {
    let mut sums = [0; 64];
    sums[0] = 0x0403_0201;
    sums[63] = 0xffff_ffff;
    let value = record::encode_sums(KEY, &sums);
    check(&format!("0101020304{}ffffffffSUM", "00".repeat(62 * 4)), &value);
    assert_eq!(record::decode_sums(KEY, &value).unwrap(), sums);
    no_part_of(&value, |value| record::decode_sums(KEY, value).is_ok());
    assert_eq!(record::decode_sums(KEY, &record::tombstone(KEY)).unwrap(), [0; 64]);
    let value = record::encode_bytes(KEY, b"body");
    check("0101626f6479SUM", &value);
    let decode = |value: &[u8]| record::decode_bytes("bytes", KEY, value.to_vec());
    assert_eq!(decode(&value).unwrap().unwrap(), &b"body"[..]);
    no_part_of(&value, |value| decode(value).is_ok());
    assert_eq!(decode(&record::encode_bytes(KEY, b"")).unwrap().unwrap(), Bytes::new());
    assert_eq!(decode(&record::tombstone(KEY)).unwrap(), None);
}

fn header() -> TreeHeader {
    TreeHeader {
        name: Name::new(b"root").unwrap(),
        hash_key: 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100,
        created: Timestamp::new(1, 2),
        updated: Timestamp::new(3, 4),
        quota: VolumeQuota { bytes: 3, files: 4 },
        offline: true,
        head: HeadState::Unowned,
        arriving: false,
        has_standbys: false,
        next_slot: 5,
        epoch: 9,
        sealed: vec![SealedEpoch { epoch: 1, volumes: 1 }, SealedEpoch { epoch: 8, volumes: 3 }],
        base: None,
        origin: None,
    }
}

#[test]
fn trees() {
    let header = header();
    let value = header.encode(KEY);
    let golden = concat!(
        "02",
        "04726f6f74",
        "000102030405060708090a0b0c0d0e0f",
        "010000000000000002000000",
        "030000000000000004000000",
        "0300000000000000",
        "0400000000000000",
        "03",
        "0500000000000000",
        "0900000000000000",
        "02000000",
        "0100000000000000",
        "01000000",
        "0800000000000000",
        "03000000",
        "SUM"
    );
    check(golden, &value);
    assert_eq!(TreeHeader::decode(KEY, &value).unwrap(), header);
    no_part_of(&value, |value| TreeHeader::decode(KEY, value).is_ok());
    for wrong in [SealedEpoch { epoch: 9, volumes: 1 }, SealedEpoch { epoch: 8, volumes: 0 }] {
        let wrong = TreeHeader { sealed: vec![wrong], ..header.clone() }.encode(KEY);
        assert!(TreeHeader::decode(KEY, &wrong).is_err());
    }
}

#[test]
fn trees_with_an_origin() {
    let origin = Some(ForkOrigin { tree: VolumeId(7), epoch: 8 });
    let header = TreeHeader { origin, ..header() };
    let value = header.encode(KEY);
    assert_eq!(value[0], 4);
    let behind = concat!("0700000000000000", "0800000000000000", "00");
    assert_eq!(hex(&value[value.len() - 4 - 17..value.len() - 4]), behind);
    assert_eq!(TreeHeader::decode(KEY, &value).unwrap(), header);
    no_part_of(&value, |value| TreeHeader::decode(KEY, value).is_ok());
    let based = TreeHeader { base: Some(Base { tree: VolumeId(9), epoch: 5, shift: 6 }), ..header };
    let value = based.encode(KEY);
    let behind = concat!(
        "0800000000000000",
        "02",
        "0500000000000000",
        "0600000000000000",
        "0900000000000000"
    );
    assert_eq!(hex(&value[value.len() - 4 - 33..value.len() - 4]), behind);
    assert_eq!(TreeHeader::decode(KEY, &value).unwrap(), based);
}

/// The first layout of a header, under any key.
pub(crate) fn first_header(key: &[u8]) -> Vec<u8> {
    let fields = concat!(
        "01",
        "04726f6f74",
        "000102030405060708090a0b0c0d0e0f",
        "010000000000000002000000",
        "0300000000000000",
        "0400000000000000",
        "0500000000000000",
        "0100000000000000",
        "00000000",
    );
    let mut value: Vec<u8> = (0..fields.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&fields[at..at + 2], 16).unwrap())
        .collect();
    value.extend_from_slice(&crc32c::crc32c(&[key, &value].concat()).to_le_bytes());
    value
}

#[test]
fn trees_of_the_first_format() {
    let value = first_header(KEY);
    let expected = TreeHeader {
        updated: Timestamp::new(1, 2),
        offline: false,
        head: HeadState::Serving,
        arriving: false,
        has_standbys: false,
        epoch: 1,
        sealed: Vec::new(),
        ..header()
    };
    assert_eq!(TreeHeader::decode(KEY, &value).unwrap(), expected);
    no_part_of(&value, |value| TreeHeader::decode(KEY, value).is_ok());
}

fn view() -> ViewHeader {
    ViewHeader {
        kind: VolumeKind::Backup,
        name: Name::new(b"root.backup").unwrap(),
        tree: VolumeId(7),
        epoch: 8,
        created: Timestamp::new(1, 2),
        updated: Timestamp::new(3, 4),
        usage: Usage { bytes: 5, files: 6 },
        offline: true,
        orphans: Vec::new(),
    }
}

#[test]
fn views() {
    let value = view().encode(KEY);
    let golden = concat!(
        "01",
        "03",
        "0b726f6f742e6261636b7570",
        "0700000000000000",
        "0800000000000000",
        "010000000000000002000000",
        "030000000000000004000000",
        "0500000000000000",
        "0600000000000000",
        "01",
        "SUM"
    );
    check(golden, &value);
    assert_eq!(ViewHeader::decode(KEY, &value).unwrap(), view());
    no_part_of(&value, |value| ViewHeader::decode(KEY, value).is_ok());
    let open = ViewHeader { orphans: vec![VnodeNo(0x0102)], ..view() };
    let value = open.encode(KEY);
    assert_eq!(
        (value[0], hex(&value[value.len() - 4 - 13..value.len() - 4])),
        (2, "01010000000201000000000000".into())
    );
    assert_eq!(ViewHeader::decode(KEY, &value).unwrap(), open);
    no_part_of(&value, |value| ViewHeader::decode(KEY, value).is_ok());
    let head = ViewHeader { kind: VolumeKind::ReadWrite, ..view() }.encode(KEY);
    assert!(ViewHeader::decode(KEY, &head).is_err());
}

fn session_record(session: SessionId) -> SessionRecord {
    SessionRecord {
        session,
        client: ClientId(0x10 << 120 | 1),
        incarnation: 2,
        extra: Bytes::from("x"),
    }
}

#[test]
fn sessions_replies_and_numbers() {
    let session = SessionId(4);
    let stored = session_record(session);
    let value = record::encode_session(KEY, &stored);
    check("0101000000000000000000000000000010020000000000000078SUM", &value);
    assert_eq!(record::decode_session(KEY, session, &value).unwrap(), stored);
    let reply = StoredReply { slot: 3, request: 7, reply: Bytes::from("done") };
    let value = record::encode_reply(KEY, 7, b"done");
    check("010700000000000000646f6e65SUM", &value);
    assert_eq!(record::decode_reply(KEY, 3, &value).unwrap(), reply);
    let value = record::encode_numbers(KEY, &[1, 0x0203]);
    check("0101000000000000000302000000000000SUM", &value);
    assert_eq!(record::decode_numbers(KEY, &value).unwrap(), [1, 0x0203]);
    assert!(record::decode_numbers::<1>(KEY, &value).is_err());
    let usage = [5_i64.to_le_bytes(), (-6_i64).to_le_bytes()].concat();
    assert_eq!(record::decode_usage(KEY, &usage).unwrap(), [5, -6]);
    assert!(record::decode_usage(KEY, &usage[1..]).is_err());
}

#[test]
fn the_sum_covers_the_key() {
    // crc32c of "key", version and "!": computed with another program.
    let value = record::encode_bytes(KEY, b"!");
    assert_eq!(hex(&value), "01012117d81ea6");
    assert!(record::is_sealed(KEY, &value) && !record::is_sealed(b"kez", &value));
}

/// Values under [`KEY`] with the fuzz target's number of their kind.
pub(crate) fn values() -> Vec<(u8, Vec<u8>)> {
    let inline = Vnode { place: BodyLocation::Inline, has_xattr: false, ..vnode() };
    vec![
        (0, record::encode_vnode(KEY, &vnode())),
        (0, record::encode_vnode(KEY, &inline)),
        (0, record::tombstone(KEY)),
        (1, record::encode_bucket(KEY, &bucket())),
        (2, record::encode_sums(KEY, &[0x0403_0201; 64])),
        (2, record::tombstone(KEY)),
        (3, record::encode_bytes(KEY, b"body")),
        (4, header().encode(KEY)),
        (4, first_header(KEY)),
        (5, record::encode_numbers(KEY, &[1, 0x0203])),
        (6, record::encode_session(KEY, &session_record(SessionId(1)))),
        (7, record::encode_reply(KEY, 7, b"done")),
        (8, [5_i64.to_le_bytes(), (-6_i64).to_le_bytes()].concat()),
        (9, view().encode(KEY)),
    ]
}

/// Compares; `SUM` stands for the crc32c of the key and all preceding bytes.
fn check(golden: &str, value: &[u8]) {
    let fields = golden.strip_suffix("SUM").unwrap();
    let (found, sum) = value.split_at(value.len() - 4);
    assert_eq!(hex(found), fields);
    assert_eq!(sum, crc32c::crc32c(&[KEY, found].concat()).to_le_bytes());
}
