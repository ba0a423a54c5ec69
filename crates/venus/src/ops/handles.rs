//! Open files and directories, by their numbers.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use types::{Caller, Fid};

use crate::base::{DirHandle, Error, OpenHandle};
use crate::data::{Open, VolumeLegacy};
use crate::reading::OpenDir;

/// See the head of the file. A number is used once.
pub(crate) struct Handles {
    legacy: Option<Arc<VolumeLegacy>>,
    files: Mutex<HashMap<OpenHandle, Arc<Open>>>,
    dirs: Mutex<HashMap<DirHandle, Arc<OpenDir>>>,
    count: AtomicU64,
}

impl Handles {
    /// None yet. They are recorded for a successor if there is a place for that.
    pub fn new(legacy: Option<&Arc<VolumeLegacy>>) -> Self {
        let (files, dirs) = Default::default();
        let count = AtomicU64::new(legacy.map_or(0, |legacy| legacy.handles_begin()));
        Handles { legacy: legacy.cloned(), files, dirs, count }
    }

    /// A handle that a predecessor gave to the kernel.
    pub fn inherit(&self, handle: OpenHandle, open: Open) {
        self.files.lock().insert(handle, Arc::new(open));
    }

    pub fn number(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn add(&self, open: Open) -> OpenHandle {
        let handle = OpenHandle(self.number());
        self.legacy.iter().for_each(|legacy| legacy.put_handle(handle, &open));
        let before = self.files.lock().insert(handle, Arc::new(open));
        assert!(before.is_none(), "PT-1: a handle is one open file");
        handle
    }

    /// The open file of a handle.
    ///
    /// # Errors
    /// [`Error::BadHandle`].
    pub fn open_of(&self, handle: OpenHandle) -> Result<Arc<Open>, Error> {
        self.files.lock().get(&handle).cloned().ok_or(Error::BadHandle)
    }

    /// The handle is closed.
    ///
    /// # Errors
    /// [`Error::BadHandle`] if it was before.
    pub fn remove(&self, handle: OpenHandle) -> Result<(), Error> {
        let was = self.files.lock().remove(&handle);
        self.legacy.iter().for_each(|legacy| legacy.remove_handle(handle));
        was.map(drop).ok_or(Error::BadHandle)
    }

    /// Whether an open file has this property.
    pub fn any(&self, which: impl Fn(&Open) -> bool) -> bool {
        self.files.lock().values().any(|open| which(open))
    }

    /// Of these files, those that each caller has open. A file without a handle here counts as
    /// opened by this machine.
    pub fn openers(&self, fids: &[Fid]) -> Vec<(Caller, Vec<Fid>)> {
        let mut callers: HashMap<Caller, BTreeSet<Fid>> = HashMap::new();
        let mut left: HashSet<Fid> = fids.iter().copied().collect();
        let wanted = left.clone();
        for open in self.files.lock().values().filter(|open| wanted.contains(&open.file.fid)) {
            left.remove(&open.file.fid);
            callers.entry(open.caller.clone()).or_default().insert(open.file.fid);
        }
        if !left.is_empty() {
            callers.entry(Caller::ROOT).or_default().extend(left);
        }
        callers.into_iter().map(|(caller, fids)| (caller, fids.into_iter().collect())).collect()
    }

    pub fn add_dir(&self, open: Arc<OpenDir>) -> DirHandle {
        let handle = DirHandle(self.number());
        self.dirs.lock().insert(handle, open);
        handle
    }

    /// The open directory of a handle.
    ///
    /// # Errors
    /// [`Error::BadHandle`].
    pub fn dir_of(&self, handle: DirHandle) -> Result<Arc<OpenDir>, Error> {
        self.dirs.lock().get(&handle).cloned().ok_or(Error::BadHandle)
    }

    pub fn remove_dir(&self, handle: DirHandle) {
        self.dirs.lock().remove(&handle);
    }
}
