//! Measures a Rialto mount against the disk below it, against a plain pass-through file system, and against its peers.
//!
//! Every scenario runs on each *side* in turn, several rounds, and the order of the sides changes from round to round,
//! so that a slow minute of the machine hits all alike. What is shown is the median of the rounds. Beside each figure stands
//! what it cost the processes behind the side: processor time and memory of the measured rounds, deferred work included (the
//! side is synced after the clock stopped), and context switches, system calls and FUSE requests of one more round, in which
//! the kernel counts them and whose time is not used.
//!
//! What a scenario may find in caches is its [`State`]: warm (touched just before), first (mounted anew: nothing is known
//! of names and attributes), cold (servers started anew and the machine's page cache dropped too). All sides are treated
//! alike. Before each measurement everything dirty is synced, so that no scenario pays for the one before.

pub mod cost;
pub mod counters;
mod disk;
mod fixture;
pub mod interrupts;
mod machine;
pub mod null;
mod passthrough;
mod peer;
mod profile;
mod render;
mod report;
mod rialto;
mod room;
mod scenario;
mod side;
pub mod stream;
mod work;

use std::path::PathBuf;
use std::time::Instant;

pub use disk::{LoopDisk, waits_for_trim};
pub use machine::Machine;
pub use null::{Missing, Null};
pub use passthrough::Passthrough;
pub use peer::{Peer, scripts};
pub use profile::Profile;
pub use render::{Circumstances, list, markdown, sizes, tables};
pub use report::Line;
pub use rialto::Rialto;
pub use room::Room;
pub use scenario::{Form, Place, Scenario, Unit};
pub use side::{Given, Native, Side};
pub use stream::Stream;

use crate::failure::{Doing, Failure};
use crate::show::Progress;
use cost::{Cost, Meter};
use counters::{Counters, Counts};
use fixture::Fixture;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Bytes of the large file.
    pub file_bytes: u64,
    /// Small files, also those that are created and removed.
    pub files: usize,
    /// Entries of the directory that is listed.
    pub entries: usize,
    /// Files in the archive that is unpacked.
    pub archive_files: usize,
    /// Random reads.
    pub reads: usize,
    /// Files of `create-5000`: fewer only in tests.
    pub created: usize,
    /// Files of `create-durable`: likewise.
    pub created_durable: usize,
}

/// What stays the same in all forms.
const CREATED: usize = 5000;
const CREATED_DURABLE: usize = 10_000;

impl Size {
    /// For results that are kept. All small files together stay below 20,000: the pass-through has each of them open.
    pub const FULL: Size = Size {
        file_bytes: 1 << 30,
        files: 4000,
        entries: 8000,
        archive_files: 3000,
        reads: 200_000,
        created: CREATED,
        created_durable: CREATED_DURABLE,
    };
    /// For a look, in some minutes.
    pub const QUICK: Size = Size { file_bytes: 256 << 20, files: 1000, entries: 4000, reads: 40_000, ..Size::FULL };
}

/// What a scenario may find in caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The scenario touched everything itself just before.
    Warm,
    /// Mounted anew, and the machine's dentries and inodes dropped.
    First,
    /// Servers started anew too, and the page cache dropped.
    Cold,
}

/// What to measure.
pub struct Plan {
    /// In this order.
    pub scenarios: Vec<Scenario>,
    /// Rounds.
    pub runs: usize,
    /// Count system calls and FUSE requests in one more round.
    pub count: bool,
    /// Instead of measuring, look where the first side's processes spend their time.
    pub profile: Option<Profile>,
    /// How much.
    pub size: Size,
    /// A directory for archives and the like, on the disk below all sides.
    pub scratch: PathBuf,
}

/// Measures `plan` on all `sides`: the first is the one in question, the second the native directory.
///
/// # Errors
/// When a side cannot be prepared or a scenario fails on it; nothing is reported then.
pub fn run(plan: &Plan, sides: &mut [Box<dyn Side>]) -> Result<Vec<Line>, Failure> {
    let progress = Progress::start("preparing");
    let (fixtures, mut given_up) = prepare(plan, sides, &progress)?;
    let line = |scenario: &Scenario| Line::new(*scenario, sides.iter().map(|side| side.name()));
    let mut lines: Vec<Line> = plan.scenarios.iter().map(line).collect();
    let counting = usize::from(plan.count);
    for round in 0..plan.runs + counting {
        let counted = round == plan.runs;
        let shown = if counted { "counting".to_owned() } else { format!("round {} of {}", round + 1, plan.runs) };
        for line in &mut lines {
            for turn in 0..sides.len() {
                let index = (turn + round) % sides.len();
                let side = sides[index].as_mut();
                let out = given_up.contains(&(index, line.scenario)) || side.takes(line.scenario).is_err();
                if out || counted && side.processes().is_empty() {
                    continue;
                }
                progress.now(format!("{shown}: {} on {}", line.scenario.name(), side.name()));
                let watch = match &plan.profile {
                    Some(profile) if index == 0 => Watch::Profile(profile),
                    _ if counted => Watch::Count,
                    _ => Watch::Nothing,
                };
                let sample = Measuring { plan, scenario: line.scenario, watch }.measure(side, &fixtures[index]);
                interrupts::check().doing(|| "measuring".to_owned())?;
                match sample {
                    Ok(Sample { counts: Some(counts), .. }) => line.count(index, counts),
                    Ok(sample) => line.add(index, sample.value, sample.cost),
                    Err(failure) if side.may_fail() => {
                        eprintln!("rialto bench: {failure}: left out");
                        let _ = std::fs::remove_dir_all(fixtures[index].fresh());
                        given_up.push((index, line.scenario));
                    }
                    Err(failure) => return Err(failure),
                }
            }
        }
    }
    Ok(lines)
}

/// Which side is left out of what, because it failed there.
type GivenUp = Vec<(usize, Scenario)>;

fn prepare(plan: &Plan, sides: &mut [Box<dyn Side>], progress: &Progress) -> Result<(Vec<Fixture>, GivenUp), Failure> {
    let archive = fixture::archive(&plan.scratch, plan.size.archive_files)
        .doing(|| format!("making an archive in {}", plan.scratch.display()))?;
    let (mut fixtures, mut given_up) = (Vec::new(), Vec::new());
    for (index, side) in sides.iter_mut().enumerate() {
        let what = format!("preparing files on {}", side.name());
        progress.now(what.clone());
        let made = Fixture::make(side.as_mut(), plan.size, &plan.scenarios, &archive).doing(|| what);
        interrupts::check().doing(|| "preparing".to_owned())?;
        fixtures.push(match made {
            Err(failure) if side.may_fail() => {
                eprintln!("rialto bench: {failure}: left out of everything");
                given_up.extend(plan.scenarios.iter().map(|scenario| (index, *scenario)));
                Fixture::none(plan.size)
            }
            other => other?,
        });
    }
    Ok((fixtures, given_up))
}

/// What else happens while a scenario runs.
enum Watch<'a> {
    Nothing,
    Count,
    Profile(&'a Profile),
}

/// One scenario, once.
struct Measuring<'a> {
    plan: &'a Plan,
    scenario: Scenario,
    watch: Watch<'a>,
}

/// What came out.
struct Sample {
    value: f64,
    cost: Cost,
    counts: Option<Counts>,
}

impl Measuring<'_> {
    fn measure(&self, side: &mut dyn Side, fixture: &Fixture) -> Result<Sample, Failure> {
        let (scenario, place) = (self.scenario, self.scenario.place());
        let name = side.name().to_owned();
        let what = || format!("running {} on {name}", scenario.name());
        side.enter(place)?;
        let fixture = match place {
            Place::Local => fixture.clone(),
            Place::Remote => fixture.seen_at(side.root(place)),
        };
        let files = side.has_files();
        if files {
            scenario.before(&fixture).doing(what)?;
        }
        rustix::fs::sync();
        if scenario.state() != State::Warm {
            side.forget(scenario.state(), place)?;
        }
        if files {
            scenario.settle(&fixture).doing(what)?;
        }
        let sample = self.timed(side, &fixture, &what)?;
        if files {
            scenario.after(&fixture).doing(what)?;
        }
        Ok(sample)
    }

    fn timed(&self, side: &mut dyn Side, fixture: &Fixture, what: &dyn Fn() -> String) -> Result<Sample, Failure> {
        let (processes, root) = (side.processes(), side.root(self.scenario.place()).to_owned());
        let mut counters = match self.watch {
            Watch::Count => Some(Counters::prepare(&processes, &root, &self.plan.scratch).doing(what)?),
            _ => None,
        };
        let recording = match self.watch {
            Watch::Profile(profile) => Some(profile.record(self.scenario, &processes)?),
            _ => None,
        };
        let before = Meter::read(&processes);
        if let Some(counters) = &mut counters {
            counters.enable().doing(what)?;
        }
        let start = Instant::now();
        let (secs, done) = match side.own_way(self.scenario, fixture.size.file_bytes) {
            Some(result) => result?,
            None => {
                let done = self.scenario.work(fixture).doing(what)?;
                (start.elapsed().as_secs_f64(), done)
            }
        };
        settle_writes(&root);
        let counts = counters.map(Counters::finish).transpose().doing(what)?;
        if let Some(recording) = recording {
            recording.end()?;
        }
        let cost = Meter::read(&processes).since(&before);
        let pieces = pieces(self.scenario.unit(), done);
        let value = value(self.scenario.unit(), done, secs, &cost);
        Ok(Sample { value, cost: cost.per(pieces), counts: counts.map(|counts| counts.per(pieces)) })
    }
}

/// Brings what was put off to its place, so that it is counted where it belongs.
fn settle_writes(root: &std::path::Path) {
    if let Ok(dir) = std::fs::File::open(root) {
        let _ = rustix::fs::syncfs(dir);
    }
}

/// GiB, or operations.
fn pieces(unit: Unit, done: f64) -> f64 {
    match unit {
        Unit::Megabytes => done / (1u64 << 30) as f64,
        Unit::Rate(_) | Unit::Seconds | Unit::Memory => done,
    }
}

fn value(unit: Unit, done: f64, secs: f64, cost: &Cost) -> f64 {
    match unit {
        Unit::Megabytes => done / 1e6 / secs,
        Unit::Rate(_) => done / secs,
        Unit::Seconds => secs,
        Unit::Memory => cost.client_growth / done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_that_needs_no_cold_cache_runs_on_plain_directories() {
        let dir = tempfile::tempdir().unwrap();
        let size = Size {
            file_bytes: 4 << 20,
            files: 20,
            entries: 30,
            archive_files: 25,
            reads: 100,
            created: 20,
            created_durable: 30,
        };
        let plain = |scenario: &Scenario| scenario.state() == State::Warm && *scenario != Scenario::Restart1m;
        let scenarios = Scenario::ALL.into_iter().filter(plain).collect();
        let plan = Plan { scenarios, runs: 2, count: false, profile: None, size, scratch: dir.path().to_owned() };
        let given = Given::new("given", dir.path()).unwrap();
        let root = given.root(Place::Local).to_owned();
        let mut sides: Vec<Box<dyn Side>> =
            vec![Box::new(given), Box::new(Native::new(&dir.path().join("native")).unwrap())];
        let lines = run(&plan, &mut sides).unwrap();
        assert_eq!(lines.len(), plan.scenarios.len());
        for line in &lines {
            let value = line.to_json();
            assert!(value["rialto"].as_f64().unwrap() > 0.0, "{value}");
            assert!(value["ratio"].as_f64().unwrap() > 0.0, "{value}");
            assert_eq!(value["runs"], 2);
        }
        // The changing scenarios leave nothing behind, so that each round starts alike.
        let mut left: Vec<_> = std::fs::read_dir(&root).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["large", "small", "tree"]);
        drop(sides);
        assert!(!root.exists(), "what was made in a given directory goes with it");
    }

    /// A peer that cannot do anything with files.
    struct Broken(Given);

    impl Side for Broken {
        fn name(&self) -> &str {
            "broken"
        }

        fn root(&self, _place: Place) -> &std::path::Path {
            std::path::Path::new("/proc/self")
        }

        fn takes(&self, scenario: Scenario) -> Result<(), String> {
            self.0.takes(scenario)
        }

        fn may_fail(&self) -> bool {
            true
        }

        fn forget(&mut self, _state: State, _place: Place) -> Result<(), Failure> {
            Ok(())
        }
    }

    #[test]
    fn a_peer_that_fails_is_left_out_and_the_others_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let size = Size { files: 3, archive_files: 3, ..Size::QUICK };
        let scenarios = vec![Scenario::Create4k, Scenario::StatWarm];
        for broken_at_once in [false, true] {
            let scenarios = if broken_at_once { scenarios.clone() } else { scenarios[..1].to_vec() };
            let plan = Plan { scenarios, runs: 2, count: false, profile: None, size, scratch: dir.path().to_owned() };
            let native = dir.path().join(format!("native-{broken_at_once}"));
            let given = |name: String| {
                let at = dir.path().join(&name);
                std::fs::create_dir(&at).unwrap();
                Given::new(&name, &at).unwrap()
            };
            let mut sides: Vec<Box<dyn Side>> = vec![
                Box::new(given(format!("first-{broken_at_once}"))),
                Box::new(Native::new(&native).unwrap()),
                Box::new(Broken(given(format!("other-{broken_at_once}")))),
            ];
            let lines = run(&plan, &mut sides).unwrap();
            assert!(lines.iter().all(|line| line.value(0).is_some() && line.value(2).is_none()));
        }
    }

    #[test]
    fn figures_are_in_their_units() {
        let cost = Cost { client_growth: 3000.0, ..Cost::default() };
        assert_eq!(value(Unit::Megabytes, 5e6, 2.0, &cost), 2.5);
        assert_eq!(value(Unit::Rate("files/s"), 100.0, 4.0, &cost), 25.0);
        assert_eq!(value(Unit::Seconds, 100.0, 4.0, &cost), 4.0);
        assert_eq!(value(Unit::Memory, 10.0, 4.0, &cost), 300.0);
        assert_eq!(pieces(Unit::Megabytes, (3u64 << 30) as f64), 3.0);
        assert_eq!(pieces(Unit::Seconds, 3000.0), 3000.0);
    }
}
