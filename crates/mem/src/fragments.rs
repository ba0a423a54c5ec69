//! Datagrams that are too long for a part of their way.

use std::mem::size_of_val;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use rustix::io::Result;

use crate::failure::checked;

/// The system finds out what a way carries, and cuts longer datagrams of an IPv4 socket, as it does
/// for a socket of which nothing else was said.
///
/// # Errors
/// Those of setsockopt(2).
pub fn cut_as_needed(socket: &UdpSocket) -> Result<()> {
    let how: libc::c_int = libc::IP_PMTUDISC_WANT;
    let (level, name) = (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER);
    let length = size_of_val(&how) as libc::socklen_t;
    // SAFETY: the value outlives the call, which reads so many bytes of it and stores no pointer.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const how).cast(), length)
    };
    checked(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_that_is_longer_than_a_packet_is_sent() {
        let [one, other] =
            [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a port is free"));
        cut_as_needed(&one).expect("it is a socket of IPv4");
        let to = other.local_addr().expect("it is bound");
        assert_eq!(one.send_to(&[7; 40_000], to).ok(), Some(40_000));
        let mut buffer = vec![0; 65_536];
        assert_eq!(other.recv(&mut buffer).ok(), Some(40_000));
    }
}
