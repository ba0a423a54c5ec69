//! Calls with rxkad: every kind of ticket, every level, and proofs that fail.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rx::rxkad::{RxkadKeys, RxkadLevel, RxkadToken, code, print_token};
use rx::wire::{PacketHeader, PacketType};
use rx::{ClientSecurity, EndpointConfig, RxCaller, RxError, RxEvent, ServerSecurity};
use types::Time;

use crate::network::{Host, Network, Weather, address, at, text};

const DES_KEY: [u8; 8] = [0x13, 0x34, 0x57, 0x79, 0x9b, 0xbc, 0xdf, 0xf1];

pub fn aes_keys() -> RxkadKeys {
    let mut keys = RxkadKeys::new();
    keys.add_krb5(5, 18, &[7; 32]);
    keys
}

pub fn token(keys: &RxkadKeys) -> RxkadToken {
    print_token(keys, &mut StdRng::seed_from_u64(1)).unwrap()
}

pub fn server(keys: RxkadKeys, level_min: RxkadLevel, config: EndpointConfig) -> Host {
    let keys = Arc::new(keys);
    Host::new(
        2,
        config,
        vec![ServerSecurity::Null, ServerSecurity::Rxkad { keys, level_min, index: 2 }],
    )
}

pub fn net(keys: RxkadKeys, level_min: RxkadLevel, weather: Weather) -> Network {
    let client = Host::new(1, EndpointConfig::default(), vec![ServerSecurity::Null]);
    Network::new(vec![client, server(keys, level_min, EndpointConfig::default())], weather, 4)
}

pub fn security(token: &RxkadToken, level: RxkadLevel) -> ClientSecurity {
    ClientSecurity::Rxkad { token: token.clone(), level }
}

#[test]
fn a_printed_token_proves_the_server_at_all_levels() {
    let (mut aes128, mut des) = (RxkadKeys::new(), RxkadKeys::new());
    aes128.add_krb5(6, 17, &[8; 16]);
    des.add_des(3, DES_KEY);
    for (keys, kvno) in [(aes_keys(), 213), (aes128, 213), (des, 3)] {
        for level in [RxkadLevel::Clear, RxkadLevel::Auth, RxkadLevel::Crypt] {
            let mut net = net(keys.clone(), RxkadLevel::Clear, Weather::fair(5));
            let token = token(&keys);
            assert_eq!(token.kvno, kvno);
            let on = net.hosts[0].connect(Time::ZERO, 2, security(&token, level));
            let requests = [0, 4, 1400, 1408, 1412, 1416, 200_000].map(|n| text(n, 5));
            for request in &requests {
                net.hosts[0].call(net.now, on, request);
                net.finish();
            }
            for record in net.hosts[0].calls.values() {
                assert_eq!(record.over, Some(Ok(())), "{level:?}");
                assert!(record.read == record.to_write, "{level:?}");
            }
            let Some(RxEvent::Incoming { caller, .. }) = net.hosts[1].incoming.first() else {
                panic!("a call came");
            };
            let RxCaller::Krb { name, level: proved, is_local_auth, .. } = caller else {
                panic!("the caller is proved");
            };
            assert_eq!((&**name, *proved, *is_local_auth), ("afs", level, true));
            let statistics = net.hosts[1].endpoint.statistics();
            assert_eq!((statistics.challenges_sent, statistics.responses_good), (1, 1));
            assert_eq!(statistics.dropped_seal, 0);
            assert_eq!(statistics.unproved, 0);
        }
    }
}

#[test]
fn a_long_request_waits_for_the_proof() {
    let mut net = net(aes_keys(), RxkadLevel::Clear, Weather::fair(5));
    let on = net.hosts[0].connect(Time::ZERO, 2, security(&token(&aes_keys()), RxkadLevel::Crypt));
    for n in 0..4 {
        net.hosts[0].call(Time::ZERO, on, &text(100_000, n));
    }
    net.finish();
    assert!(net.hosts[0].calls.values().all(|record| record.read == record.to_write));
    assert!(net.now < at(3000), "{:?}", net.now);
}

#[test]
fn a_small_first_request_is_probed_before_the_challenge() {
    let mut net = net(aes_keys(), RxkadLevel::Clear, Weather::fair(5));
    let on = net.hosts[0].connect(Time::ZERO, 2, security(&token(&aes_keys()), RxkadLevel::Clear));
    let id = net.hosts[0].call(Time::ZERO, on, b"code");
    net.run_until(at(10_000), |net| net.hosts[0].open_calls() == 0);
    assert_eq!(net.hosts[0].calls[&id].over, Some(Ok(())));
    let statistics = net.hosts[1].endpoint.statistics();
    assert_eq!((statistics.probes_sent, statistics.challenges_sent), (1, 1));
    assert_eq!(net.now, at(30), "three round trips: probe, challenge, call");
}

fn refused(keys: RxkadKeys, token: &RxkadToken, levels: [RxkadLevel; 2], wall: i64) -> i32 {
    let mut net = net(keys, levels[1], Weather::fair(5));
    net.hosts[1].endpoint.set_wall(Time::ZERO, wall);
    let on = net.hosts[0].connect(Time::ZERO, 2, security(token, levels[0]));
    let id = net.hosts[0].call(Time::ZERO, on, &text(100, 1));
    net.finish();
    assert_eq!(net.hosts[1].incoming.len(), 0);
    match net.hosts[0].calls[&id].over {
        Some(Err(RxError::PeerAborted(code) | RxError::Aborted(code))) => {
            let again = net.hosts[0].endpoint.begin(net.now, on);
            assert!(again.is_err(), "the connection is in error");
            code
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn proofs_that_fail_give_their_codes() {
    let clear = [RxkadLevel::Clear; 2];
    let good = token(&aes_keys());
    let wall = crate::network::WALL;
    assert_eq!(refused(RxkadKeys::new(), &good, clear, wall), code::UNKNOWN_KEY);
    let mut other = RxkadKeys::new();
    other.add_krb5(5, 18, &[8; 32]);
    assert_eq!(refused(other, &good, clear, wall), code::BAD_TICKET);
    let levels = [RxkadLevel::Clear, RxkadLevel::Crypt];
    assert_eq!(refused(aes_keys(), &good, levels, wall), code::LEVEL_FAIL);
    let mut wrong_key = good.clone();
    wrong_key.session_key[0] ^= 0x10;
    assert_eq!(refused(aes_keys(), &wrong_key, clear, wall), code::SEALED_INCONSISTENTLY);
    let mut short = good.clone();
    short.ticket = short.ticket.slice(..31);
    assert_eq!(refused(aes_keys(), &short, clear, wall), code::TICKET_LENGTH);
    assert_eq!(refused(aes_keys(), &good, clear, i64::from(u32::MAX)), code::EXPIRED);
}

#[test]
fn an_expired_ticket_ends_the_connection() {
    let mut net = net(aes_keys(), RxkadLevel::Clear, Weather::fair(5));
    let on = net.hosts[0].connect(Time::ZERO, 2, security(&token(&aes_keys()), RxkadLevel::Clear));
    net.hosts[0].call(Time::ZERO, on, &text(100, 1));
    net.finish();
    net.hosts[1].endpoint.set_wall(net.now, 0x8000_0000);
    let id = net.hosts[0].call(net.now, on, &text(100, 1));
    net.finish();
    assert_eq!(net.hosts[0].calls[&id].over, Some(Err(RxError::PeerAborted(code::EXPIRED))));
}

/// A network that changes one bit of each data packet from the client for a while.
#[test]
fn rx4_a_wrong_seal_changes_nothing_but_a_counter() {
    for (level, place) in [(RxkadLevel::Clear, 24), (RxkadLevel::Auth, 30), (RxkadLevel::Crypt, 33)]
    {
        let mut net = net(aes_keys(), RxkadLevel::Clear, Weather::fair(5));
        let on = net.hosts[0].connect(Time::ZERO, 2, security(&token(&aes_keys()), level));
        net.hosts[0].call(Time::ZERO, on, &text(100, 1));
        net.finish();
        let start = net.now;
        net.tap = Some(Box::new(move |now, from, _, bytes| {
            let is_data = bytes[20] == PacketType::Data as u8;
            if from == address(1) && is_data && now < start + Duration::from_millis(300) {
                bytes[place] ^= 1;
            }
            true
        }));
        let id = net.hosts[0].call(net.now, on, &text(8000, 2));
        net.run(200);
        let statistics = *net.hosts[1].endpoint.statistics();
        assert_eq!(statistics.dropped_seal, 6, "{level:?}");
        assert_eq!(net.hosts[1].incoming.len(), 1, "{level:?}: nothing came of them");
        assert_eq!((statistics.calls, statistics.buffered), (0, 0), "{level:?}");
        net.finish();
        let record = &net.hosts[0].calls[&id];
        assert_eq!(record.over, Some(Ok(())), "{level:?}");
        assert!(record.read == record.to_write);
    }
}

#[test]
fn rx4_a_peer_with_the_wrong_key_ends_in_an_error() {
    let mut net = net(aes_keys(), RxkadLevel::Clear, Weather::fair(5));
    let on = net.hosts[0].connect(Time::ZERO, 2, security(&token(&aes_keys()), RxkadLevel::Crypt));
    net.hosts[0].call(Time::ZERO, on, &text(100, 1));
    net.finish();
    net.tap = Some(Box::new(move |_, _, _, bytes| {
        if bytes[20] == PacketType::Data as u8 {
            bytes[24] ^= 1;
        }
        true
    }));
    let id = net.hosts[0].call(net.now, on, &text(200_000, 2));
    net.hosts[0].call(net.now, on, &text(200_000, 2));
    net.hosts[0].call(net.now, on, &text(200_000, 2));
    net.finish();
    let over = net.hosts[0].calls[&id].over;
    let sealed = RxError::PeerAborted(code::SEALED_INCONSISTENTLY);
    assert!(over == Some(Err(sealed)) || over == Some(Err(RxError::Dead)), "{over:?}");
}

/// A challenge that an attacker recorded is sent again and again.
#[test]
fn replayed_challenges_cost_little() {
    let mut net = net(aes_keys(), RxkadLevel::Clear, Weather::fair(5));
    net.hosts[1].manner = crate::network::Manner::Silent;
    let on = net.hosts[0].connect(Time::ZERO, 2, security(&token(&aes_keys()), RxkadLevel::Clear));
    let recorded = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let record = std::rc::Rc::clone(&recorded);
    net.tap = Some(Box::new(move |_, _, _, bytes| {
        if bytes[20] == PacketType::Challenge as u8 {
            record.borrow_mut().clone_from(bytes);
        }
        true
    }));
    net.hosts[0].call(Time::ZERO, on, &text(100, 1));
    net.run(50);
    let challenge = recorded.borrow().clone();
    assert!(!challenge.is_empty());
    for _ in 0..1000 {
        net.hosts[0].endpoint.receive(net.now, address(2), &challenge);
        net.run(1);
    }
    let sent = net.hosts[0].endpoint.statistics().responses_sent;
    assert!(sent <= 12, "{sent} responses in a second");
    assert_eq!(net.hosts[1].endpoint.statistics().responses_good, 1, "later ones are ignored");
    assert_eq!(net.hosts[0].open_calls(), 1);
}

#[test]
fn a_challenge_without_a_call_is_not_answered() {
    let mut net = net(aes_keys(), RxkadLevel::Clear, Weather::fair(5));
    let on = net.hosts[0].connect(Time::ZERO, 2, security(&token(&aes_keys()), RxkadLevel::Clear));
    net.hosts[0].call(Time::ZERO, on, &text(100, 1));
    let recorded = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let record = std::rc::Rc::clone(&recorded);
    net.tap = Some(Box::new(move |_, _, _, bytes| {
        if bytes[20] == PacketType::Challenge as u8 {
            record.borrow_mut().clone_from(bytes);
        }
        true
    }));
    net.finish();
    net.run(1000);
    let before = net.hosts[0].endpoint.statistics().responses_sent;
    let challenge = recorded.borrow().clone();
    net.hosts[0].endpoint.receive(net.now, address(2), &challenge);
    net.run(1000);
    assert_eq!(net.hosts[0].endpoint.statistics().responses_sent, before);
}

/// Packets of a call that the client finished long ago are sent to a server that restarted.
#[test]
fn a_call_from_before_the_proof_is_not_run() {
    let keys = aes_keys();
    let mut net = net(keys.clone(), RxkadLevel::Clear, Weather::fair(5));
    let on = net.hosts[0].connect(Time::ZERO, 2, security(&token(&keys), RxkadLevel::Clear));
    let recorded = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let record = std::rc::Rc::clone(&recorded);
    net.tap = Some(Box::new(move |_, from, _, bytes| {
        if from == address(1) && bytes[20] == PacketType::Data as u8 && record.borrow().is_empty() {
            record.borrow_mut().clone_from(bytes);
        }
        true
    }));
    for _ in 0..3 {
        net.hosts[0].call(net.now, on, &text(100, 1));
        net.run_until(at(10_000), |net| net.hosts[0].open_calls() == 0);
    }
    net.hosts[1] = server(keys, RxkadLevel::Clear, EndpointConfig::default());
    let old = recorded.borrow().clone();
    assert_eq!(PacketHeader::parse(&old).unwrap().0.call, 1);
    // The replayed packet is first; then comes the client's own next call on the channel.
    net.hosts[1].endpoint.receive(net.now, address(1), &old);
    net.hosts[0].call(net.now, on, &text(100, 2));
    net.finish();
    let numbers: Vec<_> = net.hosts[1].calls.values().map(|record| record.read.clone()).collect();
    assert_eq!(numbers, [text(100, 2)], "only the new call is run");
}
