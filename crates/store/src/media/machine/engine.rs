//! The engine in memory, with a disk that can lose unsynced data: see [`crate::MemMachine`].

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::{MemMachineState, Shared};
use crate::StoreError;
use crate::media::engine::{Batch, Engine, EngineChange, Visit, add_numbers};

/// The map, and the log behind its synced state.
#[derive(Clone, Default)]
pub(crate) struct MemLog {
    /// The state that readers see.
    current: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The state on disk.
    synced: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The batches from `synced` to `current`.
    unsynced: Vec<Arc<Batch>>,
}

impl MemLog {
    pub(crate) fn apply(&mut self, batch: &Batch) {
        apply_to(&mut self.current, batch);
        self.unsynced.push(Arc::new(batch.clone()));
    }

    pub(crate) fn sync(&mut self) {
        for batch in self.unsynced.drain(..) {
            apply_to(&mut self.synced, &batch);
        }
    }

    /// The number of batches that power loss may take.
    pub(crate) fn unsynced(&self) -> usize {
        self.unsynced.len()
    }

    /// The state after the first `kept` unsynced batches reached the disk.
    pub(crate) fn after_power_loss(mut self, kept: usize) -> MemLog {
        for batch in self.unsynced.drain(..).take(kept) {
            apply_to(&mut self.synced, &batch);
        }
        self.current = self.synced.clone();
        self
    }

    /// Damages a stored value without notice to the store.
    #[cfg(test)]
    pub(crate) fn tamper(&mut self, key: &[u8], change: impl FnOnce(&mut Vec<u8>)) {
        let value = self.current.get_mut(key).expect("the record to damage is there");
        change(value);
        if let Some(on_disk) = self.synced.get_mut(key) {
            on_disk.clone_from(value);
        }
    }

    #[cfg(test)]
    pub(crate) fn records(&self) -> impl Iterator<Item = (&Vec<u8>, &Vec<u8>)> {
        self.current.iter()
    }

    #[cfg(test)]
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.current.keys()
    }
}

fn apply_to(map: &mut BTreeMap<Vec<u8>, Vec<u8>>, batch: &Batch) {
    for change in batch.changes() {
        match change {
            EngineChange::Put(key, value) => {
                map.insert(key.to_vec(), value.to_vec());
            }
            EngineChange::Delete(key) => {
                map.remove(key);
            }
            EngineChange::DeleteRange(from, end) => {
                if from < end {
                    let keys: Vec<_> = map
                        .range(from.to_vec()..end.to_vec())
                        .map(|(key, _)| key.clone())
                        .collect();
                    for key in keys {
                        map.remove(&key);
                    }
                }
            }
            EngineChange::Add(key, by) => add_numbers(map.entry(key.to_vec()).or_default(), by),
        }
    }
}

/// Records that a scan copies at a time, so that the visitor may use the engine itself.
const SCAN_PAGE: usize = 256;

pub(crate) struct MemEngine(pub(crate) Shared);

impl Engine for MemEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.0.lock().log.current.get(key).cloned())
    }

    fn scan(&self, from: &[u8], end: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        // Unlike an iterator of RocksDB this may see changes made during the scan; no caller
        // depends on either.
        let mut from = from.to_vec();
        while from.as_slice() < end {
            let page: Vec<_> = {
                let machine = self.0.lock();
                let range = machine.log.current.range(from.clone()..end.to_vec());
                range.take(SCAN_PAGE).map(|(key, value)| (key.clone(), value.clone())).collect()
            };
            for (key, value) in &page {
                if visit(key, value) == ControlFlow::Break(()) {
                    return Ok(());
                }
            }
            let Some((last, _)) = page.last().filter(|_| page.len() == SCAN_PAGE) else { break };
            from = [last.as_slice(), &[0]].concat();
        }
        Ok(())
    }

    fn apply(&self, batch: &Batch) -> Result<(), StoreError> {
        self.0.lock().log.apply(batch);
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.0.lock().sync_point(|machine: &mut MemMachineState| machine.log.sync())
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.sync()
    }

    fn reclaim(&self) {}

    fn is_tidying(&self) -> bool {
        false
    }

    fn stats(&self) -> String {
        let machine = self.0.lock();
        format!(
            "{} records, {} batches unsynced",
            machine.log.current.len(),
            machine.log.unsynced.len()
        )
    }
}
