//! The check of the fuzz target, in a library so that plain tests run it too (feature `fuzzing`).
//!
//! It takes arbitrary bytes and panics if a property does not hold.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use types::Time;

use crate::rxkad::{RxkadKeys, RxkadLevel, print_token};
use crate::wire::{PacketHeader, flags};
use crate::{
    CallLimits, ClientSecurity, EndpointConfig, RxCallId, RxEndpoint, RxEvent, ServerSecurity,
    ServiceId,
};

const SERVICE: ServiceId = ServiceId(1);
const BUFFER_MAX: usize = 1 << 20;
const CONNECTIONS_MAX: usize = 16;

/// An endpoint that calls and serves takes any datagrams at any times. It does not panic, and keeps
/// its limits.
///
/// Each step of the input is a command, a length, and so many bytes. Datagrams get the numbers of a
/// real connection in their headers, or they would hardly ever reach one.
pub fn endpoint(mut bytes: &[u8]) {
    let mut fuzzed = FuzzedEndpoint::new();
    while let Some(([command, length], rest)) = bytes.split_first_chunk::<2>() {
        let length = (usize::from(*length) * 8).min(rest.len());
        let (body, rest) = rest.split_at(length);
        fuzzed.step(*command, body);
        bytes = rest;
    }
}

struct FuzzedEndpoint {
    endpoint: RxEndpoint,
    now: Time,
    peer: SocketAddr,
    calls: Vec<RxCallId>,
    /// A header that we sent, whose connection exists.
    last_sent: PacketHeader,
}

impl FuzzedEndpoint {
    fn new() -> Self {
        let mut keys = RxkadKeys::new();
        keys.add_krb5(1, 18, &[1; 32]);
        let token = print_token(&keys, &mut StdRng::seed_from_u64(1));
        let config = EndpointConfig {
            connections_max: CONNECTIONS_MAX,
            unproved_max: 4,
            calls_max: 8,
            buffer_max: BUFFER_MAX,
            ..EndpointConfig::default()
        };
        let mut endpoint = RxEndpoint::new(config, [3; 32], Time::ZERO);
        let level_min = RxkadLevel::Clear;
        let rxkad = ServerSecurity::Rxkad { keys: Arc::new(keys), level_min, index: 2 };
        endpoint.serve(SERVICE, vec![ServerSecurity::Null, rxkad]);
        let peer = SocketAddr::from(([10, 0, 0, 1], 7000));
        let mut classes = vec![ClientSecurity::Null];
        classes
            .extend(token.map(|token| ClientSecurity::Rxkad { token, level: RxkadLevel::Crypt }));
        let mut calls = Vec::new();
        for class in classes {
            let limits = CallLimits::default();
            let connection = endpoint.connect(Time::ZERO, peer, SERVICE, class, limits);
            let begun = connection.and_then(|connection| endpoint.begin(Time::ZERO, connection));
            calls.extend(begun);
        }
        for call in &calls {
            assert_eq!(endpoint.write(Time::ZERO, *call, &[5; 3000]), Ok(3000));
        }
        let last_sent = PacketHeader::default();
        FuzzedEndpoint { endpoint, now: Time::ZERO, peer, calls, last_sent }
    }

    fn step(&mut self, command: u8, body: &[u8]) {
        match command % 8 {
            0..=3 => self.datagram(command, body),
            4 => {
                self.now = self.now + Duration::from_millis(u64::from(command) * 16);
                self.endpoint.tick(self.now);
            }
            5 => self.each_call(|endpoint, now, call| {
                let _ = endpoint.write(now, call, body);
                let _ = endpoint.flush(now, call);
            }),
            6 => self.each_call(|endpoint, now, call| {
                let _ = endpoint.read(now, call, 1000);
            }),
            _ => self.each_call(|endpoint, now, call| {
                let _ = endpoint.end(now, call);
            }),
        }
        self.drain();
        let statistics = self.endpoint.statistics();
        assert!(statistics.connections as usize <= CONNECTIONS_MAX, "RX-2: {statistics:?}");
        assert!(statistics.buffered as usize <= BUFFER_MAX, "RX-2: {statistics:?}");
    }

    /// A datagram: as it is, or with the numbers of a connection.
    fn datagram(&mut self, command: u8, body: &[u8]) {
        let mut bytes = body.to_vec();
        if command & 16 != 0
            && let Some((header, rest)) = PacketHeader::parse(body)
        {
            let sent = self.last_sent;
            let header = PacketHeader {
                epoch: sent.epoch,
                cid: sent.cid ^ u32::from(command >> 6),
                call: if command & 32 == 0 { sent.call } else { header.call % 4 },
                security: sent.security,
                kind: header.kind % 14,
                flags: header.flags & !flags::CLIENT_INITIATED
                    | (!sent.flags & flags::CLIENT_INITIATED),
                ..header
            };
            bytes = [&header.to_bytes()[..], rest].concat();
        }
        self.endpoint.receive(self.now, self.peer, &bytes);
    }

    fn each_call(&mut self, act: impl Fn(&mut RxEndpoint, Time, RxCallId)) {
        for call in &self.calls {
            act(&mut self.endpoint, self.now, *call);
        }
    }

    fn drain(&mut self) {
        let mut sent = 0;
        while let Some(packet) = self.endpoint.transmit(self.now) {
            if let Some((header, _)) = PacketHeader::parse(&packet.header) {
                self.last_sent = header;
            }
            sent += 1;
            assert!(sent < 10_000, "RX-6: the windows bound what is sent at once");
        }
        while let Some(event) = self.endpoint.event() {
            match event {
                RxEvent::Incoming { call, .. } => self.calls.push(call),
                RxEvent::Over(call, _) => self.calls.retain(|other| *other != call),
                RxEvent::Readable(_) | RxEvent::Writable(_) => {}
            }
        }
    }
}
