//! Delegations with many threads at once: no call waits for ever, and each look-up sees all that
//! was answered before it began (DE-1, DE-2).
//!
//! Each thread is a client. Under a delegation it answers changes of the directory itself,
//! publishes at once (out of band) the version that this made, and sends the changes some time
//! later; a look-up that begins after that must return at least that version.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Ground, Rig, name};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{
    Answer, BreakReason, Call, Caller, CreateHow, DataVersion, Fault, Fid, NewKind, ReplyAddress,
    SessionId, Time, Timestamp, VnodeSlots,
};
use vice::{Effect, Execution, Vice};

const ROOT: Caller = Caller::ROOT;
const THREADS: usize = 5;
const DIRS: usize = 3;
const TURNS: usize = 8000;

struct Crowd<'a> {
    vice: &'a Vice,
    sessions: Vec<SessionId>,
    dirs: Vec<Fid>,
    /// Milliseconds; advances with each call, so that quiet directories become available again.
    clock: AtomicU64,
    replies: Mutex<BTreeMap<(SessionId, u64), Result<Answer, Fault>>>,
    recalled: Mutex<BTreeMap<SessionId, BTreeSet<Fid>>>,
    /// The newest published version of each directory.
    published: Vec<AtomicU64>,
}

#[derive(Default)]
struct Counts {
    delegated: u64,
    own: u64,
    recalls: u64,
    looks: u64,
}

/// One client thread.
struct Client<'a> {
    crowd: &'a Crowd<'a>,
    number: usize,
    requests: u64,
    rng: SmallRng,
    /// Of each directory that it has: slots, the version, and unsent changes.
    has: BTreeMap<Fid, (VnodeSlots, DataVersion, Vec<Call>)>,
    counts: Counts,
}

impl Crowd<'_> {
    fn now(&self) -> Time {
        Time::from_start(Duration::from_millis(200_000 + self.clock.load(Ordering::SeqCst)))
    }

    fn deliver(&self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Reply { origin, result, .. } => {
                    let before = self
                        .replies
                        .lock()
                        .unwrap()
                        .insert((origin.session, origin.request), result);
                    assert!(before.is_none(), "answered twice");
                }
                Effect::Executed { .. } => {}
                Effect::Break { to, id, items } => {
                    let recalls = items.iter().filter(|item| item.reason == BreakReason::Recall);
                    self.recalled
                        .lock()
                        .unwrap()
                        .entry(to)
                        .or_default()
                        .extend(recalls.map(|item| item.fid));
                    let mut out = Vec::new();
                    self.vice.ack(self.now(), to, id, &[], &mut out);
                    self.deliver(out);
                }
                Effect::SessionEnded(_) => panic!("no session ends"),
            }
        }
    }
}

impl Client<'_> {
    fn start(&mut self, slot: u32, call: Call) -> (SessionId, u64) {
        self.requests += 1;
        let session = self.crowd.sessions[self.number];
        let origin = ReplyAddress { session, slot, request: self.requests };
        self.crowd.clock.fetch_add(15, Ordering::SeqCst);
        let mut out = Vec::new();
        self.crowd.vice.perform(
            Execution::new(self.crowd.now(), Timestamp::new(5, 0), &ROOT, origin),
            call,
            &mut out,
        );
        self.crowd.deliver(out);
        (session, origin.request)
    }

    /// A call that may wait for others; meanwhile this client serves recalls.
    fn call(&mut self, call: Call) -> Result<Answer, Fault> {
        let text = format!("{call:?}");
        let key = self.start(10, call);
        let begun = Instant::now();
        loop {
            if let Some(result) = self.crowd.replies.lock().unwrap().remove(&key) {
                return result;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{text} is stuck");
            self.serve();
            std::thread::yield_now();
        }
    }

    /// A call that waits for no other client.
    fn call_now(&mut self, call: Call) -> Result<Answer, Fault> {
        let key = self.start(11, call);
        self.crowd.replies.lock().unwrap().remove(&key).expect("answered at once")
    }

    fn serve(&mut self) {
        let session = self.crowd.sessions[self.number];
        let wanted = self.crowd.recalled.lock().unwrap().remove(&session).unwrap_or_default();
        for dir in wanted {
            self.counts.recalls += 1;
            self.give_back(dir);
        }
    }

    fn send(&mut self, dir: Fid) {
        let Some((_, version, journal)) = self.has.get_mut(&dir) else { return };
        let (journal, version) = (std::mem::take(journal), *version);
        for (unsent, call) in (0..journal.len() as u64).rev().zip(journal) {
            let Ok(Answer::Made { dir: status, .. }) = self.call_now(call) else { panic!("DE-4") };
            assert_eq!(status.data_version.raised(unsent), version, "DE-5");
        }
    }

    fn give_back(&mut self, dir: Fid) {
        self.send(dir);
        self.has.remove(&dir);
        assert_eq!(self.call_now(Call::Return { fids: vec![dir] }), Ok(Answer::Done));
    }

    fn change(&mut self, at: usize) {
        let dir = self.crowd.dirs[at];
        let called = name(format!("{}-{}-{}", self.number, self.requests, self.counts.own));
        let make = Call::Make {
            dir,
            name: called,
            kind: NewKind::File,
            mode: 0o600,
            how: CreateHow::Guarded,
        };
        let Some((slots, version, journal)) =
            self.has.get_mut(&dir).filter(|(slots, ..)| slots.count > 0)
        else {
            return match self.call(make) {
                Ok(Answer::Made { dir: status, .. }) => {
                    self.crowd.published[at].fetch_max(status.data_version.0, Ordering::SeqCst);
                }
                other => panic!("a new name: {other:?}"),
            };
        };
        journal.push(Call::Delegated {
            at: Timestamp::new(5, 0),
            slot: slots.first,
            call: Box::new(make),
        });
        slots.take().unwrap();
        *version = version.next();
        self.counts.own += 1;
        self.crowd.published[at].fetch_max(version.0, Ordering::SeqCst);
    }

    fn look(&mut self, at: usize) {
        let dir = self.crowd.dirs[at];
        self.send(dir);
        let published = DataVersion(self.crowd.published[at].load(Ordering::SeqCst));
        let Ok(Answer::Status(status)) = self.call(Call::GetStatus { fid: dir }) else {
            panic!("a directory")
        };
        assert!(
            status.data_version >= published,
            "DE-2: {:?} is seen, {published:?} was published",
            status.data_version
        );
        self.counts.looks += 1;
    }

    fn work(mut self) -> Counts {
        for _ in 0..TURNS {
            self.serve();
            let at = self.rng.random_range(0..DIRS);
            let dir = self.crowd.dirs[at];
            match self.rng.random_range(0..20) {
                0..8 => (0..self.rng.random_range(1..6)).for_each(|_| self.change(at)),
                8..12 => match self.call(Call::Delegate { fid: dir }) {
                    // A delegation that is recalled already is returned in the next turn.
                    Ok(Answer::Delegation { status, slots }) => {
                        self.counts.delegated += 1;
                        let has =
                            self.has.entry(dir).or_insert((slots, status.data_version, Vec::new()));
                        has.0 = slots;
                    }
                    Err(Fault::Busy) => {}
                    other => panic!("{other:?}"),
                },
                12 => self.give_back(dir),
                13..16 => self.send(dir),
                16..18 if !self.has.is_empty() => {}
                _ => self.look(at),
            }
        }
        for dir in self.crowd.dirs.clone() {
            self.give_back(dir);
        }
        self.counts
    }
}

#[test]
fn nobody_sees_the_past_and_nobody_waits_for_ever() {
    let mut rig = Rig::new(Ground::memory(), THREADS);
    let root = rig.root();
    let dirs: Vec<Fid> =
        (0..DIRS).map(|number| rig.directory(root, &format!("d{number}"))).collect();
    let crowd = Crowd {
        vice: rig.vice(),
        sessions: rig.clients.iter().map(|client| client.session).collect(),
        dirs,
        clock: AtomicU64::new(0),
        replies: Mutex::default(),
        recalled: Mutex::default(),
        published: (0..DIRS).map(|_| AtomicU64::new(0)).collect(),
    };
    let counts: Vec<Counts> = std::thread::scope(|scope| {
        let client = |number: usize| Client {
            crowd: &crowd,
            number,
            requests: 0,
            rng: SmallRng::seed_from_u64(number as u64),
            has: BTreeMap::new(),
            counts: Counts::default(),
        };
        let threads: Vec<_> =
            (0..THREADS).map(|number| scope.spawn(move || client(number).work())).collect();
        // A thread that has ended serves no recalls, but has returned everything.
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let sum = |of: fn(&Counts) -> u64| counts.iter().map(of).sum::<u64>();
    let all = [sum(|c| c.delegated), sum(|c| c.own), sum(|c| c.recalls), sum(|c| c.looks)];
    println!("delegated, own changes, recalls, looks: {all:?}");
    assert!(all.iter().all(|count| *count > 50), "too little happened: {all:?}");
}
