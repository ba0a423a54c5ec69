//! One UDP port: its connections of both roles, its services, and what it sends.
//!
//! The driver gives datagrams to [`RxEndpoint::receive`], and calls [`RxEndpoint::tick`] when
//! [`RxEndpoint::due`] is reached. After either, and after each of its own steps, it takes
//! datagrams from [`RxEndpoint::transmit`] and events from [`RxEndpoint::event`] until there are no
//! more.
//!
//! Every step on a connection goes through `visit`, which then counts what the connection holds,
//! notes its next deadline, and puts it in line to send.

mod calls;
mod debug;
mod peers;
mod queries;
mod table;
mod unproved;

use std::collections::HashMap;
use std::net::SocketAddr;

use rand::Rng as _;
use types::Time;

use crate::call::Polled;
use crate::common::CommonState;
use crate::config::EndpointConfig;
use crate::connection::{ConnectionKey, ConnectionStart, RxConnection};
use crate::debug::DebugQuestion;
use crate::error::code;
use crate::event::{RxEvent, Transmit};
use crate::limits::PROBE_EARLY_BYTES;
use crate::security::{ConnectionSecurity, ServerSecurity};
use crate::statistics::RxStatistics;
use crate::wire::{PacketHeader, PacketType, flags, version_text};
use crate::{RxConnectionId, RxError, ServiceId};
use peers::PeerTable;
use queries::StrayQueue;
use table::{ConnectionTable, KeyedHash};
use unproved::UnprovedQueue;

/// A client whose epoch has this bit may change its address.
const EPOCH_ROAMS: u32 = 1 << 31;

/// One UDP port, without the socket.
#[derive(Debug)]
pub struct RxEndpoint {
    common: CommonState,
    services: HashMap<ServiceId, Vec<ServerSecurity>>,
    connections: ConnectionTable,
    peers: PeerTable,
    unproved: UnprovedQueue,
    strays: StrayQueue,
    hash: KeyedHash,
    /// Of the connections that this side makes.
    epoch: u32,
    next_cid: u32,
}

impl RxEndpoint {
    /// An endpoint that serves nothing yet.
    pub fn new(config: EndpointConfig, seed: [u8; 32], now: Time) -> Self {
        let mut common = CommonState::new(config, seed, now);
        let hash = KeyedHash(common.random.random(), common.random.random());
        let epoch = common.random.random::<u32>() & !(1 << 30) | EPOCH_ROAMS;
        let next_cid = common.random.random::<u32>() & !3;
        RxEndpoint {
            common,
            services: HashMap::new(),
            connections: ConnectionTable::new(hash),
            peers: PeerTable::new(hash),
            unproved: UnprovedQueue::default(),
            strays: StrayQueue::default(),
            hash,
            epoch,
            next_cid,
        }
    }

    /// Peers may call this service, with one of these security classes.
    pub fn serve(&mut self, service: ServiceId, security: Vec<ServerSecurity>) {
        self.services.insert(service, security);
    }

    /// Tells the wall-clock time, which tickets are checked against. It goes on with the steady
    /// clock until it is told again.
    pub fn set_wall(&mut self, now: Time, secs: i64) {
        self.common.set_wall(now, secs);
    }

    /// Takes in a datagram.
    pub fn receive(&mut self, now: Time, from: SocketAddr, datagram: &[u8]) {
        self.common.statistics.datagrams_received += 1;
        self.common.statistics.bytes_received += datagram.len() as u64;
        let Some((header, body)) = PacketHeader::parse(datagram) else {
            self.common.statistics.dropped_malformed += 1;
            return;
        };
        if let Some(count) = self.common.statistics.received_kinds.get_mut(header.kind as usize) {
            *count += 1;
        }
        match header.packet_type() {
            Some(PacketType::Version) => return self.on_version(now, from, &header),
            Some(PacketType::Debug) => return self.on_debug(now, from, &header, body),
            _ => {}
        }
        let is_served = header.has(flags::CLIENT_INITIATED);
        let names_address = is_served && header.epoch & EPOCH_ROAMS == 0;
        let key = ConnectionKey {
            epoch: header.epoch,
            cid: header.connection(),
            is_served,
            address: names_address.then_some(from),
        };
        let found = self.connections.find(&key);
        let Some(id) = found.or_else(|| self.accept(now, from, &header, key, datagram.len()))
        else {
            return;
        };
        self.peers.credit(from, datagram.len());
        self.visit(id, |connection, common| {
            let is_from_there = is_served || connection.peer.port() == from.port();
            if header.security == connection.security_index() && is_from_there {
                if header.packet_type() == Some(PacketType::Data) {
                    connection.traffic.packets_received += 1;
                    connection.traffic.bytes_received += body.len() as u64;
                }
                connection.on_packet(now, &header, body, common);
            } else {
                common.stale();
            }
        });
        self.probe_early(now, id);
    }

    /// Probes the address of a connection that proves nothing else, once it has sent enough to pay
    /// for that: a long request is then not slowed down by the limits of unproved connections.
    fn probe_early(&mut self, now: Time, id: RxConnectionId) {
        let Some(connection) = self.connections.get(id) else { return };
        let (peer, is_known) = (connection.peer, !connection.needs_address_proof());
        if !is_known && self.peers.allowance(peer) >= PROBE_EARLY_BYTES {
            self.probe(now, peer, id);
        }
    }

    /// Probes an address if that is due; the connection is told when the address is proved.
    fn probe(&mut self, now: Time, peer: SocketAddr, id: RxConnectionId) {
        if let Some(probe) = self.peers.withhold(now, peer, id, &mut self.common.random) {
            self.common.statistics.probes_sent += 1;
            self.strays.push(probe);
        }
    }

    /// Makes a connection for a client's first packet, if it is one.
    fn accept(
        &mut self,
        now: Time,
        from: SocketAddr,
        header: &PacketHeader,
        key: ConnectionKey,
        datagram_bytes: usize,
    ) -> Option<RxConnectionId> {
        let is_first = header.packet_type() == Some(PacketType::Data)
            && header.call > 0
            && (1..=u32::from(self.common.config.window)).contains(&header.seq);
        if !key.is_served || !is_first {
            self.common.stale();
            return None;
        }
        let classes = self.services.get(&ServiceId(header.service));
        let class = classes
            .and_then(|classes| classes.iter().find(|class| class.index() == header.security));
        let Some(class) = class else {
            self.common.stale();
            self.strays.refuse(from, header, datagram_bytes, code::INVALID_OPERATION);
            return None;
        };
        let security = ConnectionSecurity::for_server(class, header.epoch, key.cid);
        if !self.make_room() {
            self.common.statistics.dropped_full += 1;
            return None;
        }
        let address_is_open = self.peers.join(from);
        let limits = self.common.config.served;
        // An echo of a serial shows that the packet was received.
        let serial = self.common.random.random_range(1..1 << 30);
        let start = |id| ConnectionStart {
            id,
            key,
            peer: from,
            service: ServiceId(header.service),
            is_proved: address_is_open && matches!(security, ConnectionSecurity::Null),
            security,
            limits,
            serial,
            address_is_open,
        };
        let packet_send = self.common.config.packet_send;
        let id = self.connections.insert(key, |id| RxConnection::new(now, start(id), packet_send));
        if !self.is_proved(id) {
            let connections = &self.connections;
            self.unproved.push(id, |id| is_unproved(connections, id));
        }
        self.count_connections();
        Some(id)
    }

    /// Drops the oldest unproved connection if a table is full. Whether there is room then.
    fn make_room(&mut self) -> bool {
        let config = &self.common.config;
        let is_full = self.connections.len() >= config.connections_max;
        if !is_full && self.unproved.count() < config.unproved_max {
            return true;
        }
        let connections = &self.connections;
        let Some(oldest) = self.unproved.pop_oldest(|id| is_unproved(connections, id)) else {
            return !is_full && self.common.config.unproved_max > 0;
        };
        self.common.statistics.unproved_dropped += 1;
        self.remove(oldest);
        true
    }

    fn on_version(&mut self, now: Time, from: SocketAddr, header: &PacketHeader) {
        if !header.has(flags::CLIENT_INITIATED) {
            let waiting = self.peers.on_echo(from, header);
            return self.open_connections(waiting);
        }
        self.answer(now, from, header, |endpoint| {
            version_text(&endpoint.common.config.version).to_vec()
        });
    }

    /// Answers a question of an asker who has proved nothing, if that is within the limit.
    fn answer(
        &mut self,
        now: Time,
        from: SocketAddr,
        header: &PacketHeader,
        payload: impl FnOnce(&RxEndpoint) -> Vec<u8>,
    ) {
        if !self.strays.may_answer(now, self.common.config.queries_per_second) {
            self.common.statistics.withheld += 1;
            return;
        }
        let payload = payload(self);
        self.strays.answer(from, header, payload);
    }

    fn on_debug(&mut self, now: Time, from: SocketAddr, header: &PacketHeader, body: &[u8]) {
        let question = DebugQuestion::parse(body);
        let Some(question) = question.filter(|_| header.has(flags::CLIENT_INITIATED)) else {
            self.common.statistics.dropped_malformed += 1;
            return;
        };
        self.answer(now, from, header, |endpoint| endpoint.debug_payload(question));
    }

    /// The next datagram to send.
    pub fn transmit(&mut self, now: Time) -> Option<Transmit> {
        loop {
            if let Some(packet) = self.strays.pop() {
                return Some(self.count_sent(packet));
            }
            let id = self.connections.pop_ready()?;
            let Some(connection) = self.connections.get(id) else { continue };
            let (peer, was_open) = (connection.peer, connection.address_is_open);
            if !was_open && self.peers.is_open(peer) {
                self.open_connections(vec![id]);
                continue;
            }
            let allowance = if was_open { usize::MAX } else { self.peers.allowance(peer) };
            let Some(connection) = self.connections.get_mut(id) else { continue };
            let resent = self.common.statistics.data_resent;
            match connection.poll(now, allowance, &mut self.common) {
                Polled::Packet(packet) => {
                    if packet.kind() == PacketType::Data as u8 {
                        let traffic = &mut connection.traffic;
                        traffic.packets_sent += 1;
                        traffic.bytes_sent += packet.body.len() as u64;
                        traffic.packets_resent += self.common.statistics.data_resent - resent;
                    }
                    if !was_open {
                        self.peers.debit(peer, packet.size());
                    }
                    self.connections.set_ready(id);
                    return Some(self.count_sent(packet));
                }
                Polled::Withheld => {
                    self.common.statistics.withheld += 1;
                    self.probe(now, peer, id);
                }
                Polled::Nothing => {}
            }
            let deadline = self.connections.get(id).map(|it| it.deadline(&self.common));
            self.connections.set_deadline(id, deadline.unwrap_or(Time::NEVER));
        }
    }

    fn count_sent(&mut self, packet: Transmit) -> Transmit {
        self.common.statistics.datagrams_sent += 1;
        self.common.statistics.bytes_sent += packet.size() as u64;
        if let Some(count) = self.common.statistics.sent_kinds.get_mut(packet.kind() as usize) {
            *count += 1;
        }
        packet
    }

    /// When [`Self::tick`] is to be called next.
    pub fn due(&self) -> Time {
        self.connections.due()
    }

    /// Time went by.
    pub fn tick(&mut self, now: Time) {
        // Each one once: what a timer asks for may be done only by the next transmission.
        let due: Vec<_> = std::iter::from_fn(|| self.connections.pop_due(now)).collect();
        for id in due {
            let is_over = self.visit(id, |connection, common| connection.on_tick(now, common));
            if is_over == Some(true) {
                self.remove(id);
            }
        }
    }

    /// Whether a packet since the last question was one of a stream, of which others are on their
    /// way and to which the peer awaits no answer: a driver may wait for these, so that it takes
    /// more of them at once.
    pub fn took_stream(&mut self) -> bool {
        std::mem::take(&mut self.common.is_stream)
    }

    /// The next thing that the application must know.
    pub fn event(&mut self) -> Option<RxEvent> {
        self.common.events.pop_front()
    }

    /// Counters since the start.
    pub fn statistics(&self) -> &RxStatistics {
        &self.common.statistics
    }

    /// Whether the peer of a connection has proved its name, or, with the null class, its address.
    /// An application that calls back to the address of an unproved peer can be made to call
    /// a victim.
    pub fn is_proved(&self, id: RxConnectionId) -> bool {
        self.connections.get(id).is_some_and(|connection| connection.is_proved)
    }

    /// As [`RxEndpoint::is_proved`]. If only the address can be proved and is not, the peer is
    /// asked for that: the application calls this again until it is, or gives up.
    pub fn prove(&mut self, now: Time, id: RxConnectionId) -> bool {
        let Some(connection) = self.connections.get(id) else { return false };
        if connection.needs_address_proof() {
            let peer = connection.peer;
            self.probe(now, peer, id);
        }
        self.is_proved(id)
    }

    /// Runs `step` on a connection, then settles what follows from it.
    fn visit<R>(
        &mut self,
        id: RxConnectionId,
        step: impl FnOnce(&mut RxConnection, &mut CommonState) -> R,
    ) -> Option<R> {
        let connection = self.connections.get_mut(id)?;
        let before = connection.load();
        let (was_proved, was_open) = (connection.is_proved, connection.address_is_open);
        let result = step(connection, &mut self.common);
        connection.settle_proof();
        let after = connection.load();
        let statistics = &mut self.common.statistics;
        statistics.buffered = (statistics.buffered + after.bytes as u64) - before.bytes as u64;
        statistics.calls = (statistics.calls + after.calls as u64) - before.calls as u64;
        let (peer, is_open) = (connection.peer, connection.address_is_open);
        let is_served = connection.key.is_served;
        let deadline = connection.deadline(&self.common);
        if connection.is_proved && !was_proved {
            self.unproved.on_gone();
            self.count_connections();
        }
        if is_open && !was_open && is_served {
            let waiting = self.peers.open(peer);
            self.open_connections(waiting);
        }
        self.connections.set_deadline(id, deadline);
        self.connections.set_ready(id);
        self.common.feed_starved();
        Some(result)
    }

    /// The address of these connections is proved.
    fn open_connections(&mut self, waiting: Vec<RxConnectionId>) {
        for id in waiting {
            self.visit(id, |connection, _| connection.open_address());
        }
    }

    /// Forgets a connection. Its calls fail.
    fn remove(&mut self, id: RxConnectionId) {
        self.visit(id, |connection, common| connection.fail(RxError::Dead, None, common));
        let Some(connection) = self.connections.remove(id) else { return };
        let load = connection.load();
        self.common.statistics.buffered -= load.bytes as u64;
        self.common.statistics.calls -= load.calls as u64;
        if connection.key.is_served {
            self.peers.leave(connection.peer);
            if !connection.is_proved {
                self.unproved.on_gone();
            }
        }
        self.count_connections();
    }

    fn count_connections(&mut self) {
        self.common.statistics.connections = self.connections.len() as u64;
        self.common.statistics.unproved = self.unproved.count() as u64;
    }
}

fn is_unproved(connections: &ConnectionTable, id: RxConnectionId) -> bool {
    connections.get(id).is_some_and(|connection| !connection.is_proved)
}
