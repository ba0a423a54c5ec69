//! Calls to other servers of AFS in the cell, as its servers make them: with a token that the
//! cell's key seals.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use afsfront::{CallStream, PeerCall, Refusal, StreamBroken};
use bytes::Bytes;
use rx::rxkad::{RxkadKeys, RxkadLevel, print_token};
use rx::{CallLimits, ClientSecurity, RxConnectionId, RxError, ServiceId};
use rxport::{PortCall, RxPort};

/// A server that restores a volume may be slow, but not silent.
const LIMITS: CallLimits = CallLimits {
    dead: Duration::from_secs(60),
    idle: Duration::from_secs(600),
    hard: Duration::MAX,
};
/// Packets are sealed so that others can read and not make them. Without that a peer that passes
/// the challenge of a third server on to this one would speak to that one in its name.
const LEVEL: RxkadLevel = RxkadLevel::Auth;
/// Bytes of an answer that are read at once.
const PART_BYTES: usize = 1 << 12;
/// The longest answer.
const ANSWER_BYTES_MAX: usize = 1 << 16;

/// The way to other servers.
#[derive(Clone)]
pub(super) struct OtherServers {
    /// Calls go out from here.
    pub port: RxPort,
    pub keys: Arc<RxkadKeys>,
}

/// A call, with a connection of its own.
struct ServerCall {
    port: RxPort,
    connection: RxConnectionId,
    call: PortCall,
}

fn refusal(error: RxError) -> Refusal {
    match error {
        RxError::PeerAborted(code) => Refusal(code),
        error => Refusal(error.code()),
    }
}

impl OtherServers {
    /// Begins a call; the request is the front of what is sent.
    ///
    /// # Errors
    /// EACCES: no key of the cell can make a token; those of the connection.
    pub fn call(
        &self,
        to: SocketAddr,
        service: u16,
        request: &[u8],
    ) -> Result<Box<dyn PeerCall>, Refusal> {
        let token = print_token(&self.keys, &mut rand::rng()).ok_or(Refusal::ACCESS)?;
        let (service, security) =
            (ServiceId(service), ClientSecurity::Rxkad { token, level: LEVEL });
        let connection = self.port.connect(to, service, security, LIMITS).map_err(refusal)?;
        let begun = self.port.begin(connection);
        let call = begun.inspect_err(|_| self.port.disconnect(connection)).map_err(refusal)?;
        let mut begun = ServerCall { port: self.port.clone(), connection, call };
        begun.call.write(request).map_err(refusal)?;
        Ok(Box::new(begun))
    }
}

impl Drop for ServerCall {
    fn drop(&mut self) {
        self.port.disconnect(self.connection);
    }
}

impl CallStream for ServerCall {
    fn take(&mut self, max: usize) -> Result<Bytes, StreamBroken> {
        self.call.read(max).ok().flatten().ok_or(StreamBroken)
    }

    fn give(&mut self, bytes: Bytes) -> Result<(), StreamBroken> {
        self.call.write(&bytes).map_err(|_| StreamBroken)
    }
}

impl PeerCall for ServerCall {
    fn finish(&mut self) -> Result<Vec<u8>, Refusal> {
        self.call.end().map_err(refusal)?;
        let mut answer = Vec::new();
        while let Some(part) = self.call.read(PART_BYTES).map_err(refusal)? {
            answer.extend_from_slice(&part);
            if answer.len() > ANSWER_BYTES_MAX {
                return Err(Refusal::TOO_BIG);
            }
        }
        Ok(answer)
    }
}
