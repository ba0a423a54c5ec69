//! A client and a server of different versions: an unknown part of a message ends calls, and no
//! connection. The newer server is this one behind a relay that makes its replies newer.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use client::{CallError, Endpoint, Remote};
use common::*;
use dafs::{FaultCode, Frame, FrameHeader, FrameKind, Hello, HelloAnswer};
use types::{Call, Caller, CreateHow, Fault, NewKind};

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
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (newer, connections) = (Arc::new(AtomicU8::new(0)), Arc::new(AtomicU64::new(0)));
        let (mode, count) = (Arc::clone(&newer), Arc::clone(&connections));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::SeqCst);
                let (server, mode) = (TcpStream::connect(&server).unwrap(), Arc::clone(&mode));
                std::thread::spawn(move || drop(carry(client, server, &mode)));
            }
        });
        Relay { address, newer, connections }
    }

    fn set(&self, newer: Newer) {
        self.newer.store(newer as u8, Ordering::SeqCst);
    }
}

fn carry(mut client: TcpStream, mut server: TcpStream, newer: &AtomicU8) -> std::io::Result<()> {
    let mut hello = [0; Hello::BYTES];
    client.read_exact(&mut hello)?;
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
