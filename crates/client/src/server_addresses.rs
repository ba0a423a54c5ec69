//! Where a session looks for its server: where it was found last, then in turn wherever else it may
//! be.
//!
//! A server is known by its id. Once that is known it is said in each hello, so that another server
//! at an address that ours had refuses instead of taking our sessions for its own. A Unix socket is
//! a place of this machine alone, with rights of its own (descriptors, who is believed), so such a
//! session never looks elsewhere.

use std::net::SocketAddr;

use fabric::Endpoint;
use types::ServerId;

use crate::SessionConfig;

pub(crate) struct ServerAddresses {
    server: Option<ServerId>,
    /// The one that is tried next comes first; never empty.
    all: Vec<Endpoint>,
    /// What we were pointed to: that may be a name, which means other addresses at other times.
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

    /// Where to connect, and who must be there.
    pub fn current(&self) -> (Endpoint, Option<ServerId>) {
        (self.all.first().unwrap_or(&self.first).clone(), self.server)
    }

    /// It is not there: the next one is tried.
    pub fn failed(&mut self, place: &Endpoint) {
        if self.all.first() == Some(place) {
            self.all.rotate_left(1);
        }
    }

    /// Where the cell says that it is. What it said before and says no more is forgotten.
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
    fn all_places_are_tried_in_turn_and_what_is_not_said_any_more_is_forgotten() {
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
            "it is current no more"
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
