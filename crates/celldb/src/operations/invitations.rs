//! Changes of invitations: a record for each. An invitation's number is the revision that made it.
//!
//! An invitation lets in as many keys as it says, each once: the same key again gets the same
//! answer, since the first one may be lost on the way. The record keeps the keys that it let in, so
//! it stays for a while after its end.

use guard::JoinRequest;
use types::limits::{INVITATION_USES_MAX, INVITATIONS_MAX, SERVER_NAME_BYTES_MAX};
use types::{
    Answer, CellCall, Changed, Fault, Invitation, InvitedServer, KeyPrint, PrincipalId, Revision,
    ServerRoles,
};

use super::{Held, Operations};
use crate::engine::{Engine, View};
use crate::{key, record};

/// The longest life of an invitation.
const LIFE_MAX_SECS: i64 = 30 * 24 * 3600;
/// How long a record stays after the end of its invitation: a server that was let in, and did not
/// enter its key yet, has a certificate for 825 days at most.
const REMEMBERED_SECS: i64 = 900 * 24 * 3600;
/// The most records.
const REMEMBERED_MAX: usize = 8 * INVITATIONS_MAX;
/// The most invitations in one answer.
const LISTED_MAX: usize = 1000;

impl<E: Engine> Operations<E> {
    /// Makes, ends or redeems an invitation, at the moment `now` (seconds since 1970).
    ///
    /// # Errors
    /// As the calls say; `Invalid`; the engine's.
    pub fn change_invitations(
        &self,
        held: &Held<'_>,
        by: PrincipalId,
        now: i64,
        call: &CellCall,
    ) -> Result<(Revision, Answer), Fault> {
        match call {
            CellCall::Invite { public, seconds, uses, roles, name, .. } => {
                let roles = ServerRoles::from_bits(*roles).ok_or(Fault::Invalid)?;
                let seconds = i64::try_from(*seconds).map_err(|_| Fault::Invalid)?;
                let used_at_most = 1..=INVITATION_USES_MAX as u32;
                let is_sound = (1..=LIFE_MAX_SECS).contains(&seconds)
                    && used_at_most.contains(uses)
                    && (name.is_empty() || *uses == 1)
                    && name.len() <= SERVER_NAME_BYTES_MAX;
                if !is_sound {
                    return Err(Fault::Invalid);
                }
                let new = Invitation {
                    number: 0,
                    public: *public,
                    name: name.clone(),
                    roles,
                    uses: *uses,
                    used: Vec::new(),
                    since: now,
                    until: now.saturating_add(seconds),
                    by,
                };
                self.invite(held, now, &new)
            }
            CellCall::Uninvite { number } => self.uninvite(held, *number),
            CellCall::Redeem { request } => {
                let request = JoinRequest::read(request).ok_or(Fault::AccessDenied)?;
                self.redeem(held, now, &request)
            }
            _ => Err(Fault::Invalid),
        }
    }

    fn invite(
        &self,
        held: &Held<'_>,
        now: i64,
        new: &Invitation,
    ) -> Result<(Revision, Answer), Fault> {
        self.engine.need_room()?;
        self.change(held, |change| {
            let all = change.view.invitations()?;
            let (old, left): (Vec<_>, Vec<_>) = all.iter().partition(|one| {
                let kept = if one.used.is_empty() { 0 } else { REMEMBERED_SECS };
                one.until.saturating_add(kept) < now
            });
            let open = |one: &&&Invitation| one.until > now && one.used.len() < one.uses as usize;
            let open = left.iter().filter(open).count();
            if open >= INVITATIONS_MAX || left.len() >= REMEMBERED_MAX {
                return Err(Fault::NoSpace);
            }
            if left.iter().any(|one| one.public == new.public) {
                return Err(Fault::Exists);
            }
            need_free_name(change.view, &new.name, None)?;
            old.iter().for_each(|one| change.batch.delete(key::invitation(one.number)));
            let revision = change.log(Changed::Rules);
            let key = key::invitation(revision.0);
            let new = Invitation { number: revision.0, ..new.clone() };
            change.batch.put(&key[..], record::encode_invitation(&key, revision, &new));
            Ok((revision, Answer::Number(types::VolumeId(revision.0))))
        })
    }

    fn uninvite(&self, held: &Held<'_>, number: u64) -> Result<(Revision, Answer), Fault> {
        self.change(held, |change| {
            let all = change.view.invitations()?;
            let found = all.into_iter().find(|one| one.number == number);
            let mut invitation = found.ok_or(Fault::NotFound)?;
            let revision = change.log(Changed::Rules);
            let key = key::invitation(number);
            if invitation.used.is_empty() {
                change.batch.delete(&key[..]);
            } else {
                // Name and roles of those that were let in stay.
                invitation.uses = invitation.used.len() as u32;
                change.batch.put(&key[..], record::encode_invitation(&key, revision, &invitation));
            }
            Ok((revision, Answer::Done))
        })
    }

    /// The key of a request is let in, once.
    fn redeem(
        &self,
        held: &Held<'_>,
        now: i64,
        request: &JoinRequest,
    ) -> Result<(Revision, Answer), Fault> {
        self.change(held, |change| {
            let all = change.view.invitations()?;
            let found = all.into_iter().find(|one| one.public == request.invitation);
            let mut invitation = found.ok_or(Fault::AccessDenied)?;
            let view = change.view;
            if view.is_withdrawn(&request.key)? {
                return Err(Fault::NotPermitted);
            }
            let name = match (&invitation.name[..], &request.name[..]) {
                ("", "") => return Err(Fault::Invalid),
                ("", asked) => asked.to_owned(),
                (given, asked) if asked.is_empty() || asked == given => given.to_owned(),
                _ => return Err(Fault::Conflict),
            };
            if name.len() > SERVER_NAME_BYTES_MAX {
                return Err(Fault::Invalid);
            }
            let answer = |invitation: Invitation| Answer::Invitations {
                invitations: vec![invitation],
                end: true,
            };
            if let Some(used) = invitation.used.iter().find(|used| used.key == request.key) {
                return match used.name == name {
                    true => Ok((Revision(change.next.revision), answer(invitation))),
                    false => Err(Fault::Conflict),
                };
            }
            if invitation.until <= now {
                return Err(Fault::TokenExpired);
            }
            if invitation.used.len() >= invitation.uses as usize {
                return Err(Fault::Exists);
            }
            // The key of another server, or one that was replaced, is not entered so.
            let is_listed = view.server_keys()?.server(&request.key).is_some();
            if is_listed || view.past(&request.key)?.is_some() {
                return Err(Fault::NotPermitted);
            }
            need_free_name(view, &name, Some(&request.key))?;
            invitation.used.push(InvitedServer { key: request.key, name, at: now });
            assert!(
                invitation.used.len() <= invitation.uses as usize,
                "SJ-1: an invitation lets in no more servers than it says"
            );
            let revision = change.log(Changed::Rules);
            let key = key::invitation(invitation.number);
            change.batch.put(&key[..], record::encode_invitation(&key, revision, &invitation));
            Ok((revision, answer(invitation)))
        })
    }
}

/// Checks that no server, and no key that was let in, has the name; empty: none is wanted.
fn need_free_name(view: &dyn View, name: &str, key: Option<&KeyPrint>) -> Result<(), Fault> {
    if name.is_empty() {
        return Ok(());
    }
    let is_taken = view.listed_servers()?.iter().any(|seen| seen.record.name == name);
    let invitations = view.invitations()?;
    let promised = invitations.iter().flat_map(|one| &one.used);
    // Of a server that was removed, the name is free again.
    let mut is_promised = false;
    for one in promised.filter(|one| one.name == name && Some(&one.key) != key) {
        is_promised |= view.past(&one.key)?.is_none();
    }
    if is_taken || is_promised { Err(Fault::Conflict) } else { Ok(()) }
}

/// The answer to the question for invitations.
pub(crate) fn list_invitations(view: &dyn View, after: u64, max: u32) -> Result<Answer, Fault> {
    let all = view.invitations()?;
    let mut left = all.into_iter().filter(|one| one.number > after);
    let page = (max as usize).min(LISTED_MAX);
    let invitations = left.by_ref().take(page).collect();
    Ok(Answer::Invitations { invitations, end: left.next().is_none() })
}
