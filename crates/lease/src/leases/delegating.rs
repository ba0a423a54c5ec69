//! The server's delegations, combined with promises, breaks and sessions.

use std::collections::{BTreeMap, HashSet};

use smallvec::SmallVec;
use types::{BreakItem, BreakReason, ClientId, Fault, Fid, SessionId, Time, VolumeId};

use super::{ITEMS_MAX, Leases, Promised};
use crate::breaks::PendingBreak;
use crate::delegation::QUIET_AFTER_REFUSAL;
use crate::output::Output;

/// The status of an entry in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// Its status, which is promised now. `sole`: it belongs to the directory, which is delegated
    /// to the session that asks.
    Promised {
        /// True: the session that asks covers the file.
        sole: bool,
    },
    /// Only its name: it is delegated to another session, which is not recalled.
    Covered,
}

impl Leases {
    /// Delegates a directory, and promises it. Asked for again, it stays delegated.
    ///
    /// # Errors
    /// [`Fault::Expired`] without the session. [`Fault::Busy`] where other sessions use the
    /// directory or did a moment ago, where it is recalled, during grace, when there are too many,
    /// or to an anonymous session. Other sessions with a promise of the directory are then sent a
    /// break: a later request finds out whether they came back.
    pub fn delegate(
        &mut self,
        now: Time,
        session: SessionId,
        dir: Fid,
        out: &mut Vec<Output>,
    ) -> Result<(), Fault> {
        if self.sessions.get(session).ok_or(Fault::Expired)?.anonymous {
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
            self.delegations.bar(now, dir, QUIET_AFTER_REFUSAL);
            let item = BreakItem { fid: dir, reason: BreakReason::Pressure, name: None };
            // No change waits for this break: it only shows which sessions come back.
            self.break_promises(now, &[item], session, out);
            return Err(Fault::Busy);
        }
        self.delegations.grant(now, session, dir);
        self.promise(now, session, dir, out);
        Ok(())
    }

    /// A file was made in a directory: if that is delegated to the session, the file belongs to it;
    /// a directory made by a change that the session had answered itself (`at_once`) is delegated
    /// too.
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
            // The session changed entries in it before the server received this.
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

    /// The session found the file, which it is promised, in a directory. Returns whether the file
    /// belongs to the directory from now on.
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

    /// As [`Leases::promise`] and [`Leases::found`], but recalls nothing from other sessions.
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

    /// Recalls all delegations of the session.
    pub fn recall_session(&mut self, now: Time, session: SessionId, out: &mut Vec<Output>) {
        let all = self.delegations.of_session(session);
        self.recall(now, &all, out);
    }

    /// Whether the session covers the file.
    pub fn covers(&self, session: SessionId, fid: Fid) -> bool {
        self.delegations.cover(fid).is_some_and(|(owner, _)| owner == session)
    }

    /// Since when the session that covers the file answers for it; `None`: the file is not covered.
    pub fn delegated_since(&self, fid: Fid) -> Option<Time> {
        self.delegations.given(fid)
    }

    /// Whether the directory itself is delegated to the session.
    pub fn is_delegated(&self, session: SessionId, dir: Fid) -> bool {
        self.delegations.has(session, dir)
    }

    /// Whether the directory is delegated to any session.
    pub fn is_delegated_at_all(&self, dir: Fid) -> bool {
        self.delegations.cover(dir).is_some_and(|(_, covered)| covered == dir)
    }

    /// The session sent a change from its journal: it works off the recall.
    pub fn progress(&mut self, now: Time, session: SessionId) {
        self.delegations.progress(now, session);
    }

    /// The session returns these directories; those that it does not have are ignored.
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

    /// Recalls delegations in a volume from sessions other than `except`. Returns the directories.
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

    /// How many sessions other than `except` have delegations in the volume.
    pub fn delegating_sessions(&self, volume: VolumeId, except: Option<SessionId>) -> usize {
        self.delegations.sessions_in(volume, except)
    }

    /// Volumes with at least one delegation.
    pub fn delegated_volumes(&self) -> HashSet<VolumeId> {
        self.delegations.volumes()
    }

    /// The client and incarnation of the session. `None`: it is over.
    pub fn owner(&self, session: SessionId) -> Option<(ClientId, u64)> {
        self.sessions.get(session).map(|known| (known.client, known.incarnation))
    }

    /// Whether the session's durable record says that it may have delegations.
    pub fn is_marked(&self, session: SessionId) -> bool {
        self.sessions.get(session).is_some_and(|known| known.marked)
    }

    /// Notes that the session's durable record now has the delegation mark.
    pub fn mark(&mut self, session: SessionId) {
        if let Some(known) = self.sessions.get_mut(session) {
            known.marked = true;
        }
    }

    /// Sends each session its recalls, once.
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
