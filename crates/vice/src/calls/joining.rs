//! How a server joins the cell by an invitation, and gets a new certificate later
//! (`docs/spec/access.md`, *How a server joins*).
//!
//! The order of a join: the request is checked, then the database enters its key with the
//! invitation, then the certificate is signed. A server that dies in between has let in that key
//! and no other, and the same request again brings the certificate.

use std::sync::Arc;

use ::guard::{CertifiedServer, Certifier, JoinFacts, JoinRequest};
use celldb::CellDb;
use parking_lot::Mutex;
use types::{
    Answer, AuthLevel, CellCall, Fault, Invitation, PrincipalId, Revision, Secret, ServerRoles,
};

use crate::audit::Audit;
use crate::call::CallContext;
use crate::cell::{Identities, JoinAttempts};

/// Lets servers in.
pub(crate) struct Admission {
    pub certifier: Option<Arc<dyn Certifier>>,
    pub attempts: JoinAttempts,
    pub withdrawn: WithdrawnKeys,
}

/// Invitations, for an administrator or another server.
pub(crate) fn ask_invitations(
    db: &dyn CellDb,
    identities: &Identities,
    ask: &CallContext<'_>,
    call: &CellCall,
) -> Result<Answer, Fault> {
    let is_server = ask.caller.who.level == AuthLevel::Server;
    let by = match call {
        // Another server names the caller that asked it.
        CellCall::Invite { by, .. } if is_server => *by,
        CellCall::Invite { .. } if !ask.caller.is_superuser() => {
            identities.principal_of(ask.caller)?
        }
        _ => PrincipalId::NONE,
    };
    db.access().invitations(by, ask.wall.secs, call)
}

/// The withdrawn keys, as of the revision of the rules: many clients ask for them.
#[derive(Default)]
pub(crate) struct WithdrawnKeys(Mutex<Option<(Revision, String)>>);

impl WithdrawnKeys {
    /// # Errors
    /// The database's.
    pub fn list(&self, db: &dyn CellDb) -> Result<Answer, Fault> {
        let at = db.access().rules_at();
        if let Some((of, text)) = &*self.0.lock()
            && *of == at
        {
            return Ok(Answer::Report(text.clone()));
        }
        let all: Vec<String> = db.access().withdrawn()?.iter().map(ToString::to_string).collect();
        let text = serde_json::to_string(&all).map_err(|_| Fault::Invalid)?;
        *self.0.lock() = Some((at, text.clone()));
        Ok(Answer::Report(text))
    }
}

impl Admission {
    /// Lets the sender of the request in.
    ///
    /// # Errors
    /// As [`CellCall::Join`] says.
    pub fn join(
        &self,
        db: &dyn CellDb,
        audit: &Audit,
        ask: &CallContext<'_>,
        text: &str,
    ) -> Result<Answer, Fault> {
        // The answer has secrets.
        if ask.caller.who.overheard {
            return Err(Fault::Unsupported);
        }
        let certifier = self.certifier.as_ref().ok_or(Fault::Unsupported)?;
        let host = ask.caller.who.host;
        self.attempts.need_no_wait(host, ask.now)?;
        let redeemed = self.redeemed(db, &**certifier, ask, text);
        if matches!(redeemed, Err(Fault::AccessDenied)) && self.attempts.was_wrong(host, ask.now) {
            tracing::warn!(
                ?host,
                cause = "several requests to join with no invitation",
                consequence = "requests from there wait",
                "a host tries to become a server of the cell"
            );
            audit.saw_join_attempts(ask);
        }
        let (request, invitation) = redeemed?;
        let name = invitation.used.iter().find(|used| used.key == request.key);
        let name = name.ok_or(Fault::Invalid)?.name.clone();
        let failed = |error: String| {
            tracing::error!(error, key = %request.key, "an invited server cannot be let in");
            Fault::Medium
        };
        let (mut facts, secrets) = certifier.introduce(&name, invitation.roles).map_err(failed)?;
        if certifier.signs() {
            let (roles, hosts) = (invitation.roles, request.hosts.clone());
            let server = CertifiedServer { name, roles, hosts };
            facts.certificate =
                certifier.certify(&request.signing_request, &server).map_err(failed)?;
        }
        tracing::info!(
            name = facts.name,
            roles = facts.roles,
            key = %request.key,
            signed = !facts.certificate.is_empty(),
            ?host,
            "a server joins the cell by an invitation"
        );
        let facts = serde_json::to_string(&facts).map_err(|_| Fault::Invalid)?;
        Ok(Answer::Joined { facts, secrets: Secret::new(secrets.to_vec()) })
    }

    fn redeemed(
        &self,
        db: &dyn CellDb,
        certifier: &dyn Certifier,
        ask: &CallContext<'_>,
        text: &str,
    ) -> Result<(JoinRequest, Invitation), Fault> {
        let request = JoinRequest::read(text).ok_or(Fault::AccessDenied)?;
        certifier.check(&request).map_err(|why| {
            tracing::info!(why, host = ?ask.caller.who.host, "a request to join is refused");
            Fault::AccessDenied
        })?;
        let call = CellCall::Redeem { request: text.to_owned() };
        match db.access().invitations(PrincipalId::NONE, ask.wall.secs, &call)? {
            Answer::Invitations { mut invitations, .. } => {
                Ok((request, invitations.pop().ok_or(Fault::Invalid)?))
            }
            _ => Err(Fault::Invalid),
        }
    }

    /// A new certificate for a key of the calling server, which its record lists: with the name and
    /// roles that the database has.
    ///
    /// # Errors
    /// As [`CellCall::Certify`] says.
    pub fn certify(
        &self,
        db: &dyn CellDb,
        ask: &CallContext<'_>,
        signing_request: &str,
    ) -> Result<Answer, Fault> {
        let certifier = self.certifier.as_ref().filter(|certifier| certifier.signs());
        let certifier = certifier.ok_or(Fault::Unsupported)?;
        let caller = ask.caller.who.server.ok_or(Fault::NotPermitted)?;
        let key = certifier.key_of(signing_request).map_err(|why| {
            tracing::info!(why, "a request for a certificate is refused");
            Fault::Invalid
        })?;
        let server = db.servers()?.into_iter().find(|seen| seen.record.keys.contains(&caller));
        let server = server.ok_or(Fault::NotPermitted)?.record;
        if !server.keys.contains(&key) {
            return Err(Fault::NotPermitted);
        }
        let mut hosts: Vec<String> =
            server.addresses.iter().map(|address| address.ip().to_string()).collect();
        hosts.dedup();
        let limited = db.access().limited_servers()?;
        let roles = limited.into_iter().find(|(id, _)| *id == server.id).map(|(_, roles)| roles);
        let roles = roles.unwrap_or(ServerRoles::ALL);
        let certified = CertifiedServer { name: server.name, roles, hosts };
        let certificate = certifier.certify(signing_request, &certified).map_err(|error| {
            tracing::error!(error, name = certified.name, "a certificate cannot be signed");
            Fault::Medium
        })?;
        tracing::info!(name = certified.name, %key, "signed a new certificate of a server");
        let known = certifier.introduce(&certified.name, certified.roles);
        let (facts, _) = known.map_err(|_| Fault::Medium)?;
        let facts = JoinFacts { certificate, ..facts };
        serde_json::to_string(&facts).map(Answer::Report).map_err(|_| Fault::Invalid)
    }
}
