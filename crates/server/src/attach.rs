//! Attaching: a connection gets a new session, resumes the one that it had, or becomes the back
//! connection of one.

use std::sync::Arc;

use client::clock;
use dafs::message::{Attach, Bind, Message};
use dafs::{Features, ServerInput, ServerSession, SessionSetup, Terms};
use types::{ClientId, Fault, Host, SessionId};
use vice::{Attached, Effect};

use crate::connection_verifier::ConnectionVerifier;
use crate::context::{Agenda, ServerContext};
use crate::link::Link;
use crate::process::PeerLifetime;
use crate::security::Security;
use crate::session_handle::SessionHandle;

/// The request of a connection that has no session yet.
pub(crate) enum AttachRequest {
    Attach(Attach),
    Bind(Bind),
}

/// Finds the session and joins the connection to it. Without a session, queues a goodbye with the
/// reason and closes the link after it.
pub(crate) fn join(
    context: &ServerContext,
    link: &Arc<Link>,
    process: Option<PeerLifetime>,
    terms: Terms,
    wish: AttachRequest,
    agenda: &mut Agenda,
) -> Option<Arc<SessionHandle>> {
    match wish {
        AttachRequest::Attach(attach) => {
            let verifier = Arc::new(ConnectionVerifier::new(
                &context.trust,
                link.security(),
                link.connection.address(),
            ));
            link.attaches_as(verifier.certified());
            if context.is_expelled() && link.security() != Security::Local {
                let why = "this server is no longer one of its cell: its key was withdrawn";
                refuse(link, &terms, SessionId(0), Fault::NotPermitted, why);
                return None;
            }
            match find(context, &attach, &verifier, agenda) {
                Ok((attached, resumed)) => Some(join_session(
                    context,
                    link,
                    process,
                    terms,
                    &attached,
                    (resumed, verifier),
                    agenda,
                )),
                Err(fault) => {
                    let host = verifier.bounded_host();
                    if let Some(before) = context.bounds.may_log("attach", host) {
                        let client = &attach.display;
                        tracing::info!(%client, ?host, %fault, before, "attach refused");
                    }
                    match fault {
                        Fault::Busy => refuse_as_busy(link, &terms),
                        _ => refuse(link, &terms, SessionId(0), fault, "attach refused"),
                    }
                    None
                }
            }
        }
        AttachRequest::Bind(bind) => {
            // A session of a local user is that user's alone, whatever others know of it.
            let user = link.security().local_user();
            let is_own = |_: &Arc<SessionHandle>| !context.bounds.is_anothers(bind.session, user);
            let Some(handle) = context.handle(bind.session).filter(is_own) else {
                refuse(link, &terms, bind.session, Fault::Expired, "no such session");
                return None;
            };
            let input = ServerInput::Bind { channel: link.id, terms, key: bind.key };
            let mut outcome = handle.join(clock::now(), link, None, input);
            let refused = outcome.error.take();
            agenda.take(&handle, outcome);
            match refused {
                None => Some(handle),
                Some(error) => {
                    tracing::warn!(%error, "bind refused");
                    link.close();
                    None
                }
            }
        }
    }
}

/// There are as many sessions as there may be.
pub(crate) fn refuse_as_busy(link: &Link, terms: &Terms) {
    let why = "the server has as many sessions as it may have; try later";
    refuse(link, terms, SessionId(0), Fault::Busy, why);
}

fn refuse(link: &Link, terms: &Terms, session: SessionId, fault: Fault, reason: &str) {
    link.push(Message::goodbye(terms, session, Some(fault), reason), None);
    link.close();
}

/// The session that the client resumes, if it still exists, otherwise a new one: one of *nobody*,
/// unless the connection is trusted.
fn find(
    context: &ServerContext,
    attach: &Attach,
    verifier: &ConnectionVerifier,
    agenda: &mut Agenda,
) -> Result<(Attached, bool), Fault> {
    let (now, host) = (clock::now(), verifier.bounded_host());
    // The client's number is a secret, and still another user's sessions are neither continued nor
    // ended by whoever knows it.
    if context.bounds.has_anothers(attach.client, host) {
        return Err(Fault::Expired);
    }
    if let Some(session) = attach.resume {
        match context.vice.resume(
            now,
            session,
            attach.client,
            attach.incarnation,
            &mut agenda.effects,
        ) {
            Ok(attached) => {
                assert_eq!(attached.session, session, "EO-1: its own replies are repeated");
                context.is_from((attach.client, session), host, context.vice.is_stranger(session));
                return Ok((attached, true));
            }
            Err(fault) => {
                if let Some(before) = context.bounds.may_log("resume", host) {
                    tracing::info!(session = session.0, %fault, before, "cannot be resumed");
                }
            }
        }
    }
    let new = NewSession {
        client: attach.client,
        incarnation: attach.incarnation,
        display: &attach.display,
        host,
        of_nobody: !verifier.is_open(),
    };
    Ok((new_session(context, &new, &mut agenda.effects)?, false))
}

/// The client of a new session.
pub(crate) struct NewSession<'a> {
    pub client: ClientId,
    pub incarnation: u64,
    pub display: &'a str,
    pub host: Option<Host>,
    pub of_nobody: bool,
}

/// Begins a session, within the limits of its host.
///
/// # Errors
/// `Busy`: there are as many as there may be; those of [`vice::Vice::attach`].
pub(crate) fn new_session(
    context: &ServerContext,
    new: &NewSession<'_>,
    effects: &mut Vec<Effect>,
) -> Result<Attached, Fault> {
    let NewSession { client, incarnation, host, of_nobody, .. } = *new;
    let now = clock::now();
    let attached = if of_nobody {
        if let Some(oldest) = context.bounds.admit_nobody(host).map_err(|()| Fault::Busy)? {
            context.vice.peer_died(now, oldest, effects);
        }
        context.vice.attach_stranger(now, client, incarnation, effects)?
    } else {
        if !context.bounds.admit_user(host) {
            return Err(Fault::Busy);
        }
        context.vice.attach(now, client, incarnation, effects)?
    };
    context.is_from((client, attached.session), host, of_nobody);
    let before = if of_nobody { context.bounds.may_log("session", host) } else { Some(0) };
    if let Some(before) = before {
        tracing::info!(session = attached.session.0, client = %new.display, before, "new session");
    }
    Ok(attached)
}

fn join_session(
    context: &ServerContext,
    link: &Arc<Link>,
    process: Option<PeerLifetime>,
    terms: Terms,
    attached: &Attached,
    (resumed, verifier): (bool, Arc<ConnectionVerifier>),
    agenda: &mut Agenda,
) -> Arc<SessionHandle> {
    let handle = context.handle_or(attached.session, || {
        let setup = SessionSetup {
            session: attached.session,
            server: context.instance,
            boot_verifier: attached.verifier,
            lease: context.lease,
            slots: attached.slots,
            bind_key: rand::random(),
            recorded: resumed.then(|| attached.recorded.clone()),
        };
        let machine = ServerSession::new(setup);
        let of_nobody = context.vice.is_stranger(attached.session);
        let machine = if of_nobody {
            machine.with_credits(context.bounds.limits.nobody_requests)
        } else {
            machine
        };
        SessionHandle::new(machine, of_nobody, Arc::clone(&context.tally.panics))
    });
    // Another process may go on with the session: it ends with its lease, not with the process.
    let process = process.filter(|_| !terms.features.has(Features::SUCCESSORS));
    let now = clock::now();
    let renewed = context.vice.renew(now, attached.session, &mut agenda.effects);
    let input = ServerInput::Attached { channel: link.id, terms, resumed, renewed, door: verifier };
    let outcome = handle.join(now, link, process, input);
    agenda.take(&handle, outcome);
    // The list of server keys may have changed since the certificate was verified, and the thread
    // that closed the connections concerned has not seen this one.
    if link.certified() != Some(context.trust.certified(link.security())) {
        link.cut();
    }
    handle
}
