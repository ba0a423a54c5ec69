//! Moves a cell's database between a directory and etcd.
//!
//! Three rules keep it whole. While records are copied nothing changes in either place: the
//! directory is open here and nowhere else, and a state in etcd refuses every commit. The old place
//! refuses for ever (`Moved`) before the new one may be used. And each step finds what an
//! interrupted one left, so the same call finishes it; the call in the other direction undoes it as
//! long as the old place has not been given up.
//!
//! The copy has no list of changes: who asks for those since a revision fetches everything.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use types::Revision;

use crate::embedded::FilesFill;
use crate::engine::{Batch, Engine, Fill, View};
use crate::etcd::{Etcd, EtcdConfig, EtcdStore};
use crate::format::{State, put_state, read_state};
use crate::record::{self, RecordKind};
use crate::{CellDb, CellError, Embedded, copy_records, key};

type Result<T> = std::result::Result<T, CellError>;

/// Bytes of records that are written at once.
const BATCH_BYTES: usize = 1 << 20;

/// The outcome of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migrated {
    /// All records are in the new place.
    Moved {
        /// The revision of the database.
        revision: Revision,
        /// How many records there are.
        records: u64,
    },
    /// An earlier call had copied all records; this one made the new place the one in use.
    Finished,
    /// It had happened before.
    Already,
    /// A migration in the other direction that had not ended was undone.
    Undone,
}

/// Moves a cell's database.
pub struct Migration<'a> {
    /// The directory of the embedded engine.
    pub path: &'a Path,
    /// How etcd is reached.
    pub etcd: &'a EtcdConfig,
    /// The cell's name.
    pub cell: &'a str,
    /// Replace a database of this cell that etcd has.
    pub replace: bool,
    /// Only say whether it could begin.
    pub dry_run: bool,
}

impl Migration<'_> {
    /// The directory's name for other machines.
    fn here(&self) -> String {
        let machine = rustix::system::uname();
        format!("{}:{}", machine.nodename().to_string_lossy(), self.path.display())
    }

    fn there(&self) -> String {
        format!("etcd ({})", self.etcd.endpoints.join(", "))
    }

    fn store(&self) -> Result<EtcdStore> {
        Etcd::store(self.etcd, self.cell)
    }

    fn draft(&self) -> PathBuf {
        self.path.with_extension("moving")
    }

    /// From the directory to etcd. No server may have the directory open.
    ///
    /// # Errors
    /// `Misuse` if one of the two is not in the state for it; `Medium`, `Damaged`, `NoQuorum`. The
    /// same call, made again, goes on.
    pub fn to_etcd(&self) -> Result<Migrated> {
        let (store, here) = (self.store()?, self.here());
        let (local, state) = (read_state(self.path)?, store.state()?);
        let filling = State::Filling(here.clone());
        match (&local, &state) {
            // Before the new directory was in use nothing was lost.
            (_, Some(State::Moving(to))) if *to == here => {
                if !self.dry_run {
                    remove(&self.draft())?;
                    self.set(&store, state.as_ref(), &State::InUse)?;
                }
                return Ok(Migrated::Undone);
            }
            (Some(State::Moved(_)), Some(State::Filling(from))) if *from == here => {
                if !self.dry_run {
                    self.set(&store, state.as_ref(), &State::InUse)?;
                }
                return Ok(Migrated::Finished);
            }
            (Some(State::Moved(_)), Some(State::InUse)) => return Ok(Migrated::Already),
            (Some(State::Moved(to)), _) => {
                return Err(misuse(format!("the database of {here} is in {to}")));
            }
            (_, Some(State::Filling(from))) if *from == here => {}
            (_, Some(State::Moved(to))) if *to == here => {}
            (_, Some(State::Moving(_))) => {
                return Err(misuse("etcd's database is being moved elsewhere".to_owned()));
            }
            (_, None) if store.is_empty()? => {}
            (_, _) if self.replace => {}
            (_, state) => {
                let why = format!("etcd has a database of the cell {} ({state:?})", self.cell);
                return Err(misuse(why));
            }
        }
        if !self.path.exists() {
            return Err(misuse(format!("there is no database in {}", self.path.display())));
        }
        // While it is open nothing else opens it.
        let old = Embedded::open(self.path)?;
        if state == Some(State::InUse) {
            need_newer(&store, old.revision()?)?;
        }
        if self.dry_run {
            return Ok(digest(&old)?.0);
        }
        self.set(&store, state.as_ref(), &filling)?;
        store.clear()?;
        let mut to = Filler::default();
        copy_records(&old, &mut |_, key, value| {
            to.put(key, value)?;
            to.flush(false, &mut |batch| store.fill(batch))
        })?;
        to.flush(true, &mut |batch| store.fill(batch))?;
        let new = Etcd::new(self.etcd, self.cell, Arc::default())?;
        let copied = same(&old, &new)?;
        put_state(self.path, &State::Moved(self.there()))?;
        self.set(&store, Some(&filling), &State::InUse)?;
        Ok(copied)
    }

    /// From etcd into a directory, which does not exist or has moved to etcd before.
    ///
    /// # Errors
    /// As [`Migration::to_etcd`].
    pub fn to_embedded(&self) -> Result<Migrated> {
        let (store, here) = (self.store()?, self.here());
        let (local, state) = (read_state(self.path)?, store.state()?);
        let moving = State::Moving(here.clone());
        match (&local, &state) {
            (Some(State::InUse) | None, Some(State::Filling(from)))
                if *from == here && self.path.exists() =>
            {
                if !self.dry_run {
                    store.clear()?;
                    store.set_state(state.as_ref(), None)?;
                }
                return Ok(Migrated::Undone);
            }
            (Some(State::InUse), Some(State::Moved(to))) if *to == here => {
                return Ok(Migrated::Already);
            }
            (_, Some(State::Moved(to))) if *to == here => {
                if !self.dry_run {
                    self.take_place()?;
                }
                return Ok(Migrated::Finished);
            }
            (Some(State::InUse), _) => {
                let path = self.path.display();
                return Err(misuse(format!("{path} has a database that is in use")));
            }
            (_, Some(State::InUse)) => {}
            (_, Some(State::Moving(to))) if *to == here => {}
            (_, Some(State::Moving(to) | State::Moved(to))) => {
                return Err(misuse(format!("etcd's database goes to {to}")));
            }
            (_, Some(State::Filling(from))) => {
                return Err(misuse(format!("etcd's database is being copied from {from}")));
            }
            (_, None) => {
                return Err(misuse(format!("etcd has no database of the cell {}", self.cell)));
            }
        }
        let db = Etcd::new(self.etcd, self.cell, Arc::default())?;
        if self.dry_run {
            return Ok(digest(&db)?.0);
        }
        // No commit is executed from here on.
        self.set(&store, state.as_ref(), &moving)?;
        let draft = self.draft();
        remove(&draft)?;
        let mut fill = FilesFill::begin(&draft)?;
        let mut to = Filler::default();
        copy_records(&db, &mut |_, key, value| {
            to.put(key, value)?;
            to.flush(false, &mut |batch| fill.write(batch))
        })?;
        fill.end(&to.batch)?;
        drop(fill);
        let new = Embedded::open(&draft)?;
        let copied = same(&db, &new)?;
        drop(new);
        self.set(&store, Some(&moving), &State::Moved(here))?;
        self.take_place()?;
        Ok(copied)
    }

    /// The draft becomes the database.
    fn take_place(&self) -> Result<()> {
        let draft = self.draft();
        let failed = |error| CellError::Medium(format!("{}: {error}", self.path.display()));
        if !draft.exists() {
            return Err(misuse(format!("{} is not there", draft.display())));
        }
        if self.path.exists() {
            let old = self.path.with_extension("moved");
            remove(&old)?;
            fs::rename(self.path, &old).map_err(failed)?;
        }
        fs::rename(&draft, self.path).map_err(failed)?;
        let parent = self.path.parent().unwrap_or(Path::new("."));
        File::open(parent).and_then(|dir| dir.sync_all()).map_err(failed)
    }

    fn set(&self, store: &EtcdStore, before: Option<&State>, after: &State) -> Result<()> {
        if store.set_state(before, Some(after))? {
            return Ok(());
        }
        Err(misuse("another migration of this cell runs".to_owned()))
    }
}

/// Checks that the database in etcd, which shall be replaced, has no change that the other one
/// lacks by its revision. One that was restored is far above it.
fn need_newer(store: &EtcdStore, revision: Revision) -> Result<()> {
    let found = Revision((&store.view() as &dyn View).counters()?.revision);
    if revision > found {
        return Ok(());
    }
    let (mine, found) = (revision.0, found.0);
    Err(misuse(format!("etcd's database is at revision {found}, and this one is at {mine}")))
}

fn misuse(why: String) -> CellError {
    CellError::Misuse(why)
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(CellError::Medium(format!("{}: {error}", path.display())))
        }
        _ => Ok(()),
    }
}

/// Collects records, those of the counters without a list of changes.
#[derive(Default)]
struct Filler {
    batch: Batch,
    bytes: usize,
}

impl Filler {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let value = as_copied(key, value)?;
        self.bytes += key.len() + value.len();
        self.batch.put(key, value);
        Ok(())
    }

    fn flush(&mut self, all: bool, write: &mut dyn FnMut(&Batch) -> Result<()>) -> Result<()> {
        if all || self.bytes >= BATCH_BYTES {
            write(&self.batch)?;
            *self = Filler::default();
        }
        Ok(())
    }
}

/// The value of a record in the copy.
fn as_copied(key: &[u8], value: &[u8]) -> Result<Vec<u8>> {
    if record::check(key, value)? != RecordKind::Counters {
        return Ok(value.to_vec());
    }
    let mut counters = record::decode_counters(key, value)?;
    counters.oldest_change = counters.revision;
    Ok(record::encode_counters(key::COUNTERS, counters))
}

/// Checks that a copy has the records of a database, and no others.
fn same(db: &dyn CellDb, copy: &dyn CellDb) -> Result<Migrated> {
    let (found, wanted) = (digest(copy)?, digest(db)?);
    if found == wanted {
        return Ok(wanted.0);
    }
    let (found, wanted) = (found.0, wanted.0);
    Err(CellError::Damaged(format!("the copy ({found:?} in place of {wanted:?})")))
}

/// All records as the copy has them, as a number and a sum.
fn digest(db: &dyn CellDb) -> Result<(Migrated, Vec<u8>)> {
    let (mut records, mut sum) = (0, Context::new(&SHA256));
    let revision = copy_records(db, &mut |_, key, value| {
        records += 1;
        let value = as_copied(key, value)?;
        sum.update(&(key.len() as u64).to_le_bytes());
        sum.update(key);
        sum.update(&(value.len() as u64).to_le_bytes());
        sum.update(&value);
        Ok(())
    })?;
    Ok((Migrated::Moved { revision, records }, sum.finish().as_ref().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::process::EtcdProcess;

    fn records(db: &dyn CellDb) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut all = Vec::new();
        copy_records(db, &mut |_, key, value| {
            all.push((key.to_vec(), as_copied(key, value)?));
            Ok(())
        })
        .unwrap();
        all
    }

    fn moves<'a>(path: &'a Path, etcd: &'a EtcdProcess) -> Migration<'a> {
        Migration { path, etcd: &etcd.config, cell: "cell", replace: false, dry_run: false }
    }

    fn in_etcd(etcd: &EtcdProcess) -> Etcd {
        Etcd::new(&etcd.config, "cell", Arc::default()).unwrap()
    }

    #[test]
    fn a_database_goes_to_etcd_and_back() {
        let (etcd, dir) = (EtcdProcess::start(), tempfile::tempdir().unwrap());
        let path = dir.path().join("celldb");
        let old = Embedded::open(&path).unwrap();
        let first = old.take_numbers(types::VolumeId(7), 3).unwrap();
        let before = records(&old);
        let moves = moves(&path, &etcd);
        assert!(moves.to_etcd().is_err(), "a server has it open");
        assert_eq!(etcd.store("cell").state().unwrap(), None);
        drop(old);
        let dry = Migration { dry_run: true, ..moves };
        let planned = dry.to_etcd().unwrap();
        assert!(etcd.store("cell").is_empty().unwrap());
        let moves = self::moves(&path, &etcd);
        assert_eq!(moves.to_etcd().unwrap(), planned);
        assert_eq!(moves.to_etcd().unwrap(), Migrated::Already);
        let refused = Embedded::open(&path).map(drop).unwrap_err();
        assert!(
            matches!(&refused, CellError::Moved { to, .. } if to.contains("etcd")),
            "{refused}"
        );
        let db = in_etcd(&etcd);
        assert_eq!(records(&db), before);
        let next = db.take_numbers(types::VolumeId(0), 1).unwrap();
        assert!(next.0 >= first.0 + 3, "VO-2");
        let before = records(&db);
        assert!(matches!(moves.to_embedded().unwrap(), Migrated::Moved { .. }));
        assert_eq!(moves.to_embedded().unwrap(), Migrated::Already);
        assert!(matches!(db.take_numbers(types::VolumeId(0), 1), Err(CellError::Moved { .. })));
        assert_eq!(records(&Embedded::open(&path).unwrap()), before);
        assert!(matches!(moves.to_etcd().unwrap(), Migrated::Moved { .. }), "and there again");
        assert_eq!(records(&in_etcd(&etcd)), before);
    }

    /// Stops a migration behind each of its steps, as a crash does, by making the states that it
    /// leaves.
    #[test]
    fn an_interrupted_migration_is_finished_or_undone() {
        let (etcd, dir) = (EtcdProcess::start(), tempfile::tempdir().unwrap());
        let path = dir.path().join("celldb");
        let before = records(&Embedded::open(&path).unwrap());
        let (moves, store) = (moves(&path, &etcd), etcd.store("cell"));
        let filling = State::Filling(moves.here());
        // Some records are in etcd.
        assert!(store.set_state(None, Some(&filling)).unwrap());
        let mut some = Batch::default();
        some.put(&b"Gsome"[..], &b"record"[..]);
        store.fill(&some).unwrap();
        assert!(in_etcd(&etcd).check().is_err(), "a half database is used by no server");
        assert_eq!(moves.to_embedded().unwrap(), Migrated::Undone);
        assert!(store.is_empty().unwrap());
        assert!(store.set_state(None, Some(&filling)).unwrap());
        store.fill(&some).unwrap();
        assert!(matches!(moves.to_etcd().unwrap(), Migrated::Moved { .. }));
        assert_eq!(records(&in_etcd(&etcd)), before);
        // All is there, and the directory is given up.
        assert!(store.set_state(Some(&State::InUse), Some(&filling)).unwrap());
        assert!(matches!(moves.to_embedded(), Err(CellError::Misuse(_))), "too late to undo");
        assert_eq!(moves.to_etcd().unwrap(), Migrated::Finished);
        // Back: etcd refuses changes, and the directory is not there yet.
        let moving = State::Moving(moves.here());
        assert!(store.set_state(Some(&State::InUse), Some(&moving)).unwrap());
        assert_eq!(moves.to_etcd().unwrap(), Migrated::Undone);
        in_etcd(&etcd).check().unwrap();
        assert!(store.set_state(Some(&State::InUse), Some(&moving)).unwrap());
        assert!(matches!(moves.to_embedded().unwrap(), Migrated::Moved { .. }));
        // The directory was filled, and had not taken its place.
        fs::rename(&path, moves.draft()).unwrap();
        assert_eq!(moves.to_embedded().unwrap(), Migrated::Finished);
        assert_eq!(records(&Embedded::open(&path).unwrap()), before);
    }

    #[test]
    fn two_migrations_do_not_meet() {
        let (etcd, dir) = (EtcdProcess::start(), tempfile::tempdir().unwrap());
        let [one, two] = ["one", "two"].map(|name| dir.path().join(name));
        for path in [&one, &two] {
            Embedded::open(path).unwrap();
        }
        let (first, second) = (moves(&one, &etcd), moves(&two, &etcd));
        let filling = State::Filling(first.here());
        assert!(etcd.store("cell").set_state(None, Some(&filling)).unwrap());
        assert!(matches!(second.to_etcd(), Err(CellError::Misuse(_))));
        first.to_etcd().unwrap();
        assert!(matches!(second.to_etcd(), Err(CellError::Misuse(_))));
        assert!(matches!(second.to_embedded(), Err(CellError::Misuse(_))));
        let replacing = Migration { replace: true, ..moves(&two, &etcd) };
        assert!(matches!(replacing.to_etcd(), Err(CellError::Misuse(_))), "it is not newer");
        let newer = Embedded::open(&two).unwrap();
        let server = types::ServerInfo {
            id: types::ServerId(1),
            name: "one".to_owned(),
            addresses: Vec::new(),
            keys: Vec::new(),
        };
        newer.put_server(&server, Revision(0)).unwrap();
        drop(newer);
        // A database that was restored from a backup takes the place of the one in etcd.
        let replacing = Migration { replace: true, ..moves(&two, &etcd) };
        assert!(matches!(replacing.to_etcd().unwrap(), Migrated::Moved { .. }));
    }
}
