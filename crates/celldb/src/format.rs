//! The file `FORMAT` in the directory of the cell database, beside RocksDB's files, has the format
//! version. It is read before anything is opened, so that an older program neither changes nor
//! misreads the data of a newer one.

use std::io;
use std::path::Path;

use waldb::{summed, write_whole};

use crate::CellError;

/// The layout of everything in the database.
pub const FORMAT_VERSION: u32 = 1;
/// In place of the layout's version, where the database is not in use: so a program that knows
/// nothing of that refuses it too.
const STATE_VERSION: u32 = 2;
const NAME: &str = "FORMAT";
const MAGIC: &str = "rialto cell database";

/// Whether a database may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    InUse,
    /// Records are copied into it, from the database that is named.
    Filling(String),
    /// Its records are copied, to the place that is named. Nothing changes here.
    Moving(String),
    /// The database is there now, and never here again.
    Moved(String),
}

/// The text of a state.
pub(crate) fn state_text(state: &State) -> String {
    let (what, place) = match state {
        State::InUse => return summed(&format!("{MAGIC}\nversion {FORMAT_VERSION}\n")),
        State::Filling(from) => ("filling", from),
        State::Moving(to) => ("moving", to),
        State::Moved(to) => ("moved", to),
    };
    summed(&format!("{MAGIC}\nversion {STATE_VERSION}\n{what} {place}\n"))
}

/// The version of the database in `path`; `None`: there is none, or one that is older than this
/// file, which is version 1.
///
/// # Errors
/// `Version` if a newer program made it; `Moved` if the database is elsewhere now; `Damaged`,
/// `Medium`.
pub fn check_format(path: &Path) -> Result<Option<u32>, CellError> {
    match read_state(path)? {
        None => Ok(None),
        Some(State::InUse) => Ok(Some(FORMAT_VERSION)),
        Some(State::Filling(to) | State::Moving(to) | State::Moved(to)) => {
            Err(CellError::Moved { from: path.display().to_string(), to })
        }
    }
}

/// The state of the database in `path`.
pub(crate) fn read_state(path: &Path) -> Result<Option<State>, CellError> {
    let file = path.join(NAME);
    match std::fs::read_to_string(&file) {
        Ok(text) => parse_state(&file.display().to_string(), &text).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CellError::Medium(format!("{}: {error}", file.display()))),
    }
}

/// The state in a text; `name`: where it was read. The version is read first: a newer layout may
/// sum its text in another way.
pub(crate) fn parse_state(name: &str, text: &str) -> Result<State, CellError> {
    let damaged = || CellError::Damaged(name.to_owned());
    let mut lines = text.lines();
    let version = lines
        .next()
        .filter(|line| *line == MAGIC)
        .and_then(|_| lines.next()?.strip_prefix("version "));
    let version: u32 = version.and_then(|version| version.parse().ok()).ok_or_else(damaged)?;
    let state = match (version, lines.next().and_then(|line| line.split_once(' '))) {
        (FORMAT_VERSION, _) => Some(State::InUse),
        (STATE_VERSION, Some(("filling", place))) => Some(State::Filling(place.to_owned())),
        (STATE_VERSION, Some(("moving", place))) => Some(State::Moving(place.to_owned())),
        (STATE_VERSION, Some(("moved", place))) => Some(State::Moved(place.to_owned())),
        _ => None,
    };
    let state = state.ok_or_else(|| CellError::Version {
        path: name.to_owned(),
        found: version,
        known: FORMAT_VERSION,
    })?;
    if text == state_text(&state) { Ok(state) } else { Err(damaged()) }
}

/// Writes the file into a database that lacks it.
///
/// # Errors
/// `Medium`.
pub(crate) fn put_format(path: &Path) -> Result<(), CellError> {
    put_state(path, &State::InUse)
}

/// Replaces the state of the database in `path`.
///
/// # Errors
/// `Medium`.
pub(crate) fn put_state(path: &Path, state: &State) -> Result<(), CellError> {
    write_whole(path, NAME, &state_text(state))
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
