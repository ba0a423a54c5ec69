//! Principals in the database: a record for each, its name and uid as pointers, and the links
//! between them in both directions.

use std::net::IpAddr;
use std::sync::Arc;

use guard::{Book, Edit, GroupLink, Highest, PtsAsker, Rules, Write};
use rocksdb::WriteBatch;
use types::{
    Answer, AuthCall, Behalf, Changed, Fault, GuardCall, KeyPrint, Principal, PrincipalId, PtsCall,
    Revised, Revision, ServerId, WhichPrincipal,
};

use super::{Embedded, Result};
use crate::access::News;
use crate::{Access, CellDb, CellError, key, record};

/// The most changes in one answer.
const NEWS_MAX: usize = 1000;

impl Embedded {
    /// Adds the system principals that every cell has: to a new database, and to one that is older
    /// than principals.
    pub(super) fn add_system_principals(&self) -> Result<()> {
        let mut counters = self.counters.lock();
        let mut batch = WriteBatch::default();
        for one in guard::system_principals() {
            if self.record(one.id)?.is_none() {
                put(&mut batch, Revision(0), None, &one);
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        let next = *counters;
        self.write(batch, &mut counters, next)
    }

    fn record(&self, id: PrincipalId) -> Result<Option<Principal>> {
        let key = key::principal(id);
        self.get(&key)?.map(|value| record::decode_principal(&key, &value)).transpose()
    }

    fn id_at(&self, key: &[u8]) -> Result<Option<PrincipalId>> {
        self.get(key)?.map(|value| record::decode_id(key, &value)).transpose()
    }

    /// Writes a permitted change as one batch.
    fn apply(&self, edit: &Edit) -> Result<Revision> {
        let mut befores = Vec::with_capacity(edit.writes.len());
        for write in &edit.writes {
            befores.push(match write {
                Write::Put(Principal { id, .. }) | Write::Remove(id) => self.record(*id)?,
                Write::Join { .. } | Write::Leave { .. } | Write::Highest(_) => None,
            });
        }
        let mut counters = self.counters.lock();
        self.change(&mut counters, edit.changed, |revision, _, batch| {
            for (write, before) in edit.writes.iter().zip(&befores) {
                match write {
                    Write::Put(one) => put(batch, revision, before.as_ref(), one),
                    Write::Remove(id) => {
                        before.iter().for_each(|before| forget(batch, before));
                        batch.delete(key::principal(*id));
                        batch.delete(key::secret(*id));
                    }
                    Write::Join { group, member } => {
                        for (link, of, to) in [
                            (GroupLink::Member, *group, *member),
                            (GroupLink::Group, *member, *group),
                        ] {
                            let key = key::link(link, of, to);
                            batch.put(&key, record::encode_id(&key, to));
                        }
                    }
                    Write::Leave { group, member } => {
                        batch.delete(key::link(GroupLink::Member, *group, *member));
                        batch.delete(key::link(GroupLink::Group, *member, *group));
                    }
                    Write::Highest(highest) => {
                        batch.put(key::HIGHEST, record::encode_highest(key::HIGHEST, *highest));
                    }
                }
            }
        })
    }
}

/// A time later than the issue of every token until now: tokens of this second are void too. A
/// token that is issued next carries this time (`login::TokenIssuer::issue`), so it must not run
/// far ahead of the clock: a later time that an administrator has set stays.
pub(super) fn tokens_after(before: i64, now: i64) -> i64 {
    const AHEAD_MAX: i64 = 30;
    if before > now.saturating_add(AHEAD_MAX) { before } else { before.max(now).saturating_add(1) }
}

/// Replaces a principal's record, and the pointers to it.
fn put(batch: &mut WriteBatch, revision: Revision, before: Option<&Principal>, one: &Principal) {
    if let Some(before) = before {
        forget(batch, before);
    }
    let key = key::principal(one.id);
    batch.put(&key, record::encode_principal(&key, revision, one));
    let uid = one.uid.map(key::uid);
    for key in [key::principal_name(&one.name)].into_iter().chain(uid) {
        batch.put(&key, record::encode_id(&key, one.id));
    }
    let key = key::link(GroupLink::Owned, one.owner, one.id);
    batch.put(&key, record::encode_id(&key, one.id));
}

/// Removes the pointers to a principal.
fn forget(batch: &mut WriteBatch, before: &Principal) {
    batch.delete(key::principal_name(&before.name));
    before.uid.iter().for_each(|uid| batch.delete(key::uid(*uid)));
    batch.delete(key::link(GroupLink::Owned, before.owner, before.id));
}

impl Book for Embedded {
    fn get(&self, id: PrincipalId) -> std::result::Result<Option<Principal>, Fault> {
        Ok(self.record(id)?)
    }

    fn named(&self, name: &str) -> std::result::Result<Option<PrincipalId>, Fault> {
        Ok(self.id_at(&key::principal_name(name))?)
    }

    fn with_uid(&self, uid: u32) -> std::result::Result<Option<PrincipalId>, Fault> {
        Ok(self.id_at(&key::uid(uid))?)
    }

    fn linked(
        &self,
        link: GroupLink,
        of: PrincipalId,
        after: PrincipalId,
        max: usize,
    ) -> std::result::Result<Vec<PrincipalId>, Fault> {
        let mut all = Vec::new();
        let Some(first) = after.0.checked_add(1) else { return Ok(all) };
        let from = key::link(link, of, PrincipalId(first));
        let begin = from.len() - size_of::<u32>();
        self.scan(&from, &mut |key, _| {
            let Some(id) = key::linked(key)
                .filter(|_| key.get(..begin) == from.get(..begin) && all.len() < max)
            else {
                return Ok(false);
            };
            all.push(id);
            Ok(true)
        })?;
        Ok(all)
    }

    fn entries(
        &self,
        after: PrincipalId,
        max: usize,
    ) -> std::result::Result<Vec<Principal>, Fault> {
        let mut all = Vec::new();
        let Some(first) = after.0.checked_add(1) else { return Ok(all) };
        let from = key::principal(PrincipalId(first));
        self.scan(&from, &mut |key, value| {
            if key.first() != from.first() || all.len() == max {
                return Ok(false);
            }
            all.push(record::decode_principal(key, value)?);
            Ok(true)
        })?;
        Ok(all)
    }

    fn highest(&self) -> std::result::Result<Highest, Fault> {
        let stored = self.get(key::HIGHEST)?;
        Ok(stored
            .map(|value| record::decode_highest(key::HIGHEST, &value))
            .transpose()?
            .unwrap_or_default())
    }
}

impl Access for Embedded {
    fn principal(&self, which: &WhichPrincipal) -> Result<Option<Principal>> {
        let id = match which {
            WhichPrincipal::Id(id) => Some(*id),
            WhichPrincipal::Name(name) => self.id_at(&key::principal_name(name))?,
            WhichPrincipal::Uid(uid) => self.id_at(&key::uid(*uid))?,
        };
        id.map_or(Ok(None), |id| self.record(id))
    }

    fn subdomain(
        &self,
        principal: PrincipalId,
        host: Option<IpAddr>,
    ) -> Result<(Revision, Vec<PrincipalId>)> {
        // A change that comes meanwhile has a later revision, and causes a new question.
        let at = self.latest();
        Ok((at, guard::subdomain(self, principal, host).map_err(CellError::Away)?))
    }

    fn pts(&self, asker: &PtsAsker, call: &PtsCall) -> std::result::Result<Answer, Fault> {
        if !call.changes() {
            return guard::perform(self, asker, call).map(|(answer, _)| answer);
        }
        let one_at_a_time = self.principals.lock();
        self.need_room()?;
        let (answer, edit) = guard::perform(self, asker, call)?;
        let Some(edit) = edit else { return Ok(answer) };
        let revision = self.apply(&edit)?;
        drop(one_at_a_time);
        self.listeners.wait_for(revision, None);
        Ok(answer)
    }

    fn secret(&self, who: PrincipalId) -> Result<Option<String>> {
        let key = key::secret(who);
        self.get(&key)?.map(|value| record::decode_secret(&key, &value)).transpose()
    }

    fn set_secret(&self, who: PrincipalId, kept: &str, ends_tokens: Option<i64>) -> Result<()> {
        let one_at_a_time = self.principals.lock();
        self.need_room()?;
        let key = key::secret(who);
        if let Some(now) = ends_tokens {
            let before = self.record(who)?.ok_or(CellError::Away(Fault::NoPrincipal))?;
            let tokens_after = tokens_after(before.tokens_after, now);
            let after = Principal { tokens_after, ..before.clone() };
            let mut counters = self.counters.lock();
            let revision =
                self.change(&mut counters, Changed::Principal(who), |revision, _, batch| {
                    put(batch, revision, Some(&before), &after);
                    batch.put(&key, record::encode_secret(&key, kept));
                })?;
            drop(counters);
            drop(one_at_a_time);
            self.listeners.wait_for(revision, None);
            return Ok(());
        }
        let mut counters = self.counters.lock();
        let mut batch = WriteBatch::default();
        batch.put(&key, record::encode_secret(&key, kept));
        let next = *counters;
        self.write(batch, &mut counters, next)
    }

    fn auth_elsewhere(
        &self,
        _: Option<Behalf>,
        _: &AuthCall,
    ) -> Option<std::result::Result<Answer, Fault>> {
        None
    }

    fn was_listed(&self, key: &KeyPrint) -> Result<bool> {
        Ok(self.past(key)?.is_some())
    }

    fn rules_at(&self) -> Revision {
        Revision(self.rules_at.load(std::sync::atomic::Ordering::Acquire))
    }

    fn rules(&self) -> Arc<Revised<Rules>> {
        Arc::clone(&self.rules.read())
    }

    fn guard(
        &self,
        me: ServerId,
        by: PrincipalId,
        now: i64,
        call: &GuardCall,
    ) -> std::result::Result<Answer, Fault> {
        if call.changes() {
            self.change_rules(me, by, now, call)
        } else {
            Ok(self.list_rules(call))
        }
    }

    fn latest(&self) -> Revision {
        Revision(self.latest.load(std::sync::atomic::Ordering::Acquire))
    }

    fn news(&self, since: Revision) -> Result<News> {
        let at = self.latest();
        match self.changes(since, NEWS_MAX) {
            // More changes than fit: the caller must forget all principals.
            Ok(changes) if changes.len() == NEWS_MAX => Ok((at, None)),
            Ok(changes) => {
                Ok((at.max(changes.last().map_or(at, |(revision, _)| *revision)), Some(changes)))
            }
            Err(CellError::Forgotten { .. }) => Ok((at, None)),
            Err(error) => Err(error),
        }
    }

    /// The changes are made here.
    fn listen(&self, _me: ServerId) {}

    fn watch(&self, who: ServerId, since: Revision, max: usize) -> Result<News> {
        self.listeners.confirm(who, since);
        let at = self.latest();
        match self.changes(since, max) {
            Ok(changes) => Ok((at, Some(changes))),
            Err(CellError::Forgotten { .. }) => Ok((at, None)),
            Err(error) => Err(error),
        }
    }
}
