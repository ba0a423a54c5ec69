//! The other servers, each with the revision up to which it has put changes into force.
//!
//! A change that takes rights away waits until all servers have it that asked lately. It does not
//! wait for a silent one: that server is gone, or is cut off, and goes on with its present rules
//! until it can ask again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use types::{Revision, ServerId};

/// A server that has not asked for this long is silent. Servers ask several times within it.
const SILENT_AFTER: Duration = Duration::from_secs(5);

/// A server that asks and yet has not put a rule into force after this long is not waited for
/// either: a call that began before does not end there. Shorter than the time that the caller who
/// makes the change waits for its answer.
const CONFIRM_WITHIN: Duration = Duration::from_secs(6);
const _: () = assert!(SILENT_AFTER.as_secs() < CONFIRM_WITHIN.as_secs());

#[derive(Default)]
pub(crate) struct Listeners {
    confirmed: Mutex<HashMap<ServerId, (Revision, Instant)>>,
    more: Condvar,
}

impl Listeners {
    /// `who` has everything up to `since`.
    pub fn confirm(&self, who: ServerId, since: Revision) {
        self.confirmed.lock().insert(who, (since, Instant::now()));
        self.more.notify_all();
    }

    /// Waits until `revision` is at all of these servers, and at others that asked lately (a server
    /// asks before it enters itself), except silent ones; returns those that lack it. `apart` is
    /// never waited for.
    pub fn missing(
        &self,
        revision: Revision,
        servers: &[ServerId],
        apart: Option<ServerId>,
    ) -> Vec<ServerId> {
        let began = Instant::now();
        let mut confirmed = self.confirmed.lock();
        loop {
            let lacks =
                |server: &&ServerId| confirmed.get(*server).is_none_or(|(at, _)| *at < revision);
            let is_new = |server: &&ServerId| {
                !servers.contains(server)
                    && confirmed.get(*server).is_some_and(|(_, when)| when.elapsed() < SILENT_AFTER)
            };
            let all = servers
                .iter()
                .chain(confirmed.keys().filter(is_new))
                .filter(|server| Some(**server) != apart);
            let lacking: Vec<ServerId> = all.filter(lacks).copied().collect();
            // A server that never asked may have started a moment ago.
            let is_silent = |server: &ServerId| {
                began.elapsed() >= SILENT_AFTER
                    && confirmed.get(server).is_none_or(|(_, when)| when.elapsed() >= SILENT_AFTER)
            };
            if began.elapsed() >= CONFIRM_WITHIN || lacking.iter().all(is_silent) {
                return lacking;
            }
            self.more.wait_for(&mut confirmed, Duration::from_millis(50));
        }
    }

    /// Waits until every server that is not silent has `revision`; except `apart`.
    pub fn wait_for(&self, revision: Revision, apart: Option<ServerId>) {
        let mut confirmed = self.confirmed.lock();
        let lacks = |server: &ServerId, at: &Revision, when: &Instant| {
            Some(*server) != apart && *at < revision && when.elapsed() < SILENT_AFTER
        };
        while confirmed.iter().any(|(server, (at, when))| lacks(server, at, when)) {
            self.more.wait_for(&mut confirmed, Duration::from_millis(50));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_waits_for_a_server_that_is_not_entered_yet() {
        let (entered, new) = (ServerId(1), ServerId(2));
        let listeners = Listeners::default();
        listeners.confirm(entered, Revision(7));
        listeners.confirm(new, Revision(6));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| listeners.missing(Revision(7), &[entered], None));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waits.is_finished());
            listeners.confirm(new, Revision(7));
            assert_eq!(waits.join().ok(), Some(vec![]));
        });
    }
}
