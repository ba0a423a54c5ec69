//! Where the client of a session is: the unit that shares the limits of a host.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// All sessions of one host share its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// An address; of IPv6 a /64, since one machine can use any number of its addresses. Made by
    /// [`Host::of`].
    Network(IpAddr),
    /// A user of the server's own machine, whom the kernel reported: one user must not take what
    /// the others need.
    LocalUser(u32),
}

impl Host {
    /// The host with this address.
    pub fn of(address: IpAddr) -> Host {
        Host::Network(match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            v4 => v4,
        })
    }

    /// The address; `None`: it is a user of this machine.
    pub fn address(self) -> Option<IpAddr> {
        match self {
            Host::Network(address) => Some(address),
            Host::LocalUser(_) => None,
        }
    }

    /// The number of the local user; `None`: it is another machine.
    pub fn local_user(self) -> Option<u32> {
        match self {
            Host::LocalUser(uid) => Some(uid),
            Host::Network(_) => None,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Network(address) => write!(f, "{address}"),
            Host::LocalUser(uid) => write!(f, "uid {uid}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_host_is_its_network() {
        let of = |text: &str| Host::of(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::5"), of("2001:db8:1:2:ffff::1"));
        assert_ne!(of("2001:db8:1:2::5"), of("2001:db8:1:3::5"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }

    #[test]
    fn a_local_user_is_a_host_by_itself() {
        assert_ne!(Host::LocalUser(1), Host::LocalUser(2));
        assert_eq!(Host::LocalUser(4711).to_string(), "uid 4711");
        assert_eq!(Host::of("10.0.0.1".parse().unwrap()).local_user(), None);
    }
}
