//! Calls and connections that end by themselves, and those that must not.

use std::time::Duration;

use rx::{CallLimits, ClientSecurity, RxError, code};
use types::Time;

use crate::network::{Manner, Network, SERVICE, Weather, address, at, text};

#[test]
fn a_silent_peer_is_dead_after_its_time() {
    let mut net = Network::pair(Weather::fair(5), 1);
    net.tap = Some(Box::new(|_, _, to, _| to != address(2)));
    let on = net.hosts[0].connect(Time::ZERO, 2, ClientSecurity::Null);
    let id = net.hosts[0].call(Time::ZERO, on, b"x");
    net.finish();
    let record = &net.hosts[0].calls[&id];
    assert_eq!(record.over, Some(Err(RxError::Dead)));
    assert_eq!(record.over_at, at(12_000));
    assert_eq!(RxError::Dead.code(), code::CALL_DEAD);
    let statistics = net.hosts[0].endpoint.statistics();
    assert!(statistics.datagrams_sent < 20, "{statistics:?}");
}

#[test]
fn a_handler_may_take_minutes() {
    let mut net = Network::pair(Weather::fair(5), 1);
    net.hosts[1].manner = Manner::Silent;
    let on = net.hosts[0].connect(Time::ZERO, 2, ClientSecurity::Null);
    let id = net.hosts[0].call(Time::ZERO, on, b"x");
    net.run(600_000);
    assert_eq!(net.hosts[0].open_calls(), 1);
    let statistics = net.hosts[0].endpoint.statistics();
    assert!(statistics.datagrams_sent < 1000, "{statistics:?}");
    // At last it answers.
    net.hosts[1].manner = Manner::Echo;
    let served = *net.hosts[1].calls.keys().next().unwrap();
    let now = net.now;
    let record = net.hosts[1].calls.get_mut(&served).unwrap();
    record.to_write = text(500_000, 1);
    net.hosts[1].write(now, served);
    net.finish();
    assert_eq!(net.hosts[0].calls[&id].over, Some(Ok(())));
    assert_eq!(net.hosts[0].calls[&id].read.len(), 500_000);
}

#[test]
fn a_peer_that_never_reads_ends_the_call() {
    let mut net = Network::pair(Weather::fair(5), 1);
    net.hosts[0].never_reads = true;
    net.hosts[1].manner = Manner::Answer(1_000_000);
    let on = net.hosts[0].connect(Time::ZERO, 2, ClientSecurity::Null);
    let id = net.hosts[0].call(Time::ZERO, on, b"x");
    net.run(50_000);
    let most = 1024 * 1444 * 3;
    for host in &net.hosts {
        assert!(host.endpoint.statistics().buffered < most, "buffers are bounded");
    }
    net.finish();
    assert_eq!(net.hosts[0].calls[&id].over, Some(Err(RxError::PeerAborted(code::CALL_TIMEOUT))));
    let served = net.hosts[1].calls.values().next().unwrap();
    assert_eq!(served.over, Some(Err(RxError::TimedOut)));
    assert!(served.over_at < at(62_000), "{:?}", served.over_at);
    let statistics = net.hosts[1].endpoint.statistics();
    assert!(statistics.datagrams_sent < 700, "a full window is asked about seldom: {statistics:?}");
    // Most packets are beyond those that an acknowledgement tells of; none counts as lost.
    assert_eq!((statistics.data_resent, statistics.timeouts), (0, 0));
}

#[test]
fn a_client_that_stops_in_its_request_is_given_up() {
    let mut net = Network::pair(Weather::fair(5), 1);
    let on = net.hosts[0].connect(Time::ZERO, 2, ClientSecurity::Null);
    let id = net.hosts[0].endpoint.begin(Time::ZERO, on).unwrap();
    net.hosts[0].calls.insert(id, Default::default());
    net.hosts[0].endpoint.write(Time::ZERO, id, &text(5000, 1)).unwrap();
    net.hosts[0].endpoint.flush(Time::ZERO, id).unwrap();
    net.finish();
    assert_eq!(net.hosts[0].calls[&id].over, Some(Err(RxError::PeerAborted(code::CALL_TIMEOUT))));
    let served = net.hosts[1].calls.values().next().unwrap();
    assert_eq!(served.over, Some(Err(RxError::TimedOut)));
    assert!(served.over_at > at(60_000) && served.over_at < at(61_000));
}

#[test]
fn a_call_ends_at_its_hard_limit() {
    let mut net = Network::pair(Weather::fair(5), 1);
    net.hosts[1].manner = Manner::Silent;
    let limits = CallLimits { hard: Duration::from_secs(90), ..CallLimits::default() };
    let endpoint = &mut net.hosts[0].endpoint;
    let on =
        endpoint.connect(Time::ZERO, address(2), SERVICE, ClientSecurity::Null, limits).unwrap();
    let id = net.hosts[0].call(Time::ZERO, on, b"x");
    net.finish();
    assert_eq!(net.hosts[0].calls[&id].over, Some(Err(RxError::TimedOut)));
    assert_eq!(net.hosts[0].calls[&id].over_at, at(90_000));
    let served = net.hosts[1].calls.values().next().unwrap();
    assert_eq!(served.over, Some(Err(RxError::PeerAborted(code::CALL_TIMEOUT))));
}

#[test]
fn an_idle_connection_of_a_peer_is_forgotten() {
    let mut net = Network::pair(Weather::fair(5), 1);
    let on = net.hosts[0].connect(Time::ZERO, 2, ClientSecurity::Null);
    net.hosts[0].call(Time::ZERO, on, b"x");
    net.finish();
    net.run(690_000);
    assert_eq!(net.hosts[1].endpoint.statistics().connections, 1);
    net.run(20_000);
    assert_eq!(net.hosts[1].endpoint.statistics().connections, 0);
    assert_eq!(net.hosts[1].endpoint.due(), Time::NEVER);
    let id = net.hosts[0].call(net.now, on, b"again");
    net.finish();
    assert_eq!(net.hosts[0].calls[&id].over, Some(Ok(())), "the client's end goes on");
}

#[test]
fn nothing_is_sent_while_nothing_is_called() {
    let mut net = Network::pair(Weather::fair(5), 1);
    let on = net.hosts[0].connect(Time::ZERO, 2, ClientSecurity::Null);
    net.hosts[0].call(Time::ZERO, on, &text(100_000, 1));
    net.finish();
    net.run(1000);
    let sent = |net: &Network| {
        net.hosts.iter().map(|host| host.endpoint.statistics().datagrams_sent).sum::<u64>()
    };
    let before = sent(&net);
    net.run(600_000);
    assert_eq!(sent(&net), before);
}

#[test]
fn a_call_that_died_on_one_side_ends_on_the_other() {
    let mut net = Network::pair(Weather::fair(5), 1);
    net.hosts[1].manner = Manner::Silent;
    let limits = CallLimits { dead: Duration::from_secs(60), ..CallLimits::default() };
    let endpoint = &mut net.hosts[0].endpoint;
    let on =
        endpoint.connect(Time::ZERO, address(2), SERVICE, ClientSecurity::Null, limits).unwrap();
    let id = net.hosts[0].call(Time::ZERO, on, b"x");
    net.run(1000);
    net.tap = Some(Box::new(|now, _, _, _| now > at(40_000)));
    net.finish();
    let served = net.hosts[1].calls.values().next().unwrap();
    assert_eq!(served.over, Some(Err(RxError::Dead)), "a server waits for 12 s");
    assert_eq!(net.hosts[0].calls[&id].over, Some(Err(RxError::PeerAborted(code::CALL_DEAD))));
}
