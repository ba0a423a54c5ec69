//! This server's records of principals, in a file, so that a start while the database is away
//! serves the users that were served before.
//!
//! The file: its format, when the database last confirmed it (seconds since 1970), the service's
//! data ([`vice::Identities::learnt`]), and a checksum. It is replaced as a whole, and readable by
//! its owner alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use celldb::Following;
use vice::Vice;

use crate::loopback::wall;

const MAGIC: &[u8] = b"rialto learnt 1\n";
/// The shortest time between two writes of the file.
const PAUSE: Duration = Duration::from_secs(5);
/// The longest time while the database answers, since the file has the time of the last answer.
const AT_LEAST: Duration = Duration::from_secs(60);

/// Writes the file when the records change.
pub(crate) struct Learnt {
    file: PathBuf,
    cell: Arc<Following>,
    /// The count of changes of the records when the file was written.
    seen: u64,
    written: Option<Instant>,
    looked: Option<Instant>,
}

impl Learnt {
    /// With this file, whose contents the service starts from.
    pub fn of(file: PathBuf, vice: &Vice, cell: Arc<Following>) -> Learnt {
        match fs::read(&file) {
            Ok(bytes) => begin_with(&file, &bytes, vice, &cell),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::error!(%error, file = %file.display(), "the records of users cannot be \
                    read; the database is asked for them again");
            }
        }
        Learnt { file, cell, seen: 0, written: None, looked: None }
    }

    /// Called several times a second.
    pub fn keep(&mut self, vice: &Vice) {
        let Some(confirmed) = self.cell.heard_ago().filter(|ago| *ago < PAUSE) else { return };
        if self.looked.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        self.looked = Some(Instant::now());
        let is_old = self.written.is_none_or(|at| at.elapsed() >= AT_LEAST);
        let Some((seen, bytes)) =
            vice.identities().learnt(if is_old { u64::MAX } else { self.seen })
        else {
            return;
        };
        let confirmed = wall().secs - confirmed.as_secs() as i64;
        if let Err(error) = write(&self.file, &encode(confirmed, &bytes)) {
            tracing::error!(%error, file = %self.file.display(), "the records of users cannot be \
                stored for a start without the database");
        }
        (self.seen, self.written) = (seen, Some(Instant::now()));
    }
}

fn begin_with(file: &Path, bytes: &[u8], vice: &Vice, cell: &Following) {
    let Some((confirmed, learnt)) = decode(bytes) else {
        tracing::error!(file = %file.display(), "the records of users are damaged and not \
            used; the database is asked for them again");
        return;
    };
    // A clock that was set back would make it younger than it is.
    let Ok(ago) = u64::try_from(wall().secs - confirmed) else {
        tracing::warn!(file = %file.display(), "the records of users are of the future and not \
            used; check this machine's clock");
        return;
    };
    if vice.identities().remember_learnt(learnt) {
        cell.heard_before(Duration::from_secs(ago));
    } else {
        tracing::error!(file = %file.display(), "the records of users have another format and are \
            not used");
    }
}

fn encode(confirmed: i64, learnt: &[u8]) -> Vec<u8> {
    let mut bytes = [MAGIC, &confirmed.to_le_bytes(), learnt].concat();
    let sum = crc32c::crc32c(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (bytes, sum) = bytes.split_last_chunk::<4>()?;
    if crc32c::crc32c(bytes) != u32::from_le_bytes(*sum) {
        return None;
    }
    let (confirmed, learnt) = bytes.strip_prefix(MAGIC)?.split_first_chunk::<8>()?;
    Some((i64::from_le_bytes(*confirmed), learnt))
}

fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = file.with_extension("new");
    let _ = fs::remove_file(&draft);
    let mut to: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    to.write_all(bytes)?;
    to.sync_all()?;
    fs::rename(&draft, file)?;
    file.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}
