//! The version of a partition's format (`docs/spec/versions.md`).

use std::path::Path;

use store::{
    FORMAT_OLDEST, FORMAT_VERSION, NewClone, NewRoot, OpenOptions, Partition, PartitionConfig,
    StoreError, VolumeQuota, check_format,
};
use types::{Name, Timestamp, VolumeId, VolumeKind};

fn options() -> OpenOptions {
    OpenOptions { cache_bytes: 8 << 20, seed: Some(7), ..OpenOptions::default() }
}

fn made(path: &Path, version: u32) -> Partition {
    let config = PartitionConfig { server: "test".to_owned() };
    Partition::create_as(path, &config, version, options()).unwrap()
}

/// Begins the feed of a volume, with a base of this number.
fn feed(partition: &Partition, of: VolumeId, number: u64) -> Result<(), StoreError> {
    let new = NewClone {
        id: Some(VolumeId(number)),
        name: Name::new(format!("base-{number}").as_bytes()).unwrap(),
        kind: VolumeKind::Snapshot,
        now: Timestamp::new(1, 0),
        replaces: None,
    };
    partition.feeds().begin(of, &new).map(drop)
}

#[test]
fn ve6_standbys_are_only_on_partitions_of_their_format() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let partition = made(&path, FORMAT_OLDEST);
    let root = NewRoot {
        mode: 0o755,
        uid: 0,
        gid: 0,
        now: Timestamp::new(1, 0),
        quota: VolumeQuota::default(),
    };
    let volume = partition.volumes().create_volume(&Name::new(b"v").unwrap(), &root).unwrap().id();
    let old = |result: Result<(), StoreError>| {
        let error = result.unwrap_err();
        assert!(matches!(error, StoreError::OldFormat { found: 2, needed: 3 }), "{error:?}");
        assert!(error.to_string().contains("upgradepartition"), "{error}");
    };
    old(feed(&partition, volume, 100));
    old(partition.standbys().add(VolumeId(50)));
    assert!(partition.standbys().list().unwrap().is_empty());
    assert!(!partition.volumes().volume(volume).unwrap().unwrap().info().has_standbys);
    assert!(!partition.has_standbys_format());
    drop(partition);
    // It is opened as it is.
    let partition = Partition::open(&path, options()).unwrap();
    assert_eq!((partition.format(), check_format(&path).unwrap().version), (2, 2));
    assert!(partition.raise_format(FORMAT_VERSION + 1).is_err());
    partition.raise_format(FORMAT_VERSION).unwrap();
    assert_eq!(check_format(&path).unwrap().version, FORMAT_VERSION, "before any record");
    feed(&partition, volume, 100).unwrap();
    partition.standbys().add(VolumeId(50)).unwrap();
    // A lower one changes nothing.
    partition.raise_format(FORMAT_OLDEST).unwrap();
    drop(partition);
    let partition = Partition::open(&path, options()).unwrap();
    assert_eq!(partition.format(), FORMAT_VERSION);
    assert_eq!(partition.standbys().list().unwrap().len(), 1);
}

/// A program between the formats wrote them on a partition of the older one.
#[test]
fn ve6_standbys_on_an_older_partition_can_be_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let partition = made(&path, FORMAT_VERSION);
    let id = partition.id();
    partition.standbys().add(VolumeId(50)).unwrap();
    drop(partition);
    let newest = std::fs::read_to_string(path.join("FORMAT")).unwrap();
    let lines: Vec<&str> = newest.lines().collect();
    let older = format!("{}\nversion {FORMAT_OLDEST}\nid {id:032x}\n", lines[0]);
    let sum = crc32c::crc32c(older.as_bytes());
    std::fs::write(path.join("FORMAT"), format!("{older}crc32c {sum:08x}\n")).unwrap();
    let partition = Partition::open(&path, options()).unwrap();
    assert_eq!(partition.format(), FORMAT_OLDEST);
    partition.standbys().add(VolumeId(50)).unwrap();
    partition.standbys().remove(VolumeId(50)).unwrap();
    assert!(matches!(
        partition.standbys().add(VolumeId(50)),
        Err(StoreError::OldFormat { found: FORMAT_OLDEST, .. })
    ));
}
