//! `rialto up`: makes and starts whatever a usable tree lacks.
//!
//! Each step checks first and does only what is missing, so that a repeated run continues: make the
//! cell, start the server, unmount a dead mount, mount. A lock on the cell's directory excludes
//! concurrent runs.

use std::ffi::OsStr;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use afscell::AfsCell;
use celldb::{CELL_LEVEL_KNOWN, CellError, Etcd, EtcdConfig};
use clap::Args;
use client::Endpoint;
use guard::{JoinCode, Network};
use keys::SignOrder;
use local::ask::Asking;
use local::cell::{AfsClients, CellDir, NAME_DEFAULT, NewCell, Where};
use local::daemon::{self, Process};
use local::failure::{Doing, Failure};
use local::mounts::{self, Health};
use local::show::{self, Progress};
use serde_json::json;

use super::cell::migrate::{MigrateTo, Move};
use super::down::stop_server;
use super::import_afs;
use super::welcome::{self, LocalUser};
use crate::etcd_place::{EtcdOptions, write_config};
use crate::joining::{self, Joined};
use crate::security::afs_keys;
use crate::transport::Transport;
use crate::unmounting::{UNMOUNT_PATIENCE, UnmountOutcome, Way, elsewhere, unmount};

const AFTER_HELP: &str = "\
EXAMPLES
    rialto up                      the tree appears at mnt/ in the cell's directory
    rialto up --at ~/tree
    rialto up --dir /srv/rialto --cell example.org --listen 0.0.0.0:7620
    rialto up --dir /srv/rialto --join CODE
        a further server of the cell in which 'rialto cell invite' printed CODE
    rialto up --dir /srv/rialto --etcd db1:2379,db2:2379,db3:2379 \\
            --etcd-cacert ca.pem --etcd-cert fs1.pem --etcd-key fs1.key
        etcd has the cell's database; also with --join
    rialto up --dir /srv/rialto --join-afs example.org --afs-databases db1,db2,db3 \\
            --keytab /etc/openafs/server/rxkad.keytab --listen 192.0.2.1:7620
        a server of a cell that has OpenAFS's servers

It makes a cell if there is none, starts its server, and mounts its tree. Run again it
continues: running processes stay, a server that died is started, a mount that died is made
again. 'rialto down' stops all; the data stays.

EXIT CODES
    0  the tree is there
    1  something failed: the message names it and the remedy";

/// How long the cell database may take to list a started server.
const LISTED_PATIENCE: Duration = Duration::from_secs(5);
/// How long the server may take to answer: it reads its log after a crash.
const SERVER_PATIENCE: Duration = Duration::from_secs(60);
/// How long an existing mount may take to answer.
const MOUNT_PATIENCE: Duration = Duration::from_secs(5);

/// Makes a cell if there is none, starts its server and mounts its tree.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Up {
    #[command(flatten)]
    place: Where,
    /// The mount point; made if it does not exist [default: mnt in the cell's directory]
    #[arg(long, value_name = "DIR")]
    at: Option<PathBuf>,
    /// The name of a new cell.
    #[arg(long, value_name = "NAME", default_value = NAME_DEFAULT)]
    cell: String,
    /// Where the server of a new cell listens for other machines; port 0: a free one from 7620 on,
    /// which it keeps [default: nowhere]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Encrypt the content of files of a new cell's volumes on the disk, with keys in keys/at-rest
    /// below its directory. That is the same disk: store the keys elsewhere, by [at-rest] in
    /// cell.toml, if the whole disk may be stolen.
    #[arg(long, conflicts_with = "join")]
    encrypt: bool,
    /// The level of a new cell, so that servers with older programs can join it: 'rialto cell
    /// status' [default: the newest]
    #[arg(long, value_name = "LEVEL", conflicts_with = "join")]
    level: Option<u32>,
    /// A host, or a network, that the server of a new cell trusts to name its users: for hosts with
    /// common administration. A connection from there is trusted if it comes from a port below
    /// 1024, as mounts of root do, or shows a host certificate. Root of such a host is an
    /// anonymous caller (see --trust-root), and none of its users an administrator, until they log
    /// in, as users of all other hosts do. May be given several times.
    #[arg(long, value_name = "NETWORK")]
    trust: Vec<Network>,
    /// Root of the hosts that --trust names is root of the new cell's files, but no administrator
    /// of the cell.
    #[arg(long, requires = "trust")]
    trust_root: bool,
    /// Makes a further server of a cell, and starts it; mounts nothing without --at. CODE is the
    /// line that 'rialto cell invite' prints. The server listens for the others: at --listen, else
    /// at a free port of the address at which they reach this machine. With --keys: the HOST:PORT
    /// of the server that has the cell's database.
    #[arg(long, value_name = "CODE", conflicts_with = "cell")]
    join: Option<String>,
    /// Makes a server of a cell that has OpenAFS's servers: a new cell of that name here, whose
    /// server opens AFS's ports at the address of --listen, enters itself in that cell's location
    /// database, and has its users and groups.
    #[arg(
        long,
        value_name = "CELL",
        conflicts_with_all = ["cell", "join"],
        requires_all = ["afs_databases", "keytab", "listen"]
    )]
    join_afs: Option<String>,
    /// The database servers of that cell: host names or IPv4 addresses.
    #[arg(long, value_name = "HOST", value_delimiter = ',', requires = "join_afs")]
    afs_databases: Vec<String>,
    /// The keys of that cell's servers: a keytab with afs/CELL, a KeyFileExt or a KeyFile. It is
    /// read at each start.
    #[arg(long, value_name = "FILE", requires = "join_afs")]
    keytab: Option<PathBuf>,
    /// Instead of a code: a copy of ca.pem and ca.key of the cell. The new server keeps them, so it
    /// can make other servers, as every holder of a copy can.
    #[arg(long, value_name = "DIR", requires = "join")]
    keys: Option<PathBuf>,
    #[command(flatten)]
    etcd: EtcdOptions,
    /// The new server's name in its cell [default: this machine's, with a number if another server
    /// has it].
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Transport of the kernel's requests to the mount [default: $RIALTO_TRANSPORT, or auto]
    #[arg(long, value_enum)]
    transport: Option<Transport>,
    /// Start the cell and its server without a mount: for servers of other machines.
    #[arg(long, conflicts_with = "at")]
    no_mount: bool,
    /// Print one JSON object: cell, dir, listen, at, and what had to be done.
    #[arg(long)]
    json: bool,
}

impl Up {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let dir = self.place.path()?;
        let is_new = self.join.is_none() && CellDir::find(&dir)?.is_none();
        let cell = self.cell(&dir)?;
        let _lock = lock(cell.dir())?;
        cell.mounts().prepare()?;
        let cell = self.bring_to_etcd(cell)?;
        let started = start_server(&cell, &[])?;
        if started && !cell.config.has_database() {
            wait_until_listed(&cell);
        }
        let person = LocalUser::calling();
        if self.join_afs.is_some() {
            self.import_afs(&cell)?;
        } else if is_new && let Some(person) = &person {
            person.enter(&cell)?;
        }
        let at = if self.no_mount || self.join.is_some() && self.at.is_none() {
            None
        } else {
            Some(self.mount_point(&cell)?)
        };
        let mounted =
            at.as_ref().map_or(Ok(false), |at| ensure_mounted(&cell, at, self.transport))?;
        match &at {
            _ if self.json => show::json(&json!({
                "cell": cell.config.name, "dir": cell.dir(), "listen": cell.config.listen,
                "socket": cell.socket(), "users_socket": cell.users_socket(),
                "at": at, "started": started, "mounted": mounted,
            })),
            Some(at) => self.print_result(&cell, at, started || mounted, person.as_ref()),
            None => {
                println!("the server of {} listens on {}", cell.config.name, cell.reached_at());
                if let Some(users) = cell.users_socket() {
                    println!("all users of this machine reach it at unix:{}", users.display());
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Joins by a code. The server starts when it has a certificate.
    fn join(&self, dir: &Path, code: &str) -> Result<CellDir, Failure> {
        let code: JoinCode = code.parse().map_err(|why| Failure::new("using --join", why))?;
        match joining::join_by_code(dir, &code, &self.new_server())? {
            Joined::Ready(cell) => {
                eprintln!("made a server of the cell {} in {}", code.cell, cell.dir().display());
                Ok(cell)
            }
            Joined::Waits(cell) => {
                let order = SignOrder::path(&cell.keys());
                Err(Failure::new(
                    format!("joining the cell {}", code.cell),
                    "the key of its authority is at no server that answers, so the certificate \
                     waits for a signature",
                )
                .mend(format!(
                    "bring {} to the machine with the authority, sign it with 'rialto cell sign \
                     FILE --authority DIR --out SIGNED', bring SIGNED back, then run 'rialto keys \
                     accept SIGNED' and 'rialto up'",
                    order.display()
                )))
            }
        }
    }

    /// The ports of AFS in a cell that joins one of OpenAFS.
    fn joined_afs(&self) -> Result<Option<AfsClients>, Failure> {
        let what = || "using --join-afs".to_owned();
        let Some(name) = &self.join_afs else { return Ok(None) };
        let (Some(keytab), Some(listen)) = (&self.keytab, self.listen) else { return Ok(None) };
        let SocketAddr::V4(listen) = listen else {
            return Err(Failure::new(what(), "AFS has IPv4 addresses alone")
                .mend("give --listen an IPv4 address of this machine"));
        };
        if listen.ip().is_unspecified() {
            return Err(Failure::new(what(), "other servers must know the address of this one")
                .mend("give --listen an IPv4 address of this machine"));
        }
        let keys = std::path::absolute(keytab).doing(what)?;
        let read = Arc::new(afs_keys(&keys, name)?);
        let (listen, databases) = (*listen.ip(), import_afs::addresses(&self.afs_databases)?);
        // Before anything is made.
        let there = AfsCell::open(databases.clone(), Some(read)).doing(what)?;
        there.need_superuser().doing(what)?;
        Ok(Some(AfsClients { listen, keys: Some(keys), realm: None, databases }))
    }

    fn import_afs(&self, cell: &CellDir) -> Result<(), Failure> {
        if cell.config.afs.as_ref().is_none_or(|afs| afs.databases.is_empty()) {
            let why = format!("the cell in {} has joined none", cell.dir().display());
            return Err(Failure::new("using --join-afs", why)
                .mend("write 'databases' into [afs] of its cell.toml, or name another --dir"));
        }
        import_afs::once(cell)
    }

    fn new_server(&self) -> joining::NewServer<'_> {
        joining::NewServer {
            listen: self.listen,
            server: self.server.as_deref(),
            trusted: &self.trust,
            trusted_root: self.trust_root,
        }
    }

    fn cell(&self, dir: &Path) -> Result<CellDir, Failure> {
        if let Some(code) = self.join.as_ref().filter(|join| join.contains('/')) {
            return self.join(dir, code);
        }
        if let Some(cell) = CellDir::find(dir)? {
            if self.join.as_ref().is_some_and(|join| Some(join) != cell.config.database.as_ref()) {
                let why = format!(
                    "{} holds a server of the cell {} already",
                    dir.display(),
                    cell.config.name
                );
                return Err(
                    Failure::new("using --join", why).mend("name another directory with --dir")
                );
            }
            let other =
                |listen: SocketAddr| listen.port() != 0 && Some(listen) != cell.config.listen;
            if self.listen.is_some_and(other) {
                let why = format!("the cell in {} listens on {}", dir.display(), cell.reached_at());
                return Err(Failure::new("using --listen", why)
                    .mend("change 'listen' in its cell.toml, then down and up"));
            }
            return Ok(cell);
        }
        if let Some(database) = &self.join {
            let keys = self.keys.as_deref().ok_or_else(|| {
                let mend = "run 'rialto cell invite' on a server of the cell, and give the line \
                    that it prints to --join";
                Failure::new("using --join", "a server joins by an invitation").mend(mend)
            })?;
            let cell = joining::join(dir, database, keys, &self.new_server())?;
            eprintln!("made a server of the cell {} in {}", cell.config.name, cell.dir().display());
            return Ok(cell);
        }
        if !self.etcd.endpoints.is_empty() {
            let etcd = self.etcd.config().doing(|| "using --etcd".to_owned())?;
            need_none(&etcd, &self.cell)?;
        }
        let name = self.join_afs.as_ref().unwrap_or(&self.cell);
        let new = NewCell {
            listen: self.listen,
            afs: self.joined_afs()?,
            clear: self.place.is_clear(),
            encrypt: self.encrypt,
            server: self.server.clone(),
            trusted: self.trust.clone(),
            trusted_root: self.trust_root,
        };
        let cell = CellDir::create(dir, name, new)?;
        if let (Some(level), server::CellPlace::Here(path)) = (self.level, cell.database())
            && level != CELL_LEVEL_KNOWN
        {
            let made = celldb::Embedded::open_at(&path, level);
            made.map(drop).doing(|| "making the cell's database".to_owned())?;
        }
        eprintln!("made the cell {} in {}", cell.config.name, cell.dir().display());
        if self.encrypt {
            eprintln!("{}", welcome::about_keys(&cell));
        }
        Ok(cell)
    }

    /// The database is in etcd, and this server reaches it there, if that is asked for.
    fn bring_to_etcd(&self, cell: CellDir) -> Result<CellDir, Failure> {
        let what = || "using --etcd".to_owned();
        if self.etcd.endpoints.is_empty() {
            return Ok(cell);
        }
        let etcd = self.etcd.config().doing(what)?;
        let is_here = cell.config.has_database();
        match &cell.config.etcd {
            Some(known) if known.below(cell.dir()) == etcd => return Ok(cell),
            Some(_) => {
                let why = "cell.toml names another etcd, or other files for it";
                return Err(Failure::new(what(), why)
                    .mend("change [etcd] in cell.toml, then 'rialto down' and 'rialto up'"));
            }
            None => {}
        }
        let runs = Process::recorded(&cell.server_pid_file()).doing(what)?.is_some();
        let there = Etcd::new(&etcd, &cell.config.name, Arc::default()).doing(what)?.check();
        match there {
            // It makes the cell's authority, its first volume and its database, where they lack.
            Err(CellError::Misuse(_)) if is_here => drop(start_server(&cell, &[])?),
            // A move that was interrupted goes on.
            Ok(()) | Err(CellError::Moved { .. }) if is_here && !runs => {}
            // The running server stays as it is.
            _ if is_here => need_none(&etcd, &cell.config.name)?,
            there => there.doing(what).map_err(|failure| {
                failure.mend(
                    "the server that has the database moves it: 'rialto cell migrate --to etcd'",
                )
            })?,
        }
        stop_server(&cell)?;
        if is_here {
            let all = Move { to: MigrateTo::Etcd, replace: false, dry_run: false };
            all.run(&cell, &etcd, || format!("moving the database of {}", cell.config.name))?;
            eprintln!("the database of {} is in etcd", cell.config.name);
        } else {
            write_config(&cell, Some(&etcd)).doing(what)?;
        }
        let dir = cell.dir().to_owned();
        CellDir::find(&dir)?.ok_or_else(|| Failure::new(what(), "cell.toml is gone"))
    }

    fn mount_point(&self, cell: &CellDir) -> Result<PathBuf, Failure> {
        let Some(at) = &self.at else { return Ok(cell.mount_point()) };
        let what = || format!("finding {}", at.display());
        let at = std::path::absolute(at).doing(what)?;
        // The directory itself may be a dead mount, which can be neither made nor resolved.
        if mounts::at(&at).doing(what)?.is_some() {
            return Ok(at);
        }
        std::fs::create_dir_all(&at).doing(|| format!("making {}", at.display()))?;
        std::fs::canonicalize(&at).doing(what)
    }

    fn print_result(&self, cell: &CellDir, at: &Path, changed: bool, person: Option<&LocalUser>) {
        let (at, rialto, dir) = (at.display(), typed_name(), self.dir_option());
        let state = if changed { "is there" } else { "was there already" };
        println!("the tree of {} {state}: {at}", cell.config.name);
        println!("{}", welcome::describe_identity(cell, person));
        println!("\nto try:");
        println!("    cp -r /usr/share/doc {at}/      work in it as in any directory");
        println!("    {rialto} mount --daemon {} DIR", cell.endpoint());
        println!("        mount it a second time, and see each change at once");
        if let Some(users) = cell.users_socket() {
            println!("    programs of all users of this machine reach its server at");
            println!("        unix:{}", users.display());
        }
        println!("    {rialto} status{dir}");
        println!("        what runs, who is connected, what is used");
        println!("\nto stop (the data stays in {}):\n    {rialto} down{dir}", cell.dir().display());
    }

    fn dir_option(&self) -> String {
        self.place.dir.as_ref().map_or_else(String::new, |dir| format!(" --dir {}", dir.display()))
    }
}

/// Checks that etcd answers, and has no database of a cell of this name.
fn need_none(etcd: &EtcdConfig, cell: &str) -> Result<(), Failure> {
    let what = || "using --etcd".to_owned();
    let found = Etcd::new(etcd, cell, Arc::default()).doing(what)?.check();
    match found {
        Err(CellError::Misuse(_)) => Ok(()),
        Err(error) => Err(Failure::new(what(), error)
            .mend("check the endpoints and certificates, then run this again")),
        Ok(()) => {
            Err(Failure::new(what(), format!("it has a database of the cell {cell} already")).mend(
                "join that cell by a code of 'rialto cell invite', or name another with --cell",
            ))
        }
    }
}

/// The command to type for this program: its name where the shell finds it, otherwise its path.
fn typed_name() -> String {
    let Ok(program) = std::env::current_exe() else { return "rialto".to_owned() };
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&paths).map(|dir| dir.join("rialto")).find(|path| path.exists());
    let same = found.and_then(|path| path.canonicalize().ok()).is_some_and(|path| path == program);
    if same { "rialto".to_owned() } else { program.display().to_string() }
}

fn lock(dir: &Path) -> Result<File, Failure> {
    let what = || format!("locking {}", dir.display());
    let file = File::open(dir).doing(what)?;
    let _progress = Progress::start("waiting for another 'rialto up'");
    file.lock().doing(what)?;
    Ok(file)
}

/// Returns true if it had to be started, which makes `new_partitions` anew.
pub(super) fn start_server(cell: &CellDir, new_partitions: &[String]) -> Result<bool, Failure> {
    let pid_file = cell.server_pid_file();
    let answers = || UnixStream::connect(cell.socket()).is_ok();
    if let Some(process) =
        Process::recorded(&pid_file).doing(|| format!("reading {}", pid_file.display()))?
    {
        let end = Instant::now() + SERVER_PATIENCE;
        while !answers() {
            if !process.is_alive() || Instant::now() > end {
                let why = format!("process {} runs but does not answer", process.pid);
                return Err(Failure::new("reaching the server", why)
                    .mend(format!("read {}; 'rialto down' ends it", cell.server_log().display())));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        return Ok(false);
    }
    if pid_file.exists() {
        eprintln!("the server had crashed: starting it again");
    }
    let log = cell.server_log();
    let _progress = Progress::start("starting the server");
    let mut arguments: Vec<&OsStr> =
        vec!["server".as_ref(), "--detached".as_ref(), "--dir".as_ref(), cell.dir().as_ref()];
    let anew = new_partitions.iter().flat_map(|name| ["--new-partition", name]);
    arguments.extend(anew.map(OsStr::new));
    let mut child = daemon::spawn(&arguments, &log).doing(|| "starting the server".to_owned())?;
    daemon::wait_until(&mut child, SERVER_PATIENCE, &log, "the server", answers)?;
    Ok(true)
}

/// Waits until the cell database lists a further server: before that, other servers, and mounts of
/// its machine, refuse it. Continues without waiting if the cell database does not answer.
fn wait_until_listed(cell: &CellDir) {
    let Some(key) = cell.keys().shown().ok().and_then(|shown| shown.key_print()) else { return };
    let Ok(asking) = Asking::connect(Endpoint::Unix(cell.socket())) else { return };
    let is_listed = || {
        let me = asking.me().ok()?;
        let mut servers = asking.servers().ok()?.into_iter();
        servers.find(|one| one.id == me.id && one.keys.contains(&key) && !one.addresses.is_empty())
    };
    let _progress = Progress::start("waiting for the cell to list this server");
    let end = Instant::now() + LISTED_PATIENCE;
    while is_listed().is_none() {
        if Instant::now() > end {
            eprintln!("the cell's database does not list this server yet: see 'rialto doctor'");
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns true if it had to be mounted.
fn ensure_mounted(
    cell: &CellDir,
    at: &Path,
    transport: Option<Transport>,
) -> Result<bool, Failure> {
    let what = || format!("mounting on {}", at.display());
    let process = Process::recorded(&cell.mounts().pid_file(at)).doing(what)?;
    if let Some(mounted) = mounts::at(at).doing(what)?.filter(mounts::Mounted::is_rialto) {
        match (process, mounts::health(at, MOUNT_PATIENCE)) {
            (Some(_), Health::Answers) => return Ok(false),
            (Some(process), Health::Silent) => {
                let why = format!(
                    "{} is mounted there by process {} and does not answer",
                    mounted.source, process.pid
                );
                return Err(Failure::new(what(), why).mend("'rialto doctor' finds causes"));
            }
            (None, Health::Answers) => {
                let why =
                    format!("{} is mounted there, not by this cell's directory", mounted.source);
                return Err(Failure::new(what(), why)
                    .mend("choose another place with --at, or unmount that one"));
            }
            (_, Health::Stale) | (None, Health::Silent) => {
                eprintln!("the mount at {} had died: mounting it again", at.display());
                unmount(&cell.mounts(), at, Way::Lazy, Some(UNMOUNT_PATIENCE))?;
            }
        }
    } else if process.is_some() {
        eprintln!(
            "an earlier mount at {} still has changes for the server: they are sent first",
            at.display()
        );
        match unmount(&cell.mounts(), at, Way::Unused, Some(UNMOUNT_PATIENCE))? {
            UnmountOutcome::Gone | UnmountOutcome::WasNotThere => {}
            UnmountOutcome::MountedElsewhere(by) => {
                return Err(Failure::new(what(), elsewhere(at, &by)).mend("end that process first"));
            }
            UnmountOutcome::StillWorking(pid) => {
                let why = format!(
                    "process {pid} of the earlier mount has not sent all changes to the server"
                );
                return Err(Failure::new(what(), why).mend(
                    "it continues in the background; try again later, or run 'rialto doctor'",
                ));
            }
        }
    }
    let program = std::env::current_exe().doing(what)?;
    let server = format!("unix:{}", cell.socket().display());
    let mut mount = std::process::Command::new(program);
    mount.args(["mount", "--daemon", "--dir"]).arg(cell.dir());
    if let Some(transport) = transport {
        mount.args(["--transport", transport.name()]);
    }
    mount.arg(server).arg(at);
    let status = mount.status().doing(what)?;
    if status.success() { Ok(true) } else { Err(Failure::new(what(), "see the message above")) }
}
