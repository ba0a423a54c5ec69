//! Measures a Rialto mount against the disk below it, against a plain pass-through file system, and
//! against its peers.
//!
//! Every scenario runs on each *side* in turn, several rounds, and the order of the sides changes
//! from round to round, so that a slow minute of the machine affects all alike. The result is the
//! median of the rounds. Beside each figure is the cost of the processes behind the side: processor
//! time and memory of the measured rounds, deferred work included (the side is synced after the
//! clock stopped), and context switches, system calls and FUSE requests of one more round, in which
//! the kernel counts them and whose time is not used.
//!
//! The caches at the start of a scenario are its [`State`]: warm (touched just before), first
//! (mounted anew: no names and attributes are known), cold (servers started anew and the machine's
//! page cache dropped too). All sides are treated alike. Before each measurement everything dirty
//! is synced, so that no scenario pays for the previous one.
//!
//! The one command that depends on this crate passes a [`BenchOrder`]. A measurement runs this same
//! program again as [`Helper`]s, and to make and stop the measured cell. No program that serves or
//! mounts files depends on this crate.

mod cost;
mod counters;
mod disk;
mod files;
mod fixture;
mod interrupts;
mod limit;
mod machine;
mod null;
mod order;
mod passthrough;
mod peer;
mod profile;
mod render;
mod report;
mod rialto;
mod room;
mod scenario;
mod side;
mod stream;
mod work;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use local::failure::{Doing, Failure};
use local::show::Progress;

pub use null::Missing;
pub use order::{BenchOrder, Helper};
pub use scenario::Scenario;

use cost::{Cost, Meter};
use counters::{Counters, Counts};
use fixture::Fixture;
use limit::Limit;
use machine::Machine;
use profile::Profile;
use report::ScenarioRow;
use scenario::{Form, MeasuredFrom, Unit};
use side::Side;

/// Amounts of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
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
    /// Files of `create-durable`: fewer only in tests.
    pub created_durable: usize,
}

/// Files of `create-5000` in all forms.
const CREATED: usize = 5000;
const CREATED_DURABLE: usize = 10_000;

impl Size {
    /// For published results. All small files together stay below 20,000: the pass-through has each
    /// of them open.
    pub const FULL: Size = Size {
        file_bytes: 1 << 30,
        files: 4000,
        entries: 8000,
        archive_files: 3000,
        reads: 200_000,
        created: CREATED,
        created_durable: CREATED_DURABLE,
    };
    /// For a rough result in some minutes.
    pub const QUICK: Size =
        Size { file_bytes: 256 << 20, files: 1000, entries: 4000, reads: 40_000, ..Size::FULL };
}

/// The state of the caches at the start of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The scenario touched everything itself just before.
    Warm,
    /// Mounted anew, and the machine's dentries and inodes dropped.
    First,
    /// Servers started anew too, and the page cache dropped.
    Cold,
}

/// Parameters of a measurement.
pub(crate) struct Plan {
    /// The scenarios, in their order.
    pub scenarios: Vec<Scenario>,
    /// Rounds of each scenario.
    pub runs: usize,
    /// Count system calls and FUSE requests in one more round.
    pub count: bool,
    /// Instead of measuring, profile the first side's processes.
    pub profile: Option<Profile>,
    /// Amounts of work.
    pub size: Size,
    /// How long a side that may fail has for one scenario in one round, or to be prepared.
    pub limit: Duration,
    /// A directory for archives and the like, on the disk below all sides.
    pub scratch: PathBuf,
}

/// Results, possibly incomplete.
pub(crate) struct Measured {
    /// One for each scenario.
    pub lines: Vec<ScenarioRow>,
    /// Sides that were left out of a scenario, and why.
    pub left_out: Vec<String>,
    /// Why it is incomplete: a side could not be prepared, a scenario failed on one that must not
    /// fail, or a signal came.
    pub ended: Option<Failure>,
}

/// Measures `plan` on all `sides`: the first is Rialto, the second the native directory.
pub(crate) fn run(plan: &Plan, sides: &mut [Box<dyn Side>]) -> Measured {
    let line =
        |scenario: &Scenario| ScenarioRow::new(*scenario, sides.iter().map(|side| side.name()));
    let lines = plan.scenarios.iter().map(line).collect();
    let progress = Progress::start("preparing");
    let mut running = Running {
        plan,
        sides,
        fixtures: Vec::new(),
        given_up: Vec::new(),
        left_out: Vec::new(),
        lines,
    };
    let ended = running.prepare(&progress).and_then(|()| running.rounds(&progress)).err();
    Measured { lines: running.lines, left_out: running.left_out, ended }
}

/// A measurement in progress.
struct Running<'a> {
    plan: &'a Plan,
    sides: &'a mut [Box<dyn Side>],
    /// One for each side.
    fixtures: Vec<Fixture>,
    /// Sides and the scenarios that they are left out of, because they failed there.
    given_up: Vec<(usize, Scenario)>,
    left_out: Vec<String>,
    lines: Vec<ScenarioRow>,
}

impl Running<'_> {
    fn prepare(&mut self, progress: &Progress) -> Result<(), Failure> {
        let plan = self.plan;
        let archive = fixture::archive(&plan.scratch, plan.size.archive_files)
            .doing(|| format!("making an archive in {}", plan.scratch.display()))?;
        for index in 0..self.sides.len() {
            let side = self.sides[index].as_mut();
            let what = format!("preparing files on {}", side.name());
            progress.now(what.clone());
            let limit = plan.limit_of(side);
            let made = Fixture::make(side, plan.size, &plan.scenarios, &archive).doing(|| what);
            let over = limit.end();
            interrupts::check().doing(|| "preparing".to_owned())?;
            let fixture = match made {
                Ok(fixture) if !over => fixture,
                Err(failure) if !side.may_fail() => return Err(failure),
                made => {
                    let why = if over {
                        over_limit(plan)
                    } else {
                        made.err().map_or_else(String::new, |f| f.to_string())
                    };
                    self.leave_out(index, &plan.scenarios, "everything", &why);
                    Fixture::none(plan.size)
                }
            };
            self.fixtures.push(fixture);
        }
        Ok(())
    }

    fn rounds(&mut self, progress: &Progress) -> Result<(), Failure> {
        let runs = self.plan.runs;
        for round in 0..runs + usize::from(self.plan.count) {
            let shown = if round == runs {
                "counting".to_owned()
            } else {
                format!("round {} of {runs}", round + 1)
            };
            for (at, scenario) in self.plan.scenarios.iter().enumerate() {
                for turn in 0..self.sides.len() {
                    let index = (turn + round) % self.sides.len();
                    let side = &self.sides[index];
                    let out = self.given_up.contains(&(index, *scenario))
                        || side.takes(*scenario).is_err();
                    if out || round == runs && side.processes().is_empty() {
                        continue;
                    }
                    progress.now(format!("{shown}: {} on {}", scenario.name(), side.name()));
                    self.one(at, index, round == runs)?;
                }
            }
        }
        Ok(())
    }

    /// One scenario on one side, once.
    fn one(&mut self, at: usize, index: usize, counted: bool) -> Result<(), Failure> {
        let (plan, scenario) = (self.plan, self.lines[at].scenario);
        let watch = match &plan.profile {
            Some(profile) if index == 0 => Watch::Profile(profile),
            _ if counted => Watch::Count,
            _ => Watch::Nothing,
        };
        let side = self.sides[index].as_mut();
        let limit = plan.limit_of(side);
        let sample = Measuring { plan, scenario, watch }.measure(side, &self.fixtures[index]);
        let over = limit.end();
        interrupts::check().doing(|| "measuring".to_owned())?;
        let line = &mut self.lines[at];
        match sample {
            Ok(Sample { counts: Some(counts), .. }) if !over => line.count(index, counts),
            Ok(sample) if !over => line.add(index, sample.value, sample.cost),
            Err(failure) if !side.may_fail() => return Err(failure),
            sample => {
                let why = if over {
                    over_limit(plan)
                } else {
                    sample.err().map_or_else(String::new, |f| f.to_string())
                };
                if over {
                    line.put_over_limit(index);
                }
                self.leave_out(index, &[scenario], scenario.name(), &why);
                self.bring_back(index, over);
            }
        }
        Ok(())
    }

    /// Restores a side that failed, so that it takes part in the next scenario.
    fn bring_back(&mut self, index: usize, broken: bool) {
        let side = self.sides[index].as_mut();
        if broken && let Err(failure) = side.revive() {
            self.leave_out(index, &self.plan.scenarios, "the rest", &failure.to_string());
            return;
        }
        let limit = self.plan.limit_of(side);
        let _ = std::fs::remove_dir_all(self.fixtures[index].fresh());
        if limit.end() {
            self.leave_out(
                index,
                &self.plan.scenarios,
                "the rest",
                "its files cannot be removed in time",
            );
        }
    }

    fn leave_out(&mut self, index: usize, scenarios: &[Scenario], what: &str, why: &str) {
        let text = format!("{} is left out of {what}: {why}", self.sides[index].name());
        eprintln!("rialto bench: {text}");
        self.left_out.push(text);
        self.given_up.extend(scenarios.iter().map(|scenario| (index, *scenario)));
    }
}

fn over_limit(plan: &Plan) -> String {
    format!("over the limit of {} s", plan.limit.as_secs())
}

impl Plan {
    /// Starts the time limit of a side that may fail.
    fn limit_of(&self, side: &dyn Side) -> Limit {
        Limit::start(side.may_fail().then_some(self.limit), side.breaker())
    }
}

/// Observation while a scenario runs.
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

/// Figures of one run.
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
            MeasuredFrom::Local => fixture.clone(),
            MeasuredFrom::Remote => fixture.seen_at(side.root(place)),
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
            scenario.warm_up(&fixture).doing(what)?;
        }
        let sample = self.timed(side, &fixture, &what)?;
        if files {
            scenario.after(&fixture).doing(what)?;
        }
        Ok(sample)
    }

    fn timed(
        &self,
        side: &mut dyn Side,
        fixture: &Fixture,
        what: &dyn Fn() -> String,
    ) -> Result<Sample, Failure> {
        let (processes, root) = (side.processes(), side.root(self.scenario.place()).to_owned());
        let mut counters = match self.watch {
            Watch::Count => {
                Some(Counters::prepare(&processes, &root, &self.plan.scratch).doing(what)?)
            }
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
        sync_writes(&root);
        let counts = counters.map(Counters::finish).transpose().doing(what)?;
        if let Some(recording) = recording {
            recording.end()?;
        }
        let cost = Meter::read(&processes).since(&before);
        let pieces = pieces(self.scenario.unit(), done);
        let value = value(self.scenario.unit(), done, secs, &cost);
        Ok(Sample {
            value,
            cost: cost.per(pieces),
            counts: counts.map(|counts| counts.per(pieces)),
        })
    }
}

/// Syncs deferred writes, so that they are counted where they belong.
fn sync_writes(root: &std::path::Path) {
    if let Ok(dir) = std::fs::File::open(root) {
        let _ = rustix::fs::syncfs(dir);
    }
}

/// Work done, in GiB or operations.
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::side::{Given, Native};
    use super::*;

    fn plan(scenarios: Vec<Scenario>, size: Size, scratch: &std::path::Path) -> Plan {
        let (limit, scratch) = (Duration::from_secs(600), scratch.to_owned());
        Plan { scenarios, runs: 2, count: false, profile: None, size, limit, scratch }
    }

    fn all(measured: Measured) -> Vec<ScenarioRow> {
        assert!(measured.ended.is_none(), "{}", measured.ended.unwrap());
        measured.lines
    }

    #[test]
    fn scenarios_without_cold_caches_run_on_plain_directories() {
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
        let plain = |scenario: &Scenario| {
            scenario.state() == State::Warm && *scenario != Scenario::Restart1m
        };
        let scenarios = Scenario::ALL.into_iter().filter(plain).collect();
        let plan = plan(scenarios, size, dir.path());
        let given = Given::new("given", dir.path()).unwrap();
        let root = given.root(MeasuredFrom::Local).to_owned();
        let mut sides: Vec<Box<dyn Side>> =
            vec![Box::new(given), Box::new(Native::new(&dir.path().join("native")).unwrap())];
        let lines = all(run(&plan, &mut sides));
        assert_eq!(lines.len(), plan.scenarios.len());
        for line in &lines {
            let value = line.to_json();
            assert!(value["rialto"].as_f64().unwrap() > 0.0, "{value}");
            assert!(value["ratio"].as_f64().unwrap() > 0.0, "{value}");
            assert_eq!(value["runs"], 2);
        }
        // The changing scenarios remove their files, so that each round starts alike.
        let mut left: Vec<_> =
            std::fs::read_dir(&root).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["large", "small", "tree"]);
        drop(sides);
        assert!(!root.exists(), "what was made in a given directory goes with it");
    }

    /// A peer that fails on every file.
    struct Broken(Given);

    impl Side for Broken {
        fn name(&self) -> &str {
            "broken"
        }

        fn root(&self, _place: MeasuredFrom) -> &std::path::Path {
            std::path::Path::new("/proc/self")
        }

        fn takes(&self, scenario: Scenario) -> Result<(), String> {
            self.0.takes(scenario)
        }

        fn may_fail(&self) -> bool {
            true
        }

        fn forget(&mut self, _state: State, _place: MeasuredFrom) -> Result<(), Failure> {
            Ok(())
        }
    }

    #[test]
    fn a_peer_that_fails_is_left_out_and_the_others_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let size = Size { files: 3, archive_files: 3, ..Size::QUICK };
        let scenarios = vec![Scenario::Create4k, Scenario::StatWarm];
        for broken_at_once in [false, true] {
            let scenarios =
                if broken_at_once { scenarios.clone() } else { scenarios[..1].to_vec() };
            let plan = plan(scenarios, size, dir.path());
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
            let lines = all(run(&plan, &mut sides));
            assert!(lines.iter().all(|line| line.value(0).is_some() && line.value(2).is_none()));
        }
    }

    /// A peer that hangs until it is broken, and works again once revived.
    struct Stuck {
        given: Given,
        broken: Arc<AtomicBool>,
        times: usize,
    }

    impl Side for Stuck {
        fn name(&self) -> &str {
            "stuck"
        }

        fn root(&self, place: MeasuredFrom) -> &std::path::Path {
            self.given.root(place)
        }

        fn takes(&self, scenario: Scenario) -> Result<(), String> {
            self.given.takes(scenario)
        }

        fn may_fail(&self) -> bool {
            true
        }

        fn enter(&mut self, _place: MeasuredFrom) -> Result<(), Failure> {
            while self.times > 0 && !self.broken.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
            if self.times > 0 { Err(Failure::new("waiting", "broken")) } else { Ok(()) }
        }

        fn forget(&mut self, _state: State, _place: MeasuredFrom) -> Result<(), Failure> {
            Ok(())
        }

        fn breaker(&self) -> Option<limit::Breaker> {
            let broken = Arc::clone(&self.broken);
            Some(Box::new(move || broken.store(true, Ordering::SeqCst)))
        }

        fn revive(&mut self) -> Result<(), Failure> {
            self.broken.store(false, Ordering::SeqCst);
            self.times -= 1;
            Ok(())
        }
    }

    #[test]
    fn a_hanging_peer_is_over_its_limit_and_measured_later() {
        let dir = tempfile::tempdir().unwrap();
        let size = Size { files: 3, archive_files: 3, ..Size::QUICK };
        let at = |name: &str| {
            let at = dir.path().join(name);
            std::fs::create_dir(&at).unwrap();
            Given::new(name, &at).unwrap()
        };
        let broken = Arc::new(AtomicBool::new(false));
        let mut sides: Vec<Box<dyn Side>> = vec![
            Box::new(at("first")),
            Box::new(Native::new(&dir.path().join("native")).unwrap()),
            Box::new(Stuck { given: at("other"), broken, times: 1 }),
        ];
        let mut plan = plan(vec![Scenario::StatWarm, Scenario::Create4k], size, dir.path());
        plan.limit = Duration::from_secs(2);
        let measured = run(&plan, &mut sides);
        assert_eq!(measured.left_out, ["stuck is left out of stat-warm: over the limit of 2 s"]);
        let lines = all(measured);
        assert!(
            lines[0].is_over_limit(2) && lines[0].value(2).is_none() && lines[0].value(0).is_some()
        );
        assert!(!lines[1].is_over_limit(2) && lines[1].value(2).is_some());
    }

    #[test]
    fn what_was_measured_stays_when_a_side_fails_that_must_not() {
        let dir = tempfile::tempdir().unwrap();
        let size = Size { files: 3, archive_files: 3, ..Size::QUICK };
        let first = Given::new("first", dir.path()).unwrap();
        let mut plan = plan(vec![Scenario::StatWarm, Scenario::Unpack], size, dir.path());
        plan.runs = 1;
        let mut sides: Vec<Box<dyn Side>> = vec![
            Box::new(first),
            Box::new(NoUnpack(Native::new(&dir.path().join("native")).unwrap())),
        ];
        let Measured { lines, ended, .. } = run(&plan, &mut sides);
        assert!(ended.is_some() && lines[0].is_measured() && lines[0].value(1).is_some());
        assert!(lines[1].value(1).is_none());
    }

    /// A disk that fails in the middle.
    struct NoUnpack(Native);

    impl Side for NoUnpack {
        fn name(&self) -> &str {
            self.0.name()
        }

        fn root(&self, place: MeasuredFrom) -> &std::path::Path {
            self.0.root(place)
        }

        fn takes(&self, scenario: Scenario) -> Result<(), String> {
            self.0.takes(scenario)
        }

        fn own_way(
            &mut self,
            scenario: Scenario,
            _bytes: u64,
        ) -> Option<Result<(f64, f64), Failure>> {
            (scenario == Scenario::Unpack).then(|| Err(Failure::new("unpacking", "no")))
        }

        fn forget(&mut self, _state: State, _place: MeasuredFrom) -> Result<(), Failure> {
            Ok(())
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
