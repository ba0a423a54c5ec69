//! The intent of a caller's system call at a mount point: to look at it, or to go through it.
//!
//! Model. The kernel's own automount points are mounted by a call that goes through them, and not
//! by one that asks for their status, so that a listing of ten thousand does not mount ten thousand
//! file systems. A FUSE request does not tell the two apart. The thread that waits for the answer
//! does: `/proc/TID/syscall` has its system call. A thread whose call cannot be read (another pid
//! namespace, io_uring) goes through: a mount too many does no harm. A request may be read before
//! its thread has gone to sleep, and only then the kernel tells the call: that is waited for.
//!
//! A program that walks a tree (`find`, `du`, `tar`, `rm`) and is to stay in one file system
//! compares the device number of each directory before it opens it. So its calls go through too:
//! they name a file below an open directory, and follow no symbolic link. `ls` and file managers
//! say that they do not want to (`AT_NO_AUTOMOUNT`).
//!
//! A call that looks goes through all names of its path but the last, and each request is about one
//! name. So a mount point on its way is shown as itself too, and the next request, for a name in
//! it, mounts its volume. The kernel then repeats the walk, once ([`RepeatedWalks`]): a second
//! mount point on the path must be mounted at its look-up, or the call would fail.
//!
//! Source: `follow_automount` and `retry_estale` in the kernel's `fs/namei.c`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use libc::c_long;
use parking_lot::Mutex;

/// The part of a mount point that a system call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Its own status or attributes.
    Look,
    /// The volume behind it.
    Enter,
}

/// Calls that ask for a status or attributes, or that change the name itself. Those with flags are
/// in [`flags_of`].
const LOOKING: &[c_long] = &[
    libc::SYS_fstat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_name_to_handle_at,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_getdents,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
];

/// How long a walk may take to be repeated.
const REPEATING: Duration = Duration::from_secs(2);

/// How long a thread with a request may take until it sleeps: on a loaded machine it waits for a
/// processor.
const FALLING_ASLEEP: Duration = Duration::from_millis(100);

/// The calls whose walk the kernel is about to repeat, in all mounts of a client, by thread.
#[derive(Default)]
pub struct RepeatedWalks(Mutex<HashMap<u32, (String, Instant)>>);

impl RepeatedWalks {
    /// The intent of the thread `tid`, which waits for the answer of a request.
    pub fn intent_of(&self, tid: u32) -> Intent {
        let Some(line) = line_of(tid) else { return Intent::Enter };
        let repeats = || self.0.lock().get(&tid).is_some_and(|(call, _)| *call == line);
        if intent_in(&line) == Intent::Look && !repeats() { Intent::Look } else { Intent::Enter }
    }

    /// Whether the thread repeats its walk: it will not do so once more.
    pub fn is_repeated(&self, tid: u32) -> bool {
        let told = self.0.lock().get(&tid).map(|(call, _)| call.clone());
        told.is_some_and(|told| line_of(tid).is_some_and(|line| line == told))
    }

    /// The thread is told to repeat its walk.
    pub fn repeat(&self, tid: u32) {
        let Some(line) = line_of(tid) else { return };
        let now = Instant::now();
        let mut calls = self.0.lock();
        calls.retain(|_, (_, at)| now.duration_since(*at) < REPEATING);
        calls.insert(tid, (line, now));
    }
}

/// The system call of a thread with its arguments.
fn line_of(tid: u32) -> Option<String> {
    // 0: the kernel itself, or a process of another pid namespace.
    if tid == 0 {
        return None;
    }
    let path = format!("/proc/{tid}/syscall");
    let began = Instant::now();
    loop {
        let line = std::fs::read_to_string(&path).ok()?;
        if !line.starts_with("running") || began.elapsed() > FALLING_ASLEEP {
            return Some(line);
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// The descriptor of the directory from which the thread `tid`, which waits for the answer of a
/// request, removes a name. `None`: it gave a whole path, or its call cannot be read.
pub fn removes_from(tid: u32) -> Option<i32> {
    descriptor_in(&line_of(tid)?)
}

fn descriptor_in(line: &str) -> Option<i32> {
    let (number, arguments) = call_in(line)?;
    let dir = *arguments.first()? as i32;
    (number == libc::SYS_unlinkat && dir != libc::AT_FDCWD).then_some(dir)
}

/// The line is the number of the call and its six arguments, or `running`.
fn call_in(line: &str) -> Option<(c_long, Vec<u64>)> {
    let mut words = line.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let arguments =
        words.map_while(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect();
    Some((number, arguments))
}

fn intent_in(line: &str) -> Intent {
    let Some((number, arguments)) = call_in(line) else { return Intent::Enter };
    let looks = match flags_of(number, &arguments) {
        Some((dir, flags)) => {
            let walks_tree = dir != libc::AT_FDCWD && flags & libc::AT_SYMLINK_NOFOLLOW != 0;
            flags & libc::AT_NO_AUTOMOUNT != 0 || !walks_tree
        }
        None => LOOKING.contains(&number),
    };
    if looks { Intent::Look } else { Intent::Enter }
}

/// The directory and the flags of a call that asks for a status below a directory.
fn flags_of(number: c_long, arguments: &[u64]) -> Option<(i32, i32)> {
    let at = match number {
        libc::SYS_statx => 2,
        libc::SYS_newfstatat => 3,
        _ => return None,
    };
    Some((*arguments.first()? as i32, *arguments.get(at)? as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_looked_at_and_a_directory_is_entered() {
        let line = |number: c_long| format!("{number} 0x3 0x7ffd 0x0 0x0 0x0 0x0 0x7ffc 0x7f12\n");
        let status = |number: c_long, dir: u32, flags: [i32; 2]| {
            let [third, fourth] = flags;
            format!("{number} {dir:#x} 0x7ffd {third:#x} {fourth:#x} 0x7fff 0x0 0x7ffc 0x7f12\n")
        };
        let (here, below) = (libc::AT_FDCWD as u32, 5);
        let (nofollow, quiet) = (libc::AT_SYMLINK_NOFOLLOW, libc::AT_NO_AUTOMOUNT);
        for (line, intent) in [
            (status(libc::SYS_statx, here, [nofollow, 0]), Intent::Look),
            (status(libc::SYS_statx, below, [nofollow | quiet, 0]), Intent::Look),
            (status(libc::SYS_statx, below, [nofollow, 0]), Intent::Enter),
            (status(libc::SYS_newfstatat, here, [0, nofollow]), Intent::Look),
            (status(libc::SYS_newfstatat, below, [0, 0]), Intent::Look),
            (status(libc::SYS_newfstatat, below, [0, nofollow]), Intent::Enter),
        ] {
            assert_eq!(intent_in(&line), intent, "{line}");
        }
        for looks in [libc::SYS_getdents64, libc::SYS_faccessat, libc::SYS_lgetxattr] {
            assert_eq!(intent_in(&line(looks)), Intent::Look, "{looks}");
        }
        for enters in [libc::SYS_openat, libc::SYS_chdir, libc::SYS_statfs, libc::SYS_mount] {
            assert_eq!(intent_in(&line(enters)), Intent::Enter, "{enters}");
        }
    }

    #[test]
    fn a_removal_has_a_directory_or_a_path() {
        let line = |number: c_long, dir: u32| format!("{number} {dir:#x} 0x7ffd 0x0 0x0 0x0 0x0\n");
        let here = libc::AT_FDCWD as u32;
        assert_eq!(descriptor_in(&line(libc::SYS_unlinkat, 5)), Some(5));
        assert_eq!(descriptor_in(&line(libc::SYS_unlinkat, here)), None);
        for other in [libc::SYS_io_uring_enter, libc::SYS_renameat2] {
            assert_eq!(descriptor_in(&line(other, 5)), None, "{other}");
        }
        assert_eq!(descriptor_in("running\n"), None);
    }

    #[test]
    fn an_unknown_caller_enters() {
        for line in ["", "running\n", "-1 0x7ffc 0x7f12\n", "x 0x3"] {
            assert_eq!(intent_in(line), Intent::Enter, "{line:?}");
        }
        for tid in [0, u32::MAX] {
            assert_eq!(RepeatedWalks::default().intent_of(tid), Intent::Enter, "{tid}");
        }
    }
}
