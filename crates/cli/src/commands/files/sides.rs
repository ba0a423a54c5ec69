//! A file here or in a cell, for commands that take both.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use local::failure::{Doing, Failure};
use rialto_client::{
    DirectCell, DirectError, DirectFile, FileReader, FileWriter, link_target, list, make_directory,
    make_link, remove, status,
};
use types::{Fault, Kind, RemoveWhat};

use super::{CellPath, Cells, failure};

/// A file on either side.
#[derive(Clone)]
pub(super) enum Side {
    Here(PathBuf),
    There(DirectCell, CellPath),
}

/// The facts about a file that decide how it is copied.
pub(super) struct Found {
    pub kind: Kind,
    pub mode: u16,
    pub size: u64,
}

pub(super) type Outcome<T> = Result<T, Failure>;

impl Side {
    pub(super) fn of(text: &str, cells: &mut Cells<'_>) -> Outcome<Side> {
        match CellPath::parse(text) {
            Some(place) => Ok(Side::There(cells.of(&place)?, place)),
            None => Ok(Side::Here(PathBuf::from(text))),
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Side::Here(path) => path.display().to_string(),
            Side::There(_, place) => place.to_string(),
        }
    }

    pub(super) fn join(&self, name: &OsStr) -> Side {
        match self {
            Side::Here(path) => Side::Here(path.join(name)),
            Side::There(cell, place) => {
                Side::There(cell.clone(), place.join(&name.to_string_lossy()))
            }
        }
    }

    pub(super) fn name(&self) -> Option<&OsStr> {
        match self {
            Side::Here(path) => path.file_name(),
            Side::There(_, place) => {
                Some(place.name()).filter(|name| !name.is_empty()).map(OsStr::new)
            }
        }
    }

    /// `None`: nothing is there.
    pub(super) fn find(&self, follow: bool) -> Outcome<Option<Found>> {
        match self {
            Side::Here(path) => {
                let found = if follow { fs::metadata(path) } else { fs::symlink_metadata(path) };
                match found {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    found => {
                        let found = found.doing(|| format!("looking at {}", self.text()))?;
                        let kind = match found.file_type() {
                            kind if kind.is_dir() => Kind::Directory,
                            kind if kind.is_symlink() => Kind::Symlink,
                            kind if kind.is_file() => Kind::File,
                            _ => Kind::Fifo,
                        };
                        let mode = (found.mode() & 0o7777) as u16;
                        Ok(Some(Found { kind, mode, size: found.len() }))
                    }
                }
            }
            Side::There(cell, place) => match status(cell, &place.path, follow) {
                Err(DirectError::Refused(Fault::NotFound)) => Ok(None),
                found => {
                    let found = found.map_err(|error| failure("looking at", place, error))?;
                    let (kind, mode, size) = (found.kind, found.mode, found.size);
                    Ok(Some(Found { kind, mode, size }))
                }
            },
        }
    }

    pub(super) fn names(&self) -> Outcome<Vec<Vec<u8>>> {
        match self {
            Side::Here(path) => {
                let doing = || format!("listing {}", self.text());
                let entries = fs::read_dir(path).doing(doing)?;
                let name = |entry: io::Result<fs::DirEntry>| {
                    entry.map(|entry| entry.file_name().as_bytes().to_vec())
                };
                entries.map(name).collect::<io::Result<_>>().doing(doing)
            }
            Side::There(cell, place) => {
                let entries =
                    list(cell, &place.path).map_err(|error| failure("listing", place, error))?;
                Ok(entries.into_iter().map(|entry| entry.name.as_bytes().to_vec()).collect())
            }
        }
    }

    pub(super) fn reader(&self) -> Outcome<Box<dyn Read>> {
        Ok(match self {
            Side::Here(path) => {
                Box::new(fs::File::open(path).doing(|| format!("reading {}", self.text()))?)
            }
            Side::There(cell, place) => {
                let reader = DirectFile::open(cell, &place.path)
                    .and_then(|file| FileReader::new(cell, file));
                Box::new(reader.map_err(|error| failure("reading", place, error))?)
            }
        })
    }

    pub(super) fn writer(&self, mode: u16) -> Outcome<Writer> {
        Ok(match self {
            Side::Here(path) => {
                let mut options = fs::File::options();
                options.write(true).create(true).truncate(true).mode(u32::from(mode));
                Writer::Here(options.open(path).doing(|| format!("writing {}", self.text()))?)
            }
            Side::There(cell, place) => {
                let writer = DirectFile::create(cell, &place.path, mode).and_then(|file| {
                    file.set_size(0)?;
                    FileWriter::new(cell, file)
                });
                Writer::There(writer.map_err(|error| failure("writing", place, error))?)
            }
        })
    }

    pub(super) fn make_directory(&self, mode: u16) -> Outcome<()> {
        match self {
            Side::Here(path) => {
                fs::create_dir(path).doing(|| format!("making {}", self.text()))?;
                let mode = fs::Permissions::from_mode(u32::from(mode) | 0o700);
                fs::set_permissions(path, mode).doing(|| format!("making {}", self.text()))
            }
            Side::There(cell, place) => make_directory(cell, &place.path, mode | 0o700)
                .map_err(|error| failure("making", place, error)),
        }
    }

    pub(super) fn remove(&self) -> Outcome<()> {
        match self {
            Side::Here(path) => fs::remove_file(path).doing(|| format!("removing {}", self.text())),
            Side::There(cell, place) => remove(cell, &place.path, RemoveWhat::File)
                .map_err(|error| failure("removing", place, error)),
        }
    }

    pub(super) fn target(&self) -> Outcome<Vec<u8>> {
        match self {
            Side::Here(path) => {
                let target = fs::read_link(path).doing(|| format!("reading {}", self.text()))?;
                Ok(target.as_os_str().as_bytes().to_vec())
            }
            Side::There(cell, place) => {
                link_target(cell, &place.path).map_err(|error| failure("reading", place, error))
            }
        }
    }

    pub(super) fn make_link(&self, target: &[u8]) -> Outcome<()> {
        match self {
            Side::Here(path) => {
                symlink(OsStr::from_bytes(target), path).doing(|| format!("making {}", self.text()))
            }
            Side::There(cell, place) => make_link(cell, &place.path, target)
                .map_err(|error| failure("making", place, error)),
        }
    }

    /// Is it the same file as another one, as far as names show?
    pub(super) fn is(&self, other: &Side) -> bool {
        match (self, other) {
            (Side::Here(one), Side::Here(other)) => same_file(one, other),
            (Side::There(_, one), Side::There(_, other)) => one == other,
            _ => false,
        }
    }
}

fn same_file(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

pub(super) enum Writer {
    Here(fs::File),
    There(FileWriter),
}

impl Writer {
    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Writer::Here(file) => file.write_all(bytes),
            Writer::There(writer) => writer.write_all(bytes),
        }
    }

    pub(super) fn finish(self) -> io::Result<()> {
        match self {
            Writer::Here(file) => file.sync_all(),
            Writer::There(writer) => Ok(writer.finish()?),
        }
    }
}
