//! Which server has put which revision into force: a key of each, by the lease of the server that
//! wrote it.
//!
//! A server writes its own, and those of the servers that ask it for changes because they do not
//! reach etcd themselves. The lease ends with it: then nothing waits for these servers any more.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::json;
use types::{Revision, ServerId};

use super::store::{EtcdStore, decoded, encoded, number};
use crate::CellError;

type Result<T> = std::result::Result<T, CellError>;

/// How long the keys outlive the last sign of their server.
const LEASE_SECS: u64 = 5;
/// Between two signs.
const SIGN_EVERY: Duration = Duration::from_millis(1500);
/// A server that has not asked this one for this long is silent.
const SILENT_AFTER: Duration = Duration::from_secs(LEASE_SECS);
/// A server that lives and yet has not put a change into force after this long is not waited for.
const CONFIRM_WITHIN: Duration = Duration::from_secs(6);
/// Between two looks at the keys, while a change waits.
const LOOK_EVERY: Duration = Duration::from_millis(15);

/// See the head of the file.
pub(super) struct Heard {
    store: EtcdStore,
    written: Mutex<Written>,
}

#[derive(Default)]
struct Written {
    /// The lease and when its last sign was sent.
    lease: Option<(i64, Instant)>,
    /// The revisions in the keys, and when each server asked last.
    keys: HashMap<ServerId, (Revision, Instant)>,
}

impl Heard {
    pub fn of(store: EtcdStore) -> Heard {
        Heard { store, written: Mutex::default() }
    }

    /// Does the key of `who` have this revision?
    pub fn has(&self, who: ServerId, since: Revision) -> bool {
        self.written.lock().keys.get(&who).is_some_and(|(at, _)| *at == since)
    }

    fn key(&self, who: ServerId) -> String {
        encoded(self.store.beside(&format!("heard/{:032x}", who.0)))
    }

    /// The server `who` has everything up to `since`. When this returns, changes wait for it.
    ///
    /// # Errors
    /// etcd's. Then `who` must not be told of later changes.
    pub fn acknowledge(&self, who: ServerId, since: Revision) -> Result<()> {
        let mut written = self.written.lock();
        self.renew(&mut written)?;
        let before = written.keys.insert(who, (since, Instant::now()));
        if before.is_some_and(|(at, _)| at == since) {
            return Ok(());
        }
        let put = self.put(&mut written, who, since);
        if put.is_err() {
            written.keys.remove(&who);
        }
        put
    }

    /// Sends a sign, or begins a new lease with all keys.
    fn renew(&self, written: &mut Written) -> Result<()> {
        let now = Instant::now();
        if let Some((lease, sent)) = written.lease {
            if now.duration_since(sent) < SIGN_EVERY {
                return Ok(());
            }
            let answer =
                self.store.call("/v3/lease/keepalive", &json!({"ID": lease.to_string()}))?;
            if number(&answer["result"]["TTL"]) > 0 {
                written.lease = Some((lease, now));
                return Ok(());
            }
        }
        written.lease = None;
        let grant = self.store.call("/v3/lease/grant", &json!({"TTL": LEASE_SECS}))?;
        written.lease = Some((number(&grant["ID"]), now));
        // The keys of the lease that has ended are written again when their servers ask.
        written.keys.clear();
        Ok(())
    }

    fn put(&self, written: &mut Written, who: ServerId, since: Revision) -> Result<()> {
        let Some((lease, _)) = written.lease else {
            return Err(CellError::NoQuorum("there is no lease".to_owned()));
        };
        let body = json!({"key": self.key(who), "value": encoded(since.0.to_string()),
            "lease": lease.to_string()});
        let put = self.store.call("/v3/kv/put", &body).map(drop);
        if put.is_err() {
            // The lease may have ended: the next attempt begins another one.
            written.lease = None;
        }
        put
    }

    /// Removes the keys of servers that do not ask this one any more, but none that a server has
    /// written by itself since.
    ///
    /// # Errors
    /// etcd's.
    pub fn forget_silent(&self, me: ServerId, now: Instant) -> Result<()> {
        let mut written = self.written.lock();
        let silent = |(who, (_, when)): (&ServerId, &(Revision, Instant))| {
            (*who != me && now.duration_since(*when) >= SILENT_AFTER).then_some(*who)
        };
        let gone: Vec<ServerId> = written.keys.iter().filter_map(silent).collect();
        for who in gone {
            if let Some((lease, _)) = written.lease {
                let key = self.key(who);
                let ours = json!({"key": key, "target": "LEASE", "lease": lease.to_string(),
                    "result": "EQUAL"});
                let remove = json!({"request_delete_range": {"key": key}});
                self.store.call("/v3/kv/txn", &json!({"compare": [ours], "success": [remove]}))?;
            }
            written.keys.remove(&who);
        }
        Ok(())
    }

    /// The end of this server: nothing waits for it.
    pub fn leave(&self) {
        if let Some((lease, _)) = self.written.lock().lease.take() {
            let _ = self.store.call("/v3/lease/revoke", &json!({"ID": lease.to_string()}));
        }
    }

    /// The revision of each server that has a key.
    fn all(&self) -> Result<HashMap<ServerId, Revision>> {
        let (from, to) = (self.store.beside("heard/"), self.store.beside("heard0"));
        let body = json!({"key": encoded(&from), "range_end": encoded(to)});
        let answer = self.store.call("/v3/kv/range", &body)?;
        let mut all = HashMap::new();
        for found in answer["kvs"].as_array().into_iter().flatten() {
            let (key, value) = (decoded(&found["key"])?, decoded(&found["value"])?);
            let (key, value) = (String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
            let id = key.strip_prefix(&from).and_then(|id| u128::from_str_radix(id, 16).ok());
            if let Some(id) = id {
                // A text that is no number counts as nothing that the server has.
                all.insert(ServerId(id), Revision(value.parse().unwrap_or_default()));
            }
        }
        Ok(all)
    }

    /// Waits until all servers have `revision` that have a key, but no longer than a caller waits.
    /// Returns those that lack it, with those of `servers` that have no key. `apart` is never
    /// waited for.
    pub fn missing(
        &self,
        revision: Revision,
        servers: &[ServerId],
        apart: Option<ServerId>,
    ) -> Vec<ServerId> {
        let began = Instant::now();
        let (mut all, mut looked) = (HashMap::new(), false);
        loop {
            match self.all() {
                Ok(found) => (all, looked) = (found, true),
                Err(error) => tracing::debug!(%error, "no look at the servers"),
            }
            let lacks = |(who, at): (&ServerId, &Revision)| {
                (Some(*who) != apart && *at < revision).then_some(*who)
            };
            let lacking: Vec<ServerId> = all.iter().filter_map(lacks).collect();
            if looked && lacking.is_empty() || began.elapsed() >= CONFIRM_WITHIN {
                let gone = servers.iter().filter(|who| !all.contains_key(who));
                let gone = gone.filter(|who| Some(**who) != apart).copied();
                let mut missing: Vec<ServerId> = lacking.into_iter().chain(gone).collect();
                missing.sort_unstable();
                return missing;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}
