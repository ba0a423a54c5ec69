//! Two or more endpoints and a seeded network between them, in simulated time.
//!
//! A datagram may be lost, doubled, or delayed by a random time, so that it is overtaken. Each
//! endpoint has an application that echoes what it is sent, or does what the test says.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rx::wire::PacketHeader;
use rx::{
    CallLimits, ClientSecurity, EndpointConfig, RxCallId, RxConnectionId, RxEndpoint, RxError,
    RxEvent, RxRead, ServerSecurity, ServiceId,
};
use types::Time;

pub const SERVICE: ServiceId = ServiceId(1);
/// Wall-clock time at the start of each test.
pub const WALL: i64 = 1_700_000_000;

pub fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 7000))
}

pub fn at(millis: u64) -> Time {
    Time::from_start(Duration::from_millis(millis))
}

/// The fate of datagrams in the network.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    pub delay: Duration,
    /// Each datagram is late by a random part of this.
    pub jitter: Duration,
    /// Of 10,000 datagrams.
    pub lost: u32,
    pub doubled: u32,
    /// Time that each datagram takes on the line, in its direction.
    pub spacing: Duration,
    /// So many wait for the line at most; later ones are lost.
    pub queue_max: u32,
}

impl Weather {
    pub fn fair(delay_millis: u64) -> Self {
        let delay = Duration::from_millis(delay_millis);
        Weather {
            delay,
            jitter: Duration::ZERO,
            lost: 0,
            doubled: 0,
            spacing: Duration::ZERO,
            queue_max: u32::MAX,
        }
    }
}

/// A call as an application of the test sees it.
#[derive(Debug, Default)]
pub struct CallRecord {
    pub to_write: Vec<u8>,
    pub written: usize,
    pub ended: bool,
    pub read: Vec<u8>,
    pub read_end: bool,
    pub over: Option<Result<(), RxError>>,
    pub over_at: Time,
    pub serves: bool,
}

/// The application's treatment of calls that it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Reads the request, then answers with the same bytes.
    Echo,
    /// Reads the request, and does nothing more.
    Silent,
    /// Does not even read.
    Idle,
    /// Ends the call with this code.
    Abort(i32),
    /// Answers so many bytes to any request.
    Answer(usize),
}

pub struct Host {
    pub address: SocketAddr,
    pub endpoint: RxEndpoint,
    pub manner: Manner,
    /// It reads nothing from its own calls.
    pub never_reads: bool,
    pub calls: HashMap<RxCallId, CallRecord>,
    pub incoming: Vec<RxEvent>,
}

impl Host {
    pub fn new(host: u8, config: EndpointConfig, security: Vec<ServerSecurity>) -> Self {
        let mut endpoint = RxEndpoint::new(config, [host; 32], Time::ZERO);
        endpoint.serve(SERVICE, security);
        endpoint.set_wall(Time::ZERO, WALL);
        Host {
            address: address(host),
            endpoint,
            manner: Manner::Echo,
            never_reads: false,
            calls: HashMap::new(),
            incoming: Vec::new(),
        }
    }

    pub fn connect(&mut self, now: Time, to: u8, security: ClientSecurity) -> RxConnectionId {
        let limits = CallLimits::default();
        self.endpoint.connect(now, address(to), SERVICE, security, limits).unwrap()
    }

    pub fn call(&mut self, now: Time, on: RxConnectionId, request: &[u8]) -> RxCallId {
        let id = self.endpoint.begin(now, on).unwrap();
        let to_write = request.to_vec();
        self.calls.insert(id, CallRecord { to_write, ..CallRecord::default() });
        self.write(now, id);
        id
    }

    pub fn write(&mut self, now: Time, id: RxCallId) {
        let Some(record) = self.calls.get_mut(&id) else { return };
        if record.ended || record.over.is_some() {
            return;
        }
        let rest = &record.to_write[record.written..];
        match self.endpoint.write(now, id, rest) {
            Ok(taken) => record.written += taken,
            // It has ended, and the event is on its way.
            Err(_) => return,
        }
        if record.written == record.to_write.len() && (!record.serves || record.read_end) {
            record.ended = true;
            self.endpoint.end(now, id).unwrap();
        }
    }

    fn read(&mut self, now: Time, id: RxCallId) {
        if self.never_reads || self.manner == Manner::Idle {
            return;
        }
        let Some(record) = self.calls.get_mut(&id) else { return };
        while !record.read_end && record.over.is_none() {
            match self.endpoint.read(now, id, 100_000) {
                Ok(RxRead::Bytes(bytes)) => record.read.extend_from_slice(&bytes),
                // Or it has ended, and the event is on its way.
                Ok(RxRead::Nothing) | Err(_) => return,
                Ok(RxRead::End) => record.read_end = true,
            }
        }
        if record.serves && !record.ended {
            match self.manner {
                Manner::Echo => record.to_write = record.read.clone(),
                Manner::Answer(bytes) => record.to_write = vec![7; bytes],
                Manner::Abort(code) => return self.endpoint.abort(now, id, code),
                Manner::Silent | Manner::Idle => return,
            }
            self.write(now, id);
        }
    }

    /// Handles all events.
    pub fn work(&mut self, now: Time) {
        while let Some(event) = self.endpoint.event() {
            match event {
                RxEvent::Incoming { call, .. } => {
                    self.incoming.push(event);
                    let record = CallRecord { serves: true, ..CallRecord::default() };
                    assert!(self.calls.insert(call, record).is_none(), "{call} comes once");
                    self.read(now, call);
                }
                RxEvent::Readable(call) => self.read(now, call),
                RxEvent::Writable(call) => self.write(now, call),
                RxEvent::Over(call, result) => {
                    let record = self.calls.get_mut(&call).unwrap();
                    assert_eq!(record.over, None, "{call} ends once");
                    record.over = Some(result);
                    record.over_at = now;
                }
            }
        }
    }

    pub fn open_calls(&self) -> usize {
        self.calls.values().filter(|record| record.over.is_none()).count()
    }
}

type Tap = Box<dyn FnMut(Time, SocketAddr, SocketAddr, &mut Vec<u8>) -> bool>;

pub struct Network {
    pub now: Time,
    pub hosts: Vec<Host>,
    pub weather: Weather,
    random: StdRng,
    in_flight: BTreeMap<(Time, u64), (SocketAddr, SocketAddr, Vec<u8>)>,
    sent: u64,
    /// When the line from an address is free.
    line_free: HashMap<SocketAddr, Time>,
    /// Sees and may change each datagram; false drops it.
    pub tap: Option<Tap>,
    /// Datagrams for addresses where there is no host.
    pub elsewhere: Vec<(SocketAddr, Vec<u8>)>,
}

impl Network {
    pub fn new(hosts: Vec<Host>, weather: Weather, seed: u64) -> Self {
        Network {
            now: Time::ZERO,
            hosts,
            weather,
            random: StdRng::seed_from_u64(seed),
            in_flight: BTreeMap::new(),
            sent: 0,
            line_free: HashMap::new(),
            tap: None,
            elsewhere: Vec::new(),
        }
    }

    /// A client and a server that both use the null class.
    pub fn pair(weather: Weather, seed: u64) -> Self {
        let host = |n| Host::new(n, EndpointConfig::default(), vec![ServerSecurity::Null]);
        Network::new(vec![host(1), host(2)], weather, seed)
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, mut bytes: Vec<u8>) {
        if let Some(tap) = &mut self.tap
            && !tap(self.now, from, to, &mut bytes)
        {
            return;
        }
        let copies = if self.random.random_ratio(self.weather.doubled, 10_000) { 2 } else { 1 };
        for _ in 0..copies {
            if self.random.random_ratio(self.weather.lost, 10_000) {
                continue;
            }
            let free = self.line_free.entry(from).or_default();
            let start = self.now.max(*free);
            let spacing = self.weather.spacing;
            if start.since(self.now) > spacing.saturating_mul(self.weather.queue_max) {
                continue;
            }
            *free = start + spacing;
            let jitter = self.weather.jitter.mul_f64(self.random.random());
            let at = *free + self.weather.delay + jitter;
            self.sent += 1;
            self.in_flight.insert((at, self.sent), (from, to, bytes.clone()));
        }
    }

    /// Lets every host do what it can do now.
    pub fn settle(&mut self) {
        for at in 0..self.hosts.len() {
            loop {
                let (now, host) = (self.now, &mut self.hosts[at]);
                if host.endpoint.due() <= now {
                    host.endpoint.tick(now);
                }
                host.work(now);
                let Some(packet) = host.endpoint.transmit(now) else { break };
                let from = host.address;
                self.send(from, packet.to, packet.to_vec());
            }
        }
    }

    /// The next moment at which something happens.
    fn next(&self) -> Time {
        let arrival = self.in_flight.first_key_value().map(|((at, _), _)| *at);
        let timers = self.hosts.iter().map(|host| host.endpoint.due());
        timers.chain(arrival).min().unwrap_or(Time::NEVER)
    }

    /// Runs until `until`, or until `done`.
    pub fn run_until(&mut self, until: Time, done: impl Fn(&Network) -> bool) {
        let mut stuck = 0;
        loop {
            self.settle();
            if done(self) {
                return;
            }
            let next = self.next();
            if next > until {
                self.now = until;
                return;
            }
            stuck = if next <= self.now { stuck + 1 } else { 0 };
            assert!(stuck < 1000, "time goes on");
            self.now = self.now.max(next);
            while let Some(entry) = self.in_flight.first_entry()
                && entry.key().0 <= self.now
            {
                let (from, to, bytes) = entry.remove();
                let now = self.now;
                match self.hosts.iter_mut().find(|host| host.address == to) {
                    Some(host) => host.endpoint.receive(now, from, &bytes),
                    None => self.elsewhere.push((to, bytes)),
                }
            }
        }
    }

    pub fn run(&mut self, millis: u64) {
        self.run_until(self.now + Duration::from_millis(millis), |_| false);
    }

    /// Runs until no call is open, for at most an hour.
    pub fn finish(&mut self) {
        let until = self.now + Duration::from_secs(3600);
        self.run_until(until, |network| network.hosts.iter().all(|host| host.open_calls() == 0));
    }
}

/// Numbered bytes, so that a wrong order shows.
pub fn text(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

/// A packet of a client, as an attacker makes it.
pub fn client_packet(header: PacketHeader, body: &[u8]) -> Vec<u8> {
    let header = PacketHeader {
        flags: header.flags | rx::wire::flags::CLIENT_INITIATED,
        service: SERVICE.0,
        ..header
    };
    [&header.to_bytes()[..], body].concat()
}
