//! Listing directories. A listing that was read from its beginning to its end under one version makes the directory complete.

use std::sync::Arc;

use parking_lot::Mutex;
use types::{Answer, Call, Fid, Name};

use crate::{DirHandle, Error, ListEntry, Listing, Request, Venus};

/// How far a listing got without a gap, and under which version: (cookie, version).
type Progress = Option<(u64, u64)>;

/// One open directory.
pub(crate) struct OpenDir {
    dir: Fid,
    progress: Mutex<Progress>,
}

impl Venus {
    /// Opens a directory.
    ///
    /// # Errors
    /// As the service says.
    pub fn opendir(&self, _request: &Request<'_>, dir: Fid) -> Result<DirHandle, Error> {
        let handle = DirHandle(self.core.number());
        self.core.dirs.lock().insert(handle, Arc::new(OpenDir { dir, progress: Mutex::new(None) }));
        Ok(handle)
    }

    fn dir_of(&self, handle: DirHandle) -> Result<Arc<OpenDir>, Error> {
        self.core.dirs.lock().get(&handle).cloned().ok_or(Error::BadHandle)
    }

    /// Entries behind `cookie` (0: the first), about `bytes_max` bytes of them.
    ///
    /// # Errors
    /// As the service says.
    pub fn readdir(
        &self,
        request: &Request<'_>,
        handle: DirHandle,
        cookie: u64,
        bytes_max: u32,
        plus: bool,
    ) -> Result<Listing, Error> {
        let core = &self.core;
        let open = self.dir_of(handle)?;
        let dir = open.dir;
        let before = core.tables.lock().before(dir);
        let call = Call::ReadDir { dir, cookie, bytes_max, plus };
        let Answer::Entries { entries, end, dir_version } = core.call(request, call)? else {
            return Err(Error::Protocol);
        };
        let names: Vec<(Name, Fid)> = entries.iter().map(|entry| (entry.name.clone(), entry.fid)).collect();
        let last = entries.last().map_or(cookie, |entry| entry.cookie);
        let mut tables = core.tables.lock();
        let (names_cacheable, entered) = tables.put_listing(&before, dir, dir_version, &names);
        let entries = entries.into_iter().map(|entry| {
            let (status, cacheable) = match entry.status {
                Some(status) => {
                    let (status, cacheable) = tables.put(before.snapshot, status);
                    (Some(status), cacheable)
                }
                None => (None, false),
            };
            ListEntry { name: entry.name, fid: entry.fid, kind: entry.kind, cookie: entry.cookie, status, cacheable }
        });
        let entries = entries.collect();
        let mut progress = open.progress.lock();
        *progress = match *progress {
            _ if !entered => None,
            _ if cookie == 0 => Some((last, dir_version)),
            Some((behind, version)) if behind == cookie && version == dir_version => Some((last, dir_version)),
            _ => None,
        };
        if end && progress.is_some() {
            tables.complete(dir, dir_version);
        }
        Ok(Listing { entries, end, names_cacheable, stamp: core.stamp() })
    }

    /// Closes a directory.
    pub fn releasedir(&self, handle: DirHandle) {
        self.core.dirs.lock().remove(&handle);
    }

    /// The directory's entries are stable afterwards.
    ///
    /// # Errors
    /// As the service says.
    pub fn fsyncdir(&self, request: &Request<'_>, handle: DirHandle) -> Result<(), Error> {
        let fid = self.dir_of(handle)?.dir;
        self.core.call(request, Call::Commit { fid }).map(drop)
    }
}
