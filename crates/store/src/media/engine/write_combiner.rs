//! The write combiner: batches of commit scopes become one, in front of the engine.
//!
//! Model. A batch comes with a commit scope ([`crate::CommitScope`]) or without one. Batches of a
//! scope are *gathered*: they go into `pending`, by key, replacing earlier values; all readers
//! check `pending` first. *Writing out* applies all of `pending` to the engine below in one batch
//! and empties it. It happens at the end of a scope, when `pending` is full, and before any
//! operation that needs its effect below: a batch without a scope (so that batches keep their
//! order), a scan over a pending key, a sync, and a get of numbers that are being added to, whose
//! sum is below. So the engine below always has the effect of the first n batches (ST-1), and
//! `pending` that of the rest.
//!
//! The death of the process loses `pending`. Nothing may leave the process that depends on a
//! batch before it is written out: senders demand a [`crate::WrittenOut`].
//!
//! A thread that changes `pending` holds `order` for the whole change; readers do not need it, and
//! continue while `pending` is written. A batch without a scope goes straight below while `pending`
//! is empty: it depends only on what its thread has read or gathered, and all of that is below. A
//! second thread that begins to gather meanwhile changes nothing: the two are concurrent.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use super::{Batch, Engine, EngineChange, Result, Visit, add_numbers};
use crate::StoreError;
use crate::format::key::Key;

/// The most bytes in `pending`.
const PENDING_BYTES_MAX: usize = 1 << 20;
/// The longest time that writing out waits for room that the engine below is about to give back.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(10);
/// The time between two attempts during that wait.
const ROOM_WAIT_STEP: Duration = Duration::from_millis(10);

/// The write combiner, see the head of the file.
pub(crate) struct WriteCombiner {
    below: Box<dyn Engine>,
    /// Whether `pending` has entries.
    waits: AtomicBool,
    order: Mutex<()>,
    pending: RwLock<Pending>,
}

/// Changes that are applied and not written out.
#[derive(Default)]
struct Pending {
    values: BTreeMap<Box<[u8]>, Value>,
    /// The upper bound of bytes of keys and values: a key that is put twice counts twice.
    bytes: usize,
}

enum Value {
    Put(Vec<u8>),
    Deleted,
    /// Numbers to add to the value below.
    Added(Vec<u8>),
}

impl Pending {
    fn add(&mut self, batch: &Batch) {
        self.bytes += batch.bytes.len();
        for change in batch.changes() {
            match change {
                EngineChange::Put(key, value) => match self.values.get_mut(key) {
                    Some(Value::Put(old)) => {
                        old.clear();
                        old.extend_from_slice(value);
                    }
                    Some(old) => *old = Value::Put(value.to_vec()),
                    None => drop(self.values.insert(key.into(), Value::Put(value.to_vec()))),
                },
                EngineChange::Delete(key) => drop(self.values.insert(key.into(), Value::Deleted)),
                EngineChange::Add(key, by) => match self.values.entry(key.into()) {
                    Entry::Vacant(none) => drop(none.insert(Value::Added(by.to_vec()))),
                    Entry::Occupied(mut known) => match known.get_mut() {
                        Value::Put(sum) | Value::Added(sum) => add_numbers(sum, by),
                        deleted @ Value::Deleted => *deleted = Value::Put(by.to_vec()),
                    },
                },
                EngineChange::DeleteRange(..) => {
                    unreachable!("batches that remove ranges are not gathered")
                }
            }
        }
    }

    fn to_batch(&self) -> Batch {
        let mut batch = Batch::default();
        for (key, value) in &self.values {
            match value {
                Value::Put(value) => batch.put(key, value),
                Value::Deleted => batch.delete(key),
                Value::Added(by) => batch.add_bytes(key, by),
            }
        }
        batch
    }

    fn any_in(&self, from: &[u8], end: &[u8]) -> bool {
        use std::ops::Bound::{Excluded, Included};
        from < end && self.values.range::<[u8], _>((Included(from), Excluded(end))).next().is_some()
    }
}

impl WriteCombiner {
    pub(crate) fn new(below: Box<dyn Engine>) -> WriteCombiner {
        WriteCombiner {
            below,
            waits: AtomicBool::new(false),
            order: Mutex::default(),
            pending: RwLock::default(),
        }
    }

    /// Applies a batch of a scope: visible at once, below when it is written out. Batches that
    /// cannot wait in `pending` go below at once.
    ///
    /// # Errors
    /// As [`Engine::apply`]; then nothing of the batch was applied.
    pub(crate) fn gather(&self, batch: &Batch) -> Result<()> {
        if batch.bytes.len() > PENDING_BYTES_MAX
            || batch.changes().any(|change| matches!(change, EngineChange::DeleteRange(..)))
        {
            return self.apply(batch);
        }
        let _order = self.order.lock();
        // Before the batch is added: if this fails, none of the batch was applied.
        if self.pending.read().bytes + batch.bytes.len() > PENDING_BYTES_MAX {
            self.write_out_in_order()?;
        }
        let mut pending = self.pending.write();
        debug_assert!(
            pending.bytes + batch.bytes.len() <= PENDING_BYTES_MAX,
            "ST-1: a batch is not split between two that are written out"
        );
        pending.add(batch);
        self.waits.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Writes out the batches that any thread gathered before the call, so that they survive the
    /// process.
    ///
    /// # Errors
    /// Those of the engine below; then everything stays pending.
    pub(crate) fn write_out(&self) -> Result<()> {
        if !self.waits.load(Ordering::SeqCst) {
            return Ok(());
        }
        let _order = self.order.lock();
        self.write_out_in_order()
    }

    /// Writes out; the caller holds `order`.
    fn write_out_in_order(&self) -> Result<()> {
        if !self.waits.load(Ordering::SeqCst) {
            return Ok(());
        }
        let batch = self.pending.read().to_batch();
        let mut began = None;
        while let Err(error) = self.below.apply(&batch) {
            let began = began.get_or_insert_with(Instant::now);
            if !matches!(error, StoreError::NoSpace) || began.elapsed() >= ROOM_WAIT_MAX {
                return Err(error);
            }
            std::thread::sleep(ROOM_WAIT_STEP);
        }
        let mut pending = self.pending.write();
        assert_eq!(
            batch.changes().count(),
            pending.values.len(),
            "ST-1: a change was gathered while others were written out"
        );
        pending.values.clear();
        pending.bytes = 0;
        self.waits.store(false, Ordering::SeqCst);
        Ok(())
    }
}

impl Engine for WriteCombiner {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.waits.load(Ordering::SeqCst) {
            match self.pending.read().values.get(key) {
                Some(Value::Put(value)) => return Ok(Some(value.clone())),
                Some(Value::Deleted) => return Ok(None),
                Some(Value::Added(_)) => {}
                None => return self.below.get(key),
            }
            self.write_out()?;
        }
        self.below.get(key)
    }

    fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>> {
        if self.waits.load(Ordering::SeqCst) {
            return keys.iter().map(|key| self.get(key)).collect();
        }
        self.below.get_many(keys)
    }

    fn scan(&self, from: &[u8], end: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        if self.waits.load(Ordering::SeqCst) && self.pending.read().any_in(from, end) {
            self.write_out()?;
        }
        self.below.scan(from, end, visit)
    }

    fn apply(&self, batch: &Batch) -> Result<()> {
        if !self.waits.load(Ordering::SeqCst) {
            return self.below.apply(batch);
        }
        let _order = self.order.lock();
        self.write_out_in_order()?;
        self.below.apply(batch)
    }

    fn sync(&self) -> Result<()> {
        self.write_out()?;
        self.below.sync()
    }

    fn flush(&self) -> Result<()> {
        self.write_out()?;
        self.below.flush()
    }

    fn reclaim(&self) {
        // If this fails, the end of the scope reports the error.
        if self.write_out().is_ok() {
            self.below.reclaim();
        }
    }

    fn is_tidying(&self) -> bool {
        self.below.is_tidying()
    }

    fn stats(&self) -> String {
        self.below.stats()
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use proptest::prelude::*;

    use super::*;
    use crate::MemMachine;
    use crate::media::machine::{MemDisk, MemEngine};

    type Map = BTreeMap<Vec<u8>, Vec<u8>>;

    fn on_memory() -> (MemEngine, WriteCombiner) {
        let machine = MemMachine::new();
        (MemEngine(machine.0.clone()), WriteCombiner::new(Box::new(MemEngine(machine.0))))
    }

    fn all(engine: &dyn Engine) -> Map {
        let mut found = Map::new();
        let visit = &mut |key: &[u8], value: &[u8]| {
            found.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        };
        engine.scan(b"", b"\xff", visit).unwrap();
        found
    }

    fn number(value: Option<Vec<u8>>) -> i64 {
        value.map_or(0, |value| i64::from_le_bytes(value.try_into().unwrap()))
    }

    #[derive(Clone, Debug)]
    enum Op {
        Put(u8, u8),
        Delete(u8),
        DeleteRange(u8, u8),
        Add(u8, i64),
    }

    #[derive(Clone, Debug)]
    enum Step {
        Gather(Vec<Op>),
        Apply(Vec<Op>),
        /// The same in another thread.
        Elsewhere(Vec<Op>),
        Scan(u8, u8),
        WriteOut,
        Sync,
    }

    /// Numbers have keys of their own.
    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (b'a'..=b'h', any::<u8>()).prop_map(|(key, value)| Op::Put(key, value)),
            3 => (b'a'..=b'z').prop_map(Op::Delete),
            1 => (b'a'..=b'z', b'a'..=b'z').prop_map(|(from, end)| Op::DeleteRange(from, end)),
            3 => (b'u'..=b'w', -5..5_i64).prop_map(|(key, by)| Op::Add(key, by)),
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        let ops = || prop::collection::vec(op(), 1..6);
        prop_oneof![
            9 => ops().prop_map(Step::Gather),
            2 => ops().prop_map(Step::Apply),
            2 => ops().prop_map(Step::Elsewhere),
            1 => (b'a'..=b'z', b'a'..=b'z').prop_map(|(from, end)| Step::Scan(from, end)),
            1 => Just(Step::WriteOut),
            1 => Just(Step::Sync),
        ]
    }

    fn batch_of(ops: &[Op], model: &mut Map) -> Batch {
        let mut batch = Batch::default();
        for op in ops {
            match *op {
                Op::Put(key, value) => {
                    batch.put(&[key], &[value, value]);
                    model.insert(vec![key], vec![value, value]);
                }
                Op::Delete(key) => {
                    batch.delete(&[key]);
                    model.remove(&vec![key]);
                }
                Op::DeleteRange(from, end) => {
                    batch.delete_range(&[from], &[end]);
                    model.retain(|key, _| !(from..end).contains(&key[0]));
                }
                Op::Add(key, by) => {
                    batch.add(&[key], &[by]);
                    add_numbers(model.entry(vec![key]).or_default(), &by.to_le_bytes());
                }
            }
        }
        batch
    }

    proptest! {
        #[test]
        fn it_shows_every_batch_at_once_and_keeps_them_in_order_below(
            steps in prop::collection::vec(step(), 1..60),
        ) {
            let (below, engine) = on_memory();
            // The state after each batch; the engine below has one of these, not older than the
            // last that must be there.
            let mut states = vec![Map::new()];
            for step in &steps {
                let mut model = states.last().unwrap().clone();
                let mut written = None;
                match step {
                    Step::Gather(ops) => {
                        engine.gather(&batch_of(ops, &mut model)).unwrap();
                        states.push(model);
                    }
                    Step::Apply(ops) => {
                        engine.apply(&batch_of(ops, &mut model)).unwrap();
                        states.push(model);
                        written = Some(());
                    }
                    Step::Elsewhere(ops) => {
                        let batch = batch_of(ops, &mut model);
                        std::thread::scope(|other| {
                            other.spawn(|| engine.apply(&batch).unwrap()).join().unwrap();
                        });
                        states.push(model);
                        written = Some(());
                    }
                    Step::Scan(from, end) => {
                        let mut found = Map::new();
                        engine.scan(&[*from], &[*end], &mut |key, value| {
                            found.insert(key.to_vec(), value.to_vec());
                            ControlFlow::Continue(())
                        }).unwrap();
                        model.retain(|key, _| (*from..*end).contains(&key[0]));
                        prop_assert_eq!(found, model);
                    }
                    Step::WriteOut => {
                        engine.write_out().unwrap();
                        written = Some(());
                    }
                    Step::Sync => {
                        engine.sync().unwrap();
                        written = Some(());
                    }
                }
                if written.is_some() {
                    states.drain(..states.len() - 1);
                }
                let found = all(&below);
                prop_assert!(states.contains(&found), "{:?} is below, after {:?}", found, states);
                // Except numbers that are being added to: a get of one writes out.
                let last = states.last().unwrap();
                for key in b'a'..=b'h' {
                    prop_assert_eq!(engine.get(&[key]).unwrap(), last.get(&vec![key]).cloned());
                }
            }
            prop_assert_eq!(all(&engine), states.last().unwrap().clone());
        }
    }

    #[test]
    fn a_concurrent_reader_never_sees_less_than_before() {
        const ROUNDS: i64 = 300;
        let (below, engine) = on_memory();
        let done = AtomicBool::new(false);
        let put = |keys: &[&[u8]], value: i64| {
            let mut batch = Batch::default();
            keys.iter().for_each(|key| batch.put(key, &value.to_le_bytes()));
            batch.add(b"u", &[1]);
            batch
        };
        std::thread::scope(|threads| {
            let gathering = threads.spawn(|| {
                for round in 0..ROUNDS {
                    for turn in 0..10 {
                        engine.gather(&put(&[b"a", b"b"], round * 10 + turn)).unwrap();
                    }
                    engine.write_out().unwrap();
                    assert_eq!(number(below.get(b"a").unwrap()), round * 10 + 9);
                }
                done.store(true, Ordering::SeqCst);
            });
            threads
                .spawn(|| (0..ROUNDS).for_each(|turn| engine.apply(&put(&[b"c"], turn)).unwrap()));
            threads.spawn(|| {
                let (mut last, mut sum) = (0, 0);
                while !done.load(Ordering::SeqCst) {
                    let a = number(engine.get(b"a").unwrap());
                    let b = number(engine.get(b"b").unwrap());
                    let u = number(engine.get(b"u").unwrap());
                    assert!(last <= a && a <= b && sum <= u, "{last} {a} {b}, {sum} {u}");
                    (last, sum) = (b, u);
                }
            });
            gathering.join().unwrap();
        });
        assert_eq!(number(engine.get(b"u").unwrap()), ROUNDS * 11);
    }

    #[test]
    fn a_key_put_often_is_written_once_and_large_batches_go_out() {
        let (below, engine) = on_memory();
        let written = || below.0.lock().log.unsynced();
        let put = |value: &[u8]| {
            let mut batch = Batch::default();
            batch.put(b"a", value);
            engine.gather(&batch).unwrap();
        };
        (0..100).for_each(|value| put(&[value]));
        assert_eq!((written(), below.get(b"a").unwrap()), (0, None));
        put(&vec![7; PENDING_BYTES_MAX - 1]);
        assert_eq!((written(), below.get(b"a").unwrap()), (1, Some(vec![99])));
        put(&vec![8; PENDING_BYTES_MAX]);
        assert_eq!((written(), below.get(b"a").unwrap()), (3, Some(vec![8; PENDING_BYTES_MAX])));
    }

    /// Refuses the next batches.
    struct Refusing {
        below: MemEngine,
        refusals: Mutex<Vec<StoreError>>,
    }

    impl Engine for Refusing {
        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
            self.below.get(key)
        }

        fn scan(&self, from: &[u8], end: &[u8], visit: &mut Visit<'_>) -> Result<()> {
            self.below.scan(from, end, visit)
        }

        fn apply(&self, batch: &Batch) -> Result<()> {
            self.refusals.lock().pop().map_or_else(|| self.below.apply(batch), Err)
        }

        fn sync(&self) -> Result<()> {
            self.below.sync()
        }

        fn flush(&self) -> Result<()> {
            self.below.flush()
        }

        fn reclaim(&self) {}

        fn is_tidying(&self) -> bool {
            false
        }

        fn stats(&self) -> String {
            self.below.stats()
        }
    }

    fn refusing(refusals: Vec<StoreError>) -> (MemEngine, Refusing, MemMachine) {
        let machine = MemMachine::new();
        let handle = || MemEngine(machine.0.clone());
        (handle(), Refusing { below: handle(), refusals: Mutex::new(refusals) }, machine)
    }

    fn one(value: &[u8]) -> Batch {
        let mut batch = Batch::default();
        batch.put(b"a", value);
        batch
    }

    #[test]
    fn where_there_is_no_room_for_a_moment_it_is_tried_again() {
        let (below, refusing, _machine) = refusing(vec![StoreError::NoSpace, StoreError::NoSpace]);
        let engine = WriteCombiner::new(Box::new(refusing));
        engine.gather(&one(b"1")).unwrap();
        engine.write_out().unwrap();
        assert_eq!(below.get(b"a").unwrap().unwrap(), b"1");
    }

    #[test]
    fn du3_a_failed_write_out_ends_all_changes_in_order() {
        let broken = || StoreError::Medium("broken".to_owned());
        let (below, refusing, machine) = refusing(vec![broken(), broken()]);
        let media = crate::media::Media::new(
            Box::new(refusing),
            Box::new(MemDisk(machine.0.clone())),
            4,
            false,
            None,
            crate::media::health::Health::default(),
            <rand::rngs::StdRng as rand::SeedableRng>::seed_from_u64(1),
        );
        let scope = crate::CommitScope::begin(&media);
        media.apply_in(Some(&scope), &one(b"1")).unwrap();
        std::thread::scope(|other| {
            let refused = other.spawn(|| media.engine.apply(&one(b"2"))).join().unwrap();
            assert!(matches!(refused, Err(StoreError::Medium(_))), "it would overtake the first");
        });
        assert!(matches!(scope.write_out(), Err(StoreError::Medium(_))));
        assert!(matches!(media.apply(&one(b"3")), Err(StoreError::Medium(_))), "DU-3");
        assert_eq!(
            (media.engine.get(b"a").unwrap().unwrap(), below.get(b"a").unwrap()),
            (b"1".to_vec(), None)
        );
    }
}
