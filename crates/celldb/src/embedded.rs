//! The database in a directory of one server: RocksDB, every change one synced batch.
//!
//! RocksDB because the store has it already: one engine to know. Changes are rare and small here; a
//! batch holds the record, the pointers to it by name and numbers, the revision's change, and the
//! counters, so that after a crash all of it is there or nothing.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use guard::Rules;
use parking_lot::{Mutex, RwLock};
use rocksdb::{
    ColumnFamilyDescriptor, DB, DBCompressionType, DEFAULT_COLUMN_FAMILY_NAME, Direction,
    IteratorMode, LogLevel, Options, WriteBatch, WriteOptions,
};
use types::{
    Changed, Name, Revised, Revision, ServerId, ServerInfo, SiteKind, VolumeGroup, VolumeId,
};
use waldb::Synced;

use crate::format::{check_format, put_format};
use crate::listeners::Listeners;
use crate::record::{self, CellCounters};
use crate::{Access, CellCopy, CellDb, CellError, key};

pub use restore::{Restored, Restoring};

type Result<T> = std::result::Result<T, CellError>;

/// Takes a record; returns whether it wants another.
type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<bool> + 'a;

/// The number of changes that are stored. Other servers fetch them every few seconds.
const CHANGES_KEPT: u64 = 1 << 16;
/// The free space on the disk below which nothing is added: RocksDB ends the process when its log
/// finds none.
const ROOM_BYTES_MIN: u64 = 8 << 20;
/// Changes in memory before they become a table. RocksDB reserves as much of the disk for each log,
/// and a little more.
const MEMTABLE_BYTES: usize = 1 << 20;
/// Reserved for the list of tables.
const MANIFEST_BYTES: usize = 64 << 10;

/// See the head of the file.
pub struct Embedded {
    /// Shared with the threads of copies.
    db: Arc<DB>,
    /// The synced sequence number, which the next start must find.
    synced: Synced,
    path: PathBuf,
    /// Held while a change is made.
    counters: Mutex<CellCounters>,
    /// The last revision, without the lock: each call reads it.
    latest: AtomicU64,
    /// The other servers.
    listeners: Listeners,
    /// Held while principals are changed: whether a change is allowed depends on all of them.
    principals: Mutex<()>,
    /// Fences, administrators, and the keys of servers: all of them, and the revision of their last
    /// change.
    rules: RwLock<Arc<Revised<Rules>>>,
    rules_at: AtomicU64,
    changes_kept: u64,
    /// The directory of RocksDB's own log, which is not read.
    _diary: Option<tempfile::TempDir>,
}

impl Embedded {
    /// Opens the database in `path`, or creates it.
    ///
    /// # Errors
    /// `Medium` if another process has it open, or the disk fails; `Damaged`; `Version` if a newer
    /// program made it.
    pub fn open(path: &Path) -> Result<Embedded> {
        Self::open_with(path, CHANGES_KEPT)
    }

    fn open_with(path: &Path, changes_kept: u64) -> Result<Embedded> {
        let format = check_format(path)?;
        let (db, synced, diary) = open_files(path)?;
        let stored = db.get(key::COUNTERS).map_err(|error| medium(&error))?;
        let counters = match stored {
            Some(value) => record::decode_counters(key::COUNTERS, &value)?,
            None => CellCounters { next_number: 1, ..CellCounters::default() },
        };
        let embedded = Embedded {
            db: Arc::new(db),
            synced,
            path: path.to_owned(),
            counters: Mutex::new(counters),
            latest: AtomicU64::new(counters.revision),
            listeners: Listeners::default(),
            principals: Mutex::new(()),
            rules: RwLock::default(),
            rules_at: AtomicU64::new(0),
            changes_kept,
            _diary: diary,
        };
        if format.is_none() {
            put_format(path)?;
        }
        embedded.add_system_principals()?;
        embedded.load_rules()?;
        Ok(embedded)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.db.get(key).map_err(|error| medium(&error))
    }

    fn group(&self, read_write: VolumeId) -> Result<Option<Revised<VolumeGroup>>> {
        let key = key::group(read_write);
        self.get(&key)?.map(|value| record::decode_group(&key, &value)).transpose()
    }

    /// The group to which a name or number points.
    fn pointer(&self, key: &[u8]) -> Result<Option<VolumeId>> {
        self.get(key)?.map(|value| record::decode_pointer(key, &value)).transpose()
    }

    /// Visits records from `from` on in the order of their keys, as long as `visit` returns true.
    fn scan(&self, from: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        for found in self.db.iterator(IteratorMode::From(from, Direction::Forward)) {
            let (key, value) = found.map_err(|error| medium(&error))?;
            if !visit(&key, &value)? {
                break;
            }
        }
        Ok(())
    }

    /// Makes a change: the batch that `fill` builds, with its revision.
    fn change(
        &self,
        counters: &mut CellCounters,
        changed: Changed,
        fill: impl FnOnce(Revision, &mut CellCounters, &mut WriteBatch),
    ) -> Result<Revision> {
        let mut next = CellCounters { revision: counters.revision + 1, ..*counters };
        let revision = Revision(next.revision);
        let mut batch = WriteBatch::default();
        fill(revision, &mut next, &mut batch);
        assert_eq!(next.revision, revision.0, "AC-12: a change has one revision");
        let key = key::change(revision);
        batch.put(&key, record::encode_change(&key, revision, changed));
        while next.revision - next.oldest_change > self.changes_kept {
            next.oldest_change += 1;
            batch.delete(key::change(Revision(next.oldest_change)));
        }
        self.write(batch, counters, next)?;
        Ok(revision)
    }

    fn write(
        &self,
        mut batch: WriteBatch,
        counters: &mut CellCounters,
        next: CellCounters,
    ) -> Result<()> {
        assert!(
            next.next_number >= counters.next_number,
            "VO-2: {} would be given again, after {}",
            next.next_number,
            counters.next_number
        );
        assert!(
            next.revision >= counters.revision && next.oldest_change >= counters.oldest_change,
            "AC-12: revisions rise: {next:?} after {counters:?}"
        );
        batch.put(key::COUNTERS, record::encode_counters(key::COUNTERS, next));
        let mut options = WriteOptions::default();
        options.set_sync(true);
        self.db.write_opt(batch, &options).map_err(|error| medium(&error))?;
        // No other batch comes between: the caller holds the counters.
        self.synced.note(self.db.latest_sequence_number());
        *counters = next;
        self.latest.store(next.revision, Ordering::Release);
        Ok(())
    }

    fn need_room(&self) -> Result<()> {
        need_room(&self.path)
    }

    /// Checks that no other group has the name or the numbers.
    fn need_free(&self, group: &VolumeGroup) -> Result<()> {
        let mine = group.read_write;
        let name = String::from_utf8_lossy(group.name.as_bytes()).into_owned();
        let names = [(key::name(&group.name), format!("the name {name}"))];
        let numbers =
            group.numbers().map(|number| (key::number(number), format!("the number {}", number.0)));
        for (key, what) in names.into_iter().chain(numbers) {
            if let Some(by) = self.pointer(&key)?.filter(|by| *by != mine) {
                return Err(CellError::Taken { what, by });
            }
        }
        Ok(())
    }
}

/// The open database, the note of what is synced, and the directory of RocksDB's own log.
type Files = (DB, Synced, Option<tempfile::TempDir>);

fn open_files(path: &Path) -> Result<Files> {
    need_room(path)?;
    let diary = tempfile::tempdir().ok();
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_max_background_jobs(2);
    options.set_max_open_files(256);
    options.set_write_buffer_size(MEMTABLE_BYTES);
    options.set_max_total_wal_size(2 * MEMTABLE_BYTES as u64);
    options.set_manifest_preallocation_size(MANIFEST_BYTES);
    options.set_log_level(LogLevel::Error);
    if let Some(diary) = &diary {
        options.set_db_log_dir(diary.path());
    }
    // It has hashes of passwords; RocksDB would make it readable by every user of the machine.
    let closed = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    closed.map_err(|error| CellError::Medium(format!("{}: {error}", path.display())))?;
    let families = || {
        let mut family = Options::default();
        family.set_compression_type(DBCompressionType::Lz4);
        family.set_write_buffer_size(MEMTABLE_BYTES);
        vec![ColumnFamilyDescriptor::new(DEFAULT_COLUMN_FAMILY_NAME, family)]
    };
    let (db, synced) = waldb::open(&mut options, path, families).map_err(|error| match error {
        waldb::WalOpenError::Lost { .. } => {
            CellError::Damaged(format!("{}: {error}", path.display()))
        }
        _ => {
            CellError::Medium(format!("{}: {error} (is another server using it?)", path.display()))
        }
    })?;
    Ok((db, synced, diary))
}

/// Checks that the disk below `path`, which need not exist yet, has room for a log.
fn need_room(path: &Path) -> Result<()> {
    let there = path.ancestors().find(|path| path.exists()).unwrap_or(path);
    let about = rustix::fs::statvfs(there).map_err(|error| {
        CellError::Medium(format!("{}: {}", path.display(), std::io::Error::from(error)))
    })?;
    if about.f_bavail.saturating_mul(about.f_frsize) < ROOM_BYTES_MIN {
        return Err(CellError::Medium(format!(
            "no room is left on the disk of {}",
            path.display()
        )));
    }
    Ok(())
}

fn medium(error: &rocksdb::Error) -> CellError {
    if error.kind() == rocksdb::ErrorKind::Corruption {
        return CellError::Damaged(error.to_string());
    }
    CellError::Medium(error.to_string())
}

fn need_seen(expected: Revision, found: Revision) -> Result<()> {
    if expected == found { Ok(()) } else { Err(CellError::Conflict { expected, found }) }
}

fn revision_of<T>(seen: Option<&Revised<T>>) -> Revision {
    seen.map_or(Revision::default(), |seen| seen.revision)
}

/// Checks that the record is consistent.
fn need_sound(group: &VolumeGroup) -> Result<()> {
    let numbers: Vec<VolumeId> = group.numbers().collect();
    let twice = |at: usize| numbers[..at].contains(&numbers[at]);
    if numbers.iter().any(|number| number.0 == 0) || (0..numbers.len()).any(twice) {
        return Err(CellError::Misuse("the numbers of a group differ and are not 0".to_owned()));
    }
    if group.sites.iter().filter(|site| site.kind == SiteKind::ReadWrite).count() > 1 {
        return Err(CellError::Misuse("a group has one read-write site".to_owned()));
    }
    let place =
        |at: usize| (group.sites[at].server, &group.sites[at].partition, group.sites[at].kind);
    if (0..group.sites.len()).any(|at| (0..at).any(|before| place(before) == place(at))) {
        return Err(CellError::Misuse("a group has a site once".to_owned()));
    }
    Ok(())
}

/// Removes the pointers to a group.
fn forget(group: &VolumeGroup, batch: &mut WriteBatch) {
    batch.delete(key::name(&group.name));
    group.numbers().for_each(|number| batch.delete(key::number(number)));
}

impl CellDb for Embedded {
    fn group_named(&self, name: &Name) -> Result<Option<Revised<VolumeGroup>>> {
        // Between two gets the group may be renamed or removed: its own record decides.
        let Some(read_write) = self.pointer(&key::name(name))? else { return Ok(None) };
        Ok(self.group(read_write)?.filter(|seen| seen.record.name == *name))
    }

    fn group_of(&self, number: VolumeId) -> Result<Option<Revised<VolumeGroup>>> {
        let Some(read_write) = self.pointer(&key::number(number))? else { return Ok(None) };
        Ok(self.group(read_write)?.filter(|seen| seen.record.numbers().any(|of| of == number)))
    }

    fn groups(&self, after: VolumeId, max: usize) -> Result<Vec<Revised<VolumeGroup>>> {
        let mut groups = Vec::new();
        let Some(first) = after.0.checked_add(1) else { return Ok(groups) };
        let from = key::group(VolumeId(first));
        self.scan(&from, &mut |key, value| {
            if key.first() != from.first() || groups.len() == max {
                return Ok(false);
            }
            groups.push(record::decode_group(key, value)?);
            Ok(true)
        })?;
        Ok(groups)
    }

    fn put_group(&self, group: &VolumeGroup, expected: Revision) -> Result<Revision> {
        need_sound(group)?;
        let mut counters = self.counters.lock();
        self.need_room()?;
        let before = self.group(group.read_write)?;
        need_seen(expected, revision_of(before.as_ref()))?;
        self.need_free(group)?;
        self.change(&mut counters, Changed::Group(group.read_write), |revision, next, batch| {
            if let Some(before) = &before {
                forget(&before.record, batch);
            }
            let key = key::group(group.read_write);
            batch.put(&key, record::encode_group(&key, revision, group));
            let numbers = group.numbers().map(key::number);
            for key in numbers.chain([key::name(&group.name)]) {
                batch.put(&key, record::encode_pointer(&key, group.read_write));
            }
            // A group from another database brings its numbers.
            let highest = group.numbers().map(|number| number.0).max().unwrap_or(0);
            next.next_number = next.next_number.max(highest.saturating_add(1));
            debug_assert!(
                group.numbers().all(|number| number.0 < next.next_number),
                "VO-2: a number of the group would be given again"
            );
        })
    }

    fn remove_group(&self, read_write: VolumeId, expected: Revision) -> Result<Revision> {
        let mut counters = self.counters.lock();
        let before = self.group(read_write)?;
        need_seen(expected, revision_of(before.as_ref()))?;
        self.change(&mut counters, Changed::Group(read_write), |_, _, batch| {
            if let Some(before) = &before {
                forget(&before.record, batch);
            }
            batch.delete(key::group(read_write));
        })
    }

    fn take_numbers(&self, above: VolumeId, count: u32) -> Result<VolumeId> {
        let mut counters = self.counters.lock();
        self.need_room()?;
        let first = counters.next_number.max(above.0.saturating_add(1));
        let end = first.checked_add(u64::from(count)).filter(|end| *end < u64::MAX);
        let next_number =
            end.ok_or_else(|| CellError::Misuse("there are no more numbers".to_owned()))?;
        assert!(first > above.0 && first >= counters.next_number, "VO-2: {first} was given");
        let next = CellCounters { next_number, ..*counters };
        self.write(WriteBatch::default(), &mut counters, next)?;
        Ok(VolumeId(first))
    }

    fn servers(&self) -> Result<Vec<Revised<ServerInfo>>> {
        self.listed_servers()
    }

    fn put_server(&self, server: &ServerInfo, expected: Revision) -> Result<Revision> {
        self.write_server(server, expected)
    }

    fn remove_server(&self, id: ServerId, expected: Revision) -> Result<Revision> {
        self.erase_server(id, expected)
    }

    fn revision(&self) -> Result<Revision> {
        Ok(Revision(self.counters.lock().revision))
    }

    fn changes(&self, since: Revision, max: usize) -> Result<Vec<(Revision, Changed)>> {
        // Held, so that no change that is returned is removed meanwhile.
        let counters = self.counters.lock();
        let oldest = Revision(counters.oldest_change);
        if since < oldest {
            return Err(CellError::Forgotten { oldest });
        }
        let mut changes = Vec::new();
        if since.0 >= counters.revision {
            return Ok(changes);
        }
        self.scan(&key::change(Revision(since.0 + 1)), &mut |key, value| {
            let Some(revision) = key::revision_of(key).filter(|_| changes.len() < max) else {
                return Ok(false);
            };
            debug_assert!(
                changes.last().map_or(since, |(before, _)| *before) < revision,
                "AC-12: changes are told in the order of their revisions"
            );
            changes.push((revision, record::decode_change(key, value)?));
            Ok(true)
        })?;
        Ok(changes)
    }

    fn copy(&self) -> Result<Box<dyn CellCopy>> {
        self.begin_copy()
    }

    fn access(&self) -> &dyn Access {
        self
    }
}

mod copy;
mod principals;
mod restore;
mod rules;
mod servers;
#[cfg(test)]
mod tests;
