//! Delegations as the server uses them, with promises, breaks and sessions beside them.

use std::collections::{BTreeMap, HashSet};

use smallvec::SmallVec;
use types::{BreakItem, BreakReason, ClientId, Fault, Fid, SessionId, Time, VolumeId};

use super::{ITEMS_MAX, Leases, Promised};
use crate::breaks::PendingBreak;
use crate::delegation::QUIET_AFTER_REFUSAL;
use crate::output::Output;

/// What may be said of an entry in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// Its status, which is promised now. `sole`: it goes with the directory, which is delegated to
    /// the asker.
    Promised {
        /// See above.
        sole: bool,
    },
    /// Only its name: it is delegated to another session, which is left alone.
    Covered,
}

impl Leases {
    /// Delegates a directory, and promises it. Asked for again, it stays delegated.
    ///
    /// # Errors
    /// [`Fault::Expired`] without the session. [`Fault::Busy`] where others use the directory or
    /// did a moment ago, where it is wanted back, during grace, when there are too many, or to a
    /// session of nobody. Others who are promised the directory are then told to forget it: who
    /// asks again a little later finds out whether they came back.
    pub fn delegate(
        &mut self,
        now: Time,
        session: SessionId,
        dir: Fid,
        out: &mut Vec<Output>,
    ) -> Result<(), Fault> {
        if self.sessions.get(session).ok_or(Fault::Expired)?.stranger {
            return Err(Fault::Busy);
        }
        let taken = self.delegations.cover(dir).is_some_and(|(other, _)| other != session);
        let full =
            self.delegations.len() + self.delegations.children() >= self.config.delegated_max;
        if self.grace.is_some() || taken || full || self.delegations.is_recalled(dir) {
            return Err(Fault::Busy);
        }
        if self.delegations.is_quiet(now, dir) {
            return Err(Fault::Busy);
        }
        if self.is_promised_elsewhere(dir, session) {
            self.delegations.hush(now, dir, QUIET_AFTER_REFUSAL);
            let item = BreakItem { fid: dir, reason: BreakReason::Pressure, name: None };
            // Nobody waits for its end: it is only to be seen who comes back.
            self.break_promises(now, &[item], session, out);
            return Err(Fault::Busy);
        }
        self.delegations.grant(now, session, dir);
        self.promise(now, session, dir, out);
        Ok(())
    }

    /// A file was made in a directory: if that is delegated to the session, the file goes with it;
    /// or, a directory made by a change that the session had answered itself (`at_once`), it is
    /// delegated too.
    pub fn adopt(
        &mut self,
        now: Time,
        session: SessionId,
        dir: Fid,
        fid: Fid,
        at_once: bool,
        out: &mut Vec<Output>,
    ) {
        if !self.delegations.has(session, dir) {
            return;
        }
        if at_once {
            // The session changed things in it before this was heard of.
            let given = self.delegations.given(dir).unwrap_or(now);
            self.delegations.grant(given, session, fid);
        } else {
            self.delegations.adopt(dir, fid);
        }
        if self.delegations.len() + self.delegations.children() > self.config.delegated_max {
            let all = self.delegations.of_session(session);
            self.recall(now, &all, out);
        }
    }

    /// The session found the file, which it is promised, in a directory. Whether it goes with the
    /// directory from now on.
    pub fn found(&mut self, session: SessionId, dir: Fid, fid: Fid) -> bool {
        if !self.delegations.has(session, dir) || self.delegations.is_child(dir, fid) {
            return self.delegations.is_child(dir, fid);
        }
        let full =
            self.delegations.len() + self.delegations.children() >= self.config.delegated_max;
        if full
            || self.delegations.is_recalled(dir)
            || self.delegations.cover(fid).is_some()
            || self.is_promised_elsewhere(fid, session)
        {
            return false;
        }
        self.delegations.adopt(dir, fid);
        true
    }

    /// As [`Leases::promise`] and [`Leases::found`], but leaves alone what others have to
    /// themselves.
    pub fn list(
        &mut self,
        now: Time,
        session: SessionId,
        dir: Fid,
        fid: Fid,
        out: &mut Vec<Output>,
    ) -> Listed {
        match self.delegations.cover(fid) {
            Some((other, _)) if other != session => Listed::Covered,
            _ => match self.promise(now, session, fid, out) {
                Promised::Yes => Listed::Promised { sole: self.found(session, dir, fid) },
                Promised::Covered(_) | Promised::Gone => Listed::Covered,
            },
        }
    }

    /// Calls back all that the session has to itself.
    pub fn recall_session(&mut self, now: Time, session: SessionId, out: &mut Vec<Output>) {
        let all = self.delegations.of_session(session);
        self.recall(now, &all, out);
    }

    /// Whether the session has the file to itself.
    pub fn covers(&self, session: SessionId, fid: Fid) -> bool {
        self.delegations.cover(fid).is_some_and(|(owner, _)| owner == session)
    }

    /// Since when the session that has the file to itself answers for it; none: nobody does.
    pub fn delegated_since(&self, fid: Fid) -> Option<Time> {
        self.delegations.given(fid)
    }

    /// Whether the directory itself is delegated to the session.
    pub fn is_delegated(&self, session: SessionId, dir: Fid) -> bool {
        self.delegations.has(session, dir)
    }

    /// Whether the directory is delegated to anybody.
    pub fn is_delegated_at_all(&self, dir: Fid) -> bool {
        self.delegations.cover(dir).is_some_and(|(_, covered)| covered == dir)
    }

    /// The session sent a change that it had made on its own: it works off what it has.
    pub fn progress(&mut self, now: Time, session: SessionId) {
        self.delegations.progress(now, session);
    }

    /// The session gives these directories back; what it does not have does not matter.
    pub fn give_back(
        &mut self,
        now: Time,
        session: SessionId,
        dirs: &[Fid],
        out: &mut Vec<Output>,
    ) {
        let had = |dir: &Fid| self.delegations.give_back(now, session, *dir);
        let over: Vec<Fid> = dirs.iter().copied().filter(had).collect();
        if !over.is_empty() {
            out.push(Output::DelegationsOver(over));
        }
    }

    /// Wants back what others than `except` have of a volume. What that is.
    pub fn recall_volume(
        &mut self,
        now: Time,
        volume: VolumeId,
        except: SessionId,
        out: &mut Vec<Output>,
    ) -> Vec<Fid> {
        let dirs = self.delegations.in_volume(volume, except);
        self.recall(now, &dirs, out);
        dirs
    }

    /// How many sessions, but `except`, have something delegated in the volume.
    pub fn delegating_sessions(&self, volume: VolumeId, except: Option<SessionId>) -> usize {
        self.delegations.sessions_in(volume, except)
    }

    /// Volumes in which something is delegated.
    pub fn delegated_volumes(&self) -> HashSet<VolumeId> {
        self.delegations.volumes()
    }

    /// Whose the session is: its client and incarnation. `None`: it is over.
    pub fn owner(&self, session: SessionId) -> Option<(ClientId, u64)> {
        self.sessions.get(session).map(|known| (known.client, known.incarnation))
    }

    /// Whether the session's durable record says that it may have delegations.
    pub fn is_marked(&self, session: SessionId) -> bool {
        self.sessions.get(session).is_some_and(|known| known.marked)
    }

    /// The session's durable record says so from now on.
    pub fn mark(&mut self, session: SessionId) {
        if let Some(known) = self.sessions.get_mut(session) {
            known.marked = true;
        }
    }

    /// Says to each session what is wanted back of it, once.
    pub(super) fn recall(&mut self, now: Time, dirs: &[Fid], out: &mut Vec<Output>) {
        let mut batches: BTreeMap<SessionId, Vec<BreakItem>> = BTreeMap::new();
        for dir in dirs {
            if let Some(session) = self.delegations.recall(now, *dir) {
                let item = BreakItem { fid: *dir, reason: BreakReason::Recall, name: None };
                batches.entry(session).or_default().push(item);
            }
        }
        for (to, items) in batches {
            for items in items.chunks(ITEMS_MAX) {
                let id = self.breaks.next_break();
                let known = self
                    .sessions
                    .get_mut(to)
                    .expect("DE-1: delegations are of sessions that have not ended");
                let pending =
                    PendingBreak { items: items.to_vec(), sent_at: now, tickets: SmallVec::new() };
                known.pending.insert(id, pending);
                out.push(Output::Break { to, id, items: items.to_vec() });
            }
        }
    }
}
