//! File data on the client's disk, for servers on other machines.
//!
//! ```text
//! <cache dir>/data/<low byte of vnode>/<volume>.<vnode>.<uniquifier>        the bytes, sparse
//! <cache dir>/data/<low byte of vnode>/<volume>.<vnode>.<uniquifier>.map    pieces and their sums
//! ```
//! A file's data belongs to one data version and comes in pieces of 64 KiB. The map is written anew
//! and renamed into place, so it is whole or absent. Nothing is synced: after a crash a map may
//! list bytes that never came to the disk, and their sums show it. So every piece is compared with
//! its sum when it is read: one that differs is fetched again. After a restart an entry is used
//! only if the server still has that data version (by its status).
//!
//! A server whose machine lost its power may use a data version once more, for other data. So an
//! entry belongs to the server instance in which its bytes came; in another one it is used only if
//! the file has not changed since, in anything (`Edition`).
//!
//! A body that the kernel has (`passthrough/cache_bodies.rs`) is *pinned*: it is out of the index,
//! and nothing here touches its file until it comes back. Its map stays on the disk: no piece that
//! was changed in place matches it.
//!
//! Any error of the disk, a full one too, means only that data is not cached.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io};

use bytes::Bytes;
use parking_lot::Mutex;
use types::{DataVersion, Fid, VolumeId};

use super::{CacheMap, Edition, PIECE, Piece, SUMMED, fid_of, file_name, map_of};

/// A map is written when so many pieces came since the last time, or a quarter of all.
const MAP_EVERY: usize = 64;

/// Most bytes from before the start that are compared with their sums when a body is pinned.
const CHECK_MAX: u64 = 8 << 20;

/// A body that is out of the index for as long as the kernel has it.
pub(crate) struct Taken {
    pub file: Arc<fs::File>,
    pub sums: Vec<u32>,
    edition: Edition,
    pieces: HashMap<u64, Piece>,
}

struct Item {
    edition: Edition,
    pieces: HashMap<u64, Piece>,
    bytes: u64,
    used: u64,
    /// Pieces that came or went since the map was written.
    unwritten: usize,
    file: Option<Arc<fs::File>>,
}

impl Item {
    /// Whether its pieces are of this edition; takes over the rest of the edition.
    fn confirm(&mut self, edition: &Edition) -> bool {
        if self.edition.instance == edition.instance && self.edition.version == edition.version {
            // The file's mode or names changed.
            self.edition.changed = edition.changed;
        }
        self.edition.is(edition)
    }
}

#[derive(Default)]
struct Index {
    items: HashMap<Fid, Item>,
    /// Bytes charged for bodies that are out of the index.
    taken: HashMap<Fid, u64>,
    bytes: u64,
    clock: u64,
}

pub(crate) struct DiskCache {
    dir: PathBuf,
    bytes_max: AtomicU64,
    index: Mutex<Index>,
}

impl DiskCache {
    /// Opens or makes the cache below `dir`, and removes files that are not part of it any more.
    ///
    /// # Errors
    /// That of the directory.
    pub fn open(dir: &Path, bytes_max: u64) -> io::Result<Self> {
        let dir = dir.join("data");
        let mut index = Index::default();
        for low in 0..=255u8 {
            let shelf = dir.join(format!("{low:02x}"));
            fs::create_dir_all(&shelf)?;
            for entry in fs::read_dir(&shelf)? {
                load(&mut index, &entry?.path());
            }
        }
        let cache =
            DiskCache { dir, bytes_max: AtomicU64::new(bytes_max), index: Mutex::new(index) };
        cache.evict(None);
        Ok(cache)
    }

    fn path(&self, fid: Fid) -> PathBuf {
        self.dir.join(format!("{:02x}", fid.vnode.0 >> 1 & 0xff)).join(file_name(fid))
    }

    /// The bytes `start..end` of this edition of the file, which has `size` bytes, if all of them
    /// are here and match their sums.
    pub fn read(
        &self,
        fid: Fid,
        edition: Edition,
        size: u64,
        start: u64,
        end: u64,
    ) -> Option<Bytes> {
        let version = edition.version;
        let (file, pieces) = {
            let mut index = self.index.lock();
            index.clock += 1;
            let clock = index.clock;
            let item = index.items.get_mut(&fid)?;
            if !item.confirm(&edition) {
                drop(index);
                self.remove(fid);
                return None;
            }
            item.used = clock;
            let indices = start / PIECE..=(end - 1) / PIECE;
            let pieces: Option<Vec<(u64, Piece)>> =
                indices.map(|index| Some((index, *item.pieces.get(&index)?))).collect();
            if item.file.is_none() {
                item.file = fs::File::options()
                    .read(true)
                    .write(true)
                    .open(self.path(fid))
                    .ok()
                    .map(Arc::new);
            }
            (Arc::clone(item.file.as_ref()?), pieces?)
        };
        let mut whole = Vec::with_capacity((end - start) as usize + 2 * PIECE as usize);
        let mut compared = Vec::new();
        for (index, piece) in &pieces {
            if u64::from(piece.bytes) != (size - index * PIECE).min(PIECE) {
                // The piece ended at the file's end, which is elsewhere now.
                self.drop_piece(fid, version, *index);
                return None;
            }
            let at = whole.len();
            whole.resize(at + piece.bytes as usize, 0);
            let read = file.read_exact_at(&mut whole[at..], index * PIECE);
            let found = Piece::of(&whole[at..]);
            if read.is_err() || found.sum != piece.sum {
                tracing::warn!(%fid, piece = index, "damaged piece in the disk cache; fetching it \
                    from the server");
                self.drop_piece(fid, version, *index);
                return None;
            }
            if piece.blocks.is_none() {
                compared.push((*index, found));
            }
        }
        if !compared.is_empty() {
            self.know(fid, version, &compared);
        }
        let skip = (start - start / PIECE * PIECE) as usize;
        Some(Bytes::from(whole).slice(skip..skip + (end - start) as usize))
    }

    /// Stores those pieces of `bytes`, which lie at `offset` of this edition of `size` bytes, that
    /// are whole or reach the end of the file.
    pub fn store(&self, fid: Fid, edition: Edition, size: u64, offset: u64, bytes: &Bytes) {
        let end = offset + bytes.len() as u64;
        let first = offset.div_ceil(PIECE);
        let last = if end >= size { size.div_ceil(PIECE) } else { end / PIECE };
        if first >= last || size > self.bytes_max() / 2 {
            return;
        }
        let Some(file) = self.file_for(fid, edition) else { return };
        let whole =
            &bytes[(first * PIECE - offset) as usize..((last * PIECE).min(end) - offset) as usize];
        if let Err(error) = file.write_all_at(whole, first * PIECE) {
            tracing::debug!(%fid, %error, "cannot write to the disk cache; bytes are not cached");
            return;
        }
        let stored: Vec<_> =
            (first..last).zip(whole.chunks(PIECE as usize).map(Piece::of)).collect();
        self.enter(fid, edition.version, &stored);
        self.evict(Some(fid));
    }

    /// The file for this edition; an older one is emptied.
    fn file_for(&self, fid: Fid, edition: Edition) -> Option<Arc<fs::File>> {
        let stale =
            self.index.lock().items.get_mut(&fid).is_some_and(|item| !item.confirm(&edition));
        if stale {
            self.remove(fid);
        }
        let mut index = self.index.lock();
        if index.taken.contains_key(&fid) {
            return None;
        }
        index.clock += 1;
        let used = index.clock;
        let item = index.items.entry(fid).or_insert_with(|| Item {
            edition,
            pieces: HashMap::new(),
            bytes: 0,
            used,
            unwritten: 0,
            file: None,
        });
        if item.file.is_none() {
            let open = fs::File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(self.path(fid));
            item.file = open.ok().map(Arc::new);
        }
        item.used = used;
        item.file.clone()
    }

    fn enter(&self, fid: Fid, version: DataVersion, stored: &[(u64, Piece)]) {
        let mut index = self.index.lock();
        let Some(item) = index.items.get_mut(&fid).filter(|item| item.edition.version == version)
        else {
            return;
        };
        let mut grown = 0;
        for (number, piece) in stored {
            if item.pieces.insert(*number, *piece).is_none() {
                grown += PIECE;
            }
        }
        item.bytes += grown;
        item.unwritten += stored.len();
        let map = (item.unwritten >= MAP_EVERY.max(item.pieces.len() / 4))
            .then(|| map_of(item.edition, &item.pieces));
        if map.is_some() {
            item.unwritten = 0;
        }
        index.bytes += grown;
        drop(index);
        if let Some(map) = map {
            self.write_map(fid, &map);
        }
    }

    /// These pieces were compared with their sums.
    fn know(&self, fid: Fid, version: DataVersion, compared: &[(u64, Piece)]) {
        let mut index = self.index.lock();
        let Some(item) = index.items.get_mut(&fid).filter(|item| item.edition.version == version)
        else {
            return;
        };
        for (number, piece) in compared {
            if let Some(here) = item.pieces.get_mut(number).filter(|here| here.sum == piece.sum) {
                here.blocks = piece.blocks;
            }
        }
    }

    /// The missing pieces of this edition; `None` if all are missing.
    pub fn missing(&self, fid: Fid, edition: Edition, size: u64) -> Option<Vec<u64>> {
        let mut index = self.index.lock();
        let item = index.items.get_mut(&fid)?;
        if !item.confirm(&edition) {
            return None;
        }
        Some((0..size.div_ceil(PIECE)).filter(|number| !item.pieces.contains_key(number)).collect())
    }

    /// Takes the body out of the index, if all of this edition is here and verified, and no other
    /// process has the file open or mapped.
    pub fn take(&self, fid: Fid, edition: Edition, size: u64) -> Option<Taken> {
        let unknown: Vec<u64> = {
            let mut index = self.index.lock();
            let item = index.items.get_mut(&fid)?;
            if !item.confirm(&edition) {
                return None;
            }
            let pieces =
                (0..size.div_ceil(PIECE)).map(|number| Some((number, item.pieces.get(&number)?)));
            let pieces: Vec<_> = pieces.collect::<Option<_>>()?;
            pieces
                .iter()
                .filter(|(_, piece)| piece.blocks.is_none())
                .map(|(number, _)| *number)
                .collect()
        };
        if unknown.len() as u64 * PIECE > CHECK_MAX {
            return None;
        }
        for number in unknown {
            self.read(fid, edition, size, number * PIECE, ((number + 1) * PIECE).min(size))?;
        }
        let mut index = self.index.lock();
        let item =
            index.items.get_mut(&fid).filter(|item| item.edition.version == edition.version)?;
        let mut sums = Vec::with_capacity(size.div_ceil(SUMMED) as usize);
        for number in 0..size.div_ceil(PIECE) {
            let piece = item.pieces.get(&number)?;
            let bytes = (size - number * PIECE).min(PIECE);
            if u64::from(piece.bytes) != bytes {
                return None;
            }
            sums.extend_from_slice(&piece.blocks?[..bytes.div_ceil(SUMMED) as usize]);
        }
        if item.file.is_none() {
            item.file =
                fs::File::options().read(true).write(true).open(self.path(fid)).ok().map(Arc::new);
        }
        let file = item.file.as_ref()?;
        // A thread that fetched bytes before may still be about to write them.
        if Arc::strong_count(file) > 1 || mem::lease::is_open_elsewhere(file.as_fd()) != Ok(false) {
            return None;
        }
        let length = file.metadata().ok()?.len();
        if length < size || length > size && file.set_len(size).is_err() {
            return None;
        }
        let file = Arc::clone(file);
        let item = index.items.remove(&fid)?;
        let twice = index.taken.insert(fid, item.bytes);
        assert!(twice.is_none(), "PT-7: one kernel has the body, once");
        Some(Taken { file, sums, edition: item.edition, pieces: item.pieces })
    }

    /// The body comes back as this edition of `size` bytes, in which these pieces changed; or not
    /// at all.
    pub fn give_back(
        &self,
        fid: Fid,
        taken: Taken,
        now: Option<(Edition, u64)>,
        changed: &BTreeSet<u64>,
    ) {
        let Taken { file, mut pieces, edition: before, .. } = taken;
        let entered = now.and_then(|(edition, size)| {
            // Earlier bytes behind the end belong to no piece.
            file.set_len(size).ok()?;
            pieces.retain(|number, _| number * PIECE < size && !changed.contains(number));
            let missing: Vec<u64> =
                (0..size.div_ceil(PIECE)).filter(|number| !pieces.contains_key(number)).collect();
            for number in missing {
                let mut bytes = vec![0; (size - number * PIECE).min(PIECE) as usize];
                file.read_exact_at(&mut bytes, number * PIECE).ok()?;
                pieces.insert(number, Piece::of(&bytes));
            }
            // It may still be the edition of the instance in which it was taken.
            Some(Edition { instance: before.instance, ..edition })
        });
        let mut index = self.index.lock();
        let charged = index.taken.remove(&fid);
        debug_assert!(charged.is_some(), "PT-7: a body that comes back was taken");
        index.bytes -= charged.unwrap_or(0);
        let path = self.path(fid);
        let Some(edition) = entered else {
            let _ = fs::remove_file(map_path(&path));
            let _ = fs::remove_file(&path);
            return;
        };
        index.clock += 1;
        let (used, bytes) = (index.clock, pieces.len() as u64 * PIECE);
        index.bytes += bytes;
        let item = Item { edition, bytes, used, unwritten: pieces.len(), pieces, file: Some(file) };
        let beside = index.items.insert(fid, item);
        assert!(beside.is_none(), "PT-7: while the kernel has a body the cache has no other");
        drop(index);
        self.evict(Some(fid));
    }

    fn write_map(&self, fid: Fid, map: &[u8]) {
        let path = map_path(&self.path(fid));
        let new = path.with_extension("new");
        let written = fs::write(&new, map).and_then(|()| fs::rename(&new, &path));
        if let Err(error) = written {
            tracing::debug!(%fid, %error, "cannot write a map of the disk cache");
            let _ = fs::remove_file(&new);
        }
    }

    /// An own write took the file from the version `previous` to this edition.
    pub fn wrote(
        &self,
        fid: Fid,
        offset: u64,
        bytes: &Bytes,
        previous: DataVersion,
        edition: Edition,
    ) {
        let mut index = self.index.lock();
        let Some(item) = index.items.get_mut(&fid) else { return };
        if item.edition.instance == edition.instance && item.edition.version >= edition.version {
            return;
        }
        if item.edition.instance != edition.instance || item.edition.version != previous {
            drop(index);
            return self.remove(fid);
        }
        item.edition = edition;
        let touched = offset / PIECE..=(offset + bytes.len() as u64).saturating_sub(1) / PIECE;
        let before = item.pieces.len();
        // A piece at the file's end may now end elsewhere: its length no longer fits, so the next
        // read drops it.
        item.pieces.retain(|piece, _| !touched.contains(piece));
        let gone = (before - item.pieces.len()) as u64 * PIECE;
        item.bytes -= gone;
        item.unwritten += 1;
        index.bytes -= gone;
    }

    fn drop_piece(&self, fid: Fid, version: DataVersion, piece: u64) {
        let mut index = self.index.lock();
        let Some(item) = index.items.get_mut(&fid).filter(|item| item.edition.version == version)
        else {
            return;
        };
        if item.pieces.remove(&piece).is_some() {
            item.bytes -= PIECE;
            item.unwritten += 1;
            index.bytes -= PIECE;
        }
    }

    pub fn remove(&self, fid: Fid) {
        let mut index = self.index.lock();
        let Some(item) = index.items.remove(&fid) else { return };
        index.bytes -= item.bytes;
        let path = self.path(fid);
        // Under the lock, so that no thread makes it anew in between.
        let _ = fs::remove_file(map_path(&path));
        let _ = fs::remove_file(&path);
    }

    pub fn remove_volume(&self, volume: VolumeId) {
        let of = |fid: &&Fid| fid.volume == volume;
        let fids: Vec<Fid> = self.index.lock().items.keys().filter(of).copied().collect();
        fids.into_iter().for_each(|fid| self.remove(fid));
    }

    fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Sets the limit; what does not fit any more goes, but not bodies that the kernel has.
    pub fn resize(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        self.evict(None);
    }

    pub fn usage(&self) -> (u64, u64) {
        (self.index.lock().bytes, self.bytes_max())
    }

    /// Drops the longest unused files, but not `current`, until the rest fits.
    fn evict(&self, current: Option<Fid>) {
        loop {
            let victim = {
                let index = self.index.lock();
                if index.bytes <= self.bytes_max() {
                    return;
                }
                let others = index.items.iter().filter(|(fid, _)| Some(**fid) != current);
                others.min_by_key(|(_, item)| item.used).map(|(fid, _)| *fid)
            };
            let Some(victim) = victim else { return };
            self.remove(victim);
        }
    }

    /// The file is not used for the moment: writes its map and closes its descriptor.
    pub fn rest(&self, fid: Fid) {
        let map = {
            let mut index = self.index.lock();
            let Some(item) = index.items.get_mut(&fid) else { return };
            item.file = None;
            (std::mem::take(&mut item.unwritten) > 0).then(|| map_of(item.edition, &item.pieces))
        };
        if let Some(map) = map {
            self.write_map(fid, &map);
        }
    }

    pub fn rest_all(&self) {
        let all: Vec<Fid> = self.index.lock().items.keys().copied().collect();
        all.into_iter().for_each(|fid| self.rest(fid));
    }

    #[cfg(test)]
    fn bytes(&self) -> u64 {
        self.index.lock().bytes
    }
}

fn map_path(data: &Path) -> PathBuf {
    let mut name = data.as_os_str().to_owned();
    name.push(".map");
    name.into()
}

/// Loads one file of the cache directory, or removes it if it is of no use.
fn load(index: &mut Index, path: &Path) {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let data = name.strip_suffix(".map").unwrap_or(name);
    let data_path = path.with_file_name(data);
    let whole = data_path.exists() && map_path(&data_path).exists() && !name.ends_with(".new");
    let fid = fid_of(data).filter(|_| whole);
    let Some(fid) = fid else {
        let _ = fs::remove_file(path);
        return;
    };
    if name == data {
        return;
    }
    match fs::read(path).ok().and_then(|map| CacheMap::parse(&map)) {
        Some(CacheMap { edition, pieces }) => {
            let bytes = pieces.len() as u64 * PIECE;
            index.bytes += bytes;
            index
                .items
                .insert(fid, Item { edition, pieces, bytes, used: 0, unwritten: 0, file: None });
        }
        None => {
            let _ = fs::remove_file(path);
            let _ = fs::remove_file(data_path);
        }
    }
}

#[cfg(test)]
mod tests {
    use types::BootVerifier;

    use super::*;

    const FILE: Fid = Fid::new(7, 42, 3);

    fn data(size: usize, seed: u8) -> Bytes {
        (0..size).map(|i| (i / 1000) as u8 ^ seed).collect::<Vec<_>>().into()
    }

    fn at(version: u64) -> Edition {
        Edition {
            version: DataVersion(version),
            changed: 1000 + version,
            instance: BootVerifier(1),
        }
    }

    fn cache(dir: &Path) -> DiskCache {
        DiskCache::open(dir, 10 << 20).unwrap()
    }

    #[test]
    fn stored_bytes_are_read_after_a_restart_in_their_version_only() {
        let dir = tempfile::tempdir().unwrap();
        let (size, bytes) = (200_000u64, data(200_000, 1));
        let first = cache(dir.path());
        first.store(FILE, at(9), size, 0, &bytes);
        assert_eq!(first.read(FILE, at(9), size, 100_000, 200_000), Some(bytes.slice(100_000..)));
        first.rest_all();
        drop(first);
        let second = cache(dir.path());
        assert_eq!(second.read(FILE, at(9), size, 0, 200_000), Some(bytes));
        assert_eq!(second.read(FILE, at(10), size, 0, 1), None);
        assert_eq!(second.bytes(), 0, "an older version is no use and goes");
        assert!(!second.path(FILE).exists());
    }

    #[test]
    fn cb8_another_server_instance_serves_only_unchanged_files() {
        let dir = tempfile::tempdir().unwrap();
        let (bytes, next) = (data(PIECE as usize, 1), |edition: Edition| Edition {
            instance: BootVerifier(2),
            ..edition
        });
        let first = cache(dir.path());
        first.store(FILE, at(9), PIECE, 0, &bytes);
        let renamed = Edition { changed: 5000, ..at(9) };
        assert_eq!(
            first.read(FILE, renamed, PIECE, 0, PIECE),
            Some(bytes.clone()),
            "in one server instance the version suffices"
        );
        first.rest_all();
        let second = cache(dir.path());
        assert_eq!(second.read(FILE, next(renamed), PIECE, 0, PIECE), Some(bytes.clone()));
        assert_eq!(
            second.read(FILE, renamed, PIECE, 0, PIECE),
            Some(bytes),
            "it belongs to the instance in which it came"
        );
        assert_eq!(
            second.read(FILE, next(at(9)), PIECE, 0, PIECE),
            None,
            "another one with its number"
        );
        assert_eq!(second.bytes(), 0);
    }

    #[test]
    fn a_damaged_piece_is_not_served_and_the_others_are() {
        let dir = tempfile::tempdir().unwrap();
        let (size, bytes) = (3 * PIECE, data(3 * PIECE as usize, 2));
        let cache = cache(dir.path());
        cache.store(FILE, at(1), size, 0, &bytes);
        let file = fs::File::options().write(true).open(cache.path(FILE)).unwrap();
        file.write_all_at(b"rot", PIECE + 5).unwrap();
        assert_eq!(cache.read(FILE, at(1), size, 0, size), None);
        assert_eq!(
            cache.read(FILE, at(1), size, 2 * PIECE, size),
            Some(bytes.slice(2 * PIECE as usize..))
        );
        cache.store(FILE, at(1), size, PIECE, &bytes.slice(PIECE as usize..2 * PIECE as usize));
        assert_eq!(cache.read(FILE, at(1), size, 0, size), Some(bytes), "fetched again");
    }

    /// A map's sum finds accidents; it does not prove that the summed values make sense.
    #[test]
    fn lengths_in_a_map_take_no_memory_before_they_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        let first = cache(dir.path());
        first.store(FILE, at(1), PIECE, 0, &data(PIECE as usize, 3));
        first.rest_all();
        let pieces = HashMap::from([(0, Piece { bytes: u32::MAX, sum: 0, blocks: None })]);
        fs::write(map_path(&first.path(FILE)), map_of(at(1), &pieces)).unwrap();
        let second = cache(dir.path());
        assert_eq!(second.bytes(), PIECE, "the map itself is in order");
        assert_eq!(second.read(FILE, at(1), PIECE, 0, 1), None);
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(peak < 1 << 20, "{peak} KiB were taken for a piece of 64");
        assert_eq!(second.bytes(), 0, "the piece is dropped");
    }

    #[test]
    fn a_damaged_or_torn_map_is_thrown_away() {
        for cut in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let first = cache(dir.path());
            first.store(FILE, at(1), PIECE, 0, &data(PIECE as usize, 3));
            first.rest_all();
            let path = map_path(&first.path(FILE));
            let mut map = fs::read(&path).unwrap();
            if cut {
                map.truncate(map.len() - 1);
            } else {
                map[9] ^= 1;
            }
            fs::write(&path, map).unwrap();
            let second = cache(dir.path());
            assert_eq!(second.read(FILE, at(1), PIECE, 0, 1), None);
            assert!(!second.path(FILE).exists() && !path.exists());
        }
    }

    #[test]
    fn only_whole_pieces_are_stored_and_own_writes_remove_theirs() {
        let dir = tempfile::tempdir().unwrap();
        let cache = cache(dir.path());
        let size = 4 * PIECE;
        cache.store(FILE, at(1), size, 1, &data(2 * PIECE as usize, 4));
        assert_eq!(cache.bytes(), PIECE, "piece 1 alone is whole");
        cache.wrote(FILE, 2 * PIECE, &data(1, 5), DataVersion(1), at(2));
        assert!(
            cache.read(FILE, at(2), size, PIECE, 2 * PIECE).is_some(),
            "the version went along"
        );
        cache.wrote(FILE, PIECE, &data(1, 5), DataVersion(2), at(3));
        assert_eq!(cache.read(FILE, at(3), size, PIECE, 2 * PIECE), None);
        cache.wrote(FILE, 0, &data(1, 5), DataVersion(7), at(8));
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn the_longest_unused_go_when_it_is_full() {
        let dir = tempfile::tempdir().unwrap();
        let cache = DiskCache::open(dir.path(), 4 * PIECE).unwrap();
        let piece = data(PIECE as usize, 6);
        let file = |n: u64| Fid::new(1, 2 * n, 1);
        for n in 0..4 {
            cache.store(file(n), at(1), PIECE, 0, &piece);
        }
        assert!(cache.read(file(0), at(1), PIECE, 0, 1).is_some());
        cache.store(file(4), at(1), PIECE, 0, &piece);
        assert_eq!(cache.bytes(), 4 * PIECE);
        assert!(cache.read(file(0), at(1), PIECE, 0, 1).is_some(), "just used");
        assert!(cache.read(file(1), at(1), PIECE, 0, 1).is_none());
        assert!(!cache.path(file(1)).exists());
    }

    #[test]
    fn a_disk_that_takes_nothing_means_no_cache_and_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let cache = cache(dir.path());
        fs::remove_dir_all(dir.path().join("data")).unwrap();
        cache.store(FILE, at(1), PIECE, 0, &data(PIECE as usize, 7));
        assert_eq!(cache.read(FILE, at(1), PIECE, 0, 1), None);
        cache.rest_all();
    }
}
