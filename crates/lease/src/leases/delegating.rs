//! The server's delegations, combined with promises, breaks and sessions.

use std::collections::BTreeMap;

use types::{BreakItem, BreakReason, Fault, Fid, SessionId, Time, VolumeId};

use super::{Leases, Promised};
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
        if self.promises.is_known_elsewhere(dir, session) {
            self.delegations.bar(now, dir, QUIET_AFTER_REFUSAL);
            let item = BreakItem { fid: dir, reason: BreakReason::Pressure, name: None };
            // No change waits for this break: it only shows which sessions come back.
            self.break_promises(now, &[item], session, out);
            return Err(Fault::Busy);
        }
        self.delegations.grant(now, session, dir);
        debug_assert!(!self.promises.is_known_elsewhere(dir, session), "DE-1: {dir} is shared");
        self.promise(now, session, dir, false, out);
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
        debug_assert!(!self.promises.is_known_elsewhere(fid, session), "DE-1: {fid} is shared");
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
            || self.promises.is_known_elsewhere(fid, session)
            || self.opens.is_open_elsewhere(fid, session)
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
            _ => match self.promise(now, session, fid, false, out) {
                Promised::Yes => Listed::Promised { sole: self.found(session, dir, fid) },
                Promised::Covered(_) | Promised::Gone => Listed::Covered,
            },
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

    /// Recalls these directories: sends each session its recalls, once.
    pub fn recall(&mut self, now: Time, dirs: &[Fid], out: &mut Vec<Output>) {
        let mut batches: BTreeMap<SessionId, Vec<BreakItem>> = BTreeMap::new();
        for dir in dirs {
            if let Some(session) = self.delegations.recall(now, *dir) {
                let item = BreakItem { fid: *dir, reason: BreakReason::Recall, name: None };
                batches.entry(session).or_default().push(item);
            }
        }
        for (to, items) in batches {
            self.promises.send_recalls(now, to, &items, out);
        }
    }
}
