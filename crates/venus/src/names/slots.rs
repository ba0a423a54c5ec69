//! Slots for new files that the server granted: with one the client makes a file without a call.

use std::collections::HashMap;

use types::{Fid, VnodeSlots, VolumeId};

#[derive(Default)]
pub(crate) struct Slots(HashMap<VolumeId, Vec<VnodeSlots>>);

impl Slots {
    /// Takes a slot for a new file; returns the file's fid with it.
    pub fn take(&mut self, volume: VolumeId, directory: bool) -> Option<(u64, Fid)> {
        let runs = self.0.get_mut(&volume)?;
        let run = runs.last_mut()?;
        let slot = run.take()?;
        let fid = run.fid(volume, slot, directory);
        if run.count == 0 {
            runs.pop();
        }
        Some((slot, fid))
    }

    pub fn add(&mut self, volume: VolumeId, slots: VnodeSlots) {
        if slots.count > 0 {
            self.0.entry(volume).or_default().push(slots);
        }
    }

    pub fn left(&self, volume: VolumeId) -> u64 {
        self.0.get(&volume).into_iter().flatten().map(|range| u64::from(range.count)).sum()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}
