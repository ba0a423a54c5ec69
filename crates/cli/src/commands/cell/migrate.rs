//! `rialto cell migrate`: moves the cell's database to etcd, or back to this server.
//!
//! The server does not run meanwhile. Others go on as they do whenever the database is away.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use celldb::{CellError, EtcdConfig, Migrated, Migration};
use clap::ValueEnum;
use local::cell::CellDir;
use local::daemon::PidFile;
use local::failure::{Doing, Failure};
use local::{privacy, show};
use serde_json::json;
use types::Revision;

use crate::etcd_place::{EtcdOptions, write_config};

pub(super) const MIGRATE_HELP: &str = "\
EXAMPLES
    rialto cell migrate --to etcd --endpoints db1:2379,db2:2379,db3:2379 \\
        --cacert /etc/rialto/etcd-ca.pem --cert /etc/rialto/etcd.pem \\
        --key /etc/rialto/etcd-key.pem --dry-run
    rialto cell migrate --to embedded

Run it where the database is, or shall be, while the server there does not run. Other
servers serve known users and volumes meanwhile. Afterwards cell.toml here says where the
database is; start the server again.

To etcd: servers whose cell.toml names this one in 'database' go on asking it. Give them the
part [etcd] in place of that line, one after another, so that they do not depend on it.

To embedded: changes are refused everywhere from the first moment on. On every other server
replace the part [etcd] by database = \"HOST:PORT\" of this one, and restart it.

The old place refuses changes for ever before the new one is used. An interrupted migration
is finished by the same command, or undone by the one in the other direction as long as the
old place has not been given up.";

/// The engine that shall have the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::commands) enum MigrateTo {
    /// The members of an etcd.
    Etcd,
    /// The directory of this server.
    Embedded,
}

/// The options of `cell migrate`.
#[derive(clap::Args, Debug)]
pub(super) struct MigrateOptions {
    /// Which engine shall have the database.
    #[arg(long)]
    to: MigrateTo,
    /// The members of etcd [default: those in cell.toml].
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    endpoints: Vec<String>,
    /// The certificates of the authority that signed etcd's, in PEM.
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// This server's certificate for etcd, in PEM.
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Its private key, in PEM.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The user in etcd, where it has users.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The file with that user's password.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Replace a database of this cell that etcd has: after a restore.
    #[arg(long)]
    replace: bool,
    /// Only say whether it could be done, and how many records there are.
    #[arg(long, short = 'n')]
    dry_run: bool,
}

impl MigrateOptions {
    pub(super) fn run(&self, dir: Option<&Path>, json: bool) -> Result<ExitCode, Failure> {
        privacy::close_new_files();
        let place = local::cell::Where { dir: dir.map(Path::to_owned), clear: false };
        let cell = place.cell()?;
        let to = match self.to {
            MigrateTo::Etcd => "to etcd",
            MigrateTo::Embedded => "to this server",
        };
        let what = || format!("moving the database of {} {to}", cell.config.name);
        if let Some(database) = &cell.config.database {
            return Err(Failure::new(what(), format!("the server {database} has the database"))
                .mend("run this at that server"));
        }
        let etcd = self.etcd(&cell).doing(what)?;
        let move_it = Move { to: self.to, replace: self.replace, dry_run: self.dry_run };
        let outcome = move_it.run(&cell, &etcd, what)?;
        self.tell(&cell, outcome, json);
        Ok(ExitCode::SUCCESS)
    }

    /// The members: those that are named, or those of `cell.toml`.
    fn etcd(&self, cell: &CellDir) -> Result<EtcdConfig, String> {
        if self.endpoints.is_empty() {
            let known = cell.config.etcd.as_ref().map(|etcd| etcd.below(cell.dir()));
            return known.ok_or_else(|| {
                "no members of etcd are known: name them with --endpoints".to_owned()
            });
        }
        EtcdOptions {
            endpoints: self.endpoints.clone(),
            cacert: self.cacert.clone(),
            cert: self.cert.clone(),
            key: self.key.clone(),
            user: self.user.clone(),
            password_file: self.password_file.clone(),
        }
        .config()
    }

    fn tell(&self, cell: &CellDir, outcome: Migrated, json: bool) {
        let (name, records, revision) = match outcome {
            Migrated::Moved { revision, records } => ("moved", Some(records), Some(revision.0)),
            Migrated::Finished => ("finished", None, None),
            Migrated::Already => ("already", None, None),
            Migrated::Undone => ("undone", None, None),
        };
        let to = if self.to == MigrateTo::Etcd { "etcd" } else { "embedded" };
        if json {
            show::json(&json!({
                "cell": cell.config.name,
                "to": to,
                "outcome": name,
                "records": records,
                "revision": revision,
                "dry_run": self.dry_run,
            }));
            return;
        }
        let would = if self.dry_run { "would be " } else { "" };
        match outcome {
            Migrated::Moved { revision: Revision(at), records } => {
                println!("{would}moved to {to}: {records} records, as of revision {at}");
            }
            Migrated::Finished => println!("{would}finished: an earlier migration to {to}"),
            Migrated::Already => println!("it is in {to} already"),
            Migrated::Undone => println!("{would}undone: a migration that had not ended"),
        }
        if !self.dry_run {
            println!("start the server again: 'rialto up', or 'systemctl start'");
        }
    }
}

/// A migration of the database of one directory.
pub(in crate::commands) struct Move {
    pub to: MigrateTo,
    pub replace: bool,
    pub dry_run: bool,
}

impl Move {
    /// Moves the database, and says in `cell.toml` where it is.
    ///
    /// # Errors
    /// If a server runs in the directory, or either place refuses.
    pub(in crate::commands) fn run(
        &self,
        cell: &CellDir,
        etcd: &EtcdConfig,
        what: impl Fn() -> String + Copy,
    ) -> Result<Migrated, Failure> {
        let owner = std::fs::metadata(cell.dir()).doing(what)?.uid();
        if owner != rustix::process::geteuid().as_raw() {
            let why = format!("the cell's directory is that of user {owner}");
            return Err(Failure::new(what(), why).mend(format!(
                "run this as that user, as its server is: 'sudo -u \\#{owner} rialto ...'"
            )));
        }
        // While it is held, no server starts here.
        let _held = PidFile::hold(&cell.server_pid_file(), "the migration").map_err(|failure| {
            failure.mend("stop the server first: 'rialto down', or 'systemctl stop'")
        })?;
        let path = cell.dir().join("celldb");
        let migration = Migration {
            path: &path,
            etcd,
            cell: &cell.config.name,
            replace: self.replace,
            dry_run: self.dry_run,
        };
        let outcome = match self.to {
            MigrateTo::Etcd => migration.to_etcd(),
            MigrateTo::Embedded => migration.to_embedded(),
        };
        let outcome = outcome.map_err(|error| refused(what(), &error))?;
        if !self.dry_run {
            // Also where a migration in the other direction was undone.
            let in_etcd = self.to == MigrateTo::Etcd;
            write_config(cell, in_etcd.then_some(etcd)).doing(what)?;
        }
        Ok(outcome)
    }
}

fn refused(what: String, error: &CellError) -> Failure {
    let failure = Failure::new(what, error);
    match error {
        CellError::NoQuorum(_) => failure.mend(
            "check the endpoints and certificates, and 'etcdctl endpoint health'; the same command \
             goes on where this one ended",
        ),
        CellError::Misuse(_) => failure.mend("'rialto cell migrate --help' says when each is done"),
        _ => failure,
    }
}
