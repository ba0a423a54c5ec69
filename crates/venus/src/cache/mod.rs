//! Bytes that were read or fetched ahead, of all files: the disk cache's use, memory, small files,
//! the order in which files are read. Makes no calls. Imports `base` to `session`.

mod access_pattern;
mod admission;
mod file_cache;
mod siblings;

pub(crate) use self::access_pattern::{FetchAhead, ListedDirs, Named};
pub(crate) use self::admission::Admission;
pub(crate) use self::file_cache::{Cache, READ_MIN, SIZE_MAX, SIZE_MIN};
pub(crate) use self::siblings::{ANSWER_MAX, Siblings, is_file_up_to};
