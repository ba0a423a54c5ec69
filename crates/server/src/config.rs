//! The settings of a server.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use celldb::{CELL_LEVEL_KNOWN, EtcdConfig};
use client::{ClientOptions, Endpoint};
use fabric::tls::ServerTls;
use guard::{Certifier, Network};
use login::{Service, TokenIssuer};
use rx::rxkad::RxkadKeys;
use store::OpenOptions;
use types::Name;

use crate::{OwnKeys, ServerLimits};

/// Where the cell database is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellPlace {
    /// This server has it, in this directory; created if it does not exist.
    Here(PathBuf),
    /// The server at this endpoint has it.
    At(Endpoint),
    /// etcd has it, and this server is one of those that read and change it.
    Etcd(EtcdConfig),
}

impl CellPlace {
    /// Its name in reports.
    pub fn engine(&self) -> &'static str {
        match self {
            CellPlace::Here(_) => "embedded",
            CellPlace::At(_) => "another server",
            CellPlace::Etcd(_) => "etcd",
        }
    }
}

/// The ports for AFS's own clients.
#[derive(Clone, Debug)]
pub struct AfsConfig {
    /// The address; the ports are AFS's.
    pub listen: Ipv4Addr,
    /// The keys of the cell's service in AFS (`afs/CELL`), which seal its tickets.
    pub keys: Arc<RxkadKeys>,
    /// The Kerberos realm whose principals are the cell's users.
    pub realm: String,
    /// The database servers of a cell of this name that has OpenAFS's databases; none: there is no
    /// such cell.
    pub databases: Vec<Ipv4Addr>,
}

/// Settings of a [`crate::Server`].
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The partitions, which must exist (see `store::Partition::create`): the administrators' name
    /// and the path of each. The first has the sessions too, so it stays the first.
    pub partitions: Vec<(String, PathBuf)>,
    /// Where to listen on this machine. Only the server's own user and the superuser can connect
    /// there.
    pub unix_socket: Option<PathBuf>,
    /// Where to listen for users of this machine: all can connect there, each as the user that the
    /// kernel reports and no other.
    pub users_socket: Option<PathBuf>,
    /// Where to listen in the network, as `host:port`.
    pub tcp_listen: Option<String>,
    /// Its certificate for TCP, and the authorities that it accepts; `None`: clear text.
    pub tls: Option<Arc<ServerTls>>,
    /// The keys of the certificates that it shows to other servers, which it enters in the cell
    /// database; `None`: it shows none.
    pub own_keys: Option<Arc<OwnKeys>>,
    /// Does it accept clear text too where it has TLS?
    pub clear: bool,
    /// Issues and verifies tokens; `None`: none are accepted, so only trusted connections can name
    /// callers.
    pub mint: Option<Arc<TokenIssuer>>,
    /// Verifies Kerberos tickets; `None`: none are accepted.
    pub kerberos: Option<Arc<Service>>,
    /// Lets other servers into the cell; `None`: this one does not.
    pub certifier: Option<Arc<dyn Certifier>>,
    /// Addresses of trusted hosts, which may name callers, also without TLS. A connection from
    /// there is trusted if its port is reserved (below 1024), or if it shows a host certificate.
    pub trusted: Vec<Network>,
    /// Is uid 0 of such a host the superuser of files? Otherwise it is *nobody*.
    pub trusted_root: bool,
    /// Addresses of which every process counts as the server's own user. For tests alone, and
    /// nothing of `cell.toml` sets it: see [`ServerConfig::trust_this_machine`].
    #[doc(hidden)]
    pub owners: Vec<Network>,
    /// The directory of the audit log ([`crate::audit`]); `None`: there is none.
    pub audit: Option<PathBuf>,
    /// Where copies of the audit log go; `None`: nowhere.
    pub audit_forward: Option<crate::ForwardTo>,
    /// The file of the cell's fences and administrators, for a start while the server of the cell
    /// database is away; `None`: they are not stored.
    pub rules: Option<PathBuf>,
    /// Cached records of principals are valid for this time while the server of the cell database
    /// is silent; then their calls are refused with `CellAway`.
    pub cell_away_max: Duration,
    /// The cell's name, for display.
    pub cell_name: Option<String>,
    /// The server's name in its cell; `None`: that of its machine.
    pub name: Option<String>,
    /// Where others reach it; empty: where it listens, which for a wildcard is every address of the
    /// machine but its loopback.
    pub addresses: Vec<SocketAddr>,
    /// Where the cell database is; `None`: there is none, so this server knows no other.
    pub cell: Option<CellPlace>,
    /// The highest level of a cell that its program knows; tests name an older one.
    pub cell_level_known: u32,
    /// Where AFS's own clients are served; `None`: nowhere.
    pub afs: Option<AfsConfig>,
    /// Volumes that it enters there by itself, if the database has none with their names: the root
    /// of a new cell's tree.
    pub enters: Vec<Name>,
    /// How connections are maintained, and made to other servers.
    pub options: ClientOptions,
    /// Threads that serve connections; 0: one for each processor, at most [`WORKERS_MAX`].
    pub workers: usize,
    /// Threads for calls that may wait for the disk.
    pub pool_threads: usize,
    /// How each partition is opened.
    pub store: OpenOptions,
    /// How long promises and locks outlive the last renewal of a session.
    pub lease: Duration,
    /// Added before the server ends a session.
    pub lease_grace: Duration,
    /// Connections that may be open and not attached, for each worker; of more the oldest are
    /// closed.
    pub unbound_max: usize,
    /// A client that reads nothing for this time is cut off; one of *nobody* after a fifth of it.
    pub slow_reader: Duration,
    /// The limits of each session, of each host and of all together.
    pub limits: ServerLimits,
}

/// More threads than this only wake each other.
pub const WORKERS_MAX: usize = 8;
/// Disks serve a few requests at a time; more threads only queue in the kernel instead of here.
const POOL_THREADS: usize = 8;
/// A burst of a thousand clients that come back at once, with room.
const UNBOUND_MAX: usize = 2048;
/// Longer than any pause of a healthy client; shorter than users wait.
const SLOW_READER: Duration = Duration::from_secs(30);

impl ServerConfig {
    /// The usual settings for one partition, listening nowhere yet.
    pub fn new(partition: impl Into<PathBuf>) -> Self {
        ServerConfig {
            partitions: vec![("/vicepa".to_owned(), partition.into())],
            unix_socket: None,
            users_socket: None,
            tcp_listen: None,
            tls: None,
            own_keys: None,
            clear: false,
            mint: None,
            kerberos: None,
            certifier: None,
            trusted: Vec::new(),
            trusted_root: false,
            owners: Vec::new(),
            audit: None,
            audit_forward: None,
            rules: None,
            cell_away_max: celldb::AWAY_MAX,
            cell_name: None,
            name: None,
            addresses: Vec::new(),
            cell: None,
            cell_level_known: CELL_LEVEL_KNOWN,
            afs: None,
            enters: Vec::new(),
            options: ClientOptions::default(),
            workers: 0,
            pool_threads: POOL_THREADS,
            store: OpenOptions::default(),
            lease: types::limits::LEASE,
            lease_grace: types::limits::LEASE_GRACE,
            unbound_max: UNBOUND_MAX,
            slow_reader: SLOW_READER,
            limits: ServerLimits::default(),
        }
    }

    /// Every process that connects from this machine's loopback addresses counts as the server's
    /// own user, superuser and server of the cell included. For tests.
    pub fn trust_this_machine(&mut self) {
        self.owners.push(Network::of(Ipv4Addr::LOCALHOST.into(), 8));
        self.owners.push(Network::of(Ipv6Addr::LOCALHOST.into(), 128));
    }

    /// The file that says that this server is no longer one of its cell.
    pub(crate) fn expelled_file(&self) -> Option<PathBuf> {
        self.rules.as_ref().map(|rules| rules.with_file_name("expelled"))
    }

    /// Was this server, with the key that it has now, no longer one of its cell when it stopped?
    /// Then it serves nothing in the network before the database lists its key.
    pub(crate) fn was_expelled(&self) -> bool {
        let Some(keys) = self.own_keys.as_ref().filter(|_| !self.has_database()) else {
            return false;
        };
        let key = keys.wanted().first().map(ToString::to_string);
        let noted = self.expelled_file().and_then(|file| std::fs::read_to_string(file).ok());
        let was_expelled = noted.is_some() && noted == key;
        if was_expelled {
            keys.expelled();
        }
        was_expelled
    }

    /// Is the cell's database in a directory of this server?
    pub(crate) fn has_database(&self) -> bool {
        matches!(self.cell, Some(CellPlace::Here(_)))
    }

    pub(crate) fn worker_count(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        if self.workers == 0 { processors().min(WORKERS_MAX) } else { self.workers }
    }
}
