//! Logins without a mount: over TLS to a server of the cell that `reach` finds, with the token in a
//! file of this user (`reach/token_files.rs`).

use std::time::{SystemTime, UNIX_EPOCH};

use client::CallError;
use guard::Token;
use local::ask::TIMEOUT;
use local::failure::Failure;
use login::{KerberosError, PendingTicket};
use types::{Answer, AuthCall, Call, Fault, Secret};

use crate::logging;
use crate::reach::token_files::{HeldToken, NewKey, TokenDir};
use crate::reach::{Anonymous, NetworkWay, Reach, ReachOptions, Stated};

/// Logs in with a password; without a user as the one that the connection names.
pub(super) fn log_in(
    way: NetworkWay,
    user: Option<&str>,
    password: Option<&str>,
) -> Result<Token, Failure> {
    logging::protect_memory();
    let (way, _) = way.settled(TIMEOUT)?;
    let what = || match user {
        Some(user) => format!("logging in as {user}"),
        None => "logging in".to_owned(),
    };
    let key = NewKey::make();
    let client = key.signer.public();
    let call = match (user, password) {
        (Some(user), Some(password)) => AuthCall::Password {
            name: user.to_owned(),
            password: Secret::new(password.as_bytes().to_vec()),
            client,
        },
        _ => AuthCall::Attest { client },
    };
    let session = way.anonymous(TIMEOUT)?;
    match ask(&session, call) {
        Ok(Answer::Token(token)) => store(&way, &session, &token, key),
        Ok(_) => Err(session.asking.odd()),
        Err(error) => Err(refused(what(), &error, user.is_some())),
    }
}

/// Logs in with a Kerberos ticket for `service`, or for the usual service names.
pub(super) fn log_in_by_ticket(
    way: NetworkWay,
    service: Option<&str>,
    no_ticket: impl Fn(KerberosError) -> Failure,
) -> Result<Token, Failure> {
    logging::protect_memory();
    let (way, _) = way.settled(TIMEOUT)?;
    let what = "logging in with a Kerberos ticket";
    let key = NewKey::make();
    let client = key.signer.public();
    let session = way.anonymous(TIMEOUT)?;
    let ticket = match service {
        Some(service) => PendingTicket::new(service, &client).map_err(&no_ticket)?,
        None => {
            let [ours, afs] = ["rialto", "afs"].map(|kind| format!("{kind}/{}", session.cell));
            // A fault of the first name's ticket holds for both, or only the other name exists.
            PendingTicket::new(&ours, &client)
                .or_else(|error| PendingTicket::new(&afs, &client).map_err(|_| no_ticket(error)))?
        }
    };
    let call = AuthCall::Kerberos { request: Secret::new(ticket.request.clone()), client };
    match ask(&session, call) {
        Ok(Answer::Ticket { token, reply }) => {
            ticket.check(&reply).map_err(|error| {
                let why = format!("the service that answered is another one: {error}");
                Failure::new(what, why).mend("inform the cell's administrators")
            })?;
            store(&way, &session, &token, key)
        }
        Ok(_) => Err(session.asking.odd()),
        Err(error) => Err(refused(what.to_owned(), &error, true)),
    }
}

fn ask(session: &Anonymous, call: AuthCall) -> Result<Answer, CallError> {
    session.asking.call(Call::Auth { behalf: None, call: Box::new(call) })
}

fn refused(what: String, error: &CallError, is_named: bool) -> Failure {
    match error.fault() {
        Some(Fault::AccessDenied) => Failure::new(what, "wrong password, or no such user")
            .mend("'rialto passwd' changes a password; an administrator sets a new one"),
        Some(Fault::Busy) => Failure::new(what, "too many wrong attempts")
            .mend("wait a little; logins from other machines are possible"),
        Some(Fault::NotPermitted | Fault::NoPrincipal) if !is_named => {
            Failure::new(what, "over the network the user must be named")
                .mend("name the user: 'rialto login NAME'")
        }
        Some(Fault::NoPrincipal) => Failure::new(what, "the cell knows no such user")
            .mend("an administrator makes one with 'rialto pts createuser'"),
        Some(Fault::Unsupported) => Failure::new(what, "this server accepts no such logins"),
        _ => Failure::new(what, error),
    }
}

/// Stores the token, with the addresses of the cell's servers for the commands that follow.
fn store(
    way: &NetworkWay,
    session: &Anonymous,
    token: &Secret,
    key: NewKey,
) -> Result<Token, Failure> {
    let what = || "storing the login".to_owned();
    let mut servers = vec![session.endpoint.to_string()];
    let listed = session.asking.servers().unwrap_or_default();
    let listed = listed.iter().flat_map(|server| &server.addresses);
    let others = way.servers.iter().map(ToString::to_string);
    for server in others.chain(listed.map(|address| format!("tcp:{address}"))) {
        if !servers.contains(&server) {
            servers.push(server);
        }
    }
    let trust = match way.stated {
        Stated::This(_) => session.cell.clone(),
        Stated::No => way.trust.clone(),
    };
    let held = HeldToken::new(token, key, servers, trust);
    let held = held.filter(|held| held.token.cell == session.cell);
    let held = held.ok_or_else(|| Failure::new(what(), "the server's answer is no token of it"))?;
    TokenDir::make()?.put(&held)?;
    Ok(held.token)
}

/// Sets a password; `old`: the user's own, without which an administrator sets it, or the superuser
/// at the server's socket.
pub(super) fn set_password(
    options: &ReachOptions,
    user: &str,
    old: Option<&str>,
    new: &str,
    keep_tokens: bool,
) -> Result<(), Failure> {
    let secret = |text: &str| Secret::new(text.as_bytes().to_vec());
    let what = format!("setting the password of {user}");
    let reach = match old {
        None => Reach::find(options)?,
        Some(old) => {
            let way = NetworkWay::for_login(options)?;
            if !is_logged_in(&way, user)? {
                log_in(way.clone(), Some(user), Some(old))?;
            }
            Reach::Network(Box::new(way))
        }
    };
    let reached = reach.open(None, TIMEOUT)?;
    let call = AuthCall::SetPassword {
        name: user.to_owned(),
        old: old.map(secret),
        new: secret(new),
        keep_tokens,
    };
    let call = Call::Auth { behalf: None, call: Box::new(call) };
    reached.asking.call_as(&reached.caller, call).map_err(|error| match error.fault() {
        Some(Fault::AccessDenied) => Failure::new(&what, "the old password is wrong"),
        Some(Fault::NotPermitted) => {
            Failure::new(&what, "you are neither that user nor an administrator")
        }
        Some(Fault::Invalid | Fault::NoPrincipal) => {
            Failure::new(&what, "a password has 8 to 1024 bytes, and the user must exist")
        }
        _ => Failure::new(&what, error),
    })?;
    // The new password has ended the own token too.
    if !keep_tokens && reached.user.as_deref() == Some(user) {
        log_in(NetworkWay::for_login(options)?, Some(user), Some(new))?;
    }
    Ok(())
}

fn is_logged_in(way: &NetworkWay, user: &str) -> Result<bool, Failure> {
    let cell = way.anonymous(TIMEOUT)?.cell;
    let held = TokenDir::find()?.map(|dir| dir.token(&cell)).transpose()?.flatten();
    Ok(held.is_some_and(|held| held.token.name == user && !held.is_over(now())))
}

/// Whether there is a login without a mount.
pub(super) fn is_any() -> Result<bool, Failure> {
    Ok(!tokens(None)?.is_empty())
}

/// The logins without a mount: of this cell, or all.
pub(super) fn tokens(cell: Option<&str>) -> Result<Vec<Token>, Failure> {
    let Some(dir) = TokenDir::find()? else { return Ok(Vec::new()) };
    let held = match cell {
        Some(cell) => dir.token(cell)?.into_iter().collect(),
        None => dir.tokens()?,
    };
    Ok(held.into_iter().map(|held| held.token).collect())
}

/// Forgets the login to this cell, or all.
pub(super) fn forget(cell: Option<&str>) -> Result<(), Failure> {
    let Some(dir) = TokenDir::find()? else { return Ok(()) };
    match cell {
        Some(cell) => drop(dir.remove(cell)?),
        None => dir.remove_all()?,
    }
    Ok(())
}

pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
