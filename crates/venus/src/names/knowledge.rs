//! The knowledge of files, and the order of answers and breaks.
//!
//! Model. [`Tables`] has the knowledge, under one lock. Beside it stands the *gate*, which counts
//! breaks and losses: an answer is stamped under the tables' lock, and a thread that replies into
//! the kernel holds the gate for reading and compares. So the kernel never caches what a break
//! ended. `epoch` counts the events that end body loans and everything that was asked for before:
//! lost leases and restarts of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use client::clock;
use lease::{CallStart, Holder};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};
use types::{BreakItem, Call, Caller, Fid, Name, SessionEpoch, Status, Time, posix};

use super::nodes::Node;
use super::{Cached, SendReads, Tables, wall};
use crate::base::{Attributes, EntryReply, Error, Stamp, VenusConfig};
use crate::data::{FileBytes, MountShared};

/// After so many answers that a break overtook, an open goes on without a promise.
const TRIES: usize = 16;

pub(crate) struct Names {
    tables: Mutex<Tables>,
    /// Signalled when a removal was answered: opens wait for it.
    removed: Condvar,
    gate: RwLock<u64>,
    /// A [`SessionEpoch`].
    epoch: AtomicU64,
    /// When trust ends without a renewal, in nanoseconds of [`client::clock`]: for replies into the
    /// kernel, which must not take the tables' lock.
    trusted_until: AtomicU64,
    /// Some file's reads are recorded: a volume without the option pays nothing for it.
    records_reads: Arc<AtomicBool>,
}

/// A file whose name is about to go: whether the server is asked for a hold, and the mark that
/// opens wait for.
pub(crate) struct Victim {
    pub hold: bool,
    pub marked: Option<Fid>,
}

impl Victim {
    /// Nothing that could be open.
    pub const NONE: Victim = Victim { hold: false, marked: None };
}

impl Names {
    /// `landed`: the journal's number up to which everything is at the server.
    pub fn new(config: &VenusConfig, common: &MountShared, landed: Arc<AtomicU64>) -> Self {
        let tables = Tables::new(config, common, landed);
        Names {
            records_reads: tables.reads.switch(),
            tables: Mutex::new(tables),
            removed: Condvar::new(),
            gate: RwLock::new(0),
            epoch: AtomicU64::new(1),
            trusted_until: AtomicU64::new(0),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock()
    }

    pub fn begin(&self) -> CallStart {
        self.tables.lock().holder.begin()
    }

    /// Taken under the same lock of the tables as the answer that it stamps.
    pub fn stamp(&self) -> Stamp {
        Stamp(*self.gate.read())
    }

    /// Runs `reply`, which writes a reply into the kernel; its argument tells whether the kernel
    /// may still cache the answer stamped `stamp`. Breaks wait until it is done.
    pub fn answering<R>(&self, stamp: Stamp, reply: impl FnOnce(bool) -> R) -> R {
        let breaks = self.gate.read();
        reply(*breaks == stamp.0)
    }

    /// Breaks wait as long as the result lives.
    pub fn hold_breaks(&self) -> RwLockReadGuard<'_, u64> {
        self.gate.read()
    }

    /// Answers stamped before are not cached by the kernel any more.
    pub fn advance_gate(&self) {
        *self.gate.write() += 1;
    }

    /// Waits for the threads that reply into the kernel.
    pub fn let_replies_end(&self) {
        drop(self.gate.write());
    }

    pub fn epoch(&self) -> SessionEpoch {
        SessionEpoch(self.epoch.load(Ordering::Acquire))
    }

    /// How long the server is trusted without a renewal.
    pub fn trusted_for(&self) -> Duration {
        let until = Duration::from_nanos(self.trusted_until.load(Ordering::Acquire));
        Time::from_start(until).since(clock::now())
    }

    /// The data of `fid`, if it has bytes here or is open.
    pub fn file_of(&self, fid: Fid) -> Option<Arc<FileBytes>> {
        self.tables.lock().file_of(fid)
    }

    /// All files that are open or have bytes here.
    pub fn files(&self) -> Vec<Arc<FileBytes>> {
        self.tables.lock().files()
    }

    /// The server's status, while it is promised.
    pub fn promised_status(&self, fid: Fid) -> Option<Status> {
        let tables = self.tables.lock();
        let node = tables.nodes.get(&fid).filter(|node| node.valid)?;
        node.status.filter(|_| tables.trusted())
    }

    pub fn is_open(&self, fid: Fid) -> bool {
        self.tables.lock().nodes.whole(&fid).is_some_and(|node| node.opens > 0)
    }

    /// Whether the file has lost its last name.
    pub fn is_gone(&self, fid: Fid) -> bool {
        let tables = self.tables.lock();
        let status = tables.nodes.whole(&fid).and_then(|node| node.status);
        status.is_some_and(|status| status.links == 0)
    }

    /// Whether the file is over: it has no name, and no application here can reach it any more
    /// (`writeback/removed.rs`). If so, whether a delegation covers it: no other client can either.
    pub fn over(&self, fid: Fid) -> Option<bool> {
        let tables = self.tables.lock();
        let node = tables.nodes.whole(&fid)?;
        let is_over = node.has_no_name() && node.opens == 0 && !node.held;
        is_over.then(|| tables.trusted() && tables.nodes.covers(fid))
    }

    /// Whether the file has no name and is not open here.
    pub fn is_removed(&self, fid: Fid) -> bool {
        let tables = self.tables.lock();
        tables.nodes.whole(&fid).is_some_and(|node| node.has_no_name() && node.opens == 0)
    }

    /// Ends the holds of files without a name that are not open here; returns these files.
    pub fn end_removed_holds(&self) -> Vec<Fid> {
        let mut tables = self.tables.lock();
        let is_removed = |node: &Node| node.held && node.opens == 0 && node.has_no_name();
        let removed = tables.nodes.each_whole().filter(|(_, node)| is_removed(node));
        removed
            .map(|(fid, node)| {
                node.held = false;
                *fid
            })
            .collect()
    }

    /// Whether a delegation covers the file, and it has no bytes.
    pub fn is_covered_and_empty(&self, fid: Fid) -> bool {
        let tables = self.tables.lock();
        let status = tables.nodes.whole(&fid).and_then(|node| node.status);
        let empty = status.is_some_and(|status| status.size == 0);
        empty && tables.trusted() && tables.nodes.covers(fid)
    }

    /// The status of a file, a read of which is to be noted now.
    pub fn due_read(&self, fid: Fid, always: bool) -> Option<Status> {
        if !self.records_reads.load(Ordering::Relaxed) {
            return None;
        }
        let status = self.promised_status(fid)?;
        (status.read_times && (always || posix::is_read_due(&status, wall()))).then_some(status)
    }

    /// A program of the caller has read the file: its status shows that from now on. Returns when
    /// to tell the server; `None`: it is not recorded.
    pub fn note_read(&self, fid: Fid, caller: &Caller) -> Option<SendReads> {
        let tables = &mut *self.tables.lock();
        let status = tables.nodes.get(&fid).filter(|node| node.valid)?.status?;
        let (at, send) = tables.reads.note(&status, caller, wall())?;
        tables.nodes.set_accessed(fid, at);
        Some(send)
    }

    /// Counts one more reference of the kernel to a file that an answer made or found. `named`: the
    /// kernel may cache the name.
    pub fn entry(
        &self,
        tables: &mut Tables,
        status: Status,
        cacheable: bool,
        named: bool,
    ) -> EntryReply {
        tables.nodes.refer(status.fid);
        EntryReply { status, cacheable, name_cacheable: named, stamp: self.stamp() }
    }

    /// Under the lock of the tables.
    pub fn attributes(&self, status: Status, cacheable: bool) -> Attributes {
        Attributes { status, cacheable, stamp: self.stamp() }
    }

    pub fn resolve(&self, dir: Fid, name: &Name) -> Option<Fid> {
        self.tables.lock().resolve(dir, name)
    }

    /// Called before `call`, which changes something, is sent; the result lives until the answer
    /// has been entered. It is not dropped under the lock of the tables.
    pub fn away(&self, call: &mut Call) -> Away<'_> {
        let (fids, blind) = self.tables.lock().leave(call);
        Away { names: self, fids, blind }
    }
}

/// Opens and removals.
impl Names {
    /// Counts one more open of `fid`, an existing plain file; `fetch` asks for its status.
    ///
    /// # Errors
    /// That of `fetch`, or why the file cannot be opened.
    pub fn count_open(
        &self,
        fid: Fid,
        fetch: impl Fn() -> Result<Status, Error>,
    ) -> Result<Arc<FileBytes>, Error> {
        for _ in 0..TRIES {
            let mut tables = self.tables.lock();
            while tables.is_removing(fid) {
                self.removed.wait(&mut tables);
            }
            if tables.status(fid).is_some() {
                return tables.count_open(fid);
            }
            let snapshot = tables.holder.begin();
            drop(tables);
            fetch()?;
            let mut tables = self.tables.lock();
            if tables.holder.promised(fid, snapshot) && !tables.is_removing(fid) {
                return tables.count_open(fid);
            }
        }
        self.tables.lock().count_open(fid)
    }

    /// Marks the file that a name means, before the name is removed: opens wait from now on, if the
    /// server is told that it is not open.
    pub fn mark_victim(&self, dir: Fid, name: &Name) -> Victim {
        let mut tables = self.tables.lock();
        let Some(fid) = tables.resolve(dir, name) else {
            return Victim { hold: true, marked: None };
        };
        let node = tables.nodes.node(fid);
        if node.opens > 0 || node.held {
            return Victim { hold: true, marked: None };
        }
        node.removing += 1;
        Victim { hold: false, marked: Some(fid) }
    }

    /// As [`Names::mark_victim`], but usually there is nothing to replace.
    pub fn mark_replaced(&self, dir: Fid, name: &Name) -> Victim {
        let absent = matches!(self.tables.lock().lookup(dir, name), Cached::Absent);
        if absent { Victim::NONE } else { self.mark_victim(dir, name) }
    }

    /// The removal was answered or refused.
    pub fn unmark(&self, victim: &Victim) {
        let Some(fid) = victim.marked else { return };
        let mut tables = self.tables.lock();
        let node = tables.nodes.node(fid);
        assert!(node.removing > 0, "HO-1: a removal that ends was marked");
        node.removing -= 1;
        self.removed.notify_all();
    }

    /// One handle less. Returns whether that was the last one of a held file: its hold is to end.
    pub fn count_release(&self, fid: Fid) -> bool {
        let mut tables = self.tables.lock();
        let Some(node) = tables.nodes.whole_mut(&fid) else { return false };
        // A shutdown has closed all of them.
        node.opens = node.opens.saturating_sub(1);
        node.opens == 0 && node.held
    }

    /// All open files; from now on they are held, because a server without a promise for them does
    /// not know that they are open.
    pub fn hold_open_files(&self) -> Vec<Fid> {
        let mut tables = self.tables.lock();
        let open = tables.nodes.each_whole().filter(|(_, node)| node.opens > 0);
        open.map(|(fid, node)| {
            node.held = true;
            *fid
        })
        .collect()
    }

    /// The client ends: no held file counts as open any more. Returns these files.
    pub fn close_held_files(&self) -> Vec<Fid> {
        let mut tables = self.tables.lock();
        let held = tables.nodes.each_whole().filter(|(_, node)| node.held);
        held.map(|(fid, node)| {
            node.opens = 0;
            *fid
        })
        .collect()
    }

    /// Of these files, those that are not open again; they are held no more.
    pub fn end_holds(&self, mut fids: Vec<Fid>) -> Vec<Fid> {
        let mut tables = self.tables.lock();
        fids.sort_unstable();
        fids.dedup();
        fids.retain(|fid| {
            let Some(node) = tables.nodes.whole_mut(fid) else { return true };
            let idle = node.held && node.opens == 0;
            node.held &= !idle;
            idle
        });
        fids
    }
}

/// Breaks, and the trust in the server.
impl Names {
    /// The server ended promises; returns the files that are open here.
    pub fn on_break(&self, items: &[BreakItem]) -> Vec<Fid> {
        let mut tables = self.tables.lock();
        let held = tables.on_break(items);
        self.advance_gate();
        held
    }

    /// The lease was renewed; returns when trust ends.
    pub fn on_renewed(&self, sent_at: Time) -> Time {
        let mut tables = self.tables.lock();
        tables.holder.on_renewed(sent_at);
        self.note_trust(&tables)
    }

    /// Whether the lease has run out by now; and when trust ends.
    pub fn expire(&self) -> (bool, Time) {
        let mut tables = self.tables.lock();
        let expired = tables.holder.expire(clock::now());
        (expired, self.note_trust(&tables))
    }

    /// All promises are void, for the reason that `mark` enters. Returns the delegations that
    /// ended.
    pub fn void(&self, mark: impl FnOnce(&mut Holder)) -> Vec<Fid> {
        let mut tables = self.tables.lock();
        mark(&mut tables.holder);
        self.note_trust(&tables);
        tables.void();
        debug_assert!(
            tables.nodes.each_whole().all(|(_, node)| !node.valid),
            "CB-4: nothing is answered from what was promised before"
        );
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.advance_gate();
        tables.end_delegations()
    }

    /// Called after each change of how long the server is trusted.
    fn note_trust(&self, tables: &Tables) -> Time {
        let until = tables.holder.trusted_until();
        let nanos = u64::try_from(until.since_start().as_nanos()).unwrap_or(u64::MAX);
        self.trusted_until.store(nanos, Ordering::Release);
        until
    }
}

/// An own call that changes files at the server: meanwhile nothing about them is answered here.
pub(crate) struct Away<'a> {
    names: &'a Names,
    fids: Vec<Fid>,
    /// The files are not all known: meanwhile nothing at all is answered here.
    blind: bool,
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        self.names.tables.lock().come_back(&self.fids, self.blind);
    }
}
