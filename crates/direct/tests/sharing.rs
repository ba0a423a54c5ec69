//! Opens, keys and locks of programs: conflicts, restarts of the server, lost leases, programs that
//! are killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::{BreakAck, Events, Remote};
use parking_lot::Mutex;
use rialto_client::{
    ByteRange, DataUse, DirectCell, DirectError, DirectFile, FileLock, Group, LockMode, LockOwner,
    MakeFile, OpenHow, ShareKey, status,
};
use types::{BreakItem, Call, Caller, Fault, LockFamily, Time};

use crate::proxy::Proxy;
use crate::{Served, buffer, one, options};

const HOLDER: &str = "RIALTO_DIRECT_HOLDER";
const FIRST: ByteRange = ByteRange { start: 0, end: 0 };
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);
/// Longer than any machine needs, and far below the lease of servers that are not set otherwise.
const SOON: Option<Duration> = Some(Duration::from_secs(10));

fn how(access: DataUse, deny: DataUse) -> OpenHow {
    OpenHow { deny, make: MakeFile::IfMissing(0o644), ..OpenHow::new(access) }
}

fn alone() -> OpenHow {
    how(DataUse::Both, DataUse::Both)
}

fn fault<T>(result: Result<T, DirectError>) -> Option<Fault> {
    match result {
        Err(DirectError::Refused(fault)) => Some(fault),
        Err(other) => panic!("{other:?}"),
        Ok(_) => None,
    }
}

fn put(cell: &DirectCell, file: &DirectFile, content: &[u8]) -> Result<(), DirectError> {
    let memory = cell.memory(4096).unwrap();
    let group = Group::new();
    file.write(&group, buffer(&memory, content), 0, 1).map_err(|refused| refused.error)?;
    one(&group).result.map(drop)
}

fn get(cell: &DirectCell, file: &DirectFile) -> Result<Vec<u8>, DirectError> {
    let memory = cell.memory(4096).unwrap();
    let group = Group::new();
    file.read(&group, memory.buffer(100).unwrap(), 0, 1).map_err(|refused| refused.error)?;
    let done = one(&group);
    Ok(done.buffer[..done.result?.bytes].to_vec())
}

fn byte(at: u64) -> ByteRange {
    ByteRange { start: at, end: at }
}

#[test]
fn opens_of_programs_exclude_each_other_until_closed() {
    let served = Served::new();
    let (a, b, session) = (served.cell(), served.cell(), served.session());
    let mine = DirectFile::open_with(&a, "file", &alone()).unwrap();
    put(&a, &mine, b"mine").unwrap();
    for access in [DataUse::Read, DataUse::Write, DataUse::Both] {
        let theirs = DirectFile::open_with(&b, "file", &how(access, DataUse::Nothing));
        assert_eq!(fault(theirs.map(drop)), Some(Fault::ShareConflict));
    }
    let plain = DirectFile::open(&b, "file").unwrap();
    assert_eq!(fault(get(&b, &plain)), Some(Fault::ShareConflict), "it has no open");
    let fid = status(&b, "file", true).unwrap().fid;
    let read = || session.call(&Caller::ROOT, Call::Read { fid, offset: 0, length: 9 }, None);
    assert_eq!(read().unwrap_err().fault(), Some(Fault::ShareConflict));

    mine.downgrade(DataUse::Read, DataUse::Write).unwrap();
    assert_eq!(fault(mine.downgrade(DataUse::Both, DataUse::Nothing)), Some(Fault::Invalid));
    assert_eq!(fault(plain.downgrade(DataUse::Read, DataUse::Nothing)), Some(Fault::Invalid));
    assert_eq!(get(&b, &plain).unwrap(), b"mine");
    assert!(read().is_ok());
    assert_eq!(fault(put(&b, &plain, b"x")), Some(Fault::ShareConflict));

    let clone = mine.clone();
    drop(mine);
    assert_eq!(fault(put(&b, &plain, b"x")), Some(Fault::ShareConflict), "a clone has it open");
    let other = clone.clone();
    clone.close().unwrap();
    put(&b, &plain, b"theirs").unwrap();
    assert!(matches!(get(&a, &other), Err(DirectError::Closed)));
    assert!(matches!(other.close(), Err(DirectError::Closed)), "it is closed once");
    plain.close().unwrap();

    let again = DirectFile::open_with(&a, "file", &alone()).unwrap();
    drop(again);
    DirectFile::open_with(&b, "file", &alone()).unwrap().close().unwrap();
    let made = OpenHow { make: MakeFile::Always(0o600), ..alone() };
    assert_eq!(fault(DirectFile::open_with(&a, "file", &made).map(drop)), Some(Fault::Exists));
    let never = OpenHow { make: MakeFile::Never, ..alone() };
    assert_eq!(fault(DirectFile::open_with(&a, "no", &never).map(drop)), Some(Fault::NotFound));
}

#[test]
fn programs_with_one_key_share_a_file_and_others_do_not() {
    let served = Served::new();
    let (a, b, c) = (served.cell(), served.cell(), served.cell());
    let keyed =
        |byte| OpenHow { key: Some(ShareKey([byte; 16])), ..how(DataUse::Both, DataUse::Nothing) };
    let first = DirectFile::open_with(&a, "file", &keyed(1)).unwrap();
    let second = DirectFile::open_with(&b, "file", &keyed(1)).unwrap();
    put(&a, &first, b"one").unwrap();
    assert_eq!(get(&b, &second).unwrap(), b"one");
    let other = DirectFile::open_with(&c, "file", &keyed(2)).map(drop);
    assert_eq!(fault(other), Some(Fault::KeyConflict));
    let plain = DirectFile::open(&c, "file").unwrap();
    assert_eq!(fault(get(&c, &plain)), Some(Fault::KeyConflict));
    first.close().unwrap();
    assert_eq!(fault(get(&c, &plain)), Some(Fault::KeyConflict), "the second has it open");
    second.close().unwrap();
    assert_eq!(get(&c, &plain).unwrap(), b"one");
}

#[test]
fn locks_of_programs_and_sessions_meet() {
    let served = Served::new();
    let (a, b, session) = (served.cell(), served.cell(), served.session());
    let file = DirectFile::create(&a, "file", 0o644).unwrap();
    let theirs = DirectFile::open(&b, "file").unwrap();
    let fid = status(&a, "file", true).unwrap().fid;
    let session_locks = |mode, range| {
        let (owner, family) = (LockOwner(1), LockFamily::Posix);
        let call =
            Call::Lock { fid, owner, pid: 7, family, range, mode, wait: false, reclaim: false };
        session.call(&Caller::ROOT, call, None).map(drop).map_err(|error| error.fault())
    };
    use LockMode::{Exclusive, Shared};
    let lock = file.lock(ByteRange { start: 0, end: 9 }, Shared, AT_ONCE).unwrap();
    let shared = theirs.lock(byte(5), Shared, AT_ONCE).unwrap();
    assert_eq!(fault(theirs.lock(byte(5), Exclusive, AT_ONCE).map(drop)), Some(Fault::Locked));
    assert_eq!(session_locks(Exclusive, byte(0)), Err(Some(Fault::Locked)));
    session_locks(Exclusive, byte(10)).unwrap();
    assert_eq!(fault(file.lock(byte(10), Shared, AT_ONCE).map(drop)), Some(Fault::Locked));
    let found = theirs.test_lock(LockOwner(1), byte(9), Exclusive).unwrap().unwrap();
    assert_eq!((found.range, found.mode), (lock.range(), Shared));
    drop(lock);
    assert_eq!(theirs.test_lock(LockOwner(1), byte(9), Exclusive).unwrap(), None);
    shared.unlock().unwrap();
    drop(file.lock(byte(5), Exclusive, AT_ONCE).unwrap());
    theirs.lock(byte(5), Exclusive, AT_ONCE).unwrap().unlock().unwrap();
    // Two locks of one file have two owners.
    let _one = file.lock(FIRST, Exclusive, AT_ONCE).unwrap();
    assert_eq!(fault(file.lock(FIRST, Exclusive, AT_ONCE).map(drop)), Some(Fault::Locked));
}

#[test]
fn a_lock_waits_as_long_as_it_was_told() {
    let served = Served::new();
    let (a, b) = (served.cell(), served.cell());
    let file = DirectFile::create(&a, "file", 0o644).unwrap();
    let theirs = DirectFile::open(&b, "file").unwrap();
    let lock = file.lock(FIRST, LockMode::Exclusive, None).unwrap();
    let began = Instant::now();
    let within = Some(Duration::from_millis(150));
    let refused = theirs.lock(FIRST, LockMode::Shared, within).map(drop);
    assert_eq!(fault(refused), Some(Fault::Locked));
    assert!(began.elapsed() >= Duration::from_millis(150), "{:?}", began.elapsed());
    for within in [SOON, None] {
        let lock = file.lock(byte(1), LockMode::Exclusive, AT_ONCE).unwrap();
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| theirs.lock(byte(1), LockMode::Shared, within));
            std::thread::sleep(Duration::from_millis(50));
            assert!(!waiting.is_finished());
            drop(lock);
            waiting.join().unwrap().unwrap().unlock().unwrap();
        });
    }
    // The one that gave up left nothing behind.
    lock.unlock().unwrap();
    drop(file.lock(FIRST, LockMode::Exclusive, AT_ONCE).unwrap());
}

#[test]
fn an_owners_locks_replace_each_other_byte_by_byte() {
    let served = Served::new();
    let (a, b) = (served.cell(), served.cell());
    let file = DirectFile::create(&a, "file", 0o644).unwrap();
    let theirs = DirectFile::open(&b, "file").unwrap();
    let (me, range) = (LockOwner(9), ByteRange { start: 10, end: 19 });
    use LockMode::{Exclusive, Shared};
    let free = |at, mode| theirs.test_lock(LockOwner(1), byte(at), mode).unwrap().is_none();
    file.lock_as(me, range, Shared, AT_ONCE).unwrap();
    file.lock_as(me, byte(12), Exclusive, AT_ONCE).unwrap();
    assert!(free(11, Shared) && !free(11, Exclusive) && !free(12, Shared));
    file.lock_as(me, range, Shared, AT_ONCE).unwrap();
    assert!(free(12, Shared));
    file.unlock_as(me, byte(15)).unwrap();
    assert!(free(15, Exclusive) && !free(14, Exclusive) && !free(16, Exclusive));
    // The same number is another owner's through another file.
    let again = DirectFile::open(&a, "file").unwrap();
    assert_eq!(fault(again.lock_as(me, range, Exclusive, AT_ONCE)), Some(Fault::Locked));
    file.close().unwrap();
    again.lock_as(me, range, Exclusive, AT_ONCE).unwrap();
}

#[test]
fn opens_and_locks_hold_over_a_killed_server() {
    let dir = tempfile::tempdir().unwrap();
    crate::make_partition(&dir.path().join("vicepa"));
    let mut child = crate::spawn(dir.path());
    let socket = dir.path().join("socket");
    crate::wait_for_socket(&socket);
    let connect = || DirectCell::connect(options(client::Endpoint::Unix(socket.clone()))).unwrap();
    let (a, b) = (connect(), connect());
    let opened = DirectFile::open_with(&a, "opened", &alone()).unwrap();
    put(&a, &opened, b"mine").unwrap();
    opened.downgrade(DataUse::Both, DataUse::Write).unwrap();
    let locked = DirectFile::create(&a, "locked", 0o644).unwrap();
    let lock = locked.lock(FIRST, LockMode::Exclusive, AT_ONCE).unwrap();
    let theirs = DirectFile::open(&b, "locked").unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let intruder = threads.spawn(|| {
            let mut tries = 0_u32;
            while !over.load(Ordering::SeqCst) {
                let write = how(DataUse::Write, DataUse::Nothing);
                let open = DirectFile::open_with(&b, "opened", &write).map(drop);
                assert_eq!(fault(open), Some(Fault::ShareConflict));
                let lock = theirs.lock(FIRST, LockMode::Shared, AT_ONCE).map(drop);
                assert_eq!(fault(lock), Some(Fault::Locked));
                tries += 1;
            }
            tries
        });
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(100));
            child.kill().unwrap();
            child.wait().unwrap();
            child = crate::spawn(dir.path());
            assert_eq!(get(&a, &opened).unwrap(), b"mine");
            put(&a, &locked, b"under the lock").unwrap();
        }
        over.store(true, Ordering::SeqCst);
        assert!(intruder.join().unwrap() > 3);
    });
    lock.unlock().unwrap();
    drop(theirs.lock(FIRST, LockMode::Exclusive, AT_ONCE).unwrap());
    opened.close().unwrap();
    DirectFile::open_with(&b, "opened", &alone()).unwrap().close().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A cell with this lease, and a proxy before its server. The server has no other address in the
/// network, at which a client would find it when the proxy is closed.
fn behind_proxy(lease: Duration) -> (Served, Proxy) {
    let served = Served::with(|config| {
        config.tcp_listen = None;
        config.lease = lease;
        config.lease_grace = Duration::from_millis(100);
    });
    let proxy = Proxy::start(served.unix(), 7);
    (served, proxy)
}

#[test]
fn a_lost_lease_loses_opens_and_locks_and_says_so() {
    let (served, proxy) = behind_proxy(Duration::from_secs(2));
    let (cut, other) = (DirectCell::connect(options(proxy.endpoint())).unwrap(), served.cell());
    let opened = DirectFile::open_with(&cut, "opened", &alone()).unwrap();
    let locked = DirectFile::create(&cut, "locked", 0o644).unwrap();
    let lock = locked.lock(FIRST, LockMode::Exclusive, AT_ONCE).unwrap();
    let plain = DirectFile::create(&cut, "plain", 0o644).unwrap();
    put(&cut, &opened, b"mine").unwrap();
    proxy.close_down();
    let theirs = DirectFile::open(&other, "locked").unwrap();
    let their_lock = theirs.lock(FIRST, LockMode::Exclusive, SOON).unwrap();
    let their_open = DirectFile::open_with(&other, "opened", &alone()).unwrap();
    put(&other, &their_open, b"theirs").unwrap();
    their_open.close().unwrap();
    their_lock.unlock().unwrap();
    proxy.open_up();
    for _ in 0..3 {
        assert!(matches!(put(&cut, &opened, b"x"), Err(DirectError::LostOpen)));
        assert!(matches!(get(&cut, &opened), Err(DirectError::LostOpen)));
        assert!(matches!(opened.set_size(0), Err(DirectError::LostOpen)));
        let less = opened.downgrade(DataUse::Read, DataUse::Nothing);
        assert!(matches!(less, Err(DirectError::LostOpen)));
        assert!(matches!(put(&cut, &locked, b"x"), Err(DirectError::LostLock)));
        let more = locked.lock(byte(9), LockMode::Shared, AT_ONCE).map(drop);
        assert!(matches!(more, Err(DirectError::LostLock)));
    }
    put(&cut, &plain, b"nothing was lost here").unwrap();
    assert!(matches!(lock.unlock(), Err(DirectError::LostLock)));
    assert!(matches!(put(&cut, &locked, b"x"), Err(DirectError::LostLock)), "until it is closed");
    assert!(matches!(locked.close(), Err(DirectError::LostLock)));
    assert!(matches!(opened.close(), Err(DirectError::LostOpen)));
    let again = DirectFile::open_with(&cut, "opened", &alone()).unwrap();
    assert_eq!(get(&cut, &again).unwrap(), b"theirs");
    let locked = DirectFile::open(&cut, "locked").unwrap();
    drop(locked.lock(FIRST, LockMode::Exclusive, AT_ONCE).unwrap());
}

#[test]
fn a_drop_while_the_server_is_away_takes_no_time() {
    let mut served = Served::new();
    let (a, b) = (served.cell(), served.cell());
    let opened = DirectFile::open_with(&a, "opened", &alone()).unwrap();
    let file = DirectFile::create(&a, "locked", 0o644).unwrap();
    let locks: Vec<FileLock> =
        (0..50).map(|at| file.lock(byte(at), LockMode::Exclusive, AT_ONCE).unwrap()).collect();
    served.crash();
    std::thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    drop((locks, opened));
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    served.start();
    let theirs = DirectFile::open(&b, "locked").unwrap();
    for at in 0..50 {
        drop(theirs.lock(byte(at), LockMode::Exclusive, SOON).unwrap());
    }
    DirectFile::open_with(&b, "opened", &alone()).unwrap().close().unwrap();
    drop(file.lock(byte(0), LockMode::Exclusive, SOON).unwrap());
}

/// The program that is killed: it opens and locks, says so, and waits.
#[test]
fn holding_program() {
    let Ok(socket) = std::env::var(HOLDER) else { return };
    let cell = DirectCell::connect(options(client::Endpoint::Unix(socket.into()))).unwrap();
    let _opened = DirectFile::open_with(&cell, "opened", &alone()).unwrap();
    let file = DirectFile::open(&cell, "locked").unwrap();
    let _lock = file.lock(FIRST, LockMode::Exclusive, AT_ONCE).unwrap();
    DirectFile::create(&cell, "ready", 0o644).unwrap();
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
}

#[test]
fn opens_and_locks_of_a_killed_program_end() {
    let (served, _proxy) = behind_proxy(Duration::from_secs(2));
    let cell = served.cell();
    let file = DirectFile::create(&cell, "locked", 0o644).unwrap();
    let socket = served.dir.path().join("socket");
    let mut holder = crate::spawn_test("sharing::holding_program", (HOLDER, &socket));
    let until = Instant::now() + Duration::from_secs(30);
    while status(&cell, "ready", true).is_err() {
        assert!(Instant::now() < until, "the program does not come so far");
        std::thread::sleep(Duration::from_millis(5));
    }
    let taken = file.lock(FIRST, LockMode::Shared, AT_ONCE).map(drop);
    assert_eq!(fault(taken), Some(Fault::Locked));
    let open = || DirectFile::open_with(&cell, "opened", &alone());
    assert_eq!(fault(open().map(drop)), Some(Fault::ShareConflict));
    holder.kill().unwrap();
    holder.wait().unwrap();
    file.lock(FIRST, LockMode::Exclusive, SOON).unwrap().unlock().unwrap();
    open().unwrap().close().unwrap();
}

#[test]
fn a_thousand_locks_hold_over_a_restart() {
    let mut served = Served::new();
    let (a, b) = (served.cell(), served.cell());
    let file = DirectFile::create(&a, "file", 0o644).unwrap();
    let lock = |at: u64| file.lock(byte(2 * at), LockMode::Exclusive, AT_ONCE).unwrap();
    let mut locks: Vec<FileLock> = (0..1000).map(lock).collect();
    locks.drain(500..600).for_each(drop);
    served.crash();
    served.start();
    // A question does not wait for the claims of others.
    file.status().unwrap();
    let theirs = DirectFile::open(&b, "file").unwrap();
    let mut free = 0;
    for at in 0..2000 {
        let found = theirs.test_lock(LockOwner(1), byte(at), LockMode::Shared).unwrap();
        let is_locked = at % 2 == 0 && !(1000..1200).contains(&at);
        assert_eq!(found.is_some(), is_locked, "{at}");
        free += u32::from(found.is_none());
    }
    assert_eq!(free, 1100);
    file.close().unwrap();
    drop(theirs.lock(ByteRange::ALL, LockMode::Exclusive, AT_ONCE).unwrap());
    drop(locks);
}

/// Threads of two programs add to a counter while the server is killed; each one excludes the
/// others by `alone`, which keeps them out as long as its value is there.
fn count_over_restarts<T>(alone: impl Fn(&DirectCell) -> Option<T> + Sync) {
    let mut served = Served::new();
    let cells = [served.cell(), served.cell()];
    let file = DirectFile::create(&cells[0], "counter", 0o644).unwrap();
    put(&cells[0], &file, &0_u64.to_le_bytes()).unwrap();
    let (over, counted) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|threads| {
        for cell in cells.iter().flat_map(|cell| [cell, cell]) {
            let (alone, over, counted) = (&alone, &over, &counted);
            threads.spawn(move || {
                let file = DirectFile::open(cell, "counter").unwrap();
                while !over.load(Ordering::SeqCst) {
                    let Some(held) = alone(cell) else { continue };
                    let before = u64::from_le_bytes(get(cell, &file).unwrap().try_into().unwrap());
                    put(cell, &file, &(before + 1).to_le_bytes()).unwrap();
                    drop(held);
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for _ in 0..6 {
            let (before, until) = (counted.load(Ordering::SeqCst), Instant::now());
            while counted.load(Ordering::SeqCst) < before + 40 {
                assert!(until.elapsed() < Duration::from_secs(60), "nothing goes on");
                std::thread::sleep(Duration::from_millis(5));
            }
            served.crash();
            served.start();
        }
        over.store(true, Ordering::SeqCst);
    });
    let found = u64::from_le_bytes(get(&cells[1], &file).unwrap().try_into().unwrap());
    assert_eq!(found, counted.load(Ordering::SeqCst));
}

#[test]
fn locks_exclude_each_other_while_the_server_restarts() {
    count_over_restarts(|cell| {
        let file = DirectFile::open(cell, "counter").unwrap();
        Some(file.lock(FIRST, LockMode::Exclusive, None).unwrap())
    });
}

#[test]
fn opens_exclude_each_other_while_the_server_restarts() {
    count_over_restarts(|cell| match DirectFile::open_with(cell, "gate", &alone()) {
        Ok(file) => Some(file),
        Err(DirectError::Refused(Fault::ShareConflict)) => {
            std::thread::sleep(Duration::from_millis(1));
            None
        }
        Err(error) => panic!("{error:?}"),
    });
}

/// A session that claims a lock which it never had, as a faulty program does.
#[derive(Default)]
struct Thief {
    claim: Mutex<Option<Call>>,
    has_it: AtomicBool,
}

impl Events for Thief {
    fn on_break(&self, _: &[BreakItem], ack: BreakAck) {
        ack.acknowledge();
    }

    fn on_renewed(&self, _: Time) {}

    fn on_lease_lost(&self) {}

    fn on_server_restarted(&self, reclaim: &dyn Remote) {
        let claim = self.claim.lock().clone().unwrap();
        let claimed = reclaim.call(&Caller::ROOT, claim, None);
        self.has_it.store(claimed.is_ok(), Ordering::SeqCst);
    }
}

#[test]
fn a_claim_that_comes_second_is_lost_and_says_so() {
    let (mut served, proxy) = behind_proxy(Duration::from_secs(15));
    let a = DirectCell::connect(options(proxy.endpoint())).unwrap();
    let (session, thief) = (served.session(), Arc::new(Thief::default()));
    session.set_events(Arc::clone(&thief) as _);
    let opened = DirectFile::open_with(&a, "opened", &alone()).unwrap();
    let file = DirectFile::create(&a, "file", 0o644).unwrap();
    let lock = file.lock(FIRST, LockMode::Exclusive, AT_ONCE).unwrap();
    let fid = status(&a, "file", true).unwrap().fid;
    *thief.claim.lock() = Some(Call::Lock {
        fid,
        owner: LockOwner(1),
        pid: 0,
        family: LockFamily::Posix,
        range: FIRST,
        mode: LockMode::Exclusive,
        wait: false,
        reclaim: true,
    });
    proxy.close_down();
    served.crash();
    served.start();
    let until = Instant::now() + Duration::from_secs(10);
    while !thief.has_it.load(Ordering::SeqCst) {
        assert!(Instant::now() < until, "no claim");
        std::thread::sleep(Duration::from_millis(5));
    }
    proxy.open_up();
    assert!(matches!(put(&a, &file, b"x"), Err(DirectError::LostLock)));
    put(&a, &opened, b"this was claimed").unwrap();
    assert!(matches!(lock.unlock(), Err(DirectError::LostLock)));
    opened.close().unwrap();
    assert!(matches!(file.close(), Err(DirectError::LostLock)));
}
