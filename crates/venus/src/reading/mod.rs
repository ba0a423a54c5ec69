//! Reading, and fetching what will be read next: bytes, pages of directories, small files in them,
//! snapshots. Imports `base` to `calls`.

mod directories;
mod open_dir;
mod read_ahead;
mod reader;
mod shown_names;
mod snapshots;

pub(crate) use self::directories::Directories;
pub(crate) use self::open_dir::{Early, EarlyDirs, OpenDir, Page, Progress};
pub(crate) use self::read_ahead::ReadAhead;
pub(crate) use self::reader::Reader;
pub(crate) use self::shown_names::ShownNames;
pub(crate) use self::snapshots::Snapshots;
