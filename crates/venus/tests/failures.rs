//! Failures: full servers, servers that lose data, lost leases, restarts; and the state that the
//! client must retain.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Notified, RO, RW, TestServer, me, name};
use bytes::Bytes;
use client::{CallError, Cancel, Remote, Reply};
use parking_lot::Mutex;
use store::VolumeQuota;
use types::{
    Answer, BootVerifier, ByteRange, Call, Caller, Fault, LockFamily, LockMode, LockOwner,
    StatusChange,
};
use venus::{Error, RequestContext, VenusConfig};

const FULL: Error = Error::Fault(Fault::NoSpace);

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn refuse_writes(client: &crate::common::Client, with: Fault) {
    client.wire.set_before(move |call| match call {
        Call::Write { .. } => Some(Err(CallError::Fault(with))),
        _ => None,
    });
}

#[test]
fn a_write_past_the_longest_file_is_refused_itself() {
    let server = TestServer::in_memory();
    let client = server.client(1);
    let (fid, handle) = client.create("f");
    client.write(handle, 0, b"data");
    let write = |offset| client.venus.write(&me(), handle, offset, Bytes::from_static(b"x"), false);
    // The server's disk stores files of 16 TiB.
    assert_eq!(write((16 << 40) - 1).map(|wrote| wrote.count), Ok(1));
    assert_eq!(write(32 << 40), Err(Error::Fault(Fault::TooBig)));
    assert_eq!(write(i64::MAX as u64 - 1), Err(Error::Fault(Fault::TooBig)));
    // The refused bytes are not a part of the file.
    assert_eq!(client.venus.fsync(&me(), handle), Ok(()));
    assert_eq!(client.venus.getattr(&me(), fid).unwrap().status.size, 16 << 40);
    assert_eq!(client.venus.lseek(&me(), handle, 0, types::SeekWhat::Data), Ok(0));
    assert_eq!(&client.read(handle, 0, 4)[..], b"data");
}

#[test]
fn a_failed_background_write_is_reported_once_per_handle() {
    let server = TestServer::in_memory();
    let client = server.client(1);
    let (fid, first) = client.create("f");
    let second = client.venus.open(&me(), fid, RW).unwrap().handle;
    refuse_writes(&client, Fault::Medium);
    client.write(first, 0, b"lost");
    let failed = Error::Fault(Fault::Medium);
    assert_eq!(client.venus.flush(&me(), first, None), Err(failed.clone()));
    assert_eq!(client.venus.flush(&me(), first, None), Ok(()), "once");
    client.wire.clear();
    assert_eq!(client.venus.write(&me(), second, 0, Bytes::from_static(b"x"), false), Err(failed));
    assert!(
        client.venus.write(&me(), second, 0, Bytes::from_static(b"y"), false).is_ok(),
        "once for this one too"
    );
    client.venus.flush(&me(), second, None).unwrap();
    let third = client.venus.open(&me(), fid, RO).unwrap().handle;
    assert_eq!(
        client.venus.fsync(&me(), third),
        Ok(()),
        "what was before its time is not its business"
    );
    assert_eq!(&client.read(third, 0, 10)[..], b"y", "what failed is gone");
}

#[test]
fn once_the_server_is_full_the_error_comes_at_the_write() {
    let server = TestServer::in_memory();
    let client = server.client(1);
    let (_, handle) = client.create("f");
    refuse_writes(&client, Fault::NoSpace);
    client.write(handle, 0, b"behind");
    assert_eq!(client.venus.fsync(&me(), handle), Err(FULL));
    assert_eq!(
        client.venus.write(&me(), handle, 0, Bytes::from_static(b"through"), false),
        Err(FULL)
    );
    client.wire.clear();
    client.write(handle, 0, b"fits");
    assert_eq!(client.wire.count("Write"), 3, "sent before the write returned");
    assert_eq!(client.venus.flush(&me(), handle, None), Ok(()));
}

#[test]
fn an_exceeded_quota_is_reported_at_close_or_at_the_write() {
    let server = TestServer::with_quota(VolumeQuota { bytes: 3 << 20, files: 0 });
    let client = server.client(1);
    let (_, handle) = client.create("f");
    let chunk = Bytes::from(vec![5; 1 << 20]);
    let mut errors = Vec::new();
    for i in 0..6u64 {
        errors.extend(client.venus.write(&me(), handle, i << 20, chunk.clone(), false).err());
    }
    errors.extend(client.venus.flush(&me(), handle, None).err());
    assert!(!errors.is_empty());
    assert!(errors.iter().all(|error| *error == Error::Fault(Fault::QuotaExceeded)), "{errors:?}");
    let volume = client.venus.control().statfs(&me(), client.root).unwrap();
    assert!(volume.used_bytes <= 3 << 20);
}

type Writes = Arc<Mutex<Vec<(u64, Bytes)>>>;

/// Answers with chosen boot verifiers, and forgets writes like a machine that lost its power.
fn fragile(client: &crate::common::Client) -> (Arc<AtomicU64>, Writes) {
    let boot = Arc::new(AtomicU64::new(1));
    let written = Arc::new(Mutex::new(Vec::new()));
    let (seen, now) = (written.clone(), boot.clone());
    client.wire.set_after(move |call, result| {
        let now = BootVerifier(now.load(Ordering::SeqCst));
        match (call, result) {
            (
                Call::Write { offset: Some(offset), data, .. },
                Ok(Reply { answer: Answer::Written { verifier, .. }, .. }),
            ) => {
                seen.lock().push((*offset, data.clone()));
                *verifier = now;
            }
            (_, Ok(Reply { answer: Answer::Committed { verifier }, .. })) => *verifier = now,
            _ => {}
        }
    });
    (boot, written)
}

#[test]
fn what_a_server_lost_before_the_commit_is_sent_again() {
    let server = TestServer::in_memory();
    let client = server.remote_client(1);
    let (_, handle) = client.create("f");
    let (boot, written) = fragile(&client);
    client.write(handle, 0, b"aaaa");
    client.venus.flush(&me(), handle, None).unwrap();
    client.write(handle, 2, b"bb");
    client.venus.flush(&me(), handle, None).unwrap();
    written.lock().clear();
    boot.store(2, Ordering::SeqCst);
    client.venus.fsync(&me(), handle).unwrap();
    assert_eq!(*written.lock(), [(0, Bytes::from_static(b"aabb"))], "once, as it was last");
    written.lock().clear();
    client.venus.fsync(&me(), handle).unwrap();
    boot.store(3, Ordering::SeqCst);
    client.venus.fsync(&me(), handle).unwrap();
    assert!(written.lock().is_empty(), "what is stable is not sent again");
}

#[test]
fn du4_a_write_to_a_new_instance_resends_the_earlier_ones() {
    let server = TestServer::in_memory();
    let client = server.remote_client(1);
    let (_, handle) = client.create("f");
    let (boot, written) = fragile(&client);
    client.write(handle, 0, b"aaaa");
    client.venus.flush(&me(), handle, None).unwrap();
    boot.store(2, Ordering::SeqCst);
    written.lock().clear();
    client.write(handle, 2, b"bbbb");
    client.venus.fsync(&me(), handle).unwrap();
    let mut sent = written.lock().clone();
    sent.sort();
    assert_eq!(sent, [(0, Bytes::from_static(b"aa")), (2, Bytes::from_static(b"bbbb"))]);
}

#[test]
fn bytes_cut_off_are_not_sent_again() {
    let server = TestServer::in_memory();
    let client = server.remote_client(1);
    let (fid, handle) = client.create("f");
    let (boot, written) = fragile(&client);
    client.write(handle, 0, b"aaaa");
    let change = StatusChange { size: Some(1), ..StatusChange::default() };
    client.venus.setattr(&me(), fid, change).unwrap();
    boot.store(2, Ordering::SeqCst);
    written.lock().clear();
    client.venus.fsync(&me(), handle).unwrap();
    assert_eq!(*written.lock(), [(0, Bytes::from_static(b"a"))]);
}

#[test]
fn on_one_machine_no_unstable_bytes_are_stored() {
    let server = TestServer::in_memory();
    let client = server.client(1);
    let (_, handle) = client.create("f");
    let (boot, written) = fragile(&client);
    client.write(handle, 0, b"aaaa");
    client.venus.flush(&me(), handle, None).unwrap();
    boot.store(2, Ordering::SeqCst);
    written.lock().clear();
    client.venus.fsync(&me(), handle).unwrap();
    assert!(written.lock().is_empty());
}

#[test]
fn too_much_uncommitted_data_is_committed_in_the_background() {
    let server = TestServer::in_memory();
    let config = VenusConfig { uncommitted_bytes_max: 1 << 20, ..VenusConfig::default() };
    let client = server.client_with(1, false, config);
    let (_, handle) = client.create("f");
    for i in 0..4u64 {
        client.write(handle, i << 19, &vec![1; 1 << 19]);
    }
    client.venus.flush(&me(), handle, None).unwrap();
    eventually("a commit", || client.wire.count("CommitVolume") > 0);
}

#[test]
fn an_interrupted_flush_keeps_the_data() {
    let server = TestServer::in_memory();
    let client = server.client(1);
    let (_, handle) = client.create("f");
    client.write(handle, 0, b"data");
    client
        .wire
        .set_before(|call| matches!(call, Call::Write { .. }).then_some(Err(CallError::Cancelled)));
    let cancel = Cancel::new();
    cancel.cancel();
    let request = RequestContext { cancel: Some(&cancel), ..me() };
    assert_eq!(client.venus.flush(&request, handle, None), Err(Error::Interrupted));
    client.wire.clear();
    client.venus.flush(&me(), handle, None).unwrap();
    assert_eq!(&client.content("f")[..], b"data");
}

#[test]
fn a_lost_lease_voids_the_cache_and_the_locks() {
    let server = TestServer::in_memory();
    let client = server.client(1);
    let (fid, handle) = client.create("f");
    let (_, other) = client.create("other");
    let owner = LockOwner(5);
    client
        .venus
        .locks()
        .setlk(
            &me(),
            handle,
            owner,
            1,
            LockFamily::Posix,
            ByteRange::ALL,
            LockMode::Exclusive,
            false,
        )
        .unwrap();
    client.wire.take();
    client.wire.drops_renewals.store(true, Ordering::SeqCst);
    let events = client.wire.events.lock().clone().unwrap();
    events.on_lease_lost();
    assert!(client.kernel.0.lock().contains(&Notified::All));
    assert_eq!(
        client.venus.write(&me(), handle, 0, Bytes::from_static(b"x"), false),
        Err(Error::LockLost)
    );
    assert_eq!(client.venus.read(&me(), handle, 0, 1), Err(Error::LockLost), "and it stays so");
    client.write(other, 0, b"fine");
    assert!(
        !client.venus.getattr(&me(), fid).unwrap().cacheable,
        "nothing is trusted before the next renewal"
    );
    client.venus.getattr(&me(), fid).unwrap();
    assert_eq!(client.wire.count("GetStatus"), 2);
    client.wire.drops_renewals.store(false, Ordering::SeqCst);
    client.wire.session.renew();
    client.venus.getattr(&me(), fid).unwrap();
    client.wire.take();
    assert!(client.venus.getattr(&me(), fid).unwrap().cacheable);
    assert!(client.wire.take().is_empty());
}

#[test]
fn cb4_the_lease_ends_without_a_message() {
    let server = TestServer::in_memory();
    let config = VenusConfig { lease: Duration::from_millis(300), ..VenusConfig::default() };
    let client = server.client_with(1, true, config);
    let (fid, _) = client.create("f");
    assert!(client.venus.getattr(&me(), fid).unwrap().cacheable);
    client.wire.drops_renewals.store(true, Ordering::SeqCst);
    eventually("the kernel is notified", || client.kernel.0.lock().contains(&Notified::All));
    assert!(!client.venus.getattr(&me(), fid).unwrap().cacheable);
    client.wire.drops_renewals.store(false, Ordering::SeqCst);
    client.wire.session.renew();
    client.venus.getattr(&me(), fid).unwrap();
    assert!(client.venus.getattr(&me(), fid).unwrap().cacheable, "trusted again");
}

/// Answers a server's reclaim calls after its restart.
struct Reclaim<'a> {
    calls: Mutex<Vec<Call>>,
    refuse: bool,
    wire: &'a crate::common::Wire,
}

impl Remote for Reclaim<'_> {
    fn call(&self, _: &Caller, call: Call, _: Option<&Cancel>) -> Result<Reply, CallError> {
        self.calls.lock().push(call);
        if self.refuse { Err(CallError::Fault(Fault::Locked)) } else { Ok(Answer::Done.into()) }
    }
    fn chain(&self, caller: &Caller, calls: Vec<Call>) -> Vec<Result<Reply, CallError>> {
        self.wire.chain(caller, calls)
    }
    fn set_events(&self, _: Arc<dyn client::Events>) {}
    fn passes_descriptors(&self) -> bool {
        false
    }
}

#[test]
fn after_a_restart_locks_and_holds_are_claimed() {
    for refuse in [false, true] {
        let server = TestServer::in_memory();
        let client = server.client(1);
        let (fid, handle) = client.create("f");
        let (gone, unlinked) = client.create("gone");
        client.venus.changes().unlink(&me(), client.root, &name("gone")).unwrap();
        let range = ByteRange { start: 3, end: 9 };
        let owner = LockOwner(5);
        client
            .venus
            .locks()
            .setlk(&me(), handle, owner, 77, LockFamily::Posix, range, LockMode::Exclusive, false)
            .unwrap();
        let events = client.wire.events.lock().clone().unwrap();
        let reclaim = Reclaim { calls: Mutex::default(), refuse, wire: &client.wire };
        events.on_server_restarted(&reclaim);
        let calls = reclaim.calls.lock();
        let lock = Call::Lock {
            fid,
            owner,
            pid: 77,
            family: LockFamily::Posix,
            range,
            mode: LockMode::Exclusive,
            wait: false,
            reclaim: true,
        };
        let held = |call: &Call| matches!(call, Call::Hold { fids } if fids.contains(&gone));
        assert!(calls.contains(&lock) && calls.iter().any(held), "{calls:?}");
        assert!(client.kernel.0.lock().contains(&Notified::All));
        let wrote = client.venus.write(&me(), handle, 0, Bytes::from_static(b"x"), false);
        assert_eq!(wrote.is_err(), refuse, "a lock that was not had again is lost");
        client.write(unlinked, 0, b"y");
    }
}

#[test]
fn shutdown_sends_everything_and_lets_go() {
    let server = TestServer::in_memory();
    let client = server.remote_client(1);
    let (_, handle) = client.create("f");
    client.write(handle, 0, b"last words");
    client.create("gone");
    client.venus.changes().unlink(&me(), client.root, &name("gone")).unwrap();
    client.venus.shutdown().unwrap();
    assert_eq!(
        (
            client.wire.count("Write"),
            client.wire.count("CommitVolume"),
            client.wire.count("Unhold")
        ),
        (1, 1, 1)
    );
    drop(client);
    assert_eq!(&server.client(2).content("f")[..], b"last words");
}

#[test]
fn writers_wait_when_too_much_waits_here() {
    let server = TestServer::in_memory();
    let config = VenusConfig {
        dirty_bytes_max: 4 << 20,
        file_dirty_bytes_max: 2 << 20,
        ..VenusConfig::default()
    };
    let client = server.client_with(1, true, config);
    let (open, most) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    // Bytes accepted and not yet executed by the server.
    let here = open.clone();
    client.wire.set_before(move |call| {
        if let Call::Write { data, .. } = call {
            std::thread::sleep(Duration::from_millis(2));
            here.fetch_sub(data.len() as i64, Ordering::SeqCst);
        }
        None
    });
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (client, open, most) = (&client, &open, &most);
            scope.spawn(move || {
                let (_, handle) = client.create(&format!("f{n}"));
                for i in 0..64u64 {
                    client.write(handle, i << 17, &[n; 1 << 17]);
                    most.fetch_max(
                        open.fetch_add(1 << 17, Ordering::SeqCst) + (1 << 17),
                        Ordering::SeqCst,
                    );
                }
                client.close(handle);
            });
        }
    });
    // One write of each thread may exceed the limit together, and a chunk counts until its call
    // returned.
    let most = most.load(Ordering::SeqCst);
    assert!(most <= (4 << 20) + 4 * (1 << 17), "{most} bytes waited");
    for n in 0..4u8 {
        assert!(client.content(&format!("f{n}")).iter().all(|byte| *byte == n));
    }
}

#[test]
fn groups_are_looked_up_only_when_they_decide() {
    let server = TestServer::in_memory();
    let client = server.client(1);
    let dir = client
        .venus
        .changes()
        .make(&me(), client.root, &name("d"), types::NewKind::Directory, 0o770)
        .unwrap()
        .status
        .fid;
    let change = StatusChange { gid: Some(42), ..StatusChange::default() };
    client.venus.setattr(&me(), dir, change).unwrap();
    let asked = AtomicUsize::new(0);
    let caller = Caller { uid: 1000, gid: 1000, groups: None, who: types::RequestIdentity::NAMED };
    let groups = || -> Box<[u32]> {
        asked.fetch_add(1, Ordering::SeqCst);
        Box::new([7, 42])
    };
    let request = RequestContext { caller: &caller, cancel: None, groups: Some(&groups) };
    let file = name("f");
    client.venus.create(&request, dir, &file, 0o600, true, RW).unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    client
        .venus
        .setattr(&request, dir, StatusChange { uid: Some(3), ..StatusChange::default() })
        .unwrap_err();
}

#[test]
fn an_unknown_outcome_drops_the_directory_from_the_cache() {
    let server = TestServer::in_memory();
    let client = server.client(1);
    client.list(client.root, true);
    client.wire.set_after(|call, result| {
        if matches!(call, Call::Make { .. }) {
            *result = Err(CallError::TimedOut);
        }
    });
    let made = client.venus.create(&me(), client.root, &name("f"), 0o644, true, RW);
    assert_eq!(made.unwrap_err(), Error::TimedOut);
    client.wire.clear();
    assert!(client.find("f").is_some(), "the server was asked");
}
