//! Noise on the server's port: refused clearly, counted, and no harm to a real client or to the
//! server's memory.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::{Endpoint, Session};
use common::*;
use dafs::message::{Attach, Message};
use dafs::{Features, FrameHeader, FrameKind, Hello, HelloAnswer, HelloRefusal, Terms};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use types::{Answer, Call, ClientId, Fid, SessionId};

/// A server in a process of its own, so that its memory can be measured.
struct Served {
    child: Child,
    address: String,
    dir: tempfile::TempDir,
}

impl Served {
    fn start() -> Served {
        Self::start_with(600)
    }

    fn start_with(unbound_max: usize) -> Served {
        let dir = tempfile::tempdir().unwrap();
        make_partition(&dir.path().join("vicepa"));
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "serve_for_another_test", "--ignored", "--nocapture"])
            .env("HOSTILE_DIR", dir.path())
            .env("HOSTILE_UNBOUND", unbound_max.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let file = dir.path().join("address");
        wait_for("the server", || file.exists());
        let address = std::fs::read_to_string(file).unwrap();
        Served { child, address, dir }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn session(&self) -> Session {
        connect(Endpoint::Unix(self.dir.path().join("socket")))
    }

    fn rss_kib(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn count(&self, session: &Session, what: &str) -> u64 {
        let Answer::Report(report) = ask(session, Call::ServerReport) else { panic!("a report") };
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        report["server"][what].as_u64().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "run by other tests as a process of its own"]
fn serve_for_another_test() {
    let dir = std::path::PathBuf::from(std::env::var("HOSTILE_DIR").unwrap());
    let mut config = server::ServerConfig::new(dir.join("vicepa"));
    config.unix_socket = Some(dir.join("socket"));
    config.tcp_listen = Some("127.0.0.1:0".into());
    config.trust_this_machine();
    config.slow_reader = Duration::from_secs(3);
    config.unbound_max = std::env::var("HOSTILE_UNBOUND").unwrap().parse().unwrap();
    let server = server::Server::start(&config).unwrap();
    let tcp = server.endpoints().iter().find_map(|endpoint| match endpoint {
        Endpoint::Tcp(address) => Some(address.clone()),
        Endpoint::Unix(_) => None,
    });
    std::fs::write(dir.join("address.new"), tcp.unwrap()).unwrap();
    std::fs::rename(dir.join("address.new"), dir.join("address")).unwrap();
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}

/// Says hello and attaches; returns the stream of a session that misbehaves from now on.
fn attach(stream: &mut TcpStream) -> (SessionId, Terms) {
    let hello = Hello::full(Features::NONE);
    stream.write_all(&hello.to_bytes()).unwrap();
    let mut answer = [0; HelloAnswer::BYTES];
    stream.read_exact(&mut answer).unwrap();
    let Ok(HelloAnswer::Welcome(terms)) = HelloAnswer::parse(&answer, &hello) else {
        panic!("welcome")
    };
    let client = ClientId(rand::random());
    let attach = Attach { client, incarnation: 1, resume: None, display: "hostile".into(), pid: 1 };
    send(stream, SessionId(0), &terms, &Message::Attach(attach));
    let (header, _) = receive(stream).unwrap();
    assert_eq!(header.kind, FrameKind::Attached);
    (header.session, terms)
}

fn send(stream: &mut TcpStream, session: SessionId, terms: &Terms, message: &Message) {
    let frame = message.to_frame(session).unwrap().sealed(terms.features);
    stream.write_all(&frame.header.to_bytes()).unwrap();
    stream.write_all(&frame.message).unwrap();
}

fn receive(stream: &mut TcpStream) -> std::io::Result<(FrameHeader, Vec<u8>)> {
    let mut bytes = [0; FrameHeader::BYTES];
    stream.read_exact(&mut bytes)?;
    let header = FrameHeader::parse(&bytes).unwrap();
    let mut rest = vec![0; header.message_bytes as usize + header.payload_bytes as usize];
    stream.read_exact(&mut rest)?;
    Ok((header, rest))
}

/// Has the server ended the connection (after any answer)?
fn is_ended(stream: &mut TcpStream) -> bool {
    let mut sink = [0; 4096];
    loop {
        match stream.read(&mut sink) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return true,
            Err(_) => return false,
        }
    }
}

#[test]
fn noise_is_refused_with_a_reason_and_counted() {
    let served = Served::start();
    let session = served.session();
    let before = served.count(&session, "connections_malformed");
    for noise in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &[0; 100], &[0xff; 100_000]] {
        let mut stream = served.connect();
        stream.write_all(noise).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let refused =
            HelloAnswer::parse(answer[..].try_into().unwrap(), &Hello::full(Features::NONE));
        assert_eq!(refused, Ok(HelloAnswer::Refused(HelloRefusal::NotOurs)));
        assert!(String::from_utf8_lossy(&answer).contains("Rialto"), "{answer:?}");
    }
    assert_eq!(served.count(&session, "connections_malformed"), before + 3);
}

#[test]
fn wrong_frames_end_the_connection_and_nothing_else() {
    let served = Served::start();
    let session = served.session();
    let mut random = StdRng::seed_from_u64(5);
    for round in 0..150 {
        let mut stream = served.connect();
        let (id, terms) = attach(&mut stream);
        let frame = Message::Renew(1).to_frame(id).unwrap().sealed(terms.features);
        let mut bytes = frame.header.to_bytes();
        // One to three wrong bytes in a header that is otherwise right, then nonsense.
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..bytes.len());
            bytes[at] ^= random.random_range(1..=255);
        }
        // Sending fails if the server has closed the connection already, which is right too.
        let _ = stream.write_all(&bytes);
        let mut nonsense = vec![0; random.random_range(64..2000)];
        random.fill_bytes(&mut nonsense);
        let _ = stream.write_all(&nonsense);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        assert!(is_ended(&mut stream), "round {round}");
    }
    assert!(served.count(&session, "connections_malformed") > 100);
    assert_eq!(served.count(&session, "panics"), 0);
    ask(&session, Call::GetStatus { fid: root(&session) });
}

/// A client that is newer than the server makes calls that the server does not know, and its
/// session goes on.
#[test]
fn m14_a_newer_client_is_answered_and_not_cut_off() {
    let served = Served::start();
    let session = served.session();
    let (dir, before) = (root(&session), served.count(&session, "connections_malformed"));
    let mut stream = served.connect();
    let (id, terms) = attach(&mut stream);
    send(&mut stream, id, &terms, &Message::Credential { handle: 1, caller: types::Caller::ROOT });
    let known = dafs::encode_call(&Call::GetStatus { fid: dir }).unwrap();
    let longer = [&known.message[..], b"a field of a newer version"].concat();
    let body = vec![7; 100_000];
    let sent = [
        (999, known.message.clone(), vec![]),
        (0x8000 | 999, vec![1; 200_000], vec![]),
        (999, vec![], body),
        (known.procedure, longer, vec![]),
        (known.procedure, known.message.clone(), vec![]),
    ];
    for (number, (procedure, message, payload)) in (1..).zip(sent) {
        let is_known = procedure == known.procedure && message == known.message;
        let header = FrameHeader {
            procedure,
            request: number,
            credential: 1,
            ..FrameHeader::new(FrameKind::Request, id)
        };
        let frame = dafs::Frame::new(header, message, payload.into()).sealed(terms.features);
        let bytes = [&frame.header.to_bytes()[..], &frame.message, &frame.payload].concat();
        // The same request again is refused in the same way.
        for _ in 0..2 {
            stream.write_all(&bytes).unwrap();
            let (header, _) = receive(&mut stream).unwrap();
            assert_eq!((header.kind, header.slot, header.request), (FrameKind::Reply, 0, number));
            let fault = header.fault.map(dafs::FaultCode::fault);
            assert_eq!(fault, (!is_known).then_some(types::Fault::Unsupported), "{number}");
        }
    }
    assert_eq!(served.count(&session, "connections_malformed"), before);
}

#[test]
fn silence_truncation_and_dribble_do_not_stop_a_real_client() {
    let served = Served::start();
    let session = served.session();
    let dir = root(&session);
    let mut random = StdRng::seed_from_u64(3);
    ask(&session, Call::GetStatus { fid: dir });
    let quiet = served.rss_kib();
    // A thousand silent connections: more than the limit, so the oldest are closed.
    let mut silent: Vec<TcpStream> = (0..1000).map(|_| served.connect()).collect();
    // Three hundred that stop in the middle of a hello, or of an attach that claims a large
    // message.
    let hello = Hello::full(Features::NONE).to_bytes();
    for _ in 0..300 {
        let mut stream = served.connect();
        let part = random.random_range(1..hello.len());
        // It may be closed already.
        let _ = stream.write_all(&hello[..part]);
        silent.push(stream);
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let dribble = scope.spawn(|| {
            let mut streams: Vec<TcpStream> = (0..50).map(|_| served.connect()).collect();
            let mut at = 0;
            while !stop.load(Ordering::SeqCst) {
                for stream in &mut streams {
                    let _ = stream.write_all(&hello[at % hello.len()..=at % hello.len()]);
                }
                at += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let began = Instant::now();
        let mut slowest = Duration::ZERO;
        let mut calls = 0;
        while began.elapsed() < Duration::from_secs(3) {
            let before = Instant::now();
            ask(&session, Call::GetStatus { fid: dir });
            slowest = slowest.max(before.elapsed());
            calls += 1;
        }
        // New clients get in too.
        let newcomer = connect(Endpoint::Tcp(served.address.clone()));
        ask(&newcomer, Call::GetStatus { fid: dir });
        stop.store(true, Ordering::SeqCst);
        dribble.join().unwrap();
        assert!(
            calls > 1000 && slowest < Duration::from_millis(500),
            "{calls} calls, slowest {slowest:?}"
        );
    });
    let grown = served.rss_kib().saturating_sub(quiet);
    assert!(grown < 16 << 10, "{grown} KiB for {} connections", silent.len());
    assert!(served.count(&session, "connections_turned_away") > 0);
}

#[test]
fn unattached_connections_are_closed_in_time() {
    let served = Served::start();
    let session = served.session();
    let mut silent = served.connect();
    let before = Instant::now();
    let mut answer = Vec::new();
    silent.read_to_end(&mut answer).unwrap();
    let took = before.elapsed();
    assert!(took > Duration::from_secs(8) && took < Duration::from_secs(15), "{took:?}");
    assert!(String::from_utf8_lossy(&answer).contains("too long"));
    assert_eq!(served.count(&session, "connections_turned_away"), 1);
}

#[test]
fn a_client_that_reads_nothing_is_not_read_and_then_cut_off() {
    let served = Served::start();
    let session = served.session();
    let dir = root(&session);
    let file = make(&session, dir, "large");
    write(&session, file, 0, vec![1; 1 << 20]);
    let quiet = served.rss_kib();
    let mut streams: Vec<TcpStream> = (0..4).map(|_| served.connect()).collect();
    for stream in &mut streams {
        let (id, terms) = attach(stream);
        ask_for_much(stream, id, &terms, file);
    }
    std::thread::sleep(Duration::from_millis(700));
    let grown = served.rss_kib().saturating_sub(quiet);
    assert!(grown < 4 * (24 << 10), "{grown} KiB for four that read nothing");
    wait_for("four to be cut off", || served.count(&session, "connections_too_slow") == 4);
    for mut stream in streams {
        assert!(is_ended(&mut stream));
    }
    ask(&session, Call::GetStatus { fid: dir });
}

/// A hundred reads of a mebibyte each, without reading any answer.
fn ask_for_much(stream: &mut TcpStream, session: SessionId, terms: &Terms, file: Fid) {
    let caller = types::Caller::ROOT;
    send(stream, session, terms, &Message::Credential { handle: 1, caller });
    for slot in 0..100 {
        let call =
            dafs::encode_call(&Call::Read { fid: file, offset: 0, length: 1 << 20 }).unwrap();
        let mut header = FrameHeader::new(FrameKind::Request, session);
        header.procedure = call.procedure;
        header.slot = slot;
        header.request = 1;
        header.credential = 1;
        let frame = dafs::Frame::new(header, call.message, call.payload).sealed(terms.features);
        let mut bytes = frame.header.to_bytes().to_vec();
        bytes.extend_from_slice(&frame.message);
        stream.write_all(&bytes).unwrap();
    }
}

#[test]
fn ten_thousand_idle_connections_cost_little() {
    // Both ends of each are descriptors of this machine; not every test machine allows so many.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let count = limit.maximum.map_or(10_000, |most| (most.saturating_sub(200)).min(10_000));
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let served = Served::start_with(20_000);
    let session = served.session();
    let dir = root(&session);
    ask(&session, Call::GetStatus { fid: dir });
    let quiet = served.rss_kib();
    // As many attached ones as fit into the test's time: each attach is synced to disk.
    let attached: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = served.connect();
            attach(&mut stream);
            stream
        })
        .collect();
    // Silent connections are closed after ten seconds, so a busy machine opens as many as come in
    // five.
    let began = Instant::now();
    let idle: Vec<TcpStream> = (40..count)
        .take_while(|_| began.elapsed() < Duration::from_secs(5))
        .map(|_| served.connect())
        .collect();
    let all = (idle.len() + attached.len()) as u64;
    wait_for("all of them", || served.count(&session, "connections_accepted") > all);
    let open = served.count(&session, "connections");
    assert!(open > all / 2, "{open} of {all} are open");
    let before = Instant::now();
    for _ in 0..200 {
        ask(&session, Call::GetStatus { fid: dir });
    }
    assert!(before.elapsed() < Duration::from_secs(2), "{:?}", before.elapsed());
    let grown = served.rss_kib().saturating_sub(quiet);
    assert!(grown < 6 * open, "{grown} KiB for {open} connections");
}
