//! Calls on the cell's database: volumes and servers, users and groups.

use celldb::{CellDb, CellError, CopyCursor};
use guard::PtsAsker;
use types::{
    Answer, AuthLevel, Caller, CellCall, Fault, PrincipalId, PtsCall, RequestIdentity, Revised,
    Revision, ServerInfo, WhichVolume,
};

use crate::audit::Audit;
use crate::call::{CallContext, CallOutcome};
use crate::calls::joining::{Admission, ask_invitations};
use crate::cell::{CellCopies, CellLink, Identities};
use crate::sessions::Coherence;

/// Maximum number of records in one answer; fewer where they do not fit.
const RECORDS_MAX: usize = 1000;
/// Maximum number of numbers in one answer.
const NUMBERS_MAX: u32 = 1 << 20;

/// The components that calls on the database use.
pub(crate) struct CellParts<'d> {
    pub cell: &'d CellLink,
    pub copies: &'d CellCopies,
    pub identities: &'d Identities,
    pub admission: &'d Admission,
    pub audit: &'d Audit,
}

pub(crate) fn ask_cell(
    parts: &CellParts<'_>,
    ask: &CallContext<'_>,
    call: &CellCall,
) -> Result<CallOutcome, Fault> {
    if *call == CellCall::Me {
        let me = Revised { record: parts.cell.me().clone(), revision: Revision(0) };
        return Ok(CallOutcome::Answer(Answer::Servers(vec![me])));
    }
    let db = parts.cell.db()?.ok_or(Fault::Unsupported)?;
    if let (AuthLevel::Enrolling, CellCall::PutServer { server, expected }) =
        (ask.caller.who.level, call)
    {
        need_enrolment(db, ask.caller, server, *expected)?;
    }
    answer(parts, db, ask, call).map(CallOutcome::Answer)
}

/// Checks that a new server enters its own key. Only a server that reads and changes the records
/// itself may execute this: another one would ask there in its own name. The check reads the record
/// that will be replaced, since a change from another revision is refused.
fn need_enrolment(
    db: &dyn CellDb,
    caller: &Caller,
    record: &ServerInfo,
    expected: Revision,
) -> Result<(), Fault> {
    let shown =
        caller.who.server.filter(|_| db.access().has_records()).ok_or(Fault::NotPermitted)?;
    let known = db.servers()?.into_iter().find(|seen| seen.record.id == record.id);
    guard::may_enrol(shown, record, known.as_ref().map(|seen| &seen.record))?;
    if db.access().was_listed(&shown)? {
        return Err(Fault::NotPermitted);
    }
    // An invited server has the name that its invitation gave it.
    if db.access().invited(&shown)?.is_some_and(|name| name != record.name) {
        return Err(Fault::NotPermitted);
    }
    let found = known.map(|seen| seen.revision).unwrap_or_default();
    if found == expected { Ok(()) } else { Err(Fault::Conflict) }
}

/// Users and groups. A server without the database forwards the call in the caller's name.
pub(crate) fn ask_pts(
    cell: &CellLink,
    identities: &Identities,
    coherence: &Coherence,
    ask: &mut CallContext<'_>,
    on_behalf: Option<PrincipalId>,
    call: &PtsCall,
) -> Result<CallOutcome, Fault> {
    let db = cell.db()?.ok_or(Fault::Unsupported)?;
    let caller = match on_behalf {
        None => ask.caller.clone(),
        Some(principal) => behalf_of(principal),
    };
    let asker = PtsAsker { principal: identities.vouched(&caller)?, cps: identities.cps(&caller)? };
    let answer = db.access().pts(&asker, call)?;
    Ok(if call.changes() {
        coherence.break_rights(ask, answer)
    } else {
        CallOutcome::Answer(answer)
    })
}

/// A caller whose proof another server has checked.
fn behalf_of(principal: PrincipalId) -> Caller {
    let who = match principal {
        PrincipalId::ANONYMOUS => RequestIdentity::NOBODY,
        principal => {
            RequestIdentity { principal, level: AuthLevel::Password, ..RequestIdentity::NOBODY }
        }
    };
    Caller { uid: u32::MAX, gid: u32::MAX, groups: None, who }
}

fn answer(
    parts: &CellParts<'_>,
    db: &dyn CellDb,
    ask: &CallContext<'_>,
    call: &CellCall,
) -> Result<Answer, Fault> {
    let page = |max: u32| (max as usize).min(RECORDS_MAX);
    Ok(match call {
        CellCall::Group { volume } => {
            let found = match volume {
                WhichVolume::Id(number) => db.group_of(*number)?,
                WhichVolume::Name(name) => db.group_named(name)?,
            };
            Answer::Groups { groups: vec![found.ok_or(Fault::NoVolume)?], end: true }
        }
        CellCall::Groups { after, max } => {
            let wanted = page(*max);
            let mut groups = db.groups(*after, wanted + 1)?;
            let end = groups.len() <= wanted;
            groups.truncate(wanted);
            Answer::Groups { groups, end }
        }
        CellCall::PutGroup { group, expected } => Answer::Revision(db.put_group(group, *expected)?),
        CellCall::RemoveGroup { read_write, expected } => {
            Answer::Revision(db.remove_group(*read_write, *expected)?)
        }
        CellCall::TakeNumbers { above, count } if (1..=NUMBERS_MAX).contains(count) => {
            Answer::Number(db.take_numbers(*above, *count)?)
        }
        CellCall::TakeNumbers { .. } => return Err(Fault::Invalid),
        // Answered above.
        CellCall::Me => return Err(Fault::Invalid),
        CellCall::Copy { copy, after, skip } => {
            let skip = usize::try_from(*skip).map_err(|_| Fault::Invalid)?;
            let cursor = CopyCursor { after: after.to_vec(), skip };
            parts.copies.part(db, (ask.origin.session, ask.now), *copy, &cursor)?
        }
        CellCall::Invite { .. }
        | CellCall::Invitations { .. }
        | CellCall::Uninvite { .. }
        | CellCall::Redeem { .. } => ask_invitations(db, parts.identities, ask, call)?,
        CellCall::Join { request } => parts.admission.join(db, parts.audit, ask, request)?,
        CellCall::Certify { request } => parts.admission.certify(db, ask, request)?,
        CellCall::ServerRoles => {
            Answer::Report(celldb::roles_text(&db.access().limited_servers()?))
        }
        CellCall::Level { act } => Answer::Level(db.access().level(act)?),
        CellCall::Withdrawn => parts.admission.withdrawn.list(db)?,
        CellCall::Servers => Answer::Servers(db.servers()?),
        CellCall::PutServer { server, expected } => {
            Answer::Revision(db.put_server(server, *expected)?)
        }
        CellCall::RemoveServer { id, expected } => {
            Answer::Revision(db.remove_server(*id, *expected)?)
        }
        CellCall::Changes { since, max } => {
            let at = db.revision()?;
            match db.changes(*since, page(*max)) {
                Ok(changes) => Answer::Changes { at, changes: Some(changes) },
                Err(CellError::Forgotten { .. }) => Answer::Changes { at, changes: None },
                Err(error) => return Err(error.into()),
            }
        }
        CellCall::Principal { which } => {
            let found = db.access().principal(which)?.ok_or(Fault::NoPrincipal)?;
            Answer::Principals { principals: vec![(found, 0)], end: true }
        }
        CellCall::Subdomain { principal, host } => {
            let (at, groups) = db.access().subdomain(*principal, *host)?;
            Answer::Subdomain { at, groups }
        }
        CellCall::Watch { server, since, max } => {
            let (at, changes) = db.access().watch(*server, *since, page(*max))?;
            Answer::Changes { at, changes }
        }
    })
}
