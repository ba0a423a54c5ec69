//! libfuse's example that passes everything through to a directory: the best that any FUSE file
//! system could reach.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use local::failure::{Doing, Failure};
use local::mounts;
use rustix::process::Resource;

use super::cost::{Role, Watched};
use super::side::{Side, any_directory_takes, drop_caches};
use super::{MeasuredFrom, Scenario, State, Unit, files};

/// How long a file system may take to be mounted.
const MOUNT_PATIENCE: Duration = Duration::from_secs(10);
/// Files of other scenarios that it may have open besides those of the running one.
const OTHERS: u64 = 20_000;

/// A process that serves one FUSE mount in the foreground, and a way to start it again.
pub struct Served {
    command: Vec<std::ffi::OsString>,
    mount_point: PathBuf,
    process: Option<Child>,
}

impl Served {
    /// Starts `command`, which mounts `mount_point`, in a process group of its own: it does not
    /// receive Ctrl-C.
    ///
    /// # Errors
    /// If the process does not start or mount in time.
    pub fn start(command: Vec<std::ffi::OsString>, mount_point: &Path) -> Result<Self, Failure> {
        let mut served = Served { command, mount_point: mount_point.to_owned(), process: None };
        served.mount()?;
        Ok(served)
    }

    /// Mounts it again.
    ///
    /// # Errors
    /// If the process does not start or mount in time.
    pub fn mount(&mut self) -> Result<(), Failure> {
        let program = Path::new(&self.command[0]).display().to_string();
        let what = || format!("mounting {program} on {}", self.mount_point.display());
        let mut command = Command::new(&self.command[0]);
        command
            .args(&self.command[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut process = command.process_group(0).spawn().doing(what)?;
        let end = Instant::now() + MOUNT_PATIENCE;
        while mounts::at(&self.mount_point).doing(what)?.is_none() {
            let ended = process.try_wait().doing(what)?;
            if ended.is_some() || Instant::now() > end {
                let _ = process.kill();
                let _ = process.wait();
                return Err(Failure::new(what(), "it did not mount")
                    .mend("run that program by hand to see why"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.process = Some(process);
        Ok(())
    }

    /// Unmounts, and waits for the process.
    ///
    /// # Errors
    /// If the mount cannot be removed, or the process does not end.
    pub fn unmount(&mut self) -> Result<(), Failure> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        let what = || format!("unmounting {}", self.mount_point.display());
        if mounts::at(&self.mount_point).doing(what)?.is_some() {
            mounts::unmount(&self.mount_point, false)
                .or_else(|_| mounts::unmount(&self.mount_point, true))
                .doing(what)?;
        }
        process.wait().map(|_| ()).doing(what)
    }

    /// Its processes.
    pub fn watched(&self) -> Vec<Watched> {
        let pid = self.process.as_ref().and_then(|process| i32::try_from(process.id()).ok());
        pid.map(|pid| Watched { role: Role::Client, pid }).into_iter().collect()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Err(failure) = self.unmount() {
            eprintln!("rialto bench: {failure}");
        }
    }
}

/// libfuse's `passthrough_ll` as a side.
pub struct PassthroughLl {
    source: PathBuf,
    mount_point: PathBuf,
    served: Served,
}

impl PassthroughLl {
    /// Mounts `program` (built from libfuse's `passthrough_ll.c`) below `dir`, with all its caching
    /// on.
    ///
    /// # Errors
    /// If the program does not start or mount in time.
    pub fn new(program: &Path, dir: &Path) -> Result<Self, Failure> {
        // It has a descriptor for every file that the kernel caches, and inherits this limit.
        local::daemon::raise_open_files();
        let (source, mount_point) = (dir.join("passthrough-source"), dir.join("passthrough"));
        for path in [&source, &mount_point] {
            fs::create_dir(path).doing(|| format!("making {}", path.display()))?;
        }
        let options = format!("source={},cache=always,writeback", source.display());
        let command = vec![
            program.into(),
            "-f".into(),
            "-o".into(),
            options.into(),
            mount_point.clone().into(),
        ];
        let served = Served::start(command, &mount_point)?;
        Ok(PassthroughLl { source, mount_point, served })
    }
}

impl Side for PassthroughLl {
    fn name(&self) -> &str {
        "passthrough"
    }

    fn root(&self, _place: MeasuredFrom) -> &Path {
        &self.mount_point
    }

    fn takes(&self, scenario: Scenario) -> Result<(), String> {
        if scenario.place() == MeasuredFrom::Remote {
            return Err(String::new());
        }
        let needed = scenario.empty_files().unwrap_or(0) as u64 + OTHERS;
        let limit = rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        if scenario.empty_files().is_some() && needed > limit {
            return Err(format!("it keeps a descriptor for each file and may have {limit} here"));
        }
        if scenario.unit() == Unit::Memory { Ok(()) } else { any_directory_takes(scenario) }
    }

    fn forget(&mut self, state: State, _place: MeasuredFrom) -> Result<(), Failure> {
        self.served.unmount()?;
        drop_caches(state)?;
        self.served.mount()
    }

    fn processes(&self) -> Vec<Watched> {
        self.served.watched()
    }

    fn fill(&mut self, name: &str, count: usize) -> io::Result<()> {
        files::create_empty(&self.source.join(name), count)
    }
}
