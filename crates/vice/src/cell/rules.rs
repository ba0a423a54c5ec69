//! The cell's rules at this server: fences, servers' keys, and the realms of administrators
//! (`docs/spec/access.md`).
//!
//! Model. The database's rules have a revision. Each call is *in flight* from before it reads the
//! rules until it is done. A change is *enforced* here when three things have happened, in this
//! order: calls see the new list; all that were in flight before have ended; the sessions that only
//! a fenced caller uses are over, with their promises, locks and delegations, no fenced caller
//! waits for a lock in the others, and their delegations are recalled (`enforcement.rs`). Only then
//! does this server report to the database that it has the change, so when a change is answered no
//! call of a fenced caller is executed any more.
//!
//! The keys of the cell's servers are part of the rules. A caller whose authority rests on a key
//! that is no longer listed is refused at each call, and its sessions end as those of a fenced
//! caller do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use celldb::Access;
use guard::{Cps, Fences, Suspect};
use parking_lot::{Condvar, Mutex, RwLock};
use types::{
    AuthLevel, Call, CallBlocking, Caller, CellCall, ClientId, Fault, KeyPrint, Realm, Revised,
    Revision, ServerId, Timestamp, VolumeGroup,
};

use super::{CellLink, Identities};

/// See the head of the file.
pub(crate) struct Rules {
    cell: Arc<CellLink>,
    identities: Arc<Identities>,
    /// The revision that calls see.
    seen: AtomicU64,
    any_fences: AtomicBool,
    in_use: RwLock<Arc<RulesInUse>>,
    enforced: AtomicU64,
    flights: Flights,
    /// Held during enforcement; the revision at which calls in flight were last parted.
    parted: Mutex<u64>,
}

/// The rules of one revision.
#[derive(Default)]
pub(crate) struct RulesInUse {
    pub fences: Fences,
    pub rules: Arc<Revised<guard::Rules>>,
}

impl RulesInUse {
    /// Whether the database lists this key as a server's.
    pub fn lists(&self, key: &KeyPrint) -> bool {
        self.rules.record.servers.server(key).is_some()
    }
}

/// How many calls are in flight: those before the last parting, and those since, distinguished by
/// the parity of their number.
#[derive(Default)]
struct Flights {
    parting: AtomicU64,
    counts: [AtomicU64; 2],
    /// Threads that wait until the earlier calls have ended.
    waiting: Mutex<usize>,
    ended: Condvar,
    any_waiting: AtomicBool,
}

/// A call is in flight until this is dropped.
pub(crate) struct InFlightGuard<'a> {
    flights: &'a Flights,
    count: &'a AtomicU64,
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        let before = self.count.fetch_sub(1, SeqCst);
        debug_assert!(before > 0, "AC-2: a call that is not in flight ended");
        if before == 1 && self.flights.any_waiting.load(SeqCst) {
            // A thread that waits has checked the count under the lock, or sees it after.
            drop(self.flights.waiting.lock());
            self.flights.ended.notify_all();
        }
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
            let flight = InFlightGuard { flights: self, count };
            if self.parting.load(SeqCst) == parting {
                return flight;
            }
        }
    }

    /// Whether all calls from before the last parting have ended.
    fn earlier_ended(&self) -> bool {
        self.of(self.parting.load(SeqCst).wrapping_add(1)).load(SeqCst) == 0
    }

    /// Waits until they have, but no longer than `at_most`.
    fn wait_for_earlier(&self, at_most: Duration) {
        let mut waiting = self.waiting.lock();
        *waiting += 1;
        self.any_waiting.store(true, SeqCst);
        let going_on = |_: &mut usize| !self.earlier_ended();
        let _ = self.ended.wait_while_for(&mut waiting, going_on, at_most);
        *waiting -= 1;
        self.any_waiting.store(*waiting > 0, SeqCst);
    }

    fn part(&self) {
        self.parting.fetch_add(1, SeqCst);
    }
}

/// No fence stops the superuser at the server's own machine, who could remove it, nor a server of
/// the cell.
pub(crate) fn is_above_fences(caller: &Caller) -> bool {
    caller.who.level == AuthLevel::Server || caller.is_superuser() && caller.who.host.is_none()
}

/// The server key that the caller's authority rests on; `None`: it rests on none.
pub(crate) fn key_of(caller: &Caller) -> Option<KeyPrint> {
    caller.who.server.filter(|_| caller.who.level != AuthLevel::Enrolling)
}

impl Rules {
    pub fn new(cell: Arc<CellLink>, identities: Arc<Identities>) -> Rules {
        Rules {
            cell,
            identities,
            seen: AtomicU64::default(),
            any_fences: AtomicBool::default(),
            in_use: RwLock::default(),
            enforced: AtomicU64::default(),
            flights: Flights::default(),
            parted: Mutex::default(),
        }
    }

    /// Loads the rules that this server received last.
    fn refresh(&self, access: &dyn Access) {
        if access.rules_at().0 == self.seen.load(SeqCst) {
            return;
        }
        let mut in_use = self.in_use.write();
        let rules = access.rules();
        let fences = Fences::new(&rules.record.fences);
        self.any_fences.store(!fences.is_empty(), SeqCst);
        self.seen.store(rules.revision.0, SeqCst);
        *in_use = Arc::new(RulesInUse { fences, rules });
    }

    fn in_use(&self) -> Arc<RulesInUse> {
        Arc::clone(&self.in_use.read())
    }

    /// Latest revision of the rules, with the servers' keys, that this server received; 0: none.
    pub fn revision(&self) -> Revision {
        self.cell.available().map_or(Revision(0), |db| db.access().rules_at())
    }

    /// Whether the cell's database lists this key as a server's, as of the latest rules here.
    pub fn lists_server(&self, key: &KeyPrint) -> bool {
        let Some(db) = self.cell.available() else { return false };
        self.refresh(db.access());
        self.in_use().lists(key)
    }

    /// The server whose key the caller's connection has shown.
    pub fn server_of(&self, caller: &Caller) -> Option<ServerId> {
        let key = key_of(caller)?;
        self.in_use().rules.record.servers.server(&key)
    }

    /// Checks that the server key of the caller is listed, by rules that are recent enough.
    ///
    /// # Errors
    /// `NotPermitted`; `CellAway`: this server got no news of the database for too long.
    pub fn need_listed(&self, caller: &Caller) -> Result<(), Fault> {
        let Some(key) = key_of(caller) else { return Ok(()) };
        let db = self.cell.db()?.ok_or(Fault::NotPermitted)?;
        if !self.lists_server(&key) {
            return Err(Fault::NotPermitted);
        }
        if db.access().is_elsewhere() && db.access().is_stale() {
            Err(Fault::CellAway)
        } else {
            Ok(())
        }
    }

    /// Checks that the server whose connection brought the call may make it, by its roles.
    ///
    /// # Errors
    /// `NotPermitted`.
    pub fn need_role(&self, caller: &Caller, call: &Call) -> Result<(), Fault> {
        let Some(key) = key_of(caller) else { return Ok(()) };
        let in_use = self.in_use();
        let servers = &in_use.rules.record.servers;
        match servers.server(&key) {
            Some(of) if !guard::server_may(of, servers.roles(of), caller, call) => {
                if self.keeps_its_volume(of, caller, call) {
                    Ok(())
                } else {
                    Err(Fault::NotPermitted)
                }
            }
            _ => Ok(()),
        }
    }

    /// Whether a server writes the record of a volume of its own again as it is, so that a move
    /// that was given up can no longer change it (`admin/freeze.rs`).
    fn keeps_its_volume(&self, of: ServerId, caller: &Caller, call: &Call) -> bool {
        let Call::Cell(CellCall::PutGroup { group, expected }) = call else { return false };
        let is_here = group.read_write_site().is_some_and(|site| site.server == of);
        let db = self.cell.available().filter(|db| db.access().has_records());
        let Some(db) = db.filter(|_| is_here && caller.who.level == AuthLevel::Server) else {
            return false;
        };
        // A change from another revision is refused.
        let is_same =
            |seen: &Revised<VolumeGroup>| seen.revision == *expected && seen.record == **group;
        db.group_of(group.read_write).ok().flatten().as_ref().is_some_and(is_same)
    }

    /// Marks the call as in flight. Call this before reading the rules.
    pub fn begin_request(&self, call: &Call) -> Option<InFlightGuard<'_>> {
        // A call that waits for other servers to enforce a rule, or for another server, is not
        // waited for.
        let waits_for_others =
            matches!(call.traits().blocking, CallBlocking::Database | CallBlocking::Notice);
        (!waits_for_others).then(|| self.flights.enter())
    }

    /// Checks that no fence stops the caller. `client`: the client of its session.
    ///
    /// # Errors
    /// `Fenced`; `CellAway` where a fence depends on the caller's principal, which cannot be looked
    /// up.
    pub fn need_unfenced(
        &self,
        wall: Timestamp,
        caller: &Caller,
        client: impl Fn() -> Option<ClientId>,
    ) -> Result<(), Fault> {
        let Some(db) = self.cell.available() else { return Ok(()) };
        self.refresh(db.access());
        if !self.any_fences.load(SeqCst) || is_above_fences(caller) {
            return Ok(());
        }
        if self.is_stopped(&self.in_use().fences, wall, caller, client)? {
            Err(Fault::Fenced)
        } else {
            Ok(())
        }
    }

    /// Whether one of these fences stops the caller.
    ///
    /// # Errors
    /// As [`Rules::need_unfenced`].
    pub fn is_stopped(
        &self,
        fences: &Fences,
        wall: Timestamp,
        caller: &Caller,
        client: impl Fn() -> Option<ClientId>,
    ) -> Result<bool, Fault> {
        let principal = || self.identities.principal_of(caller);
        let suspect = Suspect {
            principal: fences.ask_for_users().then(principal).transpose()?,
            host: caller.who.host,
            token: caller.who.token,
            client: fences.ask_for_clients().then(client).flatten(),
        };
        Ok(fences.stop(wall.secs, &suspect))
    }

    /// Enforces the rules that this server received last: once the earlier calls have ended,
    /// `end_sessions` ends the sessions of fenced callers. False: an earlier call has not ended
    /// yet, call again.
    pub fn enforce(&self, end_sessions: impl FnOnce(&RulesInUse)) -> bool {
        let Some(db) = self.cell.available() else { return true };
        self.refresh(db.access());
        let wanted = self.seen.load(SeqCst);
        if self.enforced.load(SeqCst) == wanted {
            return true;
        }
        let mut parted = self.parted.lock();
        if *parted != wanted {
            if !self.flights.earlier_ended() {
                return false;
            }
            self.flights.part();
            *parted = wanted;
        }
        if !self.flights.earlier_ended() {
            return false;
        }
        end_sessions(&self.in_use());
        self.enforced.store(wanted, SeqCst);
        true
    }

    /// Waits until the calls that [`Rules::enforce`] waits for have ended, or this time is over.
    pub fn wait_for_calls(&self, at_most: Duration) {
        self.flights.wait_for_earlier(at_most);
    }

    /// The realms of a caller, by all its principals.
    pub fn realms(&self, cps: &Cps) -> Vec<Realm> {
        if let Some(db) = self.cell.available() {
            self.refresh(db.access());
        }
        let in_use = self.in_use();
        let held = in_use.rules.record.mandates.iter().filter(|mandate| cps.has(mandate.principal));
        held.map(|mandate| mandate.realm.clone()).collect()
    }
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

    #[test]
    fn a_wait_for_earlier_calls_ends_with_the_last_of_them() {
        let flights = Flights::default();
        let before = flights.enter();
        flights.part();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                flights.wait_for_earlier(Duration::from_secs(60));
                flights.earlier_ended()
            });
            while !flights.any_waiting.load(SeqCst) {
                std::thread::yield_now();
            }
            drop(before);
            assert!(waits.join().unwrap());
        });
        assert!(!flights.any_waiting.load(SeqCst));
    }
}
