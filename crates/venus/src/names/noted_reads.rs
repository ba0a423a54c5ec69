//! Reads that the server is still to record as access times (`relatime`).
//!
//! Model. A volume that records reads says so in each status. A read that is due
//! ([`posix::is_read_due`]) is entered into the cached status at once, so that this machine's
//! programs see it, and noted here. The janitor sends the notes some seconds later, many in one
//! request (`ops/reads.rs`): a read waits for no call. A status that comes from the server before
//! that gets the noted time again. The table is bounded: reads that find it full are not recorded.
//!
//! The server changes no version with an access time, and breaks no promise. So what it answers may
//! differ in this one time from what this client answered under a delegation (DE-5 makes an
//! exception of it where reads are recorded).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use types::{Call, Caller, Fid, Status, Timestamp, posix};

/// Most reads that wait to be sent, in files: some hundred KiB.
const NOTED_MAX: usize = 4096;
/// From so many on they are sent at once.
const NOTED_MANY: usize = NOTED_MAX / 2;

/// A read of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotedRead {
    pub caller: Caller,
    /// The access time before.
    pub was: Timestamp,
    pub at: Timestamp,
}

/// When the notes are to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendReads {
    /// In some seconds.
    Later,
    /// There are many.
    Now,
}

#[derive(Default)]
pub(crate) struct NotedReads {
    noted: HashMap<Fid, NotedRead>,
    /// Some status said that reads are recorded.
    ever: Arc<AtomicBool>,
}

impl NotedReads {
    /// Whether any status said that reads are recorded, for readers without the tables' lock.
    pub fn switch(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.ever)
    }

    /// Notes a read of a file with this status. Returns its time, and when to send it.
    pub fn note(
        &mut self,
        status: &Status,
        caller: &Caller,
        now: Timestamp,
    ) -> Option<(Timestamp, SendReads)> {
        if !status.read_times {
            return None;
        }
        // This machine's clock may be behind the server's, and the read came after the change.
        let changed = status.modified.max(status.changed).later(Duration::from_nanos(1));
        let at = now.max(changed);
        if at <= status.accessed {
            return None;
        }
        if self.noted.len() >= NOTED_MAX && !self.noted.contains_key(&status.fid) {
            return None;
        }
        let was = self.noted.get(&status.fid).map_or(status.accessed, |noted| noted.was);
        self.noted.insert(status.fid, NotedRead { caller: caller.clone(), was, at });
        let many = self.noted.len() >= NOTED_MANY;
        Some((at, if many { SendReads::Now } else { SendReads::Later }))
    }

    /// A status as the server has it: the noted read is not recorded there yet.
    pub fn apply(&mut self, status: &mut Status) {
        if !status.read_times {
            return;
        }
        self.ever.store(true, Ordering::Relaxed);
        if let Some(noted) = self.noted.get(&status.fid)
            && posix::is_newer_read(status, noted.was, noted.at)
        {
            status.accessed = noted.at;
        }
    }

    /// The access time of the file is about to be set.
    pub fn forget(&mut self, fid: Fid) {
        self.noted.remove(&fid);
    }

    /// All of them, with their calls, by caller.
    pub fn calls(&self) -> Vec<(Caller, Vec<Call>)> {
        let mut by_caller: HashMap<&Caller, Vec<Call>> = HashMap::new();
        for (fid, NotedRead { caller, was, at }) in &self.noted {
            let call = Call::NoteRead { fid: *fid, was: *was, at: *at };
            by_caller.entry(caller).or_default().push(call);
        }
        by_caller.into_iter().map(|(caller, calls)| (caller.clone(), calls)).collect()
    }

    /// The server has executed or refused the call.
    pub fn sent(&mut self, call: &Call) {
        if let Call::NoteRead { fid, at, .. } = call
            && self.noted.get(fid).is_some_and(|noted| noted.at == *at)
        {
            self.noted.remove(fid);
        }
    }

    /// The session is over.
    pub fn clear(&mut self) {
        self.noted.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.noted.is_empty()
    }
}
