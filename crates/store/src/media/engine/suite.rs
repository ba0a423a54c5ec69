//! The tests of the engine's contract, run on each engine.

use std::ops::ControlFlow;

use super::{Batch, Engine, Result, RocksEngine, Visit, WriteCombiner};
use crate::MemMachine;
use crate::format::key::Key;
use crate::media::machine::MemEngine;

fn collect(engine: &dyn Engine, from: &[u8], end: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        found.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    engine.scan(from, end, visit).unwrap();
    found
}

fn batch(build: impl FnOnce(&mut Batch)) -> Batch {
    let mut batch = Batch::default();
    build(&mut batch);
    batch
}

fn puts_gets_and_deletes(engine: &dyn Engine) {
    assert_eq!(engine.get(b"a").unwrap(), None);
    engine
        .apply(&batch(|b| {
            b.put(b"a", b"1");
            b.put(b"a", b"2");
            b.put(b"i-large", &[7; 20_000]);
            b.put(b"gone", b"x");
            b.delete(b"gone");
        }))
        .unwrap();
    assert_eq!(engine.get(b"a").unwrap().unwrap(), b"2");
    assert_eq!(engine.get(b"i-large").unwrap().unwrap(), [7; 20_000]);
    assert_eq!(engine.get(b"gone").unwrap(), None);
}

fn gets_many_as_one_by_one(engine: &dyn Engine) {
    let key = |n: u64| crate::format::key::of_vnode(b'v', types::VolumeId(1), types::VnodeNo(n));
    engine.apply(&batch(|b| (0..300).step_by(3).for_each(|n| b.put(&key(n), &[n as u8])))).unwrap();
    engine.flush().unwrap();
    engine.apply(&batch(|b| (0..300).step_by(5).for_each(|n| b.delete(&key(n))))).unwrap();
    let keys: Vec<_> = (0..300).flat_map(|n| [n, n]).map(key).collect();
    let one_by_one: Vec<_> = keys.iter().map(|key| engine.get(key).unwrap()).collect();
    assert_eq!(engine.get_many(&keys).unwrap(), one_by_one);
    assert_eq!(one_by_one.iter().flatten().count(), 160);
    assert_eq!(engine.get_many(&[]).unwrap(), Vec::<Option<Vec<u8>>>::new());
}

fn scans_in_key_order_and_stops(engine: &dyn Engine) {
    engine
        .apply(&batch(|b| {
            (0..1000_u32).rev().for_each(|n| b.put(&[&b"k"[..], &n.to_be_bytes()].concat(), b"v"));
        }))
        .unwrap();
    let all = collect(engine, b"k", b"l");
    assert_eq!(all.len(), 1000);
    assert!(all.is_sorted());
    let some = collect(engine, &all[10].0, &all[20].0);
    assert_eq!(some, all[10..20]);
    let mut seen = 0;
    engine
        .scan(b"k", b"l", &mut |_, _| {
            seen += 1;
            // The visitor may use the engine.
            assert!(engine.get(&all[0].0).unwrap().is_some());
            if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    assert_eq!(seen, 3);
}

fn deletes_ranges_in_batch_order(engine: &dyn Engine) {
    engine.apply(&batch(|b| (0..10_u8).for_each(|n| b.put(&[b'r', n], &[n])))).unwrap();
    engine
        .apply(&batch(|b| {
            b.delete_range(&[b'r', 2], &[b'r', 8]);
            b.put(&[b'r', 5], b"new");
        }))
        .unwrap();
    let keys: Vec<u8> = collect(engine, b"r", b"s").iter().map(|(key, _)| key[1]).collect();
    assert_eq!(keys, [0, 1, 5, 8, 9]);
}

fn adds_numbers(engine: &dyn Engine) {
    engine.apply(&batch(|b| b.add(b"U", &[5, -1]))).unwrap();
    engine
        .apply(&batch(|b| {
            b.add(b"U", &[-7, 2]);
            b.add(b"U", &[1, 1]);
        }))
        .unwrap();
    engine.flush().unwrap();
    engine.apply(&batch(|b| b.add(b"U", &[10, 0]))).unwrap();
    let value = engine.get(b"U").unwrap().unwrap();
    assert_eq!(value, [9_i64.to_le_bytes(), 2_i64.to_le_bytes()].concat());
    assert_eq!(collect(engine, b"U", b"V"), [(b"U".to_vec(), value)]);
}

fn takes_batches_from_many_threads(engine: &dyn Engine) {
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            scope.spawn(move || {
                for n in 0..100_u8 {
                    engine
                        .apply(&batch(|b| {
                            b.put(&[b't', thread, n], b"1");
                            b.add(b"U", &[1]);
                        }))
                        .unwrap();
                }
                engine.sync().unwrap();
            });
        }
    });
    assert_eq!(engine.get(b"U").unwrap().unwrap(), 400_i64.to_le_bytes());
    assert_eq!(collect(engine, b"t", b"u").len(), 400);
}

macro_rules! engine_suite {
    ($module:ident, $make:expr, $($test:ident),+) => {
        mod $module {
            $(#[test]
            fn $test() {
                let (_keep, engine) = $make;
                super::$test(&engine);
            })+
        }
    };
}

macro_rules! engines {
    ($($test:ident),+) => {
        engine_suite!(memory, ((), super::MemEngine(super::MemMachine::new().0)), $($test),+);
        engine_suite!(rocks, super::on_disk(), $($test),+);
        engine_suite!(
            gathered_memory,
            ((), super::Gathering::before(super::MemEngine(super::MemMachine::new().0))),
            $($test),+
        );
        engine_suite!(
            gathered_rocks,
            {
                let (dir, engine) = super::on_disk();
                (dir, super::Gathering::before(engine))
            },
            $($test),+
        );
    };
}

engines!(
    puts_gets_and_deletes,
    gets_many_as_one_by_one,
    scans_in_key_order_and_stops,
    deletes_ranges_in_batch_order,
    adds_numbers,
    takes_batches_from_many_threads
);

fn on_disk() -> (tempfile::TempDir, RocksEngine) {
    let dir = tempfile::tempdir().unwrap();
    let engine = RocksEngine::open(&dir.path().join("meta"), 1 << 20, 1 << 40, true).unwrap();
    (dir, engine)
}

/// An engine that gathers every batch.
struct Gathering(WriteCombiner);

impl Gathering {
    fn before(below: impl Engine + 'static) -> Gathering {
        Gathering(WriteCombiner::new(Box::new(below)))
    }
}

impl Engine for Gathering {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.0.get(key)
    }

    fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>> {
        self.0.get_many(keys)
    }

    fn scan(&self, from: &[u8], end: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        self.0.scan(from, end, visit)
    }

    fn apply(&self, batch: &Batch) -> Result<()> {
        self.0.gather(batch)
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    fn flush(&self) -> Result<()> {
        self.0.flush()
    }

    fn reclaim(&self) {
        self.0.reclaim();
    }

    fn is_tidying(&self) -> bool {
        self.0.is_tidying()
    }

    fn stats(&self) -> String {
        self.0.stats()
    }
}

#[test]
fn rocks_finds_everything_again() {
    let (dir, engine) = on_disk();
    engine
        .apply(&batch(|b| {
            b.put(b"v1", b"one");
            b.put(b"i1", b"inline");
            b.add(b"U", &[3]);
        }))
        .unwrap();
    drop(engine);
    let engine = RocksEngine::open(&dir.path().join("meta"), 1 << 20, 1 << 40, false).unwrap();
    assert_eq!(engine.get(b"v1").unwrap().unwrap(), b"one");
    assert_eq!(engine.get(b"i1").unwrap().unwrap(), b"inline");
    assert_eq!(engine.get(b"U").unwrap().unwrap(), 3_i64.to_le_bytes());
}

#[test]
fn du1_a_damaged_log_of_synced_batches_does_not_open() {
    let (dir, engine) = on_disk();
    for number in 0..100_u8 {
        let mut batch = Batch::default();
        batch.put(&[b'v', number], &[number; 50]);
        engine.apply(&batch).unwrap();
    }
    engine.sync().unwrap();
    drop(engine);
    let path = dir.path().join("meta");
    let logs = || std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
    let log = logs().filter(|path| path.extension().is_some_and(|end| end == "log")).max().unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    let refused = RocksEngine::open(&path, 1 << 20, 1 << 40, false).map(drop);
    assert!(matches!(refused, Err(waldb::WalOpenError::Lost { .. })), "{refused:?}");
    bytes[middle] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    let engine = RocksEngine::open(&path, 1 << 20, 1 << 40, false).unwrap();
    assert!(engine.get(&[b'v', 99]).unwrap().is_some(), "it is unchanged");
}

#[test]
fn memory_keeps_a_prefix_of_whole_batches() {
    let machine = MemMachine::new();
    let engine = MemEngine(machine.0.clone());
    let step = |n: u8| {
        batch(|b| {
            b.put(b"a", &[n]);
            b.put(b"b", &[n]);
        })
    };
    (0..5).for_each(|n| engine.apply(&step(n)).unwrap());
    engine.sync().unwrap();
    (5..10).for_each(|n| engine.apply(&step(n)).unwrap());
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let after = MemEngine(machine.power_loss(seed).0);
        let (a, b) = (after.get(b"a").unwrap().unwrap(), after.get(b"b").unwrap().unwrap());
        assert_eq!(a, b);
        seen.insert(a[0]);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [4, 5, 6, 7, 8, 9]);
}
