//! Changes of principals: a record for each, its name and uid as pointers, and the links between
//! them in both directions.

use guard::{Edit, GroupLink, PtsAsker, Write};
use types::{Answer, Changed, Fault, Principal, PrincipalId, PtsCall, Revision};

use super::{Change, Held, Operations, Result};
use crate::engine::{Batch, Engine};
use crate::reading::ViewBook;
use crate::{CellError, key, record};

impl<E: Engine> Operations<E> {
    /// Adds the system principals that every cell has: to a new database, which begins with this
    /// level, and to one that is older than principals.
    ///
    /// # Errors
    /// The engine's.
    pub fn begin(&self, held: &Held<'_>, level: u32) -> Result<()> {
        self.change(held, |change| {
            if change.view.get(key::COUNTERS)?.is_none() {
                super::level::begin(change, level);
            }
            for one in guard::system_principals() {
                if change.view.principal(one.id)?.is_none() {
                    put(&mut change.batch, Revision(0), None, &one);
                }
            }
            Ok(())
        })
    }

    /// Changes principals if the asker may; returns the revision of the change, if it was one.
    ///
    /// # Errors
    /// Those of [`guard::perform`]; the engine's.
    pub fn change_principals(
        &self,
        held: &Held<'_>,
        asker: &PtsAsker,
        call: &PtsCall,
    ) -> std::result::Result<(Answer, Option<Revision>), Fault> {
        self.engine.need_room()?;
        self.change(held, |change| {
            let (answer, edit) = guard::perform(&ViewBook(change.view), asker, call)?;
            let revision = edit.map(|edit| apply(change, &edit)).transpose()?;
            Ok::<_, Fault>((answer, revision))
        })
    }

    /// Replaces the hash of a password. `ends_tokens`: the time now, if older tokens shall end with
    /// the old password; then the change has a revision.
    ///
    /// # Errors
    /// `Away(NoPrincipal)`; the engine's.
    pub fn set_secret(
        &self,
        held: &Held<'_>,
        who: PrincipalId,
        kept: &str,
        ends_tokens: Option<i64>,
    ) -> Result<Option<Revision>> {
        self.engine.need_room()?;
        let key = key::secret(who);
        self.change(held, |change| {
            change.batch.put(&key[..], record::encode_secret(&key, kept));
            let Some(now) = ends_tokens else { return Ok(None) };
            let before = change.view.principal(who)?;
            let before = before.ok_or(CellError::Away(Fault::NoPrincipal))?;
            let tokens_after = tokens_after(before.tokens_after, now);
            let after = Principal { tokens_after, ..before.clone() };
            let revision = change.log(Changed::Principal(who));
            put(&mut change.batch, revision, Some(&before), &after);
            Ok(Some(revision))
        })
    }
}

/// Adds a permitted change to the batch.
fn apply(change: &mut Change<'_>, edit: &Edit) -> Result<Revision> {
    let revision = change.log(edit.changed);
    let (view, batch) = (change.view, &mut change.batch);
    for write in &edit.writes {
        match write {
            Write::Put(one) => put(batch, revision, view.principal(one.id)?.as_ref(), one),
            Write::Remove(id) => {
                view.principal(*id)?.iter().for_each(|before| forget(batch, before));
                batch.delete(key::principal(*id));
                batch.delete(key::secret(*id));
            }
            Write::Join { group, member } => {
                for (link, of, to) in
                    [(GroupLink::Member, *group, *member), (GroupLink::Group, *member, *group)]
                {
                    let key = key::link(link, of, to);
                    batch.put(&key[..], record::encode_id(&key, to));
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
    Ok(revision)
}

/// A time later than the issue of every token until now: tokens of this second are void too. A
/// token that is issued next carries this time (`login::TokenIssuer::issue`), so it must not run
/// far ahead of the clock: a later time that an administrator has set stays.
pub(crate) fn tokens_after(before: i64, now: i64) -> i64 {
    const AHEAD_MAX: i64 = 30;
    if before > now.saturating_add(AHEAD_MAX) { before } else { before.max(now).saturating_add(1) }
}

/// Replaces a principal's record, and the pointers to it.
fn put(batch: &mut Batch, revision: Revision, before: Option<&Principal>, one: &Principal) {
    if let Some(before) = before {
        forget(batch, before);
    }
    let key = key::principal(one.id);
    batch.put(&key[..], record::encode_principal(&key, revision, one));
    let uid = one.uid.map(key::uid);
    for key in [key::principal_name(&one.name)].into_iter().chain(uid) {
        batch.put(&key[..], record::encode_id(&key, one.id));
    }
    let key = key::link(GroupLink::Owned, one.owner, one.id);
    batch.put(&key[..], record::encode_id(&key, one.id));
}

/// Removes the pointers to a principal.
fn forget(batch: &mut Batch, before: &Principal) {
    batch.delete(key::principal_name(&before.name));
    before.uid.iter().for_each(|uid| batch.delete(key::uid(*uid)));
    batch.delete(key::link(GroupLink::Owned, before.owner, before.id));
}
