//! Files of which only the status is known, packed: 128 bytes each, in chunks, found by a table of
//! places. The first chunk grows as it is filled: of most volumes only some files are known, and a
//! mount may have thousands of volumes. All others have their size from the beginning, so that a
//! million files are never moved.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use types::{DataVersion, Fid, Kind, Status, StatusVersion, Timestamp};

#[derive(Clone, Debug)]
pub(crate) struct Plain {
    fid: Fid,
    size: u64,
    used: u64,
    data_version: DataVersion,
    status_version: StatusVersion,
    /// Accessed, modified, changed, created.
    secs: [i64; 4],
    nanos: [u32; 4],
    uid: u32,
    gid: u32,
    links: u32,
    /// As in [`crate::nodes::Node`], like the fields below.
    pub lookups: u32,
    pub touched: u32,
    mode: u16,
    kind: Kind,
    pub valid: bool,
    pub bare: bool,
    by_list: bool,
    own_list: bool,
    read_times: bool,
    /// All blocks of this data version are known.
    pub is_known: bool,
}

const _: () = assert!(size_of::<Plain>() <= 136);

impl Plain {
    pub fn fid(&self) -> Fid {
        self.fid
    }

    /// `None` for a device: its number would be a field for all.
    pub fn new(status: &Status) -> Option<Plain> {
        if status.device != 0 {
            return None;
        }
        let times = [status.accessed, status.modified, status.changed, status.created];
        Some(Plain {
            fid: status.fid,
            size: status.size,
            used: status.used,
            data_version: status.data_version,
            status_version: status.status_version,
            secs: times.map(|time| time.secs),
            nanos: times.map(|time| time.nanos),
            uid: status.uid,
            gid: status.gid,
            links: status.links,
            lookups: 0,
            touched: 0,
            mode: status.mode,
            by_list: status.by_list,
            own_list: status.own_list,
            read_times: status.read_times,
            kind: status.kind,
            valid: false,
            bare: false,
            is_known: false,
        })
    }

    pub fn status(&self) -> Status {
        let time = |at: usize| Timestamp { secs: self.secs[at], nanos: self.nanos[at] };
        Status {
            fid: self.fid,
            kind: self.kind,
            mode: self.mode,
            by_list: self.by_list,
            own_list: self.own_list,
            read_times: self.read_times,
            uid: self.uid,
            gid: self.gid,
            links: self.links,
            size: self.size,
            used: self.used,
            device: 0,
            accessed: time(0),
            modified: time(1),
            changed: time(2),
            created: time(3),
            data_version: self.data_version,
            status_version: self.status_version,
        }
    }

    pub fn set_accessed(&mut self, at: Timestamp) {
        (self.secs[0], self.nanos[0]) = (at.secs, at.nanos);
    }

    pub fn data_version(&self) -> DataVersion {
        self.data_version
    }

    /// A newer status replaces this one.
    fn renew(&mut self, newer: Plain, promised: bool) {
        let was = std::mem::replace(self, newer);
        self.lookups = was.lookups;
        self.touched = was.touched;
        self.bare = was.bare && was.valid && promised;
        self.is_known = was.is_known && was.data_version == self.data_version;
        self.valid = promised;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeIndex(u32);

/// Files to a chunk: 64 KiB.
const CHUNK: usize = 512;

#[derive(Default)]
pub(crate) struct Plains {
    chunks: Vec<Vec<Option<Plain>>>,
    free: Vec<u32>,
    index: HashTable<u32>,
    hasher: RandomState,
}

impl Plains {
    fn at(&self, place: u32) -> Option<&Plain> {
        self.chunks.get(place as usize / CHUNK)?.get(place as usize % CHUNK)?.as_ref()
    }

    fn place(&self, fid: Fid) -> Option<u32> {
        let this = |place: &u32| self.at(*place).is_some_and(|plain| plain.fid == fid);
        self.index.find(self.hasher.hash_one(fid), this).copied()
    }

    pub fn get(&self, fid: Fid) -> Option<&Plain> {
        self.at(self.place(fid)?)
    }

    pub fn get_mut(&mut self, fid: Fid) -> Option<&mut Plain> {
        let place = self.place(fid)? as usize;
        self.chunks[place / CHUNK][place % CHUNK].as_mut()
    }

    /// Enters the status of an answer, if it can be packed. Returns the status to be shown, and
    /// whether the kernel may cache it.
    pub fn enter(
        &mut self,
        status: &Status,
        promised: bool,
        touched: u32,
    ) -> Option<(Status, bool)> {
        let newer = Plain::new(status)?;
        let Some(plain) = self.get_mut(status.fid) else {
            self.insert(Plain { valid: promised, touched, ..newer });
            return Some((*status, promised));
        };
        plain.touched = touched;
        match plain.status_version.cmp(&status.status_version) {
            std::cmp::Ordering::Greater => {}
            std::cmp::Ordering::Equal if plain.valid => {}
            // The version does not cover whether access lists decide.
            std::cmp::Ordering::Equal | std::cmp::Ordering::Less => plain.renew(newer, promised),
        }
        Some((plain.status(), plain.valid))
    }

    /// Adds a file that is not there.
    pub fn insert(&mut self, plain: Plain) {
        debug_assert!(self.place(plain.fid).is_none(), "CB-3: a file has one known state");
        let hash = self.hasher.hash_one(plain.fid);
        let place = self.free.pop().unwrap_or_else(|| self.grow());
        self.chunks[place as usize / CHUNK][place as usize % CHUNK] = Some(plain);
        let (chunks, hasher) = (&self.chunks, &self.hasher);
        self.index.insert_unique(hash, place, |place| {
            let place = *place as usize;
            let plain = chunks[place / CHUNK][place % CHUNK].as_ref();
            hasher.hash_one(plain.expect("the index holds only places that are taken").fid)
        });
    }

    /// A place that was never used.
    fn grow(&mut self) -> u32 {
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            let capacity = if self.chunks.is_empty() { 0 } else { CHUNK };
            self.chunks.push(Vec::with_capacity(capacity));
        }
        let before = (self.chunks.len() - 1) * CHUNK;
        let last = self
            .chunks
            .last_mut()
            .expect("the last chunk exists: one was just made if there was none");
        last.push(None);
        u32::try_from(before + last.len() - 1)
            .expect("4 billion files are far beyond any budget of memory")
    }

    pub fn take(&mut self, fid: Fid) -> Option<Plain> {
        let place = self.place(fid)?;
        self.remove(NodeIndex(place))
    }

    pub fn remove(&mut self, place: NodeIndex) -> Option<Plain> {
        let at = place.0 as usize;
        let plain = self.chunks[at / CHUNK][at % CHUNK].take()?;
        let hash = self.hasher.hash_one(plain.fid);
        if let Ok(entry) = self.index.find_entry(hash, |there| *there == place.0) {
            entry.remove();
        }
        self.free.push(place.0);
        Some(plain)
    }

    pub fn iter(&self) -> impl Iterator<Item = (NodeIndex, &Plain)> {
        let all = self.chunks.iter().flatten().enumerate();
        all.filter_map(|(at, plain)| Some((NodeIndex(at as u32), plain.as_ref()?)))
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Memory of all files, each with its share of the index.
    pub fn bytes(&self) -> usize {
        const EACH: usize = size_of::<Option<Plain>>() + 8;
        self.len() * EACH
    }

    #[cfg(test)]
    pub fn allocated(&self) -> usize {
        let chunks: usize =
            self.chunks.iter().map(|chunk| chunk.capacity() * size_of::<Option<Plain>>()).sum();
        chunks + self.index.allocation_size() + self.free.capacity() * size_of::<u32>()
    }
}
