//! `rialto backup`: copies the cell's database into a file, and checks such files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use celldb::backup::{BackupHead, BackupWriter};
use celldb::{CellError, RemoteCellDb, copy_records};
use clap::{Args, Subcommand};
use client::Endpoint;
use keys::SealedWriter;
use local::cell::{CellDir, Where, clear_by_environment};
use local::failure::{Doing, Failure};
use local::show;
use rustix::fs::{CWD, RenameFlags};
use serde_json::json;
use types::{Fault, Timestamp};
use zeroize::Zeroizing;

use super::backup_file::{
    PassphraseOption, age, ago, described, in_words, is_standard, now, read_file,
};
use super::cell_client::CELL_AWAY;
use super::vos::iso;
use crate::backup_record::BackupRecord;
use crate::security;

const AFTER_HELP: &str = "\
EXAMPLES
    rialto backup cell /backup/cell-2026-11-26
    rialto backup cell --keys --passphrase-file /root/passphrase /backup/cell-2026-11-26
    rialto backup cell --encrypt - | ssh other 'cat > cell-backup'
    rialto backup verify /backup/cell-2026-11-26

A backup has users, groups, hashes of passwords, fences, administrators, servers and the
places of volumes, all of one moment, while the cell runs. It does not have the contents of
volumes: snapshots, copies and 'rialto vos dump' have those. 'rialto restore cell' makes the
database again from it. With --keys it has the keys of the cell too, which are needed on an
empty machine; it is encrypted then.

EXIT CODES
    0  done; verify: it is whole
    1  failed, or it is not whole
    3  no cell there, or its server does not run";

/// Backs up the cell's database.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct Backup {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Copies the database of the cell into a file.
    #[command(after_help = CELL_HELP)]
    Cell(CellBackup),
    /// Reads a whole backup and checks it.
    #[command(after_help = VERIFY_HELP)]
    Verify(VerifyBackup),
}

const CELL_HELP: &str = "\
EXAMPLES
    rialto backup cell /backup/cell-2026-11-26
    rialto backup cell --keys --passphrase-file /root/passphrase /backup/cell-2026-11-26

The file appears whole or not at all, and only you can read it. A server that does not have
the database asks the one that has it. 'rialto doctor' on this machine knows of this backup.

EXIT CODES
    0  done
    1  failed
    3  no cell there, or its server does not run";

const VERIFY_HELP: &str = "\
EXAMPLES
    rialto backup verify /backup/cell-2026-11-26
    rialto backup verify --json --passphrase-file /root/passphrase /backup/cell-2026-11-26

EXIT CODES
    0  it is whole
    1  it is not, or cannot be read: the message says why";

#[derive(Args, Debug)]
struct CellBackup {
    /// The new file; - is standard output.
    file: PathBuf,
    /// Take along cell.toml and the keys of this server and of the cell. Only encrypted, or with
    /// --plain-keys.
    #[arg(long)]
    keys: bool,
    /// Do not encrypt the keys: whoever reads the file can make servers and tokens of the cell.
    #[arg(long, requires = "keys", conflicts_with_all = ["encrypt", "passphrase_file"])]
    plain_keys: bool,
    /// Encrypt the backup with a passphrase.
    #[arg(long)]
    encrypt: bool,
    #[command(flatten)]
    passphrase: PassphraseOption,
    /// Replace the file if it is there.
    #[arg(long)]
    force: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

#[derive(Args, Debug)]
struct VerifyBackup {
    /// The file; - is standard input.
    file: PathBuf,
    #[command(flatten)]
    passphrase: PassphraseOption,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Backup {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.verb {
            Verb::Cell(backup) => backup.run(),
            Verb::Verify(verify) => verify.run(),
        }
    }
}

impl VerifyBackup {
    fn run(&self) -> Result<ExitCode, Failure> {
        let (head, counts, is_encrypted) =
            read_file(&self.file, &self.passphrase, &mut |_| Ok(()), &mut |_| Ok(()))?;
        if self.json {
            show::json(&described(&head, &counts, is_encrypted));
        } else {
            let taken = iso(Timestamp::new(head.taken, 0));
            println!("whole: the cell {} at revision {}", head.cell, head.revision.0);
            println!("made {} ago ({taken})", ago(age(head.taken)));
            println!("{}", in_words(&counts));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl CellBackup {
    fn run(&self) -> Result<ExitCode, Failure> {
        let cell = self.place.cell()?;
        let what = || format!("writing {}", self.file.display());
        if !is_standard(&self.file) && !self.force && fs::symlink_metadata(&self.file).is_ok() {
            return Err(Failure::new(what(), "it is there already")
                .mend("name another file, or use --force"));
        }
        let encrypts = self.encrypt || self.passphrase.is_given() || self.keys && !self.plain_keys;
        let passphrase = encrypts.then(|| self.passphrase.of_new_file()).transpose()?;
        let files = if self.keys { cell_files(&cell)? } else { Vec::new() };
        let head = if is_standard(&self.file) {
            write(&cell, passphrase, &files, io::stdout().lock())?
        } else {
            let draft = Draft::create(&self.file).doing(what)?;
            let to = draft.file.try_clone().doing(what)?;
            let head = write(&cell, passphrase, &files, to)?;
            draft.place(&self.file, self.force).doing(what)?;
            head
        };
        let record = BackupRecord { taken: head.taken, revision: head.revision.0 };
        record.write(cell.dir()).doing(|| "noting the backup for 'rialto doctor'".to_owned())?;
        let (file, revision) = (&self.file, head.revision.0);
        match (is_standard(file), self.json) {
            // Standard output is the backup itself.
            (true, _) => eprintln!("the cell {} at revision {revision}", head.cell),
            (false, true) => show::json(&json!({
                "file": file, "cell": head.cell, "revision": revision, "encrypted": encrypts,
                "taken": iso(Timestamp::new(head.taken, 0)), "files": files.len(),
            })),
            (false, false) => {
                println!("{}: the cell {} at revision {revision}", file.display(), head.cell);
                println!("'rialto backup verify {}' reads it all", file.display());
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A file of the cell's directory, by its place below it.
type CellFile = (String, Zeroizing<Vec<u8>>);

/// `cell.toml` and everything in `keys/`.
fn cell_files(cell: &CellDir) -> Result<Vec<CellFile>, Failure> {
    let mut files = Vec::new();
    let mut places = vec!["cell.toml".to_owned(), "keys".to_owned()];
    while let Some(place) = places.pop() {
        let path = cell.dir().join(&place);
        let what = || format!("reading {}", path.display());
        if !path.is_dir() {
            files.push((place, Zeroizing::new(fs::read(&path).doing(what)?)));
            continue;
        }
        for entry in fs::read_dir(&path).doing(what)? {
            let name = entry.doing(what)?.file_name();
            let name = name.to_str().ok_or("a name that is not UTF-8").doing(what)?;
            // Drafts of files that are replaced.
            if !name.ends_with(".new") {
                places.push(format!("{place}/{name}"));
            }
        }
    }
    files.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(files)
}

/// Writes the backup, and syncs a file.
fn write(
    cell: &CellDir,
    passphrase: Option<Zeroizing<String>>,
    files: &[CellFile],
    to: impl Write,
) -> Result<BackupHead, Failure> {
    let what = || "writing the backup".to_owned();
    let to = BufWriter::new(to);
    match passphrase {
        Some(passphrase) => {
            let sealed = SealedWriter::new(to, &passphrase).doing(what)?;
            let (head, sealed) = copy(cell, files, sealed)?;
            sealed.end().and_then(|mut to| to.flush()).doing(what)?;
            Ok(head)
        }
        None => {
            let (head, mut to) = copy(cell, files, to)?;
            to.flush().doing(what)?;
            Ok(head)
        }
    }
}

/// Copies the database, as the superuser of the cell's own server.
fn copy<W: Write>(cell: &CellDir, files: &[CellFile], to: W) -> Result<(BackupHead, W), Failure> {
    let what = || "copying the cell's database".to_owned();
    let options = security::as_server(cell.dir(), &cell.config.name, clear_by_environment())?;
    let db = RemoteCellDb::at(Endpoint::Unix(cell.socket()), options);
    let refused = |error: CellError| match error {
        CellError::Away(Fault::Unsupported) => {
            Failure::new(what(), "the server that has it is older than this command")
                .mend("install this version there, and start it anew")
        }
        CellError::Away(Fault::CellAway) => Failure::new(what(), Fault::CellAway)
            .mend(format!("check with 'rialto status' that the server runs; {CELL_AWAY}"))
            .nothing_there(),
        CellError::Away(Fault::Busy) => {
            Failure::new(what(), "as many copies as may be are made").mend("try again in a minute")
        }
        CellError::Away(Fault::NothingThere) => {
            Failure::new(what(), "the connection was lost, and the copy with it").mend("try again")
        }
        CellError::Away(Fault::NotPermitted) => {
            Failure::new(what(), "only servers of the cell and its superuser may")
                .mend("run it as the user of the server")
        }
        error => Failure::new(what(), error),
    };
    let taken = now();
    let (cell_name, mut writer, mut to) = (cell.config.name.clone(), None, Some(to));
    let mut failed = None;
    let copied = copy_records(&db, &mut |at, key, value| {
        let mut put = || -> io::Result<()> {
            if let Some(to) = to.take() {
                let head = BackupHead { cell: cell_name.clone(), revision: at, taken };
                let mut begun = BackupWriter::new(to, &head)?;
                files.iter().try_for_each(|(path, bytes)| begun.file(path, bytes))?;
                writer = Some(begun);
            }
            writer.as_mut().map_or(Ok(()), |writer| writer.record(key, value))
        };
        put().map_err(|error| {
            let text = error.to_string();
            failed = Some(error);
            CellError::Medium(text)
        })
    });
    if let Some(error) = failed {
        return Err(Failure::new("writing the backup", error));
    }
    let revision = copied.map_err(refused)?;
    let writer = writer.ok_or("it has no records").doing(what)?;
    let to = writer.end().doing(|| "writing the backup".to_owned())?;
    Ok((BackupHead { cell: cell.config.name.clone(), revision, taken }, to))
}

/// A file beside the wanted one, which is removed unless it takes that one's place.
struct Draft {
    path: PathBuf,
    file: File,
}

impl Draft {
    fn create(wanted: &Path) -> io::Result<Draft> {
        let mut path = wanted.as_os_str().to_owned();
        path.push(format!(".{}.new", std::process::id()));
        let path = PathBuf::from(path);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Draft { path, file })
    }

    fn place(self, wanted: &Path, force: bool) -> io::Result<()> {
        self.file.sync_all()?;
        let flags = if force { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        match rustix::fs::renameat_with(CWD, &self.path, CWD, wanted, flags) {
            // Not every file system can.
            Err(rustix::io::Errno::INVAL) if !wanted.exists() => fs::rename(&self.path, wanted)?,
            renamed => renamed?,
        }
        let dir = wanted.parent().filter(|dir| !dir.as_os_str().is_empty());
        File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
