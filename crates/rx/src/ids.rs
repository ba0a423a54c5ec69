//! Names of services, connections and calls.

use std::fmt;

/// A service on a port: what a call is for. 1 is the file service, 52 the volume location service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceId(pub u16);

/// A connection of one endpoint. Its slot is used again later, its generation is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RxConnectionId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// A call on a connection of one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RxCallId {
    pub(crate) connection: RxConnectionId,
    pub(crate) channel: u8,
    pub(crate) number: u32,
}

impl RxCallId {
    /// The connection of the call.
    pub fn connection(self) -> RxConnectionId {
        self.connection
    }
}

impl fmt::Display for RxCallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RxCallId { connection, channel, number } = self;
        write!(f, "{}.{}/{channel}#{number}", connection.slot, connection.generation)
    }
}
