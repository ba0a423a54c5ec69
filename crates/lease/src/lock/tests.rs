//! Costs of locks: what a lock and a search for deadlocks visit (M14).

use super::*;

#[test]
fn many_locks_of_others_are_not_looked_at() {
    let (mut locks, mut out) =
        (LockTable::new(LockLimits { per_session: 1 << 20, all: 1 << 20 }), Vec::new());
    let fid = Fid::new(1, 2, 1);
    let lock =
        |locks: &mut LockTable, session: u64, owner: u64, start: u64, out: &mut Vec<Output>| {
            let session = SessionId(session);
            let (range, mode) = (ByteRange { start, end: start }, LockMode::Exclusive);
            let (owner, family) = (LockOwner(owner), LockFamily::Posix);
            let request = LockRequest {
                fid,
                session,
                owner,
                pid: 1,
                family,
                range,
                mode,
                passes: PassesBroken::Nothing,
            };
            let origin = ReplyAddress { session, slot: 0, request: start };
            locks.lock(origin, &request, true, out)
        };
    // Each other byte, of as many owners.
    for number in 0..65_536 {
        assert_eq!(lock(&mut locks, 1, number, 2 * number, &mut out), LockOutcome::Granted);
    }
    let visited = |locks: &LockTable| locks.tables[&(fid, LockFamilyOrd::Posix)].visited();
    let before = visited(&locks);
    for number in 0..100 {
        assert_eq!(lock(&mut locks, 2, 1, 600 * number + 1, &mut out), LockOutcome::Granted);
    }
    assert_eq!(lock(&mut locks, 2, 1, 0, &mut out), LockOutcome::Waiting);
    locks.unlock(SessionId(2), fid, LockOwner(1), LockFamily::Posix, ByteRange::ALL, &mut out);
    let steps = visited(&locks) - before;
    assert!(steps < 100 * 200, "{steps} entries were visited for a hundred locks");
}

/// A request for these bytes by one owner of the session.
fn request(
    file: u64,
    session: u64,
    owner: u64,
    (start, end): (u64, u64),
    mode: LockMode,
) -> LockRequest {
    let (fid, family, session) = (Fid::new(1, 2 * file, 1), LockFamily::Posix, SessionId(session));
    LockRequest {
        fid,
        session,
        owner: LockOwner(owner),
        pid: 1,
        family,
        range: ByteRange { start, end },
        mode,
        passes: PassesBroken::Nothing,
    }
}

#[test]
fn h4_requests_that_wait_elsewhere_are_not_looked_at() {
    let (mut locks, mut out) =
        (LockTable::new(LockLimits { per_session: 1 << 20, all: 1 << 20 }), Vec::new());
    let mut number = 0;
    let mut ask = |locks: &mut LockTable, request: LockRequest, out: &mut Vec<Output>| {
        number += 1;
        locks.lock(
            ReplyAddress { session: request.session, slot: 0, request: number },
            &request,
            true,
            out,
        )
    };
    use LockMode::{Exclusive, Shared};
    // Requests that are blocked, each at bytes of its own of the first file.
    for place in 0..5_000 {
        let at = (10 * place, 10 * place);
        assert_eq!(
            ask(&mut locks, request(1, 1, place, at, Exclusive), &mut out),
            LockOutcome::Granted
        );
        assert_eq!(
            ask(&mut locks, request(1, 2, place, at, Exclusive), &mut out),
            LockOutcome::Waiting
        );
    }
    // Requests that are stuck: in each of many files a reader behind a writer that waits for
    // another reader.
    for file in 0..2_000 {
        let (file, at) = (100 + file, (0, 9));
        assert_eq!(
            ask(&mut locks, request(file, 1, file, at, Shared), &mut out),
            LockOutcome::Granted
        );
        assert_eq!(
            ask(&mut locks, request(file, 2, file, at, Exclusive), &mut out),
            LockOutcome::Waiting
        );
        assert_eq!(
            ask(&mut locks, request(file, 3, file, at, Shared), &mut out),
            LockOutcome::Waiting
        );
    }
    let visited = |locks: &LockTable| locks.tables.values().map(Table::visited).sum::<usize>();
    let before = visited(&locks);
    for place in 0..100 {
        let at = (10 * place + 5, 10 * place + 5);
        assert_eq!(
            ask(&mut locks, request(1, 4, 1, at, Exclusive), &mut out),
            LockOutcome::Granted
        );
        assert_eq!(
            ask(&mut locks, request(1, 5, 1, at, Exclusive), &mut out),
            LockOutcome::Waiting
        );
        let range = ByteRange { start: at.0, end: at.1 };
        let (fid, family) = (Fid::new(1, 2, 1), LockFamily::Posix);
        locks.unlock(SessionId(4), fid, LockOwner(1), family, range, &mut out);
        assert!(
            matches!(out.last(), Some(Output::LockDone { result: Ok(()), .. })),
            "the other has it now"
        );
    }
    let steps = visited(&locks) - before;
    assert!(steps < 100 * 1000, "{steps} entries were visited for a hundred granted locks");
}

#[test]
fn h4_a_search_for_deadlocks_takes_a_bounded_number_of_steps() {
    let (mut locks, mut out) =
        (LockTable::new(LockLimits { per_session: 1 << 20, all: 1 << 20 }), Vec::new());
    let mut number = 0;
    let mut ask = |locks: &mut LockTable, request: LockRequest, out: &mut Vec<Output>| {
        number += 1;
        locks.lock(
            ReplyAddress { session: request.session, slot: 0, request: number },
            &request,
            true,
            out,
        )
    };
    // 300 owners each wait for all of 300 others, and the last request would wait for the first
    // of them.
    for owner in 0..300 {
        let at = (owner, owner);
        assert_eq!(
            ask(&mut locks, request(1, 1, owner, at, LockMode::Exclusive), &mut out),
            LockOutcome::Granted
        );
    }
    for owner in 0..300 {
        let (file, all) = (2, (owner, owner));
        let held = request(file, 2, owner, all, LockMode::Exclusive);
        assert_eq!(ask(&mut locks, held, &mut out), LockOutcome::Granted);
        let wanted = request(1, 2, owner, (0, u64::MAX), LockMode::Exclusive);
        assert_eq!(ask(&mut locks, wanted, &mut out), LockOutcome::Waiting);
    }
    let visited = |locks: &LockTable| locks.tables.values().map(Table::visited).sum::<usize>();
    let before = visited(&locks);
    let wanted = request(2, 3, 1, (0, u64::MAX), LockMode::Exclusive);
    assert_eq!(ask(&mut locks, wanted, &mut out), LockOutcome::Waiting);
    let steps = visited(&locks) - before;
    assert!(steps < 60_000, "{steps} entries were visited");
}
