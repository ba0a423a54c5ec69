//! The supplementary groups of a request's process, which the kernel does not send.

use types::limits::GROUPS_MAX;

/// The groups of process `pid`, none if it is gone or hidden. It waits for its request meanwhile,
/// so it cannot change them.
pub fn of_process(pid: u32) -> Box<[u32]> {
    // 0: the kernel itself, or a process of another pid namespace.
    if pid == 0 {
        return Box::default();
    }
    std::fs::read_to_string(format!("/proc/{pid}/status"))
        .map(|status| parse(&status))
        .unwrap_or_default()
}

fn parse(status: &str) -> Box<[u32]> {
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups
        .split_ascii_whitespace()
        .filter_map(|group| group.parse().ok())
        .take(GROUPS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_one_line_of_the_status() {
        assert_eq!(*parse("Name:\tx\nGroups:\t4 27 1000 \nNStgid:\t1\n"), [4, 27, 1000]);
        assert_eq!(*parse("Name:\tx\nGroups:\t \n"), [0u32; 0]);
        assert_eq!(*parse(""), [0u32; 0]);
    }

    #[test]
    fn our_own_groups_are_found() {
        let expected: Vec<u32> = rustix::process::getgroups()
            .unwrap()
            .into_iter()
            .map(rustix::process::Gid::as_raw)
            .collect();
        assert_eq!(*of_process(std::process::id()), *expected);
        assert_eq!(*of_process(0), [0u32; 0]);
    }
}
