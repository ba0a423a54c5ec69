//! What the janitor has to do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use types::{Fid, Time};

use crate::data::file_data::FileBytes;

#[derive(Default)]
pub(crate) struct Chores {
    /// Files that became dirty, oldest first.
    pub aging: VecDeque<(Instant, Arc<FileBytes>)>,
    /// Held files whose last handle is closed: their holds end.
    pub unhold: Vec<Fid>,
    /// Held files that a new session must claim again.
    pub hold: Vec<Fid>,
    pub commit: bool,
    pub committed: Option<Instant>,
    /// When the lease ends without a renewal.
    pub lease: Option<Time>,
    /// When the pinned bodies are due for a check.
    pub tend: Option<Instant>,
    pub stop: bool,
}
