//! Sending the journal, and entering the server's answers.
//!
//! A thread that waits for an entry sends chains itself, unless another thread does so. The flusher
//! sends entries that are old enough, and a long queue: a job that the janitor starts, and that
//! ends with its work.
//!
//! The server's answer is compared with the one that was given here (DE-5). A refusal means that an
//! answer given here was wrong: it is reported like a failed write, and the client and the kernel
//! forget the files concerned. A lost session loses every unsent entry.
//!
//! *Sealing*: written bytes of a covered file become entries of the journal, and the file's status
//! is exact from then on. It happens where bytes are sent otherwise: when the file is closed or
//! synced, when its status is asked for or changed, or when the bytes are old enough. The sender
//! threads write a file with many bytes as it streams: the journal's bytes wait in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{CallError, Cancel};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use types::{Answer, Call, Caller, Fault, Fid, Kind, Timestamp};

use super::{Journal, JournalEntry, MetadataSubject, Take, Unstable, fids_of};
use crate::base::{Error, POLL_INTERVAL};
use crate::cache::Cache;
use crate::data::{BodyStamp, Chunk, Data, FileBytes, Landed, read_at};
use crate::names::{Answered, Identity, Local, Tables, wall};
use crate::session::Ground;

/// Pause before a chain is sent again to a server that had no room for it.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Most bytes of one sealing.
const DIRTY_SEALED_MAX: usize = 1 << 20;

/// Longer bodies are adopted.
const BODY_SEALED_MAX: u64 = 1 << 20;

/// After so many seals a body is adopted, unless it is very short: each seal sends all of it again.
const SEALS_MAX: u32 = 2;

const SHORT_BYTES: u64 = 64 << 10;

/// The unit of a status's blocks.
const SECTOR: u64 = 512;

/// A body without holes may be so much shorter than its blocks.
const PAGE: u64 = 4096;

/// Sends the journal, and enters the answers.
pub(crate) struct Flusher {
    ground: Ground,
    cache: Arc<Cache>,
    unstable: Arc<Unstable>,
    journal: Arc<Journal>,
    identity: Arc<Identity>,
    /// Entries cut out of the journal, whose bytes are still to be freed.
    cuts: Mutex<Vec<JournalEntry>>,
    /// Counts answers of the server that differ from those given here (DE-5), except behind a lost
    /// change.
    differences: AtomicU64,
    /// Entries up to this number may depend on a lost one.
    distrusted: AtomicU64,
}

impl Flusher {
    pub fn new(
        ground: &Ground,
        cache: &Arc<Cache>,
        unstable: &Arc<Unstable>,
        journal: &Arc<Journal>,
        identity: &Arc<Identity>,
    ) -> Self {
        Flusher {
            ground: ground.clone(),
            cache: Arc::clone(cache),
            unstable: Arc::clone(unstable),
            journal: Arc::clone(journal),
            identity: Arc::clone(identity),
            cuts: Mutex::default(),
            differences: AtomicU64::new(0),
            distrusted: AtomicU64::new(0),
        }
    }

    /// Sends until everything up to this entry has landed.
    ///
    /// # Errors
    /// [`Error::Interrupted`] only.
    pub fn flush_until(&self, until: u64, cancel: Option<&Cancel>) -> Result<(), Error> {
        if let Some(cancel) = cancel.filter(|_| self.ground.config.gives_up) {
            return self.wait_until_flushed(until, cancel);
        }
        while self.journal.landed() < until {
            if cancel.is_some_and(Cancel::is_cancelled) {
                return Err(Error::Interrupted);
            }
            match self.journal.take() {
                Take::Chain(chain) => self.send_chain(chain),
                Take::Busy => self.journal.wait(POLL_INTERVAL),
                Take::Nothing => return Ok(()),
            }
        }
        Ok(())
    }

    /// The same for a caller that may give up: a thread that sends a chain waits for its answers,
    /// so the flusher's thread sends.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    fn wait_until_flushed(&self, until: u64, cancel: &Cancel) -> Result<(), Error> {
        self.journal.want(until);
        self.ground.chores.look_at_journal(true);
        while self.journal.landed() < until {
            if cancel.is_cancelled() {
                return Err(Error::Interrupted);
            }
            self.journal.wait_for_landing(POLL_INTERVAL);
        }
        Ok(())
    }

    /// The same for everything that was answered here.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn wait_until_all_flushed(&self, cancel: &Cancel) -> Result<(), Error> {
        self.wait_until_flushed(self.journal.last(), cancel)
    }

    /// Changes of names and status that the server has not executed, or may lose.
    pub fn unsaved(&self) -> u64 {
        self.journal.waiting() + self.unstable.changed_files() as u64
    }

    /// Sends until everything that was answered here has landed.
    ///
    /// # Errors
    /// As `drain`.
    pub fn flush_all(&self, cancel: Option<&Cancel>) -> Result<(), Error> {
        self.flush_until(self.journal.last(), cancel)
    }

    /// Called before an entry is added: waits while the journal is too long.
    fn wait_for_journal(&self) {
        while let Some(until) = self.journal.crowded() {
            // Interrupted is the only error, and this is short.
            let _ = self.flush_until(until.min(self.journal.last()), None);
        }
    }

    /// The flusher's job, which the janitor starts.
    pub fn flush_journal(&self) {
        while self.journal.goes_on(self.ground.config.dirty_age) {
            match self.journal.take() {
                Take::Chain(chain) => self.send_chain(chain),
                Take::Busy => self.journal.wait(POLL_INTERVAL),
                Take::Nothing => {}
            }
        }
        self.ground.chores.look_at_journal(false);
    }

    /// How many answers given here differ from the server's (DE-5).
    pub fn differences(&self) -> u64 {
        self.differences.load(Ordering::Acquire)
    }

    fn send_chain(&self, chain: Vec<JournalEntry>) {
        let Some(first) = chain.first() else { return };
        let caller = first.caller.clone();
        let mut calls: Vec<Call> = chain.iter().map(delegated).collect();
        let made = chain.iter().rev().find_map(|entry| match &entry.call {
            Call::Make { dir, .. } => Some(*dir),
            _ => None,
        });
        let refill = made.filter(|made| self.ground.names.lock().wants_slots(*made));
        calls.extend(refill.map(|fid| Call::Delegate { fid }));
        let (snapshot, place) = (self.ground.names.begin(), self.ground.server.place());
        let mut replies = self.ground.server.remote().chain(&caller, calls);
        if let Some(dir) = refill
            && let Some(Ok(reply)) = replies.pop()
            && let Answer::Delegation { slots, .. } = reply.answer
        {
            self.ground.names.lock().add_slots(dir, snapshot, slots);
        }
        let (mut again, mut lost) = (Vec::new(), Vec::new());
        let mut why = Error::Lost;
        for (entry, reply) in chain.into_iter().zip(replies) {
            match reply {
                Ok(reply) => {
                    self.unstable.check_instance(place, &reply);
                    if let Some(subject) = MetadataSubject::of(&entry.call) {
                        self.unstable.note(place, &reply, subject);
                    }
                    self.entry_landed(&entry, &reply.answer);
                }
                Err(CallError::Fault(Fault::ChainAborted)) => again.push(entry),
                Err(CallError::Fault(Fault::Busy | Fault::CellAway)) => {
                    std::thread::sleep(BUSY_PAUSE);
                    again.push(entry);
                }
                Err(CallError::Fault(fault)) => self.entry_lost(&entry, &fault.into()),
                Err(error) => {
                    why = error.into();
                    lost.push(entry);
                }
            }
        }
        if !lost.is_empty() {
            lost.append(&mut again);
            self.lose_journal(lost, &why);
        }
        self.journal.land(again);
    }

    /// The session is over: neither the journal nor these entries, which were on their way, will
    /// ever be executed.
    pub fn lose_journal(&self, mut entries: Vec<JournalEntry>, why: &Error) {
        let ended = {
            let mut tables = self.ground.names.lock();
            let ended = tables.end_delegations();
            entries.extend(self.journal.lose());
            ended
        };
        if let Some(duties) = self.ground.chores.duties() {
            duties.give_back_soon(ended);
        }
        if !entries.is_empty() {
            tracing::error!(changes = entries.len(), %why, "session lost; unsent changes are \
                lost");
        }
        entries.iter().for_each(|entry| self.entry_lost(entry, why));
    }

    fn entry_landed(&self, entry: &JournalEntry, answer: &Answer) {
        let difference = Difference::between(&entry.expected, entry.cut, answer);
        if difference != Difference::None {
            let number = entry.number;
            let is_known = number <= self.distrusted.load(Ordering::Acquire);
            if !is_known && difference == Difference::Fault {
                tracing::error!(
                    expected = ?entry.expected, ?answer, call = ?entry.call,
                    "DE-5: the server's answer differs from the one given here"
                );
                self.differences.fetch_add(1, Ordering::AcqRel);
            }
            self.distrust(entry.fids());
        }
        if let Some((file, chunk)) = &entry.data {
            let mut data = file.data.lock();
            data.unseal(entry.number);
            if let Answer::Written { count, status, previous_version, verifier, .. } = *answer {
                let landed = Landed { count, status, previous: previous_version, verifier };
                self.landed(file, &mut data, chunk, &landed);
            }
            self.unstable.account(file, &mut data);
            drop(data);
            self.cache.drop_if_unused(file);
        }
    }

    /// The answer given here was wrong.
    fn entry_lost(&self, entry: &JournalEntry, why: &Error) {
        tracing::warn!(call = %describe(&entry.call), %why, "delegated change lost");
        // Later entries were answered on top of it.
        self.distrusted.fetch_max(self.journal.last(), Ordering::AcqRel);
        if let Some((file, _)) = &entry.data {
            self.unseal(file, entry.number, Some(why));
        } else {
            self.unstable.lose(&entry.fids());
        }
        self.distrust(entry.fids());
    }

    fn unseal(&self, file: &Arc<FileBytes>, number: u64, why: Option<&Error>) {
        let mut data = file.data.lock();
        data.unseal(number);
        if let Some(why) = why {
            data.fail(why.clone());
        }
        self.unstable.account(file, &mut data);
        drop(data);
        self.cache.drop_if_unused(file);
    }

    /// Frees the bytes of removed files that will not be sent.
    pub fn drop_cuts(&self) {
        let cuts = std::mem::take(&mut *self.cuts.lock());
        for entry in cuts {
            if let Some((file, _)) = &entry.data {
                self.unseal(file, entry.number, None);
            }
        }
    }

    /// The cached state of these files differs from the server's: forgets it.
    fn distrust(&self, fids: SmallVec<[Fid; 4]>) {
        {
            let mut tables = self.ground.names.lock();
            for fid in &fids {
                tables.unsure(*fid);
                tables.nodes.node(*fid).status = None;
            }
            self.ground.names.advance_gate();
        }
        let kernel = self.ground.kernel.port();
        // Not in this thread: the kernel may be waiting for it.
        self.ground.workers.send(move || {
            for fid in fids {
                if fid.vnode.is_directory() {
                    kernel.directory(fid);
                } else {
                    kernel.inode_data(fid);
                }
            }
        });
    }

    /// Answers a change here, if a delegation covers it.
    pub fn answer_here(&self, caller: &Caller, call: &Call) -> Option<Answered<'_>> {
        self.wait_for_journal();
        let mut tables = self.ground.names.lock();
        let at = wall();
        let local = tables.answer_here(&self.identity.local_caller(caller), call, at)?;
        let (_, answer) = self.record(&mut tables, caller, call, at, local, None);
        let snapshot = tables.holder.begin();
        Some((tables, snapshot, answer))
    }

    /// Enters an answered change into the journal and its effects into the tables.
    pub fn record(
        &self,
        tables: &mut Tables,
        caller: &Caller,
        call: &Call,
        at: Timestamp,
        local: Local,
        data: Option<(Arc<FileBytes>, Chunk)>,
    ) -> (u64, Answer) {
        let Local { answer, slot } = local;
        if let Some((number, answer)) = self.journal.merge(caller, call, at, &answer) {
            if let Answer::Status(status) = answer {
                let node = tables.nodes.node(status.fid);
                node.status = Some(status);
                node.pending = number;
            }
            return (number, answer);
        }
        let about = fids_of(&answer);
        let pending =
            about.first().and_then(|fid| tables.nodes.whole(fid)).map_or(0, |node| node.pending);
        let before = if pending > self.journal.landed() { pending } else { 0 };
        let entry = JournalEntry {
            number: 0,
            before,
            since: Instant::now(),
            caller: caller.clone(),
            at,
            slot,
            call: call.clone(),
            expected: answer.clone(),
            data,
            cut: false,
        };
        let (number, looks) = self.journal.push(entry);
        looks.into_iter().for_each(|at_once| self.ground.chores.look_at_journal(at_once));
        assert!(number > pending, "DE-4: a later change has a later number");
        about.into_iter().for_each(|fid| tables.nodes.node(fid).pending = number);
        match (&answer, call) {
            (Answer::Made { status, .. }, _) if status.kind == Kind::Directory => {
                tables.nodes.hold_delegation(status.fid);
            }
            (Answer::Made { status, dir, .. }, _) => {
                let delegation = tables.nodes.delegation(dir.fid);
                tables.nodes.put_sole(dir.fid, delegation, status.fid);
            }
            (Answer::Removed { status, .. }, _) if status.kind == Kind::Directory => {
                tables.nodes.node(status.fid).delegation = None;
            }
            (Answer::Removed { status, .. }, Call::Remove { hold: false, .. })
                if status.links == 0 && before > 0 =>
            {
                let cut = self.journal.cut();
                self.cuts.lock().extend(cut);
            }
            _ => {}
        }
        (number, answer)
    }

    /// Seals all dirty bytes. False: no delegation covers the file, or its bytes are to be sent
    /// otherwise; some may be sealed.
    pub fn seal(&self, file: &Arc<FileBytes>) -> bool {
        if !self.ground.config.delegations || !self.ground.names.lock().nodes.covers(file.fid) {
            return false;
        }
        self.wait_for_journal();
        let mut data = file.data.lock();
        if file.has_blank() {
            return self.seal_blank(file, &mut data);
        }
        if !data.flying.is_empty()
            || data.tail_flying.is_some()
            || data.workers > 0
            || data.dirty.bytes() > DIRTY_SEALED_MAX
        {
            return false;
        }
        let caller = data.writer.clone().unwrap_or(Caller::ROOT);
        let mut tables = self.ground.names.lock();
        if let Some(tail) = data.tail.take() {
            // No other client appends any more. One may have, before the delegation.
            let size = tables.nodes.get(&file.fid).and_then(|node| node.status).map(|it| it.size);
            if size != Some(tail.start) || data.dirty.end() > tail.start {
                data.tail = Some(tail);
                return false;
            }
            data.dirty.fill(&tail.into());
        }
        while let Some(chunk) = data.dirty.take(&[], false) {
            let call = Call::Write {
                fid: file.fid,
                offset: Some(chunk.offset),
                data: chunk.data.clone(),
                stable: false,
                kill_privileges: data.kill,
            };
            let at = wall();
            let Some(local) = tables.answer_here(&self.identity.local_caller(&caller), &call, at)
            else {
                data.dirty.fill(&chunk);
                break;
            };
            data.kill = false;
            let sealed = (Arc::clone(file), chunk.clone());
            let (number, answer) =
                self.record(&mut tables, &caller, &call, at, local, Some(sealed));
            data.sealed.push((number, chunk));
            if let Answer::Written { status, .. } = answer {
                tables.nodes.node(file.fid).status = Some(status);
            }
        }
        drop(tables);
        self.unstable.account(file, &mut data);
        data.dirty.is_empty()
    }

    /// Puts the kernel's writes into the journal. False: the body is to be adopted. The caller
    /// knows that a delegation covers the file.
    fn seal_blank(&self, file: &Arc<FileBytes>, data: &mut MutexGuard<'_, Data>) -> bool {
        let Some((body, seals)) =
            file.scratch.lock().as_ref().map(|one| (Arc::clone(&one.body), one.seals))
        else {
            return true;
        };
        let Ok(stat) = rustix::fs::fstat(&*body) else { return false };
        let size = stat.st_size as u64;
        let has_holes = stat.st_blocks as u64 * SECTOR + PAGE <= size;
        if size > BODY_SEALED_MAX || has_holes || seals >= SEALS_MAX && size > SHORT_BYTES {
            return false;
        }
        // A file that is shorter by now was cut meanwhile: the caller checks it again.
        let Some(bytes) = read_at(&body, 0, size as usize) else { return false };
        if !bytes.is_empty() && !self.record_blank(file, data, bytes) {
            return false;
        }
        file.scratch(|scratch| {
            scratch.sealed = Some(BodyStamp::of_stat(&stat));
            scratch.seals += 1;
        });
        true
    }

    fn record_blank(
        &self,
        file: &Arc<FileBytes>,
        data: &mut MutexGuard<'_, Data>,
        bytes: Bytes,
    ) -> bool {
        let caller = data.writer.clone().unwrap_or(Caller::ROOT);
        let call = Call::Write {
            fid: file.fid,
            offset: Some(0),
            data: bytes.clone(),
            stable: false,
            kill_privileges: false,
        };
        let chunk = Chunk { offset: 0, data: bytes, first: data.clock };
        let mut tables = self.ground.names.lock();
        let at = wall();
        let Some(local) = tables.answer_here(&self.identity.local_caller(&caller), &call, at)
        else {
            return false;
        };
        let (number, answer) = self.record(
            &mut tables,
            &caller,
            &call,
            at,
            local,
            Some((Arc::clone(file), chunk.clone())),
        );
        data.sealed.push((number, chunk));
        if let Answer::Written { status, .. } = answer {
            tables.nodes.node(file.fid).status = Some(status);
        }
        drop(tables);
        self.unstable.account(file, data);
        true
    }

    pub fn landed(&self, file: &Arc<FileBytes>, data: &mut Data, chunk: &Chunk, landed: &Landed) {
        let count = (landed.count as usize).min(chunk.data.len());
        if count < chunk.data.len() {
            let rest = Chunk {
                offset: chunk.offset + count as u64,
                data: chunk.data.slice(count..),
                first: chunk.first,
            };
            data.send_older(&[rest]);
        }
        let written = Chunk { data: chunk.data.slice(..count), ..chunk.clone() };
        self.cache.wrote(file, data, &written, landed);
        // Those of a file that was removed meanwhile would stay for ever.
        if self.ground.names.over(file.fid).is_none() {
            self.unstable.keep(data, &written, landed.verifier);
        }
    }
}

fn delegated(entry: &JournalEntry) -> Call {
    Call::Delegated { at: entry.at, slot: entry.slot, call: Box::new(entry.call.clone()) }
}

/// The server's answer to a change, compared with the one that was given here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    /// None, or only in access times, in a volume that records reads: they are recorded beside the
    /// journal, and are part of no version (`names/noted_reads.rs`).
    None,
    /// Only the charges of the file differ beside that. The server alone knows of blocks that are
    /// reserved behind the end of a file, which make up for holes in it: both together look like a
    /// file without holes.
    Charge,
    /// An answer that was given here was wrong (DE-5).
    Fault,
}

impl Difference {
    fn between(expected: &Answer, cut: bool, answer: &Answer) -> Difference {
        if agrees(expected, cut, answer) {
            return Difference::None;
        }
        let [mut expected, answer] = [expected, answer].map(without_read_times);
        if agrees(&expected, cut, &answer) {
            return Difference::None;
        }
        if let (Answer::Written { status: ours, .. }, Answer::Written { status, .. }) =
            (&mut expected, &answer)
        {
            ours.used = status.used;
        }
        if agrees(&expected, cut, &answer) { Difference::Charge } else { Difference::Fault }
    }
}

fn without_read_times(answer: &Answer) -> Answer {
    let mut answer = answer.clone();
    let statuses = answer.statuses_mut().into_iter().filter(|status| status.read_times);
    statuses.for_each(|status| status.accessed = Timestamp::default());
    answer
}

fn agrees(expected: &Answer, cut: bool, answer: &Answer) -> bool {
    match (expected, answer) {
        (Answer::Removed { dir: expected, .. }, Answer::Removed { dir, .. }) if cut => {
            expected == dir
        }
        (
            Answer::Written { count, offset, status, previous_version, .. },
            Answer::Written {
                count: count2,
                offset: offset2,
                status: status2,
                previous_version: version2,
                ..
            },
        ) => (count, offset, status, previous_version) == (count2, offset2, status2, version2),
        (expected, answer) => expected == answer,
    }
}

/// A short description of a change, for people.
fn describe(call: &Call) -> String {
    let text = |name: &types::Name| String::from_utf8_lossy(name.as_bytes()).into_owned();
    match call {
        Call::Make { dir, name, .. } => format!("new {} in {dir}", text(name)),
        Call::Remove { dir, name, .. } => format!("removal of {} in {dir}", text(name)),
        Call::Rename { from_dir, from, to_dir, to, .. } => {
            format!("rename of {} in {from_dir} to {} in {to_dir}", text(from), text(to))
        }
        Call::SetStatus { fid, .. } => format!("status of {fid}"),
        Call::Write { fid, offset, data, .. } => {
            format!("{} bytes of {fid} at {}", data.len(), offset.unwrap_or(0))
        }
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use types::posix::new_status;
    use types::{BootVerifier, DataVersion, Status};

    use super::*;

    #[test]
    fn charges_and_recorded_reads_may_differ_and_nothing_else() {
        let fid = Fid::new(1, 2, 3);
        let status = Status {
            read_times: true,
            ..new_status(fid, Kind::File, 0o644, (1, 2), Timestamp::default())
        };
        let written = |status: Status, count: u32| Answer::Written {
            count,
            offset: 0,
            status,
            previous_version: DataVersion::FIRST,
            verifier: BootVerifier::default(),
        };
        let charged = Status { used: 131_072, ..status };
        let read = Status { accessed: Timestamp::new(9, 9), ..status };
        let both = Status { used: 131_072, ..read };
        let size = Status { size: 7, ..both };
        let unread = Status { read_times: false, ..read };
        for (other, count, difference) in [
            (status, 1, Difference::None),
            (charged, 1, Difference::Charge),
            (read, 1, Difference::None),
            (both, 1, Difference::Charge),
            (both, 2, Difference::Fault),
            (size, 1, Difference::Fault),
        ] {
            let found = Difference::between(&written(status, 1), false, &written(other, count));
            assert_eq!(found, difference, "{other:?}, {count}");
        }
        let plain = Status { read_times: false, ..status };
        let found = Difference::between(&written(plain, 1), false, &written(unread, 1));
        assert_eq!(found, Difference::Fault, "the volume records no reads");
    }
}
