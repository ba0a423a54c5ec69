//! Many threads at once: no deadlock, and a consistent tree afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Ground, Rig, name};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use store::VolumeQuota;
use types::{
    Answer, Call, Caller, Cookie, CreateHow, Fault, Fid, Kind, NewKind, RemoveWhat, RenameMode,
    ReplyAddress, SessionId, Time, Timestamp,
};
use vice::{Effect, Execution, Vice};

const ROOT: Caller = Caller::ROOT;
const THREADS: usize = 6;

/// Clients that all acknowledge at once, in the thread that gets the break.
struct Crowd<'a> {
    vice: &'a Vice,
    sessions: Vec<SessionId>,
    replies: Mutex<BTreeMap<(u64, u64), Result<Answer, Fault>>>,
}

impl Crowd<'_> {
    fn now() -> Time {
        Time::from_start(Duration::from_secs(200))
    }

    fn deliver(&self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Reply { origin, result, .. } => {
                    self.replies.lock().unwrap().insert((origin.session.0, origin.request), result);
                }
                Effect::Executed { .. } => {}
                Effect::Break { to, id, .. } => {
                    let mut out = Vec::new();
                    self.vice.ack(Crowd::now(), to, id, &[], &mut out);
                    self.deliver(out);
                }
                Effect::SessionEnded(_) => panic!("no session ends"),
            }
        }
    }

    fn call(&self, thread: usize, request: &mut u64, call: Call) -> Result<Answer, Fault> {
        *request += 1;
        let origin = ReplyAddress { session: self.sessions[thread], slot: 1, request: *request };
        let mut out = Vec::new();
        self.vice.perform(
            Execution::new(Crowd::now(), Timestamp::new(5, 0), &ROOT, origin),
            call,
            &mut out,
        );
        self.deliver(out);
        let begun = Instant::now();
        loop {
            if let Some(result) =
                self.replies.lock().unwrap().remove(&(origin.session.0, origin.request))
            {
                return result;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{origin:?} is stuck");
            std::thread::yield_now();
        }
    }
}

fn random_call(rng: &mut SmallRng, directories: &[Fid], files: &[Fid]) -> Call {
    let dir = directories[rng.random_range(0..directories.len())];
    let to_dir = directories[rng.random_range(0..directories.len())];
    let fid = files[rng.random_range(0..files.len())];
    let at = |rng: &mut SmallRng| name(["a", "b", "c", "d0", "d1", "d2"][rng.random_range(0..6)]);
    match rng.random_range(0..12) {
        0 | 1 => Call::Make {
            dir,
            name: at(rng),
            kind: NewKind::File,
            mode: 0o644,
            how: CreateHow::Guarded,
        },
        2 => Call::Make {
            dir,
            name: at(rng),
            kind: NewKind::Directory,
            mode: 0o755,
            how: CreateHow::Guarded,
        },
        3 => Call::Link { fid, dir, name: at(rng) },
        4 => Call::Remove {
            dir,
            name: at(rng),
            what: [RemoveWhat::File, RemoveWhat::Directory][rng.random_range(0..2)],
            hold: false,
        },
        5..=8 => {
            let modes = [RenameMode::Replace, RenameMode::Exchange, RenameMode::NoReplace];
            let mode = modes[rng.random_range(0..3)];
            Call::Rename { from_dir: dir, from: at(rng), to_dir, to: at(rng), mode, hold: false }
        }
        9 => crate::common::write(fid, None, &[1; 100]),
        10 => Call::ReadDir { dir, cookie: Cookie::START, bytes_max: 10_000, plus: true },
        _ => Call::Lookup { dir, name: at(rng) },
    }
}

#[test]
fn a_tree_that_many_change_at_once_stays_a_tree() {
    let mut rig =
        Rig::with_quota(Ground::memory(), THREADS, VolumeQuota { bytes: 1 << 30, files: 0 });
    let root = rig.root();
    let mut directories = vec![root];
    for depth in 0..3 {
        let at = directories[depth];
        directories.push(rig.directory(at, &format!("d{depth}")));
    }
    let files: Vec<Fid> = (0..4).map(|number| rig.file(root, &format!("file {number}"))).collect();
    let crowd = Crowd {
        vice: rig.vice(),
        sessions: rig.clients.iter().map(|client| client.session).collect(),
        replies: Mutex::default(),
    };
    let appended: u64 = std::thread::scope(|scope| {
        let work = |thread: usize| {
            let (crowd, directories, files) = (&crowd, &directories, &files);
            move || {
                let (mut rng, mut request) = (SmallRng::seed_from_u64(thread as u64), 0);
                let mut directories = directories.clone();
                let mut appended = 0;
                for _ in 0..5000 {
                    let call = random_call(&mut rng, &directories, files);
                    match crowd.call(thread, &mut request, call) {
                        Ok(Answer::Made { status, .. }) if status.kind == Kind::Directory => {
                            directories.push(status.fid);
                        }
                        Ok(Answer::Written { count, .. }) => appended += u64::from(count),
                        _ => {}
                    }
                }
                appended
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    drop(crowd);
    let mut sum = 0;
    for file in files {
        sum += rig.status(0, file).unwrap().size;
    }
    assert_eq!(sum, appended, "every append is there once");
    check_tree(&mut rig, root);
}

/// Two threads continue from here within nanoseconds of each other: a sleeping barrier wakes them
/// too far apart.
#[derive(Default)]
struct Meeting(AtomicUsize);

impl Meeting {
    fn wait(&self, number: usize) {
        self.0.fetch_add(1, Ordering::SeqCst);
        let begun = Instant::now();
        while self.0.load(Ordering::SeqCst) < 2 * (number + 1) {
            if begun.elapsed() > Duration::from_micros(50) {
                std::thread::yield_now();
            }
        }
    }
}

#[test]
fn two_directories_do_not_move_into_each_other() {
    let mut rig = Rig::new(Ground::memory(), 2);
    let root = rig.root();
    // Two arms, so that the moves have no vnode in common, and so long that the search for a loop
    // takes time: arm / moved / ... / inside.
    let arms = [0, 1].map(|number| {
        let arm = rig.directory(root, &format!("arm {number}"));
        let moved = rig.directory(arm, "moved");
        (arm, (0..300).fold(moved, |at, _| rig.directory(at, "inside")))
    });
    let sessions = rig.clients.iter().map(|client| client.session).collect();
    let crowd = Crowd { vice: rig.vice(), sessions, replies: Mutex::default() };
    let rename = |from_dir, from: &str, to_dir, to: &str| {
        let mode = RenameMode::NoReplace;
        Call::Rename { from_dir, from: name(from), to_dir, to: name(to), mode, hold: false }
    };
    let start = Meeting::default();
    let outcomes: Vec<Vec<Result<(), Fault>>> = std::thread::scope(|scope| {
        let work = |me: usize| {
            let (crowd, start) = (&crowd, &start);
            move || {
                let ((arm, _), (_, other_inside)) = (arms[me], arms[1 - me]);
                let mut request = 0;
                let mut outcomes = Vec::new();
                for round in 0..500 {
                    start.wait(2 * round);
                    let moved = crowd
                        .call(me, &mut request, rename(arm, "moved", other_inside, "here"))
                        .map(drop);
                    start.wait(2 * round + 1);
                    if moved.is_ok() {
                        crowd
                            .call(me, &mut request, rename(other_inside, "here", arm, "moved"))
                            .unwrap();
                    }
                    outcomes.push(moved);
                }
                outcomes
            }
        };
        let threads = [0, 1].map(|me| scope.spawn(work(me)));
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (first, second) in outcomes[0].iter().zip(&outcomes[1]) {
        assert!(first.is_ok() != second.is_ok(), "{first:?} and {second:?}");
        assert!([first, second].contains(&&Err(Fault::Invalid)));
    }
    drop(crowd);
    check_tree(&mut rig, root);
}

/// Every directory is reached once, links equal the entries, and the usage equals the sum.
fn check_tree(rig: &mut Rig, root: Fid) {
    let (mut seen, mut names) = (BTreeSet::new(), BTreeMap::<Fid, u32>::new());
    let (mut todo, mut used, mut subdirectories) = (vec![root], 0, BTreeMap::<Fid, u32>::new());
    while let Some(dir) = todo.pop() {
        assert!(seen.insert(dir), "{dir} is reached twice");
        let call = Call::ReadDir { dir, cookie: Cookie::START, bytes_max: u32::MAX, plus: true };
        let Ok(Answer::Entries { entries, end: true, .. }) = rig.call(0, &ROOT, call) else {
            panic!()
        };
        used += rig.status(0, dir).unwrap().used;
        for entry in entries {
            if entry.kind == Kind::Directory {
                *subdirectories.entry(dir).or_default() += 1;
                todo.push(entry.fid);
            } else if *names.entry(entry.fid).and_modify(|count| *count += 1).or_insert(1) == 1 {
                used += entry.status.unwrap().used;
            }
        }
    }
    for dir in &seen {
        assert_eq!(
            rig.status(0, *dir).unwrap().links,
            2 + subdirectories.get(dir).unwrap_or(&0),
            "links of {dir}"
        );
    }
    for (file, count) in &names {
        assert_eq!(rig.status(0, *file).unwrap().links, *count, "links of {file}");
    }
    let usage = rig.usage();
    assert_eq!(
        (usage.used_bytes, usage.used_files),
        (used, (seen.len() + names.len()) as u64),
        "ST-2"
    );
}
