//! Body files without a record, which a loss of power may leave.
//!
//! A new file's mark goes to the log before the file is created, but the file's name may be on disk
//! before the log is: another program's sync is enough. A loss of power then leaves a file without
//! a record. So after one, the sweep checks the files of each tree once and removes those without
//! an owner. The gate and the lock of the tree's writers prevent that an update takes the name
//! meanwhile.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::files::{failed, is_named};
use crate::error::Result;
use crate::format::names::BodyName;
use crate::media::Media;
use crate::media::engine::Engine;
use crate::tree::{TreeState, Trees};

/// How long one sweep searches before it stops at the end of the current tree.
const SEARCHING: Duration = Duration::from_millis(100);

/// The progress of the search for such files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Search {
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
    if has(&name.unstable_key())? || is_named(media, name)? {
        return Ok(true);
    }
    Ok(has(&name.garbage_key())? || has(&name.pack_key())?)
}

/// The search for such files, by the sweep.
#[derive(Default)]
pub(crate) struct StraySearch(Mutex<Search>);

impl StraySearch {
    /// After a power loss: each tree may have files without a record.
    pub(crate) fn begin(&self) {
        *self.0.lock() = Search::From(0);
    }

    /// Searches trees until it has removed some such files, or for a moment; returns how many, or 1
    /// if trees remain.
    pub(crate) fn sweep(&self, trees: &Trees) -> Result<usize> {
        let begun = Instant::now();
        loop {
            let Search::From(from) = *self.0.lock() else { return Ok(0) };
            if begun.elapsed() >= SEARCHING {
                return Ok(1);
            }
            let mut next = None;
            trees.each_tree(from, 1, &mut |id, _| {
                next = Some(id);
                true
            })?;
            // A tree that fails is not tried again: scrub reports its files.
            *self.0.lock() = next.map_or(Search::Done, |id| Search::From(id.0 + 1));
            let tree_state = next.map(|id| trees.tree(id)).transpose()?.flatten();
            let removed = tree_state
                .map_or(Ok(0), |tree_state| remove_strays(&tree_state, &strays(&tree_state)?))?;
            if removed > 0 {
                return Ok(removed);
            }
        }
    }
}

/// The files without a record.
pub(crate) fn strays(tree_state: &TreeState) -> Result<Vec<BodyName>> {
    let (media, mut strays, mut result) = (&tree_state.media, Vec::new(), Ok(()));
    let listed = media.disk.list(tree_state.id, &mut |name| {
        // Files with other names stay; scrub reports them.
        let Ok(name) = name else { return };
        match belongs(media, name) {
            Ok(true) => {}
            Ok(false) => strays.push(name),
            Err(error) => result = Err(error),
        }
    });
    listed.map_err(failed("list of bodies")).and(result).map(|()| strays)
}

/// Removes the files that still have no record; returns how many.
pub(crate) fn remove_strays(tree_state: &TreeState, strays: &[BodyName]) -> Result<usize> {
    let media = &tree_state.media;
    let mut removed = 0;
    for name in strays {
        let _no_seal = tree_state.write();
        let gate = media.gates.gate((name.volume, name.vnode));
        let _no_update = gate.write();
        if !belongs(media, *name)? {
            media.disk.remove(*name).map_err(failed("removal of a body"))?;
            removed += 1;
        }
    }
    if removed > 0 {
        tracing::info!(
            volume = tree_state.id.0,
            removed,
            "files that a loss of power left without a record are removed"
        );
    }
    Ok(removed)
}
