//! Files of a cell without a mount: `ls`, `cat`, `cp`, `mkdir`, `rm` and `gzip`, as AFS has some in
//! `afsio`.
//!
//! A place in a cell is written `rialto://CELL/PATH`; without CELL it is in the cell that other
//! commands ask, too. The caller is the one that these commands act as: at the socket of this
//! machine's server the superuser, over the network the user who is logged in.

mod cat;
mod cp;
mod gzip;
mod ls;
mod names;
mod sides;

use std::fmt;

use local::failure::Failure;
use rialto_client::{DirectCell, DirectError, DirectOptions};
use types::Fault;

pub use self::cat::Cat;
pub use self::cp::Cp;
pub use self::gzip::Gzip;
pub use self::ls::Ls;
pub use self::names::{Mkdir, Rm};
use crate::reach::{Reach, ReachOptions};

/// Begins the name of a place in a cell.
const SCHEME: &str = "rialto://";

/// A place in a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CellPath {
    /// Empty: the cell that other commands ask.
    cell: String,
    /// Without a leading slash.
    path: String,
}

impl CellPath {
    /// `None`: the text names no place in a cell.
    fn parse(text: &str) -> Option<CellPath> {
        let (cell, path) = text.strip_prefix(SCHEME).map(|rest| {
            let (cell, path) = rest.split_once('/').unwrap_or((rest, ""));
            (cell.to_owned(), path.to_owned())
        })?;
        Some(CellPath { cell, path })
    }

    /// As an argument that can only be a place in a cell: its path alone is enough.
    fn of_argument(text: &str) -> CellPath {
        Self::parse(text).unwrap_or_else(|| CellPath {
            cell: String::new(),
            path: text.trim_start_matches('/').to_owned(),
        })
    }

    /// The place of a name below it.
    fn join(&self, name: &str) -> CellPath {
        let path = match self.path.trim_end_matches('/') {
            "" => name.to_owned(),
            dir => format!("{dir}/{name}"),
        };
        CellPath { cell: self.cell.clone(), path }
    }

    /// Its last name; empty for the root.
    fn name(&self) -> &str {
        self.path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
    }
}

impl fmt::Display for CellPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.cell, self.path)
    }
}

/// Connections to the cells that the arguments of a command name.
struct Cells<'a> {
    options: &'a ReachOptions,
    open: Vec<(String, DirectCell)>,
}

impl<'a> Cells<'a> {
    fn new(options: &'a ReachOptions) -> Cells<'a> {
        Cells { options, open: Vec::new() }
    }

    /// The cell of a place.
    fn of(&mut self, place: &CellPath) -> Result<DirectCell, Failure> {
        if let Some((_, cell)) = self.open.iter().find(|(name, _)| *name == place.cell) {
            return Ok(cell.clone());
        }
        let mut options = self.options.clone();
        if !place.cell.is_empty() {
            options.cell = Some(place.cell.clone());
        }
        let reached = Reach::find(&options)?.open(None, local::ask::TIMEOUT)?;
        let cell = DirectCell::connect(DirectOptions {
            client: reached.options.clone(),
            caller: reached.caller.clone(),
            ..DirectOptions::new(reached.endpoint.clone())
        })
        .map_err(|error| Failure::new(format!("connecting to {}", reached.name), error))?;
        self.open.push((place.cell.clone(), cell.clone()));
        Ok(cell)
    }
}

/// The failure of an operation on a place.
fn failure(doing: &str, place: &CellPath, error: DirectError) -> Failure {
    let remedy = match &error {
        DirectError::Refused(Fault::AccessDenied | Fault::NotPermitted) => Some(
            "'rialto status' shows as whom you ask; 'rialto login NAME' makes you another user",
        ),
        DirectError::Refused(Fault::NotFound | Fault::NoVolume) => {
            Some("'rialto ls' shows what is there")
        }
        DirectError::Refused(Fault::QuotaExceeded) => {
            Some("'rialto vos examine' shows the volume's quota, 'rialto fs setquota' changes it")
        }
        DirectError::AbsoluteLink => Some("name the link's target itself"),
        _ => None,
    };
    let failure = Failure::new(format!("{doing} {place}"), error);
    match remedy {
        Some(remedy) => failure.mend(remedy),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_a_cell_and_a_path() {
        for (text, cell, path) in [
            ("rialto://example.org/home/alice", "example.org", "home/alice"),
            ("rialto:///home", "", "home"),
            ("rialto://example.org", "example.org", ""),
        ] {
            let place = CellPath::parse(text).unwrap();
            assert_eq!((&*place.cell, &*place.path), (cell, path), "{text}");
        }
        assert_eq!(CellPath::parse("/home/alice"), None);
        assert_eq!(CellPath::of_argument("/home/alice").to_string(), "rialto:///home/alice");
        let home = CellPath::of_argument("home/");
        assert_eq!((home.name(), &*home.join("a b").path), ("home", "home/a b"));
        assert_eq!(CellPath::of_argument("").join("x").path, "x");
    }
}
