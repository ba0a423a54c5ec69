//! Preallocated bodies (docs/spec/passthrough.md): a session's kernel writes new files into them,
//! and they become bodies without a copy.

use std::collections::{BTreeMap, HashMap};

use store::BlankName;
use types::posix::touch_data;
use types::{Answer, Fault, Fid, PartitionNo, SessionId};

use super::CallOutcome;
use super::data::need_file;
use crate::Vice;
use crate::access::Right;
use crate::change::Change;
use crate::service::CallContext;

/// Preallocated bodies of one session at most: each is an open file in its client.
const BLANKS_MAX: usize = 256;

/// The preallocated bodies of all sessions.
#[derive(Default)]
pub(crate) struct Blanks {
    sessions: HashMap<SessionId, BTreeMap<u64, PartitionNo>>,
}

impl Blanks {
    /// Whether the session has it, on this partition.
    fn has(&self, on: PartitionNo, name: BlankName) -> bool {
        self.sessions
            .get(&name.session)
            .is_some_and(|numbers| numbers.get(&name.number) == Some(&on))
    }

    fn has_enough(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|numbers| numbers.len() >= BLANKS_MAX)
    }

    /// Records one more body of the session.
    pub fn add(&mut self, on: PartitionNo, name: BlankName) {
        self.sessions.entry(name.session).or_default().insert(name.number, on);
    }

    fn remove(&mut self, name: BlankName) {
        if let Some(numbers) = self.sessions.get_mut(&name.session) {
            numbers.remove(&name.number);
        }
    }

    /// Removes the bodies of a session that ended, and returns them.
    pub fn remove_session(&mut self, session: SessionId) -> Vec<(PartitionNo, BlankName)> {
        let numbers = self.sessions.remove(&session).unwrap_or_default();
        numbers.into_iter().map(|(number, on)| (on, BlankName { session, number })).collect()
    }
}

impl Vice {
    pub(super) fn lend_blank(
        &self,
        ask: &mut CallContext<'_>,
        fid: Fid,
    ) -> Result<CallOutcome, Fault> {
        let volume = self.volume(fid.volume)?;
        volume.need_writable()?;
        volume.need_delegations_allowed(ask.now)?;
        if !volume.hands_out_bodies() {
            return Err(Fault::Unsupported);
        }
        if !ask.caller.who.level.is_proved() {
            return Err(Fault::AccessDenied);
        }
        if !self.has_ample_room(&volume)? {
            return Err(Fault::Busy);
        }
        let session = ask.origin.session;
        if self.core.lock().blanks.has_enough(session) {
            return Err(Fault::Busy);
        }
        let (name, descriptor) = volume.partition.make_blank(session)?;
        self.core.lock().blanks.add(volume.no, name);
        let descriptor = descriptor.ok_or(Fault::Unsupported)?;
        Ok(CallOutcome::Body(Answer::Blank(name.number), descriptor))
    }

    pub(super) fn adopt_body(
        &self,
        ask: &mut CallContext<'_>,
        fid: Fid,
        number: u64,
    ) -> Result<CallOutcome, Fault> {
        let volume = self.volume(fid.volume)?;
        volume.need_writable()?;
        if volume.store.is_encrypted() {
            return Err(Fault::Unsupported);
        }
        let _held = self.stripes.write(&[fid]);
        self.need_back(ask, &volume, &[fid])?;
        let mut vnode = volume.vnode(fid)?;
        need_file(&vnode)?;
        self.need_data(ask, &volume, &vnode, Right::WriteData)?;
        self.promise(ask, &volume, &[fid])?;
        let blank = BlankName { session: ask.origin.session, number };
        let core = self.core.lock();
        if !core.blanks.has(volume.no, blank) && core.loans.has(fid, blank.session) {
            // The call comes twice: once as it was when the server restarted, and once with all
            // reclaims.
            return Ok(CallOutcome::Answer(Answer::Status(vnode.status)));
        }
        // No other session may have changed the body that it replaces.
        let alone = core.leases.covers(blank.session, fid)
            || core.leases.reclaims_delegations(blank.session);
        match (core.blanks.has(volume.no, blank), alone) {
            (true, true) => drop(core),
            (true, false) => return Err(Fault::NotDelegated),
            (false, _) => return Err(Fault::Stale),
        }
        let mut change = Change::new(&volume);
        volume.store.body(&mut vnode, &mut change.update)?.adopt(blank)?;
        vnode.handed = true;
        touch_data(&mut vnode.status, ask.wall);
        change.put_data(&vnode);
        let outcome = self.commit(ask, change, Answer::Status(vnode.status))?;
        let mut core = self.core.lock();
        core.loans.add(fid, blank.session);
        core.blanks.remove(blank);
        drop(core);
        if let Err(error) = volume.store.loans().end_adoption(fid.vnode, blank) {
            tracing::warn!(?blank, %error, "an adopted body keeps its old name until a restart");
        }
        Ok(outcome)
    }

    /// Removes a preallocated body that no session needs.
    pub(crate) fn drop_blank(&self, on: PartitionNo, blank: BlankName) {
        let removed =
            self.partitions.get(on).and_then(|partition| Ok(partition.remove_blank(blank)?));
        if let Err(error) = removed {
            tracing::warn!(
                ?blank,
                %error,
                "a preallocated body cannot be removed; the next start removes it"
            );
        }
    }
}
