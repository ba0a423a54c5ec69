//! RocksDB as engine.
//!
//! The log is written with every batch (so it survives the process) and synced on request. Inline
//! bodies have a column family of their own, so that scans of vnodes and entries skip them; there
//! is one log, so a batch over both is still atomic.
//!
//! Debian's build of RocksDB has assertions enabled, and one of them ends the process when a file
//! that once found no room is used again. So the store protects the log from that (`media` stops in
//! time), and RocksDB's info log is not on the partition.

use std::ops::ControlFlow;
use std::path::Path;

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB,
    DBCompressionType, Direction, IteratorMode, LogLevel, MergeOperands, Options, ReadOptions,
    WriteBatch,
};
use waldb::Synced;

use super::{Batch, Engine, EngineChange, Visit, add_numbers};
use crate::StoreError;
use crate::format::key::{self, Key};

/// Column family of inline bodies.
const INLINE: &str = "inline";
/// Bytes of changes in memory before they become a table: bounds how much a start after a crash
/// replays.
const MEMTABLE_BYTES_MAX: u64 = 16 << 20;
/// The memtable's part of a small disk: logs, which are allocated a memtable at a time, get an
/// eighth.
const MEMTABLE_DISK_PART: u64 = 64;
/// The filter's additional part of a memtable's room: 10 bits for each of a hundred thousand
/// records of 160 bytes.
const MEMTABLE_FILTER_PART: f64 = 0.01;
/// The log's size, in memtables, after which the oldest changes are written to tables.
const LOG_MEMTABLES_MAX: u64 = 2;
/// Tables kept open: bounds descriptors.
const OPEN_TABLES_MAX: i32 = 512;

pub(crate) struct RocksEngine {
    db: DB,
    synced: Synced,
}

impl RocksEngine {
    /// Opens (or, with `create`, makes) the database in `path`, on a disk of `disk_bytes`.
    pub(crate) fn open(
        path: &Path,
        cache_bytes: usize,
        disk_bytes: u64,
        create: bool,
    ) -> Result<RocksEngine, waldb::WalOpenError> {
        let cache = Cache::new_lru_cache(cache_bytes)?;
        let memtable = (disk_bytes / MEMTABLE_DISK_PART).clamp(1 << 20, MEMTABLE_BYTES_MAX);
        let mut options = Options::default();
        options.create_if_missing(create);
        options.create_missing_column_families(create);
        options.set_error_if_exists(create);
        options.set_max_total_wal_size(memtable * LOG_MEMTABLES_MAX);
        options.set_max_open_files(OPEN_TABLES_MAX);
        options.set_max_background_jobs(2);
        // The files of a directory are close together, and readers of directories come in that
        // order.
        options.set_advise_random_on_open(false);
        options.set_bytes_per_sync(1 << 20);
        let info_log_dir = info_log_dir();
        if let Some(info_log_dir) = &info_log_dir {
            options.set_log_level(LogLevel::Error);
            options.set_db_log_dir(info_log_dir.path());
        }
        let families = || {
            [rocksdb::DEFAULT_COLUMN_FAMILY_NAME, INLINE]
                .map(|name| {
                    ColumnFamilyDescriptor::new(name, family_options(&cache, memtable as usize))
                })
                .into()
        };
        let (db, synced) = waldb::open(&mut options, path, families)?;
        Ok(RocksEngine { db, synced })
    }

    fn family(&self, key: &[u8]) -> &ColumnFamily {
        let name = if key::is_inline(key) { INLINE } else { rocksdb::DEFAULT_COLUMN_FAMILY_NAME };
        self.db.cf_handle(name).expect("both families are opened with the database")
    }
}

/// The directory of RocksDB's info log, which is not read: memory, freed when the process ends,
/// since the directory itself is removed once the database is open. Calls return the errors that
/// the info log would contain.
fn info_log_dir() -> Option<tempfile::TempDir> {
    let made = ["/dev/shm".as_ref(), std::env::temp_dir().as_path()]
        .into_iter()
        .find_map(|place| tempfile::Builder::new().prefix("rialto-").tempdir_in(place).ok());
    if made.is_none() {
        tracing::warn!(
            "RocksDB writes its info log to the partition, where a full disk ends the process: \
                make /dev/shm or the temporary directory writable"
        );
    }
    made
}

/// Bytes of one partition of a filter or an index, as RocksDB recommends.
const METADATA_BLOCK_BYTES: usize = 4096;

fn family_options(cache: &Cache, memtable_bytes: usize) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_bloom_filter(10.0, false);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    // A whole filter of a large table is megabytes, which a small cache reads again for every get:
    // with partitions only those in use stay. (A directory of a million entries cost 300 us an
    // entry without, all of it in reading filters.)
    table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    table.set_partition_filters(true);
    table.set_metadata_block_size(METADATA_BLOCK_BYTES);
    table.set_pin_top_level_index_and_filter(true);
    table.set_format_version(5);
    let mut options = Options::default();
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_size(memtable_bytes);
    // Most gets of a change find no record yet: a new name's bucket, a new file's slot.
    options.set_memtable_whole_key_filtering(true);
    options.set_memtable_prefix_bloom_ratio(MEMTABLE_FILTER_PART);
    options.set_max_write_buffer_number(3);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_bottommost_compression_type(DBCompressionType::Zstd);
    options.set_merge_operator_associative("rialto.add", merge);
    options
}

fn merge(_key: &[u8], value: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let mut sum = value.map(<[u8]>::to_vec).unwrap_or_default();
    for by in operands {
        add_numbers(&mut sum, by);
    }
    Some(sum)
}

fn sorted(error: &rocksdb::Error) -> StoreError {
    let text = error.as_ref();
    if text.contains("No space left on device") || text.contains("Disk quota exceeded") {
        StoreError::NoSpace
    } else if error.kind() == rocksdb::ErrorKind::Corruption {
        StoreError::Damaged(format!("metadata engine ({text})"))
    } else {
        StoreError::Medium(format!("metadata engine: {text}"))
    }
}

impl Engine for RocksEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.db.get_cf(self.family(key), key).map_err(|e| sorted(&e))
    }

    fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        let found = self.db.batched_multi_get_cf(self.family(first), keys, true);
        found
            .into_iter()
            .map(|value| Ok(value.map_err(|e| sorted(&e))?.map(|value| value.to_vec())))
            .collect()
    }

    fn scan(&self, from: &[u8], end: &[u8], visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(end);
        let mode = IteratorMode::From(from, Direction::Forward);
        for record in self.db.iterator_cf_opt(self.family(from), options, mode) {
            let (key, value) = record.map_err(|e| sorted(&e))?;
            if visit(&key, &value) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn apply(&self, batch: &Batch) -> Result<(), StoreError> {
        let mut write = WriteBatch::default();
        for change in batch.changes() {
            match change {
                EngineChange::Put(key, value) => write.put_cf(self.family(key), key, value),
                EngineChange::Delete(key) => write.delete_cf(self.family(key), key),
                EngineChange::DeleteRange(from, end) => {
                    write.delete_range_cf(self.family(from), from, end);
                }
                EngineChange::Add(key, by) => write.merge_cf(self.family(key), key, by),
            }
        }
        self.db.write(write).map_err(|e| sorted(&e))
    }

    fn sync(&self) -> Result<(), StoreError> {
        let covered = self.db.latest_sequence_number();
        self.db.flush_wal(true).map_err(|e| sorted(&e))?;
        self.synced.note(covered);
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        for name in [rocksdb::DEFAULT_COLUMN_FAMILY_NAME, INLINE] {
            let family =
                self.db.cf_handle(name).expect("both families are opened with the database");
            self.db.flush_cf(family).map_err(|e| sorted(&e))?;
        }
        Ok(())
    }

    fn reclaim(&self) {
        for name in [rocksdb::DEFAULT_COLUMN_FAMILY_NAME, INLINE] {
            let family =
                self.db.cf_handle(name).expect("both families are opened with the database");
            self.db.compact_range_cf(family, None::<&[u8]>, None::<&[u8]>);
        }
    }

    fn is_tidying(&self) -> bool {
        let running =
            |what| self.db.property_int_value(what).ok().flatten().is_some_and(|count| count > 0);
        running("rocksdb.num-running-compactions") || running("rocksdb.num-running-flushes")
    }

    fn stats(&self) -> String {
        self.db.property_value("rocksdb.stats").ok().flatten().unwrap_or_default()
    }
}
