//! A port, and what is done with it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rx::{
    CallLimits, ClientSecurity, EndpointConfig, RxCaller, RxConnectionId, RxError, RxStatistics,
    ServerSecurity, ServiceId,
};

use crate::call::PortCall;
use crate::core::PortCore;

/// Bytes of an answer that are read at once.
const PART_BYTES: usize = 65_536;

/// A call of a peer.
pub struct ServedCall {
    /// The call's streams.
    pub call: PortCall,
    /// The number of the port that is called, as [`RxPort::open`] was given it.
    pub port: u16,
    /// The service that is called.
    pub service: ServiceId,
    /// The address that answers go to.
    pub peer: SocketAddr,
    /// The caller, as the security class proved.
    pub caller: RxCaller,
    /// The connection of the call.
    pub connection: RxConnectionId,
}

/// A handle of a port, see the head of the crate. The port is open until [`RxPort::close`].
#[derive(Clone)]
pub struct RxPort {
    core: Arc<PortCore>,
}

impl RxPort {
    /// Opens a port at this address. `serve` takes the calls of peers to these services.
    ///
    /// # Errors
    /// The system's, such as that the address is in use.
    pub fn open(
        address: SocketAddr,
        config: EndpointConfig,
        services: Vec<(ServiceId, Vec<ServerSecurity>)>,
        serve: impl Fn(ServedCall) + Send + Sync + 'static,
    ) -> io::Result<RxPort> {
        let core = PortCore::open(
            address,
            config,
            services,
            Box::new(move |core, came| {
                let call = PortCall::of(Arc::clone(core), came.id, true);
                let (service, peer) = (came.service, came.peer);
                let (caller, connection) = (came.caller, came.connection);
                serve(ServedCall { call, port: address.port(), service, peer, caller, connection });
            }),
        )?;
        Ok(RxPort { core })
    }

    /// The address of the socket.
    ///
    /// # Errors
    /// The system's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.core.address()
    }

    /// Ends all calls. The socket is closed once no call has it.
    pub fn close(&self) {
        self.core.close();
    }

    /// Makes a connection to a peer. Nothing is sent before a call.
    ///
    /// # Errors
    /// [`RxError::Full`].
    pub fn connect(
        &self,
        peer: SocketAddr,
        service: ServiceId,
        security: ClientSecurity,
        limits: CallLimits,
    ) -> Result<RxConnectionId, RxError> {
        self.core.step(|endpoint, now| endpoint.connect(now, peer, service, security, limits))
    }

    /// Ends a connection and its calls.
    pub fn disconnect(&self, connection: RxConnectionId) {
        self.core.step(|endpoint, now| endpoint.close(now, connection));
    }

    /// Counts of the endpoint.
    pub fn statistics(&self) -> RxStatistics {
        self.core.look(|endpoint| *endpoint.statistics())
    }

    /// Whether the peer of a connection has proved its name, or that it receives at its address. A
    /// peer that can prove no more than that is asked for it; the answer comes later.
    pub fn prove(&self, connection: RxConnectionId) -> bool {
        self.core.step(|endpoint, now| endpoint.prove(now, connection))
    }

    /// Begins a call to the peer of a connection.
    ///
    /// # Errors
    /// [`RxError::Busy`] if the connection has four calls; the connection's own error.
    pub fn begin(&self, connection: RxConnectionId) -> Result<PortCall, RxError> {
        let id = self.core.begin(connection)?;
        Ok(PortCall::of(Arc::clone(&self.core), id, false))
    }

    /// Makes a call that has no more than a request and an answer, and waits for the answer.
    ///
    /// # Errors
    /// Those of the call.
    pub fn ask(&self, connection: RxConnectionId, request: &[u8]) -> Result<Vec<u8>, RxError> {
        let mut call = self.begin(connection)?;
        call.write(request)?;
        call.end()?;
        let mut answer = Vec::new();
        while let Some(part) = call.read(PART_BYTES)? {
            answer.extend_from_slice(&part);
        }
        Ok(answer)
    }
}
