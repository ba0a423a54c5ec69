//! Locks against a simple model: which owner has which byte in which mode, and the order of
//! requests.
//!
//! The model checks the rules, not the implementation: no two conflicting locks (LK-1), no refusal
//! without a conflict or a real deadlock, no waiting request without an obstacle, no request
//! overtaken except by those that it waits for (LK-3), and that all requests are granted when the
//! owners that do not wait unlock.

use std::collections::{BTreeMap, BTreeSet};

use lease::{EndReason, LeaseConfig, Leases, LockOutcome, LockRequest, Output, PassesBroken};
use proptest::prelude::*;
use types::{
    ByteRange, ClientId, Fault, Fid, LockFamily, LockMode, LockOwner, ReplyAddress, SessionId, Time,
};

const BYTES: u64 = 8;
const FILES: u64 = 2;
const SESSIONS: usize = 3;
/// Two lock ranges in all files, and each open file has two of its own, as open file descriptions
/// do: these lock it whole.
const OWNERS: u64 = 2 + 2 * FILES;

/// Session index and owner number.
type Who = (usize, u64);
/// File number and family.
type Place = (u64, bool);

#[derive(Clone, Debug)]
enum Op {
    Lock { who: Who, place: Place, range: (u64, u64), exclusive: bool, wait: bool },
    Unlock { who: Who, place: Place, range: (u64, u64) },
    Test { who: Who, place: Place, range: (u64, u64), exclusive: bool },
    Cancel { who: Who },
    UnlockOwner { who: Who, file: u64 },
    EndSession { session: usize },
}

fn who() -> impl Strategy<Value = Who> {
    (0..SESSIONS, 0..OWNERS)
}

/// An owner, and a place of its family.
fn locker() -> impl Strategy<Value = (Who, Place)> {
    (0..SESSIONS, 0..OWNERS, 0..FILES).prop_map(|(session, owner, file)| match owner {
        0 | 1 => ((session, owner), (file, false)),
        _ => ((session, owner), ((owner - 2) / 2, true)),
    })
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    (0..BYTES, 0..BYTES).prop_map(|(a, b)| (a.min(b), a.max(b)))
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (locker(), range(), any::<bool>(), prop::bool::weighted(0.7))
            .prop_map(|((who, place), range, exclusive, wait)| {
                Op::Lock { who, place, range, exclusive, wait }
            }),
        5 => (locker(), range()).prop_map(|((who, place), range)| Op::Unlock { who, place, range }),
        2 => (locker(), range(), any::<bool>())
            .prop_map(|((who, place), range, exclusive)| Op::Test { who, place, range, exclusive }),
        2 => who().prop_map(|who| Op::Cancel { who }),
        1 => (who(), 0..FILES).prop_map(|(who, file)| Op::UnlockOwner { who, file }),
        1 => (0..SESSIONS).prop_map(|session| Op::EndSession { session }),
    ]
}

#[derive(Clone, Debug)]
struct Waiting {
    who: Who,
    place: Place,
    range: (u64, u64),
    exclusive: bool,
}

/// Each place's bytes, each byte's owners and whether they have it exclusively; and all waiting
/// requests, oldest first.
#[derive(Clone, Debug, Default)]
struct Model {
    held: BTreeMap<(Place, u64), BTreeMap<Who, bool>>,
    waits: Vec<(ReplyAddress, Waiting)>,
}

impl Model {
    fn blockers(&self, want: &Waiting) -> BTreeSet<Who> {
        let mut found = BTreeSet::new();
        for byte in want.range.0..=want.range.1 {
            for (who, exclusive) in self.held.get(&(want.place, byte)).into_iter().flatten() {
                if *who != want.who && (*exclusive || want.exclusive) {
                    found.insert(*who);
                }
            }
        }
        found
    }

    fn ahead(&self, want: &Waiting, at: usize) -> BTreeSet<Who> {
        let earlier = self.waits.iter().take(at).map(|(_, wait)| wait);
        earlier.filter(|wait| conflict(wait, want)).map(|wait| wait.who).collect()
    }

    /// Whether one of `from` is or waits for `target`.
    fn reaches(&self, from: BTreeSet<Who>, target: Who, queues: bool, posix: bool) -> bool {
        let mut seen = from;
        loop {
            let mut next = seen.clone();
            for (at, (_, wait)) in self.waits.iter().enumerate() {
                if seen.contains(&wait.who) && wait.place.1 != posix {
                    next.extend(self.blockers(wait));
                    if queues {
                        next.extend(self.ahead(wait, at));
                    }
                }
            }
            if next == seen {
                return seen.contains(&target);
            }
            seen = next;
        }
    }

    fn set(&mut self, who: Who, place: Place, range: (u64, u64), exclusive: Option<bool>) {
        for byte in range.0..=range.1 {
            let holders = self.held.entry((place, byte)).or_default();
            match exclusive {
                Some(exclusive) => holders.insert(who, exclusive),
                None => holders.remove(&who),
            };
        }
    }

    /// Grants a request, after the checks of the rules.
    fn grant(&mut self, want: &Waiting, at: usize, waited: bool) {
        assert_eq!(self.blockers(want), BTreeSet::new(), "LK-1: {want:?} was granted over a lock");
        if waited {
            for earlier in self.ahead(want, at) {
                let first = BTreeSet::from([earlier]);
                // A process's own locks let its other `flock` owners pass; here each session is a
                // process.
                let own = want.place.1 && self.has_process(want);
                assert!(
                    own || self.reaches(first, want.who, true, !want.place.1),
                    "LK-3: {want:?} overtook {earlier:?}"
                );
            }
        }
        self.set(want.who, want.place, want.range, Some(want.exclusive));
    }

    fn has_process(&self, want: &Waiting) -> bool {
        let mut bytes = self.held.iter().filter(|((place, _), _)| *place == want.place);
        bytes.any(|(_, holders)| holders.keys().any(|who| who.0 == want.who.0))
    }

    fn place_of(&self, origin: ReplyAddress) -> usize {
        self.waits
            .iter()
            .position(|(other, _)| *other == origin)
            .expect("only waiting requests are answered")
    }

    fn granted(&mut self, origin: ReplyAddress) {
        let at = self.place_of(origin);
        let want = self.waits[at].1.clone();
        self.grant(&want, at, true);
        self.waits.remove(at);
    }

    /// Checks that each waiting request has an obstacle.
    fn check_no_forgotten_waiter(&self) {
        for (at, (_, wait)) in self.waits.iter().enumerate() {
            let stopped = !self.blockers(wait).is_empty() || !self.ahead(wait, at).is_empty();
            assert!(stopped, "{wait:?} has no obstacle");
        }
    }

    fn is_waiting(&self, who: Who) -> bool {
        self.waits.iter().any(|(_, wait)| wait.who == who)
    }
}

fn conflict(one: &Waiting, other: &Waiting) -> bool {
    one.place == other.place
        && one.who != other.who
        && (one.exclusive || other.exclusive)
        && one.range.0 <= other.range.1
        && other.range.0 <= one.range.1
}

struct World {
    leases: Leases,
    sessions: Vec<SessionId>,
    incarnation: u64,
    requests: u64,
    model: Model,
}

impl World {
    fn new() -> Self {
        let mut leases = Leases::new(LeaseConfig::default(), None, SessionId(1), Time::ZERO);
        let mut attach =
            |index: usize| leases.attach(Time::ZERO, ClientId(index as u128), 1, &mut Vec::new());
        let sessions = (0..SESSIONS).map(|index| attach(index).expect("attach")).collect();
        World { leases, sessions, incarnation: 1, requests: 0, model: Model::default() }
    }

    fn request(&self, want: &Waiting) -> LockRequest {
        let family = family(want.place);
        LockRequest {
            fid: Fid::new(1, 2 * want.place.0, 1),
            session: self.sessions[want.who.0],
            owner: LockOwner(want.who.1),
            pid: 100 + want.who.0 as u32,
            family,
            range: ByteRange { start: want.range.0, end: want.range.1 },
            mode: if want.exclusive { LockMode::Exclusive } else { LockMode::Shared },
            passes: PassesBroken::Nothing,
        }
    }

    fn apply(&mut self, op: &Op) {
        let mut out = Vec::new();
        match op.clone() {
            Op::Lock { who, place, range, exclusive, wait } if !self.model.is_waiting(who) => {
                self.lock(
                    &Waiting { who, place, range: whole(place, range), exclusive },
                    wait,
                    &mut out,
                );
            }
            Op::Unlock { who, place, range } if !self.model.is_waiting(who) => {
                self.unlock(who, place, whole(place, range), &mut out);
            }
            Op::Test { who, place, range, exclusive } => {
                self.test(&Waiting { who, place, range: whole(place, range), exclusive });
            }
            Op::Cancel { who } => self.cancel(who, &mut out),
            Op::UnlockOwner { who, file } if !self.model.is_waiting(who) => {
                self.unlock_owner(who, file, &mut out);
            }
            Op::EndSession { session } => self.end(session, &mut out),
            Op::Lock { .. } | Op::Unlock { .. } | Op::UnlockOwner { .. } => {}
        }
        self.finish(&out);
    }

    fn finish(&mut self, out: &[Output]) {
        for output in out {
            match output {
                Output::LockDone { origin, result: Ok(()) } => self.model.granted(*origin),
                other => panic!("unexpected {other:?}"),
            }
        }
        self.model.check_no_forgotten_waiter();
        assert_eq!(self.leases.counts().lock_waits, self.model.waits.len());
        let locked = self.model.held.values().any(|holders| !holders.is_empty());
        assert_eq!(self.leases.counts().locks > 0, locked);
    }

    fn lock(&mut self, want: &Waiting, wait: bool, out: &mut Vec<Output>) {
        self.requests += 1;
        let origin =
            ReplyAddress { session: self.sessions[want.who.0], slot: 0, request: self.requests };
        let request = self.request(want);
        let blockers = self.model.blockers(want);
        let posix = !want.place.1;
        let outcome = self.leases.lock(origin, &request, wait, false, out);
        let at = self.model.waits.len();
        if blockers.is_empty() && (!wait || outcome == LockOutcome::Granted) {
            assert_eq!(outcome, LockOutcome::Granted, "nothing is in the way of {want:?}");
            return self.model.grant(want, at, wait);
        }
        if wait && posix && self.model.reaches(blockers, want.who, false, true) {
            return assert_eq!(outcome, LockOutcome::Refused(Fault::Deadlock));
        }
        if !posix {
            self.model.set(want.who, want.place, want.range, None);
        }
        match outcome {
            LockOutcome::Refused(Fault::Locked) if !wait => {}
            LockOutcome::Waiting if wait => self.model.waits.push((origin, want.clone())),
            other => panic!("{want:?}, wait {wait}: {other:?}"),
        }
    }

    fn unlock(&mut self, who: Who, place: Place, range: (u64, u64), out: &mut Vec<Output>) {
        let bytes = ByteRange { start: range.0, end: range.1 };
        let fid = Fid::new(1, 2 * place.0, 1);
        self.leases.locks_mut().unlock(
            self.sessions[who.0],
            fid,
            LockOwner(who.1),
            family(place),
            bytes,
            out,
        );
        self.model.set(who, place, range, None);
    }

    fn test(&mut self, want: &Waiting) {
        let request = self.request(want);
        let conflict = self.leases.locks_mut().test(&request);
        assert_eq!(conflict.is_some(), !self.model.blockers(want).is_empty());
        let Some(conflict) = conflict else { return };
        for byte in conflict.range.start..=conflict.range.end.min(BYTES - 1) {
            let holders = &self.model.held[&(want.place, byte)];
            let exclusive = conflict.mode == LockMode::Exclusive;
            assert!(
                holders.iter().any(|(who, mode)| *who != want.who && *mode == exclusive),
                "{conflict:?}"
            );
        }
    }

    fn cancel(&mut self, who: Who, out: &mut Vec<Output>) {
        let Some(at) = self.model.waits.iter().position(|(_, wait)| wait.who == who) else {
            return;
        };
        let origin = self.model.waits.remove(at).0;
        assert!(self.leases.locks_mut().cancel(origin, out));
        assert_eq!(out.pop(), Some(Output::LockDone { origin, result: Err(Fault::Cancelled) }));
        assert!(!self.leases.locks_mut().cancel(origin, out), "it waits no more");
    }

    fn unlock_owner(&mut self, who: Who, file: u64, out: &mut Vec<Output>) {
        let fid = Fid::new(1, 2 * file, 1);
        for family in [LockFamily::Posix, LockFamily::Flock] {
            self.leases.locks_mut().unlock(
                self.sessions[who.0],
                fid,
                LockOwner(who.1),
                family,
                ByteRange::ALL,
                out,
            );
        }
        for flock in [false, true] {
            self.model.set(who, (file, flock), (0, BYTES - 1), None);
        }
    }

    /// Ends the session; its client attaches again (LK-2).
    fn end(&mut self, session: usize, out: &mut Vec<Output>) {
        let mut all = Vec::new();
        self.leases.end(Time::ZERO, self.sessions[session], EndReason::PeerDied, &mut all);
        let (gone, left): (Vec<_>, Vec<_>) = self
            .model
            .waits
            .drain(..)
            .partition(|(_, wait): &(ReplyAddress, Waiting)| wait.who.0 == session);
        self.model.waits = left;
        for holders in self.model.held.values_mut() {
            holders.retain(|who, _| who.0 != session);
        }
        for (origin, _) in gone {
            let expired = Output::LockDone { origin, result: Err(Fault::Expired) };
            let at = all
                .iter()
                .position(|output| *output == expired)
                .expect("LK-2: its waits are answered");
            all.remove(at);
        }
        all.retain(|output| !matches!(output, Output::SessionEnded { .. }));
        out.extend(all);
        self.incarnation += 1;
        let attached = self.leases.attach(
            Time::ZERO,
            ClientId(session as u128),
            self.incarnation,
            &mut Vec::new(),
        );
        self.sessions[session] = attached.expect("attach");
    }

    /// Owners that do not wait unlock everything, until no request waits.
    fn drain(&mut self) {
        for _ in 0..=SESSIONS * OWNERS as usize {
            for who in
                (0..SESSIONS).flat_map(|session| (0..OWNERS).map(move |owner| (session, owner)))
            {
                for file in (0..FILES).filter(|_| !self.model.is_waiting(who)).collect::<Vec<_>>() {
                    let mut out = Vec::new();
                    self.unlock_owner(who, file, &mut out);
                    self.finish(&out);
                }
            }
        }
        assert!(
            self.model.waits.is_empty(),
            "LK-3: these wait for each other: {:?}",
            self.model.waits
        );
        assert_eq!(self.leases.counts().locks, 0);
    }
}

fn family(place: Place) -> LockFamily {
    if place.1 { LockFamily::Flock } else { LockFamily::Posix }
}

fn whole(place: Place, range: (u64, u64)) -> (u64, u64) {
    if place.1 { (0, BYTES - 1) } else { range }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 4000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn locks_follow_the_model(ops in prop::collection::vec(op(), 1..60)) {
        let mut world = World::new();
        for op in &ops {
            world.apply(op);
        }
        world.drain();
    }
}

const POSIX: Place = (0, false);

fn lock(who: Who, range: (u64, u64), exclusive: bool, wait: bool) -> Op {
    Op::Lock { who, place: POSIX, range, exclusive, wait }
}

fn run(ops: &[Op]) -> World {
    let mut world = World::new();
    ops.iter().for_each(|op| world.apply(op));
    world
}

#[test]
fn a_grant_that_downgrades_its_owner_lets_waiters_through() {
    let (a, b, c) = ((0, 0), (1, 0), (2, 0));
    let exclusive = [lock(b, (0, 2), true, false), lock(a, (3, 3), true, false)];
    // c waits for a and b; a's request behind it shares byte 3, and c, which waits for a, does not
    // stop it.
    let waits = [lock(c, (0, 3), false, true), lock(a, (0, 3), false, true)];
    let mut world = run(&[exclusive, waits].concat());
    assert!(world.model.is_waiting(c) && world.model.is_waiting(a));
    world.apply(&Op::Unlock { who: b, place: POSIX, range: (0, 7) });
    assert!(!world.model.is_waiting(c) && !world.model.is_waiting(a));
}

#[test]
fn lk3_a_reader_queues_behind_a_writer_unless_it_blocks_it() {
    let (a, b, c) = ((0, 0), (1, 0), (2, 0));
    let mut world = run(&[
        lock(a, (0, 0), false, false),
        lock(b, (0, 1), true, true),
        lock(c, (0, 0), false, true),
    ]);
    assert!(world.model.is_waiting(c), "LK-3: c would overtake b");
    world.apply(&lock(a, (0, 1), false, true));
    assert!(!world.model.is_waiting(a), "b waits for a already");
}

#[test]
fn lk3_a_queued_request_passes_one_that_comes_to_depend_on_it() {
    let (a, b, c) = ((0, 0), (1, 0), (2, 0));
    // b waits for a; c, which has byte 7, is queued behind b. Then a requests byte 7.
    let setup =
        [lock(a, (0, 0), false, false), lock(c, (7, 7), true, false), lock(b, (0, 1), true, true)];
    let mut world = run(&[&setup[..], &[lock(c, (0, 0), false, true)]].concat());
    assert!(world.model.is_waiting(c));
    world.apply(&lock(a, (7, 7), true, true));
    assert!(world.model.is_waiting(a) && !world.model.is_waiting(c));
}

#[test]
fn two_that_upgrade_are_a_deadlock_for_posix_and_none_for_flock() {
    let (a, b) = ((0, 0), (1, 0));
    let share =
        [lock(a, (0, 3), false, false), lock(b, (0, 3), false, false), lock(a, (0, 3), true, true)];
    let mut world = run(&share);
    world.apply(&lock(b, (0, 3), true, true)); // The model expects the refusal.
    assert!(world.model.is_waiting(a) && !world.model.is_waiting(b));
    let (a, b, place) = ((0, 2), (1, 2), (0, true));
    let flock = |who, exclusive| Op::Lock { who, place, range: (0, 7), exclusive, wait: true };
    let world = run(&[flock(a, false), flock(b, false), flock(a, true), flock(b, true)]);
    assert!(
        world.model.is_waiting(a) && !world.model.is_waiting(b),
        "a gave its shared lock up to wait, so b is alone"
    );
}
