//! Opens RocksDB so that synced changes are there, or reports that they are not.
//!
//! By default RocksDB ends the replay of its log at the first damaged record and opens with the
//! batches before it. That is right for the tail that a loss of power tore, which was never called
//! stable. But a bit that flips in the middle of the log loses all later batches, synced ones too,
//! without a report. So a small file beside the tables stores the sequence number that the last
//! sync covered ([`Synced`]), and a database that comes back with a lower one is refused.
//!
//! The file is written without a sync of its own: it is a lower bound. It is exact after the death
//! of the process, and may be older after a loss of power.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rocksdb::{ColumnFamilyDescriptor, DB, DBRecoveryMode, ErrorKind, Options};

mod whole;

pub use whole::{summed, write_whole};

/// The file with the number. RocksDB ignores files with names that it does not know.
const NOTE: &str = "SYNCED";

/// Why a database is not open.
#[derive(Debug, thiserror::Error)]
pub enum WalOpenError {
    /// RocksDB's error.
    #[error("{0}")]
    Engine(#[from] rocksdb::Error),
    /// Its log is damaged before the end of the synced batches.
    #[error(
        "the log is damaged: batches up to {synced} were stable, and only those up to {found} can \
         be read; \
         nothing was changed. Restore it from a copy; or, to go on without what is lost, remove {}",
        note.display()
    )]
    Lost {
        /// The sequence number of the last stable change.
        synced: u64,
        /// The sequence number of the last readable change.
        found: u64,
        /// The file with the first number.
        note: PathBuf,
    },
    /// The file with the number of the last stable change.
    #[error("{}: {error}", path.display())]
    Note {
        /// Its path.
        path: PathBuf,
        /// Why it cannot be used.
        error: io::Error,
    },
}

/// Writes the number of the last synced change.
#[derive(Debug)]
pub struct Synced(File);

impl Synced {
    /// Everything up to this sequence number is stable. The write need not succeed: if it fails,
    /// the file has an earlier number.
    pub fn note(&self, sequence: u64) {
        let number = sequence.to_le_bytes();
        let bytes = [&number[..], &crc32c::crc32c(&number).to_le_bytes()].concat();
        if let Err(error) = self.0.write_all_at(&bytes, 0) {
            tracing::debug!(%error, "the synced sequence number was not written");
        }
    }
}

/// The number in the file; `None` if there is no file, or if its write was torn.
fn noted(path: &Path) -> io::Result<Option<u64>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some((number, sum)) = bytes.split_first_chunk::<8>() else { return Ok(None) };
    let is_whole = sum == crc32c::crc32c(number).to_le_bytes();
    if !is_whole {
        tracing::warn!(path = %path.display(), "the synced sequence number is damaged: \
            lost batches of the log would not be detected");
    }
    Ok(is_whole.then(|| u64::from_le_bytes(*number)))
}

/// Opens the database in `path`. A torn tail of its log that was not synced is cut off.
///
/// # Errors
/// `Lost`: synced batches cannot be read; the database is left as it is.
pub fn open(
    options: &mut Options,
    path: &Path,
    families: impl Fn() -> Vec<ColumnFamilyDescriptor>,
) -> Result<(DB, Synced), WalOpenError> {
    let note = path.join(NOTE);
    let of_note = |error| WalOpenError::Note { path: note.clone(), error };
    let synced = noted(&note).map_err(of_note)?.unwrap_or(0);
    let check = |db: &DB| match db.latest_sequence_number() {
        found if found < synced => Err(WalOpenError::Lost { synced, found, note: note.clone() }),
        _ => Ok(()),
    };
    // Any damage is an error at first, since opening in a weaker mode discards the rest of the log.
    options.set_wal_recovery_mode(DBRecoveryMode::AbsoluteConsistency);
    let db = match DB::open_cf_descriptors(options, path, families()) {
        Ok(db) => db,
        Err(error) if error.kind() == ErrorKind::Corruption => {
            options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
            check(&DB::open_cf_descriptors_read_only(options, path, families(), false)?)?;
            tracing::warn!(path = %path.display(), %error, "the end of the log is torn behind \
                the last synced batch, and is cut off");
            DB::open_cf_descriptors(options, path, families())?
        }
        Err(error) => return Err(error.into()),
    };
    check(&db)?;
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).open(&note).map_err(of_note)?;
    let synced = Synced(file);
    // This write allocates the file's block on the disk, so that a full disk does not matter later.
    synced.note(db.latest_sequence_number().min(noted(&note).map_err(of_note)?.unwrap_or(0)));
    Ok((db, synced))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const BATCHES: u64 = 300;

    fn families() -> Vec<ColumnFamilyDescriptor> {
        vec![ColumnFamilyDescriptor::new(rocksdb::DEFAULT_COLUMN_FAMILY_NAME, Options::default())]
    }

    fn opened(path: &Path) -> Result<(DB, Synced), WalOpenError> {
        let mut options = Options::default();
        options.create_if_missing(true);
        open(&mut options, path, families)
    }

    fn put(db: &DB, number: u64) {
        db.put(number.to_be_bytes(), [7; 100]).unwrap();
    }

    fn has(db: &DB, number: u64) -> bool {
        db.get(number.to_be_bytes()).unwrap().is_some()
    }

    fn log(path: &Path) -> PathBuf {
        let all = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        all.filter(|path| path.extension().is_some_and(|end| end == "log")).max().unwrap()
    }

    /// Half of the batches are synced; returns how long the log was then.
    fn filled(path: &Path) -> u64 {
        let (db, synced) = opened(path).unwrap();
        (0..BATCHES / 2).for_each(|number| put(&db, number));
        let covered = db.latest_sequence_number();
        db.flush_wal(true).unwrap();
        synced.note(covered);
        let length = std::fs::metadata(log(path)).unwrap().len();
        (BATCHES / 2..BATCHES).for_each(|number| put(&db, number));
        length
    }

    fn flip(path: &Path, at: u64) {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[at as usize] ^= 0x10;
        std::fs::write(path, bytes).unwrap();
    }

    #[test]
    fn du1_a_flipped_bit_in_synced_batches_is_an_error() {
        for part in [0, 3, 7, 10] {
            let dir = tempfile::tempdir().unwrap();
            let length = filled(dir.path());
            flip(&log(dir.path()), (length - 60) * part / 10);
            for attempt in 0..3 {
                let refused = opened(dir.path()).map(drop);
                assert!(
                    matches!(refused, Err(WalOpenError::Lost { .. })),
                    "{part}, attempt {attempt}: {refused:?}"
                );
            }
            // RocksDB's own behaviour, and the remedy in the error message.
            std::fs::remove_file(dir.path().join(NOTE)).unwrap();
            let (db, _) = opened(dir.path()).unwrap();
            assert!(!has(&db, BATCHES / 2 - 1), "{part}");
        }
    }

    #[test]
    fn a_torn_tail_that_was_not_synced_is_cut_off() {
        let spoil: [fn(&Path, u64); 3] = [
            |log, length| flip(log, length + 1000),
            |log, length| {
                OpenOptions::new().write(true).open(log).unwrap().set_len(length + 33).unwrap();
            },
            |log, length| {
                let zeros = OpenOptions::new().write(true).open(log).unwrap();
                zeros.write_all_at(&[0; 700], length + 500).unwrap();
            },
        ];
        for (number, spoil) in spoil.into_iter().enumerate() {
            let dir = tempfile::tempdir().unwrap();
            let length = filled(dir.path());
            spoil(&log(dir.path()), length);
            let (db, synced) = opened(dir.path()).unwrap();
            assert!((0..BATCHES / 2).all(|number| has(&db, number)), "{number}");
            assert!(!has(&db, BATCHES - 1), "{number}");
            // It goes on, and later syncs count.
            put(&db, BATCHES);
            db.flush_wal(true).unwrap();
            synced.note(db.latest_sequence_number());
            drop((db, synced));
            assert!(has(&opened(dir.path()).unwrap().0, BATCHES), "{number}");
        }
    }

    #[test]
    fn a_log_that_is_gone_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path());
        std::fs::remove_file(log(dir.path())).unwrap();
        assert!(matches!(opened(dir.path()).map(drop), Err(WalOpenError::Lost { .. })));
    }

    #[test]
    fn a_torn_note_is_none() {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path());
        let note = dir.path().join(NOTE);
        assert!(noted(&note).unwrap().is_some());
        flip(&note, 3);
        assert_eq!(noted(&note).unwrap(), None);
        assert!(opened(dir.path()).is_ok());
    }
}
