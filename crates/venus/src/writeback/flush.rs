//! Sending the journal, and entering the server's answers.
//!
//! A thread that waits for an entry sends chains itself, unless another thread does so. The flusher
//! sends entries that are old enough, and a long queue.
//!
//! The server's answer is compared with the one that was given here (DE-5). A refusal means that an
//! answer given here was wrong: it is reported like a failed write, and the client and the kernel
//! forget the files concerned. A lost session loses every unsent entry.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use client::{CallError, Cancel};
use smallvec::SmallVec;
use types::{Answer, Call, Fault, Fid};

use crate::base::error::Error;
use crate::base::request::POLL_INTERVAL;
use crate::core::Core;
use crate::data::file_data::FileBytes;
use crate::writeback::journal::{JournalEntry, Take};
use crate::writeback::landed::Landed;
use crate::writeback::unstable_metadata::MetadataSubject;

/// Pause before a chain is sent again to a server that had no room for it.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

impl Core {
    /// Sends until everything up to this entry has landed.
    ///
    /// # Errors
    /// [`Error::Interrupted`] only.
    pub fn flush_until(&self, until: u64, cancel: Option<&Cancel>) -> Result<(), Error> {
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

    /// Sends until everything that was answered here has landed.
    ///
    /// # Errors
    /// As [`Core::drain`].
    pub fn flush_all(&self, cancel: Option<&Cancel>) -> Result<(), Error> {
        self.flush_until(self.journal.last(), cancel)
    }

    /// Called before an entry is added: waits while the journal is too long.
    pub fn wait_for_journal(&self) {
        while let Some(until) = self.journal.crowded() {
            // Interrupted is the only error, and this is short.
            let _ = self.flush_until(until.min(self.journal.last()), None);
        }
    }

    pub fn flush_journal(&self) {
        while self.journal.wait_for_work(self.config.dirty_age) {
            if let Take::Chain(chain) = self.journal.take() {
                self.send_chain(chain);
            }
        }
    }

    fn send_chain(&self, chain: Vec<JournalEntry>) {
        let Some(first) = chain.first() else { return };
        let caller = first.caller.clone();
        let mut calls: Vec<Call> = chain.iter().map(delegated).collect();
        let refill = self.slots_wanted(&chain);
        calls.extend(refill.map(|fid| Call::Delegate { fid }));
        let (snapshot, place) = (self.begin(), self.instance.place());
        let mut replies = self.remote.chain(&caller, calls);
        if let Some(dir) = refill
            && let Some(Ok(reply)) = replies.pop()
        {
            self.slots_came(dir, snapshot, &reply.answer);
        }
        let (mut again, mut lost) = (Vec::new(), Vec::new());
        let mut why = Error::Lost;
        for (entry, reply) in chain.into_iter().zip(replies) {
            match reply {
                Ok(reply) => {
                    self.check_instance(place, &reply);
                    if let Some(subject) = MetadataSubject::of(&entry.call) {
                        self.note(place, &reply, subject);
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
            let mut tables = self.tables.lock();
            let ended = tables.end_delegations();
            entries.extend(self.journal.lose());
            ended
        };
        self.give_back_soon(ended);
        if !entries.is_empty() {
            tracing::error!(changes = entries.len(), %why, "session lost; unsent changes are \
                lost");
        }
        entries.iter().for_each(|entry| self.entry_lost(entry, why));
    }

    fn entry_landed(&self, entry: &JournalEntry, answer: &Answer) {
        if !agrees(entry, answer) {
            let number = entry.number;
            if number > self.distrusted.load(Ordering::Acquire) {
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
            file.account(&mut data, &self.unsent);
            drop(data);
            self.drop_if_unused(file);
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
            self.lose(&entry.fids());
        }
        self.distrust(entry.fids());
    }

    fn unseal(&self, file: &Arc<FileBytes>, number: u64, why: Option<&Error>) {
        let mut data = file.data.lock();
        data.unseal(number);
        if let Some(why) = why {
            data.fail(why.clone());
        }
        file.account(&mut data, &self.unsent);
        drop(data);
        self.drop_if_unused(file);
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
            let mut tables = self.tables.lock();
            for fid in &fids {
                tables.unsure(*fid);
                tables.node(*fid).status = None;
            }
            *self.gate.write() += 1;
        }
        let kernel = self.invalidator();
        // Not in this thread: the kernel may be waiting for it.
        self.senders.run(move || {
            for fid in fids {
                if fid.vnode.is_directory() {
                    kernel.directory(fid);
                } else {
                    kernel.inode_data(fid);
                }
            }
        });
    }
}

fn delegated(entry: &JournalEntry) -> Call {
    Call::Delegated { at: entry.at, slot: entry.slot, call: Box::new(entry.call.clone()) }
}

fn agrees(entry: &JournalEntry, answer: &Answer) -> bool {
    match (&entry.expected, answer) {
        (Answer::Removed { dir: expected, .. }, Answer::Removed { dir, .. }) if entry.cut => {
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
