//! `rialto mkdir` and `rialto rm`: names in a cell.

use std::process::ExitCode;

use clap::Args;
use local::failure::Failure;
use rialto_client::{DirectCell, DirectError, list, make_directory, remove, status};
use types::{Fault, Kind, RemoveWhat};

use super::{CellPath, Cells, failure};
use crate::reach::ReachOptions;

const MKDIR_HELP: &str = "\
EXAMPLES
    rialto mkdir /home/alice/letters
    rialto mkdir -p rialto://example.org/data/2026/11";

const RM_HELP: &str = "\
EXAMPLES
    rialto rm /home/alice/letter.txt
    rialto rm -r /home/alice/old          with all that is below it

Mount points are removed by 'rialto fs rmmount'; rm -r goes into no other volume.";

/// Makes directories in a cell, without a mount.
#[derive(Args, Debug)]
#[command(after_help = MKDIR_HELP)]
pub struct Mkdir {
    /// Directories: rialto://CELL/PATH, or paths in the cell that other commands ask.
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<String>,
    /// Also those above; it is no error if one exists.
    #[arg(short, long)]
    parents: bool,
    #[command(flatten)]
    reach: ReachOptions,
}

/// Removes files of a cell, without a mount.
#[derive(Args, Debug)]
#[command(after_help = RM_HELP)]
pub struct Rm {
    /// Files: rialto://CELL/PATH, or paths in the cell that other commands ask.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Directories, with all that is below them.
    #[arg(short, long)]
    recursive: bool,
    /// It is no error if one does not exist.
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    reach: ReachOptions,
}

const MODE: u16 = 0o755;

impl Mkdir {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut cells = Cells::new(&self.reach);
        for directory in &self.directories {
            let place = CellPath::of_argument(directory);
            let cell = cells.of(&place)?;
            let made = if self.parents {
                with_parents(&cell, &place.path)
            } else {
                make_directory(&cell, &place.path, MODE)
            };
            made.map_err(|error| failure("making", &place, error))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Makes a directory and those above it that do not exist.
pub(super) fn with_parents(cell: &DirectCell, path: &str) -> Result<(), DirectError> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    for end in 1..=parts.len() {
        match make_directory(cell, &parts[..end].join("/"), MODE) {
            Err(DirectError::Refused(Fault::Exists)) => {}
            made => made?,
        }
    }
    Ok(())
}

impl Rm {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut cells = Cells::new(&self.reach);
        for file in &self.files {
            let place = CellPath::of_argument(file);
            let cell = cells.of(&place)?;
            match self.remove(&cell, &place) {
                Err(DirectError::Refused(Fault::NotFound)) if self.force => {}
                removed => removed.map_err(|error| failure("removing", &place, error))?,
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn remove(&self, cell: &DirectCell, place: &CellPath) -> Result<(), DirectError> {
        let is_directory = self.recursive
            && match status(cell, &place.path, false) {
                Ok(found) => found.kind == Kind::Directory,
                Err(error) => return Err(error),
            };
        if !is_directory {
            return remove(cell, &place.path, RemoveWhat::File);
        }
        for entry in list(cell, &place.path)? {
            let name = String::from_utf8_lossy(entry.name.as_bytes()).into_owned();
            let below = place.join(&name);
            match entry.kind {
                Kind::Directory => self.remove(cell, &below)?,
                // The volume behind it stays, and so does the directory.
                Kind::MountPoint => return Err(DirectError::Refused(Fault::CrossVolume)),
                _ => remove(cell, &below.path, RemoveWhat::File)?,
            }
        }
        remove(cell, &place.path, RemoveWhat::Directory)
    }
}
