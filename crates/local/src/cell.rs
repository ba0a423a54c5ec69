//! A cell's directory: all files that one machine has of a cell.
//!
//! ```text
//! <dir>/
//!   cell.toml      name, partitions, socket, address, and the server of the cell's
//!                  database; written once, meant to be edited
//!   celldb/        the cell's database, unless cell.toml says that another server has it
//!   keys/          its server's secret keys and certificates (crate keys)
//!   known_cells    fingerprints of other cells' authorities, as they were first seen
//!   vicep/         the partition, unless cell.toml names others
//!   server.sock    where local clients connect
//!   server.pid     the running server
//!   mounts/        for each running mount a pid file and its facts, named after its mount point
//!   cache/         one disk cache for each mount
//!   logs/          logs of daemons
//!   mnt/           the default mount point of `rialto up`
//! ```
//! Its place: `--dir`, else `$RIALTO_HOME`, else `$XDG_DATA_HOME/rialto`, else
//! `~/.local/share/rialto`.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::Args;
use guard::Network;
use keys::{AtRest, CellKeys, at_rest_dir};
use serde::{Deserialize, Serialize};
use server::CellPlace;

use crate::failure::{Doing, Failure};

/// Mode of the cell's own directory.
const CELL_DIR_MODE: u32 = 0o711;
/// Mode of every other directory of the server.
const DIR_MODE: u32 = 0o700;
/// The name of a new cell by default.
pub const NAME_DEFAULT: &str = "localcell";
/// The volume whose root is the root of the tree.
pub const VOLUME: &str = "root.cell";
/// The first TCP port of those that new cells choose from.
pub const PORT_DEFAULT: u16 = 7620;
/// Count of those ports; all lie below those that Linux gives to outgoing connections.
const PORTS: u16 = 2000;
/// Bytes of a cell's name: the limit of a DNS domain.
const CELL_NAME_BYTES_MAX: usize = 253;
/// Bytes of a Unix socket's path: `sun_path` has 108, one of them the closing NUL.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Requests clear text through the environment, for scripts that start many cells.
const CLEAR_VARIABLE: &str = "RIALTO_CLEAR";

/// Whether the environment requests clear text.
pub fn clear_by_environment() -> bool {
    std::env::var_os(CLEAR_VARIABLE).is_some_and(|value| !value.is_empty() && value != "0")
}

/// The options of every command about a cell.
#[derive(Args, Debug, Clone)]
pub struct Where {
    /// The cell's directory [default: $RIALTO_HOME, or rialto below $XDG_DATA_HOME or
    /// ~/.local/share]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Connect to other machines in clear text, if their servers allow it ('clear' in cell.toml); a
    /// new cell's server does [default: TLS, unless $RIALTO_CLEAR is set]
    #[arg(long)]
    pub clear: bool,
}

impl Where {
    /// The directory, as an absolute path, whether it exists or not.
    ///
    /// # Errors
    /// If no directory is named and no environment variable names one, or the current directory is
    /// unknown.
    pub fn path(&self) -> Result<PathBuf, Failure> {
        let path = match &self.dir {
            Some(dir) => dir.clone(),
            None => default_dir()?,
        };
        std::path::absolute(&path).doing(|| format!("finding {}", path.display()))
    }

    /// Whether clear text is requested.
    pub fn is_clear(&self) -> bool {
        self.clear || clear_by_environment()
    }

    /// The cell in the directory.
    ///
    /// # Errors
    /// If the directory has no cell, or its `cell.toml` cannot be used.
    pub fn cell(&self) -> Result<CellDir, Failure> {
        let path = self.path()?;
        CellDir::find(&path)?.ok_or_else(|| {
            Failure::new("finding the cell", format!("{} holds none", path.display()))
                .mend("make one with 'rialto up', or name its directory with --dir")
                .nothing_there()
        })
    }
}

fn default_dir() -> Result<PathBuf, Failure> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(home) = set("RIALTO_HOME") {
        return Ok(home);
    }
    if let Some(data) = set("XDG_DATA_HOME").filter(|data| data.is_absolute()) {
        return Ok(data.join("rialto"));
    }
    set("HOME").map(|home| home.join(".local/share/rialto")).ok_or_else(|| {
        Failure::new("finding the cell's directory", "neither RIALTO_HOME nor HOME is set")
            .mend("name it with --dir")
    })
}

/// The content of `cell.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellConfig {
    /// The cell's name, which clients compare.
    pub name: String,
    /// Where the server listens for TCP. `None`: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// The only partition, relative to the cell's directory or absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<PathBuf>,
    /// Instead of `partition`: several. The first has the sessions and the root of the tree, so it
    /// stays the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<PathBuf>,
    /// The Unix socket, relative or absolute as well.
    pub socket: PathBuf,
    /// The server's name in its cell; `None`: the machine's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Addresses at which others reach this server; empty: where it listens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<SocketAddr>,
    /// The server that has the cell database, as `HOST:PORT`; `None`: this one has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// How many seconds cached identities of users are valid while the database does not answer;
    /// after that users are refused [default: 600].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell_away_max: Option<u32>,
    /// Whether the server compresses snapshots and copies on its partitions, where the file system
    /// below does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compress: Option<Compress>,
    /// Whether bodies of new volumes are encrypted on the disk, with keys of `keys/at-rest`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encrypt: bool,
    /// Whether the server accepts clear text from clients that request it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clear: bool,
    /// Trusted hosts, as networks (`10.1.0.0/16`): a connection from there is trusted from a
    /// reserved port (below 1024), or with a host certificate. Users of other hosts log in.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "networks")]
    pub trusted: Vec<Network>,
    /// Whether root of a trusted host is root of the cell's files; otherwise it is *nobody*.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trusted_root: bool,
    /// Used instead of a certificate by the cell's own authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateFiles>,
    /// Logins with Kerberos tickets; `None`: not accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kerberos: Option<Kerberos>,
    /// Where copies of the audit log are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditCopies>,
    /// The source of keys of encrypted volumes, instead of `keys/at-rest`.
    #[serde(default, rename = "at-rest", skip_serializing_if = "Option::is_none")]
    pub at_rest: Option<KeyServer>,
    /// Limits of each session, each host and the whole server, where they differ from the defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<server::ServerLimits>,
}

/// Forwarding of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditCopies {
    /// `/dev/log`, or another datagram socket of this machine, or `udp:HOST:PORT`.
    pub forward: server::ForwardTo,
}

/// A key server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyServer {
    /// Run with `newest` or the number of a key as argument; prints `NUMBER HEX`: the key's number
    /// and 64 hexadecimal digits.
    pub command: Vec<String>,
}

/// The cell's service in a Kerberos realm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kerberos {
    /// The keys of `rialto/CELL` (or `afs/CELL`), as `kadmin ktadd` writes them. Relative to the
    /// cell's directory, or absolute.
    pub keytab: PathBuf,
    /// The realm whose users are the cell's, by the same name; others are `user@realm` [default:
    /// the cell's name in capitals].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realm: Option<String>,
    /// Whether a user without a principal is created at the first login.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub create: bool,
}

/// A given certificate. Paths are relative to the cell's directory, or absolute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateFiles {
    /// The certificate followed by those of its authorities, in PEM.
    pub chain: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
    /// The authority that signed it. Another certificate of this authority is a host certificate,
    /// and makes no server.
    pub authority: PathBuf,
}

/// Compression of snapshots and copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compress {
    /// Not at all.
    None,
    /// Zstandard.
    Zstd,
}

/// Limit of `cell_away_max`: a revocation that does not reach a server must take effect within this
/// time.
const CELL_AWAY_SECS_MAX: u32 = 86_400;

/// Settings of a new cell.
#[derive(Clone, Debug, Default)]
pub struct NewCell {
    /// Where its server listens for other machines. Port 0 means a free one from [`PORT_DEFAULT`]
    /// on, chosen by the directory's name.
    pub listen: Option<SocketAddr>,
    /// The server accepts clear text too.
    pub clear: bool,
    /// Its volumes are encrypted on the disk.
    pub encrypt: bool,
    /// The trusted hosts.
    pub trusted: Vec<Network>,
    /// Root of trusted hosts is root of the cell's files.
    pub trusted_root: bool,
}

/// (De)serializes networks as text.
mod networks {
    use guard::Network;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// # Errors
    /// The serializer's error.
    pub fn serialize<S: Serializer>(networks: &[Network], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(networks.iter().map(ToString::to_string))
    }

    /// # Errors
    /// Text that is no network.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Network>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        texts
            .iter()
            .map(|text| text.parse().map_err(|_| D::Error::custom(format!("{text} is no network"))))
            .collect()
    }
}

impl CellConfig {
    /// Parses `cell.toml`; an error is a message for people.
    pub(crate) fn parse(text: &str) -> Result<CellConfig, String> {
        let config: CellConfig =
            toml::from_str(text).map_err(|error| error.to_string().trim().replace('\n', " "))?;
        check_name(&config.name)?;
        check_partitions(&config)?;
        config.database.as_deref().map_or(Ok(()), check_database)?;
        if config.cell_away_max.is_some_and(|secs| !(1..=CELL_AWAY_SECS_MAX).contains(&secs)) {
            return Err(format!(
                "cell_away_max is in seconds, from 1 to {CELL_AWAY_SECS_MAX} (a day)"
            ));
        }
        if config.at_rest.as_ref().is_some_and(|server| server.command.is_empty()) {
            return Err("[at-rest]: command is empty".to_owned());
        }
        config.limits.map_or(Ok(()), |limits| limits.check())?;
        Ok(config)
    }

    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.partition.iter().chain(&self.partitions)
    }

    /// Returns the text for `cell.toml`.
    pub(crate) fn text(&self) -> String {
        toml::to_string(self).expect("strings, paths and an address are valid TOML")
    }
}

/// Checks the cell's name, which must have the form of a DNS domain: tables and logs show it, and
/// paths contain it.
fn check_name(name: &str) -> Result<(), String> {
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if (1..=CELL_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(letters) {
        return Ok(());
    }
    Err(format!(
        "{name:?} cannot name a cell: a name has 1 to {CELL_NAME_BYTES_MAX} letters, digits, \
            dots, hyphens and underscores"
    ))
}

fn check_database(text: &str) -> Result<(), String> {
    crate::ask::endpoint(text).map(drop).map_err(|why| format!("database = {text:?}: {why}"))
}

fn check_partitions(config: &CellConfig) -> Result<(), String> {
    if config.partition.is_some() != config.partitions.is_empty() {
        return Err("give either partition = \"DIR\" or partitions = [\"DIR\", ...]".to_owned());
    }
    let paths: Vec<_> = config.paths().collect();
    match paths.iter().enumerate().find(|(at, path)| paths[..*at].contains(path)) {
        Some((_, path)) => Err(format!("the partition {} is named twice", path.display())),
        None => Ok(()),
    }
}

/// Settings of a further server of an existing cell.
#[derive(Clone, Debug)]
pub struct Joins {
    /// The server that has the cell database, as `HOST:PORT`.
    pub database: String,
    /// The new server's name.
    pub server: String,
    /// The trusted hosts.
    pub trusted: Vec<Network>,
    /// Root of trusted hosts is root of the cell's files.
    pub trusted_root: bool,
}

/// The directory of an existing cell, and the content of its `cell.toml`.
#[derive(Clone, Debug)]
pub struct CellDir {
    dir: PathBuf,
    /// The content of `cell.toml`.
    pub config: CellConfig,
}

impl CellDir {
    /// The cell in `dir`, if there is one.
    ///
    /// # Errors
    /// If `cell.toml` cannot be read or used.
    pub fn find(dir: &Path) -> Result<Option<CellDir>, Failure> {
        let file = dir.join("cell.toml");
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::new(format!("reading {}", file.display()), error)),
        };
        let config = CellConfig::parse(&text).map_err(|why| {
            Failure::new(format!("reading {}", file.display()), why).mend(
                "mend that line; the file has name, listen, partition (or partitions), \
                    socket, server, addresses, database, compress, encrypt, clear, trusted, \
                    trusted_root, cell_away_max, certificate, kerberos, audit, at-rest and limits",
            )
        })?;
        // The directory itself may be reached through links; the cell's paths are real ones, as the
        // kernel shows mount points.
        let dir = fs::canonicalize(dir).doing(|| format!("finding {}", dir.display()))?;
        Ok(Some(CellDir { dir, config }))
    }

    /// Makes a new cell in `dir`.
    ///
    /// # Errors
    /// If the name or an address cannot be used, or the directory cannot be written.
    pub fn create(dir: &Path, name: &str, new: NewCell) -> Result<CellDir, Failure> {
        Self::make(dir, name, new, None)
    }

    /// Makes the directory of a further server of the cell `name`, as [`CellDir::create`] does.
    ///
    /// # Errors
    /// As [`CellDir::create`].
    pub fn join(
        dir: &Path,
        name: &str,
        listen: SocketAddr,
        joins: Joins,
    ) -> Result<CellDir, Failure> {
        let trusted = joins.trusted.clone();
        let new = NewCell {
            listen: Some(listen),
            trusted,
            trusted_root: joins.trusted_root,
            ..NewCell::default()
        };
        Self::make(dir, name, new, Some(joins))
    }

    fn make(
        dir: &Path,
        name: &str,
        new: NewCell,
        joins: Option<Joins>,
    ) -> Result<CellDir, Failure> {
        check_name(name).map_err(|why| {
            Failure::new("naming the cell", why).mend("choose another name with --cell")
        })?;
        let make = |path: &Path, mode| {
            let made = fs::DirBuilder::new().recursive(true).mode(mode).create(path);
            made.doing(|| format!("making {}", path.display()))
        };
        if let Some(parent) = dir.parent() {
            make(parent, 0o755)?;
        }
        make(dir, CELL_DIR_MODE)?;
        let dir = fs::canonicalize(dir).doing(|| format!("finding {}", dir.display()))?;
        for (below, mode) in
            [("logs", DIR_MODE), ("mounts", DIR_MODE), ("cache", DIR_MODE), ("mnt", 0o755)]
        {
            make(&dir.join(below), mode)?;
        }
        let choose = |listen: SocketAddr| {
            if listen.port() == 0 { free_address(listen.ip(), &dir) } else { Ok(listen) }
        };
        let listen = new.listen.map(choose).transpose()?;
        let config = CellConfig {
            name: name.to_owned(),
            listen,
            partition: Some("vicep".into()),
            partitions: Vec::new(),
            socket: socket_place(&dir)?,
            server: joins.as_ref().map(|joins| joins.server.clone()),
            addresses: Vec::new(),
            database: joins.map(|joins| joins.database),
            cell_away_max: None,
            compress: None,
            encrypt: new.encrypt,
            clear: new.clear,
            trusted: new.trusted,
            trusted_root: new.trusted_root,
            certificate: None,
            kerberos: None,
            audit: None,
            at_rest: None,
            limits: None,
        };
        let text = format!(
            "# A Rialto cell. Paths are relative to this directory; the server reads this when it \
             starts.\n\
             # listen = \"ADDRESS:PORT\" serves other machines, over TLS with the certificate in \
             keys/; clear = true allows clear text too.\n\
             # trusted = [\"10.1.0.0/16\"] trusts hosts to name their users, if the connection \
             comes from a port below 1024 or shows a host certificate; users of all\n\
             # others log in. trusted_root = true makes root of such hosts root of the cell's \
             files; without it root is 'nobody'.\n\
             # [kerberos] with keytab = \"FILE\" lets users log in with tickets for rialto/CELL; \
             realm = \"REALM\" if its name is not that of the cell.\n\
             # [audit] with forward = \"/dev/log\" (or \"udp:HOST:PORT\") copies the audit log to \
             a place where the owner of this directory cannot change it.\n\
             # partitions = [\"vicep\", \"/vicepb\"] instead of partition adds others behind the \
             first.\n\
             # cell_away_max = 600 is how many seconds users are served from memory while the \
             server of the cell's database does not answer.\n\
             # compress = \"zstd\" compresses snapshots and copies, where the file system below \
             does not.\n\
             # encrypt = true encrypts the content of files of new volumes on the disk; without \
             keys/at-rest it is unreadable for ever.\n\
             # [at-rest] with command = [\"/usr/local/bin/get-key\"] gets those keys from a key \
             server instead: run with newest, or a key's number, it prints\n\
             # that number and 64 hexadecimal digits.\n\
             # server = \"NAME\" is this server's name in the cell, if not that of its machine; \
             addresses = [\"ADDRESS:PORT\"] is where\n\
             # others reach it, if not where it listens; database = \"HOST:PORT\" is the server \
             that has the cell's database.\n{}",
            config.text()
        );
        let draft = dir.join("cell.toml.new");
        let file = dir.join("cell.toml");
        // A draft left by a crash may have another mode.
        let _ = fs::remove_file(&draft);
        let mut options = fs::OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(0o600).open(&draft);
        opened
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&draft, &file))
            .doing(|| format!("writing {}", file.display()))?;
        Ok(CellDir { dir, config })
    }

    /// The key source of encrypted volumes.
    pub fn at_rest(&self) -> AtRest {
        match &self.config.at_rest {
            Some(server) => AtRest::by_command(server.command.clone()),
            None => AtRest::new(at_rest_dir(&self.dir)),
        }
    }

    /// The endpoint to mount from on this machine, as `rialto mount` takes it.
    pub fn endpoint(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    /// The endpoint for people.
    pub fn reached_at(&self) -> String {
        match self.config.listen {
            Some(listen) => format!("{listen} and {}", self.endpoint()),
            None => self.endpoint(),
        }
    }

    /// The cell's directory, as a real path.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directories of the partitions, in their order.
    pub fn partitions(&self) -> Vec<PathBuf> {
        self.config.paths().map(|path| self.dir.join(path)).collect()
    }

    /// The administrators' names of the partitions, in their order: `/` and the directory's name,
    /// if those are unique.
    pub fn partition_names(&self) -> Vec<String> {
        let paths = self.partitions();
        let short =
            |path: &PathBuf| path.file_name().map(|name| format!("/{}", name.to_string_lossy()));
        let same =
            |name: &Option<String>| paths.iter().filter(|path| short(path) == *name).count() > 1;
        let name = |path: &PathBuf| match short(path) {
            name if same(&name) => path.display().to_string(),
            name => name.unwrap_or_else(|| path.display().to_string()),
        };
        paths.iter().map(name).collect()
    }

    /// The Unix socket for local clients.
    pub fn socket(&self) -> PathBuf {
        self.dir.join(&self.config.socket)
    }

    /// Where the cell's database is.
    pub fn database(&self) -> CellPlace {
        let elsewhere =
            self.config.database.as_deref().and_then(|text| crate::ask::endpoint(text).ok());
        elsewhere.map_or_else(|| CellPlace::Here(self.dir.join("celldb")), CellPlace::At)
    }

    /// The server's secret keys and certificates.
    pub fn keys(&self) -> CellKeys {
        CellKeys::of(self.dir.join("keys"))
    }

    /// The running server's pid file.
    pub fn server_pid_file(&self) -> PathBuf {
        self.dir.join("server.pid")
    }

    /// The server's log.
    pub fn server_log(&self) -> PathBuf {
        self.logs().join("server.log")
    }

    /// The directory of logs.
    pub fn logs(&self) -> PathBuf {
        self.dir.join("logs")
    }

    /// The default mount point of `up`.
    pub fn mount_point(&self) -> PathBuf {
        self.dir.join("mnt")
    }

    /// The records of this machine's mounts.
    pub fn mounts(&self) -> MountRecords {
        MountRecords::of(&self.dir)
    }
}

/// Pid files, caches and logs of mounts. A machine that only mounts other machines' cells has these
/// and no cell.
#[derive(Clone, Debug)]
pub struct MountRecords {
    dir: PathBuf,
}

impl MountRecords {
    /// The records below `dir`.
    pub fn of(dir: &Path) -> Self {
        MountRecords { dir: dir.to_owned() }
    }

    /// Makes the directories of the records.
    ///
    /// # Errors
    /// If a directory cannot be made.
    pub fn prepare(&self) -> Result<(), Failure> {
        for below in ["logs", "mounts", "cache"] {
            let path = self.dir.join(below);
            fs::create_dir_all(&self.dir).doing(|| format!("making {}", self.dir.display()))?;
            let made = fs::DirBuilder::new().recursive(true).mode(DIR_MODE).create(&path);
            made.doing(|| format!("making {}", path.display()))?;
        }
        Ok(())
    }

    /// The pid file of the mount at `at`.
    pub fn pid_file(&self, at: &Path) -> PathBuf {
        self.dir.join("mounts").join(format!("{}.pid", file_name(at)))
    }

    /// The facts that the mount at `at` publishes while it runs.
    pub fn facts_file(&self, at: &Path) -> PathBuf {
        self.dir.join("mounts").join(format!("{}.json", file_name(at)))
    }

    /// The disk cache of the mount at `at`.
    pub fn cache(&self, at: &Path) -> PathBuf {
        self.dir.join("cache").join(file_name(at))
    }

    /// The log of the mount at `at`.
    pub fn log(&self, at: &Path) -> PathBuf {
        self.dir.join("logs").join(format!("mount{}.log", file_name(at)))
    }

    /// The mount points that have a pid file, with or without a process.
    ///
    /// # Errors
    /// If the directory of pid files cannot be read.
    pub fn recorded(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(self.dir.join("mounts")) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut points: Vec<PathBuf> = entries
            .flatten()
            .filter_map(|entry| {
                Some(mount_point(entry.file_name().to_str()?.strip_suffix(".pid")?))
            })
            .collect();
        points.sort();
        Ok(points)
    }
}

/// Encodes a mount point as a file name that can be decoded: `-` for `/`, and `%` before ambiguous
/// characters.
pub fn file_name(at: &Path) -> String {
    let text = at.as_os_str().as_bytes();
    text.iter().fold(String::new(), |mut name, byte| {
        match byte {
            b'/' => name.push('-'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' => name.push(char::from(*byte)),
            other => name.push_str(&format!("%{other:02x}")),
        }
        name
    })
}

pub(crate) fn mount_point(name: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let escaped = (first == '%')
            .then(|| rest.get(1..3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (first, escaped) {
            (_, Some(byte)) => bytes.push(byte),
            ('-', None) => bytes.push(b'/'),
            (other, None) => bytes.extend(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        rest = &rest[if escaped.is_some() { 3 } else { first.len_utf8() }..];
    }
    PathBuf::from(<std::ffi::OsStr as OsStrExt>::from_bytes(&bytes))
}

/// `server.sock` in the cell, or below the run-time directory where the cell's path is too long for
/// a socket.
fn socket_place(dir: &Path) -> Result<PathBuf, Failure> {
    let fits = |path: &Path| path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX;
    if fits(&dir.join("server.sock")) {
        return Ok("server.sock".into());
    }
    let run =
        std::env::var_os("XDG_RUNTIME_DIR").map_or_else(|| PathBuf::from("/run"), PathBuf::from);
    let place = run.join(format!(
        "rialto-{:x}.sock",
        dir.as_os_str()
            .as_bytes()
            .iter()
            .fold(0u64, |sum, byte| { sum.wrapping_mul(31).wrapping_add(u64::from(*byte)) })
    ));
    let writable = fs::metadata(&run).is_ok_and(|meta| meta.permissions().mode() & 0o222 != 0);
    if fits(&place) && writable {
        return Ok(place);
    }
    Err(Failure::new(
        format!("placing the server's socket in {}", dir.display()),
        format!("a socket's path may have {SOCKET_PATH_BYTES_MAX} bytes"),
    )
    .mend("choose a shorter directory with --dir"))
}

/// A cell has its port also while it is down, so the cells of one machine begin their searches at
/// different ports.
fn free_address(at: IpAddr, dir: &Path) -> Result<SocketAddr, Failure> {
    let mut place = DefaultHasher::new();
    dir.hash(&mut place);
    let first = (place.finish() % u64::from(PORTS)) as u16;
    let address = |step| SocketAddr::new(at, PORT_DEFAULT + (first + step) % PORTS);
    (0..PORTS).map(address).find(|address| TcpListener::bind(address).is_ok()).ok_or_else(|| {
        let last = PORT_DEFAULT + PORTS - 1;
        Failure::new("choosing a port", format!("{PORT_DEFAULT} to {last} are all taken"))
            .mend("name a free one with --listen ADDRESS:PORT")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(listen: SocketAddr) -> NewCell {
        NewCell { listen: Some(listen), ..NewCell::default() }
    }

    #[test]
    fn cells_that_are_down_do_not_wait_for_the_same_port() {
        let dir = tempfile::tempdir().unwrap();
        let any = |name: &str| {
            let made =
                CellDir::create(&dir.path().join(name), "x", on("127.0.0.1:0".parse().unwrap()))
                    .unwrap();
            made.config.listen.unwrap().port()
        };
        let ports: std::collections::HashSet<u16> =
            ["a", "b", "c", "d", "e", "f"].into_iter().map(any).collect();
        assert!(ports.len() > 1, "{ports:?}");
    }

    #[test]
    fn m13_where_copies_of_the_audit_log_go_is_checked() {
        let parse = |audit: &str| {
            CellConfig::parse(&format!("name = \"x\"\nsocket = \"s\"\npartition = \"p\"\n{audit}"))
        };
        for good in ["/dev/log", "udp:logs.example.org:514"] {
            let config = parse(&format!("[audit]\nforward = \"{good}\"\n")).unwrap();
            assert_eq!(
                config.audit.as_ref().map(|audit| audit.forward.to_string()).as_deref(),
                Some(good)
            );
            assert_eq!(
                CellConfig::parse(&config.text()),
                Ok(config),
                "written again it is the same"
            );
        }
        for bad in
            ["forward = \"dev/log\"", "forward = \"udp:host\"", "forwards = \"/dev/log\"", ""]
        {
            assert!(parse(&format!("[audit]\n{bad}\n")).is_err(), "{bad}");
        }
        assert_eq!(parse("").unwrap().audit, None);
    }

    #[test]
    fn a_cell_is_made_once_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("cell");
        assert!(CellDir::find(&place).unwrap().is_none());
        let listen = "127.0.0.1:7000".parse().unwrap();
        let made = CellDir::create(&place, "some.cell", on(listen)).unwrap();
        let found = CellDir::find(&place).unwrap().unwrap();
        assert_eq!(found.config, made.config);
        assert_eq!((found.config.name.as_str(), found.config.listen), ("some.cell", Some(listen)));
        let local =
            CellDir::create(&dir.path().join("local"), "some.cell", NewCell::default()).unwrap();
        assert_eq!(
            CellDir::find(local.dir()).unwrap().unwrap().config.listen,
            None,
            "not to be reached unless asked for"
        );
        assert!(found.socket().ends_with("cell/server.sock"));
    }

    #[test]
    fn a_cell_file_with_a_mistake_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cell.toml"), "name = \"x\"\nlisten = 5\n").unwrap();
        let message = CellDir::find(dir.path()).unwrap_err().to_string();
        assert!(message.contains("cell.toml") && message.contains("mend that line"), "{message}");
        let message = CellDir::create(&dir.path().join("new"), "two\nlines", NewCell::default())
            .unwrap_err()
            .to_string();
        assert!(message.contains("cannot name a cell") && message.contains("--cell"), "{message}");
        assert!(!dir.path().join("new").exists());
    }

    #[test]
    fn mount_points_survive_being_file_names() {
        for path in ["/", "/mnt/a-b", "/x y/%41/\u{e9}", "/mnt/-"] {
            let path = Path::new(path);
            assert_eq!(mount_point(&file_name(path)), path, "{}", file_name(path));
            assert!(!file_name(path).contains('/'));
        }
    }

    #[test]
    fn a_long_path_does_not_become_a_socket_that_cannot_be_bound() {
        let dir = Path::new("/tmp").join("x".repeat(120));
        if let Ok(place) = socket_place(&dir) {
            assert!(dir.join(place).as_os_str().len() <= SOCKET_PATH_BYTES_MAX);
        }
    }
}
