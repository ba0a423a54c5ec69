//! Attaching: a connection gets a new session, resumes the one that it had, or becomes the back
//! connection of one.

use std::sync::Arc;

use client::clock;
use dafs::message::{Attach, Bind, Message};
use dafs::{ServerInput, ServerSession, SessionSetup, Terms};
use types::{Fault, SessionId};
use vice::Attached;

use crate::connection_verifier::ConnectionVerifier;
use crate::context::{Agenda, ServerContext};
use crate::link::Link;
use crate::process::PeerLifetime;
use crate::session_handle::SessionHandle;
use crate::usage::Host;

/// The request of a connection that has no session yet.
pub(crate) enum AttachRequest {
    Attach(Attach),
    Bind(Bind),
}

/// Finds the session and joins the connection to it. Without a session, queues a goodbye with the
/// reason and closes the link after it.
pub(crate) fn join(
    house: &ServerContext,
    link: &Arc<Link>,
    process: Option<PeerLifetime>,
    terms: Terms,
    wish: AttachRequest,
    agenda: &mut Agenda,
) -> Option<Arc<SessionHandle>> {
    match wish {
        AttachRequest::Attach(attach) => {
            let door = Arc::new(ConnectionVerifier::new(
                &house.porter,
                link.security(),
                link.connection.address(),
            ));
            link.attaches_as(door.certified());
            match find(house, &attach, &door, agenda) {
                Ok((attached, resumed)) => {
                    Some(sit(house, link, process, terms, &attached, (resumed, door), agenda))
                }
                Err(fault) => {
                    let host = link.connection.host();
                    if let Some(before) = house.bounds.may_say("attach", host) {
                        let client = &attach.display;
                        tracing::info!(%client, ?host, %fault, before, "attach refused");
                    }
                    let why = if fault == Fault::Busy {
                        "as many sessions as there may be; try later"
                    } else {
                        "attach refused"
                    };
                    refuse(link, &terms, SessionId(0), fault, why);
                    None
                }
            }
        }
        AttachRequest::Bind(bind) => {
            let Some(seat) = house.seat(bind.session) else {
                refuse(link, &terms, bind.session, Fault::Expired, "no such session");
                return None;
            };
            let input = ServerInput::Bind { channel: link.id, terms, key: bind.key };
            let mut outcome = seat.join(clock::now(), link, None, input);
            let refused = outcome.error.take();
            agenda.take(&seat, outcome);
            match refused {
                None => Some(seat),
                Some(error) => {
                    tracing::warn!(%error, "bind refused");
                    link.close();
                    None
                }
            }
        }
    }
}

fn refuse(link: &Link, terms: &Terms, session: SessionId, fault: Fault, reason: &str) {
    link.push(Message::goodbye(terms, session, Some(fault), reason), None);
    link.close();
}

/// The session that the client resumes, if it still exists, otherwise a new one: one of *nobody*,
/// unless the connection is trusted.
fn find(
    house: &ServerContext,
    attach: &Attach,
    door: &ConnectionVerifier,
    agenda: &mut Agenda,
) -> Result<(Attached, bool), Fault> {
    let (now, host) = (clock::now(), door.bounded_host());
    if let Some(session) = attach.resume {
        match house.vice.resume(
            now,
            session,
            attach.client,
            attach.incarnation,
            &mut agenda.effects,
        ) {
            Ok(attached) => {
                house.is_from(session, host, house.vice.is_stranger(session));
                return Ok((attached, true));
            }
            Err(fault) => {
                if let Some(before) = house.bounds.may_say("resume", host.map(Host::address)) {
                    tracing::info!(session = session.0, %fault, before, "cannot be resumed");
                }
            }
        }
    }
    let stranger = !door.is_open();
    let attached = if stranger {
        if let Some(oldest) = house.bounds.admit_stranger(host).map_err(|()| Fault::Busy)? {
            house.vice.peer_died(now, oldest, &mut agenda.effects);
        }
        house.vice.attach_stranger(now, attach.client, attach.incarnation, &mut agenda.effects)?
    } else {
        if !house.bounds.admit_user(host) {
            return Err(Fault::Busy);
        }
        house.vice.attach(now, attach.client, attach.incarnation, &mut agenda.effects)?
    };
    house.is_from(attached.session, host, stranger);
    let before =
        if stranger { house.bounds.may_say("session", host.map(Host::address)) } else { Some(0) };
    if let Some(before) = before {
        let client = &attach.display;
        tracing::info!(session = attached.session.0, %client, before, "new session");
    }
    Ok((attached, false))
}

fn sit(
    house: &ServerContext,
    link: &Arc<Link>,
    process: Option<PeerLifetime>,
    terms: Terms,
    attached: &Attached,
    (resumed, door): (bool, Arc<ConnectionVerifier>),
    agenda: &mut Agenda,
) -> Arc<SessionHandle> {
    let seat = house.seat_or(attached.session, || {
        let setup = SessionSetup {
            session: attached.session,
            server: house.life,
            boot_verifier: attached.verifier,
            lease: house.lease,
            slots: attached.slots,
            bind_key: rand::random(),
            recorded: resumed.then(|| attached.recorded.clone()),
        };
        let machine = ServerSession::new(setup);
        let stranger = house.vice.is_stranger(attached.session);
        let machine = if stranger {
            machine.with_credits(house.bounds.limits.nobody_requests)
        } else {
            machine
        };
        SessionHandle::new(machine, stranger, Arc::clone(&house.tally.panics))
    });
    let now = clock::now();
    let renewed = house.vice.renew(now, attached.session, &mut agenda.effects);
    let input = ServerInput::Attached { channel: link.id, terms, resumed, renewed, door };
    let outcome = seat.join(now, link, process, input);
    agenda.take(&seat, outcome);
    // The list of server keys may have changed since the certificate was verified, and the thread
    // that closed the connections concerned has not seen this one.
    if link.certified() != Some(house.porter.certified(link.security())) {
        link.cut();
    }
    seat
}
