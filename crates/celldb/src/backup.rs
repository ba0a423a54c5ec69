//! The file of a backup: all records of the cell database as of one revision, and whatever files
//! the cell's directory gave along (`docs/spec/cell-database.md`).
//!
//! A reader gives what it reads to its caller at once, but the file is whole only if the reader
//! comes to the end without an error: the end has the number of items and a SHA-256 of everything
//! before it, and nothing follows it. A file that is cut off, changed, of another program or of a
//! newer one is an error that says so. The sum detects damage and not an attacker, who can compute
//! it too; an encrypted file is authenticated (crate `keys`).

use std::io::{self, Read, Write};

use aws_lc_rs::digest::{Context, SHA256};
use types::Revision;
use types::limits::{CELL_BYTES_MAX, CELL_KEY_BYTES_MAX};

use crate::copy::CELL_VALUE_BYTES_MAX;
use crate::record::{self, RecordKind};
use crate::{CellError, FORMAT_VERSION};

/// The first bytes of the file.
pub const BACKUP_MAGIC: &[u8; 16] = b"rialto cell copy";
/// The version of the file's form; [`FORMAT_VERSION`] is that of the records in it.
pub const BACKUP_VERSION: u32 = 1;
/// Bytes of a file's name in the backup.
const PATH_BYTES_MAX: usize = 1024;
const SUM_BYTES: usize = 32;

const END: u8 = 0;
const RECORD: u8 = 1;
const FILE: u8 = 2;

/// The head of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupHead {
    /// The cell's name.
    pub cell: String,
    /// The revision of the database that the records show.
    pub revision: Revision,
    /// When it was made, in seconds since 1970, by the clock of the machine that made it.
    pub taken: i64,
}

/// An item of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupItem<'a> {
    /// A record, whose value was checked.
    Record {
        /// The record's key.
        key: &'a [u8],
        /// The record's value.
        value: &'a [u8],
        /// The kind that the key names.
        kind: RecordKind,
    },
    /// A file of the cell's directory.
    File {
        /// The place below the directory: names, separated by `/`.
        path: &'a str,
        /// The content.
        bytes: &'a [u8],
    },
}

/// The content of a backup in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupCounts {
    /// All records.
    pub records: u64,
    /// Users, without those that every cell has.
    pub users: u64,
    /// Groups and host sets, without those that every cell has.
    pub groups: u64,
    /// Trees of volumes.
    pub volumes: u64,
    /// Servers.
    pub servers: u64,
    /// Fences and delegations of administration.
    pub rules: u64,
    /// Hashes of passwords.
    pub passwords: u64,
    /// Files of the cell's directory.
    pub files: u64,
}

/// Why a file is no whole backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The file begins otherwise.
    #[error("it is no backup of a cell")]
    Foreign,
    /// A newer program made it.
    #[error("a newer program made it (version {found}; this one knows {known}): use that program")]
    Newer {
        /// The version of the file, or of the records in it.
        found: u32,
        /// The newest that this program knows.
        known: u32,
    },
    /// It ends before its end mark.
    #[error("it is cut off")]
    Cut,
    /// Something follows its end mark.
    #[error("something follows its end: it is no single backup")]
    Followed,
    /// Its bytes are not those that were written.
    #[error("it is damaged ({0})")]
    Damaged(String),
    /// The caller did not take an item.
    #[error("{0}")]
    Refused(CellError),
    /// It cannot be read or written.
    #[error("{0}")]
    Io(io::Error),
}

impl From<io::Error> for BackupError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => BackupError::Cut,
            // A reader below found that the bytes are not those that were written.
            io::ErrorKind::InvalidData => BackupError::Damaged(error.to_string()),
            _ => BackupError::Io(error),
        }
    }
}

/// Writes a backup.
pub struct BackupWriter<W> {
    to: W,
    sum: Context,
    count: u64,
}

impl<W: Write> BackupWriter<W> {
    /// Writes the head.
    ///
    /// # Errors
    /// The writer's; a cell's name that is too long.
    pub fn new(to: W, head: &BackupHead) -> io::Result<Self> {
        let mut writer = BackupWriter { to, sum: Context::new(&SHA256), count: 0 };
        let cell = head.cell.as_bytes();
        let length = u16::try_from(cell.len()).ok().filter(|_| cell.len() <= CELL_BYTES_MAX);
        let length = length.ok_or_else(|| io::Error::other("the name of the cell is too long"))?;
        writer.put(BACKUP_MAGIC)?;
        writer.put(&BACKUP_VERSION.to_le_bytes())?;
        writer.put(&FORMAT_VERSION.to_le_bytes())?;
        writer.put(&head.revision.0.to_le_bytes())?;
        writer.put(&head.taken.to_le_bytes())?;
        writer.put(&length.to_le_bytes())?;
        writer.put(cell)?;
        Ok(writer)
    }

    /// Writes a record.
    ///
    /// # Errors
    /// The writer's; a key or value that is too long.
    pub fn record(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.item(RECORD, (key, CELL_KEY_BYTES_MAX), value)
    }

    /// Writes a file of the cell's directory.
    ///
    /// # Errors
    /// The writer's; a name or content that is too long.
    pub fn file(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.item(FILE, (path.as_bytes(), PATH_BYTES_MAX), bytes)
    }

    /// Writes the end.
    ///
    /// # Errors
    /// The writer's.
    pub fn end(mut self) -> io::Result<W> {
        self.put(&[END])?;
        self.put(&self.count.to_le_bytes())?;
        let sum = self.sum.finish();
        self.to.write_all(sum.as_ref())?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn item(&mut self, kind: u8, (name, max): (&[u8], usize), bytes: &[u8]) -> io::Result<()> {
        if name.is_empty() || name.len() > max || bytes.len() > CELL_VALUE_BYTES_MAX {
            let name = name.escape_ascii();
            return Err(io::Error::other(format!("{name} is too long for a backup")));
        }
        self.put(&[kind])?;
        self.put(&(name.len() as u32).to_le_bytes())?;
        self.put(&(bytes.len() as u32).to_le_bytes())?;
        self.put(name)?;
        self.put(bytes)?;
        self.count += 1;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.to.write_all(bytes)
    }
}

/// Reads a backup to its end, and gives each item to `take`. The caller may use the items only if
/// this returns without an error.
///
/// # Errors
/// [`BackupError`]; an error of `take` is `Refused`.
pub fn read_backup(
    from: impl Read,
    head: &mut dyn FnMut(&BackupHead) -> Result<(), CellError>,
    take: &mut dyn FnMut(BackupItem<'_>) -> Result<(), CellError>,
) -> Result<(BackupHead, BackupCounts), BackupError> {
    let mut reader = BackupReader { from, sum: Context::new(&SHA256) };
    let found = reader.head()?;
    head(&found).map_err(BackupError::Refused)?;
    let mut counts = BackupCounts::default();
    let mut last = Vec::new();
    loop {
        let kind = reader.array::<1>()?[0];
        if kind == END {
            break;
        }
        let max = match kind {
            RECORD => CELL_KEY_BYTES_MAX,
            FILE => PATH_BYTES_MAX,
            other => return Err(BackupError::Damaged(format!("an item of the kind {other}"))),
        };
        let [length, value_length] = [reader.u32()? as usize, reader.u32()? as usize];
        if length == 0 || length > max || value_length > CELL_VALUE_BYTES_MAX {
            return Err(BackupError::Damaged("a length that no item has".to_owned()));
        }
        let (name, value) = (reader.bytes(length)?, reader.bytes(value_length)?);
        if kind == FILE {
            let path = std::str::from_utf8(&name).ok().filter(|path| is_below(path));
            let path = path.ok_or_else(|| BackupError::Damaged("the name of a file".to_owned()))?;
            counts.files += 1;
            take(BackupItem::File { path, bytes: &value }).map_err(BackupError::Refused)?;
            continue;
        }
        if name <= last {
            return Err(BackupError::Damaged("records out of order".to_owned()));
        }
        let kind = record::check(&name, &value)
            .map_err(|error| BackupError::Damaged(error.to_string()))?;
        count(&mut counts, &name, kind);
        take(BackupItem::Record { key: &name, value: &value, kind })
            .map_err(BackupError::Refused)?;
        last = name;
    }
    let count = u64::from_le_bytes(reader.array()?);
    let BackupReader { mut from, sum } = reader;
    let mut wanted = [0; SUM_BYTES];
    from.read_exact(&mut wanted)?;
    if sum.finish().as_ref() != wanted || count != counts.records + counts.files {
        return Err(BackupError::Damaged("its checksum is wrong".to_owned()));
    }
    match from.read(&mut [0])? {
        0 => Ok((found, counts)),
        _ => Err(BackupError::Followed),
    }
}

/// Whether a name leads to a file below the directory.
fn is_below(path: &str) -> bool {
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('\0');
    path.split('/').all(is_name)
}

fn count(counts: &mut BackupCounts, key: &[u8], kind: RecordKind) {
    counts.records += 1;
    let of_cell = guard::system_principals().iter().any(|one| crate::key::principal(one.id) == key);
    match kind {
        RecordKind::User if !of_cell => counts.users += 1,
        RecordKind::Group | RecordKind::Hosts if !of_cell => counts.groups += 1,
        RecordKind::Volumes => counts.volumes += 1,
        RecordKind::Server => counts.servers += 1,
        RecordKind::Fence | RecordKind::Mandate => counts.rules += 1,
        RecordKind::Password => counts.passwords += 1,
        _ => {}
    }
}

struct BackupReader<R> {
    from: R,
    sum: Context,
}

impl<R: Read> BackupReader<R> {
    fn head(&mut self) -> Result<BackupHead, BackupError> {
        let magic = self.array::<16>().map_err(|error| match error {
            BackupError::Cut => BackupError::Foreign,
            other => other,
        })?;
        if magic != *BACKUP_MAGIC {
            return Err(BackupError::Foreign);
        }
        for known in [BACKUP_VERSION, FORMAT_VERSION] {
            match self.u32()? {
                0 => return Err(BackupError::Damaged("version 0".to_owned())),
                found if found > known => return Err(BackupError::Newer { found, known }),
                _ => {}
            }
        }
        let revision = Revision(u64::from_le_bytes(self.array()?));
        let taken = i64::from_le_bytes(self.array()?);
        let length = u16::from_le_bytes(self.array()?);
        if usize::from(length) > CELL_BYTES_MAX {
            return Err(BackupError::Damaged("the name of the cell".to_owned()));
        }
        let cell = String::from_utf8(self.bytes(length.into())?)
            .map_err(|_| BackupError::Damaged("the name of the cell".to_owned()))?;
        Ok(BackupHead { cell, revision, taken })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BackupError> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes)?;
        self.sum.update(&bytes);
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, BackupError> {
        self.array().map(u32::from_le_bytes)
    }

    /// Takes memory only for bytes that are there.
    fn bytes(&mut self, count: usize) -> Result<Vec<u8>, BackupError> {
        let mut bytes = Vec::new();
        self.from.by_ref().take(count as u64).read_to_end(&mut bytes)?;
        self.sum.update(&bytes);
        if bytes.len() == count { Ok(bytes) } else { Err(BackupError::Cut) }
    }
}
