//! Access to a mount through the attributes of its files and directories (`docs/spec/volumes.md`),
//! with refusals that name the remedy.

use std::path::{Path, PathBuf};

use local::failure::{Doing, Failure};
use local::mounts;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use serde::de::DeserializeOwned;

/// The kernel's limit of an attribute's value.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// Reads an attribute.
pub(crate) fn get(path: &Path, name: &str) -> Result<String, Errno> {
    let mut value = vec![0; VALUE_BYTES_MAX];
    let length = rustix::fs::getxattr(path, name, &mut value)?;
    value.truncate(length);
    Ok(String::from_utf8_lossy(&value).into_owned())
}

/// Reads an attribute of a symbolic link itself, or of any other file.
pub(crate) fn get_of_link(path: &Path, name: &str) -> Result<String, Errno> {
    let mut value = vec![0; VALUE_BYTES_MAX];
    let length = rustix::fs::lgetxattr(path, name, &mut value)?;
    value.truncate(length);
    Ok(String::from_utf8_lossy(&value).into_owned())
}

/// Reads an attribute; `what` is the action for people.
pub(crate) fn ask(
    path: &Path,
    name: &str,
    what: impl FnOnce() -> String,
) -> Result<String, Failure> {
    get(path, name).map_err(|error| refusal(path, what(), error))
}

/// Reads an attribute that is JSON; `what` is the action for people.
///
/// # Errors
/// The mount's refusal, with its remedy, or a value that does not parse.
pub fn ask_json<T: DeserializeOwned>(path: &Path, name: &str, what: &str) -> Result<T, Failure> {
    let text = ask(path, name, || what.to_owned())?;
    serde_json::from_str(&text).doing(|| format!("{what}: reading the mount's answer"))
}

/// Sets an attribute.
pub(crate) fn set(path: &Path, name: &str, value: &str) -> Result<(), Errno> {
    rustix::fs::setxattr(path, name, value.as_bytes(), XattrFlags::empty())
}

/// Removes an attribute.
pub(crate) fn remove(path: &Path, name: &str) -> Result<(), Errno> {
    rustix::fs::removexattr(path, name)
}

/// Whether the path is in a Rialto mount.
pub(crate) fn is_ours(path: &Path) -> bool {
    get(path, "system.rialto.fid").is_ok()
}

/// The failure of an action on `path`.
pub fn refusal(path: &Path, what: String, error: Errno) -> Failure {
    let elsewhere = matches!(error, Errno::OPNOTSUPP | Errno::NODATA | Errno::PERM | Errno::INVAL)
        && !is_ours(path);
    if elsewhere {
        return Failure::new(what, format!("{} is not in Rialto's tree", path.display())).mend(
            "name a file or directory of a mounted tree; 'rialto status' and 'findmnt -t \
                fuse.rialto' show where",
        );
    }
    let failure = Failure::new(what, std::io::Error::from(error));
    match error {
        Errno::NOTCONN | Errno::CONNABORTED => failure
            .mend("the mount's process died: unmount it with 'rialto umount', then mount again"),
        Errno::PERM => failure.mend("only root may"),
        Errno::ACCESS => failure.mend("the mode of the directory does not permit it"),
        Errno::ROFS => failure
            .mend("use the read-write volume: 'rialto fs mkmount -rw' makes a mount point for it"),
        Errno::NODEV => {
            failure.mend("'rialto vos listvldb' on a server of the cell shows its volumes")
        }
        Errno::NOMEDIUM => {
            failure.mend("an administrator took the volume off: 'rialto vos online' brings it back")
        }
        Errno::BUSY => failure.mend("another operation has claimed the volume: try again"),
        _ => failure,
    }
}

/// Splits a path into a directory and a name in it, without following a link of that name.
pub(crate) fn split(path: &Path) -> Result<(PathBuf, String), Failure> {
    let what = || format!("finding {}", path.display());
    let text = path.to_string_lossy();
    let plain = !text.ends_with("/.") && path.file_name().is_some();
    let whole = if plain { path.to_owned() } else { std::fs::canonicalize(path).doing(what)? };
    let Some(name) = whole.file_name() else {
        return Err(Failure::new(what(), "that is the root directory of this machine")
            .mend("name a directory below it"));
    };
    let name = name.to_str().ok_or_else(|| Failure::new(what(), "its name is no text"))?;
    let parent =
        whole.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((parent.to_owned(), name.to_owned()))
}

/// A path in a mounted tree for queries about the whole client: `path` if given, else the current
/// directory if it is in a tree, else the first mount.
pub(crate) fn some_place(path: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = path {
        return Ok(path.to_owned());
    }
    if is_ours(Path::new(".")) {
        return Ok(PathBuf::from("."));
    }
    let mounted = mounts::all().doing(|| "reading the list of mounts".to_owned())?;
    let mut ours: Vec<PathBuf> =
        mounted.into_iter().filter(|mounted| mounted.is_rialto()).map(|of| of.at).collect();
    // One that a dead process has left must not hide the others.
    ours.sort_by_key(|at| is_dead(at));
    ours.into_iter().next().ok_or_else(|| {
        Failure::new("looking for a mounted tree", "there is none")
            .mend("'rialto up' or 'rialto mount' makes one")
            .nothing_there()
    })
}

/// Whether the process of the mount has ended.
fn is_dead(at: &Path) -> bool {
    rustix::fs::statvfs(at).err() == Some(Errno::NOTCONN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_name_of_a_path_is_not_followed() {
        let of = |text: &str| {
            split(Path::new(text)).map(|(dir, name)| (dir.to_str().unwrap().to_owned(), name)).ok()
        };
        let some = |dir: &str, name: &str| Some((dir.to_owned(), name.to_owned()));
        assert_eq!(of("a/b"), some("a", "b"));
        assert_eq!(of("a/b/"), some("a", "b"));
        assert_eq!(of("b"), some(".", "b"));
        assert_eq!(of("/b"), some("/", "b"));
        assert_eq!(of("/usr/.."), None);
        assert_eq!(of("/"), None);
        assert_eq!(of("/usr/bin/.."), some("/", "usr"));
        assert_eq!(of("/usr/."), some("/", "usr"));
        assert_eq!(of("/absent/.."), None);
    }

    #[test]
    fn a_path_elsewhere_is_said_to_be_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let message =
            ask(dir.path(), "rialto.fid", || "asking".to_owned()).unwrap_err().to_string();
        assert!(message.contains("is not in Rialto's tree"), "{message}");
        let message = ask(&dir.path().join("absent"), "rialto.fid", || "asking".to_owned())
            .unwrap_err()
            .to_string();
        assert!(message.contains("No such file"), "{message}");
    }
}
