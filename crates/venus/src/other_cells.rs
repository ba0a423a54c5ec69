//! Other cells, which mount points lead to (`#cell:volume`).
//!
//! Numbers of volumes, files and servers mean nothing in another cell, so each cell has sessions,
//! cache managers and a disk cache of its own: volumes of two cells never meet in one table. The
//! client connects to a cell at its first use. A cell that cannot be reached is not tried again for
//! a while, so that a listing of many cells does not wait for each.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use types::Fault;

use crate::{Error, Volumes};

/// How long a cell that could not be reached is not tried again.
const RETRY: Duration = Duration::from_secs(10);

/// Reaches a cell by its name; [`Fault::NoVolume`] if it is not known.
pub type CellOpener = dyn Fn(&str) -> Result<Arc<Volumes>, Error> + Send + Sync;

/// See the head of the file.
pub struct Neighbours {
    /// Name of the first mount's cell, if known.
    own: Option<String>,
    home: Weak<Volumes>,
    reach: Box<CellOpener>,
    known: Mutex<HashMap<String, KnownCell>>,
}

enum KnownCell {
    Reached(Arc<Volumes>),
    Failed(Instant, Error),
}

impl Neighbours {
    pub(crate) fn new(
        home: &Arc<Volumes>,
        own: Option<String>,
        reach: Box<CellOpener>,
    ) -> Arc<Self> {
        Arc::new(Neighbours { own, home: Arc::downgrade(home), reach, known: Mutex::default() })
    }

    /// The volumes of a cell.
    pub(crate) fn get(self: &Arc<Self>, cell: &str) -> Result<Arc<Volumes>, Error> {
        if self.own.as_deref() == Some(cell) {
            return self.home.upgrade().ok_or(Error::Lost);
        }
        match self.known.lock().get(cell) {
            Some(KnownCell::Reached(volumes)) => return Ok(Arc::clone(volumes)),
            Some(KnownCell::Failed(at, error)) if at.elapsed() < RETRY => return Err(error.clone()),
            Some(KnownCell::Failed(..)) | None => {}
        }
        // Requests for other cells need not wait for this one.
        let reached = (self.reach)(cell);
        let mut known = self.known.lock();
        if let (Some(KnownCell::Reached(first)), Ok(second)) = (known.get(cell), &reached) {
            second.cell().detach();
            return Ok(Arc::clone(first));
        }
        match &reached {
            Ok(volumes) => {
                volumes.is_neighbour(self);
                known.insert(cell.to_owned(), KnownCell::Reached(Arc::clone(volumes)));
            }
            // The name may appear at any moment, and a new attempt is cheap: it is not remembered.
            Err(Error::Fault(Fault::NoVolume)) => {}
            Err(error) => {
                tracing::warn!(cell, %error, "cannot reach the cell; not tried again for 10 s");
                known.insert(cell.to_owned(), KnownCell::Failed(Instant::now(), error.clone()));
            }
        }
        reached
    }

    /// The volumes of the cells that were reached.
    pub(crate) fn all(&self) -> Vec<Arc<Volumes>> {
        let known = self.known.lock();
        let reached = known.values().filter_map(|one| match one {
            KnownCell::Reached(volumes) => Some(Arc::clone(volumes)),
            KnownCell::Failed(..) => None,
        });
        reached.collect()
    }
}
