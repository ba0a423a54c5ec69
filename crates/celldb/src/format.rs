//! The file `FORMAT` in the directory of the cell database, beside RocksDB's files, has the format
//! version. It is read before anything is opened, so that an older program neither changes nor
//! misreads the data of a newer one.

use std::io;
use std::path::Path;

use waldb::{summed, write_whole};

use crate::CellError;

/// The layout of everything in the database.
pub const FORMAT_VERSION: u32 = 1;
const NAME: &str = "FORMAT";
const MAGIC: &str = "rialto cell database";

fn text(version: u32) -> String {
    summed(&format!("{MAGIC}\nversion {version}\n"))
}

/// The version of the database in `path`; `None`: there is none, or one that is older than this
/// file, which is version 1.
///
/// # Errors
/// `Version` if a newer program made it; `Damaged`, `Medium`.
pub fn check_format(path: &Path) -> Result<Option<u32>, CellError> {
    let file = path.join(NAME);
    match std::fs::read_to_string(&file) {
        Ok(text) => parse(&file, &text).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CellError::Medium(format!("{}: {error}", file.display()))),
    }
}

/// The version is read first: a newer layout may sum its text in another way.
fn parse(file: &Path, text: &str) -> Result<u32, CellError> {
    let damaged = || CellError::Damaged(file.display().to_string());
    let mut lines = text.lines();
    let version = lines
        .next()
        .filter(|line| *line == MAGIC)
        .and_then(|_| lines.next()?.strip_prefix("version "));
    let version: u32 = version.and_then(|version| version.parse().ok()).ok_or_else(damaged)?;
    if version != FORMAT_VERSION {
        return Err(CellError::Version {
            path: file.display().to_string(),
            found: version,
            known: FORMAT_VERSION,
        });
    }
    if text == self::text(version) { Ok(version) } else { Err(damaged()) }
}

/// Writes the file into a database that lacks it.
///
/// # Errors
/// `Medium`.
pub(crate) fn put_format(path: &Path) -> Result<(), CellError> {
    write_whole(path, NAME, &text(FORMAT_VERSION))
        .map_err(|error| CellError::Medium(format!("{}: {error}", path.join(NAME).display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Embedded;

    #[test]
    fn m14_a_newer_database_is_refused_and_untouched() {
        let dir = tempfile::tempdir().unwrap();
        drop(Embedded::open(dir.path()).unwrap());
        let format = dir.path().join(NAME);
        let first = "rialto cell database\nversion 1\ncrc32c bab0bc40\n";
        assert_eq!(std::fs::read_to_string(&format).unwrap(), first, "golden");
        let files = || -> Vec<_> {
            let all = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap());
            let mut all: Vec<_> = all
                .map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap()))
                .collect();
            all.sort_unstable();
            all
        };
        std::fs::write(&format, "rialto cell database\nversion 2\nsummed in another way\n")
            .unwrap();
        let before = files();
        let refused = Embedded::open(dir.path()).map(drop).unwrap_err();
        assert!(matches!(refused, CellError::Version { found: 2, known: 1, .. }), "{refused:?}");
        assert!(refused.to_string().contains("use the program that wrote it"), "{refused}");
        assert_eq!(files(), before);
        for bad in [
            first.replace('1', "0"),
            first.replace("bab0", "bab1"),
            String::new(),
            first[..30].to_owned(),
        ] {
            std::fs::write(&format, &bad).unwrap();
            let refused = Embedded::open(dir.path()).map(drop).unwrap_err();
            assert!(
                matches!(refused, CellError::Damaged(_) | CellError::Version { .. }),
                "{bad}: {refused:?}"
            );
        }
        // A database that is older than the file gets it.
        std::fs::remove_file(&format).unwrap();
        drop(Embedded::open(dir.path()).unwrap());
        assert_eq!(check_format(dir.path()), Ok(Some(1)));
    }
}
