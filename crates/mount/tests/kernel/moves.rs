//! A volume moves to another server, or another partition of its server, while applications use it
//! (docs/spec/volumes.md, *Move*; here step by step, as `vos move` does it).

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use types::{
    Answer, Beside, ByteRange, Call, Fid, Finish, LockFamily, LockMode, LockOwner, PartitionNo,
    Pull, SiteKind, TaskState, VolumeCall, VolumeInfo, VolumeKind, VolumeState, WhichVolume,
};

use crate::cell::eventually;
use crate::fleet::{Fleet, Traveller, name};

impl Fleet {
    fn seal(&self, on: usize, volume: &VolumeInfo, label: &str) -> VolumeInfo {
        let kind = VolumeKind::Snapshot;
        self.hosts[on].volume(VolumeCall::Clone {
            id: None,
            of: volume.id,
            name: name(label),
            kind,
            replace: false,
        })
    }

    /// Pulls the state of `snapshot` to the other server, where it becomes `finish`.
    fn pull(&self, (from, to): (usize, usize), snapshot: &VolumeInfo, finish: Finish) {
        let pull = Pull {
            from: vec![self.hosts[from].address()],
            id: snapshot.id,
            partition: Some(PartitionNo(1)),
            tree: snapshot.tree,
            finish,
        };
        self.finish(to, VolumeCall::Pull(Box::new(pull)));
    }

    /// Starts a task and waits until it succeeds.
    fn finish(&self, on: usize, call: VolumeCall) {
        let tasks = |call| match self.hosts[on].ask(Call::Volume(call)).unwrap() {
            Answer::Tasks(tasks) => tasks,
            other => panic!("{other:?}"),
        };
        let number = tasks(call)[0].number;
        eventually("it was done", || {
            let task =
                tasks(VolumeCall::Tasks).into_iter().find(|task| task.number == number).unwrap();
            assert_ne!(task.state, TaskState::Failed, "{}", task.text);
            task.state == TaskState::Done
        });
    }

    /// Moves a volume to another partition of its server; returns how long it was frozen.
    fn move_beside(&self, on: usize, volume: &VolumeInfo, (from, to): (u32, u32)) -> Duration {
        let ask = |call| self.hosts[on].ask(Call::Volume(call)).unwrap();
        let beside = |id, no, what| VolumeCall::Beside { id, partition: PartitionNo(no), what };
        let first = self.seal(on, volume, "data.moving.1");
        self.finish(on, beside(first.id, to, Beside::Show));
        let began = Instant::now();
        ask(VolumeCall::Hold { id: volume.id, millis: 10_000 });
        let last = self.seal(on, volume, "data.moving.2");
        self.finish(on, beside(last.id, to, Beside::Arrive));
        self.change("data", |group| {
            group.sites[0].partition = ["/vicepa", "/vicepb"][to as usize].into();
        });
        ask(beside(volume.id, from, Beside::Leave));
        ask(VolumeCall::Serve { id: volume.id });
        let held = began.elapsed();
        eventually("the rest is gone", || {
            ask(beside(volume.id, from, Beside::Leave)) == Answer::Tasks(Vec::new())
        });
        [&first, &last]
            .iter()
            .for_each(|snapshot| drop(ask(VolumeCall::Remove { id: snapshot.id })));
        held
    }

    /// Moves a volume; returns how long it was frozen.
    fn move_volume(&self, (from, to): (usize, usize), volume: &VolumeInfo) -> Duration {
        let ask = |on: usize, call| drop(self.hosts[on].ask(Call::Volume(call)).unwrap());
        let first = self.seal(from, volume, "data.moving.1");
        let view = Finish::View {
            id: None,
            name: first.name.clone(),
            kind: VolumeKind::Snapshot,
            replace: false,
        };
        self.pull((from, to), &first, view);
        let began = Instant::now();
        ask(from, VolumeCall::Hold { id: volume.id, millis: 10_000 });
        let last = self.seal(from, volume, "data.moving.2");
        let whole = Finish::ReadWrite {
            name: volume.name.clone(),
            quota_bytes: 0,
            quota_files: 0,
            created: volume.created,
            arriving: true,
            updated: None,
        };
        self.pull((from, to), &last, whole);
        let site = self.site(to, SiteKind::ReadWrite, 0);
        self.change("data", |group| group.sites = vec![site]);
        ask(from, VolumeCall::Remove { id: volume.id });
        ask(to, VolumeCall::Serve { id: volume.id });
        let held = began.elapsed();
        [&first, &last]
            .iter()
            .for_each(|snapshot| ask(from, VolumeCall::Remove { id: snapshot.id }));
        let copied =
            self.hosts[to].volume(VolumeCall::Examine { volume: WhichVolume::Name(first.name) });
        ask(to, VolumeCall::Remove { id: copied.id });
        held
    }
}

/// Stops the workers, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The accesses of a build: reading sources, making directories, writing objects under temporary
/// names, renaming them, appending to logs; each result is checked.
fn work(at: &Path, worker: usize, stop: &AtomicBool, rounds: &AtomicU64) -> Vec<String> {
    let mut failures = Vec::new();
    let mut round = 0;
    while !stop.load(Ordering::Acquire) {
        round += 1;
        if let Err(error) = build(at, worker, round) {
            failures.push(format!("worker {worker}, round {round}: {error}"));
        }
        rounds.fetch_add(1, Ordering::AcqRel);
    }
    failures
}

fn build(at: &Path, worker: usize, round: usize) -> std::io::Result<()> {
    let dir = at.join(format!("build-{worker}-{round}"));
    fs::create_dir(&dir)?;
    let source = fs::read_to_string(at.join("source"))?;
    for unit in 0..5 {
        let (temporary, object) = (dir.join(format!("{unit}.tmp")), dir.join(format!("{unit}.o")));
        let text = format!("{source} {worker} {round} {unit}").repeat(200 * (unit + 1));
        fs::write(&temporary, &text)?;
        fs::rename(&temporary, &object)?;
        let found = fs::read_to_string(&object)?;
        if found != text {
            return Err(std::io::Error::other(format!(
                "{} is not what was written",
                object.display()
            )));
        }
    }
    let mut log =
        File::options().append(true).create(true).open(at.join(format!("log-{worker}")))?;
    writeln!(log, "{round}")?;
    if round.is_multiple_of(4) {
        log.sync_all()?;
    }
    if round.is_multiple_of(2) {
        fs::remove_dir_all(&dir)?;
    }
    Ok(())
}

#[test]
fn who_only_holds_a_lock_claims_it_where_the_volume_is() {
    let Some(fleet) = Fleet::start(3) else { return };
    let volume = fleet.create(1, "data");
    let client = fleet.mount(0, "data", &[]);
    let locked = File::create(client.at("lock")).unwrap();
    flock(&locked, FlockOperation::LockExclusive).unwrap();
    locked.sync_all().unwrap();
    let mut bytes = [0; 64];
    let length = rustix::fs::getxattr(client.at("lock"), "rialto.fid", &mut bytes).unwrap();
    let fid: Fid = std::str::from_utf8(&bytes[..length]).unwrap().parse().unwrap();
    fleet.move_volume((1, 2), &volume);
    // No application uses this mount.
    let (family, range, mode) = (LockFamily::Flock, ByteRange::ALL, LockMode::Exclusive);
    let seen = || {
        fleet.hosts[2]
            .ask(Call::TestLock { fid, owner: LockOwner(1), family, range, mode })
            .unwrap()
    };
    eventually("the lock is claimed", || matches!(seen(), Answer::LockTest(Some(_))));
    assert_eq!(client.server_of(&volume), Some(fleet.hosts[2].id()));
    let other = fleet.mount(2, "data", &[]);
    let theirs = File::open(other.at("lock")).unwrap();
    assert_eq!(
        flock(&theirs, FlockOperation::NonBlockingLockExclusive),
        Err(rustix::io::Errno::WOULDBLOCK)
    );
    flock(&locked, FlockOperation::Unlock).unwrap();
    flock(&theirs, FlockOperation::NonBlockingLockExclusive).unwrap();
    drop((locked, theirs));
    other.end();
    client.end();
}

#[test]
fn a_build_runs_on_while_its_volume_moves() {
    let Some(fleet) = Fleet::start(3) else { return };
    let volume = fleet.create(1, "data");
    let moved = |path: (usize, usize), client: &Traveller| {
        let held = fleet.move_volume(path, &volume);
        let there = Some(fleet.hosts[path.1].id());
        eventually("it is asked for there", || client.server_of(&volume) == there);
        held
    };
    build_while_it_moves(
        &fleet,
        [&|client| moved((1, 2), client), &|client| moved((2, 0), client)],
    );
}

#[test]
fn a_build_runs_on_while_its_volume_moves_within_its_server() {
    let Some(fleet) = Fleet::start(3) else { return };
    let volume = fleet.create(0, "data");
    let on = |no: u32| {
        let found =
            fleet.hosts[0].volume(VolumeCall::Examine { volume: WhichVolume::Id(volume.id) });
        assert_eq!((found.partition, found.state), (PartitionNo(no), VolumeState::Online));
    };
    let moved = |path: (u32, u32)| {
        let held = fleet.move_beside(0, &volume, path);
        on(path.1);
        held
    };
    build_while_it_moves(&fleet, [&|_| moved((1, 0)), &|_| moved((0, 1))]);
}

/// Two moves, each of which returns how long the volume was frozen.
fn build_while_it_moves(fleet: &Fleet, moves: [&dyn Fn(&Traveller) -> Duration; 2]) {
    let client = fleet.mount(0, "data", &[]);
    fs::write(client.at("source"), "source").unwrap();
    let locked = File::create(client.at("lock")).unwrap();
    flock(&locked, FlockOperation::LockExclusive).unwrap();
    let unnamed =
        File::options().read(true).write(true).create_new(true).open(client.at("unnamed")).unwrap();
    (&unnamed).write_all(b"before").unwrap();
    fs::remove_file(client.at("unnamed")).unwrap();
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let count = || rounds.load(Ordering::Acquire);
    let failures = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                scope.spawn({
                    let at = client.at("");
                    let (stop, rounds) = (&stop, &rounds);
                    move || work(&at, worker, stop, rounds)
                })
            })
            .collect();
        let stopping = Stop(&stop);
        for one in moves {
            let then = count();
            eventually("they work", || count() > then + 10);
            let held = one(&client);
            println!("held for {held:?}");
            let then = count();
            eventually("they go on", || count() > then + 10);
        }
        drop(stopping);
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(failures, Vec::<String>::new());
    // Locks are still held, seen from another mount.
    let other = fleet.mount(2, "data", &[]);
    let theirs = File::open(other.at("lock")).unwrap();
    assert_eq!(
        flock(&theirs, FlockOperation::NonBlockingLockExclusive),
        Err(rustix::io::Errno::WOULDBLOCK)
    );
    (&unnamed).write_all(b"after").unwrap();
    let mut bytes = [0; 11];
    std::os::unix::fs::FileExt::read_exact_at(&unnamed, &mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"beforeafter");
    locked.sync_all().unwrap();
    drop((locked, theirs, unnamed));
    // Both mounts show the same tree.
    let listing = |at: &Path| {
        let output = Command::new("sh")
            .args(["-c", "find . -type f | sort | xargs sha256sum"])
            .current_dir(at)
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    assert_eq!(listing(&client.at("")), listing(&other.at("")));
    other.end();
    client.end();
}
