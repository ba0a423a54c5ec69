//! One connected stream socket, TCP or Unix. Each call chooses whether it blocks; the socket itself
//! does not, so that the same socket serves an epoll worker and a thread that blocks.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, sockopt};

use crate::tls::{ClientTls, HEAD_BYTES, Handshake, Secured, TlsError, record_bytes};
use crate::{Endpoint, reserved};

/// Bytes that a Unix socket accepts from its sender (the kernel doubles it for its own overhead).
const UNIX_BUFFER_BYTES: usize = 1280 << 10;

/// Congestion control for a connection within this machine: it has no timers. A default that paces
/// its sends (`bbr`) costs a tenth of the processor time of a stream, and loopback loses no packets
/// that pacing could save.
const UNPACED: &str = "reno";

/// First byte of the protocol's hello in clear text.
const CLEAR_FIRST_BYTE: u8 = b'R';

/// The parameters of a connection.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// Longest time for connecting.
    pub connect_within: Duration,
    /// TCP: the kernel's congestion control by name (`reno`, `cubic`, `bbr`); `None` uses the
    /// system's default, except for connections within this machine.
    pub congestion: Option<String>,
    /// TCP: time for which sent bytes may stay unacknowledged before the connection counts as dead.
    pub unacknowledged_max: Duration,
    /// Bytes of the kernel's send and receive buffers; `None` uses the system's default.
    pub socket_buffer_bytes: Option<usize>,
    /// TCP: connect from a port that only the superuser of this machine may use, if this process
    /// may: a server that trusts this host accepts its user numbers.
    pub reserved_port: bool,
    /// TCP: TLS for connections that this process makes; `None`: clear text.
    pub tls: Option<ClientTls>,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        ConnectionOptions {
            connect_within: Duration::from_secs(5),
            congestion: None,
            unacknowledged_max: Duration::from_secs(10),
            socket_buffer_bytes: None,
            reserved_port: false,
            tls: None,
        }
    }
}

/// The process at the other end of a Unix connection, as the kernel attests it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerProcess {
    /// Process id when it connected.
    pub pid: u32,
    /// User id when it connected.
    pub uid: u32,
    /// Group id when it connected.
    pub gid: u32,
}

/// The event that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// Bytes to receive, or the end.
    Receive,
    /// Room to send, or the end.
    Send,
    /// Either.
    Both,
}

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// A receive will not block (it may report the end).
    pub receive: bool,
    /// A send will not block (it may fail).
    pub send: bool,
}

/// A connected socket. Sending and receiving go through [`crate::Outbox`] and [`crate::Inbox`].
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    peer: Option<PeerProcess>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::TimedOut`] after [`ConnectionOptions::connect_within`].
    pub fn connect(endpoint: &Endpoint, options: &ConnectionOptions) -> io::Result<Self> {
        match endpoint {
            Endpoint::Unix(path) => Self::unix(UnixStream::connect(path)?.into(), options),
            Endpoint::Tcp(address) => {
                let mut last =
                    io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
                for candidate in address.to_socket_addrs()? {
                    let connected = match options.reserved_port {
                        true => reserved::connect(candidate, options.connect_within),
                        false => TcpStream::connect_timeout(&candidate, options.connect_within)
                            .map(OwnedFd::from),
                    };
                    match connected {
                        Ok(socket) => return Self::tcp(socket, options),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    /// Both ends of a new Unix connection.
    ///
    /// # Errors
    /// The system's: no descriptors left.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = UnixStream::pair()?;
        let options = ConnectionOptions::default();
        Ok((Self::unix(one.into(), &options)?, Self::unix(other.into(), &options)?))
    }

    pub(crate) fn unix(socket: OwnedFd, options: &ConnectionOptions) -> io::Result<Self> {
        let credentials = sockopt::socket_peercred(&socket)?;
        let pid = u32::try_from(credentials.pid.as_raw_nonzero().get()).unwrap_or(0);
        enlarge(&socket);
        let peer =
            Some(PeerProcess { pid, uid: credentials.uid.as_raw(), gid: credentials.gid.as_raw() });
        Self::prepare(socket, peer, options)
    }

    pub(crate) fn tcp(socket: OwnedFd, options: &ConnectionOptions) -> io::Result<Self> {
        sockopt::set_tcp_nodelay(&socket, true)?;
        sockopt::set_tcp_user_timeout(
            &socket,
            u32::try_from(options.unacknowledged_max.as_millis()).unwrap_or(u32::MAX),
        )?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, Duration::from_secs(10))?;
        sockopt::set_tcp_keepintvl(&socket, Duration::from_secs(5))?;
        match &options.congestion {
            Some(name) => sockopt::set_tcp_congestion(&socket, name)?,
            None if stays_here(&socket) => {
                // Refused only by a kernel that was built without it: the system's choice stays.
                let _ = sockopt::set_tcp_congestion(&socket, UNPACED);
            }
            None => {}
        }
        Self::prepare(socket, None, options)
    }

    fn prepare(
        socket: OwnedFd,
        peer: Option<PeerProcess>,
        options: &ConnectionOptions,
    ) -> io::Result<Self> {
        if let Some(bytes) = options.socket_buffer_bytes {
            sockopt::set_socket_send_buffer_size(&socket, bytes)?;
            sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
        }
        Ok(Connection { socket, peer })
    }

    /// Secures a connection that was made to `endpoint`, if these options say so.
    ///
    /// # Errors
    /// As [`Connection::shake_hands`].
    pub fn secure(
        &self,
        endpoint: &Endpoint,
        options: &ConnectionOptions,
        until: Option<Instant>,
    ) -> io::Result<Option<Secured>> {
        match (endpoint, &options.tls) {
            (Endpoint::Tcp(address), Some(tls)) => {
                self.shake_hands(tls, host_of(address), until).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// A client's TLS handshake over this new connection; blocks until `until` at most.
    ///
    /// # Errors
    /// The connection's; [`io::ErrorKind::InvalidData`] with the reason if the two sides do not
    /// agree, or do not trust each other.
    pub fn shake_hands(
        &self,
        tls: &ClientTls,
        host: &str,
        until: Option<Instant>,
    ) -> io::Result<Secured> {
        let mut handshake = Handshake::client(tls, host)?;
        let mut out = Vec::new();
        let mut record = Vec::new();
        loop {
            let stepped = handshake.step(&record, &mut out);
            let sent = self.send_raw(&out, until);
            out.clear();
            if stepped? {
                sent?;
                return Ok(handshake.finish()?);
            }
            sent?;
            record.resize(HEAD_BYTES, 0);
            self.receive_raw(&mut record, until)?;
            if record[0] == CLEAR_FIRST_BYTE {
                return Err(TlsError("the server speaks clear text only".to_owned()).into());
            }
            let whole = record_bytes(&record)?.expect("the record's head was received");
            record.resize(whole, 0);
            self.receive_raw(&mut record[HEAD_BYTES..], until)?;
        }
    }

    /// The process at the other end, for Unix connections only.
    pub fn peer(&self) -> Option<PeerProcess> {
        self.peer
    }

    /// The address of the other end; a Unix connection has none.
    pub fn host(&self) -> Option<IpAddr> {
        self.address().map(|address| address.ip())
    }

    /// Address and port of the other end; a Unix connection has none.
    pub fn address(&self) -> Option<SocketAddr> {
        let address = rustix::net::getpeername(&self.socket).ok()??;
        let address = SocketAddr::try_from(address).ok()?;
        Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
    }

    /// True if a descriptor can travel with a frame.
    pub fn passes_descriptors(&self) -> bool {
        self.peer.is_some()
    }

    /// Ends both directions now; every thread that waits on this connection wakes.
    pub fn shut_down(&self) {
        // Fails only when the connection is gone already, which is the wanted state.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Bounds the time of one blocking receive, which then returns nothing. Costs no system call
    /// per receive.
    ///
    /// # Errors
    /// The system's.
    pub fn bound_waits(&self, longest: Duration) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.socket, sockopt::Timeout::Recv, Some(longest))?)
    }

    /// Sends bytes that are not a frame; blocks without limit, or until `until`.
    ///
    /// # Errors
    /// The connection's; [`io::ErrorKind::TimedOut`].
    pub fn send_raw(&self, mut bytes: &[u8], until: Option<Instant>) -> io::Result<()> {
        while !bytes.is_empty() {
            match send(self, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.wait(WaitFor::Send, until)?.send => {}
                Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Receives exactly as many bytes as `bytes` has, which are not a frame; blocks without limit,
    /// or until `until`.
    ///
    /// # Errors
    /// The connection's; [`io::ErrorKind::TimedOut`]; [`io::ErrorKind::UnexpectedEof`].
    pub fn receive_raw(&self, bytes: &mut [u8], until: Option<Instant>) -> io::Result<()> {
        let mut had = 0;
        while had < bytes.len() {
            match recv(self, &mut bytes[had..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((count, _)) => had += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.wait(WaitFor::Receive, until)?.receive => {}
                Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Discards received bytes, up to `count`.
    pub fn discard(&self, count: usize) {
        let mut buffer = [0; 4096];
        let mut thrown = 0;
        while thrown < count {
            match recv(self, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(_) => return,
                Ok((some, _)) => thrown += some,
            }
        }
    }

    /// Waits until the socket is ready or `until` has passed (`None`: for ever); then neither field
    /// is set.
    ///
    /// # Errors
    /// The system's, for a lack of memory.
    pub fn wait(&self, want: WaitFor, until: Option<Instant>) -> io::Result<Ready> {
        let flags = match want {
            WaitFor::Receive => PollFlags::IN,
            WaitFor::Send => PollFlags::OUT,
            WaitFor::Both => PollFlags::IN | PollFlags::OUT,
        };
        loop {
            let timeout = until.map(|until| {
                let left = until.saturating_duration_since(Instant::now());
                Timespec {
                    tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                    tv_nsec: i64::from(left.subsec_nanos()),
                }
            });
            let mut fds = [PollFd::new(&self.socket, flags)];
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) => {
                    let found = fds[0].revents();
                    let over = found.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
                    return Ok(Ready {
                        receive: over || found.contains(PollFlags::IN),
                        send: over || found.contains(PollFlags::OUT),
                    });
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The host of `host:port`; IPv6 addresses without their brackets.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// True if the other end is on this machine.
fn stays_here(socket: &OwnedFd) -> bool {
    let peer = rustix::net::getpeername(socket).ok().flatten();
    peer.and_then(|peer| std::net::SocketAddr::try_from(peer).ok())
        .is_some_and(|peer| peer.ip().is_loopback())
}

/// Makes room for one whole frame in a Unix socket: with the system's usual 208 KiB, a mebibyte
/// takes five turns of both ends.
fn enlarge(socket: &OwnedFd) {
    // Only the superuser may exceed the system's limit; other users get what the limit allows.
    if sockopt::set_socket_send_buffer_size_force(socket, UNIX_BUFFER_BYTES).is_err() {
        // A smaller buffer costs speed, nothing else.
        let _ = sockopt::set_socket_send_buffer_size(socket, UNIX_BUFFER_BYTES);
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unix_connection_knows_its_peer_and_a_shutdown_wakes_it() {
        let (one, other) = Connection::pair().unwrap();
        let peer = one.peer().unwrap();
        assert_eq!(peer.pid, std::process::id());
        let idle = one.wait(WaitFor::Receive, Some(Instant::now())).unwrap();
        assert_eq!(idle, Ready { receive: false, send: false });
        assert!(one.wait(WaitFor::Both, None).unwrap().send);
        std::thread::scope(|scope| {
            scope.spawn(|| other.shut_down());
            assert!(one.wait(WaitFor::Receive, None).unwrap().receive);
        });
    }

    #[test]
    fn a_local_connection_is_unpaced_unless_configured() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let there = Endpoint::Tcp(listener.local_addr().unwrap().to_string());
        for (wish, expected) in [(None, UNPACED), (Some("cubic"), "cubic")] {
            let options = ConnectionOptions {
                congestion: wish.map(str::to_owned),
                ..ConnectionOptions::default()
            };
            let connection = Connection::connect(&there, &options).unwrap();
            assert_eq!(sockopt::tcp_congestion(&connection).unwrap(), expected);
            let accepted = listener.accept().unwrap().0;
            assert!(stays_here(&accepted.into()), "seen from the other end, too");
        }
    }

    #[test]
    fn nobody_listens() {
        let dir = tempfile::tempdir().unwrap();
        let missing = Endpoint::Unix(dir.path().join("none"));
        let error = Connection::connect(&missing, &ConnectionOptions::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
