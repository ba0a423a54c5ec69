//! Changes of the cell's rules: fences, servers' keys, mandates of administrators; and the audit
//! log for administrators.

use celldb::Access;
use types::{Answer, AuthLevel, Fault, GuardCall, PrincipalId, WhichPrincipal, Whom};

use crate::audit::Audit;
use crate::call::{CallContext, CallOutcome};
use crate::cell::{CellLink, Identities};
use crate::enforcement::Enforcement;
use crate::sessions::Coherence;

/// Lines of this server's audit log. Each server is asked for its own by the administrator, never
/// by another server.
pub(crate) fn audit_lines(
    audit: &Audit,
    behalf: Option<PrincipalId>,
    (file, offset): (u64, u64),
) -> Result<CallOutcome, Fault> {
    match behalf {
        None => Ok(CallOutcome::Answer(Answer::Report(audit.lines(file, offset)?))),
        Some(_) => Err(Fault::NotPermitted),
    }
}

/// Changes rules. A server without the database forwards the call in the caller's name.
pub(crate) fn ask_guard(
    cell: &CellLink,
    identities: &Identities,
    enforcement: &Enforcement,
    coherence: &Coherence,
    ask: &mut CallContext<'_>,
    behalf: Option<PrincipalId>,
    call: &GuardCall,
) -> Result<CallOutcome, Fault> {
    let db = cell.db()?.ok_or(Fault::Unsupported)?;
    let by = match behalf {
        Some(by) => need_appointed(db.access(), by)?,
        None if ask.caller.is_superuser() || ask.caller.who.level == AuthLevel::Server => {
            PrincipalId::NONE
        }
        None => identities.principal_of(ask.caller)?,
    };
    let call = with_client(coherence, call)?;
    let me = cell.me().id;
    let mut answer = db.access().guard(me, by, ask.wall.secs, &call)?;
    if let Answer::Enforced { missing, .. } = &mut answer {
        missing.retain(|server| *server != me);
        if !enforcement.enforce_soon(ask.now, ask.wall, &mut ask.events) {
            missing.push(me);
        }
    }
    Ok(CallOutcome::Answer(answer))
}

/// Checks that a server acts for an administrator, or for its superuser.
fn need_appointed(access: &dyn Access, by: PrincipalId) -> Result<PrincipalId, Fault> {
    if by == PrincipalId::NONE {
        return Ok(by);
    }
    access.principal(&WhichPrincipal::Id(by))?.ok_or(Fault::NotPermitted)?;
    let groups = access.subdomain(by, None)?.1;
    if groups.contains(&PrincipalId::ADMINISTRATORS) { Ok(by) } else { Err(Fault::NotPermitted) }
}

/// Adds the client of a session, which only this server knows.
fn with_client(coherence: &Coherence, call: &GuardCall) -> Result<GuardCall, Fault> {
    let GuardCall::AddFence { whom: Whom::Session(session), seconds, why } = call else {
        return Ok(call.clone());
    };
    let (client, _) = coherence.leases().sessions().owner(*session).ok_or(Fault::NotFound)?;
    Ok(GuardCall::AddFence { whom: Whom::Client(client), seconds: *seconds, why: why.clone() })
}
