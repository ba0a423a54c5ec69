//! Clients that break the rules of lanes and regions: each loses its connection, and nothing else
//! happens. They speak the protocol by themselves, with no part of the client's code.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dafs::message::{Attach, AttachAnswer, Message};
use dafs::{
    Features, Flags, Frame, FrameHeader, FrameKind, Hello, HelloAnswer, HelloRefusal, Region,
    encode_call,
};
use fabric::lane::{LANE_BYTES, LaneReceiver, LaneSender, client_lane};
use mem::shared::SharedMemory;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use types::{Call, Caller, ClientId, Fid, SessionId};

use crate::common::*;

pub(crate) struct Attacker {
    pub stream: UnixStream,
    pub session: SessionId,
    pub lane: Option<(Arc<SharedMemory>, LaneSender, LaneReceiver)>,
    region: SharedMemory,
    fid: Fid,
    requests: [u64; 128],
}

pub(crate) const FEATURES: Features =
    Features::DESCRIPTORS.with(Features::DIRECT).with(Features::LANES).with(Features::READ_TIMES);

impl Attacker {
    /// Greets at a socket and attaches nothing yet; the refusal of the greeting.
    pub fn greet(socket: &Path, features: Features, fid: Fid) -> Result<Attacker, HelloRefusal> {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let hello = Hello::full(features);
        stream.write_all(&hello.to_bytes()).unwrap();
        let mut answer = [0; HelloAnswer::BYTES];
        stream.read_exact(&mut answer).unwrap();
        let region = SharedMemory::create_sealed("region", 1 << 20).unwrap();
        let (session, requests) = (SessionId(0), [0; 128]);
        match HelloAnswer::parse(&answer, &hello).unwrap() {
            HelloAnswer::Refused(refusal) => Err(refusal),
            HelloAnswer::Welcome(_) => {
                Ok(Attacker { stream, session, lane: None, region, fid, requests })
            }
        }
    }

    /// Attaches; `Err`: what the server says instead.
    pub fn attach_as(
        &mut self,
        client: ClientId,
        incarnation: u64,
        resume: Option<SessionId>,
    ) -> Result<AttachAnswer, Option<Box<Message>>> {
        let (display, pid) = ("hostile".into(), std::process::id());
        self.send(&Message::Attach(Attach { client, incarnation, resume, display, pid }), None);
        match self.message() {
            Some(Message::Attached(attached)) => {
                self.session = attached.session;
                let caller = Caller::ROOT;
                self.send(&Message::Credential { handle: 1, caller }, None);
                Ok(attached)
            }
            other => Err(other.map(Box::new)),
        }
    }

    fn attach(cell: &Cell, features: Features, fid: Fid) -> Attacker {
        let socket = cell.config.unix_socket.as_ref().unwrap();
        let mut attacker = Attacker::greet(socket, features, fid).unwrap();
        attacker.attach_as(ClientId(rand::random()), 1, None).unwrap();
        attacker
    }

    /// The server's next message; `None`: a reply, or the connection is over.
    pub fn message(&mut self) -> Option<Message> {
        let mut header = [0; FrameHeader::BYTES];
        self.stream.read_exact(&mut header).ok()?;
        let header = FrameHeader::parse(&header).unwrap();
        let mut bytes = |count: u32| {
            let mut bytes = vec![0; count as usize];
            self.stream.read_exact(&mut bytes).ok().map(|()| Bytes::from(bytes))
        };
        let (message, payload) = (bytes(header.message_bytes)?, bytes(header.payload_bytes)?);
        Message::of_frame(&Frame { header, message, payload }).unwrap()
    }

    /// With a lane and a region that the server accepted.
    fn with_lane(cell: &Cell, fid: Fid) -> Attacker {
        let mut attacker = Attacker::attach(cell, FEATURES, fid);
        let memory = Arc::new(SharedMemory::create_sealed("lane", LANE_BYTES).unwrap());
        attacker.send(&Message::Lane, Some(memory.file().as_fd().try_clone_to_owned().unwrap()));
        assert_eq!(attacker.receive().unwrap().kind, FrameKind::LaneOpen);
        let region = attacker.region.file().try_clone().unwrap();
        attacker.send(&Message::Region { handle: 9, begins: true }, Some(region));
        assert_eq!(attacker.receive().unwrap().kind, FrameKind::RegionOpen);
        let (sender, receiver) = client_lane(Arc::clone(&memory));
        attacker.lane = Some((memory, sender, receiver));
        attacker
    }

    #[allow(clippy::needless_pass_by_value)] // It gives the file away.
    pub fn send(&mut self, message: &Message, file: Option<OwnedFd>) {
        let mut frame = message.to_frame(self.session).unwrap().sealed(Features::NONE);
        if file.is_some() {
            frame.header.flags = frame.header.flags.with(Flags::DESCRIPTOR);
        }
        self.send_frame(&frame, file.as_ref());
    }

    fn send_frame(&mut self, frame: &Frame, file: Option<&OwnedFd>) {
        let bytes = [&frame.header.to_bytes()[..], &frame.message, &frame.payload].concat();
        let files: Vec<_> = file.map(AsFd::as_fd).into_iter().collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        }
        // The server may have closed the connection.
        let _ = sendmsg(&self.stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL);
    }

    /// The next frame over the socket; `None`: the connection is over.
    fn receive(&mut self) -> Option<FrameHeader> {
        let mut header = [0; FrameHeader::BYTES];
        self.stream.read_exact(&mut header).ok()?;
        let header = FrameHeader::parse(&header).unwrap();
        let mut rest = vec![0; (header.message_bytes + header.payload_bytes) as usize];
        self.stream.read_exact(&mut rest).ok()?;
        Some(header)
    }

    /// The server closes the connection.
    pub fn is_ended(&mut self) -> bool {
        while let Some(header) = self.receive() {
            if header.kind == FrameKind::Goodbye {
                return true;
            }
        }
        true
    }

    fn reading(&mut self, slot: u32, length: u32, region: Region) -> (FrameHeader, Vec<u8>) {
        let call = encode_call(&Call::Read { fid: self.fid, offset: 0, length }).unwrap();
        let request = self.requests[slot as usize] + 1;
        let header = FrameHeader {
            procedure: call.procedure,
            flags: Flags::DIRECT,
            request,
            slot,
            credential: 1,
            region,
            message_bytes: call.message.len() as u32,
            ..FrameHeader::new(FrameKind::Request, self.session)
        };
        (header, call.message)
    }

    fn put(&mut self, header: &FrameHeader, message: &[u8]) {
        let (_, sender, _) = self.lane.as_mut().unwrap();
        let rings = sender.put(&header.to_bytes(), message).unwrap();
        if rings {
            self.send(&Message::Bell, None);
        }
    }

    /// Reads through the lane, as a good client.
    fn read(&mut self, slot: u32, length: u32, offset: u64) -> Vec<u8> {
        let (header, message) = self.reading(slot, length, Region { handle: 9, offset });
        self.put(&header, &message);
        self.requests[slot as usize] += 1;
        let entry = self.reply();
        let reply = FrameHeader::parse(entry.header()).unwrap();
        assert_eq!((reply.kind, reply.slot, reply.fault), (FrameKind::Reply, slot, None));
        let mut bytes = vec![0; reply.payload_bytes as usize];
        self.region.get(offset as usize, &mut bytes);
        bytes
    }

    fn reply(&mut self) -> fabric::lane::LaneEntry {
        let mut found = None;
        wait_for("a reply in the lane", || {
            found = self.lane.as_mut().unwrap().2.take().unwrap();
            found.is_some()
        });
        found.unwrap()
    }
}

fn cell_with_file() -> (Cell, Fid) {
    let cell = Cell::new();
    let session = connect(cell.unix());
    let fid = make(&session, root(&session), "file");
    write(&session, fid, 0, vec![7; 100_000]);
    (cell, fid)
}

/// The server serves others, and nothing in it panicked.
fn is_well(cell: &Cell, fid: Fid) {
    let mut good = Attacker::with_lane(cell, fid);
    for round in 0..4 {
        assert_eq!(good.read(round, 3000, 0), vec![7; 3000]);
    }
    let session = connect(cell.unix());
    let types::Answer::Report(report) = ask(&session, Call::ServerReport) else { panic!() };
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["server"]["panics"], 0, "{report}");
}

#[test]
fn la1_memory_that_could_raise_a_signal_is_not_mapped() {
    let (cell, fid) = cell_with_file();
    let lanes: [OwnedFd; 4] = [
        SharedMemory::create("unsealed", LANE_BYTES).unwrap().file().try_clone().unwrap(),
        SharedMemory::create_sealed("short", 4096).unwrap().file().try_clone().unwrap(),
        SharedMemory::create_sealed("long", 2 * LANE_BYTES).unwrap().file().try_clone().unwrap(),
        std::fs::File::open("/dev/zero").unwrap().into(),
    ];
    for file in lanes {
        let mut attacker = Attacker::attach(&cell, FEATURES, fid);
        attacker.send(&Message::Lane, Some(file));
        assert!(attacker.is_ended());
    }
    let mut attacker = Attacker::with_lane(&cell, fid);
    let plain = tempfile::tempfile().unwrap();
    plain.set_len(8192).unwrap();
    let regions: [OwnedFd; 3] = [
        SharedMemory::create("unsealed", 8192).unwrap().file().try_clone().unwrap(),
        plain.into(),
        std::fs::File::open("/dev/zero").unwrap().into(),
    ];
    for (handle, file) in (20..).zip(regions) {
        attacker.send(&Message::Region { handle, begins: true }, Some(file));
        assert_eq!(attacker.receive().unwrap().kind, FrameKind::RegionOpen);
        let (header, message) = attacker.reading(0, 10, Region { handle, offset: 0 });
        let mut other = Attacker::with_lane(&cell, fid);
        other.put(&FrameHeader { session: other.session, ..header }, &message);
        assert!(other.is_ended(), "no such region");
    }
    is_well(&cell, fid);
}

#[test]
fn la2_requests_that_break_a_rule_end_the_connection() {
    let (cell, fid) = cell_with_file();
    type Change = fn(&mut FrameHeader);
    let wrong: [(&str, Change); 10] = [
        ("another region", |header| header.region.handle = 8),
        ("behind the region", |header| header.region.offset = (1 << 20) + 1),
        ("far behind the region", |header| header.region.offset = u64::MAX),
        ("a payload that leaves the region", |header| {
            header.region.offset = (1 << 20) - 10;
            header.payload_bytes = 11;
        }),
        ("another session", |header| header.session.0 += 1),
        ("a slot that it has not", |header| header.slot = 1 << 20),
        ("a number out of order", |header| header.request += 1),
        ("a long message", |header| header.message_bytes = 193),
        ("not direct", |header| {
            header.flags = Flags::NONE;
            header.region = Region::default();
        }),
        ("of a chain", |header| header.flags = header.flags.with(Flags::CHAIN_START)),
    ];
    for (what, change) in wrong {
        let mut attacker = Attacker::with_lane(&cell, fid);
        assert_eq!(attacker.read(0, 10, 500), vec![7; 10]);
        let (mut header, message) = attacker.reading(0, 10, Region { handle: 9, offset: 0 });
        change(&mut header);
        attacker.put(&header, &message);
        assert!(attacker.is_ended(), "{what}");
    }
    is_well(&cell, fid);
}

#[test]
fn la3_a_read_that_does_not_fit_its_region_is_refused() {
    let (cell, fid) = cell_with_file();
    let mut attacker = Attacker::with_lane(&cell, fid);
    for offset in [(1 << 20) - 10, 1 << 20] {
        let (header, message) = attacker.reading(3, 11, Region { handle: 9, offset });
        attacker.put(&header, &message);
        attacker.requests[3] += 1;
        let reply = FrameHeader::parse(attacker.reply().header()).unwrap();
        assert!(reply.fault.is_some() && reply.payload_bytes == 0, "{reply:?}");
    }
    // Also when memory would answer.
    assert_eq!(attacker.read(3, 11, 0), vec![7; 11]);
    let (header, message) = attacker.reading(3, 11, Region { handle: 9, offset: (1 << 20) - 10 });
    attacker.put(&header, &message);
    attacker.requests[3] += 1;
    assert!(FrameHeader::parse(attacker.reply().header()).unwrap().fault.is_some());
    is_well(&cell, fid);
}

#[test]
fn la4_frames_of_lanes_out_of_place_end_the_connection() {
    let (cell, fid) = cell_with_file();
    let file = || {
        Some(SharedMemory::create_sealed("any", LANE_BYTES).unwrap().file().try_clone().unwrap())
    };
    let region = |begins| Message::Region { handle: 9, begins };
    // (has a lane, message, with a file)
    let wrong = [
        (false, Message::Bell, false),
        (false, Message::Lane, false),
        (false, region(true), true),
        (false, region(false), false),
        (true, Message::Lane, true),
        (true, region(true), false),
        (true, Message::Region { handle: 10, begins: false }, false),
    ];
    for (has_lane, message, has_file) in wrong {
        let mut attacker = match has_lane {
            true => Attacker::with_lane(&cell, fid),
            false => Attacker::attach(&cell, FEATURES, fid),
        };
        attacker.send(&message, file().filter(|_| has_file));
        assert!(attacker.is_ended(), "{message:?} {has_lane} {has_file}");
    }
    // Without the feature there are no such frames.
    let without = Features::DESCRIPTORS.with(Features::READ_TIMES);
    let mut attacker = Attacker::attach(&cell, without, fid);
    attacker.send(&Message::Lane, file());
    assert!(attacker.is_ended());
    is_well(&cell, fid);
}

#[test]
fn la5_a_client_that_scribbles_harms_itself_alone() {
    let (cell, fid) = cell_with_file();
    let stop = Arc::new(AtomicBool::new(false));
    for seed in 0..40_u64 {
        let mut attacker = Attacker::with_lane(&cell, fid);
        let (memory, ..) = attacker.lane.as_ref().unwrap();
        let (memory, stops) = (Arc::clone(memory), Arc::clone(&stop));
        let mut random = StdRng::seed_from_u64(seed);
        // Counters stay for half of them, so that changed requests are looked at.
        let first = if seed % 2 == 0 { 4096 } else { 0 };
        let scribbler = std::thread::spawn(move || {
            while !stops.load(Ordering::Relaxed) {
                let mut bytes = [0; 8];
                random.fill_bytes(&mut bytes);
                let length = random.random_range(1..=8);
                memory.put(random.random_range(first..LANE_BYTES - 8), &bytes[..length]);
            }
        });
        for turn in 0..2000_u32 {
            let region = Region { handle: 9, offset: 0 };
            let (header, message) = attacker.reading(turn % 64, 5000, region);
            attacker.requests[(turn % 64) as usize] += 1;
            let (_, sender, receiver) = attacker.lane.as_mut().unwrap();
            let put = sender.put(&header.to_bytes(), &message);
            let _ = receiver.take();
            match put {
                Ok(false) => {}
                Ok(true) => attacker.send(&Message::Bell, None),
                Err(_) => break,
            }
        }
        stop.store(true, Ordering::Relaxed);
        scribbler.join().unwrap();
        stop.store(false, Ordering::Relaxed);
    }
    is_well(&cell, fid);
}

#[test]
fn la6_a_payload_is_what_it_was_when_it_was_taken() {
    let (cell, fid) = cell_with_file();
    let mut attacker = Attacker::with_lane(&cell, fid);
    let stop = Arc::new(AtomicBool::new(false));
    let memory = SharedMemory::open(attacker.region.file().try_clone().unwrap()).unwrap();
    let stops = Arc::clone(&stop);
    let changer = std::thread::spawn(move || {
        let mut byte = 0_u8;
        while !stops.load(Ordering::Relaxed) {
            byte = byte.wrapping_add(1);
            memory.put(0, &[byte; 65_536]);
        }
    });
    let data = Bytes::from(vec![0; 65_536]);
    for _ in 0..200 {
        let call = Call::Write {
            fid,
            offset: Some(0),
            data: data.clone(),
            stable: false,
            kill_privileges: false,
        };
        let encoded = encode_call(&call).unwrap();
        attacker.requests[0] += 1;
        let header = FrameHeader {
            procedure: encoded.procedure,
            flags: Flags::DIRECT,
            request: attacker.requests[0],
            credential: 1,
            region: Region { handle: 9, offset: 0 },
            message_bytes: encoded.message.len() as u32,
            payload_bytes: 65_536,
            ..FrameHeader::new(FrameKind::Request, attacker.session)
        };
        attacker.put(&header, &encoded.message);
        let reply = FrameHeader::parse(attacker.reply().header()).unwrap();
        assert_eq!(reply.fault, None);
        // Every block has the checksum of what was written, else this is refused as damaged.
        read(&connect(cell.unix()), fid, 0, 65_536);
    }
    stop.store(true, Ordering::Relaxed);
    changer.join().unwrap();
}
