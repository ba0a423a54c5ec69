//! Limits of strangers: they cannot be amplified, fill tables, hold up those who are proved.

use std::collections::HashMap;
use std::net::SocketAddr;

use rx::rxkad::RxkadLevel;
use rx::wire::{AckPacket, AckReason, AckTrailers, PacketHeader, PacketType, flags};
use rx::{EndpointConfig, ServerSecurity};
use types::Time;

use crate::network::{Host, Manner, Network, Weather, at, client_packet, text};
use crate::rxkad::{aes_keys, security, server, token};

fn stranger(n: u32) -> SocketAddr {
    SocketAddr::from(([172, (n >> 16) as u8, (n >> 8) as u8, n as u8], 7001))
}

fn first_packet(n: u32, class: u8, body: &[u8]) -> Vec<u8> {
    let header = PacketHeader {
        epoch: 0x8000_0000 | n,
        cid: 8,
        call: 1,
        seq: 1,
        serial: 1,
        kind: PacketType::Data as u8,
        flags: flags::LAST_PACKET | flags::REQUEST_ACK,
        security: class,
        checksum: u16::from(class),
        ..PacketHeader::default()
    };
    client_packet(header, body)
}

/// Everything that a host sends, by address.
fn sent_by(host: &mut Host, now: Time, sent: &mut HashMap<SocketAddr, usize>) {
    if host.endpoint.due() <= now {
        host.endpoint.tick(now);
    }
    host.work(now);
    while let Some(packet) = host.endpoint.transmit(now) {
        *sent.entry(packet.to).or_default() += packet.size();
        host.work(now);
    }
}

#[test]
fn rx1_a_silent_address_gets_no_more_than_it_sent() {
    for class in [0, 2] {
        for size in [0, 1, 4, 8, 15, 16, 100, 1416] {
            for manner in [Manner::Answer(1_000_000), Manner::Echo, Manner::Abort(5)] {
                let mut host = server(aes_keys(), RxkadLevel::Clear, EndpointConfig::default());
                host.manner = manner;
                let packet = first_packet(1, class, &text(size, 1));
                let (mut sent, mut received) = (HashMap::new(), 0);
                // The victim says nothing; the attacker repeats itself for ten minutes.
                for second in 0..600 {
                    let now = at(1000 * second);
                    if second % 60 < 3 {
                        host.endpoint.receive(now, stranger(1), &packet);
                        received += packet.len();
                    }
                    sent_by(&mut host, now, &mut sent);
                    let sent = sent.get(&stranger(1)).copied().unwrap_or_default();
                    assert!(sent <= received, "{class} {size} {manner:?}: {sent} of {received}");
                }
            }
        }
    }
}

#[test]
fn rx1_refusals_are_no_larger_than_what_they_refuse() {
    let mut host = Host::new(2, EndpointConfig::default(), vec![ServerSecurity::Null]);
    for (class, size) in [(7, 0), (7, 3), (7, 4), (7, 100)] {
        let mut sent = HashMap::new();
        let packet = first_packet(1, class, &text(size, 1));
        host.endpoint.receive(at(0), stranger(1), &packet);
        sent_by(&mut host, at(0), &mut sent);
        let sent = sent.get(&stranger(1)).copied().unwrap_or_default();
        assert_eq!(sent, if size >= 4 { 32 } else { 0 });
    }
    assert_eq!(host.endpoint.statistics().connections, 0);
}

#[test]
fn rx1_guessed_acknowledgements_open_no_address() {
    let mut host = Host::new(2, EndpointConfig::default(), vec![ServerSecurity::Null]);
    host.manner = Manner::Answer(1_000_000);
    let (mut sent, mut received) = (HashMap::new(), 0);
    let packet = first_packet(1, 0, &text(1000, 1));
    host.endpoint.receive(at(0), stranger(1), &packet);
    received += packet.len();
    for serial in 0..1000 {
        let ack = AckPacket {
            first: 1,
            previous: 1,
            serial,
            reason: AckReason::PingResponse as u8,
            acks: &[1],
            trailers: AckTrailers::default(),
        };
        let header = PacketHeader {
            epoch: 0x8000_0001,
            cid: 8,
            call: 1,
            serial,
            kind: PacketType::Ack as u8,
            ..PacketHeader::default()
        };
        let packet = client_packet(header, &ack.to_bytes());
        host.endpoint.receive(at(0), stranger(1), &packet);
        received += packet.len();
        sent_by(&mut host, at(0), &mut sent);
        assert!(sent[&stranger(1)] <= received, "{} of {received}", sent[&stranger(1)]);
    }
}

/// The first answer uses up what two small requests pay for, and each ping pays for its
/// acknowledgement alone.
#[test]
fn a_peer_that_pings_for_its_second_answer_is_probed() {
    let mut host = Host::new(2, EndpointConfig::default(), vec![ServerSecurity::Null]);
    host.manner = Manner::Answer(72);
    let header = |channel, serial, kind: PacketType, flags| PacketHeader {
        epoch: 0x8000_0001,
        cid: 8 + channel,
        call: 1,
        serial,
        kind: kind as u8,
        flags,
        ..PacketHeader::default()
    };
    for channel in 0..2 {
        let request = header(channel, channel + 1, PacketType::Data, flags::LAST_PACKET);
        let packet = client_packet(PacketHeader { seq: 1, ..request }, &text(32, 1));
        host.endpoint.receive(at(0), stranger(1), &packet);
    }
    let drain = |host: &mut Host, now| {
        let mut kinds = Vec::new();
        host.work(now);
        while let Some(packet) = host.endpoint.transmit(now) {
            let (header, _) = PacketHeader::parse(&packet.header).unwrap();
            kinds.push(header.kind);
            host.work(now);
        }
        kinds
    };
    assert_eq!(drain(&mut host, at(0)), [PacketType::Data as u8], "the other one is withheld");
    let ping = AckPacket {
        first: 1,
        previous: 0,
        serial: 0,
        reason: AckReason::Ping as u8,
        acks: &[],
        trailers: AckTrailers::default(),
    };
    let header = header(1, 3, PacketType::Ack, flags::REQUEST_ACK);
    host.endpoint.receive(at(50), stranger(1), &client_packet(header, &ping.to_bytes()));
    assert_eq!(drain(&mut host, at(50)), [PacketType::Version as u8]);
}

#[test]
fn rx2_ten_thousand_strangers_hold_up_no_proved_client() {
    let config =
        EndpointConfig { unproved_max: 1000, connections_max: 1010, ..EndpointConfig::default() };
    let client = Host::new(1, EndpointConfig::default(), vec![ServerSecurity::Null]);
    let server = server(aes_keys(), RxkadLevel::Clear, config);
    let mut net = Network::new(vec![client, server], Weather::fair(5), 1);
    let on = net.hosts[0].connect(Time::ZERO, 2, security(&token(&aes_keys()), RxkadLevel::Crypt));
    net.hosts[0].call(Time::ZERO, on, &text(100, 1));
    net.finish();
    let started = net.now;
    for _ in 0..4 {
        net.hosts[0].call(net.now, on, &text(20_000, 1));
    }
    for n in 0..10_000 {
        let class = if n % 4 == 0 { 0 } else { 2 };
        let packet = first_packet(n, class, &text(1416, 1));
        let now = net.now;
        net.hosts[1].endpoint.receive(now, stranger(n), &packet);
        if n % 100 == 0 {
            net.run(1);
        }
        let statistics = net.hosts[1].endpoint.statistics();
        assert!(statistics.unproved <= 1000 && statistics.connections <= 1010);
        assert!(statistics.buffered < 1000 * 1500 + 100_000, "{statistics:?}");
    }
    net.run_until(at(100_000), |net| net.hosts[0].open_calls() == 0);
    assert!(net.hosts[0].calls.values().all(|record| record.over == Some(Ok(()))));
    assert!(net.now.since(started).as_millis() < 500, "{:?}", net.now);
    let statistics = net.hosts[1].endpoint.statistics();
    assert!(statistics.unproved_dropped >= 9000);
    // A new client is let in, and in the end the strangers are forgotten.
    let on = net.hosts[0].connect(net.now, 2, security(&token(&aes_keys()), RxkadLevel::Crypt));
    let id = net.hosts[0].call(net.now, on, &text(100, 1));
    net.run_until(at(100_000), |net| net.hosts[0].open_calls() == 0);
    assert_eq!(net.hosts[0].calls[&id].over, Some(Ok(())));
    net.run(900_000);
    let statistics = net.hosts[1].endpoint.statistics();
    assert_eq!((statistics.connections, statistics.buffered, statistics.calls), (0, 0, 0));
}

#[test]
fn rx2_a_stranger_may_have_little_waiting() {
    for class in [0, 2] {
        let mut host = server(aes_keys(), RxkadLevel::Clear, EndpointConfig::default());
        host.manner = Manner::Idle;
        for seq in 1..=255 {
            for channel in 0..4 {
                let header = PacketHeader {
                    epoch: 1 << 31,
                    cid: 8 | channel,
                    call: 1,
                    seq,
                    serial: 1,
                    kind: PacketType::Data as u8,
                    security: class,
                    ..PacketHeader::default()
                };
                let packet = client_packet(header, &[1; 1416]);
                host.endpoint.receive(at(0), stranger(1), &packet);
            }
        }
        let buffered = host.endpoint.statistics().buffered;
        assert!(buffered <= rx::limits::UNPROVED_BYTES as u64, "{class}: {buffered}");
    }
}

#[test]
fn rx2_all_buffers_together_are_bounded() {
    let config = EndpointConfig { buffer_max: 300_000, ..EndpointConfig::default() };
    let client = Host::new(1, EndpointConfig::default(), vec![ServerSecurity::Null]);
    let server = Host::new(2, config, vec![ServerSecurity::Null]);
    let mut net = Network::new(vec![client, server], Weather::fair(5), 1);
    net.hosts[1].manner = Manner::Echo;
    for _ in 0..8 {
        let on = net.hosts[0].connect(Time::ZERO, 2, rx::ClientSecurity::Null);
        for n in 0..4 {
            net.hosts[0].call(Time::ZERO, on, &text(60_000, n));
        }
    }
    for _ in 0..1000 {
        net.run(10);
        assert!(net.hosts[1].endpoint.statistics().buffered <= 300_000);
    }
    net.finish();
    for record in net.hosts[0].calls.values() {
        assert_eq!(record.over, Some(Ok(())));
        assert!(record.read == record.to_write);
    }
}
