//! Null builds: the same mount with fewer layers below, so that time can be subtracted layer by
//! layer.
//!
//! `null-mount` answers from memory, with no cache manager and no server: the kernel, the channel
//! and the worker threads remain. `null-server` is the whole client with the service in its own
//! process and its store in memory: the wire, the server's threads and the disk are missing. Each
//! is this program again, as a helper: it mounts and unmounts by the lines of its standard input,
//! and unmounts and ends at the end of the input.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use client::clock;
use local::cell::VOLUME;
use local::failure::{Doing, Failure};
use mount::null::{NullMount, NullTree};
use mount::{Mount, MountConfig};
use server::Loopback;
use store::{MemMachine, NewRoot, OpenOptions, Partition, VolumeQuota};
use types::{ClientId, Name, Timestamp};
use venus::{VenusConfig, Volumes};
use vice::{Vice, ViceConfig};

use super::cost::{Role, Watched};
use super::side::{Side, any_directory_takes, drop_caches};
use super::{MeasuredFrom, Scenario, State, Unit};

/// The missing layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Missing {
    /// Everything below the mount.
    Mount,
    /// Wire, server and disk.
    Server,
}

impl Missing {
    const fn name(self) -> &'static str {
        match self {
            Missing::Mount => "null-mount",
            Missing::Server => "null-server",
        }
    }
}

/// A null build as a side.
pub struct Null {
    missing: Missing,
    root: PathBuf,
    process: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Null {
    /// Starts one, mounted below `dir`.
    ///
    /// # Errors
    /// If the helper process does not start or mount.
    pub fn new(missing: Missing, dir: &Path) -> Result<Self, Failure> {
        let what = || format!("starting {}", missing.name());
        let mount_point = dir.join(missing.name());
        fs::create_dir(&mount_point).doing(what)?;
        let mut command = Command::new(std::env::current_exe().doing(what)?);
        command.args(["bench", "--helper", missing.name(), "--dir"]).arg(&mount_point);
        let mut process = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .doing(what)?;
        let orders = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("it was asked for"));
        let mut side = Null { missing, root: mount_point.join("bench"), process, orders, answers };
        side.order("mount")?;
        fs::create_dir(&side.root).doing(what)?;
        Ok(side)
    }

    fn order(&mut self, order: &str) -> Result<(), Failure> {
        let what = || format!("{}: {order}", self.missing.name());
        let orders = self.orders.as_mut().expect("it is taken only at the end");
        writeln!(orders, "{order}").doing(what)?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).doing(what)?;
        if answer.trim() == "done" { Ok(()) } else { Err(Failure::new(what(), answer.trim())) }
    }
}

impl Side for Null {
    fn name(&self) -> &str {
        self.missing.name()
    }

    fn root(&self, _place: MeasuredFrom) -> &Path {
        &self.root
    }

    fn takes(&self, scenario: Scenario) -> Result<(), String> {
        match scenario.place() {
            MeasuredFrom::Remote => Err(String::new()),
            MeasuredFrom::Local if scenario.unit() == Unit::Memory => Ok(()),
            MeasuredFrom::Local => any_directory_takes(scenario),
        }
    }

    fn forget(&mut self, state: State, _place: MeasuredFrom) -> Result<(), Failure> {
        self.order("umount")?;
        drop_caches(state)?;
        self.order("mount")
    }

    fn processes(&self) -> Vec<Watched> {
        i32::try_from(self.process.id())
            .map(|pid| Watched { role: Role::Client, pid })
            .into_iter()
            .collect()
    }
}

impl Drop for Null {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.process.wait();
    }
}

/// Runs the helper process.
///
/// # Errors
/// If mounting fails, or standard input cannot be read.
pub fn serve(missing: Missing, at: &Path) -> Result<(), Failure> {
    local::daemon::raise_open_files();
    match missing {
        Missing::Mount => {
            let tree = Arc::new(NullTree::default());
            obey(|| NullMount::start(at, Arc::clone(&tree)).doing(|| "mounting".to_owned()))
        }
        Missing::Server => {
            let service = service()?;
            let mut life = 0;
            obey(|| {
                life += 1;
                Client::start(&service, at, life)
            })
        }
    }
}

/// Executes the orders: `mount` makes a `T`, `umount` and the end of input drop it.
fn obey<T>(mut mount: impl FnMut() -> Result<T, Failure>) -> Result<(), Failure> {
    let mut mounted: Option<T> = None;
    for order in io::stdin().lines() {
        let result = match order.doing(|| "reading orders".to_owned())?.as_str() {
            "mount" => mount().map(|made| mounted = Some(made)),
            "umount" => {
                mounted = None;
                Ok(())
            }
            other => Err(Failure::new("obeying", format!("no order '{other}'"))),
        };
        match result {
            Ok(()) => println!("done"),
            Err(failure) => println!("{failure}"),
        }
    }
    drop(mounted);
    Ok(())
}

/// The file service on a store in memory.
fn service() -> Result<Loopback, Failure> {
    let what = || "making a service in memory".to_owned();
    let partition =
        Partition::open_memory(&MemMachine::new(), OpenOptions::default()).doing(what)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp::new(i64::try_from(since.as_secs()).unwrap_or(0), since.subsec_nanos());
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let root = NewRoot { mode: 0o755, uid, gid, now, quota: VolumeQuota::default() };
    partition.volumes().create_volume(&volume(), &root).doing(what)?;
    let config =
        ViceConfig::new(dafs::encode_answer_record, |bytes| dafs::decode_answer_record(bytes).ok());
    let vice = Vice::open(partition, config, clock::now()).doing(what)?;
    Ok(Loopback::new(Arc::new(vice)))
}

fn volume() -> Name {
    Name::new(VOLUME.as_bytes()).expect("a constant that is a name")
}

/// The whole client, on a session without a wire.
struct Client {
    mount: Mount,
    volumes: Arc<Volumes>,
}

impl Client {
    fn start(service: &Loopback, at: &Path, life: u64) -> Result<Client, Failure> {
        let what = || format!("mounting on {}", at.display());
        let session = service.attach(ClientId(1), life).doing(what)?;
        let volumes = Volumes::of(Arc::new(session), VenusConfig::default());
        let mount =
            Mount::start(MountConfig::new(at, volume(), "rialto:null"), &volumes).doing(what)?;
        Ok(Client { mount, volumes })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Err(error) = self.mount.unmount() {
            eprintln!("rialto bench: {error}");
        }
        self.mount.wait();
        if let Err(error) = self.volumes.shutdown() {
            eprintln!("rialto bench: {error}");
        }
    }
}
