//! The cell's rules at this server: fences, and the realms of administrators
//! (`docs/spec/access.md`).
//!
//! Model. The database's rules have a revision. Each call is *in flight* from before it reads the
//! rules until it is done. A change is *enforced* here when three things have happened, in this
//! order: calls see the new list; all that were in flight before have ended; the sessions that only
//! a fenced caller uses are over, with their promises, locks and delegations, no fenced caller
//! waits for a lock in the others, and their delegations are recalled. Only then does this server
//! report to the database that it has the change, so when a change is answered no call of a fenced
//! caller is executed any more.
//!
//! The keys of the cell's servers are part of the rules. A caller whose authority rests on a key
//! that is no longer listed is refused at each call, and its sessions end as those of a fenced
//! caller do.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use celldb::Access;
use guard::{AdminScope, Fences, Rules, Suspect, base_name, realm_has_name, realm_has_room};
use lease::Output;
use parking_lot::{Mutex, RwLock};
use types::{
    Answer, AuthLevel, Call, CallBlocking, Caller, Fault, GuardCall, KeyPrint, Name, PrincipalId,
    Realm, ReplyAddress, Revised, Revision, SessionId, Time, Timestamp, VolumeId, WhichPrincipal,
    Whom,
};

use crate::Vice;
use crate::calls::CallOutcome;
use crate::service::CallContext;

/// Interval, and number of times, at which a call that changed rules checks whether they are
/// enforced here.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
const POLLS_MAX: usize = 1500;

/// See the head of the file.
#[derive(Default)]
pub(crate) struct FenceEpoch {
    /// The revision that calls see.
    seen: AtomicU64,
    any_fences: AtomicBool,
    rules: RwLock<Arc<InUse>>,
    enforced: AtomicU64,
    flights: Flights,
    /// Held during enforcement; the revision at which calls in flight were last parted.
    parted: Mutex<u64>,
    /// Realms of the callers that requested pulls and are no administrators of the cell, by the
    /// number of the tree.
    pull_realms: Mutex<HashMap<VolumeId, Vec<Realm>>>,
}

#[derive(Default)]
struct InUse {
    fences: Fences,
    rules: Arc<Revised<Rules>>,
}

/// How many calls are in flight: those before the last parting, and those since, distinguished by
/// the parity of their number.
#[derive(Default)]
struct Flights {
    parting: AtomicU64,
    counts: [AtomicU64; 2],
}

/// A call is in flight until this is dropped.
pub(crate) struct InFlightGuard<'a>(&'a AtomicU64);

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Flights {
    fn of(&self, parting: u64) -> &AtomicU64 {
        let [even, odd] = &self.counts;
        if parting.is_multiple_of(2) { even } else { odd }
    }

    fn enter(&self) -> InFlightGuard<'_> {
        loop {
            let parting = self.parting.load(SeqCst);
            let count = self.of(parting);
            count.fetch_add(1, SeqCst);
            if self.parting.load(SeqCst) == parting {
                return InFlightGuard(count);
            }
            count.fetch_sub(1, SeqCst);
        }
    }

    /// Whether all calls from before the last parting have ended.
    fn earlier_ended(&self) -> bool {
        self.of(self.parting.load(SeqCst).wrapping_add(1)).load(SeqCst) == 0
    }

    fn part(&self) {
        self.parting.fetch_add(1, SeqCst);
    }
}

impl FenceEpoch {
    /// Loads the rules that this server received last.
    fn refresh(&self, access: &dyn Access) {
        if access.rules_at().0 == self.seen.load(SeqCst) {
            return;
        }
        let mut in_use = self.rules.write();
        let rules = access.rules();
        let fences = Fences::new(&rules.record.fences);
        self.any_fences.store(!fences.is_empty(), SeqCst);
        self.seen.store(rules.revision.0, SeqCst);
        *in_use = Arc::new(InUse { fences, rules });
    }

    fn in_use(&self) -> Arc<InUse> {
        Arc::clone(&self.rules.read())
    }
}

/// No fence stops the superuser at the server's own machine, who could remove it, nor a server of
/// the cell.
fn is_above_fences(caller: &Caller) -> bool {
    caller.who.level == AuthLevel::Server || caller.is_superuser() && caller.who.host.is_none()
}

/// The server key that the caller's authority rests on; `None`: it rests on none.
fn key_of(caller: &Caller) -> Option<KeyPrint> {
    caller.who.server.filter(|_| caller.who.level != AuthLevel::Enrolling)
}

impl Vice {
    /// Latest revision of the rules, with the servers' keys, that this server received; 0: none.
    pub fn rules_revision(&self) -> Revision {
        self.cell.get().map_or(Revision(0), |db| db.access().rules_at())
    }

    /// Whether the cell's database lists this key as a server's, as of the latest rules here.
    pub fn lists_server(&self, key: &KeyPrint) -> bool {
        let Some(db) = self.cell.get() else { return false };
        self.ruled.refresh(db.access());
        self.ruled.in_use().rules.record.servers.server(key).is_some()
    }

    /// Checks that the server key of the caller is listed, by rules that are recent enough.
    ///
    /// # Errors
    /// `NotPermitted`; `CellAway`: this server got no news of the database for too long.
    pub(crate) fn need_listed(&self, caller: &Caller) -> Result<(), Fault> {
        let Some(key) = key_of(caller) else { return Ok(()) };
        let db = self.cell()?.ok_or(Fault::NotPermitted)?;
        if !self.lists_server(&key) {
            return Err(Fault::NotPermitted);
        }
        if db.access().is_elsewhere() && db.access().is_stale() {
            Err(Fault::CellAway)
        } else {
            Ok(())
        }
    }

    /// Marks the call as in flight. Call this before reading the rules.
    pub(crate) fn begin_request(&self, call: &Call) -> Option<InFlightGuard<'_>> {
        // A call that waits for other servers to enforce a rule, or for another server, is not
        // waited for.
        let waits_for_others =
            matches!(call.traits().blocking, CallBlocking::Database | CallBlocking::Notice);
        (!waits_for_others).then(|| self.ruled.flights.enter())
    }

    /// Checks that no fence stops the caller.
    ///
    /// # Errors
    /// `Fenced`; `CellAway` where a fence depends on the caller's principal, which cannot be looked
    /// up.
    pub(crate) fn need_unfenced(
        &self,
        wall: Timestamp,
        caller: &Caller,
        session: SessionId,
    ) -> Result<(), Fault> {
        let Some(db) = self.cell.get() else { return Ok(()) };
        self.ruled.refresh(db.access());
        if !self.ruled.any_fences.load(SeqCst) || is_above_fences(caller) {
            return Ok(());
        }
        if self.is_stopped(&self.ruled.in_use().fences, wall, caller, session)? {
            Err(Fault::Fenced)
        } else {
            Ok(())
        }
    }

    fn is_stopped(
        &self,
        fences: &Fences,
        wall: Timestamp,
        caller: &Caller,
        session: SessionId,
    ) -> Result<bool, Fault> {
        let client = || self.core.lock().leases.owner(session).map(|(client, _)| client);
        let suspect = Suspect {
            principal: fences.ask_for_users().then(|| self.principal_of(caller)).transpose()?,
            host: caller.who.host,
            token: caller.who.token,
            client: fences.ask_for_clients().then(client).flatten(),
        };
        Ok(fences.stop(wall.secs, &suspect))
    }

    /// Enforces the rules that this server received last; false: an earlier call has not ended yet,
    /// call again.
    pub(crate) fn enforce(&self, now: Time, wall: Timestamp, events: &mut Vec<Output>) -> bool {
        let Some(db) = self.cell.get() else { return true };
        self.ruled.refresh(db.access());
        let wanted = self.ruled.seen.load(SeqCst);
        if self.ruled.enforced.load(SeqCst) == wanted {
            return true;
        }
        let mut parted = self.ruled.parted.lock();
        let flights = &self.ruled.flights;
        if *parted != wanted {
            if !flights.earlier_ended() {
                return false;
            }
            flights.part();
            *parted = wanted;
        }
        if !flights.earlier_ended() {
            return false;
        }
        self.end_fenced_sessions(now, wall, events);
        self.ruled.enforced.store(wanted, SeqCst);
        true
    }

    fn end_fenced_sessions(&self, now: Time, wall: Timestamp, events: &mut Vec<Output>) {
        let in_use = self.ruled.in_use();
        let is_unlisted = |caller: &Caller| {
            key_of(caller).is_some_and(|key| in_use.rules.record.servers.server(&key).is_none())
        };
        let (unlisted, sessions): (Vec<_>, Vec<_>) = self
            .core
            .lock()
            .slots
            .actors()
            .into_iter()
            .partition(|(_, actors)| actors.iter().any(is_unlisted));
        for (session, _) in unlisted {
            tracing::warn!(
                session = session.0,
                "a session ends: the cell's database no longer lists the key of its server"
            );
            self.core.lock().leases.peer_died(now, session, events);
        }
        if in_use.fences.is_empty() {
            return;
        }
        for (session, actors) in sessions {
            let stops = |caller: &Caller| {
                // A caller that cannot be looked up now is checked at its next request.
                !is_above_fences(caller)
                    && self.is_stopped(&in_use.fences, wall, caller, session).unwrap_or(false)
            };
            let stopped = actors.iter().filter(|caller| stops(caller)).count();
            let waits: Vec<(ReplyAddress, Caller)> = {
                let core = self.core.lock();
                let of_session =
                    core.lock_waits.iter().filter(|(origin, _)| origin.session == session);
                of_session.map(|(origin, (caller, _))| (*origin, caller.clone())).collect()
            };
            let in_vain: Vec<ReplyAddress> = waits
                .into_iter()
                .filter(|(_, caller)| stops(caller))
                .map(|(origin, _)| origin)
                .collect();
            let mut core = self.core.lock();
            let client = core.leases.owner(session).map(|(client, _)| client);
            let by_client = Suspect { principal: None, host: None, token: 0, client };
            if in_use.fences.stop(wall.secs, &by_client) || stopped > 0 && stopped == actors.len() {
                tracing::info!(session = session.0, "the session is fenced off");
                core.leases.peer_died(now, session, events);
            } else if stopped > 0 {
                // Others use the session too. A delegated answer for one of them serves the fenced
                // caller too.
                for origin in in_vain {
                    // A lock that was granted a moment ago counts as granted before.
                    if core.leases.cancel(origin, events) {
                        core.lock_waits.entry(origin).and_modify(|(_, fenced)| *fenced = true);
                    }
                }
                core.leases.recall_session(now, session, events);
                let ticket = core.break_rights(now, events);
                core.rights_ticket = ticket.or(core.rights_ticket);
            }
        }
    }

    /// Changes rules. A server without the database forwards the call in the caller's name.
    pub(crate) fn ask_guard(
        &self,
        ask: &mut CallContext<'_>,
        behalf: Option<PrincipalId>,
        call: &GuardCall,
    ) -> Result<CallOutcome, Fault> {
        let db = self.cell()?.ok_or(Fault::Unsupported)?;
        let by = match behalf {
            Some(by) => self.need_appointed(db.access(), by)?,
            None if ask.caller.is_superuser() || ask.caller.who.level == AuthLevel::Server => {
                PrincipalId::NONE
            }
            None => self.principal_of(ask.caller)?,
        };
        let call = self.with_client(call)?;
        let me = self.me().id;
        let mut answer = db.access().guard(me, by, ask.wall.secs, &call)?;
        if let Answer::Enforced { missing, .. } = &mut answer {
            missing.retain(|server| *server != me);
            let look = |_| {
                let done = self.enforce(ask.now, ask.wall, &mut ask.events);
                if !done {
                    std::thread::sleep(POLL_INTERVAL);
                }
                done
            };
            if !(0..POLLS_MAX).any(look) {
                missing.push(me);
            }
        }
        Ok(CallOutcome::Answer(answer))
    }

    /// Checks that a server acts for an administrator, or for its superuser.
    fn need_appointed(&self, access: &dyn Access, by: PrincipalId) -> Result<PrincipalId, Fault> {
        if by == PrincipalId::NONE {
            return Ok(by);
        }
        access.principal(&WhichPrincipal::Id(by))?.ok_or(Fault::NotPermitted)?;
        let groups = access.subdomain(by, None)?.1;
        if groups.contains(&PrincipalId::ADMINISTRATORS) {
            Ok(by)
        } else {
            Err(Fault::NotPermitted)
        }
    }

    /// Adds the client of a session, which only this server knows.
    fn with_client(&self, call: &GuardCall) -> Result<GuardCall, Fault> {
        let GuardCall::AddFence { whom: Whom::Session(session), seconds, why } = call else {
            return Ok(call.clone());
        };
        let (client, _) = self.core.lock().leases.owner(*session).ok_or(Fault::NotFound)?;
        Ok(GuardCall::AddFence { whom: Whom::Client(client), seconds: *seconds, why: why.clone() })
    }

    /// The realms of a caller, by all its principals.
    pub(crate) fn realms(&self, cps: &guard::Cps) -> Vec<Realm> {
        if let Some(db) = self.cell.get() {
            self.ruled.refresh(db.access());
        }
        let in_use = self.ruled.in_use();
        let held = in_use.rules.record.mandates.iter().filter(|mandate| cps.has(mandate.principal));
        held.map(|mandate| mandate.realm.clone()).collect()
    }

    /// Notes the caller of a pull for this tree: for a caller that is no administrator, the check
    /// waits until the other server has sent the volume's name.
    ///
    /// # Errors
    /// `CellAway`, `Medium`.
    pub(crate) fn note_pull(&self, caller: &Caller, tree: VolumeId) -> Result<(), Fault> {
        let superuser = caller.is_superuser() || caller.who.level == AuthLevel::Server;
        let cps = (!superuser).then(|| self.cps(caller)).transpose()?;
        let mut pull_realms = self.ruled.pull_realms.lock();
        match cps.filter(|cps| !cps.is_administrator()) {
            Some(cps) => drop(pull_realms.insert(tree, self.realms(&cps))),
            None => drop(pull_realms.remove(&tree)),
        }
        Ok(())
    }

    /// Whether the caller of the pull may fetch a volume with this name.
    pub(crate) fn may_pull(&self, tree: VolumeId, name: &Name) -> bool {
        let pull_realms = self.ruled.pull_realms.lock();
        pull_realms
            .get(&tree)
            .is_none_or(|realms| realms.iter().any(|realm| realm_has_name(realm, &text(name))))
    }

    /// Whether the realms contain a place; not if that cannot be looked up.
    pub(crate) fn covers(&self, realms: &[Realm], place: Option<&AdminScope>) -> bool {
        let me = self.me().id;
        let has_name = |name: &str| realms.iter().any(|realm| realm_has_name(realm, name));
        let has_room = |partition: Option<&str>| {
            realms.iter().any(|realm| realm_has_room(realm, me, partition))
        };
        match place {
            None => !realms.is_empty(),
            Some(AdminScope::Server) => has_room(None),
            Some(AdminScope::Partition(None)) => has_room(None),
            Some(AdminScope::Partition(Some(no))) => has_room(self.partitions.name_of(*no)),
            Some(AdminScope::Volume(id)) => {
                let Ok(volume) = self.any_volume(*id) else { return false };
                has_name(&text(&volume.store.name()))
                    || has_room(self.partitions.name_of(volume.no))
            }
            Some(AdminScope::Named(name)) => {
                has_name(&text(name)) || self.has_group(realms, Group::Named(name)) == Some(true)
            }
            // For a group that does not exist yet the name decides.
            Some(AdminScope::Group(number)) => {
                self.has_group(realms, Group::Number(*number)).unwrap_or(!realms.is_empty())
            }
        }
    }

    /// Whether the realms contain a group, by its name or all its sites; `None`: there is none.
    fn has_group(&self, realms: &[Realm], which: Group<'_>) -> Option<bool> {
        let db = self.cell().ok().flatten()?;
        let found = match which {
            Group::Named(name) => match Name::new(base_name(&text(name)).as_bytes()) {
                Ok(base) => db.group_named(&base),
                Err(_) => return Some(false),
            },
            Group::Number(number) => db.group_of(number),
        };
        let Ok(found) = found else { return Some(false) };
        let group = found?.record;
        let has_site = |site: &types::Site| {
            realms.iter().any(|realm| realm_has_room(realm, site.server, Some(&site.partition)))
        };
        let by_name = realms.iter().any(|realm| realm_has_name(realm, &text(&group.name)));
        Some(by_name || !group.sites.is_empty() && group.sites.iter().all(has_site))
    }
}

#[derive(Clone, Copy)]
enum Group<'a> {
    Named(&'a Name),
    Number(VolumeId),
}

fn text(name: &Name) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parting_waits_for_those_before_and_not_for_those_after() {
        let flights = Flights::default();
        let before = flights.enter();
        assert!(flights.earlier_ended());
        flights.part();
        let after = flights.enter();
        assert!(!flights.earlier_ended());
        drop(before);
        assert!(flights.earlier_ended());
        flights.part();
        assert!(!flights.earlier_ended());
        drop(after);
        assert!(flights.earlier_ended());
    }
}
