//! The file of a backup, as `backup` and `restore` read it: plain or encrypted, a file or standard
//! input.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use celldb::CellError;
use celldb::backup::{BackupCounts, BackupError, BackupHead, BackupItem, read_backup};
use clap::Args;
use keys::{SEALED_MAGIC, SealedReader};
use local::failure::{Doing, Failure};
use serde_json::{Value, json};
use types::Timestamp;
use zeroize::Zeroizing;

use super::vos::iso;
use crate::quiet_line;

/// The file that means standard input or output.
const STANDARD: &str = "-";

/// The source of a passphrase.
#[derive(Args, Debug)]
pub struct PassphraseOption {
    /// The passphrase is the first line of this file, which only you should be able to read
    /// [default: asked at the terminal]
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

impl PassphraseOption {
    /// Whether a file names it.
    pub fn is_given(&self) -> bool {
        self.passphrase_file.is_some()
    }

    /// The passphrase for a new file, which a terminal is asked for twice.
    pub(crate) fn of_new_file(&self) -> Result<Zeroizing<String>, Failure> {
        if let Some(path) = &self.passphrase_file {
            return quiet_line::read_file(path);
        }
        let first = asked("Passphrase of the backup: ")?;
        if *asked("Again: ")? != *first {
            return Err(Failure::new(what_passphrase(), "the two differ"));
        }
        Ok(first)
    }

    fn of_old_file(&self) -> Result<Zeroizing<String>, Failure> {
        match &self.passphrase_file {
            Some(path) => quiet_line::read_file(path),
            None => asked("Passphrase of the backup: "),
        }
    }
}

fn what_passphrase() -> String {
    "reading the passphrase".to_owned()
}

fn asked(prompt: &str) -> Result<Zeroizing<String>, Failure> {
    if !io::IsTerminal::is_terminal(&io::stdin()) {
        return Err(Failure::new(what_passphrase(), "standard input is no terminal")
            .mend("name a file with --passphrase-file"));
    }
    let line = quiet_line::read(Some(prompt), what_passphrase)?;
    if line.is_empty() {
        return Err(Failure::new(what_passphrase(), "there is none"));
    }
    Ok(line)
}

/// Whether the file is standard input or output.
pub fn is_standard(file: &Path) -> bool {
    file == Path::new(STANDARD)
}

/// Reads a backup to its end.
///
/// # Errors
/// If it is not whole, or `head` or `take` refuses.
pub(crate) fn read_file(
    file: &Path,
    passphrase: &PassphraseOption,
    head: &mut dyn FnMut(&BackupHead) -> Result<(), CellError>,
    take: &mut dyn FnMut(BackupItem<'_>) -> Result<(), CellError>,
) -> Result<(BackupHead, BackupCounts, bool), Failure> {
    let what = || format!("reading {}", file.display());
    let mut from: Box<dyn Read> = if is_standard(file) {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(file).doing(what)?)
    };
    let mut first = Vec::new();
    from.by_ref().take(SEALED_MAGIC.len() as u64).read_to_end(&mut first).doing(what)?;
    let is_encrypted = first == SEALED_MAGIC;
    let read = if is_encrypted {
        let passphrase = passphrase.of_old_file()?;
        let opened =
            SealedReader::new(BufReader::new(from), &passphrase).map_err(BackupError::from);
        opened.and_then(|opened| read_backup(BufReader::new(opened), head, take))
    } else {
        read_backup(BufReader::new(first.chain(from)), head, take)
    };
    let (head, counts) = read.doing(what)?;
    Ok((head, counts, is_encrypted))
}

/// The content of a backup, for programs.
pub fn described(head: &BackupHead, counts: &BackupCounts, is_encrypted: bool) -> Value {
    json!({
        "cell": head.cell,
        "revision": head.revision.0,
        "taken": iso(Timestamp::new(head.taken, 0)),
        "age_secs": age(head.taken),
        "encrypted": is_encrypted,
        "records": counts.records,
        "users": counts.users,
        "groups": counts.groups,
        "volumes": counts.volumes,
        "servers": counts.servers,
        "rules": counts.rules,
        "passwords": counts.passwords,
        "files": counts.files,
    })
}

/// The content of a backup, for people.
pub fn in_words(counts: &BackupCounts) -> String {
    let BackupCounts { users, groups, volumes, servers, rules, files, .. } = counts;
    let keys = match files {
        0 => String::new(),
        files => format!(", and {files} files of its directory, with its keys"),
    };
    format!(
        "{users} users, {groups} groups, {volumes} volumes, {servers} servers, {rules} fences and \
         administrators{keys}"
    )
}

/// Seconds since 1970.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// Seconds since a backup was made; 0 if it is of the future.
pub fn age(taken: i64) -> i64 {
    now().saturating_sub(taken).max(0)
}

/// An age for people.
pub fn ago(secs: i64) -> String {
    match secs {
        secs if secs < 120 => format!("{secs} s"),
        secs if secs < 2 * 3600 => format!("{} min", secs / 60),
        secs if secs < 48 * 3600 => format!("{} h", secs / 3600),
        secs => format!("{} days", secs / 86400),
    }
}
