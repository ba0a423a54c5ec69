//! Preallocated bodies that no file has.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use types::Fid;

use crate::data::file_data::FileBytes;
use crate::data::passed_file::Blank;

#[derive(Default)]
pub(crate) struct BlankPool {
    pub fresh: Vec<Blank>,
    pub files: HashMap<Fid, Arc<FileBytes>>,
    /// Files that are closed, in the order of their last closes; some may be open again, or have no
    /// blank any more.
    pub idle: VecDeque<Arc<FileBytes>>,
    /// Blanks that are fresh or have a file.
    pub count: usize,
    /// A call for more is under way.
    pub asking: bool,
    pub not_before: Option<Instant>,
    /// New files in a row that were short when their makers closed them, and the time of the last
    /// such close.
    pub short: u32,
    pub made: Option<Instant>,
    pub session: u64,
}
