//! Random reads, writes, maps, cuts and holes on one file, compared with a copy in memory after
//! each step.
//!
//! `exercise random FILE [SECOND]` is one process. With SECOND, the same file on another mount,
//! each step is done on one of the two: under a lock of that side (`--handover lock`), or between
//! an open and a close (`--handover close`); either must make the change visible at the other side.
//! `exercise contend FILE` is run by several processes at once, on one or several mounts: each
//! takes the file's lock, checks that every block is as the last holder left it, and changes one.
//! `exercise calls` does random calls on a tree through many places ([`calls`]).
//!
//! All steps derive from `--seed`: a failure prints it, the step, and the steps before.

mod calls;

use std::collections::VecDeque;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::fs::{Advice, FallocateFlags, FlockOperation};

/// Steps that a failure shows.
const SHOWN: usize = 40;

#[derive(Parser)]
enum Command {
    /// One process, compared with memory.
    Random(Random),
    /// Several processes, each run of this one.
    Contend(Contend),
    /// One process, calls of all kinds, compared with another file system.
    Calls(calls::Calls),
}

#[derive(Parser)]
struct Random {
    /// The file; created anew.
    file: PathBuf,
    /// The same file on another mount.
    second: Option<PathBuf>,
    /// Count of steps.
    #[arg(long, default_value_t = 20_000)]
    ops: u64,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The file's largest size.
    #[arg(long, default_value_t = 256 << 10)]
    size: usize,
    /// How two mounts take turns.
    #[arg(long, value_enum, default_value_t = Handover::Lock)]
    handover: Handover,
    /// Steps of one side in a row, at most.
    #[arg(long, default_value_t = 1)]
    turn: u64,
    /// No holes and no reserved room, where the file system has neither.
    #[arg(long)]
    no_fallocate: bool,
}

#[derive(Parser)]
struct Contend {
    /// The file; created if it does not exist.
    file: PathBuf,
    /// Duration.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Use flock instead of fcntl locks: all that contend must use the same.
    #[arg(long)]
    flock: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Handover {
    Lock,
    Close,
}

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::Random(random) => random.run(),
        Command::Contend(contend) => contend.run(),
        Command::Calls(calls) => calls.run(),
    };
    match done {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("exercise: {text}");
            ExitCode::FAILURE
        }
    }
}

/// One step.
#[derive(Clone, Copy, Debug)]
enum Op {
    Read { at: usize, length: usize },
    Write { at: usize, length: usize, fill: u8 },
    Append { length: usize, fill: u8 },
    MapRead { at: usize, length: usize },
    MapWrite { at: usize, length: usize, fill: u8 },
    Cut { to: usize },
    Punch { at: usize, length: usize },
    Zero { at: usize, length: usize },
    Reserve { at: usize, length: usize },
    Sync,
    Forget,
    Reopen,
}

impl Random {
    fn run(self) -> Result<String, String> {
        let start = Instant::now();
        let mut machine =
            Machine::new(&self).map_err(|error| format!("{}: {error}", self.file.display()))?;
        let mut number = 0;
        while number < self.ops {
            let side = if machine.paths.len() == 2 { machine.random.random_range(0..2) } else { 0 };
            let most = machine.random.random_range(1..=self.turn.max(1)).min(self.ops - number);
            match machine.turn(side, number, most) {
                Ok(done) => number += done,
                Err(why) => {
                    return Err(format!("with seed {}: {why}\n{}", self.seed, machine.history()));
                }
            }
        }
        let rate = self.ops as f64 / start.elapsed().as_secs_f64();
        Ok(format!("{} steps, no divergence ({rate:.0} a second, seed {})", self.ops, self.seed))
    }
}

/// The file, its expected content, and the steps done so far.
struct Machine {
    paths: Vec<PathBuf>,
    open: Vec<Option<File>>,
    expected: Vec<u8>,
    size_max: usize,
    handover: Option<Handover>,
    random: SmallRng,
    steps: VecDeque<(u64, usize, Op)>,
    zero_range: bool,
    fallocate: bool,
}

impl Machine {
    fn new(from: &Random) -> io::Result<Self> {
        let paths: Vec<PathBuf> =
            [Some(&from.file), from.second.as_ref()].into_iter().flatten().cloned().collect();
        File::create(&paths[0])?.sync_all()?;
        Ok(Machine {
            open: paths.iter().map(|_| None).collect(),
            handover: (paths.len() == 2).then_some(from.handover),
            paths,
            expected: Vec::new(),
            size_max: from.size,
            random: SmallRng::seed_from_u64(from.seed),
            steps: VecDeque::new(),
            zero_range: !from.no_fallocate,
            fallocate: !from.no_fallocate,
        })
    }

    fn range(&mut self) -> (usize, usize) {
        let at = self.random.random_range(0..self.size_max);
        // Mostly short, sometimes long, so that both page and block edges occur.
        let longest = (self.size_max - at).min(if self.random.random_ratio(1, 4) {
            self.size_max / 2
        } else {
            9000
        });
        (at, self.random.random_range(1..=longest.max(1)))
    }

    /// A range within the file; `None` if the file is empty.
    fn range_inside(&mut self) -> Option<(usize, usize)> {
        let size = self.expected.len();
        let at = (size > 0).then(|| self.random.random_range(0..size))?;
        Some((at, self.random.random_range(1..=(size - at).min(40_000))))
    }

    fn draw(&mut self) -> Op {
        let (at, length) = self.range();
        let fill = self.random.random_range(1..=255);
        let inside = self.range_inside();
        match (self.random.random_range(0..100), inside) {
            (0..22, _) => Op::Read { at, length },
            (22..46, _) => Op::Write { at, length, fill },
            (46..50, _) if self.expected.len() < self.size_max => {
                Op::Append { length: length.min(self.size_max - self.expected.len()), fill }
            }
            (50..60, Some((at, length))) => Op::MapRead { at, length },
            (60..70, Some((at, length))) => Op::MapWrite { at, length, fill },
            (70..78, _) => Op::Cut { to: at },
            (78..84, _) if self.fallocate => Op::Punch { at, length },
            (84..87, _) if self.zero_range => Op::Zero { at, length },
            (87..89, _) if self.fallocate => Op::Reserve { at, length },
            (89..92, _) => Op::Sync,
            (92..95, _) => Op::Forget,
            (95..100, _) => Op::Reopen,
            _ => Op::Read { at, length },
        }
    }

    fn remember(&mut self, number: u64, side: usize, op: Op) {
        self.steps.push_back((number, side, op));
        if self.steps.len() > SHOWN {
            self.steps.pop_front();
        }
    }

    fn history(&self) -> String {
        let line = |(number, side, op): &(u64, usize, Op)| {
            format!("  {number} on {}: {op:?}", ["A", "B"][*side])
        };
        self.steps.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Runs up to `most` steps of one side, under one lock or one open where the sides take turns;
    /// returns how many it did.
    fn turn(&mut self, side: usize, first: u64, most: u64) -> Result<u64, String> {
        if self.open[side].is_none() {
            let opened = OpenOptions::new().read(true).write(true).open(&self.paths[side]);
            self.open[side] = Some(opened.map_err(|error| format!("open: {error}"))?);
        }
        let file = self.open[side].take().expect("opened just now");
        let lock = if self.handover == Some(Handover::Lock) {
            Some(Locked::take(&file, self.random.random())?)
        } else {
            None
        };
        let (mut done, mut close) = (0, self.handover == Some(Handover::Close));
        while done < most {
            let op = self.draw();
            self.remember(first + done, side, op);
            self.step(side, &file, op).map_err(|why| format!("step {}: {why}", first + done))?;
            done += 1;
            if matches!(op, Op::Reopen) {
                close = true;
                break;
            }
        }
        if let Some(lock) = lock {
            lock.release(&file)?;
        }
        self.open[side] = (!close).then_some(file);
        Ok(done)
    }

    fn step(&mut self, side: usize, file: &File, op: Op) -> Result<(), String> {
        let size = file.metadata().map_err(|error| format!("stat: {error}"))?.len();
        if size != self.expected.len() as u64 {
            return Err(format!("the size is {size}, not {}", self.expected.len()));
        }
        self.apply(side, file, op)
    }

    fn apply(&mut self, side: usize, file: &File, op: Op) -> Result<(), String> {
        let failed = |error: &dyn fmt::Display| format!("{op:?}: {error}");
        match op {
            Op::Read { at, length } => {
                let mut seen = vec![0; length];
                let count = read_up_to(file, &mut seen, at).map_err(|error| failed(&error))?;
                self.compare(at, &seen[..count], length.min(self.expected.len().saturating_sub(at)))
            }
            Op::Write { at, length, fill } => {
                file.write_all_at(&vec![fill; length], at as u64)
                    .map_err(|error| failed(&error))?;
                self.put(at, length, fill);
                Ok(())
            }
            Op::Append { length, fill } => {
                let appending = OpenOptions::new()
                    .append(true)
                    .open(&self.paths[side])
                    .map_err(|error| failed(&error))?;
                io::Write::write_all(&mut &appending, &vec![fill; length])
                    .map_err(|error| failed(&error))?;
                let end = self.expected.len();
                self.put(end, length, fill);
                Ok(())
            }
            Op::MapRead { at, length } => {
                let map = mem::map::Map::new(file, self.expected.len(), false)
                    .map_err(|error| failed(&error))?;
                let mut seen = vec![0; length];
                map.read(at, &mut seen);
                self.compare(at, &seen, length)
            }
            Op::MapWrite { at, length, fill } => {
                let mut map = mem::map::Map::new(file, self.expected.len(), true)
                    .map_err(|error| failed(&error))?;
                map.write(at, &vec![fill; length]);
                // Only this makes writes through a map visible to another mount.
                if self.handover.is_some() || self.random.random() {
                    map.flush().map_err(|error| failed(&error))?;
                }
                self.put(at, length, fill);
                Ok(())
            }
            Op::Cut { to } => {
                file.set_len(to as u64).map_err(|error| failed(&error))?;
                self.expected.resize(to, 0);
                Ok(())
            }
            Op::Punch { at, length } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(file, flags, at as u64, length as u64)
                    .map_err(|error| failed(&error))?;
                self.clear(at, length);
                Ok(())
            }
            Op::Zero { at, length } => {
                match rustix::fs::fallocate(
                    file,
                    FallocateFlags::ZERO_RANGE,
                    at as u64,
                    length as u64,
                ) {
                    // Not every file system supports it.
                    Err(rustix::io::Errno::OPNOTSUPP) => self.zero_range = false,
                    Err(error) => return Err(failed(&error)),
                    Ok(()) => {
                        self.grow(at + length);
                        self.clear(at, length);
                    }
                }
                Ok(())
            }
            Op::Reserve { at, length } => {
                let flags = FallocateFlags::empty();
                rustix::fs::fallocate(file, flags, at as u64, length as u64)
                    .map_err(|error| failed(&error))?;
                self.grow(at + length);
                Ok(())
            }
            Op::Sync => file.sync_all().map_err(|error| failed(&error)),
            Op::Forget => {
                file.sync_all().map_err(|error| failed(&error))?;
                rustix::fs::fadvise(file, 0, None, Advice::DontNeed).map_err(|error| failed(&error))
            }
            Op::Reopen => Ok(()),
        }
    }

    fn compare(&self, at: usize, seen: &[u8], length: usize) -> Result<(), String> {
        if seen.len() != length {
            return Err(format!("{} bytes could be read at {at}, not {length}", seen.len()));
        }
        let expected = &self.expected[at.min(self.expected.len())..][..length];
        let Some(first) = seen.iter().zip(expected).position(|(left, right)| left != right) else {
            return Ok(());
        };
        let wrong = seen.iter().zip(expected).filter(|(left, right)| left != right).count();
        Err(format!(
            "byte {} is {:#04x}, not {:#04x}; {wrong} of {length} bytes from {at} on differ",
            at + first,
            seen[first],
            expected[first]
        ))
    }

    fn grow(&mut self, size: usize) {
        if size > self.expected.len() {
            self.expected.resize(size, 0);
        }
    }

    fn put(&mut self, at: usize, length: usize, fill: u8) {
        self.grow(at + length);
        self.expected[at..at + length].fill(fill);
    }

    fn clear(&mut self, at: usize, length: usize) {
        let end = (at + length).min(self.expected.len());
        if at < end {
            self.expected[at..end].fill(0);
        }
    }
}

fn read_up_to(file: &File, into: &mut [u8], at: usize) -> io::Result<usize> {
    let mut count = 0;
    while count < into.len() {
        match file.read_at(&mut into[count..], (at + count) as u64)? {
            0 => break,
            more => count += more,
        }
    }
    Ok(count)
}

/// A lock on the whole file, of either kind.
struct Locked {
    flock: bool,
}

impl Locked {
    fn take(file: &File, flock: bool) -> Result<Self, String> {
        let lock = FlockOperation::LockExclusive;
        let taken =
            if flock { rustix::fs::flock(file, lock) } else { rustix::fs::fcntl_lock(file, lock) };
        taken.map(|()| Locked { flock }).map_err(|error| format!("lock: {error}"))
    }

    fn release(self, file: &File) -> Result<(), String> {
        let unlock = FlockOperation::Unlock;
        let released = if self.flock {
            rustix::fs::flock(file, unlock)
        } else {
            rustix::fs::fcntl_lock(file, unlock)
        };
        released.map_err(|error| format!("unlock: {error}"))
    }
}

/// Blocks of the contended file; one more in front counts the changes of each.
const BLOCKS: usize = 16;
/// Not a whole number of pages, so that blocks share some.
const BLOCK: usize = 5000;

impl Contend {
    fn run(self) -> Result<String, String> {
        let file = open_or_make(&self.file)
            .map_err(|error| format!("{}: {error}", self.file.display()))?;
        let mut random = SmallRng::seed_from_u64(self.seed);
        let end = Instant::now() + Duration::from_secs(self.seconds);
        let mut turns = 0u64;
        while Instant::now() < end {
            let lock = Locked::take(&file, self.flock)?;
            self.turn(&file, &mut random)
                .map_err(|why| format!("turn {turns}, seed {}: {why}", self.seed))?;
            lock.release(&file)?;
            turns += 1;
        }
        if turns == 0 {
            Err("never had the lock".to_owned())
        } else {
            Ok(format!("{turns} turns, nothing lost"))
        }
    }

    fn turn(&self, file: &File, random: &mut SmallRng) -> Result<(), String> {
        let io = |error: io::Error| error.to_string();
        let mut counts = [0u8; BLOCKS * 8];
        let there = read_up_to(file, &mut counts, 0).map_err(io)?;
        if there != 0 && there != counts.len() {
            return Err(format!("{there} bytes of counts"));
        }
        let mut seen = vec![0; BLOCK];
        for block in 0..BLOCKS {
            let count = count_of(&counts, block);
            let length = read_up_to(file, &mut seen, place(block)).map_err(io)?;
            if count > 0 && (length != BLOCK || seen != content(block, count)) {
                return Err(format!("block {block} is not what change {count} left"));
            }
        }
        let block = random.random_range(0..BLOCKS);
        let count = count_of(&counts, block) + 1;
        file.write_all_at(&content(block, count), place(block) as u64).map_err(io)?;
        counts[block * 8..][..8].copy_from_slice(&count.to_le_bytes());
        file.write_all_at(&counts, 0).map_err(io)
    }
}

fn open_or_make(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

fn place(block: usize) -> usize {
    BLOCKS * 8 + block * BLOCK
}

fn count_of(counts: &[u8], block: usize) -> u64 {
    let bytes = counts[block * 8..][..8].try_into().expect("eight bytes");
    u64::from_le_bytes(bytes)
}

fn content(block: usize, count: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    SmallRng::seed_from_u64(count.wrapping_mul(1000).wrapping_add(block as u64))
        .fill(bytes.as_mut_slice());
    bytes
}
