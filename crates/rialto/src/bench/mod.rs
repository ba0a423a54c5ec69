//! Measures a Rialto mount against the disk below it, and against a plain pass-through file system.
//!
//! Every scenario runs on each *side* in turn, several rounds, and the order of the sides changes from round to round,
//! so that a slow minute of the machine hits all alike. What is shown is the median of the rounds. Every figure is a rate
//! (higher is better), so a ratio of 0.5 always means half as fast.
//!
//! What a scenario may find in caches is its [`State`]: warm (touched just before), first (mounted anew: nothing is known
//! of names and attributes), cold (servers started anew and the machine's page cache dropped too). All sides are treated
//! alike. Before each measurement everything dirty is synced, so that no scenario pays for the one before.

mod disk;
mod fixture;
mod machine;
mod report;
mod scenario;
mod side;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use disk::{LoopDisk, waits_for_trim};
pub use machine::Machine;
pub use report::{Line, markdown, table};
pub use scenario::Scenario;
pub use side::{Given, Native, Passthrough, Rialto, Side};

use crate::failure::{Doing, Failure};
use crate::show::Progress;
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
}

impl Size {
    /// For results that are kept. All small files together stay below 20,000: the pass-through has each of them open.
    pub const FULL: Size =
        Size { file_bytes: 1 << 30, files: 4000, entries: 8000, archive_files: 3000, reads: 200_000 };
    /// For a look, in a minute.
    pub const QUICK: Size =
        Size { file_bytes: 128 << 20, files: 1000, entries: 4000, archive_files: 600, reads: 40_000 };
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
    let interrupted = watch_interrupts()?;
    let progress = Progress::start("preparing");
    let fixtures = prepare(plan, sides, &progress)?;
    let mut lines: Vec<Line> = plan.scenarios.iter().map(|scenario| Line::new(*scenario, sides.len())).collect();
    for round in 0..plan.runs {
        for line in &mut lines {
            for turn in 0..sides.len() {
                let index = (turn + round) % sides.len();
                let (side, fixture) = (&mut sides[index], &fixtures[index]);
                let scenario = line.scenario;
                progress.now(format!("round {} of {}: {} on {}", round + 1, plan.runs, scenario.name(), side.name()));
                let rate = measure(scenario, side.as_mut(), fixture)?;
                line.add(index, rate);
                if interrupted.load(Ordering::Relaxed) {
                    return Err(Failure::new("measuring", "interrupted"));
                }
            }
        }
    }
    Ok(lines)
}

fn watch_interrupts() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second one ends the process at once.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .doing(|| "watching for interrupts".to_owned())?;
    }
    Ok(flag)
}

fn prepare(plan: &Plan, sides: &[Box<dyn Side>], progress: &Progress) -> Result<Vec<Fixture>, Failure> {
    let archive = fixture::archive(&plan.scratch, plan.size.archive_files)
        .doing(|| format!("making an archive in {}", plan.scratch.display()))?;
    let mut fixtures = Vec::new();
    for side in sides {
        progress.now(format!("preparing files on {}", side.name()));
        let made = Fixture::make(side.root(), plan.size, &plan.scenarios, &archive);
        fixtures.push(made.doing(|| format!("preparing files on {}", side.name()))?);
    }
    Ok(fixtures)
}

fn measure(scenario: Scenario, side: &mut dyn Side, fixture: &Fixture) -> Result<f64, Failure> {
    let what = || format!("running {} on {}", scenario.name(), side.name());
    let prepared = scenario.before(fixture).doing(what);
    prepared?;
    rustix::fs::sync();
    if scenario.state() != State::Warm {
        side.forget(scenario.state())?;
    }
    let what = || format!("running {} on {}", scenario.name(), side.name());
    let rate = scenario.timed(fixture).doing(what)?;
    scenario.after(fixture).doing(what)?;
    Ok(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_that_needs_no_cold_cache_runs_on_plain_directories() {
        let dir = tempfile::tempdir().unwrap();
        let size = Size { file_bytes: 4 << 20, files: 20, entries: 30, archive_files: 25, reads: 100 };
        let scenarios = Scenario::ALL.into_iter().filter(|scenario| scenario.state() == State::Warm).collect();
        let plan = Plan { scenarios, runs: 2, size, scratch: dir.path().to_owned() };
        let given = dir.path().join("given");
        std::fs::create_dir(&given).unwrap();
        let mut sides: Vec<Box<dyn Side>> =
            vec![Box::new(Given::new(given.clone())), Box::new(Native::new(&dir.path().join("native")).unwrap())];
        let lines = run(&plan, &mut sides).unwrap();
        assert_eq!(lines.len(), plan.scenarios.len());
        for line in &lines {
            let value = line.to_json();
            assert!(value["rialto"].as_f64().unwrap() > 0.0, "{value}");
            assert!(value["ratio"].as_f64().unwrap() > 0.0, "{value}");
            assert_eq!(value["runs"], 2);
        }
        // The changing scenarios leave nothing behind, so that each round starts alike.
        let mut left: Vec<_> = std::fs::read_dir(given).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["large", "small"]);
    }
}
