//! Preallocated bodies: the kernel writes new files into them without a call
//! (docs/spec/passthrough.md). The code calls them blanks.
//!
//! A blank is *fresh*, or a file *has* it: the kernel writes the file's bytes into it. Its bytes
//! are *sealed* (`journal_writes.rs`) as written bytes are, so at the server the file is one like
//! any other; or it is *adopted*, and is then a body loan like any other (`passthrough.rs`). After
//! the last close it is *idle*: it stays with the file for readers of what was just written, until
//! another new file needs one, a second passed, or no delegation covers the file any more. Then it
//! is taken off, which requires that no other process has it open (PT-9).
//!
//! While a file has a blank a delegation covers it (PT-8): a thread that ends a delegation first
//! withdraws the blanks that are not covered then. The end of a session ends its blanks: unsealed
//! bytes are lost, and the file reports that for ever.
//!
//! Only handles that cannot read write blanks, because such a handle cannot be mapped for writing:
//! each change of a blank shows in the file's times, and there is none after the last handle is
//! closed.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use client::Reply;
use types::{Answer, Call, Caller, Fid};

use crate::base::request::RequestContext;
use crate::base::result::OpenMode;
use crate::core::Core;
use crate::data::body_stamp::BodyStamp;
use crate::data::file_data::FileBytes;
use crate::data::passed_file::{Blank, PassedFile};
use crate::data::scratch_body::{ScratchBody, set_length};
use crate::names::node_tables::Tables;
use crate::passthrough::blank_pool::BlankPool;

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

impl Core {
    /// A blank for a file that was just made and is opened with `mode`, if a fresh one is there.
    pub fn begin_blank(&self, file: &Arc<FileBytes>, mode: OpenMode) -> Option<PassedFile> {
        let may = mode.write && !mode.read && self.config.delegations && self.passes().is_ok();
        if !may
            || self.expects_short()
            || self.space.is_scarce()
            || !self.is_covered_and_empty(file.fid)
        {
            return None;
        }
        let blank = self.fresh_blank(file.fid)?;
        file.set_scratch(Some(ScratchBody::new(Arc::clone(&blank.body))));
        let passed = PassedFile::with_blank(blank.backing, Arc::clone(&blank.body), blank);
        file.data.lock().passed = Some(passed.clone());
        self.blanks.lock().files.insert(file.fid, Arc::clone(file));
        // A thread that ends the delegation from here on finds the file, and waits for its
        // `choice`.
        if !self.is_covered_and_empty(file.fid) {
            let blank = self.take_off(file);
            blank.into_iter().for_each(|blank| self.put_blank(blank));
            return None;
        }
        self.passed.fetch_add(1, Ordering::Relaxed);
        self.schedule_check(file);
        Some(passed)
    }

    /// Whether the next new file is likely to be short.
    pub fn expects_short(&self) -> bool {
        let blanks = self.blanks.lock();
        blanks.short >= SHORT_FILES && blanks.made.is_some_and(|at| at.elapsed() < SHORT_PAUSE)
    }

    /// Whether a delegation covers the file, and it has no bytes.
    fn is_covered_and_empty(&self, fid: Fid) -> bool {
        let tables = self.tables.lock();
        let empty = tables
            .nodes
            .whole(&fid)
            .and_then(|node| node.status)
            .is_some_and(|status| status.size == 0);
        empty && tables.trusted() && tables.covers(fid)
    }

    /// The handle that made the file is closed.
    pub fn note_made(&self, fid: Fid) {
        let size = self.tables.lock().status(fid).map(|(status, _)| status.size);
        let now = Instant::now();
        let mut blanks = self.blanks.lock();
        let late = blanks.made.replace(now).is_some_and(|at| now - at >= SHORT_PAUSE);
        blanks.short = match size {
            Some(size) if size > SHORT_BYTES => 0,
            Some(_) if late => 1,
            Some(_) => blanks.short.saturating_add(1),
            None => blanks.short,
        };
    }

    /// The janitor checks the file when its bytes would be old enough.
    fn schedule_check(&self, file: &Arc<FileBytes>) {
        let mut chores = self.chores.lock();
        let first = chores.aging.is_empty();
        chores.aging.push_back((Instant::now(), Arc::clone(file)));
        if first {
            self.poke.notify_one();
        }
    }

    pub fn fresh_blanks(&self) -> usize {
        self.blanks.lock().fresh.len()
    }

    fn fresh_blank(&self, fid: Fid) -> Option<Blank> {
        let fresh = self.blanks.lock().fresh.pop();
        let blank = fresh.or_else(|| self.take_off_oldest());
        self.ask_for_blanks(fid);
        blank
    }

    /// A directory is delegated: fetches the first blanks, if there are none.
    pub fn first_blanks(&self, dir: Fid) {
        if self.passes().is_ok() && self.is_local() && self.may_ask(|blanks| blanks.count == 0) {
            self.fetch_blanks(dir, ASKED_AT_FIRST);
        }
    }

    /// Asks for more in the background, if there are few.
    fn ask_for_blanks(&self, fid: Fid) {
        if self.may_ask(|blanks| blanks.fresh.len() < FRESH_FEW && blanks.count < BLANKS_MAX) {
            let core = self.this.get().and_then(std::sync::Weak::upgrade);
            self.senders.run(move || {
                core.into_iter().for_each(|core| core.fetch_blanks(fid, ASKED_AT_ONCE));
            });
        }
    }

    /// Whether more may be asked for now, if they are `wanted`. A caller that receives true asks.
    fn may_ask(&self, wanted: impl FnOnce(&BlankPool) -> bool) -> bool {
        let mut blanks = self.blanks.lock();
        let late = blanks.not_before.is_none_or(|at| at <= Instant::now());
        let may = wanted(&blanks) && !blanks.asking && late;
        blanks.asking |= may;
        may
    }

    fn fetch_blanks(&self, fid: Fid, count: usize) {
        let session = self.blanks.lock().session;
        let calls = vec![Call::LendBlank { fid: Fid::root(fid.volume) }; count];
        let replies = self.remote.chain(&Caller::ROOT, calls);
        let refused = replies.iter().any(Result::is_err);
        let blanks: Vec<Blank> = replies
            .into_iter()
            .flatten()
            .filter_map(|reply| self.blank_of(reply, session))
            .collect();
        let mut all = self.blanks.lock();
        all.asking = false;
        all.not_before = (refused || blanks.is_empty()).then(|| Instant::now() + ASK_PAUSE);
        if all.session == session {
            all.count += blanks.len();
            all.fresh.extend(blanks);
        }
    }

    fn blank_of(&self, reply: Reply, session: u64) -> Option<Blank> {
        let (Answer::Blank(number), Some(body)) = (reply.answer, reply.body) else { return None };
        let backing = self.invalidator().pass(body.as_fd())?;
        Some(Blank { number, body: Arc::new(body), backing, session: Some(session), busy: false })
    }

    /// The session is over, and with it its blanks.
    pub fn forget_blanks(&self) {
        let mut blanks = self.blanks.lock();
        blanks.session += 1;
        blanks.count = 0;
        let fresh = std::mem::take(&mut blanks.fresh);
        drop(blanks);
        fresh.into_iter().for_each(|blank| self.invalidator().unpass(blank.backing));
    }
}

impl Core {
    /// The last handle of a file is closed; the caller holds its `choice`. Returns whether the file
    /// retains its blank.
    pub fn rest_blank(&self, file: &Arc<FileBytes>) -> bool {
        let gone = self.is_gone(file.fid);
        let data = file.data.lock();
        if data.passed.as_ref().is_none_or(|passed| passed.blank.is_none()) {
            return false;
        }
        file.scratch(|scratch| {
            if gone {
                // No call will ever ask for it.
                scratch.sealed = BodyStamp::of(&scratch.body);
            }
            (scratch.idle, scratch.still) = (true, gone);
        });
        drop(data);
        self.blanks.lock().idle.push_back(Arc::clone(file));
        true
    }

    /// Ensures that the next new file finds a blank.
    pub fn refresh_blanks(&self) {
        if self.blanks.lock().fresh.len() < FRESH_FEW
            && let Some(blank) = self.take_off_oldest()
        {
            self.blanks.lock().fresh.push(blank);
        }
    }

    /// Whether the file has lost its last name.
    pub fn is_gone(&self, fid: Fid) -> bool {
        let tables = self.tables.lock();
        tables
            .nodes
            .whole(&fid)
            .and_then(|node| node.status)
            .is_some_and(|status| status.links == 0)
    }

    /// The blank that is idle for longest.
    fn take_off_oldest(&self) -> Option<Blank> {
        let mut left = self.blanks.lock().idle.len();
        while left > 0 {
            left -= 1;
            let file = self.blanks.lock().idle.pop_front()?;
            if !file.is_idle() {
                continue;
            }
            let taken = match file.choice.try_lock() {
                Some(choice) if choice.is_unused() => self.take_off(&file),
                Some(_) => continue,
                None => None,
            };
            match taken {
                Some(blank) => {
                    self.drop_if_unused(&file);
                    return self.usable(blank);
                }
                None if file.has_blank() => self.blanks.lock().idle.push_back(file),
                None => {}
            }
        }
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
        drop(data);
        if scratch.is_some_and(|scratch| scratch.read_beside) {
            self.invalidator().inode_data(file.fid);
        }
        Some(blank)
    }

    /// The file has no blank any more. Under the lock of its `data`, if another thread can reach
    /// the file.
    pub fn drop_scratch(&self, file: &FileBytes) -> Option<ScratchBody> {
        self.blanks.lock().files.remove(&file.fid);
        file.set_scratch(None)
    }

    /// A blank is of no use to new files any more.
    pub fn lose_blank(&self, blank: &mut Blank) {
        let mut blanks = self.blanks.lock();
        if blank.session == Some(blanks.session) {
            blanks.count -= 1;
        }
        blank.session = None;
    }

    /// Gives a blank that was taken off to the next new file.
    pub fn put_blank(&self, blank: Blank) {
        if let Some(blank) = self.usable(blank) {
            self.blanks.lock().fresh.push(blank);
        }
    }

    /// Cuts a blank to length 0; `None` if it is of no use any more.
    fn usable(&self, mut blank: Blank) -> Option<Blank> {
        let ours = blank.session == Some(self.blanks.lock().session);
        if ours && set_length(&blank.body, 0).is_ok() {
            return Some(blank);
        }
        self.lose_blank(&mut blank);
        self.invalidator().unpass(blank.backing);
        None
    }

    /// The bytes of a file that has a blank are old enough to be sent.
    pub fn check_blank(self: &Arc<Self>, file: &Arc<FileBytes>) {
        if !file.has_blank() || file.is_lost() {
            return;
        }
        if let Some(choice) = file.choice.try_lock()
            && choice.is_unused()
            && let Some(blank) = self.take_off(file)
        {
            drop(choice);
            self.drop_if_unused(file);
            self.put_blank(blank);
            return;
        }
        self.schedule_check(file);
    }

    /// Files whose blanks no delegation covers lose them: taken off, or adopted.
    pub fn withdraw_uncovered(&self) {
        self.withdraw(|tables, file| !tables.covers(file.fid));
    }

    /// The same for files that the delegation of this directory covers, which is about to end.
    pub fn withdraw_children(&self, dir: Fid) {
        self.withdraw(|tables, file| {
            tables
                .nodes
                .whole(&file.fid)
                .and_then(|node| node.sole)
                .is_some_and(|(under, _)| under == dir)
        });
    }

    fn withdraw(&self, which: impl Fn(&Tables, &FileBytes) -> bool) {
        let mut files: Vec<Arc<FileBytes>> = self.blanks.lock().files.values().cloned().collect();
        if !files.is_empty() {
            let tables = self.tables.lock();
            files.retain(|file| which(&tables, file));
        }
        files.iter().for_each(|file| self.withdraw_one(file));
    }

    fn withdraw_one(&self, file: &Arc<FileBytes>) {
        let choice = file.choice.lock();
        let blank = if choice.is_unused() { self.take_off(file) } else { None };
        match blank {
            Some(blank) => self.put_blank(blank),
            // A loss was reported already.
            None => drop(self.adopt_held(file, None)),
        }
        if choice.is_unused() {
            self.end_unused(file);
        }
        drop(choice);
        self.drop_if_unused(file);
    }

    /// A body that was adopted while the file was closed goes back. The caller holds its `choice`.
    pub fn end_unused(&self, file: &Arc<FileBytes>) {
        let Some(passed) = file.data.lock().passed.clone() else { return };
        if passed.blank.is_some() && !file.is_lost() {
            return;
        }
        if passed.is_borrowed() {
            self.return_body(&RequestContext::of(&Caller::ROOT), file);
        }
        self.end_pass(file);
    }
}
