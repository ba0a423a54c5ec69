//! Random histories of persistent locks against the obvious model, bytes and their owners; and
//! requests that wait while a holder dies (docs/spec/sharing.md, PL-1).

use std::collections::BTreeMap;
use std::time::Duration;

use lease::{
    EndReason, KnownSession, LeaseConfig, Leases, LockOutcome, LockRecord, LockRequest, Output,
    PassesBroken, Restart,
};
use proptest::prelude::*;
use types::{
    ByteRange, ClientId, Fault, Fid, LockFamily, LockMode, LockOwner, ReplyAddress, SessionId, Time,
};

const SESSIONS: usize = 3;
const OWNERS: u64 = 2;
const BYTES: u64 = 12;
const FILE: Fid = Fid::new(1, 2, 1);

fn at(secs: u64) -> Time {
    Time::from_start(Duration::from_secs(secs))
}

/// Requests of one history, each with its own address.
struct World {
    leases: Leases,
    requests: u64,
}

impl World {
    fn new() -> World {
        let leases = Leases::new(LeaseConfig::default(), None, SessionId(1), at(0));
        World { leases, requests: 0 }
    }

    fn attach(&mut self, client: u128) -> SessionId {
        self.leases.attach(at(0), ClientId(client), 1, &mut Vec::new()).unwrap()
    }

    /// Requests a lock as the driver does, which knows the records of the file.
    fn lock(
        &mut self,
        records: &[LockRecord],
        request: &LockRequest,
        wait: bool,
        out: &mut Vec<Output>,
    ) -> (ReplyAddress, LockOutcome) {
        self.requests += 1;
        let origin = ReplyAddress { session: request.session, slot: 0, request: self.requests };
        self.leases.locks_mut().set_records(FILE, records.to_vec());
        (origin, self.leases.lock(origin, request, wait, false, out))
    }

    fn end(&mut self, session: SessionId) -> Vec<Output> {
        let mut out = Vec::new();
        self.leases.end(at(1), session, EndReason::Expired, &mut out);
        out
    }
}

fn request(who: (SessionId, u64), range: ByteRange, mode: LockMode) -> LockRequest {
    let (session, owner) = (who.0, LockOwner(who.1));
    let (family, passes) = (LockFamily::Posix, PassesBroken::Nothing);
    LockRequest { fid: FILE, session, owner, pid: 1, family, range, mode, passes }
}

fn exclusive(session: SessionId) -> LockRequest {
    request((session, 1), ByteRange::ALL, LockMode::Exclusive)
}

fn record(request: &LockRequest) -> LockRecord {
    LockRecord { session: request.session, owner: request.owner, range: request.range }
}

fn results(out: &[Output]) -> Vec<(ReplyAddress, Result<(), Fault>)> {
    let done = |output: &Output| match output {
        Output::LockDone { origin, result } => Some((*origin, *result)),
        _ => None,
    };
    out.iter().filter_map(done).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Lock {
        who: (usize, u64),
        range: (u64, u64),
        exclusive: bool,
        passes: u8,
        persists: bool,
    },
    Unlock {
        who: (usize, u64),
        range: (u64, u64),
    },
    /// An unlock that takes the records in the range along.
    Finish {
        who: (usize, u64),
        range: (u64, u64),
    },
    End {
        session: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let who = || (0..SESSIONS, 1..=OWNERS);
    let range = || (0..BYTES, 0..BYTES).prop_map(|(one, two)| (one.min(two), one.max(two)));
    prop_oneof![
        6 => (who(), range(), any::<bool>(), 0..3_u8, any::<bool>()).prop_map(
            |(who, range, exclusive, passes, persists)| Step::Lock {
                who, range, exclusive, passes, persists
            }
        ),
        2 => (who(), range()).prop_map(|(who, range)| Step::Unlock { who, range }),
        2 => (who(), range()).prop_map(|(who, range)| Step::Finish { who, range }),
        1 => (0..SESSIONS).prop_map(|session| Step::End { session }),
    ]
}

type Who = (SessionId, u64);

/// The owners of each byte and whether they have it exclusively; the records.
#[derive(Default)]
struct Model {
    held: BTreeMap<u64, BTreeMap<Who, bool>>,
    records: Vec<LockRecord>,
}

impl Model {
    fn bytes(range: ByteRange) -> impl Iterator<Item = u64> {
        range.start..=range.end
    }

    fn is_held(&self, record: &LockRecord) -> bool {
        let of_owner = |byte| {
            let all = self.held.get(&byte).into_iter().flatten();
            let own = all.filter(|(who, has)| who.1 == record.owner.0 && **has);
            own.map(|(who, _)| who.0).next()
        };
        let first = of_owner(record.range.start);
        first.is_some() && Self::bytes(record.range).all(|byte| of_owner(byte) == first)
    }

    fn expected(&self, request: &LockRequest) -> LockOutcome {
        let who = (request.session, request.owner.0);
        let is_broken = self.records.iter().any(|record| {
            let passes = match request.passes {
                PassesBroken::Nothing => false,
                PassesBroken::OwnersOwn => record.owner == request.owner,
                PassesBroken::All => true,
            };
            record.range.overlaps(request.range) && !passes && !self.is_held(record)
        });
        let is_exclusive = request.mode == LockMode::Exclusive;
        let is_blocked = Self::bytes(request.range).any(|byte| {
            let others = self.held.get(&byte).into_iter().flatten();
            others.filter(|(other, _)| **other != who).any(|(_, has)| *has || is_exclusive)
        });
        match (is_broken, is_blocked) {
            (true, _) => LockOutcome::Refused(Fault::LockBroken),
            (false, true) => LockOutcome::Refused(Fault::Locked),
            (false, false) => LockOutcome::Granted,
        }
    }

    fn set(&mut self, who: Who, range: ByteRange, exclusive: Option<bool>) {
        for byte in Self::bytes(range) {
            let owners = self.held.entry(byte).or_default();
            match exclusive {
                Some(exclusive) => owners.insert(who, exclusive),
                None => owners.remove(&who),
            };
        }
    }
}

fn play(steps: &[Step]) {
    let (mut world, mut model) = (World::new(), Model::default());
    let mut sessions: Vec<SessionId> = (0..SESSIONS).map(|at| world.attach(at as u128)).collect();
    let bytes = |(start, end): (u64, u64)| ByteRange { start, end };
    for step in steps {
        match *step {
            Step::Lock { who, range, exclusive, passes, persists } => {
                let who = (sessions[who.0], who.1);
                let mode = if exclusive { LockMode::Exclusive } else { LockMode::Shared };
                let passes = [PassesBroken::Nothing, PassesBroken::OwnersOwn, PassesBroken::All]
                    [usize::from(passes)];
                let wanted = LockRequest { passes, ..request(who, bytes(range), mode) };
                let records = model.records.clone();
                let (_, outcome) = world.lock(&records, &wanted, false, &mut Vec::new());
                assert_eq!(outcome, model.expected(&wanted), "{wanted:?} with {records:?}");
                if outcome == LockOutcome::Granted {
                    model.set(who, wanted.range, Some(exclusive));
                    if persists && exclusive {
                        let before = std::mem::take(&mut model.records);
                        for one in before {
                            let rest = one.range.without(wanted.range);
                            model.records.extend(rest.map(|range| LockRecord { range, ..one }));
                        }
                        model.records.push(record(&wanted));
                    }
                }
            }
            Step::Unlock { who, range } | Step::Finish { who, range } => {
                let who = (sessions[who.0], who.1);
                let (range, owner) = (bytes(range), LockOwner(who.1));
                if matches!(step, Step::Finish { .. }) {
                    model.records.retain(|one| {
                        (one.session, one.owner) != (who.0, owner) || !range.contains(one.range)
                    });
                }
                let mut out = Vec::new();
                let locks = world.leases.locks_mut();
                locks.unlock(who.0, FILE, owner, LockFamily::Posix, range, &mut out);
                model.set(who, range, None);
            }
            Step::End { session } => {
                world.end(sessions[session]);
                for owners in model.held.values_mut() {
                    owners.retain(|who, _| who.0 != sessions[session]);
                }
                sessions[session] = world.attach(session as u128 + 100);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn pl1_random_histories_agree_with_bytes_and_owners(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        play(&steps);
    }
}

#[test]
fn pl1_all_who_wait_for_a_holder_that_dies_learn_of_it() {
    let mut world = World::new();
    let [holder, first, second] = [1, 2, 3].map(|client| world.attach(client));
    let records = [record(&exclusive(holder))];
    let mut out = Vec::new();
    assert_eq!(world.lock(&[], &exclusive(holder), true, &mut out).1, LockOutcome::Granted);
    world.leases.locks_mut().set_records(FILE, records.to_vec());
    let waits = [first, second].map(|one| {
        let (origin, outcome) = world.lock(&records, &exclusive(one), true, &mut out);
        assert_eq!(outcome, LockOutcome::Waiting, "the holder lives");
        origin
    });
    let out = world.end(holder);
    assert_eq!(results(&out), waits.map(|origin| (origin, Err(Fault::LockBroken))));
    assert_eq!(world.leases.counts().locks, 0);
    assert_eq!(world.leases.counts().lock_waits, 0);
}

#[test]
fn pl1_a_waiting_request_gets_a_lock_that_was_finished() {
    let mut world = World::new();
    let [holder, waiter] = [1, 2].map(|client| world.attach(client));
    let (held, mut out) = (exclusive(holder), Vec::new());
    world.lock(&[], &held, true, &mut out);
    let (origin, _) = world.lock(&[record(&held)], &exclusive(waiter), true, &mut out);
    world.leases.locks_mut().set_records(FILE, Vec::new());
    let (range, family) = (ByteRange::ALL, LockFamily::Posix);
    world.leases.locks_mut().unlock(holder, FILE, held.owner, family, range, &mut out);
    assert_eq!(results(&out), [(origin, Ok(()))]);
}

#[test]
fn pl1_one_refused_request_lets_others_behind_it_go() {
    let mut world = World::new();
    let [holder, both, behind] = [1, 2, 3].map(|client| world.attach(client));
    let range = |start, end| ByteRange { start, end };
    let low = request((holder, 1), range(0, 9), LockMode::Exclusive);
    let high = request((holder, 2), range(10, 19), LockMode::Exclusive);
    let mut out = Vec::new();
    world.lock(&[], &low, true, &mut out);
    world.lock(&[], &high, true, &mut out);
    let records = [record(&low)];
    let all = request((both, 1), range(0, 19), LockMode::Exclusive);
    let (first, _) = world.lock(&records, &all, true, &mut out);
    let upper = request((behind, 1), range(10, 19), LockMode::Exclusive);
    let (second, outcome) = world.lock(&records, &upper, true, &mut out);
    assert_eq!(outcome, LockOutcome::Waiting);
    let out = world.end(holder);
    let mut done = results(&out);
    done.sort_by_key(|(origin, _)| origin.request);
    assert_eq!(done, [(first, Err(Fault::LockBroken)), (second, Ok(()))]);
}

#[test]
fn pl1_after_a_restart_a_lock_that_is_not_claimed_is_broken() {
    for claims in [true, false] {
        let known = |session, client| KnownSession {
            session: SessionId(session),
            client: ClientId(client),
            incarnation: 1,
            delegated: false,
            excluding: false,
        };
        let restart = Restart { known: vec![known(1, 1), known(2, 2)], complete: true };
        let leases = Leases::new(LeaseConfig::default(), Some(&restart), SessionId(20), at(0));
        let mut world = World { leases, requests: 0 };
        let (holder, other) = (SessionId(1), SessionId(2));
        let (held, mut out) = (exclusive(holder), Vec::new());
        let records = [record(&held)];
        let (origin, outcome) = world.lock(&records, &exclusive(other), false, &mut out);
        assert_eq!(outcome, LockOutcome::Waiting, "for the end of grace");
        if claims {
            let passes = PassesBroken::OwnersOwn;
            let claim = LockRequest { passes, ..held };
            let from = ReplyAddress { session: holder, slot: 0, request: 1 };
            let outcome = world.leases.lock(from, &claim, false, true, &mut out);
            assert_eq!(outcome, LockOutcome::Granted);
        }
        for session in [holder, other] {
            world.leases.reclaim_done(at(1), session, &mut out);
        }
        let fault = if claims { Fault::Locked } else { Fault::LockBroken };
        assert_eq!(results(&out), [(origin, Err(fault))]);
    }
}
