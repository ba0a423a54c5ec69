//! Rialto's own side: a cell made for the measurement, its mount, and a second mount over TCP.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{ClientIdentity, Endpoint, Remote, Session, SessionConfig};
use local::ask::Asking;
use local::cell::{CellDir, MountRecords, VOLUME};
use local::daemon::{self, Process};
use local::failure::{Doing, Failure};
use rustix::process::Signal;
use types::{Answer, Call, Caller, CreateHow, Fid, Name, NewKind};

use super::cost::{Role, Watched};
use super::limit::{Breaker, kill_clients};
use super::side::{Side, drop_caches};
use super::{MeasuredFrom, Scenario, State, files, interrupts};

/// Calls of one chain when many files are made.
const CHAIN: usize = 32;
/// Threads that make them: enough to load a server of few worker threads.
const FILLERS: usize = 4;
/// How long a killed server may take to end, and a started one to answer.
const RESTART_PATIENCE: Duration = Duration::from_secs(60);

/// A cell of its own, made for the measurement and stopped when dropped.
pub struct Rialto {
    cell: PathBuf,
    mount_point: PathBuf,
    root: PathBuf,
    /// The mount point of the second mount, over TCP.
    remote_point: PathBuf,
    remote_root: PathBuf,
    remote_cache: PathBuf,
    remote: bool,
    /// A server that this process started instead of `up`: a child that must be reaped.
    server: Option<Child>,
}

impl Rialto {
    /// Makes a cell below `dir`, starts and mounts it.
    ///
    /// # Errors
    /// If the cell cannot be made, started or mounted.
    pub fn new(dir: &Path) -> Result<Self, Failure> {
        let (mount_point, remote_point) = (dir.join("rialto"), dir.join("rialto-remote"));
        let side = Rialto {
            cell: dir.join("cell"),
            root: mount_point.join("bench"),
            mount_point,
            remote_root: remote_point.join("bench"),
            remote_cache: dir.join("rialto-remote-cache"),
            remote_point,
            remote: false,
            server: None,
        };
        fs::create_dir(&side.remote_point)
            .doing(|| format!("making {}", side.remote_point.display()))?;
        side.up()?;
        fs::create_dir(&side.root).doing(|| format!("making {}", side.root.display()))?;
        Ok(side)
    }

    /// The cell listens on the loopback interface, for the mount over TCP.
    fn up(&self) -> Result<(), Failure> {
        let listen: [&OsStr; 4] = [
            "--listen".as_ref(),
            "127.0.0.1:0".as_ref(),
            "--trust".as_ref(),
            "127.0.0.0/8".as_ref(),
        ];
        self.command(&[
            "up".as_ref(),
            "--at".as_ref(),
            self.mount_point.as_os_str(),
            listen[0],
            listen[1],
            listen[2],
            listen[3],
        ])
    }

    fn mount_remote(&mut self) -> Result<(), Failure> {
        let listen =
            self.cell()?.config.listen.map(|listen| listen.to_string()).unwrap_or_default();
        let (cache, at) = (self.remote_cache.as_os_str(), self.remote_point.as_os_str());
        let [mount, daemon, cache_dir] = ["mount", "--daemon", "--cache-dir"].map(OsStr::new);
        self.command(&[mount, daemon, cache_dir, cache, listen.as_ref(), at])?;
        self.remote = true;
        Ok(())
    }

    fn unmount_remote(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.remote) {
            self.command(&["umount".as_ref(), self.remote_point.as_os_str()])?;
        }
        Ok(())
    }

    fn command(&self, arguments: &[&OsStr]) -> Result<(), Failure> {
        let program = std::env::current_exe().doing(|| "finding this program".to_owned())?;
        let output = Command::new(program)
            .args(arguments)
            .arg("--dir")
            .arg(&self.cell)
            .stdin(Stdio::null())
            .output();
        let output = output.doing(|| "starting a cell".to_owned())?;
        if output.status.success() {
            return Ok(());
        }
        Err(Failure::new(
            "running a cell to measure",
            String::from_utf8_lossy(&output.stderr).trim(),
        ))
    }

    fn cell(&self) -> Result<CellDir, Failure> {
        let missing = || {
            Failure::new("finding the cell to measure", format!("{} is gone", self.cell.display()))
        };
        CellDir::find(&self.cell)?.ok_or_else(missing)
    }

    /// Kills the server as a crash would, and starts it again.
    fn restart(&mut self) -> Result<(f64, f64), Failure> {
        let what = || "restarting the server".to_owned();
        let cell = self.cell()?;
        let process = Process::recorded(&cell.server_pid_file()).doing(what)?;
        let process = process.ok_or_else(|| Failure::new(what(), "it does not run"))?;
        process.signal(Signal::KILL).doing(what)?;
        process.wait_for_end(RESTART_PATIENCE).doing(what)?;
        self.collect();
        let arguments: [&OsStr; 4] =
            ["server".as_ref(), "--detached".as_ref(), "--dir".as_ref(), cell.dir().as_ref()];
        let volume = Name::new(VOLUME.as_bytes()).expect("a constant that is a name");
        let start = Instant::now();
        self.server = Some(daemon::spawn(&arguments, &cell.server_log()).doing(what)?);
        while std::os::unix::net::UnixStream::connect(cell.socket()).is_err() {
            interrupts::check().doing(what)?;
            if start.elapsed() > RESTART_PATIENCE {
                let log = cell.server_log();
                return Err(Failure::new(what(), "it does not answer")
                    .mend(format!("read {}", log.display())));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Asking::connect(Endpoint::Unix(cell.socket()))?.volume(&volume)?;
        Ok((start.elapsed().as_secs_f64(), 1.0))
    }

    fn collect(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.wait();
        }
    }
}

impl Side for Rialto {
    fn name(&self) -> &str {
        "rialto"
    }

    fn root(&self, place: MeasuredFrom) -> &Path {
        match place {
            MeasuredFrom::Local => &self.root,
            MeasuredFrom::Remote => &self.remote_root,
        }
    }

    fn takes(&self, _scenario: Scenario) -> Result<(), String> {
        Ok(())
    }

    fn enter(&mut self, place: MeasuredFrom) -> Result<(), Failure> {
        match place {
            MeasuredFrom::Remote if !self.remote => self.mount_remote(),
            MeasuredFrom::Remote => Ok(()),
            MeasuredFrom::Local => self.unmount_remote(),
        }
    }

    fn forget(&mut self, state: State, place: MeasuredFrom) -> Result<(), Failure> {
        self.unmount_remote()?;
        match state {
            State::Cold => self.command(&["down".as_ref()])?,
            _ => self.command(&["umount".as_ref(), self.mount_point.as_os_str()])?,
        }
        self.collect();
        drop_caches(state)?;
        self.up()?;
        if place == MeasuredFrom::Remote {
            // Data in the disk cache is not remote any more.
            let _ = fs::remove_dir_all(&self.remote_cache);
            self.mount_remote()?;
        }
        Ok(())
    }

    fn processes(&self) -> Vec<Watched> {
        let mut points = vec![self.mount_point.clone()];
        if self.remote {
            points.push(self.remote_point.clone());
        }
        let server = recorded(Role::Server, &self.cell.join("server.pid"));
        server.into_iter().chain(clients(&self.cell, &points)).collect()
    }

    fn breaker(&self) -> Option<Breaker> {
        let (cell, points) =
            (self.cell.clone(), [self.mount_point.clone(), self.remote_point.clone()]);
        Some(Box::new(move || kill_clients(&clients(&cell, &points))))
    }

    /// Makes the files without the kernel, in chains of calls.
    fn fill(&mut self, name: &str, count: usize) -> io::Result<()> {
        let dir = self.root.join(name);
        fs::create_dir(&dir)?;
        let socket = self.cell().map_err(|failure| io::Error::other(failure.to_string()))?.socket();
        let session = Session::connect(SessionConfig::new(
            Endpoint::Unix(socket),
            ClientIdentity::fleeting(),
        ));
        let session = Arc::new(session.map_err(io::Error::other)?);
        let below = self.root.file_name().expect("the root was joined from a name");
        let dir = [below, OsStr::new(name)].into_iter().try_fold(
            volume_root(&session)?,
            |dir, part| {
                use std::os::unix::ffi::OsStrExt;
                let name = Name::new(part.as_bytes()).map_err(io::Error::other)?;
                match session
                    .call(&Caller::ROOT, Call::Lookup { dir, name }, None)
                    .map_err(io::Error::other)?
                    .answer
                {
                    Answer::Entry { status, .. } => Ok(status.fid),
                    _ => Err(odd()),
                }
            },
        )?;
        std::thread::scope(|scope| {
            let fill = |filler| {
                let session = &session;
                scope.spawn(move || fill_part(&**session, dir, filler, count))
            };
            let fillers: Vec<_> = (0..FILLERS).map(fill).collect();
            fillers.into_iter().try_for_each(|filler| filler.join().unwrap_or_else(|_| Err(odd())))
        })
    }

    fn own_way(
        &mut self,
        scenario: Scenario,
        _file_bytes: u64,
    ) -> Option<Result<(f64, f64), Failure>> {
        (scenario == Scenario::Restart1m).then(|| self.restart())
    }
}

fn recorded(role: Role, file: &Path) -> Option<Watched> {
    Process::recorded(file).ok().flatten().map(|process| Watched { role, pid: process.pid })
}

/// The mounts on `points`.
fn clients(cell: &Path, points: &[PathBuf]) -> Vec<Watched> {
    let mounts = MountRecords::of(cell);
    points.iter().filter_map(|point| recorded(Role::Client, &mounts.pid_file(point))).collect()
}

fn volume_root(session: &Session) -> io::Result<Fid> {
    let volume = Name::new(VOLUME.as_bytes()).expect("a constant that is a name");
    match session.call(&Caller::ROOT, Call::Root { volume }, None).map_err(io::Error::other)?.answer
    {
        Answer::Status(root) => Ok(root.fid),
        _ => Err(odd()),
    }
}

/// Every [`FILLERS`]-th chain of `count` files.
fn fill_part(session: &dyn Remote, dir: Fid, filler: usize, count: usize) -> io::Result<()> {
    for first in (filler * CHAIN..count).step_by(FILLERS * CHAIN) {
        interrupts::check()?;
        let make = |number: usize| {
            let name = Name::new(files::empty_name(number).as_bytes())
                .expect("letters and digits are a name");
            Call::Make { dir, name, kind: NewKind::File, mode: 0o644, how: CreateHow::Guarded }
        };
        let calls = (first..count.min(first + CHAIN)).map(make).collect();
        for result in session.chain(&Caller::ROOT, calls) {
            result.map_err(io::Error::other)?;
        }
    }
    Ok(())
}

fn odd() -> io::Error {
    io::Error::other("the server's answer does not belong to the call")
}

impl Drop for Rialto {
    fn drop(&mut self) {
        if let Err(failure) = self.command(&["down".as_ref(), "--lazy".as_ref()]) {
            eprintln!("rialto bench: {failure}");
        }
        self.collect();
    }
}
