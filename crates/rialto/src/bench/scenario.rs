//! The scenarios: what is done before the clock starts, what is timed, and what is cleaned up after.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::State;
use super::fixture::Fixture;

/// Large reads and writes are this long: what a program that cares for speed uses.
const CHUNK: usize = 1 << 20;
/// Small files and random reads.
const SMALL: usize = 4096;
/// How often the warm tree is gone over, so that the time is long enough to measure.
const STAT_ROUNDS: usize = 4;

macro_rules! scenarios {
    ($($variant:ident, $name:literal, $unit:literal, $state:ident, $about:literal;)*) => {
        /// One thing to measure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
        pub enum Scenario { $(#[doc = $about] #[value(name = $name)] $variant,)* }

        impl Scenario {
            /// All of them, in the order in which they run.
            pub const ALL: [Scenario; [$($name),*].len()] = [$(Scenario::$variant),*];

            /// What it is called.
            pub const fn name(self) -> &'static str {
                match self { $(Scenario::$variant => $name),* }
            }

            /// What is counted; always a rate, so higher is better.
            pub const fn unit(self) -> &'static str {
                match self { $(Scenario::$variant => $unit),* }
            }

            /// What it may find in caches.
            pub const fn state(self) -> State {
                match self { $(Scenario::$variant => State::$state),* }
            }

            /// What it does, for people.
            pub const fn about(self) -> &'static str {
                match self { $(Scenario::$variant => $about),* }
            }
        }
    };
}

scenarios! {
    SeqWrite, "seq-write", "MB/s", Warm, "write a large file in 1 MiB pieces, and fsync";
    SeqReadWarm, "seq-read-warm", "MB/s", Warm, "read a large file that was just read";
    SeqReadCold, "seq-read-cold", "MB/s", Cold, "read a large file that nobody has in memory";
    MmapReadWarm, "mmap-read-warm", "MB/s", Warm, "copy a large file out of a memory map, just read";
    RandReadWarm, "rand-read-warm", "ops/s", Warm, "read 4 KiB at random places of a large file, just read";
    Create4k, "create-4k", "files/s", Warm, "create files, write 4 KiB, close";
    StatWarm, "stat-warm", "ops/s", Warm, "stat files whose attributes are known";
    StatFirst, "stat-first", "ops/s", First, "stat files for the first time since mounting";
    ListCold, "list-cold", "entries/s", Cold, "list a large directory and stat each entry, nothing in memory";
    ReadSmallWarm, "read-small-warm", "files/s", Warm, "open, read and close 4 KiB files that were just read";
    ReadSmallCold, "read-small-cold", "files/s", Cold, "the same with nothing in memory";
    Unlink, "unlink", "files/s", Warm, "remove 4 KiB files";
    Unpack, "unpack", "files/s", Warm, "unpack an archive of a source tree with tar";
    RemoveTree, "remove-tree", "files/s", Warm, "remove that tree";
}

impl Scenario {
    /// Untimed: brings the side into the state that the scenario starts from.
    pub(super) fn before(self, on: &Fixture) -> io::Result<()> {
        match self {
            Scenario::SeqReadWarm | Scenario::MmapReadWarm | Scenario::RandReadWarm => read_all(&on.large).map(|_| ()),
            Scenario::ReadSmallWarm => read_each(on),
            Scenario::StatWarm => stat_each(on),
            Scenario::Unlink => create_files(on),
            Scenario::Unpack => read_all(&on.archive).map(|_| ()),
            Scenario::RemoveTree => unpack(on),
            Scenario::Create4k => fs::create_dir(&on.fresh),
            Scenario::SeqWrite
            | Scenario::SeqReadCold
            | Scenario::StatFirst
            | Scenario::ListCold
            | Scenario::ReadSmallCold => Ok(()),
        }
    }

    /// Timed. Returns the rate.
    pub(super) fn timed(self, on: &Fixture) -> io::Result<f64> {
        let start = Instant::now();
        let count = self.work(on)?;
        Ok(count / start.elapsed().as_secs_f64())
    }

    fn work(self, on: &Fixture) -> io::Result<f64> {
        let files = on.small.len() as f64;
        Ok(match self {
            Scenario::SeqWrite => megabytes(write_file(&on.fresh, on.size.file_bytes)?),
            Scenario::SeqReadWarm | Scenario::SeqReadCold => megabytes(read_all(&on.large)?),
            Scenario::MmapReadWarm => megabytes(read_mapped(&on.large)?),
            Scenario::RandReadWarm => read_random(on)?,
            Scenario::Create4k => {
                create_in(&on.fresh, on.size.files)?;
                on.size.files as f64
            }
            Scenario::StatWarm => {
                (0..STAT_ROUNDS).try_for_each(|_| stat_each(on))?;
                files * STAT_ROUNDS as f64
            }
            Scenario::StatFirst => {
                stat_each(on)?;
                files
            }
            Scenario::ListCold => list(&on.listed)?,
            Scenario::ReadSmallWarm | Scenario::ReadSmallCold => {
                read_each(on)?;
                files
            }
            Scenario::Unlink => {
                fs::read_dir(&on.fresh)?.try_for_each(|entry| fs::remove_file(entry?.path()))?;
                on.size.files as f64
            }
            Scenario::Unpack => {
                unpack(on)?;
                on.size.archive_files as f64
            }
            Scenario::RemoveTree => {
                fs::remove_dir_all(&on.fresh)?;
                on.size.archive_files as f64
            }
        })
    }

    /// Untimed: removes what the scenario made.
    pub(super) fn after(self, on: &Fixture) -> io::Result<()> {
        match self {
            Scenario::SeqWrite => fs::remove_file(&on.fresh),
            Scenario::Create4k | Scenario::Unlink | Scenario::Unpack => fs::remove_dir_all(&on.fresh),
            _ => Ok(()),
        }
    }
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Bytes that do not compress, the same in every run.
pub(super) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SmallRng::seed_from_u64(seed).fill(bytes.as_mut_slice());
    bytes
}

pub(super) fn write_file(path: &Path, bytes: u64) -> io::Result<u64> {
    let chunk = noise(CHUNK, 1);
    let mut file = File::create_new(path)?;
    let mut left = bytes;
    while left > 0 {
        let now = left.min(CHUNK as u64);
        file.write_all(&chunk[..now as usize])?;
        left -= now;
    }
    file.sync_all()?;
    Ok(bytes)
}

fn read_all(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut chunk = vec![0; CHUNK];
    let mut total = 0;
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(total),
            count => total += count as u64,
        }
    }
}

fn read_mapped(path: &Path) -> io::Result<u64> {
    let file = File::open(path)?;
    let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    let map = mem::map::Map::new(&file, length, false)?;
    let mut chunk = vec![0; CHUNK];
    for offset in (0..length).step_by(CHUNK) {
        let now = CHUNK.min(length - offset);
        map.read(offset, &mut chunk[..now]);
    }
    Ok(length as u64)
}

fn read_random(on: &Fixture) -> io::Result<f64> {
    let file = File::open(&on.large)?;
    let blocks = on.size.file_bytes / SMALL as u64;
    let mut random = SmallRng::seed_from_u64(7);
    let mut block = [0; SMALL];
    for _ in 0..on.size.reads {
        file.read_exact_at(&mut block, random.random_range(0..blocks) * SMALL as u64)?;
    }
    Ok(on.size.reads as f64)
}

fn read_each(on: &Fixture) -> io::Result<()> {
    let mut content = Vec::with_capacity(SMALL);
    on.small.iter().try_for_each(|path| {
        content.clear();
        File::open(path)?.read_to_end(&mut content).map(|_| ())
    })
}

fn stat_each(on: &Fixture) -> io::Result<()> {
    on.small.iter().try_for_each(|path| fs::symlink_metadata(path).map(|_| ()))
}

fn list(dir: &Path) -> io::Result<f64> {
    let mut count = 0.0;
    for entry in fs::read_dir(dir)? {
        entry?.metadata()?;
        count += 1.0;
    }
    Ok(count)
}

fn create_files(on: &Fixture) -> io::Result<()> {
    fs::create_dir(&on.fresh)?;
    create_in(&on.fresh, on.size.files)
}

pub(super) fn create_in(dir: &Path, count: usize) -> io::Result<()> {
    let content = noise(SMALL, 2);
    (0..count).try_for_each(|number| File::create_new(dir.join(format!("file-{number:06}")))?.write_all(&content))
}

fn unpack(on: &Fixture) -> io::Result<()> {
    fs::create_dir(&on.fresh)?;
    let status = Command::new("tar").arg("-xf").arg(&on.archive).arg("-C").arg(&on.fresh).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("tar: {status}"))) }
}
