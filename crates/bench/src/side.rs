//! The sides that are compared, and how each is made to forget.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use local::failure::{Doing, Failure};

use super::cost::Watched;
use super::limit::Breaker;
use super::{MeasuredFrom, Scenario, State, Unit, work};

/// One of the things compared: a directory, the processes behind it, and how to empty the caches in
/// front of it.
pub trait Side {
    /// What it is called in results.
    fn name(&self) -> &str;

    /// Where its files are. The same files at both places.
    fn root(&self, place: MeasuredFrom) -> &Path;

    /// Whether it can be measured in `scenario`.
    ///
    /// # Errors
    /// Why not, for people; an empty text where everybody expects that.
    fn takes(&self, scenario: Scenario) -> Result<(), String>;

    /// Whether it has files at all. One without does everything in its own way.
    fn has_files(&self) -> bool {
        true
    }

    /// Whether the others go on without it where it fails: it is not ours to mend.
    fn may_fail(&self) -> bool {
        false
    }

    /// Makes sure that `place` can be reached, and what is only there for the other does not run.
    fn enter(&mut self, _place: MeasuredFrom) -> Result<(), Failure> {
        Ok(())
    }

    /// Empties caches down to `state`.
    fn forget(&mut self, state: State, place: MeasuredFrom) -> Result<(), Failure>;

    /// The processes behind it, as they are now.
    fn processes(&self) -> Vec<Watched> {
        Vec::new()
    }

    /// What frees those who wait for it should it hang: the processes behind its mount are killed.
    /// `None`: it cannot hang.
    fn breaker(&self) -> Option<Breaker> {
        None
    }

    /// Comes back after it was broken.
    fn revive(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Makes the directory `name` in [`MeasuredFrom::Local`]'s root, with `count` empty files, in
    /// the quickest way.
    fn fill(&mut self, name: &str, count: usize) -> io::Result<()> {
        work::create_empty(&self.root(MeasuredFrom::Local).join(name), count)
    }

    /// Does what only this side can do: the seconds that it took, and how much was done. `None`:
    /// nothing special.
    fn own_way(
        &mut self,
        _scenario: Scenario,
        _file_bytes: u64,
    ) -> Option<Result<(f64, f64), Failure>> {
        None
    }
}

/// What any directory can do.
pub fn any_directory_takes(scenario: Scenario) -> Result<(), String> {
    match scenario {
        // They have no server of their own, or no process whose memory could grow.
        Scenario::Restart1m => Err(String::new()),
        _ if scenario.unit() == Unit::Memory => Err(String::new()),
        _ => Ok(()),
    }
}

/// Drops what the kernel has cached: for [`State::First`] names and attributes, for [`State::Cold`]
/// data too.
pub fn drop_caches(state: State) -> Result<(), Failure> {
    rustix::fs::sync();
    let what = if state == State::Cold { "3" } else { "2" };
    fs::write("/proc/sys/vm/drop_caches", what).map_err(|error| {
        Failure::new("dropping the kernel's caches", error)
            .mend("be root, or name warm scenarios with --scenario")
    })
}

/// A directory of the disk itself.
pub struct Native(PathBuf);

impl Native {
    /// Makes `dir` and takes it.
    pub fn new(dir: &Path) -> Result<Self, Failure> {
        fs::create_dir(dir).doing(|| format!("making {}", dir.display()))?;
        Ok(Native(dir.to_owned()))
    }
}

impl Side for Native {
    fn name(&self) -> &str {
        "native"
    }

    fn root(&self, _place: MeasuredFrom) -> &Path {
        &self.0
    }

    fn takes(&self, scenario: Scenario) -> Result<(), String> {
        any_directory_takes(scenario)
    }

    fn forget(&mut self, state: State, _place: MeasuredFrom) -> Result<(), Failure> {
        drop_caches(state)
    }
}

/// A directory that somebody else mounted.
pub struct Given {
    name: String,
    dir: PathBuf,
}

impl Given {
    /// Makes a directory of its own in `dir`, to be called `name`; both that and what is in it go
    /// when dropped.
    pub fn new(name: &str, dir: &Path) -> Result<Self, Failure> {
        let dir = dir.join(format!("rialto-bench-{}", std::process::id()));
        fs::create_dir(&dir).doing(|| format!("making {}", dir.display()))?;
        Ok(Given { name: name.to_owned(), dir })
    }
}

impl Side for Given {
    fn name(&self) -> &str {
        &self.name
    }

    fn root(&self, _place: MeasuredFrom) -> &Path {
        &self.dir
    }

    fn takes(&self, scenario: Scenario) -> Result<(), String> {
        any_directory_takes(scenario)
    }

    fn forget(&mut self, state: State, _place: MeasuredFrom) -> Result<(), Failure> {
        drop_caches(state)
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("rialto bench: removing {}: {error}", self.dir.display());
        }
    }
}
