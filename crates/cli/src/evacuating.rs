//! Moves the volumes away from partitions that are not well, where `cell.toml` says so (PH-4).
//!
//! Model. A thread of the server looks at the health of its partitions. For one that is to be
//! evacuated and has volumes it runs `rialto vos evacuate` through the server's own socket, as an
//! administrator would, and runs it again after a while if volumes are left. A partition that takes
//! no more changes (DU-3) has to be opened again first, and with it the server started: the thread
//! ends the server if a supervisor is there to start it, and if the disk takes a write. On a disk
//! that takes none the server would not start, and its other partitions would be away too.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use local::cell::{CellDir, Evacuates};
use local::failure::{Doing, Failure};
use rustix::process::{Pid, Signal, kill_process};
use types::{DiskHealth, VolumeId};
use vice::Vice;

use crate::supervisor;

/// Interval between looks at the partitions.
const LOOK: Duration = Duration::from_secs(2);
/// Interval between looks at the command, and for the order to stop.
const STEP: Duration = Duration::from_millis(100);
/// A partition with volumes left is evacuated again after so long: other servers may have room.
const AGAIN: Duration = Duration::from_secs(10 * 60);
/// A server that has not served for so long is not ended: its disk may fail at each start.
const SERVED: Duration = Duration::from_secs(60);
/// How long the command may take to end when the server stops.
const END_WITHIN: Duration = Duration::from_secs(5);

/// A partition at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    name: String,
    health: DiskHealth,
    /// It takes no more changes until it is opened again.
    stopped: bool,
    has_volumes: bool,
}

/// The next thing to do for a partition.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    /// Its volumes leave.
    Evacuate,
    /// Another start of the server opens it again.
    Restart,
}

/// Decides about a partition; without effects.
struct Rule {
    evacuates: Evacuates,
    /// A supervisor starts the server again.
    is_supervised: bool,
}

impl Rule {
    /// `evacuated`: how long ago its volumes left, or were to leave. `served`: how long this server
    /// has run.
    fn step(&self, seen: &Seen, evacuated: Option<Duration>, served: Duration) -> Step {
        let is_meant = match self.evacuates {
            Evacuates::Never => false,
            Evacuates::Failing => seen.health == DiskHealth::Failing,
            Evacuates::Slow => seen.health != DiskHealth::Well,
        };
        if !is_meant || !seen.has_volumes {
            return Step::Nothing;
        }
        match (seen.stopped, self.is_supervised && served >= SERVED) {
            (true, true) => Step::Restart,
            (true, false) => Step::Nothing,
            (false, _) if evacuated.is_some_and(|since| since < AGAIN) => Step::Nothing,
            (false, _) => Step::Evacuate,
        }
    }
}

/// The thread.
pub(crate) struct Evacuating {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Watch {
    dir: PathBuf,
    /// The partitions by their names.
    partitions: Vec<(String, PathBuf)>,
    rule: Rule,
    vice: Weak<Vice>,
    /// Ends the server.
    restart: Box<dyn Fn() + Send>,
    stop: Arc<AtomicBool>,
    began: Instant,
    /// Of each partition: when its volumes were to leave.
    evacuated: Vec<(String, Instant)>,
    /// Partitions about which the log says that they have to be opened again.
    told: Vec<String>,
}

impl Evacuating {
    /// Looks from now on. `restart` ends the server so that its supervisor starts it again.
    pub(crate) fn start(
        cell: &CellDir,
        vice: &Arc<Vice>,
        restart: impl Fn() + Send + 'static,
    ) -> Result<Evacuating, Failure> {
        let evacuates = cell.config.health.unwrap_or_default().evacuate;
        let stop = Arc::new(AtomicBool::new(false));
        if evacuates == Evacuates::Never {
            return Ok(Evacuating { stop, thread: None });
        }
        let mut watch = Watch {
            dir: cell.dir().to_owned(),
            partitions: cell.partition_names().into_iter().zip(cell.partitions()).collect(),
            rule: Rule { evacuates, is_supervised: supervisor::is_there() },
            vice: Arc::downgrade(vice),
            restart: Box::new(restart),
            stop: Arc::clone(&stop),
            began: Instant::now(),
            evacuated: Vec::new(),
            told: Vec::new(),
        };
        let thread = std::thread::Builder::new().name("evacuating".to_owned()).spawn(move || {
            while let Some(vice) = watch.vice.upgrade() {
                let all = seen(&vice);
                drop(vice);
                all.iter().for_each(|one| watch.look(one));
                if watch.stops_within(LOOK) {
                    return;
                }
            }
        });
        let thread = Some(thread.doing(|| "watching the health of partitions".to_owned())?);
        Ok(Evacuating { stop, thread })
    }

    /// Ends the command that runs, if one does: a volume that moves is whole at one of its places.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread {
            let _ = thread.join();
        }
    }
}

fn seen(vice: &Vice) -> Vec<Seen> {
    let one = |(name, partition): (&str, &store::Partition)| {
        let volumes = partition.volumes().list(VolumeId(0), 1);
        Seen {
            name: name.to_owned(),
            health: partition.health().state,
            stopped: partition.stopped().is_some(),
            has_volumes: !volumes.is_ok_and(|some| some.is_empty()),
        }
    };
    vice.partitions().by_name().map(one).collect()
}

impl Watch {
    fn look(&mut self, seen: &Seen) {
        let last = self.evacuated.iter().find(|(name, _)| *name == seen.name);
        let since = last.map(|(_, at)| at.elapsed());
        match self.rule.step(seen, since, self.began.elapsed()) {
            Step::Nothing => {}
            Step::Restart => {
                if !self.told.contains(&seen.name) && self.takes_a_write(&seen.name) {
                    tracing::error!(
                        partition = seen.name,
                        "PH-4: the server ends, so that its supervisor starts it again, the \
                         partition is opened, and its volumes can leave"
                    );
                    (self.restart)();
                    self.told.push(seen.name.clone());
                }
            }
            Step::Evacuate => {
                tracing::warn!(
                    partition = seen.name,
                    health = seen.health.word(),
                    "PH-4: the volumes of the partition leave"
                );
                self.run(&seen.name);
                self.evacuated.retain(|(name, _)| *name != seen.name);
                self.evacuated.push((seen.name.clone(), Instant::now()));
            }
        }
    }

    fn takes_a_write(&self, partition: &str) -> bool {
        let found = self.partitions.iter().find(|(name, _)| name == partition);
        found.is_some_and(|(_, path)| takes_a_write(path).is_ok())
    }

    /// Runs the command until it ends, or the server stops.
    fn run(&self, partition: &str) {
        let mut child = match self.command(partition) {
            Ok(child) => child,
            Err(error) => {
                tracing::error!(%error, "the command 'rialto vos evacuate' does not start");
                return;
            }
        };
        let out = child.stdout.take().map(log_lines);
        let err = child.stderr.take().map(log_lines);
        while matches!(child.try_wait(), Ok(None)) {
            if self.stops_within(STEP) {
                end(&mut child);
            }
        }
        for lines in [out, err].into_iter().flatten() {
            let _ = lines.join();
        }
        match child.wait() {
            Ok(status) => tracing::info!(partition, %status, "'rialto vos evacuate' ended"),
            Err(error) => tracing::error!(%error, "'rialto vos evacuate' was lost"),
        }
    }

    fn command(&self, partition: &str) -> std::io::Result<Child> {
        let options = ["--server", "localhost", "--partition", partition, "--withgroup", "--dir"];
        Command::new(crate::own_program()?)
            .args(["vos", "evacuate"])
            .args(options)
            .arg(OsStr::new(&self.dir))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .current_dir("/")
            .spawn()
    }

    /// True: the server stops.
    fn stops_within(&self, within: Duration) -> bool {
        let end = Instant::now() + within;
        while !self.stop.load(Ordering::SeqCst) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            std::thread::sleep(left.min(STEP));
        }
        true
    }
}

/// Writes a file without a name to the disk.
fn takes_a_write(dir: &Path) -> std::io::Result<()> {
    let mut file = tempfile::tempfile_in(dir)?;
    file.write_all(&[1; 4096])?;
    file.sync_all()
}

/// Asks the command to end, and ends it if it does not.
fn end(child: &mut Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::TERM);
    }
    let until = Instant::now() + END_WITHIN;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
        std::thread::sleep(STEP);
    }
    let _ = child.kill();
}

/// Copies what the command says into the server's log.
fn log_lines(from: impl Read + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            tracing::info!(line, "PH-4");
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(health: DiskHealth, stopped: bool, has_volumes: bool) -> Seen {
        Seen { name: "/vicepa".to_owned(), health, stopped, has_volumes }
    }

    #[test]
    fn ph4_the_configuration_decides_which_partitions_are_evacuated() {
        let step = |evacuates, health| {
            let rule = Rule { evacuates, is_supervised: true };
            rule.step(&seen(health, false, true), None, Duration::ZERO)
        };
        for (health, wanted) in [
            (DiskHealth::Well, [Step::Nothing, Step::Nothing, Step::Nothing]),
            (DiskHealth::Slow, [Step::Nothing, Step::Nothing, Step::Evacuate]),
            (DiskHealth::Failing, [Step::Nothing, Step::Evacuate, Step::Evacuate]),
        ] {
            let all = [Evacuates::Never, Evacuates::Failing, Evacuates::Slow];
            assert_eq!(all.map(|rule| step(rule, health)), wanted, "{health:?}");
        }
    }

    #[test]
    fn ph4_a_stopped_partition_is_opened_again_first() {
        let (long, short) = (SERVED, SERVED / 2);
        let step = |is_supervised, stopped, has_volumes, since, served| {
            let rule = Rule { evacuates: Evacuates::Failing, is_supervised };
            rule.step(&seen(DiskHealth::Failing, stopped, has_volumes), since, served)
        };
        assert_eq!(step(true, true, true, None, long), Step::Restart);
        assert_eq!(step(true, true, true, None, short), Step::Nothing, "not at each start");
        assert_eq!(step(false, true, true, None, long), Step::Nothing, "it would stay down");
        assert_eq!(step(true, true, false, None, long), Step::Nothing, "nothing is there");
        assert_eq!(step(true, false, false, None, long), Step::Nothing);
        assert_eq!(step(true, false, true, Some(AGAIN / 2), long), Step::Nothing);
        assert_eq!(step(true, false, true, Some(AGAIN), long), Step::Evacuate);
    }

    #[test]
    fn ph4_a_disk_that_takes_no_write_ends_no_server() {
        let dir = tempfile::tempdir().unwrap();
        takes_a_write(dir.path()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
        assert!(takes_a_write(Path::new("/proc/self")).is_err());
    }
}
