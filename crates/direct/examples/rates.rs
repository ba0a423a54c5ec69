//! How fast a program reads through the direct access library, beside the floor of its machine.
//!
//! `cargo run --release -p rialto-client --example rates` starts a server as a child process and
//! reads a file of 64 MiB that it has in memory, 1 to 32 operations in flight, from one thread.
//! Prints for each size the rate, the processor time of this process and of the server for each
//! operation. The floors: the same copies from one memory to another by one thread (`copy`), and
//! through two bare rings between two processes, one of which copies (`ring`). With BYTES and DEPTH
//! as arguments: that line alone.

use std::error::Error;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric::lane::{LANE_BYTES, client_lane, server_lane};
use mem::shared::SharedMemory;
use rand::Rng;
use rialto_client::{Buffer, DirectCell, DirectFile, DirectOptions, Group, Memory};
use server::{Server, ServerConfig};
use store::{NewRoot, OpenOptions, Partition, PartitionConfig, VolumeQuota};
use types::{Name, Timestamp};

type Outcome<T> = Result<T, Box<dyn Error>>;

const MIB: usize = 1 << 20;
const FILE_BYTES: usize = 64 * MIB;
const ROUND: Duration = Duration::from_millis(1500);

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("serve") => serve(Path::new(&arguments[2])),
        Some("ring") => serve_ring(Path::new(&arguments[2]), Path::new(&arguments[3])),
        _ => measure(),
    }
}

fn serve(dir: &Path) -> Outcome<()> {
    let partition = dir.join("vicepa");
    let config = PartitionConfig { server: "rates".to_owned() };
    let created = Partition::create(&partition, &config, OpenOptions::default())?;
    let root = NewRoot {
        mode: 0o755,
        uid: 0,
        gid: 0,
        now: Timestamp::new(1, 0),
        quota: VolumeQuota::default(),
    };
    created.volumes().create_volume(&Name::new(b"root")?, &root)?;
    drop(created);
    let mut config = ServerConfig::new(partition);
    config.unix_socket = Some(dir.join("socket"));
    config.trust_this_machine();
    let server = Server::start(&config)?;
    std::fs::write(dir.join("ready"), "")?;
    // Until standard input ends.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    server.stop()?;
    Ok(())
}

struct Served {
    child: Child,
    dir: tempfile::TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn start() -> Outcome<Served> {
    let dir = tempfile::tempdir_in(std::env::var("DIR").unwrap_or_else(|_| "/var/tmp".to_owned()))?;
    let child = Command::new(std::env::current_exe()?)
        .arg("serve")
        .arg(dir.path())
        .stdin(Stdio::piped())
        .spawn()?;
    let until = Instant::now() + Duration::from_secs(20);
    while !dir.path().join("ready").exists() {
        if Instant::now() > until {
            return Err("the server does not start".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(Served { child, dir })
}

fn measure() -> Outcome<()> {
    let served = start()?;
    let address = format!("unix:{}", served.dir.path().join("socket").display());
    let options = DirectOptions { root: "root".to_owned(), ..DirectOptions::new(address.parse()?) };
    let cell = DirectCell::connect(options)?;
    let file = DirectFile::create(&cell, "file", 0o644)?;
    let memory = cell.memory(80 * MIB)?;
    write_all(&memory, &file)?;
    let sides = Sides { memory, file, group: Group::new(), server: served.child.id() };
    println!(
        "{:<10} {:>6} {:>5} {:>12} {:>10} {:>12} {:>12}",
        "what", "bytes", "depth", "rate", "MiB/s", "own us/op", "server us/op"
    );
    let number = |at: usize| std::env::args().nth(at).and_then(|text| text.parse().ok());
    if let (Some(bytes), Some(depth)) = (number(1), number(2)) {
        return sides.read(bytes, depth);
    }
    for (bytes, depth) in [(4096, 1), (4096, 32), (16384, 1), (16384, 32), (MIB, 1), (MIB, 8)] {
        sides.read(bytes, depth)?;
        ring(bytes, depth)?;
        copy(bytes);
    }
    write_many(&cell, &sides.memory)?;
    assert!(cell.has_lane(), "the operations went through shared memory");
    Ok(())
}

fn write_all(memory: &Memory, file: &DirectFile) -> Outcome<()> {
    let group = Group::new();
    for part in 0..FILE_BYTES / MIB {
        let mut buffer = memory.buffer(MIB).ok_or("no room")?;
        buffer.fill(part as u8);
        file.write(&group, buffer, (part * MIB) as u64, part as u64)?;
        if group.len() == 8 {
            for completion in group.wait(8, None) {
                completion.result?;
            }
        }
    }
    for completion in group.wait(usize::MAX, None) {
        completion.result?;
    }
    Ok(file.commit()?)
}

/// 1,000 writes of 4 KiB to as many files, and then one wait for the disk, ten times.
fn write_many(cell: &DirectCell, memory: &Memory) -> Outcome<()> {
    const FILES: u64 = 1000;
    let files: Vec<DirectFile> = (0..FILES)
        .map(|at| DirectFile::create(cell, &format!("small {at}"), 0o644))
        .collect::<Result<_, _>>()?;
    let group = Group::new();
    let mut took: Vec<[f64; 2]> = Vec::new();
    for round in 0..10_u8 {
        let began = Instant::now();
        for (file, tag) in files.iter().zip(0..) {
            let mut buffer = memory.buffer(4096).ok_or("no room")?;
            buffer.fill(round);
            file.write(&group, buffer, 0, tag)?;
        }
        for completion in group.wait(usize::MAX, None) {
            completion.result?;
        }
        let written = began.elapsed().as_secs_f64();
        files[0].commit_volume()?;
        took.push([written, began.elapsed().as_secs_f64() - written]);
    }
    let median = |which: usize| {
        let mut all: Vec<f64> = took.iter().map(|round| round[which] * 1e3).collect();
        all.sort_unstable_by(f64::total_cmp);
        all[all.len() / 2]
    };
    println!(
        "{FILES} writes of 4 KiB to {FILES} files: {:.1} ms, stable {:.1} ms later (medians)",
        median(0),
        median(1)
    );
    Ok(())
}

struct Sides {
    memory: Memory,
    file: DirectFile,
    group: Group,
    server: u32,
}

impl Sides {
    fn read(&self, bytes: usize, depth: usize) -> Outcome<()> {
        let mut random = rand::rng();
        let mut begin = |buffer: Buffer| {
            let part = random.random_range(0..FILE_BYTES / bytes);
            self.file.read(&self.group, buffer, (part * bytes) as u64, part as u64)
        };
        for _ in 0..depth {
            begin(self.memory.buffer(bytes).ok_or("no room")?)?;
        }
        let mut done = 0_u64;
        let mut step = |until: Instant| -> Outcome<u64> {
            done = 0;
            while Instant::now() < until {
                for completion in self.group.wait(depth.div_ceil(4), None) {
                    let moved = completion.result?;
                    let first = (completion.tag as usize * bytes / MIB) as u8;
                    assert_eq!((moved.bytes, completion.buffer[bytes / 2]), (bytes, first));
                    done += 1;
                    begin(completion.buffer)?;
                }
            }
            Ok(done)
        };
        step(Instant::now() + ROUND / 3)?;
        let (own, theirs) = (cpu("self")?, cpu(&self.server.to_string())?);
        let began = Instant::now();
        let done = step(began + ROUND)? as f64;
        let seconds = began.elapsed().as_secs_f64();
        let (own, theirs) = (cpu("self")? - own, cpu(&self.server.to_string())? - theirs);
        for completion in self.group.wait(usize::MAX, None) {
            completion.result?;
        }
        row("direct", bytes, depth, done / seconds, own / done * 1e6, theirs / done * 1e6);
        Ok(())
    }
}

/// The other end of a bare ring: copies what each entry asks for into the shared memory.
fn serve_ring(lane: &Path, region: &Path) -> Outcome<()> {
    let open = |path: &Path| -> Outcome<SharedMemory> {
        let file = std::fs::File::options().read(true).write(true).open(path)?;
        Ok(SharedMemory::open(file.into())?)
    };
    let (lane, region) = (Arc::new(open(lane)?), open(region)?);
    let (mut answer, mut come) = server_lane(lane);
    let source = vec![1_u8; FILE_BYTES];
    loop {
        let Some(entry) = come.take()? else {
            std::hint::spin_loop();
            continue;
        };
        let word = |at: usize| -> Outcome<usize> {
            let bytes = entry.message(at + 8).and_then(|all| all[at..].first_chunk::<8>());
            Ok(u64::from_le_bytes(*bytes.ok_or("a short entry")?) as usize)
        };
        let (from, to, bytes) = (word(0)?, word(8)?, word(16)?);
        if bytes == 0 {
            return Ok(());
        }
        region.put(to, &source[from..from + bytes]);
        answer.put(entry.header(), &[0; 133])?;
    }
}

/// Reads through a bare ring, with the same entries and copies and nothing else.
fn ring(bytes: usize, depth: usize) -> Outcome<()> {
    let lane = Arc::new(SharedMemory::create_sealed("ring", LANE_BYTES)?);
    let region = SharedMemory::create_sealed("region", depth * bytes)?;
    let path = |memory: &SharedMemory| {
        format!("/proc/{}/fd/{}", std::process::id(), memory.file().as_raw_fd())
    };
    let mut child = Command::new(std::env::current_exe()?)
        .args(["ring", &path(&lane), &path(&region)])
        .spawn()?;
    let (mut ask, mut hear) = client_lane(lane);
    let mut random = rand::rng();
    let mut put = |slot: usize, bytes: usize| -> Outcome<()> {
        let from = random.random_range(0..FILE_BYTES / bytes.max(1)) * bytes;
        let mut header = [0; 64];
        header[0] = slot as u8;
        let words = [from as u64, (slot * bytes) as u64, bytes as u64].map(u64::to_le_bytes);
        ask.put(&header, &words.concat())?;
        Ok(())
    };
    (0..depth).try_for_each(|slot| put(slot, bytes))?;
    let mut step = |until: Instant| -> Outcome<u64> {
        let mut done = 0;
        while Instant::now() < until {
            for _ in 0..16 {
                let Some(entry) = hear.take()? else {
                    std::hint::spin_loop();
                    continue;
                };
                put(usize::from(entry.header()[0]), bytes)?;
                done += 1;
            }
        }
        Ok(done)
    };
    step(Instant::now() + ROUND / 3)?;
    let began = Instant::now();
    let done = step(began + ROUND)? as f64;
    let seconds = began.elapsed().as_secs_f64();
    child.kill()?;
    child.wait()?;
    row("ring", bytes, depth, done / seconds, seconds / done * 1e6, seconds / done * 1e6);
    Ok(())
}

fn copy(bytes: usize) {
    let from = vec![1_u8; FILE_BYTES];
    let mut to = vec![2_u8; 32 * bytes];
    let (mut random, mut done) = (rand::rng(), 0_u64);
    let began = Instant::now();
    while began.elapsed() < ROUND / 3 {
        for at in 0..32 {
            let part = random.random_range(0..FILE_BYTES / bytes) * bytes;
            to[at * bytes..(at + 1) * bytes].copy_from_slice(&from[part..part + bytes]);
            done += 1;
        }
        std::hint::black_box(&mut to);
    }
    let seconds = began.elapsed().as_secs_f64();
    row("copy", bytes, 1, done as f64 / seconds, seconds / done as f64 * 1e6, 0.0);
}

fn row(what: &str, bytes: usize, depth: usize, rate: f64, own: f64, theirs: f64) {
    let mibs = rate * bytes as f64 / MIB as f64;
    println!(
        "{what:<10} {bytes:>6} {depth:>5} {rate:>12.0} {mibs:>10.0} {own:>12.2} {theirs:>12.2}"
    );
}

/// Processor seconds that a process has used.
fn cpu(process: &str) -> Outcome<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/schedstat"))?;
    let mut nanos = 0.0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        nanos += text.split(' ').next().and_then(|part| part.parse().ok()).unwrap_or(0.0);
    }
    drop(text);
    Ok(nanos / 1e9)
}
