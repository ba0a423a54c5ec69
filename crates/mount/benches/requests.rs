//! The cost of a request that the client answers from memory, over each transport: no server, no
//! disk.
//!
//! `cargo bench -p mount [-- SECONDS]`: alternates between the transports, and prints medians of
//! requests a second, and context switches and microseconds of processor time a request (of this
//! process: the application and the mount). Needs root and `/dev/fuse`.

#![allow(clippy::unwrap_used)] // A measurement ends where it fails.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use mount::KernelTransport;
use rustix::fs::{AtFlags, CWD, StatxFlags};

#[path = "../tests/kernel/cell.rs"]
#[allow(dead_code)] // The tests use more of it.
mod cell;

/// The cell's: `mount_over` overrides it.
fn transport() -> KernelTransport {
    KernelTransport::Device
}

fn is_flat() -> bool {
    false
}

const ROUNDS: usize = 5;

struct Cost {
    rate: f64,
    switches: f64,
    cpu_us: f64,
}

/// Switches and processor time of this process so far. `getrusage` has no safe wrapper.
fn used() -> (f64, f64) {
    let mut switches = 0.0;
    let mut ticks = 0.0;
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let count = |line: &str| {
            line.split_ascii_whitespace().nth(1).and_then(|word| word.parse::<f64>().ok())
        };
        switches += status
            .lines()
            .filter(|line| line.contains("ctxt_switches"))
            .filter_map(count)
            .sum::<f64>();
        let time = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        ticks +=
            time.split(' ').next().and_then(|word| word.parse::<f64>().ok()).unwrap_or_default();
    }
    (switches, ticks / 1000.0)
}

fn measure(time: Duration, mut once: impl FnMut()) -> Cost {
    for _ in 0..100 {
        once();
    }
    let (switches, cpu) = used();
    let began = Instant::now();
    let mut count = 0.0;
    while began.elapsed() < time {
        once();
        count += 1.0;
    }
    let rate = count / began.elapsed().as_secs_f64();
    let (switches_after, cpu_after) = used();
    Cost { rate, switches: (switches_after - switches) / count, cpu_us: (cpu_after - cpu) / count }
}

/// One `GETATTR`, whatever the kernel knows.
fn status(path: &Path) {
    rustix::fs::statx(CWD, path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS).unwrap();
}

fn large_reads(path: &Path) -> impl FnMut() {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT;
    let file = File::from(rustix::fs::open(path, flags, rustix::fs::Mode::empty()).unwrap());
    let mut buffer = vec![0; 2 << 20];
    let start = buffer.as_ptr().align_offset(4096);
    move || file.read_exact_at(&mut buffer[start..start + (1 << 20)], 0).unwrap()
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn main() {
    let seconds =
        std::env::args().filter_map(|word| word.parse::<f64>().ok()).next().unwrap_or(0.5);
    let time = Duration::from_secs_f64(seconds);
    let Some(cell) = cell::Cell::start() else { return };
    let mut transports = vec![("device", KernelTransport::Device)];
    if mount::offers_uring() {
        transports.push(("io_uring", KernelTransport::Uring));
    }
    let clients: Vec<_> =
        transports.iter().map(|(_, transport)| cell.mount_over(*transport)).collect();
    type Case = (&'static str, fn(&Path, Duration) -> Cost);
    let cases: [Case; 4] = [
        ("getattr", |dir, time| measure(time, || status(&dir.join("small")))),
        ("open, read 4 KiB, close", |dir, time| {
            measure(time, || drop(std::fs::read(dir.join("small")).unwrap()))
        }),
        ("read 1 MiB past the page cache", |dir, time| {
            measure(time, large_reads(&dir.join("large")))
        }),
        ("write 1 MiB", |dir, time| {
            let file = File::options().write(true).open(dir.join("large")).unwrap();
            let data = vec![7; 1 << 20];
            measure(time, || file.write_all_at(&data, 0).unwrap())
        }),
    ];
    std::fs::write(clients[0].at("small"), [1; 4096]).unwrap();
    std::fs::write(clients[0].at("large"), vec![1; 4 << 20]).unwrap();
    println!(
        "{:<32} {:<9} {:>10} {:>9} {:>7}",
        "request", "transport", "a second", "switches", "us cpu"
    );
    for (name, case) in cases {
        let mut costs: Vec<Vec<Cost>> = transports.iter().map(|_| Vec::new()).collect();
        for _ in 0..ROUNDS {
            for (client, costs) in clients.iter().zip(&mut costs) {
                costs.push(case(&client.at(""), time));
            }
        }
        for ((transport, _), costs) in transports.iter().zip(&costs) {
            let of = |value: fn(&Cost) -> f64| median(costs.iter().map(value).collect());
            let (rate, switches, cpu) = (of(|c| c.rate), of(|c| c.switches), of(|c| c.cpu_us));
            println!("{name:<32} {transport:<9} {rate:>10.0} {switches:>9.2} {cpu:>7.1}");
        }
    }
}
