//! Calls to volume servers of AFS's protocol: those of AFS, and Rialto's.
//!
//! Model. A call has a connection of its own, since there are few of them, and a call that waits
//! for another server must not take the channels of others. The caller proves itself with the
//! cell's key, as AFS's servers do among each other; without a key it is anonymous, and asks
//! questions alone. A dump that goes through this program is a stream: a piece of it is in memory
//! at a time. A server that is silent, one that is heard of but does not go on, and one that
//! answers without end all end the call.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use afs3::RpcMessage as _;
use afs3::volumes::{PORT, SERVICE, VolumesAnswer, VolumesCall};
use afs3::xdr::XdrReader;
use rx::rxkad::{RxkadKeys, RxkadLevel, print_token};
use rx::{CallLimits, ClientSecurity, EndpointConfig, RxConnectionId, RxError, ServiceId};
use rxport::{PortCall, RxPort};

use crate::AfsCode;

/// A server that is not heard of for so long is not there.
const DEAD: Duration = Duration::from_secs(12);
/// A stream stands still for so long at most: servers read and write their disks meanwhile.
const STANDS: Duration = Duration::from_secs(600);
/// Limit of a call that asks or changes one thing. A clone of millions of files takes minutes.
const ONE_THING: Duration = Duration::from_secs(1800);
/// Users' files are not for all that hear the network.
const LEVEL: RxkadLevel = RxkadLevel::Crypt;
/// Bytes of a stream or an answer that are read at once.
const PART_BYTES: usize = 65_536;
/// Limit of an answer: a list of half a million volumes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Why a call to a volume server ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeServerError {
    /// It is not heard of, or does not go on.
    #[error("{why}")]
    Silent {
        /// The observed symptom.
        why: String,
    },
    /// It refused the call, or ended it in the middle.
    #[error("{call}: {}", AfsCode(*.code))]
    Refused {
        /// The procedure.
        call: &'static str,
        /// Its code.
        code: i32,
    },
    /// An answer that no server gives.
    #[error("it answers {call} with something else")]
    Odd {
        /// The procedure.
        call: &'static str,
    },
    /// The call needs a key of the cell, and there is none.
    #[error("there is no key of the cell")]
    NoKey,
    /// The stream cannot be stored or read on this side.
    #[error("{0}")]
    Here(String),
}

/// See the head of the file. Closed when it is dropped.
pub struct VolumeServers {
    port: RxPort,
    keys: Option<Arc<RxkadKeys>>,
}

/// A call that is under way.
struct OpenCall<'a> {
    servers: &'a VolumeServers,
    connection: RxConnectionId,
    call: PortCall,
    name: &'static str,
}

/// Whether everyone may make the call.
fn is_question(call: &VolumesCall) -> bool {
    matches!(
        call,
        VolumesCall::ListPartitions {}
            | VolumesCall::XListPartitions {}
            | VolumesCall::PartitionInfo { .. }
            | VolumesCall::PartitionInfo64 { .. }
            | VolumesCall::ListVolumes { .. }
            | VolumesCall::ListOneVolume { .. }
            | VolumesCall::XListVolumes { .. }
            | VolumesCall::XListOneVolume { .. }
            | VolumesCall::Monitor {}
    )
}

fn limits(call: &VolumesCall) -> CallLimits {
    match call {
        // The server answers when the other one has taken everything.
        VolumesCall::Forward { .. } | VolumesCall::ForwardMultiple { .. } => {
            CallLimits { dead: DEAD, idle: Duration::MAX, hard: Duration::MAX }
        }
        VolumesCall::Dump { .. } | VolumesCall::DumpV2 { .. } | VolumesCall::Restore { .. } => {
            CallLimits { dead: DEAD, idle: STANDS, hard: Duration::MAX }
        }
        _ => CallLimits { dead: DEAD, idle: ONE_THING, hard: ONE_THING },
    }
}

impl VolumeServers {
    /// Opens a port from which servers are called.
    ///
    /// # Errors
    /// The system's: no port is free.
    pub fn open(keys: Option<Arc<RxkadKeys>>) -> io::Result<VolumeServers> {
        let here = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let port = RxPort::open(here, EndpointConfig::default(), Vec::new(), drop)?;
        Ok(VolumeServers { port, keys })
    }

    /// Makes a call without a stream.
    ///
    /// # Errors
    /// See [`VolumeServerError`].
    pub fn ask(
        &self,
        server: Ipv4Addr,
        call: &VolumesCall,
    ) -> Result<VolumesAnswer, VolumeServerError> {
        let mut open = self.begin(server, call)?;
        open.end()?;
        let mut answer = Vec::new();
        while let Some(part) = open.read()? {
            answer.extend_from_slice(&part);
            if answer.len() > ANSWER_BYTES_MAX {
                return Err(VolumeServerError::Odd { call: open.name });
            }
        }
        VolumesAnswer::decode(call.procedure(), &mut XdrReader::new(&answer))
            .map_err(|_| VolumeServerError::Odd { call: open.name })
    }

    /// Makes a call with which the server sends a dump (`Dump`), and gives the pieces to `take`.
    ///
    /// # Errors
    /// See [`VolumeServerError`]; what came before is no whole dump then.
    pub fn dump(
        &self,
        server: Ipv4Addr,
        call: &VolumesCall,
        take: &mut dyn FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), VolumeServerError> {
        let mut open = self.begin(server, call)?;
        open.end()?;
        while let Some(part) = open.read()? {
            take(&part).map_err(VolumeServerError::Here)?;
        }
        Ok(())
    }

    /// Makes a call with which a dump is sent to the server (`Restore`), in pieces that `next`
    /// returns; `None` from it is the end.
    ///
    /// # Errors
    /// See [`VolumeServerError`]; the volume is no whole one then.
    pub fn restore(
        &self,
        server: Ipv4Addr,
        call: &VolumesCall,
        next: &mut dyn FnMut() -> Result<Option<Vec<u8>>, String>,
    ) -> Result<(), VolumeServerError> {
        let mut open = self.begin(server, call)?;
        while let Some(piece) = next().map_err(VolumeServerError::Here)? {
            if let Err(error) = open.call.write(&piece) {
                return Err(open.failed(error));
            }
        }
        open.end()?;
        match open.read()? {
            None => Ok(()),
            Some(_) => Err(VolumeServerError::Odd { call: open.name }),
        }
    }

    fn begin(
        &self,
        server: Ipv4Addr,
        call: &VolumesCall,
    ) -> Result<OpenCall<'_>, VolumeServerError> {
        let name = call.row().name;
        let security = match &self.keys {
            Some(keys) => {
                let token = print_token(keys, &mut rand::rng()).ok_or(VolumeServerError::NoKey)?;
                ClientSecurity::Rxkad { token, level: LEVEL }
            }
            None if is_question(call) => ClientSecurity::Null,
            None => return Err(VolumeServerError::NoKey),
        };
        let to = SocketAddr::new(server.into(), PORT);
        let silent = |error: RxError| VolumeServerError::Silent { why: error.to_string() };
        let connection =
            self.port.connect(to, ServiceId(SERVICE), security, limits(call)).map_err(silent)?;
        let begun = self.port.begin(connection);
        let begun = begun.inspect_err(|_| self.port.disconnect(connection)).map_err(silent)?;
        let mut open = OpenCall { servers: self, connection, call: begun, name };
        match open.call.write(&call.to_request()) {
            Ok(()) => Ok(open),
            Err(error) => Err(open.failed(error)),
        }
    }
}

impl OpenCall<'_> {
    fn failed(&self, error: RxError) -> VolumeServerError {
        match error {
            RxError::PeerAborted(code) => VolumeServerError::Refused { call: self.name, code },
            error => VolumeServerError::Silent { why: format!("{}: {error}", self.name) },
        }
    }

    fn end(&mut self) -> Result<(), VolumeServerError> {
        self.call.end().map_err(|error| self.failed(error))
    }

    fn read(&mut self) -> Result<Option<bytes::Bytes>, VolumeServerError> {
        self.call.read(PART_BYTES).map_err(|error| self.failed(error))
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        self.servers.port.disconnect(self.connection);
    }
}

impl Drop for VolumeServers {
    fn drop(&mut self) {
        self.port.close();
    }
}
