//! A cell's directory: all files that one machine has of a cell.
//!
//! ```text
//! <dir>/
//!   cell.toml      name, partitions, socket, address, and the server of the cell's
//!                  database; written once, meant to be edited
//!   celldb/        the cell's database, unless cell.toml says that another server or etcd has it
//!   keys/          its server's secret keys and certificates (crate keys)
//!   known_cells    fingerprints of other cells' authorities, as they were first seen
//!   vicep/         the partition, unless cell.toml names others
//!   partitions.made  the partitions that a start of the server made or found
//!   server.sock    where local clients of the server's user and root connect
//!   users/server.sock  where all users of the machine connect; of root's server it is elsewhere
//!                  (`users`)
//!   server.pid     the running server
//!   mounts/        for each running mount a pid file and its facts, named after its mount point
//!   cache/         one disk cache for each mount
//!   logs/          logs of daemons
//!   mnt/           the default mount point of `rialto up`
//! ```
//! This file has the places in it, `config` the form of cell.toml, `making` makes a new one,
//! `mounts` has the records of mounts, and `users` the sockets for users.
//!
//! Its place: `--dir`, else `$RIALTO_HOME`, else `$XDG_DATA_HOME/rialto`, else
//! `~/.local/share/rialto`.

mod config;
mod making;
mod mounts;
mod users;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use keys::{AtRest, CellKeys, at_rest_dir};
use server::CellPlace;

pub use self::config::{
    AfsClients, AuditCopies, CellConfig, CertificateFiles, Compress, Evacuates, HealthRules,
    Kerberos, KeyServer,
};
pub use self::making::{Joins, NewCell, PORT_DEFAULT, prepare_cell_dir};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::mounts::mount_point;
pub use self::mounts::{MountRecords, file_name};
pub use self::users::{cells_for_users, users_socket_of};
use crate::failure::{Doing, Failure};

/// Mode of every other directory of the server.
const DIR_MODE: u32 = 0o700;
/// The name of a new cell by default.
pub const NAME_DEFAULT: &str = "localcell";
/// The volume whose root is the root of the tree.
pub const VOLUME: &str = "root.cell";

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
                    socket, users-socket, server, addresses, database, compress, encrypt, clear, \
                    trusted, trusted_root, cell_away_max, certificate, kerberos, audit, at-rest, \
                    etcd and limits",
            )
        })?;
        // The directory itself may be reached through links; the cell's paths are real ones, as the
        // kernel shows mount points.
        let dir = fs::canonicalize(dir).doing(|| format!("finding {}", dir.display()))?;
        Ok(Some(CellDir { dir, config }))
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
        if let Some(etcd) = &self.config.etcd {
            return CellPlace::Etcd(etcd.below(&self.dir));
        }
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
