//! Delegations: the server executes the changes that were answered here, every client sees them in
//! time, and losses are reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::history::{Machine, Op, draw, draw_listed, only};
use crate::common::{Client, RW, TestServer, me, name};
use client::CallError;
use guard::Cps;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use store::VolumeQuota;
use types::{
    AllocateMode, Call, Caller, Fault, Fid, NewKind, PrincipalId, RenameMode, StatusChange,
};
use venus::{Error, LookupReply, OpenMode, RequestContext, VenusConfig};

const WO: OpenMode = OpenMode { read: false, write: true, append: false, truncate: false };

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Delegations come back soon, and nothing is sent before it must be.
fn eager() -> VenusConfig {
    VenusConfig {
        recall_pause: Duration::from_millis(1),
        dirty_age: Duration::from_secs(3600),
        ..VenusConfig::default()
    }
}

fn plain() -> VenusConfig {
    VenusConfig { delegations: false, ..VenusConfig::default() }
}

fn make_dir(client: &Client, dir: Fid, text: &str) -> Fid {
    client
        .venus
        .changes()
        .make(&me(), dir, &name(text), NewKind::Directory, 0o755)
        .unwrap()
        .status
        .fid
}

fn put(client: &Client, dir: Fid, text: &str, data: &[u8]) -> Fid {
    let (entry, opened) = client.venus.create(&me(), dir, &name(text), 0o644, true, WO).unwrap();
    client.write(opened.handle, 0, data);
    if !opened.quiet {
        client.venus.flush(&me(), opened.handle, None).unwrap();
    }
    client.venus.release(&me(), opened.handle, None).unwrap();
    entry.status.fid
}

fn find_in(client: &Client, dir: Fid, text: &str) -> Option<Fid> {
    match client.venus.lookup(&me(), dir, &name(text)).unwrap() {
        LookupReply::Entry(entry) => Some(entry.status.fid),
        LookupReply::Absent { .. } => None,
    }
}

fn content_of(client: &Client, fid: Fid) -> Vec<u8> {
    let handle = client.venus.open(&me(), fid, crate::common::RO).unwrap().handle;
    let data = client.read(handle, 0, 1 << 20);
    client.close(handle);
    data.to_vec()
}

#[test]
fn a_tree_is_made_changed_and_removed_without_a_word() {
    let server = TestServer::in_memory();
    let client = server.client_with(1, true, eager());
    let top = make_dir(&client, client.root, "top");
    let first = make_dir(&client, top, "first");
    client.wire.take();
    for i in 0..20 {
        let dir = make_dir(&client, first, &format!("d{i}"));
        for j in 0..3 {
            let fid = put(&client, dir, &format!("f{j}"), b"some text");
            let change = StatusChange { mode: Some(0o600), ..StatusChange::default() };
            client.venus.setattr(&me(), fid, change).unwrap();
            let seen = client.venus.getattr(&me(), fid).unwrap();
            assert_eq!((seen.status.size, seen.status.mode, seen.cacheable), (9, 0o600, true));
            assert_eq!(content_of(&client, fid), b"some text");
        }
        let (f0, f9) = (name("f0"), name("f9"));
        client.venus.changes().rename(&me(), (dir, &f0), (dir, &f9), RenameMode::Replace).unwrap();
        client.venus.changes().unlink(&me(), dir, &f9).unwrap();
    }
    assert_eq!(client.wire.take(), [].into(), "no call was made");
    client.venus.dirs().fsyncdir(&me(), first).unwrap();
    let other = server.client_with(2, true, plain());
    assert_eq!(other.list(first, true).len(), 20);
    let dir = find_in(&other, first, "d7").unwrap();
    assert_eq!(other.list(dir, true).len(), 2);
    assert_eq!(content_of(&other, find_in(&other, dir, "f1").unwrap()), b"some text");
    assert_eq!(client.venus.differences(), 0);
}

/// Blocks behind the end of a file make up for a hole in it: the charge is that of a file without
/// holes, and another one after a write into the hole.
#[test]
fn de5_reserved_blocks_behind_the_end_are_no_difference() {
    let server = TestServer::in_memory();
    let client = server.client_with(1, true, eager());
    let dir = make_dir(&client, client.root, "dir");
    let made = client.venus.create(&me(), dir, &name("f"), 0o644, true, RW).unwrap();
    let (fid, handle) = (made.0.status.fid, made.1.handle);
    let block = 16 << 10;
    client.write(handle, 0, &vec![1; 4 * block as usize]);
    for (offset, mode) in [(4 * block, AllocateMode::KeepSize), (block, AllocateMode::PunchHole)] {
        client.venus.fallocate(&me(), handle, offset, block, mode).unwrap();
    }
    client.venus.dirs().fsyncdir(&me(), dir).unwrap();
    put(&client, dir, "other", b"so that the directory is delegated again");
    let of_dense = client.venus.getattr(&me(), fid).unwrap().status;
    assert_eq!((of_dense.size, of_dense.used), (4 * block, 4 * block));
    client.write(handle, block, b"into the hole");
    client.venus.getattr(&me(), fid).unwrap();
    client.venus.fsync(&me(), handle).unwrap();
    let status = client.venus.getattr(&me(), fid).unwrap().status;
    assert_eq!((status.size, status.used), (4 * block, 5 * block));
    assert_eq!(client.venus.differences(), 0);
}

#[test]
fn others_see_a_closed_file_at_once_and_an_open_quiet_one_too() {
    let server = TestServer::in_memory();
    let (a, b) = (server.client_with(1, true, eager()), server.client_with(2, true, eager()));
    let top = make_dir(&a, a.root, "top");
    put(&a, top, "closed", b"all of it");
    let (_, opened) = a.venus.create(&me(), top, &name("open"), 0o644, true, WO).unwrap();
    assert!(opened.quiet, "its close need not be reported");
    a.write(opened.handle, 0, b"so far");
    let top_of_b = b.find("top").unwrap().status.fid;
    assert_eq!(content_of(&b, find_in(&b, top_of_b, "closed").unwrap()), b"all of it");
    let open = find_in(&b, top_of_b, "open").unwrap();
    assert_eq!(content_of(&b, open), b"so far", "it might have been closed");
    a.write(opened.handle, 6, b", and more");
    assert_eq!(
        content_of(&b, open),
        b"so far, and more",
        "without a delegation such a handle writes through"
    );
    assert_eq!(a.venus.differences() + b.venus.differences(), 0);
}

/// User 10 is principal 10.
struct Known;

impl vice::Principals for Known {
    fn cps(&self, caller: &Caller) -> Result<Cps, Fault> {
        Ok(Cps::new(PrincipalId(caller.uid as i32), caller.who.level, []))
    }
}

/// A test server whose volume has access lists.
fn listed() -> TestServer {
    let server = TestServer::with_principals(Arc::new(Known));
    server
        .client(1000)
        .venus
        .access()
        .set_acl(&me(), server.root, Some(&only(10, "rlidwk")), None)
        .unwrap();
    server
}

fn compare(seed: u64, steps: usize, machines: usize) {
    compare_in([TestServer::in_memory(), TestServer::in_memory()], draw, seed, steps, machines);
}

fn compare_in(
    [with, without]: [TestServer; 2],
    draw: fn(&mut SmallRng) -> Op,
    seed: u64,
    steps: usize,
    machines: usize,
) {
    let mut random = SmallRng::seed_from_u64(seed);
    let clients = |server: &TestServer, config: VenusConfig| -> Vec<Client> {
        (1..=machines as u128)
            .map(|number| server.client_with(number, seed.is_multiple_of(2), config.clone()))
            .collect()
    };
    let (with_clients, without_clients) = (clients(&with, eager()), clients(&without, plain()));
    let machine = |client| -> Machine<'_> {
        let client: &Client = client;
        Machine::new(&client.venus, client.root)
    };
    let mut these: Vec<Machine<'_>> = with_clients.iter().map(machine).collect();
    let mut those: Vec<Machine<'_>> = without_clients.iter().map(machine).collect();
    let mut at = 0;
    for step in 0..steps {
        if random.random_bool(0.03) {
            at = random.random_range(0..machines);
        }
        let op = draw(&mut random);
        let (one, other) = (these[at].run(&op), those[at].run(&op));
        assert_eq!(one, other, "seed {seed}, step {step}, machine {at}: {op:?}");
    }
    these.iter_mut().chain(&mut those).for_each(Machine::close_all);
    let (one, other) = (these[0].tree(), those[0].tree());
    assert_eq!(one, other, "seed {seed}: the machine's view");
    drop((these, those));
    for client in &with_clients {
        client.venus.shutdown().unwrap();
        assert_eq!(client.venus.differences(), 0, "seed {seed}");
    }
    let fresh = with.client_with(99, true, plain());
    assert_eq!(
        Machine::new(&fresh.venus, fresh.root).tree(),
        other,
        "seed {seed}: the server's view"
    );
}

#[test]
fn de5_one_client_behaves_alike_with_delegations() {
    (0..60).for_each(|seed| compare(seed, 400, 1));
}

#[test]
fn de5_two_clients_behave_alike_with_delegations() {
    (100..160).for_each(|seed| compare(seed, 400, 2));
}

#[test]
fn de5_delegations_where_access_lists_decide() {
    (200..260).for_each(|seed| {
        compare_in([listed(), listed()], draw_listed, seed, 400, 1 + seed as usize % 2);
    });
}

#[test]
fn where_lists_decide_a_tree_is_made_without_a_word() {
    let server = listed();
    let client = server.client_with(1, true, eager());
    let ten = Caller {
        uid: 10,
        gid: 20,
        groups: Some(Box::default()),
        who: types::RequestIdentity::NAMED,
    };
    let request = RequestContext::of(&ten);
    let make = |dir, text: &str| {
        client
            .venus
            .changes()
            .make(&request, dir, &name(text), NewKind::Directory, 0o755)
            .unwrap()
            .status
            .fid
    };
    let top = make(client.root, "top");
    let first = make(top, "first");
    client.wire.take();
    for i in 0..20 {
        let dir = make(first, &format!("d{i}"));
        for text in ["f0", "f1", "f2"] {
            let (entry, opened) =
                client.venus.create(&request, dir, &name(text), 0o644, true, WO).unwrap();
            client
                .venus
                .write(&request, opened.handle, 0, b"some text".as_slice().into(), false)
                .unwrap();
            client.venus.release(&request, opened.handle, None).unwrap();
            let change = StatusChange { mode: Some(0o600), ..StatusChange::default() };
            client.venus.setattr(&request, entry.status.fid, change).unwrap();
            assert_eq!(
                client.venus.access().rights(&request, entry.status.fid).unwrap().0.to_string(),
                "rlidwka"
            );
        }
        let (f0, f9) = (name("f0"), name("f9"));
        client
            .venus
            .changes()
            .rename(&request, (dir, &f0), (dir, &f9), RenameMode::Replace)
            .unwrap();
        client.venus.changes().unlink(&request, dir, &f9).unwrap();
    }
    assert_eq!(client.wire.take(), [].into(), "no call was made");
    // The server refuses a user without the right; it has the new list by then.
    let eleven = Caller { uid: 11, ..ten.clone() };
    let refused = client.venus.changes().make(
        &RequestContext::of(&eleven),
        first,
        &name("no"),
        NewKind::Directory,
        0o755,
    );
    assert_eq!(refused.err(), Some(Error::Fault(Fault::AccessDenied)));
    let other = server.client_with(2, true, plain());
    let dir = find_in(&other, first, "d7").unwrap();
    assert_eq!(other.list(dir, true).len(), 2);
    assert_eq!(content_of(&other, find_in(&other, dir, "f1").unwrap()), b"some text");
    // The client learns of a lost right before the right ends, and earlier answered changes are
    // sent first.
    let last = make(first, "last");
    other.venus.access().set_acl(&me(), first, Some(&only(10, "rl")), None).unwrap();
    let refused =
        client.venus.changes().make(&request, first, &name("more"), NewKind::Directory, 0o755);
    assert_eq!(refused.err(), Some(Error::Fault(Fault::AccessDenied)));
    assert_eq!(find_in(&other, first, "last"), Some(last));
    assert_eq!(client.venus.differences(), 0);
}

#[test]
fn the_server_has_seen_a_prefix_whenever_a_client_dies() {
    let server = TestServer::in_memory();
    for round in 1..=5_u128 {
        let config = VenusConfig { dirty_age: Duration::from_millis(20), ..eager() };
        let client = server.client_with(round, true, config);
        let top = make_dir(&client, client.root, &format!("top{round}"));
        make_dir(&client, top, "first");
        let count = 400 + 100 * round;
        for i in 0..count {
            put(&client, top, &format!("f{i:04}"), b"x");
        }
        eventually("the flusher sends", || client.wire.count("Write") > 0);
        // The client crashes: its memory is gone, and it sends nothing more.
        client.wire.session.fall_silent();
        drop(client);
        let other = server.client_with(100 + round, true, plain());
        // The dead client's delegation blocks others until its lease is over, unless its next
        // incarnation reports its end.
        drop(server.client_with_life(round, 2));
        let mut names: Vec<String> =
            other.list(top, false).into_iter().map(|entry| format!("{:?}", entry.name)).collect();
        names.retain(|name| !name.contains("first"));
        names.sort();
        let expected: Vec<String> =
            (0..names.len()).map(|i| format!("{:?}", name(&format!("f{i:04}")))).collect();
        assert!(!names.is_empty() && names == expected, "round {round}: {} names", names.len());
    }
}

#[test]
fn a_refused_change_is_reported_and_caches_are_dropped() {
    let server = TestServer::in_memory();
    let client = server.client_with(1, true, eager());
    let top = make_dir(&client, client.root, "top");
    put(&client, top, "before", b"x");
    let (entry, opened) = client.venus.create(&me(), top, &name("f"), 0o644, true, RW).unwrap();
    client.write(opened.handle, 0, b"never");
    client.venus.flush(&me(), opened.handle, None).unwrap();
    put(&client, top, "after", b"y");
    client.wire.set_before(move |call| match call {
        Call::Write { fid, .. } if *fid == entry.status.fid => {
            Some(Err(CallError::Fault(Fault::Medium)))
        }
        _ => None,
    });
    assert_eq!(client.venus.fsync(&me(), opened.handle), Err(Error::Fault(Fault::Medium)));
    client.wire.clear();
    assert_eq!(client.venus.fsync(&me(), opened.handle), Ok(()), "once");
    assert_eq!(client.venus.getattr(&me(), entry.status.fid).unwrap().status.size, 0);
    assert_eq!(client.list(top, true).len(), 3, "what came behind it was done all the same");
    assert_eq!(content_of(&client, find_in(&client, top, "after").unwrap()), b"y");
    assert_eq!(client.venus.differences(), 0);
}

#[test]
fn unsent_changes_lost_with_the_lease_are_reported() {
    let server = TestServer::in_memory();
    let client = server.client_with(1, true, eager());
    let top = make_dir(&client, client.root, "top");
    put(&client, top, "stable", b"x");
    client.venus.dirs().fsyncdir(&me(), top).unwrap();
    let (_, opened) = client.venus.create(&me(), top, &name("lost"), 0o644, true, RW).unwrap();
    client.write(opened.handle, 0, b"lost");
    client.venus.flush(&me(), opened.handle, None).unwrap();
    let events = client.wire.events.lock().clone().unwrap();
    events.on_lease_lost();
    client.wire.session.renew();
    assert_eq!(client.venus.fsync(&me(), opened.handle), Err(Error::Lost));
    assert_eq!(find_in(&client, top, "lost"), None);
    assert!(find_in(&client, top, "stable").is_some());
    // It goes on.
    let mut count = 0;
    eventually("a delegation again", || {
        count += 1;
        client.wire.take();
        // As the kernel does.
        assert_eq!(find_in(&client, top, &format!("more{count}")), None);
        put(&client, top, &format!("more{count}"), b"y");
        client.wire.count("Make") == 0
    });
    assert_eq!(
        content_of(&server.client_with(2, true, plain()), find_in(&client, top, "stable").unwrap()),
        b"x"
    );
}

#[test]
fn two_machines_at_once_end_up_with_one_tree() {
    let server = TestServer::in_memory();
    let machines = [server.client_with(1, true, eager()), server.client_with(2, true, eager())];
    let top = make_dir(&machines[0], machines[0].root, "top");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (number, client) in machines.iter().enumerate() {
            let stop = &stop;
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(number as u64);
                let mut machine = Machine::new(&client.venus, top);
                while !stop.load(Ordering::SeqCst) {
                    (0..random.random_range(1..40))
                        .for_each(|_| drop(machine.run(&draw(&mut random))));
                    std::thread::sleep(Duration::from_millis(random.random_range(0..3)));
                }
                machine.close_all();
            });
        }
        std::thread::sleep(Duration::from_secs(4));
        stop.store(true, Ordering::SeqCst);
    });
    let trees: Vec<_> =
        machines.iter().map(|client| Machine::new(&client.venus, top).tree()).collect();
    let fresh = server.client_with(3, true, plain());
    let expected = Machine::new(&fresh.venus, top).tree();
    assert!(!expected.is_empty());
    for (client, tree) in machines.iter().zip(trees) {
        assert_eq!(tree, expected);
        assert_eq!(client.venus.differences(), 0);
    }
}

#[test]
fn a_full_volume_refuses_at_once_and_has_accepted_changes() {
    let server = TestServer::with_quota(VolumeQuota { bytes: 3 << 20, files: 0 });
    let client = server.client_with(1, true, eager());
    let top = make_dir(&client, client.root, "top");
    let mut taken = Vec::new();
    let data = vec![7; 10_000];
    let refused = (0..1000).find_map(|i| {
        let text = format!("f{i}");
        let (_, opened) = match client.venus.create(&me(), top, &name(&text), 0o644, true, RW) {
            Ok(made) => made,
            Err(error) => return Some(error),
        };
        let wrote =
            client.venus.write(&me(), opened.handle, 0, data.clone().into(), false).map(drop);
        let closed = wrote.and(client.venus.flush(&me(), opened.handle, None));
        client.venus.release(&me(), opened.handle, None).unwrap();
        taken.extend(closed.is_ok().then_some(text));
        closed.err()
    });
    assert_eq!(refused, Some(Error::Fault(Fault::QuotaExceeded)));
    client.venus.shutdown().unwrap();
    let other = server.client_with(2, true, plain());
    for text in taken {
        assert_eq!(content_of(&other, find_in(&other, top, &text).unwrap()), data);
    }
}
