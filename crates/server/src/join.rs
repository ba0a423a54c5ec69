//! A connection finds its session: a new one, the one that it had, or the one whose back connection it is.

use std::sync::Arc;

use client::clock;
use dafs::message::{Attach, Bind, Message};
use dafs::{ServerInput, ServerSession, SessionSetup, Terms};
use types::{Fault, SessionId};
use vice::Attached;

use crate::door::Door;
use crate::house::{Agenda, House};
use crate::link::Link;
use crate::process::Process;
use crate::seat::Seat;

/// What a connection wants to be.
pub(crate) enum Wish {
    Attach(Attach),
    Bind(Bind),
}

/// Finds the seat and joins it. Without one, a goodbye with the reason is queued and the link closes behind it.
pub(crate) fn join(
    house: &House,
    link: &Arc<Link>,
    process: Option<Process>,
    terms: Terms,
    wish: Wish,
    agenda: &mut Agenda,
) -> Option<Arc<Seat>> {
    match wish {
        Wish::Attach(attach) => match find(house, &attach, agenda) {
            Ok((attached, resumed)) => Some(sit(house, link, process, terms, &attached, resumed, agenda)),
            Err(fault) => {
                tracing::info!(client = %attach.display, %fault, "attach refused");
                refuse(link, &terms, SessionId(0), fault, "attach refused");
                None
            }
        },
        Wish::Bind(bind) => {
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

/// The session that the client had, if it asks for it and it lives, otherwise a new one.
fn find(house: &House, attach: &Attach, agenda: &mut Agenda) -> Result<(Attached, bool), Fault> {
    let now = clock::now();
    if let Some(session) = attach.resume {
        match house.vice.resume(now, session, attach.client, attach.incarnation, &mut agenda.effects) {
            Ok(attached) => return Ok((attached, true)),
            Err(fault) => tracing::info!(session = session.0, %fault, "cannot be resumed"),
        }
    }
    let attached = house.vice.attach(now, attach.client, attach.incarnation, &mut agenda.effects)?;
    tracing::info!(session = attached.session.0, client = %attach.display, "new session");
    Ok((attached, false))
}

fn sit(
    house: &House,
    link: &Arc<Link>,
    process: Option<Process>,
    terms: Terms,
    attached: &Attached,
    resumed: bool,
    agenda: &mut Agenda,
) -> Arc<Seat> {
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
        Seat::new(ServerSession::new(setup))
    });
    let now = clock::now();
    let renewed = house.vice.renew(now, attached.session, &mut agenda.effects);
    let door = Arc::new(Door::new(&house.porter, link.security(), link.connection.address()));
    let input = ServerInput::Attached { channel: link.id, terms, resumed, renewed, door };
    let outcome = seat.join(now, link, process, input);
    agenda.take(&seat, outcome);
    seat
}
