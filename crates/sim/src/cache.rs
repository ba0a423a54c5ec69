//! A small client cache: status, data and names, under the rules of [`lease::Holder`].
//!
//! One rule comes on top, for a client's own changes, for which it receives no breaks. The server
//! may read an answer before a change that this client makes meanwhile, and the answer may arrive
//! after that change's answer. So the cache rejects an answer that is older than the known versions
//! of the file. An answer without a version (a name that does not exist) is rejected if an own
//! change was under way at any time since the call began (CB-6).

use std::collections::BTreeMap;

use types::{BreakItem, DataVersion, Fid, Name, Status, StatusVersion};

/// A directory's names, as of one version.
#[derive(Clone, Debug, Default)]
struct Names {
    version: DataVersion,
    found: BTreeMap<Name, Option<Fid>>,
}

/// The cache; see the head of the file.
#[derive(Debug, Default)]
pub struct Cache {
    status: BTreeMap<Fid, Status>,
    data: BTreeMap<Fid, (DataVersion, Vec<u8>)>,
    names: BTreeMap<Fid, Names>,
    /// The newest versions in any answer: of the data, of the status.
    known: BTreeMap<Fid, (DataVersion, StatusVersion)>,
    /// Own changes of each file: how many began, how many ended.
    own: BTreeMap<Fid, (u64, u64)>,
}

/// The counts of own changes of a file when a call began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnMark(u64, u64);

impl Cache {
    /// Promises of these files are over.
    pub fn on_break(&mut self, items: &[BreakItem]) {
        for item in items {
            self.drop_file(item.fid);
        }
    }

    fn drop_file(&mut self, fid: Fid) {
        self.status.remove(&fid);
        self.data.remove(&fid);
        self.names.remove(&fid);
    }

    /// All promises are over, and version numbers may be reused.
    pub fn clear(&mut self) {
        let own = std::mem::take(&mut self.own);
        *self = Cache { own, ..Cache::default() };
    }

    /// The status, if it is cached.
    pub fn status(&self, fid: Fid) -> Option<Status> {
        self.status.get(&fid).copied()
    }

    /// Data and its version, if they are cached.
    pub fn data(&self, fid: Fid) -> Option<(DataVersion, &[u8])> {
        self.data.get(&fid).map(|(version, data)| (*version, data.as_slice()))
    }

    /// The cached result for a name, with the directory's version.
    pub fn name(&self, dir: Fid, name: &Name) -> Option<(DataVersion, Option<Fid>)> {
        let names = self.names.get(&dir)?;
        names.found.get(name).map(|found| (names.version, *found))
    }

    /// The present counts of own changes of the file.
    pub fn mark(&self, fid: Fid) -> OwnMark {
        let (began, ended) = self.own.get(&fid).copied().unwrap_or_default();
        OwnMark(began, ended)
    }

    /// Returns whether no own change was under way at any time since `mark`.
    pub fn is_quiet_since(&self, fid: Fid, mark: OwnMark) -> bool {
        mark == self.mark(fid) && mark.0 == mark.1
    }

    /// This client sends a change of the file.
    pub fn own_begins(&mut self, fid: Fid) {
        self.own.entry(fid).or_default().0 += 1;
    }

    /// The change was answered, or its session was lost: what is cached of the file is older.
    pub fn own_ends(&mut self, fid: Fid) {
        self.own.entry(fid).or_default().1 += 1;
        self.drop_file(fid);
    }

    /// Notes the versions in an answer.
    pub fn saw(&mut self, status: &Status) {
        let known = self.known.entry(status.fid).or_default();
        *known = (known.0.max(status.data_version), known.1.max(status.status_version));
    }

    /// Caches a promised status, and data with it.
    pub fn put(&mut self, status: &Status, data: Option<&[u8]>) {
        self.saw(status);
        let (data_version, status_version) =
            self.known.get(&status.fid).copied().unwrap_or_default();
        if (status.data_version, status.status_version) < (data_version, status_version) {
            return;
        }
        self.status.insert(status.fid, *status);
        if let Some(data) = data {
            self.data.insert(status.fid, (status.data_version, data.to_vec()));
        }
    }

    /// Caches a promised name.
    pub fn put_name(&mut self, dir: Fid, version: DataVersion, name: &Name, found: Fid) {
        let known = self.known.entry(dir).or_default();
        known.0 = known.0.max(version);
        if version < known.0 {
            return;
        }
        let names = self.names.entry(dir).or_default();
        if names.version != version {
            *names = Names { version, found: BTreeMap::new() };
        }
        names.found.insert(name.clone(), Some(found));
    }

    /// Caches that a name does not exist, if no own change was under way since `mark`.
    pub fn put_absent(&mut self, dir: Fid, name: &Name, mark: OwnMark) {
        let quiet = self.is_quiet_since(dir, mark);
        if let Some(names) = self.names.get_mut(&dir).filter(|_| quiet) {
            names.found.insert(name.clone(), None);
        }
    }
}
