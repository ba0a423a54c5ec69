//! Who shows who he is, and gets a token for it (`docs/access.md`). What is kept of passwords lies in the cell's database, so who has none asks who has it.

use celldb::CellDb;
use login::{Mint, Passwords, Request};
use std::sync::Arc;
use types::{Answer, AuthCall, Behalf, Fault, Level, Principal, PrincipalId, Secret, WhichPrincipal};

use super::Outcome;
use crate::Vice;
use crate::service::Ask;

/// What a server needs for it.
#[derive(Debug)]
pub(crate) struct Desk {
    mint: Arc<Mint>,
    passwords: Passwords,
}

impl Vice {
    /// Who makes tokens. Once, before anybody asks.
    pub fn has_mint(&self, mint: Arc<Mint>) {
        if self.desk.set(Desk { mint, passwords: Passwords::default() }).is_err() {
            tracing::error!("a second mint is not used");
        }
    }

    pub(crate) fn ask_auth(&self, ask: &Ask<'_>, behalf: Option<Behalf>, call: &AuthCall) -> Result<Outcome, Fault> {
        let db = self.cell()?.ok_or(Fault::Unsupported)?;
        let desk = self.desk.get().ok_or(Fault::Unsupported)?;
        let answer = match call {
            // A token is renewed, and ends; it does not make others.
            AuthCall::Attest { .. } if ask.caller.who.level.is_of_tokens() && ask.caller.who.token != 0 => {
                return Err(Fault::NotPermitted);
            }
            AuthCall::Attest { client } => {
                let who = self.principal_of(ask.caller)?;
                let principal = db.access().principal(&WhichPrincipal::Id(who))?.filter(is_user);
                desk.token(ask, &principal.ok_or(Fault::NoPrincipal)?, Level::Attested, *client)?
            }
            AuthCall::Renew { token } => desk.renewed(ask, token)?,
            AuthCall::Password { .. } | AuthCall::SetPassword { .. } => {
                let asker = match behalf {
                    Some(behalf) => Some(behalf),
                    None if ask.caller.is_root() => None,
                    None => Some(Behalf { principal: self.principal_of(ask.caller)?, host: ask.caller.who.host }),
                };
                match db.access().auth_elsewhere(asker, call) {
                    Some(answer) => answer?,
                    None => self.with_password(ask, db, desk, asker, call)?,
                }
            }
        };
        Ok(Outcome::Answer(answer))
    }

    /// `asker`: `None` is the superuser.
    fn with_password(
        &self,
        ask: &Ask<'_>,
        db: &dyn CellDb,
        desk: &Desk,
        asker: Option<Behalf>,
        call: &AuthCall,
    ) -> Result<Answer, Fault> {
        let user = |name: &str| -> Result<Option<Principal>, Fault> {
            Ok(db.access().principal(&WhichPrincipal::Name(name.to_owned()))?.filter(is_user))
        };
        let is_right = |who: Option<&Principal>, name: &str, password: &Secret| -> Result<bool, Fault> {
            let kept = who.map(|who| db.access().secret(who.id)).transpose()?.flatten();
            let host = asker.and_then(|asker| asker.host);
            let right = desk.passwords.is_right(ask.now, (name, host), kept.as_deref(), password);
            right.map_err(|error| {
                tracing::info!(name, ?host, %error, "a password is not looked at");
                Fault::Busy
            })
        };
        match call {
            AuthCall::Password { name, password, client } => {
                let who = user(name)?;
                let right = is_right(who.as_ref(), name, password)?;
                match who.filter(|who| right && !who.locked) {
                    Some(who) => desk.token(ask, &who, Level::Password, *client),
                    None => Err(Fault::AccessDenied),
                }
            }
            AuthCall::SetPassword { name, old, new } => {
                let who = user(name)?;
                let may = match (asker, old) {
                    (None, _) => true,
                    (Some(asker), _) if self.is_administrator(db, asker)? => true,
                    (Some(asker), Some(old)) if who.as_ref().is_some_and(|who| who.id == asker.principal) => {
                        is_right(who.as_ref(), name, old)?
                    }
                    _ => return Err(Fault::NotPermitted),
                };
                let who = who.ok_or(Fault::NoPrincipal)?;
                if !may {
                    return Err(Fault::AccessDenied);
                }
                let kept = desk.passwords.keep(new).map_err(|_| Fault::Invalid)?;
                db.access().set_secret(who.id, &kept)?;
                Ok(Answer::Done)
            }
            AuthCall::Attest { .. } | AuthCall::Renew { .. } => Err(Fault::Invalid),
        }
    }

    fn is_administrator(&self, db: &dyn CellDb, asker: Behalf) -> Result<bool, Fault> {
        if asker.principal == PrincipalId::ANONYMOUS {
            return Ok(false);
        }
        // No set of hosts makes an administrator.
        Ok(db.access().subdomain(asker.principal, None)?.1.contains(&PrincipalId::ADMINISTRATORS))
    }
}

impl Desk {
    fn token(&self, ask: &Ask<'_>, who: &Principal, level: Level, client: [u8; 32]) -> Result<Answer, Fault> {
        let (principal, name) = (who.id, who.name.clone());
        let request = Request { principal, name, level, client, not_before: who.tokens_after, ends: None };
        let token = self.mint.issue(&request, ask.wall).ok_or(Fault::Unsupported)?;
        Ok(Answer::Token(token.into()))
    }

    fn renewed(&self, ask: &Ask<'_>, bytes: &[u8]) -> Result<Answer, Fault> {
        let token = self.mint.verify(bytes, ask.wall).map_err(|_| Fault::TokenExpired)?;
        // It was shown with its proof for this very request.
        if token.number != ask.caller.who.token {
            return Err(Fault::TokenRefused);
        }
        let newer = self.mint.renew(&token, ask.wall).map_err(|_| Fault::TokenExpired)?;
        Ok(Answer::Token(newer.ok_or(Fault::Unsupported)?.into()))
    }
}

fn is_user(principal: &Principal) -> bool {
    !principal.id.is_group() && principal.id != PrincipalId::ANONYMOUS
}
