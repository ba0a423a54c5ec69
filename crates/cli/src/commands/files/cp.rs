//! `rialto cp`: copies files into a cell, out of it, and between cells.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use clap::Args;
use local::failure::{Doing, Failure};
use local::show::{self, Fetching};
use types::Kind;

use super::Cells;
use super::sides::{Found, Outcome, Side};
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
