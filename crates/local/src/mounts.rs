//! The kernel's mounts, and their removal.
//!
//! A mount whose process died answers `ENOTCONN`; one whose server is away may not answer at all,
//! so every query of a mount, and every walk through one, runs on a thread of its own and is given
//! up after a while.

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
    /// The user who made it, of a FUSE mount.
    pub user: Option<u32>,
    /// The number of the mounted file system, as `MAJOR:MINOR`: all mounts of it have the same.
    pub device: String,
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
    // Not `statfs`: the mount answers that itself while its server is away. The quota it must ask
    // for; another file system's refusal is an answer too.
    let ask = move || {
        let mut value = [0_u8; 64];
        rustix::fs::getxattr(&path, "rialto.quota", &mut value).map(|_| ())
    };
    std::thread::spawn(move || answer.send(ask()));
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

/// How long one volume's unmount may take. The kernel looks its path up, and the mount above it may
/// have to ask a server for a name on it that is away.
const PATIENCE: Duration = Duration::from_secs(2);

/// Unmounts the volumes mounted below `path`, the deepest first. (A lazy unmount takes them along.)
/// False: some cannot be reached, since the directory above them was removed, or since a server
/// that is away would have to be asked for their path.
fn unmount_volumes_below(path: &Path) -> io::Result<bool> {
    let below = |mounted: &Mounted| {
        mounted.is_rialto() && mounted.at != path && mounted.at.starts_with(path)
    };
    let mut volumes: Vec<PathBuf> =
        all()?.into_iter().filter(below).map(|mounted| mounted.at).collect();
    volumes.sort_by_key(|at| std::cmp::Reverse(at.components().count()));
    let (ask, asked) = mpsc::channel::<PathBuf>();
    let (answer, answers) = mpsc::channel();
    // It ends when `ask` is dropped; while it waits for a server, the end of the process ends it.
    let unmount = move || -> Result<(), mpsc::SendError<_>> {
        asked
            .iter()
            .try_for_each(|at| answer.send(rustix::mount::unmount(&at, UnmountFlags::NOFOLLOW)))
    };
    std::thread::Builder::new().name("unmount".to_owned()).spawn(unmount)?;
    let mut reached = true;
    for at in volumes {
        ask.send(at).map_err(io::Error::other)?;
        match answers.recv_timeout(PATIENCE) {
            // The mount ended by itself meanwhile.
            Ok(Err(Errno::INVAL | Errno::NOENT)) => {}
            Ok(Err(Errno::NODEV | Errno::STALE)) => reached = false,
            Ok(result) => result?,
            Err(_) => return Ok(false),
        }
    }
    Ok(reached)
}

/// Unmounts `path` at once, whatever uses it or waits for it: its users get errors from now on.
///
/// # Errors
/// The kernel's, or the message of `fusermount3` when the process is not root.
pub fn unmount_forced(path: &Path) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        let flags = UnmountFlags::FORCE | UnmountFlags::DETACH;
        return Ok(rustix::mount::unmount(path, flags)?);
    }
    unmount(path, true)
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

/// A process that uses a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountUser {
    /// Its number.
    pub pid: u32,
    /// Its program.
    pub command: String,
    /// The user number that it runs with.
    pub uid: u32,
    /// How it uses the mount.
    pub how: &'static str,
    /// The directory or file that it uses.
    pub file: PathBuf,
}

impl std::fmt::Display for MountUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (user, file) = (user_name(self.uid), self.file.display());
        write!(f, "{} (pid {}, user {user}) {} {file}", self.command, self.pid, self.how)
    }
}

/// A process with another mount name space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherSpace {
    /// Its number.
    pub pid: u32,
    /// Its program.
    pub command: String,
}

/// A process in another mount name space that has one of these file systems mounted: a container,
/// or a service with a view of its own. A mount that is unmounted here ends only when it is gone
/// there.
pub fn mounted_elsewhere(devices: &[String]) -> Option<OtherSpace> {
    let space = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let mut seen = vec![space("self")?];
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Some(space) = space(&pid.to_string()).filter(|space| !seen.contains(space)) else {
            continue;
        };
        seen.push(space);
        let table = std::fs::read(entry.path().join("mountinfo")).unwrap_or_default();
        let mut mounts = table.split(|byte| *byte == b'\n').filter_map(parse);
        if mounts.any(|mounted| mounted.is_rialto() && devices.contains(&mounted.device)) {
            let command = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            return Some(OtherSpace { pid, command: command.trim().to_owned() });
        }
    }
    None
}

/// The name of a user of this machine, or the number.
fn user_name(uid: u32) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| uid.to_string())
}

/// Processes that use the mount at `path`: only those that this user may see.
pub fn users(path: &Path) -> Vec<MountUser> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids =
        processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| user(pid, path)).collect()
}

fn user(pid: u32, path: &Path) -> Option<MountUser> {
    use std::os::unix::fs::MetadataExt;
    let process = PathBuf::from(format!("/proc/{pid}"));
    let inside =
        |link: &Path| std::fs::read_link(link).ok().filter(|target| target.starts_with(path));
    let link = |name: &str, how| Some((how, inside(&process.join(name))?));
    let open = || {
        let mut fds = std::fs::read_dir(process.join("fd")).ok()?.flatten();
        Some(("has open", fds.find_map(|fd| inside(&fd.path()))?))
    };
    // Files that are mapped without a descriptor: the last of six columns of each line.
    let mapped = || {
        let maps = std::fs::read_to_string(process.join("maps")).ok()?;
        let mut files = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
        Some(("has mapped", PathBuf::from(files.find(|file| Path::new(file).starts_with(path))?)))
    };
    let (how, file) = link("cwd", "works in")
        .or_else(|| link("root", "has as its root"))
        .or_else(|| link("exe", "runs"))
        .or_else(open)
        .or_else(mapped)?;
    let command = std::fs::read_to_string(process.join("comm")).unwrap_or_default();
    let uid = std::fs::metadata(&process).map_or(0, |process| process.uid());
    Some(MountUser { pid, command: command.trim().to_owned(), uid, how, file })
}

/// `36 35 98:0 /root /at opts optional... - type source super-options`, with octal escapes.
pub(crate) fn parse(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = String::from_utf8_lossy(fields.nth(2)?).into_owned();
    let at = fields.nth(1)?;
    fields.find(|field| *field == b"-")?;
    let kind = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next()?).to_string_lossy().into_owned();
    let options = fields.next().unwrap_or_default().split(|byte| *byte == b',');
    let mut user = options.filter_map(|option| option.strip_prefix(b"user_id="));
    let user = user.next().and_then(|uid| std::str::from_utf8(uid).ok()?.parse().ok());
    Some(Mounted { at: PathBuf::from(unescape(at)), kind, source, user, device })
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
        assert_eq!(mounted.device, "0:44");
        assert!(mounted.is_rialto() && mounted.user == Some(0));
        assert_eq!(
            parse(b"1 2 0:3 / /no-text-\xff rw - tmpfs t rw").unwrap().at.as_os_str().as_bytes(),
            b"/no-text-\xff"
        );
        assert_eq!(parse(b"36 35 0:44 / /mnt rw"), None);
    }

    #[test]
    fn the_user_of_a_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        let mut child = Command::new("sleep").arg("60").current_dir(&path).spawn().unwrap();
        let found = loop {
            match users(&path).into_iter().find(|user| user.pid == child.id()) {
                Some(user) if user.command == "sleep" => break user,
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((found.how, &found.file), ("works in", &path));
        assert_eq!(found.uid, rustix::process::geteuid().as_raw());
        assert!(found.to_string().starts_with(&format!("sleep (pid {}, user ", found.pid)));
    }

    #[test]
    fn the_root_is_mounted_and_answers() {
        assert!(at(Path::new("/")).unwrap().is_some());
        assert_eq!(health(Path::new("/"), Duration::from_secs(5)), Health::Answers);
        assert!(below(Path::new("/proc/self")).unwrap().unwrap().at.starts_with("/proc"));
    }
}
