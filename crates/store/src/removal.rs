//! Removing volumes: named at once, swept in the background.
//!
//! The removal itself is one batch: the volume's header and name go, and a record says what is to be swept. From then on the number answers
//! nothing. [`crate::Partition::sweep`] takes the rest, in steps; the record goes with the last of it, so a crash in between continues. Who had
//! the volume when it was removed may finish what he does: nothing is swept while anybody has it.

use std::collections::HashMap;
use std::sync::Weak;

use types::VolumeId;

use crate::engine::{Batch, prefix_end};
use crate::key::{self, kind};
use crate::volume::Result;
use crate::{Partition, StoreError, Volume, record};

/// What the sweeper knows beyond the records.
pub(crate) struct Removals {
    /// There may be removals to sweep.
    waiting: bool,
    /// Volumes that were removed in this life, for as long as somebody may have them.
    held: HashMap<VolumeId, Weak<Volume>>,
}

impl Default for Removals {
    fn default() -> Self {
        // An earlier life may have left some.
        Removals { waiting: true, held: HashMap::new() }
    }
}

/// A removal that is to be swept.
#[derive(Clone, Copy, Debug)]
struct Removal {
    volume: VolumeId,
    tree: VolumeId,
}

/// In the place of the epoch that the volume showed: nothing of the tree is shown any more.
const WHOLE_TREE: u64 = 0;

/// Kinds of a tree's records that go with it, each a range.
const OF_TREES: [u8; 9] = [
    kind::VNODE,
    kind::ENTRIES,
    kind::INLINE,
    kind::SUMS,
    kind::XATTR,
    kind::ORPHAN,
    kind::UNSTABLE,
    kind::GARBAGE,
    kind::CHANGE,
];

impl Partition {
    /// Removes the volume; stable when it returns. Its number answers nothing from then on, and what it took is given back in the background.
    ///
    /// # Errors
    /// `NoVolume`, `Medium`.
    pub fn remove_volume(&self, id: VolumeId) -> Result<()> {
        let media = &self.0.media;
        let volume = self.volume(id)?.ok_or(StoreError::NoVolume(id))?;
        let trunk = &volume.trunk;
        let nobody_writes = trunk.writers.write();
        let catalog = self.0.catalog.lock();
        volume.writable()?;
        let mut batch = Batch::default();
        batch.delete(&key::name(volume.name().as_bytes()));
        batch.delete(&key::volume(id));
        batch.delete(&key::usage(id));
        let key = key::removal(id);
        batch.put(&key, &record::encode_numbers(&key, &[id.0, WHOLE_TREE]));
        media.apply(&batch)?;
        volume.set_gone();
        media.bodies.forget(id);
        let mut residents = self.0.residents.lock();
        let held = residents.remove(id);
        residents.remove_trunk(id);
        drop(residents);
        let mut removals = self.0.removals.lock();
        removals.waiting = true;
        removals.held.extend(held.map(|held| (id, held)));
        drop((removals, catalog, nobody_writes));
        media.sync()
    }

    /// Takes up to about `max` files or records of removed volumes; says how many, 0 if nothing is left that nobody has.
    pub(crate) fn sweep_removals(&self, max: usize) -> Result<usize> {
        let mut removals = self.0.removals.lock();
        if !removals.waiting {
            return Ok(0);
        }
        removals.held.retain(|_, held| held.strong_count() > 0);
        let mut waits = false;
        let next = self.removals()?.into_iter().find(|removal| {
            let held = removals.held.contains_key(&removal.volume);
            waits |= held;
            !held
        });
        removals.waiting = waits || next.is_some();
        drop(removals);
        match next {
            Some(removal) => self.sweep_removal(removal, max),
            None => Ok(0),
        }
    }

    fn removals(&self) -> Result<Vec<Removal>> {
        let mut found = Vec::new();
        self.each(&[kind::REMOVAL], &mut |key, value| {
            let volume = key::number_at(key, 0).ok_or_else(|| record::damaged("removal", key))?;
            let [tree, WHOLE_TREE] = record::decode_numbers(key, value)? else {
                return Err(record::damaged("removal", key));
            };
            found.push(Removal { volume: VolumeId(volume), tree: VolumeId(tree) });
            Ok(())
        })?;
        Ok(found)
    }

    fn sweep_removal(&self, removal: Removal, max: usize) -> Result<usize> {
        let media = &self.0.media;
        // A crash must not bring back what names the files.
        media.sync()?;
        let files = media.disk.clear(removal.tree, max).map_err(|e| StoreError::from_io("removal of bodies", &e))?;
        if files == max {
            return Ok(files);
        }
        let mut batch = Batch::default();
        for kind in OF_TREES {
            let prefix = key::of_volume(kind, removal.tree);
            batch.delete_range(&prefix, &prefix_end(&prefix));
        }
        batch.delete(&key::removal(removal.volume));
        media.apply(&batch)?;
        Ok(files + 1)
    }
}
