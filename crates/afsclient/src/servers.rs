//! Calls to file servers: connections, and the streams of calls.
//!
//! Model: a connection of Rx carries four calls, under one identity. For each server and identity
//! there are as many as the calls under way need; a call takes a free place of one, and gives it
//! back at its end. A connection that fails is not used again.
//!
//! A server is not trusted: its answers have bounds, and so has the time that a call may take.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use afs3::RpcMessage;
use afs3::files::{self, FilesAnswer, FilesCall};
use afs3::xdr::XdrReader;
use bytes::{Bytes, BytesMut};
use client::{Cancel, CancelGuard};
use parking_lot::Mutex;
use rx::rxkad::RxkadLevel;
use rx::{CallLimits, ClientSecurity, RxConnectionId, RxError, ServiceId};
use rxport::{PortCall, RxPort};
use types::Fault;

use crate::users::{AfsUser, AfsUsers};

/// A server that is silent for the first time is not there; one that answers and does nothing for
/// the second hangs. No call takes longer than the third. Source of the first: OpenAFS's clients,
/// which wait for 50 s; applications wait for this.
const LIMITS: CallLimits = CallLimits {
    dead: Duration::from_secs(12),
    idle: Duration::from_secs(30),
    hard: Duration::from_secs(180),
};
/// For a question whether a server is there.
const PROBE_LIMITS: CallLimits = CallLimits {
    dead: Duration::from_secs(5),
    idle: Duration::from_secs(8),
    hard: Duration::from_secs(10),
};
/// Calls of one connection, as Rx has it.
const CALLS_PER_CONNECTION: usize = 4;
/// Bytes of an answer beside its data: the status of 50 files with promises fits ten times.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Bytes that are read at once.
const PART_BYTES: usize = 256 << 10;
/// The bytes of the number before the data of `FetchData64`.
const COUNT_BYTES: usize = 8;

/// Why a call has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The server ended the call with this code.
    Code(i32),
    /// The server does not answer. A change may have been made all the same.
    Silent,
    /// The server's answer makes no sense.
    Odd,
    /// The caller's token has ended.
    NoToken,
    /// The caller gave up.
    Cancelled,
}

impl From<RxError> for Trouble {
    fn from(error: RxError) -> Trouble {
        match error {
            RxError::PeerAborted(code) => Trouble::Code(code),
            RxError::Aborted(_) => Trouble::Odd,
            RxError::NoConnection
            | RxError::NoCall
            | RxError::Busy
            | RxError::Full
            | RxError::Ended
            | RxError::Dead
            | RxError::TimedOut => Trouble::Silent,
        }
    }
}

impl From<Fault> for Trouble {
    fn from(_: Fault) -> Trouble {
        Trouble::NoToken
    }
}

/// The connections to one server under one identity, with the calls of each.
type Lines = Vec<(RxConnectionId, usize)>;

/// See the head of the file.
pub(crate) struct FileServers {
    port: RxPort,
    users: Arc<AfsUsers>,
    lines: Mutex<HashMap<(Ipv4Addr, AfsUser), Lines>>,
}

/// A call, with its place in a connection.
struct ServerCall<'a> {
    servers: &'a FileServers,
    place: (Ipv4Addr, AfsUser),
    connection: RxConnectionId,
    /// Taken at the end.
    call: Option<PortCall>,
    /// Ends the call when its caller gives up.
    listening: Option<CancelGuard>,
    /// Bytes that were read and not taken.
    read: BytesMut,
    /// All is written.
    is_ended: bool,
    failed: bool,
}

impl FileServers {
    pub fn new(port: RxPort, users: Arc<AfsUsers>) -> FileServers {
        FileServers { port, users, lines: Mutex::default() }
    }

    /// A call whose request and answer have no stream. It ends when `cancel` fires.
    ///
    /// # Errors
    /// [`Trouble`].
    pub fn ask(
        &self,
        server: Ipv4Addr,
        user: AfsUser,
        call: &FilesCall,
        cancel: Option<&Cancel>,
    ) -> Result<FilesAnswer, Trouble> {
        let mut begun = self.begin(server, user, cancel)?;
        begun.write(&call.to_request())?;
        begun.answer(call.procedure())
    }

    /// A call with a stream behind its arguments.
    ///
    /// # Errors
    /// [`Trouble`].
    pub fn store(
        &self,
        server: Ipv4Addr,
        user: AfsUser,
        call: &FilesCall,
        data: &[u8],
    ) -> Result<FilesAnswer, Trouble> {
        let mut begun = self.begin(server, user, None)?;
        begun.write(&call.to_request())?;
        begun.write(data)?;
        begun.answer(call.procedure())
    }

    /// A call with a stream of at most `most` bytes before its results. It ends when `cancel`
    /// fires.
    ///
    /// # Errors
    /// [`Trouble`]; `Odd`: the server announces more bytes.
    pub fn fetch(
        &self,
        server: Ipv4Addr,
        user: AfsUser,
        call: &FilesCall,
        most: usize,
        cancel: Option<&Cancel>,
    ) -> Result<(Bytes, FilesAnswer), Trouble> {
        let mut begun = self.begin(server, user, cancel)?;
        begun.write(&call.to_request())?;
        begun.end()?;
        let head = begun.take(COUNT_BYTES)?;
        let count = XdrReader::new(&head).u64().map_err(|_| Trouble::Odd)?;
        let count = usize::try_from(count).ok().filter(|count| *count <= most);
        let data = begun.take(count.ok_or(Trouble::Odd)?)?;
        let answer = begun.answer(call.procedure())?;
        Ok((data, answer))
    }

    /// Whether a server answers at all; a refusal is an answer.
    pub fn answers(&self, server: Ipv4Addr) -> bool {
        let (to, service) = (address(server), ServiceId(files::SERVICE));
        let Ok(connection) = self.port.connect(to, service, ClientSecurity::Null, PROBE_LIMITS)
        else {
            return false;
        };
        let answer = self.port.ask(connection, &FilesCall::GetTime {}.to_request());
        self.port.disconnect(connection);
        matches!(answer, Ok(_) | Err(RxError::PeerAborted(_)))
    }

    fn begin(
        &self,
        server: Ipv4Addr,
        user: AfsUser,
        cancel: Option<&Cancel>,
    ) -> Result<ServerCall<'_>, Trouble> {
        let place = (server, user);
        let free = |lines: &mut Lines| {
            let line = lines.iter_mut().find(|(_, calls)| *calls < CALLS_PER_CONNECTION)?;
            line.1 += 1;
            Some(line.0)
        };
        let token = self.users.token(user)?;
        let known = self.lines.lock().get_mut(&place).and_then(free);
        let connection = match known {
            Some(connection) => connection,
            None => {
                let security = token.map_or(ClientSecurity::Null, |token| ClientSecurity::Rxkad {
                    token,
                    level: RxkadLevel::Crypt,
                });
                let service = ServiceId(files::SERVICE);
                let made = self.port.connect(address(server), service, security, LIMITS)?;
                self.lines.lock().entry(place).or_default().push((made, 1));
                made
            }
        };
        let mut begun = ServerCall {
            servers: self,
            place,
            connection,
            call: None,
            listening: None,
            read: BytesMut::new(),
            is_ended: false,
            failed: false,
        };
        match self.port.begin(connection) {
            Ok(call) => {
                begun.listening = cancel.map(|cancel| {
                    let ender = call.ender();
                    cancel.on_cancel(move || ender.end())
                });
                begun.call = Some(call);
            }
            Err(error) => return Err(begun.failed(error)),
        }
        if cancel.is_some_and(Cancel::is_cancelled) {
            return Err(Trouble::Cancelled);
        }
        Ok(begun)
    }

    fn give_back(&self, place: (Ipv4Addr, AfsUser), connection: RxConnectionId, failed: bool) {
        let mut lines = self.lines.lock();
        if let Some(known) = lines.get_mut(&place) {
            if failed {
                known.retain(|(id, _)| *id != connection);
            } else if let Some(line) = known.iter_mut().find(|(id, _)| *id == connection) {
                line.1 -= 1;
            }
            if known.is_empty() {
                lines.remove(&place);
            }
        }
        drop(lines);
        if failed {
            self.port.disconnect(connection);
        }
    }
}

fn address(server: Ipv4Addr) -> SocketAddr {
    SocketAddr::new(server.into(), files::PORT)
}

impl ServerCall<'_> {
    /// A refusal with a positive code ends the call alone, anything else may be the connection's.
    /// Codes of rxkad are the connection's, too.
    fn failed(&mut self, error: RxError) -> Trouble {
        let ours = matches!(error, RxError::PeerAborted(code) if code > 0 && !is_of_rxkad(code));
        self.failed |= !ours;
        error.into()
    }

    fn call(&mut self) -> Result<&mut PortCall, Trouble> {
        self.call.as_mut().ok_or(Trouble::Odd)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        let written = self.call()?.write(bytes);
        self.heard(written)
    }

    fn end(&mut self) -> Result<(), Trouble> {
        if std::mem::replace(&mut self.is_ended, true) {
            return Ok(());
        }
        let ended = self.call()?.end();
        self.heard(ended)
    }

    /// A failure to write may hide the server's refusal, which a read tells.
    fn heard(&mut self, result: Result<(), RxError>) -> Result<(), Trouble> {
        let Err(error) = result else { return Ok(()) };
        let told = match self.call()?.read(1) {
            Err(told @ RxError::PeerAborted(_)) => told,
            _ => error,
        };
        Err(self.failed(told))
    }

    fn read_more(&mut self) -> Result<bool, Trouble> {
        match self.call()?.read(PART_BYTES) {
            Ok(Some(part)) => {
                self.read.extend_from_slice(&part);
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn take(&mut self, count: usize) -> Result<Bytes, Trouble> {
        while self.read.len() < count {
            if !self.read_more()? {
                return Err(Trouble::Odd);
            }
        }
        Ok(self.read.split_to(count).freeze())
    }

    fn answer(&mut self, procedure: u32) -> Result<FilesAnswer, Trouble> {
        self.end()?;
        while self.read_more()? {
            if self.read.len() > ANSWER_BYTES_MAX {
                return Err(Trouble::Odd);
            }
        }
        let mut from = XdrReader::new(&self.read);
        FilesAnswer::decode(procedure, &mut from).map_err(|_| Trouble::Odd)
    }
}

fn is_of_rxkad(code: i32) -> bool {
    (afs3::errors::RXKADINCONSISTENCY..=afs3::errors::RXKADILLEGALLEVEL).contains(&code)
}

impl Drop for ServerCall<'_> {
    fn drop(&mut self) {
        drop(self.call.take());
        self.servers.give_back(self.place, self.connection, self.failed);
    }
}
