//! Anonymous sessions: no change waits for them, and none of their clients answers from its cache
//! with stale data.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use lease::{
    AnonymousConfig, AttachError, CallStart, EndReason, Holder, LeaseConfig, Leases, LockOutcome,
    LockRequest, Output, PassesBroken, RenewalOutcome,
};
use types::{
    BreakId, BreakItem, BreakReason, ByteRange, ClientId, Fault, Fid, Host, LockFamily, LockMode,
    LockOwner, ReplyAddress, SessionId, Time,
};

fn at(millis: u64) -> Time {
    Time::from_start(Duration::from_millis(millis))
}

fn leases(config: LeaseConfig) -> Leases {
    Leases::new(config, None, SessionId(1), at(0))
}

fn changed(fid: Fid) -> [BreakItem; 1] {
    [BreakItem { fid, reason: BreakReason::Data, name: None }]
}

fn fid(number: u64) -> Fid {
    Fid::new(1, 2 * number, 1)
}

fn breaks_to(session: SessionId, out: &[Output]) -> Vec<(BreakId, Vec<BreakItem>)> {
    let to = |output: &Output| match output {
        Output::Break { to, id, items } if *to == session => Some((*id, items.clone())),
        _ => None,
    };
    out.iter().filter_map(to).collect()
}

#[test]
fn no_change_waits_for_a_session_of_nobody_before_it_is_proved() {
    let (mut leases, mut out) = (leases(LeaseConfig::default()), Vec::new());
    let anonymous = leases.attach_anonymous(at(0), ClientId(1), 1, &mut out).unwrap();
    let user = leases.attach(at(0), ClientId(2), 1, &mut out).unwrap();
    assert_eq!(leases.renew(at(1), anonymous), RenewalOutcome::Withheld, "it has no lease");
    leases.promise(at(1), anonymous, fid(1), false, &mut out);
    assert_eq!(
        leases.break_promises(at(2), &changed(fid(1)), user, &mut out),
        None,
        "nothing to wait for"
    );
    let sent = breaks_to(anonymous, &out);
    assert_eq!(sent.len(), 1, "it gets the break all the same");

    leases.prove(at(3), anonymous, &mut out).unwrap();
    assert_eq!(
        leases.renew(at(4), anonymous),
        RenewalOutcome::Withheld,
        "its client may not have the break yet"
    );
    leases.promise(at(4), anonymous, fid(2), false, &mut out);
    assert!(
        leases.break_promises(at(5), &changed(fid(2)), user, &mut out).is_some(),
        "it is a user's now"
    );
    leases.ack(anonymous, sent[0].0, &[], &mut out);
    assert_eq!(leases.renew(at(7), anonymous), RenewalOutcome::Renewed, "what it has is good");
    assert_eq!(leases.counts().anonymous_sessions, 0);
}

#[test]
fn a_session_of_nobody_lives_as_long_as_it_is_heard_of() {
    let (mut leases, mut out) = (leases(LeaseConfig::default()), Vec::new());
    let anonymous = leases.attach_anonymous(at(0), ClientId(1), 1, &mut out).unwrap();
    for second in 1..100 {
        leases.renew(at(second * 1000), anonymous);
        leases.tick(at(second * 1000), &mut out);
    }
    assert!(leases.sessions().has(anonymous));
    leases.tick(at(99_000 + 16_001), &mut out);
    assert!(!leases.sessions().has(anonymous));
}

#[test]
fn a_session_that_never_acknowledges_early_breaks_is_ended() {
    let (mut leases, mut out) = (leases(LeaseConfig::default()), Vec::new());
    let session = leases.attach_anonymous(at(0), ClientId(1), 1, &mut out).unwrap();
    leases.promise(at(0), session, fid(1), false, &mut out);
    leases.break_promises(at(1), &changed(fid(1)), SessionId(0), &mut out);
    leases.prove(at(2), session, &mut out).unwrap();
    for second in 1..40 {
        leases.renew(at(second * 1000), session);
        leases.tick(at(second * 1000), &mut out);
    }
    assert!(!leases.sessions().has(session));
}

#[test]
fn nobody_ends_no_session_of_a_user_with_a_name_alone() {
    let (mut leases, mut out) = (leases(LeaseConfig::default()), Vec::new());
    let user = leases.attach(at(0), ClientId(1), 5, &mut out).unwrap();
    let impostor = leases.attach_anonymous(at(1), ClientId(1), 9, &mut out).unwrap();
    assert!(leases.sessions().has(user));
    let again = leases.attach(at(2), ClientId(1), 5, &mut out).unwrap();
    assert!(leases.sessions().has(again), "nor is its next attach refused");
    let late = leases.attach_anonymous(at(3), ClientId(1), 4, &mut out);
    assert_eq!(late, Err(AttachError::OldIncarnation { client: ClientId(1), newest: 5 }), "EO-2");
    // The same client's next incarnation, with a token.
    leases.prove(at(4), impostor, &mut out).unwrap();
    assert!(!leases.sessions().has(user) && !leases.sessions().has(again), "EO-2");
}

#[test]
fn an_older_life_that_is_proved_late_is_refused() {
    let (mut leases, mut out) = (leases(LeaseConfig::default()), Vec::new());
    let older = leases.attach_anonymous(at(0), ClientId(1), 1, &mut out).unwrap();
    leases.attach(at(1), ClientId(1), 2, &mut out).unwrap();
    assert!(leases.prove(at(2), older, &mut out).is_err(), "EO-2");
    assert!(!leases.sessions().has(older));
}

#[test]
fn what_one_session_has_too_much_of_it_loses_itself() {
    let stranger = AnonymousConfig {
        promises_max: 20,
        locks_max: 3,
        holds_max: 4,
        ..AnonymousConfig::default()
    };
    let config = LeaseConfig { stranger, promises_per_session_max: 100, ..LeaseConfig::default() };
    let (mut leases, mut out) = (leases(config), Vec::new());
    let user = leases.attach(at(0), ClientId(1), 1, &mut out).unwrap();
    let anonymous = leases.attach_anonymous(at(0), ClientId(2), 1, &mut out).unwrap();
    let other = leases.attach(at(0), ClientId(3), 1, &mut out).unwrap();
    for (session, count) in [(other, 50), (anonymous, 1000), (user, 1000)] {
        for number in 0..count {
            leases.promise(at(1), session, fid(number), false, &mut out);
        }
    }
    assert!(
        (0..50).all(|number| leases.promises().has(other, fid(number))),
        "others keep what they have"
    );
    let has =
        |session| (0..1000).filter(|number| leases.promises().has(session, fid(*number))).count();
    assert!(
        has(anonymous) <= 20 && has(user) <= 100 && has(user) > 80,
        "{} {}",
        has(anonymous),
        has(user)
    );
    assert!(
        leases.promises().has(anonymous, fid(999)) && leases.promises().has(user, fid(999)),
        "the oldest go"
    );
    assert!(leases.counts().limits_met.sessions > 0);

    for number in 0..4 {
        leases.hold(anonymous, fid(number)).unwrap();
    }
    assert_eq!(leases.hold(anonymous, fid(9)), Err(Fault::Busy));
    assert_eq!(leases.hold(user, fid(9)), Ok(()));
    let lock = |leases: &mut Leases, session: SessionId, number: u64| {
        let range = ByteRange { start: 0, end: 0 };
        let (owner, family, mode) = (LockOwner(number), LockFamily::Posix, LockMode::Shared);
        let request = LockRequest {
            fid: fid(1),
            session,
            owner,
            pid: 1,
            family,
            range,
            mode,
            passes: PassesBroken::Nothing,
        };
        let origin = ReplyAddress { session, slot: 0, request: number };
        leases.lock(origin, &request, true, false, &mut Vec::new())
    };
    for number in 0..3 {
        assert_eq!(lock(&mut leases, anonymous, number), LockOutcome::Granted);
    }
    assert_eq!(lock(&mut leases, anonymous, 9), LockOutcome::Refused(Fault::Busy));
    assert_eq!(lock(&mut leases, user, 9), LockOutcome::Granted);
    assert_eq!(leases.delegate(at(3), anonymous, Fid::new(1, 9, 1), &mut out), Err(Fault::Busy));
    assert_eq!((leases.counts().limits_met.holds, leases.counts().limits_met.locks), (1, 1));
}

/// Numbers that look random (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// The server and one client, with messages that take time. Others make the `changes`.
struct World {
    leases: Leases,
    holder: Holder,
    session: SessionId,
    versions: HashMap<Fid, u64>,
    cache: HashMap<Fid, u64>,
    /// Messages under way: breaks; answers; acknowledgements.
    breaks: VecDeque<(BreakId, Vec<BreakItem>)>,
    answers: VecDeque<(Fid, u64, CallStart)>,
    acks: VecDeque<BreakId>,
    now: u64,
}

impl World {
    fn carry(&mut self, out: &[Output]) {
        self.breaks.extend(breaks_to(self.session, out));
    }

    fn step(&mut self, random: &mut Dice) {
        self.now += random.below(3);
        let now = at(self.now);
        let mut out = Vec::new();
        let file = fid(random.below(4));
        match random.below(100) {
            0..30 => {
                let snapshot = self.holder.begin();
                self.leases.promise(now, self.session, file, false, &mut out);
                self.answers.push_back((
                    file,
                    self.versions.get(&file).copied().unwrap_or(0),
                    snapshot,
                ));
            }
            30..55 => {
                *self.versions.entry(file).or_default() += 1;
                if self.leases.break_promises(now, &changed(file), SessionId(0), &mut out).is_some()
                {
                    // The change is not acknowledged before this client has the break: until then
                    // it does not count.
                    self.carry(&std::mem::take(&mut out));
                    while self.receive() {}
                    self.settle_acks();
                }
            }
            55..70 => {
                if let Some((file, version, snapshot)) = self.answers.pop_front()
                    && self.holder.promised(file, snapshot)
                {
                    self.cache.insert(file, version);
                }
            }
            70..80 => {
                self.receive();
            }
            80..90 => self.settle_acks(),
            90..97 => {
                if self.leases.renew(now, self.session) == RenewalOutcome::Renewed {
                    self.holder.on_renewed(now);
                }
            }
            _ => self.leases.prove(now, self.session, &mut out).unwrap(),
        }
        self.carry(&out);
        if self.holder.trusted(now) {
            for (file, version) in &self.cache {
                let is = self.versions.get(file).copied().unwrap_or(0);
                assert_eq!(
                    *version, is,
                    "CB-1: {file} is shown as it was, by a client with a lease"
                );
            }
        }
    }

    fn receive(&mut self) -> bool {
        let Some((id, items)) = self.breaks.pop_front() else { return false };
        self.holder.on_break(&items);
        for item in &items {
            self.cache.remove(&item.fid);
        }
        self.acks.push_back(id);
        true
    }

    fn settle_acks(&mut self) {
        let mut out = Vec::new();
        while let Some(id) = self.acks.pop_front() {
            self.leases.ack(self.session, id, &[], &mut out);
        }
        self.carry(&out);
    }
}

#[test]
fn cb1_a_client_that_becomes_a_users_shows_nothing_old() {
    for seed in 0..3000 {
        let mut random = Dice(seed + 1);
        let stranger = AnonymousConfig { promises_max: 3, ..AnonymousConfig::default() };
        let mut leases = leases(LeaseConfig { stranger, ..LeaseConfig::default() });
        let session = leases.attach_anonymous(at(0), ClientId(1), 1, &mut Vec::new()).unwrap();
        let mut world = World {
            leases,
            holder: Holder::default(),
            session,
            versions: HashMap::new(),
            cache: HashMap::new(),
            breaks: VecDeque::new(),
            answers: VecDeque::new(),
            acks: VecDeque::new(),
            now: 0,
        };
        (0..200).for_each(|_| world.step(&mut random));
    }
}

fn lock_of(session: SessionId, fid: Fid, start: u64) -> (ReplyAddress, LockRequest) {
    let (owner, family, mode) = (LockOwner(start), LockFamily::Posix, LockMode::Exclusive);
    let range = ByteRange { start, end: start };
    let origin = ReplyAddress { session, slot: 0, request: start };
    (
        origin,
        LockRequest {
            fid,
            session,
            owner,
            pid: 1,
            family,
            range,
            mode,
            passes: PassesBroken::Nothing,
        },
    )
}

#[test]
fn h4_a_host_has_a_share_of_each_table() {
    let config = LeaseConfig {
        promises_per_host_max: 256,
        locks_per_host_max: 256,
        holds_per_host_max: 256,
        ..LeaseConfig::default()
    };
    let (mut leases, mut out) = (leases(config), Vec::new());
    let host = Host::LocalUser(4711);
    let attach = |host, leases: &mut Leases, out: &mut Vec<Output>| {
        let client = ClientId(leases.counts().sessions as u128 + 1);
        let session = leases.attach(at(0), client, 1, out).unwrap();
        leases.sessions_mut().set_host(session, host);
        session
    };
    let ours: Vec<_> = (0..4).map(|_| attach(Some(host), &mut leases, &mut out)).collect();
    let (other, own) = (
        attach(Some(Host::LocalUser(4712)), &mut leases, &mut out),
        attach(None, &mut leases, &mut out),
    );
    let lock = |session, start, leases: &mut Leases, out: &mut Vec<Output>| {
        let (origin, request) = lock_of(session, fid(1), start);
        leases.lock(origin, &request, false, false, out)
    };
    let mut held = [0; 3];
    for number in 0..1000_u64 {
        let session = ours[usize::try_from(number).unwrap() % ours.len()];
        held[0] +=
            usize::from(lock(session, 2 * number, &mut leases, &mut out) == LockOutcome::Granted);
        held[1] += usize::from(leases.hold(session, fid(number)).is_ok());
        leases.promise(at(1), session, fid(number), false, &mut out);
    }
    held[2] = leases.counts().promises;
    // Each session may exceed the host's share by up to 64.
    assert!(held.iter().all(|count| (256..=256 + 4 * 64).contains(count)), "{held:?}");
    assert!(leases.counts().limits_met.hosts > 0 && leases.counts().limits_met.holds > 0);
    // Other hosts and the server's own machine have room.
    for session in [other, own] {
        assert_eq!(lock(session, 5001 + session.0, &mut leases, &mut out), LockOutcome::Granted);
        assert_eq!(leases.hold(session, fid(5000)), Ok(()));
    }
    // The end of a session frees its promises.
    leases.end(at(2), ours[0], EndReason::Detached, &mut out);
    leases.end(at(2), ours[1], EndReason::Detached, &mut out);
    let later = attach(Some(host), &mut leases, &mut out);
    assert_eq!(leases.hold(later, fid(6000)), Ok(()));
}

#[test]
fn h4_nobody_waits_in_a_long_queue_for_a_lock() {
    let config = LeaseConfig {
        stranger: AnonymousConfig { lock_queue_max: 3, ..AnonymousConfig::default() },
        ..LeaseConfig::default()
    };
    let (mut leases, mut out) = (leases(config), Vec::new());
    let user = leases.attach(at(0), ClientId(1), 1, &mut out).unwrap();
    let (origin, request) = lock_of(user, fid(1), 0);
    assert_eq!(leases.lock(origin, &request, false, false, &mut out), LockOutcome::Granted);
    let wait = |session, owner, leases: &mut Leases, out: &mut Vec<Output>| {
        let (origin, request) = lock_of(session, fid(1), 0);
        let request = LockRequest { owner: LockOwner(owner), ..request };
        leases.lock(ReplyAddress { request: owner, ..origin }, &request, true, false, out)
    };
    for owner in 10..13 {
        let anonymous =
            leases.attach_anonymous(at(0), ClientId(owner.into()), 1, &mut out).unwrap();
        assert_eq!(wait(anonymous, owner, &mut leases, &mut out), LockOutcome::Waiting);
    }
    let anonymous = leases.attach_anonymous(at(0), ClientId(20), 1, &mut out).unwrap();
    assert_eq!(wait(anonymous, 20, &mut leases, &mut out), LockOutcome::Refused(Fault::Busy));
    let other = leases.attach(at(0), ClientId(21), 1, &mut out).unwrap();
    assert_eq!(
        wait(other, 21, &mut leases, &mut out),
        LockOutcome::Waiting,
        "a user waits in any queue"
    );
}
