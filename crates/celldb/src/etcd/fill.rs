//! A database in etcd that is made of a backup.

use types::Revision;

use super::{Etcd, EtcdConfig, EtcdStore, Result};
use crate::CellError;
use crate::engine::{Batch, Engine, Fill, View};
use crate::format::State;

/// The state while records are written.
const FROM: &str = "a backup";

/// Collects all records, so that nothing is replaced before the backup was read to its end.
pub(crate) struct EtcdFill {
    store: EtcdStore,
    before: Option<State>,
    batches: Vec<Batch>,
}

impl EtcdFill {
    /// `revision`: that of the backup. `replaces`: also a database that is in use.
    ///
    /// # Errors
    /// `Misuse` if a database is there; etcd's.
    pub fn begin(config: &EtcdConfig, cell: &str, replaces: bool) -> Result<EtcdFill> {
        let store = Etcd::store(config, cell)?;
        let before = store.state()?;
        let is_free = match &before {
            // An earlier restore was interrupted.
            Some(State::Filling(from)) => from == FROM,
            Some(_) => false,
            None => store.is_empty()?,
        };
        if is_free || replaces {
            return Ok(EtcdFill { store, before, batches: Vec::new() });
        }
        Err(CellError::Misuse(format!("etcd has a database of the cell {cell}")))
    }

    /// The revision of the database that is replaced.
    ///
    /// # Errors
    /// etcd's.
    pub fn replaced(&self) -> Result<Revision> {
        Ok(Revision((&self.store.view() as &dyn View).counters()?.revision))
    }
}

impl Fill for EtcdFill {
    fn write(&mut self, batch: &Batch) -> Result<()> {
        self.batches.push(batch.clone());
        Ok(())
    }

    fn end(&mut self, batch: &Batch) -> Result<()> {
        let filling = State::Filling(FROM.to_owned());
        if !self.store.set_state(self.before.as_ref(), Some(&filling))? {
            return Err(CellError::Misuse("another command changes etcd's database".to_owned()));
        }
        self.store.clear()?;
        self.batches.iter().chain([batch]).try_for_each(|batch| self.store.fill(batch))?;
        if self.store.set_state(Some(&filling), Some(&State::InUse))? {
            return Ok(());
        }
        Err(CellError::Misuse("another command changes etcd's database".to_owned()))
    }
}
