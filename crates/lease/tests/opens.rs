//! Random histories of opens against the obvious model, a list of opens; and the rules that need
//! sessions: limits, the grace period, anonymous sessions.

use std::time::Duration;

use lease::{EndReason, KnownSession, LeaseConfig, Leases, OpenRequest, Restart};
use proptest::prelude::*;
use types::{ClientId, DataUse, Fault, Fid, OpenId, SessionId, ShareKey, Time};

const SESSIONS: u64 = 3;

fn at(secs: u64) -> Time {
    Time::from_start(Duration::from_secs(secs))
}

fn fid(number: u64) -> Fid {
    Fid::new(1, 2 * number, 1)
}

fn reads(fid: Fid, session: SessionId, deny: DataUse) -> OpenRequest {
    OpenRequest { fid, session, access: DataUse::Read, deny, key: None }
}

fn fresh(config: LeaseConfig) -> (Leases, Vec<SessionId>) {
    let mut leases = Leases::new(config, None, SessionId(1), at(0));
    let attach = |client| leases.attach(at(0), ClientId(client), 1, &mut Vec::new()).unwrap();
    let sessions = (1..=SESSIONS).map(u128::from).map(attach).collect();
    (leases, sessions)
}

/// The sessions of an earlier server instance, by whether they had opens that exclude others.
fn restarted(excluded: &[bool]) -> Leases {
    let known = |(number, excluding): (usize, &bool)| KnownSession {
        session: SessionId(number as u64 + 1),
        client: ClientId(number as u128),
        incarnation: 1,
        delegated: false,
        excluding: *excluding,
    };
    let known = excluded.iter().enumerate().map(known).collect();
    let restart = Restart { known, complete: true };
    Leases::new(LeaseConfig::default(), Some(&restart), SessionId(20), at(0))
}

#[derive(Clone, Debug)]
enum Step {
    Open(OpenRequest),
    /// Of the open with this place in the model's list, by this session.
    Close(usize, SessionId),
    Downgrade(usize, SessionId, DataUse, DataUse),
    Check(SessionId, Fid, DataUse),
    End(SessionId),
}

fn uses() -> impl Strategy<Value = DataUse> {
    proptest::sample::select(&DataUse::ALL)
}

fn session() -> impl Strategy<Value = SessionId> {
    (1..=SESSIONS).prop_map(SessionId)
}

fn step() -> impl Strategy<Value = Step> {
    let key = prop_oneof![4 => Just(None), 1 => (0..2u8).prop_map(|n| Some(ShareKey([n; 16])))];
    let open = (0..2u64, session(), uses(), uses(), key).prop_map(
        |(number, session, access, deny, key)| {
            Step::Open(OpenRequest { fid: fid(number), session, access, deny, key })
        },
    );
    prop_oneof![
        6 => open,
        3 => (any::<usize>(), session()).prop_map(|(place, who)| Step::Close(place, who)),
        2 => (any::<usize>(), session(), uses(), uses())
            .prop_map(|(place, who, access, deny)| Step::Downgrade(place, who, access, deny)),
        4 => (session(), 0..2u64, uses()).prop_map(|(who, number, uses)| {
            Step::Check(who, fid(number), uses)
        }),
        1 => session().prop_map(Step::End),
    ]
}

/// All opens, in one list.
#[derive(Default)]
struct Model {
    opens: Vec<(OpenId, OpenRequest)>,
}

impl Model {
    fn of(&self, fid: Fid) -> impl Iterator<Item = &OpenRequest> {
        self.opens.iter().map(|(_, open)| open).filter(move |open| open.fid == fid)
    }

    fn judge_open(&self, wanted: &OpenRequest) -> Result<(), Fault> {
        if wanted.access == DataUse::Nothing {
            return Err(Fault::Invalid);
        }
        if self.of(wanted.fid).any(|open| open.key != wanted.key) {
            return Err(Fault::KeyConflict);
        }
        let conflicts =
            |open: &OpenRequest| open.deny.meets(wanted.access) || wanted.deny.meets(open.access);
        if self.of(wanted.fid).any(conflicts) { Err(Fault::ShareConflict) } else { Ok(()) }
    }

    fn judge_use(&self, session: SessionId, fid: Fid, uses: DataUse) -> Result<(), Fault> {
        let has_open = self.of(fid).any(|open| open.session == session);
        if !has_open && self.of(fid).any(|open| open.key.is_some()) {
            return Err(Fault::KeyConflict);
        }
        let denies = |open: &OpenRequest| open.session != session && open.deny.meets(uses);
        if self.of(fid).any(denies) { Err(Fault::ShareConflict) } else { Ok(()) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn sh1_to_sh6_random_histories_obey_the_model(
        steps in proptest::collection::vec(step(), 1..60)
    ) {
        let (mut leases, _) = fresh(LeaseConfig::default());
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Open(request) => {
                    let expected = match leases.sessions().has(request.session) {
                        true => model.judge_open(&request),
                        false => Err(Fault::Expired),
                    };
                    let found = leases.opens().open(&request, false);
                    prop_assert_eq!(found.map(drop), expected, "{:?}", request);
                    model.opens.extend(found.ok().map(|id| (id, request)));
                }
                Step::Close(place, who) => {
                    if model.opens.is_empty() { continue }
                    let place = place % model.opens.len();
                    let (id, open) = model.opens[place];
                    let found = leases.opens().close(who, open.fid, id);
                    let own = open.session == who;
                    prop_assert_eq!(found, if own { Ok(()) } else { Err(Fault::Stale) });
                    if own {
                        model.opens.remove(place);
                    }
                }
                Step::Downgrade(place, who, access, deny) => {
                    if model.opens.is_empty() { continue }
                    let place = place % model.opens.len();
                    let (id, open) = model.opens[place];
                    let found = leases.opens().downgrade(who, open.fid, id, access, deny);
                    let less = access != DataUse::Nothing
                        && open.access.contains(access)
                        && open.deny.contains(deny);
                    let expected = match open.session == who {
                        false => Err(Fault::Stale),
                        true if less => Ok(()),
                        true => Err(Fault::Invalid),
                    };
                    prop_assert_eq!(found, expected);
                    if expected.is_ok() {
                        model.opens[place].1 = OpenRequest { access, deny, ..open };
                    }
                }
                Step::Check(who, fid, uses) => {
                    let expected = model.judge_use(who, fid, uses);
                    prop_assert_eq!(leases.opens().check(who, fid, uses), expected);
                }
                Step::End(who) => {
                    leases.end(at(1), who, EndReason::Detached, &mut Vec::new());
                    model.opens.retain(|(_, open)| open.session != who);
                }
            }
            prop_assert_eq!(leases.counts().opens, model.opens.len());
        }
    }
}

#[test]
fn opens_have_limits_and_sessions_of_nobody_have_none() {
    let config = LeaseConfig { opens_per_session_max: 4, opens_max: 6, ..LeaseConfig::default() };
    let (mut leases, sessions) = fresh(config);
    let open = |leases: &mut Leases, session| {
        leases.opens().open(&reads(fid(1), session, DataUse::Nothing), false)
    };
    let first = open(&mut leases, sessions[0]).unwrap();
    for _ in 0..3 {
        open(&mut leases, sessions[0]).unwrap();
    }
    assert_eq!(open(&mut leases, sessions[0]), Err(Fault::Busy), "of the session");
    for _ in 0..2 {
        open(&mut leases, sessions[1]).unwrap();
    }
    assert_eq!(open(&mut leases, sessions[1]), Err(Fault::Busy), "of all");
    assert_eq!(leases.counts().limits_met.opens, 2);
    leases.opens().close(sessions[0], fid(1), first).unwrap();
    open(&mut leases, sessions[1]).unwrap();
    let nobody = leases.attach_anonymous(at(0), ClientId(9), 1, &mut Vec::new()).unwrap();
    assert_eq!(open(&mut leases, nobody), Err(Fault::AccessDenied));
}

#[test]
fn sh5_only_sessions_from_before_claim_and_only_in_grace() {
    let mut leases = restarted(&[true, true, false]);
    let [one, two, three] = [1, 2, 3].map(SessionId);
    let late = leases.attach(at(0), ClientId(99), 1, &mut Vec::new()).unwrap();
    let denies = |session| reads(fid(1), session, DataUse::Both);
    let plain = |session| reads(fid(1), session, DataUse::Nothing);
    assert_eq!(leases.opens().open(&denies(late), true), Err(Fault::Expired), "it was not there");
    assert_eq!(leases.opens().open(&denies(late), false), Err(Fault::Busy), "grace is not over");
    assert_eq!(
        leases.opens().open(&denies(three), true),
        Err(Fault::Expired),
        "it never had such one"
    );
    leases.opens().open(&reads(fid(2), three, DataUse::Nothing), true).unwrap();
    leases.opens().open(&denies(one), true).unwrap();
    assert_eq!(leases.opens().open(&denies(two), true), Err(Fault::ShareConflict));
    assert_eq!(leases.opens().open(&plain(three), true), Err(Fault::ShareConflict));
    let mut out = Vec::new();
    leases.reclaim_done(at(1), one, &mut out);
    assert_eq!(leases.opens().open(&denies(one), true), Err(Fault::Expired), "its claims are done");
    leases.reclaim_done(at(1), two, &mut out);
    leases.reclaim_done(at(1), three, &mut out);
    assert!(leases.may_change());
    assert_eq!(leases.opens().open(&denies(two), true), Err(Fault::Expired), "grace is over");
    assert_eq!(
        leases.opens().open(&denies(late), false),
        Err(Fault::ShareConflict),
        "the claim holds"
    );
}

#[test]
fn sh5_others_read_when_those_who_may_exclude_them_are_back() {
    let mut leases = restarted(&[true, false]);
    let (one, two) = (SessionId(1), SessionId(2));
    assert!(leases.may_read(one) && !leases.may_read(two));
    leases.reclaim_done(at(1), one, &mut Vec::new());
    assert!(leases.may_read(two) && !leases.may_change());
    assert!(!restarted(&[true, true]).may_read(one), "each waits for the other");
    assert!(restarted(&[false, false]).may_read(one), "there is nothing to claim");
}
