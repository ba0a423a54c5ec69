//! Power cuts under a real partition: RocksDB and body files on ext4 on a drive that loses writes
//! without a flush.
//!
//! A child process works in the partition: random operations, as in `crash.rs`, and longer bodies.
//! Before and after each it reports through a pipe. The drive's power fails at some command of the
//! drive; then the child is killed. Several possible images of the medium are checked for each cut:
//! the partition must open, with another boot verifier, and contain what the store reported as
//! stable (DU-1), as after one of its commits (ST-1), with exact usage (ST-2) and no damage (ST-3).
//! The next child continues from the last image, and opens it anew, so that recoveries are cut too.
//!
//! Root only. POWER_CUTS: the number of cuts. POWER_SEED: the first seed.

mod child;
mod ops;

use std::io::{BufRead, BufReader, Write};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use powercut::{Cut, Drive, DriveImage, DrivenMachine, Flushes, isolated};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{Name, VnodeNo};

use self::child::{CHILD, MAKER, parse_runs};
use self::ops::ops;
use super::careless::Mistake;
use super::history::{History, brief};
use super::world::{Model, Op, World, new_root, options};
use crate::{OpenError, Partition, PartitionConfig, ScrubFinding};

/// The prefix of each line of the child.
const PREFIX: &str = "power: ";
/// After so long without output the child counts as hung.
const HANG_TIME: Duration = Duration::from_secs(120);
/// Cuts of the short form.
const CUTS: u64 = 60;
/// The same during the creation of a partition.
const MAKING_CUTS: u64 = 20;
/// The cuts within which each fault must be detected.
const MISTAKE_CUTS_MAX: u64 = 200;
/// A first seed with which each fault is detected soon.
const MISTAKE_SEED: u64 = 1000;
/// Histories that follow each other on one drive.
const CHAIN_CUTS: u64 = 5;
/// Images that are checked for each cut.
const IMAGES: u64 = 3;
/// About how many writes and flushes of the drive an open takes.
const OPENING: u64 = 30;
/// The same for the creation of a partition; the last steps begin with this one.
const MAKING: u64 = 100;
const MAKING_LAST: u64 = 60;
/// The power fails within so many writes and flushes of the drive, or flushes alone.
const COMMANDS: [u64; 3] = [15, 50, 150];
const FLUSHES: [u64; 3] = [4, 12, 40];
/// A small drive, where the engine writes tables often, and one that is large enough for scopes.
const DRIVES_BYTES: [u64; 2] = [512 << 20, 3 << 30];

/// The reports of the child, applied to the model.
struct Reports {
    model: Model,
    turn: u8,
    history: History,
    ops: Vec<Op>,
    /// The verifier of the last partition that was opened.
    verifier: u64,
}

impl Reports {
    fn take(&mut self, line: &str) {
        let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (number, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        match what {
            "ready" => self.verifier = number.parse().unwrap(),
            "begin" => self.begin(number.parse().unwrap(), VnodeNo(rest.parse().unwrap())),
            "done" => self.done(number.parse().unwrap()),
            "abandoned" => self.abandoned(number.parse().unwrap(), parse_runs(rest)),
            _ => assert_eq!(what, "end"),
        }
    }

    fn begin(&mut self, number: usize, made: VnodeNo) {
        let op = self.ops[number].clone();
        let earlier = self.model.clone();
        // An abandoned write may reach the disk.
        if let Op::Abandon { file, offset, length, byte } = op {
            let mut written = earlier.clone();
            written.apply(self.turn, &Op::Write { file, offset, length, byte }, made);
            self.history.may_pass(&earlier, &written);
        }
        self.model.apply(self.turn, &op, made);
        self.history.came(&earlier, &self.model);
    }

    fn done(&mut self, number: usize) {
        match self.ops[number] {
            Op::Turn(turn) => {
                if self.model.turn(self.turn, turn) {
                    self.turn = turn;
                }
                self.history = History::of(&self.model);
            }
            ref op => self.history.forget(op),
        }
    }

    fn abandoned(&mut self, number: usize, bytes: Vec<u8>) {
        let Op::Abandon { file, .. } = self.ops[number] else { panic!("{number} is no such step") };
        let no = self.model.no(file).unwrap();
        let earlier = self.model.clone();
        self.model.files.get_mut(&no).unwrap().bytes = Arc::new(bytes);
        self.history.abandoned(no, &earlier, &self.model);
    }
}

/// A drive with a partition, and its known state.
struct Trial {
    dir: tempfile::TempDir,
    image: DriveImage,
    model: Model,
    turn: u8,
    verifier: u64,
    mistake: Option<Mistake>,
    has_scopes: bool,
}

/// The coverage of a run.
#[derive(Debug, Default)]
struct Count {
    cuts: u64,
    /// Cuts while the child opened the partition.
    early: u64,
    /// Cuts after the last step of the history.
    late: u64,
    steps: u64,
    /// Writes and flushes of the drive.
    commands: u64,
    /// Writes without a flush.
    unflushed: usize,
    images: u64,
}

impl Trial {
    /// The number of the chain determines the kind of drive and volume.
    fn new(chain: u64, mistake: Option<Mistake>) -> Trial {
        let dir = tempfile::tempdir().unwrap();
        let has_scopes = chain % 2 == 1;
        let image = DriveImage::ext4(DRIVES_BYTES[usize::from(has_scopes)], dir.path()).unwrap();
        let machine = DrivenMachine::boot(dir.path(), image, Flushes::Obeyed).unwrap();
        let verifier = make(&machine.root().join("p"), chain % 4 >= 2).boot_verifier().0;
        let image = machine.stop().unwrap();
        Trial { dir, image, model: Model::default(), turn: 0, verifier, mistake, has_scopes }
    }

    fn spawn(&self, path: &Path, seed: u64, Habits { syncs, busy, .. }: Habits) -> Child {
        let mistake =
            self.mistake.and_then(|mistake| Mistake::ALL.iter().position(|one| *one == mistake));
        let mistake = mistake.unwrap_or(Mistake::ALL.len());
        let (path, turn, has_scopes) = (path.display(), self.turn, self.has_scopes);
        let parameters = format!("{path} {seed} {turn} {mistake} {has_scopes} {syncs} {busy}");
        spawn(self.dir.path(), "tests::power::child::child", CHILD, &parameters)
    }

    /// One history, one cut, and a check of the possible images.
    fn cut(&mut self, seed: u64, count: &mut Count) -> Result<(), String> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let drawn = Habits::draw(&mut rng);
        let habits = self.mistake.map_or(drawn, Habits::that_show);
        let when = When::draw(habits.at, &mut rng);
        let (lines, drive) = self.history(seed, habits, when)?;
        count.cuts += 1;
        count.early += u64::from(lines.is_empty());
        count.late += u64::from(lines.last().is_some_and(|line| line == "end"));
        count.steps += lines.iter().filter(|line| line.starts_with("begin")).count() as u64;
        count.commands += drive.commands();
        count.unflushed += drive.unflushed();
        let mut reports = Reports {
            model: self.model.clone(),
            turn: self.turn,
            history: History::of(&self.model),
            ops: ops(seed, habits.syncs),
            verifier: self.verifier,
        };
        lines.iter().for_each(|line| reports.take(line));
        (self.turn, self.verifier) = (reports.turn, reports.verifier);
        for number in 0..IMAGES {
            let image = drive.after_loss(rng.random());
            let model = self.check(image.clone(), &reports).map_err(|error| {
                let (commands, last) = (drive.commands(), lines.last());
                format!(
                    "{habits:?}, image {number} of the cut after {commands} commands and \
                    {last:?}: {error}"
                )
            })?;
            (self.image, self.model) = (image, model);
            count.images += 1;
        }
        Ok(())
    }

    /// A child works until the power fails; returns its reports and the drive.
    fn history(
        &self,
        seed: u64,
        habits: Habits,
        when: When,
    ) -> Result<(Vec<String>, Arc<Drive>), String> {
        let machine =
            DrivenMachine::boot(self.dir.path(), self.image.clone(), Flushes::Obeyed).unwrap();
        let drive = machine.drive().clone();
        let child = self.spawn(&machine.root().join("p"), seed, habits);
        let lines = until_off(child, when, &drive)?;
        machine.lose_power(0).unwrap();
        Ok((lines, drive))
    }

    /// Checks the state after a boot with this image.
    fn check(&self, image: DriveImage, reports: &Reports) -> Result<Model, String> {
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let machine = DrivenMachine::boot(self.dir.path(), image, Flushes::Obeyed).unwrap();
            let found = check_partition(&machine.root().join("p"), reports)?;
            machine.stop().unwrap();
            Ok(found)
        }));
        result.map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_default()
        })?
    }
}

/// Starts a process that runs `test` with its parameters in `variable`. Its errors go to a file in
/// `dir`.
fn spawn(dir: &Path, test: &str, variable: &str, parameters: &str) -> Child {
    let errors = std::fs::File::create(dir.join("child")).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(variable, parameters);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).spawn().unwrap()
}

/// The kind of a history.
#[derive(Clone, Copy, Debug)]
struct Habits {
    /// The part of the steps that sync: with few, much is unstable for a long time.
    syncs: f64,
    /// How often the kernel or another program is active between two steps: if never, only syncs
    /// write to the drive; if often, a missing sync may have no effect.
    busy: f64,
    /// When the power fails.
    at: At,
}

#[derive(Clone, Copy, Debug)]
enum At {
    /// During the open of the partition.
    Opening,
    /// At a command of the drive.
    Command,
    /// At a flush of the drive, when most writes are in its cache.
    Flush,
    /// After the last step.
    End,
}

impl Habits {
    fn draw(rng: &mut SmallRng) -> Habits {
        let at = match rng.random_range(0..8) {
            0 => At::Opening,
            1 => At::Command,
            2..5 => At::Flush,
            _ => At::End,
        };
        let any = |rng: &mut SmallRng, of: [f64; 3]| of[rng.random_range(0..of.len())];
        Habits { syncs: any(rng, [1.0, 0.3, 0.1]), busy: any(rng, [0.0, 0.2, 0.7]), at }
    }

    /// The habits that show a fault soonest.
    fn that_show(mistake: Mistake) -> Habits {
        let (syncs, busy, at) = match mistake {
            Mistake::NoBodySync => (1.0, 0.0, At::End),
            Mistake::LogFirst => (1.0, 0.0, At::Flush),
            Mistake::NoLogSync => (1.0, 0.2, At::End),
            Mistake::NoMarkSync | Mistake::NoSweepSync => (0.3, 0.7, At::End),
        };
        Habits { syncs, busy, at }
    }
}

/// When the power fails.
#[derive(Clone, Copy, Debug)]
enum When {
    Opening(Cut),
    Working(Cut),
    /// When the child reports the end.
    End,
}

impl When {
    fn draw(at: At, rng: &mut SmallRng) -> When {
        let longest = rng.random_range(0..COMMANDS.len());
        match at {
            At::Opening => When::Opening(Cut::AtCommand(rng.random_range(1..=OPENING))),
            At::Command => When::Working(Cut::AtCommand(rng.random_range(1..=COMMANDS[longest]))),
            At::Flush => When::Working(Cut::AtFlush(rng.random_range(1..=FLUSHES[longest]))),
            At::End => When::End,
        }
    }
}

/// The reports of the child until the power failed and it was killed.
fn until_off(mut child: Child, when: When, drive: &Arc<Drive>) -> Result<Vec<String>, String> {
    if let When::Opening(cut) = when {
        drive.cut_later(cut);
    }
    let (pipe, go) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    let reader = {
        let drive = drive.clone();
        std::thread::spawn(move || read_reports(pipe, go, when, &drive))
    };
    let is_off = drive.wait_off(HANG_TIME);
    child.kill().unwrap();
    child.wait().unwrap();
    let lines = reader.join().unwrap()?;
    if is_off { Ok(lines) } else { Err(format!("nothing happens after {:?}", lines.last())) }
}

/// Collects the reports of the child until its death. A child that dies by itself while there is
/// power has found a fault.
fn read_reports(
    pipe: ChildStdout,
    mut go: ChildStdin,
    when: When,
    drive: &Drive,
) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    for line in BufReader::new(pipe).lines().map_while(Result::ok) {
        let Some(line) = line.strip_prefix(PREFIX) else { continue };
        if line.starts_with("ready") && lines.is_empty() {
            if let When::Working(cut) = when {
                drive.cut_later(cut);
            }
            // If the child is dead, the end of its output shows it.
            let _ = go.write_all(b"go\n");
        }
        if line == "end" {
            drive.cut();
        }
        lines.push(line.to_owned());
    }
    if drive.wait_off(Duration::ZERO) {
        return Ok(lines);
    }
    drive.cut();
    Err(format!("the child died by itself after {:?}", lines.last()))
}

/// Opens the partition and checks all of it; returns its content.
fn check_partition(path: &Path, reports: &Reports) -> Result<Model, String> {
    let partition =
        Partition::open(path, options()).map_err(|error| format!("it does not open: {error}"))?;
    if partition.boot_verifier().0 == reports.verifier {
        return Err("the boot verifier is the same".to_owned());
    }
    let world = World::of(partition, reports.turn);
    if !reports.history.explains(&world.model, &|no| world.is_inline(no)) {
        return Err(format!(
            "found {:?}\nbut knew {:?}",
            brief(&world.model),
            reports.history.brief()
        ));
    }
    let is_clean = |when: &str, findings: Vec<ScrubFinding>| match &findings[..] {
        [] => Ok(()),
        findings => Err(format!("{when}: {findings:?}")),
    };
    is_clean("at the start", world.scrub())?;
    // Bodies in doubt get new sums, and files without a record are removed; nothing else changes.
    world.partition.sync_all().unwrap();
    while world.partition.sweep(100).unwrap() > 0 {}
    is_clean("when settled", world.scrub_all())?;
    let found = world.found();
    if found == world.model { Ok(found) } else { Err("settling changed it".to_owned()) }
}

fn number_of(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(otherwise)
}

/// Cuts until one detects a fault, and returns it. Begins with the chain of seed `first`.
fn cuts(first: u64, count: u64, mistake: Option<Mistake>) -> Option<String> {
    let began = Instant::now();
    let first = first - first % CHAIN_CUTS;
    let mut tried = Count::default();
    for start in (first..first + count).step_by(CHAIN_CUTS as usize) {
        let mut trial = Trial::new(start / CHAIN_CUTS, mistake);
        for seed in start..(start + CHAIN_CUTS).min(first + count) {
            if let Err(error) = trial.cut(seed, &mut tried) {
                let text =
                    std::fs::read_to_string(trial.dir.path().join("child")).unwrap_or_default();
                let again = format!("POWER_SEED={start} POWER_CUTS={}", seed + 1 - start);
                return Some(format!("{again}: {error}\n{text}"));
            }
        }
    }
    println!("{:?}: {tried:?}", began.elapsed());
    None
}

#[test]
fn du1_power_cuts_lose_nothing_that_was_stable() {
    isolated(|| {
        let fault = cuts(number_of("POWER_SEED", 0), number_of("POWER_CUTS", CUTS), None);
        assert!(fault.is_none(), "{}", fault.unwrap_or_default());
    });
}

#[test]
fn du1_power_cuts_find_syncs_that_are_missing() {
    isolated(|| {
        for mistake in Mistake::ALL {
            let fault =
                cuts(number_of("POWER_SEED", MISTAKE_SEED), MISTAKE_CUTS_MAX, Some(mistake));
            println!("{mistake:?}: {fault:?}");
            assert!(fault.is_some(), "no cut shows {mistake:?}");
        }
    });
}

/// A new partition with a volume.
fn make(path: &Path, is_encrypted: bool) -> Partition {
    let partition = Partition::create(path, &PartitionConfig::default(), options()).unwrap();
    partition
        .volumes()
        .create_volume_as(None, &Name::new(b"root").unwrap(), &new_root(), is_encrypted)
        .unwrap();
    partition
}

/// Whether a partition exists after a cut during its creation; `is_reported`: the child had
/// reported it.
fn is_made(path: &Path, is_reported: bool) -> Result<bool, String> {
    match Partition::open(path, options()) {
        Ok(partition) => {
            let volume = partition.volumes().volume_named(b"root").unwrap();
            let findings = partition.scrub(&mut |_| {}, &AtomicBool::new(false)).unwrap().findings;
            let is_right = findings.is_empty() && (volume.is_some() || !is_reported);
            if is_right {
                Ok(true)
            } else {
                Err(format!("{findings:?}, volume {}", volume.is_some()))
            }
        }
        Err(OpenError::NotAPartition { .. }) if !is_reported => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn du1_a_partition_is_made_whole_or_not_at_all() {
    isolated(|| {
        let dir = tempfile::tempdir().unwrap();
        let empty = DriveImage::ext4(DRIVES_BYTES[0], dir.path()).unwrap();
        let mut found = [0; 2];
        for seed in 0..number_of("POWER_CUTS", MAKING_CUTS) {
            let mut rng = SmallRng::seed_from_u64(seed);
            let machine = DrivenMachine::boot(dir.path(), empty.clone(), Flushes::Obeyed).unwrap();
            let drive = machine.drive().clone();
            let path = machine.root().join("p");
            let child =
                spawn(dir.path(), "tests::power::child::maker", MAKER, &path.display().to_string());
            let from = if rng.random() { 1 } else { MAKING_LAST };
            let cut = Cut::AtCommand(rng.random_range(from..=MAKING));
            let lines = until_off(child, When::Working(cut), &drive).unwrap();
            machine.lose_power(0).unwrap();
            let is_reported = lines.len() > 1;
            let machine =
                DrivenMachine::boot(dir.path(), drive.after_loss(rng.random()), Flushes::Obeyed)
                    .unwrap();
            let is_there = is_made(&path, is_reported)
                .unwrap_or_else(|error| panic!("seed {seed}, {cut:?}: {error}"));
            found[usize::from(is_there)] += 1;
            drop(machine);
        }
        println!("partitions that are not there and that are: {found:?}");
        assert!(found[0] > 0 && found[1] > 0, "{found:?}");
    });
}
