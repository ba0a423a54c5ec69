//! Fences and administrators: a record for each, and all of them in memory, with the keys of
//! servers (`servers.rs`). A rule's number is the revision that made it, so no number is used
//! twice.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use guard::{Rule, Rules, RulesEdit};
use rocksdb::WriteBatch;
use types::{Answer, Changed, Fault, GuardCall, PrincipalId, Revised, Revision, ServerId};

use super::{Embedded, Result};
use crate::{CellDb, key, record};

/// The most rules in one answer.
const RULES_LISTED_MAX: usize = 1000;

impl Embedded {
    /// Reads the rules when the database is opened.
    pub(super) fn load_rules(&self) -> Result<()> {
        let (mut rules, mut last) = (Rules::default(), Revision(0));
        let (fences, mandates) = (key::fence(0), key::mandate(0));
        self.scan(&fences, &mut |key, value| {
            let ours = key.first() == fences.first();
            if ours {
                let Revised { record, revision } = record::decode_fence(key, value)?;
                last = last.max(revision);
                rules.fences.push(record);
            }
            Ok(ours)
        })?;
        self.scan(&mandates, &mut |key, value| {
            let ours = key.first() == mandates.first();
            if ours {
                let Revised { record, revision } = record::decode_mandate(key, value)?;
                last = last.max(revision);
                rules.mandates.push(record);
            }
            Ok(ours)
        })?;
        rules.servers = self.server_keys()?;
        last = self.listed_servers()?.iter().map(|seen| seen.revision).fold(last, Revision::max);
        self.set_rules(rules, last);
        Ok(())
    }

    pub(super) fn set_rules(&self, record: Rules, revision: Revision) {
        let mut rules = self.rules.write();
        assert!(
            rules.revision <= revision,
            "AC-2: rules of {revision:?} do not replace those of {:?}",
            rules.revision
        );
        *rules = Arc::new(Revised { record, revision });
        drop(rules);
        self.rules_at.store(revision.0, Ordering::Release);
    }

    pub(super) fn list_rules(&self, call: &GuardCall) -> Answer {
        let rules = Arc::clone(&self.rules.read());
        let page = |max: u32| (max as usize).min(RULES_LISTED_MAX);
        if let GuardCall::Mandates { after, max } = *call {
            let mut left =
                rules.record.mandates.iter().filter(|mandate| mandate.number > after).cloned();
            let mandates = left.by_ref().take(page(max)).collect();
            return Answer::Mandates { mandates, end: left.next().is_none() };
        }
        let (after, max) = match *call {
            GuardCall::Fences { after, max } => (after, max),
            _ => (0, 0),
        };
        let mut left = rules.record.fences.iter().filter(|fence| fence.number > after).cloned();
        let fences = left.by_ref().take(page(max)).collect();
        Answer::Fences { fences, end: left.next().is_none() }
    }

    pub(super) fn change_rules(
        &self,
        me: ServerId,
        by: PrincipalId,
        now: i64,
        call: &GuardCall,
    ) -> std::result::Result<Answer, Fault> {
        if let GuardCall::WithdrawKeys { server } = call {
            return self.withdraw_keys(me, *server);
        }
        if matches!(call, GuardCall::AddFence { .. } | GuardCall::AddMandate { .. }) {
            self.need_room()?;
        }
        let (revision, number) = self.apply_rules(by, now, call)?;
        let others: Vec<ServerId> =
            self.servers()?.iter().map(|seen| seen.record.id).filter(|id| *id != me).collect();
        Ok(Answer::Enforced { number, missing: self.listeners.missing(revision, &others, None) })
    }

    /// Writes the rules as one batch, and into memory before the revision becomes visible.
    fn apply_rules(
        &self,
        by: PrincipalId,
        now: i64,
        call: &GuardCall,
    ) -> std::result::Result<(Revision, u64), Fault> {
        let mut counters = self.counters.lock();
        let known = Arc::clone(&self.rules.read());
        let next = Revision(counters.revision + 1);
        let edit = known.record.edit(next.0, now, by, call)?;
        let put = encoded(&edit, next)?;
        let revision =
            self.change(&mut counters, Changed::Rules, |_, _, batch| fill(batch, &edit, put))?;
        assert_eq!(revision, next, "AC-12: a rule has the revision of its change");
        self.set_rules(known.record.after(&edit), revision);
        Ok((revision, edit.number))
    }
}

/// The new record and its key.
fn encoded(edit: &RulesEdit, revision: Revision) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    Ok(match &edit.put {
        Some(Rule::Fence(fence)) => {
            let key = key::fence(fence.number);
            let value = record::encode_fence(&key, revision, fence)?;
            Some((key, value))
        }
        Some(Rule::Mandate(mandate)) => {
            let key = key::mandate(mandate.number);
            let value = record::encode_mandate(&key, revision, mandate);
            Some((key, value))
        }
        None => None,
    })
}

fn fill(batch: &mut WriteBatch, edit: &RulesEdit, put: Option<(Vec<u8>, Vec<u8>)>) {
    edit.fences_gone.iter().for_each(|number| batch.delete(key::fence(*number)));
    edit.mandates_gone.iter().for_each(|number| batch.delete(key::mandate(*number)));
    if let Some((key, value)) = put {
        batch.put(key, value);
    }
}
