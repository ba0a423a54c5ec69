//! Calls to the servers, and the lines about them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use afs3::RpcMessage;
use afs3::callbacks::CallbacksCall;
use afs3::errors::RXGEN_OPCODE;
use afs3::xdr::{XdrReader, XdrWriter};
use rx::rxkad::{RxkadKeys, RxkadLevel, print_token};
use rx::{CallLimits, ClientSecurity, EndpointConfig, RxConnectionId, ServerSecurity, ServiceId};
use rxport::{RxPort, ServedCall};

use crate::shown::Shown;

const LIMITS: CallLimits = CallLimits {
    dead: Duration::from_secs(10),
    idle: Duration::from_secs(20),
    hard: Duration::from_secs(40),
};
const PART_BYTES: usize = 65_536;

/// A service of a cell.
#[derive(Clone, Copy)]
pub struct Place {
    pub name: &'static str,
    pub port: u16,
    pub service: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Caller {
    Stranger,
    Superuser,
}

/// The codes with which the superuser's calls of a procedure ended.
pub type Heard = BTreeMap<(&'static str, u32), BTreeSet<i32>>;

pub struct Asker {
    port: RxPort,
    keys: RxkadKeys,
    connections: BTreeMap<(u16, Caller), RxConnectionId>,
    heard: Heard,
    pub address: Ipv4Addr,
    pub cell: String,
    pub partition: i32,
    pub shown: Shown,
}

/// The bytes of a call that no type here can hold.
pub fn raw(number: u32, parts: impl FnOnce(&mut XdrWriter<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut to = XdrWriter::new(&mut bytes);
    to.u32(number);
    parts(&mut to);
    bytes
}

/// A string of so many bytes, as XDR has it.
pub fn long_text(to: &mut XdrWriter<'_>, bytes: usize) {
    to.u32(bytes as u32);
    to.opaque(&vec![b'n'; bytes]);
}

/// A client that trusts nothing needs no callbacks.
fn answer_callbacks(served: ServedCall) {
    let mut call = served.call;
    let mut request = Vec::new();
    while let Ok(Some(part)) = call.read(PART_BYTES) {
        request.extend_from_slice(&part);
    }
    let mut from = XdrReader::new(&request);
    let number = from.u32().unwrap_or(0);
    match CallbacksCall::decode(number, &mut from) {
        Ok(
            CallbacksCall::InitCallBackState {}
            | CallbacksCall::InitCallBackState3 { .. }
            | CallbacksCall::Probe {}
            | CallbacksCall::CallBack { .. },
        ) => drop(call.end()),
        _ => call.abort(RXGEN_OPCODE),
    }
}

impl Asker {
    pub fn open(address: Ipv4Addr, keys: RxkadKeys, cell: &str, partition: i32) -> Asker {
        let here = SocketAddr::new(address.into(), 0);
        let services = vec![(ServiceId(afs3::callbacks::SERVICE), vec![ServerSecurity::Null])];
        let port = RxPort::open(here, EndpointConfig::default(), services, answer_callbacks);
        Asker {
            port: port.unwrap(),
            keys,
            connections: BTreeMap::new(),
            heard: Heard::new(),
            address,
            cell: cell.to_owned(),
            partition,
            shown: Shown::new(address),
        }
    }

    pub fn heard(&self) -> &Heard {
        &self.heard
    }

    fn connection(&mut self, place: Place, caller: Caller) -> RxConnectionId {
        let (port, keys, address) = (&self.port, &self.keys, self.address);
        *self.connections.entry((place.port, caller)).or_insert_with(|| {
            let security = match caller {
                Caller::Stranger => ClientSecurity::Null,
                Caller::Superuser => ClientSecurity::Rxkad {
                    token: print_token(keys, &mut rand::rng()).unwrap(),
                    level: RxkadLevel::Crypt,
                },
            };
            let to = SocketAddr::new(address.into(), place.port);
            port.connect(to, ServiceId(place.service), security, LIMITS).unwrap()
        })
    }

    fn exchange(&mut self, place: Place, caller: Caller, request: &[u8]) -> Result<Vec<u8>, i32> {
        let connection = self.connection(place, caller);
        let asked = self.port.ask(connection, request).map_err(|error| error.code());
        // A code of Rx itself may be the connection's.
        if asked.as_ref().is_err_and(|code| (-400..0).contains(code)) {
            self.connections.remove(&(place.port, caller));
            self.port.disconnect(connection);
        }
        asked
    }

    /// The bytes of the superuser's answer, without a line; none if it is refused.
    pub fn bytes(&mut self, place: Place, call: &impl RpcMessage) -> Vec<u8> {
        self.exchange(place, Caller::Superuser, &call.to_request()).unwrap_or_default()
    }

    /// A call by one caller; the results behind a stream, if all went well.
    pub fn ask_as<A: RpcMessage + Debug>(
        &mut self,
        place: Place,
        caller: Caller,
        case: &str,
        request: &[u8],
    ) -> Option<A> {
        let number = XdrReader::new(request).u32().unwrap();
        let row = A::PROCEDURES.iter().find(|row| row.number == number);
        let answered = self.exchange(place, caller, request);
        if caller == Caller::Superuser {
            let code = answered.as_ref().map_or_else(|code| *code, |_| 0);
            self.heard.entry((place.name, number)).or_default().insert(code);
        }
        let called = row.map_or_else(|| number.to_string(), |row| row.name.to_owned());
        let by = if caller == Caller::Stranger { "stranger" } else { "superuser" };
        let (told, answer) = match answered {
            Err(code) => (self.shown.code(code), None),
            Ok(bytes) => {
                let (stream, rest) = self.shown.stream(place.name, number, &bytes);
                let answer = A::decode(number, &mut XdrReader::new(&rest));
                let results = match &answer {
                    Ok(answer) => self.shown.results(answer),
                    Err(error) => format!("0, {} bytes: {error}", rest.len()),
                };
                (format!("{stream}{results}"), answer.ok())
            }
        };
        println!("{}.{called} {by}, {case}: {told}", place.name);
        answer
    }

    /// The same call by both callers, the stranger first; the superuser's results.
    pub fn ask<A: RpcMessage + Debug>(
        &mut self,
        place: Place,
        case: &str,
        request: &[u8],
    ) -> Option<A> {
        self.ask_as::<A>(place, Caller::Stranger, case, request);
        self.ask_as::<A>(place, Caller::Superuser, case, request)
    }
}
