//! Access modes of the server's files: directories have mode 0700, files 0600.
//!
//! Small files, names, access lists and password hashes lie in the partitions and in `celldb/`, so
//! a directory that another local user can read discloses them. The cell's directory itself has
//! 0711: the mount point `mnt/` below it stays reachable, and its other names cannot be listed.
//!
//! The walk visits only names that the server makes: a mount below the cell's directory would
//! answer no `stat` before the server runs. It does not enter directories of bodies: those are
//! closed, and body files are made with mode 0600.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

use crate::cell::CellDir;

/// Bits that must be clear there: others may search the cell's directory, and nothing else.
const CELL_DIR_WIDE: u32 = 0o066;
/// Bits that must be clear elsewhere: others have no access.
const WIDE: u32 = 0o077;
/// Limit of entries of one walk; `RocksDB` has a few thousand at most.
const ENTRIES_MAX: usize = 100_000;
/// Directories of a partition that are not entered: they may hold millions of files.
const UNVISITED: [&str; 2] = ["bodies", "blanks"];
/// Names that the server makes in the cell's directory, and the depth of the walk below each.
const PLACES: [(&str, usize); 11] = [
    ("cell.toml", 0),
    ("cell.toml.new", 0),
    ("celldb", 2),
    ("keys", 2),
    ("known_cells", 0),
    ("logs", 1),
    ("mounts", 1),
    ("cache", 0),
    ("audit", 1),
    ("rules", 0),
    ("server.pid", 0),
];
/// Depth of a partition and its engine.
const PARTITION_DEPTH: usize = 2;

/// A path with too wide a mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wide {
    /// The file or directory.
    pub path: PathBuf,
    /// Its mode now.
    pub mode: u32,
    /// The mode that it should have.
    pub wanted: u32,
}

/// Sets the umask so that new files are for the server's user alone. Called before any thread
/// starts.
pub fn close_new_files() {
    rustix::process::umask(Mode::from_raw_mode(WIDE));
}

/// Returns all paths of the server of `cell` with too wide a mode.
pub fn wide(cell: &CellDir) -> Vec<Wide> {
    let mut walk = Walk { found: Vec::new(), left: ENTRIES_MAX };
    walk.check(cell.dir(), 0, CELL_DIR_WIDE);
    for (name, depth) in PLACES {
        walk.check(&cell.dir().join(name), depth, WIDE);
    }
    let secrets = cell.config.kerberos.iter().map(|kerberos| &kerberos.keytab);
    let secrets = secrets.chain(cell.config.afs.iter().filter_map(|afs| afs.keys.as_ref()));
    let secrets = secrets.chain(cell.config.certificate.iter().map(|given| &given.key));
    // Keys elsewhere are not the server's.
    for secret in secrets.filter(|secret| secret.is_relative()) {
        walk.check(&cell.dir().join(secret), 0, WIDE);
    }
    for partition in cell.partitions() {
        walk.check(&fs::canonicalize(&partition).unwrap_or(partition), PARTITION_DEPTH, WIDE);
    }
    walk.found
}

/// Narrows too wide modes, and logs each.
pub fn repair(cell: &CellDir) {
    for Wide { path, mode, wanted } in wide(cell) {
        match fs::set_permissions(&path, fs::Permissions::from_mode(wanted)) {
            Ok(()) => tracing::warn!(
                path = %path.display(), "other users of this machine could use it: its mode was \
                    {mode:o} and is {wanted:o} now"
            ),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::error!(
                path = %path.display(), %error, "other users of this machine can use it (mode \
                    {mode:o}); run 'chmod {wanted:o}' on it as its owner"
            ),
        }
    }
}

struct Walk {
    found: Vec<Wide>,
    left: usize,
}

impl Walk {
    fn check(&mut self, path: &Path, depth: usize, wide: u32) {
        // A link's mode means nothing, and a file may be removed meanwhile.
        let Ok(metadata) = fs::symlink_metadata(path) else { return };
        let kind = metadata.file_type();
        if !kind.is_dir() && !kind.is_file() || self.left == 0 {
            return;
        }
        self.left -= 1;
        let mode = metadata.permissions().mode() & 0o7777;
        if mode & wide != 0 {
            self.found.push(Wide { path: path.to_owned(), mode, wanted: mode & !wide });
        }
        let closed = path
            .file_name()
            .is_some_and(|name| UNVISITED.iter().any(|unvisited| name == *unvisited));
        if !kind.is_dir() || depth == 0 || closed {
            return;
        }
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            self.check(&entry.path(), depth - 1, WIDE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::NewCell;

    #[test]
    fn wide_modes_are_repaired_except_at_the_mount_point() {
        let dir = tempfile::tempdir().unwrap();
        let cell = CellDir::create(&dir.path().join("cell"), "test", NewCell::default()).unwrap();
        let at = |name: &str| cell.dir().join(name);
        fs::create_dir_all(at("vicep/meta")).unwrap();
        fs::create_dir_all(at("vicep/bodies/1")).unwrap();
        fs::create_dir_all(at("celldb")).unwrap();
        let set = |name: &str, mode| {
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o7777;
        for file in
            ["vicep/meta/1.sst", "vicep/FORMAT", "vicep/bodies/1/one", "celldb/2.sst", "rules"]
        {
            fs::write(at(file), "secret").unwrap();
            set(file, 0o644);
        }
        for of in ["vicep", "vicep/meta", "vicep/bodies", "celldb", "logs", "mnt"] {
            set(of, 0o755);
        }
        set("cell.toml", 0o664);
        fs::set_permissions(cell.dir(), fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", at("vicep/link")).unwrap();

        assert!(
            wide(&cell)
                .iter()
                .any(|wide| wide.path == at("vicep/meta/1.sst") && wide.mode == 0o644)
        );
        repair(&cell);
        assert_eq!(wide(&cell), []);
        for of in ["vicep", "vicep/meta", "vicep/bodies", "celldb", "logs"] {
            assert_eq!(mode(of), 0o700, "{of}");
        }
        for file in ["vicep/meta/1.sst", "vicep/FORMAT", "celldb/2.sst", "rules", "cell.toml"] {
            assert_eq!(mode(file), 0o600, "{file}");
        }
        assert_eq!((mode(""), mode("mnt"), mode("vicep/bodies/1/one")), (0o711, 0o755, 0o644));
    }

    #[test]
    fn a_new_cell_is_closed_from_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let cell = CellDir::create(&dir.path().join("cell"), "test", NewCell::default()).unwrap();
        assert_eq!(wide(&cell), []);
    }
}
