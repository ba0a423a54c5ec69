//! Golden bytes of packets, and what is no packet.

use std::time::Duration;

use proptest::prelude::*;
use rx::RxStatistics;
use rx::debug::{
    ChannelState, ConnectionAnswer, DebugQuestion, PeerAnswer, RxTraffic, StatsAnswer,
    counters_answer, unknown_answer,
};
use rx::rxkad::RxkadLevel;
use rx::wire::{
    AckPacket, AckReason, AckTrailers, PacketHeader, PacketType, Subpackets, flags, version_text,
};

fn header() -> PacketHeader {
    PacketHeader {
        epoch: 0x8000_1234,
        cid: 0x00ab_cd02,
        call: 7,
        seq: 5,
        serial: 9,
        kind: PacketType::Data as u8,
        flags: flags::CLIENT_INITIATED | flags::LAST_PACKET,
        user_status: 0,
        security: 2,
        checksum: 0x1796,
        service: 52,
    }
}

#[test]
fn a_header_has_its_bytes() {
    let bytes = *b"\x80\0\x12\x34\0\xab\xcd\x02\0\0\0\x07\0\0\0\x05\0\0\0\x09\
        \x01\x05\0\x02\x17\x96\0\x34";
    assert_eq!(header().to_bytes(), bytes);
    assert_eq!(PacketHeader::parse(&bytes), Some((header(), &[][..])));
    for len in 0..bytes.len() {
        assert_eq!(PacketHeader::parse(&bytes[..len]), None);
    }
    assert_eq!(header().channel(), 2);
    assert_eq!(header().connection(), 0x00ab_cd00);
}

#[test]
fn an_ack_has_its_bytes() {
    let ack = AckPacket {
        first: 3,
        previous: 6,
        serial: 12,
        reason: AckReason::OutOfSequence as u8,
        acks: &[0, 1, 1],
        trailers: AckTrailers {
            packet_max: Some(16384),
            packet_preferred: Some(1444),
            window: Some(32),
            jumbo_max: Some(1),
        },
    };
    let bytes = b"\0\0\0\0\0\0\0\x03\0\0\0\x06\0\0\0\x0c\x03\x03\0\x01\x01\0\0\0\
        \0\0\x40\0\0\0\x05\xa4\0\0\0\x20\0\0\0\x01";
    assert_eq!(ack.to_bytes(), bytes);
    assert_eq!(AckPacket::parse(bytes), Some(ack));
    for len in 0..21 {
        assert_eq!(AckPacket::parse(&bytes[..len]), None, "{len}");
    }
    let trailers = |len: usize| AckPacket::parse(&bytes[..len]).unwrap().trailers;
    assert_eq!(trailers(21), AckTrailers::default());
    assert_eq!(trailers(28), AckTrailers::default());
    assert_eq!(trailers(32).packet_preferred, Some(1444));
    assert_eq!((trailers(36).window, trailers(36).jumbo_max), (Some(32), None));
    let padded = [&bytes[..], &[0; 500]].concat();
    assert_eq!(AckPacket::parse(&padded).unwrap().trailers, trailers(40));
}

#[test]
fn a_jumbogram_has_its_packets() {
    let first = PacketHeader { flags: flags::JUMBO_PACKET | 1, ..header() };
    let rest = [&[1; 1412][..], &[4, 0, 0xab, 0xcd], b"end"].concat();
    let packets: Vec<_> = Subpackets::new(first, &rest).collect();
    assert_eq!(packets.len(), 2);
    assert_eq!(packets[0], (first, &rest[..1412]));
    let second = PacketHeader { flags: 5, seq: 6, serial: 10, checksum: 0xabcd, ..first };
    assert_eq!(packets[1], (second, &b"end"[..]));
    assert_eq!(Subpackets::new(first, &rest[..1415]).count(), 0);
    assert_eq!(Subpackets::new(first, &rest[..1416]).count(), 2);
}

#[test]
fn queries_have_their_answers() {
    let text = version_text("Rialto 0.1");
    assert!(text.starts_with(b"Rialto 0.1\0"));
    assert_eq!(version_text(&"x".repeat(100))[64], 0);
    let stats = StatsAnswer { free_packets: 1, calls_executed: 2, waiting: 3, packets: 4 };
    let answer = stats.to_bytes();
    assert_eq!(answer.len(), 56);
    assert_eq!(answer[..20], *b"\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0S\0\0\0\0\x03");
    assert_eq!(answer[28..32], [0, 0, 0, 4]);
    assert_eq!(unknown_answer(), *b"\xff\xff\xff\xf8".repeat(2));
    let question = |kind: u8| DebugQuestion::parse(&[0, 0, 0, kind, 0, 0, 0, 7]);
    assert_eq!(question(1), Some(DebugQuestion::Figures));
    assert_eq!(question(2), Some(DebugQuestion::Connection { index: 7, all: false }));
    assert_eq!(question(3), Some(DebugQuestion::Connection { index: 7, all: true }));
    assert_eq!(question(4), Some(DebugQuestion::Counters));
    assert_eq!(question(5), Some(DebugQuestion::Peer { index: 7 }));
    assert_eq!(question(6), Some(DebugQuestion::Unknown));
    assert_eq!(DebugQuestion::parse(b"\0\0\0\x01\0\0\0"), None);
}

/// The words of an answer.
fn words(answer: &[u8]) -> Vec<u32> {
    answer.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
}

/// As OpenAFS 1.8.9's location server answered, but for the time at which the ticket ends.
#[test]
fn a_connection_is_told_as_stock_servers_tell_it() {
    let unused = (0, ChannelState::Unused);
    let connection = ConnectionAnswer {
        peer: "192.0.2.1:45906".parse().unwrap(),
        epoch: 0xae8b_3b00,
        cid: 0x410e_9618,
        serial: 6,
        is_client: false,
        error: 0,
        security: 2,
        level: Some(RxkadLevel::Clear),
        channels: [(5, ChannelState::Ended), unused, unused, unused],
        packet_bytes: 1444,
        traffic: RxTraffic {
            packets_received: 5,
            bytes_received: 0x20c,
            packets_sent: 4,
            bytes_sent: 12,
            packets_resent: 0,
        },
    };
    let answer = ConnectionAnswer::payload(Some(connection));
    assert_eq!(answer.len(), 176);
    let mut wanted = vec![0xc000_0201, 0x410e_9618, 6, 5, 0, 0, 0, 0];
    wanted.extend([0xb352_0401, 0x0200_0000, 0x0300_0000, 0x0400_0000, 0x2000_0000, 0]);
    wanted.extend([0x0300_0000, 0, 0, 10, 0, 5, 4, 0x20c, 12]);
    wanted.extend([0; 10]);
    wanted.extend([0xae8b_3b00, 1444]);
    wanted.extend([0; 9]);
    assert_eq!(words(&answer), wanted);
    let end = ConnectionAnswer::payload(None);
    assert_eq!((end.len(), &words(&end)[..3]), (176, &[0, u32::MAX, 0][..]));
}

/// The same for a peer.
#[test]
fn a_peer_is_told_as_stock_servers_tell_it() {
    let peer = PeerAnswer {
        address: "192.0.2.1:54034".parse().unwrap(),
        connections: 2,
        packet_bytes: 1444,
        round_trip: Duration::from_secs(3),
        resend_after: Duration::ZERO,
        traffic: RxTraffic {
            packets_sent: 1,
            bytes_sent: 0x478,
            bytes_received: 0x31,
            ..RxTraffic::default()
        },
    };
    let answer = PeerAnswer::payload(Some(peer));
    let mut wanted = vec![0xc000_0201, 0xd312_05a4, 0, 0x0002_0000, 0, 0, 24_000, 0, 0, 0, 1];
    wanted.extend([0, 0, 0, 0, 0x05a4_05a4, 0x0001_0001, 0x05a4_0001, 0x0001_0000]);
    wanted.extend([0, 0x478, 0, 0x31]);
    wanted.extend([0; 10]);
    assert_eq!((answer.len(), words(&answer)), (132, wanted));
    assert_eq!(words(&PeerAnswer::payload(None))[0], u32::MAX);
}

/// The same for counters: those that stock servers have, at their places.
#[test]
fn counters_are_told_at_their_places() {
    let mut counters =
        RxStatistics { data_sent: 38, connections: 39, calls: 2, ..Default::default() };
    (counters.received_kinds[1], counters.received_kinds[2]) = (82, 39);
    (counters.sent_kinds[1], counters.sent_kinds[4]) = (40, 44);
    let answer = counters_answer(&counters, 3, 31);
    let found = words(&answer);
    assert_eq!(answer.len(), 284);
    let at = |places: [usize; 6]| places.map(|place| found[place]);
    assert_eq!(at([11, 12, 24, 25, 28, 31]), [82, 39, 82, 39, 40, 44]);
    assert_eq!(at([43, 45, 56, 57, 58, 59]), [44, 38, 36, 3, 31, 2]);
}

proptest! {
    #[test]
    fn parsers_take_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
        if let Some((header, rest)) = PacketHeader::parse(&bytes) {
            prop_assert_eq!(&[&header.to_bytes()[..], rest].concat(), &bytes);
            let jumbo = PacketHeader { flags: header.flags | flags::JUMBO_PACKET, ..header };
            prop_assert!(Subpackets::new(jumbo, rest).count() < 4);
        }
        if let Some(ack) = AckPacket::parse(&bytes) {
            prop_assert!(ack.acks.len() <= AckPacket::ACKS_MAX);
            let again = ack.to_bytes();
            prop_assert_eq!(AckPacket::parse(&again), Some(ack));
        }
    }
}
