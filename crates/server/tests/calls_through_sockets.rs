//! Calls through sockets: every kind of payload there and back, breaks, locks, descriptors,
//! cancellation.

use std::io::Read;
use std::time::{Duration, Instant};

use crate::common::*;
use client::{CallError, Cancel, Remote};
use types::{
    Answer, ByteRange, Call, Caller, Cookie, CreateHow, Fault, Fid, Lending, LockFamily, LockMode,
    LockOwner, NewKind, SetTime, StatusChange, VolumeCall,
};

#[test]
fn answers_come_back_over_both_kinds_of_sockets() {
    let cell = Cell::new();
    for (index, endpoint) in cell.both().into_iter().enumerate() {
        let session = connect(endpoint);
        let dir = root(&session);
        let file = make(&session, dir, &format!("file{index}"));
        let text: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
        write(&session, file, 5, text.clone());
        assert_eq!(read(&session, file, 5, 200_000)[..], text);
        let whole = vec![index as u8; 1 << 20];
        write(&session, file, 0, whole.clone());
        assert_eq!(read(&session, file, 0, 1 << 20)[..], whole);
        let found = ask(&session, Call::Lookup { dir, name: name(&format!("file{index}")) });
        assert_eq!(status(&found).fid, file);
        let missing = try_ask(&session, Call::Lookup { dir, name: name("none") });
        assert_eq!(missing, Err(CallError::Fault(Fault::NotFound)));
        let Answer::Entries { entries, end, .. } = ask(
            &session,
            Call::ReadDir { dir, cookie: Cookie::START, bytes_max: 1 << 16, plus: true },
        ) else {
            panic!("a listing");
        };
        assert_eq!((entries.len(), end), (index + 1, true));
        let change = StatusChange {
            mode: Some(0o600),
            modified: Some(SetTime::Now),
            ..StatusChange::default()
        };
        assert_eq!(status(&ask(&session, Call::SetStatus { fid: file, change })).mode, 0o600);
        assert!(matches!(ask(&session, Call::Commit { fid: file }), Answer::Committed { .. }));
        let Answer::Report(report) = ask(&session, Call::ServerReport) else { panic!("a report") };
        assert!(report.contains("\"server\""), "{report}");
    }
}

#[test]
fn a_session_that_detaches_is_over_at_once_whoever_refers_to_it() {
    let cell = Cell::new();
    let stays = connect(cell.tcp());
    let leaves = std::sync::Arc::new(connect(cell.tcp()));
    let forgotten = std::sync::Arc::clone(&leaves);
    let dir = root(&*leaves);
    assert!(matches!(ask(&*leaves, Call::Delegate { fid: dir }), Answer::Delegation { .. }));
    leaves.detach();
    leaves.detach();
    // Without waiting for a lease: the lease would not end while the test runs.
    make(&stays, dir, "new");
    let Answer::Report(report) = ask(&stays, Call::ServerReport) else { panic!("a report") };
    assert!(report.contains("\"sessions\":1"), "{report}");
    assert!(matches!(try_ask(&*forgotten, Call::ServerReport), Err(CallError::Closed)));
}

#[test]
fn a_chain_names_what_it_made() {
    let cell = Cell::new();
    let session = connect(cell.unix());
    let dir = root(&session);
    let calls = vec![
        Call::Make {
            dir,
            name: name("new"),
            kind: NewKind::File,
            mode: 0o644,
            how: CreateHow::Guarded,
        },
        Call::Write {
            fid: Fid::CURRENT,
            offset: Some(0),
            data: "content".into(),
            stable: false,
            kill_privileges: false,
        },
        Call::Read { fid: Fid::CURRENT, offset: 0, length: 100 },
        Call::Lookup { dir, name: name("missing") },
        Call::GetStatus { fid: dir },
    ];
    let mut results = session.chain(&Caller::ROOT, calls).into_iter();
    let made = results.next().unwrap().unwrap();
    assert_eq!(status(&results.next().unwrap().unwrap().answer).fid, status(&made.answer).fid);
    let Answer::Data { data, .. } = results.next().unwrap().unwrap().answer else { panic!("data") };
    assert_eq!(data, "content");
    assert_eq!(results.next().unwrap().unwrap_err(), CallError::Fault(Fault::NotFound));
    assert_eq!(results.next().unwrap().unwrap_err(), CallError::Fault(Fault::ChainAborted));

    let long = (0..200).map(|n| Call::Make {
        dir,
        name: name(&format!("n{n}")),
        kind: NewKind::File,
        mode: 0o644,
        how: CreateHow::Guarded,
    });
    let results = session.chain(&Caller::ROOT, long.collect());
    assert_eq!(results.len(), 200);
    assert!(results.iter().all(Result::is_ok));
}

#[test]
fn long_reads_of_a_chain_come_in_order_up_to_the_first_fault() {
    const BLOCK: usize = 1 << 20;
    let cell = Cell::new();
    for endpoint in cell.both() {
        let session = connect(endpoint);
        let dir = root(&session);
        let file = status(&ask(&session, Call::MakeUnnamed { dir, mode: 0o644 })).fid;
        (0..12_u8)
            .for_each(|n| drop(write(&session, file, u64::from(n) * BLOCK as u64, vec![n; BLOCK])));
        let read =
            |n: u64| Call::Read { fid: file, offset: n * BLOCK as u64, length: BLOCK as u32 };
        let mut calls: Vec<Call> = (0..12).map(read).collect();
        calls.insert(10, Call::Read { fid: dir, offset: 0, length: BLOCK as u32 });
        let mut heard = Vec::new();
        session.chain_each(&Caller::ROOT, calls, &mut |at, result| {
            heard.push(match result.map(|reply| reply.answer) {
                Ok(Answer::Data { data, .. }) => {
                    Ok(data.len() == BLOCK && data.iter().all(|byte| *byte == at as u8))
                }
                Ok(other) => panic!("{other:?}"),
                Err(error) => Err(error),
            });
        });
        let aborted = Err(CallError::Fault(Fault::ChainAborted));
        assert!(heard[..10].iter().all(|whole| *whole == Ok(true)), "{heard:?}");
        assert_eq!(
            heard[10..],
            [Err(CallError::Fault(Fault::IsDirectory)), aborted.clone(), aborted]
        );
    }
}

#[test]
fn short_reads_of_chains_and_single_ones_mix() {
    let cell = Cell::new();
    for endpoint in cell.both() {
        let session = connect(endpoint);
        let dir = root(&session);
        let lengths = [10, 5000, 20_000, 60_000];
        let files = lengths.map(|length| {
            let file = status(&ask(&session, Call::MakeUnnamed { dir, mode: 0o644 })).fid;
            write(&session, file, 0, vec![length as u8; length]);
            file
        });
        let read = |n: usize| Call::Read { fid: files[n % 4], offset: 0, length: 64 << 10 };
        let check = |n: usize, answer: &Answer| match answer {
            Answer::Data { data, .. } => {
                assert!(data[..] == vec![lengths[n % 4] as u8; lengths[n % 4]], "{n}");
            }
            other => panic!("{other:?}"),
        };
        std::thread::scope(|scope| {
            for first in 0..4 {
                let (session, read, check) = (&session, &read, &check);
                scope.spawn(move || {
                    for round in 0..20 {
                        let calls = (first..first + 16).map(read).collect();
                        let results = session.chain(&Caller::ROOT, calls);
                        (first..)
                            .zip(results)
                            .for_each(|(n, result)| check(n, &result.unwrap().answer));
                        check(first + round, &ask(session, read(first + round)));
                    }
                });
            }
        });
    }
}

#[test]
fn many_threads_share_a_session() {
    let cell = Cell::new();
    for endpoint in cell.both() {
        let session = connect(endpoint);
        let dir = root(&session);
        std::thread::scope(|scope| {
            for thread in 0..16_u8 {
                let session = &session;
                scope.spawn(move || {
                    let file = status(&ask(session, Call::MakeUnnamed { dir, mode: 0o644 })).fid;
                    for round in 0..40_u32 {
                        let size = [10, 5000, 70_000, 300_000][(round % 4) as usize];
                        let data = vec![thread ^ round as u8; size];
                        write(session, file, 0, data.clone());
                        assert_eq!(read(session, file, 0, size as u32)[..], data);
                    }
                });
            }
        });
    }
}

#[test]
fn cb1_a_write_waits_until_the_other_client_handled_its_break() {
    let cell = Cell::new();
    for endpoint in cell.both() {
        let (writer, reader) = (connect(endpoint.clone()), connect(endpoint.clone()));
        let dir = root(&writer);
        let file = make(&writer, dir, &format!("f{}", endpoint.to_string().len()));
        let heard = Recorder::of(&reader);
        let pause = Duration::from_millis(100);
        *heard.break_pause.lock() = pause;
        ask(&reader, Call::GetStatus { fid: file });
        let before = Instant::now();
        write(&writer, file, 0, "x");
        assert!(before.elapsed() >= pause, "the write waited for {:?}", before.elapsed());
        assert!(heard.broken(file), "the reader got the break before the write returned");
        let before = Instant::now();
        write(&writer, file, 0, "y");
        assert!(before.elapsed() < pause, "no promise, no wait");
    }
}

#[test]
fn a_body_can_be_opened_on_the_same_host_only() {
    let cell = Cell::new();
    let (near, far) = (connect(cell.unix()), connect(cell.tcp()));
    assert!(near.passes_descriptors() && !far.passes_descriptors());
    let dir = root(&near);
    let file = make(&near, dir, "large");
    let data: Vec<u8> = (0..500_000_u32).map(|n| (n / 7) as u8).collect();
    write(&near, file, 0, data.clone());
    for _ in 0..20 {
        let reply = near.call(&Caller::ROOT, Call::OpenBody { fid: file }, None).unwrap();
        assert_eq!(status(&reply.answer).size, data.len() as u64);
        let mut found = Vec::new();
        std::fs::File::from(reply.body.unwrap()).read_to_end(&mut found).unwrap();
        assert!(found == data);
    }
    let refused = try_ask(&far, Call::OpenBody { fid: file });
    assert_eq!(refused, Err(CallError::Fault(Fault::Unsupported)));
}

fn lock(fid: Fid, wait: bool) -> Call {
    Call::Lock {
        fid,
        owner: LockOwner(1),
        pid: 1,
        family: LockFamily::Posix,
        range: ByteRange::ALL,
        mode: LockMode::Exclusive,
        wait,
        reclaim: false,
    }
}

#[test]
fn a_waiting_lock_can_be_cancelled() {
    let cell = Cell::new();
    for endpoint in cell.both() {
        let (holder, waiter) = (connect(endpoint.clone()), connect(endpoint.clone()));
        let dir = root(&holder);
        let file = make(&holder, dir, &format!("f{}", endpoint.to_string().len()));
        ask(&holder, lock(file, false));
        assert_eq!(try_ask(&waiter, lock(file, false)), Err(CallError::Fault(Fault::Locked)));
        let cancel = Cancel::new();
        std::thread::scope(|scope| {
            let waiting =
                scope.spawn(|| waiter.call(&Caller::ROOT, lock(file, true), Some(&cancel)));
            std::thread::sleep(Duration::from_millis(30));
            assert!(!waiting.is_finished());
            // Other calls proceed meanwhile.
            ask(&waiter, Call::GetStatus { fid: dir });
            cancel.cancel();
            assert_eq!(waiting.join().unwrap().unwrap_err(), CallError::Cancelled);

            let waiting = scope.spawn(|| ask(&waiter, lock(file, true)));
            std::thread::sleep(Duration::from_millis(30));
            let range = ByteRange::ALL;
            let unlock =
                Call::Unlock { fid: file, owner: LockOwner(1), family: LockFamily::Posix, range };
            ask(&holder, unlock);
            assert_eq!(waiting.join().unwrap(), Answer::Done);
        });
        let cancelled_before = Cancel::new();
        cancelled_before.cancel();
        let result = holder.call(&Caller::ROOT, lock(file, true), Some(&cancelled_before));
        assert_eq!(result.unwrap_err(), CallError::Cancelled);
    }
}

/// A caller that is interrupted learns whether it has the body: a loan that no client knows of
/// would keep the volume from being moved until the session ends.
#[test]
fn an_interrupted_loan_is_known_to_its_client() {
    let cell = Cell::new();
    let session = connect(cell.unix());
    let dir = root(&session);
    let file = make(&session, dir, "large");
    write(&session, file, 0, vec![7; 300_000]);
    ask(&session, Call::CommitVolume { fid: file });
    // The interrupt comes before, during and after the execution.
    for micros in (0..2000).step_by(10) {
        let interrupt = Cancel::new();
        let lend = Call::LendBody { fid: file, how: Lending::Write };
        let lent = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_micros(micros));
                interrupt.cancel();
            });
            session.call(&Caller::ROOT, lend, Some(&interrupt)).map(|reply| reply.answer)
        });
        if lent.is_ok() {
            ask(&session, Call::SettleBody { fid: file, back: true });
        }
        let hold = |millis| Call::Volume(VolumeCall::Hold { id: file.volume, millis });
        let held = try_ask(&session, hold(1000));
        assert_eq!(held, Ok(Answer::Done), "after {micros} us: {lent:?}, and a loan is left");
        ask(&session, hold(0));
    }
}

#[test]
fn leaving_gives_locks_back_at_once() {
    let cell = Cell::new();
    let (holder, other) = (connect(cell.unix()), connect(cell.tcp()));
    let dir = root(&holder);
    let file = make(&holder, dir, "f");
    ask(&holder, lock(file, false));
    let before = Instant::now();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| ask(&other, lock(file, true)));
        std::thread::sleep(Duration::from_millis(20));
        drop(holder);
        assert_eq!(waiting.join().unwrap(), Answer::Done);
    });
    assert!(before.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_scrub_finds_a_damaged_body_while_the_server_works() {
    let cell = Cell::new();
    let session = connect(cell.unix());
    let dir = root(&session);
    let file = make(&session, dir, "large");
    write(&session, file, 0, vec![7; 100_000]);
    ask(&session, Call::Commit { fid: file });
    let report = |start| {
        let Answer::Report(text) = ask(&session, Call::Scrub { start }) else { panic!("a report") };
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    assert_eq!(report(false)["state"], "never");
    report(true);
    wait_for("the first scrub", || report(false)["state"] == "done");
    assert_eq!(report(false)["findings"], 0, "{}", report(false));
    let mut bodies = Vec::new();
    find_files(&cell.path("vicepa").join("bodies"), &mut bodies);
    assert_eq!(bodies.len(), 1);
    let body = std::fs::OpenOptions::new().write(true).open(&bodies[0]).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&body, b"!", 50_000).unwrap();
    report(true);
    wait_for("the second scrub", || report(false)["state"] == "done");
    assert_eq!(report(false)["findings"], 1, "{}", report(false));
    let read = try_ask(&session, Call::Read { fid: file, offset: 49_152, length: 4096 });
    assert_eq!(read, Err(CallError::Fault(Fault::Damaged)));
}

fn find_files(dir: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { find_files(&path, found) } else { found.push(path) }
    }
}

#[test]
fn calls_executed_late_are_synced_in_the_background_too() {
    let cell = Cell::new();
    let partition = cell.server.as_ref().unwrap().vice().partition().clone();
    let dir = root(&connect(cell.unix()));
    // Like a call that waited and is executed by the thread that ended the wait: no request begins.
    let vice = cell.server.as_ref().unwrap().vice();
    let mut effects = Vec::new();
    let attached = vice.attach(client::clock::now(), types::ClientId(77), 1, &mut effects).unwrap();
    let before = partition.applied();
    let origin = types::ReplyAddress { session: attached.session, slot: 0, request: 1 };
    let change = types::StatusChange { mode: Some(0o700), ..types::StatusChange::default() };
    let call = Call::SetStatus { fid: dir, change };
    vice.perform(
        vice::Execution::new(
            client::clock::now(),
            types::Timestamp::new(5, 0),
            &Caller::ROOT,
            origin,
        ),
        call,
        &mut effects,
    );
    assert!(partition.applied() > before);
    wait_for("the sync of the late call", || partition.is_stable());
}
