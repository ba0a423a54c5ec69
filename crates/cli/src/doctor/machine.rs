//! Checks of the machine: the requirements of cells and mounts.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Resource;

use super::Finding;

/// 2025-01-01: a correct clock is later.
const SECONDS_MIN: u64 = 1_735_689_600;
/// Servers and mounts have a file open for each body in use.
const OPEN_FILES_MIN: u64 = 4096;
/// The first kernel that can drop cached names without taking a directory's lock (FUSE 7.44,
/// `FUSE_NOTIFY_INC_EPOCH`).
const KERNEL_MIN: (u32, u32) = (6, 16);

/// Checks the machine.
pub fn examine() -> Vec<Finding> {
    let root = rustix::process::geteuid().is_root();
    let mut findings = vec![fuse_device(), kernel(&kernel_release())];
    if !root {
        findings.push(fusermount());
    }
    findings.extend(uring(std::fs::read_to_string(mount::URING_SWITCH)));
    findings.extend([engine(), clock(SystemTime::now()), open_files()]);
    findings
}

fn fuse_device() -> Finding {
    const CHECK: &str = "fuse device";
    match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => Finding::ok(CHECK, "/dev/fuse can be opened"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Finding::fail(
            CHECK,
            "/dev/fuse is not there",
            "run 'modprobe fuse'; in a container, start it with --device /dev/fuse --cap-add \
                SYS_ADMIN",
        ),
        Err(error) => Finding::fail(
            CHECK,
            format!("/dev/fuse: {error}"),
            "run 'chmod 666 /dev/fuse', or be root",
        ),
    }
}

fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

fn kernel(release: &str) -> Finding {
    const CHECK: &str = "kernel";
    let (major, minor) = KERNEL_MIN;
    let found = format!("Linux {release}");
    match version(release) {
        Some(version) if version >= KERNEL_MIN => Finding::ok(CHECK, found),
        _ => Finding::warn(
            CHECK,
            found,
            format!(
                "from Linux {major}.{minor} on, changes by others cost a mount the least; older \
                    ones work harder"
            ),
        ),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn fusermount() -> Finding {
    const CHECK: &str = "fusermount3";
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&paths).map(|dir| dir.join("fusermount3")).find(|path| path.exists());
    let Some(path) = found else {
        return Finding::fail(
            CHECK,
            "not found, and only root can mount without it",
            "run 'apt-get install fuse3'",
        );
    };
    let set_uid = path.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o4000 != 0);
    if set_uid {
        Finding::ok(CHECK, path.display().to_string())
    } else {
        let mend = format!(
            "run 'chmod u+s {}' as root, or install the package fuse3 anew",
            path.display()
        );
        Finding::warn(CHECK, format!("{} is not set-uid root", path.display()), mend)
    }
}

/// A kernel without the switch lacks the feature; the check of its version reports that.
fn uring(switch: io::Result<String>) -> Option<Finding> {
    const CHECK: &str = "fuse by io_uring";
    let on = switch.ok()?.trim() == "Y";
    Some(if on {
        Finding::ok(CHECK, "on: mounts made from now on use it")
    } else {
        let mend = format!(
            "as root, 'echo 1 > {}' turns it on for mounts made from then on; 'options fuse \
            enable_uring=1' in /etc/modprobe.d, or fuse.enable_uring=1 on the kernel's command \
            line, after each start",
            mount::URING_SWITCH
        );
        Finding::warn(CHECK, "off: requests go through /dev/fuse, which takes more wake-ups", mend)
    })
}

/// The library is loaded, since this binary runs; its version helps with other faults.
fn engine() -> Finding {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let library = maps
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().nth(5))
        .find(|p| p.contains("librocksdb"));
    Finding::ok("metadata engine", library.unwrap_or("part of this binary"))
}

fn clock(now: SystemTime) -> Finding {
    const CHECK: &str = "clock";
    let since = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    if since < SECONDS_MIN {
        let mend = "set it, or start a time service such as systemd-timesyncd";
        return Finding::fail(CHECK, "the clock shows a time before 2025", mend);
    }
    Finding::ok(CHECK, format!("{since} seconds since 1970"))
}

fn open_files() -> Finding {
    const CHECK: &str = "open files";
    let limit = rustix::process::getrlimit(Resource::Nofile);
    match limit.maximum {
        Some(maximum) if maximum < OPEN_FILES_MIN => Finding::warn(
            CHECK,
            format!("at most {maximum} a process"),
            format!(
                "raise the hard limit to {OPEN_FILES_MIN} or more ('ulimit -Hn' as root, or \
                    limits.conf)"
            ),
        ),
        Some(maximum) => Finding::ok(CHECK, format!("up to {maximum} a process")),
        None => Finding::ok(CHECK, "no limit"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn kernels_are_told_apart_by_number_not_by_text() {
        assert_eq!(kernel("6.18.44-fc-v657").level, Severity::Ok);
        assert_eq!(kernel("10.0").level, Severity::Ok);
        assert_eq!(kernel("6.1.0-31-amd64").level, Severity::Warn);
        assert_eq!(kernel("odd").level, Severity::Warn);
    }

    #[test]
    fn the_switch_of_io_uring_is_read_where_there_is_one() {
        assert_eq!(uring(Ok("Y\n".into())).unwrap().level, Severity::Ok);
        let off = uring(Ok("N\n".into())).unwrap();
        assert!(off.level == Severity::Warn && off.mend.unwrap().contains(mount::URING_SWITCH));
        assert_eq!(uring(Err(io::ErrorKind::NotFound.into())), None);
    }

    #[test]
    fn a_clock_that_was_never_set_is_found() {
        assert_eq!(clock(UNIX_EPOCH + Duration::from_secs(3600)).level, Severity::Fail);
        assert_eq!(clock(UNIX_EPOCH + Duration::from_secs(SECONDS_MIN + 1)).level, Severity::Ok);
    }
}
