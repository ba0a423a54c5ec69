//! Strangers ask everything that the protocol can say, and learn and change nothing (AC-1, AC-7).
//!
//! Two cells differ only in what a stranger may not see: what files hold, attributes, link targets, and names in closed
//! directories. The same calls go to both, from callers without proof, with another user's proof, with an expired token,
//! and through the owner's own session. Each pair of answers and of breaks must be equal: what differs cannot have been
//! told. Afterwards everything that the strangers may not change is compared with what it was.
//!
//! `STRANGER_CALLS` says how many calls each world gets.

#![allow(clippy::unwrap_used)] // tests

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use common::{Ground, Rig, VOLUME, name};
use guard::{Acl, Cps, Rights};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use testkit::stranger::{StrangerCalls, likely_fids};
use types::{
    Answer, Call, Caller, CreateHow, Fault, Fid, Kind, Level, NewKind, PrincipalId, Status, StatusChange, Timestamp,
    VnodeNo, Who, XattrMode,
};

const JOE: u32 = 10;
const BOB: u32 = 11;
/// Joe's session, and the strangers' own.
const OWNER: usize = 0;
const STRANGERS: usize = 1;

/// A principal is a uid; there are no groups.
struct ByUid;

impl vice::Principals for ByUid {
    fn cps(&self, caller: &Caller) -> Result<Cps, Fault> {
        let principal = match caller.who.level {
            Level::Nobody => PrincipalId::ANONYMOUS,
            _ => PrincipalId(caller.uid as i32),
        };
        Ok(Cps::new(principal, caller.who.level, []))
    }
}

fn with(uid: u32, level: Level) -> Caller {
    let who = Who { level, principal: PrincipalId(uid as i32), ..Who::NOBODY };
    Caller { uid, gid: 100, groups: Some(Box::default()), who }
}

fn joe() -> Caller {
    Caller { gid: 200, ..with(JOE, Level::Password) }
}

fn strangers() -> Vec<Caller> {
    let ended = Who { ends: Some(Timestamp::new(1, 0)), ..joe().who };
    vec![
        Caller { who: Who::NOBODY, ..with(65534, Level::Nobody) },
        Caller { who: Who::NOBODY, ..with(0, Level::Nobody) },
        Caller { who: Who::NOBODY, gid: 200, ..with(JOE, Level::Nobody) },
        with(BOB, Level::Password),
        with(BOB, Level::Attested),
        Caller { who: ended, ..joe() },
    ]
}

/// One of the two cells.
struct Cell {
    rig: Rig,
    /// What tells it from the other; always of one length.
    secret: char,
    /// Files that strangers may change nothing of, by what they are called here.
    closed: BTreeMap<&'static str, Fid>,
    /// All files, to be guessed at.
    all: Vec<Fid>,
    /// Open to all: a directory, and a file in it.
    open: [Fid; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Model {
    ModeBits,
    Lists,
}

impl Cell {
    fn new(model: Model, secret: char) -> Cell {
        let mut rig = Rig::new(Ground::memory(), 2);
        rig.vice().set_principals(Arc::new(ByUid));
        let root = rig.root();
        let mut cell = Cell { rig, secret, closed: BTreeMap::new(), all: vec![root], open: [root; 2] };
        cell.as_root(Call::SetStatus {
            fid: root,
            change: StatusChange { mode: Some(0o755), ..StatusChange::default() },
        });
        cell.closed.insert("root", root);
        if model == Model::Lists {
            cell.set_list(root, &[(PrincipalId::ANYBODY, Rights::LOOKUP)]);
        }
        cell.fill(model, root);
        cell
    }

    fn as_root(&mut self, call: Call) -> Answer {
        let text = format!("{call:?}");
        self.rig.call(OWNER, &Caller::ROOT, call).unwrap_or_else(|fault| panic!("{text}: {fault}"))
    }

    fn set_list(&mut self, fid: Fid, given: &[(PrincipalId, Rights)]) {
        let mut list = Acl::new();
        let joe = [(PrincipalId(JOE as i32), Rights::ALL)];
        for (who, rights) in given.iter().chain(&joe) {
            assert!(list.set(*who, *rights, false));
        }
        self.as_root(Call::SetAcl { fid, list: Some(list.encode().into()), instead_of: None });
    }

    /// Made by the superuser for joe.
    fn make(&mut self, dir: Fid, called: &str, kind: NewKind, mode: u16) -> Fid {
        let how = CreateHow::Guarded;
        let made = self.as_root(Call::Make { dir, name: name(called.as_bytes()), kind, mode, how });
        let Answer::Made { status, .. } = made else { panic!("{made:?}") };
        let change = StatusChange { uid: Some(JOE), gid: Some(200), mode: Some(mode), ..StatusChange::default() };
        if !status.kind.has_target() {
            self.as_root(Call::SetStatus { fid: status.fid, change });
        }
        self.all.push(status.fid);
        status.fid
    }

    fn write(&mut self, fid: Fid, text: String) {
        let data = Bytes::from(text);
        self.as_root(Call::Write { fid, offset: Some(0), data, stable: false, kill_privileges: false });
    }

    /// A file that holds what no stranger may read.
    fn secret_file(&mut self, dir: Fid, called: &str, mode: u16) -> Fid {
        let fid = self.make(dir, called, NewKind::File, mode);
        let secret = self.secret.to_string();
        self.write(fid, secret.repeat(40_000));
        let (value, mode) = (Bytes::from(secret.repeat(20)), XattrMode::Either);
        self.as_root(Call::XattrSet { fid, name: Bytes::from_static(b"user.secret"), value, mode });
        fid
    }

    fn fill(&mut self, model: Model, root: Fid) {
        let all = Rights::LOOKUP.with(Rights::READ);
        let public = self.make(root, "public", NewKind::Directory, 0o777);
        let home = self.make(root, "home", NewKind::Directory, 0o755);
        let private = self.make(root, "private", NewKind::Directory, 0o700);
        let sticky = self.make(root, "tmp", NewKind::Directory, 0o1777);
        if model == Model::Lists {
            let change = all.with(Rights::INSERT).with(Rights::DELETE).with(Rights::WRITE);
            self.set_list(public, &[(PrincipalId::ANYBODY, change)]);
            self.set_list(home, &[(PrincipalId::ANYBODY, Rights::LOOKUP)]);
            self.set_list(sticky, &[(PrincipalId::ANYBODY, all)]);
            self.set_list(private, &[]);
        }
        // What everybody may change, and what everybody may read: the same in both cells.
        let open = self.make(public, "open", NewKind::File, 0o666);
        self.open = [public, open];
        self.write(open, "everybody's".to_owned());
        let (value, mode) = (Bytes::from_static(b"for all"), XattrMode::Either);
        self.as_root(Call::XattrSet { fid: open, name: Bytes::from_static(b"user.secret"), value, mode });
        let read_only = self.make(sticky, "notes", NewKind::File, 0o644);
        self.write(read_only, "to be read by all".to_owned());
        let program = self.make(sticky, "program", NewKind::File, 0o711);
        self.write(program, "to be run by all".to_owned());
        // What nobody else may read, where its name is seen; and where the directory closes the way, whatever the modes.
        let closed = [
            ("home", home),
            ("private", private),
            ("notes", read_only),
            ("program", program),
            ("owner's", self.secret_file(home, "owners", 0o600)),
            ("group's", self.secret_file(home, "groups", 0o660)),
            ("behind", self.secret_file(private, "behind", 0o644)),
            ("open behind", self.secret_file(private, "openly", 0o666)),
        ];
        self.closed.extend(closed);
        let below = self.make(private, "below", NewKind::Directory, 0o777);
        let deep = self.secret_file(below, "deep", 0o666);
        self.closed.extend([("below", below), ("deep", deep)]);
        let secret = self.secret;
        let (named, target) = (format!("named-{secret}"), Bytes::from(format!("/to/{secret}")));
        let link = self.make(private, &named, NewKind::Symlink(target), 0o777);
        self.closed.insert("link", link);
        // Held by joe's session, without a name: in the open directory once, behind the closed one before.
        let orphan = self.secret_file(private, "orphan", 0o600);
        let what = types::RemoveWhat::File;
        self.as_root(Call::Remove { dir: private, name: name(b"orphan"), what, hold: true });
        self.rig.clients[OWNER].open.insert(orphan);
        self.closed.insert("orphan", orphan);
    }

    /// Everything of what is closed, as the superuser sees it.
    fn snapshot(&mut self) -> Vec<String> {
        let closed = self.closed.clone();
        closed
            .into_iter()
            .map(|(called, fid)| {
                let status = match self.as_root(Call::GetStatus { fid }) {
                    Answer::Status(status) => status,
                    other => panic!("{other:?}"),
                };
                let content = match status.kind {
                    Kind::File => self.as_root(Call::Read { fid, offset: 0, length: 100_000 }),
                    Kind::Directory => {
                        self.as_root(Call::ReadDir { dir: fid, cookie: 0, bytes_max: 9000, plus: false })
                    }
                    _ => self.as_root(Call::ReadLink { fid }),
                };
                let names = self.as_root(Call::XattrList { fid });
                let private = Status { accessed: Timestamp::default(), ..status };
                format!("{called}: {private:?} {content:?} {names:?}")
            })
            .collect()
    }

    /// A call of a stranger; `None`: it waits, and is taken back.
    fn ask(&mut self, session: usize, caller: &Caller, call: &Call) -> Option<Result<Answer, Fault>> {
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

    /// Joe works where strangers see nothing of it.
    fn work(&mut self, number: usize) {
        let (private, secret) = (self.closed["private"], self.secret);
        let called = name(format!("new-{secret}-{}", number % 7).as_bytes());
        let (kind, how, mode) = (NewKind::File, CreateHow::Unchecked, 0o666);
        let what = types::RemoveWhat::File;
        let call = match number % 3 {
            0 => Call::Make { dir: private, name: called, kind, mode, how },
            1 => Call::Remove { dir: private, name: called, what, hold: number.is_multiple_of(2) },
            _ => Call::Write {
                fid: self.closed["deep"],
                offset: Some(0),
                data: Bytes::from(secret.to_string().repeat(number % 100 + 1)),
                stable: false,
                kill_privileges: false,
            },
        };
        let _ = self.rig.call(OWNER, &joe(), call);
    }
}

fn calls() -> usize {
    std::env::var("STRANGER_CALLS").ok().and_then(|calls| calls.parse().ok()).unwrap_or(30_000)
}

fn run(model: Model, seed: u64) {
    let mut cells = ['a', 'b'].map(|secret| Cell::new(model, secret));
    // Where lists decide, fids are no secret: the list is asked at each call.
    let all = &cells[0].all;
    let guesses = match model {
        Model::Lists => all.clone(),
        Model::ModeBits => all.iter().flat_map(|fid| likely_fids(*fid)).collect(),
    };
    let mut asking = StrangerCalls::new(seed, name(VOLUME), all[0], guesses, cells[0].open);
    let before = cells.each_mut().map(Cell::snapshot);
    assert_ne!(before[0], before[1], "the cells differ");
    let mut answered = BTreeMap::<String, [u64; 2]>::new();
    for number in 0..calls() {
        if number % 50 == 0 && number < 2000 {
            cells.iter_mut().for_each(|cell| cell.work(number / 50));
        }
        let all = strangers();
        let caller = &all[asking.rng.random_range(0..all.len())];
        // Another user of joe's machine speaks through the same session.
        let session = if asking.rng.random_range(0..4) == 0 { OWNER } else { STRANGERS };
        let call = asking.next_call();
        let of_session = matches!(call, Call::Unhold { .. } | Call::Return { .. } | Call::ReclaimDone);
        // A client's program says for itself what it has open; its users do not.
        let session = if of_session { STRANGERS } else { session };
        let [one, other] = cells.each_mut().map(|cell| cell.ask(session, caller, &call));
        assert_eq!(one, other, "{model:?} {number}: {caller:?} asked {call:?}");
        let broken = cells.each_mut().map(|cell| std::mem::take(&mut cell.rig.clients[STRANGERS].broken));
        assert_eq!(broken[0], broken[1], "{model:?} {number}: breaks tell names");
        let kind = format!("{call:?}").split([' ', '(']).next().unwrap().to_owned();
        let good = matches!(one, Some(Ok(_)));
        answered.entry(kind).or_default()[usize::from(good)] += 1;
        if let Some(Ok(answer)) = &one {
            asking.learn(answer);
        }
        // What strangers made here is as much as a small cell holds.
        cells.iter_mut().for_each(|cell| cell.rig.clients[OWNER].broken.clear());
    }
    // What the strangers have to themselves comes back with the end of their sessions.
    for cell in &mut cells {
        cell.rig.detach(STRANGERS);
        let fids = vec![cell.all[0]];
        let _ = cell.rig.call(OWNER, &Caller::ROOT, Call::Return { fids });
    }
    let fresh = cells.each_mut().map(|cell| {
        let work: Vec<&str> = vec!["private", "deep"];
        cell.closed.retain(|called, _| !work.contains(called));
        cell.snapshot()
    });
    for (before, after) in before.iter().zip(&fresh) {
        for line in after {
            assert!(before.contains(line), "changed: {line:.2000}");
        }
    }
    // Strangers that were refused everything would prove nothing.
    for kind in ["Lookup", "ReadDir", "Make", "Read", "Write", "GetStatus", "Lock", "Hold", "XattrGet", "Link"] {
        let [_, good] = answered.get(kind).copied().unwrap_or_default();
        assert!(good > 0, "{kind} was never allowed: {answered:?}");
    }
    for kind in ["Read", "Write", "Seek", "ReadSums", "Lock", "SetStatus", "Allocate"] {
        let [refused, _] = answered.get(kind).copied().unwrap_or_default();
        assert!(refused > 0, "{kind} was never refused: {answered:?}");
    }
}

#[test]
fn ac7_a_stranger_learns_and_changes_nothing_by_mode_bits() {
    run(Model::ModeBits, 1);
}

#[test]
fn ac7_a_stranger_learns_and_changes_nothing_by_lists() {
    run(Model::Lists, 2);
}

/// A cell with many files that are open to all, but for the way to them.
#[test]
fn ac7_guessed_fids_name_no_file() {
    let mut cell = Cell::new(Model::ModeBits, 'a');
    let private = cell.closed["private"];
    let files: Vec<Fid> =
        (0..10_000).map(|number| cell.make(private, &format!("f{number}"), NewKind::File, 0o666)).collect();
    let nobody = strangers().remove(0);
    let mut rng = SmallRng::seed_from_u64(5);
    let highest = files.iter().map(|fid| fid.vnode.0).max().unwrap();
    let mut ask = |fid| cell.rig.call(STRANGERS, &nobody, Call::GetStatus { fid });
    for fid in files.iter().flat_map(|fid| likely_fids(*fid)) {
        assert_eq!(ask(fid), Err(Fault::Stale), "{fid}");
    }
    // Neighbours' numbers tell nothing of a file's own.
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
