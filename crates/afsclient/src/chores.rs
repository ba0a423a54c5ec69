//! Work of now and then: servers are looked for, and locks extended.

use std::time::{Duration, Instant};

use crate::context::{AfsCall, ForeignCell};
use crate::locks::LockCalls;
use crate::users::AfsUser;

/// How often a thread looks whether it is to end.
const POLL: Duration = Duration::from_millis(50);

/// A server that promised something is asked whether it is there when it was not heard of for this
/// time: it may have missed to call back. Source: OpenAFS's clients, which ask each 3 minutes.
const PROBE_EVERY: Duration = Duration::from_secs(60);
/// How often locks are extended, which end after 5 minutes: so one attempt may fail.
const EXTEND_EVERY: Duration = Duration::from_secs(120);
/// How often the client looks for such servers.
const PROBE_LOOK: Duration = Duration::from_secs(5);

impl ForeignCell {
    /// Ends the promises of servers that are not there, and extends locks, until the end.
    pub fn probe_servers(&self) {
        let mut extended = Instant::now();
        while !self.coherence.is_closed() {
            let until = Instant::now() + PROBE_LOOK;
            while Instant::now() < until && !self.coherence.is_closed() {
                std::thread::sleep(POLL);
            }
            if extended.elapsed() >= EXTEND_EVERY {
                extended = Instant::now();
                for (fid, file) in self.locks.all() {
                    let call = AfsCall { cell: self, user: AfsUser::default(), cancel: None };
                    LockCalls(&call).extend_lock(fid, &file);
                }
            }
            let servers = self.coherence.with(|promises| promises.servers());
            for server in servers {
                if self.coherence.is_closed() || self.locations.has_answered(server, PROBE_EVERY) {
                    continue;
                }
                let answers = self.servers.answers(server);
                self.locations.heard(server, answers);
                if !answers {
                    tracing::warn!(
                        %server,
                        cell = self.name,
                        consequence = "its files are asked for again",
                        "a file server does not answer"
                    );
                    self.coherence.server_lost(server);
                }
            }
        }
    }
}
