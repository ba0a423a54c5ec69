//! Debug packets, as `rxdebug` sends and reads them.
//!
//! The answers are C structures of stock servers, with their padding; words are big-endian. A list
//! is asked for one by one, by index, until the answer is the mark of its end.
//!
//! Source: OpenAFS `doc/txt/rx-debug.txt`, `src/rx/rx.h` (`struct rx_debugStats` and after it).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::level::RxkadLevel;
use crate::limits::CHANNELS;
use crate::statistics::{KINDS, RxStatistics};
use crate::wire::PacketType;

const STATS_BYTES: usize = 56;
const CONNECTION_BYTES: usize = 176;
const COUNTERS_BYTES: usize = 284;
const PEER_BYTES: usize = 132;
/// There is no such question.
const NOT_HERE: i32 = -8;
/// Tells `rxdebug` which fields there are.
const STATS_VERSION: u8 = b'S';
/// The end of a list.
const END: u32 = u32::MAX;

/// The question of a debug packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugQuestion {
    /// The figures of [`StatsAnswer`].
    Figures,
    /// The connection with this index.
    Connection {
        /// From 0.
        index: u32,
        /// Among all connections; otherwise among those with calls that are not over.
        all: bool,
    },
    /// The counters.
    Counters,
    /// The peer with this index.
    Peer {
        /// From 0.
        index: u32,
    },
    /// None of these.
    Unknown,
}

impl DebugQuestion {
    /// The question in this payload; `None`: it is too short.
    pub fn parse(payload: &[u8]) -> Option<DebugQuestion> {
        let (kind, rest) = payload.split_first_chunk::<4>()?;
        let index = u32::from_be_bytes(*rest.first_chunk::<4>()?);
        Some(match u32::from_be_bytes(*kind) {
            1 => DebugQuestion::Figures,
            2 => DebugQuestion::Connection { index, all: false },
            3 => DebugQuestion::Connection { index, all: true },
            4 => DebugQuestion::Counters,
            5 => DebugQuestion::Peer { index },
            _ => DebugQuestion::Unknown,
        })
    }
}

/// A structure that is being written.
struct Fields(Vec<u8>);

impl Fields {
    fn with(bytes: usize) -> Fields {
        Fields(Vec::with_capacity(bytes))
    }

    fn words(&mut self, words: impl IntoIterator<Item = u32>) {
        words.into_iter().for_each(|word| self.0.extend(word.to_be_bytes()));
    }

    fn halves(&mut self, halves: impl IntoIterator<Item = u16>) {
        halves.into_iter().for_each(|half| self.0.extend(half.to_be_bytes()));
    }

    fn bytes(&mut self, bytes: impl IntoIterator<Item = u8>) {
        self.0.extend(bytes);
    }

    /// Zeros up to this size.
    fn fill(mut self, size: usize) -> Vec<u8> {
        debug_assert!(self.0.len() <= size);
        self.0.resize(size, 0);
        self.0
    }
}

/// Counters have 32 bits, and begin anew.
fn low(count: u64) -> u32 {
    count as u32
}

fn host_of(address: SocketAddr) -> u32 {
    match address.ip() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => address.to_ipv4_mapped().map_or(0, u32::from),
    }
}

/// Figures of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatsAnswer {
    /// Packets that could still be buffered.
    pub free_packets: u32,
    /// Calls that were given to the application.
    pub calls_executed: u32,
    /// Calls that wait for a proof.
    pub waiting: u32,
    /// Packets that are buffered at most.
    pub packets: u32,
}

impl StatsAnswer {
    /// The payload.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut fields = Fields::with(STATS_BYTES);
        fields.words([self.free_packets, 0, self.calls_executed]);
        fields.bytes([0, 0, STATS_VERSION, 0]);
        fields.words([self.waiting, 0, 0, self.packets]);
        fields.fill(STATS_BYTES)
    }
}

/// The state of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChannelState {
    /// It had no call.
    #[default]
    Unused,
    /// Its call waits for a proof.
    Waiting,
    /// The request arrives.
    Receiving,
    /// The answer is sent.
    Sending,
    /// Its last call ended well.
    Ended,
    /// Its last call failed.
    Failed,
}

impl ChannelState {
    /// State, mode and flags.
    const fn numbers(self) -> [u8; 3] {
        const RECEIVE_DONE: u8 = 0x20;
        match self {
            ChannelState::Unused => [0, 0, 0],
            ChannelState::Waiting => [1, 2, 0],
            ChannelState::Receiving => [2, 2, 0],
            ChannelState::Sending => [2, 1, RECEIVE_DONE],
            ChannelState::Ended => [3, 4, RECEIVE_DONE],
            ChannelState::Failed => [3, 3, 0],
        }
    }
}

/// Data that went over a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxTraffic {
    /// Data packets that arrived.
    pub packets_received: u64,
    /// Bytes in them.
    pub bytes_received: u64,
    /// Data packets that were sent.
    pub packets_sent: u64,
    /// Bytes in them.
    pub bytes_sent: u64,
    /// Those of the packets that were sent again.
    pub packets_resent: u64,
}

/// One connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionAnswer {
    /// The other side.
    pub peer: SocketAddr,
    /// The epoch.
    pub epoch: u32,
    /// The number, with the channel's bits zero.
    pub cid: u32,
    /// Serial of the next packet.
    pub serial: u32,
    /// This side calls.
    pub is_client: bool,
    /// The code with which it failed, or 0.
    pub error: i32,
    /// The number of its security class.
    pub security: u8,
    /// The level of rxkad, once the caller is proved.
    pub level: Option<RxkadLevel>,
    /// Numbers of the last calls, and the states of the channels.
    pub channels: [(u32, ChannelState); CHANNELS],
    /// Bytes of packets that this side makes.
    pub packet_bytes: u16,
    /// Data that went over it.
    pub traffic: RxTraffic,
}

impl ConnectionAnswer {
    /// The payload of an answer; `None`: the list is at its end.
    pub fn payload(answer: Option<ConnectionAnswer>) -> Vec<u8> {
        const PACKET_CHECKSUM: u8 = 4;
        const AUTHENTICATED: u32 = 2;
        const CHECKSUM_SEEN: u32 = 8;
        const KERBEROS: u8 = 3;
        const NULL: u8 = 1;
        let mut fields = Fields::with(CONNECTION_BYTES);
        let Some(it) = answer else {
            fields.words([0, END]);
            return fields.fill(CONNECTION_BYTES);
        };
        fields.words([host_of(it.peer), it.cid, it.serial]);
        fields.words(it.channels.map(|(number, _)| number));
        fields.words([it.error as u32]);
        fields.halves([it.peer.port()]);
        let flags = if it.level.is_some() { PACKET_CHECKSUM } else { 0 };
        fields.bytes([flags, u8::from(!it.is_client), it.security, 0, 0, 0]);
        for part in 0..3 {
            fields.bytes(it.channels.map(|(_, state)| state.numbers()[part]));
        }
        fields.bytes([0; CHANNELS]);
        let (kind, level, proofs) = match it.level {
            Some(level) => (KERBEROS, level as u8, AUTHENTICATED | CHECKSUM_SEEN),
            None if it.security == 0 => (NULL, 0, 0),
            None => (KERBEROS, 0, 0),
        };
        fields.bytes([kind, level]);
        fields.bytes([0; 10]);
        let RxTraffic { packets_received, bytes_received, packets_sent, bytes_sent, .. } =
            it.traffic;
        fields.words([proofs, 0]);
        fields.words([packets_received, packets_sent, bytes_received, bytes_sent].map(low));
        fields.bytes([0; 40]);
        fields.words([it.epoch, it.packet_bytes.into()]);
        fields.fill(CONNECTION_BYTES)
    }
}

/// One peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAnswer {
    /// Its address.
    pub address: SocketAddr,
    /// Connections with it.
    pub connections: u32,
    /// Bytes of packets that this side makes.
    pub packet_bytes: u16,
    /// The smoothed round trip.
    pub round_trip: Duration,
    /// A packet without an answer is sent again after this time.
    pub resend_after: Duration,
    /// Data that went over its connections.
    pub traffic: RxTraffic,
}

impl PeerAnswer {
    /// The payload of an answer; `None`: the list is at its end.
    pub fn payload(answer: Option<PeerAnswer>) -> Vec<u8> {
        let mut fields = Fields::with(PEER_BYTES);
        let Some(it) = answer else {
            fields.words([END]);
            return fields.fill(PEER_BYTES);
        };
        let eighths = u32::try_from(it.round_trip.as_micros() / 125).unwrap_or(u32::MAX);
        fields.words([host_of(it.address)]);
        fields.halves([it.address.port(), it.packet_bytes]);
        fields.words([0]);
        fields.halves([u16::try_from(it.connections).unwrap_or(u16::MAX), 0]);
        fields.words([0, 0, eighths, 0]);
        fields.words([low(it.resend_after.as_secs()), it.resend_after.subsec_micros()]);
        fields.words([low(it.traffic.packets_sent), low(it.traffic.packets_resent), 0, 0, 0]);
        fields.halves([it.packet_bytes, it.packet_bytes, 1, 1, it.packet_bytes, 1, 1, 0]);
        for bytes in [it.traffic.bytes_sent, it.traffic.bytes_received] {
            fields.words([low(bytes >> 32), low(bytes)]);
        }
        fields.fill(PEER_BYTES)
    }
}

/// The payload with the counters of an endpoint. `clients`: those of the connections that this side
/// made; `peers`: addresses with connections.
pub fn counters_answer(counters: &RxStatistics, clients: u32, peers: u32) -> Vec<u8> {
    /// Kinds of packets that have a place: 1 to 13.
    const PLACES: std::ops::Range<usize> = 1..KINDS;
    let of = |kinds: &[u64; KINDS], kind: PacketType| low(kinds[kind as usize]);
    let (received, sent) = (&counters.received_kinds, &counters.sent_kinds);
    let mut fields = Fields::with(COUNTERS_BYTES);
    // Packets that were allocated, and where that failed, are not counted.
    fields.words([0; 5]);
    fields.words([low(counters.dropped_malformed), 0, 0, low(counters.dropped_full), 0, 0]);
    fields.words(PLACES.map(|kind| low(received[kind])));
    fields.words([of(received, PacketType::Data), of(received, PacketType::Ack)]);
    fields.words([low(counters.duplicates), low(counters.dropped_stale)]);
    fields.words(PLACES.map(|kind| low(sent[kind])));
    fields.words([low(counters.acks_sent), 0]);
    fields.words([of(sent, PacketType::Abort), of(sent, PacketType::Busy)]);
    fields.words([counters.data_sent, counters.data_resent].map(low));
    // Pushed packets, acknowledged packets that are ignored, and three times of round trips.
    fields.words([0; 8]);
    fields.words([low(counters.round_trips)]);
    let servers = low(counters.connections).saturating_sub(clients);
    fields.words([servers, clients, peers, low(counters.calls)]);
    fields.words([0; 5]);
    fields.words([low(counters.calls_refused)]);
    fields.fill(COUNTERS_BYTES)
}

/// The payload of an answer to a question that there is not.
pub fn unknown_answer() -> Vec<u8> {
    NOT_HERE.to_be_bytes().repeat(2)
}
