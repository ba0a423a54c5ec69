//! The other servers: up to which revision each has put changes into force.
//!
//! Who makes a change that takes rights away waits until all servers that were heard of lately have
//! it. One that is silent is not waited for: it is gone, or cannot hear, and goes on with what it
//! knows until it hears again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use types::{Revision, ServerId};

/// A server that was not heard of for so long is silent. Servers ask several times in it.
const SILENT_AFTER: Duration = Duration::from_secs(5);

/// Who is heard of and yet has not put a rule into force after so long is not waited for either:
/// something that began before does not end there. Shorter than who asks for the change waits for
/// its answer.
const CONFIRM_WITHIN: Duration = Duration::from_secs(6);
const _: () = assert!(SILENT_AFTER.as_secs() < CONFIRM_WITHIN.as_secs());

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Listeners {
    heard: Mutex<HashMap<ServerId, (Revision, Instant)>>,
    more: Condvar,
}

impl Listeners {
    /// `who` has everything up to `since`.
    pub fn heard(&self, who: ServerId, since: Revision) {
        self.heard.lock().insert(who, (since, Instant::now()));
        self.more.notify_all();
    }

    /// Waits until all of these servers have `revision`, and who else was heard of lately (a server
    /// hears before it enters itself), but for those that stay silent; which those are. `apart`: is
    /// not waited for in any case.
    pub fn missing(
        &self,
        revision: Revision,
        servers: &[ServerId],
        apart: Option<ServerId>,
    ) -> Vec<ServerId> {
        let began = Instant::now();
        let mut heard = self.heard.lock();
        loop {
            let lacks =
                |server: &&ServerId| heard.get(*server).is_none_or(|(at, _)| *at < revision);
            let is_new = |server: &&ServerId| {
                !servers.contains(server)
                    && heard.get(*server).is_some_and(|(_, when)| when.elapsed() < SILENT_AFTER)
            };
            let all = servers
                .iter()
                .chain(heard.keys().filter(is_new))
                .filter(|server| Some(**server) != apart);
            let lacking: Vec<ServerId> = all.filter(lacks).copied().collect();
            // Who was never heard of may have begun a moment ago.
            let is_silent = |server: &ServerId| {
                began.elapsed() >= SILENT_AFTER
                    && heard.get(server).is_none_or(|(_, when)| when.elapsed() >= SILENT_AFTER)
            };
            if began.elapsed() >= CONFIRM_WITHIN || lacking.iter().all(is_silent) {
                return lacking;
            }
            self.more.wait_for(&mut heard, Duration::from_millis(50));
        }
    }

    /// Waits until everybody who is not silent has `revision`; but for `apart`.
    pub fn wait_for(&self, revision: Revision, apart: Option<ServerId>) {
        let mut heard = self.heard.lock();
        let lacks = |server: &ServerId, at: &Revision, when: &Instant| {
            Some(*server) != apart && *at < revision && when.elapsed() < SILENT_AFTER
        };
        while heard.iter().any(|(server, (at, when))| lacks(server, at, when)) {
            self.more.wait_for(&mut heard, Duration::from_millis(50));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_heard_of_is_waited_for_though_it_is_not_entered_yet() {
        let (entered, new) = (ServerId(1), ServerId(2));
        let listeners = Listeners::default();
        listeners.heard(entered, Revision(7));
        listeners.heard(new, Revision(6));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| listeners.missing(Revision(7), &[entered], None));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waits.is_finished());
            listeners.heard(new, Revision(7));
            assert_eq!(waits.join().ok(), Some(vec![]));
        });
    }
}
