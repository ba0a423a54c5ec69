//! `rialto restore`: makes a cell's database again from a backup.
//!
//! Everything is read and checked before anything takes its place: records go into a new database
//! beside the old one, files into memory. An interrupted restore leaves that new database, which
//! the next one removes.

use std::cell::RefCell;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use celldb::backup::{BackupHead, BackupItem};
use celldb::{CellError, EtcdConfig, Restored, Restoring};
use clap::{Args, Subcommand};
use local::cell::{CellDir, prepare_cell_dir};
use local::daemon::PidFile;
use local::failure::{Doing, Failure};
use local::privacy;
use local::show;
use rustix::fs::{CWD, RenameFlags};
use serde_json::json;
use server::CellPlace;
use types::Timestamp;
use zeroize::Zeroizing;

use super::backup_file::{PassphraseOption, described, in_words, now, read_file};
use super::vos::{iso, stamp};

const AFTER_HELP: &str = "\
EXAMPLES
    rialto restore cell /backup/cell-2026-11-26 --dir /srv/rialto
    rialto restore cell /backup/cell-2026-11-26 --dir /srv/rialto --replace

Onto an empty machine the backup needs the keys ('rialto backup cell --keys'): DIR gets
cell.toml, keys/ and the database. Where a cell is in DIR already, its server must not run,
its cell.toml and keys stay, and the database that is there is moved aside with --replace.
Where that cell.toml names etcd, the records go there; with --replace they replace what etcd
has of this cell, of which nothing is kept.

What was changed after the backup is lost: users and groups, passwords, fences, withdrawn
keys, new volumes and moves. No number is given again that may have been given since. All
tokens end, so users log in again. Afterwards 'rialto vos syncvldb' finds the volumes that
servers have.

EXIT CODES
    0  done
    1  failed, and nothing was changed";

/// Makes a cell's database again from a backup.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct RestoreCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Puts the database of a backup into a cell's directory.
    #[command(after_help = AFTER_HELP)]
    Cell(CellRestore),
}

#[derive(Args, Debug)]
struct CellRestore {
    /// The backup; - is standard input.
    file: PathBuf,
    /// The cell's directory, or an empty place for it.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Move a database that is there aside; it is not removed. In etcd: replace it.
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    passphrase: PassphraseOption,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl RestoreCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.verb {
            Verb::Cell(restore) => restore.run(),
        }
    }
}

/// A file of the backup, by its place below the cell's directory.
type BackupFiles = Vec<(String, Zeroizing<Vec<u8>>)>;

impl CellRestore {
    fn run(&self) -> Result<ExitCode, Failure> {
        privacy::close_new_files();
        let what = || format!("restoring into {}", self.dir.display());
        let dir = std::path::absolute(&self.dir).doing(what)?;
        let cell = CellDir::find(&dir)?;
        if let Some(cell) = &cell
            && let CellPlace::Etcd(etcd) = cell.database()
        {
            return self.restore_in_etcd(cell, &etcd).map(|()| ExitCode::SUCCESS);
        }
        let database = self.place_of_database(&dir, cell.as_ref())?;
        let was_there = dir.exists();
        if cell.is_none() {
            prepare_cell_dir(&dir)?;
        }
        let done = self.restore(&dir, cell.as_ref(), &database);
        if done.is_err() && !was_there {
            // Nothing but empty directories is in it.
            let _ = fs::remove_dir_all(&dir);
        }
        done.map(|()| ExitCode::SUCCESS)
    }

    /// Puts the records into etcd. The cell's files are there: `cell.toml` names etcd.
    fn restore_in_etcd(&self, cell: &CellDir, etcd: &EtcdConfig) -> Result<(), Failure> {
        let _held = PidFile::hold(&cell.server_pid_file(), "the restore")?;
        let name = cell.config.name.as_str();
        let begin = |head: &BackupHead| {
            Restoring::begin_in_etcd(etcd, name, self.replace, head.revision, now())
        };
        let taken = self.take(&begin, Some(name));
        let (head, _, restored, description, words) = taken.map_err(|failure| {
            if self.replace {
                return failure;
            }
            failure.mend("where etcd has a database of this cell, --replace replaces it")
        })?;
        self.tell(&head, &restored, None, description, &words);
        Ok(())
    }

    /// Where the database is to be, if one may be put there.
    fn place_of_database(&self, dir: &Path, cell: Option<&CellDir>) -> Result<PathBuf, Failure> {
        let what = || format!("restoring into {}", dir.display());
        let database = match cell.map(CellDir::database) {
            None => dir.join("celldb"),
            Some(CellPlace::Here(path)) => path,
            Some(CellPlace::At(endpoint)) => {
                let why = format!("its cell.toml says that {endpoint} has the database");
                return Err(Failure::new(what(), why)
                    .mend("to give it to this server, remove the line 'database' from cell.toml"));
            }
            Some(CellPlace::Etcd(_)) => {
                return Err(Failure::new(what(), "its cell.toml says that etcd has the database"));
            }
        };
        if database.exists() && !self.replace {
            return Err(Failure::new(what(), format!("{} is there", database.display()))
                .mend("use --replace to move it aside"));
        }
        if cell.is_none() && (database.exists() || dir.join("keys").exists()) {
            return Err(Failure::new(what(), "it has a database or keys, and no cell.toml")
                .mend("bring back its cell.toml, or name an empty directory"));
        }
        Ok(database)
    }

    fn restore(&self, dir: &Path, cell: Option<&CellDir>, database: &Path) -> Result<(), Failure> {
        let what = || format!("restoring into {}", dir.display());
        // While it is held, no server starts there.
        let pid_file = dir.join("server.pid");
        let _held = PidFile::hold(&pid_file, "the restore")?;
        let draft = database.with_extension("restoring");
        remove(&draft).doing(what)?;
        let begin = |head: &BackupHead| Restoring::begin(&draft, head.revision, now());
        let taken = self.take(&begin, cell.map(|cell| cell.config.name.as_str()));
        let (head, files, restored, description, words) = match taken {
            Ok(taken) => taken,
            Err(failure) => {
                let _ = remove(&draft);
                return Err(failure);
            }
        };
        if cell.is_none() && !files.iter().any(|(path, _)| path == "cell.toml") {
            let _ = remove(&draft);
            return Err(Failure::new(what(), "there is no cell.toml, and none in the backup").mend(
                "make the directory with its cell.toml and keys first, or use a backup that was \
                 made with --keys",
            ));
        }
        let mut aside = None;
        if database.exists() {
            let to = database.with_extension(format!("before-{}", stamp(Timestamp::new(now(), 0))));
            set_aside(&draft, database, &to).doing(what)?;
            aside = Some(to);
        } else {
            fs::rename(&draft, database).doing(what)?;
        }
        if cell.is_none() {
            // Last of all cell.toml, without which there is no cell.
            let (last, first): (BackupFiles, BackupFiles) =
                files.into_iter().partition(|(path, _)| path == "cell.toml");
            first
                .iter()
                .chain(&last)
                .try_for_each(|(path, bytes)| put(dir, path, bytes))
                .doing(what)?;
        }
        File::open(dir).and_then(|dir| dir.sync_all()).doing(what)?;
        self.tell(&head, &restored, aside.as_deref(), description, &words);
        Ok(())
    }

    /// Reads the backup into the new database.
    #[allow(clippy::type_complexity)]
    fn take(
        &self,
        begin_in: &dyn Fn(&BackupHead) -> Result<Restoring, CellError>,
        cell: Option<&str>,
    ) -> Result<(BackupHead, BackupFiles, Restored, serde_json::Value, String), Failure> {
        let restoring: RefCell<Option<Restoring>> = RefCell::new(None);
        let mut files = BackupFiles::new();
        let mut begin = |head: &BackupHead| {
            if let Some(name) = cell.filter(|name| *name != head.cell) {
                let why = format!("it is of the cell {}, and this is {name}", head.cell);
                return Err(CellError::Misuse(why));
            }
            *restoring.borrow_mut() = Some(begin_in(head)?);
            Ok(())
        };
        let mut take = |item: BackupItem<'_>| {
            match item {
                BackupItem::Record { key, value, .. } => {
                    restoring.borrow_mut().as_mut().map_or(Ok(()), |to| to.put(key, value))?;
                }
                BackupItem::File { path, bytes } if is_ours(path) => {
                    files.push((path.to_owned(), Zeroizing::new(bytes.to_vec())));
                }
                BackupItem::File { path, .. } => {
                    let why = format!("it has the file {path}, which is no key of a cell");
                    return Err(CellError::Misuse(why));
                }
            }
            Ok(())
        };
        let (head, counts, is_encrypted) =
            read_file(&self.file, &self.passphrase, &mut begin, &mut take)?;
        let what = || format!("reading {}", self.file.display());
        let restoring = restoring.into_inner().ok_or("it has no head").doing(what)?;
        let restored = restoring.end().doing(what)?;
        let description = described(&head, &counts, is_encrypted);
        Ok((head, files, restored, description, in_words(&counts)))
    }

    fn tell(
        &self,
        head: &BackupHead,
        restored: &Restored,
        aside: Option<&Path>,
        mut description: serde_json::Value,
        words: &str,
    ) {
        let taken = iso(Timestamp::new(head.taken, 0));
        if self.json {
            description["restored_revision"] = json!(restored.revision.0);
            description["next_volume"] = json!(restored.next_volume);
            description["last_user"] = json!(restored.user.0);
            description["last_group"] = json!(restored.group.0);
            description["moved_aside"] = json!(aside);
            show::json(&description);
            return;
        }
        println!("restored the database of {} as of {taken}", head.cell);
        println!("{words}");
        if let Some(aside) = aside {
            println!("the database that was there is in {}", aside.display());
        }
        println!(
            "revision {} instead of {}; new users get numbers above {}, new groups below {}, new \
             volumes from {} on",
            restored.revision.0,
            head.revision.0,
            restored.user.0,
            restored.group.0,
            restored.next_volume
        );
        println!("all tokens have ended: users log in again");
        println!("unknown is what was changed after {taken}:");
        println!("  users and groups, passwords, members: those of the backup are in force");
        println!("  fences and administrators: add again what was added, 'rialto fence add'");
        println!("  keys that were withdrawn: withdraw them again, 'rialto keys withdraw SERVER'");
        println!("  volumes that were made or moved: 'rialto vos syncvldb' enters them");
        println!("start it with 'rialto up --dir {}'", self.dir.display());
    }
}

/// Whether a backup has such a file.
fn is_ours(path: &str) -> bool {
    path == "cell.toml" || path.starts_with("keys/")
}

fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Puts the new database in the place of the old one, and the old one aside. At no moment is there
/// none: a server that started then would make an empty one.
fn set_aside(new: &Path, old: &Path, aside: &Path) -> io::Result<()> {
    fs::rename(new, aside)?;
    match rustix::fs::renameat_with(CWD, aside, CWD, old, RenameFlags::EXCHANGE) {
        // Not every file system can.
        Err(rustix::io::Errno::INVAL) => {
            fs::rename(aside, new)?;
            fs::rename(old, aside)?;
            fs::rename(new, old)
        }
        exchanged => Ok(exchanged?),
    }
}

/// Writes a file that only its owner can read.
fn put(dir: &Path, path: &str, bytes: &[u8]) -> io::Result<()> {
    let path = dir.join(path);
    let parent = path.parent().unwrap_or(dir);
    DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    File::open(parent)?.sync_all()
}
