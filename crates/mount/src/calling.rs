//! What a caller's system call wants of a mount point: to look at it, or to go through it.
//!
//! Model. The kernel's own automount points are mounted by whoever goes through them, and not by
//! whoever asks for their status, so that a listing of ten thousand does not mount ten thousand
//! file systems. A FUSE request does not tell the two apart. The thread that waits for the answer
//! does: `/proc/TID/syscall` has the number of its system call. A thread whose call cannot be read
//! (another pid namespace, io_uring) goes through: a mount too many does no harm.
//!
//! Source: `follow_automount` in the kernel's `fs/namei.c`.

use libc::c_long;

/// What a system call wants of the last name of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Its status or attributes.
    Look,
    /// What is behind it.
    Enter,
}

/// Calls that ask for a status or attributes, or that change the name itself.
const LOOKING: &[c_long] = &[
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
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

/// What the thread `tid` wants, which waits for the answer of a request.
pub fn intent_of(tid: u32) -> Intent {
    // 0: the kernel itself, or a process of another pid namespace.
    if tid == 0 {
        return Intent::Enter;
    }
    std::fs::read_to_string(format!("/proc/{tid}/syscall"))
        .map_or(Intent::Enter, |line| intent_in(&line))
}

/// The line begins with the number of the call, or is `running`.
fn intent_in(line: &str) -> Intent {
    let number = line.split_ascii_whitespace().next().and_then(|word| word.parse().ok());
    if number.is_some_and(|number: c_long| LOOKING.contains(&number)) {
        Intent::Look
    } else {
        Intent::Enter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_looked_at_and_a_directory_is_entered() {
        let line = |number: c_long| format!("{number} 0x3 0x7ffd 0x0 0x0 0x0 0x0 0x7ffc 0x7f12\n");
        for looks in [libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_lgetxattr] {
            assert_eq!(intent_in(&line(looks)), Intent::Look, "{looks}");
        }
        for enters in [libc::SYS_openat, libc::SYS_chdir, libc::SYS_statfs, libc::SYS_mount] {
            assert_eq!(intent_in(&line(enters)), Intent::Enter, "{enters}");
        }
    }

    #[test]
    fn an_unknown_caller_enters() {
        for line in ["", "running\n", "-1 0x7ffc 0x7f12\n", "x 0x3"] {
            assert_eq!(intent_in(line), Intent::Enter, "{line:?}");
        }
        for tid in [0, u32::MAX] {
            assert_eq!(intent_of(tid), Intent::Enter, "{tid}");
        }
    }
}
