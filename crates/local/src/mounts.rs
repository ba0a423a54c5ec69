//! The kernel's mounts, and their removal.
//!
//! A mount whose process died answers `ENOTCONN`; one whose server is away may not answer at all,
//! so every query of a mount runs on a thread of its own and is given up after a while.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

/// One line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// The mount point.
    pub at: PathBuf,
    /// Its type, such as `ext4` or `fuse.rialto`.
    pub kind: String,
    /// The mounted object, as its file system names it.
    pub source: String,
}

impl Mounted {
    /// Whether it is a Rialto mount.
    pub fn is_rialto(&self) -> bool {
        self.kind == "fuse.rialto" || (self.kind == "fuse" && self.source.starts_with("rialto"))
    }
}

/// The state of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It answers.
    Answers,
    /// Its process has ended.
    Stale,
    /// No answer in time: most likely the server is away.
    Silent,
}

/// All mounts in this process's mount name space.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn all() -> io::Result<Vec<Mounted>> {
    // Other programs may mount under names that are no text.
    Ok(std::fs::read("/proc/self/mountinfo")?
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .collect())
}

/// The topmost mount exactly at `path`; the mount is not asked.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn at(path: &Path) -> io::Result<Option<Mounted>> {
    Ok(all()?.into_iter().rev().find(|mounted| mounted.at == path))
}

/// The mount that a path lies on: its type and source.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn below(path: &Path) -> io::Result<Option<Mounted>> {
    let path = std::fs::canonicalize(path)?;
    Ok(all()?
        .into_iter()
        .rev()
        .filter(|mounted| path.starts_with(&mounted.at))
        .max_by_key(|m| m.at.as_os_str().len()))
}

/// Asks the mount at `path`, and waits at most `patience` for the answer.
pub fn health(path: &Path, patience: Duration) -> Health {
    let (answer, answers) = mpsc::channel();
    let path = path.to_owned();
    // Not `stat`: the kernel answers that from its cache, even when the mount's process has ended.
    std::thread::spawn(move || answer.send(rustix::fs::statfs(&path).map(|_| ())));
    match answers.recv_timeout(patience) {
        Ok(Err(rustix::io::Errno::NOTCONN | rustix::io::Errno::CONNABORTED)) => Health::Stale,
        Ok(_) => Health::Answers,
        Err(_) => Health::Silent,
    }
}

/// [`health`] with the default patience.
pub fn health_now(path: &Path) -> Health {
    health(path, Duration::from_secs(3))
}

/// Unmounts the volumes mounted below `path`, the deepest first. (A lazy unmount takes them along.)
/// False: some cannot be reached any more, since the directory above them was removed.
fn unmount_volumes_below(path: &Path) -> io::Result<bool> {
    let below = |mounted: &Mounted| {
        mounted.is_rialto() && mounted.at != path && mounted.at.starts_with(path)
    };
    let mut volumes: Vec<PathBuf> =
        all()?.into_iter().filter(below).map(|mounted| mounted.at).collect();
    volumes.sort_by_key(|at| std::cmp::Reverse(at.components().count()));
    let mut reached = true;
    for at in volumes {
        match rustix::mount::unmount(&at, UnmountFlags::NOFOLLOW) {
            // The mount ended by itself meanwhile.
            Err(Errno::INVAL | Errno::NOENT) => {}
            Err(Errno::NODEV | Errno::STALE) => reached = false,
            result => result?,
        }
    }
    Ok(reached)
}

/// Unmounts `path`; `lazy`: detaches it even while it is in use, and it ends with its last user.
///
/// # Errors
/// `EBUSY` while it is in use, or the message of `fusermount3` when the process is not root.
pub fn unmount(path: &Path, lazy: bool) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        // Unreachable mounts are detached along, if no process uses them.
        let takes_along = !lazy && !unmount_volumes_below(path)?;
        if takes_along && !users(path).is_empty() {
            return Err(Errno::BUSY.into());
        }
        let flags = if lazy || takes_along { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return Ok(rustix::mount::unmount(path, flags)?);
    }
    let flags = if lazy { "-uz" } else { "-u" };
    let output = Command::new("fusermount3").arg(flags).arg("--").arg(path).output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("busy") {
        return Err(io::Error::from(Errno::BUSY));
    }
    Err(io::Error::other(text.trim().to_owned()))
}

/// Processes that use the mount at `path`: pid, command, and the path in use. Only those that this
/// user may see.
pub fn users(path: &Path) -> Vec<String> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids =
        processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| user(pid, path)).collect()
}

fn user(pid: u32, path: &Path) -> Option<String> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let name = std::fs::read_to_string(process.join("comm")).unwrap_or_default();
    let inside =
        |link: &Path| std::fs::read_link(link).ok().filter(|target| target.starts_with(path));
    if let Some(target) = inside(&process.join("cwd")) {
        return Some(format!("{} (pid {pid}) works in {}", name.trim(), target.display()));
    }
    let open =
        std::fs::read_dir(process.join("fd")).ok()?.flatten().find_map(|fd| inside(&fd.path()))?;
    Some(format!("{} (pid {pid}) has {} open", name.trim(), open.display()))
}

/// `36 35 98:0 /root /at opts optional... - type source super-options`, with octal escapes.
pub(crate) fn parse(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|byte| *byte == b' ');
    let at = fields.nth(4)?;
    fields.find(|field| *field == b"-")?;
    let kind = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next()?).to_string_lossy().into_owned();
    Some(Mounted { at: PathBuf::from(unescape(at)), kind, source })
}

fn unescape(mut rest: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(rest.len());
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                out.push(byte);
                rest = &tail[3..];
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_taken_apart() {
        let line = b"36 35 0:44 / /mnt/with\\040space rw,noatime shared:1 - fuse.rialto \
                rialto#local\\040cell rw,user_id=0";
        let mounted = parse(line).unwrap();
        assert_eq!(mounted.at, Path::new("/mnt/with space"));
        assert_eq!(
            (mounted.kind.as_str(), mounted.source.as_str()),
            ("fuse.rialto", "rialto#local cell")
        );
        assert!(mounted.is_rialto());
        assert_eq!(
            parse(b"1 2 0:3 / /no-text-\xff rw - tmpfs t rw").unwrap().at.as_os_str().as_bytes(),
            b"/no-text-\xff"
        );
        assert_eq!(parse(b"36 35 0:44 / /mnt rw"), None);
    }

    #[test]
    fn the_root_is_mounted_and_answers() {
        assert!(at(Path::new("/")).unwrap().is_some());
        assert_eq!(health(Path::new("/"), Duration::from_secs(5)), Health::Answers);
        assert!(below(Path::new("/proc/self")).unwrap().unwrap().at.starts_with("/proc"));
    }
}
