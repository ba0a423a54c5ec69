//! Connecting from a reserved port, which proves that a process of this machine's superuser
//! connects.
//!
//! There are few of them, and a used one stays blocked for a minute towards the same server. So
//! `connect` tries several, the first at random, and where none is free it connects from an
//! ordinary port: the server then treats the machine's users as anonymous callers, unless they have
//! tokens.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Once;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect as reach, socket_with, sockopt,
};

/// Only the superuser may use ports below this.
pub const RESERVED_PORTS_END: u16 = 1024;
/// Same as NFS clients: below this are most well-known services.
const RESERVED_PORTS_START: u16 = 665;
/// Number of ports to try.
const TRIES: u16 = 64;

/// Connects from a reserved port, or else from any. The socket does not block.
///
/// # Errors
/// The system's; `TimedOut` if the server does not answer within that time.
pub fn connect(to: SocketAddr, within: Duration) -> io::Result<OwnedFd> {
    static REPORTED: Once = Once::new();
    let until = Instant::now() + within;
    let count = RESERVED_PORTS_END - RESERVED_PORTS_START;
    // Time and process distinguish this attempt from others; it need not be unpredictable.
    let start = Instant::now().elapsed().subsec_nanos() ^ std::process::id() ^ clock_nanos();
    let mut why = Errno::ADDRINUSE;
    for step in 0..TRIES {
        // 149 is coprime to the number of ports, so no port repeats.
        let offset = (start % u32::from(count) + u32::from(step) * 149) % u32::from(count);
        let port = RESERVED_PORTS_START + u16::try_from(offset).unwrap_or(0);
        match from_port(to, port, until)? {
            Ok(socket) => return Ok(socket),
            Err(error) => why = error,
        }
        if !matches!(why, Errno::ADDRINUSE | Errno::ADDRNOTAVAIL) {
            break;
        }
    }
    if rustix::process::geteuid().is_root() {
        REPORTED.call_once(|| {
            tracing::warn!(
                error = %why,
                server = %to,
                "no reserved port (below 1024) is free: servers that trust this host treat its \
                    users as anonymous until they log in; free such ports and mount again"
            );
        });
    }
    let socket = open(to)?;
    wait_for(&socket, to, until)?.map_err(io::Error::from)?;
    Ok(socket)
}

fn clock_nanos() -> u32 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.subsec_nanos())
}

fn open(to: SocketAddr) -> io::Result<OwnedFd> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    Ok(socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?)
}

/// The inner error: the port is not available.
fn from_port(to: SocketAddr, port: u16, until: Instant) -> io::Result<Result<OwnedFd, Errno>> {
    let socket = open(to)?;
    // One port can serve connections to several servers.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    let own = match to {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
    };
    if let Err(error) = bind(&socket, &own) {
        return Ok(Err(error));
    }
    Ok(wait_for(&socket, to, until)?.map(|()| socket))
}

/// The inner error: the port is in use towards that server.
fn wait_for(socket: &OwnedFd, to: SocketAddr, until: Instant) -> io::Result<Result<(), Errno>> {
    match reach(socket, &to) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let nap = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&nap)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => {
                    sockopt::socket_error(socket)??;
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        },
        Err(error @ (Errno::ADDRINUSE | Errno::ADDRNOTAVAIL)) => return Ok(Err(error)),
        Err(error) => return Err(error.into()),
    }
    rustix::io::ioctl_fionbio(socket, false)?;
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_superuser_uses_reserved_ports_and_others_any_port() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(at) else { continue };
            let to = listener.local_addr().unwrap();
            let open: Vec<_> =
                (0..20).map(|_| connect(to, Duration::from_secs(5)).unwrap()).collect();
            for _ in &open {
                let peer = listener.accept().unwrap().1;
                let may = rustix::process::geteuid().is_root();
                assert_eq!(peer.port() < RESERVED_PORTS_END, may, "{peer}");
            }
        }
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(
            connect(gone, Duration::from_secs(5)).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
    }
}
