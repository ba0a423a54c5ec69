//! Making a server's partitions.
//!
//! Model. `cell.toml` names the partitions, and `partitions.made` in the cell's directory those
//! that exist since some start of the server. A partition that is named for the first time is made,
//! empty. One that was made and is missing has volumes somewhere: its disk is not mounted, or lost.
//! The server then refuses to start, since an empty partition in its place would look healthy, and
//! `vos syncserv` would take its volumes off the database. An administrator who wants an empty one
//! all the same names it (`rialto server --new-partition`).

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use local::cell::{CellDir, VOLUME};
use local::failure::{Doing, Failure};
use store::{
    FORMAT_OLDEST, FORMAT_VERSION, NewRoot, OpenOptions, Partition, PartitionConfig, VolumeQuota,
};
use types::{Name, Timestamp};

/// Makes the partitions of `cell` that are new, and those that are missing and named in `anew`.
/// `options` are those of new ones.
///
/// # Errors
/// If one is missing that was there, or cannot be made; if `anew` names none of the cell's.
pub fn make(cell: &CellDir, anew: &[String], options: &OpenOptions) -> Result<(), Failure> {
    let anew = chosen(cell, anew)?;
    let mut made = Made::read(cell)?;
    let missing = |path: &Path| exists(path).map(|exists| !exists);
    for (path, name) in cell.partitions().iter().zip(cell.partition_names()) {
        if missing(path)? && made.has(path) && !anew.contains(path) {
            return Err(is_missing(path, &name));
        }
    }
    // One without volumes gets that of the cell's level when the server knows it (VE-6); a new
    // cell has the newest.
    let is_new = matches!(cell.database(), server::CellPlace::Here(path) if !exists(&path)?);
    let format = if is_new { FORMAT_VERSION } else { FORMAT_OLDEST };
    for (number, path) in cell.partitions().iter().enumerate() {
        // The cell's first partition has the root of the tree.
        let first = number == 0 && cell.config.has_database();
        if missing(path)? {
            make_one(path, &cell.config.name, first, format, options.clone())?;
        }
    }
    made.enter(cell)
}

/// Whether the server made this partition, or found it, at an earlier start.
///
/// # Errors
/// If the record cannot be read.
pub fn was_made(cell: &CellDir, path: &Path) -> Result<bool, Failure> {
    Ok(Made::read(cell)?.has(path))
}

/// The remedy for a partition that is missing.
pub fn remedy(path: &Path, name: &str) -> String {
    format!(
        "mount the disk that has {}, or mend its path in cell.toml; if its volumes are lost, \
            'rialto server --daemon --new-partition {}' makes an empty one in its place",
        path.display(),
        name.trim_start_matches('/')
    )
}

fn is_missing(path: &Path, name: &str) -> Failure {
    let why = format!("{} is missing, and was there at an earlier start", path.display());
    Failure::new(format!("opening the partition {name}"), why).mend(remedy(path, name))
}

/// The paths of the partitions that an administrator names, by name or path.
fn chosen(cell: &CellDir, words: &[String]) -> Result<Vec<PathBuf>, Failure> {
    let all: Vec<_> = cell.partitions().into_iter().zip(cell.partition_names()).collect();
    let one = |word: &String| {
        let is = |(path, name): &&(PathBuf, String)| {
            name == word || name.strip_prefix('/') == Some(word) || path == Path::new(word)
        };
        all.iter().find(is).map(|(path, _)| path.clone()).ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|(_, name)| name.as_str()).collect();
            Failure::new(
                "choosing a partition",
                format!("cell.toml names no {word}; it has {}", names.join(", ")),
            )
        })
    };
    words.iter().map(one).collect()
}

/// An error is none: a partition behind a directory that cannot be searched is not missing.
fn exists(path: &Path) -> Result<bool, Failure> {
    path.try_exists().doing(|| format!("looking for the partition {}", path.display()))
}

/// The partitions that were made or found at earlier starts, by their paths in `cell.toml`.
struct Made(BTreeSet<PathBuf>);

impl Made {
    fn file(cell: &CellDir) -> PathBuf {
        cell.dir().join("partitions.made")
    }

    fn read(cell: &CellDir) -> Result<Made, Failure> {
        let file = Made::file(cell);
        match fs::read(&file) {
            Ok(text) => {
                let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                let path = |line: &[u8]| PathBuf::from(std::ffi::OsString::from_vec(line.to_vec()));
                Ok(Made(lines.map(path).collect()))
            }
            // A server that wrote no record has served if it has an audit log: all were there.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let has_served = exists(&cell.dir().join("audit"))?;
                let all = cell.partitions().into_iter().filter(|_| has_served);
                Ok(Made(all.collect()))
            }
            Err(error) => Err(Failure::new(format!("reading {}", file.display()), error)),
        }
    }

    fn has(&self, path: &Path) -> bool {
        self.0.contains(path)
    }

    /// All partitions of the cell are there. Earlier ones stay in the record: their disks may come
    /// back, and their lines in `cell.toml`.
    fn enter(&mut self, cell: &CellDir) -> Result<(), Failure> {
        let file = Made::file(cell);
        let before = self.0.len();
        self.0.extend(cell.partitions());
        if self.0.len() == before && file.exists() {
            return Ok(());
        }
        let mut text: Vec<u8> = Vec::new();
        for path in &self.0 {
            text.extend(path.as_os_str().as_bytes());
            text.push(b'\n');
        }
        let draft = cell.dir().join("partitions.made.new");
        let written = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft)
            .and_then(|mut out| out.write_all(&text).and_then(|()| out.sync_all()))
            .and_then(|()| fs::rename(&draft, &file))
            .and_then(|()| fs::File::open(cell.dir())?.sync_all());
        written.doing(|| format!("writing {}", file.display()))
    }
}

/// Makes a partition, the `first` with the root of the tree. It is made beside its place and
/// renamed when it is complete, so that a crash leaves none or a whole one.
fn make_one(
    path: &Path,
    server: &str,
    first: bool,
    format: u32,
    options: OpenOptions,
) -> Result<(), Failure> {
    let what = || format!("making the partition {}", path.display());
    let draft = draft_of(path);
    if draft.exists() {
        fs::remove_dir_all(&draft).doing(what)?;
    }
    let partition_config = PartitionConfig { server: server.to_owned() };
    let partition = Partition::create_as(&draft, &partition_config, format, options).doing(what)?;
    if first {
        let root = NewRoot {
            mode: 0o755,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            now: now(),
            quota: VolumeQuota::default(),
        };
        let volume = Name::new(VOLUME.as_bytes()).expect("a constant that is a name");
        partition.volumes().create_volume(&volume, &root).doing(what)?;
    }
    partition.sync().doing(what)?;
    drop(partition);
    fs::rename(&draft, path).doing(what)
}

fn draft_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::new(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use local::cell::NewCell;

    use super::*;

    fn cell(dir: &Path) -> CellDir {
        CellDir::create(&dir.join("cell"), "test", NewCell::default()).unwrap()
    }

    fn started(cell: &CellDir, anew: &[&str]) -> Result<(), Failure> {
        let anew: Vec<String> = anew.iter().map(|name| (*name).to_owned()).collect();
        make(cell, &anew, &OpenOptions::default())
    }

    #[test]
    fn a_partition_is_made_whole_or_not_at_all_and_only_once() {
        let dir = tempfile::tempdir().unwrap();
        let cell = cell(dir.path());
        let path = &cell.partitions()[0];
        fs::create_dir(draft_of(path)).unwrap();
        fs::write(draft_of(path).join("half"), "left by a crash").unwrap();
        started(&cell, &[]).unwrap();
        started(&cell, &[]).unwrap();
        assert!(!draft_of(path).exists());
        let partition = Partition::open(path, OpenOptions::default()).unwrap();
        assert!(partition.volumes().volume_named(VOLUME.as_bytes()).unwrap().is_some());
    }

    #[test]
    fn a_partition_that_was_there_is_not_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let cell = cell(dir.path());
        started(&cell, &[]).unwrap();
        let path = &cell.partitions()[0];
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(path, &elsewhere).unwrap();
        let refused = started(&cell, &[]).unwrap_err().to_string();
        assert!(refused.contains("is missing") && refused.contains("--new-partition"), "{refused}");
        assert!(!path.exists() && !draft_of(path).exists());
        fs::rename(&elsewhere, path).unwrap();
        started(&cell, &[]).unwrap();
    }

    #[test]
    fn one_that_is_named_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let cell = cell(dir.path());
        started(&cell, &[]).unwrap();
        let path = &cell.partitions()[0];
        fs::remove_dir_all(path).unwrap();
        started(&cell, &["other"]).unwrap_err();
        started(&cell, &["vicep"]).unwrap();
        assert!(path.exists());
        fs::remove_dir_all(path).unwrap();
        started(&cell, &[]).unwrap_err();
    }

    #[test]
    fn a_further_partition_is_made_and_then_expected() {
        let dir = tempfile::tempdir().unwrap();
        let mut cell = cell(dir.path());
        started(&cell, &[]).unwrap();
        let disk = dir.path().join("disk");
        fs::create_dir(&disk).unwrap();
        cell.config.partitions = vec![PathBuf::from("vicep"), disk.join("vicepb")];
        cell.config.partition = None;
        started(&cell, &[]).unwrap();
        // The disk is not mounted: its mount point is empty.
        fs::remove_dir_all(disk.join("vicepb")).unwrap();
        started(&cell, &[]).unwrap_err();
        assert_eq!(fs::read_dir(&disk).unwrap().count(), 0);
    }

    #[test]
    fn a_server_without_a_record_that_has_served_expects_all() {
        let dir = tempfile::tempdir().unwrap();
        let cell = cell(dir.path());
        fs::create_dir(cell.dir().join("audit")).unwrap();
        started(&cell, &[]).unwrap_err();
    }
}
