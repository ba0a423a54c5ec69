//! An endpoint against a peer whose packets the test makes by hand.

use rx::wire::{AckPacket, AckReason, AckTrailers, PacketHeader, PacketType, flags};
use rx::{ClientSecurity, EndpointConfig, RxError, ServerSecurity, code};
use types::Time;

use crate::network::{Host, Manner, address, at, client_packet, text};

/// A client made by hand.
struct HandClient {
    server: Host,
    now: Time,
    serial: u32,
    /// It answers probes of its address.
    is_honest: bool,
}

type Packets = Vec<(PacketHeader, Vec<u8>)>;

impl HandClient {
    fn new(manner: Manner) -> Self {
        let mut server = Host::new(2, EndpointConfig::default(), vec![ServerSecurity::Null]);
        server.manner = manner;
        HandClient { server, now: Time::ZERO, serial: 0, is_honest: true }
    }

    fn raw(&mut self, header: PacketHeader, body: &[u8]) -> Packets {
        self.serial += 1;
        let header = PacketHeader { epoch: 1 << 31, serial: self.serial, ..header };
        self.server.endpoint.receive(self.now, address(1), &client_packet(header, body));
        self.take()
    }

    fn data(&mut self, call: u32, seq: u32, bits: u8, body: &[u8]) -> Packets {
        let kind = PacketType::Data as u8;
        let header = PacketHeader { cid: 4, call, seq, kind, flags: bits, ..Default::default() };
        self.raw(header, body)
    }

    fn ack(&mut self, call: u32, bits: u8, ack: &AckPacket<'_>) -> Packets {
        let kind = PacketType::Ack as u8;
        let header = PacketHeader { cid: 4, call, kind, flags: bits, ..Default::default() };
        self.raw(header, &ack.to_bytes())
    }

    fn take(&mut self) -> Packets {
        let mut packets = Vec::new();
        self.server.work(self.now);
        while let Some(packet) = self.server.endpoint.transmit(self.now) {
            let bytes = packet.to_vec();
            let (header, body) = PacketHeader::parse(&bytes).unwrap();
            let is_probe = header.packet_type() == Some(PacketType::Version)
                && header.has(flags::CLIENT_INITIATED);
            if is_probe && self.is_honest {
                let answer = PacketHeader { flags: 0, ..header };
                let bytes = [&answer.to_bytes()[..], &[0; 65]].concat();
                self.server.endpoint.receive(self.now, address(1), &bytes);
            } else {
                packets.push((header, body.to_vec()));
            }
            self.server.work(self.now);
        }
        packets
    }

    fn later(&mut self, millis: u64) -> Packets {
        let end = self.now + std::time::Duration::from_millis(millis);
        let mut packets = Vec::new();
        while self.server.endpoint.due() <= end {
            self.now = self.server.endpoint.due().max(self.now);
            self.server.endpoint.tick(self.now);
            packets.extend(self.take());
        }
        self.now = end;
        packets
    }
}

fn ack(first: u32, previous: u32, acks: &[u8], window: u32) -> AckPacket<'_> {
    AckPacket {
        first,
        previous,
        serial: 0,
        reason: AckReason::Requested as u8,
        acks,
        trailers: AckTrailers {
            packet_max: Some(1444),
            packet_preferred: Some(1444),
            window: Some(window),
            jumbo_max: Some(1),
        },
    }
}

fn seqs(packets: &Packets) -> Vec<u32> {
    let is_data = |header: &PacketHeader| header.kind == PacketType::Data as u8;
    packets.iter().filter(|(h, _)| is_data(h)).map(|(h, _)| h.seq).collect()
}

fn reasons(packets: &Packets) -> Vec<u8> {
    let is_ack = |header: &PacketHeader| header.kind == PacketType::Ack as u8;
    let reason = |body: &[u8]| AckPacket::parse(body).unwrap().reason;
    packets.iter().filter(|(h, _)| is_ack(h)).map(|(_, body)| reason(body)).collect()
}

/// A client with a call whose answer is 100 packets.
fn answered() -> (HandClient, Packets) {
    let mut client = HandClient::new(Manner::Answer(60 * 1416));
    let packets = client.data(1, 1, flags::LAST_PACKET, &text(1000, 1));
    (client, packets)
}

#[test]
fn rx6_the_first_window_is_ten_packets() {
    let (client, packets) = answered();
    assert_eq!(seqs(&packets), (1..=10).collect::<Vec<_>>());
    assert!(packets[9].0.has(flags::REQUEST_ACK), "the last one before a stop asks");
    assert_eq!(client.server.endpoint.statistics().data_sent, 10);
}

#[test]
fn acks_of_packets_never_sent_change_nothing() {
    let (mut client, _) = answered();
    let before = client.server.endpoint.statistics().buffered;
    for first in [12, 200, u32::MAX, 0] {
        assert_eq!(client.ack(1, 0, &ack(first, first, &[], 255)).len(), 0, "{first}");
    }
    assert_eq!(client.server.endpoint.statistics().dropped_acks, 4);
    assert_eq!(client.server.endpoint.statistics().buffered, before);
    let packets = client.ack(1, 0, &ack(1, 10, &[1; 255], 255));
    assert_eq!(seqs(&packets).first(), Some(&11), "bits after what was sent are ignored");
    assert_eq!(client.server.endpoint.statistics().buffered, before, "RX-3: soft only");
}

#[test]
fn rx3_only_hard_acks_free_packets() {
    let mut client = HandClient::new(Manner::Answer(5 * 1416));
    client.data(1, 1, flags::LAST_PACKET, &text(1000, 1));
    let before = client.server.endpoint.statistics().buffered;
    assert!(before >= 5 * 1416);
    client.ack(1, 0, &ack(1, 5, &[1; 5], 32));
    let record = client.server.calls.values().next().unwrap();
    assert_eq!(record.over, Some(Ok(())), "the client holds everything");
    assert_eq!(client.server.endpoint.statistics().buffered, before);
    // The client drops two of the packets that it said it holds.
    let packets = client.ack(1, 0, &ack(3, 5, &[0, 0, 1], 32));
    let late = client.later(2000);
    assert_eq!((seqs(&packets), seqs(&late)), (vec![], vec![3]));
    assert_eq!(seqs(&client.ack(1, 0, &ack(4, 5, &[0, 1], 32))), [4]);
    client.ack(1, 0, &ack(6, 5, &[], 32));
    assert_eq!(client.server.endpoint.statistics().buffered, 0);
}

#[test]
fn rx6_a_window_of_nothing_stops_all_data() {
    let (mut client, _) = answered();
    let packets = client.ack(1, 0, &ack(11, 10, &[], 0));
    assert_eq!(seqs(&packets), []);
    let packets = client.later(8000);
    assert_eq!(seqs(&packets), []);
    assert!(reasons(&packets).contains(&(AckReason::Ping as u8)), "it asks whether it still is");
    let packets = client.ack(1, 0, &ack(11, 10, &[], 3));
    assert_eq!(seqs(&packets), [11, 12, 13]);
}

#[test]
fn rx6_holes_below_later_packets_are_sent_again_once() {
    let (mut client, _) = answered();
    let packets = client.ack(1, 0, &ack(1, 8, &[0, 1, 1, 0, 1, 1, 1, 1], 255));
    assert_eq!(seqs(&packets)[..2], [1, 4]);
    let again = client.ack(1, 0, &ack(1, 10, &[0, 1, 1, 0, 1, 1, 1, 1, 1, 1], 255));
    assert!(!seqs(&again).contains(&1) && !seqs(&again).contains(&4), "{:?}", seqs(&again));
    assert_eq!(client.server.endpoint.statistics().data_resent, 2);
    assert_eq!(client.server.endpoint.statistics().recoveries, 1);
}

#[test]
fn a_late_ack_takes_nothing_back() {
    let (mut client, _) = answered();
    client.ack(1, 0, &ack(1, 10, &[1; 10], 255));
    let packets = client.ack(1, 0, &ack(1, 4, &[1, 1, 1, 1, 0, 0, 0, 0, 0, 0], 255));
    assert_eq!(seqs(&packets), []);
    assert_eq!(client.server.endpoint.statistics().data_resent, 0);
}

#[test]
fn a_peer_without_trailers_gets_small_packets() {
    let mut client = HandClient::new(Manner::Answer(10_000));
    client.data(1, 1, flags::LAST_PACKET, &text(1000, 1));
    let bare = AckPacket { trailers: AckTrailers::default(), ..ack(2, 1, &[], 0) };
    let packets = client.ack(1, 0, &bare);
    assert!(packets.iter().all(|(_, body)| body.len() <= 1416));
    assert_eq!(client.server.endpoint.statistics().acks_received, 1);
}

#[test]
fn a_next_call_means_that_the_answer_arrived() {
    let mut client = HandClient::new(Manner::Echo);
    client.data(1, 1, flags::LAST_PACKET, b"one");
    client.data(2, 1, flags::LAST_PACKET, b"two");
    let overs: Vec<_> = client.server.calls.values().map(|record| record.over).collect();
    assert!(overs.contains(&Some(Ok(()))) && overs.contains(&None), "{overs:?}");
}

#[test]
fn a_next_call_ends_one_without_an_answer() {
    let mut client = HandClient::new(Manner::Silent);
    client.data(1, 1, flags::LAST_PACKET, b"one");
    client.data(2, 1, flags::LAST_PACKET, b"two");
    let overs: Vec<_> = client.server.calls.values().map(|record| record.over).collect();
    assert!(overs.contains(&Some(Err(RxError::Dead))) && overs.contains(&None), "{overs:?}");
}

#[test]
fn call_numbers_from_the_past_are_dropped() {
    let mut client = HandClient::new(Manner::Echo);
    client.data(7, 1, flags::LAST_PACKET, b"seven");
    let packets = client.data(6, 1, flags::LAST_PACKET | flags::REQUEST_ACK, b"six");
    assert_eq!(packets.len(), 0);
    assert_eq!(client.server.incoming.len(), 1);
    assert_eq!(client.server.endpoint.statistics().dropped_stale, 1);
    let packets = client.data(7, 1, flags::LAST_PACKET, b"seven");
    assert_eq!(client.server.incoming.len(), 1, "RX-3: it is not run again");
    assert_eq!(reasons(&packets), [AckReason::Duplicate as u8]);
}

#[test]
fn arrivals_have_their_reasons() {
    let mut client = HandClient::new(Manner::Silent);
    client.data(1, 1, 0, &[1; 1416]);
    let asked = client.data(1, 2, flags::REQUEST_ACK, &[1; 1416]);
    assert_eq!(reasons(&asked), [AckReason::Requested as u8]);
    let hole = client.data(1, 4, 0, &[1; 1416]);
    assert_eq!(reasons(&hole), [AckReason::OutOfSequence as u8]);
    let told = AckPacket::parse(&hole[0].1).unwrap();
    assert_eq!((told.first, told.previous, told.acks), (3, 4, &[0, 1][..]));
    assert_eq!(told.trailers.window, Some(1024));
    let twice = client.data(1, 4, 0, &[1; 1416]);
    assert_eq!(reasons(&twice), [AckReason::Duplicate as u8]);
    let beyond = client.data(1, 1027, 0, &[1; 1416]);
    assert_eq!(reasons(&beyond), [AckReason::ExceedsWindow as u8]);
    assert_eq!(client.data(1, 3, flags::LAST_PACKET, b"x").len(), 0, "4 is after the last one");
    let filled = client.data(1, 3, 0, b"x");
    let late = client.later(150);
    assert_eq!(filled.len() + late.len(), 1);
}

#[test]
fn a_ping_is_answered_while_the_handler_works() {
    let mut client = HandClient::new(Manner::Silent);
    client.data(1, 1, flags::LAST_PACKET, &text(1000, 1));
    let ping = AckPacket { reason: AckReason::Ping as u8, ..ack(1, 0, &[], 32) };
    let packets = client.ack(1, flags::REQUEST_ACK, &ping);
    assert_eq!(reasons(&packets), [AckReason::PingResponse as u8]);
    assert_eq!(AckPacket::parse(&packets[0].1).unwrap().serial, client.serial);
}

#[test]
fn ack_all_ends_the_answer() {
    let mut client = HandClient::new(Manner::Echo);
    client.data(1, 1, flags::LAST_PACKET, b"one");
    let kind = PacketType::AckAll as u8;
    client.raw(PacketHeader { cid: 4, call: 1, kind, ..Default::default() }, &[]);
    assert_eq!(client.server.calls.values().next().unwrap().over, Some(Ok(())));
    assert_eq!(client.server.endpoint.statistics().buffered, 0);
}

#[test]
fn an_unknown_kind_ends_the_connection() {
    let mut client = HandClient::new(Manner::Echo);
    client.data(1, 1, flags::LAST_PACKET, b"one");
    for kind in 9..=11 {
        let packets = client.raw(PacketHeader { cid: 4, kind, ..Default::default() }, &[]);
        assert_eq!(packets.len(), 0, "parameters are ignored");
    }
    let packets = client.raw(PacketHeader { cid: 4, kind: 77, ..Default::default() }, &[0; 8]);
    assert_eq!(packets.len(), 1);
    let (header, body) = &packets[0];
    assert_eq!((header.packet_type(), header.call), (Some(PacketType::Abort), 0));
    assert_eq!(body[..], code::PROTOCOL_ERROR.to_be_bytes());
    let abort = PacketHeader { cid: 4, kind: PacketType::Abort as u8, ..Default::default() };
    assert_eq!(client.raw(abort, &[0; 4]).len(), 0, "an abort does not answer an abort");
}

#[test]
fn too_many_calls_are_answered_with_busy() {
    let mut client = HandClient::new(Manner::Silent);
    let config = EndpointConfig { calls_max: 1, ..EndpointConfig::default() };
    client.server = Host::new(2, config, vec![ServerSecurity::Null]);
    client.server.manner = Manner::Silent;
    client.data(1, 1, flags::LAST_PACKET, b"one");
    let kind = PacketType::Data as u8;
    let header = PacketHeader { cid: 5, call: 1, seq: 1, kind, ..Default::default() };
    let packets = client.raw(header, b"another channel");
    assert_eq!(packets.len(), 1);
    assert_eq!((packets[0].0.packet_type(), packets[0].0.cid), (Some(PacketType::Busy), 5));
    assert_eq!(client.server.endpoint.statistics().calls_refused, 1);
}

#[test]
fn version_and_debug_packets_are_answered_seldom() {
    let mut client = HandClient::new(Manner::Echo);
    let header = PacketHeader { call: 77, ..Default::default() };
    let version = PacketHeader { kind: PacketType::Version as u8, ..header };
    let packets = client.raw(version, &[0]);
    assert_eq!((packets[0].0.call, packets[0].0.flags), (77, 0));
    assert!(packets[0].1.starts_with(b"Rialto\0") && packets[0].1.len() == 65);
    let debug = PacketHeader { kind: PacketType::Debug as u8, ..header };
    let packets = client.raw(debug, b"\0\0\0\x01\0\0\0\0");
    assert_eq!(packets[0].1.len(), 56);
    let answers = (0..1000).filter(|_| !client.raw(version, &[0]).is_empty()).count();
    assert_eq!(answers, 62, "RX-1: sixty-four in a second");
    client.now = at(1000);
    assert_eq!(client.raw(version, &[0]).len(), 1);
    assert_eq!(client.server.endpoint.statistics().connections, 0);
}

/// The payload of the answer to a debug packet.
fn asks_debug(client: &mut HandClient, kind: u8, index: u8) -> Vec<u8> {
    let header = PacketHeader { call: 77, kind: PacketType::Debug as u8, ..Default::default() };
    let packets = client.raw(header, &[0, 0, 0, kind, 0, 0, 0, index]);
    assert_eq!(packets.len(), 1);
    packets[0].1.to_vec()
}

#[test]
fn debug_packets_tell_of_connections_and_peers() {
    let mut client = HandClient::new(Manner::Echo);
    let word = |answer: &[u8], at: usize| {
        u32::from_be_bytes(answer[4 * at..4 * at + 4].try_into().unwrap())
    };
    for kind in [2, 3] {
        assert_eq!(word(&asks_debug(&mut client, kind, 0), 1), u32::MAX, "there is none");
    }
    assert_eq!(word(&asks_debug(&mut client, 5, 0), 0), u32::MAX);
    client.server.manner = Manner::Silent;
    client.data(1, 1, flags::LAST_PACKET, b"one");
    let connection = asks_debug(&mut client, 3, 0);
    assert_eq!(connection, asks_debug(&mut client, 2, 0), "its call is not over");
    // The number of the call, its state, its mode, and the bytes of one packet.
    assert_eq!(
        (word(&connection, 3), &connection[40..41], &connection[44..45]),
        (1, &[2][..], &[1][..])
    );
    assert_eq!((word(&connection, 19), word(&connection, 21)), (1, 3));
    assert_eq!(word(&asks_debug(&mut client, 3, 1), 1), u32::MAX);
    assert_eq!(word(&asks_debug(&mut client, 5, 0), 0), word(&connection, 0));
    assert_eq!(word(&asks_debug(&mut client, 5, 1), 0), u32::MAX);
    // Data packets that arrived, and debug packets: eight until now and this one.
    let counters = asks_debug(&mut client, 4, 0);
    assert_eq!((word(&counters, 11), word(&counters, 18)), (1, 9));
    assert_eq!(asks_debug(&mut client, 9, 0), *b"\xff\xff\xff\xf8".repeat(2));
}

#[test]
fn packets_of_another_port_or_class_are_dropped() {
    let mut host = Host::new(1, EndpointConfig::default(), vec![ServerSecurity::Null]);
    let on = host.connect(Time::ZERO, 2, ClientSecurity::Null);
    let id = host.call(Time::ZERO, on, b"x");
    let request = host.endpoint.transmit(Time::ZERO).unwrap();
    let (sent, _) = PacketHeader::parse(&request.header).unwrap();
    let abort = PacketHeader { kind: PacketType::Abort as u8, seq: 0, flags: 0, ..sent };
    let bytes = |header: PacketHeader| [&header.to_bytes()[..], &[0, 0, 0, 9]].concat();
    let mut other_port = address(2);
    other_port.set_port(99);
    host.endpoint.receive(Time::ZERO, other_port, &bytes(abort));
    host.endpoint.receive(Time::ZERO, address(2), &bytes(PacketHeader { security: 2, ..abort }));
    host.endpoint.receive(Time::ZERO, address(2), &bytes(PacketHeader { epoch: 7, ..abort }));
    host.endpoint.receive(Time::ZERO, address(2), &bytes(PacketHeader { call: 2, ..abort }));
    host.work(Time::ZERO);
    assert_eq!(host.calls[&id].over, None);
    host.endpoint.receive(Time::ZERO, address(9), &bytes(abort));
    host.work(Time::ZERO);
    assert_eq!(host.calls[&id].over, Some(Err(RxError::PeerAborted(9))), "hosts have addresses");
}
