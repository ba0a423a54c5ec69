//! `rialto cell migrate`: moves the cell's database to etcd, or back to this server.
//!
//! The server does not run meanwhile. Others go on as they do whenever the database is away.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
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
pub(super) enum MigrateTo {
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
        // While it is held, no server starts here.
        let _held = PidFile::hold(&cell.server_pid_file(), "the migration").map_err(|failure| {
            failure.mend("stop the server first: 'rialto down', or 'systemctl stop'")
        })?;
        let path = cell.dir().join("celldb");
        let migration = Migration {
            path: &path,
            etcd: &etcd,
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
            write_config(&cell, in_etcd.then_some(&etcd)).doing(what)?;
        }
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
        let file = |path: &Option<PathBuf>| {
            let absolute = path.as_ref().map(std::path::absolute);
            absolute.transpose().map_err(|error| error.to_string())
        };
        let etcd = EtcdConfig {
            endpoints: self.endpoints.clone(),
            ca: file(&self.cacert)?,
            cert: file(&self.cert)?,
            key: file(&self.key)?,
            user: self.user.clone(),
            password_file: file(&self.password_file)?,
        };
        etcd.check().map(|()| etcd)
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

/// Writes the part `etcd` of `cell.toml`, or removes it. All else stays as it is.
fn write_config(cell: &CellDir, etcd: Option<&EtcdConfig>) -> Result<(), String> {
    let file = cell.dir().join("cell.toml");
    let failed = |error: std::io::Error| format!("{}: {error}", file.display());
    let before = fs::read_to_string(&file).map_err(failed)?;
    let part = etcd.map(|etcd| toml::to_string(etcd).map_err(|error| error.to_string()));
    let after = with_part(&before, part.transpose()?.as_deref());
    if after == before {
        return Ok(());
    }
    let draft = cell.dir().join("cell.toml.new");
    let _ = fs::remove_file(&draft);
    let mut options = fs::OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(&draft);
    opened
        .and_then(|mut to| to.write_all(after.as_bytes()).and_then(|()| to.sync_all()))
        .and_then(|()| fs::rename(&draft, &file))
        .and_then(|()| fs::File::open(cell.dir())?.sync_all())
        .map_err(failed)
}

/// The text with this part `etcd` alone.
fn with_part(text: &str, part: Option<&str>) -> String {
    let mut ours = false;
    let mut kept: Vec<&str> = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with('[') {
            ours = line.trim().starts_with("[etcd]");
        }
        if !ours {
            kept.push(line);
        }
    }
    while kept.last().is_some_and(|line| line.trim().is_empty()) {
        kept.pop();
    }
    let mut after = kept.join("\n");
    after.push('\n');
    if let Some(part) = part {
        after.push_str("\n[etcd]\n");
        after.push_str(part);
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_part_of_the_file_changes() {
        let plain = "# A cell.\nname = \"a\"\n\n[limits]\nlog_mib = 3\n";
        let part = "endpoints = [\"127.0.0.1:2379\"]\n";
        let with = with_part(plain, Some(part));
        assert_eq!(with, format!("{plain}\n[etcd]\n{part}"));
        assert_eq!(with_part(&with, Some(part)), with);
        assert_eq!(with_part(&with, None), plain);
        let before = format!("name = \"a\"\n[etcd]\nuser = \"u\"\n{part}\n[limits]\nlog_mib = 3\n");
        assert_eq!(with_part(&before, None), "name = \"a\"\n[limits]\nlog_mib = 3\n");
    }
}
