//! `rialto bench`: measures a mount against the disk below it and against a plain pass-through.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::bench::{
    Given, Line, LoopDisk, Machine, Native, Passthrough, Plan, Rialto, Scenario, Side, Size, State, markdown, run,
    table, waits_for_trim,
};
use crate::failure::{Doing, Failure};
use crate::show;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto bench --quick
    rialto bench --scenario create-4k --scenario unlink --runs 9
    rialto bench --against ~/bin/passthrough_ll --results bench/RESULTS.md
    rialto bench --json | jq -r '[.scenario, .ratio] | @tsv'

SCENARIOS
  One large file:        seq-write, seq-read-warm, seq-read-cold, mmap-read-warm,
                         rand-read-warm
  Many small files:      create-4k, read-small-warm, read-small-cold, unlink
  Names and attributes:  stat-warm, stat-first, list-cold
  A source tree:         unpack, remove-tree
  Warm is just touched, first is mounted anew; cold is with servers started anew and
  the page cache dropped (root only).

JSON
  One object a line: scenario, unit, better, rialto, native, ratio, runs, passthrough,
  ratio_passthrough, spread. Figures are medians over the runs; ratios are rialto divided
  by the other, 1 means as fast; spread is, for each side, (largest - smallest) / median.

It makes a cell of its own below --dir, and removes everything in the end.

EXIT CODES
    0  measured
    1  something failed; nothing is reported then";

/// Bytes of the disk made for measuring: room for all sides.
const DISK_BYTES: u64 = 12 << 30;
const DISK_BYTES_QUICK: u64 = 3 << 30;

/// Measures a mount against the disk below it.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Bench {
    /// Measure only this one; may be given several times [default: all].
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    scenario: Vec<Scenario>,
    /// Less of everything, in about two minutes.
    #[arg(long)]
    quick: bool,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
    /// Rounds [default: 5, with --quick 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    runs: Option<u16>,
    /// Where to measure: the disk below this directory is the native side [default: rialto-bench below $XDG_CACHE_HOME or ~/.cache]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Compare with this program too: libfuse's passthrough_ll (bench/peers/passthrough.sh builds it).
    #[arg(long, value_name = "PROGRAM")]
    against: Option<PathBuf>,
    /// Measure on an ext4 of its own, in a file below --dir [default where the disk waits for TRIM on every removal, as root]
    #[arg(long = "loop", overrides_with = "no_loop")]
    on_loop: bool,
    /// Measure on the disk as it is.
    #[arg(long)]
    no_loop: bool,
    /// Write a page with the results and this machine's kind.
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Measure this directory, which is mounted already, in place of a cell of its own.
    #[arg(long, value_name = "DIR")]
    on: Option<PathBuf>,
}

impl Bench {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let place = self.place()?;
        let (root, skipped) = (rustix::process::geteuid().is_root(), self.skipped());
        if !root && !skipped.is_empty() {
            eprintln!("rialto bench: leaving out {}: only root can drop caches", skipped.join(", "));
        }
        let disk = self.disk(&place)?;
        let base = disk.as_ref().map_or(place.as_path(), LoopDisk::path);
        let work = tempfile_in(base)?;
        let lines = self.measure(&work, root);
        let machine = Machine::here(&work);
        let removed = std::fs::remove_dir_all(&work);
        let lines = lines?;
        removed.doing(|| format!("removing {}", work.display()))?;
        self.report(&lines, &machine, disk.is_some())?;
        Ok(ExitCode::SUCCESS)
    }

    fn place(&self) -> Result<PathBuf, Failure> {
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
        let place = self.dir.clone().or_else(|| cache.map(|cache| cache.join("rialto-bench")));
        let place =
            place.ok_or_else(|| Failure::new("choosing a place", "HOME is not set").mend("name it with --dir"))?;
        std::fs::create_dir_all(&place).doing(|| format!("making {}", place.display()))?;
        std::fs::canonicalize(&place).doing(|| format!("finding {}", place.display()))
    }

    fn scenarios(&self) -> Vec<Scenario> {
        let all = if self.scenario.is_empty() { Scenario::ALL.to_vec() } else { self.scenario.clone() };
        Scenario::ALL.into_iter().filter(|scenario| all.contains(scenario)).collect()
    }

    fn skipped(&self) -> Vec<&'static str> {
        self.scenarios().into_iter().filter(|scenario| scenario.state() != State::Warm).map(Scenario::name).collect()
    }

    fn disk(&self, place: &Path) -> Result<Option<LoopDisk>, Failure> {
        let wanted = self.on_loop || (rustix::process::geteuid().is_root() && waits_for_trim(place));
        if !wanted || self.no_loop || self.on.is_some() {
            return Ok(None);
        }
        let progress = show::Progress::start("making a disk to measure on");
        let disk = LoopDisk::new(place, if self.quick { DISK_BYTES_QUICK } else { DISK_BYTES });
        drop(progress);
        disk.map(Some)
    }

    fn measure(&self, work: &Path, root: bool) -> Result<Vec<Line>, Failure> {
        let (size, runs) = if self.quick { (Size::QUICK, 3) } else { (Size::FULL, 5) };
        let mut scenarios = self.scenarios();
        scenarios.retain(|scenario| root || scenario.state() == State::Warm);
        let runs = self.runs.map_or(runs, usize::from);
        let plan = Plan { scenarios, runs, size, scratch: work.to_owned() };
        let mut given = None;
        let first: Box<dyn Side> = match &self.on {
            Some(dir) => {
                let dir = dir.join("rialto-bench");
                std::fs::create_dir(&dir).doing(|| format!("making {}", dir.display()))?;
                given = Some(dir.clone());
                Box::new(Given::new(dir))
            }
            None => Box::new(Rialto::new(work)?),
        };
        let mut sides = vec![first, Box::new(Native::new(&work.join("native"))?) as Box<dyn Side>];
        if let Some(program) = &self.against {
            sides.push(Box::new(Passthrough::new(program, work)?));
        }
        let lines = run(&plan, &mut sides);
        drop(sides);
        match given {
            Some(dir) => std::fs::remove_dir_all(&dir).doing(|| format!("removing {}", dir.display())).and(lines),
            None => lines,
        }
    }

    fn report(&self, lines: &[Line], machine: &Machine, own_disk: bool) -> Result<(), Failure> {
        if self.json {
            lines.iter().for_each(|line| show::json(&line.to_json()));
        } else {
            println!("{}\n{}", machine.line(), table(lines));
        }
        let Some(file) = &self.results else { return Ok(()) };
        let size = if self.quick { "Quick sizes" } else { "Full sizes" };
        let disk = if own_disk { ", on a preallocated loop device without discard" } else { "" };
        let how = format!("{size}{disk}; made by `make bench`.");
        std::fs::write(file, markdown(lines, machine, &how)).doing(|| format!("writing {}", file.display()))
    }
}

/// A directory of our own below `base`.
fn tempfile_in(base: &Path) -> Result<PathBuf, Failure> {
    let work = base.join(format!("work-{}", std::process::id()));
    std::fs::create_dir(&work).doing(|| format!("making {}", work.display()))?;
    Ok(work)
}
