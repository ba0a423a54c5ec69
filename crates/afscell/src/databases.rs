//! Calls to the database servers. See the head of the crate.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use afs3::RpcMessage;
use afs3::locations::{LocationsAnswer, LocationsCall};
use afs3::protection::{ProtectionAnswer, ProtectionCall};
use afs3::structs::AfsUuid;
use afs3::xdr::{XdrList, XdrReader};
use parking_lot::Mutex;
use rx::rxkad::{RxkadKeys, RxkadLevel, print_token};
use rx::{CallLimits, ClientSecurity, EndpointConfig, RxConnectionId, RxError, ServiceId};
use rxport::RxPort;

use crate::AfsCode;

/// A database answers at once, or is not there.
const LIMITS: CallLimits = CallLimits {
    dead: Duration::from_secs(10),
    idle: Duration::from_secs(60),
    hard: Duration::from_secs(600),
};
/// The members of groups are not for all that hear the network.
const LEVEL: RxkadLevel = RxkadLevel::Crypt;
/// Codes with which a server says that another one may answer: UNOQUORUM to USYNC.
const TRY_ANOTHER: std::ops::RangeInclusive<i32> = 5376..=5381;

/// Why a cell did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AfsCellError {
    /// No server answered; the last one failed for this reason.
    #[error("no database server answers; the last one, {server}: {why}")]
    Silent {
        /// That server.
        server: Ipv4Addr,
        /// Its reason.
        why: String,
    },
    /// A server refused a call.
    #[error("{server} refuses {call}: {}", AfsCode(*.code))]
    Refused {
        /// The server.
        server: Ipv4Addr,
        /// The procedure.
        call: &'static str,
        /// Its code.
        code: i32,
    },
    /// An answer that no server gives.
    #[error("{server} answers {call} with something else")]
    Odd {
        /// The server.
        server: Ipv4Addr,
        /// The procedure.
        call: &'static str,
    },
    /// There is no server to ask.
    #[error("no database server is named")]
    NoServer,
    /// The keys cannot make a token.
    #[error("there is no key that servers of AFS know")]
    NoKey,
}

/// See the head of the crate. Closed when it is dropped.
pub struct AfsCell {
    port: RxPort,
    servers: Vec<Ipv4Addr>,
    keys: Option<Arc<RxkadKeys>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The position of the server that answered last.
    last: usize,
    connections: BTreeMap<(Ipv4Addr, u16), RxConnectionId>,
}

/// A service of the database servers.
struct Database {
    port: u16,
    service: u16,
}

const PROTECTION: Database =
    Database { port: afs3::protection::PORT, service: afs3::protection::SERVICE };
const LOCATIONS: Database =
    Database { port: afs3::locations::PORT, service: afs3::locations::SERVICE };

impl AfsCell {
    /// A cell with these database servers. Without keys the caller is anonymous.
    ///
    /// # Errors
    /// The system's: no port is free.
    pub fn open(servers: Vec<Ipv4Addr>, keys: Option<Arc<RxkadKeys>>) -> io::Result<AfsCell> {
        let here = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let port = RxPort::open(here, EndpointConfig::default(), Vec::new(), drop)?;
        Ok(AfsCell { port, servers, keys, state: Mutex::default() })
    }

    /// A call about users and groups.
    ///
    /// # Errors
    /// See [`AfsCellError`].
    pub fn protection(&self, call: &ProtectionCall) -> Result<ProtectionAnswer, AfsCellError> {
        self.ask(&PROTECTION, call)
    }

    /// A call about locations of volumes.
    ///
    /// # Errors
    /// See [`AfsCellError`].
    pub fn locations(&self, call: &LocationsCall) -> Result<LocationsAnswer, AfsCellError> {
        self.ask(&LOCATIONS, call)
    }

    /// Enters a file server with its addresses.
    ///
    /// # Errors
    /// See [`AfsCellError`].
    pub fn register(&self, uuid: AfsUuid, addresses: &[Ipv4Addr]) -> Result<(), AfsCellError> {
        let numbers = addresses.iter().copied().map(u32::from).collect();
        let addresses = XdrList::new(numbers).map_err(|_| AfsCellError::NoServer)?;
        self.locations(&LocationsCall::RegisterAddrs { uuid, spare: 0, addresses }).map(drop)
    }

    /// Asks for what only a superuser is told.
    ///
    /// # Errors
    /// `Refused`: the servers know another key; see [`AfsCellError`].
    pub fn need_superuser(&self) -> Result<(), AfsCellError> {
        self.protection(&ProtectionCall::ListEntries { flags: 1, start: 0 }).map(drop)
    }

    /// The server that answered last, for reports.
    pub fn server(&self) -> Option<Ipv4Addr> {
        self.servers.get(self.state.lock().last).copied()
    }

    fn ask<A: RpcMessage>(
        &self,
        database: &Database,
        call: &impl RpcMessage,
    ) -> Result<A, AfsCellError> {
        let number = call.procedure();
        let known = A::PROCEDURES.iter().find(|row| row.number == number);
        let called = known.map_or("a call", |row| row.name);
        let first = self.state.lock().last;
        let mut failed = AfsCellError::NoServer;
        for at in (first..self.servers.len()).chain(0..first) {
            let server = self.servers[at];
            match self.ask_at(server, database, &call.to_request()) {
                Ok(answer) => {
                    self.state.lock().last = at;
                    return A::decode(number, &mut XdrReader::new(&answer))
                        .map_err(|_| AfsCellError::Odd { server, call: called });
                }
                Err(Trouble::NoKey) => return Err(AfsCellError::NoKey),
                Err(Trouble::Rx(RxError::PeerAborted(code))) if !TRY_ANOTHER.contains(&code) => {
                    return Err(AfsCellError::Refused { server, call: called, code });
                }
                Err(Trouble::Rx(error)) => {
                    let why = match error {
                        RxError::PeerAborted(code) => AfsCode(code).to_string(),
                        error => error.to_string(),
                    };
                    failed = AfsCellError::Silent { server, why };
                }
            }
        }
        Err(failed)
    }

    fn ask_at(
        &self,
        server: Ipv4Addr,
        database: &Database,
        request: &[u8],
    ) -> Result<Vec<u8>, Trouble> {
        let place = (server, database.port);
        let known = self.state.lock().connections.get(&place).copied();
        let connection = match known {
            Some(connection) => connection,
            None => {
                let (service, security) = (ServiceId(database.service), self.security()?);
                let to = SocketAddr::new(server.into(), database.port);
                let made = self.port.connect(to, service, security, LIMITS)?;
                self.state.lock().connections.insert(place, made);
                made
            }
        };
        self.port.ask(connection, request).map_err(|error| {
            // A refusal ends the call alone; anything else may be the connection's.
            if !matches!(error, RxError::PeerAborted(code) if code > 0) {
                self.state.lock().connections.remove(&place);
                self.port.disconnect(connection);
            }
            error.into()
        })
    }

    fn security(&self) -> Result<ClientSecurity, Trouble> {
        let Some(keys) = &self.keys else { return Ok(ClientSecurity::Null) };
        let token = print_token(keys, &mut rand::rng()).ok_or(Trouble::NoKey)?;
        Ok(ClientSecurity::Rxkad { token, level: LEVEL })
    }
}

impl Drop for AfsCell {
    fn drop(&mut self) {
        self.port.close();
    }
}

enum Trouble {
    NoKey,
    Rx(RxError),
}

impl From<RxError> for Trouble {
    fn from(error: RxError) -> Trouble {
        Trouble::Rx(error)
    }
}
