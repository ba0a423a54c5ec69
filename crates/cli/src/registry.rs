//! Where the records of root's mounts are, so that `umount` and `mount -o remount` find them by the
//! mount point alone: `/run/rialto/MOUNTPOINT.dir` has the directory that was named with `--dir`.

use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use local::cell::{MountRecords, Where, file_name};
use local::failure::Failure;

/// Files by which root's mounts of this machine are found, until the machine stops.
pub const RUN_DIR: &str = "/run/rialto";

fn entry(at: &Path) -> PathBuf {
    Path::new(RUN_DIR).join(format!("{}.dir", file_name(at)))
}

/// Removes the entry when dropped.
pub struct Entry(PathBuf);

impl Drop for Entry {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Enters the directory of the records of the mount at `at`. `None`: only root can, and the mount
/// is then found with --dir.
pub fn enter(at: &Path, dir: &Path) -> Option<Entry> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let path = entry(at);
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let written = fs::create_dir_all(RUN_DIR)
        .and_then(|()| fs::write(&draft, dir.as_os_str().as_bytes()))
        .and_then(|()| fs::rename(&draft, &path));
    match written {
        Ok(()) => Some(Entry(path)),
        Err(error) => {
            tracing::warn!(%error, "umount finds this mount only with --dir");
            None
        }
    }
}

/// The records of the mount at `at`: in the directory that is named, or that was entered, or in the
/// usual one.
///
/// # Errors
/// If there is no usual directory.
pub fn records(at: &Path, place: Option<&Where>) -> Result<MountRecords, Failure> {
    let place = place.cloned().unwrap_or(Where { dir: None, clear: false });
    let entered =
        || fs::read(entry(at)).ok().map(|bytes| PathBuf::from(std::ffi::OsString::from_vec(bytes)));
    match (&place.dir, entered()) {
        (None, Some(dir)) => Ok(MountRecords::of(&dir)),
        _ => Ok(MountRecords::of(&place.path()?)),
    }
}

/// The path as the kernel shows it: links before the last component resolved. The last one may be a
/// dead mount that does not answer.
pub fn real_path(at: PathBuf) -> PathBuf {
    match (at.parent().map(fs::canonicalize), at.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => at,
    }
}
