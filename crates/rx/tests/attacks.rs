//! Datagrams that are random, cut, or changed: nothing panics, and what is sealed arrives as it was
//! sent or not at all.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rx::ClientSecurity;
use rx::rxkad::{RxkadLevel, read_key_file, read_key_file_ext, read_keytab};
use rx::wire::PacketType;
use types::Time;

use crate::network::{Network, Weather, text};
use crate::rxkad::{aes_keys, security, token};

/// Changes, cuts and repeats a part of all datagrams.
fn mutating(net: &mut Network, seed: u64, only: Option<PacketType>) {
    let random = Rc::new(RefCell::new(StdRng::seed_from_u64(seed)));
    net.tap = Some(Box::new(move |_, _, _, bytes| {
        let mut random = random.borrow_mut();
        let is_one = only.is_none_or(|kind| bytes[20] == kind as u8);
        if !is_one || !random.random_ratio(1, 5) {
            return true;
        }
        match random.random_range(0..4) {
            0 => bytes.truncate(random.random_range(0..bytes.len())),
            1 => bytes.extend_from_slice(&[0xa5; 40]),
            _ => {
                for _ in 0..random.random_range(1..4) {
                    let at = random.random_range(0..bytes.len());
                    bytes[at] ^= 1 << random.random_range(0..8);
                }
            }
        }
        true
    }));
}

#[test]
fn rx5_mutated_datagrams_break_nothing() {
    for seed in 0..60 {
        let weather = Weather { lost: 100, ..Weather::fair(5) };
        let mut net = crate::rxkad::net(aes_keys(), RxkadLevel::Clear, weather);
        mutating(&mut net, seed, None);
        let token = token(&aes_keys());
        for class in [ClientSecurity::Null, security(&token, RxkadLevel::Auth)] {
            let on = net.hosts[0].connect(Time::ZERO, 2, class);
            for n in 0..4 {
                net.hosts[0].call(Time::ZERO, on, &text(20_000, n));
            }
        }
        net.finish();
        assert_eq!(net.hosts[0].open_calls(), 0, "each call has an end");
    }
}

#[test]
fn rx4_sealed_data_arrives_unchanged_or_not_at_all() {
    let mut arrived = 0;
    for seed in 0..20 {
        let mut net = crate::rxkad::net(aes_keys(), RxkadLevel::Clear, Weather::fair(5));
        let token = token(&aes_keys());
        let on = net.hosts[0].connect(Time::ZERO, 2, security(&token, RxkadLevel::Crypt));
        net.hosts[0].call(Time::ZERO, on, b"first");
        net.finish();
        // Only checksums and the first block: the seal has no check of what is after that.
        let mut random = StdRng::seed_from_u64(seed);
        net.tap = Some(Box::new(move |_, _, _, bytes| {
            if bytes[20] == PacketType::Data as u8 && random.random_ratio(1, 5) {
                bytes[random.random_range(24..26)] ^= 1 << random.random_range(0..8);
            }
            true
        }));
        let id = net.hosts[0].call(net.now, on, &text(50_000, seed as u8));
        net.finish();
        let record = &net.hosts[0].calls[&id];
        if record.over == Some(Ok(())) {
            arrived += 1;
            assert!(record.read == record.to_write, "seed {seed}");
        }
        assert!(net.hosts[1].endpoint.statistics().dropped_seal > 0);
    }
    assert!(arrived > 15, "{arrived} of 20 arrived");
}

fn commands() -> impl Strategy<Value = Vec<u8>> {
    let step = (any::<u8>(), prop::collection::vec(any::<u8>(), 0..12 * 8));
    let step = step.prop_map(|(command, mut body)| {
        body.resize(body.len().next_multiple_of(8), 0);
        // A kind that there is, so that most packets get further than the header.
        if let Some(kind) = body.get_mut(20) {
            *kind %= 9;
        }
        let mut bytes = vec![command, (body.len() / 8) as u8];
        bytes.extend_from_slice(&body);
        bytes
    });
    prop::collection::vec(step, 0..60).prop_map(|steps| steps.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn rx5_any_datagrams_at_any_times_break_nothing(bytes in commands()) {
        rx::fuzzing::endpoint(&bytes);
    }

    #[test]
    fn key_files_take_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_key_file(&bytes);
        let _ = read_key_file_ext(&bytes);
        let _ = read_keytab(&bytes, "cell");
        let _ = read_keytab(&[&[5, 2][..], &bytes].concat(), "cell");
    }

    #[test]
    fn any_ticket_is_refused(
        bytes in prop::collection::vec(any::<u8>(), 32..300),
        form in 0usize..4,
        kvno in prop::sample::select(vec![5u32, 213, 256, 257]),
    ) {
        let mut net = crate::rxkad::net(aes_keys(), RxkadLevel::Clear, Weather::fair(1));
        let mut token = token(&aes_keys());
        // The starts of real tickets.
        let (part, whole) = (b"\x30\x82\x01\x00", b"\x61\x82\x01\x00\x30\x82\x00\xf0");
        let start = [&[][..], part, whole, &token.ticket];
        let ticket = [start[form], &bytes].concat();
        token.kvno = kvno;
        prop_assume!(form != 3 || kvno != 213);
        token.ticket = ticket.into();
        let on = net.hosts[0].connect(Time::ZERO, 2, security(&token, RxkadLevel::Clear));
        let id = net.hosts[0].call(Time::ZERO, on, &text(100, 1));
        net.run_until(Time::from_start(Duration::from_secs(60)), |net| {
            net.hosts[0].open_calls() == 0
        });
        prop_assert!(matches!(net.hosts[0].calls[&id].over, Some(Err(_))));
        prop_assert_eq!(net.hosts[1].incoming.len(), 0);
    }
}
