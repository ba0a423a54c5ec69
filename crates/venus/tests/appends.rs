//! Appends: the server decides where they go, and small ones are sent together.

use std::time::Duration;

use crate::common::{APPEND, Client, RO, TestServer, me, name};
use bytes::Bytes;
use client::CallError;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{Answer, Call, Fault, Fid, NewKind, StatusChange};
use venus::{Error, OpenHandle, VenusConfig};

/// Bytes become visible elsewhere only when they must.
fn patient(delegations: bool) -> VenusConfig {
    VenusConfig { dirty_age: Duration::from_secs(3600), delegations, ..VenusConfig::default() }
}

/// Appends where the kernel expects the end, which is what the status says.
fn append(client: &Client, fid: Fid, handle: OpenHandle, data: &[u8], known: &mut u64) {
    let data = Bytes::copy_from_slice(data);
    let length = data.len() as u64;
    let wrote = client.venus.write(&me(), handle, *known, data, false).unwrap();
    assert_eq!(u64::from(wrote.count), length, "{fid}");
    *known = wrote.offset + length;
}

fn size(client: &Client, fid: Fid) -> u64 {
    client.venus.getattr(&me(), fid).unwrap().status.size
}

#[test]
fn small_appends_are_sent_together_and_seen_at_once() {
    let server = TestServer::in_memory();
    let client = server.client_with(1, true, patient(false));
    let (fid, first) = client.create("log");
    client.close(first);
    let handle = client.open("log", APPEND);
    client.wire.take();
    let mut whole = Vec::new();
    let mut end = 0;
    for number in 0..10_000_u32 {
        let line = format!("line {number}\n");
        append(&client, fid, handle, line.as_bytes(), &mut end);
        whole.extend_from_slice(line.as_bytes());
        if number == 5 {
            assert_eq!(client.read(handle, 0, 1 << 20), whole[..], "read here before it is sent");
        }
    }
    assert!(client.wire.count("Write") <= 2, "{:?}", client.wire.take());
    assert_eq!(size(&client, fid), whole.len() as u64);
    let other = server.client_with(2, true, patient(false));
    assert_eq!(other.content("log"), whole[..]);
    client.close(handle);
    assert_eq!(client.content("log"), whole[..]);
}

#[test]
fn every_client_appends_behind_what_the_others_appended() {
    for delegations in [false, true] {
        for seed in 0..30 {
            let server = TestServer::in_memory();
            let clients =
                [1, 2].map(|number| server.client_with(number, true, patient(delegations)));
            let (fid, first) = clients[0].create("log");
            clients[0].close(first);
            let handles = [0, 1].map(|at| clients[at].open("log", APPEND));
            let mut random = SmallRng::seed_from_u64(seed);
            let (mut counts, mut ends) = ([0; 2], [0; 2]);
            for _ in 0..200 {
                let at = random.random_range(0..2);
                let (client, handle) = (&clients[at], handles[at]);
                match random.random_range(0..10) {
                    0 => client.venus.flush(&me(), handle, None).unwrap(),
                    1 => client.venus.fsync(&me(), handle).unwrap(),
                    2 => ends[at] = size(client, fid),
                    3 => drop(client.read(handle, 0, 1 << 16)),
                    _ => {
                        let record = format!("<{at} {}>", counts[at]);
                        append(client, fid, handle, record.as_bytes(), &mut ends[at]);
                        counts[at] += 1;
                    }
                }
            }
            let [a, b] = &clients;
            [a, b].iter().zip(handles).for_each(|(client, handle)| client.close(handle));
            let text = String::from_utf8(a.content("log").to_vec()).unwrap();
            assert_eq!(b.content("log"), text.as_bytes(), "seed {seed}");
            let records: Vec<&str> = text.split_inclusive('>').collect();
            for (at, count) in counts.iter().enumerate() {
                let its: Vec<&str> =
                    records.iter().copied().filter(|one| one[1..2] == at.to_string()).collect();
                let wanted: Vec<String> = (0..*count).map(|n| format!("<{at} {n}>")).collect();
                assert_eq!(its, wanted, "seed {seed}: each once, whole, and in order");
            }
            assert_eq!(records.len(), counts.iter().sum::<i32>() as usize, "seed {seed}: {text}");
            assert_eq!(a.venus.differences() + b.venus.differences(), 0);
        }
    }
}

#[test]
fn appends_that_land_elsewhere_are_read_where_they_are() {
    let server = TestServer::in_memory();
    let [a, b] = [1, 2].map(|number| server.client_with(number, true, patient(false)));
    let (fid, first) = a.create("log");
    a.close(first);
    let [of_a, of_b] = [&a, &b].map(|client| client.open("log", APPEND));
    append(&a, fid, of_a, b"from a", &mut 0);
    assert_eq!(size(&b, fid), 0, "not visible elsewhere yet");
    append(&b, fid, of_b, b"from b, ", &mut 0);
    b.close(of_b);
    append(&a, fid, of_a, b", more", &mut 6);
    a.venus.flush(&me(), of_a, None).unwrap();
    assert_eq!(a.content("log"), &b"from b, from a, more"[..]);
    assert_eq!(b.content("log"), &b"from b, from a, more"[..]);
    assert_eq!(size(&a, fid), 20);
}

#[test]
fn writes_and_cuts_after_an_append_come_after_it() {
    let server = TestServer::in_memory();
    let client = server.client_with(1, true, patient(false));
    let (fid, writer) = client.create("f");
    let handle = client.open("f", APPEND);
    append(&client, fid, handle, b"0123456789", &mut 0);
    client.write(writer, 4, b"xy");
    client.write(writer, 12, b"far");
    let mut end = size(&client, fid);
    assert_eq!(end, 15);
    append(&client, fid, handle, b"end", &mut end);
    assert_eq!(client.content("f"), &b"0123xy6789\0\0farend"[..]);
    let cut = StatusChange { size: Some(3), ..StatusChange::default() };
    append(&client, fid, handle, b"gone", &mut end);
    client.venus.setattr(&me(), fid, cut).unwrap();
    append(&client, fid, handle, b"!", &mut 3);
    client.close(handle);
    client.close(writer);
    assert_eq!(server.client(2).content("f"), &b"012!"[..]);
}

#[test]
fn a_refused_append_is_reported_once_and_gone() {
    let server = TestServer::in_memory();
    let client = server.client_with(1, true, patient(false));
    let (fid, first) = client.create("log");
    client.close(first);
    let handle = client.open("log", APPEND);
    client.wire.set_before(|call| match call {
        Call::Write { .. } => Some(Err(CallError::Fault(Fault::NoSpace))),
        _ => None,
    });
    append(&client, fid, handle, b"lost", &mut 0);
    let full = Err(Error::Fault(Fault::NoSpace));
    assert_eq!(client.venus.flush(&me(), handle, None), full);
    assert_eq!(client.venus.flush(&me(), handle, None), Ok(()), "once");
    assert_eq!(size(&client, fid), 0);
    client.wire.clear();
    append(&client, fid, handle, b"kept", &mut 0);
    client.close(handle);
    assert_eq!(client.content("log"), &b"kept"[..]);
}

/// The server appended, and the session ended before its answer came.
#[test]
fn eo1_an_append_of_unknown_outcome_is_not_repeated() {
    let server = TestServer::in_memory();
    let client = server.client_with(1, true, patient(false));
    let (fid, first) = client.create("log");
    client.close(first);
    let handle = client.open("log", APPEND);
    append(&client, fid, handle, b"once", &mut 0);
    client.wire.set_after(|call, result| {
        if matches!(call, Call::Write { .. }) {
            *result = Err(CallError::Lost);
        }
    });
    assert_eq!(client.venus.flush(&me(), handle, None), Err(Error::Lost), "it is reported");
    client.wire.clear();
    client.venus.flush(&me(), handle, None).unwrap();
    assert_eq!(server.client(2).content("log"), &b"once"[..]);
}

#[test]
fn a_part_that_landed_is_not_sent_again() {
    let server = TestServer::in_memory();
    let client = server.client_with(1, true, patient(false));
    let (fid, first) = client.create("log");
    client.close(first);
    let handle = client.open("log", APPEND);
    append(&client, fid, handle, b"0123456789", &mut 0);
    // The server takes four bytes of each.
    let wire = server.client_with(2, true, patient(false));
    let other = wire.open("log", APPEND);
    let taken = std::sync::Mutex::new(0);
    client.wire.set_before(move |call| {
        let Call::Write { offset: None, data, .. } = call else { return None };
        let part = data.slice(..data.len().min(4));
        let mut at = taken.lock().unwrap();
        let wrote = wire.venus.write(&me(), other, *at, part.clone(), false).unwrap();
        wire.venus.flush(&me(), other, None).unwrap();
        let offset = *at;
        *at += u64::from(wrote.count);
        let status = wire.venus.getattr(&me(), fid).unwrap().status;
        let previous_version = status.data_version;
        let verifier = types::BootVerifier::default();
        let count = part.len() as u32;
        Some(Ok(Answer::Written { count, offset, status, previous_version, verifier }))
    });
    client.venus.flush(&me(), handle, None).unwrap();
    client.wire.clear();
    assert_eq!(server.client(3).content("log"), &b"0123456789"[..]);
}

#[test]
fn appends_under_a_delegation_make_no_call() {
    let server = TestServer::in_memory();
    let config = VenusConfig { recall_pause: Duration::from_millis(1), ..patient(true) };
    let client = server.client_with(1, true, config);
    let dir =
        client.venus.changes().make(&me(), client.root, &name("d"), NewKind::Directory, 0o755);
    let dir = dir.unwrap().status.fid;
    let made = client.venus.create(&me(), dir, &name("log"), 0o644, true, APPEND).unwrap();
    let (fid, handle) = (made.0.status.fid, made.1.handle);
    client.venus.dirs().fsyncdir(&me(), dir).unwrap();
    client.wire.take();
    let mut end = 0;
    for _ in 0..100 {
        append(&client, fid, handle, b"line\n", &mut end);
        client.venus.flush(&me(), handle, None).unwrap();
        assert_eq!(size(&client, fid), end);
    }
    assert_eq!(client.wire.take(), [].into(), "no call was made");
    client.venus.fsync(&me(), handle).unwrap();
    let other = server.client_with(2, true, patient(false));
    let at = other.venus.open(&me(), fid, RO).unwrap().handle;
    assert_eq!(other.read(at, 0, 1000), b"line\n".repeat(100)[..]);
    assert_eq!(client.venus.differences(), 0);
}
