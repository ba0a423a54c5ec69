//! Logins: a caller proves its identity and gets a token (`docs/spec/access.md`). The password
//! records are in the cell's database, so a server without it forwards the call to the server that
//! has it.

use celldb::CellDb;
use guard::{Authenticator, Cps, PtsAsker, TokenOrigin, TokenRequest};
use types::{
    Answer, AuthCall, AuthLevel, Behalf, Fault, NewPrincipal, Principal, PrincipalId,
    PrincipalKind, PtsCall, Secret, WhichPrincipal,
};

use crate::audit::Audit;
use crate::call::{CallContext, CallOutcome};
use crate::cell::{CellLink, Identities};

/// The server's authenticator.
struct Logins<'a>(&'a dyn Authenticator);

pub(crate) fn ask_auth(
    cell: &CellLink,
    identities: &Identities,
    authenticator: Option<&dyn Authenticator>,
    audit: &Audit,
    ask: &CallContext<'_>,
    behalf: Option<Behalf>,
    call: &AuthCall,
) -> Result<CallOutcome, Fault> {
    // An eavesdropper could use passwords and tokens, also those from a trusted host.
    if ask.caller.who.overheard {
        let host = ask.caller.who.host;
        tracing::warn!(
            ?host,
            "a login without encryption is refused: the client must connect with TLS"
        );
        return Err(Fault::Unsupported);
    }
    let db = cell.db()?.ok_or(Fault::Unsupported)?;
    let logins = Logins(authenticator.ok_or(Fault::Unsupported)?);
    let answer = match call {
        // A token makes others for the same user's programs; none of them outlives it.
        AuthCall::Attest { client }
            if ask.caller.who.level.is_of_tokens() && ask.caller.who.token != 0 =>
        {
            logins.derived(ask, db, *client)?
        }
        AuthCall::Attest { client } => {
            let who = identities.principal_of(ask.caller)?;
            let principal = db.access().principal(&WhichPrincipal::Id(who))?.filter(is_user);
            logins.token(
                ask,
                &principal.ok_or(Fault::NoPrincipal)?,
                AuthLevel::Attested,
                *client,
            )?
        }
        AuthCall::Kerberos { request, client } => {
            logins.with_ticket(ask, db, request.reveal(), *client)?
        }
        AuthCall::Renew { token } => logins.renewed(ask, token.reveal())?,
        AuthCall::Password { .. } | AuthCall::SetPassword { .. } => {
            let asker = match behalf {
                Some(behalf) => Some(behalf),
                None if ask.caller.is_superuser() => None,
                None => Some(Behalf {
                    principal: identities.vouched(ask.caller)?,
                    host: ask.caller.who.host,
                }),
            };
            match db.access().auth_elsewhere(asker, call) {
                Some(answer) => answer?,
                None => with_password(audit, ask, db, &logins, asker, call)?,
            }
        }
    };
    Ok(CallOutcome::Answer(answer))
}

/// `asker`: `None` is the superuser.
fn with_password(
    audit: &Audit,
    ask: &CallContext<'_>,
    db: &dyn CellDb,
    logins: &Logins<'_>,
    asker: Option<Behalf>,
    call: &AuthCall,
) -> Result<Answer, Fault> {
    let user = |name: &str| -> Result<Option<Principal>, Fault> {
        Ok(db.access().principal(&WhichPrincipal::Name(name.to_owned()))?.filter(is_user))
    };
    let is_right =
        |who: Option<&Principal>, name: &str, password: &Secret| -> Result<bool, Fault> {
            let stored = who.map(|who| db.access().secret(who.id)).transpose()?.flatten();
            let host = asker.and_then(|asker| asker.host);
            let tried = logins.0.is_right(ask.now, (name, host), stored.as_deref(), password);
            if tried.as_ref().is_ok_and(|tried| tried.alarm) {
                tracing::warn!(
                    name,
                    ?host,
                    cause = "many wrong passwords in a row, from hosts that the user never logged \
                    in from",
                    consequence = "attempts from such hosts wait",
                    "a password may be under attack"
                );
                audit.saw_guesses(ask, name);
            }
            tried.map(|tried| tried.right).map_err(|error| {
                tracing::info!(name, ?host, %error, "a password is refused without a check");
                Fault::Busy
            })
        };
    match call {
        AuthCall::Password { name, password, client } => {
            let who = user(name)?;
            let right = is_right(who.as_ref(), name, password)?;
            match who.filter(|who| right && !who.locked) {
                Some(who) => logins.token(ask, &who, AuthLevel::Password, *client),
                None => Err(Fault::AccessDenied),
            }
        }
        AuthCall::SetPassword { name, old, new, keep_tokens } => {
            let who = user(name)?;
            let may = match (asker, old) {
                (None, _) => true,
                (Some(asker), _) if is_administrator(db, asker)? => true,
                (Some(asker), Some(old))
                    if who.as_ref().is_some_and(|who| who.id == asker.principal) =>
                {
                    is_right(who.as_ref(), name, old)?
                }
                _ => return Err(Fault::NotPermitted),
            };
            let who = who.ok_or(Fault::NoPrincipal)?;
            if !may {
                return Err(Fault::AccessDenied);
            }
            let stored = logins.0.keep(new).ok_or(Fault::Invalid)?;
            // A new password is the remedy of a user whose token was stolen, so it ends the old
            // tokens.
            let ends_tokens = (!keep_tokens).then_some(ask.wall.secs);
            db.access().set_secret(who.id, &stored, ends_tokens)?;
            Ok(Answer::Done)
        }
        AuthCall::Kerberos { .. } | AuthCall::Attest { .. } | AuthCall::Renew { .. } => {
            Err(Fault::Invalid)
        }
    }
}

fn is_administrator(db: &dyn CellDb, asker: Behalf) -> Result<bool, Fault> {
    if asker.principal == PrincipalId::ANONYMOUS {
        return Ok(false);
    }
    // A host address makes no caller an administrator.
    Ok(db.access().subdomain(asker.principal, None)?.1.contains(&PrincipalId::ADMINISTRATORS))
}

impl Logins<'_> {
    fn token(
        &self,
        ask: &CallContext<'_>,
        who: &Principal,
        level: AuthLevel,
        client: [u8; 32],
    ) -> Result<Answer, Fault> {
        Ok(Answer::Token(self.issue(ask, who, level, client, None)?.into()))
    }

    fn issue(
        &self,
        ask: &CallContext<'_>,
        who: &Principal,
        level: AuthLevel,
        client: [u8; 32],
        ends: Option<i64>,
    ) -> Result<Vec<u8>, Fault> {
        let (principal, name) = (who.id, who.name.clone());
        let request =
            TokenRequest { principal, name, level, client, not_before: who.tokens_after, ends };
        self.0.issue(&request, ask.wall).ok_or(Fault::Unsupported)
    }

    /// Issues a token for another key of the caller: of the same principal and level, with the
    /// number, the time of issue and the end of the caller's own token.
    fn derived(
        &self,
        ask: &CallContext<'_>,
        db: &dyn CellDb,
        client: [u8; 32],
    ) -> Result<Answer, Fault> {
        let who = &ask.caller.who;
        let expires = who.ends.ok_or(Fault::NotPermitted)?.secs;
        let found = db.access().principal(&WhichPrincipal::Id(who.principal))?.filter(is_user);
        let found = found.filter(|found| !found.locked).ok_or(Fault::NotPermitted)?;
        let request = TokenRequest {
            principal: found.id,
            name: found.name,
            level: who.level,
            client,
            not_before: found.tokens_after,
            ends: Some(expires),
        };
        let origin = TokenOrigin { number: who.token, issued: who.issued, expires };
        let token = self.0.derive(&request, &origin, ask.wall).map_err(|_| Fault::TokenExpired)?;
        Ok(Answer::Token(token.ok_or(Fault::Unsupported)?.into()))
    }

    /// Issues a token that ends with the ticket at the latest.
    fn with_ticket(
        &self,
        ask: &CallContext<'_>,
        db: &dyn CellDb,
        request: &[u8],
        client: [u8; 32],
    ) -> Result<Answer, Fault> {
        let host = ask.caller.who.host;
        let accepted = self.0.accept(request, &client).ok_or(Fault::Unsupported)?;
        let vouched = accepted.map_err(|error| {
            tracing::info!(?host, %error, "a Kerberos ticket is refused");
            Fault::AccessDenied
        })?;
        let named = WhichPrincipal::Name(vouched.name.clone());
        let who = match db.access().principal(&named)? {
            None if self.0.makes_users() && !is_of_a_service(&vouched.name) => {
                make_user(db, &vouched.name)?
            }
            found => found,
        };
        let Some(who) = who.filter(is_user) else {
            tracing::info!(
                ?host,
                name = vouched.name,
                "a Kerberos ticket names no user of the cell; the login is refused"
            );
            return Err(Fault::NoPrincipal);
        };
        if who.locked {
            return Err(Fault::AccessDenied);
        }
        let ends = ask.wall.secs.saturating_add_unsigned(vouched.left.as_secs());
        let token = self.issue(ask, &who, AuthLevel::Kerberos, client, Some(ends))?;
        Ok(Answer::Ticket { token: token.into(), reply: vouched.reply.into() })
    }

    fn renewed(&self, ask: &CallContext<'_>, bytes: &[u8]) -> Result<Answer, Fault> {
        let token = self.0.verify(bytes, ask.wall).map_err(|_| Fault::TokenExpired)?;
        // The token was shown with its proof for this very request.
        if token.number != ask.caller.who.token {
            return Err(Fault::TokenRefused);
        }
        let newer = self.0.renew(&token, ask.wall).map_err(|_| Fault::TokenExpired)?;
        Ok(Answer::Token(newer.ok_or(Fault::Unsupported)?.into()))
    }
}

/// First parts of principals with an instance that are services, in small letters. `wellknown` is
/// that of anonymous tickets (RFC 8062).
const SERVICES: [&str; 16] = [
    "afs",
    "cifs",
    "dns",
    "ftp",
    "host",
    "http",
    "imap",
    "kadmin",
    "kiprop",
    "krbtgt",
    "ldap",
    "nfs",
    "rialto",
    "smtp",
    "termsrv",
    "wellknown",
];

/// Whether a ticket's name is that of a machine or a service (`host/afs1`, `imap/mail.example.org`,
/// `PC7$`), not of a person (`joe`, `joe/admin`).
fn is_of_a_service(name: &str) -> bool {
    let who = name.split('@').next().unwrap_or(name);
    let of_service = who.split_once('/').is_some_and(|(service, instance)| {
        SERVICES.contains(&service.to_lowercase().as_str()) || instance.contains(['.', '/'])
    });
    of_service || who.ends_with('$')
}

fn is_user(principal: &Principal) -> bool {
    !principal.id.is_group() && principal.id != PrincipalId::ANONYMOUS
}

/// Makes a user of the cell for a principal of a Kerberos realm. A concurrent login may have made
/// it. `None`: the cell is not open to the realm.
fn make_user(db: &dyn CellDb, name: &str) -> Result<Option<Principal>, Fault> {
    let new = NewPrincipal {
        kind: PrincipalKind::User,
        name: name.to_owned(),
        id: None,
        owner: None,
        uid: None,
        gid: None,
    };
    let cps = Cps::new(PrincipalId::ANONYMOUS, AuthLevel::Server, [PrincipalId::ADMINISTRATORS]);
    let superuser = PtsAsker { principal: PrincipalId::ANONYMOUS, cps };
    match db.access().pts(&superuser, &PtsCall::Create { new: Box::new(new) }) {
        Ok(_) => tracing::info!(name, "made a user at the first login with Kerberos"),
        Err(Fault::Exists) => {}
        Err(Fault::NoPrincipal) => {
            tracing::info!(
                name,
                cause = "the cell has no group system:authuser@REALM for this user's realm",
                consequence = "the login is refused",
                remedy =
                    "'rialto pts creategroup system:authuser@REALM' opens the cell to the realm",
                "no user is made at a login with Kerberos"
            );
            return Ok(None);
        }
        Err(fault @ Fault::QuotaExceeded) => {
            tracing::warn!(
                name,
                cause = "as many users of this realm were made as the quota of its group allows",
                consequence = "the login is refused",
                remedy = "'rialto pts setfields system:authuser@REALM -groupquota N' allows N more",
                "no user is made at a login with Kerberos"
            );
            return Err(fault);
        }
        Err(fault) => return Err(fault),
    }
    Ok(db.access().principal(&WhichPrincipal::Name(name.to_owned()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m12_services_are_no_users() {
        let of_hosts =
            ["host/afs1.example.org", "host/afs1", "nfs/afs1.example.org", "HTTP/a.b@example.net"];
        let others =
            ["HTTP/web", "imap/mail@x.org", "WELLKNOWN/ANONYMOUS", "PC7$", "PC7$@x.org", "a/b/c"];
        for service in of_hosts.into_iter().chain(others) {
            assert!(is_of_a_service(service), "{service}");
        }
        for person in ["joe", "joe/admin", "joe@example.net", "joe/admin@example.net"] {
            assert!(!is_of_a_service(person), "{person}");
        }
    }
}
