//! Open directories, and pages that were listed before they were asked for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use parking_lot::{Condvar, Mutex};
use types::{Caller, Cookie, DataVersion, Fid};

use super::ShownNames;
use crate::base::DirListing;

/// The end of a listing, and its version: (cookie, version).
type End = Option<(Cookie, DataVersion)>;

/// How far a listing got without a gap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    pub cookie: Cookie,
    pub version: DataVersion,
    /// The map of names that received all of it.
    pub map: u64,
}

pub(crate) struct OpenDir {
    pub dir: Fid,
    pub progress: Mutex<Option<Progress>>,
    /// The cookie behind which nothing followed, and the version: readers ask once more to be sure.
    pub end: Mutex<End>,
    pub early: Mutex<Early>,
    /// `None` before the first page, and while a page is read.
    pub shown: Mutex<Option<ShownNames>>,
    /// Signalled when the page that was asked for ahead came or failed.
    pub came: Condvar,
}

impl OpenDir {
    pub fn new(dir: Fid) -> Self {
        let (progress, end, early, shown) = Default::default();
        OpenDir { dir, progress, end, early, shown, came: Condvar::new() }
    }
}

/// Directories that were listed before they were opened, oldest first.
#[derive(Default)]
pub(crate) struct EarlyDirs {
    dirs: Mutex<VecDeque<Arc<OpenDir>>>,
    /// The largest page that readers asked for.
    pub bytes_max: AtomicU32,
}

/// More directories than a walk has ahead of it.
const EARLY_DIRS_MAX: usize = 8;

impl EarlyDirs {
    /// Adds a directory; `None` if it is there already.
    pub fn add(&self, dir: Fid) -> Option<Arc<OpenDir>> {
        let mut dirs = self.dirs.lock();
        if dirs.iter().any(|open| open.dir == dir) {
            return None;
        }
        let open = Arc::new(OpenDir::new(dir));
        dirs.push_back(Arc::clone(&open));
        if dirs.len() > EARLY_DIRS_MAX {
            dirs.pop_front();
        }
        Some(open)
    }

    pub fn take(&self, dir: Fid) -> Option<Arc<OpenDir>> {
        let mut dirs = self.dirs.lock();
        let at = dirs.iter().position(|open| open.dir == dir)?;
        dirs.remove(at)
    }
}

/// The page behind the last one that was read.
#[derive(Default)]
#[allow(clippy::large_enum_variant)] // one for each directory that is open
pub(crate) enum Early {
    #[default]
    No,
    /// The page behind this cookie has been asked for.
    Asked(Cookie),
    Here {
        cookie: Cookie,
        plus: bool,
        caller: Caller,
        page: Page,
    },
}

pub(crate) struct Page {
    pub listing: DirListing,
    pub version: DataVersion,
    /// The map that received all names of the page.
    pub entered: Option<u64>,
    pub next: Cookie,
}
