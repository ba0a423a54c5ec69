//! The cells in the dynamic root (`venus/volumes/dynroot.rs`): the mount's own, those of
//! `cells.toml`, and those that DNS has.

use std::sync::{Arc, OnceLock, Weak};

use local::failure::{Doing, Failure};
use types::{Caller, Fault, MountPoint, Name};
use venus::{Dynroot, Error, KnownCells, RequestContext, VenusConfig, Volumes};

use crate::cells::Cells;

/// The root volume of a cell's tree, and the ending of its released copy. Source: AFS.
const ROOT: &str = "root.cell";
const RELEASED: &str = "root.cell.readonly";

struct Known {
    own: Option<String>,
    cells: Arc<Cells>,
    /// The volumes through which cells are reached.
    root: Arc<OnceLock<Weak<Volumes>>>,
}

impl KnownCells for Known {
    fn own(&self) -> Option<String> {
        self.own.clone()
    }

    fn listed(&self) -> Vec<String> {
        self.cells.listed()
    }

    fn finds(&self, cell: &str) -> bool {
        self.cells.knows(cell)
    }

    fn is_released(&self, cell: &str) -> Option<bool> {
        let root = self.root.get()?.upgrade()?;
        let volumes = root.of_cell(&point(cell)?).ok()?;
        match volumes
            .find(&RequestContext::of(&Caller::ROOT), &Name::new(RELEASED.as_bytes()).ok()?)
        {
            Ok(_) => Some(true),
            Err(Error::Fault(Fault::NoVolume)) => Some(false),
            Err(_) => None,
        }
    }
}

fn point(cell: &str) -> Option<MountPoint> {
    MountPoint::parse(format!("#{cell}:{ROOT}").as_bytes()).ok()
}

/// The dynamic root as a volume, with connections to all cells. `reach` connects to cells other
/// than the mount's own.
///
/// # Errors
/// If the cell of the mount cannot be reached.
pub fn volumes(
    own: Option<(String, Arc<Volumes>)>,
    cells: Cells,
    reach: impl Fn(&Cells, &str) -> Result<Arc<Volumes>, Error> + Send + Sync + 'static,
) -> Result<Arc<Volumes>, Failure> {
    let (cells, root) = (Arc::new(cells), Arc::new(OnceLock::new()));
    let name = own.as_ref().map(|(name, _)| name.clone());
    let known = Known { own: name.clone(), cells: Arc::clone(&cells), root: Arc::clone(&root) };
    let dynroot =
        Dynroot::start(Box::new(known)).doing(|| "making the root of cells".to_owned())?;
    let volumes = Volumes::of(dynroot, VenusConfig::default());
    let _ = root.set(Arc::downgrade(&volumes));
    let reach = move |cell: &str| match &own {
        Some((name, volumes)) if name == cell => Ok(Arc::clone(volumes)),
        _ => reach(&cells, cell),
    };
    volumes.has_neighbours(None, Box::new(reach));
    // Its session then ends with the others.
    if let Some(point) = name.as_deref().and_then(point) {
        volumes.of_cell(&point).doing(|| "reaching the mount's own cell".to_owned())?;
    }
    Ok(volumes)
}
