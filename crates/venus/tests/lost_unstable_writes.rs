//! Unstable writes that the server lost before a commit, while the commit is under way: no old
//! bytes are sent over newer ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::common::{Client, Over, RO, RW, TestServer, me, name};
use bytes::Bytes;
use client::{CallError, Cancel, Events, Remote, Reply};
use parking_lot::{Mutex, RwLock};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use server::LoopbackSession;
use types::{Answer, BootVerifier, Call, Caller, ClientId, Fault, Fid, StatusChange};
use venus::{Error, Venus, VenusConfig};

/// A call that is held back, the first of its kind.
struct Held {
    asked: Receiver<()>,
    go: Sender<()>,
}

struct Door {
    asked: Sender<()>,
    go: Mutex<Receiver<()>>,
    passed: AtomicBool,
}

impl Door {
    fn new() -> (Door, Held) {
        let ((asked, is_asked), (go, wait)) = (channel(), channel());
        (
            Door { asked, go: Mutex::new(wait), passed: AtomicBool::new(false) },
            Held { asked: is_asked, go },
        )
    }

    fn hold(&self) {
        if !self.passed.swap(true, Ordering::SeqCst) {
            let _ = self.asked.send(());
            // A dropped sender lets the call through.
            let _ = self.go.lock().recv_timeout(Duration::from_secs(20));
        }
    }
}

/// A server that reports the loss of uncommitted writes when its instance is counted up; the first
/// commit of the volume, the first of a file and the first write of its second instance are held
/// back.
struct Fragile {
    life: Arc<AtomicU64>,
    all: Held,
    one: Held,
    again: Held,
}

fn fragile(client: &Client) -> Fragile {
    let life = Arc::new(AtomicU64::new(1));
    let ((all, all_held), (one, one_held), (again, again_held)) =
        (Door::new(), Door::new(), Door::new());
    let now = Arc::clone(&life);
    client.wire.set_before(move |call| {
        match call {
            Call::CommitVolume { .. } => all.hold(),
            Call::Commit { .. } => one.hold(),
            Call::Write { .. } if now.load(Ordering::SeqCst) > 1 => again.hold(),
            _ => {}
        }
        None
    });
    let now = Arc::clone(&life);
    client.wire.set_after(move |_, result| {
        let now = BootVerifier(now.load(Ordering::SeqCst));
        if let Ok(Reply {
            answer: Answer::Written { verifier, .. } | Answer::Committed { verifier },
            ..
        }) = result
        {
            *verifier = now;
        }
    });
    Fragile { life, all: all_held, one: one_held, again: again_held }
}

/// The server's bytes, as another client reads them.
fn content(server: &TestServer, fid: Fid) -> Vec<u8> {
    let other = server.client(2);
    let handle = other.venus.open(&me(), fid, RO).unwrap().handle;
    other.read(handle, 0, 100).to_vec()
}

#[test]
fn two_commits_at_once_keep_the_newer_bytes() {
    let server = TestServer::in_memory();
    let client = server.remote_client(1);
    let (fid, handle) = client.create("f");
    let Fragile { life, all, one, again } = fragile(&client);
    client.write(handle, 0, b"aaaa");
    client.venus.flush(&me(), handle, None).unwrap();
    std::thread::scope(|scope| {
        let syncfs = scope.spawn(|| client.venus.syncfs(&me(), client.root));
        all.asked.recv().unwrap();
        client.write(handle, 2, b"bb");
        client.venus.flush(&me(), handle, None).unwrap();
        let fsync = scope.spawn(|| client.venus.fsync(&me(), handle));
        // Unless this commit waits for the other.
        let _ = one.asked.recv_timeout(Duration::from_millis(200));
        life.store(2, Ordering::SeqCst);
        drop(all.go);
        again.asked.recv().unwrap();
        drop(one.go);
        std::thread::sleep(Duration::from_millis(50));
        drop(again.go);
        syncfs.join().unwrap().unwrap();
        fsync.join().unwrap().unwrap();
    });
    assert_eq!(content(&server, fid), b"aabb");
}

#[test]
fn bytes_cut_off_during_a_commit_stay_cut_off() {
    let server = TestServer::in_memory();
    let client = server.remote_client(1);
    let (fid, handle) = client.create("f");
    let Fragile { life, all, one: _, again: _ } = fragile(&client);
    client.write(handle, 0, b"aaaa");
    client.venus.flush(&me(), handle, None).unwrap();
    std::thread::scope(|scope| {
        let syncfs = scope.spawn(|| client.venus.syncfs(&me(), client.root));
        all.asked.recv().unwrap();
        let change = StatusChange { size: Some(1), ..StatusChange::default() };
        client.venus.setattr(&me(), fid, change).unwrap();
        life.store(2, Ordering::SeqCst);
        drop(all.go);
        syncfs.join().unwrap().unwrap();
    });
    assert_eq!(content(&server, fid), b"a");
}

#[test]
fn du4_bytes_of_a_failed_cut_are_resent_when_lost() {
    let server = TestServer::in_memory();
    let client = server.remote_client(1);
    let (fid, handle) = client.create("f");
    let Fragile { life, .. } = fragile(&client);
    client.write(handle, 0, b"aaaa");
    client.venus.flush(&me(), handle, None).unwrap();
    client.wire.set_before(|call| match call {
        Call::SetStatus { .. } => Some(Err(CallError::Fault(Fault::Medium))),
        _ => None,
    });
    let change = StatusChange { size: Some(1), ..StatusChange::default() };
    assert_eq!(client.venus.setattr(&me(), fid, change), Err(Error::Fault(Fault::Medium)));
    life.store(2, Ordering::SeqCst);
    client.venus.fsync(&me(), handle).unwrap();
    assert_eq!(client.wire.count("Write"), 2);
}

#[test]
fn bytes_moved_during_a_commit_are_stable_and_not_resent() {
    let server = TestServer::in_memory();
    let client = server.remote_client(1);
    let (fid, handle) = client.create("f");
    let Fragile { life, all, one: _, again: _ } = fragile(&client);
    client.write(handle, 0, b"aaaa");
    client.venus.flush(&me(), handle, None).unwrap();
    std::thread::scope(|scope| {
        let syncfs = scope.spawn(|| client.venus.syncfs(&me(), client.root));
        all.asked.recv().unwrap();
        let events = client.wire.events.lock().clone().unwrap();
        events.on_moved(&*client.wire);
        let other = server.client(3);
        let theirs = other.venus.open(&me(), fid, crate::common::RW).unwrap().handle;
        other.write(theirs, 0, b"bbbb");
        other.venus.fsync(&me(), theirs).unwrap();
        life.store(2, Ordering::SeqCst);
        drop(all.go);
        syncfs.join().unwrap().unwrap();
    });
    assert_eq!(content(&server, fid), b"bbbb");
}

#[test]
fn du4_bytes_are_sent_again_when_a_copy_takes_over() {
    let server = TestServer::in_memory();
    let client = server.remote_client(1);
    let (fid, handle) = client.create("f");
    let _fragile = fragile(&client);
    client.write(handle, 0, b"aaaa");
    client.venus.flush(&me(), handle, None).unwrap();
    assert_eq!(client.wire.count("Write"), 1);
    // The boot verifier says nothing: it is another server's.
    let events = client.wire.events.lock().clone().unwrap();
    events.on_taken_over(&*client.wire);
    client.venus.fsync(&me(), handle).unwrap();
    assert_eq!(client.wire.count("Write"), 2);
    assert_eq!(content(&server, fid), b"aaaa");
    // Stable bytes are not sent again.
    events.on_taken_over(&*client.wire);
    client.venus.fsync(&me(), handle).unwrap();
    assert_eq!(client.wire.count("Write"), 2);
}

/// A server that really loses one file's bytes: at each loss the file returns to its state at the
/// last commit.
struct Lossy {
    session: LoopbackSession,
    /// Another client's session, which resets the file.
    aside: LoopbackSession,
    fid: Mutex<Fid>,
    /// The server instance, and the stable bytes. Calls of the first client hold it shared.
    state: RwLock<(u64, Bytes)>,
}

impl Lossy {
    fn ask_aside(&self, call: Call) -> Answer {
        self.aside.call(&me_as_caller(), call, None).unwrap().answer
    }

    fn read(&self) -> Bytes {
        match self.ask_aside(Call::Read { fid: *self.fid.lock(), offset: 0, length: FILE }) {
            Answer::Data { data, .. } => data,
            other => panic!("{other:?}"),
        }
    }

    fn lose(&self) {
        let mut state = self.state.write();
        state.0 += 1;
        let (fid, data) = (*self.fid.lock(), state.1.clone());
        let change = StatusChange { size: Some(data.len() as u64), ..StatusChange::default() };
        self.ask_aside(Call::SetStatus { fid, change });
        self.ask_aside(Call::Write {
            fid,
            offset: Some(0),
            data,
            stable: true,
            kill_privileges: false,
        });
    }
}

fn me_as_caller() -> Caller {
    Caller::ROOT
}

impl Remote for Lossy {
    fn call(
        &self,
        caller: &Caller,
        call: Call,
        cancel: Option<&Cancel>,
    ) -> Result<Reply, CallError> {
        // A cut is stable at once.
        let stable = matches!(
            call,
            Call::Commit { .. } | Call::CommitVolume { .. } | Call::SetStatus { .. }
        );
        let (shared, mut alone) =
            if stable { (None, Some(self.state.write())) } else { (Some(self.state.read()), None) };
        let life = shared.as_ref().map_or_else(|| alone.as_ref().unwrap().0, |state| state.0);
        let mut result = self.session.call(caller, call, cancel);
        if let Ok(Reply {
            answer: Answer::Written { verifier, .. } | Answer::Committed { verifier },
            ..
        }) = &mut result
        {
            *verifier = BootVerifier(life);
        }
        if let (Some(state), Ok(_)) = (&mut alone, &result) {
            state.1 = self.read();
        }
        result
    }

    fn chain(&self, caller: &Caller, calls: Vec<Call>) -> Vec<Result<Reply, CallError>> {
        assert!(calls.iter().all(|call| !call.changes()), "there are no delegations");
        self.session.chain(caller, calls)
    }

    fn set_events(&self, events: Arc<dyn Events>) {
        self.session.set_events(events);
    }

    fn passes_descriptors(&self) -> bool {
        false
    }
}

const FILE: u32 = 64;

#[test]
fn du4_the_last_bytes_written_survive_any_loss() {
    for seed in 0..20 {
        let server = TestServer::in_memory();
        let attach = |client| server.loopback.attach(ClientId(client), 1).unwrap();
        let state = RwLock::new((1, Bytes::new()));
        let lossy = Arc::new(Lossy {
            session: attach(1),
            aside: attach(2),
            fid: Mutex::new(server.root),
            state,
        });
        let config = VenusConfig {
            delegations: false,
            dirty_age: Duration::from_millis(1),
            uncommitted_bytes_max: 24,
            ..VenusConfig::default()
        };
        let venus = Venus::new(Arc::clone(&lossy) as Arc<dyn Remote>, config).unwrap();
        let (entry, opened) =
            venus.create(&me(), server.root, &name("f"), 0o644, false, RW).unwrap();
        let (fid, handle) = (entry.status.fid, opened.handle);
        *lossy.fid.lock() = fid;
        let (over, mut losses) = (AtomicBool::new(false), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    is_done(&venus.syncfs(&me(), server.root));
                }
            });
            scope.spawn(|| {
                while losses == 0 || !over.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_micros(700));
                    lossy.lose();
                    losses += 1;
                }
            });
            let _over = Over(&over);
            write_and_compare(seed, &venus, &lossy, (fid, handle));
        });
        venus.release(&me(), handle, None).unwrap();
        venus.shutdown().unwrap();
    }
}

/// One application, which records its writes.
fn write_and_compare(
    seed: u64,
    venus: &Venus,
    lossy: &Lossy,
    (fid, handle): (Fid, venus::OpenHandle),
) {
    let mut random = SmallRng::seed_from_u64(seed);
    let (mut model, mut compared): (Vec<u8>, u32) = Default::default();
    for step in 0..400 {
        match random.random_range(0..20) {
            0 => {
                let size = random.random_range(0..=model.len());
                let change = StatusChange { size: Some(size as u64), ..StatusChange::default() };
                venus.setattr(&me(), fid, change).unwrap();
                model.truncate(size);
            }
            1..=3 => {
                if is_done(&venus.fsync(&me(), handle)) {
                    let stable = lossy.state.read().1.clone();
                    assert!(
                        stable == model,
                        "seed {seed}, step {step}: {stable:?} is stable, {model:?} was written"
                    );
                    compared += 1;
                }
            }
            4..=8 => venus.flush(&me(), handle, None).unwrap(),
            _ => {
                let at = random.random_range(0..=model.len().min(FILE as usize - 8));
                let data = vec![random.random::<u8>(); random.random_range(1..=8)];
                model.resize(model.len().max(at + data.len()), 0);
                model[at..at + data.len()].copy_from_slice(&data);
                venus.write(&me(), handle, at as u64, data.into(), false).unwrap();
            }
        }
    }
    assert!(compared > 0, "seed {seed}: no fsync came through");
}

/// A commit that finds the server restarted again and again gives up with an error.
fn is_done(result: &Result<(), Error>) -> bool {
    assert!(matches!(result, Ok(()) | Err(Error::TimedOut)), "{result:?}");
    result.is_ok()
}
