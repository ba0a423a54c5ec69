//! Networks that lose, double and reorder datagrams.

use std::time::Duration;

use rx::rxkad::RxkadLevel;
use rx::{ClientSecurity, EndpointConfig, ServerSecurity};
use types::Time;

use crate::network::{Host, Manner, Network, Weather, text};
use crate::rxkad::{aes_keys, security, token};

/// One-way delay of a path with a round trip of 20 ms.
const HALF_TRIP_MILLIS: u64 = 10;

fn foul(lost: u32, jitter_millis: u64) -> Weather {
    let jitter = Duration::from_millis(jitter_millis);
    Weather { jitter, lost, doubled: 200, ..Weather::fair(5) }
}

#[test]
fn rx5_calls_both_ways_arrive_over_a_lossy_network() {
    for seed in 0..30 {
        let (lost, jitter) = [(100, 0), (500, 4), (1500, 20)][seed as usize % 3];
        let mut net = Network::pair(foul(lost, jitter), seed);
        for (from, to) in [(0, 2), (1, 1)] {
            for _ in 0..2 {
                let on = net.hosts[from].connect(Time::ZERO, to, ClientSecurity::Null);
                for n in 0..4 {
                    let request = text(10_000 * (n + 1) * (n + 1), n as u8);
                    net.hosts[from].call(Time::ZERO, on, &request);
                }
            }
        }
        net.finish();
        for host in &net.hosts {
            assert_eq!(host.calls.len(), 16, "seed {seed}");
            for (id, record) in &host.calls {
                assert_eq!(record.over, Some(Ok(())), "seed {seed}, {id}");
                assert!(record.read == record.to_write, "seed {seed}, {id}");
            }
        }
    }
}

#[test]
fn rx5_sealed_calls_arrive_over_a_lossy_network() {
    for seed in 0..10 {
        let weather = foul(1000, 10);
        let mut net = crate::rxkad::net(aes_keys(), RxkadLevel::Clear, weather);
        let token = token(&aes_keys());
        for level in [RxkadLevel::Clear, RxkadLevel::Auth, RxkadLevel::Crypt] {
            let on = net.hosts[0].connect(Time::ZERO, 2, security(&token, level));
            for n in 0..4 {
                net.hosts[0].call(Time::ZERO, on, &text(30_000, n + seed));
            }
        }
        net.finish();
        for record in net.hosts[0].calls.values() {
            assert_eq!(record.over, Some(Ok(())), "seed {seed}");
            assert!(record.read == record.to_write, "seed {seed}");
        }
        assert_eq!(net.hosts[1].endpoint.statistics().dropped_seal, 0);
    }
}

fn path(lost: u32) -> Weather {
    Weather { lost, ..Weather::fair(HALF_TRIP_MILLIS) }
}

/// How many round trips an answer of so many packets takes, and the counters of the server.
fn long_answer(packets: usize, weather: Weather, seed: u64) -> (u64, rx::RxStatistics) {
    let mut net = Network::pair(weather, seed);
    net.hosts[1].manner = Manner::Answer(packets * 1416);
    let on = net.hosts[0].connect(Time::ZERO, 2, ClientSecurity::Null);
    let id = net.hosts[0].call(Time::ZERO, on, &text(2000, 0));
    net.run_until(Time::from_start(Duration::from_secs(600)), |net| net.hosts[0].open_calls() == 0);
    assert_eq!(net.hosts[0].calls[&id].over, Some(Ok(())));
    let trips = net.now.since_start().as_millis() as u64 / (2 * HALF_TRIP_MILLIS);
    (trips, *net.hosts[1].endpoint.statistics())
}

#[test]
fn rx6_a_large_window_is_used_well() {
    let packets = 40_000;
    let least = packets as u64 / 1024;
    let (trips, statistics) = long_answer(packets, path(0), 1);
    println!("no loss: {trips} round trips, {statistics:?}");
    assert!(trips <= least + 12, "{trips} round trips without loss, {least} at least");
    assert_eq!((statistics.data_resent, statistics.timeouts), (0, 0));
    for seed in 1..=3 {
        let (trips, statistics) = long_answer(packets, path(10), seed);
        println!("0.1 %: {trips} round trips, {statistics:?}");
        // An acknowledgement tells of 255 packets, so behind a hole no more can be sent.
        assert!(trips <= least * 3, "{trips} round trips with loss, {least} without");
        assert!(statistics.data_resent <= 90, "{} resends of some 40", statistics.data_resent);
    }
}

#[test]
fn rx6_each_hole_is_repaired_once_per_round_trip() {
    // One of a hundred is lost, resends too: 200 of 20,000, and 2 of those again.
    let (_, statistics) = long_answer(20_000, path(100), 5);
    println!("1 %: {statistics:?}");
    assert!(statistics.data_resent < 260, "{} resends", statistics.data_resent);
    assert!(statistics.timeouts <= 4, "{} timeouts", statistics.timeouts);
}

#[test]
fn rx6_a_small_window_of_the_peer_is_honoured() {
    let config = EndpointConfig { window: 4, ..EndpointConfig::default() };
    let client = Host::new(1, config, vec![ServerSecurity::Null]);
    let server = Host::new(2, EndpointConfig::default(), vec![ServerSecurity::Null]);
    let mut net = Network::new(vec![client, server], Weather::fair(5), 1);
    net.hosts[1].manner = Manner::Answer(200_000);
    let on = net.hosts[0].connect(Time::ZERO, 2, ClientSecurity::Null);
    let id = net.hosts[0].call(Time::ZERO, on, &text(2000, 0));
    net.finish();
    assert_eq!(net.hosts[0].calls[&id].read.len(), 200_000);
    let statistics = net.hosts[0].endpoint.statistics();
    assert!(statistics.dropped_full <= 8, "only before the window is known: {statistics:?}");
}

#[test]
fn rx6_a_line_that_is_just_wide_enough_is_filled() {
    // 250 packets in a round trip of 20 ms.
    let spacing = Duration::from_micros(80);
    for lost in [0, 10] {
        let weather = Weather { spacing, ..path(lost) };
        let (trips, statistics) = long_answer(20_000, weather, 2);
        println!("{lost}: {trips} round trips, {statistics:?}");
        assert!(trips <= if lost == 0 { 100 } else { 130 }, "{trips} round trips");
        assert!(statistics.data_resent <= 60, "{} resends", statistics.data_resent);
    }
}

#[test]
fn rx6_a_narrow_line_is_not_flooded() {
    // 50 packets in a round trip, and room for 50 more that wait.
    let spacing = Duration::from_micros(400);
    let weather = Weather { spacing, queue_max: 50, ..path(0) };
    let (trips, statistics) = long_answer(10_000, weather, 2);
    println!("{trips} round trips, {statistics:?}");
    assert!(trips <= 220, "{trips} round trips, 200 at least");
    assert!(statistics.data_resent <= 50, "{} resends", statistics.data_resent);
    assert!(statistics.timeouts <= 3, "{} timeouts", statistics.timeouts);
}
