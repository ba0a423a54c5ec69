//! The process that works in the partition until it is killed, and reports each step.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::VnodeNo;

use super::ops::ops;
use super::{HANG_TIME, PREFIX, make};
use crate::Partition;
use crate::tests::careless::{Carelessness, Mistake, Phase};
use crate::tests::world::{Op, World, options};

/// The variable with its parameters: `path seed turn mistake scopes syncs busy`.
pub(super) const CHILD: &str = "RIALTO_STORE_POWER_CHILD";
/// The variable with the path for the process that creates a partition.
pub(super) const MAKER: &str = "RIALTO_STORE_POWER_MAKER";

/// Writes a line to the pipe, unbuffered.
fn report(text: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{PREFIX}{text}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// The process that is killed.
#[test]
fn child() {
    let Ok(parameters) = std::env::var(CHILD) else { return };
    let mut words = parameters.split(' ');
    let mut word = || words.next().unwrap();
    let path = word().to_owned();
    let (seed, turn) = (word().parse().unwrap(), word().parse().unwrap());
    let mistake: usize = word().parse().unwrap();
    let careless = Mistake::ALL.get(mistake).map(|mistake| Carelessness::new(*mistake));
    let has_scopes = word() == "true";
    let (syncs, busy) = (word().parse().unwrap(), word().parse().unwrap());
    Worker { path, careless, has_scopes, busy }.work(seed, turn, &ops(seed, syncs));
    report("end");
    loop {
        std::thread::sleep(HANG_TIME);
    }
}

/// The process that creates a partition and is killed.
#[test]
fn maker() {
    let Ok(path) = std::env::var(MAKER) else { return };
    report("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let partition = make(Path::new(&path), false);
    report("made");
    partition.sync_all().unwrap();
    report("end");
    loop {
        std::thread::sleep(HANG_TIME);
    }
}

struct Worker {
    path: String,
    careless: Option<Arc<Carelessness>>,
    has_scopes: bool,
    /// See [`Habits`].
    busy: f64,
}

impl Worker {
    fn open(&self, turn: u8) -> World<()> {
        let path = Path::new(&self.path);
        let partition = match &self.careless {
            Some(careless) => {
                Partition::open_through(path, &options(), |below| careless.between(below))
            }
            None => Partition::open(path, options()),
        };
        World::of(partition.unwrap(), turn)
    }

    fn is_in(&self, phase: Phase) {
        if let Some(careless) = &self.careless {
            careless.set_phase(phase);
        }
    }

    fn work(&self, seed: u64, turn: u8, ops: &[Op]) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut world = self.open(turn);
        report(&format!("ready {}", world.partition.boot_verifier().0));
        std::io::stdin().read_line(&mut String::new()).unwrap();
        for (number, op) in ops.iter().enumerate() {
            if self.has_scopes && rng.random_ratio(1, 4) {
                match world.scope {
                    Some(_) => world.end_scope(),
                    None => world.scope = Some(world.partition.gather()),
                }
            }
            let made = if matches!(op, Op::Create(_)) {
                world.volume.slots().unwrap().allocate(false).unwrap().0
            } else {
                VnodeNo(0)
            };
            report(&format!("begin {number} {}", made.0));
            if matches!(op, Op::Kill) {
                world.end_scope();
                let turn = world.turn;
                let model = std::mem::take(&mut world.model);
                drop(world);
                world = self.open(turn);
                assert_eq!(world.model, model, "a new process finds what the last one left");
            }
            match self.act(&mut world, op, made) {
                Some(left) => report(&format!("abandoned {number} {}", runs(&left))),
                None => report(&format!("done {number}")),
            }
            if rng.random_bool(self.busy) {
                self.meanwhile(Some(op), &mut rng);
            }
        }
        world.end_scope();
        for _ in 0..rng.random_range(0..3) {
            self.meanwhile(ops.last(), &mut rng);
        }
    }

    /// The activity of the kernel and other programs, here after `op`: dirty pages of some files
    /// are written without a flush, and the journal of the file system is committed.
    fn meanwhile(&self, op: Option<&Op>, rng: &mut SmallRng) {
        let root = Path::new(&self.path);
        let commits = if matches!(op, Some(Op::Sweep)) { 6 } else { 1 };
        match rng.random_range(0..12) {
            number if number < commits => {
                let mut other = std::fs::File::create(root.with_file_name("other")).unwrap();
                other.write_all(&rng.random::<[u8; 8]>()).unwrap();
                other.sync_all().unwrap();
            }
            1..9 => write_back(&root.join("bodies"), rng).unwrap(),
            _ => write_back(&root.join("meta"), rng).unwrap(),
        }
    }

    /// Runs the operation; for an abandoned write it returns the bytes afterwards.
    fn act(&self, world: &mut World<()>, op: &Op, made: VnodeNo) -> Option<Vec<u8>> {
        let earlier = world.model.clone();
        match *op {
            Op::Turn(turn) => {
                world.partition.sync_all().unwrap();
                world.turn(turn);
            }
            Op::Abandon { file, .. } => {
                self.is_in(Phase::Changing);
                world.apply_store(op, &earlier, made);
                self.is_in(Phase::Other);
                let no = world.no(file)?;
                let found = world.found().files.remove(&no).unwrap();
                let left = found.bytes.to_vec();
                world.model.files.insert(no, found);
                return Some(left);
            }
            _ => {
                self.is_in(match op {
                    Op::Write { .. }
                    | Op::Append { .. }
                    | Op::Truncate { .. }
                    | Op::Range { .. } => Phase::Changing,
                    Op::Sweep => Phase::Sweeping,
                    _ => Phase::Other,
                });
                world.apply_model(op, made);
                world.apply_store(op, &earlier, made);
                self.is_in(Phase::Other);
                // Every second time the synced data goes into tables as well.
                if matches!(op, Op::SyncAll) && world.model.files.len().is_multiple_of(2) {
                    world.partition.flush().unwrap();
                }
            }
        }
        None
    }
}

/// Starts writing half of the files below.
fn write_back(dir: &Path, rng: &mut SmallRng) -> std::io::Result<()> {
    let mut entries: Vec<_> = std::fs::read_dir(dir)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        if entry.file_type()?.is_dir() {
            write_back(&entry.path(), rng)?;
        } else if rng.random() {
            // The engine removed it meanwhile; it needs no pages on the disk.
            match std::fs::File::open(entry.path()) {
                Ok(file) => mem::writeback::start(file.as_fd())?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Each run of equal bytes: its length and the byte.
fn runs(bytes: &[u8]) -> String {
    let all: Vec<_> =
        bytes.chunk_by(|a, b| a == b).map(|run| format!("{}*{}", run.len(), run[0])).collect();
    all.join(",")
}

pub(super) fn parse_runs(text: &str) -> Vec<u8> {
    let runs = text.split(',').filter_map(|run| run.split_once('*'));
    runs.flat_map(|(count, byte)| {
        std::iter::repeat_n(byte.parse().unwrap(), count.parse().unwrap())
    })
    .collect()
}
