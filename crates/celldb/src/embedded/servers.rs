//! Servers: a record for each, which lists its keys, and one for each key that was listed once.
//!
//! A key that was withdrawn is never listed again: not by the server that had it, nor by another
//! one. A key that a server has replaced is listed again only by an administrator or a server: its
//! holder can no longer enter it. The keys that records list are part of the rules, which are in
//! memory ([`super::rules`]).

use guard::{Rules, ServerKeys};
use rocksdb::WriteBatch;
use types::limits::{SERVER_KEYS_MAX, SERVERS_MAX};
use types::{Answer, Changed, Fault, KeyPrint, Revised, Revision, ServerId, ServerInfo};

use super::{Embedded, Result, need_seen, revision_of};
use crate::record::{self, CellCounters, Past};
use crate::{CellError, key};

impl Embedded {
    pub(super) fn server(&self, id: ServerId) -> Result<Option<Revised<ServerInfo>>> {
        let key = key::server(id);
        self.get(&key)?.map(|value| record::decode_server(&key, &value)).transpose()
    }

    /// All records, without keys that were withdrawn: two may have listed the same key.
    pub(super) fn listed_servers(&self) -> Result<Vec<Revised<ServerInfo>>> {
        let from = key::server(ServerId(0));
        let mut servers = Vec::new();
        self.scan(&from, &mut |key, value| {
            if key.first() != from.first() {
                return Ok(false);
            }
            let mut seen = record::decode_server(key, value)?;
            let mut good = Vec::with_capacity(seen.record.keys.len());
            for print in std::mem::take(&mut seen.record.keys) {
                if !self.is_withdrawn(&print)? {
                    good.push(print);
                }
            }
            seen.record.keys = good;
            servers.push(seen);
            Ok(true)
        })?;
        Ok(servers)
    }

    pub(super) fn past(&self, print: &KeyPrint) -> Result<Option<Past>> {
        let key = key::past_key(print);
        self.get(&key)?.map(|value| record::decode_past_key(&key, &value)).transpose()
    }

    fn is_withdrawn(&self, print: &KeyPrint) -> Result<bool> {
        Ok(self.past(print)? == Some(Past::Withdrawn))
    }

    pub(super) fn server_keys(&self) -> Result<ServerKeys> {
        Ok(ServerKeys::of(self.listed_servers()?.iter().map(|seen| &seen.record)))
    }

    /// Checks that the record is consistent.
    fn need_sound_server(&self, server: &ServerInfo) -> Result<()> {
        let keys = &server.keys;
        let twice = |at: usize| keys.iter().take(at).any(|before| keys.get(at) == Some(before));
        if keys.len() > SERVER_KEYS_MAX || (0..keys.len()).any(twice) {
            return Err(CellError::Misuse(format!(
                "a server lists {SERVER_KEYS_MAX} keys at most, each once"
            )));
        }
        for key in keys {
            if self.is_withdrawn(key)? {
                return Err(CellError::Withdrawn { key: *key });
            }
        }
        Ok(())
    }

    pub(super) fn write_server(&self, server: &ServerInfo, expected: Revision) -> Result<Revision> {
        let mut counters = self.counters.lock();
        self.need_room()?;
        let before = self.server(server.id)?;
        need_seen(expected, revision_of(before.as_ref()))?;
        self.need_sound_server(server)?;
        if before.is_none() && self.listed_servers()?.len() >= SERVERS_MAX {
            return Err(CellError::Away(Fault::NoSpace));
        }
        let had = before.map(|before| before.record.keys).unwrap_or_default();
        let changes_keys = had != server.keys;
        let mut dropped = Vec::new();
        for print in had.iter().filter(|had| !server.keys.contains(had)) {
            if !self.is_withdrawn(print)? {
                dropped.push(*print);
            }
        }
        let revision =
            self.change(&mut counters, Changed::Server(server.id), |revision, _, batch| {
                put_past(batch, revision, &dropped, server.id, Past::Replaced);
                let key = key::server(server.id);
                batch.put(&key, record::encode_server(&key, revision, server));
            })?;
        if changes_keys {
            self.refresh_keys(revision);
        }
        drop(counters);
        if changes_keys {
            // The server itself makes this call, and fetches no changes meanwhile.
            self.listeners.wait_for(revision, Some(server.id));
        }
        Ok(revision)
    }

    /// Removes a server and withdraws its keys, so that it does not come back by them.
    pub(super) fn erase_server(&self, id: ServerId, expected: Revision) -> Result<Revision> {
        let mut counters = self.counters.lock();
        let before = self.server(id)?;
        need_seen(expected, revision_of(before.as_ref()))?;
        let gone = before.map(|before| before.record);
        let revision = self
            .withdraw(&mut counters, id, gone.as_ref(), |_, batch| batch.delete(key::server(id)))?;
        drop(counters);
        self.listeners.wait_for(revision, Some(id));
        Ok(revision)
    }

    /// Withdraws the keys of a server; its record stays, so that a new key can be entered.
    pub(super) fn withdraw_keys(
        &self,
        me: ServerId,
        id: ServerId,
    ) -> std::result::Result<Answer, Fault> {
        let mut counters = self.counters.lock();
        let before = self.server(id)?.ok_or(Fault::NotFound)?.record;
        let count = before.keys.len() as u64;
        let after = ServerInfo { keys: Vec::new(), ..before.clone() };
        let revision = self.withdraw(&mut counters, id, Some(&before), |revision, batch| {
            let key = key::server(id);
            batch.put(&key, record::encode_server(&key, revision, &after));
        })?;
        drop(counters);
        let others = self
            .listed_servers()?
            .into_iter()
            .map(|seen| seen.record.id)
            .filter(|other| *other != me);
        Ok(Answer::Enforced {
            number: count,
            missing: self.listeners.missing(revision, &others.collect::<Vec<_>>(), Some(id)),
        })
    }

    /// Withdraws the keys of `gone`, in one batch with the changes of `fill`.
    fn withdraw(
        &self,
        counters: &mut CellCounters,
        id: ServerId,
        gone: Option<&ServerInfo>,
        fill: impl FnOnce(Revision, &mut WriteBatch),
    ) -> Result<Revision> {
        let keys = gone.map_or(&[][..], |gone| &gone.keys);
        let revision = self.change(counters, Changed::Server(id), |revision, _, batch| {
            put_past(batch, revision, keys, id, Past::Withdrawn);
            fill(revision, batch);
        })?;
        debug_assert!(
            keys.iter().all(|key| self.is_withdrawn(key).unwrap_or(true)),
            "AC-10: a key that was withdrawn stays so"
        );
        self.refresh_keys(revision);
        Ok(revision)
    }

    /// Puts the listed keys into the rules in memory. If they cannot be read, there are none: a
    /// withdrawn key must not be accepted.
    fn refresh_keys(&self, revision: Revision) {
        let servers = self.server_keys().unwrap_or_else(|error| {
            tracing::error!(
                %error,
                "the keys of servers cannot be read: every server is refused until a change of one \
                 of them; check the disk of the cell's database"
            );
            ServerKeys::default()
        });
        let rules = Rules { servers, ..self.rules.read().record.clone() };
        self.set_rules(rules, revision);
    }
}

fn put_past(
    batch: &mut WriteBatch,
    revision: Revision,
    keys: &[KeyPrint],
    of: ServerId,
    how: Past,
) {
    for print in keys {
        let key = key::past_key(print);
        batch.put(&key, record::encode_past_key(&key, revision, of, how));
    }
}
