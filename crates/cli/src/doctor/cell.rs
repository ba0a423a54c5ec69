//! Checks of a cell: its directory, partition, server and mounts.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use client::Endpoint;
use local::ask::Asking;
use local::cell::{CellDir, Compress};
use local::daemon::Process;
use local::mounts::{self, Health};
use local::privacy;
use store::Compression;
use types::{KeyPrint, ServerId, ServerInfo};

use super::{Finding, afs, etcd, port};
use crate::backup_record::BackupRecord;
use crate::levels::{Levels, Next};
use crate::partitions;
use crate::transport::{Kept, MountFacts};

/// How far in the future a file's time may be before the clock is suspected.
const FUTURE_MAX: Duration = Duration::from_secs(60);
/// How long a mount may take to answer.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The age of a backup above which it counts as forgotten.
const BACKUP_DAYS_MAX: u64 = 7;

/// Checks `cell`.
pub fn examine(cell: &CellDir) -> Vec<Finding> {
    let server = Process::recorded(&cell.server_pid_file()).ok().flatten();
    let mut findings = vec![directory(cell.dir())];
    findings.push(private(cell));
    for (path, name) in cell.partitions().iter().zip(cell.partition_names()) {
        findings.extend(future_times(path));
        findings.push(
            missing(cell, path, &name)
                .unwrap_or_else(|| partition(path, cell.config.compress == Some(Compress::Zstd))),
        );
    }
    findings.extend(database(cell));
    findings.extend(etcd::examine(cell));
    findings.extend(afs::examine(cell));
    findings.extend(backup(cell, SystemTime::now()));
    findings.push(server_process(cell, server));
    findings.extend(server.and_then(|_| listed(cell)));
    findings.extend(server.and_then(|_| level(cell)));
    findings.extend(certificate(cell, SystemTime::now()));
    findings.extend(authority_copy(cell));
    let owner = std::fs::metadata(cell.dir()).map_or(0, |about| about.uid());
    findings.extend(
        cell.config
            .listen
            .map(|listen| port::examine(listen, server.map(|process| process.pid), owner)),
    );
    findings.extend(mount_findings(cell));
    findings
}

fn directory(dir: &Path) -> Finding {
    const CHECK: &str = "cell directory";
    let me = rustix::process::geteuid();
    match fs::metadata(dir) {
        Err(error) => Finding::fail(
            CHECK,
            format!("{}: {error}", dir.display()),
            "name another one with --dir",
        ),
        Ok(meta) if !me.is_root() && meta.uid() != me.as_raw() => Finding::fail(
            CHECK,
            format!("{} belongs to user {}", dir.display(), meta.uid()),
            "run as that user or as root, or use a directory of your own with --dir",
        ),
        Ok(meta) if meta.permissions().mode() & 0o022 != 0 => Finding::warn(
            CHECK,
            format!("others may write to {}", dir.display()),
            format!("run 'chmod go-w {}'", dir.display()),
        ),
        Ok(_) => Finding::ok(CHECK, dir.display().to_string()),
    }
}

/// Checks that the server's files are accessible to its own user alone.
fn private(cell: &CellDir) -> Finding {
    const CHECK: &str = "privacy";
    let wide = privacy::wide(cell);
    match wide.first() {
        None => Finding::ok(
            CHECK,
            "other users of this machine can read nothing of the server's files".to_owned(),
        ),
        Some(first) => Finding::warn(
            CHECK,
            format!(
                "other users of this machine can use {} of the server's files and directories; {} \
                    has mode {:o}",
                wide.len(),
                first.path.display(),
                first.mode
            ),
            format!(
                "the server takes these rights away when it starts: run 'rialto down' and 'rialto \
                    up', or 'chmod {:o} {}'",
                first.wanted,
                first.path.display()
            ),
        ),
    }
}

/// Files of the partition from the future: the clock was ahead, or is behind now.
fn future_times(partition: &Path) -> Option<Finding> {
    let latest = SystemTime::now() + FUTURE_MAX;
    let places = [partition.to_owned(), partition.join("meta")];
    let entries =
        places.iter().filter_map(|dir| fs::read_dir(dir).ok()).flat_map(Iterator::flatten);
    let ahead = entries
        .filter_map(|entry| Some((entry.path(), entry.metadata().ok()?.modified().ok()?)))
        .find(|(_, modified)| *modified > latest)?;
    Some(Finding::warn(
        "file times",
        format!("{} was changed in the future", ahead.0.display()),
        "check the clock: new files may look older than old ones",
    ))
}

/// A partition that was there at an earlier start of the server, and is not now.
fn missing(cell: &CellDir, path: &Path, name: &str) -> Option<Finding> {
    let is_missing = !path.exists() && partitions::was_made(cell, path).ok()?;
    is_missing.then(|| {
        Finding::fail(
            "partition",
            format!("{} is missing, and was there before", path.display()),
            partitions::remedy(path, name),
        )
    })
}

fn partition(path: &Path, compress: bool) -> Finding {
    const CHECK: &str = "partition";
    if !path.exists() {
        return Finding::ok(
            CHECK,
            format!("{} is made when the server first starts", path.display()),
        );
    }
    match store::check_format(path) {
        Ok(format) => {
            let compression = match Compression::at(path, compress) {
                Compression::None => "its data is not compressed".to_owned(),
                Compression::Packed => {
                    "snapshots and copies are compressed by the server (zstd)".to_owned()
                }
                Compression::Below(how) => format!("the file system below compresses ({how})"),
            };
            Finding::ok(
                CHECK,
                format!("{} has format version {}; {compression}", path.display(), format.version),
            )
        }
        // These messages include their remedy.
        Err(error) => {
            let text = error.to_string();
            let (found, mend) = text.split_once("; ").unwrap_or((&text, "check that disk"));
            Finding::fail(CHECK, found, mend)
        }
    }
}

/// Whether this program supports the form of the cell database, where this server has it.
fn database(cell: &CellDir) -> Option<Finding> {
    let server::CellPlace::Here(path) = cell.database() else { return None };
    let error = celldb::check_format(&path).err()?;
    let text = error.to_string();
    let (found, mend) = text.split_once("; ").unwrap_or((&text, "check that disk"));
    Some(Finding::fail("cell database", found, mend))
}

/// Whether the cell's level can rise. A server that does not answer has a finding of its own.
fn level(cell: &CellDir) -> Option<Finding> {
    const CHECK: &str = "cell level";
    let asking = Asking::connect(Endpoint::Unix(cell.socket())).ok()?;
    let levels = Levels::asked(&asking)?;
    let level = levels.found.level;
    Some(match levels.next() {
        next @ Next::Newest => Finding::ok(CHECK, format!("{level}: {}", next.text())),
        next @ Next::Waits { .. } => Finding::ok(CHECK, format!("{level}; {}", next.text())),
        Next::Ready { level: next } => Finding::warn(
            CHECK,
            format!("the cell is at level {level}, and all its servers know {next}"),
            "run 'rialto cell upgrade' when none of them shall go back to the program before",
        ),
    })
}

/// How old the newest backup of the cell database is, where this server has it.
fn backup(cell: &CellDir, now: SystemTime) -> Option<Finding> {
    const CHECK: &str = "cell backup";
    const MEND: &str = "run 'rialto backup cell --keys FILE', best by a timer, and take the file \
        to another machine";
    let server::CellPlace::Here(path) = cell.database() else { return None };
    let made = fs::metadata(path.join("FORMAT")).and_then(|meta| meta.modified()).ok()?;
    let days = |time: SystemTime| now.duration_since(time).unwrap_or_default().as_secs() / 86_400;
    let taken = BackupRecord::read(cell.dir()).map(|record| {
        SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(record.taken).unwrap_or(0))
    });
    Some(match taken {
        Some(taken) if days(taken) > BACKUP_DAYS_MAX => {
            Finding::warn(CHECK, format!("the newest is {} days old", days(taken)), MEND)
        }
        Some(taken) => Finding::ok(CHECK, format!("the newest is {} days old", days(taken))),
        None if days(made) >= 1 => {
            let why = "the cell's database, which is in no other place, was never backed up here";
            Finding::warn(CHECK, why, MEND)
        }
        None => Finding::ok(CHECK, "none yet of a new cell: 'rialto backup cell' makes one"),
    })
}

/// With fewer days left a certificate should have been renewed.
const CERTIFICATE_DAYS_MIN: u64 = 5;

/// Whether this server's certificate is renewed in time, where another server signs it.
fn certificate(cell: &CellDir, now: SystemTime) -> Option<Finding> {
    const CHECK: &str = "certificate";
    let keys = cell.keys();
    if keys.authority().can_sign() || cell.config.certificate.is_some() {
        return None;
    }
    let own = keys.own_certificate()?;
    let left = own.ends.duration_since(now).ok().map(|left| left.as_secs() / 86_400);
    let mend = "check that the server with the key of the authority runs and is reached; if the \
                key is off line: 'rialto keys request', 'rialto cell sign', 'rialto keys accept'";
    Some(match left {
        None => Finding::fail(CHECK, "this server's certificate has ended", mend),
        Some(days) if days < CERTIFICATE_DAYS_MIN => {
            let why = format!("it ends in {days} days, and no server has signed a new one");
            Finding::warn(CHECK, why, mend)
        }
        Some(days) => {
            Finding::ok(CHECK, format!("{days} days left; another server signs the next one"))
        }
    })
}

/// A copy of the key of the authority that a server got when it joined.
fn authority_copy(cell: &CellDir) -> Option<Finding> {
    const CHECK: &str = "key of the authority";
    let is_copy = cell.config.database.is_some() && cell.keys().authority().can_sign();
    is_copy.then(|| {
        Finding::warn(
            CHECK,
            "this server has a copy: whoever takes it over can make servers of the cell",
            "run 'rialto keys authority --remove' here, if the server with the database has it",
        )
    })
}

fn server_process(cell: &CellDir, server: Option<Process>) -> Finding {
    const CHECK: &str = "server";
    if let Some(process) = server {
        return match Asking::connect(Endpoint::Unix(cell.socket()))
            .and_then(|asking| asking.report())
        {
            Ok(report) => match crate::commands::status::stopped(&report) {
                stopped if stopped.is_empty() => disks(process, &report),
                stopped => Finding::fail(
                    CHECK,
                    stopped.join("; "),
                    format!(
                        "read {} and check the disk; 'rialto down' and 'rialto up' start it \
                            anew, and clients send again what was lost",
                        cell.server_log().display()
                    ),
                ),
            },
            Err(failure) => Finding::fail(
                CHECK,
                format!("process {} does not answer: {failure}", process.pid),
                format!(
                    "read {}; 'rialto down' and 'rialto up' restart it",
                    cell.server_log().display()
                ),
            ),
        };
    }
    let leftover = if cell.server_pid_file().exists() { "crashed" } else { "does not run" };
    Finding::warn(CHECK, leftover, "start it with 'rialto up'; nothing that was synced is lost")
}

/// The health of the partitions of a server that answers.
fn disks(process: Process, report: &serde_json::Value) -> Finding {
    const CHECK: &str = "server";
    match crate::commands::status::unwell(report) {
        unwell if unwell.is_empty() => {
            Finding::ok(CHECK, format!("process {} answers", process.pid))
        }
        unwell => Finding::warn(
            CHECK,
            unwell.join("; "),
            "check the disk; 'rialto vos evacuate' moves the volumes away, and 'rialto vos \
                trustpart' says that the disk works again",
        ),
    }
}

/// Whether the cell lists this server; `None`: it shows no certificate, or the cell does not
/// answer.
fn listed(cell: &CellDir) -> Option<Finding> {
    let key = cell.keys().shown().ok()?.key_print()?;
    let asking = Asking::connect(Endpoint::Unix(cell.socket())).ok()?;
    let (me, servers) = (asking.me().ok()?, asking.servers().ok()?);
    Some(is_listed(key, me.id, &servers))
}

fn is_listed(key: KeyPrint, me: ServerId, servers: &[ServerInfo]) -> Finding {
    const CHECK: &str = "server's key";
    match servers.iter().find(|server| server.id == me) {
        Some(server) if server.keys.contains(&key) => Finding::ok(
            CHECK,
            "the cell's database lists it, so other servers know this one".to_owned(),
        ),
        Some(server) if !server.keys.is_empty() => Finding::fail(
            CHECK,
            format!(
                "the cell's database lists {} for this server, and it shows {key}",
                server.keys[0]
            ),
            "bring back the keys directory that it had; or, on another server, run 'rialto keys \
            withdraw' for this one, and then 'rialto keys rotate certificate' here",
        ),
        Some(_) | None => Finding::fail(
            CHECK,
            format!(
                "the cell's database does not list {key}: no other server takes this one for one \
                    of the cell"
            ),
            "read the server's log; if the key was withdrawn, run 'rialto keys rotate certificate'",
        ),
    }
}

fn mount_findings(cell: &CellDir) -> Vec<Finding> {
    const CHECK: &str = "mount";
    let points = match cell.mounts().recorded() {
        Ok(points) => points,
        Err(error) => {
            return vec![Finding::fail(
                CHECK,
                error.to_string(),
                "mend the permissions of the cell's mounts/",
            )];
        }
    };
    points
        .iter()
        .map(|at| one_mount(CHECK, cell, at).unwrap_or_else(|error| unreadable(CHECK, at, &error)))
        .collect()
}

fn unreadable(check: &'static str, at: &Path, error: &io::Error) -> Finding {
    Finding::fail(check, format!("{}: {error}", at.display()), "check that /proc is mounted")
}

fn one_mount(check: &'static str, cell: &CellDir, at: &Path) -> io::Result<Finding> {
    let runs = Process::recorded(&cell.mounts().pid_file(at))?.is_some();
    let mounted = mounts::at(at)?.is_some_and(|mounted| mounted.is_rialto());
    let place = at.display();
    Ok(match (runs, mounted) {
        (false, false) => Finding::warn(
            check,
            format!("{place}: a pid file was left over"),
            "'rialto up' or 'rialto umount' removes it",
        ),
        (false, true) if is_held(cell, at) => Finding::warn(
            check,
            format!("{place}: its process has ended, and a keeper holds it: its users wait"),
            format!("start its service again, or run 'rialto umount {place}'"),
        ),
        (false, true) => Finding::fail(
            check,
            format!("{place}: stale, its process has ended"),
            format!("run 'rialto umount {place}', or 'rialto up' to mount it again"),
        ),
        (true, false) => Finding::warn(
            check,
            format!("{place}: its process runs but nothing is mounted"),
            "wait, or stop it",
        ),
        (true, true) => match mounts::health(at, TIMEOUT) {
            Health::Answers => Finding::ok(check, format!("{place} answers")),
            Health::Stale => Finding::fail(
                check,
                format!("{place}: the connection to its process is lost"),
                "run 'rialto umount --lazy'",
            ),
            Health::Silent => Finding::fail(
                check,
                format!("{place} did not answer within {} seconds", TIMEOUT.as_secs()),
                "check that the server runs; the mount continues by itself once it is back",
            ),
        },
    })
}

/// Whether a keeper holds the mount for the next process there.
fn is_held(cell: &CellDir, at: &Path) -> bool {
    let facts = MountFacts::read(&cell.mounts().facts_file(at));
    facts.is_some_and(|facts| matches!(facts.kept, Kept::KeeperAt(_)))
}

#[cfg(test)]
mod tests {
    use local::cell::NewCell;

    use super::super::Severity;
    use super::*;

    fn level_of(findings: &[Finding], check: &str) -> Option<Severity> {
        findings.iter().find(|finding| finding.check == check).map(|finding| finding.level)
    }

    #[test]
    fn a_fresh_cell_has_no_faults_and_a_killed_server_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let cell =
            CellDir::create(&dir.path().join("cell"), "test", local::cell::NewCell::default())
                .unwrap();
        let findings = examine(&cell);
        assert!(findings.iter().all(|finding| finding.level < Severity::Fail), "{findings:#?}");
        assert_eq!(level_of(&findings, "server"), Some(Severity::Warn));

        fs::write(cell.server_pid_file(), "1\n99\n").unwrap();
        let server = examine(&cell).into_iter().find(|finding| finding.check == "server").unwrap();
        assert!(server.found.contains("crashed"), "{server:?}");
    }

    #[test]
    fn m1_a_server_whose_key_is_not_listed_is_told() {
        let (key, other, me) = (KeyPrint([1; 32]), KeyPrint([2; 32]), ServerId(7));
        let level = |keys: &[KeyPrint]| {
            let record =
                ServerInfo { id: me, name: "a".into(), addresses: Vec::new(), keys: keys.to_vec() };
            is_listed(key, me, &[record]).level
        };
        assert_eq!(
            (level(&[other, key]), level(&[other]), level(&[])),
            (Severity::Ok, Severity::Fail, Severity::Fail)
        );
        assert_eq!(is_listed(key, me, &[]).level, Severity::Fail);
    }

    #[test]
    fn files_that_others_may_read_are_a_finding_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let cell =
            CellDir::create(&dir.path().join("cell"), "test", local::cell::NewCell::default())
                .unwrap();
        assert_eq!(private(&cell).level, Severity::Ok);
        fs::create_dir(cell.dir().join("celldb")).unwrap();
        fs::set_permissions(cell.dir().join("celldb"), fs::Permissions::from_mode(0o755)).unwrap();
        let finding = private(&cell);
        assert_eq!(finding.level, Severity::Warn);
        assert!(finding.found.contains("celldb has mode 755"), "{finding:?}");
        assert!(finding.mend.unwrap().contains("chmod 700"));
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(directory(dir.path()).level, Severity::Warn);
        assert_eq!(directory(&dir.path().join("none")).level, Severity::Fail);
    }

    #[test]
    fn a_partition_that_cannot_be_opened_is_told_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(partition(&dir.path().join("none"), false).level, Severity::Ok);
        fs::write(dir.path().join("FORMAT"), "something else").unwrap();
        let finding = partition(dir.path(), false);
        assert_eq!(finding.level, Severity::Fail);
        assert!(finding.mend.is_some(), "{finding:?}");
    }

    #[test]
    fn files_from_the_future_point_at_the_clock() {
        let dir = tempfile::tempdir().unwrap();
        let file = fs::File::create(dir.path().join("FORMAT")).unwrap();
        assert_eq!(future_times(dir.path()), None);
        file.set_modified(SystemTime::now() + Duration::from_secs(3600)).unwrap();
        assert_eq!(future_times(dir.path()).unwrap().level, Severity::Warn);
    }

    #[test]
    fn a_missing_or_old_backup_is_told_after_a_day() {
        let dir = tempfile::tempdir().unwrap();
        let cell = CellDir::create(&dir.path().join("cell"), "x", NewCell::default()).unwrap();
        let now = SystemTime::now();
        let in_days = |days: u64| now + Duration::from_secs(days * 86_400 + 100);
        let told = |days| {
            let finding = backup(&cell, in_days(days)).unwrap();
            (finding.level, finding.found)
        };
        assert!(backup(&cell, now).is_none(), "there is no database yet");
        drop(celldb::Embedded::open(&cell.dir().join("celldb")).unwrap());
        assert_eq!(told(0).0, Severity::Ok);
        assert_eq!(told(1).0, Severity::Warn);
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let record = BackupRecord { taken: since as i64, revision: 7 };
        record.write(cell.dir()).unwrap();
        assert_eq!(BackupRecord::read(cell.dir()), Some(record));
        assert_eq!(told(7), (Severity::Ok, "the newest is 7 days old".to_owned()));
        assert_eq!(told(8), (Severity::Warn, "the newest is 8 days old".to_owned()));
    }

    #[test]
    fn leftovers_of_mounts_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let cell =
            CellDir::create(&dir.path().join("cell"), "test", local::cell::NewCell::default())
                .unwrap();
        fs::write(cell.mounts().pid_file(&cell.mount_point()), "1\n99\n").unwrap();
        let findings = mount_findings(&cell);
        assert_eq!(level_of(&findings, "mount"), Some(Severity::Warn));
        assert!(findings[0].found.contains("left over"), "{findings:?}");
    }
}
