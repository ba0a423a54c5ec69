//! A client and a server of different versions: an unknown part of a message ends calls, and no
//! connection. The newer server is this one behind a relay that makes its replies newer.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::*;
use client::{CallError, Endpoint, Remote};
use dafs::{FaultCode, Features, Frame, FrameHeader, FrameKind, Hello, HelloAnswer};
use types::{
    Answer, Call, Caller, CreateHow, Fault, NewKind, SHORT_SLOT, VolumeCall, VolumeChange,
};

/// How replies are changed in transit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Newer {
    NotAtAll,
    /// A fault that no version so far has.
    Fault,
    /// A field behind the last one.
    Field,
}

struct Relay {
    address: String,
    newer: Arc<AtomicU8>,
    connections: Arc<AtomicU64>,
}

impl Relay {
    fn to(server: String) -> Relay {
        Relay::with(server, |hello| hello)
    }

    /// Each side sees the other as one that says what `older` makes of a hello.
    fn with(server: String, older: fn(Hello) -> Hello) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (newer, connections) = (Arc::new(AtomicU8::new(0)), Arc::new(AtomicU64::new(0)));
        let (mode, count) = (Arc::clone(&newer), Arc::clone(&connections));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::SeqCst);
                let (server, mode) = (TcpStream::connect(&server).unwrap(), Arc::clone(&mode));
                std::thread::spawn(move || drop(carry(client, server, older, &mode)));
            }
        });
        Relay { address, newer, connections }
    }

    fn set(&self, newer: Newer) {
        self.newer.store(newer as u8, Ordering::SeqCst);
    }
}

fn carry(
    mut client: TcpStream,
    mut server: TcpStream,
    older: fn(Hello) -> Hello,
    newer: &AtomicU8,
) -> std::io::Result<()> {
    let mut hello = [0; Hello::BYTES];
    client.read_exact(&mut hello)?;
    let hello = older(Hello::parse(&hello).unwrap()).to_bytes();
    server.write_all(&hello)?;
    let mut answer = [0; HelloAnswer::BYTES];
    server.read_exact(&mut answer)?;
    client.write_all(&answer)?;
    let Ok(HelloAnswer::Welcome(terms)) =
        HelloAnswer::parse(&answer, &Hello::parse(&hello).unwrap())
    else {
        panic!("a server that takes no client")
    };
    let (mut asking, mut asked) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut asking, &mut asked);
        let _ = asked.shutdown(std::net::Shutdown::Both);
    });
    loop {
        let mut bytes = [0; FrameHeader::BYTES];
        server.read_exact(&mut bytes)?;
        let header = FrameHeader::parse(&bytes).unwrap();
        let mut message = vec![0; header.message_bytes as usize];
        server.read_exact(&mut message)?;
        let mut payload = vec![0; header.payload_bytes as usize];
        server.read_exact(&mut payload)?;
        let mut frame = Frame { header, message: message.into(), payload: payload.into() };
        let mode = newer.load(Ordering::SeqCst);
        if header.kind == FrameKind::Reply
            && header.fault.is_none()
            && mode != Newer::NotAtAll as u8
        {
            let bare = FrameHeader { checksum: 0, ..header };
            frame = if mode == Newer::Field as u8 {
                Frame::new(bare, [&frame.message[..], &[0; 8]].concat(), frame.payload)
            } else {
                Frame::plain(
                    FrameHeader { procedure: 0, fault: Some(FaultCode::Unknown(60_000)), ..bare },
                    Vec::new(),
                )
            };
            frame = frame.sealed(terms.features);
        }
        client
            .write_all(&[&frame.header.to_bytes()[..], &frame.message, &frame.payload].concat())?;
    }
}

#[test]
fn m14_a_newer_servers_answers_end_calls_alone() {
    let cell = Cell::new();
    let Endpoint::Tcp(server) = cell.tcp() else { panic!("an address") };
    let relay = Relay::to(server);
    let session = connect(Endpoint::Tcp(relay.address.clone()));
    let dir = root(&session);
    make(&session, dir, "before");
    wait_for("both connections", || relay.connections.load(Ordering::SeqCst) == 2);
    let ask = |call: Call| session.call(&Caller::ROOT, call, None).map(|reply| reply.answer);
    let new = |file: &str| {
        let (kind, how) = (NewKind::File, CreateHow::Unchecked);
        Call::Make { dir, name: name(file), kind, mode: 0o644, how }
    };
    let there = connect(cell.unix());
    for (newer, wanted) in [
        (Newer::Field, CallError::Unreadable),
        (Newer::Fault, CallError::Fault(Fault::Unsupported)),
    ] {
        relay.set(newer);
        // A question, and a change that the server makes all the same.
        for call in [Call::GetStatus { fid: dir }, new(&format!("{newer:?}"))] {
            let refused = ask(call.clone()).unwrap_err();
            assert_eq!(format!("{refused:?}"), format!("{wanted:?}"), "{call:?}");
        }
        relay.set(Newer::NotAtAll);
        let applied = try_ask(&there, Call::Lookup { dir, name: name(&format!("{newer:?}")) });
        assert!(applied.is_ok(), "{newer:?}: {applied:?}");
        ask(Call::GetStatus { fid: dir }).unwrap();
    }
    // The client made no other connection: this is longer than its first pauses before one.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(relay.connections.load(Ordering::SeqCst), 2);
}

/// A hello of a peer that does not know this feature.
fn without(hello: Hello, feature: Features) -> Hello {
    let known = (0..64)
        .map(|bit| Features(1 << bit))
        .filter(|one| hello.features.has(*one) && *one != feature);
    Hello { features: known.fold(Features::NONE, Features::with), ..hello }
}

#[test]
fn m14_a_peer_without_short_slots_gets_none() {
    let cell = Cell::new();
    let Endpoint::Tcp(server) = cell.tcp() else { panic!("an address") };
    let relay = Relay::with(server, |hello| without(hello, Features::SHORT_SLOTS));
    let (old, new) = (connect(Endpoint::Tcp(relay.address.clone())), connect(cell.unix()));
    let mut list = guard::Acl::new();
    assert!(list.set(types::PrincipalId::ANYBODY, guard::Rights::ALL, false));
    let list = Some(list.encode().into());
    ask(&new, Call::SetAcl { fid: root(&new), list, instead_of: None });
    for (session, called, is_short) in [(&new, "new", true), (&old, "old", false)] {
        let made = Call::Make {
            dir: root(&new),
            name: name(called),
            kind: NewKind::Directory,
            mode: 0o755,
            how: CreateHow::Guarded,
        };
        let dir = status(&ask(session, made)).fid;
        let Answer::Delegation { slots, .. } = ask(session, Call::Delegate { fid: dir }) else {
            panic!()
        };
        assert_eq!(slots.first & SHORT_SLOT != 0, is_short, "{called}");
    }
}

#[test]
fn m14_a_peer_without_read_times_sees_none() {
    let cell = Cell::new();
    let Endpoint::Tcp(server) = cell.tcp() else { panic!("an address") };
    let relay = Relay::with(server, |hello| without(hello, Features::READ_TIMES));
    let (old, new) = (connect(Endpoint::Tcp(relay.address.clone())), connect(cell.unix()));
    let dir = root(&new);
    let change = VolumeChange { read_times: Some(true), ..VolumeChange::default() };
    ask(&new, Call::Volume(VolumeCall::SetFields { id: dir.volume, change }));
    let file = make(&new, dir, "f");
    let at = |session: &client::Session| status(&ask(session, Call::GetStatus { fid: file }));
    let (seen, known) = (at(&old), at(&new));
    assert!(!seen.read_times && known.read_times);
    // All answers leave it out, and nothing else.
    assert_eq!(seen, types::Status { read_times: false, ..known });
    let (cookie, bytes_max) = (types::Cookie::START, 10_000);
    let list = Call::ReadDir { dir, cookie, bytes_max, plus: true };
    let Answer::Entries { entries, .. } = ask(&old, list.clone()) else { panic!() };
    assert!(entries.iter().all(|entry| entry.status.is_none_or(|status| !status.read_times)));
    let Answer::Entries { entries, .. } = ask(&new, list) else { panic!() };
    assert!(entries.iter().any(|entry| entry.status.is_some_and(|status| status.read_times)));
    assert!(!status(&ask(&old, Call::Lookup { dir, name: name("f") })).read_times);
    // A change by it keeps the option.
    append(&old, file, "text").unwrap();
    assert!(at(&new).read_times);
    // A report by it is one all the same.
    let was = at(&new).accessed;
    let call = Call::NoteRead { fid: file, was, at: types::Timestamp::new(i64::MAX, 0) };
    assert_eq!(ask(&old, call), Answer::Done);
    assert!(at(&new).accessed > was);
}
