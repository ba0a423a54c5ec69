//! Callers without rights make all calls of the protocol, and learn and change nothing (AC-1,
//! AC-7).
//!
//! Two cells differ only in what such a caller may not see: file contents, attributes, link
//! targets, and names in closed directories. The same calls go to both, from callers without proof,
//! with another user's proof, with an expired token, and through the owner's own session. Each pair
//! of answers and of breaks must be equal: so they cannot contain the difference. Afterwards
//! everything that these callers may not change is compared with its first state.
//!
//! `STRANGER_CALLS` is the number of calls in each world.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{Ground, Rig, VOLUME, name};
use guard::Cps;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use testkit::stranger::{AccessRule, Owner, Places, StrangerCalls, likely_fids};
use types::{
    Answer, AuthLevel, Call, Caller, CreateHow, Fault, Fid, NewKind, PrincipalId, RequestIdentity,
    StatusChange, Timestamp, VnodeNo,
};

const JOE: u32 = 10;
const BOB: u32 = 11;
/// Sessions of joe, and of the callers without rights.
const OWNER: usize = 0;
const STRANGERS: usize = 1;

/// A principal is a uid; there are no groups.
struct ByUid;

impl vice::Principals for ByUid {
    fn cps(&self, caller: &Caller) -> Result<Cps, Fault> {
        let principal = match caller.who.level {
            AuthLevel::Nobody => PrincipalId::ANONYMOUS,
            _ => PrincipalId(caller.uid as i32),
        };
        Ok(Cps::new(principal, caller.who.level, []))
    }
}

fn with(uid: u32, level: AuthLevel) -> Caller {
    let who =
        RequestIdentity { level, principal: PrincipalId(uid as i32), ..RequestIdentity::NOBODY };
    Caller { uid, gid: 100, groups: Some(Box::default()), who }
}

fn joe() -> Caller {
    Caller { gid: 200, ..with(JOE, AuthLevel::Password) }
}

fn strangers() -> Vec<Caller> {
    let ended = RequestIdentity { ends: Some(Timestamp::new(1, 0)), ..joe().who };
    vec![
        Caller { who: RequestIdentity::NOBODY, ..with(65534, AuthLevel::Nobody) },
        Caller { who: RequestIdentity::NOBODY, ..with(0, AuthLevel::Nobody) },
        Caller { who: RequestIdentity::NOBODY, gid: 200, ..with(JOE, AuthLevel::Nobody) },
        with(BOB, AuthLevel::Password),
        with(BOB, AuthLevel::Attested),
        Caller { who: ended, ..joe() },
    ]
}

/// One of the two cells.
struct Cell {
    rig: Rig,
    places: Places,
}

impl Cell {
    fn new(model: AccessRule, secret: char) -> Cell {
        let mut rig = Rig::with_principals(Ground::memory(), 2, Arc::new(ByUid));
        let root = rig.root();
        let change = StatusChange { mode: Some(0o755), ..StatusChange::default() };
        rig.call(OWNER, &Caller::ROOT, Call::SetStatus { fid: root, change }).unwrap();
        let owner = Owner { uid: JOE, gid: 200, principal: PrincipalId(JOE as i32) };
        let mut ask = |call| rig.call(OWNER, &Caller::ROOT, call);
        let places = Places::fill(model, secret, root, owner, &mut ask);
        // Joe's session holds it, without a name.
        let (dir, what) = (places.closed["private"], types::RemoveWhat::File);
        ask(Call::Remove { dir, name: name(b"orphan"), what, hold: true }).unwrap();
        rig.clients[OWNER].open.insert(places.closed["orphan"]);
        Cell { rig, places }
    }

    fn snapshot(&mut self) -> Vec<String> {
        self.places.snapshot(&mut |call| self.rig.call(OWNER, &Caller::ROOT, call))
    }

    /// A call of a caller without rights; `None`: it waits, and is cancelled.
    fn ask(
        &mut self,
        session: usize,
        caller: &Caller,
        call: &Call,
    ) -> Option<Result<Answer, Fault>> {
        let origin = self.rig.start(session, caller, call.clone());
        let reply = self.rig.reply(origin);
        if reply.is_none() {
            let mut out = Vec::new();
            self.rig.vice().cancel(self.rig.now, origin, &mut out);
            self.rig.deliver(out);
            self.rig.reply(origin);
        }
        reply
    }

    /// Joe works where the other callers may not see it.
    fn work(&mut self, number: usize) {
        let call = self.places.work(number);
        let _ = self.rig.call(OWNER, &joe(), call);
    }
}

fn calls() -> usize {
    std::env::var("STRANGER_CALLS").ok().and_then(|calls| calls.parse().ok()).unwrap_or(30_000)
}

fn run(model: AccessRule, seed: u64) {
    let mut cells = ['a', 'b'].map(|secret| Cell::new(model, secret));
    let mut asking = StrangerCalls::new(seed, name(VOLUME), model, &cells[0].places);
    let before = cells.each_mut().map(Cell::snapshot);
    assert_ne!(before[0], before[1], "the cells differ");
    let mut answered = BTreeMap::<String, [u64; 2]>::new();
    for number in 0..calls() {
        if number % 50 == 0 && number < 2000 {
            cells.iter_mut().for_each(|cell| cell.work(number / 50));
        }
        let all = strangers();
        let caller = &all[asking.rng.random_range(0..all.len())];
        // Another user of joe's machine calls through the same session.
        let session = if asking.rng.random_range(0..4) == 0 { OWNER } else { STRANGERS };
        let call = asking.next_call();
        let of_session =
            matches!(call, Call::Unhold { .. } | Call::Return { .. } | Call::ReclaimDone);
        // A client reports its own open files; its users do not.
        let session = if of_session { STRANGERS } else { session };
        let [one, other] = cells.each_mut().map(|cell| cell.ask(session, caller, &call));
        assert_eq!(one, other, "{model:?} {number}: {caller:?} asked {call:?}");
        let broken =
            cells.each_mut().map(|cell| std::mem::take(&mut cell.rig.clients[STRANGERS].broken));
        assert_eq!(broken[0], broken[1], "{model:?} {number}: breaks tell names");
        let kind = format!("{call:?}").split([' ', '(']).next().unwrap().to_owned();
        let good = matches!(one, Some(Ok(_)));
        answered.entry(kind).or_default()[usize::from(good)] += 1;
        if let Some(Ok(answer)) = &one {
            asking.learn(answer);
        }
        if let Some(Ok(Answer::Opened { open, status })) = &one {
            // Others would be refused the file for it from now on.
            let close = Call::Close { fid: status.fid, open: *open };
            for cell in &mut cells {
                assert_eq!(cell.ask(session, caller, &close), Some(Ok(Answer::Done)));
            }
        }
        // The new files of these callers fill a small cell.
        cells.iter_mut().for_each(|cell| cell.rig.clients[OWNER].broken.clear());
    }
    // The delegations of these callers come back with the end of their sessions.
    for cell in &mut cells {
        cell.rig.detach(STRANGERS);
        let fids = vec![cell.places.all[0]];
        let _ = cell.rig.call(OWNER, &Caller::ROOT, Call::Return { fids });
    }
    let fresh = cells.each_mut().map(|cell| {
        let work: Vec<&str> = vec!["private", "deep"];
        cell.places.closed.retain(|called, _| !work.contains(called));
        cell.snapshot()
    });
    for (before, after) in before.iter().zip(&fresh) {
        for line in after {
            assert!(before.contains(line), "changed: {line:.2000}");
        }
    }
    // A test in which all is refused proves nothing.
    for kind in [
        "Lookup",
        "ReadDir",
        "Make",
        "Read",
        "Write",
        "GetStatus",
        "Lock",
        "Open",
        "Hold",
        "XattrGet",
        "Link",
    ] {
        let [_, good] = answered.get(kind).copied().unwrap_or_default();
        assert!(good > 0, "{kind} was never allowed: {answered:?}");
    }
    for kind in ["Read", "Write", "Seek", "ReadSums", "Lock", "Open", "SetStatus", "Allocate"] {
        let [refused, _] = answered.get(kind).copied().unwrap_or_default();
        assert!(refused > 0, "{kind} was never refused: {answered:?}");
    }
}

#[test]
fn ac7_a_stranger_learns_and_changes_nothing_by_mode_bits() {
    run(AccessRule::ModeBits, 1);
}

#[test]
fn ac7_a_stranger_learns_and_changes_nothing_by_lists() {
    run(AccessRule::Lists, 2);
}

/// A cell with many files that are open to all, except for the path to them.
#[test]
fn ac7_guessed_fids_name_no_file() {
    let mut cell = Cell::new(AccessRule::ModeBits, 'a');
    let private = cell.places.closed["private"];
    let mut make = |number| {
        let (name, kind, how) =
            (name(format!("f{number}").as_bytes()), NewKind::File, CreateHow::Guarded);
        let made = cell.rig.call(
            OWNER,
            &Caller::ROOT,
            Call::Make { dir: private, name, kind, mode: 0o666, how },
        );
        let Ok(Answer::Made { status, .. }) = made else { panic!("{made:?}") };
        status.fid
    };
    let files: Vec<Fid> = (0..10_000).map(&mut make).collect();
    let anonymous = strangers().remove(0);
    let mut rng = SmallRng::seed_from_u64(5);
    let highest = files.iter().map(|fid| fid.vnode.0).max().unwrap();
    let mut ask = |fid| cell.rig.call(STRANGERS, &anonymous, Call::GetStatus { fid });
    for fid in files.iter().flat_map(|fid| likely_fids(*fid)) {
        assert_eq!(ask(fid), Err(Fault::Stale), "{fid}");
    }
    // Neighbours' fids do not reveal a file's own.
    for pair in files.windows(2) {
        let fid = Fid { unique: pair[0].unique, ..pair[1] };
        assert_eq!(ask(fid), Err(Fault::Stale), "{fid}");
    }
    for _ in 0..calls().max(1000) {
        let fid = Fid::new(files[0].volume.0, rng.random_range(2..=highest), rng.random());
        if fid.vnode != VnodeNo::ROOT {
            assert_eq!(ask(fid), Err(Fault::Stale), "{fid}");
        }
    }
}
