//! The sides that are compared, and how each is made to forget.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::State;
use crate::failure::{Doing, Failure};
use crate::mounts;

/// How long a pass-through may take to be mounted.
const MOUNT_PATIENCE: Duration = Duration::from_secs(10);

/// One of the things compared: a directory, and how to empty the caches in front of it.
pub trait Side {
    /// What it is called in results.
    fn name(&self) -> &'static str;

    /// Where its files are.
    fn root(&self) -> &Path;

    /// Empties caches down to `state`.
    fn forget(&mut self, state: State) -> Result<(), Failure>;
}

/// Drops what the kernel has cached: for [`State::First`] names and attributes, for [`State::Cold`] data too.
fn drop_caches(state: State) -> Result<(), Failure> {
    rustix::fs::sync();
    let what = if state == State::Cold { "3" } else { "2" };
    fs::write("/proc/sys/vm/drop_caches", what).map_err(|error| {
        Failure::new("dropping the kernel's caches", error).mend("be root, or name warm scenarios with --scenario")
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
    fn name(&self) -> &'static str {
        "native"
    }

    fn root(&self) -> &Path {
        &self.0
    }

    fn forget(&mut self, state: State) -> Result<(), Failure> {
        drop_caches(state)
    }
}

/// A directory that somebody else mounted, in place of ours.
pub struct Given(PathBuf);

impl Given {
    /// Takes `dir`, which exists.
    pub fn new(dir: PathBuf) -> Self {
        Given(dir)
    }
}

impl Side for Given {
    fn name(&self) -> &'static str {
        "given"
    }

    fn root(&self) -> &Path {
        &self.0
    }

    fn forget(&mut self, state: State) -> Result<(), Failure> {
        drop_caches(state)
    }
}

/// A cell of its own, made for the measurement and stopped when dropped.
pub struct Rialto {
    cell: PathBuf,
    mount_point: PathBuf,
    root: PathBuf,
}

impl Rialto {
    /// Makes a cell below `dir`, starts and mounts it.
    pub fn new(dir: &Path) -> Result<Self, Failure> {
        let mount_point = dir.join("rialto");
        let side = Rialto { cell: dir.join("cell"), root: mount_point.join("bench"), mount_point };
        side.up()?;
        fs::create_dir(&side.root).doing(|| format!("making {}", side.root.display()))?;
        Ok(side)
    }

    fn up(&self) -> Result<(), Failure> {
        self.command(&["up".as_ref(), "--at".as_ref(), self.mount_point.as_os_str()])
    }

    fn command(&self, arguments: &[&std::ffi::OsStr]) -> Result<(), Failure> {
        let program = std::env::current_exe().doing(|| "finding this program".to_owned())?;
        let output = Command::new(program).args(arguments).arg("--dir").arg(&self.cell).stdin(Stdio::null()).output();
        let output = output.doing(|| "starting a cell".to_owned())?;
        if output.status.success() {
            return Ok(());
        }
        Err(Failure::new("running a cell to measure", String::from_utf8_lossy(&output.stderr).trim()))
    }
}

impl Side for Rialto {
    fn name(&self) -> &'static str {
        "rialto"
    }

    fn root(&self) -> &Path {
        &self.root
    }

    fn forget(&mut self, state: State) -> Result<(), Failure> {
        match state {
            State::Cold => self.command(&["down".as_ref()])?,
            _ => self.command(&["umount".as_ref(), self.mount_point.as_os_str()])?,
        }
        drop_caches(state)?;
        self.up()
    }
}

impl Drop for Rialto {
    fn drop(&mut self) {
        if let Err(failure) = self.command(&["down".as_ref(), "--lazy".as_ref()]) {
            eprintln!("rialto bench: {failure}");
        }
    }
}

/// libfuse's example that passes everything through to a directory: what any FUSE file system could reach.
pub struct Passthrough {
    program: PathBuf,
    source: PathBuf,
    mount_point: PathBuf,
    process: Option<Child>,
}

impl Passthrough {
    /// Mounts `program` (built from libfuse's `passthrough_ll.c`) below `dir`, with all its caching on.
    pub fn new(program: &Path, dir: &Path) -> Result<Self, Failure> {
        // It keeps a descriptor for every file that the kernel remembers, and inherits our limit.
        crate::daemon::raise_open_files();
        let (source, mount_point) = (dir.join("passthrough-source"), dir.join("passthrough"));
        for path in [&source, &mount_point] {
            fs::create_dir(path).doing(|| format!("making {}", path.display()))?;
        }
        let mut side = Passthrough { program: program.to_owned(), source, mount_point, process: None };
        side.mount()?;
        Ok(side)
    }

    fn mount(&mut self) -> Result<(), Failure> {
        let what = || format!("mounting {} on {}", self.program.display(), self.mount_point.display());
        let options = format!("source={},cache=always,writeback", self.source.display());
        let mut command = Command::new(&self.program);
        command.arg("-f").arg("-o").arg(options).arg(&self.mount_point);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut process = process.doing(what)?;
        let end = Instant::now() + MOUNT_PATIENCE;
        while mounts::at(&self.mount_point).doing(what)?.is_none() {
            let ended = process.try_wait().doing(what)?;
            if ended.is_some() || Instant::now() > end {
                let _ = process.kill();
                let _ = process.wait();
                return Err(Failure::new(what(), "it did not mount").mend("run that program by hand to see why"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.process = Some(process);
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), Failure> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        mounts::unmount(&self.mount_point, false).doing(|| format!("unmounting {}", self.mount_point.display()))?;
        process.wait().map(|_| ()).doing(|| "waiting for the pass-through".to_owned())
    }
}

impl Side for Passthrough {
    fn name(&self) -> &'static str {
        "passthrough"
    }

    fn root(&self) -> &Path {
        &self.mount_point
    }

    fn forget(&mut self, state: State) -> Result<(), Failure> {
        self.unmount()?;
        drop_caches(state)?;
        self.mount()
    }
}

impl Drop for Passthrough {
    fn drop(&mut self) {
        if let Err(failure) = self.unmount() {
            eprintln!("rialto bench: {failure}");
        }
    }
}
