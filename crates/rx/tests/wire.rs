//! Golden bytes of packets, and what is no packet.

use proptest::prelude::*;
use rx::wire::{
    AckPacket, AckReason, AckTrailers, PacketHeader, PacketType, StatsAnswer, Subpackets,
    debug_answer, flags, version_text,
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
    let answer = debug_answer(b"\0\0\0\x01\0\0\0\0", stats).unwrap();
    assert_eq!(answer.len(), 56);
    assert_eq!(answer[..20], *b"\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0S\0\0\0\0\x03");
    assert_eq!(answer[28..32], [0, 0, 0, 4]);
    assert_eq!(debug_answer(b"\0\0\0\x02\0\0\0\0", stats).unwrap(), *b"\xff\xff\xff\xf8".repeat(2));
    assert_eq!(debug_answer(b"\0\0", stats), None);
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
