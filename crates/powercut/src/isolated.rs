//! A process and a mount name space for one test.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Names the test whose body runs in this process.
const INSIDE: &str = "RIALTO_POWERCUT_TEST";

/// The reason for which this process cannot cut power; `None`: it can.
pub fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("mounting needs root".to_owned());
    }
    let files = [mount::channel::Device::PATH, "/dev/loop-control"];
    if let Some(file) = files.into_iter().find(|file| !Path::new(file).exists()) {
        return Some(format!("there is no {file}"));
    }
    let programs: [&[&str]; 3] = [
        &["losetup", "--version"],
        &["mkfs.ext4", "-V"],
        &["unshare", "--mount", "--propagation", "private", "true"],
    ];
    programs.into_iter().find_map(|words| {
        let [program, arguments @ ..] = words else { return None };
        let mut command = Command::new(program);
        match command.args(arguments).stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => None,
            Ok(output) => {
                Some(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
            }
            Err(error) => Some(format!("{program}: {error}")),
        }
    })
}

/// Unmounts FUSE file systems in the new name space, which has a copy of each mount of the old one.
/// A copy keeps a FUSE file system alive after it was unmounted in the old name space, and its
/// daemon waits for that.
fn let_go_of_others_mounts() {
    let mounts =
        std::fs::read_to_string("/proc/self/mountinfo").expect("the mounts of this process");
    for line in mounts.lines() {
        let Some((place, kind)) = line.split_once(" - ") else { continue };
        let Some(path) = place.split(' ').nth(4).filter(|_| kind.starts_with("fuse")) else {
            continue;
        };
        // A mount that is gone, or below one that is, needs no unmount.
        let _ = rustix::mount::unmount(unescaped(path), rustix::mount::UnmountFlags::DETACH);
    }
}

/// A path as the kernel lists it: white space and backslashes are octal numbers there.
fn unescaped(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let [first, behind @ ..] = rest {
        let number = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match number
            .and_then(|digits| u8::from_str_radix(digits, 8).ok())
            .filter(|_| *first == b'\\')
        {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    bytes
}

/// Runs the body of the calling test in a process with a mount name space of its own: starts the
/// test's program again with this test alone. All mounts go with that process. Where it cannot run,
/// the test prints a line that it was skipped, and passes.
///
/// # Panics
/// If the body fails there; its output is printed here.
pub fn isolated(body: impl FnOnce()) {
    let test = std::thread::current()
        .name()
        .map(str::to_owned)
        .expect("a test's thread has the test's name");
    if std::env::var_os(INSIDE).as_deref() == Some(OsStr::new(&test)) {
        let_go_of_others_mounts();
        return body();
    }
    if let Some(reason) = missing() {
        // Standard error itself is not captured: scripts/check.sh counts the line.
        let _ = std::io::stderr().write_all(format!("\nSKIP unit: {test}: {reason}\n").as_bytes());
        return;
    }
    let program = std::env::current_exe().expect("the test's program has a name");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).arg(program).args([
        &test,
        "--exact",
        "--nocapture",
    ]);
    let output = command.env(INSIDE, &test).stdin(Stdio::null()).output().expect("unshare runs");
    for said in [output.stdout, output.stderr] {
        // The prefix prevents that a script counts the inner summary.
        String::from_utf8_lossy(&said).lines().for_each(|line| println!("| {line}"));
    }
    assert!(output.status.success(), "{test} failed in its own process: {}", output.status);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_paths_are_unescaped() {
        assert_eq!(unescaped("/a\\040b\\134c\\12"), b"/a b\\c\\12");
    }
}
