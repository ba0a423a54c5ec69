//! Answers to the questions of `rxdebug` about an endpoint.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::RxEndpoint;
use crate::connection::RxConnection;
use crate::debug::{
    ConnectionAnswer, DebugQuestion, PeerAnswer, RxTraffic, StatsAnswer, counters_answer,
    unknown_answer,
};

/// Bytes of a packet, where memory is told in packets.
const PACKET_BYTES: u64 = 1444;

impl RxEndpoint {
    pub(super) fn debug_payload(&self, question: DebugQuestion) -> Vec<u8> {
        match question {
            DebugQuestion::Figures => self.figures().to_bytes(),
            DebugQuestion::Connection { index, all } => {
                let mut wanted = self
                    .connections
                    .iter()
                    .filter(|connection| all || connection.load().calls > 0)
                    .map(RxConnection::debug_answer);
                ConnectionAnswer::payload(wanted.nth(index as usize))
            }
            DebugQuestion::Counters => {
                let clients = self.connections.iter().filter(|one| one.is_client()).count();
                let peers = self.addresses().len();
                let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
                counters_answer(&self.common.statistics, count(clients), count(peers))
            }
            DebugQuestion::Peer { index } => {
                let address = self.addresses().get(index as usize).copied();
                PeerAnswer::payload(address.map(|address| self.peer_answer(address)))
            }
            DebugQuestion::Unknown => unknown_answer(),
        }
    }

    fn figures(&self) -> StatsAnswer {
        let counters = &self.common.statistics;
        let (max, used) = (self.common.config.buffer_max as u64, counters.buffered);
        let packets = |bytes: u64| u32::try_from(bytes / PACKET_BYTES).unwrap_or(u32::MAX);
        StatsAnswer {
            free_packets: packets(max.saturating_sub(used)),
            calls_executed: counters.calls_served as u32,
            waiting: counters.unproved as u32,
            packets: packets(max),
        }
    }

    /// The addresses of all peers, in the order of their first connections.
    fn addresses(&self) -> Vec<SocketAddr> {
        let mut seen = HashMap::with_hasher(self.hash);
        let peers = self.connections.iter().map(|connection| connection.peer);
        peers.filter(|peer| seen.insert(*peer, ()).is_none()).collect()
    }

    fn peer_answer(&self, address: SocketAddr) -> PeerAnswer {
        let mut answer = PeerAnswer {
            address,
            connections: 0,
            packet_bytes: 0,
            round_trip: std::time::Duration::ZERO,
            resend_after: std::time::Duration::ZERO,
            traffic: RxTraffic::default(),
        };
        for connection in self.connections.iter().filter(|one| one.peer == address) {
            let path = connection.round_trip();
            answer.connections += 1;
            answer.packet_bytes = connection.packet_bytes();
            answer.round_trip = answer.round_trip.max(path.smoothed());
            answer.resend_after = answer.resend_after.max(path.resend_after(0));
            let (sum, one) = (&mut answer.traffic, connection.traffic);
            sum.packets_received += one.packets_received;
            sum.bytes_received += one.bytes_received;
            sum.packets_sent += one.packets_sent;
            sum.bytes_sent += one.bytes_sent;
            sum.packets_resent += one.packets_resent;
        }
        answer
    }
}
