//! Limits of an endpoint and of calls.

use std::time::Duration;

use crate::limits;

/// Limits of an endpoint. Each table has one.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// Packets of one direction of a call that are sent or accepted before the reader has them; at
    /// most 1024.
    pub window: u16,
    /// The largest datagram that we accept, Rx header included.
    pub packet_max: u16,
    /// The largest datagram that we send, Rx header included, if the peer accepts it.
    pub packet_send: u16,
    /// Connections of both roles.
    pub connections_max: usize,
    /// Connections of peers that have proved neither who they are nor that they receive at their
    /// address. One more drops the oldest of them.
    pub unproved_max: usize,
    /// Calls of peers that are not over. One more is answered with "busy".
    pub calls_max: usize,
    /// Bytes that all calls buffer.
    pub buffer_max: usize,
    /// The answer to version packets.
    pub version: String,
    /// A connection of a peer is forgotten after this time without a call.
    pub idle_connection: Duration,
    /// Answers to version and debug packets in a second that are larger than the question.
    pub queries_per_second: u32,
    /// Limits of calls that peers make.
    pub served: CallLimits,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        EndpointConfig {
            window: limits::WINDOW_MAX,
            packet_max: 16384,
            packet_send: limits::PACKET_DEFAULT,
            connections_max: 65_536,
            unproved_max: 4096,
            calls_max: 16_384,
            buffer_max: 1 << 28,
            version: String::from("Rialto"),
            idle_connection: Duration::from_secs(700),
            queries_per_second: 64,
            served: CallLimits { idle: Duration::from_secs(60), ..CallLimits::default() },
        }
    }
}

impl EndpointConfig {
    /// The same with every value in the range that the protocol has.
    pub(crate) fn checked(mut self) -> Self {
        self.window = self.window.clamp(1, limits::WINDOW_MAX);
        self.packet_max = self.packet_max.clamp(limits::PACKET_DEFAULT, limits::PACKET_MAX);
        self.packet_send = self.packet_send.clamp(limits::PACKET_MIN, limits::PACKET_MAX);
        self
    }
}

/// When a call ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// The peer was not heard of. A sixth of this is the interval of keep-alive packets.
    pub dead: Duration,
    /// The peer is heard of, but what we wait for does not come: data, or room in its window.
    pub idle: Duration,
    /// The call as a whole.
    pub hard: Duration,
}

impl Default for CallLimits {
    fn default() -> Self {
        CallLimits { dead: Duration::from_secs(12), idle: Duration::MAX, hard: Duration::MAX }
    }
}
