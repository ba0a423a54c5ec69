//! A machine's records of its mounts: pid files, facts, caches and logs.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::DIR_MODE;
use crate::failure::{Doing, Failure};

/// Pid files, caches and logs of mounts. A machine that only mounts other machines' cells has these
/// and no cell.
#[derive(Clone, Debug)]
pub struct MountRecords {
    dir: PathBuf,
}

impl MountRecords {
    /// The records below `dir`.
    pub fn of(dir: &Path) -> Self {
        MountRecords { dir: dir.to_owned() }
    }

    /// Makes the directories of the records.
    ///
    /// # Errors
    /// If a directory cannot be made.
    pub fn prepare(&self) -> Result<(), Failure> {
        for below in ["logs", "mounts", "cache"] {
            let path = self.dir.join(below);
            fs::create_dir_all(&self.dir).doing(|| format!("making {}", self.dir.display()))?;
            let made = fs::DirBuilder::new().recursive(true).mode(DIR_MODE).create(&path);
            made.doing(|| format!("making {}", path.display()))?;
        }
        Ok(())
    }

    /// The pid file of the mount at `at`.
    pub fn pid_file(&self, at: &Path) -> PathBuf {
        self.dir.join("mounts").join(format!("{}.pid", file_name(at)))
    }

    /// The facts that the mount at `at` publishes while it runs.
    pub fn facts_file(&self, at: &Path) -> PathBuf {
        self.dir.join("mounts").join(format!("{}.json", file_name(at)))
    }

    /// The disk cache of the mount at `at`.
    pub fn cache(&self, at: &Path) -> PathBuf {
        self.dir.join("cache").join(file_name(at))
    }

    /// The log of the mount at `at`.
    pub fn log(&self, at: &Path) -> PathBuf {
        self.dir.join("logs").join(format!("mount{}.log", file_name(at)))
    }

    /// The mount points that have a pid file, with or without a process.
    ///
    /// # Errors
    /// If the directory of pid files cannot be read.
    pub fn recorded(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(self.dir.join("mounts")) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut points: Vec<PathBuf> = entries
            .flatten()
            .filter_map(|entry| {
                Some(mount_point(entry.file_name().to_str()?.strip_suffix(".pid")?))
            })
            .collect();
        points.sort();
        Ok(points)
    }
}

/// Encodes a mount point as a file name that can be decoded: `-` for `/`, and `%` before ambiguous
/// characters.
pub fn file_name(at: &Path) -> String {
    let text = at.as_os_str().as_bytes();
    text.iter().fold(String::new(), |mut name, byte| {
        match byte {
            b'/' => name.push('-'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' => name.push(char::from(*byte)),
            other => name.push_str(&format!("%{other:02x}")),
        }
        name
    })
}

pub(crate) fn mount_point(name: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let escaped = (first == '%')
            .then(|| rest.get(1..3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (first, escaped) {
            (_, Some(byte)) => bytes.push(byte),
            ('-', None) => bytes.push(b'/'),
            (other, None) => bytes.extend(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        rest = &rest[if escaped.is_some() { 3 } else { first.len_utf8() }..];
    }
    PathBuf::from(<std::ffi::OsStr as OsStrExt>::from_bytes(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_survive_being_file_names() {
        for path in ["/", "/mnt/a-b", "/x y/%41/\u{e9}", "/mnt/-"] {
            let path = Path::new(path);
            assert_eq!(mount_point(&file_name(path)), path, "{}", file_name(path));
            assert!(!file_name(path).contains('/'));
        }
    }
}
