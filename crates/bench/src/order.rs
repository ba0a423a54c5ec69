//! One measurement from its order to its report: its directory, its sides, and its output.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use local::failure::{Doing, Failure};
use local::show;

use crate::disk::{LoopDisk, waits_for_trim};
use crate::machine::Machine;
use crate::null::{Missing, Null};
use crate::passthrough::PassthroughLl;
use crate::peer::{Peer, scripts};
use crate::profile::Profile;
use crate::render::{Circumstances, list, markdown, sizes, tables};
use crate::report::ScenarioRow;
use crate::rialto::Rialto;
use crate::room::Room;
use crate::scenario::{Form, MeasuredFrom, Scenario};
use crate::side::{Given, Native, Side};
use crate::stream::Stream;
use crate::{Measured, Plan, Size, State, counters, interrupts, null, run, stream};

/// An ordered measurement.
#[derive(Debug)]
pub struct BenchOrder {
    /// Measure only this one; may be given several times [default: all but the long ones].
    pub scenario: Vec<Scenario>,
    /// Show the scenarios, one a line.
    pub list: bool,
    /// Less of everything, in some minutes.
    pub quick: bool,
    /// The scenarios with a million files too.
    pub long: bool,
    /// One JSON object a line.
    pub json: bool,
    /// Rounds [default: 5, with --quick 3].
    pub runs: Option<u16>,
    /// Where to measure: the disk below this directory is the native side [default: rialto-bench
    /// below $XDG_CACHE_HOME or ~/.cache]
    pub dir: Option<PathBuf>,
    /// Compare with this program too (libfuse's passthrough_ll; bench/peers/passthrough.sh builds
    /// it), or with this directory, which others mounted; may be given several times.
    pub against: Vec<PathBuf>,
    /// Compare with this file system too, set up by its script in bench/peers; may be given several
    /// times.
    pub peer: Vec<String>,
    /// Where the scripts of peers are [default: bench/peers here or above]
    pub peers: Option<PathBuf>,
    /// Compare with the same mount without what is below it (mount), or without wire, server and
    /// disk (server).
    pub null: Vec<Missing>,
    /// Measure on an ext4 of its own, in a file below --dir [default where the disk waits for TRIM
    /// on every removal, as root]
    pub on_loop: bool,
    /// Measure on the disk as it is.
    pub no_loop: bool,
    /// How long a peer may take for one scenario in one round, or to have its files prepared; then
    /// it is left out of that scenario.
    pub limit: u64,
    /// Do not count system calls and FUSE requests, which takes one more round.
    pub no_count: bool,
    /// Write a page with the results and this machine's kind.
    pub results: Option<PathBuf>,
    /// Measure this directory, which is mounted already, in place of a cell of its own.
    pub on: Option<PathBuf>,
    /// Instead of comparing, record where the mount and the server spend their time, with perf,
    /// into files in this directory.
    pub profile: Option<PathBuf>,
    /// Remove what measurements below --dir left that were killed.
    pub clean: bool,
    /// Runs as a helper process of a measurement.
    pub helper: Option<Helper>,
}

/// The helper processes of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Helper {
    /// The other end of a bare stream.
    Stream,
    /// The mount without the layers below it.
    NullMount,
    /// The mount without wire, server and disk.
    NullServer,
}

/// Figures and their circumstances.
struct Outcome {
    lines: Vec<ScenarioRow>,
    left_out: Vec<String>,
    uncounted: Option<String>,
    /// Why the figures are incomplete.
    ended: Option<Failure>,
}

impl BenchOrder {
    /// Measures, or does the other ordered action.
    ///
    /// # Errors
    /// The failure, or an interruption by a signal.
    pub fn run(self) -> Result<(), Failure> {
        if let Some(helper) = self.helper {
            return self.help(helper);
        }
        if self.list {
            begin_output()?;
            println!("{}", list());
            return Ok(());
        }
        let place = self.place()?;
        let left = left_behind(&place).doing(|| format!("reading {}", place.display()))?;
        if self.clean {
            left.iter().try_for_each(|dir| clean(dir))?;
            begin_output()?;
            println!("removed {} measurements", left.len());
            return Ok(());
        }
        if !left.is_empty() {
            eprintln!(
                "rialto bench: {} has files of a killed measurement; --clean removes them",
                place.display()
            );
        }
        interrupts::watch().doing(|| "watching for interrupts".to_owned())?;
        self.measure(&place)
    }

    fn help(&self, helper: Helper) -> Result<(), Failure> {
        let at = self.dir.as_deref().unwrap_or(Path::new(""));
        match helper {
            Helper::Stream => stream::serve().doing(|| "serving a stream".to_owned()),
            Helper::NullMount => null::serve(Missing::Mount, at),
            Helper::NullServer => null::serve(Missing::Server, at),
        }
    }

    fn place(&self) -> Result<PathBuf, Failure> {
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
        let place = self.dir.clone().or_else(|| cache.map(|cache| cache.join("rialto-bench")));
        let place = place.ok_or_else(|| {
            Failure::new("choosing a place", "HOME is not set").mend("name it with --dir")
        })?;
        std::fs::create_dir_all(&place).doing(|| format!("making {}", place.display()))?;
        std::fs::canonicalize(&place).doing(|| format!("finding {}", place.display()))
    }

    fn size(&self) -> Size {
        if self.quick { Size::QUICK } else { Size::FULL }
    }

    /// The scenarios in the order in which they run, and those that cannot run on this machine.
    fn scenarios(&self) -> (Vec<Scenario>, Vec<&'static str>) {
        let root = rustix::process::geteuid().is_root();
        let wanted = |scenario: &Scenario| match self.scenario.as_slice() {
            [] => match scenario.form() {
                Form::Usual => true,
                Form::Long => self.long,
                Form::Named => false,
            },
            named => named.contains(scenario),
        };
        let (can, cannot): (Vec<Scenario>, Vec<Scenario>) = Scenario::ALL
            .into_iter()
            .filter(wanted)
            .partition(|scenario| root || scenario.state() == State::Warm);
        (can, cannot.into_iter().map(Scenario::name).collect())
    }

    /// Measures in a directory of its own, which is removed at the end.
    fn measure(&self, place: &Path) -> Result<(), Failure> {
        let (scenarios, without_root) = self.scenarios();
        if !without_root.is_empty() {
            eprintln!(
                "rialto bench: leaving out {}: only root can drop caches",
                without_root.join(", ")
            );
        }
        let sides = 2 + self.against.len() + self.peer.len() + self.null.len();
        let room = Room::needed(self.size(), &scenarios, sides);
        room.check(place)?;
        let machine = Machine::here(place);
        let work = Work::new(place)?;
        let disk = self.disk(&work.0, room)?;
        let base = disk.as_ref().map_or(work.0.as_path(), LoopDisk::path);
        let outcome = self.compare(base, scenarios)?;
        let own_disk = disk.is_some();
        drop(disk);
        drop(work);
        self.report(&outcome, &machine, own_disk)?;
        outcome.ended.map_or(Ok(()), Err)
    }

    fn disk(&self, work: &Path, room: Room) -> Result<Option<LoopDisk>, Failure> {
        let wanted = self.on_loop || (rustix::process::geteuid().is_root() && waits_for_trim(work));
        if !wanted || self.no_loop || self.on.is_some() {
            return Ok(None);
        }
        eprintln!(
            "rialto bench: measuring on an ext4 in a file, without discard: this disk waits for \
                TRIM"
        );
        let progress = show::Progress::start("making a disk to measure on");
        let disk = LoopDisk::new(work, room.bytes, room.files);
        drop(progress);
        disk.map(Some)
    }

    fn compare(&self, base: &Path, scenarios: Vec<Scenario>) -> Result<Outcome, Failure> {
        let mut sides = self.sides(base, &scenarios)?;
        let uncounted =
            if self.no_count { Some("--no-count".to_owned()) } else { counters::available().err() };
        let profile = self.profile.as_deref().map(Profile::new).transpose()?;
        let runs = self.runs.map_or(if self.quick { 3 } else { 5 }, usize::from);
        let plan = Plan {
            runs: if profile.is_some() { 1 } else { runs },
            count: uncounted.is_none() && profile.is_none(),
            profile,
            size: self.size(),
            limit: Duration::from_secs(self.limit),
            scratch: base.to_owned(),
            scenarios,
        };
        let mut left_out = left_out(&plan.scenarios, &sides);
        left_out.iter().for_each(|what| eprintln!("rialto bench: {what}"));
        let Measured { mut lines, left_out: on_the_way, ended } = run(&plan, &mut sides);
        left_out.extend(on_the_way);
        if ended.is_some() {
            lines.retain(ScenarioRow::is_measured);
        }
        Ok(Outcome { lines, left_out, uncounted, ended })
    }

    /// Makes the sides: Rialto first, the disk second, then the requested ones.
    fn sides(&self, base: &Path, scenarios: &[Scenario]) -> Result<Vec<Box<dyn Side>>, Failure> {
        let mut sides: Vec<Box<dyn Side>> = Vec::new();
        match &self.on {
            Some(dir) => sides.push(Box::new(Given::new("given", dir)?)),
            None => sides.push(Box::new(Rialto::new(base)?)),
        }
        sides.push(Box::new(Native::new(&base.join("native"))?));
        for against in &self.against {
            let name = || {
                against
                    .file_name()
                    .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
            };
            if against.is_dir() {
                sides.push(Box::new(Given::new(&name(), against)?));
            } else {
                sides.push(Box::new(PassthroughLl::new(against, base)?));
            }
        }
        for missing in &self.null {
            sides.push(Box::new(Null::new(*missing, base)?));
        }
        let peers = self.peers.clone().unwrap_or_else(scripts);
        for peer in &self.peer {
            let _progress = show::Progress::start(format!("setting up {peer}"));
            sides.push(Box::new(Peer::new(peer, &peers, base)?));
        }
        if scenarios.iter().any(|scenario| scenario.place() == MeasuredFrom::Remote) {
            sides.push(Box::new(Stream::new()?));
        }
        Ok(sides)
    }

    fn report(&self, outcome: &Outcome, machine: &Machine, own_disk: bool) -> Result<(), Failure> {
        if let Some(dir) = &self.profile {
            begin_output()?;
            println!("{}", dir.display());
            return Ok(());
        }
        if outcome.lines.is_empty() {
            return Ok(());
        }
        self.write_results(outcome, machine, own_disk)?;
        begin_output()?;
        let Outcome { lines, uncounted, .. } = outcome;
        if self.json {
            lines.iter().for_each(|line| show::json(&line.to_json()));
        } else {
            println!("{}\n{}", machine.line(), tables(lines, uncounted.as_deref()));
        }
        Ok(())
    }

    fn write_results(
        &self,
        outcome: &Outcome,
        machine: &Machine,
        own_disk: bool,
    ) -> Result<(), Failure> {
        let Some(file) = &self.results else { return Ok(()) };
        let Outcome { lines, left_out, uncounted, ended } = outcome;
        let disk = if own_disk {
            "On a preallocated loop device without discard"
        } else {
            "On the disk as it is"
        };
        let how = format!("{}. {disk}; made by `make bench`.", sizes(self.size()));
        let why = ended.as_ref().map(Failure::to_string);
        let around = Circumstances {
            machine,
            how: &how,
            uncounted: uncounted.as_deref(),
            left_out,
            ended: why.as_deref(),
        };
        std::fs::write(file, markdown(lines, &around))
            .doing(|| format!("writing {}", file.display()))
    }
}

/// Called when nothing is left to take away: a reader that leaves ends the process.
fn begin_output() -> Result<(), Failure> {
    mem::pipe::end_without_reader().doing(|| "beginning the output".to_owned())
}

/// Sides that take no part in a scenario, with reasons.
fn left_out(scenarios: &[Scenario], sides: &[Box<dyn Side>]) -> Vec<String> {
    let mut all = Vec::new();
    for side in sides {
        for scenario in scenarios {
            match side.takes(*scenario) {
                Err(why) if !why.is_empty() => {
                    all.push(format!("{} is left out of {}: {why}", side.name(), scenario.name()));
                }
                _ => {}
            }
        }
    }
    all
}

/// Prefix of the names of measurement directories, before the process id.
const WORK: &str = "work-";

/// A temporary directory, removed when dropped.
struct Work(PathBuf);

impl Work {
    fn new(place: &Path) -> Result<Self, Failure> {
        let work = place.join(format!("{WORK}{}", std::process::id()));
        std::fs::create_dir(&work).doing(|| format!("making {}", work.display()))?;
        Ok(Work(work))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("rialto bench: removing {}: {error}", self.0.display());
        }
    }
}

/// Directories of measurements whose process has ended.
fn left_behind(place: &Path) -> std::io::Result<Vec<PathBuf>> {
    let dead = |name: &str| {
        let pid: u32 = name.strip_prefix(WORK)?.parse().ok()?;
        (!Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    };
    let entries = std::fs::read_dir(place)?.flatten();
    Ok(entries
        .filter(|entry| entry.file_name().to_str().and_then(dead).is_some())
        .map(|entry| entry.path())
        .collect())
}

/// Ends and unmounts everything below `dir`, and removes it.
fn clean(dir: &Path) -> Result<(), Failure> {
    let what = || format!("removing {}", dir.display());
    let program = std::env::current_exe().doing(what)?;
    for cell in [dir.join("cell"), dir.join("disk/cell")].into_iter().filter(|cell| cell.is_dir()) {
        let _ = std::process::Command::new(&program)
            .args(["down", "--lazy", "--dir"])
            .arg(cell)
            .output()
            .doing(what)?;
    }
    // Deepest first: mounts on a loop disk end before the disk.
    let mounts = local::mounts::all().doing(what)?;
    for mounted in mounts.iter().rev().filter(|mounted| mounted.at.starts_with(dir)) {
        local::mounts::unmount(&mounted.at, true).doing(what)?;
    }
    std::fs::remove_dir_all(dir).doing(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_dead_processes_left_is_cleaned_away() {
        let place = tempfile::tempdir().unwrap();
        let ours = Work::new(place.path()).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let dead = place.path().join(format!("{WORK}{}", child.id()));
        std::fs::create_dir_all(dead.join("cell-not")).unwrap();
        std::fs::create_dir(place.path().join("other")).unwrap();
        assert_eq!(left_behind(place.path()).unwrap(), std::slice::from_ref(&dead));
        clean(&dead).unwrap();
        assert!(!dead.exists() && ours.0.exists());
        let path = ours.0.clone();
        drop(ours);
        assert!(!path.exists());
    }
}
