//! The lease machine's delegations beside a small model: random grants, finds, recalls, returns and
//! ends of sessions. After each step no session is promised a file that another covers (DE-1),
//! every recall is sent once and again after a resume, and every waiting call gets its signal
//! (DE-2).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lease::{
    EndReason, KnownSession, LeaseConfig, Leases, Listed, Output, Promised, RenewalOutcome, Restart,
};
use proptest::prelude::*;
use types::{BreakId, BreakReason, ClientId, Fault, Fid, SessionId, Time};

const CLIENTS: usize = 3;
const DIRS: u64 = 4;
const FILES: u64 = 5;

fn dir(number: u64) -> Fid {
    Fid::new(1, 1 + 2 * (number % DIRS), 1)
}

fn file(number: u64) -> Fid {
    Fid::new(1, 2 + 2 * (number % FILES), 1)
}

#[derive(Clone, Debug)]
enum Step {
    Delegate(usize, u64),
    Promise(usize, bool, u64),
    Found(usize, u64, u64),
    List(usize, u64, u64),
    Make(usize, u64, bool),
    Return(usize, u64),
    Forget(bool, u64),
    Acknowledge(usize),
    Leave(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0..CLIENTS;
    let number = 0..20u64;
    prop_oneof![
        3 => (who.clone(), number.clone()).prop_map(|(who, at)| Step::Delegate(who, at)),
        3 => (who.clone(), any::<bool>(), number.clone())
            .prop_map(|(who, is_dir, at)| Step::Promise(who, is_dir, at)),
        3 => (who.clone(), number.clone(), number.clone())
            .prop_map(|(who, at, child)| Step::Found(who, at, child)),
        1 => (who.clone(), number.clone(), number.clone())
            .prop_map(|(who, at, child)| Step::List(who, at, child)),
        2 => (who.clone(), number.clone(), any::<bool>())
            .prop_map(|(who, at, once)| Step::Make(who, at, once)),
        2 => (who.clone(), number.clone()).prop_map(|(who, at)| Step::Return(who, at)),
        1 => (any::<bool>(), number).prop_map(|(is_dir, at)| Step::Forget(is_dir, at)),
        2 => who.clone().prop_map(Step::Acknowledge),
        1 => who.prop_map(Step::Leave),
        2 => (0..7u64).prop_map(Step::Wait),
    ]
}

/// The expected state.
struct World {
    leases: Leases,
    now: Time,
    sessions: Vec<SessionId>,
    incarnations: Vec<u64>,
    /// The session of each delegated directory, and its children.
    dirs: BTreeMap<Fid, (SessionId, BTreeSet<Fid>)>,
    recalled: BTreeSet<Fid>,
    /// Breaks that are not acknowledged.
    pending: BTreeMap<SessionId, Vec<BreakId>>,
    new_files: u64,
}

impl World {
    fn new() -> World {
        let mut leases = Leases::new(LeaseConfig::default(), None, SessionId(1), Time::ZERO);
        let attach = |leases: &mut Leases, who| {
            leases.attach(Time::ZERO, ClientId(who), 1, &mut Vec::new()).unwrap()
        };
        let sessions = (0..CLIENTS as u128).map(|who| attach(&mut leases, who)).collect();
        World {
            leases,
            now: Time::ZERO,
            sessions,
            incarnations: vec![1; CLIENTS],
            dirs: BTreeMap::new(),
            recalled: BTreeSet::new(),
            pending: BTreeMap::new(),
            new_files: 0,
        }
    }

    fn cover(&self, fid: Fid) -> Option<(SessionId, Fid)> {
        let own = self.dirs.get(&fid).map(|(session, _)| (*session, fid));
        let child = || self.dirs.iter().find(|(_, (_, children))| children.contains(&fid));
        own.or_else(|| child().map(|(dir, (session, _))| (*session, *dir)))
    }

    /// Compares the outputs with the expected ones: recalled directories and returned ones.
    fn check(&mut self, out: Vec<Output>, wanted_back: &[Fid], back: &[Fid]) {
        let (mut recalls, mut over) = (Vec::new(), Vec::new());
        for output in out {
            match output {
                Output::Break { to, id, items } => {
                    for item in items.iter().filter(|item| item.reason == BreakReason::Recall) {
                        assert_eq!(
                            self.dirs[&item.fid].0, to,
                            "the session with the directory gets the recall"
                        );
                        recalls.push(item.fid);
                    }
                    self.pending.entry(to).or_default().push(id);
                }
                Output::DelegationsOver(dirs) => over.extend(dirs),
                Output::TicketDone(_) | Output::SessionEnded { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((recalls.as_slice(), over.as_slice()), (wanted_back, back));
        self.recalled.extend(recalls);
        for fid in over {
            self.dirs.remove(&fid);
            self.recalled.remove(&fid);
        }
        let counts = self.leases.counts();
        let children: usize = self.dirs.values().map(|(_, children)| children.len()).sum();
        assert_eq!((counts.delegations, counts.delegated_children), (self.dirs.len(), children));
        for fid in (0..DIRS).map(dir).chain((0..FILES).map(file)) {
            let Some((owner, _)) = self.cover(fid) else { continue };
            let others = self.sessions.iter().filter(|session| **session != owner);
            assert!(
                !self.leases.promises().is_known_elsewhere(fid, owner),
                "DE-1: {fid} is {owner:?}'s"
            );
            assert!(
                others.into_iter().all(|session| !self.leases.delegations().covers(*session, fid)),
                "DE-1"
            );
        }
    }

    fn run(&mut self, step: &Step) {
        let mut out = Vec::new();
        let (mut wanted_back, mut back) = (Vec::new(), Vec::new());
        let recall =
            |world: &World, dir| if world.recalled.contains(&dir) { vec![] } else { vec![dir] };
        match *step {
            Step::Delegate(who, at) => {
                let session = self.sessions[who];
                let others = self.leases.promises().is_known_elsewhere(dir(at), session);
                let result = self.leases.delegate(self.now, session, dir(at), &mut out);
                match result {
                    Ok(()) => {
                        assert!(
                            !others
                                && self.cover(dir(at)).is_none_or(|(owner, _)| owner == session),
                            "DE-1"
                        );
                        assert!(!self.recalled.contains(&dir(at)), "it is wanted back");
                        for (_, children) in self.dirs.values_mut() {
                            children.remove(&dir(at));
                        }
                        self.dirs.entry(dir(at)).or_insert((session, BTreeSet::new()));
                    }
                    Err(fault) => assert_eq!(fault, Fault::Busy),
                }
            }
            Step::Promise(who, is_dir, at) => {
                let fid = if is_dir { dir(at) } else { file(at) };
                let result =
                    self.leases.promise(self.now, self.sessions[who], fid, false, &mut out);
                match self.cover(fid).filter(|(owner, _)| *owner != self.sessions[who]) {
                    Some((_, dir)) => {
                        assert_eq!(result, Promised::Covered(dir));
                        wanted_back = recall(self, dir);
                    }
                    None => assert_eq!(result, Promised::Yes),
                }
            }
            Step::Found(who, at, child) => {
                let (session, dir, fid) = (self.sessions[who], dir(at), file(child));
                let ours = self.dirs.get(&dir).is_some_and(|(owner, _)| *owner == session);
                let free = self.cover(fid).is_none()
                    && !self.leases.promises().is_known_elsewhere(fid, session);
                let known =
                    self.dirs.get(&dir).is_some_and(|(_, children)| children.contains(&fid));
                let wanted = ours && (known || (free && !self.recalled.contains(&dir)));
                // As a look-up: the promise comes first.
                if self.leases.promise(self.now, session, fid, false, &mut out) != Promised::Yes {
                    wanted_back = self.cover(fid).map_or(vec![], |(_, dir)| recall(self, dir));
                } else {
                    assert_eq!(self.leases.found(session, dir, fid), wanted);
                    if wanted {
                        self.dirs.get_mut(&dir).unwrap().1.insert(fid);
                    }
                }
            }
            Step::List(who, at, child) => {
                let (session, dir, fid) = (self.sessions[who], dir(at), file(child));
                let covered = self.cover(fid).is_some_and(|(owner, _)| owner != session);
                let listed = self.leases.list(self.now, session, dir, fid, &mut out);
                assert_eq!(listed == Listed::Covered, covered, "and nothing is recalled");
                if listed == (Listed::Promised { sole: true }) {
                    assert_eq!(self.dirs[&dir].0, session);
                    self.dirs.get_mut(&dir).unwrap().1.insert(fid);
                }
            }
            Step::Make(who, at, once) => {
                self.new_files += 1;
                let (session, dir) = (self.sessions[who], dir(at));
                let fid = Fid::new(1, 1000 + 2 * self.new_files + u64::from(once), 1);
                self.leases.adopt(self.now, session, dir, fid, once, &mut out);
                if self.dirs.get(&dir).is_some_and(|(owner, _)| *owner == session) {
                    if once {
                        self.dirs.insert(fid, (session, BTreeSet::new()));
                    } else {
                        self.dirs.get_mut(&dir).unwrap().1.insert(fid);
                    }
                }
                assert_eq!(
                    self.leases.delegations().covers(session, fid),
                    self.cover(fid).is_some()
                );
            }
            Step::Return(who, at) => {
                let session = self.sessions[who];
                let ours = self.dirs.get(&dir(at)).is_some_and(|(owner, _)| *owner == session);
                self.leases.delegations_mut().give_back(self.now, session, &[dir(at)], &mut out);
                back.extend(ours.then(|| dir(at)));
            }
            Step::Forget(is_dir, at) => {
                let fid = if is_dir { dir(at) } else { file(at) };
                self.leases.forget_file(self.now, fid, &mut out);
                for (_, children) in self.dirs.values_mut() {
                    children.remove(&fid);
                }
                let gone = self.dirs.get(&fid).is_some_and(|(_, children)| children.is_empty());
                back.extend(gone.then_some(fid));
            }
            Step::Acknowledge(who) => {
                let session = self.sessions[who];
                for id in self.pending.remove(&session).unwrap_or_default() {
                    let held: Vec<Fid> = (0..DIRS).map(dir).collect();
                    self.leases.ack(session, id, &held, &mut out);
                }
            }
            Step::Leave(who) => {
                back = self
                    .dirs
                    .iter()
                    .filter(|(_, (owner, _))| *owner == self.sessions[who])
                    .map(|(dir, _)| *dir)
                    .collect();
                self.pending.remove(&self.sessions[who]);
                self.incarnations[who] += 1;
                let (client, incarnation) = (ClientId(who as u128), self.incarnations[who]);
                self.sessions[who] =
                    self.leases.attach(self.now, client, incarnation, &mut out).unwrap();
                assert!(out.iter().any(|output| matches!(
                    output,
                    Output::SessionEnded { reason: EndReason::Replaced, .. }
                )));
            }
            Step::Wait(seconds) => self.now = self.now + Duration::from_secs(seconds),
        }
        self.check(out, &wanted_back, &back);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn nobody_is_promised_what_another_covers(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in &steps {
            world.run(step);
        }
    }
}

fn two() -> (Leases, SessionId, SessionId) {
    let mut leases = Leases::new(LeaseConfig::default(), None, SessionId(1), Time::ZERO);
    let mut out = Vec::new();
    let one = leases.attach(Time::ZERO, ClientId(1), 1, &mut out).unwrap();
    let other = leases.attach(Time::ZERO, ClientId(2), 1, &mut out).unwrap();
    (leases, one, other)
}

#[test]
fn a_recall_is_sent_again_on_resume_and_its_ack_holds_no_file() {
    let (mut leases, one, other) = two();
    let mut out = Vec::new();
    leases.delegate(Time::ZERO, one, dir(0), &mut out).unwrap();
    assert_eq!(out, []);
    assert_eq!(
        leases.promise(Time::ZERO, other, dir(0), false, &mut out),
        Promised::Covered(dir(0))
    );
    let said = std::mem::take(&mut out);
    leases.resume(Time::ZERO, one, ClientId(1), 1, &mut out).unwrap();
    assert_eq!(out, said);
    let Some(Output::Break { id, .. }) = said.first() else { panic!("{said:?}") };
    leases.ack(one, *id, &[dir(0)], &mut out);
    assert!(
        !leases.holds().is_held(dir(0)) && leases.promises().has(one, dir(0)),
        "a recall ends nothing"
    );
    out.clear();
    leases.resume(Time::ZERO, one, ClientId(1), 1, &mut out).unwrap();
    assert_eq!(out, []);
}

#[test]
fn what_is_kept_too_long_costs_the_lease_and_sending_saves_it() {
    let (mut leases, one, other) = two();
    let mut out = Vec::new();
    let at = |secs| Time::from_start(Duration::from_secs(secs));
    leases.delegate(at(0), one, dir(0), &mut out).unwrap();
    leases.promise(at(1), other, dir(0), false, &mut out);
    let Some(Output::Break { id, .. }) = out.first().cloned() else { panic!("{out:?}") };
    leases.ack(one, id, &[], &mut out);
    assert_eq!(leases.renew(at(16), one), RenewalOutcome::Renewed);
    assert_eq!(leases.renew(at(17), one), RenewalOutcome::Withheld);
    leases.delegations_mut().progress(at(17), one);
    assert_eq!(leases.renew(at(32), one), RenewalOutcome::Renewed);
    assert_eq!(leases.renew(at(33), one), RenewalOutcome::Withheld);
    leases.delegations_mut().give_back(at(33), one, &[dir(0)], &mut out);
    assert_eq!(leases.renew(at(99), one), RenewalOutcome::Renewed, "it owes nothing any more");
}

#[test]
fn in_grace_reads_wait_only_for_sessions_with_delegations() {
    let known = |session, delegated| KnownSession {
        session: SessionId(session),
        client: ClientId(session.into()),
        incarnation: 1,
        delegated,
        excluding: false,
    };
    let restart =
        Restart { known: vec![known(1, true), known(2, true), known(3, false)], complete: true };
    let mut leases = Leases::new(LeaseConfig::default(), Some(&restart), SessionId(9), Time::ZERO);
    let may = |leases: &Leases| [1, 2, 3].map(|session| leases.may_read(SessionId(session)));
    assert_eq!(may(&leases), [false, false, false], "each of the two waits for the other");
    assert!(
        leases.reclaims_delegations(SessionId(1)) && !leases.reclaims_delegations(SessionId(3))
    );
    let mut out = Vec::new();
    leases.reclaim_done(Time::ZERO, SessionId(2), &mut out);
    assert_eq!((out.as_slice(), may(&leases)), (&[Output::ReadingAgain][..], [true, false, false]));
    out.clear();
    leases.end(Time::ZERO, SessionId(1), EndReason::Detached, &mut out);
    assert!(
        out.contains(&Output::ReadingAgain)
            && leases.may_read(SessionId(3))
            && !leases.may_change()
    );
    let unknown = Restart { known: Vec::new(), complete: false };
    let leases = Leases::new(LeaseConfig::default(), Some(&unknown), SessionId(9), Time::ZERO);
    assert!(!leases.may_read(SessionId(9)), "an unknown session may have some");
}

#[test]
fn a_full_table_breaks_promises_first_and_then_recalls() {
    let config = LeaseConfig { promises_max: 20, delegated_max: 12, ..LeaseConfig::default() };
    let mut leases = Leases::new(config, None, SessionId(1), Time::ZERO);
    let mut out = Vec::new();
    let one = leases.attach(Time::ZERO, ClientId(1), 1, &mut out).unwrap();
    leases.delegate(Time::ZERO, one, dir(0), &mut out).unwrap();
    for number in 0..10 {
        let fid = Fid::new(1, 100 + 2 * number, 1);
        leases.adopt(Time::ZERO, one, dir(0), fid, false, &mut out);
        leases.promise(Time::ZERO, one, fid, false, &mut out);
    }
    for number in 0..15 {
        leases.promise(Time::ZERO, one, Fid::new(1, 500 + 2 * number, 1), false, &mut out);
    }
    let broken = |out: &[Output]| -> Vec<_> {
        let items = out.iter().filter_map(|output| match output {
            Output::Break { items, .. } => Some(items.clone()),
            _ => None,
        });
        items.flatten().collect()
    };
    let pressed = broken(&out);
    assert!(
        !pressed.is_empty() && pressed.iter().all(|item| item.fid.vnode.0 >= 500),
        "{pressed:?}"
    );
    out.clear();
    for number in 20..23 {
        leases.adopt(Time::ZERO, one, dir(0), Fid::new(1, 100 + 2 * number, 1), false, &mut out);
    }
    assert_eq!(
        broken(&out).iter().map(|item| (item.fid, item.reason)).collect::<Vec<_>>(),
        [(dir(0), BreakReason::Recall)]
    );
}
