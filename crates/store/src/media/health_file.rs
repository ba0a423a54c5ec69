//! The file in which a server remembers that a partition is not well, beyond the partition's
//! opening (PH-1). It is not on the partition: a disk that fails may take nothing. A partition that
//! is well has none.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use types::{DiskHealth, Timestamp};
use waldb::{summed, write_whole};

const MAGIC: &str = "rialto health";

/// See the head of the file.
pub(crate) struct HealthFile {
    dir: PathBuf,
    name: String,
}

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RememberedHealth {
    pub(crate) state: DiskHealth,
    pub(crate) since: Timestamp,
    pub(crate) errors: u64,
    /// One line.
    pub(crate) last_error: String,
}

impl HealthFile {
    /// The file of the partition with this identifier: another disk in its place is another
    /// partition.
    pub(crate) fn new(dir: &Path, partition: u128) -> HealthFile {
        HealthFile { dir: dir.to_owned(), name: format!("{partition:032x}") }
    }

    /// `None`: the partition was well. Of a file that cannot be read it counts as failing.
    pub(crate) fn load(&self) -> Option<RememberedHealth> {
        let unknown = |why: String| RememberedHealth {
            state: DiskHealth::Failing,
            since: Timestamp::new(0, 0),
            errors: 0,
            last_error: format!("its health is not known: {}: {why}", self.name),
        };
        match fs::read_to_string(self.dir.join(&self.name)) {
            Ok(text) => Some(parse(&text).unwrap_or_else(|| unknown("the file is damaged".into()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(unknown(error.to_string())),
        }
    }

    /// On disk when it returns.
    pub(crate) fn save(&self, health: &RememberedHealth) -> io::Result<()> {
        if health.state == DiskHealth::Well {
            return match fs::remove_file(self.dir.join(&self.name)) {
                Ok(()) => fs::File::open(&self.dir)?.sync_all(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
            };
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        write_whole(&self.dir, &self.name, &text(health))
    }
}

fn text(health: &RememberedHealth) -> String {
    let RememberedHealth { state, since, errors, last_error } = health;
    let line = last_error.replace(char::is_control, " ");
    summed(&format!(
        "{MAGIC}\nstate {}\nsince {}\nerrors {errors}\nlast {line}\n",
        state.word(),
        since.secs
    ))
}

/// `None`: it is damaged, or well.
fn parse(text: &str) -> Option<RememberedHealth> {
    let mut lines = text.lines();
    if lines.next()? != MAGIC {
        return None;
    }
    let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let word = field("state")?;
    let state = [DiskHealth::Slow, DiskHealth::Failing].into_iter().find(|one| one.word() == word);
    let found = RememberedHealth {
        state: state?,
        since: Timestamp::new(field("since")?.parse().ok()?, 0),
        errors: field("errors")?.parse().ok()?,
        last_error: field("last")?.to_owned(),
    };
    (self::text(&found) == text).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ph1_what_is_not_well_is_remembered_and_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let file = HealthFile::new(&dir.path().join("health"), 7);
        assert_eq!(file.load(), None);
        let mut health = RememberedHealth {
            state: DiskHealth::Failing,
            since: Timestamp::new(5, 0),
            errors: 3,
            last_error: "sync: EIO\nof the disk".to_owned(),
        };
        file.save(&health).unwrap();
        health.last_error = "sync: EIO of the disk".to_owned();
        assert_eq!(file.load(), Some(health.clone()), "the error is one line");
        assert_eq!(HealthFile::new(&dir.path().join("health"), 8).load(), None, "another disk");

        let path = dir.path().join("health").join(&file.name);
        fs::write(&path, fs::read_to_string(&path).unwrap().replace("failing", "slow")).unwrap();
        let found = file.load().unwrap();
        assert_eq!(found.state, DiskHealth::Failing, "a damaged file says nothing good");
        assert!(found.last_error.contains("damaged"), "{}", found.last_error);

        health.state = DiskHealth::Well;
        file.save(&health).unwrap();
        file.save(&health).unwrap();
        assert_eq!(file.load(), None);
    }
}
