//! The socket by which all users of this machine reach its server, and how they find it.
//!
//! Root's server has it at a place that follows from the cell's name, so that users need not know
//! the cell's directory, which shows them nothing. The place of another user's server is in its
//! directory.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::CellDir;
use super::making::SOCKET_PATH_BYTES_MAX;

/// The directory of root's sockets.
const RUN_DIR: &str = "/run/rialto";
/// Names another one, for tests that share a machine.
const RUN_VARIABLE: &str = "RIALTO_RUN";
/// In `cell.toml`: there is no socket for users.
const NONE: &str = "none";

fn run_dir() -> PathBuf {
    let named = std::env::var_os(RUN_VARIABLE).filter(|value| !value.is_empty());
    named.map_or_else(|| PathBuf::from(RUN_DIR), PathBuf::from)
}

/// The socket for users of the cell of this name, where root runs its server on this machine.
pub fn users_socket_of(cell: &str) -> PathBuf {
    run_dir().join(format!("{cell}.sock"))
}

/// The cells that root's servers on this machine serve to its users.
pub fn cells_for_users() -> Vec<String> {
    let Ok(entries) = fs::read_dir(run_dir()) else { return Vec::new() };
    let name = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        // Sockets of mounts are beside it, and their names begin with the slash of a path.
        name.strip_suffix(".sock").filter(|cell| !cell.starts_with('-')).map(str::to_owned)
    };
    let mut cells: Vec<String> = entries.flatten().filter_map(name).collect();
    cells.sort();
    cells
}

impl CellDir {
    /// The socket for users of this machine; `None`: there is none.
    pub fn users_socket(&self) -> Option<PathBuf> {
        match &self.config.users_socket {
            Some(path) if path == Path::new(NONE) => None,
            Some(path) => Some(self.dir.join(path)),
            None => {
                let fits =
                    |path: &PathBuf| path.as_os_str().as_bytes().len() <= SOCKET_PATH_BYTES_MAX;
                let is_roots = fs::metadata(&self.dir).is_ok_and(|dir| dir.uid() == 0);
                let by_name = Some(users_socket_of(&self.config.name)).filter(|_| is_roots);
                let below = self.dir.join("users/server.sock");
                by_name.filter(fits).or_else(|| Some(below).filter(fits))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::NewCell;

    #[test]
    fn cell_toml_names_the_socket_for_users_or_none() {
        let dir = tempfile::tempdir().unwrap();
        let mut cell = CellDir::create(dir.path(), "x.example", NewCell::default()).unwrap();
        let default = cell.users_socket().unwrap();
        match rustix::process::geteuid().is_root() {
            true => assert!(default.ends_with("x.example.sock"), "{default:?}"),
            false => assert_eq!(default, cell.dir().join("users/server.sock")),
        }
        for (text, path) in
            [("a/b", Some(cell.dir().join("a/b"))), ("/a/b", Some("/a/b".into())), ("none", None)]
        {
            cell.config.users_socket = Some(text.into());
            assert_eq!(cell.users_socket(), path);
        }
    }
}
