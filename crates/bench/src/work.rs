//! The actions of the scenarios: before the clock starts, while it runs, and after.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::files::{CHUNK, SMALL, create_in, quietly, unpack, write_file};
use super::fixture::Fixture;
use super::{Scenario, interrupts};

/// Passes over the warm tree, so that the time is long enough to measure.
const STAT_ROUNDS: usize = 4;
/// A text that no source tree contains.
const NOWHERE: &str = "these words are in no file of the tree";

impl Scenario {
    /// Untimed: brings the side into the state that the scenario starts from.
    pub(super) fn before(self, on: &Fixture) -> io::Result<()> {
        use Scenario as S;
        match self {
            // Once to fill the cache, and once from it: a mount may serve cached data in another
            // way.
            S::SeqReadWarm
            | S::MmapReadWarm
            | S::RandReadWarm
            | S::RemoteReadWarm
            | S::RemoteMmapWarm
            | S::RemoteRandWarm => (0..2).try_for_each(|_| read_all(&on.large()).map(|_| ())),
            S::ReadSmallWarm => read_each(on),
            S::StatWarm => stat_each(on),
            S::StatAbsent => stat_absent(on),
            S::Unlink => create_files(on),
            S::Unpack => read_all(&on.archive).map(|_| ()),
            S::RemoveTree => unpack(&on.archive, &on.fresh()),
            S::Create4k | S::Create5000 | S::CreateDurable => fs::create_dir(on.fresh()),
            S::DuWarm => du(&on.tree()),
            S::GrepWarm => grep(&on.tree()),
            S::SeqWrite | S::SeqWriteFsync | S::SeqReadCold => Ok(()),
            S::RemoteSeqRead | S::RemoteSeqReadFirst | S::RemoteSeqWrite => Ok(()),
            S::StatFirst
            | S::ListCold
            | S::List100k
            | S::List1m
            | S::ReadSmallFirst
            | S::ReadSmallCold => Ok(()),
            S::DuCold | S::GrepCold | S::MemoryInode | S::Memory5m | S::Restart1m => Ok(()),
        }
    }

    /// Untimed, after the caches were emptied: does the uncounted first use.
    pub(super) fn warm_up(self, on: &Fixture) -> io::Result<()> {
        match self {
            // Buffers and threads that a mount makes at its first use do not belong to the cost of
            // an inode.
            Scenario::MemoryInode | Scenario::Memory5m => stat_each(on),
            _ => Ok(()),
        }
    }

    /// Timed. Returns how much was done: bytes of large files, otherwise files or operations.
    pub(super) fn work(self, on: &Fixture) -> io::Result<f64> {
        let files = on.small.len() as f64;
        let tree = on.size.archive_files as f64;
        Ok(match self {
            Scenario::SeqWrite => write_file(&on.fresh(), on.size.file_bytes, false)? as f64,
            Scenario::SeqWriteFsync | Scenario::RemoteSeqWrite => {
                write_file(&on.fresh(), on.size.file_bytes, true)? as f64
            }
            Scenario::SeqReadWarm
            | Scenario::SeqReadCold
            | Scenario::RemoteSeqRead
            | Scenario::RemoteSeqReadFirst
            | Scenario::RemoteReadWarm => read_all(&on.large())? as f64,
            Scenario::MmapReadWarm | Scenario::RemoteMmapWarm => read_mapped(&on.large())? as f64,
            Scenario::RandReadWarm | Scenario::RemoteRandWarm => read_random(on)?,
            Scenario::Create4k => create_in(&on.fresh(), on.size.files)?,
            Scenario::Create5000 => create_in(&on.fresh(), on.size.created)?,
            Scenario::CreateDurable => {
                let count = create_in(&on.fresh(), on.size.created_durable)?;
                File::open(on.fresh())?.sync_all()?;
                count
            }
            Scenario::StatWarm => {
                (0..STAT_ROUNDS).try_for_each(|_| stat_each(on))?;
                files * STAT_ROUNDS as f64
            }
            Scenario::StatAbsent => {
                (0..STAT_ROUNDS).try_for_each(|_| stat_absent(on))?;
                files * STAT_ROUNDS as f64
            }
            Scenario::StatFirst => stat_each(on).map(|()| files)?,
            Scenario::ListCold => list(&on.listed())?,
            Scenario::MemoryInode | Scenario::Memory5m => on
                .empty_files(self)
                .try_fold(0.0, |count, dir| list(&dir).map(|more| count + more))?,
            Scenario::List100k | Scenario::List1m => {
                on.empty_files(self).try_for_each(|dir| ls(&dir))?;
                on.empty_count(self)
            }
            Scenario::ReadSmallWarm | Scenario::ReadSmallFirst | Scenario::ReadSmallCold => {
                read_each(on).map(|()| files)?
            }
            Scenario::Unlink => {
                fs::read_dir(on.fresh())?.try_for_each(|entry| fs::remove_file(entry?.path()))?;
                on.size.files as f64
            }
            Scenario::Unpack => unpack(&on.archive, &on.fresh()).map(|()| tree)?,
            Scenario::DuCold | Scenario::DuWarm => du(&on.tree()).map(|()| tree)?,
            Scenario::GrepCold | Scenario::GrepWarm => grep(&on.tree()).map(|()| tree)?,
            Scenario::RemoveTree => fs::remove_dir_all(on.fresh()).map(|()| tree)?,
            Scenario::Restart1m => {
                return Err(io::Error::other("only a side with a server of its own can do this"));
            }
        })
    }

    /// Untimed: removes what the scenario made.
    pub(super) fn after(self, on: &Fixture) -> io::Result<()> {
        match self {
            Scenario::SeqWrite | Scenario::SeqWriteFsync | Scenario::RemoteSeqWrite => {
                fs::remove_file(on.fresh())
            }
            Scenario::Create4k
            | Scenario::Create5000
            | Scenario::CreateDurable
            | Scenario::Unlink
            | Scenario::Unpack => fs::remove_dir_all(on.fresh()),
            _ => Ok(()),
        }
    }
}

fn read_all(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut chunk = vec![0; CHUNK];
    let mut total = 0;
    loop {
        interrupts::check()?;
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
    let file = File::open(on.large())?;
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
        interrupts::check()?;
        content.clear();
        File::open(path)?.read_to_end(&mut content).map(|_| ())
    })
}

fn stat_each(on: &Fixture) -> io::Result<()> {
    on.small.iter().try_for_each(|path| fs::symlink_metadata(path).map(|_| ()))
}

fn stat_absent(on: &Fixture) -> io::Result<()> {
    on.absent.iter().try_for_each(|path| match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::other(format!("{} exists", path.display()))),
    })
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
    fs::create_dir(on.fresh())?;
    create_in(&on.fresh(), on.size.files).map(|_| ())
}

fn du(dir: &Path) -> io::Result<()> {
    quietly(Command::new("du").arg("-s").arg(dir), &[0])
}

fn grep(dir: &Path) -> io::Result<()> {
    quietly(Command::new("grep").args(["-r", "-F", NOWHERE]).arg(dir), &[1])
}

fn ls(dir: &Path) -> io::Result<()> {
    quietly(Command::new("ls").arg("-l").arg(dir), &[0])
}
