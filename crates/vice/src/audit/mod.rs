//! Events for the audit log: administration, logins, refusals, access lists, fences. The driver
//! writes them ([`AuditLog`]); no call waits for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use guard::{AuditEvent, Row, row};
use types::{
    Call, Caller, CellCall, Fault, Fid, GuardCall, PrincipalId, ReplyAddress, Timestamp,
    WhichPrincipal,
};
use words::about;

use crate::call::CallContext;
use crate::cell::CellLink;

mod words;

/// The driver's audit log.
pub trait AuditLog: Send + Sync {
    /// Records an event in any case. Does not wait.
    fn saw(&self, event: AuditEvent);

    /// Records a refusal at a file, or of an anonymous caller: of many similar ones within a while,
    /// the log has one and the number of the rest. Does not wait.
    fn saw_refusal(&self, dir: Fid, event: AuditEvent);

    /// Lines of the log from this place of a file on, as [`types::GuardCall::AuditLines`] has them.
    ///
    /// # Errors
    /// `Medium`, if the log cannot be read.
    fn lines(&self, file: u64, offset: u64) -> Result<String, Fault>;
}

/// Refusals since the start, by their reason.
#[derive(Default)]
struct Refusals([AtomicU64; REASONS.len()]);

const REASONS: [(Fault, &str); 5] = [
    (Fault::AccessDenied, "access_denied"),
    (Fault::NotPermitted, "not_permitted"),
    (Fault::Fenced, "fenced"),
    (Fault::TokenExpired, "token_expired"),
    (Fault::TokenRefused, "token_refused"),
];

impl Refusals {
    fn count(&self, fault: Fault) -> bool {
        let at = REASONS.iter().position(|(reason, _)| *reason == fault);
        if let Some(count) = at.and_then(|at| self.0.get(at)) {
            count.fetch_add(1, Relaxed);
        }
        at.is_some()
    }

    fn report(&self) -> serde_json::Value {
        let counts = REASONS
            .iter()
            .zip(&self.0)
            .map(|((_, name), count)| ((*name).to_owned(), count.load(Relaxed).into()));
        serde_json::Value::Object(counts.collect())
    }
}

/// Reports of calls to the audit log, and counts of refusals.
pub(crate) struct Audit {
    log: Option<Arc<dyn AuditLog>>,
    refusals: Refusals,
    cell: Arc<CellLink>,
}

impl Audit {
    pub fn new(log: Option<Arc<dyn AuditLog>>, cell: Arc<CellLink>) -> Audit {
        Audit { log, refusals: Refusals::default(), cell }
    }

    /// Refusals since the start, by their reason.
    pub fn refusals(&self) -> serde_json::Value {
        self.refusals.report()
    }

    /// Reports a call that ended, or that waits for acknowledgements of its change.
    pub fn saw(
        &self,
        wall: Timestamp,
        caller: &Caller,
        origin: ReplyAddress,
        call: &Call,
        refused: Option<Fault>,
    ) {
        let is_refusal = refused.is_some_and(|fault| self.refusals.count(fault));
        let Some(log) = &self.log else { return };
        let kind = kind(call);
        if !is_refusal && kind.is_none() {
            return;
        }
        let mut event = event(wall, caller, origin, call, refused);
        match kind {
            Some(kind) => {
                event.kind = kind.to_owned();
                event.name = self.name_of(caller);
                // An anonymous caller can cause any number of refusals.
                match refused.is_some() && !caller.who.level.is_proved() {
                    true => log.saw_refusal(Fid::CURRENT, event),
                    false => log.saw(event),
                }
            }
            None => {
                event.kind = "denied".to_owned();
                let dir = call.clone().fids_mut().first().map_or(Fid::CURRENT, |fid| **fid);
                if dir == Fid::CURRENT {
                    event.name = self.name_of(caller);
                }
                log.saw_refusal(dir, event);
            }
        }
    }

    /// Lines of this server's log.
    ///
    /// # Errors
    /// `Unsupported`, if it has none; `Medium`.
    pub fn lines(&self, file: u64, offset: u64) -> Result<String, Fault> {
        self.log.as_ref().ok_or(Fault::Unsupported)?.lines(file, offset)
    }

    /// Reports a run of wrong passwords for this user.
    pub fn saw_guesses(&self, ask: &CallContext<'_>, name: &str) {
        let Some(log) = &self.log else { return };
        let call = Call::ServerReport;
        let event = event(ask.wall, ask.caller, ask.origin, &call, None);
        log.saw(AuditEvent {
            kind: "alarm".to_owned(),
            request: "auth.password".to_owned(),
            about: name.to_owned(),
            result: "many wrong passwords in a row from hosts that the user never logged in from"
                .to_owned(),
            ..event
        });
    }

    /// Reports a run of requests to join with no invitation.
    pub fn saw_join_attempts(&self, ask: &CallContext<'_>) {
        let Some(log) = &self.log else { return };
        let event = event(ask.wall, ask.caller, ask.origin, &Call::ServerReport, None);
        log.saw(AuditEvent {
            kind: "alarm".to_owned(),
            request: "cell.Join".to_owned(),
            about: String::new(),
            result: "several requests to join the cell as a server, with no invitation".to_owned(),
            ..event
        });
    }

    /// The caller's name, if this server knows it without a long query to another one.
    fn name_of(&self, caller: &Caller) -> Option<String> {
        let id = Some(caller.who.principal).filter(|id| *id != PrincipalId::ANONYMOUS)?;
        let db = self.cell.available()?;
        db.access().principal(&WhichPrincipal::Id(id)).ok().flatten().map(|found| found.name)
    }
}

/// Kind of a call that is always recorded; `None`: only its refusals are.
fn kind(call: &Call) -> Option<&'static str> {
    match call {
        Call::Auth { .. } => Some("authentication"),
        Call::SetAcl { .. } => Some("access list"),
        // A reading of the log is recorded once a file, not for each part.
        Call::Guard { call, .. } => match **call {
            GuardCall::AuditLines { offset, .. } => (offset == 0).then_some("administration"),
            ref call => call.changes().then_some("fence"),
        },
        Call::Pts { call, .. } => call.changes().then_some("administration"),
        // A stream has many parts; only its end is recorded.
        Call::Volume(types::VolumeCall::Apply { .. }) => None,
        Call::Volume(call) => {
            let is_end = matches!(call, types::VolumeCall::EndTask { .. });
            (call.changes() || is_end).then_some("administration")
        }
        // A copy takes hashes of passwords away; its further parts say nothing more.
        Call::Cell(CellCall::Copy { copy, .. }) => (*copy == 0).then_some("administration"),
        Call::Cell(call) => call.changes().then_some("administration"),
        call => {
            matches!(row(call), Row::Delegated(_) | Row::Administrator).then_some("administration")
        }
    }
}

fn event(
    wall: Timestamp,
    caller: &Caller,
    origin: ReplyAddress,
    call: &Call,
    refused: Option<Fault>,
) -> AuditEvent {
    let who = caller.who;
    let (request, about) = about(call);
    AuditEvent {
        time: wall.secs.saturating_mul(1000).saturating_add(i64::from(wall.nanos / 1_000_000)),
        principal: (who.principal != PrincipalId::ANONYMOUS).then_some(who.principal.0),
        uid: (who.token == 0 && who.level.is_proved()).then_some(caller.uid),
        level: format!("{:?}", who.level).to_lowercase(),
        token: (who.token != 0).then(|| format!("{:032x}", who.token)),
        host: who.host.map(|host| host.to_string()),
        session: Some(origin.session.0),
        request,
        about,
        result: refused.map_or_else(|| "done".to_owned(), |fault| fault.to_string()),
        ..AuditEvent::default()
    }
}
