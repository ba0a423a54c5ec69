//! Versions of files as hosts know them.
//!
//! A store of AFS raises a file's data version by one, and clients rely on it. If a version rose by
//! more, OpenAFS's client believes for ever that the file has changes that it must still store, and
//! learns no new size of it; kafs drops what it has just stored. Here a store takes one call to cut
//! the file and one for each part, and each raises the version. So a host is told the version less
//! what its own stores raised it too much.
//!
//! Model: a host is never told the same version with two contents. The count goes up before the
//! first call of a store, so the version that the host is told at the end was not told before. A
//! count that is forgotten makes the next version that is told a higher one, and the host reads
//! again what it has.

use std::collections::HashMap;

use parking_lot::Mutex;
use types::{DataVersion, Fid};

/// Files with a count; with more, all are forgotten. They take some 4 MiB.
const COUNTS_MAX: usize = 65_536;

/// See the head of the file.
#[derive(Default)]
pub(super) struct ToldVersions {
    superfluous: Mutex<HashMap<(u64, Fid), u64>>,
}

impl ToldVersions {
    /// The version that the host is told.
    pub fn told(&self, host: u64, fid: Fid, version: DataVersion) -> u64 {
        let count = self.superfluous.lock().get(&(host, fid)).copied().unwrap_or_default();
        version.0.saturating_sub(count)
    }

    /// A store of the host begins, in so many calls that raise the version.
    pub fn begin(&self, host: u64, fid: Fid, calls: u64) {
        let superfluous = calls.saturating_sub(1);
        if superfluous == 0 {
            return;
        }
        let mut all = self.superfluous.lock();
        if all.len() >= COUNTS_MAX {
            all.clear();
        }
        *all.entry((host, fid)).or_default() += superfluous;
    }

    /// It ended early: some of its calls did not happen.
    pub fn undo(&self, host: u64, fid: Fid, calls: u64) {
        if let Some(count) = self.superfluous.lock().get_mut(&(host, fid)) {
            *count = count.saturating_sub(calls.saturating_sub(1));
        }
    }
}
