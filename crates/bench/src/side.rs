//! The compared sides, and how each empties its caches.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use local::failure::{Doing, Failure};

use super::cost::Watched;
use super::limit::Breaker;
use super::{MeasuredFrom, Scenario, State, Unit, files};

/// A compared file system: a directory, the processes behind it, and how to empty its caches.
pub trait Side {
    /// Its name in results.
    fn name(&self) -> &str;

    /// The directory of its files. Both places show the same files.
    fn root(&self, place: MeasuredFrom) -> &Path;

    /// Whether it can be measured in `scenario`.
    ///
    /// # Errors
    /// The reason, for people; an empty text where the reason is obvious.
    fn takes(&self, scenario: Scenario) -> Result<(), String>;

    /// Whether it has files. A side without files does everything in [`Side::own_way`].
    fn has_files(&self) -> bool {
        true
    }

    /// Whether the measurement continues without it after a failure: it is not part of this
    /// project.
    fn may_fail(&self) -> bool {
        false
    }

    /// Makes `place` reachable, and stops processes that only the other place needs.
    fn enter(&mut self, _place: MeasuredFrom) -> Result<(), Failure> {
        Ok(())
    }

    /// Empties caches down to `state`.
    fn forget(&mut self, state: State, place: MeasuredFrom) -> Result<(), Failure>;

    /// Its processes now.
    fn processes(&self) -> Vec<Watched> {
        Vec::new()
    }

    /// Frees the threads that wait for it if it hangs: kills the processes behind its mount.
    /// `None`: it cannot hang.
    fn breaker(&self) -> Option<Breaker> {
        None
    }

    /// Restores it after it was broken.
    fn revive(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Makes the directory `name` in [`MeasuredFrom::Local`]'s root, with `count` empty files, in
    /// the quickest way.
    fn fill(&mut self, name: &str, count: usize) -> io::Result<()> {
        files::create_empty(&self.root(MeasuredFrom::Local).join(name), count)
    }

    /// Does a scenario that only this side can do: the seconds it took, and the amount done.
    /// `None`: no special way.
    fn own_way(
        &mut self,
        _scenario: Scenario,
        _file_bytes: u64,
    ) -> Option<Result<(f64, f64), Failure>> {
        None
    }
}

/// Checks that a plain directory can do the scenario.
///
/// # Errors
/// The reason, for people.
pub fn any_directory_takes(scenario: Scenario) -> Result<(), String> {
    match scenario {
        // Plain directories have no server, or no process whose memory could grow.
        Scenario::Restart1m => Err(String::new()),
        _ if scenario.unit() == Unit::Memory => Err(String::new()),
        _ => Ok(()),
    }
}

/// Drops what the kernel has cached: for [`State::First`] names and attributes, for [`State::Cold`]
/// data too.
///
/// # Errors
/// If the kernel's switch cannot be written, which needs root.
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
    ///
    /// # Errors
    /// If the directory cannot be made.
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

/// A directory that another program mounted.
pub struct Given {
    name: String,
    dir: PathBuf,
}

impl Given {
    /// Makes a directory of its own in `dir`, shown as `name`; removed with its content when
    /// dropped.
    ///
    /// # Errors
    /// If the directory cannot be made.
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
