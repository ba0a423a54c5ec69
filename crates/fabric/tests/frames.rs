//! Frames of every shape arrive as they were sent, however the bytes are cut in transit.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fabric::tls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use fabric::tls::{
    CELL_SERVER, ClientTls, Handshake, Opener, Sealer, Secured, ServerTls, TlsIdentity, Trust,
};
use fabric::{
    Connection, ConnectionOptions, Endpoint, Extent, Filled, FrameError, FrameLimits, HEADER_BYTES,
    Inbox, Listener, OutFrame, Outbox, WaitFor,
};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};

const LIMITS: FrameLimits = FrameLimits { message: 256 << 10, payload: 1 << 20 };

fn measure(header: &[u8; HEADER_BYTES]) -> Result<Extent, &'static str> {
    if header[0] != b'F' {
        return Err("no magic");
    }
    let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap()) as usize;
    Ok(Extent { message: number(4), payload: number(8) })
}

fn frame_with(message: &[u8], payload: &[u8], descriptor: Option<OwnedFd>) -> OutFrame {
    let mut head = [0; HEADER_BYTES];
    head[0] = b'F';
    head[4..8].copy_from_slice(&u32::try_from(message.len()).unwrap().to_le_bytes());
    head[8..12].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
    OutFrame::new(
        head,
        Bytes::copy_from_slice(message),
        Bytes::copy_from_slice(payload),
        descriptor,
    )
}

fn frame(message: &[u8], payload: &[u8]) -> OutFrame {
    frame_with(message, payload, None)
}

fn random_parts(random: &mut StdRng) -> (Vec<u8>, Vec<u8>) {
    let size = |random: &mut StdRng, largest: usize| match random.random_range(0..6) {
        0 => 0,
        1 | 2 => random.random_range(0..300),
        3 => random.random_range(0..20_000.min(largest)),
        4 => random.random_range(0..=largest),
        _ => [1, 16 << 10, (16 << 10) - 64, (16 << 10) + 1, largest][random.random_range(0..5)],
    };
    let mut message = vec![0; size(random, LIMITS.message)];
    let mut payload = vec![0; size(random, LIMITS.payload)];
    random.fill_bytes(&mut message);
    random.fill_bytes(&mut payload);
    (message, payload)
}

fn send_all(connection: &Connection, outbox: &mut Outbox) {
    while !outbox.flush(connection).unwrap() {
        connection.wait(WaitFor::Send, None).unwrap();
    }
}

fn tcp_pair() -> (Connection, Connection) {
    let listener =
        Listener::bind(&Endpoint::Tcp("127.0.0.1:0".into()), ConnectionOptions::default()).unwrap();
    let client =
        Connection::connect(&listener.endpoint().unwrap(), &ConnectionOptions::default()).unwrap();
    loop {
        if let Some(server) = listener.accept().unwrap() {
            return (client, server);
        }
    }
}

fn round(seed: u64, sender: &Connection, receiver: &Connection, keys: Option<(Sealer, Opener)>) {
    let (sealer, opener) = keys.unzip();
    let mut random = StdRng::seed_from_u64(seed);
    let sent: Vec<(Vec<u8>, Vec<u8>)> = (0..60).map(|_| random_parts(&mut random)).collect();
    let with_descriptor: Vec<bool> = sent.iter().map(|_| random.random_bool(0.2)).collect();
    let passes = sender.passes_descriptors();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = StdRng::seed_from_u64(!seed);
            let mut outbox = Outbox::new();
            if let Some(sealer) = sealer {
                outbox.secure(sealer);
            }
            for (index, (message, payload)) in sent.iter().enumerate() {
                let descriptor = (passes && with_descriptor[index]).then(|| {
                    let mut file = tempfile::tempfile().unwrap();
                    write!(file, "{index}").unwrap();
                    file.rewind().unwrap();
                    file.into()
                });
                outbox.push(frame_with(message, payload, descriptor));
                if random.random_bool(0.7) {
                    send_all(sender, &mut outbox);
                }
            }
            send_all(sender, &mut outbox);
            assert!(outbox.is_empty() && outbox.bytes() == 0);
        });
        let mut inbox = Inbox::new(measure, LIMITS, true);
        if let Some(opener) = opener {
            inbox.secure(opener);
        }
        for (index, (message, payload)) in sent.iter().enumerate() {
            loop {
                if let Some(frame) = inbox.next_frame().unwrap() {
                    assert!(
                        frame.message == message && frame.payload == payload,
                        "seed {seed}, frame {index}"
                    );
                    break;
                }
                if random.random_bool(0.5) {
                    assert_eq!(inbox.fill(receiver, true).unwrap(), Filled::Some);
                } else if inbox.fill(receiver, false).unwrap() == Filled::Nothing {
                    receiver.wait(WaitFor::Receive, None).unwrap();
                }
            }
            if passes && with_descriptor[index] {
                let mut text = String::new();
                let file =
                    inbox.take_descriptor().expect("a descriptor arrives no later than its frame");
                std::fs::File::from(file).read_to_string(&mut text).unwrap();
                assert_eq!(text, index.to_string());
            }
        }
        assert!(!inbox.is_partial());
        assert!(inbox.take_descriptor().is_none());
    });
}

#[test]
fn frames_of_every_shape_over_unix() {
    let (one, other) = Connection::pair().unwrap();
    for seed in 0..8 {
        round(seed, &one, &other, None);
        round(seed + 100, &other, &one, None);
    }
}

#[test]
fn frames_of_every_shape_over_tcp() {
    let (one, other) = tcp_pair();
    for seed in 0..8 {
        round(seed, &one, &other, None);
        round(seed + 100, &other, &one, None);
    }
}

/// A server's side of a handshake, as in its worker: records come through the inbox.
fn answer(connection: &Connection, tls: &ServerTls) -> Secured {
    let mut handshake = Handshake::server(tls).unwrap();
    let mut inbox = Inbox::new(measure, LIMITS, false);
    loop {
        let Some(record) = inbox.take_record().unwrap() else {
            assert_eq!(inbox.fill(connection, true).unwrap(), Filled::Some);
            continue;
        };
        let mut out = Vec::new();
        let done = handshake.step(&record, &mut out).unwrap();
        connection.send_raw(&out, None).unwrap();
        if done {
            return handshake.finish().unwrap();
        }
    }
}

fn server_identity() -> TlsIdentity {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec![CELL_SERVER.to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    TlsIdentity { chain: vec![certificate.der().clone()], key }
}

#[test]
fn frames_of_every_shape_over_tls() {
    let identity = server_identity();
    let trust = Trust::Authorities(identity.chain.clone());
    let (server, client) =
        (ServerTls::new(identity, &[]).unwrap(), ClientTls::new(trust, None).unwrap());
    for seed in 0..8 {
        let (one, other) = tcp_pair();
        let (ours, theirs) = std::thread::scope(|scope| {
            let theirs = scope.spawn(|| answer(&other, &server));
            (one.shake_hands(&client, "127.0.0.1", None).unwrap(), theirs.join().unwrap())
        });
        round(seed, &one, &other, Some((ours.sealer, theirs.opener)));
        round(seed + 100, &other, &one, Some((theirs.sealer, ours.opener)));
    }
}

#[test]
fn bytes_after_a_handshake_arrive_and_a_changed_record_ends_it() {
    let identity = server_identity();
    let trust = Trust::Authorities(identity.chain.clone());
    let (server, client) =
        (ServerTls::new(identity, &[]).unwrap(), ClientTls::new(trust, None).unwrap());
    let (one, other) = tcp_pair();
    let (ours, theirs) = std::thread::scope(|scope| {
        let theirs = scope.spawn(|| answer(&other, &server));
        (one.shake_hands(&client, "127.0.0.1", None).unwrap(), theirs.join().unwrap())
    });
    let mut outbox = Outbox::new();
    outbox.secure(ours.sealer);
    outbox.push(OutFrame::raw(Bytes::from_static(b"hello")));
    outbox.push(frame(b"m", b"p"));
    outbox.push(frame(b"n", &[]));
    outbox.flush(&one).unwrap();
    let mut inbox = Inbox::new(measure, LIMITS, false);
    // Simulates arrival together with the last record of the handshake.
    inbox.fill(&other, true).unwrap();
    inbox.secure(theirs.opener);
    assert_eq!(inbox.take_raw(5).unwrap(), b"hello");
    assert_eq!(inbox.next_frame().unwrap().unwrap().message, b"m");
    assert_eq!(inbox.next_frame().unwrap().unwrap().message, b"n");
    assert!(inbox.next_frame().unwrap().is_none() && !inbox.is_partial());
    let mut forged = vec![23, 3, 3, 0, 40];
    forged.resize(45, 9);
    one.send_raw(&forged, None).unwrap();
    inbox.fill(&other, true).unwrap();
    assert!(matches!(inbox.next_frame(), Err(FrameError::Tls(_))));
}

#[test]
fn clear_text_in_place_of_tls_is_reported() {
    let trust = Trust::Authorities(server_identity().chain);
    let client = ClientTls::new(trust, None).unwrap();
    let (one, other) = tcp_pair();
    other.send_raw(b"RIALTO-DAFS and more", None).unwrap();
    let error = one.shake_hands(&client, "127.0.0.1", None).unwrap_err();
    assert!(error.to_string().contains("clear text only"), "{error}");
}

#[test]
fn a_large_payload_is_received_in_place() {
    let (one, other) = Connection::pair().unwrap();
    let payload = vec![7; 1 << 20];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut outbox = Outbox::new();
            outbox.push(frame(b"message", &payload));
            send_all(&one, &mut outbox);
        });
        let mut inbox = Inbox::new(measure, LIMITS, false);
        loop {
            if let Some(frame) = inbox.next_frame().unwrap() {
                assert_eq!(frame.payload, payload);
                break;
            }
            inbox.fill(&other, true).unwrap();
        }
    });
}

#[test]
fn nothing_is_had_for_a_bad_header() {
    let (one, other) = Connection::pair().unwrap();
    let mut inbox = Inbox::new(measure, FrameLimits { message: 100, payload: 0 }, false);
    let mut outbox = Outbox::new();
    outbox.push(frame(&[1; 100], &[]));
    outbox.push(frame(&[1; 10], &[2]));
    outbox.flush(&one).unwrap();
    inbox.fill(&other, true).unwrap();
    assert!(inbox.next_frame().unwrap().is_some());
    assert_eq!(
        inbox.next_frame().unwrap_err(),
        FrameError::TooLarge(Extent { message: 10, payload: 1 })
    );

    rustix::io::write(one.as_fd(), &[b'x'; 200]).unwrap();
    let mut inbox = Inbox::new(measure, LIMITS, false);
    inbox.fill(&other, true).unwrap();
    assert_eq!(inbox.next_frame().unwrap_err(), FrameError::Header("no magic"));
}

#[test]
fn the_end_differs_from_silence() {
    let (one, other) = Connection::pair().unwrap();
    let mut inbox = Inbox::new(measure, LIMITS, false);
    assert_eq!(inbox.fill(&other, false).unwrap(), Filled::Nothing);
    let before = Instant::now();
    let ready = other.wait(WaitFor::Receive, Some(before + Duration::from_millis(20))).unwrap();
    assert!(!ready.receive && before.elapsed() >= Duration::from_millis(20));
    rustix::io::write(one.as_fd(), b"F123").unwrap();
    drop(one);
    assert_eq!(inbox.fill(&other, false).unwrap(), Filled::Some);
    assert!(inbox.next_frame().unwrap().is_none());
    assert_eq!(inbox.fill(&other, false).unwrap(), Filled::End);
    assert!(inbox.is_partial());
}

#[test]
fn a_descriptor_that_is_not_wanted_is_dropped() {
    let (one, other) = Connection::pair().unwrap();
    let mut outbox = Outbox::new();
    let (probe, passed) = Connection::pair().unwrap();
    outbox.push(frame_with(b"m", b"p", Some(passed.as_fd().try_clone_to_owned().unwrap())));
    drop(passed);
    outbox.flush(&one).unwrap();
    let mut inbox = Inbox::new(measure, LIMITS, false);
    inbox.fill(&other, true).unwrap();
    assert!(inbox.next_frame().unwrap().is_some());
    assert!(inbox.take_descriptor().is_none());
    let mut ended = Inbox::new(measure, LIMITS, false);
    assert_eq!(ended.fill(&probe, true).unwrap(), Filled::End, "the last copy is closed");
}

#[test]
fn a_greeting_is_taken_as_it_comes_and_frames_follow() {
    let (one, other) = Connection::pair().unwrap();
    let mut outbox = Outbox::new();
    outbox.push(OutFrame::raw(Bytes::from_static(b"hello there")));
    outbox.push(frame(b"m", b"p"));
    outbox.flush(&one).unwrap();
    let mut inbox = Inbox::new(measure, LIMITS, false);
    inbox.fill(&other, true).unwrap();
    assert_eq!(inbox.take_raw(5).unwrap(), b"hello");
    assert_eq!(inbox.take_raw(6).unwrap(), b" there");
    assert_eq!(inbox.next_frame().unwrap().unwrap().message, b"m");
    assert_eq!(inbox.take_raw(6).unwrap(), b"");
    let until = Some(Instant::now() + Duration::from_secs(10));
    one.send_raw(b"and back", until).unwrap();
    let mut back = [0; 8];
    other.receive_raw(&mut back, until).unwrap();
    assert_eq!(&back, b"and back");
    let soon = Some(Instant::now() + Duration::from_millis(5));
    assert_eq!(
        other.receive_raw(&mut back, soon).unwrap_err().kind(),
        std::io::ErrorKind::TimedOut
    );
    drop(one);
    assert_eq!(
        other.receive_raw(&mut back, until).unwrap_err().kind(),
        std::io::ErrorKind::UnexpectedEof
    );
}
