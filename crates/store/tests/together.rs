//! Readers beside writers, on disk: a reader sees a write whole or not at all, and never damage.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use store::{NewRoot, OpenOptions, Partition, PartitionConfig, Update, Vnode, VolumeQuota};
use types::{DataVersion, Fid, Kind, Name, Timestamp, VnodeNo};

#[test]
fn readers_never_see_half_a_write() {
    let dir = tempfile::tempdir().unwrap();
    let options =
        OpenOptions { cache_bytes: 4 << 20, open_bodies_max: 4, ..OpenOptions::default() };
    let partition =
        Partition::create(&dir.path().join("p"), &PartitionConfig::default(), options).unwrap();
    let root = NewRoot {
        mode: 0o755,
        uid: 0,
        gid: 0,
        now: Timestamp::default(),
        quota: VolumeQuota::default(),
    };
    let volume = partition.volumes().create_volume(&Name::new(b"root").unwrap(), &root).unwrap();
    let files: Vec<VnodeNo> = (0..4)
        .map(|_| {
            let (no, unique) = volume.slots().unwrap().allocate(false).unwrap();
            let fid = Fid { volume: volume.id(), vnode: no, unique };
            let vnode =
                Vnode::new(fid, Kind::File, 0o644, 0, 0, VnodeNo::ROOT, Timestamp::default());
            let mut update = Update::new();
            update.create_vnode(&vnode);
            volume.commit(update).unwrap();
            no
        })
        .collect();
    let stop = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        // One writer per file: the caller serialises writers.
        for (number, no) in files.iter().enumerate() {
            let (volume, partition, stop) = (&volume, &partition, &stop);
            scope.spawn(move || {
                for round in 1_u64.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut vnode = volume.vnode(*no).unwrap().unwrap();
                    let mut update = Update::new();
                    // From inline to file and back; each state is one byte throughout.
                    let length = [300, 20_000, 70_000, 9_000][round as usize % 4];
                    if round % 5 == 0 {
                        volume.body(&mut vnode, &mut update).unwrap().truncate(0).unwrap();
                    } else {
                        volume.body(&mut vnode, &mut update).unwrap().truncate(length).unwrap();
                        volume
                            .body(&mut vnode, &mut update)
                            .unwrap()
                            .write(0, &vec![round as u8; length as usize])
                            .unwrap();
                    }
                    vnode.status.data_version = DataVersion(round);
                    update.put_vnode(&vnode);
                    if round % 11 == 0 {
                        continue; // dropped
                    }
                    volume.commit(update).unwrap();
                    match (round + number as u64) % 13 {
                        0 => partition.sync_all().unwrap(),
                        5 => volume.sync_body(&vnode).unwrap(),
                        7 => drop(partition.sweep(10).unwrap()),
                        _ => {}
                    }
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for no in &files {
                        let reader = volume.reader(*no).unwrap().unwrap();
                        let bytes = reader.read(0, 1 << 20).unwrap();
                        let status = reader.vnode().status;
                        assert_eq!(bytes.len() as u64, status.size);
                        // A dropped update may leave its own bytes behind, or zeros where it cut;
                        // all others are of one version.
                        let version = status.data_version.0 as u8;
                        let dropped = version.wrapping_add(1);
                        let foreign = bytes.iter().find(|byte| {
                            ![version, dropped, 0].contains(byte) && !reader.is_suspect()
                        });
                        assert_eq!(foreign, None);
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(100));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(reads.load(Ordering::Relaxed) > 100);
    partition.sync_all().unwrap();
    let report = partition.scrub(&mut |_| {}, &AtomicBool::new(false)).unwrap();
    // The files have no names, but that is their only fault.
    let wrong = report
        .findings
        .iter()
        .filter(|found| !matches!(found, store::ScrubFinding::WrongLinks { .. }))
        .count();
    assert_eq!(wrong, 0, "{:?}", report.findings);
}
