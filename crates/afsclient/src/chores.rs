//! Work of now and then: servers are looked for, and locks extended.

use std::time::{Duration, Instant};

use crate::context::{AfsCall, AfsSession};
use crate::locks::LockCalls;

/// How often a thread looks whether it is to end.
const POLL: Duration = Duration::from_millis(50);

/// A server that promised something is asked whether it is there when it was not heard of for this
/// time: it may have missed to call back. Source: OpenAFS's clients, which ask each 3 minutes.
const PROBE_EVERY: Duration = Duration::from_secs(60);
/// How often locks are extended, which end after 5 minutes: so one attempt may fail.
const EXTEND_EVERY: Duration = Duration::from_secs(120);
/// How often the client looks for such servers.
const PROBE_LOOK: Duration = Duration::from_secs(5);

impl AfsSession {
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
                    let call = AfsCall::of_session(self);
                    LockCalls(&call).extend_lock(fid, &file);
                }
            }
            let mut servers = self.coherence.with(|promises| promises.servers());
            let is_parted = self.locations.is_parted();
            if is_parted {
                servers.extend(self.locations.own_addresses());
            }
            for server in servers {
                let is_heard = !is_parted && self.locations.has_answered(server, PROBE_EVERY);
                if self.coherence.is_closed() || is_heard {
                    continue;
                }
                if self.servers.answers(server) {
                    self.locations.heard(server, true);
                } else {
                    tracing::warn!(
                        %server,
                        cell = self.name,
                        consequence = "its files are asked for again",
                        "a file server does not answer"
                    );
                    self.server_is_silent(server);
                }
            }
        }
    }
}
