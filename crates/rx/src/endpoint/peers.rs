//! Addresses of peers, and whether they receive there.
//!
//! An address that a packet claims to come from may be a victim's. Until it has shown that it
//! receives what we send to it, it is sent no more bytes than came from it (RX-1). It shows this by
//! knowing a number that only a packet to it had: a good response to a challenge, an
//! acknowledgement with the serial of our packet (serials of such connections start at random), or
//! the echo of a *probe*. A probe is a version packet with a random number in the fields that the
//! answer copies. It is 29 bytes, so any data packet pays for it, and it is sent when something is
//! withheld. Rx peers of all kinds answer version packets. While something is withheld, room for a
//! probe is set aside: acknowledgements of a peer's pings would use up all that the pings pay for.

use std::collections::HashMap;
use std::net::SocketAddr;

use bytes::Bytes;
use rand::Rng;
use types::Time;

use super::table::KeyedHash;
use crate::RxConnectionId;
use crate::event::Transmit;
use crate::limits::PROBE_INTERVAL;
use crate::wire::{PacketHeader, PacketType, flags};

const PROBE_BYTES: usize = PacketHeader::BYTES + 1;
/// Connections that are told when an address is proved; others wait for their timers.
const WAITING_MAX: usize = 64;

#[derive(Debug, Default)]
struct PeerAddress {
    connections: usize,
    is_open: bool,
    received: u64,
    sent: u64,
    /// Epoch, connection and call of the probe.
    probe: Option<(u32, u32, u32)>,
    probe_at: Time,
    waiting: Vec<RxConnectionId>,
}

impl PeerAddress {
    fn allowance(&self) -> usize {
        if self.is_open { usize::MAX } else { self.received.saturating_sub(self.sent) as usize }
    }
}

#[derive(Debug)]
pub(crate) struct PeerTable {
    peers: HashMap<SocketAddr, PeerAddress, KeyedHash>,
}

impl PeerTable {
    pub(crate) fn new(hash: KeyedHash) -> Self {
        PeerTable { peers: HashMap::with_hasher(hash) }
    }

    /// A connection with this address begins. Whether the address is proved.
    pub(crate) fn join(&mut self, address: SocketAddr) -> bool {
        let peer = self.peers.entry(address).or_default();
        peer.connections += 1;
        peer.is_open
    }

    /// A connection with this address ends.
    pub(crate) fn leave(&mut self, address: SocketAddr) {
        if let Some(peer) = self.peers.get_mut(&address) {
            peer.connections -= 1;
            if peer.connections == 0 {
                self.peers.remove(&address);
            }
        }
    }

    /// So many bytes came from there.
    pub(crate) fn credit(&mut self, address: SocketAddr, bytes: usize) {
        if let Some(peer) = self.peers.get_mut(&address) {
            peer.received += bytes as u64;
        }
    }

    /// So many bytes were sent there.
    pub(crate) fn debit(&mut self, address: SocketAddr, bytes: usize) {
        if let Some(peer) = self.peers.get_mut(&address) {
            peer.sent += bytes as u64;
        }
    }

    /// How large a datagram may be that is sent there.
    pub(crate) fn allowance(&self, address: SocketAddr) -> usize {
        let Some(peer) = self.peers.get(&address) else { return 0 };
        let is_probed_soon = !peer.is_open && !peer.waiting.is_empty();
        peer.allowance() - if is_probed_soon { PROBE_BYTES.min(peer.allowance()) } else { 0 }
    }

    pub(crate) fn is_open(&self, address: SocketAddr) -> bool {
        self.peers.get(&address).is_some_and(|peer| peer.is_open)
    }

    /// Something for a connection is withheld: it is told when the address is proved. Returns a
    /// probe to send, at most one in [`PROBE_INTERVAL`].
    pub(crate) fn withhold(
        &mut self,
        now: Time,
        address: SocketAddr,
        id: RxConnectionId,
        random: &mut impl Rng,
    ) -> Option<Transmit> {
        let peer = self.peers.get_mut(&address)?;
        if peer.waiting.len() < WAITING_MAX && !peer.waiting.contains(&id) {
            peer.waiting.push(id);
        }
        if now < peer.probe_at || peer.allowance() < PROBE_BYTES {
            return None;
        }
        peer.probe_at = now + PROBE_INTERVAL;
        peer.sent += PROBE_BYTES as u64;
        let (epoch, cid, call) = *peer.probe.get_or_insert_with(|| random.random());
        let header = PacketHeader {
            epoch,
            cid,
            call,
            kind: PacketType::Version as u8,
            flags: flags::CLIENT_INITIATED,
            ..PacketHeader::default()
        };
        let body = Bytes::from_static(&[0]); // Linux answers only if there is a byte, and it is 0.
        Some(Transmit { to: address, header: header.to_bytes(), body })
    }

    /// A version answer came. Returns the connections that waited, if it echoes our probe.
    pub(crate) fn on_echo(
        &mut self,
        address: SocketAddr,
        header: &PacketHeader,
    ) -> Vec<RxConnectionId> {
        let echo = Some((header.epoch, header.cid, header.call));
        if self.peers.get(&address).is_some_and(|peer| peer.probe == echo) {
            self.open(address)
        } else {
            Vec::new()
        }
    }

    /// The address is proved. Returns the connections that waited.
    pub(crate) fn open(&mut self, address: SocketAddr) -> Vec<RxConnectionId> {
        let Some(peer) = self.peers.get_mut(&address) else { return Vec::new() };
        peer.is_open = true;
        std::mem::take(&mut peer.waiting)
    }
}
