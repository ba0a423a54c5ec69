//! Where a session looks for its server: first where it was found last, then in turn at its other
//! addresses.
//!
//! A server is known by its id. Once the session knows the id it sends it in each hello, so that
//! another server at such an address refuses instead of taking the sessions of the right one. A
//! Unix socket is a place of this machine alone, with rights of its own (descriptors, accepted
//! credentials), so such a session never looks elsewhere.

use std::net::SocketAddr;

use fabric::Endpoint;
use types::ServerId;

use crate::SessionConfig;

pub(crate) struct ServerAddresses {
    server: Option<ServerId>,
    /// The next place to try comes first; never empty.
    all: Vec<Endpoint>,
    /// The configured place: it may be a name, which can resolve to other addresses later.
    first: Endpoint,
}

impl ServerAddresses {
    pub fn new(config: &SessionConfig) -> Self {
        ServerAddresses {
            server: config.server,
            all: vec![config.endpoint.clone()],
            first: config.endpoint.clone(),
        }
    }

    /// Where to connect, and which server must answer.
    pub fn current(&self) -> (Endpoint, Option<ServerId>) {
        (self.all.first().unwrap_or(&self.first).clone(), self.server)
    }

    /// The server is not there: the next place is tried.
    pub fn failed(&mut self, place: &Endpoint) {
        if self.all.first() == Some(place) {
            self.all.rotate_left(1);
        }
    }

    /// Takes the addresses in the cell database; forgets those that it no longer has.
    pub fn learn(&mut self, server: ServerId, addresses: &[SocketAddr]) {
        self.server = Some(server);
        if matches!(self.first, Endpoint::Unix(_)) || addresses.is_empty() {
            return;
        }
        let said: Vec<Endpoint> =
            addresses.iter().map(|address| Endpoint::Tcp(address.to_string())).collect();
        let current = self.current().0;
        self.all.retain(|place| *place == current || *place == self.first || said.contains(place));
        for place in said {
            if !self.all.contains(&place) {
                self.all.push(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClientIdentity;

    fn tcp(port: u16) -> Endpoint {
        Endpoint::Tcp(format!("127.0.0.1:{port}"))
    }

    fn addresses(ports: &[u16]) -> Vec<SocketAddr> {
        ports.iter().map(|port| SocketAddr::from(([127, 0, 0, 1], *port))).collect()
    }

    #[test]
    fn all_places_are_tried_in_turn_and_withdrawn_ones_forgotten() {
        let mut places =
            ServerAddresses::new(&SessionConfig::new(tcp(1), ClientIdentity::fleeting()));
        let next = |places: &mut ServerAddresses| {
            let (place, _) = places.current();
            places.failed(&place);
            place
        };
        assert_eq!([(); 2].map(|()| next(&mut places)), [tcp(1), tcp(1)]);
        assert_eq!(places.current().1, None);
        places.learn(ServerId(7), &addresses(&[2, 3]));
        assert_eq!([(); 4].map(|()| next(&mut places)), [tcp(1), tcp(2), tcp(3), tcp(1)]);
        assert_eq!(places.current(), (tcp(2), Some(ServerId(7))));
        places.failed(&tcp(3));
        assert_eq!(places.current().0, tcp(2), "the other one failed");
        places.learn(ServerId(7), &addresses(&[4]));
        assert_eq!([(); 4].map(|()| next(&mut places)), [tcp(2), tcp(1), tcp(4), tcp(2)]);
        places.learn(ServerId(7), &addresses(&[4]));
        assert_eq!(
            [(); 3].map(|()| next(&mut places)),
            [tcp(1), tcp(4), tcp(1)],
            "its current place was withdrawn"
        );
    }

    #[test]
    fn a_unix_socket_is_never_left() {
        let mut places = ServerAddresses::new(&SessionConfig::new(
            Endpoint::Unix("/s".into()),
            ClientIdentity::fleeting(),
        ));
        places.learn(ServerId(7), &addresses(&[2]));
        places.failed(&Endpoint::Unix("/s".into()));
        assert_eq!(places.current(), (Endpoint::Unix("/s".into()), Some(ServerId(7))));
    }
}
