//! Body files without a record, which a loss of power may leave.
//!
//! A new file's mark goes to the log before the file is created, but the file's name may be on disk
//! before the log is: another program's sync is enough. A loss of power then leaves a file without
//! a record. So after one, the sweep checks the files of each tree once and removes those without
//! an owner. The gate and the lock of the tree's writers prevent that an update takes the name
//! meanwhile.

use std::time::{Duration, Instant};

use crate::copy_on_write::is_named;
use crate::disk::BodyName;
use crate::engine::Engine;
use crate::key;
use crate::media::Media;
use crate::tree_state::TreeState;
use crate::update::unstable_key;
use crate::volume::Result;
use crate::{Partition, StoreError};

/// How long one sweep searches before it stops at the end of the current tree.
const SEARCHING: Duration = Duration::from_millis(100);

/// The progress of the search for such files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Search {
    /// There are none, or all were removed.
    #[default]
    Done,
    /// Trees from this number on may have some.
    From(u64),
}

/// Whether a record names the file: a mark, a vnode, or a note that it is to be removed or packed.
pub(crate) fn belongs(media: &Media, name: BodyName) -> Result<bool> {
    let has = |key: &[u8]| media.engine.get(key).map(|found| found.is_some());
    // In the order in which a file passes between the records, so that the search cannot miss it.
    if has(&unstable_key(name))? || is_named(media, name)? {
        return Ok(true);
    }
    let garbage = key::garbage(name.volume, name.vnode, name.epoch, name.generation);
    let to_pack = key::pack(name.volume, name.vnode, name.epoch, u64::from(name.generation));
    Ok(has(&garbage)? || has(&to_pack)?)
}

impl Partition {
    /// After a power loss: each tree may have files without a record.
    pub(crate) fn search_strays(&self) {
        *self.0.strays.lock() = Search::From(0);
    }

    /// Searches trees until it has removed some such files, or for a moment; returns how many, or 1
    /// if trees remain.
    pub(crate) fn sweep_strays(&self) -> Result<usize> {
        let begun = Instant::now();
        loop {
            let Search::From(from) = *self.0.strays.lock() else { return Ok(0) };
            if begun.elapsed() >= SEARCHING {
                return Ok(1);
            }
            let mut next = None;
            self.each_tree(from, 1, &mut |id, _| {
                next = Some(id);
                true
            })?;
            // A tree that fails is not tried again: scrub reports its files.
            *self.0.strays.lock() = next.map_or(Search::Done, |id| Search::From(id.0 + 1));
            let tree_state = next.map(|id| self.tree_of(id)).transpose()?.flatten();
            let removed = tree_state
                .map_or(Ok(0), |tree_state| tree_state.remove_strays(&tree_state.strays()?))?;
            if removed > 0 {
                return Ok(removed);
            }
        }
    }
}

impl TreeState {
    /// The files without a record.
    pub(crate) fn strays(&self) -> Result<Vec<BodyName>> {
        let (media, mut strays, mut result) = (&self.media, Vec::new(), Ok(()));
        let listed = media.disk.list(self.id, &mut |name| {
            // Files with other names stay; scrub reports them.
            let Ok(name) = name else { return };
            match belongs(media, name) {
                Ok(true) => {}
                Ok(false) => strays.push(name),
                Err(error) => result = Err(error),
            }
        });
        listed.map_err(|e| StoreError::from_io("list of bodies", &e)).and(result).map(|()| strays)
    }

    /// Removes the files that still have no record; returns how many.
    pub(crate) fn remove_strays(&self, strays: &[BodyName]) -> Result<usize> {
        let media = &self.media;
        let mut removed = 0;
        for name in strays {
            let _no_seal = self.write();
            let gate = media.bodies.gate((name.volume, name.vnode));
            let _no_update = gate.write();
            if !belongs(media, *name)? {
                media
                    .disk
                    .remove(*name)
                    .map_err(|e| StoreError::from_io("removal of a body", &e))?;
                removed += 1;
            }
        }
        if removed > 0 {
            tracing::info!(
                volume = self.id.0,
                removed,
                "files that a loss of power left without a record are removed"
            );
        }
        Ok(removed)
    }
}
