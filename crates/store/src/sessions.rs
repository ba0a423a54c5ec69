//! The session state that survives a restart: session numbers, records, last replies, and clients'
//! incarnations.

use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use types::{ClientId, SessionId};

use crate::error::Result;
use crate::format::key::{self, kind, which};
use crate::format::record::{self, SessionRecord, StoredReply};
use crate::media::Media;
use crate::media::engine::{Batch, Engine, prefix_end};

/// Session numbers that are reserved in one stable step.
const SESSIONS_AT_ONCE: u64 = 64;

/// Numbers that are never used twice: those below `next` are allocated, those below `stored`
/// reserved.
struct Counter {
    next: u64,
    stored: u64,
}

/// The sessions of a partition.
pub struct SessionTable {
    media: Arc<Media>,
    counter: Mutex<Counter>,
}

impl SessionTable {
    /// Treats numbers that an earlier process reserved as used.
    pub(crate) fn open(media: &Arc<Media>) -> Result<SessionTable> {
        let next = media.number(&key::partition(which::NEXT_SESSION))?.unwrap_or(1);
        let counter = Mutex::new(Counter { next, stored: next });
        Ok(SessionTable { media: Arc::clone(media), counter })
    }

    /// Allocates a session number that was never used. Stable when it returns.
    ///
    /// # Errors
    /// `Medium`.
    pub fn allocate_session(&self) -> Result<SessionId> {
        let mut counter = self.counter.lock();
        let next = counter.next;
        self.allocate_upto(&mut counter, next + 1)?;
        Ok(SessionId(next))
    }

    /// No session gets this number from now on. Stable when it returns.
    ///
    /// # Errors
    /// `Medium`.
    pub fn use_up(&self, session: SessionId) -> Result<()> {
        let mut counter = self.counter.lock();
        if session.0 < counter.next {
            return Ok(());
        }
        self.allocate_upto(&mut counter, session.0 + 1)
    }

    fn allocate_upto(&self, counter: &mut Counter, next: u64) -> Result<()> {
        if next > counter.stored {
            let key = key::partition(which::NEXT_SESSION);
            let stored = next - 1 + SESSIONS_AT_ONCE;
            let mut batch = Batch::default();
            batch.put(&key, &record::encode_numbers(&key, &[stored]));
            self.media.apply(&batch)?;
            self.media.sync()?;
            counter.stored = stored;
        }
        counter.next = next;
        debug_assert!(counter.next <= counter.stored, "EO-1: a session number is reserved first");
        Ok(())
    }

    /// All session records.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn list(&self) -> Result<Vec<SessionRecord>> {
        let mut sessions = Vec::new();
        self.media.each(&[kind::SESSION], &mut |key, value| {
            let session =
                SessionId(key::number_at(key, 0).ok_or_else(|| record::damaged("session", key))?);
            sessions.push(record::decode_session(key, session, value)?);
            Ok(())
        })?;
        Ok(sessions)
    }

    /// Writes a session record (unstable until the next sync).
    ///
    /// # Errors
    /// `Medium`.
    pub fn put_session(&self, record: &SessionRecord) -> Result<()> {
        let key = key::session(record.session);
        let mut batch = Batch::default();
        batch.put(&key, &record::encode_session(&key, record));
        self.media.apply(&batch).map(drop)
    }

    /// Removes a session with its replies.
    ///
    /// # Errors
    /// `Medium`.
    pub fn remove_session(&self, session: SessionId) -> Result<()> {
        let mut batch = Batch::default();
        batch.delete(&key::session(session));
        for reply in self.replies(session)? {
            batch.delete(&key::reply(session, reply.slot));
        }
        self.media.apply(&batch).map(drop)
    }

    /// A session's stored replies, by slot.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn replies(&self, session: SessionId) -> Result<Vec<StoredReply>> {
        let mut replies = Vec::new();
        self.media.each(&key::replies(session), &mut |key, value| {
            let slot = key::number_at(key, 1).and_then(|slot| u32::try_from(slot).ok());
            let slot = slot.ok_or_else(|| record::damaged("reply", key))?;
            replies.push(record::decode_reply(key, slot, value)?);
            Ok(())
        })?;
        Ok(replies)
    }

    /// Removes the replies of sessions for which `known` is false: sessions without a record, which
    /// ended with the process.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn forget_replies(&self, known: &dyn Fn(SessionId) -> bool) -> Result<()> {
        let mut stray = std::collections::BTreeSet::new();
        self.media.each(&[kind::REPLY], &mut |key, _| {
            let session =
                SessionId(key::number_at(key, 0).ok_or_else(|| record::damaged("reply", key))?);
            if !known(session) {
                stray.insert(session);
            }
            Ok(())
        })?;
        stray.into_iter().try_for_each(|session| self.remove_session(session))
    }

    /// The highest recorded incarnation of a client, unless it was forgotten.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn incarnation(&self, client: ClientId) -> Result<Option<u64>> {
        let key = key::client(client);
        let value = self.media.engine.get(&key)?;
        Ok(value
            .map(|value| decode_client(&key, &value))
            .transpose()?
            .map(|(incarnation, _)| incarnation))
    }

    /// Records a client's incarnation (unstable until the next sync).
    ///
    /// # Errors
    /// `Medium`.
    pub fn put_incarnation(&self, client: ClientId, incarnation: u64) -> Result<()> {
        let key = key::client(client);
        let mut batch = Batch::default();
        batch.put(&key, &record::encode_numbers(&key, &[incarnation]));
        self.media.apply(&batch).map(drop)
    }

    /// Scans at most `count` clients' records behind `after`: forgets clients without a session
    /// that were absent on `day - kept` already, and notes the day for newly absent ones. Returns
    /// how many were forgotten, and the last client; `None`: the scan is complete. The caller
    /// ensures that no client connects meanwhile.
    ///
    /// # Errors
    /// `Damaged`, `Medium`.
    pub fn forget_clients(
        &self,
        after: Option<ClientId>,
        count: usize,
        (day, kept): (u64, u64),
        is_here: &dyn Fn(ClientId) -> bool,
    ) -> Result<(usize, Option<ClientId>)> {
        let from = after.map(key::client);
        let (mut found, mut more) = (Vec::new(), false);
        let first = from.as_ref().map_or(&[kind::CLIENT][..], |key| &key[..]);
        self.media.engine.scan(first, &prefix_end(&[kind::CLIENT]), &mut |key, value| {
            if from.as_ref().is_some_and(|from| from[..] == *key) {
                return ControlFlow::Continue(());
            }
            more = found.len() == count;
            if more {
                return ControlFlow::Break(());
            }
            found.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        let (mut batch, mut forgotten, mut last) = (Batch::default(), 0, None);
        for (key, value) in &found {
            let (incarnation, away) = decode_client(key, value)?;
            let client = client_of(key).ok_or_else(|| record::damaged("client", key))?;
            last = Some(client);
            match away {
                _ if is_here(client) => {}
                None => batch.put(key, &record::encode_numbers(key, &[incarnation, day])),
                Some(since) if since.saturating_add(kept) <= day => {
                    batch.delete(key);
                    forgotten += 1;
                }
                Some(_) => {}
            }
        }
        self.media.apply(&batch)?;
        Ok((forgotten, last.filter(|_| more)))
    }
}

/// The incarnation, and the first day on which the client was absent.
fn decode_client(key: &[u8], value: &[u8]) -> Result<(u64, Option<u64>)> {
    match record::decode_numbers::<2>(key, value) {
        Ok([incarnation, day]) => Ok((incarnation, Some(day))),
        Err(_) => record::decode_numbers::<1>(key, value).map(|[incarnation]| (incarnation, None)),
    }
}

fn client_of(key: &[u8]) -> Option<ClientId> {
    Some(ClientId(u128::from(key::number_at(key, 0)?) << 64 | u128::from(key::number_at(key, 1)?)))
}
