//! `rialto mount`: mounts a server's tree, in the foreground or as a daemon.

mod kept;
mod reaching;
mod session_trees;

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use clap::Args;
use client::Endpoint;
use keep::Keeper;
use local::ask::endpoint;
use local::cell::{CellDir, MountRecords, VOLUME, Where};
use local::daemon::{self, PidFile};
use local::failure::{Doing, Failure};
use local::mounts::{self, Health};
use local::show::Progress;
use mount::{Mount as Mounting, MountConfig, MountError, MountOptions};
use serde_json::Value;
use types::{Fault, Name};
use venus::DYNROOT;

use crate::control;
use crate::ending::Ending;
use crate::keeper;
use crate::logging;
use crate::mount_words::MountWords;
use crate::predecessor::wait_for_predecessor;
use crate::registry;
use crate::stopping;
use crate::supervisor;
use crate::transport::{Kept, MountFacts, Transport};

const AFTER_HELP: &str = "\
EXAMPLES
    rialto mount unix:/srv/rialto/server.sock /mnt/tree        until Ctrl-C
    rialto mount --daemon files.example.org:7620 /mnt/tree     until 'rialto umount'
    rialto mount --cache-size 20GiB files.example.org:7620 /mnt/tree
    rialto mount --volume home.alice.backup unix:/srv/rialto/server.sock /mnt/yesterday

    rialto mount --dynroot --daemon files.example.org:7620 /afs
    rialto mount --daemon -o ro,noexec files.example.org:7620 /mnt/tree
    rialto mount --daemon --soft 60 files.example.org:7620 /mnt/tree
    rialto mount --daemon --keep files.example.org:7620 /mnt/tree
    rialto mount --keeper /run/rialto/keeper.sock files.example.org:7620 /mnt/tree
    rialto mount --replace /mnt/tree       after an upgrade of the program
    mount -t rialto files.example.org:7620 /mnt/tree -o cache-size=20GiB,soft=60

In /etc/fstab, with a cell's name where it is in cells.toml or in DNS:
    example.org  /mnt/tree  rialto  _netdev,nofail,x-systemd.automount  0 0

SERVER is unix:PATH for a server on this machine (fastest: it passes descriptors of
files), or HOST:PORT. Mounted by root, the tree is open to all users as mode bits allow.
A volume that is read-only is mounted so; 'df' shows the volume's use and quota.
Without SERVER the server of the cell in --dir is used.

Volumes below mount points are file systems of their own, mounted at their first use, so
that 'find -xdev', 'rm --one-file-system' and 'df' distinguish them. With --flat, and always
without root, all are in one mount: for containers and name spaces that do not receive
later mounts.

With --dynroot the tree begins with all cells: /afs/CELL is the root.cell of CELL as it was
released, /afs/.CELL its read-write volume. SERVER's cell and those of cells.toml and
CellServDB are listed; others are looked up in DNS when they are named.

-o takes the options of mount(8): ro, noexec, noatime, context=..., and those above without
their dashes (volume=, cache-size=, dir=, flat, soft=, ...); nosuid and nodev always hold.
'mount -o remount,ro' and 'remount,rw' change a mount and the volumes below it.

While a server is away, programs wait for it (--hard), and can be killed. With --soft their
calls fail with EIO or ETIMEDOUT after that time; what they wrote before is still sent when
the server is back, but 'umount' gives it up after that time, and the log lists it.

With --keep a second process, the keeper, starts a successor when the first is killed:
programs keep their open files and locks, and wait for a moment. It takes no delegations and
no io_uring, so many small new files take longer. --replace has the program that is
installed now succeed.

Interrupting it unmounts: everything written goes to the server first. If the server stops
the mount waits for it and continues; unstable writes are sent again.

EXIT CODES
    0  unmounted (with --daemon: mounted)
    1  it could not be mounted";

/// malloc arenas: the requests are spread over as many processors as threads work at a time, and
/// the memory budget is one for all.
const ARENAS: i32 = 2;
const MOUNT_PATIENCE: Duration = Duration::from_secs(30);

/// Size of the disk cache, unless it is given.
pub(super) const CACHE_SIZE: &str = "4GiB";

/// Mounts a server's tree.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP, allow_missing_positional = true)]
pub struct MountCommand {
    /// Where the server listens: unix:PATH or HOST:PORT [default: that of the cell in --dir]
    #[arg(value_parser = endpoint)]
    pub(super) server: Option<Endpoint>,
    /// An existing directory.
    pub(super) mount_point: PathBuf,
    /// The volume whose root is the root of the mount.
    #[arg(long, value_name = "NAME", default_value = VOLUME)]
    pub(super) volume: String,
    /// Mount all cells instead of one: each is a directory of the root.
    #[arg(long, conflicts_with = "volume")]
    pub(super) dynroot: bool,
    /// One mount for all volumes, instead of one for each below its mount point: for containers,
    /// and the only way without root. There is no edge between volumes for 'find -xdev', 'du -x'
    /// and the like then
    #[arg(long)]
    pub(super) flat: bool,
    /// Go into the background once the tree is there.
    #[arg(long)]
    pub(super) daemon: bool,
    /// Open files and locks outlive this client's process: a keeper holds them, and starts a
    /// successor when the process is killed.
    #[arg(long, conflicts_with = "keeper")]
    pub(super) keep: bool,
    /// The same, with the 'rialto keeper' at this socket: something else starts the successor.
    #[arg(long, value_name = "SOCKET")]
    pub(super) keeper: Option<PathBuf>,
    /// Replace the process of a mount with --keep by the program that is installed now.
    #[arg(long, conflicts_with_all = ["daemon", "server"])]
    pub(super) replace: bool,
    /// This process is the daemon.
    #[arg(long, hide = true)]
    pub(super) detached: bool,
    /// Size of the disk cache, such as 500MiB or 20GiB.
    #[arg(long, value_name = "SIZE", default_value = CACHE_SIZE, value_parser = size)]
    pub(super) cache_size: u64,
    /// Directory of the disk cache [default: one directory for each mount point, below cache/ in
    /// --dir]
    #[arg(long, value_name = "DIR")]
    pub(super) cache_dir: Option<PathBuf>,
    /// File that lists other cells' servers, for mount points that lead there [default: cells.toml
    /// in --dir, then /etc/rialto/cells.toml]
    #[arg(long, value_name = "FILE")]
    pub(super) cells: Option<PathBuf>,
    /// File that lists cells of AFS with their database servers, in OpenAFS's form [default:
    /// /etc/rialto/CellServDB]
    #[arg(long, value_name = "FILE")]
    pub(super) cellservdb: Option<PathBuf>,
    /// Name servers for cells that no file lists [default: those of /etc/resolv.conf]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) name_server: Vec<SocketAddr>,
    /// Transport of the kernel's requests; io_uring takes fewer wake-ups [default:
    /// $RIALTO_TRANSPORT, or auto]
    #[arg(long, value_enum)]
    pub(super) transport: Option<Transport>,
    /// Options as in fstab, between commas.
    #[arg(long, short = 'o', value_name = "OPTIONS")]
    pub(super) options: Vec<String>,
    /// Programs wait for a server that is away for as long as it takes [default].
    #[arg(long, conflicts_with = "soft")]
    pub(super) hard: bool,
    /// Programs wait so many seconds for a server that is away; then their calls fail.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) soft: Option<u32>,
    /// The source that the table of mounts shows, as mount(8) was given it.
    #[arg(long, hide = true)]
    pub(super) source: Option<String>,
    /// A cell by its name, instead of a server.
    #[arg(long, hide = true, conflicts_with = "dynroot")]
    pub(super) cell: Option<String>,
    #[command(flatten)]
    pub(super) place: Where,
}

impl MountCommand {
    fn patience(&self) -> Option<Duration> {
        self.soft.map(|seconds| Duration::from_secs(u64::from(seconds)))
    }

    pub(crate) fn run(mut self) -> Result<ExitCode, Failure> {
        let keeper = Keeper::of_this_process()
            .map_err(|error| kept::unusable_legacy("reaching the keeper".to_owned(), error))?;
        if let Some(keeper) = keeper {
            return self.serve_kept(&keeper);
        }
        let words = self.take_words()?;
        if words.remount {
            let why = "'remount' changes a mount that is there";
            return Err(Failure::new("reading the mount options", why)
                .mend("use 'mount -o remount,... DIR'"));
        }
        if self.replace {
            return self.replace_daemon();
        }
        // Nothing may serve what is mounted there: a look would wait.
        let at = match &self.keeper {
            Some(_) => self.named_mount_point()?,
            None => self.mount_point()?,
        };
        let dir = self.place.path()?;
        self.server = self.server()?;
        if !self.flat && !rustix::process::geteuid().is_root() {
            self.flat = true;
            // The process that starts the daemon has printed this.
            if !self.detached {
                eprintln!(
                    "without root all volumes are shown in one mount (--flat): no edges for 'find \
                        -xdev' and the like"
                );
            }
        }
        let records = MountRecords::of(&dir);
        records.prepare()?;
        if self.keeper.is_none() {
            wait_for_predecessor(&records, &at)?;
        }
        Transport::choose(self.transport)?;
        if self.daemon {
            self.spawn(&dir, &records, &at)?;
        } else if let Some(socket) = &self.keeper {
            let keeper = self.begin_at_keeper(socket, &records, &at)?;
            self.serve(&records, &at, Some(&keeper))?;
            keeper.ends();
        } else if self.keep {
            if self.detached {
                daemon::leave_terminal().doing(|| "leaving the terminal".to_owned())?;
            }
            let arguments = self.arguments(&dir, &at)?;
            return keeper::run(&arguments, &records.pid_file(&at));
        } else {
            self.serve(&records, &at, None)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn mount_point(&self) -> Result<PathBuf, Failure> {
        let what = || format!("mounting on {}", self.mount_point.display());
        let found = std::fs::canonicalize(&self.mount_point);
        // Names may be found still where nothing serves.
        match found.and_then(|at| Ok((at.metadata()?.is_dir(), at))) {
            Ok((true, at)) => Ok(at),
            Ok((false, _)) => Err(Failure::new(what(), "it is no directory")),
            Err(error) => Err(match mounts::health_now(&self.mount_point) {
                Health::Stale => Failure::new(what(), "a mount whose process died is there")
                    .mend(format!("run 'rialto umount {}' first", self.mount_point.display())),
                _ => Failure::new(what(), error).mend("make that directory first"),
            }),
        }
    }

    /// The named server, or that of this machine's cell; only a mount of the dynamic root needs
    /// none.
    fn server(&self) -> Result<Option<Endpoint>, Failure> {
        if let Some(name) = &self.cell {
            // The cell of this machine needs no file that lists it.
            let here = CellDir::find(&self.place.path()?)?.filter(|cell| cell.config.name == *name);
            return here
                .map(|cell| endpoint(&cell.endpoint()))
                .transpose()
                .doing(|| format!("reading the address of {name}"));
        }
        if self.server.is_some() || self.dynroot && CellDir::find(&self.place.path()?)?.is_none() {
            return Ok(self.server.clone());
        }
        let cell = self.place.cell()?;
        endpoint(&cell.endpoint())
            .map(Some)
            .doing(|| format!("reading the address of {}", cell.config.name))
    }

    /// The source of the mount, for people.
    fn source(&self) -> String {
        match &self.server {
            Some(server) if !self.dynroot => server.to_string(),
            _ => DYNROOT.to_owned(),
        }
    }

    /// The source in the table of mounts: what mount(8) was given, so that it finds the line again.
    fn shown_source(&self) -> String {
        self.source.clone().unwrap_or_else(|| format!("rialto:{}", self.source()))
    }

    /// The command line of a process that serves this mount.
    fn arguments(&self, dir: &Path, at: &Path) -> Result<Vec<OsString>, Failure> {
        let server = self.server.as_ref().map(Endpoint::to_string);
        let cache_size = self.cache_size.to_string();
        let mut arguments: Vec<&OsStr> =
            vec!["mount".as_ref(), "--detached".as_ref(), "--dir".as_ref(), dir.as_ref()];
        arguments.extend(["--cache-size".as_ref(), cache_size.as_ref() as &OsStr]);
        if self.dynroot {
            arguments.push("--dynroot".as_ref());
        } else {
            arguments.extend(["--volume".as_ref(), self.volume.as_ref() as &OsStr]);
        }
        if let Some(cache) = &self.cache_dir {
            arguments.extend(["--cache-dir".as_ref(), cache.as_os_str()]);
        }
        let cells = self.cells.as_deref().map(std::path::absolute).transpose();
        let cells = cells.doing(|| "finding the file with cells".to_owned())?;
        if let Some(cells) = &cells {
            arguments.extend(["--cells".as_ref(), cells.as_os_str()]);
        }
        let afs_cells = self.cellservdb.as_deref().map(std::path::absolute).transpose();
        let afs_cells = afs_cells.doing(|| "finding the file with cells of AFS".to_owned())?;
        if let Some(cells) = &afs_cells {
            arguments.extend(["--cellservdb".as_ref(), cells.as_os_str()]);
        }
        let name_servers: Vec<String> =
            self.name_server.iter().map(|server| format!("--name-server={server}")).collect();
        arguments.extend(name_servers.iter().map(AsRef::<OsStr>::as_ref));
        if self.flat {
            arguments.push("--flat".as_ref());
        }
        if self.keep {
            arguments.push("--keep".as_ref());
        }
        if let Some(socket) = &self.keeper {
            arguments.extend(["--keeper".as_ref(), socket.as_os_str()]);
        }
        if self.place.is_clear() {
            arguments.push("--clear".as_ref());
        }
        let soft = self.soft.map(|seconds| format!("--soft={seconds}"));
        arguments.extend(soft.as_ref().map(AsRef::<OsStr>::as_ref));
        // The child reads them again, for those that the kernel applies.
        let options: Vec<String> =
            self.options.iter().map(|options| format!("--options={options}")).collect();
        arguments.extend(options.iter().map(AsRef::<OsStr>::as_ref));
        let source = self.source.as_ref().map(|source| format!("--source={source}"));
        arguments.extend(source.as_ref().map(AsRef::<OsStr>::as_ref));
        let cell = self.cell.as_ref().map(|cell| format!("--cell={cell}"));
        arguments.extend(cell.as_ref().map(AsRef::<OsStr>::as_ref));
        if let Some(transport) = self.transport {
            arguments.extend(["--transport".as_ref(), transport.name().as_ref() as &OsStr]);
        }
        arguments.extend(server.as_ref().map(AsRef::<OsStr>::as_ref));
        arguments.push(at.as_os_str());
        Ok(arguments.into_iter().map(OsStr::to_owned).collect())
    }

    fn spawn(&self, dir: &Path, records: &MountRecords, at: &Path) -> Result<(), Failure> {
        let arguments = self.arguments(dir, at)?;
        let arguments: Vec<&OsStr> = arguments.iter().map(AsRef::as_ref).collect();
        let log = records.log(at);
        let _progress = Progress::start(format!("mounting {} on {}", self.source(), at.display()));
        let mut child =
            daemon::spawn(&arguments, &log).doing(|| format!("mounting on {}", at.display()))?;
        daemon::wait_until(&mut child, MOUNT_PATIENCE, &log, "the mount", || {
            let ours = mounts::at(at).ok().flatten().is_some_and(|mounted| mounted.is_rialto());
            ours && mounts::health(at, Duration::from_secs(1)) == Health::Answers
        })
    }

    fn serve(
        &self,
        records: &MountRecords,
        at: &Path,
        keeper: Option<&Arc<Keeper>>,
    ) -> Result<(), Failure> {
        if self.detached && !self.is_child_of(keeper) {
            daemon::leave_terminal().doing(|| "leaving the terminal".to_owned())?;
        }
        // Before any thread starts.
        mem::heap::share_arenas(ARENAS);
        logging::start();
        logging::protect_memory();
        daemon::raise_open_files();
        // A keeper has its own there.
        let pid_file = match self.is_child_of(keeper) {
            true => None,
            false => Some(PidFile::hold(&records.pid_file(at), "the mount")?),
        };
        let volume = if self.dynroot { DYNROOT } else { &self.volume };
        let volume =
            Name::new(volume.as_bytes()).doing(|| format!("mounting the volume {volume}"))?;
        let volumes = self.all_volumes(records, at, keeper)?;
        let transport = Transport::choose(self.transport)?.into();
        let forerunner = Some(forerunner(at)?);
        let mut options = MountOptions::default();
        MountWords::parse(&self.options)?.change(&mut options);
        let config = MountConfig {
            transport,
            forerunner,
            flat: self.flat,
            options,
            patience: self.patience(),
            keeper: keeper.cloned(),
            ..MountConfig::new(at, volume, self.shown_source())
        };
        // Before the tree is mounted: its users may request a session.
        let sessions = Arc::default();
        let door = self.serves_sessions(at, &sessions);
        let mounted = Arc::new(
            Mounting::start(config, &volumes).map_err(|error| self.mount_failure(at, error))?,
        );
        let no_passthrough = mounted.venus().passthrough().why_not.map(str::to_owned);
        let kept = match (&self.keeper, keeper) {
            (Some(socket), _) => Kept::KeeperAt(socket.clone()),
            (None, Some(_)) => Kept::OwnKeeper,
            (None, None) => Kept::No,
        };
        let transport = mounted.transport().into();
        let cache = self.cache_place(records, at);
        let cache = std::path::absolute(&cache).ok();
        let facts = MountFacts { transport, no_passthrough, flat: self.flat, kept, cache };
        tracing::info!(
            source = self.source(),
            at = %at.display(),
            transport = facts.transport.name(),
            "mounted"
        );
        let file = records.facts_file(at);
        // Of no use for the mount itself: a full disk must not end what others use already.
        let published = facts.publish(&file).inspect_err(|error| {
            tracing::warn!(
                %error,
                file = %file.display(),
                consequence = "'rialto status' and 'rialto doctor' do not know how it is mounted",
                "the facts of the mount cannot be written"
            );
        });
        let ending = Ending::new(&volumes, &sessions);
        let entry = registry::enter(at, &self.place.path()?);
        let control = self.serves_orders(records, at, &mounted, &ending, self.is_child_of(keeper));
        keeper.iter().for_each(|keeper| keeper.serves());
        supervisor::tell_ready();
        wait_for_end(&mounted)?;
        supervisor::tell_stopping();
        drop(door);
        tracing::info!(at = %at.display(), "unmounted");
        drop((published, mounted));
        // Unsent changes that were acknowledged to applications go to the server before this
        // process ends. Delegations and holds end with the session, so the process does not wait
        // for a silent server that needs nothing.
        let handed_back = ending
            .hand_over(self.patience())
            .doing(|| format!("sending the changes of {} to {}", at.display(), self.source()));
        // Explicitly, and not by dropping the last reference: ending threads hold some too, and the
        // process's end would drop the session without a message. A server that does not notice the
        // end of processes would then keep its promises for the rest of the lease.
        ending.leave();
        drop((control, entry));
        drop(pid_file);
        handed_back
    }

    /// Carries out orders of `umount` and of mount(8).
    fn serves_orders(
        &self,
        records: &MountRecords,
        at: &Path,
        mounted: &Arc<Mounting>,
        ending: &Arc<Ending>,
        keeper_is_parent: bool,
    ) -> Option<control::ControlSocket> {
        // Orders are for the process that the pid file names.
        let process = keeper_is_parent.then(rustix::process::getppid).flatten();
        let process = process.unwrap_or_else(rustix::process::getpid);
        let pid_file = records.pid_file(at);
        // The mount ends when it is unmounted, and not with the last order.
        let (mounted, ending) = (Arc::downgrade(mounted), Arc::clone(ending));
        let answer = move |order: &str| match order.split_once(' ') {
            None if order == "unsaved" => Ok(ending.unsaved()),
            None if order == "give-up" => Ok(ending.give_up()),
            Some(("remount", words)) => {
                let mounted = mounted.upgrade().ok_or("it is unmounted")?;
                remount(&mounted, words, &ending).map(|()| Value::Bool(true))
            }
            _ => Err(format!("there is no order '{order}'")),
        };
        let listening = control::listen(pid_file.parent()?, process.as_raw_nonzero().get(), answer);
        listening
            .inspect_err(|error| tracing::warn!(%error, "umount cannot tell what it waits for"))
            .ok()
    }

    fn mount_failure(&self, at: &Path, error: MountError) -> Failure {
        match &error {
            MountError::Volume(reason) if reason.fault() == Some(Fault::NoVolume) => {
                Failure::new(format!("mounting the volume {}", self.volume), error)
                    .mend("'rialto vos listvol' on its server shows which there are")
            }
            _ => Failure::new(format!("mounting on {}", at.display()), error)
                .mend("'rialto doctor' finds causes"),
        }
    }

    fn cache_place(&self, records: &MountRecords, at: &Path) -> PathBuf {
        self.cache_dir.clone().unwrap_or_else(|| records.cache(at))
    }

    /// The directory of this mount's cache and identity.
    fn cache(&self, records: &MountRecords, at: &Path) -> Result<PathBuf, Failure> {
        let cache = self.cache_place(records, at);
        std::fs::create_dir_all(cache.join("data"))
            .doing(|| format!("making {}", cache.display()))?;
        Ok(cache)
    }
}

/// Gives a mount other options; one that becomes read-only hands its changes over first.
fn remount(mounted: &Mounting, words: &str, ending: &Arc<Ending>) -> Result<(), String> {
    let words = MountWords::parse(&[words.to_owned()]).map_err(|failure| failure.to_string())?;
    let mut options = mounted.options();
    words.change(&mut options);
    let becomes_read_only = options.read_only && !mounted.options().read_only;
    mounted.remount(&options).map_err(|error| match error {
        rustix::io::Errno::BUSY => "files are open for writing".to_owned(),
        error => error.to_string(),
    })?;
    if becomes_read_only {
        ending.hand_over(None).map_err(|error| error.to_string())
    } else {
        Ok(())
    }
}

/// The command of the process that lists directories in advance.
fn forerunner(at: &Path) -> Result<Vec<OsString>, Failure> {
    let program = std::env::current_exe().doing(|| "finding this program".to_owned())?;
    Ok(vec![program.into(), "forerunner".into(), at.into()])
}

/// Waits until the tree is unmounted from outside, or unmounts it on a signal.
fn wait_for_end(mounted: &Arc<Mounting>) -> Result<(), Failure> {
    let (end, ends) = mpsc::channel();
    stopping::signals(|| true, end.clone()).doing(|| "watching for signals".to_owned())?;
    let waiting = Arc::clone(mounted);
    std::thread::spawn(move || {
        waiting.wait();
        let _ = end.send(false);
    });
    while let Ok(true) = ends.recv() {
        if let Err(error) = mounted.unmount() {
            tracing::error!(%error, "cannot unmount");
        }
    }
    Ok(())
}

/// Parses a size such as `4096`, `500MiB` or `20GB` into bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "T" | "TiB" => 1 << 40,
        "kB" | "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return Err("write a number and a unit such as MiB or GiB".to_owned()),
    };
    let number: u64 =
        number.parse().map_err(|_| "write a number and a unit such as MiB or GiB".to_owned())?;
    number.checked_mul(factor).ok_or_else(|| "too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("20GiB"), Ok(20 << 30));
        assert_eq!(size("3 MB"), Ok(3_000_000));
        for text in ["", "GiB", "-1", "5 parsecs", "99999999999999999999"] {
            assert!(size(text).is_err(), "{text:?}");
        }
        assert!(size("99999999TiB").is_err(), "past 2^64");
    }
}
