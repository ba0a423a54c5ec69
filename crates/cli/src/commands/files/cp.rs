//! `rialto cp`: copies files into a cell, out of it, and between cells.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use local::failure::{Doing, Failure};
use local::show::{self, Fetching};
use rialto_client::{
    DirectCell, DirectError, DirectFile, FileReader, FileWriter, link_target, list, make_directory,
    make_link, remove, status,
};
use types::{Fault, Kind, RemoveWhat};

use super::{CellPath, Cells, failure};
use crate::reach::ReachOptions;

const HELP: &str = "\
EXAMPLES
    rialto cp results.csv rialto:///data/                 into the directory
    rialto cp -r project rialto://example.org/home/alice/
    rialto cp rialto:///data/results.csv .
    rialto cp rialto://one.org/a rialto://two.org/b       from one cell to another

A place in a cell is rialto://CELL/PATH; without CELL it is in the cell that other commands
ask. All other names are files here. With -r links are copied as links; mount points are
directories of their own, and what is below them is not copied.

EXIT CODES
    0  done
    1  something was not copied; a line says what
    3  no cell there";

/// Copies files into a cell or out of it, without a mount.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct Cp {
    /// Files: rialto://CELL/PATH, or files here.
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<String>,
    /// A file, or a directory for all of them.
    #[arg(value_name = "DEST")]
    to: String,
    /// Directories, with all that is below them.
    #[arg(short, long)]
    recursive: bool,
    /// One line for each file that was copied.
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    reach: ReachOptions,
}

/// A file on either side.
#[derive(Clone)]
enum Side {
    Here(PathBuf),
    There(DirectCell, CellPath),
}

/// The facts about a file that decide how it is copied.
struct Found {
    kind: Kind,
    mode: u16,
    size: u64,
}

type Outcome<T> = Result<T, Failure>;

impl Side {
    fn of(text: &str, cells: &mut Cells<'_>) -> Outcome<Side> {
        match CellPath::parse(text) {
            Some(place) => Ok(Side::There(cells.of(&place)?, place)),
            None => Ok(Side::Here(PathBuf::from(text))),
        }
    }

    fn text(&self) -> String {
        match self {
            Side::Here(path) => path.display().to_string(),
            Side::There(_, place) => place.to_string(),
        }
    }

    fn join(&self, name: &OsStr) -> Side {
        match self {
            Side::Here(path) => Side::Here(path.join(name)),
            Side::There(cell, place) => {
                Side::There(cell.clone(), place.join(&name.to_string_lossy()))
            }
        }
    }

    fn name(&self) -> Option<&OsStr> {
        match self {
            Side::Here(path) => path.file_name(),
            Side::There(_, place) => {
                Some(place.name()).filter(|name| !name.is_empty()).map(OsStr::new)
            }
        }
    }

    /// `None`: nothing is there.
    fn find(&self, follow: bool) -> Outcome<Option<Found>> {
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

    fn names(&self) -> Outcome<Vec<Vec<u8>>> {
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

    fn reader(&self) -> Outcome<Box<dyn Read>> {
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

    fn writer(&self, mode: u16) -> Outcome<Writer> {
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

    fn make_directory(&self, mode: u16) -> Outcome<()> {
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

    fn remove(&self) -> Outcome<()> {
        match self {
            Side::Here(path) => fs::remove_file(path).doing(|| format!("removing {}", self.text())),
            Side::There(cell, place) => remove(cell, &place.path, RemoveWhat::File)
                .map_err(|error| failure("removing", place, error)),
        }
    }

    fn target(&self) -> Outcome<Vec<u8>> {
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

    fn make_link(&self, target: &[u8]) -> Outcome<()> {
        match self {
            Side::Here(path) => {
                symlink(OsStr::from_bytes(target), path).doing(|| format!("making {}", self.text()))
            }
            Side::There(cell, place) => make_link(cell, &place.path, target)
                .map_err(|error| failure("making", place, error)),
        }
    }

    /// Is it the same file as another one, as far as names show?
    fn is(&self, other: &Side) -> bool {
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

enum Writer {
    Here(fs::File),
    There(FileWriter),
}

impl Writer {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Writer::Here(file) => file.write_all(bytes),
            Writer::There(writer) => writer.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Writer::Here(file) => file.sync_all(),
            Writer::There(writer) => Ok(writer.finish()?),
        }
    }
}

/// A copy in progress.
struct Copying<'a> {
    options: &'a Cp,
    progress: Fetching,
    bytes: u64,
    total: u64,
    buffer: Vec<u8>,
    failed: Vec<Failure>,
}

impl Cp {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut cells = Cells::new(&self.reach);
        let to = Side::of(&self.to, &mut cells)?;
        let into = to.find(true)?.is_some_and(|found| found.kind == Kind::Directory);
        if !into && (self.sources.len() > 1 || self.to.ends_with('/')) {
            return Err(Failure::new(format!("copying to {}", to.text()), "it is no directory")
                .mend("'rialto mkdir -p' makes one"));
        }
        let mut copying = Copying {
            options: &self,
            progress: Fetching::new(),
            bytes: 0,
            total: 0,
            buffer: vec![0; 1 << 20],
            failed: Vec::new(),
        };
        for source in &self.sources {
            let from = Side::of(source, &mut cells)?;
            let to = match from.name().filter(|_| into) {
                Some(name) => to.join(name),
                None => to.clone(),
            };
            copying.copy(&from, &to);
        }
        let Copying { mut failed, progress, .. } = copying;
        drop(progress);
        let last = failed.pop();
        for failure in failed {
            eprintln!("{failure}");
        }
        last.map_or(Ok(ExitCode::SUCCESS), Err)
    }
}

impl Copying<'_> {
    fn copy(&mut self, from: &Side, to: &Side) {
        if let Err(failure) = self.try_copy(from, to) {
            self.failed.push(failure);
        }
    }

    fn try_copy(&mut self, from: &Side, to: &Side) -> Outcome<()> {
        let doing = || format!("copying {}", from.text());
        let Some(found) = from.find(!self.options.recursive)? else {
            return Err(Failure::new(doing(), "there is no such file"));
        };
        match found.kind {
            Kind::File => self.copy_file(from, to, &found),
            Kind::Directory if self.options.recursive => self.copy_directory(from, to, &found),
            Kind::Directory => {
                Err(Failure::new(doing(), "it is a directory").mend("-r copies all of it"))
            }
            Kind::Symlink => {
                let target = from.target()?;
                // A link that is there gives way, as with 'cp'.
                if to.find(false)?.is_some_and(|there| there.kind == Kind::Symlink) {
                    to.remove()?;
                }
                to.make_link(&target)?;
                self.copied(from, to);
                Ok(())
            }
            Kind::MountPoint => {
                eprintln!("{}: a mount point; what is below it is not copied", from.text());
                Ok(())
            }
            _ => Err(Failure::new(doing(), "it is no file, directory or link")),
        }
    }

    fn copy_file(&mut self, from: &Side, to: &Side, found: &Found) -> Outcome<()> {
        if from.is(to) {
            return Err(Failure::new(format!("copying {}", from.text()), "it is the same file"));
        }
        self.total += found.size;
        let mut reader = from.reader()?;
        let mut writer = to.writer(found.mode & 0o777)?;
        loop {
            let bytes = match reader.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failure::new(format!("reading {}", from.text()), error)),
            };
            writer.write_all(&self.buffer[..bytes]).doing(|| format!("writing {}", to.text()))?;
            self.bytes += bytes as u64;
            self.progress.record("copied", self.bytes, self.total.max(self.bytes));
        }
        writer.finish().doing(|| format!("writing {}", to.text()))?;
        self.copied(from, to);
        Ok(())
    }

    fn copy_directory(&mut self, from: &Side, to: &Side, found: &Found) -> Outcome<()> {
        match to.find(true)? {
            None => to.make_directory(found.mode & 0o777)?,
            Some(there) if there.kind == Kind::Directory => {}
            Some(_) => {
                return Err(Failure::new(
                    format!("copying {}", from.text()),
                    format!("{} is no directory", to.text()),
                ));
            }
        }
        for name in from.names()? {
            let name = OsStr::from_bytes(&name);
            self.copy(&from.join(name), &to.join(name));
        }
        Ok(())
    }

    fn copied(&self, from: &Side, to: &Side) {
        if self.options.verbose {
            show::answer(false, &(), format_args!("{} -> {}", from.text(), to.text()));
        }
    }
}
