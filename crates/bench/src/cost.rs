//! Resource use of the processes behind a side: processor time, context switches, memory. From
//! `/proc`.
//!
//! Processor time is that of the process, ended threads included; context switches are summed over
//! the threads that exist at the end, each against its value at the beginning: those of ended
//! threads are missing, so where the kernel counts (see `counters`) its figure is shown.

use std::collections::HashMap;
use std::fs;

/// The role of a process for a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Serves the kernel: a mount's process.
    Client,
    /// Stores the files.
    Server,
}

/// One process behind a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The role of the process.
    pub role: Role,
    /// Its process id.
    pub pid: i32,
}

/// Resources that one process has used since its start.
#[derive(Clone, Debug, Default, PartialEq)]
struct Usage {
    cpu_secs: f64,
    /// Context switches by thread id.
    switches: HashMap<i32, u64>,
    rss_bytes: u64,
}

/// Resources that all processes of a side, and the measuring program, had used at one moment.
pub struct Meter {
    used: Vec<(Watched, Usage)>,
    application_secs: f64,
}

/// Differences between two moments, for one piece of work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Processor seconds of the mounts' processes.
    pub client_cpu: f64,
    /// Processor seconds of the servers.
    pub server_cpu: f64,
    /// Processor seconds of the measuring program and of the commands it ran.
    pub application_cpu: f64,
    /// Context switches of the mounts' processes.
    pub client_switches: f64,
    /// Context switches of the servers.
    pub server_switches: f64,
    /// Growth of the mounts' resident memory in bytes; may be negative.
    pub client_growth: f64,
    /// The mounts' resident memory in bytes.
    pub client_rss: f64,
}

impl Meter {
    /// Reads `processes` now. An ended one counts nothing.
    pub fn read(processes: &[Watched]) -> Meter {
        let used = processes.iter().map(|watched| (*watched, usage(watched.pid))).collect();
        Meter { used, application_secs: application_secs() }
    }

    /// Returns the use since `earlier`.
    pub fn since(&self, earlier: &Meter) -> Cost {
        let mut cost = Cost {
            application_cpu: (self.application_secs - earlier.application_secs).max(0.0),
            ..Cost::default()
        };
        for (watched, now) in &self.used {
            let nothing = Usage::default();
            let before = earlier
                .used
                .iter()
                .find(|(other, _)| other == watched)
                .map_or(&nothing, |(_, used)| used);
            let cpu = (now.cpu_secs - before.cpu_secs).max(0.0);
            let switches = switched(&before.switches, &now.switches) as f64;
            match watched.role {
                Role::Client => {
                    cost.client_cpu += cpu;
                    cost.client_switches += switches;
                    cost.client_growth += now.rss_bytes as f64 - before.rss_bytes as f64;
                    cost.client_rss += now.rss_bytes as f64;
                }
                Role::Server => {
                    cost.server_cpu += cpu;
                    cost.server_switches += switches;
                }
            }
        }
        cost
    }
}

impl Cost {
    /// Divides by `pieces`. Memory stays that of all pieces.
    pub fn per(self, pieces: f64) -> Cost {
        Cost {
            client_cpu: self.client_cpu / pieces,
            server_cpu: self.server_cpu / pieces,
            application_cpu: self.application_cpu / pieces,
            client_switches: self.client_switches / pieces,
            server_switches: self.server_switches / pieces,
            ..self
        }
    }
}

fn switched(before: &HashMap<i32, u64>, now: &HashMap<i32, u64>) -> u64 {
    now.iter()
        .map(|(thread, count)| count.saturating_sub(before.get(thread).copied().unwrap_or(0)))
        .sum()
}

fn usage(pid: i32) -> Usage {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let cpu_secs =
        cpu_ticks(&read("stat")).map_or(0.0, |ticks| ticks.own as f64 / ticks_per_second());
    let rss_bytes = number_after(&read("status"), "VmRSS:").unwrap_or(0) << 10;
    let mut switches = HashMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let Some(thread) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let count = |name| number_after(&status, name).unwrap_or(0);
        switches.insert(
            thread,
            count("voluntary_ctxt_switches:") + count("nonvoluntary_ctxt_switches:"),
        );
    }
    Usage { cpu_secs, switches, rss_bytes }
}

/// Of this program and of its ended commands.
fn application_secs() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    cpu_ticks(&stat).map_or(0.0, |ticks| (ticks.own + ticks.children) as f64 / ticks_per_second())
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

#[derive(Debug, PartialEq, Eq)]
struct Ticks {
    own: u64,
    children: u64,
}

/// Fields 14 to 17 of `/proc/PID/stat`; the command's name, in parentheses, may contain anything.
fn cpu_ticks(stat: &str) -> Option<Ticks> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let tick = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Ticks { own: tick(11)? + tick(12)?, children: tick(13)? + tick(14)? })
}

/// The number behind the line's `name` in a file such as `/proc/PID/status`.
fn number_after(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_taken_apart() {
        let stat = "7 (a) (b c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 30 10 20 0 9 0 123 0 0";
        assert_eq!(cpu_ticks(stat), Some(Ticks { own: 300, children: 40 }));
        assert_eq!(cpu_ticks("7 (x) S 1"), None);
        assert_eq!(cpu_ticks(""), None);
        let status = "Name:\tx\nVmRSS:\t    1024 \
            kB\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(number_after(status, "VmRSS:"), Some(1024));
        assert_eq!(number_after(status, "voluntary_ctxt_switches:"), Some(12));
        assert_eq!(number_after(status, "nonvoluntary_ctxt_switches:"), Some(3));
        assert_eq!(number_after(status, "VmSwap:"), None);
    }

    #[test]
    fn switches_of_new_threads_count_and_those_of_ended_ones_do_not() {
        let before = HashMap::from([(1, 100), (2, 50)]);
        let now = HashMap::from([(1, 110), (3, 7)]);
        assert_eq!(switched(&before, &now), 17);
    }

    #[test]
    fn costs_are_differences_by_role_divided_by_the_work_done() {
        let (client, server) =
            (Watched { role: Role::Client, pid: 1 }, Watched { role: Role::Server, pid: 2 });
        let used = |cpu_secs, switches, rss_bytes| Usage {
            cpu_secs,
            switches: HashMap::from([(1, switches)]),
            rss_bytes,
        };
        let before = Meter {
            used: vec![(client, used(1.0, 10, 5000)), (server, used(4.0, 0, 1))],
            application_secs: 1.0,
        };
        let after = Meter {
            used: vec![(client, used(3.0, 30, 7000)), (server, used(8.0, 8, 9))],
            application_secs: 7.0,
        };
        let cost = after.since(&before).per(2.0);
        assert_eq!((cost.client_cpu, cost.server_cpu, cost.application_cpu), (1.0, 2.0, 3.0));
        assert_eq!((cost.client_switches, cost.server_switches), (10.0, 4.0));
        assert_eq!(
            (cost.client_growth, cost.client_rss),
            (2000.0, 7000.0),
            "memory is not shared out"
        );
    }

    #[test]
    fn this_process_uses_something() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let watched = [Watched { role: Role::Client, pid }];
        let before = Meter::read(&watched);
        std::thread::sleep(std::time::Duration::from_millis(5));
        let cost = Meter::read(&watched).since(&before);
        assert!(cost.client_switches > 0.0 && cost.client_rss > 0.0, "{cost:?}");
    }
}
