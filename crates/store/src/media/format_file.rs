//! The files that identify a partition's directory: `FORMAT`, `sysid`, `lock`.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use waldb::{summed, write_whole};

use crate::OpenError;

/// The newest version of the layout of a partition: standbys have records in it that programs of
/// the versions before do not know.
pub const FORMAT_VERSION: u32 = 3;
/// The oldest version that is read and written, without converting anything.
pub const FORMAT_OLDEST: u32 = 2;
/// The version from which on a partition has records of standbys.
pub(crate) const FORMAT_STANDBYS: u32 = 3;
const MAGIC: &str = "rialto partition";

/// The settings of a new partition.
#[derive(Clone, Debug, Default)]
pub struct PartitionConfig {
    /// The server that owns the partition, for `sysid`.
    pub server: String,
}

/// The identity of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// The version of the layout.
    pub version: u32,
    /// The partition's identifier: 128 random bits.
    pub id: u128,
    /// The server that owns the partition.
    pub server: String,
}

fn medium(path: &Path, what: &str, error: &io::Error) -> OpenError {
    OpenError::Medium { path: path.display().to_string(), why: format!("{what}: {error}") }
}

fn damaged(path: &Path, why: &str) -> OpenError {
    OpenError::Damaged { path: path.display().to_string(), why: why.to_owned() }
}

/// The content of FORMAT.
pub(crate) fn text(version: u32, id: u128) -> String {
    summed(&format!("{MAGIC}\nversion {version}\nid {id:032x}\n"))
}

/// Creates the directory with everything except the engine and FORMAT, which [`seal`] writes last.
pub(crate) fn prepare(path: &Path, config: &PartitionConfig) -> Result<fs::File, OpenError> {
    // It contains small files and names: only the server's user may read it.
    let mut closed = fs::DirBuilder::new();
    closed.mode(0o700);
    path.parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| if path.is_dir() { Ok(()) } else { closed.create(path) })
        .map_err(|e| medium(path, "cannot make the directory", &e))?;
    let mut inside =
        fs::read_dir(path).map_err(|e| medium(path, "cannot read the directory", &e))?;
    if inside.next().is_some() {
        return Err(OpenError::NotEmpty { path: path.display().to_string() });
    }
    let lock = lock(path)?;
    closed.create(path.join("bodies")).map_err(|e| medium(path, "bodies", &e))?;
    write_whole(path, "sysid", &format!("{}\n", config.server))
        .map_err(|e| medium(path, "sysid", &e))?;
    Ok(lock)
}

/// Writes FORMAT: from then on the directory is a partition.
pub(crate) fn seal(path: &Path, version: u32, id: u128) -> Result<(), OpenError> {
    write_format(path, version, id).map_err(|e| medium(path, "FORMAT", &e))
}

/// Replaces FORMAT; stable when it returns.
pub(crate) fn write_format(path: &Path, version: u32, id: u128) -> io::Result<()> {
    write_whole(path, "FORMAT", &text(version, id))
}

/// The version that partitions have in a cell of this level (VE-6).
pub fn format_of_level(level: u32) -> u32 {
    if level >= 2 { FORMAT_VERSION } else { FORMAT_OLDEST }
}

/// How long a held lock may still become free: a process may be ending, or a child that has not
/// started its program yet may have our descriptors.
const LOCK_WAIT_MAX: Duration = Duration::from_millis(300);
const LOCK_STEP: Duration = Duration::from_millis(10);

/// Takes the lock that a server holds while it has the partition open.
pub(crate) fn lock(path: &Path) -> Result<fs::File, OpenError> {
    let file =
        fs::OpenOptions::new().create(true).truncate(false).write(true).open(path.join("lock"));
    let file = file.map_err(|e| medium(path, "lock", &e))?;
    let until = Instant::now() + LOCK_WAIT_MAX;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                std::thread::sleep(LOCK_STEP);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(OpenError::InUse { path: path.display().to_string() });
            }
            Err(error) => return Err(medium(path, "lock", &error.into())),
        }
    }
}

/// Reads and checks FORMAT and the files beside it, without opening the partition.
///
/// # Errors
/// As [`crate::Partition::open`], without `InUse`.
pub fn check_format(path: &Path) -> Result<Format, OpenError> {
    let no = |why: &str| OpenError::NotAPartition {
        path: path.display().to_string(),
        why: why.to_owned(),
    };
    let text = match fs::read(path.join("FORMAT")) {
        Ok(bytes) => String::from_utf8(bytes).map_err(|_| damaged(path, "FORMAT is not text"))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.exists() => {
            return Err(no("there is no such directory"));
        }
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Err(no("it has no FORMAT file"));
        }
        Err(error) => return Err(medium(path, "FORMAT", &error)),
    };
    let (version, id) = parse(path, &text)?;
    for part in ["meta", "bodies"] {
        if !path.join(part).is_dir() {
            return Err(damaged(path, &format!("the directory `{part}` is missing")));
        }
    }
    let server = fs::read_to_string(path.join("sysid"))
        .map_err(|_| damaged(path, "the file `sysid` is missing"))?;
    Ok(Format { version, id, server: server.trim_end().to_owned() })
}

/// The version comes first: a newer layout may sum its text in another way.
pub(crate) fn parse(path: &Path, text: &str) -> Result<(u32, u128), OpenError> {
    let mut lines = text.lines();
    if lines.next() != Some(MAGIC) {
        return Err(damaged(path, "the first line of FORMAT is wrong"));
    }
    let version = lines.next().and_then(|line| line.strip_prefix("version ")?.parse().ok());
    let version: u32 = version.ok_or_else(|| damaged(path, "FORMAT names no version"))?;
    if !(FORMAT_OLDEST..=FORMAT_VERSION).contains(&version) {
        let path = path.display().to_string();
        return Err(OpenError::UnknownVersion { path, found: version, known: FORMAT_VERSION });
    }
    let id = lines.next().and_then(|line| u128::from_str_radix(line.strip_prefix("id ")?, 16).ok());
    let id = id.filter(|id| self::text(version, *id) == text);
    id.map(|id| (version, id)).ok_or_else(|| damaged(path, "FORMAT fails its checksum"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_format() {
        let first =
            "rialto partition\nversion 1\nid 0123456789abcdef0123456789abcdef\ncrc32c 4a229e69\n";
        let id = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;
        assert_eq!(text(1, id), first);
        for version in FORMAT_OLDEST..=FORMAT_VERSION {
            assert_eq!(parse(Path::new("/p"), &text(version, id)).unwrap(), (version, id));
        }
    }

    #[test]
    fn m14_each_other_format_is_refused_by_its_name() {
        let path = Path::new("/p");
        let good = text(2, 7);
        assert_eq!(parse(path, &good).unwrap(), (2, 7));
        for other in [1, 4] {
            let refused = parse(path, &text(other, 7)).unwrap_err();
            assert!(matches!(refused, OpenError::UnknownVersion { known: 3, .. }), "{refused:?}");
            assert_eq!(refused.to_string().contains("dump its volumes"), other == 1, "{refused}");
        }
        for bad in [
            good.replace('7', "9"),
            good.replace("rialto", "realty"),
            String::new(),
            good[..40].to_owned(),
        ] {
            assert!(matches!(parse(path, &bad), Err(OpenError::Damaged { .. })), "{bad}");
        }
    }
}
