//! Programs called `rm` and the volumes below what they are to remove.
//!
//! Model. `rm -r` walks down, and to the kernel a volume below a mount point is like any other
//! directory on its way: without a word it would empty a volume that its user never named. So in a
//! volume that is mounted below another, an `rm` removes only what is below a name of its command
//! line that lies *inside the volume*. Everything else there it *met on its way* through the mount
//! point, and its `unlink` and `rmdir` fail with `EXDEV`. A command line that names the mount point
//! itself names nothing inside: that cannot be removed.
//!
//! The thread that waits for the answer says which program it is (`/proc/TID/comm`), what it is to
//! remove (`cmdline`, `cwd`), and where it is (`syscall`, `fd`); the table of mounts has the
//! volume's *places*. Nothing is looked up by its path: the walk would be a request to this mount,
//! and wait for a lock that the caller holds. There are two kinds of programs:
//!
//! - *With a descriptor* of the directory (coreutils): its link is the whole path of what is to be
//!   removed. A name of the command line that is on that path counts from there. If none is, the
//!   command line goes through a symbolic link. The last word of a name is not one, so it is
//!   somewhere on the path: if it occurs at or above the place, the walk may have begun there, and
//!   the rule holds back.
//! - *By paths* (busybox, and coreutils for the names of the command line themselves): the path is
//!   in the caller's memory, which is not read. If the command line has a name above the volume, it
//!   removes there only what the command line names; otherwise names inside count for all.
//!
//! The table of mounts and what the thread is are asked for once a second, its directory once a
//! second for each directory. A thread without readable files in `/proc` (another pid namespace)
//! is not held back.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::calling;

/// The name of the program.
const PROGRAM: &str = "rm";
/// How long an answer of `/proc` counts.
const FRESH: Duration = Duration::from_secs(1);
/// From this number of threads on, those that were not seen for a while are dropped.
const THREADS_MANY: usize = 64;

/// The threads that removed something a moment ago, in all mounts of a client.
#[derive(Default)]
pub struct Removals(Mutex<HashMap<u32, Thread>>);

struct Thread {
    seen: Instant,
    /// `None`: it is no `rm`.
    order: Option<Arc<RemovalOrder>>,
    /// Directories, by the device of the volume and the node, in which it may remove, or not.
    decided: HashMap<(Arc<str>, u64), bool>,
}

impl Thread {
    fn new(tid: u32, now: Instant) -> Self {
        let order = RemovalOrder::of_thread(tid).map(Arc::new);
        Thread { seen: now, order, decided: HashMap::new() }
    }

    fn is_fresh(&self, now: Instant) -> bool {
        now.duration_since(self.seen) < FRESH
    }
}

impl Removals {
    /// Whether the thread `tid` must not remove `name` from the directory `node` of the volume that
    /// is mounted as `device`.
    pub fn holds_back(&self, tid: u32, device: &Arc<str>, node: u64, name: &[u8]) -> bool {
        let at = (Arc::clone(device), node);
        let order = {
            let now = Instant::now();
            let mut threads = self.0.lock();
            if threads.len() >= THREADS_MANY {
                threads.retain(|_, thread| thread.is_fresh(now));
            }
            let thread = threads.entry(tid).or_insert_with(|| Thread::new(tid, now));
            if !thread.is_fresh(now) {
                *thread = Thread::new(tid, now);
            }
            let Some(order) = &thread.order else { return false };
            if let Some(may) = thread.decided.get(&at) {
                return !may;
            }
            Arc::clone(order)
        };
        let dir = match calling::removes_from(tid) {
            Some(descriptor) => std::fs::read_link(format!("/proc/{tid}/fd/{descriptor}")).ok(),
            None => None,
        };
        let Some(dir) = dir else { return !order.may_by_path(device, OsStr::from_bytes(name)) };
        let verdict = order.may_in(device, &dir);
        if let Some(may) = verdict
            && let Some(thread) = self.0.lock().get_mut(&tid)
        {
            thread.decided.insert(at, may);
        }
        !verdict.unwrap_or_else(|| order.names(&dir.join(OsStr::from_bytes(name))))
    }
}

/// The order of an `rm`. A command line may have a hundred thousand names, so none of them is
/// looked for one after the other.
#[derive(Debug, Default)]
struct RemovalOrder {
    /// The names of the command line, as paths from the root without `.` and `..`.
    named: HashSet<PathBuf>,
    /// The same by their last words.
    by_last: HashMap<OsString, Vec<PathBuf>>,
    /// The table of mounts: mount points by device numbers.
    places: HashMap<String, Vec<PathBuf>>,
}

impl RemovalOrder {
    /// `None`: the thread is no `rm`, or cannot be read.
    fn of_thread(tid: u32) -> Option<Self> {
        // 0: the kernel itself, or a process of another pid namespace.
        if tid == 0 || std::fs::read_to_string(format!("/proc/{tid}/comm")).ok()?.trim() != PROGRAM
        {
            return None;
        }
        let words = std::fs::read(format!("/proc/{tid}/cmdline")).ok()?;
        let cwd = std::fs::read_link(format!("/proc/{tid}/cwd")).ok()?;
        // The caller's, and ours: links below `/proc` are shown from our root.
        let tables = [tid.to_string(), "self".to_owned()];
        let tables = tables
            .map(|whose| std::fs::read(format!("/proc/{whose}/mountinfo")).unwrap_or_default());
        Some(RemovalOrder::new(names_of(&words, &cwd), &tables))
    }

    fn new(names: Vec<PathBuf>, tables: &[Vec<u8>]) -> Self {
        let mut order = RemovalOrder::default();
        for name in &names {
            if let Some(last) = name.file_name() {
                order.by_last.entry(last.to_owned()).or_default().push(name.clone());
            }
        }
        order.named = names.into_iter().collect();
        let lines = tables.iter().flat_map(|table| table.split(|byte| *byte == b'\n'));
        for (device, place) in lines.filter_map(mount_of_line) {
            order.places.entry(device).or_default().push(place);
        }
        order
    }

    fn places(&self, device: &str) -> &[PathBuf] {
        self.places.get(device).map_or(&[], Vec::as_slice)
    }

    /// Whether it may remove what is in the directory `dir` of this volume; `None`: only what the
    /// command line names.
    fn may_in(&self, device: &str, dir: &Path) -> Option<bool> {
        let above = self.places(device).iter().filter(|place| dir.starts_with(place));
        let Some(place) = above.max_by_key(|place| place.components().count()) else {
            // A volume that was detached while it was in use.
            return Some(false);
        };
        let on_way = || dir.ancestors().filter(|above| self.named.contains(*above));
        if on_way().any(|named| is_inside(named, place)) {
            return Some(true);
        }
        let depth = place.components().count();
        let named = dir.components().map(|word| self.by_last.contains_key(word.as_os_str()));
        let occurs: Vec<bool> = named.collect();
        let begins_above = on_way().next().is_some() || occurs[..depth].contains(&true);
        (!begins_above && occurs[depth..].contains(&true)).then_some(true)
    }

    /// The same for one name in any directory of the volume.
    fn may_by_path(&self, device: &str, name: &OsStr) -> bool {
        let places = self.places(device);
        let is_inside = |one: &PathBuf| places.iter().any(|place| is_inside(one, place));
        let named = self.by_last.get(name);
        if named.is_some_and(|named| named.iter().any(is_inside)) {
            return true;
        }
        let begins_above =
            places.iter().any(|place| place.ancestors().any(|above| self.named.contains(above)));
        !begins_above && (named.is_some() || self.named.iter().any(is_inside))
    }

    /// Whether the command line has exactly this path.
    fn names(&self, path: &Path) -> bool {
        self.named.contains(path)
    }
}

/// Whether the path is below the place of a volume, and not the place itself.
fn is_inside(path: &Path, place: &Path) -> bool {
    path != place && path.starts_with(place)
}

/// The names of a command line, as the kernel stores it.
fn names_of(words: &[u8], cwd: &Path) -> Vec<PathBuf> {
    let words = words.strip_suffix(&[0]).unwrap_or(words).split(|byte| *byte == 0);
    let mut names = Vec::new();
    let mut only_names = false;
    for word in words.skip(1) {
        match word {
            b"--" if !only_names => only_names = true,
            // Options may follow names.
            [b'-', _, ..] if !only_names => {}
            _ => names.push(plain(&cwd.join(OsStr::from_bytes(word)))),
        }
    }
    names
}

/// The path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(word) => plain.push(word),
            Component::ParentDir => drop(plain.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain
}

/// The device number and the mount point in a line of `mountinfo`.
fn mount_of_line(line: &[u8]) -> Option<(String, PathBuf)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?.to_owned();
    let place = unescaped(fields.nth(1)?);
    Some((device, PathBuf::from(OsStr::from_bytes(&place))))
}

/// The kernel writes blanks and backslashes as three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let byte = match rest {
            [b'\\', digits @ ..] if digits.len() >= 3 => std::str::from_utf8(&digits[..3])
                .ok()
                .and_then(|digits| u8::from_str_radix(digits, 8).ok()),
            _ => None,
        };
        out.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &rest[4..] } else { after };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An `rm` with this command line, where a volume is at `/t/dir/point` and at `/t/other`.
    fn order(cwd: &str, line: &str) -> RemovalOrder {
        let words = line.replace(' ', "\0") + "\0";
        let table = "9 8 1:2 / /t/dir/point rw\n9 8 1:2 / /t/other rw\n9 8 1:1 / /t rw\n";
        RemovalOrder::new(names_of(words.as_bytes(), Path::new(cwd)), &[table.into()])
    }

    fn may(cwd: &str, line: &str, dir: &str, name: &str) -> bool {
        let order = order(cwd, line);
        let verdict = order.may_in("1:2", Path::new(dir));
        verdict.unwrap_or_else(|| order.names(&Path::new(dir).join(name)))
    }

    fn may_by_path(cwd: &str, line: &str, name: &str) -> bool {
        order(cwd, line).may_by_path("1:2", OsStr::new(name))
    }

    #[test]
    fn what_it_meets_on_its_way_stays() {
        for (cwd, line) in [
            ("/t", "rm -rf dir"),
            ("/t", "rm -rf ./dir/"),
            ("/t/dir", "rm -rf point"),
            ("/t/dir", "rm -rf point/"),
            ("/t/dir/point", "rm -rf ../point"),
            ("/t/dir/point/x", "rm -rf ../../../dir"),
            ("/", "rm -rf t"),
            ("/home", "rm -r -- /t/dir -x"),
            // Through a symbolic link to /t.
            ("/home", "rm -rf tree/dir"),
            ("/home", "rm -rf tree/dir other/deep"),
            // `a/dir` in the volume is not the `dir` of the command line.
            ("/home", "rm -rf dir"),
            // It names nothing that is on the path.
            ("/home", "rm -rf elsewhere"),
            ("/home", "rm -rf"),
        ] {
            assert!(!may(cwd, line, "/t/dir/point", "file"), "{cwd} {line}");
            assert!(!may(cwd, line, "/t/dir/point/a/dir", "file"), "{cwd} {line}");
            assert!(!may_by_path(cwd, line, "file"), "{cwd} {line}");
        }
    }

    #[test]
    fn what_its_command_line_names_inside_is_removed() {
        for (cwd, line) in [
            ("/t", "rm -rf dir/point/a"),
            ("/t/dir/point", "rm -rf a b"),
            ("/t/dir/point/a", "rm -rf ../a"),
            ("/t/dir/point/b", "rm -r --force -- ../../point/a -b"),
            ("/", "rm -rf /t/dir/point/a/deep"),
            ("/t", "rm -rf dir dir/point/a"),
            // Through a symbolic link to /t/dir or to the volume.
            ("/home", "rm -rf link/point/a"),
            ("/home", "rm -rf link/a"),
        ] {
            assert!(may(cwd, line, "/t/dir/point/a/deep", "file"), "{cwd} {line}");
        }
        assert!(may("/t/dir", "rm -f point/file", "/t/dir/point", "file"), "with a descriptor");
        for (cwd, line) in [
            ("/t/dir", "rm -f point/file"),
            ("/t", "rm -rf dir dir/point/file"),
            ("/t/dir/point", "rm -rf a"),
            ("/t", "rm -rf other/a"),
            ("/home", "rm link/file"),
        ] {
            assert!(may_by_path(cwd, line, "file"), "{cwd} {line}");
        }
    }

    #[test]
    fn lines_of_the_table_of_mounts_are_read() {
        let line = b"36 35 0:98 /tree /mnt/a\\040b\\134c rw,noatime shared:1 - fuse x rw";
        assert_eq!(
            mount_of_line(line),
            Some(("0:98".to_owned(), PathBuf::from("/mnt/a b\\c"))),
            "as the kernel escapes it"
        );
        assert_eq!(mount_of_line(b""), None);
        assert_eq!(unescaped(b"\\9x\\04"), b"\\9x\\04");
    }

    #[test]
    fn other_programs_are_not_held_back() {
        let removals = Removals::default();
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        for tid in [0, u32::MAX, own] {
            assert!(!removals.holds_back(tid, &"1:2".into(), 3, b"file"), "{tid}");
        }
    }
}
