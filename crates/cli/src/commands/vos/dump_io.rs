//! The files of dumps.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A file that gets its name when it is complete; or the standard output; or none, when only the
/// size is asked for.
pub(super) enum NewFile {
    Nowhere { bytes: u64 },
    Named { file: BufWriter<File>, there: PathBuf, wanted: PathBuf, is_complete: bool },
    Standard(io::Stdout),
}

impl NewFile {
    pub(super) fn open(path: Option<&Path>) -> io::Result<NewFile> {
        let Some(wanted) = path else { return Ok(NewFile::Standard(io::stdout())) };
        let mut there = wanted.as_os_str().to_owned();
        there.push(format!(".{}.part", std::process::id()));
        let there = PathBuf::from(there);
        let file = BufWriter::new(File::create(&there)?);
        Ok(NewFile::Named { file, there, wanted: wanted.to_owned(), is_complete: false })
    }

    pub(super) fn keep(mut self) -> io::Result<()> {
        match &mut self {
            NewFile::Nowhere { .. } => Ok(()),
            NewFile::Standard(out) => out.flush(),
            NewFile::Named { file, there, wanted, is_complete } => {
                file.flush()?;
                file.get_ref().sync_all()?;
                std::fs::rename(there, wanted)?;
                *is_complete = true;
                Ok(())
            }
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let NewFile::Named { there, is_complete: false, .. } = self {
            // An incomplete dump is of no use.
            let _ = std::fs::remove_file(there);
        }
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            NewFile::Nowhere { bytes: count } => {
                *count += bytes.len() as u64;
                Ok(bytes.len())
            }
            NewFile::Named { file, .. } => file.write(bytes),
            NewFile::Standard(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            NewFile::Nowhere { .. } => Ok(()),
            NewFile::Named { file, .. } => file.flush(),
            NewFile::Standard(out) => out.flush(),
        }
    }
}

/// The dump, as a file that can be read twice.
pub(super) fn input(path: Option<&Path>) -> io::Result<File> {
    match path {
        Some(path) => {
            let mut file = File::open(path)?;
            if file.seek(SeekFrom::Start(0)).is_ok() {
                return Ok(file);
            }
            spooled(&mut file)
        }
        None => spooled(&mut io::stdin().lock()),
    }
}

/// Copies a pipe into a file, until all of it was read.
fn spooled(from: &mut dyn Read) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    io::copy(from, &mut file)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}
