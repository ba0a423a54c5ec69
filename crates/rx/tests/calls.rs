//! Calls over a network that works.

use rx::wire::{PacketHeader, PacketType, flags};
use rx::{
    ClientSecurity, EndpointConfig, RxError, RxEvent, RxRead, ServerSecurity, ServiceId, code,
};
use types::Time;

use crate::network::{Host, Manner, Network, Weather, address, at, text};

#[test]
fn rx3_a_call_carries_its_bytes_both_ways() {
    for bytes in [0, 1, 1415, 1416, 1417, 100_000, 1_000_000] {
        let mut net = Network::pair(Weather::fair(5), 1);
        let on = net.hosts[0].connect(Time::ZERO, 2, ClientSecurity::Null);
        let request = text(bytes, 3);
        let id = net.hosts[0].call(Time::ZERO, on, &request);
        net.finish();
        let record = &net.hosts[0].calls[&id];
        assert_eq!(record.over, Some(Ok(())), "{bytes}");
        assert!(record.read == request, "{bytes}");
        assert_eq!(net.hosts[1].incoming.len(), 1);
        let statistics = net.hosts[0].endpoint.statistics();
        assert_eq!(statistics.data_resent, 0, "{bytes}");
        net.run(20_000);
        for host in &net.hosts {
            assert_eq!(host.endpoint.statistics().buffered, 0, "{bytes}");
            assert_eq!(host.endpoint.statistics().calls, 0, "{bytes}");
        }
    }
}

#[test]
fn a_small_call_costs_two_datagrams_and_a_late_ack() {
    let mut net = Network::pair(Weather::fair(5), 1);
    let on = net.hosts[0].connect(Time::ZERO, 2, ClientSecurity::Null);
    for _ in 0..10 {
        net.hosts[0].call(net.now, on, b"small");
        net.run_until(at(10_000), |net| net.hosts[0].open_calls() == 0);
    }
    let sent = net.hosts[0].endpoint.statistics().datagrams_sent;
    assert_eq!(sent, 10, "a call acknowledges the one before it");
    net.run(1000);
    let late = net.hosts[0].endpoint.statistics();
    assert_eq!((late.datagrams_sent, late.acks_sent), (11, 1), "the last one is acknowledged");
    assert_eq!(net.hosts[1].endpoint.statistics().datagrams_sent, 10);
    assert!(net.hosts[1].calls.values().all(|record| record.over == Some(Ok(()))));
}

#[test]
fn four_calls_at_a_time_run_on_a_connection() {
    let mut net = Network::pair(Weather::fair(5), 1);
    let on = net.hosts[0].connect(Time::ZERO, 2, ClientSecurity::Null);
    for n in 0..4 {
        net.hosts[0].call(Time::ZERO, on, &text(50_000, n));
    }
    assert_eq!(net.hosts[0].endpoint.begin(Time::ZERO, on), Err(RxError::Busy));
    net.finish();
    for record in net.hosts[0].calls.values() {
        assert_eq!(record.over, Some(Ok(())));
        assert_eq!(record.read, record.to_write);
    }
    assert!(net.hosts[0].endpoint.begin(net.now, on).is_ok());
}

#[test]
fn both_sides_call_each_other_on_one_port() {
    let mut net = Network::pair(Weather::fair(5), 1);
    let there = net.hosts[0].connect(Time::ZERO, 2, ClientSecurity::Null);
    let back = net.hosts[1].connect(Time::ZERO, 1, ClientSecurity::Null);
    net.hosts[0].call(Time::ZERO, there, b"there");
    net.hosts[1].call(Time::ZERO, back, b"back");
    net.finish();
    for host in &net.hosts {
        assert_eq!(host.calls.len(), 2);
        assert!(host.calls.values().all(|record| record.over == Some(Ok(()))));
    }
}

#[test]
fn a_code_of_the_server_ends_the_call() {
    let mut net = Network::pair(Weather::fair(5), 1);
    net.hosts[1].manner = Manner::Abort(-455);
    let on = net.hosts[0].connect(Time::ZERO, 2, ClientSecurity::Null);
    let id = net.hosts[0].call(Time::ZERO, on, b"opcode");
    net.finish();
    assert_eq!(net.hosts[0].calls[&id].over, Some(Err(RxError::PeerAborted(-455))));
    let served = net.hosts[1].calls.values().next().unwrap();
    assert_eq!(served.over, Some(Err(RxError::Aborted(-455))));
    assert!(net.hosts[0].endpoint.begin(net.now, on).is_ok(), "the connection goes on");
}

#[test]
fn a_client_may_end_its_call() {
    let mut net = Network::pair(Weather::fair(5), 1);
    net.hosts[1].manner = Manner::Silent;
    let on = net.hosts[0].connect(Time::ZERO, 2, ClientSecurity::Null);
    let id = net.hosts[0].call(Time::ZERO, on, b"x");
    net.run(50);
    net.hosts[0].endpoint.abort(net.now, id, code::USER_ABORT);
    net.finish();
    let served = net.hosts[1].calls.values().next().unwrap();
    assert_eq!(served.over, Some(Err(RxError::PeerAborted(code::USER_ABORT))));
}

#[test]
fn an_unknown_service_is_refused() {
    let mut net = Network::pair(Weather::fair(5), 1);
    let limits = rx::CallLimits::default();
    let host = &mut net.hosts[0];
    let on = host
        .endpoint
        .connect(Time::ZERO, address(2), ServiceId(99), ClientSecurity::Null, limits)
        .unwrap();
    let id = host.call(Time::ZERO, on, b"opcode");
    net.finish();
    let expected = Some(Err(RxError::PeerAborted(code::INVALID_OPERATION)));
    assert_eq!(net.hosts[0].calls[&id].over, expected);
}

#[test]
fn a_closed_connection_tells_its_peer() {
    let mut net = Network::pair(Weather::fair(5), 1);
    net.hosts[1].manner = Manner::Silent;
    let on = net.hosts[0].connect(Time::ZERO, 2, ClientSecurity::Null);
    let id = net.hosts[0].call(Time::ZERO, on, b"x");
    net.run(50);
    net.hosts[0].endpoint.close(net.now, on);
    net.finish();
    let ours = net.hosts[0].calls[&id].over;
    assert_eq!(ours, Some(Err(RxError::Aborted(code::USER_ABORT))));
    let served = net.hosts[1].calls.values().next().unwrap();
    assert_eq!(served.over, Some(Err(RxError::PeerAborted(code::USER_ABORT))));
    assert_eq!(net.hosts[0].endpoint.begin(net.now, on), Err(RxError::NoConnection));
    assert_eq!(net.hosts[0].endpoint.statistics().connections, 0);
}

#[test]
fn a_call_that_is_over_takes_nothing_more() {
    let mut net = Network::pair(Weather::fair(5), 1);
    let on = net.hosts[0].connect(Time::ZERO, 2, ClientSecurity::Null);
    let id = net.hosts[0].call(Time::ZERO, on, b"x");
    assert_eq!(net.hosts[0].endpoint.write(net.now, id, b"y"), Err(RxError::Ended));
    assert_eq!(net.hosts[0].endpoint.end(net.now, id), Err(RxError::Ended));
    assert_eq!(net.hosts[0].endpoint.read(net.now, id, 10), Ok(RxRead::Nothing));
    net.finish();
    assert_eq!(net.hosts[0].endpoint.read(net.now, id, 10), Err(RxError::NoCall));
    assert_eq!(net.hosts[0].endpoint.write(net.now, id, b"y"), Err(RxError::NoCall));
}

#[test]
fn what_is_flushed_is_sent_before_the_end() {
    let mut net = Network::pair(Weather::fair(5), 1);
    net.hosts[1].manner = Manner::Silent;
    let on = net.hosts[0].connect(Time::ZERO, 2, ClientSecurity::Null);
    let endpoint = &mut net.hosts[0].endpoint;
    let id = endpoint.begin_with_status(Time::ZERO, on, 1).unwrap();
    assert_eq!(endpoint.write(Time::ZERO, id, b"part"), Ok(4));
    net.run(50);
    assert_eq!(net.hosts[1].incoming.len(), 0);
    net.hosts[0].endpoint.flush(net.now, id).unwrap();
    net.run(50);
    let served = net.hosts[1].calls.values().next().unwrap();
    assert_eq!((&*served.read, served.read_end), (&b"part"[..], false));
    let Some(RxEvent::Incoming { user_status, .. }) = net.hosts[1].incoming.first() else {
        panic!("a call came");
    };
    assert_eq!(*user_status, 1);
}

#[test]
fn rx5_the_same_inputs_give_the_same_outputs() {
    let run = || {
        let mut weather = Weather::fair(3);
        (weather.lost, weather.doubled) = (500, 300);
        weather.jitter = std::time::Duration::from_millis(5);
        let mut net = Network::pair(weather, 77);
        let on = net.hosts[0].connect(Time::ZERO, 2, ClientSecurity::Null);
        for n in 0..3 {
            net.hosts[0].call(Time::ZERO, on, &text(40_000, n));
        }
        net.finish();
        let of = |host: &Host| *host.endpoint.statistics();
        (net.now, of(&net.hosts[0]), of(&net.hosts[1]))
    };
    assert_eq!(run(), run());
}

#[test]
fn a_jumbogram_is_taken_apart() {
    let config = EndpointConfig::default();
    let mut host = Host::new(2, config, vec![ServerSecurity::Null]);
    let header = PacketHeader {
        epoch: 1 << 31,
        cid: 4,
        call: 1,
        seq: 1,
        serial: 1,
        kind: PacketType::Data as u8,
        flags: flags::CLIENT_INITIATED | flags::JUMBO_PACKET,
        service: 1,
        ..PacketHeader::default()
    };
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend_from_slice(&[1; 1412]);
    bytes.extend_from_slice(&[flags::JUMBO_PACKET, 0, 0, 0]);
    bytes.extend_from_slice(&[2; 1412]);
    bytes.extend_from_slice(&[flags::LAST_PACKET, 0, 0, 0, 3]);
    host.endpoint.receive(at(0), address(1), &bytes);
    host.work(at(0));
    let record = host.calls.values().next().unwrap();
    assert!(record.read_end);
    assert_eq!(record.read, [&[1; 1412][..], &[2; 1412], &[3]].concat());
}
