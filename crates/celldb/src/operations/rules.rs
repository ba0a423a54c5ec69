//! Changes of fences and administrators: a record for each. A rule's number is the revision that
//! made it, so no number is used twice.

use std::sync::Arc;

use guard::{Rule, Rules, RulesEdit};
use types::{Answer, Changed, Fault, GuardCall, PrincipalId, Revised, Revision};

use super::{Held, Operations, Result};
use crate::engine::{Batch, Engine};
use crate::{key, record};

/// The most rules in one answer.
const RULES_LISTED_MAX: usize = 1000;

impl<E: Engine> Operations<E> {
    /// Changes rules. `known`: those of the database, where the caller has them. Returns the new
    /// ones, and the number of the rule that the change is about.
    ///
    /// # Errors
    /// Those of [`guard::Rules::edit`]; the engine's.
    pub fn change_rules(
        &self,
        held: &Held<'_>,
        known: Option<&Arc<Revised<Rules>>>,
        by: PrincipalId,
        now: i64,
        call: &GuardCall,
    ) -> std::result::Result<(Revised<Rules>, u64), Fault> {
        if matches!(call, GuardCall::AddFence { .. } | GuardCall::AddMandate { .. }) {
            self.engine.need_room()?;
        }
        self.change(held, |change| {
            let known = match known {
                Some(known) => Arc::clone(known),
                None => Arc::new(change.view.rules()?),
            };
            let next = change.revision();
            let edit = known.record.edit(next.0, now, by, call)?;
            fill(&mut change.batch, &edit, next)?;
            let revision = change.log(Changed::Rules);
            assert_eq!(revision, next, "AC-12: a rule has the revision of its change");
            Ok((Revised { record: known.record.after(&edit), revision }, edit.number))
        })
    }
}

fn fill(batch: &mut Batch, edit: &RulesEdit, revision: Revision) -> Result<()> {
    edit.fences_gone.iter().for_each(|number| batch.delete(key::fence(*number)));
    edit.mandates_gone.iter().for_each(|number| batch.delete(key::mandate(*number)));
    match &edit.put {
        Some(Rule::Fence(fence)) => {
            let key = key::fence(fence.number);
            batch.put(&key[..], record::encode_fence(&key, revision, fence)?);
        }
        Some(Rule::Mandate(mandate)) => {
            let key = key::mandate(mandate.number);
            batch.put(&key[..], record::encode_mandate(&key, revision, mandate));
        }
        None => {}
    }
    Ok(())
}

/// The answer to a question about rules.
pub(crate) fn list_rules(rules: &Rules, call: &GuardCall) -> Answer {
    let page = |max: u32| (max as usize).min(RULES_LISTED_MAX);
    if let GuardCall::Mandates { after, max } = *call {
        let mut left = rules.mandates.iter().filter(|mandate| mandate.number > after).cloned();
        let mandates = left.by_ref().take(page(max)).collect();
        return Answer::Mandates { mandates, end: left.next().is_none() };
    }
    let (after, max) = match *call {
        GuardCall::Fences { after, max } => (after, max),
        _ => (0, 0),
    };
    let mut left = rules.fences.iter().filter(|fence| fence.number > after).cloned();
    let fences = left.by_ref().take(page(max)).collect();
    Answer::Fences { fences, end: left.next().is_none() }
}
