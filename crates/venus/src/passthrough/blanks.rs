//! The pool of preallocated bodies (`preallocated.rs`), which the code calls blanks: fresh ones,
//! and which files have one. A session's blanks end with it.

use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Reply;
use parking_lot::Mutex;
use types::{Answer, Call, Caller, Fid};

use crate::cache::Cache;
use crate::data::{Blank, FileBytes, ScratchBody, set_length};
use crate::session::Ground;

/// Where the last new files were all so short, and so many, the next one is expected to be short
/// too, and written back: that costs no more, and less where a single write is the whole file.
/// Files with a longer pause between them are not in a row.
const SHORT_BYTES: u64 = 64 << 10;

const SHORT_FILES: u32 = 8;

const SHORT_PAUSE: Duration = Duration::from_millis(500);

const BLANKS_MAX: usize = 64;

/// Blanks per request; the first come with the first delegation, before it is used: the first new
/// file may be a long one.
const ASKED_AT_ONCE: usize = 16;

const ASKED_AT_FIRST: usize = 2;

/// With fewer fresh ones an idle one is taken off, or more are asked for.
const FRESH_FEW: usize = 8;

/// Pause after a refusal.
const ASK_PAUSE: Duration = Duration::from_secs(5);

/// Preallocated bodies that no file has, and which files have one.
pub(crate) struct Blanks {
    ground: Ground,
    cache: Arc<Cache>,
    pool: Mutex<BlankPool>,
}

impl Blanks {
    pub fn new(ground: &Ground, cache: &Arc<Cache>) -> Self {
        Blanks { ground: ground.clone(), cache: Arc::clone(cache), pool: Mutex::default() }
    }

    /// Whether the next new file is likely to be short.
    pub fn expects_short(&self) -> bool {
        let blanks = self.pool.lock();
        blanks.short >= SHORT_FILES && blanks.made.is_some_and(|at| at.elapsed() < SHORT_PAUSE)
    }

    /// The handle that made the file is closed.
    pub fn note_made(&self, fid: Fid) {
        let size = self.ground.names.lock().status(fid).map(|(status, _)| status.size);
        let now = Instant::now();
        let mut blanks = self.pool.lock();
        let late = blanks.made.replace(now).is_some_and(|at| now - at >= SHORT_PAUSE);
        blanks.short = match size {
            Some(size) if size > SHORT_BYTES => 0,
            Some(_) if late => 1,
            Some(_) => blanks.short.saturating_add(1),
            None => blanks.short,
        };
    }

    pub fn fresh_blanks(&self) -> usize {
        self.pool.lock().fresh.len()
    }

    /// A directory is delegated: fetches the first blanks, if there are none.
    pub fn first_blanks(&self, dir: Fid) {
        if self.cache.passes().is_ok()
            && self.ground.server.is_local()
            && self.may_ask(|blanks| blanks.count == 0)
        {
            self.fetch_blanks(dir, ASKED_AT_FIRST);
        }
    }

    /// Asks for more in the background, if there are few.
    pub fn ask_for_blanks(self: &Arc<Self>, fid: Fid) {
        if self.may_ask(|blanks| blanks.fresh.len() < FRESH_FEW && blanks.count < BLANKS_MAX) {
            let this = Arc::clone(self);
            self.ground.workers.send(move || this.fetch_blanks(fid, ASKED_AT_ONCE));
        }
    }

    /// Whether more may be asked for now, if they are `wanted`. A caller that receives true asks.
    fn may_ask(&self, wanted: impl FnOnce(&BlankPool) -> bool) -> bool {
        let mut blanks = self.pool.lock();
        let late = blanks.not_before.is_none_or(|at| at <= Instant::now());
        let may = wanted(&blanks) && !blanks.asking && late;
        blanks.asking |= may;
        may
    }

    fn fetch_blanks(&self, fid: Fid, count: usize) {
        let session = self.pool.lock().session;
        let calls = vec![Call::LendBlank { fid: Fid::root(fid.volume) }; count];
        let replies = self.ground.server.remote().chain(&Caller::ROOT, calls);
        let refused = replies.iter().any(Result::is_err);
        let blanks: Vec<Blank> = replies
            .into_iter()
            .flatten()
            .filter_map(|reply| self.blank_of(reply, session))
            .collect();
        let mut all = self.pool.lock();
        all.asking = false;
        all.not_before = (refused || blanks.is_empty()).then(|| Instant::now() + ASK_PAUSE);
        if all.session == session {
            all.count += blanks.len();
            all.fresh.extend(blanks);
        }
    }

    fn blank_of(&self, reply: Reply, session: u64) -> Option<Blank> {
        let (Answer::Blank(number), Some(body)) = (reply.answer, reply.body) else { return None };
        let backing = self.ground.kernel.port().pass(body.as_fd())?;
        Some(Blank { number, body: Arc::new(body), backing, session: Some(session), busy: false })
    }

    /// The session is over, and with it its blanks.
    pub fn forget_blanks(&self) {
        let mut blanks = self.pool.lock();
        blanks.session += 1;
        blanks.count = 0;
        let fresh = std::mem::take(&mut blanks.fresh);
        drop(blanks);
        fresh.into_iter().for_each(|blank| self.ground.kernel.port().unpass(blank.backing));
    }

    /// The file has no blank any more. Under the lock of its `data`, if another thread can reach
    /// the file.
    pub fn drop_scratch(&self, file: &FileBytes) -> Option<ScratchBody> {
        self.pool.lock().files.remove(&file.fid);
        file.set_scratch(None)
    }

    /// A blank is of no use to new files any more.
    pub fn lose_blank(&self, blank: &mut Blank) {
        let mut blanks = self.pool.lock();
        if blank.session == Some(blanks.session) {
            assert!(blanks.count > 0, "PT-9: a blank that goes was counted");
            blanks.count -= 1;
        }
        blank.session = None;
    }

    /// Gives a blank that was taken off to the next new file.
    pub fn put_blank(&self, blank: Blank) {
        if let Some(blank) = self.usable(blank) {
            self.pool.lock().fresh.push(blank);
        }
    }

    /// Cuts a blank to length 0; `None` if it is of no use any more.
    pub fn usable(&self, mut blank: Blank) -> Option<Blank> {
        let ours = blank.session == Some(self.pool.lock().session);
        if ours && set_length(&blank.body, 0).is_ok() {
            return Some(blank);
        }
        self.lose_blank(&mut blank);
        self.ground.kernel.port().unpass(blank.backing);
        None
    }

    /// Takes the blank off a file that is not open, if everything in it is sealed and no process
    /// has it mapped. The caller holds its `choice`.
    pub fn take_off(&self, file: &Arc<FileBytes>) -> Option<Blank> {
        let mut data = file.data.lock();
        let blank = data
            .passed
            .as_ref()
            .and_then(|passed| passed.blank.clone())
            .filter(|blank| !blank.busy)?;
        if file.is_behind() || mem::lease::is_open_elsewhere(blank.body.as_fd()) != Ok(false) {
            return None;
        }
        data.passed = None;
        let scratch = self.drop_scratch(file);
        debug_assert!(scratch.is_some(), "PT-9: a blank that is taken off was its file's body");
        drop(data);
        if scratch.is_some_and(|scratch| scratch.read_beside) {
            self.ground.kernel.port().inode_data(file.fid);
        }
        Some(blank)
    }

    /// Takes a fresh blank.
    pub fn pop(&self) -> Option<Blank> {
        self.pool.lock().fresh.pop()
    }

    /// A file has a blank now.
    pub fn add_file(&self, file: &Arc<FileBytes>) {
        self.pool.lock().files.insert(file.fid, Arc::clone(file));
    }

    /// Files that have blanks.
    pub fn files(&self) -> Vec<Arc<FileBytes>> {
        self.pool.lock().files.values().cloned().collect()
    }

    /// The file was closed last of all.
    pub fn push_idle(&self, file: Arc<FileBytes>) {
        self.pool.lock().idle.push_back(file);
    }

    /// The file that is closed for longest, and how many are closed.
    pub fn pop_idle(&self) -> Option<Arc<FileBytes>> {
        self.pool.lock().idle.pop_front()
    }

    pub fn idle(&self) -> usize {
        self.pool.lock().idle.len()
    }

    /// Whether the next new file may find none.
    pub fn are_few(&self) -> bool {
        self.pool.lock().fresh.len() < FRESH_FEW
    }

    /// Adds a usable blank.
    pub fn push(&self, blank: Blank) {
        self.pool.lock().fresh.push(blank);
    }
}

#[derive(Default)]
pub(crate) struct BlankPool {
    fresh: Vec<Blank>,
    pub files: HashMap<Fid, Arc<FileBytes>>,
    /// Files that are closed, in the order of their last closes; some may be open again, or have no
    /// blank any more.
    pub idle: VecDeque<Arc<FileBytes>>,
    /// Blanks that are fresh or have a file.
    pub count: usize,
    /// A call for more is under way.
    asking: bool,
    pub not_before: Option<Instant>,
    /// New files in a row that were short when their makers closed them, and the time of the last
    /// such close.
    short: u32,
    pub made: Option<Instant>,
    session: u64,
}
