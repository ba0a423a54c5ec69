//! Each rule of the server's state machine by example; `tests/` has the models.

use std::time::Duration;

use types::{BreakReason, ByteRange, LockFamily, LockMode, LockOwner, Name};

use super::*;
use crate::config::KnownSession;
use crate::lock::PassesBroken;
use crate::promises::merged;

const A: ClientId = ClientId(0xa);
const B: ClientId = ClientId(0xb);
const C: ClientId = ClientId(0xc);
const FILE: Fid = Fid::new(1, 2, 1);
const OTHER: Fid = Fid::new(1, 4, 1);
const NOBODY: SessionId = SessionId(0);

fn at(secs: u64) -> Time {
    Time::from_start(Duration::from_secs(secs))
}

fn fresh() -> Leases {
    Leases::new(LeaseConfig::default(), None, SessionId(1), at(0))
}

fn restarted(sessions: &[(u64, ClientId)], complete: bool) -> Leases {
    let known = |(session, client): &(u64, ClientId)| KnownSession {
        session: SessionId(*session),
        client: *client,
        incarnation: 1,
        delegated: false,
        excluding: false,
    };
    let restart = Restart { known: sessions.iter().map(known).collect(), complete };
    Leases::new(LeaseConfig::default(), Some(&restart), SessionId(10), at(0))
}

fn attach(leases: &mut Leases, client: ClientId) -> SessionId {
    let mut out = Vec::new();
    let session = leases.attach(at(0), client, 1, &mut out).expect("attach");
    assert_eq!(out, []);
    session
}

fn data(fid: Fid) -> BreakItem {
    BreakItem { fid, reason: BreakReason::Data, name: None }
}

fn origin(session: SessionId) -> ReplyAddress {
    ReplyAddress { session, slot: 0, request: 1 }
}

fn exclusive(session: SessionId) -> LockRequest {
    let (family, mode) = (LockFamily::Posix, LockMode::Exclusive);
    LockRequest {
        fid: FILE,
        session,
        owner: LockOwner(1),
        pid: 7,
        family,
        range: ByteRange::ALL,
        mode,
        passes: PassesBroken::Nothing,
    }
}

/// Breaks `fid` for all but `except`; returns the ticket, and the sessions with their breaks.
fn change(
    leases: &mut Leases,
    fid: Fid,
    except: SessionId,
) -> (Option<BreakTicket>, Vec<(SessionId, BreakId)>) {
    let mut out = Vec::new();
    let ticket = leases.break_promises(at(1), &[data(fid)], except, &mut out);
    let sent = out.iter().map(|output| match output {
        Output::Break { to, id, .. } => (*to, *id),
        other => panic!("{other:?}"),
    });
    (ticket, sent.collect())
}

fn acked(leases: &mut Leases, session: SessionId, id: BreakId, held: &[Fid]) -> Vec<Output> {
    let mut out = Vec::new();
    leases.ack(session, id, held, &mut out);
    out
}

#[test]
fn a_change_waits_for_every_other_holder_and_nobody_else() {
    let mut leases = fresh();
    let (a, b, c) = (attach(&mut leases, A), attach(&mut leases, B), attach(&mut leases, C));
    for session in [a, b] {
        assert_eq!(leases.promise(at(0), session, FILE, false, &mut Vec::new()), Promised::Yes);
    }
    assert_eq!(leases.promise(at(0), c, OTHER, false, &mut Vec::new()), Promised::Yes);
    let (ticket, sent) = change(&mut leases, FILE, a);
    assert_eq!(sent.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [b]);
    assert!(
        leases.promises().has(a, FILE)
            && !leases.promises().has(b, FILE)
            && leases.promises().has(c, OTHER)
    );
    assert_eq!(
        acked(&mut leases, b, sent[0].1, &[]),
        [Output::TicketDone(ticket.expect("b has a break"))]
    );
    assert_eq!(change(&mut leases, FILE, a), (None, vec![]));
}

#[test]
fn a_later_change_waits_for_a_break_that_is_still_on_its_way() {
    let mut leases = fresh();
    let (a, b) = (attach(&mut leases, A), attach(&mut leases, B));
    leases.promise(at(0), b, FILE, false, &mut Vec::new());
    let (first, sent) = change(&mut leases, FILE, a);
    assert!(leases.promises().is_known_elsewhere(FILE, a), "b may still answer from its cache");
    assert!(
        !leases.promises().is_known_elsewhere(FILE, b)
            && !leases.promises().is_known_elsewhere(OTHER, a)
    );
    let (second, again) = change(&mut leases, FILE, a);
    assert_eq!(again, [], "there is no promise to end");
    let done = acked(&mut leases, b, sent[0].1, &[]);
    assert_eq!(
        done,
        [Output::TicketDone(first.expect("first")), Output::TicketDone(second.expect("second"))]
    );
}

#[test]
fn a_promise_after_a_break_needs_an_acknowledgement_of_its_own() {
    let mut leases = fresh();
    let (a, b) = (attach(&mut leases, A), attach(&mut leases, B));
    leases.promise(at(0), b, FILE, false, &mut Vec::new());
    let (first, sent) = change(&mut leases, FILE, a);
    leases.promise(at(1), b, FILE, false, &mut Vec::new());
    let (second, again) = change(&mut leases, FILE, a);
    assert_eq!(acked(&mut leases, b, sent[0].1, &[]), [Output::TicketDone(first.expect("first"))]);
    assert_eq!(
        acked(&mut leases, b, again[0].1, &[]),
        [Output::TicketDone(second.expect("second"))]
    );
    assert_eq!(leases.counts().promised_files, 0);
}

#[test]
fn a_session_with_a_lock_alone_gets_a_break_of_the_root() {
    let mut leases = fresh();
    let (locker, other) = (attach(&mut leases, ClientId(1)), attach(&mut leases, ClientId(2)));
    let mut out = Vec::new();
    leases.lock(origin(locker), &exclusive(locker), false, false, &mut out);
    assert_eq!(out, []);
    let ticket = leases.break_volume(at(1), FILE.volume, &mut out);
    let root = Fid::root(FILE.volume);
    let [Output::Break { to, id, items }] = &out[..] else { panic!("{out:?}") };
    assert_eq!((*to, &items[..]), (locker, &[data(root)][..]));
    assert_ne!(*to, other);
    let (to, id) = (*to, *id);
    assert!(ticket.is_some(), "it is waited for");
    assert_eq!(acked(&mut leases, to, id, &[]), [Output::TicketDone(ticket.unwrap())]);
}

#[test]
fn cb4_a_change_waits_for_a_silent_holder_until_its_lease_ends() {
    let mut leases = fresh();
    let (a, b) = (attach(&mut leases, A), attach(&mut leases, B));
    leases.promise(at(0), b, FILE, false, &mut Vec::new());
    let (ticket, _) = change(&mut leases, FILE, a);
    let mut out = Vec::new();
    assert_eq!(leases.renew(at(10), a), RenewalOutcome::Renewed);
    leases.tick(at(15), &mut out);
    assert_eq!(out, [], "CB-4: the client may still trust what it has");
    assert_eq!(leases.tick(at(16), &mut out), at(26));
    let ended =
        Output::SessionEnded { session: b, client: B, reason: EndReason::Expired, freed: vec![] };
    assert_eq!(out, [ended, Output::TicketDone(ticket.expect("b has a break"))]);
    assert_eq!(leases.renew(at(16), b), RenewalOutcome::Gone);
}

#[test]
fn a_session_that_never_acknowledges_is_not_renewed_for_ever() {
    let mut leases = fresh();
    let (a, b) = (attach(&mut leases, A), attach(&mut leases, B));
    leases.promise(at(0), b, FILE, false, &mut Vec::new());
    let (_, sent) = change(&mut leases, FILE, a);
    assert_eq!(leases.renew(at(16), b), RenewalOutcome::Renewed);
    assert_eq!(leases.renew(at(17), b), RenewalOutcome::Withheld);
    acked(&mut leases, b, sent[0].1, &[]);
    assert_eq!(leases.renew(at(17), b), RenewalOutcome::Renewed);
}

#[test]
fn a_resumed_session_gets_its_breaks_again_and_keeps_promises() {
    let mut leases = fresh();
    let (a, b) = (attach(&mut leases, A), attach(&mut leases, B));
    leases.promise(at(0), b, FILE, false, &mut Vec::new());
    leases.promise(at(0), b, OTHER, false, &mut Vec::new());
    let (ticket, sent) = change(&mut leases, FILE, a);
    let mut out = Vec::new();
    let resumed = leases.resume(at(9), b, B, 1, &mut out).expect("resume");
    assert_eq!(resumed, Resumed { reclaim: false, renewed: true });
    assert_eq!(out, [Output::Break { to: b, id: sent[0].1, items: vec![data(FILE)] }]);
    assert!(leases.promises().has(b, OTHER));
    assert_eq!(
        acked(&mut leases, b, sent[0].1, &[]),
        [Output::TicketDone(ticket.expect("b has a break"))]
    );
    assert_eq!(acked(&mut leases, b, sent[0].1, &[]), [], "acknowledged twice, counted once");
}

#[test]
fn only_its_own_client_and_incarnation_resumes_a_session() {
    let mut leases = fresh();
    let a = attach(&mut leases, A);
    let mut out = Vec::new();
    assert_eq!(leases.resume(at(1), a, B, 1, &mut out), Err(AttachError::Gone(a)));
    assert_eq!(
        leases.resume(at(1), SessionId(99), A, 1, &mut out),
        Err(AttachError::Gone(SessionId(99)))
    );
    let old = AttachError::OldIncarnation { client: A, newest: 1 };
    assert_eq!(leases.resume(at(1), a, A, 0, &mut out), Err(old));
}

#[test]
fn a_new_life_of_a_client_ends_the_old_one_and_what_it_had() {
    let mut leases = fresh();
    let (a, b) = (attach(&mut leases, A), attach(&mut leases, B));
    leases.promise(at(0), a, FILE, false, &mut Vec::new());
    leases.hold(a, OTHER).expect("hold");
    let mut out = Vec::new();
    assert_eq!(leases.lock(origin(a), &exclusive(a), false, false, &mut out), LockOutcome::Granted);
    assert_eq!(leases.lock(origin(b), &exclusive(b), true, false, &mut out), LockOutcome::Waiting);
    let (ticket, _) = change(&mut leases, FILE, b);
    let newer = leases.attach(at(2), A, 2, &mut out).expect("attach");
    let ended = Output::SessionEnded {
        session: a,
        client: A,
        reason: EndReason::Replaced,
        freed: vec![OTHER],
    };
    let granted = Output::LockDone { origin: origin(b), result: Ok(()) };
    assert_eq!(out, [ended, granted, Output::TicketDone(ticket.expect("a has a break"))]);
    assert!(leases.sessions().has(newer) && !leases.sessions().has(a));
    let old = AttachError::OldIncarnation { client: A, newest: 2 };
    assert_eq!(leases.attach(at(3), A, 1, &mut out), Err(old), "EO-2");
    leases.end(at(4), newer, EndReason::Detached, &mut out);
    assert_eq!(leases.attach(at(5), A, 1, &mut out), Err(old), "EO-2, when no session is left too");
}

#[test]
fn an_acknowledgement_that_names_open_files_holds_them() {
    let mut leases = fresh();
    let (a, b) = (attach(&mut leases, A), attach(&mut leases, B));
    leases.promise(at(0), b, FILE, false, &mut Vec::new());
    let (_, sent) = change(&mut leases, FILE, a);
    acked(&mut leases, b, sent[0].1, &[FILE, OTHER]);
    assert!(leases.holds().is_held(FILE), "HO-1");
    assert!(!leases.holds().is_held(OTHER), "the break did not name it");
    assert!(!leases.unhold(a, FILE), "a never held it");
    assert!(leases.unhold(b, FILE));
    assert!(!leases.holds().is_held(FILE));
}

#[test]
fn a_held_file_is_free_when_its_last_holder_goes() {
    let mut leases = fresh();
    let (a, b) = (attach(&mut leases, A), attach(&mut leases, B));
    leases.hold(a, FILE).expect("hold");
    leases.hold(b, FILE).expect("hold");
    leases.hold(b, FILE).expect("hold again");
    let mut out = Vec::new();
    leases.end(at(1), b, EndReason::PeerDied, &mut out);
    let ended =
        Output::SessionEnded { session: b, client: B, reason: EndReason::PeerDied, freed: vec![] };
    assert_eq!(std::mem::take(&mut out), [ended]);
    leases.end(at(1), a, EndReason::Detached, &mut out);
    let ended = Output::SessionEnded {
        session: a,
        client: A,
        reason: EndReason::Detached,
        freed: vec![FILE],
    };
    assert_eq!(out, [ended]);
    assert_eq!(leases.hold(a, FILE), Err(Fault::Expired));
}

#[test]
fn a_removed_file_leaves_no_promise_and_all_acknowledgements() {
    let mut leases = fresh();
    let (a, b) = (attach(&mut leases, A), attach(&mut leases, B));
    leases.promise(at(0), a, FILE, false, &mut Vec::new());
    leases.promise(at(0), b, FILE, false, &mut Vec::new());
    let (ticket, sent) = change(&mut leases, FILE, a);
    leases.forget_file(at(1), FILE, &mut Vec::new());
    assert_eq!((leases.counts().promises, leases.counts().promised_files), (0, 0));
    assert_eq!(leases.promises.count(a), 0);
    assert_eq!(
        acked(&mut leases, b, sent[0].1, &[]),
        [Output::TicketDone(ticket.expect("b has a break"))]
    );
    leases.promise(at(2), a, OTHER, false, &mut Vec::new());
    leases.end(at(3), a, EndReason::Detached, &mut Vec::new());
    assert_eq!(leases.counts().promises, 0);
}

#[test]
fn a_full_table_ends_the_oldest_promises_of_the_richest_session() {
    let config = LeaseConfig { promises_max: 17, ..LeaseConfig::default() };
    let mut leases = Leases::new(config, None, SessionId(1), at(0));
    let (a, b) = (attach(&mut leases, A), attach(&mut leases, B));
    let mut out = Vec::new();
    leases.promise(at(0), b, FILE, false, &mut out);
    for vnode in 1..=16 {
        leases.promise(at(0), a, Fid::new(1, 100 + vnode, 1), false, &mut out);
    }
    assert_eq!(out, []);
    leases.promise(at(0), b, OTHER, false, &mut out);
    let pressed =
        |vnode| BreakItem { fid: Fid::new(1, vnode, 1), reason: BreakReason::Pressure, name: None };
    let sent = Output::Break { to: a, id: BreakId(1), items: vec![pressed(101), pressed(102)] };
    assert_eq!(out, [sent]);
    let (ticket, _) = change(&mut leases, Fid::new(1, 101, 1), b);
    let done = acked(&mut leases, a, BreakId(1), &[]);
    assert_eq!(done, [Output::TicketDone(ticket.expect("CB-1: a had yet to drop it"))]);
}

#[test]
fn cb7_items_of_one_file_merge_and_keep_only_a_shared_hint() {
    let name = |text: &str| Name::new(text.as_bytes()).ok();
    let item = |reason, name| BreakItem { fid: FILE, reason, name };
    let both = [item(BreakReason::Data, name("x")), item(BreakReason::Removed, name("y"))];
    assert_eq!(merged(&both), [item(BreakReason::Removed, None)]);
    let same =
        [item(BreakReason::Data, name("x")), item(BreakReason::Status, name("x")), data(OTHER)];
    assert_eq!(merged(&same), [item(BreakReason::Data, name("x")), data(OTHER)]);
}

#[test]
fn leftovers_of_ended_promises_do_not_pile_up() {
    let mut leases = fresh();
    let (a, b) = (attach(&mut leases, A), attach(&mut leases, B));
    for round in 0..1000 {
        leases.promise(at(0), b, FILE, false, &mut Vec::new());
        let (_, sent) = change(&mut leases, FILE, a);
        assert_eq!(sent.len(), 1, "round {round}");
        acked(&mut leases, b, sent[0].1, &[]);
    }
    assert!(leases.promises.order_len(b) < 200);
}

#[test]
fn cb5_no_change_before_all_known_sessions_have_reclaimed() {
    let mut leases = restarted(&[(1, A), (2, B)], true);
    let mut out = Vec::new();
    assert!(!leases.may_change());
    assert_eq!(
        leases.resume(at(1), SessionId(1), A, 1, &mut out).map(|resumed| resumed.reclaim),
        Ok(true)
    );
    leases.reclaim_done(at(2), SessionId(1), &mut out);
    leases.resume(at(3), SessionId(2), B, 1, &mut out).expect("resume");
    assert!(!leases.may_change(), "CB-5: b has a break that may not have arrived");
    assert_eq!(out, []);
    leases.reclaim_done(at(4), SessionId(2), &mut out);
    assert!(leases.may_change());
    assert_eq!(out, [Output::GraceOver]);
    assert_eq!(
        leases.resume(at(5), SessionId(2), B, 1, &mut out).map(|resumed| resumed.reclaim),
        Ok(false)
    );
}

#[test]
fn grace_ends_with_the_lease_of_those_who_do_not_return() {
    let mut leases = restarted(&[(1, A), (2, B)], true);
    let mut out = Vec::new();
    leases.resume(at(1), SessionId(1), A, 1, &mut out).expect("resume");
    leases.reclaim_done(at(1), SessionId(1), &mut out);
    leases.tick(at(15), &mut out);
    assert_eq!(out, []);
    leases.tick(at(16), &mut out);
    let ended = Output::SessionEnded {
        session: SessionId(2),
        client: B,
        reason: EndReason::Expired,
        freed: vec![],
    };
    assert_eq!(out, [ended, Output::GraceOver]);
}

/// Its client trusts its promises and its delegations as long as the lease that it renewed.
#[test]
fn cb5_grace_lasts_as_long_as_the_lease_of_a_late_session() {
    let mut leases = restarted(&[(1, A)], true);
    let mut out = Vec::new();
    leases.resume(at(10), SessionId(1), A, 1, &mut out).expect("resume");
    out.clear();
    leases.tick(at(16), &mut out);
    leases.tick(at(25), &mut out);
    assert_eq!((out.len(), leases.may_change()), (0, false), "CB-5");
    leases.tick(at(26), &mut out);
    assert!(matches!(out[..], [Output::SessionEnded { .. }, Output::GraceOver]), "{out:?}");
}

#[test]
fn a_session_that_is_never_done_is_not_waited_for() {
    let mut leases = restarted(&[(1, A), (2, B)], true);
    let mut out = Vec::new();
    for session in [1, 2] {
        let client = if session == 1 { A } else { B };
        leases.resume(at(1), SessionId(session), client, 1, &mut out).expect("resume");
    }
    leases.reclaim_done(at(1), SessionId(1), &mut out);
    out.clear();
    for second in 2..32 {
        for session in [1, 2] {
            assert_eq!(leases.renew(at(second), SessionId(session)), RenewalOutcome::Renewed);
        }
        leases.tick(at(second), &mut out);
    }
    assert_eq!(out, []);
    assert_eq!(leases.tick(at(31), &mut out), at(32));
    leases.tick(at(32), &mut out);
    assert_eq!(out, [Output::GraceOver]);
    assert!(leases.may_change() && !leases.reclaims_delegations(SessionId(2)));
}

#[test]
fn reading_begins_when_unknown_sessions_are_over() {
    let mut leases = restarted(&[(1, A)], false);
    let mut out = Vec::new();
    leases.resume(at(10), SessionId(1), A, 1, &mut out).expect("resume");
    out.clear();
    assert!(!leases.may_read(SessionId(1)));
    leases.tick(at(16), &mut out);
    assert_eq!(out, [Output::ReadingAgain]);
    assert!(leases.may_read(SessionId(1)) && !leases.may_change());
}

#[test]
fn cb5_a_restart_that_may_have_lost_sessions_waits_for_a_lease() {
    let mut leases = restarted(&[], false);
    let mut out = Vec::new();
    assert_eq!(leases.tick(at(15), &mut out), at(16));
    assert!(!leases.may_change(), "CB-5");
    leases.tick(at(16), &mut out);
    assert_eq!(out, [Output::GraceOver]);
    assert!(restarted(&[], true).may_change(), "no session was known");
}

#[test]
fn in_grace_locks_are_for_their_former_holders() {
    let mut leases = restarted(&[(1, A), (2, B)], true);
    let (a, b) = (SessionId(1), SessionId(2));
    let mut out = Vec::new();
    leases.resume(at(1), b, B, 1, &mut out).expect("resume");
    leases.reclaim_done(at(1), b, &mut out);
    assert_eq!(leases.lock(origin(b), &exclusive(b), false, false, &mut out), LockOutcome::Waiting);
    let refused = LockOutcome::Refused(Fault::Expired);
    assert_eq!(
        leases.lock(origin(b), &exclusive(b), false, true, &mut out),
        refused,
        "b said that it was done"
    );
    leases.resume(at(2), a, A, 1, &mut out).expect("resume");
    assert_eq!(leases.lock(origin(a), &exclusive(a), false, true, &mut out), LockOutcome::Granted);
    assert_eq!(
        leases.lock(origin(a), &exclusive(a), false, true, &mut out),
        LockOutcome::Granted,
        "said again"
    );
    assert_eq!(out, []);
    leases.reclaim_done(at(3), a, &mut out);
    let locked = Output::LockDone { origin: origin(b), result: Err(Fault::Locked) };
    assert_eq!(out, [Output::GraceOver, locked]);
    assert_eq!(
        leases.lock(origin(a), &exclusive(a), false, true, &mut out),
        refused,
        "grace is over"
    );
}

#[test]
fn nothing_is_called_free_in_grace() {
    let mut leases = restarted(&[(1, A), (2, B)], true);
    let mut out = Vec::new();
    leases.resume(at(1), SessionId(1), A, 1, &mut out).expect("resume");
    leases.hold(SessionId(1), FILE).expect("hold");
    assert!(!leases.unhold(SessionId(1), FILE), "b may yet claim it");
    leases.hold(SessionId(1), FILE).expect("hold");
    leases.end(at(2), SessionId(1), EndReason::Detached, &mut out);
    let ended = Output::SessionEnded {
        session: SessionId(1),
        client: A,
        reason: EndReason::Detached,
        freed: vec![],
    };
    assert_eq!(out, [ended]);
    assert_eq!(change(&mut leases, FILE, NOBODY), (None, vec![]));
}
