//! The database in a directory of one server: RocksDB, every change one synced batch.
//!
//! RocksDB because the store has it already: one engine to know. Changes are rare and small here; a
//! batch holds the record, the pointers to it by name and numbers, the revision's change, and the
//! counters, so that after a crash all of it is there or nothing. Only one process has it open, and
//! only one thread makes a change, so no change overtakes another.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use guard::Rules;
use parking_lot::RwLock;
use rocksdb::{
    ColumnFamilyDescriptor, DB, DBCompressionType, DEFAULT_COLUMN_FAMILY_NAME, Direction,
    IteratorMode, LogLevel, Options, Snapshot, WriteBatch, WriteOptions,
};
use types::{Changed, Name, Revised, Revision, ServerId, ServerInfo, VolumeGroup, VolumeId};
use waldb::Synced;

use crate::engine::{Batch, Commit, Engine, View, Visit};
use crate::format::{check_format, put_format};
use crate::listeners::Listeners;
use crate::operations::{CHANGES_KEPT, Held, Operations};
use crate::{Access, CELL_LEVEL_KNOWN, CellCopy, CellDb, CellError};

mod access;
mod copy;
mod fill;

pub(crate) use fill::FilesFill;

type Result<T> = std::result::Result<T, CellError>;

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
    operations: Operations<Files>,
    /// The other servers.
    listeners: Listeners,
    /// Fences, administrators, and the keys of servers: all of them, and the revision of their last
    /// change.
    rules: RwLock<Arc<Revised<Rules>>>,
    rules_at: AtomicU64,
}

/// The open database.
pub(crate) struct Files {
    /// Shared with the threads of copies.
    db: Arc<DB>,
    /// The synced sequence number, which the next start must find.
    synced: Synced,
    path: PathBuf,
    /// The last revision: each call reads it.
    latest: AtomicU64,
    /// The directory of RocksDB's own log, which is not read.
    _diary: Option<tempfile::TempDir>,
}

/// A snapshot.
pub(crate) struct FilesView<'a>(Snapshot<'a>);

impl View for FilesView<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.0.get(key).map_err(|error| medium(&error))
    }

    fn scan(&self, from: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        for found in self.0.iterator(IteratorMode::From(from, Direction::Forward)) {
            let (key, value) = found.map_err(|error| medium(&error))?;
            if !visit(&key, &value)? {
                break;
            }
        }
        Ok(())
    }
}

impl Engine for Files {
    type View<'a> = FilesView<'a>;

    fn view(&self) -> FilesView<'_> {
        FilesView(self.db.snapshot())
    }

    fn commit(&self, _view: &FilesView<'_>, batch: &Batch, next: Revision) -> Result<Commit> {
        write(&self.db, batch, true)?;
        // No other batch comes between: the caller has the right to make changes.
        self.synced.note(self.db.latest_sequence_number());
        self.latest.store(next.0, Ordering::Release);
        Ok(Commit::Done)
    }

    fn need_room(&self) -> Result<()> {
        need_room(&self.path)
    }
}

fn write(db: &DB, batch: &Batch, synced: bool) -> Result<()> {
    let mut all = WriteBatch::default();
    for (key, value) in batch.iter() {
        match value {
            Some(value) => all.put(key, value),
            None => all.delete(key),
        }
    }
    let mut options = WriteOptions::default();
    options.set_sync(synced);
    db.write_opt(all, &options).map_err(|error| medium(&error))
}

impl Embedded {
    /// Opens the database in `path`, or creates it.
    ///
    /// # Errors
    /// `Medium` if another process has it open, or the disk fails; `Damaged`; `Version` if a newer
    /// program made it; `Level` if this program does not know the cell's level.
    pub fn open(path: &Path) -> Result<Embedded> {
        Self::open_with(path, CHANGES_KEPT, CELL_LEVEL_KNOWN)
    }

    /// As [`Embedded::open`]; a new database begins with this level, so that servers with older
    /// programs can join.
    ///
    /// # Errors
    /// As [`Embedded::open`]; `Level` if this program does not know the level.
    pub fn open_at(path: &Path, level: u32) -> Result<Embedded> {
        if !(1..=CELL_LEVEL_KNOWN).contains(&level) {
            return Err(CellError::Level { found: level, known: CELL_LEVEL_KNOWN });
        }
        Self::open_with(path, CHANGES_KEPT, level)
    }

    pub(crate) fn open_with(path: &Path, changes_kept: u64, level: u32) -> Result<Embedded> {
        let format = check_format(path)?;
        let (db, synced, diary) = open_files(path)?;
        let files = Files {
            db: Arc::new(db),
            synced,
            path: path.to_owned(),
            latest: AtomicU64::new(0),
            _diary: diary,
        };
        (&files.view() as &dyn View).need_known_level()?;
        let counters = (&files.view() as &dyn View).counters()?;
        files.latest.store(counters.revision, Ordering::Release);
        if format.is_none() {
            put_format(path)?;
        }
        let operations = Operations::new(files, changes_kept);
        operations.begin(&operations.hold(), level)?;
        let rules = operations.read(|view| view.rules())?;
        let rules_at = AtomicU64::new(rules.revision.0);
        let (listeners, rules) = (Listeners::default(), RwLock::new(Arc::new(rules)));
        Ok(Embedded { operations, listeners, rules, rules_at })
    }

    #[cfg(test)]
    pub(crate) fn make<T>(&self, act: impl FnOnce(&Operations<Files>) -> T) -> T {
        act(&self.operations)
    }

    fn set_rules(&self, _held: &Held<'_>, record: Rules, revision: Revision) {
        let mut rules = self.rules.write();
        assert!(
            rules.revision <= revision,
            "AC-2: rules of {revision:?} do not replace those of {:?}",
            rules.revision
        );
        *rules = Arc::new(Revised { record, revision });
        drop(rules);
        self.rules_at.store(revision.0, Ordering::Release);
    }

    /// Puts the listed keys into the rules in memory. If they cannot be read, there are none: a
    /// withdrawn key must not be accepted.
    fn refresh_keys(&self, held: &Held<'_>, revision: Revision) {
        let servers = self.operations.read(|view| view.server_keys()).unwrap_or_else(|error| {
            tracing::error!(
                %error,
                "the keys of servers cannot be read: every server is refused until a change of one \
                 of them; check the disk of the cell's database"
            );
            guard::ServerKeys::default()
        });
        let rules = Rules { servers, ..self.rules.read().record.clone() };
        self.set_rules(held, rules, revision);
    }
}

/// The open database, the note of what is synced, and the directory of RocksDB's own log.
type Opened = (DB, Synced, Option<tempfile::TempDir>);

fn open_files(path: &Path) -> Result<Opened> {
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

impl CellDb for Embedded {
    fn group_named(&self, name: &Name) -> Result<Option<Revised<VolumeGroup>>> {
        self.operations.read(|view| view.group_named(name))
    }

    fn group_of(&self, number: VolumeId) -> Result<Option<Revised<VolumeGroup>>> {
        self.operations.read(|view| view.group_of(number))
    }

    fn groups(&self, after: VolumeId, max: usize) -> Result<Vec<Revised<VolumeGroup>>> {
        self.operations.read(|view| view.groups(after, max))
    }

    fn put_group(&self, group: &VolumeGroup, expected: Revision) -> Result<Revision> {
        self.operations.put_group(&self.operations.hold(), group, expected)
    }

    fn remove_group(&self, read_write: VolumeId, expected: Revision) -> Result<Revision> {
        self.operations.remove_group(&self.operations.hold(), read_write, expected)
    }

    fn take_numbers(&self, above: VolumeId, count: u32) -> Result<VolumeId> {
        self.operations.take_numbers(&self.operations.hold(), above, count)
    }

    fn servers(&self) -> Result<Vec<Revised<ServerInfo>>> {
        self.operations.read(|view| view.listed_servers())
    }

    fn put_server(&self, server: &ServerInfo, expected: Revision) -> Result<Revision> {
        let held = self.operations.hold();
        let (revision, changes_keys) = self.operations.put_server(&held, server, expected)?;
        if changes_keys {
            self.refresh_keys(&held, revision);
        }
        drop(held);
        if changes_keys {
            // The server itself makes this call, and fetches no changes meanwhile.
            self.listeners.wait_for(revision, Some(server.id));
        }
        Ok(revision)
    }

    fn remove_server(&self, id: ServerId, expected: Revision) -> Result<Revision> {
        let held = self.operations.hold();
        let revision = self.operations.remove_server(&held, id, expected)?;
        self.refresh_keys(&held, revision);
        drop(held);
        self.listeners.wait_for(revision, Some(id));
        Ok(revision)
    }

    fn revision(&self) -> Result<Revision> {
        Ok(Revision(self.operations.read(|view| view.counters())?.revision))
    }

    fn changes(&self, since: Revision, max: usize) -> Result<Vec<(Revision, Changed)>> {
        self.operations.read(|view| view.changes(since, max))
    }

    fn copy(&self) -> Result<Box<dyn CellCopy>> {
        self.begin_copy()
    }

    fn access(&self) -> &dyn Access {
        self
    }
}
