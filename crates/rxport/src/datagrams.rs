//! Datagrams in as few system calls as possible.
//!
//! Model: the kernel takes a run of datagrams to one peer, all of one size but for a shorter last
//! one, as one buffer, and cuts it (GSO); a window of a call is such a run. It gives many datagrams
//! at once, and a run from one peer uncut. Where it cannot, `quinn-udp` sends them one by one.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};

use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use rx::Transmit;

/// Buffers of one receiving call.
const BUFFERS: usize = 32;
/// No datagram, and no run of them, is larger.
const BUFFER_BYTES: usize = 65_536;
/// Bytes of a run that is sent: with the headers of IP it is a packet of IP.
const RUN_BYTES_MAX: usize = 65_000;

/// A run of datagrams that is being put together.
pub(crate) struct Outgoing {
    to: Option<SocketAddr>,
    bytes: Vec<u8>,
    /// The size of its first datagram; others are no longer.
    segment: usize,
    count: usize,
    /// A shorter one ended it.
    is_closed: bool,
}

impl Outgoing {
    pub(crate) fn new() -> Outgoing {
        let bytes = Vec::with_capacity(BUFFER_BYTES);
        Outgoing { to: None, bytes, segment: 0, count: 0, is_closed: false }
    }

    /// Puts a datagram behind the others, after they are sent if it does not fit.
    pub(crate) fn push(&mut self, socket: &DatagramSocket, datagram: &Transmit) {
        let size = datagram.header.len() + datagram.body.len();
        let fits = self.to == Some(datagram.to)
            && !self.is_closed
            && size <= self.segment
            && self.count < socket.state.max_gso_segments()
            && self.bytes.len() + size <= RUN_BYTES_MAX;
        if !fits {
            self.send(socket);
            (self.to, self.segment) = (Some(datagram.to), size);
        }
        self.bytes.extend_from_slice(&datagram.header);
        self.bytes.extend_from_slice(&datagram.body);
        self.count += 1;
        self.is_closed = size < self.segment;
    }

    /// Sends the run. A datagram that the socket has no room for is lost.
    pub(crate) fn send(&mut self, socket: &DatagramSocket) {
        if let Some(to) = self.to.take() {
            let run = quinn_udp::Transmit {
                destination: to,
                ecn: None,
                contents: &self.bytes,
                segment_size: (self.count > 1).then_some(self.segment),
                src_ip: None,
            };
            if let Err(error) = socket.state.try_send(UdpSockRef::from(&socket.socket), &run) {
                tracing::trace!(%to, %error, "datagrams are not sent");
            }
        }
        self.bytes.clear();
        (self.count, self.is_closed) = (0, false);
    }
}

/// A socket, and how its system batches.
pub(crate) struct DatagramSocket {
    pub(crate) socket: UdpSocket,
    state: UdpSocketState,
}

impl DatagramSocket {
    pub(crate) fn new(socket: UdpSocket) -> io::Result<DatagramSocket> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // It would let nothing be cut: QUIC finds out itself what a way carries, and Rx does not.
        if socket.local_addr()?.is_ipv4() {
            mem::fragments::cut_as_needed(&socket)?;
        }
        Ok(DatagramSocket { socket, state })
    }
}

/// Room for what one call receives.
pub(crate) struct Incoming {
    bytes: Vec<u8>,
    metas: [RecvMeta; BUFFERS],
}

impl Incoming {
    pub(crate) fn new() -> Incoming {
        Incoming { bytes: vec![0; BUFFERS * BUFFER_BYTES], metas: [RecvMeta::default(); BUFFERS] }
    }

    /// Receives what is there, and gives each datagram to `take`; says whether there may be more.
    pub(crate) fn receive(
        &mut self,
        socket: &DatagramSocket,
        mut take: impl FnMut(SocketAddr, &[u8]),
    ) -> bool {
        let mut buffers = self.bytes.chunks_mut(BUFFER_BYTES).map(IoSliceMut::new);
        let mut buffers: [IoSliceMut<'_>; BUFFERS] =
            std::array::from_fn(|_| buffers.next().expect("there are as many"));
        let socket_ref = UdpSockRef::from(&socket.socket);
        let count = match socket.state.recv(socket_ref, &mut buffers, &mut self.metas) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            // One that a datagram of ours met: its call finds that out.
            Err(_) => return true,
        };
        for (buffer, meta) in buffers.iter().zip(&self.metas).take(count) {
            for datagram in buffer[..meta.len].chunks(meta.stride.max(1)) {
                take(meta.addr, datagram);
            }
        }
        count == BUFFERS
    }
}
